"""What a push is on record, which states it may pass, and what an answer to it proves.

A push is not idempotent and its answer can be lost, so before its first byte leaves, an
:class:`Intent` is on disk, and whatever happens next is one step of this table::

    INTENT --> SENDING --> NOT_SENT     never left                        sent again by itself
                       --> REJECTED     refused by the service            429 and 503 only
                       --> ACKED        answered with a key of its own    never
                       --> AMBIGUOUS    anything else                     never (*)
    AMBIGUOUS          --> RESOLVED     a listing shows which push is ours
                       --> ABSENT       a listing shows no push of ours   evidence, not proof
                       --> UNRESOLVED   a listing cannot tell
    ABSENT, UNRESOLVED --> LATE         a later listing could tell
                       --> DECIDED      by the caller: resend, abandon, bind
    ACKED, RESOLVED, LATE, DECIDED(bind) --> FINAL      never changes again

    (*) A service that honours Idempotency-Key may be asked once more with the same key:
        AMBIGUOUS --> SENDING, a *replay*. Only an answer with a key ends the doubt then; a
        refusal of the replay says nothing about the first transmission.

``DECIDED(resend)`` starts a new intent and stays behind itself: its own request may still
turn up at the service, and must not be taken for somebody else's.

``evidence`` judges listings; ``protocol`` and ``reconcile`` hold the machines that walk the
table, ``effects`` says what a driver has to do for them.
"""

import hashlib
from collections.abc import Collection, Mapping
from enum import StrEnum
from functools import cached_property
from typing import NamedTuple

import msgspec
from attrs import field, frozen
from msgspec import structs

from integration_sdk._sansio.pushing.agreement import natural_value
from integration_sdk._sansio.requests import Phase
from integration_sdk._sansio.shapes import is_error_body
from integration_sdk.errors import JournalError


class State(StrEnum):
    """Where an intent stands; the table is in the module's docstring."""

    INTENT = "INTENT"
    SENDING = "SENDING"
    NOT_SENT = "NOT_SENT"
    REJECTED = "REJECTED"
    ACKED = "ACKED"
    AMBIGUOUS = "AMBIGUOUS"
    RESOLVED = "RESOLVED"
    ABSENT = "ABSENT"
    UNRESOLVED = "UNRESOLVED"
    LATE = "LATE"
    DECIDED = "DECIDED"
    FINAL = "FINAL"


_S = State
TRANSITIONS: Mapping[State, Collection[State]] = {
    _S.INTENT: {_S.SENDING, _S.NOT_SENT},
    _S.SENDING: {_S.NOT_SENT, _S.REJECTED, _S.ACKED, _S.AMBIGUOUS},
    _S.NOT_SENT: {_S.NOT_SENT, _S.SENDING},
    _S.REJECTED: {_S.REJECTED, _S.SENDING},
    _S.ACKED: {_S.FINAL},
    _S.AMBIGUOUS: {_S.SENDING, _S.RESOLVED, _S.ABSENT, _S.UNRESOLVED},
    _S.RESOLVED: {_S.FINAL},
    _S.ABSENT: {_S.ABSENT, _S.LATE, _S.DECIDED},
    _S.UNRESOLVED: {_S.UNRESOLVED, _S.LATE, _S.DECIDED},
    _S.LATE: {_S.FINAL},
    _S.DECIDED: {_S.FINAL},
    _S.FINAL: frozenset(),
}
CREATES = "POST"
"""The one method whose repetition an idempotency key prevents."""
IN_DOUBT = frozenset({_S.ABSENT, _S.UNRESOLVED})
"""Surfaced to the caller, looked at again on every later listing."""
DOUBTED = IN_DOUBT | {_S.AMBIGUOUS}
"""What a listing could settle."""
POLLABLE = frozenset({_S.ACKED, _S.RESOLVED, _S.LATE, _S.DECIDED})
"""With a key: the service is asked until the push is final."""
_MAY_OWN = frozenset({_S.SENDING, _S.AMBIGUOUS, _S.ABSENT, _S.UNRESOLVED, _S.DECIDED})


class Evidence(StrEnum):
    """How a key came to be tied to an intent, strongest first."""

    OWN_ANSWER = "E3"
    AGREEING_ECHO = "E2"
    ONLY_ONE_NEW = "E1"
    CALLER = "caller"


class IllegalTransition(RuntimeError):
    """A step that the table of states does not have: a mistake of ours, never of the service."""


class RowRefused(JournalError):
    """The journal does not take this row; it goes on taking others."""


class KeyClaimed(RowRefused):
    """The push key belongs to another intent already; nothing of this commit was recorded."""


class Lane(NamedTuple):
    """Where a push goes. Pushes of one lane can be mistaken for each other."""

    company_id: str
    connection_id: str
    data_type: str


@frozen
class Snapshot:
    """The push keys a company had before a batch was sent.

    keys: What was listed then, of every lane of the company.
    whole: The list was read to its end. Otherwise *keys* are its newest, and the service's
        order (newest first) is relied upon to tell what is older than all of them.
    """

    keys: frozenset[str]
    whole: bool = True

    @cached_property
    def digest(self) -> str:
        """Name of the content: equal snapshots are stored once."""
        text = "\n".join([str(self.whole), *sorted(self.keys)])
        return hashlib.sha256(text.encode()).hexdigest()


class Intent(msgspec.Struct, frozen=True, gc=False):
    """One push as it is on record. Never changed: :meth:`to` gives the next one.

    id: Minted by the caller, for ever this push's own.
    method: POST creates, PUT updates *record_id*.
    payload: The body, byte for byte as it is sent; None where the journal keeps no payloads,
        and once a key is known (on disk it stays until the push is settled).
    payload_hash: sha256 of the body, in hex; empty where no later run compares records.
    natural_key, natural_value: Dotted path of what tells this record from others, and what it
        held in the body (see ``agreement.leaf``).
    idempotency_key: Sent with every transmission of this create, a new one after a 503; None
        where the service knows no such keys, and for updates, which it does not honour them
        for.
    snapshot: Keys listed before the first send; None where no listing was to be had, and once
        a key is known.
    attempts: Times it was to be sent; each that may have left was on record as SENDING first.
    retry: NOT_SENT or REJECTED for now: it is to be sent again, by recovery if need be.
    key: The pushOperationKey; *evidence* says how it is known.
    candidates: Keys of pushes that may be this one, while in doubt.
    status: Of the final push. http_status, error: Of the last answer.
    decision: resend, abandon or bind. parent: The intent this one was re-sent for.
    """

    id: str
    lane: Lane
    method: str = "POST"
    payload: bytes | None = None
    payload_hash: str = ""
    natural_key: str | None = None
    natural_value: str | None = None
    record_id: str | None = None
    reference: str | None = None
    idempotency_key: str | None = None
    timeout_minutes: int | None = None
    snapshot: Snapshot | None = None
    state: State = State.INTENT
    attempts: int = 0
    retry: bool = False
    key: str | None = None
    evidence: Evidence | None = None
    candidates: tuple[str, ...] = ()
    status: str | None = None
    http_status: int | None = None
    error: str | None = None
    decision: str | None = None
    parent: str | None = None

    def __repr__(self) -> str:
        """Show where it stands, and nothing of the record."""
        return f"Intent(id={self.id!r}, lane={self.lane}, state={self.state}, key={self.key!r})"

    def to(self, state: State, **changes: object) -> "Intent":
        """Take one step of the table.

        Raises:
            IllegalTransition: The table has no such step.
        """
        if state not in TRANSITIONS[self.state]:
            raise IllegalTransition(f"intent {self.id}: {self.state} does not lead to {state}")
        if changes.get("key"):  # found: neither to be sent nor to be looked for again
            changes = {"payload": None, "snapshot": None, "candidates": (), **changes}
        return structs.replace(self, state=state, **changes)

    @property
    def asks(self) -> tuple[object, ...]:
        """What it asks of the service: two that ask the same are one push, sent twice."""
        return self.lane, self.method, self.record_id, self.payload_hash

    @property
    def may_own_unclaimed(self) -> bool:
        """Whether a push nobody has claimed may be this one."""
        return self.key is None and self.state in _MAY_OWN

    @property
    def is_superseded(self) -> bool:
        """Whether another intent was sent in its place, and has its reference."""
        return self.decision == "resend"

    @property
    def is_settled(self) -> bool:
        """Nothing more will happen to it by itself, and it owns no unclaimed push."""
        refused = self.state in (State.NOT_SENT, State.REJECTED) and not self.retry
        return refused or self.state is State.FINAL


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
    """Put a push on record: not sent yet.

    Raises:
        ValueError: *natural_key* names nothing in the payload, or something without a value.
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
class Answer:
    """What one transmission came to.

    at: The driver's steady clock when the transmission began, in seconds.
    status, body: Of a complete answer; *body* is its JSON object, None for anything else
        (truncated, HTML, a list).
    retry_after: Seconds the service asked to wait; a floor.
    cause: For people: why it was not sent, or how the answer was lost.
    """

    phase: Phase
    at: float = 0.0
    status: int | None = None
    body: Mapping[str, object] | None = field(default=None, repr=False)
    retry_after: float | None = None
    cause: str | None = None

    @property
    def key(self) -> str | None:
        """The pushOperationKey it carries, if any."""
        key = (self.body or {}).get("pushOperationKey")
        return key if isinstance(key, str) and key else None


ACKNOWLEDGED = frozenset({200, 202})
_NOTHING_DONE = frozenset({400, 401, 402, 403, 404, 405, 409, 413, 415, 422, 429})


def classify(
    answer: Answer,
    *,
    key_is_known: bool,
    replay: bool = False,
    refuses_with_503: bool = True,
) -> State:
    """Say what an answer proves about the transmission: the one table.

    ============== =============== ============================== =========
    phase          status          body                           class
    ============== =============== ============================== =========
    never left                                                    NOT_SENT
    may have left                                                 AMBIGUOUS
    answered       200 202         an object with an unseen key   ACKED
    answered       4xx of the list the documented error body      REJECTED
    answered       503             the documented error body      REJECTED
    answered       anything else, or any other body               AMBIGUOUS
    ============== =============== ============================== =========

    Args:
        answer: What the transport saw.
        key_is_known: Its key was listed before we sent, or is another intent's: a cache or
            proxy answered, not the service.
        replay: An earlier transmission of this intent is in doubt: only ACKED ends that.
        refuses_with_503: Dialect: a 503 of the service's own says nothing was done.

    Source: "Status codes", "Error body"; which of them exclude an effect is PUSH-PROTOCOL.
    """
    state = _classify_once(answer, key_is_known, refuses_with_503)
    return State.AMBIGUOUS if replay and state is not State.ACKED else state


def _classify_once(answer: Answer, key_is_known: bool, refuses_with_503: bool) -> State:
    if answer.phase is Phase.NEVER_LEFT:
        return State.NOT_SENT
    if answer.phase is Phase.MAY_HAVE_LEFT:
        return State.AMBIGUOUS
    if answer.status in ACKNOWLEDGED:
        return State.ACKED if answer.key and not key_is_known else State.AMBIGUOUS
    refusal = answer.status in _NOTHING_DONE or (answer.status == 503 and refuses_with_503)
    return State.REJECTED if refusal and is_error_body(answer.body) else State.AMBIGUOUS
