"""Decides which waiting call may send now.

There is one `Lane` for the service and one for each company; the service's also has a `Pace`. A
call goes if both of its lanes and the pace allow it. Companies take turns in a ring for each
priority; within a company the oldest call goes first, even if it had to be sent several times.

A refusal is a company's own if the answer says so, or if only this company is refused while
others are served. If all requests in flight were refused, the service limits the rate: the pace is
learnt. If others were served, it limits concurrency: the places shrink. A 503 teaches nothing, and
is taken for one backend's of several while most calls are served. After the gate has opened,
requests leave at small random intervals, not all at once.

Source: "Status codes", 429 and 503. Assumed: 10 requests at once for each company, as the public
API publishes; the document shows no thresholds.
"""

from __future__ import annotations

import math
from collections import OrderedDict
from heapq import heappush
from typing import Final

from attrs import define, field

from integration_sdk._http.limits import Lane, Pace, Waiter
from integration_sdk._http.requests import Priority
from integration_sdk._http.responses import Response
from integration_sdk._http.retry import Jitter

PRIORITIES: Final = tuple(Priority)
FIRST_PLACES: Final = 20  # requests in flight at first, or the limit per company if that is higher
SILENCE, SILENT_STEP = 0.2, 0.015
"""Seconds without any answer, if nothing was refused yet, after which one more urgent call goes,
and then another after each step: a slow service may take more at a time."""
FAIR_TURN: Final = 8  # every 8th turn goes to the lowest waiting priority, to prevent starvation
MOST_TRUST: Final = 10
"""Maximum number of 503s in a row, after as many answers, that are attributed to one backend."""
MOST_PROBES: Final = 4
"""With several calls waiting and no Retry-After, the first probe comes up to this much sooner."""
LONGEST_STAGGER: Final = 0.01
"""Maximum seconds between two requests that leave after the gate has opened."""
CERTAIN: Final = 3
"""Refusals in a row of one company, while others are served, that show that it is limited."""
FORGOTTEN_AFTER: Final = 60.0
"""Seconds after which a company's own gate is forgotten, once it could have opened."""
MOST_IDLE: Final = 1024
"""Companies beyond this number without calls are dropped, with what was learnt."""


@define
class Limiter:
    """Decides who may send, and when to look again.

    Args:
        jitter: Draws a number between 0 and its argument.
        now: The time of its first request.
        limit, per_company: Maximum requests in flight.

    Attributes:
        waiting: Calls in line.
        service: The lane of all calls.
    """

    jitter: Jitter
    _now: float = 0.0
    limit: int = field(kw_only=True, default=100)
    per_company: int = field(kw_only=True, default=10)
    waiting: int = field(init=False, default=0)
    service: Lane = field(init=False)
    pace: Pace = field(init=False)
    _lanes: dict[str | None, Lane] = field(init=False, factory=dict)
    _closed: dict[Lane, None] = field(init=False, factory=dict)
    """Companies whose own gate is closed."""
    _rings: tuple[OrderedDict[Lane, None], ...] = field(
        init=False, factory=lambda: tuple(OrderedDict() for _ in PRIORITIES)
    )
    """By priority, the companies that may have room and a call in line."""
    _most_lanes: int = field(init=False, default=MOST_IDLE)
    _orders: int = field(init=False, default=0)
    _turns: int = field(init=False, default=0)
    _staggered: int = field(init=False, default=0)
    """How many requests still leave one by one, after the gate has opened."""
    _next_at: float = field(init=False, default=0.0)
    _silent_since: float = field(init=False, default=0.0)
    _trust: int = field(init=False, default=0)
    _late: list[int] = field(init=False, factory=lambda: [0, 0])
    """Of the requests in flight when the gate closed, how many were served and refused."""
    _suspects: set[str] = field(init=False, factory=set)
    _last: tuple[str | None, int, int] = field(init=False, default=(None, 0, 0))
    """The company that was refused last, how often in a row, and how many others were served."""

    def __attrs_post_init__(self) -> None:
        first = min(max(FIRST_PLACES, self.per_company), self.limit)
        self.service, self.pace = Lane(self.limit, float(first)), Pace(self._now)

    # A turn, and what came of it

    def enter(self, call: Waiter, now: float) -> bool:
        """Return True if *call* may send now; otherwise put it in line, see `ready`."""
        if not call.order:
            self._orders += 1
            call.order = self._orders
        lane = call.lane = self._lanes.get(call.company) or self._add_lane(call.company)
        service = self.service
        if (  # the usual case, at less cost than by all the rules
            not self.waiting
            and not self._staggered
            and service.closed_by is lane.closed_by is None
            and service.in_flight < service.size - 2
            and lane.in_flight < lane.size - 2
            and self.pace.learnt == math.inf
        ):
            call.sent_at, call.turns = now, call.turns + 1
            service.in_flight += 1
            lane.in_flight += 1
            return True
        urgent = call.priority == Priority.INTERACTIVE
        if not self.waiting and self._admits(now, urgent) and lane.admits(now, urgent=urgent):
            self._go(call, lane, now)
            return True
        self._stand_in_line(call, lane, now)
        return False

    def ready(self, now: float) -> list[Waiter]:
        """Return the calls whose turn it is now; they count as in flight from here on."""
        released: list[Waiter] = []
        for lane in self._closed:
            if now >= lane.opens_at:
                self._offer(lane)
        self._grow_in_silence(now)
        while self.waiting and self._admits(now, True):
            call = self._next(now) if self.service.closed_by is None else self._probe(now)
            if call is None:
                break
            self.leave_line(call)
            self._go(call, call.lane, now)
            released.append(call)
        return released

    def leave_line(self, call: Waiter) -> None:
        self.waiting -= call.waiting
        call.waiting = False

    def answered(self, call: Waiter, now: float) -> None:
        """Note that *call* got an answer that is no refusal."""
        lane, service = call.lane, self.service
        if self._trust < MOST_TRUST:
            self._trust += 1
        company, in_a_row, others = self._last
        if in_a_row and call.company != company:
            self._last = company, in_a_row, others + 1
        self._silent_since = now
        was_closed = service.closed_by is not None
        if service.answered(call.sent_at, now):
            self._opened(now)
        elif was_closed:
            self._late[0] += 1
        self.pace.answered(now)
        if lane.answered(call.sent_at, now):
            self._closed.pop(lane, None)
        self._leave(lane)

    def refused(self, call: Waiter, answer: Response, now: float) -> None:
        """Note that *call* got a 429 or 503.

        Assumed: a 429 that says ``X-Rate-Limit-Remaining`` above 0 is the company's own
        limit, since the account's is not used up, and one that says 0 is not.
        """
        lane = call.lane
        is_429 = answer.status == 429  # too many requests may be the cause; of a 503, they are not
        in_a_row, others = self._last[1:] if self._last[0] == call.company else (0, 0)
        self._last = call.company, in_a_row + 1, others
        alone = call.company is not None and others > in_a_row
        quota = answer.quota if is_429 and call.company is not None else None
        of_company = alone if quota is None or quota.remaining is None else quota.remaining > 0
        if is_429:
            lane.shrink(call.sent_at, now)
            if not of_company:
                self.service.shrink(call.sent_at, now)
        is_certain = alone and of_company and in_a_row + 1 >= CERTAIN
        if not self._concerns_one(call, answer, (lane if is_certain else self.service).answered_at):
            if of_company:
                self._close_company(lane, call, answer, now)
            else:
                self._close_service(call, answer, now)
        self._leave(lane)

    def unanswered(self, call: Waiter, now: float) -> None:
        """Note that *call* got no answer: a lost connection, a deadline, a cancellation."""
        lane = call.lane
        self.service.unanswered(call.sent_at, now, self.jitter)
        lane.unanswered(call.sent_at, now, self.jitter)
        self._leave(lane)

    def unused(self, call: Waiter, now: float) -> None:
        lane = call.lane
        self.service.unused(call.sent_at, now)
        lane.unused(call.sent_at, now)
        self._leave(lane)

    # Looking ahead

    def next_wake(self, now: float) -> float | None:
        """Return when to call `ready` even if nothing is answered until then; None for never."""
        service = self.service
        if not self.waiting:
            return None
        if service.in_flight >= int(service.size):
            return self._silent_since + SILENCE if self._may_grow else None
        if not self._admits(now, True):
            opens_at = 0.0 if service.closed_by is None else service.opens_at
            return max(opens_at, self.pace.next_at, self._next_at)
        return min((lane.opens_at for lane in self._closed if lane.opens_at > now), default=None)

    def held_back(self) -> set[str]:
        """Return the companies that are refused for now, though others may not be."""
        if self.service.closed_by is not None:
            return self._suspects
        return {str(lane.company) for lane in self._closed if lane.closed_by is not None}

    @property
    def closed_until(self) -> float:
        lanes = (self.service, *self._closed)
        return max((one.opens_at for one in lanes if one.closed_by is not None), default=-math.inf)

    def closed_by(self, call: Waiter, *, until: float = 0.0) -> Response | None:
        """Return the answer that closed a gate for *call* beyond *until*; None if none did."""
        for lane in (self.service, self._lanes.get(call.company, self.service)):
            if lane.closed_by is not None and lane.opens_at > until:
                return lane.closed_by
        return None

    # What an answer teaches

    def _concerns_one(self, call: Waiter, answer: Response, answered_at: float) -> bool:
        """Return whether *call* alone was refused: others were answered, and no time was named."""
        if answer.retry_after:
            return False
        if answer.status == 429:  # others were answered meanwhile: this was one too many
            return answered_at > call.sent_at
        is_single = self.service.in_flight + self.waiting == 1  # which cannot tell
        if is_single or self.service.closed_by is not None or not self._trust:
            return False
        self._trust -= 1
        return True

    def _close_company(self, lane: Lane, call: Waiter, answer: Response, now: float) -> None:
        for other in [one for one in self._closed if one.is_idle]:
            if now > other.opens_at + FORGOTTEN_AFTER:
                other.closed_by = None
                del self._closed[other]
        self._closed[lane] = None
        lane.close(answer, call.base, call.sent_at, now, self.jitter)
        self.service.unused(call.sent_at, now)  # it says nothing about the service itself

    def _close_service(self, call: Waiter, answer: Response, now: float) -> None:
        base = call.base
        if self.service.closed_by is None:
            self.pace.closed(now)
            self._staggered, self._late = 0, [0, 0]
            self._suspects.clear()
        if call.company is not None:
            self._suspects.add(call.company)
        if answer.status == 429:
            self._late[1] += call.sent_at <= self.pace.closed_at  # else it is the probe's
            # Many that wait lose more in a pause, and have probes to spare.
            base /= max(1, min(MOST_PROBES, self.waiting + self.service.in_flight))
        self.service.close(answer, base, call.sent_at, now, self.jitter)

    def _opened(self, now: float) -> None:
        served, refused = self._late
        # A single refusal may have any cause; it only confirms a known rate.
        enough = 1 if self.pace.learnt < math.inf else 2
        self.pace.opened(now, limited=refused >= max(enough, served + 1))
        self._staggered, self._next_at = int(self.service.size), now

    # Turns

    def _admits(self, now: float, urgent: bool) -> bool:
        is_due = self.pace.admits(now) and (self._staggered <= 0 or now >= self._next_at)
        return is_due and self.service.admits(now, urgent=urgent)

    @property
    def _may_grow(self) -> bool:
        service = self.service
        is_full = int(service.size) <= service.in_flight < service.limit
        return is_full and service.is_untried and bool(self._rings[Priority.INTERACTIVE])

    def _grow_in_silence(self, now: float) -> None:
        if now >= self._silent_since + SILENCE and self._may_grow:
            self.service.size += 1
            self._silent_since = now + SILENT_STEP - SILENCE

    def _go(self, call: Waiter, lane: Lane, now: float) -> None:
        call.sent_at, call.turns = now, call.turns + 1
        self.service.sent(now)
        lane.sent(now)
        self.pace.sent(now)
        if self._staggered > 0:
            self._staggered, self._next_at = self._staggered - 1, now + self.jitter(LONGEST_STAGGER)

    def _leave(self, lane: Lane) -> None:
        self.service.in_flight -= 1
        lane.in_flight -= 1
        if self.waiting:
            self._offer(lane)

    # The line

    def _add_lane(self, company: str | None) -> Lane:
        if len(self._lanes) >= self._most_lanes:
            for ring in self._rings:  # what calls left behind that gave up
                for lane in [one for one in ring if one.is_idle]:
                    del ring[lane]
            lanes = self._lanes.items()
            kept = [pair for pair in lanes if not pair[1].is_idle or pair[1].closed_by is not None]
            self._lanes, self._most_lanes = dict(kept), MOST_IDLE + 2 * len(kept)
        most = self.limit if company is None else min(self.per_company, self.limit)
        lane = self._lanes[company] = Lane(most, float(most), company)
        return lane

    def _stand_in_line(self, call: Waiter, lane: Lane, now: float) -> None:
        line = lane.lines[call.priority]
        if len(line) > 64 and not line[-1][1].waiting:  # calls that gave up while none could go
            line[:] = sorted(pair for pair in line if pair[1].waiting)
        if not self.waiting:
            self._silent_since = now
        call.waiting = True
        self.waiting += 1
        heappush(line, (call.order, call))
        self._rings[call.priority].setdefault(lane)

    def _offer(self, lane: Lane) -> None:
        for priority, line in enumerate(lane.lines):
            if line:
                self._rings[priority].setdefault(lane)

    def _next(self, now: float) -> Waiter | None:
        """Return the next call; None if no company that waits has room."""
        order = PRIORITIES if self.service.admits(now, urgent=False) else PRIORITIES[:1]
        for priority in reversed(order) if self._turns % FAIR_TURN == FAIR_TURN - 1 else order:
            ring, urgent = self._rings[priority], priority == Priority.INTERACTIVE
            while ring:
                lane, _ = ring.popitem(last=False)  # `_offer` puts back those without room
                call = lane.first(priority) if lane.admits(now, urgent=urgent) else None
                if call is not None:
                    ring[lane] = None
                    self._turns += 1  # not turns that no call used, so no fair one is lost
                    return call
        return None

    def _probe(self, now: float) -> Waiter | None:
        """Return the call that probes; of a company not refused if possible: it may be that one.

        Among the candidates it is the one with the fewest turns, so that no call uses up its own.
        """
        candidates = (
            call
            for lane in self._lanes.values()
            for priority, line in enumerate(lane.lines)
            if line and lane.admits(now, urgent=priority == Priority.INTERACTIVE)
            for _, call in line
            if call.waiting
        )
        return min(
            candidates,
            key=lambda one: (one.company in self._suspects, one.turns, one.priority, one.order),
            default=None,
        )
