"""`SharedRate`: a limit that several processes keep together."""

from __future__ import annotations

from typing import Protocol, runtime_checkable


@runtime_checkable
class SharedRate(Protocol):
    """A limit of calls that is kept elsewhere, such as in a store, for `Client` to obey.

    A client asks it last, when the call has its turn by the client's own limits and order, and
    before a push is put on record.
    """

    async def acquire(self) -> None:
        """Wait until one more call may be sent. What it raises ends the call, unsent."""

    def paused(self, seconds: float) -> None:
        """Hear that the service refuses everybody's calls for so many *seconds* from now."""
