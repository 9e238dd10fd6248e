"""Short ways to a poller and a coordinator over `push_model.Model`."""

from __future__ import annotations

import asyncio
import random
from collections.abc import AsyncIterator, Awaitable, Callable, Collection, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, TypeVar

from msgspec import structs

from integration_sdk._push.coordinator import Coordinator
from integration_sdk._push.poller import Poller
from integration_sdk._store.memory import MemoryRows
from integration_sdk._store.row import Row, State
from integration_sdk._store.store import Store
from integration_sdk.dialect import Dialect
from integration_sdk.errors import JournalError
from integration_sdk.models import PushOutcome, PushRequest
from tests.push_model import Model, request

DOCUMENT = Dialect.document()
T = TypeVar("T")


class Journal(Store):
    """A store without a disk that keeps everything, and whose writes a test may hold up or refuse.

    Attributes:
        before_write: Called with the rows of each write. It may raise; what it returns is awaited.
        is_dead: Whether it answers nothing any more.
        rows: What is on record.
    """

    is_dead = False

    def __init__(self) -> None:
        super().__init__()
        self.before_write: Callable[[Sequence[Row]], Awaitable[None] | None] = lambda _: None
        self.rows = _KeptRows(self)

    async def lend(self, *, base_url: str | None = None, dialect: str = "") -> MemoryRows:
        return self.rows


class _KeptRows(MemoryRows):
    """Rows whose writes go on when their caller is cancelled, as those of a file do."""

    def __init__(self, journal: Journal) -> None:
        super().__init__(durable=True)
        self._journal = journal

    def add(self, rows: Sequence[Row]) -> Awaitable[list[Row]]:  # type: ignore[override]
        return self._written(rows, lambda: MemoryRows.add(self, rows))

    def put(self, rows: Sequence[Row], add: Sequence[Row] = ()) -> Awaitable[None]:  # type: ignore[override]
        return self._written([*rows, *add], lambda: MemoryRows.put(self, rows, add))

    def decide(self, row: Row, add: Sequence[Row] = ()) -> Awaitable[None]:  # type: ignore[override]
        return self.put([row], add)

    async def rows(self, **which: Any) -> list[Row]:
        self._check()
        return await super().rows(**which)

    async def owners(self, keys: Collection[str]) -> set[str]:
        self._check()
        return await super().owners(keys)

    def _check(self) -> None:
        if self._journal.is_dead:
            raise JournalError("its process is dead")

    def _written(self, rows: Sequence[Row], write: Callable[[], T]) -> asyncio.Future[T]:
        async def commit() -> T:
            self._check()
            held_up = self._journal.before_write(rows)
            if held_up is not None:
                await held_up
            return write()

        return asyncio.ensure_future(commit())


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


async def die(journal: Journal, pushing: Sequence[asyncio.Future[Any]]) -> None:
    """Stop everything of a coordinator without another word to its journal, as a kill does."""
    journal.is_dead = True
    doomed: set[asyncio.Future[Any]] = set(pushing)
    while doomed:
        for task in doomed:
            task.cancel()
        await asyncio.gather(*doomed, return_exceptions=True)
        doomed = {*asyncio.all_tasks()} - {asyncio.current_task()}
    journal.is_dead = False
    await journal.rows.release()


async def leave(path: Path, *rows: Row) -> None:
    """Put rows on record as an earlier run has left them."""
    async with Store(path) as store:
        kept = await store.lend()
        for row in rows:
            for made in (
                kept.add([structs.replace(row, state=State.QUEUED, key=None)]),
                kept.put([structs.replace(row, version=row.version + 1)]),
            ):
                assert isinstance(made, Awaitable)
                await made


async def recorded(path: Path) -> list[Row]:
    """Return what is on record."""
    async with Store(path) as store:
        return await store.recorded()


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
