"""`Pager`: a list of the service that you can iterate over, await, collect or resume.

::

    async for invoice in pager: ...            items
    async for page in pager.pages(): ...       pages
    first_page = await pager
    some = await pager.collect(limit=500)
    async for batch in pager.chunks(200): ...

A `Pager` only describes the list. Each of these reads it anew: from the start, from ``cursor=``, or
from the checkpoint. ``pager.cursor``, ``report`` and ``progress`` refer to the latest reading. The
iterators are async generators: leaving one cancels its requests, and one that has raised is over.
``list(cursor=error.cursor)`` resumes.
"""

from __future__ import annotations

import asyncio
import os
import time
from collections.abc import AsyncGenerator, Callable, Generator, Iterator
from contextlib import aclosing, suppress
from inspect import iscoroutinefunction
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Any, Generic, Literal, NoReturn, TypeVar

from attrs import field, frozen

from integration_sdk._checks import needed, one_of, sendable, whole_number
from integration_sdk._http.requests import DEFAULT_PAGE_SIZE, Request
from integration_sdk._http.responses import FetchPage
from integration_sdk._list.changes import ChangesFilter, ChangeWalk, write_moment
from integration_sdk._list.cursor import Position, is_numbered, read_cursor, write_cursor
from integration_sdk._list.drift import DriftWatch, Keys, ListProgress, ListReport
from integration_sdk._list.page import NO_PAGE, Decode, ItemReader
from integration_sdk._list.reader import ListReader, OnDrift, OnInvalid
from integration_sdk._list.repair import RepairWalk
from integration_sdk._list.walk import MAX_EMPTY_PAGES, PageWalk, Walk
from integration_sdk._options_given import LARGEST_PAGE, MIB
from integration_sdk._system import sync_directory
from integration_sdk.errors import ConfigurationError, NotFound
from integration_sdk.models import Page

T = TypeVar("T")
T_co = TypeVar("T_co", covariant=True)
Key = str | Callable[[Any], Any]
MOST_AHEAD = 256
LONGEST_CURSOR = 64 * 1024


def _path(given: object) -> Path:
    if isinstance(given, str | os.PathLike) and isinstance(os.fspath(given), str):
        return Path(given)
    raise ConfigurationError(f"checkpoint must be the path of a file, not {given!r}")


@frozen
class Checkpoint:
    """A file that holds one cursor. It is replaced atomically.

    Attributes:
        path: The file. Its directory must exist.
    """

    path: Path = field(converter=_path)

    def load(self) -> str | None:
        """Return the cursor that was saved last; None if there is none.

        Raises:
            ConfigurationError: The file is not text or cannot be read, or its directory
                does not exist.
        """
        try:
            with self.path.open(encoding="ascii") as file:
                return file.read(LONGEST_CURSOR).strip() or None
        except FileNotFoundError:
            if not self.path.parent.is_dir():
                raise ConfigurationError(
                    f"checkpoint {self.path}: there is no directory {self.path.parent}; make it"
                ) from None
            return None
        except (OSError, ValueError) as error:
            raise ConfigurationError(f"checkpoint {self.path} cannot be read: {error}") from None

    def save(self, cursor: str) -> None:
        """Save *cursor*; once this returns, it survives a power cut.

        Raises:
            ConfigurationError: The file cannot be written, or *cursor* is not a cursor.
        """
        new = self.path.with_name(f".{self.path.name}.{os.urandom(4).hex()}.new")
        try:
            with new.open("x", encoding="ascii") as file:
                file.write(cursor)
                file.flush()
                os.fsync(file.fileno())
            new.replace(self.path)
            sync_directory(self.path.parent)
        except (OSError, TypeError, ValueError) as error:  # full; no cursor; no path
            with suppress(OSError, ValueError):  # on a disk that is read-only even this fails
                new.unlink()
            raise ConfigurationError(f"checkpoint {self.path} cannot be written: {error}") from None

    def clear(self) -> None:
        """Remove the file, so that the next run starts from the beginning.

        Raises:
            ConfigurationError: The file cannot be removed.
        """
        try:
            self.path.unlink(missing_ok=True)
        except (OSError, ValueError) as error:
            what = f"checkpoint {self.path} cannot be removed: {error}"
            raise ConfigurationError(what) from None


@frozen(kw_only=True)
class ListPage(Page[T_co]):
    """A `Page` that knows where the list continues.

    Attributes:
        cursor: The place after this page, for ``list(cursor=...)``.
    """

    cursor: str = field(repr=False)
    _checkpoint: Checkpoint | None = field(default=None, repr=False, eq=False)

    async def commit(self) -> None:
        """Save `cursor` to the checkpoint: this page and all before it are done.

        If a run is killed, the next one repeats only the page that was not committed.

        Raises:
            ConfigurationError: ``list()`` was given no checkpoint, or it cannot be written.
        """
        await _save(self._checkpoint, self.cursor)


class Pager(Generic[T_co]):
    """A list of the service. Nothing is requested until you iterate over it or await it.

    `Listing.list` makes it and explains the options. It fetches pages ahead, and yields what
    following ``_links.next`` page by page would yield, in the same order. After an error,
    ``list(cursor=error.cursor)`` resumes where it stopped, in any process.

    Example::

        invoices = client.company(company_id).data("invoices")
        async for invoice in invoices.list(page_size=1000): ...  # items, as they come
        async for batch in invoices.list().chunks(200): ...  # lists of 200
        first_page = await invoices.list()  # .results, .total_results, .cursor
        some = await invoices.list(query="status=Paid").collect(limit=50)

    Tasks that share a client may read many lists at once. There is no ``len()`` and no index: the
    service may change the list at any time.

    Source: "Pagination". Guides: docs/guides/stream.md, resume.md, companies.md.
    """

    def __init__(
        self,
        fetch: FetchPage,
        request: Request,  # for the first page
        *,
        base_url: str = "",  # absolute links must begin with it
        model: type[T_co] | None = None,
        decode: Decode | None = None,  # reads an item's bytes, in place of *model*
        page_size: int | None = None,
        prefetch: int = 4,
        max_bytes: int = 32 * MIB,
        limit: int | None = None,
        cursor: str | None = None,
        checkpoint: str | Path | Checkpoint | None = None,
        key: Key = "id",
        on_drift: OnDrift = "report",
        max_empty_pages: int = MAX_EMPTY_PAGES,
        on_invalid: OnInvalid | None = None,
        numbers: Literal["float", "decimal"] = "float",
        changes: ChangesFilter | None = None,  # *request* has its text already
        timeout: float | None = None,  # for a page
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        _check_options(prefetch, max_bytes, limit, on_drift, numbers)
        _check_callbacks(key, on_invalid, decode)
        self._fetch = fetch
        self._size_given = page_size
        self._page_size = _page_size(page_size, request)
        self._request = request.with_params(pageSize=str(self._page_size))
        self._base_url = base_url
        self._reader = ItemReader.of(model, decode, exact=numbers == "decimal")
        self._prefetch = prefetch
        self._max_bytes = max_bytes
        self._limit = limit
        self._max_empty = whole_number("max_empty_pages", max_empty_pages, 0, 2**63)
        self._checkpoint = _checkpoint(checkpoint)
        self._changes = changes
        self._on_invalid = on_invalid
        self._on_drift = on_drift
        self._keys = Keys.of(key, self._reader.value)
        self._timeout = timeout
        self._clock = clock
        self._cursor = cursor
        self._start = self._starting_position()
        self._reading: ListReader[T_co] | None = None

    def __repr__(self) -> str:
        return f"<Pager of {self._request.path} at {self._position.done} items>"

    # Reading

    if not TYPE_CHECKING:  # type checkers refuse "for" by themselves

        def __iter__(self) -> NoReturn:
            raise TypeError("use 'async for' to read this list, or 'await' its collect()")

    def __aiter__(self) -> AsyncGenerator[T_co]:
        """Iterate over the items, from the start or the cursor."""
        return _items(self._read())

    def raw(self) -> AsyncGenerator[bytes]:
        """Iterate over the items' bytes as the service wrote them, undecoded.

        Use it to pass items on, into a file or another parser. Order, cursor, `report` and
        *on_drift* work as with items. ``list(model=msgspec.Raw)`` gives the same in pages and
        chunks.
        """
        return _items(self._read(reader=ItemReader(bytes)))

    async def pages(self) -> AsyncGenerator[ListPage[T_co]]:
        """Iterate over the pages, including empty ones."""
        reading = self._read(want_extra=True)
        async with reading.running():
            while (results := await reading.next_page()) is not None:
                yield self._page(reading, results)

    def chunks(self, size: int) -> AsyncGenerator[list[T_co]]:
        """Iterate over lists of *size* items; the last one may be shorter."""
        whole_number("size", size, 1, 2**31 - 1)
        return _chunks(self._read(), size)

    def arrow(
        self, rows: int = 50_000, numbers: Literal["decimal", "float"] = "decimal"
    ) -> AsyncGenerator[Any]:
        """Iterate over `pyarrow.RecordBatch` objects of *rows* items; needs the extra ``[arrow]``.

        A column for each top-level field, of a kind that is learned once: a later batch may have
        more columns, and no column changes its type. Numbers are decimal(38, 18), exact; ISO times
        are timestamps in UTC, cut to microseconds; objects and lists are JSON text. What does not
        fit its column is JSON text in ``<field>__json`` beside it.

        Args:
            rows: Items in a batch; the last one may have fewer.
            numbers: "float" gives doubles, to compute and plot with.

        Raises:
            ConfigurationError: pyarrow is missing.
        """
        needed("pyarrow", "arrow", "arrow()")
        whole_number("rows", rows, 1, 2**31 - 1)
        one_of("numbers", numbers, ("decimal", "float"))
        from integration_sdk._list.batches import batches  # noqa: PLC0415 - an extra

        return batches(self.raw(), rows, numbers)

    def __await__(self) -> Generator[Any, None, ListPage[T_co]]:
        """Return the first page."""
        return self._first_page().__await__()

    async def first(self) -> T_co | None:
        """Return the first item, or None if the list is empty."""
        async with aclosing(_items(self._read(prefetch=0, one_call=True))) as items:
            item: T_co | None = await anext(items, None)
            return item

    async def one(self) -> T_co:
        """Return the first item.

        Raises:
            NotFound: The list is empty.
        """
        async with aclosing(_items(self._read(prefetch=0, one_call=True))) as items:
            item: T_co
            async for item in items:
                return item
        raise NotFound("This list is empty: one() needs an item; first() gives None instead")

    async def collect(self, limit: int | None = None) -> list[T_co]:
        """Return all items, or the first *limit* of them. They must fit into memory."""
        items: list[T_co] = []
        _check_limit(limit)
        reading = self._read(limit=limit)
        async with reading.running():
            reading.held_at = reading.position
            while (ready := await reading.more()) is not None:
                reading.collect(items, ready)
            reading.held_at = None
        return items

    async def _first_page(self) -> ListPage[T_co]:
        reading = self._read(prefetch=0, want_extra=True, one_call=True)
        async with reading.running():
            return self._page(reading, await reading.next_page() or [])

    def _page(self, reading: ListReader[T_co], results: list[T_co]) -> ListPage[T_co]:
        page = reading.items.page if reading.items else NO_PAGE
        return ListPage(
            results=results,
            **page.facts,
            cursor=reading.cursor,
            checkpoint=self._checkpoint,
        )

    def _read(
        self,
        *,
        prefetch: int | None = None,
        limit: int | None = None,
        want_extra: bool = False,
        one_call: bool = False,
        reader: ItemReader | None = None,
    ) -> ListReader[Any]:
        bound = min((n for n in (limit, self._limit) if n is not None), default=None)
        watches = self._on_drift != "repair" and self._changes is None
        told = self._on_drift in {"warn", "raise"}
        self._start = self._starting_position()
        self._reading = ListReader(
            walk=self._walk(self._prefetch if prefetch is None else prefetch, bound),
            reader=reader or self._reader,
            fetch=self._fetch,
            clock=self._clock,
            on_invalid=self._on_invalid,
            on_drift=self._on_drift,
            watch=DriftWatch(self._keys, every_key=told) if watches else None,
            want_extra=want_extra,
            one_call=one_call,
            timeout=self._timeout,
        )
        return self._reading

    def _walk(self, prefetch: int, limit: int | None) -> Walk:
        facts: dict[str, Any] = {
            "request": self._request,
            "start": self._start,
            "prefetch": prefetch,
            "max_bytes": self._max_bytes,
            "limit": limit,
        }
        if self._changes is not None:
            return ChangeWalk(**facts, size=self._page_size, keys=self._keys, changes=self._changes)
        if self._on_drift == "repair":
            return RepairWalk(**facts, size=self._page_size, keys=self._keys)
        return PageWalk(**facts, base_url=self._base_url, max_empty=self._max_empty)

    # Where it is

    @property
    def cursor(self) -> str:
        """The place after the last item that you received, as text.

        Store it with the rows, and pass it to the same list as ``list(cursor=...)``, at any time
        and in any process.
        """
        return write_cursor(self._request, self._position)

    @property
    def watermark(self) -> str:
        """The moment to pass to the next run as ``list(changed_since=...)``, as ISO 8601 in UTC.

        You have received all changes before it. You can take it at any time; at the end of the list
        it is the moment of the last change. Records of exactly that moment come again in the next
        run, so merge them by key.

        Raises:
            ConfigurationError: This list was made without ``changed_since=``.
        """
        if self._changes is None:
            raise ConfigurationError("there is no watermark; use list(changed_since=...)")
        return write_moment(self._changes.moment_in(self._position.params))

    @property
    def report(self) -> ListReport:
        """Counts of the reading so far; a copy that does not change later."""
        return self._reading.current_report() if self._reading else ListReport()

    @property
    def progress(self) -> ListProgress:
        """How far the reading has got, and how fast it is."""
        if self._reading is None:
            return ListProgress(done=self._start.done, total=self._start.total, rate=0.0, eta=None)
        return self._reading.progress

    async def commit(self) -> None:
        """Save `cursor` to the checkpoint: all items received so far are done.

        Raises:
            ConfigurationError: ``list()`` was given no checkpoint, or it cannot be written.
        """
        await _save(self._checkpoint, self.cursor)

    @property
    def _position(self) -> Position:
        return self._reading.position if self._reading else self._start

    def _starting_position(self) -> Position:
        position = self._saved_position()
        if self._on_drift == "repair" and not is_numbered(self._request, position):
            raise ConfigurationError(
                'on_drift="repair" continues from page numbers only, and this cursor holds a link; '
                "continue with another on_drift"
            )
        return position

    def _saved_position(self) -> Position:
        if self._cursor is not None:
            return read_cursor(self._request, self._cursor, self._size_given)
        place = self._checkpoint
        saved = place.load() if place else None
        if place is None or saved is None:
            return self._beginning()
        try:
            return read_cursor(self._request, saved, self._size_given)
        except ConfigurationError as error:
            what = f"{error}; or remove the file to start over"
        raise ConfigurationError(f"checkpoint {place.path}: {what}")

    def _beginning(self) -> Position:
        if self._changes is not None:
            since = self._changes.since
            return Position(params=self._changes.params(self._request, since, self._page_size))
        before = int(dict(self._request.params).get("page", 1)) - 1
        return Position(params=self._request.params, done=before * self._page_size)


async def _items(reading: ListReader[T]) -> AsyncGenerator[T]:
    async with reading.running():
        while (ready := await reading.more()) is not None:
            while True:
                try:
                    for item in ready:
                        yield item
                    break
                except Exception as error:  # a model's own code may raise anything
                    reading.unfit(error)


async def _chunks(reading: ListReader[T], size: int) -> AsyncGenerator[list[T]]:
    async with reading.running():
        ready: Iterator[T] | None = iter(())
        while ready is not None:
            reading.held_at, chunk = reading.position, list[T]()
            while ready is not None:
                reading.collect(chunk, islice(ready, size - len(chunk)))
                if len(chunk) == size:
                    break
                ready = await reading.more()
            reading.held_at = None
            if chunk:
                yield chunk


async def _save(checkpoint: Checkpoint | None, cursor: str) -> None:
    """Save *cursor* to *checkpoint* without blocking the event loop."""
    if checkpoint is None:
        raise ConfigurationError("there is no checkpoint to commit to; use list(checkpoint=path)")
    await asyncio.to_thread(checkpoint.save, cursor)


def _checkpoint(given: str | Path | Checkpoint | None) -> Checkpoint | None:
    return given if given is None or isinstance(given, Checkpoint) else Checkpoint(given)


def _page_size(given: int | None, request: Request) -> int:
    if given is None:
        return int(dict(request.params).get("pageSize", DEFAULT_PAGE_SIZE))
    return whole_number("page_size", given, 1, LARGEST_PAGE)


def _check_callbacks(key: object, on_invalid: object, decode: object) -> None:
    if not (isinstance(key, str) or callable(key)):
        raise ConfigurationError(f"key must be a field's name or a function, not {key!r}")
    if isinstance(key, str):
        sendable("key", key)
    for name, function in (("on_invalid", on_invalid), ("decode", decode)):
        if not (function is None or callable(function)):
            raise ConfigurationError(f"{name} must be a function, or None, not {function!r}")
    for name, function in (("key", key), ("on_invalid", on_invalid), ("decode", decode)):
        if iscoroutinefunction(function):
            raise ConfigurationError(f"{name} must be a plain function; it is not awaited")


def _check_limit(limit: object) -> None:
    if limit is not None:
        whole_number("limit", limit, 0, 2**63)


def _check_options(
    prefetch: object, max_bytes: object, limit: object, on_drift: object, numbers: object
) -> None:
    whole_number("prefetch", prefetch, 0, MOST_AHEAD)
    whole_number("max_bytes", max_bytes, 1, 2**63)
    _check_limit(limit)
    one_of("on_drift", on_drift, ("report", "warn", "raise", "repair"))
    one_of("numbers", numbers, ("float", "decimal"))
