"""Lint, format and layers are part of the one test command; `test_docs` checks the types."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
CHECKS = {
    "lint": ["ruff", "check", "--output-format=concise"],
    "format": ["ruff", "format", "--check"],
    "layers": ["lint-imports", "--no-cache"],
}


@pytest.mark.parametrize("check", CHECKS)
def test_source_passes(check: str) -> None:
    """Each tool finds nothing to say about the project's own source."""
    program, *arguments = CHECKS[check]
    found = Path(sys.executable).with_name(program)

    ran = subprocess.run([found, *arguments], cwd=ROOT, capture_output=True, text=True, check=False)

    assert ran.returncode == 0, ran.stdout + ran.stderr
