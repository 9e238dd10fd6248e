"""`Store`: where state is kept that outlives a call, a block or a process."""

from __future__ import annotations

import os
from pathlib import Path
from types import TracebackType
from typing import Self

from integration_sdk._store.journal import Journal
from integration_sdk._store.memory import KeyJournal
from integration_sdk._store.sqlite import SqliteJournal
from integration_sdk.errors import ConfigurationError, JournalInUse


class Store:
    """Where state is kept: pass it wherever there is a ``journal=`` or ``store=``.

    ``Store("state.db")`` is a SQLite file that survives crashes and power loss, for one process at
    a time. ``Store()`` is memory. It opens at its first use; `aclose` or ``async with`` ends it.

    Args:
        where: Path of the file; None for memory. ``-lock`` is created beside it, ``-wal`` and
            ``-shm`` while it is open; only their owner can read them.

    Raises:
        ConfigurationError: *where* is no path of a file.
    """

    def __init__(self, where: str | os.PathLike[str] | None = None) -> None:
        if where is not None and not is_path(where):
            raise ConfigurationError(
                f"a store is kept in a file, given by its path, or in memory (None), not {where!r}"
            )
        self._path = None if where is None else Path(where)
        self._journal: Journal | None = None
        self._is_lent = False

    def __repr__(self) -> str:
        return f"Store({str(self._path)!r})" if self._path else "Store()"

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

    # For coordinators

    async def lend(self, *, store_payloads: bool = True) -> Journal:
        """Return the journal of pushes, to one coordinator at a time.

        Raises:
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
            self._journal = self._journal or await self._opened()
        except BaseException:
            self._is_lent = False
            raise
        self._journal.store_payloads = store_payloads
        return self._journal

    def take_back(self) -> None:
        """Let the next coordinator have the journal."""
        self._is_lent = False

    async def _opened(self) -> Journal:
        if self._path is None:
            return KeyJournal()
        return await SqliteJournal.open(self._path)


def is_path(where: object) -> bool:
    """Return whether *where* may be the path of a file."""
    if not isinstance(where, str | os.PathLike) or "://" in os.fspath(where):
        return False
    return bool(Path(where).name)
