"""A journal for tests and benchmarks: the same checks as a file's, without a disk."""

from collections.abc import Collection, Mapping, Sequence
from operator import attrgetter
from typing import ClassVar

from attrs import define, field
from msgspec import structs

from integration_sdk._store.row import IMMUTABLE, Fenced, Intent, KeyClaimed, Owner, State
from integration_sdk.errors import JournalError

_what_it_is = attrgetter("lane", *IMMUTABLE)


@define
class MemoryJournal:
    """Keeps all rows in a dictionary; nothing outlives the process."""

    durable: ClassVar[bool] = True
    store_payloads: bool = field(default=True, kw_only=True)

    _rows: dict[str, Intent] = field(factory=dict)
    _keys: dict[str, str] = field(factory=dict)
    _references: dict[str, tuple[str, ...]] = field(factory=dict)
    _owner: Owner | None = None

    async def commit(self, rows: Sequence[Intent]) -> None:
        """Keep all of these rows, or none. Errors as `Journal.commit`."""
        self._check(rows)
        for row in rows:
            self._keep(row)

    def _check(self, rows: Sequence[Intent]) -> None:
        keys: dict[str, str] = {}  # of this commit
        references: dict[str, str] = {}
        for row in rows:
            if (before := self._rows.get(row.id)) is not None:
                _refuse_stale(before, row)
                _refuse_another_record(before, row)
                _refuse_change_of_final(before, row)
            if row.key:
                owner = self._keys.get(row.key) or keys.setdefault(row.key, row.id)
                _refuse_second_owner(owner, row)
            if row.reference:
                if row.reference not in references:
                    references[row.reference] = self._reference_owner(row.reference)
                references[row.reference] = _reference_owner(references[row.reference], row)

    def _reference_owner(self, reference: str) -> str:
        """Return the intent that has a reference; "" if all of its intents are superseded."""
        ids = self._references.get(reference, ())
        return next((one for one in ids if not self._rows[one].is_superseded), "")

    def _keep(self, row: Intent) -> None:
        kept = structs.replace(row, payload=None, snapshot=None) if row.is_settled else row
        self._rows[row.id] = kept
        if row.key:
            self._keys[row.key] = row.id
        if row.reference:
            ids = self._references.get(row.reference, ())
            self._references[row.reference] = ids if row.id in ids else (*ids, row.id)

    async def rows(
        self, *, reference: str | None = None, intent: str | None = None
    ) -> list[Intent]:
        """Return all rows, or those of a reference or an intent, in the order of acceptance."""
        if intent is not None:
            return [row for row in self._rows.values() if row.id == intent]
        if reference is None:
            return list(self._rows.values())
        return [self._rows[one] for one in self._references.get(reference, ())]

    async def claim(self) -> list[Intent]:
        """Return every row that is not settled."""
        return [row for row in self._rows.values() if not row.is_settled]

    async def owners(self, keys: Collection[str]) -> Mapping[str, str]:
        """Return which of these push keys have an owner: its intent's id, by key."""
        return {key: self._keys[key] for key in keys if key in self._keys}

    async def bind(self, owner: Owner) -> Owner:
        """Bind the rows to *owner* if they have none; return whose they are."""
        self._owner = self._owner or owner
        return self._owner

    async def close(self) -> None:
        """Do nothing."""


def _refuse_stale(before: Intent, row: Intent) -> None:
    again = structs.replace(row, payload=before.payload, snapshot=before.snapshot)
    if row.version <= before.version and again != before:
        raise Fenced(f"Intent {row.id} is on record in version {before.version}.")


def _refuse_another_record(before: Intent, row: Intent) -> None:
    refused = before.state is State.QUEUED and before.http_status is not None
    rekeyed = row.idempotency_key != before.idempotency_key and not refused
    if rekeyed or _what_it_is(row) != _what_it_is(before):
        raise JournalError(f"Intent {row.id} is on record for another record: it never changes.")


def _refuse_change_of_final(before: Intent, row: Intent) -> None:
    if before.state is not State.FINAL:
        return
    if (row.state, row.key, row.status) != (before.state, before.key, before.status):
        raise JournalError(f"Intent {row.id} is final and never changes again.")


def _refuse_second_owner(owner: str, row: Intent) -> None:
    if owner != row.id:
        raise KeyClaimed(f"Push {row.key} belongs to intent {owner} already.")


def _reference_owner(owner: str, row: Intent) -> str:
    """Return the intent that has the reference after *row*; "" if *row* is superseded."""
    if row.is_superseded:
        return ""
    if owner not in {"", row.id}:
        raise JournalError(
            f"Reference {row.reference!r} is intent {owner}'s already: push it once."
        )
    return row.id
