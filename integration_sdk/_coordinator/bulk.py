"""`Coordinator.run`: pull requests, send them, yield outcomes.

A worker first takes a place, then pulls a request, then sends it. So a run never pulls more than
it can send, and whatever stops it (an early exit, an exception in the input, an expired account,
the end of the block) stops it between two requests. A place (one of ``max_open``) is freed by the
outcome; a second semaphore bounds the outcomes that have not been consumed yet.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import (
    AsyncGenerator,
    AsyncIterable,
    AsyncIterator,
    Awaitable,
    Iterable,
    Sized,
)
from typing import Literal

from integration_sdk._coordinator.push import Push
from integration_sdk._coordinator.sender import Sender
from integration_sdk._coordinator.tasks import this_task
from integration_sdk._strays import is_cancelled
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
        workers: int,
        max_open: int,
        wait: float | None,
        ordered: bool,
        raise_on: RaiseOn,
    ) -> None:
        self._tracker, self._push = sender.tracker, sender.push
        self._places = places
        self._unconsumed = asyncio.Semaphore(max_open)
        self._workers_left = workers
        self._wait = wait
        self._ordered = ordered
        self._raise_on = raise_on
        self._pulled = 0  # requests taken from the input
        self._handed_out = 0  # outcomes given to the caller
        self._home: asyncio.AbstractEventLoop | None = None  # set by the start
        self._input_ended = False  # exhausted, failed, or stopped
        self._abandoned = False  # nobody will consume the outcomes
        self._failure: BaseException | None = None
        self._turn = asyncio.Lock()
        self._stoppable: set[asyncio.Task[None]] = set()  # workers without a request
        self._early: dict[int, PushOutcome] = {}
        self._ready: deque[PushOutcome] = deque()
        self._news = asyncio.Event()
        self._on_outcome = self._outcome_arrived  # one bound method for all pushes

    async def outcomes(self, requests: Requests) -> AsyncGenerator[PushOutcome, None]:
        """Yield outcomes until the input is exhausted and every request has its outcome."""
        if self._tracker.stopped:
            raise self._tracker.stopped
        first: Exception | None = None
        if isinstance(requests, Sized):
            self._tracker.tally.expect(len(requests))
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
        for _ in range(self._workers_left):
            self._tracker.tasks.start(self._work(input_)).add_done_callback(self._worker_ended)

    async def _some(self) -> bool:
        """Wait for an outcome; False when there will be none."""
        while not self._ready:
            if self._handed_out == self._pulled and not self._workers_left:
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
        for worker in list(self._stoppable):
            worker.cancel()

    def _leave(self) -> None:
        """Stop the run and drop all outcomes, present and future."""
        self._abandoned = True
        self._ready.clear()
        self._early.clear()
        self._tracker.runs.discard(self.stop)
        self.stop()

    def _worker_ended(self, worker: asyncio.Task[None]) -> None:
        self._workers_left -= 1
        if worker.cancelled():
            self.stop(asyncio.CancelledError("a task of this run was cancelled"))
        elif error := worker.exception():
            self._failure = self._failure or error
            self.stop()
        self._news.set()

    async def _work(self, input_: AsyncIterator[PushRequest]) -> None:
        while True:
            item = await self._next(input_)
            if item is None:
                return
            number, request = item
            push = Push(request, number=number, wait=self._wait, on_outcome=self._on_outcome)
            await self._push(push)
            if is_cancelled():
                raise asyncio.CancelledError

    async def _next(self, input_: AsyncIterator[PushRequest]) -> tuple[int, PushRequest] | None:
        """Take a place and return the next request; None if there is no more."""
        if self._input_ended:  # a stopped run may never get a place
            return None
        self._stoppable.add(this_task())  # no local: it would keep a cancelled task alive
        try:
            await self._unconsumed.acquire()
            await self._places.acquire()
            item: tuple[int, PushRequest] | None = None
            try:
                item = await self._pull_one(input_)
            finally:
                if item is None:
                    self._places.release()
                    self._unconsumed.release()
            return item
        finally:
            self._stoppable.discard(this_task())

    async def _pull_one(self, input_: AsyncIterator[PushRequest]) -> tuple[int, PushRequest] | None:
        async with self._turn:
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
            index, self._pulled = self._pulled, self._pulled + 1
            return index, request

    def _outcome_arrived(self, push: Push) -> None:
        self._places.release()
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
