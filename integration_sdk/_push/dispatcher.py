"""Carries rows from state to state, from the first record of a push to its outcome.

`Dispatcher.step` is the only way to change a row: it writes the next version, then lets it
`Dispatcher.arrive`, which is the only place that says what a state needs::

    QUEUED    a carrier sends it (`sending`)
    SENDING   its carrier goes on
    OPEN      the poller follows it
    LOST      the company's list is searched (`search`)
    others    whoever waits for it is told

**The store is the truth, memory a cache** of the rows of companies that this process acts for
(`companies`). Whoever writes names the version he has seen. If the store says that the row has
changed, it is read again; if it says that another process acts for the company, all of that company
is dropped from memory. Everything else here (handles, carriers, findings of a search, snapshots)
may be lost at any moment: a task that ends with its row unmoved, cancelled by a stranger or by a
bug, leaves it as a process that was killed does, and `restart` goes on as the next process would.
"""

from __future__ import annotations

import asyncio
import logging
from collections import Counter
from collections.abc import Awaitable, Callable, Sequence
from functools import wraps
from typing import TYPE_CHECKING, Any, Concatenate, Final, ParamSpec, TypeVar, assert_never

from attrs import Factory, define, field

from integration_sdk._outcome import PushOutcome
from integration_sdk._push import outcomes
from integration_sdk._push.companies import Companies, Company
from integration_sdk._push.handles import Handles
from integration_sdk._push.outcomes import reasons
from integration_sdk._push.push import Push
from integration_sdk._push.table import Event, after, may_own_unclaimed
from integration_sdk._push.tasks import Tasks
from integration_sdk._push.wire import Wire
from integration_sdk._store.row import (
    SETTLED,
    Fenced,
    Lane,
    Row,
    RowRefused,
    Stale,
    State,
)
from integration_sdk._store.rows import Rows
from integration_sdk.errors import (
    ClientClosed,
    IntegrationError,
    JournalError,
    NotSent,
    PushingStopped,
    StoreUnavailable,
    fresh_copy,
)
from integration_sdk.models import OutcomeStatus, PushOperation

if TYPE_CHECKING:
    from integration_sdk._push.poller import Poller
    from integration_sdk._push.search import Search
    from integration_sdk._push.sending import Sender

logger = logging.getLogger("integration_sdk.pushes")
P = ParamSpec("P")
T = TypeVar("T")
Fresher = PushOperation | IntegrationError | None

AT_ONCE: Final = 12
"""Carriers of a company for rows that no run carries; the session bounds what is in flight."""
CANCELLED: Final = "its task was cancelled from outside"


class Moved(Exception):
    """The row has been changed by another writer, or is in another process's care; leave it."""


def supervised(
    callback: Callable[Concatenate[Dispatcher, P], None],
) -> Callable[Concatenate[Dispatcher, P], None]:
    """Return *callback*, whose crash ends what depends on the dispatcher, not whoever calls it."""

    @wraps(callback)
    def call(self: Dispatcher, /, *args: P.args, **named: P.kwargs) -> None:
        try:
            callback(self, *args, **named)
        except Exception as crash:
            self.crashed(crash)

    return call


@define(eq=False)
class Dispatcher:
    """The rows of a coordinator, and what is done about each.

    Attributes:
        sender, search: What carries QUEUED rows, and what looks for LOST ones.
        tasks: Whatever runs beside the callers.
        companies: Those that this process acts for, and others.
        handles: Who waits for which row.
        rows: The rows that are not settled, by id.
        rivals: Those that may own an unclaimed push, by lane and id.
        keys: Their push keys, with the row's id.
        carried: Rows that a task is sending or about to, by id, with their company.
        crowd: How many pushes of each company wait for the service's answer.
        answered: Called when that number shrinks.
        runs: For each run that still pulls, a callback that stops it with an error.
        stopped: The error because of which nothing is sent, see `begin`; None while sending.
        over: Whether the block has been left, and nobody follows anything any more.
    """

    store: Rows
    wire: Wire
    poller: Poller
    handles: Handles
    fetch_data: bool = False
    exact: bool = False
    sender: Sender = field(init=False)
    search: Search = field(init=False)
    tasks: Tasks = field(init=False)
    companies: Companies = field(init=False)
    rows: dict[str, Row] = Factory(dict)
    rivals: dict[Lane, dict[str, Row]] = Factory(dict)
    keys: dict[str, str] = Factory(dict)
    carried: dict[str, str] = Factory(dict)
    crowd: Counter[str] = Factory(Counter)
    answered: set[Callable[[], None]] = Factory(set)
    runs: set[Callable[[BaseException], None]] = Factory(set)
    stopped: IntegrationError | None = None
    over: bool = False
    _commits: dict[str, asyncio.Future[Any]] = Factory(dict)
    _finals: list[tuple[Row, PushOperation]] = Factory(list)
    _like: PushOperation | None = None

    def __attrs_post_init__(self) -> None:
        self.tasks, self.companies = Tasks(self.crashed), Companies(self)
        self.handles.expired = self.expired
        self.handles.ending = self.poller.poll_before_expiry

    # Changing a row

    async def step(
        self, row: Row, event: Event, *, fresher: Fresher = None, **facts: object
    ) -> Row:
        """Record what has happened to *row*, do what its next state needs, and return it.

        Args:
            row: As it was when *event* happened.
            event: What happened.
            fresher: What has just been seen of the push, and says more than the row.
            facts: Changes of the row.

        Raises:
            Moved: Somebody else has changed it, which has been dealt with.
            KeyClaimed: The push key belongs to another row.
            JournalError: It was not recorded.
        """
        new = after(row, event, **facts)
        await self._write(new)
        self.arrive(new, fresher)
        return new

    async def _write(self, new: Row) -> None:
        try:
            made = self.store.put((new,))
            if made is not None:
                await self.committed(new.id, made)
        except Fenced:
            self.companies.let_go(self.companies.of(new.company))
            raise Moved from None
        except Stale:
            self.tasks.start(self.restart(new.id))
            raise Moved from None

    async def committed(self, row_id: str, made: Awaitable[T]) -> T:
        """Await a commit. It goes on if we are cancelled, and `restart` waits for it.

        Raises:
            JournalError: It was not made.
        """
        future = asyncio.ensure_future(made)
        try:
            return await asyncio.shield(future)
        except asyncio.CancelledError:
            self._commits[row_id] = future
            raise
        except IntegrationError:
            raise
        except Exception as error:
            raise JournalError(f"the journal failed: {error!r}") from error

    async def write_all(self, news: Sequence[tuple[Row, Fresher]]) -> None:
        """Record next versions of several rows, together if possible, and let each arrive.

        What is refused is left to whoever has changed it, or to a later listing.
        """
        if not news:
            return
        try:
            made = self.store.put([new for new, _ in news])
            if made is not None:
                await self.committed(news[0][0].id, made)
        except RowRefused as refusal:
            companies = {new.company for new, _ in news}
            if isinstance(refusal, Fenced) and len(companies) == 1:
                # Should the lease come back, rivals may have come with it: nothing judged holds.
                self.companies.let_go(self.companies.of(news[0][0].company))
                return
            for new, fresher in news:
                try:
                    await self._write(new)
                except (Moved, RowRefused):
                    continue
                self.arrive(new, fresher)
        else:
            for new, fresher in news:
                self.arrive(new, fresher)

    # What a state needs

    def arrive(self, row: Row, fresher: Fresher = None) -> None:
        """Do what the state of *row* needs, whoever brings it, unless a later version has come.

        If the company was let go while it was being written, that is up to whoever acts for it:
        without the other rows of its lane nothing can be judged.
        """
        held = self.rows.get(row.id)
        if held is not None and held.version > row.version:
            return
        if not self.companies.of(row.company).is_ours:
            self.companies.hear(row, fresher)
            return
        is_followed = row.key in self.keys
        self.cache(row)
        match row.state:
            case State.QUEUED:
                self._queue(row)
            case State.SENDING:
                if row.id not in self.carried:  # an old read: it has been sent meanwhile
                    self.tasks.start(self.restart(row.id))
            case State.OPEN:
                self._follow(row, fresher, is_followed=is_followed)
            case State.LOST:
                self._lose(row)
            case State.DOUBT:
                self.search.unsettled(row)
            case State.CLOSED | State.REFUSED | State.FINAL:
                self.tell(row, fresher)
            case other:
                assert_never(other)

    def cache(self, row: Row) -> None:
        """Keep *row* in memory, in place of an earlier version."""
        self._drop(row)
        if row.state in SETTLED:
            return
        self.rows[row.id] = row
        if row.key is not None:
            self.keys[row.key] = row.id
        if may_own_unclaimed(row):
            self.rivals.setdefault(row.lane, {})[row.id] = row

    def forget(self, row: Row) -> None:
        """Drop *row* from memory: another process carries it."""
        if row.key is not None:
            self.poller.unfollow(row.key, self)
        self._drop(row)
        self.search.found.pop(row.id, None)

    def _drop(self, row: Row) -> None:
        before = self.rows.pop(row.id, None)
        if before is not None and before.key is not None:
            self.keys.pop(before.key, None)
        rivals = self.rivals.get(row.lane, {})
        if row.id in rivals:
            del rivals[row.id]
            if not rivals:
                del self.rivals[row.lane]

    def _queue(self, row: Row) -> None:
        if row.id not in self.carried:  # else its carrier sends it again
            company = self.companies.of(row.company)
            company.queue.append(row.id)
            self._pump(company)

    def _pump(self, company: Company) -> None:
        while company.carriers < min(AT_ONCE, len(company.queue)):
            company.carriers += 1
            self.tasks.start(self._drain(company))

    async def _drain(self, company: Company) -> None:
        try:
            while company.queue:
                row = self.rows.get(company.queue.popleft())
                if row is not None and row.state is State.QUEUED and row.id not in self.carried:
                    await self.sender.carry(row)
        finally:
            company.carriers -= 1
            self._pump(company)  # if a stranger has cancelled this task

    def _follow(self, row: Row, fresher: Fresher, *, is_followed: bool) -> None:
        own = fresher if isinstance(fresher, PushOperation) else None
        pushes = self.handles.of(row.id)
        seen = next((push.operation for push in pushes if push.key is not None), None)
        operation = own or seen or outcomes.recorded_operation(row)
        for push in pushes:
            if own is not None or push.key is None:
                self._like = push._acknowledged(operation, self._like)
            self.handles.start_wait(push)
        if own is not None:
            self.handles.tell_of(row.id, "sent")
        if is_followed:  # or its end is being recorded
            return
        if operation.is_final:
            self.poller.remember(operation)
            self._end(row, operation)
        elif self.over or (self.stopped and not isinstance(self.stopped, JournalError)):
            self.leave(row, self.stopped or _left())
        else:
            cohort = (row.lane.connection_id, row.lane.data_type)
            self.poller.follow(row.company, str(row.key), cohort, self)

    def _lose(self, row: Row) -> None:
        if row.id in self.carried:
            return  # about to be sent again under its idempotency key
        if self.over:
            self.leave(row, _left())
            return
        for push in self.handles.of(row.id):
            push._wake()
            self.handles.start_wait(push)
        self.handles.tell_of(row.id, "doubted")
        self.search.seek(row.company)

    def tell(self, row: Row, fresher: Fresher = None) -> None:
        """Tell whoever waits for *row* how it stands; while in DOUBT it may still be found."""
        in_doubt = row.state is State.DOUBT
        for push in self.handles.of(row.id) if in_doubt else self.handles.pop(row.id):
            if push.outcome is None:
                self.settle(push, outcomes.standing(push.request, row, self.wire.dialect, fresher))
            elif row.state is State.FINAL:
                push.operation = fresher if isinstance(fresher, PushOperation) else push.operation
                self.handles.tell("found", push)

    def settle(self, push: Push, outcome: PushOutcome) -> None:
        """Give *push* its outcome."""
        if outcome.status is OutcomeStatus.IN_DOUBT:
            # Once a row; `recover` has told how many an earlier run left.
            others = self.handles.of(push.intent or "")
            quiet = self.handles.was_recovered(push) or any(one.outcome for one in others)
            logger.log(logging.DEBUG if quiet else logging.WARNING, "%s", outcome.error)
        self.handles.settle(push, outcome)

    # Called by the poller

    @supervised
    def changed(self, key: str, operation: PushOperation) -> None:
        """Report a new status that is not final."""
        row_id = self.keys.get(key, "")  # gone if another process has ended it
        changed = [push for push in self.handles.of(row_id) if push._changed(operation)]
        if changed:
            self.handles.tell_of(row_id, "changed")

    @supervised
    def ended(self, key: str, operation: PushOperation) -> None:
        """Record a final status, and report it."""
        if (row_id := self.keys.get(key)) is not None:  # else another process has
            self._end(self.rows[row_id], operation)

    @supervised
    def lost(self, key: str, error: IntegrationError) -> None:
        """Give up following a push, which cannot be polled; its outcome is PENDING."""
        row_id = self.keys.get(key)
        if row_id is None:  # its end is known here, and the poller broke before noting it
            return
        if outcomes.ends_all(error):
            self.stop(error)
        if row_id in self.rows:
            self.leave(self.rows[row_id], error)

    @supervised
    def listed(self, company_id: str | None) -> None:
        """Search for pushes in doubt of a company that the poller has just listed.

        None: a notification named an unknown push, which may be one in doubt.
        """
        if self.rivals:
            self.search.sweep(company_id)

    def _end(self, row: Row, operation: PushOperation) -> None:
        """Record the final state, then report it; no wait for the push ends in between."""
        for push in self.handles.of(row.id):
            self.handles.end_wait(push)
        new = after(row, Event.ENDED, status=str(operation.status), error=reasons(operation))
        if not self.store.durable:
            self.store.put((new,))
            self.arrive(new, operation)
            return
        self._finals.append((new, operation))
        if len(self._finals) == 1:
            self.tasks.start(self._record())

    async def _record(self) -> None:
        """Record the final states that have come, all in one commit."""
        done = told = 0
        try:
            while self._finals:
                finals, done = tuple(self._finals), len(self._finals)
                try:
                    await self.write_all(finals)
                except JournalError as error:
                    if done > told:
                        lost = "%d final states are not on record; a later run polls them again: %s"
                        logger.error(lost, done - told, error)  # noqa: TRY400 - no bug
                    for new, operation in finals[told:]:
                        self.tell(new, operation)
                    told = done
                    if await self.companies.comes_back(error):
                        continue
                    for new, _ in finals:
                        self._drop(new)
                del self._finals[:done]
                told = 0
        except asyncio.CancelledError:  # by a stranger; what was written is Stale, and read again
            self.tasks.start(self._record())
            raise

    # What others have changed

    async def restart(self, row_id: str) -> None:
        """Go on with a row that was changed elsewhere, or whose task has ended without moving it.

        What its store says is what the next process would see.
        """
        commit = self._commits.pop(row_id, None)
        if commit is not None and not commit.done():
            await asyncio.wait([commit])
        while True:
            try:
                found = await self.store.rows(ids=[row_id])
                for row in found:
                    if self.companies.of(row.company).is_ours:
                        await self.companies.take_over([row])
                    else:
                        self.companies.hear(row)
            except JournalError as error:
                self.stop(error)
                self._leave_unknown(row_id, error)
                if await self.companies.comes_back(error):
                    continue
            else:
                if not found:
                    self._leave_unknown(row_id, NotSent(f"not sent: {CANCELLED}"))
            return

    def _leave_unknown(self, row_id: str, error: IntegrationError) -> None:
        row = self.rows.get(row_id)
        if row is not None:
            self.leave(row, error)
        for push in self.handles.pop(row_id):
            if isinstance(error, JournalError):
                self.settle(push, outcomes.pending(push.request, push.operation, error))
            else:
                self.settle(push, outcomes.refused(push.request, error))

    def doubts(self, company_id: str | None = None) -> list[Row]:
        """Return the rows that a listing could settle, of one company or all."""
        lanes = [rows for lane, rows in self.rivals.items() if company_id in (None, lane[0])]
        return [
            row for rows in lanes for row in rows.values() if row.state in {State.LOST, State.DOUBT}
        ]

    # Ending

    @supervised
    def expired(self, push: Push, waited: float) -> None:
        """End the wait for *push*; what else waits for its row waits on."""
        row = self.rows.get(push.intent or "")
        if row is not None and row.key is None:
            self.settle(push, outcomes.in_doubt(push.request, row))
            return
        trouble = self.poller.trouble(push.key) if push.key else None
        if not self.handles.leave(push) and row is not None and not self.store.shared:
            self.poller.unfollow(str(row.key), self)
            self._drop(row)
        self.settle(push, outcomes.expired(push.request, push.operation, waited, trouble))

    def refuse(self, push: Push, error: IntegrationError) -> None:
        """Give a push that is not on record the outcome REJECTED; stop if *error* ends all."""
        if outcomes.ends_all(error):
            self.stop(error)
        self.settle(push, outcomes.refused(push.request, error))

    def leave(self, row: Row, error: IntegrationError) -> None:
        """Follow *row* no more; it stays on record as it is, and a rival if it may own a push."""
        held = self.rows.get(row.id)
        if held is None or not may_own_unclaimed(held):
            self._drop(row)
        if row.key is not None:
            self.poller.unfollow(row.key, self)
        for push in self.handles.of(row.id):
            if push.outcome is not None:
                continue
            if row.key is not None or (row.state is State.QUEUED and self.store.durable):
                self.settle(push, outcomes.pending(push.request, push.operation, error))
            elif row.state in {State.QUEUED, State.REFUSED}:
                self.settle(push, outcomes.refused(push.request, error))
            else:
                self.settle(push, outcomes.in_doubt(push.request, row))
        self.handles.pop(row.id)

    def begin(self) -> IntegrationError | None:
        """Return why nothing is sent; None if it may be tried, again after what may have passed."""
        if outcomes.may_pass(self.stopped) and not (self.carried or self.tasks.closing.is_set()):
            self.stopped = None
            self.tasks.halted.clear()
            self.companies.resume()
        return self.stopped

    def stop(self, error: IntegrationError) -> None:
        """Stop pulling and sending: the account, client, quota or disk allows no more.

        A database that is away ends the runs, and no more: it comes back.
        """
        if isinstance(error, StoreUnavailable):
            self.end_runs(error)
        elif self.stopped is None:
            logger.error("nothing more is pushed: %s", error, exc_info=error.__cause__)
            self.stopped = error
            self.tasks.halted.set()
            self.end_runs(error)
            if not isinstance(error, JournalError):  # else what is open can still be polled
                self.give_up(error)
                if self.store.shared:
                    self.tasks.start(self.companies.hand_over())

    def crashed(self, crash: BaseException) -> None:
        """End every wait, since nobody knows what is left undone: a bug has ended a task.

        Pushes that are being sent have their outcome once they are answered.
        """
        error = PushingStopped(
            f"the coordinator failed ({crash!r}); nothing more is sent; sent pushes continue "
            "at the service"
        )
        error.__cause__ = crash
        if outcomes.may_pass(self.stopped):
            self.stopped = None  # a bug does not pass
        if self.stopped is None:
            self.stop(error)
        elif self.stopped.__cause__ is not crash:  # else all who awaited one task report it
            logger.error("%s", error, exc_info=crash)
        self._leave_all(error)

    def end_runs(self, error: IntegrationError) -> None:
        """End each run that still pulls with *error*."""
        for stop in tuple(self.runs):
            stop(fresh_copy(error))

    def give_up(self, error: IntegrationError) -> tuple[str, ...]:
        """Stop following; open pushes get the outcome PENDING. Return their keys."""
        keys = tuple(self.keys)
        for key in keys:
            self.leave(self.rows[self.keys[key]], error)
        return keys

    def let_go_of_all(self) -> None:
        """Give every remaining push an outcome, also those whose sending ends late."""
        self.over = True
        self._leave_all(_left())

    def _leave_all(self, error: IntegrationError) -> None:
        for row in [one for one in self.rows.values() if one.id not in self.carried]:
            self.leave(row, error)
        for push in [one for one in self.handles.unsettled if one.intent not in self.carried]:
            self.handles.leave(push)
            self.settle(push, outcomes.pending(push.request, push.operation, error))

    async def aclose(self) -> None:
        """Wait for what is under way; then stop hearing of other processes."""
        self.tasks.halt()
        self.companies.stop_watching()
        await self.tasks.join()


def _left() -> ClientClosed:
    why = "the block was left while this push was Pending; it continues at the service"
    return ClientClosed(why)
