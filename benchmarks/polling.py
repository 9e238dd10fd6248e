"""What polling costs, and how late the end of a push is known.

In virtual time, against a service without sockets: counts are exact, the same on
every machine, and hours of polling take seconds. The coordinator's schedule is compared with
polling a list whenever a push's age has grown by a tenth, and with polling every push singly at
the same ages.

    python -m benchmarks polling
"""

from __future__ import annotations

import math
import random
from collections.abc import Callable

from attrs import frozen

from benchmarks._measured import Measured, growth_schedule, jain, measure
from benchmarks._question import Goal, Question, Row, Rows, row

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


def _goal(what: str, bound: float, setting: str, figure: str, *, least: bool = False) -> Goal:
    return Goal(
        what,
        ">=" if least else "<=",
        bound,
        lambda rows: rows.median(setting, OURS, figure),
        needs_full=True,
    )


POLLING = Question(
    "polling",
    "How many requests does it take to know how pushes ended, and how late is it known?",
    polling,
    goals=[
        _goal("requests per settled push, 5,000 in 50 companies", 1.25, SLOW, "requests per push"),
        _goal("p95 of the delay, as a part of the age", 0.10, SLOW, "delay p95 of age"),
        _goal("requests per settled push, 10,000 in 10 companies", 1.05, FAST, "requests per push"),
        _goal("p50 of the delay in s, of what takes 2 s", 0.2, FAST, "delay p50 s"),
        _goal("p50 of the delay in s, of what takes 1-30 s", 1.0, MIXED, "delay p50 s"),
        _goal("p95 of the delay in s, of what takes 1-30 s", 3.0, MIXED, "delay p95 s"),
        _goal("p95 of the delay as a part of the age, alone", 0.10, LONE, "delay p95 of age"),
        _goal("p50 of the delay in s, of what comes one by one", 1.0, SPARSE, "delay p50 s"),
        _goal("p95 of the delay in s, of what comes one by one", 3.0, SPARSE, "delay p95 s"),
        _goal("Jain's index over companies", 0.95, FAST, "fairness", least=True),
    ],
    compare=("requests per push", OURS),
)

QUESTIONS = (POLLING,)
