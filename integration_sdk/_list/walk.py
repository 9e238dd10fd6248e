"""Which pages to request, and where the list ends.

A simple reader would request a page, hand out its items, and follow ``_links.next`` until there
is none. `PageWalk` hands out exactly the same items, but requests pages ahead::

    to_fetch() ──> pages ──> (the caller fetches them; answers arrive in any order)
                                                            │
    head: the one page that comes next  <── queue of pages <┘
    opened(answer of the head) ──> checks its link, keeps or drops the rest of the queue

Pages behind the head are speculative. As long as each page's link differs from the page's own
query only in ``page``, further pages can be requested before their links are known. Each link is
compared with the queue when it arrives; if they differ, the link is followed, and the queue
dropped. So a link that is opaque, or leads elsewhere in the list, allows one page ahead only, and
no speculative request can change what is handed out.

Three things end a list with an error: a link to a page that was read before, an answer with
another page number than requested, and more empty pages in a row than are allowed. If a page has
no link although ``totalResults`` says that there is more, the next page is requested by its
number; it ends the list if it does not exist, is empty, or is the same page again.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections import deque
from collections.abc import Sequence
from itertools import islice
from typing import Final

from attrs import define, evolve, field, frozen
from msgspec import Raw

from integration_sdk._http.requests import Params, Request
from integration_sdk._list.cursor import Position, same_query
from integration_sdk._list.drift import Drift
from integration_sdk._list.links import Link, LinkReader, number_in
from integration_sdk._list.page import RawPage
from integration_sdk._options_given import MIB
from integration_sdk.errors import PaginationError

MAX_EMPTY_PAGES: Final = 100_000
"""Empty pages in a row that are followed, unless the caller says otherwise."""
LONGEST_EMPTINESS: Final = 60.0
"""Seconds for which they are followed, at least so many pages:"""
SURELY_FOLLOWED: Final = 1_000
GUESSED_BODY: Final = MIB
"""Assumed size of a page in bytes, before one has been received."""


@frozen(eq=False, kw_only=True)
class PageRequest:
    """One page to request.

    Attributes:
        params: The query.
        query: The query as text, if it cannot be restored from `params`.
        number: The ``pageNumber`` that the answer must have; None if the link does not say.
        offset: Number of items before the page, if it can be computed.
        size: The ``pageSize`` that was asked for, where the walk chooses it.
        skip: Number of its items that an earlier run has handed out.
    """

    params: Params
    query: str | None = None
    number: int | None
    offset: int | None = None
    size: int | None = None
    skip: int = 0


@define(kw_only=True)
class Walk(ABC):
    """One walk along a list: the queue of pages to read, and checks of the answers.

    The head of the queue is the page that is handed out next; the others are requested ahead of
    time. How far ahead has three bounds: a number of pages, the bytes held and expected, and a
    page that failed, which is requested again only when it has become the head, and until then
    no page behind it is.

    Attributes:
        request: The request for the first page; all others have its path and filter.
        start: Where to begin.
        prefetch: Maximum number of pages requested ahead of the one being handed out.
        max_bytes: Approximate maximum of bytes in pages held or being requested.
        limit: Maximum number of items; None for all.
        pages: The queue.
        current: The page being handed out.
        total: ``totalResults`` as last answered.
        offered: Number of items in the pages opened so far.
        notes: Signs of drift that have not been reported yet.
        problem: The error that ended the walk, if any, to raise when its pages are handed out.
    """

    request: Request
    start: Position
    prefetch: int
    max_bytes: int
    limit: int | None = None

    pages: deque[PageRequest] = field(init=False, factory=deque)
    current: PageRequest | None = field(init=False, default=None)
    total: int | None = field(init=False, default=None)
    offered: int = field(init=False, default=0)
    notes: list[Drift] = field(init=False, factory=list)
    problem: PaginationError | None = field(init=False, default=None)
    _requested: set[PageRequest] = field(init=False, factory=set)
    _calm: int = field(init=False, default=0)
    """Pages to open before requesting further ahead, because the page behind them failed."""
    _body: int = field(init=False, default=GUESSED_BODY)
    _held: int = field(init=False, default=0)

    @property
    def head(self) -> PageRequest | None:
        """The page that is handed out next; None at the end of the list or the limit."""
        return self.pages[0] if self.pages and not self.satisfied else None

    @property
    def satisfied(self) -> bool:
        """Whether the pages opened so far hold *limit* items."""
        return self.limit is not None and self.offered >= self.limit

    # The queue

    def to_fetch(self, *, waiting: bool) -> list[PageRequest]:
        """Return the pages to request now, in order.

        Args:
            waiting: Whether the head is being waited for; if so, it is requested regardless
                of the bytes held.
        """
        if self.head is None:
            return []
        affordable = (self.max_bytes - self._held) // max(self._body, 1)
        ahead = self._calm or self.prefetch + 1
        room = max(min(self.prefetch + waiting, affordable, ahead), int(waiting))
        while len(self.pages) < room and (further := self.beyond(self.pages[-1])) is not None:
            self.pages.append(further)
        new = [wanted for wanted in islice(self.pages, room) if wanted not in self._requested]
        self._requested.update(new)
        return new

    def arrived(self, wanted: PageRequest, size: int) -> None:
        """Note that *wanted* was answered with *size* bytes."""
        if wanted in self._requested:
            self._body = max(size, (self._body + size) // 2)

    def failed(self, wanted: PageRequest) -> None:
        """Note that *wanted* got no answer."""
        if wanted in self._requested:
            self._requested.discard(wanted)
            self._calm = max(self.pages.index(wanted), 1)

    def open_head(self, size: int) -> None:
        """Remove the head from the queue; its *size* bytes are held from now on."""
        self._requested.discard(self.pages.popleft())
        self._calm = max(self._calm - 1, 0)
        self._held = size

    def start_over(self, *pages: PageRequest) -> None:
        """Replace the whole queue with *pages*."""
        self.pages = deque(pages)
        self._requested.clear()

    # What each way of reading decides

    @abstractmethod
    def beyond(self, tail: PageRequest) -> PageRequest | None:
        """Return the page after *tail*, to request without knowing its link; None for none."""

    @abstractmethod
    def opened(self, page: RawPage, size: int, now: float = 0.0) -> tuple[RawPage, int] | None:
        """Make the head's answer the current page.

        Args:
            page: The answer.
            size: Its size in bytes.
            now: The time, in seconds.

        Returns:
            The page with its items in the order to hand them out, and how many of them to skip,
            because they were handed out before; None if the page cannot be used: the walk then
            has another head, or none.

        Raises:
            PaginationError: It is not the page that was requested. The head stays.
        """

    @abstractmethod
    def skip_head(self) -> bool:
        """Go on without the head, which does not exist; False if that is an error."""

    @abstractmethod
    def position(self, taken: int) -> Position:
        """Return the place after the first *taken* items of the current page."""

    # Errors

    def check_number(self, wanted: PageRequest, number: int | None) -> None:
        """Raise if the answer has a different page *number* than *wanted*."""
        if None not in {wanted.number, number} and wanted.number != number:
            what = f"page {wanted.number} was requested, but page {number} was returned"
            raise self.error(what, wanted.number)

    def error(
        self, what: str, page: int | None, kind: type[PaginationError] = PaginationError
    ) -> PaginationError:
        """Return an error that says that the list cannot be read beyond *page*."""
        return kind(
            f"{self.request}: {what}; the list cannot be read on from here",
            page=page,
            **self.request.facts,
        )


@define(kw_only=True)
class PageWalk(Walk):
    """A walk that follows the links of a list.

    Attributes:
        base_url: The URL of the service, which absolute links must have.
        max_empty: Maximum number of empty pages in a row.
    """

    base_url: str = ""
    max_empty: int = MAX_EMPTY_PAGES

    _links: LinkReader = field(init=False)
    _count: int = field(init=False, default=0)
    _empty: int = field(init=False, default=0)
    """Empty pages in a row, up to the current one."""
    _full_at: float = field(init=False, default=math.inf)
    """When a page that is not empty was last opened."""
    _pages_seen: set[int] = field(init=False, factory=set)
    """Hashes of the pages that were begun with or linked to so far."""
    _end: int = field(init=False, default=0)
    """Pages are requested ahead of their links only if they begin before this item."""
    _size: int | None = field(init=False, default=None)
    """Items of a full page, as last answered; None if offsets cannot be computed."""
    _following: PageRequest | None = field(init=False, default=None)
    """The page after the current one, as its link names it; None at the end."""
    _unlinked: Sequence[Raw] | None = field(init=False, default=None)
    """Items of the current page if it has no next link, so that the head is a guess; else None."""

    def __attrs_post_init__(self) -> None:
        start = self.start
        self._links = LinkReader(self.request, self.base_url)
        self.total = start.total
        self._size = number_in(start.params, "pageSize")
        self._pages_seen.add(_mark(start.params, start.query))
        number = number_in(start.params)
        before = 0 if number == 1 else ((number or 0) - 1) * (self._size or 0)
        # Its offset is known if all pages before it were full.
        counted = number and not start.query and start.done == before + start.skip
        self.start_over(
            PageRequest(
                params=start.params,
                query=start.query,
                number=number,
                offset=before if counted else None,
                skip=start.skip,
            )
        )

    def beyond(self, tail: PageRequest) -> PageRequest | None:
        """Return the page after *tail* by its number; None if it may not be requested yet."""
        if tail.offset is None or self._size is None or tail.offset + self._size >= self._end:
            return None
        return evolve(_successor(tail), offset=tail.offset + self._size)

    def skip_head(self) -> bool:
        """End the list, if no link led to the head; False otherwise."""
        guessed = self._unlinked is not None
        if guessed:
            self.start_over()
        return guessed

    def opened(self, page: RawPage, size: int, now: float = 0.0) -> tuple[RawPage, int] | None:
        """Make the head's answer the current page, and check its link; see `Walk.opened`."""
        wanted = self.pages[0]
        if self._unlinked and page.raws == self._unlinked:
            self.start_over()
            return None
        self.check_number(wanted, page.number)
        self.open_head(size)
        self.current, self._count = wanted, page.count
        self.offered += max(page.count - wanted.skip, 0)
        self.total = self.total if page.total is None else page.total
        try:
            self._following = self._follow_link(wanted, page, now)
        except PaginationError as problem:
            self.problem, self._following = problem, None
        self._end = self._foreseeable(self._following)
        if self._following is None:
            self.start_over()
        elif not (self.pages and _same(self.pages[0], self._following)):
            self.start_over(self._following)
        return page, wanted.skip

    def _foreseeable(self, following: PageRequest | None) -> int:
        """Return the item before which pages ahead must begin: the end of the list or limit."""
        if following is None or following.offset is None or self.total is None:
            return 0
        if self.limit is None:
            return self.total
        return min(self.total, following.offset + self.limit - self.offered)

    # Links

    def _follow_link(self, wanted: PageRequest, page: RawPage, now: float) -> PageRequest | None:
        """Follow the link, or guess if there is none; return the next page, None at the end.

        If the link is regular, the offset of the next page is known.
        """
        guessed, self._unlinked = self._unlinked is not None, None
        if page.links.next is None:
            self._unlinked = page.raws
            return None if guessed and not page.count else self._guess(wanted, page)
        number = wanted.number if wanted.number is not None else page.number
        self._check_empty(page, number, now)
        link = self._links.read(page.links.next, page=number)
        size = [pair for pair in wanted.params if pair[0] == "pageSize"] if link.sizeless else ()
        params = (*size, *link.params)
        backwards = link.number is not None and number is not None and link.number <= number
        mark = _mark(params, link.query)
        if backwards or mark in self._pages_seen:
            raise self.error(
                f"the next link of page {number} leads back to a page that was read already "
                f"({page.links.next!r:.500})",
                number,
            )
        self._pages_seen.add(mark)
        self._size = page.size or None if self._is_regular(wanted, link, params) else None
        offset = self._size * wanted.number if self._size and wanted.number else None
        return PageRequest(params=params, query=link.query, number=link.number, offset=offset)

    def _is_regular(self, wanted: PageRequest, link: Link, params: Params) -> bool:
        """Whether a link is the page's own query for the next number."""
        if link.query or wanted.number is None:
            return False
        return same_query(params, _replaced(wanted.params, "page", wanted.number + 1))

    def _check_empty(self, page: RawPage, number: int | None, now: float) -> None:
        self._empty = 0 if page.count else self._empty + 1
        self._full_at = min(self._full_at, now) if self._empty else now
        endless = self._empty > SURELY_FOLLOWED and now > self._full_at + LONGEST_EMPTINESS
        if self._empty > self.max_empty or endless:
            raise self.error(
                f"{self._empty} pages in a row are empty, and each links to another; if there are "
                "items behind them, allow more with max_empty_pages= and go on with "
                "list(cursor=error.cursor)",
                number,
            )

    def _guess(self, wanted: PageRequest, page: RawPage) -> PageRequest | None:
        """Return the page after one without a link; None if its envelope says it is the last."""
        if wanted.number is None or wanted.query or not page.size or page.total is None:
            return None
        more = page.total > max(wanted.number * page.size, self.start.done + self.offered)
        return _successor(wanted) if more else None

    # Where it is

    def position(self, taken: int) -> Position:
        """Return the place after the first *taken* items of the current page."""
        if self.current is None:
            return self.start
        done = self.start.done + self.offered - max(self._count - taken, 0)
        is_over = taken >= self._count and self._unlinked is None
        place, skip = self.current, taken
        if is_over and self._following is not None:
            place, skip = self._following, 0
        return Position(
            params=place.params, query=place.query, skip=skip, done=done, total=self.total
        )


def _same(one: PageRequest, other: PageRequest) -> bool:
    return one.query == other.query and same_query(one.params, other.params)


def _successor(wanted: PageRequest) -> PageRequest:
    """Return the page after *wanted* by its number."""
    number = (wanted.number or 0) + 1
    return PageRequest(params=_replaced(wanted.params, "page", number), number=number)


def _replaced(params: Params, name: str, value: int) -> Params:
    return (*(pair for pair in params if pair[0] != name), (name, str(value)))


def _mark(params: Params, query: str | None) -> int:
    return hash((*sorted(params), query))
