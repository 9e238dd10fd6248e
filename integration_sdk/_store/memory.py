"""A scope in the memory of one process."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Collection, Sequence
from typing import Final

from attrs import define, field
from msgspec import structs

from integration_sdk._store.row import SETTLED, Row, State
from integration_sdk._store.rows import Document, check_next, key_claimed, next_document, stale

REMEMBERED: Final = 50_000
"""How many keys of settled rows are remembered at least. Older ones do not matter: a snapshot is at
most 25,000 pushes old, and contains them."""
_KEY_KNOWN: Final = SETTLED | {State.OPEN}
_SEARCHED: Final = frozenset({State.LOST, State.DOUBT})


@define(eq=False)
class MemoryRows:
    """The rows of one process.

    A reference is only a name here, which any number of rows may have. Settled rows are forgotten
    but for their push keys, which listings still show. What is not settled is forgotten by
    `release`: whoever pushes next cannot know what its caller did since.

    durable: Keep everything, as a file does. For simulations.
    """

    durable: bool = False
    shared: bool = field(init=False, default=False)
    _rows: dict[str, Row] = field(init=False, factory=dict)  # by id, in the order of `add`
    _companies: dict[str, dict[str, None]] = field(init=False, factory=dict)  # ids of `_rows`
    _references: dict[str, str] = field(init=False, factory=dict)  # ids of those not superseded
    _superseded: dict[str, list[str]] = field(init=False, factory=dict)  # ids by reference
    _keys: dict[str, None] = field(init=False, factory=dict)  # of `_rows`; half the size of a set
    _settled: dict[str, None] = field(init=False, factory=dict)  # keys of the latest
    _settled_before: dict[str, None] = field(init=False, factory=dict)
    _searched: set[str] = field(init=False, factory=set)
    _taken: set[str] = field(init=False, factory=set)

    def add(self, rows: Sequence[Row]) -> list[Row]:
        """Record new rows; return for each itself, or the row that has its reference."""
        return [self._added(row) for row in rows]

    def _added(self, row: Row) -> Row:
        if row.id in self._rows:
            return self._rows[row.id]
        if row.reference is not None and row.reference in self._references:
            return self._rows[self._references[row.reference]]
        self._set(row)
        return self._rows[row.id]

    async def take(self, company: str) -> list[Row] | None:
        """Return the live rows of *company* once; afterwards nothing."""
        if company in self._taken:
            return []
        self._taken.add(company)
        return await self.rows(company=company, live=True)

    def put(self, rows: Sequence[Row], add: Sequence[Row] = ()) -> None:
        """Record these next versions, and new rows, all or none."""
        claimed: set[str] = set()
        for row in rows:
            old = self._rows.get(row.id)
            check_next(old, row)
            if row.key is not None and old is not None and row.key != old.key:
                if row.key in claimed or self._is_owned(row.key):
                    raise key_claimed(row.key)
                claimed.add(row.key)
        freed = {None, *(row.id for row in rows if row.is_superseded)}
        for row in add:
            holder = None if row.reference is None else self._references.get(row.reference)
            if row.id in self._rows or holder not in freed:
                raise stale(row)
        for row in (*rows, *add):
            self._set(row)

    def decide(self, row: Row, add: Sequence[Row] = ()) -> None:
        """`put` of one row."""
        self.put([row], add)

    def _set(self, row: Row) -> None:
        if not self.durable and row.payload is not None and row.state in _KEY_KNOWN:
            row = structs.replace(row, payload=None)
        if row.state in SETTLED and not self.durable:
            self._forget(row)
        else:
            self._keep(row)
        if row.state in _SEARCHED:
            self._searched.add(row.id)
        else:
            self._searched.discard(row.id)
        if len(self._settled) >= REMEMBERED and not self._searched:
            self._settled_before, self._settled = self._settled, {}

    def _keep(self, row: Row) -> None:
        self._rows[row.id] = row
        self._companies.setdefault(row.company, {})[row.id] = None
        if row.key is not None:
            self._keys[row.key] = None
        if row.reference is None or not self.durable:  # then a reference is a name only
            return
        if not row.is_superseded:
            self._references[row.reference] = row.id
        elif self._references.get(row.reference) == row.id:
            del self._references[row.reference]
            self._superseded.setdefault(row.reference, []).append(row.id)

    def _forget(self, row: Row) -> None:
        self._rows.pop(row.id, None)
        company = self._companies.get(row.company, {})
        company.pop(row.id, None)
        if not company:
            self._companies.pop(row.company, None)
        if row.key is not None:
            self._keys.pop(row.key, None)
            self._settled[row.key] = None

    def _is_owned(self, key: str) -> bool:
        return key in self._keys or key in self._settled or key in self._settled_before

    async def rows(
        self,
        *,
        ids: Collection[str] | None = None,
        reference: str | None = None,
        company: str | None = None,
        state: State | None = None,
        live: bool = False,
    ) -> list[Row]:
        """Return the rows for which all conditions hold, in the order of `add`."""
        among: Collection[str] = self._rows
        if reference is not None and self.durable:
            newest = self._references.get(reference)
            among = [*self._superseded.get(reference, ()), *([newest] if newest else [])]
        elif company is not None:
            among = self._companies.get(company, ())
        elif ids is not None and len(ids) == 1:
            among = [one for one in ids if one in self._rows]
        wanted = None if ids is None else frozenset(ids)
        found = (self._rows[one] for one in among if wanted is None or one in wanted)
        return [
            row
            for row in found
            if company in (None, row.company)
            and reference in (None, row.reference)
            and state in (None, row.state)
            and not (live and row.state in SETTLED)
        ]

    def _is_live(self, row_id: str) -> bool:
        return self._rows[row_id].state not in SETTLED

    async def owners(self, keys: Collection[str]) -> set[str]:
        """Return which of these push keys have an owner."""
        return {key for key in keys if self._is_owned(key)}

    async def companies(self) -> list[str]:
        """Return the companies that have live rows."""
        return [one for one, ids in self._companies.items() if any(map(self._is_live, ids))]

    async def news(self) -> AsyncIterator[str]:
        """Yield nothing: there are no others."""
        await asyncio.get_running_loop().create_future()
        yield ""

    async def release(self) -> None:
        """Forget what is not settled, but for its keys."""
        self._taken.clear()
        for row in () if self.durable else list(self._rows.values()):
            self._forget(row)
        self._searched &= self._rows.keys()


@define(eq=False)
class MemoryDocuments:
    """Documents of one process."""

    _documents: dict[str, Document] = field(init=False, factory=dict)
    _claimed: set[str] = field(init=False, factory=set)

    async def claim(self, name: str) -> Document | None:
        """Take the document, unless another pull of this process has it."""
        if name in self._claimed:
            return None
        self._claimed.add(name)
        before = self._documents.get(name, Document(name))
        claimed = self._documents[name] = before._replace(token=before.token + 1)
        return claimed

    async def read(self, prefix: str) -> list[Document]:
        """Return all documents whose name begins so, by name."""
        found = (one for name, one in sorted(self._documents.items()) if name.startswith(prefix))
        return [one._replace(token=0) for one in found]

    async def write(self, document: Document, body: bytes) -> Document:
        """Record a new body; return the next version."""
        recorded = self._documents.get(document.name, Document(document.name))
        written = next_document(recorded, document, body)
        self._documents[document.name] = written._replace(token=recorded.token)
        return written

    async def give_back(self, names: Collection[str]) -> None:
        """End these claims."""
        self._claimed.difference_update(names)
