"""Which companies this process acts for, and what it hears of the others.

Any process adds rows; the one that has a company's lease sends them. A file or memory has one
process, which has every lease. In a database, `Rows.news` tells what others have changed, and whose
leases have become free.
"""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from collections.abc import Iterable
from typing import TYPE_CHECKING, Final, assert_never

from attrs import Factory, define

from integration_sdk._push import outcomes
from integration_sdk._push.push import Push
from integration_sdk._push.table import may_own_unclaimed, restarted
from integration_sdk._store.row import Row, State
from integration_sdk.errors import JournalError, StoreUnavailable

if TYPE_CHECKING:
    from integration_sdk._push.dispatcher import Dispatcher, Fresher

logger = logging.getLogger("integration_sdk.pushes")

UNHEARD: Final = 2.0
"""Seconds until a store that did not answer is asked again."""
MOMENT: Final = 1.0
"""Seconds between two looks at what is still under way."""


@define(eq=False)
class Company:
    """What this process knows of a company.

    Attributes:
        is_ours: Whether this process acts for it.
        taking: The task that asked for that first.
        queue: Rows to be sent that no run carries, by id.
        carriers: Tasks that send them.
        others: Rows that callers here wait for and another process carries.
    """

    id: str
    is_ours: bool = False
    taking: asyncio.Task[JournalError | None] | None = None
    queue: deque[str] = Factory(deque)
    carriers: int = 0
    others: set[str] = Factory(set)


@define(eq=False)
class Companies:
    """The companies of a coordinator, by id."""

    dispatcher: Dispatcher
    _known: dict[str, Company] = Factory(dict)
    _watching: asyncio.Task[None] | None = None

    def of(self, company_id: str) -> Company:
        """Return what is known of a company."""
        company = self._known.get(company_id)
        if company is None:
            company = self._known[company_id] = Company(company_id)
        return company

    # Leases

    async def acts_for(self, company: Company) -> bool:
        """Whether this process sends the company's pushes; asks for that the first time."""
        while not company.is_ours:
            tasks = self.dispatcher.tasks
            taking = company.taking = company.taking or tasks.start(self._try_to_take(company))
            await asyncio.wait([taking])
            if taking.cancelled():
                company.taking = None
            elif error := taking.result():
                raise error
            else:
                break
        return company.is_ours

    async def _try_to_take(self, company: Company) -> JournalError | None:
        try:
            await self._take(company)
        except JournalError as error:
            company.taking = None  # whoever comes next asks anew
            return error
        return None

    async def _take_again(self, company: Company) -> None:
        while error := await self._try_to_take(company):
            self.dispatcher.stop(error)
            if not await self.comes_back(error):
                return

    async def comes_back(self, error: JournalError) -> bool:
        """Whether to ask the store again after *error*; wait until then."""
        return isinstance(error, StoreUnavailable) and await self.dispatcher.tasks.sleep(UNHEARD)

    async def _take(self, company: Company) -> None:
        store = self.dispatcher.store
        rows = await store.take(company.id)
        if rows is None:
            return
        # Ours already: whoever asked was cancelled before he had the rows.
        rows = rows or await store.rows(company=company.id, live=True)
        company.is_ours = True
        await self.take_over(rows)
        if company.others:  # written by others while we read, or decided about
            await self.take_over(await store.rows(ids=list(company.others)))

    async def take_over(self, rows: Iterable[Row]) -> None:
        """Go on with rows of companies that are ours, as they are on record."""
        d = self.dispatcher
        changed: list[tuple[Row, Fresher]] = []
        doubts = []
        for row in rows:
            self.of(row.company).others.discard(row.id)
            held = d.rows.get(row.id)
            if held is not None and held.version > row.version:
                continue  # it was read before that
            if row.id in d.carried:
                if may_own_unclaimed(row):
                    d.cache(row)  # a rival; its carrier goes on
            elif row.state is State.DOUBT:
                d.cache(row)
                doubts.append(row)
            elif (now := restarted(row)) is row:
                d.arrive(row)
            else:
                d.cache(row)
                changed.append((now, None))
        await d.write_all(changed)
        for row in doubts:  # last, so that one search is for them and for what is LOST
            if d.rows.get(row.id) is row:
                d.arrive(row)

    def resume(self) -> None:
        """Go on with what was left when nothing was sent for a while: it is on record."""
        for company in self._known.values():
            if company.is_ours:
                self.dispatcher.tasks.start(self._take_again(company))

    def let_go(self, company: Company) -> None:
        """Forget what is cached of a company: another process acts for it.

        It is asked for again at once, since the lease that was refused may have been an older one.
        """
        d = self.dispatcher
        if not (d.stopped or d.tasks.closing.is_set()):
            d.tasks.start(self._take_again(company))
        company.is_ours, company.taking = False, None
        company.queue.clear()
        for row in [one for one in d.rows.values() if one.company == company.id]:
            d.forget(row)
            if d.handles.of(row.id):
                self.heed(row)

    async def hand_over(self) -> None:
        """Leave all to other processes, once what is under way has ended."""
        d = self.dispatcher
        while d.carried or any(row.state is State.LOST for row in d.rows.values()):
            if not await d.tasks.sleep(MOMENT):
                return
        if d.stopped is not None:
            for company in self._known.values():
                self.let_go(company)
            await d.store.release()

    # What earlier and other processes have done

    async def recover(self) -> list[Push]:
        """Go on with what earlier processes left, and return a push for each row of it."""
        d, pushes = self.dispatcher, []
        for row in await d.store.rows(live=True):
            if row.state is not State.CLOSED:
                request = outcomes.from_row(row, exact=d.exact)
                pushes.append(d.handles.recovered(request, row.id))
                self.of(row.company).others.add(row.id)
        for company in await d.store.companies():
            await self.acts_for(self.of(company))
        doubts = sum(row.state in {State.LOST, State.DOUBT} for row in d.rows.values())
        if doubts:
            logger.warning(
                "pushes that earlier runs left in doubt: %d; searching for them, see `in_doubt`",
                doubts,
            )
        if d.store.shared:
            self._watching = d.tasks.start(self._watch())
        return pushes

    async def _watch(self) -> None:
        """Hear of what other processes have changed, or left behind."""
        d = self.dispatcher
        while not d.tasks.closing.is_set():
            try:
                async for name in d.store.news():
                    await self._look_at(self.of(name))
            except JournalError as error:  # what was missed is seen by the poll of `news`
                logger.warning(
                    "changes by other processes could not be read from the journal: %s", error
                )
                await d.tasks.sleep(UNHEARD)

    async def _look_at(self, company: Company) -> None:
        d = self.dispatcher
        if company.is_ours:
            queued = await d.store.rows(company=company.id, state=State.QUEUED)
            doubted = [one.id for one in d.doubts(company.id)]
            decided = await d.store.rows(ids=doubted) if doubted else []
            for row in (*queued, *decided):
                cached = d.rows.get(row.id)
                if row.id not in d.carried and (cached is None or cached.version < row.version):
                    d.arrive(row)
            return
        if d.stopped is None:
            await self._take(company)
        waited_for = company.others
        for row in await d.store.rows(ids=list(waited_for)) if waited_for else []:
            self.hear(row)

    def heed(self, row: Row) -> None:
        """Let whoever waits for a row hear of it that another process carries, from now on."""
        self.of(row.company).others.add(row.id)
        # What has happened before is no news any more.
        self.dispatcher.tasks.start(self.dispatcher.restart(row.id))

    def hear(self, row: Row, fresher: Fresher = None) -> None:
        """Tell whoever waits for a row that another process carries."""
        d, company = self.dispatcher, self.of(row.company)
        match row.state:
            case State.QUEUED | State.SENDING | State.LOST:
                company.others.add(row.id)
            case State.OPEN:
                company.others.add(row.id)
                for push in d.handles.of(row.id):
                    if push.key is None:
                        push._acknowledged(outcomes.recorded_operation(row), None)
            case State.DOUBT:
                d.tell(row)
            case State.CLOSED | State.REFUSED | State.FINAL:
                company.others.discard(row.id)
                d.tell(row, fresher)
            case other:
                assert_never(other)

    def stop_watching(self) -> None:
        """Hear of other processes no more."""
        if self._watching is not None:
            self._watching.cancel()
