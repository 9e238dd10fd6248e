"""How a call ends: with an answer, with the failure of its last transmission, or too late."""

from __future__ import annotations

from attrs import evolve

from integration_sdk._sansio.responses import Reply, Response, read_error
from integration_sdk._session.call import Call
from integration_sdk._session.failures import Failure, lost
from integration_sdk.errors import ClientClosed, NotSent


def ended(call: Call, last: Response | Failure) -> Reply:
    """Return the reply to *call*, whose last transmission had the result *last*."""
    if isinstance(last, Response):
        smooth = call.attempts == 1 and not call.waited
        return last if smooth else evolve(last, attempts=call.attempts, waited=call.waited)
    last.error.attempts = call.attempts
    return last.error


def turned_away(call: Call, closed_by: Response) -> Reply:
    """Return the reply to *call*, whose turn cannot come in time: its last one, if any.

    Args:
        call: The call.
        closed_by: The answer that closed the gate.
    """
    if call.last is not None:
        return ended(call, call.last)
    return read_error(call.request, closed_by, sent=False)


def too_late(call: Call, closed_by: Response | None, *, client_is_closed: bool) -> Reply:
    """Return the reply to *call*, which was stopped.

    Args:
        call: The call.
        closed_by: The answer that closed the gate; None if it is open.
        client_is_closed: Whether that stopped it; otherwise its deadline passed.
    """
    if client_is_closed and not call.may_have_left:
        return ClientClosed("the client was closed while this call was under way", **call.facts)
    if client_is_closed:
        return lost(call.request, "the client was closed", attempts=call.attempts)
    expired = f"the timeout of {call.options.timeout:g} s expired"
    if call.may_have_left:
        return lost(call.request, expired, attempts=call.attempts)
    unsent = f"{call.request} was not sent: {expired} while"
    if call.sending is not None:
        return NotSent(f"{unsent} connecting", **call.facts)
    if call.last is not None:
        return ended(call, call.last)
    if closed_by is not None:
        return read_error(call.request, closed_by, sent=False)
    return NotSent(f"{unsent} it waited for {call.waits_for}", **call.facts)
