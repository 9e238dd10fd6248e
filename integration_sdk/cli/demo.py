"""The main job on show: stream a large result set while many records are pushed."""

from __future__ import annotations

import asyncio
import time
from collections import Counter
from collections.abc import AsyncIterator, Iterator, Mapping
from contextlib import asynccontextmanager
from typing import Any

from attrs import Factory, define, frozen
from rich.console import Console
from rich.table import Table

from integration_sdk._calls import SessionStats
from integration_sdk._client import Client
from integration_sdk._sansio.report import ListReport
from integration_sdk.cli.display import Bar, Board
from integration_sdk.models import OutcomeStatus, PropertyDescription, PushRequest
from integration_sdk.sandbox import Sandbox


@frozen(kw_only=True)
class DemoSettings:
    """What the demo is asked to do."""

    base_url: str | None
    api_key: str | None
    allow_push: bool
    invoices: int
    pushes: int
    page_size: int
    prefetch: int
    seed: int


@define
class Tally:
    """What the demo has seen."""

    report: ListReport | None = None
    outcomes: Counter[OutcomeStatus] = Factory(Counter)
    reasons: Counter[str] = Factory(Counter)
    seconds: float = 0.0
    stats: SessionStats | None = None


async def run_demo(settings: DemoSettings, out: Console, err: Console) -> Tally:
    """Run the job, bars on *err* and the closing table on *out*."""
    tally = Tally()
    async with (
        _server(settings, err) as (base_url, api_key),
        Client(api_key, base_url, timeout=120) as client,
    ):
        began = time.monotonic()
        await _run(client, settings, Board(err), tally)
        tally.seconds = time.monotonic() - began
        tally.stats = client.stats()
    out.print(_table(tally))
    return tally


async def _run(client: Client, settings: DemoSettings, board: Board, tally: Tally) -> None:
    target = await _pick(client)
    with board.shown():
        async with asyncio.TaskGroup() as jobs:
            jobs.create_task(_stream(client, target[0], settings, board, tally))
            if settings.base_url is None or settings.allow_push:
                jobs.create_task(_push(client, target, settings, board, tally))


@asynccontextmanager
async def _server(settings: DemoSettings, err: Console) -> AsyncIterator[tuple[str, str | None]]:
    """The server of the caller's choice, or an embedded one that is hard to please."""
    if settings.base_url is not None:
        yield settings.base_url, settings.api_key
        return
    async with Sandbox(invoices=settings.invoices, seed=settings.seed) as sandbox:
        sandbox.faults.latency((0.01, 0.05))
        sandbox.faults.rate_limit(per_second=150, burst=60)
        sandbox.faults.unavailable(0.5, delay=1.0, retry_after=1)
        sandbox.faults.fail_next_push("amount must be positive", times=7)
        err.print(
            f"Sandbox at {sandbox.base_url}: 10-50 ms a request, 429 above 150 a second, "
            "503 for half a second, 7 pushes that the platform refuses."
        )
        yield sandbox.base_url, sandbox.api_key


async def _pick(client: Client) -> tuple[str, str]:
    """The first company that has a connection, and that connection."""
    async for company in client.companies.list():
        connection = await client.company(company["id"]).connections.list().first()
        if connection is not None:
            return company["id"], connection["id"]
    raise SystemExit("No company of this account has a connection; connect one first.")


async def _stream(
    client: Client, company_id: str, settings: DemoSettings, board: Board, tally: Tally
) -> None:
    pager = (
        client.company(company_id)
        .data("invoices")
        .list(page_size=settings.page_size, prefetch=settings.prefetch, limit=settings.invoices)
    )
    bar = board.bar("Invoices streamed")
    async for page in pager.pages():
        bar.total(min(page.total_results, settings.invoices))
        bar.advance(len(page.results), note=f"page {page.page_number}")
    tally.report = pager.report


async def _push(
    client: Client, target: tuple[str, str], settings: DemoSettings, board: Board, tally: Tally
) -> None:
    company_id, connection_id = target
    books = client.company(company_id).connection(connection_id)
    options = await books.options("invoices")
    bar = board.bar("Pushes settled", settings.pushes)
    requests = (
        PushRequest(company_id, connection_id, "invoices", record, reference=f"demo-{number}")
        for number, record in enumerate(_records(options, settings.pushes))
    )
    async with client.coordinator() as pushes:
        async for outcome in pushes.run(requests):
            tally.outcomes[outcome.status] += 1
            if outcome.error is not None:
                tally.reasons[str(outcome.error)] += 1
            _show(bar, tally)


def _show(bar: Bar, tally: Tally) -> None:
    bar.advance(note=", ".join(f"{n} {status.lower()}" for status, n in tally.outcomes.items()))


def _records(options: PropertyDescription, count: int) -> Iterator[Mapping[str, Any]]:
    """Records that the options allow: required properties alone, in each a plausible value."""
    for number in range(1, count + 1):
        yield _example(options, number)


def _example(described: PropertyDescription, number: int) -> Any:
    if described.options:
        return next((o.value for o in described.options if o.value is not None), None)
    match described.type:
        case "Object" | "Array":
            item = {
                name: _example(child, number)
                for name, child in described.properties.items()
                if child.required
            }
            return [item] if described.type == "Array" else item
        case "Number":
            return number
        case "Boolean":
            return True
        case "DateTime":
            return "2022-01-31T00:00:00Z"
        case _:
            return f"{described.display_name or 'Demo'} {number}"


def _table(tally: Tally) -> Table:
    """What was done and what it took."""
    table = Table(title="What happened", show_header=False, title_justify="left")
    table.add_column(style="bold")
    table.add_column(justify="right")
    for label, value in _rows(tally):
        table.add_row(label, value)
    return table


def _rows(tally: Tally) -> Iterator[tuple[str, str]]:
    if tally.report is not None:
        yield "invoices streamed", f"{tally.report.items:,}"
        yield "pages", f"{tally.report.pages:,}"
    for status, count in sorted(tally.outcomes.items()):
        yield f"pushes {status}", f"{count:,}"
    if tally.stats is not None:
        yield "calls", f"{tally.stats.requests:,}"
        yield "requests sent", f"{tally.stats.attempts:,}"
        yield "answered 429", f"{tally.stats.throttled:,}"
        yield "waits at the gate", f"{tally.stats.waits:,}"
    yield "wall time", f"{tally.seconds:.2f} s"
