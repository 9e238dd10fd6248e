"""What a pull keeps in a store: whose it is, its runs, its units, and learned columns.

Any number of processes may pull at once. Each has the number of its run, and leaves a unit alone
that another has begun to read since, and read to its end. One that another is reading is waited
for: if that process dies, whoever waits goes on with it.

Documents, by name::

    pull/identity                 `Identity`
    pull/unit/<type>/<company>    `UnitState`
    pull/columns/<type>           what a sink has learned of a type
"""

from __future__ import annotations

from collections.abc import Iterable
from contextlib import suppress
from typing import Final, TypeVar
from uuid import uuid4

import msgspec
from attrs import define, field
from msgspec.structs import replace

from integration_sdk._pull.unit import UnitState
from integration_sdk._records.old_columns import NO_COLUMNS, Columns
from integration_sdk._store.row import Stale
from integration_sdk._store.rows import Document, Documents

T = TypeVar("T")
PULL: Final = "pull"
IDENTITY: Final = "pull/identity"


class Identity(msgspec.Struct, frozen=True, kw_only=True):
    """Whose pull it is; a scope of a store has one.

    Attributes:
        id: Also written into the sink, so that each knows the other.
        target: Where the sink is, without a password.
        run: The number of the latest run.
    """

    id: str = msgspec.field(default_factory=lambda: uuid4().hex)
    target: str
    format: str
    run: int = 0


@define(eq=False)
class Unit:
    """A unit that this process has claimed, and how far this run has got with it.

    Attributes:
        state: As it was committed last.
        document: The store's copy.
        latest_run: The number of the latest run shortly before it was claimed.
        read, rows: Records that this run read, and those of them that it wrote.
    """

    company_id: str
    data_type: str
    document: Document
    state: UnitState
    _documents: Documents
    latest_run: int
    read: int = 0
    rows: int = 0

    def __str__(self) -> str:
        return f"{self.data_type}/{self.company_id}"

    async def save(self, state: UnitState) -> None:
        """Record *state* in the store.

        Raises:
            Fenced: Another process has the unit.
        """
        self.document = await self._documents.write(self.document, msgspec.json.encode(state))
        self.state = state


@define(eq=False)
class PullState:
    """The documents of a pull."""

    documents: Documents
    run: int = 0
    _columns: dict[str, Document] = field(init=False, factory=dict)

    async def identity(self) -> Identity | None:
        """Return whose pull this scope of the store has; None for nobody's."""
        return _decoded(await self._read(IDENTITY), Identity)

    async def begin_run(self, ours: Identity) -> Identity:
        """Take the next number for this run; return whose pull it is, *ours* or an earlier one."""
        while True:
            document = await self._read(IDENTITY)
            identity = _decoded(document, Identity) or ours
            identity = replace(identity, run=identity.run + 1)
            with suppress(Stale):
                await self.documents.write(document, msgspec.json.encode(identity))
                self.run = identity.run
                return identity

    async def claim(self, company_id: str, data_type: str) -> Unit | None:
        """Take a unit; None while another process has it."""
        # First, so that what is claimed is returned: nothing that can fail comes behind the claim.
        identity = _decoded(await self._read(IDENTITY), Identity)
        document = await self.documents.claim(f"{PULL}/unit/{data_type}/{company_id}")
        if document is None:
            return None
        latest = self.run if identity is None else identity.run
        state = _decoded(document, UnitState) or UnitState()
        return Unit(company_id, data_type, document, state, self.documents, latest)

    def is_done(self, unit: Unit, *, full: bool) -> bool:
        """Whether another process has read *unit*, or read it in *full*, since this run began."""
        since = unit.state.begun if full else unit.state.run
        return unit.state.done and since >= self.run

    async def give_back(self, unit: Unit) -> None:
        """Let other processes have *unit*."""
        await self.documents.give_back([unit.document.name])

    # Columns

    async def load_columns(self, data_types: Iterable[str]) -> None:
        """Read what has been learned of these types, for `columns`."""
        for data_type in data_types:
            self._columns[data_type] = await self._read(f"{PULL}/columns/{data_type}")

    def columns(self, data_type: str) -> Columns:
        """Return what has been learned of a type."""
        return _decoded(self._columns[data_type], Columns) or NO_COLUMNS

    async def learn(self, data_type: str, known: Columns, columns: Columns) -> Columns:
        """Record *columns*, which extend *known*, unless something else was learned meanwhile.

        Returns:
            What is recorded now.
        """
        document = self._columns[data_type]
        if self.columns(data_type) == known:
            try:
                document = await self.documents.write(document, msgspec.json.encode(columns))
            except Stale:
                document = await self._read(document.name)
            self._columns[data_type] = document
        return self.columns(data_type)

    async def _read(self, name: str) -> Document:
        found = await self.documents.read(name)
        return next((one for one in found if one.name == name), Document(name))


def _decoded(document: Document, kind: type[T]) -> T | None:
    return None if document.body is None else msgspec.json.decode(document.body, type=kind)
