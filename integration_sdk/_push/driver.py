"""Drives the machines of the push protocol with the session and a journal.

See `_push.effects` for what a driver has to do. If a stranger cancels the task of a
machine, nothing more is sent, and the machine is told what may have left.
"""

from __future__ import annotations

import asyncio
import logging
import math
from collections.abc import Awaitable, Callable
from typing import Any, Final, TypeVar

from attrs import Factory, define, evolve, field

from integration_sdk._http import statuses
from integration_sdk._http.requests import Phase, Request
from integration_sdk._http.responses import Failure, Reply, Response
from integration_sdk._http.statuses import Scope
from integration_sdk._push import answers, clock
from integration_sdk._push.effects import (
    Commit,
    Effect,
    FindOwners,
    ListPushes,
    Machine,
    ReadSingly,
    Report,
    Send,
    Sleep,
)
from integration_sdk._push.evidence import answers_another
from integration_sdk._push.places import Place
from integration_sdk._push.push_list import PushList, Service
from integration_sdk._push.table import SendResult
from integration_sdk._push.tasks import this_task
from integration_sdk._store import Journal
from integration_sdk._store.row import Intent
from integration_sdk._system import current_task_cancelled
from integration_sdk.errors import (
    AnswerLost,
    IntegrationError,
    JournalError,
    NotSent,
)

logger = logging.getLogger("integration_sdk.pushes")
T = TypeVar("T")

LEFT_BEHIND: Final = "the coordinator's block was left before its turn came"
ANOTHERS: Final = "with another push, as a cache does"
CANCELLED: Final = "its task was cancelled by somebody else"


@define
class Sending:
    """A push being sent.

    call: The request. place: Its place among those that are sent.
    last: The result of the last transmission, if there was one.
    """

    call: Request
    place: Place
    last: SendResult | None = None


@define(eq=False)
class ProtocolDriver:
    """Carries out the effects of the protocol's machines, and reports how each went.

    Args:
        service: Where pushes are sent.
        pushes: The service's lists of pushes.
        journal: Where intents are kept.
        exact: Whether fractions in answers become Decimal.

    Attributes:
        on_recorded: Called with each intent once it is recorded, and with those in doubt after
            each search for them. `PushTracker` sets it.
        closing: Set once nothing more is sent or searched for.
        sending: The pushes being sent, by intent.
    """

    service: Service
    pushes: PushList
    journal: Journal
    exact: bool = field(default=False, kw_only=True)
    on_recorded: Callable[[Intent], None] = field(init=False)
    closing: asyncio.Event = Factory(asyncio.Event)
    sending: dict[str, Sending] = Factory(dict)
    _in_line: set[asyncio.Task[Any]] = Factory(set)
    _ahead: float = -math.inf

    async def drive(
        self, machine: Machine[T], *, droppable: bool = False, sending: Sending | None = None
    ) -> T:
        """Carry out the effects that *machine* yields, and return its result.

        Args:
            machine: It decides what to do.
            droppable: If the task is cancelled, drop the machine, which is as safe as a crash.
                Otherwise it is told, ends soon, and has a result.
            sending: What it sends.
        """
        step: Callable[[Any], Effect] = machine.send
        report: object = None
        while True:
            try:
                effect = step(report)
            except StopIteration as stop:
                result: T = stop.value
                return result
            try:
                step, report = machine.send, await self._perform(effect, sending)
            except JournalError as error:
                step, report = machine.throw, error
            except asyncio.CancelledError:
                if droppable:
                    raise
                step, report = _cancelled(machine, effect)

    def cancel_unsent(self) -> None:
        """Send nothing more: cancel all pushes that have not left yet."""
        self.closing.set()
        for task in self._in_line:
            task.cancel()

    # Effects

    def _perform(self, effect: Effect, sending: Sending | None) -> Awaitable[Report]:
        match effect:
            case Commit():
                return self._commit(effect.rows)
            case Send():
                return self._transmit(effect.row)
            case ListPushes():
                return self.pushes.read(effect)
            case ReadSingly():
                return self.pushes.read_singly(effect.company_id, effect.keys)
            case FindOwners():
                return self.journal.owners(effect.keys)
            case Sleep():
                return self._pause(effect.seconds, sending)

    async def _commit(self, changes: tuple[Intent, ...]) -> None:
        try:
            await self.journal.commit(changes)
        except JournalError:
            raise
        except asyncio.CancelledError:  # the rows were written all the same
            self._written(changes)
            raise
        except Exception as error:
            raise JournalError(f"the journal broke: {error!r}") from error
        self._written(changes)

    def _written(self, changes: tuple[Intent, ...]) -> None:
        for row in changes:
            self.on_recorded(row)

    async def _pause(self, seconds: float, sending: Sending | None) -> float | None:
        """Sleep; a push that the service has refused leaves its place to others meanwhile."""
        last = sending.last.status if sending and sending.last else None
        if sending is None or statuses.scope_of(last) is not Scope.LOAD:
            return await self.sleep(seconds)
        sending.place.leave()
        if await self.sleep(seconds) is None:
            return None
        await sending.place.take()
        return self._now()

    async def sleep(self, seconds: float) -> float | None:
        """Return the time after so many seconds; None if the block is left, or we are cancelled."""
        if current_task_cancelled():
            return None
        try:
            async with asyncio.timeout(seconds):
                await self.closing.wait()
        except TimeoutError:
            return self._now()
        return None

    def _now(self) -> float:
        """Return the time on a clock that never goes back, and goes on while the machine sleeps.

        The loop's clock stands still then, and the service forgets idempotency keys meanwhile.
        """
        steady = clock.now()
        self._ahead = max(self._ahead, clock.unix_time() - steady)
        return steady + self._ahead

    async def _transmit(self, row: Intent) -> SendResult:
        sending = self.sending[row.id]
        began = self._now()
        call = sending.call.with_idempotency_key(row.idempotency_key)
        reply = await self._reply(row, call)
        result = answers.read_reply(
            call, reply, began=began, unix_time=clock.unix_time(), exact=self.exact
        )
        if isinstance(reply, Response) and reply.ok:
            self.pushes.hear(reply.body)
        names = self.pushes.dialect.path_names
        if result.operation is not None and answers_another(result.operation, row, names):
            wrong = answers.without_key(call, result.status)
            result = evolve(result, body=None, cause=ANOTHERS, operation=None, error=wrong)
        sending.last = result
        return result

    async def _reply(self, row: Intent, call: Request) -> Reply:
        """Wait for a turn, put on record that the push is sent, and send it."""
        if current_task_cancelled():
            return _broken_off(Phase.NEVER_LEFT, CANCELLED)
        task, phase = this_task(), Phase.NEVER_LEFT
        self._in_line.add(task)
        try:
            async with self.service.slot(call) as slot:
                self._in_line.discard(task)
                if self.closing.is_set():
                    return _broken_off(phase, LEFT_BEHIND)
                await self._commit((row,))
                phase = Phase.MAY_HAVE_LEFT
                return await slot.send()
        except asyncio.CancelledError:
            if task in self._in_line and self.closing.is_set():
                task.uncancel()
                return _broken_off(phase, LEFT_BEHIND)
            return _broken_off(phase, CANCELLED)
        except IntegrationError as error:
            return Failure(phase, error)
        except Exception as error:
            logger.exception("sending %s failed in an unforeseen way", row)
            return _broken_off(phase, f"sending the push broke off: {error!r}")
        finally:
            self._in_line.discard(task)


def _broken_off(phase: Phase, why: str) -> Failure:
    """Return the failure of a transmission that somebody or something here broke off."""
    if phase is Phase.NEVER_LEFT:
        return Failure(phase, NotSent(f"not sent: {why}"))
    return Failure(phase, AnswerLost(f"the answer was lost: {why}"))


def _cancelled(machine: Machine[Any], effect: Effect) -> tuple[Callable[[Any], Effect], object]:
    """Return how to tell *machine* that *effect* was broken off by a cancellation."""
    match effect:
        case FindOwners():
            return machine.throw, JournalError("the journal was asked by a task that was cancelled")
        case ReadSingly():
            return machine.send, ()
        case _:  # a Commit has been made, a list is not to be had, and there is nothing to wait for
            return machine.send, None
