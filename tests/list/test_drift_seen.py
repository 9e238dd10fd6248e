"""What each ``on_drift`` notices of a list that changes while it is read."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from datetime import UTC, datetime, timedelta
from random import Random
from typing import Any

import msgspec
import pytest
from attrs import define
from hypothesis import given, settings
from hypothesis import strategies as st

from integration_sdk import Pager
from integration_sdk.errors import DriftWarning, ResultSetChanged
from tests.support.virtual_service import Answer, Asked, Proceed, Service


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
    total: int | None = None

    def answer(self, asked: Asked, proceed: Proceed) -> Answer:
        for change, place in self.changes.get(self.answers, []):
            self.change(change, place)
        self.answers += 1
        number, size = int(asked.params["page"]), int(asked.params["pageSize"])
        shown = self.invoices[(number - 1) * size : number * size]
        following = f"?page={number + 1}&pageSize={size}&orderBy=modifiedDate"
        links = {"next": {"href": following}} if number * size < len(self.invoices) else {}
        page = {
            "results": [{"id": key, "modifiedDate": moment(when)} for key, when in shown],
            "pageNumber": number,
            "pageSize": size,
            "totalResults": len(self.invoices) if self.total is None else self.total,
            "_links": links,
        }
        return Answer(body=msgspec.json.encode(page))

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

    @asynccontextmanager
    async def read(self, page_size: int = 100, **options: Any) -> AsyncIterator[Pager[Any]]:
        async with Service(faults=[self.answer], latency=0.0).client() as client:
            invoices = client.company("c-0").data("invoices")
            options = {"prefetch": 0, "order_by": "modifiedDate", **options}
            yield invoices.list(page_size=page_size, **options)


def moment(number: int) -> str:
    """Return a moment as services write it: with a fraction only where there is one."""
    when = datetime(2026, 1, 31, 9, tzinfo=UTC) + number * timedelta(seconds=0.5)
    return when.isoformat().replace("+00:00", "Z")


def books(count: int, changes: dict[int, list[tuple[str, int]]]) -> Books:
    return Books([(index, index) for index in range(count)], changes)


async def test_an_edited_record_that_comes_twice_is_an_error() -> None:
    """One of 1,000, read already, moves to the end: the count stays, and 999 come."""
    async with books(1000, {9: [("edit", 150)]}).read(on_drift="raise") as pager:
        items = aiter(pager)
        assert [(await anext(items))["id"] for _ in range(900)][150] == 150

        with pytest.raises(ResultSetChanged, match="1 of its items came before"):
            await anext(items)


async def test_an_edited_record_that_comes_twice_is_a_warning() -> None:
    """The list is read to its end, and the report counts it."""
    async with books(1000, {9: [("edit", 150)]}).read(on_drift="warn") as pager:
        with pytest.warns(DriftWarning, match="1 of its items came before"):
            items = await pager.collect()

    assert len({item["id"] for item in items}) == 999
    assert pager.report.duplicates == 1


@pytest.mark.parametrize(
    ("changes", "kinds"),
    [
        ([("shift", 20)], ["duplicate"]),
        ([("insert", 0)], ["total"]),
        ([("shift", 40), ("insert", 0)], ["total", "duplicate"]),
    ],
)
async def test_the_report_tells_what_moved_over_a_border_and_a_total_that_changed(
    changes: list[tuple[str, int]], kinds: list[str]
) -> None:
    """Twenty new items here and twenty that went there leave the total as it was."""
    async with books(300, {1: changes}).read(on_drift="report") as pager:
        await pager.collect()

    assert [drift.kind for drift in pager.report.drift] == kinds


@pytest.mark.parametrize(("told", "kinds"), [(290, ["count"]), (310, ["count"]), (300, [])])
async def test_a_list_that_ends_early_or_late_is_reported(told: int, kinds: list[str]) -> None:
    """The items handed out are held against ``totalResults``."""
    async with Books([(n, n) for n in range(300)], {}, total=told).read() as pager:
        await pager.collect()

    assert [drift.kind for drift in pager.report.drift] == kinds


CHANGES = st.dictionaries(
    st.integers(1, 12),
    st.lists(st.tuples(st.sampled_from(["edit", "insert", "delete"]), st.integers(0, 200))),
)


@settings(max_examples=80)
@given(st.integers(1, 100), st.integers(5, 40), CHANGES)
async def test_no_record_comes_twice_unnoticed(
    count: int, page_size: int, changes: dict[int, list[tuple[str, int]]]
) -> None:
    """``on_drift="raise"`` ends before a record is handed out again."""
    seen = list[int]()
    async with books(count, changes).read(page_size, on_drift="raise") as pager:
        with suppress(ResultSetChanged):
            async for item in pager:
                seen.append(item["id"])
    assert len(seen) == len(set(seen))


@pytest.mark.parametrize("on_drift", ["report", "warn", "raise", "repair"])
async def test_a_list_that_stands_still_shows_no_drift(on_drift: Any) -> None:
    """Whatever its order."""
    for chance in map(Random, range(20)):
        world = books(95, {})
        chance.shuffle(world.invoices)
        async with world.read(10, on_drift=on_drift) as pager:
            assert len(await pager.collect()) == 95
        assert pager.report.drift == []


@pytest.mark.parametrize("on_drift", ["warn", "raise"])
async def test_a_key_that_identifies_nothing_is_not_compared(on_drift: Any) -> None:
    """Where two items of one page have the same key, another page with it means nothing."""
    options: Any = {"key": lambda item: item["id"] % 5, "on_drift": on_drift}
    async with books(95, {}).read(10, **options) as pager:
        assert len(await pager.collect()) == 95

    assert pager.report.duplicates == 0
