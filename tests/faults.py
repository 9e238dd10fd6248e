"""Faults that the tests must catch: ``python -m tests.faults [NAME...]`` sows and reports them.

Each room keeps its own in ``tests/<room>/sown.py``. The runner copies the project to a scratch
folder, sows one fault there, and runs the named tests, of which at least one must fail. Without
names all are sown.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from importlib import import_module
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Final

from tests.support.fault import ROOT, Fault

LONGEST: Final = 300.0
"""Seconds after which tests that hang count as failed."""

FAULTS: Final[dict[str, Fault]] = {
    name: fault
    for path in sorted((ROOT / "tests").glob("*/sown.py"))
    for name, fault in import_module(f"tests.{path.parent.name}.sown").FAULTS.items()
}


def caught(fault: Fault, *, scratch: Path) -> bool:
    """Return whether the tests fail with *fault*, in a copy below *scratch*."""
    root = scratch / "project"
    shutil.rmtree(root, ignore_errors=True)
    for name in ("integration_sdk", "tests", "benchmarks"):
        shutil.copytree(ROOT / name, root / name, ignore=shutil.ignore_patterns("__pycache__"))
    for name in ("pyproject.toml", "README.md", "CHANGELOG.md"):
        shutil.copy(ROOT / name, root / name)
    fault.sow(root)
    paths = [str(path.relative_to(ROOT)) for path in fault.files()]
    command = [sys.executable, "-m", "pytest", "-x", "-q", "-n", "0", "-p", "no:cacheprovider"]
    environment = os.environ | {"PYTHONDONTWRITEBYTECODE": "1", "PYTHONPATH": str(root)}
    try:
        done = subprocess.run(
            [*command, *paths],
            cwd=root,
            env=environment,
            timeout=LONGEST,
            capture_output=True,
            check=False,
        )
    except subprocess.TimeoutExpired:
        return True
    assert done.returncode in {0, 1}, done.stdout.decode() + done.stderr.decode()
    return done.returncode == 1


def survivors(names: list[str]) -> Iterator[str]:
    """Yield the names of faults that no test catches."""
    with TemporaryDirectory() as scratch:
        for number, name in enumerate(names, 1):
            is_caught = caught(FAULTS[name], scratch=Path(scratch))
            said = "caught" if is_caught else "SURVIVED"
            sys.stdout.write(f"{number}/{len(names)} {said}: {name}\n")
            sys.stdout.flush()
            if not is_caught:
                yield name


def main(names: list[str]) -> int:
    """Sow the faults *names*, or all; return the exit code: 1 if one survives."""
    chosen = names or list(FAULTS)
    if unknown := sorted(set(chosen) - set(FAULTS)):
        sys.stderr.write(f"no such faults: {', '.join(unknown)}\n")
        return 2
    left = list(survivors(chosen))
    sys.stdout.write(f"{len(chosen) - len(left)} of {len(chosen)} faults were caught\n")
    return 1 if left else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
