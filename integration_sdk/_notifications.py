"""Reads and verifies notifications that a push has changed, and detects duplicates.

A notification is a hint: it says which push to poll, and the API's answer decides. So a lost,
duplicate, forged or late notification can cost or save time, but never changes a result. Reading
is lenient: a notification that names no push is accepted and ignored.

Two shapes are published and both are read, whatever the case of their keys:

* the older envelope of rules ``{AlertId, CompanyId, DataConnectionId, Data: {dataType, status,
  pushOperationKey}}``, sent with an ``Authorization`` header of the client's choosing;
* today's ``{id, eventType: "invoices.write.successful", payload: {id, status,
  referenceCompany: {id}, connectionId}}``, signed by Standard Webhooks.

Source: "Events" (the rule "Push status changed"). Assumed: shapes, signing and headers are
those the service publishes; the document does not show them.
"""

from __future__ import annotations

import hmac
import re
from base64 import b64decode, b64encode
from collections import OrderedDict
from collections.abc import Callable, Mapping, Sequence
from itertools import islice
from typing import Any, Final

from attrs import define, field, frozen

from integration_sdk._records.codec import decode_json
from integration_sdk.errors import ConfigurationError, MalformedResponse

Sign = Callable[[str, int, bytes], str]
"""Signs as Standard Webhooks does, with one secret: id, timestamp, body -> ``v1,<base64>``."""

WRITE_EVENT: Final = ".write."
_SECRET: Final = re.compile(
    r"whsec_(?:[A-Za-z0-9+/]{4})*[A-Za-z0-9+/]{2}(?:==|[A-Za-z0-9+/](?:=|[A-Za-z0-9+/]))"
)
LONGEST_NAME: Final = 200  # keys and ids are GUIDs; longer values are ignored
LONGEST_TIMESTAMP: Final = 11  # digits; reaches the year 5138
MOST_SIGNATURES: Final = 10  # one for each secret in rotation; a stranger may send thousands


@frozen(kw_only=True)
class Notification:
    """A notification that a push has changed. All fields but *key* may be missing.

    Attributes:
        key: The push operation's key.
        status: As the sender wrote it, for example ``Success``. Only the API's answer counts.
        id: The notification's own id; a repeated delivery has the same one.
    """

    key: str
    company_id: str | None = None
    status: str | None = None
    data_type: str | None = None
    connection_id: str | None = None
    id: str | None = None


@frozen
class Verdict:
    """The result of judging a delivery.

    Attributes:
        status: The HTTP status to answer with.
        reason: Why; for the log, never for the sender.
        notification: The notification to act on; None if there is nothing to do.
    """

    status: int
    reason: str
    notification: Notification | None = None


# Read


def read_notification(body: bytes) -> Notification | None:
    """Return the push that *body* is about, or None if it is about something else.

    Raises:
        MalformedResponse: The body is not a JSON object.
    """
    value = decode_json(body)
    if not isinstance(value, dict):
        raise MalformedResponse("a notification must be a JSON object")
    envelope = _folded(value)
    return _read_rule_era(envelope) or _read_today(envelope)


def _read_rule_era(envelope: Mapping[str, Any]) -> Notification | None:
    data = _folded(envelope.get("data"))
    key = _name(data.get("pushoperationkey"))
    if key is None:
        return None
    return Notification(
        key=key,
        company_id=_name(envelope.get("companyid")),
        status=_name(data.get("status")),
        data_type=_name(data.get("datatype")),
        connection_id=_name(envelope.get("dataconnectionid")),
        id=_name(envelope.get("alertid")),
    )


def _read_today(envelope: Mapping[str, Any]) -> Notification | None:
    payload = _folded(envelope.get("payload"))
    event = _name(envelope.get("eventtype")) or ""
    key = _name(payload.get("id"))
    if key is None or WRITE_EVENT not in event.lower():
        return None
    return Notification(
        key=key,
        company_id=_name(_folded(payload.get("referencecompany")).get("id")),
        status=_name(payload.get("status")),
        data_type=event[: event.lower().index(WRITE_EVENT)],
        connection_id=_name(payload.get("connectionid")),
        id=_name(envelope.get("id")),
    )


def _folded(value: object) -> dict[str, Any]:
    return (
        {str(key).lower(): item for key, item in value.items()} if isinstance(value, dict) else {}
    )


def _name(value: object) -> str | None:
    return value if isinstance(value, str) and 0 < len(value) <= LONGEST_NAME else None


# Believe


def signer(secret: str) -> Sign:
    """Return a function that signs with *secret*, ``whsec_<base64>``, as Standard Webhooks does.

    Raises:
        ConfigurationError: The secret has another form.
    """
    if not _SECRET.fullmatch(secret):
        raise ConfigurationError("a webhook secret must look like whsec_<base64>")
    key = b64decode(secret.removeprefix("whsec_"))

    def sign(message_id: str, sent: int, body: bytes) -> str:
        text = f"{message_id}.{sent}.".encode() + body
        return f"v1,{b64encode(hmac.digest(key, text, 'sha256')).decode()}"

    return sign


def is_signed(
    headers: Mapping[str, str],
    body: bytes,
    signers: Sequence[Sign],
    *,
    now: float,
    tolerance: float,
) -> bool:
    """Return whether a signature was made by one of *signers* and its timestamp is recent.

    Args:
        headers: With lower-case names. ``webhook-id``, ``webhook-timestamp`` and the first
            `MOST_SIGNATURES` of ``webhook-signature`` are read.
        body: The bytes as received.
        signers: One for each valid secret.
        now: Seconds since 1970.
        tolerance: Seconds by which the timestamp may be off, either way.
    """
    theirs = _signatures(headers.get("webhook-signature", ""))
    message_id = headers.get("webhook-id", "")
    sent = _timestamp(headers.get("webhook-timestamp", ""))
    # A dot in the id would let one signed text be read as another: it is ``id.timestamp.body``.
    if not theirs or not message_id or not message_id.isascii() or "." in message_id:
        return False
    if sent is None or abs(now - sent) > tolerance:
        return False
    ours = [sign(message_id, sent, body) for sign in signers]  # expensive: once for each secret
    matches = [_same(one, other) for one in ours for other in theirs]
    return any(matches)


def _signatures(header: str) -> list[str]:
    known = (signature for signature in header.split() if signature.startswith("v1,"))
    return list(islice(known, MOST_SIGNATURES))


def _timestamp(text: str) -> int | None:
    plain = text.isascii() and text.isdigit() and len(text) <= LONGEST_TIMESTAMP
    return int(text) if plain else None


def is_authorized(headers: Mapping[str, str], shared: Sequence[str]) -> bool:
    """Return whether the ``authorization`` header is one of the *shared* values."""
    given = headers.get("authorization", "")
    matches = [_same(value, given) for value in shared]  # all, so that timing reveals nothing
    return any(matches)


def _same(ours: str, theirs: str) -> bool:
    """Compare in constant time."""
    return hmac.compare_digest(ours.encode(), theirs.encode(errors="surrogateescape"))


# Take each once


@define
class Inbox:
    """Verifies deliveries, reads them and detects duplicates.

    A valid signature or a valid ``Authorization`` is enough, so that a receiver can move from
    one to the other. With neither *signers* nor *shared*, every delivery is accepted.

    Attributes:
        signers: One for each secret that is valid now.
        shared: Values of ``Authorization`` that are valid now.
        tolerance: Seconds by which a signed timestamp may be off.
        remembers: How many ids to keep for detecting duplicates; the oldest are dropped first.
    """

    signers: Sequence[Sign] = field(default=(), repr=False)
    shared: Sequence[str] = field(default=(), repr=False)
    tolerance: float = 300.0
    remembers: int = 10_000
    _seen: OrderedDict[str, None] = field(init=False, factory=OrderedDict, repr=False)

    def judge(self, headers: Mapping[str, str], body: bytes, *, now: float) -> Verdict:
        """Return the verdict on one delivery. *headers* have lower-case names."""
        signed = is_signed(headers, body, self.signers, now=now, tolerance=self.tolerance)
        if not (signed or is_authorized(headers, self.shared) or self._believes_all):
            return Verdict(401, "no valid signature or Authorization")
        try:
            notification = read_notification(body)
        except MalformedResponse:
            return Verdict(400, "no JSON object")
        if notification is None:
            return Verdict(204, "about no push")
        # Only a signature vouches for the header's id.
        if self._came_before(headers["webhook-id"] if signed else notification.id):
            return Verdict(204, "came before")
        return Verdict(204, "accepted", notification)

    @property
    def _believes_all(self) -> bool:
        return not self.signers and not self.shared

    def _came_before(self, message_id: str | None) -> bool:
        if message_id is None:
            return False
        if message_id in self._seen:
            return True
        self._seen[message_id] = None
        if len(self._seen) > self.remembers:
            self._seen.popitem(last=False)
        return False
