"""The world of a simulated history: processes, a service, stores, and weather.

Everything runs on one loop in virtual time. A `Process` owns the callbacks of its tasks: a dead one
takes no further step, a frozen one takes all of them when it thaws, as after SIGKILL, SIGSTOP and
SIGCONT. What a service or a store does is an event of the world, which goes on meanwhile.

`Line` is a process's way to the service, `Disk` its way to a store of its own, `SharedRows` to the
store that it shares with others. Every write, listing and transmission may be the last thing that
the process does, before or after it is done.
"""

from __future__ import annotations

import asyncio
import json
import sqlite3
from collections import Counter, defaultdict, deque
from collections.abc import (
    AsyncIterator,
    Awaitable,
    Callable,
    Collection,
    Coroutine,
    Mapping,
    Sequence,
)
from contextlib import suppress
from contextvars import Context, ContextVar, copy_context
from datetime import UTC, datetime, timedelta
from email.utils import format_datetime
from functools import partial
from pathlib import Path
from random import Random
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, NamedTuple, TypeVar

from attrs import Factory, define, field, frozen

from integration_sdk._http.requests import Phase, Request
from integration_sdk._http.responses import Failure, Reply, Response
from integration_sdk._push.search import BUDGET
from integration_sdk._store.memory import MemoryRows
from integration_sdk._store.row import Fenced, Lane, Row, State
from integration_sdk._store.rows import Commit
from integration_sdk._store.sqlite import SqliteFile, SqliteRows
from integration_sdk.dialect import Dialect
from integration_sdk.errors import (
    AnswerLost,
    JournalError,
    NotSent,
    StoreUnavailable,
    TransportError,
)
from integration_sdk.testing import VirtualTimeLoop

if TYPE_CHECKING:
    from tests.proofs.simulator import History

T = TypeVar("T")
BEGAN = datetime(2024, 1, 31, tzinfo=UTC)
KEPT_FOR = 90 * 60.0
"""Seconds for which an idempotent service keeps its answers."""
LEASE = 10.0
"""Seconds after its last heartbeat for which a process keeps the leases of the shared store."""
PATIENCE = 12.0
"""Seconds for which a process waits for a store that it cannot reach."""


class Crash(BaseException):
    """The process is gone."""


# Processes


@define(eq=False)
class Process:
    """A process that can be killed, frozen, thawed, and cut off from the shared store.

    deferred: Callbacks that fell due while it was frozen.
    cut_off: Until when it cannot reach the shared store.
    quiet_since: When its last heartbeat was, if it sends none at the moment.
    """

    name: str
    history: History
    life: int
    dead: bool = False
    frozen: bool = False
    deferred: list[tuple[Any, ...]] = Factory(list)
    tasks: dict[asyncio.Task[Any], None] = Factory(dict)
    cut_off: float = 0.0
    quiet_since: float = 0.0

    def run(
        self,
        handle: list[asyncio.Handle],
        callback: Callable[..., object],
        args: tuple[Any, ...],
        context: Context,
    ) -> None:
        """Take one step of the process, unless it is dead, or later if it is frozen."""
        if self.dead:
            return
        if self.frozen:
            self.deferred.append((handle[0], callback, args, context))
            return
        with suppress(Crash):
            callback(*args)

    def freeze(self) -> None:
        self.frozen, self.quiet_since = True, self.history.now()
        self.history.note(self.name, "freezes")

    def thaw(self) -> None:
        self.frozen = False
        self.history.note(self.name, "thaws")
        deferred, self.deferred = self.deferred, []
        for handle, callback, args, context in deferred:
            if not (handle.cancelled() or self.dead):
                context.run(self.run, [handle], callback, args, context)

    def die(self) -> None:
        """Stop in the midst of everything."""
        if not self.dead:
            if not self.frozen:
                self.quiet_since = self.history.now()
            self.dead = True
            self.history.note(self.name, "dies")
            self.history.died(self)

    def beats(self, now: float) -> bool:
        """Whether the shared store has had a heartbeat of it lately; they need no events."""
        if self.dead or self.frozen:
            return now < self.quiet_since + LEASE
        if self.cut_off > now:
            return now < self.quiet_since + LEASE
        return True

    def may_crash(self) -> None:
        """Perhaps die here and now."""
        if self.dead:
            raise Crash
        if self.crashes_now():
            self.die()
            raise Crash

    def crashes_now(self) -> bool:
        history = self.history
        chance = history.weather.crash
        return bool(chance) and history.crashes < 8 and history.dice.random() < chance


WORLD = Process.__new__(Process)
OWNER: ContextVar[Process | None] = ContextVar("OWNER", default=None)


class Loop(VirtualTimeLoop):
    """Virtual time, in which each callback belongs to a process or to the world."""

    def _owner(self, context: Context | None) -> Process | None:
        own = OWNER.get() if context is None else context.get(OWNER)
        if own is None:
            own = OWNER.get()
            if own is not None and context is not None:
                context.run(OWNER.set, own)
        return None if own is WORLD else own

    def call_soon(  # type: ignore[override]
        self, callback: Any, *args: Any, context: Context | None = None
    ) -> asyncio.Handle:
        own = self._owner(context)
        if own is None:
            return super().call_soon(callback, *args, context=context)
        context = copy_context() if context is None else context
        handle: list[asyncio.Handle] = []
        made = super().call_soon(own.run, handle, callback, args, context, context=context)
        handle.append(made)
        return made

    def call_at(  # type: ignore[override]
        self, when: float, callback: Any, *args: Any, context: Context | None = None
    ) -> asyncio.TimerHandle:
        own = self._owner(context)
        if own is None:
            return super().call_at(when, callback, *args, context=context)
        context = copy_context() if context is None else context
        handle: list[asyncio.Handle] = []
        made = super().call_at(when, own.run, handle, callback, args, context, context=context)
        handle.append(made)
        return made

    def create_task(self, coro: Any, **options: Any) -> Any:
        task: asyncio.Task[Any] = super().create_task(coro, **options)
        own = OWNER.get()
        if own is not None and own is not WORLD:
            own.tasks[task] = None
        return task


def done(awaitable: Awaitable[T] | Coroutine[Any, Any, T]) -> T:
    """Run a coroutine that never waits."""
    try:
        awaitable.__await__().__next__()
    except StopIteration as stop:
        value: T = stop.value
        return value
    raise RuntimeError("the memory store waited")


# Weather


@frozen(kw_only=True)
class Weather:
    """What one history is up against; chances are per effect.

    omits, repeats: Chance of each row to be left out of a listing, or to be in it twice.
    shuffles: Chance that a listing is in no order.
    page: Pushes on a page of the list at most; a snapshot is one page.
    owners: Processes at a time. With two or more they share a store.
    async_store: Whether a store of one process takes its time, as a file does.
    fileless: The caller wants no journal: one process, of which nothing is left after it.
    sqlite: The store of one process is a SQLite file, not memory that outlives it.
    cancels: Chance that a stranger cancels a task, every few seconds.
    freezes, cuts: Chance of a process to be frozen, or cut off from the store, every few seconds.
    unheard: Chance that a notification of the shared store is lost.
    resends: The caller lets us send again what no list shows.
    polls: Whether the package's poller polls; else a stub of its interface that costs little.
    trip: The longest trip to the shared store, in seconds.
    undated: The service tells no times of its answers.
    fate: The one trouble that there is.
    late_old: Strangers' pushes of just before the first snapshot, which lists show late.
    """

    lag: float = 0.0
    echo: str = "full"
    trouble: float = 0.5
    strangers: int = 0
    steps: bool = False
    crash: float = 0.0
    disk: float = 0.0
    unlisted: float = 0.0
    exclusive: bool = False
    idempotent: bool = False
    natural: bool = True
    twins: float = 0.3
    page: int | None = None
    fileless: bool = False
    sqlite: bool = False
    cancels: float = 0.0
    omits: float = 0.0
    repeats: float = 0.0
    shuffles: float = 0.0
    owners: int = 1
    async_store: bool = False
    freezes: float = 0.0
    cuts: float = 0.0
    unheard: float = 0.0
    resends: bool = False
    polls: bool = False
    trip: float = 0.04
    undated: bool = False
    fate: str | None = None
    late_old: int = 0
    patience: float = 15.0

    @classmethod
    def roll(cls, dice: Random, owners: int = 1) -> Weather:
        steps = dice.random() < 0.3
        shared = owners > 1
        odd: dict[str, Any] = dice.choice(
            [*[{}] * 7, {"omits": 0.1}, {"repeats": 0.05}, {"shuffles": 0.3}]
        )
        return cls(
            **odd,
            owners=owners,
            lag=dice.choice([0.0, 0.0, 5.0, 40.0]),
            echo=dice.choice(["full", "full", "single", "none", "rewritten"]),
            trouble=dice.choice([0.2, 0.5, 0.9]),
            strangers=dice.choice([0, 2, 5]),
            steps=steps and "omits" not in odd,  # see `evidence`: what remains
            crash=dice.choice([0.0, 0.03, 0.1]),
            disk=dice.choice([0.0, 0.0, 0.02]),
            unlisted=dice.choice([0.0, 0.0, 0.3]),
            exclusive=dice.random() < 0.4,
            idempotent=dice.random() < 0.3,
            natural=dice.random() < 0.5,
            page=None if steps else dice.choice([None, None, 2]),
            fileless=not shared and dice.random() < 0.15,
            cancels=dice.choice([0.0, 0.0, 0.3]),
            async_store=dice.random() < 0.5,
            freezes=dice.choice([0.0, 0.2, 0.5]) if shared else 0.0,
            cuts=dice.choice([0.0, 0.0, 0.3]) if shared else 0.0,
            unheard=dice.choice([0.0, 0.3, 1.0]),
            resends=dice.random() < 0.2,
            polls=dice.random() < 0.1,
            trip=dice.choice([0.04, 0.6, 6.0]),
            undated=dice.random() < 0.2 and "omits" not in odd,  # likewise
            patience=dice.choice([5.0, 15.0, 30.0]),
        )

    @property
    def fair(self) -> dict[str, Any]:
        """What changes when the weather clears: nothing goes wrong any more."""
        names = [
            "trouble",
            "crash",
            "disk",
            "unlisted",
            "lag",
            "cancels",
            "omits",
            "repeats",
            "shuffles",
            "freezes",
            "cuts",
        ]
        return dict.fromkeys(names, 0.0)


# The service


@define(eq=False)
class Push:
    """A push at the service. *of*: the row whose it truly is; None for a stranger's."""

    key: str
    lane: Lane
    of: str | None
    record: dict[str, Any]
    order: float
    visible_at: float
    final_at: float
    ends: str
    sent_at: float = 0.0


class Fate(NamedTuple):
    """What becomes of one transmission: does it arrive, and what is heard of it."""

    name: str
    arrives: float
    answer: Callable[[Service, Push | None, Sent], Reply]


class Sent(NamedTuple):
    """One transmission, as the service receives it."""

    row: Row
    request: Request
    at: float

    @property
    def idempotency_key(self) -> str | None:
        return next(iter(self.request.headers.values()), None)


ERROR_BODY = json.dumps({"correlationId": "c", "statusCode": 0, "error": "refused"}).encode()


def _answer(service: Service, status: int, body: bytes = b"", **headers: str) -> Response:
    return Response(
        status=status, body=body, headers=service.headers(**headers), received_at=service.now()
    )


def _lost(service: Service, push: Push | None, sent: Sent) -> Reply:
    return Failure(Phase.MAY_HAVE_LEFT, AnswerLost("reset"))


def _unsent(service: Service, push: Push | None, sent: Sent) -> Reply:
    return Failure(Phase.NEVER_LEFT, NotSent("refused"))


def _acked(service: Service, push: Push | None, sent: Sent) -> Reply:
    assert push is not None
    body = json.dumps(service.shown(push, with_data=True)).encode()
    return _answer(service, service.dice.choice([200, 202]), body)


def _stale(service: Service, push: Push | None, sent: Sent) -> Reply:
    """A cache answers with a key we have seen: listed before we sent, or on record."""
    snapshot = sent.row.snapshot.keys if sent.row.snapshot else frozenset[str]()
    others = {*service.history.journal.keys, *snapshot} - {push.key if push else ""}
    shown = {
        "pushOperationKey": service.dice.choice(sorted(others)) if others else "",
        "companyId": sent.row.lane.company_id,
        service.connection_name: sent.row.lane.connection_id,
        "dataType": sent.row.lane.data_type,
        "status": "Pending",
    }
    return _answer(service, 200, json.dumps(shown).encode())


def _status(
    *statuses: int, body: bytes = b"", headers: Mapping[str, str] = MappingProxyType({})
) -> Callable[[Service, Push | None, Sent], Reply]:
    return lambda service, push, sent: _answer(
        service, service.dice.choice(statuses), body, **headers
    )


TROUBLES = (
    Fate("never left", 0.0, _unsent),
    Fate("throttled", 0.0, _status(429, 503, body=ERROR_BODY)),
    Fate("refused", 0.0, _status(400, 401, 403, 404, 409, 422, body=ERROR_BODY)),
    Fate("proxy's 4xx", 0.5, _status(400, 404, 413, 429, 503)),
    Fate("500", 0.5, _status(500, body=ERROR_BODY)),
    Fate("gateway", 0.5, _status(502, 504)),
    Fate("maintenance", 0.5, _status(503, headers={"Retry-After": "60"})),
    Fate("408", 0.5, _status(408, body=ERROR_BODY)),
    Fate("redirect", 0.5, _status(302, 307)),
    Fate("lost answer", 1.0, _lost),
    Fate("lost request", 0.0, _lost),
    Fate("late request", 1.0, _lost),
    Fate("truncated", 1.0, _status(200)),
    Fate("keyless", 0.5, _status(200, body=b"{}")),
    Fate("another's key", 0.5, _stale),
)
FAIR = Fate("acked", 1.0, _acked)


@define(eq=False)
class Service:
    """The truth: which pushes exist, and whose they are."""

    history: History
    dice: Random
    connection_name: str
    clock: float = 0.0
    pushes: list[Push] = Factory(list)
    by_key: dict[str, Push] = Factory(dict)
    kept: dict[str, tuple[float, Reply | None, Push | None]] = Factory(dict)
    fates: Counter[str] = Factory(Counter)

    def now(self) -> float:
        return self.history.now()

    @property
    def weather(self) -> Weather:
        return self.history.weather

    def headers(self, **headers: str) -> dict[str, str]:
        if self.weather.undated:
            return headers
        told = BEGAN + timedelta(seconds=self.now() + self.clock)
        return {"Date": format_datetime(told, usegmt=True), **headers}

    def create(self, lane: Lane, record: dict[str, Any], of: str | None, at: float = 0.0) -> Push:
        if self.weather.steps and self.dice.random() < 0.3:
            self.clock += self.dice.choice([-7200.0, -60.0, 3600.0])
        now = self.now()
        push = Push(
            f"key-{len(self.pushes)}",
            lane,
            of,
            record,
            order=now + self.clock,
            visible_at=now + self.dice.random() * self.weather.lag,
            final_at=now + self.dice.choice([0.0, 5.0, 40.0, 150.0]),
            ends=self.dice.choice([*["Success"] * 6, "Failed", "Failed", "TimedOut"]),
            sent_at=at,
        )
        self.history.note("the service", push.key, lane, of, push.ends, round(push.final_at))
        self.pushes.append(push)
        self.by_key[push.key] = push
        return push

    def receive(self, sent: Sent, answer: Callable[[Reply], None]) -> None:
        """Let one transmission have its fate."""
        dice, at = self.dice, self.history.at
        troubles = [one for one in TROUBLES if self.weather.fate in {None, one.name}]
        fate = dice.choice(troubles) if dice.random() < self.weather.trouble else FAIR
        self.fates[fate.name] += 1
        if fate.name == "late request":
            at(10.0, lambda: answer(_lost(self, None, sent)))
            at(dice.choice([11.0, 60.0, 200.0]), lambda: self._arrive(sent, None))
        elif dice.random() < fate.arrives:
            at(dice.random() * 5, lambda: answer(self._arrive(sent, fate)))
        else:
            at(dice.random() * 5, lambda: answer(self._keep(sent, fate)))

    def _keep(self, sent: Sent, fate: Fate) -> Reply:
        """An idempotent service keeps what it said itself, 429 excepted."""
        said = fate.answer(self, None, sent)
        key = sent.idempotency_key
        if key and fate.name == "refused":
            kept = self._kept(sent)
            if kept is not None:
                return kept[1] or said
            self.kept[key] = (self.now(), said, None)
        return said

    def _kept(self, sent: Sent) -> tuple[float, Reply | None, Push | None] | None:
        kept = self.kept.get(sent.idempotency_key or "")
        return kept if kept and self.now() - kept[0] < KEPT_FOR else None

    def _arrive(self, sent: Sent, fate: Fate | None) -> Reply:
        kept = self._kept(sent)
        if kept is not None:
            _, said, push = kept
            if fate is not None and fate is not FAIR and fate.name != "500":  # spoilt on its way
                return fate.answer(self, push, sent)
            conflict = _answer(self, 409, ERROR_BODY)
            return said or (_acked(self, push, sent) if push else conflict)
        record = json.loads(sent.request.body or b"{}")
        push = self.create(sent.row.lane, record, sent.row.id, sent.at)
        answer = (fate or FAIR).answer(self, push, sent)
        if sent.idempotency_key:
            own = answer if fate is not None and fate.name == "500" else None
            self.kept[sent.idempotency_key] = (self.now(), own, push)
        return answer

    # What it shows

    def shown(self, push: Push, *, with_data: bool) -> dict[str, Any]:
        final = self.now() >= push.final_at
        data: dict[str, Any] | None = {}
        echo = self.weather.echo
        if final and push.ends == "Success" and with_data and echo != "none":
            changed = {"amount": 0} if echo == "rewritten" else {}
            data = {**push.record, **changed, "id": push.key}
        shown = {
            "pushOperationKey": push.key,
            "companyId": push.lane.company_id,
            self.connection_name: push.lane.connection_id,
            "dataType": push.lane.data_type,
            "status": push.ends if final else "Pending",
            "requestedOnUtc": (BEGAN + timedelta(seconds=push.order)).isoformat()[:-6] + "Z",
        }
        return {**shown, "data": data} if data else shown

    def read(self, request: Request) -> Response:
        """Answer a request for a single push, or for a page of the list."""
        if request.operation != "pushes.list":
            push = self.by_key.get(request.path.rsplit("/", 1)[-1])
            if push is None:
                return _answer(self, 404, ERROR_BODY)
            return _answer(self, 200, json.dumps(self.shown(push, with_data=True)).encode())
        if self.dice.random() < self.weather.unlisted:
            return _answer(self, self.dice.choice([500, 503]), ERROR_BODY)
        params = dict(request.params)
        now, company = self.now(), str(request.company_id)
        seen = [one for one in self.pushes if one.visible_at <= now]
        seen = [one for one in seen if one.lane.company_id == company]
        rows = self._disorder(sorted(seen, key=lambda one: -one.order))
        size = min(int(params["pageSize"]), self.weather.page or 5000)
        first = (int(params["page"]) - 1) * size
        with_data = self.weather.echo in {"full", "rewritten"}
        shown = [self.shown(one, with_data=with_data) for one in rows[first : first + size]]
        links = {"next": {"href": "/next"}} if first + size < len(rows) else {}
        body = {"results": shown, "pageSize": size, "_links": links}
        return _answer(self, 200, json.dumps(body).encode())

    def _disorder(self, shown: list[Push]) -> list[Push]:
        """The list as it is not documented: rows left out, twice, or anywhere."""
        weather, dice = self.weather, self.dice
        if weather.omits:
            shown = [one for one in shown if dice.random() >= weather.omits]
        if weather.repeats:
            for one in [one for one in shown if dice.random() < weather.repeats]:
                shown.insert(dice.randrange(len(shown) + 1), one)
        if weather.shuffles and dice.random() < weather.shuffles:
            dice.shuffle(shown)
        return shown


@define(eq=False)
class Line:
    """A process's way to the service."""

    process: Process
    service: Service
    searches: dict[str, deque[float]] = Factory(lambda: defaultdict(lambda: deque(maxlen=12)))

    async def send_once(
        self, request: Request, *, before: Callable[[], Awaitable[None]] | None = None
    ) -> Response:
        """Wait for a turn: the gate may be shut for long, or for longer than a call waits."""
        self.process.may_crash()
        dice = self.service.dice
        wait = dice.choice([0.0, 0.0, 0.0, 5.0, 60.0])
        if wait:
            await asyncio.sleep(wait)
            if dice.random() < self.service.weather.trouble / 4:
                raise NotSent("no turn")
        if before is not None:
            await before()
        self.process.may_crash()
        sent = self.process.history.journal.leaves(request)
        answer: asyncio.Future[Reply] = asyncio.get_running_loop().create_future()
        self.service.receive(sent, lambda reply: self.deliver(answer, reply))
        reply = await answer
        if isinstance(reply, Failure):
            raise reply.error
        return reply

    async def send(self, request: Request) -> Response:
        self.process.may_crash()
        self._count(request)
        answer: asyncio.Future[Response] = asyncio.get_running_loop().create_future()
        dice = self.service.dice

        def reply() -> None:
            if dice.random() < self.service.weather.unlisted / 3:
                self.deliver(answer, TransportError("reset"))
            else:
                self.deliver(answer, self.service.read(request))

        self.service.history.at(dice.random() * 3, reply)
        return await answer

    def deliver(self, future: asyncio.Future[Any], result: Any) -> None:
        """Let the process have *result*, unless it dies of it."""
        if self.process.dead or future.done():
            return
        if self.process.crashes_now() and not self.process.frozen:
            self.process.die()
        elif isinstance(result, BaseException):
            future.set_exception(result)
        else:
            future.set_result(result)

    def _count(self, request: Request) -> None:
        """Hold listings in search of lost pushes against their budget."""
        params = dict(request.params)
        if request.operation != "pushes.list" or params["page"] != "1":
            return
        if request.priority.name != "PUSH" or params["pageSize"] == "200":  # a poll, a snapshot
            return
        history, company = self.service.history, str(request.company_id)
        listed, now = self.searches[company], self.service.now()
        history.listings += 1
        for most, span in BUDGET:
            if len(listed) >= most and now < listed[-most] + span - 1e-6:
                history.violations.append(
                    f"budget: listing {most + 1} of {company} within {now - listed[-most]:.1f} s"
                )
        listed.append(now)


# Stores


@define(eq=False)
class Journal:
    """What was written to any store, and what left after it: the judge's own record.

    sending: The SENDING row that a task has just written, and has not used yet.
    """

    history: History
    rows: dict[str, Row] = Factory(dict)
    keys: dict[str, str] = Factory(dict)
    finals: dict[str, Row] = Factory(dict)
    sent: list[tuple[str, int, float]] = Factory(list)
    allowed: Counter[str] = Factory(Counter)
    sending: dict[Any, Row] = Factory(dict)
    unsent: dict[tuple[str, int], Row] = Factory(dict)

    def written(self, rows: Sequence[Row], added: Sequence[Row], process: Process) -> None:
        wrong = self.history.violations
        for row in rows:
            self.history.note(process.name, process.life, row.version, row.state, row)
            before = self.rows.get(row.id)
            if before is None or before.version + 1 != row.version:
                wrong.append(f"written over: {row.id} {before and before.version} {row.version}")
            self._look_at_decision(before, row)
            final = self.finals.get(row.id)
            if final and (final.key, final.status) != (row.key, row.status):
                wrong.append(f"final changed: {row.id}")
            if row.key is not None and self.keys.setdefault(row.key, row.id) != row.id:
                wrong.append(f"wrong link: {row.key} belongs to two rows")
            if row.state is State.SENDING:
                self.unsent[row.id, row.attempts] = row
            if row.state is State.FINAL:
                self.finals[row.id] = row
            self.rows[row.id] = row
        for row in added:
            if row.id not in self.rows:
                self.history.note(process.name, process.life, "adds", row.reference, row)
            self.rows.setdefault(row.id, row)

    def _look_at_decision(self, before: Row | None, row: Row) -> None:
        if before is None or row.decision == before.decision or row.decision != "resend":
            return
        if before.state is State.DOUBT:
            if not (self.history.weather.resends or row.id in self.history.asked_about):
                self.history.violations.append(f"sent again unasked: {row.id}")
            self.allowed[row.reference or row.id] += 1
        elif before.state is State.FINAL:
            self.allowed[row.reference or row.id] += 1
            if before.status == "Success":
                self.history.violations.append(f"sent again although it is there: {row.id}")

    def leaves(self, request: Request) -> Sent:
        """Note that a task sends what it has put on record."""
        row = self.sending.pop(asyncio.current_task(), None)
        if row is None or self.unsent.pop((row.id, row.attempts), None) is None:
            self.history.violations.append(f"sent without a row of its own: {row}")
            lane = Lane._make(request.path.strip("/").split("/")[1::2][:3])
            row = row or Row(id=f"unknown-{len(self.sent)}", lane=lane)
        now = self.history.now()
        self.sent.append((row.id, row.attempts, now))
        self.history.note("sent", row.id, row.attempts)
        return Sent(row, request, now)


def note_sending(journal: Journal, rows: Sequence[Row]) -> None:
    """Remember which task writes a SENDING row, since a request does not tell whose it is."""
    for row in rows:
        if row.state is State.SENDING:
            journal.sending[asyncio.current_task()] = row


@define(eq=False)
class AtOnce:
    """A SQLite file without its thread: what is asked is done at once."""

    path: Path
    scope: str = "default"
    _file: SqliteFile | None = None

    @property
    def file(self) -> SqliteFile:
        if self._file is None:
            self._file = SqliteFile(self.path, self.scope)
        return self._file

    def close(self) -> None:
        if self._file is not None:
            self._file.close()
            self._file = None

    def commit(self, commit: Commit) -> Any:
        return told(self.file.commit([commit])[0])

    async def do(self, work: Callable[[sqlite3.Connection], T]) -> T:
        answer: T = told(self.file.do(work))
        return answer

    async def ask(self, query: str, *values: object) -> list[Any]:
        return await self.do(lambda db: db.execute(query, values).fetchall())


def told(answer: Any) -> Any:
    if isinstance(answer, Exception):
        raise answer
    return answer


@define(eq=False)
class FileRows(SqliteRows):
    """The rows of a file that each process opens anew."""

    async def release(self) -> None:
        await super().release()
        self._file.close()  # type: ignore[unused-coroutine]


@define(eq=False)
class Disk:
    """The store of one process at a time: a file, or memory that survives it as a file does.

    lies: Whether a refused write may be on disk all the same; nothing more is taken after that.
    """

    process: Process
    inner: MemoryRows | SqliteRows
    durable: bool = field(init=False)
    shared: bool = field(init=False, default=False)
    is_broken: bool = False

    def __attrs_post_init__(self) -> None:
        self.durable = self.inner.durable

    def _write(self, rows: Sequence[Row], add: Sequence[Row], do: Callable[[], T]) -> Any:
        process, history = self.process, self.process.history
        process.may_crash()
        note_sending(history.journal, rows)
        if not history.weather.async_store or history.weather.fileless:
            result = self._do(rows, add, do)
            process.may_crash()
            return result
        future: asyncio.Future[T] = asyncio.get_running_loop().create_future()
        history.at(0.01, lambda: self._commit(future, rows, add, do))
        return future

    def _commit(
        self,
        future: asyncio.Future[T],
        rows: Sequence[Row],
        add: Sequence[Row],
        do: Callable[[], T],
    ) -> None:
        if self.process.dead:
            return
        try:
            result = self._do(rows, add, do)
        except JournalError as error:
            if not future.done():
                future.set_exception(error)
            return
        if self.process.crashes_now():
            self.process.die()
        elif not future.done():
            future.set_result(result)

    def _do(self, rows: Sequence[Row], add: Sequence[Row], do: Callable[[], T]) -> T:
        history = self.process.history
        refused = self.is_broken or history.dice.random() < history.weather.disk
        if refused and (self.is_broken or history.dice.random() > 0.2):
            raise JournalError("disk full")
        result = do()
        added = result if isinstance(result, list) else add
        history.journal.written(rows, added, self.process)
        if refused:
            self.is_broken = True
            raise JournalError("fsync failed")
        return result

    def add(self, rows: Sequence[Row]) -> Any:
        return self._write((), rows, lambda: self.inner.add(rows))

    def put(self, rows: Sequence[Row], add: Sequence[Row] = ()) -> Any:
        return self._write(rows, add, lambda: self.inner.put(rows, add))

    def decide(self, row: Row, add: Sequence[Row] = ()) -> Any:
        return self.put([row], add)

    async def _read(self, read: Awaitable[T]) -> T:
        self.process.may_crash()
        found = done(read)
        if self.process.history.weather.async_store:
            await asyncio.sleep(0.005)
        if self.process.history.dice.random() < self.process.history.weather.disk / 4:
            raise JournalError("unreadable")
        return found

    async def take(self, company: str) -> list[Row] | None:
        return await self._read(self.inner.take(company))

    async def rows(self, **conditions: Any) -> list[Row]:
        return await self._read(self.inner.rows(**conditions))

    async def owners(self, keys: Collection[str]) -> set[str]:
        return await self._read(self.inner.owners(keys))

    async def companies(self) -> list[str]:
        return await self._read(self.inner.companies())

    def news(self) -> AsyncIterator[str]:
        return self.inner.news()

    async def release(self) -> None:
        self.process.may_crash()
        await self.inner.release()


def _trip(history: History) -> float:
    """Return the seconds that a statement or its answer is on its way."""
    return history.dice.choice([0.005, 0.01, 0.02, 0.04, history.weather.trip])


class Lease(NamedTuple):
    """Who acts for a company. Its token only grows."""

    token: int
    holder: Process | None


@define(eq=False)
class Server:
    """The store that processes share: rows, leases, and who has not heard of what."""

    history: History
    inner: MemoryRows = Factory(lambda: MemoryRows(durable=True))
    leases: dict[str, Lease] = Factory(dict)
    writers: dict[str, Process] = Factory(dict)
    clients: dict[Process, SharedRows] = Factory(dict)

    def check(
        self, companies: Collection[str], client: SharedRows, tokens: Mapping[str, int]
    ) -> None:
        """Refuse a write under a token that is not the latest."""
        for company in companies:
            lease = self.leases.get(company)
            if lease is None or lease != Lease(tokens.get(company, -1), client.process):
                if client.tokens.get(company) == tokens.get(company):
                    client.tokens.pop(company, None)
                    client.asked[company] = None
                raise Fenced(f"company {company} is another's")

    def watch(self, companies: Collection[str], client: SharedRows) -> None:
        """Hold the store itself against its promise, whatever `check` has said."""
        for company in companies:
            if self.leases.get(company, Lease(0, None)).holder is not client.process:
                self.history.violations.append(f"fenced: {client.process.name} wrote {company}")

    def claim(self, company: str, client: SharedRows) -> bool | None:
        """Take the lease; None if it was the client's already, False if a live other has it."""
        before = self.leases.get(company, Lease(0, None))
        if company in client.tokens:
            return None
        if before.holder is not client.process and not self.is_free(company):
            client.asked[company] = None
            return False
        self.leases[company] = Lease(before.token + 1, client.process)
        client.tokens[company] = before.token + 1
        return True

    def changed(self, companies: Collection[str], by: SharedRows, *, notify: bool) -> None:
        """Let the others hear of a change, by notification or by their next slow poll."""
        dice = self.history.dice
        for process, client in self.clients.items():
            if client is by or process.dead:
                continue
            for company in companies:
                if notify and dice.random() >= self.history.weather.unheard:
                    self.history.at(dice.random() * 0.1, partial(client.told, company))

    def is_free(self, company: str) -> bool:
        holder = self.leases.get(company, Lease(0, None)).holder
        return holder is None or not holder.beats(self.history.now())


_TOLD = frozenset({State.DOUBT, State.CLOSED, State.REFUSED, State.FINAL})


@define(eq=False)
class SharedRows:
    """A process's way to the shared store. What has reached the server goes on without us."""

    process: Process
    server: Server
    durable: bool = field(init=False, default=True)
    shared: bool = field(init=False, default=True)
    tokens: dict[str, int] = Factory(dict)
    asked: dict[str, None] = Factory(dict)
    _told: deque[str] = Factory(deque)
    _waiter: asyncio.Future[None] | None = None

    def __attrs_post_init__(self) -> None:
        self.server.clients[self.process] = self

    def _call(self, do: Callable[[], T]) -> asyncio.Future[T]:
        """Let the server do something, and return its answer."""
        process, history = self.process, self.process.history
        process.may_crash()
        future: asyncio.Future[T] = asyncio.get_running_loop().create_future()
        now, dice = history.now(), history.dice
        trip = _trip(history)
        if process.cut_off <= now:
            history.at(trip, lambda: self._perform(future, do))
        elif dice.random() < 0.3:  # the connection broke with the answer on its way
            history.at(trip, lambda: self._perform(future, do, answered_at=process.cut_off))
        elif process.cut_off <= now + PATIENCE:
            history.at(process.cut_off - now, lambda: self._perform(future, do))
        else:
            history.at(PATIENCE, lambda: self._fail(future))
        return future

    def _perform(
        self, future: asyncio.Future[T], do: Callable[[], T], answered_at: float = 0.0
    ) -> None:
        result: Any
        try:
            result = do()
        except JournalError as error:
            result = error
        delay = answered_at - self.process.history.now()
        if delay > PATIENCE:
            self.process.history.at(PATIENCE, lambda: self._fail(future))
        else:
            delay = max(_trip(self.process.history), delay)
            self.process.history.at(delay, lambda: self._deliver(future, result))

    def _deliver(self, future: asyncio.Future[Any], result: Any) -> None:
        if self.process.dead or future.done():
            return
        if self.process.crashes_now() and not self.process.frozen:
            self.process.die()
        elif isinstance(result, BaseException):
            future.set_exception(result)
        else:
            future.set_result(result)

    def _fail(self, future: asyncio.Future[Any]) -> None:
        self.process.history.note(self.process.name, "does not reach the store")
        if not (self.process.dead or future.done()):
            future.set_exception(StoreUnavailable("the store cannot be reached"))

    def _write(
        self, rows: Sequence[Row], add: Sequence[Row], tokens: Mapping[str, int] | None
    ) -> None:
        server, history = self.server, self.process.history
        companies = {row.company for row in rows}
        if tokens is not None:
            server.check(companies, self, tokens)
            server.watch(companies, self)
        server.inner.put(rows, add)
        server.writers.update((row.id, self.process) for row in add)
        history.journal.written(rows, add, self.process)
        notify = tokens is None or any(row.state in _TOLD for row in rows)
        server.changed(companies, self, notify=notify)

    def put(self, rows: Sequence[Row], add: Sequence[Row] = ()) -> Any:
        note_sending(self.process.history.journal, rows)
        tokens = dict(self.tokens)  # those of now, whatever is taken until it arrives
        return self._call(lambda: self._write(rows, add, tokens))

    def decide(self, row: Row, add: Sequence[Row] = ()) -> Any:
        return self._call(lambda: self._write([row], add, None))

    def add(self, rows: Sequence[Row]) -> Any:
        def do() -> list[Row]:
            found = self.server.inner.add(rows)
            self.process.history.journal.written((), found, self.process)
            for row in rows:
                self.server.writers.setdefault(row.id, self.process)
                self.asked[row.company] = None
            self.server.changed({row.company for row in rows}, self, notify=True)
            return found

        return self._call(do)

    async def take(self, company: str) -> list[Row] | None:
        claimed = await self._call(lambda: self.server.claim(company, self))
        if claimed is None:
            return []
        if not claimed:
            return None
        return await self._call(lambda: done(self.server.inner.rows(company=company, live=True)))

    async def rows(self, **conditions: Any) -> list[Row]:
        return await self._call(lambda: done(self.server.inner.rows(**conditions)))

    async def owners(self, keys: Collection[str]) -> set[str]:
        return await self._call(lambda: done(self.server.inner.owners(keys)))

    async def companies(self) -> list[str]:
        return await self._call(lambda: done(self.server.inner.companies()))

    async def release(self) -> None:
        def do() -> None:
            for company, lease in self.server.leases.items():
                if lease.holder is self.process:
                    self.server.leases[company] = Lease(lease.token, None)
                    self.server.changed([company], self, notify=True)
            self.tokens.clear()

        await self._call(do)

    # News

    def told(self, company: str) -> None:
        """Hear a notification, if it comes through."""
        if self.process.dead or self.process.cut_off > self.process.history.now():
            return
        self._told.append(company)
        if self._waiter is not None and not self._waiter.done():
            self._waiter.set_result(None)

    def news(self) -> SharedRows:
        return self

    def __aiter__(self) -> SharedRows:
        return self

    async def __anext__(self) -> str:
        while not self._told:
            self._waiter = asyncio.get_running_loop().create_future()
            try:
                async with asyncio.timeout(25.0 if self.process.history.calm else 7.0):
                    await self._waiter
            except TimeoutError:
                pass
            if not self._told and self.process.cut_off <= self.process.history.now():
                self._told.extend(await self._call(self._news))
        return self._told.popleft()

    def _news(self) -> list[str]:
        """What a slow poll finds, however few notifications come: as `PostgresRows.news`."""
        server = self.server
        live = done(server.inner.companies())
        free = [one for one in live if server.is_free(one)]
        rows = [row for row in done(server.inner.rows(live=True)) if row.company in self.tokens]
        added = [
            row.company
            for row in rows
            if (row.state is State.QUEUED and server.writers.get(row.id) is not self.process)
            or (row.state is State.OPEN and row.decision == "bind")
        ]
        asked = [one for one in self.asked if one not in self.tokens]
        return [*dict.fromkeys([*free, *added, *asked])]


DIALECTS = {False: Dialect.document(), True: Dialect.published()}
