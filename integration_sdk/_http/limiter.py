"""Decides which waiting call may send now.

There is one `Lane` for the service and one for each company; the service's also has a `Pace`. A
call goes if both of its lanes and the pace allow it. Companies take turns in a ring for each
priority; within a company, the call that came first goes first.

A refusal is a company's own if the answer says so, or if others are served meanwhile. If all
requests in flight were refused, the service limits the rate: the pace is learnt. If others were
served, it limits concurrency: the places shrink. A 503 teaches nothing.

Source: "Status codes", 429 and 503. Assumed: 10 requests at once for each company, as the public
API publishes; the document shows no thresholds.
"""

from __future__ import annotations

import math
from collections import OrderedDict
from typing import Final

from attrs import define, field

from integration_sdk._http.limits import Lane, Pace, Waiter
from integration_sdk._http.requests import Priority
from integration_sdk._http.responses import Response
from integration_sdk._http.retry import Jitter

PRIORITIES: Final = tuple(Priority)
FIRST_PLACES: Final = 20  # requests in flight at first, or the limit per company if that is higher
FAIR_TURN: Final = 8  # every 8th turn goes to the lowest waiting priority, to prevent starvation
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
    """By priority, the companies that have a call in line."""
    _most_lanes: int = field(init=False, default=MOST_IDLE)
    _turns: int = field(init=False, default=0)
    _blamed: Lane | None = field(init=False, default=None)
    """The company that was refused last; since no other was: in how many rounds of its requests,
    and how many requests of others were served."""
    _rounds: int = field(init=False, default=0)
    _others: int = field(init=False, default=0)
    _served_late: int = field(init=False, default=0)
    _refused_late: int = field(init=False, default=0)
    """Of the requests in flight when the gate closed, how many were served and refused."""
    _suspects: set[str | None] = field(init=False, factory=set)
    """The companies that have been refused since the gate closed."""

    def __attrs_post_init__(self) -> None:
        first = min(max(FIRST_PLACES, self.per_company), self.limit)
        self.service, self.pace = Lane(self.limit, float(first)), Pace(self._now)

    # A turn, and what came of it

    def enter(self, call: Waiter, now: float) -> bool:
        """Return True if *call* may send now; otherwise put it in line, see `ready`.

        All calls in line wait for something, so one that need not wait takes no other's turn.
        """
        lane = call.lane = self._lanes.get(call.company) or self._add_lane(call.company)
        service = self.service
        if (  # the usual case, at less cost than by all the rules
            not self.waiting
            and service.closed_by is lane.closed_by is None
            and service.in_flight < service.size - 2
            and lane.in_flight < lane.size - 2
            and self.pace.learnt == math.inf
        ):
            call.sent_at = now
            service.in_flight += 1
            lane.in_flight += 1
            return True
        urgent, line = call.priority == Priority.INTERACTIVE, lane.lines[call.priority]
        if not line and self._admits(now, urgent) and lane.admits(now, urgent=urgent):
            self._go(call, lane, now)
            return True
        call.waiting = True
        self.waiting += 1
        line[call] = None
        self._rings[call.priority].setdefault(lane)
        return False

    def ready(self, now: float) -> list[Waiter]:
        """Return the calls whose turn it is now; they count as in flight from here on."""
        released: list[Waiter] = []
        while self.waiting and self._admits(now, True):
            call = self._next(now)
            if call is None:
                break
            self.leave_line(call)
            self._go(call, call.lane, now)
            released.append(call)
        return released

    def leave_line(self, call: Waiter) -> None:
        line, ring = call.lane.lines[call.priority], self._rings[call.priority]
        del line[call]
        if not line:
            del ring[call.lane]
        self.waiting -= 1
        call.waiting = False

    def answered(self, call: Waiter, now: float) -> None:
        """Note that *call* got an answer that is no refusal."""
        lane, service = call.lane, self.service
        self._others += lane is not self._blamed
        was_closed = service.closed_by is not None
        if service.answered(call.sent_at, now):
            # A single refusal may have any cause; it only confirms a known rate.
            enough = 1 if self.pace.learnt < math.inf else 2
            limited = self._refused_late >= max(enough, self._served_late + 1)
            self.pace.opened(now, limited=limited)
        elif was_closed:
            self._served_late += 1
        self.pace.answered()
        if lane.answered(call.sent_at, now):
            self._closed.pop(lane, None)
        self._leave(lane)

    def refused(self, call: Waiter, answer: Response, now: float) -> None:
        """Note that *call* got a 429 or 503."""
        lane, service = call.lane, self.service
        is_429 = answer.status == 429  # too many requests may be the cause; of a 503, they are not
        of_company = self._concerns_company(call, answer, now)
        if is_429:
            lane.shrink(call.sent_at, now)
            if not of_company:
                service.shrink(call.sent_at, now)
        concerned = lane if of_company else service
        if concerned.answered_at > call.sent_at and not answer.retry_after:
            pass  # others were answered meanwhile: this was one too many
        elif of_company:
            self._closed[lane] = None
            lane.close(answer, call.base, call.sent_at, now, self.jitter)
            self.pace.forget()  # it may have been learnt from this company
            service.unused(call.sent_at, now)  # it says nothing about the service itself
        else:
            if service.closed_by is None:
                self.pace.closed_at = now
                self._served_late = self._refused_late = 0
                self._suspects.clear()
            self._suspects.add(call.company)
            self._refused_late += is_429 and call.sent_at <= self.pace.closed_at
            service.close(answer, call.base, call.sent_at, now, self.jitter)
        self._leave(lane)

    def _concerns_company(self, call: Waiter, answer: Response, now: float) -> bool:
        """Return whether *answer* refused the company of *call*, rather than everybody.

        Assumed: a 429 that says ``X-Rate-Limit-Remaining`` above 0 is the company's own
        limit, since the account's is not used up, and one that says 0 is not. Where the answer
        does not tell, it is the company's if others were served between its refusals.
        """
        lane = call.lane
        if lane is not self._blamed:
            self._blamed, self._rounds, self._others = lane, 0, 0
        is_alone = 0 < self._rounds <= self._others
        if call.sent_at > lane.refused_at:
            self._rounds, lane.refused_at = self._rounds + 1, now
        quota = answer.quota if answer.status == 429 else None
        if call.company is None:
            return False
        return is_alone if quota is None or quota.remaining is None else quota.remaining > 0

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
        if not self.waiting or service.in_flight >= int(service.size):
            return None
        if not self._admits(now, True):
            return max(service.opens_at, self.pace.cells.next_at)
        if not self._closed:
            return None
        return min((lane.opens_at for lane in self._closed if lane.opens_at > now), default=None)

    def held_back(self) -> set[str]:
        """Return the companies that are refused for now, though others may not be."""
        is_open = self.service.closed_by is None
        companies = (lane.company for lane in self._closed) if is_open else self._suspects
        return {company for company in companies if company is not None}

    def closed_by(self, call: Waiter, *, until: float = 0.0) -> Response | None:
        """Return the answer that closed a gate for *call* beyond *until*; None if none did."""
        for lane in (self.service, self._lanes.get(call.company, self.service)):
            if lane.closed_by is not None and lane.opens_at > until:
                return lane.closed_by
        return None

    # Turns

    def _admits(self, now: float, urgent: bool) -> bool:
        return self.pace.admits(now) and self.service.admits(now, urgent=urgent)

    def _go(self, call: Waiter, lane: Lane, now: float) -> None:
        call.sent_at = now
        self.service.sent(now)
        lane.sent(now)
        self.pace.sent(now)

    def _leave(self, lane: Lane) -> None:
        self.service.in_flight -= 1
        lane.in_flight -= 1

    def _next(self, now: float) -> Waiter | None:
        """Return the next call; None if no company that waits has room.

        The least urgent goes through a closed gate, since a refusal uses up one of its attempts.
        """
        order = PRIORITIES if self.service.admits(now, urgent=False) else PRIORITIES[:1]
        is_probe = self.service.closed_by is not None
        if is_probe or self._turns % FAIR_TURN == FAIR_TURN - 1:
            order = order[::-1]
        for priority in order:
            ring, urgent = self._rings[priority], priority == Priority.INTERACTIVE
            for lane in ring:
                if lane.admits(now, urgent=urgent):
                    ring.move_to_end(lane)
                    self._turns += 1
                    return next(iter(lane.lines[priority]))
        return None

    def _add_lane(self, company: str | None) -> Lane:
        if len(self._lanes) >= self._most_lanes:
            self._lanes = {one.company: one for one in self._lanes.values() if not one.is_idle}
            self._closed = {one: None for one in self._closed if not one.is_idle}
            self._most_lanes = MOST_IDLE + 2 * len(self._lanes)
        most = self.limit if company is None else min(self.per_company, self.limit)
        lane = self._lanes[company] = Lane(most, float(most), company)
        return lane
