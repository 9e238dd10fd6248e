"""Every push, from its request to its end, and how it is written.

When and how a push ends is decided when it is accepted. Its state then depends only on the
clock, so ten thousand open pushes cost nothing until they end.

Source: "Push operation"; "States and transitions".
"""

from __future__ import annotations

import heapq
import json
from bisect import bisect_right
from collections import defaultdict
from collections.abc import Callable, Iterator
from itertools import count, islice
from math import inf
from typing import Any

from attrs import define, field

from integration_sdk.sandbox._call import Notice, Problem, decode, encode, iso
from integration_sdk.sandbox._schemas import Shape, option_name, without_unlisted

VERBS = {
    "POST": ("Created", "Create"),
    "PUT": ("Modified", "Update"),
    "DELETE": ("Deleted", "Delete"),
    "ATTACH": ("AttachmentUploaded", "UploadAttachment"),
    "DETACH": ("Deleted", "Delete"),
}
"""What a push does: in an operation's ``changes``, in a notification."""
_CODES = {"Pending": 202, "Success": 200, "Failed": 400, "TimedOut": 408}


@define(eq=False)
class Operation:
    """One push as the service has recorded it.

    Attributes:
        key: ``pushOperationKey``; *company* and *connection* are identifiers, too.
        data_type: As the push path names it.
        verb: POST, PUT, DELETE or ATTACH.
        record_id: The record that is changed; for a create, the new record.
        account_id: The bank account of bank transactions.
        sent: The body as it arrived; *record* is what it holds.
        requested: Service time of the request, in seconds.
        ends: When the platform will have finished; infinite for never.
        problems: Why it fails; empty if it succeeds.
        foreign: Whether another client pushed it (`Sandbox.push`).
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
    notices: tuple[Notice, ...] = field(default=(Notice(),), repr=False)
    foreign: bool = False
    status: str = "Pending"
    completed: float | None = None
    data: bytes = field(default=b"{}", repr=False)
    row: bytes | None = field(default=None, repr=False)

    @property
    def deadline(self) -> float:
        if self.timeout_minutes is None:
            return inf
        return self.requested + self.timeout_minutes * 60

    @property
    def end(self) -> float:
        return min(self.ends, self.deadline)

    @property
    def record(self) -> Any:
        return json.loads(self.sent) if self.sent and self.verb != "ATTACH" else None

    def as_kept(self, new_id: Callable[[], str]) -> dict[str, Any]:
        """Return the record as it appears in the platform, with the fields that this fills in."""
        record: dict[str, Any] = without_unlisted(self.shape, decode(self.sent))
        self.record_id = self.record_id or new_id()
        stamp = iso(self.ends, digits=0)
        return record | {
            "id": self.record_id,
            "modifiedDate": stamp,
            "sourceModifiedDate": stamp,
            "metadata": {"isDeleted": False},
        }


def written(op: Operation, *, published: bool) -> bytes:
    """Return *op* as JSON.

    The *published* dialect calls the connection ``dataConnectionKey``, leaves out ``data``, and
    adds ``statusCode``, ``errorMessage`` and ``changes``.
    """
    errors = [one.body() for one in op.problems if op.status == "Failed"]
    warnings = [one.body() for one in op.warnings if op.status in {"Failed", "Success"}]
    body: dict[str, Any] = {
        "pushOperationKey": op.key,
        "companyId": op.company,
        "dataConnectionKey" if published else "dataConnectionId": op.connection,
        "dataType": option_name(op.data_type),
        "status": op.status,
        "requestedOnUtc": iso(op.requested, digits=7),
        "completedOnUtc": None if op.completed is None else iso(op.completed, digits=7),
        "validation": {"errors": errors, "warnings": warnings},
    }
    if op.timeout_minutes is not None:
        body["timeoutInMinutes"] = op.timeout_minutes
    if not published:
        return encode(body)[:-1] + b',"data":' + op.data + b"}"
    body["validation"] = {"errors": errors or None, "warnings": warnings or None}
    body |= {"statusCode": _CODES[op.status], "changes": None}
    if op.status == "Success":
        reference = {"id": op.record_id, "dataType": option_name(op.data_type)}
        change = {"type": VERBS[op.verb][0], "recordRef": reference}
        body["changes"] = [change | ({"attachmentId": op.key} if op.verb == "ATTACH" else {})]
    if errors:
        body["errorMessage"] = errors[0]["message"]
    return encode(body)


class Ledger:
    """Every push that the service has recorded, in the order of the requests.

    *take_effect* is called once with each push that ends without known problems; it sets its
    ``data``, or ``problems`` found only then. *on_push* is called with each push once it is
    recorded, and again once it has ended.
    """

    def __init__(self, take_effect: Callable[[Operation], None]) -> None:
        self._take_effect = take_effect
        self.on_push: Callable[[Operation], None] = lambda operation: None
        self._ending: list[tuple[float, int, Operation]] = []
        self._turns = count()
        self._of_company = defaultdict[str, list[Operation]](list)
        self._by_key: dict[str, Operation] = {}

    def __iter__(self) -> Iterator[Operation]:
        return iter(self._by_key.values())

    def __len__(self) -> int:
        return len(self._by_key)

    def latest(self, count: int) -> list[Operation]:
        return list(islice(reversed(self._by_key.values()), count))

    def record(self, operation: Operation) -> None:
        self._by_key[operation.key] = operation
        self._of_company[operation.company].append(operation)
        self.on_push(operation)
        self.note_end(operation)

    def note_end(self, operation: Operation) -> None:
        """Let *operation* end at its time, which may have changed."""
        if operation.end < inf:
            heapq.heappush(self._ending, (operation.end, next(self._turns), operation))

    def next_end(self) -> float:
        """Return a time before which no push ends; infinite if none will end."""
        return self._ending[0][0] if self._ending else inf

    def settle(self, now: float) -> None:
        """End all pushes whose time has come, in the order of their ends."""
        while self._ending and self._ending[0][0] <= now:
            at, _, operation = heapq.heappop(self._ending)
            if operation.status != "Pending" or at != operation.end:
                continue
            # "The service guarantees the operation is not processed after the deadline."
            if operation.ends > operation.deadline:
                operation.status = "TimedOut"
            else:
                if not operation.problems:
                    self._take_effect(operation)
                operation.status = "Failed" if operation.problems else "Success"
            operation.completed, operation.row = at, None
            self.on_push(operation)

    def find(self, company: str, key: str) -> Operation | None:
        operation = self._by_key.get(key)
        return operation if operation is not None and operation.company == company else None

    def of_company(self, company: str, *, until: float = inf) -> list[Operation]:
        """The pushes of *company* requested up to *until*, oldest first."""
        operations = self._of_company[company]
        return operations[: bisect_right(operations, until, key=lambda op: op.requested)]
