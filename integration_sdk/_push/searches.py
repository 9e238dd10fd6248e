"""When to search a company's list again for pushes that stayed in doubt.

Such a push may turn up late, and if nobody decides about it, it may be searched for all year long.
Each search goes back over all pushes since, so searches become rarer with time: by then there are
many pushes to go back over, and little hope.
"""

from __future__ import annotations

from math import inf
from typing import Final

from attrs import Factory, define

AFTER_LISTING: Final = 30.0
"""Minimum seconds between two searches that a listing triggers."""
AFTER_NOTIFICATION: Final = 8.0
"""The same for searches that a notification of an unknown push triggers."""
RARER: Final = 0.1
"""Share by which the time in doubt has to grow between two searches."""


@define
class _Doubts:
    """A company's pushes in doubt: since when, and when they were or will be searched for."""

    since: float
    searched_at: float = -inf


@define
class Searches:
    """The searches of all companies with pushes in doubt."""

    _companies: dict[str, _Doubts] = Factory(dict)

    def begin(self, company_id: str, now: float) -> None:
        """Note that a search has just ended that may have left a push in doubt."""
        self._companies[company_id] = _Doubts(now)

    def after_listing(self, company_id: str, now: float) -> bool:
        """Return whether to search now, since the company has just been listed."""
        doubts = self._of(company_id, now)
        due = now >= _next(doubts, AFTER_LISTING, now)
        if due:
            doubts.searched_at = now
        return due

    def after_notification(self, company_id: str, now: float) -> float | None:
        """Return after how many seconds to search; None if a search is yet to begin."""
        doubts = self._of(company_id, now)
        if doubts.searched_at > now:
            return None
        doubts.searched_at = max(now, _next(doubts, AFTER_NOTIFICATION, now))
        return doubts.searched_at - now

    def _of(self, company_id: str, now: float) -> _Doubts:
        return self._companies.setdefault(company_id, _Doubts(now))


def _next(doubts: _Doubts, pause: float, now: float) -> float:
    return doubts.searched_at + max(pause, RARER * (now - doubts.since))
