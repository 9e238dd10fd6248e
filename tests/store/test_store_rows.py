"""The promises of all three stores, checked against a model that has them in plain words."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from inspect import isawaitable
from itertools import count
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, TypeVar

import asyncpg
import pytest
from attrs import Factory, define
from hypothesis import HealthCheck, Phase, assume, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, rule, run_state_machine_as_test
from msgspec import structs

from integration_sdk._store.database import Postgres
from integration_sdk._store.memory import MemoryRows
from integration_sdk._store.postgres import PostgresRows
from integration_sdk._store.row import (
    SETTLED,
    Evidence,
    Fenced,
    KeyClaimed,
    Lane,
    Row,
    RowRefused,
    Snapshot,
    Stale,
    State,
    Verdict,
)
from integration_sdk._store.rows import Rows
from integration_sdk._store.sqlite import SqliteRows, SqliteThread
from tests.support.postgres import Server

T = TypeVar("T")

COMPANIES = ("acme", "b\0\ud800")
REFERENCES = (None, None, "INV-1", "INV-2", "INV-" + "9" * 6000)
KEYS = ("key-1", "key-2", "key-3", "k" * 5000, "k\ud800", "k\0")
STATUSES = ("Success", "Failed", "TimedOut")


@define
class Model:
    """What a store promises.

    keeps: Whether settled rows stay, and live ones after a release, and a reference is one push.
    """

    keeps: bool
    rows: dict[str, Row] = Factory(dict)  # by id, in the order of `add`
    keys: dict[str, str] = Factory(dict)  # who owns them
    owner: dict[str, int] = Factory(dict)  # worker by company
    thinks: set[tuple[int, str]] = Factory(set)  # workers that think to have the lease
    alive: set[int] = Factory(set)  # workers that have begun to renew their leases
    expired: set[int] = Factory(set)  # those of them whose leases may be taken

    def add(self, rows: Sequence[Row]) -> list[Row]:
        return [self._added(row) for row in rows]

    def _added(self, row: Row) -> Row:
        if row.id in self.rows:
            return self.rows[row.id]
        if (holder := self._holder(row.reference)) is not None:
            return holder
        self.rows[row.id] = row
        return row

    def _holder(self, reference: str | None) -> Row | None:
        if reference is None or not self.keeps:
            return None
        holders = (one for one in self.rows.values() if one.reference == reference)
        return next((one for one in holders if not one.is_superseded), None)

    def refusals(self, rows: Sequence[Row], add: Sequence[Row]) -> set[type[RowRefused]]:
        """Return why these rows are refused; nothing if they are not."""
        why: set[type[RowRefused]] = set()
        for row in rows:
            old = self.rows.get(row.id)
            if (
                old is None
                or old.version + 1 != row.version
                or (old.state is State.FINAL and end_of(old) != end_of(row))
            ):
                why.add(Stale)
            if row.key is not None and self.keys.get(row.key, row.id) != row.id:
                why.add(KeyClaimed)
        claims = [row.key for row in rows if row.key is not None]
        if len(claims) > len(set(claims)):
            why.add(KeyClaimed)
        freed = {row.id for row in rows if row.is_superseded}
        for row in add:
            holder = self._holder(row.reference)
            if row.id in self.rows or (holder is not None and holder.id not in freed):
                why.add(Stale)
        return why

    def put(self, rows: Sequence[Row], add: Sequence[Row]) -> None:
        for row in (*rows, *add):
            self.rows[row.id] = row
            if row.key is not None:
                self.keys[row.key] = row.id
            if row.state in SETTLED and not self.keeps:
                del self.rows[row.id]

    def take(self, worker: int, company: str) -> list[Row] | None:
        owner = self.owner.get(company, worker)
        if (worker, company) in self.thinks:
            return []
        self.alive.add(worker)
        if owner not in self.expired | {worker}:
            return None
        self.owner[company] = worker
        self.thinks.add((worker, company))
        live = (one for one in self.rows.values() if one.state not in SETTLED)
        return [one for one in live if one.company == company]

    def is_fenced(self, worker: int, rows: Sequence[Row]) -> bool:
        return any(
            (worker, row.company) not in self.thinks or self.owner.get(row.company) != worker
            for row in rows
        )

    def told_of_loss(self, worker: int, rows: Sequence[Row]) -> None:
        companies = {row.company for row in rows}
        if all((worker, one) in self.thinks for one in companies):  # else nobody had to look
            self.thinks -= {(worker, one) for one in companies if self.owner.get(one) != worker}

    def release(self, worker: int) -> None:
        self.owner = {one: other for one, other in self.owner.items() if other != worker}
        self.thinks = {one for one in self.thinks if one[0] != worker}
        self.alive.discard(worker)
        self.expired.discard(worker)
        if not self.keeps:
            self.rows.clear()


def end_of(row: Row) -> tuple[object, ...]:
    return row.state, row.key, row.status


def as_read(row: Row) -> Row:
    """Return a row as a store gives it back: the record only while its key is not known."""
    return row if row.key is None else structs.replace(row, payload=None)


class StoreMachine(RuleBasedStateMachine):
    """Any history of calls, made by *workers* of one scope."""

    workers = 1
    keeps = True

    def __init__(self) -> None:
        super().__init__()
        self.runner = asyncio.Runner()
        self.model = Model(self.keeps)
        self.made = 0
        self.snapshots = [Snapshot(frozenset(KEYS[:at]), id=f"snapshot-{at}") for at in range(3)]
        self.stores: list[Rows] = [self.run(self.open(one)) for one in range(self.workers)]

    async def open(self, worker: int) -> Rows:
        raise NotImplementedError

    async def close(self, worker: int) -> None:
        """End a worker as a program does that ends well."""
        await self.stores[worker].release()

    def teardown(self) -> None:
        for one in range(len(self.stores)):
            self.run(self.close(one))
        self.ended()
        self.runner.close()

    def ended(self) -> None:
        """Clean up when all workers have ended."""

    def run(self, work: Awaitable[T]) -> T:
        async def done() -> T:
            return await work

        return self.runner.run(done())

    def now(self, call: Callable[[], T | Awaitable[T]]) -> T:
        async def done() -> T:
            answer = call()
            return await answer if isawaitable(answer) else answer

        return self.runner.run(done())

    def new(self, company: str, reference: str | None) -> Row:
        self.made += 1
        lane = Lane(company, "connection", "invoices")
        return Row(f"row-{self.made}", lane, reference=reference, payload=b"{%d}" % self.made)

    # What may happen

    @rule(
        data=st.data(),
        wanted=st.lists(st.tuples(st.sampled_from(COMPANIES), st.integers(0, 4)), max_size=3),
        again=st.booleans(),
    )
    def add(self, data: Any, wanted: list[tuple[str, int]], again: bool) -> None:
        rows = [self.new(company, REFERENCES[at]) for company, at in wanted]
        if again and self.model.rows:
            rows.append(data.draw(st.sampled_from(list(self.model.rows.values()))))
        store = self.stores[data.draw(st.integers(0, self.workers - 1))]

        got = self.now(lambda: store.add(rows))

        assert [as_read(one) for one in got] == [as_read(one) for one in self.model.add(rows)]

    def next_version(self, data: Any, row: Row) -> Row:
        state = data.draw(st.sampled_from(State))
        facts: dict[str, Any] = {}
        if state is State.OPEN and row.key is None:
            facts = {"key": data.draw(st.sampled_from(KEYS)), "evidence": Evidence.OWN_ANSWER}
        if state is State.SENDING:
            facts = {"snapshot": data.draw(st.sampled_from(self.snapshots)), "attempts": 1}
        if state is State.DOUBT:
            facts = {"candidates": KEYS[:2], "verdict": Verdict.UNRESOLVED, "error": "odd \ud800"}
        if state is State.FINAL:
            facts = {"status": data.draw(st.sampled_from(STATUSES))}
        if (
            state in SETTLED | {State.CLOSED} and data.draw(st.booleans())
        ) or row.decision == "resend":
            facts["decision"] = "resend"
        moved = row.to(state, **facts)
        stale = data.draw(st.integers(0, 9))
        return structs.replace(moved, version=row.version) if stale == 0 else moved

    @initialize()
    def begin(self) -> None:
        rows = [self.new(company, REFERENCES[at]) for company in COMPANIES for at in range(1, 5)]
        self.now(lambda: self.stores[0].add(rows))
        self.model.add(rows)
        for company in COMPANIES:
            self.take(0, company)

    def write(
        self, worker: int, rows: Sequence[Row], add: Sequence[Row] = (), *, decides: bool = False
    ) -> None:
        refusals = self.model.refusals(rows, add)
        if self.workers > 1 and not decides and self.model.is_fenced(worker, rows):
            refusals.add(Fenced)
        store = self.stores[worker]
        try:
            self.now(lambda: store.decide(rows[0], add) if decides else store.put(rows, add))
        except RowRefused as error:
            assert type(error) in refusals  # noqa: PT017
            if isinstance(error, Fenced):
                self.model.told_of_loss(worker, rows)
        else:
            assert not refusals
            self.model.put(rows, add)

    def some(self, data: Any, most: int, *states: State) -> list[Row]:
        """Draw rows of one company, in these states if any is."""
        company = data.draw(st.sampled_from(COMPANIES))
        ours = [one for one in self.model.rows.values() if one.company == company]
        found = [one for one in ours if not states or one.state in states] or ours
        assume(found)
        rows = st.lists(st.sampled_from(found), min_size=1, max_size=most, unique_by=lambda o: o.id)
        return list(data.draw(rows))

    def acting(self, rows: Sequence[Row]) -> int:
        return self.model.owner.get(rows[0].company, 0)

    @rule(data=st.data())
    def step(self, data: Any) -> None:
        """What the rows' owner does, and puts that nobody should make."""
        olds = self.some(data, 3)
        rows = [self.next_version(data, old) for old in olds]
        self.write(self.acting(olds), rows)

    @rule(data=st.data(), worker=st.integers(0, 9), decides=st.booleans())
    def step_by_anybody(self, data: Any, worker: int, decides: bool) -> None:
        olds = self.some(data, 1 if decides else 3)
        add = []
        if data.draw(st.booleans()):
            add.append(self.new(olds[0].company, olds[-1].reference))
        rows = [self.next_version(data, old) for old in olds]
        self.write(worker % self.workers, rows, add, decides=decides)

    @rule(data=st.data())
    def claim_keys(self, data: Any) -> None:
        """Few keys, so that they meet."""
        olds = self.some(data, 2, State.QUEUED, State.SENDING, State.LOST, State.DOUBT)
        keys = [old.key or data.draw(st.sampled_from(KEYS)) for old in olds]
        pairs = zip(olds, keys, strict=True)
        self.write(self.acting(olds), [old.to(State.OPEN, key=key) for old, key in pairs])

    @rule(data=st.data(), status=st.sampled_from(STATUSES))
    def end(self, data: Any, status: str) -> None:
        """How a push ended never changes, but that it was sent once more."""
        (old,) = self.some(data, 1, State.FINAL, State.OPEN)
        decision = data.draw(st.sampled_from((old.decision, "resend")))
        self.write(self.acting([old]), [old.to(State.FINAL, status=status, decision=decision)])

    @rule(data=st.data())
    def send_once_more(self, data: Any) -> None:
        """Another row takes the reference; sometimes without leave."""
        (old,) = self.some(data, 1, State.DOUBT, State.REFUSED, State.FINAL)
        decision = data.draw(st.sampled_from((old.decision, "resend", "resend")))
        state = State.CLOSED if old.state is State.DOUBT else old.state
        add = [self.new(old.company, old.reference)]
        self.write(self.acting([old]), [old.to(state, decision=decision, key=old.key)], add)

    @rule(worker=st.integers(0, 9), company=st.sampled_from(COMPANIES))
    def take(self, worker: int, company: str) -> None:
        worker %= self.workers

        got = self.run(self.stores[worker].take(company))

        wanted = self.model.take(worker, company)
        assert got == (wanted and [as_read(one) for one in wanted])

    @rule(
        data=st.data(),
        worker=st.integers(0, 9),
        at=st.integers(0, 4),
        state=st.none() | st.sampled_from(State),
        live=st.booleans(),
    )
    def look(self, data: Any, worker: int, at: int, *, state: State | None, live: bool) -> None:
        store, reference = self.stores[worker % self.workers], REFERENCES[at]
        known = st.lists(st.sampled_from([*self.model.rows, "nobody"]), max_size=3)
        ids, company = data.draw(st.none() | known), data.draw(st.sampled_from((None, *COMPANIES)))

        got = self.run(
            store.rows(ids=ids, reference=reference, company=company, state=state, live=live)
        )

        assert got == [
            as_read(one)
            for one in self.model.rows.values()
            if (ids is None or one.id in ids)
            and reference in (None, one.reference)
            and company in (None, one.company)
            and state in (None, one.state)
            and not (live and one.state in SETTLED)
        ]
        found = {one.company for one in self.model.rows.values() if one.state not in SETTLED}
        assert sorted(self.run(store.companies())) == sorted(found)
        assert self.run(store.owners(KEYS)) == self.model.keys.keys() & {*KEYS}

    @rule(worker=st.integers(0, 9), ends=st.booleans())
    def leave(self, worker: int, ends: bool) -> None:
        """Give all back, or end and start anew."""
        worker %= self.workers
        if ends:
            self.run(self.close(worker))
            self.stores[worker] = self.run(self.open(worker))
        else:
            self.run(self.stores[worker].release())
        self.model.release(worker)


class Memory(StoreMachine):
    keeps = False

    def __init__(self) -> None:
        self.memory = MemoryRows(durable=self.keeps)
        super().__init__()

    async def open(self, worker: int) -> Rows:
        return self.memory


class DurableMemory(Memory):
    keeps = True


class File(StoreMachine):
    def __init__(self) -> None:
        self.folder = TemporaryDirectory()
        self.files: dict[int, SqliteThread] = {}
        super().__init__()

    async def open(self, worker: int) -> Rows:
        file = self.files[worker] = await SqliteThread.open(Path(self.folder.name, "db"), "scope")
        return SqliteRows(file)

    async def close(self, worker: int) -> None:
        await self.files[worker].close()

    def ended(self) -> None:
        self.folder.cleanup()


class Database(StoreMachine):
    workers = 2
    url = ""
    number = count()

    def __init__(self) -> None:
        self.databases = [Postgres(self.url, 30.0) for _ in range(self.workers)]
        self.scope = f"scope {next(self.number)}"  # of one database
        super().__init__()

    async def open(self, worker: int) -> Rows:
        return PostgresRows(self.databases[worker], self.scope)

    @rule(data=st.data())
    def freeze(self, data: Any) -> None:
        """All leases expire; somebody takes over, and who was frozen goes on as if he had not."""
        query = "UPDATE integration_sdk.workers SET until = '-infinity'"
        self.run(execute(self.url, query))
        self.model.expired = set(self.model.alive)
        olds = self.some(data, 2)
        before = self.acting(olds)
        self.take(1 - before, olds[0].company)
        if data.draw(st.booleans()):
            self.write(1 - before, [old.to(State.LOST) for old in olds])
            olds = [self.model.rows[old.id] for old in olds]
        self.write(before, [old.to(State.LOST) for old in olds])

    def ended(self) -> None:
        for one in self.databases:
            self.run(one.aclose())


async def new_database(postgres: Server) -> str:
    url = await postgres.new_database()
    database = Postgres(url, 30.0)
    await database.reserve("calls", 1, 1.0, 1)
    await database.aclose()
    await execute(url, STAYS_DEAD)
    return url


STAYS_DEAD = """
    CREATE FUNCTION stay_dead() RETURNS trigger LANGUAGE plpgsql AS
        $$BEGIN NEW.until := '-infinity'; RETURN NEW; END$$;
    CREATE TRIGGER stay_dead BEFORE UPDATE ON integration_sdk.workers FOR EACH ROW
        WHEN (OLD.until = '-infinity') EXECUTE FUNCTION stay_dead();
"""
"""A heart that beats on does not bring an expired lease back."""


async def execute(url: str, query: str) -> None:
    db = await asyncpg.connect(url)
    await db.execute(query)
    await db.close()


@pytest.fixture
def database(postgres: Server) -> type[StoreMachine]:
    class InDatabase(Database):
        url = asyncio.run(new_database(postgres))

    return InDatabase


@pytest.mark.parametrize("machine", [Memory, DurableMemory, File, None])
def test_a_store_keeps_its_promises(
    machine: type[Memory] | type[File] | None, request: pytest.FixtureRequest
) -> None:
    """Whatever is called in whatever order, all or none of it is recorded, a key and a reference
    have one owner, no version is overwritten unseen, and what is read is what was written.
    """
    examples = {Memory: 30, DurableMemory: 30, File: 20, None: 10}[machine]
    run_state_machine_as_test(
        machine or request.getfixturevalue("database"),
        settings=settings(
            max_examples=examples,
            stateful_step_count=40,
            deadline=None,
            phases=[Phase.generate],
            suppress_health_check=list(HealthCheck),
        ),
    )
