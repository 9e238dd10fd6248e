"""The objects of the interface document, as frozen classes.

Names are the service's in snake_case: ``pushOperationKey`` becomes ``push_operation_key``. Fields
that the document does not name are kept in ``extra``, so a newer service loses nothing. Records
(invoices, customers, companies) are not defined in the document and stay plain dicts.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence, Sized
from datetime import datetime
from enum import StrEnum
from typing import Any, Generic, TypeVar

from attrs import Factory, field, frozen

from integration_sdk._text import brief

T_co = TypeVar("T_co", covariant=True)
Extra = Mapping[str, Any]


@frozen(kw_only=True)
class Links:
    """The navigation links of a page, as the service wrote them (usually relative).

    Source: "Page envelope", ``_links``.
    """

    self_: str | None = None
    current: str | None = None
    next: str | None = None
    previous: str | None = None


@frozen(kw_only=True)
class ListPage(Generic[T_co]):
    """One page of a list; iterate over it to get its items.

    Attributes:
        results: Up to ``page_size`` items, in the service's order.
        page_number: Counted from 1.
        page_size: Items per full page; the service may cap what you asked for.
        total_results: Records in the whole result set, after any filter.
        links: Links to the neighbouring pages; ``links.next`` is None on the last page.
        cursor: The place behind this page, for ``list(cursor=)``.

    Source: "Page envelope (list responses)".
    """

    results: Sequence[T_co] = field(repr=lambda results: f"[{len(results)} items]")
    page_number: int
    page_size: int
    total_results: int
    links: Links = field(default=Links(), repr=False)
    cursor: str = field(default="", repr=False)

    def __len__(self) -> int:
        return len(self.results)

    def __iter__(self) -> Iterator[T_co]:
        return iter(self.results)


@frozen(kw_only=True)
class ValidationItem:
    """One validation message: the item, what is wrong with it, and which validator found it."""

    message: str | None = None
    item_id: str | None = None
    validator_name: str | None = None
    extra: Extra = Factory(dict)
    __repr__ = brief

    def __str__(self) -> str:
        return ": ".join(part for part in (self.item_id, self.message) if part) or "no message"


@frozen(kw_only=True)
class Validation:
    """Validation messages: ``errors`` explain a failure, ``warnings`` do not stop a push.

    Source: "Error body" and "Push operation". Assumed: a push operation's
    ``validation`` has the members of the error body's, as the service publishes.
    """

    errors: Sequence[ValidationItem] = field(default=(), eq=tuple)
    warnings: Sequence[ValidationItem] = field(default=(), eq=tuple)
    extra: Extra = Factory(dict)
    __repr__ = brief


@frozen(kw_only=True)
class ErrorBody:
    """The body of an error response.

    ``status_code`` is the body's; the HTTP status counts, even if they differ.
    Quote ``correlation_id`` when you write to the service's support.

    Source: "Error body".
    """

    status_code: int | None = None
    service: str | None = None
    error: str | None = None
    correlation_id: str | None = None
    validation: Validation | None = None
    can_be_retried: str | None = None
    detailed_error_code: int | None = None
    extra: Extra = Factory(dict)
    __repr__ = brief


@frozen(kw_only=True)
class Quota:
    """The last ``X-Rate-Limit-*`` headers seen. Assumed: published, not in the document.

    Attributes:
        limit: Number of requests allowed in the period.
        remaining: Number of requests left in it.
        reset: When the period ends, in UTC; None if the service did not say.
    """

    limit: int | None = None
    remaining: int | None = None
    reset: datetime | None = None


@frozen(kw_only=True)
class Answer:
    """An answer as it came, such as a PDF: from ``client.request(..., raw=True)``.

    Attributes:
        status: The HTTP status, 2xx.
        headers: Read without regard to case.
        body: The bytes, decompressed.
    """

    status: int
    headers: Mapping[str, str] = field(repr=False)
    body: bytes = field(repr=lambda body: f"<{len(body)} bytes>")


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
        return self not in (PushStatus.PENDING, PushStatus.UNKNOWN)


@frozen(kw_only=True)
class RecordRef:
    """A record of the accounting platform."""

    id: str | None = None
    data_type: str | None = None
    extra: Extra = Factory(dict)


@frozen(kw_only=True)
class PushChange:
    """What a push did to one record. Assumed: published, not in the document.

    ``type`` is Created, Modified, Deleted, AttachmentUploaded or Unknown.
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

    ``json.dumps(attrs.asdict(operation), default=str)`` writes it as JSON.

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
    __repr__ = brief

    @property
    def key(self) -> str:
        """Short for ``push_operation_key``."""
        return self.push_operation_key

    @property
    def is_final(self) -> bool:
        """Whether the status will no longer change.

        Assumed: a push with an unknown status has ended if it has a time of completion.
        """
        ended = self.status is PushStatus.UNKNOWN and self.completed_on_utc is not None
        return ended or self.status.is_final


@frozen
class PushRequest:
    """One record to push.

    Attributes:
        company_id: The company to push to.
        connection_id: Its connection.
        data_type: For example ``invoices``.
        record: A mapping, sent as it is, or an instance, sent under the names that
            ``list(model=...)`` reads; see `Connection.push`.
        reference: Your own name for this push, unique in the journal. With a journal it is pushed
            once, however often the program runs. A different record under the same reference is a
            `ReferenceConflict`, unless the push FAILED or was REJECTED: then it is pushed.
        record_id: The record to update; None for a create.
        timeout_minutes: Minutes after which the service gives up on a Pending push.
        natural_key: The field that identifies the record, such as ``invoiceNumber``; a dotted path
            if it is nested. It helps to find the push again if its answer is lost.
        delete: Whether to delete *record_id*; *record* is then None.
        attach: A file to attach to *record_id*, as ``(filename, content)`` or
            ``(filename, content, content_type)``; *record* is then None.
    """

    company_id: str
    connection_id: str
    data_type: str
    record: Any = field(repr=_size)
    reference: str | None = field(default=None, kw_only=True)
    record_id: str | None = field(default=None, kw_only=True)
    timeout_minutes: int | None = field(default=None, kw_only=True)
    natural_key: str | None = field(default=None, kw_only=True)
    delete: bool = field(default=False, kw_only=True)
    attach: tuple[str, bytes] | tuple[str, bytes, str] | None = field(
        default=None, kw_only=True, repr=_size
    )
    __repr__ = brief


class OutcomeStatus(StrEnum):
    """How a coordinator's push ended.

    Attributes:
        SUCCESS: The platform has the record: see ``outcome.key`` and ``outcome.operation``.
        FAILED: The platform refused the record; ``outcome.reasons`` says why. Push the corrected
            record under the same reference. As with REJECTED and INVALID, it does not exist.
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


def _count(members: Sized) -> str:
    return f"<{len(members)}>"


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
    properties: Mapping[str, PropertyDescription] = field(factory=dict, repr=_count)
    options: Sequence[OptionEntry] = field(default=(), repr=_count)
    validation: OptionRules = field(default=OptionRules(), repr=False)
    extra: Extra = Factory(dict)


class ProblemCode(StrEnum):
    """What is wrong, as a code for programs."""

    REQUIRED = "required"
    """A required property is missing, null or empty."""
    NOT_A_CHOICE = "not_a_choice"
    """The value is not one of the choices."""
    WRONG_TYPE = "wrong_type"
    """The value is not of the property's type."""
    UNLISTED = "unlisted"
    """The options do not list the property; the platform may drop it."""


@frozen
class Problem:
    """A problem in a record, found by checking it against the push options.

    Attributes:
        path: For example ``lineItems[2].quantity``; empty for the record itself.
        code: See `ProblemCode`.
        message: A sentence that says what would be right.
        is_error: The push would fail; False: it may fail, or lose part of the record.
    """

    path: str
    code: ProblemCode
    message: str
    is_error: bool = True

    def __str__(self) -> str:
        return f"{self.path}: {self.message}" if self.path else self.message
