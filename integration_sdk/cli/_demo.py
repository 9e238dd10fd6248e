"""The command ``demo``: stream a large result set while many records are pushed."""

from __future__ import annotations

import asyncio
import time
from collections import Counter
from typing import Annotated, Final

from attrs import Factory, define
from cyclopts import Parameter
from cyclopts.validators import Number
from rich.progress import Progress

from integration_sdk._client import Client
from integration_sdk.cli._display import note, progress, show_table
from integration_sdk.errors import IntegrationError
from integration_sdk.models import OutcomeStatus, PushRequest
from integration_sdk.sandbox import Sandbox

MOST_REFUSED: Final = 7
MOST_OPEN: Final = 100
"""Fewer than the pushes, so that outcomes arrive while others are still being sent."""
_Count = Annotated[int, Parameter(validator=Number(gte=0))]


async def demo(*, invoices: _Count = 20_000, pushes: _Count = 500) -> None:
    """Stream invoices and push records at the same time, while requests get 429 or 503.

    Everything runs against a sandbox in this process.

    Parameters
    ----------
    invoices
        Number of invoices to stream.
    pushes
        Number of suppliers to push. The sandbox rejects 7 of them, or one in eight if fewer.
    """
    async with Sandbox(invoices=invoices) as sandbox:
        _add_faults(sandbox, pushes)
        async with Client(sandbox.api_key, sandbox.base_url, timeout=120) as client:
            note(f"A sandbox at {sandbox.base_url}, which answers some requests with 429 or 503:")
            note("invoices are streamed from it, and records are pushed to it at the same time.")
            began, seen = time.monotonic(), _Seen(client)
            company = sandbox.companies[0]
            try:
                with progress() as live:
                    async with asyncio.TaskGroup() as jobs:
                        jobs.create_task(seen.stream(live, company.id, invoices))
                        lane = company.id, company.connections[0].id, "suppliers"
                        jobs.create_task(seen.push(live, lane, pushes))
            except* IntegrationError as failed:
                raise failed.exceptions[0] from None
            show_table("What happened", seen.rows(time.monotonic() - began))


def _add_faults(sandbox: Sandbox, pushes: int) -> None:
    # Two in a row at most: a third would be the last attempt of a call that is alone.
    later = {"Retry-After": "1"}
    sandbox.faults.latency((0.01, 0.05))
    sandbox.faults.status(429, headers=later, skip=pushes // 4, times=2)
    sandbox.faults.status(503, headers=later, skip=pushes // 2 + 4, times=2)
    if refused := min(MOST_REFUSED, pushes // 8):
        sandbox.faults.fail_next_push("the name is taken", times=refused)


@define
class _Seen:
    """What the demo has seen."""

    client: Client
    streamed: str = "0"
    pages: int = 0
    outcomes: Counter[OutcomeStatus] = Factory(Counter)
    reasons: Counter[str] = Factory(Counter)

    async def stream(self, live: Progress, company: str, most: int) -> None:
        began, done = time.monotonic(), 0
        task = live.add_task("Streaming", total=most, note="")
        books = self.client.company(company).data("invoices")
        async for page in books.list(page_size=500, prefetch=8).pages():
            self.pages += 1
            done += len(page.results)
            seconds = time.monotonic() - began
            self.streamed = f"{done:,} in {seconds:.2f} s ({done / seconds:,.0f}/s)"
            live.update(task, completed=done, note=self.streamed)

    async def push(self, live: Progress, lane: tuple[str, str, str], most: int) -> None:
        task = live.add_task("Pushing", total=most, note="")
        requests = (
            PushRequest(*lane, {"supplierName": f"Demo {number}", "status": "Active"})
            for number in range(most)
        )
        async with self.client.coordinator(max_open=MOST_OPEN) as pushes:
            async for outcome in pushes.run(requests):
                self.outcomes[outcome.status] += 1
                self.reasons.update(outcome.reasons)
                said = ", ".join(f"{count:,} {status}" for status, count in self.outcomes.items())
                live.update(task, completed=self.outcomes.total(), note=said)

    def rows(self, seconds: float) -> list[tuple[str, str]]:
        """Return the rows of the final table; all of it took *seconds*."""
        stats = self.client.stats()
        return [
            ("invoices streamed", self.streamed),
            ("pages", f"{self.pages:,}, 8 fetched ahead"),
            ("records pushed", f"{self.outcomes.total():,}"),
            *((f"  {status}", f"{count:,}") for status, count in self.outcomes.items()),
            *(("  because", f"{reason} ({count:,})") for reason, count in self.reasons.items()),
            ("requests", f"{stats.attempts:,}"),
            ("  answered 429", f"{stats.throttled:,}"),
            ("  answered 503", f"{stats.unavailable:,}"),
            ("waits", f"{stats.waits:,}, {stats.waited:,.0f} s for all calls together"),
            ("wall time", f"{seconds:.2f} s"),
        ]
