"""What a pull needs from the place it writes to."""

from __future__ import annotations

from typing import Any, Protocol

from attrs import Factory, frozen

from integration_sdk._pull.receipts import Receipt
from integration_sdk._pull.state import Unit
from integration_sdk._pull.unit import Sums, UnitState
from integration_sdk._records.old_columns import NO_COLUMNS, Columns


@frozen(kw_only=True)
class Packed:
    """Records that are ready to be committed.

    Attributes:
        content: What the sink makes of them: a temporary file, a table, texts to copy. None if
            there is nothing to write.
        rows, size: How many there are, and their bytes, if they are in a file.
        rejects: Records that cannot be written, with the reasons.
        sums: Of their numbers, where the sink knows them.
        columns: The columns that they need.
    """

    content: Any = None
    rows: int = 0
    size: int = 0
    rejects: list[tuple[bytes, str]] = Factory(list)
    sums: Sums = Factory(dict)
    columns: Columns = NO_COLUMNS


NOTHING = Packed()


@frozen(kw_only=True)
class Found:
    """What is in a sink of a unit, as an audit finds it.

    Attributes:
        rows, ids: Rows, and different records.
        size: Bytes; None if the sink has no files.
        sums: Exact sums; None if the sink does not know numbers.
        is_ahead: It holds more than the receipt can know of.
    """

    rows: int
    ids: int
    size: int | None = None
    sums: Sums | None = None
    is_ahead: bool = False


class Sink(Protocol):
    """A place to write to. A second kind of place is a second class like this."""

    @property
    def format(self) -> str:
        """Such as "parquet"."""

    @property
    def target(self) -> str:
        """Where it is, without a password."""

    async def open(self) -> str | None:
        """Return the id of the pull that has written here; None if nobody has.

        Raises:
            ConfigurationError: The place is something else, or cannot be used.
        """

    async def introduce(self, pull: str) -> str:
        """Record the id of the *pull* that is going to write here; return whose place it is.

        It is another's if that came first, since `open`.
        """

    async def begin(self, unit: Unit, *, full: bool) -> UnitState:
        """Remove what was not committed; return where the sink stands with *unit*.

        Raises:
            PullError: It lacks what it had, and the read is not a *full* one.
            Fenced: Another process has the unit; nothing was removed.
        """

    def pack(self, unit: Unit, items: list[bytes], columns: Columns) -> Packed:
        """Prepare *items* to be committed next; *columns* is what has been learned of the type.

        Runs in a thread; the caller keeps the order.
        """

    async def commit(self, unit: Unit, packed: Packed, after: UnitState) -> None:
        """Write *packed* and *after* in one step, all or nothing; ``unit.state`` is *after* then.

        Raises:
            Fenced: Another process has the unit; nothing was written.
        """

    async def finish(self, unit: Unit, after: UnitState) -> None:
        """Show the generation of *unit*, if it is not shown yet, in place of the one before."""

    async def keep(self, receipt: Receipt) -> None:
        """Record what a run has read and written."""

    async def receipts(self) -> list[bytes]:
        """Return all receipts, in their order."""

    async def found(self, data_type: str, company_id: str, held: UnitState) -> Found:
        """Return what there is of a unit; *held* is what its receipt says."""

    async def aclose(self) -> None:
        """Release the place."""
