"""`Store`: a place for state that outlives a call, a block or a process."""

from __future__ import annotations

import asyncio
import os
from math import inf
from pathlib import Path
from typing import Self

from integration_sdk._checks import is_number, whole_number
from integration_sdk._pacing import SharedRate
from integration_sdk._store.journal import Journal, read_rows
from integration_sdk._store.postgres import Postgres, is_url, shown, without_password
from integration_sdk._store.rate import StoreRate
from integration_sdk._store.row import Row
from integration_sdk._store.sql import Database, texts
from integration_sdk._store.sqlite import Sqlite, read_file
from integration_sdk.errors import ConfigurationError, JournalError, JournalInUse


class Store:
    """Storage for pushes and rates: a SQLite file, or a PostgreSQL database.

    ``Store("state.db")`` is a file, for one process at a time; it survives crashes and power loss.
    ``Store("postgresql://...")`` is a database for any number of processes. A store opens at its
    first use, for one event loop at a time; close it with `aclose` or ``async with``. Example::

        async with Store("postgresql://...") as store:
            async with Client(rate=store.rate(per_second=95)) as client:
                async with client.coordinator(journal=store) as pushes:
                    ...

    Args:
        where: The path of a file. ``-lock`` is created beside it, and ``-wal`` and ``-shm`` while
            it is open; only their owner can read them. Needs SQLite 3.38 or later. Or the URL of a
            PostgreSQL database as libpq takes it; needs the extra ``integration-sdk[postgres]``.
        scope: Separates services in one file or database. A scope belongs to the base URL and
            dialect of the client that first uses it; a client of another service is refused. A
            file is open for one scope at a time.
        schema: Of the tables in a database. The first use creates them, if its role may.
        patience: Seconds to wait for a database that cannot be reached, before
            `StoreUnavailable` is raised.
        lease: Seconds of silence after which a worker of a database counts as dead, and others
            go on with its pushes.

    Raises:
        ConfigurationError: An argument is invalid, or the extra is missing.
    """

    def __init__(
        self,
        where: str | os.PathLike[str],
        scope: str = "default",
        *,
        schema: str = "integration_sdk",
        patience: float = 30.0,
        lease: float = 15.0,
    ) -> None:
        self._scope = _printable("scope", scope)
        if not (is_number(patience) and 0 <= patience < inf):
            raise ConfigurationError(f"patience must be seconds, not {patience!r}")
        if not (is_number(lease) and 2 <= lease < inf):
            raise ConfigurationError(f"lease must be 2 seconds or more, not {lease!r}")
        self._lease = lease
        self._database: Postgres | None = None
        self._path = Path()
        if is_url(where):
            self._database = Postgres(str(where), patience, schema)
        elif _is_path(where):
            self._path = Path(where)
        else:
            raise ConfigurationError(
                "a Store takes the path of a file or a postgresql:// URL, not "
                f"{shown(where)} (without a journal, pushes are kept in memory)"
            )
        self._file: Sqlite | None = None
        self._opening = asyncio.Lock()
        self._loop: asyncio.AbstractEventLoop | None = None
        self._lent: Journal | None = None

    def __repr__(self) -> str:
        where = self._database and without_password(self._database.url)
        scope = "" if self._scope == "default" else f", scope={self._scope!r}"
        return f"Store({str(where or self._path)!r}{scope})"

    async def __aenter__(self) -> Self:
        self._check_loop()
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.aclose()

    async def aclose(self) -> None:
        """Finish pending work and close the store. Leave the blocks that use it first."""
        self._check_loop()
        await self._take_back()
        file, self._file = self._file, None
        if file is not None:
            await file.close()
        if self._database is not None:
            await self._database.aclose()
        self._loop = None

    def _check_loop(self) -> None:
        loop, before = asyncio.get_running_loop(), self._loop
        if before is loop:
            return
        if before is not None and not before.is_closed():
            raise JournalError(
                f"{self} is in use by another event loop that still runs: use a Store for each "
                "loop and thread, or close it there first"
            )
        # A coordinator or connection of a loop that was closed has ended with it.
        self._loop, self._opening, self._lent = loop, asyncio.Lock(), None
        if self._database is not None:
            self._database.start_again()

    def rate(self, *, per_second: float, burst: int = 1, name: str = "calls") -> SharedRate | float:
        """Return a limit shared by all processes that use this store, for ``Client(rate=)``.

        A file has one process, whose client keeps the limit by itself.

        Set it a little below the service's limit: at 95 a second where 100 are allowed, refusals
        are rare.

        Args:
            per_second: Calls that may leave in a second, retries included.
            burst: Calls that may leave at once after a pause.
            name: Clients with the same name share the limit. Use one name for each account.

        Raises:
            ConfigurationError: An argument is invalid.
        """
        if not (is_number(per_second) and 0 < per_second < inf):
            raise ConfigurationError(f"per_second must be more than 0, not {per_second!r}")
        whole_number("burst", burst, 1, 10**6)
        if self._database is None:
            return float(per_second)
        name, interval = _printable("name", name), 1.0 / per_second
        return StoreRate(name, interval, burst, self._database, self._check_loop)

    # For coordinators and the command

    async def _lend(self, *, base_url: str | None = None, dialect: str = "") -> Journal:
        """Return the rows of pushes, to one coordinator at a time.

        *base_url* and *dialect* are those of the service that it calls; None if it calls none.

        Raises:
            ConfigurationError: The scope belongs to another service.
            JournalInUse: Another coordinator uses it, or another process has the file open.
            JournalError: The file is not a journal, is damaged, or cannot be opened.
            StoreUnavailable: The database cannot be reached.
        """
        self._check_loop()
        async with self._opening:
            if self._lent is not None:
                raise JournalInUse(
                    f"{self} is in use by another coordinator: leave its block first, or use "
                    "another store"
                )
            database = await self._opened()
            if base_url is not None:
                await self._bind(database, base_url, dialect)
            self._lent = Journal(database, self._scope, self._lease)
        return self._lent

    async def _take_back(self) -> None:
        """Release the rows for the next coordinator, in this process or another."""
        try:
            if self._lent is not None:
                await self._lent.close()
            if self._database is not None:
                self._database.listen(None)
        finally:
            self._lent = None

    async def _recorded(self) -> list[Row]:
        """Return a snapshot of all rows of pushes, even while another program writes them."""
        if self._database is None:
            return read_rows(await asyncio.to_thread(read_file, self._path, self._scope))
        self._check_loop()
        return await Journal(self._database, self._scope).everything()

    async def _opened(self) -> Database:
        if self._database is not None:
            await self._database.run([("SELECT 1", ())])
            return self._database
        if self._file is None:
            self._file = await Sqlite.open(self._path)
        return self._file

    async def _bind(self, database: Database, base_url: str, dialect: str) -> None:
        say, client = texts(database.words), (self._scope, base_url, dialect)
        _, (owner,) = await database.run([(say.bind, client), (say.owner, (self._scope,))])
        if tuple(owner) != client:
            raise ConfigurationError(
                f"{self} belongs to {owner[1]} (dialect {owner[2]}), but this client is for "
                f"{base_url} (dialect {dialect}). Nothing was read or sent. Use a store or scope "
                "of its own for each service"
            )


def _printable(name: str, value: object) -> str:
    if not (isinstance(value, str) and value.strip() and value.isprintable()):
        raise ConfigurationError(f"{name} must be a printable str that is not blank, not {value!r}")
    return value


def _is_path(where: object) -> bool:
    return (
        isinstance(where, str | os.PathLike) and "://" not in str(where) and Path(where).name > ""
    )
