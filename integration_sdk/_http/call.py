"""A call: its options, its state while it is under way, and how it ends."""

from __future__ import annotations

import asyncio
import math
from functools import cached_property
from typing import Any

from attrs import Attribute, define, evolve, field, frozen

from integration_sdk._checks import is_number
from integration_sdk._http.credentials import Hidden
from integration_sdk._http.failures import lost
from integration_sdk._http.fair_queue import Ticket
from integration_sdk._http.requests import Phase, Priority, Request
from integration_sdk._http.responses import Failure, Reply, Response, read_error
from integration_sdk._http.retry import RetryPolicy
from integration_sdk._http.transport import Transmission
from integration_sdk.errors import ClientClosed, ConfigurationError, IntegrationError, NotSent


@frozen(kw_only=True)
class CallOptions:
    """The settings that `Client.with_options` changes.

    Attributes:
        timeout: Seconds for the whole call, including waits and retries; None for no limit.
        read_timeout: Seconds without a byte of an answer after which it counts as lost; None for
            no limit.
        retry: How calls are retried.
        priority: Which calls go first when some have to wait; None for the default of each
            kind of call. Pages that are fetched ahead always go last.
    """

    timeout: float | None = field(default=60.0)
    read_timeout: float | None = field(default=60.0)
    retry: RetryPolicy = field(factory=RetryPolicy)
    priority: Priority | None = field(default=None)

    @timeout.validator
    @read_timeout.validator
    def _is_above_zero(self, setting: Attribute[float | None], seconds: float | None) -> None:
        if seconds is not None and not (is_number(seconds) and seconds > 0):
            raise ConfigurationError(
                f"{setting.name} must be more than 0 seconds, or None for no limit, not {seconds!r}"
            )

    @retry.validator
    def _is_a_policy(self, _: object, retry: RetryPolicy) -> None:
        if not isinstance(retry, RetryPolicy):
            raise ConfigurationError(
                f"retry must be a RetryPolicy, or None for no retries, not {retry!r}; "
                "RetryPolicy(attempts=3) sends a call up to three times"
            )

    @priority.validator
    def _is_a_priority(self, _: object, priority: Priority | None) -> None:
        if not isinstance(priority, Priority | None):
            raise ConfigurationError(
                "priority must be a Priority, such as Priority.INTERACTIVE, or None, "
                f"not {priority!r}"
            )

    @cached_property
    def effective_read_timeout(self) -> float | None:
        """`read_timeout`; None if `timeout` ends the call before, which needs no second timer."""
        if self.read_timeout is None or self.timeout is None:
            return self.read_timeout
        return self.read_timeout if self.read_timeout < self.timeout else None


@define(eq=False)
class Call:
    """The state of a call that has not ended.

    Attributes:
        request, options: The arguments of `Session.send`.
        began: Start of the call, on the loop's clock.
        deadline: Latest end of the call, on the loop's clock.
        ticket: Its place in the throttle's queue.
        attempts: Transmissions so far.
        pauses: Pauses so far that were drawn, not named by the service.
        paid_after: Transmissions after which the retry budget paid for another; -1 for none.
        waited: Seconds waited so far.
        waits_for: What it waits for while it is not being sent.
        sending: The current transmission; None between two.
        last: The result of the previous transmission.
        ending: How the call ended; None if it has not, or nothing was sent.
        authorization: The Authorization header it is sent with; empty before the first time.
        key_renewed: Whether it has asked for a new key after a 401.
    """

    request: Request
    options: CallOptions
    began: float
    deadline: float = field(init=False)
    ticket: Ticket = field(init=False)
    attempts: int = field(init=False, default=0)
    pauses: int = field(init=False, default=0)
    paid_after: int = field(init=False, default=-1)
    waited: float = field(init=False, default=0.0)
    waits_for: str = field(init=False, default="its turn")
    sending: Transmission | None = field(init=False, default=None)
    last: Reply | None = field(init=False, default=None)
    ending: Reply | None = field(init=False, default=None)
    authorization: Hidden = field(init=False, default=Hidden(""), repr=False)
    key_renewed: bool = field(init=False, default=False)
    _timer: asyncio.Timeout | None = field(init=False, default=None)

    def __attrs_post_init__(self) -> None:
        timeout, priority = self.options.timeout, self.options.priority
        own, left = self.request.priority, self.request.seconds_left
        limits = [seconds for seconds in (timeout, left) if seconds is not None]
        self.deadline = self.began + min(limits, default=math.inf)
        self.ticket = Ticket(
            self.request.company_id,
            own if priority is None or own is Priority.PREFETCH else priority,
            self.deadline,
        )

    def stoppable(self) -> asyncio.Timeout:
        """Return a block that the deadline stops, or `end`."""
        self._timer = asyncio.timeout_at(None if self.deadline == math.inf else self.deadline)
        return self._timer

    @property
    def is_stopped(self) -> bool:
        """Whether the last such block has been stopped."""
        return self._timer is not None and self._timer.expired()

    def end(self) -> None:
        """Stop the call now, unless it has been stopped already."""
        self.deadline = -math.inf
        if self._timer is not None and not self._timer.expired():
            self._timer.reschedule(self.began)

    @property
    def facts(self) -> dict[str, Any]:
        """What every error about this call is told."""
        return {**self.request.facts, "attempts": self.attempts}

    @property
    def may_have_left(self) -> bool:
        """Whether the current transmission may have reached the service."""
        return self.sending is not None and self.sending.may_have_left


# How it ends: with an answer, with the failure of its last transmission, or too late


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
