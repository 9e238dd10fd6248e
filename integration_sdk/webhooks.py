"""Receive "Push status changed" instead of only polling.

Give a `Receiver` what is to be woken and mount it where the service posts::

    async with Client(notified=True) as client, client.coordinator() as pushes:
        receiver = Receiver(client.notify, secrets=[os.environ["WEBHOOK_SECRET"]])

        app.router.add_post("/pushes", receiver.aiohttp)   # aiohttp.web
        app.mount("/pushes", receiver.asgi)                # Starlette, FastAPI: at /pushes/

A notification wakes the poll of that push; the API's answer decides. If nobody is waiting for
the push, coordinators look for pushes whose answers were lost. Polling continues as a fallback,
so nothing depends on a notification arriving. With ``notified=True`` polling waits for
notifications from the start; otherwise it learns from the first ones.

The sender gets an empty answer at once: 204 when the delivery is taken (also if it is
a repetition or about no push), 401 without a valid proof of origin, 400 for what is no
JSON object or too large. The reason goes to the logger ``integration_sdk.webhooks``.
"""

from __future__ import annotations

import asyncio
import logging
import re
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, MutableMapping, Sequence
from datetime import UTC, datetime
from inspect import iscoroutinefunction
from typing import TYPE_CHECKING, Any

from integration_sdk._sansio.notifications import Inbox, Notification, Sign, Verdict
from integration_sdk.errors import ConfigurationError

if TYPE_CHECKING:
    from aiohttp import web

__all__ = ["Notification", "Receiver"]

logger = logging.getLogger(__name__)

Message = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[Message]]
Send = Callable[[Message], Awaitable[None]]
AsgiApp = Callable[[Mapping[str, Any], Receive, Send], Awaitable[None]]
_SECRET = re.compile(r"(whsec_)?([A-Za-z0-9+/]{4})*[A-Za-z0-9+/]{2,4}={0,2}")


class Receiver:
    """An endpoint that wakes a push's waiters when the service says it changed.

    Args:
        notify: Called with the push's key on the running loop after the answer is
            decided, at most once for each notification; usually ``client.notify``. It must
            not block.
        secrets: Standard Webhooks secrets, ``whsec_...``; several while they are rotated.
            Needs the extra ``webhooks``.
        authorization: Values of the ``Authorization`` header, as given to the service
            with the rule; several while they are changed. One valid proof is enough.
        allow_unverified: Believe every sender. Needed if there is no proof to check.
        tolerance: Seconds by which a signed timestamp may be off.
        max_body: Bytes of body above which a delivery is refused.
        remembers: Notification ids kept to recognise repetitions.
        clock: Seconds since 1970.

    Raises:
        ConfigurationError: No proof to check and not *allow_unverified*, an unreadable
            secret, the extra is not installed, or *notify* is no plain callable.

    Source: "Events". Assumed: proofs and shapes are those the service publishes.
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
            raise ConfigurationError("notify is called, not awaited: give a plain function")
        shared = _listed("authorization", authorization)
        signers = [_signer(secret) for secret in _listed("secrets", secrets)]
        if bool(signers or shared) is allow_unverified:
            raise ConfigurationError(
                "give secrets=[...] or authorization=[...] to check notifications by, "
                "or else allow_unverified=True to believe every sender"
            )
        self._inbox = Inbox(signers, shared, tolerance=tolerance, remembers=remembers)
        self._notify = notify
        self._max_body = max_body
        self._clock = clock

    async def aiohttp(self, request: web.Request) -> web.Response:
        """Answer as a handler of ``aiohttp.web``: ``router.add_post(path, receiver.aiohttp)``."""
        from aiohttp import web  # noqa: PLC0415 - an ASGI receiver needs no aiohttp.web

        try:
            body = await self._collect(request.content.iter_any())
        except (web.RequestPayloadError, OSError):  # sent wrongly, or hung up
            body = None
        return web.Response(status=self._answer(request.headers, body))

    @property
    def asgi(self) -> AsgiApp:
        """The receiver as an ASGI application: mount it, or let any ASGI server run it.

        It is a function since servers take a bound method for an application of ASGI 2.
        """

        async def app(scope: Mapping[str, Any], receive: Receive, send: Send) -> None:
            if scope["type"] == "http":
                status = await self._answer_asgi(scope, receive)
                await send({"type": "http.response.start", "status": status, "headers": []})
                await send({"type": "http.response.body", "body": b""})
            elif scope["type"] == "lifespan":
                await _live(receive, send)
            elif scope["type"] == "websocket":
                await send({"type": "websocket.close"})
            else:
                raise ConfigurationError(f"a webhook receiver takes HTTP, not {scope['type']}")

        return app

    async def _answer_asgi(self, scope: Mapping[str, Any], receive: Receive) -> int:
        if scope["method"] != "POST":
            return 405
        headers = {_text(name): _text(value) for name, value in scope["headers"]}
        return self._answer(headers, await self._collect(_pieces(receive)))

    def receive(self, headers: Mapping[str, str], body: bytes) -> int:
        """Take one delivery and return the HTTP status to answer: for any other framework.

        Call it on the event loop; it only computes.
        """
        named = {name.lower(): value for name, value in headers.items()}
        verdict = self._inbox.judge(named, body, now=self._clock())
        logger.log(_level(verdict), "notification answered %d: %s", verdict.status, verdict.reason)
        if verdict.notification is not None:
            # Not called here: a notify that raises is the loop's to report, not the sender's.
            asyncio.get_running_loop().call_soon(self._notify, verdict.notification.key)
        return verdict.status

    def _answer(self, headers: Mapping[str, str], body: bytes | None) -> int:
        if body is None:
            logger.warning("notification answered 400: broken, or over %d bytes", self._max_body)
            return 400
        return self.receive(headers, body)

    async def _collect(self, pieces: AsyncIterator[bytes]) -> bytes | None:
        """Return the body, or None as soon as it is too large."""
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
    listed: tuple[Any, ...] = (values,) if isinstance(values, str | None) else tuple(values)
    # An empty value would agree with a missing header.
    if not all(isinstance(value, str) and value for value in listed):
        raise ConfigurationError(
            f"{name} has a value that is empty or no string; is its environment variable set?"
        )
    return listed


def _signer(secret: str) -> Sign:
    """Return Standard Webhooks' own signature under *secret*.

    Of the package only ``sign`` is used: its ``verify`` reads the clock itself and answers
    some hostile headers with errors of other kinds than its own.
    """
    if not _SECRET.fullmatch(secret):
        raise ConfigurationError("a webhook secret has the form whsec_<base64>")
    try:
        from standardwebhooks import Webhook  # noqa: PLC0415 - of the extra, wanted only here
    except ImportError:
        raise ConfigurationError(
            "checking signatures needs the package standardwebhooks: "
            "pip install 'integration-sdk[webhooks]'"
        ) from None
    webhook = Webhook(secret)
    return lambda message_id, sent, body: webhook.sign(
        message_id, datetime.fromtimestamp(sent, UTC), body
    )


def _text(header: bytes) -> str:
    return header.decode(errors="surrogateescape")  # as aiohttp does


async def _pieces(receive: Receive) -> AsyncIterator[bytes]:
    """Yield the body of an ASGI request; a sender who hangs up ends it."""
    more = True
    while more:
        message = await receive()
        yield message.get("body", b"")
        more = message.get("more_body", False)


async def _live(receive: Receive, send: Send) -> None:
    """Say yes to an ASGI server that starts and stops: there is nothing to prepare."""
    for _ in ("startup", "shutdown"):
        message = await receive()
        await send({"type": f"{message['type']}.complete"})
