"""Which pages to ask for, and when a list ends: what a patient link-follower reads.

The follower asks for a page, hands out its items, and goes where ``_links.next``
leads, until there is none. `PageWalk` hands out exactly that, and asks ahead::

    to_fetch() ──> asks ──> (somebody fetches them, answers come in any order)
                                                          │
    head: the one page that comes next  <── line of asks <┘
    opened(sheet of the head) ──> judges its link, keeps or drops the rest of the line

Pages behind the head are speculation: as long as each page's link differs from the
page's own query only in ``page``, the pages behind it can be addressed before their
links are known. Every link that arrives is checked against the line; where they
differ the link wins and the line is dropped. So a link that is opaque, or leads
elsewhere in the list, is followed one page ahead, and nothing that was asked on
speculation can change what is handed out.

Two things end a list with an error instead of silence or a circle: a link to a
page that was read before, and a page that answers with another number. A page
without a link, where ``totalResults`` says that there is more, is no end yet: the
next page is asked for by its number, and ends the list if it is empty or the same
page again.

Whoever chose the page size goes on with it: a link that names a page and nothing of
its size is asked for in the size of the page that it was found on. Other sizes are
asked for only where pages are as full as they say, for else nobody knows which items
a page of another size holds.
"""

from __future__ import annotations

from collections.abc import Sequence

from attrs import define, evolve, field
from msgspec import Raw

from integration_sdk._sansio.paging.cursor import Position, number_of, same_query
from integration_sdk._sansio.paging.items import Sheet
from integration_sdk._sansio.paging.line import Ask
from integration_sdk._sansio.paging.links import LinkReader
from integration_sdk._sansio.paging.page_size import PageSize
from integration_sdk._sansio.paging.walk import Walk
from integration_sdk._sansio.requests import Params
from integration_sdk.errors import PaginationError


@define(kw_only=True)
class PageWalk(Walk):
    """One walk along a list, as its links lead.

    Attributes:
        sizes: How many items to ask for at once.
        base_url: What absolute links must agree with.
    """

    sizes: PageSize
    base_url: str = ""

    _problem: PaginationError | None = field(init=False, default=None)
    _links: LinkReader = field(init=False)
    _count: int = field(init=False, default=0)
    _visited: set[int] = field(init=False, factory=set)
    _end: int = field(init=False, default=0)
    """Pages are asked for ahead of their links only if they begin before this item."""
    _size: int | None = field(init=False, default=None)
    """Items of a full page, as answered last; None where arithmetic does not hold."""
    _by_link: Ask | None = field(init=False, default=None)
    """What the link asked for, while the head is asked for in another size; else None."""
    _begun: Ask | None = field(init=False, default=None)
    """The page that a cursor resumes within, and how much of it to skip, while it is read in
    smaller parts; else None."""
    _unlinked: Sequence[Raw] = field(init=False, default=())
    """Items of the current page where no link leads on from it."""

    def __attrs_post_init__(self) -> None:
        self._links = LinkReader(self.request, self.base_url)
        self.total = self.start.total
        self._size = _number(self.start.params, "pageSize")
        self.line.start_over(self._first())

    def _first(self) -> Ask:
        """Return the page to begin with; its offset is known if all before it were full."""
        number = _number(self.start.params)
        before = 0 if number == 1 else ((number or 0) - 1) * (self._size or 0)
        counted = number and not self.start.query and self.start.done == before + self.start.skip
        return Ask(
            params=self.start.params,
            query=self.start.query,
            number=number,
            offset=before if counted else None,
            skip=self.start.skip,
        )

    def beyond(self, tail: Ask) -> Ask | None:
        """Return the page behind *tail* by arithmetic, up to where that is known to hold."""
        further = _successor(tail, self._size)
        if further.offset is None or further.offset >= self._end:
            return None
        return self._steered(further)

    # What came of it

    def too_much(self) -> bool:
        """Ask for the head in a smaller size, because it timed out; False if that is no use."""
        head = self.line.asks[0]
        if self._size is None or head.offset is None or not self.sizes.too_much():
            return False
        if head.offset % self.sizes.wanted:
            return False
        self._by_link = self._by_link or head
        if head.skip and self._begun is None:
            self._begun = head
        self.line.start_over(self._resized(head, self.sizes.wanted))
        return True

    def opened(self, sheet: Sheet, size: int, seconds: float = 0.0) -> int | None:
        """Take the head's answer, and judge its link; see `Walk.opened`."""
        ask = self.line.asks[0]
        if self.guessing and sheet.raws and sheet.raws == self._unlinked:
            self.ended()
            return None
        if ask.size is not None and not self._is_exact(ask, sheet):
            self._steer_no_more(ask)
            return None
        self.check_number(ask, sheet.number)
        self.line.open_head(size)
        self.current, self._count = ask, sheet.count
        self.offered += max(sheet.count - ask.skip, 0)
        self._visited.add(_mark(ask.params, ask.query))
        self.total = self.total if sheet.total is None else sheet.total
        self.sizes.answered(sheet.count, size, seconds)
        self._go_on(ask, sheet)
        return ask.skip

    def _go_on(self, ask: Ask, sheet: Sheet) -> None:
        try:
            following = self._following(ask, sheet)
        except PaginationError as problem:
            self._problem, following = problem, None
        if following is not None and self._begun is not None:
            following = evolve(following, skip=max(ask.skip - sheet.count, 0))
        if following is None or not following.skip:
            self._begun = None
        self._by_link = following
        self._unlinked = sheet.raws if self.guessing else ()
        self._end = self._foreseeable(following)
        if following is None:
            self.line.start_over()
        elif not self._agrees(following):
            self.line.start_over(self._steered(following))

    def _agrees(self, following: Ask) -> bool:
        """Whether the head was asked for ahead as the link now has it, or as the same items."""
        if not self.line.asks:
            return False
        head = self.line.asks[0]
        if following.skip != head.skip:
            return False
        if following.offset is not None:
            return following.offset == head.offset
        return head.offset is None and same_query(head.params, following.params)

    def _foreseeable(self, following: Ask | None) -> int:
        """Return where in the list arithmetic stops: at its end, or at the limit."""
        if following is None or following.offset is None or self.total is None:
            return 0
        if self.limit is None:
            return self.total
        return min(self.total, following.offset + self.limit - self.offered)

    # Links

    def _following(self, ask: Ask, sheet: Sheet) -> Ask | None:
        """Return the next page, with its offset if it is the one that arithmetic expects."""
        guessed, self.guessing = self.guessing, sheet.links.next is None
        if sheet.links.next is None:
            return None if guessed and not sheet.count else self._guess(ask, sheet)
        page = ask.number if ask.number is not None else sheet.number
        params = self._links.query(sheet.links.next, page=page)
        query = self._links.raw_query(sheet.links.next, params)
        params = self._sized(params, ask)
        number = self._number_of(params)
        backwards = number is not None and page is not None and number <= page
        if backwards or _mark(params, query) in self._visited:
            raise self.error(
                f"the next link of page {page} leads back to a page that was read already "
                f"({sheet.links.next!r})",
                page,
            )
        self._size = None if query else self._regular_size(ask, sheet, params)
        offset = self._size * ask.number if self._size and ask.number else None
        return Ask(params=params, query=query, number=number, offset=offset)

    def _sized(self, params: Params, ask: Ask) -> Params:
        """Return a link's query with the size of its page where it names a page and no size."""
        names = {name for name, _ in params}
        plain = "page" in names and names <= {name for name, _ in self.request.params}
        if not plain or "pageSize" in names:
            return params
        return (*params, *(pair for pair in ask.params if pair[0] == "pageSize"))

    def _regular_size(self, ask: Ask, sheet: Sheet, params: Params) -> int | None:
        """Return the size of pages where the link is the page's own query, one page on."""
        if ask.number is None:
            return None
        regular = same_query(params, _replaced(ask.params, "page", ask.number + 1))
        size = sheet.size if regular else None
        if sheet.count != sheet.size:
            self.sizes.give_up()
        if size and size < (_number(ask.params, "pageSize") or 0):
            self.sizes.capped(size)
        return size or None

    def _number_of(self, params: Params) -> int | None:
        """A link without ``page`` means page 1 (the default), unless it says more than we did."""
        if any(name == "page" for name, _ in params):
            return _number(params)
        says_more = {name for name, _ in params} - {name for name, _ in self.request.params}
        return None if says_more else 1

    def _guess(self, ask: Ask, sheet: Sheet) -> Ask | None:
        """No link: the end, unless the page itself says that there is more."""
        if ask.number is None or ask.query or not sheet.size or sheet.total is None:
            return None
        more = sheet.total > max(ask.number * sheet.size, self.start.done + self.offered)
        return evolve(_successor(ask, None), size=None) if more else None

    # Sizes

    def _steered(self, ask: Ask) -> Ask:
        """Return *ask*, in another size if one is wanted and its place allows it."""
        if self._size is None or ask.offset is None:
            return ask
        size = self.sizes.at(ask.offset, ask.size or self._size)
        return ask if size == (ask.size or self._size) else self._resized(ask, size)

    def _resized(self, ask: Ask, size: int) -> Ask:
        """Return the page of *size* that begins where *ask* does."""
        number = (ask.offset or 0) // size + 1
        params = _replaced(_replaced(ask.params, "page", number), "pageSize", size)
        return Ask(params=params, number=number, offset=ask.offset, size=size, skip=ask.skip)

    def _is_exact(self, ask: Ask, sheet: Sheet) -> bool:
        """Whether a page is of the size that was chosen for it: full, or up to the list's end."""
        end = (
            ask.size if sheet.links.next or sheet.total is None else sheet.total - (ask.offset or 0)
        )
        return sheet.size == ask.size and sheet.count in {ask.size, end}

    def _steer_no_more(self, ask: Ask) -> None:
        """The service gave another size than was asked for: go on as the link has it."""
        self.sizes.give_up()
        self.line.start_over(self._by_link or evolve(ask, size=None))

    # Where it is

    def position(self, taken: int) -> Position:
        """Return the place behind the first *taken* items of the current page."""
        if self.current is None:
            return self.start
        done = self.start.done + self.offered - max(self._count - taken, 0)
        is_over = taken >= self._count and not self.guessing
        following = self._begun or (self._by_link if is_over else None)
        page, skip = (following, following.skip) if following else (self.current, taken)
        return Position(
            params=page.params, query=page.query, skip=skip, done=done, total=self.total
        )

    def resume_behind_problem(self) -> PaginationError | None:
        """Return why the walk cannot go on, and prepare to look at that page once more."""
        if self.satisfied or self._problem is None:
            return None
        problem, self._problem = self._problem, None
        if self.current is not None:
            self._visited.discard(_mark(self.current.params, self.current.query))
            self.line.start_over(evolve(self.current, skip=self._count))
        return problem


def _successor(ask: Ask, size: int | None) -> Ask:
    """Return the page behind *ask*, which has a number, by arithmetic; pages hold *size* items."""
    number = (ask.number or 0) + 1
    held = ask.size or size
    offset = None if ask.offset is None or held is None else ask.offset + held
    return Ask(
        params=_replaced(ask.params, "page", number), number=number, offset=offset, size=ask.size
    )


def _replaced(params: Params, name: str, value: int) -> Params:
    return (*(pair for pair in params if pair[0] != name), (name, str(value)))


def _number(params: Params, name: str = "page") -> int | None:
    values = [value for known, value in params if known == name]
    return number_of(values[0]) if len(values) == 1 else None


def _mark(params: Params, query: str | None) -> int:
    return hash((*sorted(params), query))
