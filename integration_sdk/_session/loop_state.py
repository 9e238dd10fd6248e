"""What a session has for one event loop in one process."""

from __future__ import annotations

import asyncio
import logging
import os
from collections.abc import AsyncGenerator
from typing import Self

from attrs import define, field

from integration_sdk._sansio.throttling.throttle import Throttle
from integration_sdk._session.call import Call
from integration_sdk._session.transport import Carrier
from integration_sdk._session.turnstile import Turnstile
from integration_sdk.errors import ClientClosed

_log = logging.getLogger("integration_sdk.session")


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
