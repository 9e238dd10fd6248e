"""Reads a unit part by part, and has each committed."""

from __future__ import annotations

import asyncio
import errno
from collections.abc import Awaitable, Iterator, Sequence
from contextlib import aclosing, suppress
from hashlib import sha256
from pathlib import Path
from typing import Any, Final, TypeVar

from attrs import define, field
from msgspec.structs import replace

from integration_sdk._companies import Company
from integration_sdk._context import RequestContext
from integration_sdk._options_given import PullOptions
from integration_sdk._pull.databases import DuckDb, Postgres
from integration_sdk._pull.folder import Folder
from integration_sdk._pull.sql import SqlSink
from integration_sdk._pull.unit import ATTEMPTS, Moved, Unit, UnitReceipt, Unusable
from integration_sdk._resources import Listing, Records
from integration_sdk._store.postgres import is_url, shown
from integration_sdk.errors import (
    BadRequest,
    ConfigurationError,
    Conflict,
    IntegrationError,
    NotFound,
    PaginationError,
    PullError,
)

T = TypeVar("T")
PAGE_SIZE: Final = 1_000
LIST_BYTES: Final = 4 << 20
"""What a list needs for its pages; fewer units are read at a time if there is less."""
LOOKS: Final = 3
"""How often two totals are compared, in case the list changes between them."""
LATER: Final = 1.0
"""Seconds until a unit is tried again that another process has, or whose state has changed."""


@define(eq=False)
class UnitReader:
    """Reads units into a sink, some at a time; it begins when it is made."""

    _context: RequestContext
    _sink: Folder | SqlSink
    _options: PullOptions
    _units: Sequence[Unit]
    _turns: asyncio.Semaphore = field(init=False)
    _list_bytes: int = field(init=False)
    _reading: list[asyncio.Task[UnitReceipt]] = field(init=False)
    _ends: Iterator[Awaitable[UnitReceipt]] = field(init=False)

    def __attrs_post_init__(self) -> None:
        half = self._options.max_bytes // 2
        at_once = max(1, min(len(self._units), self._options.at_once, half // LIST_BYTES))
        self._turns = asyncio.Semaphore(at_once)
        self._list_bytes = half // at_once
        self._reading = [asyncio.create_task(self._read_in_turn(unit)) for unit in self._units]
        self._ends = asyncio.as_completed(self._reading)

    async def next_ended(self) -> UnitReceipt:
        """Return the receipt of the next unit that has ended."""
        return await next(self._ends)

    async def aclose(self) -> None:
        """Stop reading; a part that is being written is written to its end."""
        await cancel(self._reading)

    async def _read_in_turn(self, unit: Unit) -> UnitReceipt:
        while True:
            async with self._turns:
                if await self._read(unit):
                    return unit.receipt
            await asyncio.sleep(LATER)

    async def _read(self, unit: Unit) -> bool:
        """Read a unit to its end and write it; return False if it is to be begun again later."""
        receipt = unit.receipt
        try:
            return await self._begin_and_read(unit)
        except Moved:
            unit.moves += 1
            if unit.moves < ATTEMPTS:
                return False
            receipt.error = PullError(f"{unit}: what is on record of it changes all the time")
        except Conflict:
            receipt.skipped = "not ready" if unit.is_linked else "not linked"
        except NotFound as error:
            if self._is_known(receipt.data_type):
                receipt.skipped = "not found"
            else:  # perhaps it is misspelt
                receipt.error = error
        except IntegrationError as error:
            receipt.error = error
        except OSError as error:
            kind = Unusable if error.errno in {errno.ENOSPC, errno.EDQUOT} else PullError
            receipt.error = kind(f"{unit} cannot be written, run again to go on: {error}")
        finally:
            unit.pager = None
            await to_the_end(self._sink.release(unit))
        return True

    def _is_known(self, data_type: str) -> bool:
        dialect = self._context.dialect
        known = {*dialect.company_types, *dialect.connection_types, "bankTransactions"}
        return dialect.path_name(data_type) in known

    async def _begin_and_read(self, unit: Unit) -> bool:
        full = self._options.full and not unit.begun
        if not await to_the_end(self._sink.begin(unit, full=full)):
            return False  # another process has it
        if full or unit.state.snapshot:
            await self._renew(unit, snapshot=unit.state.snapshot and not full)
        unit.begun = True
        try:
            state = unit.state
            if state.is_live and not state.read and await self._is_empty(unit):
                return True
            if state.snapshot or state.read or await self._has_changes(unit):
                await self._read_on(unit)
                return True
        except (BadRequest, PaginationError):
            if unit.state.snapshot:
                raise
        await self._renew(unit, snapshot=True)  # it cannot be read by changes
        await self._read_on(unit)
        return True

    async def _renew(self, unit: Unit, *, snapshot: bool) -> None:
        unit.whole = unit.state if unit.state.is_live and not self._options.full else None
        await to_the_end(self._sink.commit(unit, [], unit.state.renewed(snapshot=snapshot)))

    async def _read_on(self, unit: Unit) -> None:
        unit.pager = pager = self._records(unit).list(
            changed_since=None if unit.state.snapshot else "beginning",
            cursor=unit.state.cursor,
            page_size=PAGE_SIZE,
            max_bytes=self._list_bytes,
        )
        part_bytes = min(self._options.part_bytes, self._list_bytes // 2)
        items, size, failed = list[bytes](), 0, None
        try:
            async with aclosing(pager.raw_pages()) as pages:
                async for some in pages:
                    items += some
                    size += sum(map(len, some))
                    if size >= part_bytes:
                        await to_the_end(self._write(unit, items, pager.cursor))
                        items, size = [], 0
        except (BadRequest, PaginationError):
            raise
        except IntegrationError as error:  # what was read before it is kept
            failed = error
        finally:
            unit.receipt.requests += pager.report.requests
            unit.receipt.waits += pager.report.waits
        await to_the_end(self._write(unit, items, pager.cursor, is_end=failed is None))
        if failed is not None:
            raise failed

    async def _write(
        self, unit: Unit, items: list[bytes], cursor: str, *, is_end: bool = False
    ) -> None:
        state, digest = unit.state, ""
        if state.snapshot and is_end and not state.read:  # else it is written anew each time
            digest = (await asyncio.to_thread(sha256, b"\n".join(items))).hexdigest()
        after = replace(
            state,
            cursor=None if state.snapshot else cursor,
            read=state.read + len(items),
            live=state.generation if is_end else state.live,
            digest=digest,
        )
        if digest and unit.whole is not None and unit.whole.digest == digest:
            items, after = [], unit.whole  # what is shown is the same
        if after != state:
            await self._sink.commit(unit, items, after)

    async def _is_empty(self, unit: Unit) -> bool:
        unit.receipt.requests += 1
        return not (await self._records(unit).list(page_size=1)).results

    async def _has_changes(self, unit: Unit) -> bool:
        """Return whether it can be read by changes: its records have ids, and all have a date.

        A filter omits those without a date. So two lists are compared, again if one changed
        between them.
        """
        for _ in range(LOOKS):
            dated = await self._records(unit).list(changed_since="beginning", page_size=1)
            whole = await self._records(unit).list(page_size=1)
            unit.receipt.requests += 2
            if any(record.get("id") is None for record in dated.results):
                return False
            if (dated.total_results or 0) >= (whole.total_results or 0):
                return True
        return False

    def _records(self, unit: Unit) -> Listing[Any]:
        data_type, company_id, connection_id, account_id = unit.place
        if connection_id:
            connection = Company(self._context, companyId=company_id).connection(connection_id)
            accounts = connection.bank_accounts
            return accounts.transactions(account_id) if account_id else connection.data(data_type)
        name = self._context.dialect.path_name(data_type)
        return Records(self._context, "data.list", companyId=company_id, dataType=name)


async def cancel(tasks: Sequence[asyncio.Task[Any]]) -> None:
    """Cancel *tasks*, and wait until they have ended."""
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)


async def to_the_end(work: Awaitable[T]) -> T:
    """Await *work*, however often the caller is cancelled: it would go on behind the caller.

    Then the cancellation is raised even if *work* failed, so that nobody tries it again.
    """
    running = asyncio.ensure_future(work)
    try:
        return await asyncio.shield(running)
    except asyncio.CancelledError:
        while not running.done():
            with suppress(asyncio.CancelledError):
                await asyncio.wait([running])
        if not running.cancelled():
            running.exception()  # so that asyncio does not report it as unseen
        raise


def open_sink(options: PullOptions, *, shared: bool = False) -> Folder | SqlSink:
    """Return the place to write to.

    Raises:
        ConfigurationError: The format does not write there, or a package is missing.
    """
    to, format_ = str(options.to), options.format
    if format_ is None:
        format_ = "postgres" if is_url(to) else "duckdb" if to.endswith(".duckdb") else None
    if not is_url(to) if format_ == "postgres" else "://" in to:
        place = "postgresql:// URL" if format_ == "postgres" else "path"
        raise ConfigurationError(f"to must be a {place}, not {shown(to)}")
    if options.compression is not None and format_ not in {"ndjson", None}:
        raise ConfigurationError(f"compression is for ndjson, not {format_}")
    if format_ == "postgres":
        return SqlSink(Postgres(to))
    if format_ == "duckdb":
        if options.dask is not None:
            raise ConfigurationError("a DuckDB file has one writer; with Dask, write elsewhere")
        return SqlSink(DuckDb(Path(to)))
    return Folder(Path(to), format_, options.compression, shared)
