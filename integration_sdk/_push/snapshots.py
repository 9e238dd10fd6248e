"""Snapshots: what a company's list of pushes held before more were sent.

A snapshot serves all pushes of the company for some minutes. The first push requests the list;
those that arrive in the meantime wait for the same answer.
"""

from __future__ import annotations

import asyncio
from collections import OrderedDict
from collections.abc import Callable, Coroutine
from typing import Any, Final

from attrs import Factory, define

from integration_sdk._push import clock
from integration_sdk._push.tasks import Tasks
from integration_sdk._store.row import Snapshot

SNAPSHOT_AGE: Final = 600.0
"""Seconds after which a company is listed again before pushes are sent."""
NO_SNAPSHOT_AGE: Final = 30.0
"""The same after a failed listing; without a snapshot a push in doubt cannot be resolved."""
SNAPSHOT_PUSHES: Final = 25_000
"""Pushes (of all companies) after which likewise; `KeyJournal` remembers that many keys."""


@define
class _Taken:
    """A company's snapshot, and the time and push count after which to take a new one."""

    until: float
    until_push: int
    task: asyncio.Task[Snapshot | None]

    def is_over(self, now: float, pushes: int) -> bool:
        return now > self.until or pushes > self.until_push or self.task.cancelled()


@define(eq=False)
class Snapshots:
    """The snapshots in use, oldest first.

    Args:
        take: Lists a company's pushes; returns None if that fails.
        tasks: Run it.
    """

    take: Callable[[str], Coroutine[Any, Any, Snapshot | None]]
    tasks: Tasks
    _taken: OrderedDict[str, _Taken] = Factory(OrderedDict)
    _pushes: int = 0

    async def before_push(self, company_id: str) -> Snapshot | None:
        """Return a snapshot for a push about to be sent, taking a new one if needed."""
        now = clock.now()
        self._pushes += 1
        taken = self._taken.get(company_id)
        if taken is None or taken.is_over(now, self._pushes):
            taken = self._take_anew(company_id, now)
        if not taken.task.done():
            await asyncio.wait([taken.task])
        return None if taken.task.cancelled() else taken.task.result()

    def _take_anew(self, company_id: str, now: float) -> _Taken:
        self._forget_old(company_id, now)
        taken = self._taken[company_id] = _Taken(
            until=now + SNAPSHOT_AGE,
            until_push=self._pushes + SNAPSHOT_PUSHES,
            task=self.tasks.start(self._take(company_id, now)),
        )
        return taken

    def _forget_old(self, company_id: str, now: float) -> None:
        """Drop outdated snapshots: those of a thousand companies take 25 MiB."""
        self._taken.pop(company_id, None)
        while self._taken and next(iter(self._taken.values())).until < now:
            self._taken.popitem(last=False)

    async def _take(self, company_id: str, began: float) -> Snapshot | None:
        snapshot = await self.take(company_id)
        if snapshot is None and company_id in self._taken:
            self._taken[company_id].until = began + NO_SNAPSHOT_AGE
        return snapshot
