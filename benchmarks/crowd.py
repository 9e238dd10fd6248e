"""How a service with a rate limit and a crowd of calls affect each other.

    python -m benchmarks crowd

A thousand calls at once go to a real server, in a process of its own, that takes 100 a
second (a bucket of 100 tokens, ``Retry-After: 1``). Three clients try: this SDK, a loop in
which every task obeys ``Retry-After`` by itself, and ``backoff.on_exception`` with its usual
settings. The server counts the requests. The ideal time is calls / rate; the full bucket
would allow a second less.
"""

from __future__ import annotations

import asyncio
import time
from collections import Counter
from collections.abc import Callable, Coroutine, Iterator, Mapping, Sequence
from contextlib import contextmanager
from multiprocessing.connection import Connection
from typing import Any

import aiohttp
import backoff
from aiohttp import web
from attrs import define, frozen

from benchmarks._goals import GOALS
from benchmarks._question import Question, Row, Rows, row
from benchmarks._servers import in_own_process
from integration_sdk._http import CallOptions, Session
from integration_sdk._http.requests import Request

RATE = 100.0
CALLS = 1000
RETRIES = 10
BUSY = {"statusCode": 429, "error": "Too many requests", "correlationId": "c"}


# The server


@define
class Limited:
    """An empty list with a rate limit (a token bucket)."""

    rate: float
    tokens: float
    at: float
    answers: Counter[int]

    async def answer(self, request: web.Request) -> web.Response:
        now = time.monotonic()
        self.tokens = min(self.rate, self.tokens + (now - self.at) * self.rate)
        self.at = now
        status = 200 if self.tokens >= 1 else 429
        self.answers[status] += 1
        if status == 429:
            return web.json_response(BUSY, status=429, headers={"Retry-After": "1"})
        self.tokens -= 1
        return web.json_response({"results": []})


async def _serve(pipe: Connection) -> None:
    limited = Limited(RATE, RATE, time.monotonic(), Counter())
    app = web.Application()
    app.router.add_get("/companies", limited.answer)
    runner = web.AppRunner(app, access_log=None)
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", 0, backlog=2000).start()
    pipe.send(runner.addresses[0][1])
    await asyncio.to_thread(pipe.recv)
    pipe.send(dict(limited.answers))
    await runner.cleanup()


def _run_server(pipe: Connection) -> None:
    asyncio.run(_serve(pipe))


@frozen
class Service:
    """A server in a process of its own."""

    base_url: str
    _pipe: Connection

    def counts(self) -> Mapping[int, int]:
        """Stop the server and return the number of answers by status."""
        self._pipe.send(None)
        answers: dict[int, int] = self._pipe.recv()
        return answers


@contextmanager
def service() -> Iterator[Service]:
    with in_own_process(_run_server) as (pipe, _):
        yield Service(f"http://127.0.0.1:{pipe.recv()}", pipe)


# The clients: each makes *calls* at once and returns how many succeeded

Client = Callable[[str, int], Coroutine[Any, Any, int]]


async def ours(base_url: str, calls: int) -> int:
    session = Session(base_url=base_url, api_key="benchmark")
    companies = Request(operation="companies.list", method="GET", path="/companies")

    async def call() -> int:
        return (await session.send(companies, CallOptions(timeout=120))).status

    try:
        return _succeeded(await asyncio.gather(*(call() for _ in range(calls))))
    finally:
        await session.aclose()


async def private_retry_after(base_url: str, calls: int) -> int:
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


async def bare_backoff(base_url: str, calls: int) -> int:
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


CLIENTS: Mapping[str, Client] = {
    "integration_sdk": ours,
    "private Retry-After": private_retry_after,
    "backoff.on_exception": bare_backoff,
}


# The question


def crowd(quick: bool) -> Rows:
    calls = CALLS // 2 if quick else CALLS
    return Rows([_row(name, client, calls) for name, client in CLIENTS.items()])


def _row(name: str, client: Client, calls: int) -> Row:
    with service() as server:
        began = time.perf_counter()
        succeeded = asyncio.run(client(server.base_url, calls))
        took = time.perf_counter() - began
        counts = server.counts()
    ideal = calls / RATE
    figures = {
        "failed": calls - succeeded,
        "429s": counts.get(429, 0),
        "requests": sum(counts.values()),
        "s": took,
        "x ideal time": took / ideal,
    }
    return row("calls at once", name, "", **figures)


CROWD = Question(
    "crowd",
    "What becomes of 1,000 calls at once against a service that takes 100 a second?",
    crowd,
    goals=GOALS["crowd"],
)
QUESTIONS = (CROWD,)
