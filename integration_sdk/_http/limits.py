"""What holds calls back: the gate and the places of a `Lane`, and the `Pace` of the service.

They learn from the service's answers. Time reaches them as an argument, chance as a `Jitter`.
"""

from __future__ import annotations

import math
from collections import OrderedDict
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
        sent_at: When its last turn began.
        waiting: Whether it is in line.
        lane: Its company's; set with its first turn.
    """

    company: str | None
    priority: Priority
    base: float = 1.0
    sent_at: float = 0.0
    waiting: bool = False
    lane: Lane = field(init=False)


Line = OrderedDict[Waiter, None]


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
        refused_at: When the last was refused.
        closed_by: The answer that closed the gate; None while it is open.
        opens_at: When a probe may go; while one is in flight, when the next may.
        closed_at: When the gate closed, its last probe was refused, or a pause was last named.
        lines: Calls in line, by priority.
    """

    limit: int
    size: float
    company: str | None = None
    in_flight: int = 0
    answered_at: float = 0.0
    refused_at: float = -math.inf
    closed_by: Response | None = None
    opens_at: float = 0.0
    closed_at: float = 0.0
    lines: tuple[Line, ...] = Factory(lambda: tuple(Line() for _ in Priority))
    _pauses: int = 0
    _patience: float = 1.0
    _floor: float = 1.0
    _ceiling: float = math.inf
    _round_began: float = -math.inf

    @property
    def is_idle(self) -> bool:
        return not self.in_flight and not any(self.lines)

    def admits(self, now: float, *, urgent: bool) -> bool:
        """Return whether one more may go; the last of four places or more is for urgent ones."""
        spare = 0 if urgent or self.size < 4 else 1
        has_room = self.in_flight < int(self.size) - spare
        return has_room and (self.closed_by is None or now >= self.opens_at)

    def closed_since(self, sent_at: float) -> bool:
        """Return whether the gate was closed behind a call whose turn had come at *sent_at*."""
        return self.closed_by is not None and sent_at <= self.closed_at

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
        self.closed_by, self.opens_at, self._pauses = None, 0.0, 0
        return True

    def shrink(self, sent_at: float, now: float) -> None:
        """Take a place away, unless the request that was refused was the only one in flight."""
        if sent_at >= self._round_began:
            if self.in_flight <= 1:
                return
            self.size = self._ceiling = min(self.size, self.in_flight)
            self._patience = min(64.0, self._patience * 2)
            self._floor, self._round_began = max(1.0, self.size / 2), now
        self.size = max(self._floor, self.size - 1)

    def close(
        self, answer: Response, base: float, sent_at: float, now: float, jitter: Jitter
    ) -> None:
        """Close the gate: *answer* refused a request. Only a probe's makes the pauses longer."""
        seconds = answer.retry_after or 0.0
        if self.closed_by is None or sent_at > self.closed_at:
            self._wait(0.0 if seconds else base, now, jitter)
        self.closed_by = answer
        if seconds:
            self.closed_at = now  # no probe that left before ends this pause
            self.opens_at = max(self.opens_at, now + seconds + jitter(SPREAD * seconds))

    def unanswered(self, sent_at: float, now: float, jitter: Jitter) -> None:
        if self.closed_by is not None and sent_at > self.closed_at:
            self._wait(1.0, now, jitter)

    def unused(self, sent_at: float, now: float) -> None:
        """Note that a probe was not sent, or says nothing; the next may go at once."""
        if self.closed_by is not None and sent_at > self.closed_at:
            self.opens_at = now

    def _wait(self, base: float, now: float, jitter: Jitter) -> None:
        low, high = SHORTEST_PROBE_INTERVAL, LONGEST_PROBE_INTERVAL
        seconds = pause(self._pauses, first=base, cap=high, jitter=jitter, floor=low)
        self._pauses, self.closed_at, self.opens_at = self._pauses + 1, now, now + seconds


CAUTION: Final = 0.95  # share of a rate that was refused, which is tried next
GROWTH, FAST_GROWTH = 0.01, 0.3
"""What each answer adds to a rate that holds calls back: towards one that was refused, and
elsewhere. As shares, this is also the growth in a second."""
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
    was seen to serve, and grows with each answer while requests have to wait for it.

    Attributes:
        learnt: Maximum requests per second; infinite until one is learnt.
        cells: When the next may leave.
        closed_at: When the service last refused after having served.
    """

    _opened_at: float = 0.0
    learnt: float = field(init=False, default=math.inf)
    closed_at: float = field(init=False, default=0.0)
    cells: CellRate = field(init=False, factory=lambda: CellRate(-math.inf))
    _refused: float = field(init=False, default=math.inf)
    _served: int = field(init=False, default=0)
    _in_vain: int = field(init=False, default=0)
    _has_held: bool = field(init=False, default=False)

    def admits(self, now: float) -> bool:
        self._has_held = self._has_held or now < self.cells.next_at
        return now >= self.cells.next_at

    def sent(self, now: float) -> None:
        if self.learnt < math.inf:
            self.cells.reserve(1, now, interval=1 / self.learnt, burst=2)

    def answered(self) -> None:
        """Note that a request was served."""
        self._served += 1
        if self._has_held and self.learnt < math.inf:
            is_near = self.learnt <= self._refused < math.inf
            self.learnt += GROWTH if is_near else FAST_GROWTH
            self._has_held = False
            if self.learnt > FASTEST_RATE:
                self.forget()

    def opened(self, now: float, *, limited: bool) -> None:
        """Learn from a cycle, open and closed, if the service had refused all (*limited*)."""
        before, open_for = self.learnt, self.closed_at - self._opened_at
        self._in_vain = self._in_vain + 1 if open_for < RELIEF else 0
        if limited and self._in_vain > MOST_IN_VAIN:
            before = self.learnt = math.inf
        elif limited and before < math.inf:
            self.learnt = max(SLOWEST_RATE, CAUTION * before)
        elif limited:
            # Over the longer part of the cycle: an idle service had saved up capacity.
            longer = max(open_for, now - self.closed_at, SHORTEST_CYCLE)
            self.learnt = max(SLOWEST_RATE, self._served / longer or math.inf)
        self._refused = before
        self.cells.next_at = now + 1 / self.learnt
        self._opened_at, self._served = now, 0

    def forget(self) -> None:
        self.learnt = self._refused = math.inf
        self.cells.next_at = -math.inf
