"""A PostgreSQL database: a table a type, merged by company and id; many writers.

A batch is copied as jsonb into a temporary table, where the server finds which fields it has and
of which types. Columns are added in statements of their own: two workers that write and then
both alter would wait for each other. Then records and the unit's state are committed in one
transaction, in which the token of the claim must still be the latest, so that a process that was
frozen meanwhile changes nothing. A database that is away, restarts or finds a deadlock is asked
again for a while: whatever is done here may be done twice.

Numbers are ``numeric``, dates ``timestamptz``, objects and lists ``jsonb``. A first read grows
batch by batch (``_integration_sdk_units.done``); a full one is collected in ``_staged_<type>``.
"""

from __future__ import annotations

import asyncio
import errno
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import suppress
from typing import Any, Final, TypeVar
from urllib.parse import urlsplit, urlunsplit

import msgspec
from attrs import define, field
from msgspec.structs import replace

from integration_sdk._checks import needed
from integration_sdk._pull.duckdb import OURS, key_of, quoted, staged_name, totals, totals_query
from integration_sdk._pull.receipts import Receipt
from integration_sdk._pull.sink import Found, Packed
from integration_sdk._pull.state import Unit
from integration_sdk._pull.unit import Sums, UnitState
from integration_sdk._records.old_columns import Columns, text_name
from integration_sdk._store.database import check_url, is_away
from integration_sdk._store.rows import fenced
from integration_sdk.errors import ConfigurationError, PullError

T = TypeVar("T")
_TABLES: Final = f"""
    CREATE TABLE IF NOT EXISTS {OURS}pull (one bool PRIMARY KEY DEFAULT true, id text NOT NULL);
    CREATE TABLE IF NOT EXISTS {OURS}tables (name text PRIMARY KEY);
    CREATE TABLE IF NOT EXISTS {OURS}units (
        data_type text, company text, token bigint NOT NULL, done bool NOT NULL DEFAULT false,
        state text, PRIMARY KEY (data_type, company)
    );
    CREATE TABLE IF NOT EXISTS {OURS}rejects (
        data_type text, company text, reason text, record text
    );
    CREATE TABLE IF NOT EXISTS {OURS}receipts (ended timestamptz, receipt jsonb);
"""
_SETTINGS: Final = {
    "TimeZone": "UTC",  # of dates without one
    "standard_conforming_strings": "on",  # or a backslash would end our quotes: see `_literal`
    "idle_in_transaction_session_timeout": "10s",  # a frozen process holds no locks
    "statement_timeout": "600s",
}
_PATIENCE: Final = 30.0
"""Seconds to ask a database again that has failed for the first time."""
_PAUSE: Final = 0.2
_HOLD_UP: Final = 2
"""Seconds to hold up those that read a table; more than a vacuum takes to give way."""
_ALTERS: Final = 150
"""How often to try that, with as many seconds between."""
_FAREWELL: Final = 5.0
"""Seconds to part from a connection in peace."""
_CONNECTIONS: Final = 4
_LONGEST_NAME: Final = 63
_LOCK: Final = 0x70756C6C
_YEAR_WITH_29_FEBRUARY: Final = r"(\d\d(0[48]|[2468][048]|[13579][26])|2000)"
_MOMENT: Final = (
    rf"^(\d{{4}}-((0[13578]|1[02])-(0[1-9]|[12]\d|3[01])|(0[469]|11)-(0[1-9]|[12]\d|30)"
    rf"|02-(0[1-9]|1\d|2[0-8]))|{_YEAR_WITH_29_FEBRUARY}-02-29)"
    r"T([01]\d|2[0-3]):[0-5]\d:[0-5]\d(\.\d+)?(Z|[+-](0\d|1[0-4]):[0-5]\d)?$"
)
"""Stricter than elsewhere: of a date that cannot be, the server would refuse the whole batch."""
_FIELDS: Final = f"""
    SELECT key, jsonb_typeof(value),
        bool_and(jsonb_typeof(value) = 'string' AND value #>> '{{}}' ~ '{_MOMENT}')
            FILTER (WHERE NOT key = ANY($1))
    FROM batch CROSS JOIN LATERAL jsonb_each(raw) WHERE jsonb_typeof(value) <> 'null'
        AND value <> '[]'
    GROUP BY 1, 2
"""
_TYPES: Final = {"number": "numeric", "boolean": "boolean", "string": "text"}
_RESERVED: Final = frozenset({"", "company", "id"})


def without_secrets(url: str) -> str:
    """Return the URL of a database without its password; it can be used, unlike a masked one."""
    parts = urlsplit(url)
    user, at, host = parts.netloc.rpartition("@")
    words = [word for word in parts.query.split("&") if "password" not in word.casefold()]
    rest = urlunsplit(("", "", parts.path, "&".join(words), parts.fragment))
    return f"{parts.scheme}://{user.partition(':')[0]}{at}{host}{rest}"  # also without a host


@define(eq=False)
class Postgres:
    """The database at *url*."""

    url: str = field(repr=without_secrets)
    format: str = "postgres"
    _asyncpg: Any = field(init=False)
    _pool: Any = field(init=False, default=None)
    _columns: dict[str, dict[str, str]] = field(init=False, factory=dict)
    """The types of the columns of each table, by name."""

    def __attrs_post_init__(self) -> None:
        self._asyncpg = needed("asyncpg", "postgres", "a PostgreSQL database")
        check_url(self.url)

    @property
    def target(self) -> str:
        """The URL, without a password."""
        return without_secrets(self.url)

    async def _do(self, work: Callable[[Any], Awaitable[T]]) -> T:
        """Do *work* with a connection, again while the database is away.

        Raises:
            OSError: Its disk is full.
            PullError: It refuses, or is away for too long.
        """
        now, failed = asyncio.get_running_loop().time, 0.0
        while True:
            try:
                db = await self._pool.acquire()
                try:
                    return await work(db)
                finally:
                    await self._pool.release(db, timeout=_FAREWELL)
            except self._asyncpg.DiskFullError as error:
                raise OSError(errno.ENOSPC, str(error)) from error
            except (
                self._asyncpg.PostgresError,
                self._asyncpg.InterfaceError,
                self._asyncpg.InternalClientError,
                OSError,
            ) as error:
                failed = failed or now()
                if not is_away(error) or now() >= failed + _PATIENCE:
                    raise PullError(f"{self.target} cannot be written: {error}") from error
            await asyncio.sleep(_PAUSE)

    async def open(self) -> str | None:
        """Return the id of the pull that has written here."""
        try:
            self._pool = await self._asyncpg.create_pool(
                self.url,
                min_size=0,  # else it complains in the log while the database is away
                max_size=_CONNECTIONS,
                command_timeout=610,  # of a server that does not even give up itself
                server_settings=_SETTINGS,
            )
            await self._pool.execute("SELECT")
        except (self._asyncpg.PostgresError, OSError, ValueError) as error:
            raise ConfigurationError(f"{self.target} cannot be opened: {error}") from None
        return await self._do(self._owner)

    async def _owner(self, db: Any) -> str | None:
        if await db.fetchval(f"SELECT to_regclass('{OURS}pull')") is None:
            return None
        found: str | None = await db.fetchval(f"SELECT id FROM {OURS}pull")
        return found

    async def introduce(self, pull: str) -> str:
        """Record the id of the *pull* that is going to write here; return whose place it is."""

        async def work(db: Any) -> str:
            async with db.transaction():
                # CREATE TABLE IF NOT EXISTS of two at once fails for one of them.
                await db.execute(f"SELECT pg_advisory_xact_lock({_LOCK})")
                await db.execute(_TABLES)
                insert = f"INSERT INTO {OURS}pull (id) VALUES ($1) ON CONFLICT DO NOTHING"
                await db.execute(insert, pull)
                return await self._owner(db) or pull

        return await self._do(work)

    async def begin(self, unit: Unit, *, full: bool) -> UnitState:
        """Take the unit in the database, too; return where it stands there."""
        query = (
            f"INSERT INTO {OURS}units (data_type, company, token) VALUES ($1, $2, $3)"
            " ON CONFLICT (data_type, company) DO UPDATE SET token = excluded.token"
            f" WHERE {OURS}units.token <= excluded.token RETURNING state"
        )

        async def work(db: Any) -> Any:
            await self._prepare(db, unit.data_type)
            return await db.fetchrow(query, *key_of(unit), unit.document.token)

        found = await self._do(work)
        if found is None:
            raise fenced(str(unit))
        if found["state"] is None:
            if unit.state.parts and not full:
                raise PullError(f"{self.target} lacks the records of {unit}; --full reads them")
            return UnitState()
        return _decoded(found["state"])

    async def _prepare(self, db: Any, data_type: str) -> None:
        """Make the tables of a type, or learn which columns they have now.

        Raises:
            ConfigurationError: There is one that no pull has made.
        """
        if data_type not in self._columns:
            await self._create(db, data_type)
        await self._learn(db, data_type)

    async def _create(self, db: Any, data_type: str) -> None:
        name, staged = quoted(data_type), quoted(staged_name(data_type))
        async with db.transaction():
            await db.execute(f"SELECT pg_advisory_xact_lock({_LOCK})")
            added = await db.execute(
                f"INSERT INTO {OURS}tables VALUES ($1) ON CONFLICT DO NOTHING", data_type
            )
            if added != "INSERT 0 0":
                if await db.fetchval("SELECT to_regclass($1)", name) is not None:
                    raise ConfigurationError(f"{self.target} has a table {name} that no pull wrote")
                for table in (name, staged):
                    await db.execute(f"CREATE TABLE {table} (company text NOT NULL, id text)")
                    await db.execute(f"CREATE UNIQUE INDEX ON {table} (company, id)")

    async def _learn(self, db: Any, data_type: str) -> None:
        found = await db.fetch(
            "SELECT attname, format_type(atttypid, NULL) AS kind FROM pg_attribute"
            " WHERE attrelid = to_regclass($1) AND attnum > 0 AND NOT attisdropped",
            quoted(data_type),
        )
        # Of two that ask at once, the one that hears last may know less.
        known = self._columns.setdefault(data_type, {})
        known.update((row["attname"], row["kind"]) for row in found)

    def pack(self, unit: Unit, items: list[bytes], columns: Columns) -> Packed:
        """Escape *items* for COPY."""
        # Within texts JSON escapes these; between tokens a space does as well.
        spaces = bytes.maketrans(b"\n\r\t", b"   ")
        lines = [item.replace(b"\\", b"\\\\").translate(spaces) for item in items]
        return Packed(content=lines, rows=len(lines), columns=columns)

    async def commit(self, unit: Unit, packed: Packed, after: UnitState) -> None:
        """Copy and merge the records, and record *after* in the same transaction."""
        await unit.save(await self._do(lambda db: self._commit(db, unit, packed, after)))

    async def _commit(self, db: Any, unit: Unit, packed: Packed, after: UnitState) -> UnitState:
        rejects: list[tuple[bytes, str]] = []
        if packed.rows:
            await db.execute(
                "CREATE TEMPORARY TABLE IF NOT EXISTS batch (n bigserial, raw jsonb NOT NULL)"
            )
            await db.execute("TRUNCATE batch RESTART IDENTITY")
            await self._copy(db, packed.content, rejects)
            await self._widen(db, unit.data_type)
        rejected = len(rejects)
        after = replace(after, rows=after.rows - rejected, rejects=after.rejects + rejected)
        async with db.transaction():
            if await self._has_state(db, unit, after):
                return after  # an earlier try, whose answer was lost
            await self._keep_state(db, unit, after)
            if after.generation != unit.state.generation:
                await self._drop_staged(db, unit)
            if packed.rows:
                is_staged = after.live not in {0, after.generation}
                table = staged_name(unit.data_type) if is_staged else unit.data_type
                await self._merge(db, table, unit)
            await db.executemany(
                f"INSERT INTO {OURS}rejects VALUES ($1, $2, $3, $4)",
                [(*key_of(unit), reason, _readable(record)) for record, reason in rejects],
            )
        return after

    async def _copy(
        self, db: Any, lines: Sequence[bytes], rejects: list[tuple[bytes, str]]
    ) -> None:
        """Copy *lines* into the temporary table; those that the server refuses are rejected."""

        async def source() -> AsyncIterator[bytes]:
            for start in range(0, len(lines), 500):
                yield b"\n".join(lines[start : start + 500]) + b"\n"

        try:
            await db.copy_to_table("batch", source=source(), columns=["raw"], format="text")
        except self._asyncpg.DataError as error:
            if len(lines) == 1:
                rejects.append((lines[0], str(error)))
                return
            half = len(lines) // 2
            await self._copy(db, lines[:half], rejects)
            await self._copy(db, lines[half:], rejects)

    async def _widen(self, db: Any, data_type: str) -> None:
        """Add the columns that the batch needs, to the table and to the staged one."""
        await db.execute("ANALYZE batch")
        have = self._columns[data_type]
        others = [name for name, kind in have.items() if kind != "timestamp with time zone"]
        for field_, kind, are_moments in await db.fetch(_FIELDS, others):
            if field_ == "id":
                continue
            column = _column(field_)
            if len(text_name(field_).encode()) > _LONGEST_NAME:
                raise PullError(f"{field_} is too long a name for a column of {self.target}")
            type_ = _TYPES.get(kind, "jsonb")
            if column not in have:
                new = "timestamptz" if are_moments else type_
                await self._add(db, data_type, column, "jsonb" if column != field_ else new)
            fits = have[column] in {type_, "jsonb"} or (
                are_moments and have[column] == "timestamp with time zone"
            )
            if not fits and text_name(field_) not in have:
                await self._add(db, data_type, text_name(field_), "jsonb")

    async def _add(self, db: Any, data_type: str, column: str, type_: str) -> None:
        """Add a column while nobody reads; who waits for that holds up new readers, too."""
        add = f"ADD COLUMN IF NOT EXISTS {quoted(column)} {type_}"
        for _ in range(_ALTERS):
            with suppress(self._asyncpg.LockNotAvailableError):
                async with db.transaction():  # to both tables, or none
                    await db.execute(f"SET LOCAL lock_timeout = '{_HOLD_UP}s'")
                    for table in (data_type, staged_name(data_type)):
                        await db.execute(f"ALTER TABLE {quoted(table)} {add}")
                # Another worker may have come first, with another type.
                return await self._learn(db, data_type)
            await asyncio.sleep(_HOLD_UP)
        raise PullError(f"{self.target} is locked by a long transaction: cannot {add}")

    async def _merge(self, db: Any, table: str, unit: Unit) -> None:
        values = {"company": "$1", "id": "raw->>'id'"}
        values |= _values(self._columns[unit.data_type])
        names = ", ".join(map(quoted, values))
        new = ", ".join(f"{quoted(name)} = excluded.{quoted(name)}" for name in values)
        await db.execute(
            f"INSERT INTO {quoted(table)} ({names}) SELECT {', '.join(values.values())} FROM ("
            "SELECT DISTINCT ON (coalesce(raw->>'id', n::text)) raw FROM batch"
            " ORDER BY coalesce(raw->>'id', n::text), n DESC"
            f") AS newest ON CONFLICT (company, id) DO UPDATE SET {new}",
            unit.company_id,
        )

    async def _drop_staged(self, db: Any, unit: Unit) -> None:
        staged = quoted(staged_name(unit.data_type))
        await db.execute(f"DELETE FROM {staged} WHERE company = $1", unit.company_id)

    async def finish(self, unit: Unit, after: UnitState) -> None:
        """Replace the company's rows by the staged ones, if the read was a full one."""
        await unit.save(await self._do(lambda db: self._finish(db, unit, after)))

    async def _finish(self, db: Any, unit: Unit, after: UnitState) -> UnitState:
        table = quoted(unit.data_type)
        query = (
            f"SELECT state FROM {OURS}units"
            " WHERE data_type = $1 AND company = $2 AND token = $3 FOR UPDATE"
        )
        async with db.transaction():
            found = await db.fetchval(query, *key_of(unit), unit.document.token)
            if found is None:
                raise fenced(str(unit))
            state = _decoded(found)
            if state.live not in {0, state.generation}:  # else it was done, and the answer lost
                names = ", ".join(map(quoted, self._columns[unit.data_type]))
                await db.execute(f"DELETE FROM {table} WHERE company = $1", unit.company_id)
                await db.execute(
                    f"INSERT INTO {table} ({names}) SELECT {names}"
                    f" FROM {quoted(staged_name(unit.data_type))} WHERE company = $1",
                    unit.company_id,
                )
                await self._drop_staged(db, unit)
            rows, sums = await self._totals(db, *key_of(unit))
            after = replace(after, rows=rows, sums=sums)
            await self._keep_state(db, unit, after)
        return after

    async def _totals(self, db: Any, data_type: str, company_id: str) -> tuple[int, Sums]:
        columns = self._columns[data_type]
        numbers = [name for name, kind in columns.items() if kind == "numeric"]
        has_currency = columns.get("currency") == "text"
        query = totals_query(quoted(data_type), numbers, has_currency=has_currency)
        return totals(await db.fetch(query, company_id), numbers)

    async def _has_state(self, db: Any, unit: Unit, state: UnitState) -> bool:
        query = (
            f"SELECT state FROM {OURS}units WHERE data_type = $1 AND company = $2 AND token = $3"
        )
        found = await db.fetchval(query, *key_of(unit), unit.document.token)
        return found is not None and _decoded(found) == state

    async def _keep_state(self, db: Any, unit: Unit, state: UnitState) -> None:
        changed = await db.execute(
            f"UPDATE {OURS}units SET state = $4, done = $5"
            " WHERE data_type = $1 AND company = $2 AND token = $3",
            *key_of(unit),
            unit.document.token,
            msgspec.json.encode(state).decode(),
            state.done,
        )
        if changed == "UPDATE 0":
            raise fenced(str(unit))

    async def keep(self, receipt: Receipt) -> None:
        """Write it to a table."""
        insert = (  # once, though an answer may be lost
            f"INSERT INTO {OURS}receipts SELECT $1, $2"
            f" WHERE NOT EXISTS (SELECT FROM {OURS}receipts WHERE ended = $1 AND receipt = $2)"
        )
        text = receipt.to_json().decode()
        await self._do(lambda db: db.execute(insert, receipt.ended, text))

    async def receipts(self) -> list[bytes]:
        """Return all receipts, in their order."""
        query = f"SELECT receipt FROM {OURS}receipts ORDER BY ended"
        found: list[Any] = await self._do(lambda db: db.fetch(query))
        return [row["receipt"].encode() for row in found]

    async def found(self, data_type: str, company_id: str, held: UnitState) -> Found:
        """Return what is in the table."""
        query = f"SELECT state FROM {OURS}units WHERE data_type = $1 AND company = $2"

        async def work(db: Any) -> Found:
            await self._prepare(db, data_type)
            state = _decoded(await db.fetchval(query, data_type, company_id))
            rows, sums = await self._totals(db, data_type, company_id)
            return Found(rows=rows, ids=rows, sums=sums, is_ahead=state.cursor != held.cursor)

        return await self._do(work)

    async def aclose(self) -> None:
        """Close the connections."""
        pool, self._pool = self._pool, None
        if pool is not None:
            with suppress(TimeoutError):
                async with asyncio.timeout(_FAREWELL):
                    await pool.close()


def _decoded(state: str) -> UnitState:
    return msgspec.json.decode(state, type=UnitState)


def _column(field_: str) -> str:
    is_taken = field_ in _RESERVED or field_.endswith("__json")
    return text_name(field_) if is_taken else field_


def _values(columns: dict[str, str]) -> dict[str, str]:
    """Return the SQL for the value of each column, by name."""
    values: dict[str, str] = {}
    for name, kind in columns.items():
        if name in _RESERVED:
            continue
        field_ = name.removesuffix("__json")
        is_text = name != field_
        beside = columns.get(field_)
        raw = f"raw->{_literal(field_)}"
        if is_text and beside is not None and _column(field_) == field_:
            # What the column beside cannot hold.
            values[name] = f"CASE WHEN NOT ({_fits(raw, field_, beside)}) THEN {raw} END"
        elif kind == "jsonb":
            values[name] = f"nullif({raw}, 'null')"
        else:
            values[name] = f"CASE WHEN {_fits(raw, field_, kind)} THEN {_cast(field_, kind)} END"
    return values


def _fits(raw: str, field_: str, kind: str) -> str:
    """Return the condition under which a column of *kind* can hold the field, or there is none."""
    if kind == "jsonb":
        return "true"
    json_kind = {"numeric": "number", "boolean": "boolean"}.get(kind, "string")
    condition = f"jsonb_typeof({raw}) = '{json_kind}'"
    if kind == "timestamp with time zone":
        condition += f" AND raw->>{_literal(field_)} ~ '{_MOMENT}'"
    return f"{raw} IS NULL OR jsonb_typeof({raw}) = 'null' OR ({condition})"


def _cast(field_: str, kind: str) -> str:
    text = f"raw->>{_literal(field_)}"
    if kind == "timestamp with time zone":  # cut to microseconds, where a cast would round
        text = rf"regexp_replace({text}, '(\.\d{{6}})\d+', '\1')"
    return f"({text})::{kind}"


def _literal(text: str) -> str:
    return "'" + text.replace("'", "''") + "'"


def _readable(line: bytes) -> str:
    return line.replace(b"\\\\", b"\\").decode(errors="replace").replace("\x00", "")
