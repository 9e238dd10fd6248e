"""Reads and verifies notifications that a push has changed.

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

from integration_sdk._records.codec import decode_json
from integration_sdk.errors import MalformedResponse

LONGEST_NAME: Final = 200  # keys and ids are GUIDs; longer values are ignored
LONGEST_TIMESTAMP: Final = 11  # digits; reaches the year 5138
MOST_SIGNATURES: Final = 10  # one for each secret in rotation; a forger may send thousands
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
    matches = [same(one, other) for one in ours for other in theirs]
    return message_id if any(matches) else None


def same(ours: str, theirs: str) -> bool:
    """Compare in constant time."""
    return hmac.compare_digest(ours.encode(), theirs.encode(errors="surrogateescape"))
