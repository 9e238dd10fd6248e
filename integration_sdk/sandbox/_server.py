"""The sandbox's HTTP server: turns requests into calls, and answers into bytes or cut connections.

Built on ``aiohttp.web.Server``, without its routes and middlewares: the sandbox has its own, and
benchmarks should not measure both. What is no HTTP gets aiohttp's own answers.
"""

from __future__ import annotations

import asyncio
import logging
import os
from collections.abc import Mapping
from functools import lru_cache
from typing import Any
from urllib.parse import parse_qsl, unquote, urlsplit

from aiohttp import web
from attrs import field, frozen

from integration_sdk.sandbox._call import Answer, Call, Refused, Respond, http_date
from integration_sdk.sandbox._service import Service

LARGEST_BODY = 64 * 2**20
# Connections that wait to be accepted. One more would be refused by silence, and cost its client
# a second until it asks again.
CROWD = 4096
# Longer than any test: the server closes idle connections only if a fault asks for it.
KEEP_ALIVE = 24 * 3600.0
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
    """Serves *respond* on a port of *host*, and remembers the latest requests.

    Attributes:
        seen: The latest requests (up to twice as many as it is to remember, at times).
    """

    def __init__(self, service: Service, respond: Respond, own: Respond) -> None:
        self._service, self._respond, self._own = service, respond, own
        self._remember, self._clock = service.settings.remember, service.clock
        self._runner: web.ServerRunner | None = None
        self._handling: set[asyncio.Task[Any] | None] = set()
        self.seen: list[RecordedRequest] = []
        self.served = self.most_in_flight = 0

    async def start(self, host: str, port: int) -> int:
        """Listen, and return the port; 0 asks for a free one."""
        # aiohttp's annotation of access_log does not know None, which its Server passes on.
        options: dict[str, Any] = {"access_log": None, "keepalive_timeout": KEEP_ALIVE}
        server = web.Server(self._handle, request_factory=_request, **options)
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
        """Close every connection and the port; end what is still done for clients that left."""
        if self._runner is not None:
            runner, self._runner = self._runner, None
            await runner.cleanup()
            for task in self._handling:
                if task is not None:
                    task.cancel()
            # Transports close in the next turns of the loop.
            await asyncio.sleep(0)
            await asyncio.sleep(0)

    async def _handle(self, request: web.BaseRequest) -> web.StreamResponse:
        task = asyncio.current_task()
        self._handling.add(task)
        self.most_in_flight = max(self.most_in_flight, len(self._handling))
        try:
            return await self._serve(request)
        finally:
            self._handling.discard(task)

    async def _serve(self, request: web.BaseRequest) -> web.StreamResponse:
        at, call = self._clock.now(), self._call(request)
        if request.headers.get("Expect", "").lower() == "100-continue":
            await request.writer.write(b"HTTP/1.1 100 Continue\r\n\r\n")
            request.writer.output_size = 0
        try:
            call.body = await request.read() if request.body_exists else b""
            if call.path == "/" or call.segments[:1] == ["_page"]:  # about the sandbox itself
                return await self._send(request, await self._own(call))
            answer = await self._answer(call)
        except ConnectionError:
            return web.Response()  # the request broke off: it is none, and its client has left
        self._note(call, 0 if answer.dropped else answer.status, at)
        return await self._send(request, answer)

    async def _answer(self, call: Call) -> Answer:
        try:
            return await self._respond(call)
        except Exception:
            logger.exception("the sandbox failed on %s %s", call.method, call.path)
            return self._service.refuse(Refused(500))

    def _call(self, request: web.BaseRequest) -> Call:
        target = request.raw_path
        if not target.startswith("/"):
            target = urlsplit(target)._replace(scheme="", netloc="").geturl()
        path, _, query = target.partition("?")
        return Call(
            clock=self._clock,
            method=request.method,
            path=path,
            params=_params(query) if query else (),
            headers=request.headers,
            # A client of the public API ends its paths with a slash.
            segments=[unquote(part) for part in path.removesuffix("/").split("/")[1:]],
        )

    def _note(self, call: Call, status: int, at: float) -> None:
        self.served += 1
        logger.info("%s %s %d", call.method, call.path, status)
        if self._remember:
            query = dict(call.params)
            seen = call.method, call.path, query, call.headers, status, call.body, at
            self.seen.append(RecordedRequest(*seen))
            if len(self.seen) > 2 * self._remember:
                del self.seen[: -self._remember]

    async def _send(self, request: web.BaseRequest, answer: Answer) -> web.StreamResponse:
        if answer.dropped:
            if request.transport is not None:
                request.transport.abort()
            return web.Response()
        headers = {"content-type": answer.content_type, "date": http_date(int(self._clock.now()))}
        if answer.status == 204:
            del headers["content-type"]
        headers |= {name.lower(): value for name, value in answer.headers.items()}
        if answer.cut_at is None or answer.cut_at >= len(answer.body):
            return web.Response(status=answer.status, body=answer.body, headers=headers)
        response = web.StreamResponse(status=answer.status, headers=headers)
        response.content_length = len(answer.body)
        await response.prepare(request)
        await response.write(answer.body[: answer.cut_at])
        if request.transport is not None:
            request.transport.close()
        return response


@lru_cache(maxsize=4096)
def _params(query: str) -> tuple[tuple[str, str], ...]:
    # Pollers repeat the same request.
    return tuple(parse_qsl(query, keep_blank_values=True))


def _request(message: Any, payload: Any, protocol: Any, writer: Any, task: Any) -> web.BaseRequest:
    parts = message, payload, protocol, writer, task, asyncio.get_running_loop()
    return web.BaseRequest(*parts, client_max_size=LARGEST_BODY)
