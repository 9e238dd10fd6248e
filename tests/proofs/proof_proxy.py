"""A proxy in front of the sandbox that breaks one push at one byte.

It reads whole messages and passes them on, so that "byte 217 of the request" is what it says.
Reads go through untouched: what became of a push can always be asked.
"""

from __future__ import annotations

import asyncio
import re
import socket
import struct
from collections.abc import Callable
from types import TracebackType
from typing import Literal, Self

from attrs import define, field, frozen

Side = Literal["request", "response"]
How = Literal["FIN", "RST", "stall", "late", "call"]
LENGTH = re.compile(rb"\r\nContent-Length: *(\d+)", re.IGNORECASE)
PUSH = re.compile(rb"(POST|PUT|DELETE) ")
PATIENCE = 60.0
"""Seconds after which a connection that nobody uses is given up."""


@frozen
class Cut:
    """Where the line breaks: so many bytes get through, and then how it ends.

    ``FIN`` and ``RST`` end both connections, ``stall`` lets both hang until the client goes.
    ``late`` resets the client's, and the service gets the whole request *delay* seconds later.
    ``call`` calls `CutProxy.called` with the bytes passed on, and hangs.
    """

    side: Side
    at: int
    how: How
    delay: float = 0.0


@define(eq=False)
class CutProxy:
    """Stands before the service on *target*, a port of this machine.

    Attributes:
        cut: What happens to the next push that has no number below *skip*; once.
        pushes: Requests for a push that arrived here, whole.
        lengths: Bytes of the last push and of its answer.
    """

    target: int
    cut: Cut | None = None
    skip: int = 0
    called: Callable[[], object] = lambda: None
    port: int = 0
    pushes: list[bytes] = field(factory=list, repr=False)
    lengths: dict[Side, int] = field(factory=dict)
    _server: asyncio.Server | None = None
    _open: set[asyncio.Task[None]] = field(factory=set)

    @property
    def base_url(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    async def __aenter__(self) -> Self:
        self._server = await asyncio.start_server(self._connected, "127.0.0.1", 0)
        self.port = self._server.sockets[0].getsockname()[1]
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        assert self._server is not None
        self._server.close()
        for task in list(self._open):
            task.cancel()
        await asyncio.gather(*self._open, return_exceptions=True)
        await self._server.wait_closed()

    def arm(self, cut: Cut | None, skip: int = 0) -> None:
        """Break the push after the next *skip*."""
        self.cut, self.skip = cut, skip

    async def _connected(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        self._open.add(task)
        line = None
        try:
            line = _Line(reader, writer, *await asyncio.open_connection("127.0.0.1", self.target))
            async with asyncio.timeout(PATIENCE):
                await self._carry(line)
        except (OSError, asyncio.IncompleteReadError, asyncio.CancelledError):
            pass  # one side went first, or the proxy is closed
        finally:
            self._open.discard(task)
            writer.close()
            if line is not None:
                line.to_service.close()

    async def _carry(self, line: _Line) -> None:
        while True:
            request = await message(line.of_client)
            cut = self._cut_for(request)
            if cut is not None and cut.side == "request":
                await self._break(line, cut, request)
                return
            line.to_service.write(request)
            answer = await message(line.of_service)
            if PUSH.match(request):
                self.lengths = {"request": len(request), "response": len(answer)}
            if cut is not None:
                await self._break(line, cut, answer)
                return
            line.to_client.write(answer)
            await line.to_client.drain()

    def _cut_for(self, request: bytes) -> Cut | None:
        if not PUSH.match(request):
            return None
        self.pushes.append(request)
        if self.cut is None or self.skip > 0:
            self.skip -= 1
            return None
        cut, self.cut = self.cut, None
        return cut

    async def _break(self, line: _Line, cut: Cut, whole: bytes) -> None:
        if cut.how == "late":
            await _late(line, cut, whole)
            return
        onward = line.to_service if cut.side == "request" else line.to_client
        onward.write(whole[: cut.at])
        await onward.drain()
        if cut.how == "call":
            self.called()
        if cut.how in {"stall", "call"}:
            await line.of_client.read()
        if cut.how == "RST":
            reset(line.to_client)
            reset(line.to_service)


async def _late(line: _Line, cut: Cut, request: bytes) -> None:
    reset(line.to_client)
    await asyncio.sleep(cut.delay)
    line.to_service.write(request)
    await message(line.of_service)


@frozen
class _Line:
    of_client: asyncio.StreamReader
    to_client: asyncio.StreamWriter
    of_service: asyncio.StreamReader
    to_service: asyncio.StreamWriter


async def message(reader: asyncio.StreamReader) -> bytes:
    """Return one whole HTTP message."""
    head = await reader.readuntil(b"\r\n\r\n")
    length = LENGTH.search(head)
    return head + await reader.readexactly(int(length[1]) if length else 0)


def reset(writer: asyncio.StreamWriter) -> None:
    """Close with RST in place of FIN."""
    connection = writer.get_extra_info("socket")
    if connection.fileno() >= 0:
        connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    writer.transport.abort()
