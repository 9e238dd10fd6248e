"""Deliveries: the push protocol, driven over the session and a journal.

The machines of `_sansio.protocol` and `_sansio.reconcile` decide; this carries out their
effects. Nothing here chooses: a transmission is reported as it went, and what that proves is
the rules' to say. A delivery is never cut short from within: whoever stops waiting for one
leaves it to end by itself, so that its outcome gets on record.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from datetime import datetime
from typing import Any, ClassVar, Final, Protocol, TypeVar

from attrs import Factory, define, evolve, frozen

from integration_sdk._poller import Send as SendRequest
from integration_sdk._sansio import protocol, reconcile, requests, responses, rows
from integration_sdk._sansio.codec import decode_json
from integration_sdk._sansio.effects import (
    Commit,
    Effect,
    Fetch,
    Ledger,
    List,
    Machine,
    Owners,
    Policy,
    Report,
    Send,
    Sleep,
)
from integration_sdk._sansio.evidence import Listing, Operation
from integration_sdk._sansio.intents import Answer, Intent, Phase, Snapshot, State
from integration_sdk._sansio.requests import Request
from integration_sdk._sansio.responses import Response
from integration_sdk._sansio.retry_after import retry_after
from integration_sdk.dialect import Dialect
from integration_sdk.errors import (
    ApiError,
    IntegrationError,
    JournalError,
    MalformedResponse,
    NotSent,
    TransportError,
)
from integration_sdk.models import PushOperation, PushStatus

T = TypeVar("T")

SNAPSHOT: Final = 200
"""Keys of a company that are remembered before its first push is sent."""
SNAPSHOT_AGE: Final = 600.0
PAGE: Final = 500
MOST_PAGES: Final = 200


class Journal(Protocol):
    """Where intents are kept; see `integration_sdk._journal.Journal`."""

    async def commit(self, rows: Sequence[Intent]) -> None:
        """Make all of these rows durable, or none."""

    async def rows(self, *, references: Collection[str] | None = None) -> list[Intent]:
        """Return the rows with one of these references."""

    async def unsettled(self) -> list[Intent]:
        """Return what `recover` takes over."""

    async def owners(self, keys: Collection[str]) -> Mapping[str, str]:
        """Return which of these push keys have an owner."""

    async def close(self) -> None:
        """Let go of it."""


@frozen
class _Known:
    """A push that was there before: its key is all that matters."""

    push_operation_key: str
    data_connection_id: ClassVar[str | None] = None
    data_type: ClassVar[str | None] = None
    status: ClassVar[str] = "Unknown"
    is_final: ClassVar[bool] = False
    data: ClassVar[Mapping[str, object] | None] = None


@define
class _Before:
    """What a company's list held before a batch, and when that was."""

    at: float
    taking: asyncio.Task[Snapshot | None]


@define(eq=False)
class Delivery:
    """Sends pushes, each at most once, and finds out what became of those in doubt.

    Args:
        send: Carries requests.
        dialect: The version of the service.
        journal: Where intents are kept.
        policy: How patient to be.
        chance: Returns a number from 0 to 1, for jitter.
        changed: Told of each intent of `doubtful` whose new state is on record.
    """

    send: SendRequest
    dialect: Dialect
    journal: Journal
    policy: Policy
    chance: Callable[[], float]
    changed: Callable[[Intent], None]
    ledger: Ledger = Factory(Ledger)
    doubtful: set[str] = Factory(set)
    closing: asyncio.Event = Factory(asyncio.Event)
    tasks: set[asyncio.Task[None]] = Factory(set)
    _calls: dict[str, Request] = Factory(dict)
    _said: dict[str, Response | IntegrationError] = Factory(dict)
    _before: dict[str, _Before] = Factory(dict)
    _reconciling: set[str] = Factory(set)
    _looked: dict[str, float] = Factory(dict)

    # What the coordinator asks for

    async def deliver(
        self, intent: Intent, call: Request
    ) -> tuple[Intent, PushOperation | None, IntegrationError | None]:
        """Send *intent* and return what came of it: the operation, or the error."""
        snapshot = await self._snapshot(intent.lane.company_id)
        self._calls[intent.id] = call
        try:
            machine = protocol.transmit(
                self.ledger, intent, snapshot, policy=self.policy, chance=self.chance
            )
            done = await self.drive(machine)
            said = self._said.pop(intent.id, None)
        finally:
            del self._calls[intent.id]
            self._said.pop(intent.id, None)
        if done.state is State.AMBIGUOUS:
            self.doubtful.add(done.id)
            self.reconcile(done.lane.company_id)
        if done.key is not None:
            return done, _operation(call, done, said), None
        return done, None, _error(call, done, said)

    async def settle(self, finals: Iterable[tuple[str, PushOperation]]) -> None:
        """Put the final states of many intents on record, in one commit."""
        machines = [
            protocol.settle(self.ledger, intent_id, operation) for intent_id, operation in finals
        ]
        waiting, together = _first_commits(machines)
        try:
            if together:
                await self.journal.commit(together)
        except JournalError as error:
            for machine in waiting:
                _finish(machine, error)
        else:
            for machine in waiting:
                _finish(machine)

    async def recover(self) -> reconcile.Recovered:
        """Take over what an earlier process left."""
        found = await self.drive(reconcile.recover(self.ledger, await self.journal.unsettled()))
        for intent in self.ledger.doubted():
            self.doubtful.add(intent.id)
        for company_id in found.companies:
            self.reconcile(company_id)
        return found

    async def recorded(self, reference: str) -> Intent | None:
        """Return the push that *reference* stands for."""
        found = await self.journal.rows(references=[reference])
        return next((row for row in found if not row.is_superseded), None)

    async def close(self) -> None:
        """Stop looking for what is in doubt, and let go of the journal."""
        self.closing.set()
        if self.tasks:
            await asyncio.wait(self.tasks)
        try:
            await self.drive(protocol.catch_up(self.ledger))
        finally:
            await self.journal.close()

    # Doubts

    def reconcile(self, company_id: str) -> None:
        """Find out what became of the company's pushes whose answers were lost."""
        if company_id not in self._reconciling and not self.closing.is_set():
            self._reconciling.add(company_id)
            self._start(self._reconcile(company_id))

    async def _reconcile(self, company_id: str) -> None:
        try:
            await self.drive(reconcile.reconcile(self.ledger, company_id, policy=self.policy))
        finally:
            self._reconciling.discard(company_id)
        for intent in self.ledger.doubted(company_id):
            if intent.id in self.doubtful:
                self.changed(intent)

    def look_again(self, company_id: str | None, now: float, *, every: float) -> None:
        """Look for what is still in doubt, at most once in so many seconds a company."""
        doubted = self.ledger.doubted(company_id) if self.doubtful else ()
        for company in {intent.lane.company_id for intent in doubted} - self._reconciling:
            if now - self._looked.get(company, -every) >= every and not self.closing.is_set():
                self._looked[company] = now
                machine = reconcile.look_again(self.ledger, company, policy=self.policy)
                self._start(self.drive(machine))

    def _start(self, work: Any) -> None:
        task: asyncio.Task[None] = asyncio.create_task(work, name="integration_sdk delivery")
        self.tasks.add(task)
        task.add_done_callback(self.tasks.discard)

    # Effects

    async def drive(self, machine: Machine[T]) -> T:
        """Carry out what *machine* asks for until it returns."""
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

    async def _perform(self, effect: Effect) -> Report:
        match effect:
            case Commit():
                await self._commit(effect.rows)
                return None
            case Send():
                return await self._transmit(effect.intent)
            case List():
                return await self._list(effect.company_id, effect.known)
            case Fetch():
                return await self._fetch(effect.company_id, effect.keys)
            case Owners():
                return tuple(await self.journal.owners(effect.keys))
            case Sleep():
                return await self._sleep(effect.seconds)

    async def _commit(self, changes: tuple[Intent, ...]) -> None:
        await self.journal.commit(changes)
        for row in changes:
            if row.id in self.doubtful:
                self.changed(row)

    async def _sleep(self, seconds: float) -> float | None:
        try:
            async with asyncio.timeout(seconds):
                await self.closing.wait()
        except TimeoutError:
            return asyncio.get_running_loop().time()
        return None

    async def _transmit(self, intent: Intent) -> Answer:
        began = asyncio.get_running_loop().time()
        call = self._calls[intent.id]
        try:
            answer = await self.send(call, once=True)
        except (TransportError, ApiError) as error:
            self._said[intent.id] = error
            return Answer(_phase(error), at=began, cause=str(error), retry_after=_seconds(error))
        self._said[intent.id] = answer
        return Answer(
            Phase.ANSWERED,
            at=began,
            status=answer.status,
            body=_object(answer.body),
            retry_after=retry_after(answer.headers.get("Retry-After"), answer.received_at),
        )

    async def _snapshot(self, company_id: str) -> Snapshot | None:
        """Return what was there before; asked for once for all that are sent meanwhile."""
        now = asyncio.get_running_loop().time()
        before = self._before.get(company_id)
        if before is None or now - before.at > SNAPSHOT_AGE:
            machine = protocol.take_snapshot(company_id, newest=SNAPSHOT)
            before = _Before(now, asyncio.create_task(self.drive(machine)))
            self._before[company_id] = before
        if before.taking.done():
            return before.taking.result()
        return await asyncio.shield(before.taking)

    async def _list(self, company_id: str, known: frozenset[str] | None) -> Listing | None:
        found: dict[str, Operation] = {}
        size = SNAPSHOT if known is None else PAGE
        for number in range(1, 2 if known is None else MOST_PAGES):
            page = await self._page(company_id, number, size)
            if page is None:
                return None
            _add(found, page, known)
            if not page.more:
                return Listing(tuple(found.values()), whole=True)
            if known is not None and known and known <= found.keys():
                break
        return Listing(tuple(found.values()), whole=False)

    async def _page(self, company_id: str, number: int, size: int) -> rows.Rows | None:
        request = requests.listing(
            self.dialect,
            "pushes.list",
            page=number,
            page_size=size,
            order_by=self.dialect.newest_first,
            companyId=company_id,
        )
        try:
            answer = await self.send(evolve(request, priority=requests.Priority.PUSH))
            return rows.read_rows(responses.check(request, answer).body)
        except (TransportError, ApiError):
            return None

    async def _fetch(self, company_id: str, keys: Collection[str]) -> list[PushOperation]:
        found = []
        for key in keys:
            names = {"companyId": company_id, "pushOperationKey": key}
            request = requests.to_route(self.dialect, "pushes.get", **names)
            try:
                found.append(responses.read_push(request, await self.send(request)))
            except (TransportError, ApiError):
                continue
        return found


def _add(found: dict[str, Operation], page: rows.Rows, known: frozenset[str] | None) -> None:
    """Add a page, decoding in full only what may be new."""
    fresh = {} if known is None else _in_full(page, known)
    for index, row in enumerate(page.rows):
        found.setdefault(row.key, fresh.get(index) or _Known(row.key))


def _in_full(page: rows.Rows, known: frozenset[str]) -> dict[int, PushOperation]:
    indexes = [index for index, row in enumerate(page.rows) if row.key not in known]
    operations = page.operations(indexes) if indexes else []
    return {index: one for index, one in zip(indexes, operations, strict=True) if one}


def _phase(error: IntegrationError) -> Phase:
    """An API error that is raised, not returned, closed the gate before anything left."""
    unsent = isinstance(error, NotSent) or (isinstance(error, ApiError) and not error.attempts)
    return Phase.NEVER_LEFT if unsent else Phase.MAY_HAVE_LEFT


def _seconds(error: IntegrationError) -> float | None:
    at: datetime | None = getattr(error, "retry_at", None)
    return None if at is None else max(0.0, (at - datetime.now(at.tzinfo)).total_seconds())


def _object(body: bytes) -> Mapping[str, object] | None:
    try:
        value = decode_json(body)
    except MalformedResponse:
        return None
    return value if isinstance(value, dict) else None


def _operation(call: Request, intent: Intent, said: object) -> PushOperation:
    """Return what the service answered; only what is on record where that cannot be read."""
    if isinstance(said, Response):
        try:
            return responses.read_push(call, said)
        except (MalformedResponse, ApiError):
            pass
    return recorded_operation(intent)


def recorded_operation(intent: Intent) -> PushOperation:
    """Return the operation of an intent with a key, as far as it is on record."""
    status = PushStatus(intent.status) if intent.status else PushStatus.PENDING
    return PushOperation(
        push_operation_key=str(intent.key),
        company_id=intent.lane.company_id,
        data_connection_id=intent.lane.connection_id,
        data_type=intent.lane.data_type,
        status=status,
        raw_status=str(status),
        timeout_in_minutes=intent.timeout_minutes,
    )


def _error(call: Request, intent: Intent, said: object) -> IntegrationError:
    if isinstance(said, Response):
        if not said.ok:
            return responses.read_error(call, said)
        return MalformedResponse(
            f"{call.method} {call.path} answered {said.status} without a push of its own",
            status=said.status,
        )
    if isinstance(said, IntegrationError):
        return said
    return NotSent(intent.error or f"{call.method} {call.path} was not sent")


def _first_commits(
    machines: Iterable[Machine[Any]],
) -> tuple[list[Machine[Any]], list[Intent]]:
    waiting: list[Machine[Any]] = []
    together: list[Intent] = []
    for machine in machines:
        effect = next(machine, None)
        if isinstance(effect, Commit):
            waiting.append(machine)
            together.extend(effect.rows)
    return waiting, together


def _finish(machine: Machine[Any], error: JournalError | None = None) -> None:
    try:
        if error is None:
            machine.send(None)
        else:
            machine.throw(error)
    except StopIteration:
        return
    raise RuntimeError("settling takes one commit")
