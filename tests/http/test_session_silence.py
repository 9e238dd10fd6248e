"""A service that falls silent: its answer is lost after ``read_timeout``, not after ``timeout``."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from integration_sdk import Client
from integration_sdk.errors import AnswerLost
from tests.support.session_support import KEY, QUICK, Connection, Peer, answer, raw_server

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

    async def serve(peer: Peer) -> None:
        await peer.receive()
        size = len(reply) // parts + 1
        for start in range(0, len(reply), size):
            await asyncio.sleep(pause)
            peer.write(reply[start : start + size])
            await peer.writer.drain()
        await peer.reader.read()

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
