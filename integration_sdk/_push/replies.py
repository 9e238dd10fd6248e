"""The result of one transmission, as the push protocol and as people need it."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import UTC, datetime

from attrs import frozen

from integration_sdk._http import responses
from integration_sdk._http.requests import Phase, Request
from integration_sdk._http.responses import Failure, Reply, Response
from integration_sdk._http.retry_after import retry_after, service_time
from integration_sdk._push import rows
from integration_sdk._push.table import ACKNOWLEDGED, SendResult
from integration_sdk._sansio.codec import decode_json
from integration_sdk._store.row import Intent
from integration_sdk.errors import (
    ApiError,
    IntegrationError,
    MalformedResponse,
    NotSent,
)
from integration_sdk.models import PushOperation


@frozen
class ReadReply:
    """The result of one transmission.

    result: For the protocol. reply: As received.
    operation: The push that the service answered with, if any.
    """

    result: SendResult
    reply: Reply
    operation: PushOperation | None = None


def read(reply: Reply, *, began: float, unix_time: float, exact: bool = False) -> ReadReply:
    """Interpret *reply*; *exact* reads fractions as Decimal."""
    if isinstance(reply, Response):
        operation = _acknowledged(reply, exact=exact)
        result = SendResult(
            Phase.ANSWERED,
            at=began,
            status=reply.status,
            body={"pushOperationKey": operation.key} if operation else _object(reply.body),
            retry_after=_wanted_wait(reply),
        )
        return ReadReply(result, reply, operation)
    wait = seconds_until(reply.error, unix_time)
    result = SendResult(reply.phase, at=began, cause=str(reply.error), retry_after=wait)
    return ReadReply(result, reply)


def _wanted_wait(reply: Response) -> float | None:
    header = reply.headers.get("Retry-After")
    if header is None:
        return None
    return retry_after(header, service_time(reply.headers, reply.received_at))


def _acknowledged(reply: Response, *, exact: bool) -> PushOperation | None:
    if reply.status not in ACKNOWLEDGED:
        return None
    try:
        return rows.read_full(reply.body, exact=exact)
    except MalformedResponse as problem:
        return _brief(reply.body, problem)


def _brief(body: bytes, problem: MalformedResponse) -> PushOperation | None:
    try:
        return rows.read_brief(body, problem)
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


def error(call: Request, intent: Intent, last: ReadReply | None) -> IntegrationError:
    """Return the error that says why there is no push, or no known push."""
    reply = last.reply if last else None
    if isinstance(reply, Failure):
        return reply.error
    if reply is None:
        return NotSent(intent.error or f"{call.method} {call.path} was not sent")
    if not reply.ok:
        return responses.read_error(call, reply)
    return MalformedResponse(
        f"{call.method} {call.path} answered {reply.status} without a push of its own",
        status=reply.status,
    )
