"""Connections to a PostgreSQL database, and its tables.

A call waits for a database that is away, or slow, for as long as its *patience*, and no longer:
what a connection does not answer in time ends by closing it. So a statement must bear being done
twice. Each statement is a transaction of its own: a process that is frozen between two of them
holds no lock.
"""

from __future__ import annotations

import asyncio
import logging
import random
import re
import ssl
from collections.abc import Awaitable, Callable
from contextlib import suppress
from typing import Any, Final, TypeVar
from urllib.parse import quote, unquote, urlsplit

from attrs import define, field

from integration_sdk._store.rate import LONGEST_PAUSE
from integration_sdk._store.row import SETTLED, Owner
from integration_sdk.errors import (
    ConfigurationError,
    IntegrationError,
    JournalError,
    StoreUnavailable,
)

try:
    import asyncpg
except ImportError:  # for those who have no such store; looked at by `Postgres`
    asyncpg = None

logger = logging.getLogger("integration_sdk.store")

T = TypeVar("T")
Ask = Callable[[Any], Awaitable[T]]
"""What is done with a connection of asyncpg."""

MIGRATIONS: Final = (
    f"""
    CREATE TABLE scopes (scope text PRIMARY KEY, base_url text NOT NULL, dialect text NOT NULL);
    CREATE TABLE workers (holder text PRIMARY KEY, until timestamptz NOT NULL);
    CREATE TABLE leases (
        scope text, company text, token bigint NOT NULL, holder text NOT NULL,
        PRIMARY KEY (scope, company)
    );
    CREATE TABLE snapshots (id text PRIMARY KEY, document text NOT NULL);
    CREATE TABLE pushes (
        number bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
        scope text NOT NULL, id text NOT NULL, company text NOT NULL, reference text, key text,
        state text NOT NULL, status text, version bigint NOT NULL, decision text,
        snapshot text REFERENCES snapshots, document text NOT NULL, writer text NOT NULL,
        added_at timestamptz NOT NULL DEFAULT clock_timestamp(),
        CONSTRAINT an_id_is_one_push UNIQUE (id, scope),
        CONSTRAINT a_key_has_one_owner UNIQUE (key, scope)
    );
    CREATE UNIQUE INDEX a_reference_stands_for_one_push ON pushes (reference, scope)
        WHERE reference IS NOT NULL AND decision IS DISTINCT FROM 'resend';
    CREATE INDEX pushes_by_reference ON pushes (reference, scope) WHERE decision = 'resend';
    CREATE INDEX live_pushes ON pushes (scope, company)
        WHERE state NOT IN {tuple(sorted(map(str, SETTLED)))};
    CREATE INDEX pushes_by_snapshot ON pushes (snapshot) WHERE snapshot IS NOT NULL;
    CREATE TABLE payloads (number bigint PRIMARY KEY, payload bytea NOT NULL);
    CREATE TABLE documents (
        scope text, name text, version bigint NOT NULL, token bigint NOT NULL, holder text,
        body bytea, PRIMARY KEY (scope, name)
    );
    CREATE TABLE rates (
        name text PRIMARY KEY, next_at float8 NOT NULL, paused_until float8 NOT NULL,
        seen float8 NOT NULL
    );
    """,
)
VERSION: Final = 2 + len(MIGRATIONS)
"""Of the tables. Until 2 they were those of versions before 0.1.0."""
LOCK: Final = 0x696E7467
"""Of whoever makes or changes the tables."""
STATEMENT: Final = 10.0
"""Seconds that a statement may take, or wait for a lock, before it is tried again."""
IDLE: Final = 5.0
"""Seconds for which a process may leave a transaction open, frozen as it may be."""
LEAST: Final = 1.0
"""Seconds that an attempt gets, however little patience is left."""
LONGEST_WAIT: Final = 2.0
"""Seconds between two attempts to reach a database that is away, at most."""
WORTH_A_WORD: Final = 2.0
"""Seconds of waiting after which it is logged."""

# Whatever is set for the role or the database. What is on record survives a crash of the server;
# a plan that was made for empty tables does no harm when they are full: none is read through.
_SETTINGS: Final = f"""
    SET search_path = "{{schema}}";
    SET statement_timeout = '{STATEMENT:g}s';
    SET idle_in_transaction_session_timeout = '{IDLE:g}s';
    SET tcp_keepalives_idle = 60; SET tcp_keepalives_interval = 15; SET tcp_keepalives_count = 4;
    SET enable_seqscan = off; SET jit = off;
    SET default_transaction_isolation = 'read committed';
    SELECT set_config('synchronous_commit', 'on', false)
        WHERE current_setting('synchronous_commit') = 'off';
"""

# All is reckoned by the database's clock, and answered relative to it. A clock that steps back
# takes the times on record along.
_NOW: Final = "extract(epoch FROM clock_timestamp())::float8"
_BACK: Final = f"greatest(0, rate.seen - {_NOW})"
_PAUSED: Final = f"least(rate.paused_until - {_BACK}, {_NOW} + {LONGEST_PAUSE})"
_RESERVE: Final = f"""
    INSERT INTO rates AS rate
    VALUES ($1, {_NOW} - $4::float8 + $2 * $3::float8, 0, {_NOW})
    ON CONFLICT (name) DO UPDATE SET
        next_at = $2 * $3::float8
            + greatest(rate.next_at - {_BACK}, {_PAUSED}, {_NOW} - $4::float8),
        paused_until = {_PAUSED}, seen = {_NOW}
    RETURNING next_at - $2 * $3::float8 - {_NOW}
"""
_PAUSE: Final = f"""
    INSERT INTO rates AS rate VALUES ($1, 0, {_NOW} + $2::float8, {_NOW})
    ON CONFLICT (name) DO UPDATE SET
        next_at = rate.next_at - {_BACK}, paused_until = greatest({_PAUSED}, {_NOW} + $2::float8),
        seen = {_NOW}
"""
_BIND: Final = """
    WITH bound AS (INSERT INTO scopes VALUES ($1, $2, $3) ON CONFLICT DO NOTHING RETURNING *)
    SELECT * FROM bound UNION ALL SELECT * FROM scopes WHERE scope = $1
"""


def without_password(url: str) -> str:
    """Return *url* as it may be shown, however wrong it is."""
    scheme, _, rest = url.partition("://")
    user, at, address = rest.rpartition("@")  # a password may hold any other character as it is
    address, query, words = address.partition("?")
    hides = "password" in words.casefold()
    if ":" in user or hides:
        user, at = f"{user.partition(':')[0]}:***".removeprefix(":"), "@"
    return f"{scheme}://{user}{at}{address}{query}{'***' if hides else words}"


def shown(where: object) -> str:
    """Return *where* as an error may show it, whatever it is: a URL has no password then."""
    return repr(without_password(where) if isinstance(where, str) and "://" in where else where)


def check_url(url: str) -> None:
    """Refuse *url* if a password in it would be read as something else, and be shown as that."""
    address = _address(url)
    path = url.partition("://")[2].removeprefix(address).partition("?")[0]
    is_plain = "@" not in path and ("@" in address or "@" not in url)
    try:
        urlsplit(url)
    except ValueError:  # of brackets
        is_plain = False
    if not is_plain:
        raise ConfigurationError(
            f"{without_password(url)} cannot be read: in its password, write #, /, ?, [ and ] as "
            "%23, %2F, %3F, %5B and %5D"
        ) from None


def _address(url: str) -> str:
    return re.split("[/?#]", url.partition("://")[2], maxsplit=1)[0]


def _one_host_each(url: str) -> list[str]:
    """Return a URL for each host, since asyncpg gives one that is silent the time of all.

    The password in it is quoted, whatever it holds.
    """
    address = _address(url)
    user, at, hosts = address.rpartition("@")
    name, colon, password = user.partition(":")
    user = f"{name}{colon}{quote(unquote(password), safe='')}"
    return [url.replace(f"//{address}", f"//{user}{at}{host}", 1) for host in hosts.split(",")]


def _check_schema(name: object) -> None:
    if not re.fullmatch("[a-z_][a-z0-9_]{0,62}", str(name)):
        raise ConfigurationError(f"schema must be a name made of a-z, 0-9 and _, not {name!r}")


@define(eq=False)
class Connection:
    """One connection to a database, opened when it is needed, for one user at a time."""

    database: Postgres
    _db: Any = field(init=False, default=None)
    _lock: asyncio.Lock = field(init=False, factory=asyncio.Lock)
    _loop: asyncio.AbstractEventLoop | None = field(init=False, default=None)

    async def run(self, ask: Ask[T]) -> T:
        """Return what *ask* does with the connection, again if the database goes away.

        Raises:
            StoreUnavailable: The database cannot be reached, for longer than its *patience*.
            ConfigurationError: The URL or its options are wrong, or the tables are missing.
            JournalError: The database refuses.
        """
        self._check_loop()
        loop, database, wait = asyncio.get_running_loop(), self.database, 0.05
        until, away = loop.time() + database.patience, None
        word = loop.call_later(WORTH_A_WORD, lambda: database.say_waiting(away))
        try:
            while True:
                try:
                    async with asyncio.timeout(max(until - loop.time(), LEAST)), self._lock:
                        answer = await self._once(ask)
                except Exception as error:
                    if not is_away(error):
                        raise database.refusal(error) from error
                    left = until - loop.time()
                    if left <= 0:
                        raise database.unavailable(error) from None
                    away = error
                else:
                    database.waits = False
                    return answer
                await asyncio.sleep(min(left, wait * (0.5 + 0.5 * random.random())))
                wait = min(wait * 2, LONGEST_WAIT)
        finally:
            word.cancel()

    async def _once(self, ask: Ask[T]) -> T:
        # A task of its own: asyncpg waits for the server when it is cancelled.
        asking = asyncio.ensure_future(self._asked(ask))
        try:
            return await _result(asking)
        except BaseException as error:
            if not isinstance(error, Exception) or is_away(error):
                await self._break_off(asking)
            raise

    async def _asked(self, ask: Ask[T]) -> T:
        if self._db is None or self._db.is_closed():
            self._db = None
            self._db = await self.database.connect()
            await self.database.check_tables(self._db)
        return await ask(self._db)

    async def _break_off(self, asking: asyncio.Future[Any]) -> None:
        if self._db is None:
            asking.cancel()  # it is connecting
        self.close()
        while not asking.done():  # at once
            with suppress(asyncio.CancelledError):
                await asyncio.wait([asking])
        if not asking.cancelled():
            asking.exception()  # of no interest any more

    def _check_loop(self) -> None:
        loop, before = asyncio.get_running_loop(), self._loop
        if before is not None and before is not loop:
            if self._db is not None and not before.is_closed():
                raise JournalError(
                    f"{self.database} is in use in another event loop: make a Store for each loop"
                )
            self._db = None  # it has gone with its loop
            self._lock = asyncio.Lock()
        self._loop = loop

    def close(self) -> None:
        """Close it at once, whatever it is doing."""
        db, self._db = self._db, None
        if db is not None:
            db.terminate()


async def _result(asking: asyncio.Future[T]) -> T:
    await asyncio.wait([asking], timeout=STATEMENT + LEAST)
    if asking.cancelled():
        raise ConnectionError("its task was cancelled from outside")
    if not asking.done():
        raise TimeoutError("it does not answer")
    return asking.result()


@define(eq=False)
class Postgres:
    """A database as one process sees it.

    Args:
        url: As libpq takes it: ``postgresql://user:password@host/database?sslmode=verify-full``.
        patience: Seconds to wait for it.
        schema: Where the tables are.

    Attributes:
        reads, writes, rates: Connections for that. What is written in one moment goes together.
    """

    url: str = field(repr=without_password)
    patience: float
    schema: str = "integration_sdk"
    waits: bool = field(init=False, default=False)
    reads: Connection = field(init=False, repr=False)
    writes: Connection = field(init=False, repr=False)
    rates: Connection = field(init=False, repr=False)
    _hosts: list[str] = field(init=False, repr=False)  # a URL for each
    _wanted: str | None = field(init=False, default=None)  # of several hosts
    _has_tables: bool = field(init=False, default=False)

    def __attrs_post_init__(self) -> None:
        if asyncpg is None:
            raise ConfigurationError(
                "a store in PostgreSQL needs asyncpg: pip install 'integration-sdk[postgres]'"
            )
        check_url(self.url)
        _check_schema(self.schema)
        self._hosts = _one_host_each(self.url)
        if len(self._hosts) > 1 and "target_session_attrs" not in self.url:
            self._wanted = "read-write"  # a standby would refuse all we do
        self.reads, self.writes, self.rates = (Connection(self) for _ in range(3))

    def __str__(self) -> str:
        return f"the store {without_password(self.url)}"

    async def reserve(self, name: str, count: int, interval: float, burst: int) -> float:
        """Take slots of a rate; return the seconds until the first one."""
        values = (name, count, interval, (burst - 1) * interval)
        return float(await self.rates.run(lambda db: db.fetchval(_RESERVE, *values)))

    async def pause(self, name: str, seconds: float) -> None:
        """Let nothing leave for so many seconds from now."""
        await self.rates.run(lambda db: db.execute(_PAUSE, name, seconds))

    async def bind(self, owner: Owner) -> Owner:
        """Bind a scope to *owner* if it has none; return whose it is."""

        async def ask(db: Any) -> Owner:
            bound = None
            while bound is None:  # another process does it in this moment
                bound = await db.fetchrow(_BIND, *owner)
            return Owner(*bound)

        return await self.reads.run(ask)

    async def aclose(self) -> None:
        """Close the connections."""
        for one in (self.reads, self.writes, self.rates):
            one.close()

    # For its connections

    async def connect(self) -> Any:
        """Return a new connection, for which our tables are all there is."""
        urls = [*self._hosts]
        share = min(STATEMENT, max(self.patience, LEAST)) / len(urls)
        for url in urls:
            try:
                db = await self._connect(url, share)
                break
            except Exception as error:
                if url == urls[-1] or not is_away(error):
                    raise
        self._hosts.sort(key=url.__ne__)  # next time this one first
        return db

    async def _connect(self, url: str, timeout: float) -> Any:
        db = await asyncpg.connect(
            url,
            timeout=timeout,
            server_settings={"application_name": "integration_sdk"},
            target_session_attrs=self._wanted,
        )
        try:  # not with the connection: a pooler refuses settings there, or ignores them
            await db.execute(_SETTINGS.format(schema=self.schema))
        except BaseException:
            db.terminate()
            raise
        return db

    async def check_tables(self, db: Any) -> None:
        """Make or update the tables, unless they are as they should be.

        Raises:
            ConfigurationError: They are missing, and the role may not make them. Or a pooler is
                in the way.
            JournalError: They are those of another version.
        """
        if self._has_tables:
            return
        await self._check_pooler(db)
        try:
            if await self._version(db) != VERSION:
                await self._migrate(db)
        except (asyncpg.InsufficientPrivilegeError, asyncpg.InvalidSchemaNameError) as error:
            raise ConfigurationError(
                f"{self} has no tables in schema {self.schema!r} that its role may use or create: "
                "run `integration-sdk store migrate URL` as a role that may create them, and grant "
                "them to this role"
            ) from error
        self._has_tables = True

    async def _check_pooler(self, db: Any) -> None:
        """Refuse one that lends a connection for less than a session: no setting stays on it."""
        pid, ours, theirs = "SELECT pg_backend_pid()", None, None
        with suppress(asyncpg.DuplicatePreparedStatementError):
            ours = await db.fetchval(pid)
            if ours == db.get_server_pid():
                return  # there is none
            other = await self.connect()
            try:
                theirs = await other.fetchval(pid)
            finally:
                other.terminate()
        if theirs in (None, ours):
            await db.execute("RESET ALL")  # for who has the connection next
            raise ConfigurationError(
                f"{self} is behind a pooler in transaction or statement mode: use its session "
                "mode, or connect to the database itself"
            )

    async def _version(self, db: Any) -> int:
        if await db.fetchval("SELECT to_regclass('migrations')") is None:
            return 0
        version = int(await db.fetchval("SELECT coalesce(max(version), 0) FROM migrations"))
        if version > VERSION or 0 < version <= VERSION - len(MIGRATIONS):
            other = "newer" if version > VERSION else "older"
            raise JournalError(
                f"{self} has tables of version {version} in schema {self.schema!r}; this SDK needs "
                f"{VERSION}: use the {other} SDK that made them, or another schema="
            )
        return version

    async def _migrate(self, db: Any) -> None:
        async with db.transaction():
            await db.execute("SELECT pg_advisory_xact_lock($1)", LOCK)
            if await db.fetchval("SELECT to_regnamespace($1)", self.schema) is None:
                await db.execute(f"CREATE SCHEMA {self.schema}")
            version = await self._version(db)
            if version != VERSION:
                await db.execute(_statements(version))

    def say_waiting(self, error: Exception | None) -> None:
        """Log, once, that calls wait for an answer, and why."""
        if not self.waits:
            self.waits = True
            why = f" ({self._told(error)})" if error else ""
            logger.warning("%s does not answer%s; waiting for up to %g s", self, why, self.patience)

    def unavailable(self, error: BaseException) -> StoreUnavailable:
        """Return the error for a database that is away."""
        return StoreUnavailable(f"{self} cannot be reached: {self._told(error)}")

    def refusal(self, error: Exception) -> Exception:
        """Return the error for what the database, or its client, does not do."""
        if isinstance(error, asyncpg.PostgresError | asyncpg.DataError | ssl.SSLError | OSError):
            return JournalError(f"{self} reports: {self._told(error)}")
        if isinstance(error, ValueError) and not isinstance(error, IntegrationError):
            return ConfigurationError(f"{self} cannot be used: {self._told(error)}")
        return error

    def _told(self, error: BaseException) -> str:
        text, user = str(error), self.url.partition("://")[2].rpartition("@")[0]
        password = user.partition(":")[2]
        for one in {password, unquote(password)} - {""}:
            text = text.replace(one, "***")
        return text or type(error).__name__


def _statements(version: int) -> str:
    made = max(0, version - (VERSION - len(MIGRATIONS)))
    head = "" if made else "CREATE TABLE migrations (version int NOT NULL);"
    return "".join([head, *MIGRATIONS[made:], f"INSERT INTO migrations VALUES ({VERSION});"])


def migration(schema: str) -> str:
    """Return the SQL that makes the tables in a new schema."""
    _check_schema(schema)
    return f"CREATE SCHEMA {schema};\nSET search_path = {schema};{_statements(0)}"


async def migrate(url: str, schema: str, patience: float = 30.0) -> None:
    """Make or update the tables; do nothing if they are there. Raises as `Connection.run`."""
    database = Postgres(url, patience, schema)
    try:
        await database.reads.run(lambda db: db.execute("SELECT 1"))
    finally:
        await database.aclose()


def sqlstate(error: BaseException) -> str:
    """Return the code of an error of the database's; empty if it has none."""
    return getattr(error, "sqlstate", None) or ""


def is_away(error: BaseException) -> bool:
    """Return whether a database will perhaps do later what it has not done now."""
    if isinstance(error, asyncpg.PostgresError):
        state = sqlstate(error)
        return state[:2] in _LATER or state in _LATER
    if isinstance(error, ssl.SSLError):
        return isinstance(error, ssl.SSLEOFError | ssl.SSLZeroReturnError)
    if isinstance(error, asyncpg.InterfaceError | asyncpg.InternalClientError):
        return not isinstance(error, ValueError)  # of a wrong option or argument
    if isinstance(error, OSError) and "rejected SSL" in str(error):
        return False
    return isinstance(error, OSError | EOFError | asyncio.IncompleteReadError)


_LATER: Final = {
    "08",  # connection
    "40",  # deadlock, among others
    "53",  # out of disk, memory, connections
    "57",  # shutdown, restart, time-out of a statement
    "25P03",  # frozen in a transaction
    "25006",  # read-only: a standby that is about to be promoted
    "55P03",  # locked
}
"""Classes and codes of SQLSTATE."""
