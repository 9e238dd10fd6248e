"""Lists of services and callers that do what nobody expects: nothing is lost, nobody is misled."""

from __future__ import annotations

import asyncio
import warnings
from typing import Any

import attrs
import msgspec
import pytest

from integration_sdk._pager.pager import Pager
from integration_sdk._sansio.requests import Request, list_page
from integration_sdk._sansio.responses import Response
from integration_sdk.dialect import Dialect
from integration_sdk.errors import (
    AnswerLost,
    ConfigurationError,
    DriftWarning,
    InvalidItem,
    PaginationError,
    ResultSetChanged,
)
from tests.pager_support import BASE, FakeService, ids, settle

WAYS = ["items", "pages", "chunks"]


def reading(pager: Pager[Any], way: str) -> Any:
    match way:
        case "items":
            return aiter(pager)
        case "pages":
            return pager.pages()
    return pager.chunks(7)


def flat(way: str, handed: Any) -> list[Any]:
    return [handed] if way == "items" else list(handed.results if way == "pages" else handed)


async def all_of(iterator: Any, way: str = "items") -> tuple[list[Any], list[Exception]]:
    """What comes when each error is followed by another try."""
    items: list[Any] = []
    errors: list[Exception] = []
    while len(errors) < 20:
        try:
            items += flat(way, await anext(iterator))
        except StopAsyncIteration:
            break
        except (PaginationError, DriftWarning, InvalidItem) as error:
            errors.append(error)
    return items, errors


# Callers


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize(
    ("on_drift", "kind"), [("raise", ResultSetChanged), ("warn", DriftWarning)]
)
async def test_drift_that_is_raised_costs_no_page(way: str, on_drift: Any, kind: Any) -> None:
    """Who reads on after it gets the items of the page at which it showed."""
    service = FakeService(50, total=lambda page: 50 if page < 3 else 51)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        pager = service.pager(10, on_drift=on_drift)
        items, errors = await all_of(reading(pager, way), way)

    assert items == ids(range(50))
    assert [type(error) for error in errors] == [kind, kind]


@pytest.mark.parametrize("way", WAYS)
async def test_a_reading_that_is_closed_meanwhile_does_not_look_complete(way: str) -> None:
    """Wherever the reader is when another task closes its iterator, it is told."""
    for turns in range(1, 40):
        service = FakeService(60, latency=lambda _: 0)
        clock = map(float, range(10**6)).__next__  # so that each slice takes its turn
        iterator = reading(service.pager(20, clock=clock, prefetch=1), way)
        reader = asyncio.create_task(_read_on(iterator))
        for _ in range(turns):
            await asyncio.sleep(0)
        if reader.done():
            break
        await iterator.aclose()
        with pytest.raises(PaginationError, match="closed") as caught:
            await reader
        assert caught.value.cursor
    assert turns > 8


async def _read_on(iterator: Any) -> None:
    async for _ in iterator:
        pass


@pytest.mark.parametrize("way", WAYS)
async def test_a_model_that_raises_stop_iteration_loses_no_item_silently(way: str) -> None:
    """``next(...)`` in a converter ends the slice; the item is unfit, and those behind it come."""

    def converter(number: int) -> int:
        return next(known for known in range(50) if known == number and known % 13)

    @attrs.frozen
    class Odd:
        id: int = attrs.field(converter=converter)

    unfit: list[int] = []
    for on_invalid in (None, lambda error: unfit.append(msgspec.json.decode(error.raw)["id"])):
        pager = FakeService(50).pager(20, model=Odd, on_invalid=on_invalid)
        items, errors = await all_of(reading(pager, way), way)

        assert [item.id for item in items] == [index for index in range(50) if index % 13]
        assert len(errors) == (4 if on_invalid is None else 0)
        assert pager.report.invalid == 4
    assert unfit == [0, 13, 26, 39]


@pytest.mark.parametrize("option", ["on_invalid", "key"])
def test_a_function_that_would_have_to_be_awaited_is_refused(option: str) -> None:
    """Its coroutine would be thrown away, and with it what the caller wanted."""

    async def function(_: Any) -> None: ...

    with pytest.raises(ConfigurationError, match=f"{option} must be a plain function"):
        FakeService().pager(**{option: function})


async def test_a_chunk_size_that_is_refused_starts_no_reading() -> None:
    """The cursor and the report stay those of the reading under way."""
    pager = FakeService().pager()
    iterator = aiter(pager)
    await anext(iterator)
    cursor, report = pager.cursor, pager.report

    with pytest.raises(ConfigurationError, match="size"):
        pager.chunks(0)

    assert (pager.cursor, pager.report) == (cursor, report)
