"""The sandbox's idea of now.

It follows the running event loop's clock, so that a loop with virtual time drives the service
too, and can be advanced by hand, for example by three hours in one call. Nothing in the sandbox
sleeps until a push completes; its state is computed from ``now()`` when somebody asks.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from email.utils import formatdate
from functools import lru_cache
from math import inf


class Clock:
    """Seconds since 1970 as the service sees them.

    Args:
        starts: What the clock shows when the sandbox starts; None for the real time of day.

    Attributes:
        ring: What its alarm does.
        rings_at: When it does so, reached by the loop's clock or by `advance`; infinite for never.
    """

    def __init__(self, starts: datetime | None = None) -> None:
        if starts is not None and starts.tzinfo is None:
            starts = starts.replace(tzinfo=UTC)
        self._shown = time.time() if starts is None else starts.timestamp()
        self._loop: asyncio.AbstractEventLoop | None = None
        self._zero = 0.0
        self._timer: asyncio.TimerHandle | None = None
        self.ring: Callable[[], object] = lambda: None
        self.rings_at = inf

    def follow(self, loop: asyncio.AbstractEventLoop) -> None:
        """Run with *loop*'s clock from here on."""
        self.rest()
        self._loop, self._zero = loop, loop.time()
        self.ring_at(self.rings_at)

    def rest(self) -> None:
        """Stop at the current time."""
        self._shown, self._loop = self.now(), None
        self.ring_at(self.rings_at)

    def stands_still(self) -> bool:
        """Whether its loop waits for the end of the loop that runs here instead."""
        try:
            here = asyncio.get_running_loop()
        except RuntimeError:
            return False
        return not (self._loop is None or self._loop is here or self._loop.is_running())

    def now(self) -> float:
        """Seconds since 1970, UTC."""
        if self._loop is None:
            return self._shown
        return self._shown + self._loop.time() - self._zero

    def advance(
        self, *, days: float = 0, hours: float = 0, minutes: float = 0, seconds: float = 0
    ) -> None:
        """Advance the clock. Time never goes back."""
        ahead = timedelta(days=days, hours=hours, minutes=minutes, seconds=seconds).total_seconds()
        if ahead < 0:
            raise ValueError("a clock cannot be advanced by a negative time")
        self._shown += ahead
        self.ring_at(self.rings_at)

    def ring_at(self, at: float) -> None:
        """Set the alarm to *at*, instead of to the time set before."""
        if self._timer is not None:
            self._timer.cancel()
        self.rings_at, self._timer = at, None
        if self._loop is not None and at < inf:
            later = max(0.0, at - self.now())
            self._timer = self._loop.call_at(self._loop.time() + later, self._due)

    def ring_by(self, at: float) -> None:
        """Set the alarm to *at*, unless it rings before."""
        if at < self.rings_at:
            self.ring_at(at)

    def _due(self) -> None:
        self.rings_at, self._timer = inf, None
        self.ring()


def iso(moment: float, *, digits: int = 3) -> str:
    """*moment* as the service writes it: ``2023-03-01T12:00:00.250Z``.

    *digits* of the fraction are written, up to 7 (the published service's habit).
    """
    text = datetime.fromtimestamp(moment, UTC).isoformat(timespec="microseconds")
    return f"{text[:26]}0"[: 20 + digits if digits else 19] + "Z"


@lru_cache(maxsize=8)
def http_date(moment: float) -> str:
    """*moment* as HTTP headers write it, rounded up to a whole second."""
    return formatdate(-(-moment // 1), usegmt=True)
