"""The life of a push that may be at the service, and its outcome.

::

    sender --> INVALID                        the record cannot be right
           --> REJECTED                       it was refused, or never left
           --> followed by the poller         --> SUCCESS FAILED TIMED_OUT, PENDING
           --> in doubt --> followed          the list shows it
                        --> IN_DOUBT          the list does not; may be found later
                        --> sender            no list shows it, and the caller wants it resent

Final states are recorded before they are reported, many in one commit.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Coroutine, Iterator
from contextlib import contextmanager
from functools import wraps
from typing import Any, Concatenate, ParamSpec, assert_never

from attrs import Factory, define, evolve

from integration_sdk._push import clock, outcomes, submissions
from integration_sdk._push.poller import Poller
from integration_sdk._push.progress import Tally
from integration_sdk._push.push import Push, PushEvent, What
from integration_sdk._push.push_protocol import PushProtocol
from integration_sdk._push.references import References
from integration_sdk._push.table import DUTY, Duty
from integration_sdk._push.tasks import Tasks
from integration_sdk._push.waits import Waits
from integration_sdk._store.row import Intent
from integration_sdk.dialect import Dialect
from integration_sdk.errors import ClientClosed, IntegrationError, JournalError, PushingStopped
from integration_sdk.models import OutcomeStatus, PushOperation, PushOutcome, PushRequest

logger = logging.getLogger("integration_sdk.pushes")
P = ParamSpec("P")


Callback = Callable[Concatenate["PushTracker", P], None]


def supervised(callback: Callback[P]) -> Callback[P]:
    """Return *callback*, whose crash ends what depends on the tracker, not whoever calls it."""

    @wraps(callback)
    def call(self: PushTracker, /, *args: P.args, **named: P.kwargs) -> None:
        try:
            callback(self, *args, **named)
        except Exception as crash:
            self.crashed(crash)

    return call


@define(eq=False)
class PushTracker:
    """Takes each push of a coordinator from the service's answer to its outcome.

    Attributes:
        sending: Pushes on their way to the service, which have an outcome or a key soon.
        unsettled: Pushes without an outcome, those among them.
        stopped: The error because of which nothing more is sent; None while sending.
        open: Followed pushes, by key.
        doubted: Pushes whose answer was lost, by intent.
        references: Which push holds which reference.
        runs: For each run that still pulls, a callback that stops it with an error.
        over: Whether the block has been left.
        idle: Set while every push has an outcome.
        waits: Ends bounded waits.
        resend: Sends a push once more that no list shows; None leaves that to the caller.
    """

    poller: Poller
    dialect: Dialect
    protocol: PushProtocol
    fetch_data: bool
    on_event: Callable[[PushEvent], None] | None
    sending: set[Push] = Factory(set)
    unsettled: set[Push] = Factory(set)
    stopped: IntegrationError | None = None
    tally: Tally = Factory(Tally)
    open: dict[str, Push] = Factory(dict)
    doubted: dict[str, Push] = Factory(dict)
    references: References = Factory(References)
    runs: set[Callable[[IntegrationError], None]] = Factory(set)
    over: bool = False
    idle: asyncio.Event = Factory(asyncio.Event)
    tasks: Tasks = Factory(Tasks)
    waits: Waits = Factory(
        lambda self: Waits(self._expired, self.poller.poll_before_expiry), takes_self=True
    )
    resend: Callable[[Push, Intent], Coroutine[Any, Any, None]] | None = None
    _taken_over: set[Push] = Factory(set)
    _finals: list[tuple[Push, PushOperation]] = Factory(list)
    _recording: bool = False
    _like: PushOperation | None = None

    def __attrs_post_init__(self) -> None:
        self.idle.set()
        self.tasks.crashed = self.protocol.tasks.crashed = self.crashed
        self.protocol.driver.on_recorded = self.intent_changed

    # Following

    def follow(self, push: Push, intent: Intent, operation: PushOperation) -> None:
        """Follow a push with a known key until it is final."""
        kept = self.protocol.ledger.get(intent.id)
        self._like = push._acknowledged(kept.id if kept else None, operation, self._like)
        if operation.is_final:
            self.poller.remember(operation)
            self._conclude(push, operation)
            return
        key = operation.push_operation_key
        if key in self.open:
            self.references.hand_over(push, self.open[key])
            self.join(self.open[key], push)
            return
        self.open[key] = push
        request = push.request
        cohort = (request.connection_id, request.data_type)
        self.poller.follow(request.company_id, key, cohort, self)
        self.waits.start(push)

    def join(self, holder: Push, twin: Push) -> None:
        """Let *twin* share what becomes of *holder*."""
        if holder.key in self.open or holder.intent in self.doubted:
            self.waits.start(twin)
        holder._add_twin(twin)

    @supervised
    def changed(self, key: str, operation: PushOperation) -> None:
        """Called by the poller when it has seen a push; report a new status."""
        push = self.open[key]
        if push._changed(operation):
            self.tell("changed", push)

    @supervised
    def ended(self, key: str, operation: PushOperation) -> None:
        """Called by the poller when a push is final."""
        self._conclude(self.open[key], operation)

    @supervised
    def lost(self, key: str, error: IntegrationError) -> None:
        """Called by the poller when a push cannot be followed; its outcome is PENDING."""
        push = self.open.get(key)
        if push is None:  # its end is known here, and the poller broke before noting it
            return
        if outcomes.ends_all(error):
            self.stop(error)
        self.settle(push, outcomes.pending(push.request, push.operation, error))

    def _conclude(self, push: Push, operation: PushOperation) -> None:
        """Record the final state, then report it; no wait for the push ends in between."""
        for each in push._with_twins:
            self.waits.forget(each)
        self._finals.append((push, operation))
        if not self._recording:
            self.tasks.start(self._record())
            self._recording = True

    async def _record(self) -> None:
        try:
            while self._finals:
                finals, self._finals = self._finals, []
                ends = [(push.intent, operation) for push, operation in finals if push.intent]
                try:
                    await self.protocol.settle(ends)
                except Exception:
                    lost = "%d final states are not on record; a later run polls them again"
                    logger.exception(lost, len(ends))
                for push, operation in finals:
                    self._ended(push, operation)
        finally:
            self._recording = False

    def _ended(self, push: Push, operation: PushOperation) -> None:
        was_in_doubt = push.outcome and push.outcome.status is OutcomeStatus.IN_DOUBT
        self.settle(push, outcomes.final(push.request, operation, self.dialect))
        if was_in_doubt:
            push.operation = operation
            self.tell("found", push)

    @supervised
    def _expired(self, push: Push, waited: float) -> None:
        """End the wait for *push* alone; pushes that share its key or doubt wait on."""
        key, intent = push.key or "", push.intent or ""
        holders, name = (self.open, key) if key else (self.doubted, intent)
        holder = holders[name]
        successor = holder._remove(push)
        if successor is not None and successor is not holder:
            self.references.hand_over(holder, successor)
            holders[name] = successor
        if key:
            trouble = self.poller.trouble(key)
            if successor is None:
                self.poller.unfollow(key, self)
            self.settle(push, outcomes.expired(push.request, push.operation, waited, trouble))
        else:
            self._leave_in_doubt(push, self.protocol.ledger.get(intent))

    # Doubts

    def doubt(self, push: Push, intent: Intent) -> None:
        """Wait for the search for a push whose answer was lost."""
        push._doubted(intent.id)
        self.doubted[intent.id] = push
        self.waits.start(push)
        self.tell("doubted", push)
        if now := self.protocol.ledger.get(intent.id):
            self.intent_changed(now)

    @supervised
    def listed(self, company_id: str | None) -> None:
        """Search for pushes in doubt of a company that the poller has just listed.

        None: a notification named an unknown push, which may be one in doubt.
        """
        if self.doubted:
            self.protocol.search_again(company_id)

    @supervised
    def intent_changed(self, intent: Intent) -> None:
        """Called when an intent is recorded; if it was in doubt, its push may have been found."""
        push = self.doubted.get(intent.id)
        if push is None or self.over:
            return
        match DUTY[intent.state]:
            case Duty.SEND | Duty.SEARCH:
                return  # a replay is under way, or the search
            case Duty.POLL:
                del self.doubted[intent.id]
                logger.info("%s was found: it is push %s", intent, intent.key)
                self.follow(push, intent, submissions.recorded_operation(intent))
            case Duty.DECIDE | Duty.REST:
                self._resend_or_leave(push, intent)
            case other:
                assert_never(other)

    def _resend_or_leave(self, push: Push, intent: Intent) -> None:
        if self.resend and push.outcome is None and self.protocol.may_resend(intent.id):
            del self.doubted[intent.id]
            for each in push._with_twins:
                self.waits.forget(each)  # they begin anew with the new push
            self.tasks.start(self.resend(push, intent))
        else:
            self._leave_in_doubt(push, intent)

    def doubt_again(self, push: Push, intent: Intent) -> None:
        """Take back a push that could not be sent again; it may have been found meanwhile."""
        self.doubted[intent.id] = push
        if intent.key is None:
            self._leave_in_doubt(push, intent)
        else:
            self.intent_changed(intent)

    def _leave_in_doubt(self, push: Push, intent: Intent | None) -> None:
        """Give *push* the outcome IN_DOUBT; it may still be found later."""
        if intent is not None and push.outcome is None:
            outcome = outcomes.in_doubt(push.request, intent)
            # `recovery` has told how many an earlier run left: not each of them at every start.
            level = logging.DEBUG if push in self._taken_over else logging.WARNING
            logger.log(level, "%s", outcome.error)
            self.settle(push, outcome)

    # Beginning and ending

    def enter(self, push: Push) -> None:
        """See to it that *push* gets an outcome."""
        self.unsettled.add(push)
        self.idle.clear()

    def again(self, request: PushRequest) -> Push:
        """Return a new push of *request*, which gets an outcome."""
        push = Push(request)
        self.enter(push)
        self._taken_over.add(push)
        return push

    @contextmanager
    def in_hand(self, push: Push) -> Iterator[None]:
        """While *push* is being sent: it is not given up; a crash ends it as it ends the rest."""
        self.enter(push)
        self.sending.add(push)
        try:
            yield
        except Exception as crash:
            self.sending.discard(push)
            self.crashed(crash)
        finally:
            self.sending.discard(push)

    def settle(self, push: Push, outcome: PushOutcome) -> None:
        """Give *push*, and those that joined it, the outcome, unless it has one."""
        key = outcome.key or push.key
        if key is not None and self.open.get(key) is push:
            del self.open[key]
        self.references.let_go(push)
        self.waits.forget(push)
        push._settle(outcome)
        if push in self.unsettled:
            self.unsettled.discard(push)
            if not self.unsettled:
                self.idle.set()
            if not (push.twins and push in self._taken_over):  # else its twins are counted
                self.tally.ended(outcome.status, clock.now())
            self._taken_over.discard(push)
            logger.debug("push %s: %s", key, outcome.status)
            self.tell("ended", push)
        self.pass_on(push, outcome)

    def pass_on(self, push: Push, outcome: PushOutcome) -> None:
        """Give those that joined *push* its outcome."""
        twins, push.twins = push.twins, None
        for twin in twins or ():
            self.settle(twin, evolve(outcome, request=twin.request))

    def refused(self, push: Push, error: IntegrationError, *, for_all: bool = False) -> None:
        """Give *push* the outcome REJECTED; stop if the error is one *for_all* pushes."""
        if for_all or outcomes.ends_all(error):
            self.stop(error)
        self.settle(push, outcomes.refused(push.request, error))

    def stop(self, error: IntegrationError) -> None:
        """Stop pulling and sending: the account, client, quota or disk allows no more."""
        if self.stopped is None:
            logger.error("nothing more is pushed: %s", error, exc_info=error.__cause__)
            self.stopped = error
            self.end_runs(error)
            if not isinstance(error, JournalError):  # else what is open can still be polled
                self.give_up(error)

    def crashed(self, crash: BaseException) -> None:
        """End every wait, since nobody knows what is left undone: a bug has ended a task.

        Pushes that are being sent have their outcome once they are answered.
        """
        error = PushingStopped(
            f"the coordinator broke ({crash!r}); nothing more is sent, and what was sent goes on "
            "at the service"
        )
        error.__cause__ = crash
        if self.stopped is None:
            self.stop(error)
        else:
            logger.error("%s", error, exc_info=crash)
        self.give_up(error)
        for push in self.unsettled - self.sending:
            self._leave(push, error)

    def _leave(self, push: Push, error: IntegrationError) -> None:
        """Give *push* the outcome of a push that nobody follows any more."""
        doubted = None if push.key else self.protocol.ledger.get(push.intent or "")
        if doubted is not None:
            self._leave_in_doubt(push, doubted)
        else:
            self.settle(push, outcomes.pending(push.request, push.operation, error))

    def end_runs(self, error: IntegrationError) -> None:
        """End each run that still pulls with *error*."""
        for stop in tuple(self.runs):
            stop(error)

    def give_up(self, error: IntegrationError) -> None:
        """Stop following; open pushes get the outcome PENDING."""
        for key, push in list(self.open.items()):
            self.poller.unfollow(key, self)
            self.settle(push, outcomes.pending(push.request, push.operation, error))

    def let_go(self) -> None:
        """Give every remaining push an outcome, also those whose sending ends late."""
        self.over = True
        error = ClientClosed("the block was left while this push was Pending; it goes on")
        self.give_up(error)
        for push in {*self.doubted.values(), *(self.unsettled - self.sending)}:
            self._leave(push, error)

    def tell(self, what: What, push: Push) -> None:
        """Tell the caller's ``on_event``."""
        try:
            if self.on_event:
                self.on_event(PushEvent(what, push))
        except (Exception, asyncio.CancelledError):  # a future's, say, whose result it reads
            logger.exception("on_event failed for %r; pushing goes on", what)
