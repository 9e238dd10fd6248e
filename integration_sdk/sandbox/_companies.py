"""Companies and the connections to their accounting platforms.

Source: "Resources and their fields", path identifiers. Assumed: the fields of companies and
connections ("not shown") are the published ones.
"""

from __future__ import annotations

import random
import uuid
from functools import cache
from typing import Any

from attrs import define, field

from integration_sdk.sandbox._books.words import COMPANIES
from integration_sdk.sandbox._clock import iso
from integration_sdk.sandbox._pushes.platforms import PLATFORMS, Platform


@define(eq=False)
class Connection:
    """A company's link to one platform.

    Args:
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


def new_uuid(chance: random.Random) -> str:
    """A UUID by *chance*, so that a seed fixes it."""
    return str(uuid.UUID(int=chance.getrandbits(128), version=4))


@cache
def _lasting_uuid(name: str) -> str:
    return str(uuid.uuid5(uuid.NAMESPACE_DNS, name))


def found_company(number: int, chance: random.Random, created: float) -> Company:
    """The *number*-th company from the start, connected to every platform."""
    round_, n = divmod(number, len(COMPANIES))
    name = COMPANIES[n] + (f" {round_ + 1}" if round_ else "")
    company = Company(new_uuid(chance), name, created, f"The books of {name}")
    company.connections = [
        Connection(new_uuid(chance), company.id, package, created, online=package.pace != "never")
        for package in PLATFORMS
    ]
    return company
