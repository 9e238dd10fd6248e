"""The rate at which requests leave: a fixed one, and one learnt from a service that limits rates.

Nothing is learnt until a service refuses everybody at once. From then on requests leave at
equal intervals, at the rate that the service was seen to serve, its pauses included. In each half
second in which a request had to wait for it, the rate grows by half a per cent, at least by 0.4
requests per second, and by more and more away from rates that were refused. So a
limit is approached slowly and left quickly once it is gone, and a service whose limit allows only
small bursts does not get bursts. If lowering the rate does not make refusals rarer, the rate is
not their cause, and is forgotten.
"""

from __future__ import annotations

import math
from typing import Final

from attrs import define, field

SLACK: Final = 0.1
"""Seconds of a fixed rate that may be caught up after a late timer; otherwise one interval."""
EPOCH: Final = 0.5
LEAST_STEP: Final = 0.4
"""Requests per second that an epoch adds at least. The slower of two processes that share a limit
gains on the faster one this way; steps in proportion would keep them as far apart as they are."""
FIRST_STEP: Final = 0.01
"""Share of the rate that an epoch adds at first."""
ACCELERATION: Final = 1.4
"""What the step is multiplied by with each epoch, away from a rate that was refused."""
CAUTION: Final = 0.95
"""Share of the rate seen right before a refusal that is tried next."""
WORTH_IT: Final = 4.0
"""No need to slow down for a gate that is open this many times longer than closed."""
RELIEF: Final = 4.0
"""Seconds for which a rate that was lowered is not refused again, if the rate was the cause."""
MOST_IN_VAIN: Final = 60
"""How often in a row a rate is lowered in vain before it is forgotten. Not soon: where processes
share a limit, each lowers its rate in vain while others raise theirs."""
SLOWEST_RATE: Final = 1.0
"""Minimum requests per second after refusals; below that, probes set the rate."""
SHORTEST_CYCLE: Final = 0.1
"""Minimum seconds over which answers are counted to find a rate."""
FASTEST_RATE: Final = 10_000.0
"""Requests per second beyond which the rate is not limited."""


@define
class RatePacer:
    """Equal intervals between requests.

    Attributes:
        fixed: Maximum requests per second; None for no fixed rate.
        learnt: Maximum learnt from refusals; infinite at first.
        next_at: When the next request may leave, on the caller's clock.
        closed_at: When the service last refused after having served.
    """

    fixed: float | None = None
    learnt: float = field(init=False, default=math.inf)
    next_at: float = field(init=False, default=-math.inf)
    _refused: float = field(init=False, default=math.inf)
    _step: float = field(init=False, default=FIRST_STEP)
    _held: bool = field(init=False, default=False)
    _opened_at: float | None = field(init=False, default=None)
    closed_at: float = field(init=False, default=0.0)
    _served: int = field(init=False, default=0)
    _epoch: float = field(init=False, default=-math.inf)
    _last_epoch: float = field(init=False, default=-math.inf)
    _in_epoch: int = field(init=False, default=0)
    _in_last_epoch: int = field(init=False, default=0)
    _lately: float = field(init=False, default=0.0)
    _in_vain: int = field(init=False, default=0)

    @property
    def rate(self) -> float:
        """Maximum requests per second."""
        return self.learnt if self.fixed is None else min(self.fixed, self.learnt)

    @property
    def is_learnt(self) -> bool:
        """Whether refusals have set a rate."""
        return self.learnt < math.inf

    def admits(self, now: float) -> bool:
        """Return whether a request may leave now."""
        if now >= self.next_at:
            return True
        self._held = True
        return False

    def passed(self, now: float) -> None:
        """Note that a request left."""
        if self._opened_at is None:
            self._opened_at = now
        if (rate := self.rate) < math.inf:
            slack = 1 / rate if self.is_learnt else SLACK
            self.next_at = max(self.next_at, now - slack) + 1 / rate

    def answered(self, now: float) -> None:
        """Note that a request was served."""
        self._served += 1
        if now >= self._epoch + EPOCH:
            self._end_epoch(now)
        self._in_epoch += 1

    def _end_epoch(self, now: float) -> None:
        self._last_epoch, self._in_last_epoch = self._epoch, self._in_epoch
        self._epoch, self._in_epoch = now, 0
        if self._held and self.is_learnt:
            self._grow()
        self._held = False

    def _grow(self) -> None:
        self.learnt += max(LEAST_STEP, self.learnt * self._step)
        if not self.learnt <= self._refused < math.inf:
            self._step = min(1.0, self._step * ACCELERATION)
        if self.learnt > FASTEST_RATE:
            self.learnt = self._refused = math.inf

    def closed(self, now: float) -> None:
        """Note that the service refused."""
        self.closed_at = now
        span = max(now - self._last_epoch, SHORTEST_CYCLE)
        self._lately = (self._in_epoch + self._in_last_epoch) / span

    def opened(self, now: float, *, limited: bool) -> None:
        """Note that the service serves again; *limited*: it had refused everybody."""
        began = now if self._opened_at is None else self._opened_at
        open_for, closed_for = self.closed_at - began, now - self.closed_at
        if limited and self.is_learnt and self._slowed_in_vain(open_for):
            self.forget()
        elif limited and (self.is_learnt or open_for < WORTH_IT * closed_for):
            self._learn(open_for, closed_for)
            self.next_at = now + 1 / self.learnt
        self._opened_at = self._epoch = self._last_epoch = now
        self._served = self._in_epoch = self._in_last_epoch = 0

    def forget(self) -> None:
        """Forget what was learnt: the service limits something else."""
        self.learnt = self._refused = math.inf
        self.next_at = -math.inf

    def _slowed_in_vain(self, open_for: float) -> bool:
        """Whether refusals come as soon as before, though the rate was lowered each time."""
        self._in_vain = self._in_vain + 1 if open_for < RELIEF else 0
        return self._in_vain > MOST_IN_VAIN

    def _learn(self, open_for: float, closed_for: float) -> None:
        """Learn a rate from the answers of one cycle, open and closed.

        The first time, divide them by the longer part of the cycle only: a service that was idle
        had saved up capacity, which the first burst used. Later, divide by the whole cycle.
        """
        before, self._refused = self.learnt, self.learnt
        first = self._served / max(open_for, closed_for, SHORTEST_CYCLE)
        overall = self._served / max(open_for + closed_for, SHORTEST_CYCLE)
        if not self.is_learnt:
            self.learnt = first or math.inf
        else:  # by half at most: a short cycle has too few answers to tell
            self.learnt = max(overall, before / 2, CAUTION * min(before, self._lately))
            self._step = FIRST_STEP / 2
        self.learnt = max(SLOWEST_RATE, self.learnt)
