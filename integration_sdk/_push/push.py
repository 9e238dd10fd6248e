"""`Push`: the handle of one record being pushed.

Ten thousand of them may be open, so a push is a few slots and no task. It creates a future only
when awaited, and an operation of its own only when asked for one: until then it shares that of
another push which the service described in the same words.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Generator
from datetime import datetime
from operator import attrgetter
from typing import Final, Literal

from attrs import define, evolve, field, fields, frozen

from integration_sdk.models import PushOperation, PushOutcome, PushRequest

What = Literal["sent", "doubted", "changed", "ended", "found"]
_LANE: Final = ("company_id", "data_connection_id", "data_type")
_OWN: Final = ("push_operation_key", "requested_on_utc", *_LANE)
"""Fields in which acknowledged pushes always differ."""
_lane = attrgetter(*_LANE)
_all_else = attrgetter(*(one.name for one in fields(PushOperation) if one.name not in _OWN))


@define(eq=False)
class Push:
    """One record being pushed. Await it for its `PushOutcome`, from as many tasks as you like.

    Attributes:
        request: What was asked for.
        key: The ``pushOperationKey``; None if the service has given none.
        outcome: None until the push has one.
        number: Its place in the input of `Coordinator.run`, from 0.
        intent: Its id for `Coordinator.decide`; without a journal it has one only while it is
            sent or in doubt.
        twins: Pushes of the same reference that share what becomes of this one.
    """

    request: PushRequest
    key: str | None = None
    outcome: PushOutcome | None = None
    number: int = field(default=0, repr=False)
    intent: str | None = field(default=None, repr=False)
    twins: list[Push] | None = field(default=None, repr=False)
    _wait: float | None = field(default=None, repr=False)
    _on_outcome: Callable[[Push], None] | None = field(default=None, repr=False)
    _waiters: list[asyncio.Future[None]] | None = field(default=None, repr=False)
    _seen: PushOperation | None = field(default=None, repr=False)
    _requested: datetime | None = field(default=None, repr=False)

    @property
    def operation(self) -> PushOperation | None:
        """Last state seen; None until the service has answered, and if it refused."""
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
        """Wait for the outcome; cancelling the wait does not touch the push."""
        while self.outcome is None:
            yield from self._next_change().__await__()
        return self.outcome

    async def events(self) -> AsyncIterator[PushOperation]:
        """Yield each state of the push, beginning with the last one seen.

        Ends with the outcome. States that have passed by the time you ask are left out.
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

    def _acknowledged(
        self, intent: str | None, operation: PushOperation, like: PushOperation | None
    ) -> PushOperation:
        """Set the service's key, and the *intent* that the final state is recorded under.

        Share *like*, the operation of another push, if it says the same. Return the one kept.
        """
        self.intent, self.operation = intent, operation
        asked = (self.request.company_id, self.request.connection_id, self.request.data_type)
        if like is None or _lane(operation) != asked or not _say_the_same(operation, like):
            like = operation
        self._seen, self._requested = like, operation.requested_on_utc
        self._share()
        return like

    def _doubted(self, intent: str) -> None:
        """Note that the answer was lost and *intent* is searched for."""
        self.intent = intent
        self._share()

    def _changed(self, operation: PushOperation) -> bool:
        """Set a state that is not final; return whether it differs from the last one."""
        if self._seen is not None and self._seen.raw_status == operation.raw_status:
            return False
        self.operation = operation
        self._share()
        return True

    def _add_twin(self, twin: Push) -> None:
        """Add *twin* and its twins to those that share the result of this push."""
        self.twins = [*(self.twins or ()), *twin._with_twins]
        twin.twins = None
        self._share()

    @property
    def _with_twins(self) -> list[Push]:
        """Return this push and its twins."""
        return [self, *(self.twins or ())]

    def _remove(self, one: Push) -> Push | None:
        """Remove a twin or this push; return the push that has the others as twins now."""
        left = [each for each in self._with_twins if each is not one]
        self.twins = None
        if not left:
            return None
        head, *twins = left
        head.twins = twins or None
        return head

    def _share(self) -> None:
        self._wake()
        for twin in self.twins or ():
            twin.intent = self.intent
            if self.operation is not None:
                twin._changed(self.operation)

    def _settle(self, outcome: PushOutcome) -> None:
        """Set the outcome unless there is one, and tell all who wait, for its reference too."""
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

    * "sent": the service has it, ``push.key`` is known;
    * "doubted": its answer was lost, and the company's list of pushes is searched for it;
    * "changed": it has another status, which is not final;
    * "ended": it has an outcome;
    * "found": it was IN_DOUBT and has turned up; ``push.operation`` is its final state.
    """

    what: What
    push: Push


def _say_the_same(one: PushOperation, other: PushOperation) -> bool:
    """Whether two operations are equal apart from the fields in `_OWN`."""
    if one.data or one.extra or one.changes or one.validation is not other.validation:
        return False  # JSON that is equal may differ: 1 and true
    return bool(_all_else(one) == _all_else(other))
