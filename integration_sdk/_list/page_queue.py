"""The queue of pages to read, and how many of them may be requested ahead.

The head is the page that is handed out next; the others are requested ahead of time. How far
ahead has three bounds: a number of pages, which halves on a 429 and grows by one with each
answer; the bytes held and expected; and a page that failed, which is requested again only when
it has become the head, and until then no page behind it is.
"""

from __future__ import annotations

from collections import deque
from itertools import islice
from typing import Final

from attrs import define, field, frozen

from integration_sdk._http.requests import MIB, Params

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
        size: The ``pageSize`` that the answer must have; None for any.
        skip: Number of its items that an earlier run has handed out.
    """

    params: Params
    query: str | None = None
    number: int | None
    offset: int | None = None
    size: int | None = None
    skip: int = 0


@define
class PageQueue:
    """The pages to read, in order.

    Attributes:
        prefetch: Maximum number of pages requested ahead of the one being handed out.
        max_bytes: Approximate maximum of bytes in pages held or being requested.
        pages: The pages; the first is the head.
    """

    prefetch: int
    max_bytes: int
    pages: deque[PageRequest] = field(factory=deque)

    _requested: set[PageRequest] = field(init=False, factory=set)
    _window: int = field(init=False)
    _calm: int = field(init=False, default=0)
    """Pages to open before requesting further ahead, because the page behind them failed."""
    _body: int = field(init=False, default=GUESSED_BODY)
    _held: int = field(init=False, default=0)

    def __attrs_post_init__(self) -> None:
        self._window = self.prefetch

    def room(self, *, waiting: bool) -> int:
        """Return how many pages of the queue may be held or requested now.

        Args:
            waiting: Whether the head is being waited for; if so, the result is at least 1.
        """
        affordable = (self.max_bytes - self._held) // max(self._body, 1)
        room = min(self._window + waiting, affordable, self._calm or self._window + 1)
        return max(room, int(waiting))

    def to_fetch(self, room: int) -> list[PageRequest]:
        """Return those of the first *room* pages that have not been requested yet."""
        new = [wanted for wanted in islice(self.pages, room) if wanted not in self._requested]
        self._requested.update(new)
        return new

    def arrived(self, wanted: PageRequest, size: int) -> None:
        """Note that *wanted* was answered with *size* bytes."""
        if wanted in self._requested:
            self._body = max(size, (self._body + size) // 2)
            self._window = min(self._window + 1, self.prefetch)

    def failed(self, wanted: PageRequest, *, throttled: bool) -> None:
        """Note that *wanted* got no answer; *throttled* halves the window."""
        if wanted in self._requested:
            self._requested.discard(wanted)
            self._calm = max(self.pages.index(wanted), 1)
            if throttled:
                self._window = max(self._window // 2, min(self.prefetch, 1))

    def open_head(self, size: int) -> None:
        """Remove the head from the queue; its *size* bytes are held from now on."""
        self._requested.discard(self.pages.popleft())
        self._calm = max(self._calm - 1, 0)
        self._held = size

    def start_over(self, *pages: PageRequest) -> None:
        """Replace the whole queue with *pages*."""
        self.pages = deque(pages)
        self._requested.clear()

    def recalled(self) -> None:
        """Note that all requests were cancelled and their answers dropped."""
        self._requested.clear()
