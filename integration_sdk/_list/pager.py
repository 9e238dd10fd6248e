"""A list of the service, as users have it."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Generator
from contextlib import aclosing
from itertools import islice
from typing import TYPE_CHECKING, Any, Generic, NoReturn, TypeVar

from attrs import evolve

from integration_sdk._checks import needed, one_of, whole_number
from integration_sdk._handed_out import handed_out
from integration_sdk._http.requests import DEFAULT_PAGE_SIZE, Request
from integration_sdk._http.responses import Fetch
from integration_sdk._list.changes import MODIFIED, Changes, filter_text, read_moment
from integration_sdk._list.links import Cursor, Links, fingerprint, in_smaller_pages, read_cursor
from integration_sdk._list.page import RawPage
from integration_sdk._list.reader import ListReport, Reading
from integration_sdk._options_given import ListOptions, Numbers
from integration_sdk._records.classes import RAW, ItemReader
from integration_sdk.errors import ConfigurationError, NotFound
from integration_sdk.models import ListPage

T = TypeVar("T")
T_co = TypeVar("T_co", covariant=True)


@handed_out
class Pager(Generic[T_co]):
    """A list of the service. Nothing is requested until you iterate over it or await it.

    Iterating gives the items. Pages are requested ahead, and handed out in order. Each iteration
    begins anew, at the start or the cursor that the list was made with.

    Raises, while it is read:
        ApiError, TransportError: A page cannot be had; ``error.cursor`` is the place to go on at.
        PaginationError: A link leads elsewhere or back, or a page is not what was requested.
        InvalidItem: An item does not fit the model, and there is no ``on_invalid``.
    """

    def __init__(
        self,
        fetch: Fetch,
        request: Request,
        options: ListOptions,
        *,
        base_url: str,
        parameter: str,
        reader: ItemReader,
    ) -> None:
        self._request = request  # for the first page; with changed_since= it lacks the filter
        self._base_url = base_url
        self._parameter = parameter
        self._options = options
        self._changed_by = options.changed_by or MODIFIED
        self._fetch = fetch
        self._reader = reader
        self._filter = None
        if options.changed_since is not None:
            self._filter = filter_text(options.query, self._changed_by)
        self._start = self._starting_place()
        self._reading: Reading | None = None

    def __repr__(self) -> str:
        return f"<Pager of {self._request.path} at {self.report.items} items>"

    # Reading

    if not TYPE_CHECKING:  # type checkers refuse "for" by themselves

        def __iter__(self) -> NoReturn:
            raise TypeError("use 'async for' to read this list, or 'await' its collect()")

    def __aiter__(self) -> AsyncGenerator[T_co]:
        """Iterate over the items, from the start or the cursor."""
        return _items(self._read())

    def raw(self) -> AsyncGenerator[bytes]:
        """Iterate over the items' bytes as the service wrote them, undecoded.

        Use it to pass items on, into a file or another parser. Order, cursor and `report` work as
        with items.
        """
        return _items(self._read(reader=RAW))

    async def raw_pages(self) -> AsyncGenerator[list[bytes]]:
        """Iterate over the items of each page as bytes, for a pull."""
        async with aclosing(self._read()) as reading:
            while await reading.turn() is not None:
                yield reading.take()

    def pages(self) -> AsyncGenerator[ListPage[T_co]]:
        """Iterate over the pages, including empty ones."""
        return _pages(self._read())

    def arrow(self, rows: int = 50_000, numbers: Numbers = "decimal") -> AsyncGenerator[Any]:
        """Iterate over `pyarrow.RecordBatch` objects of *rows* items; needs the extra ``[arrow]``.

        A column for each top-level field, of a kind that is learned once: batches differ in what
        columns they have, but no column changes its type. ``id`` is text; numbers are exact,
        decimal(38, 18); ISO times are timestamps in UTC, cut to microseconds; objects and lists are
        JSON text. What does not fit its column is JSON text in ``<field>__json`` beside it.

        Args:
            rows: Items in a batch; the last one may have fewer.
            numbers: "float" gives doubles, to compute and plot with.

        Raises:
            ConfigurationError: pyarrow is missing.
        """
        needed("pyarrow", "arrow", "arrow()")
        whole_number("rows", rows, 1, 2**31 - 1)
        one_of("numbers", numbers, ("decimal", "float"))
        return _batches(self._read(reader=RAW), rows, numbers)

    def __await__(self) -> Generator[Any, None, ListPage[T_co]]:
        """Return the first page."""
        return self._first_page().__await__()

    async def _first_page(self) -> ListPage[T_co]:
        async with aclosing(_pages(self._read(evolve(self._options, prefetch=0)))) as pages:
            async for page in pages:
                return page
        return _page(RawPage(), [], self.cursor)

    async def first(self) -> T_co | None:
        """Return the first item, or None if the list is empty."""
        return next(iter(await self.collect(1)), None)

    async def one(self) -> T_co:
        """Return the first item.

        Raises:
            NotFound: The list is empty.
        """
        for item in await self.collect(1):
            return item
        raise NotFound("This list is empty: one() needs an item; first() gives None instead")

    async def collect(self, limit: int | None = None) -> list[T_co]:
        """Return all items, or the first *limit* of them. They must fit into memory.

        After an error the cursor is where this began.
        """
        items: list[T_co] = []
        limits = [most for most in (limit, self._options.limit) if most is not None]
        reading = self._read(evolve(self._options, limit=min(limits, default=None)))
        reading.hold()
        async with aclosing(_pages(reading)) as pages:
            async for page in pages:
                items += page.results
        reading.held = None
        return items

    # Where it is

    @property
    def cursor(self) -> str:
        """The place behind the last item that you received, as text.

        Store it with the rows, and pass it to the same list as ``list(cursor=...)``, at any time
        and in any process.
        """
        return str(self._reading.cursor if self._reading else self._start)

    @property
    def watermark(self) -> str:
        """The moment to pass to the next run as ``list(changed_since=...)``, as ISO 8601 in UTC.

        You have received all changes before it. You can take it at any time; at the end of the list
        it is the moment of the last change, or the service's own time if a record is stamped later.
        Records of that moment and later come again in the next run, so merge them by key.

        Raises:
            ConfigurationError: This list was made without ``changed_since=``.
        """
        if self._filter is None:
            raise ConfigurationError("there is no watermark; use list(changed_since=...)")
        return (self._reading.cursor if self._reading else self._start).query

    @property
    def report(self) -> ListReport:
        """Counts of the reading so far; a copy that does not change later."""
        return self._reading.report if self._reading else ListReport()

    def _starting_place(self) -> Cursor:
        request, options = self._request, self._options
        of = fingerprint(request, self._filter)
        if options.cursor is not None:
            place = read_cursor(options.cursor, of, request.path)
            if options.page_size is None or self._filter is not None:
                return place
            return in_smaller_pages(place, options.page_size) or place
        if options.changed_since is not None:
            return Cursor(of, read_moment(options.changed_since))
        size = options.page_size or DEFAULT_PAGE_SIZE
        return Cursor(of, request.target.partition("?")[2], 0, ((options.page or 1) - 1) * size)

    def _read(
        self, options: ListOptions | None = None, reader: ItemReader | None = None
    ) -> Reading:
        reader, options = reader or self._reader, options or self._options
        self._reading = Reading(self._fetch, self._request, reader, options, self._walk())
        return self._reading

    def _walk(self) -> Links | Changes:
        if self._filter is None:
            return Links(self._request, self._base_url, self._start)
        return Changes(
            self._request,
            self._start,
            self._changed_by,
            self._parameter,
            self._filter,
            self._options.page_size or DEFAULT_PAGE_SIZE,
        )


def _page(page: RawPage, results: list[T], cursor: str) -> ListPage[T]:
    return ListPage(
        results=results,
        page_number=page.number or 0,
        page_size=page.size or 0,
        total_results=page.total or 0,
        links=page.links,
        cursor=cursor,
    )


async def _items(reading: Reading) -> AsyncGenerator[Any]:
    async with aclosing(reading):
        while (values := await reading.turn()) is not None:
            while count := reading.left():
                try:
                    for item in islice(values, count):
                        yield item
                except Exception as error:  # a model's own code may raise anything
                    for item in reading.recovered(error):
                        yield item
                await asyncio.sleep(0)


async def _pages(reading: Reading) -> AsyncGenerator[ListPage[Any]]:
    async with aclosing(reading):
        while (values := await reading.turn()) is not None:
            results: list[Any] = []
            held = reading.held
            reading.hold()
            while count := reading.left():
                try:
                    results.extend(islice(values, count))
                except Exception as error:  # a model's own code may raise anything
                    results.extend(reading.recovered(error))
                await asyncio.sleep(0)
            reading.held = held
            yield _page(reading.opened.page, results, str(reading.cursor))


async def _batches(reading: Reading, rows: int, numbers: Numbers) -> AsyncGenerator[Any]:
    from integration_sdk._records.columns import Kinds, batch  # noqa: PLC0415 - an extra

    kinds: Kinds = {}
    async with aclosing(reading):
        is_more = True
        while is_more:
            reading.hold()
            items = await reading.several(rows)
            is_more = len(items) == rows
            built = await asyncio.to_thread(batch, items, kinds, numbers) if items else None
            reading.held = None
            if built is not None:
                yield built
            del items, built  # they would stay in memory beside the next ones
