"""What completion times teach: how likely a push of some age has ended unnoticed.

Ages fall into bins that widen by nine per cent each, from 50 ms to more than a day. A bin
counts the pushes that *ended* in it; those that came through it alive are the ones that ended
later, and the ones still open. Their ratio is the bin's risk, and summed up over ages it
gives, for a push last seen Pending at age ``a`` and now of age ``b``::

    chance  that it has ended since     risk(b) - risk(a)
    delay   its waiter has suffered     area(b) - area(a) - risk(a) * (b - a)

where ``area`` is the integral of ``risk``. Nothing else is asked of what was learned.

A lane that has seen little leans on what all lanes of the service have seen, and where that
is nothing, on an assumption without a scale: a push is as likely to take one to two seconds
as one to two hours. What is stuck teaches nothing about the rest, so open pushes count for
no more than a few times those that ended.

Summing up takes some fifty microseconds, so it waits until a quarter more pushes have ended,
or half of the open ones have been seen; lanes of which nothing is known share one sum.
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
"""Chance of ending in a bin, where nobody knows better."""
WARY: Final = tuple(0.05 * growth for growth in GROWTHS)
"""The same, where all other lanes say that nothing ends at this age."""
WEIGHT_OF_ASSUMPTION: Final = 3.0
"""Pushes of one's own that count as much as what is assumed."""
FEW: Final = 20.0
MEMORY: Final = 512.0
"""Pushes remembered; twice as many, and all count half."""
MOST_OPEN: Final = 4.0
"""Open pushes that count, for each one that ended."""
STALE: Final = 0.25
"""Share of the pushes known to have ended that may be missing from the sum."""
LOOKS: Final = 0.5
"""Looks at open pushes, for each of them, that may be missing from the sum likewise."""
MOST_LANES: Final = 1000
"""Lanes whose completion times are remembered; those used longest ago go first."""
HARDLY: Final = 0.01
"""A risk that nobody looks for."""

Mark = tuple[int, float]
"""A bin, and how many open pushes were last seen there."""


def bin_of(age: float) -> int:
    """Return the bin that holds *age*."""
    if age < FIRST:
        return 0
    return min(BINS - 1, 1 + int(PER_OCTAVE * log2(age / FIRST)))


def _floats(numbers: Iterable[float]) -> array[float]:
    """Eight bytes each, not thirty-two: there may be a thousand lanes."""
    return array("d", numbers)


def _smooth(counts: Sequence[float]) -> list[float]:
    """Bins are finer than a few dozen completions can fill."""
    middle = zip(counts, counts[1:], counts[2:], strict=False)
    inner = [(low + 2 * here + high) / 4 for low, here, high in middle]
    return [counts[0], *inner, counts[-1]]


@frozen
class Curve:
    """What was learned, summed up.

    Attributes:
        chances: By bin, how likely a push that comes into it ends in it.
        rates: By how much the risk grows per second, by bin.
        risks: Risk where a bin begins.
        areas: Likewise its integral.
        early: Age before which hardly any push ends.
        usual: Age that 19 of 20 do not reach; infinite where too few are known.
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
    """How long pushes take, of one lane, or of all of them where *others* is None.

    Attributes:
        others: What a lane falls back to.
        total: Pushes that ended, recent ones in full.
        curve: All that is known, as of the last `refresh`.
        newcomer: What a lane of which nothing is known goes by.
    """

    others: CompletionTimes | None = None
    total: float = 0.0
    curve: Curve = NOTHING_KNOWN
    newcomer: Curve = NOTHING_KNOWN
    _ended: array[float] = Factory(lambda: _floats([0.0] * BINS))
    _open: array[float] = Factory(lambda: _floats([0.0] * BINS))
    _unsummed: float = 0.0
    _looks: float = 0.0
    _watched: float = 0.0
    _based_on: Curve | None = None

    def ended(self, age: float) -> None:
        """Learn that a push took *age* seconds."""
        self._ended[bin_of(age)] += 1.0
        self.total += 1.0
        self._unsummed += 1.0
        if self.total > 2 * MEMORY:
            self._forget_half()

    def still_open(self, before: Iterable[Mark], after: Iterable[Mark]) -> None:
        """Learn at which ages open pushes were seen last, in place of what was said before."""
        for step, count in before:
            self._open[step] -= count
            self._watched -= count
        for step, count in after:
            self._open[step] += count
            self._watched += count
            self._looks += count

    def refresh(self) -> Curve:
        """Sum up again after enough news, here or of the others, and return the sum."""
        basis = self.others.refresh() if self.others is not None else None
        if self._is_stale() or (basis is not self._based_on and self.total < FEW):
            self._sum_up()
            self._based_on = basis
        return self.curve

    def _is_stale(self) -> bool:
        known = self._unsummed < STALE * (self.total + WEIGHT_OF_ASSUMPTION)
        some = self._watched + self.total + WEIGHT_OF_ASSUMPTION
        return not known or self._looks >= LOOKS * some

    def _sum_up(self) -> None:
        if self.others is None:
            self.curve = Curve.of(self._chances(ASSUMED), self._usual())
            self.newcomer = Curve.of(tuple(map(max, WARY, self.curve.chances)))
        elif self.total or self._watched:
            self.curve = Curve.of(self._chances(self.others.newcomer.chances), self._usual())
        else:
            self.curve = self.others.newcomer
        self._unsummed = self._looks = 0.0

    def _chances(self, assumed: Sequence[float]) -> list[float]:
        ended, there = _smooth(self._ended), _smooth(self._came_there())
        return [
            (here + WEIGHT_OF_ASSUMPTION * chance) / (came + WEIGHT_OF_ASSUMPTION)
            for here, came, chance in zip(ended, there, assumed, strict=True)
        ]

    def _came_there(self) -> list[float]:
        """Return, by bin, how many pushes came into it: those that ended later, and the open."""
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
    """Completion times by lane, and of all lanes.

    Attributes:
        learn: Whether anything is learned; if not, all lanes share what is assumed.
    """

    learn: bool = True
    _all: CompletionTimes = Factory(CompletionTimes)
    _lanes: dict[Hashable, CompletionTimes] = Factory(dict)

    def of(self, lane: Hashable) -> CompletionTimes:
        """Return how long the pushes of *lane* take."""
        if not self.learn:
            return self._all
        times = self._lanes.pop(lane, None) or CompletionTimes(self._all)
        self._lanes[lane] = times
        if len(self._lanes) > MOST_LANES:
            del self._lanes[next(iter(self._lanes))]
        return times

    def ended(self, times: CompletionTimes, age: float) -> None:
        """Learn that a push took *age* seconds."""
        for learner in self._learners(times):
            learner.ended(age)

    def still_open(
        self, times: CompletionTimes, before: Iterable[Mark], after: Iterable[Mark]
    ) -> None:
        """Learn at which ages open pushes were seen last."""
        for learner in self._learners(times):
            learner.still_open(before, after)

    def _learners(self, times: CompletionTimes) -> tuple[CompletionTimes, ...]:
        return (times, self._all) if self.learn else ()
