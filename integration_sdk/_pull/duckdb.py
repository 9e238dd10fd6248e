"""A DuckDB database: a table a type, merged by company and id; one writer at a time.

Records and the unit's state are committed in one transaction, so the truth is in the database and
the store's copy only follows. A first read grows batch by batch; a full one is collected in
``_staged_<type>`` and replaces the company's rows in one transaction.
"""

from __future__ import annotations

import asyncio
import os
import re
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, Final, TypeVar

import msgspec
from attrs import define, field
from msgspec.structs import replace

from integration_sdk._checks import needed
from integration_sdk._pull.receipts import Receipt
from integration_sdk._pull.sink import Found, Packed
from integration_sdk._pull.state import Unit
from integration_sdk._pull.unit import Sums, UnitState
from integration_sdk._records.old_columns import Columns
from integration_sdk._store.waiting import to_the_end
from integration_sdk.errors import ConfigurationError, PullError

T = TypeVar("T")
OURS: Final = "_integration_sdk_"
_TABLES: Final = f"""
    CREATE TABLE IF NOT EXISTS {OURS}pull (id VARCHAR);
    CREATE TABLE IF NOT EXISTS {OURS}units (
        data_type VARCHAR, company VARCHAR, done BOOLEAN, state VARCHAR
    );
    CREATE TABLE IF NOT EXISTS {OURS}rejects (
        data_type VARCHAR, company VARCHAR, reason VARCHAR, record VARCHAR
    );
    CREATE TABLE IF NOT EXISTS {OURS}receipts (ended TIMESTAMPTZ, receipt VARCHAR);
"""
_WRITING: Final = set[str]()
"""Files that are open here: DuckDB lets a process open one several times."""


@define(eq=False)
class DuckDb:
    """The database file *path*."""

    path: Path
    format: str = "duckdb"
    _duckdb: Any = field(init=False)
    _db: Any = field(init=False, default=None)
    _thread: ThreadPoolExecutor = field(init=False)

    def __attrs_post_init__(self) -> None:
        self._duckdb = needed("duckdb", "duckdb", "a DuckDB database")
        needed("pyarrow", "duckdb", "a DuckDB database")
        self._thread = ThreadPoolExecutor(1, "duckdb")  # a connection is for one thread at a time

    @property
    def target(self) -> str:
        """The file."""
        return str(self.path.resolve())

    async def _do(self, work: Callable[[], T]) -> T:
        """Run *work* in the thread, to its end."""
        running = asyncio.get_running_loop().run_in_executor(self._thread, work)
        try:
            return await to_the_end(running)
        except self._duckdb.Error as error:
            raise PullError(f"{self.path} cannot be written: {error}") from error

    async def open(self) -> str | None:
        """Return the id of the pull that has written here."""
        return await self._do(self._open) if self.path.exists() else None

    def _open(self) -> str | None:
        self._connect()
        tables = [name for (name,) in self._ask("SELECT table_name FROM duckdb_tables()")]
        if f"{OURS}pull" not in tables:
            if tables:
                raise ConfigurationError(
                    f"{self.path} holds tables that no pull wrote ({min(tables)})"
                )
            return None
        found = self._ask(f"SELECT id FROM {OURS}pull")
        return str(found[0][0]) if found else None

    def _connect(self) -> None:
        if self._db is not None:
            return
        holder: object = os.getpid() if self.target in _WRITING else None
        try:
            db = None if holder else self._duckdb.connect(str(self.path))
        except self._duckdb.Error as error:
            if not (found := re.search(r"\(PID (\d+)\)", str(error))):
                raise ConfigurationError(f"{self.path} cannot be opened: {error}") from None
            holder = found[1]
        if holder:
            raise ConfigurationError(
                f"{self.path} is open in process {holder}; one writer at a time"
            )
        self._db = db
        _WRITING.add(self.target)

    async def introduce(self, pull: str) -> str:
        """Record the id of the *pull* that is going to write here; return whose place it is."""

        def work() -> str:
            self.path.parent.mkdir(parents=True, exist_ok=True)
            self._connect()
            self._ask(_TABLES)
            self._ask(
                f"INSERT INTO {OURS}pull SELECT ? WHERE NOT EXISTS (SELECT * FROM {OURS}pull)", pull
            )
            return str(self._ask(f"SELECT id FROM {OURS}pull")[0][0])

        return await self._do(work)

    async def begin(self, unit: Unit, *, full: bool) -> UnitState:
        """Return where *unit* stands, by the database."""
        return await self._do(lambda: self._begin(unit, full))

    def _begin(self, unit: Unit, full: bool) -> UnitState:
        state = self._state_of(*key_of(unit))
        if state is None and unit.state.parts and not full:
            raise PullError(f"{self.path} lacks the records of {unit}; --full reads them again")
        return state or UnitState()

    def _state_of(self, *key: str) -> UnitState | None:
        query = f"SELECT state FROM {OURS}units WHERE data_type = ? AND company = ?"
        found = self._ask(query, *key)
        return msgspec.json.decode(found[0][0], type=UnitState) if found else None

    def pack(self, unit: Unit, items: list[bytes], columns: Columns) -> Packed:
        """Make an Arrow table of *items*, of each id the last."""
        import pyarrow as pa  # noqa: PLC0415 - an extra
        import pyarrow.compute as pc  # noqa: PLC0415

        from integration_sdk._records import arrow  # noqa: PLC0415

        batch = arrow.read(items, columns)
        table = batch.table
        if "id" in table.column_names and pc.count_distinct(table["id"]).as_py() < len(table):
            numbered = table.select(["id"]).append_column("n", pa.array(range(len(table))))
            last = numbered.group_by("id").aggregate([("n", "max")])["n_max"]
            table = table.take(last.take(pc.sort_indices(last)))
        return Packed(
            content=table.add_column(
                0, "company", pa.repeat(pa.scalar(unit.company_id), table.num_rows)
            ),
            rows=table.num_rows,
            rejects=batch.rejects,
            columns=batch.columns,
        )

    async def commit(self, unit: Unit, packed: Packed, after: UnitState) -> None:
        """Merge the records and record *after*, in one transaction."""
        await self._do(lambda: self._in_transaction(lambda: self._commit(unit, packed, after)))
        await unit.save(after)

    def _commit(self, unit: Unit, packed: Packed, after: UnitState) -> None:
        if after.generation != unit.state.generation:
            self._drop_staged(unit)
        if packed.rows:
            is_staged = after.live not in {0, after.generation}
            self._merge(
                staged_name(unit.data_type) if is_staged else unit.data_type, packed.content
            )
        for record, reason in packed.rejects:
            text = record.decode(errors="replace")
            self._ask(f"INSERT INTO {OURS}rejects VALUES (?, ?, ?, ?)", *key_of(unit), reason, text)
        self._keep_state(unit, after)

    def _merge(self, name: str, batch: Any) -> None:
        table = quoted(name)
        self._db.register("batch", batch)
        self._widen(table, "batch")
        if "id" in batch.column_names:
            # Without a primary key: a key that is deleted and inserted in one transaction
            # conflicts with the index.
            self._ask(
                f"DELETE FROM {table} WHERE company = (SELECT company FROM batch LIMIT 1)"
                " AND id IN (SELECT id FROM batch)"
            )
        self._ask(f"INSERT INTO {table} BY NAME SELECT * FROM batch")
        self._db.unregister("batch")

    def _widen(self, table: str, source: str) -> None:
        """Give *table* the columns of *source*."""
        self._ask(f"CREATE TABLE IF NOT EXISTS {table} AS SELECT * FROM {source} LIMIT 0")
        have = {column: kind for column, kind, *_ in self._ask(f"DESCRIBE {table}")}
        for column, kind, *_ in self._ask(f"DESCRIBE SELECT * FROM {source}"):
            if column not in have:
                self._ask(f"ALTER TABLE {table} ADD COLUMN {quoted(column)} {kind}")
            elif have[column] != kind:  # an object has got more members
                self._ask(f"ALTER TABLE {table} ALTER {quoted(column)} SET DATA TYPE {kind}")

    def _drop_staged(self, unit: Unit) -> None:
        if self._exists(staged_name(unit.data_type)):
            staged = quoted(staged_name(unit.data_type))
            self._ask(f"DELETE FROM {staged} WHERE company = ?", unit.company_id)

    async def finish(self, unit: Unit, after: UnitState) -> None:
        """Replace the company's rows by the staged ones, if the read was a full one."""

        def work() -> UnitState:
            if unit.state.live not in {0, unit.state.generation}:
                self._replace(unit)
            counted = after
            if self._exists(unit.data_type):
                rows, sums = self._totals(*key_of(unit))
                counted = replace(after, rows=rows, sums=sums)
            self._keep_state(unit, counted)
            return counted

        await unit.save(await self._do(lambda: self._in_transaction(work)))

    def _replace(self, unit: Unit) -> None:
        table, staged = quoted(unit.data_type), quoted(staged_name(unit.data_type))
        if self._exists(unit.data_type):
            self._ask(f"DELETE FROM {table} WHERE company = ?", unit.company_id)
        if self._exists(staged_name(unit.data_type)):
            self._widen(table, staged)
            self._ask(
                f"INSERT INTO {table} BY NAME SELECT * FROM {staged} WHERE company = ?",
                unit.company_id,
            )
            self._drop_staged(unit)

    def _totals(self, data_type: str, company_id: str) -> tuple[int, Sums]:
        table = quoted(data_type)
        columns = self._ask(f"DESCRIBE {table}")
        numbers = [name for name, kind, *_ in columns if kind == "DECIMAL(38,18)"]
        has_currency = ("currency", "VARCHAR") in [one[:2] for one in columns]
        query = totals_query(table, numbers, has_currency=has_currency)
        return totals(self._ask(query, company_id), numbers)

    async def keep(self, receipt: Receipt) -> None:
        """Write it to a table."""
        values = receipt.ended.isoformat(), receipt.to_json().decode()
        insert = f"INSERT INTO {OURS}receipts VALUES (?::TIMESTAMPTZ, ?)"
        await self._do(lambda: self._ask(insert, *values))

    async def receipts(self) -> list[bytes]:
        """Return all receipts, in their order."""
        query = f"SELECT receipt FROM {OURS}receipts ORDER BY ended"
        return [text.encode() for (text,) in await self._do(lambda: self._ask(query))]

    async def found(self, data_type: str, company_id: str, held: UnitState) -> Found:
        """Return what is in the table."""

        def work() -> Found:
            if not self._exists(data_type):
                return Found(rows=0, ids=0, sums={})
            state = self._state_of(data_type, company_id) or held
            rows, sums = self._totals(data_type, company_id)
            return Found(rows=rows, ids=rows, sums=sums, is_ahead=state.cursor != held.cursor)

        return await self._do(work)

    async def aclose(self) -> None:
        """Close the file."""

        def work() -> None:  # all of it in the thread: the wait for it may be cancelled
            self._db.close()
            self._db = None
            _WRITING.discard(self.target)

        try:
            if self._db is not None:
                await self._do(work)
        finally:
            self._thread.shutdown()

    def _keep_state(self, unit: Unit, state: UnitState) -> None:
        self._ask(f"DELETE FROM {OURS}units WHERE data_type = ? AND company = ?", *key_of(unit))
        text = msgspec.json.encode(state).decode()
        self._ask(f"INSERT INTO {OURS}units VALUES (?, ?, ?, ?)", *key_of(unit), state.done, text)

    def _exists(self, table: str) -> bool:
        query = "SELECT count(*) FROM duckdb_tables() WHERE table_name = ?"
        return bool(self._ask(query, table)[0][0])

    def _ask(self, query: str, *values: object) -> list[tuple[Any, ...]]:
        # All rows: with some left, the next statement would be refused.
        rows: list[tuple[Any, ...]] = self._db.execute(query, values).fetchall()
        return rows

    def _in_transaction(self, work: Callable[[], T]) -> T:
        self._ask("BEGIN")
        try:
            answer = work()
            self._ask("COMMIT")
        except BaseException:
            self._ask("ROLLBACK")
            raise
        return answer


# For PostgreSQL, too


def key_of(unit: Unit) -> tuple[str, str]:
    """Return what names the unit in our tables."""
    return unit.data_type, unit.company_id


def staged_name(data_type: str) -> str:
    """Return the name of the table in which a full read is collected."""
    return f"_staged_{data_type}"


def totals_query(table: str, numbers: Sequence[str], *, has_currency: bool) -> str:
    """Return the query for the `totals` of the company $1."""
    currency = "currency" if has_currency else "NULL"
    added = "".join(f", sum({quoted(name)})" for name in numbers)
    return (
        f"SELECT coalesce({currency}, ''), count(*){added} FROM {table} WHERE company = $1"
        " GROUP BY 1"
    )


def totals(found: Sequence[Any], numbers: Sequence[str]) -> tuple[int, Sums]:
    """Return the number of rows, and the exact sums of *numbers*."""
    sums: Sums = {
        currency: {
            name: format(amount.normalize(), "f")
            for name, amount in zip(numbers, amounts, strict=True)
            if amount is not None
        }
        for currency, _, *amounts in found
    }
    return sum(count for _, count, *_ in found), sums


def quoted(name: str) -> str:
    """Return *name* as SQL."""
    return '"' + name.replace('"', '""') + '"'
