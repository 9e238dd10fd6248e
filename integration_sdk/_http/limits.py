"""What holds calls back: a closed gate, a number of places, and a rate.

`RetryAfterGate` and `AimdLimit` exist once for the service and once for each company, `RatePacer`
once. They learn from the service's answers; time reaches them as an argument. A `SharedRate` is a
limit that is set by the user, kept in memory or elsewhere.
"""

from __future__ import annotations

import math
from typing import Final

from attrs import define, field

from integration_sdk._http.responses import Response
from integration_sdk._http.retry import Jitter, pause

LONGEST_PROBE_INTERVAL: Final = 4.0
"""Maximum seconds between probes if the service names no time."""
SHORTEST_PROBE_INTERVAL: Final = 0.05
SPREAD: Final = 0.02
"""Share of ``Retry-After`` added as jitter, so that processes do not come back all at once."""
PROBE_PATIENCE: Final = 2.0
"""Seconds after which another probe may go though one is in flight (for a large page)."""


# A gate


@define
class RetryAfterGate:
    """Open, or closed by a 429 or 503 until some moment and then open for one probe at a time.

    ::

        open ──refused──> closed, until opens_at ──> a probe goes through ──answered──> open
                            ^                          │
                            └──────refused, longer─────┘

    While it is closed nobody sends, so a crowd of tasks costs the service one request per pause,
    not one each. Answers to requests that were sent before it closed neither open it nor make the
    next pause longer; they can only name a later time.

    Attributes:
        closed_by: The answer that closed it; None while it is open.
        opens_at: When a probe may go, on the caller's clock; while one is in flight, when the
            next may.
        closed_at: When it closed, or its last probe was refused.
    """

    closed_by: Response | None = field(default=None, init=False)
    opens_at: float = field(default=0.0, init=False)
    closed_at: float = field(default=0.0, init=False)
    _named: float = field(default=0.0, init=False)
    """The latest time that the service named."""
    _pauses: int = field(default=0, init=False)

    @property
    def is_open(self) -> bool:
        """Whether everybody may pass."""
        return self.closed_by is None

    @property
    def has_named_time(self) -> bool:
        """Whether the service said how long it stays closed."""
        return self._named > 0.0

    def admits(self, now: float) -> bool:
        """Return whether somebody may pass now."""
        return self.closed_by is None or now >= self.opens_at

    def passed(self, now: float) -> None:
        """Note that a request was sent; if the gate is not open, it is the probe."""
        if self.closed_by is not None:
            self.opens_at = now + PROBE_PATIENCE

    def refused(
        self, answer: Response, base: float, sent_at: float, now: float, jitter: Jitter
    ) -> None:
        """Close the gate: a request that left at *sent_at* was refused with *answer*.

        *base* is the longest first pause in seconds, if the answer names none.
        """
        floor = answer.retry_after or 0.0
        if self.closed_by is None and floor:
            self.closed_at, self.opens_at = now, now + SHORTEST_PROBE_INTERVAL
        elif self.closed_by is None or sent_at > self.closed_at:
            self._close(base, now, jitter)
        self.closed_by = answer
        spread = jitter(SPREAD * floor)
        if floor:
            self._named = max(self._named, now + floor + spread)
        self.opens_at = max(self.opens_at, self._named)

    def answered(self, sent_at: float) -> bool:
        """Note an answer; if it was the probe's, open the gate and return True."""
        if self.closed_by is None or sent_at <= self.closed_at:
            return False
        self.closed_by, self._pauses, self.opens_at, self._named = None, 0, 0.0, 0.0
        return True

    def unanswered(self, sent_at: float, now: float, jitter: Jitter) -> None:
        """Note that a request had no answer; if it was the probe, delay the next one."""
        if self.closed_by is not None and sent_at > self.closed_at:
            self._close(1.0, now, jitter)

    def unused(self, sent_at: float, now: float) -> None:
        """Note that a request was not sent; if it was the probe, allow another at once."""
        if self.closed_by is not None and sent_at > self.closed_at:
            self.opens_at = max(now, self._named)

    def _close(self, base: float, now: float, jitter: Jitter) -> None:
        closed_for = pause(
            self._pauses,
            first=base,
            cap=LONGEST_PROBE_INTERVAL,
            jitter=jitter,
            floor=SHORTEST_PROBE_INTERVAL,
        )
        self._pauses += 1
        self.closed_at = now
        self.opens_at = max(self._named, now + closed_for)


# A number of places

LONGEST_PATIENCE: Final = 64.0
SMALLEST_WITH_SPARE: Final = 4
"""Windows of this size or more keep one place free for urgent requests."""


@define
class AimdLimit:
    """How many requests may be in flight at once, found by trial: between 1 and *limit*.

    Additive increase, multiplicative decrease. Every refusal removes one place, down to half of
    the size at which a round of refusals began: a service that refuses the whole crowd (a rate
    limit) halves the window, one that refuses a single request too many (a concurrency limit)
    removes only one place. Places return one by one, after `patience` rounds of answers each.
    Patience doubles with every round of refusals, so that a known limit is tested less and less
    often, and halves with every place gained beyond it.

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
        if in_flight < int(self.size) - 1 or self.size >= self.limit:
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

    def _begin_round(self, used: float, now: float) -> None:
        self.size = self._ceiling = used
        self._floor = max(1.0, used / 2)
        self._round_began = now
        self.patience = min(LONGEST_PATIENCE, self.patience * 2)


# A rate

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
"""A rate is learnt only if the gate was open for less than this many times as long as closed."""
RELIEF: Final = 4.0
"""If lowering the rate helped, no refusal follows within this many seconds."""
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
    """The rate at which requests leave, learnt from a service that limits rates.

    Nothing is learnt until a service refuses everybody at once. From then on requests leave at
    equal intervals, at the rate that the service was seen to serve, its pauses included. In each
    half second in which a request had to wait for it, the rate grows by half a per cent, at least
    by 0.4 requests per second, and by more and more away from rates that were refused. So a limit
    is approached slowly and left quickly once it is gone, and a service whose limit allows only
    small bursts does not get bursts. If lowering the rate does not make refusals rarer, the rate
    is not their cause, and is forgotten.

    Attributes:
        learnt: Maximum requests per second; infinite until one is learnt.
        next_at: When the next request may leave, on the caller's clock.
        closed_at: When the service last refused after having served.
    """

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
        if self.is_learnt:
            interval = 1 / self.learnt
            self.next_at = max(self.next_at, now - interval) + interval

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
