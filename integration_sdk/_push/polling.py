"""Whom to poll when, and the one loop that polls for all of a client.

**The rule.** The chance that a push of age *a* ends in the next *d* seconds is taken as h * d / a:
to take 1-2 s is as likely as 1-2 hours. So the delays that *n* pushes of a company add up in *d*
seconds are n * h * d**2 / 2a, and they are worth a request once that is 1 + a / 2. A push alone is
looked at before it goes unnoticed for too long. How long pushes of a lane usually take (a median)
only moves the first look. From three pushes of a company on, its list is read; what the list lacks,
and what is old, is read singly. The floors and budgets of `PollLimits` bound all of this.

**The loop.** One task looks at the companies that are due and calls the followers of each push:
with its state, or with the error because of which it is no longer followed. `Polls.wait` is such a
follower, each coordinator another. If the loop breaks, all followers get `PollingStopped`.
"""

from __future__ import annotations

import asyncio
import logging
import random
import time
from collections import OrderedDict, deque
from collections.abc import Callable, Sequence
from contextvars import Context
from heapq import heappop, heappush
from math import inf, sqrt
from statistics import median
from typing import Final

from attrs import Factory, define, evolve, frozen

from integration_sdk._http import requests, responses
from integration_sdk._http.requests import Priority, Request
from integration_sdk._http.responses import Fetch, Response
from integration_sdk._http.retry import pause
from integration_sdk._http.statuses import Meaning, Scope, row
from integration_sdk._options_given import LARGEST_PAGE
from integration_sdk._pacing import CellRate
from integration_sdk._push import answers, outcomes
from integration_sdk._push.wire import page_request
from integration_sdk._store.row import folded
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
    fresh_copy,
)
from integration_sdk.models import PushOperation, PushStatus

logger = logging.getLogger("integration_sdk.pushes")

Seen = PushOperation | IntegrationError
Follower = Callable[[str, Seen], None]
"""Called with the key of a push, and its state or the error that ends its being followed."""
Lane = tuple[str | None, str | None]
HAZARD: Final = 0.31
"""Assumed: rate at which pushes end while their age grows e-fold."""
FIRST_SHARE: Final = 0.7
"""Share of the usual duration after which a push is first looked at."""
SLOWER_NOTIFIED: Final = 4.0
"""How many times longer the pauses are where ends are notified."""


@frozen(kw_only=True)
class PollLimits:
    """Every floor and budget of polling, in seconds where nothing else is said.

    floor, floor_share: Between two single polls of a push: so long, or this share of its age.
    floor_notified: The same between two that notifications bring forward.
    per_company: Requests a second, and at once, for the pushes of a company.
    share_of_rate: What polls may take of the requests that the service allows.
    at_once: Companies that are polled at the same time.
    list_from, pages: Pushes from which on a list is read instead, and how many pages of it.
    old, old_share: Age from which on a push is read singly, when it has grown by this share.
    no_list: After which a refused list is tried again.
    newborn: For which a push that was acknowledged may be answered with 404.
    after_deadline, before_end: When a push is looked at once more: after its own deadline, and
        before the end of a wait.
    longest_pause: After polls that failed, if the service names none.
    crashes: Polls of a company in a row that may fail by a bug; then its pushes are given up.
    remembered: Final operations that are kept for later waits.
    durations: Durations of a lane of which the median is taken.
    """

    floor: float = 0.2
    floor_share: float = 0.05
    floor_notified: float = 1.0
    per_company: float = 3.0
    share_of_rate: float = 0.5
    at_once: int = 16
    list_from: int = 3
    pages: int = 3
    old: float = 600.0
    old_share: float = 0.2
    no_list: float = 600.0
    newborn: float = 60.0
    after_deadline: float = 1.0
    before_end: float = 2.0
    longest_pause: float = 64.0
    crashes: int = 3
    remembered: int = 4096
    durations: int = 32


def interval(age: float, count: int) -> float:
    """Return the seconds until the next look at *count* pushes of this age."""
    alone = 2 * max(min(0.37 + 0.1 * age, 1.0), 0.0425 * age)
    together = sqrt(2 * max(age, 0.05) * (1 + age / 2) / (HAZARD * count))
    return min(alone, together)


@define(eq=False, weakref_slot=False)
class OpenPush:
    """One open push.

    name: The key as keys are compared.
    number: How many pushes of the company were followed before it.
    born, seen: When it was first followed, and last known to be Pending.
    due: When to read it singly by the rule. looks: When it has to be looked at anyhow.
    polled, hurried: When it was last read singly, and last because of a notification.
    notified: Whether a notification came that no poll has disproved.
    unlisted: Whether lists lack it, or what is wanted of it.
    exists: Whether the service has answered with it.
    """

    key: str
    name: str
    company: PolledCompany
    number: int
    lane: Lane
    born: float
    seen: float
    due: float
    looks: list[float] = Factory(list)
    polled: float = -inf
    hurried: float = -inf
    notified: bool = False
    unlisted: bool = False
    exists: bool = False
    wants_data: bool = False
    trouble: IntegrationError | None = None
    followers: tuple[Follower, ...] = ()

    @property
    def why_unseen(self) -> IntegrationError | None:
        """The error of the last poll of it or of its company's list; None if that saw it."""
        return self.trouble or self.company.trouble

    def next_at(self, limits: PollLimits) -> float:
        """Return when to read it singly; no rule gets around the floors."""
        if self.notified:
            return max(self.polled + limits.floor, self.hurried + limits.floor_notified)
        floor = max(limits.floor, limits.floor_share * (self.polled - self.born))
        at = max(self.due, self.polled + floor)
        # Shortly before a look that has to be, no other is made.
        if self.looks and self.looks[0] < at + floor + limits.floor:
            return max(self.looks[0], self.polled + limits.floor)
        return at


@define(eq=False)
class PolledCompany:
    """One company, and its open pushes by key, oldest first.

    due, listed: When to look at it, and when its list was last read.
    paused_until, unlisted_until: When it may be polled again, and its list be used again.
    """

    id: str
    pushes: dict[str, OpenPush] = Factory(dict)
    followed: int = 0
    due: float = inf
    listed: float = -inf
    busy: bool = False
    paused_until: float = -inf
    unlisted_until: float = -inf
    failures: int = 0
    crashes: int = 0
    spent: CellRate = Factory(lambda: CellRate(-inf))
    trouble: IntegrationError | None = None


class Polls:
    """Follows pushes until they are final.

    Args:
        send: Sends a request, once.
        dialect: The version of the service.
        limits: Floors and budgets.
        chance: Returns a number from 0 to 1, for jitter.
        notified: Whether ends are notified, so that polls can wait for that.
        exact: Whether fractions are read as Decimal.
        rate: Returns the requests per second that the service allows, if known.

    Attributes:
        strangers: Called with the key of each notification for which no push is followed.
        workers: Processes that poll for the same account; they share its budget.
    """

    def __init__(
        self,
        send: Fetch,
        dialect: Dialect,
        *,
        limits: PollLimits = PollLimits(),
        chance: Callable[[], float] = random.random,
        notified: bool = False,
        exact: bool = False,
        rate: Callable[[], float | None] = lambda: None,
    ) -> None:
        self.exact, self.limits = exact, limits
        self.strangers: set[Callable[[str], None]] = set()
        self.workers = 1
        self._send, self._dialect, self._chance, self._rate = send, dialect, chance, rate
        self._slower = SLOWER_NOTIFIED if notified else 1.0
        self._durations: OrderedDict[Lane, deque[float]] = OrderedDict()
        self._finished: OrderedDict[str, PushOperation] = OrderedDict()
        self._terse: set[PushStatus] = set()  # final states that come without details
        self._closed = False
        self._loop: asyncio.AbstractEventLoop | None = None
        self._now: Callable[[], float] = time.monotonic  # until there is a loop
        self._reset()

    def _reset(self) -> None:
        self._pushes: dict[str, OpenPush] = {}
        self._left: OrderedDict[str, OpenPush] = OrderedDict()
        self._companies: dict[str, PolledCompany] = {}
        self._timers: list[tuple[float, int, PolledCompany]] = []
        self._timers_set = self._running = 0
        self._task: asyncio.Task[None] | None = None
        self._wake = asyncio.Event()
        self._spent = CellRate(-inf)

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
        """Wait for push *key* to end and return its last state; *last*: the last one known.

        Raises:
            NotFound: The service does not know this push.
            WaitExpired: *timeout* passed. The push itself goes on.
            PollingStopped: The loop broke; waiting again starts a new one.
            ClientClosed: The client was closed in the meantime.
        """
        if (ended := self._finished.get(folded(key))) is not None:
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
            why, waited = push.why_unseen, timeout or 0.0
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
        now, name = loop.time(), folded(key)
        push = self._pushes.get(name)
        if push is None:
            company = self._companies.get(company_id)
            if company is None:
                company = self._companies[company_id] = PolledCompany(company_id)
            lane: Lane = (None, None)
            first = 0.0
            if operation is not None:
                lane = (operation.data_connection_id, operation.data_type)
                usual = FIRST_SHARE * self._median(lane)
                first = max(self.limits.floor, usual) * self._slower
                minutes = minutes or operation.timeout_in_minutes
            before = self._left.pop(name, None)
            if before is not None and before.company is company:
                push = before  # waited for anew: on it goes by its own schedule
            else:
                push = OpenPush(key, name, company, company.followed, lane, now, now, now + first)
                if minutes is not None:
                    push.looks.append(now + minutes * 60.0 + self.limits.after_deadline)
                company.followed += 1
            self._pushes[name] = company.pushes[name] = push
        push.exists |= operation is not None
        push.wants_data |= wants_data
        push.followers = (*push.followers, follower)
        self._look_by(push.company, push.due)
        if self._task is None:
            self._start()
        return push

    def _median(self, lane: Lane) -> float:
        durations = self._durations.get(lane)
        return median(durations) if durations and len(durations) > 7 else 0.0

    def unfollow(self, key: str, follower: Follower) -> None:
        """Call *follower* no more about push *key*."""
        push = self._pushes.get(folded(key))
        if push is not None:
            push.followers = tuple(one for one in push.followers if one != follower)
            if not push.followers:
                self._forget(push)
                self._leave(push)

    def _leave(self, push: OpenPush) -> None:
        """Keep its schedule for who waits for it anew."""
        push.followers, push.trouble = (), None
        self._left[push.name] = push
        if len(self._left) > 1000:
            self._left.popitem(last=False)

    def _forget(self, push: OpenPush) -> None:
        company = push.company
        del self._pushes[push.name], company.pushes[push.name]
        if not company.pushes:  # the next to be followed may be tried at once
            company.failures, company.paused_until, company.trouble = 0, -inf, None
        if not self._pushes:
            self._wake.set()

    def trouble(self, key: str) -> IntegrationError | None:
        """Return the error of the last poll of push *key*; None if it succeeded."""
        push = self._pushes.get(folded(key))
        return push.why_unseen if push else None

    def remember(self, operation: PushOperation) -> None:
        """Keep a final state for later calls of `wait`; the first one for a push counts."""
        self._finished.setdefault(folded(operation.key), operation)
        if len(self._finished) > self.limits.remembered:
            self._finished.popitem(last=False)

    def look_before(self, key: str, wait: float) -> None:
        """Look at push *key* once more shortly before a wait of so many seconds ends."""
        push = self._pushes.get(folded(key))
        # Short waits, one after the other, would get around the floors.
        if push is not None and wait >= max(
            1.0, self.limits.floor_share * (self._now() - push.born)
        ):
            at = self._now() + wait - min(self.limits.before_end, wait / 4)
            push.looks = sorted((*push.looks, at))
            self._look_by(push.company, at)

    def notify(self, key: str) -> None:
        """Poll push *key* now, if it is followed here."""
        push = self._pushes.get(folded(key))
        if push is not None:
            push.notified = True
            self._look_by(push.company, self._now())
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
        async with asyncio.TaskGroup() as passes:
            while self._pushes or self._running:
                self._wake.clear()
                while self._running < self.limits.at_once and self._next_timer() <= self._now():
                    company = heappop(self._timers)[2]
                    company.due = inf
                    if company.pushes and not company.busy:
                        company.busy = True
                        self._running += 1
                        passes.create_task(self._pass(company))
                try:
                    async with asyncio.timeout_at(self._next_timer()):
                        await self._wake.wait()
                except TimeoutError:
                    continue

    def _next_timer(self) -> float:
        timers = self._timers
        while timers and timers[0][2].due != timers[0][0]:
            heappop(timers)  # the company has another time by now
        if self._running >= self.limits.at_once or not timers:
            return self._now() + 3600.0
        now = self._now()
        return max(timers[0][0], now + self._wait_for_rate(now))

    def _look_by(self, company: PolledCompany, at: float) -> None:
        if at < company.due:
            company.due = at
            self._timers_set += 1
            heappush(self._timers, (at, self._timers_set, company))
            if self._timers[0][0] == at:
                self._wake.set()

    def _stopped(self, task: asyncio.Task[None]) -> None:
        if task is not self._task:
            return
        self._task = None
        crash = asyncio.CancelledError() if task.cancelled() else task.exception()
        if self._closed:
            self._give_up(
                ClientClosed(
                    "the client was closed while this push was Pending; it continues at the service"
                )
            )
        elif crash is not None and self._pushes:
            self._give_up(_broken(crash))
        elif self._pushes:  # followed while the last poll ended
            self._start()

    def _give_up(self, error: IntegrationError) -> None:
        if isinstance(error, PollingStopped):
            logger.error("%s", error, exc_info=error.__cause__)
        given_up = list(self._pushes.values())
        self._reset()
        for push in given_up:
            _call(push, error)

    # One look at a company

    async def _pass(self, company: PolledCompany) -> None:
        try:
            await self._look(company)
            company.crashes = 0
        except Exception as crash:  # the next poll goes on, unless that is in vain
            company.crashes += 1
            logger.exception("polling company %s failed by a bug", company.id)
            self._pause(company, self._now())
            if company.crashes >= self.limits.crashes:
                for push in list(company.pushes.values()):
                    self._lose(push, _broken(crash))
        finally:
            company.busy = False
            self._running -= 1
            self._plan(company)
            self._wake.set()

    async def _look(self, company: PolledCompany) -> None:
        """List a company if its pushes are due together; read singly what is due by itself."""
        now = self._now()
        if now < self._earliest(company, now):
            return
        together, singly = self._split(company)
        due = [one for one in singly if one.next_at(self.limits) <= now]
        listed = [one for one in due if not one.unlisted]
        if together and now >= self._list_at(company, together):
            await self._list(company, together + listed)
        elif len(listed) >= self.limits.list_from and now >= company.unlisted_until:
            await self._list(company, listed)
        due = [one for one in due if self._is_open(one) and (one.seen < now or one.notified)]
        due.sort(key=lambda one: (not one.notified, one.due))
        reads = []
        for push in due:
            if now < self._earliest(company, now):
                break
            self._spend(company)
            reads.append(self._read(push))
        await asyncio.gather(*reads)

    def _split(self, company: PolledCompany) -> tuple[list[OpenPush], list[OpenPush]]:
        """Return the pushes that are looked at together, by a list, and the others."""
        young, now = self._now() - self.limits.old, self._now()
        together, singly = list[OpenPush](), list[OpenPush]()
        for one in company.pushes.values():
            by_list = not (one.unlisted or one.notified) and one.born > young
            has_to = one.looks and one.looks[0] <= now
            (together if by_list and not has_to else singly).append(one)
        if len(together) < self.limits.list_from or now < company.unlisted_until:
            return [], singly + together
        return together, singly

    def _list_at(self, company: PolledCompany, together: Sequence[OpenPush]) -> float:
        oldest, some = together[0], together[-(len(together) // 4) - 1]
        since = max(company.listed, some.born)
        wait = interval(since - some.born, min(len(together), 1000)) * self._slower * self.workers
        left = FIRST_SHARE * self._median(oldest.lane) - (since - oldest.born)
        return since + max(wait, left, 1.0 / self.limits.per_company)

    def _plan(self, company: PolledCompany) -> None:
        """Set when to look at a company next."""
        together, singly = self._split(company)
        times = [one.next_at(self.limits) for one in singly]
        if together:
            times += [one.looks[0] for one in together if one.looks]
            times.append(self._list_at(company, together))
        if times:
            now = self._now()
            self._look_by(company, max(min(times), now + 0.02, self._earliest(company, now)))

    def _is_open(self, push: OpenPush) -> bool:
        return self._pushes.get(push.name) is push

    # Budgets

    def _earliest(self, company: PolledCompany, now: float) -> float:
        per_company = self.limits.per_company / self.workers
        wait = company.spent.wait(now, interval=1 / per_company, burst=per_company)
        return max(company.paused_until, now + max(wait, self._wait_for_rate(now)))

    def _wait_for_rate(self, now: float) -> float:
        if not (rate := self._rate()):
            return 0.0
        return self._spent.wait(now, interval=1 / (rate * self.limits.share_of_rate))

    def _spend(self, company: PolledCompany) -> None:
        now, per_company = self._now(), self.limits.per_company / self.workers
        company.spent.reserve(1, now, interval=1 / per_company, burst=per_company)
        if rate := self._rate():
            self._spent.reserve(1, now, interval=1 / (rate * self.limits.share_of_rate))

    # Requests

    async def _ask(self, request: Request) -> Response:
        return responses.check(request, await self._send(evolve(request, priority=Priority.POLL)))

    async def _read(self, push: OpenPush) -> None:
        began, was_notified = self._now(), push.notified
        push.notified, push.polled = False, began
        names = {"companyId": push.company.id, "pushOperationKey": push.key}
        try:
            request = requests.to_route(self._dialect, "pushes.get", **names)
            operation = self._read_own(await self._ask(request), push.key)
        except IntegrationError as error:
            push.notified |= was_notified
            self._failed(push.company, push, error, began)
        else:
            push.company.failures = 0
            if operation.is_final and _lacks_details(operation):
                self._terse.add(operation.status)
            self._tell(push, operation, began)
        finally:
            push.polled = self._now()  # it may have waited for its turn until now
            push.hurried = push.polled if was_notified else push.hurried

    def _read_own(self, answer: Response, key: str) -> PushOperation:
        operation = answers.read_any(answer.body, exact=self.exact)
        if operation.is_final and (operation.error_message or "").startswith(answers.UNREADABLE):
            logger.warning("push %s is %s. %s", key, operation.status, operation.error_message)
        if folded(operation.key) != folded(key):
            raise MalformedResponse(
                f"asked for push {key}, but got {operation.key}, as from a cache"
            )
        return operation

    async def _list(self, company: PolledCompany, pushes: Sequence[OpenPush]) -> None:
        """Read the list down to the oldest of *pushes*; what it lacks is read singly."""
        began, oldest = self._now(), min(one.number for one in pushes)
        followed = (company.followed - oldest) * self.workers  # the others' pushes are listed too
        size = min(LARGEST_PAGE, max(20, int(1.1 * followed) + 10))
        missing = {
            name: one
            for name, one in company.pushes.items()
            if one.number >= oldest and not one.unlisted
        }
        try:
            for number in range(1, self.limits.pages + 1):
                self._spend(company)
                request = page_request(self._dialect, company.id, number, size)
                page = answers.read_page((await self._ask(request)).body)
                self._take(company, page, missing, began)
                if not (missing and page.more and page.rows):
                    break
        except IntegrationError as error:
            self._failed(company, None, error, began)
            return
        finally:
            company.listed = self._now()
        company.trouble, company.failures = None, 0
        for one in missing.values():
            one.unlisted, one.due = True, began

    def _take(
        self,
        company: PolledCompany,
        page: answers.PushPage,
        missing: dict[str, OpenPush],
        began: float,
    ) -> None:
        news: list[tuple[OpenPush, int]] = []
        for index, listed in enumerate(page.rows):
            push = company.pushes.get(folded(listed.key))
            if push is None:
                continue
            missing.pop(folded(listed.key), None)
            if listed.status == PushStatus.PENDING.value:
                push.unlisted, push.trouble = False, None
                self._still_pending(push, began)
            else:
                news.append((push, index))
        operations = page.operations([index for _, index in news], exact=self.exact) if news else []
        for (push, _), operation in zip(news, operations, strict=True):
            if operation is None or self._says_too_little(push, operation):
                push.unlisted, push.due = True, began
            else:
                self._tell(push, operation, began)

    def _says_too_little(self, push: OpenPush, operation: PushOperation) -> bool:
        """Whether reading the push singly may return details that are wanted."""
        wanted = push.wants_data or operation.status is not PushStatus.SUCCESS
        return wanted and _lacks_details(operation) and operation.status not in self._terse

    # What follows

    def _still_pending(self, push: OpenPush, began: float) -> None:
        push.seen = max(push.seen, began)
        push.looks = [at for at in push.looks if at > began] if push.looks else push.looks
        age, limits = push.seen - push.born, self.limits
        wait = limits.old_share * age if age >= limits.old else interval(age, 1)
        wait = max(wait, FIRST_SHARE * self._median(push.lane) - age) * (0.9 + 0.2 * self._chance())
        push.due = push.seen + wait * self._slower * self.workers

    def _tell(self, push: OpenPush, operation: PushOperation, began: float) -> None:
        if not self._is_open(push):
            return
        push.exists, push.trouble = True, None
        if not operation.is_final:
            self._still_pending(push, began)
        else:
            self._forget(push)
            durations = self._durations.setdefault(push.lane, deque(maxlen=self.limits.durations))
            durations.append(max(0.0, (push.seen + began) / 2 - push.born))
            if len(self._durations) > 1000:
                self._durations.popitem(last=False)
            self.remember(operation)
        _call(push, operation)

    def _failed(
        self, company: PolledCompany, push: OpenPush | None, error: IntegrationError, began: float
    ) -> None:
        """Deal with a poll that failed, of a push or of the list (None)."""
        status = row(error.status) if isinstance(error, ApiError) else None
        of_all = status is not None and status.scope in {Scope.KEY, Scope.ACCOUNT}
        if of_all or isinstance(error, ClientClosed):
            for one in list(self._pushes.values()):
                self._lose(one, error)
            return
        target = push or company
        before, target.trouble = target.trouble, error
        if push is not None and not self._is_open(push):
            push.trouble = None  # nobody waits any more
        unreadable = isinstance(error, MalformedResponse | ResponseTooLarge)
        level = logging.WARNING if unreadable and before is None else logging.DEBUG
        logger.log(level, "polling company %s failed and will be retried: %s", company.id, error)
        refused = status is not None and status.read is Meaning.REFUSED
        if push is None and (refused or (unreadable and before)):
            company.unlisted_until = self._now() + self.limits.no_list
        elif push is None or not (refused or isinstance(error, ConfigurationError)):
            self._pause(company, began, answers.seconds_until(error, time.time()) or 0.0)
        elif isinstance(error, NotFound) and self._may_lag(push, before):
            self._still_pending(push, began)
        else:
            self._lose(push, error)

    def _may_lag(self, push: OpenPush, before: IntegrationError | None) -> bool:
        """Whether a 404 may come from reads that lag behind: one alone proves nothing."""
        is_new = self._now() - push.born < self.limits.newborn
        return push.exists and (is_new or not isinstance(before, NotFound))

    def _pause(self, company: PolledCompany, began: float, wait: float = 0.0) -> None:
        if began >= company.paused_until:  # else it is one of several that failed at once
            company.failures += 1
        jitter = lambda limit: limit * (0.5 + 0.5 * self._chance())  # noqa: E731
        number, cap = max(0, company.failures - 1), self.limits.longest_pause
        seconds = pause(number, first=1.0, cap=cap, jitter=jitter, floor=wait)
        company.paused_until = self._now() + seconds

    def _lose(self, push: OpenPush, error: IntegrationError) -> None:
        """Stop following *push*, and give each follower a copy of *error*."""
        if self._is_open(push):
            self._forget(push)
            _call(push, error)
            if not self._is_open(push):
                self._leave(push)


def _call(push: OpenPush, what: Seen) -> None:
    for follower in push.followers:
        follower(push.key, fresh_copy(what) if isinstance(what, IntegrationError) else what)


def _broken(crash: BaseException) -> PollingStopped:
    cause = crash.exceptions[0] if isinstance(crash, BaseExceptionGroup) else crash
    error = PollingStopped(
        f"the polling loop failed ({cause!r}); the push continues, wait for it again"
    )
    error.__cause__ = cause
    return error


def _lacks_details(operation: PushOperation) -> bool:
    """Whether an operation lacks the data of a Success, or the reasons of a Failed push."""
    lacks = operation.error_message is None
    if operation.status is PushStatus.SUCCESS:  # with a message: its data cannot be read
        return lacks and operation.data is None
    return lacks and operation.status is PushStatus.FAILED and operation.validation is None
