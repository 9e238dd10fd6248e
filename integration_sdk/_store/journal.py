"""`Journal`: what pushes need from a store."""

from collections.abc import Collection, Sequence
from typing import ClassVar, Protocol

from integration_sdk._store.row import Intent, Owner


class Journal(Protocol):
    """What the coordinator needs from a journal.

    Attributes:
        durable: Whether a later run will find the rows.
        store_payloads: Whether a record is kept until its push is final. Otherwise, and
            afterwards, only its hash and natural key are.
    """

    durable: ClassVar[bool]
    store_payloads: bool

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

    async def claim(self) -> list[Intent]:
        """Take over what nobody else carries; return every row of it that is not settled."""

    async def owners(self, keys: Collection[str]) -> Collection[str]:
        """Return which of these push keys have an owner."""

    async def bind(self, owner: Owner) -> Owner:
        """Bind the rows to *owner* if they have none; return whose they are."""

    async def close(self) -> None:
        """Finish pending work and close the file."""
