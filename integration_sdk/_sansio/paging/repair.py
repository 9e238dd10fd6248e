"""Reads a list that changes meanwhile, so that each record that stays comes exactly once.

Pages are addressed by position, and a record inserted or deleted before the reader's place shifts
all that follow: the next page then repeats some items, or misses some. `RepairWalk` requests
pages that overlap, by choosing page sizes so that each page begins before the last one ended::

    size 100, page 1:   |0 ............ 99|
    size  99, page 2:                 |99 ............ 197|
    size  98, page 3:                              |196 ............ 293|

If a page holds an item that was read already, the list continues after the last such item, and
only what follows it is handed out. Records that stay keep their order, so none of them can be
missing in between. So nothing comes twice, and no record that stays is missed, no matter when
each page was read. If a page holds no such item, there may be a gap before it: the overlap is
doubled, until a page holds one or is the first of the list.

A service may count items that it does not show, so pages may come short, or empty. Each page
therefore ends beyond the last one that was used, and is made larger than usual if it must be to
reach an item on either side. So every page of a list that stands still leads on; in one that
changes, `MOST_WITHOUT_NEWS` pages in a row without a new item are an error.

The list ends where ``totalResults`` says, links or not. If that is too high, a service that sends
links ends its list by sending none; of one that never does, larger pages are requested, and if
they cannot reach that far, it is an error.

Known limits: a record that is moved counts as deleted and inserted. Keys are kept for the whole
walk, about 100 bytes an item. A cursor knows only the last few items; one taken while the walk
stepped back may repeat some items, but misses none.
"""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from typing import Final

from attrs import define, field

from integration_sdk._sansio.paging.cursor import Position
from integration_sdk._sansio.paging.drift import Keys, mark
from integration_sdk._sansio.paging.items import NO_PAGE, RawPage
from integration_sdk._sansio.paging.page_queue import PageRequest
from integration_sdk._sansio.paging.page_size import MOST_CUTS
from integration_sdk._sansio.paging.report import Drift
from integration_sdk._sansio.paging.walk import Walk
from integration_sdk._sansio.requests import LARGEST_PAGE
from integration_sdk.errors import ResultSetChanged

SMALLEST: Final = 10
"""Minimum of the largest size. Smaller pages cannot always overlap and advance: in none of
up to 4 items are items 12 and 13 of the list together, nor 840 and 841 in any of up to 8."""
CHOICES: Final = 200
"""Number of sizes that are considered for one page."""
MOST_WITHOUT_NEWS: Final = 60
"""Maximum number of pages in a row without a new item, before an error is raised.

Pages that are searched for a cursor's place from the start count only if they are empty."""
MARKS: Final = 6
"""Number of items that a cursor identifies its place by."""


@define(kw_only=True)
class RepairWalk(Walk):
    """A walk along a list that may change.

    Attributes:
        size: Number of items in a page, if it need not be larger.
        keys: Reads the keys of items.
    """

    size: int
    keys: Keys

    _largest: int = field(init=False, default=LARGEST_PAGE)
    """Maximum number of items in a page."""
    _seen: set[Hashable] = field(init=False, factory=set)
    _reached: int = field(init=False)
    """Position in the list up to which it was read, as of that time."""
    _overlap: int = field(init=False, default=1)
    """0 while the place of a cursor is searched for page by page from the start."""
    _without_news: int = field(init=False, default=0)
    """Pages in a row without a new item."""
    _marks: frozenset[int] = field(init=False)
    """Hashes of the keys that a cursor identifies its place by."""
    _cuts: int = field(init=False, default=0)
    _page_keys: list[Hashable] = field(init=False, factory=list)
    _linked: bool = field(init=False, default=False)
    """Whether the service sends links, so that the last page is the one without."""

    def __attrs_post_init__(self) -> None:
        self.total = self.start.total
        self._marks = frozenset(self.start.marks)
        self._begin(LARGEST_PAGE)

    def _begin(self, most: int) -> None:
        """Begin at the start, which is on a page of at most *most* items."""
        start = dict(self.start.params)
        size = min(int(start.get("pageSize", self.size)), most)
        first = self._page_request(int(start.get("page", 1)), size)
        self._reached = (first.offset or 0) + self.start.skip
        self.queue.start_over(self._plan(self._reached) if self._marks else first)

    # What to fetch

    def beyond(self, tail: PageRequest) -> PageRequest | None:
        """Return the page after *tail*, provided that the list does not change."""
        end = _end(tail)
        last = self.total or 0
        if self.limit is not None:
            last = min(last, self._reached + self.limit - self.offered)
        return None if end >= last else self._plan(end)

    def _plan(self, reached: int) -> PageRequest:
        """Return a page that begins before *reached* and ends beyond it, if there is one."""
        begin, size = max(reached - self._overlap, 0), self.size
        wanted = self._longest(begin, size)
        while _end(wanted) <= reached and size < self._largest:
            size = min(2 * size, self._largest)
            wanted = self._longest(begin, size)
        return wanted

    def _longest(self, begin: int, size: int) -> PageRequest:
        """Return the page with item *begin* that ends last, of *size* items or somewhat less."""
        sizes = range(size, max(size // 2, size - CHOICES), -1)
        best = max(sizes, key=lambda size: begin // size * size + size)
        return self._page_request(begin // best + 1, best)

    def _page_request(self, number: int, size: int) -> PageRequest:
        params = self.request.with_params(page=str(number), pageSize=str(size)).params
        return PageRequest(params=params, number=number, offset=(number - 1) * size, size=size)

    def shrink_head(self) -> bool:
        """Make the head smaller, as its answer was too slow or too large; False if it cannot be."""
        size = self.queue.pages[0].size or 0
        if size <= SMALLEST or self._cuts == MOST_CUTS:
            return False
        self._cuts += 1
        smaller = self.size if size > self.size else size // 2
        self._shrink(max(smaller, SMALLEST))
        self.queue.start_over(self._plan(self._reached))
        return True

    def _shrink(self, size: int) -> None:
        self._largest, self.size = size, min(self.size, size)

    # What came of it

    def skip_head(self) -> bool:
        """Look further back, as the list has become shorter; False for its first page."""
        wanted = self.queue.pages[0]
        if wanted.offset:
            self._check_patience(wanted, (), None)
            self._search(wanted, NO_PAGE)
        return bool(wanted.offset)

    def opened(self, page: RawPage, size: int, seconds: float = 0.0) -> int | None:
        """Make the head's answer the current page; see `Walk.opened`.

        Raises:
            ResultSetChanged: The list changes too fast, or a cursor's place is gone.
            PaginationError: It is not the page requested, or keys are missing or not unique.
        """
        wanted = self.queue.pages[0]
        self.check_number(wanted, page.number)
        self._cuts = 0
        if page.size not in {None, wanted.size}:
            self._resize(wanted, page.size or 0)
            return None
        keys = self._read_keys(wanted, page)
        self._note_total(wanted, page)
        cut = self._continues_at(wanted, keys)
        self._check_patience(wanted, keys, cut)
        if cut is None:
            self._search(wanted, page)
            return None
        self.queue.open_head(size)
        self.offered += len(keys) - cut
        self._take(wanted, page, keys)
        if self._is_last(wanted, page, cut):
            self._note_shortfall(wanted, page)
            self.queue.start_over()
        else:
            self._go_on()
        return cut

    def _resize(self, wanted: PageRequest, size: int) -> None:
        if not SMALLEST <= size < (wanted.size or 0):
            raise self.error(
                f"pageSize {wanted.size} was requested, but {size} was returned, and "
                'on_drift="repair" needs pages of the sizes that it requests, or at least of '
                f"{SMALLEST} items each",
                wanted.number,
            )
        self._shrink(size)
        if self.current is None:
            self._begin(size)
        else:
            self.queue.start_over(self._plan(self._reached))

    def _read_keys(self, wanted: PageRequest, page: RawPage) -> list[Hashable]:
        keys = [key for key in self.keys.read(page.raws) if key is not None]
        if len(set(keys)) < page.count:
            what = "an item has no key" if len(keys) < page.count else "two items have the same key"
            raise self.error(f"{what}; name what identifies one with key=", wanted.number)
        return keys

    def _note_total(self, wanted: PageRequest, page: RawPage) -> None:
        if page.total is None:
            return
        if self.total not in {None, page.total}:
            text = f"totalResults went from {self.total} to {page.total}"
            self.notes.append(Drift(kind="total", page=wanted.number, detail=text))
        self.total = page.total

    def _continues_at(self, wanted: PageRequest, keys: Sequence[Hashable]) -> int | None:
        """Return the index in the page after the last item read already; None for a gap."""
        known = self._known(keys)
        if known:
            return known[-1] + 1
        if self._marks:
            return None
        if self.current is None:  # a cursor without marks, or none
            return min(self._reached - (wanted.offset or 0), len(keys))
        return 0 if not wanted.offset else None

    def _known(self, keys: Sequence[Hashable]) -> list[int]:
        seen, marks = self._seen, self._marks
        return [
            index for index, key in enumerate(keys) if key in seen or (marks and mark(key) in marks)
        ]

    def _check_patience(
        self, wanted: PageRequest, keys: Sequence[Hashable], cut: int | None
    ) -> None:
        if cut is not None and cut < len(keys):
            self._without_news = 0
        elif self._overlap or not keys:
            self._without_news += 1
        if self._without_news > MOST_WITHOUT_NEWS:
            raise self.error(
                f"the last {self._without_news} pages held nothing new: it changes faster than it "
                "can be read, or counts many items that it does not show; go on from the cursor "
                "when it is calmer, or with another on_drift",
                wanted.number,
                ResultSetChanged,
            )

    def _take(self, wanted: PageRequest, page: RawPage, keys: list[Hashable]) -> None:
        self.current, self._page_keys = wanted, keys
        self._linked |= page.links.next is not None
        self._seen.update(keys)
        self._reached = _end(wanted)
        # The last item may stand this far before the end of the page. Without a link, the page
        # is probably the last, and any page that begins behind that item would be empty.
        furthest = max((wanted.size or 0) - len(keys), 0) + 1
        overlap = furthest if page.links.next is None else max(self._overlap, 1)
        self._overlap = min(overlap, furthest)

    def _go_on(self) -> None:
        """Plan the next page, unless the queue begins with one that will do."""
        begin = max(self._reached - self._overlap, 0)
        head = self.queue.pages[0] if self.queue.pages else None
        if head is None or (head.offset or 0) > begin:
            self.queue.start_over(self._plan(self._reached))

    def _is_last(self, wanted: PageRequest, page: RawPage, cut: int | None) -> bool:
        """Whether the list ends here: by its total or, if that is too high, by its links."""
        unlinked, short = page.links.next is None, page.count < (wanted.size or 0)
        if page.total is not None and _end(wanted) < page.total:
            return self._linked and unlinked and short and cut == page.count
        return unlinked or (short and page.total is not None)

    def _note_shortfall(self, wanted: PageRequest, page: RawPage) -> None:
        if page.total is not None and (wanted.offset or 0) + page.count < page.total:
            text = f"the list ended here, and totalResults says {page.total}"
            self.notes.append(Drift(kind="count", page=wanted.number, detail=text))

    def _search(self, wanted: PageRequest, page: RawPage) -> None:
        """Look further back or, for a cursor's place and once at the start, forward again."""
        if wanted.offset and self._overlap:
            text = "it has no item in common with what was read; going back to where it has"
            self.notes.append(Drift(kind="gap", page=wanted.number, detail=text))
            following = wanted
            while following.params == wanted.params:
                self._overlap *= 2
                following = self._plan(self._reached)
            self.queue.start_over(following)
            return
        if self._is_last(wanted, page, None):
            raise self.error(
                "the items before the cursor are gone; start afresh",
                wanted.number,
                ResultSetChanged,
            )
        self.queue.open_head(0)
        self._reached, self._overlap = _end(wanted), 0
        self._go_on()

    # Where it is

    def position(self, taken: int) -> Position:
        """Return the place after the first *taken* items of the current page."""
        if self.current is None:
            return self.start
        left = max(len(self._page_keys) - taken, 0)
        marks = tuple(mark(key) for key in self._page_keys[max(taken - MARKS, 0) : taken])
        return Position(
            params=self.current.params,
            skip=taken,
            done=self.start.done + self.offered - left,
            total=self.total,
            marks=marks,
        )


def _end(wanted: PageRequest) -> int:
    """Return the position after the last item of *wanted*."""
    return (wanted.offset or 0) + (wanted.size or 0)
