"""What stands in for a journal where the caller wants none: whose each push key is."""

from collections import OrderedDict
from collections.abc import Collection, Mapping, Sequence

from attrs import define, field

from integration_sdk._sansio.pushing.intents import DOUBTED, Intent, KeyClaimed, Lane, State


@define
class KeyJournal:
    """Guards that no push key gets two owners, and keeps no row.

    The rules know every intent that is not settled by themselves; of those that are settled
    only the keys matter, since a listing goes on to show them.

    remember: Keys of settled pushes kept, the latest: of an hour and a half at the thousand
        requests a minute that the service allows. All, while any push is in doubt: it may
        be as old as they are, and be taken for one of them.
    """

    remember: int = 100_000
    _open: dict[str, str] = field(factory=dict)
    _settled: OrderedDict[str, None] = field(factory=OrderedDict)  # a dict is slow at its front
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
        while len(self._settled) > self.remember and not self._doubted:
            self._settled.popitem(last=False)

    def _is_free(self, key: str, intent_id: str, claims: Mapping[str, str]) -> bool:
        owner = self._open.get(key, claims[key])
        return owner == intent_id and key not in self._settled

    def _note(self, row: Intent) -> None:
        if row.state in DOUBTED:
            self._doubted.add(row.id)
        else:
            self._doubted.discard(row.id)
        if row.key and row.is_settled:
            self._open.pop(row.key, None)
            self._settled[row.key] = None
        elif row.key:
            self._open[row.key] = row.id

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

    async def owners(self, keys: Collection[str]) -> Collection[str]:
        """Return which of these push keys have an owner."""
        return {key for key in keys if key in self._open or key in self._settled}

    async def close(self) -> None:
        """Nothing to let go of."""
