"""Faults that the tests of this room must catch: ``python -m tests.faults`` sows them."""

from __future__ import annotations

from typing import Final

from tests.support.fault import Fault

FAULTS: Final[dict[str, Fault]] = {
    "a file is for one version of DuckDB": Fault(
        "_pull/databases.py", "\"(STORAGE_VERSION 'v1.0.0')\"", "''", "pull_targets",
        "DuckDb._connect",
    ),
    "a password goes through the cluster": Fault(
        "_pull/dask.py", "user.partition(':')[0]", "user", "pull_dask", "_without_secrets"
    ),
    "a company that was never linked is not ready": Fault(
        "_pull/reader.py", "'not ready' if unit.is_linked else 'not linked'", "'not ready'", "pull",
        "UnitReader._read",
    ),
    "a misspelt type is just not there": Fault(
        "_pull/reader.py", "self._is_known(receipt.data_type)", "True", "pull", "UnitReader._read"
    ),
    "a snapshot that is the same is written again": Fault(
        "_pull/reader.py", "unit.whole.digest == digest", "False", "pull", "UnitReader._write"
    ),
    "records without dates are left out": Fault(
        "_pull/reader.py", "(dated.total_results or 0) >= (whole.total_results or 0)", "True",
        "pull", "UnitReader._has_changes",
    ),
    "records without ids are read by changes": Fault(
        "_pull/reader.py", "record.get('id') is None", "False", "pull", "UnitReader._has_changes"
    ),
    "an empty list decides for all times": Fault(
        "_pull/reader.py", "state.snapshot or state.read or await self._has_changes(unit)",
        "state.snapshot or state.cursor or await self._has_changes(unit)", "pull",
        "UnitReader._begin_and_read",
    ),
    "a deleted part is not noticed": Fault(
        "_pull/folder.py", "lacking and not full", "False", "pull_targets", "Folder._begin"
    ),
    "a full disk leaves its part": Fault(
        "_pull/folder.py", "new.unlink(missing_ok=True)", "None", "pull_targets", "Folder._add"
    ),
    "a commit names no state in a database": Fault(
        "_pull/sql.py", "not done", "False", "pull_targets", "SqlSink._record"
    ),
    "a unit of another process is read": Fault(
        "_pull/databases.py", "bool(found[0][0])", "True", "pull_targets", "Postgres.take"
    ),
    "another account is not noticed": Fault(
        "_pull/pull.py", "held.isdisjoint(companies)", "False", "pull_targets", "Pull._find_units"
    ),
    "a dropped table leaves its units done": Fault(
        "_pull/sql.py", "await db.fetch(forget, data_type)", "[]", "pull_targets",
        "SqlSink._make_table",
    ),
}  # fmt: skip
