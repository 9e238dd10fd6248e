"""Builds the documentation as a site: ``pip install '.[docs]' && python .docs/build.py``.

The site is build/docs, and works from disk: no page loads anything from another host. The build
fails on a broken link, on a name in a docstring that leads nowhere and on a docstring that does
not fit its signature.

zensical loads this file, too, as an extension of griffe (`Docstrings`).
"""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import griffe

ROOT = Path(__file__).parents[1]
SITE = ROOT / "build" / "docs"
SHIM = "https://unpkg.com/iframe-worker/shim"
"""What lets the search of a page opened from disk run; the site has its own copy."""
PACKAGE = ROOT / "integration_sdk"
PAGES = "\n".join(page.read_text() for page in (PACKAGE / "docs" / "reference").glob("*.md"))
ERRORS = re.findall(r"^class ([A-Z]\w+)", (PACKAGE / "errors.py").read_text(), re.MULTILINE)
SHOWN = {path.rpartition(".")[2]: path for path in re.findall(r"^::: (.+)$", PAGES, re.MULTILINE)}
SHOWN |= {name: f"integration_sdk.errors.{name}" for name in ERRORS}
"""Where the reference shows a public name."""
MADE_BY_USERS = {
    "Answer", "Client", "Dialect", "PushRequest", "Receiver", "Refused",
    "RetryPolicy", "Route", "Sandbox", "Store", "VirtualTimeLoop",
}  # fmt: skip
"""Classes whose constructor is shown."""


class Docstrings(griffe.Extension):
    """Makes Markdown of the docstrings: ``Name`` in single backticks becomes a link."""

    def on_object(self, *, obj: griffe.Object, **_: Any) -> None:
        """Write the docstring of *obj* as Markdown."""
        if obj.docstring is not None:
            text = re.sub(r"^::$|(?<=\w:):$", "", obj.docstring.value, flags=re.MULTILINE)
            obj.docstring.value = re.sub(
                r"(?<!`)`([A-Za-z_][\w.]*)`(?!`)", lambda match: self._link(match, obj), text
            )

    def on_class(self, *, cls: griffe.Class, **_: Any) -> None:
        """Show the constructors that users call, and no others."""
        if cls.name not in MADE_BY_USERS:
            cls.members.pop("__init__", None)
        elif "__init__" not in cls.members:
            cls.set_member("__init__", _init_of_attrs(cls))

    def on_function(self, *, func: griffe.Function, **_: Any) -> None:
        """Show no name that begins with an underscore as a default."""
        for parameter in func.parameters:
            if str(parameter.default).startswith("_"):
                parameter.default = "..."

    def _link(self, match: re.Match[str], obj: griffe.Object) -> str:
        head, _, member = match[1].removeprefix("integration_sdk.").partition(".")
        owner = obj if obj.is_class else obj.parent
        if (
            head not in SHOWN
            and owner is not None
            and owner.name in SHOWN
            and head in owner.members
        ):
            head, member = owner.name, head
        if head not in SHOWN:
            return match[0]
        path = SHOWN[head]
        found = obj.modules_collection[path].members.get(member)
        if found and found.has_docstring:  # others are in the list of their class
            path = f"{path}.{member}"
        return f"[`{match[1]}`][{path}]"


def _init_of_attrs(cls: griffe.Class) -> griffe.Function:
    """Return the constructor that attrs makes of the fields of *cls*."""
    kinds = griffe.ParameterKind
    all_by_name = any("kw_only=True" in str(one.value) for one in cls.decorators)
    parameters = [griffe.Parameter("self", kind=kinds.positional_or_keyword)]
    for field in cls.attributes.values():
        if "property" in field.labels:
            continue
        value = str(field.value or "")
        by_name = all_by_name or "kw_only=True" in value
        default: str | None = value or None
        if value.startswith("field("):
            default = (re.findall(r"default=([\w.]+)", value) or [None])[0]
            default = "..." if "factory=" in value else default
        kind = kinds.keyword_only if by_name else kinds.positional_or_keyword
        parameters.append(
            griffe.Parameter(field.name, annotation=field.annotation, kind=kind, default=default)
        )
    return griffe.Function("__init__", parameters=griffe.Parameters(*parameters), parent=cls)


def build() -> str:
    """Build the site. Return what is wrong with it, if anything is."""
    shutil.rmtree(SITE, ignore_errors=True)
    zensical = f"{sys.executable} -m zensical build -f .zensical.toml --strict --clean".split(" ")
    run = subprocess.run(zensical, cwd=ROOT, capture_output=True, text=True, check=False)  # noqa: S603 (our own arguments)
    said = run.stdout + run.stderr
    wrong = [line for line in said.splitlines() if line.startswith("griffe:")]
    if run.returncode or wrong:
        return said
    shutil.copy(Path(__file__).with_name("iframe-worker.js"), SITE / "assets")
    for page in SITE.rglob("*.html"):
        up = "../" * (len(page.relative_to(SITE).parts) - 1)
        text = page.read_text().replace(SHIM, f"{up}assets/iframe-worker.js")
        page.write_text(text)
        wrong += [
            f"{page} loads {url}"
            for url in re.findall(r'(?:src|rel="stylesheet" href)="?(https?://[^" >]+)', text)
        ]
    return "\n".join(wrong)


if __name__ == "__main__":
    sys.exit(build() or None)
