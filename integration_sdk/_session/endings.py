"""How a call ends: with an answer, with the failure of its last transmission, or too late."""

from __future__ import annotations

from attrs import evolve

from integration_sdk._sansio.requests import Phase
from integration_sdk._sansio.responses import Failure, Reply, Response, read_error
from integration_sdk._session.call import Call
from integration_sdk._session.failures import lost
from integration_sdk.errors import ClientClosed, IntegrationError, NotSent


def ended(call: Call, last: Reply) -> Reply:
    """Return *last*, the result of the last transmission of *call*, with the facts of the call."""
    if isinstance(last, Response):
        smooth = call.attempts == 1 and not call.waited
        return last if smooth else evolve(last, attempts=call.attempts, waited=call.waited)
    last.error.attempts = call.attempts
    return last


def turned_away(call: Call, closed_by: Response) -> Reply:
    """Return how *call* ends, whose turn cannot come in time: as its last transmission, if any.

    Args:
        call: The call.
        closed_by: The answer that closed the gate.
    """
    if call.last is not None:
        return ended(call, call.last)
    return Failure(Phase.NEVER_LEFT, read_error(call.request, closed_by, sent=False))


def too_late(call: Call, closed_by: Response | None, *, client_is_closed: bool) -> Reply:
    """Return how *call* ends, which was stopped.

    Args:
        call: The call.
        closed_by: The answer that closed the gate; None if it is open.
        client_is_closed: Whether that stopped it; otherwise its deadline passed.
    """
    if client_is_closed:
        stopped = "the client was closed"
    else:
        stopped = f"the timeout of {call.options.timeout:g} s expired"
    if call.may_have_left:
        error = lost(call.request, stopped, attempts=call.attempts)
        return Failure(Phase.MAY_HAVE_LEFT, error)
    if client_is_closed:
        return _unsent(call, ClientClosed, f"{stopped} while this call was under way")
    unsent = f"{call.request} was not sent: {stopped} while"
    if call.sending is not None:
        return _unsent(call, NotSent, f"{unsent} connecting")
    if call.last is not None:
        return ended(call, call.last)
    if closed_by is not None:
        return turned_away(call, closed_by)
    return _unsent(call, NotSent, f"{unsent} it waited for {call.waits_for}")


def _unsent(call: Call, kind: type[IntegrationError], why: str) -> Failure:
    return Failure(Phase.NEVER_LEFT, kind(why, **call.facts))
