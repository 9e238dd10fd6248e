"""Reads a list that changes meanwhile, so that each record that stays comes exactly once.

Pages are addressed by position, and a record inserted or deleted before the reader's place shifts
all that follow: the next page then repeats some items, or misses some. `RepairWalk` requests
pages that overlap, by choosing page sizes so that each page begins before the last one ended::

    size 100, page 1:   |0 ............ 99|
    size  99, page 2:                 |99 ............ 197|
    size  98, page 3:                              |196 ............ 293|

The first item of a page must be one that was read already and is unchanged, content and all. An
update is what moves a record, so that item still has the same place among the records that stay,
and all of those before it were handed out. What is new on the page is then handed out, wherever
on the page it is; a record that was read before and moved there is not handed out again. If the
first item is unknown or has changed, there may be a gap before the page: the overlap is doubled,
until a page begins with such an item, or is the first of the list. So nothing comes twice, and no
record that stays is missed, no matter when each page was read.

A service may filter items after paging, so pages may come short, or empty. Each page therefore
ends beyond the last one that was used, and is made larger than usual if it must be to reach an
item on either side. So every page of a list that stands still leads on; in one that changes,
`MOST_WITHOUT_NEWS` pages in a row without a new item are an error. A short page may also mean that
the service caps pages without saying so: until a smaller page comes short too, none is requested
that is larger than what was returned.

The list does not end while there is a next link, whatever ``totalResults`` says. Of a service that
never sends links, it ends where the pages that ``totalResults`` fills end. If that is too high,
a service that sends links ends its list by sending none; of one that never does, larger pages are
requested, and if they cannot reach that far, it is an error.

Known limits: a record that moves is not handed out if it moves from the part that is still to be
read to the part that was read. One that moves without a change of its content may hide a gap, if
it happens to become the first of a page. The content of each record is kept as a hash beside its
key for the whole walk, about 150 bytes an item; in a list whose records all differ in each answer,
keys alone count. A list that is filtered and silently capped at once may not be readable: that is
an error or, without links, a shortfall that is noted. A cursor knows only the keys of the last few
items: one taken while the walk stepped back may repeat some items, and one whose items move, all
but one, may miss some.
"""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from typing import Final

from attrs import define, evolve, field

from integration_sdk._list.cursor import Position
from integration_sdk._list.drift import Drift, Keys, mark, shortfall, total_changed
from integration_sdk._list.page import NO_PAGE, RawPage
from integration_sdk._list.walk import PageRequest, Walk
from integration_sdk._options_given import LARGEST_PAGE
from integration_sdk.errors import ResultSetChanged

CHOICES: Final = 200
"""Number of sizes that are considered for one page."""
MOST_WITHOUT_NEWS: Final = 60
"""Maximum number of pages in a row without a new item, before an error is raised.

Pages that are searched for a cursor's place from the start count only if they are empty."""
MARKS: Final = 6
"""Number of items that a cursor identifies its place by."""


SMALLEST: Final = 10
"""Minimum of the largest size of pages that overlap. Smaller ones cannot always advance: in none
of up to 4 items are items 12 and 13 of the list together, nor 840 and 841 in any of up to 8."""


@define
class SilentCap:
    """Finds out whether pages come short because the service caps them and does not say so.

    The other reason is that it filters items after paging. A page of a size that was returned
    in full, and comes short all the same, shows that.

    Attributes:
        size: Maximum number of items in a page, if there is a cap; None if there seems to be none.
    """

    size: int | None = field(init=False, default=None)
    _returned: int = field(init=False, default=0)
    """Number of items of the fullest page so far."""
    _filtered: bool = field(init=False, default=False)

    def suspected(self, size: int, count: int, *, more: bool) -> bool:
        """Whether a page must be requested again in `size`, since it may lack items.

        Args:
            size: The size requested.
            count: The number of items returned.
            more: Whether the list goes on behind the page.
        """
        returned, self._returned = self._returned, max(self._returned, count)
        if self._filtered or count == size or not more:
            return False
        self._filtered = size <= returned or count < max(returned, SMALLEST)
        self.size = None if self._filtered else count
        return not self._filtered


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
    _cap: SilentCap = field(init=False, factory=SilentCap)
    _ahead: bool = field(init=False, default=False)
    """Whether the head may have been requested before the current page was opened."""
    _seen: dict[Hashable, int] = field(init=False, factory=dict)
    """Hashes of the items read, by key."""
    _contents_vary: bool = field(init=False, default=False)
    """Whether items differ in each answer, so that only keys tell whether they were read."""
    _reached: int = field(init=False)
    """Position in the list up to which it was read, as of that time."""
    _overlap: int = field(init=False, default=1)
    """0 while the place of a cursor is searched for page by page from the start."""
    _without_news: int = field(init=False, default=0)
    """Pages in a row without a new item."""
    _marks: frozenset[int] = field(init=False)
    """Hashes of the keys that a cursor identifies its place by."""
    _page_keys: list[Hashable] = field(init=False, factory=list)
    """Keys of the current page, in the order in which it is handed out."""
    _order: list[int] = field(init=False, factory=list)
    """Indexes in the page of those items; empty if they are handed out as they stand."""
    _linked: bool = field(init=False, default=False)
    """Whether the service sends links, so that the last page is the one without."""

    def __attrs_post_init__(self) -> None:
        self.total = self.start.total
        self._marks = frozenset(self.start.marks)
        self._overlap = max(len(self._marks), 1)
        self._begin()

    def _begin(self) -> None:
        start = dict(self.start.params)
        size = min(int(start.get("pageSize", self.size)), self._limit_of_size)
        first = self._page_request(int(start.get("page", 1)), size)
        self._reached = (first.offset or 0) + self.start.skip
        self.start_over(self._plan(self._reached) if self._marks else first)

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
        begin, most = max(reached - self._overlap, 0), self._limit_of_size
        size = min(self.size, most)
        wanted = self._longest(begin, size)
        while _end(wanted) <= reached and size < most:
            size = min(2 * size, most)
            wanted = self._longest(begin, size)
        return wanted

    @property
    def _limit_of_size(self) -> int:
        return min(self._largest, self._cap.size or LARGEST_PAGE)

    def _longest(self, begin: int, size: int) -> PageRequest:
        """Return the page with item *begin* that ends last, of *size* items or somewhat less."""
        sizes = range(size, max(size // 2, size - CHOICES), -1)
        best = max(sizes, key=lambda size: begin // size * size + size)
        return self._page_request(begin // best + 1, best)

    def _page_request(self, number: int, size: int) -> PageRequest:
        params = self.request.with_params(page=str(number), pageSize=str(size)).params
        return PageRequest(params=params, number=number, offset=(number - 1) * size, size=size)

    def _shrink(self, size: int) -> None:
        self._largest, self.size = size, min(self.size, size)

    # What came of it

    def skip_head(self) -> bool:
        """Look further back, as the list has become shorter; False for its first page."""
        wanted = self.pages[0]
        if wanted.offset:
            self._check_patience(wanted, (), None)
            self._search(wanted, NO_PAGE)
        return bool(wanted.offset)

    def opened(self, page: RawPage, size: int, now: float = 0.0) -> tuple[RawPage, int] | None:
        """Make the head's answer the current page; see `Walk.opened`.

        Raises:
            ResultSetChanged: The list changes too fast, or a cursor's place is gone.
            PaginationError: It is not the page requested, or keys are missing or not unique.
        """
        wanted = self.pages[0]
        self.check_number(wanted, page.number)
        if page.size not in {None, wanted.size}:
            self._resize(wanted, page.size or 0)
            return None
        if self._seems_capped(wanted, page):
            self._start_anew()
            return None
        keys, prints = self._read_keys(wanted, page), [hash(bytes(raw)) for raw in page.raws]
        self._note_total(page)
        new = self._new_items(wanted, keys, prints)
        self._check_patience(wanted, keys, new)
        if new is None:
            self._search(wanted, page)
            return None
        if self._ahead and len(keys) - len(new) > self._reached - (wanted.offset or 0):
            # Fetched before a record moved, so it may lack items appended since: fetch it again.
            self._ahead = False
            self.start_over(self._plan(self._reached))
            return None
        self.open_head(size)
        self.offered += len(new)
        self._take(wanted, page, dict(zip(keys, prints, strict=True)), new)
        if self._is_last(wanted, page, news=bool(new)):
            self._note_shortfall(wanted)
            self.start_over()
        else:
            self._go_on()
        if self._order:
            page = evolve(page, raws=[page.raws[index] for index in self._order])
        return page, len(keys) - len(new)

    def _resize(self, wanted: PageRequest, size: int) -> None:
        if not SMALLEST <= size < (wanted.size or 0):
            raise self.error(
                f"pageSize {wanted.size} was requested, but {size} was returned, and "
                'on_drift="repair" needs pages of the sizes that it requests, or at least of '
                f"{SMALLEST} items each",
                wanted.number,
            )
        self._shrink(size)
        self._start_anew()

    def _start_anew(self) -> None:
        """Plan the next page again, in sizes that the service returns."""
        if self.current is None:
            self._begin()
        else:
            self.start_over(self._plan(self._reached))

    def _seems_capped(self, wanted: PageRequest, page: RawPage) -> bool:
        counted = not self._linked and (page.total or 0) > (wanted.offset or 0) + page.count
        more = page.links.next is not None or counted
        return self._cap.suspected(wanted.size or 0, page.count, more=more)

    def _read_keys(self, wanted: PageRequest, page: RawPage) -> list[Hashable]:
        keys = [key for key in self.keys.read(page.raws) if key is not None]
        if len(set(keys)) < page.count:
            what = "an item has no key" if len(keys) < page.count else "two items have the same key"
            raise self.error(f"{what}; name what identifies one with key=", wanted.number)
        return keys

    def _note_total(self, page: RawPage) -> None:
        self.notes += total_changed(self.total, page)
        self.total = self.total if page.total is None else page.total

    def _new_items(
        self, wanted: PageRequest, keys: Sequence[Hashable], prints: Sequence[int]
    ) -> list[int] | None:
        """Return the indexes in the page of the items to hand out; None if there may be a gap."""
        first = self._first_sure(wanted, keys, prints)
        if first is None:
            return None
        seen, marks = self._seen, self._marks
        return [
            index
            for index, key in enumerate(keys)
            if index >= first and key not in seen and not (marks and mark(key) in marks)
        ]

    def _first_sure(
        self, wanted: PageRequest, keys: Sequence[Hashable], prints: Sequence[int]
    ) -> int | None:
        """Return the index in the page before which nothing is missing; None if there may be."""
        if self.current is None:
            if self._marks:
                return self._first_marked(wanted, keys)
            return min(self._reached - (wanted.offset or 0), len(keys))
        if wanted.offset == 0 and not self._contents_vary:
            self._contents_vary = self._all_differ(keys, prints)
        if self._marks:  # what is before the first is before the cursor
            return next((i for i in range(len(keys)) if self._is_same(keys[i], prints[i])), None)
        return 0 if not wanted.offset or (keys and self._is_same(keys[0], prints[0])) else None

    def _is_same(self, key: Hashable, content: int) -> bool:
        """Whether an item was read already and has not changed, as far as can be known."""
        before = self._seen.get(key)
        return before is not None and (before == content or self._contents_vary)

    def _all_differ(self, keys: Sequence[Hashable], prints: Sequence[int]) -> bool:
        """Whether a page has many items that were read already, and none is as it was."""
        before = [(self._seen[k], p) for k, p in zip(keys, prints, strict=True) if k in self._seen]
        return len(before) >= SMALLEST and all(old != new for old, new in before)

    def _first_marked(self, wanted: PageRequest, keys: Sequence[Hashable]) -> int | None:
        """Return the index in the page of the first item that the cursor names, if that is sure."""
        marked = [index for index, key in enumerate(keys) if mark(key) in self._marks]
        # A single one may have moved here. From the start, it is the first there is.
        needed = 2 if wanted.offset and self._overlap and len(self._marks) > 1 else 1
        return marked[0] if len(marked) >= needed else None

    def _check_patience(
        self, wanted: PageRequest, keys: Sequence[Hashable], new: Sequence[int] | None
    ) -> None:
        if new and (wanted.offset or self.current is None):
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

    def _take(
        self, wanted: PageRequest, page: RawPage, items: dict[Hashable, int], new: list[int]
    ) -> None:
        keys, begin = list(items), new[0] if new else len(items)
        moved = sorted({*range(begin, len(keys))} - {*new}) if begin + len(new) < len(keys) else []
        if moved:
            text = f"{len(moved)} of its items were read before, at another place"
            self.notes.append(Drift(kind="duplicate", page=wanted.number, detail=text))
        self._order = [*moved, *range(begin), *new] if moved else []
        keys = [keys[index] for index in self._order] if moved else keys
        self.current, self._page_keys = wanted, keys
        self._linked |= page.links.next is not None
        self._seen.update(items)
        self._reached = _end(wanted)
        # The last item may stand this far before the end of the page. Without a link, the page
        # is probably the last, and any page that begins behind that item would be empty.
        furthest = max((wanted.size or 0) - len(keys), 0) + 1
        overlap = furthest if page.links.next is None else max(self._overlap, 1)
        self._overlap = min(overlap, furthest)

    def _go_on(self) -> None:
        """Plan the next page, unless the queue begins with one that will do."""
        begin = max(self._reached - self._overlap, 0)
        head = self.pages[0] if self.pages else None
        self._ahead = head is not None and (head.offset or 0) <= begin
        if not self._ahead:
            self.start_over(self._plan(self._reached))

    def _is_last(self, wanted: PageRequest, page: RawPage, *, news: bool) -> bool:
        """Whether the list ends here: by its links or, if it has none, by its total."""
        if page.links.next is not None:
            return False
        total, end = page.total or 0, _end(wanted)
        if end < total:
            return self._linked and page.count < (wanted.size or 0) and not news
        # The total of a service without links may count only what it shows.
        enough = (
            self.start.done + self.offered >= total or end >= -(-total // self.size) * self.size
        )
        return self._linked or enough

    def _note_shortfall(self, wanted: PageRequest) -> None:
        done = self.start.done + self.offered
        if self.total is not None and done < self.total:
            self.notes += shortfall(done, self.total, wanted.number)

    def _search(self, wanted: PageRequest, page: RawPage) -> None:
        """Look further back or, for a cursor's place and once at the start, forward again."""
        if wanted.offset and self._overlap:
            text = "it has no item in common with what was read; going back to where it has"
            self.notes.append(Drift(kind="gap", page=wanted.number, detail=text))
            following = wanted
            while following.params == wanted.params:
                self._overlap *= 2
                following = self._plan(self._reached)
            self.start_over(following)
            return
        if self._is_last(wanted, page, news=True):
            raise self.error(
                "the items before the cursor are gone; start afresh",
                wanted.number,
                ResultSetChanged,
            )
        self.open_head(0)
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
