"""One push, one table: its states, what happens in each, and who carries it on.

A push is not idempotent and its answer can be lost. So its row is on record before the first byte
leaves, and everything that happens to it is an `Event`, one step of `TABLE`::

    QUEUED ----> SENDING --> ACKED        answered with a key of its own
      ^             |------> QUEUED       never left, or refused for now: sent again by itself
      |             |------> NOT_SENT     never left, and nobody tries again
      |             |------> REJECTED     refused by the service
      |             '------> AMBIGUOUS    the answer was lost: never sent again (*)
      |
    a new push    AMBIGUOUS  -----------> RESOLVED    a listing shows which push is ours
    sent by the              -----------> ABSENT      a listing shows no push of ours
    caller's                 -----------> UNRESOLVED  a listing cannot tell
    decision      ABSENT, UNRESOLVED ---> LATE        a later listing, or the caller, could tell
      '---------------------------------- DECIDED     by the caller: resend or abandon
    ACKED, RESOLVED, LATE --------------> FINAL       polled to its end; never changes again

    (*) A service that honours Idempotency-Key may be asked once more with the same key:
        AMBIGUOUS --> SENDING, a *replay*. Only an answer with a key ends the doubt then; a
        refusal of the replay says nothing about the first transmission.

**What happens to a push whose answer is lost?** It is AMBIGUOUS and searched for in the company's
list, for as long as the policy's patience lasts. What the list proves to be ours is RESOLVED and
polled. Otherwise it is ABSENT or UNRESOLVED: its outcome is IN_DOUBT, the caller may decide, and
every later listing is searched for it still, since requests may arrive late and lists may lag.

The state alone says what is to be done (`Duty`), whichever process reads the row: after a crash
the next one looks at each row and goes on. Nothing waits for what cannot come, because each state
without an outcome has a duty, and each duty ends in an event. The waiter's patience is no part of
the row: its wait EXPIRED, the push goes on.

``DECIDED(resend)`` starts a new push. The old row is kept: its own request may still turn up at
the service, and must not be mistaken for another's.

``evidence`` judges listings; ``protocol`` and ``reconcile`` take the steps, ``effects`` says what
a driver has to do for them.
"""

import hashlib
from collections.abc import Mapping
from enum import Enum, StrEnum
from types import MappingProxyType
from typing import Final, assert_never

from attrs import field, frozen

from integration_sdk._http import statuses
from integration_sdk._http.requests import Phase, Safety
from integration_sdk._http.statuses import Meaning
from integration_sdk._push.agreement import natural_value
from integration_sdk._records.shapes import is_error_body
from integration_sdk._store.row import CREATES, DOUBTED, Intent, Lane, State
from integration_sdk.errors import IntegrationError
from integration_sdk.models import PushOperation


class Duty(Enum):
    """What a push needs from the process that carries it."""

    SEND = "to be sent, or being sent"
    POLL = "the service has it: polled until it is final"
    SEARCH = "its answer was lost: searched for in the company's list"
    DECIDE = "in doubt: for the caller to decide, and found if a later listing shows it"
    REST = "nothing: its outcome is on record"


class Event(StrEnum):
    """What can happen to a push."""

    SENT = "its turn has come: on record as being sent, then it leaves"
    LATER = "it never left, or was refused for now, and will be sent again"
    NEVER_LEFT = "it never left, and will not be sent again"
    REFUSED = "the service refused it"
    ANSWERED = "the service answered with a key of its own"
    LOST = "no answer that can be relied on: cut off, cancelled, unreadable, a proxy's"
    FOUND = "a listing shows which push is ours"
    MISSING = "a listing shows no push of ours"
    UNCLEAR = "a listing cannot tell"
    POLLED = "it was seen with a status that is not final, or that nobody knows"
    ENDED = "it was seen with a final status"
    RESENT = "the caller, or a corrected record, sends it as a new push"
    ABANDONED = "the caller gives it up"
    BOUND = "the caller says which push is ours"
    RESTARTED = "its process has ended, and another one takes it over"
    NOTIFIED = "the service, or somebody, hints that something has happened"
    EXPIRED = "its waiter waits no longer"
    FENCED = "another process has taken it over: this one leaves the row alone"


class IllegalTransition(RuntimeError):
    """An event that cannot happen in a state: a bug of the SDK, never of the service."""


_S, _E = State, Event
_ANY: Final = (_E.NOTIFIED, _E.EXPIRED, _E.FENCED)
"""Events that change no row: they say when to look, who still waits, and who may write."""


def _row(duty: Duty, next_states: Mapping[Event, State]) -> tuple[Duty, Mapping[Event, State]]:
    return duty, MappingProxyType(dict(next_states))


def _polled(state: State) -> tuple[Duty, Mapping[Event, State]]:
    return _row(Duty.POLL, {_E.POLLED: state, _E.ENDED: _S.FINAL, _E.RESTARTED: state})


def _doubted(state: State) -> tuple[Duty, Mapping[Event, State]]:
    # A listing that lacks it, or cannot tell, changes nothing: it was searched for long enough.
    return _row(
        Duty.DECIDE,
        {
            _E.FOUND: _S.LATE,
            _E.MISSING: state,
            _E.UNCLEAR: state,
            _E.RESENT: _S.DECIDED,
            _E.ABANDONED: _S.DECIDED,
            _E.BOUND: _S.LATE,
            _E.RESTARTED: state,
        },
    )


def _over(state: State) -> tuple[Duty, Mapping[Event, State]]:
    # Its reference may be given to a corrected record; the row itself stays as it is.
    return _row(Duty.REST, {_E.RESENT: state, _E.RESTARTED: state})


_ROWS: Final = {
    _S.QUEUED: _row(
        Duty.SEND,
        {
            _E.SENT: _S.SENDING,
            _E.NEVER_LEFT: _S.NOT_SENT,
            _E.REFUSED: _S.REJECTED,
            _E.RESTARTED: _S.QUEUED,
        },
    ),
    _S.SENDING: _row(
        Duty.SEND,
        {
            _E.LATER: _S.QUEUED,
            _E.NEVER_LEFT: _S.NOT_SENT,
            _E.REFUSED: _S.REJECTED,
            _E.ANSWERED: _S.ACKED,
            _E.LOST: _S.AMBIGUOUS,
            _E.RESTARTED: _S.AMBIGUOUS,
        },
    ),
    _S.NOT_SENT: _over(_S.NOT_SENT),
    _S.REJECTED: _over(_S.REJECTED),
    _S.ACKED: _polled(_S.ACKED),
    _S.AMBIGUOUS: _row(
        Duty.SEARCH,
        {
            _E.SENT: _S.SENDING,
            _E.FOUND: _S.RESOLVED,
            _E.MISSING: _S.ABSENT,
            _E.UNCLEAR: _S.UNRESOLVED,
            _E.RESTARTED: _S.AMBIGUOUS,
        },
    ),
    _S.RESOLVED: _polled(_S.RESOLVED),
    _S.ABSENT: _doubted(_S.ABSENT),
    _S.UNRESOLVED: _doubted(_S.UNRESOLVED),
    _S.LATE: _polled(_S.LATE),
    _S.DECIDED: _row(Duty.REST, {_E.RESTARTED: _S.DECIDED}),
    _S.FINAL: _over(_S.FINAL),
}
TABLE: Final[Mapping[State, Mapping[Event, State]]] = MappingProxyType(
    {state: {**steps, **dict.fromkeys(_ANY, state)} for state, (_, steps) in _ROWS.items()}
)
"""For each state the events that can happen in it, and the state after each."""
DUTY: Final[Mapping[State, Duty]] = MappingProxyType(
    {state: duty for state, (duty, _) in _ROWS.items()}
)
DECIDABLE: Final = frozenset(state for state in State if DUTY[state] is Duty.DECIDE)
"""In doubt, reported to the caller for a decision, and judged again on every later listing."""
_MAY_OWN: Final = DOUBTED | {_S.SENDING, _S.DECIDED}


def after(intent: Intent, event: Event, **changes: object) -> Intent:
    """Return the row of *intent* after *event*.

    Raises:
        IllegalTransition: That cannot happen in its state.
    """
    state = TABLE[intent.state].get(event)
    if state is None:
        raise IllegalTransition(f"intent {intent.id} is {intent.state}: it cannot be {event.name}")
    return intent.to(state, **changes)


def may_own_unclaimed(intent: Intent) -> bool:
    """Whether an unclaimed push of the service may be this one."""
    return intent.key is None and intent.state in _MAY_OWN


def new_intent(
    lane: Lane,
    payload: bytes | None,
    *,
    id: str,  # noqa: A002  # the field's own name
    method: str = "POST",
    natural_key: str | None = None,
    record_id: str | None = None,
    reference: str | None = None,
    idempotency_key: str | None = None,
    timeout_minutes: int | None = None,
    hashed: bool = True,
) -> Intent:
    """Return the intent of a push that has not been sent yet.

    Raises:
        ValueError: The payload has no value at *natural_key*.
    """
    return Intent(
        id=id,
        lane=lane,
        method=method,
        payload=payload,
        payload_hash=hashlib.sha256(payload or b"").hexdigest() if hashed else "",
        natural_key=natural_key,
        natural_value=natural_value(payload, natural_key),
        record_id=record_id,
        reference=reference,
        idempotency_key=idempotency_key if method == CREATES else None,
        timeout_minutes=timeout_minutes,
    )


@frozen
class SendResult:
    """The result of one transmission.

    at: When the transmission began, in seconds of the driver's monotonic clock.
    status, body: Of a complete answer; *body* is its JSON object, None for anything else
        (truncated, HTML, a list).
    retry_after: Minimum seconds to wait, as asked by the service.
    cause: Readable reason why it was not sent, or how the answer was lost.
    operation: The push that the service answered with, if any; otherwise *error* says why not.
    """

    phase: Phase
    at: float = 0.0
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
        return key if isinstance(key, str) and key else None


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
    never left                                                    NEVER_LEFT
    may have left                                                 LOST
    answered       200 202         an object with an unseen key   ANSWERED
    answered       a refusal       the documented error body      REFUSED
    answered       anything else, or any other body               LOST
    ============== =============== ============================== ==========

    Which statuses are refusals `statuses.TABLE` says.

    Args:
        result: What the transport saw.
        key_is_known: Whether its key was listed before we sent, or belongs to another intent: then
            a cache or proxy answered, not the service.
        replay: Whether an earlier transmission of this intent is in doubt: only ANSWERED ends that.
        refuses_with_503: From the dialect: a 503 by the service itself means nothing was done.

    Source: "Status codes", "Error body"; which of them exclude an effect is PUSH-PROTOCOL.
    """
    match _meaning(result, refuses_with_503=refuses_with_503):
        case Meaning.DONE if result.status in ACKNOWLEDGED and result.key and not key_is_known:
            return Event.ANSWERED
        case Meaning.REFUSED | Meaning.AGAIN if not replay:
            return Event.NEVER_LEFT if result.phase is Phase.NEVER_LEFT else Event.REFUSED
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
