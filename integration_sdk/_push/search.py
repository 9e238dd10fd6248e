"""Finds out from the service's list what became of a push whose answer was lost.

A company with LOST rows is listed at once and then at growing intervals, until the evidence settles
each or the policy's patience is used up. A row in DOUBT is up to the caller, and still looked for
whenever the company is listed or a notification names an unknown push (a *sweep*), because requests
may arrive late and lists may lag. Nothing here sends a push again, unless the caller lets us
(``in_doubt="resend"``) and no list shows it.

**A search has a budget**: 5 listings of a company in 10 seconds and 12 in a minute, then growing
pauses up to ten minutes, however often pushes are lost.
"""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from collections.abc import Mapping
from math import inf
from typing import TYPE_CHECKING, Final

from attrs import Factory, define

from integration_sdk._push import sending
from integration_sdk._push.evidence import (
    Finding,
    Judging,
    Operation,
    awaits_another,
    may_resend,
)
from integration_sdk._push.table import after
from integration_sdk._push.tasks import loop_time
from integration_sdk._store.row import Row, State
from integration_sdk.errors import JournalError

if TYPE_CHECKING:
    from integration_sdk._push.dispatcher import Dispatcher

logger = logging.getLogger("integration_sdk.pushes")

FIRST: Final = 0.5
"""Seconds before a company with a lost push is first listed."""
LONGEST: Final = 600.0
"""Seconds between two listings at most, while a search lasts."""
BUDGET: Final = ((5, 10.0), (12, 60.0))
"""Listings of a company in so many seconds, at most."""
AFTER_LISTING: Final = 30.0
"""Seconds between two sweeps that a listing triggers, at least."""
AFTER_NOTIFICATION: Final = 1.0
"""The same for sweeps that a notification of an unknown push triggers."""
RARER: Final = 0.1
"""Share by which the time in doubt has to grow between two sweeps."""
READ_SINGLY: Final = 20
"""Pushes listed without ``data`` that are read one by one after a listing, at most."""


@define
class _Company:
    """When a company was listed in search of pushes, and since when a push is in doubt.

    Attributes:
        sweeps: Number of sweeps that are planned or under way; each tells of DOUBTs at its end.
    """

    since: float
    is_searched: bool = False
    sweeps: int = 0
    swept_at: float = -inf
    listed: deque[float] = Factory(lambda: deque(maxlen=max(count for count, _ in BUDGET)))

    def wait(self, now: float) -> float:
        """Return the seconds until the budget allows another listing."""
        waits = [
            self.listed[-count] + span - now for count, span in BUDGET if len(self.listed) >= count
        ]
        return max(0.0, *waits) if waits else 0.0

    def next_sweep(self, pause: float, now: float) -> float:
        return self.swept_at + max(pause, RARER * (now - self.since))


@define(eq=False)
class Search:
    """The searches of all companies.

    Attributes:
        found: What the last listing suggested about each row in doubt.
        read: Final pushes that were read one by one for their echo, by key.
    """

    dispatcher: Dispatcher
    policy: sending.Policy
    found: dict[str, Finding] = Factory(dict)
    read: dict[str, Operation] = Factory(dict)
    _companies: dict[str, _Company] = Factory(dict)

    def seek(self, company_id: str) -> None:
        """Search for the company's LOST rows, until none is left."""
        company = self._of(company_id)
        if not company.is_searched and not self.dispatcher.tasks.closing.is_set():
            company.is_searched = True
            self.dispatcher.tasks.start(self._seek(company_id, company))

    def sweep(self, company_id: str | None) -> None:
        """Look once more for pushes in doubt of a company that has just been listed.

        None: a notification named an unknown push, which may be any company's.
        """
        d = self.dispatcher
        for name in {row.company for row in d.doubts(company_id)}:
            company, now = self._of(name), loop_time()
            pause = AFTER_NOTIFICATION if company_id is None else AFTER_LISTING
            at = max(now, company.next_sweep(pause, now))
            late = company_id is not None and at > now  # the next listing is early enough
            if late or company.is_searched or company.swept_at > now or d.tasks.closing.is_set():
                continue
            company.swept_at = at
            self._start_sweep(name, at - now)

    def _start_sweep(self, company_id: str, wait: float) -> None:
        self._of(company_id).sweeps += 1
        self.dispatcher.tasks.start(self._sweep(company_id, wait))

    def unsettled(self, row: Row) -> None:
        """Tell whoever waits for *row*, which has come into DOUBT; or send it again, if we may."""
        pushes = self.dispatcher.handles.of(row.id)
        if row.id in self.found or not any(map(self.dispatcher.handles.was_recovered, pushes)):
            self._resend_or_tell(row)
            return
        self.sweep(row.company)  # an earlier run's word is old
        company = self._of(row.company)
        if not (company.is_searched or company.sweeps):  # too soon after the last sweep
            self._resend_or_tell(row)

    def _resend_or_tell(self, row: Row) -> None:
        if self._may_resend(row):
            self.dispatcher.tasks.start(self.dispatcher.sender.resend_missing(row))
        else:
            self.dispatcher.tell(row)

    def _may_resend(self, row: Row) -> bool:
        d = self.dispatcher
        return (
            self.policy.resends
            and any(push.outcome is None for push in d.handles.of(row.id))
            and not (d.stopped or d.tasks.closing.is_set())
            and may_resend(
                row,
                self.found.get(row.id),
                d.rows,
                transmissions=self.policy.retry.attempts,
            )
        )

    async def _seek(self, company_id: str, company: _Company) -> None:
        try:
            await self._seek_all(company_id)
        except asyncio.CancelledError:  # by a stranger
            self._end(company_id, company)
            raise
        self._end(company_id, company)

    async def _seek_all(self, company_id: str) -> None:
        waited: dict[str, float] = {}
        so_far, pause = 0.0, FIRST
        while asked := self._lost(company_id):
            if not await self.dispatcher.tasks.sleep(pause):
                return
            waited = {row: waited.get(row, 0.0) + pause for row in asked}
            so_far += pause
            usual = max(FIRST, min(2 * pause, self.policy.patience / 2))
            pause = min(LONGEST, max(usual, so_far / 5))
            await self.look(company_id, waited)

    def _end(self, company_id: str, company: _Company) -> None:
        company.is_searched, company.since = False, loop_time()
        if self._lost(company_id):
            self.seek(company_id)
        elif self._awaits_another(company_id):
            self._start_sweep(company_id, FIRST)
        else:
            self._tell_doubts(company_id)

    def _lost(self, company_id: str) -> list[str]:
        d = self.dispatcher
        return [
            row.id
            for row in d.doubts(company_id)
            if row.state is State.LOST and row.id not in d.carried
        ]

    async def _sweep(self, company_id: str, wait: float) -> None:
        try:
            for _ in range(2):
                if wait and not await self.dispatcher.tasks.sleep(wait):
                    return
                await self.look(company_id, {})
                if not self._awaits_another(company_id):
                    return
                wait = FIRST
        finally:
            self._of(company_id).sweeps -= 1
            self._tell_doubts(company_id)

    def _awaits_another(self, company_id: str) -> bool:
        doubts = self.dispatcher.doubts(company_id)
        return any(awaits_another(row, self.found.get(row.id)) for row in doubts)

    def _tell_doubts(self, company_id: str) -> None:
        """Tell whoever waits for a row that stays in DOUBT after a search or sweep."""
        for row in self.dispatcher.doubts(company_id):
            if row.state is State.DOUBT:
                self._resend_or_tell(row)

    async def look(self, company_id: str, waited: Mapping[str, float]) -> None:
        """List the company's pushes once, when the budget allows, and judge all rows in doubt."""
        d, company = self.dispatcher, self._of(company_id)
        while (wait := company.wait(loop_time())) > 0:  # others may list it meanwhile
            if not await d.tasks.sleep(wait):
                return
        asked = d.doubts(company_id)  # the listing may lack what is sent from here on
        if not asked:
            return
        company.listed.append(loop_time())
        listing = await d.wire.list_back_to(company_id, asked)
        policy = self.policy
        judging = Judging(asked, listing, policy.path_names, policy.exclusive)
        news: list[tuple[Row, None]] = []
        try:
            owned = await d.store.owners(judging.new)
            free = {key: one for key, one in judging.new.items() if key not in owned}
            await self._read_mute(company_id, free)
            unclaimed = {key: one for key, one in free.items() if key not in d.keys}
            changes = judging.conclude(
                d.rows,
                d.rivals,
                unclaimed,
                found=self.found,
                waited=waited,
                patience=policy.patience,
            )
            news = [(after(row, event, **facts), None) for row, event, facts in changes]
            await d.write_all(news)
        except JournalError as error:
            logger.warning(
                "the search for pushes in doubt of company %s failed and will be retried: %s",
                company_id,
                error,
            )
        for new, _ in news:
            if new.key is not None and d.rows.get(new.id) is new:
                self.found.pop(new.id, None)
                logger.info("%s was found: it is push %s", new, new.key)
        if not d.rivals:
            self.read.clear()
            self.found.clear()

    async def _read_mute(self, company_id: str, found: dict[str, Operation]) -> None:
        """Read final pushes that were listed without their echo, one by one and each only once."""
        mute = [key for key, one in found.items() if one.is_final and not one.data]
        unread = tuple(key for key in mute if key not in self.read)[:READ_SINGLY]
        for one in await self.dispatcher.wire.read_singly(company_id, unread) if unread else ():
            self.read[one.push_operation_key] = one
        found.update((key, self.read[key]) for key in mute if key in self.read)

    def _of(self, company_id: str) -> _Company:
        company = self._companies.get(company_id)
        if company is None:
            company = self._companies[company_id] = _Company(loop_time())
        return company
