"""Promises of polling beside notifications: fewer polls where they come, no loss where not."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from integration_sdk.testing import run_virtual
from tests.support.budget_support import slow
from tests.support.virtual_service import Answer, Asked, Proceed, Service, refusal


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


def told_of(ends: list[float], late: float = 0.01) -> list[tuple[float, int]]:
    return [(end + late, number) for number, end in enumerate(ends)]


@settings(max_examples=30)
@given(
    st.lists(st.floats(0.1, 20_000), min_size=1, max_size=20),
    st.sets(st.integers(0, 19)),
    st.lists(st.tuples(st.floats(0, 20_000), st.integers(0, 19)), max_size=20),
)
def test_a_push_whose_notification_is_lost_is_found(
    ends: list[float], lost: set[int], forged: list[tuple[float, int]]
) -> None:
    """Told of some ends and of things that are not so, every end is found; the others in a second.

    A notification that is not so may just have brought a poll forward.
    """
    true = [notice for notice in told_of(ends) if notice[1] not in lost]
    false = [(at, number) for at, number in forged if number < len(ends)]

    at = run_virtual(found(Service(), ends, true + false))

    for number, end in enumerate(ends):
        assert at[number] <= (2 * end + 120 if number in lost else end + 1.2)


def test_a_push_that_is_notified_costs_a_poll_or_two() -> None:
    """Where ends are notified, a push of a minute or two costs a third of its polls."""
    polls = []
    for notified in (True, False):
        services = [Service() for _ in range(12)]
        for number, service in enumerate(services):
            ends = [60.0 + 5 * number]
            told = told_of(ends) if notified else []
            run_virtual(found(service, ends, told, notified=notified))
        polls.append(sum(len(service.log) for service in services))

    assert polls[0] <= 0.4 * polls[1]


@pytest.mark.virtual_time
async def test_a_notification_during_a_poll_is_not_lost() -> None:
    """One that comes while its push is read leads to another poll, a second later."""
    (at,) = await found(Service(faults=[slow(3.0)]), [100.0], [(98.5, 0), (100.01, 0)])

    assert at == pytest.approx(98.5 + 3.0 + 1.0 + 3.0, abs=0.1)


@pytest.mark.virtual_time
async def test_a_poll_that_fails_after_a_notification_is_repeated() -> None:
    """What was notified is polled again soon after a failure, however long the rest may wait."""
    failures = iter([refusal(500)])

    def fail(asked: Asked, proceed: Proceed) -> Answer:
        return next(failures, None) or proceed() if asked.at > 90 else proceed()

    (at,) = await found(Service(faults=[fail]), [100.0], told_of([100.0]))

    assert at < 103
