"""A run of a pull: finds the units, checks that sink and store belong together, reads many at once.

If a unit fails, the others continue. A unit that another process is reading is waited for.
"""

from __future__ import annotations

import asyncio
import logging
import re
from collections import deque
from collections.abc import AsyncGenerator, Callable, Generator, Sequence
from contextlib import AbstractAsyncContextManager, aclosing
from difflib import get_close_matches
from typing import Any, Final

import msgspec
from attrs import define, field, frozen

import integration_sdk
from integration_sdk._pull.receipts import Receipt, UnitReceipt
from integration_sdk._pull.sink import Sink
from integration_sdk._pull.state import Identity, PullState
from integration_sdk._pull.units import PAGE_SIZE, PullOptions, Units
from integration_sdk._store.rows import Documents
from integration_sdk.errors import (
    ApiError,
    BadRequest,
    ConfigurationError,
    IntegrationError,
    NotFound,
    PullError,
)

logger = logging.getLogger("integration_sdk.pull")
Pair = tuple[str, str]
"""Company and data type of a unit."""
SECONDS_BETWEEN_CLAIMS: Final = 1.0
KNOWN_TYPES: Final = re.findall(
    r"\w+",
    """
    accounts accountTransactions balanceSheet bankAccounts bankTransactions billCreditNotes
    billPayments bills cashFlowStatement chartOfAccounts company creditNotes customers
    directCosts directIncomes invoices itemReceipts items journalEntries journals paymentMethods
    payments profitAndLoss purchaseOrders salesOrders suppliers taxRates trackingCategories
    transfers
    """,
)
"""Assumed: as published. Others are asked for."""


@frozen(kw_only=True)
class PullProgress:
    """How far a pull has got.

    Attributes:
        units: Number of units; 0 until it is known.
        done: Units that have ended.
        records: Records read in this run.
        reading: ``(name, records read, records in all)`` of each unit that is being read; the last
            is None if it is unknown.
    """

    units: int
    done: int
    records: int
    reading: tuple[tuple[str, int, int | None], ...]


Elsewhere = Callable[
    [Sequence[Pair], str, int], AsyncGenerator[tuple[UnitReceipt, IntegrationError | None]]
]
"""Pulls units in other processes: given them, the id of the pull and the number of its run, it
yields what became of each, and what ends the run."""


@define(eq=False, repr=False)
class Pull:
    """A pull: await it to get a `Receipt`, or iterate over its units as they end.

    ::

        receipt = await client.pull(["invoices"], to="out/")
        async for unit in client.pull(["invoices"], to="out/"):
            print(unit.company_id, unit.data_type, unit.rows, unit.error)
    """

    _client: integration_sdk.Client
    _sink: Sink
    _store: Callable[[], AbstractAsyncContextManager[Documents]]
    _options: PullOptions
    _elsewhere: Elsewhere | None = None
    _has_begun: bool = field(init=False, default=False)
    _state: PullState = field(init=False)
    _units: Units | None = field(init=False, default=None)
    _expected: int = field(init=False, default=0)
    _ended: list[UnitReceipt] = field(init=False, factory=list)
    _tell: Callable[[UnitReceipt], object] = field(init=False, default=lambda _: None)

    def __repr__(self) -> str:
        # Not the fields: URLs in them hold passwords.
        return f"<Pull of {', '.join(self._options.data_types)} to {self._sink.target}>"

    def __await__(self) -> Generator[Any, None, Receipt]:
        """Run the pull and return its receipt, in which units may have errors."""
        return self._receipt().__await__()

    async def _receipt(self) -> Receipt:
        receipt = await self._run()
        if failed := receipt.errors:  # whoever iterates over the units sees each
            logger.warning(
                "%d of %d units are not complete, see `errors` of the receipt: %s",
                len(failed),
                len(receipt.units),
                failed[0].error,
            )
        return receipt

    async def __aiter__(self) -> AsyncGenerator[UnitReceipt]:
        """Run the pull and yield each unit as it ends.

        Leaving the loop stops the pull; within `contextlib.aclosing`, it waits until it stopped.
        """
        told: asyncio.Queue[UnitReceipt | None] = asyncio.Queue()
        self._tell = told.put_nowait
        running = asyncio.create_task(self._run())
        running.add_done_callback(lambda _: told.put_nowait(None))
        try:
            while (unit := await told.get()) is not None:
                yield unit
            await running
        finally:
            running.cancel()
            await asyncio.gather(running, return_exceptions=True)

    @property
    def progress(self) -> PullProgress:
        """How far the pull has got."""
        working = list(self._units.working.values()) if self._units else []
        reading = []
        for work in working:
            seen = work.pager.progress if work.pager else None
            reading.append((str(work.unit), seen.done if seen else 0, seen.total if seen else None))
        records = sum(unit.read for unit in self._ended)
        records += sum(work.unit.read for work in working)
        return PullProgress(
            units=self._expected, done=len(self._ended), records=records, reading=tuple(reading)
        )

    # The run

    async def _run(self) -> Receipt:
        if self._has_begun:
            raise ConfigurationError("a pull is run once: call client.pull() again")
        self._has_begun = True
        try:
            owner = await self._sink.open()
            pairs = await self._pairs()
            async with self._store() as documents:
                self._state = PullState(documents)
                pull_id = await self._introduce(owner)
                self._expected = len(pairs)
                if self._elsewhere is not None:
                    stopped_by = await self._watch(self._elsewhere, pull_id, pairs)
                else:
                    stopped_by = await self._pull(pairs)
                receipt = Receipt(units=tuple(self._ended), run=self._state.run)
                if not isinstance(stopped_by, PullError):  # a full disk
                    await self._sink.keep(receipt)
                if stopped_by is not None:
                    raise stopped_by
                return receipt
        except OSError as error:
            raise PullError(f"{self._sink.target} cannot be written: {error}") from error
        finally:
            await self._sink.aclose()

    def _note(self, unit: UnitReceipt) -> None:
        self._ended.append(unit)
        self._tell(unit)

    async def _watch(
        self, elsewhere: Elsewhere, pull_id: str, pairs: Sequence[Pair]
    ) -> IntegrationError | None:
        """Let other processes pull these units; return what ended the run early."""
        async with aclosing(elsewhere(pairs, pull_id, self._state.run)) as ends:
            async for unit, stopped_by in ends:
                self._note(unit)
                if stopped_by is not None:
                    return stopped_by
        return None

    async def _pull(self, pairs: Sequence[Pair]) -> IntegrationError | None:
        """Pull these units here; return what ended the run early."""
        await self._state.load_columns(self._options.data_types)
        units = Units(self._client, self._sink, self._state, self._options, len(pairs))
        self._units = units
        now = asyncio.get_running_loop().time
        left = deque((pair, 0.0) for pair in pairs)
        goes_on = True  # a worker that is cancelled while a write fails hears of the failure only

        async def work() -> None:
            while left and goes_on and units.stopped_by is None:
                pair, at = left.popleft()
                if (wait := at - now()) > 0:
                    left.appendleft((pair, at))
                    await asyncio.sleep(wait)
                elif (receipt := await units.pull(*pair)) is not None:
                    self._note(receipt)
                else:
                    left.append((pair, now() + SECONDS_BETWEEN_CLAIMS))

        with units.threads:
            try:
                async with asyncio.TaskGroup() as group:
                    try:
                        await asyncio.wait(
                            [group.create_task(work()) for _ in range(units.together)]
                        )
                    finally:
                        goes_on = False
            except BaseExceptionGroup as group_:
                raise group_.exceptions[0] from None
        return units.stopped_by

    async def _pairs(self) -> list[Pair]:
        """Return company and type of each unit.

        Raises:
            ConfigurationError: There is no such company or type.
        """
        options = self._options
        pager = self._client.companies.list(page_size=PAGE_SIZE, model=_Company)
        companies = [company.id async for company in pager]
        for wanted in options.companies or ():
            if wanted not in companies:
                raise ConfigurationError(f"there is no company {wanted}")
        if options.companies is not None:
            companies = [one for one in companies if one in set(options.companies)]
        for data_type in options.data_types:
            if data_type not in KNOWN_TYPES and companies:
                await self._look_for(data_type, companies[0])
        return [(company, data_type) for data_type in options.data_types for company in companies]

    async def _look_for(self, data_type: str, company_id: str) -> None:
        try:
            await self._client.company(company_id).data(data_type).list(page_size=1)
        except (NotFound, BadRequest) as error:
            near = get_close_matches(data_type, KNOWN_TYPES, n=1)
            hint = f'; did you mean "{near[0]}"?' if near else ""
            raise ConfigurationError(f'there is no data type "{data_type}"{hint}') from error
        except ApiError:
            return  # not ready, forbidden: its units will say so

    async def _introduce(self, owner: str | None) -> str:
        """Make sure that store and sink belong together, and begin; return the id of the pull.

        Raises:
            ConfigurationError: They do not.
        """
        ours = Identity(target=self._sink.target, format=self._sink.format)
        known = await self._state.identity()
        self._check_owner(owner, known.id if known else None)
        known = await self._state.begin_run(ours)
        here = (known.target, known.format) == (ours.target, ours.format)
        if owner is None and not here:
            raise ConfigurationError(
                f"the store belongs to a pull into {known.target} as {known.format}; "
                'use another scope: Store(..., scope="books")'
            )
        self._check_owner(await self._sink.introduce(known.id), known.id)
        return known.id

    def _check_owner(self, owner: str | None, known: str | None) -> None:
        if owner not in {None, known}:
            raise ConfigurationError(
                f"{self._sink.target} was written with another store (pull {owner[:8]}); "
                "pass that one"
            )


class _Company(msgspec.Struct):
    id: str
