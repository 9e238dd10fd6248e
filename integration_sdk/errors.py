"""The exceptions of the SDK; ``except IntegrationError`` catches all of them.

::

    IntegrationError
    ├── ConfigurationError          a wrong setting or argument (also a ValueError)
    │   └── ReferenceConflict       the reference was used for a different record
    ├── ClientClosed                the client is closed, or belongs to another loop or process
    ├── TransportError              no usable answer (includes time-outs)
    │   ├── NotSent                 nothing left this process; safe to repeat
    │   ├── AnswerLost              the request may have been carried out
    │   ├── MalformedResponse       the answer is not one that the document describes
    │   └── ResponseTooLarge        the answer is over the size limit
    ├── ApiError                    the service answered with an error
    │   ├── BadRequest              400
    │   ├── Unauthorized            401
    │   ├── PaymentRequired         402
    │   │   ├── CompanyLimitReached
    │   │   ├── SyncScheduleNotAllowed
    │   │   └── AccountExpired
    │   ├── Forbidden               403
    │   ├── NotFound                404
    │   │   └── EndpointRemoved     the message names the replacement
    │   ├── MethodNotAllowed        405
    │   ├── Conflict                409
    │   ├── TooManyRequests         429
    │   ├── InternalServerError     500
    │   └── ServiceUnavailable      503
    ├── PaginationError             a list cannot be read as it should
    │   └── InvalidItem             a record does not fit the model
    ├── PushError                   alone: a task of the SDK failed; sent pushes continue
    │   ├── InvalidRecord           the record is invalid and was not sent
    │   ├── PushInDoubt             the answer was lost; the push may exist
    │   ├── PushFailed              Failed or TimedOut
    │   └── WaitExpired             your wait ended; the push continues
    ├── PullError                   a pull cannot write, or its files are gone
    └── JournalError                the journal cannot be opened, trusted or written
        ├── JournalInUse            another process or coordinator has it open
        └── StoreUnavailable        the database cannot be reached

Errors hold plain data only: no key, no header, no live object. They survive ``pickle`` and ``copy``
and are safe to log. A message is one line; control characters in the service's texts are escaped.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from copy import copy
from datetime import datetime
from typing import Any, TypeVar

from integration_sdk._text import printable
from integration_sdk.models import ErrorBody, Problem, PushOperation


class IntegrationError(Exception):
    """Base class of all exceptions of the SDK. ``help(integration_sdk.errors)`` shows the tree.

    Example::

        try:
            operation = await books.push("invoices", record)
        except errors.BadRequest as error:
            print(error.reasons, error.correlation_id)
        except errors.IntegrationError as error:
            if error.in_doubt:  # look for the push before you repeat it
                ...

    Attributes:
        method: Of the request; None if there was none.
        path: Of the request, percent-encoded, without its query.
        attempts: How often the request was sent.
        correlation_id: From the error body. Quote it to the service's support.
        in_doubt: Whether the request may have been carried out although it failed. Never of a
            read; of a write, whatever class the error has, unless nothing was sent or the service
            itself refused it.
        cursor: Where to resume a list: ``list(cursor=error.cursor)``.

    Guide: docs/errors.md.
    """

    method: str | None = None
    path: str | None = None
    attempts: int = 0
    correlation_id: str | None = None
    in_doubt: bool = False
    cursor: str | None = None

    def __init__(self, message: str, **facts: Any) -> None:
        """*facts* are attributes of the class; those that are not given keep their defaults."""
        super().__init__(printable(message))
        for name, value in facts.items():
            if not hasattr(type(self), name):
                raise TypeError(f"{type(self).__name__} has no attribute {name!r}")
            if value is not None:
                setattr(self, name, tuple(value) if isinstance(value, list) else value)

    @property
    def reasons(self) -> tuple[str, ...]:
        """What is wrong, a text for each problem; the message, if no problem is named.

        For a record these are the problems that its check found, or the service's validation
        messages.
        """
        return tuple(map(str, self._named())) or (str(self),)

    def _named(self) -> Iterable[object]:
        """Return the problems that are named."""
        return ()


class ConfigurationError(IntegrationError, ValueError):
    """A setting or argument is wrong; the message says what would be right."""


class ReferenceConflict(ConfigurationError):
    """The reference was used for a different record, which may have been pushed.

    Nothing was sent. A web service can answer this with 409, and other wrong arguments with 400.

    Attributes:
        reference: The reference.
    """

    reference: str | None = None


class ClientClosed(IntegrationError):
    """The client is closed, or is used from another event loop or process."""


# No usable answer


class TransportError(IntegrationError):
    """The request has no usable answer, for example because ``timeout=`` passed."""


class NotSent(TransportError):
    """Nothing left this process, so it is safe to repeat the request."""


class AnswerLost(TransportError):
    """The request may have arrived, but its answer was lost.

    A read was retried first. A push is `in_doubt`, so it is not sent again; only if the dialect
    has idempotency keys, a coordinator sends a create again.
    """


class MalformedResponse(TransportError):
    """The answer is not what the interface document describes, for example a proxy's HTML."""

    status: int | None = None


class ResponseTooLarge(TransportError):
    """The answer has more than ``limit`` bytes after decompression."""

    limit: int = 0


# Errors from the service


class ApiError(IntegrationError):
    """The service answered with an error.

    Attributes:
        status: The HTTP status.
        body: The error body. Its fields are all None if the answer had none, as from a proxy.
        retry_at: When to try again, in UTC; None if the service did not say.

    Source: "Status codes" and "Error body".
    """

    status: int = 0
    body: ErrorBody = ErrorBody()
    retry_at: datetime | None = None

    def _named(self) -> Iterable[object]:
        return self.body.validation.errors if self.body.validation else ()


class BadRequest(ApiError):
    """400: the request is invalid. If a write is `in_doubt`, a proxy said so, not the service."""


class Unauthorized(ApiError):
    """401: the API key is incorrect."""


class PaymentRequired(ApiError):
    """402: an account limit has been reached. Source: "Account limit errors (402)"."""


class CompanyLimitReached(PaymentRequired):
    """402: the plan does not allow another company."""


class SyncScheduleNotAllowed(PaymentRequired):
    """402: the plan does not allow a ``syncSchedule`` below 24 hours."""


class AccountExpired(PaymentRequired):
    """402: the free account is older than 365 days; every request gets this answer."""


class Forbidden(ApiError):
    """403: the API key does not permit this."""


class NotFound(ApiError):
    """404: the resource does not exist."""


class EndpointRemoved(NotFound):
    """404: this legacy bank endpoint has been removed; ``replacement`` is the new path.

    Source: "Versioning" and "Other rules", 4.
    """

    replacement: str = ""


class MethodNotAllowed(ApiError):
    """405: the path does not allow this method."""


class Conflict(ApiError):
    """409: the resource is not ready, for example while a data set syncs."""


class TooManyRequests(ApiError):
    """429: too many requests. Try again at ``retry_at``, if the service named it."""


class InternalServerError(ApiError):
    """500: the service failed."""


class ServiceUnavailable(ApiError):
    """503: offline for maintenance. Try again at ``retry_at``, if the service named it."""


# Lists


class PaginationError(IntegrationError):
    """A list cannot be read as it should; ``page`` is the number of the page concerned."""

    page: int | None = None


class InvalidItem(PaginationError):
    """A record does not fit ``model=``.

    Attributes:
        index: Position in its page, from 0.
        item_path: Where in the record, such as ``$.line_items[2].quantity``, or with the service's
            names if the class has these.
        raw: The record's bytes as the service sent them.
    """

    index: int = 0
    item_path: str = "$"
    raw: bytes = b""


# Pushes


class PushError(IntegrationError):
    """A push did not end in Success. ``operation`` is its last known state, if any.

    By itself: a task of the SDK failed, and the cause is chained. Nothing more is sent; sent pushes
    continue at the service. Wait again, or open a coordinator with the same journal.
    """

    operation: PushOperation | None = None


class InvalidRecord(PushError):
    """The record is invalid and was not sent. ``problems`` says why."""

    problems: Sequence[Problem] = ()

    def _named(self) -> Iterable[object]:
        return self.problems


class PushInDoubt(PushError):
    """The answer was lost, and the list of pushes does not show whether the push exists.

    It is always `in_doubt`, so it is sent again only if you decide so.

    Attributes:
        intent: The id of the push in the journal, for ``pushes.decide(...)``.
        candidates: Keys of push operations that may be this one.
    """

    in_doubt: bool = True
    intent: str = ""
    candidates: Sequence[str] = ()


class PushFailed(PushError):
    """The push ended Failed or TimedOut. ``operation.validation`` holds the reasons."""

    def _named(self) -> Iterable[object]:
        if self.operation is None:
            return ()
        if self.operation.validation and self.operation.validation.errors:
            return self.operation.validation.errors
        return filter(None, [self.operation.error_message])


class WaitExpired(PushError):
    """Your wait ended while the push was Pending. The push continues at the service."""


class PullError(IntegrationError):
    """A pull cannot write to its target, or something that it wrote is missing.

    What was committed stays. The next run resumes after it.
    """


class JournalError(IntegrationError):
    """The journal cannot be opened or written, or is damaged. No push is sent unrecorded."""


class JournalInUse(JournalError):
    """Another process, or another coordinator of this process, has the journal open."""


class StoreUnavailable(JournalError):
    """The database of a `Store` cannot be reached. What is on record is sent when it is back."""


_Error = TypeVar("_Error", bound=IntegrationError)


def fresh_copy(error: _Error) -> _Error:
    """Return a copy of *error*, since raising one error several times would grow its traceback."""
    other = copy(error)
    other.__cause__ = error.__cause__
    return other
