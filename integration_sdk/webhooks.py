"""Receive "Push status changed" notifications, so that the client polls less.

Create a `Receiver` and hand it each request that the service posts to your URL::

    receiver = Receiver(client.notify, secrets=[os.environ["WEBHOOK_SECRET"]])
    status = receiver.receive(headers, body)  # answer with it, without a body

A notification is a hint: the client polls that push now, and the API's answer decides. So a lost,
repeated or forged one costs or saves time, but never changes a result.

Guide: docs/guides/notifications.md, with recipes for aiohttp.web, FastAPI and Starlette.
"""

from __future__ import annotations

import logging
import re
import time
from base64 import b64decode
from collections.abc import Callable, Mapping, Sequence
from threading import Lock
from typing import Any, Final

from integration_sdk import _checks
from integration_sdk._notifications import read_notification, same, signed_id
from integration_sdk.errors import ConfigurationError, MalformedResponse

logger = logging.getLogger(__name__)

LARGEST_BODY: Final = 262_144  # bytes; published notifications have less than 2,000
MOST_IDS: Final = 10_000  # remembered, so that a repeated notification is recognized
_SECRET: Final = re.compile(
    r"whsec_((?:[A-Za-z0-9+/]{4})*[A-Za-z0-9+/]{2}(?:==|[A-Za-z0-9+/](?:=|[A-Za-z0-9+/])))"
)


class Receiver:
    """Verifies notifications and passes on which push has changed. Any thread may use it.

    Args:
        notify: Called with the key of the push, at most once for each notification; usually
            ``client.notify``. It must not block.
        secrets: Standard Webhooks secrets, ``whsec_...``; several during a rotation.
        authorization: Accepted values of the ``Authorization`` header, as configured at the
            service; several during a rotation. With *secrets* as well, either is enough.
        allow_unverified: True to accept notifications from anybody, without *secrets* and
            *authorization*.
        clock: Returns the time, in seconds since 1970.

    Raises:
        ConfigurationError: There is nothing to verify senders with, a secret is malformed, or
            *notify* is a coroutine function.

    Source: "Events". Assumed: signatures and shapes are those the service publishes.
    """

    def __init__(
        self,
        notify: Callable[[str], object],
        *,
        secrets: str | Sequence[str] = (),
        authorization: str | Sequence[str] = (),
        allow_unverified: bool = False,
        clock: Callable[[], float] = time.time,
    ) -> None:
        _checks.plain_function("notify", notify)
        shared = _listed("authorization", authorization)
        keys = [_key(secret) for secret in _listed("secrets", secrets)]
        _checks.true_or_false("allow_unverified", allow_unverified)
        if bool(keys or shared) is allow_unverified:
            raise ConfigurationError(
                "pass secrets=[...] or authorization=[...] to verify notifications, "
                "or allow_unverified=True to accept them from anybody"
            )
        self._secrets, self._shared = keys, shared
        self._notify, self._clock = notify, clock
        self._ids: dict[str, None] = {}  # of earlier deliveries, oldest first
        self._looking_up = Lock()

    def __repr__(self) -> str:
        return "<Receiver of notifications>"

    def receive(self, headers: Mapping[str, str], body: bytes) -> int:
        """Handle one delivery and return the HTTP status to answer.

        204 accepts it, repeated deliveries and events that are not about pushes included; 401
        lacks a valid signature or authorization; 400 is too large or not a JSON object. The
        reason is logged to ``integration_sdk.webhooks``.

        Args:
            headers: As the framework gives them, in any case.
            body: The bytes as received; a signature covers each of them.
        """
        lower = {name.lower(): value for name, value in headers.items()}
        status, reason, key = self._judge(lower, body)
        level = logging.DEBUG if status < 400 else logging.WARNING
        logger.log(level, "notification answered %d: %s", status, reason)
        if key is not None:
            try:
                self._notify(key)
            except Exception:  # the delivery is fine; repeating it would not help
                logger.exception("notify failed; the push is polled as usual")
        return status

    def _judge(self, headers: Mapping[str, str], body: bytes) -> tuple[int, str, str | None]:
        """Return the status to answer, the reason for the log, and the push to poll, if any."""
        if len(body) > LARGEST_BODY:
            return 400, f"over {LARGEST_BODY} bytes", None
        signed = signed_id(headers, body, self._secrets, self._clock())
        if signed is None and not self._is_authorized(headers.get("authorization", "")):
            return 401, "no valid signature or Authorization", None
        try:
            key, own_id = read_notification(body)
        except MalformedResponse:
            return 400, "no JSON object", None
        if key is None:
            return 204, "about no push", None
        # Only a signature vouches for the header's id.
        if self._is_repeated(signed or own_id):
            return 204, "came before", None
        return 204, "accepted", key

    def _is_authorized(self, given: str) -> bool:
        matches = [same(value, given) for value in self._shared]  # all: timing reveals nothing
        return any(matches) or not (self._secrets or self._shared)

    def _is_repeated(self, message_id: str | None) -> bool:
        with self._looking_up:
            if message_id is None or message_id in self._ids:
                return message_id is not None
            self._ids[message_id] = None
            if len(self._ids) > MOST_IDS:
                del self._ids[next(iter(self._ids))]
        return False


def _listed(name: str, values: Any) -> Sequence[str]:
    listed = list(values) if isinstance(values, list | tuple | set) else [values]
    # An empty value would match a missing header.
    if not all(isinstance(value, str) and value for value in listed):
        raise ConfigurationError(
            f"{name} has a value that is empty or not a str; is its environment variable set?"
        )
    return listed


def _key(secret: str) -> bytes:
    found = _SECRET.fullmatch(secret)
    if found is None:
        raise ConfigurationError("a webhook secret must look like whsec_<base64>")
    return b64decode(found[1])
