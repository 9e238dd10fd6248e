"""What goes over a connection, both ways, and when a connection is used again."""

from __future__ import annotations

import asyncio
import gzip
import tracemalloc
import zlib
from ssl import SSLContext
from typing import Any, cast

import pytest
from attrs import evolve

from integration_sdk import __version__
from integration_sdk._http.requests import Request
from integration_sdk._http.responses import Response, read_error, read_json
from integration_sdk.errors import (
    AnswerLost,
    ApiError,
    IntegrationError,
    InternalServerError,
    MalformedResponse,
    ResponseTooLarge,
)
from tests.support.session_support import (
    ONE_CALL,
    Peer,
    always,
    answer,
    in_turn,
    of_the_server,
    raw_server,
    read,
    reply_of,
    serving,
    session_on,
    trusting,
    write,
)

ALWAYS = {
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
    "HEAD": (evolve(read(), method="HEAD"), b"HEAD /companies", set()),
    "a write": (
        write(headers={"Idempotency-Key": "k-1"}),
        b"POST /companies",
        {*JSON, b"Idempotency-Key: k-1"},
    ),
    "no body": (write(method="DELETE", body=None), b"DELETE /companies", {b"Content-Length: 0"}),
    "a file": (
        write(body=b"\x00\xff", content_type="multipart/form-data; boundary=x"),
        b"POST /companies",
        {b"Content-Type: multipart/form-data; boundary=x", b"Content-Length: 2"},
    ),
    "PATCH": (write(method="PATCH"), b"PATCH /companies", JSON),
}


@pytest.mark.parametrize("base_path", ["", "/api/v1"])
@pytest.mark.parametrize("name", SENT)
async def test_what_is_sent_is_this_and_no_more(name: str, base_path: str) -> None:
    """The first line, the headers in any order, and the body."""
    request, first, further = SENT[name]
    async with (
        raw_server(always(answer(body=b""))) as server,
        session_on(server.base_url + base_path) as session,
    ):
        await session.send(request, ONE_CALL)
    head, _, body = server.requests[0].partition(b"\r\n\r\n")
    line, *fields = head.split(b"\r\n")
    host = f"Host: 127.0.0.1:{server.port}".encode()

    assert line == first.replace(b" /", f" {base_path}/".encode()) + b" HTTP/1.1"
    assert sorted(fields) == sorted({host} | ALWAYS | further)
    assert body == (request.body or b"")


@pytest.mark.parametrize(
    ("reply", "connections"),
    [
        (answer(), 1),
        (b"HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 103 Hints\r\nLink: x\r\n\r\n" + answer(), 1),
        (answer(Connection="close"), 3),
        (answer().replace(b"HTTP/1.1", b"HTTP/1.0"), 3),
        (answer(500, b"x" * 200_000), 3),
        (b"HTTP/1.1 101 Switching\r\nUpgrade: x\r\nConnection: upgrade\r\n\r\n", 3),
    ],
    ids=["kept", "hints", "closed by the service", "HTTP 1.0", "not read to its end", "switched"],
)
async def test_a_connection_is_used_again_if_it_can_be(reply: bytes, connections: int) -> None:
    """One with anything left to read never is."""
    async with serving(always(reply)) as (server, session):
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
        raw_server(refuse_the_first, tls=tls) as server,
        session_on(server, ssl=trusting()) as session,
    ):
        assert (await session.send(write(body=b"x" * 20_000_000), ONE_CALL)).status == 413
        assert (await session.send(write(), ONE_CALL)).status == 200
    assert server.connections == 2


async def test_a_line_break_never_leaves() -> None:
    """Nothing that a caller or a service gives can add a header to a request."""
    in_a_header = write(headers={"Idempotency-Key": "a\nX-Evil: 1"})
    async with serving(always(answer())) as (server, session):
        with pytest.raises(ValueError, match=r"control character|injection"):  # aiohttp's words
            await session.send(in_a_header, ONE_CALL)
        await session.send(read(raw_query="page=2\r\nX-Evil: 1"), ONE_CALL)
    (sent,) = server.requests
    assert b"\nX-Evil" not in sent


# Bodies: capped while they are unpacked, whatever the service or a proxy sends


MIB = 1024 * 1024


@pytest.mark.parametrize("over", [-1, 0, 1])
@pytest.mark.parametrize("packed", [False, True])
async def test_the_limit_counts_unpacked_bytes(over: int, packed: bool) -> None:
    """A body of exactly the limit is read; one byte more is too large."""
    body = b"x" * (10_000 + over)
    reply = (
        answer(200, gzip.compress(body), Content_Encoding="gzip") if packed else answer(200, body)
    )
    async with serving(always(reply)) as (server, session):
        if over <= 0:
            assert (await session.send(read(body_limit=10_000), ONE_CALL)).body == body
            return
        with pytest.raises(ResponseTooLarge) as caught:
            await session.send(read(body_limit=10_000), ONE_CALL)

    assert caught.value.limit == 10_000
    assert len(server.requests) == 1, "asking again would only bring it again"


@pytest.mark.parametrize("ends", ["in the trailer", "early", "at once"])
async def test_a_compressed_body_that_was_cut_is_a_lost_answer(ends: str) -> None:
    """Though its length is as announced: a read is repeated, a write is in doubt."""
    packed = gzip.compress(b'{"results": [1, 2, 3]}')
    cut = answer(200, packed[: {"early": 15, "at once": 3}.get(ends, -1)], Content_Encoding="gzip")
    whole = answer(200, packed, Content_Encoding="gzip")
    async with serving(in_turn(cut, whole, cut)) as (server, session):
        assert (await session.send(read(), ONE_CALL)).attempts == 2
        with pytest.raises(AnswerLost):
            await session.send(write(), ONE_CALL)

    assert len(server.requests) == 3


@pytest.mark.parametrize(
    ("encoding", "body"),
    [
        ("x-gzip", gzip.compress(b"[1]")),
        ("GZIP", gzip.compress(b"[") + gzip.compress(b"1]")),  # two members
        ("gzip", gzip.compress(b"[1]") + bytes(512)),  # filled up, as tar does
        ("deflate", zlib.compress(b"[1]")),
        ("gzip", gzip.compress(b"\xef\xbb\xbf[1]")),
        ("identity", b"\xef\xbb\xbf[1]"),
    ],
    ids=["x-gzip", "two members", "filled up", "deflate", "mark in gzip", "mark"],
)
async def test_compressed_bodies_and_byte_order_marks_are_read(encoding: str, body: bytes) -> None:
    """However a gateway spells its compression, and though a platform begins with a mark."""
    reply = answer(200, body, Content_Encoding=encoding)
    async with serving(always(reply)) as (_, session):
        assert (await session.send(read(), ONE_CALL)).body == b"[1]"


async def test_a_long_header_field_is_read() -> None:
    """Up to 64 KiB, which aiohttp would refuse."""
    reply = answer(200, b"{}", X_Policy="x" * 60_000)
    async with serving(always(reply)) as (_, session):
        assert len((await session.send(read(), ONE_CALL)).headers["X-Policy"]) == 60_000


async def test_a_bomb_is_defused() -> None:
    """Little that unpacks to much costs about the limit, and the call ends soon."""
    bomb = gzip.compress(bytes(64 * MIB))
    assert len(bomb) < MIB / 8
    reply = answer(200, bomb, Content_Encoding="gzip")
    async with serving(always(reply)) as (_, session):
        tracemalloc.start()
        try:
            with pytest.raises(ResponseTooLarge) as caught:
                await session.send(write(body_limit=2 * MIB), ONE_CALL)
            _, peak = tracemalloc.get_traced_memory()
        finally:
            tracemalloc.stop()

    assert peak < 24 * MIB
    assert caught.value.in_doubt


async def test_an_errors_body_is_cut_not_lost() -> None:
    """A huge error page is still the status that it came with."""
    reply = answer(500, b"<html>" + b"x" * MIB)
    async with serving(always(reply)) as (_, session):
        response = await session.send(read(), ONE_CALL)

    assert isinstance(read_error(read(), response), InternalServerError)
    assert len(response.body) == 64 * 1024


ODD = {
    "empty": b"",
    "html": b"<!doctype html><title>proxy</title>",
    "cut": b'{"results": [',
    "utf-16": '{"name": "Björn"}'.encode("utf-16"),
    "nan": b'{"amount": NaN}',
    "twice": b'{"a": 1, "a": 2}',
    "deep objects": b'{"a":' * 1_000_000,
    "zero bytes": bytes(100),
    "two values": b"{}{}",
    "huge number": b"1" * 100_000,
}


@pytest.mark.parametrize("status", [200, 400])
@pytest.mark.parametrize("body", ODD)
def test_odd_bodies_raise_documented_errors_only(body: str, status: int) -> None:
    """Whatever a body holds, the outcome is a value or an error of the tree."""
    for request in (read(), write()):
        try:
            outcome = read_json(request, Response(status=status, body=ODD[body]))
        except IntegrationError as error:
            outcome = error
        if status == 200:
            assert outcome is None or isinstance(outcome, dict | MalformedResponse)
        else:
            assert isinstance(outcome, ApiError)
