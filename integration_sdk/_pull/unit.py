"""What is known of a unit, and what a run reports of it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

import msgspec
from attrs import Factory, asdict, define, frozen

from integration_sdk._records.codec import mended
from integration_sdk._text import brief
from integration_sdk.errors import IntegrationError, PullError


@define(kw_only=True)
class UnitReceipt:
    """What a run did for one unit: one company's records of one data type.

    Attributes:
        company_id, company, data_type: The unit; *company* is the company's name.
        connection_id, account_id: Where its records are, if not below the company; else "".
        rows: Records written. Those that have not changed are not written again.
        mended: Records that cannot be stored as they are: half of a surrogate pair, for example,
            is stored as U+FFFD.
        requests: Requests sent.
        waits: Seconds spent waiting for rate limits and retries.
        skipped: Why there is nothing to read: "not linked", "not ready" or "not found".
        error: Why the unit is not complete; the next run continues it. None if it is.
    """

    company_id: str
    company: str
    data_type: str
    connection_id: str = ""
    account_id: str = ""
    rows: int = 0
    mended: int = 0
    requests: int = 0
    waits: float = 0.0
    skipped: str | None = None
    error: IntegrationError | None = None
    __repr__ = brief

    def to_plain(self) -> dict[str, Any]:
        """Return it as JSON values."""
        return asdict(self) | {"error": None if self.error is None else str(self.error)}


@frozen(kw_only=True)
class Receipt:
    """What a run of a pull did.

    Attributes:
        units: One `UnitReceipt` for each company and data type, in the order in which they ended.
    """

    units: Sequence[UnitReceipt]

    @property
    def rows(self) -> int:
        """Records written by this run."""
        return sum(unit.rows for unit in self.units)

    @property
    def errors(self) -> list[UnitReceipt]:
        """The units that are not complete."""
        return [unit for unit in self.units if unit.error is not None]

    @property
    def skipped(self) -> dict[str, list[str]]:
        """Names of the companies that had nothing to read, by the reason."""
        pairs = dict.fromkeys((unit.skipped, unit.company) for unit in self.units if unit.skipped)
        reasons = dict.fromkeys(reason for reason, _ in pairs if reason)
        return {one: [name for reason, name in pairs if reason == one] for one in reasons}


@frozen(kw_only=True)
class PullProgress:
    """How far a pull has got.

    Attributes:
        units: Number of units; 0 until it is known.
        done: Units that have ended.
        records: Records read in this run.
        reading: Company's name, data type, records read, and of how many (None if that is not
            known), of each unit that is being read.
    """

    units: int
    done: int
    records: int
    reading: tuple[tuple[str, str, int, int | None], ...]


# Inside

ATTEMPTS: Final = 20
"""How often something is begun again because a connection was lost, or a state has changed."""


class State(msgspec.Struct, frozen=True, omit_defaults=True):
    """What is committed of a unit, together with its records.

    A *generation* is what one reading from the beginning, and the changes since, have brought.

    Attributes:
        generation, live: The one that is written, and the one that readers see; 0 for none.
        first, parts: In a folder, numbers of its first part and of the next. None is used twice.
        read: Records that were read for it.
        cursor: Where reading goes on; None for the beginning.
        snapshot: Whether it cannot be read by changes, so that each run reads it as a whole.
        digest: Of a snapshot's records, if they are one part.
    """

    generation: int = 1
    live: int = 0
    first: int = 0
    parts: int = 0
    read: int = 0
    cursor: str | None = None
    snapshot: bool = False
    digest: str = ""

    @property
    def is_live(self) -> bool:
        return self.live == self.generation

    def renewed(self, *, snapshot: bool) -> State:
        """Return the state in which a new generation begins."""
        parts = self.parts
        return State(self.generation + 1, self.live, parts, parts, snapshot=snapshot)


@define(eq=False)
class Unit:
    """A unit in a run.

    Attributes:
        is_linked: Whether its company has a connection, as far as is known.
        state: As committed, and *saved*, its text in the sink.
        whole: Of a snapshot that is read again, the state of what readers see.
        session: In a database, the connection that has the unit.
        begun: Whether this run has begun to read it.
        moves: How often its state on record was another than it was.
        pager: What is being read.
    """

    receipt: UnitReceipt
    is_linked: bool = True
    state: State = Factory(State)
    saved: str = ""
    whole: State | None = None
    session: int = 0
    begun: bool = False
    moves: int = 0
    pager: Any = None

    @property
    def place(self) -> tuple[str, str, str, str]:
        """Its data type, and where that is: the company, or a connection, or an account of it."""
        one = self.receipt
        return one.data_type, one.company_id, one.connection_id, one.account_id

    @property
    def has_ended(self) -> bool:
        return bool(self.receipt.skipped or self.receipt.error)

    def __str__(self) -> str:
        return f"{self.receipt.data_type} of {'/'.join(filter(None, self.place[1:]))}"


def clean(items: list[bytes]) -> int:
    """Make each item a line of text that every JSON reader takes; count those with odd text."""
    odd = 0
    for n, item in enumerate(items):
        line = item.replace(b"\n", b" ") if b"\n" in item else item  # in texts it is escaped
        try:
            is_text = line.isascii() or bool(line.decode())
        except UnicodeDecodeError:
            is_text = False
        # Half of a surrogate pair is read by some, and stops others.
        items[n] = mended(line) if not is_text or rb"\ud" in line.lower() else line
        odd += items[n] != line
    return odd


class Moved(Exception):
    """The state on record is another than it was: go on from what is there."""


class Unusable(PullError):
    """The target takes no unit: its disk is full, or it is away. It ends the run."""
