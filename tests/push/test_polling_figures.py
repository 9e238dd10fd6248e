"""What polling costs and how late it is, in virtual time: counts, not seconds.

Workloads of different kinds; many workers; pushes that never end, beside others; and services whose
reads lag behind, where what is not shown yet will be shown soon.
"""

from __future__ import annotations

import asyncio
import math
import random
from contextlib import AsyncExitStack, suppress
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from benchmarks.polling import Measured, Takes, jain, measure
from integration_sdk import Coordinator
from integration_sdk.testing import run_virtual
from tests.support.budget_support import reads, small_pages, unseen
from tests.support.loops import now
from tests.support.push_support import Connect, Journal, coordinator, pushed, request, requests
from tests.support.virtual_service import Fault, Service, refusal

pytestmark = pytest.mark.virtual_time
NO_LIST = reads(lambda _: refusal(405), "list")


def test_slow_pushes_of_many_companies_cost_half_a_request_each() -> None:
    """100 pushes a company that take about 90 s: at most 1.5 requests each, in all."""
    seen = measure(500, 5, lambda chance: chance.gauss(90, 10), max_open=1000)

    assert seen.polls <= 0.5
    assert seen.share(0.95) <= 0.10
    assert seen.service.count("push") == 500


def test_fast_pushes_are_seen_at_once_for_a_twentieth_request_each() -> None:
    """1,000 pushes a company that take about 2 s: at most 1.08 requests each, p50 <= 0.3 s."""
    seen = measure(1000, 1, lambda chance: chance.uniform(1, 3), max_open=1000)

    assert seen.polls <= 0.08
    assert seen.delay(0.5) <= 0.3


def test_a_lone_push_of_a_minute_or_two_is_known_within_a_tenth_of_its_age() -> None:
    """Alone, with nothing learned: p95 of the delay <= 10% of age, in 33 polls and a listing."""

    def alone(age: float) -> Measured:
        return measure(1, 1, lambda _: age)

    runs = [alone(60 + 1.5 * number) for number in range(40)]
    shares = sorted(run.shares[0] for run in runs)

    assert shares[37] <= 0.10
    assert sum(run.polls for run in runs) / 40 <= 33 + 1


def test_companies_are_served_alike() -> None:
    """Jain's index over the companies' mean delays is at least 0.95, big ones beside small."""
    seen = measure(480, 12, lambda chance: chance.uniform(2, 10), rate=36)
    means = [sum(delays) / len(delays) for delays in seen.by_company.values()]

    assert len(means) == 12
    assert jain(means) >= 0.95


@pytest.mark.parametrize("count", [1, 2, 5, 40])
def test_the_choice_of_list_or_single_is_never_much_worse_than_the_better(count: int) -> None:
    """Choosing costs at most 1.2 times what the better of list and single would."""
    takes: Takes = lambda chance: chance.uniform(5, 15)
    chosen, singly = measure(count, 1, takes), measure(count, 1, takes, fault=NO_LIST)

    assert chosen.polls <= 1.2 * singly.polls
    assert count < 40 or chosen.polls < singly.polls / 4


def test_what_a_lane_usually_takes_saves_the_first_looks() -> None:
    """Of pushes that come one after the other and take as long, later ones cost half as much."""
    seen = measure(10, 1, lambda _: 60.0, arrivals=[(100.0 * number, 0) for number in range(10)])
    polls = [asked.at for asked in seen.service.log if asked.kind == "get"]
    first, last = (sum(at <= poll < at + 100 for poll in polls) for at in (0.0, 900.0))

    assert last <= first / 2


async def polled(count: int, companies: int, seconds: float, **options: Any) -> Service:
    """Wait for so many pushes for a while, and return the service that was asked."""
    service = Service(lambda _: math.inf, **options)
    held = [service.add(f"c-{number % companies}") for number in range(count)]
    async with service.client() as client:
        with suppress(TimeoutError):
            async with asyncio.timeout(seconds):
                await asyncio.gather(
                    *(client.wait(one.key, company_id=one.company) for one in held)
                )
    return service


@pytest.mark.parametrize("count", [1, 2, 3, 4])
async def test_from_three_open_pushes_on_a_list_is_read(count: int) -> None:
    """One or two are read singly."""
    service = await polled(count, 1, 60.0)
    assert bool(service.count("list")) is (count >= 3)
    assert bool(service.count("get")) is (count < 3)


async def test_of_a_list_three_pages_are_read() -> None:
    """What these lack is read singly."""
    service = await polled(20, 1, 5.0, faults=[small_pages])
    pages = {asked.params["page"] for asked in service.log if asked.kind == "list"}
    assert pages == {"1", "2", "3"}
    assert service.count("get")


async def test_sixteen_companies_are_polled_at_once(connect: Connect) -> None:
    """However many are due, and however slow the service is."""
    at_once = set[int]()
    note = reads(lambda _: at_once.add(service.in_flight), "get")
    client = await connect(service := Service(lambda _: 30.0, [note], latency=3.0))
    held = [service.add(f"c-{number}") for number in range(40)]
    await asyncio.gather(*(client.wait(one.key, company_id=one.company) for one in held))

    assert max(at_once) == 16


@pytest.mark.long
async def test_three_thousand_are_not_listed_more_often_than_a_thousand() -> None:
    """Such a list is long, and its end is soon seen anyhow."""
    most, more = [(await polled(count, 1, 30.0)).count("list") for count in (1000, 3000)]
    assert more <= 1.1 * most


async def delay_of(service: Service, pushes: Coordinator, number: int) -> float:
    """Push, and return how long after the push's end its outcome came."""
    outcome = await pushed(pushes, request(number))
    return now() - service.by_key[str(outcome.key)].ends


async def test_outcomes_come_while_other_pushes_still_leave() -> None:
    """With more pushes to send than may go at once, polls have their turn among them."""
    service = Service(lambda _: 1.5, latency=0.15)
    async with coordinator(service, max_open=400, timeout=None) as pushes:
        seen = [now() async for _ in pushes.run(requests(400))]

    sent = [asked.at for asked in service.log if asked.kind == "push"]
    assert len(seen) == len(sent) == 400
    assert seen[0] < sent[200]
    assert sum(moment < sent[-1] for moment in seen) > 400 // 3


@pytest.mark.parametrize(
    ("workers", "count", "faults"), [(2, 320, []), (8, 320, []), (4, 60, [NO_LIST])]
)
async def test_workers_ask_together_what_one_would(
    workers: int, count: int, faults: list[Fault]
) -> None:
    """Who shares a store sees the ends of one company that much later, but does not ask more."""
    chance, first = random.Random(workers), Journal(shared=True)
    service = Service(lambda _: chance.uniform(0.5, 2), faults)
    async with AsyncExitStack() as running:
        journals = [first, *(Journal(shared=True, beside=first) for _ in range(workers - 1))]
        members = [
            await running.enter_async_context(coordinator(service, journal=one, max_open=5000))
            for one in journals
        ]
        await asyncio.sleep(30)  # by now, each knows of the others
        async with asyncio.timeout(600):
            delays = await asyncio.gather(
                *(delay_of(service, members[number % workers], number) for number in range(count))
            )

    polls = [one.at for one in service.log if one.kind in {"get", "list"}]
    assert max(sum(at <= one < at + 10 for one in polls) for at in polls) <= 30 + 3 + workers
    if not faults:
        assert max(delays) <= 1.5 * workers
        assert len(polls) <= 25 + 2 * workers


def test_stuck_pushes_do_not_hinder_fast_ones() -> None:
    """After an hour with hundreds that never end, they are known nearly as soon as without."""

    def fast(stuck: int) -> float:
        def takes(record: dict[str, Any]) -> float:
            number = record["number"]
            return math.inf if number < stuck else 1.0 + number % 30 / 10

        async def main() -> list[float]:
            service = Service(takes)
            async with coordinator(service, max_open=5000, leave="detach") as pushes:
                await asyncio.gather(*(pushes.submit(request(n)) for n in range(stuck)))
                await asyncio.sleep(3600)
                before = service.count("get", "list")

                async def push(number: int) -> float:
                    await asyncio.sleep(0.3 * number)
                    return await delay_of(service, pushes, stuck + number)

                delays = await asyncio.gather(*map(push, range(40)))
                assert service.count("get", "list") < before + 80
                return sorted(delays)

        return run_virtual(main())[37]

    assert fast(200) <= 2 * fast(0)


@settings(max_examples=20)
@given(st.floats(0.0, 40.0))
def test_a_push_is_seen_soon_after_it_shows(lag: float) -> None:
    """A read that does not show it yet counts as one that shows it Pending: no storm, no rest."""
    service = Service(lambda _: 0.01, [unseen(lag)])

    async def wait() -> float:
        async with service.client() as client:
            books = client.company("c-0").connection("books")
            await client.wait(await books.push("invoices", {}))
        return now()

    assert run_virtual(wait()) <= 1.2 * lag + 2.0
    assert len(service.log) <= 40


@pytest.mark.parametrize(("times", "status"), [(1, "SUCCESS"), (2, "PENDING")])
async def test_one_404_alone_loses_no_push_that_was_there(times: int, status: str) -> None:
    """A single answer that lacks an old push proves nothing; a second in a row does."""
    missing = [refusal(404)] * times
    gone = reads(lambda asked: missing.pop() if missing and asked.at > 100 else None, "get")
    async with coordinator(Service(lambda _: 300.0, [gone, NO_LIST])) as pushes:
        outcome = await pushed(pushes)

    assert (outcome.status, missing) == (status, [])
