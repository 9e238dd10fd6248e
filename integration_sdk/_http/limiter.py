"""Decides which waiting call may send now.

A turn requires that the service's gate is open, its window has a place and the pace allows it,
and that the gate and window of the company do too. Each company has its own, of 10 places, so
that neither one company's bulk nor one company's 429 holds up another. A refusal is a company's
own if the answer says so, or if only this company is refused while others are served.

Within a priority the companies take turns in a ring; within a company the oldest call goes first,
even if it had to be sent several times.

What a 429 teaches depends on who else was refused. If all requests in flight were, the service
limits the rate: the pacer learns it. If others were served, it limits concurrency: the window
shrinks. A 503 teaches nothing. While most calls are served, it is taken for one backend's of
several, and closes no gate unless it names a time. After the gate has opened, calls leave at
small random intervals, not all at once.

Each part has a world in which calls fail, or take much longer, without it: see the test of the
limiter's worlds.

Source: "Status codes", 429 and 503. Assumed: 10 requests at once for each company, as
the public API publishes; the document shows no thresholds.
"""

from __future__ import annotations

import math
from collections import OrderedDict
from collections.abc import Iterator
from heapq import heappop, heappush
from typing import TYPE_CHECKING, Final

from attrs import Factory, define, field

from integration_sdk._http.limits import AimdLimit, RatePacer, RetryAfterGate
from integration_sdk._http.requests import Priority
from integration_sdk._http.responses import Response
from integration_sdk._http.retry import Jitter

if TYPE_CHECKING:
    from integration_sdk._http.call import Call

FIRST_WINDOW: Final = 20.0
"""Maximum requests in flight at first, or the limit per company if that is higher; adjusted by
the service's answers."""
MOST_TRUST: Final = 10
"""Maximum number of 503s in a row, after as many answers, that are attributed to one backend."""
MOST_PROBES: Final = 4
"""With several calls waiting and no Retry-After, the first probe comes up to this much sooner."""
FORGOTTEN_AFTER: Final = 60.0
"""Seconds after which a company's own gate is forgotten, once it could have opened."""
LONGEST_STAGGER: Final = 0.01
"""Maximum seconds between two requests that leave after the gate has opened."""
FAIR_TURN: Final = 8
"""Every 8th turn goes to the lowest waiting priority, to prevent starvation."""
PRIORITIES: Final = tuple(Priority)
CERTAIN: Final = 3
"""Refusals in a row of one company, while others are served, that show that it is limited."""
MOST_IDLE: Final = 1024
"""Companies beyond this number that nobody asks about are dropped, with what was learnt."""


@define(eq=False)
class CompanyLimits:
    """One company's gate and window, and its waiting calls by priority."""

    company: str | None
    window: AimdLimit
    gate: RetryAfterGate = Factory(RetryAfterGate)
    in_flight: int = 0
    answered_at: float = 0.0
    lines: tuple[list[Call], ...] = Factory(lambda: tuple([] for _ in Priority))

    def has_room(self, now: float, priority: int) -> bool:
        """Return whether one more request may go."""
        urgent = priority == Priority.INTERACTIVE
        return self.window.has_room(self.in_flight, urgent=urgent) and self.gate.admits(now)

    def first(self, priority: int) -> Call | None:
        """Return the first call in line or, for a probe, the one with the fewest turns.

        Calls that have left the line are dropped.
        """
        line = self.lines[priority]
        while line and not line[0].waiting:
            heappop(line)
        if self.gate.is_open or not line:
            return line[0] if line else None
        return min((one for one in line if one.waiting), key=lambda one: (one.turns, one.order))

    @property
    def is_unused(self) -> bool:
        """Whether nobody is in flight or in line."""
        return not self.in_flight and not any(self.lines)

    def tidy(self) -> None:
        """Drop the calls that have left the line."""
        for line in filter(None, self.lines):
            line[:] = sorted(call for call in line if call.waiting)  # a heap, too


@define
class TenantThrottleDetector:
    """Whether one company alone is refused.

    Attributes:
        company: The company that was refused last.
    """

    company: str | None = None
    _refused: int = 0
    _others_served: int = 0

    def answered(self, company: str | None) -> None:
        """Note that a request for *company* was served."""
        self._others_served += company != self.company

    def refused(self, company: str | None) -> bool:
        """Note a refusal; return whether *company* alone is refused."""
        if company != self.company:
            self.company, self._refused, self._others_served = company, 0, 0
        self._refused += 1
        return self.is_proven

    @property
    def is_certain(self) -> bool:
        """Whether it is no accident: the company was refused several times in a row."""
        return self._refused >= CERTAIN and self.is_proven

    @property
    def is_proven(self) -> bool:
        """Whether others were served as often since *company* alone was refused."""
        return self.company is not None and self._others_served >= self._refused


@define
class Limiter:
    """Decides who may send, and when to look again.

    Args:
        jitter: Draws a number between 0 and its argument.
        limit: Maximum requests in flight.
        per_company: The same for each company.

    Attributes:
        in_flight: Requests in flight.
        waiting: Calls in line.
        gate, window: The service's; each company has its own beside them.
        pacer: The rate at which requests leave.
    """

    _jitter: Jitter
    limit: int = field(kw_only=True, default=100)
    per_company: int = field(kw_only=True, default=10)
    in_flight: int = field(init=False, default=0)
    waiting: int = field(init=False, default=0)
    gate: RetryAfterGate = field(init=False, factory=RetryAfterGate)
    window: AimdLimit = field(init=False)
    pacer: RatePacer = field(init=False, factory=RatePacer)
    _companies: dict[str | None, CompanyLimits] = field(init=False, factory=dict)
    _closed: dict[CompanyLimits, None] = field(init=False, factory=dict)
    """The companies whose own gate is closed, in the order in which they closed."""
    _rings: tuple[OrderedDict[CompanyLimits, None], ...] = field(
        init=False, factory=lambda: tuple(OrderedDict() for _ in Priority)
    )
    """By priority, the companies that may have room and a call in line."""
    _most_companies: int = field(init=False, default=MOST_IDLE)
    _added: int = field(init=False, default=0)
    _orders: int = field(init=False, default=0)
    _turns_taken: int = field(init=False, default=0)

    _staggered: int = field(init=False, default=0)
    """How many requests still leave one by one, after the gate has opened."""
    _next_at: float = field(init=False, default=0.0)
    """When the next of them may."""
    _answered_at: float = field(init=False, default=0.0)
    _trust: int = field(init=False, default=0)
    _detector: TenantThrottleDetector = field(init=False, factory=TenantThrottleDetector)
    _served_late: int = field(init=False, default=0)
    _refused_late: int = field(init=False, default=0)
    _suspects: set[str] = field(init=False, factory=set)
    """Companies that were refused since the service's gate closed."""
    _accused: CompanyLimits | None = field(init=False, default=None)
    """The company to which the service's closed gate was moved, until its own probe tells."""

    def __attrs_post_init__(self) -> None:
        first = max(FIRST_WINDOW, float(self.per_company))
        self.window = AimdLimit(self.limit, min(first, float(self.limit)))

    # Coming and going

    def enter(self, call: Call, now: float) -> bool:
        """Return True if *call* may send now; otherwise put it in line, see `ready`."""
        if not call.order:
            self._orders += 1
            call.order = self._orders
        limits = call.limits = self._companies.get(call.company) or self._add_company(call.company)
        if self._is_calm(limits):
            self._go(call, limits, now)
            return True
        least = None if self.waiting else self._least_admitted(now)
        if least is not None and call.priority <= least and limits.has_room(now, call.priority):
            self._go(call, limits, now)
            return True
        self._stand_in_line(call, limits)
        return False

    def ready(self, now: float) -> list[Call]:
        """Return the calls whose turn it is now; they count as in flight from here on."""
        released: list[Call] = []
        for limits in self._closed:
            if limits.gate.admits(now):
                self._offer(limits)
        while self.waiting and (least := self._least_admitted(now)) is not None:
            call = self._next(now, least) if self.gate.is_open else self._pick_probe(now)
            if call is None:
                break
            self.leave_line(call)
            self._go(call, _of(call), now)
            released.append(call)
        return released

    def leave_line(self, call: Call) -> None:
        """Take *call* out of the line, if it is in it."""
        if call.waiting:
            call.waiting = False
            self.waiting -= 1

    def answered(self, call: Call, now: float) -> None:
        """Note that *call* got an answer that is no refusal."""
        limits = _of(call)
        self._answered_at = limits.answered_at = now
        self._trust = min(MOST_TRUST, self._trust + 1)
        self._detector.answered(call.company)
        self.window.answered(self.in_flight)
        limits.window.answered(limits.in_flight)
        if self.gate.closed_by is not None:
            self._served_while_closed(call, now)
        self.pacer.answered(now)
        if limits.gate.closed_by is not None and limits.gate.answered(call.sent_at):
            self._closed.pop(limits, None)
            self._accused = None if limits is self._accused else self._accused
        self._leave(limits)

    def refused(self, call: Call, answer: Response, now: float) -> None:
        """Note that *call* got a 429 or 503.

        Assumed: a 429 that says ``X-Rate-Limit-Remaining`` above 0 is the company's own
        limit, since the account's is not used up, and one that says 0 is not.
        """
        limits = _of(call)
        is_429 = answer.status == 429  # too many requests may be the cause; of a 503, they are not
        quota = answer.quota if is_429 and call.company is not None else None
        left = None if quota is None else quota.remaining
        alone = self._detector.refused(call.company) or limits is self._accused
        if limits is self._accused:
            self._accused = None
            self.pacer.forget()  # what it learnt from a limit that is this company's
        of_company = alone if left is None else left > 0
        if is_429:
            limits.window.refused(limits.in_flight, call.sent_at, now)
            if not of_company:
                self.window.refused(self.in_flight, call.sent_at, now)
        is_certain = of_company and self._detector.is_certain
        since = limits.answered_at if is_certain else self._answered_at
        if not self._concerns_one(call, answer, since):
            if of_company:
                self._close_company(limits, call, answer, now)
            else:
                self._close_service(call, answer, now)
        self._leave(limits)

    def unanswered(self, call: Call, now: float) -> None:
        """Note that *call* got no answer: a lost connection, a deadline, a cancellation."""
        limits = _of(call)
        self.gate.unanswered(call.sent_at, now, self._jitter)
        limits.gate.unanswered(call.sent_at, now, self._jitter)
        self._leave(limits)

    def unused(self, call: Call, now: float) -> None:
        """Note that *call* had its turn but sent nothing."""
        limits = _of(call)
        self.gate.unused(call.sent_at, now)
        limits.gate.unused(call.sent_at, now)
        self._leave(limits)

    # Looking ahead

    def next_wake(self, now: float) -> float | None:
        """Return when to call `ready` even if nothing is answered until then; None for never."""
        if not self.waiting or not self.window.has_room(self.in_flight, urgent=True):
            return None
        if self._least_admitted(now) is None:
            opens_at = 0.0 if self.gate.is_open else self.gate.opens_at
            return max(opens_at, self.pacer.next_at, self._next_at)
        opening = (limits.gate.opens_at for limits in self._closed)
        return min((at for at in opening if at > now), default=None)

    def held_back(self) -> set[str]:
        """Return the companies that are refused for now, though others may not be.

        While the service's gate is closed, that may be each company that has been refused since:
        only calls of others can tell whether it is they or the service.
        """
        if not self.gate.is_open:
            return self._suspects
        return {str(limits.company) for limits in self._closed if not limits.gate.is_open}

    @property
    def closed_until(self) -> float:
        """When the last of the closed gates opens; minus infinity if none is closed."""
        gates = (self.gate, *(limits.gate for limits in self._closed))
        return max((gate.opens_at for gate in gates if not gate.is_open), default=-math.inf)

    def closed_by(self, call: Call, *, until: float = 0.0) -> Response | None:
        """Return the answer that closed a gate for *call* beyond *until*; None if none did."""
        own = self._companies.get(call.company)
        for gate in (self.gate, self.gate if own is None else own.gate):
            if gate.closed_by is not None and gate.opens_at > until:
                return gate.closed_by
        return None

    # What an answer teaches

    def _opened(self, now: float) -> None:
        """Tell a rate limit, which refuses all requests in flight, from a concurrency limit.

        A single refusal may have any cause; it only confirms a known rate.
        """
        enough = 1 if self.pacer.is_learnt else 2
        limited = self._refused_late >= max(enough, self._served_late + 1)
        self.pacer.opened(now, limited=limited)
        self._staggered, self._next_at = self.window.places, now

    def _served_while_closed(self, call: Call, now: float) -> None:
        """Open the service's gate if *call* was the probe, or shows that it is not the service.

        If one company alone was refused and others are served, before or after, it may be the
        only one that is limited: the closed gate becomes that company's. Without this, 200 pushes
        behind 80 of a refused company take 17 s, not 2.
        """
        is_probe = call.sent_at > self.gate.closed_at
        is_other = len(self._suspects) == 1 and call.company not in self._suspects
        if is_other and (is_probe or (self._detector.is_proven and not self.gate.has_named_time)):
            self.gate.unused(call.sent_at, now)  # so that the company's probe may go
            (company,) = self._suspects
            accused = self._companies.get(company) or self._add_company(company)
            if accused.gate.is_open:
                accused.gate = self.gate
                self._closed[accused] = None
                self._accused = accused
            self.gate = RetryAfterGate()
            self._opened(now)
        elif self.gate.answered(call.sent_at):
            self._opened(now)
        else:
            self._served_late += 1

    def _concerns_one(self, call: Call, answer: Response, answered_at: float) -> bool:
        """Return whether *call* alone was refused: others were answered, and no time was named.

        *answered_at* is when the last of the others was answered: of the same company if that
        company alone is refused, else of any.
        """
        if answer.retry_after:
            return False
        if answer.status == 429:  # others were answered meanwhile: this was one too many
            return answered_at > call.sent_at
        # A 503 of one backend of several: recently more calls were served than got one. A single
        # call cannot tell.
        if self.in_flight + self.waiting == 1 or not self.gate.is_open or not self._trust:
            return False
        self._trust -= 1
        return True

    def _close_company(
        self, limits: CompanyLimits, call: Call, answer: Response, now: float
    ) -> None:
        for other in [one for one in self._closed if one.is_unused]:
            if now > other.gate.opens_at + FORGOTTEN_AFTER:  # nobody has asked for a while
                other.gate = RetryAfterGate()
                del self._closed[other]
        self._closed[limits] = None
        base = call.options.retry.throttled_base
        limits.gate.refused(answer, base, call.sent_at, now, self._jitter)
        self.gate.unused(call.sent_at, now)  # it says nothing about the service itself

    def _close_service(self, call: Call, answer: Response, now: float) -> None:
        base = call.options.retry.throttled_base
        if self.gate.is_open:
            self.pacer.closed(now)
            self._staggered = self._served_late = self._refused_late = 0
            self._suspects.clear()
        if call.company is not None:
            self._suspects.add(call.company)
        if answer.status == 429:
            if call.sent_at <= self.pacer.closed_at:  # a probe says nothing about the rate
                self._refused_late += 1
            # Many that wait lose more in a pause, and have probes to spare.
            base /= max(1, min(MOST_PROBES, self.waiting + self.in_flight))
        self.gate.refused(answer, base, call.sent_at, now, self._jitter)

    # Turns

    def _is_calm(self, limits: CompanyLimits) -> bool:
        """Whether anybody may go: the usual case, told at less cost than by all the rules."""
        return (
            not self.waiting
            and not self._staggered
            and self.pacer.learnt == math.inf
            and self.gate.closed_by is None
            and limits.gate.closed_by is None
            and self.in_flight < self.window.size - 2
            and limits.in_flight < limits.window.size - 2
        )

    def _least_admitted(self, now: float) -> Priority | None:
        """Return the lowest priority that may go now, whatever its company; None if none may."""
        if not self.gate.admits(now) or not self.pacer.admits(now):
            return None
        if self._staggered > 0 and now < self._next_at:
            return None
        if not self.window.has_room(self.in_flight, urgent=True):
            return None
        everybody = self.window.has_room(self.in_flight, urgent=False)
        return Priority.PREFETCH if everybody else Priority.INTERACTIVE

    def _go(self, call: Call, limits: CompanyLimits, now: float) -> None:
        call.sent_at = now
        call.turns += 1
        self.in_flight += 1
        limits.in_flight += 1
        self.pacer.passed(now)
        if self.gate.closed_by is not None:
            self.gate.passed(now)
        if limits.gate.closed_by is not None:
            limits.gate.passed(now)
        if self._staggered > 0:
            self._staggered -= 1
            self._next_at = now + self._jitter(LONGEST_STAGGER)

    def _leave(self, limits: CompanyLimits) -> None:
        self.in_flight -= 1
        limits.in_flight -= 1
        if self.waiting:
            self._offer(limits)

    # The line

    def _add_company(self, company: str | None) -> CompanyLimits:
        if len(self._companies) >= self._most_companies:
            self._tidy()
            self._companies = {
                key: limits
                for key, limits in self._companies.items()
                if not (limits.is_unused and limits.gate.is_open)
            }
            self._most_companies = MOST_IDLE + 2 * len(self._companies)
        most = self.limit if company is None else min(self.per_company, self.limit)
        limits = self._companies[company] = CompanyLimits(company, AimdLimit(most, float(most)))
        return limits

    def _stand_in_line(self, call: Call, limits: CompanyLimits) -> None:
        self._added += 1
        if self._added > MOST_IDLE + 2 * (self.waiting + len(self._companies)):
            self._tidy()
        call.waiting = True
        self.waiting += 1
        heappush(limits.lines[call.priority], call)
        self._rings[call.priority].setdefault(limits)

    def _tidy(self) -> None:
        """Drop what calls have left behind that gave up while nobody could go."""
        self._added = 0
        for limits in self._companies.values():
            limits.tidy()
        for ring in self._rings:
            for limits in [one for one in ring if not any(one.lines)]:
                del ring[limits]

    def _offer(self, limits: CompanyLimits) -> None:
        """Let a company take part in the turns: it may have room again."""
        for priority in PRIORITIES:
            if limits.lines[priority]:
                self._rings[priority].setdefault(limits)

    def _next(self, now: float, least: Priority) -> Call | None:
        """Return the next call, down to priority *least*; None if no company has room."""
        eligible = PRIORITIES[: least + 1]
        last_first = self._turns_taken % FAIR_TURN == FAIR_TURN - 1
        for priority in reversed(eligible) if last_first else eligible:
            ring = self._rings[priority]
            while ring:
                limits, _ = ring.popitem(last=False)  # `_offer` puts back those without room
                call = limits.first(priority) if limits.has_room(now, priority) else None
                if call is not None:
                    ring[limits] = None
                    self._turns_taken += 1  # not turns that nobody used, so no fair one is lost
                    return call
        return None

    def _pick_probe(self, now: float) -> Call | None:
        """Return the call that probes; of a company not refused if possible: it may be that one.

        Among the candidates it is the one with the fewest turns, so that no call uses up its own.
        """
        return min(
            self._candidates(now),
            key=lambda one: (one.company in self._suspects, one.turns, one.priority, one.order),
            default=None,
        )

    def _candidates(self, now: float) -> Iterator[Call]:
        for limits in self._companies.values():
            for priority, line in enumerate(limits.lines):
                if line and limits.has_room(now, priority):
                    yield from (call for call in line if call.waiting)


def _of(call: Call) -> CompanyLimits:
    """Return the limits of the company of *call*, which has had a turn."""
    assert call.limits is not None  # noqa: S101 - set by `enter`
    return call.limits
