"""Answers about pushes: what came of sending one, and lists and single ones, read no further than
needed.

A page of a list can hold 5,000 operations, of which a poll needs three fields, so only those are
decoded. An operation that turns out to be final is decoded in full, from its own bytes, by a fast
path for the usual answer: only documented names, and no validation messages. Anything else is
decoded by `shapes.read_operation`.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from datetime import UTC, datetime
from decimal import Decimal
from functools import lru_cache
from typing import Any, Final
from urllib.parse import urlsplit

import msgspec
from attrs import frozen

from integration_sdk._http import responses
from integration_sdk._http.requests import Phase, Request
from integration_sdk._http.responses import Reply, Response
from integration_sdk._push.table import ACKNOWLEDGED, SendResult
from integration_sdk._records.codec import decode_json, parse_utc
from integration_sdk._records.shapes import read_operation
from integration_sdk.errors import ApiError, IntegrationError, MalformedResponse
from integration_sdk.models import PushChange, PushOperation, PushStatus, RecordRef, Validation


class Listed(msgspec.Struct, gc=False):
    """What a poll looks at, and the time by which a search tells old pushes from new ones."""

    key: str = msgspec.field(name="pushOperationKey")
    status: str | None = None
    requested: str | None = msgspec.field(name="requestedOnUtc", default=None)

    @property
    def requested_on_utc(self) -> datetime | None:
        """The service's time of the request; None if it is absent or unreadable."""
        try:
            return None if self.requested is None else parse_utc(self.requested)
        except ValueError:
            return None


_NOTHING: Final = msgspec.Raw(b"null")


class _Next(msgspec.Struct):
    next: msgspec.Raw = _NOTHING


class _Envelope(msgspec.Struct):
    results: list[Listed]
    links: _Next | None = msgspec.field(name="_links", default=None)
    page_size: int = msgspec.field(name="pageSize", default=0)


class _Raws(msgspec.Struct):
    results: list[msgspec.Raw]


_read_envelope: Final = msgspec.json.Decoder(_Envelope).decode
_read_raws: Final = msgspec.json.Decoder(_Raws).decode


@frozen
class PushPage:
    """One page of a list of pushes.

    Attributes:
        rows: Key and status of each push, in the service's order.
        more: Whether there is a next page.
        page_size: As reported by the service; 0 if it was not.
    """

    rows: list[Listed]
    more: bool
    page_size: int
    _body: bytes

    def operations(self, indexes: list[int], *, exact: bool = False) -> list[PushOperation | None]:
        """Decode these rows in full; None for a row that is not as documented."""
        raws = _read_raws(self._body).results
        return [_or_none(bytes(raws[index]), exact=exact) for index in indexes]


def read_page(body: bytes) -> PushPage:
    """Return a page of pushes.

    Raises:
        MalformedResponse: It is no page envelope, or an operation has no key.
    """
    try:
        page = _read_envelope(body)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise MalformedResponse(f"no page of push operations: {error}") from None
    more = page.links is not None and bytes(page.links.next) != b"null"
    return PushPage(page.results, more, page.page_size, body)


def _or_none(raw: bytes, *, exact: bool) -> PushOperation | None:
    try:
        return read_full(raw, exact=exact)
    except MalformedResponse:
        return None


class _NoItems(msgspec.Struct, gc=False, forbid_unknown_fields=True):
    errors: tuple[()] | None = None
    warnings: tuple[()] | None = None


class _Ref(msgspec.Struct, rename="camel", gc=False, forbid_unknown_fields=True):
    id: str | None = None
    data_type: str | None = None


class _Change(msgspec.Struct, rename="camel", gc=False, forbid_unknown_fields=True):
    type: str | None = None
    record_ref: _Ref | None = None
    attachment_id: str | None = None


class _Usual(msgspec.Struct, rename="camel", gc=False, forbid_unknown_fields=True):
    push_operation_key: str
    company_id: str
    status: str
    data_connection_id: str | None = None
    data_connection_key: str | None = None
    data_type: str | None = None
    requested_on_utc: str | None = None
    completed_on_utc: str | None = None
    data: dict[str, Any] | None = None
    validation: _NoItems | None = None
    timeout_in_minutes: int | None = None
    status_code: int | None = None
    error_message: str | None = None
    changes: tuple[_Change, ...] | None = None


_STATUSES: Final = {status.value: status for status in PushStatus}
_NO_ITEMS: Final = Validation()
_NO_EXTRA: Final[dict[str, Any]] = {}
"""Shared by all operations without extra fields, since ten thousand may be open."""
LONGEST_NAME: Final = 200
"""Characters of a name that is kept; a service that makes longer ones up would fill the memory."""
_kept = lru_cache(4096)(str)
_read_usual: Final = msgspec.json.Decoder(_Usual).decode
_read_exact: Final = msgspec.json.Decoder(_Usual, float_hook=Decimal).decode


def read_full(raw: bytes, *, exact: bool = False) -> PushOperation:
    """Return one push operation; *exact* reads the fractions of its ``data`` as Decimal.

    Raises:
        MalformedResponse: It is not as documented.
    """
    try:
        return _operation(_read_exact(raw) if exact else _read_usual(raw))
    except (msgspec.DecodeError, ValueError, ArithmeticError, KeyError, RecursionError):
        return read_operation(decode_json(raw, exact=exact))


def read_any(raw: bytes, *, exact: bool = False) -> PushOperation:
    """Return one push operation, as far as it can be read; see `read_brief`."""
    try:
        return read_full(raw, exact=exact)
    except MalformedResponse as problem:
        return read_brief(raw, problem)


UNREADABLE: Final = "The rest of the answer cannot be read"


def read_brief(raw: bytes, problem: MalformedResponse) -> PushOperation:
    """Return what is left of an operation that cannot be read in full because of *problem*.

    That is its key, company and status; ``error_message`` says why the rest is missing. So a
    number that is too large, or half a character, does not keep a push from ending.

    Raises:
        MalformedResponse: *problem*, if these cannot be read either.
    """
    try:
        told = json.loads(raw.decode(errors="replace"), parse_int=float)
        key, company, status = told["pushOperationKey"], told["companyId"], told["status"]
        if not all(isinstance(one, str) and one for one in (key, company, status)):
            raise problem
    except (ValueError, TypeError, KeyError, RecursionError):
        raise problem from None
    return PushOperation(
        push_operation_key=key,
        company_id=company,
        status=_STATUSES.get(status, PushStatus.UNKNOWN),
        raw_status=status,
        error_message=f"{UNREADABLE}: {problem}",
    )


def _operation(usual: _Usual) -> PushOperation:
    requested, completed = usual.requested_on_utc, usual.completed_on_utc
    own, other = usual.data_connection_id, usual.data_connection_key
    return PushOperation(
        push_operation_key=usual.push_operation_key,
        company_id=_shared(usual.company_id) or "",
        data_connection_id=_shared(other if own is None else own),
        data_type=_shared(usual.data_type),
        status=_STATUSES[usual.status],
        raw_status=usual.status,
        requested_on_utc=None if requested is None else parse_utc(requested),
        completed_on_utc=None if completed is None else parse_utc(completed),
        data=usual.data,
        validation=None if usual.validation is None else _NO_ITEMS,
        timeout_in_minutes=usual.timeout_in_minutes,
        status_code=usual.status_code,
        error_message=usual.error_message,
        changes=tuple([_change(one) for one in usual.changes]) if usual.changes else (),
        extra=_NO_EXTRA,
    )


def _change(usual: _Change) -> PushChange:
    return PushChange(
        type=_shared(usual.type),
        record_ref=None if usual.record_ref is None else _record_ref(usual.record_ref),
        attachment_id=usual.attachment_id,
        extra=_NO_EXTRA,
    )


def _record_ref(usual: _Ref) -> RecordRef:
    return RecordRef(id=usual.id, data_type=_shared(usual.data_type), extra=_NO_EXTRA)


def _shared(name: str | None) -> str | None:
    """Return one shared string per name: ten thousand operations name only a few lanes."""
    return name if name is None or len(name) > LONGEST_NAME else _kept(name)


# What came of sending a push


def read_reply(call: Request, reply: Reply, *, unix_time: float, exact: bool = False) -> SendResult:
    """Return what *reply* to *call* says; *exact* reads fractions as Decimal."""
    if not isinstance(reply, Response):
        wait = seconds_until(reply.error, unix_time)
        return SendResult(reply.phase, cause=str(reply.error), retry_after=wait, error=reply.error)
    operation = _acknowledged(reply, exact=exact)
    return SendResult(
        Phase.ANSWERED,
        status=reply.status,
        body={"pushOperationKey": operation.key} if operation else _object(reply.body),
        retry_after=reply.retry_after,
        operation=operation,
        error=None if operation else _why_not(call, reply),
        is_moved=_is_moved(call, reply),
    )


def _is_moved(call: Request, reply: Response) -> bool:
    """Whether the answer says that its address takes no requests, so that nothing happened.

    A 303 may follow a push that was carried out, and so may a redirect to another path.
    """
    try:
        path = urlsplit(reply.headers.get("Location", "")).path
    except ValueError:
        return False
    return reply.status in {301, 302} and path.endswith(call.path)


def _why_not(call: Request, reply: Response) -> IntegrationError:
    return without_key(call, reply.status) if reply.ok else responses.read_error(call, reply)


def without_key(call: Request, status: int | None) -> MalformedResponse:
    """Return the error for an answer that names no push of our own."""
    return MalformedResponse(
        f"{call.method} {call.path} answered {status} without a push of its own", status=status
    )


def _acknowledged(reply: Response, *, exact: bool) -> PushOperation | None:
    if reply.status not in ACKNOWLEDGED:
        return None
    try:
        return read_any(reply.body, exact=exact)
    except MalformedResponse:
        return None


def _object(body: bytes) -> Mapping[str, object] | None:
    try:
        value = decode_json(body)
    except MalformedResponse:
        return None
    return value if isinstance(value, dict) else None


def seconds_until(error: IntegrationError, unix_time: float) -> float | None:
    """Return the seconds until the moment that *error* names; None if it names none."""
    at = error.retry_at if isinstance(error, ApiError) else None
    if at is None:
        return None
    return max(0.0, (at - datetime.fromtimestamp(unix_time, UTC)).total_seconds())
