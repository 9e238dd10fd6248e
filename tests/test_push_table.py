"""The table of a push: every state and every event, none sampled."""

from __future__ import annotations

import pytest

from integration_sdk._push.table import (
    DECIDABLE,
    DUTY,
    TABLE,
    Duty,
    Event,
    IllegalTransition,
    after,
    may_own_unclaimed,
)
from integration_sdk._store.row import DOUBTED, NOT_THERE, SETTLED, Intent, Lane, State

EXPECTED = {
    "QUEUED": "SENT>SENDING NEVER_LEFT>NOT_SENT REFUSED>REJECTED RESTARTED>QUEUED",
    "SENDING": "LATER>QUEUED NEVER_LEFT>NOT_SENT REFUSED>REJECTED ANSWERED>ACKED LOST>AMBIGUOUS "
    "RESTARTED>AMBIGUOUS",
    "NOT_SENT": "RESENT>NOT_SENT RESTARTED>NOT_SENT",
    "REJECTED": "RESENT>REJECTED RESTARTED>REJECTED",
    "ACKED": "POLLED>ACKED ENDED>FINAL RESTARTED>ACKED",
    "AMBIGUOUS": "SENT>SENDING FOUND>RESOLVED MISSING>ABSENT UNCLEAR>UNRESOLVED "
    "RESTARTED>AMBIGUOUS",
    "RESOLVED": "POLLED>RESOLVED ENDED>FINAL RESTARTED>RESOLVED",
    "ABSENT": "FOUND>LATE MISSING>ABSENT UNCLEAR>ABSENT RESENT>DECIDED ABANDONED>DECIDED "
    "BOUND>LATE RESTARTED>ABSENT",
    "UNRESOLVED": "FOUND>LATE MISSING>UNRESOLVED UNCLEAR>UNRESOLVED RESENT>DECIDED "
    "ABANDONED>DECIDED BOUND>LATE RESTARTED>UNRESOLVED",
    "LATE": "POLLED>LATE ENDED>FINAL RESTARTED>LATE",
    "DECIDED": "RESTARTED>DECIDED",
    "FINAL": "RESENT>FINAL RESTARTED>FINAL",
}
"""Written out once more: a cell that changes, changes a promise."""
TELLS_NOTHING = {Event.NOTIFIED, Event.EXPIRED, Event.FENCED}
SENDING_AGAIN = {(State.SENDING, State.QUEUED), (State.AMBIGUOUS, State.SENDING)}
"""Back to an earlier state: refused for now, or a replay under the same idempotency key."""


def row(state: State, key: str | None = None) -> Intent:
    return Intent(id="i", lane=Lane("c", "d", "invoices"), state=state, key=key)


@pytest.mark.parametrize("event", Event)
@pytest.mark.parametrize("state", State)
def test_each_event_in_each_state(state: State, event: Event) -> None:
    """It leads where the table says, or cannot happen and says so."""
    steps = dict(step.split(">") for step in EXPECTED[state].split())
    expected = state if event in TELLS_NOTHING else steps.get(event.name)

    if expected is None:
        with pytest.raises(IllegalTransition, match=f"intent i is {state}"):
            after(row(state), event)
    else:
        assert after(row(state), event).state == expected


@pytest.mark.parametrize("state", State)
def test_each_state_has_a_duty_and_a_restart(state: State) -> None:
    """Whoever takes over a row knows what to do with it, whatever it was left in."""
    assert state in DUTY
    assert after(row(state), Event.RESTARTED).state is not State.SENDING


@pytest.mark.parametrize("state", [one for one in State if DUTY[one] is not Duty.REST])
def test_no_state_is_a_dead_end(state: State) -> None:
    """From each state with a duty, events lead to one that asks for nothing more."""
    seen, reached = set[State](), {state}
    while reached - seen:
        seen |= reached
        reached = {there for here in seen for there in TABLE[here].values()}

    assert {DUTY[one] for one in seen} >= {Duty.REST}


def test_a_row_goes_back_only_to_be_sent_again() -> None:
    """The rank of a state never falls but for what is refused for now, and for a replay."""
    rank = {state: number for number, state in enumerate(ORDER)}
    back = {
        (here, there)
        for here in State
        for there in TABLE[here].values()
        if rank[there] < rank[here]
    }

    assert back == SENDING_AGAIN


ORDER = [
    State.QUEUED,
    State.SENDING,
    State.NOT_SENT,
    State.REJECTED,
    State.AMBIGUOUS,
    State.ABSENT,
    State.UNRESOLVED,
    State.ACKED,
    State.RESOLVED,
    State.LATE,
    State.DECIDED,
    State.FINAL,
]


def test_nothing_leaves_a_settled_state() -> None:
    """Neither an end nor a refusal ever changes; a decision is added to it at most."""
    for state in SETTLED:
        assert set(TABLE[state].values()) == {state}


def test_only_what_may_have_left_is_searched_for_or_in_doubt() -> None:
    """The store's sets and the table's duties are two views of one thing."""
    assert {one for one in State if DUTY[one] in {Duty.SEARCH, Duty.DECIDE}} == DOUBTED
    assert {one for one in State if DUTY[one] is Duty.DECIDE} == DECIDABLE
    assert {one for one in State if DUTY[one] is Duty.REST} == SETTLED | {State.DECIDED}
    assert NOT_THERE < SETTLED


@pytest.mark.parametrize("state", State)
def test_a_push_without_a_key_that_may_have_left_is_a_rival(state: State) -> None:
    """What never left, was refused, or has its own key, owns no unclaimed push."""
    may_have_left = state in DOUBTED | {State.SENDING, State.DECIDED}

    assert may_own_unclaimed(row(state)) == may_have_left
    assert not may_own_unclaimed(row(state, key="k"))
