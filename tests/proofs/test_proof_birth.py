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
STEPS = (1, 2, 3, 5, 8, 13, 21, 34, 55)
PROGRAM = """
import asyncio, sys
from integration_sdk._store.store import Store

async def main():
    async with Store(sys.argv[1]) as store:
        await store._lend()

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
        for step in STEPS:
            path = tmp_path / f"{step}.db"
            was_killed = killed_at(step, path)
            async with Store(path) as store:
                assert await (await store._lend()).everything() == []
            if not was_killed:
                break

        assert step > 5
