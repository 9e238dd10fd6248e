"""A limit of calls that all users of a store keep together.

It is generic cell rate: the store holds when the next call may leave, and whoever wants to send
moves that on by one interval for each call. A trip to the store reserves a *handful* of slots, more
if trips take long, but no more than there are callers, and is answered with a wait relative to its
own moment, so that hosts need no common clock. The next trip is made when the first of them is due.
So nothing is locked between two trips, and a process that dies has taken two handfuls at most.

A slot that was not used in time is void: a process that was frozen would otherwise send with slots
that others have long been given. A refusal that concerns everybody pauses the limit for all, but
not for long: then each process asks the service itself, whose answer it can judge and report.
"""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from typing import Final, Protocol

from attrs import Factory, define, field, frozen

from integration_sdk.errors import IntegrationError, JournalError, fresh_copy

logger = logging.getLogger("integration_sdk.store")

HANDFUL: Final = 0.05
"""Seconds of the limit that one trip may reserve: at 100 a second, five slots."""
LONGEST_TRIP: Final = 1.0
"""Seconds of the limit that a trip may reserve besides, if the last one took so long."""
EXPIRES: Final = 0.25
"""Seconds after its time at which a slot is void."""
LONGEST_PAUSE: Final = 60.0
"""Seconds for which one refusal may pause all."""
WORTH_A_WORD: Final = 5.0
"""Seconds to wait from which on it is logged."""


@define
class CellRate:
    """The limit itself, where one process keeps it. Times in seconds of any clock.

    Attributes:
        next_at: When the next call may leave.
        paused_until: Nothing leaves before.
    """

    next_at: float = 0.0
    paused_until: float = 0.0

    def reserve(self, count: int, now: float, *, interval: float, burst: int) -> float:
        """Take *count* slots, one *interval* apart; return when the first one is.

        That may have been earlier: up to *burst* calls may leave together after a pause.
        """
        first = max(self.next_at, self.paused_until, now - (burst - 1) * interval)
        self.next_at = first + count * interval
        return first


class RateKeeper(Protocol):
    """Where a limit is kept."""

    async def reserve(self, name: str, count: int, interval: float, burst: int) -> float:
        """Take slots, as `CellRate.reserve`; return the seconds until the first one."""

    async def pause(self, name: str, seconds: float) -> None:
        """Let nothing leave for so many seconds from now."""


@define
class MemoryRates:
    """Limits of one process, by name."""

    _rates: dict[str, CellRate] = Factory(dict)

    async def reserve(self, name: str, count: int, interval: float, burst: int) -> float:
        """Take slots; return the seconds until the first one."""
        now, rate = _now(), self._rates.setdefault(name, CellRate())
        return rate.reserve(count, now, interval=interval, burst=burst) - now

    async def pause(self, name: str, seconds: float) -> None:
        """Let nothing leave for so many seconds from now."""
        rate = self._rates.setdefault(name, CellRate())
        rate.paused_until = max(rate.paused_until, _now() + seconds)


@frozen
class Limit:
    """What a limit allows: *burst* calls at once, then one each *interval* seconds."""

    name: str
    interval: float
    burst: int

    @property
    def handful(self) -> int:
        """How many slots a quick trip may reserve."""
        return max(1, round(HANDFUL / self.interval))

    def portion(self, trip: float) -> int:
        """How many slots may be reserved if a trip takes so many seconds, in which none comes."""
        return self.handful + int(min(trip, LONGEST_TRIP) / self.interval)


@define(eq=False)
class StoreRate:
    """A `SharedRate` kept in a store; see `Store.rate`."""

    limit: Limit
    _keeper: RateKeeper
    _waiting: deque[asyncio.Future[float]] = field(init=False, factory=deque)
    _filling: asyncio.Task[None] | None = field(init=False, default=None)
    _telling: set[asyncio.Task[None]] = field(init=False, factory=set)
    _void_before: float = field(init=False, default=0.0)

    async def acquire(self) -> None:
        """Wait until one more call may be sent.

        Raises:
            JournalError: The store cannot be reached, or refuses.
        """
        while True:
            at = await self._slot()
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
            await self._keeper.pause(self.limit.name, seconds)
        except JournalError as error:  # the others will be refused themselves
            logger.warning("other processes could not be told that calls are refused: %s", error)

    async def _slot(self) -> float:
        """Return the time of the next slot that is free."""
        slot: asyncio.Future[float] = asyncio.get_running_loop().create_future()
        self._waiting.append(slot)
        if self._filling is None:
            self._start()
        return await slot

    def _start(self) -> None:
        self._filling = asyncio.create_task(self._fill(), name="integration_sdk rate")
        self._filling.add_done_callback(self._filled)

    async def _fill(self) -> None:
        """Reserve for those who wait, a handful at a time."""
        limit, trip = self.limit, 0.0
        while self._waiting:
            count, began = min(len(self._waiting), limit.portion(trip)), _now()
            wait = await self._keeper.reserve(limit.name, count, limit.interval, limit.burst)
            now = _now()
            trip = now - began
            if wait >= WORTH_A_WORD * max(1.0, limit.interval):
                logger.warning("calls wait %.0f s for the shared rate %r", wait, limit.name)
            for number in range(count):
                if (slot := self._next_in_line()) is not None:
                    slot.set_result(now + max(0.0, wait + number * limit.interval))
            # Nobody takes slots for long ahead: others wait too, and a process may die.
            await asyncio.sleep(wait)

    def _filled(self, filling: asyncio.Task[None]) -> None:
        """Start again if somebody else has cancelled the task; its error is everybody's."""
        self._filling = None
        error = None if filling.cancelled() else filling.exception()
        while error is not None and (slot := self._next_in_line()) is not None:
            slot.set_exception(_copy_of(error))
        if any(not slot.done() for slot in self._waiting):
            self._start()

    def _next_in_line(self) -> asyncio.Future[float] | None:
        while self._waiting:
            slot = self._waiting.popleft()
            if not slot.done():
                return slot
        return None


def _copy_of(error: BaseException) -> BaseException:
    return fresh_copy(error) if isinstance(error, IntegrationError) else error


def _now() -> float:
    return asyncio.get_running_loop().time()
