"""What a session asks of whatever carries its requests, `Transport` or a test's stand-in."""

from __future__ import annotations

from typing import Protocol

from attrs import define

from integration_sdk._sansio.requests import Request
from integration_sdk._sansio.responses import Response
from integration_sdk._session.failures import Failure
from integration_sdk._session.key import Hidden


@define
class Transmission:
    """The state of one transmission, which trace configs get as ``trace_request_ctx``.

    Attributes:
        request: The request being sent.
        attempt: Counted from 1.
        read_timeout: Seconds without a byte of the answer after which it counts as lost; None if
            the call ends before.
        may_have_left: Whether any byte of it may have been sent.
    """

    request: Request
    attempt: int
    read_timeout: float | None = None
    may_have_left: bool = False

    def may_leave(self) -> None:
        """Note that its first byte is about to be written."""
        self.may_have_left = True


class Carrier(Protocol):
    """Sends requests once."""

    def open(self) -> None:
        """Prepare for sending on the running loop."""

    async def send(self, transmission: Transmission, authorization: Hidden) -> Response | Failure:
        """Send once, with the header *authorization*."""

    async def close(self) -> None:
        """Close all connections."""
