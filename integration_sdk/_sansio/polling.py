"""Whom to poll now, singly or by list, and when to look again.

A look at the service costs a request; not looking costs the waiters of pushes that have
ended unnoticed some delay. One rule follows, company by company: **look once the delay that
has piled up is worth a request**, and look at single pushes or at the company's list,
whichever is cheaper. `learning` says how likely a push has ended; nothing here guesses.

Two clocks drive it::

    rounds         one per company: weigh its open pushes (a sample where they are many),
                   look at them or say when to weigh again
    appointments   one per push that is not followed by rounds: slow ones, hinted ones
                   (`hint`), and all of a company whose list cannot be used

A push that should have ended long ago leaves the rounds for an appointment that moves away
as it grows old, so that a thousand stuck pushes hinder nobody. Companies with something due
take turns. Time is an argument, in seconds of any steady clock.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Hashable, Iterator, Sequence
from heapq import heappop, heappush
from itertools import islice
from math import ceil, inf, sqrt
from operator import attrgetter
from typing import Final, Protocol

from attrs import Factory, define

from integration_sdk._sansio.learning import CompletionTimes, Mark, bin_of

LIKELY: Final = 0.03
"""A push that has ended with this chance is worth a look of its own, in time."""
SAMPLE: Final = 8
SINGLY: Final = 4
"""Single looks that a company gets per turn."""
ROWS_PER_REQUEST: Final = 500
"""Rows of a list that cost as much as a request."""
LARGEST_PAGE: Final = 5000
SLOW_AGE: Final = 600.0
"""Where no completion times are known; else four times what is usual."""
NO_LIST: Final = 600.0
"""Seconds until a list that was refused is tried again."""


def tolerance(age: float) -> float:
    """Return the seconds of delay that are worth a request, at this age."""
    return 2.0 + 0.2 * age


def patience(age: float) -> float:
    """Return the seconds that a push may on average wait unnoticed, at this age."""
    return max(min(0.15 + 0.1 * age, 1.0), 0.05 * age)


class Row(Protocol):
    """What a list says of a push."""

    key: str
    status: str | None


@define(eq=False, weakref_slot=False)
class Watch:
    """One open push.

    Attributes:
        order: How many pushes of the company were watched before it.
        born: When it was sent.
        seen: When it was last known to be Pending.
        due: Its appointment; infinite for none.
        alone: A list does not say enough of it.
        owner: Whoever wants to know; the rules do not look at it.
    """

    key: str
    group: Group
    order: int
    born: float
    seen: float
    due: float = inf
    alone: bool = False
    owner: object = None


@define(eq=False)
class Group:
    """Open pushes of one company that take alike long: a lane, or what is slow."""

    company: Company
    times: CompletionTimes
    slow: bool = False
    open: dict[str, Watch] = Factory(dict)
    marks: list[Mark] = Factory(list)

    def sample(self) -> tuple[list[Watch], float]:
        """Return some pushes, oldest first, and how many each stands for."""
        count = len(self.open)
        if count <= 2 * SAMPLE:
            return list(self.open.values()), 1.0
        every = count / SAMPLE
        chosen = islice(self.open.values(), int(every / 2), None, ceil(every))
        watches = list(chosen)
        return watches, count / len(watches)


@define(eq=False)
class Company:
    """One company with open pushes.

    Attributes:
        slow: Its pushes that are followed by appointment.
        born: Pushes watched so far.
        crowd: Rows of the list per push of ours: others write too.
        looked: When it was last asked about.
        flying: Looks under way.
        round_at: When to weigh it again.
        list_after: The list is not to be used before.
        wanted: Appointments that have come.
        price: What a request is worth this time, for jitter.
    """

    id: str
    groups: dict[Hashable, Group] = Factory(dict)
    slow: Group = None  # type: ignore[assignment]  # set at once by Schedule, needs the company
    born: int = 0
    crowd: float = 1.0
    flying: int = 0
    round_at: float = inf
    list_after: float = -inf
    failures: int = 0
    wanted: dict[str, Watch] = Factory(dict)
    waiting: bool = False
    price: float = 1.0

    @property
    def count(self) -> int:
        """How many pushes are open."""
        return sum(len(group.open) for group in self.groups.values()) + len(self.slow.open)

    def depth(self, watch: Watch) -> int:
        """Return about how many rows of the list come before and with *watch*."""
        return ceil((self.born - watch.order) * self.crowd)


@define(eq=False)
class Single:
    """Read this push."""

    company: Company
    watch: Watch
    started: float


@define(eq=False)
class Listing:
    """Read this page of the company's pushes, newest first.

    Attributes:
        unseen: Pushes that it should show and has not yet.
        slow: Whether it goes down to the slow ones.
        rows: Read so far.
        enough: Rows after which what was not shown is missing.
    """

    company: Company
    page_size: int
    unseen: int
    started: float
    enough: int
    slow: bool = False
    page: int = 1
    rows: int = 0


Look = Single | Listing


@define
class _Weight:
    """What not looking at a company costs."""

    worth: float = 0.0
    chance: float = 0.0
    rate: float = 0.0
    likely: float = 0.0
    deepest: Watch | None = None
    oldest: Watch | None = None
    overdue: bool = False
    step: float = inf

    def wait(self) -> float:
        """Return the seconds until a request is worth it, as far as can be seen."""
        if self.rate <= 0.0:
            return self.step
        missing = max(0.0, 1.0 - self.worth)
        exact = (sqrt(self.chance**2 + 2 * self.rate * missing) - self.chance) / self.rate
        return min(max(exact, 0.02), self.step)


@define
class Schedule:
    """Everything that is open, and when to look at it.

    Args:
        chance: Returns a number from 0 to 1, for jitter.
        learn: Whether completion times are learned.
    """

    chance: Callable[[], float]
    learn: bool = True
    watches: dict[str, Watch] = Factory(dict)
    page_cap: int = LARGEST_PAGE
    _companies: dict[str, Company] = Factory(dict)
    _times: dict[Hashable, CompletionTimes] = Factory(dict)
    _all: CompletionTimes = Factory(CompletionTimes)
    _rounds: list[tuple[float, int, Company]] = Factory(list)
    _appointments: list[tuple[float, int, Watch]] = Factory(list)
    _ready: deque[Company] = Factory(deque)
    _asked: set[str] = Factory(set)
    _ticket: int = 0

    # What is open

    def watch(
        self, key: str, company_id: str, lane: Hashable, now: float, *, owner: object = None
    ) -> Watch:
        """Follow push *key* from now on."""
        company = self._companies.get(company_id) or self._new_company(company_id)
        group = company.groups.get(lane)
        if group is None:
            group = company.groups[lane] = Group(company, self._times_of(lane))
        watch = Watch(key, group, company.born, now, now, owner=owner)
        company.born += 1
        self.watches[key] = group.open[key] = watch
        if company.list_after > now:
            self._appoint(watch, now)
        elif not company.flying and company.round_at > now + 0.1:
            self._round(company, now + 0.05)
        return watch

    def _new_company(self, company_id: str) -> Company:
        company = self._companies[company_id] = Company(company_id)
        company.slow = Group(company, CompletionTimes(), slow=True)
        return company

    def _times_of(self, lane: Hashable) -> CompletionTimes:
        if not self.learn:
            return self._all
        return self._times.setdefault(lane, CompletionTimes(self._all))

    def forget(self, key: str) -> None:
        """Follow push *key* no longer."""
        watch = self.watches.pop(key, None)
        if watch is None:
            return
        company = watch.group.company
        watch.due = inf
        watch.group.open.pop(key, None)
        company.wanted.pop(key, None)
        if not company.count and self._companies.get(company.id) is company:
            self._dissolve(company)

    def _dissolve(self, company: Company) -> None:
        for group in company.groups.values():
            self._mark(group, [])
        company.round_at = inf
        del self._companies[company.id]

    def hint(self, key: str, now: float, *, alone: bool = False) -> bool:
        """Look at push *key* now, if need be *alone*; False where it is not followed."""
        watch = self.watches.get(key)
        if watch is None:
            return False
        watch.alone = watch.alone or alone
        self._meet(watch, now)
        return True

    def ended(self, watch: Watch, now: float, took: float | None = None) -> None:
        """Push *watch* is final; it took so many seconds, where the service says."""
        age = took if took is not None else (watch.seen + now) / 2 - watch.born
        if self.learn:
            watch.group.times.ended(age)
            self._all.ended(age)
        self.forget(watch.key)

    # When

    def wake_at(self) -> float:
        """Return when `due` should be asked again; infinite for never."""
        if self._ready:
            return -inf
        while self._rounds and self._rounds[0][2].round_at != self._rounds[0][0]:
            heappop(self._rounds)
        while self._appointments and self._appointments[0][2].due != self._appointments[0][0]:
            heappop(self._appointments)
        heads = (heap[0][0] for heap in (self._rounds, self._appointments) if heap)
        return min(heads, default=inf)

    def _round(self, company: Company, at: float) -> None:
        company.round_at = at
        self._ticket += 1
        heappush(self._rounds, (at, self._ticket, company))

    def _meet(self, watch: Watch, at: float) -> None:
        watch.due = at
        self._ticket += 1
        heappush(self._appointments, (at, self._ticket, watch))

    def _appoint(self, watch: Watch, now: float) -> None:
        """Find the moment at which *watch* alone is worth a look."""
        at, seen = max(now, watch.seen), watch.seen
        for _ in range(60):
            age = at - watch.born
            at += 0.05 + 0.06 * age
            if self._is_due(watch, seen, at):
                break
        self._meet(watch, at + self.chance() * 0.05 * (at - now))

    def _is_due(self, watch: Watch, seen: float, at: float) -> bool:
        age = at - watch.born
        chance, delay = _unnoticed(watch.group.times, seen - watch.born, age)
        return delay >= tolerance(age) or (chance >= LIKELY and delay >= chance * patience(age))

    # What

    def due(self, now: float, room: int) -> list[Look]:
        """Return what to look at now, up to about *room* requests; each must be answered."""
        self._come(now)
        looks: list[Look] = []
        while self._ready and len(looks) < room:
            company = self._ready.popleft()
            company.waiting = False
            looks.extend(self._choose(company, now))
        return looks

    def _come(self, now: float) -> None:
        while self.wake_at() <= now and (self._rounds or self._appointments):
            if self._appointments and self._appointments[0][0] <= now:
                self._keep_appointment(heappop(self._appointments)[2], now)
            elif self._rounds and self._rounds[0][0] <= now:
                company = heappop(self._rounds)[2]
                company.round_at = inf
                self._enqueue(company)
            else:
                break

    def _keep_appointment(self, watch: Watch, now: float) -> None:
        late = watch.due != inf and watch.key in self.watches
        watch.due = inf
        if late and watch.key not in self._asked:
            watch.group.company.wanted[watch.key] = watch
            self._enqueue(watch.group.company)

    def _enqueue(self, company: Company) -> None:
        if not company.waiting:
            company.waiting = True
            self._ready.append(company)

    def _choose(self, company: Company, now: float) -> list[Look]:
        weight = self._weigh(company, now)
        due = weight.overdue or weight.worth >= company.price
        wanted = list(company.wanted.values())
        if not due and not wanted:
            if not company.flying and company.count:
                self._round(company, now + weight.wait())
            return []
        listable = company.list_after <= now and not company.flying
        listed = [watch for watch in wanted if not watch.alone]
        if listable and (look := self._list(company, weight, listed, due, now)):
            return [look, *self._singly(company, [w for w in wanted if w.alone], now)]
        if due and listable:
            wanted += [w for w in self._likely(company, now) if w.key not in company.wanted]
        looks = self._singly(company, wanted, now)
        if not looks and not company.flying:
            self._round(company, now + weight.step)
        return looks

    def _singly(self, company: Company, wanted: Sequence[Watch], now: float) -> list[Look]:
        looks: list[Look] = [self._ask(watch, now) for watch in wanted[:SINGLY]]
        if company.wanted:
            self._enqueue(company)
        return looks

    def _ask(self, watch: Watch, now: float) -> Single:
        company = watch.group.company
        company.wanted.pop(watch.key, None)
        company.flying += 1
        self._asked.add(watch.key)
        watch.due = inf
        return Single(company, watch, now)

    def _likely(self, company: Company, now: float) -> Iterator[Watch]:
        for group in company.groups.values():
            for watch in group.open.values():
                age = now - watch.born
                if _unnoticed(group.times, watch.seen - watch.born, age)[0] >= LIKELY:
                    yield watch

    def _list(
        self, company: Company, weight: _Weight, wanted: Sequence[Watch], due: bool, now: float
    ) -> Listing | None:
        """Return a look at the list, if that is cheaper than looks at single pushes."""
        slow = any(watch.group.slow for watch in wanted)
        deepest = weight.deepest or weight.oldest
        targets = [*wanted, deepest] if due and deepest else wanted
        if not targets:
            return None
        depth = max(company.depth(watch) for watch in targets)
        rows = ceil(depth * 1.1) + 10
        page_size = min(self.page_cap, max(20, rows))
        cost = ceil(rows / page_size) + rows / ROWS_PER_REQUEST
        singly = weight.likely if weight.deepest else inf
        if cost >= len(wanted) + (singly if due else 0.0):
            return None
        company.flying += 1
        fast = sum(len(group.open) for group in company.groups.values())
        unseen = fast + (len(company.slow.open) if slow else 0)
        return Listing(company, page_size, unseen, now, 4 * rows + 200, slow)

    def _weigh(self, company: Company, now: float) -> _Weight:
        weight = _Weight()
        for group in company.groups.values():
            if group.open:
                _add(weight, group, now)
        return weight

    # Answers

    def listed(
        self, look: Listing, rows: Sequence[Row], *, more: bool, returned_size: int = 0
    ) -> tuple[list[tuple[Watch, int]], bool]:
        """Take a page of the list.

        Returns:
            Pushes that are no longer Pending, each with its row; and whether to read
            the next page, for which *look* has been moved on.
        """
        news: list[tuple[Watch, int]] = []
        started, company, watches = look.started, look.company, self.watches
        for index, row in enumerate(rows):
            watch = watches.get(row.key)
            if watch is None or watch.group.company is not company:
                continue
            if row.status != "Pending":
                news.append((watch, index))
            if watch.seen < started:
                watch.seen = started
                look.unseen -= look.slow or not watch.group.slow
        look.rows += len(rows)
        if 0 < returned_size < look.page_size and more:
            self.page_cap = look.page_size = returned_size
        look.page += 1
        return news, more and look.unseen > 0 and look.rows < look.enough and bool(rows)

    def finish(self, look: Look, now: float) -> None:
        """Nothing more comes of *look*; what is still open waits for its next."""
        company = look.company
        company.flying -= 1
        company.failures = 0
        if isinstance(look, Single):
            self._asked.discard(look.watch.key)
            look.watch.seen = max(look.watch.seen, look.started)
            self._again(look.watch, now)
        else:
            self._after_listing(look, now)
        self._next_round(company, now)

    def _again(self, watch: Watch, now: float) -> None:
        company = watch.group.company
        if watch.key in self.watches and (watch.group.slow or company.list_after > now):
            self._appoint(watch, now)

    def _after_listing(self, look: Listing, now: float) -> None:
        company = look.company
        if look.unseen > 0:
            self._look_for_missing(look, now)
        for group in list(company.groups.values()):
            self._slow_down(group, now)
            sample, stands_for = group.sample()
            marks = [(bin_of(watch.seen - watch.born), stands_for) for watch in sample]
            self._mark(group, marks)
        for watch in list(company.wanted.values()):
            if watch.seen >= look.started:
                del company.wanted[watch.key]
                self._again(watch, now)

    def _look_for_missing(self, look: Listing, now: float) -> None:
        """The list does not hold them, for now or at all; they are read singly."""
        groups = [*look.company.groups.values(), *([look.company.slow] if look.slow else [])]
        for group in groups:
            for watch in group.open.values():
                if watch.seen < look.started and watch.due == inf:
                    self._appoint(watch, now)

    def _slow_down(self, group: Group, now: float) -> None:
        limit = min(SLOW_AGE, 10.0 + 4 * group.times.usual())
        oldest = next(iter(group.open.values()), None)
        if oldest is None or now - oldest.born < limit:
            return
        for watch in [one for one in group.open.values() if now - one.born >= limit]:
            del group.open[watch.key]
            watch.group = group.company.slow
            watch.group.open[watch.key] = watch
            self._appoint(watch, now)

    def _mark(self, group: Group, marks: list[Mark]) -> None:
        for times in (group.times, self._all):
            times.still_open(group.marks, marks)
        group.marks = marks

    def _next_round(self, company: Company, now: float) -> None:
        company.price = 0.9 + 0.2 * self.chance()
        if not company.flying and company.count and company.list_after <= now:
            self._round(company, now)

    def failed(self, look: Look, now: float, *, wait: float = 0.0) -> None:
        """*look* had no answer this time; *wait* is what the service asked for."""
        company = look.company
        company.flying -= 1
        company.failures = min(company.failures + 1, 6)
        at = now + max(wait, (0.5 + 0.5 * self.chance()) * 2**company.failures / 2)
        if isinstance(look, Single):
            self._asked.discard(look.watch.key)
            if look.watch.key in self.watches:
                self._meet(look.watch, at)
        if not company.flying and company.count:
            self._round(company, at)

    def unlistable(self, look: Listing, now: float) -> None:
        """The company's list is not to be had: its pushes are read singly for a while."""
        company = look.company
        company.flying -= 1
        company.list_after = now + NO_LIST
        for group in company.groups.values():
            for watch in group.open.values():
                self._appoint(watch, now)


def _unnoticed(times: CompletionTimes, seen: float, age: float) -> tuple[float, float]:
    """Return the chance that a push has ended since it was *seen*, and the delay expected."""
    risk_then, area_then = times.at(seen)
    risk_now, area_now = times.at(age)
    return risk_now - risk_then, area_now - area_then - risk_then * (age - seen)


def _add(weight: _Weight, group: Group, now: float) -> None:
    sample, stands_for = group.sample()
    times = group.times
    for watch in sample:
        age = now - watch.born
        chance, delay = _unnoticed(times, watch.seen - watch.born, age)
        share = stands_for / tolerance(age)
        weight.worth += share * delay
        weight.chance += share * chance
        weight.rate += share * (times.at(age + 0.05)[0] - times.at(age)[0]) / 0.05
        if chance >= LIKELY:
            weight.likely += stands_for * (watch.key not in group.company.wanted)
            if weight.deepest is None or watch.order < weight.deepest.order:
                weight.deepest = watch
            weight.overdue = weight.overdue or delay >= chance * patience(age)
    weight.oldest = min(weight.oldest or sample[0], sample[0], key=attrgetter("order"))
    middle = now - sample[len(sample) // 2].born
    weight.step = min(weight.step, 0.1 + 0.06 * middle)
