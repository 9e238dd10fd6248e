"""A database: a table a type, merged by company and id, with the record and its flat columns.

Records and the unit's state are committed in one transaction, which names the state that it
replaces. A column is added when a field is met for the first time and never changes its type;
what does not fit is in ``<field>__json`` beside it. So no record can fail.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from hashlib import md5
from typing import Any, Final

import msgspec
from attrs import define, field

from integration_sdk._checks import needed
from integration_sdk._list.changes import MODIFIED
from integration_sdk._list.page import read_keys
from integration_sdk._pull.databases import DuckDb, Postgres
from integration_sdk._pull.unit import ATTEMPTS, Moved, State, Unit, Unusable, clean
from integration_sdk.errors import ConfigurationError

logger = logging.getLogger("integration_sdk.pull")
MOST_COLUMNS: Final = 300
"""As many as surely fit into a row of PostgreSQL; other fields are in the record only."""
LONGEST_NAME: Final = 63
LONGEST_ID: Final = 500
_OURS: Final = ("company", "connection", "id", "generation", "record")
_RESERVED: Final = {*_OURS, "xmin", "xmax", "cmin", "cmax", "ctid", "tableoid"}
_TYPES: Final = {
    "decimal128(38, 18)": "decimal(38, 18)",
    "bool": "boolean",
    "timestamp[us, tz=UTC]": "timestamptz",
}
_TABLES: Final = (
    "CREATE TABLE IF NOT EXISTS _pull_units (data_type text, company text, connection text,"
    " state text NOT NULL, PRIMARY KEY (data_type, company, connection))",
    "CREATE TABLE IF NOT EXISTS _pull_tables (data_type text PRIMARY KEY, learned text NOT NULL)",
)
_COMPANIES: Final = "SELECT DISTINCT company FROM _pull_units"
_UNIT: Final = "data_type = $1 AND company = $2 AND connection = $3"
_LEARNED: Final = "SELECT learned FROM _pull_tables WHERE data_type = $1"
_LEARN: Final = (
    "INSERT INTO _pull_tables VALUES ($1, $2)"
    " ON CONFLICT (data_type) DO UPDATE SET learned = excluded.learned"
)
_COLUMNS_OF: Final = (
    "SELECT column_name FROM information_schema.columns WHERE table_catalog = current_database()"
    " AND table_schema = current_schema() AND table_name = $1"
)


class Table(msgspec.Struct):
    """What is known of a type: kinds by field, and the columns for them with their types."""

    kinds: dict[str, str] = {}
    columns: dict[str, str] = {}


@define(eq=False)
class SqlSink:
    """Tables of a database."""

    _db: DuckDb | Postgres
    _one: asyncio.Lock = field(init=False, factory=asyncio.Lock)
    _tables: dict[str, Table] = field(init=False, factory=dict)

    def __attrs_post_init__(self) -> None:
        needed("pyarrow", "arrow", "a database as target")

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
        for attempt in range(ATTEMPTS):
            with suppress(Moved):
                async with self._connected() as db:
                    async with db.transaction():
                        await db.alone()
                        for statement in _TABLES:
                            await db.fetch(statement)
                    return {one for (one,) in await db.fetch(_COMPANIES)}
            await asyncio.sleep(0.1 * attempt)
        raise Unusable(f"the connection to {self} is lost again and again")

    async def begin(self, unit: Unit, *, full: bool) -> bool:
        """Take the unit, and load its state."""
        async with self._connected() as db:
            if unit.receipt.data_type not in self._tables:
                await self._make_table(unit.receipt.data_type)
            if not await db.take(str(unit)):
                return False
            found = await db.fetch(f"SELECT state FROM _pull_units WHERE {_UNIT}", *_key(unit))
            unit.session, unit.saved = db.session, found[0][0] if found else ""
            unit.state = msgspec.json.decode(unit.saved, type=State) if found else State()
            return True

    async def commit(self, unit: Unit, items: list[bytes], after: State) -> None:
        """Merge records and record the state, in one transaction."""
        data, written, data_type = None, 0, unit.receipt.data_type
        if items:
            unit.receipt.mended += await asyncio.to_thread(clean, items)
            data = await self._packed(data_type, items, unit.state.read)
        async with self._connected() as db:
            if unit.session != db.session:  # the lock went with the connection
                raise Moved
            async with db.transaction():
                if data is not None:
                    columns = ["id", "record", *map(quoted, self._tables[data_type].columns)]
                    await db.load(data, f"SELECT {', '.join(columns)} FROM {quoted(data_type)}")
                    written = await self._merge(unit, columns, after.generation)
                text = await self._record(unit, after)
        unit.receipt.rows += written
        unit.state, unit.saved = after, text

    async def _merge(self, unit: Unit, columns: list[str], generation: int) -> int:
        names = ", ".join(columns)
        update = ", ".join(f"{one} = excluded.{one}" for one in (*columns[1:], "generation"))
        written = await self._db.fetch(
            f"INSERT INTO {quoted(unit.receipt.data_type)} AS t"
            f" (company, connection, generation, {names})"
            f" SELECT $1, $2, {generation}, {names} FROM batch"
            f" ON CONFLICT (company, connection, id) DO UPDATE SET {update}"
            f" WHERE t.record::text <> excluded.record::text OR t.generation < {generation}"
            " RETURNING 1",
            *_key(unit)[1:],
        )
        return len(written)

    async def _record(self, unit: Unit, after: State) -> str:
        """Record *after* in place of the state that is known, and remove what it has not met."""
        db, key, text = self._db, _key(unit), msgspec.json.encode(after).decode()
        if unit.saved:
            update = f"UPDATE _pull_units SET state = $4 WHERE {_UNIT} AND md5(state) = $5"
            saved = md5(unit.saved.encode(), usedforsecurity=False).hexdigest()
            done = await db.fetch(f"{update} RETURNING 1", *key, text, saved)
        else:
            insert = "INSERT INTO _pull_units VALUES ($1, $2, $3, $4) ON CONFLICT DO NOTHING"
            done = await db.fetch(f"{insert} RETURNING 1", *key, text)
        if not done:
            raise Moved
        if after.is_live and not unit.state.is_live:
            older = f"company = $1 AND connection = $2 AND generation < {after.generation}"
            await db.fetch(f"DELETE FROM {quoted(key[0])} WHERE {older}", *key[1:])
        return text

    async def release(self, unit: Unit) -> None:
        """Let others have the unit."""
        if unit.session == self._db.session:
            with suppress(*self._db.errors):  # it goes with the connection
                async with self._one:
                    await self._db.give(str(unit))

    async def aclose(self) -> None:
        """Close the connection."""
        await self._db.close()

    # Tables

    async def _make_table(self, data_type: str) -> None:
        db, table, learned = self._db, quoted(data_type), Table()
        async with db.transaction():
            await db.alone()
            if found := await db.fetch(_COLUMNS_OF, data_type):
                if not {row[0] for row in found} >= {*_OURS}:
                    raise ConfigurationError(f"{self} has a table {table} that no pull made")
                if known := await db.fetch(_LEARNED, data_type):
                    learned = msgspec.json.decode(known[0][0], type=Table)
            else:
                await db.fetch(
                    f"CREATE TABLE {table} (company text, connection text, id text, generation int,"
                    " record json NOT NULL, PRIMARY KEY (company, connection, id))"
                )
                await db.fetch("DELETE FROM _pull_tables WHERE data_type = $1", data_type)
                forget = "DELETE FROM _pull_units WHERE data_type = $1 RETURNING 1"
                if gone := await db.fetch(forget, data_type):
                    what = "%s has lost its table %s; all %d units are read again"
                    logger.warning(what, self, table, len(gone))
        self._tables[data_type] = learned

    async def _packed(self, data_type: str, items: list[bytes], before: int) -> Any:
        """Return the records as Arrow table, with columns that the database has."""
        while True:  # again with what other processes have taught meanwhile
            known = self._tables[data_type]
            learned = Table(dict(known.kinds), dict(known.columns))
            data = await asyncio.to_thread(packed, items, learned, before)
            if learned == known:
                return data
            await self._learn(data_type, known, learned)

    async def _learn(self, data_type: str, known: Table, learned: Table) -> None:
        """Add columns, unless another process has done so since they were *known*."""
        table, view = quoted(data_type), quoted(f"{data_type}_view")
        async with self._connected() as db:
            async with db.transaction():
                await db.alone()
                found = await db.fetch(_LEARNED, data_type)
                latest = msgspec.json.decode(found[0][0], type=Table) if found else Table()
                if latest == known:
                    latest = learned
                    for name in learned.columns.keys() - known.columns.keys():
                        column = f"{quoted(name)} {learned.columns[name]}"
                        await db.fetch(f"ALTER TABLE {table} ADD COLUMN {column}")
                    await db.fetch(_LEARN, data_type, msgspec.json.encode(learned).decode())
                    names = ", ".join((*_OURS[:3], *map(quoted, learned.columns)))
                    await db.fetch(f"CREATE OR REPLACE VIEW {view} AS SELECT {names} FROM {table}")
            self._tables[data_type] = latest


def packed(items: list[bytes], learned: Table, before: int) -> Any:
    """Return an Arrow table of *items*, with the last record of each id, and learn its columns.

    A record without an id has its number in the list as id; *before* were read before these.
    """
    import pyarrow as pa  # noqa: PLC0415 - an extra

    from integration_sdk._records.columns import table  # noqa: PLC0415 - needs pyarrow

    flat = table(items, learned.kinds)
    for name, kind in zip(flat.column_names, map(str, flat.schema.types), strict=True):
        is_json = learned.kinds.get(name) == "json" or name.endswith("__json")
        is_usable = name.lower() not in _RESERVED and len(name.encode()) <= LONGEST_NAME
        if is_usable and len(learned.columns) < MOST_COLUMNS:
            learned.columns.setdefault(name, _TYPES.get(kind, "json" if is_json else "text"))
    ids: dict[str, int] = {}
    for n, key in enumerate(read_keys(items, MODIFIED)):
        id_ = f"(no id) {before + n}" if key.id is None else key.id.replace("\0", "")
        if len(id_) > LONGEST_ID:  # more than an index holds
            id_ = id_[:LONGEST_ID] + md5(id_.encode(), usedforsecurity=False).hexdigest()
        ids[id_] = n
    records = pa.array(items, pa.binary()).cast(pa.string())
    data = flat.select([name for name in flat.column_names if name in learned.columns])
    data = data.append_column("record", records).take(pa.array(ids.values(), pa.int64()))
    return data.append_column("id", pa.array(ids, pa.string()))


def quoted(name: str) -> str:
    """Return a name as SQL."""
    return '"' + name.replace('"', '""') + '"'


def _key(unit: Unit) -> tuple[str, str, str]:
    """Return what names the unit in our tables."""
    data_type, company_id, *below = unit.place
    return data_type, company_id, "/".join(filter(None, below))
