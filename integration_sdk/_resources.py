"""Companies with their lists, connections and pushes, and the settings of the account.

Each method is one operation of the service: it builds a request, sends it and reads the answer.
Differences between versions of the service are in the `Dialect`; retries and limits are in the
session.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from datetime import datetime
from functools import partial
from pathlib import Path
from typing import Any, Final, Generic, TypeVar, overload
from uuid import uuid4

from attrs import evolve

from integration_sdk import _checks
from integration_sdk._context import DataStatus, RequestContext
from integration_sdk._http import requests
from integration_sdk._http.requests import DEFAULT_PAGE_SIZE
from integration_sdk._list.changes import MODIFIED, ChangesFilter
from integration_sdk._list.page import Decode
from integration_sdk._list.pager import Checkpoint, Key, Pager
from integration_sdk._list.reader import OnDrift, OnInvalid
from integration_sdk._list.walk import MAX_EMPTY_PAGES
from integration_sdk._options.check import PushOptions, refuse
from integration_sdk._options_given import MIB, Check, Numbers
from integration_sdk._push.answers import read_full
from integration_sdk._records.codec import encode_record
from integration_sdk.errors import ConfigurationError, Conflict, WaitExpired
from integration_sdk.models import Answer, PushOperation

T = TypeVar("T")
Item = TypeVar("Item")
Record = dict[str, Any]


class Resource:
    """Base of what a client gives access to. Creating one sends no request."""

    def __init__(self, context: RequestContext, **names: str) -> None:
        for name, value in names.items():
            requests.segment(name, value)
        self._context = context
        self._names = names

    def __repr__(self) -> str:
        return f"<{' '.join([type(self).__name__, *self._names.values()])}>"

    def _route(self, operation: str, **names: str) -> requests.Request:
        return self._context.to_route(operation, **self._names, **names)


# Lists


class Listing(Resource, Generic[Item]):
    """A list of the service, such as ``company.data("invoices")``. Read it with `list`.

    Source: "Pagination".
    """

    _key = "id"

    def __init__(self, context: RequestContext, operation: str, **names: str) -> None:
        super().__init__(context, **names)
        self._operation = operation

    def __repr__(self) -> str:
        words = (type(self).__name__, self._operation, *self._names.values())
        return f"<{' '.join(words)}>"

    @property
    def _order(self) -> str | None:
        """How it is ordered unless the caller says otherwise."""
        return None

    def _decode(self, numbers: Numbers) -> Decode | None:
        """Return what reads an item's bytes; None for dicts, or the caller's model."""
        return None

    @overload
    def list(
        self,
        *,
        model: type[T],
        page_size: int | None = ...,
        page: int | None = ...,
        query: str | None = ...,
        order_by: str | None = ...,
        changed_since: datetime | str | None = ...,
        changed_by: str | None = ...,
        prefetch: int = ...,
        max_bytes: int = ...,
        limit: int | None = ...,
        cursor: str | None = ...,
        checkpoint: str | Path | Checkpoint | None = ...,
        key: Key | None = ...,
        on_drift: OnDrift = ...,
        max_empty_pages: int = ...,
        on_invalid: OnInvalid | None = ...,
        numbers: Numbers | None = ...,
    ) -> Pager[T]: ...
    @overload
    def list(
        self,
        *,
        model: None = None,
        page_size: int | None = ...,
        page: int | None = ...,
        query: str | None = ...,
        order_by: str | None = ...,
        changed_since: datetime | str | None = ...,
        changed_by: str | None = ...,
        prefetch: int = ...,
        max_bytes: int = ...,
        limit: int | None = ...,
        cursor: str | None = ...,
        checkpoint: str | Path | Checkpoint | None = ...,
        key: Key | None = ...,
        on_drift: OnDrift = ...,
        max_empty_pages: int = ...,
        on_invalid: OnInvalid | None = ...,
        numbers: Numbers | None = ...,
    ) -> Pager[Item]: ...
    def list(
        self,
        *,
        model: Any = None,
        page_size: int | None = None,
        page: int | None = None,
        query: str | None = None,
        order_by: str | None = None,
        changed_since: datetime | str | None = None,
        changed_by: str | None = None,
        prefetch: int = 4,
        max_bytes: int = 32 * MIB,
        limit: int | None = None,
        cursor: str | None = None,
        checkpoint: str | Path | Checkpoint | None = None,
        key: Key | None = None,
        on_drift: OnDrift = "report",
        max_empty_pages: int = MAX_EMPTY_PAGES,
        on_invalid: OnInvalid | None = None,
        numbers: Numbers | None = None,
    ) -> Pager[Any]:
        """Return a `Pager`: iterate over it to get items, or await it to get the first page.

        Nothing is requested until then. Items are dicts, or instances of *model*.

        Example::

            changes = client.company(company_id).data("invoices").list(
                changed_since="beginning", page_size=1000
            )
            async for invoice in changes:
                print(invoice["id"])
            print(changes.watermark)  # the next run's changed_since

        Args:
            model: Class of the items: an attrs class, dataclass, TypedDict, msgspec Struct or
                pydantic model; None for dicts.
            page_size: Items per page, 1 to 5000; default 100, or the cursor's. If a page takes too
                long or is too large, resume with
                ``list(cursor=error.cursor, page_size=...)``.
            page: Number of the first page, counted from 1 in pages of *page_size*.
            query: A filter, such as ``status=Paid&&totalAmount>1000``.
            order_by: A field, or ``-field`` for descending order.
            changed_since: Reads only records that were changed at this moment or later, oldest
                change first. An aware datetime, an earlier ``pager.watermark``, or "beginning" for
                all records. A record that changes while you read comes again; none is missed.
                Deletions, and records without the field, do not show. The service must filter and
                order by the field, its clock must not go back, and a change must be visible from
                the moment that it names.
            changed_by: The field with the moment of the last change, default ``modifiedDate``.
                Assumed: the document does not show it.
            prefetch: Pages to fetch ahead of the one being read, 0 to 256, default 4.
            max_bytes: Bytes of pages to hold in memory, including those being fetched; approximate,
                default 32 MiB.
            limit: Items to read, at most.
            cursor: A ``pager.cursor``. Reading continues after the item where it was taken.
            checkpoint: A file. Reading continues from the cursor in it, and ``commit()`` saves to
                it. The file stays at the end of the list; ``Checkpoint(path).clear()`` removes it.
            key: What identifies an item: a function of the item, or a field's name, default ``id``.
            on_drift: What to do if the list changes while you read it. "report", the default,
                counts in `ListReport` what costs nothing to notice: a total that changes or is not
                reached, and items on two pages in a row. "warn" and "raise" notice any key that
                comes twice, and keep all keys, about 120 bytes an item; they issue a
                `DriftWarning` or raise `ResultSetChanged`. None of these can detect a skipped
                record if the total stayed the same. "repair" reads overlapping pages, which may be
                larger than *page_size*: each record that is neither deleted nor moved comes exactly
                once. It keeps about 150 bytes an item. A record that moves to a part you have read
                may be missed.
            max_empty_pages: Empty pages in a row to follow, default 100,000. One more is a
                `PaginationError`, and so are 1,000 that take over a minute. "repair" gives up after
                60 pages in a row without a new item.
            on_invalid: Called with an `InvalidItem` for each item that does not fit the model; the
                item is left out. Default: raise it.
            numbers: How to read fractions: "float", or "decimal" for exact values. Default: the
                client's setting. In a model the types of the fields decide.

        Raises:
            TypeError: There is no such option.
            ConfigurationError: An option has a value that cannot work.

        Guides: docs/guides/stream.md, resume.md, models.md, incremental.md.
        """
        _refuse_conflicts("page", page, cursor=cursor, checkpoint=checkpoint)
        drift = None if on_drift == "report" else on_drift
        _refuse_conflicts(
            "changed_since", changed_since, order_by=order_by, page=page, on_drift=drift
        )
        if changed_by is not None and changed_since is None:
            raise ConfigurationError("changed_by= needs changed_since=; order_by= orders a list")
        context, changes = self._context, None
        if changed_since is not None:
            parameter = context.dialect.query_parameter
            changes = ChangesFilter.of(changed_since, changed_by or MODIFIED, parameter, query)
            query, order_by = changes.text, changes.field
        elif order_by is None:
            order_by = self._order
        request = requests.list_page(
            context.dialect,
            self._operation,
            page=1 if page is None else page,
            page_size=DEFAULT_PAGE_SIZE if page_size is None else page_size,
            query=query,
            order_by=order_by,
            **self._names,
        )
        numbers = numbers or context.numbers
        decode = self._decode(numbers)
        if model is not None and decode is not None:
            raise TypeError("this list() has no option 'model': its items have a class already")
        return Pager(
            context.send,
            request,
            base_url=context.session.base_url,
            model=model,
            decode=decode,
            page_size=page_size,
            prefetch=prefetch,
            max_bytes=max_bytes,
            limit=limit,
            cursor=cursor,
            checkpoint=checkpoint,
            key=self._key if key is None else key,
            on_drift=on_drift,
            max_empty_pages=max_empty_pages,
            on_invalid=on_invalid,
            numbers=numbers,
            changes=changes,
            timeout=context.settings.timeout,
        )


def _refuse_conflicts(name: str, given: object, **others: object) -> None:
    """Check that with the option *name*, if it was *given*, none of the *others* was."""
    both = [other for other, value in others.items() if value is not None]
    if given is not None and both:
        raise ConfigurationError(f"{name}= does not go with {min(both)}=; leave one out")


class Records(Listing[Record]):
    """The records of one type, such as ``company.data("invoices")``: read them with `list`."""

    async def get(self, record_id: str) -> Record:
        """Return one record, for example the one that ``operation.changes[0].record_ref`` names.

        Raises:
            NotFound: There is none with this id.

        Assumed: published, not in the document.
        """
        request = self._route(self._operation.replace(".list", ".get"), recordId=record_id)
        return await self._context.record(request)

    async def pdf(self, record_id: str) -> Answer:
        """Return an invoice as a PDF: the bytes are in ``body``. Assumed: published."""
        return await self._context.answer(self._route("data.pdf", recordId=record_id))


# Companies


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
        request = self._context.to_route("companies.create")
        return await self._context.record(requests.with_body(request, {"name": name, **fields}))


class Company(Resource):
    """``client.company(id)``: one company. Making it sends no request."""

    def __init__(self, context: RequestContext, company_id: str) -> None:
        super().__init__(context, companyId=company_id)
        self.id = company_id

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
            ConfigurationError: The type stands below a connection, or is misspelt.

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
        return Connection(self._context, self.id, connection_id)

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
            data_types: Such as ``["invoices"]``; None for all types.
            connection_id: Only from this connection.

        Returns:
            The data set of each type ``{id, dataType, status, requested, progress, ...}``; an
            empty list for all types, of which the service says nothing.
        """
        if data_types is None:
            await self._context.json(self._route("data.refresh_all"))
            return []
        if isinstance(data_types, str):
            raise ConfigurationError(f"data_types must be a list, such as [{data_types!r}]")
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
        statuses, loop = self._context.data_statuses, asyncio.get_running_loop()
        shared = statuses.setdefault(self.id, DataStatus())
        began, pause, state = loop.time(), 0.0, "unknown"
        try:
            async with asyncio.timeout(timeout):
                while True:
                    now = loop.time()
                    known = await shared.newer(now - 0.9 * pause, self.data_status)
                    entry = next((known[name] for name in names if name in known), Record())
                    state = str(entry.get("currentStatus", "not listed"))
                    if state == "Complete":
                        return entry
                    if state.endswith("Error") or state in _ENDED:
                        raise Conflict(
                            f"{data_type} of company {self.id} cannot be read: {state}. Mend it, "
                            f"then call company.refresh([{data_type!r}])."
                        )
                    pause = max(SHORTEST_PAUSE, (now - began) / 20)
                    await asyncio.sleep(pause)
        except TimeoutError:
            raise WaitExpired(
                f"{data_type} of company {self.id} were not ready within {timeout} s: {state}"
            ) from None


SHORTEST_PAUSE: Final = 1.0
"""Seconds between two polls of a data status, at least."""
_ENDED: Final = frozenset({"Cancelled", "NotSupported", "PrerequisiteNotMet"})


# Pushes


class Pushes(Listing[PushOperation]):
    """``client.company(id).pushes``: the company's push operations, newest first.

    Source: "Monitor pushes (polling)". Assumed: path and parameters.
    """

    _key = "pushOperationKey"

    def _decode(self, numbers: Numbers) -> Decode:
        return partial(read_full, exact=numbers == "decimal")

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


# Connections


class BankAccounts(Records):
    """Bank accounts, through a connection or the legacy endpoints."""

    async def get(self, account_id: str) -> Record:
        """Return one bank account. Source: "Bank data endpoints"."""
        request = self._route(f"{self._family}.get", accountId=account_id)
        return await self._context.record(request)

    def transactions(self, account_id: str) -> BankTransactions:
        """The transactions of one account. Source: "Bank data endpoints"."""
        names = {**self._names, "accountId": account_id}
        return BankTransactions(self._context, f"{self._family}.transactions", **names)

    @property
    def _family(self) -> str:
        return self._operation.removesuffix(".list")


class BankTransactions(Listing[Record]):
    """``bank_accounts.transactions(account_id)``: read them with `list`, or push more."""

    async def options(self, *, refresh: bool = False) -> PushOptions:
        """Return which fields of bank transactions the account accepts. Assumed: published."""
        request = self._of_connection("options.bank_transactions")
        return await self._context.options(request, refresh=refresh)

    async def push(self, record: Any, *, timeout_minutes: int | None = None) -> PushOperation:
        """Push bank transactions to the account and return the push, usually still Pending.

        *record* is what `options` describes. The errors, and ``error.in_doubt``, are those of
        `Connection.push`. Assumed: published, not in the document.
        """
        parameter, minutes = self._context.dialect.timeout_parameter, timeout_minutes
        if minutes is not None:
            _checks.whole_number("timeout_minutes", minutes, 1, 2**31 - 1)
        request = evolve(
            self._of_connection("push.bank_transactions"),
            body=encode_record(record),
            priority=requests.Priority.PUSH,
        )
        text = None if minutes is None else str(minutes)
        return await self._context.push(request.with_params(**{parameter: text}))

    def _of_connection(self, operation: str) -> requests.Request:
        if "connectionId" not in self._names:
            raise ConfigurationError("push to an account of connection(id).bank_accounts")
        return self._route(operation)


class Attachments(Listing[Record]):
    """``connection.attachments("bills", record_id)``: the files of one record."""

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

    def __init__(self, context: RequestContext, company_id: str, connection_id: str) -> None:
        super().__init__(context, companyId=company_id, connectionId=connection_id)
        self.company_id = company_id
        self.id = connection_id

    def __repr__(self) -> str:
        return f"<Connection {self.id} of company {self.company_id}>"

    async def get(self) -> Record:
        """Return the connection. Assumed: published, not in the document."""
        return await self._context.record(self._route("connections.get"))

    def data(self, data_type: str) -> Records:
        """Return the list of records of one type that stands below a connection.

        Args:
            data_type: For example ``transfers``, ``directCosts`` or ``commerce-orders``.

        Raises:
            ConfigurationError: The type stands below the company, or is misspelt.

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
        """Return the list of files of one record, such as a bill. Assumed: published."""
        names = {**self._names, "dataType": data_type, "recordId": record_id}
        return Attachments(self._context, "attachments.list", **names)

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
        idempotency_key: str | None = None,
    ) -> PushOperation:
        """Create *record* in the platform and return the push, usually still Pending.

        The request is sent again only if the first one had no effect. To push many records, or to
        find pushes whose answers were lost, use ``client.coordinator()``.

        Args:
            data_type: For example ``invoices``.
            record: A mapping, or an instance of an attrs class, dataclass, pydantic model or
                msgspec Struct. Mappings are sent as they are. Instances are sent under the names
                that ``list(model=...)`` reads: ``due_date`` as ``dueDate``, a pydantic field under
                its alias. Decimals are sent as numbers, dates and times as ISO 8601, bytes as
                base64.
            timeout_minutes: Minutes after which the service gives up on a Pending push.
            check: "options" checks the record against the push options first.
            idempotency_key: For handlers that may run twice. Within 90 minutes the service answers
                the same key as it did the first time, even if that was a 5xx. Default: a new key.

        Raises:
            ConfigurationError: An argument cannot work, or the dialect has no idempotency keys.
            InvalidRecord: The record is invalid; nothing was sent.
            TransportError: There is no usable answer.
            ApiError: The service, or a proxy, answered with an error.

        If ``error.in_doubt`` is True, whatever the error's class, the push may exist: look into
        ``company.pushes.list()`` before you push again. Otherwise it does not.

        Source: "Push a record (create)". Assumed: idempotency keys, as published.
        """
        request = requests.push(
            self._context.dialect,
            *(self.company_id, self.id, data_type, record),
            timeout_minutes=timeout_minutes,
            idempotency_key=str(uuid4()),  # sent if the dialect has such keys
        )
        if idempotency_key is not None:
            request = requests.with_own_key(self._context.dialect, request, idempotency_key)
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
            self._context.dialect,
            *(self.company_id, self.id, data_type, record),
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
        return await self._context.push(
            requests.delete(self._context.dialect, self.company_id, self.id, data_type, record_id)
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
        """Attach a file to a record and return the push. Assumed: published.

        The errors, and ``error.in_doubt``, are those of `push`.
        """
        request = requests.attach(
            self._context.dialect, self.company_id, self.id, data_type, record_id
        )
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


# Settings


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
        request = self._context.to_route("sync_settings.set")
        return await self._context.json(requests.with_body(request, settings))
