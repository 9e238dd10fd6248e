"""Learns from completion times how likely a push of some age has ended unnoticed.

Ages fall into bins that widen by nine per cent each, from 50 ms to more than a day. A bin
counts the pushes that *ended* in it; the pushes that survived it are those that ended later or
are still open. Their ratio is the bin's risk. Summed up over ages it gives, for a push last seen
Pending at age ``a`` and now of age ``b``::

    chance  that it has ended since     risk(b) - risk(a)
    delay   its waiter has suffered     area(b) - area(a) - risk(a) * (b - a)

where ``area`` is the integral of ``risk``.

A cohort is the pushes that should take similar time: those of one connection and data type. One
with few completions falls back on those of all cohorts of the service, and without any, on a
scale-free assumption: a push is as likely to take one to two seconds as one to two hours. Stuck
pushes say nothing about the others, so open pushes count at most a few times as much as those
that ended.

Summing up takes some fifty microseconds, so it is done only after a quarter more pushes have
ended or half of the open ones have been seen. Cohorts without any data share one sum.
"""

from __future__ import annotations

from array import array
from bisect import bisect
from collections.abc import Hashable, Iterable, Sequence
from itertools import accumulate, pairwise
from math import inf, log2
from operator import mul, truediv
from typing import Final

from attrs import Factory, define, frozen

FIRST: Final = 0.05
PER_OCTAVE: Final = 8
BINS: Final = 170
EDGES: Final = (0.0, *(FIRST * 2 ** (step / PER_OCTAVE) for step in range(BINS)))
"""Bin ``n`` holds ages from ``EDGES[n]`` to ``EDGES[n + 1]``; the last one is open."""
WIDTHS: Final = tuple(high - low for low, high in pairwise(EDGES))
GROWTHS: Final = (0.25, *(0.0866 for _ in range(BINS - 1)))
"""How far the logarithm of the age grows in a bin."""

ASSUMED: Final = tuple(0.4 * growth for growth in GROWTHS)
"""Chance of ending in a bin if nothing is known."""
WARY: Final = tuple(0.05 * growth for growth in GROWTHS)
"""The same if all other cohorts say that nothing ends at this age."""
WEIGHT_OF_ASSUMPTION: Final = 3.0
"""Number of a cohort's own pushes that count as much as the assumption."""
FEW: Final = 20.0
MEMORY: Final = 512.0
"""Pushes remembered; at twice as many, all counts are halved."""
MOST_OPEN: Final = 4.0
"""Open pushes that count at most, for each one that ended."""
STALE_ENDED: Final = 0.25
"""Share of ended pushes that may be missing from the sum."""
STALE_SEEN: Final = 0.5
"""Polls per open push that may be missing from the sum."""
MOST_COHORTS: Final = 1000
"""Cohorts whose completion times are remembered; the least recently used are dropped first."""
HARDLY: Final = 0.01
"""A risk too small to be worth a poll."""

Mark = tuple[int, float]
"""A bin, and how many open pushes were last seen there."""


def bin_of(age: float) -> int:
    """Return the bin that holds *age*."""
    if age < FIRST:
        return 0
    return min(BINS - 1, 1 + int(PER_OCTAVE * log2(age / FIRST)))


def _floats(numbers: Iterable[float]) -> array[float]:
    """Return an array: eight bytes per number, not thirty-two, for up to a thousand cohorts."""
    return array("d", numbers)


def _smooth(counts: Sequence[float]) -> list[float]:
    """Smooth the counts: the bins are finer than a few dozen completions can fill."""
    middle = zip(counts, counts[1:], counts[2:], strict=False)
    inner = [(low + 2 * here + high) / 4 for low, here, high in middle]
    return [counts[0], *inner, counts[-1]]


@frozen
class Curve:
    """What was learned, summed up.

    Attributes:
        chances: By bin, the chance that a push which reaches it ends in it.
        rates: By bin, the growth of the risk per second.
        risks: By bin, the risk at its beginning.
        areas: By bin, the integral of the risk at its beginning.
        early: Age before which hardly any push ends.
        usual: Age that 19 of 20 pushes do not reach; infinite if too few have ended.
    """

    chances: Sequence[float]
    rates: Sequence[float]
    risks: Sequence[float]
    areas: Sequence[float]
    early: float
    usual: float

    @classmethod
    def of(cls, chances: Sequence[float], usual: float = inf) -> Curve:
        """Sum up *chances*."""
        risks = _floats(accumulate(chances, initial=0.0))
        middles = ((low + high) / 2 for low, high in pairwise(risks))
        areas = _floats(accumulate(map(mul, WIDTHS, middles), initial=0.0))
        rates = _floats(map(truediv, chances, WIDTHS))
        early = EDGES[bisect(risks, HARDLY) - 1]
        return cls(_floats(chances), rates, risks, areas, early, usual)

    def between(self, seen: float, age: float) -> tuple[float, float, float]:
        """Return how the risk grew since *seen*, its integral, and its growth per second."""
        then, now = bin_of(seen), bin_of(age)
        since, beyond = seen - EDGES[then], age - EDGES[now]
        rate_then, rate = self.rates[then], self.rates[now]
        risk_then, risk = self.risks[then], self.risks[now]
        area_then = self.areas[then] + since * (risk_then + rate_then * since / 2)
        area = self.areas[now] + beyond * (risk + rate * beyond / 2)
        risk_then += rate_then * since
        return risk + rate * beyond - risk_then, area - area_then - risk_then * (age - seen), rate


NOTHING_KNOWN: Final = Curve.of(ASSUMED)


@define
class CompletionTimes:
    """How long pushes of one cohort take, or of all cohorts if *others* is None.

    Attributes:
        others: All cohorts, which learn what this one learns, and which it falls back on.
        total: Pushes that ended; older ones count less.
        curve: All that is known, as of the last `refresh`.
        newcomer: The curve for cohorts without any data.
    """

    others: CompletionTimes | None = None
    total: float = 0.0
    curve: Curve = NOTHING_KNOWN
    newcomer: Curve = NOTHING_KNOWN
    _ended: array[float] = Factory(lambda: _floats([0.0] * BINS))
    _open: array[float] = Factory(lambda: _floats([0.0] * BINS))
    _unsummed_ended: float = 0.0
    _unsummed_seen: float = 0.0
    _watched: float = 0.0
    _based_on: Curve | None = None

    def ended(self, age: float) -> None:
        """Learn that a push took *age* seconds."""
        self._ended_in(bin_of(age))

    def _ended_in(self, step: int) -> None:
        if self.others is not None:
            self.others._ended_in(step)
        self._ended[step] += 1.0
        self.total += 1.0
        self._unsummed_ended += 1.0
        if self.total > 2 * MEMORY:
            self._forget_half()

    def still_open(self, before: Sequence[Mark], after: Sequence[Mark]) -> None:
        """Learn at which ages open pushes were last seen; *before* is what was told earlier."""
        if self.others is not None:
            self.others.still_open(before, after)
        for step, count in before:
            self._open[step] -= count
            self._watched -= count
        for step, count in after:
            self._open[step] += count
            self._watched += count
            self._unsummed_seen += count

    def refresh(self) -> Curve:
        """Return the curve, summed up again if enough has changed here or in *others*."""
        basis = self.others.refresh() if self.others is not None else None
        if self._is_stale() or (basis is not self._based_on and self.total < FEW):
            self._sum_up()
            self._based_on = basis
        return self.curve

    def _is_stale(self) -> bool:
        known = self._unsummed_ended < STALE_ENDED * (self.total + WEIGHT_OF_ASSUMPTION)
        some = self._watched + self.total + WEIGHT_OF_ASSUMPTION
        return not known or self._unsummed_seen >= STALE_SEEN * some

    def _sum_up(self) -> None:
        if self.others is None:
            self.curve = Curve.of(self._chances(ASSUMED), self._usual())
            self.newcomer = Curve.of(tuple(map(max, WARY, self.curve.chances)))
        elif self.total or self._watched:
            self.curve = Curve.of(self._chances(self.others.newcomer.chances), self._usual())
        else:
            self.curve = self.others.newcomer
        self._unsummed_ended = self._unsummed_seen = 0.0

    def _chances(self, assumed: Sequence[float]) -> list[float]:
        ended, there = _smooth(self._ended), _smooth(self._came_there())
        return [
            (here + WEIGHT_OF_ASSUMPTION * chance) / (came + WEIGHT_OF_ASSUMPTION)
            for here, came, chance in zip(ended, there, assumed, strict=True)
        ]

    def _came_there(self) -> list[float]:
        """Return, by bin, how many pushes reached it, ended or still open."""
        bound = FEW + MOST_OPEN * self.total
        ended = accumulate(reversed(self._ended))
        still = accumulate(reversed(self._open))
        came = [late + min(bound, open_) for late, open_ in zip(ended, still, strict=True)]
        return came[::-1]

    def _usual(self) -> float:
        if self.total < FEW:
            return inf
        sums = accumulate(self._ended)
        return next(
            EDGES[step + 1] for step, so_far in enumerate(sums) if so_far >= 0.95 * self.total
        )

    def _forget_half(self) -> None:
        self._ended = _floats(count / 2 for count in self._ended)
        self.total /= 2


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
