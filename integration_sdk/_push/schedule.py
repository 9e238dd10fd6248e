"""Whom to poll when: the rules, which `polling` obeys.

The chance that a push of age *a* ends in the next *d* seconds is taken as h * d / a: to take 1-2 s
is as likely as 1-2 hours. So the delays that *n* pushes of a company add up in *d* seconds are
n * h * d**2 / 2a, and they are worth a request once that is 1 + a / 2. A push alone is looked at
before it goes unnoticed for too long. How long pushes of a lane usually take (a median) only moves
the first look. From three pushes of a company on, its list is read; what the list lacks, and what
is old, is read singly. The floors and budgets of `PollLimits` bound all of this.
"""

from __future__ import annotations

from collections import OrderedDict, deque
from collections.abc import Callable, Sequence
from heapq import heappop, heappush
from math import inf, sqrt
from statistics import median
from typing import Final

from attrs import Factory, define, frozen

from integration_sdk._http.retry import pause
from integration_sdk._pacing import CellRate
from integration_sdk._store.row import folded
from integration_sdk.errors import IntegrationError
from integration_sdk.models import PushOperation, PushStatus

Seen = PushOperation | IntegrationError
Follower = Callable[[str, Seen], None]
"""Called with the key of a push, and its state or the error that ends its being followed."""
Lane = tuple[str | None, str | None]
NO_LANE: Final[Lane] = (None, None)
LEFT: Final = 1000
"""Pushes whose schedule is kept for who waits for them anew."""
HAZARD: Final = 0.31
"""Assumed: rate at which pushes end while their age grows e-fold."""
FIRST_SHARE: Final = 0.7
"""Share of the usual duration after which a push is first looked at."""
SLOWER_NOTIFIED: Final = 4.0
"""How many times longer the pauses are where ends are notified."""


@frozen(kw_only=True)
class PollLimits:
    """Every floor and budget of polling, in seconds where nothing else is said."""

    floor: float = 0.2  # between two single polls of a push: so long, ...
    floor_share: float = 0.05  # ... or this share of its age
    floor_notified: float = 1.0  # between two that notifications bring forward
    per_company: float = 3.0  # requests a second, and at once, for the pushes of a company
    share_of_rate: float = 0.5  # of the requests that the service allows
    at_once: int = 16  # companies that are polled at the same time
    list_from: int = 3  # pushes from which on a list is read instead, ...
    pages: int = 3  # ... and how many pages of it
    no_list: float = 600.0  # after which a refused list is tried again
    old: float = 600.0  # age from which on a push is read singly, ...
    old_share: float = 0.2  # ... when it has grown by this share
    newborn: float = 60.0  # for which a push that was acknowledged may be answered with 404
    after_deadline: float = 1.0  # for which a look waits after a push's own deadline
    before_end: float = 2.0  # by which a look precedes the end of a wait
    longest_pause: float = 64.0  # after polls that failed, if the service names none
    crashes: int = 3  # polls of a company in a row that may fail, until a bug gives its pushes up
    remembered: int = 4096  # final operations that are kept for later waits
    durations: int = 32  # of a lane, of which the median is taken


USUAL: Final = PollLimits()


def interval(age: float, count: int) -> float:
    """Return the seconds until the next look at *count* pushes of this age."""
    alone = 2 * max(min(0.37 + 0.1 * age, 1.0), 0.0425 * age)
    together = sqrt(2 * max(age, 0.05) * (1 + age / 2) / (HAZARD * count))
    return min(alone, together)


@define(eq=False, weakref_slot=False)
class OpenPush:
    """One open push.

    name: The key as keys are compared.
    number: How many pushes of the company were followed before it.
    born, seen: When it was first followed, and last known to be Pending.
    due: When to read it singly by the rule. looks: When it has to be looked at anyhow.
    polled, hurried: When it was last read singly, and last because of a notification.
    notified: Whether a notification came that no poll has disproved.
    unlisted: Whether lists lack it, or what is wanted of it.
    exists: Whether the service has answered with it.
    trouble: The error of the last poll of it or of its company's list; None if that saw it.
    """

    key: str
    name: str
    company: PolledCompany
    number: int
    lane: Lane
    born: float
    seen: float
    due: float
    looks: list[float] = Factory(list)
    polled: float = -inf
    hurried: float = -inf
    notified: bool = False
    unlisted: bool = False
    exists: bool = False
    wants_data: bool = False
    trouble: IntegrationError | None = None
    followers: tuple[Follower, ...] = ()


@define(eq=False)
class PolledCompany:
    """One company, and its open pushes by key, oldest first.

    due, listed: When to look at it, and when its list was last read.
    paused_until, unlisted_until: When it may be polled again, and its list be used again.
    failures: Polls in a row that have failed.
    """

    id: str
    pushes: dict[str, OpenPush] = Factory(dict)
    followed: int = 0
    due: float = inf
    listed: float = -inf
    busy: bool = False
    paused_until: float = -inf
    unlisted_until: float = -inf
    failures: int = 0
    spent: CellRate = Factory(lambda: CellRate(-inf))


@define(eq=False)
class Schedule:
    """When to look at which push, and at which company's list.

    chance: Returns a number from 0 to 1, for jitter.
    rate: Returns the requests per second that the service allows, if known.
    slower: Factor of all pauses.
    workers: Processes that poll for the same account; they share its budget.
    """

    limits: PollLimits
    chance: Callable[[], float]
    rate: Callable[[], float | None]
    slower: float
    workers: int = 1
    pushes: dict[str, OpenPush] = Factory(dict)
    _left: OrderedDict[str, OpenPush] = Factory(OrderedDict)
    _companies: dict[str, PolledCompany] = Factory(dict)
    _timers: list[tuple[float, int, PolledCompany]] = Factory(list)
    _timers_set: int = 0
    _durations: OrderedDict[Lane, deque[float]] = Factory(OrderedDict)
    _spent: CellRate = Factory(lambda: CellRate(-inf))

    def reset(self) -> list[OpenPush]:
        """Follow nothing any more; return what was followed."""
        followed = list(self.pushes.values())
        self.pushes, self._companies, self._timers = {}, {}, []
        self._left, self._spent = OrderedDict(), CellRate(-inf)
        return followed

    # Pushes

    def follow(
        self,
        company_id: str,
        key: str,
        now: float,
        operation: PushOperation | None = None,
        minutes: int | None = None,
    ) -> OpenPush:
        """Follow push *key*, of which *operation* was last seen; it times out after *minutes*."""
        name = folded(key)
        if (push := self.pushes.get(name)) is None:
            company = self._companies.get(company_id)
            if company is None:
                company = self._companies[company_id] = PolledCompany(company_id)
            push = self._left.pop(name, None)  # waited for anew: on it goes by its own schedule
            if push is None or push.company is not company:
                lane, due = NO_LANE, now
                if operation is not None:
                    lane = operation.data_connection_id, operation.data_type
                    due += max(self.limits.floor, self._usual(lane)) * self.slower
                push = OpenPush(key, name, company, company.followed, lane, now, now, due)
                company.followed += 1
                minutes = minutes or (operation.timeout_in_minutes if operation else None)
                if minutes is not None:
                    push.looks.append(now + minutes * 60.0 + self.limits.after_deadline)
            self.pushes[name] = company.pushes[name] = push
        push.exists |= operation is not None
        self.look_by(push.company, push.due)
        return push

    def forget(self, push: OpenPush, *, ends: bool = False) -> None:
        """Follow a push no longer; unless it *ends*, its schedule is kept for later waits."""
        company = push.company
        del self.pushes[push.name], company.pushes[push.name]
        if not company.pushes:  # the next to be followed may be tried at once
            company.failures, company.paused_until = 0, -inf
        if not ends:
            self._left[push.name] = push
            if len(self._left) > LEFT:
                self._left.popitem(last=False)

    def is_open(self, push: OpenPush) -> bool:
        return self.pushes.get(push.name) is push

    def look_before_end(self, push: OpenPush, wait: float, now: float) -> None:
        """Look at a push once more shortly before a wait of so many seconds ends."""
        # Short waits, one after the other, would get around the floors.
        if wait >= max(1.0, self.limits.floor_share * (now - push.born)):
            at = now + wait - min(self.limits.before_end, wait / 4)
            push.looks = sorted((*push.looks, at))
            self.look_by(push.company, at)

    def _usual(self, lane: Lane) -> float:
        durations = self._durations.get(lane)
        return FIRST_SHARE * median(durations) if durations and len(durations) > 7 else 0.0

    def ended(self, push: OpenPush, at: float) -> None:
        """Learn from a push that has ended by *at*."""
        durations = self._durations.setdefault(push.lane, deque(maxlen=self.limits.durations))
        durations.append(max(0.0, (push.seen + at) / 2 - push.born))
        if len(self._durations) > 1000:
            self._durations.popitem(last=False)

    def still_pending(self, push: OpenPush, at: float) -> None:
        """Plan the next look at a push that was Pending at *at*."""
        push.seen = max(push.seen, at)
        push.looks = [look for look in push.looks if look > at] if push.looks else push.looks
        age, limits = push.seen - push.born, self.limits
        wait = limits.old_share * age if age >= limits.old else interval(age, 1)
        wait = max(wait, self._usual(push.lane) - age) * (0.9 + 0.2 * self.chance())
        push.due = push.seen + wait * self.slower * self.workers

    def next_at(self, push: OpenPush) -> float:
        """Return when to read a push singly; no rule gets around the floors."""
        limits = self.limits
        if push.notified:
            return max(push.polled + limits.floor, push.hurried + limits.floor_notified)
        floor = max(limits.floor, limits.floor_share * (push.polled - push.born))
        at = max(push.due, push.polled + floor)
        # Shortly before a look that has to be, no other is made.
        if push.looks and push.looks[0] < at + floor + limits.floor:
            return max(push.looks[0], push.polled + limits.floor)
        return at

    # Companies

    def look_by(self, company: PolledCompany, at: float) -> None:
        """Look at a company then, or earlier."""
        if at < company.due:
            company.due = at
            self._timers_set += 1
            heappush(self._timers, (at, self._timers_set, company))

    def pop_due(self, now: float) -> PolledCompany | float:
        """Return a company that has to be looked at, or when one has to be."""
        timers = self._timers
        while timers and timers[0][2].due != timers[0][0]:
            heappop(timers)  # the company has another time by now
        if not timers:
            return inf
        at = timers[0][0] if timers[0][0] > now else now + self._wait_for_rate(now)
        if at > now:
            return at
        company = heappop(timers)[2]
        company.due = inf
        return company

    def due(self, company: PolledCompany, now: float) -> tuple[list[OpenPush], list[OpenPush]]:
        """Return the pushes for which to read the list, and those to read singly after that."""
        together, singly = self._split(company, now)
        due = [one for one in singly if self.next_at(one) <= now]
        listed = [one for one in due if not one.unlisted]
        if together and now >= self._list_at(company, together):
            listed += together
        elif len(listed) < self.limits.list_from or now < company.unlisted_until:
            listed = []
        return listed, sorted(due, key=lambda one: (not one.notified, one.due))

    def plan(self, company: PolledCompany, now: float) -> None:
        """Set when to look at a company next."""
        together, singly = self._split(company, now)
        times = [self.next_at(one) for one in singly]
        if together:
            times += [one.looks[0] for one in together if one.looks]
            times.append(self._list_at(company, together))
        if times:
            self.look_by(company, max(min(times), now + 0.02, self.earliest(company, now)))

    def _split(self, company: PolledCompany, now: float) -> tuple[list[OpenPush], list[OpenPush]]:
        """Return the pushes that are looked at together, by a list, and the others."""
        together, singly = list[OpenPush](), list[OpenPush]()
        for one in company.pushes.values():
            by_list = not (one.unlisted or one.notified) and one.born > now - self.limits.old
            has_to = one.looks and one.looks[0] <= now
            (together if by_list and not has_to else singly).append(one)
        if len(together) < self.limits.list_from or now < company.unlisted_until:
            return [], singly + together
        return together, singly

    def _list_at(self, company: PolledCompany, together: Sequence[OpenPush]) -> float:
        oldest, some = together[0], together[-(len(together) // 4) - 1]
        since = max(company.listed, some.born)
        wait = interval(since - some.born, min(len(together), 1000)) * self.slower * self.workers
        left = self._usual(oldest.lane) - (since - oldest.born)
        return since + max(wait, left, 1.0 / self.limits.per_company)

    # Budgets

    @property
    def _share(self) -> float:
        """Of a company's requests a second, what is this worker's."""
        return self.limits.per_company / self.workers

    def earliest(self, company: PolledCompany, now: float) -> float:
        """Return when the budgets, and what has failed, allow a request for a company."""
        share = self._share
        wait = company.spent.wait(now, interval=1 / share, burst=share)
        return max(company.paused_until, now + max(wait, self._wait_for_rate(now)))

    def _wait_for_rate(self, now: float) -> float:
        if not (rate := self.rate()):
            return 0.0
        return self._spent.wait(now, interval=1 / (rate * self.limits.share_of_rate))

    def spend(self, company: PolledCompany, now: float) -> None:
        share = self._share
        company.spent.reserve(1, now, interval=1 / share, burst=share)
        if rate := self.rate():
            self._spent.reserve(1, now, interval=1 / (rate * self.limits.share_of_rate))

    def pause(self, company: PolledCompany, began: float, now: float, wait: float = 0.0) -> None:
        """Poll a company later, since a poll that *began* then has failed."""
        if began >= company.paused_until:  # else it is one of several that failed at once
            company.failures += 1
        company.paused_until = now + pause(
            max(0, company.failures - 1),
            first=1.0,
            cap=self.limits.longest_pause,
            jitter=lambda limit: limit * (0.5 + 0.5 * self.chance()),
            floor=wait,
        )


def says_too_little(push: OpenPush, operation: PushOperation) -> bool:
    """Whether a listed push lacks data that is wanted, or the reasons of its failure."""
    if operation.error_message is not None:  # that is the reason, or its data cannot be read
        return False
    if operation.status is PushStatus.SUCCESS:
        return push.wants_data and operation.data is None
    return operation.status is PushStatus.FAILED and operation.validation is None
