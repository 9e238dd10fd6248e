"""Every push, from its request to its end, and how it is written.

When and how a push ends is decided when it is accepted. Its state then depends only on the
clock, so ten thousand open pushes cost nothing until they end.

Source: "Push operation"; "States and transitions".
"""

from __future__ import annotations

import heapq
import json
from bisect import bisect_right
from collections.abc import Callable, Iterator
from copy import copy
from itertools import count, islice
from math import inf
from typing import Any

from attrs import define, field, frozen

from integration_sdk.sandbox._call import Notice, Notices, Problem, decode, encode, iso
from integration_sdk.sandbox._platforms import filled, without_unlisted
from integration_sdk.sandbox._schemas import Shape, option_name


@frozen
class Verb:
    """What a push does: in an operation's ``changes``, in a notification, and on the page."""

    change: str
    event: str
    words: str


VERBS = {
    "POST": Verb("Created", "Create", "Create"),
    "PUT": Verb("Modified", "Update", "Update"),
    "DELETE": Verb("Deleted", "Delete", "Delete"),
    "ATTACH": Verb("AttachmentUploaded", "UploadAttachment", "Attach to"),
}
_LABELS = (
    *("invoiceNumber", "creditNoteNumber", "reference", "code", "nominalCode"),
    *("customerName", "supplierName", "name", "description"),
)
_CODES = {"Pending": 202, "Success": 200, "Failed": 400, "TimedOut": 408}


@define(eq=False)
class Operation:
    """One push as the service has recorded it.

    Attributes:
        key: ``pushOperationKey``.
        company: Identifier of the company.
        connection: Identifier of the connection.
        data_type: As the push path names it.
        verb: POST, PUT, DELETE or ATTACH.
        record_id: The record that is changed; for a create, the new record.
        account_id: The bank account of bank transactions.
        sent: The body as it arrived.
        shape: What the platform lets clients push.
        requested: Service time of the request, in seconds.
        ends: When the platform will have finished; infinite for never.
        problems: Why it fails; empty if it succeeds.
        late: Whether it misses its deadline, and takes effect at *ends* all the same.
        notices: The notifications that subscribers get of its end.
        foreign: Whether somebody else pushed it (`Faults.foreign_writer`).
        status: Pending, Success, Failed or TimedOut, as of the last look.
        completed: Service time at which it ended, or None.
        data: The record as it appears in the platform, after Success.
    """

    key: str
    company: str
    connection: str
    data_type: str
    verb: str
    record_id: str | None
    account_id: str | None
    sent: bytes = field(repr=False)
    shape: Shape = field(repr=False)
    requested: float
    ends: float
    timeout_minutes: int | None = None
    problems: tuple[Problem, ...] = ()
    warnings: tuple[Problem, ...] = ()
    late: bool = False
    notices: Notices = field(default=(Notice(),), repr=False)
    foreign: bool = False
    status: str = "Pending"
    completed: float | None = None
    data: bytes = field(default=b"{}", repr=False)
    row: bytes | None = field(default=None, repr=False)

    @property
    def deadline(self) -> float:
        """When it times out; infinite without ``timeoutInMinutes``."""
        if self.timeout_minutes is None:
            return inf
        return self.requested + self.timeout_minutes * 60

    @property
    def end(self) -> float:
        """When its state becomes final."""
        return min(self.ends, self.deadline)

    @property
    def record(self) -> Any:
        """The record that was sent, or None."""
        return json.loads(self.sent) if self.sent and self.verb != "ATTACH" else None

    @property
    def label(self) -> str:
        """What people call the record: its number, reference or name, or its identifier."""
        record = self.record if isinstance(self.record, dict) else {}
        named = [str(record[name]) for name in _LABELS if record.get(name)]
        return (*named, ("" if self.verb == "POST" else self.record_id) or "")[0]

    def as_kept(self, new_id: Callable[[], str]) -> dict[str, Any]:
        """Return the record as it appears in the platform, with what the platform fills in."""
        record: dict[str, Any] = without_unlisted(self.shape, decode(self.sent))
        self.record_id = self.record_id or new_id()
        stamp = iso(self.ends, digits=0)
        return filled(self.data_type, record) | {
            "id": self.record_id,
            "modifiedDate": stamp,
            "sourceModifiedDate": stamp,
            "metadata": {"isDeleted": False},
        }


@define
class Wording:
    """How operations are written as JSON, which depends on the dialect.

    Args:
        connection_name: ``dataConnectionId`` or ``dataConnectionKey``.
        published: Leave out ``data``; add ``statusCode``, ``errorMessage`` and ``changes``.
    """

    connection_name: str
    published: bool

    @property
    def rare(self) -> bytes:
        """The properties that not every operation has."""
        return encode({"timeoutInMinutes": 1} | ({"errorMessage": ""} if self.published else {}))

    def row(self, operation: Operation) -> bytes:
        """Return *operation* as JSON, written only once for each state."""
        if operation.row is None:
            operation.row = self._write(operation)
        return operation.row

    def _write(self, op: Operation) -> bytes:
        body: dict[str, Any] = {
            "pushOperationKey": op.key,
            "companyId": op.company,
            self.connection_name: op.connection,
            "dataType": option_name(op.data_type),
            "status": op.status,
            "requestedOnUtc": iso(op.requested, digits=7),
            "completedOnUtc": None if op.completed is None else iso(op.completed, digits=7),
            "validation": self._validation(op),
        }
        if op.timeout_minutes is not None:
            body["timeoutInMinutes"] = op.timeout_minutes
        if not self.published:
            return encode(body)[:-1] + b',"data":' + op.data + b"}"
        body |= {"statusCode": _CODES[op.status], "changes": _changes(op)}
        if op.status == "Failed":
            body["errorMessage"] = op.problems[0].message
        return encode(body)

    def _validation(self, op: Operation) -> dict[str, Any]:
        failed = op.problems if op.status == "Failed" else ()
        warned = op.warnings if op.status in {"Failed", "Success"} else ()
        parts = {
            "errors": [problem.body() for problem in failed],
            "warnings": [problem.body() for problem in warned],
        }
        if self.published:
            return {name: entries or None for name, entries in parts.items()}
        return parts


def _changes(op: Operation) -> list[dict[str, Any]] | None:
    if op.status != "Success":
        return None
    reference = {"id": op.record_id, "dataType": option_name(op.data_type)}
    change = {"type": VERBS[op.verb].change, "recordRef": reference}
    return [change | ({"attachmentId": op.key} if op.verb == "ATTACH" else {})]


class Ledger:
    """Every push that the service has recorded, in the order of the requests.

    Args:
        take_effect: Called once with each push that ends without known problems; sets its
            ``data``, or ``problems`` found only then.

    Attributes:
        on_push: Called with each push once it is recorded, and again once it has ended.
    """

    def __init__(self, take_effect: Callable[[Operation], None]) -> None:
        self._take_effect = take_effect
        self._ending: list[tuple[float, int, Operation]] = []
        self._turns = count()
        self._of_company: dict[str, list[Operation]] = {}
        self._by_key: dict[str, Operation] = {}
        self.on_push: Callable[[Operation], None] = lambda operation: None

    def __iter__(self) -> Iterator[Operation]:
        return iter(self._by_key.values())

    def __len__(self) -> int:
        return len(self._by_key)

    def latest(self, count: int) -> list[Operation]:
        """The last *count* pushes, the newest first."""
        return list(islice(reversed(self._by_key.values()), count))

    def record(self, operation: Operation) -> None:
        """Add *operation*."""
        self._by_key[operation.key] = operation
        self._of_company.setdefault(operation.company, []).append(operation)
        self.on_push(operation)
        self._note_end(operation)

    def hurry(self, operation: Operation, ends: float) -> None:
        """Let an open *operation* end at *ends*, for example since its platform is back."""
        if operation.status == "Pending":
            operation.ends = ends
            self._note_end(operation)

    def settle(self, now: float) -> None:
        """End all pushes whose time has come, in the order of their ends."""
        while self._ending and self._ending[0][0] <= now:
            at, _, operation = heapq.heappop(self._ending)
            if operation.status == "Pending" and at == operation.end:
                self._finish(operation, at)
            elif operation.late and at == operation.ends:
                self._take_effect(copy(operation))  # its state is final and stays as it is

    def next_end(self) -> float:
        """Return a time before which no push ends; infinite if none will end."""
        return self._ending[0][0] if self._ending else inf

    def find(self, company: str, key: str) -> Operation | None:
        """The push *key* of *company*."""
        operation = self._by_key.get(key)
        return operation if operation is not None and operation.company == company else None

    def of_company(self, company: str, *, until: float = inf) -> list[Operation]:
        """The pushes of *company* requested up to *until*, oldest first."""
        operations = self._of_company.get(company, [])
        if until == inf:
            return operations
        return operations[: bisect_right(operations, until, key=lambda op: op.requested)]

    def _note_end(self, operation: Operation) -> None:
        if operation.end < inf:
            heapq.heappush(self._ending, (operation.end, next(self._turns), operation))

    def _finish(self, operation: Operation, at: float) -> None:
        # "The service guarantees the operation is not processed after the deadline." Only the
        # published service does not, where the platform has it already: `Faults.late_effect`.
        if operation.late or operation.ends > operation.deadline:
            operation.status = "TimedOut"
            if operation.late and not operation.problems:
                heapq.heappush(self._ending, (operation.ends, next(self._turns), operation))
        else:
            if not operation.problems:
                self._take_effect(operation)
            operation.status = "Failed" if operation.problems else "Success"
        operation.completed = at
        operation.row = None
        self.on_push(operation)
