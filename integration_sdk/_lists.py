"""Lists of the service; ``list()`` on each of them returns a `Pager`."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, TypeVar, Unpack, overload

from attrs import frozen

from integration_sdk._context import Caller
from integration_sdk._http import requests
from integration_sdk._list.pager import ListOptions, Pager

T = TypeVar("T")
Record = dict[str, Any]


@frozen
class Listing:
    """A list of the service, such as ``company.data("invoices")``. Read it with `list`.

    Source: "Pagination".
    """

    _caller: Caller
    _operation: str
    _names: Mapping[str, str]

    def __repr__(self) -> str:
        return f"<{' '.join([type(self).__name__, self._operation, *self._names.values()])}>"

    @overload
    def list(self, *, model: type[T], **options: Unpack[ListOptions]) -> Pager[T]: ...
    @overload
    def list(self, *, model: None = None, **options: Unpack[ListOptions]) -> Pager[Record]: ...
    def list(self, *, model: Any = None, **options: Unpack[ListOptions]) -> Pager[Any]:
        """Return a `Pager`: iterate over it to get items, or await it to get the first page.

        Nothing is requested until then. Items are dicts, or instances of *model*: any attrs
        class, dataclass, pydantic model, TypedDict or msgspec Struct. A pydantic model decodes
        each record itself, with its aliases.

        Args:
            model: Class of the items; None for dicts.
            options: ``query=``, ``order_by=``, ``page_size=``, ``limit=``, ``cursor=`` and others;
                see `ListOptions`.

        Raises:
            TypeError: There is no such option.
            ConfigurationError: An option has a value that cannot work.
        """
        return self._caller.pager(self._operation, self._names, model=model, **options)


class BankAccounts(Listing):
    """Bank accounts, through a connection or the legacy endpoints."""

    async def get(self, account_id: str) -> Record:
        """One bank account. Source: "Bank data endpoints"."""
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
