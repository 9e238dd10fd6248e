"""Every error of the SDK; one ``except IntegrationError`` catches them all.

::

    IntegrationError
    ├── ConfigurationError          a setting or argument that cannot work (also a ValueError)
    ├── ClientClosed                the client is closed, or belongs to another loop or process
    ├── TransportError              no usable answer
    │   ├── NotSent                 nothing left this process; safe to repeat
    │   ├── AnswerLost              the request may have been carried out
    │   ├── MalformedResponse       an answer that is not what the interface document says
    │   └── ResponseTooLarge        an answer over the cap
    ├── ApiError                    the service said no
    │   ├── BadRequest              400
    │   ├── Unauthorized            401
    │   ├── PaymentRequired         402
    │   │   ├── CompanyLimitReached
    │   │   ├── SyncScheduleNotAllowed
    │   │   └── AccountExpired
    │   ├── Forbidden               403
    │   ├── NotFound                404
    │   │   └── EndpointRemoved     names the replacement
    │   ├── MethodNotAllowed        405
    │   ├── Conflict                409
    │   ├── TooManyRequests         429
    │   ├── InternalServerError     500
    │   └── ServiceUnavailable      503
    ├── PaginationError             a list that does not add up
    │   ├── UnsafeLink
    │   ├── ResultSetChanged
    │   └── InvalidItem             a record that does not fit the model asked for
    ├── PushError
    │   ├── InvalidRecord           the record cannot be right; not sent
    │   ├── PushInDoubt             the answer was lost and nothing settled it
    │   ├── PushFailed              Failed or TimedOut
    │   ├── WaitExpired             your wait ended; the push goes on
    │   └── PollingStopped          the polling loop broke; waits can be started again
    └── JournalError                the journal cannot be trusted or written

`DriftWarning` is a warning, and stands outside of the tree.

Errors hold plain data only (never a key, a header or a live object), so they
survive ``pickle`` and ``copy`` and are safe to log.
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from typing import TYPE_CHECKING, Any, Final

from integration_sdk._answers import ErrorBody

if TYPE_CHECKING:
    from integration_sdk.models import PushOperation


class IntegrationError(Exception):
    """The root of the tree.

    Attributes:
        method, path: The request, where one is concerned. The path is quoted
            and has no query.
        attempts: How often it was sent.
        correlation_id: Quote it to the service's support.
        cursor: Where a list goes on: ``list(cursor=error.cursor)``.
    """

    def __init__(
        self,
        message: str,
        *,
        method: str | None = None,
        path: str | None = None,
        attempts: int = 0,
        correlation_id: str | None = None,
    ) -> None:
        super().__init__(message)
        self.method = method
        self.path = path
        self.attempts = attempts
        self.correlation_id = correlation_id
        self.cursor: str | None = None


class ConfigurationError(IntegrationError, ValueError):
    """A setting or argument that cannot work; the message says what would."""


class ClientClosed(IntegrationError):
    """The client is closed, or is used from another event loop or process."""


# No usable answer


class TransportError(IntegrationError):
    """The request has no usable answer."""


class NotSent(TransportError):
    """Nothing left this process, so the request can be repeated safely."""


class AnswerLost(TransportError):
    """The request may have left and its answer did not arrive.

    A read was repeated within its budget first. A push may have been carried out, so it is not
    repeated; but a coordinator repeats a create under its idempotency key, where there is one.
    """


class MalformedResponse(TransportError):
    """An answer that is not what the interface document says, such as a proxy's HTML."""

    def __init__(self, message: str, *, status: int | None = None, **facts: Any) -> None:
        super().__init__(message, **facts)
        self.status = status


class ResponseTooLarge(TransportError):
    """An answer of more than ``limit`` bytes, unpacked."""

    def __init__(self, message: str, *, limit: int = 0, **facts: Any) -> None:
        super().__init__(message, **facts)
        self.limit = limit


# The service said no


class ApiError(IntegrationError):
    """An answer other than success.

    Attributes:
        status: The HTTP status.
        body: The error body; all None where the answer had none (a proxy's).
        retry_at: When to come back, aware; None where the service did not say.

    Source: "Status codes" and "Error body".
    """

    def __init__(
        self,
        message: str,
        *,
        status: int = 0,
        body: ErrorBody | None = None,
        retry_at: datetime | None = None,
        **facts: Any,
    ) -> None:
        super().__init__(message, **facts)
        self.status = status
        self.body = body or ErrorBody()
        self.retry_at = retry_at


class BadRequest(ApiError):
    """400: the request is wrong as it stands."""


class Unauthorized(ApiError):
    """401: the API key is incorrect."""


class PaymentRequired(ApiError):
    """402: an account limit has been reached. Source: "Account limit errors (402)"."""


class CompanyLimitReached(PaymentRequired):
    """402: the plan allows no further company."""


class SyncScheduleNotAllowed(PaymentRequired):
    """402: the plan allows no ``syncSchedule`` below 24 hours."""


class AccountExpired(PaymentRequired):
    """402: the free account is older than 365 days; every request answers so."""


class Forbidden(ApiError):
    """403."""


class NotFound(ApiError):
    """404: nothing there."""


class EndpointRemoved(NotFound):
    """404 of a legacy bank endpoint after its removal; ``replacement`` is the new path.

    Source: "Versioning" and "Other rules", 4.
    """

    def __init__(self, message: str, *, replacement: str = "", **facts: Any) -> None:
        super().__init__(message, **facts)
        self.replacement = replacement


class MethodNotAllowed(ApiError):
    """405."""


class Conflict(ApiError):
    """409: the resource is not ready, for example while a data set syncs."""


class TooManyRequests(ApiError):
    """429: later. ``retry_at`` says when, where the service did."""


class InternalServerError(ApiError):
    """500."""


class ServiceUnavailable(ApiError):
    """503: offline for maintenance. ``retry_at`` says until when, where the service did."""


BY_STATUS: Final[dict[int, type[ApiError]]] = {
    400: BadRequest,
    401: Unauthorized,
    402: PaymentRequired,
    403: Forbidden,
    404: NotFound,
    405: MethodNotAllowed,
    409: Conflict,
    429: TooManyRequests,
    500: InternalServerError,
    503: ServiceUnavailable,
}


# Lists


class PaginationError(IntegrationError):
    """A list that does not add up; ``page`` is the page number it happened at."""

    def __init__(self, message: str, *, page: int | None = None, **facts: Any) -> None:
        super().__init__(message, **facts)
        self.page = page


class UnsafeLink(PaginationError):
    """A ``next`` link that leads away from the list being read; it was not followed."""


class ResultSetChanged(PaginationError):
    """The result set changed while it was read, and ``on_drift="raise"`` was asked for."""


class InvalidItem(PaginationError):
    """A record that does not fit ``model=``.

    Attributes:
        index: Position in its page, from 0.
        item_path: Where in the record, such as ``$.lineItems[...].quantity``; pydantic models
            say which line, as in ``$.lineItems[2].quantity``.
        raw: The record's bytes as the service sent them.
    """

    def __init__(
        self, message: str, *, index: int = 0, item_path: str = "$", raw: bytes = b"", **facts: Any
    ) -> None:
        super().__init__(message, **facts)
        self.index = index
        self.item_path = item_path
        self.raw = raw


class DriftWarning(UserWarning):
    """The list changed while it was read, and ``on_drift="warn"`` was asked for."""


# Pushes


class PushError(IntegrationError):
    """A push that did not end in Success; ``operation`` is its last state, if one is known."""

    def __init__(
        self, message: str, *, operation: PushOperation | None = None, **facts: Any
    ) -> None:
        super().__init__(message, **facts)
        self.operation = operation


class InvalidRecord(PushError):
    """The record cannot be right, so nothing was sent; ``problems`` lists why."""

    def __init__(self, message: str, *, problems: Sequence[Any] = (), **facts: Any) -> None:
        super().__init__(message, **facts)
        self.problems = tuple(problems)


class PushInDoubt(PushError):
    """The answer was lost, and listing the pushes did not settle what became of it.

    The push is never sent again by itself: it may exist.

    Attributes:
        intent: The push's id in the journal, for ``pushes.decide(...)``.
        candidates: Keys of operations that may be this push.
    """

    def __init__(
        self,
        message: str,
        *,
        intent: str | None = None,
        candidates: Sequence[str] = (),
        **facts: Any,
    ) -> None:
        super().__init__(message, **facts)
        self.intent = intent
        self.candidates = tuple(candidates)


class PushFailed(PushError):
    """The push ended Failed or TimedOut; ``operation.validation`` holds the reasons."""


class WaitExpired(PushError):
    """The caller's wait ended while the push was Pending. The push itself goes on."""


class PollingStopped(PushError):
    """The shared polling loop broke; the cause is chained. Waiting again starts a new one."""


class JournalError(IntegrationError):
    """The journal cannot be opened, trusted or written; nothing was sent on its account."""
