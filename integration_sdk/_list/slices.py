"""Keeps the event loop responsive: items are decoded in slices, and the loop runs in between."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from attrs import define, field

SLICE_SECONDS = 0.0015
FIRST_SLICE = 64
SMALLEST_SLICE = 8
LARGEST_SLICE = 4096


@define(eq=False)
class Slices:
    """Cuts the decoding of items into slices of about `SLICE_SECONDS`.

    Attributes:
        clock: Seconds, monotonic.
        began: When the first slice was requested; None before.
        size: Items in the next slice, adapted to how long the last one took.
    """

    clock: Callable[[], float]
    began: float | None = field(init=False, default=None)
    size: int = field(init=False, default=FIRST_SLICE)
    _last_pause: float = field(init=False, default=0.0)
    _handed: int = field(init=False, default=0)
    _handed_at: float = field(init=False, default=0.0)

    async def breathe(self) -> None:
        """Let the event loop run if it has not run for half of `SLICE_SECONDS`."""
        now = self.clock()
        if self.began is None:
            self.began = self._last_pause = now
        if now - self._last_pause >= SLICE_SECONDS / 2:
            await asyncio.sleep(0)
            self._last_pause = self.clock()

    def handing(self, count: int) -> None:
        """Note that a slice of *count* items is handed out now."""
        self._handed, self._handed_at = count, self.clock()

    def taken(self) -> None:
        """Note that the slice was taken, and choose the size of the next by how long that took."""
        took = self.clock() - self._handed_at
        if self._handed and took > 0:
            fitting = int(self._handed * SLICE_SECONDS / took)
            self.size = max(SMALLEST_SLICE, min(fitting, 2 * self.size, LARGEST_SLICE))
        self._handed = 0
