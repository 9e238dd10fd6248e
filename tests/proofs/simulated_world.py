"""The world of a simulated history: processes, a service, a database, and weather.

Everything runs on one loop in virtual time. A `Process` owns the callbacks of its tasks: a dead one
takes no further step, a frozen one takes all of them when it thaws, as after SIGKILL, SIGSTOP and
SIGCONT. What a service or a database does is an event of the world, which goes on meanwhile.

`Line` is a process's way to the service, `Way` its way to the `Engine`, a real SQLite in memory
under the package's own statements and `Journal`. Every write, listing and transmission may be the
last thing that the process does, before or after it is done.
"""

from __future__ import annotations

import asyncio
import json
import sqlite3
from collections import Counter, defaultdict, deque
from collections.abc import Awaitable, Callable, Mapping, Sequence
from contextvars import Context, ContextVar, copy_context
from datetime import UTC, datetime, timedelta
from email.utils import format_datetime
from functools import partial
from heapq import heappop, heappush
from itertools import count
from random import Random
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, Final, NamedTuple, cast

from attrs import Factory, define, field, frozen
from msgspec import structs

from integration_sdk._http.requests import Phase, Request
from integration_sdk._http.responses import Failure, Reply, Response
from integration_sdk._store.journal import Journal, read_rows
from integration_sdk._store.row import Lane, Result, Row, State, from_document
from integration_sdk._store.sql import SQLITE, Statement, Texts, Words, tables, texts
from integration_sdk.dialect import Dialect
from integration_sdk.errors import (
    AnswerLost,
    JournalError,
    NotSent,
    StoreUnavailable,
    TransportError,
)

if TYPE_CHECKING:
    from tests.proofs.simulator import History

BEGAN = datetime(2024, 1, 31, tzinfo=UTC)
KEPT_FOR = 90 * 60.0
"""Seconds for which an idempotent service keeps its answers."""
LEASE = 30.0
"""Seconds after its last heartbeat for which a process keeps its rows."""
WAIT = 12.0
"""Seconds for which a process waits for a database that it cannot reach."""
NUMBERS: Final = ("1", "2", "3", "4")
BUDGET: Final = ((5, 10.0), (12, 60.0))
"""Listings of a company in search of lost pushes, at most, in so many seconds."""
DIALECTS = {False: Dialect.document(), True: Dialect.published()}


class Crash(BaseException):
    """The process is gone."""


# Processes


@define(eq=False)
class Process:
    """A process that can be killed, frozen, thawed, and cut off from the database.

    deferred: Callbacks that fell due while it was frozen.
    cut_off: Until when it cannot reach the database.
    holder: What rows call it.
    """

    name: str
    history: History
    life: int
    dead: bool = False
    frozen: bool = False
    deferred: list[Step] = Factory(list)
    tasks: list[asyncio.Task[Any]] = Factory(list)
    cut_off: float = 0.0
    froze_at: float = 0.0
    thawed_at: float = -1.0
    program: Any = None
    holder: str = ""

    def freeze(self) -> None:
        self.frozen, self.froze_at = True, self.history.now()
        self.history.note(self.name, "freezes")

    def thaw(self) -> None:
        self.frozen, self.thawed_at = False, self.history.now()
        self.history.note(self.name, "thaws")
        deferred, self.deferred = self.deferred, []
        for step in deferred:
            self.history.loop.take(step)

    def die(self) -> None:
        """Stop in the midst of everything."""
        if not self.dead:
            self.dead = True
            self.history.note(self.name, "dies")
            self.history.died(self)

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

    def deliver(self, future: asyncio.Future[Any], result: Any) -> None:
        """Let the process have *result*, unless it dies of it."""
        if self.dead or future.done():
            return
        if self.crashes_now() and not self.frozen:
            self.die()
        elif isinstance(result, BaseException):
            future.set_exception(result)
        else:
            future.set_result(result)


WORLD = Process("the world", cast("History", None), 0)
OWNER: ContextVar[Process] = ContextVar("OWNER", default=WORLD)


class Step:
    """A callback that a loop will call, of a process or of the world."""

    __slots__ = "args", "callback", "context", "is_cancelled", "owner"

    def __init__(
        self, callback: Callable[..., object], args: tuple[Any, ...], context: Context | None
    ) -> None:
        self.context = copy_context() if context is None else context
        owner = self.context.get(OWNER)
        if owner is None:
            owner = OWNER.get()
            self.context.run(OWNER.set, owner)
        self.owner = owner
        self.callback, self.args, self.is_cancelled = callback, args, False

    def cancel(self) -> None:
        self.is_cancelled = True


class Loop:
    """As much of an event loop as is needed where there are no sockets, in virtual time."""

    def __init__(self, unhandled: Callable[[dict[str, Any]], None]) -> None:
        self.call_exception_handler = unhandled
        self._now = 0.0
        self._soon: deque[Step] = deque()
        self._later: list[tuple[float, int, Step]] = []
        self._number = count()

    def time(self) -> float:
        return self._now

    def get_debug(self) -> bool:
        return False

    def call_soon(self, callback: Any, *args: Any, context: Context | None = None) -> Step:
        step = Step(callback, args, context)
        self._soon.append(step)
        return step

    def call_later(
        self, delay: float, callback: Any, *args: Any, context: Context | None = None
    ) -> Step:
        return self.call_at(self._now + delay, callback, *args, context=context)

    def call_at(
        self, when: float, callback: Any, *args: Any, context: Context | None = None
    ) -> Step:
        step = Step(callback, args, context)
        heappush(self._later, (when, next(self._number), step))
        return step

    def create_future(self) -> asyncio.Future[Any]:
        return asyncio.Future(loop=cast("asyncio.AbstractEventLoop", self))

    def create_task(self, coro: Any, **options: Any) -> asyncio.Task[Any]:
        loop = cast("asyncio.AbstractEventLoop", self)
        task = asyncio.Task[Any](coro, loop=loop, **options)
        if (owner := OWNER.get()) is not WORLD:
            owner.tasks.append(task)
        return task

    def run_until_complete(self, future: Any) -> Any:
        """Take steps until *future* is done, in the order in which asyncio would."""
        soon, later = self._soon, self._later
        asyncio._set_running_loop(cast("asyncio.AbstractEventLoop", self))
        try:
            while not future.done():
                if not soon:
                    self._now = max(self._now, later[0][0])
                while later and later[0][0] <= self._now:
                    soon.append(heappop(later)[-1])
                for _ in range(len(soon)):
                    self.take(soon.popleft())
        finally:
            asyncio._set_running_loop(None)
        return future.result()

    def take(self, step: Step) -> None:
        """Take a step, unless its process is dead, or later if it is frozen."""
        if step.is_cancelled or step.owner.dead:
            return
        if step.owner.frozen:
            step.owner.deferred.append(step)
            return
        try:
            step.context.run(step.callback, *step.args)
        except Crash:
            pass
        except Exception as error:
            self.call_exception_handler({"message": "in a callback", "exception": error})


# Weather


@frozen(kw_only=True)
class Weather:
    """What one history is up against; chances are per effect.

    workers: Processes at a time. With two or more they share a database.
    crowd: Pushes of others in the company's list before and during the storm, by the hundred.
    omits, repeats: Chance of each row to be left out of a listing, or to be in it twice.
    shuffles: Chance that a listing is in no order.
    page: Pushes on a page of the list at most; a mark is one page.
    fileless: The caller wants no journal: one process, of which nothing is left after it.
    freezes, cuts: Chance of a process to be frozen, or cut off from the database, every 5 seconds.
    back: Chance that the database goes back by some seconds, every 5 seconds.
    unheard: Chance that a text that a process tells is lost.
    resends: The caller lets us send again what no list shows.
    trip: The longest trip to the shared database, in seconds.
    undated: The service tells no times of its answers.
    slow: Seconds that the answer to a push takes.
    """

    workers: int = 1
    crowd: int = 0
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
    omits: float = 0.0
    repeats: float = 0.0
    shuffles: float = 0.0
    freezes: float = 0.0
    cuts: float = 0.0
    back: float = 0.0
    unheard: float = 0.0
    resends: bool = False
    trip: float = 0.04
    undated: bool = False
    patience: float = 15.0
    slow: float = 0.0

    @classmethod
    def roll(cls, dice: Random, workers: int = 1) -> Weather:
        steps = dice.random() < 0.3
        shared = workers > 1
        odd: dict[str, Any] = dice.choice(
            [*[{}] * 7, {"omits": 0.1}, {"repeats": 0.05}, {"shuffles": 0.3}]
        )
        crowd = dice.choice([0] * 19 + [2])
        return cls(
            **odd,
            workers=workers,
            crowd=crowd,
            lag=dice.choice([0.0, 0.0, 5.0, 40.0]),
            echo=dice.choice(["full", "full", "single", "none", "rewritten"]),
            trouble=dice.choice([0.2, 0.5, 0.9]),
            strangers=dice.choice([0, 2, 5]),
            steps=steps and not crowd and "omits" not in odd,  # see `evidence`: what remains
            crash=dice.choice([0.0, 0.03, 0.1]),
            disk=dice.choice([0.0, 0.0, 0.02]),
            unlisted=dice.choice([0.0, 0.0, 0.3]),
            exclusive=dice.random() < 0.4,
            idempotent=dice.random() < 0.3,
            natural=dice.random() < 0.5,
            # A list of two hundred pages would take minutes, too long for the judge.
            page=None if steps else dice.choice([None, None, None if crowd else 2]),
            fileless=not shared and dice.random() < 0.15,
            freezes=dice.choice([0.0, 0.2, 0.5]) if shared else 0.0,
            cuts=dice.choice([0.0, 0.0, 0.3]) if shared else 0.0,
            unheard=dice.choice([0.0, 0.3, 1.0]),
            resends=dice.random() < 0.2,
            trip=dice.choice([0.04, 0.6, 6.0]),
            undated=dice.random() < 0.2,
            patience=dice.choice([5.0, 15.0, 30.0]),
            slow=dice.choice([0.0, 0.0, 0.0, 1.5 * LEASE]),
        )

    @property
    def fair(self) -> dict[str, Any]:
        """What changes when the weather clears: nothing goes wrong any more."""
        names = "trouble crash disk unlisted lag omits repeats shuffles freezes cuts back"
        return dict.fromkeys(names.split(), 0.0)


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
    change: str | None = None
    record_id: str | None = None


class Fate(NamedTuple):
    """What becomes of one transmission: does it arrive, and what is the answer."""

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
    body = service.shown(push, with_data=True)
    return _answer(service, service.dice.choice([200, 202]), body)


def _stale(service: Service, push: Push | None, sent: Sent) -> Reply:
    """A cache answers with a key we have seen: listed before we sent, or on record."""
    marked = sent.row.mark.keys if sent.row.mark else ()
    others = {*service.history.record.keys, *marked} - {push.key if push else ""}
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
    Fate("refused", 0.0, _status(400, 401, 402, 403, 404, 409, 422, body=ERROR_BODY)),
    Fate("proxy's 4xx", 0.5, _status(400, 404, 413, 429, 503)),
    Fate("500", 0.5, _status(500, body=ERROR_BODY)),
    Fate("gateway", 0.5, _status(302, 502, 504)),
    Fate("maintenance", 0.5, _status(503, headers={"Retry-After": "60"})),
    Fate("408", 0.5, _status(408, body=ERROR_BODY)),
    Fate("moved", 0.0, _status(307, 308)),
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
    _shown: dict[tuple[str, bool, bool], bytes] = Factory(dict)

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

    def create(self, lane: Lane, record: dict[str, Any], of: Row | None, at: float = 0.0) -> Push:
        if self.weather.steps and self.dice.random() < 0.3:
            self.clock += self.dice.choice([-7200.0, -60.0, 3600.0])
        now = self.now()
        push = Push(
            f"key-{len(self.pushes)}",
            lane,
            None if of is None else of.id,
            record,
            order=now + self.clock,
            visible_at=now + self.dice.random() * self.weather.lag,
            final_at=now + self.dice.choice([0.0, 5.0, 40.0, 150.0]),
            ends=self.dice.choice([*["Success"] * 6, "Failed", "Failed", "TimedOut"]),
            sent_at=at,
        )
        if of is not None and of.content_type:
            push.change, push.record_id = "AttachmentUploaded", of.record_id
        self.history.changes_by(max(push.visible_at, push.final_at))
        self.history.note("the service", push.key, lane, push.of, push.ends, round(push.final_at))
        self.pushes.append(push)
        self.by_key[push.key] = push
        return push

    def receive(self, sent: Sent, answer: Callable[[Reply], None]) -> None:
        """Let one transmission have its fate."""
        dice, at = self.dice, self.history.at
        fate = dice.choice(TROUBLES) if dice.random() < self.weather.trouble else FAIR
        if fate.name == "late request":
            at(10.0, lambda: answer(_lost(self, None, sent)))
            late = dice.choice([11.0, 60.0, 200.0])
            self.history.changes_by(self.now() + late)
            at(late, lambda: self._arrive(sent, None))
        elif dice.random() < fate.arrives:
            at(dice.random() * 5, lambda: self._answer(answer, self._arrive(sent, fate)))
        else:
            at(dice.random() * 5, lambda: answer(self._keep(sent, fate)))

    def _answer(self, answer: Callable[[Reply], None], reply: Reply) -> None:
        self.history.at(self.weather.slow, lambda: answer(reply))

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
        record = {} if sent.row.content_type else json.loads(sent.request.body or b"{}")
        push = self.create(sent.row.lane, record, sent.row, sent.at)
        answer = (fate or FAIR).answer(self, push, sent)
        if sent.idempotency_key:
            own = answer if fate is not None and fate.name == "500" else None
            self.kept[sent.idempotency_key] = (self.now(), own, push)
        return answer

    # What it shows

    def shown(self, push: Push, *, with_data: bool) -> bytes:
        final = self.now() >= push.final_at
        if (push.key, final, with_data) not in self._shown:
            shown = self._described(push, final=final, with_data=with_data)
            self._shown[push.key, final, with_data] = json.dumps(shown).encode()
        return self._shown[push.key, final, with_data]

    def _described(self, push: Push, *, final: bool, with_data: bool) -> dict[str, Any]:
        echo = self.weather.echo
        shown: dict[str, Any] = {
            "pushOperationKey": push.key,
            "companyId": push.lane.company_id,
            self.connection_name: push.lane.connection_id,
            "dataType": push.lane.data_type,
            "status": push.ends if final else "Pending",
            "requestedOnUtc": (BEGAN + timedelta(seconds=push.order)).isoformat()[:-6] + "Z",
        }
        if final and push.ends == "Success" and with_data and echo != "none":
            if push.change:
                reference = {"id": push.record_id, "dataType": push.lane.data_type}
                shown["changes"] = [{"type": push.change, "recordRef": reference}]
            else:
                changed = {"amount": 0} if echo == "rewritten" else {}
                shown["data"] = {**push.record, **changed, "id": push.key}
        return shown

    def read(self, request: Request) -> Response:
        """Answer a request for a single push, or for a page of the list."""
        if request.operation != "pushes.list":
            push = self.by_key.get(request.path.rsplit("/", 1)[-1])
            if push is None:
                return _answer(self, 404, ERROR_BODY)
            return _answer(self, 200, self.shown(push, with_data=True))
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
        links = b'{"next":{"href":"/next"}}' if first + size < len(rows) else b"{}"
        body = b'{"results":[%b],"pageSize":%d,"_links":%b}' % (b",".join(shown), size, links)
        return _answer(self, 200, body)

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
        """Wait for a turn (the gate may be shut for long), let *before* record it, and send."""
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
        sent = self.process.history.record.leaves(request)
        answer: asyncio.Future[Response] = asyncio.get_running_loop().create_future()

        def heard(reply: Reply) -> None:
            result = reply.error if isinstance(reply, Failure) else reply
            self.process.deliver(answer, result)

        self.service.receive(sent, heard)
        return await answer

    async def send(self, request: Request) -> Response:
        self.process.may_crash()
        self._count(request)
        answer: asyncio.Future[Response] = asyncio.get_running_loop().create_future()
        dice = self.service.dice

        def reply() -> None:
            if dice.random() < self.service.weather.unlisted / 3:
                self.process.deliver(answer, TransportError("reset"))
            else:
                self.process.deliver(answer, self.service.read(request))

        self.service.history.at(dice.random() * 3, reply)
        return await answer

    def _count(self, request: Request) -> None:
        """Hold listings in search of lost pushes against their budget."""
        params = dict(request.params)
        if request.operation != "pushes.list" or params["page"] != "1":
            return
        if request.priority.name != "PUSH" or params["pageSize"] == "200":  # a poll, a mark
            return
        history, company = self.service.history, str(request.company_id)
        listed, now = self.searches[company], self.service.now()
        history.listings += 1
        history.looks[company].append(now)
        for most, span in BUDGET:
            if len(listed) >= most and now < listed[-most] + span - 1e-6:
                history.violations.append(
                    f"budget: listing {most + 1} of {company} within {now - listed[-most]:.1f} s"
                )
        listed.append(now)


# The database


@define(eq=False)
class Record:
    """What was written, and what left after it: the judge's own record.

    sending: The SENDING row that a task has asked to write, and has not used yet.
    unsent: SENDING rows on record that have not left.
    """

    history: History
    rows: dict[str, Row] = Factory(dict)
    keys: dict[str, str] = Factory(dict)
    sent: int = 0
    allowed: Counter[str] = Factory(Counter)
    sending: dict[Any, Row] = Factory(dict)
    unsent: dict[tuple[str, int], Row] = Factory(dict)

    def wrote(self, row: Row, process: Process) -> None:
        """Note what a statement has written, and hold it against the promises."""
        before = self.rows.get(row.id)
        wrong = [] if self.history.went_back else self.history.violations
        if before == row:
            return
        self.history.changes_by(self.history.now())
        self.history.note(process.name, process.life, row.version, row.state, row)
        known = before.version if before else -1
        # A holder knows more than the record after a write that failed.
        knows = row.version > known and (before is None or before.holder == row.holder)
        if not (known + 1 == row.version or knows):
            wrong.append(f"written over: {row.id} {known} {row.version}")
        if row.key is not None and self.keys.setdefault(row.key, row.id) != row.id:
            wrong.append(f"wrong link: {row.key} belongs to two rows")
        if before is not None and before.state is State.DONE:
            wrong += self._look_at_the_end(before, row)
        elif before is not None and before.state is State.DOUBT and row.state is State.QUEUED:
            if not (self.history.weather.resends or row.id in self.history.asked_about):
                wrong.append(f"sent again unasked: {row.id}")
            self.allowed[row.id] += 1
        if row.state is State.SENDING:
            self.unsent[row.id, row.version] = row
        self.rows[row.id] = row

    def _look_at_the_end(self, before: Row, row: Row) -> list[str]:
        """An end is final, but for a corrected record after a failure."""
        if row.state is not State.QUEUED:
            ends = [(one.result, one.key, one.status) for one in (before, row)]
            is_freed = row.decision == "resend" and ends[0] == ends[1]
            return [] if is_freed else [f"final changed: {row.id}"]
        if before.result is Result.ENDED or before.ghosts:
            self.allowed[row.id] += 1
        if before.status == "Success":
            return [f"sent again although it is there: {row.id}"]
        return []

    def claimed(self, row: Row, process: Process) -> None:
        """Note a row that has another holder now; the one before is dead, frozen or cut off."""
        self.history.note(process.name, process.life, "claims", row.id, row.version)
        weather, before = self.history.weather, self.rows[row.id].holder
        strikes = weather.freezes or weather.cuts or weather.back or weather.trip > LEASE / 15
        if not strikes and before in {one.holder for one in self.history.living()}:
            self.history.violations.append(f"taken from the living: {row.id}")
        self.rows[row.id] = row

    def leaves(self, request: Request) -> Sent:
        """Note that a task sends what it has put on record."""
        row = self.sending.pop(asyncio.current_task(), None)
        if self.history.weather.fileless:
            row = self.history.row_of(request)
        elif row is None or self.unsent.pop((row.id, row.version), None) is None:
            self.history.violations.append(f"sent without a row of its own: {row}")
            lane = Lane._make(request.path.strip("/").split("/")[1::2][:3])
            row = row or Row(id=f"unknown-{self.sent}", lane=lane)
        assert row is not None
        self.sent += 1
        self.history.note("sent", row.id, row.version)
        return Sent(row, request, self.history.now())


class NotingJournal(Journal):
    """Notes which task writes a SENDING row, since a request does not tell whose it is."""

    record: Record

    def write(self, row: Row) -> asyncio.Future[Row]:
        if row.state is State.SENDING:
            self.record.sending[asyncio.current_task()] = row
        return super().write(row)


@define(eq=False)
class Engine:
    """The database itself: SQLite in memory, whose clock is the world's.

    heard: Who listens to what processes tell.
    """

    words: Words = field(init=False, factory=lambda: SQLITE._replace(now="now()"))
    heard: dict[Process, Callable[[str], None]] = Factory(dict)
    connections: int = 1
    history: History = field(init=False)
    _db: sqlite3.Connection = field(init=False)
    _saved: sqlite3.Connection | None = None
    _texts: Texts = field(init=False)

    def __attrs_post_init__(self) -> None:
        self._db = sqlite3.connect(":memory:", isolation_level=None)
        self._db.create_function("now", 0, self._clock)
        self._db.create_function("current_schema", 0, lambda: "")
        self._db.create_function("pg_notify", 2, lambda _, text: self._tell(text))
        self._db.execute("PRAGMA temp_store = MEMORY")
        for statement in tables(self.words):
            self._db.execute(statement)
        self._texts = texts(self.words)

    def begin(self, history: History) -> None:
        """Be empty: a history begins. Its tables are those of the last one, which saves time."""
        self.history, self.heard, self.connections, self._saved = history, {}, 1, None
        self._db.executescript("DELETE FROM pushes; DELETE FROM earlier_keys; DELETE FROM workers")

    def _clock(self) -> float:
        return self.history.now()

    def do(self, work: Sequence[Statement], process: Process) -> list[list[Any]]:
        """Do the work of one transaction, and let the judge see what it wrote."""
        # One after the other without a transaction: nothing fails, and nobody comes between.
        found = [
            self._db.execute(text, dict(zip(NUMBERS, values, strict=False))).fetchall()
            for text, values in work
        ]
        record = self.history.record
        for (text, values), answer in zip(work, found, strict=True):
            if text in (self._texts.insert, self._texts.update, self._texts.restore):
                ids = {one[0] for one in answer}
                for columns in json.loads(str(values[0])):
                    if columns.pop("id") in ids:
                        for name in ("company", "reference", "key", "payload"):
                            del columns[name]
                        record.wrote(from_document(**columns), process)
            elif text == self._texts.claim:
                for row in read_rows(answer):
                    record.claimed(structs.replace(row, payload=None), process)
        return found

    def _tell(self, text: str) -> None:
        dice = self.history.dice
        for process, heard in self.heard.items():
            if not process.dead and dice.random() >= self.history.weather.unheard:
                self.history.at(dice.random() * 0.1, partial(self._hear, process, heard, text))

    def _hear(self, process: Process, heard: Callable[[str], None], text: str) -> None:
        if not process.dead and process.cut_off <= self.history.now():
            context = Context()
            context.run(OWNER.set, process)
            context.run(process.history.loop.call_soon, heard, text)

    def save(self) -> None:
        """Keep its state, to go back to."""
        self._saved = sqlite3.connect(":memory:", isolation_level=None)
        self._db.backup(self._saved)

    def go_back(self) -> None:
        """Be as it was saved, as after a failover to a standby without the last commits."""
        if self._saved is not None:
            self.history.note("the database goes back")
            self.history.went_back = True
            self._saved.backup(self._db)
            self._saved.close()
            self._saved, self.connections = None, self.connections + 1


@define(eq=False)
class Way:
    """A process's way to the database. What has reached it goes on without the process.

    A file may refuse; and a refused write may be on disk all the same, after which nothing more is
    taken. A shared database may be out of reach, and the answer to a write may be lost, which is
    then done again.
    """

    process: Process
    engine: Engine
    shared: bool
    words: Words = field(init=False)
    _lost: int = 0
    _is_broken: bool = False

    def __attrs_post_init__(self) -> None:
        self.words = self.engine.words

    @property
    def connections(self) -> int:
        return self.engine.connections + self._lost

    def listen(self, heard: Callable[[str], None]) -> None:
        self.engine.heard[self.process] = heard

    async def run(self, work: Sequence[Statement]) -> list[list[Any]]:
        process, history = self.process, self.process.history
        process.may_crash()
        answer: asyncio.Future[list[list[Any]]] = asyncio.get_running_loop().create_future()
        now, trip = history.now(), self._trip() if self.shared else 0.01
        if process.cut_off <= now:
            history.at(trip, lambda: self._perform(answer, work))
        else:
            self._lost += 1
            if history.dice.random() < 0.3:  # the connection broke with the answer on its way
                history.at(trip, lambda: self.engine.do(work, process))
            if process.cut_off <= now + WAIT:
                history.at(process.cut_off - now, lambda: self._perform(answer, work))
            else:
                history.note(process.name, "does not reach the database")
                away = StoreUnavailable("the database cannot be reached")
                history.at(WAIT, lambda: process.deliver(answer, away))
        return await answer

    def _perform(self, answer: asyncio.Future[list[list[Any]]], work: Sequence[Statement]) -> None:
        result: Any
        if not self.shared and self.process.dead:
            return  # its thread died with it
        try:
            result = self._do(work)
        except JournalError as error:
            result = error
        delay = self._trip() if self.shared else 0.0
        self.process.history.at(delay, lambda: self.process.deliver(answer, result))

    def _do(self, work: Sequence[Statement]) -> list[list[Any]]:
        history = self.process.history
        chance = 0.0 if self.shared else history.weather.disk
        refused = self._is_broken or history.dice.random() < chance
        if refused and (self._is_broken or history.dice.random() > 0.2):
            raise JournalError("disk full")
        found = self.engine.do(work, self.process)
        if refused:
            self._is_broken = True
            raise JournalError("fsync failed")
        return found

    def _trip(self) -> float:
        """Return the seconds that a statement or its answer is on its way."""
        history = self.process.history
        return history.dice.choice([0.005, 0.01, 0.02, 0.04, history.weather.trip])
