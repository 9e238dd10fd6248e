"""A small service of lists, and what a pull has written beside what it serves."""

from __future__ import annotations

import asyncio
import json
import operator
import random
import re
from collections import Counter
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager
from datetime import UTC, datetime, timedelta
from inspect import isawaitable
from pathlib import Path
from typing import Any, Final

import duckdb
import pyarrow.parquet as pq
import pytest
from aiohttp import web
from attrs import define, field

from integration_sdk import Client
from tests.support.postgres import Server, fetch

Record = dict[str, Any]
STAMP: Final = "2024-01-01T00:00:00Z"
SINKS: Final = ("ndjson", "parquet", "duckdb", "postgres")
_COMPARED: Final = re.compile(r"(\w+)(>=|<)([^&]*)")
_COMPARE: Final = {">=": operator.ge, "<": operator.lt}


def now() -> str:
    return datetime.now(UTC).isoformat().replace("+00:00", "Z")


def stamped(number: int) -> str:
    moment = datetime(2024, 1, 1, tzinfo=UTC) + timedelta(seconds=number)
    return moment.isoformat().replace("+00:00", "Z")


def invoices(count: int, **fields: Any) -> list[Record]:
    return [
        {"id": f"i{n}", "note": f"note {n}", "modifiedDate": stamped(n), **fields}
        for n in range(count)
    ]


def _moment(text: Any) -> datetime:
    try:
        moment = datetime.fromisoformat(str(text))
    except ValueError:
        return datetime.min.replace(tzinfo=UTC)
    return moment if moment.tzinfo else moment.replace(tzinfo=UTC)


@define(eq=False)
class Lists:
    """Serves ``{company: {data type: [records]}}``, filtered and ordered as the published API does.

    Attributes:
        connections: Ids by company. Types below a connection are keyed ``connection/type``, and
            transactions of an account ``connection/account``.
        odd: Answers a request in place of the service, or returns None; may be a coroutine.
        texts: Records are written by this.
    """

    books: dict[str, dict[str, list[Record]]]
    connections: dict[str, list[str]] = field(factory=dict)
    odd: Callable[[web.Request], Any] = lambda _: None
    texts: Callable[[Any], str] = json.dumps
    log: list[str] = field(factory=list)
    url: str = ""
    _runner: web.AppRunner = field(init=False)

    async def __aenter__(self) -> Lists:
        app = web.Application()
        app.router.add_get("/{path:.*}", self._serve)
        self._runner = web.AppRunner(app)
        await self._runner.setup()
        await web.TCPSite(self._runner, "127.0.0.1", 0).start()
        self.url = f"http://127.0.0.1:{self._runner.addresses[0][1]}"
        return self

    async def __aexit__(self, *_: object) -> None:
        await self._runner.cleanup()

    @property
    def data_requests(self) -> int:
        """Requests for records so far."""
        return sum("/data/" in one for one in self.log)

    async def _serve(self, request: web.Request) -> web.Response:
        self.log.append(str(request.rel_url))
        odd: Any = self.odd(request)
        if isawaitable(odd):
            odd = await odd
        if isinstance(odd, web.Response):
            return odd
        rows = self._rows(request.path.strip("/").split("/"))
        if rows is None:
            return answer(404)
        query = request.query
        for name, sign, text in _COMPARED.findall(query.get("query", "")):
            compare, moment = _COMPARE[sign], _moment(text)
            rows = [row for row in rows if row.get(name) and compare(_moment(row[name]), moment)]
        if order := query.get("orderBy"):
            rows = sorted(rows, key=lambda row: _moment(row.get(order.lstrip("-"))))
        number, size = int(query.get("page", 1)), int(query.get("pageSize", 100))
        links = {"self": {"href": request.path}, "current": {"href": str(request.rel_url)}}
        if number * size < len(rows):
            following = request.rel_url.update_query(page=number + 1, pageSize=size)
            links["next"] = {"href": str(following)}
        part = ",".join(self.texts(row) for row in rows[(number - 1) * size : number * size])
        rest = json.dumps({"pageNumber": number, "pageSize": size, "totalResults": len(rows)})
        text = f'{{"results":[{part}],{rest[1:-1]},"_links":{json.dumps(links)}}}'
        body = text.encode("utf-8", "surrogateescape")  # so that a test can send what is no UTF-8
        return web.Response(body=body, content_type="application/json")

    def _rows(self, path: list[str]) -> list[Record] | None:
        match path:
            case ["companies"]:
                return [{"id": one, "name": f"Company {one}"} for one in self.books]
            case ["companies", company, "connections"]:
                return [{"id": one} for one in self.connections.get(company, ())]
            case ["companies", company, "data", kind]:
                return self.books[company].get(kind)
            case ["companies", company, "connections", connection, "data", kind]:
                return self.books[company].get(f"{connection}/{kind}")
            case ["companies", company, "connections", connection, "data", _, account, _]:
                return self.books[company].get(f"{connection}/{account}")
        return None


def answer(status: int) -> web.Response:
    return web.json_response({"statusCode": status, "error": "odd"}, status=status)


@asynccontextmanager
async def serving(
    books: dict[str, dict[str, list[Record]]], **options: Any
) -> AsyncIterator[tuple[Lists, Client]]:
    """The service, and a client of it."""
    async with Lists(books, **options) as service, Client("key", service.url) as client:
        yield service, client


# What is written


@define
class Place:
    """Where a pull writes to."""

    to: Path | str
    format: str

    @property
    def options(self) -> dict[str, Any]:
        return {"to": self.to, "format": self.format}

    @property
    def is_folder(self) -> bool:
        return self.format in {"ndjson", "parquet"}

    def parts(self, data_type: str = "invoices") -> list[Path]:
        """The parts that readers see, in the order of the pull."""
        return sorted((Path(self.to) / data_type).rglob("part-*"))

    async def rows(self, data_type: str = "invoices") -> list[Record]:
        """All states that are there, with their company, in the order of the pull."""
        if self.is_folder:
            return [row for part in self.parts(data_type) for row in records_in(part)]
        query = f'SELECT company, record FROM "{data_type}" ORDER BY company, connection, id'
        return [{"company": one, **json.loads(text)} for one, text in await self.select(query)]

    async def select(self, query: str) -> list[Any]:
        """Rows of a query to the database."""
        if self.format == "duckdb":
            with duckdb.connect(str(self.to)) as database:
                found: list[Any] = database.execute(query).fetchall()
                return found
        return [tuple(row) for row in await fetch(str(self.to), query)]


def records_in(part: Path) -> list[Record]:
    company = re.search("company=([^/]*)", str(part))
    assert company is not None
    if part.suffix == ".parquet":
        rows: list[Record] = pq.ParquetFile(part).read().to_pylist()
        rows = [{name: _plain(value) for name, value in row.items()} for row in rows]
    else:
        rows = [json.loads(line) for line in part.read_bytes().splitlines()]
    return [{"company": company[1], **row} for row in rows]


def _plain(value: Any) -> Any:
    return value.isoformat().replace("+00:00", "Z") if isinstance(value, datetime) else value


async def new_place(request: pytest.FixtureRequest, folder: Path, format_: str) -> Place:
    """An empty place in *folder*, or a new database."""
    if format_ == "postgres":
        server: Server = request.getfixturevalue("postgres")
        return Place(await server.new_database(), format_)
    return Place(folder / ("out.duckdb" if format_ == "duckdb" else "out"), format_)


FIELDS: Final = ("id", "note", "modifiedDate")
"""What writers change; types of all others are another test's business."""


async def assert_agrees(
    books: dict[str, dict[str, list[Record]]],
    place: Place,
    data_type: str = "invoices",
    *,
    after_deletions: bool = False,
) -> None:
    """Each record of the service is there in its newest state, and no state twice.

    after_deletions: What the service has deleted may still be there.
    """
    ours = [
        (row["company"], *(row.get(name) for name in FIELDS)) for row in await place.rows(data_type)
    ]
    twice = [state for state, count in Counter(ours).items() if count > 1]
    newest = {(company, id_): state for company, id_, *state in ours}
    theirs = {
        (company, row["id"]): [row.get(name) for name in FIELDS[1:]]
        for company, book in books.items()
        for row in book.get(data_type, ())
    }
    missing = theirs.keys() - newest.keys()
    extra = newest.keys() - theirs.keys()
    stale = [key for key in theirs.keys() & newest.keys() if newest[key] != theirs[key]]
    assert not missing, f"{len(missing)} missing: {sorted(missing)[:3]}"
    assert after_deletions or not extra, f"{len(extra)} deleted ones left: {sorted(extra)[:3]}"
    assert not stale, (
        f"{len(stale)} stale: {[(one, newest[one], theirs[one]) for one in stale[:2]]}"
    )
    assert not twice, f"{len(twice)} twice: {twice[:3]}"


@define
class Writer:
    """Edits, inserts and deletes invoices of all companies, and stamps many alike."""

    books: dict[str, dict[str, list[Record]]]
    chance: random.Random
    writes: int = 0

    def write(self) -> None:
        """Do one of that."""
        self.writes += 1
        rows = self.chance.choice(list(self.books.values()))["invoices"]
        if self.writes % 40 == 0:  # a synchronisation stamps what it writes alike
            stamp = now()
            for row in self.chance.sample(rows, min(len(rows), 1_200)):
                row |= {"note": f"synchronised {self.writes}", "modifiedDate": stamp}
        elif self.writes % 25 == 0:
            del rows[self.chance.randrange(len(rows))]
        elif self.writes % 5 == 0:
            rows.append({"id": f"new-{self.writes}", "note": "new", "modifiedDate": now()})
        else:
            row = self.chance.choice(rows)
            row |= {"note": f"edit {self.writes}", "modifiedDate": now()}


@asynccontextmanager
async def writing(writer: Writer, *, pause: float = 0.005) -> AsyncIterator[None]:
    """Write while the block runs."""

    async def write() -> None:
        while True:
            writer.write()
            await asyncio.sleep(pause)

    task = asyncio.create_task(write())
    try:
        yield
    finally:
        task.cancel()
        await asyncio.wait([task])


def sizes_seen(path: Path) -> Iterator[int]:
    """The number of different records that a reader sees of each unit that is shown."""
    for folder in (path / "invoices").glob("company=*"):
        yield len({row["id"] for part in folder.glob("part-*") for row in records_in(part)})
