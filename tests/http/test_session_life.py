"""Opening, closing, cancelling, and which loop and process a session belongs to."""

from __future__ import annotations

import asyncio
import gc
import multiprocessing
from typing import Any

import pytest
from attrs import define

from integration_sdk._http import CallOptions
from integration_sdk.errors import AnswerLost, ClientClosed
from tests.support.session_support import (
    ONE_CALL,
    VirtualService,
    always,
    answer,
    held,
    make_session,
    raw_server,
    read,
    reply_of,
    session_on,
    until,
    virtual_session,
    write,
)

# Closing


async def test_closing_ends_all_calls_at_once() -> None:
    """Whose request may have left is told so; others, and later ones, get `ClientClosed`."""
    unused = make_session(base_url="http://localhost")
    await unused.aclose()
    async with raw_server(held()) as server:
        session = make_session(base_url=server.base_url, connections=1)
        calls = [asyncio.create_task(reply_of(session, write())) for _ in range(3)]
        await until(lambda: session.stats().waiting == 2 and bool(server.requests))

        await session.aclose()
        await session.aclose()

        ends = [await call for call in calls] + [await reply_of(session, read())]
        assert [type(end) for end in ends] == [AnswerLost, ClientClosed, ClientClosed, ClientClosed]
        assert all("closed" in str(end) for end in ends)
        assert len(server.requests) == 1


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
    call = asyncio.create_task(reply_of(session, read()))
    await asyncio.sleep(1)

    closing = asyncio.create_task(session.aclose())
    await asyncio.sleep(0)
    closing.cancel()

    with pytest.raises(asyncio.CancelledError):
        await closing
    assert service.is_closed
    assert isinstance(await call, AnswerLost)


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
    stats = session.stats()
    assert (stats.in_flight, stats.waiting, stats.requests) == (0, 0, 3)
    await session.aclose()


# Loops and processes


async def test_another_running_loop_is_refused() -> None:
    """A second loop in another thread gets a clear error, not a hang."""
    async with raw_server(always(answer())) as server, session_on(server) as session:
        await session.send(read(), ONE_CALL)
        error = await asyncio.to_thread(lambda: asyncio.run(reply_of(session, read())))

    assert isinstance(error, ClientClosed)
    assert "loop" in str(error)


@pytest.mark.filterwarnings("ignore:.*multi-threaded, use of fork:DeprecationWarning")
async def test_a_forked_child_is_refused() -> None:
    """Sockets shared between processes mix up answers, so a child gets a clear error."""
    context = multiprocessing.get_context("fork")
    told = context.SimpleQueue()
    async with raw_server(always(answer())) as server, session_on(server) as session:
        await session.send(read(), ONE_CALL)

        def child() -> None:
            told.put(repr(asyncio.run(reply_of(session, read()))))

        process = context.Process(target=child)
        process.start()
        await asyncio.to_thread(process.join)

    error = told.get()
    assert "ClientClosed" in error
    assert "process" in error
    assert len(server.requests) == 1


@pytest.mark.virtual_time
async def test_every_call_ends_at_its_own_deadline() -> None:
    """Whatever the order in which calls with different time-outs begin, each has its time."""
    session = virtual_session(VirtualService(latency=1000))
    loop = asyncio.get_running_loop()

    async def lasts(timeout: float | None, begins: float) -> float:
        await asyncio.sleep(begins)
        await reply_of(session, read(), CallOptions(timeout=timeout))
        return loop.time() - begins

    timeouts = (50, 20, 20, None, 7, 90, 20)
    calls = (lasts(timeout, begins) for begins, timeout in enumerate(timeouts))
    took = await asyncio.gather(*calls)

    assert took == [50, 20, 20, 1000, 7, 90, 20]
    assert loop.time() == 1003
    await session.aclose()


async def test_a_session_that_nobody_closed_goes_with_its_last_reference() -> None:
    """The timer of its timeout, an hour perhaps, keeps neither it nor its connections."""
    service = ToBeClosed(latency=0)
    session = virtual_session(service)
    await session.send(read(), CallOptions(timeout=3600))

    del session
    gc.collect()
    for _ in range(5):
        await asyncio.sleep(0)

    assert service.is_closed
