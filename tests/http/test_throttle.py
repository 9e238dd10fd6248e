"""Taking turns: shares, priorities, gates and places, without a clock."""

from __future__ import annotations

from collections import Counter
from itertools import permutations
from typing import Any

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from integration_sdk import Priority
from integration_sdk._http.limiter import Limiter
from integration_sdk._http.limits import PROBE_PATIENCE, Waiter
from tests.support.session_support import asking, least, most, refusal

# Turns


def order_of(limiter: Limiter, now: float = 0.0) -> list[Waiter]:
    """Let everybody through, one after the other."""
    order = []
    while limiter.waiting:
        for one in limiter.ready(now):
            order.append(one)
            limiter.answered(one, now)
    return order


def full(**settings_: Any) -> tuple[Limiter, Waiter]:
    """Return a limiter with one place, and the ticket that has it."""
    limiter, first = Limiter(least, limit=1, **settings_), asking()
    assert limiter.enter(first, 0.0)
    return limiter, first


def test_the_urgent_go_first_and_nobody_waits_for_ever() -> None:
    """By priority, but one turn in eight goes to the least urgent."""
    limiter, first = full()
    waiting = [asking(priority=one) for one in reversed(Priority) for _ in range(16)]
    for one in waiting:
        assert not limiter.enter(one, 0.0)
    limiter.answered(first, 0.0)

    order = [one.priority for one in order_of(limiter)]

    assert Counter(order[:16])[Priority.INTERACTIVE] >= 13
    assert Priority.PREFETCH in order[:8]
    assert len(order) == 64


def test_companies_take_turns() -> None:
    """A company with one request is served next to one with a thousand."""
    limiter, first = full()
    crowd = [asking("big", Priority.PUSH) for _ in range(1000)]
    single = asking("small", Priority.PUSH)
    for one in (*crowd, single):
        limiter.enter(one, 0.0)
    limiter.answered(first, 0.0)

    assert order_of(limiter).index(single) <= 1


@pytest.mark.parametrize("looked_meanwhile", [True, False])
def test_companies_whose_gates_open_together_go_in_the_order_of_arrival(
    looked_meanwhile: bool,
) -> None:
    """First in, first out holds across companies as well."""
    for order in permutations("abcde"):
        limiter = Limiter(least, limit=20)
        crowd = [asking(company) for company in order]
        for one in crowd:
            limiter.enter(one, 0.0)
        for one in crowd:
            limiter.refused(one, refusal(floor=1, company_only=True), 0.1)
            assert not limiter.enter(one, 0.1)
        if looked_meanwhile:
            assert limiter.ready(0.2) == []

        assert [one.company for one in limiter.ready(5.0)] == list(order)


def test_who_comes_again_has_its_old_place() -> None:
    """First in, first out holds for a request over all its transmissions."""
    limiter, first = full()
    second = asking()
    limiter.enter(second, 0.0)

    limiter.refused(first, refusal(floor=1), 1.0)
    assert not limiter.enter(first, 1.0)

    assert limiter.next_wake(1.0) == 2.0
    assert limiter.ready(1.9) == []
    probe = limiter.ready(2.0)
    assert probe == [second], "who has not been refused yet probes"
    limiter.answered(second, 2.0)
    assert limiter.ready(2.0) == [first]


def refused_crowd(served: int) -> Limiter:
    """Twenty went; *served* of them are answered, the others refused; then a probe succeeds."""
    limiter = Limiter(least, limit=20)
    crowd = [asking() for _ in range(20)]
    for one in crowd:
        limiter.enter(one, 0.0)
    for one in crowd[served:]:
        limiter.refused(one, refusal(floor=1), 0.5)
    for one in crowd[:served]:
        limiter.answered(one, 0.6)
    limiter.enter(crowd[-1], 0.7)
    (probe,) = limiter.ready(2.0)
    limiter.answered(probe, 2.1)
    return limiter


def test_who_else_was_refused_tells_what_is_limited() -> None:
    """All refused: half of them go on. Some served: too many at once, so just as many less."""
    assert int(refused_crowd(served=0).service.size) == 10
    assert int(refused_crowd(served=15).service.size) == 15
    assert int(refused_crowd(served=12).service.size) == 12


def test_a_company_keeps_to_its_places() -> None:
    """10 at once for one company, whatever the service's window holds; others go on."""
    limiter = Limiter(least, limit=100)
    passed = [limiter.enter(asking("a"), 0.0) for _ in range(12)]

    assert passed == [True] * 10 + [False] * 2
    other = asking("b")
    limiter.enter(other, 0.0)
    assert limiter.ready(0.0) == [other]


def test_a_companys_own_429_stops_nobody_else() -> None:
    """Where the answer tells, only that company waits."""
    limiter = Limiter(least, limit=100)
    one, two = asking("a"), asking("b")
    limiter.enter(one, 0.0)

    limiter.refused(one, refusal(floor=5, company_only=True), 1.0)

    assert limiter.service.closed_by is None
    assert limiter.enter(two, 1.0)
    assert not limiter.enter(one, 1.0)
    assert limiter.ready(1.0) == []
    assert limiter.next_wake(1.0) == 6.0
    assert limiter.closed_by(one) is not None
    assert limiter.closed_by(two) is None
    assert limiter.ready(6.0) == [one]
    limiter.answered(one, 6.5)
    assert limiter.closed_by(one) is None


@pytest.mark.parametrize(
    ("status", "says", "closed"),
    [(429, None, "a"), (429, True, "a"), (429, False, "everybody"), (503, None, "a")],
)
def test_the_only_company_that_is_refused_has_itself_to_blame(
    status: int, says: bool | None, closed: str
) -> None:
    """Unless the answer says otherwise; once another one is refused, it is the service again."""
    limiter = Limiter(least, limit=100)
    one, two, others = asking("a"), asking("b"), [asking("b") for _ in range(4)]
    for who in (one, two, *others):
        limiter.enter(who, 0.0)
    limiter.refused(one, refusal(429, floor=5, company_only=True), 1.0)
    for other in others:
        limiter.answered(other, 1.1)
    limiter.enter(one, 6.0)

    limiter.refused(one, refusal(status, floor=5, company_only=says), 6.1)
    assert (limiter.service.closed_by is None) is (closed == "a")
    limiter.refused(two, refusal(status, floor=5), 6.1)
    assert limiter.service.closed_by is not None


def test_a_refusal_that_concerns_no_company_is_the_services() -> None:
    """However many are served that do concern one."""
    limiter = Limiter(least, limit=100)
    account, others = asking(), [asking("b") for _ in range(5)]
    for who in (account, *others):
        limiter.enter(who, 0.0)
    for other in others:
        limiter.answered(other, 1.0)

    limiter.refused(account, refusal(floor=5), 1.1)
    assert limiter.service.closed_by is not None


def test_a_probe_that_a_company_refuses_is_followed_at_once() -> None:
    """It says nothing about the service, so somebody else's has not to wait for it."""
    limiter = Limiter(least, limit=100)
    one, two = asking("a"), asking("b")
    limiter.enter(one, 0.0)
    limiter.refused(one, refusal(floor=1), 0.5)
    limiter.enter(one, 0.5)
    (probe,) = limiter.ready(1.5)
    limiter.enter(two, 1.5)

    limiter.refused(probe, refusal(floor=1, company_only=True), 1.6)
    assert limiter.ready(1.6) == [two]


def test_another_company_probes() -> None:
    """A probe that the company refused before would not tell whether others are served."""
    limiter = Limiter(least, limit=100)
    first, same, other = asking("a"), asking("a"), asking("b", Priority.PUSH)
    limiter.enter(first, 0.0)
    limiter.refused(first, refusal(floor=1), 0.5)
    limiter.enter(same, 0.5)
    limiter.enter(other, 0.5)

    assert limiter.ready(1.5) == [other]
    limiter.answered(other, 1.6)
    assert set(limiter.ready(1.6)) == {same}


def test_one_too_many_closes_no_gate() -> None:
    """A 429 without a time, while others are being answered, only takes a place away."""
    limiter = Limiter(least, limit=100)
    some = [asking() for _ in range(20)]
    for one in some:
        limiter.enter(one, 0.0)
    places = int(limiter.service.size)

    limiter.answered(some[0], 1.0)
    limiter.refused(some[1], refusal(), 1.0)
    assert limiter.service.closed_by is None
    assert int(limiter.service.size) < places
    limiter.refused(some[2], refusal(503, floor=1), 1.0)
    assert limiter.service.closed_by is not None


def test_a_503_among_answers_closes_no_gate() -> None:
    """It takes more of them than answers, and one that names a time is believed at once."""
    limiter = Limiter(least, limit=100)
    some = [asking() for _ in range(20)]
    for one in some:
        limiter.enter(one, 0.0)

    for one in some[:6]:
        limiter.answered(one, 1.0)
    places = int(limiter.service.size)
    for one in some[6:12]:
        limiter.refused(one, refusal(503), 1.0)
    assert ((limiter.service.closed_by is None), int(limiter.service.size)) == (True, places)
    limiter.refused(some[12], refusal(503), 1.0)
    assert limiter.service.closed_by is not None


def test_who_is_alone_with_a_503_takes_it_for_the_service() -> None:
    """Nobody else is there to say otherwise; neither does anybody while the gate is closed."""
    limiter = Limiter(least, limit=100)
    one, two = asking(), asking()
    limiter.enter(one, 0.0)
    limiter.refused(one, refusal(503), 1.0)
    assert limiter.service.closed_by is not None

    limiter.enter(one, 1.0)
    limiter.enter(two, 1.0)
    opens_at = limiter.service.opens_at
    (probe,) = limiter.ready(opens_at)
    limiter.ready(opens_at + PROBE_PATIENCE)
    limiter.refused(probe, refusal(503), opens_at + PROBE_PATIENCE)
    assert limiter.service.opens_at < opens_at + 2 * PROBE_PATIENCE, "the next pause has begun"


def test_a_closed_gate_names_its_answer_to_those_who_cannot_wait() -> None:
    """A deadline before the gate opens is known to be hopeless at once."""
    limiter = Limiter(least, limit=100)
    first, patient, hurried = asking(), asking(), asking()
    limiter.enter(first, 0.0)
    closing = refusal(503, floor=60)
    limiter.refused(first, closing, 0.0)

    assert limiter.closed_by(hurried, until=30) is closing
    assert limiter.closed_by(patient, until=100) is None
    assert limiter.closed_until == 60.0


def test_after_the_gate_they_leave_one_by_one() -> None:
    """Chance puts small distances between the first that leave."""
    limiter = Limiter(most, limit=100)
    first, others = asking(), [asking() for _ in range(5)]
    for one in (first, *others):
        limiter.enter(one, 0.0)
    limiter.refused(first, refusal(503, floor=1), 0.0)
    for one in others:
        limiter.unanswered(one, 0.5)
    assert not any(limiter.enter(one, 0.6) for one in (first, *others))
    (probe,) = limiter.ready(1.02)
    limiter.answered(probe, 1.1)

    leaving, now = [], 1.1
    while limiter.waiting:
        leaving += [(now, one) for one in limiter.ready(now)]
        now = limiter.next_wake(now) or now
    assert [at for at, _ in leaving] == pytest.approx([1.1, 1.11, 1.12, 1.13, 1.14])


class AnyOrder(RuleBasedStateMachine):
    """Anything may happen in any order; the books must balance all the same."""

    def __init__(self) -> None:
        super().__init__()
        self.now = 0.0
        self.limiter = Limiter(lambda limit: limit / 2, limit=6, per_company=3)
        self.under_way: list[Waiter] = []
        self.in_line: list[Waiter] = []
        self.orders: dict[int, int] = {}

    @rule(
        company=st.sampled_from([None, "a", "b", "c"]),
        priority=st.sampled_from(Priority),
    )
    def comes(self, company: str | None, priority: Priority) -> None:
        self.enter(asking(company, priority))

    def enter(self, one: Waiter) -> None:
        (self.under_way if self.limiter.enter(one, self.now) else self.in_line).append(one)

    @precondition(lambda self: self.under_way)
    @rule(data=st.data(), how=st.sampled_from(["answered", "unanswered", "unused"]))
    def comes_back(self, data: st.DataObject, how: str) -> None:
        one = self.under_way.pop(data.draw(st.integers(0, len(self.under_way) - 1)))
        getattr(self.limiter, how)(one, self.now)

    @precondition(lambda self: self.under_way)
    @rule(
        data=st.data(),
        status=st.sampled_from([429, 503]),
        floor=st.sampled_from([None, 0.5, 7.0]),
        company_only=st.sampled_from([None, True, False]),
    )
    def is_refused(
        self, data: st.DataObject, status: int, floor: float | None, company_only: bool | None
    ) -> None:
        one = self.under_way.pop(data.draw(st.integers(0, len(self.under_way) - 1)))
        self.limiter.refused(one, refusal(status, floor, company_only=company_only), self.now)
        self.enter(one)

    @precondition(lambda self: self.in_line)
    @rule(data=st.data())
    def gives_up(self, data: st.DataObject) -> None:
        self.limiter.leave_line(self.in_line.pop(data.draw(st.integers(0, len(self.in_line) - 1))))

    @rule(seconds=st.sampled_from([0.0, 0.001, 0.3, 2.0, 10.0]))
    def time_passes(self, seconds: float) -> None:
        self.now += seconds
        for one in self.limiter.ready(self.now):
            self.in_line.remove(one)
            self.under_way.append(one)

    @invariant()
    def the_books_balance(self) -> None:
        assert self.limiter.service.in_flight == len(self.under_way) <= 6
        assert self.limiter.waiting == len(self.in_line)
        by_company = Counter(one.company for one in self.under_way)
        assert all(count <= 3 for name, count in by_company.items() if name is not None)

    @invariant()
    def nobody_is_stranded(self) -> None:
        """With nobody under way, whoever waits is let through or has a time to look again."""
        self.time_passes(0.0)
        if self.in_line and not self.under_way:
            wake = self.limiter.next_wake(self.now)
            assert wake is not None
            assert wake > self.now

    def teardown(self) -> None:
        for _ in range(5000):
            for one in self.under_way:
                self.limiter.answered(one, self.now)
            self.under_way = []
            self.time_passes(0.0)
            if not self.in_line:
                break
            self.now = self.limiter.next_wake(self.now) or self.now
        assert not self.in_line, "somebody never had a turn"


TestAnyOrder = AnyOrder.TestCase
TestAnyOrder.settings = settings(max_examples=60, stateful_step_count=40)
