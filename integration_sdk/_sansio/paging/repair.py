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
each page was read. If a page holds no such item, there may be a gap before it: the walk steps
back, twice as far each time, until a page holds one or is the first of the list.

Known limits: a record that is moved counts as deleted and inserted. Keys are kept for the whole
walk, about 100 bytes an item. A cursor knows only the last few items; one taken while the walk
stepped back may repeat some items, but misses none.
"""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from itertools import count
from typing import Final

from attrs import define, field

from integration_sdk._sansio.paging.cursor import Position
from integration_sdk._sansio.paging.drift import Keys, mark
from integration_sdk._sansio.paging.items import Sheet
from integration_sdk._sansio.paging.line import Ask
from integration_sdk._sansio.paging.page_size import MOST_CUTS
from integration_sdk._sansio.paging.report import Drift
from integration_sdk._sansio.paging.walk import Walk
from integration_sdk.errors import ResultSetChanged

SMALLEST: Final = 3
"""Minimum number of items in a page; smaller pages cannot both overlap and advance."""
CHOICES: Final = 200
"""Number of sizes that are considered for one page."""
MOST_IDLE: Final = 60
"""Maximum number of pages in a row without a new item, before an error is raised."""
MARKS: Final = 6
"""Number of items that a cursor identifies its place by."""


@define(kw_only=True)
class RepairWalk(Walk):
    """A walk along a list that may change.

    Attributes:
        size: Maximum number of items in a page.
        keys: Reads the keys of items.
    """

    size: int
    keys: Keys

    _seen: set[Hashable] = field(init=False, factory=set)
    _reached: int = field(init=False, default=0)
    """Position in the list up to which it was read, as of that time."""
    _overlap: int = field(init=False, default=1)
    _idle: int = field(init=False, default=0)
    """Pages in a row without a new item."""
    _marks: frozenset[int] = field(init=False)
    """Hashes of the keys that a cursor identifies its place by."""
    _from_start: bool = field(init=False, default=False)
    """Whether the place of a cursor is searched for page by page from the start."""
    _cuts: int = field(init=False, default=0)
    _page_keys: list[Hashable] = field(init=False, factory=list)
    _cut: int = field(init=False, default=0)

    def __attrs_post_init__(self) -> None:
        place = dict(self.start.params)
        size = int(place.get("pageSize", self.size))
        self.size = max(self.size, SMALLEST)
        self.total = self.start.total
        self._marks = frozenset(self.start.marks)
        self._reached = (int(place.get("page", 1)) - 1) * size + self.start.skip
        self.line.start_over(self._plan(self._reached))

    # What to fetch

    def beyond(self, tail: Ask) -> Ask | None:
        """Return the page after *tail*, provided that the list does not change."""
        end = (tail.offset or 0) + (tail.size or 0)
        last = self.total or 0
        if self.limit is not None:
            last = min(last, self._reached + self.limit - self.offered)
        return None if end >= last else self._plan(end)

    def _plan(self, reached: int) -> Ask:
        """Return the page that begins before *reached* and ends as far beyond it as possible."""
        begin = max(reached - self._overlap, 0)
        size = self._best_size(begin, reached) if begin else self.size
        number = begin // size + 1
        request = self.request.with_params(page=str(number), pageSize=str(size))
        return Ask(params=request.params, number=number, offset=(number - 1) * size, size=size)

    def _best_size(self, begin: int, reached: int) -> int:
        def end(size: int) -> int:
            return begin // size * size + size

        sizes = range(self.size, max(self.size // 2, self.size - CHOICES), -1)
        best = max(sizes, key=end)
        if end(best) > reached or self._overlap > 1:
            return best
        return next(size for size in count(self.size) if end(size) > reached)

    def too_much(self) -> bool:
        """Make the head smaller, because it took too long; False if that is not possible."""
        if self.size <= SMALLEST or self._cuts == MOST_CUTS:
            return False
        self._cuts += 1
        self.size = max(self.size // 2, SMALLEST)
        self.line.start_over(self._plan(self._reached))
        return True

    # What came of it

    def opened(self, sheet: Sheet, size: int, seconds: float = 0.0) -> int | None:
        """Make the head's answer the current page; see `Walk.opened`.

        Raises:
            ResultSetChanged: The list changes too fast, or a cursor's place is gone.
            PaginationError: It is not the page that was requested, or an item has no key.
        """
        ask = self.line.asks[0]
        self.check_number(ask, sheet.number)
        self._cuts = 0
        self._check_patience(ask)
        if sheet.size not in {None, ask.size}:
            self._resize(ask, sheet.size or 0)
            return None
        keys = self._read_keys(ask, sheet)
        self._note_total(ask, sheet)
        cut = self._continues_at(ask, keys)
        self._idle = 0 if cut is not None and cut < len(keys) else self._idle
        if cut is None:
            self._step(ask, sheet)
            return None
        self.line.open_head(size)
        self._take(ask, keys, cut)
        self._go_on(ask, sheet)
        return cut

    def _check_patience(self, ask: Ask) -> None:
        self._idle += 1
        if self._idle > MOST_IDLE and not self._from_start:
            raise self.error("it changes faster than it can be read", ask.number, ResultSetChanged)

    def _resize(self, ask: Ask, size: int) -> None:
        if not SMALLEST <= size < (ask.size or 0):
            raise self.error(
                f"pageSize {ask.size} was requested, but {size} was returned, and "
                'on_drift="repair" needs pages of the size that it requests',
                ask.number,
            )
        self.size = size
        self.line.start_over(self._plan(self._reached))

    def _read_keys(self, ask: Ask, sheet: Sheet) -> list[Hashable]:
        keys = [key for key in self.keys.read(sheet.raws) if key is not None]
        if len(keys) < sheet.count:
            raise self.error("an item has no key; name what identifies one with key=", ask.number)
        return keys

    def _note_total(self, ask: Ask, sheet: Sheet) -> None:
        if sheet.total is None:
            return
        if self.total not in {None, sheet.total}:
            text = f"totalResults went from {self.total} to {sheet.total}"
            self.notes.append(Drift(kind="total", page=ask.number, detail=text))
        self.total = sheet.total

    def _continues_at(self, ask: Ask, keys: Sequence[Hashable]) -> int | None:
        """Return the index in the page after the last item read already; None for a gap."""
        known = self._known(keys)
        if known:
            self._seen.update(keys[: known[-1] + 1])
            self._from_start = False
            return known[-1] + 1
        if self._marks:
            return None
        if not self._seen and self.start.skip + self._reached:  # a cursor without marks
            skip = self._reached - (ask.offset or 0)
            self._seen.update(keys[:skip])
            return min(skip, len(keys))
        return 0 if not ask.offset else None

    def _known(self, keys: Sequence[Hashable]) -> list[int]:
        seen, marks = self._seen, self._marks
        return [
            index for index, key in enumerate(keys) if key in seen or (marks and mark(key) in marks)
        ]

    def _take(self, ask: Ask, keys: list[Hashable], cut: int) -> None:
        self.current, self._page_keys, self._cut = ask, keys, cut
        self.offered += len(keys) - cut
        self._seen.update(keys[cut:])
        self._reached = (ask.offset or 0) + len(keys)
        self._overlap = max(self._overlap // 2, 1)

    def _go_on(self, ask: Ask, sheet: Sheet) -> None:
        if self._is_last(ask, sheet) or self._is_end(ask, sheet):
            self.line.start_over()
            return
        following = self._plan(self._reached)
        if not self.line.asks or self.line.asks[0].params != following.params:
            self.line.start_over(following)

    def _is_last(self, ask: Ask, sheet: Sheet) -> bool:
        end = (ask.offset or 0) + (ask.size or 0)
        more = sheet.total is not None and end < sheet.total
        short = sheet.total is not None and sheet.count < (ask.size or 0)
        return not more and (short or sheet.links.next is None)

    def _is_end(self, ask: Ask, sheet: Sheet) -> bool:
        """Whether nothing but ``totalResults`` says that there is more."""
        has_new = self._cut < sheet.count
        if has_new or sheet.links.next is not None or sheet.count >= (ask.size or 0):
            return False
        text = f"the list ended here, and totalResults says {sheet.total}"
        self.notes.append(Drift(kind="count", page=ask.number, detail=text))
        return True

    def _step(self, ask: Ask, sheet: Sheet) -> None:
        """Plan the next page of the search: further back or, once at the start, forward again."""
        text = "it has no item in common with what was read; going back to where it has"
        self.notes.append(Drift(kind="gap", page=ask.number, detail=text))
        self._from_start = self._from_start or not ask.offset
        if self._from_start:
            if self._is_last(ask, sheet):
                raise self.error(
                    "the items before the cursor are gone", ask.number, ResultSetChanged
                )
            self._reached, self._overlap = (ask.offset or 0) + (ask.size or 0), 1
        else:
            self._overlap *= 2
        self.line.start_over(self._plan(self._reached))

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
