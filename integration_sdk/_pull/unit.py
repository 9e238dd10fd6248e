"""One company's records of one type: what is known of them, and which step follows which.

A unit's first read, or a full one, has three phases::

    MARK     note the moment of the newest record, and a cursor of the changes from then on
    ALL      read the whole list, without the records that changed after that moment
    CHANGES  read what has changed since, from that cursor; later runs begin here

So each state of a record comes once and none is missed, though the list changes while it is
read. The records of MARK and ALL are a *generation*: readers of a sink see it once it is whole.
"""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, datetime
from decimal import Decimal
from enum import StrEnum
from typing import Final

import msgspec
from msgspec.structs import replace

from integration_sdk._list.changes import MODIFIED
from integration_sdk._records.codec import parse_utc

Sums = dict[str, dict[str, str]]
"""Exact sums of numbers, by currency ("" without one) and column."""


class Phase(StrEnum):
    """What is read next."""

    MARK = "mark"
    ALL = "all"
    CHANGES = "changes"


class UnitState(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """What a store, or the sink itself, keeps of a unit.

    Attributes:
        generation: The one that is being written, from 1 on.
        live: The one that readers see; 0 for none.
        begun: The latest run when it was begun.
        first, parts: Number of its first part, and of the next one. Numbers are never used twice.
        rows, size: Records in its parts, and bytes.
        cursor: Where reading goes on; None for the beginning of the list.
        since: In ALL, records that changed after this moment are left out.
        next: In ALL, the cursor of the changes since; None if a list cannot be read by changes.
        snapshot: Whether it cannot, so that each run reads it as a whole.
        run: The latest run when its reading began, and whether it was read to its end (*done*).
        sums: Of the records in its parts.
        rejects: Records that could not be written, in this generation.
    """

    generation: int = 0
    live: int = 0
    begun: int = 0
    first: int = 0
    parts: int = 0
    rows: int = 0
    size: int = 0
    phase: Phase = Phase.MARK
    cursor: str | None = None
    since: str | None = None
    next: str | None = None
    snapshot: bool = False
    run: int = 0
    done: bool = False
    sums: Sums = {}
    rejects: int = 0

    @property
    def is_shown(self) -> bool:
        """Whether what is written is seen by readers at once."""
        return self.live == self.generation


def started(state: UnitState, run: int, latest: int, *, full: bool) -> UnitState:
    """Return the state in which *run* begins to read; *latest* is the number of the latest run.

    A generation that is not whole yet is gone on with; with *full*, only if it was begun after
    this run was.
    """
    if (state.is_shown and state.phase is Phase.MARK) or (full and state.begun < run):
        state = replace(
            state,
            generation=state.generation + 1,
            begun=latest,
            first=state.parts,
            rows=0,
            size=0,
            sums={},
            rejects=0,
            phase=Phase.MARK,
            cursor=None,
            since=None,
            next=None,
        )
    return replace(state, run=latest, done=False)


def marked(
    state: UnitState, since: str | None, following: str | None, *, snapshot: bool
) -> UnitState:
    """Return the state after MARK; without *following* no changes can be read."""
    return replace(
        state, phase=Phase.ALL, since=since, next=following, cursor=None, snapshot=snapshot
    )


def with_part(
    state: UnitState, cursor: str, *, rows: int, size: int, sums: Sums, rejects: int
) -> UnitState:
    """Return the state after another part, and everything before *cursor*."""
    return replace(
        state,
        parts=state.parts + (rows > 0),
        rows=state.rows + rows,
        size=state.size + size,
        sums=add_sums(state.sums, sums),
        rejects=state.rejects + rejects,
        cursor=cursor,
    )


def read_all(state: UnitState) -> UnitState:
    """Return the state after ALL."""
    return replace(state, phase=Phase.CHANGES, cursor=state.next, next=None, since=None)


def ended(state: UnitState) -> UnitState:
    """Return the state at the end of a run: the generation is whole, and may be shown."""
    by_changes = state.phase is Phase.CHANGES
    # Back at MARK, the next run begins a new generation.
    return replace(
        state,
        live=state.generation,
        done=True,
        phase=Phase.CHANGES if by_changes else Phase.MARK,
        cursor=state.cursor if by_changes else None,
    )


def add_sums(one: Sums, other: Sums) -> Sums:
    """Return the sums of both."""
    total = {currency: dict(columns) for currency, columns in one.items()}
    for currency, columns in other.items():
        mine = total.setdefault(currency, {})
        for column, amount in columns.items():
            mine[column] = str(Decimal(mine.get(column, 0)) + Decimal(amount))
    return total


# When a record was changed


class _Stamped(msgspec.Struct, rename={"stamp": MODIFIED}):
    stamp: str | None = None


_STAMP: Final = msgspec.json.Decoder(_Stamped)


def read_stamp(item: bytes) -> str | None:
    """Return when the record *item* was changed, as the service wrote it; None if it says not."""
    try:
        return _STAMP.decode(item).stamp
    except (msgspec.MsgspecError, ValueError):
        return None


def newer_than(since: str) -> Callable[[str | None], bool]:
    """Return a function that says of a stamp whether it is later than the moment *since*."""
    moment = parse_utc(since)
    begin = moment.isoformat()[:19]

    def is_newer(stamp: str | None) -> bool:
        if stamp is None:
            return False
        # Texts of one form sort as their moments do; only the second in question is parsed.
        if stamp[:19] < begin and (len(stamp) == 19 or stamp[-1] == "Z"):
            return False
        return _moment(stamp) > moment

    return is_newer


def _moment(stamp: str) -> datetime:
    try:
        return parse_utc(stamp)
    except ValueError:  # not a date: such a list is not read by changes
        return datetime.min.replace(tzinfo=UTC)
