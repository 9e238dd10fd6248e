"""The loop: many units at once, under one bound of memory, each with its data and cursor.

A unit reads on while its last part is being written. Parts are prepared in two threads and
committed in order. What was read before an error is written; then the unit ends, and the others
go on.
"""

from __future__ import annotations

import asyncio
import errno
import re
from collections.abc import AsyncIterator, Callable, Collection, Generator
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractAsyncContextManager
from difflib import get_close_matches
from typing import Any, Final

import msgspec
from attrs import define, field, frozen

import integration_sdk
from integration_sdk._list.changes import MODIFIED
from integration_sdk._pull.receipts import Receipt, UnitReceipt
from integration_sdk._pull.sink import NOTHING, Packed, Sink
from integration_sdk._pull.state import Identity, PullState, Unit
from integration_sdk._pull.unit import (
    Phase,
    UnitState,
    ended,
    marked,
    newer_than,
    read_all,
    read_stamp,
    started,
    with_part,
)
from integration_sdk._records.columns import Columns
from integration_sdk._store.row import Fenced
from integration_sdk._store.rows import Documents
from integration_sdk._store.waiting import to_the_end
from integration_sdk.errors import (
    ApiError,
    BadRequest,
    ConfigurationError,
    IntegrationError,
    NotFound,
    PaginationError,
    PaymentRequired,
    PullError,
    Unauthorized,
)

PAGE_SIZE: Final = 1_000
LIST_BYTES: Final = 4 << 20
"""What a list may need for its pages, at least; fewer are read at a time if there is not that."""
EPOCH: Final = "0001-01-01T00:00:00Z"
SECONDS_BETWEEN_CLAIMS: Final = 1.0
LOOKS: Final = 5
"""How often to compare two totals, in case the list changes between them."""
KNOWN_TYPES: Final = re.findall(
    r"\w+",
    """
    accounts accountTransactions balanceSheet bankAccounts bankTransactions billCreditNotes
    billPayments bills cashFlowStatement chartOfAccounts company creditNotes customers
    directCosts directIncomes invoices itemReceipts items journalEntries journals paymentMethods
    payments profitAndLoss purchaseOrders salesOrders suppliers taxRates trackingCategories
    transfers
    """,
)
"""Assumed: as published. Others are asked for."""


@frozen(kw_only=True)
class PullOptions:
    """What to pull, and how.

    Attributes:
        data_types: Such as ``invoices``.
        companies: Their ids; None for all of the account.
        full: Read each unit as a whole, and replace it.
        at_once: Units at a time; fewer if *max_bytes* does not suffice for so many.
        max_bytes: Half for records, half for pages.
        part_bytes: The size of a part, at most; less where many units share *max_bytes*.
    """

    data_types: Collection[str]
    companies: Collection[str] | None
    full: bool
    at_once: int
    max_bytes: int
    part_bytes: int


@frozen(kw_only=True)
class PullProgress:
    """How far a pull has got.

    Attributes:
        units, done: Units in all, and those that have ended; 0 before they are known.
        records: Records read in this run.
        reading: For each unit that is being read its name, the records that it has read of its
            list, and how many there are, if known.
    """

    units: int
    done: int
    records: int
    reading: tuple[tuple[str, int, int | None], ...]


@define(eq=False)
class _Work:
    """A unit under way."""

    unit: Unit
    pager: integration_sdk.Pager[Any] | None = None
    writing: asyncio.Task[None] | None = None
    requests: int = 0
    waits: float = 0.0
    stamps: tuple[str, str] | None = None
    failed: bool = False
    """A part could not be written."""
    error: IntegrationError | None = None


@define(eq=False)
class Pull:
    """A pull: await it to get a `Receipt`, or iterate over its units as they end.

    ::

        receipt = await client.pull(["invoices"], to="out/")
        async for unit in client.pull(["invoices"], to="out/"):
            print(unit.company_id, unit.data_type, unit.rows, unit.error)
    """

    _client: integration_sdk.Client
    _identity: Callable[[Sink], Identity]
    _sink: Sink
    _store: Callable[[], AbstractAsyncContextManager[Documents]]
    _options: PullOptions
    _state: PullState = field(init=False)
    _threads: ThreadPoolExecutor = field(init=False)
    _working: dict[int, _Work] = field(init=False, factory=dict)
    _units: int = field(init=False, default=0)
    _ended: list[UnitReceipt] = field(init=False, factory=list)
    _part_bytes: int = field(init=False, default=0)
    _list_bytes: int = field(init=False, default=0)
    _stopped_by: IntegrationError | None = field(init=False, default=None)

    def __await__(self) -> Generator[Any, None, Receipt]:
        """Run it; return the receipt, in which units may have errors."""
        return self._run_to_end().__await__()

    async def _run_to_end(self) -> Receipt:
        return await self._run(lambda _: None)

    async def __aiter__(self) -> AsyncIterator[UnitReceipt]:
        """Run it, and yield each unit as it ends; leaving the loop ends it."""
        told: asyncio.Queue[UnitReceipt | None] = asyncio.Queue()
        running = asyncio.create_task(self._run(told.put_nowait))
        running.add_done_callback(lambda _: told.put_nowait(None))
        try:
            while (unit := await told.get()) is not None:
                yield unit
            await running
        finally:
            running.cancel()
            await asyncio.wait([running])

    @property
    def progress(self) -> PullProgress:
        """How far it has got."""
        reading = []
        for work in self._working.values():
            seen = work.pager.progress if work.pager else None
            reading.append((str(work.unit), seen.done if seen else 0, seen.total if seen else None))
        records = sum(unit.read for unit in self._ended)
        records += sum(work.unit.read for work in self._working.values())
        return PullProgress(
            units=self._units, done=len(self._ended), records=records, reading=tuple(reading)
        )

    # The run

    async def _run(self, tell: Callable[[UnitReceipt], object]) -> Receipt:
        self._threads = ThreadPoolExecutor(2, "pull")
        try:
            owner = await self._sink.open()
            pairs = await self._pairs()
            async with self._store() as documents:
                self._state = PullState(documents)
                await self._introduce(owner)
                return await self._run_units(pairs, tell)
        except OSError as error:
            raise PullError(f"{self._sink.target} cannot be written: {error}") from error
        finally:
            await self._sink.aclose()
            self._threads.shutdown()

    async def _run_units(
        self, pairs: list[tuple[str, str]], tell: Callable[[UnitReceipt], object]
    ) -> Receipt:
        await self._state.begin_run()
        await self._state.load_columns(self._options.data_types)
        self._units = len(pairs)
        half = self._options.max_bytes // 2
        together = max(1, min(self._options.at_once, len(pairs), half // LIST_BYTES))
        self._list_bytes = half // together
        # Twice, since a unit reads on while its last part is written.
        self._part_bytes = min(self._options.part_bytes, half // (2 * together))
        slots = asyncio.Semaphore(together)
        left = pairs
        while left and self._stopped_by is None:
            left = await self._take_turns(left, slots, tell)
            if left:
                await asyncio.sleep(SECONDS_BETWEEN_CLAIMS)
        receipt = Receipt(units=tuple(self._ended), run=self._state.run)
        if not isinstance(self._stopped_by, PullError):  # a full disk
            await self._sink.keep(receipt)
        if self._stopped_by is not None:
            raise self._stopped_by
        return receipt

    async def _take_turns(
        self,
        pairs: list[tuple[str, str]],
        slots: asyncio.Semaphore,
        tell: Callable[[UnitReceipt], object],
    ) -> list[tuple[str, str]]:
        """Pull these units; return those that another process has."""
        taken: list[tuple[str, str]] = []

        async def pull(pair: tuple[str, str]) -> None:
            if not await self._pull(*pair, tell):
                taken.append(pair)

        try:
            async with asyncio.TaskGroup() as group:
                for pair in pairs:
                    await slots.acquire()
                    if self._stopped_by is not None:
                        break
                    group.create_task(pull(pair)).add_done_callback(lambda _: slots.release())
        except BaseExceptionGroup as group_:
            raise group_.exceptions[0] from None
        return taken

    async def _pairs(self) -> list[tuple[str, str]]:
        """Return company and type of each unit.

        Raises:
            ConfigurationError: There is no such company or type.
        """
        options = self._options
        pager = self._client.companies.list(page_size=PAGE_SIZE, model=_Company)
        companies = [company.id async for company in pager]
        for wanted in options.companies or ():
            if wanted not in companies:
                raise ConfigurationError(f"there is no company {wanted}")
        if options.companies is not None:
            companies = [one for one in companies if one in set(options.companies)]
        for data_type in options.data_types:
            if data_type not in KNOWN_TYPES and companies:
                await self._look_for(data_type, companies[0])
        return [(company, data_type) for data_type in options.data_types for company in companies]

    async def _look_for(self, data_type: str, company_id: str) -> None:
        try:
            await self._client.company(company_id).data(data_type).list(page_size=1)
        except (NotFound, BadRequest) as error:
            near = get_close_matches(data_type, KNOWN_TYPES, n=1)
            hint = f'; did you mean "{near[0]}"?' if near else ""
            raise ConfigurationError(f'there is no data type "{data_type}"{hint}') from error
        except ApiError:
            return  # not ready, forbidden: its units will say so

    async def _introduce(self, owner: str | None) -> None:
        """Make sure that store and sink belong together.

        Raises:
            ConfigurationError: They do not.
        """
        ours = self._identity(self._sink)
        known = await self._state.identity()
        if owner is not None and (known is None or known.id != owner):
            raise ConfigurationError(
                f"{self._sink.target} was written with another store (pull {owner[:8]}); "
                "pass that one"
            )
        if known is not None:
            here = (known.target, known.format) == (ours.target, ours.format)
            if owner is None and not here:
                raise ConfigurationError(
                    f"the store belongs to a pull into {known.target} as {known.format}; "
                    'use another scope: Store(..., scope="books")'
                )
            for ours_, theirs in ((ours.base_url, known.base_url), (ours.dialect, known.dialect)):
                if ours_ != theirs:
                    raise ConfigurationError(
                        f"{self._sink.target} was pulled from {theirs}, not {ours_}"
                    )
        identity = await self._state.introduce(ours)
        await self._sink.introduce(identity.id)

    # A unit

    async def _pull(
        self, company_id: str, data_type: str, tell: Callable[[UnitReceipt], object]
    ) -> bool:
        """Pull a unit, if another process does not have it."""
        unit = await self._state.claim(company_id, data_type)
        if unit is None:
            return False
        if self._state.is_done(unit, full=self._options.full):
            self._units -= 1
            await self._state.give_back(unit)
            return True
        work = _Work(unit)
        self._working[id(work)] = work
        try:
            await self._read_and_write(work)
        except Fenced:
            work.error = PullError(f"another process has taken over {unit}, and goes on with it")
        except (PaymentRequired, Unauthorized) as error:
            work.error = self._stopped_by = error  # nothing else would be answered either
        except IntegrationError as error:
            work.error = error
        finally:
            del self._working[id(work)]
            await self._state.give_back(unit)
        receipt = UnitReceipt(
            company_id=company_id,
            data_type=data_type,
            rows=unit.rows,
            read=unit.read,
            first_change=work.stamps and work.stamps[0],
            last_change=work.stamps and work.stamps[1],
            requests=work.requests,
            waits=work.waits,
            state=unit.state,
            error=work.error,
        )
        self._ended.append(receipt)
        tell(receipt)
        return True

    async def _read_and_write(self, work: _Work) -> None:
        unit, full = work.unit, self._options.full
        try:
            state = await self._sink.begin(unit, full=full)
            unit.state = state
            after = started(state, self._state.run, unit.latest_run, full=full)
            if after.generation != state.generation:
                await self._sink.commit(unit, NOTHING, after)
            unit.state = after
            if after.phase is Phase.MARK:
                await self._sink.commit(unit, NOTHING, await self._mark(unit))
            if unit.state.phase is Phase.ALL:
                await self._take(work)
                if unit.state.next is not None:
                    await self._sink.commit(unit, NOTHING, read_all(unit.state))
            if unit.state.phase is Phase.CHANGES:
                await self._take(work)
            await self._sink.finish(unit, ended(unit.state))
        except OSError as error:
            raise self._cannot_write(unit, error) from error

    def _cannot_write(self, unit: Unit, error: OSError) -> PullError:
        parts = unit.state.parts - unit.state.first
        what = f"{parts} parts of {unit} are safe, run again to go on"
        if error.errno == errno.ENOSPC:
            full = PullError(f"no space left for {self._sink.target}; {what}")
            self._stopped_by = full
            return full
        return PullError(f"{self._sink.target} cannot be written: {error}; {what}")

    async def _mark(self, unit: Unit) -> UnitState:
        """Find out whether the list can be read by changes, and from where on."""
        books = self._client.company(unit.company_id).data(unit.data_type)
        try:
            newest = await self._newest_if_complete(books)
            if newest is None:
                return marked(unit.state, None, None, snapshot=False)
            changes = books.list(changed_since=newest, page_size=PAGE_SIZE)
            async for _ in changes.raw():
                pass
        except (BadRequest, PaginationError, _Unfit):
            await books.list(page_size=1)  # whether it can be read at all
            return marked(unit.state, None, None, snapshot=True)
        return marked(unit.state, changes.watermark, changes.cursor, snapshot=False)

    async def _newest_if_complete(self, books: integration_sdk.Listing[Any]) -> str | None:
        """Return when the newest record was changed; None if there are no records.

        Raises:
            _Unfit: Not every record says when it was changed.
        """
        for _ in range(LOOKS):
            newest = await books.list(order_by=f"-{MODIFIED}", page_size=1, model=msgspec.Raw)
            if not newest.results:
                return None
            stamp = read_stamp(bytes(newest.results[0]))
            if stamp is None:
                raise _Unfit
            dated = await books.list(changed_since=EPOCH, page_size=1)
            if newest.total_results == dated.total_results:
                return stamp
            if (await books.list(page_size=1)).total_results == newest.total_results:
                raise _Unfit
        return stamp  # the list changes all the time

    async def _take(self, work: _Work) -> None:
        """Read what the phase of a unit reads, and write it in parts."""
        unit = work.unit
        work.pager = pager = self._pager(unit)
        items: list[bytes] = []
        size = 0
        try:
            async for item in pager.raw():
                items.append(item)
                size += len(item)
                if size >= self._part_bytes:
                    # The cursor is taken with nothing awaited since the last item.
                    await self._write(work, items, pager.cursor)
                    items, size = [], 0
            await self._write(work, items, pager.cursor)
        except IntegrationError:
            # A later part would jump the gap that a failed one leaves.
            if not work.failed:
                await self._write(work, items, pager.cursor)
            raise
        finally:
            report = pager.report
            work.requests += report.requests
            work.waits += report.waits
            await self._written(work)

    def _pager(self, unit: Unit) -> integration_sdk.Pager[Any]:
        state = unit.state
        books = self._client.company(unit.company_id).data(unit.data_type)
        if state.phase is Phase.ALL:
            return books.list(
                cursor=state.cursor,
                on_drift="repair",
                page_size=PAGE_SIZE,
                max_bytes=self._list_bytes,
            )
        return books.list(
            changed_since=EPOCH,
            cursor=state.cursor,
            page_size=PAGE_SIZE,
            max_bytes=self._list_bytes,
        )

    async def _write(self, work: _Work, items: list[bytes], cursor: str) -> None:
        """Begin to write the next part, once the one before is written."""
        await self._written(work)
        if items or cursor != work.unit.state.cursor:
            writing = self._pack_and_commit(work, items, cursor)
            work.writing = asyncio.create_task(writing)

    async def _written(self, work: _Work) -> None:
        """Wait until the part that is being written is committed, even if cancelled."""
        task, work.writing = work.writing, None
        if task is not None:
            await to_the_end(task)

    async def _pack_and_commit(self, work: _Work, items: list[bytes], cursor: str) -> None:
        unit = work.unit
        try:
            packed = await self._packed(work, items)
            after = with_part(
                unit.state,
                cursor,
                rows=packed.rows,
                size=packed.size,
                sums=packed.sums,
                rejects=len(packed.rejects),
            )
            await self._sink.commit(unit, packed, after)
        except BaseException:
            work.failed = True
            raise
        unit.read += len(items)
        unit.rows += packed.rows

    async def _packed(self, work: _Work, items: list[bytes]) -> Packed:
        """Pack *items* with the columns that are known, or learn more first."""
        loop = asyncio.get_running_loop()
        data_type = work.unit.data_type
        known = self._state.columns(data_type)
        while True:
            packed = await loop.run_in_executor(self._threads, self._pack, work, items, known)
            if packed.columns == known:
                return packed
            columns = await self._state.learn(data_type, known, packed.columns)
            if columns == packed.columns:
                return packed
            known = columns  # another unit has learned something else meanwhile

    def _pack(self, work: _Work, items: list[bytes], columns: Columns) -> Packed:
        state = work.unit.state
        stamps = [read_stamp(item) for item in items]
        dated = [stamp for stamp in stamps if stamp is not None]
        if dated:
            first, last = work.stamps or (dated[0], dated[0])
            work.stamps = min(first, *dated), max(last, *dated)
        if state.phase is Phase.ALL and state.since is not None:
            # The changes bring those that were changed after the mark.
            is_newer = newer_than(state.since)
            pairs = zip(items, stamps, strict=True)
            items = [item for item, stamp in pairs if not is_newer(stamp)]
        if not items:
            return Packed(columns=columns)
        return self._sink.pack(work.unit, items, columns)


class _Company(msgspec.Struct):
    id: str


class _Unfit(Exception):
    """The list cannot be read by changes."""
