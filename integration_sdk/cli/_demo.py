"""The command ``demo``: stream a large result set while many records are pushed."""

from __future__ import annotations

import asyncio
import time
from collections import Counter
from typing import Annotated, Final

from cyclopts import Parameter
from cyclopts.validators import Number
from rich.progress import Progress

from integration_sdk._client import Client
from integration_sdk.cli._display import note, progress, show_table
from integration_sdk.errors import IntegrationError
from integration_sdk.models import PushRequest
from integration_sdk.sandbox import Sandbox

MOST_REFUSED: Final = 7
MOST_OPEN: Final = 100  # fewer than the pushes, so that outcomes arrive while others are sent
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
    began = time.monotonic()
    async with (
        Sandbox(invoices=invoices) as sandbox,
        Client(sandbox.api_key, sandbox.base_url, timeout=120) as client,
    ):
        # Two in a row at most: a third would be the last attempt of a call that is alone.
        later = {"Retry-After": "1"}
        sandbox.faults.latency((0.01, 0.05))
        sandbox.faults.status(429, headers=later, skip=pushes // 4, times=2)
        sandbox.faults.status(503, headers=later, skip=pushes // 2 + 4, times=2)
        if refused := min(MOST_REFUSED, pushes // 8):
            sandbox.faults.fail_next_push("the name is taken", times=refused)
        note(f"A sandbox at {sandbox.base_url}, which answers some requests with 429 or 503:")
        note("invoices are streamed from it, and records are pushed to it at the same time.")
        company = sandbox.companies[0]
        lane = company.id, company.connections[0].id, "suppliers"
        try:
            with progress() as live:
                async with asyncio.TaskGroup() as jobs:
                    streaming = jobs.create_task(_stream(client, live, company.id, invoices))
                    pushing = jobs.create_task(_push(client, live, lane, pushes))
        except* IntegrationError as failed:
            raise failed.exceptions[0] from None
        stats = client.stats()
    rows = [
        *streaming.result(),
        *pushing.result(),
        ("requests", f"{stats.attempts:,}"),
        ("  answered 429", f"{stats.throttled:,}"),
        ("  answered 503", f"{stats.unavailable:,}"),
        ("waits", f"{stats.waits:,}, {stats.waited:,.0f} s for all calls together"),
        ("wall time", f"{time.monotonic() - began:.2f} s"),
    ]
    show_table("What happened", rows)


async def _stream(client: Client, live: Progress, company: str, most: int) -> list[tuple[str, str]]:
    began, done, said = time.monotonic(), 0, "0"
    task = live.add_task("Streaming", total=most, note="")
    invoices = client.company(company).data("invoices").list(page_size=500, prefetch=8)
    async for page in invoices.pages():
        done += len(page.results)
        seconds = time.monotonic() - began
        said = f"{done:,} in {seconds:.2f} s ({done / seconds:,.0f}/s)"
        live.update(task, completed=done, note=said)
    return [("invoices streamed", said), ("pages", f"{invoices.report.pages:,}, 8 fetched ahead")]


async def _push(
    client: Client, live: Progress, lane: tuple[str, str, str], most: int
) -> list[tuple[str, str]]:
    task, counts = live.add_task("Pushing", total=most, note=""), Counter[str]()
    names = (f"Demo {number}" for number in range(most))
    requests = (PushRequest(*lane, {"supplierName": one, "status": "Active"}) for one in names)
    async with client.coordinator(max_open=MOST_OPEN) as pushes:
        async for outcome in pushes.run(requests):
            counts.update([str(outcome.status), *(f"  because {why}" for why in outcome.reasons)])
            live.update(task, advance=1, note=f"{counts['SUCCESS']:,} SUCCESS")
    rows = [(f"  {what}", f"{count:,}") for what, count in sorted(counts.items(), reverse=True)]
    return [("records pushed", f"{most:,}"), *rows]
