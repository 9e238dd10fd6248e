"""`Push`: one record on its way, as the coordinator hands it out.

Ten thousand of them may be open, so a push is a few slots and no task. A future comes into
being only for those who await one.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Generator
from typing import Any, Literal

from attrs import define, field, frozen

from integration_sdk.models import PushOperation, PushOutcome, PushRequest

What = Literal["sent", "doubted", "changed", "ended", "found"]


@define(eq=False)
class Push:
    """One record being pushed. Await it for its `PushOutcome`, from as many tasks as you like.

    Attributes:
        request: What was asked for.
        operation: Last state seen; None until the service has answered, and if it refused.
        outcome: None until the push has one.
        number: Its place in the input of `Coordinator.run`, from 0.
        intent: Its id for `Coordinator.decide`; without a journal it has one only while it is
            sent or in doubt.
        twins: Pushes of the same reference that share what becomes of this one.
    """

    request: PushRequest
    operation: PushOperation | None = None
    outcome: PushOutcome | None = None
    number: int = field(default=0, repr=False)
    intent: str | None = field(default=None, repr=False)
    twins: list[Push] | None = field(default=None, repr=False)
    _on_outcome: Callable[[Push], None] | None = field(default=None, repr=False)
    _waiters: list[asyncio.Future[None]] | None = field(default=None, repr=False)

    @property
    def key(self) -> str | None:
        """The ``pushOperationKey``; None if the service has given none."""
        return self.operation.push_operation_key if self.operation else None

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

    def _next_change(self) -> asyncio.Future[None]:
        future: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        if self._waiters is None:
            self._waiters = []
        self._waiters.append(future)
        return future

    def _wake(self) -> None:
        """Let those who wait look again."""
        waiters, self._waiters = self._waiters, None
        for future in waiters or ():
            if not future.done():
                future.set_result(None)

    # For the coordinator

    def _acknowledged(self, intent: str | None, operation: PushOperation) -> None:
        """Take the service's key; *intent* is what its end goes on record under."""
        self.intent, self.operation = intent, operation
        self._share()

    def _doubted(self, intent: str) -> None:
        """Its answer was lost: *intent* is searched for."""
        self.intent = intent
        self._share()

    def _changed(self, operation: PushOperation) -> bool:
        """Take a state that is not final; return whether it is another one."""
        if self.operation is not None and self.operation.raw_status == operation.raw_status:
            return False
        self.operation = operation
        self._share()
        return True

    def _join(self, twin: Push) -> None:
        """Share what becomes of it with *twin* and its crowd; they get outcomes of their own."""
        self.twins = [*(self.twins or ()), *twin._crowd]
        twin.twins = None
        self._share()

    @property
    def _crowd(self) -> list[Push]:
        """It, and its twins."""
        return [self, *(self.twins or ())]

    def _part(self, one: Push) -> Push | None:
        """Let *one* of the crowd go; return who of those left has the others as twins now."""
        left = [each for each in self._crowd if each is not one]
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

    def _settle(self, outcome: PushOutcome) -> bool:
        """Take the outcome; the first one counts. Return whether this was it."""
        if self.outcome is not None:
            self._wake()  # it was found later, and somebody may have waited for its reference
            return False
        self.outcome = outcome
        self.operation = outcome.operation or self.operation
        told, self._on_outcome = self._on_outcome, None
        self._wake()
        if told:
            told(self)
        return True


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


def this_task() -> asyncio.Task[Any]:
    """Return the running task."""
    task = asyncio.current_task()
    if task is None:
        raise RuntimeError("a push is sent by a task")
    return task
