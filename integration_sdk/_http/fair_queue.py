"""Decides whose turn it is among the waiting tickets.

Each company has a share of the service. Within a priority the shares take turns in a ring; within
a share the oldest ticket goes first, even if it had to be sent several times.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Collection, Iterator
from heapq import heappop, heappush
from typing import Final

from attrs import Factory, define, field

from integration_sdk._http.gate import RetryAfterGate
from integration_sdk._http.requests import Priority
from integration_sdk._http.window import AimdLimit

FAIR_TURN: Final = 8
"""One turn in this many goes to the least urgent, so that nobody waits for ever."""
PRIORITIES: Final = tuple(Priority)
MOST_IDLE_SHARES: Final = 1024
"""Idle shares beyond this number are dropped, with what they have learnt."""


@define(eq=False)
class Ticket:
    """One call's claim to a turn.

    Attributes:
        company: Whose share it counts against; None for requests that concern no company.
        priority: Lower goes sooner.
        deadline: When the call gives up, on the caller's clock.
        order: Its place in the line, kept over repetitions; 0 until it has one.
        used: How many turns it had.
        sent_at: When its last turn began.
        waiting: Whether it is in line.
    """

    company: str | None
    priority: Priority
    deadline: float
    order: int = 0
    used: int = 0
    sent_at: float = 0.0
    waiting: bool = False

    def __lt__(self, other: Ticket) -> bool:
        return self.order < other.order


@define(eq=False)
class CompanyLimits:
    """One company's share: its gate, its window, and its waiting tickets by priority."""

    company: str | None
    window: AimdLimit
    gate: RetryAfterGate = Factory(RetryAfterGate)
    in_flight: int = 0
    lines: tuple[list[Ticket], ...] = Factory(lambda: tuple([] for _ in Priority))

    def has_room(self, now: float, priority: Priority) -> bool:
        """Return whether one more request may go."""
        urgent = priority is Priority.INTERACTIVE
        return self.window.has_room(self.in_flight, urgent=urgent) and self.gate.admits(now)

    def first(self, priority: int) -> Ticket | None:
        """Return the first ticket in line or, for a probe, the one with the fewest turns.

        Tickets that have left the line are dropped.
        """
        line = self.lines[priority]
        while line and not line[0].waiting:
            heappop(line)
        if self.gate.is_open or not line:
            return line[0] if line else None
        return min((one for one in line if one.waiting), key=lambda one: (one.used, one.order))

    @property
    def is_unused(self) -> bool:
        """Whether nobody is in flight or in line."""
        return not self.in_flight and not any(self.lines)

    def tidy(self) -> None:
        """Drop the tickets that have left the line."""
        for line in filter(None, self.lines):
            line[:] = sorted(ticket for ticket in line if ticket.waiting)  # a heap, too


@define
class FairQueue:
    """All shares, and the rings in which those with waiting tickets take turns.

    Args:
        limit: Maximum requests in flight that concern no company.
        per_company: The same for each company.

    Attributes:
        waiting: Tickets in line.
    """

    limit: int
    per_company: int
    waiting: int = field(init=False, default=0)
    _shares: dict[str | None, CompanyLimits] = field(init=False, factory=dict)
    _rings: tuple[OrderedDict[CompanyLimits, None], ...] = field(
        init=False, factory=lambda: tuple(OrderedDict() for _ in Priority)
    )
    _most: int = field(init=False, default=MOST_IDLE_SHARES)
    _added: int = field(init=False, default=0)
    _orders: int = field(init=False, default=0)
    _turns_taken: int = field(init=False, default=0)

    def share_of(self, ticket: Ticket) -> CompanyLimits:
        """Return the share of *ticket*."""
        return self.share(ticket.company)

    def share(self, company: str | None) -> CompanyLimits:
        """Return the share of *company*."""
        share = self._shares.get(company)
        return self._make(company) if share is None else share

    def _make(self, company: str | None) -> CompanyLimits:
        if len(self._shares) >= self._most:
            self._tidy()
            shares = self._shares.items()
            self._shares = {
                key: share for key, share in shares if not (share.is_unused and share.gate.is_open)
            }
            self._most = MOST_IDLE_SHARES + 2 * len(self._shares)
        most = self.limit if company is None else min(self.per_company, self.limit)
        self._shares[company] = share = CompanyLimits(company, AimdLimit(most, float(most)))
        return share

    def number(self, ticket: Ticket) -> None:
        """Give *ticket* its place in the line, unless it has one."""
        if not ticket.order:
            self._orders += 1
            ticket.order = self._orders

    def add(self, ticket: Ticket) -> None:
        """Put *ticket* in line."""
        self._added += 1
        if self._added > MOST_IDLE_SHARES + 2 * (self.waiting + len(self._shares)):
            self._tidy()
        share = self.share_of(ticket)
        ticket.waiting = True
        self.waiting += 1
        heappush(share.lines[ticket.priority], ticket)
        self._rings[ticket.priority].setdefault(share)

    def _tidy(self) -> None:
        """Drop what tickets have left behind that gave up while nobody could go."""
        self._added = 0
        for share in self._shares.values():
            share.tidy()
        for ring in self._rings:
            for share in [share for share in ring if not any(share.lines)]:
                del ring[share]

    def remove(self, ticket: Ticket) -> None:
        """Take *ticket* out of the line, if it is in it."""
        if ticket.waiting:
            ticket.waiting = False
            self.waiting -= 1

    def offer(self, share: CompanyLimits) -> None:
        """Let *share* take part in the turns: it may have room again."""
        for priority in PRIORITIES:
            if share.lines[priority]:
                self._rings[priority].setdefault(share)

    def next(self, now: float, least: Priority) -> Ticket | None:
        """Return the next ticket, down to priority *least*; None if no share has room."""
        eligible = PRIORITIES[: least + 1]
        last_first = self._turns_taken % FAIR_TURN == FAIR_TURN - 1
        for priority in reversed(eligible) if last_first else eligible:
            ticket = self._first_of_ring(priority, now)
            if ticket is not None:
                self._turns_taken += 1  # not turns that nobody used, so no fair one is lost
                return ticket
        return None

    def _first_of_ring(self, priority: Priority, now: float) -> Ticket | None:
        ring = self._rings[priority]
        while ring:
            share, _ = ring.popitem(last=False)  # `offer` puts back a share without room
            if share.has_room(now, priority) and (ticket := share.first(priority)) is not None:
                ring[share] = None
                return ticket
        return None

    def volunteer(self, now: float, refused: Collection[str | None]) -> Ticket | None:
        """Return the ticket that probes; of none *refused* if possible, since it may be they.

        Among the candidates it is the one with the fewest turns, so that no call uses up its own.
        """
        return min(
            self._candidates(now),
            key=lambda one: (one.company in refused, one.used, one.priority, one.order),
            default=None,
        )

    def _candidates(self, now: float) -> Iterator[Ticket]:
        for share in self._shares.values():
            for priority, line in enumerate(share.lines):
                if line and share.has_room(now, Priority(priority)):
                    yield from (ticket for ticket in line if ticket.waiting)
