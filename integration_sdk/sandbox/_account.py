"""The account: its companies, the limits of its plan, its daily quota, its idempotent answers.

Source: "Resources and their fields", path identifiers; "Limits"; "Account limit errors (402)".
Assumed: the fields of companies and connections ("not shown"), the daily quota (1,000 x (1 +
connected companies), reset at 00:00 UTC) and idempotency keys are the published ones; the
document's dialect ignores the latter.
"""

from __future__ import annotations

import random
import uuid
from functools import cache
from typing import Any

from attrs import define, evolve, field

from integration_sdk.sandbox._call import Answer, Call, Problem, Refused, Respond
from integration_sdk.sandbox._clock import iso
from integration_sdk.sandbox._schemas import PLATFORMS, Platform
from integration_sdk.sandbox._settings import new_uuid

FREE_DAYS = 365
DAY = 86_400
KEPT_SECONDS = 90 * 60
_NAMES = (
    *("Amber Kiln Pottery", "Bramble & Finch Catering", "Copperfield Cycles"),
    *("Dunmore Timber Frames", "Eastgate Dental Care", "Fernhill Garden Centre"),
    *("Granite Peak Climbing", "Harbour Light Bookshop", "Inkwell Print Works"),
    "Juniper Road Bakery",
)


@define(eq=False)
class Connection:
    """A company's link to one platform.

    Attributes:
        status: ``Linked``; pushes through a ``Deauthorized`` one are forbidden (403).
        online: An offline platform answers no push until it is back.
    """

    id: str
    company_id: str
    package: Platform = field(repr=lambda package: package.name)
    created: float
    status: str = "Linked"
    online: bool = True

    @property
    def platform(self) -> str:
        """Name of the platform."""
        return self.package.name

    def body(self) -> dict[str, Any]:
        """The connection as the service shows it."""
        return {
            "id": self.id,
            "integrationId": _lasting_uuid(self.package.key),
            "integrationKey": self.package.key,
            "sourceId": _lasting_uuid("sandbox"),
            "sourceType": "Accounting",
            "platformName": self.platform,
            "linkUrl": f"https://link.example.com/companies/{self.company_id}/{self.package.key}",
            "status": self.status,
            "lastSync": iso(self.created),
            "created": iso(self.created),
        }


@define(eq=False)
class Company:
    """A company that has connected its platforms."""

    id: str
    name: str
    created: float
    description: str
    connections: list[Connection] = field(factory=list)

    def body(self) -> dict[str, Any]:
        """The company as the service shows it."""
        body = {
            "id": self.id,
            "name": self.name,
            "description": self.description,
            "platform": self.connections[0].platform if self.connections else "",
            "redirect": f"https://link.example.com/company/{self.id}",
            "created": iso(self.created),
            "dataConnections": [connection.body() for connection in self.connections],
        }
        # Assumed: as published, what has never been synchronized has no such date, not a null.
        return body | ({"lastSync": iso(self.created)} if self.connections else {})

    def connection(self, connection_id: str) -> Connection | None:
        """The connection *connection_id* of this company."""
        return next((c for c in self.connections if c.id == connection_id), None)


@cache
def _lasting_uuid(name: str) -> str:
    return str(uuid.uuid5(uuid.NAMESPACE_DNS, name))


def found_company(number: int, chance: random.Random, created: float, known: str | None) -> Company:
    """The *number*-th company from the start, connected to every platform.

    Where its identifier is *known*, that is its name as well.
    """
    turn, n = divmod(number, len(_NAMES))
    name = known or _NAMES[n] + (f" {turn + 1}" if turn else "")
    company = Company(known or new_uuid(chance), name, created, f"The books of {name}")
    company.connections = [
        Connection(new_uuid(chance), company.id, package, created, online=package.pace != "never")
        for package in PLATFORMS
    ]
    return company


def account_expired() -> Refused:
    """Return the refusal of every request once a free account has expired."""
    message = f"Account expired: the free account is older than {FREE_DAYS} days"
    return Refused(402, problems=[Problem(None, message)])


@define
class Quota:
    """The daily quota of requests.

    Args:
        daily: Requests a day; None does not count them.
        holds: Whether more are refused.
    """

    daily: int | None
    holds: bool
    day: int = -1
    used: int = 0

    def count(self, now: float) -> dict[str, str]:
        """Count one request and return the rate-limit headers; 429 if the quota is used up."""
        if self.daily is None:
            return {}
        if self.day != now // DAY:
            self.day, self.used = int(now // DAY), 0
        self.used += 1
        reset = (self.day + 1) * DAY
        headers = rate_headers(self.daily, self.daily - self.used, reset)
        if self.holds and self.used > self.daily:
            headers["Retry-After"] = str(int(reset - now) + 1)
            raise Refused(429, "Too many requests: the daily quota is spent", headers=headers)
        return headers


def rate_headers(limit: int, remaining: float, reset: float) -> dict[str, str]:
    """``X-Rate-Limit-*``. Assumed: the reset is a moment in UTC."""
    return {
        "X-Rate-Limit-Limit": str(limit),
        "X-Rate-Limit-Remaining": str(max(0, int(remaining))),
        "X-Rate-Limit-Reset": iso(reset),
    }


@define
class _Kept:
    request: tuple[object, ...]
    at: float
    answer: Answer | None = None


@define
class Replays:
    """Answers to POSTs, kept under their ``Idempotency-Key`` for 90 minutes and repeated.

    A 5xx is kept; a 429 is not, nor are answers of faults in front of the service. The same key
    with another query or body is 422; with a request in progress it is 409.
    """

    kept: dict[str, _Kept] = field(factory=dict)

    async def through(self, call: Call, respond: Respond) -> Answer:
        """Return the kept answer to *call*, or that of *respond*, which is then kept."""
        key = call.headers.get("Idempotency-Key")
        if call.method != "POST" or not key:
            return await respond(call)
        request = call.path, call.params, call.body
        known = self.kept.get(key)
        if known is not None and call.now - known.at <= KEPT_SECONDS:
            if known.request != request:
                raise Refused(422, "The Idempotency-Key was used for another request")
            if known.answer is None:
                raise Refused(409, "Conflict: a request with this Idempotency-Key is at work")
            return evolve(known.answer, dropped=False, pieces=None)
        entry = self.kept[key] = _Kept(request, call.now)
        try:
            entry.answer = await respond(call)
        finally:
            keeps = entry.answer is not None and entry.answer.status != 429
            if not keeps and self.kept.get(key) is entry:
                del self.kept[key]
        return entry.answer
