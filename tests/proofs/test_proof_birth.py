"""Proof: a process that dies while it makes its journal can start again.

Killed by strace at each system call that changes a file, one after the other.
"""

from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path

from integration_sdk._store.store import Store
from tests.proofs.chaos import ROOT

STRACE = shutil.which("strace")
CHANGES = "pwrite64,fsync,fdatasync,ftruncate,unlink,rename,link"
EACH = 10
"""The first steps are tried one by one, of the others every fourth."""
PROGRAM = """
import asyncio, sys
from integration_sdk._store.store import Store

async def main():
    async with Store(sys.argv[1]) as store:
        await store.lend()

asyncio.run(main())
"""


def killed_at(step: int, path: Path) -> bool:
    """Make a journal and die at so many changes; False where there are not that many."""
    inject = f"inject={CHANGES}:signal=SIGKILL:when={step}"
    command = [str(STRACE), "-f", "-o", str(path.with_name("trace")), "-e", f"trace={CHANGES}"]
    program = [sys.executable, "-W", "ignore", "-c", PROGRAM, str(path)]
    done = subprocess.run([*command, "-e", inject, *program], cwd=ROOT, timeout=60, check=False)
    return done.returncode != 0


if STRACE:

    async def test_journal_whose_making_was_cut_short_is_made_again(tmp_path: Path) -> None:
        """Whichever change of a file was its last, the next process opens the journal."""
        step = 1
        while killed_at(step, tmp_path / f"{step}.db"):
            async with Store(tmp_path / f"{step}.db") as store:
                assert await (await store.lend()).everything() == []
            step += 1 if step < EACH else 4

        assert step > 5
