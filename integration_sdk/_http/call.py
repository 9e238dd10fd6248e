"""A call: its options, its state while it is under way, how it ends, and what is told of it."""

from __future__ import annotations

import asyncio
import logging
import math
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from contextvars import ContextVar
from functools import cached_property
from typing import TYPE_CHECKING, Any

from attrs import Attribute, define, field, frozen

from integration_sdk._checks import is_number
from integration_sdk._http.credentials import Hidden
from integration_sdk._http.requests import Phase, Priority, Request
from integration_sdk._http.responses import Failure, Reply, Response, read_error
from integration_sdk._http.retry import RetryBudget, RetryPolicy
from integration_sdk._http.transport import Attempt, lost
from integration_sdk._records.shapes import read_error_body
from integration_sdk.errors import (
    ApiError,
    ClientClosed,
    ConfigurationError,
    IntegrationError,
    NotSent,
)

if TYPE_CHECKING:
    from integration_sdk._http.limiter import CompanyLimits, Limiter

_log = logging.getLogger("integration_sdk.session")


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
    """The state of a call that has not ended, and its place in the line of those that wait.

    Attributes:
        request, options: The arguments of `Session.send`.
        began, deadline: Start and latest end, on the loop's clock.
        priority: Which calls it precedes when some have to wait.
        patient: Whether its time is the bound of its repetitions, and not their number.
        attempts: How often it was sent.
        pauses: Pauses so far that were drawn, not named by the service.
        paid_after: Attempts after which the retry budget paid for another; -1 for none.
        waited: Seconds waited so far.
        timer: Stops it at its deadline; None if it has none.
        waits_for: What it waits for while it is not being sent.
        sending: The current attempt; None between two.
        last: The result of the previous attempt.
        ending: How the call ended; None if it has not, or nothing was sent.
        authorization: The Authorization header it is sent with; empty before the first time.
        key_renewed: Whether it has asked for a new key after a 401.
        task: The task that the deadline stops; None while nothing may be stopped.
        stopped: Whether the deadline or the client's end has stopped it.
        limits: Its company's; None before its first turn.
        order: Its place in the line, kept over repetitions; 0 until it has one.
        turns: How many turns it had.
        sent_at: When its last turn began.
        waiting: Whether it is in line.
    """

    request: Request
    options: CallOptions
    began: float
    deadline: float
    priority: Priority
    patient: bool = False
    attempts: int = 0
    pauses: int = 0
    paid_after: int = -1
    waited: float = 0.0
    timer: asyncio.TimerHandle | None = None
    waits_for: str = "its turn"
    sending: Attempt | None = None
    last: Reply | None = None
    ending: Reply | None = None
    authorization: Hidden = field(default=Hidden(""), repr=False)
    key_renewed: bool = False
    task: asyncio.Task[Any] | None = None
    stopped: bool = False
    limits: CompanyLimits | None = None
    order: int = 0
    turns: int = 0
    sent_at: float = 0.0
    waiting: bool = False

    def __lt__(self, other: Call) -> bool:
        return self.order < other.order

    @property
    def company(self) -> str | None:
        """The company whose limits it counts against; None for none."""
        return self.request.company_id

    @property
    def facts(self) -> dict[str, Any]:
        """What every error about this call is told."""
        return {**self.request.facts, "attempts": self.attempts}

    @property
    def may_have_left(self) -> bool:
        """Whether the current attempt may have reached the service."""
        return self.sending is not None and self.sending.may_have_left

    def stop(self) -> None:
        """Stop what the call does now, and whatever it would do next."""
        self.deadline = -math.inf
        if self.task is not None and not self.stopped:
            self.stopped = True
            self.task.cancel()

    # How it ends: with an answer, with the failure of its last attempt, or too late

    def ended(self, last: Reply) -> Reply:
        """Return *last*, the result of its last attempt, with the facts of the call."""
        if isinstance(last, Response):
            last.attempts, last.waited = self.attempts, self.waited
        else:
            last.error.attempts = self.attempts
        return last

    def turned_away(self, closed_by: Response) -> Reply:
        """Return how it ends if its turn cannot come in time, since *closed_by* closed the gate.

        That is as its last attempt, if there was one.
        """
        if self.last is not None:
            return self.ended(self.last)
        return Failure(Phase.NEVER_LEFT, read_error(self.request, closed_by, sent=False))

    def too_late(self, closed_by: Response | None, *, client_is_closed: bool) -> Reply:
        """Return how it ends if it was stopped.

        Args:
            closed_by: The answer that closed the gate; None if it is open.
            client_is_closed: Whether that stopped it; otherwise its deadline passed.
        """
        if client_is_closed:
            stopped = "the client was closed"
        else:
            stopped = f"the timeout of {self.options.timeout:g} s expired"
        if self.may_have_left:
            error = lost(self.request, stopped, attempts=self.attempts)
            return Failure(Phase.MAY_HAVE_LEFT, error)
        if client_is_closed:
            return self._unsent(ClientClosed, f"{stopped} while this call was under way")
        unsent = f"{self.request} was not sent: {stopped} while"
        if self.sending is not None:
            return self._unsent(NotSent, f"{unsent} connecting")
        if self.last is not None:
            return self.ended(self.last)
        if closed_by is not None:
            return self.turned_away(closed_by)
        return self._unsent(NotSent, f"{unsent} it waited for {self.waits_for}")

    def _unsent(self, kind: type[IntegrationError], why: str) -> Failure:
        return Failure(Phase.NEVER_LEFT, kind(why, **self.facts))


def new_call(request: Request, options: CallOptions, now: float, patience: float | None) -> Call:
    """Return a call that begins *now*; see `Session.send`."""
    limits = [seconds for seconds in (options.timeout, patience) if seconds is not None]
    own, wanted = request.priority, options.priority
    return Call(
        request,
        options,
        now,
        now + min(limits, default=math.inf),
        own if wanted is None or own is Priority.PREFETCH else wanted,
        patience is not None,
    )


# What is told of it


_collecting: ContextVar[tuple[tuple[CallLog, list[CallInfo]], ...]] = ContextVar(
    "integration_sdk_calls", default=()
)
"""The ``with client.calls()`` blocks around what runs, outermost first."""


@frozen(kw_only=True)
class CallInfo:
    """What happened in one call.

    Attributes:
        operation: Name of the route, such as ``push.create``; "request" for `Client.request`.
        method, path: The request; the path is percent-encoded and has no query.
        status: HTTP status of the last answer; None if there was none.
        attempts: How often the request was sent.
        waited: Seconds spent waiting for rate limits and between attempts.
        elapsed: Seconds in total.
        correlation_id: From the error body, if there was one.
        error: Name of the exception that was raised, if any; "cancelled" for a cancellation.
    """

    operation: str
    method: str
    path: str
    status: int | None = None
    attempts: int = 0
    waited: float = 0.0
    elapsed: float = 0.0
    correlation_id: str | None = None
    error: str | None = None


@frozen(kw_only=True)
class SessionStats:
    """Counts since the client was created, and its current state.

    Attributes:
        requests: Calls that have ended.
        attempts: How often requests were sent, retries included.
        throttled: Answers with status 429.
        unavailable: Answers with status 503.
        lost: Attempts without a usable answer, apart from those that the caller gave up.
        waits: How often a call had to wait, for its turn or for a retry.
        waited: Seconds waited, by all calls together.
        in_flight: Requests under way now.
        waiting: Calls waiting for their turn now.
        window: How many requests may be under way at the same time.
        rate: Limit in requests per second, as set or as learnt; None for no limit.
        gate_open: False while a 429 or 503 holds all calls back.
        opens_in: Seconds until a call may try a closed gate; 0.0 while it is open.
        budget: Tokens left for retries; each costs 5.
    """

    requests: int
    attempts: int
    throttled: int
    unavailable: int
    lost: int
    waits: int
    waited: float
    in_flight: int
    waiting: int
    window: int
    rate: float | None
    gate_open: bool
    opens_in: float
    budget: float


@define(eq=False)
class CallLog:
    """Counts and reports the calls of a session; `SessionStats` explains each count."""

    _on_call: Callable[[CallInfo], None] | None = None
    _blocks: list[list[CallInfo]] = field(init=False, factory=list)
    """Those of the ``with client.calls()`` blocks that still run."""
    requests: int = field(init=False, default=0)
    attempts: int = field(init=False, default=0)
    throttled: int = field(init=False, default=0)
    unavailable: int = field(init=False, default=0)
    lost: int = field(init=False, default=0)
    waits: int = field(init=False, default=0)
    waited: float = field(init=False, default=0.0)
    _complained: bool = field(init=False, default=False)

    def waited_for(self, call: Call, seconds: float) -> None:
        """Count a wait of *call*."""
        call.waited += seconds
        self.waited += seconds
        self.waits += 1

    def refused(self, status: int) -> None:
        """Count a 429 or 503."""
        self.throttled += status == 429
        self.unavailable += status == 503

    def over(self, call: Call, ending: Response | BaseException | None, elapsed: float) -> None:
        """Report that *call* ended with *ending*: an answer, an error, or None, unsent."""
        self.requests += 1
        collecting = [calls for log, calls in _collecting.get() if log is self and log.fills(calls)]
        if self._on_call is None and not collecting and not _log.isEnabledFor(logging.DEBUG):
            return
        info = _describe(call, ending, elapsed)
        _log.debug("%s", info)
        for calls in collecting:
            calls.append(info)
        self._tell(info)

    def _tell(self, info: CallInfo) -> None:
        if self._on_call is None:
            return
        try:
            self._on_call(info)
        except Exception:
            # Once: what is wrong with it is wrong in every call.
            level = logging.DEBUG if self._complained else logging.ERROR
            _log.log(level, "on_call raised; the call's result is unaffected", exc_info=True)
            self._complained = True

    @contextmanager
    def collect(self) -> Iterator[list[CallInfo]]:
        """Collect a `CallInfo` for each call made inside the block, also by tasks started in it."""
        calls: list[CallInfo] = []
        self._blocks.append(calls)
        around = [(log, others) for log, others in _collecting.get() if log.fills(others)]
        token = _collecting.set((*around, (self, calls)))
        try:
            yield calls
        finally:
            # A task that was started in the block may outlive it, with its context.
            self._blocks = [one for one in self._blocks if one is not calls]
            with suppress(ValueError):  # a generator's block may end in another context
                _collecting.reset(token)

    def fills(self, calls: list[CallInfo]) -> bool:
        """Whether the block that *calls* is for still runs."""
        return any(calls is one for one in self._blocks)

    def stats(
        self, limiter: Limiter, budget: RetryBudget, rate: float | None, now: float
    ) -> SessionStats:
        """Return the counts so far and the state *now*; *rate* is the one that was set."""
        gate = limiter.gate
        least = min(rate or math.inf, limiter.pacer.learnt)
        return SessionStats(
            requests=self.requests,
            attempts=self.attempts,
            throttled=self.throttled,
            unavailable=self.unavailable,
            lost=self.lost,
            waits=self.waits,
            waited=self.waited,
            in_flight=limiter.in_flight,
            waiting=limiter.waiting,
            window=limiter.window.places,
            rate=None if least == math.inf else least,
            gate_open=gate.is_open,
            opens_in=0.0 if gate.is_open else max(0.0, gate.opens_at - now),
            budget=budget.tokens,
        )


def _describe(call: Call, ending: Response | BaseException | None, elapsed: float) -> CallInfo:
    return CallInfo(
        operation=call.request.operation,
        method=call.request.method,
        path=call.request.path,
        status=ending.status if isinstance(ending, Response | ApiError) else None,
        attempts=call.attempts,
        waited=call.waited,
        elapsed=elapsed,
        correlation_id=_correlation_id(ending),
        error=_name(ending) if isinstance(ending, BaseException) else None,
    )


def _name(error: BaseException) -> str:
    return "cancelled" if isinstance(error, asyncio.CancelledError) else type(error).__name__


def _correlation_id(ending: Response | BaseException | None) -> str | None:
    if isinstance(ending, IntegrationError):
        return ending.correlation_id
    if not isinstance(ending, Response) or ending.ok:
        return None
    body = read_error_body(ending.body)
    return body.correlation_id if body is not None else None
