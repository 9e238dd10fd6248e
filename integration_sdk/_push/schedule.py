"""Whom to poll now, singly or by list, and when to poll again.

A poll costs a request; not polling delays those who wait for pushes that have ended unnoticed.
So the rule for each company is: **poll once the accumulated delay is worth a request**, singly or
by list, whichever is cheaper. `completion_times` says how likely a push has ended, `worth` what
that is worth; this module decides what to poll when, and what an answer changes::

    rounds         one per company: poll its batched pushes, or say when to look again
    single times   one per push that rounds do not follow: what should have ended long ago,
                   what a list does not show, and all of a company that has no list

Single polls of a push become rarer with its age, so that a thousand stuck pushes do not slow down
others. Companies with something due take turns. A list is not used while it is refused, lacks
pushes, or shows outdated states; until it has shown an end in time, a push is now and then read
singly as a check. Polls wait for notifications, if there are any, for a time that depends on
`Schedule.trust`.

`Schedule.due` returns polls, each to be answered with exactly one of `finish`, `failed`,
`not_shown` and `unlistable`. Time is an argument, in seconds of any monotonic clock.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Hashable, Sequence
from heapq import heappop, heappush
from itertools import islice
from math import inf
from typing import Final

from attrs import Factory, define

from integration_sdk._http.requests import LARGEST_PAGE
from integration_sdk._http.retry import pause
from integration_sdk._push import worth
from integration_sdk._push.completion_times import Experience
from integration_sdk._push.open_pushes import (
    ListPoll,
    OpenPush,
    Poll,
    PolledCompany,
    Row,
    SinglePoll,
    sample,
)
from integration_sdk._push.worth import (
    ROWS_PER_REQUEST,
    ListCheck,
    after_end,
    notification_wait_ends,
)

LONGEST_PAUSE: Final = 64.0
"""Seconds of the longest pause after polls that failed, if the service names none."""
LONGEST_IN_ROUNDS: Final = 600.0
"""Age in seconds at which a push leaves the rounds if the usual age is not known."""
REMEMBERED: Final = 4096
"""Pushes of which is remembered when they were polled, in case they are followed again."""
NO_LIST: Final = 600.0
"""Seconds after which a refused list is tried again."""


@define
class TimerQueue:
    """Companies and pushes, ordered by the time that each has in its ``due``.

    Each has at most one; entries that name another are outdated and skipped.
    """

    _heap: list[tuple[float, int, PolledCompany | OpenPush]] = Factory(list)
    _entries: int = 0

    def set(self, target: PolledCompany | OpenPush, at: float) -> None:
        """Give *target* this time, in place of an earlier one."""
        target.due = at
        self._entries += 1
        if at != inf:
            heappush(self._heap, (at, self._entries, target))

    def next_at(self) -> float:
        """Return the next time; infinite for none."""
        heap = self._heap
        while heap and heap[0][2].due != heap[0][0]:
            heappop(heap)
        return heap[0][0] if heap else inf

    def pop_due(self, now: float) -> list[PolledCompany | OpenPush]:
        """Remove and return those whose time has come."""
        due = []
        while self.next_at() <= now:
            _, _, target = heappop(self._heap)
            target.due = inf
            due.append(target)
        return due


@define
class Schedule:
    """All open pushes, and when to poll them.

    Args:
        chance: Returns a number from 0 to 1, for jitter.
        trust: How reliably ends are notified, from 0 to 1; updated as pushes end.

    Attributes:
        pushes: The open pushes by key.
        page_cap: Maximum rows that the service returns per page.
    """

    chance: Callable[[], float]
    trust: float = 0.0
    pushes: dict[str, OpenPush] = Factory(dict)
    page_cap: int = LARGEST_PAGE
    _companies: dict[str, PolledCompany] = Factory(dict)
    _experience: Experience = Factory(Experience)
    _timers: TimerQueue = Factory(TimerQueue)
    _ready: OrderedDict[PolledCompany, None] = Factory(OrderedDict)
    _lists: ListCheck = Factory(ListCheck)
    _left: OrderedDict[str, tuple[float, float, float, float]] = Factory(OrderedDict)

    # What is open

    def follow(self, key: str, company_id: str, cohort: Hashable, now: float) -> OpenPush:
        """Follow push *key* from now on."""
        company = self._companies.get(company_id)
        if company is None:
            company = self._companies[company_id] = PolledCompany(company_id)
        times = self._experience.of(cohort)
        push = OpenPush(key, company, times, company.followed, now, now)
        if before := self._left.pop(key, None):
            push.born, push.seen, push.polled, push.hurried = before
        company.followed += 1
        self.pushes[key] = company.batched[key] = push
        times.count_open(1)
        if company.list_after > now:
            self._set_time(push, now)
        elif not company.in_flight:
            first = now + max(0.05, times.early)
            if company.due > first + 0.05:
                self._timers.set(company, first)
        return push

    def forget(self, key: str) -> None:
        """Stop following push *key*."""
        push = self.pushes.pop(key, None)
        if push is None:
            return
        self._left[key] = push.born, push.seen, push.polled, push.hurried
        if len(self._left) > REMEMBERED:
            self._left.popitem(last=False)
        company = push.company
        push.due = inf
        if not push.is_individual:
            push.times.count_open(-1)
        for place in (company.batched, company.individual, company.wanted, company.urgent):
            place.pop(key, None)
        if not company.count and self._companies.get(company.id) is company:
            company.due, company.trouble = inf, None
            if company.list_after == company.paid_until == -inf:  # else remember them
                del self._companies[company.id]
        if not self.pushes:
            self._timers = TimerQueue()  # its outdated entries hold the last ones

    def notify(self, key: str) -> bool:
        """Poll push *key* now, after a notification; return False if it is not followed."""
        push = self.pushes.get(key)
        if push is None:
            return False
        push.notified = push.hurry = True
        self._read_now(push)
        return True

    def poll_before_expiry(self, key: str, now: float) -> None:
        """Poll push *key* now if a notification is awaited: a wait for it soon ends."""
        push = self.pushes.get(key)
        if push is not None and now < notification_wait_ends(push, self.trust):
            self._want(push)

    def single_out(self, push: OpenPush) -> None:
        """Read *push* singly, now and from now on, because its list says too little."""
        push.read_singly = True
        self._read_now(push)

    def _read_now(self, push: OpenPush) -> None:
        if self.is_open(push):
            push.company.urgent[push.key] = push  # a poll in progress may be too early
            self._enqueue(push.company)

    def is_open(self, push: OpenPush) -> bool:
        """Return whether *push* is open still; its key may be followed anew since."""
        return self.pushes.get(push.key) is push

    def ended(self, push: OpenPush, now: float, took: float | None = None) -> None:
        """Note that *push* is final and *took* this many seconds, if the service says so."""
        age = took if took is not None else (push.seen + now) / 2 - push.born
        company = push.company
        listable = company.list_after <= now
        if took is not None and listable and self._lists.proves_late(push, took):
            self._do_without_list(company, now)
        push.times.ended(age)
        self.trust = after_end(self.trust, notified=push.notified)
        self.forget(push.key)

    # When, and whom

    def wake_at(self) -> float:
        """Return when to call `due` again; infinite for never."""
        return -inf if self._ready else self._timers.next_at()

    def due(self, now: float, room: int) -> list[Poll]:
        """Return what to poll now, up to about *room* requests; each must be answered."""
        for target in self._timers.pop_due(now):
            if isinstance(target, PolledCompany):
                self._enqueue(target)
            elif not self.is_open(target):
                continue
            elif worth.still_due(target, now, self.trust):
                self._want(target)
            else:
                self._set_time(target, now)
        polls: list[Poll] = []
        while self._ready and len(polls) < room:
            company, _ = self._ready.popitem(last=False)
            polls.extend(self._choose(company, now))
        return polls

    def _want(self, push: OpenPush) -> None:
        if not push.being_read:
            company = push.company
            among = company.urgent if push.read_singly or push.notified else company.wanted
            among[push.key] = push
            self._enqueue(company)

    def _set_time(self, push: OpenPush, now: float) -> None:
        """Decide when to poll *push* by itself: together with others, so that one list serves."""
        at, company = worth.next_poll(push, now, self.trust), push.company
        if not at <= company.shared_time <= at + 0.03 * (at - now):
            company.shared_time = at + self.chance() * 0.05 * (at - now)
        self._timers.set(push, company.shared_time)

    def _enqueue(self, company: PolledCompany) -> None:
        self._ready[company] = None

    def _choose(self, company: PolledCompany, now: float) -> list[Poll]:
        if now < (earliest := worth.earliest(company)):  # below all that decides what is due
            self._timers.set(company, earliest)
            return []
        at = inf if company.in_flight else worth.round_due(company, now, self.trust)
        due, polls = at <= now + worth.SOON, list[Poll]()
        if not company.listing:
            if len(company.urgent) > worth.PER_COMPANY and company.list_after <= now:
                self._prefer_list(company)
            polls += self._list_poll(company, now, due=due)
        polls += self._single_polls(company, company.urgent, now)
        if not company.listing:
            polls += self._single_polls(company, company.wanted, now)
            self._look_again(company, now, inf if due else at)
        return polls

    def _look_again(self, company: PolledCompany, now: float, at: float) -> None:
        """Set when to look at *company* again: *at*, or when a push that waits may be read."""
        if company.in_flight or company.list_after > now:
            at = inf
        waiting = (*company.urgent.values(), *company.wanted.values())
        at = min([at, *(worth.earliest_single(one) for one in waiting if not one.being_read)])
        if at < inf:
            self._timers.set(company, max(at, now + worth.SOON))

    def _prefer_list(self, company: PolledCompany) -> None:
        """Have the list show what was notified, if that is more than may be read singly now."""
        for push in [one for one in company.urgent.values() if not one.read_singly]:
            company.wanted[push.key] = company.urgent.pop(push.key)

    def _list_poll(self, company: PolledCompany, now: float, *, due: bool) -> list[Poll]:
        if company.list_after > now or not (due or company.wanted):
            return []
        poll = worth.cheaper_list(company, now, due=due, largest_page=self.page_cap)
        if poll is not None:
            company.in_flight += 1
            company.listing = True
            worth.pay(company, now)
            for push in company.wanted.values():
                push.hurry = False
            return [poll]
        if due:
            company.wanted.update((push.key, push) for push in worth.likely(company, now))
        return []

    def _single_polls(
        self, company: PolledCompany, whom: dict[str, OpenPush], now: float
    ) -> list[Poll]:
        polls: list[Poll] = []
        may_be_read = (
            push
            for push in whom.values()
            if not push.being_read and worth.earliest_single(push) <= now
        )
        for push in list(islice(may_be_read, worth.PER_COMPANY)):
            if now < worth.earliest(company):
                break
            worth.pay(company, now)
            del whom[push.key]
            push.polled = now
            if push.hurry:
                push.hurry, push.hurried = False, now
            push.being_read = True
            company.in_flight += 1
            push.due = inf
            polls.append(SinglePoll(company, push, now))
        return polls

    # Answers

    def listed(
        self, poll: ListPoll, rows: Sequence[Row], *, more: bool, returned_size: int = 0
    ) -> tuple[list[tuple[OpenPush, int]], bool]:
        """Process a page of the list.

        Args:
            poll: The one that requested it.
            rows: Its rows, newest first.
            more: Whether there is a next page.
            returned_size: The page size reported by the service; 0 if it reports none.

        Returns:
            Pushes that are no longer Pending, each with its row index; and whether to read the
            next page, to which *poll* has been advanced.
        """
        news: list[tuple[OpenPush, int]] = []
        started, company, pushes = poll.started, poll.company, self.pushes
        for index, row in enumerate(rows):
            push = pushes.get(row.key)
            if push is None or push.company is not company:
                continue
            is_news = row.status != "Pending"
            if is_news:
                news.append((push, index))
            if push.seen < started:
                push.read_singly = False
                poll.unseen -= poll.covers_all or not push.is_individual
                if not is_news:
                    push.seen = started
        poll.rows += len(rows)
        if more and poll.page == 1 and 0 < returned_size < poll.page_size:
            self.page_cap = poll.page_size = returned_size
        poll.page += 1
        if poll.page > 2:  # the first was paid for when the poll began
            worth.pay(company, started)
        return news, more and bool(rows) and poll.unseen > 0 and poll.rows < poll.enough

    def finish(self, poll: Poll, now: float) -> None:
        """End *poll*, and schedule the next poll of the pushes that are still open."""
        self._returned(poll, now)
        poll.company.failures = 0
        if isinstance(poll, SinglePoll):
            poll.push.seen = max(poll.push.seen, poll.started)
            poll.push.notified &= poll.push.key in poll.company.urgent
            self._again(poll.push, now)
        else:
            self._after_listing(poll, now)
        self._next_round(poll.company, now)

    def _upper_half(self, limit: float) -> float:
        return limit * (0.5 + 0.5 * self.chance())

    def failed(self, poll: Poll, now: float, *, wait: float = 0.0) -> None:
        """End *poll*, which had no answer; *wait* is how long the service asked to wait."""
        self._returned(poll, now)
        company = poll.company
        company.failures += 1
        number = company.failures - 1
        at = now + pause(number, first=1.0, cap=LONGEST_PAUSE, jitter=self._upper_half, floor=wait)
        if isinstance(poll, SinglePoll) and self.is_open(poll.push):
            self._timers.set(poll.push, at)
        for push in self._take_wanted(company):
            self._timers.set(push, at)
        if not company.in_flight and company.count and company.list_after <= now:
            self._timers.set(company, at)
        if not company.count:  # its last push was forgotten meanwhile
            company.trouble = None

    def not_shown(self, poll: SinglePoll, now: float) -> None:
        """End *poll*: the service does not show its push yet, because its reads lag behind.

        That is no trouble of the company's, so nothing else is delayed.
        """
        self._returned(poll, now)
        poll.company.failures = 0
        if self.is_open(poll.push):
            self._follow_individually(poll.push, now)  # rounds would find it overdue at once
            self._timers.set(poll.push, worth.ask_again(poll.push, now, self.chance()))
        self._next_round(poll.company, now)

    def unlistable(self, poll: ListPoll, now: float) -> None:
        """End *poll*: the list was refused, so read the company's pushes singly for a while."""
        self._returned(poll, now)
        self._do_without_list(poll.company, now)

    def _do_without_list(self, company: PolledCompany, now: float) -> None:
        company.list_after = now + NO_LIST
        for push in company.batched.values():
            self._set_time(push, now)
        for push in self._take_wanted(company):
            self._timers.set(push, now)

    def _take_wanted(self, company: PolledCompany) -> list[OpenPush]:
        """Remove and return the pushes that are due but deferred."""
        wanted = list(company.wanted.values())
        company.wanted.clear()
        return wanted

    def _returned(self, poll: Poll, now: float) -> None:
        poll.company.in_flight -= 1
        if isinstance(poll, SinglePoll):
            if poll.push.hurried == poll.started:
                poll.push.hurried = now
            poll.push.polled = now  # it may have waited for its turn until now
            poll.push.being_read = False
        else:
            poll.company.listing = False
        if poll.company.urgent or poll.company.wanted:
            self._enqueue(poll.company)

    def _again(self, push: OpenPush, now: float) -> None:
        individual = push.is_individual or push.company.list_after > now
        if individual and self.is_open(push):
            self._set_time(push, now)

    def _next_round(self, company: PolledCompany, now: float) -> None:
        company.price = 0.85 + 0.3 * self.chance()
        if not company.in_flight and company.count and company.list_after <= now:
            self._timers.set(company, now)

    # After a list

    def _after_listing(self, poll: ListPoll, now: float) -> None:
        company = poll.company
        if poll.unseen > 0:
            self._single_out_missing(poll, now)
        elif poll.reach >= ROWS_PER_REQUEST / 10:
            rows_per_push = max(1.0, poll.rows / poll.reach)
            company.rows_per_push += 0.3 * (rows_per_push - company.rows_per_push)
        self._leave_rounds(company, now)
        if company.batched:
            some = sample(company.batched)
            probed, _ = some[int(self.chance() * len(some))]
            if self._lists.wants(probed, now):
                self._read_now(probed)
            for push, _ in some:
                push.times.pending(push.seen - push.born)
        for push in list(company.wanted.values()):
            if push.seen >= poll.started and not push.hurry:
                del company.wanted[push.key]
                self._again(push, now)

    def _single_out_missing(self, poll: ListPoll, now: float) -> None:
        """Read singly the pushes that the list does not show, for now or at all."""
        company = poll.company
        others = company.individual.values() if poll.covers_all else ()
        for push in [*company.batched.values(), *others]:
            if push.seen < poll.started and push.born <= poll.started:
                push.read_singly = True
                self._follow_individually(push, now)
                if company.wanted.pop(push.key, None):  # else the list would be read for it again
                    self._read_now(push)

    def _leave_rounds(self, company: PolledCompany, now: float) -> None:
        """Follow by itself what should have ended long ago, or is too deep in the list."""
        while company.batched:
            push = next(iter(company.batched.values()))
            limit = min(LONGEST_IN_ROUNDS, 5.0 + 2 * push.times.usual)
            deep = company.depth(push) > ROWS_PER_REQUEST * company.count
            if now - push.born < limit and not deep:
                return
            self._follow_individually(push, now)

    def _follow_individually(self, push: OpenPush, now: float) -> None:
        if not push.is_individual:
            push.company.individual[push.key] = push.company.batched.pop(push.key)
            push.times.count_open(-1)
            self._set_time(push, now)
