"""A push as it is recorded: one row, its states, and what no writer may change.

Which state follows which is the business of ``_push.table``. A store enforces what must always
hold: a push key has one owner, a reference has one live row, whoever writes names the version
that he has seen, and whoever lost the lease of a company writes nothing more about it.
"""

import hashlib
import json
import re
from enum import StrEnum
from typing import Final, NamedTuple, TypeVar

import msgspec
from msgspec import structs

from integration_sdk.errors import JournalError

_T = TypeVar("_T")


class State(StrEnum):
    """Where a push stands, and what happens next."""

    QUEUED = "QUEUED"  # to be sent
    SENDING = "SENDING"  # a request may be on its way
    OPEN = "OPEN"  # its key is known: poll it
    LOST = "LOST"  # it may have arrived: search for it
    DOUBT = "DOUBT"  # the search did not settle it: the caller decides, later listings still may
    CLOSED = "CLOSED"  # decided by the caller; may still turn out to own a key
    REFUSED = "REFUSED"  # there is no push
    FINAL = "FINAL"  # the push has ended


SETTLED: Final = frozenset({State.REFUSED, State.FINAL})
"""Nothing more happens to it, and it owns no unclaimed push."""


class Evidence(StrEnum):
    """How the key of a row is known, strongest first."""

    OWN_ANSWER = "E3"
    AGREEING_ECHO = "E2"
    ONLY_ONE_NEW = "E1"
    CALLER = "caller"


class Verdict(StrEnum):
    """What a search found out about a row in doubt."""

    ABSENT = "ABSENT"  # proven complete, the listing shows no push that may be this one
    UNRESOLVED = "UNRESOLVED"  # it may be one of the candidates, or the list proves nothing


class RowRefused(JournalError):
    """The store refuses this commit; it still accepts others."""


class Stale(RowRefused):
    """The row has a later version than the writer has seen."""


class Fenced(RowRefused):
    """The writer no longer holds the lease of the company; another process acts for it."""


class KeyClaimed(RowRefused):
    """The push key already belongs to another row."""


class Owner(NamedTuple):
    """Whose a scope is: one service, in one dialect."""

    scope: str
    base_url: str
    dialect: str


class Lane(NamedTuple):
    """Where a push goes. Pushes of one lane can be mistaken for each other."""

    company_id: str
    connection_id: str
    data_type: str


class Snapshot(msgspec.Struct, frozen=True, gc=False):
    """The push keys that a company had before a batch was sent.

    keys: The keys listed then, of every lane of the company.
    whole: Whether the list was read to its end. Otherwise *keys* are its newest, and pushes
        listed after all of them are older (the service lists the newest first).
    taken_at: When, in whole Unix seconds by the service's own clock; None if it did not tell.
    id: Names it in a store, which keeps a snapshot once for all rows that have it.
    """

    keys: frozenset[str]
    whole: bool = True
    taken_at: int | None = None
    id: str = ""


class Row(msgspec.Struct, frozen=True, gc=False, omit_defaults=True):
    """One push as recorded. Immutable: `_push.table.after` makes the next version.

    id: Unique; made by the caller.
    method: POST creates, PUT updates *record_id*, DELETE deletes it.
    payload_hash: sha256 of the body, in hex.
    natural_key, natural_value: Dotted path of the value that identifies the record, and that
        value in the body (see ``agreement.leaf``).
    parent: The row this one was re-sent for.
    version: Grows by one with each step. A store takes a row only if its version is one more
        than the recorded one, so that nobody writes over what he has not seen.
    attempts: Transmissions so far; each was recorded as SENDING before its first byte left.
    idempotency_key: Sent with each transmission of a create; a new one after a 503.
    snapshot: Keys listed before the first transmission; None if the listing failed, and once
        the key is known or the row is settled.
    key: The pushOperationKey; *evidence* says how it is known.
    candidates: Keys of pushes that may be this one, while in doubt.
    verdict: Of the last search, while in doubt.
    status: Of the ended push. http_status, error: Of the last answer.
    decision: resend, abandon or bind.
    payload: The body, byte for byte as it is sent. A store keeps it from ``add`` until the row
        is settled; in memory it is None once the key is known.
    """

    id: str
    lane: Lane
    method: str = "POST"
    record_id: str | None = None
    payload_hash: str = ""
    natural_key: str | None = None
    natural_value: str | None = None
    reference: str | None = None
    timeout_minutes: int | None = None
    parent: str | None = None
    version: int = 0
    state: State = State.QUEUED
    attempts: int = 0
    idempotency_key: str | None = None
    snapshot: Snapshot | None = None
    key: str | None = None
    evidence: Evidence | None = None
    candidates: tuple[str, ...] = ()
    verdict: Verdict | None = None
    status: str | None = None
    http_status: int | None = None
    error: str | None = None
    decision: str | None = None
    payload: bytes | None = None

    def __repr__(self) -> str:
        """Show the state, and nothing of the record."""
        return f"Row(id={self.id!r}, lane={self.lane}, state={self.state}, key={self.key!r})"

    def __str__(self) -> str:
        """Name the push for people, and the row for their decision."""
        return f"{push_name(self.lane.data_type, self.reference, self.company)} (intent {self.id})"

    def to(self, state: State, **changes: object) -> "Row":
        """Return the next version of the row, without what the new state needs no more."""
        if state in SETTLED or state is State.OPEN:  # neither sent nor searched for again
            done = {"payload": None, "snapshot": None, "candidates": (), "verdict": None}
            changes = done | changes
        return structs.replace(self, state=state, version=self.version + 1, **changes)

    @property
    def company(self) -> str:
        """The company whose lease guards it."""
        return self.lane.company_id

    @property
    def identity(self) -> tuple[object, ...]:
        """What it pushes, and where: rows for which this is equal are the same push."""
        return self.lane, self.method, self.record_id, self.payload_hash

    @property
    def is_superseded(self) -> bool:
        """Whether another row has its reference, or may take it by decision."""
        return self.decision == "resend"


_UNKEEPABLE: Final = re.compile("[\\0\\ud800-\\udfff]")


def is_keepable(text: str) -> bool:
    """Whether every store can keep *text*: it has no NUL and no half of a surrogate pair."""
    return _UNKEEPABLE.search(text) is None


def push_name(data_type: str, reference: str | None, company_id: str) -> str:
    """Return the name of a push for messages, such as ``invoices 'INV-17' of company acme``."""
    named = f" {reference!r}" if reference is not None else ""
    return f"{data_type}{named} of company {company_id}"


# As a document


_rows: Final = msgspec.json.Decoder(Row)
_snapshots: Final = msgspec.json.Decoder(Snapshot)
_HASHED: Final = "sha256:"
_LONGEST: Final = 500
"""Characters; PostgreSQL indexes 2,704 bytes."""


def to_document(fact: Row | Snapshot) -> str:
    """Return a snapshot, or a row without its payload and snapshot, as JSON."""
    if isinstance(fact, Row) and (fact.payload is not None or fact.snapshot is not None):
        fact = structs.replace(fact, payload=None, snapshot=None)
    try:
        return msgspec.json.encode(fact).decode()
    except UnicodeEncodeError:  # a lone surrogate, of which JSON has an escape
        return json.dumps(msgspec.to_builtins(fact))


def columns(row: Row) -> tuple[object, ...]:
    """Return what a database enforces or finds rows by, and the document with all the rest.

    That is id, company, reference, key, state, status, version, decision, snapshot, document.
    """
    return (
        row.id,
        indexed(row.company),
        row.reference and indexed(row.reference),
        row.key and indexed(row.key),
        row.state.value,
        row.status,
        row.version,
        row.decision,
        row.snapshot and row.snapshot.id,
        to_document(row),
    )


def from_document(
    document: str, payload: bytes | None = None, snapshot: Snapshot | None = None
) -> Row:
    """Return the row of a document.

    Raises:
        msgspec.MsgspecError, json.JSONDecodeError: It is damaged.
    """
    row = _decoded(_rows, document)
    if payload is None and snapshot is None:
        return row
    return structs.replace(row, payload=payload, snapshot=snapshot)


def to_snapshot(document: str) -> Snapshot:
    """Return the snapshot of a document. Raises as `from_document` does."""
    return _decoded(_snapshots, document)


def _decoded(decoder: msgspec.json.Decoder[_T], document: str) -> _T:
    try:
        return decoder.decode(document)
    except msgspec.DecodeError:  # a lone surrogate, perhaps
        return msgspec.convert(json.loads(document), decoder.type)


def indexed(text: str) -> str:
    """Return *text* as a column that has an index: its hash if it is long or not printable.

    So a value that a database cannot index, such as a lone surrogate, can still be found.
    """
    if len(text) <= _LONGEST and text.isprintable() and not text.startswith(_HASHED):
        return text
    return _HASHED + hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()


def is_hash(column: str) -> bool:
    """Return whether `indexed` made it of something else."""
    return column.startswith(_HASHED)
