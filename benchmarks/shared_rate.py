"""How long processes that share a service's limit take, with a limit of their own or a shared one.

    python -m benchmarks shared_rate

Three processes make a thousand calls each, a hundred at a time, to the server of ``crowd``, which
takes 100 a second. Each has its own gate, which finds the limit by running into it; or all of them
have ``store.rate(per_second=100)`` in one PostgreSQL database. The ideal time is calls / rate.
"""

from __future__ import annotations

import asyncio
import time
from concurrent.futures import ProcessPoolExecutor
from contextlib import nullcontext
from multiprocessing import get_context

from benchmarks._goals import GOALS
from benchmarks._postgres import postgres
from benchmarks._question import Question, Row, Rows, row
from benchmarks.crowd import CALLS, RATE, service
from integration_sdk import Store
from integration_sdk._http import CallOptions, Session
from integration_sdk._http.requests import Request

PROCESSES = 3
AT_ONCE = 100


async def _calls(base_url: str, database: str | None, calls: int) -> int:
    store = Store(database)
    rate = None if database is None else store.rate(per_second=RATE)
    session = Session(base_url=base_url, api_key="benchmark", rate=rate)
    companies = Request(operation="companies.list", method="GET", path="/companies")
    left = iter(range(calls))

    async def work() -> int:
        statuses = [(await session.send(companies, CallOptions(timeout=120))).status for _ in left]
        return statuses.count(200)

    try:
        return sum(await asyncio.gather(*(work() for _ in range(AT_ONCE))))
    finally:
        await session.aclose()
        await store.aclose()


def _process(base_url: str, database: str | None, calls: int) -> int:
    return asyncio.run(_calls(base_url, database, calls))


def shared_rate(quick: bool) -> Rows:
    calls = CALLS // 4 if quick else CALLS
    return Rows([_row("its own gate each", calls), _row("store.rate", calls)])


def _row(contender: str, calls: int) -> Row:
    shared = contender == "store.rate"
    spawn = get_context("spawn")
    with service() as server, postgres() if shared else nullcontext() as url:
        with ProcessPoolExecutor(PROCESSES, mp_context=spawn) as processes:
            list(processes.map(abs, range(PROCESSES)))  # started
            began = time.perf_counter()
            jobs = [
                processes.submit(_process, server.base_url, url, calls) for _ in range(PROCESSES)
            ]
            succeeded = [job.result() for job in jobs]
            took = time.perf_counter() - began
        counts = server.counts()
    total = PROCESSES * calls
    figures = {
        "failed": total - sum(succeeded),
        "429s": counts.get(429, 0),
        "s": took,
        "x ideal time": took / (total / RATE),
    }
    return row(f"{PROCESSES} processes", contender, "", **figures)


SHARED_RATE = Question(
    "shared_rate",
    "How long do three processes take that share a limit of 100 calls a second?",
    shared_rate,
    goals=GOALS["shared_rate"],
)
QUESTIONS = (SHARED_RATE,)
