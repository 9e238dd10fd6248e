"""A call: its options, its state while it is under way, and what is reported of it."""

from __future__ import annotations

import asyncio
import logging
import math
from collections.abc import Callable, Mapping
from functools import cached_property
from typing import Any, Self

from attrs import define, evolve, field, frozen

from integration_sdk import errors
from integration_sdk._checks import is_number, own_header, sendable
from integration_sdk._http.credentials import Hidden
from integration_sdk._http.limiter import Limiter
from integration_sdk._http.limits import Waiter
from integration_sdk._http.requests import Phase, Priority, Request
from integration_sdk._http.responses import Failure, Reply, Response, lost, read_error
from integration_sdk._http.retry import RetryBudget, RetryPolicy
from integration_sdk._http.transport import Attempt
from integration_sdk._records.shapes import read_error_body

_log = logging.getLogger("integration_sdk.session")


def _policy(given: RetryPolicy | None) -> RetryPolicy:
    return RetryPolicy.never() if given is None else given


@frozen(kw_only=True)
class CallOptions:
    """The settings that `Client.with_options` changes, where they are explained."""

    timeout: float | None = 60.0
    read_timeout: float | None = 60.0
    retry: RetryPolicy = field(factory=RetryPolicy, converter=_policy)
    priority: Priority | None = None
    headers: Mapping[str, str] = field(factory=dict, repr=False)  # it may hold a secret

    def __attrs_post_init__(self) -> None:
        for name, seconds in (("timeout", self.timeout), ("read_timeout", self.read_timeout)):
            if seconds is not None and not (is_number(seconds) and seconds > 0):
                raise errors.ConfigurationError(
                    f"{name} must be more than 0 seconds, or None for no limit, not {seconds!r}"
                )
        if not isinstance(self.retry, RetryPolicy):
            raise errors.ConfigurationError(
                f"retry must be a RetryPolicy, such as RetryPolicy(attempts=3), not {self.retry!r}"
            )
        if not isinstance(self.priority, Priority | None):
            raise errors.ConfigurationError(f"priority must be a Priority, not {self.priority!r}")
        for header, value in dict(self.headers).items():
            own_header("a key of headers", header)
            if not sendable(f"header {header}", value).isprintable():
                raise errors.ConfigurationError(f"header {header} has a value that cannot be sent")

    @cached_property
    def effective_read_timeout(self) -> float | None:
        """`read_timeout`; None if `timeout` ends the call before, which needs no second timer."""
        limit, seconds = self.timeout or math.inf, self.read_timeout or math.inf
        return seconds if seconds < limit else None


@define(eq=False)
class Call(Waiter):
    """The state of a call that has not ended.

    Attributes:
        pauses: Pauses so far that were drawn, not named by the service.
        sending: The current attempt; None between two.
        last: The result of the previous attempt.
        task: The task that the deadline stops; None while nothing may be stopped.
        stopped: Whether the deadline or the client's end has stopped it.
        turn: What it waits for while it is in line.
    """

    request: Request = field(kw_only=True)
    options: CallOptions = field(kw_only=True)
    began: float = field(kw_only=True)
    deadline: float = math.inf
    attempts: int = 0
    pauses: int = 0
    waited: float = 0.0
    waits_for: str = "its turn"
    sending: Attempt | None = None
    last: Reply | None = None
    authorization: Hidden = field(default=Hidden(""), repr=False)
    key_renewed: bool = False
    task: asyncio.Task[Any] | None = None
    timer: asyncio.TimerHandle | None = None
    stopped: bool = False
    turn: asyncio.Future[Response | None] | None = None

    @classmethod
    def of(cls, request: Request, options: CallOptions, now: float) -> Self:
        """Return a call that begins *now*; see `Session.send`."""
        own, wanted = request.priority, options.priority
        return cls(
            request.company_id,
            own if wanted is None or own is Priority.PREFETCH else wanted,
            options.retry.throttled_base,
            request=request,
            options=options,
            began=now,
            deadline=now + (options.timeout or math.inf),
        )

    def stop(self) -> None:
        """Stop what the call does now, and whatever it would do next."""
        self.deadline = -math.inf
        if self.task is not None and not self.stopped:
            self.stopped = True
            self.task.cancel()

    def ended(self, last: Reply) -> Reply:
        """Return *last*, the result of its last attempt, with the facts of the call."""
        if isinstance(last, Response):
            last.attempts, last.waited = self.attempts, self.waited
        else:
            last.error.attempts = self.attempts
        return last

    def turned_away(self, closed_by: Response) -> Reply:
        """Return how it ends if its turn cannot come in time, since *closed_by* closed the gate."""
        if self.last is not None:
            return self.ended(self.last)
        return Failure(Phase.NEVER_LEFT, read_error(self.request, closed_by, sent=False))

    def too_late(self, closed_by: Response | None, *, client_is_closed: bool) -> Reply:
        """Return how it ends if it was stopped: by the client's end, else by its deadline."""
        expired = f"the timeout of {self.options.timeout or math.inf:g} s expired"
        stopped = "the client was closed" if client_is_closed else expired
        if self.sending is not None and self.sending.may_have_left:
            error = lost(self.request, stopped, attempts=self.attempts)
            return Failure(Phase.MAY_HAVE_LEFT, error)
        if client_is_closed:
            return self._unsent(errors.ClientClosed, f"{stopped} while this call was under way")
        unsent = f"{self.request} was not sent: {stopped} while"
        if self.sending is not None:
            return self._unsent(errors.NotSent, f"{unsent} connecting")
        if self.last is not None:
            return self.ended(self.last)
        if closed_by is not None:
            return self.turned_away(closed_by)
        return self._unsent(errors.NotSent, f"{unsent} it waited for {self.waits_for}")

    def _unsent(self, kind: type[errors.IntegrationError], why: str) -> Failure:
        return Failure(Phase.NEVER_LEFT, kind(why, **self.request.facts, attempts=self.attempts))


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


@define(kw_only=True)
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

    requests: int = 0
    attempts: int = 0
    throttled: int = 0
    unavailable: int = 0
    lost: int = 0
    waits: int = 0
    waited: float = 0.0
    in_flight: int = 0
    waiting: int = 0
    window: int = 0
    rate: float | None = None
    gate_open: bool = True
    opens_in: float = 0.0
    budget: float = 0.0


@define(eq=False)
class CallLog:
    """Counts and reports the calls of a session."""

    _on_call: Callable[[CallInfo], object] | None
    counts: SessionStats = field(init=False, factory=SessionStats)

    def over(self, call: Call, ending: Response | BaseException, now: float) -> None:
        self.counts.requests += 1
        if self._on_call is None and not _log.isEnabledFor(logging.DEBUG):
            return
        info = _describe(call, ending, now - call.began)
        _log.debug("%s", info)
        try:
            if self._on_call is not None:
                self._on_call(info)
        except Exception:
            _log.exception("on_call raised; the call's result is unaffected")

    def stats(
        self, limiter: Limiter, budget: RetryBudget, rate: float | None, now: float
    ) -> SessionStats:
        service, least = limiter.service, min(rate or math.inf, limiter.pace.learnt)
        is_open = service.closed_by is None
        return evolve(
            self.counts,
            in_flight=service.in_flight,
            waiting=limiter.waiting,
            window=int(service.size),
            rate=None if least == math.inf else least,
            gate_open=is_open,
            opens_in=0.0 if is_open else max(0.0, service.opens_at - now),
            budget=budget.tokens,
        )


def _describe(call: Call, ending: Response | BaseException, elapsed: float) -> CallInfo:
    error = ending if isinstance(ending, BaseException) else None
    correlation_id = error.correlation_id if isinstance(error, errors.IntegrationError) else None
    if isinstance(ending, Response) and not ending.ok:
        body = read_error_body(ending.body)
        correlation_id = body.correlation_id if body is not None else None
    is_cancelled = isinstance(error, asyncio.CancelledError)
    return CallInfo(
        operation=call.request.operation,
        method=call.request.method,
        path=call.request.path,
        status=ending.status if isinstance(ending, Response | errors.ApiError) else None,
        attempts=call.attempts,
        waited=call.waited,
        elapsed=elapsed,
        correlation_id=correlation_id,
        error=None if error is None else "cancelled" if is_cancelled else type(error).__name__,
    )
