"""`Pager`: a list of the service that you can iterate over, await, collect or resume.

::

    async for invoice in pager: ...            items
    async for page in pager.pages(): ...       pages
    first_page = await pager
    some = await pager.collect(limit=500)
    async for batch in pager.chunks(200): ...

A `Pager` only describes the list. Each of these starts a new reading (a `Stream`), from the
start, from ``cursor=``, or from the checkpoint. ``pager.cursor``, ``report`` and ``progress``
refer to the latest reading. When an iterator is closed or garbage-collected, its requests are
cancelled, even if the pager still exists.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Generator
from datetime import datetime
from inspect import iscoroutinefunction
from pathlib import Path
from typing import TYPE_CHECKING, Any, Generic, Literal, NoReturn, TypedDict, TypeVar

from integration_sdk._checks import one_of, sendable, whole_number
from integration_sdk._http.requests import (
    DEFAULT_PAGE_SIZE,
    LARGEST_PAGE,
    MIB,
    Request,
)
from integration_sdk._http.responses import FetchPage
from integration_sdk._list.changes import (
    ChangesFilter,
    ChangeWalk,
    write_moment,
)
from integration_sdk._list.checkpoint import Checkpoint
from integration_sdk._list.cursor import Position, is_numbered, read_cursor, write_cursor
from integration_sdk._list.drift import DriftWatch, Keys, Order
from integration_sdk._list.page import Decode, ItemReader
from integration_sdk._list.page_queue import PageQueue
from integration_sdk._list.page_size import START, PageSize
from integration_sdk._list.page_walk import MAX_EMPTY_PAGES, PageWalk
from integration_sdk._list.reader import OnDrift, OnInvalid, Stream
from integration_sdk._list.readings import Chunks, Items, ListPage, Pages, save
from integration_sdk._list.repair import RepairWalk
from integration_sdk._list.report import ListProgress, ListReport
from integration_sdk._list.walk import Walk
from integration_sdk.errors import ConfigurationError

T_co = TypeVar("T_co", covariant=True)
Key = str | Callable[[Any], Any]
MOST_AHEAD = 256


class ListOptions(TypedDict, total=False):
    """The options of every ``list()``.

    Attributes:
        page_size: Items per page, 1 to 5000, default 100. "auto" adapts it to the size and speed
            of the answers: a page that takes too long is requested again in smaller sizes, up
            to twice, each time with the client's timeout (not if you await a single page).
        page: Number of the page to begin with, counted from 1 in pages of *page_size*.
        query: A filter, such as ``status=Paid&&totalAmount>1000``.
        order_by: A field, or ``-field`` for descending order.
        changed_since: A moment, as an aware datetime or as text such as an earlier
            ``pager.watermark``. Only records that were changed then or later are read, in that
            order. One that is changed meanwhile comes again; none is missed, whatever is changed
            while you read. Deletions are not seen, nor records without the field. The service
            must filter and order by it, its clock must not go back, and a record must appear at
            the moment that it names, not later.
        changed_by: The field that says when a record was changed, default ``modifiedDate``
            (assumed: the document does not show it).
        prefetch: Pages to fetch ahead of the one being read, 0 to 256, default 4.
        max_bytes: How many bytes of pages to hold in memory, counting those being fetched;
            approximate, default 32 MiB.
        limit: Maximum number of items to read.
        cursor: A ``pager.cursor``; reading continues after the item where it was taken.
        checkpoint: A file; reading continues from the cursor in it, and ``commit()`` saves to it.
            The file is not removed at the end of the list; ``Checkpoint(path).clear()`` does that.
        key: What identifies an item: the name of a field, default ``id``, or a function of the
            item.
        on_drift: What to do when the list changes while it is read. "report", the default, only
            counts what it notices at no cost in `ListReport`: a total that changes or is not
            reached, items that are on two pages in a row, an order by a number or moment that
            goes backwards. "warn" and "raise" also see each key that came on any page before,
            such as that of a record that was edited and moved; they keep all keys, about 120
            bytes an item. They issue a `DriftWarning`, or raise `ResultSetChanged`. None of
            these can see that a record was missed, if as many came as went and none came twice.
            "repair" can: it reads pages that overlap, which may be larger than *page_size*, so
            that each record that stays, and is not itself moved, comes exactly once. It keeps
            keys and hashes, about 150 bytes an item, and cannot see a record that moves to a
            part that was read already.
        max_empty_pages: How many empty pages in a row to follow, default 100,000; one more is a
            `PaginationError`. "repair" gives up after 60 pages in a row without a new item.
        on_invalid: Called with an `InvalidItem` for each item that does not fit the model. By
            default it is raised.
        numbers: How to read fractions: as "float", or exactly, as "decimal". Defaults to the
            client's setting. In a model the types of its fields decide.
    """

    page_size: int | Literal["auto"]
    page: int | None
    query: str | None
    order_by: str | None
    changed_since: datetime | str | None
    changed_by: str
    prefetch: int
    max_bytes: int
    limit: int | None
    cursor: str | None
    checkpoint: str | Path | Checkpoint | None
    key: Key
    on_drift: OnDrift
    max_empty_pages: int
    on_invalid: OnInvalid | None
    numbers: Literal["float", "decimal"]


class Pager(Generic[T_co]):
    """A list of the service. Nothing is requested until you iterate over it or await it.

    It yields what following ``_links.next`` page by page would yield, in the same order, and
    fetches pages ahead. After an error, the same iterator can go on where it stopped; another
    process can continue from the error's ``cursor``.

    Args:
        fetch: Sends a request and returns the answer, whatever its status.
        request: The request for the first page.
        base_url: The URL of the service; absolute links must begin with it.
        model: Class of the items; None for plain values.
        order_by: The order that *request* asks for.
        decode: Reads the bytes of an item, instead of *model*.
        changes: The filter for ``changed_since=``; *request* has its text.
        timeout: Seconds to wait for a page, in whatever sizes it is requested; None for no limit.
            With ``page_size="auto"`` each size has the timeout of *fetch*.
        clock: Seconds, monotonic.

    The other arguments are described in `ListOptions`.

    Raises:
        ConfigurationError: An option has a value that cannot work.

    Source: "Pagination".
    """

    def __init__(
        self,
        fetch: FetchPage,
        request: Request,
        *,
        base_url: str = "",
        model: type[T_co] | None = None,
        decode: Decode | None = None,
        page_size: int | Literal["auto"] | None = None,
        prefetch: int = 4,
        max_bytes: int = 32 * MIB,
        limit: int | None = None,
        cursor: str | None = None,
        checkpoint: str | Path | Checkpoint | None = None,
        key: Key = "id",
        on_drift: OnDrift = "report",
        max_empty_pages: int = MAX_EMPTY_PAGES,
        order_by: str | None = None,
        on_invalid: OnInvalid | None = None,
        numbers: Literal["float", "decimal"] = "float",
        changes: ChangesFilter | None = None,
        timeout: float | None = None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        _check_options(prefetch, max_bytes, limit, on_drift, numbers)
        _check_callbacks(key, on_invalid, decode)
        self._fetch = fetch
        self._auto = page_size == "auto"
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
        self._order = Order.by(order_by)
        self._timeout = None if self._auto else timeout
        self._clock = clock
        self._cursor = cursor
        self._start = self._starting_position()
        self._stream: Stream[T_co] | None = None

    def __repr__(self) -> str:
        return f"<Pager of {self._request.path} at {self._position.done} items>"

    # Reading

    if not TYPE_CHECKING:  # type checkers refuse "for" by themselves

        def __iter__(self) -> NoReturn:
            raise TypeError("use 'async for' to read this list, or 'await' its collect()")

    def __aiter__(self) -> Items[T_co]:
        """Iterate over the items, from the start or the cursor."""
        return Items(self._read())

    def raw(self) -> Items[bytes]:
        """Iterate over the items' bytes as the service wrote them, undecoded.

        For whoever passes them on, as into a file or to another parser. All else is as with
        items: order, cursor, `report` and what *on_drift* says. ``list(model=msgspec.Raw)`` gives
        the same in pages and chunks.
        """
        return Items(self._read(reader=ItemReader(bytes)))

    def pages(self) -> Pages[T_co]:
        """Iterate over the pages, including empty ones."""
        return Pages(self._read(want_extra=True), self._checkpoint)

    def chunks(self, size: int) -> Chunks[T_co]:
        """Iterate over lists of *size* items; the last one may be shorter."""
        whole_number("size", size, 1, 2**31 - 1)
        return Chunks(self._read(), size)

    def __await__(self) -> Generator[Any, None, ListPage[T_co]]:
        """Return the first page."""
        return self._first_page().__await__()

    async def first(self) -> T_co | None:
        """Return the first item, or None if the list is empty."""
        async with Items[T_co](self._read(prefetch=0, one_call=True)) as items:
            return await anext(items, None)

    async def collect(self, limit: int | None = None) -> list[T_co]:
        """Return all items, or the first *limit* of them. They must fit into memory."""
        items: list[T_co] = []
        _check_limit(limit)
        stream = self._read(limit=limit)
        stream.hold()
        try:
            while (ready := await stream.more()) is not None:
                stream.collect(items, ready)
            stream.release()
        finally:
            stream.stop()
        return items

    async def _first_page(self) -> ListPage[T_co]:
        stream = self._read(prefetch=0, want_extra=True, one_call=True)
        async with Pages[T_co](stream, self._checkpoint) as pages:
            return await pages._next_or_empty()

    def _read(
        self,
        *,
        prefetch: int | None = None,
        limit: int | None = None,
        want_extra: bool = False,
        one_call: bool = False,
        reader: ItemReader | None = None,
    ) -> Stream[Any]:
        ahead = self._prefetch if prefetch is None else prefetch
        bound = _lower(limit, self._limit)
        watches = self._on_drift != "repair" and self._changes is None
        self._start = self._starting_position()
        self._stream = Stream(
            walk=self._walk(PageQueue(ahead, self._max_bytes), bound),
            reader=reader or self._reader,
            fetch=self._fetch,
            clock=self._clock,
            on_invalid=self._on_invalid,
            on_drift=self._on_drift,
            watch=self._drift_watch() if watches else None,
            want_extra=want_extra,
            one_call=one_call,
            timeout=self._timeout,
        )
        return self._stream

    def _drift_watch(self) -> DriftWatch:
        told = self._on_drift in {"warn", "raise"}
        return DriftWatch(self._keys, self._order, every_key=told)

    def _walk(self, queue: PageQueue, limit: int | None) -> Walk:
        facts: dict[str, Any] = {"request": self._request, "start": self._start, "queue": queue}
        keyed: dict[str, Any] = {"limit": limit, "size": self._page_size, "keys": self._keys}
        if self._changes is not None:
            return ChangeWalk(**facts, **keyed, changes=self._changes)
        if self._on_drift == "repair":
            return RepairWalk(**facts, **keyed)
        sizes = PageSize.automatic() if self._auto else PageSize(self._page_size)
        return PageWalk(
            **facts,
            limit=limit,
            sizes=sizes,
            base_url=self._base_url,
            max_empty=self._max_empty,
        )

    # Where it is

    @property
    def cursor(self) -> str:
        """The place after the last item that you received, as a string.

        Pass it as ``list(cursor=...)`` to the same list, at any time and in any process.
        """
        return write_cursor(self._request, self._position)

    @property
    def watermark(self) -> str:
        """The moment to pass to the next run as ``list(changed_since=...)``, as ISO 8601 in UTC.

        All changes before it are among the items that you received. It can be taken at any time;
        at the end of the list it is when the last item was changed. Records of just that moment
        come again in the next run, so merge them by key.

        Raises:
            ConfigurationError: This list was made without ``changed_since=``.
        """
        if self._changes is None:
            raise ConfigurationError("there is no watermark; use list(changed_since=...)")
        return write_moment(self._changes.moment_in(self._position.params))

    @property
    def report(self) -> ListReport:
        """Statistics of the reading so far; a copy, which does not change later."""
        return self._stream.current_report() if self._stream else ListReport()

    @property
    def progress(self) -> ListProgress:
        """How far the reading has got, and how fast it is."""
        if self._stream is None:
            return ListProgress(done=self._start.done, total=self._start.total, rate=0.0, eta=None)
        return self._stream.progress

    async def commit(self) -> None:
        """Save `cursor` to the checkpoint: all items that you received so far are done.

        Raises:
            ConfigurationError: ``list()`` was given no checkpoint, or it cannot be written.
        """
        await save(self._checkpoint, self.cursor)

    @property
    def _position(self) -> Position:
        return self._stream.position if self._stream else self._start

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
            return read_cursor(self._request, self._cursor)
        place = self._checkpoint
        saved = place.load() if place else None
        if place is None or saved is None:
            return self._beginning()
        try:
            return read_cursor(self._request, saved)
        except ConfigurationError as error:
            what = f"{error}; or remove the file to start over"
        raise ConfigurationError(f"checkpoint {place.path}: {what}")

    def _beginning(self) -> Position:
        if self._changes is not None:
            since = self._changes.since
            return Position(params=self._changes.params(self._request, since, self._page_size))
        before = int(dict(self._request.params).get("page", 1)) - 1
        return Position(params=self._request.params, done=before * self._page_size)


def _checkpoint(given: str | Path | Checkpoint | None) -> Checkpoint | None:
    return given if given is None or isinstance(given, Checkpoint) else Checkpoint(given)


def _page_size(given: int | Literal["auto"] | None, request: Request) -> int:
    if given == "auto":
        return START
    if given is None:
        return int(dict(request.params).get("pageSize", DEFAULT_PAGE_SIZE))
    return whole_number("page_size", given, 1, LARGEST_PAGE)


def _lower(one: int | None, other: int | None) -> int | None:
    return min((n for n in (one, other) if n is not None), default=None)


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
