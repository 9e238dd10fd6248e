"""Reads what a pull has written, and compares it with the service."""

from __future__ import annotations

import asyncio
import errno
import json
import random
import re
import threading
from collections import Counter
from collections.abc import AsyncIterator, Collection, Iterator
from contextlib import asynccontextmanager
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import asyncpg
import duckdb
import pyarrow.parquet as pq
import pytest
from attrs import define, field

from integration_sdk._store.memory import MemoryDocuments
from integration_sdk._store.rows import Document
from integration_sdk.sandbox import DataSet, Sandbox
from tests.support.postgres import Server

Record = dict[str, Any]


def parts(path: Path, data_type: str, company_id: str) -> list[Path]:
    """The parts that readers see, in the order of the pull."""
    return sorted((path / data_type / f"company={company_id}").glob("part-*"))


async def rows_in(place: Path | str, data_type: str, company_id: str) -> list[Record]:
    if isinstance(place, str):
        database = await asyncpg.connect(place)
        try:
            query = f'SELECT * FROM "{data_type}" WHERE company = $1'  # noqa: S608
            return [dict(row) for row in await database.fetch(query, company_id)]
        finally:
            await database.close()
    if place.suffix == ".duckdb":
        with duckdb.connect(str(place)) as database:
            table = database.sql(
                "SELECT * FROM query_table($t) WHERE company = $c",
                params={"t": data_type, "c": company_id},
            ).to_arrow_table()
            rows: list[Record] = table.to_pylist()
            return rows
    return [record for part in parts(place, data_type, company_id) for record in records_in(part)]


def records_in(part: Path) -> list[Record]:
    """The records of a part, as far as a test compares them."""
    if part.name.endswith(".ndjson"):
        return [json.loads(line) for line in part.read_bytes().splitlines()]
    rows: list[Record] = pq.ParquetFile(part).read().to_pylist()
    return rows


def _as_written(value: Any) -> Any:
    if not isinstance(value, datetime):
        return value
    return value.isoformat().replace("+00:00", "Z")


@define
class Place:
    """Where a pull writes to."""

    to: Path | str
    format: str
    store: Any = None

    @property
    def options(self) -> dict[str, Any]:
        return {"to": self.to, "format": self.format, "store": self.store}

    @property
    def small_parts(self) -> dict[str, Any]:
        return {**self.options, "part_bytes": 100_000}

    @property
    def appends(self) -> bool:
        return self.format in {"ndjson", "parquet"}

    def parts(self, data_type: str, company_id: str) -> set[str]:
        """The names of the parts that readers see."""
        if not isinstance(self.to, Path) or not self.appends:
            return set()
        return {part.name for part in parts(self.to, data_type, company_id)}


async def new_place(request: pytest.FixtureRequest, folder: Path, format_: str) -> Place:
    """An empty place in *folder*, or a new database."""
    if format_ == "postgres":
        server: Server = request.getfixturevalue("postgres")
        return Place(await server.new_database(), format_)
    return Place(folder / ("out.duckdb" if format_ == "duckdb" else "out"), format_)


@define
class Held:
    """What a sink holds of a unit.

    Attributes:
        newest: The newest state of each record, by id.
        twice: States that are there more than once.
    """

    newest: dict[str, Record] = field(factory=dict)
    twice: list[str] = field(factory=list)


async def held(place: Path | str, data_type: str, company_id: str) -> Held:
    """What is in files, in a DuckDB file, or at the URL of a PostgreSQL database."""
    found = [
        {name: _as_written(value) for name, value in row.items()}
        for row in await rows_in(place, data_type, company_id)
    ]
    states = Counter((record["id"], record["modifiedDate"]) for record in found)
    return Held(
        {record["id"]: record for record in found},
        [f"{id_} {when}" for (id_, when), count in states.items() if count > 1],
    )


def at_service(sandbox: Sandbox, data_type: str, company_id: str) -> dict[str, Record]:
    return {record["id"]: record for record in sandbox.data_set(company_id, data_type)}


FIELDS = ("id", "status", "note", "modifiedDate")
"""What the writer changes; types of all others are another test's business."""


async def assert_agrees(
    sandbox: Sandbox,
    place: Path | str,
    data_type: str = "invoices",
    *,
    after_deletions: bool = False,
) -> None:
    """Each record of the service is there in its newest state, and no state twice.

    after_deletions: What the service has deleted may still be there.
    """
    for company in sandbox.companies:
        await assert_holds(sandbox, place, data_type, company.id, after_deletions=after_deletions)


async def assert_holds(
    sandbox: Sandbox,
    place: Path | str,
    data_type: str,
    company_id: str,
    *,
    after_deletions: bool = False,
) -> None:
    """`assert_agrees` of one company."""
    ours = await held(place, data_type, company_id)
    theirs = at_service(sandbox, data_type, company_id)
    missing = theirs.keys() - ours.newest.keys()
    extra = ours.newest.keys() - theirs.keys()
    assert not missing, f"{len(missing)} missing: {sorted(missing)[:5]}"
    assert after_deletions or not extra, f"{len(extra)} deleted ones left"
    stale = [
        id_
        for id_, record in theirs.items()
        if any(ours.newest[id_].get(name) != record.get(name) for name in FIELDS)
    ]
    assert not stale, f"{len(stale)} stale: {stale[:5]}"
    assert not ours.twice, f"{len(ours.twice)} twice: {ours.twice[:5]}"


def now() -> str:
    return datetime.now(UTC).isoformat().replace("+00:00", "Z")


@define
class Writer:
    """Somebody who edits, inserts and deletes while others read."""

    data: DataSet
    chance: random.Random = field(factory=lambda: random.Random(0))
    writes: int = 0

    def write(self) -> None:
        """Edit a record, or insert one, or delete one."""
        self.writes += 1
        position = self.chance.randrange(len(self.data))
        if self.writes % 25 == 0:
            self.data.delete_at(position)
        elif self.writes % 5 == 0:
            record = json.loads(self.data.sample())
            self.data.append(record | {"id": f"new-{self.writes}", "modifiedDate": now()})
        else:
            changes = {"note": f"edit {self.writes}", "modifiedDate": now()}
            self.data.edit_at(position, changes)


@asynccontextmanager
async def writing(sandbox: Sandbox, *, pause: float = 0.02) -> AsyncIterator[list[Writer]]:
    """Write to the invoices of all companies while the block runs."""
    writers = [Writer(sandbox.data_set(one.id, "invoices")) for one in sandbox.companies]

    async def write() -> None:
        while True:
            for writer in writers:
                writer.write()
                await asyncio.sleep(pause)

    task = asyncio.create_task(write())
    try:
        yield writers
    finally:
        task.cancel()
        await asyncio.wait([task])


class Crash(BaseException):
    """The process is gone: nothing is written after it."""


@define
class CrashingDocuments:
    """A store whose process dies at one of the steps that it counts, and does nothing after."""

    inner: MemoryDocuments
    dies: CrashPoint

    async def claim(self, name: str) -> Document | None:
        await asyncio.to_thread(self.dies.step, f"claim {name}")
        return await self.inner.claim(name)

    async def read(self, prefix: str) -> list[Document]:
        self.dies.check()
        return await self.inner.read(prefix)

    async def write(self, document: Document, body: bytes) -> Document:
        await asyncio.to_thread(self.dies.step, f"before {document.name}")
        written = await self.inner.write(document, body)
        await asyncio.to_thread(self.dies.step, f"behind {document.name}")
        return written

    async def give_back(self, names: Collection[str]) -> None:
        self.dies.check()
        await self.inner.give_back(names)


@define
class CrashPoint:
    """Dies at its *at*-th step, or has no more space on the disk from then on.

    Attributes:
        steps: What the steps were.
    """

    at: int
    full_disk: bool = False
    steps: list[str] = field(factory=list)

    @property
    def is_reached(self) -> bool:
        return len(self.steps) > self.at

    def step(self, what: str) -> None:
        self.check()
        self.steps.append(what)
        if self.full_disk and self.is_reached and what.startswith("open"):
            raise OSError(errno.ENOSPC, "no space")
        self.check()

    def check(self) -> None:
        if self.is_reached and not self.full_disk:
            raise Crash(self.steps[-1])


@define
class FreezePoint(CrashPoint):
    """Waits at its *at*-th step, for somebody to `thaw` it; in a thread or in a task of its own."""

    thaw: threading.Event = field(factory=threading.Event)

    dies: bool = False
    """Whether it dies soon after it was thawed, before it hears from the store."""

    def step(self, what: str) -> None:
        self.steps.append(what)
        if len(self.steps) == self.at + 1:
            self.thaw.wait()
        elif self.dies and self.is_reached:
            raise Crash(what)

    def check(self) -> None:
        """Go on."""


def shown_sizes(path: Path, data_type: str) -> Iterator[int]:
    """The number of different records that a reader sees of each unit that is shown."""
    for folder in (path / data_type).glob("company=*"):
        yield len({id_ for part in sorted(folder.glob("part-*")) for id_ in _ids(part)})


def _ids(part: Path) -> list[Any]:
    if part.name.endswith(".ndjson"):
        return re.findall(rb'^{"id":"([^"]*)"', part.read_bytes(), re.MULTILINE)
    ids: list[Any] = pq.ParquetFile(part).read(["id"])["id"].to_pylist()
    return ids
