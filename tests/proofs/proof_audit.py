"""Watches whether each intent is on stable storage before the first byte of its POST leaves.

The child of `proof_child` runs under strace, which sees the writes to the journal's log, their
syncs and the bytes that go to the socket. Where there is no strace, the sandbox looks into the
journal file at the moment a POST arrives: the row must have been committed by then. That is
weaker, since it cannot see whether the commit was synced.
"""

from __future__ import annotations

import asyncio
import json
import os
import re
import shutil
import signal
import sqlite3
import sys
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

from attrs import define, field, frozen

from integration_sdk.sandbox import Sandbox

ROOT = Path(__file__).parents[2]
STRACE = shutil.which("strace")
CALLS = "write,pwrite64,fsync,fdatasync,sendto,sendmsg,writev"
NAME = re.compile(r"AUDIT-\d{5}")
LINE = re.compile(r"^(?P<pid>\d+) +(?:<\.\.\. (?P<resumed>\w+) resumed>|(?P<call>\w+)\()")
PUSH = '"POST /companies/'
WRITES = frozenset({"write", "pwrite64"})
SYNCS = frozenset({"fsync", "fdatasync"})
SENDS = frozenset({"sendto", "sendmsg", "writev", "write"})
LONGEST = 300.0
"""Seconds that a child may take."""


@frozen
class Verdict:
    """What was seen.

    Attributes:
        posts: POSTs whose first byte was seen leaving, by record.
        early: Those whose intent was not on stable storage by then.
        succeeded: Records that the child says were pushed.
        how: "strace", or "rows" where there is none.
    """

    posts: tuple[str, ...]
    early: tuple[str, ...]
    succeeded: int
    how: str


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

    Attributes:
        written: Records whose intent has been written.
        syncing: What a sync that is under way will make durable.
        durable: Records whose intent is on stable storage.
        sent: Records in the order of their POSTs.
        early: Those that were not durable by then.
    """

    written: set[str] = field(factory=set)
    syncing: dict[str, set[str]] = field(factory=dict)
    durable: set[str] = field(factory=set)
    sent: list[str] = field(factory=list)
    early: list[str] = field(factory=list)

    def take(self, event: Event) -> None:
        """Note what a system call did."""
        to_log = "-wal>" in event.text
        if event.call in WRITES and to_log and event.ends:
            self.written.update(NAME.findall(event.text))
        elif event.call in SYNCS and to_log:
            self._sync(event)
        elif event.call in SENDS and event.begins and PUSH in event.text:
            self._send(event.text)

    def _sync(self, event: Event) -> None:
        if event.begins:
            self.syncing[event.text] = set(self.written)
        if event.ends:
            self.durable |= self.syncing.pop(event.text, set())

    def _send(self, text: str) -> None:
        (name,) = set(NAME.findall(text))
        self.sent.append(name)
        if name not in self.durable:
            self.early.append(name)


async def audit(folder: Path, records: int, *, synchronous: str | None = None) -> Verdict:
    """Push records over a journal and watch; *synchronous* seeds a fault."""
    async with Sandbox(companies=1, invoices=1, push_seconds=(0.01, 0.1)) as sandbox:
        config = _config(sandbox, folder / "pushes.db", records)
        if synchronous is not None:
            config["synchronous"] = synchronous
        if STRACE:
            return await _by_strace(STRACE, config, folder / "trace")
        return await by_rows(sandbox, config)


def _config(sandbox: Sandbox, journal: Path, records: int) -> dict[str, Any]:
    company = sandbox.companies[0]
    return {
        "api_key": sandbox.api_key,
        "base_url": sandbox.base_url,
        "company": company.id,
        "connections": [one.id for one in company.connections[:2]],
        "journal": str(journal),
        "name": "AUDIT",
        "natural_key": True,
        "again": True,
        "records": records,
        "patience": 30,
    }


async def _by_strace(strace: str, config: Mapping[str, Any], trace: Path) -> Verdict:
    watch = (strace, "-f", "-y", "-s", "65536", "-e", f"trace={CALLS}", "-o", str(trace))
    succeeded = await _child(watch, config)
    log = Log()
    with trace.open(errors="replace") as lines:
        for event in events(lines):
            log.take(event)
    return Verdict(tuple(log.sent), tuple(log.early), succeeded, "strace")


async def by_rows(sandbox: Sandbox, config: Mapping[str, Any]) -> Verdict:
    """The weaker audit: when a POST arrives, another process can read its row."""
    sent: list[str] = []
    early: list[str] = []

    async def look(call: Any, proceed: Any) -> Any:
        name = json.loads(call.body)["invoiceNumber"]
        sent.append(name)
        if not _is_on_record(config["journal"], name):
            early.append(name)
        return await proceed()

    sandbox.faults.add(look, route="POST /push/")
    succeeded = await _child((), config)
    return Verdict(tuple(sent), tuple(early), succeeded, "rows")


def _is_on_record(journal: str, name: str) -> bool:
    db = sqlite3.connect(f"file:{journal}?mode=ro", uri=True)
    try:
        row = db.execute("SELECT state FROM pushes WHERE reference = ?", (name,)).fetchone()
    finally:
        db.close()
    return row is not None and row[0] == "SENDING"


async def _child(watch: tuple[str, ...], config: Mapping[str, Any]) -> int:
    program = (sys.executable, "-m", "tests.proofs.proof_child", "once", json.dumps(config))
    process = await asyncio.create_subprocess_exec(
        *watch, *program, cwd=ROOT, stdout=asyncio.subprocess.PIPE, start_new_session=True
    )
    try:
        async with asyncio.timeout(LONGEST):
            said, _ = await process.communicate()
    finally:
        if process.returncode is None:
            os.killpg(process.pid, signal.SIGKILL)  # a tracer that is killed lets go of its child
            await process.wait()
    if process.returncode:
        raise RuntimeError(f"the child ended with code {process.returncode}")
    lines = said.decode().splitlines()
    return sum(json.loads(line)[1] == "SUCCESS" for line in lines if line.startswith("["))
