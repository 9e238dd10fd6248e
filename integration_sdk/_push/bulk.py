"""`Coordinator.run`: pull requests, send them, yield outcomes.

One task takes the places of a push, then pulls a request, then starts sending it in another. So a
run never pulls more than it can send, and whatever stops it (an early exit, an exception in the
input, an expired account, the end of the block) stops it between two requests. A place (one of
``max_open``) is freed by the outcome; a second semaphore bounds the outcomes that have not been
consumed yet; the third, one of ``max_in_flight``, is freed by the service's answer (`Places`).
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import (
    AsyncGenerator,
    AsyncIterable,
    AsyncIterator,
    Awaitable,
    Coroutine,
    Iterable,
    Sized,
)
from contextlib import AsyncExitStack
from typing import Literal

from integration_sdk._push.places import Place
from integration_sdk._push.push import Push
from integration_sdk._push.sender import Sender
from integration_sdk._push.tasks import this_task
from integration_sdk._system import current_task_cancelled
from integration_sdk.errors import ConfigurationError
from integration_sdk.models import PushOutcome, PushRequest

RaiseOn = Literal["none", "first", "end"]
Requests = Iterable[PushRequest] | AsyncIterable[PushRequest]


def checked(request: PushRequest) -> PushRequest:
    """Return *request* unchanged.

    Raises:
        ConfigurationError: It is not a `PushRequest`.
    """
    if not isinstance(request, PushRequest):
        raise ConfigurationError(
            f"the coordinator wants PushRequest values, not {type(request).__name__}"
        )
    return request


class PushRun(AsyncIterator[PushOutcome]):
    """The outcomes of one call of `Coordinator.run`: loop over it, or await ``anext()``.

    Each loop gets an iterator of its own, so that leaving the loop is noticed even while the
    run itself is kept.
    """

    def __init__(self, bulk: Bulk, requests: Requests) -> None:
        self._bulk = bulk
        self._outcomes = bulk.outcomes(requests)

    def __aiter__(self) -> AsyncIterator[PushOutcome]:
        return _Loop(self._bulk, self._outcomes)

    def __anext__(self) -> Awaitable[PushOutcome]:
        return self._outcomes.__anext__()

    async def aclose(self) -> None:
        """Stop pulling requests, and drop outcomes that have not been consumed."""
        await self._outcomes.aclose()


class _Loop(AsyncIterator[PushOutcome]):
    """One loop over a run; leaving it stops the run from pulling requests."""

    __slots__ = ("_bulk", "_outcomes")

    def __init__(self, bulk: Bulk, outcomes: AsyncGenerator[PushOutcome, None]) -> None:
        self._bulk = bulk
        self._outcomes = outcomes

    def __anext__(self) -> Awaitable[PushOutcome]:
        return self._outcomes.__anext__()

    def __del__(self) -> None:
        self._bulk.loop_left()


class Bulk:
    """The state of one call of `Coordinator.run`."""

    def __init__(
        self,
        sender: Sender,
        places: asyncio.Semaphore,
        *,
        max_open: int,
        wait: float | None,
        ordered: bool,
        raise_on: RaiseOn,
        total: int | None = None,
    ) -> None:
        self._sender, self._tracker = sender, sender.tracker
        self._places = places
        self._unconsumed = asyncio.Semaphore(max_open)
        self._working = 0  # the task that pulls, and those that send
        self._wait = wait
        self._ordered = ordered
        self._raise_on = raise_on
        self._total = total
        self._pulled = 0  # requests taken from the input
        self._under_way: set[Push] = set()  # pushes without an outcome
        self._handed_out = 0  # outcomes given to the caller
        self._home: asyncio.AbstractEventLoop | None = None  # set by the start
        self._input_ended = False  # exhausted, failed, or stopped
        self._abandoned = False  # nobody will consume the outcomes
        self._failure: BaseException | None = None
        self._puller: asyncio.Task[None] | None = None  # while it takes no request
        self._early: dict[int, PushOutcome] = {}
        self._ready: deque[PushOutcome] = deque()
        self._news = asyncio.Event()
        self._on_outcome = self._outcome_arrived  # one bound method for all pushes

    async def outcomes(self, requests: Requests) -> AsyncGenerator[PushOutcome, None]:
        """Yield outcomes until the input is exhausted and every request has its outcome."""
        if self._tracker.stopped:
            raise self._tracker.stopped
        first: Exception | None = None
        total = (
            len(requests) if self._total is None and isinstance(requests, Sized) else self._total
        )
        if total is not None:
            self._tracker.tally.expect(total)
        self._start(_pull(requests))
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
        if self._tracker.stopped:
            raise self._tracker.stopped
        if first and self._raise_on == "end":
            raise first

    def _start(self, input_: AsyncIterator[PushRequest]) -> None:
        self._home = asyncio.get_running_loop()
        self._tracker.runs.add(self.stop)
        self._work(self._pull_all(input_))

    def _work(self, work: Coroutine[object, object, None]) -> None:
        self._working += 1
        self._tracker.tasks.start(work).add_done_callback(self._task_ended)

    async def _some(self) -> bool:
        """Wait for an outcome; False when there will be none."""
        while not self._ready:
            if not (self._under_way or self._working):
                return False
            self._news.clear()
            await self._news.wait()
        return True

    def loop_left(self) -> None:
        """Stop pulling; may be called by the garbage collector, from any thread."""
        if self._home is not None and not self._home.is_closed():
            self._input_ended = True
            self._home.call_soon_threadsafe(self.stop)

    def stop(self, error: BaseException | None = None) -> None:
        """Stop pulling; once the pushes being sent have finished, raise *error* to the caller."""
        if not self._input_ended:
            self._failure = self._failure or error
        self._input_ended = True
        if self._puller is not None:
            self._puller.cancel()

    def _leave(self) -> None:
        """Stop the run and drop all outcomes, present and future."""
        self._abandoned = True
        self._ready.clear()
        self._early.clear()
        self._tracker.runs.discard(self.stop)
        self.stop()

    def _task_ended(self, task: asyncio.Task[None]) -> None:
        self._working -= 1
        if self._puller is None and self._input_ended:
            self._tracker.runs.discard(self.stop)
        if task.cancelled():
            self.stop(asyncio.CancelledError("a task of this run was cancelled"))
        elif task.exception():  # the tracker has heard of it, stopped the run, and ended pushes
            self._under_way.clear()
            self.stop()
        self._news.set()

    async def _pull_all(self, input_: AsyncIterator[PushRequest]) -> None:
        while not self._input_ended:
            self._puller = this_task()
            try:
                await self._pull_next(input_)
            finally:
                self._puller = None

    async def _pull_next(self, input_: AsyncIterator[PushRequest]) -> None:
        """Take the places of a push, pull its request, and start sending it."""
        place = Place(self._sender.places)
        async with AsyncExitStack() as unused:
            for places in (self._unconsumed, self._places):
                await places.acquire()
                unused.callback(places.release)
            await place.take()
            unused.callback(place.leave)
            request = await self._pull_one(input_)
            if request is not None:
                unused.pop_all()
                self._start_sending(request, place)

    def _start_sending(self, request: PushRequest, place: Place) -> None:
        place.give_to(request.company_id)
        number, self._pulled = self._pulled, self._pulled + 1
        push = Push(request, number=number, wait=self._wait, on_outcome=self._on_outcome)
        self._under_way.add(push)
        self._work(self._send(push, place))

    async def _send(self, push: Push, place: Place) -> None:
        try:
            await self._sender.push(push, place)
        except Exception as error:  # of the caller's check, after which there is an outcome
            self._failure = self._failure or error  # even if all has been pulled by now
            self._under_way.discard(push)
            self.stop()
        if current_task_cancelled():
            raise asyncio.CancelledError

    async def _pull_one(self, input_: AsyncIterator[PushRequest]) -> PushRequest | None:
        """Return the next request; None if there is none, or the run was stopped."""
        if self._input_ended:
            return None
        try:
            request = await anext(input_)
        except StopAsyncIteration:
            self._input_ended = True
            return None
        except (Exception, asyncio.CancelledError) as error:
            if this_task().cancelling():
                raise
            self._failure, self._input_ended = self._failure or error, True
            return None
        while this_task().cancelling():  # the input has dealt with it
            this_task().uncancel()
        return request

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


async def _pull(requests: Requests) -> AsyncIterator[PushRequest]:
    if isinstance(requests, AsyncIterable):
        async for request in requests:
            yield checked(request)
    else:
        for request in requests:
            yield checked(request)
