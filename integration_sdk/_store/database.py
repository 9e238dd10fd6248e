"""Pushes in a PostgreSQL database: the journal of processes that have no disk of their own.

One process at a time carries the pushes, under a *lease* with a token that only grows. It renews
the lease as long as it lives, and gives it back when it ends; whoever finds it expired takes over,
and reads the rows then. Every commit checks the token in its own transaction. So a process that
was frozen, or cut off, writes nothing once another has taken over, whatever its clock says.
"""

from __future__ import annotations

import asyncio
import logging
import os
import socket
from collections.abc import Collection, Mapping, Sequence
from typing import Any, ClassVar, Final

from attrs import define, field
from msgspec import structs

from integration_sdk._store.postgres import Postgres
from integration_sdk._store.row import (
    IMMUTABLE,
    SETTLED,
    Evidence,
    Fenced,
    Intent,
    KeyClaimed,
    Lane,
    Owner,
    RowRefused,
    Snapshot,
    State,
    as_line,
    from_line,
)
from integration_sdk._store.waiting import to_the_end
from integration_sdk.errors import JournalError, JournalInUse

logger = logging.getLogger("integration_sdk.store")

LEASE: Final = 15.0
"""Seconds for which a lease is good. A process that dies is succeeded so much later."""
READING: Final = 5.0
"""Seconds that who merely looks waits for a database."""
ALL: Final = "*"
"""The scope of the one lease."""

_FACTS: Final = tuple(
    one.name
    for one in structs.fields(Intent)
    if one.name not in ("lane", "payload", "snapshot", "candidates")
)
_COLUMNS: Final = (*Lane._fields, *_FACTS, "candidates", "snapshot", "payload")
_NUMBERS: Final = {"version", "attempts", "http_status", "timeout_minutes"}
_UNCHANGED: Final = (*Lane._fields, *IMMUTABLE)
_STEPS: Final = tuple(one for one in _COLUMNS if one not in ("id", "payload", *_UNCHANGED))


def _type_of(column: str) -> str:
    return "bigint" if column in _NUMBERS else "bytea" if column == "payload" else "text"


def _same(columns: Collection[str]) -> str:
    ours = ", ".join(f"push.{one}" for one in columns)
    theirs = ", ".join(f"excluded.{one}" for one in columns)
    return f"({ours}) IS NOT DISTINCT FROM ({theirs})"


_ARRAYS: Final = ", ".join(f"${at}::{_type_of(one)}[]" for at, one in enumerate(_COLUMNS, 1))
# The row count says whether each row was as we expect it. An equal row was written by a commit of
# ours whose answer was lost.
_WRITE: Final = (
    f"INSERT INTO integration_sdk.pushes AS push ({', '.join(_COLUMNS)}) "  # noqa: S608 - our words
    f"SELECT * FROM unnest({_ARRAYS}) "
    f"ON CONFLICT (id) DO UPDATE SET {', '.join(f'{one} = excluded.{one}' for one in _STEPS)}, "
    f"payload = CASE WHEN excluded.state = ANY('{{{','.join(sorted(SETTLED))}}}') THEN NULL "
    "ELSE coalesce(push.payload, excluded.payload) END "
    f"WHERE {_same(_UNCHANGED)} AND (push.version < excluded.version OR {_same(_STEPS)}) "
    "AND (push.idempotency_key IS NOT DISTINCT FROM excluded.idempotency_key "
    f"OR (push.state = '{State.QUEUED}' AND push.http_status IS NOT NULL)) "
    f"AND (push.state <> '{State.FINAL}' OR {_same(('state', 'key', 'status'))})"
)
_READ: Final = (
    f"SELECT {', '.join(f'push.{one}' for one in _COLUMNS)}, shot.whole, shot.keys, shot.taken_at "  # noqa: S608
    "FROM integration_sdk.pushes AS push "
    "LEFT JOIN integration_sdk.snapshots AS shot ON shot.digest = push.snapshot "
)
_UNSETTLED: Final = f"WHERE state <> ALL('{{{','.join(sorted(SETTLED))}}}')"
_CLAIM: Final = """
    INSERT INTO integration_sdk.leases AS lease (scope, token, holder, until)
    VALUES ($1, 1, $2, clock_timestamp() + $3::float8 * interval '1 second')
    ON CONFLICT (scope) DO UPDATE
        SET token = lease.token + 1, holder = excluded.holder, until = excluded.until
        WHERE lease.until < clock_timestamp()
    RETURNING token
"""
_RENEW: Final = """
    UPDATE integration_sdk.leases SET until = clock_timestamp() + $3::float8 * interval '1 second'
    WHERE scope = $1 AND token = $2
"""
_HELD: Final = "SELECT 1 FROM integration_sdk.leases WHERE scope = $1 AND token = $2 FOR SHARE"
_HOLDER: Final = "SELECT holder FROM integration_sdk.leases WHERE scope = $1"


@define(eq=False)
class PostgresJournal:
    """The journal of whoever has the lease; created by `open`."""

    durable: ClassVar[bool] = True

    _database: Postgres
    _token: int
    store_payloads: bool = True
    _lost: str | None = None
    _renewing: asyncio.Task[None] | None = None
    _waiting: list[tuple[tuple[Intent, ...], asyncio.Future[None]]] = field(factory=list)
    _writing: asyncio.Task[None] | None = None

    @classmethod
    async def open(cls, database: Postgres) -> PostgresJournal:
        """Take the lease; wait for it as long as for a database that is away.

        Raises:
            JournalInUse: Another process has it.
            JournalError: The database cannot be reached, or refuses.
        """
        holder = f"process {os.getpid()} on {socket.gethostname()}"
        loop = asyncio.get_running_loop()
        until = loop.time() + database.patience
        while True:

            async def claim(db: Any) -> int | None:
                token: int | None = await db.fetchval(_CLAIM, ALL, holder, LEASE)
                return token

            token = await database.run(claim)
            if token is not None:
                journal = cls(database, token)
                journal._renewing = asyncio.create_task(
                    journal._renew(), name="integration_sdk lease"
                )
                return journal
            if loop.time() >= until:
                has_it = await database.run(lambda db: db.fetchval(_HOLDER, ALL))
                raise JournalInUse(
                    f"the pushes of {database} are carried by {has_it}: end that one first, or "
                    "give this one a database of its own"
                )
            await asyncio.sleep(min(1.0, max(0.0, until - loop.time())))

    async def _renew(self) -> None:
        while self._lost is None:
            await asyncio.sleep(LEASE / 5)
            try:
                answer = await self._database.run(
                    lambda db: db.execute(_RENEW, ALL, self._token, LEASE)
                )
            except JournalError as error:
                logger.warning("the lease on pushes could not be renewed: %s", error)
                continue  # whoever writes finds out whether it is lost
            if answer == "UPDATE 0":
                self._lose()

    def _lose(self) -> JournalError:
        self._lost = self._lost or "another process has taken over its pushes"
        return JournalError(f"{self._database} was not written: {self._lost}")

    # Writing

    async def commit(self, rows: Sequence[Intent]) -> None:
        """Make all of these rows durable, or none; commits of the same moment share a transaction.

        Raises:
            KeyClaimed: One of their push keys belongs to another push.
            JournalError: The rows were not written; what they describe must not be sent.
        """
        written: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._waiting.append((tuple(rows), written))
        if self._writing is None:
            self._write_on()
        await to_the_end(written)

    def _write_on(self) -> None:
        self._writing = asyncio.create_task(self._write_all(), name="integration_sdk journal")
        self._writing.add_done_callback(self._written)

    async def _write_all(self) -> None:
        while self._waiting:
            commits, self._waiting = self._waiting, []
            try:
                await self._write([row for rows, _ in commits for row in rows])
            except RowRefused as error:
                if len(commits) == 1:
                    _fail(commits, error)
                else:
                    await self._write_apart(commits)
            except JournalError as error:
                _fail(commits, error)
            except BaseException as error:
                _fail(commits, JournalError(f"the journal's writer broke: {error!r}"))
                raise
            else:
                for _, written in commits:
                    _tell(written)

    async def _write_apart(
        self, commits: Sequence[tuple[tuple[Intent, ...], asyncio.Future[None]]]
    ) -> None:
        for rows, written in commits:
            try:
                await self._write(rows)
            except JournalError as error:
                _fail([(rows, written)], error)
            else:
                _tell(written)

    def _written(self, writing: asyncio.Task[None]) -> None:
        self._writing = None
        if not writing.cancelled():
            writing.exception()  # told to whom it concerns
        if self._waiting:
            self._write_on()

    async def _write(self, rows: Sequence[Intent]) -> None:
        if self._lost is not None:
            raise self._lose()
        latest = {row.id: row for row in rows}  # one statement writes a row once
        if len(latest) < len(rows):
            raise RowRefused("two states of a push in one commit")
        shots = {row.snapshot.digest: row.snapshot for row in rows if row.snapshot}
        columns = list(zip(*(self._values(row) for row in rows), strict=True))

        async def write(db: Any) -> None:
            async with db.transaction():
                if await db.fetchval(_HELD, ALL, self._token) is None:
                    raise self._lose()
                if shots:
                    await db.executemany(
                        "INSERT INTO integration_sdk.snapshots VALUES ($1, $2, $3, $4) "
                        "ON CONFLICT (digest) DO NOTHING",
                        [_shot(one) for one in shots.values()],
                    )
                done = await db.execute(_WRITE, *columns)
                if int(done.rpartition(" ")[2]) < len(rows):
                    raise await _why(db, rows)

        try:
            await self._database.run(write)
        except JournalError as error:
            constraint = getattr(error.__cause__, "constraint_name", None)
            if constraint is None:
                raise
            kind = KeyClaimed if constraint == "pushes_key_key" else RowRefused
            raise kind(f"Refused by the journal: {error}") from error

    def _values(self, row: Intent) -> list[object]:
        facts = structs.asdict(row) | row.lane._asdict()
        facts["candidates"] = "\n".join(map(as_line, row.candidates))
        facts["snapshot"] = row.snapshot and row.snapshot.digest
        facts["payload"] = row.payload if self.store_payloads and not row.is_settled else None
        return [_storable(facts[one]) for one in _COLUMNS]

    # Reading

    async def rows(
        self, *, reference: str | None = None, intent: str | None = None
    ) -> list[Intent]:
        """Return all rows, or those of a reference or an intent, in the order of acceptance."""
        if intent is not None:
            return await self._rows("WHERE id = $1", intent)
        if reference is not None:
            return await self._rows("WHERE reference = $1", reference)
        return await self._rows("")

    async def claim(self) -> list[Intent]:
        """Return every row that is not settled."""
        return await self._rows(_UNSETTLED)

    async def _rows(self, which: str, *values: str) -> list[Intent]:
        query = f"{_READ} {which} ORDER BY number"
        found = await self._database.run(lambda db: db.fetch(query, *values))
        return [_intent(dict(one)) for one in found]

    async def owners(self, keys: Collection[str]) -> Mapping[str, str]:
        """Return which of these push keys have an owner: its intent's id, by key."""
        if not keys:
            return {}
        query = "SELECT key, id FROM integration_sdk.pushes WHERE key = ANY($1)"
        wanted = list(map(_storable, keys))
        return dict(await self._database.run(lambda db: db.fetch(query, wanted)))

    async def bind(self, owner: Owner) -> Owner:
        """Bind the pushes to *owner* if they have none; return whose they are."""
        return await self._database.bind(owner)

    async def close(self) -> None:
        """Finish pending work, and give the lease back."""
        if self._writing is not None:
            await asyncio.wait([self._writing])
        if self._renewing is not None:
            self._renewing.cancel()
            await asyncio.wait([self._renewing])
        if self._lost is None:
            self._lost = "it is closed"
            await self._database.run(lambda db: db.execute(_RENEW, ALL, self._token, -1.0))


async def read_all(url: str) -> list[Intent]:
    """Return all pushes of a database, in the order of acceptance; whoever carries them goes on.

    Raises:
        JournalError: The database cannot be reached, or refuses.
    """
    database = Postgres(url, READING)
    try:
        return await PostgresJournal(database, token=0, lost="it was opened to be read").rows()
    finally:
        await database.aclose()


def _fail(
    commits: Sequence[tuple[tuple[Intent, ...], asyncio.Future[None]]], error: JournalError
) -> None:
    for _, written in commits:
        if not written.done():
            written.set_exception(error)


def _tell(written: asyncio.Future[None]) -> None:
    if not written.done():
        written.set_result(None)


def _shot(one: Snapshot) -> tuple[str, bool, str, int | None]:
    return one.digest, one.whole, "\n".join(sorted(map(as_line, one.keys))), one.taken_at


async def _why(db: Any, rows: Sequence[Intent]) -> RowRefused:
    versions = dict(
        await db.fetch(
            "SELECT id, version FROM integration_sdk.pushes WHERE id = ANY($1)",
            [row.id for row in rows],
        )
    )
    stale = [row.id for row in rows if versions.get(row.id, -1) > row.version]
    if stale:
        return Fenced(f"Refused by the journal: intent {stale[0]} was changed meanwhile")
    return RowRefused("Refused by the journal: an intent is on record for another record")


def _storable(value: object) -> object:
    """Return *value* as the database can hold it: its texts have no NUL and no half characters."""
    if isinstance(value, str):
        return str(value).replace("\0", "").encode("utf-8", "replace").decode()
    return value


def _intent(row: dict[str, Any]) -> Intent:
    whole, keys, taken_at = row.pop("whole"), row.pop("keys"), row.pop("taken_at")
    lane = Lane(*(row.pop(name) for name in Lane._fields))
    if row["snapshot"] is not None:
        row["snapshot"] = Snapshot(frozenset(_lines(keys)), whole, taken_at)
    row["candidates"] = tuple(_lines(row["candidates"]))
    row["state"] = State(row["state"])
    row["evidence"] = row["evidence"] and Evidence(row["evidence"])
    return Intent(lane=lane, **row)


def _lines(text: str) -> list[str]:
    return [from_line(line) for line in text.split("\n") if line]
