"""`Session.send_once`: one turn, then *before*, then one transmission."""

from __future__ import annotations

import asyncio
import socket
import threading

import pytest

from integration_sdk import RetryPolicy
from integration_sdk._http import CallOptions
from integration_sdk.errors import AnswerLost, IntegrationError, NotSent
from tests.support.loops import RunOnLoop
from tests.support.session_support import (
    ONE_CALL,
    VirtualService,
    always,
    answer,
    error_body,
    held,
    read,
    serving,
    session_on,
    virtual_session,
    write,
)


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
