"""Takes a push from the caller to the service's answer: on record, its turn, sent once, answered.

::

    record QUEUED -> snapshot of the company -> turn -> record SENDING -> send once -> record

Whatever can wait stands before SENDING, so that a crash leaves few pushes in doubt. A push is sent
again only if it provably had no effect (it never left, 429, or the service's own 503), or as a
replay under the idempotency key of a service that honours it.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections import OrderedDict
from collections.abc import Awaitable, Callable, Mapping, Sequence
from itertools import count
from math import inf
from typing import TYPE_CHECKING, Any, Final
from uuid import uuid4

from attrs import Factory, define, field, frozen
from msgspec import structs

from integration_sdk._http import statuses
from integration_sdk._http.requests import Phase, Request
from integration_sdk._http.responses import Failure, Reply, Response
from integration_sdk._http.retry import RetryPolicy
from integration_sdk._http.statuses import OFFLINE, Scope
from integration_sdk._push import answers, outcomes
from integration_sdk._push.dispatcher import CANCELLED, Fresher, Moved
from integration_sdk._push.evidence import answers_another
from integration_sdk._push.push import Push
from integration_sdk._push.table import Event, SendResult, after, classify, sent_again
from integration_sdk._push.tasks import loop_time
from integration_sdk._push.wire import SNAPSHOT
from integration_sdk._store.row import Evidence, KeyClaimed, Row, Snapshot, Stale, State
from integration_sdk.errors import (
    AnswerLost,
    ConfigurationError,
    IntegrationError,
    InvalidRecord,
    JournalError,
    NotSent,
    Unauthorized,
)
from integration_sdk.models import PushOperation, PushRequest

if TYPE_CHECKING:
    from integration_sdk._push.dispatcher import Dispatcher

logger = logging.getLogger("integration_sdk.pushes")

CheckRecord = Callable[[PushRequest], Awaitable[None]]
"""Raises `InvalidRecord` if a request cannot be right."""
WRONG_DIALECT: Final = (
    "the service answers in another dialect than the client's: it calls a push's connection by "
    "another name, and so knows no idempotency keys that could be relied on. Pass the right "
    "dialect=, such as Dialect.document(), to Client"
)
LEFT_BEHIND: Final = "the coordinator's block was left before its turn came"
ANOTHERS: Final = "with another push, as a cache does"
IN_A_ROW: Final = 3
"""Refusals of the key after which nothing more is sent."""
REPLAY_WINDOW: Final = 3600.0
"""Seconds for which an idempotency key is relied upon. Assumed: answers are kept for 90 minutes; a
third is left for waits that turn out longer."""
SNAPSHOT_AGE: Final = 600.0
"""Seconds after which a company is listed again before pushes are sent."""
NO_SNAPSHOT_AGE: Final = 30.0
"""The same after a failed listing; without a snapshot a push in doubt cannot be resolved."""
SNAPSHOT_PUSHES: Final = 25_000
"""Pushes (of all companies) after which likewise; memory stores remember that many keys."""


@frozen(kw_only=True)
class Policy:
    """Limits of retries and waits, and what the service and the caller promise. In seconds.

    exclusive: The caller promises that nobody but this journal writes to the lanes, nor did so
        recently enough for a lagging list to show it as new. Allows E1.
    refuses_with_503, path_names: From the dialect.
    replays: From the dialect: the service carries out only once what it receives under one
        idempotency key, so a create in doubt may be sent again.
    retry: Transmissions of one push, after NOT_SENT, 429 and 503, and replays; all pauses
        begin at its ``throttled_base``.
    longest_pause: If the service asks for a longer pause, the push is given up.
    patience: Time that a list gets to show a push before its absence counts.
    resends: Whether a push that no list shows is sent again without asking the caller.
    """

    exclusive: bool = False
    refuses_with_503: bool = True
    path_names: Mapping[str, str] = field(factory=dict)
    replays: bool = True
    retry: RetryPolicy = field(factory=lambda: RetryPolicy(attempts=5))
    longest_pause: float = inf
    patience: float = 30.0
    resends: bool = False

    def waits_for(self, result: SendResult) -> bool:
        """Whether the pause that the service asked for is no longer than `longest_pause`."""
        return (result.retry_after or 0.0) <= self.longest_pause


@define
class KeyRefusals:
    """Counts the answers of 401 since the last push that was accepted.

    Of pushes that were under way together only the first counts: the client may have got a new
    key from the caller since they left.
    """

    _count: int = 0
    _last: float = -inf

    def forget(self) -> None:
        """Start anew: a push was accepted."""
        self._count = 0

    def are_final(self, began: float, now: float) -> bool:
        """Count a refusal of a push that *began* then; return whether to give up."""
        if began >= self._last:
            self._count, self._last = self._count + 1, now
        return self._count >= IN_A_ROW


@define(eq=False)
class _Snapshot:
    """A company's snapshot, and the time and push count after which to take a new one."""

    until: float
    until_push: int
    task: asyncio.Task[Snapshot | None]


@define(eq=False)
class Sender:
    """Sends the pushes of a coordinator.

    Args:
        dispatcher: Has the rows.
        policy: Limits of retries and waits.
        check: Called before a push is put on record.
        chance: Returns a number from 0 to 1, for jitter.
    """

    dispatcher: Dispatcher
    policy: Policy
    check: CheckRecord | None
    chance: Callable[[], float]
    in_line: set[asyncio.Task[Any]] = Factory(set)
    _key_refusals: KeyRefusals = Factory(KeyRefusals)
    _numbers: count[int] = Factory(count)
    _snapshots: OrderedDict[str, _Snapshot] = Factory(OrderedDict)
    _pushes: int = 0
    _ahead: float = -inf

    # From the caller to the record

    async def push(self, push: Push) -> Exception | None:
        """Put *push* on record, and send it unless it joins one that is there already.

        Returns what ``check`` raised, but for an `IntegrationError`.
        """
        d, company = self.dispatcher, push.request.company_id
        d.crowd[company] += 1
        try:
            return await self._push(push)
        finally:
            d.crowd[company] -= 1
            if not d.crowd[company]:
                del d.crowd[company]
            for told in tuple(d.answered):
                told()

    async def _push(self, push: Push) -> Exception | None:
        d = self.dispatcher
        if why := d.begin():
            d.refuse(push, why)
            return None
        try:
            row, call = outcomes.to_row(
                d.wire.dialect, push.request, *self._new_ids(), durable=d.store.durable
            )
            recorded = await self._on_record(push, row)
        except (InvalidRecord, ConfigurationError) as error:
            d.settle(push, outcomes.invalid(push.request, error))
        except IntegrationError as error:
            d.refuse(push, error)
        except asyncio.CancelledError:
            if push.intent is None:
                d.refuse(push, NotSent(f"not sent: {CANCELLED}"))
            else:
                d.tasks.start(d.restart(push.intent))
            raise
        except Exception as error:
            d.refuse(push, NotSent(f"not sent: {error!r}"))
            return error
        else:
            if recorded is not None:
                await self.carry(recorded, call)
        return None

    def is_answered(self, push: Push) -> bool:
        """Whether the service has answered, or the answer was lost."""
        if push.outcome is not None or push.key is not None:
            return True
        row = self.dispatcher.rows.get(push.intent or "")
        sending = {State.QUEUED, State.SENDING}
        return row is not None and not (row.state in sending or row.id in self.dispatcher.carried)

    def _new_ids(self) -> tuple[str, str | None]:
        """Return a new row id, and an idempotency key (the same) if the service has them."""
        if self.dispatcher.wire.dialect.idempotency_header is not None:
            key = str(uuid4())
            return key, key
        durable = self.dispatcher.store.durable
        return (str(uuid4()) if durable else f"push-{next(self._numbers)}"), None

    async def _on_record(self, push: Push, row: Row) -> Row | None:
        """Record *row* for *push*, or let it join; return the row to send here and now, if any."""
        d = self.dispatcher
        company = d.companies.of(row.company)
        await d.companies.acts_for(company)
        if self.check and not await self._is_known(row):
            await self.check(push.request)
        while True:
            known = await self._added(push, row)
            if known.id == row.id:
                return self._hand_over(row)
            known = d.rows.get(known.id, known)
            holders = d.handles.of(known.id)
            same = known.identity == row.identity
            if holders and not same and known.state in {State.QUEUED, State.SENDING}:
                await holders[0]._next_change()  # until it is clear whether that one exists
                continue
            before = outcomes.take_up(known, row)
            if before is not None:
                self._join(push, before)
                return None
            again = structs.replace(row, parent=known.id)
            if await self._replaced(push, known, again):
                return self._hand_over(again)

    async def _added(self, push: Push, row: Row) -> Row:
        """Record *row* for *push*; return it, or the row that has its reference."""
        d = self.dispatcher
        d.handles.join(push, row.id)  # before, so that whoever is cancelled meanwhile is found
        known = None
        try:
            added = d.store.add([row])
            known = (added if isinstance(added, list) else await d.committed(row.id, added))[0]
        except IntegrationError:
            d.handles.quit(push)
            raise
        if known.id != row.id:
            d.handles.quit(push)
        return known

    def _hand_over(self, row: Row) -> Row | None:
        d = self.dispatcher
        if not d.companies.of(row.company).is_ours:
            d.companies.heed(row)
            return None
        if row.id in d.rows:  # its company has been taken since
            return None
        d.cache(row)
        return row

    async def _is_known(self, row: Row) -> bool:
        """Whether a row has its reference: what is on record has passed the check already."""
        if row.reference is None:
            return False
        found = await self.dispatcher.store.rows(reference=row.reference)
        return bool(found) and not found[-1].is_superseded and found[-1].identity == row.identity

    def _join(self, push: Push, row: Row) -> None:
        """Let *push* have what becomes of *row*."""
        d = self.dispatcher
        waits = any(other.outcome is None for other in d.handles.of(row.id))
        match row.state:
            case State.QUEUED | State.SENDING | State.OPEN | State.LOST:
                d.handles.join(push, row.id)
                if row.id not in d.rows and not d.companies.of(row.company).is_ours:
                    d.companies.heed(row)
                elif row.id not in d.rows or row.state is State.OPEN:
                    d.arrive(row)
                elif row.state is State.LOST and row.id not in d.carried:
                    d.handles.start_wait(push)
            case State.DOUBT if waits:  # it is looked for once more
                d.handles.join(push, row.id)
            case State.DOUBT | State.CLOSED | State.REFUSED | State.FINAL:
                push.intent = row.id
                d.settle(push, outcomes.standing(push.request, row, d.wire.dialect))

    async def _replaced(self, push: Push, before: Row, row: Row) -> bool:
        """Record *row* in place of *before*, which does not exist; False if that has changed."""
        d = self.dispatcher
        event = Event.ABANDONED if before.state is State.QUEUED else Event.RESENT
        done = after(before, event, decision="resend")
        d.handles.join(push, row.id)
        try:
            made = d.store.decide(done, [row])
            if made is not None:
                await d.committed(row.id, made)
        except IntegrationError as error:
            d.handles.quit(push)
            if isinstance(error, Stale):
                return False
            raise
        d.arrive(done)
        return True

    # Sending

    async def carry(self, row: Row, call: Request | None = None) -> None:
        """Send *row* until it is no longer QUEUED, nor to be replayed."""
        d = self.dispatcher
        d.carried[row.id] = row.company
        try:
            await self._carry(row, call)
        except Moved:
            pass
        except JournalError as error:
            d.stop(error)
            if row.id in d.rows:
                d.leave(d.rows[row.id], error)
            if not d.stopped:  # the store will be back
                d.tasks.start(d.restart(row.id))
        except asyncio.CancelledError:
            d.tasks.start(d.restart(row.id))
            raise
        finally:
            del d.carried[row.id]
        now = d.rows.get(row.id)
        if now is not None and now.state is State.LOST:
            d.arrive(now)
        elif now is not None and now.state is State.SENDING and not d.stopped:
            d.tasks.start(d.restart(row.id))  # an old read, which came after its end

    async def _carry(self, row: Row, call: Request | None) -> None:
        d, company = self.dispatcher, row.company
        first: float | None = None
        for attempt in count():
            if d.stopped or d.tasks.closing.is_set():
                await self._withdraw(row)
                return
            more = attempt + 1 < self.policy.retry.attempts
            began = self._steady_now()
            first = began if first is None else first
            row, result = await self._transmit(row, call, more=more)
            if not (more and self._may_go_again(row) and self.policy.waits_for(result)):
                return
            if d.stopped or not await d.tasks.sleep(self._pause(attempt, result), d.tasks.halted):
                continue
            if row.state is State.LOST:
                await d.search.look(company, {})
                row = d.rows.get(row.id, row)
                is_old = self._steady_now() - first > REPLAY_WINDOW
                if row.state is not State.LOST or is_old or d.wire.speaks_another:
                    return

    def _may_go_again(self, row: Row) -> bool:
        if row.state is State.LOST:
            return self.policy.replays and row.idempotency_key is not None
        return row.state is State.QUEUED

    def _pause(self, attempt: int, result: SendResult) -> float:
        floor = result.retry_after or 0.0
        jitter = lambda limit: self.chance() * limit  # noqa: E731
        return self.policy.retry.pause(attempt, jitter, throttled=True, floor=floor)

    def _steady_now(self) -> float:
        """Return the time on a clock that never goes back, and goes on while the machine sleeps.

        The loop's clock stands still then, and the service forgets idempotency keys meanwhile.
        """
        steady = loop_time()
        self._ahead = max(self._ahead, time.time() - steady)
        return steady + self._ahead

    async def _withdraw(self, row: Row) -> None:
        """Stop trying to send a row; if it is our caller's, no later process will send it."""
        d = self.dispatcher
        if row.state is not State.QUEUED:
            return
        if d.store.shared and not d.handles.of(row.id):
            d.leave(row, NotSent(f"not sent: {LEFT_BEHIND}"))
            return
        why: IntegrationError = NotSent(f"not sent: {LEFT_BEHIND}")
        if d.stopped and not d.tasks.closing.is_set():
            why = d.stopped
        try:
            await d.step(row, Event.ABANDONED, fresher=why)
        except JournalError as error:
            level = logging.DEBUG if d.stopped else logging.WARNING  # else all has been said once
            logger.log(level, "%s was not sent, but a later run will send it: %s", row, error)
            d.leave(row, why)

    async def _transmit(
        self, row: Row, call: Request | None, *, more: bool
    ) -> tuple[Row, SendResult]:
        """Send *row* once, and return what it is then, and what came of it."""
        d = self.dispatcher
        snapshot = await self._snapshot_before(row.company)
        replay = row.state is State.LOST
        if row.http_status == OFFLINE and row.idempotency_key is not None and not replay:
            # Under the same key the service would only repeat its 503.
            row = structs.replace(row, idempotency_key=str(uuid4()))
        try:
            call = (call or d.wire.to_request(row)).with_idempotency_key(row.idempotency_key)
        except (InvalidRecord, ConfigurationError) as error:
            row = await d.step(row, Event.REFUSED, fresher=error, error=str(error))
            return row, SendResult(Phase.NEVER_LEFT, error=error)
        began = loop_time()
        row, reply = await self._sent(row, call, snapshot)
        result = self._read(row, call, reply)
        row = await self._answered(row, result, replay=replay, more=more)
        self._look_at(row, result, began)
        return row, result

    async def _sent(self, row: Row, call: Request, snapshot: Snapshot | None) -> tuple[Row, Reply]:
        """Wait for a turn, put on record that the push is sent, and send it."""
        task, sent = this_task(), False
        self.in_line.add(task)
        d = self.dispatcher

        async def record() -> None:
            nonlocal row, sent
            self.in_line.discard(task)
            if d.stopped or d.tasks.closing.is_set():
                raise NotSent(LEFT_BEHIND)
            row = await d.step(
                row,
                Event.SENT,
                attempts=row.attempts + 1,
                idempotency_key=row.idempotency_key,
                snapshot=row.snapshot if row.state is State.LOST else snapshot,
                http_status=None,  # this and the error are of the answer before
                error=None,
            )
            sent = True

        try:
            answer = await d.wire.service.send_once(call, before=record)
            return row, answer  # noqa: TRY300 - goes with this room
        except asyncio.CancelledError:
            if task in self.in_line and d.tasks.closing.is_set():
                task.uncancel()
                return row, _unsent(LEFT_BEHIND)
            raise
        except (Moved, JournalError):
            raise
        except IntegrationError as error:
            left = sent and not isinstance(error, NotSent)
            return row, Failure(Phase.MAY_HAVE_LEFT if left else Phase.NEVER_LEFT, error)
        except Exception as error:  # of a middleware
            logger.exception("sending %s failed unexpectedly", row)
            if sent:
                lost = AnswerLost(f"the answer was lost: sending failed: {error!r}")
                return row, Failure(Phase.MAY_HAVE_LEFT, lost)
            return row, _unsent(f"sending the push broke off: {error!r}")
        finally:
            self.in_line.discard(task)

    def _read(self, row: Row, call: Request, reply: Reply) -> SendResult:
        wire = self.dispatcher.wire
        result = answers.read_reply(call, reply, unix_time=time.time(), exact=self.dispatcher.exact)
        if isinstance(reply, Response) and reply.ok:
            wire.hear(reply.body)
        if result.operation is not None and answers_another(
            result.operation, row, wire.dialect.path_names
        ):
            wrong = answers.without_key(call, result.status)
            return SendResult(Phase.ANSWERED, status=result.status, cause=ANOTHERS, error=wrong)
        return result

    async def _answered(self, row: Row, result: SendResult, *, replay: bool, more: bool) -> Row:
        """Record what a transmission proves."""
        d = self.dispatcher
        again = more and self.policy.waits_for(result)
        said: dict[str, Any] = {"http_status": result.status, "error": _error(result)}
        if row.state is not State.SENDING:  # it got no turn
            if again or replay:
                return row
            return await d.step(row, Event.REFUSED, fresher=result.error, **said)
        event = classify(
            result,
            key_is_known=self._is_known_key(row, result.key),
            replay=replay,
            refuses_with_503=self.policy.refuses_with_503,
        )
        if event is Event.REFUSED and again and _is_for_now(result):
            event = Event.LATER
        fresher = result.operation if event is Event.ANSWERED else result.error
        try:
            if event is Event.ANSWERED:
                said |= {"key": result.key, "evidence": Evidence.OWN_ANSWER}
            return await d.step(row, event, fresher=fresher, **said)
        except KeyClaimed:
            said = {"http_status": result.status, "error": ANOTHERS}
            return await d.step(row, Event.LOST, **said)
        except JournalError as error:
            self._leave_unrecorded(after(row, event, **said), fresher, error)
            raise

    def _leave_unrecorded(self, new: Row, fresher: Fresher, error: JournalError) -> None:
        """Tell the outcome of a push whose answer cannot be recorded; a later run finds it out."""
        d = self.dispatcher
        if not isinstance(fresher, PushOperation):
            d.leave(new, fresher or error)
            return
        for push in d.handles.of(new.id):
            push._acknowledged(fresher, None)
            if fresher.is_final:
                d.settle(push, outcomes.final(push.request, fresher, d.wire.dialect))
        d.leave(new, error)

    def _is_known_key(self, row: Row, key: str | None) -> bool:
        """Whether a key was there before we sent, or belongs to another row."""
        if key is None:
            return False
        listed = row.snapshot is not None and key in row.snapshot.keys
        return listed or self.dispatcher.keys.get(key, row.id) != row.id

    def _look_at(self, row: Row, result: SendResult, began: float) -> None:
        """Stop sending if the answer concerns every other push as well."""
        d, error = self.dispatcher, result.error
        if row.state in {State.OPEN, State.FINAL}:
            self._key_refusals.forget()
        elif row.state is State.LOST:
            lost = "the answer to %s was lost; the company's pushes are searched for it: %s"
            logger.warning(lost, row, outcomes.lost_by(row))
        elif row.state is State.REFUSED and error is not None:
            locked_out = isinstance(error, Unauthorized) and self._key_refusals.are_final(
                began, loop_time()
            )
            # A pause that is too long for one company ends a run, which would wait for it.
            is_too_long = bool(d.runs) and not self.policy.waits_for(result)
            if locked_out or outcomes.ends_all(error) or is_too_long:
                d.stop(error)
        if d.wire.speaks_another:
            d.stop(ConfigurationError(WRONG_DIALECT))

    # Snapshots

    async def _snapshot_before(self, company_id: str) -> Snapshot | None:
        """Return a snapshot for a push about to be sent, taking a new one if needed.

        It serves all pushes of the company that are sent after it; the younger it is, the fewer
        pushes of others become candidates.
        """
        now = loop_time()
        self._pushes += 1
        taken = self._snapshots.get(company_id)
        if (
            taken is None
            or now > taken.until
            or self._pushes > taken.until_push
            or taken.task.cancelled()
        ):
            taken = self._take_anew(company_id, now)
        if not taken.task.done():
            await asyncio.wait([taken.task])
        return None if taken.task.cancelled() else taken.task.result()

    def _take_anew(self, company_id: str, now: float) -> _Snapshot:
        self._snapshots.pop(company_id, None)
        # Outdated ones are dropped: those of a thousand companies take 25 MiB.
        while self._snapshots and next(iter(self._snapshots.values())).until < now:
            self._snapshots.popitem(last=False)
        taken = self._snapshots[company_id] = _Snapshot(
            until=now + SNAPSHOT_AGE,
            until_push=self._pushes + SNAPSHOT_PUSHES,
            task=self.dispatcher.tasks.start(self._take(company_id, now)),
        )
        return taken

    async def _take(self, company_id: str, began: float) -> Snapshot | None:
        listing = await self.dispatcher.wire.snapshot(company_id)
        snapshot = listing.snapshot(uuid4().hex, SNAPSHOT) if listing else None
        if snapshot is None and company_id in self._snapshots:
            self._snapshots[company_id].until = began + NO_SNAPSHOT_AGE
        return snapshot

    # Once more, as a new push

    async def resend(self, row: Row, pushes: Sequence[Push]) -> Row:
        """Record that *row* is sent again, for *pushes*, and send the new row, which is returned.

        Raises:
            JournalError: The decision was not recorded and does not count.
        """
        d = self.dispatcher
        decided, again = sent_again(row, *self._new_ids())
        made = d.store.decide(decided, [again])
        if made is not None:
            await d.committed(row.id, made)
        for push in pushes:
            d.handles.leave(push)
            d.handles.end_wait(push)  # it begins anew with the new row
            d.handles.join(push, again.id)
        d.arrive(decided)
        if d.companies.of(row.company).is_ours:
            d.arrive(again)
        else:
            d.companies.heed(again)
        return again

    async def resend_missing(self, row: Row) -> None:
        """Send a push once more that no list shows; it keeps its reference, and has one outcome."""
        d = self.dispatcher
        try:
            waiting = [push for push in d.handles.of(row.id) if push.outcome is None]
            again = await self.resend(row, waiting)
        except Stale:
            await d.restart(row.id)
        except JournalError as error:
            logger.warning(
                "%s is not sent again, because that could not be recorded: %s", row, error
            )
            d.tell(row)
        else:
            logger.warning(
                "the list of pushes does not show %s: it is sent again as intent %s", row, again.id
            )


def this_task() -> asyncio.Task[Any]:
    """Return the running task."""
    task = asyncio.current_task()
    if task is None:
        raise RuntimeError("a push is sent by a task")
    return task


def _error(result: SendResult) -> str | None:
    error = result.cause or (result.body or {}).get("error")
    return None if error is None else str(error)


def _is_for_now(result: SendResult) -> bool:
    never_left = result.phase is Phase.NEVER_LEFT
    return never_left or statuses.scope_of(result.status) is Scope.LOAD


def _unsent(why: str) -> Failure:
    return Failure(Phase.NEVER_LEFT, NotSent(f"not sent: {why}"))
