"""Short ways to a poller and a coordinator over `push_model.Model`."""

from __future__ import annotations

import asyncio
import random
from collections.abc import AsyncIterator, Awaitable, Callable, Collection, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, TypeVar

from msgspec import structs

from integration_sdk import Coordinator, Store
from integration_sdk._push.poller import Poller
from integration_sdk._store.memory import MemoryRows
from integration_sdk._store.row import Row, State
from integration_sdk._store.rows import Rows
from integration_sdk.dialect import Dialect
from integration_sdk.errors import JournalError
from integration_sdk.models import PushOutcome, PushRequest
from tests.push_model import Model, request

DOCUMENT = Dialect.document()
T = TypeVar("T")


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


def poller(model: Model, **options: Any) -> Poller:
    return Poller(model.send, DOCUMENT, chance=random.Random(7).random, **options)


@asynccontextmanager
async def coordinator(model: Model, **options: Any) -> AsyncIterator[Coordinator]:
    polls = options.pop("polls", None) or poller(model)
    dialect = options.pop("dialect", DOCUMENT)
    model.connection_name = model.connection_name or dialect.connection_name
    try:
        async with Coordinator(
            model,
            polls,
            dialect,
            chance=random.Random(8).random,
            **options,
        ) as pushes:
            yield pushes
    finally:
        await polls.aclose()


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
