"""What the tests of the session layer share: requests, a raw server, a service in virtual time."""

from __future__ import annotations

import asyncio
import json
import random
import re
import socket
import ssl
import struct
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

from attrs import define, field

from integration_sdk import RetryPolicy
from integration_sdk._http import CallOptions, Session
from integration_sdk._http.credentials import Hidden
from integration_sdk._http.requests import Request, Safety
from integration_sdk._http.responses import Failure, Response
from integration_sdk._http.transport import Attempt
from integration_sdk._options_given import ConnectionOptions
from integration_sdk.errors import IntegrationError

KEY = "test-key-0123456789"
TLS = Path(__file__).parent / "tls"
QUICK = RetryPolicy(base=0.001, throttled_base=0.001)
ONE_CALL = CallOptions(timeout=10, retry=QUICK)


def read(path: str = "/companies", **facts: Any) -> Request:
    return Request(operation="test", method="GET", path=path, **facts)


def write(path: str = "/companies", *, method: str = "POST", **facts: Any) -> Request:
    facts = {"body": b'{"name": "A"}', "safety": Safety.WRITE, **facts}
    return Request(operation="test", method=method, path=path, **facts)


def error_body(status: int) -> bytes:
    return json.dumps({"statusCode": status, "error": "no", "correlationId": "c-1"}).encode()


def answer(status: int = 200, body: bytes = b"{}", **headers: str) -> bytes:
    """Return a whole HTTP answer as bytes."""
    lines = [f"HTTP/1.1 {status} X", f"Content-Length: {len(body)}"]
    lines += [f"{name.replace('_', '-')}: {value}" for name, value in headers.items()]
    return "\r\n".join(lines).encode() + b"\r\n\r\n" + body


# A server that can fail in any phase


async def message(reader: asyncio.StreamReader) -> bytes:
    """Return one whole HTTP message."""
    head = await reader.readuntil(b"\r\n\r\n")
    length = re.search(rb"(?i)\r\ncontent-length: *(\d+)", head)
    return head + await reader.readexactly(int(length[1]) if length else 0)


@define
class Peer:
    """One connection of a `RawServer`, from its side."""

    server: RawServer
    reader: asyncio.StreamReader
    writer: asyncio.StreamWriter

    def write(self, reply: bytes) -> None:
        self.writer.write(reply)

    async def receive(self) -> bytes:
        """Read one whole request, and count it."""
        self.server.requests.append(await message(self.reader))
        return self.server.requests[-1]

    def reset(self) -> None:
        """Close with RST in place of FIN."""
        connection = self.writer.get_extra_info("socket")
        connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        self.writer.close()


Connection = Callable[[Peer], Awaitable[None]]


@define
class RawServer:
    """Speaks bytes: *serve* is called for each connection; `requests` holds what arrived."""

    serve: Connection
    port: int = 0
    scheme: str = "http"
    connections: int = 0
    requests: list[bytes] = field(factory=list, repr=False)
    _open: set[asyncio.Task[None]] = field(factory=set)

    @property
    def base_url(self) -> str:
        return f"{self.scheme}://127.0.0.1:{self.port}"

    async def connected(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        self._open.add(task)
        self.connections += 1
        try:
            await self.serve(Peer(self, reader, writer))
        except (ConnectionError, asyncio.IncompleteReadError, asyncio.CancelledError):
            pass  # the client went first, or the test is over
        finally:
            self._open.discard(task)
            writer.close()

    async def end(self) -> None:
        for task in list(self._open):
            task.cancel()
        await asyncio.gather(*self._open, return_exceptions=True)


@asynccontextmanager
async def raw_server(
    serve: Connection, port: int = 0, *, tls: ssl.SSLContext | None = None
) -> AsyncIterator[RawServer]:
    raw = RawServer(serve, scheme="http" if tls is None else "https")
    server = await asyncio.start_server(raw.connected, "127.0.0.1", port, ssl=tls)
    raw.port = server.sockets[0].getsockname()[1]
    try:
        yield raw
    finally:
        server.close()
        await raw.end()
        await server.wait_closed()
        await asyncio.sleep(0)
        await raw.end()  # of connections that were accepted meanwhile


def of_the_server() -> ssl.SSLContext:
    """Return the TLS settings of a server on localhost, whose CA nobody knows."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(TLS / "localhost.pem")
    return context


def trusting() -> ssl.SSLContext:
    """Return the TLS settings of a client that knows this CA."""
    return ssl.create_default_context(cafile=TLS / "ca.pem")


def unused_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def always(reply: bytes) -> Connection:
    """Answer every request on a connection with *reply*."""
    return in_turn(reply)


def in_turn(*replies: bytes) -> Connection:
    """Answer the n-th request of all with the n-th reply; the last one stays."""

    async def serve(peer: Peer) -> None:
        while True:
            await peer.receive()
            peer.write(replies[min(len(peer.server.requests), len(replies)) - 1])
            await peer.writer.drain()

    return serve


def breaks_after(reply: bytes, *, hard: bool = False) -> Connection:
    """Read the request, send *reply* and break the connection."""

    async def serve(peer: Peer) -> None:
        await peer.receive()
        peer.write(reply)
        await peer.writer.drain()
        if hard:
            peer.reset()

    return serve


def held() -> Connection:
    """Never answer."""

    async def serve(peer: Peer) -> None:
        await peer.receive()
        await asyncio.Event().wait()

    return serve


def make_session(
    *, base_url: str, api_key: Any = KEY, transport: Any = None, jitter: Any = None, **options: Any
) -> Session:
    more = {} if jitter is None else {"jitter": jitter}
    return Session(
        base_url=base_url,
        api_key=api_key,
        transport=transport,
        options=ConnectionOptions(**options),
        **more,
    )


@asynccontextmanager
async def session_on(server: RawServer | str, **settings: Any) -> AsyncIterator[Session]:
    base_url = server if isinstance(server, str) else server.base_url
    session = make_session(base_url=base_url, **settings)
    try:
        yield session
    finally:
        await session.aclose()


@asynccontextmanager
async def serving(serve: Connection, **settings: Any) -> AsyncIterator[tuple[RawServer, Session]]:
    """A server that answers as *serve* does, and a session on it."""
    async with raw_server(serve) as server, session_on(server, **settings) as session:
        yield server, session


# A service in virtual time


Verdict = tuple[int, dict[str, str]] | Response | Failure | None
Rule = Callable[["VirtualService", Request, float], Verdict]


@define
class VirtualService:
    """Stands in for `Transport`: *rule* says what to answer, None for success.

    Attributes:
        latency: Seconds that a success takes; a refusal takes a tenth of it.
        log: (time of arrival, status, request) of each transmission; status 0 for none.
        is_closed: Whether it was closed.
    """

    rule: Rule = lambda service, request, now: None
    latency: float = 0.05
    in_flight: int = 0
    log: list[tuple[float, int, Request]] = field(factory=list)
    is_closed: bool = False

    def open(self) -> None:
        """Nothing to open."""

    async def close(self) -> None:
        self.is_closed = True

    async def send(self, transmission: Attempt, authorization: Hidden) -> Response | Failure:
        now = asyncio.get_running_loop().time()
        transmission.may_have_left = True
        self.in_flight += 1
        try:
            verdict = self.rule(self, transmission.request, now)
            reply = verdict or Response(status=200, body=b"{}")
            if isinstance(reply, tuple):
                status, headers = reply
                reply = Response(status=status, headers=headers, body=error_body(status))
            status = reply.status if isinstance(reply, Response) else 0
            self.log.append((now, status, transmission.request))
            await asyncio.sleep(self.latency if verdict is None else self.latency / 10)
        finally:
            self.in_flight -= 1
        return reply

    def count(self, status: int, begin: float = 0.0, end: float = float("inf")) -> int:
        return sum(begin <= at < end and seen == status for at, seen, _ in self.log)

    def sent(self, begin: float = 0.0, end: float = float("inf")) -> int:
        return sum(begin <= at < end for at, _, _ in self.log)


def virtual_session(service: VirtualService, *, seed: int = 1, **settings: Any) -> Session:
    chance = random.Random(seed)
    return make_session(
        base_url="http://localhost",
        transport=service,
        jitter=lambda most: most * chance.random(),
        **settings,
    )


async def reply_of(
    session: Session, request: Request, options: CallOptions = ONE_CALL, *, once: bool = False
) -> Any:
    """Return the answer, or the error that is raised; the request is sent *once* or again."""
    try:
        return await (session.send_once if once else session.send)(request, options)
    except IntegrationError as error:
        return error


def errors_of(error: BaseException | None) -> Iterator[BaseException]:
    """Yield *error* and everything chained to it."""
    while error is not None:
        yield error
        error = error.__cause__ or error.__context__
