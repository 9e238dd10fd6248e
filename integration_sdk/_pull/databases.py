"""DuckDB and PostgreSQL: a connection to each, and what one says otherwise than the other.

PostgreSQL: all of a process goes through one connection, which holds an advisory lock for each unit
that is read. So what that connection commits, no other process has begun.
"""

from __future__ import annotations

import asyncio
import re
from collections.abc import AsyncIterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, Final, NamedTuple

import msgspec
from attrs import define, field

from integration_sdk._checks import needed
from integration_sdk._pull.unit import Moved, Unusable
from integration_sdk._store2.postgres import check_url, is_away, without_password
from integration_sdk.errors import ConfigurationError, PullError

_LEAP: Final = r"(\d\d(0[48]|[2468][048]|[13579][26])|([02468][48]|[13579][26]|[2468]0)00)"
MOMENT: Final = (
    r"^(((000[1-9]|00[1-9]\d|0[1-9]\d\d|[1-9]\d{3})-((0[13578]|1[02])-(0[1-9]|[12]\d|3[01])"
    rf"|(0[469]|11)-(0[1-9]|[12]\d|30)|02-(0[1-9]|1\d|2[0-8])))|{_LEAP}-02-29)"
    r"T([01]\d|2[0-3]):[0-5]\d:[0-5]\d(\.\d+)?(Z|[+-](0\d|1[0-4]):[0-5]\d)?$"
)
"""A time that both can read: a cast that fails would fail every query."""
PLAIN: Final = r"^-?\d{1,20}(\.\d{1,18})?$"
"""A number as decimal(38, 18) holds it."""
_PATIENCE: Final = 30.0
"""Seconds to wait for a database that has gone away."""
_LOCK: Final = 0x70756C6C
_NUL: Final = re.compile(rb"(?<!\\)((?:\\\\)*)\\u0000")
_SETTINGS: Final = """
    SET TimeZone = 'UTC'; SET standard_conforming_strings = on;
    SET statement_timeout = '300s'; SET idle_in_transaction_session_timeout = '10s';
    SET tcp_keepalives_idle = 60; SET tcp_keepalives_interval = 15; SET tcp_keepalives_count = 4;
    CREATE TEMPORARY TABLE batch (id text, modified timestamptz, record jsonb)
        ON COMMIT DELETE ROWS;
"""


class Row(NamedTuple):
    """A record to be stored; *exact*: its fields with numbers that a double does not hold."""

    id: str
    modified: str | None
    record: bytes
    exact: bytes | None


def quoted(name: str) -> str:
    """Return a name as SQL."""
    return '"' + name.replace('"', '""') + '"'


def literal(text: str) -> str:
    """Return a text as SQL."""
    return "'" + text.replace("'", "''") + "'"


def _in_utc(text: str) -> str:
    """Return the SQL of a time's text with a zone, cut to microseconds where a cast would round."""
    zoned = rf"regexp_replace({text}, '(T[0-9:.]+)$', '\1Z')"
    return rf"regexp_replace({zoned}, '(\.\d{{6}})\d+', '\1')"


@define(eq=False)
class DuckDb:
    """The database file *path*, which is one process's at a time."""

    path: Path
    session: int = 1
    record: str = "json"
    more: tuple[str, ...] = ("exact",)
    errors: tuple[type[Exception], ...] = field(init=False)
    _duckdb: Any = field(init=False)
    _db: Any = field(init=False, default=None)
    _thread: ThreadPoolExecutor = field(init=False)

    def __attrs_post_init__(self) -> None:
        self._duckdb = needed("duckdb", "duckdb", "a DuckDB database")
        needed("pyarrow", "duckdb", "a DuckDB database")
        self.errors = (self._duckdb.Error, OSError)
        self._thread = ThreadPoolExecutor(1, "duckdb")  # a connection is for one thread at a time

    def __str__(self) -> str:
        return str(self.path)

    async def _do(self, work: Any, *values: object) -> Any:
        return await asyncio.get_running_loop().run_in_executor(self._thread, work, *values)

    async def connect(self) -> None:
        if self._db is None:
            self._db = await self._do(self._connect)

    def _connect(self) -> Any:
        self.path.parent.mkdir(parents=True, exist_ok=True)
        db = self._duckdb.connect()
        try:  # a version that DuckDB 1.x reads
            db.execute(f"ATTACH {literal(str(self.path))} AS target (STORAGE_VERSION 'v1.0.0')")
        except self._duckdb.Error as error:
            raise ConfigurationError(f"{self} cannot be opened: {error}") from None
        db.execute("USE target")
        return db

    def failure(self, error: Exception) -> Exception:
        """Return the error of ours that stands for one of the database's."""
        return Unusable(f"{self} cannot be written: {error}")

    async def fetch(self, query: str, *values: object) -> list[tuple[Any, ...]]:
        def work() -> list[tuple[Any, ...]]:
            rows: list[tuple[Any, ...]] = self._db.execute(query, values).fetchall()
            return rows

        return await self._do(work)  # type: ignore[no-any-return]

    @asynccontextmanager
    async def transaction(self) -> AsyncIterator[None]:
        await self.fetch("BEGIN")
        try:
            yield
            await self.fetch("COMMIT")
        except BaseException:
            await self.fetch("ROLLBACK")
            raise

    async def load(self, rows: list[Row]) -> int:
        return await self._do(self._load, rows)  # type: ignore[no-any-return]

    def _load(self, rows: list[Row]) -> int:
        import pyarrow as pa  # noqa: PLC0415 - an extra

        texts = [pa.array(column, pa.string()) for column in zip(*rows, strict=True)]
        self._db.register("given", pa.table(texts, names=Row._fields))
        self._db.execute(
            "CREATE OR REPLACE TEMPORARY TABLE batch AS SELECT id,"
            " TRY_CAST(modified AS timestamptz) AS modified, coalesce(TRY_CAST(record AS json),"
            " json_object('id', id, 'unreadable', record)) AS record, exact FROM given"
        )
        odd = "SELECT count(*) FROM given WHERE TRY_CAST(record AS json) IS NULL"
        return int(self._db.execute(odd).fetchall()[0][0])

    async def take(self, name: str) -> bool:
        """Take a unit: the file is this process's."""
        return True

    async def give(self, name: str) -> None:
        """Give a unit back."""

    async def alone(self) -> None:
        """Make tables and views: no other process can."""

    def value(self, name: str, kind: str) -> tuple[str, str, str]:
        at = literal("/" + name.replace("~", "~0").replace("/", "~1"))
        type_ = f"json_type(record, {at})"
        text = f"coalesce(exact->>{at}, record->>{at})"
        json = f"coalesce(CAST(exact->>{at} AS json), nullif(record->{at}, 'null'))"
        number = f"TRY_CAST({text} AS decimal(38, 18))"
        fits, value = {
            "number": (
                f"{type_} IN ('BIGINT', 'UBIGINT', 'HUGEINT', 'DOUBLE') AND {number} IS NOT NULL"
                f" AND regexp_matches(coalesce(exact->>{at}, '0'), {literal(PLAIN)})",
                number,
            ),
            "bool": (f"{type_} = 'BOOLEAN'", f"TRY_CAST({text} AS boolean)"),
            "text": (f"{type_} = 'VARCHAR'", text),
            "time": (
                f"{type_} = 'VARCHAR' AND regexp_matches({text}, {literal(MOMENT)})",
                f"TRY_CAST({_in_utc(text)} AS timestamptz)",
            ),
            "json": ("true", json),
        }[kind]
        return fits, value, json

    async def close(self) -> None:
        if self._db is not None:
            await self._do(self._db.close)
        self._thread.shutdown()


@define(eq=False)
class Postgres:
    """The database at *url*."""

    url: str = field(repr=without_password)
    session: int = 0
    record: str = "jsonb"
    more: tuple[str, ...] = ()
    errors: tuple[type[Exception], ...] = field(init=False)
    _asyncpg: Any = field(init=False)
    _db: Any = field(init=False, default=None)

    def __attrs_post_init__(self) -> None:
        self._asyncpg = pg = needed("asyncpg", "postgres", "a PostgreSQL database")
        check_url(self.url)
        self.errors = (pg.PostgresError, pg.InterfaceError, pg.InternalClientError, OSError)

    def __str__(self) -> str:
        return without_password(self.url)

    async def connect(self) -> None:
        """Connect if there is no connection; wait for a database that has gone away."""
        if self._db is not None and not self._db.is_closed():
            return
        now = asyncio.get_running_loop().time
        until, wait = now() + (_PATIENCE if self.session else 0.0), 0.1
        while True:
            try:
                self._db = await self._asyncpg.connect(
                    self.url,
                    timeout=10.0,
                    command_timeout=310.0,  # of a server that does not even give up itself
                    target_session_attrs="read-write" if "," in self.url else None,
                )
                await self._db.execute(_SETTINGS)
            except (
                self._asyncpg.PostgresError,
                self._asyncpg.InterfaceError,
                OSError,
                ValueError,
            ) as error:
                if isinstance(error, ValueError) or not is_away(error):
                    raise ConfigurationError(f"{self} cannot be opened: {error}") from None
                if now() >= until:
                    raise Unusable(f"{self} cannot be reached: {error}") from None
            else:
                self.session += 1
                return
            await asyncio.sleep(wait)
            wait = min(2 * wait, 2.0)

    def failure(self, error: Exception) -> Exception:
        """Return the error of ours that stands for one of the database's."""
        pg = self._asyncpg
        if isinstance(error, pg.DiskFullError):
            return Unusable(f"no space left for {self}: {error}")
        if isinstance(error, pg.InsufficientPrivilegeError):
            return ConfigurationError(
                f"{self}: {error}; its role must be allowed to CREATE tables in the schema, and "
                "TEMPORARY ones, and to read and write those of the pull"
            )
        if not isinstance(error, pg.PostgresError):  # whether it was done is not known
            self._db.terminate()
        return Moved() if is_away(error) else PullError(f"{self} reports: {error}")

    async def fetch(self, query: str, *values: object) -> Sequence[Sequence[Any]]:
        rows: Sequence[Sequence[Any]] = await self._db.fetch(query, *values)
        return rows

    def transaction(self) -> Any:
        return self._db.transaction()

    async def load(self, rows: list[Row]) -> int:
        """Copy *rows* into the batch; return how many could not be stored as they are."""
        changed = sum(_NUL.search(row.record) is not None for row in rows)
        return changed + await self._copy(rows)

    async def _copy(self, rows: list[Row]) -> int:
        pg = self._asyncpg
        try:
            async with self._db.transaction():  # a savepoint
                await self._db.copy_to_table("batch", source=_lines(rows), format="text")
        except (pg.DataError, pg.ProgramLimitExceededError):
            if len(rows) > 1:
                half = len(rows) // 2
                return await self._copy(rows[:half]) + await self._copy(rows[half:])
            text = rows[0].record.decode(errors="replace")
            record = msgspec.json.encode({"id": rows[0].id, "unreadable": text})
            return 1 + await self._copy([Row(rows[0].id, None, record, None)])
        return 0

    async def take(self, name: str) -> bool:
        found = await self.fetch("SELECT pg_try_advisory_lock(hashtextextended($1, 0))", name)
        return bool(found[0][0])

    async def give(self, name: str) -> None:
        await self.fetch("SELECT pg_advisory_unlock(hashtextextended($1, 0))", name)

    async def alone(self) -> None:
        """Wait until no other process makes tables and views, until the transaction ends."""
        await self.fetch("SET LOCAL lock_timeout = '10s'")
        await self.fetch(f"SELECT pg_advisory_xact_lock({_LOCK})")

    def value(self, name: str, kind: str) -> tuple[str, str, str]:
        text, json = f"record->>{literal(name)}", f"nullif(record->{literal(name)}, 'null')"
        type_ = f"jsonb_typeof({json})"
        fits, value = {
            "number": (f"{type_} = 'number'", f"({text})::numeric"),
            "bool": (f"{type_} = 'boolean'", f"({text})::boolean"),
            "text": (f"{type_} = 'string'", text),
            "time": (
                f"{type_} = 'string' AND {text} ~ {literal(MOMENT)}",
                f"({_in_utc(text)})::timestamptz",
            ),
            "json": ("true", json),
        }[kind]
        return fits, value, json

    async def close(self) -> None:
        if self._db is not None:
            self._db.terminate()


async def _lines(rows: list[Row]) -> AsyncIterator[bytes]:
    # Within texts JSON escapes these; between tokens a space does as well.
    spaces = bytes.maketrans(b"\n\r\t", b"   ")
    for start in range(0, len(rows), 500):
        lines = []
        for id_, modified, record, _ in rows[start : start + 500]:
            text = _NUL.sub(rb"\1", record) if b"\\u0000" in record else record
            key = msgspec.json.encode(id_)[1:-1].replace(b'\\"', b'"')
            lines.append(
                b"\t".join(
                    (
                        key,
                        (modified or "\\N").encode(),
                        text.replace(b"\\", b"\\\\").translate(spaces),
                    )
                )
            )
        yield b"\n".join(lines) + b"\n"
