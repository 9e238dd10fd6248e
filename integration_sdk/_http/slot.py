"""`Slot`: a turn to send one request, once."""

from __future__ import annotations

from collections.abc import Awaitable, Callable

from attrs import define

from integration_sdk._http.call import Call
from integration_sdk._http.responses import Reply


@define(eq=False)
class Slot:
    """A turn to send one request; see `Session.slot`."""

    _call: Call
    _transmit: Callable[[], Awaitable[Reply]]

    async def send(self) -> Reply:
        """Send the request, once, and return what came of it, whose ``phase`` says how far it got.

        Raises:
            RuntimeError: It has been sent before.
        """
        if self._call.attempts:
            raise RuntimeError("a slot sends once; take another to send again")
        self._call.ending = reply = await self._transmit()
        return reply
