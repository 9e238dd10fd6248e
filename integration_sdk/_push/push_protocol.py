"""Runs the push protocol for a coordinator.

The machines of `_push` (``protocol`` and ``reconcile``) make all decisions, and the
driver carries them out; this module says which machine runs when. Sending a push runs to its end
even if nobody waits for it any more, so that its outcome is recorded.
"""

from __future__ import annotations

import asyncio
import logging
from collections import OrderedDict
from collections.abc import Callable, Coroutine, Iterable
from typing import Any, Final
from uuid import uuid4

from attrs import Factory, define, frozen

from integration_sdk._http.requests import Request
from integration_sdk._push import answers, clock, outcomes, protocol, reconcile, submissions
from integration_sdk._push.driver import ProtocolDriver, Sending
from integration_sdk._push.effects import Ledger, Machine, Policy
from integration_sdk._push.places import Place
from integration_sdk._push.push_list import SNAPSHOT
from integration_sdk._push.searches import Searches
from integration_sdk._push.table import DUTY, Duty
from integration_sdk._push.tasks import Tasks
from integration_sdk._store.row import Intent, Snapshot, State
from integration_sdk._system import current_task_cancelled
from integration_sdk.errors import IntegrationError, JournalError, NotSent
from integration_sdk.models import PushOperation, PushRequest

logger = logging.getLogger("integration_sdk.pushes")


@frozen
class Delivered:
    """What became of a push that was sent.

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
class PushProtocol:
    """Sends pushes, each at most once, and finds out what became of those in doubt.

    Args:
        driver: Carries out what the machines decide.
        policy: Limits of retries and waits.
        chance: Returns a number from 0 to 1, for jitter.

    Attributes:
        ledger: What is known of intents that are not settled.
        tasks: Searches and snapshots under way.
    """

    driver: ProtocolDriver
    policy: Policy
    chance: Callable[[], float]
    ledger: Ledger = Factory(
        lambda self: Ledger(keeps_acknowledged=self.driver.journal.durable), takes_self=True
    )
    tasks: Tasks = Factory(Tasks)
    _snapshots: Snapshots = Factory(
        lambda self: Snapshots(self._take_snapshot, self.tasks), takes_self=True
    )
    _reconciling: set[str] = Factory(set)
    _searches: Searches = Factory(Searches)

    @property
    def durable(self) -> bool:
        """Whether a later run goes on with what this one leaves."""
        return self.driver.journal.durable

    # What the coordinator asks for

    async def deliver(self, intent: Intent, call: Request, place: Place) -> Delivered:
        """Send *intent* and return the result; between two attempts *place* is given back."""
        sending = self.driver.sending[intent.id] = Sending(call, place)
        try:
            done = await self._send(intent, sending)
        except Exception:
            logger.exception(
                "sending %s broke off; if it may have left, it is searched for", intent
            )
            done = await self.driver.drive(protocol.break_off(self.ledger, intent))
        finally:
            del self.driver.sending[intent.id]
        last = sending.last
        if done.state is State.AMBIGUOUS:
            self.reconcile(done.lane.company_id)
        if done.key is not None:
            own = last.operation if last else None
            return Delivered(done, own if own and own.push_operation_key == done.key else None)
        if last is None:
            unsent = f"{call.method} {call.path} was not sent"
            return Delivered(done, None, NotSent(done.error or unsent))
        error = last.error or answers.without_key(call, last.status)  # another has this key
        return Delivered(done, None, error, not self.policy.waits_for(last))

    async def _send(self, intent: Intent, sending: Sending) -> Intent:
        machine = protocol.transmit(
            self.ledger,
            intent,
            await self._snapshot(intent.lane.company_id),
            policy=self.policy,
            chance=self.chance,
            new_key=lambda: str(uuid4()),
            search=self._look,
        )
        return await self.driver.drive(machine, sending=sending)

    def _look(self, company_id: str) -> Machine[bool]:
        yield from reconcile.search_again(self.ledger, company_id, policy=self.policy)
        return not self.driver.pushes.speaks_another

    async def _snapshot(self, company_id: str) -> Snapshot | None:
        try:
            return await self._snapshots.before_push(company_id)
        except asyncio.CancelledError:  # then nothing is sent, and it is not needed
            return None

    async def _take_snapshot(self, company_id: str) -> Snapshot | None:
        return await self.driver.drive(protocol.take_snapshot(company_id, newest=SNAPSHOT))

    async def settle(self, finals: Iterable[tuple[str, PushOperation]]) -> None:
        """Record the final states of many intents in one commit."""
        polled = [(one, operation, outcomes.reasons(operation)) for one, operation in finals]
        await self.driver.drive(protocol.settle(self.ledger, polled))

    async def recover(self) -> list[Intent]:
        """Take over what an earlier process left, and search for what is in doubt."""
        rows = await self.driver.journal.claim()
        found = await self.driver.drive(reconcile.recover(self.ledger, rows), droppable=True)
        for row in found:
            if row.is_settled:
                logger.warning("%s was %s", row, row.error)
        for company_id in _companies(found, Duty.SEARCH):
            self.reconcile(company_id)
        for company_id in _companies(found, Duty.DECIDE):
            self.tasks.start(self._search(company_id))
        return found

    async def recorded(self, reference: str) -> Intent | None:
        """Return the push recorded last under *reference*, if any."""
        # A superseded row comes before the one that superseded it, or is the last by decision.
        found = await self.driver.journal.rows(reference=reference)
        return self._latest(found[-1]) if found else None

    def _latest(self, row: Intent) -> Intent:
        return self.ledger.get(row.id) or self.ledger.unrecorded.get(row.id) or row

    def request(self, intent: Intent) -> PushRequest:
        """Return the push request of *intent*, as far as it is recorded."""
        return submissions.from_record(intent, exact=self.driver.exact)

    async def replace(self, before: Intent, intent: Intent) -> Intent:
        """Record *intent* in place of *before*, which does not exist at the service."""
        return await self.driver.drive(protocol.replace(self.ledger, before, intent))

    async def withdraw(self, intent: Intent) -> None:
        """Give up *intent*, which waits to be sent; a later run will not send it either."""
        try:
            await self.driver.drive(protocol.withdraw(self.ledger, intent))
        except JournalError as error:
            logger.warning("%s was not sent, but a later run will send it: %s", intent, error)

    async def bind(self, intent_id: str, key: str) -> Intent:
        """Record the caller's word that *key* is the push of an intent in doubt."""
        return await self.driver.drive(reconcile.bind(self.ledger, intent_id, key))

    async def abandon(self, intent_id: str) -> Intent:
        """Record the caller's decision to give up an intent in doubt."""
        return await self.driver.drive(reconcile.abandon(self.ledger, intent_id))

    def may_resend(self, intent_id: str) -> bool:
        """Whether an intent in doubt may be sent again, if the caller lets us decide."""
        transmissions = self.policy.retry.attempts
        return reconcile.may_resend(self.ledger, intent_id, transmissions=transmissions)

    async def resend(self, intent_id: str, new_id: str, idempotency_key: str | None) -> Intent:
        """Record the caller's decision to send an intent again; return the new one."""
        machine = reconcile.resend(
            self.ledger, intent_id, new_id=new_id, idempotency_key=idempotency_key
        )
        return await self.driver.drive(machine)

    async def give_back(self, intent_id: str) -> PushRequest:
        """Record that the reference of a push that timed out is free; return its request."""
        found = await self.driver.journal.rows(intent=intent_id)
        before = submissions.check_given_back(self._latest(found[0]) if found else None, intent_id)
        await self.driver.drive(protocol.give_back(self.ledger, before))
        return self.request(before)

    async def close(self) -> None:
        """Stop searching for pushes in doubt, and write what could not be written before."""
        self.driver.closing.set()
        try:
            if self.tasks:
                await asyncio.wait(self.tasks)
            await self.driver.drive(protocol.catch_up(self.ledger), droppable=True)
        finally:
            for search in self.tasks:  # cancelled itself: as safe as a crash
                search.cancel()

    # Doubts

    def reconcile(self, company_id: str) -> None:
        """Start searching the company's list for pushes whose answers were lost."""
        if company_id not in self._reconciling and not self.driver.closing.is_set():
            self._reconciling.add(company_id)
            self.tasks.start(self._reconcile(company_id))

    async def _reconcile(self, company_id: str) -> None:
        try:
            await self.driver.drive(
                reconcile.reconcile(self.ledger, company_id, policy=self.policy)
            )
        except Exception as error:
            logger.exception("the search for pushes in doubt of company %s broke off", company_id)
            await self.driver.drive(reconcile.break_off(self.ledger, company_id, repr(error)))
        finally:
            self._reconciling.discard(company_id)
            self._searches.begin(company_id, clock.now())
        self._tell(company_id)
        if current_task_cancelled() and self.ledger.searched(company_id):
            self.reconcile(company_id)  # it has ended early

    def _tell(self, company_id: str) -> None:
        """Report intents in doubt, and those whose outcome could not be written to disk."""
        for intent in (*self.ledger.doubted(company_id), *self.ledger.unrecorded.values()):
            self.driver.on_recorded(intent)

    def search_again(self, company_id: str | None) -> None:
        """Search a company's list for pushes in doubt, unless that was done lately.

        None means that a notification named an unknown push: every company with pushes in doubt
        is searched, now or after a while. See `Searches`.
        """
        if self.driver.closing.is_set():
            return
        now = clock.now()
        doubted = {intent.lane.company_id for intent in self.ledger.doubted(company_id)}
        for company in doubted - self._reconciling:
            if company_id is None:
                wait = self._searches.after_notification(company, now)
            else:
                wait = 0.0 if self._searches.after_listing(company, now) else None
            if wait is not None:
                self.tasks.start(self._search(company, wait))

    async def _search(self, company_id: str, wait: float = 0.0) -> None:
        if self.driver.closing.is_set() or (wait and await self.driver.sleep(wait) is None):
            return
        try:
            await self.driver.drive(
                reconcile.search_again(self.ledger, company_id, policy=self.policy)
            )
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


def _companies(rows: Iterable[Intent], duty: Duty) -> set[str]:
    return {row.lane.company_id for row in rows if DUTY[row.state] is duty}


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
