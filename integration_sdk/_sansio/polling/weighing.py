"""When a poll is worth its request, and which poll is cheaper.

Not polling delays those who wait for pushes that have ended unnoticed. `tolerance` says how much
delay, summed up over a company's pushes, is worth a request; `patience` how long a single push
may wait on average, however few there are. Both grow with age: a minute matters to a push that
takes two seconds, not to one that has been Pending for a day.
"""

from __future__ import annotations

from collections.abc import Iterator
from math import ceil, expm1, inf, sqrt
from typing import Final

from attrs import define

from integration_sdk._sansio.polling.learning import Curve
from integration_sdk._sansio.polling.open_pushes import (
    Group,
    ListPoll,
    OpenPush,
    PolledCompany,
    sample,
)
from integration_sdk._sansio.polling.trust import notification_wait_ends

LIKELY: Final = 0.03
"""Chance of having ended from which a push may be worth a poll of its own."""
ROWS_PER_REQUEST: Final = 500
"""Rows of a list that cost as much as a request."""
SOON: Final = 0.02
"""Minimum seconds between two weighings."""
SLOWEST: Final = 0.2
"""Share by which the age of a push may grow between two of its appointments."""

ALIKE: Final = 0.01
"""Share of its age by which two pushes may differ and still share an appointment."""


def tolerance(age: float) -> float:
    """Return the seconds of delay that are worth a request at this age."""
    return 2.0 + 0.22 * age


def patience(age: float) -> float:
    """Return the seconds that a push of this age may on average wait unnoticed.

    This decides what a push alone in its company costs. If nothing is known, that is one poll
    each time its age has grown by a tenth: 19 of 20 delays stay below that, at 30 polls for a
    push of a minute and a half, or fewer if completion times are learned. A push that is only
    seconds old is polled every second and a half.
    """
    return max(min(0.3 + 0.1 * age, 0.75), 0.042 * age)


def unnoticed(curve: Curve, seen: float, age: float) -> tuple[float, float, float]:
    """Return the chance that a push has ended since *seen*, the expected delay of its waiter, and
    by how much the chance grows per second.
    """
    risk, delay, rate = curve.between(seen, age)
    if risk < 0.02:
        return risk, delay, rate
    chance = -expm1(-risk)  # what has ended cannot end again
    return chance, delay * chance / risk, rate * (1.0 - chance)


# A company


@define
class Weight:
    """What it costs not to poll a company.

    Each push counts for one over its `tolerance`, so that a sum of 1.0 is worth one request.

    Attributes:
        worth: Expected delay of the waiters so far.
        ended: Expected number of ended pushes; *worth* grows by this per second.
        ended_per_second: The growth of *ended* per second.
        likely: Number of pushes whose chance of having ended is `LIKELY` or more, without those
            that have an appointment now.
        certain: Whether there is any such push, with or without an appointment.
        oldest: The oldest push followed by rounds.
        overdue: Whether a push has waited longer than `patience` allows.
        notification_wait_ends: Until when to wait for notifications instead of polling.
        step: Seconds after which to weigh again in any case.
    """

    worth: float = 0.0
    ended: float = 0.0
    ended_per_second: float = 0.0
    likely: float = 0.0
    certain: bool = False
    oldest: OpenPush | None = None
    overdue: bool = False
    notification_wait_ends: float = inf
    step: float = inf

    def is_due(self, price: float, now: float) -> bool:
        """Return whether a poll is worth its price now, or will be before the next weighing."""
        soon = self.worth + self.ended * SOON
        return now >= self.notification_wait_ends and (self.overdue or soon >= price)

    def wait(self, price: float, now: float) -> float:
        """Return an estimate of the seconds until a request is worth its price."""
        if now < self.notification_wait_ends:
            return min(self.step, self.notification_wait_ends - now)
        if self.ended_per_second <= 0.0:
            return self.step
        # Solve worth + ended * t + ended_per_second * t**2 / 2 = price for t.
        missing, growth = max(0.0, price - self.worth), self.ended_per_second
        wait = (sqrt(self.ended**2 + 2 * growth * missing) - self.ended) / growth
        return min(max(wait, SOON), self.step)


def weigh(company: PolledCompany, now: float, trust: float = 0.0) -> Weight:
    """Return what it has cost so far not to poll *company*; *trust* as in `Schedule`."""
    weight = Weight(notification_wait_ends=inf if trust else -inf)
    for group in company.groups.values():
        if group.by_round:
            _add(weight, group, now, trust)
    return weight


def _add(weight: Weight, group: Group, now: float, trust: float) -> None:
    some, curve, company = sample(group.by_round), group.times.refresh(), group.company
    for push, stands_for in some:
        age = now - push.born
        chance, delay, rate = unnoticed(curve, push.seen - push.born, age)
        allowed = patience(age) * company.price
        share = stands_for / tolerance(age)
        weight.worth += share * delay
        weight.ended += share * chance
        weight.ended_per_second += share * rate
        if trust:
            wait_ends = notification_wait_ends(push, trust)
            weight.notification_wait_ends = min(weight.notification_wait_ends, wait_ends)
        if chance >= LIKELY:
            weight.certain = True
            weight.likely += stands_for * (push.key not in company.wanted)
            weight.overdue |= delay >= chance * allowed
        until_overdue = 2.3 * allowed - (now - push.seen)
        if 0.0 < until_overdue < weight.step:
            weight.step = max(0.05 + 0.01 * age, until_overdue)
    oldest = next(iter(group.by_round.values()))
    if weight.oldest is None or oldest.order < weight.oldest.order:
        weight.oldest = oldest
    weight.step = min(weight.step, 0.2 + 0.06 * (now - some[len(some) // 2][0].born))


def likely(company: PolledCompany, now: float) -> Iterator[OpenPush]:
    """Yield the pushes that may well have ended."""
    for group in company.groups.values():
        curve = group.times.refresh()
        for push in group.by_round.values():
            seen, age = push.seen - push.born, now - push.born
            if unnoticed(curve, seen, age)[0] >= LIKELY:
                yield push


# List or single


def cheaper_list(
    company: PolledCompany, weight: Weight, now: float, *, due: bool, largest_page: int
) -> ListPoll | None:
    """Return a poll of the list, if that is cheaper than polling singly.

    Args:
        company: The company; its ``wanted`` holds the appointments that have come.
        weight: The weight of its rounds.
        now: The time.
        due: Whether its round is due.
        largest_page: Maximum rows that the service returns per page.
    """
    wanted, groups = list(company.wanted.values()), company.groups.values()
    covers_all = any(push.by_appointment for push in wanted)
    targets = [*wanted, weight.oldest] if due and weight.oldest else wanted
    if covers_all:
        oldest = (next(iter(group.by_appointment.values()), None) for group in groups)
        targets += [push for push in oldest if push is not None]
    if not targets:
        return None
    deepest = min(targets, key=lambda push: push.order)
    rows = ceil(company.depth(deepest) * 1.1) + 10
    page_size = min(largest_page, max(20, rows))
    cost = ceil(rows / page_size) + rows / ROWS_PER_REQUEST
    if cost >= _cost_singly(company, weight, now, due=due, covers_all=covers_all):
        return None
    unseen = sum(len(group.by_round) + covers_all * len(group.by_appointment) for group in groups)
    reach = company.followed - deepest.order
    return ListPoll(company, page_size, unseen, now, 4 * rows + 200, reach, covers_all)


def _cost_singly(
    company: PolledCompany, weight: Weight, now: float, *, due: bool, covers_all: bool
) -> float:
    if due and not weight.certain:  # any of them may have ended, so all would have to be read
        return inf
    saved = _saved(company, now) if covers_all else 0.0
    return len(company.wanted) + saved + (weight.likely if due else 0.0)


def _saved(company: PolledCompany, now: float) -> float:
    """Return how many single polls of pushes with appointments a list would save or postpone."""
    saved = 0.0
    for group in company.groups.values():
        for push, stands_for in sample(group.by_appointment):
            saved += stands_for * min(1.0, _patience_used(push, now))
    return saved


# A single push


def next_poll(push: OpenPush, now: float) -> float:
    """Return when *push* alone is worth a poll."""
    push.group.times.refresh()
    at = max(now, push.seen)
    latest = at + SLOWEST * (at - push.born) + 0.5
    if not _is_due(push, latest):
        return latest
    while at < latest:
        at += 0.05 + 0.06 * (at - push.born)
        if _is_due(push, at):
            break
    return at


def are_alike(push: OpenPush, other: OpenPush, now: float) -> bool:
    """Whether *push* can share the appointment of *other*: same age, last seen together."""
    as_old = abs(push.born - other.born) <= ALIKE * (now - push.born)
    return as_old and push.seen == other.seen and now < other.due < inf


def still_due(push: OpenPush, now: float, trust: float) -> bool:
    """Whether a push whose appointment has come still needs a poll; a list may have shown it."""
    if push.read_singly or push.notified:
        return True
    waited = _patience_used(push, now) > 0.8 or _is_due(push, now)
    return waited and now >= notification_wait_ends(push, trust)


def _is_due(push: OpenPush, at: float) -> bool:
    age = at - push.born
    chance, delay, _ = unnoticed(push.group.times.curve, push.seen - push.born, age)
    return delay >= tolerance(age) or (chance >= LIKELY and delay >= chance * patience(age))


def _patience_used(push: OpenPush, now: float) -> float:
    """Return the share that has passed of the time between two appointments; 1 is all."""
    return (now - push.seen) / (SLOWEST * (push.seen - push.born) + 0.5)
