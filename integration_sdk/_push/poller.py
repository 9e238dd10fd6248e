"""One loop that polls all open pushes of a client.

A caller of `Poller.wait` waits on a future, a coordinator registers a `Follower`. One task asks
`_push` what to poll, polls it, and reports to both. It runs while there are pushes to
follow, and again if a stranger cancels it. If it fails, every waiter gets `PollingStopped` with
the cause, and the next push to follow starts a new task.
"""

from __future__ import annotations

import asyncio
import logging
import random
from collections import OrderedDict
from collections.abc import Callable, Hashable
from contextvars import Context
from functools import partial
from typing import Final

from attrs import Factory, define

from integration_sdk._http.responses import Fetch
from integration_sdk._push import clock, outcomes, worth
from integration_sdk._push.open_pushes import Follower, OpenPush, Poll
from integration_sdk._push.poll_requests import PollRequests
from integration_sdk._push.schedule import Schedule
from integration_sdk.dialect import Dialect
from integration_sdk.errors import (
    ClientClosed,
    ConfigurationError,
    IntegrationError,
    PollingStopped,
    fresh_copy,
)
from integration_sdk.models import PushOperation

logger = logging.getLogger("integration_sdk.pushes")

A_YEAR: Final = 366 * 86_400.0
AT_ONCE: Final = 16
"""Maximum number of concurrent polls."""
REMEMBERED: Final = 4096
"""Final operations that are kept for later calls of `Poller.wait`."""
Listener = Callable[[str | None], None]


@define(eq=False)
class _Waiters(Follower):
    """All calls of `Poller.wait` for one push.

    Attributes:
        last: Last state seen, if any.
    """

    last: PushOperation | None = None
    futures: set[asyncio.Future[PushOperation]] = Factory(set)
    fetch_data: bool = True

    def changed(self, key: str, operation: PushOperation) -> None:
        self.last = operation

    def ended(self, key: str, operation: PushOperation) -> None:
        for future in self.futures:
            if not future.done():
                future.set_result(operation)

    def lost(self, key: str, error: IntegrationError) -> None:
        for future in self.futures:
            if not future.done():
                future.set_exception(fresh_copy(error))


class Poller:
    """Follows pushes until they are final.

    Args:
        send: Sends a request.
        dialect: The version of the service.
        chance: Returns a number from 0 to 1, for jitter.
        notified: Whether to expect notifications from the first push on.
        exact: Whether fractions are read as Decimal.
        rate: Returns the requests per second that the service allows, if known: polls take half.

    Attributes:
        listeners: Called with the id of each company whose pushes have just been listed, and
            with None for a notification about a push that nobody follows.
    """

    def __init__(
        self,
        send: Fetch,
        dialect: Dialect,
        *,
        chance: Callable[[], float] = random.random,
        notified: bool = False,
        exact: bool = False,
        rate: Callable[[], float | None] = lambda: None,
    ) -> None:
        self.exact = exact
        self._rate, self._next_poll = rate, 0.0
        self._expects_notifications = notified
        self._schedule = Schedule(chance, float(notified))
        self._requests = PollRequests(send, dialect, self._schedule, self, exact=exact)
        self._finished: OrderedDict[str, PushOperation] = OrderedDict()
        self.listeners: set[Listener] = set()
        self._usual: tuple[Follower, ...] = ()
        self._in_flight = 0
        self._broken_off: list[Poll] = []
        self._task: asyncio.Task[None] | None = None
        self._closed = False
        self._wake = asyncio.Event()
        self._wakes_at = 0.0

    # Waiting

    async def wait_for(
        self, operation: PushOperation, *, timeout: float | None = None
    ) -> PushOperation:
        """Wait for a push as `wait` does, but return at once if *operation* is final.

        Raises:
            ConfigurationError: *operation* is not a `PushOperation`. Other errors as in `wait`.
        """
        if not isinstance(operation, PushOperation):
            raise ConfigurationError(
                f"wait() takes a PushOperation or its key, not {type(operation).__name__}: a push "
                "of a coordinator is awaited itself, as in outcome = await push"
            )
        if operation.is_final:
            return operation
        company_id, key = operation.company_id, operation.push_operation_key
        return await self.wait(company_id, key, timeout=timeout, last=operation)

    async def wait(
        self,
        company_id: str,
        key: str,
        *,
        timeout: float | None = None,
        last: PushOperation | None = None,
    ) -> PushOperation:
        """Wait for push *key* to end and return its last state.

        Args:
            company_id: The company of the push.
            key: The ``pushOperationKey``.
            timeout: Seconds to wait; None waits for as long as the push is Pending.
            last: The last known state, if any. Completion times are learned for each connection
                and data type that it names.

        Raises:
            NotFound: The service does not know this push.
            WaitExpired: *timeout* passed. The push itself goes on.
            PollingStopped: The loop broke; waiting again starts a new one.
            ClientClosed: The client was closed in the meantime.
        """
        if key in self._finished:
            return self._finished[key]
        cohort = (last.data_connection_id, last.data_type) if last else (None, None)
        push = self._open(company_id, key, cohort)
        push.exists |= last is not None
        waiters = _waiters_of(push)
        waiters.last = waiters.last or last
        future: asyncio.Future[PushOperation] = asyncio.get_running_loop().create_future()
        waiters.futures.add(future)
        timer = None if timeout is None else self._call_before_expiry(timeout, key)
        try:
            async with asyncio.timeout(timeout):
                return await future
        except TimeoutError:
            expired = outcomes.wait_expired(
                f"push {key}", timeout or 0.0, operation=waiters.last, trouble=push.why_unseen
            )
            raise expired from expired.__cause__
        finally:
            if timer is not None:
                timer.cancel()
            waiters.futures.discard(future)
            if not waiters.futures:
                self._unfollow(push, waiters)

    def _call_before_expiry(self, timeout: float, key: str) -> asyncio.TimerHandle:
        loop = asyncio.get_running_loop()
        return loop.call_later(worth.last_poll(timeout), self.poll_before_expiry, key)

    # Following

    def follow(self, company_id: str, key: str, cohort: Hashable, follower: Follower) -> None:
        """Report the states of push *key*, which the service has answered with, to *follower*."""
        push = self._open(company_id, key, cohort)
        push.exists = True
        followers = (*push.followers, follower)
        # Ten thousand pushes may be open, nearly all with the same: a tuple each takes 64 bytes.
        self._usual = push.followers = self._usual if self._usual == followers else followers

    def unfollow(self, key: str, follower: Follower) -> None:
        """Report no more of push *key* to *follower*."""
        push = self._schedule.pushes.get(key)
        if push is not None:
            self._unfollow(push, follower)

    def _unfollow(self, push: OpenPush, follower: Follower) -> None:
        push.followers = tuple(one for one in push.followers if one is not follower)
        if not push.followers:
            self._forget(push)

    def trouble(self, key: str) -> IntegrationError | None:
        """Return the error of the last poll of push *key*; None if it succeeded."""
        push = self._schedule.pushes.get(key)
        return push.why_unseen if push else None

    def remember(self, operation: PushOperation) -> None:
        """Keep a final state for later calls of `wait`; the first one for a push counts."""
        self._finished.setdefault(operation.push_operation_key, operation)
        while len(self._finished) > REMEMBERED:
            self._finished.popitem(last=False)

    def notify(self, key: str) -> None:
        """Poll push *key* now; if nobody follows it, tell the listeners."""
        if self._schedule.notify(key):
            self._wake.set()
        elif key not in self._finished:
            self._tell_listeners(None)

    def poll_before_expiry(self, key: str) -> None:
        """Poll push *key* although its notification is awaited: a wait for it soon ends."""
        self._schedule.poll_before_expiry(key, clock.now())
        self._wake.set()

    async def aclose(self) -> None:
        """Stop; all waiters get `ClientClosed`."""
        self._closed = True
        if self._task is not None:
            self._task.cancel()
            await asyncio.gather(self._task, return_exceptions=True)

    # The loop

    def _open(self, company_id: str, key: str, cohort: Hashable) -> OpenPush:
        push = self._schedule.pushes.get(key)
        if push is None:
            try:
                push = self._schedule.follow(key, company_id, cohort, clock.now())
                self._start()
            except Exception as crash:  # else others would wait for a push that nobody polls
                broken = _broken(crash)
                self._give_up(broken)
                raise broken from crash
        return push

    def _start(self) -> None:
        if self._task is None:
            self._wake = asyncio.Event()
            # The task outlives the call that starts it, so it does not inherit its context.
            own = Context()
            self._task = asyncio.create_task(
                self._run(), name="integration_sdk poller", context=own
            )
            self._task.add_done_callback(self._stopped, context=own)
        elif self._schedule.wake_at() < self._wakes_at:
            self._wake.set()

    def _forget(self, push: OpenPush) -> None:
        if self._schedule.is_open(push):
            self._schedule.forget(push.key)
        if not self._schedule.pushes:
            self._wake.set()

    async def _run(self) -> None:
        async with asyncio.TaskGroup() as polling:
            while self._schedule.pushes or self._in_flight:
                self._wake.clear()
                while self._broken_off:
                    self._schedule.failed(self._broken_off.pop(), clock.now())
                has_room = self._in_flight < AT_ONCE and clock.now() >= self._next_poll
                room = 1 if self._rate() else AT_ONCE - self._in_flight
                for poll in self._schedule.due(clock.now(), room) if has_room else ():
                    self._in_flight += 1
                    self.spend()
                    task = polling.create_task(self._requests.carry_out(poll))
                    task.add_done_callback(partial(self._returned, poll))
                await self._sleep()

    async def _sleep(self) -> None:
        """Sleep until a poll is due, an answer has arrived or a push was added."""
        full = self._in_flight >= AT_ONCE
        at = max(self._schedule.wake_at(), self._next_poll)
        self._wakes_at = float("inf") if full else at
        loop = asyncio.get_running_loop()
        timer = loop.call_at(min(self._wakes_at, clock.now() + 3600), self._wake.set)
        try:
            await self._wake.wait()
        finally:
            timer.cancel()

    def spend(self) -> None:
        """Note a request; the next poll waits until that is half of what the service allows."""
        if rate := self._rate():
            self._next_poll = max(self._next_poll, clock.now()) + 2 / rate

    def _stopped(self, loop: asyncio.Task[None]) -> None:
        """Start again if there are pushes to follow, but if the loop broke, give them up."""
        self._task, self._in_flight, self._usual = None, 0, ()
        if loop.cancelled() and self._closed:
            self._give_up(ClientClosed("the client was closed while this push was Pending"))
        elif crash := None if loop.cancelled() else loop.exception():
            self._give_up(_broken(crash))
        elif self._schedule.pushes:  # added while the last poll ended, or a stranger cancelled it
            self._start()

    def _give_up(self, error: IntegrationError) -> None:
        """Start anew with an empty schedule: the old one may be in any state."""
        if isinstance(error, PollingStopped):
            logger.error("%s", error, exc_info=error.__cause__)
        old = self._schedule
        self._schedule = self._requests.schedule = Schedule(old.chance, old.trust)
        self._broken_off.clear()
        self._wake.set()
        for push in list(old.pushes.values()):
            _tell_lost(push, error)

    def _returned(self, poll: Poll, task: asyncio.Task[None]) -> None:
        if task.cancelled():  # by a stranger, or with the loop
            self._broken_off.append(poll)  # the loop deals with it, since it is supervised
        self._in_flight -= 1
        self._wake.set()

    # Telling

    def tell(self, push: OpenPush, operation: PushOperation) -> None:
        """Report the state of *push*; once it is final, stop following the push."""
        if not self._schedule.is_open(push):
            return
        push.exists = True
        if operation.is_final:
            self._end(push, operation)
        else:
            for follower in push.followers:
                follower.changed(push.key, operation)

    def _end(self, push: OpenPush, operation: PushOperation) -> None:
        try:
            self._schedule.ended(push, clock.now(), _took(operation))
            self._check_notifications()
        finally:  # the end is known, even if a bug in the rules stops the loop
            for follower in push.followers:
                follower.ended(push.key, operation)
            self.remember(operation)

    def _check_notifications(self) -> None:
        if self._expects_notifications and worth.is_lost(self._schedule.trust):
            self._expects_notifications = False
            logger.warning(
                "Client(notified=True), but pushes have ended without a notification, and are "
                "polled as if there were none: are they passed to client.notify?"
            )

    def lose(self, push: OpenPush, error: IntegrationError) -> None:
        """Stop following *push*, and give each follower a copy of *error*."""
        if not self._schedule.is_open(push):
            return
        try:
            self._forget(push)
        finally:
            _tell_lost(push, error)

    def lose_all(self, error: IntegrationError) -> None:
        """Stop following all pushes, and give each follower a copy of *error*."""
        for push in list(self._schedule.pushes.values()):
            self.lose(push, error)

    def listed(self, company_id: str) -> None:
        """Tell the listeners that the company's pushes have just been listed."""
        self._tell_listeners(company_id)

    def _tell_listeners(self, company_id: str | None) -> None:
        for listener in tuple(self.listeners):
            listener(company_id)


def _tell_lost(push: OpenPush, error: IntegrationError) -> None:
    for follower in push.followers:
        follower.lost(push.key, fresh_copy(error))


def _waiters_of(push: OpenPush) -> _Waiters:
    """Return those who wait for *push* among its followers."""
    for follower in push.followers:
        if isinstance(follower, _Waiters):
            return follower
    waiters = _Waiters()
    push.followers = (*push.followers, waiters)
    return waiters


def _broken(crash: BaseException) -> PollingStopped:
    cause = crash.exceptions[0] if isinstance(crash, ExceptionGroup) else crash
    error = PollingStopped(
        f"the polling loop broke ({cause!r}); the push goes on, wait for it again"
    )
    error.__cause__ = cause
    return error


def _took(operation: PushOperation) -> float | None:
    """Return how many seconds the push took by the service's clock.

    None if a date is missing, or the result is a year or more (as with a placeholder date).
    """
    began, ended = operation.requested_on_utc, operation.completed_on_utc
    if not (began and ended):
        return None
    took = (ended - began).total_seconds()
    return took if abs(took) < A_YEAR else None
