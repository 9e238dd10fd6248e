"""What holds calls back, each by itself: gate, window and pace."""

from __future__ import annotations

import math
from itertools import pairwise
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from integration_sdk._http.limits import (
    LONGEST_PROBE_INTERVAL,
    MOST_IN_VAIN,
    PROBE_PATIENCE,
    AimdLimit,
    RatePacer,
    RetryAfterGate,
)
from tests.session_support import least, most, refusal

FLOORS = st.one_of(st.none(), st.floats(0.01, 1e6))


# The gate


@given(FLOORS, st.sampled_from([least, most]))
def test_a_named_time_is_never_undercut(floor: float | None, jitter: Any) -> None:
    """``Retry-After`` is a floor: jitter adds to it, within 2 per cent or the own pause."""
    gate = RetryAfterGate()

    gate.refused(refusal(floor=floor), 1.0, 99.0, 100.0, jitter)

    assert not gate.admits(100.0)
    assert gate.opens_at >= 100.0 + (floor or 0.05)
    assert gate.opens_at <= 100.0 + max(1.0, 1.02 * (floor or 0.0) + 0.001)


def test_processes_do_not_come_back_at_the_same_moment() -> None:
    """Each adds up to 2 per cent to the time that the service names."""
    opens = []
    for jitter in (least, most):
        gate = RetryAfterGate()
        gate.refused(refusal(floor=50), 1.0, 0.0, 0.0, jitter)
        opens.append(gate.opens_at)

    assert opens == pytest.approx([50.0, 51.0])


def test_one_probe_goes_and_the_others_wait_for_it() -> None:
    """After the pause the gate lets a single request out, and another only if that takes long."""
    gate = RetryAfterGate()
    gate.refused(refusal(floor=5), 1.0, 0.0, 0.0, least)
    assert [gate.admits(at) for at in (4.9, 5.0)] == [False, True]

    gate.passed(5.0)

    assert not gate.admits(5.0 + PROBE_PATIENCE - 0.1)
    assert gate.admits(5.0 + PROBE_PATIENCE)
    assert gate.answered(sent_at=5.0)
    assert gate.is_open


def test_late_answers_neither_open_nor_lengthen() -> None:
    """Requests that left before it closed say nothing about whether it may open."""
    gate = RetryAfterGate()
    gate.refused(refusal(floor=5), 1.0, 0.0, 1.0, least)

    assert not gate.answered(sent_at=0.5)
    gate.unanswered(0.5, 1.5, most)
    for _ in range(20):
        gate.refused(refusal(), 1.0, 0.5, 1.5, most)

    assert gate.opens_at == 6.0
    gate.refused(refusal(floor=8), 1.0, 0.5, 2.0, least)
    assert gate.opens_at == 10.0
    gate.refused(refusal(floor=1), 1.0, 0.5, 2.0, least)
    assert gate.opens_at == 10.0, "a shorter time replaces no longer one"


def test_refused_probes_come_ever_more_rarely() -> None:
    """Without a named time the pauses double up to a limit that still notices recovery soon."""
    gate, now, pauses = RetryAfterGate(), 0.0, []
    for _ in range(6):
        gate.refused(refusal(503), 1.0, now, now, most)
        pauses.append(gate.opens_at - now)
        now = gate.opens_at
        gate.passed(now)

    assert pauses == [1.0, 2.0, 4.0, *[LONGEST_PROBE_INTERVAL] * 3]
    gate.answered(now)
    gate.refused(refusal(503), 1.0, now, now, most)
    assert gate.opens_at - now == 1.0, "an open gate starts anew"


def test_a_gate_opens_after_an_outage_of_any_length() -> None:
    """Also after more probes than a float can be doubled."""
    gate, now = RetryAfterGate(), 0.0
    for _ in range(2000):
        gate.refused(refusal(429), 1.0, now, now, most)
        now = gate.opens_at
        gate.passed(now)

    assert gate.answered(now)
    assert gate.is_open


def test_a_lost_probe_is_followed_by_another() -> None:
    """A probe without an answer keeps the gate closed for a while, an unused one does not."""
    gate = RetryAfterGate()
    gate.refused(refusal(floor=5), 1.0, 0.0, 0.0, least)
    gate.passed(5.0)
    gate.unused(5.0, 5.1)
    assert gate.admits(5.1)

    gate.passed(5.1)
    gate.unanswered(5.1, 5.5, most)

    assert not gate.admits(5.6)
    assert gate.admits(5.5 + LONGEST_PROBE_INTERVAL)


@pytest.mark.parametrize("end", ["refused", "unanswered", "unused"])
def test_what_becomes_of_a_probe_undercuts_no_time_named_meanwhile(end: str) -> None:
    """An answer that came late named a time, and a probe was under way: the time stands."""
    gate = RetryAfterGate()
    gate.refused(refusal(), 1.0, 1.0, 1.0, least)
    gate.passed(2.0)
    gate.refused(refusal(floor=60), 1.0, 0.5, 2.5, least)

    if end == "refused":
        gate.refused(refusal(), 1.0, 2.0, 3.0, least)
    elif end == "unanswered":
        gate.unanswered(2.0, 3.0, least)
    else:
        gate.unused(2.0, 3.0)

    assert gate.opens_at == 62.5


# The window


def grow(window: AimdLimit, rounds: int) -> None:
    for _ in range(rounds):
        for _ in range(window.places):
            window.answered(window.places)


def test_a_used_window_grows_by_one_place_a_round() -> None:
    """Additive increase; a window that is not used up proves nothing and stays."""
    window = AimdLimit(100, 20.0)
    grow(window, 10)
    assert window.places in {29, 30}
    for _ in range(1000):
        window.answered(5)
    assert window.places in {29, 30}


def test_a_crowd_that_is_refused_halves_it_once() -> None:
    """Multiplicative decrease: all that were under way count as one refusal."""
    window = AimdLimit(100, 20.0)
    for left in range(20, 0, -1):
        window.refused(left, sent_at=0.0, now=1.0)

    assert window.places == 10


def test_one_too_many_costs_one_place() -> None:
    """A concurrency limit takes back just what was over it."""
    window = AimdLimit(100, 11.0)
    window.refused(11, sent_at=0.0, now=1.0)
    for left in range(10, 0, -1):
        window.answered(left)

    assert window.places == 10


def test_a_known_limit_is_touched_ever_more_rarely() -> None:
    """Each round of refusals doubles the patience; a limit that is gone halves it again."""
    window, now, answers = AimdLimit(100, 10.0), 0.0, []
    for _ in range(6):
        count = 0
        while window.places <= 10:
            window.answered(window.places)
            count += 1
        now += 1
        window.refused(11, sent_at=now, now=now)
        answers.append(count)

    assert all(later > 1.5 * sooner for sooner, later in pairwise(answers))
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
    window = AimdLimit(100, 20.0)
    for good, in_flight, sent_at, now in events:
        if good:
            window.answered(in_flight)
        else:
            window.refused(in_flight, sent_at, now)
        assert 1 <= window.places <= 100
        assert 1 <= window.patience <= 64


def test_the_last_place_is_for_the_urgent() -> None:
    """Bulk leaves one place of several free; a small window has none to spare."""
    assert [AimdLimit(10, 10.0).has_room(9, urgent=urgent) for urgent in (True, False)] == [
        True,
        False,
    ]
    assert AimdLimit(10, 3.0).has_room(2, urgent=False)
    assert not AimdLimit(10, 10.0).has_room(10, urgent=True)


# The pace


def test_nothing_is_learnt_while_nobody_is_refused() -> None:
    """Without refusals there is no rate."""
    pace = RatePacer()
    for at in range(1000):
        pace.passed(at / 100)
        pace.answered(at / 100)

    assert pace.learnt == math.inf


def test_the_rate_served_is_the_rate_learnt() -> None:
    """100 answers, then a second's pause: about 100 a second."""
    pace = RatePacer()
    pace.passed(0.0)
    for at in range(100):
        pace.answered(at / 1000)
    pace.closed(0.1)
    pace.opened(1.1, limited=True)

    assert pace.learnt == pytest.approx(100)
    assert pace.next_at == pytest.approx(1.11)


def test_one_bad_cycle_halves_the_rate_at_most() -> None:
    """A short cycle has too few answers to tell."""
    pace = RatePacer()
    pace.passed(0.0)
    for at in range(100):
        pace.answered(at / 1000)
    pace.closed(0.1)
    pace.opened(1.1, limited=True)
    pace.passed(1.2)
    pace.answered(1.2)
    pace.closed(2.0)
    pace.opened(12.0, limited=True)

    assert pace.learnt == pytest.approx(50)


def test_a_rate_that_is_not_the_cause_is_forgotten() -> None:
    """If refusals come as soon as before however often it is lowered, something else is limited."""
    pace, now, learnt = RatePacer(), 0.0, []
    for _ in range(MOST_IN_VAIN + 2):
        pace.passed(now)
        pace.answered(now)
        pace.closed(now + 0.1)
        pace.opened(now + 0.2, limited=True)
        learnt.append(pace.is_learnt)
        now += 0.2

    assert learnt == [True] * (MOST_IN_VAIN + 1) + [False]


def test_a_long_open_gate_loses_too_little_to_slow_down() -> None:
    """A refusal now and then sets no pace, nor does one that refused only some."""
    for open_for, limited in ((60.0, True), (0.1, False)):
        pace = RatePacer()
        pace.passed(0.0)
        pace.answered(0.0)
        pace.closed(open_for)
        pace.opened(open_for + 1, limited=limited)
        assert pace.learnt == math.inf


def test_a_rate_that_is_waited_for_grows_and_is_forgotten() -> None:
    """Held back and never refused, it grows until there is nothing to hold back."""
    pace, now = RatePacer(), 0.0
    pace.passed(now)
    pace.answered(now)
    pace.closed(now)
    pace.opened(1.0, limited=True)
    slow = pace.learnt
    for step in range(200):
        now = 1.0 + step * 0.25
        pace.next_at = now + 1
        pace.admits(now)
        pace.answered(now)

    assert slow <= 1.0
    assert pace.learnt == math.inf


def test_refusals_without_a_single_answer_teach_no_rate() -> None:
    """Somebody else may have used up the limit; that says nothing about what it is."""
    pace = RatePacer()
    pace.passed(0.0)
    pace.closed(0.1)
    pace.opened(1.1, limited=True)

    assert pace.learnt == math.inf


def test_the_slower_of_two_rates_gains_on_the_faster() -> None:
    """So processes that share a limit come to share it equally, whoever began with more."""
    paces = [RatePacer(), RatePacer()]
    for pace, served in zip(paces, (5, 95), strict=True):
        pace.passed(0.0)
        for _ in range(served):
            pace.answered(0.0)
        pace.closed(0.1)
        pace.opened(1.1, limited=True)
    now, before = 1.1, paces[0].learnt / paces[1].learnt

    for _ in range(10):  # each time both are refused after six seconds
        for _ in range(12):
            now += 0.5
            for pace in paces:
                pace.next_at = now + 1
                pace.admits(now)
                for _ in range(int(pace.learnt / 2)):
                    pace.answered(now)
        for pace in paces:
            pace.closed(now)
            pace.opened(now + 0.1, limited=True)
        now += 0.1

    assert paces[0].learnt / paces[1].learnt > 2 * before
