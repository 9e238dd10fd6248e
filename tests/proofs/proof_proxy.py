"""A proxy in front of the sandbox that breaks one push at one byte.

It reads whole messages and passes them on, so that "byte 217 of the request" is what it says.
Reads go through untouched: what became of a push can always be asked.
"""

from __future__ import annotations

import asyncio
import re
import socket
import struct
from contextlib import suppress
from typing import Literal, Self

from attrs import define, field, frozen

Side = Literal["request", "response"]
How = Literal["FIN", "RST", "stall", "late"]
LENGTH = re.compile(rb"\r\nContent-Length: *(\d+)", re.IGNORECASE)
PUSH = re.compile(rb"(POST|PUT|DELETE) ")


@frozen
class Cut:
    """Where the line breaks: so many bytes get through, and then how it ends.

    ``FIN`` and ``RST`` end both connections, ``stall`` lets both hang until the client goes.
    ``late`` resets the client's, and the service gets the whole request *delay* seconds later.
    """

    side: Side
    at: int
    how: How
    delay: float = 0.0


@define(eq=False)
class CutProxy:
    """Stands before the service on *target*, a port of this machine.

    Attributes:
        cut: What happens to the first push.
        pushes: Requests for a push that arrived here, whole.
        lengths: Bytes of the last push and of its answer.
    """

    target: int
    cut: Cut | None
    pushes: list[bytes] = field(factory=list, repr=False)
    lengths: dict[Side, int] = field(factory=dict)
    base_url: str = ""
    _server: asyncio.Server = field(init=False)
    _open: set[asyncio.Task[None]] = field(factory=set)

    async def __aenter__(self) -> Self:
        self._server = await asyncio.start_server(self._connected, "127.0.0.1", 0)
        self.base_url = f"http://127.0.0.1:{self._server.sockets[0].getsockname()[1]}"
        return self

    async def __aexit__(self, *_: object) -> None:
        self._server.close()
        for task in list(self._open):
            task.cancel()
        await asyncio.gather(*self._open, return_exceptions=True)
        await self._server.wait_closed()

    async def _connected(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        self._open.add(task)
        service = await asyncio.open_connection("127.0.0.1", self.target)
        # One side went first, or the proxy is closed.
        with suppress(OSError, asyncio.IncompleteReadError, asyncio.CancelledError):
            await self._carry((reader, writer), service)
        self._open.discard(task)
        writer.close()
        service[1].close()

    async def _carry(
        self,
        client: tuple[asyncio.StreamReader, asyncio.StreamWriter],
        service: tuple[asyncio.StreamReader, asyncio.StreamWriter],
    ) -> None:
        while True:
            request = await message(client[0])
            is_push = PUSH.match(request) is not None
            cut = self.cut if is_push and not self.pushes else None
            if is_push:
                self.pushes.append(request)
            if cut is not None and cut.how == "late":
                reset(client[1])
                await asyncio.sleep(cut.delay)
            elif cut is not None and cut.side == "request":
                service[1].write(request[: cut.at])
                break
            service[1].write(request)
            answer = await message(service[0])
            if is_push:
                self.lengths = {"request": len(request), "response": len(answer)}
            client[1].write(answer[: cut.at] if cut else answer)
            await client[1].drain()
            if cut is not None:
                break
        await service[1].drain()
        if cut.how == "stall":
            await client[0].read()
        if cut.how == "RST":
            reset(client[1])
            reset(service[1])


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
