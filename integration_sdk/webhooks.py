"""Receive "Push status changed" notifications, so that the client polls less.

Create a `Receiver` and mount it at the URL that the service posts to::

    async with Client(notified=True) as client, client.coordinator() as pushes:
        receiver = Receiver(client.notify, secrets=[os.environ["WEBHOOK_SECRET"]])

        app.router.add_post("/pushes", receiver.aiohttp)   # aiohttp.web
        app.mount("/pushes", receiver.asgi)                # Starlette, FastAPI: at /pushes/

A notification makes the client poll that push now; the API's answer decides. A notification
for an unknown push makes coordinators search for pushes whose answers were lost. Polling remains
as a fallback, so nothing depends on a notification arriving. With ``notified=True`` polling waits
for notifications from the start; otherwise only after some have arrived.

If several processes share that URL, each notification reaches only one of them, perhaps not the
one that waits. Give the receiver a function that sends the key to all of them, for example through
Redis, and call ``client.notify(key)`` in each. A process that gets only some notifications polls
for the rest. One that gets most of them relies on them, and may see the end of the others up to a
minute late.

A server that is shutting down receives no notifications, so it may notice the end of a push up to
a minute late, or two seconds before the end of a wait. To stop sooner, use a timeout in handlers,
as in ``client.wait(operation, timeout=5)``, and give the coordinator a journal and
``leave="detach"``: the next run then continues with the open pushes.

The sender gets an empty answer at once: 204 if the delivery is accepted (including duplicates and
events that are not about pushes), 401 without a valid signature or authorization, 400 if it is too
large or not a JSON object. The reason is logged to ``integration_sdk.webhooks``.
"""

from __future__ import annotations

import asyncio
import logging
import math
import time
from collections.abc import (
    AsyncIterator,
    Awaitable,
    Callable,
    Iterable,
    Mapping,
    MutableMapping,
    Sequence,
)
from inspect import iscoroutinefunction
from typing import TYPE_CHECKING, Any

from integration_sdk import _checks
from integration_sdk._notifications import Inbox, Notification, Verdict, signer
from integration_sdk.errors import ConfigurationError

if TYPE_CHECKING:
    from aiohttp import web

__all__ = ["Notification", "Receiver"]

logger = logging.getLogger(__name__)

Message = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[Message]]
Send = Callable[[Message], Awaitable[None]]
AsgiApp = Callable[[Mapping[str, Any], Receive, Send], Awaitable[None]]


class Receiver:
    """An endpoint for notifications, for aiohttp.web, ASGI and any other framework.

    Args:
        notify: Called with the key of the push, on the running loop, at most once for each
            notification; usually ``client.notify``. It must not block.
        secrets: Standard Webhooks secrets, ``whsec_...``; several during a rotation.
        authorization: Accepted values of the ``Authorization`` header, as configured at the
            service; several during a rotation. With *secrets* as well, either is enough.
        allow_unverified: True to accept notifications from anybody, without *secrets* and
            *authorization*.
        tolerance: Seconds by which a signed timestamp may be off.
        max_body: Maximum size of a notification in bytes.
        remembers: Number of notification ids to keep, to detect duplicates.
        clock: Returns the time, in seconds since 1970.

    Raises:
        ConfigurationError: There is nothing to verify senders with, a secret is malformed,
            *notify* is a coroutine function, or a number is invalid.

    Source: "Events". Assumed: signatures and shapes are those the service publishes.
    """

    def __init__(
        self,
        notify: Callable[[str], object],
        *,
        secrets: str | Sequence[str] = (),
        authorization: str | Sequence[str] = (),
        allow_unverified: bool = False,
        tolerance: float = 300.0,
        max_body: int = 262_144,
        remembers: int = 10_000,
        clock: Callable[[], float] = time.time,
    ) -> None:
        if not _is_plain(notify):
            raise ConfigurationError("notify must be a plain function; it is not awaited")
        shared = _listed("authorization", authorization)
        signers = [signer(secret) for secret in _listed("secrets", secrets)]
        _checks.true_or_false("allow_unverified", allow_unverified)
        if bool(signers or shared) is allow_unverified:
            raise ConfigurationError(
                "pass secrets=[...] or authorization=[...] to verify notifications, "
                "or allow_unverified=True to accept them from anybody"
            )
        # With NaN no timestamp would be too old.
        if not (_checks.is_number(tolerance) and 0 <= tolerance < math.inf):
            raise ConfigurationError(f"tolerance must be 0 seconds or more, not {tolerance!r}")
        _checks.whole_number("max_body", max_body, 1, 2**31 - 1)
        _checks.whole_number("remembers", remembers, 0, 2**31 - 1)
        self._inbox = Inbox(signers, shared, tolerance=tolerance, remembers=remembers)
        self._notify = notify
        self._max_body = max_body
        self._clock = clock

    async def aiohttp(self, request: web.Request) -> web.Response:
        """Handler for ``aiohttp.web``: ``router.add_post(path, receiver.aiohttp)``."""
        from aiohttp import web  # noqa: PLC0415 - an ASGI receiver needs no aiohttp.web

        try:
            body = await self._collect(request.content.iter_any())
        except (web.RequestPayloadError, OSError):  # malformed, or the sender hung up
            body = None
        return web.Response(status=self._answer(request.headers, body))

    @property
    def asgi(self) -> AsgiApp:
        """The receiver as an ASGI application: mount it, or run it with any ASGI server.

        It is a function because servers mistake a bound method for an ASGI 2 application.
        """

        async def app(scope: Mapping[str, Any], receive: Receive, send: Send) -> None:
            if scope["type"] == "http":
                status = await self._answer_asgi(scope, receive)
                headers = [(b"allow", b"POST")] if status == 405 else []
                await send({"type": "http.response.start", "status": status, "headers": headers})
                await send({"type": "http.response.body", "body": b""})
            elif scope["type"] == "lifespan":
                await _live(receive, send)
            elif scope["type"] == "websocket":
                await send({"type": "websocket.close"})
            else:
                raise ConfigurationError(f"a webhook receiver accepts HTTP, not {scope['type']}")

        return app

    async def _answer_asgi(self, scope: Mapping[str, Any], receive: Receive) -> int:
        if scope["method"] != "POST":
            return 405
        headers = {_text(name): _text(value) for name, value in scope["headers"]}
        return self._answer(headers, await self._collect(_pieces(receive)))

    def receive(self, headers: Mapping[str, str], body: bytes) -> int:
        """Handle one delivery and return the HTTP status to answer, for any other framework.

        Call it on the event loop; it does no I/O.
        """
        named = {name.lower(): value for name, value in headers.items()}
        verdict = self._inbox.judge(named, body, now=self._clock())
        logger.log(_level(verdict), "notification answered %d: %s", verdict.status, verdict.reason)
        if verdict.notification is not None:
            # Called by the loop, so that an exception in notify does not fail the request.
            asyncio.get_running_loop().call_soon(self._notify, verdict.notification.key)
        return verdict.status

    def _answer(self, headers: Mapping[str, str], body: bytes | None) -> int:
        if body is None:
            logger.warning("notification answered 400: cut off, or over %d bytes", self._max_body)
            return 400
        return self.receive(headers, body)

    async def _collect(self, pieces: AsyncIterator[bytes]) -> bytes | None:
        """Return the body; None as soon as it is too large."""
        body = bytearray()
        async for piece in pieces:
            body += piece
            if len(body) > self._max_body:
                return None
        return bytes(body)


def _level(verdict: Verdict) -> int:
    return logging.DEBUG if verdict.status < 400 else logging.WARNING


def _is_plain(notify: object) -> bool:
    return callable(notify) and not any(map(iscoroutinefunction, (notify, type(notify).__call__)))


def _listed(name: str, values: Any) -> tuple[str, ...]:
    several = isinstance(values, Iterable) and not isinstance(values, str)
    listed = tuple(values) if several else (values,)
    # An empty value would match a missing header.
    if not all(isinstance(value, str) and value for value in listed):
        raise ConfigurationError(
            f"{name} has a value that is empty or not a str; is its environment variable set?"
        )
    return listed


def _text(header: bytes) -> str:
    return header.decode(errors="surrogateescape")  # as aiohttp does


async def _pieces(receive: Receive) -> AsyncIterator[bytes]:
    """Yield the body of an ASGI request until it ends or the sender hangs up."""
    more = True
    while more:
        message = await receive()
        yield message.get("body", b"")
        more = message.get("more_body", False)


async def _live(receive: Receive, send: Send) -> None:
    """Answer the lifespan messages of an ASGI server; there is nothing to start or stop."""
    for _ in ("startup", "shutdown"):
        message = await receive()
        await send({"type": f"{message['type']}.complete"})
