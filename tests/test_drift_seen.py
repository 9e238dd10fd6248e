"""What each ``on_drift`` notices of a list that changes while it is read."""

from __future__ import annotations

from contextlib import suppress
from datetime import UTC, datetime, timedelta
from random import Random
from typing import Any

import msgspec
import pytest
from attrs import define
from hypothesis import given, settings
from hypothesis import strategies as st

from integration_sdk._http.requests import Request, list_page
from integration_sdk._http.responses import Response
from integration_sdk._list.pager import Pager
from integration_sdk.dialect import Dialect
from integration_sdk.errors import DriftWarning, ResultSetChanged
from tests.pager_support import BASE


@define
class Books:
    """Invoices in the order of ``modifiedDate``, an id and a moment each.

    *changes* happen before the answers of that number. An edited invoice goes to the end, and so
    does a new one.
    """

    invoices: list[tuple[int, int]]
    changes: dict[int, list[tuple[str, int]]]
    answers: int = 0
    clock: int = 10_000

    async def fetch(self, request: Request, *, patience: float | None = None) -> Response:
        for change, place in self.changes.get(self.answers, []):
            self.change(change, place)
        self.answers += 1
        query = dict(request.params)
        number, size = int(query["page"]), int(query["pageSize"])
        shown = self.invoices[(number - 1) * size : number * size]
        following = f"?page={number + 1}&pageSize={size}&orderBy=modifiedDate"
        links = {"next": {"href": following}} if number * size < len(self.invoices) else {}
        page = {
            "results": [{"id": key, "modifiedDate": moment(when)} for key, when in shown],
            "pageNumber": number,
            "pageSize": size,
            "totalResults": len(self.invoices),
            "_links": links,
        }
        return Response(status=200, body=msgspec.json.encode(page))

    def change(self, change: str, place: int) -> None:
        self.clock += 1
        place %= max(len(self.invoices), 1)
        if change == "shift":
            front = [(self.clock + n, n - place) for n in range(place)]
            self.invoices[:] = [*front, *self.invoices[:-place]]
        elif change == "insert":
            self.invoices.append((self.clock, self.clock))
        elif self.invoices:
            key, _ = self.invoices.pop(place)
            if change == "edit":
                self.invoices.append((key, self.clock))

    def pager(self, page_size: int = 100, **options: Any) -> Pager[Any]:
        request = list_page(Dialect.document(), "companies.list", order_by="modifiedDate")
        options = {"prefetch": 0, **options}
        return Pager(self.fetch, request, base_url=BASE, page_size=page_size, **options)


def moment(number: int) -> str:
    """Return a moment as services write it: with a fraction only where there is one."""
    when = datetime(2026, 1, 31, 9, tzinfo=UTC) + number * timedelta(seconds=0.5)
    return when.isoformat().replace("+00:00", "Z")


def books(count: int, changes: dict[int, list[tuple[str, int]]]) -> Books:
    return Books([(index, index) for index in range(count)], changes)


async def test_an_edited_record_that_comes_twice_is_an_error() -> None:
    """One of 1,000, read already, moves to the end: the count stays, and 999 come."""
    items = aiter(books(1000, {9: [("edit", 150)]}).pager(on_drift="raise"))
    assert [(await anext(items))["id"] for _ in range(900)][150] == 150

    with pytest.raises(ResultSetChanged, match="1 of its items came before"):
        await anext(items)


async def test_an_edited_record_that_comes_twice_is_a_warning() -> None:
    """The list is read to its end, and the report counts it."""
    pager = books(1000, {9: [("edit", 150)]}).pager(on_drift="warn")

    with pytest.warns(DriftWarning, match="1 of its items came before"):
        items = await pager.collect()

    assert len({item["id"] for item in items}) == 999
    assert pager.report.duplicates == 1


CHANGES = st.dictionaries(
    st.integers(1, 12),
    st.lists(st.tuples(st.sampled_from(["edit", "insert", "delete"]), st.integers(0, 200))),
)


@settings(max_examples=300)
@given(st.integers(1, 100), st.integers(5, 40), CHANGES)
async def test_no_record_comes_twice_unnoticed(
    count: int, page_size: int, changes: dict[int, list[tuple[str, int]]]
) -> None:
    """``on_drift="raise"`` ends before a record is handed out again."""
    items = aiter(books(count, changes).pager(page_size, on_drift="raise"))
    seen = list[int]()
    with suppress(ResultSetChanged, StopAsyncIteration):
        while True:
            seen.append((await anext(items))["id"])
    assert len(seen) == len(set(seen))


@pytest.mark.parametrize("on_drift", ["report", "warn", "raise", "repair"])
async def test_a_list_that_stands_still_shows_no_drift(on_drift: Any) -> None:
    """Whatever its order."""
    for chance in map(Random, range(20)):
        world = books(95, {})
        chance.shuffle(world.invoices)
        pager = world.pager(10, on_drift=on_drift)

        assert len(await pager.collect()) == 95
        assert pager.report.drift == []


@pytest.mark.parametrize("on_drift", ["warn", "raise"])
async def test_a_key_that_identifies_nothing_is_not_compared(on_drift: Any) -> None:
    """Where two items of one page have the same key, another page with it means nothing."""
    pager = books(95, {}).pager(10, key=lambda item: item["id"] % 5, on_drift=on_drift)

    assert len(await pager.collect()) == 95
    assert pager.report.duplicates == 0
