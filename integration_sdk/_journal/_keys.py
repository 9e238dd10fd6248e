"""What stands in for a journal where the caller wants none: whose each push key is."""

from collections.abc import Collection, Mapping, Sequence

from attrs import define, field

from integration_sdk._sansio.pushing.intents import DOUBTED, Intent, KeyClaimed, State


@define
class KeyJournal:
    """Guards that no push key gets two owners, and keeps no row.

    The rules know every intent by themselves until it is acknowledged or settled; from then on
    only its key matters, since a listing goes on to show it.

    remember: How many of the latest keys to remember; up to twice as many are, and all while a
        push is in doubt. Older ones do not matter as long as they are in every snapshot that is
        compared with a list, and a snapshot is 25,000 pushes old at most.
    """

    remember: int = 50_000
    _open: dict[str, str] = field(factory=dict)
    _settled: dict[str, None] = field(factory=dict)  # a set of as many is twice the size
    _settled_before: dict[str, None] = field(factory=dict)
    _doubted: set[str] = field(factory=set)

    async def commit(self, rows: Sequence[Intent]) -> None:
        """Take the keys of these rows, or of none.

        Raises:
            KeyClaimed: A push key of theirs belongs to another intent.
        """
        claims = {row.key: row.id for row in rows if row.key}
        for row in rows:
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

    async def rows(self, *, references: Collection[str] | None = None) -> list[Intent]:
        """Return nothing: no row is kept."""
        return []

    async def unsettled(self) -> list[Intent]:
        """Return nothing: there is nothing to take over."""
        return []

    async def owners(self, keys: Collection[str]) -> Collection[str]:
        """Return which of these push keys have an owner."""
        return {key for key in keys if key in self._open or self._is_settled(key)}

    async def close(self) -> None:
        """Nothing to let go of."""
