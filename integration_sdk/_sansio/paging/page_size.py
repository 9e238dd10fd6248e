"""How many items to ask for at once: what the caller said, or what the service bears.

Where a list is addressed by number, a page of size s is items (n-1)*s to n*s. So the
size may change only where the items before it are a multiple of the new one; sizes
are therefore taken from a ladder in which each divides the next.
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
"""Good answers before a size that was too much is tried again."""
MOST_CUTS: Final = 2
"""Times that one page is asked for in a smaller size before its error is raised."""


@define
class PageSize:
    """The size to ask for.

    Attributes:
        wanted: As of now.
        auto: Whether answers steer it; else it only gives way to errors, and comes back.
    """

    wanted: int
    auto: bool = False
    _larger: list[int] = field(init=False, factory=list)
    """Sizes to grow into, nearest last."""
    _steers: bool = field(init=False)
    """Whether sizes differ from what the links say: from the first cut on, if not automatic."""
    _fixed: bool = field(init=False, default=False)
    _good: int = field(init=False, default=0)
    _cuts: int = field(init=False, default=0)

    def __attrs_post_init__(self) -> None:
        self._steers = self.auto

    @classmethod
    def automatic(cls) -> PageSize:
        """A size that is steered by bytes and latency."""
        size = cls(START, auto=True)
        size._larger = [step for step in reversed(LADDER) if step > START]
        return size

    def answered(self, count: int, size: int, seconds: float) -> None:
        """Learn from an answer of *count* items, *size* bytes and *seconds*."""
        self._cuts = 0
        if self._fixed or count < self.wanted:
            return
        if self.auto and (size > MANY_BYTES or seconds > LONG_SECONDS):
            self._cut()
            return
        self._good += 1
        at_ease = not self.auto or (size <= GOOD_BYTES and seconds <= GOOD_SECONDS)
        patience = 1 if self.auto else CALM_PAGES
        if self._larger and at_ease and self._good >= patience:
            self.wanted, self._good = self._larger.pop(), 0

    def too_much(self) -> bool:
        """Ask for less, because a page timed out; False where that was tried enough."""
        if self._fixed or self._cuts == MOST_CUTS or self.wanted == 1:
            return False
        self._cuts += 1
        self._cut()
        return True

    def capped(self, size: int) -> None:
        """Learn that the service gives *size* at most."""
        self.wanted = min(self.wanted, size)
        self._larger = [step for step in self._larger if step <= size]

    def give_up(self) -> None:
        """Learn that the service gives another size than it is asked for."""
        self._fixed = True

    def at(self, offset: int, size: int) -> int:
        """Return the size for the page at *offset*, behind one of *size*."""
        fits = self._steers and not self._fixed and offset % self.wanted == 0
        return self.wanted if fits else size

    def _cut(self) -> None:
        """Go to the largest divisor that is at most half."""
        if self.wanted > 1:
            self._steers = True
            self._larger.append(self.wanted)
            self.wanted = _half(self.wanted)
        self._good = 0


def _half(size: int) -> int:
    return next(size // part for part in range(2, size + 1) if size % part == 0)
