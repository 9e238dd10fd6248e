"""The life of a held push: queued, sent, answered, polled, searched for, settled.

Whoever accepts a push holds its row and takes it from state to state. A push that lives is one
object, `Live`. With a journal, `Holder.step` writes its row first; without one, the live objects
are all there is. `Holder.go_on` does what a state needs::

    QUEUED    a carrier of its company sends it: mark, turn, on record as SENDING, sent once
    SENDING   its carrier goes on
    OPEN      the polling loop follows it, and calls `Holder.seen`
    LOST      the company's list is searched (`search`)
    DOUBT     likewise, rarely; the caller decides
    DONE      everyone who waits for it gets the outcome

Whatever can wait stands before SENDING, so that a crash leaves few pushes in doubt. A push is sent
again only if it provably had no effect (it never left, 429, or the service's own 503), or as a
replay under the idempotency key of a service that honours it.
"""

from __future__ import annotations

import asyncio
import logging
from collections import OrderedDict
from collections.abc import Awaitable, Callable, Coroutine, Iterable, Mapping
from contextvars import Context
from functools import partial
from typing import Any, Final, assert_never
from uuid import uuid4

from attrs import Factory, define, field

from integration_sdk._http.retry import RetryPolicy
from integration_sdk._options_given import CoordinatorOptions
from integration_sdk._outcome import PushOutcome
from integration_sdk._push import outcomes
from integration_sdk._push.outcomes import Fresher
from integration_sdk._push.polling import Polls
from integration_sdk._push.push import Company, Live, Push, PushEvent, Tally, What, about
from integration_sdk._push.table import DOUBTFUL, Event, after
from integration_sdk._push.wire import Wire
from integration_sdk._store.journal import Journal
from integration_sdk._store.row import Row, State, folded
from integration_sdk.errors import (
    ClientClosed,
    ConfigurationError,
    IntegrationError,
    InvalidRecord,
    JournalError,
    NotSent,
    PushError,
    StoreUnavailable,
    fresh_copy,
)
from integration_sdk.models import OutcomeStatus, PushOperation, PushRequest

logger = logging.getLogger("integration_sdk.pushes")
CheckRecord = Callable[[PushRequest], Awaitable[None]]  # raises `InvalidRecord`

LEFT: Final = "the block was left while this push was Pending; it continues at the service"
BLOCK_LEFT: Final = "this coordinator's block has been left"
LEFT_BEHIND: Final = "not sent: the coordinator's block was left before its turn came"
UNTIL_BACK: Final = 2.0
"""Seconds between two attempts to record an answer while the database is away."""
KEYS: Final = 50_000  # of settled pushes that are remembered without a journal
_HAPPENED: Final = frozenset({Event.LOST, Event.LATER})
"""What holds here even if it cannot be put on record."""


@define(eq=False)
class Holder:
    """The pushes that a coordinator holds, by id, key and reference.

    options: What the caller chose. *retry*: Transmissions of one push, after NOT_SENT, 429 and 503.
    journal: None to keep no record. *buried*, *owned*: What it would say of rows that are done.
    pump, seek, beat: Sends what is queued; searches for what is doubtful; says to other workers
        that this one is alive.
    elsewhere: Pushes that callers here wait for and another worker holds, by id and by the hash of
        the record, which may be corrected there.
    given_up: Rows, by id, that are this worker's on record and followed no longer.
    waiting: Number of pushes that the service has not answered; *room* is set when that changes.
    runs: For each run that still pulls, a function that stops it with an error.
    keeper: The task that stays alive for the others until the end.
    stopped: The error because of which nothing is sent; None while sending.
    leaving, closing: Whether the block is being left; whether nothing is sent or searched for.
    """

    wire: Wire
    polls: Polls
    journal: Journal | None
    options: CoordinatorOptions
    retry: RetryPolicy
    chance: Callable[[], float]
    check: CheckRecord | None = None
    pump: Callable[[Company], None] = field(init=False)
    beat: Callable[[], Awaitable[None]] = field(init=False)
    seek: Callable[[Company], None] = field(init=False)
    live: dict[str, Live] = Factory(dict)
    keys: dict[str, Live] = Factory(dict)
    references: dict[str, Live] = Factory(dict)
    companies: dict[str, Company] = Factory(dict)
    elsewhere: dict[tuple[str, str], list[Push]] = Factory(dict)
    buried: list[Row] = Factory(list)
    owned: OrderedDict[str, None] = Factory(OrderedDict)
    given_up: set[str] = Factory(set)
    recovered: list[Push] = Factory(list)
    unsettled: set[Push] = Factory(set)
    idle: asyncio.Event = Factory(asyncio.Event)
    waiting: int = 0
    room: asyncio.Event = Factory(asyncio.Event)
    runs: set[Callable[[BaseException], None]] = Factory(set)
    tally: Tally = Factory(Tally)
    tasks: set[asyncio.Task[Any]] = Factory(set)
    keeper: asyncio.Task[None] | None = None
    stopped: IntegrationError | None = None
    leaving: bool = False
    closing: bool = False
    over: bool = False
    _complained: bool = False

    # From the caller to the queue

    def enter(self, push: Push) -> None:
        """Count *push* until it has an outcome."""
        self.unsettled.add(push)
        self.idle.clear()

    def forget(self, push: Push) -> None:
        self.unsettled.discard(push)
        if not self.unsettled:
            self.idle.set()

    def accept(self, push: Push) -> None:
        """Queue *push*, or let it join the one that has its reference."""
        self.enter(push)
        row_id = str(uuid4())
        key = row_id if self.wire.replays else None
        holder = self.journal.holder if self.journal else ""
        try:
            row, call = outcomes.to_row(self.wire.dialect, push.request, row_id, key, holder)
            known = self.references.get(row.reference) if row.reference is not None else None
            if known is not None:
                outcomes.take_up(known.row, row)  # raises if it is another record
        except (InvalidRecord, ConfigurationError) as error:
            self.fail(push, OutcomeStatus.INVALID, error)
            return
        if known is not None:
            self._join_live(known, [push])
            return
        push.intent = row.id
        live = Live(row, self.company(row.company), [push], call)
        self.hold(live)
        self.queue(live)

    def company(self, name: str) -> Company:
        return self.companies.get(name) or self.companies.setdefault(name, Company(name))

    def request_of(self, row: Row) -> PushRequest:
        return outcomes.from_row(row, numbers=self.polls.numbers)

    def hold(self, live: Live) -> None:
        self.live[live.row.id] = live
        if live.row.reference is not None:
            self.references[live.row.reference] = live
        if live.row.key is not None:
            self.keys[folded(live.row.key)] = live

    def holds(self, live: Live) -> bool:
        """Whether *live* stands for its row here; nothing else may be sent for it."""
        return self.live.get(live.row.id) is live

    def drop(self, live: Live) -> None:
        row = live.row
        if self.holds(live):  # else it has come back to us since
            del self.live[row.id]
            live.company.doubtful.pop(row.id, None)
        if row.reference is not None and self.references.get(row.reference) is live:
            del self.references[row.reference]
        if row.key is not None and self.keys.get(folded(row.key)) is live:
            del self.keys[folded(row.key)]
            self.polls.unfollow(row.key, self.seen)
        if self.journal is None:
            if row.ghosts:
                self.buried.append(row)
            if row.key is not None:
                self.owned[folded(row.key)] = None
            if len(self.owned) > KEYS:
                self.owned.popitem(last=False)
        self._set_waiting(live, False)

    def owns(self, key: str) -> bool:
        """Whether a key belongs to a push that is held, or was."""
        name = folded(key)
        return name in self.keys or name in self.owned

    def queue(self, live: Live) -> None:
        """Have *live* sent by a carrier of its company."""
        if not self.holds(live) or live.row.state not in {State.QUEUED, State.LOST}:
            return  # it was settled meanwhile
        self._set_waiting(live, True)
        live.company.queue.append(live)
        self.pump(live.company)

    def _set_waiting(self, live: Live, waits: bool) -> None:
        if live.is_waiting is not waits:
            live.is_waiting = waits
            self.waiting += 1 if waits else -1
            live.company.waiting += 1 if waits else -1
        self.room.set()

    def is_answered(self, push: Push) -> bool:
        if push.outcome is not None or push.key is not None:
            return True
        live = self.live.get(push.intent or "")
        return live is not None and live.row.state in DOUBTFUL and not live.is_waiting

    def keep_on_record(self, push: Push) -> None:
        """Put a push on record whose caller does not wait for its turn any more."""
        live = self.live.get(push.intent or "")
        if live is not None and live.row.version < 0 and live.writing is None:
            self.note(live, Event.KEPT)

    # Changing a row

    async def step(
        self, live: Live, event: Event, *, judged: Row | None = None, **facts: Any
    ) -> bool:
        """Move a row on, on record first; return whether it is ours still, and has moved.

        *judged*: The row about which *event* was concluded; nothing is done to a later one.

        Raises:
            JournalError: It was not recorded (and has not happened at the service).
        """
        await _written(live)
        row = live.row
        if judged is not None and judged is not row:
            return False
        new = after(row, event, **facts)
        try:
            found = await self._recorded(live, new)
        except JournalError as error:
            if event not in _HAPPENED:
                raise
            self.stop(error)
            found = new  # a later run finds it out again
        if found is new:
            live.row = new
            return True
        if found.id != row.id:
            await self._take_reference(live, found)
            return self.holds(live) and await self.step(live, event, **facts)
        if found.version != row.version:  # else its key is another row's
            self.moved(live, found)
        return False

    async def _recorded(self, live: Live, new: Row) -> Row:
        """Put *new* on record; return it, or what is on record instead."""
        if self.journal is None:
            is_of_another = new.key is not None and live.row.key is None and self.owns(new.key)
            return live.row if is_of_another else new
        live.writing = self.journal.write(new)
        try:
            return await live.writing
        finally:
            live.writing = None

    async def _take_reference(self, live: Live, found: Row) -> None:
        """Make a push a further step of the row that has its reference, if that allows it."""
        row = live.row
        self.drop(live)
        while live.row is not found:  # others may take the reference up meanwhile
            while (held := self.live.get(found.id)) is not None and held.writing is not None:
                await _written(held)
            try:
                is_next = outcomes.take_up(held.row if held else found, row)
            except ConfigurationError as error:
                for push in live.pushes:
                    self.fail(push, OutcomeStatus.INVALID, error)
                return
            if held or not is_next:
                self.join(held.row if held else found, live.pushes)
                return
            record = outcomes.of_the_record(row)
            live.row = after(found, Event.RESENT, decision=None, **record)
            self.hold(live)  # or another push of the same record would take it up as well
            try:
                found = await self._recorded(live, live.row)
            except BaseException:
                self.drop(live)
                live.row = row
                raise
            if live.row is not found:
                self.drop(live)
        self._set_waiting(live, True)
        for push in live.pushes:
            push.intent = found.id

    def moved(self, live: Live, found: Row) -> None:
        """Let go of a push that another worker has taken further; wait for it with the others."""
        self.drop(live)
        pushes, before = live.pushes, live.row
        live.pushes, live.row = [], found  # who still has it concludes nothing more
        self.join(found.as_of(before.payload_hash), pushes)

    def let_go(self, lives: Mapping[str, Live], on_record: Iterable[Row]) -> None:
        """Let go of pushes that another worker has taken further, by a decision there."""
        for row in on_record:
            live = lives[row.id]
            is_still = self.holds(live) and live.writing is None  # else we decide ourselves
            if is_still and row.version > live.row.version:
                self.moved(live, row)

    def note(self, live: Live, event: Event, **facts: Any) -> None:
        """Move a row on as it has happened, and record that without waiting for it."""
        live.row = new = after(live.row, event, **facts)
        if self.journal is not None:
            self.journal.write(new).add_done_callback(_log_failure)

    def join(self, found: Row, pushes: list[Push]) -> None:
        """Let *pushes* have what becomes of a row, whoever holds it."""
        is_mine = self.journal is not None and found.holder == self.journal.holder
        for push in pushes:
            push.intent = found.id
        held = None if found.is_done else self.live.get(found.id)
        if held is not None:
            self._join_live(held, pushes)
        elif found.is_done or (found.state is State.DOUBT and not is_mine):
            self.report(found, pushes)
        elif is_mine:
            self.adopt(found, pushes)
        elif waiting := [one for one in pushes if one.outcome is None]:
            self.elsewhere.setdefault((found.id, found.payload_hash), []).extend(waiting)

    def _join_live(self, live: Live, pushes: list[Push]) -> None:
        is_looked_for = any(push.outcome is None for push in live.pushes)
        for push in pushes:
            push.intent = live.row.id
            if live.row.state is State.DOUBT and not is_looked_for:
                self.report(live.row, [push])
                continue
            live.pushes.append(push)
            if live.row.key is not None and live.operation is not None:
                push._wake(live.operation)
            if live.row.state in {State.OPEN, State.LOST}:
                self.start_wait(live.row, push)
            push._wake()

    # What a state needs

    def adopt(self, row: Row, pushes: Iterable[Push] = ()) -> None:
        """Go on with a row that is ours now; *pushes*: of callers here."""
        held, waiting = self.live.get(row.id), [*pushes]
        if held is not None and held.row.version >= row.version:
            # A caller has met the row while the answer to the claim was on its way.
            self._join_live(held, waiting)
            return
        if held is not None:  # another's in between
            waiting += [push for push in held.pushes if push.outcome is None]
            held.pushes = []
            self.drop(held)
        live = Live(row, self.company(row.company), waiting, is_own=False)
        if not live.pushes:
            push = Push(self.request_of(row), intent=row.id)
            self.enter(push)
            self.recovered.append(push)
            live.pushes.append(push)
        self.hold(live)
        self.go_on(live)

    def go_on(self, live: Live, fresher: Fresher = None) -> None:
        """Do what the state of a row needs; *fresher*: what has just been seen of it."""
        match live.row.state:
            case State.QUEUED if live.is_own or live.row.natural_key is None:
                self.queue(live)
            case State.SENDING:
                self.start(self._lose_unfinished(live))
            case State.OPEN:
                self.open(live, fresher if isinstance(fresher, PushOperation) else None)
            case State.QUEUED | State.LOST | State.DOUBT:
                # An earlier process may have sent what is QUEUED, and its store was restored since.
                self._search_for(live)
            case State.DONE:
                self._done(live, fresher)
            case other:
                assert_never(other)

    async def _lose_unfinished(self, live: Live) -> None:
        if await self.step(live, Event.LOST, error="the process ended while it was being sent"):
            self.go_on(live)

    def _search_for(self, live: Live) -> None:
        self._set_waiting(live, False)
        if self.closing:
            self.leave(live, ClientClosed(LEFT))
            return
        live.company.doubtful[live.row.id] = live
        live.lost_at = asyncio.get_running_loop().time()
        if live.row.state is State.LOST and live.pushes:
            self.tell("doubted", live.pushes[0])
        for push in live.pushes:
            if live.row.state is State.LOST:
                self.start_wait(live.row, push)
            push._wake()
        live.company.news.set()
        self.seek(live.company)

    def open(self, live: Live, operation: PushOperation | None) -> None:
        """Follow a push whose key is known; *operation*: as the service has answered."""
        self._set_waiting(live, False)
        live.company.doubtful.pop(live.row.id, None)
        self.keys[folded(str(live.row.key))] = live
        live.operation = operation or live.operation or outcomes.recorded_operation(live.row)
        for push in live.pushes:
            push._wake(live.operation)
        if operation is not None and live.pushes:
            self.tell("sent", live.pushes[0])
        if not self.holds(live):  # `on_event` has detached it
            return
        if live.operation.is_final:
            self._end(live, live.operation)
        elif self.closing:
            pass  # it is detached at the end, with the others
        elif self.stopped and not isinstance(self.stopped, JournalError):
            self.leave(live, self.stopped)
        else:
            row, data = live.row, self.options.fetch_data
            last: dict[str, Any] = {"operation": live.operation, "minutes": row.timeout_minutes}
            self.polls.follow(row.company, str(row.key), self.seen, **last, wants_data=data)
            for push in live.pushes:
                self.start_wait(row, push)

    def start_wait(self, row: Row, push: Push) -> None:
        """Wait no longer than the caller wants to, now that *row* is accepted or lost."""
        seconds = outcomes.longest_wait(push.request, push._wait)
        if seconds is not None and push.outcome is None:
            push._wait_for(seconds, self._expire)
            if row.key is not None:
                self.polls.look_before(row.key, seconds)

    def _expire(self, push: Push, waited: float) -> None:
        live = self.live.get(push.intent or "")
        if live is not None and live.row.key is None:
            self.report(live.row, [push])
            return
        trouble = None
        if live is not None:
            trouble = self.polls.trouble(str(live.row.key))
            live.pushes.remove(push)
            if self.journal is None and not live.pushes:
                self.drop(live)
        for place, others in list(self.elsewhere.items()):
            if push in others:
                others.remove(push)
                if not others:
                    del self.elsewhere[place]
        name = f"{outcomes.name_of(push.request)} (push {push.key})"
        error = outcomes.wait_expired(name, waited, operation=push.operation, trouble=trouble)
        self.fail(push, OutcomeStatus.PENDING, error)

    def seen(self, key: str, what: PushOperation | IntegrationError) -> None:
        """Note a state of a push, or the error because of which it is not polled any more."""
        live = self.keys.get(folded(key))
        try:
            if live is None:  # its end is being recorded
                return
            if isinstance(what, IntegrationError):
                if outcomes.ends_all(what):
                    self.stop(what)
                self.leave(live, what)
            elif what.is_final:
                self._end(live, what)
            else:
                before, live.operation = live.operation, what
                for push in live.pushes:
                    push._wake(what)
                if before and before.raw_status != what.raw_status and live.pushes:
                    self.tell("changed", live.pushes[0])
        except Exception as crash:
            self.crash(crash)

    def _end(self, live: Live, operation: PushOperation) -> None:
        """Record the final state, then report it; no wait ends in between."""
        live.operation = operation
        self.keys.pop(folded(str(live.row.key)), None)
        for push in live.pushes:
            push._end_wait()
        status, why = outcomes.status_of(operation), outcomes.reasons(operation)
        new = after(live.row, Event.ENDED, status=status, error=why)
        if self.journal is None:
            live.row = new
            self._done(live, operation)
        else:
            live.writing = self.journal.write(new)
            live.writing.add_done_callback(partial(self._ended, live, new, operation))

    def _ended(
        self, live: Live, new: Row, operation: PushOperation, written: asyncio.Future[Row]
    ) -> None:
        live.writing = None
        if (error := written.exception()) is not None:
            if self.stopped is None:
                lost = "the final state of %s is not on record yet: %s"
                logger.error(lost, live.row, error, extra=about(live.row))
            self.report(new, live.pushes, operation)
            live.pushes.clear()
            self.drop(live)
            if isinstance(error, StoreUnavailable) and not self.closing:
                self.hold(live)  # until the database is back
                loop, key = asyncio.get_running_loop(), str(new.key)
                loop.call_later(UNTIL_BACK, self.seen, key, operation, context=Context())
        elif written.result() is new:
            live.row = new
            self._done(live, operation)
        else:
            self.moved(live, written.result())

    def _done(self, live: Live, fresher: Fresher) -> None:
        self.drop(live)
        told = [push for push in live.pushes if push.outcome is not None]
        self.report(live.row, live.pushes, fresher)
        for push in told if live.operation is not None else ():
            push.operation = live.operation
            self.tell("found", push)

    # Outcomes and events

    def report(self, row: Row, pushes: Iterable[Push], fresher: Fresher = None) -> None:
        """Give those of *pushes* that have none the outcome that *row* decides by now."""
        for push in [one for one in pushes if one.outcome is None]:
            self.settle(push, outcomes.standing(push.request, row, self.wire.dialect, fresher))

    def fail(self, push: Push, status: OutcomeStatus, error: IntegrationError) -> None:
        """Give *push* an outcome that no row decides."""
        last = push.operation if status is OutcomeStatus.PENDING else None
        outcome = PushOutcome(status=status, request=push.request, operation=last, error=error)
        self.settle(push, outcome)

    def settle(self, push: Push, outcome: PushOutcome) -> None:
        """Give *push* its outcome, unless it has one."""
        if push not in self.unsettled:
            return
        push._settle(outcome)
        self.forget(push)
        self.tally.ended(outcome.status, asyncio.get_running_loop().time())
        self.tell("ended", push)

    def tell(self, what: What, push: Push) -> None:
        try:
            if self.options.on_event is not None:
                self.options.on_event(PushEvent(what, push))
        except (Exception, asyncio.CancelledError):  # a future's, say, whose result it reads
            if not self._complained:  # what is wrong with it is wrong for every push
                logger.exception("on_event failed for %r; pushing continues", what)
            self._complained = True

    # Giving up

    def leave(
        self, live: Live, error: IntegrationError, unsent: OutcomeStatus = OutcomeStatus.REJECTED
    ) -> None:
        """Hold a push no longer. What a caller here has asked for and has not left, never will."""
        row = live.row
        is_unsent = row.state is State.QUEUED and not row.ghosts
        is_kept = is_unsent and row.version >= 0 and self.journal is not None
        is_resent = row.state is State.QUEUED and row.ghosts > 0
        # The journal may fail again, and so may what has failed by a bug.
        fails = isinstance(error, JournalError) or type(error) is PushError
        if live.is_own and (is_kept or is_resent) and not (self.over or fails):
            self.start(self._withdraw(live, row, error, unsent))
            return
        goes_on = row.key is not None or is_kept
        self.drop(live)
        if not (goes_on or is_unsent):
            self.report(row, live.pushes)
        for push in [one for one in live.pushes if one.outcome is None]:
            self.fail(push, OutcomeStatus.PENDING if goes_on else unsent, error)

    def send_no_more(self, live: Live, error: IntegrationError) -> None:
        """Leave a push that got no turn; one that is LOST is searched for, not replayed."""
        if live.later is not None:
            live.later.cancel()
        if live.row.state is State.LOST:
            self._search_for(live)
        else:
            self.leave(live, error)

    async def _withdraw(
        self, live: Live, row: Row, error: IntegrationError, unsent: OutcomeStatus
    ) -> None:
        """Say that a push was not sent once that is on record: another worker may have sent it."""
        try:
            if not await self.step(live, Event.WITHDRAWN, judged=row, error=str(error)):
                return
        except JournalError as problem:
            unsent, error = OutcomeStatus.PENDING, problem  # a later run sends it
        if live.row.state is State.DOUBT:  # of an earlier transmission
            self.go_on(live)
            return
        self.drop(live)
        for push in [*live.pushes]:
            self.fail(push, unsent, error)

    def begin(self) -> IntegrationError | None:
        """Return why nothing is sent; None if it may be tried, again after what may have passed."""
        if outcomes.may_pass(self.stopped) and not (self.waiting or self.closing):
            self.stopped = None
        return ClientClosed(BLOCK_LEFT) if self.leaving else self.stopped

    def stop(self, error: IntegrationError) -> None:
        """Stop pulling and sending: the account, client, quota or disk allows no more.

        A database that is away ends the runs, and no more: it comes back.
        """
        if isinstance(error, StoreUnavailable):
            self.end_runs(error)
        elif self.stopped is None:
            logger.error("nothing more is pushed: %s", error, exc_info=error.__cause__)
            self.stopped = error
            self._withdraw_all(error)
            self.end_runs(error)
            if not isinstance(error, JournalError):  # else what is open can still be polled
                self.give_up(error)

    def _withdraw_all(self, error: IntegrationError) -> None:
        for company in self.companies.values():
            company.queue.clear()
            if company.line is not None:
                company.line.cancel()
                company.line = None  # a task that has not begun never says so
        for live in [one for one in self.live.values() if one.is_waiting and not one.is_carried]:
            self.send_no_more(live, error)

    def end_runs(self, error: IntegrationError) -> None:
        for stop in tuple(self.runs):
            stop(fresh_copy(error))

    @property
    def open_keys(self) -> tuple[str, ...]:
        """The keys of open pushes, without those whose end is being recorded."""
        return tuple(str(one.row.key) for one in self.keys.values())

    def give_up(self, error: IntegrationError) -> tuple[str, ...]:
        """Stop following; open pushes get the outcome PENDING. Return their keys."""
        given_up = self.open_keys
        for live in list(self.keys.values()):
            self.given_up.add(live.row.id)
            self.leave(live, error)
        return given_up

    def crash(self, crash: BaseException) -> None:
        """End every wait, since it is unknown what is left undone: a bug has ended a task."""
        error = PushError(f"the coordinator failed ({crash!r}); sent pushes go on at the service")
        error.__cause__ = crash
        if outcomes.may_pass(self.stopped):
            self.stopped = None  # a bug does not pass
        self.stop(error)
        self.leave_all(error)

    def close(self, error: IntegrationError) -> None:
        """Let nothing more be sent or searched for; what is on its way is answered."""
        self.leaving = self.closing = True
        self.stopped = self.stopped or error
        self.end_runs(error)
        self._withdraw_all(NotSent(LEFT_BEHIND))
        for company in self.companies.values():
            company.news.set()

    async def end(self) -> None:
        """End what still runs, as a crash would, and give every push an outcome."""
        self.closing = self.over = True
        self.stopped = self.stopped or ClientClosed(LEFT)
        for task in self.tasks:
            task.cancel()
        self.keeper = None
        await self.join_tasks()
        self.give_up(ClientClosed(LEFT))  # or it might end while others' ends are recorded
        for live in [*self.live.values()]:
            await _written(live)  # its end may be known
        self.leave_all(ClientClosed(LEFT))

    def leave_all(self, error: IntegrationError) -> None:
        """Give every push an outcome, apart from those that are being sent."""
        for live in [*self.live.values()]:
            if self.over or live.row.state is not State.SENDING:
                self.leave(live, error)
        held = {push for live in self.live.values() for push in live.pushes}
        for push in self.unsettled - held:
            self.fail(push, OutcomeStatus.PENDING, error)

    # Tasks

    def start(self, work: Coroutine[Any, Any, None]) -> asyncio.Task[None]:
        """Run *work* in a task; its crash ends what depends on the holder."""
        own = Context()  # it outlives the call that starts it, and does not inherit its context
        # Not by the loop's factory: an eager task would begin before its caller knows it.
        task = asyncio.Task(work, name="integration_sdk push", context=own)
        self.tasks.add(task)
        task.add_done_callback(self._over)
        return task

    def _over(self, task: asyncio.Task[Any]) -> None:
        self.tasks.discard(task)
        if not task.cancelled() and (crash := task.exception()) is not None:
            self.crash(crash)

    async def join_tasks(self) -> None:
        while working := self.tasks - {asyncio.current_task(), self.keeper}:
            await asyncio.wait(working)


async def _written(live: Live) -> None:
    """Wait for another step of a row, which says then what has come of it."""
    while live.writing is not None:
        await asyncio.wait([live.writing])
        await asyncio.sleep(0)


def _log_failure(written: asyncio.Future[Row]) -> None:
    if not written.cancelled() and (error := written.exception()) is not None:
        logger.warning("what has become of a push could not be put on record: %s", error)
