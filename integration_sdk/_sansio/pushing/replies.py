"""What one transmission came to, for the push protocol and for people."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import UTC, datetime
from sys import intern

from integration_sdk._sansio import responses
from integration_sdk._sansio.codec import decode_json
from integration_sdk._sansio.polling import rows
from integration_sdk._sansio.pushing.intents import Answer, Intent, Phase
from integration_sdk._sansio.pushing.submissions import recorded_operation
from integration_sdk._sansio.requests import Request
from integration_sdk._sansio.responses import Response
from integration_sdk._sansio.retry_after import retry_after
from integration_sdk.errors import ApiError, IntegrationError, MalformedResponse, NotSent
from integration_sdk.models import PushOperation

Reply = Response | IntegrationError
"""An answer, whatever its status, or the error that was raised in its place."""


def to_answer(reply: Reply, *, began: float, unix_time: float) -> Answer:
    """Return *reply* as the protocol sees it.

    An `ApiError` that was raised, not returned, closed the gate before anything left.
    """
    if isinstance(reply, Response):
        return Answer(
            Phase.ANSWERED,
            at=began,
            status=reply.status,
            body=_object(reply.body),
            retry_after=retry_after(reply.headers.get("Retry-After"), reply.received_at),
        )
    unsent = isinstance(reply, NotSent) or (isinstance(reply, ApiError) and not reply.attempts)
    phase = Phase.NEVER_LEFT if unsent else Phase.MAY_HAVE_LEFT
    return Answer(phase, at=began, cause=str(reply), retry_after=seconds_until(reply, unix_time))


def _object(body: bytes) -> Mapping[str, object] | None:
    try:
        value = decode_json(body)
    except MalformedResponse:
        return None
    if not isinstance(value, dict):
        return None
    key = value.get("pushOperationKey")
    if isinstance(key, str):  # on record and in the operation: kept once
        value["pushOperationKey"] = intern(key)
    return value


def seconds_until(error: IntegrationError, unix_time: float) -> float | None:
    """Return how long to wait until the moment that *error* names; None for none."""
    at = error.retry_at if isinstance(error, ApiError) else None
    if at is None:
        return None
    return max(0.0, (at - datetime.fromtimestamp(unix_time, UTC)).total_seconds())


def operation(intent: Intent, reply: Reply | None) -> PushOperation:
    """Return what the service answered; only what is on record where that cannot be read."""
    if isinstance(reply, Response):
        try:
            return rows.read_full(reply.body)
        except MalformedResponse:
            return recorded_operation(intent)
    return recorded_operation(intent)


def error(call: Request, intent: Intent, reply: Reply | None) -> IntegrationError:
    """Return why there is no push, or none that is known."""
    if isinstance(reply, IntegrationError):
        return reply
    if reply is None:
        return NotSent(intent.error or f"{call.method} {call.path} was not sent")
    if not reply.ok:
        return responses.read_error(call, reply)
    return MalformedResponse(
        f"{call.method} {call.path} answered {reply.status} without a push of its own",
        status=reply.status,
    )
