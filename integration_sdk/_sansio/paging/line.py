"""The pages that stand in line, and how many of them may be on their way.

The head is the page that comes next; those behind it are asked for ahead of time.
How far ahead is bounded three ways: by a number of pages, which halves when the
service says 429 and grows back answer by answer; by the bytes that are held and
expected; and, behind a page that failed, by that page: it is asked for again when
it has become the head, and until then nothing behind it is.
"""

from __future__ import annotations

from collections import deque
from itertools import islice
from typing import Final

from attrs import define, field, frozen

from integration_sdk._sansio.requests import MIB, Params

GUESSED_BODY: Final = MIB
"""Bytes that a page is taken to have before one has been seen."""


@frozen(eq=False, kw_only=True)
class Ask:
    """One page to ask for.

    Attributes:
        params: Its query.
        query: Its text, where `params` cannot give it back.
        number: The ``pageNumber`` it must answer with; None where the link does not say.
        offset: Items of the list before it, where arithmetic tells.
        size: The ``pageSize`` it must answer with; None where any will do.
        skip: Its items that were handed out before (by an earlier run).
    """

    params: Params
    query: str | None = None
    number: int | None
    offset: int | None = None
    size: int | None = None
    skip: int = 0


@define
class Line:
    """Pages to come, in order.

    Attributes:
        prefetch: Pages asked for ahead of the one being handed out, at most.
        max_bytes: Bytes of pages held and on their way, about, at most.
        asks: The pages; the head is the first.
    """

    prefetch: int
    max_bytes: int
    asks: deque[Ask] = field(factory=deque)

    _asked: set[Ask] = field(init=False, factory=set)
    _window: int = field(init=False)
    _calm: int = field(init=False, default=0)
    """Pages to open before asking further ahead: the one behind them has failed."""
    _body: int = field(init=False, default=GUESSED_BODY)
    _held: int = field(init=False, default=0)

    def __attrs_post_init__(self) -> None:
        self._window = self.prefetch

    def room(self, *, waiting: bool) -> int:
        """Return how many pages of the line may be held or on their way.

        Args:
            waiting: Whether somebody waits for the head: there is room for it at least.
        """
        affordable = (self.max_bytes - self._held) // max(self._body, 1)
        room = min(self._window + waiting, affordable, self._calm or self._window + 1)
        return max(room, int(waiting))

    def to_fetch(self, room: int) -> list[Ask]:
        """Return the first *room* pages, without those that were asked for already."""
        new = [ask for ask in islice(self.asks, room) if ask not in self._asked]
        self._asked.update(new)
        return new

    def arrived(self, ask: Ask, size: int) -> None:
        """Note that *ask* was answered with *size* bytes."""
        if ask in self._asked:
            self._body = max(size, (self._body + size) // 2)
            self._window = min(self._window + 1, self.prefetch)

    def failed(self, ask: Ask, *, throttled: bool) -> None:
        """Note that *ask* has no answer; *throttled* halves the window."""
        if ask in self._asked:
            self._asked.discard(ask)
            self._calm = max(self.asks.index(ask), 1)
            if throttled:
                self._window = max(self._window // 2, min(self.prefetch, 1))

    def open_head(self, size: int) -> None:
        """Take the head out of the line; its *size* bytes are held from now on."""
        self._asked.discard(self.asks.popleft())
        self._calm = max(self._calm - 1, 0)
        self._held = size

    def start_over(self, *asks: Ask) -> None:
        """Let *asks* be the line, whatever was in it."""
        self.asks = deque(asks)
        self._asked.clear()

    def recalled(self) -> None:
        """Note that nothing is on its way or held any more."""
        self._asked.clear()
