"""What a pull keeps in a store: whose it is, its rounds, its units, and learned columns.

Documents, by name::

    pull/identity                 `Identity`
    pull/process/<id>             claimed while a process of a round lives
    pull/unit/<type>/<company>    `UnitState`
    pull/columns/<type>           what a sink has learned of a type
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Final, TypeVar
from uuid import uuid4

import msgspec
from attrs import define, field
from msgspec.structs import replace

from integration_sdk._pull.unit import UnitState
from integration_sdk._records.columns import NO_COLUMNS, Columns
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
        round: A run, or several at once: what one of them has done, the others leave alone.
        holders: Names of documents that the processes of the round claim.
    """

    id: str = msgspec.field(default_factory=lambda: uuid4().hex)
    target: str
    format: str
    base_url: str
    dialect: str
    round: int = 0
    holders: Sequence[str] = ()


@define(eq=False)
class Unit:
    """A unit that this process has claimed, and how far this run has got with it.

    Attributes:
        state: As it was committed last.
        document: The store's copy.
        read, rows: Records that this run read, and those of them that it wrote.
    """

    company_id: str
    data_type: str
    document: Document
    state: UnitState
    _documents: Documents
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
    round: int = field(init=False, default=0)
    _holder: str | None = field(init=False, default=None)
    _columns: dict[str, Document] = field(init=False, factory=dict)

    async def identity(self) -> Identity | None:
        """Return whose pull this scope of the store has; None for nobody's."""
        return _decoded(await self._read(IDENTITY), Identity)

    async def introduce(self, identity: Identity) -> Identity:
        """Record *identity*, unless another process has come first; return the recorded one."""
        document = await self._read(IDENTITY)
        if document.body is None:
            try:
                document = await self.documents.write(document, msgspec.json.encode(identity))
            except Stale:
                document = await self._read(IDENTITY)
        return _decoded(document, Identity) or identity

    async def join_round(self) -> None:
        """Join the round that other processes are in; if none of them lives, begin the next."""
        while True:
            document = await self._read(IDENTITY)
            identity = _decoded(document, Identity)
            if identity is None:
                raise LookupError("introduce() comes first")
            alive = []
            for holder in identity.holders:
                if await self.documents.claim(holder) is None:
                    alive.append(holder)
                elif self._holder is None:
                    self._holder = holder  # its name is ours now
                else:
                    await self.documents.give_back([holder])
            if self._holder is None:
                self._holder = f"{PULL}/process/{uuid4().hex}"
                await self.documents.claim(self._holder)
            self.round = identity.round if alive else identity.round + 1
            joined = replace(identity, round=self.round, holders=[*alive, self._holder])
            try:
                await self.documents.write(document, msgspec.json.encode(joined))
            except Stale:
                continue
            return

    async def leave_round(self) -> None:
        """Let the next run begin a round of its own."""
        if self._holder is not None:
            await self.documents.give_back([self._holder])
            self._holder = None

    async def claim(self, company_id: str, data_type: str) -> Unit | None:
        """Take a unit; None if another process has it, or has read it in this round."""
        document = await self.documents.claim(f"{PULL}/unit/{data_type}/{company_id}")
        if document is None:
            return None
        state = _decoded(document, UnitState) or UnitState()
        if state.done and state.round == self.round:
            await self.documents.give_back([document.name])
            return None
        return Unit(company_id, data_type, document, state, self.documents)

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
