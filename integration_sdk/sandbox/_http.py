"""The sandbox's HTTP server: turns requests into calls, and answers into bytes or cut connections.

Built on ``aiohttp.web.Server``, without its routes and middlewares: the sandbox has its own, and
benchmarks should not measure both.
"""

from __future__ import annotations

import asyncio
import logging
import os
import re
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import suppress
from functools import lru_cache
from ipaddress import IPv6Address, ip_address
from typing import Any
from urllib.parse import parse_qsl, unquote, urlsplit

from aiohttp import web
from attrs import evolve, field, frozen

from integration_sdk.sandbox._call import Answer, Call, Refuse, Refused, Respond, bad_request
from integration_sdk.sandbox._clock import Clock, http_date

LARGEST_BODY = 64 * 2**20
# Connections that wait to be accepted. One more would be refused by silence, and cost its client
# a second until it asks again.
CROWD = 4096
PIECE = 2**18
# Longer than any test: the server closes idle connections only if a fault asks for it.
KEEP_ALIVE = 24 * 3600.0
ENCODINGS = {"", "identity", "gzip", "deflate", "br", "zstd"}
_VERB = re.compile(r"Invalid method[^/]*b'[A-Za-z]+ /")
logger = logging.getLogger("integration_sdk.sandbox")


@frozen
class RecordedRequest:
    """A request that the sandbox received, and the status it answered.

    Attributes:
        path: As sent, without the query.
        query: Query parameters, decoded.
        status: 0 if the connection was cut before any answer.
        at: The service's time of arrival.
    """

    method: str
    path: str
    query: dict[str, str]
    headers: Mapping[str, str] = field(repr=False)
    status: int
    body: bytes = field(repr=False)
    at: float


class Server:
    """Serves *respond* on a port of *host*.

    Args:
        remember: How many of the latest requests are kept (up to twice as many at times).
    """

    def __init__(self, respond: Respond, refuse: Refuse, clock: Clock, remember: int) -> None:
        self._respond, self._refuse = respond, refuse
        self._clock = clock
        self._remember = remember
        self._runner: web.ServerRunner | None = None
        self.seen: list[RecordedRequest] = []
        self.served = 0
        self.most_in_flight = 0
        self._handling: set[asyncio.Task[Any]] = set()

    async def start(self, host: str, port: int) -> int:
        """Listen, and return the port; 0 asks for a free one."""
        server = _Listener(self._handle, self._refuse)
        self._runner = web.ServerRunner(server, shutdown_timeout=0.1)
        await self._runner.setup()
        try:
            await web.TCPSite(self._runner, host, port, backlog=CROWD).start()
        except OSError as error:
            await self.stop()
            number = error.errno or 0  # below 0 for a name that is not found
            why = os.strerror(number) if number > 0 else error.strerror
            message = f"the sandbox cannot listen on {host}:{port}: {why}"
            raise OSError(error.errno, message) from None
        bound: int = self._runner.addresses[0][1]
        return bound

    async def stop(self) -> None:
        """Close every connection and the port; end what is still done for who has hung up."""
        if self._runner is not None:
            runner, self._runner = self._runner, None
            await runner.cleanup()
            for task in self._handling:
                task.cancel()
            # Transports close in the next turns of the loop.
            await asyncio.sleep(0)
            await asyncio.sleep(0)

    async def _handle(self, request: web.BaseRequest) -> web.StreamResponse:
        task = asyncio.current_task()
        assert task is not None  # noqa: S101 - a coroutine runs in one
        self._handling.add(task)
        self.most_in_flight = max(self.most_in_flight, len(self._handling))
        try:
            return await self._served(request)
        finally:
            self._handling.discard(task)

    async def _served(self, request: web.BaseRequest) -> web.StreamResponse:
        at = self._clock.now()
        call = self._call(request)
        if request.headers.get("Expect", "").lower() == "100-continue":
            await request.writer.write(b"HTTP/1.1 100 Continue\r\n\r\n")
            request.writer.output_size = 0
        try:
            call.body = await request.read() if request.body_exists else b""
        except ConnectionError:
            # The request broke off: there is nobody to answer, and no complete request.
            return web.Response()
        except web.HTTPRequestEntityTooLarge:
            answer = self._refuse(Refused(413, "The body is too large"))
        except web.RequestPayloadError:
            request.content.feed_eof()  # or aiohttp would read on, and log the same error again
            refusal = self._refuse(bad_request("body", "the body is not in its encoding"))
            # What follows cannot be read either: the connection ends behind the answer.
            answer = evolve(refusal, headers={**refusal.headers, "Connection": "close"})
        else:
            answer = await self._answered(call)
        if not answer.aside:
            self.served += 1
            status = 0 if answer.dropped else answer.status
            logger.info("%s %s %d", request.method, request.raw_path, status)
            self._note(call, status, at)
        return await self._send(request, answer)

    async def _answered(self, call: Call) -> Answer:
        encoding = call.headers.get("Content-Encoding", "").lower()
        if call.body and encoding not in ENCODINGS:
            return self._refuse(bad_request("body", "the body's encoding is unknown"))
        try:
            return await self._respond(call)
        except Exception:
            logger.exception("the sandbox failed on %s %s", call.method, call.path)
            return self._refuse(Refused(500))

    def _call(self, request: web.BaseRequest) -> Call:
        target = request.raw_path
        if not target.startswith("/"):
            target = urlsplit(target)._replace(scheme="", netloc="").geturl()
        path, _, query = target.partition("?")
        params = list(_params(query)) if query else []
        # A client of the public API ends its paths with a slash.
        segments = [unquote(part) for part in path.removesuffix("/").split("/")[1:]]
        return Call(
            clock=self._clock,
            method=request.method,
            path=path,
            params=params,
            headers=request.headers,
            body=b"",
            segments=segments,
            is_from_here=_is_from_here(request.transport),
        )

    def _note(self, call: Call, status: int, at: float) -> None:
        if not self._remember:
            return
        self.seen.append(
            RecordedRequest(
                call.method, call.path, dict(call.params), call.headers, status, call.body, at
            )
        )
        if len(self.seen) > 2 * self._remember:
            del self.seen[: -self._remember]

    async def _send(self, request: web.BaseRequest, answer: Answer) -> web.StreamResponse:
        today = http_date(int(self._clock.now()))
        headers = _replaced({"Content-Type": answer.content_type, "Date": today}, answer.headers)
        if answer.status == 204:
            headers.pop("Content-Type", None)
        if answer.dropped:
            if request.transport is not None:
                request.transport.abort()
            return web.Response()
        if answer.pieces is None and len(answer.body) <= PIECE:
            response = web.Response(status=answer.status, body=answer.body, headers=headers)
            if headers.get("Connection") == "close":
                response.force_close()
            return response
        return await _write(request, answer, headers)


class _Listener(web.Server):
    """Makes a `_Connection` for each client."""

    def __init__(self, handle: Callable[..., Awaitable[web.StreamResponse]], refuse: Refuse):
        super().__init__(handle, request_factory=_request, handler_cancellation=False)
        self._refuse = refuse

    def __call__(self) -> web.RequestHandler:
        return _Connection(self, self._refuse)


class _Connection(web.RequestHandler):
    """Refuses what is no HTTP as the service would; aiohttp sends plain text, and logs it."""

    __slots__ = ("_refuse",)

    def __init__(self, listener: web.Server, refuse: Refuse) -> None:
        # aiohttp's annotation of access_log does not know None, which its Server passes on.
        options: dict[str, Any] = {"access_log": None, "keepalive_timeout": KEEP_ALIVE}
        super().__init__(listener, loop=asyncio.get_running_loop(), **options)
        self._refuse = refuse

    def handle_error(
        self,
        request: web.BaseRequest,
        status: int = 500,
        exc: BaseException | None = None,
        message: str | None = None,
    ) -> web.StreamResponse:
        """Answer what could not be parsed as a request, and close the connection."""
        if request.writer.output_size > 0:
            raise ConnectionError("the answer has begun, and cannot become another")
        answer = self._refuse(_unreadable(status, message or ""))
        response = web.Response(
            status=answer.status,
            body=answer.body,
            headers={"Content-Type": answer.content_type, **answer.headers},
        )
        response.force_close()
        return response


def _unreadable(status: int, why: str) -> Refused:
    # The parser knows HTTP's own verbs only, and quotes the line that has another.
    if _VERB.search(why):
        known = {"Allow": "DELETE, GET, PATCH, POST, PUT"}
        return Refused(405, "Method not allowed: there is no such method", headers=known)
    if status >= 500:
        return Refused(status, "Internal server error")
    first = why.strip().partition("\n")[0].rstrip(":")[:100]
    return bad_request("request", f"this is no request that can be read ({first})")


def _replaced(usual: Mapping[str, str], given: Mapping[str, str]) -> dict[str, str]:
    """Return *given* and what it leaves of *usual*; the case of a header's name does not count."""
    names = {name.lower() for name in given}
    return {name: value for name, value in usual.items() if name.lower() not in names} | {**given}


async def _write(
    request: web.BaseRequest, answer: Answer, headers: Mapping[str, str]
) -> web.StreamResponse:
    """Send the answer piece by piece; close the connection where pieces of it are missing."""
    response = web.StreamResponse(status=answer.status, headers=headers)
    response.content_length = missing = len(answer.body)
    with suppress(ConnectionError):  # a client that has left is not an error to log
        await response.prepare(request)
        async for piece in (answer.pieces or _pieces)(answer.body):
            await response.write(piece)
            missing -= len(piece)
    if missing and request.transport is not None:
        request.transport.close()
    return response


async def _pieces(body: bytes) -> AsyncIterator[bytes]:
    for start in range(0, len(body), PIECE):
        yield body[start : start + PIECE]


def _is_from_here(transport: asyncio.BaseTransport | None) -> bool:
    if transport is None:
        return False
    peer, here = transport.get_extra_info("peername"), transport.get_extra_info("sockname")
    return bool(peer and here) and is_same_machine(peer[0], here[0])


@lru_cache(maxsize=1024)
def is_same_machine(peer: str | None, here: str | None) -> bool:
    """Whether the address *peer* called *here*, an address of this machine, from this machine."""
    try:
        address = ip_address(peer or "")
    except ValueError:
        return False
    mapped = address.ipv4_mapped if isinstance(address, IPv6Address) else None
    return (mapped or address).is_loopback or peer == here


@lru_cache(maxsize=4096)
def _params(query: str) -> tuple[tuple[str, str], ...]:
    # Pollers repeat the same request.
    return tuple(parse_qsl(query, keep_blank_values=True))


def _request(message: Any, payload: Any, protocol: Any, writer: Any, task: Any) -> web.BaseRequest:
    """Return a request that may have a large body."""
    parts = message, payload, protocol, writer, task, asyncio.get_running_loop()
    return web.BaseRequest(*parts, client_max_size=LARGEST_BODY)
