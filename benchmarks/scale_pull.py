"""A hundred thousand companies on 64 Dask workers: what breaks first, and at which size.

Two things are measured here and now: how many trips to one PostgreSQL store, and how many tasks of
one Dask scheduler, this machine manages a second, clients included. Then a day's pull, in which
each company's list has changed a little, is simulated in virtual time: 64 workers with 8 threads
take units from the scheduler, make the trips of `pull`, and send through one rate.

    python -m benchmarks scale_pull
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable
from typing import Any

from attrs import define, field

from benchmarks._postgres import postgres
from benchmarks._question import Question, Row, Rows, row
from integration_sdk import Store
from integration_sdk._pull.state import PullState
from integration_sdk.testing import run_virtual

WORKERS, THREADS = 64, 8
LATENCY = 0.1
"""Seconds of a request to the service."""
TRIPS = 5
"""To the store: claim, number of the latest run, cursor, end, giving back. A test counts them."""
REQUESTS = 1
CONNECTIONS = 3
"""Of a worker to the store: claims and cursors, heartbeat, rate."""
BY_DEFAULT = 100
"""Connections that PostgreSQL takes unless told otherwise."""
SECONDS = 3.0


async def _a_second(work: Callable[[int], Awaitable[Any]], at_once: int, seconds: float) -> float:
    """Return how often *work* is done in a second."""
    done, began = 0, time.perf_counter()

    async def repeat(number: int) -> None:
        nonlocal done
        while time.perf_counter() < began + seconds:
            await work(number)
            done += 1

    await asyncio.gather(*map(repeat, range(at_once)))
    return done / (time.perf_counter() - began)


async def _store_trips(url: str, seconds: float) -> float:
    stores = [Store(url) for _ in range(8)]
    states = [PullState(await one.documents(base_url="https://x", dialect="d")) for one in stores]
    units = [await state.claim(f"c{number}", "invoices") for number, state in enumerate(states)]

    async def save(number: int) -> None:
        unit = units[number]
        assert unit is not None
        await unit.save(unit.state)

    try:
        return await _a_second(save, len(stores), seconds)
    finally:
        for store in stores:
            await store.aclose()


async def _scheduler_tasks(seconds: float) -> float:
    import distributed  # noqa: PLC0415 - takes a second and a half

    start: Any = distributed.LocalCluster
    threads = {"n_workers": 2, "threads_per_worker": THREADS}
    local = start(**threads, dashboard_address=":0", asynchronous=True)
    connect: Any = distributed.Client
    async with local as cluster, connect(cluster, asynchronous=True) as client:

        async def run(number: int) -> None:
            await client.submit(_nothing, time.perf_counter(), number, pure=False)

        return await _a_second(run, 64, seconds)


async def _nothing(*_: object) -> None:
    """Stand for a unit."""


@define
class Server:
    """Serves one after the other, each in the same time."""

    a_second: float
    busy: float = 0.0
    _free_at: float = field(init=False, default=0.0)

    async def serve(self) -> None:
        loop = asyncio.get_running_loop()
        self._free_at = max(self._free_at, loop.time()) + 1 / self.a_second
        self.busy += 1 / self.a_second
        await asyncio.sleep(self._free_at - loop.time())


async def _day(companies: int, rate: float, trips: float, tasks: float) -> Row:
    servers = {"rate": Server(rate), "store": Server(trips), "scheduler": Server(tasks)}
    left = iter(range(companies))

    async def thread() -> None:
        for _ in left:
            await servers["scheduler"].serve()
            for _ in range(TRIPS):
                await servers["store"].serve()
            for _ in range(REQUESTS):
                await servers["rate"].serve()
                await asyncio.sleep(LATENCY)

    began = asyncio.get_running_loop().time()
    await asyncio.gather(*(thread() for _ in range(WORKERS * THREADS)))
    took = asyncio.get_running_loop().time() - began
    used = {name: server.busy / took for name, server in servers.items()}
    return row(
        f"{companies:,} companies",
        f"{rate:,.0f} requests/s",
        max(used, key=lambda name: used[name]) + " breaks first",
        minutes=took / 60,
        of_the_rate=used["rate"],
        of_the_store=used["store"],
        of_the_scheduler=used["scheduler"],
    )


def scale_pull(quick: bool) -> Rows:
    """Measure store and scheduler, then simulate."""
    with postgres() as url:
        trips = asyncio.run(_store_trips(url, SECONDS / 10 if quick else SECONDS))
    tasks = asyncio.run(_scheduler_tasks(SECONDS / 10 if quick else SECONDS))
    sizes = (1_000,) if quick else (1_000, 10_000, 100_000)
    measured = row("measured here", "2 cores", store_trips_a_second=trips, tasks_a_second=tasks)
    connections = row(
        "connections to the store", f"{WORKERS} workers", of_100=CONNECTIONS * WORKERS / BY_DEFAULT
    )
    days = [
        run_virtual(_day(companies, rate, trips, tasks))
        for companies in sizes
        for rate in (1000 / 60, 100.0, 1000.0)
    ]
    return Rows([measured, connections, *days])


SCALE_PULL = Question(
    "scale_pull",
    "A hundred thousand companies on 64 workers: what breaks first, and at which size?",
    scale_pull,
    on_request=True,
)
QUESTIONS = (SCALE_PULL,)
