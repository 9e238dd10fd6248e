"""What holds calls back: the gate and the places of a `Lane`, and the `Pace` of the service.

They learn from the service's answers. Time reaches them as an argument, chance as a `Jitter`.
"""

from __future__ import annotations

import math
from heapq import heappop
from typing import Final

from attrs import Factory, define, field

from integration_sdk._http.requests import Priority
from integration_sdk._http.responses import Response
from integration_sdk._http.retry import Jitter, pause
from integration_sdk._pacing import CellRate

PROBE_PATIENCE: Final = 2.0
"""Seconds after which another probe may go though one is in flight (for a large page)."""
SHORTEST_PROBE_INTERVAL, LONGEST_PROBE_INTERVAL = 0.05, 4.0
"""Seconds between probes if the service names no time."""
SPREAD: Final = 0.02
"""Share of ``Retry-After`` added as jitter, so that processes do not come back all at once."""


@define(eq=False)
class Waiter:
    """What the limiter knows of a call.

    Attributes:
        base: Longest first pause in seconds after a refusal that names no time.
        order: Its place in the line, kept over repetitions; 0 until it has one.
        turns: How many turns it had.
        sent_at: When its last turn began.
        waiting: Whether it is in line.
        lane: Its company's; set with its first turn.
    """

    company: str | None
    priority: Priority
    base: float = 1.0
    order: int = 0
    turns: int = 0
    sent_at: float = 0.0
    waiting: bool = False
    lane: Lane = field(init=False)


@define(eq=False)
class Lane:
    """The gate, the places and the line of the service or of one company.

    The gate is closed by a 429 or 503, and then lets one probe at a time through, from `opens_at`
    on. Answers to requests that left before it closed neither open it nor make the pause longer.

    The places are found by additive increase and multiplicative decrease. Each refusal takes one
    away, down to half of those in use when a round of refusals began. They return one by one,
    after *patience* rounds of answers each.

    Attributes:
        size: Number of places; the fraction is progress towards the next one.
        answered_at: When the last of its requests was answered.
        closed_by: The answer that closed the gate; None while it is open.
        opens_at: When a probe may go; while one is in flight, when the next may.
        closed_at: When the gate closed, or its last probe was refused.
        lines: Calls in line by priority: heaps of order and call.
    """

    limit: int
    size: float
    company: str | None = None
    in_flight: int = 0
    answered_at: float = 0.0
    closed_by: Response | None = None
    opens_at: float = 0.0
    closed_at: float = 0.0
    lines: tuple[list[tuple[int, Waiter]], ...] = Factory(lambda: tuple([] for _ in Priority))
    _named_until: float = 0.0
    _pauses: int = 0
    _patience: float = 1.0
    _floor: float = 1.0
    _ceiling: float = math.inf
    _round_began: float = -math.inf

    @property
    def is_idle(self) -> bool:
        return not self.in_flight and not any(one.waiting for line in self.lines for _, one in line)

    @property
    def is_untried(self) -> bool:
        """Whether nothing has been refused so far."""
        return self.closed_by is None and self._ceiling == math.inf

    def admits(self, now: float, *, urgent: bool) -> bool:
        """Return whether one more may go; the last of four places or more is for urgent ones."""
        spare = 0 if urgent or self.size < 4 else 1
        has_room = self.in_flight < int(self.size) - spare
        return has_room and (self.closed_by is None or now >= self.opens_at)

    def sent(self, now: float) -> None:
        self.in_flight += 1
        if self.closed_by is not None:  # it is the probe
            self.opens_at = now + PROBE_PATIENCE

    def answered(self, sent_at: float, now: float) -> bool:
        """Note an answer; return whether it was the probe's, which opens the gate."""
        self.answered_at = now
        if self.in_flight >= int(self.size) - 1 and self.size < self.limit:  # in full use
            self.size = min(self.limit, self.size + 1 / (self._patience * self.size))
            if self.size >= self._ceiling + 1:
                self._ceiling, self._patience = self.size, max(1.0, self._patience / 2)
        if self.closed_by is None or sent_at <= self.closed_at:
            return False
        self.closed_by, self._pauses, self._named_until = None, 0, 0.0
        return True

    def shrink(self, sent_at: float, now: float) -> None:
        """Take a place away, unless the request that was refused was the only one in flight."""
        if sent_at >= self._round_began:
            if self.in_flight <= 1:
                return
            self.size = self._ceiling = min(self.size, self.in_flight)
            self._floor, self._round_began = max(1.0, self.size / 2), now
            self._patience = min(64.0, self._patience * 2)
        self.size = max(self._floor, self.size - 1)

    def close(
        self, answer: Response, base: float, sent_at: float, now: float, jitter: Jitter
    ) -> None:
        """Close the gate: *answer* refused a request. Only a probe's makes the pauses longer."""
        seconds = answer.retry_after or 0.0
        if self.closed_by is None and seconds:
            self.closed_at, self.opens_at = now, now + SHORTEST_PROBE_INTERVAL
        elif self.closed_by is None or sent_at > self.closed_at:
            self._wait(base, now, jitter)
        self.closed_by = answer
        if seconds:
            self._named_until = max(self._named_until, now + seconds + jitter(SPREAD * seconds))
        self.opens_at = max(self.opens_at, self._named_until)

    def unanswered(self, sent_at: float, now: float, jitter: Jitter) -> None:
        if self.closed_by is not None and sent_at > self.closed_at:
            self._wait(1.0, now, jitter)

    def unused(self, sent_at: float, now: float) -> None:
        """Note that a probe was not sent, or says nothing; the next may go at once."""
        if self.closed_by is not None and sent_at > self.closed_at:
            self.opens_at = max(now, self._named_until)

    def _wait(self, base: float, now: float, jitter: Jitter) -> None:
        low, high = SHORTEST_PROBE_INTERVAL, LONGEST_PROBE_INTERVAL
        seconds = pause(self._pauses, first=base, cap=high, jitter=jitter, floor=low)
        self._pauses, self.closed_at = self._pauses + 1, now
        self.opens_at = max(self._named_until, now + seconds)

    def first(self, priority: int) -> Waiter | None:
        """Return its first call in line; for a probe, the one that had the fewest turns."""
        line = self.lines[priority]
        while line and not line[0][1].waiting:
            heappop(line)
        if self.closed_by is None or not line:
            return line[0][1] if line else None
        return min((one for _, one in line if one.waiting), key=lambda one: (one.turns, one.order))


EPOCH: Final = 0.5
LEAST_STEP, FIRST_STEP, ACCELERATION = 0.4, 0.01, 1.4
"""An epoch adds this many requests per second at least: the slower of two processes that share a
limit gains on the faster one this way. At first it adds this share of the rate; away from a rate
that was refused, the step is multiplied by this with each epoch."""
CAUTION: Final = 0.95  # share of the rate seen right before a refusal that is tried next
WORTH_IT: Final = 4.0
"""A rate is learnt only if the gate was open for less than this many times as long as closed."""
RELIEF, MOST_IN_VAIN = 4.0, 60
"""A rate is forgotten once lowering it has brought no relief for so many seconds, so many times.
Not soon: of processes that share a limit, each lowers its rate in vain while others raise it."""
SLOWEST_RATE, FASTEST_RATE = 1.0, 10_000.0
"""Requests per second: below, probes set the rate; beyond, it is not limited."""
SHORTEST_CYCLE: Final = 0.1  # minimum seconds over which answers are counted to find a rate


@define
class Pace:
    """The rate at which requests leave, learnt from a service that limits rates.

    It is unlimited until the service refuses all requests in flight. It is then what the service
    was seen to serve, and grows with each half second in which a request had to wait: slowly
    towards a rate that was refused, faster and faster beyond.

    Attributes:
        learnt: Maximum requests per second; infinite until one is learnt.
        closed_at: When the service last refused after having served.
    """

    _opened_at: float = 0.0
    learnt: float = field(init=False, default=math.inf)
    closed_at: float = field(init=False, default=0.0)
    _cells: CellRate = field(init=False, factory=lambda: CellRate(-math.inf))
    _refused: float = field(init=False, default=math.inf)
    _step: float = field(init=False, default=FIRST_STEP)
    _has_held: bool = field(init=False, default=False)
    _served: int = field(init=False, default=0)
    _epochs: tuple[float, float] = field(init=False, default=(-math.inf, -math.inf))
    """When this half second and the one before began."""
    _counts: tuple[int, int] = field(init=False, default=(0, 0))
    _lately: float = field(init=False, default=0.0)
    _in_vain: int = field(init=False, default=0)

    @property
    def next_at(self) -> float:
        return self._cells.next_at

    def admits(self, now: float) -> bool:
        self._has_held = self._has_held or now < self._cells.next_at
        return now >= self._cells.next_at

    def sent(self, now: float) -> None:
        if self.learnt < math.inf:
            self._cells.reserve(1, now, interval=1 / self.learnt, burst=2)

    def answered(self, now: float) -> None:
        """Note that a request was served; grow at the end of a half second."""
        self._served += 1
        if now >= self._epochs[0] + EPOCH:
            self._epochs, self._counts = (now, self._epochs[0]), (0, self._counts[0])
            if self._has_held and self.learnt < math.inf:
                self.learnt += max(LEAST_STEP, self.learnt * self._step)
                if not self.learnt <= self._refused < math.inf:
                    self._step = min(1.0, self._step * ACCELERATION)
                if self.learnt > FASTEST_RATE:
                    self.forget()
            self._has_held = False
        self._counts = self._counts[0] + 1, self._counts[1]

    def closed(self, now: float) -> None:
        self.closed_at = now
        self._lately = sum(self._counts) / max(now - self._epochs[1], SHORTEST_CYCLE)

    def opened(self, now: float, *, limited: bool) -> None:
        """Learn from a cycle, open and closed, if the service had refused all (*limited*)."""
        open_for, closed_for = self.closed_at - self._opened_at, now - self.closed_at
        is_known = self.learnt < math.inf
        if limited and is_known:
            self._in_vain = self._in_vain + 1 if open_for < RELIEF else 0
        if limited and is_known and self._in_vain > MOST_IN_VAIN:
            self.forget()
        elif limited and (is_known or open_for < WORTH_IT * closed_for):
            self._learn(open_for, closed_for)
            self._cells.next_at = now + 1 / self.learnt
        self._opened_at, self._served = now, 0
        self._epochs, self._counts = (now, now), (0, 0)

    def _learn(self, open_for: float, closed_for: float) -> None:
        before, self._refused = self.learnt, self.learnt
        if before == math.inf:
            # Over the longer part of the cycle: an idle service had saved up capacity.
            first = self._served / max(open_for, closed_for, SHORTEST_CYCLE)
            self.learnt = max(SLOWEST_RATE, first or math.inf)
            return
        overall = self._served / max(open_for + closed_for, SHORTEST_CYCLE)
        # By half at most: a short cycle has too few answers to tell.
        careful = max(overall, before / 2, CAUTION * min(before, self._lately))
        self.learnt, self._step = max(SLOWEST_RATE, careful), FIRST_STEP / 2

    def forget(self) -> None:
        self.learnt = self._refused = math.inf
        self._cells.next_at = -math.inf
