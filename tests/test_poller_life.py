"""Promises of the polling loop over months: nobody is left behind, and nothing piles up."""

from __future__ import annotations

import asyncio

import pytest

from integration_sdk._coordinator.poller import Poller
from integration_sdk.errors import ClientClosed, PollingStopped
from integration_sdk.models import OutcomeStatus, PushStatus
from tests.push_model import Held, Model, request
from tests.push_support import coordinator, poller

pytestmark = pytest.mark.virtual_time

FOREVER = float("inf")


def held(model: Model, number: int = 0) -> Held:
    return model.add("company", "books", "invoices", {"number": number})


async def told_why(polls: Poller, key: str) -> type[Exception]:
    """Wait for *key*; return the error that the wait ends with."""
    with pytest.raises((ClientClosed, PollingStopped)) as caught:
        await polls.wait("company", key)
    return caught.type


async def test_who_waits_again_while_the_client_closes_is_told_too() -> None:
    """A wait that begins while the last looks are being cancelled ends like those before it."""
    model = Model(lambda _: FOREVER, latency=60.0)
    polls = poller(model)

    async def wait_and_wait_again() -> list[type[Exception]]:
        return [await told_why(polls, held(model).key) for _ in range(3)]

    waits = asyncio.ensure_future(wait_and_wait_again())
    await asyncio.sleep(30)  # a look is under way
    model.answer = lambda _: ClientClosed("the client is closed")
    await polls.aclose()

    assert await asyncio.wait_for(waits, 600) == [ClientClosed] * 3


async def test_a_loop_that_somebody_cancels_leaves_nobody_waiting() -> None:
    """Who waits gets PollingStopped if all tasks are cancelled but its own; a new wait works."""
    model = Model(lambda _: 60.0)
    polls = poller(model)
    key = held(model).key
    wait = asyncio.ensure_future(told_why(polls, key))
    await asyncio.sleep(5)
    (loop,) = (task for task in asyncio.all_tasks() if task.get_name() == "integration_sdk poller")
    loop.cancel()

    assert await asyncio.wait_for(wait, 60) is PollingStopped
    assert (await polls.wait("company", key)).status is PushStatus.SUCCESS


async def test_a_loop_that_has_not_begun_yet_can_be_closed() -> None:
    """A wait that is closed in the turn in which it begins ends, and so does the next."""
    model = Model(lambda _: FOREVER)
    polls = poller(model)
    wait = asyncio.ensure_future(told_why(polls, held(model).key))
    await asyncio.sleep(0)
    await polls.aclose()
    model.answer = lambda _: ClientClosed("the client is closed")

    assert await asyncio.wait_for(wait, 60) is ClientClosed
    assert await asyncio.wait_for(told_why(polls, held(model).key), 60) is ClientClosed


async def test_a_push_that_is_awaited_again_and_again_does_not_grow() -> None:
    """A push of days may be awaited for a second at a time."""
    model = Model(lambda _: 86_400.0)
    async with coordinator(model) as pushes:
        push = await pushes.submit(request())
        for _ in range(100):
            with pytest.raises(TimeoutError):
                await asyncio.wait_for(push, 1.0)

        assert not push._waiters
        assert (await push).status is OutcomeStatus.SUCCESS
