"""A `PushRequest` becomes a request and an intent, and an intent on record speaks for itself."""

from __future__ import annotations

from functools import lru_cache
from typing import Any

from attrs import evolve

from integration_sdk._sansio import outcomes, requests
from integration_sdk._sansio.codec import decode_json
from integration_sdk._sansio.intents import RESENDABLE_STATUS, Intent, Lane, State
from integration_sdk._sansio.intents import intend as put_on_record
from integration_sdk._sansio.requests import Request
from integration_sdk.dialect import Dialect
from integration_sdk.errors import BY_STATUS, ApiError, ConfigurationError, InvalidRecord
from integration_sdk.models import PushOperation, PushOutcome, PushRequest, PushStatus

_lane = lru_cache(1024)(Lane)
"""Lanes are few and pushes many: one object each."""


def to_request(dialect: Dialect, request: PushRequest, record: Any, key: str | None) -> Request:
    """Return the call that pushes *record*. Errors as with `requests.push`."""
    return requests.push(
        dialect,
        request.company_id,
        request.connection_id,
        request.data_type,
        record,
        record_id=request.record_id,
        timeout_minutes=request.timeout_minutes,
        idempotency_key=key,
    )


def intend(request: PushRequest, call: Request, intent_id: str, key: str | None) -> Intent:
    """Return the intent of *call*.

    Raises:
        InvalidRecord: The natural key names nothing in the record.
    """
    try:
        return put_on_record(
            _lane(request.company_id, request.connection_id, request.data_type),
            call.body,
            id=intent_id,
            method=call.method,
            natural_key=request.natural_key,
            record_id=request.record_id,
            reference=request.reference,
            idempotency_key=key,
            timeout_minutes=request.timeout_minutes,
        )
    except ValueError as error:
        raise InvalidRecord(str(error)) from None


def take_up(before: Intent | None, intent: Intent) -> Intent:
    """Return the intent on record for a reference, fit to go on, or the new one.

    A push that was refused or not sent does not exist: its record may be corrected.
    """
    if before is None:
        return intent
    same = (before.payload_hash, before.lane) == (intent.payload_hash, intent.lane)
    if before.state in {State.INTENT, State.NOT_SENT, State.REJECTED}:
        kept = before if same else evolve(intent, state=before.state, attempts=before.attempts)
        return evolve(kept, id=before.id, payload=intent.payload)
    if not same:
        raise ConfigurationError(
            f"reference {intent.reference!r} was used for another record; give this one its own"
        )
    return before


def recorded_outcome(request: PushRequest, intent: Intent, dialect: Dialect) -> PushOutcome | None:
    """Return the outcome that is on record; None where it is still to come."""
    if intent.state is State.FINAL:
        return outcomes.final(request, recorded_operation(intent), dialect)
    undecided = intent.state in {State.ABSENT, State.UNRESOLVED, State.DECIDED}
    if undecided and intent.key is None:
        return outcomes.in_doubt(request, intent)
    status = intent.http_status or 0
    if intent.state is State.REJECTED and status not in {0, *RESENDABLE_STATUS}:
        kind = BY_STATUS.get(status, ApiError)
        return outcomes.refused(request, kind(f"refused before: {intent.error}", status=status))
    return None


def from_record(intent: Intent) -> PushRequest:
    """Return what was asked for, as far as it is on record."""
    return PushRequest(
        intent.lane.company_id,
        intent.lane.connection_id,
        intent.lane.data_type,
        decode_json(intent.payload) if intent.payload else {},
        reference=intent.reference,
        record_id=intent.record_id,
        timeout_minutes=intent.timeout_minutes,
        natural_key=intent.natural_key,
    )


def recorded_operation(intent: Intent) -> PushOperation:
    """Return the operation of an intent with a key, as far as it is on record."""
    status = PushStatus(intent.status) if intent.status else PushStatus.PENDING
    return PushOperation(
        push_operation_key=str(intent.key),
        company_id=intent.lane.company_id,
        data_connection_id=intent.lane.connection_id,
        data_type=intent.lane.data_type,
        status=status,
        raw_status=str(status),
        timeout_in_minutes=intent.timeout_minutes,
    )
