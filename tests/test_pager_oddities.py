"""Lists of services and callers that do what nobody expects: nothing is lost, nobody is misled."""

from __future__ import annotations

import asyncio
import warnings
from typing import Any

import attrs
import msgspec
import pytest

from integration_sdk._http.requests import Request, list_page
from integration_sdk._http.responses import Response
from integration_sdk._list.pager import Pager
from integration_sdk.dialect import Dialect
from integration_sdk.errors import (
    AnswerLost,
    ConfigurationError,
    DriftWarning,
    InvalidItem,
    NotFound,
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


@pytest.mark.parametrize("prefetch", [0, 1, 8])
async def test_a_page_resumed_within_may_take_too_long(prefetch: int) -> None:
    """It comes in smaller pages then, and what was handed out of it is on several of these."""
    pager = FakeService(2000).pager(500, limit=450)
    assert len(await pager.collect()) == 450

    service = FakeService(2000, troubles={1: [504, 504]})
    rest = service.pager(500, cursor=pager.cursor, prefetch=prefetch)

    assert await rest.collect() == ids(range(450, 2000))


# Repair


@pytest.mark.parametrize("total", [60, 61, 75, 1000])
@pytest.mark.parametrize(("count", "requests"), [(47, 18), (50, 15)])
async def test_a_total_that_is_too_high_ends_a_repaired_list(
    count: int, requests: int, total: int
) -> None:
    """Where neither a link nor an item says that there is more, that is the end, and reported."""
    service = FakeService(count, total=lambda _: total)
    pager = service.pager(10, on_drift="repair")

    assert await pager.collect() == ids(range(count))
    assert [drift.kind for drift in pager.report.drift] == ["count"]
    assert len(service.seen) < requests


@pytest.mark.parametrize("page_size", [100, 5000, "auto"])
async def test_a_repaired_list_that_times_out_gives_up_as_others_do(page_size: Any) -> None:
    """After two smaller tries the error is raised."""
    trouble: list[int | Exception] = [AnswerLost("too slow") for _ in range(3)]
    service = FakeService(50_000, troubles={1: trouble})
    iterator = aiter(service.pager(page_size, on_drift="repair"))

    with pytest.raises(AnswerLost):
        await anext(iterator)
    assert len(service.seen) == 3
    assert await anext(iterator) == {"id": 0}
    await iterator.aclose()
    await settle()


@pytest.mark.parametrize(
    "place", ["after=20", "page=p20", f"page={'9' * 5000}"], ids=["token", "text", "digits"]
)
async def test_a_link_is_no_place_to_repair_from(place: str) -> None:
    """It would be read as page 1: items would come twice."""

    async def fetch(request: Request, *, patience: float | None = None) -> Response:
        page = {"results": [{"id": 1}, {"id": 2}], "_links": {"next": {"href": f"?{place}"}}}
        return Response(status=200, body=msgspec.json.encode(page))

    def pager(**options: Any) -> Pager[Any]:
        request = list_page(Dialect.document(), "companies.list")
        return Pager(fetch, request, base_url=BASE, **options)

    first_page = await pager()
    with pytest.raises(ConfigurationError, match="repair"):
        pager(cursor=first_page.cursor, on_drift="repair")
    assert len(await pager(cursor=first_page.cursor).collect(limit=2)) == 2


async def test_an_item_that_does_not_fit_is_repaired_around() -> None:
    """``key=`` as a function of the item cannot be asked about it; ``on_invalid`` is."""

    @attrs.frozen
    class Fussy:
        id: int

        def __attrs_post_init__(self) -> None:
            if self.id % 20 == 15:
                raise ValueError("fifteen")

    unfit: list[str] = []
    pager = FakeService(50).pager(
        10,
        model=Fussy,
        on_drift="repair",
        key=lambda item: item.id,
        on_invalid=lambda error: unfit.append(str(error)),
    )

    assert [item.id for item in await pager.collect()] == [i for i in range(50) if i % 20 != 15]
    assert ["fifteen" in text for text in unfit] == [True, True]


async def test_a_key_function_that_fails_is_no_error_of_the_list() -> None:
    """It is asked only to count duplicates; where it has to tell items apart, the error says so."""

    def key(_: Any) -> Any:
        raise ZeroDivisionError

    service = FakeService(50, total=lambda page: 50 if page < 3 else 51)
    assert len(await service.pager(10, key=key).collect()) == 50
    with pytest.raises(PaginationError, match="key="):
        await service.pager(10, key=key, on_drift="repair").collect()


@attrs.define(slots=False)
class Shrinking(FakeService):
    """After 20 requests, the first *gone* records are deleted.

    Pages behind the end do not exist, and those of more than *bearable* items take too long.
    """

    gone: int = 0
    bearable: int = 5000

    async def fetch(self, request: Request, *, patience: float | None = None) -> Response:
        number, size = (int(dict(request.params)[name]) for name in ("page", "pageSize"))
        if len(self.seen) == 20:
            self.count -= self.gone
            self.records = lambda index: {"id": index + self.gone}
        if number > 1 and (number - 1) * size >= self.count:
            self.troubles.setdefault(number, []).append(404)
        elif size > self.bearable:
            self.troubles.setdefault(number, []).append(504)
        return await super().fetch(request)


@pytest.mark.parametrize("gone", [1000, 2900])
@pytest.mark.parametrize("bearable", [5000, 150])
@pytest.mark.parametrize("prefetch", [0, 4])
async def test_a_list_that_became_short_is_repaired(
    gone: int, bearable: int, prefetch: int
) -> None:
    """A page that is no longer there, or too large to be had, is no end of the search."""
    service = Shrinking(3000, gone=gone, bearable=bearable)

    items = await service.pager(100, on_drift="repair", prefetch=prefetch).collect()

    read = [item["id"] for item in items]
    assert read == sorted(set(read))
    assert set(range(gone, 3000)) <= set(read)


async def test_a_list_that_is_gone_is_an_error() -> None:
    """If the first page does not exist either, that is what is raised."""
    service = FakeService(1000)
    pager = service.pager(100, on_drift="repair", prefetch=0)
    iterator = aiter(pager)
    assert [await anext(iterator) for _ in range(300)] == ids(range(300))
    service.troubles = {page: [404] * 20 for page in range(1, 20)}

    with pytest.raises(NotFound):
        [item async for item in iterator]
    assert len(service.seen) < 20


async def test_a_key_that_is_not_unique_is_an_error_of_repair() -> None:
    """It would take other items for those that were read, and pass them over."""
    service = FakeService(1000, records=lambda index: {"id": index, "customer": index // 30})

    with pytest.raises(PaginationError, match="the same key"):
        await service.pager(100, key="customer", on_drift="repair").collect()
    assert len(await service.pager(100, key="customer").collect()) == 1000


@pytest.mark.parametrize(("limit", "requests"), [(50, 1), (150, 2), (250, 3), (1000, 11)])
async def test_a_limit_saves_requests_of_a_repaired_list_too(limit: int, requests: int) -> None:
    """No page is fetched ahead that holds none of the items wanted."""
    service = FakeService(100_000)
    pager = service.pager(100, limit=limit, on_drift="repair", prefetch=8)

    assert await pager.collect() == ids(range(limit))
    assert len(service.seen) == requests


# Links


async def test_a_page_number_of_thousands_of_digits_is_a_token() -> None:
    """It is sent as it came, and not taken for a number, which Python would refuse."""
    digits = "9" * 5000
    seen: list[str] = []

    async def fetch(request: Request, *, patience: float | None = None) -> Response:
        seen.append(dict(request.params)["page"])
        links = {"next": {"href": f"?page={digits}"}} if len(seen) == 1 else {}
        page = {"results": [{"id": len(seen)}], "_links": links}
        return Response(status=200, body=msgspec.json.encode(page))

    pager: Pager[Any] = Pager(fetch, list_page(Dialect.document(), "companies.list"), base_url=BASE)

    assert await pager.collect() == ids(range(1, 3))
    assert seen == ["1", digits]


async def test_a_link_may_spell_an_id_in_another_case() -> None:
    """Services that normalise ids do; only the link's query is used anyway."""
    company = "8A210B68-6988-11ED-A1EB-0242AC120002"
    seen: list[str] = []

    async def fetch(request: Request, *, patience: float | None = None) -> Response:
        seen.append(request.path)
        links = {"next": {"href": f"{request.path.lower()}?page=2&pageSize=100"}}
        page = {"results": [{"id": 0}], "_links": links if len(seen) == 1 else {}}
        return Response(status=200, body=msgspec.json.encode(page))

    request = list_page(Dialect.document(), "data.list", companyId=company, dataType="invoices")
    pager: Pager[Any] = Pager(fetch, request, base_url=BASE)

    assert len(await pager.collect()) == 2
    assert seen == [request.path, request.path]
