"""Proof: each row is on stable storage before the first byte of its POST leaves.

A worker of `chaos` runs under strace, which sees the writes to the journal's log, their syncs and
the bytes that go to the socket. Where there is no strace, there is no proof.
"""

from __future__ import annotations

import asyncio
import json
import re
import shutil
import sys
from collections.abc import Iterable
from pathlib import Path

import pytest

from integration_sdk.sandbox import Sandbox
from tests.proofs.chaos import ROOT

STRACE = shutil.which("strace")
CALLS = "write,pwrite64,fsync,fdatasync,sendto,sendmsg,writev"
NAME = re.compile(r"S\d{5}")
CARELESS = """
import sqlite3, sys
from functools import partial

class Careless(sqlite3.Connection):
    def execute(self, text, *values):
        return super().execute(text.replace("synchronous = FULL", "synchronous = NORMAL"), *values)

sqlite3.connect = partial(sqlite3.connect, factory=Careless)
from tests.proofs import chaos
chaos.main()
"""


def left_early(trace: Iterable[str]) -> tuple[list[str], list[str]]:
    """Return the records in the order of their POSTs, and those that were not durable by then.

    One thread writes to the log and syncs it; strace may tell the end of its sync in a later line.
    """
    written, syncing, durable = set[str](), set[str](), set[str]()
    sent, early = list[str](), list[str]()
    for line in trace:
        if "sync" in line:
            if "-wal>" in line:
                syncing = set(written)
            if not line.endswith("<unfinished ...>\n"):
                durable |= syncing
        elif "-wal>" in line:
            written |= set(NAME.findall(line))
        elif '"POST /companies/' in line:
            (name,) = set(NAME.findall(line))
            sent.append(name)
            if name not in durable:
                early.append(name)
    return sent, early


async def audit(folder: Path, records: int, *program: str) -> list[str]:
    """Push records over a journal, and return those that left early."""
    async with Sandbox(companies=1, invoices=1, push_seconds=(0.01, 0.1)) as sandbox:
        facts = {
            "api_key": sandbox.api_key,
            "base_url": sandbox.base_url,
            "store": str(folder / "pushes.db"),
            "span": (0, records),
            "lanes": [(sandbox.companies[0].id, sandbox.companies[0].connections[0].id)],
        }
        watch = ("-f", "-y", "-s", "65536", "-e", f"trace={CALLS}", "-o", str(folder / "trace"))
        process = await asyncio.create_subprocess_exec(
            *(str(STRACE), *watch, sys.executable, *program, "work", json.dumps(facts)), cwd=ROOT
        )
        assert await process.wait() == 0
        assert len(sandbox.pushes) == records
    with (folder / "trace").open(errors="replace") as lines:
        sent, early = left_early(lines)
    assert sorted(sent) == [f"S{number:05d}" for number in range(records)]
    return early


if STRACE:

    @pytest.mark.parametrize("records", [30, pytest.param(1000, marks=pytest.mark.long)])
    async def test_no_post_leaves_before_its_row_is_on_disk(tmp_path: Path, records: int) -> None:
        """By the system calls: written, synced, and only then sent."""
        assert await audit(tmp_path, records, "-m", "tests.proofs.chaos") == []

    async def test_journal_that_does_not_sync_is_caught(tmp_path: Path) -> None:
        """With ``synchronous = NORMAL`` POSTs leave before their rows are on disk."""
        assert len(await audit(tmp_path, 10, "-c", CARELESS)) >= 9
