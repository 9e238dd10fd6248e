"""What polling costs, and how late the end of a push is known.

In virtual time, through a real client and against a service without sockets: counts are exact, the
same on every machine, and hours of polling take seconds. The coordinator's schedule is compared
with polling a list whenever a push's age has grown by a tenth, and with polling every push singly
at the same ages.
"""

from __future__ import annotations

import asyncio
import math
import random
from collections.abc import AsyncIterator, Callable, Iterable
from typing import Any

from attrs import frozen

from benchmarks._question import Pick, Row, Rows, at_least, at_most, question, row
from integration_sdk import PushRequest
from integration_sdk.testing import run_virtual
from tests.support.virtual_service import Fault, Service

LATENCY = 0.03
JITTER = 7
Takes = Callable[[random.Random], float]


@frozen
class Measured:
    """What a run cost.

    polls: Requests per push, beyond the push itself. delays: Seconds from a push's end to its
    outcome, sorted. shares: The same as a share of the push's age, sorted.
    """

    service: Service
    polls: float
    delays: list[float]
    shares: list[float]
    by_company: dict[str, list[float]]

    def delay(self, quantile: float) -> float:
        return self.delays[int(quantile * (len(self.delays) - 1))]

    def share(self, quantile: float) -> float:
        return self.shares[int(quantile * (len(self.shares) - 1))]


def measure(
    count: int,
    companies: int,
    takes: Takes,
    *,
    rate: float | None = None,
    arrivals: Iterable[tuple[float, int]] | None = None,
    fault: Fault | None = None,
    seed: int = 1,
    **options: Any,
) -> Measured:
    """Push *count* records and measure.

    They are given to one company after the other, *rate* a second or all at once; or as *arrivals*
    have it: seconds and the number of the company of each.
    """
    chance = random.Random(seed)
    table = [takes(chance) for _ in range(count)]
    service = Service(
        lambda record: table[record["number"]], [fault] if fault else [], latency=LATENCY
    )
    delays: list[float] = []
    shares: list[float] = []
    by_company: dict[str, list[float]] = {}

    async def given() -> AsyncIterator[PushRequest]:
        loop = asyncio.get_running_loop()
        at_once = ((0.0, number % companies) for number in range(count))
        for number, (at, company) in enumerate(arrivals or at_once):
            await asyncio.sleep(1 / rate if rate else max(0.0, at - loop.time()))
            yield PushRequest(f"c-{company}", "books", "invoices", {"number": number})

    async def main() -> None:
        async with service.client() as client, client.coordinator(**options) as pushes:
            async for outcome in pushes.run(given()):
                held = service.by_key[str(outcome.key)]
                delay = asyncio.get_running_loop().time() - held.ends
                delays.append(delay)
                shares.append(delay / (held.ends - held.began))
                by_company.setdefault(held.company, []).append(delay)

    state = random.getstate()
    random.seed(JITTER)  # the client's
    try:
        run_virtual(main())
    finally:
        random.setstate(state)
    polls = (len(service.log) - count) / count
    return Measured(service, polls, sorted(delays), sorted(shares), by_company)


def jain(values: list[float]) -> float:
    return sum(values) ** 2 / (len(values) * sum(value**2 for value in values))


def growth_schedule(lives: list[tuple[float, float]], growth: float) -> tuple[int, float]:
    """Poll a company's list whenever a push's age has grown by a share since it was last seen.

    Returns polls, and the p95 of delays; *lives* are beginnings and ends.
    """
    coming, delays, polls = sorted(lives), list[float](), 0
    open_: list[tuple[float, float, float]] = []
    while coming or open_:
        due = min(
            (seen + growth * max(seen - began, 2.0) for began, _, seen in open_), default=math.inf
        )
        if coming and coming[0][0] <= due:
            began, ends = coming.pop(0)
            open_.append((began, ends, began))
            continue
        polls += 1
        delays += [due - ends for _, ends, _ in open_ if ends <= due]
        open_ = [(began, ends, due) for began, ends, _ in open_ if ends > due]
    return polls, sorted(delays)[int(0.95 * (len(delays) - 1))]


# The question

OURS = "coordinator"
LISTS = "list at fixed growth"
SINGLY = "each push singly"
GROWTH = 0.1


@frozen
class Setting:
    """Pushes to follow: how many, of how many companies, and how long each takes."""

    name: str
    pushes: int
    companies: int
    takes: Callable[[random.Random], float]
    rate: float | None = None

    def measured(self, *, part: int) -> Measured:
        """Measure with 1/*part* of the pushes and of the companies."""
        return measure(
            self.pushes // part,
            max(1, self.companies // part),
            self.takes,
            rate=self.rate and self.rate / part,
            max_open=self.pushes,
        )


SETTINGS = (
    Setting("5,000 of 50, ~90 s", 5000, 50, lambda chance: chance.gauss(90, 10)),
    Setting("10,000 of 10, ~2 s", 10_000, 10, lambda chance: chance.uniform(1, 3)),
    Setting("3,000 of 10, 1-30 s", 3000, 10, lambda chance: chance.uniform(1, 30), rate=50),
    Setting(
        "2,000 of 10, ~20 s spread",
        2000,
        10,
        lambda chance: chance.lognormvariate(math.log(20), 0.5),
        rate=20,
    ),
    Setting("300 of 300, 1-2 min", 300, 300, lambda chance: chance.uniform(60, 120), rate=5),
    Setting("1,000 of 10, one a second", 1000, 10, lambda chance: chance.uniform(1, 3), rate=0.93),
)
SLOW, FAST, MIXED, SPREAD, LONE, SPARSE = (setting.name for setting in SETTINGS)


def _picked(setting: str, figure: str) -> Pick:
    return Pick(setting, OURS, figure)


PER_PUSH, P50, P95, OF_AGE = "requests per push", "delay p50 s", "delay p95 s", "delay p95 of age"


@question(
    "How many requests does it take to know how pushes ended, and how late is it known?",
    at_most(1.5, "requests per settled push, 5,000 in 50 companies", _picked(SLOW, PER_PUSH)),
    at_most(0.10, "p95 of the delay, as a part of the age", _picked(SLOW, OF_AGE)),
    at_most(1.08, "requests per settled push, 10,000 in 10 companies", _picked(FAST, PER_PUSH)),
    at_most(0.3, "p50 of the delay in s, of what takes 2 s", _picked(FAST, P50)),
    at_most(1.0, "p50 of the delay in s, of what takes 1-30 s", _picked(MIXED, P50)),
    at_most(3.0, "p95 of the delay in s, of what takes 1-30 s", _picked(MIXED, P95)),
    at_most(0.10, "p95 of the delay as a part of the age, alone", _picked(LONE, OF_AGE)),
    at_most(1.0, "p50 of the delay in s, of what comes one by one", _picked(SPARSE, P50)),
    at_most(3.0, "p95 of the delay in s, of what comes one by one", _picked(SPARSE, P95)),
    at_least(0.95, "Jain's index over companies", _picked(FAST, "fairness")),
    compare=(PER_PUSH, OURS),
)
def polling(quick: bool) -> Rows:
    """Measure every setting."""
    part = 5 if quick else 1
    return Rows(
        line for setting in SETTINGS for line in _rows(setting.name, setting.measured(part=part))
    )


def _rows(name: str, seen: Measured) -> list[Row]:
    means = [sum(delays) / len(delays) for delays in seen.by_company.values()]
    ours = row(
        name,
        OURS,
        requests_per_push=1 + seen.polls,
        delay_p50_s=seen.delay(0.5),
        delay_p95_s=seen.delay(0.95),
        delay_p95_of_age=seen.share(0.95),
        fairness=jain(means),
    )
    companies = [[(one.began, one.ends) for one in held] for held in seen.service.pushes.values()]
    lists = [growth_schedule(lives, GROWTH) for lives in companies]
    polls = sum(count for count, _ in lists) / len(seen.delays)
    late = sum(p95 for _, p95 in lists) / len(lists)
    singly = [growth_schedule([life], GROWTH)[0] for lives in companies for life in lives]
    return [
        ours,
        row(name, LISTS, requests_per_push=1 + polls, delay_p95_s=late),
        row(name, SINGLY, requests_per_push=1 + sum(singly) / len(singly)),
    ]
