"""What people call: companies, their data, connections and pushes.

One method per operation of the service. Each builds a request, has it carried
and reads the answer; what differs between versions of the service stands in the
`Dialect`, what happens on the wire in the session.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from typing import TYPE_CHECKING, Any, Literal, TypeVar, Unpack, overload

from attrs import frozen

from integration_sdk._caller import Caller
from integration_sdk._pager.pager import ListOptions, Pager
from integration_sdk._sansio import requests
from integration_sdk.errors import ConfigurationError

if TYPE_CHECKING:
    from integration_sdk._sansio.options.options import Problem, PushOptions
    from integration_sdk.models import PushOperation

T = TypeVar("T")
Record = dict[str, Any]
Check = Literal["options"] | None


@frozen
class Listing:
    """A list of the service: ``list()`` gives a `Pager` of it.

    Source: "Pagination".
    """

    _caller: Caller
    _operation: str
    _names: Mapping[str, str]

    @overload
    def list(self, *, model: type[T], **options: Unpack[ListOptions]) -> Pager[T]: ...
    @overload
    def list(self, *, model: None = None, **options: Unpack[ListOptions]) -> Pager[Record]: ...
    def list(self, *, model: Any = None, **options: Unpack[ListOptions]) -> Pager[Any]:
        """Read the list: iterate for items, await for the first page.

        Nothing is requested before that. Items are dicts, or instances of
        *model*: any attrs class, dataclass, TypedDict or msgspec Struct.

        Args:
            model: What each item becomes.
            options: See `ListOptions`.

        Raises:
            ConfigurationError: An option cannot work; nothing was sent.
        """
        return self._caller.pager(self._operation, self._names, model=model, **options)


# Companies


class Companies(Listing):
    """``client.companies``: all companies of the account."""

    async def create(self, name: str, **fields: Any) -> Record:
        """Create a company and return it as answered.

        Args:
            name: What to call it. Assumed: the document does not show the body.
            fields: Further members of the body, in the service's spelling.

        Raises:
            CompanyLimitReached: The plan allows no further company.

        Source: "Other endpoints that appear".
        """
        request = self._caller.to_route("companies.create")
        body: Record = await self._caller.json(
            requests.with_body(request, {"name": name, **fields})
        )
        return body


class Company:
    """``client.company(id)``: one company. Making it costs no request."""

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
            data_type: For example ``invoices``.

        Source: "Pagination", ``GET /companies/{companyId}/data/invoices``.
        """
        requests.segment("data_type", data_type)
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

        Each call raises `EndpointRemoved` once the service has removed them.
        Source: "Versioning".
        """
        return BankAccounts(self._caller, "legacy_bank_accounts.list", self._names)

    def _route(self, operation: str) -> requests.Request:
        return self._caller.to_route(operation, **self._names)


# Pushes


class Pushes:
    """``client.company(id).pushes``: what was pushed, newest first."""

    def __init__(self, caller: Caller, company_id: str) -> None:
        self._caller = caller
        self._names = {"companyId": company_id}

    def list(self, **options: Unpack[ListOptions]) -> Pager[PushOperation]:
        """Read the company's push operations, newest first unless *order_by* says otherwise.

        Source: "Monitor pushes (polling)". Assumed: path and parameters.
        """
        from integration_sdk._sansio.polling.rows import read_full  # noqa: PLC0415 - on use

        options.setdefault("order_by", self._caller.dialect.newest_first)
        options.setdefault("key", "pushOperationKey")
        numbers = options.setdefault("numbers", self._caller.numbers)
        decode = partial(read_full, exact=numbers == "decimal")
        return self._caller.pager("pushes.list", self._names, decode=decode, **options)

    async def get(self, key: str) -> PushOperation:
        """The push operation *key*, as it stands now.

        Raises:
            NotFound: The service knows no such push.

        Source: "Monitor pushes (polling)". Assumed: the path.
        """
        return await self._caller.push(
            self._caller.to_route("pushes.get", **self._names, pushOperationKey=key)
        )


class Connection:
    """``company.connection(id)``: the books behind one connection of a company."""

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
    ) -> PushOptions:
        """What may be pushed for *data_type*, and what must be.

        Args:
            data_type: For example ``invoices``.
            for_update: Describe an update in place of a create.
            refresh: Ask again, even if the answer is still remembered.

        Source: "Push options".
        """
        operation = "options.update" if for_update else "options.create"
        request = self._caller.to_route(operation, **self._names, dataType=data_type)
        return await self._caller.options(request, refresh=refresh)

    async def push(
        self,
        data_type: str,
        record: Any,
        *,
        timeout_minutes: int | None = None,
        check: Check = None,
        idempotency_key: str | None = None,
    ) -> PushOperation:
        """Create *record* in the platform and return the push, usually still Pending.

        The request is retried only if the first one certainly had no effect. To push many
        records, or to settle lost answers, use ``client.coordinator()``.

        Args:
            data_type: For example ``invoices``.
            record: A mapping, or an instance of an attrs class, dataclass or msgspec
                Struct. Mappings are sent as they are. Instances are sent under the
                names that ``list(model=...)`` reads them by: ``due_date`` as ``dueDate``.
            timeout_minutes: Minutes after which the service gives up on a Pending push.
            check: "options" compares the record with the push options first.
            idempotency_key: If you repeat a push with the same key within 90 minutes, the service
                answers as it did the first time, even if that was a 5xx. Defaults to a new key.

        Raises:
            ConfigurationError: An argument cannot work, or the dialect has no idempotency keys.
            InvalidRecord: The record cannot be right; nothing was sent.
            AnswerLost: It may have been carried out; see ``company.pushes.list()``.

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
    ) -> PushOperation:
        """Replace the record *record_id* by *record* and return the push.

        Args, errors: as for `push`. *force* overwrites a record that has
        changed meanwhile. Assumed: the document does not show the update's path.
        """
        return await self._push(data_type, record, record_id, timeout_minutes, check, force=force)

    async def delete(self, data_type: str, record_id: str) -> PushOperation:
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
    ) -> PushOperation:
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
    ) -> PushOperation:
        request = requests.push(
            self._caller.dialect,
            self.company_id,
            self.id,
            data_type,
            record,
            record_id=record_id,
            timeout_minutes=timeout_minutes,
            force_update=force,
            idempotency_key=self._caller.new_key(),
        )
        if key is not None:
            request = requests.with_own_key(self._caller.dialect, request, key)
        if compares(check):
            from integration_sdk._sansio.options.options import refuse  # noqa: PLC0415 - on use

            refuse(await self.problems(data_type, record, for_update=record_id is not None))
        return await self._caller.push(request)

    async def problems(
        self, data_type: str, record: Any, *, for_update: bool = False
    ) -> list[Problem]:
        """Return what the options say against *record*, warnings included, which are logged.

        Raises:
            NotFound: No such connection or data type.
        """
        options = await self.options(data_type, for_update=for_update)
        found = options.check(record)
        for problem in found:
            if not problem.is_error:
                self._caller.warn(f"{data_type} of connection {self.id}", problem)
        return found


def compares(check: Check) -> bool:
    """Return whether records are to be compared with the options.

    Raises:
        ConfigurationError: There is no such check.
    """
    if check is not None and check != "options":
        raise ConfigurationError(f"check must be 'options' or None, not {check!r}")
    return check is not None


# Bank data


class BankAccounts(Listing):
    """Bank accounts, through a connection or the legacy endpoints."""

    async def get(self, account_id: str) -> Record:
        """One bank account, as answered. Source: "Bank data endpoints"."""
        names = {**self._names, "accountId": account_id}
        request = self._caller.to_route(f"{self._family}.get", **names)
        account: Record = await self._caller.json(request)
        return account

    def transactions(self, account_id: str) -> Listing:
        """The transactions of one account. Source: "Bank data endpoints"."""
        requests.segment("account_id", account_id)
        names = {**self._names, "accountId": account_id}
        return Listing(self._caller, f"{self._family}.transactions", names)

    @property
    def _family(self) -> str:
        return self._operation.removesuffix(".list")


# Settings


class Profile:
    """``client.profile``: settings of the account."""

    def __init__(self, caller: Caller) -> None:
        self._caller = caller

    async def set_sync_settings(self, settings: Mapping[str, Any]) -> Any:
        """Set how often which data types sync; return the answer, usually None.

        Args:
            settings: The body. Assumed: ``{clientId, settings: [{dataType,
                syncSchedule (hours), ...}], overridesDefaults}``, as published.

        Raises:
            SyncScheduleNotAllowed: The plan allows no syncSchedule below 24.

        Source: "Other endpoints that appear".
        """
        request = self._caller.to_route("sync_settings.set")
        return await self._caller.json(requests.with_body(request, settings))
