"""What a run of a pull read and wrote."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime
from typing import Any

import msgspec
from attrs import Factory, frozen

from integration_sdk._pull.unit import UnitState
from integration_sdk.errors import IntegrationError


class KeptUnit(msgspec.Struct, frozen=True, rename="camel"):
    """What an audit reads of a unit in a receipt that a sink has kept."""

    company: str
    data_type: str
    error: str | None
    held: UnitState


class Kept(msgspec.Struct, frozen=True):
    """What an audit reads of a receipt."""

    units: list[KeptUnit]


@frozen(kw_only=True)
class UnitReceipt:
    """What a run did for one unit: one company's records of one data type.

    Attributes:
        company_id, data_type: The unit.
        rows: Records written; 0 if another process has read the unit since this run began.
        read: Records read. It can be higher than *rows*: a record may be read again with the
            changes, or be rejected.
        first_change, last_change: The earliest and latest ``modifiedDate`` that was read.
        requests: Requests sent.
        waits: Seconds spent waiting for rate limits and retries.
        state: What is stored of the unit now: its ``rows``, ``sums``, ``rejects``, whether it is
            a ``snapshot`` that each run reads as a whole, and the ``cursor`` for the next run.
        error: Why the unit is not complete; the next run continues it. None if it is.
    """

    company_id: str
    data_type: str
    rows: int
    read: int
    first_change: str | None
    last_change: str | None
    requests: int
    waits: float
    state: UnitState
    error: IntegrationError | None

    def to_plain(self) -> dict[str, Any]:
        """Return it as JSON values."""
        return {
            "company": self.company_id,
            "dataType": self.data_type,
            "rows": self.rows,
            "read": self.read,
            "firstChange": self.first_change,
            "lastChange": self.last_change,
            "requests": self.requests,
            "waits": round(self.waits, 3),
            "error": None if self.error is None else str(self.error),
            "held": msgspec.to_builtins(self.state),
        }


@frozen(kw_only=True)
class Receipt:
    """What a run of a pull did.

    Attributes:
        units: One `UnitReceipt` for each company and data type, in the order in which they ended.
        run: The number of the run, from 1.
        ended: When it ended, in UTC.
    """

    units: Sequence[UnitReceipt]
    run: int
    ended: datetime = Factory(lambda: datetime.now(UTC))

    @property
    def rows(self) -> int:
        """Records written by this run."""
        return sum(unit.rows for unit in self.units)

    @property
    def errors(self) -> list[UnitReceipt]:
        """The units that are not complete."""
        return [unit for unit in self.units if unit.error is not None]

    def to_json(self) -> bytes:
        """Return it as it is kept."""
        units = [unit.to_plain() for unit in self.units]
        return msgspec.json.encode({"ended": self.ended, "run": self.run, "units": units})
