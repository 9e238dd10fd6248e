"""`Store`: storage for state that outlives a call, a block or a process."""

from __future__ import annotations

import asyncio
import os
from math import inf
from pathlib import Path
from types import TracebackType
from typing import Any, Final, Self

from integration_sdk._checks import is_number, whole_number
from integration_sdk._store.database import Postgres, shown, without_password
from integration_sdk._store.memory import MemoryDocuments, MemoryRows
from integration_sdk._store.postgres import PostgresDocuments, PostgresRows
from integration_sdk._store.rate import Limit, MemoryRates, RateKeeper, StoreRate
from integration_sdk._store.row import Owner, Row
from integration_sdk._store.rows import Documents, Rows
from integration_sdk._store.sqlite import SqliteDocuments, SqliteRows, SqliteThread, read_file
from integration_sdk.errors import ConfigurationError, JournalError, JournalInUse

POSTGRES: Final = ("postgresql://", "postgres://")


class Store:
    """Storage for pushes, cursors and rates: SQLite, PostgreSQL or memory.

    Pass it wherever there is a ``journal=`` or ``store=``. ``Store("state.db")`` is a SQLite file,
    for one process at a time; it survives crashes and power loss. ``Store("postgresql://...")`` is
    a database for any number of processes. ``Store()`` is memory. A store opens at its first use,
    for one event loop at a time; close it with `aclose` or ``async with``.

    Example::

        async with Store("postgresql://...") as store:
            async with Client(rate=store.rate(per_second=95)) as client:
                async with client.coordinator(journal=store) as pushes:
                    ...

    A scope belongs to one service: the base URL and dialect of the client that first uses it. A
    client of another service is refused before anything is read or sent, because the recorded ids
    and references mean nothing there.

    Args:
        where: The path of a file. ``-lock`` is created beside it, and ``-wal`` and ``-shm`` while
            it is open; only their owner can read them. Or the URL of a PostgreSQL database, in the
            form that libpq takes, with the extra ``integration-sdk[postgres]``. None for memory.
        scope: Separates services in one file or database, which can hold many scopes.
        schema: The schema of the tables in a database. ``integration-sdk store migrate`` creates
            them; otherwise the first use does, if its role is allowed to.
        patience: Seconds to wait for a database that cannot be reached, before
            `StoreUnavailable` is raised.

    Raises:
        ConfigurationError: An argument is invalid, or the extra is missing.
    """

    def __init__(
        self,
        where: str | os.PathLike[str] | None = None,
        scope: str = "default",
        *,
        schema: str = "integration_sdk",
        patience: float = 30.0,
    ) -> None:
        self._scope = _printable("scope", scope)
        if not (is_number(patience) and 0 <= patience < inf):
            raise ConfigurationError(f"patience must be 0 seconds or more, not {patience!r}")
        self._database: Postgres | None = None
        self._path: Path | None = None
        if is_url(where):
            self._database = Postgres(str(where), patience, schema)
        elif where is not None and not is_path(where):
            raise ConfigurationError(
                "a Store takes the path of a file, a postgresql:// URL, or None for memory, "
                f"not {shown(where)}"
            )
        elif where is not None:
            self._path = Path(where)
        self._rates: RateKeeper = self._database or MemoryRates()
        self._memory = MemoryRows(), MemoryDocuments()
        self._owner: Owner | None = None  # of what is in memory
        self._file: SqliteThread | None = None
        self._opening = asyncio.Lock()
        self._loop: asyncio.AbstractEventLoop | None = None
        self._blocks = 0
        self._lent: Rows | None = None
        self._documents: MemoryDocuments | SqliteDocuments | PostgresDocuments | None = None

    def __repr__(self) -> str:
        where = self._path and str(self._path)
        if self._database is not None:
            where = without_password(self._database.url)
        given = [repr(where)] if where else []
        if self._scope != "default":
            given.append(f"scope={self._scope!r}")
        return f"Store({', '.join(given)})"

    async def __aenter__(self) -> Self:
        self._check_loop()
        self._blocks += 1
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self._blocks -= 1
        if not self._blocks:  # else another task is in a block of its own
            await self.aclose()

    async def aclose(self) -> None:
        """Finish pending work and close the store. Leave the blocks that use it first."""
        self._check_loop()
        await self.take_back()
        file, self._file = self._file, None
        if file is not None:
            await file.close()
        documents, self._documents = self._documents, None
        if isinstance(documents, PostgresDocuments):
            await documents.close()
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
        self._loop, self._opening = loop, asyncio.Lock()
        self._lent = self._documents = None  # whoever had them has ended with the loop before

    @property
    def shared(self) -> bool:
        """Whether several processes can use it at the same time."""
        return self._database is not None

    def for_others(self) -> dict[str, Any]:
        """Return the arguments for the same store in another process, with the password."""
        where = self._database
        if where is None:
            raise ConfigurationError(f"{self} is for one process; several need a postgresql:// URL")
        return {
            "where": where.url,
            "scope": self._scope,
            "schema": where.schema,
            "patience": where.patience,
        }

    def rate(self, *, per_second: float, burst: int = 1, name: str = "calls") -> StoreRate:
        """Return a limit shared by all clients that use this store, for ``Client(rate=)``.

        A database shares it among all processes and hosts. A file or memory shares it among the
        clients of this process that use this `Store`. Set it a little below the service's limit:
        at 95 a second where 100 are allowed, refusals are rare.

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
        return StoreRate(Limit(_printable("name", name), 1.0 / per_second, burst), self._rates)

    # For coordinators and pulls

    async def lend(self, *, base_url: str | None = None, dialect: str = "") -> Rows:
        """Return the rows of pushes, to one coordinator at a time.

        Args:
            base_url: The service that the borrower calls; None if it calls none.
            dialect: The dialect of that service.

        Raises:
            ConfigurationError: The scope belongs to another service.
            JournalInUse: Another coordinator uses it, or another process has the file open.
            JournalError: The file belongs to another user, is not a journal, or is damaged.
            StoreUnavailable: The database cannot be reached.
        """
        self._check_loop()
        if self._lent is not None:
            raise JournalInUse(
                f"{self} is in use by another coordinator: leave its block first, or use "
                "another store"
            )
        self._lent = self._memory[0]  # so that no other gets it meanwhile
        try:
            file = await self._opened(base_url, dialect)
            if self._database is not None:
                self._lent = PostgresRows(self._database, self._scope)
            elif file is not None:
                self._lent = SqliteRows(file)
        except BaseException:
            self._lent = None
            raise
        return self._lent

    async def take_back(self) -> None:
        """Release the rows for the next coordinator, in this process or another."""
        rows, self._lent = self._lent, None
        if rows is not None:
            await rows.release()

    async def documents(self, *, base_url: str | None = None, dialect: str = "") -> Documents:
        """Return the documents of pulls. Raises like `lend`, but any number may use them."""
        file = await self._opened(base_url, dialect)
        if self._documents is None:  # one for all, so that each claims for itself
            if self._database is not None:
                self._documents = PostgresDocuments(self._database, self._scope)
            else:
                self._documents = self._memory[1] if file is None else SqliteDocuments(file)
        return self._documents

    async def recorded(self) -> list[Row]:
        """Return a snapshot of all rows of pushes, even while another program writes them."""
        if self._database is not None:
            return await PostgresRows(self._database, self._scope).rows()
        if self._path is not None:
            return await asyncio.to_thread(read_file, self._path, self._scope)
        return await self._memory[0].rows()

    async def _opened(self, base_url: str | None, dialect: str) -> SqliteThread | None:
        self._check_loop()
        async with self._opening:
            if self._file is not None and self._file.is_left:
                left, self._file = self._file, None
                await left.close()
            if self._path is not None and self._file is None:
                self._file = await SqliteThread.open(self._path, self._scope)
            if base_url is not None:
                await self._bind(Owner(self._scope, base_url, dialect))
        return self._file

    async def _bind(self, client: Owner) -> None:
        if self._database is not None:
            owner = await self._database.bind(client)
        elif self._file is not None:
            owner = await self._file.bind(client)
        else:
            owner = self._owner = self._owner or client
        if owner != client:
            scope = "" if self._scope == "default" else f"scope {self._scope!r} of "
            raise ConfigurationError(
                f"{scope}{self} belongs to {owner.base_url} (dialect {owner.dialect}), but this "
                f"client is for {client.base_url} (dialect {client.dialect}). Nothing was read or "
                "sent. Use a store or scope of its own for each service, or pass the base_url= and "
                "dialect= that the store belongs to"
            )


def _printable(name: str, value: object) -> str:
    if not (isinstance(value, str) and value.strip() and value.isprintable()):
        raise ConfigurationError(f"{name} must be a printable str that is not blank, not {value!r}")
    return value


def is_url(where: object) -> bool:
    """Return whether *where* is the URL of a database."""
    return isinstance(where, str) and where.startswith(POSTGRES)


def is_path(where: object) -> bool:
    """Return whether *where* may be the path of a file."""
    if not isinstance(where, str | os.PathLike) or "://" in os.fspath(where):
        return False
    return bool(Path(where).name)
