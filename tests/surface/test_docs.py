"""Promises of README, the documentation and the source: programs run, links lead somewhere, and
all pass their checks, which are part of the one test command.
"""

from __future__ import annotations

import asyncio
import contextlib
import io
import json
import re
import runpy
import subprocess
import sys
import textwrap
import tomllib
from pathlib import Path
from typing import NamedTuple

import pytest

import integration_sdk
from integration_sdk.sandbox import Sandbox

ROOT = Path(__file__).parents[2]
DOCS = ROOT / "integration_sdk" / "docs"
PAGES = [ROOT / "README.md", *sorted(DOCS.rglob("*.md"))]
_BLOCK = re.compile(r"((?:^ *<!--.*?-->\n)*)^( *)```python\n(.*?)^ *```", re.DOTALL | re.MULTILINE)
_NOTE = re.compile(r"<!-- (\w+): (.*?) -->", re.DOTALL)
_LINK = re.compile(r"\]\(([^)\s]+)\)")
PYRIGHT = {
    "typeCheckingMode": "standard",
    "reportMissingImports": False,
    "reportMissingModuleSource": False,
    "extraPaths": [str(ROOT)],
}


class Block(NamedTuple):
    """A program of a page.

    notes: ``prints``, an expression for its output; ``posts``, how many records it pushes;
        ``skip``, why it does not run here; ``fresh``, that it needs an interpreter of its own.
    """

    page: Path
    line: int
    code: str
    notes: dict[str, str]

    @property
    def runs(self) -> bool:
        return "skip" not in self.notes

    def __str__(self) -> str:
        return f"{_name(self.page)}:{self.line}"


def _name(page: Path) -> str:
    return str(page.relative_to(ROOT))


def blocks(page: Path) -> list[Block]:
    text = page.read_text()
    return [
        Block(
            page=page,
            line=text[: match.start(3)].count("\n") + 1,
            code=textwrap.dedent(match[3]),
            notes=dict(_NOTE.findall(match[1])),
        )
        for match in _BLOCK.finditer(text)
    ]


WITH_PROGRAMS = [page for page in PAGES if any(one.runs for one in blocks(page))]


@pytest.mark.parametrize("page", WITH_PROGRAMS, ids=_name)
async def test_the_programs_of_a_page_run_in_order(
    page: Path, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """In one folder, against one sandbox, with what each says it prints and pushes."""
    monkeypatch.chdir(tmp_path)
    async with Sandbox(companies=3, invoices=2_500, push_seconds=(0.05, 0.2)) as sandbox:
        monkeypatch.setenv("INTEGRATION_SDK_API_KEY", sandbox.api_key)
        monkeypatch.setenv("INTEGRATION_SDK_BASE_URL", sandbox.base_url)
        for number, block in enumerate(one for one in blocks(page) if one.runs):
            kind = "test_program" if "def test_" in block.code else "program"
            program = tmp_path / f"{kind}{number}.py"
            program.write_text("\n" * (block.line - 1) + block.code)  # tracebacks name the line
            before = sandbox.count("POST", "/push/")
            printed = await _run(block, program)
            if "prints" in block.notes:
                assert re.search(block.notes["prints"], printed, re.DOTALL), printed
            if "posts" in block.notes:
                posted = sandbox.count("POST", "/push/") - before
                assert posted == int(block.notes["posts"]), str(block)


@pytest.mark.parametrize("check", ["ruff check", "ruff format --check", "lint-imports --no-cache"])
def test_source_passes(check: str) -> None:
    """Lint, format and layers."""
    program, *arguments = check.split()
    found = Path(sys.executable).with_name(program)

    ran = subprocess.run([found, *arguments], cwd=ROOT, capture_output=True, text=True, check=False)

    assert ran.returncode == 0, ran.stdout + ran.stderr


@pytest.mark.parametrize("checker", ["mypy", "basedpyright"])
@pytest.mark.timeout(300)
def test_source_and_documented_programs_pass_type_checkers(checker: str, tmp_path: Path) -> None:
    """In one run of mypy, strict; pyright reads the programs, as their readers' editors do."""
    for block in (one for page in PAGES for one in blocks(page)):
        if block.code.startswith(("import ", "from ", '"""')):  # a program, not a part of one
            name = re.sub(r"\W+", "_", str(block))
            (tmp_path / f"{name}.py").write_text(block.code)
    (tmp_path / "pyrightconfig.json").write_text(json.dumps(PYRIGHT))
    what = ["integration_sdk", "tests", "benchmarks", *map(str, sorted(tmp_path.glob("*.py")))]
    program = str(Path(sys.executable).with_name(checker))
    of_pyright = ["--project", str(tmp_path), "--pythonpath", sys.executable]
    command = [program, *(what if checker == "mypy" else of_pyright)]

    ran = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)

    assert ran.returncode == 0, ran.stdout + ran.stderr


async def _run(block: Block, program: Path) -> str:
    if "def test_" in block.code:
        command = ["-m", "pytest", "-q", "-p", "no:cacheprovider", str(program)]
    elif "fresh" in block.notes:
        command = ["-W", "error", str(program)]
    else:
        out = io.StringIO()
        with contextlib.redirect_stdout(out):
            await asyncio.to_thread(runpy.run_path, str(program), run_name="__main__")
        return out.getvalue()
    process = await asyncio.create_subprocess_exec(
        sys.executable, *command, stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.STDOUT
    )
    printed, _ = await process.communicate()
    assert process.returncode == 0, printed.decode()
    return printed.decode()


@pytest.mark.parametrize("page", PAGES, ids=_name)
def test_links_lead_somewhere(page: Path) -> None:
    """Links between pages are files of the package, and name headings that are there."""
    for target in _LINK.findall(page.read_text()):
        if "://" in target:
            continue
        path, _, anchor = target.partition("#")
        file = (page.parent / path).resolve() if path else page
        assert file.is_file(), target
        assert not anchor or anchor in _anchors(file), target


def _anchors(page: Path) -> set[str]:
    heads = re.findall(r"^#+ (.*)$", page.read_text(), re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", head.lower()).replace(" ", "-") for head in heads}


def test_the_reference_shows_each_public_name_once() -> None:
    """By its public address; the errors come with their module."""
    pages = (DOCS / "reference").glob("*.md")
    shown = re.findall(r"^::: (.*)$", "\n".join(page.read_text() for page in pages), re.MULTILINE)
    names = {
        name
        for name in dir(integration_sdk)
        if not name.startswith("_")
        and getattr(getattr(integration_sdk, name), "__module__", "") != "integration_sdk.errors"
    } | {"errors", "sandbox", "testing", "webhooks"}

    assert sorted(shown) == sorted(f"integration_sdk.{name}" for name in names)


def test_the_site_leads_to_each_page() -> None:
    """A page that is in no list of pages is found by nobody."""
    site = tomllib.loads((ROOT / ".zensical.toml").read_text())["project"]
    listed = [page for part in site["nav"] for pages in part.values() for page in pages]
    paths = [path for page in listed for path in page.values()]

    assert sorted(paths) == sorted(str(page.relative_to(DOCS)) for page in DOCS.rglob("*.md"))


def test_readme_can_be_read_in_two_minutes() -> None:
    """What is longer belongs into a page of its own."""
    text = (ROOT / "README.md").read_text()
    prose = re.sub(r"```.*?```", "", text, flags=re.DOTALL)
    assert len(text.encode()) <= 7_000
    assert all(len(paragraph) <= 700 for paragraph in prose.split("\n\n"))
