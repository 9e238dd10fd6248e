"""What replaces a journal if the caller names no file: a record of who owns which push key."""

from collections.abc import Collection, Mapping, Sequence
from typing import ClassVar

from attrs import define, field

from integration_sdk._store.row import DOUBTED, Intent, KeyClaimed, Owner, State


@define
class KeyJournal:
    """Ensures that no push key gets two owners; keeps no rows.

    The ledger knows every intent until it is acknowledged or settled. From then on only its key
    matters, because listings still show it.

    remember: How many of the latest keys to remember at least; up to twice as many are kept, and
        all of them while a push is in doubt. Older keys do not matter: every snapshot compared
        with a list contains them, and a snapshot is at most 25,000 pushes old.
    """

    durable: ClassVar[bool] = False

    remember: int = 50_000
    store_payloads: bool = False
    _open: dict[str, str] = field(factory=dict)
    _settled: dict[str, None] = field(factory=dict)  # half the size of a set
    _settled_before: dict[str, None] = field(factory=dict)
    _doubted: set[str] = field(factory=set)
    _owner: Owner | None = None

    async def commit(self, rows: Sequence[Intent]) -> None:
        """Record the keys of all of these rows, or of none.

        Raises:
            KeyClaimed: One of their push keys belongs to another intent.
        """
        claims = {row.key: row.id for row in rows if row.key}
        for row in rows if claims else ():
            if row.key and not self._is_free(row.key, row.id, claims):
                raise KeyClaimed(f"Push {row.key} belongs to another intent already.")
        for row in rows:
            self._note(row)
        if len(self._settled) >= self.remember and not self._doubted:
            self._settled_before, self._settled = self._settled, {}

    def _is_free(self, key: str, intent_id: str, claims: Mapping[str, str]) -> bool:
        return self._open.get(key, claims[key]) == intent_id and not self._is_settled(key)

    def _is_settled(self, key: str) -> bool:
        return key in self._settled or key in self._settled_before

    def _note(self, row: Intent) -> None:
        if row.state in DOUBTED:
            self._doubted.add(row.id)
        else:
            self._doubted.discard(row.id)
        if row.key and (row.is_settled or row.state is State.ACKED):
            self._open.pop(row.key, None)
            self._settled[row.key] = None
        elif row.key:
            self._open[row.key] = row.id

    async def rows(
        self, *, reference: str | None = None, intent: str | None = None
    ) -> list[Intent]:
        """Return an empty list: no rows are kept."""
        return []

    async def claim(self) -> list[Intent]:
        """Return an empty list: no rows are kept."""
        return []

    async def owners(self, keys: Collection[str]) -> Collection[str]:
        """Return which of these push keys have an owner."""
        return {key for key in keys if key in self._open or self._is_settled(key)}

    async def bind(self, owner: Owner) -> Owner:
        """Bind the keys to *owner* if they have none; return whose they are."""
        self._owner = self._owner or owner
        return self._owner

    async def close(self) -> None:
        """Do nothing."""
