"""A database: a table a type, merged by company and id, and a view of it with flat typed columns.

Records and the unit's state are committed in one transaction, which names the state that it
replaces. A view's columns are learned from the records and never change their type; what does not
fit one is in ``<field>__json`` beside it. So no record and no cast can fail.
"""

from __future__ import annotations

import asyncio
import logging
import re
from collections.abc import AsyncIterator, Iterable
from contextlib import asynccontextmanager, suppress
from decimal import Decimal
from hashlib import md5
from typing import Final

import msgspec
from attrs import define, field

from integration_sdk._pull.databases import MOMENT, PLAIN, DuckDb, Postgres, Row, quoted
from integration_sdk._pull.unit import Batch, Moved, State, Unit, Unusable
from integration_sdk.errors import ConfigurationError, IntegrationError

logger = logging.getLogger("integration_sdk.pull")
Columns = dict[str, tuple[str, str]]
"""Field and kind of each column of a view, in the order in which they were learned."""
LONGEST_NAME: Final = 63
MOST_COLUMNS: Final = 1_500
"""What PostgreSQL can show in a view; other fields are in the record only."""
LONGEST_ID: Final = 500
_RESERVED: Final = {"company", "source", "id", "xmin", "xmax", "cmin", "cmax", "ctid", "tableoid"}
_KINDS: Final = {b"{": "json", b"[": "json", b"t": "bool", b"f": "bool", b"n": "null"}
_is_moment: Final = re.compile(MOMENT.encode()).match
_is_plain: Final = re.compile(PLAIN.encode()).match
_has_long_number: Final = re.compile(rb"[\d.]{17}").search
_fields: Final = msgspec.json.Decoder(dict[str, msgspec.Raw]).decode
_TABLES: Final = (
    "CREATE TABLE IF NOT EXISTS _pull_units (data_type text, company text, source text,"
    " state text NOT NULL, PRIMARY KEY (data_type, company, source))",
    "CREATE TABLE IF NOT EXISTS _pull_columns (data_type text PRIMARY KEY, columns text NOT NULL)",
)
_UNIT: Final = "data_type = $1 AND company = $2 AND source = $3"
_LEARNED: Final = "SELECT columns FROM _pull_columns WHERE data_type = $1"
_LEARN: Final = (
    "INSERT INTO _pull_columns VALUES ($1, $2)"
    " ON CONFLICT (data_type) DO UPDATE SET columns = excluded.columns"
)
_COLUMNS_OF: Final = (
    "SELECT column_name FROM information_schema.columns WHERE table_catalog = current_database()"
    " AND table_schema = current_schema() AND table_name = $1 ORDER BY ordinal_position"
)


def kind_of(raw: bytes) -> str:
    """Return the kind of a field's value; "big" is a number that decimal(38, 18) cannot hold."""
    if raw[:1] == b'"':
        return "time" if len(raw) < 40 and _is_moment(raw[1:-1]) else "text"
    return _KINDS.get(raw[:1]) or ("number" if _is_plain(plain(raw)) else "big")


def plain(raw: bytes) -> bytes:
    """Return a number without exponent and idle zeros, if it is not too long for that."""
    if _is_plain(raw) or len(raw) > 80 or abs((number := Decimal(raw.decode())).adjusted()) > 99:
        return raw
    whole, _, fraction = f"{number:f}".partition(".")
    return f"{whole}.{fraction.rstrip('0')}".rstrip(".").encode()


def extended(columns: Columns, seen: Iterable[tuple[str, str]]) -> Columns:
    """Return *columns* with those beside that fields of these kinds need."""
    columns = dict(columns)
    kinds = {name: kind for name, kind in columns.values() if kind != "rest"}
    taken = _RESERVED | {column.lower() for column in columns}

    def add(column: str, name: str, kind: str) -> bool:
        fits = name and "\0" not in name and len(column.encode()) <= LONGEST_NAME
        if not fits or column.lower() in taken or len(columns) >= MOST_COLUMNS:
            return False
        columns[column] = name, kind
        taken.add(column.lower())
        return True

    for name, kind in seen:
        if name == "id" or kind == "null":
            continue
        if name not in kinds:
            kinds[name] = kind.replace("big", "number")
            if name.endswith("__json") or not add(name, name, kinds[name]):
                kinds[name] = "json"
                add(f"{name}__json", name, "json")
        own = kinds[name]
        if own not in {kind, "json"} and (own, kind) != ("text", "time"):
            add(f"{name}__json", name, "rest")
    return columns


def rows_of(batch: Batch, before: int) -> tuple[list[Row], dict[tuple[str, str], None]]:
    """Return a row for each id, of several records the last, and which fields have which kinds.

    A record without an id has its number in the list as id; *before* were read before these.
    """
    rows: dict[str, Row] = {}
    seen: dict[tuple[str, str], None] = {}
    keys = (key for page in batch.pages for key in page.keys)
    for n, (item, key) in enumerate(zip(batch.items, keys, strict=True), before):
        id_ = f"(no id) {n}" if key.id is None else key.id.replace("\0", "")
        if len(id_) > LONGEST_ID:  # more than an index holds
            id_ = id_[:LONGEST_ID] + md5(id_.encode(), usedforsecurity=False).hexdigest()
        exact = {}
        try:
            fields = _fields(item)
        except msgspec.MsgspecError:  # no object
            fields = {}
        for name, value in fields.items():
            kind = kind_of(raw := bytes(value))
            seen[name, kind] = None
            if kind == "number" and raw != (digits := plain(raw)):
                exact[name] = digits.decode()
            elif kind in {"number", "big", "json"} and _has_long_number(raw):
                exact[name] = raw.decode()
        rows[id_] = Row(id_, key.modified, item, msgspec.json.encode(exact) if exact else None)
    return list(rows.values()), seen


@define(eq=False)
class SqlSink:
    """Tables of a database."""

    _db: DuckDb | Postgres
    _one: asyncio.Lock = field(init=False, factory=asyncio.Lock)
    _columns: dict[str, Columns] = field(init=False, factory=dict)

    def __str__(self) -> str:
        return str(self._db)

    @asynccontextmanager
    async def _connected(self) -> AsyncIterator[DuckDb | Postgres]:
        async with self._one:
            try:
                await self._db.connect()
                yield self._db
            except self._db.errors as error:
                raise self._db.failure(error) from error

    async def open(self) -> set[str]:
        """Make our tables; return the ids of the companies whose records are there."""
        async with self._connected() as db:
            async with db.transaction():
                await db.alone()
                for statement in _TABLES:
                    await db.fetch(statement)
            return {row[0] for row in await db.fetch("SELECT DISTINCT company FROM _pull_units")}

    async def begin(self, unit: Unit, *, full: bool) -> bool:
        """Take the unit, and load its state."""
        async with self._connected() as db:
            if unit.place.data_type not in self._columns:
                await self._make_table(unit.place.data_type)
            if not await db.take(str(unit.place)):
                return False
            found = await db.fetch(f"SELECT state FROM _pull_units WHERE {_UNIT}", *_key(unit))
            unit.session, unit.saved = db.session, found[0][0] if found else ""
            unit.state = msgspec.json.decode(unit.saved, type=State) if found else State()
            return True

    async def commit(self, unit: Unit, batch: Batch, after: State) -> None:
        """Merge records and record the state, in one transaction."""
        mended = await asyncio.to_thread(batch.clean)
        rows, seen = await asyncio.to_thread(rows_of, batch, unit.state.read)
        async with self._connected() as db:
            if unit.session != db.session:  # the lock went with the connection
                raise Moved
            await self._learn(unit.place.data_type, seen)
            async with db.transaction():
                if rows:
                    mended += await db.load(rows)
                written = await self._merge(unit, after) if rows else 0
                text = await self._record(unit, after)
        unit.receipt.rows += written
        unit.receipt.mended += mended
        unit.state, unit.saved = after, text

    async def _merge(self, unit: Unit, after: State) -> int:
        names = ", ".join(("modified", "record", *self._db.more))
        update = ", ".join(f"{one} = excluded.{one}" for one in names.split(", "))
        written = await self._db.fetch(
            f"INSERT INTO {quoted(unit.place.data_type)} AS t"
            f" (company, source, id, generation, {names})"
            f" SELECT $1, $2, id, {after.generation}, {names} FROM batch"
            f" ON CONFLICT (company, source, id) DO UPDATE SET {update},"
            " generation = excluded.generation WHERE t.record IS DISTINCT FROM excluded.record"
            " OR t.generation < excluded.generation RETURNING 1",
            *_key(unit)[1:],
        )
        return len(written)

    async def _record(self, unit: Unit, after: State) -> str:
        """Record *after* in place of the state that is known, and remove what it has not met."""
        db, key, text = self._db, _key(unit), msgspec.json.encode(after).decode()
        if unit.saved:
            update = f"UPDATE _pull_units SET state = $4 WHERE {_UNIT} AND md5(state) = $5"
            done = await db.fetch(f"{update} RETURNING 1", *key, text, _hash(unit.saved))
        else:
            insert = "INSERT INTO _pull_units VALUES ($1, $2, $3, $4) ON CONFLICT DO NOTHING"
            done = await db.fetch(f"{insert} RETURNING 1", *key, text)
        if not done:
            raise Moved
        if after.is_live and not unit.state.is_live:
            table, older = quoted(unit.place.data_type), f"generation < {after.generation}"
            await db.fetch(
                f"DELETE FROM {table} WHERE company = $1 AND source = $2 AND {older}", *key[1:]
            )
        return text

    async def release(self, unit: Unit) -> None:
        """Let others have the unit."""
        if unit.session == self._db.session:
            with suppress(IntegrationError, Moved):  # it goes with the connection
                async with self._connected() as db:
                    await db.give(str(unit.place))

    async def aclose(self) -> None:
        """Close the connection."""
        await self._db.close()

    # Tables and views

    async def _make_table(self, data_type: str) -> None:
        db, table = self._db, quoted(data_type)
        more = "".join(f", {one} text" for one in db.more)
        async with db.transaction():
            await db.alone()
            if not await db.fetch(_COLUMNS_OF, data_type):
                await db.fetch(
                    f"CREATE TABLE {table} (company text, source text, id text, generation int,"
                    f" modified timestamptz, record {db.record} NOT NULL{more},"
                    " PRIMARY KEY (company, source, id))"
                )
                forget = "DELETE FROM _pull_units WHERE data_type = $1 RETURNING 1"
                if gone := await db.fetch(forget, data_type):
                    what = "%s has lost its table %s; all %d units are read again"
                    logger.warning(what, self, table, len(gone))
            if not {"record", "generation"} <= {
                row[0] for row in await db.fetch(_COLUMNS_OF, data_type)
            }:
                raise ConfigurationError(f"{self} has a table {table} that no pull made")
        self._columns[data_type] = {}
        await self._learn(data_type, {})

    async def _learn(self, data_type: str, seen: dict[tuple[str, str], None]) -> None:
        """Give the view the columns that are needed for what was *seen*."""
        db, known = self._db, self._columns[data_type]
        if seen and extended(known, seen) == known:
            return
        async with db.transaction():
            await db.alone()
            found = await db.fetch(_LEARNED, data_type)
            known = msgspec.json.decode(found[0][0], type=Columns) if found else {}
            columns = self._columns[data_type] = extended(known, seen)
            await db.fetch(_LEARN, data_type, msgspec.json.encode(columns).decode())
        view = f"{data_type}_view"
        names = ["company", "source", "id", *columns]
        if [row[0] for row in await db.fetch(_COLUMNS_OF, view)] == names:
            return
        kinds = {name: kind for name, kind in columns.values() if kind != "rest"}
        values = names[:3]
        for column, (name, kind) in columns.items():
            fits, value, rest = db.value(name, kinds.get(name, "json"))
            case = f"NOT ({fits}) THEN {rest}" if kind == "rest" else f"{fits} THEN {value}"
            values.append(f"CASE WHEN {case} END AS {quoted(column)}")
        select = f"SELECT {', '.join(values)} FROM {quoted(data_type)}"
        try:
            async with db.transaction():
                await db.alone()
                await db.fetch(f"CREATE OR REPLACE VIEW {quoted(view)} AS {select}")
        except db.errors as error:
            if isinstance(failure := db.failure(error), Unusable):
                raise failure from error
            # It is being read, or it is not ours. The records are what counts.
            logger.warning("%s lacks columns of the view %s: %s", self, view, error)


def _key(unit: Unit) -> tuple[str, str, str]:
    """Return what names the unit in our tables."""
    data_type, company_id, *source = unit.place
    return data_type, company_id, "/".join(filter(None, source))


def _hash(text: str) -> str:
    return md5(text.encode(), usedforsecurity=False).hexdigest()
