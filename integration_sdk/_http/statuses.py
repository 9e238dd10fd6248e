"""What the result of one attempt means: one table, by status, kind of request and phase.

Whatever sends again, raises an error, or decides whether a push may exist asks here. To change
what a status means, change its row; the test of this module has each cell.

Source: "Status codes", "Error body". Assumed: 502 and 504 are a gateway's way of saying that the
service took too long. Which refusals exclude an effect was seen with the published API.
"""

from __future__ import annotations

from collections.abc import Mapping
from enum import Enum
from types import MappingProxyType
from typing import Final, NamedTuple
from urllib.parse import urljoin, urlsplit

from integration_sdk import errors
from integration_sdk._http.requests import Phase, Safety


class Meaning(Enum):
    """What the result of one attempt means."""

    DONE = "done"  # the service has done what was asked
    REFUSED = "refused"  # nothing happened, and the same request will be refused again
    AGAIN = "again"  # nothing happened, or no harm: the request may be sent again
    IN_DOUBT = "in doubt"  # it may have been carried out
    GIVE_UP = "give up"
    """It was not answered as asked, and sending it again at once will not change that."""


class Scope(Enum):
    """What an error status concerns."""

    RECORD = "record"  # what was sent; another record may be accepted
    REQUEST = "request"  # this request
    KEY = "key"  # the API key, so all requests that carry it
    ACCOUNT = "account"  # the account, so all requests
    LOAD = "load"  # all requests, for now: the next one would be refused too
    GATEWAY = "gateway"  # a gateway timed out; a smaller page may succeed


class Row(NamedTuple):
    """A row of the table.

    read: What it means for a read, whoever answered.
    write: What it means for a write if the service itself answered. A page of anything else
        proves nothing: the write is in doubt.
    scope: What else it concerns.
    kind: The error that is raised.
    advice: What its message says to do; None where that depends on who answered.
    """

    read: Meaning
    write: Meaning
    scope: Scope
    kind: type[errors.ApiError] = errors.ApiError
    advice: str | None = None


_DONE: Final = Row(Meaning.DONE, Meaning.DONE, Scope.REQUEST)
_UNFORESEEN: Final = Row(Meaning.GIVE_UP, Meaning.IN_DOUBT, Scope.REQUEST)
_AGAIN, _REFUSED = Meaning.AGAIN, Meaning.REFUSED
_GIVE_UP, _IN_DOUBT = Meaning.GIVE_UP, Meaning.IN_DOUBT
_CORRECT: Final = "Correct the request; it will be refused again as it stands."
_MOVED: Final = "Redirects are not followed, since they would take the key along; set base_url=."

# fmt: off
TABLE: Final[Mapping[int, Row]] = MappingProxyType({
    **dict.fromkeys((301, 302, 303),
                    Row(_GIVE_UP, _IN_DOUBT, Scope.REQUEST, errors.ApiError, _MOVED)),
    **dict.fromkeys((307, 308), Row(_GIVE_UP, _REFUSED, Scope.REQUEST, errors.ApiError, _MOVED)),
    400: Row(_REFUSED, _REFUSED, Scope.RECORD, errors.BadRequest, _CORRECT),
    401: Row(_REFUSED, _REFUSED, Scope.KEY, errors.Unauthorized,
             "Check the API key (api_key= or INTEGRATION_SDK_API_KEY) and the base URL it is for."),
    402: Row(_REFUSED, _REFUSED, Scope.ACCOUNT, errors.PaymentRequired,
             "An account limit is reached; the service's portal shows the plan."),
    403: Row(_REFUSED, _REFUSED, Scope.REQUEST, errors.Forbidden,
             "This API key may not do that."),
    404: Row(_REFUSED, _REFUSED, Scope.REQUEST, errors.NotFound,
             "Check the ids and the data type; a connection or record may have been removed."),
    405: Row(_REFUSED, _REFUSED, Scope.REQUEST, errors.MethodNotAllowed,
             "This method is not allowed here; the dialect may not fit the service."),
    409: Row(_GIVE_UP, _REFUSED, Scope.REQUEST, errors.Conflict,
             "The resource is not ready; for data, await company.wait_until_ready(data_type)."),
    413: Row(_GIVE_UP, _REFUSED, Scope.RECORD, errors.ApiError,
             "Send less at once; it will be refused again as it stands."),
    415: Row(_GIVE_UP, _REFUSED, Scope.RECORD, errors.ApiError,
             "The dialect may not fit the service, or something on the way changes requests."),
    422: Row(_GIVE_UP, _REFUSED, Scope.RECORD, errors.ApiError, _CORRECT),
    429: Row(_AGAIN, _AGAIN, Scope.LOAD, errors.TooManyRequests,
             "Come back later, or lower rate= and prefetch=."),
    500: Row(_AGAIN, _IN_DOUBT, Scope.REQUEST, errors.InternalServerError),
    502: Row(_AGAIN, _IN_DOUBT, Scope.GATEWAY),
    503: Row(_AGAIN, _AGAIN, Scope.LOAD, errors.ServiceUnavailable,
             "The service is offline for a while; come back later."),
    504: Row(_AGAIN, _IN_DOUBT, Scope.GATEWAY),
})
# fmt: on
"""The error statuses that mean something. 2xx is done; any other is unforeseen."""

OFFLINE: Final = 503
"""The status that a service repeats for the same idempotency key."""


def row(status: int) -> Row:
    """Return what *status* means."""
    return TABLE.get(status) or (_DONE if 200 <= status < 300 else _UNFORESEEN)


def scope_of(status: int | None) -> Scope | None:
    """Return what an error *status* concerns; None if there was no answer."""
    return None if status is None else row(status).scope


def of_failure(safety: Safety, phase: Phase) -> Meaning:
    """Return what an attempt means that got as far as *phase*, and has no usable answer."""
    if phase is Phase.NEVER_LEFT or safety is Safety.READ:
        return Meaning.AGAIN
    return Meaning.IN_DOUBT


def of_answer(safety: Safety, status: int, *, is_own: bool, not_taken: bool = False) -> Meaning:
    """Return what an answer means.

    *is_own*: the service itself wrote it, not a proxy; *not_taken*: see `did_not_take`.
    """
    found = row(status)
    if safety is Safety.READ:
        return found.read
    if not_taken or status in (307, 308):
        return Meaning.REFUSED  # whatever sent it: the request went no further
    if found.write is not Meaning.DONE and not is_own:
        return Meaning.IN_DOUBT
    return found.write


def did_not_take(status: int, sent_to: str, location: str) -> bool:
    """Return whether a redirect says that the address *sent_to* did not take the request.

    That is a 307 or 308, or a 301 or 302 to the same path with another scheme or host, such as
    from ``http:`` to ``https:``. Other redirects may follow a write that was carried out.
    """
    if status not in (301, 302):
        return status in (307, 308)
    try:
        here, there = urlsplit(sent_to), urlsplit(urljoin(sent_to, location))
    except ValueError:
        return False
    return here.path == there.path and here[:2] != there[:2]
