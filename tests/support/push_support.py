"""Short ways to the outcome of a push at the virtual service, and a journal that breaks."""

from __future__ import annotations

import asyncio
import json
import sqlite3
import weakref
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Iterator, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, Literal

from integration_sdk import Client, Coordinator, OutcomeStatus, PushOutcome, PushRequest, Store
from integration_sdk._store.journal import Journal as Rows
from integration_sdk._store.journal import read_rows
from integration_sdk._store.row import Row, from_document
from integration_sdk._store.sql import SQLITE, Statement, tables, texts
from integration_sdk.errors import JournalError, JournalInUse, StoreUnavailable
from tests.support.virtual_service import Answer, Asked, Fault, Proceed, Service, no_answer, refusal

Hold = Callable[[list[Row]], Awaitable[None] | None]
Connect = Callable[..., Awaitable[Client]]
"""What the fixture ``connect`` is: it takes a service and a client's options."""
OF_CLIENT = (
    *("dialect", "middlewares", "notified", "numbers", "per_company"),
    *("rate", "read_timeout", "retry", "timeout"),
)
"""Options of the client, not of its coordinator."""
CLAIM = texts(SQLITE).claim


class Memory:
    """A database without a disk, in which whatever *journal* lets through is done at once.

    Attributes:
        is_dead: Whether nothing reaches it any more, as from a process that was killed.
    """

    words, connections = SQLITE, 1  # how often it was connected to

    def __init__(self, journal: Journal) -> None:
        self.shared, self.is_dead, self._journal = journal.is_shared, False, journal

    def listen(self, heard: Callable[[str], None]) -> None:
        """Call *heard* with what is told to all who share the database, at once."""
        self._journal.heard.append(heard)

    async def run(self, work: Sequence[Statement]) -> list[list[Any]]:
        journal, rows = self._journal, [row for one in work for row in _written(*one)]
        if rows:
            await (journal.before_write(rows) or asyncio.sleep(0))
        elif journal.unreadable is not None:
            raise journal.unreadable
        if self.is_dead:
            raise JournalError("the process is dead")
        found = journal.execute(work)
        if work[0][0] == CLAIM:
            rows = read_rows(found[0])
        if rows:
            await (journal.after_write(rows) or asyncio.sleep(0))
        return found


def _written(text: str, values: Sequence[object]) -> list[Row]:
    """Return the rows that a statement writes."""
    if not text.lstrip().startswith(("INSERT INTO pushes", "UPDATE pushes")) or len(values) != 2:
        return []
    given = json.loads(str(values[0])) if str(values[0]).startswith("[") else []
    return [
        from_document(one["document"], one["state"], version=one["version"], holder=one["holder"])
        for one in given
        if "document" in one
    ]


class Journal(Store):
    """A store without a disk that keeps everything, and that a test may hold up or break.

    Args:
        shared: Whether it is like a database that other processes use.
        beside: The one of another worker, whose database it shares.

    Attributes:
        before_write: Called with the rows of each write. It may raise; what it returns is awaited.
        after_write: Likewise, before the answer; also with rows that were claimed.
        unreadable: What every read raises.
    """

    def __init__(self, *, shared: bool = False, beside: Journal | None = None) -> None:
        super().__init__("not-a-file.db")
        self.before_write: Hold = lambda _: None
        self.after_write: Hold = lambda _: None
        self.unreadable: Exception | None = None
        if beside is None:
            # Closed with the journal, wherever the collector finds it.
            self._kept = sqlite3.connect(":memory:", isolation_level=None, check_same_thread=False)
            weakref.finalize(self, self._kept.close)
            for statement in tables(SQLITE):
                self._kept.execute(statement)
            self._kept.create_function("current_schema", 0, lambda: "")
            self._kept.create_function("pg_notify", 2, lambda _, text: self._tell(text))
            self._kept.create_function("julianday", 1, lambda _: _virtual_day())
            self.heard = list[Callable[[str], None]]()
        else:
            self._beside, self._kept, self.heard = beside, beside._kept, beside.heard
        self.is_shared, self._is_in_use = shared, False

    def _tell(self, text: str) -> None:
        for heard in self.heard:
            heard(text)

    def execute(self, work: Sequence[Statement]) -> list[list[Any]]:
        self._kept.execute("BEGIN")
        found = [
            self._kept.execute(text, dict(zip("1234", values, strict=False))).fetchall()
            for text, values in work
        ]
        self._kept.execute("COMMIT")
        return found

    async def _lend(self, *, base_url: str | None = None, dialect: str = "") -> Rows:
        if self._is_in_use:
            raise JournalInUse("in use by another coordinator")
        self._is_in_use = True
        self._memory = Memory(self)
        self._rows = Rows(self._memory)
        return self._rows

    async def _take_back(self) -> None:
        if self._is_in_use and not self._memory.is_dead:
            await self._rows.close()
        self._is_in_use = False

    async def aclose(self) -> None:
        """Keep what there is."""

    async def _recorded(self) -> list[Row]:
        return await Rows(Memory(self)).everything()

    def lapse(self) -> None:
        """Let the lease of whoever has the rows now end, as if it had been away for so long."""
        self.execute([(texts(SQLITE).bury, (self._rows.holder,))])

    def reconnect(self) -> None:
        """Let whoever has the rows now have lost the database, and found it again."""
        self._memory.connections += 1

    def lose_answer(self) -> None:
        """Have the next write be made, but its answer be lost with the connection."""

        def lost(_: list[Row]) -> None:
            self.after_write = lambda _: None
            self.reconnect()
            raise StoreUnavailable("away")

        self.after_write = lost

    def crash(self) -> None:
        """Let whoever has the rows now be as a process that was killed: nothing more is written."""
        self._memory.is_dead = True


def _virtual_day() -> float:
    """Return the time of the loop as SQLite tells it."""
    return 2440587.5 + asyncio.get_running_loop().time() / 86400


AJournal = Journal | Path


async def on_record(journal: AJournal) -> list[Row]:
    """Return all rows."""
    return await (journal if isinstance(journal, Store) else Store(journal))._recorded()


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


@asynccontextmanager
async def two_workers(
    service: Service, **options: Any
) -> AsyncIterator[tuple[Coordinator, Coordinator, Journal, Journal]]:
    """Open the coordinators of two workers that share a database; yield their journals, too."""
    journal = Journal(shared=True)
    beside = Journal(shared=True, beside=journal)
    async with (
        coordinator(service, journal=journal, **options) as pushes,
        coordinator(service, journal=beside, **options) as others,
    ):
        yield pushes, others, journal, beside


def request(number: int = 0, *, companies: int = 1, **options: Any) -> PushRequest:
    record = {"number": number}
    return PushRequest(f"c-{number % companies}", "books", "invoices", record, **options)


def requests(count: int, **options: Any) -> list[PushRequest]:
    return [request(number, **options) for number in range(count)]


class Input:
    """So many requests, which notes how many of them were read."""

    def __init__(self, count: int) -> None:
        self.count, self.pulled = count, 0

    def __iter__(self) -> Iterator[PushRequest]:
        for number in range(self.count):
            self.pulled += 1
            yield request(number)


def named(number: int = 1, reference: int | None = None, **options: Any) -> PushRequest:
    """Return a request with a reference: its number's, or that of another record."""
    reference = number if reference is None else reference
    return request(number, reference=f"INV-{reference}", **options)


async def pushed(
    pushes: Coordinator, one: PushRequest | None = None, **options: Any
) -> PushOutcome:
    """Submit *one* and await its outcome."""
    return await (await pushes.submit(one or request(), **options))


async def push_once(
    service: Service, one: PushRequest | None = None, **options: Any
) -> PushOutcome:
    """Open a coordinator, push *one*, and leave."""
    async with asyncio.timeout(100_000), coordinator(service, **options) as pushes:
        return await pushed(pushes, one)


async def run_once(
    service: Service, asked: Iterable[PushRequest], **options: Any
) -> list[PushOutcome]:
    """Open a coordinator, push what is *asked*, and leave; outcomes are in its order."""
    async with asyncio.timeout(100_000), coordinator(service, **options) as pushes:
        return await collect(pushes.run(asked, ordered=True))


def statuses(outcomes: Iterable[PushOutcome]) -> Counter[OutcomeStatus]:
    return Counter(outcome.status for outcome in outcomes)


def numbers(outcomes: Iterable[PushOutcome]) -> list[int]:
    return [outcome.request.record["number"] for outcome in outcomes]


async def collect(
    outcomes: AsyncIterator[PushOutcome], into: list[PushOutcome] | None = None
) -> list[PushOutcome]:
    """Gather outcomes; those that came before an exception are in *into*."""
    found = [] if into is None else into
    async for outcome in outcomes:
        found.append(outcome)
    return found


Fate = Literal["lost", "swallowed"] | Answer | None
"""It arrives and its answer is lost; it never arrives; it is answered so; all is well."""


def fated(*fates: Fate, ever: Fate = None, **facts: Any) -> Service:
    """Return a service at which the first pushes meet these *fates*, and later ones *ever*."""
    left = iter(fates)

    def answer(call: Asked) -> Answer | None:
        fate = next(left, ever) if call.kind == "push" else None
        if fate == "lost":
            service.carry_out(call)
        return no_answer() if isinstance(fate, str) else fate

    service = Service(answer=answer, **facts)
    return service


def first_ending(how: str) -> Service:
    """A service at which the first push ends like this, and all others succeed."""
    if how in {"lost", "swallowed"}:
        return fated(how)  # type: ignore[arg-type]  # one of these
    if how.isdigit():
        return fated(refusal(int(how)))
    ends = iter([how])
    return Service(status=lambda _: next(ends, "Success"))


def lagging(*, hidden: float = 0.0, late: float = 0.0) -> Fault:
    """Have lists hide new pushes for so many seconds, or show states that are as old."""

    def lag(asked: Asked, proceed: Proceed) -> Answer:
        asked.hidden, asked.late = hidden, late
        return proceed()

    return lag
