"""Promises of polling beside notifications: fewer polls where they come, no loss where not."""

from __future__ import annotations

import math
import random

from attrs import define, field
from hypothesis import given, settings
from hypothesis import strategies as st

from integration_sdk._push.schedule import Poll, Row, Schedule, SinglePoll


@define
class Shown:
    """A row of a list."""

    key: str
    status: str | None


@define
class Service:
    """Pushes of one company that begin at 0, and a schedule that is notified of some ends.

    ends: When each ends. notices: When what is notified. found: When each end was seen.
    """

    schedule: Schedule
    ends: dict[str, float]
    notices: list[tuple[float, str]] = field(factory=list)
    found: dict[str, float] = field(factory=dict)
    polls: int = 0
    now: float = 0.0

    def run(self) -> None:
        """Go on until all pushes have been found to end."""
        self.notices.sort()
        for key in self.ends:
            self.schedule.follow(key, "company", "cohort", 0.0)
        while self.schedule.pushes:
            self.step()

    def step(self) -> None:
        """Go to whatever comes next and answer its polls."""
        notice = self.notices[0][0] if self.notices else math.inf
        self.now = max(self.now, min(notice, self.schedule.wake_at()))
        assert self.now < math.inf, "nothing is due, and pushes are open"
        while self.notices and self.notices[0][0] <= self.now:
            self.schedule.notify(self.notices.pop(0)[1], self.now)
        for poll in self.schedule.due(self.now, 16):
            self.polls += 1
            self.answer(poll)

    def answer(self, poll: Poll) -> None:
        if isinstance(poll, SinglePoll):
            self.see(poll.push.key)
        else:
            rows: list[Row] = [Shown(key, self.status(key)) for key in reversed(self.ends)]
            for push, _ in self.schedule.listed(poll, rows, more=False)[0]:
                self.see(push.key)
        self.schedule.finish(poll, self.now)

    def status(self, key: str) -> str:
        return "Success" if self.ends[key] <= self.now else "Pending"

    def see(self, key: str) -> None:
        push = self.schedule.pushes.get(key)
        if push is not None and self.status(key) == "Success":
            self.found[key] = self.now
            self.schedule.ended(push, self.now)


def service(ends: list[float], *, trust: float = 1.0, seed: int = 1) -> Service:
    keys = {f"key-{number}": end for number, end in enumerate(ends)}
    return Service(Schedule(random.Random(seed).random, trust=trust), keys)


def notified(of: Service, *, early: float = 0.0) -> Service:
    of.notices = [(end * (1 - early) + 0.01, key) for key, end in of.ends.items()]
    return of


@settings(max_examples=100)
@given(
    st.lists(st.floats(0.1, 20_000), min_size=1, max_size=40),
    st.sets(st.integers(0, 39)),
    st.lists(st.tuples(st.floats(0, 20_000), st.integers(0, 50)), max_size=20),
    st.integers(0, 2**32),
)
def test_a_push_whose_notification_is_lost_is_found(
    ends: list[float], lost: set[int], forged: list[tuple[float, int]], seed: int
) -> None:
    """Told of some ends and of things that are not so, every end is found; the others in a second.

    A notification that is not so may just have brought a poll forward.
    """
    world = notified(service(ends, seed=seed))
    keys = list(world.ends)
    true = [notice for number, notice in enumerate(world.notices) if number not in lost]
    world.notices = true + [(at, f"key-{number}") for at, number in forged]
    world.run()

    assert world.found.keys() == world.ends.keys()
    for number, key in enumerate(keys):
        if number in lost:
            assert world.found[key] <= 2 * world.ends[key] + 120
        else:
            assert world.found[key] <= world.ends[key] + 1.1


def test_a_push_that_is_notified_costs_a_poll_or_two() -> None:
    """Where notifications are trusted, a push of a minute or two costs a tenth of its polls."""
    polled, informed_polls = 0, 0
    for seconds in range(60, 120, 5):
        alone = service([seconds], trust=0.0)
        alone.run()
        polled += alone.polls
        informed = notified(service([seconds]))
        informed.run()
        informed_polls += informed.polls

    assert informed_polls <= 24
    assert informed_polls <= 0.15 * polled


def test_a_push_of_hours_that_is_notified_costs_a_dozen_polls() -> None:
    """They are awaited also once a push has become so old that it has appointments of its own."""
    polled, informed = service([20_000.0], trust=0.0), notified(service([20_000.0]))
    polled.run()
    informed.run()

    assert informed.polls <= 15
    assert informed.polls <= 0.3 * polled.polls


def test_trust_is_gained_slowly_and_lost_at_once() -> None:
    """Twenty ends that were notified make notifications trusted; four that were not end it."""
    good = notified(service([2.0 + number for number in range(40)], trust=0.0))
    good.run()
    assert good.schedule.trust > 0.9

    bad = service([2.0] * 4)
    bad.run()
    assert bad.schedule.trust < 0.1


def test_a_claim_that_comes_too_early_earns_no_trust() -> None:
    """A notice that a poll proves wrong does not count as a notification of the end."""
    early = notified(service([30.0], trust=0.5), early=0.5)
    early.run()

    assert early.schedule.trust < 0.5


def test_what_a_list_says_too_little_of_is_read_at_once() -> None:
    """Unless nobody follows it any more: a caller may leave while a page is being told."""
    schedule = Schedule(lambda: 0.5)
    push, left = (schedule.follow(key, "company", "cohort", 0.0) for key in ("key", "left"))
    schedule.forget("left")

    for one in (push, left):
        schedule.single_out(one, 0.0)

    assert [one.push for one in schedule.due(0.0, 16) if isinstance(one, SinglePoll)] == [push]


def test_a_notification_during_a_poll_is_not_lost() -> None:
    """A notification that comes while its push is read leads to another poll, a second later."""
    schedule = Schedule(lambda: 0.5, trust=1.0)
    push = schedule.follow("key", "company", "cohort", 0.0)
    schedule.follow("other", "company", "cohort", 0.0)
    schedule.notify("key", 1.0)
    schedule.notify("other", 1.0)
    poll, _ = schedule.due(1.0, 16)
    schedule.notify("key", 1.05)
    assert not schedule.due(1.1, 16)
    schedule.finish(poll, 1.2)

    assert not schedule.due(2.1, 16)
    [again] = schedule.due(2.21, 16)
    assert isinstance(again, SinglePoll)
    assert again.push is push
    assert push.notified


def test_a_poll_that_fails_after_a_notification_is_repeated() -> None:
    """What was notified is polled again soon after a failure, however long the rest may wait."""
    schedule = Schedule(lambda: 0.5, trust=1.0)
    schedule.follow("key", "company", "cohort", 0.0)
    schedule.notify("key", 1.0)
    [poll] = schedule.due(1.0, 16)
    schedule.failed(poll, 1.1)

    assert schedule.wake_at() < 3.0
    assert schedule.due(3.0, 16)
