"""What stands in for a journal where the caller wants none: whose each push key is."""

from collections.abc import Collection, Mapping, Sequence
from itertools import islice

from attrs import define, field

from integration_sdk._sansio.pushing.intents import Intent, KeyClaimed, Lane, State


@define
class KeyJournal:
    """Guards that no push key gets two owners, and keeps no row.

    The rules know every intent that is not settled by themselves; of those that are settled
    only the keys matter, since a listing goes on to show them.

    remember: Keys of settled pushes kept, the latest.
    """

    remember: int = 10_000
    _owners: dict[str, str] = field(factory=dict)
    _settled: dict[str, None] = field(factory=dict)

    async def commit(self, rows: Sequence[Intent]) -> None:
        """Take the keys of these rows, or of none.

        Raises:
            KeyClaimed: A push key of theirs belongs to another intent.
        """
        claims = {row.key: row.id for row in rows if row.key}
        if not claims:
            return
        for row in rows:
            if row.key and self._owners.get(row.key, claims[row.key]) != row.id:
                raise KeyClaimed(f"Push {row.key} belongs to another intent already.")
        self._owners.update(claims)
        self._settled.update({row.key: None for row in rows if row.key and row.is_settled})
        surplus = max(0, len(self._settled) - self.remember)
        for oldest in list(islice(self._settled, surplus)):
            del self._settled[oldest], self._owners[oldest]

    async def rows(
        self,
        *,
        states: Collection[State] | None = None,
        ids: Collection[str] | None = None,
        references: Collection[str] | None = None,
        keys: Collection[str] | None = None,
        lane: Lane | None = None,
    ) -> list[Intent]:
        """Return nothing: no row is kept."""
        return []

    async def unsettled(self) -> list[Intent]:
        """Return nothing: there is nothing to take over."""
        return []

    async def owners(self, keys: Collection[str]) -> Mapping[str, str]:
        """Return which of these push keys have an owner: its intent's id, by key."""
        return {key: self._owners[key] for key in keys if key in self._owners}

    async def close(self) -> None:
        """Nothing to let go of."""
