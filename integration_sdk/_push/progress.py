"""How far the pushes of a coordinator have got, at which rate, and when they will have ended."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from typing import Final

from attrs import Factory, define, frozen

from integration_sdk.models import OutcomeStatus

WINDOW: Final = 15.0
"""Seconds over which the rate of outcomes is measured."""


@frozen(kw_only=True)
class PushProgress:
    """How far the pushes of a coordinator have got.

    Attributes:
        sending: Pushes being sent to the service.
        open: Pushes accepted by the service and not final.
        outcomes: Number of pushes that have ended, by outcome.
        total: Number of pushes expected, by the ``len()`` or ``total=`` of runs; None if not known.
        rate: Recent outcomes per second.
        eta: Seconds until all have ended; None if not known.
    """

    sending: int
    open: int
    outcomes: Mapping[OutcomeStatus, int]
    total: int | None
    rate: float
    eta: float | None

    @property
    def ended(self) -> int:
        """How many have an outcome."""
        return sum(self.outcomes.values())


@define
class Tally:
    """Counts what happens, for `PushProgress`."""

    total: int | None = None
    outcomes: Counter[OutcomeStatus] = Factory(Counter)
    _rate: float = 0.0
    _since: float | None = None
    _count: int = 0

    def expect(self, more: int) -> None:
        """Add *more* pushes to the total."""
        self.total = (self.total or 0) + more

    def ended(self, status: OutcomeStatus, now: float) -> None:
        """Count an outcome."""
        self.outcomes[status] += 1
        self._since = now if self._since is None else self._since
        self._count += 1
        if now - self._since >= WINDOW:
            self._rate, self._since, self._count = self._count / (now - self._since), now, 0

    def progress(self, now: float, *, sending: int, still_open: int) -> PushProgress:
        """Return the current progress, with *still_open* pushes that are not final."""
        rate = self._current(now)
        ended = sum(self.outcomes.values())
        left = None if self.total is None else max(0, self.total - ended)
        eta = 0.0 if left == 0 else left / rate if left is not None and rate else None
        return PushProgress(
            sending=sending,
            open=still_open,
            outcomes=dict(self.outcomes),
            total=self.total,
            rate=rate,
            eta=eta,
        )

    def _current(self, now: float) -> float:
        """Return the rate of the current window after two thirds of it, else of the last one."""
        passed = now - self._since if self._since is not None else 0.0
        if passed >= WINDOW * 2 / 3 or (self._rate == 0.0 and passed > 0):
            return self._count / passed
        return self._rate
