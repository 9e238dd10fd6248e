"""Lists read by people who cancel, go on, resume, commit at once and ask for odd things."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from integration_sdk import Client, Pager
from integration_sdk.errors import (
    ConfigurationError,
    InternalServerError,
    InvalidItem,
    MalformedResponse,
    UnsafeLink,
)
from tests.support.pager_support import (
    Records,
    Serve,
    by_hand,
    ids,
    others,
    taken_impatiently,
    unopened,
)
from tests.support.virtual_service import Answer, Asked, Proceed, Service


class Numbered(msgspec.Struct):
    id: int


def readings(pager: Pager[Any]) -> dict[str, Callable[[], Any]]:
    return {
        "items": lambda: aiter(pager),
        "pages": pager.pages,
        "chunks": lambda: pager.chunks(130),
    }


def flat(way: str, handed: Any) -> list[Any]:
    return [handed] if way == "items" else list(handed.results if way == "pages" else handed)


# Cut short


@pytest.mark.parametrize("way", ["items", "pages", "chunks"])
@settings(max_examples=40)
@given(turns=st.lists(st.integers(0, 6), max_size=30))
def test_nothing_is_lost_by_whoever_stops_waiting(way: str, turns: list[int]) -> None:
    """However often the wait for the next item, page or chunk is cancelled, the cursor goes on."""

    async def read() -> list[Any]:
        service = Records(items=400, after=lambda _: 0)
        items, cursor = list[Any](), None
        for patience in (*turns, None):
            clock = iter(range(10**6))  # so that each slice takes its turn
            pager = by_hand(service, clock=lambda: float(next(clock)), cursor=cursor)  # noqa: B023 - used in this round
            reading = readings(pager)[way]()
            while (handed := await taken_impatiently(reading, patience)) is not None:
                items += flat(way, handed)
            cursor = pager.cursor
        return items

    assert asyncio.run(read()) == ids(range(400))


@pytest.mark.parametrize("way", ["items", "pages", "chunks", "collect"])
async def test_the_cursor_of_an_error_is_behind_what_was_handed_out(serve: Serve, way: str) -> None:
    """What came before the error and what comes behind its cursor is the whole list."""
    service = Records(items=500, after=lambda _: 0, troubles={4: [500]})
    companies = await serve(service)
    pager = companies.list(prefetch=0)
    seen: list[Any] = []

    async def read() -> None:
        if way == "collect":
            await pager.collect()
        else:
            async for handed in readings(pager)[way]():
                seen.extend(flat(way, handed))

    with pytest.raises(InternalServerError) as caught:
        await read()

    assert caught.value.cursor == pager.cursor
    assert pager.progress.done == len(seen)
    assert seen + await companies.list(cursor=pager.cursor).collect() == ids(range(500))


@pytest.mark.parametrize("way", ["items", "pages", "chunks"])
async def test_an_item_that_does_not_fit_costs_itself_alone(serve: Serve, way: str) -> None:
    """With ``on_invalid``, a page or chunk goes on with all its good items."""
    service = Records(items=300, after=lambda _: 0)
    companies = await serve(service)
    service.records = lambda index: {"id": "?" if index == 150 else index}
    errors = list[InvalidItem]()
    pager = companies.list(model=Numbered, on_invalid=errors.append)

    seen = [item.id async for handed in readings(pager)[way]() for item in flat(way, handed)]

    assert seen == [index for index in range(300) if index != 150]
    assert [error.index for error in errors] == [50]
    assert (pager.report.items, pager.report.invalid) == (299, 1)


async def test_reading_goes_on_behind_an_item_that_does_not_fit(serve: Serve) -> None:
    """Without ``on_invalid``, the cursor of the error is behind it."""
    service = Records(items=300, after=lambda _: 0)
    companies = await serve(service)
    service.records = lambda index: {"id": "?" if index == 150 else index}
    seen = list[int]()
    pager = companies.list(model=Numbered)
    with pytest.raises(InvalidItem):  # noqa: PT012
        async for item in pager:
            seen.append(item.id)

    rest = companies.list(model=Numbered, cursor=pager.cursor)
    assert [*seen, *[item.id async for item in rest]] == [n for n in range(300) if n != 150]


async def test_a_closed_reading_hands_out_no_half_chunk(serve: Serve) -> None:
    """What was gathered of a chunk when it was closed comes with the cursor, not with anext()."""
    service = Records(items=300, after=lambda _: 0, troubles={3: [500]})
    companies = await serve(service)
    pager = companies.list(prefetch=0)
    chunks = pager.chunks(250)
    with pytest.raises(InternalServerError):
        await anext(chunks)

    await chunks.aclose()

    with pytest.raises(StopAsyncIteration):
        await anext(chunks)
    assert await companies.list(cursor=pager.cursor).collect() == ids(range(300))


async def test_pages_that_somebody_else_cancels_are_asked_for_again(serve: Serve) -> None:
    """A sweep over all tasks costs the pages on their way, not the reading."""
    service = Records(items=500)
    companies = await serve(service)
    reading = asyncio.ensure_future(companies.list().collect())
    await asyncio.sleep(0.005)

    for task in others() - {reading}:
        task.cancel()

    assert await reading == ids(range(500))


async def test_looking_again_after_a_bad_link_is_no_drift(serve: Serve) -> None:
    """The cursor is behind the page that held it, and its link is read once more."""
    service = Records(items=300, after=lambda _: 0)
    companies = await serve(service)
    good, looks = service.body, list[int]()

    def body(number: int, size: int) -> bytes:
        looks.append(number)
        page = good(number, size)
        return page.replace(b"/companies?page=2", b"/profile?page=2") if looks == [1] else page

    service.body = body  # type: ignore[method-assign]  # the link is bad once
    pager = companies.list(on_drift="raise", prefetch=0)
    items = aiter(pager)
    seen = [await anext(items) for _ in range(100)]
    with pytest.raises(UnsafeLink):
        await anext(items)

    rest = companies.list(on_drift="raise", cursor=pager.cursor)
    assert [*seen, *await rest.collect()] == ids(range(300))


# What the service says


@asynccontextmanager
async def scripted(*pages: dict[str, Any] | bytes) -> AsyncIterator[tuple[Client, list[str]]]:
    """A client of a service that answers with *pages* in turn, and what it is asked."""
    asked = list[str]()

    def answer(request: Asked, _: Proceed) -> Answer:
        page = pages[min(len(asked), len(pages) - 1)]
        asked.append(request.query)
        return Answer(body=page if isinstance(page, bytes) else msgspec.json.encode(page))

    async with Service(faults=[answer]).client() as client:
        yield client, asked


@pytest.mark.parametrize(
    "query",
    [
        "after=%FF%FE",
        "after=a+b==",
        "after=a%2Bb",
        "flag&x=",
        "a;b",
        "after=%u0041",
        "page=2&t=%FF",
    ],
)
async def test_a_link_is_sent_as_it_came(query: str) -> None:
    """A token may be any bytes; it comes back unchanged, from a cursor too."""
    first, second = (
        {"results": [{"id": 1}], "_links": {"next": {"href": f"/companies?{text}"}}}
        for text in (query, "after=%FE%FE")
    )
    async with scripted(first, {"results": [{"id": 2}]}, second, {"results": []}) as (
        client,
        asked,
    ):
        pager = client.companies.list(prefetch=0)
        items = aiter(pager)
        await anext(items)
        await client.companies.list(cursor=pager.cursor).first()
        assert [item async for item in items] == [{"id": 1}]

    assert asked[1:] == [query, query, "after=%FE%FE"]


@pytest.mark.parametrize("number", [None, 1])
async def test_a_page_that_was_guessed_and_is_the_one_before_is_the_end(number: int | None) -> None:
    """A service that ignores the number of a page it does not have is not read twice."""
    page = {"results": [{"id": 1}], "pageNumber": number, "pageSize": 1, "totalResults": 9}
    async with scripted(page) as (client, _):
        pager = client.companies.list(page_size=1)
        assert await pager.collect() == [{"id": 1}]

    assert [drift.kind for drift in pager.report.drift] == ["count"]


@pytest.mark.parametrize("total", [-1, "", "-1"])
async def test_a_total_that_says_nothing_is_none(total: Any) -> None:
    """The list is read by its links, and the report says once that its length is not known."""
    linked = {"next": {"href": "/companies?page=2&pageSize=100"}}
    first = {"results": [{"id": 1}], "totalResults": total, "_links": linked}
    async with scripted(first, {"results": [{"id": 2}], "totalResults": total}) as (client, _):
        pager = client.companies.list(prefetch=0)
        assert await pager.collect() == [{"id": 1}, {"id": 2}]

    assert [drift.kind for drift in pager.report.drift] == ["total"]
    assert pager.progress.total is None


HALF_A_PAIR = (
    b'{"results":[{"id":1,"a":"\\ud83d\\ude00"},{"id":2,"a":"\\\\ud83d"},'
    b'{"id":3,"a":"cut \\ud83d"},{"id":4,"a":"\\n"}],'
    b'"totalResults":4,"pageNumber":1,"note":"cut \\ud83d"}'
)


@pytest.mark.parametrize("on_drift", ["report", "repair"])
async def test_half_a_surrogate_pair_spoils_its_own_record(on_drift: Any) -> None:
    """A record cut in the middle of an emoji is an item that does not fit; the others come."""
    aside: list[InvalidItem] = []
    async with scripted(HALF_A_PAIR) as (client, _):
        listed = client.companies.list(on_invalid=aside.append, on_drift=on_drift)
        items = await listed.collect()

    assert [item["id"] for item in items] == [1, 2, 4]
    assert [item["a"] for item in items] == ["\N{GRINNING FACE}", "\\ud83d", "\n"]
    assert [error.raw for error in aside] == [b'{"id":3,"a":"cut \\ud83d"}']


async def test_half_a_surrogate_pair_spoils_no_page() -> None:
    """Not even where the page's unknown fields are read, too: half a character is replaced."""
    aside: list[InvalidItem] = []

    async with scripted(HALF_A_PAIR) as (client, _):
        page = await client.companies.list(on_invalid=aside.append)

    assert ([item["id"] for item in page.results], len(aside)) == ([1, 2, 4], 1)
    assert page.extra == {"note": "cut \N{REPLACEMENT CHARACTER}"}


async def test_an_answer_that_is_no_page_says_which_it_is() -> None:
    """In a list of a thousand pages that is what one looks for first."""
    linked = {"next": {"href": "/companies?page=2&pageSize=100"}}
    async with scripted({"results": [], "_links": linked}, b"<html>") as (client, _):
        with pytest.raises(MalformedResponse, match="answered 200 for page 2"):
            await client.companies.list().collect()


# What the caller says


async def test_a_first_page_of_no_items_is_empty(serve: Serve) -> None:
    """``limit=0`` asks for nothing, and awaiting the list gives a page with nothing."""
    service = Records()
    companies = await serve(service)
    pager = companies.list(limit=0)

    page = await pager

    assert (list(page.results), page.cursor, service.log) == ([], pager.cursor, [])


async def test_progress_ends_at_the_limit(serve: Serve) -> None:
    """What is not going to be read does not count as left."""
    service = Records(after=lambda _: 0)
    companies = await serve(service)
    start = companies.list(limit=100)
    await start.collect()
    pager = companies.list(limit=250, cursor=start.cursor)
    items = aiter(pager)
    await anext(items)

    assert (pager.progress.done, pager.progress.total) == (101, 350)
    await items.aclose()


@pytest.mark.parametrize("limit", [-1, 1.5, "7", True])
async def test_a_limit_of_collect_is_checked_as_that_of_list(serve: Serve, limit: Any) -> None:
    """The error comes before anything is sent."""
    service = Records()
    companies = await serve(service)

    with pytest.raises(ConfigurationError, match="limit"):
        await companies.list().collect(limit)

    assert service.log == []


@pytest.mark.parametrize(
    ("option", "value"),
    [("on_invalid", "skip"), ("key", 7), ("checkpoint", 7), ("checkpoint", b"c")],
)
def test_an_option_of_a_wrong_kind_is_refused_by_name(option: str, value: Any) -> None:
    """Not where it is used first, in the middle of a list."""
    with pytest.raises(ConfigurationError, match=option):
        unopened(**{option: value})


# Checkpoints


def test_a_checkpoint_that_holds_no_cursor_of_this_list_is_named(tmp_path: Path) -> None:
    """Among many files the error says which one, and what to do."""
    place = tmp_path / "place.txt"
    place.write_text("garbage")

    with pytest.raises(ConfigurationError, match=r"place\.txt.*damaged.*remove the file"):
        unopened(checkpoint=place)


async def test_a_second_reading_begins_at_the_checkpoint(serve: Serve, tmp_path: Path) -> None:
    """A pager that is iterated again goes on behind what was committed meanwhile."""
    service = Records(items=500, after=lambda _: 0)
    companies = await serve(service)
    pager = companies.list(checkpoint=tmp_path / "cursor")
    async for page in pager.pages():
        await page.commit()
        if page.page_number == 2:
            break

    assert await pager.first() == {"id": 200}


@pytest.mark.parametrize("name", ["cursor", "a" * 250])
async def test_a_save_that_fails_leaves_nothing_behind(
    serve: Serve, tmp_path: Path, name: str
) -> None:
    """Something in its place, or a name too long for a copy: an error, and no copy lies about."""
    page = await (await serve(Records())).list(checkpoint=tmp_path / name)
    if name == "cursor":
        (tmp_path / name).mkdir()

    with pytest.raises(ConfigurationError, match="cannot be written"):
        await page.commit()

    assert {path.name for path in tmp_path.iterdir()} <= {"cursor"}


@pytest.mark.parametrize("method", ["list", "get"])
async def test_a_login_page_is_told_as_what_it_is(method: str) -> None:
    """With status 200 it is no JSON, and its content type says so."""
    html = Answer(body=b"<html>Sign in</html>", headers={"Content-Type": "text/html; charset=x"})

    async with Service(faults=[lambda asked, proceed: html]).client() as client:
        calls: dict[str, Callable[[], Awaitable[Any]]] = {
            "list": client.companies.list().collect,
            "get": client.company("c-0").get,
        }
        with pytest.raises(MalformedResponse, match="it is text/html, such as a login"):
            await calls[method]()
