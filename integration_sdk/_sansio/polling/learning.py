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
"""

from __future__ import annotations

from collections.abc import Iterable
from itertools import accumulate, pairwise
from math import log2
from typing import Final

from attrs import Factory, define

FIRST: Final = 0.05
PER_OCTAVE: Final = 8
BINS: Final = 170
EDGES: Final = (0.0, *(FIRST * 2 ** (step / PER_OCTAVE) for step in range(BINS)))
"""Bin ``n`` holds ages from ``EDGES[n]`` to ``EDGES[n + 1]``; the last one is open."""
WIDTHS: Final = tuple(high - low for low, high in pairwise(EDGES))

ASSUMED_RISK: Final = 0.4
"""Of ending while the age grows by a factor e, where nobody knows better."""
WARY_RISK: Final = 0.05
"""The same, where all other lanes say that nothing ends at this age."""
WEIGHT_OF_ASSUMPTION: Final = 3.0
"""Pushes of one's own that count as much as what is assumed."""
FEW: Final = 20.0
MEMORY: Final = 512.0
"""Pushes remembered; twice as many, and all count half."""
MOST_OPEN: Final = 4.0
"""Open pushes that count, for each one that ended."""
STALE: Final = 0.15

Mark = tuple[int, float]
"""A bin, and how many open pushes were last seen there."""


def bin_of(age: float) -> int:
    """Return the bin that holds *age*."""
    if age < FIRST:
        return 0
    return min(BINS - 1, 1 + int(PER_OCTAVE * log2(age / FIRST)))


def _growth(step: int) -> float:
    """How far the logarithm of the age grows in a bin."""
    return 0.0866 if step else 0.25


def _smooth(counts: list[float]) -> list[float]:
    """Bins are finer than a few dozen completions can fill."""
    middle = zip(counts, counts[1:], counts[2:], strict=False)
    inner = [(low + 2 * here + high) / 4 for low, here, high in middle]
    return [counts[0], *inner, counts[-1]]


@define
class CompletionTimes:
    """How long pushes take, of one lane, or of all of them where *others* is None.

    Attributes:
        others: What a lane falls back to.
        total: Pushes that ended, recent ones in full.
    """

    others: CompletionTimes | None = None
    total: float = 0.0
    _ended: list[float] = Factory(lambda: [0.0] * BINS)
    _open: list[float] = Factory(lambda: [0.0] * BINS)
    _rates: list[float] = Factory(list)
    _risks: list[float] = Factory(list)
    _areas: list[float] = Factory(list)
    _news: float = 1.0
    _sum: int = 0
    _others_sum: int = 0

    def ended(self, age: float) -> None:
        """Learn that a push took *age* seconds."""
        self._ended[bin_of(age)] += 1.0
        self.total += 1.0
        self._news += 1.0
        if self.total > 2 * MEMORY:
            self._forget_half()

    def still_open(self, before: Iterable[Mark], after: Iterable[Mark]) -> None:
        """Learn at which ages open pushes were seen last, in place of what was said before."""
        for step, count in before:
            self._open[step] -= count
        for step, count in after:
            self._open[step] += count
            self._news += 0.25

    def at(self, age: float) -> tuple[float, float]:
        """Return ``(risk, area)`` at *age*, as of the last `refresh`."""
        step = bin_of(age)
        beyond = age - EDGES[step]
        rate, risk = self._rates[step], self._risks[step]
        return risk + rate * beyond, self._areas[step] + beyond * (risk + rate * beyond / 2)

    def rate(self, age: float) -> float:
        """Return by how much the risk grows per second at *age*."""
        return self._rates[bin_of(age)]

    def refresh(self) -> int:
        """Sum up again after enough news, here or of the others; return which sum this is."""
        others = self.others.refresh() if self.others is not None else 0
        if self._news > STALE * (self.total + 1.0) or others != self._others_sum:
            self._sum_up()
            self._others_sum = others
            self._sum += 1
        return self._sum

    def usual(self) -> float:
        """Return the age that 19 of 20 do not reach; infinite where too few are known."""
        if self.total < FEW:
            return float("inf")
        sums = accumulate(self._ended)
        return next(
            EDGES[step + 1] for step, so_far in enumerate(sums) if so_far >= 0.95 * self.total
        )

    def chances(self) -> list[float]:
        """Return, by bin, how likely a push that comes into it ends in it."""
        ended, there = _smooth(self._ended), _smooth(self._came_there())
        return [
            (here + WEIGHT_OF_ASSUMPTION * assumed) / (came + WEIGHT_OF_ASSUMPTION)
            for here, came, assumed in zip(ended, there, self._assumed(), strict=True)
        ]

    def _came_there(self) -> list[float]:
        """Return, by bin, how many pushes came into it: those that ended later, and the open."""
        bound = FEW + MOST_OPEN * self.total
        ended = accumulate(reversed(self._ended))
        still = accumulate(reversed(self._open))
        return [late + min(bound, open_) for late, open_ in zip(ended, still, strict=True)][::-1]

    def _assumed(self) -> list[float]:
        if self.others is None:
            return [ASSUMED_RISK * _growth(step) for step in range(BINS)]
        return [
            max(WARY_RISK * _growth(step), seen) for step, seen in enumerate(self.others.chances())
        ]

    def _sum_up(self) -> None:
        chances = self.chances()
        self._rates = [chance / width for chance, width in zip(chances, WIDTHS, strict=True)]
        self._risks = list(accumulate(chances, initial=0.0))
        pieces = (
            width * (risk + chance / 2)
            for width, risk, chance in zip(WIDTHS, self._risks, chances, strict=False)
        )
        self._areas = list(accumulate(pieces, initial=0.0))
        self._news = 0.0

    def __attrs_post_init__(self) -> None:
        self.refresh()

    def _forget_half(self) -> None:
        self._ended = [count / 2 for count in self._ended]
        self.total /= 2
