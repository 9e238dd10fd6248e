"""What it takes to push many records: requests, delay, CPU, memory, and the journal.

- `pushing`: a sandbox on another core takes about two seconds for each push. All contenders push
  the same invoices to the same companies and report when each push was known to be final; the
  sandbox says when it was. "aiohttp POSTs alone" only sends the same records: the machine's limit.
- `open_pushes`: the time until every push has been answered, 64 in flight, beside plain aiohttp
  POSTs; what tracemalloc counts for each push that stays Pending, beyond the caller's request,
  beside a task that awaits it (the least of ten moments, since at others an answer is being read);
  and how late the loop is while all of them are open and polled.
- `journal_cost`: a push is recorded four times: when it is submitted, before it is sent, with its
  key, and when it is final. The journal is compared with bare sqlite3 doing the same four durable
  commits, and the whole client with a journal with the client without.
"""

from __future__ import annotations

import asyncio
import gc
import json
import sqlite3
import time
import tracemalloc
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine, Mapping, Sequence
from contextlib import asynccontextmanager, closing
from functools import partial
from pathlib import Path
from statistics import median, quantiles
from tempfile import TemporaryDirectory
from typing import Any

from benchmarks import _contenders
from benchmarks._contenders import ContenderFailedError, Peer, in_turn, peers_in_turn
from benchmarks._machine import RESULTS, cpu_seconds
from benchmarks._question import Pick, Rows, at_least, at_most, question, row
from benchmarks._servers import SandboxServer, sandbox_server
from benchmarks.peers._frame import record, stall_figures, watched
from benchmarks.peers.pushers import posts
from integration_sdk import (
    Client,
    Coordinator,
    Dialect,
    OutcomeStatus,
    PushEvent,
    PushRequest,
    Store,
)
from integration_sdk._store.row import Evidence, Lane, Result, Row, State

COMPANIES = 10
AT_ONCE = 64
PUSHED = "10,000 pushes"

# Pushes by many contenders

COORDINATOR = Peer("integration_sdk", "sdk:push")
POSTS = Peer("aiohttp POSTs alone", "pushers:posts")
TASK_PER_PUSH = Peer("a task per push", "pushers:task_per_push", share=0.2)
PUSHERS = (
    COORDINATOR,
    POSTS,
    TASK_PER_PUSH,
    Peer("gather + sleep", "pushers:gather_and_sleep", share=0.2),
    Peer("bare backoff", "pushers:bare_backoff", share=0.2),
    Peer("codat SDKs in a loop", "vendor:push", _contenders.CODAT, share=0.01),
)
REQUESTS, DELAY, CPU = "requests/push", "delay p50 s", "CPU s/1,000"


def _of_pushing(figure: str, over: str = "") -> Pick:
    return Pick(PUSHED, COORDINATOR.name, figure, over=over)


@question(
    "What does it take to push many records and to know how each ended?",
    at_most(
        1.08,
        "requests per settled push, 10,000 in 10 companies, ~2 s each",
        _of_pushing(REQUESTS),
        headline=True,
    ),
    at_most(0.3, "p50 of the delay in s, same run", _of_pushing(DELAY), headline=True),
    at_most(
        1.1,
        "client CPU of a settled push over a task per push that polls",
        _of_pushing(CPU, over=TASK_PER_PUSH.name),
        headline=True,
    ),
    compare=(CPU, COORDINATOR.name),
)
def pushing(quick: bool) -> Rows:
    pushes, rounds = (1000, 1) if quick else (10_000, 3)

    def turn(peer: Peer) -> Mapping[str, float]:
        wanted = max(round(pushes * peer.share), COMPANIES)
        settings = {"push_seconds": (1.5, 2.5), "dialect": "published"}
        with sandbox_server(companies=COMPANIES, **settings) as server:
            told = peer.work(server.job(pushes=wanted))
            busy = cpu_seconds(server.process)
            served = server.served()
        known: dict[str, float] = told["known"]
        if len(known) != wanted:
            raise ContenderFailedError(f"settled {len(known)} of {wanted} pushes")
        return {
            "pushes": wanted,
            REQUESTS: served.requests / wanted,
            **(_delays(known, served.ended) if peer is not POSTS else {}),
            CPU: told["cpu"] / wanted * 1000,
            "pushes/s": wanted / told["seconds"],
            "KiB/push": told["peak_mib"] * 1024 / wanted,
            "server busy %": busy / told["seconds"] * 100,
        }

    return Rows(peers_in_turn(f"{pushes:,} pushes", PUSHERS, turn, rounds=rounds))


def _delays(known: Mapping[str, float], ended: Mapping[str, float]) -> dict[str, float]:
    delays = [at - ended[key] for key, at in known.items()]
    return {DELAY: median(delays), "delay p95 s": quantiles(delays, n=20)[-1]}


# Pushes that stay open

SPEED, WEIGHT, LAG = "pushes/s", "bytes per open push", "loop lag p99 ms"
MOMENTS = 10
Figures = Mapping[str, float]


@question(
    "How fast do pushes leave, what does an open one weigh, and what does the loop feel?",
    at_least(
        0.75,
        "pushes a second over plain aiohttp's, 64 in flight",
        _of_pushing(SPEED, over=POSTS.name),
    ),
    at_most(600, "bytes per open push beyond its payload", _of_pushing(WEIGHT)),
    at_most(10, "loop lag p99 in ms with 10,000 open", _of_pushing(LAG)),
    compare=(SPEED, POSTS.name),
)
def open_pushes(quick: bool) -> Rows:
    count, rounds = (1000, 1) if quick else (10_000, 3)
    setting = f"{count:,} pushes"

    def turn(work: Callable[[SandboxServer, int], Awaitable[Figures]]) -> Figures:
        settings = {"push_seconds": (3600.0, 3600.0), "dialect": "published"}
        with sandbox_server(companies=COMPANIES, **settings) as server, asyncio.Runner() as runner:

            async def working() -> Figures:
                return await work(server, count)

            return runner.run(working())

    turns = {COORDINATOR.name: partial(turn, _ours), POSTS.name: partial(turn, _plain)}
    rows = in_turn(setting, turns, rounds=rounds)
    weight = asyncio.run(_task_weight(count))
    return Rows([*rows, row(setting, "a task each", bytes_per_open_push=weight)])


async def _ours(server: SandboxServer, count: int) -> Figures:
    requests = [
        PushRequest(company, connection, "invoices", record)
        for company, connection, record in server.job(pushes=count).records()
    ]
    async with _coordinator(server, count) as coordinator:
        began, cpu = time.perf_counter(), time.process_time()
        async with _all_open(coordinator, requests):
            seconds, cpu = time.perf_counter() - began, time.process_time() - cpu
            _, late = await watched(asyncio.sleep(3))
    weight = await _weight(server, requests)
    lag = stall_figures(late)["p99_ms"]
    return {SPEED: count / seconds, CPU: cpu / count * 1000, WEIGHT: weight, LAG: lag}


@asynccontextmanager
async def _coordinator(server: SandboxServer, count: int) -> AsyncIterator[_Counting]:
    dialect = Dialect.published()
    counting = _Counting()
    async with (
        Client(server.api_key, server.base_url, per_company=AT_ONCE, dialect=dialect) as client,
        client.coordinator(
            max_open=count + 1, leave="detach", on_event=counting.heard
        ) as counting.coordinator,
    ):
        yield counting


class _Counting:
    """A coordinator, and how many of its pushes have been answered."""

    coordinator: Coordinator

    def __init__(self) -> None:
        self.answered = 0
        self.changed = asyncio.Event()

    def heard(self, event: PushEvent) -> None:
        self.answered += event.what == "sent"
        self.changed.set()


@asynccontextmanager
async def _all_open(counting: _Counting, requests: Sequence[PushRequest]) -> AsyncIterator[None]:
    """Run *requests*; the block is entered when all have been answered."""
    wanted = counting.answered + len(requests)
    first = asyncio.ensure_future(anext(counting.coordinator.run(requests)))
    while counting.answered < wanted:
        counting.changed.clear()
        await counting.changed.wait()
    yield
    first.cancel()
    await asyncio.gather(first, return_exceptions=True)


async def _weight(server: SandboxServer, requests: Sequence[PushRequest]) -> float:
    """Return the bytes of an open push, beyond what the caller holds; connections are warm."""
    async with _coordinator(server, len(requests)) as counting:
        for request in requests[:AT_ONCE]:
            await counting.coordinator.submit(request)
        gc.collect()
        tracemalloc.start()
        async with _all_open(counting, requests[AT_ONCE:]):
            weight = min([await _held() for _ in range(MOMENTS)])
            tracemalloc.stop()
    return weight / len(requests[AT_ONCE:])


async def _held() -> int:
    """Return the traced bytes a moment later; pages of a list that is being read count too."""
    await asyncio.sleep(0.2)
    gc.collect()
    return tracemalloc.get_traced_memory()[0]


async def _plain(server: SandboxServer, count: int) -> Figures:
    began, cpu = time.perf_counter(), time.process_time()
    await posts(server.job(pushes=count))
    seconds, cpu = time.perf_counter() - began, time.process_time() - cpu
    return {SPEED: count / seconds, CPU: cpu / count * 1000}


async def _task_weight(count: int) -> float:
    tracemalloc.start()
    async with asyncio.TaskGroup() as group:
        tasks = [group.create_task(asyncio.sleep(3600)) for _ in range(count)]
        await asyncio.sleep(0)
        weight, _ = tracemalloc.get_traced_memory()
        tracemalloc.stop()
        for task in tasks:
            task.cancel()
    return weight / count


# The journal

PAYLOAD = json.dumps(record(17)).encode()
Work = Callable[[Path, int], Coroutine[Any, Any, None]]


def _steps(number: int) -> tuple[Row, ...]:
    """Return the recorded states of a push, in order."""
    lane = Lane(f"company-{number % 10}", "connection", "invoices")
    queued = Row(id=f"push-{number}", lane=lane, payload=PAYLOAD)
    sending = queued.next(State.SENDING)
    opened = sending.next(State.OPEN, key=f"key-{number}", evidence=Evidence.OWN_ANSWER)
    return sending, opened, opened.next(State.DONE, result=Result.ENDED, status="Success")


def _stored(at_once: int) -> Work:
    async def work(folder: Path, pushes: int) -> None:
        async def sender(first: int) -> None:
            for number in range(first, pushes, at_once):
                for step in _steps(number):
                    await rows.write(step)

        store = Store(folder / "journal.db")
        async with store, asyncio.TaskGroup() as senders:
            rows = await store._lend()
            for first in range(at_once):
                senders.create_task(sender(first))

    return work


async def _bare_sqlite(folder: Path, pushes: int) -> None:
    with closing(sqlite3.connect(folder / "bare.db", isolation_level=None)) as db:
        db.execute("PRAGMA journal_mode = WAL")
        db.execute("PRAGMA synchronous = FULL")
        db.execute("CREATE TABLE pushes (id TEXT PRIMARY KEY, state TEXT, payload BLOB)")
        for number in range(pushes):
            for step in _steps(number):
                values = (step.id, step.state, PAYLOAD)
                db.execute("INSERT OR REPLACE INTO pushes VALUES (?, ?, ?)", values)


def _all_of_it(server: SandboxServer, *, journal: bool) -> Work:
    async def work(folder: Path, pushes: int) -> None:
        requests = [
            PushRequest(company, connection, "invoices", record, reference=str(number))
            for number, (company, connection, record) in enumerate(
                server.job(pushes=pushes).records()
            )
        ]
        async with (
            Client(server.api_key, server.base_url, per_company=AT_ONCE) as client,
            client.coordinator(journal=folder / "journal.db" if journal else None) as coordinator,
        ):
            outcomes = [one async for one in coordinator.run(requests)]
        if any(one.status is not OutcomeStatus.SUCCESS for one in outcomes):
            raise RuntimeError("not all pushes succeeded: there is nothing to compare")

    return work


WITH_JOURNAL, WITHOUT_JOURNAL = "client, 64 in flight, journal", "client, 64 in flight, no journal"
COMMITS = "4 commits a push"


@question(
    "What does it cost to have every push on disk before it leaves?",
    at_least(
        0.6,
        "pushes a second with a journal over without, 64 in flight",
        Pick(COMMITS, WITH_JOURNAL, SPEED, over=WITHOUT_JOURNAL),
    ),
    compare=("ms/push", "in memory"),
)
def journal_cost(quick: bool) -> Rows:
    return compare_journals(pushes=1000 if quick else 10_000, rounds=3 if quick else 5)


def compare_journals(pushes: int, rounds: int) -> Rows:
    """Measure each way of recording; a small number of *pushes* makes a trial run."""
    RESULTS.mkdir(parents=True, exist_ok=True)
    with sandbox_server(companies=1, push_seconds=(0.05, 0.2), dialect="document") as server:
        works: dict[str, tuple[Work, float]] = {  # with their share of the pushes: some are slow
            "bare sqlite3, one by one": (_bare_sqlite, 0.1),
            "journal, one by one": (_stored(1), 0.1),
            "journal, 64 at once": (_stored(64), 1.0),
            "journal, 1,000 at once": (_stored(1000), 1.0),
            WITHOUT_JOURNAL: (_all_of_it(server, journal=False), 0.3),
            WITH_JOURNAL: (_all_of_it(server, journal=True), 0.3),
        }
        turns = {
            name: partial(_turn, work, max(round(pushes * share), 1))
            for name, (work, share) in works.items()
        }
        return Rows(in_turn(COMMITS, turns, rounds=rounds))


def _turn(work: Work, count: int) -> Mapping[str, float]:
    # In the project's folder, since a temporary one may be in memory, where syncs cost nothing.
    with TemporaryDirectory(dir=RESULTS) as folder:
        cpu, wall = time.process_time(), time.perf_counter()
        asyncio.run(work(Path(folder), count))
        cpu, wall = time.process_time() - cpu, time.perf_counter() - wall
    return {"ms/push": wall / count * 1e3, "CPU us/push": cpu / count * 1e6, SPEED: count / wall}
