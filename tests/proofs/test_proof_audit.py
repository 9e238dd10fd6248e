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
from collections.abc import Iterable, Iterator
from pathlib import Path

import pytest
from attrs import define, field, frozen

from integration_sdk.sandbox import Sandbox
from tests.proofs.chaos import ROOT

STRACE = shutil.which("strace")
CALLS = "write,pwrite64,fsync,fdatasync,sendto,sendmsg,writev"
NAME = re.compile(r"S\d{5}")
LINE = re.compile(r"^(?P<pid>\d+) +(?:<\.\.\. (?P<resumed>\w+) resumed>|(?P<call>\w+)\()")
PUSH = '"POST /companies/'
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


@frozen
class Event:
    """The beginning or the end of a system call."""

    call: str
    begins: bool
    ends: bool
    text: str


def events(lines: Iterable[str]) -> Iterator[Event]:
    """Read strace's output; a call that another thread interrupts comes in two parts."""
    begun: dict[str, str] = {}
    for line in lines:
        found = LINE.match(line)
        if found is None:
            continue
        pid, resumed = found["pid"], found["resumed"]
        if resumed:
            yield Event(resumed, False, True, begun.pop(pid, ""))
            continue
        is_whole = not line.rstrip().endswith("<unfinished ...>")
        if not is_whole:
            begun[pid] = line
        yield Event(found["call"], True, is_whole, line)


@define
class Log:
    """The journal's log as the disk sees it.

    written, durable: Records whose row has been written; and is on stable storage.
    syncing: What a sync that is under way will make durable.
    sent, early: Records in the order of their POSTs; those that were not durable by then.
    """

    written: set[str] = field(factory=set)
    syncing: dict[str, set[str]] = field(factory=dict)
    durable: set[str] = field(factory=set)
    sent: list[str] = field(factory=list)
    early: list[str] = field(factory=list)

    def take(self, event: Event) -> None:
        """Note what a system call did."""
        to_log = "-wal>" in event.text
        if event.call in {"write", "pwrite64"} and to_log and event.ends:
            self.written.update(NAME.findall(event.text))
        elif event.call in {"fsync", "fdatasync"} and to_log:
            if event.begins:
                self.syncing[event.text] = set(self.written)
            if event.ends:
                self.durable |= self.syncing.pop(event.text, set())
        elif event.begins and PUSH in event.text and not to_log:
            (name,) = set(NAME.findall(event.text))
            self.sent.append(name)
            if name not in self.durable:
                self.early.append(name)


async def audit(folder: Path, records: int, *program: str) -> Log:
    """Push records over a journal, and watch."""
    async with Sandbox(companies=1, invoices=1, push_seconds=(0.01, 0.1)) as sandbox:
        lane = sandbox.companies[0].id, sandbox.companies[0].connections[0].id
        facts = {
            "api_key": sandbox.api_key,
            "base_url": sandbox.base_url,
            "store": str(folder / "pushes.db"),
            "span": (0, records),
            "lanes": [lane],
        }
        watch = ("-f", "-y", "-s", "65536", "-e", f"trace={CALLS}", "-o", str(folder / "trace"))
        process = await asyncio.create_subprocess_exec(
            *(str(STRACE), *watch, sys.executable, *program, "work", json.dumps(facts)), cwd=ROOT
        )
        assert await process.wait() == 0
        assert len(sandbox.pushes) == records
    log = Log()
    with (folder / "trace").open(errors="replace") as lines:
        for event in events(lines):
            log.take(event)
    assert sorted(log.sent) == [f"S{number:05d}" for number in range(records)]
    return log


if STRACE:

    @pytest.mark.parametrize("records", [60, pytest.param(1000, marks=pytest.mark.long)])
    async def test_no_post_leaves_before_its_row_is_on_disk(tmp_path: Path, records: int) -> None:
        """By the system calls: written, synced, and only then sent."""
        assert (await audit(tmp_path, records, "-m", "tests.proofs.chaos")).early == []

    async def test_journal_that_does_not_sync_is_caught(tmp_path: Path) -> None:
        """With ``synchronous = NORMAL`` POSTs leave before their rows are on disk."""
        assert len((await audit(tmp_path, 20, "-c", CARELESS)).early) >= 19


def test_calls_that_threads_interrupt_are_put_together_again() -> None:
    """A call in two parts begins with the first and ends with the second."""
    trace = [
        "7 fdatasync(3</j.db-wal> <unfinished ...>",
        '8 sendto(4<socket:[1]>, "POST /", 6, 0, NULL, 0) = 6',
        "7 <... fdatasync resumed>) = 0",
        "7 +++ exited with 0 +++",
    ]

    assert list(events(trace)) == [
        Event("fdatasync", True, False, trace[0]),
        Event("sendto", True, True, trace[1]),
        Event("fdatasync", False, True, trace[0]),
    ]
