"""Base of what a client gives access to: lists of the service, and the records of one type.

Each method is one operation of the service: it builds a request, sends it and reads the answer.
Differences between versions of the service are in the `Dialect`; retries and limits are in the
session.
"""

from __future__ import annotations

from datetime import datetime
from typing import Any, Generic, TypeVar, overload

from integration_sdk._context import RequestContext
from integration_sdk._handed_out import handed_out
from integration_sdk._http import requests
from integration_sdk._http.requests import DEFAULT_PAGE_SIZE
from integration_sdk._list.changes import MODIFIED
from integration_sdk._list.pager import Pager
from integration_sdk._list.reader import OnInvalid
from integration_sdk._options_given import MIB, ListOptions, Numbers, given
from integration_sdk._records.classes import ItemReader
from integration_sdk.models import Answer

T = TypeVar("T")
Item = TypeVar("Item")
Record = dict[str, Any]


@handed_out
class Resource:
    """Base of what a client gives access to. Creating one sends no request."""

    def __init__(self, context: RequestContext, operation: str = "", **names: str) -> None:
        for name, value in names.items():
            requests.segment(name, value)
        self._context = context
        self._operation = operation
        self._names = names

    def __repr__(self) -> str:
        words = (type(self).__name__, self._operation, *self._names.values())
        return f"<{' '.join(filter(None, words))}>"

    def _route(self, operation: str, **names: str) -> requests.Request:
        return requests.to_route(self._context.dialect, operation, **self._names, **names)


class Listing(Resource, Generic[Item]):
    """A list of the service, such as ``company.data("invoices")``. Read it with `list`.

    Source: "Pagination".
    """

    @property
    def _order(self) -> str | None:
        """How it is ordered unless the caller says otherwise."""
        return None

    def _reader(self, model: Any, numbers: Numbers) -> ItemReader:
        return ItemReader.of(model, numbers=numbers)

    def _related(self, action: str, **names: str) -> requests.Request:
        """Return a request for another operation of the same kind, such as ``data.get``."""
        return self._route(f"{self._operation.partition('.')[0]}.{action}", **names)

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
        on_invalid: OnInvalid | None = None,
        numbers: Numbers | None = None,
    ) -> Pager[Any]:
        """Return a `Pager`: iterate over it to get items, or await it to get the first page.

        Nothing is requested until then. Items are dicts, or instances of *model*.

        Example::

            changes = client.company(company_id).data("invoices").list(
                changed_since="beginning", cursor=cursor, page_size=1000
            )
            async for invoice in changes:
                print(invoice["id"])
            cursor = changes.cursor  # None in the first run; store it for the next one

        Args:
            model: Class of the items: an attrs class, dataclass, TypedDict, msgspec Struct or
                pydantic model; None for dicts.
            page_size: Items per page, 1 to 5000; default 100, or the cursor's, which can be made
                smaller. A page that is too large is requested again in smaller pages; if one takes
                too long, resume with ``list(cursor=error.cursor, page_size=...)``.
            page: Number of the first page, counted from 1 in pages of *page_size*.
            query: A filter, such as ``status=Paid&&totalAmount>1000``.
            order_by: A field, or ``-field`` for descending order.
            changed_since: Reads only records that were changed at this moment or later, oldest
                change first: an aware datetime, an earlier ``pager.watermark``, or "beginning" for
                all. A record that changes while you read comes again; none is missed. Deletions,
                and records without the field, do not show. The service must filter and order by
                the field, its clock must not go back, and a change must be visible from the moment
                that it names.
            changed_by: The field with the moment of the last change, default ``modifiedDate``.
                Assumed: the document does not show it.
            prefetch: Pages to fetch ahead of the one being read, 0 to 256.
            max_bytes: Bytes of pages to hold in memory, including those being fetched; approximate.
            limit: Items to read, at most.
            cursor: A ``pager.cursor``. Reading continues after the item where it was taken.
            on_invalid: A plain function, called with an `InvalidItem` for each item that does not
                fit the model; the item is left out. Default: raise it.
            numbers: How to read fractions: "float", or "decimal" for exact values. Default: the
                client's setting. In a model the types of the fields decide.

        Raises:
            ConfigurationError: An option has a value that cannot work.

        Guides: docs/guides/stream.md, resume.md, models.md, incremental.md.
        """
        context = self._context
        numbers = numbers or context.numbers
        options = given(ListOptions, locals())
        order_by = order_by or self._order
        if changed_since is not None:  # the pager adds the filter
            query, order_by = None, changed_by or MODIFIED
        request = requests.list_page(
            context.dialect,
            self._operation,
            page=page or 1,
            page_size=page_size or DEFAULT_PAGE_SIZE,
            query=query,
            order_by=order_by,
            **self._names,
        )
        return Pager(
            context.send,
            request,
            options,
            base_url=context.session.base_url,
            parameter=context.dialect.query_parameter,
            reader=self._reader(model, numbers),
        )


class Records(Listing[Record]):
    """The records of one type, such as ``company.data("invoices")``: read them with `list`."""

    async def get(self, record_id: str) -> Record:
        """Return one record, for example the one that ``operation.changes[0].record_ref`` names.

        Raises:
            NotFound: There is none with this id.

        Assumed: published, not in the document.
        """
        return await self._context.record(self._related("get", recordId=record_id))

    async def pdf(self, record_id: str) -> Answer:
        """Return an invoice as a PDF: the bytes are in ``body``. Assumed: published."""
        return await self._context.answer(self._route("data.pdf", recordId=record_id))
