"""Promises of the polling loop over months: nobody is left behind, and nothing piles up."""

from __future__ import annotations

import asyncio
import gc

import pytest

from integration_sdk import Client
from integration_sdk.errors import (
    AnswerLost,
    ClientClosed,
    PushError,
    WaitExpired,
)
from integration_sdk.models import OutcomeStatus
from tests.support.push_support import Connect, coordinator, request, swallowed
from tests.support.virtual_service import Answer, Held, Service

pytestmark = pytest.mark.virtual_time

FOREVER = float("inf")


def held(service: Service, number: int = 0) -> Held:
    return service.add("company", "books", "invoices", {"number": number})


async def told_why(client: Client, key: str) -> type[Exception]:
    """Wait for *key*; return the error that the wait ends with."""
    with pytest.raises((ClientClosed, PushError)) as caught:
        await client.wait(key, company_id="company")
    return caught.type


async def test_who_waits_again_while_the_client_closes_is_told_too(connect: Connect) -> None:
    """A wait that begins while the last polls are being cancelled ends like those before it."""
    service = Service(lambda _: FOREVER, latency=60.0)
    client = await connect(service)

    async def wait_and_wait_again() -> list[type[Exception]]:
        return [await told_why(client, held(service).key) for _ in range(3)]

    waits = asyncio.ensure_future(wait_and_wait_again())
    await asyncio.sleep(30)  # a poll is under way
    await client.aclose()

    assert await asyncio.wait_for(waits, 600) == [ClientClosed] * 3


def cancel_loop() -> None:
    (loop,) = (task for task in asyncio.all_tasks() if task.get_name() == "integration_sdk poller")
    loop.cancel()


async def test_who_is_cancelled_with_the_loop_leaves_no_loop_behind(connect: Connect) -> None:
    """A shutdown that cancels all tasks is over when these have ended."""
    service = Service(lambda _: FOREVER)
    client = await connect(service)
    waits = [
        asyncio.ensure_future(client.wait(held(service).key, company_id="company"))
        for _ in range(3)
    ]
    await asyncio.sleep(30)
    tasks = asyncio.all_tasks() - {asyncio.current_task()}
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)

    assert all(wait.cancelled() for wait in waits)
    assert asyncio.all_tasks() == {asyncio.current_task()}


async def test_a_loop_that_has_not_begun_yet_can_be_closed(connect: Connect) -> None:
    """A wait that is closed in the turn in which it begins ends, and so does the next."""
    service = Service(lambda _: FOREVER)
    client = await connect(service)
    wait = asyncio.ensure_future(told_why(client, held(service).key))
    await asyncio.sleep(0)
    await client.aclose()

    assert await asyncio.wait_for(wait, 60) is ClientClosed
    assert await asyncio.wait_for(told_why(client, held(service).key), 60) is ClientClosed


async def test_an_outage_leaves_nothing_behind(connect: Connect) -> None:
    """The errors of polls are forgotten with the waits that have ended meanwhile."""

    def errors() -> int:
        gc.collect()
        return sum(isinstance(one, AnswerLost) for one in gc.get_objects())

    before = errors()
    service = Service(answer=lambda _: Answer(seconds=8.0, cut=0))
    client = await connect(service)
    for number in range(50):
        with pytest.raises(WaitExpired):
            await client.wait(held(service, number).key, company_id="company", timeout=10)
    await asyncio.sleep(60)

    assert service.count() >= 50
    assert errors() == before


def futures() -> int:
    gc.collect()
    return sum(isinstance(one, asyncio.Future) for one in gc.get_objects())


async def test_a_push_that_is_awaited_again_and_again_does_not_grow() -> None:
    """A push of days may be awaited for a second at a time."""
    service = Service(lambda _: 86_400.0)
    async with coordinator(service) as pushes:
        push = await pushes.submit(request())
        before = futures()
        for _ in range(100):
            with pytest.raises(TimeoutError):
                await asyncio.wait_for(push, 1.0)

        assert futures() < before + 10
        assert (await push).status is OutcomeStatus.SUCCESS


async def test_two_coordinators_may_follow_one_push(connect: Connect) -> None:
    """Who binds a push that another coordinator of the client follows takes it from nobody."""
    service = Service(lambda _: 60.0)
    client = await connect(service)
    one, other = client.coordinator(), client.coordinator(patience=1.0)
    async with one as first, other as second:
        followed = await first.submit(request(0))
        service.faults = [swallowed]
        doubted = await second.submit(request(0))
        assert (await doubted).status is OutcomeStatus.IN_DOUBT
        bound = await second.decide(str(doubted.intent), bind=str(followed.key))

        assert bound is not None
        assert (await asyncio.wait_for(bound, 600)).status is OutcomeStatus.SUCCESS
        assert (await asyncio.wait_for(followed, 600)).status is OutcomeStatus.SUCCESS
