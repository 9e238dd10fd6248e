"""Reads units and writes them: many at once, under one bound of memory.

A unit reads on while its last part is being written. Parts are prepared in two threads and
committed in order. What was read before an error is written; then the unit ends.
"""

from __future__ import annotations

import asyncio
import errno
from collections.abc import Collection
from concurrent.futures import ThreadPoolExecutor
from typing import Any, Final

import msgspec
from attrs import define, field, frozen

import integration_sdk
from integration_sdk._list.changes import MODIFIED
from integration_sdk._pull.receipts import UnitReceipt
from integration_sdk._pull.sink import NOTHING, Packed, Sink
from integration_sdk._pull.state import PullState, Unit
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
from integration_sdk._records.old_columns import Columns
from integration_sdk._store.row import Fenced
from integration_sdk._store.waiting import to_the_end
from integration_sdk.errors import (
    BadRequest,
    IntegrationError,
    PaginationError,
    PaymentRequired,
    PullError,
    Unauthorized,
)

PAGE_SIZE: Final = 1_000
LIST_BYTES: Final = 4 << 20
"""What a list may need for its pages, at least; fewer are read at a time if there is not that."""
EPOCH: Final = "0001-01-01T00:00:00Z"
LOOKS: Final = 5
"""How often to compare two totals, in case the list changes between them."""


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


@define(eq=False)
class Work:
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

    def receipt(self) -> UnitReceipt:
        """Return what was done."""
        unit = self.unit
        return UnitReceipt(
            company_id=unit.company_id,
            data_type=unit.data_type,
            rows=unit.rows,
            read=unit.read,
            first_change=self.stamps and self.stamps[0],
            last_change=self.stamps and self.stamps[1],
            requests=self.requests,
            waits=self.waits,
            state=unit.state,
            error=self.error,
        )


@define(eq=False)
class Units:
    """Reads units and writes them, up to *together* at a time.

    Attributes:
        working: Those that are under way.
        stopped_by: Why no more can be read.
        threads: To be left when all is done.
    """

    _client: integration_sdk.Client
    _sink: Sink
    _state: PullState
    _options: PullOptions
    together: int
    working: dict[int, Work] = field(init=False, factory=dict)
    stopped_by: IntegrationError | None = field(init=False, default=None)
    threads: ThreadPoolExecutor = field(init=False, factory=lambda: ThreadPoolExecutor(2, "pull"))
    _part_bytes: int = field(init=False)
    _list_bytes: int = field(init=False)

    def __attrs_post_init__(self) -> None:
        half = self._options.max_bytes // 2
        self.together = max(1, min(self.together, self._options.at_once, half // LIST_BYTES))
        self._list_bytes = half // self.together
        # Twice, since a unit reads on while its last part is written.
        self._part_bytes = min(self._options.part_bytes, half // (2 * self.together))

    async def pull(self, company_id: str, data_type: str) -> UnitReceipt | None:
        """Read a unit and write it, unless that was done since the run began.

        Returns:
            None if another process has it, or has taken it over: ask again later.
        """
        unit = await self._state.claim(company_id, data_type)
        if unit is None:
            return None
        work = Work(unit)
        self.working[id(work)] = work
        try:
            if not self._state.is_done(unit, full=self._options.full):
                await self._read_and_write(work)
        except Fenced:
            return None
        except (PaymentRequired, Unauthorized) as error:
            work.error = self.stopped_by = error  # nothing else would be answered either
        except IntegrationError as error:
            work.error = error
        finally:
            del self.working[id(work)]
            await self._state.give_back(unit)
        return work.receipt()

    async def _read_and_write(self, work: Work) -> None:
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
            if isinstance(error, FileNotFoundError):
                await unit.save(unit.state)  # if another process has the unit, it moved the file
            raise self._cannot_write(unit, error) from error

    def _cannot_write(self, unit: Unit, error: OSError) -> PullError:
        parts = unit.state.parts - unit.state.first
        what = f"{parts} parts of {unit} are safe, run again to go on"
        if error.errno == errno.ENOSPC:
            full = PullError(f"no space left for {self._sink.target}; {what}")
            self.stopped_by = full
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

    async def _take(self, work: Work) -> None:
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
        is_whole = unit.state.phase is Phase.ALL
        return (
            self._client.company(unit.company_id)
            .data(unit.data_type)
            .list(
                changed_since=None if is_whole else EPOCH,
                cursor=unit.state.cursor,
                on_drift="repair" if is_whole else "report",
                page_size=PAGE_SIZE,
                max_bytes=self._list_bytes,
            )
        )

    async def _write(self, work: Work, items: list[bytes], cursor: str) -> None:
        """Begin to write the next part, once the one before is written."""
        await self._written(work)
        if items or cursor != work.unit.state.cursor:
            writing = self._pack_and_commit(work, items, cursor)
            work.writing = asyncio.create_task(writing)

    async def _written(self, work: Work) -> None:
        """Wait until the part that is being written is committed, even if cancelled."""
        task, work.writing = work.writing, None
        if task is not None:
            await to_the_end(task)

    async def _pack_and_commit(self, work: Work, items: list[bytes], cursor: str) -> None:
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

    async def _packed(self, work: Work, items: list[bytes]) -> Packed:
        """Pack *items* with the columns that are known, or learn more first."""
        loop = asyncio.get_running_loop()
        data_type = work.unit.data_type
        known = self._state.columns(data_type)
        while True:
            packed = await loop.run_in_executor(self.threads, self._pack, work, items, known)
            if packed.columns == known:
                return packed
            columns = await self._state.learn(data_type, known, packed.columns)
            if columns == packed.columns:
                return packed
            known = columns  # another unit has learned something else meanwhile

    def _pack(self, work: Work, items: list[bytes], columns: Columns) -> Packed:
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


class _Unfit(Exception):
    """The list cannot be read by changes."""
