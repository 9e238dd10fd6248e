"""What one call costs beyond aiohttp itself, in CPU of the client's process.

    python -m benchmarks call_overhead

One task repeatedly calls a server in another process, whose small answer is ready in memory.
Contenders take turns in rounds, and the median of the rounds counts.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Mapping
from contextlib import asynccontextmanager, contextmanager
from functools import partial
from multiprocessing.connection import Connection

import aiohttp

from benchmarks._goals import GOALS
from benchmarks._question import Question, Row, Rows
from benchmarks._servers import in_own_process
from benchmarks._turns import interleaved
from integration_sdk._http import CallOptions, Session
from integration_sdk._http.requests import Request, Safety

ANSWER = b'{"results": [], "pageNumber": 1, "pageSize": 100, "totalResults": 0, "_links": {}}'
HEAD = b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: %d\r\n\r\n"
RECORD = b'{"invoiceNumber": "INV-1", "totalAmount": 12.5}'
CPU = "CPU us/call"
GET, POST = "GET, small answer", "POST, small record"


class Ready(asyncio.Protocol):
    """Sends an answer for each piece of data, which is taken for a request and not parsed."""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        self.transport = transport

    def data_received(self, data: bytes) -> None:
        self.transport.write(HEAD % len(ANSWER) + ANSWER)


async def _serve(pipe: Connection) -> None:
    server = await asyncio.get_running_loop().create_server(Ready, "127.0.0.1", 0)
    pipe.send(server.sockets[0].getsockname()[1])
    await asyncio.to_thread(pipe.recv)


def _run_server(pipe: Connection) -> None:
    asyncio.run(_serve(pipe))


@contextmanager
def ready_server() -> Iterator[str]:
    """Run the server in a process of its own; yield its base URL."""
    with in_own_process(_run_server) as (pipe, _):
        yield f"http://127.0.0.1:{pipe.recv()}"


# The contenders: each yields a function that makes one call

Call = Callable[[], Awaitable[object]]


@asynccontextmanager
async def sdk(base_url: str, setting: str) -> AsyncIterator[Call]:
    session = Session(base_url=base_url, api_key="benchmark")
    request = Request(operation="companies.list", method="GET", path="/companies")
    if setting == POST:
        request = Request(
            operation="push.create",
            method="POST",
            path="/companies",
            body=RECORD,
            safety=Safety.WRITE,
            company_id="c",
        )
    options = CallOptions()

    async def call() -> object:
        return await session.send(request, options)

    try:
        yield call
    finally:
        await session.aclose()


@asynccontextmanager
async def plain(base_url: str, setting: str) -> AsyncIterator[Call]:
    headers = {"Authorization": "Basic YmVuY2htYXJr", "Accept": "application/json"}
    method, body = ("POST", RECORD) if setting == POST else ("GET", None)
    async with aiohttp.ClientSession(headers=headers) as session:

        async def call() -> object:
            async with session.request(method, f"{base_url}/companies", data=body) as answer:
                return await answer.read()

        yield call


CONTENDERS = {"aiohttp": plain, "integration_sdk": sdk}


def _turn(contender: str, base_url: str, setting: str, calls: int) -> Mapping[str, float]:
    return {CPU: asyncio.run(_cost(contender, base_url, setting, calls))}


async def _cost(contender: str, base_url: str, setting: str, calls: int) -> float:
    async with CONTENDERS[contender](base_url, setting) as call:
        for _ in range(50):
            await call()
        began = time.process_time()
        for _ in range(calls):
            await call()
        return (time.process_time() - began) / calls * 1e6


def call_overhead(quick: bool) -> Rows:
    rounds, calls = (3, 500) if quick else (9, 2000)
    rows: list[Row] = []
    with ready_server() as base_url:
        for setting in (GET, POST):
            turns = {name: partial(_turn, name, base_url, setting, calls) for name in CONTENDERS}
            rows += interleaved(setting, turns, rounds=rounds)
    return Rows(rows)


CALL_OVERHEAD = Question(
    "call_overhead",
    "What does a call cost beyond aiohttp's own share?",
    call_overhead,
    goals=GOALS["call_overhead"],
    compare=(CPU, "aiohttp"),
)
QUESTIONS = (CALL_OVERHEAD,)
