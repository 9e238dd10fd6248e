"""A service to test against: the Data Integration Service API on a port of this machine.

    async with Sandbox(companies=3, invoices=20_000) as sandbox:
        sandbox.faults.rate_limit(per_second=100)
        client = ...  # anything that speaks HTTP: sandbox.base_url, sandbox.api_key

The sandbox implements the interface document independently: it shares no code with the client in
this package, so that a misspelt field cannot cancel out on both sides.

Its books are uneven on purpose, as real ones are: write your code for them, or give ``records=`` of
your own.
"""

# How a call goes: `_server` reads it from its connection, `_front` passes it through the faults and
# the account's limits to an endpoint in `_endpoints`. Endpoints read `_books` and record `_pushes`,
# whose ends `_notices` sends; `_schemas` says what each data type holds.

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from datetime import date, datetime
from typing import Any, Self

from integration_sdk.sandbox._call import Answer, Call, Refused, encode
from integration_sdk.sandbox._faults import Faults
from integration_sdk.sandbox._front import Front
from integration_sdk.sandbox._notices import Delivery, Notifier, Style, Subscription
from integration_sdk.sandbox._page import Page
from integration_sdk.sandbox._pushes import Operation
from integration_sdk.sandbox._records import DataSet
from integration_sdk.sandbox._rules import Rule
from integration_sdk.sandbox._schemas import Company, Connection
from integration_sdk.sandbox._server import RecordedRequest, Server
from integration_sdk.sandbox._service import REMOVAL, DialectName, Service, Settings, checked

__all__ = [
    "Answer",
    "Call",
    "Company",
    "Connection",
    "DataSet",
    "Delivery",
    "Faults",
    "Operation",
    "RecordedRequest",
    "Refused",
    "Rule",
    "Sandbox",
    "Subscription",
]


class Sandbox:
    """The service on a loopback port, with books of its own, for as long as the block lasts.

    Programs in other languages set faults in JSON: ``POST /_page/faults``, with the API key, adds
    ``[{"fault": "latency", "seconds": [1, 3], "route": "GET"}]``, named as the methods of `Faults`
    and their arguments; ``GET`` lists them with the number of calls each applied to, and
    ``DELETE`` ends all, or those in its body.

    Args:
        companies: Companies that are there from the start, each connected to four platforms:
            one that answers pushes later, one at once, one never (offline), one strict.
        invoices: Invoices in each company's books; a million cost no memory.
        records: Records by data type, such as ``{"invoices": [...]}``, that each company has in
            place of generated ones. They are read, filtered and changed like any other.
        unlinked: How many companies, the last ones, have never been linked to a platform: their
            data is not ready (409). None: one in ten.
        seed: The same seed gives the same books, identifiers and faults.
        dialect: ``document`` (the interface document's) or ``published`` (today's public API).
        api_key: None for one made from the seed.
        free_plan: An account of the free plan: 50 companies, a sync a day, 365 days.
        legacy_removed: Whether, or after which day, the legacy bank endpoints are gone.
        push_seconds: Least and most seconds that asynchronous platforms take for a push.
        daily_quota: Requests a day; more are refused. None: the ``published`` dialect counts them
            against 1,000 x (1 + companies), tells, and refuses nothing.
        starts: What the service's clock shows at the start; None for the time of day.
        remember: How many of the latest requests `requests` keeps; 0 for none.
        host: Where to listen.
        port: 0 for any that is free.

    Attributes:
        api_key: The only key it accepts.
        dialect: The dialect it speaks.
        clock: The service's; ``clock.advance(hours=3)`` lets them pass at once.
        faults: The faults in force; call its methods to add more.
        requests: The latest requests (`remember`), newest last; clear it as you like.
        notifications: The latest delivery attempts (`remember`), newest last; clear it, too.
    """

    def __init__(
        self,
        companies: int = 3,
        invoices: int = 20_000,
        *,
        records: Mapping[str, Sequence[Mapping[str, Any]]] | None = None,
        unlinked: int | None = None,
        seed: int = 0,
        dialect: DialectName = "document",
        api_key: str | None = None,
        free_plan: bool = False,
        legacy_removed: bool | date = REMOVAL,
        push_seconds: tuple[float, float] = (0.05, 0.3),
        daily_quota: int | None = None,
        starts: datetime | None = None,
        remember: int = 50_000,
        host: str = "127.0.0.1",
        port: int = 0,
    ) -> None:
        given = {name: value for name, value in locals().items() if name != "self"}
        self._settings = settings = checked(given | {"records": records or {}}, Settings)
        self._service = service = Service(settings)
        self.api_key, self.dialect, self.clock = service.api_key, settings.dialect, service.clock
        self.faults = Faults(service)
        front, page = Front(service, self.faults), Page(service, self.faults)
        self._server = Server(service, front.respond, page.respond)
        self._notifier = Notifier(self.clock, service.ledger, seed, remember=remember)
        self.requests = self._server.seen
        self.notifications = self._notifier.deliveries
        self._bound: int | None = None

    def __repr__(self) -> str:
        where = self.base_url if self._bound is not None else "not started"
        return f"Sandbox({where}, {len(self.companies)} companies, {len(self.pushes)} pushes)"

    async def start(self) -> Self:
        """Start to listen. OSError if the port is taken."""
        if self._bound is not None:
            raise RuntimeError("the sandbox is already started")
        self._bound = await self._server.start(self._settings.host, self._settings.port)
        self.clock.follow(asyncio.get_running_loop())
        self._notifier.start()
        return self

    async def stop(self) -> None:
        """Close the port and every connection; no task is left running."""
        if self._bound is not None:
            self._bound = None
            self.clock.follow(None)
            await self._notifier.stop()
            await self._server.stop()

    async def __aenter__(self) -> Self:
        return await self.start()

    async def __aexit__(self, *error: object) -> None:
        await self.stop()

    @property
    def base_url(self) -> str:
        """``http://127.0.0.1:PORT``, without a slash at the end."""
        if self._bound is None:
            raise RuntimeError("the sandbox is not started: use `async with Sandbox() as sandbox`")
        host = self._settings.host
        host = f"[{host}]" if ":" in host else host
        return f"http://{host}:{self._bound}"

    @property
    def companies(self) -> list[Company]:
        """All companies, oldest first."""
        return list(self._service.companies.values())

    @property
    def pushes(self) -> list[Operation]:
        """Every push it has recorded, oldest first, as of now."""
        self._service.ledger.settle(self.clock.now())
        return list(self._service.ledger)

    @property
    def sync_settings(self) -> dict[str, Any] | None:
        """The last sync settings that were accepted."""
        return self._service.sync_settings

    def data_set(
        self, company_id: str, data_type: str, connection_id: str | None = None
    ) -> DataSet:
        """The records of *data_type* in a company's books, to compare with or to change.

        What is read below a connection is that of the first one, unless *connection_id* is given.
        """
        self._service.ledger.settle(self.clock.now())
        return self._service.data_set(company_id, data_type, connection_id)

    def push(self, connection: Connection, data_type: str, record: Mapping[str, Any]) -> Operation:
        """Push as another client, bypassing the network and the faults."""
        return self._service.push(connection, data_type, "POST", encode(record), foreign=True)

    def bring_online(self, connection: Connection) -> None:
        """Bring an offline platform back; it then processes its pending pushes."""
        self._service.bring_online(connection)

    def subscribe(
        self,
        url: str,
        *,
        style: Style = "rule",
        authorization: str | None = None,
        secret: str | None = None,
    ) -> Subscription:
        """Post "Push status changed" to *url* whenever a push ends from now on.

        A delivery that is not answered 2xx is retried three times within two minutes.

        Args:
            url: Where to post to.
            style: ``rule``: the rule era's shape. ``signed``: today's, by Standard Webhooks.
            authorization: Value of the ``Authorization`` header to send.
            secret: ``whsec_...`` to sign with; None for one made from the seed. The time in the
                signature is `clock`'s: check with that clock if it is not the time of day.

        Source: "Events". Assumed: shapes and proofs as published.
        """
        subscription = self._notifier.subscribe(url, style, authorization, secret)
        if self._bound is not None:
            self._notifier.start()
        return subscription

    @property
    def served(self) -> int:
        """How many requests were answered, remembered or not."""
        return self._server.served

    @property
    def most_in_flight(self) -> int:
        """The highest number of requests that were in flight at once."""
        return self._server.most_in_flight

    def count(self, method: str | None = None, path: str = "", status: int | None = None) -> int:
        """Count the remembered requests with this method and status, and *path* in their path."""
        return sum(
            method in {None, seen.method} and path in seen.path and status in {None, seen.status}
            for seen in self.requests
        )
