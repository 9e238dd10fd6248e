"""A day of pushes in virtual time: how many requests, how late, and what breaks first.

The coordinator and its polling loop run against a model of the service that answers, counts
requests, and knows when each push ended. The counts are compared with the published limits of an
account of 1,000 companies. Companies do not affect each other, so some of them stand for all;
`scale_million` simulates every one. The model's own memory is subtracted.

    python -m benchmarks scale_pushes
    python -m benchmarks scale_million           takes long; not part of `all`
"""

from __future__ import annotations

import asyncio
import gc
import random
import time
from array import array
from collections.abc import AsyncIterator, Callable, Iterator, Mapping
from functools import partial
from math import exp, log
from pathlib import Path
from statistics import median, quantiles

from attrs import frozen

from benchmarks import _plots
from benchmarks._goals import GOALS
from benchmarks._question import Figure, Question, Row, Rows
from benchmarks._service_model import Service
from benchmarks.peers._frame import record, resident_mib
from integration_sdk import Dialect, PushRequest
from integration_sdk._push.coordinator import Coordinator
from integration_sdk._push.poller import Poller
from integration_sdk.testing import run_virtual

DAY = 86_400.0
COMPANIES = 1000
SOME = 20
"""Number of companies that stand for all."""
USUAL, SPREAD = 20.0, 1.0
"""Median seconds of a push, and the standard deviation of the logarithm."""
STUCK = 0.002
"""Share of pushes that wait for hours until somebody's computer is switched on."""
PER_MINUTE = 1000
"""Published limit of requests a minute."""
PER_COMPANY = 1000
"""Published limit of requests a day: this many for each company, and as many once more."""
RECORD = record(17)
DELAY = "delay p50 s"
GROWN = "MiB grown"


# How pushes arrive

Arrivals = Iterator[tuple[float, int]]
"""The time and company of each push, in order of time."""


@frozen
class Plan:
    """A day: the number of companies, and of records that each pushes."""

    companies: int
    each: int
    seed: int = 7

    @property
    def pushes(self) -> int:
        """The total number of pushes."""
        return self.companies * self.each

    def evenly(self) -> Arrivals:
        """Yield single pushes, three times as often at noon as at midnight."""
        chance = random.Random(self.seed)
        moments = array("d", (_busy_hour(chance) * 3600 for _ in range(self.pushes)))
        for at in sorted(moments):
            yield at, chance.randrange(self.companies)

    def in_batches(self) -> Arrivals:
        """Yield batches: each company pushes ten times a day what has accumulated."""
        chance = random.Random(self.seed)
        starts = sorted(
            (_busy_hour(chance) * 3600, company)
            for company in range(self.companies)
            for _ in range(10)
        )
        for at, company in starts:
            for _ in range(self.each // 10):
                yield at, company


PATTERNS: Mapping[str, Callable[[Plan], Arrivals]] = {
    "evenly": Plan.evenly,
    "in 10 batches": Plan.in_batches,
}


def _busy_hour(chance: random.Random) -> float:
    """Return an hour of the day: noon is three times as likely as midnight."""
    while True:
        hour = chance.uniform(0, 24)
        if chance.random() * 3 <= 3 - abs(hour - 12) / 6:
            return hour


def _takes(chance: random.Random) -> float:
    if chance.random() < STUCK:
        return chance.uniform(4, 12) * 3600
    return exp(chance.gauss(log(USUAL), SPREAD))


# A day


@frozen
class Day:
    """The result of a day.

    Attributes:
        delays: Seconds from a push's end to its outcome, for each push that has one.
        rss: Memory of this process at the start and after each quarter, in MiB, less
            what the model of the service keeps.
        cpu: Seconds, the service's model included.
    """

    service: Service
    delays: array[float]
    rss: tuple[float, ...]
    cpu: float


async def push_day(plan: Plan, arrivals: Arrivals) -> Day:
    """Push for a day, then wait for the pushes that are still open."""
    service = Service(partial(_takes, random.Random(plan.seed)))
    dialect = Dialect.document()
    poller = Poller(service.send, dialect, chance=random.Random(plan.seed).random)
    delays, rss, began = array("f"), [_resident()], time.process_time()
    async with Coordinator(
        service, poller, dialect, max_open=10 * plan.companies + 10_000
    ) as coordinator:
        async for outcome in coordinator.run(_requests(arrivals)):
            if outcome.operation is None or not outcome.operation.is_final:
                continue
            ended = service.ended(outcome.operation.push_operation_key)
            delays.append(asyncio.get_running_loop().time() - ended)
            if len(delays) % max(plan.pushes // 4, 1) == 0:
                rss.append(_resident() - service.mib)
    await poller.aclose()
    return Day(service, delays, tuple(rss), time.process_time() - began)


async def _requests(arrivals: Arrivals) -> AsyncIterator[PushRequest]:
    loop = asyncio.get_running_loop()
    for at, company in arrivals:
        if at > loop.time():
            await asyncio.sleep(at - loop.time())
        yield PushRequest(f"company-{company}", "connection", "invoices", RECORD)


def _resident() -> float:
    gc.collect()
    return resident_mib()


# What it means for an account


def simulate(plan: Plan, pattern: str) -> Row:
    """Simulate a day and compare it with the limits of an account of 1,000 companies."""
    day = run_virtual(push_day(plan, PATTERNS[pattern](plan)))
    kinds, all_of_them = day.service.kinds, COMPANIES / plan.companies
    quota = kinds.total() * all_of_them / (PER_COMPANY * (1 + COMPANIES))
    pace = max(day.service.hours.values()) * all_of_them / (PER_MINUTE * 60)
    figures = {
        "settled": len(day.delays),
        "requests/push": kinds.total() / plan.pushes,
        "lists/push": kinds["pushes.list"] / plan.pushes,
        "reads/push": kinds["pushes.get"] / plan.pushes,
        "day's quota %": quota * 100,
        "busiest hour %": pace * 100,
        DELAY: median(day.delays),
        "delay p95 s": quantiles(day.delays, n=20)[-1],
        GROWN: day.rss[-1] - day.rss[1],
        "CPU ms/push": day.cpu / plan.pushes * 1e3,
    }
    return Row(
        f"{plan.each:,} a company and day",
        pattern,
        {name: Figure((value,)) for name, value in figures.items()},
        _first_to_break(plan, quota, pace),
        {"polls": [(step / 6, day.service.polls[step]) for step in range(6 * 24)]},
    )


def _first_to_break(plan: Plan, quota: float, pace: float) -> str:
    """Return the nearest limit. The quota grows with the companies, the pace does not."""
    pushes = COMPANIES * plan.each
    if quota >= max(pace, 1):
        return f"{plan.each:,} each are too many for the day's quota, however few companies"
    return f"the limit a minute is reached with {pushes / pace:,.0f} pushes a day in all"


def scale_pushes(quick: bool) -> Rows:
    """Simulate days of some companies, from a few pushes each to many."""
    plans = [Plan(SOME, each) for each in ((10, 100) if quick else (10, 100, 1000))]
    return Rows(simulate(plan, pattern) for plan in plans for pattern in PATTERNS)


def scale_million(quick: bool) -> Rows:
    """Simulate a million pushes of a thousand companies."""
    plan = Plan(COMPANIES // 100 if quick else COMPANIES, 1000)
    return Rows([simulate(plan, "in 10 batches")])


def _draw(rows: Rows, folder: Path) -> list[Path]:
    return [*_draw_requests(rows, folder), *_draw_polls(rows, folder)]


def _draw_requests(rows: Rows, folder: Path) -> list[Path]:
    curves: dict[str, list[tuple[float, float]]] = {pattern: [] for pattern in PATTERNS}
    for one in rows.rows:
        each = float(one.setting.split(" ")[0].replace(",", ""))
        curves[one.contender].append((each, one.figures["requests/push"].median))
    return _plots.lines(
        folder / "scale_pushes.png",
        "Requests per settled push, by how many a company pushes",
        "pushes a company and day",
        "requests per push",
        curves,
        logarithmic=True,
    )


def _draw_polls(rows: Rows, folder: Path) -> list[Path]:
    busiest = rows.settings()[-1]
    return _plots.lines(
        folder / "polls_over_time.png",
        f"Polls over a day, {SOME} companies, {busiest}",
        "hour of the day",
        "polls in ten minutes",
        {one.contender: one.series["polls"] for one in rows.rows if one.setting == busiest},
        marker="",
    )


SCALE_PUSHES = Question(
    "scale_pushes",
    "A day of pushes for 1,000 companies: how many requests, how late, and what breaks first?",
    scale_pushes,
    plot=_draw,
)
SCALE_MILLION = Question(
    "scale_million",
    "A million pushes of 1,000 companies in a day, every one of them simulated.",
    scale_million,
    goals=GOALS["scale_million"],
    on_request=True,
)

QUESTIONS = (SCALE_PUSHES, SCALE_MILLION)
