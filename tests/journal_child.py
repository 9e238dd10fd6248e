"""Processes that are killed: what they reported as durable must be in the journal.

``python -m tests.journal_child kill PATH ROUNDS SEED`` forks a writer per round, kills it with
signal 9 at a random moment and looks into the journal.
``python -m tests.journal_child audit PATH COUNT [NORMAL]`` commits and says so, one by one, for
whoever watches its system calls.
"""

import asyncio
import json
import os
import signal
import sys
import time
from pathlib import Path
from random import Random

from integration_sdk._store.file import JournalFile

from integration_sdk._push.table import new_intent
from integration_sdk._store import SqliteJournal
from integration_sdk._store.row import Intent, Lane, Snapshot, State

LANE = Lane("company", "books", "invoices")
SNAPSHOT = Snapshot(frozenset(f"key-{number}" for number in range(50)))


def sending(name: str) -> Intent:
    intent = new_intent(LANE, json.dumps({"invoiceNumber": name}).encode(), id=name, reference=name)
    return intent.to(State.SENDING, attempts=1, snapshot=SNAPSHOT)


async def write_for_ever(path: Path, life: int, report: int) -> None:
    """Eight pushes at a time; each commit is reported once it returned."""
    journal = await SqliteJournal.open(path)
    names = iter(f"{life}-{number}" for number in range(10**9))

    async def push() -> None:
        for name in names:
            row = sending(name)
            await journal.commit([row])
            os.write(report, f"{name} SENDING\n".encode())
            await journal.commit([row.to(State.ACKED, key=f"of-{name}")])
            os.write(report, f"{name} ACKED\n".encode())

    await asyncio.gather(*(push() for _ in range(8)))


def one_life(path: Path, life: int, dice: Random) -> list[str]:
    """Let a writer live for a moment, kill it, and return what it reported."""
    reading, report = os.pipe()
    child = os.fork()
    if child == 0:
        asyncio.run(write_for_ever(path, life, report))
        os._exit(0)
    os.close(report)
    # Counted, since a busy machine does little in 20 ms; none is for one that opens the journal.
    begun = dice.randint(1, 20) if dice.random() < 0.8 else 0
    with os.fdopen(reading, "rb") as pipe:
        said = b"".join(pipe.readline() for _ in range(begun))
        time.sleep(dice.random() * 0.02)
        os.kill(child, signal.SIGKILL)
        os.waitpid(child, 0)
        said += pipe.read()
    lines = said.decode().splitlines()
    return [line for line in lines if line.startswith(f"{life}-") and len(line.split()) == 2]


def kill(path: Path, rounds: int, seed: int) -> None:
    dice = Random(seed)
    lost = reported = 0
    for life in range(rounds):
        said = [line.split() for line in one_life(path, life, dice)]
        journal = JournalFile(path)  # checks all of it, and that nobody holds the lock
        rows = {row.id: row for row in journal.read()}
        journal.close()
        reported += len(said)
        lost += sum(
            name not in rows or (state == "ACKED" and rows[name].state is not State.ACKED)
            for name, state in said
        )
    print(json.dumps({"kills": rounds, "reported": reported, "lost": lost}))  # noqa: T201  # its output


async def audit(path: Path, count: int, synchronous: str) -> None:
    journal = await SqliteJournal.open(path)
    setting = f"PRAGMA synchronous = {synchronous}"
    await asyncio.get_running_loop().run_in_executor(
        journal._thread, journal._file._db.execute, setting
    )
    for number in range(count):
        await journal.commit([sending(f"push-{number}")])
        os.write(1, b"SENT\n")
    await journal.close()


if __name__ == "__main__":
    what, where, times, *more = sys.argv[1:]
    if what == "kill":
        kill(Path(where), int(times), int(more[0]))
    else:
        asyncio.run(audit(Path(where), int(times), more[0] if more else "FULL"))
