"""`Coordinator.run`: pull requests, send them, yield outcomes.

A few workers pull from the caller's iterable, one at a time; each sends what it has pulled. So it
never pulls more than it can send, and whatever stops it (an early exit, an exception in the input,
an expired account, the end of the block) stops it between two requests. Before pulling, a worker
waits for one of ``max_open`` places, which the outcome frees, for room among the outcomes that have
not been consumed yet, and until no more than `AHEAD` pushes wait for the service's answer.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import (
    AsyncGenerator,
    AsyncIterable,
    AsyncIterator,
    Callable,
    Collection,
    Iterable,
    Sized,
)
from typing import Final, Literal, Protocol

from integration_sdk._outcome import PushOutcome
from integration_sdk._push.dispatcher import Dispatcher
from integration_sdk._push.outcomes import checked
from integration_sdk._push.push import Push
from integration_sdk._push.sending import Sender
from integration_sdk.errors import fresh_copy
from integration_sdk.models import PushRequest

RaiseOn = Literal["none", "first", "end"]
Requests = Iterable[PushRequest] | AsyncIterable[PushRequest]

AHEAD: Final = 64
"""Pushes that may wait for the service's answer before more are pulled, not counting those of
companies that it refuses for now: otherwise one refused company would stop the pushes of all."""
MOMENT: Final = 0.05
"""Seconds after a refusal until others may go ahead of those that it holds back. By then a refusal
that ends the run, such as a spent quota, has ended it."""


class Refusals(Protocol):
    """What the session knows of refusals.

    Attributes:
        on_refusal: Functions that it calls after each.
    """

    on_refusal: set[Callable[[], None]]

    def held_back(self) -> Collection[str]:
        """Return the companies that are refused for now, though others may not be."""


class Run:
    """The state of one call of `Coordinator.run`."""

    def __init__(
        self,
        dispatcher: Dispatcher,
        sender: Sender,
        places: asyncio.Semaphore,
        refusals: Refusals | None,
        *,
        max_open: int,
        wait: float | None,
        ordered: bool,
        raise_on: RaiseOn,
        total: int | None,
    ) -> None:
        self._dispatcher, self._sender = dispatcher, sender
        self._places, self._refusals = places, refusals
        self._unconsumed = asyncio.Semaphore(max_open)
        self._wait, self._ordered, self._raise_on, self._total = wait, ordered, raise_on, total
        self._pulling = asyncio.Lock()
        self._workers = 0
        self._idle: set[asyncio.Task[None] | None] = set()  # workers that pull or wait to pull
        self._pulled = 0  # requests taken from the input
        self._under_way: set[Push] = set()  # pushes without an outcome
        self._handed_out = 0  # outcomes given to the caller
        self._input_ended = False  # exhausted, failed, or stopped
        self._abandoned = False  # nobody will consume the outcomes
        self._failure: BaseException | None = None
        self._early: dict[int, PushOutcome] = {}
        self._ready: deque[PushOutcome] = deque()
        self._news = asyncio.Event()
        self._room = asyncio.Event()
        self._on_outcome = self._outcome_arrived  # one bound method for all pushes

    async def outcomes(self, requests: Requests) -> AsyncGenerator[PushOutcome, None]:
        """Yield outcomes until the input is exhausted and every request has its outcome."""
        d = self._dispatcher
        if why := d.begin():
            raise fresh_copy(why)
        first: Exception | None = None
        total = self._total
        if total is None and isinstance(requests, Sized):
            total = len(requests)
        if total is not None:
            d.handles.tally.expect(total)
        self._start(_iterate(requests))
        try:
            while await self._some():
                outcome = self._ready.popleft()
                self._unconsumed.release()
                self._handed_out += 1
                first = first or outcome.error
                if self._raise_on == "first":
                    outcome.raise_for_status()
                yield outcome
        finally:
            self._leave()
        if self._failure:
            raise self._failure
        if d.stopped:
            raise fresh_copy(d.stopped)
        if first and self._raise_on == "end":
            raise first

    async def _some(self) -> bool:
        """Wait for an outcome; False when there will be none."""
        while not self._ready:
            if not (self._under_way or self._workers):
                return False
            self._news.clear()
            await self._news.wait()
        return True

    # Workers

    def _start(self, input_: AsyncIterator[PushRequest]) -> None:
        self._input = input_
        self._dispatcher.runs.add(self.stop)
        self._dispatcher.answered.add(self._room.set)
        if self._refusals is not None:
            self._refusals.on_refusal.add(self._look_again_soon)
        self._start_worker()

    def _start_worker(self) -> None:
        self._dispatcher.tasks.start(self._work())
        self._workers += 1

    async def _work(self) -> None:
        try:
            while (push := await self._next()) is not None:
                if not self._idle and not self._input_ended:
                    self._start_worker()
                error = await self._sender.push(push)
                if error is not None:  # of the caller's check
                    self._failure = self._failure or error  # even if all has been pulled by now
                    self.stop()
        except asyncio.CancelledError:
            self.stop(asyncio.CancelledError("a task of this run was cancelled"))
            raise
        finally:
            self._workers -= 1
            if not self._workers and self._input_ended:
                self._end_pulling()
                del self._input  # nobody else may hold it: it is closed at once
            self._news.set()

    async def _next(self) -> Push | None:
        """Wait for the places of a push, pull its request, and return it."""
        task = asyncio.current_task()
        self._idle.add(task)
        try:
            async with self._pulling:
                return None if self._input_ended else await self._pull()
        except asyncio.CancelledError:
            if not self._input_ended:
                raise
            self._uncancel()  # by `stop`
            return None
        finally:
            self._idle.discard(task)

    async def _pull(self) -> Push | None:
        taken: list[asyncio.Semaphore] = []
        try:
            for places in (self._unconsumed, self._places):
                await places.acquire()
                taken.append(places)
            while not self._has_room():
                self._room.clear()
                await self._room.wait()
            request = await self._pull_one()
            if request is None:
                return None
            push = self._begun(request)
            taken.clear()
            return push
        finally:
            for places in taken:
                places.release()

    def _begun(self, request: PushRequest) -> Push:
        number, self._pulled = self._pulled, self._pulled + 1
        push = Push(request, number=number, wait=self._wait, on_outcome=self._on_outcome)
        self._dispatcher.handles.enter(push)
        self._under_way.add(push)
        return push

    def _has_room(self) -> bool:
        crowd = self._dispatcher.crowd
        waiting = crowd.total()
        if waiting >= AHEAD and self._refusals is not None:
            waiting -= sum(crowd[company] for company in self._refusals.held_back())
        return waiting < AHEAD

    def _look_again_soon(self) -> None:
        asyncio.get_running_loop().call_later(MOMENT, self._room.set)

    async def _pull_one(self) -> PushRequest | None:
        """Return the next request; None if there is none, or the run was stopped."""
        if self._input_ended:
            return None
        try:
            request = await anext(self._input)
        except StopAsyncIteration:
            self._input_ended = True
            return None
        except (Exception, asyncio.CancelledError) as error:
            task = asyncio.current_task()
            if task is not None and task.cancelling():
                raise
            self._failure, self._input_ended = self._failure or error, True
            return None
        self._uncancel()  # the input has dealt with it
        return request

    def _uncancel(self) -> None:
        task = asyncio.current_task()
        while task is not None and task.cancelling():
            task.uncancel()

    # Ending

    def stop(self, error: BaseException | None = None) -> None:
        """Stop pulling; once the pushes being sent have finished, raise *error* to the caller."""
        if not self._input_ended:
            self._failure = self._failure or error
        self._input_ended = True
        for task in self._idle:
            if task and task is not asyncio.current_task():
                task.cancel()

    def _leave(self) -> None:
        """Stop the run and drop all outcomes, present and future."""
        self._abandoned = True
        self._ready.clear()
        self._early.clear()
        self._end_pulling()
        self.stop()

    def _end_pulling(self) -> None:
        self._dispatcher.runs.discard(self.stop)
        self._dispatcher.answered.discard(self._room.set)
        if self._refusals is not None:
            self._refusals.on_refusal.discard(self._look_again_soon)

    def _outcome_arrived(self, push: Push) -> None:
        self._places.release()
        self._under_way.discard(push)
        outcome = push.outcome
        if outcome is None or self._abandoned:
            return
        if self._ordered:
            self._early[push.number] = outcome
            while (nxt := self._early.pop(self._handed_out + len(self._ready), None)) is not None:
                self._ready.append(nxt)
        else:
            self._ready.append(outcome)
        self._news.set()


async def _iterate(requests: Requests) -> AsyncIterator[PushRequest]:
    if isinstance(requests, AsyncIterable):
        async for request in requests:
            yield checked(request)
    else:
        for request in requests:
            yield checked(request)
