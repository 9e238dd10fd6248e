"""Sends a `Request` once over aiohttp, and returns a `Response` or a `Failure`.

This is the only file that uses ``aiohttp.ClientSession``. It prevents what aiohttp would do by
default: send PUT and DELETE again after a lost connection, follow redirects with the key, keep
cookies, read proxies and passwords from the environment, decompress bodies of any size, and put
the request's headers into errors.

A request may have been sent once aiohttp has called ``send`` of its request class, which it does
right before it writes the first byte. (A trace hook would tell the same.)

Writes have their own connections. If a server closes an idle connection just as it is used
again, a push is in doubt, so pushes use only connections that are new or were used moments ago;
once it has happened all the same, only new ones.
"""

from __future__ import annotations

import asyncio
import select
import ssl
import time
from collections.abc import Collection, Coroutine, Mapping, Sequence
from contextlib import AsyncExitStack
from contextvars import ContextVar
from functools import lru_cache
from io import BytesIO
from typing import Any, Final, Protocol, TypeVar
from urllib.parse import unquote
from urllib.request import getproxies, proxy_bypass
from weakref import WeakSet

import aiohttp
from aiohttp import hdrs
from aiohttp.connector import Connection
from aiohttp.http import HttpProcessingError
from attrs import define, field
from yarl import URL

from integration_sdk._http.credentials import ApiKey, Hidden
from integration_sdk._http.requests import Phase, Request, Safety
from integration_sdk._http.responses import LOOK, Failure, Reply, Response
from integration_sdk._system import current_task_cancelled
from integration_sdk._version import __version__
from integration_sdk.errors import (
    AnswerLost,
    ClientClosed,
    ConfigurationError,
    MalformedResponse,
    NotSent,
    ResponseTooLarge,
    TransportError,
)

_Error = TypeVar("_Error", bound=TransportError)

KIB: Final = 1024
ERROR_LIMIT: Final = 64 * KIB
"""Maximum bytes kept of an error answer; larger answers are not searched for the key either."""
SHORTEST_IN_ERRORS: Final = 8
SHORTEST_IN_DATA: Final = 16
"""Minimum length of a key that is searched for: a shorter one may be a word in a record."""
LARGE: Final = 1024 * KIB
"""Bytes from which on a body's pieces are not joined: joining takes 1 ms for each 2 MiB."""
CONNECTIONS: Final = 100
CONNECT_TIMEOUT: Final = 10.0
READ_IDLE: Final = 30.0
"""Seconds that an unused connection is kept for reads."""
WRITE_IDLE: Final = 1.0
"""The same for writes: shorter than any server's own limit that we know of."""
NOT_INHERITED: Final = frozenset({"authorization", "proxy-authorization", "cookie", "host"})


@define
class Attempt:
    """The state of one attempt, which trace configs get as ``trace_request_ctx``.

    Attributes:
        request: The request being sent.
        attempt: Counted from 1.
        read_timeout: Seconds without a byte of the answer after which it counts as lost; None if
            the call ends before.
        may_have_left: Whether any byte of it may have been sent.
        reuses: Whether it left on a connection that had been used before.
    """

    request: Request
    attempt: int
    read_timeout: float | None = None
    may_have_left: bool = False
    reuses: bool = False


class Transport(Protocol):
    """Sends requests once."""

    def open(self) -> None:
        """Prepare for sending on the running loop."""

    async def send(self, attempt: Attempt, authorization: Hidden) -> Reply:
        """Send once, with the header *authorization*."""

    async def close(self) -> None:
        """Close all connections."""


# What aiohttp raises


class Lost(Exception):
    """A lost connection; aiohttp does not retry after this exception."""


class Unusable(aiohttp.ClientConnectionError):
    """A connection that was closed, or on which something arrived that answers nothing.

    Nothing was sent on it. If it was idle in the pool, another takes its place.
    """

    def __init__(self, *, was_idle: bool) -> None:
        super().__init__()
        self.was_idle = was_idle

    def __str__(self) -> str:
        return "it had closed the connection, or sent something unasked"


ERRORS: Final = (aiohttp.ClientError, Lost, HttpProcessingError, OSError)
"""What aiohttp raises when an attempt fails. Timeouts are OSErrors; bugs are neither."""
_NEVER_LEFT: Final = (aiohttp.ClientConnectorError, aiohttp.ConnectionTimeoutError, Unusable)
_UNKNOWN_ISSUER: Final = frozenset({2, 18, 19, 20, 21})
"""OpenSSL's codes for it; a certificate may also have expired, or be for another host."""
_MALFORMED: Final = (aiohttp.ClientResponseError, HttpProcessingError)


# What aiohttp must not do


async def _no_second_sending(request: aiohttp.ClientRequest, handler: Any) -> Any:
    try:
        return await handler(request)
    except aiohttp.ClientConnectorError:
        raise
    except (aiohttp.ClientOSError, aiohttp.ServerDisconnectedError) as error:
        lost = Lost(reason(error))
    raise lost


def _has_proxy(lender: aiohttp.ClientSession, url: URL) -> bool:
    """Return whether *lender* would send to *url* through a proxy."""
    # aiohttp has no public name for it. A test checks that this one still exists.
    if getattr(lender, "_default_proxy", None) is not None:
        return True
    return lender.trust_env and url.scheme in getproxies() and not proxy_bypass(str(url.host))


_CLOSED: Final = getattr(select, "POLLRDHUP", 0)  # where the system has it, as Linux does
_under_way: ContextVar[Attempt] = ContextVar("integration_sdk_attempt")
_used: Final[WeakSet[Any]] = WeakSet()
"""The connections that have carried a request."""


class _NotedRequest(aiohttp.ClientRequest):
    """Sets ``may_have_left`` before writing: it has a connection, and no byte is sent yet.

    If anything has arrived on an idle connection, such as a load balancer's 408, aiohttp would
    take it for the answer to this request, and the answer for that to the next. One that the
    service has closed is not used either, even if the event loop has not heard of it yet.
    """

    def send(self, conn: Connection) -> Coroutine[Any, Any, aiohttp.ClientResponse]:
        attempt, protocol = _under_way.get(), conn.protocol
        was_idle = protocol in _used
        if protocol is None or protocol.should_close or _is_closed(conn.transport):
            raise Unusable(was_idle=was_idle)
        _used.add(protocol)
        attempt.reuses = was_idle
        attempt.may_have_left = True  # no await from here to the first byte
        return super().send(conn)


def _is_closed(transport: asyncio.Transport | None) -> bool:
    """Whether the peer has closed the connection, as the operating system knows before asyncio."""
    socket = transport.get_extra_info("socket") if transport is not None else None
    if socket is None or not _CLOSED:
        return False
    poll = select.poll()
    poll.register(socket.fileno(), _CLOSED)
    return bool(poll.poll(0))


@define(eq=False)
class AiohttpTransport:
    """Sends requests to one service with aiohttp.

    Args:
        base_url: The service's URL, checked, without a trailing slash.
        api_key: The API key.
        lender: The user's own session. Its connector, headers and trace configs are used, but
            not its cookies or credentials. It is never closed here.
        middlewares: Run inside our own middleware.
        trace_configs: Used in addition to those of *lender*.

    The other arguments are those of `Client`.
    """

    base_url: str
    _api_key: ApiKey
    _connections: int = field(kw_only=True, default=CONNECTIONS)
    _proxy: URL | None = field(kw_only=True, default=None, repr=False)  # it may hold a password
    _ssl: ssl.SSLContext | bool = field(kw_only=True, default=True)
    _lender: aiohttp.ClientSession | None = field(kw_only=True, default=None)
    _middlewares: Sequence[aiohttp.ClientMiddlewareType] = field(kw_only=True, default=())
    _trace_configs: Sequence[aiohttp.TraceConfig] = field(kw_only=True, default=())
    _sessions: dict[Safety, aiohttp.ClientSession] = field(init=False, factory=dict)
    _retired: list[aiohttp.ClientSession] = field(init=False, factory=list)
    """For writes, until one was lost on a connection that had been idle."""

    @_ssl.validator
    def _is_a_context(self, _: object, given: object) -> None:
        if not isinstance(given, ssl.SSLContext | bool):
            raise ConfigurationError(f"ssl must be an ssl.SSLContext, True or False, not {given!r}")

    @_lender.validator
    def _can_be_used(self, _: object, lender: object) -> None:
        if lender is None:
            return
        if not isinstance(lender, aiohttp.ClientSession):
            raise ConfigurationError(
                f"session must be an aiohttp.ClientSession, or None, not {lender!r}"
            )
        if self._ssl is not True or self._connections != CONNECTIONS:
            raise ConfigurationError(
                "ssl= and connections= have no effect on a session of your own; give them to its "
                "connector: aiohttp.TCPConnector(ssl=..., limit=...)"
            )
        if self._proxy is None and _has_proxy(lender, URL(self.base_url)):
            raise ConfigurationError(
                "the session has a proxy, which aiohttp does not hand on; pass it to Client as "
                "well: Client(session=..., proxy=...)"
            )

    @_middlewares.validator
    def _are_callable(self, _: object, given: object) -> None:
        if not (isinstance(given, Collection) and all(map(callable, given))):
            raise ConfigurationError(f"middlewares must be a list of functions, not {given!r}")

    @_trace_configs.validator
    def _are_trace_configs(self, _: object, given: object) -> None:
        kind = aiohttp.TraceConfig
        if not (isinstance(given, Collection) and all(isinstance(one, kind) for one in given)):
            raise ConfigurationError(
                f"trace_configs must be a list of aiohttp.TraceConfig, not {given!r}"
            )

    # Connections

    def open(self) -> None:
        """Create the sessions. Connections are opened by the first requests.

        Raises:
            ClientClosed: The user's own session is closed, or belongs to another loop.
        """
        if self._lender is not None:
            session = self._borrow(self._lender)
            self._sessions = {Safety.READ: session, Safety.WRITE: session}
            return
        for safety, idle in ((Safety.READ, READ_IDLE), (Safety.WRITE, WRITE_IDLE)):
            self._sessions[safety] = self._own_session(keepalive_timeout=idle)

    def _own_session(self, **keeping: Any) -> aiohttp.ClientSession:
        connector = aiohttp.TCPConnector(limit=self._connections, ssl=self._ssl, **keeping)
        return self._make_session(connector, owned=True)

    def _keep_no_idle_writes(self) -> None:
        """Open a connection for each write from now on.

        The service has closed one just when it was used again, and the next would be in doubt too.
        """
        if self._lender is None and not self._retired:
            self._retired.append(self._sessions[Safety.WRITE])
            self._sessions[Safety.WRITE] = self._own_session(force_close=True)

    def _borrow(self, lender: aiohttp.ClientSession) -> aiohttp.ClientSession:
        if lender.connector is None or lender.connector.closed:
            raise ClientClosed("the aiohttp session given to the client is closed")
        try:
            return self._make_session(lender.connector, owned=False)
        except RuntimeError:
            reason = "the aiohttp session given to the client belongs to another event loop"
        raise ClientClosed(reason)

    def _make_session(
        self, connector: aiohttp.BaseConnector, *, owned: bool
    ) -> aiohttp.ClientSession:
        lent_traces = self._lender.trace_configs if self._lender is not None else []
        return aiohttp.ClientSession(
            connector=connector,
            connector_owner=owned,
            loop=asyncio.get_running_loop(),
            cookie_jar=aiohttp.DummyCookieJar(),
            headers=None if self._proxy else self._headers(),  # a proxy would be shown them
            timeout=_timeouts(None),
            proxy=self._proxy,
            trust_env=False,
            trace_configs=[*lent_traces, *self._trace_configs],
            request_class=_NotedRequest,
            middlewares=(_no_second_sending, *self._middlewares),
        )

    def _headers(self) -> dict[str, str]:
        lent = self._lender.headers if self._lender is not None else {}
        return {
            **{name: value for name, value in lent.items() if name.lower() not in NOT_INHERITED},
            hdrs.ACCEPT: "application/json",
            hdrs.USER_AGENT: f"integration-sdk/{__version__}",
        }

    def _headers_of(self, request: Request, authorization: Hidden) -> dict[str, str]:
        headers = {**request.headers, hdrs.AUTHORIZATION: authorization}
        if request.body is not None:
            headers[hdrs.CONTENT_TYPE] = request.content_type
        return self._headers() | headers if self._proxy else headers

    async def close(self) -> None:
        """Close the sessions; the user's own session and its connector stay open.

        All of them are closed even if this is cancelled time and again, as anyio's scopes do.
        """
        sessions = {*self._sessions.values(), *self._retired}
        self._sessions, self._retired = {}, []
        async with AsyncExitStack() as closing:
            for session in sessions:
                closing.push_async_callback(session.close)

    # One attempt

    async def send(self, attempt: Attempt, authorization: Hidden) -> Reply:
        """Send once. An exception of aiohttp is returned as a `Failure` without headers."""
        request = attempt.request
        session = self._sessions[request.safety]
        if session.closed:
            raise ClientClosed("the aiohttp session under the client was closed")
        token = _under_way.set(attempt)
        try:
            answer = await self._answer(session, attempt, authorization)
            try:
                return await self._read(request, answer)
            finally:
                answer.release()  # closes the connection, if anything is left to read
        except (*ERRORS, asyncio.CancelledError) as error:
            if isinstance(error, asyncio.CancelledError) and current_task_cancelled():
                raise
            if isinstance(error, Lost) and attempt.reuses and request.safety is Safety.WRITE:
                self._keep_no_idle_writes()
            return failure(
                request,
                error,
                may_have_left=attempt.may_have_left,
                service=URL(self.base_url),
                proxy=self._proxy,
            )
        finally:
            _under_way.reset(token)

    async def _answer(
        self, session: aiohttp.ClientSession, attempt: Attempt, authorization: Hidden
    ) -> aiohttp.ClientResponse:
        """Send over the first connection of the pool that is still open, or a new one."""
        request = attempt.request
        while True:
            try:
                return await session.request(
                    request.method,
                    _url(self.base_url + request.target),
                    data=_payload(request.body),
                    headers=self._headers_of(request, authorization),
                    allow_redirects=False,
                    raise_for_status=False,
                    timeout=_timeouts(attempt.read_timeout, by_proxy=self._proxy is not None),
                    trace_request_ctx=attempt,
                    skip_auto_headers=_not_to_add(request),
                )
            except Unusable as error:
                # Ends: each time the pool has one connection less.
                if not error.was_idle or attempt.may_have_left:
                    raise

    async def _read(self, request: Request, answer: aiohttp.ClientResponse) -> Response | Failure:
        is_error = answer.status >= 400
        limit = min(ERROR_LIMIT, request.body_limit) if is_error else request.body_limit
        body, is_whole = await _read_capped(answer, limit)
        if not is_whole and not is_error:
            return too_large(request, limit)
        if isinstance(body, bytes) and len(body) <= ERROR_LIMIT:  # others would take too long
            shortest = SHORTEST_IN_ERRORS if is_error else SHORTEST_IN_DATA
            body = self._api_key.redact(body, shortest=shortest)
        headers: Mapping[str, str] = answer.headers
        if hdrs.LOCATION in headers:
            headers = self._masked(answer)
        return Response(status=answer.status, headers=headers, body=body, received_at=time.time())

    def _masked(self, answer: aiohttp.ClientResponse) -> Mapping[str, str]:
        """Return the headers of a redirect, the target of which errors quote, without the key."""
        headers = answer.headers.copy()
        to = unquote(headers[hdrs.LOCATION]).encode(errors="replace")
        headers[hdrs.LOCATION] = self._api_key.redact(to, shortest=SHORTEST_IN_ERRORS).decode()
        return headers


@lru_cache(maxsize=256)
def _url(text: str) -> URL:
    return URL(text, encoded=True)


@lru_cache(maxsize=8)
def _timeouts(read_timeout: float | None, *, by_proxy: bool = False) -> aiohttp.ClientTimeout:
    """Return aiohttp's time-outs; it would wait for a proxy's tunnel without any of its own."""
    return aiohttp.ClientTimeout(
        total=None,
        connect=read_timeout if by_proxy else None,
        sock_connect=CONNECT_TIMEOUT,
        sock_read=read_timeout,
    )


def _payload(body: bytes | None) -> bytes | BytesIO | None:
    """Return a large *body* as a file, since aiohttp warns about large bytes objects."""
    return BytesIO(body) if body is not None and len(body) >= LARGE else body


def _not_to_add(request: Request) -> tuple[str, ...] | None:
    """Return the headers that aiohttp must not add: no content type for a write without a body.

    It adds none to reads, where passing this would cost 2 us a call.
    """
    return (hdrs.CONTENT_TYPE,) if request.body is None and request.safety is Safety.WRITE else None


async def _read_capped(
    answer: aiohttp.ClientResponse, limit: int
) -> tuple[bytes | list[bytes], bool]:
    """Return up to *limit* decompressed bytes, in pieces if large, and whether that is all."""
    if answer.content.at_eof():  # it is empty, or a middleware has read it
        body = await answer.read()
        return body[:limit], len(body) <= limit
    pieces, size = list[bytes](), 0
    while not answer.content.at_eof():
        piece = await answer.content.readany()
        size += len(piece)
        if size > limit:
            pieces.append(piece[: limit - size])
            return b"".join(pieces), False
        pieces.append(piece)
    if len(pieces) == 1:
        return pieces[0], True
    return (b"".join(pieces) if size < LARGE else pieces), True


# What a failure means. aiohttp's errors hold the request's headers, so nothing of them is passed on
# but their class and the operating system's words.


def failure(
    request: Request, error: BaseException, *, may_have_left: bool, service: URL, proxy: URL | None
) -> Failure:
    """Return what *error*, raised by aiohttp, says about an attempt to send *request*."""
    why = str(error) if isinstance(error, Lost | Unusable) else reason(error)
    # Until then only the proxy was spoken to, and its refusal may be any of these errors.
    if not may_have_left and (proxy or isinstance(error, _NEVER_LEFT)):
        where = _no_way(error, why, service, proxy)
        not_sent = NotSent(f"{request} was not sent: {where}", **request.facts)
        untrusted = isinstance(error, aiohttp.ClientConnectorCertificateError)
        return Failure(Phase.NEVER_LEFT, not_sent, repeatable=not untrusted)
    if isinstance(error, _MALFORMED):
        message = f"{request} was answered by something that is not HTTP ({why})"
        return Failure(Phase.MAY_HAVE_LEFT, _unread(MalformedResponse, request, message))
    return Failure(Phase.MAY_HAVE_LEFT, lost(request, why))


def _no_way(error: BaseException, why: str, service: URL, proxy: URL | None) -> str:
    """Return what could not be reached, why, and what to check."""
    if proxy is not None and not isinstance(error, aiohttp.ClientSSLError):
        return f"no way through the proxy {proxy.host}:{proxy.port} ({why}). Check proxy=."
    todo = "Check base_url= and the network."
    untrusted = getattr(error, "certificate_error", None)
    if getattr(untrusted, "verify_code", None) in _UNKNOWN_ISSUER:
        todo = "For a private CA pass ssl=ssl.create_default_context(cafile=...)."
    host, port = service.host, service.port
    if proxy is not None:  # TLS has failed: with the proxy, or through it with the service
        host, port = getattr(error, "host", host), getattr(error, "port", port)
    return f"no connection to {host}:{port} ({why}). {todo}"


def lost(request: Request, why: str, *, attempts: int = 0) -> AnswerLost:
    """Return the error of a request that may have been sent and has no answer."""
    message = f"{request} was sent, but its answer was lost: {why}"
    return _unread(
        AnswerLost, request, message, attempts=attempts, otherwise=". It can be repeated."
    )


def too_large(request: Request, limit: int) -> Failure:
    """Return the failure of an answer of more than *limit* bytes."""
    message = f"{request} was answered by more than {limit:,} bytes; the rest was not read"
    error = _unread(ResponseTooLarge, request, message, limit=limit)
    return Failure(Phase.MAY_HAVE_LEFT, error, repeatable=False)


def _unread(
    kind: type[_Error], request: Request, message: str, *, otherwise: str = "", **facts: Any
) -> _Error:
    """Return the error of a request that was sent; *otherwise* is what is said of a read."""
    in_doubt = request.safety is Safety.WRITE
    advice = f". {LOOK}" if in_doubt else otherwise
    return kind(f"{message}{advice}", in_doubt=in_doubt, **request.facts, **facts)


def reason(error: BaseException) -> str:
    """Return the reason without any text from the peer, since that may contain the key."""
    if isinstance(error, aiohttp.ClientHttpProxyError):
        return f"the proxy answered {error.status}"
    if isinstance(error, aiohttp.SocketTimeoutError):
        return "the service fell silent (read_timeout=)"
    cause = getattr(error, "os_error", None) or error
    words = getattr(cause, "strerror", None)
    return f"{type(error).__name__}: {words}" if words else type(error).__name__
