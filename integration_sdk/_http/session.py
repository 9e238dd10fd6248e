"""`Session`: sends requests, within the rate limits and with retries.

The rules are elsewhere: `throttle` decides whose turn it is, `retry` whether and when to send
again. `Transport` sends once, and the loop in `_carry` joins them::

    wait for a turn ─> send once ─> answered? ──2xx──> return the answer
         ^                             │ no, or another status
         └────── pause <── may it be sent again, and is there time?

The deadline of a call includes all of this. A session belongs to one event loop and one process.
It opens its connections with the first call and closes them when that loop shuts down, so a
client at module level works in one ``asyncio.run`` after another.
"""

from __future__ import annotations

import asyncio
import logging
import math
from collections.abc import AsyncGenerator, Awaitable, Callable, Collection, Iterator, Sequence
from contextlib import AbstractContextManager, asynccontextmanager, contextmanager
from functools import partial
from typing import TYPE_CHECKING, Any, TypeVar, assert_never
from uuid import uuid4

import backoff

from integration_sdk._answer_parts import Quota
from integration_sdk._http import judgement
from integration_sdk._http.call import Call, CallOptions, ended, too_late, turned_away
from integration_sdk._http.call_log import CallInfo, CallLog, SessionStats
from integration_sdk._http.credentials import ApiKey, ApiKeySource, Hidden, hide
from integration_sdk._http.gate import Refusal
from integration_sdk._http.judgement import OFFLINE, About, Meaning
from integration_sdk._http.limiter import Throttle
from integration_sdk._http.loop_state import GateClosed, LoopState
from integration_sdk._http.origin import check_base_url, check_proxy
from integration_sdk._http.quota import read_quota
from integration_sdk._http.rate import SharedRate
from integration_sdk._http.requests import Request, Safety
from integration_sdk._http.responses import Failure, Reply, Response
from integration_sdk._http.retry import (
    Jitter,
    RetryBudget,
    has_attempt_left,
)
from integration_sdk._http.slot import Slot
from integration_sdk._http.transport import CONNECTIONS, Carrier, Transmission, Transport
from integration_sdk._records.shapes import is_services_own
from integration_sdk.errors import ClientClosed, NotSent

if TYPE_CHECKING:
    from ssl import SSLContext

    import aiohttp
    from yarl import URL


_log = logging.getLogger("integration_sdk.session")
T = TypeVar("T")


class Session:
    """Sends requests to one service. Any number of tasks may use it at the same time.

    Args:
        base_url: The service's URL; ``https://`` unless it runs on this machine.
        api_key: The key, or a callable, async or not, that returns it: called before the first
            call, and again when the service answers 401.
        rate: Maximum number of requests per second, or a limit shared with others; None slows
            down only when the service asks.
        per_company: Maximum number of concurrent requests for one company.
        connections: Maximum number of concurrent requests, and of connections for reads and
            for writes each.
        refuses_with_503: `Dialect.refuses_with_503`.
        proxy, ssl, session: See `Client`, and `Transport`.
        middlewares, trace_configs: Passed to aiohttp.
        on_call: Called with a `CallInfo` after every call.
        jitter: Draws a number between 0 and its argument.
        transport: Used instead of one made from the settings above.

    Attributes:
        quota: The account's rate limits, as the service last reported them; None until it does.
        on_refusal: Called after each 429 or 503.

    Raises:
        ConfigurationError: A setting cannot work.
    """

    base_url: str = ""
    _state: LoopState | None = None
    _closed = False

    def __init__(
        self,
        *,
        base_url: str,
        api_key: ApiKeySource,
        rate: float | SharedRate | None = None,
        per_company: int = 10,
        connections: int = CONNECTIONS,
        refuses_with_503: bool = True,
        proxy: str | URL | None = None,
        ssl: SSLContext | bool = True,
        session: aiohttp.ClientSession | None = None,
        middlewares: Sequence[aiohttp.ClientMiddlewareType] = (),
        trace_configs: Sequence[aiohttp.TraceConfig] = (),
        on_call: Callable[[CallInfo], None] | None = None,
        jitter: Jitter = backoff.full_jitter,
        transport: Carrier | None = None,
    ) -> None:
        api_key = hide(api_key)  # before anything can raise with it in a local variable
        self.base_url = check_base_url(base_url)
        self.quota: Quota | None = None
        self.on_refusal: set[Callable[[], None]] = set()
        self._api_key = ApiKey.of(api_key)
        self._transport: Carrier = transport or Transport(
            self.base_url,
            self._api_key,
            connections=connections,
            proxy=check_proxy(proxy, self.base_url),
            ssl=ssl,
            lender=session,
            middlewares=middlewares,
            trace_configs=trace_configs,
        )
        self._limits: dict[str, Any] = {
            "limit": connections,
            "per_company": per_company,
            "rate": None if isinstance(rate, SharedRate) else rate,
        }
        self._shared_rate = rate if isinstance(rate, SharedRate) else None
        self._jitter = jitter
        self._refuses_with_503 = refuses_with_503
        self._budget = RetryBudget()
        self._call_log = CallLog(on_call)
        self._throttle = self._new_throttle()

    def __repr__(self) -> str:
        how = "closed" if self._closed else "open" if self._state else "not opened yet"
        return f"<Session of {self.base_url}, {how}>"

    def calls(self) -> AbstractContextManager[list[CallInfo]]:
        """Collect a `CallInfo` for each call made inside the block, also by tasks started in it."""
        return self._call_log.collect()

    def stats(self) -> SessionStats:
        """Return the counts so far and the current state."""
        now = self._state.loop.time() if self._state else 0.0
        return self._call_log.stats(self._throttle, self._budget, now)

    def held_back(self) -> Collection[str]:
        """Return the companies that are refused for now, though others may not be."""
        return self._throttle.held_back()

    # Opening and closing

    def _new_throttle(self) -> Throttle:
        return Throttle(self._jitter, **self._limits)

    def _state_of_this_loop(self) -> LoopState | None:
        """Return the state of the running loop; None if there is none, or its loop is closed."""
        if self._closed:
            raise ClientClosed("the client is closed; make a new one")
        if self._state is None or self._state.loop.is_closed():
            return None
        self._state.check()
        return self._state

    async def _open(self) -> LoopState:
        """Open the transport. This never suspends, so two first calls cannot both come here."""
        self._throttle = self._new_throttle()
        self._state = await LoopState.open(self._transport, self._throttle)
        return self._state

    async def aclose(self, *, drain: float | None = None) -> None:
        """Close; later calls raise `ClientClosed`. Closing twice does no harm.

        Args:
            drain: Seconds to let running calls finish; None ends them at once, with
                `AnswerLost` if their request may have been sent, else with `ClientClosed`.
        """
        state = None if self._closed else self._state_of_this_loop()
        self._closed = True
        if state is not None:
            await state.close(drain)

    # One call

    async def send(self, request: Request, options: CallOptions) -> Response:
        """Send *request*, again if need be, and return its answer, whatever the status.

        Raises:
            NotSent: The request was not sent.
            AnswerLost: The request may have been sent, but there is no complete answer.
            MalformedResponse: The answer is not HTTP.
            ResponseTooLarge: The answer is over the request's limit.
            TooManyRequests, ServiceUnavailable: The request was not sent (``attempts`` is 0),
                because the service has asked for a pause that ends after the deadline.
            ClientClosed: The client is closed, or belongs to another loop or process.
        """
        state = self._state_of_this_loop() or await self._open()
        with self._calling(state, request, options) as call:
            call.ending = await self._in_time(state, call, self._carry)
        if isinstance(call.ending, Response):
            return call.ending
        raise call.ending.error  # here, so that no exception of aiohttp is chained to it

    @asynccontextmanager
    async def slot(self, request: Request, options: CallOptions) -> AsyncGenerator[Slot]:
        """Wait for *request*'s turn; in the block, `Slot.send` sends it once.

        So whatever must be on record before the request leaves is recorded in the block, when
        nothing else is waited for. Leaving the block without sending gives the turn back. The
        timeout stops the wait and the sending, not what else is done in the block.

        Raises:
            NotSent: Its turn did not come in time, or there is no API key.
            TooManyRequests, ServiceUnavailable: The service has asked for a pause that ends after
                the deadline; ``attempts`` is 0.
            ClientClosed: The client is closed, or belongs to another loop or process.
        """
        state = self._state_of_this_loop() or await self._open()
        with self._calling(state, request, options) as call:
            held_up = await self._in_time(state, call, self._take_turn)
            if isinstance(held_up, Failure):
                raise held_up.error
            try:
                yield Slot(call, partial(self._in_time, state, call, self._send_once))
            finally:
                if not call.attempts:
                    state.turnstile.unused(call.ticket)

    @contextmanager
    def _calling(self, state: LoopState, request: Request, options: CallOptions) -> Iterator[Call]:
        """Report a call when it is over, with its ``ending`` or what was raised."""
        call = Call(request, options, state.loop.time())
        state.calls.add(call)
        try:
            yield call
        except BaseException as error:
            self._over(state, call, error)
            raise
        self._over(state, call, call.ending)

    def _over(self, state: LoopState, call: Call, ending: Reply | BaseException | None) -> None:
        state.leave(call)
        if call.paid_after == call.attempts:  # for a repetition that was never sent
            self._budget.refund()
        if isinstance(ending, Failure):
            ending = ending.error
        self._call_log.over(call, ending, state.loop.time() - call.began)

    async def _in_time(
        self, state: LoopState, call: Call, work: Callable[[LoopState, Call], Awaitable[T]]
    ) -> T | Reply:
        """Return the result of *work*, which is stopped by the deadline and the client's end."""
        if state.loop.time() < call.deadline:
            try:
                async with call.stoppable():
                    return await work(state, call)
            except TimeoutError:
                if not call.is_stopped:
                    raise
        closed_by = self._throttle.closed_by(call.ticket)
        return too_late(call, closed_by, client_is_closed=self._closed)

    async def _carry(self, state: LoopState, call: Call) -> Reply:
        while True:
            held_up = await self._take_turn(state, call)
            if held_up is not None:
                return held_up
            call.last = last = await self._transmit(state, call)
            if isinstance(last, Response) and last.ok:
                return ended(call, last)
            pause = await self._pause_before_next(state, call, last)
            if pause is None:
                return ended(call, last)
            if isinstance(last, Response) and last.status == OFFLINE:
                call.request = call.request.with_idempotency_key(str(uuid4()))
            _log.info("%s is sent again %s", call.request, _said(call, last, pause))
            await self._sleep(state, call, pause)

    async def _take_turn(self, state: LoopState, call: Call) -> Reply | None:
        """Wait for a turn, and for the API key. If it would come too late, return how it ends."""
        if not state.turnstile.passes(call.ticket):
            began = state.loop.time()
            try:
                await state.turnstile.wait(call.ticket)
            except GateClosed as closed:
                return turned_away(call, closed.answer)
            finally:
                self._call_log.waited_for(call, state.loop.time() - began)
        try:
            known = self._api_key.authorization
            call.authorization = known or await self._ask_for_authorization(state, call)
            if self._shared_rate is not None:
                await self._share_rate(state, call, self._shared_rate)
        except BaseException:
            state.turnstile.unused(call.ticket)
            raise
        return None

    async def _share_rate(self, state: LoopState, call: Call, rate: SharedRate) -> None:
        began = state.loop.time()
        before, call.waits_for = call.waits_for, "the shared rate"
        try:
            await rate.acquire()
            call.waits_for = before
        finally:
            self._call_log.waited_for(call, state.loop.time() - began)

    async def _sleep(self, state: LoopState, call: Call, pause: float) -> None:
        if pause <= 0:
            return
        began = state.loop.time()
        try:
            await asyncio.sleep(pause)
        finally:
            self._call_log.waited_for(call, state.loop.time() - began)

    async def _send_once(self, state: LoopState, call: Call) -> Reply:
        call.last = last = await self._transmit(state, call)
        if isinstance(last, Response):
            await self._has_new_key(state, call, last)  # for whoever sends it again
        return ended(call, last)

    async def _transmit(self, state: LoopState, call: Call) -> Reply:
        """Send once, and always give the turn back."""
        call.attempts += 1
        self._call_log.attempts += 1
        timeout = call.options.effective_read_timeout
        call.sending = Transmission(call.request, call.attempts, timeout)
        try:
            result = await self._transport.send(call.sending, call.authorization)
        except BaseException as error:
            if call.may_have_left:
                given_up = isinstance(error, asyncio.CancelledError) and not call.is_stopped
                self._call_log.lost += not given_up
                state.turnstile.unanswered(call.ticket)
            else:
                state.turnstile.unused(call.ticket)
            raise
        call.sending = None
        self._learn(state, call, result)
        return result

    def _learn(self, state: LoopState, call: Call, result: Reply) -> None:
        """Give the turn back, and adapt to what the answer says about rate limits."""
        if isinstance(result, Failure):
            self._call_log.lost += 1
            state.turnstile.unanswered(call.ticket)
            return
        quota = read_quota(result.headers, result.received_at)
        self.quota = quota or self.quota
        self._call_log.answered(result.status)
        if judgement.about(result.status) is About.LOAD:
            of_company = call.request.company_id is not None
            base = call.options.retry.throttled_base
            refusal = Refusal.of(result, quota, of_company=of_company, base=base)
            state.turnstile.refused(call.ticket, refusal)
            if self._shared_rate is not None and not self._throttle.gate.is_open:
                self._shared_rate.paused(self._throttle.gate.opens_at - state.loop.time())
            for told in self.on_refusal:
                told()
            return
        if result.ok:
            self._budget.earn()
        state.turnstile.answered(call.ticket)

    # Again, or not

    async def _pause_before_next(self, state: LoopState, call: Call, last: Reply) -> float | None:
        """Return the seconds to wait before *call* is sent again; None to stop."""
        rotated = isinstance(last, Response) and await self._has_new_key(state, call, last)
        status = last.status if isinstance(last, Response) else None
        if not has_attempt_left(
            call.request,
            call.options.retry,
            call.attempts,
            status,
            bounded=call.deadline < math.inf,
        ):
            return None
        if rotated:
            return 0.0
        match self._meaning(call, last):
            case Meaning.AGAIN:
                return self._affordable_pause(state, call, last)
            case Meaning.DONE | Meaning.REFUSED | Meaning.IN_DOUBT | Meaning.GIVE_UP:
                return None
            case other:
                assert_never(other)

    def _meaning(self, call: Call, last: Reply) -> Meaning:
        safety = call.request.safety
        if isinstance(last, Failure):
            again = judgement.of_failure(safety, last.phase)
            return again if last.repeatable else Meaning.GIVE_UP
        if call.request.keeps_key and last.status == OFFLINE:
            return Meaning.REFUSED  # which the service repeats for as long as the key is the same
        return judgement.of_answer(
            safety,
            last.status,
            is_own=safety is Safety.READ or is_services_own(last.body),
            refuses_with_503=self._refuses_with_503,
        )

    def _affordable_pause(self, state: LoopState, call: Call, last: Reply) -> float | None:
        """Return the pause before a retry; None if there is no time or retry budget for it.

        A call that was answered 429 or 503 costs no budget, and pauses at the gate if that is
        closed for it.
        """
        status = last.status if isinstance(last, Response) else None
        refused = judgement.about(status) is About.LOAD
        if refused and self._throttle.closed_by(call.ticket) is not None:
            return 0.0
        pause = call.options.retry.pause(call.pauses, self._jitter, throttled=status == 429)
        call.pauses += 1
        if state.loop.time() + pause >= call.deadline:
            return None
        if not refused:
            if not self._budget.spend():
                return None
            call.paid_after = call.attempts
        return pause

    async def _has_new_key(self, state: LoopState, call: Call, answer: Response) -> bool:
        """Ask for a new key on the first 401 of *call*; return whether there is one."""
        if judgement.about(answer.status) is not About.KEY:
            return False
        if call.key_renewed or not self._api_key.rotates:
            return False
        if self._meaning(call, answer) is not Meaning.REFUSED:
            return False
        call.key_renewed = True
        try:
            return await self._ask_for_authorization(state, call) != call.authorization
        except NotSent as error:
            if call.request.safety is Safety.READ:
                raise
            _log.warning("%s was refused, and %s", call.request, error)
            return False  # a write was sent, so the caller gets its 401

    async def _ask_for_authorization(self, state: LoopState, call: Call) -> Hidden:
        """Return the Authorization header, if possible not the one that *call* was refused with."""
        before, call.waits_for = call.waits_for, "the api_key function"
        async with state.asking:
            authorization = await self._api_key.ask(call.authorization)
        call.waits_for = before
        return authorization


def _said(call: Call, last: Reply, pause: float) -> str:
    when = f"after {pause:.2f} s" if pause else "when its turn comes"
    if isinstance(last, Response):
        return f"{when}: it got {last.status}"
    return f"{when}: it {str(last.error).removeprefix(f'{call.request} ')}"
