"""Waits that end: one timer for any number of deadlines."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Container
from heapq import heappop, heappush

from attrs import Factory, define


@define(eq=False)
class Waits:
    """Calls back with a push key, and how long was waited, when its wait ends.

    Attributes:
        open: Keys that still count; others are passed over.
        expired: Called with the key and the seconds waited.
    """

    open: Container[str]
    expired: Callable[[str, float], None]
    _heap: list[tuple[float, float, str]] = Factory(list)
    _timer: asyncio.TimerHandle | None = None

    def start(self, key: str, seconds: float) -> None:
        """End the wait for *key* after so many seconds."""
        heappush(self._heap, (asyncio.get_running_loop().time() + seconds, seconds, key))
        if self._heap[0][2] == key:
            self._set_timer()

    def close(self) -> None:
        """End no more waits."""
        self._heap.clear()
        self._set_timer()

    def _set_timer(self) -> None:
        if self._timer:
            self._timer.cancel()
            self._timer = None
        while self._heap and self._heap[0][2] not in self.open:
            heappop(self._heap)
        if self._heap:
            self._timer = asyncio.get_running_loop().call_at(self._heap[0][0], self._expire)

    def _expire(self) -> None:
        now = asyncio.get_running_loop().time()
        while self._heap and self._heap[0][0] <= now:
            _, seconds, key = heappop(self._heap)
            if key in self.open:
                self.expired(key, seconds)
        self._set_timer()
