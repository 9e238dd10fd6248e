"""One push as it is recorded: the row that every store keeps, and its states.

What leads from one state to the next is the table's affair (``_push``); a store knows only what
must always hold: a push key has one owner, a reference stands for one push, and neither a final
row nor what a push sends ever changes.
"""

import hashlib
import json
from enum import StrEnum
from functools import cached_property
from typing import NamedTuple

import msgspec
from attrs import frozen
from msgspec import structs

from integration_sdk.errors import JournalError


class State(StrEnum):
    """The state of a push; the table of ``_push`` says what happens in each."""

    QUEUED = "QUEUED"
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


CREATES = "POST"
"""The one method whose repetition an idempotency key prevents."""
SETTLED = frozenset({State.NOT_SENT, State.REJECTED, State.FINAL})
"""Nothing more happens to it by itself, and it owns no unclaimed push."""
DOUBTED = frozenset({State.AMBIGUOUS, State.ABSENT, State.UNRESOLVED})
"""States that a listing could settle."""
NOT_THERE = frozenset({State.NOT_SENT, State.REJECTED})
"""States that prove that there is no push."""


class Evidence(StrEnum):
    """How the key of an intent is known, strongest first."""

    OWN_ANSWER = "E3"
    AGREEING_ECHO = "E2"
    ONLY_ONE_NEW = "E1"
    CALLER = "caller"


class Owner(NamedTuple):
    """Whose pushes a store holds: one scope of it belongs to one service, in one dialect."""

    scope: str
    base_url: str
    dialect: str


class RowRefused(JournalError):
    """The journal refuses this row; it still accepts others."""


class Fenced(RowRefused):
    """Somebody else has changed the row meanwhile; nothing of this commit was recorded."""


class KeyClaimed(RowRefused):
    """The push key already belongs to another intent; nothing of this commit was recorded."""


class Lane(NamedTuple):
    """Where a push goes. Pushes of one lane can be mistaken for each other."""

    company_id: str
    connection_id: str
    data_type: str


def as_line(key: str) -> str:
    """Return *key* as a line of text: as it is, or in JSON if it is empty or not printable."""
    return key if key.isprintable() and key[:1] not in {"", '"'} else json.dumps(key)


def from_line(line: str) -> str:
    """Return the key that `as_line` made *line* of."""
    return str(json.loads(line)) if line.startswith('"') else line


@frozen
class Snapshot:
    """The push keys a company had before a batch was sent.

    keys: The keys listed then, of every lane of the company.
    whole: Whether the list was read to its end. Otherwise *keys* are its newest, and pushes
        listed after all of them are older (the service lists the newest first).
    taken_at: When, in whole Unix seconds by the service's own clock; None if it did not tell.
    """

    keys: frozenset[str]
    whole: bool = True
    taken_at: int | None = None

    @cached_property
    def digest(self) -> str:
        """A hash of the content, so that equal snapshots are stored once."""
        at = [] if self.taken_at is None else [str(self.taken_at)]
        text = "\n".join([str(self.whole), *at, *sorted(map(as_line, self.keys))])
        return hashlib.sha256(text.encode()).hexdigest()


class Intent(msgspec.Struct, frozen=True, gc=False):
    """One push as recorded. Immutable: :meth:`to` returns the next state.

    id: Unique; made by the caller.
    method: POST creates, PUT updates *record_id*.
    payload: The body, byte for byte as it is sent; None where the journal keeps no payloads,
        once a key is known (on disk it stays until the push is settled), and once it is settled.
    payload_hash: sha256 of the body, in hex; empty if no later run will compare records.
    natural_key, natural_value: Dotted path of the value that identifies the record, and that
        value in the body (see ``agreement.leaf``).
    idempotency_key: Sent with every transmission of this create, a new one after a 503; None
        for updates, and if the service does not support such keys.
    snapshot: Keys listed before the first send; None if the listing failed, and once a key is
        known or it is settled.
    version: Grows with each step. A store takes a row only if it knows no later version of it, so
        that nobody writes over what he has not seen.
    attempts: Number of attempts to send; each that may have left was recorded as SENDING first.
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
    version: int = 0
    state: State = State.QUEUED
    attempts: int = 0
    key: str | None = None
    evidence: Evidence | None = None
    candidates: tuple[str, ...] = ()
    status: str | None = None
    http_status: int | None = None
    error: str | None = None
    decision: str | None = None
    parent: str | None = None

    def __repr__(self) -> str:
        """Show the state, and nothing of the record."""
        return f"Intent(id={self.id!r}, lane={self.lane}, state={self.state}, key={self.key!r})"

    def __str__(self) -> str:
        """Name the push for people, and the intent for their decision."""
        name = push_name(self.lane.data_type, self.reference, self.lane.company_id)
        return f"{name} (intent {self.id})"

    def to(self, state: State, **changes: object) -> "Intent":
        """Return the row in another state, without what it needs no more."""
        if changes.get("key") or state in NOT_THERE:  # will not be sent or searched for again
            changes = {"payload": None, "snapshot": None, "candidates": (), **changes}
        if state is self.state and all(getattr(self, name) == changes[name] for name in changes):
            return self  # nothing to write
        return structs.replace(self, state=state, version=self.version + 1, **changes)

    @property
    def identity(self) -> tuple[object, ...]:
        """What it pushes, and where: intents for which this is equal are the same push."""
        return self.lane, self.method, self.record_id, self.payload_hash

    @property
    def is_superseded(self) -> bool:
        """Whether another intent has its reference, or may take it by decision."""
        return self.decision == "resend"

    @property
    def is_settled(self) -> bool:
        """Whether nothing more will happen to it by itself, and it owns no unclaimed push."""
        return self.state in SETTLED


def push_name(data_type: str, reference: str | None, company_id: str) -> str:
    """Return the name of a push for messages, such as ``invoices 'INV-17' of company acme``."""
    named = f" {reference!r}" if reference is not None else ""
    return f"{data_type}{named} of company {company_id}"


IMMUTABLE = (
    "method",
    "payload_hash",
    "natural_key",
    "natural_value",
    "record_id",
    "reference",
    "timeout_minutes",
    "parent",
)
"""What never changes besides id and lane. The idempotency key may change after a refusal; all else
says what became of the intent."""
