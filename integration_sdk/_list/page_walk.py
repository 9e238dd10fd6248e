"""Reads a list by its links, requesting pages ahead.

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

If a link names a page but no size, the page is requested in the size of the page before. Other
sizes are requested only if pages are as full as they say; otherwise it is not known which items
a page of another size would hold.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from attrs import define, evolve, field
from msgspec import Raw

from integration_sdk._http.requests import Params
from integration_sdk._list.cursor import Position, same_query
from integration_sdk._list.links import Link, LinkReader, number_in
from integration_sdk._list.page import RawPage
from integration_sdk._list.page_queue import PageRequest
from integration_sdk._list.page_size import PageSize
from integration_sdk._list.walk import Walk
from integration_sdk.errors import PaginationError

MAX_EMPTY_PAGES: Final = 100_000
"""Empty pages in a row that are followed, unless the caller says otherwise."""


@define(kw_only=True)
class PageWalk(Walk):
    """A walk that follows the links of a list.

    Attributes:
        sizes: The page size to request.
        base_url: The URL of the service, which absolute links must have.
        max_empty: Maximum number of empty pages in a row.
    """

    sizes: PageSize
    base_url: str = ""
    max_empty: int = MAX_EMPTY_PAGES

    _problem: PaginationError | None = field(init=False, default=None)
    _links: LinkReader = field(init=False)
    _count: int = field(init=False, default=0)
    _empty: int = field(init=False, default=0)
    """Empty pages in a row, up to the current one."""
    _pages_seen: set[int] = field(init=False, factory=set)
    """Hashes of the pages that were begun with or linked to so far."""
    _end: int = field(init=False, default=0)
    """Pages are requested ahead of their links only if they begin before this item."""
    _size: int | None = field(init=False, default=None)
    """Items of a full page, as last answered; None if offsets cannot be computed."""
    _linked_page: PageRequest | None = field(init=False, default=None)
    """The next page as the link names it, even if the head has another size."""
    _resume_point: PageRequest | None = field(init=False, default=None)
    """The page within which a cursor resumes, with the number of items to skip, while that page
    is read in smaller parts; else None."""
    _unlinked: Sequence[Raw] | None = field(init=False, default=None)
    """Items of the current page if it has no next link, so that the head is a guess; else None."""

    def __attrs_post_init__(self) -> None:
        self._links = LinkReader(self.request, self.base_url)
        self.total = self.start.total
        self._size = number_in(self.start.params, "pageSize")
        self._pages_seen.add(_mark(self.start.params, self.start.query))
        self.queue.start_over(self._first())

    def _first(self) -> PageRequest:
        """Return the page to begin with; its offset is known if all pages before it were full."""
        number = number_in(self.start.params)
        before = 0 if number == 1 else ((number or 0) - 1) * (self._size or 0)
        counted = number and not self.start.query and self.start.done == before + self.start.skip
        return PageRequest(
            params=self.start.params,
            query=self.start.query,
            number=number,
            offset=before if counted else None,
            skip=self.start.skip,
        )

    def beyond(self, tail: PageRequest) -> PageRequest | None:
        """Return the page after *tail* by its number; None if it may not be requested yet."""
        further = _successor(tail, self._size)
        if further.offset is None or further.offset >= self._end:
            return None
        return self._steered(further)

    # What came of it

    def shrink_head(self) -> bool:
        """Make the head smaller, as its answer was too slow or too large; False if it cannot be."""
        head = self.queue.pages[0]
        if self._size is None or head.offset is None or not self.sizes.shrink():
            return False
        if head.offset % self.sizes.current:
            return False
        self._linked_page = self._linked_page or head
        if head.skip and self._resume_point is None:
            self._resume_point = head
        self.queue.start_over(self._resized(head, self.sizes.current))
        return True

    def skip_head(self) -> bool:
        """End the list, if no link led to the head; False otherwise."""
        guessed = self._unlinked is not None
        if guessed:
            self.queue.start_over()
        return guessed

    def opened(self, page: RawPage, size: int, seconds: float = 0.0) -> int | None:
        """Make the head's answer the current page, and check its link; see `Walk.opened`."""
        wanted = self.queue.pages[0]
        if self._unlinked and page.raws == self._unlinked:
            self.queue.start_over()
            return None
        if wanted.size is not None and not self._is_exact(wanted, page):
            self._steer_no_more(wanted)
            return None
        self.check_number(wanted, page.number)
        self.queue.open_head(size)
        self.current, self._count = wanted, page.count
        self.offered += max(page.count - wanted.skip, 0)
        self.total = self.total if page.total is None else page.total
        self.sizes.answered(page.count, size, seconds)
        self._go_on(wanted, page)
        return wanted.skip

    def _go_on(self, wanted: PageRequest, page: RawPage) -> None:
        """Follow the link of *page*; keep the queue if it begins where the link leads."""
        try:
            following = self._follow_link(wanted, page)
        except PaginationError as problem:
            self._problem, following = problem, None
        if following is not None and self._resume_point is not None:
            following = evolve(following, skip=max(wanted.skip - page.count, 0))
        if following is None or not following.skip:
            self._resume_point = None
        self._linked_page = following
        self._end = self._foreseeable(following)
        if following is None:
            self.queue.start_over()
        elif not self._agrees(following):
            self.queue.start_over(self._steered(following))

    def _agrees(self, following: PageRequest) -> bool:
        """Whether the head is the page that the link names, or begins at the same item."""
        if not self.queue.pages:
            return False
        head = self.queue.pages[0]
        if following.skip != head.skip:
            return False
        if following.offset is not None:
            return following.offset == head.offset
        return head.offset is None and same_query(head.params, following.params)

    def _foreseeable(self, following: PageRequest | None) -> int:
        """Return the item before which pages ahead must begin: the end of the list or limit."""
        if following is None or following.offset is None or self.total is None:
            return 0
        if self.limit is None:
            return self.total
        return min(self.total, following.offset + self.limit - self.offered)

    # Links

    def _follow_link(self, wanted: PageRequest, page: RawPage) -> PageRequest | None:
        """Follow the link, or guess if there is none; return the next page, None at the end.

        If the link is regular, the offset of the next page is known.
        """
        guessed, self._unlinked = self._unlinked is not None, None
        if page.links.next is None:
            self._unlinked = page.raws
            return None if guessed and not page.count else self._guess(wanted, page)
        number = wanted.number if wanted.number is not None else page.number
        self._check_empty(page, number)
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
        self._learn_size(wanted, page, link, params)
        offset = self._size * wanted.number if self._size and wanted.number else None
        return PageRequest(params=params, query=link.query, number=link.number, offset=offset)

    def _check_empty(self, page: RawPage, number: int | None) -> None:
        self._empty = 0 if page.count else self._empty + 1
        if self._empty <= self.max_empty:
            return
        empty, self._empty = self._empty, 0  # whoever reads on may pass over as many again
        raise self.error(
            f"{empty} pages in a row are empty, and each links to another; if there are items "
            "behind them, allow more with max_empty_pages=",
            number,
        )

    def _learn_size(self, wanted: PageRequest, page: RawPage, link: Link, params: Params) -> None:
        """Note the page size; None unless the link is the page's own query for the next number."""
        self._size = None
        if link.query or wanted.number is None:
            return
        if page.count != page.size:
            self.sizes.give_up()
        if same_query(params, _replaced(wanted.params, "page", wanted.number + 1)):
            self._size = page.size or None
        if self._size and self._size < (number_in(wanted.params, "pageSize") or 0):
            self.sizes.capped(self._size)

    def _guess(self, wanted: PageRequest, page: RawPage) -> PageRequest | None:
        """Return the page after one without a link; None if its envelope says it is the last."""
        if wanted.number is None or wanted.query or not page.size or page.total is None:
            return None
        more = page.total > max(wanted.number * page.size, self.start.done + self.offered)
        return evolve(_successor(wanted, None), size=None) if more else None

    # Sizes

    def _steered(self, wanted: PageRequest) -> PageRequest:
        """Return *wanted*, in the current size if its offset allows that."""
        if self._size is None or wanted.offset is None:
            return wanted
        size = self.sizes.at(wanted.offset, wanted.size or self._size)
        return wanted if size == (wanted.size or self._size) else self._resized(wanted, size)

    def _resized(self, wanted: PageRequest, size: int) -> PageRequest:
        """Return the page of *size* items that begins where *wanted* does."""
        number = (wanted.offset or 0) // size + 1
        params = _replaced(_replaced(wanted.params, "page", number), "pageSize", size)
        return PageRequest(
            params=params, number=number, offset=wanted.offset, size=size, skip=wanted.skip
        )

    def _is_exact(self, wanted: PageRequest, page: RawPage) -> bool:
        """Whether a page has the size chosen for it, and is full or reaches the list's end."""
        full, offset = wanted.size, wanted.offset or 0
        end = full if page.links.next or page.total is None else page.total - offset
        return page.size == full and page.count in {full, end}

    def _steer_no_more(self, wanted: PageRequest) -> None:
        """Go on with the sizes in the links: the service returned another than requested."""
        self.sizes.give_up()
        self.queue.start_over(self._linked_page or evolve(wanted, size=None))

    # Where it is

    def position(self, taken: int) -> Position:
        """Return the place after the first *taken* items of the current page."""
        if self.current is None:
            return self.start
        done = self.start.done + self.offered - max(self._count - taken, 0)
        is_over = taken >= self._count and self._unlinked is None
        following = self._resume_point or (self._linked_page if is_over else None)
        place, skip = (following, following.skip) if following else (self.current, taken)
        return Position(
            params=place.params, query=place.query, skip=skip, done=done, total=self.total
        )

    def resume_behind_problem(self) -> PaginationError | None:
        """Return the error that ended the walk, if any, and prepare to read that page again."""
        if self.satisfied or self._problem is None:
            return None
        problem, self._problem = self._problem, None
        if self.current is not None:
            self.queue.start_over(evolve(self.current, skip=self._count))
        return problem


def _successor(wanted: PageRequest, size: int | None) -> PageRequest:
    """Return the page after *wanted* by its number; *size* is the number of items in a page."""
    number = (wanted.number or 0) + 1
    held = wanted.size or size
    offset = None if wanted.offset is None or held is None else wanted.offset + held
    params = _replaced(wanted.params, "page", number)
    return PageRequest(params=params, number=number, offset=offset, size=wanted.size)


def _replaced(params: Params, name: str, value: int) -> Params:
    return (*(pair for pair in params if pair[0] != name), (name, str(value)))


def _mark(params: Params, query: str | None) -> int:
    return hash((*sorted(params), query))
