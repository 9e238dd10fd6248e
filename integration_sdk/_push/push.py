"""What callers hold: a push, its events, and the progress of all pushes.

Ten thousand pushes may be open, so a push is a few slots and no task. It makes a future only when
it is awaited. Until its operation is read, it shares the operation of another push that the service
described in the same words.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import AsyncIterator, Callable, Generator, Mapping
from datetime import datetime
from operator import attrgetter
from typing import Final, Literal

from attrs import Factory, define, evolve, field, fields, frozen

from integration_sdk._outcome import PushOutcome
from integration_sdk.models import OutcomeStatus, PushOperation, PushRequest

What = Literal["sent", "doubted", "changed", "ended", "found"]
_LANE: Final = ("company_id", "data_connection_id", "data_type")
_OWN: Final = ("push_operation_key", "requested_on_utc", *_LANE)
"""Fields in which acknowledged pushes always differ."""
_lane = attrgetter(*_LANE)
_all_else = attrgetter(*(one.name for one in fields(PushOperation) if one.name not in _OWN))
WINDOW: Final = 15.0
"""Seconds over which the rate of outcomes is measured."""


@define(eq=False)
class Push:
    """One record being pushed. Await it for its `PushOutcome`, from as many tasks as you like.

    Attributes:
        request: What you asked for.
        key: The ``pushOperationKey``; None until the service has given one.
        outcome: None until the push has ended.
        number: Its place in the input of `Coordinator.run`, from 0.
        intent: Its id in the journal, for `Coordinator.decide`; None until it is recorded.
    """

    request: PushRequest
    key: str | None = None
    outcome: PushOutcome | None = None
    number: int = field(default=0, repr=False)
    intent: str | None = field(default=None, repr=False)
    _wait: float | None = field(default=None, repr=False)
    _on_outcome: Callable[[Push], None] | None = field(default=None, repr=False)
    _waiters: list[asyncio.Future[None]] | None = field(default=None, repr=False)
    _seen: PushOperation | None = field(default=None, repr=False)
    _requested: datetime | None = field(default=None, repr=False)

    @property
    def operation(self) -> PushOperation | None:
        """Last state seen; None until the service has answered, or if it refused."""
        seen, asked = self._seen, self.request
        if seen is not None and seen.push_operation_key != self.key:
            self._seen = evolve(
                seen,
                push_operation_key=str(self.key),
                requested_on_utc=self._requested,
                company_id=asked.company_id,
                data_connection_id=asked.connection_id,
                data_type=asked.data_type,
            )
        return self._seen

    @operation.setter
    def operation(self, operation: PushOperation | None) -> None:
        self.key = operation.push_operation_key if operation else None
        self._seen = operation

    def __await__(self) -> Generator[object, None, PushOutcome]:
        """Wait for the outcome. Cancelling the wait does not affect the push."""
        while self.outcome is None:
            yield from self._next_change().__await__()
        return self.outcome

    async def events(self) -> AsyncIterator[PushOperation]:
        """Yield each state of the push, from the last one seen to the outcome.

        A state that is over before you ask for the next one is left out.
        """
        shown: PushOperation | None = None
        while True:
            if self.operation is not None and self.operation is not shown:
                shown = self.operation
                yield shown
            elif self.outcome is not None:
                return
            else:
                await self._next_change()

    async def _next_change(self) -> None:
        future: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._waiters = self._waiters or []
        self._waiters.append(future)
        try:
            await future
        except asyncio.CancelledError:
            if future in (self._waiters or ()):  # a push may be awaited for a second, day by day
                self._waiters.remove(future)
            raise

    def _wake(self) -> None:
        """Let those who wait look again."""
        waiters, self._waiters = self._waiters, None
        for future in waiters or ():
            if not future.done():
                future.set_result(None)

    # For the coordinator

    def _acknowledged(self, operation: PushOperation, like: PushOperation | None) -> PushOperation:
        """Set what the service has answered.

        Share *like*, the operation of another push, if it says the same. Return the one kept.
        """
        self.operation = operation
        asked = (self.request.company_id, self.request.connection_id, self.request.data_type)
        if like is None or _lane(operation) != asked or not _say_the_same(operation, like):
            like = operation
        self._seen, self._requested = like, operation.requested_on_utc
        self._wake()
        return like

    def _changed(self, operation: PushOperation) -> bool:
        """Set a state that is not final; return whether it differs from the last one."""
        if self._seen is not None and self._seen.raw_status == operation.raw_status:
            return False
        self.operation = operation
        self._wake()
        return True

    def _settle(self, outcome: PushOutcome) -> None:
        """Set the outcome unless there is one, and tell all who wait."""
        if self.outcome is None:
            self.outcome = outcome
            self.operation = outcome.operation or self.operation
        self._wake()
        if self._on_outcome:
            self._on_outcome(self)
            self._on_outcome = None


@frozen
class PushEvent:
    """Something that happened to a push.

    ``what`` is one of:

    * "sent": the service has accepted it, and ``push.key`` is known;
    * "doubted": its answer was lost, and the SDK searches the company's pushes for it;
    * "changed": it has a new status that is not final;
    * "ended": it has an outcome;
    * "found": it was IN_DOUBT and was found; ``push.operation`` is its final state.
    """

    what: What
    push: Push


def _say_the_same(one: PushOperation, other: PushOperation) -> bool:
    """Whether two operations are equal apart from the fields in `_OWN`."""
    if one.data or one.extra or one.changes or one.validation is not other.validation:
        return False  # JSON that is equal may differ: 1 and true
    return bool(_all_else(one) == _all_else(other))


@frozen(kw_only=True)
class PushProgress:
    """How far the pushes of a coordinator have got.

    Attributes:
        sending: Pushes being sent to the service.
        open: Pushes accepted by the service and not final.
        outcomes: Number of pushes that have ended, by outcome.
        total: Number of pushes expected, from the ``len()`` or ``total=`` of runs; None if unknown.
        rate: Recent outcomes per second.
        eta: Seconds until all have ended; None if unknown.
    """

    sending: int
    open: int
    outcomes: Mapping[OutcomeStatus, int]
    total: int | None
    rate: float
    eta: float | None

    @property
    def ended(self) -> int:
        """How many have an outcome."""
        return sum(self.outcomes.values())


@define
class Tally:
    """Counts what happens, for `PushProgress`."""

    total: int | None = None
    outcomes: Counter[OutcomeStatus] = Factory(Counter)
    _rate: float = 0.0
    _since: float | None = None
    _count: int = 0

    def expect(self, more: int) -> None:
        """Add *more* pushes to the total."""
        self.total = (self.total or 0) + more

    def ended(self, status: OutcomeStatus, now: float) -> None:
        """Count an outcome."""
        self.outcomes[status] += 1
        self._since = now if self._since is None else self._since
        self._count += 1
        if now - self._since >= WINDOW:
            self._rate, self._since, self._count = self._count / (now - self._since), now, 0

    def progress(self, now: float, *, sending: int, still_open: int) -> PushProgress:
        """Return the current progress, with *still_open* pushes that are not final."""
        rate = self._current(now)
        ended = sum(self.outcomes.values())
        left = None if self.total is None else max(0, self.total - ended)
        eta = 0.0 if left == 0 else left / rate if left is not None and rate else None
        return PushProgress(
            sending=sending,
            open=still_open,
            outcomes=dict(self.outcomes),
            total=self.total,
            rate=rate,
            eta=eta,
        )

    def _current(self, now: float) -> float:
        """Return the rate of the current window after two thirds of it, else of the last one."""
        passed = now - self._since if self._since is not None else 0.0
        if passed >= WINDOW * 2 / 3 or (self._rate == 0.0 and passed > 0):
            return self._count / passed
        return self._rate
