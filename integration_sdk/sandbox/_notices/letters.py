"""The contents of notifications, and how they are authenticated.

Two shapes are published. *rule*: the rule era's PascalCase envelope, with an ``Authorization``
header of the subscriber's choosing. *signed*: today's events, signed by Standard Webhooks.

Source: "Events"; payload, signing and retries are "not shown". Assumed: as published. Only the
end of a push is notified, not that it was recorded, which its own answer says.
"""

from __future__ import annotations

import hmac
import random
import re
from base64 import b64decode, b64encode
from collections.abc import Mapping
from typing import Literal
from urllib.parse import urlsplit

from attrs import field, frozen

from integration_sdk.sandbox._allowed import HeaderText, allowed
from integration_sdk.sandbox._call import Forgery, encode
from integration_sdk.sandbox._clock import iso
from integration_sdk.sandbox._companies import new_uuid
from integration_sdk.sandbox._pushes.catalogue import option_name
from integration_sdk.sandbox._pushes.operation import Operation

RULE_TYPE = "Push Operation Status Changed()"
RETRIES = (10.0, 30.0, 80.0)
"""Seconds between attempts: "3 retries in 2 minutes". Assumed for the signed style, too."""
WRITES = {"POST": "Create", "PUT": "Update", "DELETE": "Delete", "ATTACH": "UploadAttachment"}
_SECRET = re.compile(r"whsec_(?:[A-Za-z0-9+/]{4})+(?:[A-Za-z0-9+/]{2}==|[A-Za-z0-9+/]{3}=)?")

Style = Literal["rule", "signed"]


@frozen(kw_only=True)
class Subscription:
    """A subscriber to the ends of pushes.

    Args:
        url: Where notifications are posted to.
        style: The shape: ``rule`` or ``signed``.
        authorization: Value of the ``Authorization`` header, or None for none.
        secret: ``whsec_...`` that signed notifications are signed with.
        rule_id: The service's identifier of this subscription.
        client_id: The service's identifier of the account.
    """

    url: str
    style: Style
    authorization: str | None = field(default=None, repr=False)
    secret: str | None = field(default=None, repr=False)
    rule_id: str
    client_id: str


@frozen
class Letter:
    """A notification on its way to one subscriber.

    Args:
        id: The same in every copy and every attempt.
        key: The push it names.
        attempt: 0 for the first attempt, then the number of the retry.
    """

    to: Subscription
    id: str
    key: str
    body: bytes = field(repr=False)
    forged: Forgery | None = None
    attempt: int = 0

    def headers(self, now: float) -> dict[str, str]:
        """Return the headers of an attempt made *now*, authentication included."""
        headers = {"Content-Type": "application/json"}
        if self.to.authorization is not None:
            theirs = self.forged in {"signature", "secret"}
            headers["Authorization"] = "Bearer forged" if theirs else self.to.authorization
        if self.to.secret is not None:
            stamp = str(int(now))
            headers["webhook-id"], headers["webhook-timestamp"] = self.id, stamp
            headers["webhook-signature"] = self._signature(self.to.secret, stamp)
        return headers

    def _signature(self, secret: str, stamp: str) -> str:
        if self.forged == "signature":
            return f"v1,{b64encode(bytes(32)).decode()}"
        if self.forged == "secret":
            secret = new_secret(random.Random(secret))
        return sign(secret, self.id, stamp, self.body)


@frozen
class Delivery:
    """An attempt to deliver a notification.

    Args:
        key: The push that it named.
        status: The subscriber's answer; 0 for none.
        at: The service's time of the attempt.
        attempt: 0 for the first attempt, then the number of the retry.
        forged: What was wrong with it, if anything.
    """

    url: str
    key: str
    status: int
    at: float
    attempt: int
    forged: Forgery | None
    headers: Mapping[str, str] = field(repr=False)
    body: bytes = field(repr=False)


def sign(secret: str, message_id: str, stamp: str, body: bytes) -> str:
    """The Standard Webhooks signature of *body*: ``v1,`` and base64."""
    key = b64decode(secret.removeprefix("whsec_"))
    message = b".".join((message_id.encode(), stamp.encode(), body))
    return f"v1,{b64encode(hmac.digest(key, message, 'sha256')).decode()}"


def new_secret(chance: random.Random) -> str:
    """A secret by *chance*."""
    return f"whsec_{b64encode(chance.randbytes(24)).decode()}"


def subscription(
    url: str, style: Style, authorization: str | None, secret: str | None, chance: random.Random
) -> Subscription:
    """Return a new subscription; raise ValueError if an argument makes no sense."""
    parts = urlsplit(allowed(str, "url", url))
    if parts.scheme not in {"http", "https"} or not parts.hostname:
        raise ValueError(f"a notification is posted to an http:// or https:// address, not {url!r}")
    ids = {"rule_id": new_uuid(chance), "client_id": new_uuid(chance)}
    allowed(Style, "style", style)
    allowed(HeaderText | None, "authorization", authorization)
    allowed(str | None, "secret", secret)
    if style == "rule" and secret is not None:
        raise ValueError('secret is for style="signed"; a rule is proved by authorization=')
    if style == "signed":
        secret = new_secret(chance) if secret is None else secret
        if _SECRET.fullmatch(secret) is None:
            raise ValueError("a secret has the form whsec_<base64>")
    return Subscription(url=url, style=style, authorization=authorization, secret=secret, **ids)


def letter(
    to: Subscription,
    operation: Operation,
    message_id: str,
    forged: Forgery | None,
    chance: random.Random,
) -> Letter:
    """Return the notification about *operation*, genuine or *forged*."""
    key, status = operation.key, operation.status
    if forged == "key":
        key, message_id = new_uuid(chance), new_uuid(chance)
    if forged == "early":
        status, message_id = "Success", new_uuid(chance)
    write = _rule_body if to.style == "rule" else _event_body
    return Letter(
        to, message_id, key, encode(write(to, operation, message_id, key, status)), forged
    )


def _rule_body(
    to: Subscription, operation: Operation, message_id: str, key: str, status: str
) -> dict[str, object]:
    data_type = option_name(operation.data_type)
    return {
        "AlertId": message_id,
        "ClientId": to.client_id,
        "CompanyId": operation.company,
        "DataConnectionId": operation.connection,
        "RuleId": to.rule_id,
        "RuleType": RULE_TYPE,
        "Message": f"A push of {data_type} changed status to {status}",
        "Data": {"dataType": data_type, "status": status, "pushOperationKey": key},
    }


def _event_body(
    to: Subscription, operation: Operation, message_id: str, key: str, status: str
) -> dict[str, object]:
    end = "successful" if status == "Success" else "unsuccessful"
    told = operation.requested if operation.completed is None else operation.completed
    return {
        "id": message_id,
        "eventType": f"{option_name(operation.data_type)}.write.{end}",
        "generatedDate": iso(told),
        "payload": {
            "id": key,
            "type": WRITES[operation.verb],
            "status": status,
            "referenceCompany": {"id": operation.company},
            "connectionId": operation.connection,
            "requestedOnUtc": iso(operation.requested),
            "completedOnUtc": None if operation.completed is None else iso(operation.completed),
        },
    }
