"""The rules of taking turns: gate, window, pace, lanes and priorities, without a clock."""

from __future__ import annotations

import math
from collections import Counter
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from integration_sdk._sansio.gate import LONGEST_PAUSE, PROBE_PATIENCE, Gate, Refusal
from integration_sdk._sansio.lanes import MOST_IDLE, Ticket
from integration_sdk._sansio.pace import Pace
from integration_sdk._sansio.requests import Priority
from integration_sdk._sansio.responses import Response
from integration_sdk._sansio.throttle import Throttle
from integration_sdk._sansio.window import Window

FLOORS = st.one_of(st.none(), st.floats(0.01, 1e6))


def least(_most: float) -> float:
    """The smallest pause that chance can draw."""
    return 0.0


def most(limit: float) -> float:
    """The largest pause that chance can draw."""
    return limit


def refusal(status: int = 429, floor: float | None = None, **facts: Any) -> Refusal:
    return Refusal(answer=Response(status=status), floor=floor, **facts)


def ticket(
    company: str | None = None,
    priority: Priority = Priority.INTERACTIVE,
    deadline: float = math.inf,
) -> Ticket:
    return Ticket(company, priority, deadline)


# The gate


@given(FLOORS, st.sampled_from([least, most]))
def test_a_named_time_is_never_undercut(floor: float | None, jitter: Any) -> None:
    """``Retry-After`` is a floor: jitter adds to it, within 2 per cent or the own pause."""
    gate = Gate()

    gate.refused(refusal(floor=floor), 99.0, 100.0, jitter)

    assert not gate.admits(100.0)
    assert gate.opens_at >= 100.0 + (floor or 0.05)
    assert gate.opens_at <= 100.0 + max(1.0, 1.02 * (floor or 0.0) + 0.001)


def test_one_probe_goes_and_the_others_wait_for_it() -> None:
    """After the pause the gate lets a single request out, and another only if that takes long."""
    gate = Gate()
    gate.refused(refusal(floor=5), 0.0, 0.0, least)
    assert [gate.admits(at) for at in (4.9, 5.0)] == [False, True]

    gate.passed(5.0)

    assert not gate.admits(5.0 + PROBE_PATIENCE - 0.1)
    assert gate.admits(5.0 + PROBE_PATIENCE)
    assert gate.answered(sent_at=5.0)
    assert gate.is_open


def test_late_answers_neither_open_nor_lengthen() -> None:
    """Requests that left before it closed say nothing about whether it may open."""
    gate = Gate()
    gate.refused(refusal(floor=5), 0.0, 1.0, least)

    assert not gate.answered(sent_at=0.5)
    gate.unanswered(0.5, 1.5, most)
    for _ in range(20):
        gate.refused(refusal(), 0.5, 1.5, most)

    assert gate.opens_at == 6.0
    gate.refused(refusal(floor=8), 0.5, 2.0, least)
    assert gate.opens_at == 10.0


def test_refused_probes_come_ever_more_rarely() -> None:
    """Without a named time the pauses double up to a limit that still notices recovery soon."""
    gate, now, pauses = Gate(), 0.0, []
    for _ in range(6):
        gate.refused(refusal(503), now, now, most)
        pauses.append(gate.opens_at - now)
        now = gate.opens_at
        gate.passed(now)

    assert pauses == [1.0, 2.0, 4.0, LONGEST_PAUSE, LONGEST_PAUSE, LONGEST_PAUSE]
    gate.answered(now)
    gate.refused(refusal(503), now, now, most)
    assert gate.opens_at - now == 1.0, "an open gate starts anew"


def test_a_lost_probe_is_followed_by_another() -> None:
    """A probe without an answer keeps the gate closed for a while, an unused one does not."""
    gate = Gate()
    gate.refused(refusal(floor=5), 0.0, 0.0, least)
    gate.passed(5.0)
    gate.unused(5.0, 5.1)
    assert gate.admits(5.1)

    gate.passed(5.1)
    gate.unanswered(5.1, 5.5, most)

    assert not gate.admits(5.6)
    assert gate.admits(5.5 + LONGEST_PAUSE)


# The window


def grow(window: Window, rounds: int) -> None:
    for _ in range(rounds):
        for _ in range(window.places):
            window.answered(window.places)


def test_a_used_window_grows_by_one_place_a_round() -> None:
    """Additive increase; a window that is not used up proves nothing and stays."""
    window = Window(100, 20.0)
    grow(window, 10)
    assert window.places in {29, 30}
    for _ in range(1000):
        window.answered(5)
    assert window.places in {29, 30}


def test_a_crowd_that_is_refused_halves_it_once() -> None:
    """Multiplicative decrease: all that were under way count as one refusal."""
    window = Window(100, 20.0)
    for left in range(20, 0, -1):
        window.refused(left, sent_at=0.0, now=1.0)

    assert window.places == 10


def test_one_too_many_costs_one_place() -> None:
    """A concurrency limit takes back just what was over it."""
    window = Window(100, 11.0)
    window.refused(11, sent_at=0.0, now=1.0)
    for left in range(10, 0, -1):
        window.answered(left)

    assert window.places == 10


def test_a_known_limit_is_touched_ever_more_rarely() -> None:
    """Each round of refusals doubles the patience; a limit that is gone halves it again."""
    window, now, answers = Window(100, 10.0), 0.0, []
    for _ in range(6):
        count = 0
        while window.places <= 10:
            window.answered(window.places)
            count += 1
        now += 1
        window.refused(11, sent_at=now, now=now)
        answers.append(count)

    assert all(later > 1.5 * sooner for sooner, later in zip(answers, answers[1:], strict=False))
    grow(window, 2000)
    assert window.places == 100
    assert window.patience == 1.0


@given(
    st.lists(
        st.tuples(st.booleans(), st.integers(1, 120), st.floats(0, 10), st.floats(0, 10)),
        max_size=300,
    )
)
def test_a_window_stays_within_its_bounds(events: list[tuple[bool, int, float, float]]) -> None:
    """Whatever comes back, there is at least one place and at most the limit."""
    window = Window(100, 20.0)
    for good, in_flight, sent_at, now in events:
        if good:
            window.answered(in_flight)
        else:
            window.refused(in_flight, sent_at, now)
        assert 1 <= window.places <= 100
        assert 1 <= window.patience <= 64


def test_the_last_place_is_for_the_urgent() -> None:
    """Bulk leaves one place of several free; a small window has none to spare."""
    assert [Window(10, 10.0).has_room(9, urgent=urgent) for urgent in (True, False)] == [True, False]
    assert Window(10, 3.0).has_room(2, urgent=False)
    assert not Window(10, 10.0).has_room(10, urgent=True)


# The pace


def test_a_fixed_rate_keeps_its_distances() -> None:
    """``rate=10`` lets one out every tenth of a second; a late timer may catch up a little."""
    pace = Pace(10)
    times = [at / 100 for at in range(200) if pace.admits(at / 100) and not pace.passed(at / 100)]

    assert 19 <= len(times) <= 22
    pace.passed(100.0)
    burst = 0
    while pace.admits(100.0):
        pace.passed(100.0)
        burst += 1
    assert burst <= 2


def test_nothing_is_learnt_while_nobody_is_refused() -> None:
    """Without refusals there is no rate."""
    pace = Pace()
    for at in range(1000):
        pace.passed(at / 100)
        pace.answered(at / 100)

    assert pace.rate == math.inf


def test_the_rate_served_is_the_rate_learnt() -> None:
    """100 answers, then a second's pause: about 100 a second, fixed rate or not."""
    for fixed in (None, 50.0):
        pace = Pace(fixed)
        pace.passed(0.0)
        for at in range(100):
            pace.answered(at / 1000)
        pace.closed(0.1)
        pace.opened(1.1, limited=True)

        assert pace.learnt == pytest.approx(100 / 1.1)
        assert pace.rate == (fixed or pace.learnt)
        assert pace.next_at == pytest.approx(1.1 + 1.1 / 100)


def test_a_long_open_gate_loses_too_little_to_slow_down() -> None:
    """A refusal now and then sets no pace, nor does one that refused only some."""
    for open_for, limited in ((60.0, True), (0.1, False)):
        pace = Pace()
        pace.passed(0.0)
        pace.answered(0.0)
        pace.closed(open_for)
        pace.opened(open_for + 1, limited=limited)
        assert pace.rate == math.inf


def test_a_rate_that_is_waited_for_grows_and_is_forgotten() -> None:
    """Held back and never refused, it grows until there is nothing to hold back."""
    pace, now = Pace(), 0.0
    pace.passed(now)
    pace.answered(now)
    pace.closed(now)
    pace.opened(1.0, limited=True)
    slow = pace.rate
    for step in range(200):
        now = 1.0 + step * 0.25
        pace.next_at = now + 1
        pace.admits(now)
        pace.answered(now)

    assert slow <= 1.0
    assert pace.rate == math.inf


def test_refusals_without_a_single_answer_teach_no_rate() -> None:
    """Somebody else may have used up the limit; that says nothing about what it is."""
    pace = Pace()
    pace.passed(0.0)
    pace.closed(0.1)
    pace.opened(1.1, limited=True)

    assert pace.rate == math.inf


# Turns


def order_of(throttle: Throttle, now: float = 0.0) -> list[Ticket]:
    """Let everybody through, one after the other."""
    order = []
    while throttle.waiting:
        for one in throttle.ready(now):
            order.append(one)
            throttle.answered(one, now)
    return order


def full(**settings_: Any) -> tuple[Throttle, Ticket]:
    """Return a throttle with one place, and the ticket that has it."""
    throttle, first = Throttle(least, limit=1, **settings_), ticket()
    assert throttle.enter(first, 0.0)
    return throttle, first


def test_the_urgent_go_first_and_nobody_waits_for_ever() -> None:
    """By priority, but one turn in eight goes to the least urgent."""
    throttle, first = full()
    waiting = [ticket(priority=one) for one in reversed(Priority) for _ in range(16)]
    for one in waiting:
        assert not throttle.enter(one, 0.0)
    throttle.answered(first, 0.0)

    order = [one.priority for one in order_of(throttle)]

    assert Counter(order[:16])[Priority.INTERACTIVE] >= 13
    assert Priority.PREFETCH in order[:8]
    assert len(order) == 64


def test_companies_take_turns() -> None:
    """A company with one request is served next to one with a thousand."""
    throttle, first = full()
    crowd = [ticket("big", Priority.PUSH) for _ in range(1000)]
    single = ticket("small", Priority.PUSH)
    for one in (*crowd, single):
        throttle.enter(one, 0.0)
    throttle.answered(first, 0.0)

    assert order_of(throttle).index(single) <= 1


def test_who_comes_again_has_its_old_place() -> None:
    """First in, first out holds for a request over all its transmissions."""
    throttle, first = full()
    second = ticket()
    throttle.enter(second, 0.0)

    throttle.refused(first, refusal(floor=1), 1.0)
    assert not throttle.enter(first, 1.0)

    assert throttle.next_wake(1.0) == 2.0
    assert throttle.ready(1.9) == []
    probe = throttle.ready(2.0)
    assert probe == [second], "who has not been refused yet probes"
    throttle.answered(second, 2.0)
    assert throttle.ready(2.0) == [first]


def test_a_company_keeps_to_its_places() -> None:
    """10 at once for one company, whatever the service's window holds; others go on."""
    throttle = Throttle(least, limit=100)
    passed = [throttle.enter(ticket("a"), 0.0) for _ in range(12)]

    assert passed == [True] * 10 + [False] * 2
    other = ticket("b")
    throttle.enter(other, 0.0)
    assert throttle.ready(0.0) == [other]


def test_a_companys_own_429_stops_nobody_else() -> None:
    """Where the answer tells, only that company waits."""
    throttle = Throttle(least, limit=100)
    one, two = ticket("a"), ticket("b")
    throttle.enter(one, 0.0)

    throttle.refused(one, refusal(floor=5, lane_only=True), 1.0)

    assert throttle.gate.is_open
    assert throttle.enter(two, 1.0)
    assert not throttle.enter(one, 1.0)
    assert throttle.ready(1.0) == []
    assert throttle.next_wake(1.0) == 6.0
    assert throttle.closed_by(one) is not None
    assert throttle.closed_by(two) is None
    assert throttle.ready(6.0) == [one]
    throttle.answered(one, 6.5)
    assert throttle.closed_by(one) is None


def test_one_too_many_closes_no_gate() -> None:
    """A 429 without a time, while others are being answered, only takes a place away."""
    throttle = Throttle(least, limit=100)
    some = [ticket() for _ in range(20)]
    for one in some:
        throttle.enter(one, 0.0)
    places = throttle.window.places

    throttle.answered(some[0], 1.0)
    throttle.refused(some[1], refusal(), 1.0)
    assert throttle.gate.is_open
    assert throttle.window.places < places
    throttle.refused(some[2], refusal(503), 1.0)
    assert not throttle.gate.is_open


def test_a_closed_gate_names_its_answer_to_those_who_cannot_wait() -> None:
    """A deadline before the gate opens is known to be hopeless at once."""
    throttle = Throttle(least, limit=100)
    first, patient, hurried = ticket(), ticket(deadline=100), ticket(deadline=30)
    throttle.enter(first, 0.0)
    closing = refusal(503, floor=60)
    throttle.refused(first, closing, 0.0)

    assert throttle.closed_by(hurried, until=hurried.deadline) is closing.answer
    assert throttle.closed_by(patient, until=patient.deadline) is None
    assert throttle.closed_until == 60.0


def test_after_the_gate_they_leave_one_by_one() -> None:
    """Chance puts small distances between the first that leave."""
    throttle = Throttle(most, limit=100)
    first, others = ticket(), [ticket() for _ in range(5)]
    for one in (first, *others):
        throttle.enter(one, 0.0)
    throttle.refused(first, refusal(503, floor=1), 0.0)
    for one in others:
        throttle.unanswered(one, 0.5)
    assert not any(throttle.enter(one, 0.6) for one in (first, *others))
    (probe,) = throttle.ready(1.02)
    throttle.answered(probe, 1.1)

    leaving, now = [], 1.1
    while throttle.waiting:
        leaving += [(now, one) for one in throttle.ready(now)]
        now = throttle.next_wake(now) or now
    assert [at for at, _ in leaving] == pytest.approx([1.1, 1.11, 1.12, 1.13, 1.14])


def test_idle_companies_are_forgotten() -> None:
    """A service with a hundred thousand companies does not fill the memory."""
    throttle = Throttle(least, limit=100)
    for number in range(20 * MOST_IDLE):
        one = ticket(f"company {number}")
        throttle.enter(one, 0.0)
        throttle.answered(one, 0.0)

    assert len(throttle._lanes._lanes) <= 2 * MOST_IDLE


class Turns(RuleBasedStateMachine):
    """Anything may happen in any order; the books must balance all the same."""

    def __init__(self) -> None:
        super().__init__()
        self.now = 0.0
        self.throttle = Throttle(lambda limit: limit / 2, limit=6, per_company=3)
        self.under_way: list[Ticket] = []
        self.in_line: list[Ticket] = []
        self.orders: dict[int, int] = {}

    @rule(
        company=st.sampled_from([None, "a", "b", "c"]),
        priority=st.sampled_from(Priority),
    )
    def comes(self, company: str | None, priority: Priority) -> None:
        self.enter(ticket(company, priority))

    def enter(self, one: Ticket) -> None:
        (self.under_way if self.throttle.enter(one, self.now) else self.in_line).append(one)

    @precondition(lambda self: self.under_way)
    @rule(data=st.data(), how=st.sampled_from(["answered", "unanswered", "unused"]))
    def comes_back(self, data: st.DataObject, how: str) -> None:
        one = self.under_way.pop(data.draw(st.integers(0, len(self.under_way) - 1)))
        getattr(self.throttle, how)(one, self.now)

    @precondition(lambda self: self.under_way)
    @rule(
        data=st.data(),
        status=st.sampled_from([429, 503]),
        floor=st.sampled_from([None, 0.5, 7.0]),
        lane_only=st.booleans(),
    )
    def is_refused(
        self, data: st.DataObject, status: int, floor: float | None, lane_only: bool
    ) -> None:
        one = self.under_way.pop(data.draw(st.integers(0, len(self.under_way) - 1)))
        self.throttle.refused(one, refusal(status, floor, lane_only=lane_only), self.now)
        self.enter(one)

    @precondition(lambda self: self.in_line)
    @rule(data=st.data())
    def gives_up(self, data: st.DataObject) -> None:
        self.throttle.give_up(
            self.in_line.pop(data.draw(st.integers(0, len(self.in_line) - 1)))
        )

    @rule(seconds=st.sampled_from([0.0, 0.001, 0.3, 2.0, 10.0]))
    def time_passes(self, seconds: float) -> None:
        self.now += seconds
        for one in self.throttle.ready(self.now):
            self.in_line.remove(one)
            self.under_way.append(one)

    @invariant()
    def the_books_balance(self) -> None:
        assert self.throttle.in_flight == len(self.under_way) <= 6
        assert self.throttle.waiting == len(self.in_line)
        by_company = Counter(one.company for one in self.under_way)
        assert all(count <= 3 for name, count in by_company.items() if name is not None)

    @invariant()
    def nobody_is_stranded(self) -> None:
        """With nobody under way, whoever waits is let through or has a time to look again."""
        self.time_passes(0.0)
        if self.in_line and not self.under_way:
            wake = self.throttle.next_wake(self.now)
            assert wake is not None
            assert wake > self.now

    def teardown(self) -> None:
        for _ in range(5000):
            for one in self.under_way:
                self.throttle.answered(one, self.now)
            self.under_way = []
            self.time_passes(0.0)
            if not self.in_line:
                break
            self.now = self.throttle.next_wake(self.now) or self.now
        assert not self.in_line, "somebody never had a turn"


TestTurns = Turns.TestCase
TestTurns.settings = settings(max_examples=60, stateful_step_count=40, deadline=None)
