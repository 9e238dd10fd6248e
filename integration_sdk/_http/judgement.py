"""What came of a transmission means: one table, by kind of request, phase and status.

Whoever sends again, reports an error, or decides whether a push may exist asks here. To change
what a status means, change its row; the test of this module has each cell.

Source: "Status codes", "Error body". Assumed: 502 and 504 are a gateway's way of saying that the
service took too long. Which refusals exclude an effect was seen with the published API.
"""

from __future__ import annotations

from collections.abc import Mapping
from enum import Enum
from types import MappingProxyType
from typing import Final, NamedTuple

from integration_sdk._http.requests import Phase, Safety


class Meaning(Enum):
    """What came of a transmission."""

    DONE = "done"
    """The service has done what was asked."""
    REFUSED = "refused"
    """Nothing happened, and the same request will be refused again."""
    AGAIN = "again"
    """Nothing happened, or no harm: the request may be sent again."""
    IN_DOUBT = "in doubt"
    """It may have been carried out."""
    GIVE_UP = "give up"
    """It was not answered as asked, and sending it again at once will not change that."""


class About(Enum):
    """What an error status is about, and so whom else it concerns."""

    RECORD = "record"
    """What was sent; another record may be accepted."""
    REQUEST = "request"
    """This request."""
    KEY = "key"
    """The API key, so all requests that carry it."""
    ACCOUNT = "account"
    """The account, so all requests."""
    LOAD = "load"
    """Everybody's requests for now: who comes next comes too early as well."""
    GATEWAY = "gateway"
    """A gateway that did not want to wait for the service; less may be done in time."""


class Row(NamedTuple):
    """A row of the table.

    read: What it means for a read, whoever answered.
    write: What it means for a write if the service itself answered. Anybody else's page proves
        nothing: the write is in doubt.
    about: Whom else it concerns.
    """

    read: Meaning
    write: Meaning
    about: About


_DONE: Final = Row(Meaning.DONE, Meaning.DONE, About.REQUEST)
_UNFORESEEN: Final = Row(Meaning.GIVE_UP, Meaning.IN_DOUBT, About.REQUEST)

TABLE: Final[Mapping[int, Row]] = MappingProxyType(
    {
        400: Row(Meaning.REFUSED, Meaning.REFUSED, About.RECORD),
        401: Row(Meaning.REFUSED, Meaning.REFUSED, About.KEY),
        402: Row(Meaning.REFUSED, Meaning.REFUSED, About.ACCOUNT),
        403: Row(Meaning.REFUSED, Meaning.REFUSED, About.REQUEST),
        404: Row(Meaning.REFUSED, Meaning.REFUSED, About.REQUEST),
        405: Row(Meaning.REFUSED, Meaning.REFUSED, About.REQUEST),
        409: Row(Meaning.GIVE_UP, Meaning.REFUSED, About.REQUEST),
        413: Row(Meaning.GIVE_UP, Meaning.REFUSED, About.RECORD),
        415: Row(Meaning.GIVE_UP, Meaning.REFUSED, About.RECORD),
        422: Row(Meaning.GIVE_UP, Meaning.REFUSED, About.RECORD),
        429: Row(Meaning.AGAIN, Meaning.AGAIN, About.LOAD),
        500: Row(Meaning.AGAIN, Meaning.IN_DOUBT, About.REQUEST),
        502: Row(Meaning.AGAIN, Meaning.IN_DOUBT, About.GATEWAY),
        503: Row(Meaning.AGAIN, Meaning.AGAIN, About.LOAD),
        504: Row(Meaning.AGAIN, Meaning.IN_DOUBT, About.GATEWAY),
    }
)
"""The error statuses that mean something. 2xx is done; any other is unforeseen."""

OFFLINE: Final = 503
"""The status that a dialect may doubt, and that a service repeats for the same idempotency key."""


def row(status: int) -> Row:
    """Return what *status* means."""
    return TABLE.get(status) or (_DONE if 200 <= status < 300 else _UNFORESEEN)


def about(status: int | None) -> About | None:
    """Return what an error *status* is about; None if there was no answer."""
    return None if status is None else row(status).about


def of_failure(safety: Safety, phase: Phase) -> Meaning:
    """Return what a transmission means that got as far as *phase*, and has no usable answer."""
    if phase is Phase.NEVER_LEFT or safety is Safety.READ:
        return Meaning.AGAIN
    return Meaning.IN_DOUBT


def of_answer(
    safety: Safety, status: int, *, is_own: bool, refuses_with_503: bool = True
) -> Meaning:
    """Return what an answer means.

    Args:
        safety: The kind of request.
        status: The answer's.
        is_own: Whether the service itself wrote it, rather than a proxy; not asked for a 2xx.
        refuses_with_503: `Dialect.refuses_with_503`.
    """
    found = row(status)
    if safety is Safety.READ:
        return found.read
    doubted = status == OFFLINE and not refuses_with_503
    if found.write is not Meaning.DONE and (doubted or not is_own):
        return Meaning.IN_DOUBT
    return found.write
