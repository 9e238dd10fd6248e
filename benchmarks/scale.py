"""Whole days and whole accounts, mostly in virtual time: what breaks first, and at which size.

- `scale_pushes`: pushes of some companies, against a service that counts requests. The counts are
  compared with the published limits of an account of 1,000 companies. Companies do not affect each
  other, so some of them stand for all.
- `scale_run`: memory, while an async generator makes requests, and ``run(max_open=2000)`` pulls and
  pushes them. The service forgets what ended ten seconds ago.
- `scale_listing`: the real client against the real sandbox, with the full number of requests and
  pages, but each record standing for a thousand. The service answers in 100 ms and enforces its
  published limit; decoding a page of 5,000 occupies the one core that all workers share. Memory is
  the size of pages that have arrived and are not used yet.
"""

from __future__ import annotations

import asyncio
import gc
import random
import time
from collections import Counter
from collections.abc import AsyncIterator, Callable, Iterator, Mapping
from math import exp, log

from attrs import Factory, define, frozen

from benchmarks._question import Pick, Row, Rows, at_most, question, row
from benchmarks.peers._frame import record, resident_mib
from benchmarks.polling import LATENCY as PUSH_LATENCY
from benchmarks.polling import measure
from integration_sdk import Client, PushRequest, errors
from integration_sdk._http import CallInfo
from integration_sdk.sandbox import Sandbox
from integration_sdk.testing import run_virtual
from tests.support.virtual_service import Service

LATENCY = 0.1
PER_MINUTE = 1000
"""Published limit of requests a minute."""
PER_COMPANY = 1000
"""Published limit of requests a day: this many for each company, and as many once more."""

# A day of pushes

COMPANIES = 1000
SOME = 20
"""Number of companies that stand for all."""
USUAL, SPREAD = 20.0, 1.0
"""Median seconds of a push, and the standard deviation of the logarithm."""
STUCK = 0.002
"""Share of pushes that wait for hours until somebody's computer is switched on."""
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
        for at in sorted(_busy_hour(chance) * 3600 for _ in range(self.pushes)):
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


def simulate(plan: Plan, pattern: str) -> Row:
    """Simulate a day and compare it with the limits of an account of 1,000 companies."""
    began = time.process_time()
    seen = measure(
        plan.pushes,
        plan.companies,
        _takes,
        arrivals=PATTERNS[pattern](plan),
        seed=plan.seed,
        max_open=10 * plan.companies + 10_000,
    )
    spent, log = time.process_time() - began, seen.service.log
    kinds = Counter(asked.kind for asked in log)
    hours = Counter(int(asked.at // 3600) for asked in log)
    all_of_them = COMPANIES / plan.companies
    quota = len(log) * all_of_them / (PER_COMPANY * (1 + COMPANIES))
    pace = max(hours.values()) * all_of_them / (PER_MINUTE * 60)
    figures = {
        "settled": len(seen.delays),
        "requests/push": len(log) / plan.pushes,
        "lists/push": kinds["list"] / plan.pushes,
        "reads/push": kinds["get"] / plan.pushes,
        "day's quota %": quota * 100,
        "busiest hour %": pace * 100,
        "delay p50 s": seen.delay(0.5),
        "delay p95 s": seen.delay(0.95),
        "CPU ms/push": spent / plan.pushes * 1e3,
    }
    setting = f"{plan.each:,} a company and day"
    return row(setting, pattern, _first_to_break(plan, quota, pace), **figures)


def _first_to_break(plan: Plan, quota: float, pace: float) -> str:
    """Return the nearest limit. The quota grows with the companies, the pace does not."""
    pushes = COMPANIES * plan.each
    if quota >= max(pace, 1):
        return f"{plan.each:,} each are too many for the day's quota, however few companies"
    return f"the limit a minute is reached with {pushes / pace:,.0f} pushes a day in all"


@question(
    "A day of pushes for 1,000 companies: how many requests, how late, and what breaks first?"
)
def scale_pushes(quick: bool) -> Rows:
    """Simulate days of some companies, from a few pushes each to many."""
    plans = [Plan(SOME, each) for each in ((10, 100) if quick else (10, 100, 1000))]
    return Rows(simulate(plan, pattern) for plan in plans for pattern in PATTERNS)


# Memory of a flow

FLOWING = 200_000
FORGETTING = 500


async def flow(count: int) -> Row:
    chance = random.Random(7)
    service = Service(lambda _: chance.uniform(1.5, 2.5), latency=PUSH_LATENCY)
    memory: list[float] = []
    settled = requests = 0

    async def given() -> AsyncIterator[PushRequest]:
        for number in range(count):
            yield PushRequest(f"c-{number % 10}", "books", "invoices", record(number))

    began = time.process_time()
    async with service.client() as client, client.coordinator(max_open=2000) as pushes:
        async for _ in pushes.run(given()):
            settled += 1
            if settled % FORGETTING == 0:  # often, so that the service weighs the same all the time
                requests += len(service.log)
                _forget(service, asyncio.get_running_loop().time() - 10)
            if settled % (count // 10) == 0:
                gc.collect()
                memory.append(resident_mib())
    return row(
        f"{count:,} pushes",
        "integration_sdk",
        settled=settled,
        requests_a_push=(requests + len(service.log)) / count,
        CPU_us_a_push=(time.process_time() - began) / count * 1e6,
        MiB_first_tenth=memory[0],
        MiB_grown=max(memory) - memory[0],
    )


def _forget(service: Service, before: float) -> None:
    service.log.clear()
    for company, held in service.pushes.items():
        service.pushes[company] = [one for one in held if one.ends >= before]
    service.by_key = {one.key: one for held in service.pushes.values() for one in held}


@question(
    f"Does memory stay flat while {FLOWING:,} requests flow through run(max_open=2000)?",
    at_most(
        16,
        f"MiB that {FLOWING:,} pushes through run(max_open=2000) add after the first tenth",
        Pick(f"{FLOWING:,} pushes", "integration_sdk", "MiB grown"),
    ),
    on_request=True,
)
def scale_run(quick: bool) -> Rows:
    """Push all requests and measure memory."""
    return Rows([run_virtual(flow(10_000 if quick else FLOWING))])


# A hundred million records

LISTS = 1000
PAGES = 20
PAGE_SIZE = 5000
STANDS_FOR = 1000
"""Records that one record of the model stands for."""
MIB_A_PAGE = PAGE_SIZE * 2.1 / 1024
SECONDS_A_PAGE = PAGE_SIZE * 5.5e-6
"""CPU seconds, from the figure of the question `streaming`."""


@define
class Tally:
    """What the workers see.

    Attributes:
        held: Pages that have arrived and are not used yet, by path of their list.
        failed: Lists that ended with an error, by its name.
    """

    items: int = 0
    held: Counter[str] = Factory(Counter)
    most_held: int = 0
    failed: Counter[str] = Factory(Counter)
    core: asyncio.Lock = Factory(asyncio.Lock)

    def call_ended(self, call: CallInfo) -> None:
        """Count a page that has arrived."""
        if call.status == 200:
            self.held[call.path] += 1
            self.most_held = max(self.most_held, self.held.total())

    async def page_used(self, path: str, items: int) -> None:
        """Decode a page on the shared core."""
        async with self.core:
            await asyncio.sleep(SECONDS_A_PAGE)
        self.held[path] -= 1
        self.items += items * STANDS_FOR

    def list_ended(self, path: str) -> None:
        """Drop pages that will not be used."""
        del self.held[path]


async def read_all(lists: int, workers: int) -> Row:
    size = PAGE_SIZE // STANDS_FOR
    async with Sandbox(companies=lists, unlinked=0, invoices=PAGES * size, remember=0) as sandbox:
        sandbox.faults.latency(LATENCY)
        sandbox.faults.rate_limit(per_second=PER_MINUTE / 60, burst=PER_MINUTE)
        tally, began = Tally(), time.process_time()
        ids = iter([company.id for company in sandbox.companies])
        async with Client(sandbox.api_key, sandbox.base_url, on_call=tally.call_ended) as client:
            async with asyncio.TaskGroup() as tasks:
                for _ in range(workers):
                    tasks.create_task(_worker(client, ids, size, tally))
            throttled = client.stats().throttled
        hours = asyncio.get_running_loop().time() / 3600
        return row(
            f"{lists * PAGES * PAGE_SIZE:,} items",
            f"{workers} workers",
            _why(tally),
            items=tally.items,
            requests=sandbox.served,
            requests_answered_429=throttled,
            hours=hours,
            of_the_limits_pace=lists * PAGES / (PER_MINUTE * 60 * hours + PER_MINUTE),
            quota_used=sandbox.served / (PER_COMPANY * (1 + lists)),
            MiB_of_pages=tally.most_held * MIB_A_PAGE,
            lists_failed=tally.failed.total(),
            CPU_s=time.process_time() - began,
        )


async def _worker(client: Client, ids: Iterator[str], size: int, tally: Tally) -> None:
    for company in ids:
        path = f"/companies/{company}/data/invoices"
        invoices = client.company(company).data("invoices").list(page_size=size, prefetch=4)
        try:
            async for page in invoices.pages():
                await tally.page_used(path, len(page.results))
        except errors.IntegrationError as error:
            tally.failed[type(error).__name__] += 1
        tally.list_ended(path)


def _why(tally: Tally) -> str:
    if not tally.failed:
        return ""
    return "failed: " + ", ".join(f"{count} {name}" for name, count in tally.failed.items())


@question("A hundred million records over many workers: how long, how big, and what breaks first?")
def scale_listing(quick: bool) -> Rows:
    """Read all lists with more and more workers."""
    lists, crowds = (50, (16,)) if quick else (LISTS, (8, 64, 256))
    return Rows(run_virtual(read_all(lists, workers)) for workers in crowds)
