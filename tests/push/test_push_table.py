"""One push, one table: each state and event, and what each answer proves."""

from __future__ import annotations

from itertools import product
from typing import Any

import pytest
from msgspec import structs

from integration_sdk._http.requests import Phase
from integration_sdk._push.table import TABLE, Event, IllegalTransition, SendResult, after, classify
from integration_sdk._store.row import Lane, Mark, Result, Row, State, Verdict
from tests.support.rows import new_row

LANE = Lane("company", "books", "invoices")
SENT = {State.SENDING, State.LOST, State.DOUBT}
OWN = {"correlationId": "c", "statusCode": 1, "error": "no"}
PUSH = {"pushOperationKey": "k-1"}


def row(state: State, ghosts: int | None = None) -> Row:
    made = new_row(LANE, b"{}", id="i", reference="r", idempotency_key="key")
    facts = {"candidates": ("k",), "verdict": Verdict.UNRESOLVED, "mark": Mark()}
    ghosts = int(state in SENT) if ghosts is None else ghosts
    return structs.replace(made, version=3, state=state, ghosts=ghosts, **facts)


@pytest.mark.parametrize(("state", "event"), list(product(State, Event)))
def test_each_event_in_each_state(state: State, event: Event) -> None:
    """It leads where the table says, one version on, or cannot happen and says so."""
    if event not in TABLE[state]:
        with pytest.raises(IllegalTransition, match=event.name):
            after(row(state), event)
        return
    new = after(row(state), event)
    assert (new.state, new.version) == (TABLE[state][event], 4)
    assert (new.result is not None) == (new.state is State.DONE and event is not Event.FREED)


def test_ghosts_are_transmissions_whose_push_is_unknown() -> None:
    """One more with each, one less with an answer, a refusal or a find; a replay adds none."""
    sent = after(row(State.QUEUED), Event.SENT)
    assert sent.ghosts == 1
    for event in (Event.ANSWERED, Event.LATER, Event.REFUSED):
        assert after(sent, event).ghosts == 0
    lost = after(sent, Event.LOST)
    assert (lost.ghosts, after(lost, Event.SENT).ghosts) == (1, 1)
    doubt = after(lost, Event.UNSETTLED)
    again = after(after(doubt, Event.RESENT), Event.SENT)
    assert again.ghosts == 2
    assert after(again, Event.ANSWERED).ghosts == 1
    assert after(doubt, Event.FOUND).ghosts == after(row(State.QUEUED), Event.FOUND).ghosts == 0


def test_what_may_exist_is_not_called_refused() -> None:
    """A refusal of the second transmission says nothing about the first."""
    again = after(after(row(State.DOUBT), Event.RESENT), Event.SENT)

    assert after(again, Event.REFUSED).state is State.DOUBT
    assert after(row(State.DOUBT), Event.ABANDONED).result is Result.ABANDONED


def test_a_row_that_is_sent_again_begins_anew_and_knows_what_was() -> None:
    """Its earlier key stays its own."""
    ended = structs.replace(row(State.DONE), key="k-1", status="Failed", result=Result.ENDED)
    again = after(ended, Event.RESENT, payload=b"[]")

    assert (again.key, again.status, again.result, again.candidates) == (None, None, None, ())
    assert [(one.key, one.status) for one in again.earlier] == [("k-1", "Failed")]


def test_a_row_keeps_its_record_while_a_push_of_it_is_unknown() -> None:
    """It is what the rows of its lane are told from."""
    assert after(row(State.SENDING), Event.ANSWERED).payload is None
    assert after(row(State.SENDING, ghosts=2), Event.ANSWERED).payload == b"{}"


BODIES: dict[str, Any] = {"own": OWN, "push": PUSH, "other": {"a": 1}, "none": None}
REFUSALS = {307, 308, 400, 401, 402, 403, 404, 405, 409, 413, 415, 422, 429, 503}


@pytest.mark.parametrize("replay", [False, True])
@pytest.mark.parametrize("body", BODIES)
def test_each_answer_proves_what_the_table_says(body: str, replay: bool) -> None:
    """Each status, with each kind of body: what is not refused for sure may have happened."""
    for status in range(200, 600):
        result = SendResult(Phase.ANSWERED, status=status, body=BODIES[body])
        expected = Event.LOST
        if status in {200, 202} and body == "push":
            expected = Event.ANSWERED
        elif not replay and (status in {307, 308} or (status in REFUSALS and body == "own")):
            expected = Event.REFUSED
        assert classify(result, key_is_known=False, replay=replay) is expected
        assert classify(result, key_is_known=True) is not Event.ANSWERED


@pytest.mark.parametrize(
    ("result", "event"),
    [
        (SendResult(Phase.NEVER_LEFT), Event.REFUSED),
        (SendResult(Phase.MAY_HAVE_LEFT), Event.LOST),
        (SendResult(Phase.ANSWERED, status=301, is_moved=True), Event.REFUSED),
    ],
)
def test_what_no_service_has_answered(result: SendResult, event: Event) -> None:
    """What never left, or met an address that takes none, does not exist, if it was sent once."""
    assert classify(result, key_is_known=False) is event
    assert classify(result, key_is_known=False, replay=True) is Event.LOST
