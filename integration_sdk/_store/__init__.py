"""Where intents are kept: in a file (`SqliteJournal`), or nowhere, if the caller names none.

A journal does not know the protocol. It stores the rows that the rules in ``_sansio`` make, all
of a commit or none, and enforces what must always hold: a push key has one owner, a reference
stands for one push, and neither a final row nor what an intent sends ever changes. A file keeps
every row for good; it refuses to delete one.

* ``_sqlite``: the asyncio interface of a journal file; one thread, commits in groups.
* ``_file``: the file itself: opening and writing; ``_place``: whose it is.
* ``_reading``: reading it, and detecting damage; also while another program writes.
* ``_schema``: its tables, and how a row is stored.
* ``_keys``: used if the caller names no file; keeps only the owner of each push key.
"""

from collections.abc import Collection, Sequence
from typing import ClassVar, Protocol

from integration_sdk._store.memory import KeyJournal
from integration_sdk._store.reading import JournalReader
from integration_sdk._store.row import Intent
from integration_sdk._store.sqlite import SqliteJournal

__all__ = ["Journal", "JournalReader", "KeyJournal", "SqliteJournal"]


class Journal(Protocol):
    """What the coordinator needs from a journal.

    Attributes:
        durable: Whether a later run will find the rows.
    """

    durable: ClassVar[bool]

    async def commit(self, rows: Sequence[Intent]) -> None:
        """Make all of these rows durable, or none; also if the caller is cancelled meanwhile.

        It ends after that in any case, so that a cancellation means that they are written.

        Raises:
            KeyClaimed: One of their push keys belongs to another intent.
            JournalError: The rows were not written; what they describe must not be sent.
        """

    async def rows(
        self, *, reference: str | None = None, intent: str | None = None
    ) -> list[Intent]:
        """Return all rows, or those of a reference or an intent, in the order of acceptance."""

    async def unsettled(self) -> list[Intent]:
        """Return what `recover` takes over: every row that is not settled."""

    async def owners(self, keys: Collection[str]) -> Collection[str]:
        """Return which of these push keys have an owner."""

    async def close(self) -> None:
        """Finish pending work and close the file."""
