"""What polling costs and how late it is, in virtual time: counts, not seconds."""

from __future__ import annotations

import asyncio
import math
import random
from contextlib import AsyncExitStack
from typing import Any

import pytest

from benchmarks.polling import Measured, Takes, growth_schedule, jain, measure
from integration_sdk import Coordinator
from integration_sdk.testing import run_virtual
from tests.support.push_support import Journal, coordinator, request
from tests.support.virtual_service import Answer, Asked, Proceed, Service, refusal


def measure_one_by_one(takes: Takes, *, count: int = 150) -> Measured:
    """Push as often as if each push were the first: by a client of its own, that knows nothing."""
    runs = [measure(1, 1, takes, seed=seed) for seed in range(count)]
    return Measured(
        runs[0].service,
        sum(run.polls for run in runs) / count,
        sorted(delay for run in runs for delay in run.delays),
        sorted(share for run in runs for share in run.shares),
        {},
    )


def test_slow_pushes_of_many_companies_cost_half_a_request_each() -> None:
    """100 pushes a company that take about 90 s: at most 1.5 requests each, in all."""
    seen = measure(1000, 10, lambda chance: chance.gauss(90, 10), max_open=1000)

    assert seen.polls <= 0.5
    assert seen.share(0.95) <= 0.10
    assert sum(one.kind == "push" for one in seen.service.log) == 1000


def test_fast_pushes_are_seen_at_once_for_a_twentieth_request_each() -> None:
    """1,000 pushes a company that take about 2 s: at most 1.08 requests each, p50 <= 0.3 s."""
    seen = measure(1000, 1, lambda chance: chance.uniform(1, 3), max_open=1000)

    assert seen.polls <= 0.08
    assert seen.delay(0.5) <= 0.3


def test_delays_are_short_for_what_takes_half_a_minute() -> None:
    """Pushes that take 1 to 30 s are known 1 s later (p50), 3 s at p95."""
    seen = measure(750, 5, lambda chance: chance.uniform(1, 30), rate=20)

    assert seen.delay(0.5) <= 1.0
    assert seen.delay(0.95) <= 3.0


def test_a_lone_push_of_a_minute_or_two_is_known_within_a_tenth_of_its_age() -> None:
    """Alone in its company, with nothing learned: p95 of the delay <= 10% of age, in 33 polls."""
    seen = measure_one_by_one(lambda chance: chance.uniform(60, 120), count=75)

    assert seen.share(0.95) <= 0.10
    assert seen.polls <= 33


def test_a_lone_push_of_seconds_is_known_a_second_later() -> None:
    """Alone in its company and taking 1 to 30 s: p50 of the delay <= 1 s, p95 <= 3 s, 13 polls."""
    seen = measure_one_by_one(lambda chance: chance.uniform(1, 30))

    assert seen.delay(0.5) <= 1.0
    assert seen.delay(0.95) <= 3.0
    assert seen.polls <= 13


def test_pushes_that_come_one_by_one_cost_a_poll_and_a_half() -> None:
    """One push a second over ten companies, of 1 to 3 s each: p50 <= 1 s in 2.3 polls."""
    seen = measure(500, 10, lambda chance: chance.uniform(1, 3), rate=0.93)

    assert seen.delay(0.5) <= 1.0
    assert seen.delay(0.95) <= 3.0
    assert seen.polls <= 2.3


MODELS: dict[str, Takes] = {
    "half a minute, widely spread": lambda chance: chance.lognormvariate(math.log(20), 0.5),
    "a minute and a half, sharply": lambda chance: chance.gauss(90, 8),
    "two seconds or fifty": lambda chance: (
        chance.uniform(1.5, 3) if chance.random() < 0.7 else chance.uniform(40, 60)
    ),
}


def polls_of_growth_schedule(seen: Measured) -> float:
    """Return the polls per push of the growth schedule that is just as late at p95."""
    companies = [[(one.began, one.ends) for one in held] for held in seen.service.pushes.values()]
    low, high = 0.005, 2.0
    for _ in range(12):
        middle = math.sqrt(low * high)
        runs = [growth_schedule(lives, middle) for lives in companies]
        late = sum(p95 for _, p95 in runs) / len(runs) > seen.delay(0.95)
        low, high = (low, middle) if late else (middle, high)
    return sum(growth_schedule(lives, high)[0] for lives in companies) / len(seen.delays)


@pytest.mark.parametrize("name", MODELS)
def test_what_is_learned_saves_two_polls_in_five(name: str) -> None:
    """At the same p95 delay, at least 40% fewer polls than any fixed growth schedule."""
    learned = measure(600, 10, MODELS[name], rate=50)

    assert learned.polls <= 0.6 * polls_of_growth_schedule(learned)


@pytest.mark.virtual_time
@pytest.mark.parametrize("workers", [2, 4, 8, 16])
async def test_workers_ask_together_what_one_would(workers: int) -> None:
    """Who shares a store sees the ends of one company that much later, but does not ask more."""
    chance, first = random.Random(workers), Journal(shared=True)
    service = Service(lambda _: chance.uniform(0.5, 2))
    delays = list[float]()

    async def push(pushes: Coordinator, number: int) -> None:
        outcome = await (await pushes.submit(request(number)))
        ended = service.by_key[str(outcome.key)].ends
        delays.append(asyncio.get_running_loop().time() - ended)

    async with AsyncExitStack() as running:
        journals = [first, *(Journal(shared=True, beside=first) for _ in range(workers - 1))]
        members = [
            await running.enter_async_context(coordinator(service, journal=one, max_open=5000))
            for one in journals
        ]
        await asyncio.sleep(30)  # by now, each knows of the others
        async with asyncio.timeout(600):
            await asyncio.gather(
                *(push(members[number % workers], number) for number in range(320))
            )

    assert max(delays) <= 1.5 * workers
    polls = [one.at for one in service.log if one.kind in {"get", "list"}]
    assert max(sum(at <= one < at + 10 for one in polls) for at in polls) <= 30 + 3 + workers
    assert len(polls) <= 25 + 2 * workers


@pytest.mark.parametrize("age", [0.0, 700.0, 3600.0])
def test_stuck_pushes_do_not_hinder_fast_ones(age: float) -> None:
    """With 1,000 pushes that never end, 100 fast ones are known nearly as soon as without.

    Also once those are old, and were the last that anybody saw for an hour.
    """

    def fast(stuck: int) -> float:
        def takes(record: dict[str, Any]) -> float:
            number = record["number"]
            return math.inf if number < stuck else 1.0 + number % 30 / 10

        async def main() -> list[float]:
            service = Service(takes)
            async with coordinator(service, max_open=5000, leave="detach") as pushes:
                await asyncio.gather(*(pushes.submit(request(n)) for n in range(stuck)))
                await asyncio.sleep(age)
                before, delays = service.count("get", "list"), list[float]()

                async def push(number: int) -> None:
                    await asyncio.sleep(0.3 * (number - stuck))
                    outcome = await (await pushes.submit(request(number)))
                    ended = service.by_key[str(outcome.key)].ends
                    delays.append(asyncio.get_running_loop().time() - ended)

                await asyncio.gather(*(push(stuck + number) for number in range(100)))
                assert service.count("get", "list") < before + 200
                return sorted(delays)

        return run_virtual(main())[94]

    assert fast(1000) <= 2 * fast(0)


def test_companies_are_served_alike() -> None:
    """Jain's index over the companies' mean delays is at least 0.95, big ones beside small."""
    seen = measure(1000, 20, lambda chance: chance.uniform(2, 10), rate=60)
    means = [sum(delays) / len(delays) for delays in seen.by_company.values()]

    assert len(means) == 20
    assert jain(means) >= 0.95


@pytest.mark.parametrize("count", [1, 2, 5, 40])
def test_the_choice_of_list_or_single_is_never_much_worse_than_the_better(count: int) -> None:
    """Choosing costs at most 1.2 times what the better of list and single would."""

    def no_list(asked: Asked, proceed: Proceed) -> Answer:
        return refusal(404) if asked.kind == "list" else proceed()

    def takes(chance: random.Random) -> float:
        return chance.uniform(5, 15)

    chosen = measure(count, 1, takes)
    singly = measure(count, 1, takes, fault=no_list)

    assert chosen.polls <= 1.2 * singly.polls
    assert count < 40 or chosen.polls < singly.polls / 4
