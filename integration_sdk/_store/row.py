"""A push as it is recorded: one row, its states, its document.

Which state follows which is the business of ``_push.table``. A store enforces that one reference
is one row, that a push key has one owner, and that a write names the version before it.
"""

from base64 import b64decode, b64encode
from enum import StrEnum
from typing import Final, NamedTuple

import msgspec
from msgspec import structs


class State(StrEnum):
    """Where a push stands, and what its holder does next."""

    QUEUED = "QUEUED"  # send it
    SENDING = "SENDING"  # a request may be on its way
    OPEN = "OPEN"  # its key is known: poll it
    LOST = "LOST"  # it may have arrived: search for it
    DOUBT = "DOUBT"  # the search did not settle it: the caller decides, later listings still may
    DONE = "DONE"  # `Result` says how it ended


class Result(StrEnum):
    """How a row that is DONE ended."""

    ENDED = "ENDED"  # the push ended at the service; *status* is the service's word
    REFUSED = "REFUSED"  # there is no push
    ABANDONED = "ABANDONED"  # given up by the caller; its ghosts may still own a push


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


class Lane(NamedTuple):
    """Where a push goes; within a lane, pushes can be mistaken for each other."""

    company_id: str
    connection_id: str
    data_type: str


class Mark(msgspec.Struct, frozen=True, gc=False, omit_defaults=True):
    """The watermark of a company's list of pushes: what is above it later, is new.

    keys: The newest ones, newest first. whole: Whether the list had no others.
    latest: The latest of their times. taken_at: The service's time of its answer. Unix seconds.
    """

    keys: tuple[str, ...] = ()
    whole: bool = True
    latest: float | None = None
    taken_at: int | None = None


class Attempt(msgspec.Struct, frozen=True, gc=False, omit_defaults=True):
    """How a row stood before it was sent again by decision, or with a corrected record."""

    payload_hash: str = ""
    key: str | None = None
    result: Result | None = None
    status: str | None = None
    http_status: int | None = None
    error: str | None = None
    decision: str | None = None


class Row(msgspec.Struct, frozen=True, gc=False, omit_defaults=True):
    """One push as recorded. Immutable: `next` makes the next version.

    method: POST creates, PUT updates *record_id*, DELETE deletes it.
    content_type: Of an attachment to *record_id*; None for a record as JSON.
    payload_hash: sha256 of the body, in hex.
    natural_key, natural_value: Dotted path of what identifies the record, and its value.
    holder: The process that sends it, polls it and searches for it.
    version: -1 if it was never on record, 0 for a new row; grows by one with each step. A store
        takes only the next one, so a process that lost the row cannot write it.
    ghosts: Transmissions whose push has not been identified; with any, the row is a rival.
    replays: Transmissions under an idempotency key that was sent before.
    mark: Taken before the first transmission; None if the listing failed, and from OPEN on.
    key: The pushOperationKey; *evidence* says how it is known.
    candidates, verdict: Of the last search, while in doubt: what may be this push, if anything.
    status: Of the ended push, as the service wrote it. http_status, error: Of the last answer.
    decision: resend, abandon or bind.
    earlier: What came before; the keys in it stay the row's own.
    payload: The body, byte for byte as it is sent; dropped from OPEN on, unless there are ghosts.
    """

    id: str
    lane: Lane
    method: str = "POST"
    record_id: str | None = None
    content_type: str | None = None
    payload_hash: str = ""
    natural_key: str | None = None
    natural_value: str | None = None
    reference: str | None = None
    timeout_minutes: int | None = None
    holder: str = ""
    version: int = -1
    state: State = State.QUEUED
    result: Result | None = None
    ghosts: int = 0
    replays: int = 0
    idempotency_key: str | None = None
    mark: Mark | None = None
    key: str | None = None
    evidence: Evidence | None = None
    candidates: tuple[str, ...] = ()
    verdict: Verdict | None = None
    status: str | None = None
    http_status: int | None = None
    error: str | None = None
    decision: str | None = None
    earlier: tuple[Attempt, ...] = ()
    payload: bytes | None = None

    def __repr__(self) -> str:
        """Show the state, and nothing of the record."""
        return f"Row(id={self.id!r}, lane={self.lane}, state={self.state}, key={self.key!r})"

    def __str__(self) -> str:
        """Name the push for people, and the row for their decision."""
        return f"{push_name(self.lane.data_type, self.reference, self.company)} (intent {self.id})"

    def next(self, state: State, **facts: object) -> "Row":
        """Return the next version of the row, without what the new state needs no more."""
        if state is State.OPEN or state is State.DONE:  # neither sent nor searched for again
            done: dict[str, object] = {"mark": None, "candidates": (), "verdict": None}
            if not facts.get("ghosts", self.ghosts):  # else it may tell rivals apart
                done["payload"] = None
            facts = done | facts
        return structs.replace(self, state=state, version=self.version + 1, **facts)

    def as_of(self, payload_hash: str) -> "Row":
        """Return how it stands for a record, or stood before that was corrected."""
        for one in reversed(self.earlier):
            if one.payload_hash == payload_hash != self.payload_hash:
                return structs.replace(self, state=State.DONE, **structs.asdict(one))
        return self

    def as_attempt(self) -> Attempt:
        """Return how it stands, for *earlier* of the row that is sent again."""
        return Attempt(*(getattr(self, name) for name in Attempt.__struct_fields__))

    @property
    def company(self) -> str:
        """The company it belongs to."""
        return self.lane.company_id

    @property
    def earlier_keys(self) -> set[str]:
        """The keys of its earlier attempts, as keys are compared."""
        return {folded(one.key) for one in self.earlier if one.key}

    @property
    def is_done(self) -> bool:
        """Whether nothing more happens to it, unless the caller decides otherwise."""
        return self.state is State.DONE

    @property
    def identity(self) -> tuple[object, ...]:
        """What it pushes, and where: rows for which this is equal are the same push."""
        return self.lane, self.method, self.record_id, self.content_type, self.payload_hash


_LONGEST: Final = 500


def is_name(text: str) -> bool:
    """Whether every store can keep and find *text*: 1 to 500 printable characters."""
    return 0 < len(text) <= _LONGEST and text.isprintable()


def push_name(data_type: str, reference: str | None, company_id: str) -> str:
    """Return the name of a push for messages, such as ``invoices 'INV-17' of company acme``."""
    named = f" {reference!r}" if reference is not None else ""
    return f"{data_type}{named} of company {company_id}"


def folded(key: str) -> str:
    """Return a push key as keys are compared: some services answer in another case."""
    return key.casefold()


_decode: Final = msgspec.json.Decoder(Row).decode


def to_document(row: Row) -> str:
    """Return a row as JSON, without what is read from columns of its own."""
    document = structs.replace(
        row, state=State.QUEUED, ghosts=0, version=-1, holder="", payload=None
    )
    return msgspec.json.encode(document).decode()


def to_text(row: Row) -> str | None:
    """Return the payload as a column has it: a record as it is, an attachment in base64."""
    if row.payload is None:
        return None
    return (b64encode(row.payload) if row.content_type else row.payload).decode()


def from_document(document: str, state: str, payload: str | None = None, **columns: object) -> Row:
    """Return a row; raises MsgspecError or ValueError if it is damaged."""
    row, body = _decode(document), None
    if payload is not None:
        body = b64decode(payload) if row.content_type else payload.encode()
    return structs.replace(row, state=State(state), payload=body, **columns)
