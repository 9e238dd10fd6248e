"""A scope in a PostgreSQL database, for many processes on many hosts.

Anyone adds rows. Who takes them further has the *lease* of their company, under a token that only
grows, and every write checks the token in its own statement. A lease lasts as long as its holder's
heartbeat, and is given back when the holder ends. So a process that was frozen or cut off writes
nothing once another has taken over, whatever its clock says.
"""

from __future__ import annotations

import asyncio
import json
import logging
import os
import socket
from collections.abc import AsyncIterator, Collection, Iterable, Sequence
from contextlib import suppress
from typing import Any, Final
from uuid import uuid4

import msgspec
from attrs import define, field

from integration_sdk._store.database import Connection, Postgres, sqlstate
from integration_sdk._store.row import (
    SETTLED,
    Row,
    RowRefused,
    State,
    columns,
    from_document,
    indexed,
    is_hash,
    to_document,
    to_snapshot,
)
from integration_sdk._store.rows import Commit, Document, fenced, key_claimed, next_document, stale
from integration_sdk._store.waiting import to_the_end
from integration_sdk.errors import JournalError, fresh_copy

logger = logging.getLogger("integration_sdk.store")

LEASE: Final = 15.0
"""Seconds after its last heartbeat for which a process has its leases."""
POLL: Final = 5.0
"""Seconds between two looks for what no notification has told."""
_NOT_AS_EXPECTED: Final = {"22012", "23505"}
"""A row count by which we divide, and a unique index."""
_REFUSED: Final = {"22", "23", "54"}
"""Classes of SQLSTATE that say something of the values, not of the database."""
_MISSING_SNAPSHOT: Final = "23503"
PORTION: Final = 10_000
"""Rows that are read at once, so that a statement ends in time however many there are."""
SNAPSHOTS: Final = 64
"""New snapshots after which those that no row needs are dropped."""

_SETTLED: Final = str(tuple(sorted(map(str, SETTLED))))
_TOLD: Final = frozenset(State) - {State.QUEUED, State.SENDING, State.OPEN, State.LOST}
_IS_ALIVE: Final = """
    EXISTS (SELECT FROM workers WHERE workers.holder = {}.holder AND until > clock_timestamp())
"""
_BEAT: Final = """
    INSERT INTO workers VALUES ($1, clock_timestamp() + $2::float8 * interval '1 second')
    ON CONFLICT (holder) DO UPDATE SET until = excluded.until
"""
# The look before spares the lease, and who writes under it, the lock of a conflict: all processes
# ask at each change.
_CLAIM: Final = f"""
    INSERT INTO leases AS lease
    SELECT $1::text, $2::text, 1, $3::text WHERE NOT EXISTS (
        SELECT FROM leases AS held WHERE scope = $1 AND company = $2 AND holder <> $3
            AND {_IS_ALIVE.format("held")})
    ON CONFLICT (scope, company) DO UPDATE
        SET token = lease.token + 1, holder = excluded.holder
        WHERE lease.holder = excluded.holder OR NOT {_IS_ALIVE.format("lease")}
    RETURNING token
"""
_FREE: Final = "free"
_END: Final = f"""
    WITH gone AS (DELETE FROM workers WHERE holder = $1)
    SELECT pg_notify($2, $1 || E'\\n' || scope || E'\\n' || company || E'\\n{_FREE}')
    FROM leases WHERE holder = $1
"""
# Adds rows and puts next versions, all or none: a refusal is a division by zero. *kind* is 0 for a
# next version, 1 for a new row, 2 for one that may be there. $21: again, since the answer was lost;
# so what is on record as it should be was written by us.
_WRITE: Final = f"""
    WITH new AS (
        SELECT * FROM unnest($2::text[], $3::text[], $4::text[], $5::text[], $6::text[],
            $7::text[], $8::bigint[], $9::text[], $10::text[], $11::text[], $12::bytea[],
            $13::int[]) WITH ORDINALITY AS new (id, company, reference, key, state, status,
            version, decision, snapshot, document, payload, kind, at)
    ), held AS (
        SELECT company FROM leases WHERE scope = $1 AND (company, token) IN
            (SELECT * FROM unnest($17::text[], $18::bigint[])) ORDER BY company FOR SHARE
    ), shots AS (
        INSERT INTO snapshots SELECT * FROM unnest($19::text[], $20::text[]) ON CONFLICT DO NOTHING
    ), updated AS (
        UPDATE pushes SET key = new.key, state = new.state, status = new.status,
            version = new.version, decision = new.decision, snapshot = new.snapshot,
            document = new.document
        FROM new WHERE kind = 0 AND pushes.scope = $1 AND pushes.id = new.id
            AND (SELECT count(*) FROM held) = cardinality($17)
            AND (pushes.version = new.version - 1 AND (pushes.state <> '{State.FINAL}'
                    OR (pushes.state, pushes.key, pushes.status)
                    IS NOT DISTINCT FROM (new.state, new.key, new.status))
                OR $21 AND pushes.document = new.document)
        RETURNING number, pushes.state
    ), settled AS (
        DELETE FROM payloads
        WHERE number = ANY (ARRAY(SELECT number FROM updated WHERE state IN {_SETTLED}))
    ), inserted AS (
        INSERT INTO pushes (scope, id, company, reference, key, state, status, version, decision,
            snapshot, document, writer)
        SELECT $1, id, company, reference, key, state, status, version, decision, snapshot,
            document, $14
        FROM new WHERE kind > 0 AND
            (SELECT count(*) FROM updated) = (SELECT count(*) FROM new WHERE kind = 0)
        ORDER BY at ON CONFLICT DO NOTHING RETURNING number, id
    ), payload AS (
        INSERT INTO payloads SELECT number, payload FROM inserted JOIN new USING (id)
        WHERE kind > 0 AND payload IS NOT NULL
    ), there AS (
        SELECT id FROM inserted UNION
        SELECT new.id FROM new JOIN pushes ON $21 AND pushes.scope = $1 AND pushes.id = new.id
            AND pushes.document = new.document
    ), told AS (
        SELECT pg_notify($15, $14 || E'\\n' || $1 || E'\\n' || company)
        FROM unnest($16::text[]) AS told (company)
    )
    SELECT ARRAY(SELECT id FROM inserted), (SELECT count(*) FROM told), 1 / CASE
        WHEN (SELECT count(*) FROM updated) = (SELECT count(*) FROM new WHERE kind = 0)
        AND NOT EXISTS (SELECT FROM new WHERE kind = 1 AND id NOT IN (SELECT id FROM there))
        THEN 1 ELSE 0 END
"""
_DROP_SNAPSHOTS: Final = """
    DELETE FROM snapshots WHERE NOT EXISTS (SELECT FROM pushes WHERE snapshot = snapshots.id)
"""
_READ: Final = """
    SELECT document, snapshot, CASE WHEN key IS NULL
        THEN (SELECT payload FROM payloads WHERE number = pushes.number) END AS payload
    FROM pushes
"""
_OF_REFERENCE: Final = """
    (reference = ${0} AND decision IS DISTINCT FROM 'resend'
        OR reference = ${0} AND decision = 'resend')
"""
"""Two indexes have it, one for each."""
_LOOK: Final = f"""
    SELECT company FROM pushes AS push WHERE scope = $1 AND state NOT IN {_SETTLED} AND (
        company = ANY($2::text[]) AND state = '{State.QUEUED}' AND writer <> $3
        OR company = ANY($2::text[]) AND state = '{State.OPEN}' AND decision = 'bind'
        OR NOT EXISTS (SELECT FROM leases AS lease WHERE scope = $1
            AND lease.company = push.company AND {_IS_ALIVE.format("lease")}))
    GROUP BY company
"""
_CLAIM_DOCUMENT: Final = f"""
    INSERT INTO documents AS document VALUES ($1, $2, 0, 1, $3)
    ON CONFLICT (scope, name) DO UPDATE
        SET token = document.token + 1, holder = excluded.holder
        WHERE document.holder = excluded.holder OR NOT {_IS_ALIVE.format("document")}
    RETURNING name, version, token, body
"""
_WRITE_DOCUMENT: Final = """
    INSERT INTO documents AS document VALUES ($1, $2, $3 + 1, $4, NULL, $5)
    ON CONFLICT (scope, name) DO UPDATE SET version = excluded.version, body = excluded.body
        WHERE document.version = $3 AND $4 IN (0, document.token)
    RETURNING 1
"""


def _new_holder() -> str:
    return f"{socket.gethostname()} {os.getpid()} {uuid4().hex}"


@define(eq=False)
class Heart:
    """The heartbeat of one holder, on a connection of its own.

    Attributes:
        holder: Names it in the database; for people, too. Another one after each `stop`, so that
            what is still on record under the old name stays free.
    """

    database: Postgres
    holder: str = field(init=False, factory=_new_holder)
    _connection: Connection = field(init=False)
    _beating: asyncio.Task[None] | None = field(init=False, default=None)
    _stopped: asyncio.Event = field(init=False, factory=asyncio.Event)

    def __attrs_post_init__(self) -> None:
        self._connection = Connection(self.database)

    async def start(self) -> None:
        """Beat from now on; return after the first one."""
        if self._beating is None:
            await self._beat()
            self._stopped.clear()
            self._go_on()

    async def _beat(self) -> None:
        await self._connection.run(lambda db: db.execute(_BEAT, self.holder, LEASE))

    def _go_on(self, before: asyncio.Task[None] | None = None) -> None:
        """Beat on, also if somebody has cancelled the task."""
        if before is self._beating and not self._stopped.is_set():
            self._beating = asyncio.create_task(self._keep_beating(), name="integration_sdk lease")
            self._beating.add_done_callback(self._go_on)

    async def _keep_beating(self) -> None:
        while not self._stopped.is_set():
            with suppress(TimeoutError):
                async with asyncio.timeout(LEASE / 3):
                    await self._stopped.wait()
                    return
            try:
                await self._beat()
            except JournalError as error:
                logger.warning(
                    "leases could not be renewed; other processes may take over: %s", error
                )

    async def stop(self) -> None:
        """Give back all that the holder has, and tell others so."""
        beating, self._beating = self._beating, None
        if beating is None:
            return
        self._stopped.set()
        await asyncio.wait([beating])
        try:
            await self._connection.run(
                lambda db: db.execute(_END, self.holder, self.database.schema)
            )
        except JournalError as error:
            logger.warning("leases could not be released and will expire: %s", error)
        finally:
            self.holder = _new_holder()
            self._connection.close()


@define(eq=False)
class PostgresRows:
    """The rows of a scope, for one process; see `Rows`."""

    _database: Postgres
    _scope: str
    durable: bool = field(init=False, default=True)
    shared: bool = field(init=False, default=True)
    _heart: Heart = field(init=False)
    _tokens: dict[str, int] = field(init=False, factory=dict)  # by company as indexed
    _others: dict[str, float] = field(init=False, factory=dict)
    """Companies of others, as indexed, and until when another's lease is taken for granted: each
    worker hears of every push, and would ask for the lease each time."""
    _hears: bool = field(init=False, default=False)  # of leases that are given back, too
    _taking: asyncio.Lock = field(init=False, factory=asyncio.Lock)
    _snapshots: set[str] = field(init=False, factory=set)  # on record
    _waiting: list[tuple[Commit, asyncio.Future[Any]]] = field(init=False, factory=list)
    _writing: asyncio.Task[None] | None = field(init=False, default=None)
    _again: bool = field(init=False, default=False)  # what is written next may be on record

    def __attrs_post_init__(self) -> None:
        self._heart = Heart(self._database)

    # Writing

    def add(self, rows: Sequence[Row]) -> asyncio.Future[list[Row]]:
        """Record new rows; return for each itself, or the row that has its reference."""
        return self._commit(Commit(add=rows, joins=True))

    def put(self, rows: Sequence[Row], add: Sequence[Row] = ()) -> asyncio.Future[None]:
        """Record these next versions, and new rows, all or none."""
        columns = {indexed(row.company) for row in rows}
        return self._commit(
            Commit(rows, add, leased=True, tokens={one: self._tokens.get(one) for one in columns})
        )

    def decide(self, row: Row, add: Sequence[Row] = ()) -> asyncio.Future[None]:
        """`put` of one row, without the lease."""
        return self._commit(Commit([row], add))

    def _commit(self, commit: Commit) -> asyncio.Future[Any]:
        written: asyncio.Future[Any] = asyncio.get_running_loop().create_future()
        self._waiting.append((commit, written))
        if self._writing is None:
            self._start()
        return written

    def _start(self) -> None:
        self._writing = asyncio.create_task(self._write(), name="integration_sdk writer")
        self._writing.add_done_callback(self._wrote)

    async def _write(self) -> None:
        """Write what waits, all of one moment together, until nothing does."""
        while batch := list(self._waiting):
            answers = await self._answers([commit for commit, _ in batch])
            del self._waiting[: len(batch)]
            for (_, written), answer in zip(batch, answers, strict=True):
                if written.done():  # cancelled
                    continue
                if isinstance(answer, Exception):
                    written.set_exception(answer)
                else:
                    written.set_result(answer)

    def _wrote(self, writing: asyncio.Task[None]) -> None:
        """Start again if somebody has cancelled the task."""
        self._writing, self._again = None, writing.cancelled()
        if not writing.cancelled() and (error := writing.exception()) is not None:
            broken, self._waiting = self._waiting, []
            for _, written in broken:
                if not written.done():
                    written.set_exception(JournalError(f"The store's writer failed: {error!r}"))
        if self._waiting:
            self._start()

    async def _answers(self, commits: Sequence[Commit]) -> list[Any]:
        """Return an answer or an error for each; if any is refused, it concerns it alone."""
        try:
            return await self._written(commits)
        except RowRefused as error:
            if len(commits) == 1:
                return [error]
            return [(await self._answers([one]))[0] for one in commits]
        except JournalError as error:
            return [fresh_copy(error) for _ in commits]

    async def _written(self, commits: Sequence[Commit]) -> list[list[Row] | None]:
        leased = dict[str, int]()
        for company, token in (pair for one in commits for pair in one.tokens.items()):
            # A lease that was lost since and came back says nothing of what was decided before.
            if token is None or token != self._tokens.get(company):
                raise fenced(company)
            leased[company] = token
        held = [*leased], [*leased.values()]
        shots = {
            row.snapshot.id: to_document(row.snapshot)
            for one in commits
            for row in (*one.rows, *one.add)
            if row.snapshot is not None and row.snapshot.id not in self._snapshots
        }
        values = (*self._values(commits), *held, [*shots], [*shots.values()])
        again, self._again = self._again, False

        async def ask(db: Any) -> Any:
            nonlocal again
            before, again = again, True
            try:
                return await db.fetchrow(_WRITE, *values, before)
            except Exception as error:
                if sqlstate(error)[:2] in _REFUSED:
                    return error
                raise

        written = await self._database.writes.run(ask)
        if isinstance(written, Exception):
            if sqlstate(written) == _MISSING_SNAPSHOT:  # dropped by another process
                self._snapshots.clear()
                return await self._written(commits)
            raise await self._reason(commits[0], written)
        await self._remember(shots)
        for company in {indexed(row.company) for one in commits for row in one.add} - leased.keys():
            self._others.setdefault(company, 0.0)
        inserted = set(written[0])
        joining = [row for one in commits if one.joins for row in one.add]
        recorded = await self._recorded([row for row in joining if row.id not in inserted])
        return [
            [recorded.get(row.id, row) for row in one.add] if one.joins else None for one in commits
        ]

    def _values(self, commits: Sequence[Commit]) -> tuple[object, ...]:
        rows = [
            (row, kind)
            for one in commits
            for kind, some in ((0, one.rows), (2 if one.joins else 1, one.add))
            for row in some
        ]
        told = {
            indexed(row.company)
            for one in commits
            for row in (*one.rows, *one.add)
            if row.state in _TOLD or not one.leased
        }
        facts = ((*columns(row), row.payload if kind else None, kind) for row, kind in rows)
        arrays = map(list, zip(*facts, strict=True)) if rows else [[]] * 12
        return (self._scope, *arrays, self._heart.holder, self._database.schema, [*told])

    async def _reason(self, commit: Commit, error: Exception) -> RowRefused:
        """Return why *commit*, if it was alone, is refused."""
        first = (*commit.rows, *commit.add)[0]
        if getattr(error, "constraint_name", "") == "a_key_has_one_owner":
            return key_claimed(next((one.key for one in commit.rows if one.key), None))
        if sqlstate(error) not in _NOT_AS_EXPECTED:
            return RowRefused(f"{self._database} refuses {first}: {error}")
        companies = {indexed(one.company): one.company for one in commit.rows if commit.leased}
        query = "SELECT company, token FROM leases WHERE scope = $1 AND company = ANY($2)"
        found = dict(await self._fetch(query, [*companies]))
        lost = [one for one in companies if found.get(one) != self._tokens.get(one)]
        for column in lost:
            self._tokens.pop(column, None)
            self._others.setdefault(column, 0.0)
        return fenced(companies[lost[0]]) if lost else stale(first)

    async def _remember(self, shots: Collection[str]) -> None:
        self._snapshots.update(shots)
        if len(self._snapshots) >= SNAPSHOTS:
            self._snapshots.clear()
            await self._database.writes.run(lambda db: db.execute(_DROP_SNAPSHOTS))

    async def _recorded(self, rows: Sequence[Row]) -> dict[str, Row]:
        """Return what is on record by id: of each row itself, or what has its reference."""
        if not rows:
            return {}
        found = await self._read("id = ANY($2)", [row.id for row in rows])
        by_id = {row.id: row for row in found}
        others = [row for row in rows if row.id not in by_id]
        references = [row.reference and indexed(row.reference) for row in others]
        which = "reference = ANY($2) AND decision IS DISTINCT FROM 'resend'"
        holders = {row.reference: row for row in await self._read(which, references)}
        by_id |= {row.id: holders[row.reference] for row in others if row.reference in holders}
        left = [row for row in others if row.id not in by_id]  # given free meanwhile
        if left:
            (added,) = await self._written([Commit(add=left, joins=True)])
            by_id |= dict(zip((row.id for row in left), added or (), strict=True))
        return by_id

    # Reading

    async def _fetch(self, query: str, *values: object) -> list[Any]:
        found: list[Any] = await self._database.reads.run(
            lambda db: db.fetch(query, self._scope, *values)
        )
        return found

    async def _read(self, which: str, *values: object) -> list[Row]:
        found = await self._fetch(
            f"{_READ} WHERE scope = $1 AND {which} ORDER BY pushes.number", *values
        )
        needed = {row["snapshot"] for row in found} - {None}
        query = "SELECT document FROM snapshots WHERE $1 <> '' AND id = ANY($2)"
        shots = await self._fetch(query, [*needed]) if needed else []
        try:
            snapshots = {one.id: one for one in (to_snapshot(shot["document"]) for shot in shots)}
            return [
                from_document(row["document"], row["payload"], snapshots.get(row["snapshot"]))
                for row in found
            ]
        except (msgspec.MsgspecError, json.JSONDecodeError) as error:
            raise JournalError(f"{self._database} holds a damaged row: {error}") from error

    async def rows(
        self,
        *,
        ids: Collection[str] | None = None,
        reference: str | None = None,
        company: str | None = None,
        state: State | None = None,
        live: bool = False,
    ) -> list[Row]:
        """Return the rows for which all conditions hold, in the order of `add`."""
        conditions = {
            "id = ANY(${0})": None if ids is None else list(ids),
            _OF_REFERENCE: reference and indexed(reference),
            "company = ${0}": company and indexed(company),
        }
        given = {one: value for one, value in conditions.items() if value is not None}
        which = [one.format(at) for at, one in enumerate(given, 2)]
        which += [f"state = '{state}'"] if state else []  # not a parameter: as the index has it
        which += [f"state NOT IN {_SETTLED}"] if live else []
        if which:
            return await self._read(" AND ".join(which), *given.values())
        query = "SELECT min(number), max(number) FROM pushes WHERE scope = $1"
        ((first, last),) = await self._fetch(query)
        parts = range(first or 0, (last or 0) + 1, PORTION)
        return [
            row
            for start in parts
            for row in await self._read("number BETWEEN $2 AND $3", start, start + PORTION - 1)
        ]

    async def owners(self, keys: Collection[str]) -> set[str]:
        """Return which of these push keys have an owner."""
        if not keys:
            return set()
        by_column = {indexed(key): key for key in keys}
        query = "SELECT key FROM pushes WHERE scope = $1 AND key = ANY($2)"
        return {by_column[row["key"]] for row in await self._fetch(query, [*by_column])}

    async def companies(self) -> list[str]:
        """Return the companies that have live rows."""
        return await self._names(f"state NOT IN {_SETTLED}")

    async def _names(self, which: str, *values: object) -> list[str]:
        """Return the companies of the rows that meet a condition."""
        query = (
            "SELECT DISTINCT ON (company) company, document FROM pushes AS push"
            f" WHERE scope = $1 AND {which}"
        )
        return [from_document(row["document"]).company for row in await self._fetch(query, *values)]

    # Leases

    async def take(self, company: str) -> list[Row] | None:
        """Act for *company*, if no other live process does, and return its live rows."""
        column, now = indexed(company), asyncio.get_running_loop().time
        async with self._taking:
            if column in self._tokens:
                return []
            if self._others.get(column, 0.0) > now():
                return None
            await self._heart.start()
            values = self._scope, column, self._heart.holder
            token = await self._database.reads.run(lambda db: db.fetchval(_CLAIM, *values))
            if token is None:
                self._others[column] = now() + POLL if self._hears else 0.0
                return None
            self._tokens[column] = token
            try:
                return await self.rows(company=company, live=True)
            except BaseException:
                del self._tokens[column]  # so that the next call gets them
                raise

    async def news(self) -> AsyncIterator[str]:
        """Yield companies whose rows others have changed or left behind, for ever.

        What a notification does not tell is found by a look at the tables every few seconds.
        """
        listening, told, heard = Connection(self._database), set[str](), asyncio.Event()
        loop, listens = asyncio.get_running_loop(), None
        next_look = loop.time()

        def hear(_db: Any, _pid: int, _channel: str, text: str) -> None:
            self._hear(text, told, heard)

        async def look(db: Any) -> list[Any]:
            nonlocal listens
            if listens is not db:
                await db.add_listener(self._database.schema, hear)
                db.add_termination_listener(lambda _: heard.set())
                listens, self._hears = db, True
            found: list[Any] = await db.fetch(
                _LOOK, self._scope, [*self._tokens], self._heart.holder
            )
            return found

        try:
            while True:
                try:
                    if loop.time() >= next_look or listens is None or listens.is_closed():
                        found = [row["company"] for row in await listening.run(look)]
                        self._ask_again(found)
                        told.update(found)
                        told.update(self._others.keys() - self._tokens.keys())
                        next_look = loop.time() + POLL
                    batch = [*told]
                    names = await self._named(batch)
                except JournalError as error:
                    logger.warning("changes by other processes could not be read: %s", error)
                    await asyncio.sleep(POLL)
                    continue
                told.difference_update(batch)
                for name in names:
                    yield name
                if not told:
                    heard.clear()
                    with suppress(TimeoutError):
                        async with asyncio.timeout_at(next_look):
                            await heard.wait()
        finally:
            self._hears = False
            listening.close()

    def _hear(self, text: str, told: set[str], heard: asyncio.Event) -> None:
        """Note the company that a notification is about, if another process has changed it."""
        holder, scope, company, *is_free = text.split("\n")
        if holder == self._heart.holder or scope != self._scope:
            return
        if is_free:
            self._ask_again([company])
        told.add(company)
        heard.set()

    def _ask_again(self, columns: Iterable[str]) -> None:
        """Ask for these leases the next time: they may have become free."""
        for column in columns:
            if column in self._others:
                self._others[column] = 0.0

    async def _named(self, columns: Collection[str]) -> list[str]:
        hashed = [one for one in columns if is_hash(one)]
        names = await self._names("company = ANY($2)", hashed) if hashed else []
        return [*(one for one in columns if not is_hash(one)), *names]

    async def release(self) -> None:
        """Give all leases back, so that another process may act at once."""
        await to_the_end(asyncio.ensure_future(self._release()))

    async def _release(self) -> None:
        while self._writing is not None:
            await asyncio.wait([self._writing])
        async with self._taking:
            self._tokens.clear()
            self._others.clear()
            await self._heart.stop()
        if self._snapshots:
            self._snapshots.clear()
            with suppress(JournalError):  # another time
                await self._database.writes.run(lambda db: db.execute(_DROP_SNAPSHOTS))


@define(eq=False)
class PostgresDocuments:
    """Documents of a scope, for one process; see `Documents`."""

    _database: Postgres
    _scope: str
    _heart: Heart = field(init=False)
    _claimed: set[str] = field(init=False, factory=set)  # or being claimed, or given back
    _turning: asyncio.Lock = field(init=False, factory=asyncio.Lock)  # the heart on or off

    def __attrs_post_init__(self) -> None:
        self._heart = Heart(self._database)

    async def claim(self, name: str) -> Document | None:
        """Take the document, unless another live process or another pull of this one has it."""
        if name in self._claimed:
            return None
        # Before anything is awaited, so that nobody stops the heart who ends the only other claim.
        self._claimed.add(name)
        try:
            # To the end: what is broken off might be done behind what gives it back.
            found = await to_the_end(asyncio.ensure_future(self._claim(name)))
        except BaseException:
            await self.give_back([name])
            raise
        if not found:
            self._claimed.discard(name)
            return None
        return Document(*found[0])

    async def _claim(self, name: str) -> list[Any]:
        async with self._turning:
            await self._heart.start()
        return await self._fetch(_CLAIM_DOCUMENT, name, self._heart.holder)

    async def read(self, prefix: str) -> list[Document]:
        """Return all documents whose name begins so, by name."""
        query = (
            "SELECT name, version, 0 AS token, body FROM documents"
            ' WHERE scope = $1 AND starts_with(name, $2) ORDER BY name COLLATE "C"'
        )
        return [Document(*row) for row in await self._fetch(query, prefix)]

    async def write(self, document: Document, body: bytes) -> Document:
        """Record a new body; return the next version."""
        facts = self._scope, document.name, document.version, document.token, body
        attempts = 0

        async def put(db: Any) -> list[Any]:
            nonlocal attempts
            attempts += 1
            written: list[Any] = await db.fetch(_WRITE_DOCUMENT, *facts)
            return written

        if not await self._database.reads.run(put):
            query = (
                "SELECT name, version, token, body FROM documents WHERE scope = $1 AND name = $2"
            )
            (found,) = await self._fetch(query, document.name)
            recorded = Document(*found)
            ours = document._replace(version=document.version + 1, body=body)
            # Another process may have written the same; it was we only if an answer was lost.
            if attempts == 1 or recorded != ours._replace(token=ours.token or recorded.token):
                next_document(recorded, document, body)
        return document._replace(version=document.version + 1, body=body)

    async def give_back(self, names: Collection[str]) -> None:
        """End these claims, also if the caller is cancelled."""
        await to_the_end(asyncio.ensure_future(self._give_back(names)))

    async def _give_back(self, names: Collection[str]) -> None:
        query = (
            "UPDATE documents SET holder = NULL WHERE scope = $1 AND name = ANY($2) AND holder = $3"
        )
        async with self._turning:
            try:
                if self._claimed.difference(names):
                    await self._fetch(query, [*names], self._heart.holder)
                else:  # without its heart, a holder has nothing
                    await self._heart.stop()
            finally:
                self._claimed.difference_update(names)

    async def close(self) -> None:
        """End all claims."""
        await self.give_back([*self._claimed])

    async def _fetch(self, query: str, *values: object) -> list[Any]:
        found: list[Any] = await self._database.reads.run(
            lambda db: db.fetch(query, self._scope, *values)
        )
        return found
