"""Whom to poll now, singly or by list.

A poll costs a request. Not polling costs callers time: pushes have ended, and nobody knows it. So
a company is polled when what its callers wait in vain has grown to what a request is worth::

    poll     when the delays of its pushes add up:  sum(delay / (1 + age / 2)) >= price
             or when one has waited for long:       chance >= 3% and delay >= chance * patience(age)
    by list  from three pushes on, else singly those that may have ended

``chance`` is that of having ended since a push was last seen Pending, ``delay`` how many seconds
ago on average; both are learned (`CompletionTimes`). ``price`` is about 1 and varies, for jitter.
A push that the list does not show, or that is old, is left out of that sum. It has times of its
own, a fifth of its age apart, so that a thousand stuck pushes hinder nobody; where three of them
are due, a list will do as well, unless it has not shown them.

Below all of this are floors that no rule gets around: `OpenPush.next_at` for one push and
`Budget` for a company and for all. And where notifications can be trusted, polls wait for them
first (`is_worth_a_request`).

`Schedule.due` returns polls, each to be answered with exactly one of `finish`, `failed` and
`unlistable`. Time is an argument, in seconds of any monotonic clock.
"""

from __future__ import annotations

from bisect import bisect, insort
from collections import OrderedDict, deque
from collections.abc import Callable, Hashable, Iterable, Sequence
from heapq import heappop, heappush
from math import ceil, inf
from typing import Final, NamedTuple, Protocol

from attrs import Factory, define, field

from integration_sdk._http.retry import pause
from integration_sdk._options_given import LARGEST_PAGE
from integration_sdk.errors import IntegrationError
from integration_sdk.models import PushOperation, PushStatus

FINAL: Final = frozenset(str(status) for status in PushStatus if status.is_final)
LIKELY: Final = 0.03
"""Chance of having ended from which one push may be worth a poll."""
FOR_A_LIST: Final = 3
"""Pushes from which on a list is read instead."""
ROWS_PER_REQUEST: Final = 500
"""Rows of a list that cost as much as a request."""
SOON: Final = 0.02
"""Minimum seconds between two looks at a company."""
OLD: Final = 600.0
"""Age in seconds from which on a push has times of its own."""
LONGEST_PAUSE: Final = 64.0
"""Seconds of the longest pause after polls that failed, if the service names none."""
NO_LIST: Final = 600.0
"""Seconds after which a refused list is tried again."""
REMEMBERED: Final = 4096
"""Pushes of which is remembered when they were polled, in case they are followed again."""

FLOOR: Final = 0.2
"""Minimum seconds between two single polls of a push, ..."""
FLOOR_GROWS: Final = 0.05
"""... or this share of its age, if that is longer."""
FLOOR_NOTIFIED: Final = 1.0
"""Minimum seconds between two that notifications bring forward."""
PER_COMPANY: Final = 3
"""Requests that may be spent on a company's pushes per second, and at once."""
SHARE_OF_RATE: Final = 0.5
"""What polls may take of the requests that the service allows: the rest is for other calls."""


# The rule


def patience(age: float) -> float:
    """Return the seconds that a push of this age may on average wait unnoticed.

    This decides what a push alone in its company costs. If nothing is known, that is one poll
    each time its age has grown by a tenth. A push that is only seconds old is polled every two
    seconds.
    """
    return max(min(0.37 + 0.1 * age, 1.0), 0.0425 * age)


def longest(age: float) -> float:
    """Return after how many seconds to poll a push last seen at this age, whatever its chances.

    So a push whose notification is lost is found, and ever more rarely polled.
    """
    return 60.0 + 0.5 * age


def is_worth_a_request(
    pushes: Iterable[tuple[OpenPush, int]],
    at: float,
    *,
    price: float = 1.0,
    trust: float = 0.0,
    by_list: bool = False,
) -> bool:
    """Return whether to poll at that time.

    Args:
        pushes: Those in question, each with how many it stands for.
        at: The time.
        price: What a request is worth, about 1.
        trust: The chance that an end is notified, which then needs no poll.
        by_list: Whether one request shows them all, so that their delays add up.
    """
    worth = 0.0
    for push, stands_for in pushes:
        age = at - push.born
        chance, delay = ((1.0 - trust) * each for each in push.unnoticed(at))
        own = delay / (1.0 + 0.5 * age)
        worth = worth + stands_for * own if by_list else own
        waited_long = chance >= LIKELY and delay >= chance * price * patience(age)
        if worth >= price or waited_long or at >= push.seen + longest(push.seen - push.born):
            return True
    return False


def sample(pushes: Sequence[OpenPush]) -> list[tuple[OpenPush, int]]:
    """Return some pushes, newest first, and how many each stands for.

    Older ones stand for more, since chances change with the logarithm of the age.
    """
    chosen: list[tuple[OpenPush, int]] = []
    left = len(pushes)
    while left:
        share = min(left, max(1, (len(pushes) - left) // 2))
        chosen.append((pushes[left - 1 - share // 2], share))
        left -= share
    return chosen


def first_time(is_due: Callable[[float], bool], start: float, latest: float) -> float:
    """Return about when *is_due* becomes true, from *start* on; *latest* if not before."""
    if start >= latest or not is_due(latest):
        return latest
    if is_due(start):
        return start
    early, late = start, latest
    while late - early > max(SOON, 0.05 * (late - start)):
        middle = (early + late) / 2
        early, late = (early, middle) if is_due(middle) else (middle, late)
    return late


# How long pushes take

LAST: Final = 128
"""Ages that are remembered of a cohort: of pushes that ended, and of pushes seen Pending."""
OWN_WEIGHT: Final = 3.0
"""Pushes of a cohort's own that count as much as what it leans on."""
MOST_OPEN: Final = 8
"""Open pushes that count at most, for each one that ended: stuck ones say nothing of others."""
HAZARD: Final = 0.31
"""Assumed: rate at which pushes end while their age grows e-fold, from `FIRST` on."""
FIRST: Final = 0.1
"""Age in seconds at which that begins."""
COHORTS: Final = 1000
"""Cohorts that are remembered; the least recently used are dropped first."""


def assumed(seen: float, age: float) -> tuple[float, float]:
    """Return chance and delay if nothing is known: to take 1-2 s is as likely as 1-2 hours."""
    then, now = seen + FIRST, age + FIRST
    still_open = (then / now) ** HAZARD
    # The delay is the integral of the chance, 1 - (then / t) ** HAZARD, from then to now.
    return 1.0 - still_open, now - then - (now * still_open - then) / (1.0 - HAZARD)


@define
class LastAges:
    """The last `LAST` ages that were noted; ``sorted``: all of them, in order."""

    sorted: list[float] = Factory(list)
    _latest: deque[float] = Factory(deque)

    def note(self, age: float) -> None:
        """Remember *age*, and forget the oldest note if there are too many."""
        if len(self._latest) == LAST:
            del self.sorted[bisect(self.sorted, self._latest.popleft()) - 1]
        self._latest.append(age)
        insort(self.sorted, age)


@define
class CompletionTimes:
    """How long the pushes of a cohort take: of one connection and data type, or of all.

    Of those that got as far as the push in question, some have ended soon after. Those still open
    count too, or else the first to end of many that began together would make the others look
    overdue. As long as they are few, a cohort leans on *others*, all cohorts together, and these
    on `assumed`.
    """

    others: CompletionTimes | None = None
    _ended: LastAges = Factory(LastAges)
    _pending: LastAges = Factory(LastAges)
    _open: int = 0

    def count_open(self, change: int) -> None:
        """Learn that so many more pushes are open."""
        self._open += change
        if not self._open:
            self._pending = LastAges()  # the next are not those that were seen at these ages
        if self.others is not None:
            self.others.count_open(change)

    def learn(self, age: float, *, ended: bool) -> None:
        """Learn that a push *ended* at this age, or was seen Pending at it."""
        (self._ended if ended else self._pending).note(age)
        if self.others is not None:
            self.others.learn(age, ended=ended)

    def unnoticed(self, seen: float, age: float) -> tuple[float, float]:
        """Return the chance that a push seen Pending at age *seen* has ended by *age*, and how
        many seconds ago on average over all, ended or not.
        """
        lean_on = self.others.unnoticed if self.others is not None else assumed
        chance, delay = lean_on(seen, age)
        known, pending = self._ended.sorted, self._pending.sorted
        first = bisect(known, seen)
        ended = known[first : bisect(known, age, lo=first)]
        got_there = float(len(known) - first)
        if pending:
            share = 1.0 - bisect(pending, (seen + age) / 2) / len(pending)
            got_there += min(share * self._open, MOST_OPEN * (OWN_WEIGHT + len(known)))
        late = len(ended) * age - sum(ended)
        weight = got_there + OWN_WEIGHT
        chance = (len(ended) + OWN_WEIGHT * chance) / weight
        return chance, (late + OWN_WEIGHT * delay) / weight


# How far notifications are relied upon

TRUST_GAINED: Final = 1 / 6
"""Share of the missing trust that a notification adds."""
TRUST_KEPT: Final = 1 / 2
"""Share of the trust that is left after a push ended without a notification."""
NO_TRUST: Final = 0.1
"""Trust below which there may be no notifications at all: from full trust, four ends had none."""
LAST_POLL: Final = 2.0
"""Seconds before the end of a wait at which to poll all the same."""


def last_poll(wait: float) -> float:
    """Return after how many of *wait* seconds to poll, whether or not a notification came.

    Otherwise an end that is not notified would be missed by each wait of a caller that ends
    before the wait for the notification.
    """
    return wait - min(LAST_POLL, wait / 4)


# What is open


class Row(Protocol):
    """A push as a list shows it."""

    key: str
    status: str | None


class Follower(Protocol):
    """Is told what becomes of its pushes; ``fetch_data``: whether it wants their ``data``."""

    fetch_data: bool

    def changed(self, key: str, operation: PushOperation) -> None:
        """Push *key* was seen and is not final."""

    def ended(self, key: str, operation: PushOperation) -> None:
        """Push *key* is final."""

    def lost(self, key: str, error: IntegrationError) -> None:
        """Push *key* cannot be followed any further."""


class Trouble(NamedTuple):
    """Why a poll that began *at* this time failed."""

    at: float
    error: IntegrationError


@define(eq=False, weakref_slot=False)
class OpenPush:
    """One open push.

    Attributes:
        times: How long pushes like it take.
        order: How many pushes of the company were followed before it.
        born: When it was sent.
        seen: When it was last known to be Pending.
        due: When it is to be polled for itself; infinite if it is left to the rule.
        individual: Whether it has times of its own.
        is_old: Whether it was seen Pending at the age of `OLD`: it may be stuck, and says nothing
            of how long others take.
        unlisted: Whether it is to be read singly, because lists lack it or its data.
        notified: Whether a notification of it came that no poll has disproved.
        polled: When its last single poll began or returned; minus infinity for never.
        hurried: When a notification last led to one.
        being_read: Whether a single poll of it is in progress.
        exists: Whether the service has answered with it before.
        trouble: Why its last single poll failed; None if it did not.
        followers: Whom to tell. The rules use none of these three.
    """

    key: str
    company: PolledCompany = field(repr=False)
    times: CompletionTimes = field(repr=False)
    order: int
    born: float
    seen: float
    due: float = inf
    individual: bool = False
    is_old: bool = False
    unlisted: bool = False
    notified: bool = False
    polled: float = -inf
    hurried: float = -inf
    being_read: bool = False
    exists: bool = False
    trouble: Trouble | None = None
    followers: tuple[Follower, ...] = ()

    def __str__(self) -> str:
        return f"push {self.key}"

    @property
    def why_unseen(self) -> IntegrationError | None:
        """The error of the last poll of it or of its company's list; None if that saw it."""
        for trouble in (self.trouble, self.company.trouble):
            if trouble is not None and trouble.at >= self.seen:
                return trouble.error
        return None

    def unnoticed(self, at: float) -> tuple[float, float]:
        """Return the chance that it has ended unnoticed by then, and the delay so far."""
        return self.times.unnoticed(self.seen - self.born, at - self.born)

    def next_at(self) -> float:
        """Return when to poll it for itself; infinite if it is left to the rule, or being read.

        The floors hold here, whatever the last poll of it met.
        """
        if self.being_read or self.due == inf:
            return inf
        if self.notified:
            return max(self.due, self.hurried + FLOOR_NOTIFIED)
        return max(self.due, self.polled + max(FLOOR, FLOOR_GROWS * (self.polled - self.born)))


@define
class Budget:
    """Requests: so many a second, and *at_once* in a row after a rest."""

    at_once: int = 1
    _paid_until: float = -inf
    _step: float = 0.0

    def free_at(self) -> float:
        """Return when the next request may be spent."""
        return self._paid_until - (self.at_once - 1) * self._step

    def spend(self, now: float, per_second: float) -> None:
        """Note a request."""
        self._step = 1 / per_second
        self._paid_until = max(self._paid_until, now) + self._step


@define(eq=False)
class PolledCompany:
    """One company, and its open pushes by key, oldest first.

    Attributes:
        followed: Number of pushes followed so far.
        rows_per_push: Rows of the list per push of ours, since others write too.
        listing: Whether its list is being read.
        list_after: When the list may be used again.
        due: When to look at it; infinite for never.
        budget: What may be spent on it.
        paused_until: When it may be polled again after a failure.
        failures: Polls that failed in a row.
        trouble: Why the last poll of its list failed; None if it did not.
        price: What a request is worth this time.
    """

    id: str
    pushes: dict[str, OpenPush] = Factory(dict)
    followed: int = 0
    rows_per_push: float = 1.0
    listing: bool = False
    list_after: float = -inf
    due: float = inf
    budget: Budget = Factory(lambda: Budget(PER_COMPANY))
    paused_until: float = -inf
    failures: int = 0
    trouble: Trouble | None = None
    price: float = 1.0

    def __str__(self) -> str:
        return f"the pushes of company {self.id}"

    def earliest(self) -> float:
        """Return when it may be polled, whatever is due."""
        return max(self.paused_until, self.budget.free_at())

    def depth(self, order: int) -> int:
        """Return roughly which row of the list, from 1, holds the push with this *order*."""
        return ceil((self.followed - order) * self.rows_per_push)


@define(eq=False)
class SinglePoll:
    """Read this push."""

    company: PolledCompany
    push: OpenPush
    started: float


@define(eq=False)
class ListPoll:
    """Read this page of the company's pushes, newest first.

    Attributes:
        expected: Keys that it should show and has not shown yet.
        reach: Number of our pushes that it goes back over.
        enough: Rows after which pushes that were not shown count as missing.
        rows: Rows read so far.
    """

    company: PolledCompany
    page_size: int
    started: float
    expected: set[str]
    reach: int
    enough: int
    page: int = 1
    rows: int = 0


Poll = SinglePoll | ListPoll


@define
class Schedule:
    """All open pushes, and when to poll them.

    Args:
        chance: Returns a number from 0 to 1, for jitter.
        trust: How reliably ends are notified, from 0 to 1; updated as pushes end.
        rate: Returns the requests per second that the service allows, if known.

    Attributes:
        pushes: The open pushes by key.
        page_cap: Maximum rows that the service returns per page.
    """

    chance: Callable[[], float]
    trust: float = 0.0
    rate: Callable[[], float | None] = lambda: None
    pushes: dict[str, OpenPush] = Factory(dict)
    page_cap: int = LARGEST_PAGE
    _companies: dict[str, PolledCompany] = Factory(dict)
    _budget: Budget = Factory(Budget)
    _all_times: CompletionTimes = Factory(CompletionTimes)
    _times: OrderedDict[Hashable, CompletionTimes] = Factory(OrderedDict)
    _timers: list[tuple[float, int, PolledCompany]] = Factory(list)
    _timers_set: int = 0
    _left: OrderedDict[str, tuple[float, float, float, float]] = Factory(OrderedDict)

    # What is open

    def follow(self, key: str, company_id: str, cohort: Hashable, now: float) -> OpenPush:
        """Follow push *key* from now on."""
        company = self._companies.get(company_id)
        if company is None:
            company = self._companies[company_id] = PolledCompany(company_id)
        push = OpenPush(key, company, self._times_of(cohort), company.followed, now, now)
        if before := self._left.pop(key, None):
            push.born, push.seen, push.polled, push.hurried = before
        company.followed += 1
        push.times.count_open(1)
        self.pushes[key] = company.pushes[key] = push
        self._look_by(company, now + 0.05)
        return push

    def _times_of(self, cohort: Hashable) -> CompletionTimes:
        times = self._times.pop(cohort, None) or CompletionTimes(self._all_times)
        self._times[cohort] = times
        if len(self._times) > COHORTS:
            self._times.popitem(last=False)
        return times

    def forget(self, key: str) -> None:
        """Stop following push *key*."""
        push = self.pushes.pop(key, None)
        if push is None:
            return
        # Whoever follows it again does not get around its floors.
        self._left[key] = push.born, push.seen, push.polled, push.hurried
        if len(self._left) > REMEMBERED:
            self._left.popitem(last=False)
        company = push.company
        if not push.is_old:
            push.times.count_open(-1)
        del company.pushes[key]
        if not company.pushes:  # whoever comes next may try at once, within its budget
            company.due, company.paused_until, company.failures = inf, -inf, 0
            company.trouble = None

    def is_open(self, push: OpenPush) -> bool:
        """Return whether *push* is open still; its key may be followed anew since."""
        return self.pushes.get(push.key) is push

    def notify(self, key: str, now: float) -> bool:
        """Poll push *key* now, after a notification; return False if it is not followed."""
        push = self.pushes.get(key)
        if push is None:
            return False
        push.notified = True
        self._poll_now(push, now)
        return True

    def poll_before_expiry(self, key: str, now: float) -> None:
        """Poll push *key* now if a notification is awaited: a wait for it soon ends."""
        push = self.pushes.get(key)
        if push is not None and not self.has_no_trust:
            self._poll_now(push, now)

    def single_out(self, push: OpenPush, now: float) -> None:
        """Read *push* singly, now and from now on, because its list says too little."""
        if self.is_open(push):
            push.individual = push.unlisted = True
            self._poll_now(push, now)

    def _poll_now(self, push: OpenPush, now: float) -> None:
        push.due = now  # a poll in progress may be too early
        self._look_by(push.company, now)

    def ended(self, push: OpenPush, now: float, took: float | None = None) -> None:
        """Note that *push* is final and *took* this many seconds, if the service says so."""
        age = took if took is not None else (push.seen + now) / 2 - push.born
        push.times.learn(age, ended=True)
        if push.notified:
            self.trust += TRUST_GAINED * (1.0 - self.trust)
        else:
            self.trust *= TRUST_KEPT
        self.forget(push.key)

    @property
    def has_no_trust(self) -> bool:
        """Whether notifications may as well not come."""
        return self.trust < NO_TRUST

    # When

    def wake_at(self) -> float:
        """Return when to call `due` again; infinite for never."""
        timers = self._timers
        while timers and timers[0][2].due != timers[0][0]:
            heappop(timers)  # the company has another time by now
        return max(timers[0][0], self._budget.free_at()) if timers else inf

    def _look_at(self, company: PolledCompany, at: float) -> None:
        if at != company.due:
            company.due = at
            self._timers_set += 1
            if at < inf:
                heappush(self._timers, (at, self._timers_set, company))

    def _look_by(self, company: PolledCompany, at: float) -> None:
        self._look_at(company, min(at, company.due))

    def spend(self, company: PolledCompany, now: float) -> None:
        """Note a request for the pushes of *company*."""
        company.budget.spend(now, PER_COMPANY)
        if rate := self.rate():
            self._budget.spend(now, SHARE_OF_RATE * rate)

    # Whom

    def due(self, now: float, room: int) -> list[Poll]:
        """Return what to poll now, up to about *room* requests; each must be answered."""
        polls: list[Poll] = []
        while len(polls) < room and self.wake_at() <= now:  # the longest due company first
            _, _, company = heappop(self._timers)
            company.due = inf
            if now >= (earliest := company.earliest()):
                polls += self._choose(company, now)
            elif company.pushes:
                self._look_at(company, earliest)
        return polls

    def _choose(self, company: PolledCompany, now: float) -> list[Poll]:
        """Return what to poll of *company*, and set when to look at it again."""
        polls: list[Poll] = []
        at, listable = inf, company.list_after <= now and not company.listing
        together = [push for push in company.pushes.values() if not push.individual]
        if together and not company.listing:
            by_list = listable and len(together) >= FOR_A_LIST
            at = self._worth_a_request_at(together, company, now, by_list=by_list)
            if at <= now + SOON:
                polls = self._list(company, together, now) if by_list else []
                for push in () if polls else self._overdue(together, at, company.price):
                    push.due = min(push.due, now)
                at = inf
        own = [push for push in company.pushes.values() if push.due < inf]
        if listable and not polls:
            due = [push for push in own if push.next_at() <= now and not push.unlisted]
            polls = self._list(company, due, now)
        if company.listing:  # the list may show them; that of before may be too early for some
            own = [push for push in own if push.unlisted or (push.notified and not polls)]
        for push in sorted(own, key=lambda push: (not push.notified, push.due)):
            if push.next_at() <= now and max(company.earliest(), self._budget.free_at()) <= now:
                polls.append(self._single(push, now))
        at = min([at, *(push.next_at() for push in own)])
        self._look_by(company, max(at, now + SOON, company.earliest()))
        return polls

    def _worth_a_request_at(
        self, together: list[OpenPush], company: PolledCompany, now: float, *, by_list: bool
    ) -> float:
        """Return when to poll them; if that is far off, when to look again."""
        some = sample(together)
        latest = now + 0.2 + 0.06 * (now - some[len(some) // 2][0].born)

        def is_due(at: float) -> bool:
            return is_worth_a_request(
                some, at, price=company.price, trust=self.trust, by_list=by_list
            )

        return first_time(is_due, now, latest)

    def _overdue(self, pushes: list[OpenPush], at: float, price: float) -> list[OpenPush]:
        """Return those that are worth a poll of their own, or else the one that is it most."""
        overdue = [
            push
            for push in pushes
            if is_worth_a_request([(push, 1)], at, price=price, trust=self.trust)
        ]
        return overdue or [max(pushes, key=lambda push: push.unnoticed(at)[1])]

    def _list(self, company: PolledCompany, pushes: list[OpenPush], now: float) -> list[Poll]:
        """Return a poll of the list back to the oldest of *pushes*, if that is cheaper."""
        if len(pushes) < FOR_A_LIST:
            return []
        oldest = min(push.order for push in pushes)
        rows = ceil(company.depth(oldest) * 1.1) + 10
        page_size = min(self.page_cap, max(20, rows))
        if ceil(rows / page_size) + rows / ROWS_PER_REQUEST > len(pushes):
            return []
        expected = {
            push.key
            for push in company.pushes.values()
            if push.order >= oldest and not push.unlisted
        }
        company.listing = True
        self.spend(company, now)
        reach = company.followed - oldest
        return [ListPoll(company, page_size, now, expected, reach, enough=4 * rows + 200)]

    def _single(self, push: OpenPush, now: float) -> Poll:
        self.spend(push.company, now)
        if push.notified:
            push.hurried = now
        push.polled = now
        push.being_read = True
        return SinglePoll(push.company, push, now)

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
        for index, row in enumerate(rows):
            push = self.pushes.get(row.key)
            if push is None or push.company is not poll.company:
                continue
            poll.expected.discard(row.key)
            if row.status != "Pending":
                news.append((push, index))
            if row.status not in FINAL and push.seen < poll.started:
                push.unlisted = False
                push.individual = poll.started - push.born >= OLD
                self._still_pending(push, poll.started)
        poll.rows += len(rows)
        if more and poll.page == 1 and 0 < returned_size < poll.page_size:
            self.page_cap = poll.page_size = returned_size
        poll.page += 1
        return news, more and bool(rows) and bool(poll.expected) and poll.rows < poll.enough

    def _still_pending(self, push: OpenPush, started: float) -> None:
        """Note that a poll that began then has seen it."""
        push.seen = max(push.seen, started)
        if not push.is_old and started - push.born >= OLD:
            push.is_old = True
            push.times.count_open(-1)
        if push.notified and push.due > started:
            return  # a notification came meanwhile
        push.notified = False
        push.due = inf
        if push.individual:
            age = started - push.born
            grown = 0.5 + (0.15 + 0.05 * self.chance()) * age
            push.due = started + max(grown, self.trust**3 * longest(age))

    def finish(self, poll: Poll, now: float) -> None:
        """End *poll*, and look again at the pushes that are still open."""
        company = poll.company
        self._returned(poll, now)
        company.failures = 0
        if isinstance(poll, SinglePoll):
            self._still_pending(poll.push, poll.started)
        else:
            self._note_missing(poll)
            young = [push for push in company.pushes.values() if not push.is_old]
            for push, _ in sample(young):
                push.times.learn(push.seen - push.born, ended=False)
            if poll.reach >= ROWS_PER_REQUEST / 10 and not poll.expected:
                rows_per_push = max(1.0, poll.rows / poll.reach)
                company.rows_per_push += 0.3 * (rows_per_push - company.rows_per_push)

    def _note_missing(self, poll: ListPoll) -> None:
        """Give pushes that the list has not shown, or that are old or deep, times of their own."""
        company = poll.company
        for push in company.pushes.values():
            if push.key in poll.expected:
                push.unlisted = True
            deep = company.depth(push.order) > max(self.page_cap, 10 * len(company.pushes))
            if not push.individual and (push.unlisted or deep or poll.started - push.born >= OLD):
                push.individual = True
                self._still_pending(push, push.seen)

    def failed(self, poll: Poll, now: float, *, wait: float = 0.0) -> None:
        """End *poll*, which had no answer; *wait* is how long the service asked to wait.

        What is due stays due, but nothing is asked of its company for a while.
        """
        company = poll.company
        if poll.started >= company.paused_until:  # else it is one of several that failed at once
            company.failures += 1
        company.paused_until = now + pause(
            max(0, company.failures - 1),
            first=1.0,
            cap=LONGEST_PAUSE,
            jitter=lambda limit: limit * (0.5 + 0.5 * self.chance()),
            floor=wait,
        )
        self._returned(poll, now)
        if not company.pushes:  # its last push was forgotten meanwhile
            company.trouble = None

    def unlistable(self, poll: ListPoll, now: float) -> None:
        """End *poll*: the list was refused, so read the company's pushes singly for a while."""
        poll.company.list_after = now + NO_LIST
        self._returned(poll, now)

    def _returned(self, poll: Poll, now: float) -> None:
        company = poll.company
        company.price = 0.9 + 0.2 * self.chance()
        if isinstance(poll, SinglePoll):
            if poll.push.hurried == poll.started:
                poll.push.hurried = now
            poll.push.polled = now  # it may have waited for its turn until now
            poll.push.being_read = False
        else:
            company.listing = False
        if company.pushes:
            self._look_by(company, now)
