"""A service to test against: the Data Integration Service API on a port of this machine.

    async with Sandbox(companies=3, invoices=20_000) as sandbox:
        sandbox.faults.rate_limit(per_second=100)
        client = ...  # anything that speaks HTTP: sandbox.base_url, sandbox.api_key

The sandbox implements the interface document independently: it shares no code with the client in
this package, so that a misspelt field cannot cancel out on both sides.

How a call goes: `_http` reads it from its connection, `_front` passes it through `_faults` and the
account's limits to an endpoint in `_routes`. Endpoints read `_books` and record `_pushes`,
whose ends `_notices` tell; `_schemas` says what each data type holds. A new endpoint is a function
in `_routes`, a new fault a method in `_faults`, a new data type a row in `_schemas`.
"""

from __future__ import annotations

import asyncio
from base64 import b64encode
from collections.abc import Callable
from datetime import date, datetime
from functools import partial
from os import PathLike
from shlex import quote
from typing import Any, Self

from integration_sdk.sandbox._account import Company, Connection
from integration_sdk.sandbox._books import DataSet
from integration_sdk.sandbox._call import Answer, Call, Refused
from integration_sdk.sandbox._control import Control
from integration_sdk.sandbox._faults import Faults, Rule
from integration_sdk.sandbox._front import Front
from integration_sdk.sandbox._http import RecordedRequest, Server
from integration_sdk.sandbox._notices import Delivery, Notifier, Style, Subscription
from integration_sdk.sandbox._pulled import read_pulled
from integration_sdk.sandbox._pushes import Operation
from integration_sdk.sandbox._service import Service
from integration_sdk.sandbox._settings import REMOVAL, DialectName, Settings, Spelling

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
    "serve",
]


class Sandbox:
    """The service on a loopback port, with generated books, for as long as the block lasts.

    Programs in other languages set faults in JSON: ``POST /_page/faults`` adds
    ``[{"fault": "latency", "seconds": [1, 3], "route": "GET"}]``, named as the methods of `Faults`
    and their arguments; ``GET`` lists them with the number of calls each applied to, and
    ``DELETE`` ends all, or those in its body. From another machine these calls need the API key,
    like any other.

    Args:
        companies: Companies that are there from the start, each connected to four platforms:
            one that answers pushes later, one at once, one never (offline), one strict.
        invoices: Invoices in each company's books; a million cost no memory.
        pulled: A folder that `Client.pull` has written as NDJSON or Parquet: its companies and
            records are served in place of generated ones, from memory. What was not pulled is an
            empty list; connections and bank data are generated.
        seed: The same seed gives the same books, identifiers and faults.
        dialect: ``document`` (the interface document's) or ``published`` (today's public API).
        spelling: Name of an operation's connection field; None for the dialect's own.
        api_key: None for one made from the seed.
        free_plan: An account of the free plan: 50 companies, a sync a day, 365 days.
        account_age_days: Age of the account at the start.
        legacy_removed: Whether, or after which day, the legacy bank endpoints are gone.
        push_seconds: Least and most seconds that asynchronous platforms take for a push.
        daily_quota: Requests a day, True for the published 1,000 x (1 + companies), False to count
            none. None: the ``published`` dialect counts and tells, and refuses nothing.
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
        pulled: str | PathLike[str] | None = None,
        seed: int = 0,
        dialect: DialectName = "document",
        spelling: Spelling | None = None,
        api_key: str | None = None,
        free_plan: bool = False,
        account_age_days: float = 0,
        legacy_removed: bool | date = REMOVAL,
        push_seconds: tuple[float, float] = (0.05, 0.3),
        daily_quota: int | bool | None = None,
        starts: datetime | None = None,
        remember: int = 50_000,
        host: str = "127.0.0.1",
        port: int = 0,
    ) -> None:
        given = None if pulled is None else read_pulled(pulled)
        self._settings = Settings(
            companies=companies if given is None else len(given),
            invoices=invoices,
            seed=seed,
            dialect=dialect,
            spelling=spelling,
            api_key=api_key,
            free_plan=free_plan,
            account_age_days=account_age_days,
            legacy_removed=legacy_removed,
            push_seconds=push_seconds,
            daily_quota=daily_quota,
            starts=starts,
            remember=remember,
            host=host,
            port=port,
        )
        self._service = service = Service(self._settings, given)
        self.api_key, self.dialect, self.clock = self._settings.api_key, dialect, service.clock
        self.faults = Faults(service)
        control = Control(service, self.faults, Front(service, self.faults).respond)
        self._server = Server(control.respond, service.refuse, self.clock, remember)
        self._notifier = Notifier(self.clock, service.ledger, seed, remember=remember)
        self.requests = self._server.seen
        self.notifications = self._notifier.deliveries
        self._bound: int | None = None

    async def start(self) -> Self:
        """Start to listen. OSError if the port is taken."""
        if self._bound is not None:
            raise RuntimeError("the sandbox is already started")
        self._bound = await self._server.start(self._settings.host, self._settings.port)
        self.clock.follow(asyncio.get_running_loop())
        return self

    async def stop(self) -> None:
        """Close the port and every connection; no task is left running."""
        if self._bound is not None:
            self._bound = None
            self.clock.rest()
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
        if self.clock.stands_still():
            raise RuntimeError(
                "the sandbox was started on another event loop, which stands still while this one "
                "runs: start it here (in pytest, its fixture needs the loop_scope of the tests)"
            )
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

    def data_set(self, company_id: str, data_type: str) -> DataSet:
        """The records of *data_type* in a company's books, to compare with or to change."""
        self._service.ledger.settle(self.clock.now())
        return self._service.data_set(company_id, data_type)

    def push(self, connection: Connection, data_type: str, record: dict[str, Any]) -> Operation:
        """Push as somebody else, bypassing the network and the faults."""
        return self._service.push_by_another(connection, data_type, record)

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
        return self._notifier.subscribe(url, style, authorization, secret)

    def unsubscribe(self, to: Subscription) -> None:
        """Stop posting to this subscriber."""
        self._notifier.unsubscribe(to)

    @property
    def served(self) -> int:
        """How many requests were answered since the start, remembered or not."""
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


async def serve(sandbox: Sandbox, say: Callable[[str], object] | None = None) -> None:
    """Run *sandbox* until cancelled; *say* is told its address, its key and how to use them."""
    say = say or partial(print, flush=True)
    async with sandbox:
        say(f"Sandbox: {sandbox.base_url}")
        say(f"API key: {sandbox.api_key}")
        credential = b64encode(sandbox.api_key.encode()).decode()
        say(f"Try: curl -H 'Authorization: Basic {credential}' {sandbox.base_url}/companies")
        say(f"Look: {sandbox.base_url}/ shows pushes as they go, a form to push, fault switches")
        url, key = quote(sandbox.base_url), quote(sandbox.api_key)
        say(f"export INTEGRATION_SDK_BASE_URL={url} INTEGRATION_SDK_API_KEY={key}")
        if sandbox.dialect == "published":
            say("Dialect: use Client(dialect=Dialect.published()), or --published in commands")
        await asyncio.Event().wait()
