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
from collections.abc import Awaitable, Callable, Coroutine, Iterator, Sequence
from contextlib import aclosing
from dataclasses import dataclass
from inspect import isasyncgen
from itertools import islice
from pathlib import Path
from typing import Any, TypeVar

T = TypeVar("T")
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


# A script calls one of these with its functions; the command line names one


def reads(*readers: Callable[[Job], Any]) -> None:
    """Measure a reader: an iterator, an async generator, or an async context manager of one."""
    job, read = take_job(readers)

    async def awaited(source: Any, limit: int) -> int:
        count = 0
        async with aclosing(source) if isasyncgen(source) else source as items:
            async for _ in items:
                count += 1
                if count >= limit:
                    break
        return count

    def work(limit: int) -> tuple[int, Known, list[float]]:
        source = read(job)
        if isinstance(source, Iterator):
            return sum(1 for _ in islice(source, limit)), {}, []
        count, late = asyncio.run(watched(awaited(source, limit), watch=job.watch_loop))
        return count, {}, late

    if not job.first_only:
        work(1)
    _tell(job, lambda: work(1 if job.first_only else job.limit))


def pushes(*pushers: Callable[[Job], Known | Coroutine[Any, Any, Known]]) -> None:
    """Measure a pusher, which blocks or awaits."""
    job, push = take_job(pushers)

    def work() -> tuple[int, Known, list[float]]:
        known = push(job)
        if not isinstance(known, dict):
            known = asyncio.run(known)
        return len(known), known, []

    _tell(job, work)


def pulls(prepare: Callable[[Job], Awaitable[Callable[[], Awaitable[int]]]]) -> None:
    """Measure what *prepare* returns: it uses all cores, and returns how many rows it wrote."""
    job, _ = take_job([prepare], one_core=False)
    with asyncio.Runner() as runner:

        async def work(ready: Callable[[], Awaitable[int]]) -> int:
            return await ready()

        async def prepared() -> Callable[[], Awaitable[int]]:
            return await prepare(job)

        ready = runner.run(prepared())
        _tell(job, lambda: (runner.run(work(ready)), {}, []))


def take_job(
    contenders: Sequence[Callable[[Job], T]], *, one_core: bool = True
) -> tuple[Job, Callable[[Job], T]]:
    """Return the job and the contender on the command line, and stay on the first core."""
    if one_core:
        os.sched_setaffinity(0, {min(os.sched_getaffinity(0))})
    told, name = json.loads(sys.argv[1]), sys.argv[2]
    lanes = tuple(tuple(lane) for lane in told["lanes"])
    return Job(**{**told, "lanes": lanes}), {one.__name__: one for one in contenders}[name]


# Measuring


def _tell(job: Job, run: Callable[[], tuple[int, Known, list[float]]]) -> None:
    before = _memory("VmRSS")
    Path("/proc/self/clear_refs").write_text("5")  # forgets the peak
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


async def watched(work: Awaitable[T], *, watch: bool = True) -> tuple[T, list[float]]:
    """Await *work*; return its result, and how late each tick of a timer was meanwhile."""
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
    """Return a field of this process' status in bytes."""
    lines = map(str.split, Path("/proc/self/status").read_text().splitlines())
    return next(int(words[1]) * 1024 for words in lines if words[0] == f"{field}:")
