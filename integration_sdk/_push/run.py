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

from attrs import Factory, define, field

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


@define(eq=False)
class Run:
    """The state of one call of `Coordinator.run`."""

    holder: Holder
    places: asyncio.Semaphore
    held_back: HeldBack
    wait: float | None
    ordered: bool
    raise_on: RaiseOn
    total: int | None
    _unconsumed: asyncio.Semaphore = field(init=False)
    _feeder: asyncio.Task[None] | None = None
    _pulled: int = 0  # requests taken from the input
    _under_way: int = 0  # pushes without an outcome
    _handed_out: int = 0  # outcomes given to the caller
    _stopped: bool = False  # nothing more is pulled
    _failure: BaseException | None = None
    _early: dict[int, PushOutcome] = Factory(dict)
    _ready: deque[PushOutcome] = Factory(deque)
    _news: asyncio.Event = Factory(asyncio.Event)

    def __attrs_post_init__(self) -> None:
        self._unconsumed = asyncio.Semaphore(self.holder.options.max_open)

    async def outcomes(self, requests: Requests) -> AsyncGenerator[PushOutcome, None]:
        holder, total = self.holder, self.total
        if why := holder.begin():
            raise fresh_copy(why)
        first: Exception | None = None
        if total is None and isinstance(requests, Sized):
            total = len(requests)
        holder.tally.expect(total)
        holder.runs.add(self.stop)
        self._feeder = holder.start(self._feed(_iterate(requests)))
        self._feeder.add_done_callback(self._fed)
        del requests  # it is closed when it has been read
        try:
            while await self._some():
                outcome = self._ready.popleft()
                self._unconsumed.release()
                self._handed_out += 1
                first = first or outcome.error
                if self.raise_on == "first":
                    outcome.raise_for_status()
                yield outcome
        finally:
            self.stop()
        if self._failure:
            raise self._failure
        if holder.stopped:
            raise fresh_copy(holder.stopped)
        if first and self.raise_on == "end":
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
                await self.places.acquire()
                has_place = True
                while not self._has_room():
                    self.holder.room.clear()
                    await self.holder.room.wait()
                request = await anext(input_, None)
                if request is None:
                    break
                on_outcome = self._outcome_arrived
                push = Push(request, number=self._pulled, wait=self.wait, on_outcome=on_outcome)
                has_place = False  # its outcome frees it
                self._pulled += 1
                self._under_way += 1
                self.holder.accept(push)
        except (Exception, asyncio.CancelledError) as error:  # the input may await a cancelled task
            self.stop(error)
        finally:
            if has_place:
                self.places.release()
            self._fed()
            await input_.aclose()

    def _fed(self, _: asyncio.Task[None] | None = None) -> None:
        # Also called for the task, which may be cancelled before it has begun.
        self._stopped, self._feeder = True, None
        self.holder.runs.discard(self.stop)
        self._news.set()

    def _has_room(self) -> bool:
        waiting = self.holder.waiting
        if waiting >= AHEAD:
            companies = self.holder.companies
            refused = [companies[name] for name in self.held_back() if name in companies]
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
        self.places.release()
        self._under_way -= 1
        outcome = push.outcome
        if outcome is not None and self.ordered:
            self._early[push.number] = outcome
            while (nxt := self._early.pop(self._handed_out + len(self._ready), None)) is not None:
                self._ready.append(nxt)
        elif outcome is not None:
            self._ready.append(outcome)
        self._news.set()


async def _iterate(requests: Requests) -> AsyncGenerator[PushRequest, None]:
    if isinstance(requests, AsyncIterable):
        async for request in requests:
            yield checked(request)
    else:
        for request in requests:
            yield checked(request)
