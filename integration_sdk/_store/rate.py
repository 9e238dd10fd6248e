"""A limit of calls that all users of a store keep together.

It is generic cell rate: the store holds when the next call may leave. A trip to it reserves a
handful of slots, more if trips take long, but no more than there are callers, and is answered with
a wait relative to its own moment, so hosts need no common clock. The next trip is made when the
first of them is due. A slot that was not used in time is void, or a process that was frozen would
use it beside those of others. A refusal pauses the limit for all, but for a minute at most: then
each process asks the service itself.
"""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from collections.abc import Callable
from typing import Final

from attrs import define, field

from integration_sdk._store.sql import POSTGRES, Database, Texts, texts
from integration_sdk.errors import IntegrationError, JournalError, fresh_copy

logger = logging.getLogger("integration_sdk.store")

HANDFUL: Final = 0.05  # seconds of the limit that one trip may reserve: at 100 a second, 5 slots
LONGEST_TRIP: Final = 1.0  # seconds of the limit besides, if the last trip took so long
LONGEST_PAUSE: Final = 60.0  # seconds for which one refusal may pause it
EXPIRES: Final = 0.25  # seconds after its time at which a slot is void


@define(eq=False, repr=False)
class StoreRate:
    """A `SharedRate` kept in a store; see `Store.rate`.

    *burst* calls at once, then one each *interval* seconds. *check_loop* is called before each: it
    lets the database follow the caller from one event loop into the next.
    """

    _name: str
    _interval: float
    _burst: int
    _database: Database
    _check_loop: Callable[[], None] = lambda: None
    _texts: Texts = field(init=False, factory=lambda: texts(POSTGRES))
    _waiting: deque[asyncio.Future[float]] = field(init=False, factory=deque)
    _filling: asyncio.Task[None] | None = field(init=False, default=None)
    _telling: set[asyncio.Task[None]] = field(init=False, factory=set)
    _void_before: float = field(init=False, default=0.0)

    def __repr__(self) -> str:
        return f"<StoreRate {self._name!r} in {self._database}>"

    async def acquire(self) -> None:
        """Wait until one more call may be sent.

        Raises:
            JournalError: The store cannot be reached, or refuses.
        """
        self._check_loop()
        while True:
            slot: asyncio.Future[float] = asyncio.get_running_loop().create_future()
            self._waiting.append(slot)
            filling = self._filling
            if filling is None or filling.done() or filling.get_loop() is not slot.get_loop():
                self._filling = asyncio.create_task(self._fill(), name="integration_sdk rate")
            at = await slot
            await asyncio.sleep(at - _now())
            if _now() <= at + EXPIRES and at >= self._void_before:
                return

    def paused(self, seconds: float) -> None:
        """Let nothing leave for so many *seconds* from now, anywhere; for a minute at most."""
        seconds = min(seconds, LONGEST_PAUSE)
        self._void_before = max(self._void_before, _now() + seconds)
        telling = asyncio.create_task(self._tell(seconds), name="integration_sdk rate")
        self._telling.add(telling)
        telling.add_done_callback(self._telling.discard)

    async def _tell(self, seconds: float) -> None:
        try:
            await self._database.run([(self._texts.pause, (self._name, seconds))])
        except JournalError as error:  # the others will be refused themselves
            logger.warning("other processes do not know that calls are refused: %s", error)

    async def _fill(self) -> None:
        """Reserve for those who wait, a handful at a time."""
        trip, interval = 0.0, self._interval
        error: IntegrationError = JournalError(f"the task of the rate {self._name!r} has ended")
        try:
            while self._waiting:
                # No slot comes while the trip lasts, so longer trips reserve more.
                handful = max(1, round(HANDFUL / interval))
                most = handful + int(min(trip, LONGEST_TRIP) / interval)
                count, began = min(len(self._waiting), most), _now()
                wait = await self._reserve(count)
                now = _now()
                trip = now - began
                for number in range(count):
                    if (slot := self._next_in_line()) is not None:
                        slot.set_result(now + max(0.0, wait + number * interval))
                # No slots are taken for long ahead: others wait too, and a process may die.
                await asyncio.sleep(wait)
        except IntegrationError as problem:
            error = problem
        finally:
            while (slot := self._next_in_line()) is not None:
                slot.set_exception(fresh_copy(error))

    async def _reserve(self, count: int) -> float:
        """Take slots; return the seconds until the first one, which may be past."""
        span = (self._burst - 1) * self._interval
        values = self._name, count, self._interval, span
        (((wait,),),) = await self._database.run([(self._texts.reserve, values)])
        return float(wait)

    def _next_in_line(self) -> asyncio.Future[float] | None:
        while self._waiting:
            slot = self._waiting.popleft()
            if not slot.done():
                return slot
        return None


def _now() -> float:
    return asyncio.get_running_loop().time()
