"""Keeps the event loop responsive: items are decoded in slices, and the loop runs in between."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from attrs import define, field

SLICE_SECONDS = 0.001
FIRST_SLICE = 64
SMALLEST_SLICE = 8
LARGEST_SLICE = 4096


@define(eq=False)
class Turns:
    """Cuts the decoding of items into slices of about `SLICE_SECONDS`.

    Attributes:
        clock: Seconds, monotonic.
        began: When the first slice was requested; None before.
        size: Items in the next slice, adapted to how long the last one took.
    """

    clock: Callable[[], float]
    began: float | None = field(init=False, default=None)
    size: int = field(init=False, default=FIRST_SLICE)
    _last_turn: float = field(init=False, default=0.0)
    _handed: int = field(init=False, default=0)
    _handed_at: float = field(init=False, default=0.0)

    async def breathe(self) -> None:
        """Let the event loop run if it has not run for half of `SLICE_SECONDS`."""
        now = self.clock()
        if self.began is None:
            self.began = self._last_turn = now
        self._fit(now)
        if now - self._last_turn >= SLICE_SECONDS / 2:
            await asyncio.sleep(0)
            self.had_one()

    def _fit(self, now: float) -> None:
        """Choose the size of the next slice by how long the last one took."""
        if self._handed and now > self._handed_at:
            fitting = int(self._handed * SLICE_SECONDS / (now - self._handed_at))
            self.size = max(SMALLEST_SLICE, min(fitting, 2 * self.size, LARGEST_SLICE))
        self._handed = 0

    def handing(self, count: int) -> None:
        """Note that a slice of *count* items is handed out now."""
        self._handed, self._handed_at = count, self.clock()

    def had_one(self) -> None:
        """Note that the event loop has just run."""
        self._last_turn = self.clock()
