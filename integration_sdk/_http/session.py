"""`Session`: sends requests, within the rate limits and with retries.

The rules are elsewhere: `limiter` decides whose turn it is, `statuses` and `retry` whether and
when to send again. A `Transport` sends once, and the loop in `_carry` joins them::

    wait for a turn ─> send once ─> answered? ──2xx──> return the answer
         ^                             │ no, or another status
         └────── pause <── may it be sent again, and is there time?

The deadline of a call includes all of this. A session belongs to one event loop and one process.
It opens its connections with the first call and closes them when that loop shuts down, so a
client at module level works in one ``asyncio.run`` after another. No task runs in the background.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Collection
from functools import partial
from typing import TypeVar
from uuid import uuid4

import backoff
from attrs import define, field

from integration_sdk._http import statuses
from integration_sdk._http.call import Call, CallLog, CallOptions, SessionStats
from integration_sdk._http.credentials import ApiKey, ApiKeySource, Hidden, check_base_url, hide
from integration_sdk._http.limiter import Limiter
from integration_sdk._http.open_session import OpenSession
from integration_sdk._http.requests import Request, Safety
from integration_sdk._http.responses import Failure, Reply, Response, meaning_of
from integration_sdk._http.retry import Jitter, RetryBudget
from integration_sdk._http.statuses import OFFLINE, Meaning, Scope
from integration_sdk._http.transport import Attempt, Transport
from integration_sdk._options_given import ConnectionOptions
from integration_sdk._pacing import CellRate, SharedRate
from integration_sdk._records.shapes import is_services_own
from integration_sdk.errors import ClientClosed, NotSent
from integration_sdk.models import Quota

_log = logging.getLogger("integration_sdk.session")
T = TypeVar("T")
Before = Callable[[], Awaitable[object]]
SLACK = 0.1  # seconds of a fixed rate that may be caught up after a late timer


@define
class FixedRate:
    """A `SharedRate` of one client, in memory: equal intervals between calls."""

    per_second: float
    _cells: CellRate = field(init=False, factory=CellRate)
    _loop: asyncio.AbstractEventLoop | None = field(init=False, default=None)
    _line: asyncio.Lock = field(init=False, factory=asyncio.Lock)

    async def acquire(self) -> None:
        loop = asyncio.get_running_loop()
        if loop is not self._loop:
            self._loop, self._line = loop, asyncio.Lock()
        pace = {"interval": 1 / self.per_second, "burst": 1 + SLACK * self.per_second}
        async with self._line:  # a call that is cancelled in line has taken nothing
            while (wait := self._cells.wait(loop.time(), **pace)) > 0:  # noqa: ASYNC110 - it may grow
                await asyncio.sleep(wait)
            self._cells.reserve(1, loop.time(), **pace)

    def paused(self, seconds: float) -> None:
        """Let no call leave for so many *seconds*: those in line have passed the gate already."""
        self._cells.pause(asyncio.get_running_loop().time() + seconds)


class Session:
    """Sends requests to one service. Any number of tasks may use it at the same time.

    Args:
        base_url, api_key: As for `Client`.
        options: How to connect, and how fast to call.
        jitter: Draws a number between 0 and its argument.
        transport: Used instead of one made from the options.

    Attributes:
        quota: The account's rate limits, as the service last reported them; None until it does.
        rate: The limit that was set; None for none.
        is_plain: Whether a session of another process could be made with key and URL alone.
    """

    _state: OpenSession | None = None
    _closed = False

    def __init__(
        self,
        *,
        base_url: str,
        api_key: ApiKeySource,
        options: ConnectionOptions | None = None,
        jitter: Jitter = backoff.full_jitter,
        transport: Transport | None = None,
    ) -> None:
        api_key = hide(api_key)  # before anything can raise with it in a local variable
        self.base_url = check_base_url(base_url)
        options = options or ConnectionOptions()
        self.quota: Quota | None = None
        rate = options.rate
        self.rate: SharedRate | None = FixedRate(rate) if isinstance(rate, int | float) else rate
        given = options.proxy, options.connector, *options.middlewares, *options.trace_configs
        self.is_plain = options.ssl is True and not any(given)
        self._api_key = ApiKey(api_key)
        self._transport = transport or Transport(self.base_url, self._api_key, options)
        self._budget, self._call_log = RetryBudget(), CallLog(options.on_call)
        self._new_limiter = partial(
            Limiter, jitter, limit=options.connections, per_company=options.per_company
        )
        self._limiter = self._new_limiter()

    def stats(self) -> SessionStats:
        now = self._state.loop.time() if self._state else 0.0
        rate = self.rate.per_second if isinstance(self.rate, FixedRate) else None
        return self._call_log.stats(self._limiter, self._budget, rate, now)

    def held_back(self) -> Collection[str]:
        return self._limiter.held_back()

    def call_on_loop(self, callback: Callable[[str], None], text: str) -> None:
        """Call back on the loop that uses the session: at once there, soon from another thread."""
        state = self._state
        if state is None or state.loop.is_closed() or state.is_here:
            callback(text)
        else:
            state.loop.call_soon_threadsafe(callback, text)

    # Opening and closing

    def _state_of_this_loop(self) -> OpenSession | None:
        if self._closed:
            raise ClientClosed("the client is closed; make a new one")
        if self._state is None or self._state.loop.is_closed():
            return None
        self._state.check()
        return self._state

    async def _open(self) -> OpenSession:
        # This never suspends, so two first calls cannot both come here.
        self._limiter = self._new_limiter(now=asyncio.get_running_loop().time())
        self._state = await OpenSession.open(self._transport, self._limiter)
        return self._state

    async def aclose(self) -> None:
        """Close; later calls raise `ClientClosed`, and closing twice does no harm.

        Calls under way end with `AnswerLost` if they may have been sent, else `ClientClosed`.
        """
        state = None if self._closed else self._state_of_this_loop()
        self._closed = True
        if state is not None:
            await state.close()

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
        call = Call.of(request, options, state.loop.time())
        return await self._run(state, call, self._carry(state, call))

    async def send_once(
        self, request: Request, options: CallOptions, *, before: Before | None = None
    ) -> Response:
        """Send *request* exactly once, and return its answer, whatever the status.

        *before* is awaited when the turn has come and before the first byte leaves, such as to
        record that it leaves. What it raises is raised here, and nothing is sent. The timeout does
        not stop it. The other errors are those of `send`.
        """
        state = self._state_of_this_loop() or await self._open()
        call = Call.of(request, options, state.loop.time())
        return await self._run(state, call, self._once(state, call, before))

    async def _run(self, state: OpenSession, call: Call, work: Awaitable[Reply]) -> Response:
        """Return what *work* does, which the deadline and the client's end stop."""
        call.task = task = asyncio.current_task()
        assert task is not None  # noqa: S101 - we are in a coroutine
        cancellations = task.cancelling()
        state.begin(call)
        try:
            reply = await work
        except BaseException as error:
            # As `asyncio.Timeout` tells its own cancellation from any other.
            is_ours = call.stopped and task.uncancel() <= cancellations
            if not (is_ours and isinstance(error, asyncio.CancelledError)):
                self._over(state, call, error)
                raise
            reply = self._too_late(call)
        else:
            if call.stopped:  # a middleware or the api_key function took no notice
                task.uncancel()
        self._over(state, call, reply if isinstance(reply, Response) else reply.error)
        if isinstance(reply, Response):
            return reply
        raise reply.error  # here, so that no exception of aiohttp is chained to it

    def _over(self, state: OpenSession, call: Call, ending: Response | BaseException) -> None:
        state.leave(call)
        self._call_log.over(call, ending, state.loop.time())

    def _too_late(self, call: Call) -> Reply:
        return call.too_late(self._limiter.closed_by(call), client_is_closed=self._closed)

    async def _carry(self, state: OpenSession, call: Call) -> Reply:
        while True:
            if not self._goes_at_once(state, call):
                turned_away = await self._take_turn(state, call)
                if turned_away is not None:
                    return turned_away
            call.last = last = await self._transmit(state, call)
            if isinstance(last, Response) and last.ok:
                return call.ended(last)
            pause = await self._pause_before_next(state, call, last)
            if pause is None:
                return call.ended(last)
            if isinstance(last, Response) and last.status == OFFLINE:
                call.request = call.request.with_idempotency_key(str(uuid4()))
            why = last.status if isinstance(last, Response) else type(last.error).__name__
            when = f"in {pause:.2f} s" if pause else "when its turn comes"
            _log.info("%s: %s; it is sent again %s", call.request, why, when)
            if pause > 0:
                await self._wait(state, call, asyncio.sleep(pause))

    async def _once(self, state: OpenSession, call: Call, before: Before | None) -> Reply:
        turned_away = await self._take_turn(state, call)
        if turned_away is not None:
            return turned_away
        if before is not None:
            call.task, task = None, call.task  # the deadline stops no record
            try:
                await before()
                is_late = state.loop.time() >= call.deadline
            except BaseException:
                state.give_back(call, state.limiter.unused)
                raise
            call.task = task
            if is_late:
                state.give_back(call, state.limiter.unused)
                return self._too_late(call)
        call.last = last = await self._transmit(state, call)
        if isinstance(last, Response):
            await self._has_new_key(state, call, last)  # for the next call
        return call.ended(last)

    def _goes_at_once(self, state: OpenSession, call: Call) -> bool:
        key = self._api_key.authorization
        if key is None or self.rate is not None:
            return False
        call.authorization = key
        return state.limiter.enter(call, state.loop.time())

    async def _take_turn(self, state: OpenSession, call: Call) -> Reply | None:
        """Wait for a turn, and for the API key. If it would come too late, return how it ends."""
        while True:
            if call.waiting or not state.limiter.enter(call, state.loop.time()):
                closed_by = await self._wait(state, call, state.turn(call))
                if closed_by is not None:
                    return call.turned_away(closed_by)
            try:
                known = self._api_key.authorization
                call.authorization = known or await self._ask_for_authorization(state, call)
                if self.rate is not None:
                    call.waits_for = "the shared rate"
                    await self._wait(state, call, self.rate.acquire())
                    call.waits_for = "its turn"
            except BaseException:
                state.give_back(call, state.limiter.unused)
                raise
            if not call.lane.closed_since(call.sent_at):
                return None
            state.give_back(call, state.limiter.unused)

    async def _wait(self, state: OpenSession, call: Call, what: Awaitable[T]) -> T:
        began = state.loop.time()
        try:
            return await what
        finally:
            seconds = state.loop.time() - began
            call.waited += seconds
            self._call_log.counts.waited += seconds
            self._call_log.counts.waits += 1

    async def _transmit(self, state: OpenSession, call: Call) -> Reply:
        """Send once, and always give the turn back."""
        call.attempts += 1
        self._call_log.counts.attempts += 1
        options, limiter = call.options, state.limiter
        call.sending = attempt = Attempt(
            call.request, call.attempts, options.effective_read_timeout, options.headers
        )
        try:
            reply = await self._transport.send(attempt, call.authorization)
        except BaseException as error:
            given_up = isinstance(error, asyncio.CancelledError) and not call.stopped
            self._call_log.counts.lost += attempt.may_have_left and not given_up
            state.give_back(call, limiter.unanswered if attempt.may_have_left else limiter.unused)
            raise
        call.sending = None
        if isinstance(reply, Failure):
            self._call_log.counts.lost += 1
            state.give_back(call, limiter.unanswered)
            return reply
        self.quota = reply.quota or self.quota
        if is_ok := reply.ok:
            self._budget.earn()
        if is_ok or statuses.scope_of(reply.status) is not Scope.LOAD:
            state.give_back(call, limiter.answered)
        else:
            self._refused(state, call, reply)
        return reply

    def _refused(self, state: OpenSession, call: Call, answer: Response) -> None:
        self._call_log.counts.throttled += answer.status == 429
        self._call_log.counts.unavailable += answer.status == OFFLINE
        state.give_back(call, partial(state.limiter.refused, answer=answer))
        state.turn_away_late()
        pause = state.limiter.service.opens_at - state.loop.time()
        if self.rate is not None and pause > 0:
            self.rate.paused(pause)

    # Again, or not

    async def _pause_before_next(self, state: OpenSession, call: Call, last: Reply) -> float | None:
        """Return the seconds to wait before *call* is sent again; None to stop."""
        if isinstance(last, Response) and await self._has_new_key(state, call, last):
            return 0.0  # no retry: it was refused for another key
        status = last.status if isinstance(last, Response) else None
        retry = call.options.retry
        if call.attempts >= retry.attempts or _meaning(call.request, last) is not Meaning.AGAIN:
            return None
        refused = statuses.scope_of(status) is Scope.LOAD
        if refused and self._limiter.closed_by(call) is not None:  # it pauses at the gate
            in_time = self._limiter.closed_by(call, until=call.deadline) is None
            return 0.0 if in_time else None
        pause = retry.pause(call.pauses, self._limiter.jitter, throttled=status == 429)
        call.pauses += 1
        if state.loop.time() + pause >= call.deadline or not (refused or self._budget.spend()):
            return None
        return pause

    async def _has_new_key(self, state: OpenSession, call: Call, answer: Response) -> bool:
        """Ask for a new key on the first 401 of *call*; return whether there is one."""
        if statuses.scope_of(answer.status) is not Scope.KEY or call.key_renewed:
            return False
        if not self._api_key.rotates or _meaning(call.request, answer) is not Meaning.REFUSED:
            return False
        call.key_renewed = True
        try:
            return await self._ask_for_authorization(state, call) != call.authorization
        except NotSent as error:
            if call.request.safety is Safety.READ:
                raise
            _log.warning("%s was refused, and %s", call.request, error)
            return False  # a write was sent, so the caller gets its 401

    async def _ask_for_authorization(self, state: OpenSession, call: Call) -> Hidden:
        """Return the Authorization header, if possible not the one that *call* was refused with."""
        call.waits_for = "the api_key function"
        async with state.asking:
            authorization = await self._api_key.ask(call.authorization)
        call.waits_for = "its turn"
        return authorization


def _meaning(request: Request, last: Reply) -> Meaning:
    if isinstance(last, Failure):
        again = statuses.of_failure(request.safety, last.phase)
        return again if last.repeatable else Meaning.GIVE_UP
    is_own = request.safety is Safety.READ or is_services_own(last.body)
    return meaning_of(request, last, is_own=is_own)
