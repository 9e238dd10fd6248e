"""Makes requests and intents of a `PushRequest`, and reads them back from recorded intents."""

from __future__ import annotations

import re
from functools import lru_cache
from typing import Any

from attrs import evolve

from integration_sdk._http import requests
from integration_sdk._http.requests import Request
from integration_sdk._http.statuses import Scope, row, scope_of
from integration_sdk._push import outcomes
from integration_sdk._push.table import new_intent
from integration_sdk._records.codec import canonical, decode_json
from integration_sdk._store.row import NOT_THERE, Intent, Lane, State
from integration_sdk.dialect import Dialect
from integration_sdk.errors import (
    ConfigurationError,
    IntegrationError,
    InvalidRecord,
    NotSent,
    ReferenceConflict,
    WaitExpired,
)
from integration_sdk.models import PushOperation, PushOutcome, PushRequest, PushStatus

_NO_PUSH = frozenset({State.QUEUED, State.NOT_SENT, State.REJECTED})
_UNKEEPABLE = re.compile("[\0\ud800-\udfff]")
_lane = lru_cache(1024)(Lane)
"""There are few lanes and many pushes, so lanes are shared."""


def to_request(
    dialect: Dialect,
    request: PushRequest,
    record: Any,
    key: str | None,
    *,
    comparable: bool = False,
) -> Request:
    """Return the call that pushes *record*. Raises as `requests.push` does.

    *comparable*: Order the record's members, so that a journal, which may keep a hash of the body
    alone, knows the record again.
    """
    call = requests.push(
        dialect,
        request.company_id,
        request.connection_id,
        request.data_type,
        record,
        record_id=request.record_id,
        timeout_minutes=request.timeout_minutes,
        idempotency_key=key,
    )
    return evolve(call, body=canonical(call.body or b"{}")) if comparable else call


def intend(
    request: PushRequest, call: Request, intent_id: str, key: str | None, *, durable: bool = True
) -> Intent:
    """Return the intent of *call*; *durable*: a later run may see its reference again.

    Raises:
        ConfigurationError: The reference or the natural key is not a string that can be stored.
        InvalidRecord: The record has no value at the natural key.
    """
    _check_text("reference", request.reference)
    _check_text("natural_key", request.natural_key)
    try:
        return new_intent(
            _lane(request.company_id, request.connection_id, request.data_type),
            call.body,
            id=intent_id,
            method=call.method,
            natural_key=request.natural_key,
            record_id=request.record_id,
            reference=request.reference,
            idempotency_key=key,
            timeout_minutes=request.timeout_minutes,
            hashed=durable,
        )
    except ValueError as error:
        raise InvalidRecord(str(error)) from None


def _check_text(name: str, text: object) -> None:
    if text is not None and (
        not isinstance(text, str) or not text.strip() or _UNKEEPABLE.search(text)
    ):
        raise ConfigurationError(
            f"{name} must be a str, not empty and without NUL and lone surrogates, or None,"
            f" not {text!r}"
        )


def take_up(before: Intent, intent: Intent) -> Intent | None:
    """Return *before* if it stands for the reference; None if *intent* has to be sent.

    A push that was refused or not sent does not exist: its record may be corrected, and if the
    refusal was not about its content, the same record is pushed once more. The record of a push
    that Failed may be corrected too. One that TimedOut may still take effect, so only the
    caller's decision gives its reference back.

    Raises:
        ReferenceConflict: The reference belongs to another record, which was pushed.
    """
    if before.is_superseded:
        return None
    same = before.identity == intent.identity
    if before.state in _NO_PUSH:
        return before if same and _is_of_the_content(before) else None
    if same:
        return before
    if _has_ended(before, PushStatus.FAILED):
        return None
    if _has_ended(before, PushStatus.TIMED_OUT):
        way = f'it timed out: look for it, then decide({before.id!r}, "resend", record=...)'
        raise another_record(intent.reference, way)
    raise another_record(intent.reference)


def check_given_back(before: Intent | None, intent_id: str) -> Intent:
    """Return *before* if the caller may decide that its reference takes a record again.

    Raises:
        ConfigurationError: It has not timed out.
    """
    if before is None or not _has_ended(before, PushStatus.TIMED_OUT):
        raise ConfigurationError(
            f"record= is for a push that timed out, and intent {intent_id} is none in this journal"
        )
    return before


def _has_ended(intent: Intent, status: PushStatus) -> bool:
    return intent.state is State.FINAL and intent.status == status


def _is_of_the_content(intent: Intent) -> bool:
    # The same record would meet it again; causes of others may be gone, such as a wrong key.
    return intent.state is State.REJECTED and scope_of(intent.http_status) is Scope.RECORD


def another_record(reference: str | None, way: str = "give this one its own") -> ReferenceConflict:
    """Return the error for a reference that belongs to another record; *way*: what to do."""
    return ReferenceConflict(
        f"reference {reference!r} was used for another record, or to do something else with it; "
        f"{way}",
        reference=reference,
    )


def standing(request: PushRequest, intent: Intent, dialect: Dialect) -> PushOutcome:
    """Return how a push stands that nobody follows, as far as it is recorded."""
    if intent.state is State.FINAL:
        return outcomes.final(request, recorded_operation(intent), dialect)
    if intent.state in NOT_THERE:
        return outcomes.refused(request, _refusal(intent))
    if intent.key is not None:
        goes_on = WaitExpired("the push was Pending when it was last seen; it goes on")
        return outcomes.pending(request, recorded_operation(intent), goes_on)
    if intent.state is State.QUEUED:
        return outcomes.pending(request, None, NotSent("not sent yet; a later run sends it"))
    return outcomes.in_doubt(request, intent)


def _refusal(intent: Intent) -> IntegrationError:
    if intent.state is State.NOT_SENT:
        return NotSent(f"not sent: {intent.error or 'it never left'}")
    status = intent.http_status or 0
    return row(status).kind(f"refused before: {intent.error}", status=status)


def from_record(intent: Intent, *, exact: bool) -> PushRequest:
    """Return the push request, as far as it is recorded; *exact*: fractions as Decimal."""
    return PushRequest(
        intent.lane.company_id,
        intent.lane.connection_id,
        intent.lane.data_type,
        decode_json(intent.payload, exact=exact) if intent.payload else {},
        reference=intent.reference,
        record_id=intent.record_id,
        timeout_minutes=intent.timeout_minutes,
        natural_key=intent.natural_key,
    )


def recorded_operation(intent: Intent) -> PushOperation:
    """Return the operation of an intent with a key, as far as it is recorded."""
    status = PushStatus(intent.status) if intent.status else PushStatus.PENDING
    return PushOperation(
        push_operation_key=str(intent.key),
        company_id=intent.lane.company_id,
        data_connection_id=intent.lane.connection_id,
        data_type=intent.lane.data_type,
        status=status,
        raw_status=str(status),
        error_message=intent.error if intent.state is State.FINAL else None,
        timeout_in_minutes=intent.timeout_minutes,
    )
