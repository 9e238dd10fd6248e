"""Bodies: capped while they are unpacked, whatever the service or a proxy sends."""

from __future__ import annotations

import gzip
import tracemalloc
import zlib
from ssl import SSLContext
from typing import Any

import pytest

from integration_sdk import RetryPolicy
from integration_sdk._http import CallOptions
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
from tests.support.network_support import of_the_server, trusting
from tests.support.session_support import (
    ONE_CALL,
    always,
    answer,
    in_turn,
    raw_server,
    read,
    session_on,
    write,
)

MIB = 1024 * 1024


@pytest.mark.parametrize("over", [-1, 0, 1])
@pytest.mark.parametrize("packed", [False, True])
async def test_the_limit_counts_unpacked_bytes(over: int, packed: bool) -> None:
    """A body of exactly the limit is read; one byte more is too large."""
    body = b"x" * (10_000 + over)
    reply = (
        answer(200, gzip.compress(body), Content_Encoding="gzip") if packed else answer(200, body)
    )
    async with raw_server(always(reply)) as server, session_on(server) as session:
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
    async with raw_server(in_turn(cut, whole, cut)) as server, session_on(server) as session:
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
    async with raw_server(always(reply)) as server, session_on(server) as session:
        assert (await session.send(read(), ONE_CALL)).body == b"[1]"


async def test_a_long_header_field_is_read() -> None:
    """Up to 64 KiB, which aiohttp would refuse."""
    reply = answer(200, b"{}", X_Policy="x" * 60_000)
    async with raw_server(always(reply)) as server, session_on(server) as session:
        assert len((await session.send(read(), ONE_CALL)).headers["X-Policy"]) == 60_000


async def test_a_bomb_is_defused() -> None:
    """Little that unpacks to much costs about the limit, and the call ends soon."""
    bomb = gzip.compress(bytes(64 * MIB))
    assert len(bomb) < MIB / 8
    reply = answer(200, bomb, Content_Encoding="gzip")
    async with raw_server(always(reply)) as server, session_on(server) as session:
        tracemalloc.start()
        try:
            with pytest.raises(ResponseTooLarge):
                await session.send(write(body_limit=2 * MIB), ONE_CALL)
            _, peak = tracemalloc.get_traced_memory()
        finally:
            tracemalloc.stop()

    assert peak < 24 * MIB


async def test_an_errors_body_is_cut_not_lost() -> None:
    """A huge error page is still the status that it came with."""
    reply = answer(500, b"<html>" + b"x" * MIB)
    async with raw_server(always(reply)) as server, session_on(server) as session:
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


def read_or_error(request: Request, response: Response) -> Any:
    try:
        return read_json(request, response)
    except IntegrationError as error:
        return error


@pytest.mark.parametrize("status", [200, 400])
@pytest.mark.parametrize("body", ODD)
async def test_odd_bodies_raise_documented_errors_only(body: str, status: int) -> None:
    """Whatever a body holds, the outcome is a value or an error of the tree."""
    async with (
        raw_server(always(answer(status, ODD[body]))) as server,
        session_on(server) as session,
    ):
        for request in (read(), write()):
            response = await session.send(request, CallOptions(retry=RetryPolicy.never()))
            outcome = read_or_error(request, response)
            if status == 200:
                assert outcome is None or isinstance(outcome, dict | MalformedResponse)
            else:
                assert isinstance(outcome, ApiError)


@pytest.mark.parametrize("tls", [None, of_the_server()], ids=["plain", "TLS"])
async def test_a_large_record_is_sent_whole_and_without_a_warning(tls: SSLContext | None) -> None:
    """Nine megabytes leave as they are; aiohttp would warn of so many bytes in one piece."""
    body = b"[" + b"7" * (9 * MIB) + b"]"
    async with (
        raw_server(always(answer()), ssl=tls) as server,
        session_on(server, ssl=trusting()) as session,
    ):
        assert (await session.send(write(body=body), ONE_CALL)).status == 200

    head, _, sent = server.requests[0].partition(b"\r\n\r\n")
    assert f"Content-Length: {len(body)}".encode() in head
    assert sent == body
