"""Learns from completion times how likely a push of some age has ended unnoticed.

A cohort, the pushes of one connection and data type, should take similar time. It remembers its
last completion times, and at what ages open pushes were last seen Pending. For a push that was
Pending at age ``seen`` and is now ``age`` seconds old, the pushes that got as far as ``seen`` say
what became of it::

    chance  that it has ended since     those that ended between, as a share of all that got there
    delay   its waiter has suffered     how long ago those ended, on average over all

All that got there are those that ended later, and those that were seen Pending halfway or later.
Without the latter, the first to end of many that began together would make the others look overdue.

To these, an assumption is added that weighs as much as `WEIGHT_OF_ASSUMPTION` pushes: that a push
is as likely to take one to two seconds as one to two hours. A cohort that knows little leans in the
same way on what all cohorts know together.
"""

from __future__ import annotations

from bisect import bisect, insort
from collections import deque
from collections.abc import Hashable
from math import inf
from typing import Final

from attrs import Factory, define

REMEMBERED: Final = 256
"""Ages that a cohort remembers, of pushes that ended and of pushes seen Pending each."""
WEIGHT_OF_ASSUMPTION: Final = 3.0
"""Pushes of a cohort's own that count as much as the assumption."""
HAZARD: Final = 0.31
"""Assumed: rate at which pushes end while their age grows e-fold."""
FIRST: Final = 0.1
"""Age in seconds at which the assumption begins."""
FEW: Final = 20
"""Completions from which `CompletionTimes.early` and `CompletionTimes.usual` are known."""
MOST_OPEN: Final = 8
"""Open pushes that count at most, for each one that ended: stuck ones say nothing of others."""
MOST_COHORTS: Final = 1000
"""Cohorts whose completion times are remembered; the least recently used are dropped first."""


def assumed(seen: float, age: float) -> tuple[float, float]:
    """Return chance and delay, see `CompletionTimes.unnoticed`, if nothing is known."""
    then, now = seen + FIRST, age + FIRST
    still_open = (then / now) ** HAZARD
    # The delay is the integral of the chance, 1 - (then / t) ** HAZARD, from then to now.
    return 1.0 - still_open, now - then - (now * still_open - then) / (1.0 - HAZARD)


@define
class LastAges:
    """The last `REMEMBERED` ages that were noted.

    Attributes:
        sorted: All of them, in order.
    """

    sorted: list[float] = Factory(list)
    _latest: deque[float] = Factory(deque)

    def note(self, age: float) -> None:
        """Remember *age*, and forget the oldest note if there are too many."""
        if len(self._latest) == REMEMBERED:
            del self.sorted[bisect(self.sorted, self._latest.popleft()) - 1]
        self._latest.append(age)
        insort(self.sorted, age)

    def share_above(self, age: float) -> float:
        """Return the share of the ages that are above *age*; 0 if there are none."""
        known = len(self.sorted)
        return (known - bisect(self.sorted, age)) / known if known else 0.0


@define
class CompletionTimes:
    """How long the pushes of one cohort take, or of all cohorts if *others* is None.

    Attributes:
        others: All cohorts, which learn what this one learns, and which it leans on.
    """

    others: CompletionTimes | None = None
    _ended: LastAges = Factory(LastAges)
    _pending: LastAges = Factory(LastAges)
    _open: int = 0

    def ended(self, age: float) -> None:
        """Learn that a push took *age* seconds."""
        self._ended.note(age)
        if self.others is not None:
            self.others.ended(age)

    def pending(self, age: float) -> None:
        """Learn that a push was seen Pending at *age*."""
        self._pending.note(age)
        if self.others is not None:
            self.others.pending(age)

    def count_open(self, change: int) -> None:
        """Learn that so many more pushes are open that may be seen Pending."""
        self._open += change
        if self.others is not None:
            self.others.count_open(change)

    def unnoticed(self, seen: float, age: float) -> tuple[float, float]:
        """Return the chance that a push seen Pending at age *seen* has ended by *age*, and the
        expected delay of its waiter in seconds.
        """
        basis = self.others.unnoticed if self.others is not None else assumed
        chance, delay = basis(seen, age)
        known = self._ended.sorted
        first = bisect(known, seen)
        ended = known[first : bisect(known, age, lo=first)]
        still_open = self._open * self._pending.share_above((seen + age) / 2)
        got_there = len(known) - first + min(still_open, FEW + MOST_OPEN * len(known))
        late = len(ended) * age - sum(ended)
        weight = got_there + WEIGHT_OF_ASSUMPTION
        chance = (len(ended) + WEIGHT_OF_ASSUMPTION * chance) / weight
        return chance, (late + WEIGHT_OF_ASSUMPTION * delay) / weight

    @property
    def early(self) -> float:
        """Age before which hardly any push ends."""
        known = self._ended.sorted
        return known[len(known) // 50] if len(known) >= FEW else 0.0

    @property
    def usual(self) -> float:
        """Age that 19 of 20 pushes do not reach; infinite if too few have ended."""
        known = self._ended.sorted
        return known[int(0.95 * len(known))] if len(known) >= FEW else inf


@define
class Experience:
    """The completion times of each cohort; `MOST_COHORTS` are remembered."""

    _all: CompletionTimes = Factory(CompletionTimes)
    _cohorts: dict[Hashable, CompletionTimes] = Factory(dict)

    def of(self, cohort: Hashable) -> CompletionTimes:
        """Return how long the pushes of *cohort* take."""
        times = self._cohorts.pop(cohort, None) or CompletionTimes(self._all)
        self._cohorts[cohort] = times
        if len(self._cohorts) > MOST_COHORTS:
            del self._cohorts[next(iter(self._cohorts))]
        return times
