"""Reports calls: counts, log records, the ``on_call`` hook and ``client.calls()``."""

from __future__ import annotations

import logging
import math
from asyncio import CancelledError
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from contextvars import ContextVar

from attrs import define, field, frozen

from integration_sdk._http.call import Call
from integration_sdk._http.limiter import Throttle
from integration_sdk._http.responses import Response
from integration_sdk._http.retry import RetryBudget
from integration_sdk._records.shapes import read_error_body
from integration_sdk.errors import ApiError, IntegrationError

_log = logging.getLogger("integration_sdk.session")
_collecting: ContextVar[tuple[Collector, ...]] = ContextVar("integration_sdk_calls", default=())


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
        attempts: Transmissions, including retries.
        throttled: Answers with status 429.
        unavailable: Answers with status 503.
        lost: Transmissions without a usable answer, apart from those that the caller gave up.
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
class Collector:
    """The calls of one ``with client.calls()`` block.

    Attributes:
        is_open: Whether the block is still running. A task started in it may outlive it, and
            keeps its context.
    """

    log: CallLog
    calls: list[CallInfo] = field(factory=list)
    is_open: bool = True


@define(eq=False)
class CallLog:
    """Counts and reports the calls of a session; `SessionStats` explains each count."""

    _on_call: Callable[[CallInfo], None] | None = None
    requests: int = field(init=False, default=0)
    attempts: int = field(init=False, default=0)
    throttled: int = field(init=False, default=0)
    unavailable: int = field(init=False, default=0)
    lost: int = field(init=False, default=0)
    waits: int = field(init=False, default=0)
    waited: float = field(init=False, default=0.0)

    def waited_for(self, call: Call, seconds: float) -> None:
        """Count a wait of *call*."""
        call.waited += seconds
        self.waited += seconds
        self.waits += 1

    def answered(self, status: int) -> None:
        """Count an answer with *status*."""
        self.throttled += status == 429
        self.unavailable += status == 503

    def over(self, call: Call, ending: Response | BaseException | None, elapsed: float) -> None:
        """Report that *call* ended with *ending*: an answer, an error, or None, unsent."""
        self.requests += 1
        collecting = [one.calls for one in _collecting.get() if one.log is self and one.is_open]
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
            _log.exception("on_call failed; the call is what it was")

    @contextmanager
    def collect(self) -> Iterator[list[CallInfo]]:
        """Collect a `CallInfo` for each call made inside the block, also by tasks started in it."""
        collector = Collector(self)
        others = [one for one in _collecting.get() if one.is_open]
        token = _collecting.set((*others, collector))
        try:
            yield collector.calls
        finally:
            collector.is_open = False
            with suppress(ValueError):  # a generator's block may end in another context
                _collecting.reset(token)

    def stats(self, throttle: Throttle, budget: RetryBudget, now: float) -> SessionStats:
        """Return the counts so far and the state *now*."""
        gate = throttle.gate
        return SessionStats(
            requests=self.requests,
            attempts=self.attempts,
            throttled=self.throttled,
            unavailable=self.unavailable,
            lost=self.lost,
            waits=self.waits,
            waited=self.waited,
            in_flight=throttle.in_flight,
            waiting=throttle.waiting,
            window=throttle.window.places,
            rate=None if throttle.pace.rate == math.inf else throttle.pace.rate,
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
    return "cancelled" if isinstance(error, CancelledError) else type(error).__name__


def _correlation_id(ending: Response | BaseException | None) -> str | None:
    if isinstance(ending, IntegrationError):
        return ending.correlation_id
    if not isinstance(ending, Response) or ending.ok:
        return None
    body = read_error_body(ending.body)
    return body.correlation_id if body is not None else None
