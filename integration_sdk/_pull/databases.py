"""DuckDB and PostgreSQL: a connection to each, and what one says otherwise than the other.

PostgreSQL: all of a process goes through one connection, which holds an advisory lock for each unit
that is read. So what that connection commits, no other process has begun.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import asynccontextmanager, suppress
from io import BytesIO
from pathlib import Path
from typing import Any, Final

from attrs import define, field

from integration_sdk._checks import needed
from integration_sdk._pull.unit import Moved, Unusable
from integration_sdk._store.postgres import check_url, is_away, without_password
from integration_sdk.errors import ConfigurationError, PullError

_PATIENCE: Final = 30.0
"""Seconds to wait for a database that has gone away."""
_LOCK: Final = 0x70756C6C
_ESCAPES: Final = (("\\", r"\\"), ("\n", r"\n"), ("\r", r"\r"), ("\t", r"\t"), ("\0", ""))
_SETTINGS: Final = """
    SET TimeZone = 'UTC'; SET standard_conforming_strings = on;
    SET statement_timeout = '300s'; SET idle_in_transaction_session_timeout = '10s';
    SET tcp_keepalives_idle = 60; SET tcp_keepalives_interval = 15; SET tcp_keepalives_count = 4;
"""


@define(eq=False)
class DuckDb:
    """The database file *path*, which is one process's at a time."""

    path: Path
    session: int = 1
    errors: tuple[type[Exception], ...] = field(init=False)
    _duckdb: Any = field(init=False)
    _db: Any = field(init=False, default=None)
    _thread: ThreadPoolExecutor = field(init=False)

    def __attrs_post_init__(self) -> None:
        self._duckdb = needed("duckdb", "duckdb", "a DuckDB database")
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
        db, place = self._duckdb.connect(), str(self.path).replace("'", "''")
        version = "" if self.path.exists() else "(STORAGE_VERSION 'v1.0.0')"  # for DuckDB 1.x
        try:
            db.execute(f"ATTACH '{place}' AS target {version}")
        except self._duckdb.Error as error:
            raise PullError(f"{self} cannot be opened: {error}") from None
        db.execute("USE target")
        return db

    def failure(self, error: Exception) -> Exception:
        """Return the error of ours that stands for one of the database's."""
        return Unusable(f"{self} cannot be written: {error}")

    async def fetch(self, query: str, *values: object) -> list[tuple[Any, ...]]:
        rows: list[tuple[Any, ...]] = await self._do(
            lambda: self._db.execute(query, values).fetchall()
        )
        return rows

    @asynccontextmanager
    async def transaction(self) -> AsyncIterator[None]:
        await self.fetch("BEGIN")
        try:
            yield
            await self.fetch("COMMIT")
        except BaseException:
            with suppress(self._duckdb.Error):  # a COMMIT that failed has ended it
                await self.fetch("ROLLBACK")
            raise

    async def load(self, data: Any, like: str) -> None:
        """Put *data*, an Arrow table, into the temporary table ``batch``, with columns *like*."""
        await self.fetch(f"CREATE OR REPLACE TEMPORARY TABLE batch AS {like} LIMIT 0")
        await self._do(self._db.register, "loaded", data)
        await self.fetch("INSERT INTO batch BY NAME SELECT * FROM loaded")
        await self._do(self._db.unregister, "loaded")

    async def take(self, name: str) -> bool:
        """Take a unit: the file is this process's."""
        return True

    async def give(self, name: str) -> None:
        """Give a unit back."""

    async def alone(self) -> None:
        """Make tables and views: no other process can."""

    async def close(self) -> None:
        if self._db is not None:
            await self._do(self._db.close)
        self._thread.shutdown()


@define(eq=False)
class Postgres:
    """The database at *url*."""

    url: str = field(repr=without_password)
    session: int = 0
    errors: tuple[type[Exception], ...] = field(init=False)
    _asyncpg: Any = field(init=False)
    _db: Any = field(init=False, default=None)
    _gone: str = field(init=False, default="")
    """Why it cannot be reached any more: one unit waits for it, not each."""

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
        if self._gone:
            raise Unusable(self._gone)
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
                    self._gone = f"{self} cannot be reached: {error}"
                    raise Unusable(self._gone) from None
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

    async def load(self, data: Any, like: str) -> None:
        """Put *data*, an Arrow table, into the temporary table ``batch``, with columns *like*."""
        temporary = "CREATE TEMPORARY TABLE batch ON COMMIT DROP"
        await self.fetch(f"{temporary} AS {like} LIMIT 0")
        source = BytesIO(await asyncio.to_thread(_lines, data))
        await self._db.copy_to_table("batch", source=source, columns=data.column_names)

    async def take(self, name: str) -> bool:
        found = await self.fetch("SELECT pg_try_advisory_lock(hashtextextended($1, 0))", name)
        return bool(found[0][0])

    async def give(self, name: str) -> None:
        await self.fetch("SELECT pg_advisory_unlock(hashtextextended($1, 0))", name)

    async def alone(self) -> None:
        """Wait until no other process makes tables and views, until the transaction ends."""
        await self.fetch("SET LOCAL lock_timeout = '10s'")
        await self.fetch(f"SELECT pg_advisory_xact_lock({_LOCK})")

    async def close(self) -> None:
        if self._db is not None:
            self._db.terminate()


def _lines(data: Any) -> bytes:
    """Return an Arrow table as COPY reads it."""
    import pyarrow as pa  # noqa: PLC0415 - an extra
    import pyarrow.compute as pc  # noqa: PLC0415 - an extra

    texts = []
    for column in data.columns:
        text = column.cast(pa.string())
        for one, other in _ESCAPES:
            text = pc.replace_substring(text, one, other)
        texts.append(pc.fill_null(text, r"\N"))
    return "\n".join([*pc.binary_join_element_wise(*texts, "\t").to_pylist(), ""]).encode()
