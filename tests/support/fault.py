"""A fault that the tests must catch: one expression of one function, replaced by another."""

from __future__ import annotations

import ast
from pathlib import Path
from typing import Final, NamedTuple

ROOT: Final = Path(__file__).parents[2]


class Fault(NamedTuple):
    """One fault.

    file: Below the package.
    old, new: An expression or statement, however it is formatted, and what replaces it.
    tests: Names of the test files that must catch it, without ``test_`` and ``.py``, by spaces.
    function: The function that has *old* once, as ``name`` or ``Class.name``; ``""`` is the module.
    """

    file: str
    old: str
    new: str
    tests: str
    function: str = ""

    def sow(self, root: Path) -> None:
        """Replace the expression below *root*."""
        path = root / "integration_sdk" / self.file
        path.write_text(self.sown(path.read_text()))

    def sown(self, text: str) -> str:
        """Return the module *text* with the fault; AssertionError unless it has *old* once."""
        place = _function(ast.parse(text), self.function)
        old = _parsed(self.old)
        alike = (node for node in ast.walk(place) if type(node) is type(old))
        found = [node for node in alike if ast.dump(node) == ast.dump(old)]
        assert len(found) == 1, f"{self.file} {self.function}: {len(found)} times {self.old!r}"
        start, end = _span(text, found[0])
        return text[:start] + self.new + text[end:]

    def files(self) -> list[Path]:
        """Return the test files that must catch it; AssertionError if one is missing."""
        found = [list((ROOT / "tests").glob(f"*/test_{name}.py")) for name in self.tests.split()]
        assert found, self.tests
        assert all(len(paths) == 1 for paths in found), self.tests
        return [paths[0] for paths in found]


def _parsed(code: str) -> ast.AST:
    (statement,) = ast.parse(code).body
    return statement.value if isinstance(statement, ast.Expr) else statement


def _function(module: ast.Module, name: str) -> ast.AST:
    place: ast.AST = module
    for part in filter(None, name.split(".")):
        found = [one for one in ast.walk(place) if getattr(one, "name", None) == part]
        assert len(found) == 1, f"{len(found)} definitions of {name}"
        place = found[0]
    return place


def _span(text: str, node: ast.AST) -> tuple[int, int]:
    lines = text.splitlines(keepends=True)

    def offset(line: int, column: int) -> int:
        before = "".join(lines[: line - 1])
        return len(before) + len(lines[line - 1].encode()[:column].decode())

    assert isinstance(node, ast.expr | ast.stmt)
    assert node.end_lineno is not None
    assert node.end_col_offset is not None
    return offset(node.lineno, node.col_offset), offset(node.end_lineno, node.end_col_offset)
