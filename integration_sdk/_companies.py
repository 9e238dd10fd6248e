"""Companies with their records, connections and pushes, and the settings of the account."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from typing import Any, Final

from integration_sdk import _checks
from integration_sdk._connection import BankAccounts, Connection
from integration_sdk._http import requests
from integration_sdk._options_given import Numbers
from integration_sdk._push.wire import read_full
from integration_sdk._records.classes import ItemReader
from integration_sdk._resources import Listing, Record, Records, Resource
from integration_sdk.errors import ConfigurationError, Conflict, WaitExpired
from integration_sdk.models import PushOperation

SHORTEST_PAUSE: Final = 1.0
"""Seconds between two polls of a data status, at least."""
_ENDED: Final = frozenset({"Cancelled", "NotSupported", "PrerequisiteNotMet"})


class Companies(Listing[Record]):
    """``client.companies``: all companies of the account."""

    async def create(self, name: str, **fields: Any) -> Record:
        """Create a company and return it.

        Args:
            name: Its name. Assumed: the document does not show the body.
            fields: Other fields of the body, under the service's names.

        Raises:
            CompanyLimitReached: The plan does not allow another company.

        Source: "Other endpoints that appear".
        """
        body = {"name": name, **fields}
        return await self._context.record(requests.with_body(self._related("create"), body))


class Company(Resource):
    """``client.company(id)``: one company. Making it sends no request."""

    @property
    def id(self) -> str:
        """The company's id."""
        return self._names["companyId"]

    async def get(self) -> Record:
        """Return the company. Assumed: published, not in the document."""
        return await self._context.record(self._route("companies.get"))

    async def update(self, **fields: Any) -> Record:
        """Replace the company's fields and return it. Assumed: published, not in the document."""
        request = requests.with_body(self._route("companies.update"), fields)
        return await self._context.record(request)

    async def delete(self) -> None:
        """Delete the company. Assumed: published, not in the document."""
        await self._context.json(self._route("companies.delete"))

    def data(self, data_type: str) -> Records:
        """Return the list of records of one type, as read from the company's platform.

        Args:
            data_type: For example ``invoices``. Some types, such as ``directCosts``, stand below
                a connection: ``connection(id).data("directCosts")``.

        Raises:
            ConfigurationError: The type stands below a connection, or is almost one that is known.

        Source: "Pagination", ``GET /companies/{companyId}/data/invoices``.
        """
        requests.segment("data_type", data_type)
        if data_type == "bankAccounts":  # this path is a legacy endpoint
            return self.legacy_bank_accounts
        name = self._context.dialect.data_name(data_type, below="company")
        return Records(self._context, "data.list", **self._names, dataType=name)

    @property
    def connections(self) -> Listing[Record]:
        """The company's data connections. Assumed: published, not in the document."""
        return Listing(self._context, "connections.list", **self._names)

    def connection(self, connection_id: str) -> Connection:
        """Return one connection: push through it, read its options and what stands below it."""
        return Connection(self._context, **self._names, connectionId=connection_id)

    @property
    def pushes(self) -> Pushes:
        """The company's push operations."""
        return Pushes(self._context, "pushes.list", **self._names)

    @property
    def legacy_bank_accounts(self) -> BankAccounts:
        """Deprecated: use ``connection(id).bank_accounts``.

        Each call warns with a `DeprecationWarning`, and raises `EndpointRemoved` once the
        service has removed these endpoints. Source: "Versioning".
        """
        return BankAccounts(self._context, "legacy_bank_accounts.list", **self._names)

    # What the service has read from the platform. Assumed: published; of it the document shows
    # only that a data set may not be ready (409).

    async def info(self) -> Record:
        """Return what the platform says of the company itself: name, currency, addresses."""
        return await self._context.record(self._route("data.info"))

    async def refresh(
        self, data_types: Sequence[str] | None = None, *, connection_id: str | None = None
    ) -> list[Record]:
        """Ask the service to read the platform again; `wait_until_ready` waits for it.

        Args:
            data_types: Such as ``["invoices"]``; None for all types of all connections.
            connection_id: Read these types from this connection only.

        Returns:
            The data set of each type ``{id, dataType, status, requested, progress, ...}``; none
            if all are read, of which the service says nothing.
        """
        if data_types is None and connection_id is None:
            await self._context.json(self._route("data.refresh_all"))
            return []
        if data_types is None or isinstance(data_types, str):
            raise ConfigurationError("data_types must be a list, such as ['invoices']")
        queued = [self._route("data.refresh", dataType=each) for each in data_types]
        sent = [request.with_params(connectionId=connection_id) for request in queued]
        return [await self._context.record(request) for request in sent]

    async def data_status(self) -> dict[str, Record]:
        """Return how far each type was read, by data type.

        Each value has ``currentStatus``, such as Fetching, Complete or AuthError, and
        ``lastSuccessfulSync``.
        """
        return await self._context.record(self._route("data.status"))

    @property
    def data_history(self) -> Records:
        """What was read when and how it ended: data sets, by ``list`` and ``get(dataset_id)``."""
        return Records(self._context, "history.list", **self._names)

    async def wait_until_ready(self, data_type: str, *, timeout: float | None = None) -> Record:
        """Wait until the service has read *data_type* from the platform, and return its status.

        Use it after `refresh`, or after a `Conflict` (409). Any number of tasks may wait: they
        share the polls of a company, of which there is one a second at first, and one in a
        twentieth of the time waited later.

        Args:
            data_type: For example ``invoices``.
            timeout: Seconds to wait; None for no limit.

        Raises:
            Conflict: The service cannot read it; the message has the reason, such as AuthError.
            WaitExpired: *timeout* passed.
        """
        _checks.seconds("timeout", timeout)
        requests.segment("data_type", data_type)
        names = self._context.dialect.spellings(data_type)
        target, loop = self._route("data.status").target, asyncio.get_running_loop()
        began = since = loop.time()
        state = "unknown"
        try:
            async with asyncio.timeout(timeout):
                while True:
                    known = await self._context.remembered.get(
                        target,
                        self.data_status,
                        since=since,
                        timeout=self._context.settings.timeout,
                    )
                    entry = next((known[name] for name in names if name in known), Record())
                    state = str(entry.get("currentStatus", "not listed"))
                    if state == "Complete":
                        return entry
                    if state.endswith("Error") or state in _ENDED:
                        raise Conflict(
                            f"{data_type} of company {self.id} cannot be read: {state}. Mend it, "
                            f"then call company.refresh([{data_type!r}])."
                        )
                    pause = max(SHORTEST_PAUSE, (loop.time() - began) / 20)
                    await asyncio.sleep(pause)
                    since = loop.time() - 0.9 * pause
        except TimeoutError:
            raise WaitExpired(
                f"{data_type} of company {self.id} were not ready within {timeout} s: {state}"
            ) from None


class Pushes(Listing[PushOperation]):
    """``client.company(id).pushes``: the company's push operations, newest first.

    Source: "Monitor pushes (polling)". Assumed: path and parameters.
    """

    def _reader(self, model: Any, numbers: Numbers) -> ItemReader:
        if model is not None:
            return super()._reader(model, numbers)
        return ItemReader(lambda raw: read_full(bytes(raw), numbers=numbers))

    @property
    def _order(self) -> str:
        return self._context.dialect.newest_first

    async def get(self, key: str) -> PushOperation:
        """Return the current state of push operation *key*.

        Raises:
            NotFound: The service does not know this push.

        Source: "Monitor pushes (polling)". Assumed: the path.
        """
        return await self._context.push(self._route("pushes.get", pushOperationKey=key))


class Profile(Resource):
    """``client.profile``: settings of the account."""

    async def set_sync_settings(self, settings: Mapping[str, Any]) -> Any:
        """Set how often each data type syncs, and return the answer, usually None.

        Args:
            settings: The body. Assumed, as published:
                ``{clientId, settings: [{dataType, syncSchedule (hours), ...}],
                overridesDefaults}``.

        Raises:
            SyncScheduleNotAllowed: The plan does not allow a syncSchedule below 24.

        Source: "Other endpoints that appear".
        """
        request = self._route("sync_settings.set")
        return await self._context.json(requests.with_body(request, settings))
