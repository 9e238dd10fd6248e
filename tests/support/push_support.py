"""Short ways to a coordinator of a client of the virtual service, and a journal that breaks."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Collection, Sequence
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any, TypeVar

from msgspec import structs

from benchmarks.virtual_service import Answer, Asked, Fault, Proceed, Service, no_answer
from integration_sdk import Client, Coordinator, Store
from integration_sdk._outcome import PushOutcome
from integration_sdk._store.memory import MemoryRows
from integration_sdk._store.row import Row, State
from integration_sdk._store.rows import Rows
from integration_sdk.dialect import Dialect
from integration_sdk.errors import JournalError
from integration_sdk.models import PushRequest

DOCUMENT = Dialect.document()
T = TypeVar("T")
Connect = Callable[..., Awaitable[Client]]
"""What the fixture ``connect`` is: it takes a service and a client's options."""
OF_CLIENT = (
    *("dialect", "middlewares", "notified", "numbers", "per_company"),
    *("rate", "read_timeout", "retry", "timeout"),
)
"""Options of the client, not of its coordinator."""


class Journal(Store):
    """A store without a disk that keeps everything, and that a test may hold up or break.

    Attributes:
        kept: What is on record.
        before_write: Called with the rows of each write. It may raise; what it returns is awaited.
        after_write: Likewise, before the answer.
        unreadable: What every read raises.
    """

    def __init__(self) -> None:
        super().__init__()
        self.kept = MemoryRows(durable=True)
        self.before_write: Callable[[Sequence[Row]], Awaitable[None] | None] = lambda _: None
        self.after_write: Callable[[Sequence[Row]], Awaitable[None] | None] = lambda _: None
        self.unreadable: Exception | None = None
        self._rows = _Lent(self)

    async def lend(self, *, base_url: str | None = None, dialect: str = "") -> Rows:
        await super().lend(base_url=base_url, dialect=dialect)
        await self.kept.release()
        self._rows = _Lent(self)
        return self._rows

    async def recorded(self) -> list[Row]:
        return await self.kept.rows()

    def crash(self) -> None:
        """Let whoever has the rows now be as a process that was killed: nothing more is written."""
        self._rows.is_dead = True


class _Lent:
    """Rows whose writes go on when their caller is cancelled, as those of a file do."""

    durable, shared = True, False

    def __init__(self, journal: Journal) -> None:
        self._journal = journal
        self.is_dead = False

    def add(self, rows: Sequence[Row]) -> Awaitable[list[Row]]:
        return self._written(rows, lambda: self._journal.kept.add(rows))

    def put(self, rows: Sequence[Row], add: Sequence[Row] = ()) -> Awaitable[None]:
        return self._written([*rows, *add], lambda: self._journal.kept.put(rows, add))

    def decide(self, row: Row, add: Sequence[Row] = ()) -> Awaitable[None]:
        return self.put([row], add)

    def _written(self, rows: Sequence[Row], write: Callable[[], T]) -> asyncio.Future[T]:
        async def commit() -> T:
            held_up = self._journal.before_write(rows)
            if held_up is not None:
                await held_up
            self._check()
            written = write()
            held_up = self._journal.after_write(rows)
            if held_up is not None:
                await held_up
            return written

        return asyncio.ensure_future(commit())

    def _check(self) -> None:
        if self.is_dead:
            raise JournalError("the process is dead")

    def _read(self) -> MemoryRows:
        self._check()
        if self._journal.unreadable is not None:
            raise self._journal.unreadable
        return self._journal.kept

    async def take(self, company: str) -> list[Row] | None:
        return await self._read().take(company)

    async def rows(self, **conditions: Any) -> list[Row]:
        return await self._read().rows(**conditions)

    async def owners(self, keys: Collection[str]) -> set[str]:
        return await self._read().owners(keys)

    async def companies(self) -> list[str]:
        return await self._read().companies()

    def news(self) -> AsyncIterator[str]:
        return self._journal.kept.news()

    async def release(self) -> None:
        pass


async def leave_behind(journal: Journal | Path, *rows: Row) -> None:
    """Put rows on record as a crash leaves them."""
    async with journal if isinstance(journal, Store) else Store(journal) as store:
        kept = await store.lend()
        for row in rows:
            added = kept.add([structs.replace(row, state=State.QUEUED, key=None)])
            made = kept.put([structs.replace(row, version=row.version + 1)])
            assert isinstance(added, Awaitable)
            assert isinstance(made, Awaitable)
            await asyncio.gather(added, made)


async def on_record(journal: Journal | Path) -> list[Row]:
    """Return all rows."""
    return await (journal if isinstance(journal, Store) else Store(journal)).recorded()


def breaking(breaks: Callable[[str], BaseException | None]) -> Any:
    """Return a middleware that raises what *breaks* returns for a method and path."""

    async def middleware(request: Any, handler: Any) -> Any:
        if (error := breaks(f"{request.method} {request.url.path}")) is not None:
            raise error
        return await handler(request)

    return middleware


@asynccontextmanager
async def coordinator(service: Service, **options: Any) -> AsyncIterator[Coordinator]:
    """Open a coordinator, of a client of its own."""
    of_client = {name: options.pop(name) for name in OF_CLIENT if name in options}
    if dialect := of_client.get("dialect"):
        service.connection_name = dialect.connection_name or service.connection_name
    async with service.client(**of_client) as client, client.coordinator(**options) as pushes:
        yield pushes


def request(number: int = 0, *, companies: int = 1, **options: Any) -> PushRequest:
    record = {"number": number}
    return PushRequest(f"c-{number % companies}", "books", "invoices", record, **options)


def unanswered(asked: Asked, proceed: Proceed) -> Answer:
    """Carry out pushes, and lose the answers."""
    return replace(proceed(), cut=0) if asked.kind == "push" else proceed()


def swallowed(asked: Asked, proceed: Proceed) -> Answer:
    """Lose pushes on their way."""
    return no_answer() if asked.kind == "push" else proceed()


def lagging(*, hidden: float = 0.0, late: float = 0.0) -> Fault:
    """Have lists hide new pushes for so many seconds, or show states that are as old."""

    def lag(asked: Asked, proceed: Proceed) -> Answer:
        asked.hidden, asked.late = hidden, late
        return proceed()

    return lag


async def listed(client: Client, service: Service) -> None:
    """Have polls list company 0, because others' pushes end."""
    others = [service.add("c-0", "another") for _ in range(5)]
    await asyncio.gather(*(client.wait(one.key, company_id=one.company) for one in others))
    del service.pushes["c-0"][-len(others) :]  # or lists would grow all day


def searches(service: Service) -> int:
    """Return how often lists were read to find what is in doubt; polls have other pages."""
    lists = (asked.params for asked in service.log if asked.kind == "list")
    return sum((one["pageSize"], one["page"]) == ("500", "1") for one in lists)


def requests(count: int, **options: Any) -> list[PushRequest]:
    return [request(number, **options) for number in range(count)]


async def collect(
    outcomes: AsyncIterator[PushOutcome], into: list[PushOutcome] | None = None
) -> list[PushOutcome]:
    """Gather outcomes; those that came before an exception are in *into*."""
    found = [] if into is None else into
    async for outcome in outcomes:
        found.append(outcome)
    return found


def numbers(outcomes: Sequence[PushOutcome]) -> list[int]:
    return [outcome.request.record["number"] for outcome in outcomes]
