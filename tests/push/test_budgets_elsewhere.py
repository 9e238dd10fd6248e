"""Promises of what else may cost under faults: searches, options, pages, gates, refused pushes.

`test_budgets` has those of polling.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from contextlib import suppress
from math import inf, log
from pathlib import Path

import pytest

from integration_sdk import Client, PushRequest
from integration_sdk.errors import IntegrationError, JournalError
from tests.support.budget_support import (
    HOUR,
    TROUBLES,
    WAYS,
    Run,
    Way,
    carry_out,
    fullest,
    one_alone,
    reads,
)
from tests.support.push_support import swallowed
from tests.support.virtual_service import Service, refusal

pytestmark = pytest.mark.virtual_time


def requests(count: int, companies: int = 1) -> list[PushRequest]:
    return [
        PushRequest(f"c-{n % companies}", "books", "invoices", {"n": n}, reference=f"r-{n}")
        for n in range(count)
    ]


def times(service: Service, kind: str, company: str = "") -> list[float]:
    asked = (one for one in service.log if one.kind == kind)
    return [one.at for one in asked if company in ("", one.company)]


# Searches for lost pushes


async def search(
    service: Service, count: int, companies: int, journal: Path, seconds: float
) -> None:
    """Push *count* records that are lost, and look on for so many seconds."""
    async with service.client(retry=None) as client:
        telling = asyncio.create_task(tell_of_others(client))
        with suppress(TimeoutError):
            async with asyncio.timeout(seconds), client.coordinator(journal=journal) as pushes:
                for request in requests(count, companies):
                    await pushes.submit(request)
                await asyncio.sleep(seconds)
        telling.cancel()


async def tell_of_others(client: Client) -> None:
    """Notify of pushes that nobody knows, each of which might be a lost one."""
    while True:
        await asyncio.sleep(1.0)
        client.notify("somebody-elses")


def assert_searched_within_budget(service: Service, since: float = 0.0) -> None:
    """5 listings in 10 seconds, 12 in the first minute, then with growing pauses.

    The one before the first push is no search.
    """
    for company in {one.company for one in service.log}:
        began = since or min(times(service, "push", company), default=inf)
        listed = [at - began for at in times(service, "list", company) if at > began]
        for age, most in [(10, 5), (60, 12), (600, 12 + growing(10)), (3600, 12 + growing(60))]:
            assert sum(at <= age for at in listed) <= most, f"{company} in {age} s: {listed}"


def growing(times_the_age: float) -> float:
    """Return how often an age grows by a twentieth until it has grown so many times."""
    return log(times_the_age) / log(1.05)


SEARCHED = [name for name, one in TROUBLES.items() if one.fault and name != "silent"]


@pytest.mark.parametrize("trouble", SEARCHED)
async def test_lost_pushes_are_searched_for_within_budget(trouble: str, tmp_path: Path) -> None:
    """Whatever the lists answer, and however many notifications of other pushes there are."""
    count, companies = [(1, 1), (30, 10)][SEARCHED.index(trouble) % 2]  # they take turns
    make = TROUBLES[trouble].fault
    assert make
    service = Service(faults=[swallowed, make()])

    await search(service, count, companies, tmp_path / "pushes.db", HOUR / count)

    assert times(service, "list")
    assert_searched_within_budget(service)


async def test_lost_pushes_of_an_earlier_run_are_searched_for_within_budget(tmp_path: Path) -> None:
    """A program that starts again and again does not multiply the searches of one run."""
    service, journal = Service(faults=[swallowed]), tmp_path / "pushes.db"
    await search(service, 3, 1, journal, 1.0)
    reopened = asyncio.get_running_loop().time()

    async with service.client(retry=None) as client:
        with suppress(TimeoutError):
            async with asyncio.timeout(HOUR), client.coordinator(journal=journal) as pushes:
                assert len(pushes.recovered) == 3
                await asyncio.sleep(HOUR)

    assert_searched_within_budget(service, reopened)


async def test_finding_asks_nothing(tmp_path: Path) -> None:
    """How a push stands is read from the journal."""
    service = Service()
    async with (
        service.client() as client,
        client.coordinator(journal=tmp_path / "pushes.db", leave="detach") as pushes,
    ):
        await pushes.submit(requests(1)[0])
        before = len(service.log)
        for _ in range(1000):
            await pushes.find("r-0")
            await pushes.find("unknown")

    assert len(service.log) == before


# Options


@pytest.mark.parametrize("status", [401, 404, 429, 500, 503])
async def test_options_that_cannot_be_had_cost_a_call_for_each_push(status: int) -> None:
    """At most: each call may be repeated as often as the client's retries allow."""
    service = Service(lambda _: 0.1, [reads(lambda _: refusal(status), "options")])
    async with service.client() as client, client.coordinator(check="options") as pushes:
        with suppress(IntegrationError):
            async for _ in pushes.run(requests(100, 3)):
                pass

    asked = times(service, "options")
    assert 3 <= len(asked) <= 300
    assert status not in (429, 503) or fullest(asked, 10.0) <= 15


# Pages, gates and a crowd


async def read_all(client: Client) -> None:
    with suppress(IntegrationError):
        async for _ in client.company("c-0").data("invoices").list():
            pass


@pytest.mark.parametrize("readers", [1, 10])
@pytest.mark.parametrize("status", [404, 409, 429, 500, 502, 503])
async def test_a_page_that_is_refused_for_an_hour_is_no_storm(status: int, readers: int) -> None:
    """Repetitions are few for each reader at first, and then for all of them together.

    A page that is refused with 429 or 503 is asked for once in two seconds on average, by all
    together, as long as its call may last.
    """
    service = Service(faults=[reads(lambda _: refusal(status), "other")])
    async with service.client(timeout=HOUR) as client:
        await asyncio.gather(*(read_all(client) for _ in range(readers)))

    asked = times(service, "other")
    assert sum(at <= 10 for at in asked) <= 10 * readers + 10
    later = [at for at in asked if at > 10]
    assert fullest(later, 60.0) <= 40
    assert len(later) <= 0.55 * HOUR


@pytest.mark.parametrize("status", [429, 503])
@pytest.mark.parametrize("told", [{}, {"Retry_After": "0"}, {"Retry_After": "1"}])
async def test_a_closed_gate_is_probed_by_one_for_all(status: int, told: dict[str, str]) -> None:
    """A thousand callers cost no more than one, and a probe costs one request."""
    service = Service(faults=[reads(lambda _: refusal(status, **told), "other")])
    async with service.client(timeout=60.0) as client:
        calls = (client.request("GET", "/companies") for _ in range(1000))
        await asyncio.gather(*calls, return_exceptions=True)

    asked = times(service, "other")
    crowd = sum(at < 0.01 for at in asked)
    assert crowd <= 20  # they were under way when the first answer came
    assert len(asked) - crowd <= 40


# Pushes that are refused


@pytest.mark.parametrize("status", [400, 401, 402, 403, 404, 429, 500, 503])
async def test_a_push_that_is_refused_is_sent_as_often_as_its_retries_allow(status: int) -> None:
    """Once each; for 429 and 503 a few times, behind the gate; and none after a 401."""
    service = Service(faults=[reads(lambda _: refusal(status), "push")])
    async with service.client() as client, client.coordinator() as pushes:
        with suppress(TimeoutError, IntegrationError):
            async with asyncio.timeout(600.0):
                async for _ in pushes.run(requests(300, 3)):
                    pass

    sent = Counter(one.body for one in service.log if one.kind == "push")
    assert sent
    assert max(sent.values()) <= (5 if status in (429, 503) else 1)
    assert status != 401 or sent.total() <= 200
    assert status not in (429, 503) or fullest(times(service, "push"), 10.0) <= 40


# A limit that is kept elsewhere


class Away:
    """A shared limit whose store cannot be reached, from some time on."""

    def __init__(self, since: float) -> None:
        self.since = since
        self.asked: list[float] = []

    async def acquire(self) -> None:
        now = asyncio.get_running_loop().time()
        self.asked.append(now)
        if now >= self.since:
            raise JournalError("the store is away")

    def paused(self, seconds: float) -> None:
        """Nobody else is there to hear it."""


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("since", [0.0, 3.0])
async def test_a_rate_whose_store_is_away_is_not_asked_again_and_again(
    way: Way, since: float, tmp_path: Path
) -> None:
    """What it refuses is not sent, and not tried any more often than what is sent."""
    rate, service = Away(since), Service()
    run = Run(service, 1, 1, tmp_path / "pushes.db", {"rate": rate})
    await carry_out(run, way, [TROUBLES["Pending"]], 600.0)

    assert fullest(rate.asked, 10.0) <= 15
    assert not [*one_alone(service, told=False)]
