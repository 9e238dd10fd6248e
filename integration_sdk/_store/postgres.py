"""A store in a PostgreSQL database, for many processes on many hosts: one connection each.

A call waits for a database that is away, or slow, for as long as `wait_for_database`, and no
longer: a connection that does not answer in time is closed. So all work must bear being done twice.
A process that is frozen in a transaction holds its locks for `IDLE` seconds at most.
"""

from __future__ import annotations

import asyncio
import logging
import random
import re
import ssl
from collections.abc import Callable, Sequence
from contextlib import suppress
from types import ModuleType
from typing import Any, Final
from urllib.parse import parse_qs, unquote

from attrs import define, field

from integration_sdk._checks import needed
from integration_sdk._store.sql import POSTGRES, VERSION, Statement, Words, tables, texts
from integration_sdk.errors import (
    ConfigurationError,
    IntegrationError,
    JournalError,
    StoreUnavailable,
)

logger = logging.getLogger("integration_sdk.store")

SCHEMES: Final = ("postgresql://", "postgres://")
LOCK: Final = 0x696E7467  # held by the process that makes the tables
STATEMENT: Final = 10.0
"""Seconds that a statement may take, or wait for a lock, before it is tried again."""
IDLE: Final = 5.0
"""Seconds for which a process may leave a transaction open, frozen as it may be."""
LEAST: Final = 1.0
"""Seconds that an attempt gets, however little is left."""
LONGEST_WAIT: Final = 2.0
"""Seconds between two attempts to reach a database that is away, at most."""

# Whatever is set for the role or the database: what is on record survives a crash of the server,
# and a plan that was made for empty tables does no harm when they are full.
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
_LATER: Final = {
    "08",  # connection
    "23505",  # two processes wrote one key at the same time: the next attempt sees the other's
    "25006",  # read-only: a standby that is about to be promoted
    "25P03",  # frozen in a transaction
    "40",  # deadlock, among others
    "53",  # out of disk, memory, connections
    "55P03",  # locked
    "57",  # shutdown, restart, time-out of a statement
}
"""Classes and codes of SQLSTATE after which a database may do later what it has not done now."""


def _asyncpg() -> ModuleType:
    """Return asyncpg, imported late: it costs a tenth of what importing a client does."""
    return needed("asyncpg", "postgres", "a store in PostgreSQL")


@define(eq=False)
class Postgres:
    """A database as one process sees it. It connects when it is asked; see `Store`."""

    url: str
    wait_for_database: float
    schema: str = "integration_sdk"
    words: Words = field(init=False, default=POSTGRES)
    shared: bool = field(init=False, default=True)
    connections: int = field(init=False, default=0)
    _db: Any = field(init=False, default=None)
    _lock: asyncio.Lock = field(init=False, factory=asyncio.Lock)
    _is_checked: bool = field(init=False, default=False)
    _is_away: bool = field(init=False, default=False)
    _heard: Callable[[str], None] | None = field(init=False, default=None)

    def __attrs_post_init__(self) -> None:
        _asyncpg()
        check_url(self.url)
        if not re.fullmatch("[a-z_][a-z0-9_]{0,62}", str(self.schema)):
            raise ConfigurationError(
                f"schema must be a name made of a-z, 0-9 and _, not {self.schema!r}"
            )

    def __repr__(self) -> str:
        return f"the store {without_password(self.url)}"

    async def run(self, work: Sequence[Statement]) -> list[list[Any]]:
        """Return the rows of each statement; again if the database goes away meanwhile.

        Raises:
            StoreUnavailable: It could not be reached in time.
            ConfigurationError: Its URL, role or tables are wrong.
            JournalError: It refuses.
        """
        loop, wait = asyncio.get_running_loop(), 0.05
        until = loop.time() + self.wait_for_database
        while True:
            try:
                async with asyncio.timeout(max(until - loop.time(), LEAST)), self._lock:
                    answer = await self._once(work)
            except Exception as error:
                if not is_away(error):
                    raise self._refusal(error) from error
                left = until - loop.time()
                if left <= 0:
                    why = _in_words(error)
                    raise StoreUnavailable(f"{self} cannot be reached: {why}") from None
                if wait > 0.3 and not self._is_away:
                    self._is_away = True
                    why, most = _in_words(error), self.wait_for_database
                    logger.warning(
                        "%s does not answer (%s); waiting for up to %g s", self, why, most
                    )
            else:
                self._is_away = False
                return answer
            await asyncio.sleep(min(left, wait * (0.5 + 0.5 * random.random())))
            wait = min(wait * 2, LONGEST_WAIT)

    async def _once(self, work: Sequence[Statement]) -> list[list[Any]]:
        try:
            async with asyncio.timeout(STATEMENT + LEAST):
                if self._db is None or self._db.is_closed():
                    self._db = await self._connect()
                    self.connections += 1
                if len(work) == 1:
                    return [await self._db.fetch(work[0][0], *work[0][1])]
                # Not `transaction()`: its end waits for a server that may be silent.
                await self._db.execute("BEGIN")
                found = [await self._db.fetch(text, *values) for text, values in work]
                await self._db.execute("COMMIT")
                return found
        except BaseException as error:
            # In the middle of a statement, or of a transaction, it is of no use to the next one.
            from_server = isinstance(error, _asyncpg().PostgresError)
            if len(work) > 1 or not from_server or is_away(error):
                self.close()
            raise

    def close(self) -> None:
        """Close the connection at once, whatever it is doing."""
        db, self._db = self._db, None
        if db is not None:
            with suppress(RuntimeError):  # its loop has been closed
                db.terminate()

    async def aclose(self) -> None:
        """Close the connection, and see it closed."""
        self.close()
        await asyncio.sleep(0)  # a transport that was aborted is closed in the next turn

    def start_again(self) -> None:
        """Forget what belonged to an event loop that has ended."""
        self.close()
        self._lock, self._heard = asyncio.Lock(), None

    def listen(self, heard: Callable[[str], None] | None) -> None:
        """Call *heard* with each text that is told in the schema while it is connected."""
        self._heard = heard

    def _told(self, *told: Any) -> None:
        if self._heard is not None:
            self._heard(told[-1])

    async def _connect(self) -> Any:
        names = {"application_name": "integration_sdk"}
        db = await _asyncpg().connect(self.url, server_settings=names)
        try:
            await db.execute(_SETTINGS.format(schema=self.schema))
            if not self._is_checked:
                await self._check(db)
                self._is_checked = True
            await db.add_listener(self.schema, self._told)
        except BaseException:
            db.terminate()
            raise
        return db

    async def _check(self, db: Any) -> None:
        """Make the tables, unless they are as they should be."""
        if await db.fetchval("SELECT pg_backend_pid()") != db.get_server_pid():
            raise ConfigurationError(
                f"{self} is behind a pooler, which may lend each transaction another session: "
                "connect to the database itself"
            )
        try:
            if await self._has_tables(db):
                return
            async with db.transaction():
                await db.execute("SELECT pg_advisory_xact_lock($1)", LOCK)
                if await db.fetchval("SELECT to_regnamespace($1)", self.schema) is None:
                    await db.execute(f"CREATE SCHEMA {self.schema}")
                if not await self._has_tables(db):
                    await db.execute(";".join(tables(POSTGRES)))
        except (_asyncpg().InsufficientPrivilegeError, _asyncpg().InvalidSchemaNameError) as error:
            raise ConfigurationError(
                f"{self} has no tables in schema {self.schema!r} that its role may use or create: "
                "see the guide on PostgreSQL for the SQL that makes and grants them"
            ) from error

    async def _has_tables(self, db: Any) -> bool:
        if await db.fetchval("SELECT to_regclass('versions')") is None:
            return False
        version = await db.fetchval(texts(POSTGRES).version)
        if version != VERSION:
            raise JournalError(
                f"{self} has tables of another version in schema {self.schema!r}; this SDK needs "
                f"{VERSION}: use the SDK that made them, or another schema="
            )
        return True

    def _refusal(self, error: Exception) -> Exception:
        """Return the error for what the database, or its client, does not do."""
        if isinstance(
            error, _asyncpg().PostgresError | _asyncpg().DataError | ssl.SSLError | OSError
        ):
            return JournalError(f"{self} reports: {_in_words(error)}")
        if isinstance(error, ValueError) and not isinstance(error, IntegrationError):
            return ConfigurationError(f"{self} cannot be used: {_in_words(error)}")
        return error


def _in_words(error: BaseException) -> str:
    return str(error) or type(error).__name__


def is_away(error: BaseException) -> bool:
    """Return whether a database will perhaps do later what it has not done now."""
    if isinstance(error, _asyncpg().PostgresError):
        state = error.sqlstate or ""
        return state[:2] in _LATER or state in _LATER
    if isinstance(error, ssl.SSLError):
        return isinstance(error, ssl.SSLEOFError | ssl.SSLZeroReturnError)
    if isinstance(error, _asyncpg().InterfaceError | _asyncpg().InternalClientError):
        return not isinstance(error, ValueError)  # of a wrong option or argument
    if isinstance(error, OSError) and "rejected SSL" in str(error):
        return False
    return isinstance(error, OSError | EOFError | asyncio.IncompleteReadError)


# URLs


def is_url(where: object) -> bool:
    """Return whether *where* is the URL of a database."""
    return isinstance(where, str) and where.startswith(SCHEMES)


def without_password(url: str) -> str:
    """Return *url* as it may be shown, however wrong it is."""
    scheme, _, rest = url.partition("://")
    user, at, address = rest.rpartition("@")  # a password may hold any other character as it is
    address, query, words = address.partition("?")
    hides = "password" in unquote(words).casefold()
    if ":" in user or hides:
        user, at = f"{user.partition(':')[0]}:***".removeprefix(":"), "@"
    return f"{scheme}://{user}{at}{address}{query}{'***' if hides else words}"


def shown(where: object) -> str:
    """Return *where* as an error may show it, whatever it is: a URL has no password then."""
    return repr(without_password(where) if isinstance(where, str) and "://" in where else where)


# Scheme, user and password, hosts, database, options.
_URL: Final = re.compile(r"[^:]+://([^/?#@\[\]]*@)?([^/?#@]*)(/[^/?#@\[\]]*)?(\?[^#@\[\]]*)?")


def check_url(url: str) -> None:
    """Refuse *url* if a part of it would be read as something else, and shown as that."""
    parts = _URL.fullmatch(url)
    if parts is None:
        raise ConfigurationError(
            f"{without_password(url)} cannot be read: in its password, write #, /, ?, @, [ and ] "
            "as %23, %2F, %3F, %40, %5B and %5D"
        )
    ports = re.findall(r":([^:\],]+)(?=,|$)", parts[2])
    for port in [*ports, *parse_qs((parts[4] or "")[1:]).get("port", [])]:
        if not (port.isdecimal() and 0 < int(port) < 2**16):
            raise ConfigurationError(f"{without_password(url)} cannot be read: {port!r} is no port")
