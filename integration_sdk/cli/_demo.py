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


async def demo(*, settings: DemoSettings = _USUAL) -> None:
    """Stream invoices and push records at the same time, while some requests get 429 or 503.

    Everything runs against a sandbox in this process, unless you give --base-url.
    """
    out, err = stdout(), Stderr()
    say(err, "Streaming invoices and pushing records at the same time.")
    async with _server(settings, err) as service, service.client(timeout=120) as client:
        began = time.monotonic()
        show = await _show(client, settings)
        say(
            err,
            f"{settings.pushes:,} records are pushed to {show.name}."
            if settings.may_push
            else f"Nothing is pushed to {show.name} without --allow-push.",
        )
        board = Board(err)
        try:
            with board.shown():
                async with asyncio.TaskGroup() as jobs:
                    jobs.create_task(show.stream(board.bar("Streaming")))
                    if settings.may_push:
                        jobs.create_task(show.push(board.bar("Pushing")))
        except* IntegrationError as failed:
            raise failed.exceptions[0] from None
        rows = list(show.rows(time.monotonic() - began))
    show_table(out, "What happened", rows)


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


async def _show(client: Client, settings: DemoSettings) -> Show:
    """Return a demo with the first company that has a connection, and that connection."""
    async for company in client.companies.list():
        connection = await client.company(company["id"]).connections.list().first()
        if connection is not None:
            name = company.get("name") or company["id"]
            return Show(client, settings, company["id"], connection["id"], name)
    raise ConfigurationError("no company of this account has a connection: connect one first")


@define
class Show:
    """What the demo does with the books of a company, and what it has seen."""

    client: Client
    settings: DemoSettings
    company_id: str
    connection_id: str
    name: str
    report: ListReport = Factory(ListReport)
    outcomes: Counter[OutcomeStatus] = Factory(Counter)
    reasons: Counter[str] = Factory(Counter)
    streaming: float = 0.0
    pushing: float = 0.0

    async def stream(self, bar: Bar) -> None:
        """Read the invoices."""
        most = self.settings.invoices
        invoices = self.client.company(self.company_id).data("invoices")
        pager = invoices.list(
            page_size=self.settings.page_size, prefetch=self.settings.prefetch, limit=most
        )
        began, done = time.monotonic(), 0
        async for page in pager.pages():
            done += len(page.results)
            total = min(page.total_results, most)
            note = f"page {page.page_number}, {done / (time.monotonic() - began):,.0f}/s"
            bar.show(f"{done:,} of {total:,}", done / total if total else 1.0, note=note)
        self.report, self.streaming = pager.report, time.monotonic() - began

    async def push(self, bar: Bar) -> None:
        """Push records that the options allow."""
        began, most = time.monotonic(), self.settings.pushes
        connection = self.client.company(self.company_id).connection(self.connection_id)
        options = await connection.options("invoices")
        requests = (
            PushRequest(self.company_id, self.connection_id, "invoices", _example(options, number))
            for number in range(1, most + 1)
        )

        def show(_: object = None) -> None:
            done, still = self.outcomes.total(), pushes.progress.open
            counts = counted(self.outcomes)
            note = ", ".join([*counts, f"{still:,} open"] if still else counts)
            bar.show(f"{done:,} of {most:,}", done / most, note=note)

        async with self.client.coordinator(max_open=MOST_OPEN, on_event=show) as pushes:
            async for outcome in pushes.run(requests):
                self.outcomes[outcome.status] += 1
                self.reasons.update(outcome.reasons)
                show()
        self.pushing = time.monotonic() - began

    def rows(self, seconds: float) -> Iterator[tuple[str, str]]:
        """Yield the rows of the final table; all of it took *seconds*."""
        report, stats = self.report, self.client.stats()
        rate = report.items / self.streaming if self.streaming else 0.0
        yield "invoices streamed", f"{report.items:,} in {self.streaming:.2f} s ({rate:,.0f}/s)"
        yield "pages", f"{report.pages:,}, {self.settings.prefetch} fetched ahead"
        if self.settings.may_push:
            yield "records pushed", f"{self.outcomes.total():,} in {self.pushing:.2f} s"
        for status in filter(self.outcomes.get, OutcomeStatus):
            yield f"  {status}", f"{self.outcomes[status]:,}"
        for reason, count in self.reasons.most_common(REASONS_SHOWN):
            yield "  because", f"{reason} ({count:,})"
        yield "requests", f"{stats.attempts:,}"
        yield "  answered 429", f"{stats.throttled:,}"
        yield "  answered 503", f"{stats.unavailable:,}"
        yield "waits", f"{stats.waits:,}, {stats.waited:,.0f} s for all calls together"
        yield "wall time", f"{seconds:.2f} s"


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
