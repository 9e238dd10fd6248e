"""How many requests may be in flight at once, found by trial.

Additive increase, multiplicative decrease. Every refusal removes one place, down to half of the
size at which a round of refusals began: a service that refuses the whole crowd (a rate limit)
halves the window, one that refuses a single request too many (a concurrency limit) removes only
one place. Places return one by one, after `patience` rounds of answers each. Patience doubles
with every round of refusals, so that a known limit is tested less and less often, and halves with
every place gained beyond it.
"""

from __future__ import annotations

import math
from typing import Final

from attrs import define, field

LONGEST_PATIENCE: Final = 64.0
SMALLEST_WITH_SPARE: Final = 4
"""Windows of this size or more keep one place free for urgent requests."""


@define
class AimdLimit:
    """A window of `places`, between 1 and *limit*.

    Attributes:
        limit: Maximum number of places.
        size: Current number of places; the fraction is progress towards the next one.
        patience: Rounds of answers (one answer per place) that gain one place.
    """

    limit: int
    size: float
    patience: float = field(default=1.0, init=False)
    _ceiling: float = field(default=math.inf, init=False)
    _floor: float = field(default=1.0, init=False)
    _round_began: float = field(default=-math.inf, init=False)
    _before: tuple[float, float, float] | None = field(default=None, init=False)

    @property
    def places(self) -> int:
        """How many requests may be in flight."""
        return int(self.size)

    def has_room(self, in_flight: int, *, urgent: bool) -> bool:
        """Return whether one more may go; in larger windows the last place is for urgent ones."""
        kept = 0 if urgent or self.size < SMALLEST_WITH_SPARE else 1
        return in_flight < int(self.size) - kept

    def answered(self, in_flight: int) -> None:
        """Note an answer to one of *in_flight* requests; only a window in full use grows."""
        if in_flight < self.places - 1 or self.size >= self.limit:
            return
        self.size = min(self.limit, self.size + 1 / (self.patience * self.size))
        if self.size >= self._ceiling + 1:
            self._ceiling = self.size
            self.patience = max(1.0, self.patience / 2)

    def refused(self, in_flight: int, sent_at: float, now: float) -> None:
        """Note a refusal with *in_flight* requests; if it was the only one, nothing shrinks."""
        if sent_at >= self._round_began:
            if in_flight <= 1:
                return
            self._begin_round(min(self.size, in_flight), now)
        self.size = max(self._floor, self.size - 1)

    def forgive(self) -> None:
        """Undo the last round of refusals: concurrency was not its cause."""
        if self._before is not None:
            self.size, self.patience, self._ceiling = self._before
            self._before = None

    def _begin_round(self, used: float, now: float) -> None:
        self._before = self.size, self.patience, self._ceiling
        self.size = self._ceiling = used
        self._floor = max(1.0, used / 2)
        self._round_began = now
        self.patience = min(LONGEST_PATIENCE, self.patience * 2)
