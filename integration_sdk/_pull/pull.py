"""A run of a pull: finds the units, reads many at once, and reports each as it ends.

If a unit fails, the others continue. A unit that another process is reading is waited for.
"""

from __future__ import annotations

import asyncio
import logging
import warnings
from collections.abc import AsyncGenerator, Generator
from contextlib import AsyncExitStack, aclosing
from itertools import chain
from typing import TYPE_CHECKING, Any, Final

from attrs import define, evolve, field

from integration_sdk._checks import needed
from integration_sdk._companies import Companies, Company
from integration_sdk._context import RequestContext
from integration_sdk._handed_out import handed_out
from integration_sdk._options_given import PullOptions
from integration_sdk._pull.folder import Folder
from integration_sdk._pull.reader import PAGE_SIZE, UnitReader, cancel, open_sink
from integration_sdk._pull.sql import SqlSink
from integration_sdk._pull.unit import PullProgress, Receipt, Unit, UnitReceipt, Unusable
from integration_sdk.errors import (
    ConfigurationError,
    Conflict,
    IntegrationError,
    NotFound,
    PaymentRequired,
    PullError,
    Unauthorized,
)

if TYPE_CHECKING:  # an extra
    from integration_sdk._pull.dask import ClusterReader

logger = logging.getLogger("integration_sdk.pull")

_ENDS_RUN: Final = (ConfigurationError, PaymentRequired, Unauthorized, Unusable)
"""Errors that all other units would meet, too."""


@handed_out
@define(eq=False, repr=False)
class Pull:
    """A pull: await it to get a `Receipt`, or iterate over its units as they end.

    ::

        receipt = await client.pull(["invoices"], to="out/")
        async for unit in client.pull(["invoices"], to="out/"):
            print(unit.company_id, unit.data_type, unit.rows, unit.error)
    """

    _context: RequestContext
    _options: PullOptions
    _sink: Folder | SqlSink = field(init=False)
    _units: list[Unit] = field(init=False, factory=list)
    _ended: list[UnitReceipt] = field(init=False, factory=list)
    _has_begun: bool = field(init=False, default=False)

    def __attrs_post_init__(self) -> None:
        if self._options.dask is not None:
            needed("distributed", "dask", "a pull on Dask")
        self._sink = open_sink(self._options)

    def __del__(self) -> None:
        if not self._has_begun and hasattr(self, "_sink"):  # as a coroutine would
            warnings.warn(f"{self!r} was never awaited", RuntimeWarning, stacklevel=2, source=self)

    def __repr__(self) -> str:
        # Not the fields: URLs in them hold passwords.
        return f"<Pull of {', '.join(self._options.data_types)} to {self._sink}>"

    def __await__(self) -> Generator[Any, None, Receipt]:
        """Run the pull and return its receipt, in which units may have errors."""
        return self._receipt().__await__()

    async def _receipt(self) -> Receipt:
        async with aclosing(aiter(self)) as units:
            receipt = Receipt(units=[unit async for unit in units])
        if failed := receipt.errors:
            what = "%d of %d units are not complete, see `errors` of the receipt: %s"
            logger.warning(what, len(failed), len(receipt.units), failed[0].error)
        return receipt

    async def __aiter__(self) -> AsyncGenerator[UnitReceipt]:
        """Run the pull and yield each unit as it ends.

        Leaving the loop stops the pull; within `contextlib.aclosing`, it waits until it stopped.
        """
        if self._has_begun:
            raise ConfigurationError("a pull is run once: call client.pull() again")
        self._has_begun = True
        # All in one generator: if nested ones are abandoned, asyncio closes them in any order.
        try:
            async with AsyncExitStack() as opened:
                opened.push_async_callback(self._sink.aclose)
                self._units = await self._find_units(await self._sink.open())
                left = [unit for unit in self._units if not unit.has_ended]
                for unit in self._units:
                    if unit.has_ended:
                        self._ended.append(unit.receipt)
                        yield unit.receipt
                reader = await self._begin_to_read(left)
                opened.push_async_callback(reader.aclose)
                for _ in left:
                    receipt = await reader.next_ended()
                    self._ended.append(receipt)
                    yield receipt
                    if isinstance(receipt.error, _ENDS_RUN):
                        raise receipt.error
        except OSError as error:
            raise PullError(f"{self._sink} cannot be written: {error}") from error

    async def _begin_to_read(self, units: list[Unit]) -> UnitReader | ClusterReader:
        if self._options.dask is None:
            return UnitReader(self._context, self._sink, self._options, units)
        from integration_sdk._pull.dask import read_on_cluster  # noqa: PLC0415 - an extra

        return await read_on_cluster(self._context, self._options, units)

    @property
    def progress(self) -> PullProgress:
        """How far the pull has got."""
        reading = []
        for unit in self._units:
            if unit.pager is not None:
                seen = unit.pager.report
                names = unit.receipt.company, unit.receipt.data_type
                reading.append((*names, seen.items, seen.total))
        return PullProgress(
            units=len(self._units),
            done=len(self._ended),
            records=sum(one.rows for one in self._ended) + sum(one[2] for one in reading),
            reading=tuple(reading),
        )

    # Units

    async def _find_units(self, held: set[str]) -> list[Unit]:
        """Return all units; the target *held* those of some companies.

        Raises:
            ConfigurationError: There is no such company or type; the target is another account's.
        """
        options = self._options
        listed = Companies(self._context, "companies.list").list(page_size=PAGE_SIZE)
        companies = {company["id"]: company async for company in listed}
        if held and companies and held.isdisjoint(companies):
            raise ConfigurationError(f"{self._sink} holds companies of another account only")
        for wanted in options.companies or ():
            if wanted not in companies:
                raise ConfigurationError(f"there is no company {wanted}")
        for data_type in options.data_types:
            if not self._is_below_connection(data_type):
                self._context.dialect.data_name(data_type, below="company")
        chosen = [companies[one] for one in options.companies or companies]
        pairs = [(one, type_) for type_ in options.data_types for one in chosen]
        finding = [asyncio.create_task(self._units_of(*pair)) for pair in pairs]
        try:
            return list(chain.from_iterable(await asyncio.gather(*finding)))
        finally:
            await cancel(finding)

    async def _units_of(self, company: dict[str, Any], data_type: str) -> list[Unit]:
        """Return a unit for the company, or for each of its connections, or of their accounts."""
        id_, name = company["id"], str(company.get("name") or company["id"])
        receipt = UnitReceipt(company_id=id_, company=name, data_type=data_type)
        is_linked = company.get("dataConnections") != []
        whole = Unit(receipt, is_linked)
        if not self._is_below_connection(data_type):
            return [whole]
        books, units = Company(self._context, companyId=id_), []
        try:
            connections = [one["id"] async for one in books.connections.list()]
            for connection_id in connections:
                accounts = [""]
                if data_type == "bankTransactions":
                    listed = books.connection(connection_id).bank_accounts.list()
                    accounts = [one["id"] async for one in listed]
                for account_id in accounts:
                    own = evolve(receipt, connection_id=connection_id, account_id=account_id)
                    units.append(Unit(own))
        except NotFound:  # a service that lists no connections has them below the company
            return [whole]
        except Conflict:
            units = []
        except _ENDS_RUN:
            raise
        except IntegrationError as error:
            receipt.error = error
            return [whole]
        if not units:
            receipt.skipped = "not ready" if is_linked else "not linked"
        return units or [whole]

    def _is_below_connection(self, data_type: str) -> bool:
        is_below = self._context.dialect.is_below_connection(data_type)
        return is_below or data_type == "bankTransactions"
