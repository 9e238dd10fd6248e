"""Lists of services and callers that do what nobody expects: nothing is lost, nobody is misled."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import attrs
import msgspec
import pytest

from integration_sdk import Pager
from integration_sdk.errors import (
    ApiError,
    ConfigurationError,
    IntegrationError,
    MalformedResponse,
    NotFound,
    PaginationError,
    ResultSetChanged,
    UnsafeLink,
)
from tests.support.pager_support import Records, Serve, ids, unopened
from tests.support.virtual_service import Answer, Asked, Proceed, Service

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


async def all_of(
    pager_at: Callable[[str | None], Pager[Any]], way: str
) -> tuple[list[Any], list[Any]]:
    """What comes when each error is followed by a list from its cursor."""
    items: list[Any] = []
    errors: list[IntegrationError] = []
    cursor = None
    while len(errors) < 20:
        try:
            async for handed in reading(pager_at(cursor), way):
                items += flat(way, handed)
        except IntegrationError as error:
            errors.append(error)
            cursor = error.cursor
        else:
            break
    return items, errors


# Callers


@pytest.mark.parametrize("way", WAYS)
async def test_drift_that_is_raised_costs_no_page(serve: Serve, way: str) -> None:
    """Who reads on after it gets the items of the page at which it showed."""
    service = Records(items=50)
    companies = await serve(service)

    def total(page: int) -> int:
        service.items = 50 if max(service.pages) < 3 else 51
        return service.items

    service.total = total

    items, errors = await all_of(
        lambda cursor: companies.list(page_size=10, on_drift="raise", cursor=cursor), way
    )

    assert items == ids(range(51))
    assert [type(error) for error in errors] == [ResultSetChanged]


@pytest.mark.parametrize("option", ["on_invalid", "key"])
def test_a_function_that_would_have_to_be_awaited_is_refused(option: str) -> None:
    """Its coroutine would be thrown away, and with it what the caller wanted."""

    async def function(_: Any) -> None: ...

    with pytest.raises(ConfigurationError, match=f"{option} must be a plain function"):
        unopened(**{option: function})


async def test_a_chunk_size_that_is_refused_starts_no_reading(serve: Serve) -> None:
    """The cursor and the report stay those of the reading under way."""
    pager = (await serve(Records())).list()
    iterator = aiter(pager)
    await anext(iterator)
    cursor, report = pager.cursor, pager.report
    await iterator.aclose()

    with pytest.raises(ConfigurationError, match="size"):
        pager.chunks(0)

    assert (pager.cursor, pager.report) == (cursor, report)


# Repair


@pytest.mark.parametrize("total", [60, 61, 75, 1000])
@pytest.mark.parametrize(("count", "requests"), [(47, 18), (50, 15)])
async def test_a_total_that_is_too_high_ends_a_repaired_list(
    serve: Serve, count: int, requests: int, total: int
) -> None:
    """Where neither a link nor an item says that there is more, that is the end, and reported."""
    service = Records(items=count, total=lambda _: total)
    companies = await serve(service)
    pager = companies.list(page_size=10, on_drift="repair")

    assert await pager.collect() == ids(range(count))
    assert [drift.kind for drift in pager.report.drift] == ["count"]
    assert len(service.log) < requests


@pytest.mark.parametrize(
    "place", ["after=20", "page=p20", f"page={'9' * 5000}"], ids=["token", "text", "digits"]
)
async def test_a_link_is_no_place_to_repair_from(place: str) -> None:
    """It would be read as page 1: items would come twice."""

    def endless(asked: Asked, proceed: Proceed) -> Answer:
        page = {"results": [{"id": 1}, {"id": 2}], "_links": {"next": {"href": f"?{place}"}}}
        return Answer(body=msgspec.json.encode(page))

    async with Service(faults=[endless]).client() as client:
        first_page = await client.companies.list()
        with pytest.raises(ConfigurationError, match="repair"):
            client.companies.list(cursor=first_page.cursor, on_drift="repair")
        rest = client.companies.list(cursor=first_page.cursor)
        assert len(await rest.collect(limit=2)) == 2


async def test_an_item_that_does_not_fit_is_repaired_around(serve: Serve) -> None:
    """``key=`` as a function of the item cannot be asked about it; ``on_invalid`` is."""

    @attrs.frozen
    class Fussy:
        id: int

        def __attrs_post_init__(self) -> None:
            if self.id % 20 == 15:
                raise ValueError("fifteen")

    unfit: list[str] = []
    pager = (await serve(Records(items=50))).list(
        page_size=10,
        model=Fussy,
        on_drift="repair",
        key=lambda item: item.id,
        on_invalid=lambda error: unfit.append(str(error)),
    )

    assert [item.id for item in await pager.collect()] == [i for i in range(50) if i % 20 != 15]
    assert ["fifteen" in text for text in unfit] == [True, True]


async def test_a_key_function_that_fails_is_no_error_of_the_list(serve: Serve) -> None:
    """It is asked only to count duplicates; where it has to tell items apart, the error says so."""

    def key(_: Any) -> Any:
        raise ZeroDivisionError

    service = Records(items=50, total=lambda page: 50 if page < 3 else 51)
    companies = await serve(service)
    assert len(await companies.list(page_size=10, key=key).collect()) == 50
    with pytest.raises(PaginationError, match="key="):
        await companies.list(page_size=10, key=key, on_drift="repair").collect()


@dataclass(eq=False)
class Shrinking(Records):
    """After 20 requests the first *gone* records are deleted; there is no page behind the end."""

    gone: int = 0

    def carry_out(self, asked: Asked) -> Answer:
        number, size = int(asked.params["page"]), int(asked.params["pageSize"])
        if len(self.log) == 21:
            self.items -= self.gone
            self.records = lambda index: {"id": index + self.gone}
        if number > 1 and (number - 1) * size >= self.items:
            self.troubles.setdefault(number, []).append(404)
        return super().carry_out(asked)


@pytest.mark.parametrize("gone", [1000, 2900])
@pytest.mark.parametrize("prefetch", [0, 4])
async def test_a_list_that_became_short_is_repaired(serve: Serve, gone: int, prefetch: int) -> None:
    """A page that is no longer there is no end of the search."""
    service = Shrinking(items=3000, gone=gone)
    companies = await serve(service)

    items = await companies.list(page_size=100, on_drift="repair", prefetch=prefetch).collect()

    read = [item["id"] for item in items]
    assert read == sorted(set(read))
    assert set(range(gone, 3000)) <= set(read)


async def test_a_list_that_is_gone_is_an_error(serve: Serve) -> None:
    """If the first page does not exist either, that is what is raised."""
    service = Records(items=1000)
    companies = await serve(service)
    pager = companies.list(page_size=100, on_drift="repair", prefetch=0)
    iterator = aiter(pager)
    assert [await anext(iterator) for _ in range(300)] == ids(range(300))
    service.troubles = {page: [404] * 20 for page in range(1, 20)}

    with pytest.raises(NotFound):
        [item async for item in iterator]
    assert len(service.log) < 20


async def test_a_key_that_is_not_unique_is_an_error_of_repair(serve: Serve) -> None:
    """It would take other items for those that were read, and pass them over."""
    service = Records(items=1000, records=lambda index: {"id": index, "customer": index // 30})
    companies = await serve(service)

    with pytest.raises(PaginationError, match="the same key"):
        await companies.list(page_size=100, key="customer", on_drift="repair").collect()
    assert len(await companies.list(page_size=100, key="customer").collect()) == 1000


@pytest.mark.parametrize(("limit", "requests"), [(50, 1), (150, 2), (250, 3), (1000, 11)])
async def test_a_limit_saves_requests_of_a_repaired_list_too(
    serve: Serve, limit: int, requests: int
) -> None:
    """No page is fetched ahead that holds none of the items wanted."""
    service = Records(items=100_000)
    companies = await serve(service)
    pager = companies.list(page_size=100, limit=limit, on_drift="repair", prefetch=8)

    assert await pager.collect() == ids(range(limit))
    assert len(service.log) == requests


# Links


async def test_a_page_number_of_thousands_of_digits_is_a_token() -> None:
    """It is sent as it came, and not taken for a number, which Python would refuse."""
    digits = "9" * 5000
    seen: list[str] = []

    def answer(asked: Asked, proceed: Proceed) -> Answer:
        seen.append(asked.params["page"])
        links = {"next": {"href": f"?page={digits}"}} if len(seen) == 1 else {}
        page = {"results": [{"id": len(seen)}], "_links": links}
        return Answer(body=msgspec.json.encode(page))

    async with Service(faults=[answer]).client() as client:
        assert await client.companies.list().collect() == ids(range(1, 3))
    assert seen == ["1", digits]


async def test_a_page_size_of_thousands_of_digits_hides_no_error() -> None:
    """Whose message says how to go on with a smaller page, if there can be one."""

    def answer(asked: Asked, proceed: Proceed) -> Answer:
        if asked.params["pageSize"] != "100":
            return Answer(504)
        links = {"next": {"href": f"?page=2&pageSize={'9' * 5000}"}}
        return Answer(body=msgspec.json.encode({"results": [{"id": 1}], "_links": links}))

    async with Service(faults=[answer]).client(retry=None) as client:
        with pytest.raises(ApiError) as caught:
            await client.companies.list(page_size=100).collect()
    assert caught.value.status == 504


async def test_a_link_that_no_server_takes_is_not_followed() -> None:
    """URLs are remembered; a megabyte of link packs into a few hundred bytes of answer."""
    seen: list[str] = []

    def answer(asked: Asked, proceed: Proceed) -> Answer:
        seen.append(asked.params["page"])
        page = {"results": [{"id": 1}], "_links": {"next": {"href": f"?page={'9' * 70_000}"}}}
        return Answer(body=msgspec.json.encode(page))

    async with Service(faults=[answer]).client() as client:
        with pytest.raises(UnsafeLink, match="is too long") as caught:
            await client.companies.list().collect()
    assert seen == ["1"]
    assert len(str(caught.value)) < 1000


@pytest.mark.parametrize("name", ["pageNumber", "pageSize", "totalResults"])
@pytest.mark.parametrize("number", [2**63, 1e308, "9" * 4000])
async def test_a_count_that_nothing_can_have_is_malformed(name: str, number: float | str) -> None:
    """Sums and shares of it could not be told."""

    def answer(asked: Asked, proceed: Proceed) -> Answer:
        page: dict[str, Any] = {"results": [{"id": 1}], "_links": {}, name: number}
        return Answer(body=msgspec.json.encode(page))

    async with Service(faults=[answer]).client() as client:
        with pytest.raises(MalformedResponse, match=f"{name} is") as caught:
            await client.companies.list().collect()
    assert len(str(caught.value)) < 300


async def test_a_link_may_spell_an_id_in_another_case() -> None:
    """Services that normalise ids do; only the link's query is used anyway."""
    company = "8A210B68-6988-11ED-A1EB-0242AC120002"
    seen: list[str] = []

    def answer(asked: Asked, proceed: Proceed) -> Answer:
        seen.append(path := "/" + "/".join(asked.segments))
        links = {"next": {"href": f"{path.lower()}?page=2&pageSize=100"}}
        page = {"results": [{"id": 0}], "_links": links if len(seen) == 1 else {}}
        return Answer(body=msgspec.json.encode(page))

    async with Service(faults=[answer]).client() as client:
        assert len(await client.company(company).data("invoices").list().collect()) == 2

    assert seen == [f"/companies/{company}/data/invoices"] * 2
