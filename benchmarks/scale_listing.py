"""A hundred million records over many workers: what breaks first, and at which size.

A scale model of a listing, in virtual time: the real client against the real sandbox, with the
full number of requests and pages, but each record standing for a thousand. The service answers
in 100 ms and enforces its published limit of 1,000 requests a minute; decoding a page of 5,000
occupies the one core that all workers share. Memory is the size of pages that have arrived and
are not used yet.
"""

from __future__ import annotations

import asyncio
import time
from collections import Counter
from collections.abc import Iterator

from attrs import Factory, define

from benchmarks._question import Question, Row, Rows, row
from integration_sdk import Client, errors
from integration_sdk._http import CallInfo
from integration_sdk.sandbox import Sandbox
from integration_sdk.testing import run_virtual

LISTS = 1000
PAGES = 20
PAGE_SIZE = 5000
STANDS_FOR = 1000
"""Records that one record of the model stands for."""
LATENCY = 0.1
PER_MINUTE = 1000
PER_COMPANY = 1000
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


async def _read_all(lists: int, workers: int) -> Row:
    size = PAGE_SIZE // STANDS_FOR
    async with Sandbox(companies=lists, invoices=PAGES * size, remember=0) as sandbox:
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


def scale_listing(quick: bool) -> Rows:
    """Read all lists with more and more workers."""
    lists, crowds = (50, (16,)) if quick else (LISTS, (8, 64, 256))
    return Rows(run_virtual(_read_all(lists, workers)) for workers in crowds)


SCALE_LISTING = Question(
    "scale_listing",
    "A hundred million records over many workers: how long, how big, and what breaks first?",
    scale_listing,
)

QUESTIONS = (SCALE_LISTING,)
