"""A PostgreSQL database as a store: for many processes, on many hosts.

The tables are in a schema of their own, ``integration_sdk``, which the first process makes and a
newer SDK brings up to date, both under a lock; a schema from a newer SDK is refused. A statement
that hangs, or a process that was frozen in a transaction, gives its locks back after seconds.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import Awaitable, Callable
from typing import Any, Final, TypeVar
from urllib.parse import urlsplit, urlunsplit

from attrs import define, field

from integration_sdk._store.row import Owner
from integration_sdk.errors import ConfigurationError, JournalError, StoreUnavailable

try:
    import asyncpg
except ImportError:  # for those who have no such store; looked at by `Postgres.check`
    asyncpg = None

T = TypeVar("T")

MIGRATIONS: Final = (
    """
    CREATE TABLE integration_sdk.rates (
        name text PRIMARY KEY, next_at float8 NOT NULL, paused_until float8 NOT NULL DEFAULT 0
    );
    CREATE TABLE integration_sdk.leases (
        scope text PRIMARY KEY, token bigint NOT NULL, holder text NOT NULL,
        until timestamptz NOT NULL
    );
    CREATE TABLE integration_sdk.snapshots (
        digest text PRIMARY KEY, whole boolean NOT NULL, keys text NOT NULL, taken_at bigint
    );
    CREATE TABLE integration_sdk.pushes (
        number bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY, id text NOT NULL UNIQUE,
        company_id text NOT NULL, connection_id text NOT NULL, data_type text NOT NULL,
        method text NOT NULL, payload bytea, payload_hash text NOT NULL,
        natural_key text, natural_value text, record_id text, reference text,
        idempotency_key text, timeout_minutes bigint,
        snapshot text REFERENCES integration_sdk.snapshots,
        version bigint NOT NULL, state text NOT NULL, attempts bigint NOT NULL,
        key text UNIQUE, evidence text, candidates text NOT NULL, status text,
        http_status bigint, error text, decision text, parent text
    );
    CREATE UNIQUE INDEX a_reference_stands_for_one_push ON integration_sdk.pushes (reference)
        WHERE reference IS NOT NULL AND decision IS DISTINCT FROM 'resend';
    CREATE INDEX pushes_by_reference ON integration_sdk.pushes (reference)
        WHERE reference IS NOT NULL;
    CREATE INDEX pushes_to_carry ON integration_sdk.pushes (company_id)
        WHERE state NOT IN ('FINAL', 'NOT_SENT', 'REJECTED');
    """,
    """
    CREATE TABLE integration_sdk.owner (
        number int PRIMARY KEY DEFAULT 1 CHECK (number = 1),
        scope text NOT NULL, base_url text NOT NULL, dialect text NOT NULL
    );
    """,
)
LOCK: Final = 0x696E7467
"""Of whoever makes or changes the tables."""
STATEMENT: Final = 10.0
"""Seconds that a statement may take, or wait for a lock."""
IDLE: Final = 5.0
"""Seconds for which a process may leave a transaction open, frozen as it may be."""
CONNECT: Final = 3.0
"""Seconds that one attempt to connect may take."""
CONNECTIONS: Final = 4
LONGEST_PAUSE: Final = 2.0
"""Seconds between two attempts to reach a database that is away, at most."""

# Everything is reckoned by the database's clock, and answered relative to it.
_RESERVE: Final = """
    INSERT INTO integration_sdk.rates AS rate (name, next_at)
    SELECT $1, now.s - $4::float8 + $2 * $3::float8
      FROM (SELECT extract(epoch FROM clock_timestamp())::float8 AS s) AS now
    ON CONFLICT (name) DO UPDATE SET next_at = $2 * $3::float8 + greatest(
        rate.next_at, rate.paused_until, excluded.next_at - $2 * $3::float8)
    RETURNING rate.next_at - $2 * $3::float8 - extract(epoch FROM clock_timestamp())::float8
"""
_PAUSE: Final = """
    INSERT INTO integration_sdk.rates AS rate (name, next_at, paused_until)
    SELECT $1, 0, extract(epoch FROM clock_timestamp())::float8 + $2::float8
    ON CONFLICT (name) DO UPDATE
        SET paused_until = greatest(rate.paused_until, excluded.paused_until)
"""
_BIND: Final = """
    INSERT INTO integration_sdk.owner (scope, base_url, dialect) VALUES ($1, $2, $3)
    ON CONFLICT DO NOTHING
"""
_OWNER: Final = "SELECT scope, base_url, dialect FROM integration_sdk.owner"


def without_password(url: str) -> str:
    """Return *url* as it may be shown."""
    parts = urlsplit(url)
    if parts.password is None and "password" not in parts.query.casefold():
        return url
    user = f"{parts.username}:***@" if parts.username else "***@"
    host = parts.netloc.rpartition("@")[2]
    return urlunsplit(parts._replace(netloc=user + host, query="***" if parts.query else ""))


@define(eq=False)
class Postgres:
    """One process's connections to a database.

    Args:
        url: As libpq takes it: ``postgresql://user:password@host/database?sslmode=verify-full``.
        patience: Seconds to wait for a database that cannot be reached.
    """

    url: str = field(repr=without_password)
    patience: float
    _pool: Any = field(init=False, default=None)
    _loop: asyncio.AbstractEventLoop | None = field(init=False, default=None)
    _opening: asyncio.Lock = field(init=False, factory=asyncio.Lock)

    def __attrs_post_init__(self) -> None:
        if asyncpg is None:
            raise ConfigurationError(
                "a store in PostgreSQL needs asyncpg: pip install 'integration-sdk[postgres]'"
            )

    # Rates

    async def reserve(self, name: str, count: int, interval: float, burst: int) -> float:
        """Take slots of a rate; return the seconds until the first one."""

        async def ask(db: Any) -> float:
            return float(await db.fetchval(_RESERVE, name, count, interval, (burst - 1) * interval))

        return await self.run(ask)

    async def pause(self, name: str, seconds: float) -> None:
        """Let nothing leave for so many seconds from now."""

        async def tell(db: Any) -> None:
            await db.execute(_PAUSE, name, seconds)

        await self.run(tell)

    # Owner

    async def bind(self, owner: Owner) -> Owner:
        """Bind the pushes to *owner* if they have none; return whose they are."""

        async def ask(db: Any) -> Owner:
            await db.execute(_BIND, *owner)
            return Owner(*await db.fetchrow(_OWNER))

        return await self.run(ask)

    # Connections

    async def run(self, work: Callable[[Any], Awaitable[T]]) -> T:
        """Do *work* with a connection, again if the database goes away: it must bear that.

        Raises:
            StoreUnavailable: The database cannot be reached, for longer than *patience*.
            JournalError: It refuses.
        """
        loop = asyncio.get_running_loop()
        until, pause = loop.time() + self.patience, 0.05
        while True:
            try:
                async with (await self._opened()).acquire() as db:
                    return await work(db)
            except (OSError, TimeoutError, asyncpg.InterfaceError, *_away()) as error:
                left = until - loop.time()
                if left <= 0:
                    raise StoreUnavailable(f"{self} cannot be reached: {_told(error)}") from None
                await asyncio.sleep(min(left, pause * (0.5 + 0.5 * random.random())))
                pause = min(pause * 2, LONGEST_PAUSE)
            except asyncpg.PostgresError as error:
                raise JournalError(f"{self} refuses: {_told(error)}") from error

    async def aclose(self) -> None:
        """Close all connections."""
        pool, self._pool = self._pool, None
        if pool is not None:
            await pool.close()

    def __str__(self) -> str:
        return f"the store {without_password(self.url)}"

    async def _opened(self) -> Any:
        async with self._opening:
            self._check_loop()
            if self._pool is None:
                pool = await asyncpg.create_pool(
                    self.url,
                    min_size=0,
                    max_size=CONNECTIONS,
                    timeout=CONNECT,
                    command_timeout=STATEMENT,
                    server_settings={
                        "application_name": "integration_sdk",
                        "statement_timeout": str(int(STATEMENT * 1000)),
                        "idle_in_transaction_session_timeout": str(int(IDLE * 1000)),
                    },
                )
                try:
                    async with pool.acquire() as db:
                        await self._migrate(db)
                except BaseException:
                    pool.terminate()
                    raise
                self._pool, self._loop = pool, asyncio.get_running_loop()
            return self._pool

    def _check_loop(self) -> None:
        if self._pool is None or self._loop is asyncio.get_running_loop():
            return
        if self._loop is not None and not self._loop.is_closed():
            raise JournalError(f"{self} is in use in another event loop: give this one its own")
        self._pool = None  # its connections have gone with their loop

    async def _migrate(self, db: Any) -> None:
        async with db.transaction():
            await db.execute("SELECT pg_advisory_xact_lock($1)", LOCK)
            await db.execute(
                "CREATE SCHEMA IF NOT EXISTS integration_sdk;"
                "CREATE TABLE IF NOT EXISTS integration_sdk.migrations (version int NOT NULL)"
            )
            query = "SELECT coalesce(max(version), 0) FROM integration_sdk.migrations"
            version = await db.fetchval(query)
            if version > len(MIGRATIONS):
                raise JournalError(
                    f"{self} has schema {version}, this SDK knows {len(MIGRATIONS)}: "
                    "use the newer SDK that made it"
                )
            for number, script in enumerate(MIGRATIONS[version:], version + 1):
                await db.execute(script)
                await db.execute("INSERT INTO integration_sdk.migrations VALUES ($1)", number)


def _away() -> tuple[type[Exception], ...]:
    """Return the errors of a database that is away, or will be back."""
    return (
        asyncpg.PostgresConnectionError,
        asyncpg.CannotConnectNowError,
        asyncpg.AdminShutdownError,
        asyncpg.CrashShutdownError,
        asyncpg.TooManyConnectionsError,
        asyncpg.ReadOnlySQLTransactionError,  # a standby that is about to be promoted
    )


def _told(error: BaseException) -> str:
    return str(error) or type(error).__name__
