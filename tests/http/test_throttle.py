"""Taking turns: lanes, priorities, gates and places, without a clock."""

from __future__ import annotations

import gc
from collections import Counter

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from integration_sdk import Priority
from integration_sdk._http.limiter import Limiter
from integration_sdk._http.limits import PROBE_PATIENCE, Lane, Waiter
from integration_sdk._http.responses import Response


def asking(company: str | None = None, priority: Priority = Priority.INTERACTIVE) -> Waiter:
    return Waiter(company, priority)


def least(_most: float) -> float:
    """Return the smallest that chance can draw."""
    return 0.0


def refusal(
    status: int = 429, floor: float | None = None, *, company_only: bool | None = None
) -> Response:
    headers = {} if floor is None else {"Retry-After": str(floor)}
    if company_only is not None:
        headers["X-Rate-Limit-Remaining"] = str(int(company_only))
    return Response(status=status, headers=headers)


def order_of(limiter: Limiter, first: Waiter) -> list[Waiter]:
    """Answer *first* and then let all others through, one after the other."""
    order = [first]
    while limiter.waiting:
        limiter.answered(order[-1], 0.0)
        order += limiter.ready(0.0)
    return order[1:]


def line_behind(*waiting: Waiter) -> tuple[Limiter, Waiter]:
    """Return a limiter with one place, and the call that has it; others wait behind it."""
    limiter, first = Limiter(least, limit=1), asking()
    assert limiter.enter(first, 0.0)
    assert not any(limiter.enter(one, 0.0) for one in waiting)
    return limiter, first


def of(limiter: Limiter, *companies: str) -> list[Waiter]:
    """Return calls of *companies* that have been sent."""
    calls = [asking(company) for company in companies]
    assert all(limiter.enter(one, 0.0) for one in calls)
    return calls


def test_the_urgent_go_first_and_none_waits_for_ever() -> None:
    """By priority, but one turn in eight goes to the least urgent."""
    waiting = [asking(priority=one) for one in reversed(Priority) for _ in range(16)]
    order = [one.priority for one in order_of(*line_behind(*waiting))]

    assert Counter(order[:16])[Priority.INTERACTIVE] >= 13
    assert Priority.PREFETCH in order[:8]
    assert len(order) == 64


def test_the_order_stays_while_others_give_up() -> None:
    """First in, first out, whichever calls leave between them."""
    waiting = [asking("a") for _ in range(10_000)]
    limiter, first = line_behind(*waiting)
    for number, one in enumerate(waiting):
        if number % 1000:
            limiter.leave_line(one)

    assert order_of(limiter, first) == waiting[::1000]


@pytest.mark.parametrize(("served", "places"), [(0, 10), (15, 15), (12, 12)])
def test_who_else_was_refused_tells_what_is_limited(served: int, places: int) -> None:
    """All of 20 refused: half of them go on. Some served: just as many are allowed at once."""
    limiter = Limiter(least, limit=20)
    crowd = of(limiter, *(["a", "b"] * 10))
    for one in crowd[served:]:
        limiter.refused(one, refusal(floor=1), 0.5)
    for one in crowd[:served]:
        limiter.answered(one, 0.6)

    assert int(limiter.service.size) == places


def test_a_companys_own_429_stops_no_other() -> None:
    """Where the answer tells, only that company waits."""
    limiter = Limiter(least, limit=100)
    one, two = of(limiter, "a", "b")

    limiter.refused(one, refusal(floor=5, company_only=True), 1.0)

    assert limiter.service.closed_by is None
    assert limiter.enter(asking("b"), 1.0)
    assert not limiter.enter(one, 1.0)
    assert (limiter.ready(1.0), limiter.next_wake(1.0), limiter.held_back()) == ([], 6.0, {"a"})
    assert limiter.closed_by(one) is not None
    assert limiter.closed_by(two) is None
    assert limiter.ready(6.0) == [one]
    limiter.answered(one, 6.5)
    assert limiter.closed_by(one) is None


@pytest.mark.parametrize(
    ("status", "company_only", "concerns_all"),
    [(429, None, False), (429, True, False), (429, False, True), (503, None, False)],
)
def test_a_company_that_is_refused_again_while_others_are_served_is_limited(
    status: int, company_only: bool | None, concerns_all: bool
) -> None:
    """Unless the answer says otherwise; once another one is refused, it is the service again."""
    limiter = Limiter(least, limit=100)
    one, two, *others = of(limiter, *"abbbbb")
    limiter.refused(one, refusal(429, floor=5, company_only=True), 1.0)
    for other in others:
        limiter.answered(other, 1.1)
    limiter.enter(one, 6.0)

    limiter.refused(one, refusal(status, floor=5, company_only=company_only), 6.1)
    assert (limiter.service.closed_by is not None) is concerns_all
    limiter.refused(two, refusal(status, floor=5), 6.1)
    assert limiter.service.closed_by is not None


def test_a_closed_gate_lets_one_probe_through_at_a_time() -> None:
    """Another company's, if there is one; a probe without an answer for long is not alone."""
    limiter = Limiter(least, limit=100)
    first, old = of(limiter, "a", "a")
    limiter.refused(first, refusal(503, floor=1), 0.5)
    waiting = [asking("a"), asking("a"), asking("b", Priority.PUSH)]
    assert not any(limiter.enter(one, 0.5) for one in waiting)

    limiter.answered(old, 0.6)
    assert limiter.ready(1.4) == [], "an old answer opens nothing"
    assert limiter.ready(1.5) == waiting[2:]
    assert limiter.ready(1.5 + PROBE_PATIENCE) == waiting[:1]
    limiter.answered(waiting[2], 3.6)
    assert limiter.ready(3.6) == waiting[1:2]


@pytest.mark.parametrize("outcome", ["answered", "refused", "unanswered", "unused"])
def test_what_becomes_of_a_probe_ends_no_pause_that_was_named_meanwhile(outcome: str) -> None:
    """``Retry-After`` is kept, though it comes late, with the answer to an older request."""
    limiter = Limiter(least, limit=100)
    first, old = of(limiter, "a", "b")
    limiter.refused(first, refusal(503), 1.0)
    probe, behind = asking("c"), asking("d")
    assert not any(limiter.enter(one, 1.0) for one in (probe, behind))
    assert limiter.ready(2.0) == [probe]
    limiter.refused(old, refusal(429, floor=30), 2.1)

    more = (refusal(503),) if outcome == "refused" else ()
    getattr(limiter, outcome)(probe, *more, 2.2)
    assert limiter.ready(32.0) == []
    assert limiter.ready(32.1) == [behind]


@pytest.mark.parametrize("status", [429, 503])
def test_one_too_many_closes_no_gate(status: int) -> None:
    """A refusal that names no time, while others are answered; a 429 takes a place away."""
    limiter = Limiter(least, limit=100)
    some = of(limiter, *("ab" * 10))
    limiter.answered(some[0], 1.0)
    places = int(limiter.service.size)

    limiter.refused(some[1], refusal(status), 1.0)
    assert limiter.service.closed_by is None
    assert (int(limiter.service.size) < places) is (status == 429)
    limiter.refused(some[2], refusal(503, floor=1), 1.0)
    assert limiter.service.closed_by is not None


class AnyOrder(RuleBasedStateMachine):
    """Anything may happen in any order; the books must balance all the same."""

    def __init__(self) -> None:
        super().__init__()
        self.now = 0.0
        self.limiter = Limiter(lambda limit: limit / 2, limit=6, per_company=3)
        self.under_way: list[Waiter] = []
        self.in_line: list[Waiter] = []

    @rule(company=st.sampled_from([None, "a", "b", "c"]), priority=st.sampled_from(Priority))
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
    def none_is_stranded(self) -> None:
        """With none under way, calls in line are let through or have a time to look again."""
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
        assert not self.in_line, "a call never had a turn"


TestAnyOrder = AnyOrder.TestCase
TestAnyOrder.settings = settings(max_examples=40, stateful_step_count=30)


@pytest.mark.parametrize("in_outage", [True, False])
@pytest.mark.parametrize("companies", [1, 10_000])
def test_calls_and_companies_of_the_past_are_forgotten(companies: int, in_outage: bool) -> None:
    """Those that gave up at a closed gate, and were refused once, in a process of months."""
    before = sum(isinstance(one, Lane | Waiter) for one in gc.get_objects())
    limiter, patient = Limiter(least), asking("patient")
    if in_outage:
        limiter.enter(patient, 0.0)
        limiter.refused(patient, refusal(503, floor=100_000), 0.0)

    for number in range(10_000):
        call = asking(f"c{number % companies}")
        if limiter.enter(call, float(number)):
            limiter.refused(call, refusal(company_only=True), float(number))
        else:
            limiter.leave_line(call)

    gc.collect()
    assert sum(isinstance(one, Lane | Waiter) for one in gc.get_objects()) - before < 4_000
