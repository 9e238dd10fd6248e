"""Sends requests on aiohttp's connections without ``aiohttp.ClientSession.request``.

aiohttp's connector opens and keeps the connections, and aiohttp's parser reads the answers. What
a session does around that is left out, since this SDK has no use for it: cookies, redirects,
retries, timers. It is more than half of what a small call costs::

    python -m benchmarks call_overhead

Whoever watches aiohttp's requests, with a trace config or by replacing ``ClientSession.request``
or ``_request`` as aioresponses does, has to see ours too; `must_use_session` tells. Then a session
sends them, and also those with large bodies, since only its writer can stop halfway.
"""

from __future__ import annotations

import asyncio
import re
from collections.abc import Callable, Mapping
from inspect import signature
from types import FunctionType
from typing import Any, Final, Self

import aiohttp
from aiohttp import hdrs
from aiohttp.client_proto import ResponseHandler
from aiohttp.connector import Connection
from aiohttp.http import RawResponseMessage
from attrs import define
from yarl import URL

from integration_sdk._sansio.requests import Request
from integration_sdk._session.failures import Unasked

WITHOUT_BODY: Final = frozenset({hdrs.METH_GET, hdrs.METH_HEAD, hdrs.METH_OPTIONS})
"""Methods that are sent without a Content-Length if there is no body."""
HOW_TO_READ: Final[Mapping[str, Any]] = {
    "read_until_eof": True,
    "auto_decompress": True,
    "read_bufsize": 1024 * 1024,  # answers are consumed at once; a small buffer would only pause
}
"""Arguments of `ResponseHandler.set_response_params`."""

LARGEST_BODY: Final = 64 * 1024
"""Maximum bytes of a body that is sent here, in one piece."""
_BREAKS: Final = re.compile("[\x00-\x1f\x7f\ud800-\udfff]")

_public: Final = aiohttp.ClientSession.request
_request: Final = aiohttp.ClientSession._request
_request_is_unpatched: Final = (
    type(_request) is FunctionType
    and _request.__code__.co_filename == aiohttp.ClientSession.close.__code__.co_filename
)
_response_params_are_known: Final = {"skip_payload", "read_timeout", *HOW_TO_READ} <= set(
    signature(ResponseHandler.set_response_params).parameters
)


def must_use_session(session: aiohttp.ClientSession) -> bool:
    """Return whether *session* has to send: somebody wants to see its requests.

    It also has to if this aiohttp is one whose connections are not known here.
    """
    kind = aiohttp.ClientSession
    is_plain = kind._request is _request and kind.request is _public and not session.trace_configs
    return not (is_plain and _request_is_unpatched and _response_params_are_known)


@define(eq=False)
class UnreadResponse:
    """An answer whose body has not been read yet; used like an `aiohttp.ClientResponse`."""

    status: int
    headers: Mapping[str, str]
    content: aiohttp.StreamReader
    _connection: Connection

    async def read(self) -> bytes:
        """Return the rest of the body."""
        return await self.content.read()

    def release(self) -> None:
        """Keep the connection for other requests, or close it if either side is not done."""
        transport = self._connection.transport
        is_sent = transport is not None and not transport.get_write_buffer_size()
        if is_sent and self.content.at_eof():
            self._connection.release()
        else:
            self._connection.close()


@define(eq=False)
class Wire:
    """Sends requests to one host, over the connections of an aiohttp session."""

    _connector: aiohttp.BaseConnector
    _timeout: aiohttp.ClientTimeout
    _sample: aiohttp.ClientRequest
    _path: str
    _fields: str

    @classmethod
    def of(
        cls, connector: aiohttp.BaseConnector, session: aiohttp.ClientSession, base_url: str
    ) -> Self:
        """Return a wire with the connector of *session*, its headers and time-outs."""
        url = URL(base_url)
        sample = aiohttp.ClientRequest(
            hdrs.METH_GET, url, headers=session.headers, loop=asyncio.get_running_loop()
        )
        fields = "".join(_field(name, value) for name, value in sample.headers.items())
        return cls(connector, session.timeout, sample, url.raw_path.rstrip("/"), fields)

    async def send(
        self,
        request: Request,
        headers: Mapping[str, str],
        may_leave: Callable[[], None],
        read_timeout: float | None,
    ) -> UnreadResponse:
        """Send *request*, and call *may_leave* right before the first byte.

        The answer is lost if no byte of it comes within *read_timeout* seconds, or no further one.

        Raises:
            ClientError, HttpProcessingError, OSError: As in aiohttp.
        """
        connection = await self._connect()
        try:
            protocol, transport = _unspoilt(connection)
            has_no_body = request.method == hdrs.METH_HEAD
            protocol.set_response_params(
                skip_payload=has_no_body, read_timeout=read_timeout, **HOW_TO_READ
            )
            transport.write(self._serialized(request, headers, may_leave))
            if read_timeout is not None:
                protocol.start_timeout()
            message, content = await _first_answer(protocol)
        except BaseException:
            connection.close()
            raise
        return UnreadResponse(message.code, message.headers, content, connection)

    async def _connect(self) -> Connection:
        try:
            return await self._connector.connect(self._sample, [], self._timeout)
        except TimeoutError as error:
            raise aiohttp.ConnectionTimeoutError from error

    def _serialized(
        self, request: Request, headers: Mapping[str, str], may_leave: Callable[[], None]
    ) -> bytes:
        """Return the bytes to write at once, having called *may_leave* at last."""
        target = _in_one_line(self._path + request.target)
        fields = "".join([_field(name, value) for name, value in headers.items()])
        body = request.body
        if body is not None or request.method not in WITHOUT_BODY:
            fields += _field(hdrs.CONTENT_LENGTH, str(len(body or b"")))
        head = f"{request.method} {target} HTTP/1.1\r\n{self._fields}{fields}\r\n".encode()
        may_leave()
        return head if body is None else head + body


def _unspoilt(connection: Connection) -> tuple[ResponseHandler, asyncio.Transport]:
    protocol, transport = connection.protocol, connection.transport
    if protocol is None or transport is None or protocol.should_close:
        raise Unasked
    return protocol, transport


async def _first_answer(
    protocol: ResponseHandler,
) -> tuple[RawResponseMessage, aiohttp.StreamReader]:
    """Return the answer; others of status 1xx may precede it."""
    while True:
        message, content = await protocol.read()
        if not 100 <= message.code < 200 or message.code == 101:
            return message, content


def _field(name: str, value: str) -> str:
    return f"{name}: {_in_one_line(value)}\r\n"


def _in_one_line(text: str) -> str:
    if _BREAKS.search(text):
        raise ValueError(f"{text!r} has a control character and cannot be sent")
    return text
