"""A service that falls silent: its answer is lost after ``read_timeout``, not after ``timeout``."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from integration_sdk import Client, PushRequest
from integration_sdk.errors import AnswerLost, ConfigurationError, NotSent
from integration_sdk.sandbox import Sandbox
from tests.support.session_support import (
    KEY,
    QUICK,
    Connection,
    RawServer,
    always,
    answer,
    raw_server,
)

pytestmark = pytest.mark.virtual_time

PATIENT: dict[str, Any] = {"timeout": 3600, "read_timeout": 60, "retry": QUICK}
HEAD = b"HTTP/1.1 200 OK\r\n"
SILENT = {
    "before the answer": b"",
    "in its head": HEAD + b"Content-Le",
    "in its body": HEAD + b"Content-Length: 9\r\n\r\n{",
    "between its chunks": HEAD + b"Transfer-Encoding: chunked\r\n\r\n1\r\n{\r\n",
}


def slowly(reply: bytes, *, pause: float, parts: int) -> Connection:
    """Answer with *parts* of *reply*, each after a *pause*, and hold the line after the last."""

    async def serve(
        server: RawServer, reader: asyncio.StreamReader, writer: asyncio.StreamWriter
    ) -> None:
        await server.receive(reader)
        size = len(reply) // parts + 1
        for start in range(0, len(reply), size):
            await asyncio.sleep(pause)
            writer.write(reply[start : start + size])
            await writer.drain()
        await reader.read()

    return serve


@pytest.mark.parametrize("where", SILENT)
@pytest.mark.parametrize(("method", "times"), [("GET", 3), ("POST", 1)])
async def test_a_silent_answer_is_given_up(method: str, times: int, where: str) -> None:
    """A read is sent again after a minute without a byte; a write never, and it says why."""
    began = asyncio.get_running_loop().time()
    serve = slowly(SILENT[where], pause=0, parts=1)
    async with raw_server(serve) as server, Client(KEY, server.base_url, **PATIENT) as client:
        with pytest.raises(AnswerLost, match="the service fell silent") as caught:
            await client.request(method, "/companies")

    assert caught.value.attempts == len(server.requests) == times
    elapsed = asyncio.get_running_loop().time() - began
    assert 60 * times <= elapsed < 60 * times + 10


async def test_a_proxy_that_opens_no_tunnel_is_given_up() -> None:
    """aiohttp would wait for that as long as the whole call may take; a push has not left."""
    began = asyncio.get_running_loop().time()
    async with (
        raw_server(slowly(b"", pause=0, parts=1)) as proxy,
        Client(KEY, "https://api.example.com", proxy=proxy.base_url, **PATIENT) as client,
    ):
        with pytest.raises(NotSent, match="no way through the proxy") as caught:
            await client.request("POST", "/companies", json={})

    assert caught.value.attempts == len(proxy.requests) == 3
    assert asyncio.get_running_loop().time() - began < 200


async def test_a_slow_answer_is_not_silent() -> None:
    """An answer may take far longer than the read time-out, as long as bytes keep coming."""
    reply = answer(body=b'{"results": [1, 2, 3]}')
    async with (
        raw_server(slowly(reply, pause=50, parts=8)) as server,
        Client(KEY, server.base_url, **PATIENT) as client,
    ):
        got = await client.request("GET", "/companies")

    assert got == {"results": [1, 2, 3]}
    assert len(server.requests) == 1


async def test_an_idle_connection_is_not_silent() -> None:
    """The time between two calls is nobody's silence: their connection is kept."""
    async with (
        raw_server(always(answer())) as server,
        Client(KEY, server.base_url, timeout=3600, read_timeout=1) as client,
    ):
        await client.request("GET", "/companies")
        await asyncio.sleep(20)
        await client.request("GET", "/companies")
        await asyncio.sleep(20)
        await client.with_options(timeout=10).request("GET", "/companies")

    assert (server.connections, len(server.requests)) == (1, 3)


async def test_a_list_goes_on_after_a_page_that_never_came() -> None:
    """A job with an hour for each page waits a minute for one that is lost, and reads it again."""
    began = asyncio.get_running_loop().time()
    async with (
        Sandbox(companies=3) as sandbox,
        Client(sandbox.api_key, sandbox.base_url, timeout=3600) as client,
    ):
        sandbox.faults.latency(100_000, times=1)
        companies = await client.companies.list().collect()

    assert len(companies) == 3
    assert asyncio.get_running_loop().time() - began < 120


async def test_a_push_whose_answer_never_comes_is_looked_for() -> None:
    """A coordinator with an hour for each call knows after a minute that it has to look."""
    began = asyncio.get_running_loop().time()
    async with (
        Sandbox(companies=1) as sandbox,
        Client(sandbox.api_key, sandbox.base_url, timeout=3600) as client,
        client.coordinator() as pushes,
    ):
        sandbox.faults.late_answer(100_000, times=1, route="POST")
        company = sandbox.companies[0]
        record = {"supplierName": "Toft", "status": "Active"}
        lane = company.id, company.connections[0].id, "suppliers"
        request = PushRequest(*lane, record, natural_key="supplierName")
        outcomes = [outcome async for outcome in pushes.run([request])]

        assert [(one.status, one.key) for one in outcomes] == [("SUCCESS", sandbox.pushes[0].key)]
        assert len(sandbox.pushes) == 1
    assert 60 <= asyncio.get_running_loop().time() - began < 180


@pytest.mark.parametrize("wrong", [0, -1, "60", True, float("nan")])
def test_what_is_no_time_is_refused(wrong: Any) -> None:
    """A read time-out is seconds above zero, or None."""
    with pytest.raises(ConfigurationError, match="read_timeout must be more than 0"):
        Client("key", "https://service.example", read_timeout=wrong)
