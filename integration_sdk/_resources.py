"""Companies with their data and pushes, and the settings of the account.

Each method is one operation of the service: it builds a request, sends it and reads the answer.
Differences between versions of the service are in the `Dialect`; retries and limits are in the
session.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from typing import Any, Unpack

import integration_sdk
from integration_sdk._connections import Connection
from integration_sdk._context import Caller
from integration_sdk._http import requests
from integration_sdk._list.pager import ListOptions, Pager
from integration_sdk._lists import BankAccounts, Listing, Record

# Companies


class Companies(Listing):
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
        request = self._caller.to_route("companies.create")
        body: Record = await self._caller.json(
            requests.with_body(request, {"name": name, **fields})
        )
        return body


class Company:
    """``client.company(id)``: one company. Creating it sends no request."""

    def __init__(self, caller: Caller, company_id: str) -> None:
        requests.segment("company_id", company_id)
        self.id = company_id
        self._caller = caller
        self._names = {"companyId": company_id}

    def __repr__(self) -> str:
        return f"<Company {self.id}>"

    async def get(self) -> Record:
        """The company. Assumed: published, not in the document."""
        company: Record = await self._caller.json(self._route("companies.get"))
        return company

    async def update(self, **fields: Any) -> Record:
        """Replace the company's fields and return it. Assumed: published, not in the document."""
        request = requests.with_body(self._route("companies.update"), fields)
        company: Record = await self._caller.json(request)
        return company

    async def delete(self) -> None:
        """Delete the company. Assumed: published, not in the document."""
        await self._caller.json(self._route("companies.delete"))

    def data(self, data_type: str) -> Listing:
        """Records of one type that were read from the company's platform.

        Args:
            data_type: For example ``invoices``. ``bankAccounts`` is deprecated here; use
                ``connection(id).bank_accounts``.

        Source: "Pagination", ``GET /companies/{companyId}/data/invoices``.
        """
        requests.segment("data_type", data_type)
        if data_type == "bankAccounts":  # this path is a legacy endpoint
            return self.legacy_bank_accounts
        return Listing(self._caller, "data.list", {**self._names, "dataType": data_type})

    @property
    def connections(self) -> Listing:
        """The company's data connections. Assumed: published, not in the document."""
        return Listing(self._caller, "connections.list", self._names)

    def connection(self, connection_id: str) -> Connection:
        """One connection: push through it, read its options and bank accounts."""
        return Connection(self._caller, self.id, connection_id)

    @property
    def pushes(self) -> Pushes:
        """The company's push operations."""
        return Pushes(self._caller, self.id)

    @property
    def legacy_bank_accounts(self) -> BankAccounts:
        """Deprecated: use ``connection(id).bank_accounts``.

        Each call warns with a `DeprecationWarning`, and raises `EndpointRemoved` once the
        service has removed these endpoints. Source: "Versioning".
        """
        return BankAccounts(self._caller, "legacy_bank_accounts.list", self._names)

    def _route(self, operation: str) -> requests.Request:
        return self._caller.to_route(operation, **self._names)


# Pushes


class Pushes:
    """``client.company(id).pushes``: the push operations of a company."""

    def __init__(self, caller: Caller, company_id: str) -> None:
        self._caller = caller
        self._names = {"companyId": company_id}

    def __repr__(self) -> str:
        return f"<Pushes of company {self._names['companyId']}>"

    def list(self, **options: Unpack[ListOptions]) -> Pager[integration_sdk.PushOperation]:
        """Read the company's push operations, newest first unless *order_by* says otherwise.

        Source: "Monitor pushes (polling)". Assumed: path and parameters.
        """
        from integration_sdk._push.answers import read_full  # noqa: PLC0415 - for pushes only

        if options.get("changed_since") is None:
            options.setdefault("order_by", self._caller.dialect.newest_first)
        options.setdefault("key", "pushOperationKey")
        numbers = options.setdefault("numbers", self._caller.numbers)
        decode = partial(read_full, exact=numbers == "decimal")
        return self._caller.pager("pushes.list", self._names, decode=decode, **options)

    async def get(self, key: str) -> integration_sdk.PushOperation:
        """Return the current state of push operation *key*.

        Raises:
            NotFound: The service does not know this push.

        Source: "Monitor pushes (polling)". Assumed: the path.
        """
        return await self._caller.push(
            self._caller.to_route("pushes.get", **self._names, pushOperationKey=key)
        )


# Settings


class Profile:
    """``client.profile``: settings of the account."""

    def __init__(self, caller: Caller) -> None:
        self._caller = caller

    async def set_sync_settings(self, settings: Mapping[str, Any]) -> Any:
        """Set how often each data type syncs, and return the answer, usually None.

        Args:
            settings: The body. Assumed: ``{clientId, settings: [{dataType,
                syncSchedule (hours), ...}], overridesDefaults}``, as published.

        Raises:
            SyncScheduleNotAllowed: The plan does not allow a syncSchedule below 24.

        Source: "Other endpoints that appear".
        """
        request = self._caller.to_route("sync_settings.set")
        return await self._caller.json(requests.with_body(request, settings))
