"""One loop that polls all open pushes of a client.

A caller of `Poller.wait` waits on a future, a coordinator registers a `Follower`. One task asks
`schedule` whom to poll, polls, and reports to both: it reads a push or a page of the list, and
where that fails tries again later, does without the list, or gives up one push or all of them.

The task runs while there are pushes to follow, and again if a stranger cancels it. If it fails,
every waiter gets `PollingStopped` with the cause, and the next push to follow starts a new task.
"""

from __future__ import annotations

import asyncio
import logging
import random
import time
from collections import OrderedDict
from collections.abc import Callable, Hashable
from contextvars import Context
from typing import Final

from attrs import define, evolve

from integration_sdk._http import requests, responses
from integration_sdk._http.requests import Priority, Request
from integration_sdk._http.responses import Fetch, Response
from integration_sdk._http.statuses import Meaning, Scope, row
from integration_sdk._push import answers, outcomes
from integration_sdk._push.schedule import (
    Follower,
    ListPoll,
    OpenPush,
    Poll,
    Schedule,
    SinglePoll,
    Trouble,
    last_poll,
)
from integration_sdk._push.tasks import loop_time
from integration_sdk._push.wire import page_request
from integration_sdk.dialect import Dialect
from integration_sdk.errors import (
    ApiError,
    ClientClosed,
    ConfigurationError,
    IntegrationError,
    MalformedResponse,
    NotFound,
    PollingStopped,
    ResponseTooLarge,
    TransportError,
    fresh_copy,
)
from integration_sdk.models import PushOperation, PushStatus

logger = logging.getLogger("integration_sdk.pushes")

A_YEAR: Final = 366 * 86_400.0
AT_ONCE: Final = 16
"""Maximum number of concurrent polls."""
REMEMBERED: Final = 4096
"""Final operations that are kept for later calls of `Poller.wait`."""
NEWBORN: Final = 60.0
"""Seconds for which a push that was acknowledged may be answered with 404."""
UNREADABLE: Final = (MalformedResponse, ResponseTooLarge)
"""Errors that may persist when the request is repeated, so they are logged as warnings."""
Listener = Callable[[str | None], None]


@define(eq=False)
class _Wait(Follower):
    """A call of `Poller.wait`; ``last`` is the last state that it knows."""

    future: asyncio.Future[PushOperation]
    last: PushOperation | None
    fetch_data: bool = True

    def changed(self, key: str, operation: PushOperation) -> None:
        self.last = operation

    def ended(self, key: str, operation: PushOperation) -> None:
        if not self.future.done():
            self.future.set_result(operation)

    def lost(self, key: str, error: IntegrationError) -> None:
        if not self.future.done():
            self.future.set_exception(error)


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
        self.listeners: set[Listener] = set()
        self._send, self._dialect = send, dialect
        self._expects_notifications = notified
        self._schedule = Schedule(chance, float(notified), rate)
        self._finished: OrderedDict[str, PushOperation] = OrderedDict()
        self._never_told: set[PushStatus] = set()  # final states that come without details
        self._usual: tuple[Follower, ...] = ()
        self._polls: dict[asyncio.Task[None], Poll] = {}
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
                f"wait() takes a PushOperation or its key, not {type(operation).__name__}; await "
                "a push of a coordinator instead: outcome = await push"
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
        wait = _Wait(asyncio.get_running_loop().create_future(), last)
        push = self._follow(company_id, key, cohort, wait)
        push.exists |= last is not None
        timer = None if timeout is None else self._call_before_expiry(timeout, key)
        try:
            async with asyncio.timeout(timeout):
                return await wait.future
        except TimeoutError:
            expired = outcomes.wait_expired(
                f"push {key}", timeout or 0.0, operation=wait.last, trouble=push.why_unseen
            )
            raise expired from expired.__cause__
        finally:
            if timer is not None:
                timer.cancel()
            self._unfollow(push, wait)

    def _call_before_expiry(self, timeout: float, key: str) -> asyncio.TimerHandle:
        loop = asyncio.get_running_loop()
        return loop.call_later(last_poll(timeout), self.poll_before_expiry, key)

    # Following

    def follow(self, company_id: str, key: str, cohort: Hashable, follower: Follower) -> None:
        """Report the states of push *key*, which the service has answered with, to *follower*."""
        self._follow(company_id, key, cohort, follower).exists = True

    def _follow(self, company_id: str, key: str, cohort: Hashable, follower: Follower) -> OpenPush:
        push = self._schedule.pushes.get(key)
        if push is None:
            try:
                push = self._schedule.follow(key, company_id, cohort, loop_time())
                self._start()
            except Exception as crash:  # else others would wait for a push that nobody polls
                broken = _broken(crash)
                self._give_up(broken)
                raise broken from crash
        followers = (*push.followers, follower)
        # Ten thousand pushes may be open, nearly all with the same: a tuple each takes 64 bytes.
        self._usual = push.followers = self._usual if self._usual == followers else followers
        return push

    def unfollow(self, key: str, follower: Follower) -> None:
        """Report no more of push *key* to *follower*."""
        push = self._schedule.pushes.get(key)
        if push is not None:
            self._unfollow(push, follower)

    def _unfollow(self, push: OpenPush, follower: Follower) -> None:
        push.followers = tuple(one for one in push.followers if one is not follower)
        if not push.followers:
            self._forget(push)

    def _forget(self, push: OpenPush) -> None:
        if self._schedule.is_open(push):
            self._schedule.forget(push.key)
        if not self._schedule.pushes:
            self._wake.set()

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
        # Outside of a loop nothing is followed.
        if self._schedule.pushes and self._schedule.notify(key, loop_time()):
            self._wake.set()
        elif key not in self._finished:
            self._tell_listeners(None)

    def poll_before_expiry(self, key: str) -> None:
        """Poll push *key* although its notification is awaited: a wait for it soon ends."""
        self._schedule.poll_before_expiry(key, loop_time())
        self._wake.set()

    async def aclose(self) -> None:
        """Stop; all waiters get `ClientClosed`."""
        self._closed = True
        if self._task is not None:
            self._task.cancel()
            await asyncio.gather(self._task, return_exceptions=True)

    # The loop

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

    async def _run(self) -> None:
        async with asyncio.TaskGroup() as polling:
            while self._has_work():
                for poll in self._schedule.due(loop_time(), AT_ONCE - len(self._polls)):
                    task = polling.create_task(self._poll(poll))
                    self._polls[task] = poll
                    task.add_done_callback(lambda _: self._wake.set())
                await self._sleep()

    def _has_work(self) -> bool:
        self._wake.clear()
        for task in [task for task in self._polls if task.done()]:
            poll = self._polls.pop(task)
            if task.cancelled():  # by a stranger, or with the loop before this one
                self._schedule.failed(poll, loop_time())
        return bool(self._schedule.pushes or self._polls)

    async def _sleep(self) -> None:
        """Sleep until a poll is due, an answer has arrived or a push was added."""
        full = len(self._polls) >= AT_ONCE
        self._wakes_at = float("inf") if full else self._schedule.wake_at()
        loop = asyncio.get_running_loop()
        timer = loop.call_at(min(self._wakes_at, loop_time() + 3600), self._wake.set)
        try:
            await self._wake.wait()
        finally:
            timer.cancel()

    def _stopped(self, loop: asyncio.Task[None]) -> None:
        """Start again if there are pushes to follow, but if the loop broke, give them up."""
        self._task, self._usual = None, ()
        if loop.cancelled() and self._closed:
            self._give_up(
                ClientClosed(
                    "the client was closed while this push was Pending; it continues at the service"
                )
            )
        elif crash := None if loop.cancelled() else loop.exception():
            self._give_up(_broken(crash))
        elif self._schedule.pushes:  # added while the last poll ended, or a stranger cancelled it
            self._start()

    def _give_up(self, error: IntegrationError) -> None:
        """Start anew with an empty schedule: the old one may be in any state."""
        if isinstance(error, PollingStopped):
            logger.error("%s", error, exc_info=error.__cause__)
        old = self._schedule
        self._schedule = Schedule(old.chance, old.trust, old.rate)
        self._polls.clear()
        self._wake.set()
        for push in list(old.pushes.values()):
            _tell_lost(push, error)

    # Requests

    async def _poll(self, poll: Poll) -> None:
        await (self._read(poll) if isinstance(poll, SinglePoll) else self._list(poll))

    async def _read(self, poll: SinglePoll) -> None:
        push = poll.push
        names = {"companyId": poll.company.id, "pushOperationKey": push.key}
        try:
            request = requests.to_route(self._dialect, "pushes.get", **names)
        except ConfigurationError as error:  # the key cannot be part of a path
            self._lose(push, error)
            self._schedule.finish(poll, loop_time())
            return
        answer = await self._ask(poll, request)
        if answer is None:
            return
        try:
            operation = self._read_own(answer, push.key)
        except MalformedResponse as error:
            self._failed(poll, error)
            return
        if operation.is_final and _lacks_details(operation):
            self._never_told.add(operation.status)
        self._tell(push, operation)
        push.trouble = None
        self._schedule.finish(poll, loop_time())

    def _read_own(self, answer: Response, key: str) -> PushOperation:
        try:
            operation = answers.read_full(answer.body, exact=self.exact)
        except MalformedResponse as problem:
            operation = answers.read_brief(answer.body, problem)
            level = logging.WARNING if operation.is_final else logging.DEBUG
            logger.log(level, "push %s is %s. %s", key, operation.status, operation.error_message)
        if operation.key != key:
            raise MalformedResponse(
                f"asked for push {key}, but got {operation.key}, as from a cache"
            )
        return operation

    async def _list(self, poll: ListPoll) -> None:
        company, more = poll.company, True
        while more:
            if poll.page > 1:  # the first was paid for when the poll began
                self._schedule.spend(company, loop_time())
            request = page_request(self._dialect, company.id, poll.page, poll.page_size)
            answer = await self._ask(poll, request)
            if answer is None:
                return
            try:
                more = self._take(poll, answers.read_rows(answer.body))
            except MalformedResponse as error:
                # If it was unreadable before, one of its pushes is: do without.
                again = company.trouble and isinstance(company.trouble.error, MalformedResponse)
                (self._unlistable if again else self._failed)(poll, error)
                return
        company.trouble = None
        self._schedule.finish(poll, loop_time())
        self.listed(company.id)

    def _take(self, poll: ListPoll, page: answers.Rows) -> bool:
        news, more = self._schedule.listed(
            poll, page.rows, more=page.more, returned_size=page.page_size
        )
        indexes = [index for _, index in news]
        operations = page.operations(indexes, exact=self.exact) if news else []
        for (push, _), operation in zip(news, operations, strict=True):
            if operation is None or self._says_too_little(push, operation):
                self._schedule.single_out(push, loop_time())
            else:
                self._tell(push, operation)
        return more

    def _says_too_little(self, push: OpenPush, operation: PushOperation) -> bool:
        """Whether reading the push singly may return details that are wanted."""
        if not _lacks_details(operation) or operation.status in self._never_told:
            return False
        wants_data = any(one.fetch_data for one in push.followers)
        return wants_data or operation.status is not PushStatus.SUCCESS

    async def _ask(self, poll: Poll, request: Request) -> Response | None:
        """Return the answer; None if there is none to read, which has been dealt with."""
        try:
            answer = await self._send(evolve(request, priority=Priority.POLL))
        except ClientClosed as error:
            self._refused(poll, error)
        except (TransportError, ApiError) as error:
            self._failed(poll, error, answers.seconds_until(error, time.time()))
        else:
            if answer.ok:
                return answer
            self._not_read(poll, responses.read_error(request, answer), answer)
        return None

    # What did not come to be

    def _not_read(self, poll: Poll, error: ApiError, answer: Response) -> None:
        found = row(answer.status)
        if found.scope in (Scope.KEY, Scope.ACCOUNT):
            self._refused(poll, error)
        elif found.read is not Meaning.REFUSED:
            self._failed(poll, error, answer.retry_after)
        elif isinstance(poll, ListPoll):
            self._unlistable(poll, error)
        else:
            if isinstance(error, NotFound) and _may_lag(poll.push):
                self._note(poll, error)  # and take it as Pending
            else:
                self._lose(poll.push, error)
            self._schedule.finish(poll, loop_time())

    def _failed(self, poll: Poll, error: IntegrationError, wait: float | None = None) -> None:
        """Repeat the poll later: when the service says, or else with growing pauses."""
        self._note(poll, error)
        self._schedule.failed(poll, loop_time(), wait=wait or 0.0)

    def _note(self, poll: Poll, error: IntegrationError) -> None:
        target = poll.push if isinstance(poll, SinglePoll) else poll.company
        before, target.trouble = target.trouble, Trouble(poll.started, error)
        is_news = before is None or not isinstance(before.error, UNREADABLE)
        level = logging.WARNING if is_news and isinstance(error, UNREADABLE) else logging.DEBUG
        logger.log(level, "polling %s failed and will be retried: %s", target, error)

    def _unlistable(self, poll: ListPoll, error: IntegrationError) -> None:
        level = logging.WARNING if isinstance(error, MalformedResponse) else logging.INFO
        logger.log(level, "%s The company's pushes are polled one by one.", error)
        self._schedule.unlistable(poll, loop_time())

    def _refused(self, poll: Poll, error: IntegrationError) -> None:
        """Give up all pushes, because of the account, the API key or the client."""
        for push in list(self._schedule.pushes.values()):
            self._lose(push, error)
        self._schedule.finish(poll, loop_time())

    # Telling

    def _tell(self, push: OpenPush, operation: PushOperation) -> None:
        """Report the state of *push*; once it is final, stop following the push."""
        if not self._schedule.is_open(push):
            return
        push.exists = True
        if not operation.is_final:
            for follower in push.followers:
                follower.changed(push.key, operation)
            return
        try:
            self._schedule.ended(push, loop_time(), _took(operation))
            self._check_notifications()
        finally:  # the end is known, even if a bug in the rules stops the loop
            for follower in push.followers:
                follower.ended(push.key, operation)
            self.remember(operation)

    def _check_notifications(self) -> None:
        if self._expects_notifications and self._schedule.has_no_trust:
            self._expects_notifications = False
            logger.warning(
                "Client(notified=True), but pushes ended without a notification; polling as usual. "
                "Are notifications passed to client.notify?"
            )

    def _lose(self, push: OpenPush, error: IntegrationError) -> None:
        """Stop following *push*, and give each follower a copy of *error*."""
        if not self._schedule.is_open(push):
            return
        try:
            self._forget(push)
        finally:
            _tell_lost(push, error)

    def listed(self, company_id: str) -> None:
        """Tell the listeners that the company's pushes have just been listed."""
        self._tell_listeners(company_id)

    def _tell_listeners(self, company_id: str | None) -> None:
        for listener in tuple(self.listeners):
            listener(company_id)


def _tell_lost(push: OpenPush, error: IntegrationError) -> None:
    for follower in push.followers:
        follower.lost(push.key, fresh_copy(error))


def _broken(crash: BaseException) -> PollingStopped:
    cause = crash.exceptions[0] if isinstance(crash, ExceptionGroup) else crash
    error = PollingStopped(
        f"the polling loop failed ({cause!r}); the push continues, wait for it again"
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


def _lacks_details(operation: PushOperation) -> bool:
    """Whether an operation lacks the data of a Success, or the reasons of a Failed push."""
    if operation.status is PushStatus.SUCCESS:  # with a message: its data cannot be read
        return operation.data is None and not operation.error_message
    failed = operation.status is PushStatus.FAILED
    return failed and operation.validation is None and operation.error_message is None


def _may_lag(push: OpenPush) -> bool:
    """Whether a 404 may come from reads that lag behind: one alone says nothing of a known push."""
    if not push.exists:
        return False
    before = push.trouble.error if push.trouble is not None else None
    return not isinstance(before, NotFound) or loop_time() - push.born < NEWBORN
