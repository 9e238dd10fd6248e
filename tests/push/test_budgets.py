"""Promises of what a push may cost: a fault may delay its outcome, it never multiplies requests.

The table of budgets is in `budget_support`, with every fault that it is kept under.
"""

from __future__ import annotations

import asyncio
from contextlib import suppress
from itertools import combinations, count, pairwise
from math import inf

import pytest

from integration_sdk import Client
from integration_sdk.errors import IntegrationError, NotFound, WaitExpired
from tests.support.budget_support import (
    TROUBLES,
    WAYS,
    Way,
    breaches,
    many,
    one_alone,
    polls_too_close,
    reads,
    wait_for_keys,
)
from tests.support.virtual_service import Answer, Service, refusal

ways = pytest.mark.parametrize("way", WAYS)
every_trouble = pytest.mark.parametrize("trouble", TROUBLES)


def two_troubles(trouble: str) -> list[tuple[str, str]]:
    """Every two of which *trouble* is the first."""
    return [pair for pair in combinations(TROUBLES, 2) if pair[0] == trouble]


# One push


@ways
@every_trouble
def test_one_push_keeps_its_budget(trouble: str, way: Way) -> None:
    """Whatever goes wrong, and however its outcome is awaited."""
    assert not breaches([trouble], way)


@every_trouble
def test_one_push_keeps_its_budget_in_two_troubles(trouble: str) -> None:
    """Two faults at once multiply nothing either; the ways take turns. The long run has all."""
    found = []
    for number, pair in enumerate(two_troubles(trouble)[::3]):
        found += breaches(pair, WAYS[number % len(WAYS)], seconds=90.0)
    assert not found


@pytest.mark.long
@ways
@every_trouble
def test_one_push_keeps_its_budget_in_two_troubles_every_way(trouble: str, way: Way) -> None:
    """Two faults at once, every way, for an hour."""
    assert not [text for pair in two_troubles(trouble) for text in breaches(pair, way)]


# Many pushes


SIZES = [(30, 1), (30, 10), (3000, 10), (3000, 300)]
RATE = 40.0
"""Requests a second that the service allows, where a client is told."""


@every_trouble
def test_pushes_keep_their_companies_budgets(trouble: str) -> None:
    """Three requests a second for each company, whatever goes wrong; ways and sizes take turns."""
    turn = list(TROUBLES).index(trouble)
    count, companies = SIZES[turn // len(WAYS) % 2]
    way = WAYS[turn % len(WAYS)]
    assert not breaches([trouble], way, count=count, companies=companies, seconds=120.0)


@pytest.mark.parametrize("trouble", list(TROUBLES)[::6])  # the long run has all
def test_thousands_of_pushes_leave_half_of_the_rate_to_others(trouble: str) -> None:
    """However many are open, polls take half of what the service allows at most."""
    found = breaches([trouble], wait_for_keys, count=3000, companies=300, seconds=10.0, rate=RATE)
    assert not found


@pytest.mark.long
@pytest.mark.parametrize(
    ("count", "companies", "way"),
    [(*size, way) for size in SIZES for way in (WAYS if size[0] < 100 else [wait_for_keys])],
)
@every_trouble
def test_pushes_keep_their_budgets_in_two_troubles(
    trouble: str, count: int, companies: int, way: Way
) -> None:
    """Every size and every two faults; tens of pushes in every way."""
    seconds = 120.0 if count < 100 else 12.0
    found = []
    for pair in two_troubles(trouble):
        found += breaches(pair, way, count=count, companies=companies, seconds=seconds, rate=RATE)
    assert not found


# Whoever asks


@pytest.mark.virtual_time
@pytest.mark.parametrize("count", [1, 30])
@pytest.mark.parametrize("told", [False, True])
@pytest.mark.parametrize("answer", [None, refusal(403), refusal(404), refusal(500)])
async def test_waits_that_follow_each_other_are_one_poll_after_another(
    count: int, told: bool, answer: Answer | None
) -> None:
    """A caller who waits anew, over and over, does not poll as often, whatever ends each wait."""
    service = Service(lambda _: inf, [reads(lambda asked: answer, "get")])
    held = [service.add() for _ in range(count)]

    async def wait_again_and_again(client: Client, key: str) -> None:
        while True:
            with suppress(IntegrationError):
                await client.wait(key, company_id="c-0", timeout=0.1)
            if told:
                client.notify(key)

    async with service.client() as client:
        with suppress(TimeoutError):
            async with asyncio.timeout(500 / (count + 9)):
                await asyncio.gather(*(wait_again_and_again(client, one.key) for one in held))

    assert len(service.log) >= 5
    assert not [*polls_too_close(service, told=told)]
    assert not [*many(service)]
    # An answer that ends each wait is asked for anew by the caller, as fast as that allows.
    assert answer or count > 1 or not [*one_alone(service, told=told)]


@pytest.mark.virtual_time
async def test_waits_for_one_unknown_push_after_another_are_three_a_second() -> None:
    """A company's budget outlives its open pushes, also if each of them is notified at once."""
    service = Service(lambda _: inf)

    async def wait(client: Client, key: str) -> None:
        waiting = asyncio.create_task(client.wait(key, company_id="c-0"))
        await asyncio.sleep(0)
        client.notify(key)
        with suppress(NotFound):
            await waiting

    async with service.client() as client:
        with suppress(TimeoutError):
            async with asyncio.timeout(60):
                for number in count():
                    await wait(client, f"unknown-{number}")

    assert len(service.log) > 100
    assert not [*many(service)]


@pytest.mark.virtual_time
async def test_a_flood_of_notifications_brings_a_poll_forward_once_a_second() -> None:
    """Each might be the one that counts, and none is."""
    service = Service(lambda _: inf)
    held = service.add()

    async def notify(client: Client) -> None:
        while True:
            await asyncio.sleep(0.01)
            client.notify(held.key)

    async with service.client() as client:
        flood = asyncio.create_task(notify(client))
        with suppress(WaitExpired):
            await client.wait(held.key, company_id="c-0", timeout=100.0)
        flood.cancel()

    polls = [one.at for one in service.log]
    assert 90 <= len(polls) <= 110
    assert min(later - earlier for earlier, later in pairwise(polls)) >= 0.2
