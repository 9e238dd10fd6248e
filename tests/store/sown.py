"""Faults that the tests of this room must catch: ``python -m tests.faults`` sows them."""

from __future__ import annotations

from typing import Final

from tests.support.fault import Fault

FAULTS: Final[dict[str, Fault]] = {
    "an old version overwrites a new one": Fault(
        "_store/sql.py",
        '"""pushes.version = new.version - 1\n'
        "    OR pushes.version = new.version AND pushes.document = new.document\n"
        '        AND pushes.state = new.state AND pushes.holder = new.holder"""',
        '"true"',
        "journal",
    ),
    "a row that is missing stays missing": Fault(
        "_store/journal.py",
        "found is None or (found.id == row.id and found.version < row.version - 1)",
        "False",
        "journal",
        "_is_behind",
    ),
    "two keys in one transaction": Fault(
        "_store/journal.py",
        'names = {("id", row.id), ("key", row.key and folded(row.key))} - {("key", None)}',
        'names = {("id", row.id)}',
        "journal",
        "_group",
    ),
    "keys of earlier attempts become free": Fault(
        "_store/journal.py", "row.key is None and row.earlier", "False", "journal", "Journal._put"
    ),
    "a file that was moved is written on": Fault(
        "_store/sqlite.py",
        "os.path.samestat(path.stat(), file)",
        "True",
        "store_file",
        "_is_still",
    ),
    "a cancelled opening keeps the file": Fault(
        "_store/sqlite.py",
        "file._thread.submit(file._close)",
        "None",
        "store_file",
        "Sqlite.open",
    ),
    "a broken connection is used again": Fault(
        "_store/postgres.py", "self.close()", "None", "store_database", "Postgres._once"
    ),
    "a pooler is not noticed": Fault(
        "_store/postgres.py",
        'await db.fetchval("SELECT pg_backend_pid()") != db.get_server_pid()',
        "False",
        "store_database",
        "Postgres._check",
    ),
    "a slot is used however late": Fault(
        "_store/rate.py",
        "_now() <= at + EXPIRES and at >= self._void_before",
        "at >= self._void_before",
        "rates",
        "StoreRate.acquire",
    ),
    "a pause voids no slot": Fault(
        "_store/rate.py",
        "_now() <= at + EXPIRES and at >= self._void_before",
        "_now() <= at + EXPIRES",
        "rates",
        "StoreRate.acquire",
    ),
}
