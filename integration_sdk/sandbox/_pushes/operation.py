"""One push: what was asked, how it ended, and how that is written.

Source: "Push operation".
"""

from __future__ import annotations

import json
from collections.abc import Callable
from math import inf
from typing import Any

from attrs import define, field

from integration_sdk.sandbox._call import Notice, Notices, Problem, decode, encode
from integration_sdk.sandbox._clock import iso
from integration_sdk.sandbox._pushes.catalogue import option_name
from integration_sdk.sandbox._pushes.filling import filled
from integration_sdk.sandbox._pushes.options import Shape, problems, unlisted, without_unlisted

CHANGES = {
    "POST": "Created",
    "PUT": "Modified",
    "DELETE": "Deleted",
    "ATTACH": "AttachmentUploaded",
}


@define(eq=False)
class Operation:
    """One push as the service has recorded it.

    Args:
        key: ``pushOperationKey``.
        company: Identifier of the company.
        connection: Identifier of the connection.
        data_type: As the push path names it.
        verb: POST, PUT, DELETE or ATTACH.
        record_id: The record that is changed; for a create, the new record.
        sent: The body as it arrived.
        shape: What the platform lets clients push.
        requested: Service time of the request, in seconds.
        ends: When the platform will have finished; infinite for never.
        deadline: When it times out; infinite without ``timeoutInMinutes``.
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
        """When it times out."""
        if self.timeout_minutes is None:
            return inf
        return self.requested + self.timeout_minutes * 60

    @property
    def record(self) -> Any:
        """The record that was sent, or None."""
        return json.loads(self.sent) if self.sent and self.verb != "ATTACH" else None

    def judge(self, *, strict: bool) -> None:
        """Determine why the platform refuses the record, or which of its fields it drops."""
        record = decode(self.sent)
        self.problems = tuple(problems(self.shape, record, strict=strict))
        self.warnings = tuple(
            Problem(path, "is not a field of this platform and is dropped", "Unlisted")
            for path in (() if strict else unlisted(self.shape, record))
        )

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

    connection_name: str = "dataConnectionId"
    published: bool = False

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
            "requestedOnUtc": _moment(op.requested),
            "completedOnUtc": _moment(op.completed),
            "validation": self._validation(op),
        }
        if op.timeout_minutes is not None:
            body["timeoutInMinutes"] = op.timeout_minutes
        if self.published:
            return encode(body | _published_parts(op))
        return encode(body)[:-1] + b',"data":' + op.data + b"}"

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


def _moment(moment: float | None) -> str | None:
    return None if moment is None else iso(moment, digits=7)


def _published_parts(op: Operation) -> dict[str, Any]:
    codes = {"Pending": 202, "Success": 200, "Failed": 400, "TimedOut": 408}
    parts: dict[str, Any] = {"statusCode": codes[op.status], "changes": None}
    if op.status == "Failed":
        parts["errorMessage"] = op.problems[0].message
    if op.status == "Success":
        reference = {"id": op.record_id, "dataType": option_name(op.data_type)}
        change: dict[str, Any] = {"type": CHANGES[op.verb], "recordRef": reference}
        if op.verb == "ATTACH":
            change["attachmentId"] = op.key
        parts["changes"] = [change]
    return parts
