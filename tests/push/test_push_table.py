"""The table of a push: every state and every event, none sampled, and what an answer proves."""

from __future__ import annotations

from itertools import product
from typing import Any

import pytest
from msgspec import structs

from integration_sdk._http.requests import Phase
from integration_sdk._push.table import (
    TABLE,
    Event,
    IllegalTransition,
    SendResult,
    after,
    classify,
    may_own_unclaimed,
    new_row,
    restarted,
)
from integration_sdk._store.row import SETTLED, Lane, Row, State, Verdict

CELLS = """
             QUEUED   SENDING  OPEN   LOST     DOUBT   CLOSED  REFUSED  FINAL
    SENT     SENDING  .        .      SENDING  .       .       .        .
    LATER    .        QUEUED   .      .        .       .       .        .
    REFUSED  REFUSED  REFUSED  .      .        .       .       .        .
    ANSWERED .        OPEN     .      .        .       .       .        .
    LOST     .        LOST     .      .        .       .       .        .
    FOUND    .        .        .      OPEN     OPEN    .       .        .
    UNSETTLED .       .        .      DOUBT    DOUBT   .       .        .
    ENDED    .        .        FINAL  .        .       .       .        .
    RESENT   .        .        .      .        CLOSED  .       REFUSED  FINAL
    ABANDONED REFUSED .        .      .        CLOSED  .       .        .
    RESTARTED QUEUED  LOST     OPEN   LOST     DOUBT   CLOSED  .        .
"""
"""Written out once more: a cell that changes, changes a promise."""


def cells() -> dict[tuple[str, str], str]:
    states, *lines = [line.split() for line in CELLS.splitlines() if line.strip()]
    return {
        (event, state): after
        for event, *row in lines
        for state, after in zip(states, row, strict=True)
    }


def row(state: State, **facts: Any) -> Row:
    made = new_row(Lane("c", "d", "invoices"), b"{}", id="i")
    return structs.replace(made, state=state, **facts)


def test_each_event_in_each_state() -> None:
    """It leads where the table says, or cannot happen and says so: 88 cells."""
    expected = cells()
    assert expected.keys() == {(event.name, state.name) for event in Event for state in State}
    for event, state in product(Event, State):
        leads_to = expected[event.name, state.name]
        if leads_to == ".":
            with pytest.raises(IllegalTransition, match=f"push i is {state}.*{event.name}"):
                after(row(state), event)
        else:
            new = after(row(state, version=4), event, error="why")
            assert (new.state, new.version, new.error) == (leads_to, 5, "why")


def test_whoever_takes_over_a_row_finds_none_being_sent() -> None:
    """A row that was being sent is LOST then; a row that says what to do is left as it is."""
    for state in State:
        if state not in SETTLED:
            taken = restarted(row(state))
            assert taken.state is (State.LOST if state is State.SENDING else state)
            assert taken.version == (state is State.SENDING)


def test_no_state_is_a_dead_end() -> None:
    """From each state that asks for something, events lead to one that does not."""
    rests = SETTLED | {State.CLOSED}
    for state in State:
        seen, reached = set[State](), {state}
        while reached - seen:
            seen |= reached
            reached = {there for here in seen for there in TABLE[here].values()}
        assert seen & rests


def test_nothing_leaves_a_settled_state() -> None:
    """Neither an end nor a refusal ever changes; a decision is added to it at most."""
    for state in SETTLED:
        assert set(TABLE[state].values()) == {state}


def test_a_row_goes_back_only_to_be_sent_again() -> None:
    """Refused for now, or a replay under the same idempotency key; never from an end."""
    order = ["QUEUED", "SENDING", "LOST", "DOUBT", "OPEN", "CLOSED", "REFUSED", "FINAL"]
    back = {
        (here.name, there.name)
        for here in State
        for there in TABLE[here].values()
        if order.index(there.name) < order.index(here.name)
    }

    assert back == {("SENDING", "QUEUED"), ("LOST", "SENDING")}


def test_a_push_without_a_key_that_may_have_left_is_a_rival() -> None:
    """What never left, was refused, or has its own key, owns no unclaimed push."""
    rivals = {state for state in State if may_own_unclaimed(row(state))}

    assert rivals == {State.SENDING, State.LOST, State.DOUBT, State.CLOSED}
    assert not any(may_own_unclaimed(row(state, key="k")) for state in State)


def test_a_row_drops_what_its_state_needs_no_more() -> None:
    """What is open or settled is neither sent nor searched for again."""
    doubt = row(State.DOUBT, candidates=("k-1",), verdict=Verdict.UNRESOLVED)
    found = after(doubt, Event.FOUND, key="k-1")
    closed = after(doubt, Event.RESENT, decision="resend")

    assert (found.payload, found.candidates, found.verdict) == (None, (), None)
    assert (closed.payload, closed.candidates) == (b"{}", ("k-1",))


# What one transmission proves

OWN_ERROR = {
    "statusCode": 400,
    "service": "the service",
    "error": "no",
    "correlationId": "c",
    "validation": {"errors": [], "warnings": []},
}
BODIES: dict[str, Any] = {
    "a key": {"pushOperationKey": "k", "status": "Pending"},
    "the documented error": OWN_ERROR,
    "a proxy's object": {"message": "no"},
    "no object": None,
    "an empty key": {"pushOperationKey": ""},
    "half a character": {"pushOperationKey": "\ud800"},
}
REFUSALS = {400, 401, 402, 403, 404, 405, 409, 413, 415, 422, 429}


def proves(
    status: int, body: str, *, key_is_known: bool, replay: bool, refuses_with_503: bool
) -> Event:
    """Return what an answer proves, in plain words."""
    if status in {200, 202} and body == "a key" and not key_is_known:
        return Event.ANSWERED
    refusals = REFUSALS | ({503} if refuses_with_503 else set())
    if status in refusals and body == "the documented error" and not replay:
        return Event.REFUSED
    return Event.LOST


def test_what_each_answer_proves() -> None:
    """Each status, with each kind of body: what is not refused for sure may have happened."""
    flags = ("key_is_known", "replay", "refuses_with_503")
    for status, (name, body) in product(range(100, 600), BODIES.items()):
        for values in product((False, True), repeat=3):
            told = dict(zip(flags, values, strict=True))
            result = SendResult(Phase.ANSWERED, status=status, body=body)
            assert classify(result, **told) is proves(status, name, **told), (status, name, told)


@pytest.mark.parametrize("replay", [False, True])
def test_what_a_missing_answer_proves(replay: bool) -> None:
    """What never left does not exist, unless it was sent before."""
    told = {
        phase: classify(SendResult(phase), key_is_known=False, replay=replay)
        for phase in (Phase.NEVER_LEFT, Phase.MAY_HAVE_LEFT)
    }

    refused = Event.LOST if replay else Event.REFUSED
    assert told == {Phase.NEVER_LEFT: refused, Phase.MAY_HAVE_LEFT: Event.LOST}


def test_a_row_of_an_update_has_no_idempotency_key() -> None:
    """The service honours keys of creates alone."""
    lane = Lane("c", "d", "invoices")
    made = {
        method: new_row(lane, b"{}", id="i", method=method, idempotency_key="k").idempotency_key
        for method in ("POST", "PUT", "DELETE")
    }

    assert made == {"POST": "k", "PUT": None, "DELETE": None}
