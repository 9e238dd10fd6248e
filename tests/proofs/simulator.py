"""Seeded histories of pushes: the real shell in virtual time, and a judge of its promises.

One history: callers push a few records, some of them alike, through processes that are killed,
frozen, cut off and started again with the same records. The service loses, delays, refuses and
mangles; lists lag, are cut short or cannot be had; echoes are missing; strangers write to the same
company; the service's clock steps; files refuse, databases go back. Then the weather clears, the
processes are started a last time, and the truth is compared with what is on record.

What runs is the package's `Coordinator` with all behind it: polling, search, `Journal`, and its
statements on SQLite in memory.

``python -m tests.proofs.simulator --histories 1000000 --workers 2`` runs as many as you like.
"""

from __future__ import annotations

import argparse
import asyncio
import gc
import json
import logging
import os
import sys
import time
import traceback
import warnings
from collections import Counter, defaultdict
from collections.abc import AsyncIterator, Callable, Iterator, Sequence
from contextlib import suppress
from contextvars import Context
from functools import partial
from random import Random
from typing import Any
from unittest.mock import patch

from attrs import Factory, define, evolve, field

import integration_sdk
from integration_sdk import OutcomeStatus, PushEvent, PushOutcome, PushRequest, RetryPolicy
from integration_sdk._http.requests import Request
from integration_sdk._options_given import CoordinatorOptions
from integration_sdk._push.coordinator import Coordinator
from integration_sdk._push.polling import Polls
from integration_sdk._push.push import Push as Handle
from integration_sdk._store.row import Lane, Result, Row, State
from integration_sdk._store.store import Store
from integration_sdk.errors import (
    AccountExpired,
    ClientClosed,
    ConfigurationError,
    IntegrationError,
    InvalidRecord,
    JournalError,
    PushError,
    ReferenceConflict,
    ServiceUnavailable,
    StoreUnavailable,
    TooManyRequests,
    Unauthorized,
)
from tests.proofs.simulated_world import (
    DIALECTS,
    LEASE,
    OWNER,
    WORLD,
    Crash,
    Engine,
    Line,
    Loop,
    NotingJournal,
    Process,
    Push,
    Record,
    Service,
    Way,
    Weather,
)

STORM, CALM = 400.0, 900.0
"""Seconds in which things go wrong, and then seconds until the judge comes, at most."""
ENDED = {OutcomeStatus.SUCCESS, OutcomeStatus.FAILED, OutcomeStatus.TIMED_OUT}
PASSING = (AccountExpired, Unauthorized, TooManyRequests, ServiceUnavailable, StoreUnavailable)
STOPPED = (JournalError, ClientClosed, *PASSING)


class LentStore(Store):
    """A store of the simulated world, as a coordinator takes it."""

    def __init__(self, process: Process, way: Way) -> None:
        super().__init__("simulated")
        self._process, self._way = process, way

    async def _lend(self, **_: Any) -> Any:
        history = self._process.history
        # As opening a file or connecting to a database does.
        await self._way.run([("SELECT 1", ())])
        journal = NotingJournal(self._way, "default", LEASE)
        journal.record = history.record
        journal.holder = f"{self._process.name} {self._process.life} {history.dice.random()}"
        self._process.holder = journal.holder
        return journal

    async def _take_back(self) -> None:
        """Do nothing: who has left its block is dead for the others a lease later."""


@define(eq=False)
class Program:
    """A program that pushes its records through one coordinator, again at each start."""

    process: Process
    history: History
    pushes: Coordinator | None = None
    tasks: set[asyncio.Task[Any]] = Factory(set)
    handles: list[Handle] = Factory(list)
    leaving: asyncio.Event = Factory(asyncio.Event)
    heard: Counter[tuple[Handle, str]] = Factory(Counter)

    async def main(self) -> None:
        history, dice = self.history, self.history.dice
        weather, dialect = history.weather, DIALECTS[history.weather.idempotent]
        line = Line(self.process, history.service)
        polls = Polls(line.send, dialect, chance=dice.random)
        way = Way(self.process, history.engine, weather.workers > 1)
        options = CoordinatorOptions(
            journal=None if weather.fileless else LentStore(self.process, way),
            exclusive=weather.exclusive,
            leave="drain" if history.calm else dice.choice(["drain", "detach"]),
            patience=weather.patience,
            in_doubt="resend" if weather.resends else "ask",
            max_open=dice.choice([1, 2, 5000]),
            on_event=self._hear,
        )
        retry = RetryPolicy(attempts=4)
        coordinator = Coordinator(line, polls, dialect, options, retry=retry, chance=dice.random)
        try:
            async with coordinator as self.pushes:
                for push in coordinator.recovered:
                    self._start(self._await(push))
                self._submit_all()
                self._start(self._decide())
                await self.leaving.wait()
                self._may_fail()
        except (JournalError, InterruptedError):
            history.note(self.process.name, "leaves its block by an error")
        finally:
            await polls.aclose()
        for push in self.handles:
            if push.outcome is None:
                history.violations.append(f"no outcome after the block: {push.intent}")
        history.left(self.process)

    def _may_fail(self) -> None:
        if not self.history.calm and self.history.dice.random() < 0.3:
            raise InterruptedError

    def _start(self, work: Any) -> None:
        task = asyncio.create_task(work)
        self.tasks.add(task)
        task.add_done_callback(self.ended)

    def ended(self, task: asyncio.Task[Any]) -> None:
        """A task that breaks is a mistake, of ours or of this program."""
        error = None if task.cancelled() else task.exception()
        if error is not None and not isinstance(error, Crash):
            self.history.violations.append(f"foreign error: {error!r}")

    def _submit_all(self) -> None:
        history, dice = self.history, self.history.dice
        known = {row.reference for row in history.record.rows.values()}
        again = history.calm or dice.random() < 0.5
        wanted = [one for one in history.records if again or one.reference not in known]
        if history.weather.workers > 1 and not history.calm:
            wanted = [one for one in wanted if dice.random() < 0.7]
        amount = 100 + int(self.process.name[-1])  # each worker corrects in its own way
        wanted = [_corrected(one, amount) if dice.random() < 0.1 else one for one in wanted]
        if history.weather.fileless and self.process.life > 0:
            return
        if dice.random() < 0.25:
            self._start(self._run(wanted))
        else:
            for request in wanted:
                self._start(self._submit(request))

    async def _run(self, wanted: list[PushRequest]) -> None:
        """Push in a loop, which may be left half-way, and then one by one."""
        assert self.pushes is not None
        left = 0 if self.history.weather.fileless else self.history.dice.choice([1, 3, 100])
        outcomes = self.pushes.run(self._slowly(wanted))
        try:
            async for outcome in outcomes:
                self._told(outcome, None)
                await asyncio.sleep(self.history.dice.choice([0.0, 5.0]))
                left -= 1
                if not left:
                    break
            await outcomes.aclose()
            if not left:
                for request in wanted:  # there is a place for each
                    self._start(self._submit(request))
        except IntegrationError as error:
            self._failed(error)

    async def _slowly(self, wanted: list[PushRequest]) -> AsyncIterator[PushRequest]:
        for request in wanted:
            await asyncio.sleep(self.history.dice.choice([0.0, 0.0, 3.0, 40.0]))
            yield request

    async def _submit(self, request: PushRequest) -> None:
        dice = self.history.dice
        assert self.pushes is not None
        await asyncio.sleep(dice.choice([0.0, 0.0, 1.0, 30.0]))
        try:
            wait = dice.choice([None, None, None, 40.0])
            longest = dice.choice([None, None, None, 0.001, 0.2, 7.0])  # then the caller goes
            if self.history.calm or self.history.weather.fileless:
                wait = longest = None
            async with asyncio.timeout(longest):
                push = await self.pushes.submit(request, wait=wait)
        except TimeoutError:
            pass
        except IntegrationError as error:
            if isinstance(error, PASSING) and dice.random() < 0.7:
                self._start(self._submit(request))  # as a service does that goes on
            else:
                self._failed(error)
        else:
            await self._await(push)

    def _failed(self, error: IntegrationError) -> None:
        if type(error) is PushError:
            self._broke(error)
        elif isinstance(error, STOPPED):
            self.leaving.set()
        elif not isinstance(error, InvalidRecord | ReferenceConflict):
            self.history.violations.append(f"foreign error: {error!r}")

    def _broke(self, error: IntegrationError) -> None:
        cause = error.__cause__
        self.history.violations.append(f"broke: {cause!r}")
        self.history.note("".join(traceback.format_exception(cause))[-1500:])
        self.leaving.set()

    def _hear(self, event: PushEvent) -> None:
        self.heard[event.push, event.what] += 1
        if event.what in {"ended", "found"} and self.heard[event.push, event.what] > 1:
            self.history.violations.append(f"told twice: {event.what} {event.push.intent}")

    async def _await(self, push: Handle) -> None:
        self.handles.append(push)
        self._told(await push, push.intent)

    def _told(self, outcome: PushOutcome, intent: str | None) -> None:
        """Remember what the caller was told, and look at once whether it can be true."""
        history, error = self.history, outcome.error
        told = (outcome.request.reference, intent, outcome.status, repr(error)[:120])
        history.note(self.process.name, self.process.life, "is told", *told)
        is_news = isinstance(error, STOPPED) and "refused before" not in str(error)
        if is_news and (not isinstance(error, PASSING) or history.dice.random() < 0.3):
            self.leaving.set()
        if type(error) is PushError:
            self._broke(error)
        if outcome.status in ENDED and not self._is_own(outcome, intent):
            history.violations.append(f"wrong link: {intent} as it was told")
        if outcome.status is OutcomeStatus.REJECTED and intent is not None:
            process, now = self.process, history.now()
            # What it has known since before it was frozen, it tells as it thaws.
            at = process.froze_at if process.thawed_at == now else now
            history.rejected.append((intent, at))
        history.told[str(outcome.status)] += 1

    def _is_own(self, outcome: PushOutcome, intent: str | None) -> bool:
        """Whether what the caller was told of is the push of his own record."""
        history, operation = self.history, outcome.operation
        push = history.service.by_key.get(operation.key) if operation else None
        if push is None or push.of is None:
            return False
        row = history.record.rows.get(push.of)
        record = outcome.request.record or push.record  # the journal forgets it
        named = row is not None and row.reference == outcome.request.reference
        named = named and record == push.record
        return named or (history.weather.fileless and outcome.request.reference == push.of)

    async def _decide(self) -> None:
        """Decide now and then about what is in doubt, and about what has timed out."""
        history, dice = self.history, self.history.dice
        assert self.pushes is not None
        while history.now() < STORM + 100:
            await asyncio.sleep(25.0)
            if history.seed % 7 == 0 and not history.calm:
                self.pushes.detach()
            rows = history.record.rows.values()
            asked = [push.intent for push in self.pushes.in_doubt]
            if history.weather.workers > 1:  # another may decide, too
                asked = [row.id for row in rows if row.state is State.DOUBT]
            asked += [row.id for row in rows if row.status == "TimedOut"]
            for intent in asked:
                if intent is None or dice.random() > 0.1:
                    continue
                history.asked_about.add(intent)
                with suppress(ConfigurationError, ReferenceConflict, *STOPPED):
                    await self._decide_about(intent)

    async def _decide_about(self, intent: str) -> None:
        history, dice = self.history, self.history.dice
        assert self.pushes is not None
        row = history.record.rows.get(intent)
        known = {one.key for one in row.earlier} if row is not None else set()
        own = [one for one in history.service.pushes if one.of == intent and one.key not in known]
        if row is not None and row.result is Result.ENDED:
            record = dice.choice(history.records).record
            push: Handle | None = await self.pushes.decide(intent, "resend", record=record)
        elif own and dice.random() < 0.7:
            push = await self.pushes.decide(intent, bind=own[0].key)
        else:
            push = await self.pushes.decide(intent, dice.choice(["resend", "abandon"]))
            if push is not None and history.weather.fileless:
                history.record.allowed[push.request.reference or ""] += 1
        if push is not None:
            self._start(self._await(push))

    def waiting(self) -> Iterator[str]:
        """Say who has not been told an outcome."""
        for push in self.handles:
            if push.outcome is None:
                yield f"no outcome: {push.request.reference} {push.intent}"
        for task in self.tasks:
            if not task.done():
                yield f"waits for ever: {task.get_coro()!r}"[:200]


@define(eq=False)
class History:
    """One seeded run. `run` returns what is wrong; an empty list is what we want."""

    seed: int
    weather: Weather
    engine: Engine
    dice: Random = field(init=False)
    service: Service = field(init=False)
    record: Record = field(init=False)
    loop: Loop = field(init=False)
    calm: bool = False
    went_back: bool = False
    records: list[PushRequest] = Factory(list)
    processes: list[Process] = Factory(list)
    crashes: int = 0
    listings: int = 0
    looks: dict[str, list[float]] = Factory(lambda: defaultdict(lambda: [0.0] * 3))
    changes_until: float = 0.0
    asked_about: set[str] = Factory(set)
    told: Counter[str] = Factory(Counter)
    rejected: list[tuple[str, float]] = Factory(list)
    violations: list[str] = Factory(list)
    story: list[tuple[Any, ...]] = Factory(list)
    _strangers: list[tuple[float, Lane]] = Factory(list)

    def __attrs_post_init__(self) -> None:
        self.dice = dice = Random(self.seed)
        if self.weather.fileless:  # nothing to be taken over, and no disk to refuse
            self.weather = evolve(self.weather, crash=0.0, disk=0.0, twins=0.0)
        weather = self.weather
        name = DIALECTS[weather.idempotent].connection_name or "dataConnectionId"
        self.loop = Loop(self._unhandled)
        self.service = Service(self, dice, name)
        self.record = Record(self)
        self.engine.begin(self)
        self._think_of_records()
        for number in range(dice.randrange(4) + 100 * weather.crowd):
            old = self.service.create(self._lane(), {"invoiceNumber": f"OLD-{number}"}, None)
            old.visible_at = 0.0
            old.order -= 3600.0 * dice.random()  # long before the first mark
        strangers = weather.strangers + 50 * weather.crowd
        self._strangers = [(dice.random() * 120, self._foreign_lane()) for _ in range(strangers)]

    def _think_of_records(self) -> None:
        dice, weather = self.dice, self.weather
        companies = ["company", "other"] if weather.workers > 1 else ["company"]
        for number in range(dice.randrange(1, 6)):
            reference = f"ref-{number}"
            if self.records and dice.random() < weather.twins:
                self.records.append(evolve(self.records[-1], reference=reference))
                continue
            kind, lane = dice.random(), (dice.choice(companies), "books")
            facts: dict[str, Any] = {"record_id": "rec-1" if kind < 0.2 else None}
            record = {"invoiceNumber": f"INV-{number}", "amount": 10.5 + number, "lines": [{}]}
            if kind < 0.1:
                facts["attach"] = f"{number}.pdf", f"file {number}".encode()
            elif weather.natural:
                facts["natural_key"] = "invoiceNumber"
            where = *lane, dice.choice(["invoices", "bills"]), None if kind < 0.1 else record
            self.records.append(PushRequest(*where, reference=reference, **facts))

    def row_of(self, request: Request) -> Row:
        """Return what stands for a row where there is no journal: no two records are alike."""
        lane = Lane._make(request.path.strip("/").split("/")[1::2][:3])
        text, kind = (request.body or b"").decode(), request.content_type
        for number, one in enumerate(self.records):
            if f'"{number}.pdf"' in text or f'"INV-{number}"' in text:
                return Row(str(one.reference), lane, content_type=one.attach and kind)
        raise AssertionError(text)

    def _lane(self) -> Lane:
        request = self.dice.choice(self.records)
        return Lane(request.company_id, request.connection_id, request.data_type)

    def _foreign_lane(self) -> Lane:
        lane = self._lane()
        lanes = [lane._replace(connection_id="shop"), lane._replace(data_type="customers")]
        return self.dice.choice(lanes if self.weather.exclusive else [*lanes, lane, lane])

    # The world turns

    def now(self) -> float:
        return self.loop.time()

    def changes_by(self, at: float) -> None:
        """Note that something changes then, of which listings and callers shall hear."""
        self.changes_until = max(self.changes_until, at)

    def at(self, seconds: float, happens: Callable[[], object]) -> None:
        """Let something happen in the world, whatever becomes of any process."""
        self.loop.call_later(seconds, happens, context=WORLD_CONTEXT)

    def note(self, *facts: object) -> None:
        """Remember what has happened, to explain a violation."""
        self.story.append((self.now(), *facts))

    def told_story(self) -> str:
        """Return what has happened, a line each."""
        lines = [f"{self.weather}"]
        for at, *facts in self.story:
            lines.append(f"{at:8.2f} " + " ".join(map(_in_full, facts)))
        return "\n".join(lines)

    def run(self) -> list[str]:
        with patch("os.urandom", self.dice.randbytes):
            try:
                self.loop.run_until_complete(
                    self.loop.create_task(self._run(), context=WORLD_CONTEXT)
                )
                return self.violations + list(self._judge())
            finally:
                self._dispose()

    async def _run(self) -> None:
        for seconds, lane in self._strangers:
            record = {"invoiceNumber": f"X-{self.dice.random()}", "amount": 10.5}
            self.at(seconds, partial(self.service.create, lane, record, None))
        for number in range(self.weather.workers):
            self.start(f"p{number}", 0)
        weather = self.weather
        mishaps = weather.freezes or weather.cuts or weather.back
        while self.now() < STORM:
            await asyncio.sleep(min(5.0, STORM - self.now()) if mishaps else STORM)
            self._mishaps()
        await self._clear_up()
        while self.now() < STORM + CALM:
            await asyncio.sleep(20.0)
            if self.seed % 10 and self._is_settled():
                break
        for process in self.living():
            self.violations += process.program.waiting()

    def living(self) -> list[Process]:
        return [one for one in self.processes if not one.dead]

    def _is_settled(self) -> bool:
        """Whether nothing happens any more: no caller waits, and listings bring nothing new.

        One history in ten is watched to the end all the same.
        """
        programs = [one.program for one in self.living()]
        if self.now() < self.changes_until or any(any(one.waiting()) for one in programs):
            return False
        if any(one.pushes is None for one in programs):  # it has not begun: its database is slow
            return False
        rows = self.record.rows.values()
        doubts = {row.company for row in rows if row.state is State.DOUBT}
        for program in programs:
            if program.pushes is not None:
                doubts |= {push.request.company_id for push in program.pushes.in_doubt}
        return all(row.state in {State.DONE, State.DOUBT} for row in rows) and all(
            self.looks[company][-3:][0] > self.changes_until for company in doubts
        )

    def start(self, name: str, life: int) -> None:
        process = Process(name, self, life)
        self.processes.append(process)
        context = Context()
        context.run(OWNER.set, process)
        process.program = context.run(Program, process, self)
        self.note(name, "starts, life", life)
        main = self.loop.create_task(process.program.main(), context=context)
        main.add_done_callback(process.program.ended, context=context)
        process.tasks.append(main)
        # What knows more than a database that went back goes with its process.
        stays = self.calm or self.weather.fileless or self.weather.back
        if not stays and self.dice.random() < 0.5:
            self.at(self.dice.choice([20.0, 60.0, 200.0]), partial(self._ask_to_leave, process))

    def _ask_to_leave(self, process: Process) -> None:
        if not process.dead and not process.frozen and not self.calm:
            process.program.leaving.set()

    def died(self, process: Process) -> None:
        self.crashes += not self.calm
        self._again(process)

    def left(self, process: Process) -> None:
        """Start again after a block that was left, in the same or another process."""
        if self.calm and not self.weather.fileless:
            self.violations.append("the block ended by itself in fair weather")
        process.dead = True
        self._again(process)

    def _again(self, process: Process) -> None:
        if self.calm or self.weather.fileless:
            return
        wait = self.dice.choice([0.1, 20.0, 100.0])
        self.at(wait, partial(self._start_again, process.name, process.life + 1))

    def _start_again(self, name: str, life: int) -> None:
        if not self.calm:
            self.start(name, life)

    def _mishaps(self) -> None:
        dice, weather = self.dice, self.weather
        for process in self.living():
            if not process.frozen and dice.random() < weather.freezes / 5:
                process.freeze()
                self.at(dice.choice([5.0, LEASE, 1.5 * LEASE, 4 * LEASE]), process.thaw)
            if process.cut_off < self.now() and dice.random() < weather.cuts / 5:
                process.cut_off = self.now() + dice.choice([1.0, 8.0, 1.5 * LEASE])
                self.note(process.name, "is cut off until", process.cut_off)
            process.tasks = [one for one in process.tasks if not one.done()]
        if dice.random() < weather.back / 5:
            self.engine.save()
            self.at(dice.choice([0.5, 4.0, 20.0]), self.engine.go_back)

    async def _clear_up(self) -> None:
        """The weather clears: requests on their way arrive, nothing new goes wrong."""
        self.calm = True
        self.weather = evolve(self.weather, **self.weather.fair)
        if not self.weather.fileless:
            for process in self.living():
                process.die()
            for number in range(self.weather.workers):
                self.start(f"last-{number}", 100)

    def _unhandled(self, context: dict[str, Any]) -> None:
        error = context.get("exception")
        # Nobody reads what a write of a dead process came to.
        is_unread = isinstance(error, JournalError) and any(one.dead for one in self.processes)
        if not (is_unread or isinstance(error, Crash)):
            self.violations.append(f"unhandled: {context.get('message')} {error!r}")

    def _dispose(self) -> None:
        """End what is left of dead and living processes, without another step."""
        self.loop.call_exception_handler = lambda _: None
        for process in self.processes:
            process.dead = True
            for task in process.tasks:
                if not task.done():
                    with suppress(BaseException):  # of a dead process
                        task.get_coro().close()

    # The truth is compared with what is on record

    def _judge(self) -> Iterator[str]:
        rows = self.record.rows
        if self.went_back:
            yield from (one for one in self._losses() if one.startswith("told"))
            return  # what was forgotten may be sent again, but no caller waits or is misled
        yield from self._double_sends()
        if self.weather.fileless:
            return  # there is no record; what callers were told has been looked at
        for row in rows.values():
            keys = {row.key, *(one.key for one in row.earlier)} - {None}
            if any(self.service.by_key[key or ""].of != row.id for key in keys):
                yield f"wrong link: {row.id}"
            if row.state not in {State.DONE, State.DOUBT}:
                yield f"unexamined: {row.id} is {row.state}"
        yield from self._losses()

    def _losses(self) -> Iterator[str]:
        rows = self.record.rows
        for push in self.service.pushes:
            owner = rows.get(push.of or "")
            if push.of is not None and not (owner and _accounts_for(owner, push)):
                yield f"silent loss: {push.of} ({owner.state if owner else 'no row'})"
            known = {owner.key, *(one.key for one in owner.earlier)} if owner else set()
            denied = any(intent == push.of and push.sent_at <= at for intent, at in self.rejected)
            if denied and push.key not in known:
                yield f"told that it does not exist: {push.of}"
        taken = {row.reference for row in rows.values()}
        for request in self.records:
            if request.reference not in taken:
                yield f"silent loss: {request.reference} was never taken"

    def _double_sends(self) -> Iterator[str]:
        """However many rows and attempts there are: a reference is one push."""
        if self.weather.fileless and self.weather.resends:
            return
        made = Counter(self._reference(push.of) for push in self.service.pushes if push.of)
        allowed = Counter[str]()
        for row, times in self.record.allowed.items():
            allowed[self._reference(row)] += times
        for reference, times in made.items():
            if times > 1 + allowed[reference]:
                yield f"double send: {reference} {times}"

    def _reference(self, row_id: str) -> str:
        row = self.record.rows.get(row_id)
        return (row and row.reference) or row_id


WORLD_CONTEXT = Context()
WORLD_CONTEXT.run(OWNER.set, WORLD)


def _corrected(request: PushRequest, amount: int) -> PushRequest:
    """Return another record under the same reference."""
    if request.record is None:
        return request
    return evolve(request, record={**request.record, "amount": amount})


def _in_full(fact: object) -> str:
    if not isinstance(fact, Row):
        return str(fact)
    parts = (fact.key, fact.evidence, fact.verdict, fact.candidates, fact.decision, fact.ghosts)
    said = (fact.http_status, (fact.error or "")[:40])
    return f"{fact.id} {fact.lane.company_id} {fact.lane.data_type} {parts} {said}"


def _accounts_for(row: Row, push: Push) -> bool:
    """Whether what is on record of a row stands for a push of it."""
    if row.key is not None or push.key in {one.key for one in row.earlier}:
        return True  # a wrong one is counted as such
    if row.ghosts and (row.state is not State.DOUBT or len(row.earlier) > 0):
        return True  # decided by the caller, who knew that it may exist
    is_cut = len(row.candidates) >= 100  # the newest are kept; ours may stand below a crowd's
    return row.state is State.DOUBT and (is_cut or push.key in row.candidates)


# Many histories


@define
class Tally:
    """What many histories came to. *story*: what has led to the first violation."""

    histories: int = 0
    crashes: int = 0
    transmissions: int = 0
    listings: int = 0
    told: Counter[str] = Factory(Counter)
    violations: list[tuple[int, str]] = Factory(list)
    story: str = ""

    def add(self, history: History, found: Sequence[str]) -> None:
        self.histories += 1
        self.crashes += history.crashes
        self.transmissions += history.record.sent
        self.listings += history.listings
        self.told += history.told
        self.violations += [(history.seed, one) for one in found]
        if found and not self.story:
            self.story = history.told_story()


def simulate(seeds: range, workers: int, weather: dict[str, Any], stop_at: str | None) -> Tally:
    """Run the histories of these seeds, up to the first violation of the kind *stop_at*.

    *weather* overrides what the seed rolls.
    """
    tally, engine = Tally(), Engine()
    logging.disable(logging.CRITICAL)
    warnings.simplefilter("ignore")  # what dead processes leave behind
    sys.unraisablehook = lambda _: None  # likewise
    gc.disable()
    gc.freeze()  # what is there already is no garbage of a history
    for seed in seeds:
        rolled = Weather.roll(Random(f"weather {seed}"), workers)
        history = History(seed, evolve(rolled, **weather), engine)
        found = history.run()
        tally.add(history, found)
        if tally.histories % 50 == 0:
            gc.collect()
        if stop_at is not None and any(one.startswith(stop_at) for one in found):
            break
    return tally


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--histories", type=int, default=2000)
    parser.add_argument("--first-seed", type=int, default=0)
    parser.add_argument("--workers", type=int, default=1)
    parser.add_argument("--stop-at", help="end with the first violation that begins so")
    parser.add_argument("--weather", type=json.loads, default={}, help="overrides, as JSON")
    options = parser.parse_args()
    if os.environ.get("PYTHONHASHSEED") != "0":  # the order of a set is part of a history
        again = [sys.executable, "-m", "tests.proofs.simulator", *sys.argv[1:]]
        os.execve(sys.executable, again, {**os.environ, "PYTHONHASHSEED": "0"})  # noqa: S606 (our own arguments)
    began = time.perf_counter()
    seeds = range(options.first_seed, options.first_seed + options.histories)
    tally = simulate(seeds, options.workers, options.weather, options.stop_at)
    seconds = time.perf_counter() - began
    kinds = Counter(one.split(":")[0] for _, one in tally.violations)
    lines = [
        f"package: {integration_sdk.__file__}",
        f"{tally.histories} histories of {options.workers}, {tally.transmissions} transmissions, "
        f"{tally.crashes} crashes, {tally.listings} searches, {seconds:.1f} s",
        f"told: {dict(tally.told.most_common())}",
        f"violations: {len(tally.violations)} {dict(kinds)}",
        *(f"  {seed}: {one}" for seed, one in tally.violations[:40]),
        tally.story,
    ]
    sys.stdout.write("\n".join(lines) + "\n")
    sys.exit(1 if tally.violations else 0)


if __name__ == "__main__":
    main()
