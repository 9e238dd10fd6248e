"""The objects of the interface document, as frozen classes.

Names are the service's in snake_case: ``pushOperationKey`` becomes ``push_operation_key``. Fields
that the document does not name are kept in ``extra``, so a newer service loses nothing. Records
(invoices, customers, companies) are not defined in the document and stay plain dicts.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime
from enum import StrEnum
from typing import Any, cast

from attrs import Factory, field, frozen

from integration_sdk._answer_parts import (
    ErrorBody,
    Extra,
    Links,
    Page,
    Quota,
    Validation,
    ValidationItem,
)
from integration_sdk.errors import IntegrationError

__all__ = [
    "ErrorBody",
    "Links",
    "OptionEntry",
    "OptionRule",
    "OptionRules",
    "OutcomeStatus",
    "Page",
    "PropertyDescription",
    "PushChange",
    "PushOperation",
    "PushOutcome",
    "PushRequest",
    "PushStatus",
    "Quota",
    "RecordRef",
    "Validation",
    "ValidationItem",
]


# Pushes


class PushStatus(StrEnum):
    """The state of a push operation. Source: "States and transitions"."""

    PENDING = "Pending"
    SUCCESS = "Success"
    FAILED = "Failed"
    TIMED_OUT = "TimedOut"
    UNKNOWN = "Unknown"
    """A status that the SDK does not know; see ``raw_status``. Assumed: it is not final."""

    @property
    def is_final(self) -> bool:
        """Whether a push with this status will no longer change."""
        return self in _FINAL


_FINAL = frozenset({PushStatus.SUCCESS, PushStatus.FAILED, PushStatus.TIMED_OUT})


@frozen(kw_only=True)
class RecordRef:
    """A record of the accounting platform."""

    id: str | None = None
    data_type: str | None = None
    extra: Extra = Factory(dict)


@frozen(kw_only=True)
class PushChange:
    """What a push did to one record.

    ``type`` is Created, Modified, Deleted, AttachmentUploaded or Unknown.
    Assumed: not in the document; published by the service.
    """

    type: str | None = None
    record_ref: RecordRef | None = None
    attachment_id: str | None = None
    extra: Extra = Factory(dict)


def _size(record: Any) -> str:
    """Return what a repr, and so a log, shows of a record: not its content."""
    if isinstance(record, Mapping):
        return f"<{len(record)} fields>"
    return "None" if record is None else f"<{type(record).__name__}>"


@frozen(kw_only=True)
class PushOperation:
    """One push, as the service last described it.

    Example::

        operation = await client.wait(key, company_id=company_id, timeout=60)
        if operation.status is PushStatus.FAILED:
            print(operation.validation)
        json.dumps(attrs.asdict(operation), default=str)  # times as text

    Attributes:
        push_operation_key: Identifies the push; store it.
        company_id: The company the push belongs to.
        status: See `PushStatus`. ``raw_status`` is the text that the service sent.
        data_connection_id: The connection it goes through (some schemas call
            it ``dataConnectionKey``).
        data_type: For example ``invoices``.
        requested_on_utc: Aware, UTC.
        completed_on_utc: Aware, UTC; None while Pending.
        data: The record as it is in the platform, after Success, with the fields that the
            platform generated. Empty while Pending; None if the answer has no data.
        validation: Why a push failed.
        timeout_in_minutes: Minutes after which the service gives up; None for no limit.
        status_code: Assumed, like the next two: published by the service, not in the document.
        error_message: Why it failed, in the service's words.
        changes: What the push did to which records.

    Source: "Push operation".
    """

    push_operation_key: str
    company_id: str
    status: PushStatus
    data_connection_id: str | None = None
    data_type: str | None = None
    raw_status: str = ""
    requested_on_utc: datetime | None = None
    completed_on_utc: datetime | None = None
    data: Mapping[str, Any] | None = field(default=None, repr=_size)
    validation: Validation | None = None
    timeout_in_minutes: int | None = None
    status_code: int | None = None
    error_message: str | None = None
    changes: Sequence[PushChange] = field(default=(), eq=tuple)
    extra: Extra = Factory(dict)

    def __attrs_post_init__(self) -> None:  # msgspec cannot read a default that looks at others
        if not self.raw_status:
            object.__setattr__(self, "raw_status", self.status.value)

    @property
    def key(self) -> str:
        """Short for ``push_operation_key``."""
        return self.push_operation_key

    @property
    def is_final(self) -> bool:
        """Whether the status will no longer change."""
        return self.status.is_final


def _plain(value: Any) -> Any:
    """Return the plain str or int of an enum member, for use in URLs and on disk."""
    match value:
        case str() if type(value) is not str:
            return str.__str__(value)
        case int() if type(value) not in {int, bool}:
            return int(value)
    return value


# Type checkers and help() take the type of an argument from its converter.


def _text(value: str) -> str:
    plain: str = _plain(value)
    return plain


def _maybe_text(value: str | None) -> str | None:
    plain: str | None = _plain(value)
    return plain


def _maybe_minutes(value: int | None) -> int | None:
    plain: int | None = _plain(value)
    return plain


@frozen
class PushRequest:
    """One record to push.

    Example::

        request = PushRequest(
            company_id,
            connection_id,
            "suppliers",
            {"supplierName": "Toft Timber", "status": "Active"},
            reference="supplier-17",  # unique in your journal
            natural_key="supplierName",
        )

    Attributes:
        company_id: The company to push to.
        connection_id: Its connection.
        data_type: For example ``invoices``.
        record: A mapping, or an instance of an attrs class, dataclass, pydantic model or msgspec
            Struct. Mappings are sent as they are; with a journal and a reference, keys are sorted.
            Instances are sent under the names that ``list(model=...)`` reads: ``due_date`` becomes
            ``dueDate``.
        reference: Your own name for this push, unique in the journal. With a journal it is pushed
            once, however often the program runs. Repeat it with the same record; the order of its
            fields does not matter. A different record is a `ReferenceConflict`, unless the push
            FAILED or was REJECTED: then the new record is pushed.
        record_id: The record to update; None for a create.
        timeout_minutes: Minutes after which the service gives up on a Pending push.
        natural_key: The field that identifies the record, in the service's spelling, such as
            ``invoiceNumber``; a dotted path if it is nested. The SDK uses it to find the push again
            if its answer is lost.
    """

    company_id: str = field(converter=_text)
    connection_id: str = field(converter=_text)
    data_type: str = field(converter=_text)
    record: Any = field(repr=_size)
    reference: str | None = field(default=None, kw_only=True, converter=_maybe_text)
    record_id: str | None = field(default=None, kw_only=True, converter=_maybe_text)
    timeout_minutes: int | None = field(default=None, kw_only=True, converter=_maybe_minutes)
    natural_key: str | None = field(default=None, kw_only=True, converter=_maybe_text)


class OutcomeStatus(StrEnum):
    """How a coordinator's push ended.

    INVALID: refused by the SDK, not sent. REJECTED: refused by the service, no key. FAILED: refused
    by the platform, with a key. In all three cases the record does not exist.

    Attributes:
        SUCCESS: The platform has the record: see ``outcome.key`` and ``outcome.operation``.
        FAILED: The platform refused the record; ``outcome.reasons`` says why. Push the corrected
            record under the same reference.
        TIMED_OUT: The service's deadline (``timeout_minutes``) passed. With some services the push
            may still take effect: look first, then push it again with `Coordinator.decide`.
        REJECTED: The service refused the request, or it was never sent; ``outcome.error`` says why.
            Once the cause is gone (a limit, a wrong key), push it again.
        INVALID: The record or an argument is wrong, or the reference was used for a different
            record. Nothing was sent. Correct it and push it again.
        IN_DOUBT: The answer was lost, and the list of pushes does not show whether the push exists.
            It is not sent again: settle it with `Coordinator.decide`.
        PENDING: You stopped waiting before the push ended. It continues at the service.

    Source: "States and transitions" for FAILED and TIMED_OUT; the others are the SDK's own.
    """

    SUCCESS = "SUCCESS"
    FAILED = "FAILED"
    TIMED_OUT = "TIMED_OUT"
    REJECTED = "REJECTED"
    INVALID = "INVALID"
    IN_DOUBT = "IN_DOUBT"
    PENDING = "PENDING"


@frozen(kw_only=True)
class PushOutcome:
    """The result of one `PushRequest`.

    Example::

        async for outcome in pushes.run(requests):
            if outcome.status is OutcomeStatus.SUCCESS:
                print(outcome.reference, outcome.key)
            elif isinstance(outcome.error, PushInDoubt):  # IN_DOUBT
                print("decide about", outcome.error.intent, outcome.error.candidates)
            else:
                print(outcome.reference, outcome.status, outcome.reasons)

    Attributes:
        status: See `OutcomeStatus`.
        request: The request.
        operation: The last known state; None if there is no push, or none was found.
        error: Why the status is not SUCCESS, as an exception; None for SUCCESS.

    Guide: docs/guides/in-doubt.md.
    """

    status: OutcomeStatus
    request: PushRequest
    operation: PushOperation | None = None
    error: IntegrationError | None = None

    @property
    def reference(self) -> str | None:
        """The request's reference."""
        return self.request.reference

    @property
    def key(self) -> str | None:
        """The push operation's key; None if there is no operation."""
        return self.operation.push_operation_key if self.operation else None

    @property
    def reasons(self) -> tuple[str, ...]:
        """Why the status is not SUCCESS: a text for each problem. Empty for SUCCESS."""
        return self.error.reasons if self.error else ()

    def raise_for_status(self) -> PushOutcome:
        """Return self if the push succeeded, else raise ``error``."""
        if self.error is not None:
            raise self.error
        return self

    def result(self) -> PushOperation:
        """Return the operation if the push succeeded, else raise ``error``."""
        return cast("PushOperation", self.raise_for_status().operation)  # a success has one


# Push options


@frozen(kw_only=True)
class OptionEntry:
    """A choice: show ``display_name``, send ``value``. Source: "Option entry"."""

    value: str | int | float | bool | None = None
    type: str | None = None
    display_name: str | None = None
    extra: Extra = Factory(dict)


@frozen(kw_only=True)
class OptionRule:
    """A rule about ``field`` in words, such as a maximum length. For people, not for programs.

    Source: "Property description", ``validation``.
    """

    field: str | None = None
    details: str | None = None
    ref: str | None = None
    extra: Extra = Factory(dict)


@frozen(kw_only=True)
class OptionRules:
    """The rules of one property. Assumed: ``information`` is published beside ``warnings``."""

    warnings: Sequence[OptionRule] = ()
    information: Sequence[OptionRule] = ()
    extra: Extra = Factory(dict)


@frozen(kw_only=True)
class PropertyDescription:
    """One property of a record that can be pushed; properties nest.

    Attributes:
        type: Object, String, and as published also Array, Number, Boolean,
            DateTime, File and MultiPart.
        properties: By name. For an Array they describe one element.
        required: Whether it must have a value if its parent is present.
        options: The only values allowed, if not empty.
        validation: Further rules, in words.

    Source: "Push options description (response of the options endpoint)".
    """

    type: str | None = None
    display_name: str | None = None
    description: str | None = None
    required: bool = False
    properties: Mapping[str, PropertyDescription] = Factory(dict)
    options: Sequence[OptionEntry] = ()
    validation: OptionRules = OptionRules()
    extra: Extra = Factory(dict)
