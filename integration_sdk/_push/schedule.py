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
from itertools import count
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
HAZARD: Final = 0.31
"""Assumed: rate at which pushes end while their age grows e-fold."""
FIRST_SHARE: Final = 0.7
"""Share of the usual duration after which a push is first looked at."""


@frozen(kw_only=True)
class PollLimits:
    """Every floor and budget of polling, in seconds where nothing else is said."""

    floor: float = 0.2  # between two single polls of a push: so long, ...
    floor_share: float = 0.05  # ... or this share of its age
    floor_notified: float = 1.0  # after one that a notification or a wait's end brought forward
    slower_notified: float = 4.0  # factor of all pauses where ends are notified
    per_company: float = 3.0  # requests a second, and at once, for the pushes of a company
    share_of_rate: float = 0.5  # of the requests that the service allows
    at_once: int = 16  # companies that are polled at the same time
    list_from: int = 3  # pushes from which on a list is read instead, ...
    pages: int = 3  # ... and how many pages of it
    crowd: int = 1000  # pushes from which on more do not make a list be read more often
    no_list: float = 60.0  # after which a list that was refused is tried again
    old: float = 600.0  # age from which on a push is read singly
    newborn: float = 60.0  # for which a push that was acknowledged may be answered with 404
    after_deadline: float = 1.0  # for which a look waits after a push's own deadline
    before_end: float = 2.0  # by which a look precedes the end of a wait
    longest_pause: float = 64.0  # after polls that failed, if the service names none
    crashes: int = 3  # polls of a company in a row that may fail before a bug ends the loop
    remembered: int = 4096  # pushes that are kept for later waits, and lanes
    durations: int = 32  # of a lane, of which the median is taken


@define(eq=False, weakref_slot=False)
class Lane:
    """How long pushes of a connection and data type took; *first_look*: the age to wait for."""

    durations: deque[float] = Factory(deque)
    first_look: float = 0.0


@define(eq=False, weakref_slot=False)
class OpenPush:
    """A push that is followed, or was until lately.

    number: How many pushes of the company were followed before it.
    born, seen: When it was first followed, and last known to be Pending.
    due: When to read it singly, by the rule. looks: When it has to be looked at anyhow, sorted.
    polled, hurried: When it was last read singly, and last for the sake of a look.
    unlisted: Whether lists lack it, or what is wanted of it.
    operation: Its last state, if the service has answered with it.
    trouble: The error of the last poll of it or of its company's list; None if that saw it.
    followers: Who is told of it; nobody once it has ended.
    """

    key: str
    company: PolledCompany
    number: int
    born: float
    seen: float
    due: float
    lane: Lane = Factory(Lane)
    looks: list[float] = Factory(list)
    polled: float = -inf
    hurried: float = -inf
    unlisted: bool = False
    wants_data: bool = False
    operation: PushOperation | None = None
    trouble: IntegrationError | None = None
    followers: tuple[Follower, ...] = ()

    @property
    def end(self) -> PushOperation | None:
        """Its final state, once that has been seen."""
        return self.operation if self.operation and self.operation.is_final else None


@define(eq=False)
class PolledCompany:
    """One company, and its open pushes by key, oldest first.

    due: When to look at it; -inf while that is done. listed: When its list was last read.
    unlisted_until: When its list may be used again.
    failures: Polls in a row that have failed.
    """

    id: str
    pushes: dict[str, OpenPush] = Factory(dict)
    followed: int = 0
    due: float = inf
    listed: float = -inf
    unlisted_until: float = -inf
    failures: int = 0
    spent: CellRate = Factory(lambda: CellRate(-inf, -inf))


@frozen(eq=False)
class Look:
    """The next look at a company: at its list for the sake of *pushes*, or at a single push."""

    at: float
    company: PolledCompany
    pushes: Sequence[OpenPush]
    by_list: bool


def interval(age: float, count: int) -> float:
    """Return the seconds until the next look at *count* pushes of this age."""
    alone = max(min(0.2 + 0.5 * age, 2.0), 0.09 * age)
    together = sqrt(2 * max(age, 0.05) * (1 + age / 2) / (HAZARD * count))
    return min(alone, together)


@define(eq=False)
class Schedule:
    """When to look at which push, and at which company's list.

    chance: Returns a number from 0 to 1, for the jitter of pauses.
    rate: Returns the requests per second that the service allows, if known.
    notified: Whether ends are notified, so that polls can wait for that.
    workers: Processes that poll for the same account; they share its budget.
    pushes: What is followed, by key. left: What no longer is, the latest last.
    """

    chance: Callable[[], float]
    rate: Callable[[], float | None]
    notified: bool
    limits: PollLimits = PollLimits()
    workers: int = 1
    pushes: dict[str, OpenPush] = Factory(dict)
    left: OrderedDict[str, OpenPush] = Factory(OrderedDict)
    _companies: dict[str, PolledCompany] = Factory(dict)
    _lanes: OrderedDict[tuple[str | None, str | None], Lane] = Factory(OrderedDict)
    _timers: list[tuple[float, int, PolledCompany]] = Factory(list)
    _numbers: count[int] = Factory(count)
    _spent: CellRate = Factory(lambda: CellRate(-inf, -inf))
    _wake: Callable[[], None] = lambda: None

    def reset(self, wake: Callable[[], None]) -> None:
        """Follow nothing any more; *wake* is called when `take` has to be asked sooner."""
        self.pushes, self._companies, self._timers = {}, {}, []
        self.left, self._spent, self._wake = OrderedDict(), CellRate(-inf, -inf), wake

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
            company = self._companies.setdefault(company_id, PolledCompany(company_id))
            push = self.left.pop(name, None)  # waited for anew: on it goes by its own schedule
            if push is None or push.company is not company:
                push = OpenPush(key, company, company.followed, now, now, now)
                company.followed += 1
                if operation is not None:
                    push.lane = self._lane_of(operation)
                    self.still_pending(push, now)
                    minutes = minutes or operation.timeout_in_minutes
                if minutes is not None:
                    push.looks.append(now + minutes * 60.0 + self.limits.after_deadline)
            self.pushes[name] = company.pushes[name] = push
        push.operation = push.operation or operation
        self._look_by(push.company, push.due)
        return push

    def forget(self, push: OpenPush) -> None:
        """Follow a push no longer; its schedule or final state is kept for later waits."""
        name = folded(push.key)
        del self.pushes[name], push.company.pushes[name]
        push.followers, push.trouble = (), None
        self.left[name] = push
        if len(self.left) > self.limits.remembered:
            self.left.popitem(last=False)

    def look_before_end(self, push: OpenPush, wait: float, now: float) -> None:
        """Look at a push once more shortly before a wait of so many seconds ends."""
        # Short waits, one after the other, would get around the floors.
        if wait >= max(1.0, self.limits.floor_share * (now - push.born)):
            at = now + wait - min(self.limits.before_end, wait / 4)
            push.looks = sorted((*push.looks, at))
            self._look_by(push.company, at)

    def look_now(self, push: OpenPush, now: float) -> None:
        """Look at a push, since it was notified of."""
        later = [look for look in push.looks if look > now]
        # A read that is under way may be for the first of them, and began too early for this one.
        push.looks = sorted({*push.looks[:1], now, *later})
        self._look_by(push.company, now)

    def was_read(self, push: OpenPush, began: float, now: float) -> None:
        """Note that a push was read singly, or that this failed."""
        push.polled = now  # it may have waited for its turn until now
        if push.looks and push.looks[0] <= began:
            push.hurried, push.looks = now, [look for look in push.looks if look > began]
        push.due = began  # what has failed is read again as soon as the floors allow

    def still_pending(self, push: OpenPush, at: float) -> None:
        """Plan the next look at a push that was Pending at *at*."""
        push.seen = max(push.seen, at)
        push.looks = [look for look in push.looks if look > at] if push.looks else push.looks
        age = push.seen - push.born
        wait = max(interval(age, 1), push.lane.first_look - age)
        push.due = push.seen + wait * self._slower

    def not_listed(self, push: OpenPush, now: float) -> None:
        """Read a push singly, since a list lacks it, or what is wanted of it."""
        push.unlisted, push.due = True, now

    def ended(self, push: OpenPush, at: float) -> None:
        """Learn from a push that has ended by *at*."""
        durations, most = push.lane.durations, self.limits.durations
        durations.append(max(0.0, (push.seen + at) / 2 - push.born))
        if len(durations) > most:
            durations.popleft()
        if len(durations) >= most // 4:
            push.lane.first_look = FIRST_SHARE * median(durations)

    def _lane_of(self, operation: PushOperation) -> Lane:
        name = operation.data_connection_id, operation.data_type
        lane = self._lanes.setdefault(name, Lane())
        if len(self._lanes) > self.limits.remembered:
            self._lanes.popitem(last=False)
        return lane

    @property
    def _slower(self) -> float:
        return self.workers * (self.limits.slower_notified if self.notified else 1.0)

    # Looks

    def take(self, now: float) -> Look | float:
        """Return a look that is due, its first request spent; or when there may be one."""
        while self._timers:
            at, _, company = self._timers[0]
            if at != company.due:  # the company has another time by now
                heappop(self._timers)
                continue
            if at <= now:
                at = now + self._spent.wait(now, interval=self._interval)
            if at > now:
                return at
            heappop(self._timers)
            look = self._next_look(company, now)
            if look.at <= now:
                company.due = -inf
                self.spend(company, now)
                return look
            self._plan(company, look.at)
        return inf

    def looked(self, company: PolledCompany, now: float) -> None:
        """Plan when to look at a company next, at the end of a look."""
        self._plan(company, self._next_look(company, now).at)

    def _look_by(self, company: PolledCompany, at: float) -> None:
        if at < company.due:
            self._plan(company, at)

    def _plan(self, company: PolledCompany, at: float) -> None:
        company.due = at
        if at < inf:
            heappush(self._timers, (at, next(self._numbers), company))
            if self._timers[0][2] is company:
                self._wake()

    def _next_look(self, company: PolledCompany, now: float) -> Look:
        limits, can_list = self.limits, now >= company.unlisted_until
        listed, others = list[OpenPush](), list[OpenPush]()
        for one in company.pushes.values():
            is_listed = can_list and not one.unlisted and one.born > now - limits.old
            (listed if is_listed else others).append(one)
        if len(listed) < limits.list_from:
            listed, others = [], others + listed
        list_at = self._list_at(company, listed) if listed else inf
        reads = [(self._read_at(one, one.due), one) for one in others]
        reads += [(self._read_at(one, inf), one) for one in listed if one.looks]

        due = [one for at, one in reads if at <= now]
        at, share = min([list_at, *(at for at, _ in reads)]), self._share
        at = max(at, now + company.spent.wait(now, interval=1 / share, burst=share))
        if list_at > now:
            listed = [one for one in due if can_list and not one.unlisted]
        if len(listed) >= limits.list_from:
            return Look(at, company, listed, by_list=True)
        # What has to be looked at goes first.
        due.sort(key=lambda one: (not one.looks or one.looks[0] > now, one.due))
        return Look(at, company, due[:1], by_list=False)

    def _read_at(self, push: OpenPush, due: float) -> float:
        """Return when to read a push singly that is *due* then; the floors hold for all of it."""
        limits = self.limits
        floor = max(limits.floor, limits.floor_share * (push.polled - push.born))
        at = max(due, push.polled + floor)
        # Shortly before a look that has to be, no other is made.
        if push.looks and push.looks[0] < at + floor + limits.floor:
            hurried = push.hurried + limits.floor_notified
            return max(push.looks[0], push.polled + limits.floor, hurried)
        return at

    def _list_at(self, company: PolledCompany, pushes: Sequence[OpenPush]) -> float:
        """Return when to list a company for the sake of *pushes*, of which a quarter is younger."""
        oldest, some = pushes[0], pushes[-(len(pushes) // 4) - 1]
        since = max(company.listed, some.born)
        wait = interval(since - some.born, min(len(pushes), self.limits.crowd)) * self._slower
        left = oldest.lane.first_look - (since - oldest.born)
        return since + max(wait, left, 1 / self.limits.per_company)

    # Budgets

    @property
    def _share(self) -> float:
        """Of a company's requests a second, what is this worker's."""
        return self.limits.per_company / self.workers

    @property
    def _interval(self) -> float:
        """Seconds between two requests for all companies."""
        rate = self.rate()
        return 1 / (rate * self.limits.share_of_rate) if rate else 0.0

    def spend(self, company: PolledCompany, now: float) -> None:
        """Take a request from the budgets."""
        share = self._share
        company.spent.reserve(1, now, interval=1 / share, burst=share)
        self._spent.reserve(1, now, interval=self._interval)

    def pause(self, company: PolledCompany, now: float, wait: float = 0.0) -> None:
        """Poll a company later, since a poll has failed; *wait*: as the service says."""
        seconds = pause(
            company.failures,
            first=1.0,
            cap=self.limits.longest_pause,
            jitter=lambda limit: limit * (0.5 + 0.5 * self.chance()),
            floor=wait,
        )
        company.failures += 1
        company.spent.pause(now + seconds)


def says_too_little(push: OpenPush, operation: PushOperation) -> bool:
    """Whether a listed push lacks data that is wanted, or the reasons of its failure."""
    if operation.error_message is not None:  # that is the reason, or its data cannot be read
        return False
    if operation.status is PushStatus.SUCCESS:
        return push.wants_data and operation.data is None
    return operation.status is PushStatus.FAILED and operation.validation is None
