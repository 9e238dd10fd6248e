"""Decides who may send now: each call holds a `Ticket` and waits for its turn.

A turn requires that the service's gate is open, its window has a place and the pace allows it,
and that the gate and window of the company's share do too. Each company has its own, of 10
places, so that neither one company's bulk nor one company's 429 holds up another. A refusal is a
company's own if the answer says so, or if only this company is refused while others are served.
`fair_queue` decides who goes next.

What a 429 teaches depends on who else was refused. If all requests in flight were, the service
limits the rate: the pace learns it, the window stays. If others were served, it limits
concurrency: the window shrinks. A 503 teaches nothing. While most calls are served, it is taken
for one backend's of several, and closes no gate unless it names a time.

What each part is good for: 1,000 calls at 20 ms, simulated with ``Retry-After: 1`` and without,
against buckets of 100 a second, fixed and sliding windows of the same, 10 a second for each of
ten companies, and concurrency limits of 10, and of 3 for each company. Time over the ideal and
share of requests refused; ``!`` where calls failed::

    without        buckets      windows      companies    at once
    nothing        1.3   2.3%   1.5   2.8%   1.1   2.2%    6.1  1.2%   with Retry-After
    gate           1.0   3.5%   1.3    12%   1.0   5.7%    1.9  1.0%
    window         1.4   2.4%   1.5   2.6%   1.0   2.3%    2.8  0.7%
    rate           1.3   4.5%   1.4   3.5%   1.1   2.7%    6.1  1.2%
    stagger        1.7   2.6%   1.5   2.8%   1.1   2.0%    5.7  1.0%
    detector       1.4   2.3%   1.5   2.8%   1.9   2.1%   14.0  0.9%
    company's 10   1.4   9.2%   1.4   9.6%   1.0   9.4%   10.4  8.1%
    nothing        1.0   3.0%   1.2   3.9%   1.1   3.0%    1.8  1.2%   without it
    gate           1.0   3.5%   1.3    13% ! 1.0   5.8%    1.5  1.0%
    window         0.9    20% ! 1.4   3.5%   1.0   7.8%    1.3  0.7%
    rate           1.0   3.3%   1.4   4.5%   1.0   4.1%    1.8  1.2%
    stagger        1.0   3.3%   1.3   3.7%   1.2   2.8%    1.7  1.2%
    detector       1.0   3.0%   1.2   3.9%   2.4   3.4% ! 10.6  0.9%
    company's 10   1.0   9.6%   1.2    10%   1.0    11%    5.3  7.4%

At 1 ms calls fail without the gate (six in ten) and without the rate (one in ten).

After the gate has opened, tickets leave at small random intervals until the window is used, not
all at once.

Source: "Status codes", 429 and 503. Assumed: 10 requests at once for each company, as
the public API publishes; the document shows no thresholds.
"""

from __future__ import annotations

import math
from typing import Final

from attrs import define, evolve, field

from integration_sdk._http.fair_queue import CompanyLimits, FairQueue, Ticket
from integration_sdk._http.gate import Refusal, RetryAfterGate
from integration_sdk._http.pace import RatePacer
from integration_sdk._http.requests import Priority
from integration_sdk._http.responses import Response
from integration_sdk._http.retry import Jitter
from integration_sdk._http.window import AimdLimit

FIRST_WINDOW: Final = 20.0
"""Maximum requests in flight at first, or the limit per company if that is higher; adjusted by
the service's answers."""
MOST_TRUST: Final = 10
"""Maximum number of 503s in a row, after as many answers, that are attributed to one backend."""
MOST_PROBES: Final = 4
"""How many times sooner a crowd probes than a single call after a 429 that names no time."""
FORGOTTEN_AFTER: Final = 60.0
"""Seconds after which a company's own gate is forgotten, once it could have opened."""
LONGEST_STAGGER: Final = 0.01
"""Maximum seconds between two requests that leave after the gate has opened."""


@define
class Stagger:
    """Small random intervals between the first requests after the gate has opened."""

    _jitter: Jitter
    left: int = 0
    next_at: float = 0.0

    def begin(self, count: int, now: float) -> None:
        """Let the next *count* requests leave one by one."""
        self.left, self.next_at = count, now

    def admits(self, now: float) -> bool:
        """Return whether a request may leave now."""
        return self.left <= 0 or now >= self.next_at

    def passed(self, now: float) -> None:
        """Note that a request left."""
        if self.left > 0:
            self.left -= 1
            self.next_at = now + self._jitter(LONGEST_STAGGER)


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
    def is_proven(self) -> bool:
        """Whether others were served as often since *company* alone was refused."""
        return self.company is not None and self._others_served >= self._refused


@define
class Throttle:
    """Decides who may send, and when to look again.

    Args:
        jitter: Draws a number between 0 and its argument.
        limit: Maximum requests in flight.
        per_company: The same for each company.
        rate: Maximum requests per second; None for no fixed rate.

    Attributes:
        in_flight: Requests in flight.
        gate, window: The service's; each company has its own beside them.
        pace: The rate at which requests leave.
    """

    _jitter: Jitter
    limit: int = field(kw_only=True, default=100)
    per_company: int = field(kw_only=True, default=10)
    rate: float | None = field(kw_only=True, default=None)
    in_flight: int = field(init=False, default=0)
    gate: RetryAfterGate = field(init=False, factory=RetryAfterGate)
    window: AimdLimit = field(init=False)
    pace: RatePacer = field(init=False)
    _stagger: Stagger = field(init=False)
    _queue: FairQueue = field(init=False)
    _shut: dict[CompanyLimits, None] = field(init=False, factory=dict)
    """Shares whose gate has closed, in that order, in which they are offered a turn again."""
    _answered_at: float = field(init=False, default=0.0)
    _trust: int = field(init=False, default=0)
    _blame: TenantThrottleDetector = field(init=False, factory=TenantThrottleDetector)
    _served_late: int = field(init=False, default=0)
    _refused_late: int = field(init=False, default=0)
    _suspects: set[str] = field(init=False, factory=set)
    """Companies that were refused since the service's gate closed."""
    _accused: CompanyLimits | None = field(init=False, default=None)

    def __attrs_post_init__(self) -> None:
        first = max(FIRST_WINDOW, float(self.per_company))
        self.window = AimdLimit(self.limit, min(first, float(self.limit)))
        self.pace = RatePacer(self.rate)
        self._stagger = Stagger(self._jitter)
        self._queue = FairQueue(self.limit, self.per_company)

    @property
    def waiting(self) -> int:
        """Tickets in line."""
        return self._queue.waiting

    # Coming and going

    def enter(self, ticket: Ticket, now: float) -> bool:
        """Return True if *ticket* may send now; otherwise put it in line, see `ready`."""
        self._queue.number(ticket)
        share = self._queue.share_of(ticket)
        least = None if self._queue.waiting else self._least_admitted(now)
        is_admitted = least is not None and ticket.priority <= least
        if is_admitted and share.has_room(now, ticket.priority):
            self._go(ticket, share, now)
            return True
        self._queue.add(ticket)
        return False

    def ready(self, now: float) -> list[Ticket]:
        """Return the tickets whose turn it is now; they count as in flight from here on."""
        released: list[Ticket] = []
        self._offer_shut_shares(now)
        while self._queue.waiting and (least := self._least_admitted(now)) is not None:
            ticket = self._next(now, least)
            if ticket is None:
                break
            self._queue.remove(ticket)
            self._go(ticket, self._queue.share_of(ticket), now)
            released.append(ticket)
        return released

    def give_up(self, ticket: Ticket) -> None:
        """Take *ticket* out of the line."""
        self._queue.remove(ticket)

    def answered(self, ticket: Ticket, now: float) -> None:
        """Note that *ticket* got an answer that is no refusal."""
        share = self._queue.share_of(ticket)
        self._answered_at = now
        self._trust = min(MOST_TRUST, self._trust + 1)
        self._blame.answered(ticket.company)
        self.window.answered(self.in_flight)
        share.window.answered(share.in_flight)
        if not self.gate.is_open:
            self._served_while_closed(ticket, now)
        self.pace.answered(now)
        if share.gate.answered(ticket.sent_at):
            self._shut.pop(share, None)
            self._accused = None if share is self._accused else self._accused
        self._leave(share)

    def refused(self, ticket: Ticket, refusal: Refusal, now: float) -> None:
        """Note that *ticket* got a 429 or 503."""
        share = self._queue.share_of(ticket)
        alone = self._blame.refused(ticket.company) or share is self._accused
        if share is self._accused:
            self.pace.forget()
            self._accused = None
        if alone and refusal.company_only is None:
            refusal = evolve(refusal, company_only=True)
        if refusal.blames_crowd:
            self._shrink(share, refusal, ticket.sent_at, now)
        if not self._concerns_one(ticket, refusal):
            self._close(share, refusal, ticket.sent_at, now)
        self._leave(share)

    def unanswered(self, ticket: Ticket, now: float) -> None:
        """Note that *ticket* got no answer: a lost connection, a deadline, a cancellation."""
        share = self._queue.share_of(ticket)
        self.gate.unanswered(ticket.sent_at, now, self._jitter)
        share.gate.unanswered(ticket.sent_at, now, self._jitter)
        self._leave(share)

    def unused(self, ticket: Ticket, now: float) -> None:
        """Note that *ticket* had its turn but sent nothing."""
        share = self._queue.share_of(ticket)
        self.gate.unused(ticket.sent_at, now)
        share.gate.unused(ticket.sent_at, now)
        self._leave(share)

    # Looking ahead

    def next_wake(self, now: float) -> float | None:
        """Return when to call `ready` even if nothing is answered until then; None for never."""
        if not self._queue.waiting or not self.window.has_room(self.in_flight, urgent=True):
            return None
        if self._least_admitted(now) is None:
            opens_at = 0.0 if self.gate.is_open else self.gate.opens_at
            return max(opens_at, self.pace.next_at, self._stagger.next_at)
        return min((at for share in self._shut if (at := share.gate.opens_at) > now), default=None)

    def held_back(self) -> set[str]:
        """Return the companies that are refused for now, though others may not be.

        While the service's gate is closed, that may be each company that has been refused since:
        only calls of others can tell whether it is they or the service.
        """
        if not self.gate.is_open:
            return self._suspects
        return {str(share.company) for share in self._shut if not share.gate.is_open}

    @property
    def closed_until(self) -> float:
        """When the last of the closed gates opens; minus infinity if none is closed."""
        gates = (self.gate, *(share.gate for share in self._shut))
        return max((gate.opens_at for gate in gates if not gate.is_open), default=-math.inf)

    def closed_by(self, ticket: Ticket, *, until: float = 0.0) -> Response | None:
        """Return the answer that closed a gate for *ticket* beyond *until*; None if none did."""
        for gate in (self.gate, self._queue.share_of(ticket).gate):
            if gate.closed_by is not None and gate.opens_at > until:
                return gate.closed_by
        return None

    # What an answer teaches

    def _opened(self, now: float) -> None:
        """Tell a rate limit, which refuses all requests in flight, from a concurrency limit.

        A single refusal may have any cause; it only confirms a known rate.
        """
        enough = 1 if self.pace.is_learnt else 2
        limited = self._refused_late >= max(enough, self._served_late + 1)
        if limited:
            self.window.forgive()
        self.pace.opened(now, limited=limited)
        self._stagger.begin(self.window.places, now)

    def _served_while_closed(self, ticket: Ticket, now: float) -> None:
        """Open the service's gate if *ticket* was the probe, or shows that it is not the service.

        If one company alone was refused and others are served, before or after, it may be the
        only one that is limited. Then the closed gate becomes that company's. If its probe is
        refused, it was, and what the service's pace learnt from it is forgotten.
        """
        is_probe = ticket.sent_at > self.gate.closed_at
        is_other = len(self._suspects) == 1 and ticket.company not in self._suspects
        if is_other and (is_probe or (self._blame.is_proven and not self.gate.has_named_time)):
            self.gate.unused(ticket.sent_at, now)  # so that the company's probe may go
            self._accuse(*self._suspects)
            self._opened(now)
        elif self.gate.answered(ticket.sent_at):
            self._opened(now)
        else:
            self._served_late += 1

    def _accuse(self, company: str) -> None:
        share = self._queue.share(company)
        if share.gate.is_open:
            share.gate = self.gate
            self._shut[share] = None
            self._accused = share
        self.gate = RetryAfterGate()

    def _shrink(self, share: CompanyLimits, refusal: Refusal, sent_at: float, now: float) -> None:
        share.window.refused(share.in_flight, sent_at, now)
        if not refusal.company_only:
            self.window.refused(self.in_flight, sent_at, now)

    def _note_closing(self, now: float) -> None:
        self.pace.closed(now)
        self._stagger.left = 0
        self._served_late = self._refused_late = 0
        self._suspects.clear()

    def _concerns_one(self, ticket: Ticket, refusal: Refusal) -> bool:
        """Return whether the service serves others, and did not say how long to wait."""
        if refusal.floor is not None:
            return False
        if refusal.blames_crowd:  # and others were answered meanwhile: this was one too many
            return self._answered_at > ticket.sent_at
        return self._is_a_stumble()

    def _is_a_stumble(self) -> bool:
        """Whether recently more calls were served than got a 503; a single call cannot tell."""
        is_alone = self.in_flight + self.waiting == 1
        if is_alone or not self.gate.is_open or not self._trust:
            return False
        self._trust -= 1
        return True

    def _close(self, share: CompanyLimits, refusal: Refusal, sent_at: float, now: float) -> None:
        if refusal.company_only:
            self._forget_shut(now)
            self._shut[share] = None
            share.gate.refused(refusal, sent_at, now, self._jitter)
            self.gate.unused(sent_at, now)  # it says nothing about the service itself
            return
        if self.gate.is_open:
            self._note_closing(now)
        if share.company is not None:
            self._suspects.add(share.company)
        if sent_at <= self.pace.closed_at:  # a probe's refusal says nothing about the rate
            self._refused_late += refusal.blames_crowd
        if refusal.blames_crowd:  # many that wait lose more in a pause, and have probes to spare
            crowd = max(1, min(MOST_PROBES, self.waiting + self.in_flight))
            refusal = evolve(refusal, base=refusal.base / crowd)
        self.gate.refused(refusal, sent_at, now, self._jitter)

    def _forget_shut(self, now: float) -> None:
        """Open the gates of companies that nobody has asked about for a while."""
        for share in [one for one in self._shut if one.is_unused]:
            if now > share.gate.opens_at + FORGOTTEN_AFTER:
                share.gate = RetryAfterGate()
                self._shut.pop(share, None)

    # Turns

    def _least_admitted(self, now: float) -> Priority | None:
        """Return the least urgent priority that may go now, ignoring shares; None if none may."""
        free = self.gate.admits(now) and self.pace.admits(now) and self._stagger.admits(now)
        if not free or not self.window.has_room(self.in_flight, urgent=True):
            return None
        everybody = self.window.has_room(self.in_flight, urgent=False)
        return Priority.PREFETCH if everybody else Priority.INTERACTIVE

    def _next(self, now: float, least: Priority) -> Ticket | None:
        if self.gate.is_open:
            return self._queue.next(now, least)
        return self._queue.volunteer(now, self._suspects)

    def _go(self, ticket: Ticket, share: CompanyLimits, now: float) -> None:
        ticket.sent_at = now
        ticket.used += 1
        self.in_flight += 1
        share.in_flight += 1
        self.gate.passed(now)
        share.gate.passed(now)
        self.pace.passed(now)
        self._stagger.passed(now)

    def _leave(self, share: CompanyLimits) -> None:
        self.in_flight -= 1
        share.in_flight -= 1
        if self._queue.waiting:
            self._queue.offer(share)

    def _offer_shut_shares(self, now: float) -> None:
        for share in self._shut:
            if share.gate.admits(now):
                self._queue.offer(share)
