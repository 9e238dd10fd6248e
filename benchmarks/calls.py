"""What one call costs beyond aiohttp, and what becomes of many that meet a rate limit.

- `call_overhead`: CPU of the client's process. One task repeatedly calls a server in another
  process, whose small answer is ready in memory. The median of the rounds counts.
- `crowd`: a thousand calls at once, to a service that takes 100 a second (a bucket of 100 tokens,
  ``Retry-After: 1``). Three clients try: this SDK, a loop in which every task obeys
  ``Retry-After`` by itself, and ``backoff.on_exception`` with its usual settings. The server
  counts. The ideal time is calls / rate; the full bucket would allow a second less.
- `shared_rate`: three processes make a thousand calls each to such a service, a hundred at a time.
  Each has its own gate, which finds the limit by running into it; or all of them have
  ``store.rate(per_second=100)`` in one PostgreSQL database.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor
from contextlib import asynccontextmanager, nullcontext
from functools import partial
from multiprocessing import get_context
from typing import Any

import aiohttp
import backoff

from benchmarks._contenders import in_turn
from benchmarks._postgres import postgres
from benchmarks._question import Pick, Row, Rows, at_most, question, row
from benchmarks._servers import ReadyServer, ready_server
from integration_sdk import Store
from integration_sdk._http import CallOptions, Session
from integration_sdk._http.requests import Request, Safety
from integration_sdk._options_given import ConnectionOptions

SDK = "integration_sdk"
LISTING = Request(operation="companies.list", method="GET", path="/companies")
RECORD = b'{"invoiceNumber": "INV-1", "totalAmount": 12.5}'
PUSHING = Request(
    operation="push.create",
    method="POST",
    path="/companies",
    body=RECORD,
    safety=Safety.WRITE,
    company_id="c",
)
SETTINGS = {"GET, small answer": LISTING, "POST, small record": PUSHING}
CPU = "CPU us/call"
Call = Callable[[], Awaitable[object]]


@asynccontextmanager
async def _session(base_url: str, **options: Any) -> AsyncIterator[Session]:
    session = Session(base_url=base_url, api_key="benchmark", options=ConnectionOptions(**options))
    try:
        yield session
    finally:
        await session.aclose()


# One call


@asynccontextmanager
async def _sdk(base_url: str, request: Request) -> AsyncIterator[Call]:
    async with _session(base_url) as session:
        yield partial(session.send, request, CallOptions())


@asynccontextmanager
async def _plain(base_url: str, request: Request) -> AsyncIterator[Call]:
    headers = {"Authorization": "Basic YmVuY2htYXJr", "Accept": "application/json"}
    url, body = f"{base_url}/companies", request.body
    async with aiohttp.ClientSession(headers=headers) as session:

        async def call() -> object:
            async with session.request(request.method, url, data=body) as answer:
                return await answer.read()

        yield call


@question(
    "What does a call cost beyond aiohttp's own share?",
    *(
        at_most(
            60,
            f"us of CPU beyond aiohttp, {setting}",
            Pick(setting, SDK, CPU, beyond="aiohttp"),
            needs_full=False,
        )
        for setting in SETTINGS
    ),
    compare=(CPU, "aiohttp"),
)
def call_overhead(quick: bool) -> Rows:
    rounds, calls = (3, 500) if quick else (9, 2000)
    rows: list[Row] = []
    with ready_server() as server:
        for setting, request in SETTINGS.items():

            async def cost(contender: Any, request: Request = request) -> float:
                async with contender(server.base_url, request) as call:
                    for _ in range(50):
                        await call()
                    began = time.process_time()
                    for _ in range(calls):
                        await call()
                    return (time.process_time() - began) / calls * 1e6

            def turn(contender: Any, cost: Any = cost) -> Mapping[str, float]:
                return {CPU: asyncio.run(cost(contender))}

            turns = {"aiohttp": partial(turn, _plain), SDK: partial(turn, _sdk)}
            rows += in_turn(setting, turns, rounds=rounds)
    return Rows(rows)


# A crowd: each client makes *calls* at once and returns how many succeeded

RATE = 100.0
CALLS = 1000
RETRIES = 10


async def _ours(base_url: str, calls: int) -> int:
    async with _session(base_url) as session:
        options = CallOptions(timeout=120)
        sent = await asyncio.gather(*(session.send(LISTING, options) for _ in range(calls)))
        return _succeeded([answer.status for answer in sent])


async def _private_retry_after(base_url: str, calls: int) -> int:
    """Do as most hand-written clients: each task waits for its own ``Retry-After``."""
    async with aiohttp.ClientSession() as session:

        async def call() -> int:
            for _ in range(1 + RETRIES):
                async with session.get(f"{base_url}/companies") as answer:
                    await answer.read()
                    if answer.status != 429:
                        return answer.status
                await asyncio.sleep(float(answer.headers["Retry-After"]))
            return 429

        return _succeeded(await asyncio.gather(*(call() for _ in range(calls))))


async def _bare_backoff(base_url: str, calls: int) -> int:
    """Wrap each call in `backoff.on_exception`, with its usual settings."""
    async with aiohttp.ClientSession(raise_for_status=True) as session:

        @backoff.on_exception(backoff.expo, aiohttp.ClientError, max_tries=1 + RETRIES)
        async def call() -> int:
            async with session.get(f"{base_url}/companies") as answer:
                await answer.read()
                return answer.status

        results = await asyncio.gather(*(call() for _ in range(calls)), return_exceptions=True)
        return _succeeded(results)


def _succeeded(results: Sequence[object]) -> int:
    return sum(result == 200 for result in results)


CLIENTS: Mapping[str, Callable[[str, int], Coroutine[Any, Any, int]]] = {
    SDK: _ours,
    "private Retry-After": _private_retry_after,
    "backoff.on_exception": _bare_backoff,
}


def _of_us(figure: str) -> Pick:
    return Pick("calls at once", SDK, figure)


@question(
    "What becomes of 1,000 calls at once against a service that takes 100 a second?",
    at_most(0, "calls that failed, of 1,000 at 100 a second", _of_us("failed"), headline=True),
    at_most(120, "answers 429, same run", _of_us("429s"), headline=True),
    at_most(1.1, "times the ideal time, same run", _of_us("x ideal time")),
)
def crowd(quick: bool) -> Rows:
    calls = CALLS // 2 if quick else CALLS
    rows = []
    for name, client in CLIENTS.items():
        with ready_server(RATE) as server:
            began = time.perf_counter()
            succeeded = asyncio.run(client(server.base_url, calls))
            took = time.perf_counter() - began
            rows.append(_row(("calls at once", name), server, took, calls, succeeded))
    return Rows(rows)


def _row(where: tuple[str, str], server: ReadyServer, took: float, calls: int, good: int) -> Row:
    counts = server.counts()
    figures: dict[str, float] = {
        "failed": calls - good,
        "429s": counts[429],
        "requests": counts.total(),
        "s": took,
        "x ideal time": took / (calls / RATE),
    }
    return row(where[0], where[1], "", **figures)


# Processes that share a limit

PROCESSES = 3
TOGETHER = f"{PROCESSES} processes"
AT_ONCE = 100
SHARED = "store.rate"


async def _calls(base_url: str, database: str | None, calls: int) -> int:
    store = None if database is None else Store(database)
    rate = None if store is None else store.rate(per_second=RATE)
    left = iter(range(calls))
    async with store or nullcontext(), _session(base_url, rate=rate) as session:

        async def work() -> int:
            options = CallOptions(timeout=120)
            return _succeeded([(await session.send(LISTING, options)).status for _ in left])

        return sum(await asyncio.gather(*(work() for _ in range(AT_ONCE))))


def _process(base_url: str, database: str | None, calls: int) -> int:
    return asyncio.run(_calls(base_url, database, calls))


@question(
    "How long do three processes take that share a limit of 100 calls a second?",
    at_most(
        1.05,
        "times the ideal time of three processes with a shared rate",
        Pick(TOGETHER, SHARED, "x ideal time"),
    ),
    at_most(
        10, "answers 429 of three processes with a shared rate", Pick(TOGETHER, SHARED, "429s")
    ),
)
def shared_rate(quick: bool) -> Rows:
    calls = CALLS // 4 if quick else CALLS
    rows = []
    for name, database in (("its own gate each", nullcontext()), (SHARED, postgres())):
        with (
            ready_server(RATE) as server,
            database as url,
            ProcessPoolExecutor(PROCESSES, mp_context=get_context("spawn")) as processes,
        ):
            list(processes.map(abs, range(PROCESSES)))  # started
            began = time.perf_counter()
            jobs = [
                processes.submit(_process, server.base_url, url, calls) for _ in range(PROCESSES)
            ]
            succeeded = sum(job.result() for job in jobs)
            took, where = time.perf_counter() - began, (TOGETHER, name)
            rows.append(_row(where, server, took, PROCESSES * calls, succeeded))
    return Rows(rows)
