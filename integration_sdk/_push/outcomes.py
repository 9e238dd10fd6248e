"""A row in words: from the caller's request to the row, and from the row to the outcome."""

from __future__ import annotations

from hashlib import sha256
from mimetypes import guess_type
from typing import Any, Final, assert_never

from attrs import evolve

from integration_sdk._http import requests, statuses
from integration_sdk._http.requests import Request
from integration_sdk._http.statuses import Scope, scope_of
from integration_sdk._options_given import Numbers
from integration_sdk._outcome import PushOutcome
from integration_sdk._push.agreement import natural_value
from integration_sdk._push.evidence import kind_of
from integration_sdk._push.table import CREATES
from integration_sdk._records.codec import canonical, decode_json
from integration_sdk._store.row import Lane, Result, Row, State, Verdict, is_name, push_name
from integration_sdk.dialect import Dialect
from integration_sdk.errors import (
    AccountExpired,
    ClientClosed,
    ConfigurationError,
    IntegrationError,
    InvalidRecord,
    JournalError,
    NotSent,
    PushFailed,
    PushInDoubt,
    ReferenceConflict,
    ServiceUnavailable,
    TooManyRequests,
    Unauthorized,
    WaitExpired,
)
from integration_sdk.models import (
    OutcomeStatus,
    PushOperation,
    PushRequest,
    PushStatus,
)

LONGEST_REASON: Final = 2000
"""Characters of a failure's reasons that are reported and recorded."""
GRACE: Final = 60.0
"""Seconds after a push's own deadline by which the service should have reported TimedOut."""
_ABANDONED: Final = (
    "It was abandoned, and its reference stays taken: if the record is missing at the service, "
    "push it under a new reference"
)
Fresher = PushOperation | IntegrationError | None
"""What has just been seen of a push, and says more than its row."""


# From the request to the row


def checked(request: PushRequest) -> PushRequest:
    """Return *request*, or raise ConfigurationError if it is none."""
    if not isinstance(request, PushRequest):
        raise ConfigurationError(
            f"the coordinator takes PushRequest values, not {type(request).__name__}"
        )
    return request


def to_row(
    dialect: Dialect, request: PushRequest, row_id: str, key: str | None = None, holder: str = ""
) -> tuple[Row, Request]:
    """Return the row of *request*, and the call that pushes it.

    With a reference the record's members are ordered, so that it is known again by a hash.
    *key*: Idempotency key; None if the service has none.

    Raises:
        ConfigurationError: An id, the reference or the natural key cannot be right, or the
            arguments contradict each other.
        InvalidRecord: The record is no JSON object, or has no value at the natural key.
    """
    call, content_type = _to_call(dialect, request, key)
    _check_name("reference", request.reference)
    _check_name("natural_key", request.natural_key)
    if request.reference is not None and content_type is None and call.body:
        call = evolve(call, body=canonical(call.body))
    payload = call.body or b"{}"
    try:
        natural = natural_value(payload, request.natural_key)
    except ValueError as error:
        raise InvalidRecord(str(error)) from None
    creates = call.method == CREATES and request.record_id is None
    row = Row(
        id=row_id,
        lane=Lane(request.company_id, request.connection_id, request.data_type),
        method=call.method,
        payload=payload,
        # A hash is for who asks for a reference again.
        payload_hash=sha256(payload).hexdigest() if request.reference is not None else "",
        natural_key=request.natural_key,
        natural_value=natural,
        record_id=request.record_id,
        content_type=content_type,
        reference=request.reference,
        idempotency_key=key if creates else None,
        timeout_minutes=request.timeout_minutes,
        holder=holder,
    )
    return row, call


def _to_call(dialect: Dialect, request: PushRequest, key: str | None) -> tuple[Request, str | None]:
    ids = request.company_id, request.connection_id, request.data_type
    record_id = request.record_id
    if not (request.delete or request.attach is not None):
        options: dict[str, Any] = {"timeout_minutes": request.timeout_minutes}
        call = requests.push(
            dialect, *ids, request.record, record_id=record_id, idempotency_key=key, **options
        )
        return call, None
    what = "delete" if request.delete else "attach"
    others = (request.record, request.natural_key, request.timeout_minutes)
    if record_id is None or any(one is not None for one in others):
        raise ConfigurationError(
            f"{what}= needs record_id=, and a record of None; it takes no natural_key= and no "
            "timeout_minutes="
        )
    if request.delete:
        if request.attach is not None:
            raise ConfigurationError("attach= does not go with delete=; make it two pushes")
        return requests.delete(dialect, *ids, record_id), None
    match request.attach:
        case (str() as name, bytes() as content):
            content_type = guess_type(name)[0] or "application/octet-stream"
        case (str() as name, bytes() as content, str() as content_type):
            pass
        case _:
            raise ConfigurationError(
                "attach must be (filename, content), or (filename, content, content_type), with "
                f"bytes as content, not {type(request.attach).__name__}"
            )
    call = requests.attach(dialect, *ids, record_id)
    call = requests.with_file(call, content, filename=name, content_type=content_type)
    return call, call.content_type


def _check_name(name: str, text: object) -> None:
    if text is None:
        return
    if not isinstance(text, str) or not text.strip() or not is_name(text):
        raise ConfigurationError(
            f"{name} must be None or a str of 1 to 500 printable characters that is not blank, "
            f"not {text!r:.520}"
        )


def take_up(before: Row, row: Row) -> bool:
    """Return whether *row* has to be sent, as a further step of *before*, which has its reference.

    False: what becomes of *before* stands for both. A push that was refused does not exist: its
    record may be corrected, and if the refusal was not about its content, the same record is pushed
    once more. The record of a push that Failed may be corrected too. One that TimedOut may still
    take effect, so only the caller's decision gives its reference back.

    Raises:
        ReferenceConflict: The reference belongs to another record, which was pushed, or is being.
    """
    same = before.identity == row.identity
    freed = has_ended(before, PushStatus.TIMED_OUT) and before.decision == "resend"
    if same and not freed:
        return before.result is Result.REFUSED and not _is_of_the_content(before)
    way = "use a new reference"
    if not before.ghosts:
        if freed or before.result is Result.REFUSED or has_ended(before, PushStatus.FAILED):
            return True
        if has_ended(before, PushStatus.TIMED_OUT):
            way = (
                "that push timed out: check the platform, then call "
                f'decide({before.id!r}, "resend", record=...)'
            )
    raise ReferenceConflict(
        f"reference {row.reference!r} was already used for a different record or operation; {way}",
        reference=row.reference,
    )


def has_ended(row: Row, status: PushStatus) -> bool:
    return row.result is Result.ENDED and row.status == status


def _is_of_the_content(row: Row) -> bool:
    # The same record would meet it again; causes of others may be gone, such as a wrong key.
    return row.http_status is not None and scope_of(row.http_status) is Scope.RECORD


_OF_THE_RECORD: Final = (
    *("lane", "method", "record_id", "content_type", "payload", "payload_hash"),
    *("natural_key", "natural_value", "timeout_minutes", "idempotency_key", "holder"),
)


def of_the_record(row: Row) -> dict[str, Any]:
    """Return what a corrected record changes in the row of its reference."""
    return {name: getattr(row, name) for name in _OF_THE_RECORD}


def from_row(row: Row, *, numbers: Numbers) -> PushRequest:
    """Return the push request, as far as it is recorded; *numbers*: How fractions are read."""
    kind = kind_of(row)
    is_record = kind == "record"
    record = decode_json(row.payload, numbers=numbers) if row.payload and is_record else {}
    return PushRequest(
        row.lane.company_id,
        row.lane.connection_id,
        row.lane.data_type,
        record if is_record else None,
        reference=row.reference,
        record_id=row.record_id,
        timeout_minutes=row.timeout_minutes,
        natural_key=row.natural_key,
        delete=kind == "delete",
        attach=("", b"") if kind == "attachment" else None,
    )


def recorded_operation(row: Row) -> PushOperation:
    """Return the operation of a row with a key, as far as it is recorded."""
    raw = row.status or PushStatus.PENDING.value
    known = raw in list(PushStatus)
    return PushOperation(
        push_operation_key=str(row.key),
        company_id=row.lane.company_id,
        data_connection_id=row.lane.connection_id,
        data_type=row.lane.data_type,
        status=PushStatus(raw) if known else PushStatus.UNKNOWN,
        raw_status=raw,
        error_message=row.error if row.state is State.DONE else None,
        timeout_in_minutes=row.timeout_minutes,
    )


# From the row to the outcome


def standing(
    request: PushRequest, row: Row, dialect: Dialect, fresher: Fresher = None
) -> PushOutcome:
    """Return the outcome of a push that *row* decides, or how it stands while it goes on."""
    match row.state:
        case State.DONE if row.result is Result.ENDED:
            operation = fresher if isinstance(fresher, PushOperation) else recorded_operation(row)
            return final(request, operation, dialect)
        case State.DONE if row.result is Result.REFUSED:
            error = fresher if isinstance(fresher, IntegrationError) else _refusal(row)
            return PushOutcome(status=OutcomeStatus.REJECTED, request=request, error=error)
        case State.OPEN:
            operation = recorded_operation(row)
            goes_on = WaitExpired("the push was Pending when it was last seen")
            return PushOutcome(
                status=OutcomeStatus.PENDING, request=request, operation=operation, error=goes_on
            )
        case State.QUEUED if not row.ghosts:
            later = NotSent("not sent yet; a later run will send it")
            return PushOutcome(status=OutcomeStatus.PENDING, request=request, error=later)
        case State.QUEUED | State.SENDING | State.LOST | State.DOUBT | State.DONE:
            return in_doubt(request, row)
        case other:
            assert_never(other)


def _refusal(row: Row) -> IntegrationError:
    status = row.http_status
    if status is None:
        return NotSent(f"not sent: {row.error or 'it never left'}")
    return statuses.row(status).kind(f"refused before: {row.error}", status=status)


def final(request: PushRequest, operation: PushOperation, dialect: Dialect) -> PushOutcome:
    error = None
    if operation.status is not PushStatus.SUCCESS:
        error = PushFailed(f"{name_of(request)} {_how(operation, dialect)}", operation=operation)
    return PushOutcome(
        status=_ending(operation.status), request=request, operation=operation, error=error
    )


def _ending(status: PushStatus) -> OutcomeStatus:
    match status:
        case PushStatus.SUCCESS:
            return OutcomeStatus.SUCCESS
        case PushStatus.FAILED | PushStatus.UNKNOWN:
            return OutcomeStatus.FAILED
        case PushStatus.TIMED_OUT:
            return OutcomeStatus.TIMED_OUT
        case PushStatus.PENDING:
            raise ValueError(f"a push that is {status} has no outcome yet")
        case _:
            assert_never(status)


def _how(operation: PushOperation, dialect: Dialect) -> str:
    if operation.status is PushStatus.TIMED_OUT:
        late = (
            "it may still take effect: check the platform before you push it again"
            if dialect.timed_out_may_take_effect
            else "the service guarantees that it will not take effect"
        )
        return f"timed out as push {operation.key}; {late}"
    if operation.status is PushStatus.UNKNOWN:
        unknown = "a status that the SDK does not know: check the platform"
        return f"ended as push {operation.key} with {operation.raw_status!r}, {unknown}"
    return f"failed as push {operation.key}: {reasons(operation) or 'no reason given'}"


def status_of(operation: PushOperation) -> str:
    unknown = operation.status is PushStatus.UNKNOWN
    return operation.raw_status if unknown else operation.status.value


def reasons(operation: PushOperation) -> str | None:
    """Return why a push failed, as it is recorded; None if the service gives no reason."""
    items = operation.validation.errors if operation.validation else ()
    said = "; ".join(map(str, items)) or operation.error_message or ""
    return (said if len(said) <= LONGEST_REASON else f"{said[: LONGEST_REASON - 3]}...") or None


def ends_all(error: IntegrationError) -> bool:
    """Whether every other push would meet *error* as well."""
    return isinstance(error, AccountExpired | ClientClosed | JournalError)


def may_pass(error: IntegrationError | None) -> bool:
    """Whether *error* refuses what is pushed now, and a later push may be tried again."""
    return isinstance(error, AccountExpired | Unauthorized | TooManyRequests | ServiceUnavailable)


def in_doubt(request: PushRequest, row: Row) -> PushOutcome:
    """Return the outcome of a push whose answer was lost and that could not be identified.

    A push that the caller abandoned stays IN_DOUBT, since it may exist, but is already decided.
    """
    count, some = len(row.candidates), ", ".join(row.candidates[:3])
    if row.candidates:
        seen = (
            f"It may be push {some}" if count == 1 else f"It may be one of {count} pushes: {some}"
        )
    elif row.verdict is Verdict.ABSENT:
        seen = "The list of pushes does not show it"
    else:
        seen = "The list of pushes does not settle whether it exists"
    cause = lost_by(row).rstrip(".")
    todo = _ABANDONED if row.result is Result.ABANDONED else _undecided(row)
    error = PushInDoubt(
        f"{name_of(request)} may or may not have been pushed: {cause}. {seen}. {todo}",
        intent=row.id,
        candidates=row.candidates,
    )
    return PushOutcome(status=OutcomeStatus.IN_DOUBT, request=request, error=error)


def lost_by(row: Row) -> str:
    if row.http_status is None:
        return row.error or "no answer"
    return f"the service, or a proxy, answered {row.http_status} {row.error or ''}".rstrip()


def _undecided(row: Row) -> str:
    if row.state is not State.DOUBT:
        return (
            "It is not resent automatically; it is searched for while its coordinator's block is "
            "open, and with a journal again by the next run"
        )
    return f"It is not resent automatically: check the platform, then decide about intent {row.id}"


def wait_expired(
    name: str,
    waited: float,
    *,
    operation: PushOperation | None,
    trouble: IntegrationError | None,
) -> WaitExpired:
    """Return the error of a wait that has ended before the push; *trouble*: of the last poll."""
    seen = "is still Pending" if trouble is None else f"has no known end (last poll: {trouble})"
    error = WaitExpired(
        f"{name} {seen} after {waited:g} seconds; it continues at the service: wait again",
        operation=operation,
    )
    error.__cause__ = trouble
    return error


def name_of(request: PushRequest) -> str:
    return push_name(request.data_type, request.reference, request.company_id)


def longest_wait(request: PushRequest, wait: float | None) -> float | None:
    """Return how many seconds to wait for a push that was acknowledged; None for no bound.

    That is the caller's *wait*, or else the push's own deadline plus `GRACE`, after which the
    service has nothing more to decide.
    """
    if wait is not None or request.timeout_minutes is None:
        return wait
    return request.timeout_minutes * 60.0 + GRACE
