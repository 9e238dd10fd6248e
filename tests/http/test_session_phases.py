"""Send again or not: every cell of the table, against a server that fails in that very phase.

A connection that was closed unnoticed, a deadline and a record before the first byte belong to it.
"""

from __future__ import annotations

import asyncio
import socket
import threading
from typing import Any

import aiohttp
import pytest
from attrs import evolve

from integration_sdk import Client, RetryPolicy
from integration_sdk._http import CallOptions
from integration_sdk._http.requests import Request, Safety
from integration_sdk.errors import AnswerLost, IntegrationError, MalformedResponse, NotSent
from tests.support.loops import RunOnLoop, now
from tests.support.session_support import (
    KEY,
    ONE_CALL,
    QUICK,
    Connection,
    Peer,
    VirtualService,
    always,
    answer,
    breaks_after,
    error_body,
    held,
    raw_server,
    read,
    reply_of,
    serving,
    session_on,
    unused_port,
    virtual_session,
    write,
)

REQUESTS = {
    "GET": read(),
    "POST": write(),
    "PUT": write(method="PUT"),
    "DELETE": write(method="DELETE", body=None),
    "POST that only reads": evolve(write(), safety=Safety.READ),
}


async def breaks_at_once(peer: Peer) -> None:
    await peer.reader.read(1)
    peer.server.requests.append(b"a byte of it")
    peer.reset()


HEAD = b"HTTP/1.1 200 OK\r\n"
LOST: dict[str, Connection] = {
    "reset while it is being sent": breaks_at_once,
    "closed before an answer": breaks_after(b""),
    "reset before an answer": breaks_after(b"", hard=True),
    "closed in the status line": breaks_after(b"HTTP/1.1 20"),
    "closed in the headers": breaks_after(HEAD + b"Content-Le"),
    "closed before the body": breaks_after(HEAD + b"Content-Length: 9\r\n\r\n"),
    "closed in the body": breaks_after(HEAD + b"Content-Length: 9\r\n\r\n{"),
    "reset in the body": breaks_after(HEAD + b"Content-Length: 9\r\n\r\n{", hard=True),
    "closed in a chunk": breaks_after(HEAD + b"Transfer-Encoding: chunked\r\n\r\n5\r\n{"),
    "closed between chunks": breaks_after(HEAD + b"Transfer-Encoding: chunked\r\n\r\n1\r\n{\r\n"),
    "closed in an error's body": breaks_after(
        b"HTTP/1.1 429 X\r\nContent-Length: 999\r\n\r\n" + error_body(429)
    ),
    "body that is no gzip": always(answer(200, b"no gzip at all", Content_Encoding="gzip")),
}
MALFORMED: dict[str, Connection] = {
    "no HTTP at all": always(b"\x16\x03\x01 what is this\r\n\r\n"),
    "a status that is no number": always(b"HTTP/1.1 abc OK\r\n\r\n"),
    "a header that is none": always(HEAD + b"no header here\r\nContent-Length: 0\r\n\r\n"),
    "two lengths": always(HEAD + b"Content-Length: 1\r\nContent-Length: 2\r\n\r\n{}"),
    "a chunk size that is no number": always(HEAD + b"Transfer-Encoding: chunked\r\n\r\nzz\r\n"),
    "endless headers": always(HEAD + b"X: y\r\n" * 20_000 + b"\r\n"),
}

BROKEN: dict[str, Connection] = {**LOST, **MALFORMED}


@pytest.mark.parametrize("request_name", REQUESTS)
@pytest.mark.parametrize("fault", BROKEN)
async def test_only_reads_are_sent_again_once_they_may_have_left(
    fault: str, request_name: str
) -> None:
    """Whatever happens after the first byte left, a write is transmitted exactly once."""
    request = REQUESTS[request_name]

    async with serving(BROKEN[fault]) as (server, session):
        error = await reply_of(session, request)

    sent = 3 if request.safety is Safety.READ else 1
    assert len(server.requests) == error.attempts == sent
    assert isinstance(error, AnswerLost | MalformedResponse)
    assert getattr(error, "status", None) is None, "aiohttp calls what is no HTTP status 400"
    assert (error.method, error.path) == (request.method, request.path)


@pytest.mark.parametrize("request_name", REQUESTS)
@pytest.mark.parametrize(("policy", "most"), [(QUICK, 3), (RetryPolicy.never(), 1)])
async def test_what_never_left_is_sent_again_unless_never(
    request_name: str, policy: RetryPolicy, most: int
) -> None:
    """A refused connection is no transmission, so even a write is tried again, and so is what the
    service refused for now; `RetryPolicy.never` holds in every phase.
    """
    request, options = REQUESTS[request_name], CallOptions(timeout=10, retry=policy)
    async with session_on(f"http://127.0.0.1:{unused_port()}") as session:
        error = await reply_of(session, request, options)
    assert (type(error), error.attempts) == (NotSent, most)

    broken = most if request.safety is Safety.READ else 1
    for serve, sent in ((always(answer(429, error_body(429))), most), (breaks_after(b""), broken)):
        async with serving(serve) as (server, session):
            got = await reply_of(session, request, options)
        assert len(server.requests) == got.attempts == sent


@pytest.mark.parametrize("method", ["PUT", "DELETE", "GET"])
async def test_aiohttp_does_not_send_again_by_itself(method: str) -> None:
    """A kept connection that breaks is where aiohttp would silently repeat a request."""

    async def one_answer_each(peer: Peer) -> None:
        await peer.receive()
        peer.write(answer())
        await peer.receive()

    async with serving(one_answer_each) as (server, session):
        request = write(method=method, body=None)
        assert (await reply_of(session, request, once=True)).status == 200
        assert isinstance(await reply_of(session, request, once=True), AnswerLost)

    assert len(server.requests) == 2


@pytest.mark.parametrize("request_", [read(), write()], ids=["GET", "POST"])
async def test_what_came_unasked_answers_nothing(request_: Request) -> None:
    """An idle connection that got an answer to no request is not used: it would shift all others.

    Load balancers send a 408 on one, broken servers an answer twice.
    """
    written = asyncio.Event()

    async def serve(peer: Peer) -> None:
        await peer.receive()
        peer.write(answer(body=b"%d" % len(peer.server.requests)))
        await asyncio.sleep(0.01)
        peer.write(answer(408, b"to nobody"))
        written.set()
        await peer.receive()
        peer.write(answer(body=b"too late"))

    async with serving(serve) as (server, session):
        for number in (b"1", b"2"):
            assert (await session.send(request_, ONE_CALL)).body == number
            await asyncio.wait_for(written.wait(), 5)
            await asyncio.sleep(0.01)  # for the event loop to read it
            written.clear()
        assert (await session.send_once(request_, ONE_CALL)).body == b"3"

    assert len(server.requests) == server.connections == 3


async def forever(*_: object) -> None:
    await asyncio.sleep(3600)


@pytest.mark.virtual_time
async def test_time_out_before_the_first_byte_is_not_sent() -> None:
    """A deadline while the connection is being made proves that nothing left."""
    hang = aiohttp.TraceConfig()
    hang.on_connection_create_start.append(forever)
    options = CallOptions(timeout=0.05)
    async with serving(always(answer()), trace_configs=[hang]) as (server, session):
        error = await reply_of(session, write(), options)

    assert isinstance(error, NotSent)
    assert not server.requests


# A service that falls silent: its answer is lost after read_timeout, not after timeout


PATIENT: dict[str, Any] = {"timeout": 3600, "read_timeout": 60, "retry": QUICK}
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


@pytest.mark.virtual_time
@pytest.mark.parametrize("where", SILENT)
@pytest.mark.parametrize(("method", "times"), [("GET", 3), ("POST", 1)])
async def test_a_silent_answer_is_given_up(method: str, times: int, where: str) -> None:
    """A read is sent again after a minute without a byte; a write never, and it says why."""
    began = now()
    serve = slowly(SILENT[where], pause=0, parts=1)
    async with raw_server(serve) as server, Client(KEY, server.base_url, **PATIENT) as client:
        with pytest.raises(AnswerLost, match="the service fell silent") as caught:
            await client.request(method, "/companies")

    assert caught.value.attempts == len(server.requests) == times
    assert 60 * times <= now() - began < 60 * times + 10


@pytest.mark.virtual_time
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


# `Session.send_once`: one turn, then *before*, then one transmission


async def test_nothing_leaves_before_it_is_recorded() -> None:
    """*before* runs when the turn has come; the request is sent once, whatever comes."""
    async with serving(always(answer(503, error_body(503)))) as (server, session):

        async def record() -> None:
            await asyncio.sleep(0)
            assert not server.requests
            assert session.stats().in_flight == 1

        response = await session.send_once(write(), ONE_CALL, before=record)

    assert (response.status, response.attempts, len(server.requests)) == (503, 1, 1)


@pytest.mark.virtual_time
async def test_the_timeout_stops_its_wait_and_its_sending_but_no_record() -> None:
    """A slow commit is finished; what was recorded too late is not sent."""
    session = virtual_session(VirtualService(latency=5), connections=1)
    options = CallOptions(timeout=2, retry=RetryPolicy.never())
    ends: list[str] = []

    async def slow() -> None:
        await asyncio.sleep(10)
        ends.append("recorded")

    async def send(before: float) -> None:
        await asyncio.sleep(before)
        try:
            await session.send_once(write(), options, before=None if before else slow)
        except IntegrationError as error:
            ends.append(type(error).__name__)

    await asyncio.gather(send(0), send(1), send(11))
    assert ends == ["NotSent", "recorded", "NotSent", "AnswerLost"]


def test_a_connection_that_closed_unnoticed_is_not_written_to(run_on_loop: RunOnLoop) -> None:
    """Nor by a program that has kept the event loop from noticing; another takes its place."""
    served, closed = list[bytes](), threading.Event()

    def serve(listener: socket.socket) -> None:
        for _ in range(3):
            connection, _ = listener.accept()
            with connection:
                served.append(connection.recv(65536))
                connection.sendall(answer())
            closed.set()

    async def journey(port: int) -> None:
        async with session_on(f"http://127.0.0.1:{port}") as session:
            for send in (session.send_once, session.send, session.send_once):
                assert (await send(write(), ONE_CALL)).attempts == 1
                assert closed.wait(5)  # and not `await`: the loop stands still
                closed.clear()
            assert session.stats().budget == 500

    with socket.create_server(("127.0.0.1", 0)) as listener:
        serving = threading.Thread(target=serve, args=(listener,), daemon=True)
        serving.start()
        run_on_loop(journey(listener.getsockname()[1]))
        serving.join(5)
    assert len(served) == 3


def test_calls_to_a_silent_service_end_at_their_time(run_on_loop: RunOnLoop) -> None:
    """On every kind of loop, however many there are and whatever came before."""

    async def journey() -> None:
        options = CallOptions(timeout=0.1, retry=RetryPolicy.never())
        async with serving(held()) as (_, session):
            for _ in range(2):
                calls = [session.send(read(), options) for _ in range(30)]
                ends = await asyncio.wait_for(asyncio.gather(*calls, return_exceptions=True), 30)
                assert {type(end) for end in ends} <= {AnswerLost, NotSent}
                assert all("timeout of 0.1 s expired" in str(end) for end in ends)

    run_on_loop(journey())
