"""`Coordinator.run`: pull requests, have them sent, yield outcomes.

One task pulls from the caller's iterable. Before it pulls, it waits for one of ``max_open`` places,
which the outcome frees, for room among the outcomes that have not been consumed yet, and until no
more than `AHEAD` pushes wait for the service's answer. So whatever stops it (an early exit, an
exception in the input, an expired account, the end of the block) stops it between two requests.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import (
    AsyncGenerator,
    AsyncIterable,
    Callable,
    Collection,
    Iterable,
    Sized,
)
from typing import Final, Literal

from integration_sdk._outcome import PushOutcome
from integration_sdk._push.holder import Holder
from integration_sdk._push.outcomes import checked
from integration_sdk._push.push import Push
from integration_sdk.errors import fresh_copy
from integration_sdk.models import PushRequest

RaiseOn = Literal["none", "first", "end"]
Requests = Iterable[PushRequest] | AsyncIterable[PushRequest]
HeldBack = Callable[[], Collection[str]]
"""Returns the companies that are refused for now, though others may not be."""

AHEAD: Final = 64
"""Pushes that may wait for the service's answer before more are pulled, not counting those of
companies that it refuses for now: otherwise one refused company would stop the pushes of all."""


class Run:
    """The state of one call of `Coordinator.run`."""

    def __init__(
        self,
        holder: Holder,
        places: asyncio.Semaphore,
        held_back: HeldBack,
        *,
        max_open: int,
        wait: float | None,
        ordered: bool,
        raise_on: RaiseOn,
        total: int | None,
    ) -> None:
        self._holder, self._places, self._held_back = holder, places, held_back
        self._unconsumed = asyncio.Semaphore(max_open)
        self._wait, self._ordered, self._raise_on, self._total = wait, ordered, raise_on, total
        self._feeder: asyncio.Task[None] | None = None
        self._pulled = 0  # requests taken from the input
        self._under_way = 0  # pushes without an outcome
        self._handed_out = 0  # outcomes given to the caller
        self._stopped = False  # nothing more is pulled
        self._abandoned = False  # nothing more is consumed
        self._failure: BaseException | None = None
        self._early: dict[int, PushOutcome] = {}
        self._ready: deque[PushOutcome] = deque()
        self._news = asyncio.Event()
        self._on_outcome = self._outcome_arrived  # one bound method for all pushes

    async def outcomes(self, requests: Requests) -> AsyncGenerator[PushOutcome, None]:
        """Yield outcomes until the input is exhausted and every request has its outcome."""
        holder, total = self._holder, self._total
        if why := holder.begin():
            raise fresh_copy(why)
        first: Exception | None = None
        if total is None and isinstance(requests, Sized):
            total = len(requests)
        if total is not None:
            holder.tally.expect(total)
        holder.runs.add(self.stop)
        self._feeder = holder.start(self._feed(_iterate(requests)))
        del requests  # it is closed when it has been read
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
            self._abandoned = True
            self._ready.clear()
            self._early.clear()
            self.stop()
        if self._failure:
            raise self._failure
        if holder.stopped:
            raise fresh_copy(holder.stopped)
        if first and self._raise_on == "end":
            raise first

    async def _some(self) -> bool:
        """Wait for an outcome; False when there will be none."""
        while not self._ready:
            if not self._under_way and self._feeder is None:
                return False
            self._news.clear()
            await self._news.wait()
        return True

    async def _feed(self, input_: AsyncGenerator[PushRequest, None]) -> None:
        has_place = False
        try:
            while not self._stopped:
                await self._unconsumed.acquire()
                await self._places.acquire()
                has_place = True
                while not self._has_room():
                    self._holder.room.clear()
                    await self._holder.room.wait()
                request = await anext(input_, None)
                if request is None:
                    break
                push = Push(
                    request, number=self._pulled, wait=self._wait, on_outcome=self._on_outcome
                )
                has_place = False  # its outcome frees it
                self._pulled += 1
                self._under_way += 1
                self._holder.accept(push)
        except asyncio.CancelledError as error:
            if not self._stopped:  # the input has awaited something that was cancelled
                self._failure = self._failure or error
        except Exception as error:
            self._failure = self._failure or error
        finally:
            if has_place:
                self._places.release()
            self._stopped, self._feeder = True, None
            self._holder.runs.discard(self.stop)
            self._news.set()
            await input_.aclose()

    def _has_room(self) -> bool:
        waiting = self._holder.waiting
        if waiting >= AHEAD:
            companies = self._holder.companies
            refused = [companies[name] for name in self._held_back() if name in companies]
            waiting -= sum(company.waiting for company in refused)
        return waiting < AHEAD

    def stop(self, error: BaseException | None = None) -> None:
        """Stop pulling; once the pushes being sent have finished, raise *error* to the caller."""
        if not self._stopped:
            self._failure = self._failure or error
        self._stopped = True
        if self._feeder is not None and self._feeder is not asyncio.current_task():
            self._feeder.cancel()

    def _outcome_arrived(self, push: Push) -> None:
        self._places.release()
        self._under_way -= 1
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


async def _iterate(requests: Requests) -> AsyncGenerator[PushRequest, None]:
    if isinstance(requests, AsyncIterable):
        async for request in requests:
            yield checked(request)
    else:
        for request in requests:
            yield checked(request)
