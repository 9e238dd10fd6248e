"""Faults that the tests of this room must catch: ``python -m tests.faults`` sows them."""

from __future__ import annotations

from typing import Final

from tests.support.fault import Fault

FAULTS: Final[dict[str, Fault]] = {
    "a cancelled pull keeps its folder": Fault(
        "_pull/files.py",
        "await to_the_end(asyncio.ensure_future(asyncio.to_thread(work, *arguments)))",
        "await asyncio.to_thread(work, *arguments)",
        "pull",
        "_do",
    ),
    "a part that is gone is not missed": Fault(
        "_pull/files.py",
        'if number not in held and not full:\n                raise PullError(\n                    f"{self.path} lacks part-{number:05} of {unit}; --full reads it again"\n                )',
        'if False:\n                raise PullError(\n                    f"{self.path} lacks part-{number:05} of {unit}; --full reads it again"\n                )',
        "pull",
        "Files._begin",
    ),
    "another process's unit is read again": Fault(
        "_pull/state.py",
        "return unit.state.done and since >= self.run",
        "return False",
        "pull_databases",
        "PullState.is_done",
    ),
    "what others give back waits for the longest unit": Fault(
        "_pull/pull.py",
        "left.append((pair, now() + SECONDS_BETWEEN_CLAIMS))",
        "left.append((pair, now() + 1e6))",
        "pull_together",
        "Pull._pull.work",
    ),
    "who thaws removes what others have made": Fault(
        "_pull/files.py",
        "if token > unit.document.token:\n        raise fenced(str(unit))",
        "if False:\n        raise fenced(str(unit))",
        "pull_together",
        "_check_token",
    ),
    "a store belongs to two pulls": Fault(
        "_pull/pull.py",
        'if owner is None and not here:\n            raise ConfigurationError(\n                f"the store belongs to a pull into {known.target} as {known.format}; "\n                \'use another scope: Store(..., scope="books")\'\n            )',
        'if False:\n            raise ConfigurationError(\n                f"the store belongs to a pull into {known.target} as {known.format}; "\n                \'use another scope: Store(..., scope="books")\'\n            )',
        "pull_together",
        "Pull._introduce",
    ),
    "who is cancelled looks for another unit": Fault(
        "_pull/pull.py", "goes_on = False", "pass", "pull_together", "Pull._pull"
    ),
    "a pull that has just begun is nobody's": Fault(
        "_pull/files.py",
        "if MARKER in names:\n                return self._open()",
        "if False:\n                return self._open()",
        "pull_together",
        "Files._open",
    ),
    "an audit believes the receipt that ended last": Fault(
        "_pull/audit.py",
        "sorted((one for kept in receipts for one in kept.units), key=lambda one: one.held.run)",
        "sorted((one for kept in receipts for one in kept.units), key=lambda one: 0)",
        "pull_together",
        "audit",
    ),
    "a database that is away is asked once": Fault(
        "_pull/postgres.py",
        'if not is_away(error) or now() >= failed + _PATIENCE:\n                    raise PullError(f"{self.target} cannot be written: {error}") from error',
        'if True:\n                    raise PullError(f"{self.target} cannot be written: {error}") from error',
        "pull_databases",
        "Postgres._do",
    ),
    "a new column holds up all readers": Fault(
        "_pull/postgres.py",
        "f\"SET LOCAL lock_timeout = '{_HOLD_UP}s'\"",
        'f"SET LOCAL lock_timeout = 0"',
        "pull_databases",
        "Postgres._add",
    ),
    "a column is added to one table only": Fault(
        "_pull/postgres.py",
        'async with db.transaction():  # to both tables, or none\n                    await db.execute(f"SET LOCAL lock_timeout = \'{_HOLD_UP}s\'")\n                    for table in (data_type, staged_name(data_type)):\n                        await db.execute(f"ALTER TABLE {quoted(table)} {add}")',
        'if True:\n                    await db.execute(f"SET LOCAL lock_timeout = \'{_HOLD_UP}s\'")\n                    for table in (data_type, staged_name(data_type)):\n                        await db.execute(f"ALTER TABLE {quoted(table)} {add}")',
        "pull_databases",
        "Postgres._add",
    ),
    "a full database stops one unit": Fault(
        "_pull/postgres.py",
        "raise OSError(errno.ENOSPC, str(error)) from error",
        "raise PullError(str(error)) from error",
        "pull_databases",
        "Postgres._do",
    ),
    "a DuckDB file has two writers in one process": Fault(
        "_pull/duckdb.py",
        "os.getpid() if self.target in _WRITING else None",
        "None",
        "pull_databases",
        "DuckDb._connect",
    ),
    "a stamp of the same second is old": Fault(
        "_pull/unit.py",
        'if stamp[:19] < begin and (len(stamp) == 19 or stamp[-1] == "Z"):\n            return False',
        'if stamp[:19] <= begin and (len(stamp) == 19 or stamp[-1] == "Z"):\n            return False',
        "pull changes",
        "newer_than.is_newer",
    ),
}
