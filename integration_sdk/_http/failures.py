"""What aiohttp raised becomes a `Failure`: how far the transmission got, and what to tell.

aiohttp's errors hold the request's headers, so nothing of them is passed on but their class and
the operating system's words.
"""

from __future__ import annotations

from typing import Final

import aiohttp
from aiohttp.http import HttpProcessingError
from yarl import URL

from integration_sdk._http.requests import Phase, Request, Safety
from integration_sdk._http.responses import Failure
from integration_sdk.errors import (
    AnswerLost,
    MalformedResponse,
    NotSent,
    ResponseTooLarge,
)


class Lost(Exception):
    """A lost connection; aiohttp does not retry after this exception."""


class Unusable(aiohttp.ClientConnectionError):
    """An idle connection that was closed, or on which something arrived that answers nothing."""

    def __str__(self) -> str:
        return "it had closed the connection, or sent something unasked"


ERRORS: Final = (aiohttp.ClientError, Lost, HttpProcessingError, OSError)
"""What aiohttp raises when a transmission fails. Timeouts are OSErrors; bugs are neither."""
_NEVER_LEFT: Final = (aiohttp.ClientConnectorError, aiohttp.ConnectionTimeoutError, Unusable)
_UNKNOWN_ISSUER: Final = frozenset({2, 18, 19, 20, 21})
"""OpenSSL's codes for it; a certificate may also have expired, or be for another host."""
_MALFORMED: Final = (aiohttp.ClientResponseError, HttpProcessingError)


def failure(
    request: Request, error: BaseException, *, may_have_left: bool, service: URL, proxy: URL | None
) -> Failure:
    """Return what *error*, raised by aiohttp, says about a transmission of *request*."""
    why = str(error) if isinstance(error, Lost | Unusable) else reason(error)
    # Until then only the proxy was spoken to, and its refusal may be any of these errors.
    if not may_have_left and (proxy or isinstance(error, _NEVER_LEFT)):
        where = _no_way(error, why, service, proxy)
        not_sent = NotSent(f"{request} was not sent: {where}", **request.facts)
        untrusted = isinstance(error, aiohttp.ClientConnectorCertificateError)
        return Failure(Phase.NEVER_LEFT, not_sent, repeatable=not untrusted)
    if isinstance(error, _MALFORMED):
        message = f"{request} was answered by something that is not HTTP ({why})"
        return Failure(Phase.MAY_HAVE_LEFT, MalformedResponse(message, **request.facts))
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
    advice = (
        "It may have been carried out; look before you repeat it"
        if request.safety is Safety.WRITE
        else "It can be repeated"
    )
    message = f"{request} was sent, but its answer was lost: {why}. {advice}."
    return AnswerLost(message, attempts=attempts, **request.facts)


def too_large(request: Request, limit: int) -> Failure:
    """Return the failure of an answer of more than *limit* bytes."""
    message = f"{request} was answered by more than {limit:,} bytes; the rest was not read"
    error = ResponseTooLarge(message, limit=limit, **request.facts)
    return Failure(Phase.MAY_HAVE_LEFT, error, repeatable=False)


def reason(error: BaseException) -> str:
    """Return the reason without any text from the peer, since that may contain the key."""
    if isinstance(error, aiohttp.ClientHttpProxyError):
        return f"the proxy answered {error.status}"
    if isinstance(error, aiohttp.SocketTimeoutError):
        return "the service fell silent (read_timeout=)"
    cause = getattr(error, "os_error", None) or error
    words = getattr(cause, "strerror", None)
    return f"{type(error).__name__}: {words}" if words else type(error).__name__
