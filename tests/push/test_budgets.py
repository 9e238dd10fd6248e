"""Promises of what pushes may cost: a fault may delay an outcome, it never multiplies requests.

The table of budgets is in `budget_support`, with every fault that it is kept under. The plain run
lets ways, sizes and second faults take turns; ``pytest -m long`` has all of them.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from contextlib import suppress
from itertools import combinations
from math import inf, log
from pathlib import Path

import pytest

from integration_sdk import Client
from integration_sdk.errors import IntegrationError
from tests.support.budget_support import (
    HOUR,
    TROUBLES,
    WAYS,
    Way,
    breaches,
    fullest,
    many,
    one_alone,
    polls_too_close,
    reads,
    wait_for_keys,
)
from tests.support.loops import now
from tests.support.push_support import coordinator, fated, named, requests
from tests.support.virtual_service import Answer, Service, refusal

pytestmark = pytest.mark.virtual_time
every_trouble = pytest.mark.parametrize("trouble", TROUBLES)
SIZES = [(1, 1), (30, 1), (30, 10), (3000, 10), (3000, 300)]
RATE = 40.0
"""Requests a second that the service allows, where a client is told."""


def two_troubles(trouble: str) -> list[tuple[str, str]]:
    """Every two of which *trouble* is the first."""
    return [pair for pair in combinations(TROUBLES, 2) if pair[0] == trouble]


@every_trouble
def test_pushes_keep_their_budgets(trouble: str) -> None:
    """Whatever goes wrong, also two things at once; one push, or tens, however they are awaited."""
    turn = list(TROUBLES).index(trouble)
    way, another = WAYS[turn % 4], WAYS[(turn + 1) % 4]
    size, companies = SIZES[1 + turn // 4 % 2]

    found = breaches([trouble], way, seconds=900.0)
    found += breaches([trouble], another, count=size, companies=companies, seconds=60.0)
    for number, pair in enumerate(two_troubles(trouble)[::12]):
        found += breaches(pair, WAYS[number % 4], seconds=90.0)
    assert not found


@pytest.mark.parametrize("trouble", list(TROUBLES)[::10])
def test_thousands_of_pushes_leave_half_of_the_rate_to_others(trouble: str) -> None:
    """However many are open, polls take half of what the service allows at most."""
    found = breaches([trouble], wait_for_keys, count=3000, companies=300, seconds=6.0, rate=RATE)
    assert not found


@pytest.mark.long
@pytest.mark.parametrize(
    ("count", "companies", "way"),
    [(*size, way) for size in SIZES for way in (WAYS if size[0] < 100 else WAYS[:1])],
)
@every_trouble
def test_pushes_keep_their_budgets_in_two_troubles(
    trouble: str, count: int, companies: int, way: Way
) -> None:
    """Every size, one fault or two at once; one push and tens of them in every way."""
    seconds = {1: HOUR, 30: 120.0, 3000: 12.0}[count]
    found = []
    for some in [(trouble,), *two_troubles(trouble)]:
        rate = RATE if count > 1 else None
        found += breaches(some, way, count=count, companies=companies, seconds=seconds, rate=rate)
    assert not found


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
            async with asyncio.timeout(300 / (count + 9)):
                await asyncio.gather(*(wait_again_and_again(client, one.key) for one in held))

    assert len(service.log) >= 5
    assert not [*polls_too_close(service, told=told)]
    assert not [*many(service)]
    # An answer that ends each wait is asked for anew by the caller, as fast as that allows.
    assert answer or count > 1 or not [*one_alone(service, told=told)]


async def search(
    service: Service, journal: Path, *, companies: int = 1, each: int = 1, seconds: float
) -> None:
    """Push records that are lost, and look on for so many seconds, told of others' pushes."""

    async def tell_of_others() -> None:
        while True:
            await asyncio.sleep(1.0)
            client.notify("somebody-elses")

    async with service.client(retry=None) as client:
        telling = asyncio.create_task(tell_of_others())
        with suppress(TimeoutError):
            async with asyncio.timeout(seconds), client.coordinator(journal=journal) as pushes:
                for number in range(companies * each):
                    await pushes.submit(named(number, companies=companies))
                await asyncio.sleep(seconds)
        telling.cancel()


def assert_searched_within_budget(service: Service, since: float = 0.0) -> None:
    """5 listings in 10 seconds, 12 in the first minute, then with growing pauses.

    The one before the first push is no search.
    """
    for company in {one.company for one in service.log}:
        ours = [one for one in service.log if one.company == company]
        began = since or min((one.at for one in ours if one.kind == "push"), default=inf)
        listed = [one.at - began for one in ours if one.kind == "list" and one.at > began]
        for age, most in [(10, 5), (60, 12), (600, 12 + growing(10)), (3600, 12 + growing(60))]:
            assert sum(at <= age for at in listed) <= most, f"{company} in {age} s: {listed}"


def growing(times_the_age: float) -> float:
    """Return how often an age grows by a twentieth until it has grown so many times."""
    return log(times_the_age) / log(1.05)


SEARCHED = [name for name, one in TROUBLES.items() if one.fault and name != "silent"]


@pytest.mark.parametrize(
    ("trouble", "seconds"),
    [
        *((name, 700.0) for name in SEARCHED[::3]),
        *(pytest.param(name, HOUR, marks=pytest.mark.long) for name in SEARCHED),
    ],
)
async def test_lost_pushes_are_searched_for_within_budget(
    trouble: str, seconds: float, tmp_path: Path
) -> None:
    """Whatever the lists answer, and however many notifications of other pushes there are."""
    make = TROUBLES[trouble].fault
    assert make
    service, journal = fated(ever="swallowed", faults=[make()]), tmp_path / "pushes.db"
    if SEARCHED.index(trouble) % 2:
        await search(service, journal, companies=10, each=3, seconds=seconds / 20)
    else:
        await search(service, journal, seconds=seconds)

    assert service.count("list")
    assert_searched_within_budget(service)


async def test_lost_pushes_of_an_earlier_run_are_searched_for_within_budget(tmp_path: Path) -> None:
    """A program that starts again and again does not multiply the searches of one run."""
    service, journal = fated(ever="swallowed"), tmp_path / "pushes.db"
    await search(service, journal, each=3, seconds=1.0)
    reopened = now()
    await search(service, journal, each=0, seconds=HOUR)

    assert service.times("list")[-1] > reopened + 60
    assert_searched_within_budget(service, reopened)


@pytest.mark.parametrize("status", [400, 401, 402, 429, 500, 503])
async def test_a_push_that_is_refused_is_sent_as_often_as_its_retries_allow(status: int) -> None:
    """Once each; for 429 and 503 a few times, behind the gate; and none after a 401."""
    service = fated(ever=refusal(status))
    async with coordinator(service) as pushes:
        with suppress(TimeoutError, IntegrationError):
            async with asyncio.timeout(600.0):
                async for _ in pushes.run(requests(150, companies=3)):
                    pass

    sent = Counter((one.company, one.body) for one in service.log if one.kind == "push")
    assert sent
    assert max(sent.values()) <= (5 if status in (429, 503) else 1)
    assert status != 401 or sent.total() <= 130
    assert status not in (429, 503) or fullest(service.times("push"), 10.0) <= 40
