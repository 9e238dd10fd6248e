"""Shared by the contenders' scripts: take a job, measure the work, print one line.

Only the work is measured, after imports and after reading one item to warm up. CPU seconds are
those of this process, memory is the growth of its peak over what it held before, and stalls of
the event loop are detected by a timer that should fire every millisecond.
"""

from __future__ import annotations

import asyncio
import json
import os
import sys
import time
from collections.abc import AsyncIterable, Awaitable, Callable, Iterator
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import Any

TICK = 0.001
MIB = 2**20


@dataclass(frozen=True)
class Job:
    """The job of a script.

    Attributes:
        base_url: The server's base URL.
        api_key: The key that the server accepts.
        started: When the process was started, in seconds since 1970.
        limit: Maximum number of items to read.
        page_size: Items per page.
        prefetch: Pages to fetch ahead, if the contender can.
        watch_loop: Whether to detect stalls, which costs CPU.
        first_only: Whether reading ends with the first item.
        lanes: (company, connection) pairs to push to.
        pushes: Records to push.
        model: Name of the class to read records into, if the contender can.
    """

    base_url: str
    api_key: str = "benchmark"
    started: float = 0.0
    limit: int = 10**12
    page_size: int = 100
    prefetch: int = 8
    watch_loop: bool = False
    first_only: bool = False
    lanes: tuple[tuple[str, str], ...] = ()
    pushes: int = 0
    model: str = ""

    def records(self) -> Iterator[tuple[str, str, dict[str, Any]]]:
        """Yield company, connection and record of each push, lane after lane."""
        for number in range(self.pushes):
            company, connection = self.lanes[number % len(self.lanes)]
            yield company, connection, record(number)


COMPANY = "8a210b68-6988-11ed-a1eb-0242ac120002"
FINAL = frozenset({"Success", "Failed", "TimedOut"})
POLL_EVERY = 1.0
IN_FLIGHT = 64
Known = dict[str, float]
"""When a push was known to be final, in seconds since 1970, by key."""


def record(number: int) -> dict[str, Any]:
    """Return an invoice as a client would push it."""
    return {
        "invoiceNumber": f"INV-{number:06d}",
        "customerRef": {"id": "C-17", "companyName": "Customer 17 Ltd"},
        "issueDate": "2023-03-01T00:00:00Z",
        "dueDate": "2023-04-01T00:00:00Z",
        "currency": "GBP",
        "lineItems": [
            {
                "description": "Widget, galvanised",
                "unitAmount": 100.0,
                "quantity": 2.0,
                "accountRef": {"id": "A-1"},
            }
        ],
        "subTotal": 200.0,
        "totalTaxAmount": 0.0,
        "totalAmount": 200.0,
        "amountDue": 200.0,
        "status": "Submitted",
    }


# A script calls one of these


def reads(items: Callable[[Job], Iterator[object]]) -> None:
    """Measure a reader that blocks."""
    job = take_job()

    def work() -> int:
        return _drain(items(job), 1 if job.first_only else job.limit)

    if not job.first_only:
        _drain(items(job), 1)
    _tell(job, lambda: (work(), {}, []))


def reads_async(reading: Callable[[Job], AbstractAsyncContextManager[AsyncIterable[Any]]]) -> None:
    """Measure a reader that awaits."""
    job = take_job()

    async def work(limit: int) -> int:
        count = 0
        async with reading(job) as items:
            async for _ in items:
                count += 1
                if count >= limit:
                    break
        return count

    if not job.first_only:
        asyncio.run(work(1))
    limit = 1 if job.first_only else job.limit

    def run() -> tuple[int, Known, list[float]]:
        count, stalls = asyncio.run(_watched(work(limit), watch=job.watch_loop))
        return count, {}, stalls

    _tell(job, run)


def pushes(push: Callable[[Job], Known]) -> None:
    """Measure a pusher that blocks."""
    job = take_job()

    def run() -> tuple[int, Known, list[float]]:
        known = push(job)
        return len(known), known, []

    _tell(job, run)


def pushes_async(push: Callable[[Job], Awaitable[Known]]) -> None:
    """Measure a pusher that awaits."""
    job = take_job()

    async def work() -> Known:
        return await push(job)

    def run() -> tuple[int, Known, list[float]]:
        known, stalls = asyncio.run(_watched(work(), watch=job.watch_loop))
        return len(known), known, stalls

    _tell(job, run)


def pulls_async(prepare: Callable[[Job], Awaitable[Callable[[], Awaitable[int]]]]) -> None:
    """Measure what *prepare* returns: it uses all cores, and returns how many rows it wrote."""
    job = take_job(one_core=False)
    loop = asyncio.new_event_loop()
    work = loop.run_until_complete(prepare(job))

    async def run() -> int:
        return await work()

    _tell(job, lambda: (loop.run_until_complete(run()), {}, []))
    loop.close()


def take_job(*, one_core: bool = True) -> Job:
    """Return the job on the command line, and stay on the first core."""
    if one_core and hasattr(os, "sched_setaffinity"):
        os.sched_setaffinity(0, {min(os.sched_getaffinity(0))})
    told = json.loads(sys.argv[1])
    return Job(**{**told, "lanes": tuple(tuple(lane) for lane in told.get("lanes", ()))})


# Measuring


def _drain(items: Iterator[object], limit: int) -> int:
    return sum(1 for _ in islice(items, limit))


def _tell(job: Job, run: Callable[[], tuple[int, Known, list[float]]]) -> None:
    before = _memory("VmRSS")
    _forget_peak()
    cpu, wall = time.process_time(), time.perf_counter()
    count, known, stalls = run()
    told = {
        "items": count,
        "seconds": time.perf_counter() - wall,
        "cpu": time.process_time() - cpu,
        "peak_mib": (_memory("VmHWM") - before) / MIB,
        "since_start": time.time() - job.started,
        "known": known,
        "stalls": stall_figures(stalls),
    }
    print(json.dumps(told))


async def _watched(work: Any, *, watch: bool) -> tuple[Any, list[float]]:
    late: list[float] = []
    loop = asyncio.get_running_loop()
    timer: asyncio.TimerHandle | None = None

    def tick(due: float) -> None:
        nonlocal timer
        now = loop.time()
        late.append(now - due)
        timer = loop.call_at(now + TICK, tick, now + TICK)

    if watch:
        tick(loop.time())
    result = await work
    if timer is not None:
        timer.cancel()
    return result, late


def stall_figures(late: list[float]) -> dict[str, float]:
    """Return p99 and maximum of how late a timer fired, in milliseconds.

    Ticks that a stall suppressed count as late too.
    """
    if not late:
        return {}
    every = [wait - gone * TICK for wait in late for gone in range(1 + int(wait / TICK))]
    every.sort()
    return {"p99_ms": every[int(0.99 * (len(every) - 1))] * 1e3, "worst_ms": every[-1] * 1e3}


def resident_mib() -> float:
    """Return the memory that this process holds, in MiB."""
    return _memory("VmRSS") / MIB


def _memory(field: str) -> int:
    """Return a field of this process' status in bytes; 0 if there is none."""
    status = Path("/proc/self/status")
    if not status.exists():
        return 0
    lines = (line.split() for line in status.read_text().splitlines())
    return next((int(words[1]) * 1024 for words in lines if words[0] == f"{field}:"), 0)


def _forget_peak() -> None:
    clear = Path("/proc/self/clear_refs")
    if clear.exists():
        clear.write_text("5")
