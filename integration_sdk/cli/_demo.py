"""The command ``demo``: stream a large result set while many records are pushed."""

from __future__ import annotations

import asyncio
import time
from collections import Counter
from collections.abc import AsyncIterator, Iterator, Mapping
from contextlib import asynccontextmanager
from typing import Annotated, Any, Final

from attrs import Factory, define, field, frozen
from cyclopts import Parameter
from cyclopts.validators import Number
from rich.console import Console

from integration_sdk._client import Client
from integration_sdk._http import SessionStats
from integration_sdk._list.drift import ListReport
from integration_sdk.cli._display import Bar, Board, Stderr, say, show_table, stdout
from integration_sdk.cli._options import ApiKey, Flag, Service
from integration_sdk.cli._outcomes import counted
from integration_sdk.errors import ConfigurationError, IntegrationError
from integration_sdk.models import OutcomeStatus, PropertyDescription, PushRequest
from integration_sdk.sandbox import Sandbox

REASONS_SHOWN: Final = 3
MOST_REFUSED: Final = 7
MOST_OPEN: Final = 100
"""Fewer than the pushes, so that outcomes arrive while others are still being sent."""
_Count = Annotated[int, Parameter(validator=Number(gte=0))]


@Parameter(name="*")
@frozen(kw_only=True)
class DemoSettings:
    """The options of the demo."""

    base_url: str | None = None
    """Address of your own server. By default the demo starts a sandbox; this option is never taken
    from the environment."""

    api_key: ApiKey = field(default=None, repr=False)
    """API key of your own server."""

    allow_push: Flag = False
    """Push to your own server. The sandbox is always pushed to."""

    invoices: _Count = 20_000
    """Maximum number of invoices to stream."""

    pushes: _Count = 500
    """Number of records to push. The sandbox rejects 7 of them, or one in eight if fewer."""

    page_size: int = 500
    """Invoices per page."""

    prefetch: int = 8
    """Pages to fetch ahead."""

    seed: int = 0
    """Seed of the sandbox."""

    @property
    def may_push(self) -> bool:
        """Whether records are pushed; to the user's own server only if allowed."""
        return self.base_url is None or self.allow_push

    @property
    def refused(self) -> int:
        """How many pushes the sandbox's platform refuses."""
        return min(MOST_REFUSED, self.pushes // 8)


_USUAL: Final = DemoSettings()


@frozen
class Books:
    """Where the demo reads and pushes."""

    company_id: str
    connection_id: str
    name: str


@define
class Tally:
    """What the demo has seen."""

    report: ListReport = Factory(ListReport)
    outcomes: Counter[OutcomeStatus] = Factory(Counter)
    reasons: Counter[str] = Factory(Counter)
    streaming: float = 0.0
    pushing: float = 0.0
    seconds: float = 0.0


async def demo(*, settings: DemoSettings = _USUAL) -> None:
    """Stream invoices and push records at the same time, while some requests get 429 or 503.

    Everything runs against a sandbox in this process, unless you give --base-url.
    """
    out, err, tally = stdout(), Stderr(), Tally()
    say(err, "Streaming invoices and pushing records at the same time.")
    async with _server(settings, err) as service, service.client(timeout=120) as client:
        began = time.monotonic()
        books = await _pick(client)
        say(
            err,
            f"{settings.pushes:,} records are pushed to {books.name}."
            if settings.may_push
            else f"Nothing is pushed to {books.name} without --allow-push.",
        )
        board = Board(err)
        try:
            with board.shown():
                async with asyncio.TaskGroup() as jobs:
                    bar = board.bar("Streaming")
                    jobs.create_task(_stream(client, books, settings, bar, tally))
                    if settings.may_push:
                        bar = board.bar("Pushing")
                        jobs.create_task(_push(client, books, settings, bar, tally))
        except* IntegrationError as failed:
            raise failed.exceptions[0] from None
        tally.seconds = time.monotonic() - began
        stats = client.stats()
    show_table(out, "What happened", _rows(tally, stats, settings))


@asynccontextmanager
async def _server(settings: DemoSettings, err: Console) -> AsyncIterator[Service]:
    """Yield the user's server, or an embedded one with faults."""
    if settings.base_url is not None:
        yield Service(base_url=settings.base_url, api_key=settings.api_key)
        return
    async with Sandbox(invoices=settings.invoices, seed=settings.seed) as sandbox:
        _trouble(sandbox, settings)
        say(
            err,
            f"A sandbox serves at {sandbox.base_url}. A request takes it 10 to 50 ms, some get 429 "
            f"or 503 for a second, and its platform refuses {settings.refused} records.",
        )
        yield Service(base_url=sandbox.base_url, api_key=sandbox.api_key)


def _trouble(sandbox: Sandbox, settings: DemoSettings) -> None:
    """Make every request slow, and refuse two in a row twice on the way.

    A third would be the last attempt of a call that is the only one under way.
    """
    later = {"Retry-After": "1"}
    sandbox.faults.latency((0.01, 0.05))
    sandbox.faults.status(429, headers=later, skip=settings.pushes // 4, times=2)
    sandbox.faults.status(503, headers=later, skip=settings.pushes // 2 + 4, times=2)
    if settings.refused:
        sandbox.faults.fail_next_push("amount must be positive", times=settings.refused)


async def _pick(client: Client) -> Books:
    """Return the first company that has a connection, and that connection."""
    async for company in client.companies.list():
        connection = await client.company(company["id"]).connections.list().first()
        if connection is not None:
            return Books(company["id"], connection["id"], company.get("name") or company["id"])
    raise ConfigurationError("no company of this account has a connection: connect one first")


async def _stream(
    client: Client, books: Books, settings: DemoSettings, bar: Bar, tally: Tally
) -> None:
    pager = (
        client.company(books.company_id)
        .data("invoices")
        .list(page_size=settings.page_size, prefetch=settings.prefetch, limit=settings.invoices)
    )
    began = time.monotonic()
    done = 0
    async for page in pager.pages():
        done += len(page.results)
        total = min(page.total_results, settings.invoices)
        note = f"page {page.page_number}, {done / (time.monotonic() - began):,.0f}/s"
        bar.show(f"{done:,} of {total:,}", done / total if total else 1.0, note=note)
    tally.report, tally.streaming = pager.report, time.monotonic() - began


async def _push(
    client: Client, books: Books, settings: DemoSettings, bar: Bar, tally: Tally
) -> None:
    began = time.monotonic()
    connection = client.company(books.company_id).connection(books.connection_id)
    options = await connection.options("invoices")
    requests = (
        PushRequest(books.company_id, books.connection_id, "invoices", _example(options, number))
        for number in range(1, settings.pushes + 1)
    )

    def show(_: object = None) -> None:
        done, still = tally.outcomes.total(), pushes.progress.open
        counts = counted(tally.outcomes)
        note = ", ".join([*counts, f"{still:,} open"] if still else counts)
        bar.show(f"{done:,} of {settings.pushes:,}", done / settings.pushes, note=note)

    async with client.coordinator(max_open=MOST_OPEN, on_event=show) as pushes:
        async for outcome in pushes.run(requests):
            tally.outcomes[outcome.status] += 1
            tally.reasons.update(outcome.reasons)
            show()
    tally.pushing = time.monotonic() - began


def _example(described: PropertyDescription, number: int) -> Any:
    """Return a record that the options allow: plausible values of the required properties."""
    if described.options:
        return next((o.value for o in described.options if o.value is not None), None)
    match described.type:
        case "Object":
            return _required(described.properties, number)
        case "Array":
            return [_required(described.properties, number)]
        case "Number":
            return number
        case "Boolean":
            return True
        case "DateTime":
            return "2022-01-31T00:00:00Z"
        case _:
            return f"{described.display_name or 'Demo'} {number}"


def _required(properties: Mapping[str, PropertyDescription], number: int) -> dict[str, Any]:
    return {name: _example(one, number) for name, one in properties.items() if one.required}


def _rows(tally: Tally, stats: SessionStats, settings: DemoSettings) -> Iterator[tuple[str, str]]:
    """Yield the rows of the final table."""
    report = tally.report
    rate = report.items / tally.streaming if tally.streaming else 0.0
    yield "invoices streamed", f"{report.items:,} in {tally.streaming:.2f} s ({rate:,.0f}/s)"
    yield "pages", f"{report.pages:,}, {settings.prefetch} fetched ahead"
    if settings.may_push:
        done = tally.outcomes.total()
        yield "records pushed", f"{done:,} in {tally.pushing:.2f} s"
    for status in filter(tally.outcomes.get, OutcomeStatus):
        yield f"  {status}", f"{tally.outcomes[status]:,}"
    for reason, count in tally.reasons.most_common(REASONS_SHOWN):
        yield "  because", f"{reason} ({count:,})"
    yield "requests", f"{stats.attempts:,}"
    yield "  answered 429", f"{stats.throttled:,}"
    yield "  answered 503", f"{stats.unavailable:,}"
    yield "waits", f"{stats.waits:,}, {stats.waited:,.0f} s for all calls together"
    yield "wall time", f"{tally.seconds:.2f} s"
