"""One reading of a list: requests pages ahead, keeps them in order, and knows its place.

The walk decides which page comes next. A page that is requested ahead is kept as bytes until its
turn. A reading that ends, in whatever way, cancels its requests.
"""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from collections.abc import Callable, Iterator
from itertools import chain, islice
from math import inf
from operator import length_hint
from typing import Any, Final

from attrs import Factory, define, evolve, field
from msgspec import Raw

from integration_sdk._http.requests import Priority, Request
from integration_sdk._http.responses import Fetch, Response, check, not_json
from integration_sdk._list.changes import Changes
from integration_sdk._list.links import Cursor, Links, Opened, number_in, same
from integration_sdk._list.page import RawPage, read_page
from integration_sdk._options_given import MIB, ListOptions
from integration_sdk._records.classes import ItemReader
from integration_sdk._records.codec import mended
from integration_sdk._text import warn_if_legacy
from integration_sdk.errors import (
    IntegrationError,
    InvalidItem,
    MalformedResponse,
    ResponseTooLarge,
)

logger = logging.getLogger("integration_sdk.list")
OnInvalid = Callable[[InvalidItem], object]
SLICE: Final = 64
"""Items that are decoded before the event loop runs again."""


@define(kw_only=True)
class ListReport:
    """Counts of a reading so far; at its end, *items* and *total* tell whether all came.

    Attributes:
        pages: Pages read.
        items: Items handed out.
        requests: Requests sent, including pages requested ahead and retries.
        waits: Seconds spent waiting for rate limits and between retries.
        invalid: Items that did not fit the model.
        first_total: ``totalResults`` as first answered; None if the service did not say.
        total: ``totalResults`` as last answered.
    """

    pages: int = 0
    items: int = 0
    requests: int = 0
    waits: float = 0.0
    invalid: int = 0
    first_total: int | None = None
    total: int | None = None


@define(eq=False)
class Reading:
    """One reading of a list.

    Attributes:
        fetch: Sends a request.
        request: For the list.
        reader: Decodes items.
        options: The list's options.
        walk: Decides which page comes next.
    """

    fetch: Fetch
    request: Request
    reader: ItemReader
    options: ListOptions
    walk: Links | Changes
    opened: Opened = field(init=False, default=Opened(RawPage(), (), None))
    """The current page."""
    query: str = field(init=False, default="")
    """The query of the current page."""
    held: tuple[Cursor, int] | None = field(init=False, default=None)
    """The place and the items handed out, while more are collected into a page or batch."""
    _items: Iterator[Raw] = field(init=False, default=iter(()))
    _begun: int = field(
        init=False, default=Factory(lambda self: self.walk.start.done, takes_self=True)
    )
    """Items of the list that earlier runs handed out."""
    _counts: ListReport = Factory(ListReport)
    """Its items are those of the pages before the current one, invalid ones included."""
    _ahead: deque[tuple[str, asyncio.Task[Response | Exception]]] = Factory(deque)
    _more: Iterator[str] = field(init=False, default=iter(()))
    """What may be requested ahead next."""
    _size: int = field(init=False, default=0)
    """Bytes of the current page."""
    _usual: int = field(init=False, default=MIB)
    """Bytes that a page is expected to have."""

    # Where it is

    @property
    def taken(self) -> int:
        """Items of the current page that were taken."""
        return len(self.opened.raws) - length_hint(self._items)

    def left(self, most: float = SLICE) -> int:
        """Return how many items of the current page may be taken next, of *most*."""
        return int(min(length_hint(self._items), self._wanted, most))

    @property
    def _fit(self) -> int:
        """Items that were taken, but for those that did not fit the model."""
        return self._counts.items + self.taken - self._counts.invalid

    @property
    def _wanted(self) -> float:
        return inf if self.options.limit is None else self.options.limit - self._fit

    @property
    def _done(self) -> int:
        """Items of the list that were taken, earlier runs included."""
        return self._begun + self._counts.items + self.taken

    @property
    def cursor(self) -> Cursor:
        """The place behind the last item that was handed out."""
        if self.held is not None:
            return self.held[0]
        if not self._counts.pages:
            return self.walk.start
        return self.walk.place(self.query, self.taken, self.opened, self._done)

    @property
    def report(self) -> ListReport:
        return evolve(self._counts, items=self._fit if self.held is None else self.held[1])

    def hold(self) -> None:
        """Note that what is taken from here on is not handed out yet, until `held` is None."""
        self.held = self.held or (self.cursor, self._fit)

    # Reading

    async def turn(self) -> Iterator[Any] | None:
        """Go to the next page; return what decodes its items as they are taken, or None at the end.

        Not a generator: if two are nested, and both are garbage at once, both are closed at once.
        """
        try:
            is_full = self._wanted <= 0
            if self.opened.problem is not None and not is_full:
                raise self.opened.problem
            following = self.opened.following if self._counts.pages else self.walk.first()
            if following is None or is_full:
                self._compare_with_total(following)
                return None
            page, query = await self._page(following)
            opened = self.walk.opened(query, page)
            self._turn_to(opened, query)
            self._aim(opened, query)
            self._top_up()
            await asyncio.sleep(0)  # requests leave when the event loop runs
            if self._counts.pages == 1:
                warn_if_legacy(self.request, self.request.replacement)
            return map(self.reader.decode, self._items)
        except IntegrationError as error:
            error.cursor = error.cursor or str(self.cursor)
            raise

    def _turn_to(self, opened: Opened, query: str) -> None:
        counts = self._counts
        counts.items += len(self.opened.raws)
        counts.pages += 1
        if opened.page.total is not None:
            counts.total = opened.page.total
            counts.first_total = counts.total if counts.first_total is None else counts.first_total
        self.opened, self.query, self._items = opened, query, iter(opened.raws)

    def _compare_with_total(self, following: str | None) -> None:
        total, done = self._counts.total, self._done
        is_end = following is None and self.taken == len(self.opened.raws)
        if is_end and isinstance(self.walk, Links) and total is not None and done < total:
            logger.warning("%s ended after %d of %d items", self.request, done, total)

    def take(self, most: float = inf) -> list[bytes]:
        """Return what is left of the current page, undecoded; *most* so many items."""
        return [bytes(raw) for raw in islice(self._items, self.left(most))]

    async def several(self, count: int) -> list[bytes]:
        """Return the next *count* items, undecoded; fewer at the end."""
        items = self.take(count)
        while len(items) < count and await self.turn() is not None:
            items += self.take(count - len(items))
        return items

    def recovered(self, error: Exception) -> list[Any]:
        """Return the item whose decoding raised *error* if only its text is broken.

        Raises:
            InvalidItem: It does not fit the model, and there is no ``on_invalid``.
        """
        raw = bytes(self.opened.raws[self.taken - 1])
        try:
            return [self.reader.decode(mended(raw))]
        except Exception as another:
            error = another
        page, request = self.opened.page, self.request
        index = len(page.raws) - len(self.opened.raws) + self.taken - 1
        what, path = self.reader.reason(raw, error)
        invalid = InvalidItem(
            f"{request}, page {page.number}, item {index}: {what} at {path}; "
            "correct the model, or pass on_invalid= to go on without such items",
            page=page.number,
            index=index,
            item_path=path,
            raw=raw,
            **request.facts,
        )
        invalid.cursor = str(self.cursor)
        self._counts.invalid += 1
        if self.options.on_invalid is None:
            raise invalid from error
        self.options.on_invalid(invalid)
        return []

    # Requesting

    def _aim(self, opened: Opened, query: str) -> None:
        """Drop what was requested ahead if the link says something else; note what may be."""
        following = opened.following
        while self._ahead and (following is None or not same(self._ahead[0][0], following)):
            self._ahead.popleft()[1].cancel()
        left = self._wanted - len(opened.raws)
        if following is None or left <= 0:
            self._more = iter(())
        elif not self._ahead:
            self._more = chain((following,), self.walk.ahead(query, opened, left))

    def _top_up(self, waited_for: int = 0) -> None:
        room = (self.options.max_bytes - self._size) // self._usual - waited_for
        while len(self._ahead) < min(self.options.prefetch, room):
            query = next(self._more, None)
            if query is None:
                return
            task = asyncio.create_task(self._fetch(query, Priority.PREFETCH))
            self._ahead.append((query, task))

    async def _page(self, query: str) -> tuple[RawPage, str]:
        """Return the page of *query*, or where that is too large, a smaller one and its query."""
        outcome = await self._outcome(query)
        while isinstance(outcome, ResponseTooLarge):
            smaller = self.walk.smaller(query, self._done)
            if smaller is None:
                break
            await self.aclose()  # what was requested ahead is as large
            query = smaller
            outcome = await self._fetch(query, self.request.priority)
        if isinstance(outcome, Exception):
            raise outcome
        self._size, self._usual = outcome.size, max(outcome.size, (self._usual + outcome.size) // 2)
        return await self._read(outcome, query), query

    async def _outcome(self, query: str) -> Response | Exception:
        """Return what comes of *query*, requested ahead or now."""
        if self._ahead:
            _, task = self._ahead.popleft()
            self._top_up(1)
            outcome = await task
            if not (isinstance(outcome, IntegrationError) and outcome.attempts == 0):
                return outcome
        return await self._fetch(query, self.request.priority)

    async def _fetch(self, query: str, priority: Priority) -> Response | Exception:
        request = evolve(self.request, params=(), raw_query=query, priority=priority)
        try:
            response = check(request, await self.fetch(request))
        except Exception as error:  # raised when the page has its turn
            self._counts.requests += getattr(error, "attempts", 1)
            return error
        self._counts.requests += response.attempts
        self._counts.waits += response.waited
        return response

    async def _read(self, response: Response, query: str) -> RawPage:
        pieces, request = read_page(response), self.request
        try:
            while True:
                next(pieces)
                await asyncio.sleep(0)
        except StopIteration as end:
            page: RawPage = end.value
            return page
        except MalformedResponse as error:
            raise MalformedResponse(
                f"{request} answered {response.status} for page {number_in(query)}, "
                f"but {error}{not_json(response)}",
                status=response.status,
                attempts=response.attempts,
                **request.facts,
            ) from None

    async def aclose(self) -> None:
        """Cancel all requests, and wait until they have ended."""
        tasks = [task for _, task in self._ahead]
        self._ahead.clear()
        self._more = iter(())
        for task in tasks:
            task.cancel()
        if tasks:
            await asyncio.wait(tasks)
