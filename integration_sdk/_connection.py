"""One connection of a company: its push options, its pushes, and the records below it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any
from uuid import uuid4

from integration_sdk import _checks
from integration_sdk._http import requests
from integration_sdk._options.check import PushOptions, refuse
from integration_sdk._options_given import Check
from integration_sdk._resources import Listing, Record, Records, Resource
from integration_sdk.dialect import Dialect
from integration_sdk.errors import ConfigurationError
from integration_sdk.models import Answer, PushOperation


class BankAccounts(Records):
    """Bank accounts, through a connection or the legacy endpoints."""

    async def get(self, account_id: str) -> Record:
        """Return one bank account. Source: "Bank data endpoints"."""
        return await self._context.record(self._related("get", accountId=account_id))

    def transactions(self, account_id: str) -> BankTransactions:
        """The transactions of one account. Source: "Bank data endpoints"."""
        operation = self._operation.replace(".list", ".transactions")
        return BankTransactions(self._context, operation, **self._names, accountId=account_id)


class BankTransactions(Listing[Record]):
    """``bank_accounts.transactions(account_id)``: read them with `list`, or push more."""

    async def options(self, *, refresh: bool = False) -> PushOptions:
        """Return which fields of bank transactions the account accepts. Assumed: published."""
        request = self._of_connection("options.bank_transactions")
        return await self._context.options(request, refresh=refresh)

    async def push(self, record: Any) -> PushOperation:
        """Push bank transactions to the account and return the push, usually still Pending.

        *record* is what `options` describes. The errors, and ``error.in_doubt``, are those of
        `Connection.push`. Assumed: published, not in the document.
        """
        request = self._of_connection("push.bank_transactions")
        return await self._context.push(requests.with_body(request, record))

    def _of_connection(self, operation: str) -> requests.Request:
        if "connectionId" not in self._names:
            raise ConfigurationError("push to an account of connection(id).bank_accounts")
        return self._route(operation)


class Attachments(Resource):
    """``connection.attachments("bills", record_id)``: the files of one record."""

    async def list(self) -> Sequence[Record]:
        """Return what is known of each file. Assumed: published, ``{attachments: [...]}``."""
        answer = await self._context.record(self._route("attachments.list"))
        files: Sequence[Record] = answer.get("attachments") or ()
        return files

    async def get(self, attachment_id: str) -> Record:
        """Return what is known of one file. Assumed: published."""
        request = self._route("attachments.get", attachmentId=attachment_id)
        return await self._context.record(request)

    async def download(self, attachment_id: str) -> Answer:
        """Return one file: its bytes are in ``body``. Assumed: published."""
        request = self._route("attachments.download", attachmentId=attachment_id)
        return await self._context.answer(request)

    async def delete(self, attachment_id: str) -> PushOperation:
        """Delete one file and return the push. Assumed: published, for bills."""
        return await self._context.push(self._route("push.detach", attachmentId=attachment_id))


class Connection(Resource):
    """``company.connection(id)``: one connection of a company to its accounting platform.

    Example::

        books = client.company(company_id).connection(connection_id)
        supplier = {"supplierName": "Toft Timber", "status": "Active"}
        problems = (await books.options("suppliers")).check(supplier)
        if not problems:
            operation = await client.wait(await books.push("suppliers", supplier))
            print(operation.status)

    Guide: docs/guides/push-one.md.
    """

    @property
    def company_id(self) -> str:
        """The company's id."""
        return self._names["companyId"]

    @property
    def id(self) -> str:
        """The connection's id."""
        return self._names["connectionId"]

    @property
    def _place(self) -> tuple[Dialect, str, str]:
        return self._context.dialect, self.company_id, self.id

    async def get(self) -> Record:
        """Return the connection. Assumed: published, not in the document."""
        return await self._context.record(self._route("connections.get"))

    def data(self, data_type: str) -> Records:
        """Return the list of records of one type that stands below a connection.

        Args:
            data_type: For example ``transfers``, ``directCosts`` or ``commerce-orders``.

        Raises:
            ConfigurationError: The type stands below the company, or is almost one that is known.

        Assumed: published; the document shows bank accounts.
        """
        requests.segment("data_type", data_type)
        name = self._context.dialect.data_name(data_type, below="connection")
        if name == "bankAccounts":
            return self.bank_accounts
        return Records(self._context, "connection_data.list", **self._names, dataType=name)

    def custom_data(self, identifier: str) -> Listing[Record]:
        """Return the list of records of a custom data type. Assumed: published."""
        return Listing(self._context, "custom_data.list", **self._names, dataType=identifier)

    @property
    def bank_accounts(self) -> BankAccounts:
        """The connection's bank accounts. Source: "Bank data endpoints"."""
        return BankAccounts(self._context, "bank_accounts.list", **self._names)

    def attachments(self, data_type: str, record_id: str) -> Attachments:
        """Return the files of one record, such as a bill. Assumed: published."""
        names = {"dataType": data_type, "recordId": record_id}
        return Attachments(self._context, **self._names, **names)

    async def options(
        self, data_type: str, *, for_update: bool = False, refresh: bool = False
    ) -> PushOptions:
        """Return which fields of *data_type* the connection accepts and requires.

        The answer is cached for five minutes.

        Args:
            data_type: For example ``invoices``.
            for_update: Whether to ask about updates instead of creates.
            refresh: Whether to ask the service even if the answer is cached.

        Source: "Push options".
        """
        operation = "options.update" if for_update else "options.create"
        requests.segment("dataType", data_type)  # the lookup needs something hashable
        name = self._context.dialect.option_names.get(data_type, data_type)
        request = self._route(operation, dataType=name)
        return await self._context.options(request, refresh=refresh)

    async def push(
        self,
        data_type: str,
        record: Any,
        *,
        timeout_minutes: int | None = None,
        check: Check = None,
    ) -> PushOperation:
        """Create *record* in the platform and return the push, usually still Pending.

        The request is sent again only if the first one had no effect. To push many records, or to
        find pushes whose answers were lost, use ``client.coordinator()``.

        Args:
            data_type: For example ``invoices``.
            record: A mapping, sent as it is, or an instance of an attrs class, dataclass, pydantic
                model or msgspec Struct, sent under the names that ``list(model=...)`` reads.
                Decimals are sent as numbers, dates and times as ISO 8601, bytes as base64.
            timeout_minutes: Minutes after which the service gives up on a Pending push.
            check: "options" checks the record against the push options first.

        Raises:
            ConfigurationError: An argument cannot work.
            InvalidRecord: The record is invalid; nothing was sent.
            TransportError: There is no usable answer.
            ApiError: The service, or a proxy, answered with an error.

        If ``error.in_doubt`` is True, whatever the error's class, the push may exist: look into
        ``company.pushes.list()`` before you push again. Otherwise it does not.

        Source: "Push a record (create)".
        """
        request = requests.push(
            *self._place,
            data_type,
            record,
            timeout_minutes=timeout_minutes,
            idempotency_key=str(uuid4()),  # sent if the dialect has such keys
        )
        await refuse_wrong(self, data_type, record, check, for_update=False)
        return await self._context.push(request)

    async def update(
        self,
        data_type: str,
        record_id: str,
        record: Any,
        *,
        timeout_minutes: int | None = None,
        force: bool = False,
        check: Check = None,
    ) -> PushOperation:
        """Replace the record *record_id* with *record* and return the push.

        The other arguments, the errors and ``error.in_doubt`` are those of `push`. *force*
        overwrites the record even if it has changed in the meantime. Assumed: the document does
        not show the path of updates.
        """
        requests.segment("record_id", record_id)  # with None it would be a create
        request = requests.push(
            *self._place,
            data_type,
            record,
            record_id=record_id,
            timeout_minutes=timeout_minutes,
            force_update=force,
        )
        await refuse_wrong(self, data_type, record, check, for_update=True)
        return await self._context.push(request)

    async def delete(self, data_type: str, record_id: str) -> PushOperation:
        """Delete a record and return the push. Assumed: published, not in the document.

        The errors, and ``error.in_doubt``, are those of `push`.
        """
        return await self._context.push(requests.delete(*self._place, data_type, record_id))

    async def attach(
        self,
        data_type: str,
        record_id: str,
        content: bytes,
        *,
        filename: str,
        content_type: str = "application/octet-stream",
    ) -> PushOperation:
        """Attach a file to a record and return the push. Assumed: published.

        The errors, and ``error.in_doubt``, are those of `push`.
        """
        request = requests.attach(*self._place, data_type, record_id)
        return await self._context.push(
            requests.with_file(request, content, filename=filename, content_type=content_type)
        )


async def refuse_wrong(
    books: Connection, data_type: str, record: Any, check: Check, *, for_update: bool
) -> None:
    """With *check* "options", check a record before it is sent; log what is only a warning.

    Raises:
        InvalidRecord: The options do not allow it.
        NotFound: No such connection or data type.
    """
    _checks.one_of("check", check, ("options", None))
    if check is None:
        return
    found = (await books.options(data_type, for_update=for_update)).check(record)
    for problem in found:
        if not problem.is_error:
            books._context.warn(f"{data_type} of connection {books.id}", problem)
    refuse(found)
