"""`Store`: where state is kept that outlives a call, a block or a process."""

from __future__ import annotations

import os
from math import inf
from pathlib import Path
from types import TracebackType
from typing import Final, Self

from integration_sdk._checks import is_number, whole_number
from integration_sdk._store.database import PostgresJournal
from integration_sdk._store.journal import Journal
from integration_sdk._store.memory import KeyJournal
from integration_sdk._store.postgres import Postgres, without_password
from integration_sdk._store.rate import Limit, MemoryRates, RateKeeper, StoreRate
from integration_sdk._store.row import Owner
from integration_sdk._store.sqlite import SqliteJournal
from integration_sdk.errors import ConfigurationError, JournalInUse

POSTGRES: Final = ("postgresql://", "postgres://")


class Store:
    """Where state is kept: pass it wherever there is a ``journal=`` or ``store=``.

    ``Store("state.db")`` is a SQLite file that survives crashes and power loss, for one process at
    a time. ``Store("postgresql://...")`` is a database for any number of processes. ``Store()`` is
    memory. It opens at its first use; `aclose` or ``async with`` ends it.

    What it keeps belongs to one service: the base URL and the dialect of the client that first
    pushes with it. A client of another service is refused before anything is read or sent, since
    the pushes on record, their ids and references, would mean nothing there.

    Args:
        where: Path of the file, beside which ``-lock`` is created, and ``-wal`` and ``-shm`` while
            it is open; only their owner can read them. Or the URL of a PostgreSQL database as libpq
            takes it, for which the extra ``integration-sdk[postgres]`` is needed; the tables are
            made in its schema ``integration_sdk``. None for memory.
        scope: The name of what belongs to that service. A store has one scope so far.
        patience: Seconds to wait for a database that cannot be reached, before
            `StoreUnavailable` is raised.

    Raises:
        ConfigurationError: *where* is none of these, or the extra is missing.
    """

    def __init__(
        self,
        where: str | os.PathLike[str] | None = None,
        scope: str = "default",
        *,
        patience: float = 30.0,
    ) -> None:
        self._scope = _printable("scope", scope)
        if not (is_number(patience) and 0 <= patience < inf):
            raise ConfigurationError(f"patience must be 0 seconds or more, not {patience!r}")
        self._database: Postgres | None = None
        self._path: Path | None = None
        if is_url(where):
            self._database = Postgres(str(where), patience)
        elif where is not None and not is_path(where):
            raise ConfigurationError(
                "a store is kept in a file, given by its path, in a database, given by its "
                f"postgresql:// URL, or in memory (None), not {where!r}"
            )
        elif where is not None:
            self._path = Path(where)
        self._rates: RateKeeper = self._database or MemoryRates()
        self._journal: Journal | None = None
        self._is_lent = False

    def __repr__(self) -> str:
        where = self._path and str(self._path)
        if self._database is not None:
            where = without_password(self._database.url)
        given = [repr(where)] if where else []
        if self._scope != "default":
            given.append(f"scope={self._scope!r}")
        return f"Store({', '.join(given)})"

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        await self.aclose()

    async def aclose(self) -> None:
        """Finish pending work and close the file. Leave the blocks that use the store first."""
        journal, self._journal, self._is_lent = self._journal, None, False
        if journal is not None:
            await journal.close()
        if self._database is not None:
            await self._database.aclose()

    def rate(self, *, per_second: float, burst: int = 1, name: str = "calls") -> StoreRate:
        """Return a limit that all clients of this store keep together, for ``Client(rate=)``.

        In a database, that is one limit for all its processes and hosts; in a file or in memory,
        one for the clients of this process that use this store. Keep it a little below the
        service's: at 95 a second where it allows 100, refusals are rare.

        Args:
            per_second: How many calls may leave in a second, retries included.
            burst: How many of them may leave at once after a pause.
            name: Clients that give the same name share the limit. One for each account.

        Raises:
            ConfigurationError: An argument cannot be right.
        """
        if not (is_number(per_second) and 0 < per_second < inf):
            raise ConfigurationError(f"per_second must be more than 0, not {per_second!r}")
        whole_number("burst", burst, 1, 10**6)
        return StoreRate(Limit(_printable("name", name), 1.0 / per_second, burst), self._rates)

    # For coordinators

    async def lend(
        self, service: tuple[str, str] | None = None, *, store_payloads: bool = True
    ) -> Journal:
        """Return the journal of pushes, to one coordinator at a time.

        Args:
            service: Base URL and dialect of who will read and write it; None for who sends nothing.
            store_payloads: See `Journal`.

        Raises:
            ConfigurationError: It holds the pushes of another service.
            JournalInUse: A coordinator has it.
            JournalError: The file is somebody else's, in use, not a journal, or damaged.
        """
        if self._is_lent:
            raise JournalInUse(
                f"{self} is in use by another coordinator: leave its block first, or give this "
                "one a store of its own"
            )
        self._is_lent = True
        try:
            if service is not None:
                await self._bind(Owner(self._scope, *service))
            self._journal = self._journal or await self._opened()
        except BaseException:
            self._is_lent = False
            raise
        self._journal.store_payloads = store_payloads
        return self._journal

    async def take_back(self) -> None:
        """Let the next coordinator have the journal, wherever it runs."""
        self._is_lent = False
        if self._database is not None and self._journal is not None:
            journal, self._journal = self._journal, None
            await journal.close()

    async def _bind(self, client: Owner) -> None:
        if self._database is not None:  # before its lease, which another service may have
            owner = await self._database.bind(client)
        else:
            self._journal = self._journal or await self._opened()
            owner = await self._journal.bind(client)
        if owner.scope != client.scope:
            raise ConfigurationError(
                f"{self} is no store of scope {client.scope!r}: it has scope {owner.scope!r}, and "
                "only one so far. Give that one, or this client a store of its own"
            )
        if owner != client:
            raise ConfigurationError(
                f"{self} holds the pushes of {owner.base_url} (dialect {owner.dialect}), and this "
                f"client is for {client.base_url} (dialect {client.dialect}), which knows none of "
                "them. Nothing was read or sent. Give each service a store of its own, or this "
                "client the base_url= and dialect= of the store's"
            )

    async def _opened(self) -> Journal:
        if self._database is not None:
            return await PostgresJournal.open(self._database)
        if self._path is None:
            return KeyJournal()
        return await SqliteJournal.open(self._path)


def _printable(name: str, value: object) -> str:
    if not (isinstance(value, str) and value.strip() and value.isprintable()):
        raise ConfigurationError(f"{name} must be a str that can be printed, not {value!r}")
    return value


def is_url(where: object) -> bool:
    """Return whether *where* is the URL of a database."""
    return isinstance(where, str) and where.startswith(POSTGRES)


def is_path(where: object) -> bool:
    """Return whether *where* may be the path of a file."""
    if not isinstance(where, str | os.PathLike) or "://" in os.fspath(where):
        return False
    return bool(Path(where).name)
