"""Reads and verifies notifications that a push has changed, and detects repeated ones.

Two shapes are published and both are read, whatever the case of their keys: the older envelope of
rules ``{AlertId, Data: {pushOperationKey}}``, sent with an ``Authorization`` header of the
client's choosing, and today's ``{id, eventType: "invoices.write.successful", payload: {id}}``,
signed by Standard Webhooks.

Source: "Events" (the rule "Push status changed"). Assumed: shapes, signing and headers are
those the service publishes; the document does not show them.
"""

from __future__ import annotations

import hmac
from base64 import b64encode
from collections.abc import Mapping, Sequence
from typing import Any, Final

from attrs import define, field

from integration_sdk._records.codec import decode_json
from integration_sdk.errors import MalformedResponse

LARGEST_BODY: Final = 262_144  # bytes; published notifications have less than 2,000
LONGEST_NAME: Final = 200  # keys and ids are GUIDs; longer values are ignored
LONGEST_TIMESTAMP: Final = 11  # digits; reaches the year 5138
MOST_SIGNATURES: Final = 10  # one for each secret in rotation; a forger may send thousands
MOST_IDS: Final = 10_000  # remembered, so that a repeated notification is recognized
TOLERANCE: Final = 300.0  # seconds by which a signed timestamp may be off, as in Standard Webhooks


def read_notification(body: bytes) -> tuple[str | None, str | None]:
    """Return the key of the push that *body* is about, and the notification's own id, if any.

    Raises:
        MalformedResponse: The body is not a JSON object.
    """
    value = decode_json(body)
    if not isinstance(value, dict):
        raise MalformedResponse("a notification must be a JSON object")
    outer = _folded(value)
    if key := _name(_folded(outer.get("data")).get("pushoperationkey")):
        return key, _name(outer.get("alertid"))
    if ".write." not in (_name(outer.get("eventtype")) or "").lower():
        return None, None
    return _name(_folded(outer.get("payload")).get("id")), _name(outer.get("id"))


def _folded(value: object) -> dict[str, Any]:
    if not isinstance(value, dict):
        return {}
    return {str(key).lower(): member for key, member in value.items()}


def _name(value: object) -> str | None:
    return value if isinstance(value, str) and 0 < len(value) <= LONGEST_NAME else None


def sign(secret: bytes, message_id: str, sent: int, body: bytes) -> str:
    """Return the signature of a delivery, as Standard Webhooks makes it."""
    text = f"{message_id}.{sent}.".encode() + body
    return f"v1,{b64encode(hmac.digest(secret, text, 'sha256')).decode()}"


def signed_id(
    headers: Mapping[str, str], body: bytes, secrets: Sequence[bytes], now: float
) -> str | None:
    """Return the id of a delivery that one of *secrets* has signed lately, else None.

    Args:
        headers: With lower-case names: ``webhook-id``, ``webhook-timestamp`` and
            ``webhook-signature``, or the same with ``svix-``.
        body: The bytes as received.
        secrets: One for each secret that is valid now.
        now: Seconds since 1970.
    """
    prefix = "webhook" if "webhook-signature" in headers else "svix"
    message_id = headers.get(f"{prefix}-id", "")
    sent = headers.get(f"{prefix}-timestamp", "")
    given = headers.get(f"{prefix}-signature", "").split()
    theirs = [signature for signature in given if signature.startswith("v1,")][:MOST_SIGNATURES]
    # A dot in the id would let one signed text be read as another: it is ``id.timestamp.body``.
    if not theirs or not message_id or not message_id.isascii() or "." in message_id:
        return None
    if not (sent.isascii() and sent.isdigit() and len(sent) <= LONGEST_TIMESTAMP):
        return None
    if abs(now - int(sent)) > TOLERANCE:
        return None
    ours = [sign(secret, message_id, int(sent), body) for secret in secrets]  # once for each
    matches = [_same(one, other) for one in ours for other in theirs]
    return message_id if any(matches) else None


def _same(ours: str, theirs: str) -> bool:
    """Compare in constant time."""
    return hmac.compare_digest(ours.encode(), theirs.encode(errors="surrogateescape"))


@define
class Inbox:
    """Verifies deliveries, reads them and recognizes repeated ones.

    A valid signature or a valid ``Authorization`` is enough, so that a receiver can move from
    one to the other. With neither *secrets* nor *shared*, every delivery is accepted.

    Attributes:
        secrets: Keys of the signatures that are valid now.
        shared: Values of ``Authorization`` that are valid now.
    """

    secrets: Sequence[bytes] = field(default=(), repr=False)
    shared: Sequence[str] = field(default=(), repr=False)
    _ids: dict[str, None] = field(init=False, factory=dict, repr=False)
    """Ids of earlier deliveries, oldest first."""

    def judge(
        self, headers: Mapping[str, str], body: bytes, *, now: float
    ) -> tuple[int, str, str | None]:
        """Return the HTTP status to answer, the reason for the log, and the push to poll, if any.

        *headers* have lower-case names.
        """
        if len(body) > LARGEST_BODY:
            return 400, f"over {LARGEST_BODY} bytes", None
        signed = signed_id(headers, body, self.secrets, now)
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
        matches = [_same(value, given) for value in self.shared]  # all: timing reveals nothing
        return any(matches) or not (self.secrets or self.shared)

    def _is_repeated(self, message_id: str | None) -> bool:
        if message_id is None or message_id in self._ids:
            return message_id is not None
        self._ids[message_id] = None
        if len(self._ids) > MOST_IDS:
            del self._ids[next(iter(self._ids))]
        return False
