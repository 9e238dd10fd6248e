"""Outcomes of pushes and their messages."""

from __future__ import annotations

from typing import Final, assert_never

from integration_sdk._store.row import Intent, RowRefused, State, push_name
from integration_sdk.dialect import Dialect
from integration_sdk.errors import (
    AccountExpired,
    ClientClosed,
    IntegrationError,
    JournalError,
    PushFailed,
    PushInDoubt,
    WaitExpired,
)
from integration_sdk.models import (
    OutcomeStatus,
    PushOperation,
    PushOutcome,
    PushRequest,
    PushStatus,
)

LONGEST_REASON: Final = 2000
"""Characters of a failure's reasons that are reported and recorded."""
_DECIDED: Final = {
    "abandon": "It was abandoned on record, which keeps its reference: where the record is "
    "missing at the service, push it under another one",
    "resend": "It was sent again on record, as another push",
}
GRACE: Final = 60.0
"""Seconds after a push's own deadline by which the service should have reported TimedOut."""


def final(request: PushRequest, operation: PushOperation, dialect: Dialect) -> PushOutcome:
    """Return the outcome of a push that is final."""
    error = None
    if operation.status is not PushStatus.SUCCESS:
        error = PushFailed(f"{_name(request)} {_how(operation, dialect)}", operation=operation)
    return PushOutcome(
        status=_ending(operation.status), request=request, operation=operation, error=error
    )


def _ending(status: PushStatus) -> OutcomeStatus:
    match status:
        case PushStatus.SUCCESS:
            return OutcomeStatus.SUCCESS
        case PushStatus.FAILED:
            return OutcomeStatus.FAILED
        case PushStatus.TIMED_OUT:
            return OutcomeStatus.TIMED_OUT
        case PushStatus.PENDING | PushStatus.UNKNOWN:
            raise ValueError(f"a push that is {status} has no outcome yet")
        case _:
            assert_never(status)


def _how(operation: PushOperation, dialect: Dialect) -> str:
    if operation.status is PushStatus.TIMED_OUT:
        late = (
            "it may still take effect, so look before you push it again"
            if dialect.timed_out_may_take_effect
            else "the service guarantees that it takes no effect any more"
        )
        return f"timed out as push {operation.key}; {late}"
    return f"failed as push {operation.key}: {reasons(operation) or 'no reason given'}"


def reasons(operation: PushOperation) -> str | None:
    """Return why a push failed, as it is recorded; None if the service gives no reason."""
    items = operation.validation.errors if operation.validation else ()
    said = "; ".join(map(str, items)) or operation.error_message or ""
    return (said if len(said) <= LONGEST_REASON else f"{said[: LONGEST_REASON - 3]}...") or None


def ends_all(error: IntegrationError) -> bool:
    """Whether every other push would meet *error* as well."""
    of_all = isinstance(error, AccountExpired | ClientClosed | JournalError)
    return of_all and not isinstance(error, RowRefused)


def refused(request: PushRequest, error: IntegrationError) -> PushOutcome:
    """Return the outcome of a push that does not exist: it was refused or never sent."""
    return PushOutcome(status=OutcomeStatus.REJECTED, request=request, error=error)


def invalid(request: PushRequest, error: IntegrationError) -> PushOutcome:
    """Return the outcome of a record that was not sent."""
    return PushOutcome(status=OutcomeStatus.INVALID, request=request, error=error)


def in_doubt(request: PushRequest, intent: Intent) -> PushOutcome:
    """Return the outcome of a push whose answer was lost, and which could not be found for sure.

    A push that the caller abandoned stays IN_DOUBT, since it may exist, but is not up for
    decision any more.
    """
    some = ", ".join(intent.candidates[:3])
    if intent.candidates:
        seen = f"It may be one of {len(intent.candidates)}: {some}"
    elif intent.state is State.ABSENT:
        seen = "No list shows it"
    else:
        seen = "The lists could not tell whether it exists"
    cause = _cause(intent).rstrip(".")
    error = PushInDoubt(
        f"{_name(request)} may or may not have been pushed: {cause}. "
        f"{seen}. {_DECIDED.get(intent.decision or '') or _undecided(intent)}",
        intent=intent.id,
        candidates=intent.candidates,
    )
    return PushOutcome(status=OutcomeStatus.IN_DOUBT, request=request, error=error)


def _cause(intent: Intent) -> str:
    if intent.http_status is None:
        return intent.error or "no answer"
    return f"the service, or a proxy, answered {intent.http_status} {intent.error or ''}".rstrip()


def _undecided(intent: Intent) -> str:
    if intent.state is State.AMBIGUOUS:
        return "It is not sent again by itself, and still searched for"
    return f"It is not sent again by itself; look for it, and decide about intent {intent.id}"


def pending(
    request: PushRequest, operation: PushOperation | None, error: IntegrationError
) -> PushOutcome:
    """Return the outcome of a push that nobody waits for any longer."""
    return PushOutcome(
        status=OutcomeStatus.PENDING, request=request, operation=operation, error=error
    )


def expired(
    request: PushRequest,
    operation: PushOperation | None,
    waited: float,
    trouble: IntegrationError | None,
) -> PushOutcome:
    """Return the outcome of a push whose wait has ended; *trouble*: of the last poll."""
    key = operation.push_operation_key if operation else "(no key)"
    error = wait_expired(
        f"{_name(request)} (push {key})", waited, operation=operation, trouble=trouble
    )
    return pending(request, operation, error)


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
        f"{name} {seen} after {waited:g} seconds of waiting; it goes on, wait for it again or "
        "look at it later",
        operation=operation,
    )
    error.__cause__ = trouble
    return error


def _name(request: PushRequest) -> str:
    return push_name(request.data_type, request.reference, request.company_id)


def longest_wait(request: PushRequest, wait: float | None) -> float | None:
    """Return how many seconds to wait for a push that was acknowledged; None for no bound.

    That is the caller's *wait*, or else the push's own deadline plus `GRACE`, after which the
    service has nothing more to decide.
    """
    if wait is not None or request.timeout_minutes is None:
        return wait
    return request.timeout_minutes * 60.0 + GRACE
