"""What polling costs and how late it is, measured in virtual time through a real client."""

from __future__ import annotations

import asyncio
import math
import random
from collections.abc import AsyncIterator, Callable
from typing import Any

from attrs import frozen

from benchmarks._counted_service import Fault, Service
from integration_sdk import PushRequest
from integration_sdk.testing import run_virtual

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
    fault: Fault | None = None,
    seed: int = 1,
    **options: Any,
) -> Measured:
    """Push *count* records and measure; *rate* is how many are given a second."""
    chance = random.Random(seed)
    table = [takes(chance) for _ in range(count)]
    service = Service(
        lambda record: table[record["number"]], [fault] if fault else [], latency=LATENCY
    )
    delays: list[float] = []
    shares: list[float] = []
    by_company: dict[str, list[float]] = {}

    async def given() -> AsyncIterator[PushRequest]:
        for number in range(count):
            if rate:
                await asyncio.sleep(1 / rate)
            lane = number % companies
            yield PushRequest(f"c-{lane}", "books", "invoices", {"number": number})

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
