"""The page size: the caller's, or adapted to the service.

Page n of size s holds the items (n-1)*s to n*s. So the size can change only where the number of
items before a page is a multiple of the new size. Sizes are therefore taken from a ladder in
which each divides the next.
"""

from __future__ import annotations

from typing import Final

from attrs import define, field

LADDER: Final = (125, 625, 1250, 2500, 5000)
"""For "auto": 5000 is the most, 100 the default. Source: "Limits"."""
START: Final = 625
GOOD_SECONDS: Final = 1.0
LONG_SECONDS: Final = 4.0
GOOD_BYTES: Final = 2 * 1024 * 1024
MANY_BYTES: Final = 8 * 1024 * 1024
CALM_PAGES: Final = 3
"""Number of good answers before a size that took too long is tried again."""
MOST_CUTS: Final = 2
"""How often one page is requested in a smaller size before its error is raised."""
SMALLEST: Final = 10
"""Minimum of the largest size of pages that overlap. Smaller ones cannot always advance: in none
of up to 4 items are items 12 and 13 of the list together, nor 840 and 841 in any of up to 8."""


@define
class PageSize:
    """The page size to request.

    Attributes:
        current: The size to request now.
        auto: Whether it adapts to the answers. If not, it only shrinks after errors, and
            grows back.
    """

    current: int
    auto: bool = False
    _larger: list[int] = field(init=False, factory=list)
    """Sizes to grow to, the smallest last."""
    _steers: bool = field(init=False)
    """Whether sizes may differ from those in the links; if not automatic, after the first cut."""
    _fixed: bool = field(init=False, default=False)
    _good: int = field(init=False, default=0)
    _cuts: int = field(init=False, default=0)

    def __attrs_post_init__(self) -> None:
        self._steers = self.auto

    @classmethod
    def automatic(cls) -> PageSize:
        """Return a size that adapts to the bytes and latency of the answers."""
        size = cls(START, auto=True)
        size._larger = [step for step in reversed(LADDER) if step > START]
        return size

    def answered(self, count: int, size: int, seconds: float) -> None:
        """Adapt to an answer with *count* items and *size* bytes that took *seconds*."""
        self._cuts = 0
        if self._fixed or count < self.current:
            return
        if self.auto and (size > MANY_BYTES or seconds > LONG_SECONDS):
            self._cut()
            return
        self._good += 1
        at_ease = not self.auto or (size <= GOOD_BYTES and seconds <= GOOD_SECONDS)
        patience = 1 if self.auto else CALM_PAGES
        if self._larger and at_ease and self._good >= patience:
            self.current, self._good = self._larger.pop(), 0

    def shrink(self) -> bool:
        """Shrink, as a page was too slow or too large; False if that was tried often enough."""
        if self._fixed or self._cuts == MOST_CUTS or self.current == 1:
            return False
        self._cuts += 1
        self._cut()
        return True

    def capped(self, size: int) -> None:
        """Note that the service returns at most *size* items."""
        self.current = min(self.current, size)
        self._larger = [step for step in self._larger if step <= size]

    def give_up(self) -> None:
        """Stop changing the size: the service does not return full pages of the size requested."""
        self._fixed = True

    def at(self, offset: int, size: int) -> int:
        """Return the size of the page at *offset*: the current one if it fits, else *size*."""
        fits = self._steers and not self._fixed and offset % self.current == 0
        return self.current if fits else size

    def _cut(self) -> None:
        """Shrink to the largest divisor of the current size."""
        if self.current > 1:
            self._steers = True
            self._larger.append(self.current)
            self.current = _largest_divisor(self.current)
        self._good = 0


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


def _largest_divisor(size: int) -> int:
    return next(size // part for part in range(2, size + 1) if size % part == 0)
