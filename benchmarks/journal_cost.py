"""What it costs to record every push on disk before it leaves, and its end afterwards.

A push is recorded four times: when it is submitted, before it is sent, with its key, and when it
is final. The journal is compared with bare sqlite3 doing the same four durable commits; and the
whole client with a journal is compared with the client without, with 64 pushes in flight to a
sandbox in another process.

    python -m benchmarks journal_cost
"""

from __future__ import annotations

import asyncio
import json
import sqlite3
import time
from collections.abc import Callable, Coroutine, Mapping
from contextlib import closing
from functools import partial
from inspect import isawaitable
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from benchmarks._goals import GOALS
from benchmarks._peers import RESULTS
from benchmarks._push_server import PushServer, push_server
from benchmarks._question import Question, Rows
from benchmarks._turns import interleaved
from benchmarks.peers._frame import record
from integration_sdk import Client, OutcomeStatus, PushRequest, Store
from integration_sdk._push.table import new_row
from integration_sdk._store.row import Evidence, Lane, Row, State

PAYLOAD = json.dumps(record(17)).encode()
COMMITS = 4
AT_ONCE = 64
Work = Callable[[Path, int], Coroutine[Any, Any, None]]


def _steps(number: int) -> tuple[Row, ...]:
    """Return the recorded states of a push, in order."""
    lane = Lane(f"company-{number % 10}", "connection", "invoices")
    queued = new_row(lane, PAYLOAD, id=f"push-{number}")
    sending = queued.to(State.SENDING, attempts=1)
    opened = sending.to(State.OPEN, key=f"key-{number}", evidence=Evidence.OWN_ANSWER)
    return queued, sending, opened, opened.to(State.FINAL, status="Success")


async def _crowd(store: Store, pushes: int, at_once: int) -> None:
    async def sender(first: int) -> None:
        for number in range(first, pushes, at_once):
            queued, *steps = _steps(number)
            added = rows.add([queued])
            if isawaitable(added):
                await added
            for step in steps:
                made = rows.put([step])
                if made is not None:
                    await made

    async with store, asyncio.TaskGroup() as senders:
        rows = await store.lend()
        for first in range(at_once):
            senders.create_task(sender(first))


def _on_disk(at_once: int) -> Work:
    async def work(folder: Path, pushes: int) -> None:
        await _crowd(Store(folder / "journal.db"), pushes, at_once)

    return work


async def _in_memory(folder: Path, pushes: int) -> None:
    await _crowd(Store(), pushes, 64)


async def _bare_sqlite(folder: Path, pushes: int) -> None:
    with closing(sqlite3.connect(folder / "bare.db", isolation_level=None)) as db:
        db.execute("PRAGMA journal_mode = WAL")
        db.execute("PRAGMA synchronous = FULL")
        db.execute("CREATE TABLE pushes (id TEXT PRIMARY KEY, state TEXT, payload BLOB)")
        for number in range(pushes):
            for step in _steps(number):
                values = (step.id, step.state, PAYLOAD)
                db.execute("INSERT OR REPLACE INTO pushes VALUES (?, ?, ?)", values)


def _all_of_it(server: PushServer, *, journal: bool) -> Work:
    async def work(folder: Path, pushes: int) -> None:
        company, connection = server.lanes[0]
        requests = [
            PushRequest(company, connection, "invoices", record(number), reference=str(number))
            for number in range(pushes)
        ]
        kept = folder / "journal.db" if journal else None
        async with (
            Client(server.api_key, server.base_url, per_company=AT_ONCE) as client,
            client.coordinator(journal=kept) as coordinator,
        ):
            outcomes = [one async for one in coordinator.run(requests)]
        if any(one.status is not OutcomeStatus.SUCCESS for one in outcomes):
            raise RuntimeError("not all pushes succeeded: there is nothing to compare")

    return work


WORK: Mapping[str, tuple[Work, float]] = {
    "bare sqlite3, one by one": (_bare_sqlite, 0.1),
    "journal, one by one": (_on_disk(1), 0.1),
    "journal, 64 at once": (_on_disk(64), 1.0),
    "journal, 1,000 at once": (_on_disk(1000), 1.0),
    "in memory": (_in_memory, 1.0),
}
"""The work, and the share of the pushes it is done for: one at a time is slow."""


def journal_cost(quick: bool) -> Rows:
    return _measure(pushes=1000 if quick else 10_000, rounds=3 if quick else 5)


def _measure(pushes: int, rounds: int) -> Rows:
    RESULTS.mkdir(parents=True, exist_ok=True)
    with push_server(1, (0.05, 0.2), dialect="document") as server:
        clients: dict[str, tuple[Work, float]] = {
            "client, 64 in flight, no journal": (_all_of_it(server, journal=False), 0.3),
            "client, 64 in flight, journal": (_all_of_it(server, journal=True), 0.3),
        }
        return _compared({**WORK, **clients}, pushes, rounds)


def _compared(all_work: Mapping[str, tuple[Work, float]], pushes: int, rounds: int) -> Rows:
    turns = {
        name: partial(_turn, work, max(round(pushes * share), 1))
        for name, (work, share) in all_work.items()
    }
    return Rows(interleaved(f"{COMMITS} commits a push", turns, rounds=rounds))


def _turn(work: Work, count: int) -> Mapping[str, float]:
    # In the project's folder, since a temporary one may be in memory, where syncs cost nothing.
    with TemporaryDirectory(dir=RESULTS) as folder:
        cpu, wall = time.process_time(), time.perf_counter()
        asyncio.run(work(Path(folder), count))
        cpu, wall = time.process_time() - cpu, time.perf_counter() - wall
    return {
        "ms/push": wall / count * 1e3,
        "CPU us/push": cpu / count * 1e6,
        "pushes/s": count / wall,
    }


JOURNAL_COST = Question(
    "journal_cost",
    "What does it cost to have every push on disk before it leaves?",
    journal_cost,
    compare=("ms/push", "in memory"),
    goals=GOALS["journal_cost"],
)

QUESTIONS = (JOURNAL_COST,)
