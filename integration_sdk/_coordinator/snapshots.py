"""What a company's list of pushes held before more were sent there.

A snapshot serves all pushes of the company for some minutes: the list is asked for once, by the
first of them, and those that come meanwhile wait for the same answer.
"""

from __future__ import annotations

import asyncio
from collections import OrderedDict
from collections.abc import Callable, Coroutine
from typing import Any, Final

from attrs import Factory, define

from integration_sdk._sansio.pushing.intents import Snapshot

SNAPSHOT_AGE: Final = 600.0
"""Seconds after which a company is listed anew before pushes are sent."""
NO_SNAPSHOT_AGE: Final = 30.0
"""The same where it could not be listed: what is sent until then can only be IN_DOUBT."""
SNAPSHOT_PUSHES: Final = 25_000
"""Pushes of all companies after which likewise: `KeyJournal` remembers what was sent since."""


@define
class _Taken:
    """A company's snapshot, and when to take a new one: by time, or by pushes sent since."""

    until: float
    until_push: int
    task: asyncio.Task[Snapshot | None]


@define(eq=False)
class Snapshots:
    """The snapshots in use, those taken first in front.

    Args:
        take: Lists a company's pushes; None where the list is not to be had.
    """

    take: Callable[[str], Coroutine[Any, Any, Snapshot | None]]
    _taken: OrderedDict[str, _Taken] = Factory(OrderedDict)
    _pushes: int = 0

    async def before_push(self, company_id: str) -> Snapshot | None:
        """Return what was there before the push that is to be sent now."""
        now = asyncio.get_running_loop().time()
        self._pushes += 1
        taken = self._taken.get(company_id)
        if taken is None or now > taken.until or self._pushes > taken.until_push:
            taken = self._take_anew(company_id, now)
        return taken.task.result() if taken.task.done() else await asyncio.shield(taken.task)

    def _take_anew(self, company_id: str, now: float) -> _Taken:
        self._forget_old(company_id, now)
        taken = self._taken[company_id] = _Taken(
            until=now + SNAPSHOT_AGE,
            until_push=self._pushes + SNAPSHOT_PUSHES,
            task=asyncio.create_task(self._take(company_id, now)),
        )
        return taken

    def _forget_old(self, company_id: str, now: float) -> None:
        """A thousand companies' snapshots are 25 MiB; those of use are of ten minutes."""
        self._taken.pop(company_id, None)
        while self._taken and next(iter(self._taken.values())).until < now:
            self._taken.popitem(last=False)

    async def _take(self, company_id: str, began: float) -> Snapshot | None:
        snapshot = await self.take(company_id)
        if snapshot is None and company_id in self._taken:
            self._taken[company_id].until = began + NO_SNAPSHOT_AGE
        return snapshot
