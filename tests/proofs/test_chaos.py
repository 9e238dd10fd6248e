"""Proof: workers that are killed or frozen while they push double, lose and mislink nothing."""

from __future__ import annotations

from pathlib import Path

import pytest
from msgspec import structs

from integration_sdk._store.row import Lane, Result, Row, State
from tests.proofs import chaos
from tests.support.postgres import Server

LONG = pytest.mark.long


@pytest.mark.timeout(0)
@pytest.mark.parametrize(
    ("how", "records", "events"),
    [
        pytest.param("freeze", 40, 1, marks=pytest.mark.timeout(300)),
        pytest.param("file", 800, 60, marks=LONG),
        pytest.param("freeze", 1600, 60, marks=LONG),
        pytest.param("kill", 1600, 60, marks=LONG),
    ],
)
async def test_workers_are_killed_and_frozen(
    postgres: Server, tmp_path: Path, how: str, records: int, events: int
) -> None:
    """Beyond the lease: others go on, and one that wakes or is started again does nothing wrong."""
    store = str(tmp_path / "pushes.db") if how == "file" else await postgres.new_database()

    report = await chaos.run(how, 7, store, records=records, events=events)

    assert report.violations == []
    assert report.events >= events / 2


# The referee is refereed

ROW = Row("row", Lane("acme", "xero", "bills"), state=State.DONE, result=Result.ENDED, key="key")


@pytest.mark.parametrize(
    ("row", "keys", "said"),
    [
        (ROW, ["key"], None),
        (None, ["key"], "lost"),
        (ROW, ["key", "other"], "doubled"),
        (ROW, ["other"], "mis-linked"),
        (structs.replace(ROW, state=State.LOST), ["key"], "unsettled"),
        (structs.replace(ROW, key=None), [], "not there"),
    ],
)
def test_each_violation_is_seen(row: Row | None, keys: list[str], said: str | None) -> None:
    """A record with which something went wrong is reported as just that."""
    wrong = chaos.wrong(row, keys)

    assert (said is None and wrong == []) or any(str(said) in one for one in wrong)
