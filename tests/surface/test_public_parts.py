"""Only public parts of the libraries that carry requests are used."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

import integration_sdk

HOME = Path(integration_sdk.__file__).parent
LIBRARIES = ("aiohttp", "backoff", "msgspec", "cattrs", "attrs", "yarl", "multidict")
KNOWN = {  # our own
    "_client.py: getattr(_context)",
    "_store/sqlite.py: hasattr(_db)",
}


def is_private(name: str) -> bool:
    return name.startswith("_") and not name.startswith("__")


def private_parts(path: Path) -> Iterator[str]:
    """Yield what *path* uses of the libraries by a private name."""
    tree = ast.parse(path.read_text())
    theirs = set[str]()
    for node in ast.walk(tree):
        if isinstance(node, ast.ImportFrom) and (node.module or "").split(".")[0] in LIBRARIES:
            names = [*(node.module or "").split("."), *(one.name for one in node.names)]
            yield from (f"import {name}" for name in names if is_private(name))
            theirs.update(one.asname or one.name for one in node.names)
        if isinstance(node, ast.Import):
            theirs.update(one.name for one in node.names if one.name in LIBRARIES)
    for node in ast.walk(tree):
        if isinstance(node, ast.Attribute) and is_private(node.attr):
            root: ast.expr = node.value
            while isinstance(root, ast.Attribute):
                root = root.value
            if isinstance(root, ast.Name) and root.id in theirs:
                yield node.attr
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Name):
            strings = [arg.value for arg in node.args if isinstance(arg, ast.Constant)]
            if node.func.id in {"getattr", "setattr", "hasattr"}:
                found = [one for one in strings if isinstance(one, str) and is_private(one)]
                yield from (f"{node.func.id}({one})" for one in found)


def test_no_private_part_of_a_library_is_used() -> None:
    """By import, by attribute or by a name in a string."""
    found = {
        f"{path.relative_to(HOME)}: {what}"
        for path in HOME.rglob("*.py")
        for what in private_parts(path)
    }

    assert found <= KNOWN
