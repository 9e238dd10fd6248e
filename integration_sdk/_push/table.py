"""One push, one table: its states, what can happen to it, and what one transmission proves.

A push is not idempotent and its answer can be lost. So its row is on record before the first byte
leaves, and everything that happens to it is an `Event`, one step of `TABLE`::

    QUEUED ----------------> DONE       withdrawn: its turn never came
    QUEUED ----> SENDING --> OPEN       answered with a key of its own
      ^             |------> QUEUED     never left, or refused for now: sent again
      |             |------> DONE       never left and not tried again, or refused by the service
      |             '------> LOST       the answer was lost: never sent again (*)
      |
      |           LOST  ---> OPEN       a listing shows which push is ours
      |               '----> DOUBT      a listing cannot settle it: absent, or unresolved
      '---------- DOUBT ---> OPEN       a later listing shows it, or the caller names it
       resent         '----> DONE       abandoned by the caller
                  OPEN  ---> DONE       polled to its end

    (*) A service that honours Idempotency-Key may be asked once more with the same key:
        LOST --> SENDING, a *replay*. Only an answer with a key ends the doubt then; a refusal of
        the replay says nothing about the first transmission.

``ghosts`` counts the transmissions whose push has not been identified: one more with each that is
sent, one less with an answer of its own, a refusal or a find. A row with ghosts is a rival for the
evidence about others, whatever its state; and it is not called unsent, since a push may exist.
"""

from collections.abc import Mapping
from enum import StrEnum
from typing import Any, Final, assert_never

from attrs import field, frozen

from integration_sdk._http import statuses
from integration_sdk._http.requests import Phase, Safety
from integration_sdk._http.statuses import Meaning
from integration_sdk._records.shapes import is_error_body
from integration_sdk._store.row import Result, Row, State, is_name
from integration_sdk.errors import IntegrationError
from integration_sdk.models import PushOperation

CREATES: Final = "POST"
"""The one method whose repetition an idempotency key prevents."""


class Event(StrEnum):
    """What can happen to a push."""

    KEPT = "put on record before its turn, since its caller no longer waits"
    SENT = "its turn has come: on record as being sent, then it leaves"
    LATER = "it never left, or was refused for now, and will be sent again"
    REFUSED = "it never left, or the service refused it, and it will not be sent again"
    WITHDRAWN = "its turn never came, and nobody will send it"
    ANSWERED = "the service answered with a key of its own"
    LOST = "no answer that can be relied on: cut off, cancelled, unreadable, a proxy's"
    FOUND = "a listing shows, or the caller says, which push is ours"
    UNSETTLED = "the search has lasted long enough, and no listing settles it"
    ENDED = "it was seen with a final status"
    RESENT = "the caller, or a corrected record, sends it again"
    ABANDONED = "the caller gives it up"
    FREED = "the caller gives its reference to another record, though it timed out"


class IllegalTransition(RuntimeError):
    """An event that cannot happen in a state: a bug of the SDK, never of the service."""


_S, _E = State, Event
TABLE: Final[Mapping[State, Mapping[Event, State]]] = {
    _S.QUEUED: {
        _E.KEPT: _S.QUEUED,
        _E.SENT: _S.SENDING,
        _E.WITHDRAWN: _S.DONE,
        _E.FOUND: _S.OPEN,  # an earlier process has sent it, and its store was restored since
    },
    _S.SENDING: {
        _E.LATER: _S.QUEUED,
        _E.REFUSED: _S.DONE,
        _E.ANSWERED: _S.OPEN,
        _E.LOST: _S.LOST,
    },
    _S.OPEN: {_E.ENDED: _S.DONE},
    _S.LOST: {_E.SENT: _S.SENDING, _E.FOUND: _S.OPEN, _E.UNSETTLED: _S.DOUBT},
    _S.DOUBT: {
        _E.FOUND: _S.OPEN,
        _E.UNSETTLED: _S.DOUBT,
        _E.RESENT: _S.QUEUED,
        _E.ABANDONED: _S.DONE,
    },
    _S.DONE: {_E.RESENT: _S.QUEUED, _E.FREED: _S.DONE},
}
"""For each state the events that can happen in it, and the state after each."""

DOUBTFUL: Final = frozenset({State.LOST, State.DOUBT})
"""States of a push whose company is searched for it."""
_RESULTS: Final = {
    Event.ENDED: Result.ENDED,
    Event.REFUSED: Result.REFUSED,
    Event.WITHDRAWN: Result.REFUSED,
    Event.ABANDONED: Result.ABANDONED,
}
_IDENTIFIED: Final = frozenset({Event.LATER, Event.REFUSED, Event.ANSWERED, Event.FOUND})
_ANEW: Final[Mapping[str, Any]] = {
    **dict.fromkeys(("key", "evidence", "result", "status", "http_status", "error", "verdict")),
    "candidates": (),
    "replays": 0,
}
"""What a row that is sent again begins with."""


def after(row: Row, event: Event, **facts: Any) -> Row:
    """Return the next version of *row*, after *event*.

    Raises:
        IllegalTransition: That cannot happen in its state.
    """
    state = TABLE[row.state].get(event)
    if state is None:
        raise IllegalTransition(f"push {row.id} is {row.state}: it cannot be {event.name}")
    if event is Event.SENT:
        change = int(row.state is not State.LOST)  # a replay is no transmission of its own
    else:
        change = -int(event in _IDENTIFIED and row.state is not State.QUEUED)
    facts["ghosts"] = ghosts = row.ghosts + change
    if event is Event.RESENT:
        facts = {**_ANEW, "earlier": (*row.earlier, row.as_attempt()), **facts}
    elif event in {Event.REFUSED, Event.WITHDRAWN} and ghosts:
        state = State.DOUBT  # an earlier transmission may own a push
    elif event in _RESULTS:
        facts["result"] = _RESULTS[event]
    if ghosts:
        facts.setdefault("payload", row.payload)  # what its ghosts can be told by
    return row.next(state, **facts)


@frozen
class SendResult:
    """The result of one transmission.

    status, body: Of a complete answer; *body* is its JSON object, None for anything else
        (truncated, HTML, a list).
    retry_after: Minimum seconds to wait, as asked by the service.
    cause: Readable reason why it was not sent, or how the answer was lost.
    operation: The push that the service answered with, if any; otherwise *error* says why not.
    is_moved: Whether the answer says that its address does not take requests, see `is_moved`.
    """

    phase: Phase
    status: int | None = None
    body: Mapping[str, object] | None = field(default=None, repr=False)
    retry_after: float | None = None
    cause: str | None = None
    operation: PushOperation | None = field(default=None, repr=False)
    error: IntegrationError | None = None
    is_moved: bool = False

    @property
    def key(self) -> str | None:
        """The pushOperationKey in *body*, if any."""
        key = (self.body or {}).get("pushOperationKey")
        return key if isinstance(key, str) and is_name(key) else None

    @property
    def said(self) -> str | None:
        """Why it was not accepted, as it is recorded."""
        error = self.cause or (self.body or {}).get("error")
        return None if error is None else str(error)

    @property
    def is_services_own(self) -> bool:
        """Whether the service itself answered, as far as its answer shows."""
        return self.operation is not None or is_error_body(self.body)


ACKNOWLEDGED: Final = frozenset({200, 202})


def classify(result: SendResult, *, key_is_known: bool, replay: bool = False) -> Event:
    """Return what the result of a transmission proves.

    ============== =============== ============================== ==========
    phase          status          body                           event
    ============== =============== ============================== ==========
    never left                                                    REFUSED
    may have left                                                 LOST
    answered       200 202         an object with an unseen key   ANSWERED
    answered       a refusal       the documented error body      REFUSED
    answered       moved           any                            REFUSED
    answered       anything else, or any other body               LOST
    ============== =============== ============================== ==========

    Which statuses are refusals `statuses.TABLE` says. Whether a refusal is for now only, and the
    push goes LATER, its holder decides.

    Args:
        result: What the transport saw.
        key_is_known: Whether its key was listed before we sent, or belongs to another row: then
            a cache or proxy answered, not the service.
        replay: Whether an earlier transmission of this row is in doubt: only ANSWERED ends that.

    Source: "Status codes", "Error body"; which of them exclude an effect is PUSH-PROTOCOL.
    """
    if result.is_moved:
        return Event.LOST if replay else Event.REFUSED
    match _meaning(result):
        case Meaning.DONE if result.status in ACKNOWLEDGED and result.key and not key_is_known:
            return Event.ANSWERED
        case Meaning.REFUSED | Meaning.AGAIN if not replay:
            return Event.REFUSED
        case Meaning.DONE | Meaning.REFUSED | Meaning.AGAIN | Meaning.IN_DOUBT | Meaning.GIVE_UP:
            return Event.LOST
        case other:
            assert_never(other)


def _meaning(result: SendResult) -> Meaning:
    if result.phase is not Phase.ANSWERED or result.status is None:
        return statuses.of_failure(Safety.WRITE, result.phase)
    return statuses.of_answer(Safety.WRITE, result.status, is_own=is_error_body(result.body))
