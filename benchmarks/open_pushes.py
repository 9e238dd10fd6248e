"""How fast pushes leave, what an open one weighs, and what the loop feels of all of them.

Throughput: the time until every push has been answered, 64 in flight, beside plain aiohttp
POSTs of the same bodies to the same sandbox in another process. Weight: what tracemalloc
counts for each push that stays Pending, beyond the request that the caller made, beside a
task that awaits it; the least of ten moments, since at others an answer is being read. Lag:
how late the loop is while all of them are open and polled.

    python -m benchmarks open_pushes
"""

from __future__ import annotations

import asyncio
import gc
import time
import tracemalloc
from base64 import b64encode
from collections.abc import AsyncIterator, Callable, Coroutine, Mapping, Sequence
from functools import partial
from typing import Any

import aiohttp
import msgspec

from benchmarks._goals import GOALS
from benchmarks._push_server import PushServer, push_server
from benchmarks._question import Question, Rows, row
from benchmarks._turns import interleaved
from benchmarks.peers._frame import record
from integration_sdk import Client, Dialect, PushEvent, PushOutcome, PushRequest

OURS, PLAIN, TASKS = "integration_sdk", "aiohttp POSTs alone", "a task each"
AT_ONCE = 64
COMPANIES = 10
MOMENTS = 10
FOREVER = (3600.0, 3600.0)
Figures = Mapping[str, float]
Work = Callable[[PushServer, Sequence[PushRequest]], Coroutine[Any, Any, Figures]]


def open_pushes(quick: bool) -> Rows:
    """Measure throughput and weight."""
    count, rounds = (1000, 1) if quick else (10_000, 3)
    setting = f"{count:,} pushes"
    turns = {who: partial(_turn, work, count) for who, work in ((OURS, _ours), (PLAIN, _plain))}
    rows = interleaved(setting, turns, rounds=rounds)
    weight = asyncio.run(_task_weight(count))
    return Rows([*rows, row(setting, TASKS, bytes_per_open_push=weight)])


def _turn(work: Work, count: int) -> Figures:
    with push_server(COMPANIES, FOREVER) as server:
        requests = [
            PushRequest(*server.lanes[number % COMPANIES], "invoices", record(number))
            for number in range(count)
        ]
        return asyncio.run(work(server, requests))


class _Opened:
    """Waits until so many pushes have been answered."""

    def __init__(self, count: int) -> None:
        self._left = count
        self._done = asyncio.Event()

    def heard(self, event: PushEvent) -> None:
        self._left -= event.what == "sent"
        if not self._left:
            self._done.set()

    async def by(self, run: AsyncIterator[PushOutcome]) -> asyncio.Future[PushOutcome]:
        first = asyncio.ensure_future(anext(run))
        await self._done.wait()
        return first


def _client(server: PushServer) -> Client:
    return Client(
        api_key=server.api_key,
        base_url=server.base_url,
        per_company=AT_ONCE,
        dialect=Dialect.published(),
    )


async def _ours(server: PushServer, requests: Sequence[PushRequest]) -> Figures:
    opened, most = _Opened(len(requests)), len(requests) + 1
    async with (
        _client(server) as client,
        client.coordinator(max_open=most, leave="detach", on_event=opened.heard) as coordinator,
    ):
        began, cpu = time.perf_counter(), time.process_time()
        first = await opened.by(coordinator.run(requests))
        seconds, cpu = time.perf_counter() - began, time.process_time() - cpu
        lag = await _lag()
        await _leave(first)
    weight = await _weight(server, requests)
    return {
        **_rate(len(requests), seconds, cpu),
        "bytes per open push": weight,
        "loop lag p99 ms": lag * 1000,
    }


def _rate(count: int, seconds: float, cpu: float) -> dict[str, float]:
    return {"pushes/s": count / seconds, "CPU s/1,000": cpu / count * 1000}


async def _leave(first: asyncio.Future[PushOutcome]) -> None:
    first.cancel()
    await asyncio.gather(first, return_exceptions=True)


async def _lag(seconds: float = 3.0) -> float:
    lags = []
    end = time.perf_counter() + seconds
    while time.perf_counter() < end:
        before = time.perf_counter()
        await asyncio.sleep(0.001)
        lags.append(time.perf_counter() - before - 0.001)
    return sorted(lags)[int(0.99 * len(lags))]


async def _weight(server: PushServer, requests: Sequence[PushRequest]) -> float:
    """Return the bytes of an open push, beyond what the caller holds; connections are warm."""
    opened = _Opened(len(requests))
    async with (
        _client(server) as client,
        client.coordinator(
            max_open=len(requests) + 1, leave="detach", on_event=opened.heard
        ) as coordinator,
    ):
        for request in requests[:AT_ONCE]:
            await coordinator.submit(request)
        gc.collect()
        tracemalloc.start()
        first = await opened.by(coordinator.run(requests[AT_ONCE:]))
        weight = min([await _held() for _ in range(MOMENTS)])
        tracemalloc.stop()
        await _leave(first)
    return weight / len(requests[AT_ONCE:])


async def _plain(server: PushServer, requests: Sequence[PushRequest]) -> Figures:
    auth = b64encode(server.api_key.encode()).decode()
    headers = {"Authorization": f"Basic {auth}", "Content-Type": "application/json"}
    left = iter(requests)
    connector = aiohttp.TCPConnector(limit=AT_ONCE)
    async with aiohttp.ClientSession(headers=headers, connector=connector) as session:

        async def sender() -> None:
            for one in left:
                path = f"/companies/{one.company_id}/connections/{one.connection_id}/push/invoices"
                body = msgspec.json.encode(one.record)
                async with session.post(server.base_url + path, data=body) as answer:
                    await answer.read()
                    answer.raise_for_status()

        began, cpu = time.perf_counter(), time.process_time()
        await asyncio.gather(*(sender() for _ in range(AT_ONCE)))
        seconds, cpu = time.perf_counter() - began, time.process_time() - cpu
    return _rate(len(requests), seconds, cpu)


async def _held() -> int:
    """Return the traced bytes a moment later; pages of a list that is being read count too."""
    await asyncio.sleep(0.2)
    gc.collect()
    held, _ = tracemalloc.get_traced_memory()
    return held


async def _task_weight(count: int) -> float:
    async def waiting() -> None:
        await asyncio.sleep(3600)

    tracemalloc.start()
    tasks = [asyncio.create_task(waiting()) for _ in range(count)]
    await asyncio.sleep(0)
    weight, _ = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)
    return weight / count


OPEN_PUSHES = Question(
    "open_pushes",
    "How fast do pushes leave, what does an open one weigh, and what does the loop feel?",
    open_pushes,
    goals=GOALS["open_pushes"],
    compare=("pushes/s", PLAIN),
)
QUESTIONS = (OPEN_PUSHES,)
