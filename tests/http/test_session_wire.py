"""What leaves on a connection, who else sees it, and when a connection is used again."""

from __future__ import annotations

import asyncio
from ssl import SSLContext
from typing import Any, cast

import pytest

from integration_sdk import __version__
from integration_sdk._http.requests import Request
from tests.support.network_support import of_the_server, trusting
from tests.support.session_support import (
    ONE_CALL,
    Peer,
    always,
    answer,
    raw_server,
    read,
    reply_of,
    session_on,
    write,
)

ALWAYS = {
    b"Host: host",
    b"Accept: application/json",
    b"Accept-Encoding: gzip",
    b"Authorization: Basic dGVzdC1rZXktMDEyMzQ1Njc4OQ==",
    f"User-Agent: integration-sdk/{__version__}".encode(),
}
JSON = {b"Content-Type: application/json", b"Content-Length: 13"}
SENT: dict[str, tuple[Request, bytes, set[bytes]]] = {
    "a read": (
        read("/companies/a%20b", params=(("query", "a=b&c d"), ("page", "2"))),
        b"GET /companies/a%20b?query=a%3Db%26c%20d&page=2",
        set(),
    ),
    "a link's query": (
        read(raw_query="page=2&pageSize=100&query=%E2%82%AC"),
        b"GET /companies?page=2&pageSize=100&query=%E2%82%AC",
        set(),
    ),
    "HEAD": (
        Request(operation="test", method="HEAD", path="/companies"),
        b"HEAD /companies",
        set(),
    ),
    "a write": (
        write(headers={"Idempotency-Key": "k-1"}),
        b"POST /companies",
        {*JSON, b"Idempotency-Key: k-1"},
    ),
    "a write without a body": (
        write(method="DELETE", body=None),
        b"DELETE /companies",
        {b"Content-Length: 0"},
    ),
    "a file": (
        write(body=b"\x00\xff", content_type="multipart/form-data; boundary=x"),
        b"POST /companies",
        {b"Content-Type: multipart/form-data; boundary=x", b"Content-Length: 2"},
    ),
    "PATCH": (write(method="PATCH"), b"PATCH /companies", JSON),
}


async def sent_by(request: Request, base_path: str, **settings: Any) -> bytes:
    async with (
        raw_server(always(answer(body=b""))) as server,
        session_on(server.base_url + base_path, **settings) as session,
    ):
        await session.send(request, ONE_CALL)
    host = f"127.0.0.1:{server.port}".encode()
    assert host in server.requests[0]
    return server.requests[0].replace(host, b"host")


@pytest.mark.parametrize("base_path", ["", "/api/v1"])
@pytest.mark.parametrize("name", SENT)
async def test_what_is_sent_is_this_and_no_more(name: str, base_path: str) -> None:
    """The first line, the headers in any order, and the body."""
    request, first, further = SENT[name]
    head, _, body = (await sent_by(request, base_path)).partition(b"\r\n\r\n")
    line, *fields = head.split(b"\r\n")

    assert line == first.replace(b" /", f" {base_path}/".encode()) + b" HTTP/1.1"
    assert sorted(fields) == sorted(ALWAYS | further)
    assert body == (request.body or b"")


async def test_what_precedes_an_answer_is_not_the_answer() -> None:
    """100 and 103 are skipped, and the connection is used again."""
    hints = b"HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 103 Hints\r\nLink: x\r\n\r\n"
    serve = always(hints + answer(body=b'{"a": 1}'))
    async with raw_server(serve) as server, session_on(server) as session:
        for _ in range(3):
            response = await session.send(read(), ONE_CALL)
            assert (response.status, response.body) == (200, b'{"a": 1}')
    assert server.connections == 1


@pytest.mark.parametrize(
    ("reply", "connections"),
    [
        (answer(), 1),
        (answer(Connection="close"), 3),
        (answer().replace(b"HTTP/1.1", b"HTTP/1.0"), 3),
        (answer(500, b"x" * 200_000), 3),
        (b"HTTP/1.1 101 Switching\r\nUpgrade: x\r\nConnection: upgrade\r\n\r\n", 3),
    ],
    ids=["kept", "closed by the service", "HTTP 1.0", "not read to its end", "switched"],
)
async def test_a_connection_is_used_again_if_it_can_be(reply: bytes, connections: int) -> None:
    """One with anything left to read never is."""
    async with raw_server(always(reply)) as server, session_on(server) as session:
        for _ in range(3):
            await reply_of(session, write())
    assert server.connections == connections


@pytest.mark.parametrize("tls", [None, of_the_server()], ids=["plain", "TLS"])
async def test_an_early_refusal_holds_up_nobody(tls: SSLContext | None) -> None:
    """What is left of a large record never stands before the next request on its connection."""

    async def refuse_the_first(peer: Peer) -> None:
        if peer.server.connections == 1:
            await peer.reader.readuntil(b"\r\n\r\n")
            cast(Any, peer.writer.transport).pause_reading()
            peer.write(answer(413))
            await asyncio.sleep(3600)
        await always(answer())(peer)

    async with (
        raw_server(refuse_the_first, ssl=tls) as server,
        session_on(server, ssl=trusting()) as session,
    ):
        assert (await session.send(write(body=b"x" * 20_000_000), ONE_CALL)).status == 413
        assert (await session.send(write(), ONE_CALL)).status == 200
    assert server.connections == 2


async def test_a_line_break_never_leaves() -> None:
    """Nothing that a caller or a service gives can add a header to a request."""
    in_a_header = write(headers={"Idempotency-Key": "a\nX-Evil: 1"})
    async with raw_server(always(answer())) as server, session_on(server) as session:
        with pytest.raises(ValueError, match=r"control character|injection"):  # aiohttp's words
            await session.send(in_a_header, ONE_CALL)
        await session.send(read(raw_query="page=2\r\nX-Evil: 1"), ONE_CALL)
    (sent,) = server.requests
    assert b"\nX-Evil" not in sent
