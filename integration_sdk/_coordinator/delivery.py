"""Drives the push protocol with the session and a journal.

The machines of `_sansio.pushing` (``protocol`` and ``reconcile``) make all decisions; this module
carries out their effects and reports how each went. A delivery runs to its end even if nobody
waits for it any more, so that its outcome is recorded; if a stranger cancels its task, nothing more
is sent, and what may have left is searched for.
"""

from __future__ import annotations

import asyncio
import logging
import math
from collections.abc import Awaitable, Callable, Iterable
from typing import Any, Final, TypeVar
from uuid import uuid4

from attrs import Factory, define, field, frozen

from integration_sdk._coordinator import clock
from integration_sdk._coordinator.push_list import SNAPSHOT, PushList
from integration_sdk._coordinator.snapshots import Snapshots
from integration_sdk._coordinator.sweeps import Sweeps
from integration_sdk._coordinator.tasks import Tasks, this_task
from integration_sdk._journal import Journal
from integration_sdk._sansio.pushing import outcomes, protocol, reconcile, replies, submissions
from integration_sdk._sansio.pushing.effects import (
    Commit,
    Effect,
    Fetch,
    FindOwners,
    Ledger,
    List,
    Machine,
    Policy,
    Report,
    Send,
    Sleep,
)
from integration_sdk._sansio.pushing.intents import Answer, Intent, Snapshot, State
from integration_sdk._sansio.pushing.replies import Heard
from integration_sdk._sansio.requests import Request
from integration_sdk._sansio.responses import Reply
from integration_sdk._strays import is_cancelled
from integration_sdk.errors import (
    AnswerLost,
    ApiError,
    ClientClosed,
    IntegrationError,
    JournalError,
    NotSent,
    TransportError,
)
from integration_sdk.models import PushOperation

logger = logging.getLogger("integration_sdk.pushes")
T = TypeVar("T")

LEFT_BEHIND: Final = "not sent: the coordinator's block was left before its turn came"
CANCELLED: Final = "its task was cancelled by somebody else"


@define
class _Sending:
    """A push being sent.

    call: The request. heard: The result of the last transmission, if there was one.
    """

    call: Request
    heard: Heard | None = None


@frozen
class Delivered:
    """The result of a delivery.

    intent: Its current state.
    operation: The push at the service, if known.
    error: Why there is no known operation.
    held_back: Whether the service asked for a pause longer than the policy allows.
    """

    intent: Intent
    operation: PushOperation | None = None
    error: IntegrationError | None = None
    held_back: bool = False


@define(eq=False)
class Delivery:
    """Sends pushes, each at most once, and finds out what became of those in doubt.

    Args:
        pushes: The service's lists of pushes, and how to send to it.
        journal: Where intents are kept.
        policy: Limits of retries and waits.
        chance: Returns a number from 0 to 1, for jitter.
        exact: Whether fractions in answers become Decimal.

    Attributes:
        ledger: What is known of intents that are not settled.
        changed: Called with each intent once it is recorded, and with those in doubt after each
            search for them; set by the desk.
    """

    pushes: PushList
    journal: Journal
    policy: Policy
    chance: Callable[[], float]
    exact: bool = field(default=False, kw_only=True)
    ledger: Ledger = Factory(
        lambda self: Ledger(keeps_acknowledged=self.journal.durable), takes_self=True
    )
    changed: Callable[[Intent], None] = field(init=False)
    closing: asyncio.Event = Factory(asyncio.Event)
    tasks: Tasks = Factory(Tasks)
    _snapshots: Snapshots = Factory(
        lambda self: Snapshots(self._take_snapshot, self.tasks), takes_self=True
    )
    _sending: dict[str, _Sending] = Factory(dict)
    _reconciling: set[str] = Factory(set)
    _sweeps: Sweeps = Factory(Sweeps)
    _in_line: set[asyncio.Task[Any]] = Factory(set)
    _ahead: float = -math.inf

    # What the coordinator asks for

    async def deliver(self, intent: Intent, call: Request) -> Delivered:
        """Send *intent* and return the result."""
        sending = self._sending[intent.id] = _Sending(call)
        try:
            done = await self._send(intent)
        except Exception:
            logger.exception(
                "sending %s broke off; if it may have left, it is searched for", intent
            )
            done = await self.drive(protocol.break_off(self.ledger, intent))
        finally:
            del self._sending[intent.id]
        heard = sending.heard
        if done.state is State.AMBIGUOUS:
            self.reconcile(done.lane.company_id)
        if done.key is not None:
            own = heard.operation if heard else None
            if own is None or own.push_operation_key != done.key:
                own = submissions.recorded_operation(done)
            return Delivered(done, own)
        held_back = heard is not None and not self.policy.waits_for(heard.answer)
        return Delivered(done, None, replies.error(call, done, heard), held_back)

    async def _send(self, intent: Intent) -> Intent:
        machine = protocol.transmit(
            self.ledger,
            intent,
            await self._snapshot(intent.lane.company_id),
            policy=self.policy,
            chance=self.chance,
            new_key=lambda: str(uuid4()),
        )
        return await self.drive(machine)

    async def _snapshot(self, company_id: str) -> Snapshot | None:
        try:
            return await self._snapshots.before_push(company_id)
        except asyncio.CancelledError:  # then nothing is sent, and it is not needed
            return None

    async def _take_snapshot(self, company_id: str) -> Snapshot | None:
        return await self.drive(protocol.take_snapshot(company_id, newest=SNAPSHOT))

    async def settle(self, finals: Iterable[tuple[str, PushOperation]]) -> None:
        """Record the final states of many intents in one commit."""
        polled = [(one, operation, outcomes.reasons(operation)) for one, operation in finals]
        await self.drive(protocol.settle(self.ledger, polled))

    async def recover(self) -> reconcile.Recovered:
        """Take over what an earlier process left."""
        rows = await self.journal.unsettled()
        found = await self.drive(reconcile.recover(self.ledger, rows), droppable=True)
        for intent in found.unsendable:
            logger.warning("%s was %s", intent, intent.error)
        for company_id in found.companies:
            self.reconcile(company_id)
        for company_id in {intent.lane.company_id for intent in found.decidable}:
            self.tasks.start(self._look(company_id))
        return found

    async def recorded(self, reference: str) -> Intent | None:
        """Return the push recorded under *reference*, if any."""
        found = await self.journal.rows(reference=reference)
        row = next((row for row in found if not row.is_superseded), None)
        return row and (self.ledger.get(row.id) or self.ledger.unrecorded.get(row.id) or row)

    async def replace(self, before: Intent, intent: Intent) -> Intent:
        """Record *intent* in place of *before*, which does not exist at the service."""
        return await self.drive(protocol.replace(self.ledger, before, intent))

    async def withdraw(self, intent: Intent) -> None:
        """Give up *intent*, which waits to be sent; a later run will not send it either."""
        try:
            await self.drive(protocol.withdraw(self.ledger, intent))
        except JournalError as error:
            logger.warning("%s was not sent, but a later run will send it: %s", intent, error)

    async def close(self) -> None:
        """Stop searching for pushes in doubt, and close the journal."""
        self.closing.set()
        try:
            if self.tasks:
                await asyncio.wait(self.tasks)
            await self.drive(protocol.catch_up(self.ledger), droppable=True)
        finally:
            for search in self.tasks:  # cancelled itself: as safe as a crash
                search.cancel()
            await self.journal.close()

    def abandon(self) -> None:
        """Send nothing more: cancel all pushes that have not left yet."""
        self.closing.set()
        for task in self._in_line:
            task.cancel()

    # Doubts

    def reconcile(self, company_id: str) -> None:
        """Start searching the company's list for pushes whose answers were lost."""
        if company_id not in self._reconciling and not self.closing.is_set():
            self._reconciling.add(company_id)
            self.tasks.start(self._reconcile(company_id))

    async def _reconcile(self, company_id: str) -> None:
        try:
            await self.drive(reconcile.reconcile(self.ledger, company_id, policy=self.policy))
        except Exception as error:
            logger.exception("the search for pushes in doubt of company %s broke off", company_id)
            await self.drive(reconcile.break_off(self.ledger, company_id, repr(error)))
        finally:
            self._reconciling.discard(company_id)
            self._sweeps.begin(company_id, clock.now())
        self._tell(company_id)
        if is_cancelled() and self.ledger.searched(company_id):
            self.reconcile(company_id)  # it has ended early

    def _tell(self, company_id: str) -> None:
        """Report intents in doubt, and those whose outcome could not be written to disk."""
        for intent in (*self.ledger.doubted(company_id), *self.ledger.unrecorded.values()):
            self.changed(intent)

    def look_again(self, company_id: str | None) -> None:
        """Search a company's list for pushes in doubt, unless that was done lately.

        None means that a notification named an unknown push: every company with pushes in doubt
        is searched, now or after a while. See `Sweeps`.
        """
        if self.closing.is_set():
            return
        now = clock.now()
        doubted = {intent.lane.company_id for intent in self.ledger.doubted(company_id)}
        for company in doubted - self._reconciling:
            if company_id is None:
                wait = self._sweeps.after_notification(company, now)
            else:
                wait = 0.0 if self._sweeps.after_listing(company, now) else None
            if wait is not None:
                self.tasks.start(self._look(company, wait))

    async def _look(self, company_id: str, wait: float = 0.0) -> None:
        if self.closing.is_set() or (wait and await self._sleep(wait) is None):
            return
        try:
            await self.drive(reconcile.look_again(self.ledger, company_id, policy=self.policy))
        except JournalError as error:
            logger.warning(
                "the search for pushes in doubt of company %s failed; it is repeated when the "
                "company's pushes are next listed: %s",
                company_id,
                error,
            )
        except Exception:
            logger.exception("the search for pushes in doubt of company %s broke off", company_id)
        self._tell(company_id)

    # Effects

    async def drive(self, machine: Machine[T], *, droppable: bool = False) -> T:
        """Carry out the effects that *machine* yields, and return its result.

        Args:
            machine: It decides what to do.
            droppable: If the task is cancelled, drop the machine, which is as safe as a crash.
                Otherwise it is told, ends soon, and has a result.
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
                step, report = machine.send, await self._perform(effect)
            except JournalError as error:
                step, report = machine.throw, error
            except asyncio.CancelledError:
                if droppable:
                    raise
                step, report = _cancelled(machine, effect)

    def _perform(self, effect: Effect) -> Awaitable[Report]:
        match effect:
            case Commit():
                return self._commit(effect.rows)
            case Send():
                return self._transmit(effect.row)
            case List():
                return self.pushes.read(effect)
            case Fetch():
                return self.pushes.read_singly(effect.company_id, effect.keys)
            case FindOwners():
                return self.journal.owners(effect.keys)
            case Sleep():
                return self._sleep(effect.seconds)

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
            self.changed(row)

    async def _sleep(self, seconds: float) -> float | None:
        if is_cancelled():
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

    async def _transmit(self, row: Intent) -> Answer:
        sending = self._sending[row.id]
        began = self._now()
        reply = await self._reply(row, sending.call.with_idempotency_key(row.idempotency_key))
        heard = replies.read(reply, began=began, unix_time=clock.unix_time(), exact=self.exact)
        sending.heard = heard
        return heard.answer

    async def _reply(self, row: Intent, call: Request) -> Reply:
        task, left = this_task(), False

        async def leave() -> None:
            nonlocal left
            self._in_line.discard(task)
            if self.closing.is_set():
                raise NotSent(LEFT_BEHIND)
            await self._commit((row,))
            left = True

        if is_cancelled():
            return NotSent(f"not sent: {CANCELLED}")
        self._in_line.add(task)
        try:
            return await self.pushes.send(call, before_sending=leave, once=True)
        except asyncio.CancelledError:
            if task in self._in_line and self.closing.is_set():
                task.uncancel()
                return NotSent(LEFT_BEHIND)
            lost = f"the answer was lost: {CANCELLED}"
            return AnswerLost(lost) if left else NotSent(f"not sent: {CANCELLED}")
        except (TransportError, ApiError, ClientClosed, JournalError) as error:
            return error
        except Exception as error:
            logger.exception("sending %s failed in an unforeseen way", row)
            kind = AnswerLost if left else NotSent
            return kind(f"sending the push broke off: {error!r}")
        finally:
            self._in_line.discard(task)


def _cancelled(machine: Machine[Any], effect: Effect) -> tuple[Callable[[Any], Effect], object]:
    """Return how to tell *machine* that *effect* was broken off by a cancellation."""
    match effect:
        case FindOwners():
            return machine.throw, JournalError("the journal was asked by a task that was cancelled")
        case Fetch():
            return machine.send, ()
        case _:  # a Commit has been made, a list is not to be had, and there is nothing to wait for
            return machine.send, None
