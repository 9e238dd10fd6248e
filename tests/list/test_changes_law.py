"""The law of changes: runs that stop anywhere end equal to the service, whatever is written."""

from __future__ import annotations

import gzip
import json
import operator
import re
from collections.abc import Callable, Coroutine
from contextlib import aclosing
from datetime import UTC, datetime, timedelta
from email.utils import format_datetime
from random import Random
from typing import Any

from attrs import define, field
from hypothesis import given, settings
from hypothesis import strategies as st

from integration_sdk import Listing
from integration_sdk.errors import PaginationError
from integration_sdk.testing import run_virtual
from tests.support.virtual_service import Answer, Asked, Service

START = datetime(2026, 1, 31, 9, tzinfo=UTC)
SECOND = 10_000_000
FITS = {">=": operator.ge, "<": operator.lt, "=": operator.eq, ">": operator.gt}
Record = dict[str, Any]


def when(ticks: int) -> str:
    """The service's clock, in ticks of 0.1 microseconds, as .NET writes it."""
    return f"{START + timedelta(microseconds=ticks // 10):%Y-%m-%dT%H:%M:%S.%f}{ticks % 10}Z"


@define
class Books:
    """Records that are written while they are read.

    Attributes:
        chance: Decides what is written when.
        writes: Writes between two answers, on average.
        step: Most ticks between two writes; 0 stops the clock.
        future: Share of writes that are stamped up to a day ahead.
        coarse: Whether the service compares in microseconds, though it writes more digits.
        cap: Most records in a page.
        shuffled: Whether records of one moment come in another order in each answer.
    """

    chance: Random
    writes: float = 0.0
    step: int = SECOND
    future: float = 0.0
    coarse: bool = False
    cap: int = 5000
    shuffled: bool = False
    records: dict[int, Record] = field(init=False, factory=dict)
    ticks: int = field(init=False, default=0)
    asked: list[str] = field(init=False, factory=list)
    _next: int = field(init=False, default=0)

    def write(self) -> None:
        self.ticks += self.chance.randint(0, self.step)
        there = list(self.records)
        kind = self.chance.choice(("insert", "edit", "edit", "delete")) if there else "insert"
        if kind == "delete":
            del self.records[self.chance.choice(there)]
            return
        self._next += kind == "insert"
        one = self._next if kind == "insert" else self.chance.choice(there)
        is_ahead = self.chance.random() < self.future
        ahead = self.chance.randint(0, 86_400) * SECOND if is_ahead else 0
        # Few contents, so that an edit may also bring an earlier one back.
        content = self.chance.randint(0, 2)
        self.records.pop(one, None)
        self.records[one] = {"id": one, "modifiedDate": when(self.ticks + ahead), "n": content}

    def stamp(self, count: int) -> None:
        """Write *count* records with one date, as a synchronisation does."""
        for _ in range(count):
            self._next += 1
            self.records[self._next] = {"id": self._next, "modifiedDate": when(self.ticks), "n": 0}

    def answer(self, asked: Asked) -> Answer:
        while self.chance.random() < self.writes / (1 + self.writes):
            self.write()
        params = asked.params
        self.asked.append(params["query"])
        assert len(self.asked) < 5_000, "the reading does not end"
        assert params["orderBy"] == "modifiedDate"
        found = self._found(params["query"])
        size, number = min(int(params["pageSize"]), self.cap), int(params["page"])
        links = {"current": {"href": "?"}}
        if number * size < len(found):
            links["next"] = {"href": "?page=2"}
        page = {
            "results": found[(number - 1) * size : number * size],
            "pageNumber": number,
            "pageSize": size,
            "totalResults": len(found),
            "_links": links,
        }
        now = START + timedelta(microseconds=self.ticks // 10)
        date = format_datetime(now.replace(microsecond=0), usegmt=True)
        return Answer(body=json.dumps(page).encode(), headers={"Date": date})

    def _found(self, query: str) -> list[Record]:
        found = list(self.records.values())
        for part in query.split("&&"):
            match = re.fullmatch(r"modifiedDate(>=|<|=|>)(.*)", part)
            assert match, query
            fits, moment = FITS[match[1]], self._key(match[2])
            found = [one for one in found if fits(self._key(one["modifiedDate"]), moment)]
        if self.shuffled:
            self.chance.shuffle(found)
        return sorted(found, key=lambda record: self._key(record["modifiedDate"]))

    def _key(self, text: str) -> str:
        digits = text.removesuffix("Z").partition(".")[2].ljust(7, "0")
        return text[:19] + digits[: 6 if self.coarse else 7]


def reading(books: Books, read: Callable[[Listing[Any]], Coroutine[Any, Any, Any]]) -> Any:
    async def main() -> Any:
        async with Service(answer=books.answer, latency=0.001).client() as client:
            return await read(client.companies)

    return run_virtual(main())


async def a_run(
    companies: Listing[Any], merged: dict[int, Record], stop: int = 10**9, **options: Any
) -> tuple[str, str]:
    """Merge what a run gives, up to some records; return its cursor and watermark."""
    pager = companies.list(**{"changed_since": "beginning", **options})
    async with aclosing(pager.raw()) as items:
        async for item in items:
            record = json.loads(item)
            merged[record["id"]] = record
            if pager.report.items >= stop:
                break
    return pager.cursor, pager.watermark


books_ = st.builds(
    Books,
    chance=st.builds(Random, st.integers(0, 2**32)),
    writes=st.sampled_from((0.5, 3)),
    step=st.sampled_from((0, 1, 5, 30, SECOND, 60 * SECOND)),
    future=st.sampled_from((0.0, 0.0, 0.2)),
    coarse=st.booleans(),
    cap=st.sampled_from((5000, 5000, 7, 3)),
)


@st.composite
def written_books(draw: st.DrawFn) -> Books:
    """Books with some records, of which some have one date."""
    books = draw(books_)
    for _ in range(draw(st.integers(0, 60))):
        books.write()
    books.stamp(draw(st.integers(0, 30)))
    return books


written = written_books()
stops = st.lists(st.integers(0, 40), max_size=4)


@settings(max_examples=80)
@given(written, st.integers(1, 9), stops, st.booleans())
def test_runs_end_equal_to_the_service(
    books: Books, size: int, stops: list[int], by_cursor: bool
) -> None:
    """From cursors or watermarks, among inserts, edits, deletions, ties and future stamps.

    A service of small pages may have more records of a moment than can be read while they change:
    then there is an error, and the next run goes on. At the end, an unchanged list is one request
    from a cursor, and nothing comes again.
    """

    async def read(companies: Listing[Any]) -> dict[int, Record]:
        merged: dict[int, Record] = {}
        options: dict[str, Any] = {"page_size": size}
        for stop in (*stops, 10**9):
            if stop == 10**9:
                books.writes = 0
            try:
                cursor, watermark = await a_run(companies, merged, stop, **options)
            except PaginationError as error:
                assert books.writes
                options["cursor"] = error.cursor
                continue
            options = {"page_size": size}
            options |= {"cursor": cursor} if by_cursor else {"changed_since": watermark}
        if by_cursor:
            books.asked.clear()
            again: dict[int, Record] = {}
            await a_run(companies, again, **options)
            assert again == {}
            assert len(books.asked) == 1 or books.cap < 5000
        return merged

    merged = reading(books, read)

    assert {key: merged.get(key) for key in books.records} == books.records


@settings(max_examples=40)
@given(written, st.integers(1, 9), st.integers(0, 40))
def test_nothing_comes_twice_while_nothing_is_written(books: Books, size: int, stop: int) -> None:
    """Each record comes once, in order, also over a cursor between any two."""

    async def read(companies: Listing[Any]) -> list[Record]:
        pager = companies.list(changed_since="beginning", page_size=size, limit=stop)
        first = await pager.collect()
        rest = companies.list(changed_since="beginning", page_size=size, cursor=pager.cursor)
        return [*first, *await rest.collect()]

    books.writes = 0
    found = reading(books, read)

    assert sorted(record["id"] for record in found) == sorted(books.records)


@settings(max_examples=25)
@given(st.builds(Random, st.integers(0, 99)), st.integers(2, 9), st.integers(0, 60))
def test_an_order_that_changes_is_an_error_or_no_loss(chance: Random, cap: int, alike: int) -> None:
    """A service that has equal moments in another order in each answer loses none in silence."""
    books = Books(chance, cap=cap, shuffled=True)
    books.stamp(alike)
    merged: dict[int, Record] = {}

    async def read(companies: Listing[Any]) -> None:
        try:
            await a_run(companies, merged)
        except PaginationError:
            merged.update(books.records)

    reading(books, read)

    assert merged == books.records


def test_changes_come_in_pages_that_fit() -> None:
    """A page over the size limit is requested again in smaller ones, within one moment, too."""
    large = gzip.compress(bytes(65 * 2**20), 1)
    too_large = Answer(body=large, headers={"Content-Encoding": "gzip"})
    books = Books(Random(1))
    books.stamp(60)
    for _ in range(20):
        books.write()

    def answer(asked: Asked) -> Answer:
        return too_large if int(asked.params["pageSize"]) > 30 else books.answer(asked)

    async def read() -> dict[int, Record]:
        merged: dict[int, Record] = {}
        async with Service(answer=answer, latency=0.001).client() as client:
            await a_run(client.companies, merged, page_size=100)
        return merged

    assert run_virtual(read()) == books.records
