"""``list(changed_since=...)``: what has changed is read while records go on changing."""

from __future__ import annotations

from collections import Counter
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import UTC, datetime, timedelta, timezone
from pathlib import Path
from random import Random
from typing import Any

import msgspec
import pytest
from attrs import define, field
from hypothesis import given
from hypothesis import strategies as st

from integration_sdk import Client, Listing
from integration_sdk._http.requests import Params, Request, list_page
from integration_sdk._list.changes import (
    ChangesFilter,
    ChangeWalk,
    read_moment,
    write_moment,
)
from integration_sdk._list.cursor import Position, read_cursor, write_cursor
from integration_sdk._list.drift import Keys
from integration_sdk._list.page import ItemReader
from integration_sdk._options_given import MIB
from integration_sdk.dialect import Dialect
from integration_sdk.errors import BadRequest, ConfigurationError, PaginationError
from integration_sdk.sandbox import DataSet, Sandbox
from tests.support.pager_support import open_page

READER = ItemReader.of()
KEYS = Keys.of("id", READER.value)
START = datetime(2026, 1, 31, 9, tzinfo=UTC)
Record = dict[str, Any]


def when(ticks: int) -> str:
    """The service's clock, in ticks of 0.1 microseconds, as .NET writes it."""
    return f"{START + timedelta(microseconds=ticks // 10):%Y-%m-%dT%H:%M:%S.%f}{ticks % 10}Z"


@define
class Books:
    """Records that are written while they are read.

    Attributes:
        chance: Decides what is written when, and in which order a service puts equal moments.
        writes: Writes between two answers, on average.
        step: Most ticks between two writes; 0 stops the clock.
        coarse: Whether the service compares in microseconds, though it writes more digits.
        cap: Most records in a page.
        silent: Whether ``pageSize`` is what was requested, whatever the cap.
        linked: Whether pages have links.
        counts: Whether ``totalResults`` counts all records, and not only those of the page.
    """

    chance: Random
    writes: float
    step: int
    coarse: bool
    cap: int = 5000
    silent: bool = False
    linked: bool = True
    counts: bool = True
    records: dict[int, Record] = field(init=False, factory=dict)
    ticks: int = field(init=False, default=0)
    requests: int = field(init=False, default=0)
    _next: int = field(init=False, default=0)

    def work(self) -> None:
        while self.chance.random() < self.writes / (1 + self.writes):
            self.write()

    def write(self) -> None:
        self.ticks += self.chance.randint(0, self.step)
        there = list(self.records)
        kind = self.chance.choice(("insert", "edit", "edit", "delete")) if there else "insert"
        if kind == "delete":
            del self.records[self.chance.choice(there)]
            return
        self._next += kind == "insert"
        one = self._next if kind == "insert" else self.chance.choice(there)
        # Few contents, so that an edit may also bring an earlier one back.
        content = self.chance.randint(0, 2)
        self.records[one] = {"id": one, "modifiedDate": when(self.ticks), "content": content}

    def answer(self, params: Params) -> bytes:
        self.requests += 1
        assert self.requests < 5_000, "the walk does not end"
        query = dict(params)
        size = min(int(query["pageSize"]), self.cap)
        since = query["query"].removeprefix("modifiedDate>=")
        assert (query["page"], query["orderBy"]) == ("1", "modifiedDate")
        found = [
            r for r in self.records.values() if self._key(r["modifiedDate"]) >= self._key(since)
        ]
        self.chance.shuffle(found)
        found.sort(key=lambda record: self._key(record["modifiedDate"]))
        links = {"current": {"href": "?"}} | ({"next": {"href": "?"}} if len(found) > size else {})
        page: dict[str, Any] = {"results": found[:size], "pageNumber": 1}
        page["pageSize"] = int(query["pageSize"]) if self.silent else size
        total = {
            "totalResults": len(found) if self.counts else len(page["results"]),
            "_links": links if self.linked else {},
        }
        return msgspec.json.encode(page | total)

    def _key(self, text: str) -> str:
        digits = text.removesuffix("Z").partition(".")[2].ljust(7, "0")
        return text[:19] + digits[: 6 if self.coarse else 7]


def request() -> Request:
    text = "modifiedDate>="
    return list_page(Dialect.document(), "companies.list", query=text, order_by="modifiedDate")


def walk_from(since: str, size: int, start: Position | None = None) -> ChangeWalk:
    changes = ChangesFilter.of(since, "modifiedDate", "query", None)
    own = request()
    return ChangeWalk(
        request=own,
        start=start or Position(params=changes.params(own, changes.since, size)),
        prefetch=1,
        max_bytes=64 * MIB,
        changes=changes,
        size=size,
        keys=KEYS,
    )


def read(
    walk: ChangeWalk, books: Books, *, stop_after: int = 10**9
) -> tuple[list[Record], Position]:
    """Read to the end, or some records, while others write."""
    items: list[Record] = []
    taken = 0
    while (head := walk.head) is not None:
        books.work()
        page = open_page(READER, books.answer(head.params))
        arranged, skip = walk.opened(page, 100)
        taken = skip
        for raw in arranged.raws[skip:]:
            if len(items) == stop_after:
                return items, walk.position(taken)
            items.append(READER.value(raw))
            taken += 1
    return items, walk.position(taken)


def watermark(walk: ChangeWalk, position: Position) -> str:
    return write_moment(walk.changes.moment_in(position.params))


def merge(merged: dict[int, Record], items: list[Record]) -> None:
    merged.update({item["id"]: item for item in items})


schedules = st.builds(
    Books,
    chance=st.builds(Random, st.integers(0, 2**32)),
    writes=st.sampled_from((0.5, 3, 20)),
    step=st.sampled_from((0, 1, 5, 30, 10_000_000)),
    coarse=st.booleans(),
    linked=st.booleans(),
    counts=st.booleans(),
)


@given(schedules, st.integers(0, 60), st.integers(1, 9), st.lists(st.integers(0, 40), max_size=4))
def test_runs_from_the_last_watermark_end_equal_to_the_service(
    books: Books, before: int, size: int, stops: list[int]
) -> None:
    """Whatever is written meanwhile, the runs, merged by key, hold what the service holds."""
    for _ in range(before):
        books.write()
    merged: dict[int, Record] = {}
    since = when(0)
    for stop_after in stops:
        walk = walk_from(since, size)
        items, position = read(walk, books, stop_after=stop_after)
        merge(merged, items)
        since = watermark(walk, position)
        books.work()
    books.writes = 0
    merge(merged, read(walk_from(since, size), books)[0])

    assert {key: merged[key] for key in books.records} == books.records


@given(schedules, st.integers(0, 60), st.integers(1, 9), st.lists(st.integers(0, 40), max_size=4))
def test_a_cursor_goes_on_like_the_run_that_it_is_of(
    books: Books, before: int, size: int, stops: list[int]
) -> None:
    """A run that is stopped and resumed at any record loses none, and ends with all."""
    for _ in range(before):
        books.write()
    merged: dict[int, Record] = {}
    start = None
    for stop_after in stops:
        items, position = read(walk_from(when(0), size, start), books, stop_after=stop_after)
        merge(merged, items)
        start = read_cursor(request(), write_cursor(request(), position))
        books.work()
    books.writes = 0
    merge(merged, read(walk_from(when(0), size, start), books)[0])

    assert {key: merged[key] for key in books.records} == books.records


@given(schedules, st.integers(0, 60), st.integers(1, 9), st.integers(0, 40))
def test_nothing_comes_twice_while_nobody_writes(
    books: Books, before: int, size: int, stop_after: int
) -> None:
    """Each record comes once, in order, also over a cursor; progress counts them."""
    for _ in range(before):
        books.write()
    books.writes = 0
    first, position = read(walk_from(when(0), size), books, stop_after=stop_after)
    rest, end = read(walk_from(when(0), size, position), books)

    moments = [item["modifiedDate"][:26] for item in first + rest]
    assert moments == sorted(moments)
    assert sorted(item["id"] for item in first + rest) == sorted(books.records)
    assert (position.done, end.done) == (len(first), len(books.records))


@given(schedules, st.integers(0, 60), st.integers(1, 9), st.integers(0, 5), st.booleans())
def test_what_cannot_be_read_on_is_an_error_and_no_loss(
    books: Books, before: int, size: int, cap: int, silent: bool
) -> None:
    """A service of small pages, all of one moment: all records, or an error that says so."""
    books.cap = cap
    # A short page without a link is the last one, unless a total says otherwise.
    books.silent = silent and (books.linked or books.counts)
    books.linked |= cap == 0
    for _ in range(before):
        books.write()
    books.writes = 0
    at_once = Counter(record["modifiedDate"][:26] for record in books.records.values())
    try:
        items, _ = read(walk_from(when(0), size), books)
    except PaginationError as error:
        told = str(error)
    else:
        assert sorted(item["id"] for item in items) == sorted(books.records)
        return
    assert max(at_once.values(), default=0) >= cap
    assert "narrow the list" in told


def test_a_page_that_one_moment_fills_is_followed_by_a_larger_one() -> None:
    """A bulk edit of 1,000 records in one second is read in pages that grow, and then shrink."""
    books = Books(Random(1), writes=0, step=0, coarse=False)
    for one in range(5000):
        books.records[one] = {"id": one, "modifiedDate": when(max(0, one - 1000) * 10)}
    sizes: list[int] = []
    walk = walk_from(when(0), 100)
    while (head := walk.head) is not None:
        sizes.append(head.size or 0)
        walk.opened(open_page(READER, books.answer(head.params)), 100)

    assert max(sizes) == 1600
    assert sizes[-1] == 100


# What a service must be able to do


def page_of(*moments: object) -> bytes:
    rows = [{"id": index, "modifiedDate": moment} for index, moment in enumerate(moments)]
    return msgspec.json.encode({"results": rows, "pageNumber": 1, "totalResults": len(rows)})


@pytest.mark.parametrize(
    ("moments", "what"),
    [
        ([None], "no date in modifiedDate"),
        (["soon"], "no date in modifiedDate"),
        ([17], "no date in modifiedDate"),
        ([when(5_000), when(4_000)], "not in the order of modifiedDate"),
        ([when(-10_000)], "does not filter"),
    ],
)
def test_a_service_that_cannot_do_it_is_told_at_the_first_page(
    moments: list[object], what: str
) -> None:
    """Without the filter, the order or the field, records would be lost."""
    with pytest.raises(PaginationError, match=what):
        walk_from(when(0), 10).opened(open_page(READER, page_of(*moments)), 100)


@given(
    st.datetimes(min_value=datetime(1900, 1, 1)),  # noqa: DTZ001  # the zone is added below
    st.integers(0, 9),
    st.integers(-14 * 60, 14 * 60),
)
def test_a_moment_is_never_rounded_up(local: datetime, digit: int, minutes: int) -> None:
    """What is asked for begins at the moment given, or less than a microsecond before."""
    moment = local.replace(tzinfo=timezone(timedelta(minutes=minutes)))
    text = moment.isoformat(timespec="microseconds")
    seven_digits = f"{text[:26]}{digit}{text[26:]}"

    assert read_moment("it", moment) == read_moment("it", seven_digits) == moment
    assert datetime.fromisoformat(write_moment(read_moment("it", seven_digits))) == moment


# In use


@asynccontextmanager
async def invoices_of_a_company(
    invoices: int,
) -> AsyncIterator[tuple[Sandbox, Listing[Record], DataSet]]:
    """A sandbox, its first company's invoices as a client lists them, and as they are."""
    async with (
        Sandbox(companies=1, invoices=invoices) as sandbox,
        Client(api_key=sandbox.api_key, base_url=sandbox.base_url) as client,
    ):
        one = sandbox.companies[0].id
        listing = client.company(one).data("invoices")
        yield sandbox, listing, sandbox.data_set(one, "invoices")


async def test_nightly_runs_end_equal_to_the_service(tmp_path: Path) -> None:
    """README's recipe: what each run stores as text leads the next one on, writers or not."""
    mirror: dict[str, Record] = {}
    stored = tmp_path / "watermark.txt"
    stored.write_text("2021-01-01")

    async with invoices_of_a_company(900) as (sandbox, invoices, there):

        async def run() -> int:
            changes = invoices.list(changed_since=stored.read_text(), page_size=100)
            async for invoice in changes:
                mirror[invoice["id"]] = invoice
            stored.write_text(changes.watermark)
            return changes.report.items

        dice = Random(0)

        async def write(_call: Any, proceed: Any) -> Any:
            moment = datetime.fromtimestamp(sandbox.clock.now(), UTC).isoformat(timespec="seconds")
            for _ in range(5):
                there.edit_at(dice.randrange(len(there)), {"modifiedDate": moment})
            for _ in range(2):
                new = {"id": str(len(there)), "modifiedDate": moment}
                there.insert(dice.randrange(len(there)), new)
            return await proceed()

        writer = sandbox.faults.add(write, route="GET /data/invoices")
        runs = [await run() for _ in range(3)]
        sandbox.faults.remove(writer)
        await run()

        assert {row["id"]: row["modifiedDate"] for row in there} == {
            row["id"]: row["modifiedDate"] for row in mirror.values()
        }
    assert runs[0] >= 900
    assert runs[1] < 300  # and not the whole list again


async def test_a_checkpoint_is_kept_while_changes_are_read(tmp_path: Path) -> None:
    """A killed run goes on from its checkpoint; a cursor fits any ``changed_since``."""
    place = tmp_path / "place.txt"
    async with invoices_of_a_company(250) as (_, invoices, there):
        options: Any = {"changed_since": "2021-01-01", "page_size": 50, "checkpoint": place}
        first: list[Record] = []
        async for page in invoices.list(**options).pages():
            first += page.results
            await page.commit()
            if len(first) >= 100:
                break
        again = invoices.list(**options)
        rest = await again.collect()

        assert sorted(row["id"] for row in first + rest) == sorted(there.ids())
        assert again.progress.done == 250
        assert await invoices.list(changed_since=START, cursor=again.cursor).collect() == []


async def test_a_filter_is_combined_with_the_moment() -> None:
    """``query=`` narrows what has changed, also one of alternatives."""
    async with invoices_of_a_company(300) as (_, invoices, there):
        since, text = "2021-05-01T00:00:00Z", "status=Paid||totalAmount<2000"
        found = await invoices.list(changed_since=since, query=text).collect()

        expected = [
            row["id"]
            for row in sorted(there, key=lambda row: str(row["modifiedDate"]))
            if row["modifiedDate"] >= since
            and (row["status"] == "Paid" or row["totalAmount"] < 2000)
        ]
        assert 0 < len(expected) < 180
        assert [row["id"] for row in found] == expected


async def test_a_field_that_the_service_does_not_know_is_told() -> None:
    """The service's own refusal of ``changed_by=`` arrives with the first page."""
    async with invoices_of_a_company(3) as (_, invoices, _there):
        with pytest.raises(BadRequest, match="editedOn"):
            await invoices.list(changed_since=START, changed_by="editedOn")
        by_issue = await invoices.list(changed_since="2021-01-02", changed_by="issueDate").collect()
        assert len(by_issue) == 2


@pytest.mark.parametrize(
    ("options", "what"),
    [
        ({"changed_since": START.replace(tzinfo=None)}, "time zone"),
        ({"changed_since": "yesterday"}, "ISO 8601"),
        ({"changed_since": 17}, "ISO 8601"),
        ({"changed_since": START, "order_by": "id"}, "order_by"),
        ({"changed_since": START, "on_drift": "repair"}, "on_drift"),
        ({"changed_since": START, "changed_by": "a b"}, "changed_by"),
        ({"changed_by": "editedOn"}, "changed_since"),
    ],
)
async def test_what_does_not_go_together_is_refused_before_any_request(
    options: dict[str, Any], what: str
) -> None:
    """An option that could not be kept is refused where it is given."""
    async with Client(api_key="key", base_url="https://127.0.0.1:9") as client:
        with pytest.raises(ConfigurationError, match=what):
            client.companies.list(**options)


async def test_a_list_without_a_moment_has_no_watermark() -> None:
    """The error says which option is missing."""
    async with Client(api_key="key", base_url="https://127.0.0.1:9") as client:
        with pytest.raises(ConfigurationError, match="changed_since"):
            _ = client.companies.list().watermark
