"""What a session has for one event loop in one process: its calls, and their turns.

No task runs in the background: turns are given out when a call gives its turn back, or when
the one timer that the throttle asked for fires.
"""

from __future__ import annotations

import asyncio
import logging
import math
import os
from collections.abc import AsyncGenerator
from typing import Self

from attrs import define, field

from integration_sdk._http.call import Call
from integration_sdk._http.fair_queue import Ticket
from integration_sdk._http.gate import Refusal
from integration_sdk._http.limiter import Throttle
from integration_sdk._http.responses import Response
from integration_sdk._http.transport import Carrier
from integration_sdk.errors import ClientClosed

_log = logging.getLogger("integration_sdk.session")


class GateClosed(Exception):
    """The gate stays closed until after the caller's deadline; *answer* closed it."""

    def __init__(self, answer: Response) -> None:
        super().__init__(answer.status)
        self.answer = answer


@define(eq=False)
class Turnstile:
    """Gives tickets their turns as the throttle decides.

    Args:
        throttle: The rules.
        loop: The event loop of all waiting calls.
    """

    throttle: Throttle
    _loop: asyncio.AbstractEventLoop
    _waiting: dict[Ticket, asyncio.Future[None]] = field(init=False, factory=dict)
    _timer: asyncio.TimerHandle | None = field(init=False, default=None)
    _earliest: float = field(init=False, default=math.inf)

    def passes(self, ticket: Ticket) -> bool:
        """Return True if it is *ticket*'s turn; else it is queued, and must `wait`.

        A turn is given back with `answered`, `refused`, `unanswered` or `unused`.
        """
        return self.throttle.enter(ticket, self._loop.time())

    async def wait(self, ticket: Ticket) -> None:
        """Wait for *ticket*'s turn.

        Raises:
            GateClosed: Its turn cannot come before its deadline.
        """
        future = self._waiting[ticket] = self._loop.create_future()
        self._earliest = min(self._earliest, ticket.deadline)
        self._turn_away(ticket)
        self.turn()
        try:
            await future
        except BaseException:
            self._step_back(ticket, future)
            raise

    def _step_back(self, ticket: Ticket, future: asyncio.Future[None]) -> None:
        """Leave the queue, or give back a turn that came at the same time as a cancellation."""
        if self._waiting.pop(ticket, None) is not None:
            self.throttle.give_up(ticket)
        elif not future.cancelled() and future.exception() is None:
            self.unused(ticket)

    def answered(self, ticket: Ticket) -> None:
        """Give back *ticket*'s turn after an answer other than 429 or 503."""
        self.throttle.answered(ticket, self._loop.time())
        self.turn()

    def refused(self, ticket: Ticket, refusal: Refusal) -> None:
        """Give back *ticket*'s turn after a 429 or 503, and turn away calls that cannot wait."""
        self.throttle.refused(ticket, refusal, self._loop.time())
        if self.throttle.closed_until > self._earliest:
            for other in list(self._waiting):
                self._turn_away(other)
            self._earliest = min((other.deadline for other in self._waiting), default=math.inf)
        self.turn()

    def unanswered(self, ticket: Ticket) -> None:
        """Give back *ticket*'s turn after a transmission without an answer."""
        self.throttle.unanswered(ticket, self._loop.time())
        self.turn()

    def unused(self, ticket: Ticket) -> None:
        """Give back *ticket*'s turn; nothing was sent."""
        self.throttle.unused(ticket, self._loop.time())
        self.turn()

    def turn(self) -> None:
        """Give turns to all tickets that may go now, and set the timer for the next."""
        if not self._waiting:
            return
        now = self._loop.time()
        while not self._let_ready_through(now):
            pass  # the next may have the turn that came back
        self._look_again(self.throttle.next_wake(now))

    def _let_ready_through(self, now: float) -> bool:
        """Wake the calls whose turn it is; False if a turn came back unused."""
        woken = [self._let_through(ticket, now) for ticket in self.throttle.ready(now)]
        return all(woken)

    def _let_through(self, ticket: Ticket, now: float) -> bool:
        """Wake *ticket*'s call; False if it has been cancelled."""
        future = self._waiting.pop(ticket)
        if future.done():  # cancelled, and its task has not run since
            self.throttle.unused(ticket, now)
            return False
        future.set_result(None)
        return True

    def _look_again(self, when: float | None) -> None:
        if self._timer is not None:
            self._timer.cancel()
        self._timer = None if when is None else self._loop.call_at(when, self.turn)

    def _turn_away(self, ticket: Ticket) -> None:
        """Raise `GateClosed` in *ticket*'s call if its gate opens only after its deadline."""
        answer = self.throttle.closed_by(ticket, until=ticket.deadline)
        if answer is None:
            return
        future = self._waiting.pop(ticket)
        self.throttle.give_up(ticket)
        if not future.done():
            future.set_exception(GateClosed(answer))


async def _stay_open(transport: Carrier) -> AsyncGenerator[None]:
    """Close *transport* with the loop: asyncio closes open generators before it closes a loop."""
    try:
        yield
    finally:
        await transport.close()


@define(eq=False)
class LoopState:
    """The calls of one event loop, and what they share.

    Attributes:
        turnstile: Where calls wait for their turns.
        calls: The calls that have not ended.
        asking: Held by the call that asks for a new key.
    """

    loop: asyncio.AbstractEventLoop
    turnstile: Turnstile
    _lifetime: AsyncGenerator[None]
    process: int = field(init=False, factory=os.getpid)
    calls: set[Call] = field(init=False, factory=set)
    asking: asyncio.Lock = field(init=False, factory=asyncio.Lock)
    _empty: asyncio.Future[None] | None = field(init=False, default=None)

    @classmethod
    async def open(cls, transport: Carrier, throttle: Throttle) -> Self:
        """Open *transport* for the running loop, and return the state; both close with the loop.

        Nothing in here may suspend; see `Session._open`.
        """
        loop = asyncio.get_running_loop()
        transport.open()
        lifetime = _stay_open(transport)
        await anext(lifetime)
        return cls(loop, Turnstile(throttle, loop), lifetime)

    def check(self) -> None:
        """Raise `ClientClosed` if called in another process or event loop."""
        if self.process != os.getpid():
            raise ClientClosed(
                f"the client was opened in process {self.process} and cannot be used in its "
                "child; make one client for each process, after the fork"
            )
        if self.loop is not asyncio.get_running_loop():
            raise ClientClosed(
                "the client is in use by another event loop that still runs; make one client "
                "for each loop, or close it there first"
            )

    def leave(self, call: Call) -> None:
        """Remove *call*, which has ended."""
        self.calls.discard(call)
        if not self.calls and self._empty is not None and not self._empty.done():
            self._empty.set_result(None)

    async def close(self, drain: float | None) -> None:
        """Give calls *drain* seconds to finish, end the others, and close the connections."""
        try:
            if drain is not None:
                async with asyncio.timeout(drain):
                    await self._wait_until_empty()
        except TimeoutError:
            _log.info("%d calls were not over after %g s and are ended", len(self.calls), drain)
        finally:
            await self._end()

    async def _end(self) -> None:
        for call in self.calls:
            call.end()
        try:
            await self._wait_until_empty()
        finally:
            await self._lifetime.aclose()

    async def _wait_until_empty(self) -> None:
        if self.calls:
            self._empty = self.loop.create_future()
            await self._empty
