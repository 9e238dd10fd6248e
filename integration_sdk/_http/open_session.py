"""What a session has in one event loop of one process: its calls, their deadlines, and the line.

The `Limiter` decides whose turn it is; here calls wait for theirs. Turns are given out when a call
gives its own back, or when the one timer that the limiter asked for fires.
"""

from __future__ import annotations

import asyncio
import math
import os
from collections.abc import AsyncGenerator, Callable
from typing import Self, cast

from attrs import define, field

from integration_sdk._http.call import Call
from integration_sdk._http.limiter import Limiter
from integration_sdk._http.responses import Response
from integration_sdk._http.transport import Transport
from integration_sdk.errors import ClientClosed


@define(eq=False)
class OpenSession:
    """The calls that have not ended, and the line of those that wait.

    Attributes:
        asking: Held by the call that asks for a new key.
    """

    loop: asyncio.AbstractEventLoop
    limiter: Limiter
    _lifetime: AsyncGenerator[None]
    process: int = field(init=False, factory=os.getpid)
    calls: set[Call] = field(init=False, factory=set)
    asking: asyncio.Lock = field(init=False, factory=asyncio.Lock)
    _empty: asyncio.Future[None] | None = field(init=False, default=None)
    _look_again: asyncio.TimerHandle | None = field(init=False, default=None)
    _looks_at: float = field(init=False, default=math.inf)
    """When `_look_again` fires; not every loop's handle can tell."""

    @classmethod
    async def open(cls, transport: Transport, limiter: Limiter) -> Self:
        """Open *transport* for the running loop; it closes with the loop. This never suspends."""
        transport.open()
        lifetime = _stay_open(transport)
        await anext(lifetime)
        return cls(asyncio.get_running_loop(), limiter, lifetime)

    @property
    def is_here(self) -> bool:
        try:
            return self.loop is asyncio.get_running_loop()
        except RuntimeError:
            return False

    def check(self) -> None:
        """Raise `ClientClosed` if called in another process or event loop."""
        if self.process != os.getpid() or not self.is_here:
            raise ClientClosed(
                "the client is in use in another process or event loop: make one for each, in a "
                "child after the fork, or close it there first"
            )

    # Calls

    def begin(self, call: Call) -> None:
        self.calls.add(call)
        if call.deadline < math.inf:
            call.timer = self.loop.call_at(call.deadline, call.stop)

    def leave(self, call: Call) -> None:
        self.calls.discard(call)
        if call.timer is not None:
            call.timer.cancel()
        if not self.calls and self._empty is not None and not self._empty.done():
            self._empty.set_result(None)

    async def close(self) -> None:
        """End all calls, and close the connections when the calls have ended."""
        for call in self.calls:
            call.stop()
        try:
            if self.calls:
                self._empty = self.loop.create_future()
                await self._empty
        finally:
            await self._lifetime.aclose()

    # The line

    async def turn(self, call: Call) -> Response | None:
        """Wait for the turn of *call*, which is in the limiter's line, to be given back later.

        If its gate opens only after its deadline, return the answer that closed the gate.
        """
        future: asyncio.Future[Response | None] = self.loop.create_future()
        call.turn = future
        self._turn_away(call)
        self._set_timer(self.loop.time())
        try:
            return await future
        except BaseException:
            if call.waiting:
                self.limiter.leave_line(call)
            elif not future.cancelled() and future.result() is None:
                # Its turn came at the same time as the cancellation.
                self.give_back(call, self.limiter.unused)
            raise

    def give_back(self, call: Call, note: Callable[..., None]) -> None:
        """Give back the turn of *call*, and *note* in the limiter what came of it."""
        note(call, now=self.loop.time())
        self._let_through()

    def turn_away_late(self) -> None:
        """End the waits of calls whose gate, which was just closed, opens after their deadline."""
        for call in [call for call in self.calls if call.waiting]:
            self._turn_away(call)

    def _turn_away(self, call: Call) -> None:
        closed_by = self.limiter.closed_by(call, until=call.deadline)
        if closed_by is not None and call.turn is not None:
            self.limiter.leave_line(call)
            if not call.turn.done():
                call.turn.set_result(closed_by)

    def _let_through(self) -> None:
        if not self.limiter.waiting:
            return
        now = self.loop.time()
        while calls := self.limiter.ready(now):
            for call in calls:
                turn = cast("Call", call).turn  # the limiter knows no more of it than its place
                if turn is None or turn.done():  # cancelled, and its task has not run since
                    self.limiter.unused(call, now)
                else:
                    turn.set_result(None)
        self._set_timer(now)

    def _set_timer(self, now: float) -> None:
        when = self.limiter.next_wake(now)
        if when is None or self._looks_at <= when:
            return
        if self._look_again is not None:
            self._look_again.cancel()
        self._look_again, self._looks_at = self.loop.call_at(when, self._due), when

    def _due(self) -> None:
        self._look_again, self._looks_at = None, math.inf
        self._let_through()


async def _stay_open(transport: Transport) -> AsyncGenerator[None]:
    try:
        yield
    finally:  # asyncio closes open generators before it closes a loop
        await transport.close()
