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
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from contextvars import Context

from integration_sdk._http.requests import Priority
from integration_sdk._http.responses import Fetch
from integration_sdk._http.statuses import Meaning, Scope, row
from integration_sdk._options_given import LARGEST_PAGE, Numbers
from integration_sdk._push import outcomes
from integration_sdk._push.schedule import (
    Follower,
    Look,
    OpenPush,
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
EVERYBODY = {Scope.KEY, Scope.ACCOUNT}


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
        chance: Callable[[], float] = random.random,
        notified: bool = False,
        numbers: Numbers = "float",
        rate: Callable[[], float | None] = lambda: None,
    ) -> None:
        self.numbers = numbers
        self.strangers: set[Callable[[str], None]] = set()
        self.schedule = Schedule(chance, rate, notified)
        self._send, self._dialect = send, dialect
        self._loop: asyncio.AbstractEventLoop | None = None
        self._begin_anew()

    def _begin_anew(self) -> None:
        self._task: asyncio.Task[None] | None = None
        self._wake, self._running = asyncio.Event(), 0
        self.schedule.reset(self._wake.set)

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
        if operation.is_final:
            return operation
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
        future: asyncio.Future[PushOperation] = asyncio.get_running_loop().create_future()

        def told(_: str, what: Seen) -> None:
            if not future.done() and isinstance(what, IntegrationError):
                future.set_exception(what)
            elif not future.done() and isinstance(what, PushOperation) and what.is_final:
                future.set_result(what)

        push = self.follow(company_id, key, told, operation=last, wants_data=True)
        if timeout is not None:
            self.look_before(key, timeout)
        try:
            async with asyncio.timeout(timeout):
                return push.end or await future
        except TimeoutError:
            name, waited, why = f"push {key}", timeout or 0.0, push.trouble
            error = outcomes.wait_expired(name, waited, operation=push.operation, trouble=why)
            raise error from why
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
        loop = asyncio.get_running_loop()
        if loop is not self._loop:  # what was followed ended with the one before
            self._loop = loop
            self._begin_anew()
        known = self.schedule.left.get(folded(key))
        if known is not None and known.end is not None:
            known.wants_data |= wants_data
            if not says_too_little(known, known.end):
                loop.call_soon(follower, key, known.end)
                return known
            known.operation = None  # as nobody had asked for its data
        push = self.schedule.follow(company_id, key, loop.time(), operation, minutes)
        push.wants_data |= wants_data
        push.followers = (*push.followers, follower)
        if self._task is None or self._task.done():
            # The loop outlives this call, so it does not inherit its context.
            name, own = "integration_sdk poller", Context()
            self._task = asyncio.create_task(self._run(), name=name, context=own)
        return push

    def unfollow(self, key: str, follower: Follower) -> None:
        """Call *follower* no more about push *key*."""
        if (push := self._find(key)) is not None:
            push.followers = tuple(one for one in push.followers if one != follower)
            if not push.followers:
                self._forget(push)

    def _find(self, key: str) -> OpenPush | None:
        return self.schedule.pushes.get(folded(key))

    def _forget(self, push: OpenPush) -> None:
        self.schedule.forget(push)
        self._wake.set()

    def trouble(self, key: str) -> IntegrationError | None:
        """Return the error of the last poll of push *key*; None if it succeeded."""
        return push.trouble if (push := self._find(key)) else None

    def look_before(self, key: str, wait: float) -> None:
        """Look at push *key* once more shortly before a wait of so many seconds ends."""
        if (push := self._find(key)) is not None:
            self.schedule.look_before_end(push, wait, _now())

    def notify(self, key: str) -> None:
        """Poll push *key* now, if it is followed here."""
        if (push := self._find(key)) is not None:
            self.schedule.look_now(push, _now())
        elif (left := self.schedule.left.get(folded(key))) is None or left.end is None:
            for stranger in tuple(self.strangers):
                stranger(key)

    async def aclose(self) -> None:
        """Stop; all followers get `ClientClosed`."""
        task = self._task
        if task is not None and self._loop is asyncio.get_running_loop():
            await asyncio.sleep(0)  # a task that has not begun could not tell them
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)

    # The loop

    async def _run(self) -> None:
        """Poll until nothing is followed; if that breaks, tell all followers."""
        schedule = self.schedule
        try:
            async with asyncio.TaskGroup() as looks:
                while schedule.pushes or self._running:
                    until = _now() + 3600.0
                    while self._running < schedule.limits.at_once:
                        look = schedule.take(_now())
                        if isinstance(look, float):
                            until = min(until, look)
                            break
                        self._running += 1
                        looks.create_task(self._look(look))
                    self._wake.clear()
                    with suppress(TimeoutError):
                        async with asyncio.timeout_at(until):
                            await self._wake.wait()
                self._task = None  # who follows a push from now on starts another
        except asyncio.CancelledError:
            self._give_up(ClientClosed(CLOSED))
            raise
        except Exception as crash:
            cause = crash.exceptions[0] if isinstance(crash, ExceptionGroup) else crash
            error = PushError(
                f"the polling loop failed ({cause!r}); the push continues, wait for it again"
            )
            error.__cause__ = cause
            logger.exception("%s", error)
            self._give_up(error)

    def _give_up(self, error: IntegrationError) -> None:
        self._lose(self.schedule.pushes.values(), error)
        self._begin_anew()

    async def _look(self, look: Look) -> None:
        company = look.company
        try:
            await (self._list(look) if look.by_list else self._read(look))
            company.failures = 0
        except IntegrationError as error:
            self._failed(look, error)
        except Exception:  # the next look goes on, unless that is in vain
            self.schedule.pause(company, _now())
            if company.failures >= self.schedule.limits.crashes:
                raise
            logger.exception("polling company %s failed by a bug", company.id)
        # Not if the loop ends: all begins anew then.
        self._running -= 1
        self.schedule.looked(company, _now())
        self._wake.set()

    # Requests

    async def _read(self, look: Look) -> None:
        push, where = look.pushes[0], (self._send, self._dialect, look.company.id)
        try:
            operation = await get_push(*where, push.key, Priority.POLL, numbers=self.numbers)
        finally:
            self.schedule.was_read(push, look.at, _now())
        self._tell(push, operation, look.at)

    async def _list(self, look: Look) -> None:
        """Read the list down to the oldest push; what it lacks is read singly."""
        company, missing = look.company, set(look.pushes)
        where = self._send, self._dialect, company.id
        # The pushes of other workers are listed, too.
        depth = (company.followed - min(one.number for one in missing)) * self.schedule.workers
        size = min(LARGEST_PAGE, max(20, int(1.1 * depth) + 10))
        try:
            for number in range(1, self.schedule.limits.pages + 1):
                if number > 1:
                    self.schedule.spend(company, _now())
                answer = await list_page(*where, number, size, priority=Priority.POLL)
                page = read_page(answer.body)
                missing -= self._take(look, page)
                if not (page.more and page.rows and missing):
                    break
        finally:
            company.listed = _now()
        for one in missing:
            self.schedule.not_listed(one, look.at)

    def _take(self, look: Look, page: PushPage) -> set[OpenPush]:
        """Note the states of the pushes that a page shows; return these."""
        pushes, news = look.company.pushes, dict[int, OpenPush]()
        shown = set[OpenPush]()
        for index, listed in enumerate(page.rows):
            if (push := pushes.get(folded(listed.key))) is None:
                continue
            shown.add(push)
            if listed.status == PushStatus.PENDING.value:
                push.unlisted, push.trouble = False, None
                self.schedule.still_pending(push, look.at)
            else:
                news[index] = push
        operations = page.operations([*news], numbers=self.numbers)
        for push, operation in zip(news.values(), operations, strict=True):
            if operation is None or says_too_little(push, operation):
                self.schedule.not_listed(push, look.at)
            else:
                self._tell(push, operation, look.at)
        return shown

    # What follows

    def _tell(self, push: OpenPush, operation: PushOperation, began: float) -> None:
        """Tell the followers of a push its state, if there are any left."""
        push.operation, push.trouble = operation, None
        if not operation.is_final:
            self.schedule.still_pending(push, began)
            _call(push.key, push.followers, operation)
        elif push.followers:
            self.schedule.ended(push, began)
            self._end(push, operation)

    def _end(self, push: OpenPush, what: Seen) -> None:
        followers = push.followers
        self._forget(push)
        _call(push.key, followers, what)

    def _failed(self, look: Look, error: IntegrationError) -> None:
        """Poll on, later or in another way, unless that is in vain."""
        push, company, limits = look.pushes[0], look.company, self.schedule.limits
        status = row(error.status) if isinstance(error, ApiError) else None
        if isinstance(error, ClientClosed) or (status and status.scope in EVERYBODY):
            self._lose(self.schedule.pushes.values(), error)
            return
        is_news = isinstance(error, UNREADABLE) and push.trouble is None
        level = logging.WARNING if is_news else logging.DEBUG
        logger.log(level, "polling company %s failed and will be retried: %s", company.id, error)
        again, is_new = isinstance(push.trouble, NotFound), look.at - push.born < limits.newborn
        for one in look.pushes:
            one.trouble = error if one.followers else None  # nobody waits for the others any more

        is_lasting = isinstance(error, ConfigurationError) or (
            status is not None and status.read is Meaning.REFUSED
        )
        if look.by_list and (is_lasting or isinstance(error, UNREADABLE)):
            company.unlisted_until = _now() + limits.no_list
        elif isinstance(error, NotFound) and push.operation and (is_new or not again):
            self.schedule.still_pending(push, look.at)  # reads may lag: one alone proves nothing
        elif is_lasting:
            self._lose(look.pushes, error)
        else:
            wait = seconds_until(error, time.time()) or 0.0
            self.schedule.pause(company, _now(), wait)

    def _lose(self, pushes: Iterable[OpenPush], error: IntegrationError) -> None:
        """Stop following *pushes*, and give each follower a copy of *error*."""
        for push in list(pushes):
            if push.followers:
                self._end(push, error)


def _now() -> float:
    return asyncio.get_running_loop().time()


def _call(key: str, followers: Sequence[Follower], what: Seen) -> None:
    for follower in followers:
        follower(key, fresh_copy(what) if isinstance(what, IntegrationError) else what)
