"""When a look at the service is worth its request, and which look is the cheaper one.

Not looking costs the waiters of pushes that have ended unnoticed some delay. `tolerance` says
how much of it, summed up over a company's pushes, is worth a request; `patience` how long a
single push may wait on average, however few there are. Both grow with age: a minute matters
to a push that takes two seconds, not to one that has been Pending for a day.
"""

from __future__ import annotations

from collections.abc import Iterator
from math import ceil, expm1, inf, sqrt
from typing import Final

from attrs import define

from integration_sdk._sansio.polling.learning import Curve
from integration_sdk._sansio.polling.open_pushes import Company, Group, Listing, Watch, sample

QUIET: Final = 60.0
"""Seconds for which a notification is waited for at first, where none has ever been lost."""
LIKELY: Final = 0.03
"""A push that has ended with this chance is worth a look of its own, in time."""
ROWS_PER_REQUEST: Final = 500
"""Rows of a list that cost as much as a request."""
SOON: Final = 0.02
"""Seconds between two weighings, at least."""
SLOWEST: Final = 0.2
"""A push with an appointment is looked at before its age has grown by this share."""

ALIKE: Final = 0.01
"""Share of a push's age by which another may be older or younger and do as well."""


def tolerance(age: float) -> float:
    """Return the seconds of delay that are worth a request, at this age."""
    return 1.7 + 0.22 * age


def patience(age: float) -> float:
    """Return the seconds that a push may on average wait unnoticed, at this age.

    It decides what a push alone in its company costs. Where nothing is known, that is a look
    whenever its age has grown by a tenth: 19 of 20 delays stay below that, for 30 looks at a
    push of a minute and a half, and fewer where completion times are learned. What has taken
    only seconds is looked at every second and a half.
    """
    return max(min(0.3 + 0.1 * age, 0.75), 0.042 * age)


def quiet_until(watch: Watch, trust: float) -> float:
    """Return when to look at *watch* though no notification came; *trust* is from 0 to 1.

    A minute after it was last seen, and half as long again as it was old then: a long one
    whose notifications are lost is looked at ever more rarely. Less where trust is lower.
    """
    return watch.seen + trust * (QUIET + (watch.seen - watch.born) / 2)


def unnoticed(curve: Curve, seen: float, age: float) -> tuple[float, float, float]:
    """Return the chance that a push has ended since it was *seen*, and the delay expected.

    The third is by how much the chance grows per second.
    """
    risk, delay, rate = curve.between(seen, age)
    if risk < 0.02:
        return risk, delay, rate
    chance = -expm1(-risk)  # what has ended cannot end again
    return chance, delay * chance / risk, rate * (1.0 - chance)


# A company


@define
class Weight:
    """What not looking at a company costs.

    Attributes:
        worth: Delay expected, in requests that it is worth.
        chance: Pushes expected to have ended, in the same; so fast *worth* grows, per second.
        rate: So fast *chance* grows, per second.
        likely: How many pushes may well have ended, beside those wanted anyway.
        certain: Whether some may well have; else any of them may, and none is likely to.
        oldest: Followed by rounds.
        overdue: Whether one of them has waited long enough.
        quiet: Moment until which notifications are trusted to come first.
        step: Seconds after which all this has to be weighed again.
    """

    worth: float = 0.0
    chance: float = 0.0
    rate: float = 0.0
    likely: float = 0.0
    certain: bool = False
    oldest: Watch | None = None
    overdue: bool = False
    quiet: float = inf
    step: float = inf

    def is_due(self, price: float, now: float) -> bool:
        """Return whether a look is worth its price now."""
        return now >= self.quiet and (self.overdue or self.worth >= price)

    def wait(self, price: float, now: float) -> float:
        """Return the seconds until a request is worth its price, as far as can be seen."""
        if now < self.quiet:
            return min(self.step, self.quiet - now)
        if self.rate <= 0.0:
            return self.step
        missing = max(0.0, price - self.worth)
        exact = (sqrt(self.chance**2 + 2 * self.rate * missing) - self.chance) / self.rate
        return min(max(exact, SOON), self.step)


def weigh(company: Company, now: float, trust: float = 0.0) -> Weight:
    """Return what not looking at *company* costs by now; *trust* as in `quiet_until`."""
    weight = Weight(quiet=inf if trust else -inf)
    for group in company.groups.values():
        if group.open:
            _add(weight, group, now, trust)
    return weight


def _add(weight: Weight, group: Group, now: float, trust: float) -> None:
    some, curve, company = sample(group.open), group.times.refresh(), group.company
    for watch, stands_for in some:
        age = now - watch.born
        chance, delay, rate = unnoticed(curve, watch.seen - watch.born, age)
        allowed = patience(age) * company.price
        share = stands_for / tolerance(age)
        weight.worth += share * delay
        weight.chance += share * chance
        weight.rate += share * rate
        if trust:
            weight.quiet = min(weight.quiet, quiet_until(watch, trust))
        if chance >= LIKELY:
            weight.certain = True
            weight.likely += stands_for * (watch.key not in company.wanted)
            weight.overdue |= delay >= chance * allowed
        until_overdue = 2.3 * allowed - (now - watch.seen)
        if 0.0 < until_overdue < weight.step:
            weight.step = max(0.05 + 0.01 * age, until_overdue)
    oldest = next(iter(group.open.values()))
    if weight.oldest is None or oldest.order < weight.oldest.order:
        weight.oldest = oldest
    weight.step = min(weight.step, 0.2 + 0.06 * (now - some[len(some) // 2][0].born))


def likely(company: Company, now: float) -> Iterator[Watch]:
    """Yield the pushes that may well have ended."""
    for group in company.groups.values():
        curve = group.times.refresh()
        for watch in group.open.values():
            seen, age = watch.seen - watch.born, now - watch.born
            if unnoticed(curve, seen, age)[0] >= LIKELY:
                yield watch


# List or single


def cheaper_list(
    company: Company, weight: Weight, now: float, *, due: bool, largest_page: int
) -> Listing | None:
    """Return a look at the list, if that is cheaper than looks at single pushes.

    Args:
        company: With appointments that have come in ``wanted``.
        weight: Of its rounds.
        now: The time.
        due: Whether the rounds want a look.
        largest_page: Rows that the service gives at once.
    """
    wanted, groups = list(company.wanted.values()), company.groups.values()
    slow = any(watch.slow for watch in wanted)
    targets = [*wanted, weight.oldest] if due and weight.oldest else wanted
    if slow:
        targets += [next(iter(group.slow.values())) for group in groups if group.slow]
    if not targets:
        return None
    deepest = min(targets, key=lambda watch: watch.order)
    rows = ceil(company.depth(deepest) * 1.1) + 10
    page_size = min(largest_page, max(20, rows))
    cost = ceil(rows / page_size) + rows / ROWS_PER_REQUEST
    if cost >= _cost_singly(company, weight, now, due=due, slow=slow):
        return None
    unseen = sum(len(group.open) + slow * len(group.slow) for group in groups)
    reach = company.born - deepest.order
    return Listing(company, page_size, unseen, now, 4 * rows + 200, reach, slow)


def _cost_singly(company: Company, weight: Weight, now: float, *, due: bool, slow: bool) -> float:
    if due and not weight.certain:  # any of them may have ended, so all would have to be read
        return inf
    saved = _saved(company, now) if slow else 0.0
    return len(company.wanted) + saved + (weight.likely if due else 0.0)


def _saved(company: Company, now: float) -> float:
    """Return the single looks at slow pushes that a list makes superfluous, or puts off."""
    saved = 0.0
    for group in company.groups.values():
        for watch, stands_for in sample(group.slow):
            saved += stands_for * min(1.0, _patience_used(watch, now))
    return saved


# A single push


def next_look(watch: Watch, now: float) -> float:
    """Return the moment at which *watch* alone is worth a look."""
    watch.group.times.refresh()
    at = max(now, watch.seen)
    latest = at + SLOWEST * (at - watch.born) + 0.5
    if not _is_due(watch, latest):
        return latest
    while at < latest:
        at += 0.05 + 0.06 * (at - watch.born)
        if _is_due(watch, at):
            break
    return at


def are_alike(watch: Watch, other: Watch, now: float) -> bool:
    """Whether the appointment of *other* suits *watch*: both were seen at once, and are as old."""
    as_old = abs(watch.born - other.born) <= ALIKE * (now - watch.born)
    return as_old and watch.seen == other.seen and now < other.due < inf


def still_due(watch: Watch, now: float, trust: float) -> bool:
    """Whether an appointment that has come is to be kept, though a list may have shown it."""
    if watch.alone or watch.told:
        return True
    waited = _patience_used(watch, now) > 0.8 or _is_due(watch, now)
    return waited and now >= quiet_until(watch, trust)


def _is_due(watch: Watch, at: float) -> bool:
    age = at - watch.born
    chance, delay, _ = unnoticed(watch.group.times.curve, watch.seen - watch.born, age)
    return delay >= tolerance(age) or (chance >= LIKELY and delay >= chance * patience(age))


def _patience_used(watch: Watch, now: float) -> float:
    """Return how much of the time between two looks at a slow push has passed, 1 for all."""
    return (now - watch.seen) / (SLOWEST * (watch.seen - watch.born) + 0.5)
