"""Turns a `Response` into a value or an error.

The HTTP status selects the error, the body adds details. If the body is not the documented one (a
proxy's page, say), the error is the same, without details.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping, Sequence
from datetime import UTC, datetime
from functools import cached_property
from typing import Any, ClassVar, Final, TypeVar
from urllib.parse import urlsplit

from attrs import define, field, frozen, setters

from integration_sdk import errors
from integration_sdk._http import statuses
from integration_sdk._http.hints import read_quota, read_retry_after
from integration_sdk._http.requests import Phase, Request, Safety
from integration_sdk._http.statuses import Meaning
from integration_sdk._options_given import Numbers
from integration_sdk._records.codec import LATEST, Json, decode_json
from integration_sdk._records.shapes import read_error_body
from integration_sdk.models import ErrorBody, Quota

E = TypeVar("E", bound=errors.TransportError)


def _pieces(body: bytes | Sequence[bytes]) -> Sequence[bytes]:
    return (body,) if isinstance(body, bytes) else body


@define(kw_only=True, on_setattr=setters.NO_OP)  # checks on setting cost 1 us a call
class Response:
    """An answer, independent of the HTTP library.

    Attributes:
        status: The HTTP status, which counts even if the body has another.
        pieces: The decompressed body, in the pieces in which it was received if it is large.
        received_at: Unix time in seconds.
        sent_to: The URL of the request, without its query; it is known of redirects only.
        attempts: How often the request was sent; set when the call has ended, as is `waited`.
    """

    status: int
    headers: Mapping[str, str] = field(factory=dict, repr=False)
    pieces: Sequence[bytes] = field(default=b"", repr=False, alias="body", converter=_pieces)
    received_at: float = 0.0
    sent_to: str = ""
    attempts: int = 1
    waited: float = 0.0

    phase: ClassVar[Phase] = Phase.ANSWERED

    @cached_property
    def retry_after(self) -> float | None:
        """Seconds to wait that the answer asks for; None if it does not say."""
        return read_retry_after(self.headers, self.received_at)

    @property
    def quota(self) -> Quota | None:
        return read_quota(self.headers, self.received_at)

    @property
    def retry_at(self) -> datetime | None:
        """When to try again, in UTC; None if the answer does not say."""
        if self.retry_after is None:
            return None
        try:
            return datetime.fromtimestamp(self.received_at + self.retry_after, UTC)
        except (OverflowError, ValueError, OSError):
            return LATEST

    @property
    def body(self) -> bytes:
        return self.pieces[0] if len(self.pieces) == 1 else b"".join(self.pieces)

    @property
    def size(self) -> int:
        return sum(map(len, self.pieces))

    @property
    def ok(self) -> bool:
        return 200 <= self.status < 300

    @property
    def not_taken(self) -> bool:
        """Whether it is a redirect that says that the address did not take the request."""
        location = self.headers.get("Location", "")
        return statuses.did_not_take(self.status, self.sent_to, location)


@frozen
class Failure:
    """An attempt without a usable answer, and the error to raise if it is not repeated."""

    phase: Phase
    error: errors.IntegrationError
    repeatable: bool = True


Reply = Response | Failure
"""What came of an attempt: a complete answer, whatever its status, or a failure."""

Fetch = Callable[[Request], Awaitable[Response]]
"""Sends a request and returns the answer, whatever its status; see `Session.send`."""


# Attempts without an answer


def lost(request: Request, why: str, *, attempts: int = 0) -> errors.AnswerLost:
    """Return the error of a request that may have been sent and has no answer."""
    message = f"{request} was sent, but its answer was lost: {why}"
    again = "" if request.safety is Safety.WRITE else ". It can be repeated."
    return unread(errors.AnswerLost, request, message + again, attempts=attempts)


def unread(kind: type[E], request: Request, message: str, **facts: Any) -> E:
    in_doubt = request.safety is Safety.WRITE
    advice = f". {LOOK}" if in_doubt else ""
    return kind(f"{message}{advice}", in_doubt=in_doubt, **request.facts, **facts)


# Values


def check(request: Request, response: Response) -> Response:
    """Return *response* if it is a success, else raise the error that `read_error` returns."""
    if not response.ok:
        raise read_error(request, response)
    return response


def read_json(request: Request, response: Response, *, numbers: Numbers = "float") -> Json:
    """Return the decoded body; None if it is empty.

    Raises:
        ApiError: The service answered with an error.
        MalformedResponse: The body is not JSON.
    """
    check(request, response)
    if not response.body.strip():
        return None
    return placed(request, response, decode_json, response.body, numbers=numbers)


def placed(
    request: Request, response: Response, read: Callable[..., Any], *args: Any, **kw: Any
) -> Any:
    """Return ``read(...)``, and add the request to its error if it fails."""
    try:
        return read(*args, **kw)
    except errors.MalformedResponse as error:
        message = f"{request} answered {response.status}, but {error}{not_json(response)}"
        facts = {"status": response.status, "attempts": response.attempts}
        raise unread(errors.MalformedResponse, request, message, **facts) from None


def not_json(response: Response) -> str:
    """Return what a message about *response* adds if it does not even claim to be JSON."""
    kind = response.headers.get("Content-Type", "").partition(";")[0].strip().lower()
    if not kind or "json" in kind:
        return ""
    return f"; it is {kind:.80}, such as a login or proxy page: check base_url= and the network"


# Errors


def read_error(request: Request, response: Response, *, sent: bool = True) -> errors.ApiError:
    """Return the error for an answer whose status is not 2xx.

    With *sent* False, *response* is the answer to another request, which closed the gate before
    this one could be sent.

    Source: "Status codes", "Account limit errors (402)", "Other rules".
    """
    body = read_error_body(response.body)
    kind = _kind(request, response.status, body or ErrorBody())
    facts: dict[str, Any] = {**request.facts, "status": response.status, "body": body}
    facts["correlation_id"] = body.correlation_id if body else None
    facts |= {"retry_at": response.retry_at, "attempts": response.attempts if sent else 0}
    if issubclass(kind, errors.EndpointRemoved):
        facts["replacement"] = request.replacement
    is_own = body is not None and body.correlation_id is not None
    todo = _what_to_do(kind, request, response, is_own=is_own)
    in_doubt = sent and meaning_of(request, response, is_own=is_own) is Meaning.IN_DOUBT
    if in_doubt:
        # What else there is to do about a refusal would contradict it.
        goes_on = response.status >= 500 or response.status in _REDIRECTS
        todo = f"{LOOK} {todo}" if goes_on else LOOK
    what = _what_happened(request, response, body, sent=sent)
    return kind(f"{what}. {todo}", in_doubt=in_doubt, **facts)


def meaning_of(request: Request, response: Response, *, is_own: bool) -> Meaning:
    """Return what *response* means for *request*; see `statuses.of_answer`."""
    status, not_taken = response.status, response.not_taken
    return statuses.of_answer(request.safety, status, is_own=is_own, not_taken=not_taken)


def _kind(request: Request, status: int, body: ErrorBody) -> type[errors.ApiError]:
    if status == 402:
        return _kind_of_402(body)
    # The body of a removed endpoint, not of an unknown id. Source: "Other rules", rule 4.
    words = body.error, body.can_be_retried, body.detailed_error_code
    if status == 404 and request.replacement and words == ("NotFound", "Unknown", 0):
        return errors.EndpointRemoved
    return statuses.row(status).kind


def _kind_of_402(body: ErrorBody) -> type[errors.ApiError]:
    """Return the error for a 402, from its validation items or else its words.

    Source: "Account limit errors (402)".
    """
    items = body.validation.errors if body.validation else ()
    names = {name for item in items for name in (item.item_id, item.validator_name)}
    words = " ".join([body.error or "", *(item.message or "" for item in items)]).lower()
    if names & {"CreateCompany", "Company"} or "company limit" in words:
        return errors.CompanyLimitReached
    if "SyncSettings" in names or "schedule not allowed" in words:
        return errors.SyncScheduleNotAllowed
    return errors.AccountExpired if "expired" in words else errors.PaymentRequired


def _what_happened(
    request: Request, response: Response, body: ErrorBody | None, *, sent: bool
) -> str:
    reasons = _reasons(body)
    if response.status in _REDIRECTS:
        redirect = f"this address redirects to {_elsewhere(response.headers)}"
        reasons = redirect if body is None else f"{redirect}; {reasons}"
    said = f"{response.status}: {reasons}"
    if sent and response.attempts > 1:
        said += f", the last of {response.attempts} attempts"
    if sent:
        return f"{request} answered {said}"
    return f"{request} was not sent, because the service answered others {said}"


def _elsewhere(headers: Mapping[str, str]) -> str:
    """Return where a redirect leads; its path may hold what is secret."""
    try:
        to = urlsplit(headers.get("Location", ""))
    except ValueError:
        return "elsewhere"
    host = to.netloc.rpartition("@")[2]
    return f"{to.scheme}://{host}" if host else "another path"


def _reasons(body: ErrorBody | None) -> str:
    if body is None:
        return "no error body (perhaps a proxy's answer)"
    items = body.validation.errors if body.validation else ()
    reasons = "; ".join(part for part in (body.error, *map(str, items)) if part)
    quote = f" (correlation {body.correlation_id:.100})" if body.correlation_id else ""
    return f"{reasons or 'no reason given':.2000}{quote}"  # `ErrorBody` has all


_ADVICE_ON_LIMITS: Final[Mapping[type[errors.ApiError], str]] = {
    errors.CompanyLimitReached: "Delete a company or move to a larger plan.",
    errors.SyncScheduleNotAllowed: "Use a syncSchedule of at least 24 hours, or a larger plan.",
    errors.AccountExpired: "The free account has ended; until the plan changes, all is refused.",
}
LOOK: Final = "It may have been carried out; look before you repeat it."
"""What the message of each error says that is `in_doubt`."""
_QUOTE: Final = "Quote the correlation id to the service's support."
_ASK: Final = "Try again later; if it stays so, look at what stands between you and the service."
_REDIRECTS: Final = frozenset({301, 302, 303, 307, 308})


def _what_to_do(
    kind: type[errors.ApiError], request: Request, response: Response, *, is_own: bool
) -> str:
    status, retry_at = response.status, response.retry_at
    if kind is errors.EndpointRemoved:
        return f"The legacy endpoint has been removed; use {request.method} {request.replacement}."
    if status == 404 and request.company_id is None:
        return "Check base_url= and the path."
    advice = _ADVICE_ON_LIMITS.get(kind) or statuses.row(status).advice
    if advice is None:  # "Internal server error: retry later"
        advice = (f"Try again later. {_QUOTE}" if status >= 500 else _QUOTE) if is_own else _ASK
    return f"{advice} Not before {retry_at:%Y-%m-%d %H:%M:%S} UTC." if retry_at else advice
