"""Rates: so many events a second, evenly spaced, with bursts of a given size; or kept elsewhere."""

from typing import Protocol, runtime_checkable

from attrs import define


@define
class CellRate:
    """When the next event may happen. Times are seconds of any one clock.

    *interval* and *burst* are given in each call, so that a limit may change while it is used.

    Attributes:
        next_at: When the next event may happen, if no burst is allowed.
        paused_until: No event happens before.
    """

    next_at: float = 0.0
    paused_until: float = 0.0

    def reserve(self, count: int, now: float, *, interval: float, burst: float = 1) -> float:
        """Take *count* slots, one *interval* apart; return when the first one is.

        That may have been earlier: up to *burst* events may happen together after a pause.
        """
        first = self._first(now, interval, burst)
        self.next_at = first + count * interval
        return first

    def wait(self, now: float, *, interval: float, burst: float = 1) -> float:
        """Return the seconds until a slot is free, 0 if one is; nothing is taken."""
        return max(0.0, self._first(now, interval, burst) - now)

    def pause(self, until: float) -> None:
        """Let nothing happen before *until*."""
        self.paused_until = max(self.paused_until, until)

    def _first(self, now: float, interval: float, burst: float) -> float:
        return max(self.next_at, self.paused_until, now - max(0.0, burst - 1) * interval)


@runtime_checkable
class SharedRate(Protocol):
    """A limit of calls that is kept elsewhere, such as in a store, for `Client` to obey.

    It is acquired last, when a call has its turn by the client's own limits and order, and before
    a push is put on record.
    """

    async def acquire(self) -> None:
        """Wait until one more call may be sent. What it raises ends the call, unsent."""

    def paused(self, seconds: float) -> None:
        """Note that the service refuses all calls for so many *seconds* from now."""
