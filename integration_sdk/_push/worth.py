"""When a poll is worth its request, and which poll is cheaper.

Not polling delays those who wait for pushes that have ended unnoticed. `tolerance` says how much
delay, summed up over a company's pushes, is worth a request; `patience` how long a single push
may wait on average, however few there are. Both grow with age: a minute matters to a push that
takes two seconds, not to one that has been Pending for a day.

Polls are put off while a notification may still come, the longer the more ends were notified: the
*trust* in notifications is a number from 0 to 1 that changes with each end. And a list may show
states that are out of date, which it does not tell: see `ListCheck`.
"""

from __future__ import annotations

from collections.abc import Callable
from math import ceil, inf
from typing import Final

from attrs import define

from integration_sdk._push.open_pushes import ListPoll, OpenPush, PolledCompany, sample

LIKELY: Final = 0.03
"""Chance of having ended from which a push may be worth a poll of its own."""
ROWS_PER_REQUEST: Final = 500
"""Rows of a list that cost as much as a request."""
SOON: Final = 0.02
"""Minimum seconds between two looks at a company."""
SLOWEST: Final = 0.2
"""Share by which the age of a push may grow between two polls of it alone."""
FLOOR: Final = 0.2
"""Minimum seconds between two single polls of a push, ..."""
FLOOR_GROWS: Final = 0.05
"""... or this share of its age, if that is longer."""
FLOOR_NOTIFIED: Final = 1.0
"""Minimum seconds between two that notifications bring forward."""
PER_COMPANY: Final = 3
"""Requests that may be spent on a company's pushes per second, and at once."""


def tolerance(age: float) -> float:
    """Return the seconds of delay that are worth a request at this age."""
    return 3.0 + 0.8 * age


def patience(age: float) -> float:
    """Return the seconds that a push of this age may on average wait unnoticed.

    This decides what a push alone in its company costs. If nothing is known, that is one poll
    each time its age has grown by a tenth: 19 of 20 delays stay below that, at 30 polls for a
    push of a minute and a half, or fewer if completion times are learned. A push that is only
    seconds old is polled every two seconds.
    """
    return max(min(0.37 + 0.1 * age, 1.0), 0.0425 * age)


def earliest(company: PolledCompany) -> float:
    """Return when a request may be spent on *company*'s pushes."""
    return company.paid_until - (PER_COMPANY - 1) / PER_COMPANY


def pay(company: PolledCompany, now: float) -> None:
    """Note a request that is spent on *company*'s pushes."""
    company.paid_until = max(company.paid_until, now) + 1 / PER_COMPANY


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


# The pushes of a company that are followed by rounds


def round_due(company: PolledCompany, now: float, trust: float) -> float:
    """Return when its round is worth a request; if that is far off, when to look again."""
    some = sample(company.batched)
    if not some:
        return inf
    start = now
    if trust:
        start = max(now, min(notification_wait_ends(push, trust) for push, _ in some))
    middle, _ = some[len(some) // 2]

    def is_due(at: float) -> bool:
        return _is_worth_a_request(some, at, company.price)

    return first_time(is_due, start, now + 0.2 + 0.06 * (now - middle.born))


def _is_worth_a_request(some: list[tuple[OpenPush, int]], at: float, price: float) -> bool:
    worth = 0.0
    for push, stands_for in some:
        age = at - push.born
        chance, delay = push.unnoticed(at)
        worth += stands_for * delay / tolerance(age)
        is_overdue = chance >= LIKELY and delay >= chance * patience(age) * price
        if is_overdue or worth >= price:
            return True
    return False


def likely(company: PolledCompany, now: float) -> list[OpenPush]:
    """Return the batched pushes that may well have ended."""
    return [push for push in company.batched.values() if push.unnoticed(now)[0] >= LIKELY]


# List or single


def cheaper_list(
    company: PolledCompany, now: float, *, due: bool, largest_page: int
) -> ListPoll | None:
    """Return a poll of the list, if that is cheaper than polling singly.

    Args:
        company: The company; its ``wanted`` holds the individual pushes that are due.
        now: The time.
        due: Whether its round is due.
        largest_page: Maximum rows that the service returns per page.
    """
    wanted = list(company.wanted.values())
    covers_all = any(push.is_individual for push in wanted)
    covers_batched = due or not all(push.is_individual for push in wanted)
    targets = [*wanted, *_oldest(company.batched)] if covers_batched else wanted
    if covers_all:
        targets += _oldest(company.individual)
    if not targets:
        return None
    deepest = min(targets, key=lambda push: push.order)
    rows = ceil(company.depth(deepest) * 1.1) + 10
    page_size = min(largest_page, max(20, rows))
    cost = ceil(rows / page_size) + rows / ROWS_PER_REQUEST
    if cost >= _cost_singly(company, now, due=due, covers_all=covers_all):
        return None
    unseen = len(company.batched) + covers_all * len(company.individual)
    reach = company.followed - deepest.order
    return ListPoll(company, page_size, unseen, now, 4 * rows + 200, reach, covers_all)


def _oldest(pushes: dict[str, OpenPush]) -> list[OpenPush]:
    return [next(iter(pushes.values()))] if pushes else []


def _cost_singly(company: PolledCompany, now: float, *, due: bool, covers_all: bool) -> float:
    cost = float(len(company.wanted))
    if covers_all:  # what a list would save or postpone
        for push, stands_for in sample(company.individual):
            cost += stands_for * min(1.0, _patience_used(push, now))
    if due:
        some = sample(company.batched)
        may_have_ended = [each for each in some if each[0].unnoticed(now)[0] >= LIKELY]
        if not may_have_ended:  # any of them may have, so all would have to be read
            return inf
        cost += sum(count for push, count in may_have_ended if push.key not in company.wanted)
    return cost


# A single push


def earliest_single(push: OpenPush) -> float:
    """Return when *push* may be polled singly again, whatever the last poll of it met."""
    if push.hurry:
        return push.hurried + FLOOR_NOTIFIED
    return push.polled + max(FLOOR, FLOOR_GROWS * (push.polled - push.born))


def next_poll(push: OpenPush, now: float, trust: float) -> float:
    """Return when *push* alone is worth a poll."""
    start = max(now, notification_wait_ends(push, trust))
    latest = now + SLOWEST * (now - push.born) + 0.5
    return first_time(lambda at: _is_due(push, at), start, latest)


def ask_again(push: OpenPush, now: float, chance: float) -> float:
    """Return when to read *push* again, which the service does not show yet.

    The pauses grow with its age, so a lag delays its outcome by half of itself at most.
    """
    return now + max(0.25, (0.3 + 0.2 * chance) * (now - push.born))


def still_due(push: OpenPush, now: float, trust: float) -> bool:
    """Whether a push whose time has come still needs a poll; a list may have shown it."""
    if push.read_singly or push.notified:
        return True
    waited = _patience_used(push, now) > 0.8 or _is_due(push, now)
    return waited and now >= notification_wait_ends(push, trust)


def _is_due(push: OpenPush, at: float) -> bool:
    age = at - push.born
    chance, delay = push.unnoticed(at)
    return delay >= tolerance(age) or (chance >= LIKELY and delay >= chance * patience(age))


def _patience_used(push: OpenPush, now: float) -> float:
    """Return the share that has passed of the time between two single polls; 1 is all."""
    return (now - push.seen) / (SLOWEST * (push.seen - push.born) + 0.5)


# How far notifications are relied upon

TRUST_GAINED: Final = 1 / 8
"""Share of the missing trust that a notification adds."""
TRUST_KEPT: Final = 1 / 2
"""Share of the trust that is left after a push ended without a notification."""
NO_TRUST: Final = 0.1
"""Trust below which there may be no notifications at all: from full trust, four ends had none."""
NOTIFICATION_WAIT: Final = 60.0
"""Seconds to wait for a notification at first, if none has ever been lost."""
LAST_POLL: Final = 2.0
"""Seconds before the end of a wait at which to poll all the same."""


def after_end(trust: float, *, notified: bool) -> float:
    """Return the trust after a push has ended, of which a notification came if *notified*."""
    return trust + TRUST_GAINED * (1.0 - trust) if notified else trust * TRUST_KEPT


def is_lost(trust: float) -> bool:
    """Return whether notifications may as well not come."""
    return trust < NO_TRUST


def notification_wait_ends(push: OpenPush, trust: float) -> float:
    """Return until when to wait for a notification of *push* instead of polling it.

    With full trust, that is a minute plus half of its age after it was last seen, so a long push
    whose notifications are lost is polled ever more rarely. With less trust, it is much sooner:
    a process that hears half of the ends notices nine in ten as soon as one that hears none.
    """
    return push.seen + trust**3 * (NOTIFICATION_WAIT + (push.seen - push.born) / 2)


def last_poll(wait: float) -> float:
    """Return after how many of *wait* seconds to poll, whether or not a notification came.

    Otherwise an end that is not notified would be missed by each wait of a caller that ends
    before the wait for the notification.
    """
    return wait - min(LAST_POLL, wait / 4)


# How far lists are

LIST_LATE: Final = 2.0
"""Seconds, plus a twentieth of a push's age, that a list may still show it as Pending."""


@define
class ListCheck:
    """What is known of the service's lists.

    Attributes:
        in_time: Whether they show ends in time; None if not known.
    """

    in_time: bool | None = None
    _probe_at: float = -inf

    def wants(self, push: OpenPush, now: float) -> bool:
        """Whether to read *push*, which a list shows as Pending, singly too.

        One push of all companies until a list has shown an end in time; one of each company once
        a list was late.
        """
        company = push.company
        probe_at = self._probe_at if self.in_time is None else company.probe_at
        if self.in_time or now < probe_at:
            return False
        self._probe_at = company.probe_at = now + 2 * max(1.0, now - push.born)
        return True

    def proves_late(self, push: OpenPush, took: float) -> bool:
        """Whether the list showed *push* as Pending long after its end, *took* seconds old."""
        company = push.company
        if push.read_singly:  # the list lacked it, which is known
            return False
        late = push.seen - push.born - took > LIST_LATE + 0.05 * took
        if late:
            self.in_time = False
        elif company.listing and self.in_time is None:
            self.in_time = True
        return late
