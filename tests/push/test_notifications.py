"""Promises about notifications: an end is seen when it is told, and nothing but that changes."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable
from typing import Any, cast

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from integration_sdk import errors
from integration_sdk.testing import run_virtual
from tests.support.budget_support import answering, reads
from tests.support.push_support import Connect, request, two_workers
from tests.support.virtual_service import Service, refusal

pytestmark = pytest.mark.virtual_time


async def found(
    service: Service, ends: list[float], told: Iterable[tuple[float, int]], *, notified: bool = True
) -> list[float]:
    """Return when a client sees each push end, of which it is *told* at times, by number."""
    service.takes = lambda record: ends[record["number"]]
    keys = [service.add(record={"number": number}).key for number in range(len(ends))]
    loop, at = asyncio.get_running_loop(), [0.0] * len(ends)

    async with service.client(notified=notified, retry=None) as client:

        async def wait(number: int) -> None:
            await client.wait(keys[number], company_id="c-0")
            at[number] = loop.time()

        for when, number in told:
            loop.call_later(when, client.notify, keys[number])
        await asyncio.gather(*(wait(number) for number in range(len(ends))))
    return at


def told_of(ends: list[float]) -> list[tuple[float, int]]:
    return [(end + 0.01, number) for number, end in enumerate(ends)]


@settings(max_examples=20)
@given(
    st.lists(st.floats(0.1, 5_000), min_size=1, max_size=8),
    st.sets(st.integers(0, 7)),
    st.lists(st.tuples(st.floats(0, 5_000), st.integers(0, 7)), max_size=8),
)
def test_a_push_whose_notification_is_lost_is_found(
    ends: list[float], lost: set[int], forged: list[tuple[float, int]]
) -> None:
    """Told of some ends and of what is not so, every end is found; those that were in a second."""
    true = [notice for notice in told_of(ends) if notice[1] not in lost]
    false = [(at, number) for at, number in forged if number < len(ends)]

    at = run_virtual(found(Service(), ends, true + false))

    for number, end in enumerate(ends):
        # A notification that is not so may just have brought a poll forward.
        assert at[number] <= (2 * end + 120 if number in lost else end + 1.2)


def test_what_is_notified_does_not_wait_for_the_others_turns() -> None:
    """Though they are more than three requests a second can read."""
    ends = [90.0] * 39 + [60.0]
    no_list = reads(lambda _: refusal(405), "list")
    *_, at = run_virtual(found(Service(faults=[no_list]), ends, [(60.01, 39)], notified=False))

    assert at <= 61.2


def test_a_push_that_is_notified_costs_a_poll_or_two() -> None:
    """Where ends are notified, a push of a minute or two costs a third of its polls."""
    polls = []
    for notified in (True, False):
        services = [Service() for _ in range(6)]
        for number, service in enumerate(services):
            ends = [60.0 + 10 * number]
            told = told_of(ends) if notified else []
            run_virtual(found(service, ends, told, notified=notified))
        polls.append(sum(len(service.log) for service in services))

    assert polls[0] <= 0.4 * polls[1]


async def test_a_notification_during_a_poll_is_not_lost() -> None:
    """One that comes while its push is read leads to another poll, a second later."""
    (at,) = await found(Service(faults=[answering(seconds=3.0)]), [100.0], [(98.5, 0), (100.01, 0)])

    assert at == pytest.approx(98.5 + 3.0 + 1.0 + 3.0, abs=0.1)


async def test_a_notification_reaches_the_worker_that_polls() -> None:
    """Whichever worker of one database it comes to."""
    service, loop = Service(lambda _: 100.0), asyncio.get_running_loop()
    async with two_workers(service) as (pushes, others, *_):
        push = await pushes.submit(request())
        await asyncio.sleep(0.1)
        (held,) = service.by_key.values()
        loop.call_at(held.ends + 0.01, others.notify, held.key)
        await push

    assert loop.time() < held.ends + 1.2


async def test_another_thread_may_notify(connect: Connect) -> None:
    """Such as the consumer of a queue: the push is polled by the client's own loop, once more."""
    client = await connect(service := Service(lambda _: 3600.0))
    key = service.add().key
    waiting = asyncio.create_task(client.wait(key, company_id="c-0"))
    await asyncio.sleep(600)
    polled = service.count()
    await asyncio.to_thread(client.notify, key)
    await asyncio.sleep(1)

    assert service.count() == polled + 1
    assert (await waiting).status == "Success"


async def test_a_notification_of_no_key_fails_where_it_is_given() -> None:
    """Not later, in the loop, where no caller would hear of it."""
    async with Service(lambda _: 1.0).client() as client, client.coordinator() as pushes:
        for notify in (client.notify, pushes.notify):
            with pytest.raises(errors.ConfigurationError, match="key must be a str, not None"):
                notify(cast("Any", None))
