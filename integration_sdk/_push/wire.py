"""The service as pushes see it: a row as a request, answers, lists of pushes, and single pushes.

A page of a list can hold 5,000 operations, of which a poll needs three fields, so only those are
decoded. An operation that turns out to be final is decoded in full, from its own bytes, by a fast
path for the usual answer: only documented names, and no validation messages. Anything else is
decoded by `shapes.read_operation`.

What is read as evidence has exact fractions, since records are told apart by every digit.
"""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable, Collection, Mapping
from contextlib import suppress
from datetime import UTC, datetime
from decimal import Decimal
from itertools import dropwhile
from typing import Annotated, Any, Final, Protocol
from urllib.parse import urlsplit

import msgspec
from attrs import define, evolve, field, frozen

from integration_sdk._http import requests, responses
from integration_sdk._http.hints import told_time
from integration_sdk._http.requests import Phase, Priority, Request
from integration_sdk._http.responses import Fetch, Reply, Response
from integration_sdk._options_given import Numbers
from integration_sdk._push.evidence import Listing
from integration_sdk._push.table import ACKNOWLEDGED, CREATES, SendResult
from integration_sdk._records.codec import decode_json, mended, parse_utc
from integration_sdk._records.shapes import read_operation
from integration_sdk._store.row import Row, State, folded
from integration_sdk.dialect import Dialect
from integration_sdk.errors import ApiError, IntegrationError, MalformedResponse
from integration_sdk.models import PushChange, PushOperation, PushStatus, RecordRef, Validation

logger = logging.getLogger("integration_sdk.pushes")

FOR_A_MARK: Final = 200
"""Pushes that are listed before a company's first push is sent."""
PAGE: Final = 500
MOST_PAGES: Final = 200


# One operation


_Name = Annotated[str, msgspec.Meta(min_length=1)]


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


class _Least(msgspec.Struct, rename="camel", gc=False):
    push_operation_key: _Name
    company_id: _Name
    status: _Name


_STATUSES: Final = {status.value: status for status in PushStatus}
_NO_ITEMS: Final = Validation()
_NO_EXTRA: Final[dict[str, Any]] = {}
"""Shared by all operations without extra fields, since ten thousand may be open."""
_read_usual: Final = msgspec.json.Decoder(_Usual).decode
_read_exact: Final = msgspec.json.Decoder(_Usual, float_hook=Decimal).decode
_read_least: Final = msgspec.json.Decoder(_Least).decode


def read_full(raw: bytes, *, numbers: Numbers = "float") -> PushOperation:
    """Return one push operation; *numbers*: How the fractions of its ``data`` are read.

    Raises:
        MalformedResponse: It is not as documented.
    """
    try:
        return _operation((_read_exact if numbers == "decimal" else _read_usual)(raw))
    except (msgspec.DecodeError, ValueError, ArithmeticError, KeyError, RecursionError):
        return read_operation(decode_json(raw, numbers=numbers))


def _operation(usual: _Usual) -> PushOperation:
    requested, completed = usual.requested_on_utc, usual.completed_on_utc
    own = usual.data_connection_id
    return PushOperation(
        push_operation_key=usual.push_operation_key,
        company_id=usual.company_id,
        data_connection_id=usual.data_connection_key if own is None else own,
        data_type=usual.data_type,
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
    ref = usual.record_ref
    return PushChange(
        type=usual.type,
        record_ref=None
        if ref is None
        else RecordRef(id=ref.id, data_type=ref.data_type, extra=_NO_EXTRA),
        attachment_id=usual.attachment_id,
        extra=_NO_EXTRA,
    )


def read_any(raw: bytes, *, numbers: Numbers = "float") -> PushOperation:
    """Return one push operation, as far as it can be read.

    A number that is too large, or half a character, does not keep a push from ending: its key,
    company and status are left, and ``error_message`` says why the rest is missing.

    Raises:
        MalformedResponse: These cannot be read either.
    """
    try:
        return read_full(raw, numbers=numbers)
    except MalformedResponse as problem:
        try:
            least = _read_least(mended(raw))
        except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
            raise problem from None
        return PushOperation(
            push_operation_key=least.push_operation_key,
            company_id=least.company_id,
            status=_STATUSES.get(least.status, PushStatus.UNKNOWN),
            raw_status=least.status,
            error_message=f"The rest of the answer cannot be read: {problem}",
        )


# A page of a list


class Listed(msgspec.Struct, gc=False):
    """What a poll looks at, and the time by which a search tells old pushes from new ones."""

    key: str = msgspec.field(name="pushOperationKey")
    status: str | None = None
    requested: str | None = msgspec.field(name="requestedOnUtc", default=None)

    def alone(self) -> PushOperation:
        """Return a push that cannot be read in full: it may be any."""
        try:
            requested = None if self.requested is None else parse_utc(self.requested)
        except ValueError:
            requested = None
        return PushOperation(
            push_operation_key=self.key,
            company_id="",
            status=PushStatus.UNKNOWN,
            requested_on_utc=requested,
        )


class _Envelope(msgspec.Struct):
    results: list[Listed]
    links: dict[str, msgspec.Raw] | None = msgspec.field(name="_links", default=None)


class _Raws(msgspec.Struct):
    results: list[msgspec.Raw]


_read_envelope: Final = msgspec.json.Decoder(_Envelope).decode
_read_raws: Final = msgspec.json.Decoder(_Raws).decode


@frozen
class PushPage:
    """One page of a list of pushes, in the service's order; *more*: whether there is another."""

    rows: list[Listed]
    more: bool
    _body: bytes

    def operations(
        self, indexes: list[int], *, numbers: Numbers = "float"
    ) -> list[PushOperation | None]:
        """Decode these rows in full; None for a row that is not as documented."""
        raws = _read_raws(self._body).results if indexes else []
        found = list[PushOperation | None]()
        for index in indexes:
            try:
                found.append(read_full(bytes(raws[index]), numbers=numbers))
            except MalformedResponse:
                found.append(None)
        return found


def read_page(body: bytes) -> PushPage:
    """Return a page of pushes; raise MalformedResponse if it is none, or a push has no key."""
    try:
        page = _read_envelope(body)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise MalformedResponse(f"no page of push operations: {error}") from None
    following = (page.links or {}).get("next")
    more = following is not None and bytes(following) != b"null"
    return PushPage(page.results, more, body)


# What came of sending a push


def read_reply(
    call: Request, reply: Reply, *, unix_time: float, numbers: Numbers = "float"
) -> SendResult:
    """Return what *reply* to *call* says; *numbers*: How fractions are read."""
    if not isinstance(reply, Response):
        wait = seconds_until(reply.error, unix_time)
        return SendResult(reply.phase, cause=str(reply.error), retry_after=wait, error=reply.error)
    operation: PushOperation | None = None
    error: IntegrationError | None = None
    if reply.status in ACKNOWLEDGED:
        with suppress(MalformedResponse):
            operation = read_any(reply.body, numbers=numbers)
    if operation is None and reply.ok:
        text = f"{call.method} {call.path} answered {reply.status} without a push of its own"
        error = MalformedResponse(text, status=reply.status)
    elif operation is None:
        error = responses.read_error(call, reply)
    return SendResult(
        Phase.ANSWERED,
        status=reply.status,
        body={"pushOperationKey": operation.key} if operation else _object(reply.body),
        retry_after=reply.retry_after,
        operation=operation,
        error=error,
        is_moved=_is_moved(call, reply),
    )


def _is_moved(call: Request, reply: Response) -> bool:
    """Whether the answer says that its address takes no requests, so that nothing happened.

    A 303 may follow a push that was carried out, and so may a redirect to another path.
    """
    if reply.status not in {301, 302}:
        return False
    try:
        return urlsplit(reply.headers.get("Location", "")).path.endswith(call.path)
    except ValueError:
        return False


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


# Requests


class Service(Protocol):
    """The service, reached by the client's session: gate, rate, retries and key included."""

    async def send(self, request: Request) -> Response:
        """Return the answer, whatever its status.

        Raises TransportError if there is none; ApiError if nothing was sent, for too long a pause.
        """
        ...

    async def send_once(
        self, request: Request, *, before: Callable[[], Awaitable[None]] | None = None
    ) -> Response:
        """Send *request* once; *before* is awaited when its turn has come. Raises as `send`."""
        ...


async def list_page(
    send: Fetch, dialect: Dialect, company_id: str, number: int, size: int, *, priority: Priority
) -> Response:
    """Return the answer with a page of a company's pushes, newest first."""
    order, names = dialect.newest_first, {"companyId": company_id}
    request = requests.list_page(
        dialect, "pushes.list", page=number, page_size=size, order_by=order, **names
    )
    return responses.check(request, await send(evolve(request, priority=priority)))


async def get_push(
    send: Fetch,
    dialect: Dialect,
    company_id: str,
    key: str,
    priority: Priority,
    *,
    numbers: Numbers,
) -> PushOperation:
    """Read a single push; raise MalformedResponse if that fails, or another is read."""
    names = {"companyId": company_id, "pushOperationKey": key}
    request = requests.to_route(dialect, "pushes.get", **names)
    answer = responses.check(request, await send(evolve(request, priority=priority)))
    operation = read_any(answer.body, numbers=numbers)
    if operation.key != key and folded(operation.key) != folded(key):
        raise MalformedResponse(f"asked for push {key}, but got {operation.key}, as from a cache")
    return operation


@define(eq=False)
class Wire:
    """The service, for the pushes of one coordinator.

    Attributes:
        speaks_another: Whether the service has answered in another dialect.
    """

    service: Service
    dialect: Dialect
    speaks_another: bool = field(init=False, default=False)

    @property
    def replays(self) -> bool:
        """Whether the service carries out only once what has one idempotency key."""
        return self.dialect.idempotency_header is not None

    def note_dialect(self, answer: bytes) -> None:
        self.speaks_another = self.speaks_another or self.dialect.is_contradicted(answer)

    def to_request(self, row: Row) -> Request:
        """Return the request that pushes *row*."""
        ids = row.lane.company_id, row.lane.connection_id, row.lane.data_type
        if row.method == "DELETE":
            return requests.delete(self.dialect, *ids, str(row.record_id))
        if row.content_type is not None:
            attach = requests.attach(self.dialect, *ids, str(row.record_id))
            return evolve(attach, body=row.payload, content_type=row.content_type)
        request = requests.push(
            self.dialect,
            *ids,
            {},
            record_id=None if row.method == CREATES else row.record_id,
            timeout_minutes=row.timeout_minutes,
            idempotency_key=row.idempotency_key,
        )
        return evolve(request, body=row.payload)

    async def newest(self, company_id: str) -> Listing | None:
        """List a company's newest pushes; None if that fails."""
        return await self._list(company_id, None)

    async def list_back_to(self, company_id: str, rows: Collection[Row]) -> Listing | None:
        """List a company's pushes back past the marks of *rows*; None if that fails.

        A row without a mark that was never sent is looked for among the newest.
        """
        marks = [row.mark.keys if row.mark else () for row in rows if row.state is not State.QUEUED]
        if not marks:
            return await self.newest(company_id)
        known = frozenset[str]().union(*marks) if all(marks) else frozenset[str]()
        return await self._list(company_id, known)

    async def _list(self, company_id: str, known: frozenset[str] | None) -> Listing | None:
        """List until all of *known* have been seen, or to the end; None: as deep as a mark is."""
        found, keys = list[PushOperation](), set[str]()
        listed_at: float | None = None
        size, most = (FOR_A_MARK, 1) if known is None else (PAGE, MOST_PAGES)
        for number in range(1, most + 1):
            try:
                where = self.service.send, self.dialect, company_id
                answer = await list_page(*where, number, size, priority=Priority.PUSH)
                page = read_page(answer.body)
                self.note_dialect(answer.body)
            except Exception as error:  # also of a middleware
                level = logging.DEBUG if isinstance(error, IntegrationError) else logging.ERROR
                logger.log(level, "company %s: pushes cannot be listed: %r", company_id, error)
                return None
            listed_at = told_time(answer.headers) if number == 1 else listed_at
            full = page.operations([*range(len(page.rows))], numbers="decimal")
            # New pushes shift the list: a page may begin with rows of the page before.
            shown = dropwhile(lambda one: one[1].key in keys, enumerate(page.rows))
            found += [full[at] or row.alone() for at, row in shown]
            keys.update(row.key for row in page.rows)
            if not page.more or (known and known <= keys):
                break
        at = None if listed_at is None else int(listed_at)
        return Listing(tuple(found), whole=not page.more, at=at)

    async def read_singly(
        self, company_id: str, keys: Collection[str], *, numbers: Numbers = "decimal"
    ) -> list[PushOperation]:
        """Read pushes one by one; return those that could be read."""
        found, how = list[PushOperation](), (self.service.send, self.dialect, company_id)
        for key in keys:
            try:
                found.append(await get_push(*how, key, Priority.PUSH, numbers=numbers))
            except Exception as error:  # of a middleware, or the key cannot be part of a path
                logger.debug("push %s could not be read: %s", key, error)
        return found
