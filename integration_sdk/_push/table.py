"""One push, one table: its states, what can happen to it, and what one transmission proves.

A push is not idempotent and its answer can be lost. So its row is on record before the first byte
leaves, and everything that happens to it is an `Event`, one step of `TABLE`::

    QUEUED ----> SENDING --> OPEN       answered with a key of its own
      ^             |------> QUEUED     never left, or refused for now: sent again by itself
      |             |------> REFUSED    never left and nobody tries again, or refused by the service
      |             '------> LOST       the answer was lost: never sent again (*)
      |
    a new row     LOST  ---> OPEN       a listing shows which push is ours
    sent by the         '--> DOUBT      a listing cannot settle it: absent, or unresolved
    caller's      DOUBT ---> OPEN       a later listing, or the caller, tells which push is ours
    decision            '--> CLOSED     by the caller: resend or abandon
      '-------------------------'
    OPEN  -----------------> FINAL      polled to its end; never changes again

    (*) A service that honours Idempotency-Key may be asked once more with the same key:
        LOST --> SENDING, a *replay*. Only an answer with a key ends the doubt then; a refusal of
        the replay says nothing about the first transmission.

The state alone says what is to be done, whichever process reads the row: `dispatcher` has one
place for it. A CLOSED row is kept: its own request may still turn up at the service, and must not
be mistaken for another's.
"""

import hashlib
from collections.abc import Mapping
from enum import StrEnum
from types import MappingProxyType
from typing import Final, assert_never

from attrs import field, frozen

from integration_sdk._http import statuses
from integration_sdk._http.requests import Phase, Safety
from integration_sdk._http.statuses import Meaning
from integration_sdk._push.agreement import natural_value
from integration_sdk._records.shapes import is_error_body
from integration_sdk._store.row import Lane, Row, State, is_keepable
from integration_sdk.errors import IntegrationError
from integration_sdk.models import PushOperation

CREATES: Final = "POST"
"""The one method whose repetition an idempotency key prevents."""


class Event(StrEnum):
    """What can happen to a push."""

    SENT = "its turn has come: on record as being sent, then it leaves"
    LATER = "it never left, or was refused for now, and will be sent again"
    REFUSED = "it never left, or the service refused it, and it will not be sent again"
    ANSWERED = "the service answered with a key of its own"
    LOST = "no answer that can be relied on: cut off, cancelled, unreadable, a proxy's"
    FOUND = "a listing shows, or the caller says, which push is ours"
    UNSETTLED = "the search has lasted long enough, and no listing settles it"
    ENDED = "it was seen with a final status"
    RESENT = "the caller, or a corrected record, sends it as a new push"
    ABANDONED = "the caller gives it up, or it will not be sent"
    RESTARTED = "its process has ended, or its task; whoever takes it over goes on"


class IllegalTransition(RuntimeError):
    """An event that cannot happen in a state: a bug of the SDK, never of the service."""


_S, _E = State, Event
TABLE: Final[Mapping[State, Mapping[Event, State]]] = MappingProxyType(
    {
        _S.QUEUED: {
            _E.SENT: _S.SENDING,
            _E.REFUSED: _S.REFUSED,
            _E.ABANDONED: _S.REFUSED,
            _E.RESTARTED: _S.QUEUED,
        },
        _S.SENDING: {
            _E.LATER: _S.QUEUED,
            _E.REFUSED: _S.REFUSED,
            _E.ANSWERED: _S.OPEN,
            _E.LOST: _S.LOST,
            _E.RESTARTED: _S.LOST,
        },
        _S.OPEN: {_E.ENDED: _S.FINAL, _E.RESTARTED: _S.OPEN},
        _S.LOST: {
            _E.SENT: _S.SENDING,
            _E.FOUND: _S.OPEN,
            _E.UNSETTLED: _S.DOUBT,
            _E.RESTARTED: _S.LOST,
        },
        _S.DOUBT: {
            _E.FOUND: _S.OPEN,
            _E.UNSETTLED: _S.DOUBT,
            _E.RESENT: _S.CLOSED,
            _E.ABANDONED: _S.CLOSED,
            _E.RESTARTED: _S.DOUBT,
        },
        _S.CLOSED: {_E.RESTARTED: _S.CLOSED},
        # Its reference may be given to a corrected record; the row itself stays as it is.
        _S.REFUSED: {_E.RESENT: _S.REFUSED},
        _S.FINAL: {_E.RESENT: _S.FINAL},
    }
)
"""For each state the events that can happen in it, and the state after each."""

_MAY_OWN: Final = frozenset({_S.SENDING, _S.LOST, _S.DOUBT, _S.CLOSED})


def after(row: Row, event: Event, **changes: object) -> Row:
    """Return the next version of *row*, after *event*.

    Raises:
        IllegalTransition: That cannot happen in its state.
    """
    state = TABLE[row.state].get(event)
    if state is None:
        raise IllegalTransition(f"push {row.id} is {row.state}: it cannot be {event.name}")
    return row.to(state, **changes)


def restarted(row: Row) -> Row:
    """Return the row as whoever takes it over has to see it; the same where nothing changes."""
    if TABLE[row.state].get(Event.RESTARTED, row.state) is row.state:
        return row
    return after(row, Event.RESTARTED, error="the process ended while this push was being sent")


def may_own_unclaimed(row: Row) -> bool:
    """Whether an unclaimed push of the service may be this one."""
    return row.key is None and row.state in _MAY_OWN


def new_row(
    lane: Lane,
    payload: bytes,
    *,
    id: str,  # noqa: A002  # the field's own name
    method: str = CREATES,
    natural_key: str | None = None,
    record_id: str | None = None,
    reference: str | None = None,
    idempotency_key: str | None = None,
    timeout_minutes: int | None = None,
    hashed: bool = True,
) -> Row:
    """Return the row of a push that has not been sent yet.

    Raises:
        ValueError: The payload has no value at *natural_key*.
    """
    return Row(
        id=id,
        lane=lane,
        method=method,
        payload=payload,
        payload_hash=hashlib.sha256(payload).hexdigest() if hashed else "",
        natural_key=natural_key,
        natural_value=natural_value(payload, natural_key),
        record_id=record_id,
        reference=reference,
        idempotency_key=idempotency_key if method == CREATES else None,
        timeout_minutes=timeout_minutes,
    )


def sent_again(row: Row, row_id: str, idempotency_key: str | None) -> tuple[Row, Row]:
    """Return *row* as decided to be sent again, and the new row that is sent for it.

    The old one stays a rival: its push may exist after all.
    """
    return after(row, Event.RESENT, decision="resend"), Row(
        id=row_id,
        lane=row.lane,
        method=row.method,
        record_id=row.record_id,
        payload_hash=row.payload_hash,
        natural_key=row.natural_key,
        natural_value=row.natural_value,
        reference=row.reference,
        timeout_minutes=row.timeout_minutes,
        parent=row.id,
        idempotency_key=idempotency_key if row.method == CREATES else None,
        payload=row.payload,
    )


@frozen
class SendResult:
    """The result of one transmission.

    status, body: Of a complete answer; *body* is its JSON object, None for anything else
        (truncated, HTML, a list).
    retry_after: Minimum seconds to wait, as asked by the service.
    cause: Readable reason why it was not sent, or how the answer was lost.
    operation: The push that the service answered with, if any; otherwise *error* says why not.
    """

    phase: Phase
    status: int | None = None
    body: Mapping[str, object] | None = field(default=None, repr=False)
    retry_after: float | None = None
    cause: str | None = None
    operation: PushOperation | None = field(default=None, repr=False)
    error: IntegrationError | None = None

    @property
    def key(self) -> str | None:
        """The pushOperationKey it carries, if any."""
        key = (self.body or {}).get("pushOperationKey")
        return key if isinstance(key, str) and key and is_keepable(key) else None


ACKNOWLEDGED = frozenset({200, 202})


def classify(
    result: SendResult,
    *,
    key_is_known: bool,
    replay: bool = False,
    refuses_with_503: bool = True,
) -> Event:
    """Return what the result of a transmission proves.

    ============== =============== ============================== ==========
    phase          status          body                           event
    ============== =============== ============================== ==========
    never left                                                    REFUSED
    may have left                                                 LOST
    answered       200 202         an object with an unseen key   ANSWERED
    answered       a refusal       the documented error body      REFUSED
    answered       anything else, or any other body               LOST
    ============== =============== ============================== ==========

    Which statuses are refusals `statuses.TABLE` says. Whether a refusal is for now only, and the
    push goes LATER, its sender decides.

    Args:
        result: What the transport saw.
        key_is_known: Whether its key was listed before we sent, or belongs to another row: then
            a cache or proxy answered, not the service.
        replay: Whether an earlier transmission of this row is in doubt: only ANSWERED ends that.
        refuses_with_503: From the dialect: a 503 by the service itself means nothing was done.

    Source: "Status codes", "Error body"; which of them exclude an effect is PUSH-PROTOCOL.
    """
    match _meaning(result, refuses_with_503=refuses_with_503):
        case Meaning.DONE if result.status in ACKNOWLEDGED and result.key and not key_is_known:
            return Event.ANSWERED
        case Meaning.REFUSED | Meaning.AGAIN if not replay:
            return Event.REFUSED
        case Meaning.DONE | Meaning.REFUSED | Meaning.AGAIN | Meaning.IN_DOUBT | Meaning.GIVE_UP:
            return Event.LOST
        case other:
            assert_never(other)


def _meaning(result: SendResult, *, refuses_with_503: bool) -> Meaning:
    if result.phase is not Phase.ANSWERED or result.status is None:
        return statuses.of_failure(Safety.WRITE, result.phase)
    is_own = is_error_body(result.body)
    return statuses.of_answer(
        Safety.WRITE, result.status, is_own=is_own, refuses_with_503=refuses_with_503
    )
