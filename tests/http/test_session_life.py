"""Opening, closing, cancelling, and which loop and process a session belongs to."""

from __future__ import annotations

import asyncio
import gc
import multiprocessing
import threading
from collections.abc import Coroutine
from typing import Any

import pytest
from attrs import define

from integration_sdk._http import CallOptions, Session
from integration_sdk.errors import AnswerLost, ClientClosed, IntegrationError
from tests.support.session_support import (
    KEY,
    ONE_CALL,
    VirtualService,
    always,
    answer,
    held,
    make_session,
    raw_server,
    read,
    session_on,
    until,
    unused_port,
    virtual_session,
    write,
)


async def caught(call: Coroutine[Any, Any, Any]) -> Any:
    try:
        return await call
    except IntegrationError as error:
        return error


# Closing


async def test_a_closed_session_says_so() -> None:
    """After `aclose` every call raises `ClientClosed`; closing again does nothing."""
    async with raw_server(always(answer())) as server:
        session = Session(base_url=server.base_url, api_key=KEY)
        await session.send(read(), ONE_CALL)
        await session.aclose()
        await session.aclose()

        with pytest.raises(ClientClosed, match="closed"):
            await session.send(read(), ONE_CALL)


async def test_a_session_that_was_never_used_can_be_closed() -> None:
    """Nothing was opened, so there is nothing to close."""
    session = Session(base_url="http://localhost", api_key=KEY)

    await session.aclose()


async def test_closing_ends_calls_under_way_at_once() -> None:
    """A call whose request may have left is told so; the connection is gone."""
    async with raw_server(held(asyncio.Event())) as server:
        session = Session(base_url=server.base_url, api_key=KEY)
        call = asyncio.create_task(caught(session.send(write(), ONE_CALL)))
        await until(lambda: bool(server.requests))

        await session.aclose()

        assert isinstance(await call, AnswerLost)
        assert "closed" in str(call.result())


async def test_closing_turns_away_who_is_in_line() -> None:
    """A call that waits for its turn gets `ClientClosed`; nothing of it was sent."""
    async with raw_server(held(asyncio.Event())) as server:
        session = make_session(base_url=server.base_url, connections=1)
        calls = [asyncio.create_task(caught(session.send(read(), ONE_CALL))) for _ in range(3)]
        await until(lambda: session.stats().waiting == 2 and bool(server.requests))

        await session.aclose()

        assert [type(await call) for call in calls] == [AnswerLost, ClientClosed, ClientClosed]
        assert len(server.requests) == 1


async def test_drain_lets_calls_end() -> None:
    """With *drain*, calls under way and in line end as if nothing had happened."""
    release = asyncio.Event()
    async with raw_server(held(release)) as server:
        session = make_session(base_url=server.base_url, connections=1)
        calls = [asyncio.create_task(session.send(read(), ONE_CALL)) for _ in range(3)]
        await until(lambda: bool(server.requests))
        closing = asyncio.create_task(session.aclose(drain=5))
        await asyncio.sleep(0)
        with pytest.raises(ClientClosed):
            await session.send(read(), ONE_CALL)
        release.set()
        await closing

        assert [(await call).status for call in calls] == [200, 200, 200]


@pytest.mark.virtual_time
async def test_drain_ends_at_its_limit() -> None:
    """Calls that take longer than *drain* are ended."""
    service = VirtualService(latency=60)
    session = virtual_session(service)
    call = asyncio.create_task(caught(session.send(write(), CallOptions(timeout=None))))
    await asyncio.sleep(1)

    await session.aclose(drain=5)

    assert asyncio.get_running_loop().time() == 6
    assert isinstance(await call, AnswerLost)


# Cancelling


@define
class ToBeClosed(VirtualService):
    """Says whether it was closed."""

    is_closed: bool = False

    async def close(self) -> None:
        self.is_closed = True


@pytest.mark.virtual_time
async def test_closing_goes_through_though_it_is_cancelled() -> None:
    """A web service whose shutdown is cut short leaves no connection open."""
    service = ToBeClosed(latency=1000)
    session = virtual_session(service)
    call = asyncio.create_task(caught(session.send(read(), ONE_CALL)))
    await asyncio.sleep(1)

    closing = asyncio.create_task(session.aclose())
    await asyncio.sleep(0)
    closing.cancel()

    with pytest.raises(asyncio.CancelledError):
        await closing
    assert service.is_closed
    assert isinstance(await call, AnswerLost)


async def test_a_cancelled_call_stops() -> None:
    """Its place is free again and nothing more is sent on its account."""
    async with raw_server(held(asyncio.Event())) as server, session_on(server) as session:
        call = asyncio.create_task(session.send(read(), ONE_CALL))
        await until(lambda: bool(server.requests))

        call.cancel()
        with pytest.raises(asyncio.CancelledError):
            await call

        stats = session.stats()
        assert (stats.in_flight, stats.waiting, stats.requests) == (0, 0, 1)
        assert len(server.requests) == 1


async def test_what_a_middleware_awaits_in_vain_is_no_cancellation_of_the_call() -> None:
    """A shared task that is cancelled fails the transmission; a read is sent again."""
    failing = iter([True])

    async def renews(request: Any, handler: Any) -> Any:
        if next(failing, False):
            token = asyncio.create_task(asyncio.sleep(60))
            token.cancel()
            await token
        return await handler(request)

    async with (
        raw_server(always(answer())) as server,
        session_on(server, middlewares=[renews]) as session,
    ):
        response = await session.send(read(), CallOptions())
        failing = iter([True])
        with pytest.raises(AnswerLost, match="CancelledError"):
            await session.send(write(), ONE_CALL)

        assert response.attempts == 2
        assert session.stats().in_flight == 0


@pytest.mark.virtual_time
@pytest.mark.parametrize("ticks", range(6))
async def test_a_call_cancelled_in_line_leaves_the_line(ticks: int) -> None:
    """Whenever the cancellation comes, even with its turn, no place is lost."""
    service = VirtualService(latency=1)
    session = virtual_session(service, connections=1)
    calls = [asyncio.create_task(session.send(read(), ONE_CALL)) for _ in range(3)]
    await asyncio.sleep(1)
    for _ in range(ticks):
        await asyncio.sleep(0)

    calls[1].cancel()
    await asyncio.wait(calls)

    assert calls[0].result().status == calls[2].result().status == 200
    assert (session.stats().in_flight, session.stats().waiting) == (0, 0)
    await session.aclose()


# Loops and processes


def test_one_session_serves_several_loops_in_turn() -> None:
    """A client at module level works in one ``asyncio.run`` after the other, without a leak."""
    port = unused_port()
    session = Session(base_url=f"http://127.0.0.1:{port}", api_key=KEY)

    async def main() -> int:
        async with raw_server(always(answer()), port):
            return (await session.send(read(), ONE_CALL)).status

    assert [asyncio.run(main()) for _ in range(4)] == [200] * 4
    asyncio.run(session.aclose())
    gc.collect()

    assert session.stats().requests == 4


async def test_another_running_loop_is_refused() -> None:
    """A second loop in another thread gets a clear error, not a hang."""
    async with raw_server(always(answer())) as server, session_on(server) as session:
        await session.send(read(), ONE_CALL)
        errors: list[object] = []

        def other() -> None:
            errors.append(asyncio.run(caught(session.send(read(), ONE_CALL))))

        thread = threading.Thread(target=other)
        thread.start()
        await asyncio.to_thread(thread.join)

    assert isinstance(errors[0], ClientClosed)
    assert "loop" in str(errors[0])


@pytest.mark.filterwarnings("ignore:.*multi-threaded, use of fork:DeprecationWarning")
async def test_a_forked_child_is_refused() -> None:
    """Sockets shared between processes mix up answers, so a child gets a clear error."""
    context = multiprocessing.get_context("fork")
    told = context.SimpleQueue()
    async with raw_server(always(answer())) as server, session_on(server) as session:
        await session.send(read(), ONE_CALL)

        def child() -> None:
            told.put(repr(asyncio.run(caught(session.send(read(), ONE_CALL)))))

        process = context.Process(target=child)
        process.start()
        await asyncio.to_thread(process.join)

    error = told.get()
    assert "ClientClosed" in error
    assert "process" in error
    assert len(server.requests) == 1


# Opening


# Connections


@pytest.mark.virtual_time
async def test_every_call_ends_at_its_own_deadline() -> None:
    """Whatever the order in which calls with different time-outs begin, each has its time."""
    session = virtual_session(VirtualService(latency=1000))
    loop = asyncio.get_running_loop()

    async def lasts(timeout: float | None, begins: float) -> float:
        await asyncio.sleep(begins)
        await caught(session.send(read(), CallOptions(timeout=timeout)))
        return loop.time() - begins

    timeouts = (50, 20, 20, None, 7, 90, 20)
    calls = (lasts(timeout, begins) for begins, timeout in enumerate(timeouts))
    took = await asyncio.gather(*calls)

    assert took == [50, 20, 20, 1000, 7, 90, 20]
    assert loop.time() == 1003
    await session.aclose()


async def test_a_session_that_nobody_closed_goes_with_its_last_reference() -> None:
    """The timer of its timeout, an hour perhaps, keeps neither it nor its connections."""
    closed = list[bool]()

    class Watched(VirtualService):
        async def close(self) -> None:
            closed.append(True)

    session = virtual_session(Watched(latency=0))
    await session.send(read(), CallOptions(timeout=3600))

    del session
    gc.collect()
    for _ in range(5):
        await asyncio.sleep(0)

    assert closed
