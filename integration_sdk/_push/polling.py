"""The one loop that polls for all of a client; whom it polls when is in `schedule`.

One task looks at the companies that are due and calls the followers of each push: with its state,
or with the error because of which it is no longer followed. `Polls.wait` is such a follower, each
coordinator another. If the loop breaks, all followers get a `PushError`.
"""

from __future__ import annotations

import asyncio
import logging
import random
import time
from collections import OrderedDict
from collections.abc import Awaitable, Callable, Iterable, Sequence
from contextvars import Context
from math import inf

from integration_sdk._http.requests import Priority
from integration_sdk._http.responses import Fetch
from integration_sdk._http.statuses import Meaning, Scope, row
from integration_sdk._options_given import LARGEST_PAGE, Numbers
from integration_sdk._push import outcomes
from integration_sdk._push.schedule import (
    SLOWER_NOTIFIED,
    USUAL,
    Follower,
    OpenPush,
    PolledCompany,
    PollLimits,
    Schedule,
    Seen,
    says_too_little,
)
from integration_sdk._push.wire import PushPage, get_push, list_page, read_page, seconds_until
from integration_sdk._store.row import folded
from integration_sdk.dialect import Dialect
from integration_sdk.errors import (
    ApiError,
    ClientClosed,
    ConfigurationError,
    IntegrationError,
    MalformedResponse,
    NotFound,
    PushError,
    ResponseTooLarge,
    fresh_copy,
)
from integration_sdk.models import PushOperation, PushStatus

logger = logging.getLogger("integration_sdk.pushes")

CLOSED = "the client was closed while this push was Pending; it continues at the service"
UNREADABLE = (MalformedResponse, ResponseTooLarge)


class Polls:
    """Follows pushes until they are final.

    notified: Whether ends are notified, so that polls can wait for that.
    strangers: Called with the key of each notification for which no push is followed here.
    """

    def __init__(
        self,
        send: Fetch,
        dialect: Dialect,
        *,
        limits: PollLimits = USUAL,
        chance: Callable[[], float] = random.random,
        notified: bool = False,
        numbers: Numbers = "float",
        rate: Callable[[], float | None] = lambda: None,
    ) -> None:
        self.numbers, self.limits = numbers, limits
        self.strangers: set[Callable[[str], None]] = set()
        self.schedule = Schedule(limits, chance, rate, SLOWER_NOTIFIED if notified else 1.0)
        self._send, self._dialect = send, dialect
        self._finished: OrderedDict[str, PushOperation] = OrderedDict()
        self._closed = False
        self._loop: asyncio.AbstractEventLoop | None = None
        self._now: Callable[[], float] = time.monotonic  # until there is a loop
        self._reset()

    def _reset(self) -> list[OpenPush]:
        self._running, self._until = 0, inf
        self._task: asyncio.Task[None] | None = None
        self._wake = asyncio.Event()
        return self.schedule.reset()

    # Waiting

    async def wait_for(
        self, operation: PushOperation, *, timeout: float | None = None
    ) -> PushOperation:
        """Wait for a push as `wait` does; return at once if *operation* is final."""
        if not isinstance(operation, PushOperation):
            raise ConfigurationError(
                f"wait() takes a PushOperation or its key, not {type(operation).__name__}; await "
                "a push of a coordinator instead: outcome = await push"
            )
        company_id = operation.company_id
        return await self.wait(company_id, operation.key, timeout=timeout, last=operation)

    async def wait(
        self,
        company_id: str,
        key: str,
        *,
        timeout: float | None = None,
        last: PushOperation | None = None,
    ) -> PushOperation:
        """Wait for push *key* to end and return its last state; *last*: the last one known.

        Raises: See `Client.wait`.
        """
        ended = last if last and last.is_final else self._finished.get(folded(key))
        if ended is not None:
            return ended
        future: asyncio.Future[PushOperation] = asyncio.get_running_loop().create_future()

        def told(_: str, what: Seen) -> None:
            nonlocal last
            if isinstance(what, PushOperation):
                last = what
            if not future.done() and isinstance(what, IntegrationError):
                future.set_exception(what)
            elif not future.done() and isinstance(what, PushOperation) and what.is_final:
                future.set_result(what)

        push = self.follow(company_id, key, told, operation=last, wants_data=True)
        if timeout is not None:
            self.look_before(key, timeout)
        try:
            async with asyncio.timeout(timeout):
                return await future
        except TimeoutError:
            why, waited = push.trouble, timeout or 0.0
            raise outcomes.wait_expired(f"push {key}", waited, operation=last, trouble=why) from why
        finally:
            self.unfollow(key, told)

    # Following

    def follow(
        self,
        company_id: str,
        key: str,
        follower: Follower,
        *,
        operation: PushOperation | None = None,
        minutes: int | None = None,
        wants_data: bool = False,
    ) -> OpenPush:
        """Call *follower* with the states of push *key*.

        *operation*: As it was last seen. *minutes*: After which the service gives it up.
        """
        if (loop := asyncio.get_running_loop()) is not self._loop:
            self._loop, self._now = loop, loop.time  # what was followed ended with the one before
            self._reset()
        push = self.schedule.follow(company_id, key, loop.time(), operation, minutes)
        push.wants_data |= wants_data
        push.followers = (*push.followers, follower)
        self._hurry(push)
        if self._task is None:
            self._start()
        return push

    def unfollow(self, key: str, follower: Follower) -> None:
        """Call *follower* no more about push *key*."""
        if (push := self._find(key)) is not None:
            push.followers = tuple(one for one in push.followers if one != follower)
            if not push.followers:
                push.trouble = None
                self._forget(push)

    def _find(self, key: str) -> OpenPush | None:
        return self.schedule.pushes.get(folded(key))

    def _forget(self, push: OpenPush, *, ends: bool = False) -> None:
        self.schedule.forget(push, ends=ends)
        self._wake.set()

    def trouble(self, key: str) -> IntegrationError | None:
        """Return the error of the last poll of push *key*; None if it succeeded."""
        return push.trouble if (push := self._find(key)) else None

    def remember(self, operation: PushOperation) -> None:
        """Keep a final state for later calls of `wait`; the first one for a push counts."""
        self._finished.setdefault(folded(operation.key), operation)
        if len(self._finished) > self.limits.remembered:
            self._finished.popitem(last=False)

    def look_before(self, key: str, wait: float) -> None:
        """Look at push *key* once more shortly before a wait of so many seconds ends."""
        if (push := self._find(key)) is not None:
            self.schedule.look_before_end(push, wait, self._now())
            self._hurry(push)

    def notify(self, key: str) -> None:
        """Poll push *key* now, if it is followed here."""
        if (push := self._find(key)) is not None:
            push.notified = True
            self.schedule.look_by(push.company, self._now())
            self._hurry(push)
        elif folded(key) not in self._finished:
            for stranger in tuple(self.strangers):
                stranger(key)

    async def aclose(self) -> None:
        """Stop; all followers get `ClientClosed`."""
        self._closed = True
        if self._task is not None and self._loop is asyncio.get_running_loop():
            self._task.cancel()
            await asyncio.gather(self._task, return_exceptions=True)

    # The loop

    def _start(self) -> None:
        # The task outlives the call that starts it, so it does not inherit its context.
        own = Context()
        self._task = asyncio.create_task(self._run(), name="integration_sdk poller", context=own)
        self._task.add_done_callback(self._stopped, context=own)

    async def _run(self) -> None:
        schedule = self.schedule
        async with asyncio.TaskGroup() as passes:
            while schedule.pushes or self._running:
                self._wake.clear()
                self._until = inf
                while self._running < self.limits.at_once:
                    company = schedule.pop_due(self._now())
                    if isinstance(company, float):
                        self._until = company
                        break
                    if company.pushes and not company.busy:
                        company.busy = True
                        self._running += 1
                        passes.create_task(self._pass(company))
                try:
                    async with asyncio.timeout_at(min(self._until, self._now() + 3600.0)):
                        await self._wake.wait()
                except TimeoutError:
                    continue

    def _hurry(self, push: OpenPush) -> None:
        if push.company.due < self._until:
            self._wake.set()

    def _stopped(self, task: asyncio.Task[None]) -> None:
        if task is not self._task:
            return
        self._task = None
        crash = asyncio.CancelledError() if task.cancelled() else task.exception()
        if crash is None and not self._closed:
            if self.schedule.pushes:  # followed while the last poll ended
                self._start()
            return
        error = ClientClosed(CLOSED) if self._closed or crash is None else _broken(crash)
        if self.schedule.pushes and not self._closed:
            logger.error("%s", error, exc_info=error.__cause__)
        for push in self._reset():
            _call(push.key, push.followers, error)

    # One look at a company

    async def _pass(self, company: PolledCompany) -> None:
        try:
            await self._look(company)
        except Exception as crash:  # the next poll goes on, unless that is in vain
            logger.exception("polling company %s failed by a bug", company.id)
            self.schedule.pause(company, self._now(), self._now())
            if company.failures >= self.limits.crashes:
                self._lose(company.pushes.values(), _broken(crash))
        finally:
            company.busy = False
            self._running -= 1
            self.schedule.plan(company, self._now())
            self._wake.set()

    async def _look(self, company: PolledCompany) -> None:
        """List a company if its pushes are due together; read singly what is due by itself."""
        now = self._now()
        if now < self.schedule.earliest(company, now):
            return
        listed, due = self.schedule.due(company, now)
        if listed:
            await self._list(company, listed)
        reads = list[Awaitable[None]]()
        for push in due:
            if not self.schedule.is_open(push) or (push.seen >= now and not push.notified):
                continue  # the list has settled it
            if (listed or reads) and now < self.schedule.earliest(company, now):
                break
            self.schedule.spend(company, self._now())
            reads.append(self._read(push))
        await asyncio.gather(*reads)

    # Requests

    async def _read(self, push: OpenPush) -> None:
        began, was_notified = self._now(), push.notified
        push.notified, push.polled = False, began
        where = self._send, self._dialect, push.company.id
        try:
            operation = await get_push(*where, push.key, Priority.POLL, numbers=self.numbers)
        except IntegrationError as error:
            push.notified |= was_notified
            self._read_failed(push, error, began)
        else:
            push.company.failures = 0
            self._tell(push, operation, began)
        finally:
            push.polled = self._now()  # it may have waited for its turn until now
            push.hurried = push.polled if was_notified else push.hurried

    async def _list(self, company: PolledCompany, pushes: Sequence[OpenPush]) -> None:
        """Read the list down to the oldest of *pushes*; what it lacks is read singly."""
        began, oldest = self._now(), min(one.number for one in pushes)
        # The pushes of other workers are listed, too.
        followed = (company.followed - oldest) * self.schedule.workers
        where = self._send, self._dialect, company.id
        size = min(LARGEST_PAGE, max(20, int(1.1 * followed) + 10))

        def missing() -> list[OpenPush]:
            among = (one for one in company.pushes.values() if one.number >= oldest)
            return [one for one in among if one.seen < began and not one.unlisted]

        try:
            for number in range(1, self.limits.pages + 1):
                self.schedule.spend(company, self._now())
                page = read_page(
                    (await list_page(*where, number, size, priority=Priority.POLL)).body
                )
                self._take(company, page, began)
                if not (page.more and page.rows and missing()):
                    break
        except IntegrationError as error:
            self._list_failed(company, pushes, error, began)
            return
        finally:
            company.listed = self._now()
        company.failures = 0
        for one in missing():
            one.unlisted, one.due = True, began

    def _take(self, company: PolledCompany, page: PushPage, began: float) -> None:
        news: list[tuple[OpenPush, int]] = []
        for index, listed in enumerate(page.rows):
            push = company.pushes.get(folded(listed.key))
            if push is None:
                continue
            if listed.status == PushStatus.PENDING.value:
                push.unlisted, push.trouble = False, None
                self.schedule.still_pending(push, began)
            else:
                news.append((push, index))
        operations = page.operations([index for _, index in news], numbers=self.numbers)
        for (push, _), operation in zip(news, operations, strict=True):
            if operation is None or says_too_little(push, operation):
                push.unlisted, push.due = True, began
            else:
                self._tell(push, operation, began)

    # What follows

    def _tell(self, push: OpenPush, operation: PushOperation, began: float) -> None:
        if not self.schedule.is_open(push):
            return
        push.exists, push.trouble = True, None
        if not operation.is_final:
            self.schedule.still_pending(push, began)
        else:
            self._forget(push, ends=True)
            self.schedule.ended(push, began)
            self.remember(operation)
        _call(push.key, push.followers, operation)

    def _list_failed(
        self, company: PolledCompany, pushes: Sequence[OpenPush], error: IntegrationError, at: float
    ) -> None:
        again = pushes[0].trouble is not None
        if self._ends_all(pushes, error):
            return
        if _is_refused(error) or (again and isinstance(error, UNREADABLE)):
            company.unlisted_until = self._now() + self.limits.no_list
        else:
            self._pause(company, error, at)

    def _read_failed(self, push: OpenPush, error: IntegrationError, at: float) -> None:
        again = isinstance(push.trouble, NotFound)
        if self._ends_all([push], error) or not self.schedule.is_open(push):
            return
        is_new = self._now() - push.born < self.limits.newborn
        if isinstance(error, NotFound) and push.exists and (is_new or not again):
            self.schedule.still_pending(push, at)  # reads may lag: one alone proves nothing
        elif _is_refused(error) or isinstance(error, ConfigurationError):
            self._lose([push], error)
        else:
            self._pause(push.company, error, at)

    def _ends_all(self, pushes: Sequence[OpenPush], error: IntegrationError) -> bool:
        """Note the error of a poll; return whether no push is followed any more."""
        scope = row(error.status).scope if isinstance(error, ApiError) else None
        if scope in {Scope.KEY, Scope.ACCOUNT} or isinstance(error, ClientClosed):
            self._lose(self.schedule.pushes.values(), error)
            return True
        is_news = isinstance(error, UNREADABLE) and pushes[0].trouble is None
        level, company = logging.WARNING if is_news else logging.DEBUG, pushes[0].company
        logger.log(level, "polling company %s failed and will be retried: %s", company.id, error)
        for one in filter(self.schedule.is_open, pushes):  # for the others nobody waits any more
            one.trouble = error
        return False

    def _pause(self, company: PolledCompany, error: IntegrationError, at: float) -> None:
        self.schedule.pause(company, at, self._now(), seconds_until(error, time.time()) or 0.0)

    def _lose(self, pushes: Iterable[OpenPush], error: IntegrationError) -> None:
        """Stop following *pushes*, and give each follower a copy of *error*."""
        for push in filter(self.schedule.is_open, list(pushes)):
            followers, push.followers, push.trouble = push.followers, (), None
            self._forget(push)
            _call(push.key, followers, error)


def _call(key: str, followers: Sequence[Follower], what: Seen) -> None:
    for follower in followers:
        follower(key, fresh_copy(what) if isinstance(what, IntegrationError) else what)


def _broken(crash: BaseException) -> PushError:
    cause = crash.exceptions[0] if isinstance(crash, BaseExceptionGroup) else crash
    error = PushError(f"the polling loop failed ({cause!r}); the push continues, wait for it again")
    error.__cause__ = cause
    return error


def _is_refused(error: IntegrationError) -> bool:
    return isinstance(error, ApiError) and row(error.status).read is Meaning.REFUSED
