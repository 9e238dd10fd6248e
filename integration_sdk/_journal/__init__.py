"""Where intents are kept: in a file (`SqliteJournal`), or nowhere, if the caller names none.

A journal knows no protocol. It takes rows as the rules in ``_sansio`` made them, all of one
commit or none, and guards what must hold whatever the rules do: a push key has one owner, a
reference stands for one push, what an intent sends and a final row never change. A file keeps
every row for good; it refuses to delete one.

* ``_sqlite``: the asyncio face of a journal file; one thread, commits in groups.
* ``_file``: the file itself: who may open it, how it is written and read, how damage shows.
* ``_schema``: its tables, and a row as it is stored.
* ``_keys``: what is left of a journal where the caller wants none: the owner of each push key.
* ``_memory``: a file's guards over dictionaries that forget what is old, for tests and benchmarks.
"""

from collections.abc import Collection, Sequence
from typing import Protocol

from integration_sdk._journal._keys import KeyJournal
from integration_sdk._journal._memory import MemoryJournal
from integration_sdk._journal._sqlite import SqliteJournal
from integration_sdk._sansio.pushing.intents import Intent

__all__ = ["Journal", "KeyJournal", "MemoryJournal", "SqliteJournal"]


class Journal(Protocol):
    """What the coordinator needs of a journal."""

    async def commit(self, rows: Sequence[Intent]) -> None:
        """Make all of these rows durable, or none.

        Raises:
            KeyClaimed: A push key of theirs belongs to another intent.
            JournalError: Not written: nothing may be sent on its account.
        """

    async def rows(self, *, references: Collection[str] | None = None) -> list[Intent]:
        """Return all rows, or those of these references, in the order they were accepted."""

    async def unsettled(self) -> list[Intent]:
        """Return what `recover` takes over: every row that is not settled."""

    async def owners(self, keys: Collection[str]) -> Collection[str]:
        """Return which of these push keys have an owner."""

    async def close(self) -> None:
        """Finish what was handed in and let go of the file."""
