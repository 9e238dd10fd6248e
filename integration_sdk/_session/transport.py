"""One transmission: a `Request` goes out over aiohttp, a `Response` or a `Failure` comes back.

This is the only file that touches ``aiohttp.ClientSession``. What aiohttp does by itself
and must not do here is stopped here: it re-sends PUT and DELETE after a lost connection,
follows redirects with the key, keeps cookies, reads proxies and passwords from the
environment, unpacks bodies of any size and puts the request's headers into its errors.

Whether a request may have left is known from aiohttp itself, which calls its request's
``send`` with a connection right before the first byte is written. (A trace hook tells the
same and costs 15 us a call.)

Connections for writes are kept apart: a server that closes an idle connection at the
moment it is used again leaves a push in doubt, so pushes go over connections that are
new or were used moments ago.
"""

from __future__ import annotations

import time
from collections.abc import Awaitable, Callable, Sequence
from contextvars import ContextVar
from typing import Any, Final, Protocol

import aiohttp
from aiohttp import hdrs
from aiohttp.connector import Connection
from aiohttp.http import HttpProcessingError
from attrs import define, field, frozen
from yarl import URL

from integration_sdk._sansio.requests import Phase, Request, Safety
from integration_sdk._sansio.responses import Response
from integration_sdk._session.key import ApiKey, Hidden
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

KIB: Final = 1024
ERROR_LIMIT: Final = 64 * KIB
CONNECT_TIMEOUT: Final = 10.0
READ_IDLE: Final = 30.0
"""Seconds that an unused connection is kept for reads."""
WRITE_IDLE: Final = 1.0
"""The same for writes: shorter than any server's own limit that we know of."""
NOT_INHERITED: Final = frozenset({"authorization", "proxy-authorization", "cookie", "host"})

Middleware = Callable[[aiohttp.ClientRequest, Any], Awaitable[aiohttp.ClientResponse]]


@frozen
class Failure:
    """A transmission without a usable answer.

    Attributes:
        phase: How far it got.
        error: What the caller is told if it is not sent again.
        repeatable: Whether another try could end better.
    """

    phase: Phase
    error: TransportError
    repeatable: bool = True


@define
class Transmission:
    """What is known of one transmission while it is under way; trace configs see it.

    Attributes:
        request: What is sent.
        attempt: Counted from 1.
        may_have_left: Whether a byte of it may be on the wire.
    """

    request: Request
    attempt: int
    may_have_left: bool = False

    @property
    def phase(self) -> Phase:
        """How far it got, as long as there is no answer."""
        return Phase.MAY_HAVE_LEFT if self.may_have_left else Phase.NEVER_LEFT


class Carrier(Protocol):
    """What carries one transmission: `Transport`, or a stand-in in tests."""

    def open(self) -> None:
        """Get ready on the running loop."""

    async def send(self, transmission: Transmission, key: Hidden) -> Response | Failure:
        """Send once."""

    async def close(self) -> None:
        """Let go of all connections."""


# What aiohttp must not do


class _Lost(Exception):
    """A lost connection, under a name that aiohttp does not answer by sending again."""


async def _no_second_sending(request: aiohttp.ClientRequest, handler: Any) -> Any:
    try:
        return await handler(request)
    except aiohttp.ClientConnectorError:
        raise
    except (aiohttp.ClientOSError, aiohttp.ServerDisconnectedError) as error:
        lost = _Lost(_reason(error))
    raise lost


_under_way: ContextVar[Transmission] = ContextVar("integration_sdk_transmission")


class _NotedRequest(aiohttp.ClientRequest):
    """Notes that it is about to be written: a connection is there, and no byte has left yet."""

    async def send(self, conn: Connection) -> aiohttp.ClientResponse:
        _under_way.get().may_have_left = True
        return await super().send(conn)


@define(eq=False)
class Transport:
    """Carries requests to one service.

    Args:
        base_url: Checked and without a slash at its end.
        key: What proves who we are.
        connections: Connections at most, for reads and for writes each.
        lender: Somebody's own session: its connector, headers and trace configs are
            used, never its cookies or credentials; it is never closed here.
        connector: What to connect through where nobody lends a session, for reads and
            writes alike; it is never closed here.
        middlewares: Run inside of our own.
        trace_configs: Run beside our own.
        error_limit: Bytes of an error answer that are kept; up to as many, any answer is
            searched for the key.
    """

    base_url: str
    key: ApiKey
    _connections: int = field(kw_only=True, default=100)
    _lender: aiohttp.ClientSession | None = field(kw_only=True, default=None)
    _connector: aiohttp.BaseConnector | None = field(kw_only=True, default=None)
    _middlewares: Sequence[Middleware] = field(kw_only=True, default=())
    _trace_configs: Sequence[aiohttp.TraceConfig] = field(kw_only=True, default=())
    _error_limit: int = field(kw_only=True, default=ERROR_LIMIT)
    _sessions: dict[Safety, aiohttp.ClientSession] = field(init=False, factory=dict)

    @_lender.validator
    def _is_a_session(self, _: object, lender: object) -> None:
        if not isinstance(lender, aiohttp.ClientSession | None):
            raise ConfigurationError(
                f"session must be an aiohttp.ClientSession, or None, not {lender!r}"
            )

    # Connections

    def open(self) -> None:
        """Make the sessions; connections follow with the first requests.

        Raises:
            ClientClosed: The session or connector that was given is closed, or belongs to
                another loop.
        """
        if self._lender is not None or self._connector is not None:
            session = self._borrow()
            self._sessions = {Safety.READ: session, Safety.WRITE: session}
            return
        self._sessions = {
            safety: self._make_session(
                aiohttp.TCPConnector(limit=self._connections, keepalive_timeout=idle), owned=True
            )
            for safety, idle in ((Safety.READ, READ_IDLE), (Safety.WRITE, WRITE_IDLE))
        }

    def _borrow(self) -> aiohttp.ClientSession:
        lent = self._connector if self._lender is None else self._lender.connector
        if lent is None or lent.closed:
            raise ClientClosed("the aiohttp session or connector given to the client is closed")
        try:
            return self._make_session(lent, owned=False)
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
            cookie_jar=aiohttp.DummyCookieJar(),
            headers=self._headers(),
            timeout=aiohttp.ClientTimeout(total=None, sock_connect=CONNECT_TIMEOUT),
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

    async def close(self) -> None:
        """Close what is ours."""
        sessions, self._sessions = set(self._sessions.values()), {}
        for session in sessions:
            await session.close()

    # One transmission

    async def send(self, transmission: Transmission, key: Hidden) -> Response | Failure:
        """Send once; what aiohttp raises comes back as a value, without its headers."""
        request = transmission.request
        session = self._sessions[request.safety]
        if session.closed:
            raise ClientClosed("the aiohttp session under the client was closed")
        token = _under_way.set(transmission)
        try:
            answer = await session.request(
                request.method,
                URL(self.base_url + request.target, encoded=True),
                data=request.body,
                headers=_own_headers(request, key),
                allow_redirects=False,
                raise_for_status=False,
                trace_request_ctx=transmission,
                skip_auto_headers=_not_to_add(request),
            )
            try:
                return await self._read(request, answer)
            finally:
                answer.release()  # closes the connection, if anything is left to read
        except _ERRORS as error:
            return _failure(transmission, error)
        finally:
            _under_way.reset(token)

    async def _read(self, request: Request, answer: aiohttp.ClientResponse) -> Response | Failure:
        is_error = answer.status >= 400
        limit = min(self._error_limit, request.body_limit) if is_error else request.body_limit
        body, is_whole = await _read_capped(answer, limit)
        if not is_whole and not is_error:
            return _too_large(request, limit)
        if len(body) <= self._error_limit:  # a page would take a millisecond to search
            body = self.key.redact(body)
        return Response(
            status=answer.status, headers=answer.headers, body=body, received_at=time.time()
        )


def _own_headers(request: Request, key: Hidden) -> dict[str, str]:
    headers = {**request.headers, hdrs.AUTHORIZATION: key}
    if request.body is not None:
        headers[hdrs.CONTENT_TYPE] = request.content_type
    return headers


def _not_to_add(request: Request) -> tuple[str, ...] | None:
    """Without a body there is no content type. To tell the session so costs 2 us a call."""
    return (hdrs.CONTENT_TYPE,) if request.body is None and request.safety is Safety.WRITE else None


async def _read_capped(answer: aiohttp.ClientResponse, limit: int) -> tuple[bytes, bool]:
    """Return up to *limit* bytes, unpacked, and whether that is all of them."""
    pieces, size = [], 0
    while not answer.content.at_eof():
        piece = await answer.content.readany()
        size += len(piece)
        if size > limit:
            pieces.append(piece[: limit - size])
            return b"".join(pieces), False
        pieces.append(piece)
    return (pieces[0] if len(pieces) == 1 else b"".join(pieces)), True


# Failures


_ERRORS: Final = (aiohttp.ClientError, _Lost, HttpProcessingError, OSError)
"""What aiohttp raises of its own accord. Time-outs are OSErrors; bugs are neither."""
_NEVER_LEFT: Final = (aiohttp.ClientConnectorError, aiohttp.ConnectionTimeoutError)
_MALFORMED: Final = (aiohttp.ClientResponseError, HttpProcessingError)


def _failure(transmission: Transmission, error: Exception) -> Failure:
    request = transmission.request
    call = f"{request.method} {request.path}"
    facts: dict[str, Any] = {"method": request.method, "path": request.path}
    why = str(error) if isinstance(error, _Lost) else _reason(error)
    if isinstance(error, _NEVER_LEFT) and not transmission.may_have_left:
        return Failure(Phase.NEVER_LEFT, NotSent(f"{call} was not sent: {why}", **facts))
    if isinstance(error, _MALFORMED):
        message = f"{call} was answered by something that is no HTTP ({why})"
        return Failure(Phase.MAY_HAVE_LEFT, MalformedResponse(message, **facts))
    return Failure(Phase.MAY_HAVE_LEFT, lost(request, why))


def lost(request: Request, why: str, *, attempts: int = 0) -> AnswerLost:
    """Return the error of a request that may have left and has no answer."""
    advice = (
        "It may have been carried out; look before you repeat it"
        if request.safety is Safety.WRITE
        else "It can be repeated"
    )
    call = f"{request.method} {request.path}"
    return AnswerLost(
        f"{call} was sent, but its answer was lost: {why}. {advice}.",
        method=request.method,
        path=request.path,
        attempts=attempts,
    )


def _too_large(request: Request, limit: int) -> Failure:
    call = f"{request.method} {request.path}"
    message = f"{call} was answered by more than {limit:,} bytes; the rest was not read"
    facts: dict[str, Any] = {"method": request.method, "path": request.path, "limit": limit}
    return Failure(Phase.MAY_HAVE_LEFT, ResponseTooLarge(message, **facts), repeatable=False)


def _reason(error: Exception) -> str:
    """Return why, in words of ours and the operating system's: a peer's text may hold the key."""
    cause = getattr(error, "os_error", None) or error
    words = getattr(cause, "strerror", None)
    return f"{type(error).__name__}: {words}" if words else type(error).__name__
