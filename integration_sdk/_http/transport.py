"""Sends a `Request` once over aiohttp, and returns a `Response` or a `Failure`.

This is the only file that uses ``aiohttp.ClientSession``. It prevents what aiohttp would do by
default: send PUT and DELETE again after a lost connection, follow redirects with the key, keep
cookies, read proxies and passwords from the environment, decompress bodies of any size, take a
compressed body that was cut for whole, and put the request's headers into errors.

Writes have their own connections. If a server closes an idle connection just as it is used
again, a push is in doubt, so pushes use only connections that are new or were used moments ago.
"""

from __future__ import annotations

import asyncio
import codecs
import select
import time
import zlib
from collections.abc import Coroutine, Mapping
from contextlib import AsyncExitStack
from contextvars import ContextVar
from functools import lru_cache
from io import BytesIO
from typing import Any, Final
from weakref import WeakSet

import aiohttp
from aiohttp import hdrs
from aiohttp.connector import Connection
from aiohttp.http import HttpProcessingError
from attrs import define, field
from yarl import URL

from integration_sdk import errors
from integration_sdk._http.credentials import ApiKey, Hidden, check_proxy
from integration_sdk._http.requests import Phase, Request, Safety
from integration_sdk._http.responses import Failure, Reply, Response, lost, unread
from integration_sdk._options_given import MIB, ConnectionOptions
from integration_sdk._system import current_task_cancelled
from integration_sdk._version import __version__

ERROR_LIMIT: Final = 64 * 1024
"""Maximum bytes kept of an error answer, which is searched for the key."""
FIELD_LIMIT: Final = 64 * 1024
CONNECT_TIMEOUT: Final = 10.0
IDLE: Final = {Safety.READ: 30.0, Safety.WRITE: 1.0}
"""Seconds that an unused connection is kept: for writes less than any server's own limit."""
_HEADERS: Final[dict[str, str]] = {
    hdrs.ACCEPT: "application/json",
    hdrs.ACCEPT_ENCODING: "gzip",
    hdrs.USER_AGENT: f"integration-sdk/{__version__}",
}


@define
class Attempt:
    """The state of one attempt, which trace configs get as ``trace_request_ctx``.

    Attributes:
        attempt: Counted from 1.
        read_timeout: Seconds without a byte of the answer after which it counts as lost.
        headers: Headers of the caller's own.
        may_have_left: Whether any byte of it may have been sent.
    """

    request: Request
    attempt: int
    read_timeout: float | None = None
    headers: Mapping[str, str] = field(factory=dict, repr=False)
    may_have_left: bool = False


# What aiohttp must not do


class Lost(Exception):
    """A lost connection; aiohttp does not retry after this exception."""


class Unusable(aiohttp.ClientConnectionError):
    """A connection that was closed, or on which something arrived that answers nothing."""

    def __init__(self, *, was_idle: bool) -> None:
        super().__init__("it had closed the connection, or sent something unasked")
        self.was_idle = was_idle


_BROKEN: Final = (aiohttp.ClientOSError, aiohttp.ServerDisconnectedError)


class _Answer(aiohttp.ClientResponse):
    """Raises `Lost` for a broken connection; aiohttp would send some requests again."""

    async def start(self, connection: Connection) -> aiohttp.ClientResponse:
        try:
            return await super().start(connection)
        except _BROKEN as error:
            lost = Lost(_reason(error))
        raise lost


_under_way: ContextVar[Attempt] = ContextVar("integration_sdk_attempt")
_used: Final[WeakSet[Any]] = WeakSet()
"""The connections that have carried a request."""


class _NotedRequest(aiohttp.ClientRequest):
    """Sets ``may_have_left`` right before writing the first byte.

    If anything has arrived on an idle connection, such as a load balancer's 408, aiohttp would
    take it for the answer to this request, and the answer for that to the next.
    """

    def send(self, conn: Connection) -> Coroutine[Any, Any, aiohttp.ClientResponse]:
        protocol = conn.protocol
        was_idle = protocol in _used
        if protocol is None or protocol.should_close or _is_closed(conn.transport):
            raise Unusable(was_idle=was_idle)
        if not was_idle:
            _used.add(protocol)
        _under_way.get().may_have_left = True  # no await from here to the first byte
        return super().send(conn)


def _is_closed(transport: asyncio.Transport | None) -> bool:
    """Whether the peer has closed the connection, as the operating system knows before asyncio."""
    socket = transport.get_extra_info("socket") if transport is not None else None
    if socket is None or not hasattr(select, "POLLRDHUP"):  # Linux has it
        return False
    poll = select.poll()
    poll.register(socket.fileno(), select.POLLRDHUP)
    return bool(poll.poll(0))


# Sending


@define(eq=False)
class Transport:
    """Sends requests to one service, whose checked URL is *base_url*, with aiohttp."""

    base_url: str
    _api_key: ApiKey
    _options: ConnectionOptions
    _proxy: URL | None = field(init=False, repr=False)  # it may hold a password
    _sessions: dict[Safety, aiohttp.ClientSession] = field(init=False, factory=dict)

    def __attrs_post_init__(self) -> None:
        given = self._options
        self._proxy = check_proxy(given.proxy, self.base_url)
        if given.connector is not None and (given.ssl is not True or given.connections != 100):
            raise errors.ConfigurationError(
                "ssl= and connections= have no effect with connector=; give them to the connector: "
                "aiohttp.TCPConnector(ssl=..., limit=...)"
            )

    def open(self) -> None:
        """Create the sessions. Connections are opened by the first requests.

        Raises:
            ClientClosed: The user's own connector is closed, or belongs to another loop.
        """
        connector = self._options.connector
        if connector is None:
            for safety, idle in IDLE.items():
                self._sessions[safety] = self._session(None, keepalive_timeout=idle)
            return
        try:
            self._sessions = dict.fromkeys(Safety, self._session(connector))
        except RuntimeError:  # aiohttp looks at the loop
            raise errors.ClientClosed(
                "the connector given to the client belongs to another event loop"
            ) from None

    def _session(
        self, connector: aiohttp.BaseConnector | None, **keeping: Any
    ) -> aiohttp.ClientSession:
        limit, ssl = self._options.connections, self._options.ssl
        return aiohttp.ClientSession(
            connector=connector or aiohttp.TCPConnector(limit=limit, ssl=ssl, **keeping),
            connector_owner=connector is None,
            loop=asyncio.get_running_loop(),
            cookie_jar=aiohttp.DummyCookieJar(),
            headers=None if self._proxy else _HEADERS,  # a proxy would be shown them
            timeout=_timeouts(None),
            auto_decompress=bool(self._options.middlewares),  # which may read bodies
            max_line_size=FIELD_LIMIT,
            max_field_size=FIELD_LIMIT,
            proxy=self._proxy,
            trust_env=False,
            trace_configs=list(self._options.trace_configs),
            request_class=_NotedRequest,
            response_class=_Answer,
            middlewares=self._options.middlewares,
        )

    async def close(self) -> None:
        """Close the sessions; the user's own connector stays open.

        All of them are closed even if this is cancelled time and again, as anyio's scopes do.
        """
        sessions, self._sessions = set(self._sessions.values()), {}
        async with AsyncExitStack() as closing:
            for session in sessions:
                closing.push_async_callback(session.close)

    async def send(self, attempt: Attempt, authorization: Hidden) -> Reply:
        """Send once. An exception of aiohttp is returned as a `Failure` without headers.

        A connection of the pool that turns out to be closed before anything is sent is replaced.
        """
        request, token = attempt.request, _under_way.set(attempt)
        try:
            while True:
                try:
                    answer = await self._request(attempt, authorization)
                    break
                except Unusable as error:
                    if not error.was_idle:  # else the pool has one connection less
                        raise
            try:
                return await self._read(request, answer)
            finally:
                answer.release()  # closes the connection, if anything is left to read
        except (*ERRORS, asyncio.CancelledError) as error:
            if isinstance(error, asyncio.CancelledError) and current_task_cancelled():
                raise
            return self._failure(attempt, error)
        finally:
            _under_way.reset(token)

    def _request(self, attempt: Attempt, authorization: Hidden) -> Any:
        request = attempt.request
        session = self._sessions[request.safety]
        if session.closed:
            raise errors.ClientClosed("the connector given to the client is closed")
        headers = {**attempt.headers, **request.headers, hdrs.AUTHORIZATION: authorization}
        if self._proxy:
            headers = _HEADERS | headers
        extra: dict[str, Any] = {}
        if request.body is not None:
            headers[hdrs.CONTENT_TYPE] = request.content_type
        elif request.safety is Safety.WRITE:  # aiohttp would add a content type for no content
            extra["skip_auto_headers"] = (hdrs.CONTENT_TYPE,)
        body = request.body
        return session.request(
            request.method,
            _url(self.base_url + request.target),
            # aiohttp warns about large bytes objects
            data=BytesIO(body) if body is not None and len(body) >= MIB else body,
            headers=headers,
            allow_redirects=False,
            raise_for_status=False,
            timeout=_timeouts(attempt.read_timeout, by_proxy=self._proxy is not None),
            trace_request_ctx=attempt,
            **extra,
        )

    async def _read(self, request: Request, answer: aiohttp.ClientResponse) -> Reply:
        headers, is_error = answer.headers, answer.status >= 400
        limit = min(ERROR_LIMIT, request.body_limit) if is_error else request.body_limit
        encoding = headers.get(hdrs.CONTENT_ENCODING, "").strip().lower()
        is_zipped = encoding in {"gzip", "x-gzip", "deflate"} and not self._options.middlewares
        body, is_whole = await _read_capped(answer, limit, _Gunzip() if is_zipped else None)
        if not is_whole and not is_error:
            message = f"{request} was answered by more than {limit:,} bytes; the rest was not read"
            error = unread(errors.ResponseTooLarge, request, message, limit=limit)
            return Failure(Phase.MAY_HAVE_LEFT, error, repeatable=False)
        if is_error and isinstance(body, bytes):  # as it is within the limit
            body = self._api_key.redact(body)
        return Response(
            status=answer.status,
            headers=headers,
            body=body,
            received_at=time.time(),
            sent_to=self.base_url + request.path if 300 <= answer.status < 400 else "",
        )

    # What a failure means. aiohttp's errors hold the request's headers, so nothing of them is
    # passed on but their class and the operating system's words.

    def _failure(self, attempt: Attempt, error: BaseException) -> Failure:
        request, proxy = attempt.request, self._proxy
        why = str(error) if isinstance(error, Lost | Unusable) else _reason(error)
        # Until then only the proxy was spoken to, and its refusal may be any of these errors.
        if not attempt.may_have_left and (proxy or isinstance(error, _NEVER_LEFT)):
            where = self._no_way(error, why)
            not_sent = errors.NotSent(f"{request} was not sent: {where}", **request.facts)
            untrusted = isinstance(error, aiohttp.ClientConnectorCertificateError)
            return Failure(Phase.NEVER_LEFT, not_sent, repeatable=not untrusted)
        if isinstance(error, _MALFORMED):
            message = f"{request} was answered by something that is not HTTP ({why})"
            return Failure(Phase.MAY_HAVE_LEFT, unread(errors.MalformedResponse, request, message))
        return Failure(Phase.MAY_HAVE_LEFT, lost(request, why))

    def _no_way(self, error: BaseException, why: str) -> str:
        """Return what could not be reached, why, and what to check."""
        proxy, service = self._proxy, URL(self.base_url)
        if proxy is not None and not isinstance(error, aiohttp.ClientSSLError):
            return f"no way through the proxy {proxy.host}:{proxy.port} ({why}). Check proxy=."
        todo = "Check base_url= and the network."
        if isinstance(error, aiohttp.ClientConnectorCertificateError):
            todo = "For a private CA pass ssl=ssl.create_default_context(cafile=...)."
        return f"no connection to {service.host}:{service.port} ({why}). {todo}"


ERRORS: Final = (aiohttp.ClientError, Lost, HttpProcessingError, zlib.error, OSError)
"""What aiohttp raises when an attempt fails. Timeouts are OSErrors; bugs are neither."""
_NEVER_LEFT: Final = (aiohttp.ClientConnectorError, aiohttp.ConnectionTimeoutError, Unusable)
_MALFORMED: Final = (aiohttp.ClientResponseError, HttpProcessingError, zlib.error)


@lru_cache(maxsize=256)
def _url(text: str) -> URL:
    return URL(text, encoded=True)


@lru_cache(maxsize=8)
def _timeouts(read_timeout: float | None, *, by_proxy: bool = False) -> aiohttp.ClientTimeout:
    """Return aiohttp's time-outs; it would wait for a proxy's tunnel without any of its own."""
    tunnel = read_timeout if by_proxy else None
    return aiohttp.ClientTimeout(
        total=None, connect=tunnel, sock_connect=CONNECT_TIMEOUT, sock_read=read_timeout
    )


def _reason(error: BaseException) -> str:
    """Return the reason without any text from the peer, since that may contain the key."""
    if isinstance(error, aiohttp.ClientHttpProxyError):
        return f"the proxy answered {error.status}"
    if isinstance(error, aiohttp.SocketTimeoutError):
        return "the service fell silent (read_timeout=)"
    words = getattr(getattr(error, "os_error", None) or error, "strerror", None)
    return f"{type(error).__name__}: {words}" if words else type(error).__name__


# Bodies


class _Gunzip:
    """Decompresses the pieces of a body; aiohttp takes one that was cut for whole."""

    def __init__(self) -> None:
        self._stream = zlib.decompressobj(wbits=47)  # of gzip or zlib
        self.is_cut = False

    def feed(self, data: bytes, most: int) -> bytes:
        out: list[bytes] = []
        while data and most > 0:
            if self._stream.eof:  # of a member; another follows
                self._stream = zlib.decompressobj(wbits=47)
            out.append(self._stream.decompress(data, most))
            most -= len(out[-1])
            data = self._stream.unused_data.lstrip(b"\0") or self._stream.unconsumed_tail
        self.is_cut = not self._stream.eof
        return b"".join(out)


async def _read_capped(
    answer: aiohttp.ClientResponse, limit: int, gunzip: _Gunzip | None
) -> tuple[bytes | list[bytes], bool]:
    """Return up to *limit* decompressed bytes, in pieces if large, and whether that is all."""
    pieces, size, content = list[bytes](), 0, answer.content
    # If it is at its end, it is empty, or a middleware has read it.
    chunk = await (answer.read() if content.at_eof() else content.readany())
    while chunk:
        piece = chunk if gunzip is None else gunzip.feed(chunk, limit + 1 - size)
        if not size and "json" in answer.headers.get(hdrs.CONTENT_TYPE, "json"):
            piece = piece.removeprefix(codecs.BOM_UTF8)
        size += len(piece)
        pieces.append(piece)
        if size > limit:
            return b"".join(pieces)[:limit], False
        chunk = b"" if content.at_eof() else await content.readany()
    if gunzip is not None and gunzip.is_cut:
        raise aiohttp.ClientPayloadError
    # Joining takes 1 ms for each 2 MiB.
    return (b"".join(pieces) if size < MIB else pieces), True
