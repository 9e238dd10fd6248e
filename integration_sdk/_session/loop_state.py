"""What a session has for one event loop in one process."""

from __future__ import annotations

import asyncio
import logging
import math
import os
from collections.abc import AsyncGenerator, Iterator
from heapq import heapify, heappop, heappush
from itertools import count
from typing import Final, Self

from attrs import define, field

from integration_sdk._sansio.throttling.throttle import Throttle
from integration_sdk._session.call import Call
from integration_sdk._session.carrier import Carrier
from integration_sdk._session.turnstile import Turnstile
from integration_sdk.errors import ClientClosed

_log = logging.getLogger("integration_sdk.session")

SPARE: Final = 64
"""Deadlines of ended calls that are kept before they are dropped."""


async def _stay_open(transport: Carrier) -> AsyncGenerator[None]:
    """Close *transport* with the loop: asyncio closes open generators before it closes a loop."""
    try:
        yield
    finally:
        await transport.close()


@define(eq=False)
class LoopState:
    """The calls of one event loop, and what they share.

    A single timer ends overdue calls. It is set to the earliest deadline, and set again when it
    fires. (A timer for each call costs 6 us a call.) Deadlines are kept in a heap, so that it
    costs little even if thousands of calls hang. The heap refers to calls by number, because it
    keeps deadlines of ended calls for a while, whose answers may be large.

    Attributes:
        turnstile: Where calls wait for their turns.
        calls: The calls that have not ended, by number.
        asking: Held by the call that asks for a new key.
    """

    loop: asyncio.AbstractEventLoop
    turnstile: Turnstile
    _lifetime: AsyncGenerator[None]
    process: int = field(init=False, factory=os.getpid)
    calls: dict[int, Call] = field(init=False, factory=dict)
    asking: asyncio.Lock = field(init=False, factory=asyncio.Lock)
    _numbers: Iterator[int] = field(init=False, factory=count)
    _deadlines: list[tuple[float, int]] = field(init=False, factory=list)
    _empty: asyncio.Future[None] | None = field(init=False, default=None)
    _alarm: asyncio.TimerHandle | None = field(init=False, default=None)
    _alarm_at: float = field(init=False, default=math.inf)

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

    def enter(self, call: Call) -> None:
        """Add *call*, which will be ended at its deadline."""
        call.number = next(self._numbers)
        self.calls[call.number] = call
        if len(self._deadlines) > SPARE + 2 * len(self.calls):
            self._deadlines = [one for one in self._deadlines if one[1] in self.calls]
            heapify(self._deadlines)
        heappush(self._deadlines, (call.deadline, call.number))
        if call.deadline < self._alarm_at:
            self._set_alarm(call.deadline)

    def _set_alarm(self, when: float) -> None:
        if self._alarm is not None:
            self._alarm.cancel()
        self._alarm_at = when
        self._alarm = None if when == math.inf else self.loop.call_at(when, self._end_overdue)

    def _end_overdue(self) -> None:
        """End the calls whose deadline has passed, and set the timer to the next deadline."""
        while self._deadlines:
            call = self.calls.get(self._deadlines[0][1])
            if call is not None:
                if call.deadline > self._alarm_at:
                    break
                call.end()
            heappop(self._deadlines)
        self._set_alarm(self._deadlines[0][0] if self._deadlines else math.inf)

    def leave(self, call: Call) -> None:
        """Remove *call*, which has ended."""
        self.calls.pop(call.number, None)
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
        for call in self.calls.values():
            call.end()
        try:
            await self._wait_until_empty()
        finally:
            self._set_alarm(math.inf)
            await self._lifetime.aclose()

    async def _wait_until_empty(self) -> None:
        if self.calls:
            self._empty = self.loop.create_future()
            await self._empty
