"""One connection of a company: push options, pushes and bank accounts."""

from __future__ import annotations

from typing import Any, Literal
from uuid import uuid4

import integration_sdk
from integration_sdk._context import Caller
from integration_sdk._http import requests
from integration_sdk._lists import BankAccounts, Record
from integration_sdk.errors import ConfigurationError

Check = Literal["options"] | None


class Connection:
    """``company.connection(id)``: one connection of a company to its accounting platform."""

    def __init__(self, caller: Caller, company_id: str, connection_id: str) -> None:
        requests.segment("connection_id", connection_id)
        self.company_id = company_id
        self.id = connection_id
        self._caller = caller
        self._names = {"companyId": company_id, "connectionId": connection_id}

    def __repr__(self) -> str:
        return f"<Connection {self.id} of company {self.company_id}>"

    async def get(self) -> Record:
        """The connection. Assumed: published, not in the document."""
        route = self._caller.to_route("connections.get", **self._names)
        connection: Record = await self._caller.json(route)
        return connection

    async def options(
        self, data_type: str, *, for_update: bool = False, refresh: bool = False
    ) -> integration_sdk.PushOptions:
        """The fields of *data_type* that the connection accepts or requires.

        The answer is remembered for five minutes.

        Args:
            data_type: For example ``invoices``.
            for_update: Whether to ask for updates instead of creates.
            refresh: Whether to ask the service even if the answer is remembered.

        Source: "Push options".
        """
        operation = "options.update" if for_update else "options.create"
        requests.segment("dataType", data_type)  # the lookup needs something hashable
        name = self._caller.dialect.option_names.get(data_type, data_type)
        request = self._caller.to_route(operation, **self._names, dataType=name)
        return await self._caller.options(request, refresh=refresh)

    async def push(
        self,
        data_type: str,
        record: Any,
        *,
        timeout_minutes: int | None = None,
        check: Check = None,
        idempotency_key: str | None = None,
    ) -> integration_sdk.PushOperation:
        """Create *record* in the platform and return the push, usually still Pending.

        The request is retried only if the first one certainly had no effect. To push many
        records, or to find pushes whose answers were lost, use ``client.coordinator()``.

        Args:
            data_type: For example ``invoices``.
            record: A mapping, or an instance of an attrs class, dataclass, pydantic model or
                msgspec Struct. Mappings, and so TypedDicts, are sent as they are. Instances are
                sent under the names that ``list(model=...)`` reads them by: ``due_date`` as
                ``dueDate``, a pydantic field under its alias.
                Decimals go out as numbers, dates and times as ISO 8601, bytes as base64.
            timeout_minutes: Minutes after which the service gives up on a Pending push.
            check: "options" checks the record against the push options first.
            idempotency_key: If you repeat a push with the same key within 90 minutes, the service
                answers as it did the first time, even if that was a 5xx. Defaults to a new key.

        Raises:
            ConfigurationError: An argument cannot work, or the dialect has no idempotency keys.
            InvalidRecord: The record is invalid; nothing was sent.
            AnswerLost, MalformedResponse: The push may have been carried out; see
                ``company.pushes.list()``.
            ApiError: The service refused the push. After a 5xx it may exist nevertheless,
                unless the service itself answered 503.

        Source: "Push a record (create)". Assumed: idempotency keys, as published.
        """
        return await self._push(
            data_type, record, None, timeout_minutes, check, key=idempotency_key
        )

    async def update(
        self,
        data_type: str,
        record_id: str,
        record: Any,
        *,
        timeout_minutes: int | None = None,
        force: bool = False,
        check: Check = None,
    ) -> integration_sdk.PushOperation:
        """Replace the record *record_id* with *record* and return the push.

        Arguments and errors are those of `push`. *force* overwrites the record even if it has
        changed in the meantime. Assumed: the document does not show the path of updates.
        """
        requests.segment("record_id", record_id)  # with None it would be a create
        return await self._push(data_type, record, record_id, timeout_minutes, check, force=force)

    async def delete(self, data_type: str, record_id: str) -> integration_sdk.PushOperation:
        """Delete a record and return the push. Assumed: published, not in the document."""
        return await self._caller.push(
            requests.delete(self._caller.dialect, self.company_id, self.id, data_type, record_id)
        )

    async def attach(
        self,
        data_type: str,
        record_id: str,
        content: bytes,
        *,
        filename: str,
        content_type: str = "application/octet-stream",
    ) -> integration_sdk.PushOperation:
        """Attach a file to a record and return the push. Assumed: published."""
        request = requests.attach(
            self._caller.dialect, self.company_id, self.id, data_type, record_id
        )
        return await self._caller.push(
            requests.with_file(request, content, filename=filename, content_type=content_type)
        )

    @property
    def bank_accounts(self) -> BankAccounts:
        """The connection's bank accounts. Source: "Bank data endpoints"."""
        return BankAccounts(self._caller, "bank_accounts.list", self._names)

    async def _push(
        self,
        data_type: str,
        record: Any,
        record_id: str | None,
        timeout_minutes: int | None,
        check: Check,
        *,
        force: bool = False,
        key: str | None = None,
    ) -> integration_sdk.PushOperation:
        request = requests.push(
            self._caller.dialect,
            self.company_id,
            self.id,
            data_type,
            record,
            record_id=record_id,
            timeout_minutes=timeout_minutes,
            force_update=force,
            idempotency_key=str(uuid4()),  # sent if the dialect has such keys
        )
        if key is not None:
            request = requests.with_own_key(self._caller.dialect, request, key)
        if wants_check(check):
            await refuse_wrong(self, data_type, record, for_update=record_id is not None)
        return await self._caller.push(request)


def wants_check(check: Check) -> bool:
    """Return whether records should be checked against the push options.

    Raises:
        ConfigurationError: *check* is neither "options" nor None.
    """
    if check is not None and check != "options":
        raise ConfigurationError(f"check must be 'options' or None, not {check!r}")
    return check is not None


async def refuse_wrong(books: Connection, data_type: str, record: Any, *, for_update: bool) -> None:
    """Check a record against the push options before it is sent; log what they only warn of.

    Raises:
        InvalidRecord: The options do not allow it.
        NotFound: No such connection or data type.
    """
    from integration_sdk._options.check import refuse  # noqa: PLC0415 - for pushes only

    found = (await books.options(data_type, for_update=for_update)).check(record)
    for problem in found:
        if not problem.is_error:
            books._caller.warn(f"{data_type} of connection {books.id}", problem)
    refuse(found)
