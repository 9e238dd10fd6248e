"""The sandbox's idea of now.

It follows the running event loop's clock, so that a loop with virtual time drives the service
too, and can be pushed ahead by hand: three hours of a push day pass in one call. Nothing in the
sandbox sleeps to make a push complete; everything is computed from ``now()`` when somebody asks.
"""

from __future__ import annotations

import asyncio
import time
from datetime import UTC, datetime, timedelta
from email.utils import formatdate


class Clock:
    """Seconds since 1970 as the service sees them.

    Args:
        starts: What the clock shows when the sandbox starts; None for the real time of day.
    """

    def __init__(self, starts: datetime | None = None) -> None:
        if starts is not None and starts.tzinfo is None:
            starts = starts.replace(tzinfo=UTC)
        self._shown = time.time() if starts is None else starts.timestamp()
        self._loop: asyncio.AbstractEventLoop | None = None
        self._zero = 0.0

    def follow(self, loop: asyncio.AbstractEventLoop) -> None:
        """Run with *loop*'s clock from here on."""
        self.rest()
        self._loop, self._zero = loop, loop.time()

    def rest(self) -> None:
        """Stand still at what is shown now."""
        self._shown, self._loop = self.now(), None

    def now(self) -> float:
        """Seconds since 1970, UTC."""
        if self._loop is None:
            return self._shown
        return self._shown + self._loop.time() - self._zero

    def advance(
        self, *, days: float = 0, hours: float = 0, minutes: float = 0, seconds: float = 0
    ) -> None:
        """Push the clock ahead. Time never goes back."""
        ahead = timedelta(days=days, hours=hours, minutes=minutes, seconds=seconds).total_seconds()
        if ahead < 0:
            raise ValueError("a clock cannot be advanced by a negative time")
        self._shown += ahead


def iso(moment: float, *, digits: int = 3) -> str:
    """*moment* as the service writes it: ``2023-03-01T12:00:00.250Z``.

    *digits* of the fraction are written, up to 7 (the published service's habit).
    """
    text = datetime.fromtimestamp(moment, UTC).strftime("%Y-%m-%dT%H:%M:%S.%f") + "0"
    return text[: 20 + digits if digits else 19] + "Z"


def http_date(moment: float) -> str:
    """*moment* as HTTP headers write it, rounded up to a whole second."""
    return formatdate(-(-moment // 1), usegmt=True)
