"""What a list gives: items, pages, bytes, in order, with few requests and no leftovers."""

from __future__ import annotations

import asyncio
import gc
import gzip
import json
import logging
import re
import threading
import time
from asyncio import CancelledError
from contextlib import aclosing
from datetime import UTC, datetime
from itertools import pairwise
from typing import Any

import msgspec
import pyarrow as pa
import pytest

from integration_sdk import Client, Priority
from integration_sdk._http.responses import Response
from integration_sdk._list.page import read_page
from integration_sdk.errors import (
    ApiError,
    ConfigurationError,
    IntegrationError,
    InternalServerError,
    InvalidItem,
    MalformedResponse,
    NotFound,
    PaginationError,
    ResponseTooLarge,
)
from tests.support.loops import RunOnLoop
from tests.support.pager_support import Records, Serve, ids, others, settle, unopened
from tests.support.push_support import Connect
from tests.support.virtual_service import Answer, Asked, Proceed, Service, no_answer, refusal

pytestmark = pytest.mark.virtual_time


class Numbered(msgspec.Struct):
    id: int


def scripted(*pages: dict[str, Any] | bytes) -> tuple[Service, list[str]]:
    """A service that answers with *pages* in turn, and what it is asked."""
    asked = list[str]()

    def answer(request: Asked, _: Proceed) -> Answer:
        page = pages[min(len(asked), len(pages) - 1)]
        asked.append(request.query)
        return Answer(body=page if isinstance(page, bytes) else msgspec.json.encode(page))

    return Service(faults=[answer]), asked


# Reading


@pytest.mark.parametrize("count", [0, 5])
async def test_first_and_one(serve: Serve, count: int) -> None:
    """The first item costs one request; of an empty list first() is None and one() an error."""
    service = Records(items=count)
    companies = await serve(service)

    assert await companies.list().first() == ({"id": 0} if count else None)
    if count:
        assert await companies.list().one() == {"id": 0}
    else:
        with pytest.raises(NotFound, match="empty"):
            await companies.list().one()
    assert service.pages == [1, 1]


@pytest.mark.parametrize("limit", [0, 1, 99, 100, 101, 250, 900])
async def test_a_limit_is_kept_and_saves_requests(serve: Serve, limit: int) -> None:
    """No more items than wanted, and no page that holds none of them."""
    service = Records(items=300)
    companies = await serve(service)

    assert await companies.list(limit=limit).collect() == ids(range(min(limit, 300)))
    assert [n async for n in companies.list(limit=limit)] == await companies.list().collect(limit)
    assert len(service.pages) == 3 * -(-min(limit, 300) // 100)
    assert len(await companies.list(limit=limit)) == min(limit, 100)


async def test_the_report_counts(serve: Serve) -> None:
    """Pages, items, requests, and the total as first and last answered."""
    pager = (await serve(Records(items=400, total=lambda page: 400 + page))).list(prefetch=0)
    async with aclosing(aiter(pager)) as items:
        for _ in range(250):
            await anext(items)
        report = pager.report

    assert (report.pages, report.items, report.requests) == (3, 250, 3)
    assert (report.first_total, report.total) == (401, 403)
    assert "250 items" in repr(pager)


@pytest.mark.parametrize(("total", "warned"), [(250, 0), (260, 1), (-1, 0)])
async def test_a_list_that_ends_early_is_logged(
    serve: Serve, caplog: pytest.LogCaptureFixture, total: int, warned: int
) -> None:
    """Once, if fewer items came than the last total says; a total of -1 says nothing."""
    pager = (await serve(Records(items=250, total=lambda _: total))).list(page_size=300)

    with caplog.at_level(logging.WARNING, "integration_sdk.list"):
        assert len(await pager.collect()) == 250

        assert await pager.collect(3) == ids(range(3))

    assert [r.getMessage() for r in caplog.records] == [
        "GET /companies ended after 250 of 260 items"
    ] * warned


async def test_a_service_that_sends_empty_pages_holds_nobody_up(serve: Serve) -> None:
    """A thousand in a row are followed."""
    service = Records(items=2_000, records=lambda _: None, after=lambda _: 0)
    whole = service.body
    service.body = lambda *page: whole(*page).replace(b"null", b"")  # type: ignore[method-assign]  # shows nothing

    with pytest.raises(PaginationError, match="1001 pages in a row are empty"):
        await (await serve(service)).list(page_size=1, prefetch=8).collect()


# The event loop


def test_a_list_on_every_loop(run_on_loop: RunOnLoop) -> None:
    """Items, pages ahead, an error, a break and a cursor, on asyncio, uvloop and eager tasks."""

    async def journey() -> None:
        service = Records(items=950, after=lambda page: 0.001 * (page % 3), troubles={4: [503]})
        async with service.client() as client:
            pager = client.companies.list(prefetch=4)
            read = []
            async for item in pager:
                read.append(item)
                if len(read) == 333:
                    break
            rest = await client.companies.list(cursor=pager.cursor).collect()
            assert read + rest == ids(range(950))
            assert len([page async for page in client.companies.list().pages()]) == 10
            service.troubles = {2: [400]}
            with pytest.raises(ApiError):
                await client.companies.list().collect()
            raws = [json.loads(raw) async for raw in client.companies.list().raw()]
            assert raws == ids(range(950))
            await settle()
            assert not others()

    run_on_loop(journey())


def test_the_event_loop_runs_while_a_page_is_read(run_on_loop: RunOnLoop) -> None:
    """A page of 5,000 items holds up other tasks for 64 of them at a time."""

    async def journey() -> None:
        decoded, turns = 0, [0]

        async def other_work() -> None:
            while True:
                turns.append(decoded)
                await asyncio.sleep(0)

        async with Records(items=5_000).client() as client:
            task = asyncio.create_task(other_work())
            async for _ in client.companies.list(page_size=5_000):
                decoded += 1
            task.cancel()
        assert max(later - earlier for earlier, later in pairwise([*turns, decoded])) <= 65
        assert decoded == 5_000

    run_on_loop(journey())


@pytest.mark.parametrize(
    "before", [b"", b'"note":"[{\\"results\\":[","_links":{"results":[{"id":1},{"id":2}]},']
)
def test_the_event_loop_runs_while_a_page_is_split(before: bytes) -> None:
    """A body of many small items is split in pieces; nothing of it is lost, nested or not."""
    raws = [
        *(b'{"id":%d}' % n for n in range(300_000)),
        *(b'{"id":%d,"lines":[{"a":1},{"a":"},{"}]}' % n for n in range(50_000)),
    ]
    body = b'{%b"pageNumber":1,"results": [%b],"totalResults":7}' % (before, b", ".join(raws))
    pieces = read_page(Response(status=200, body=body))
    turns = 0
    try:
        while True:
            next(pieces)
            turns += 1
    except StopIteration as end:
        page = end.value

    assert turns >= len(body) >> 20
    assert [bytes(raw) for raw in page.raws] == raws


def test_a_date_without_a_zone_is_utc(monkeypatch: pytest.MonkeyPatch) -> None:
    """As local time it could put a watermark hours ahead, behind which changes are never read."""
    date = "Sat, 31 Jan 2026 09:00:00 -0000"
    answer = Response(status=200, headers={"Date": date}, body=b'{"results":[]}')
    with monkeypatch.context() as patch:
        patch.setenv("TZ", "America/New_York")
        time.tzset()
        with pytest.raises(StopIteration) as end:
            next(read_page(answer))
    time.tzset()

    assert end.value.value.answered_at == datetime(2026, 1, 31, 9, tzinfo=UTC)


# Requesting ahead


@pytest.mark.parametrize(("prefetch", "most"), [(0, 1), (1, 2), (4, 5), (16, 17)])
async def test_no_more_pages_are_on_their_way_than_wanted(
    serve: Serve, prefetch: int, most: int
) -> None:
    """Beside the page that is waited for, *prefetch* at most; of large pages, what fits."""
    service = Records(items=4000)
    await (await serve(service)).list(prefetch=prefetch).collect()
    assert service.most_in_flight == most

    large = Records(items=2000, records=lambda index: {"id": index, "note": "x" * 1000})
    await (await serve(large)).list(prefetch=prefetch, max_bytes=350_000).collect()
    assert large.most_in_flight == min(most, 2)  # beside the one of 100 KB that is held


async def test_pages_ahead_wait_behind_everything_else(connect: Connect) -> None:
    """The first page goes at the caller's priority, those ahead at the lowest, whatever that is."""
    service = Records(items=500)
    whole = service.body
    service.body = lambda *page: whole(*page).replace(b"/companies?", b"?")  # type: ignore[method-assign]  # of any list
    client = await connect(service, per_company=1)
    urgent = client.with_options(priority=Priority.INTERACTIVE)
    items = aiter(urgent.company("a").data("invoices").list(prefetch=4))
    await anext(items)
    await asyncio.sleep(0.005)  # page 2 is on its way, and three more are in line

    await client.company("a").get()
    await items.aclose()

    assert [asked.params.get("page") for asked in service.log[:3]] == ["1", "2", None]


async def test_pages_that_a_link_passes_over_are_cancelled(serve: Serve) -> None:
    """The link wins over arithmetic, and what was asked for in vain is called back."""

    class PassingOver(Records):
        def body(self, number: int, size: int) -> bytes:
            return super().body(number, size).replace(b"page=3&", b"page=9&")

    service = PassingOver(items=2000, after=lambda page: 0.01 if page in {1, 2, 9, 10} else 50.0)
    items = aiter((await serve(service)).list(prefetch=4))

    read = [await anext(items) for _ in range(201)]
    await settle()

    assert read[-1] == {"id": 800}
    assert service.in_flight <= 5
    await items.aclose()


# Errors


@pytest.mark.parametrize("way", ["__aiter__", "pages", "raw", "arrow"])
async def test_reading_goes_on_after_an_error(serve: Serve, way: str) -> None:
    """The error carries a cursor, with which another iterator goes on; the same one is over.

    It is behind what was handed out, not behind rows of a batch that is not full yet.
    """
    service = Records(items=500, troubles={3: [500]})
    companies = await serve(service)
    pager = companies.list(prefetch=0)
    reading: Any = getattr(pager, way)(*([130] if way == "arrow" else []))
    read: list[Any] = []

    with pytest.raises(InternalServerError) as caught:
        async for handed in reading:
            if way == "arrow":
                read += handed.cast(pa.schema({"id": pa.int64()})).to_pylist()
            elif way == "pages":
                read += handed.results
            else:
                read.append(json.loads(handed) if way == "raw" else handed)

    assert [item async for item in reading] == []
    assert caught.value.cursor == pager.cursor
    assert len(read) == pager.report.items == (130 if way == "arrow" else 200)
    assert read + await companies.list(cursor=pager.cursor).collect() == ids(range(500))


async def test_a_collection_that_fails_begins_again(serve: Serve) -> None:
    """None of its items was received, so the cursor is where it began."""
    companies = await serve(Records(items=500, troubles={4: [500]}))
    start = companies.list()
    assert await start.collect(150) == ids(range(150))
    pager = companies.list(cursor=start.cursor)

    with pytest.raises(InternalServerError) as caught:
        await pager.collect()

    assert (caught.value.cursor, pager.report.items) == (pager.cursor, 0)
    assert await companies.list(cursor=pager.cursor).collect() == ids(range(150, 500))


@pytest.mark.parametrize("prefetch", [0, 4])
@pytest.mark.parametrize("trouble", [400, 404, 429, 500, 503, 504, None])
async def test_a_page_has_the_attempts_of_any_call(
    connect: Connect, prefetch: int, trouble: int | None
) -> None:
    """What the retry policy says, requested ahead or not, whatever the answer."""
    service = Records(items=500)
    client = await connect(service)
    failed = no_answer() if trouble is None else refusal(trouble)
    service.troubles = {3: [failed] * 99}

    with pytest.raises(IntegrationError):
        await client.companies.list(prefetch=prefetch).collect()

    assert service.pages.count(3) == (1 if trouble in {400, 404} else 3)


async def test_a_page_that_is_too_large_comes_in_smaller_pages(serve: Serve) -> None:
    """From where the list stood, within a page, too; a single record too large is an error."""
    large = gzip.compress(bytes(65 * 2**20), 1)
    too_large = Answer(body=large, headers={"Content-Encoding": "gzip"})
    service = Records(items=1000)
    companies = await serve(service)
    whole = service.body
    pager = companies.list(page_size=200, limit=130)
    before = await pager.collect()
    service.carry_out = lambda asked: (  # type: ignore[method-assign]  # no page has more than 60
        too_large
        if int(asked.params["pageSize"]) > 60
        else Answer(body=whole(int(asked.params["page"]), int(asked.params["pageSize"])))
    )

    assert before + await companies.list(cursor=pager.cursor).collect() == ids(range(1000))
    assert await companies.list(page_size=200).collect() == ids(range(1000))
    assert {int(asked.params["pageSize"]) for asked in service.log} == {200, 100, 50}
    service.carry_out = lambda asked: too_large  # type: ignore[method-assign]  # a fake of ours
    with pytest.raises(ResponseTooLarge):
        await companies.list(page_size=2).collect()


@pytest.mark.parametrize(
    "query",
    [
        *("after=%FF%FE", "after=a+b==", "after=a%2Bb", "flag&x=", "a;b", "after=%u0041"),
        *("page=2&t=%FF", f"page={'9' * 5000}"),
    ],
)
async def test_a_link_is_sent_as_it_came(query: str) -> None:
    """A token may be any bytes; it comes back unchanged, from a cursor too."""
    first, second = (
        {"results": [{"id": 1}], "_links": {"next": {"href": f"/companies?{text}"}}}
        for text in (query, "after=%FE%FE")
    )
    service, asked = scripted(first, {"results": [{"id": 2}]}, second, {"results": []})
    async with service.client() as client:
        pager = client.companies.list(prefetch=0)
        items = aiter(pager)
        await anext(items)
        await client.companies.list(cursor=pager.cursor).first()
        assert [item async for item in items] == [{"id": 1}]

    sent = f"{query}&pageSize=100" if query.startswith("page=9") else query
    assert asked[1:] == [sent, sent, "after=%FE%FE"]


@pytest.mark.parametrize(
    ("body", "what"),
    [
        (b"<html>Sign in</html>", "answered 200 for page 2, but the answer is not a valid page"),
        (b'{"results":7}', "Expected `array`"),
        (b'{"items":[]}', "missing required field `results`"),
        (b"[" * 5000, "not a valid page"),
    ],
)
async def test_an_answer_that_is_no_page_names_the_request(body: bytes, what: str) -> None:
    """A proxy's page is an error with path, status and number, and never an empty list."""
    linked = {"next": {"href": "/companies?page=2&pageSize=100"}}
    service, _ = scripted({"results": [], "_links": linked}, body)
    async with service.client() as client:
        with pytest.raises(MalformedResponse, match=re.escape(what)) as caught:
            await client.companies.list().collect()

    assert (caught.value.path, caught.value.status) == ("/companies", 200)


# Items that are odd


@pytest.mark.parametrize("way", ["items", "pages", "collect"])
async def test_an_item_that_does_not_fit_costs_itself_alone(serve: Serve, way: str) -> None:
    """With ``on_invalid`` the others come; without, an error whose cursor is behind it."""
    service = Records(items=300, records=lambda index: {"id": "?" if index == 150 else index})
    companies = await serve(service)
    good = [Numbered(index) for index in range(300) if index != 150]
    errors: list[InvalidItem] = []
    pager = companies.list(model=Numbered, on_invalid=errors.append)
    if way == "pages":
        seen = [item async for page in pager.pages() for item in page]
    else:
        seen = await pager.collect() if way == "collect" else [item async for item in pager]

    assert seen == good
    assert [(error.index, error.page, error.raw) for error in errors] == [(50, 2, b'{"id":"?"}')]
    assert (pager.report.items, pager.report.invalid) == (299, 1)

    pager, seen = companies.list(model=Numbered), []
    with pytest.raises(InvalidItem, match=r"page 2, item 50: Expected `int`, got `str` at \$.id"):
        async for item in pager:
            seen.append(item)
    assert [*seen, *await companies.list(model=Numbered, cursor=pager.cursor).collect()] == good


class Named(msgspec.Struct):
    a: str


@pytest.mark.parametrize("model", [None, Named])
@pytest.mark.parametrize("broken", [rb"cut \ud83d", b"cut \xff"])
async def test_what_is_no_text_is_replaced(broken: bytes, model: Any) -> None:
    """Half an emoji, or invalid UTF-8: the item comes with U+FFFD, its bytes come as they were."""
    body = (
        rb'{"results":[{"a":"\ud83d\ude00"},{"a":"\\ud83d"},{"a":"' + broken + rb'"},{"a":"\n"}],'
        rb'"totalResults":4,"pageNumber":1}'
    )
    service, _ = scripted(body)
    async with service.client() as client:
        items: list[Any] = await client.companies.list(model=model).collect()
        raws = [raw async for raw in client.companies.list().raw()]

    texts = [item["a"] if isinstance(item, dict) else item.a for item in items]
    assert texts == ["\N{GRINNING FACE}", "\\ud83d", "cut \N{REPLACEMENT CHARACTER}", "\n"]
    assert raws[2] == b'{"a":"' + broken + b'"}'


# Cursors


@pytest.mark.parametrize(
    ("cursor", "what"),
    [
        *(("", "damaged"), ("2", "damaged"), ("2.", "damaged"), ("x.y", "damaged")),
        *(("2.####", "damaged"), ("2.AAAA", "damaged"), (7, "str"), (b"2.abc", "str")),
        *(("1.abcdef", "version 1"), ("3.abcdef", "version 3"), ("\uff12.abc", "version")),
    ],
)
def test_what_is_no_cursor_is_refused(cursor: Any, what: str) -> None:
    """Before anything is sent; one of another version is told apart from damage."""
    with pytest.raises(ConfigurationError, match=what):
        unopened(cursor=cursor)


def test_a_damaged_cursor_is_refused() -> None:
    """No single changed, missing or additional character reads as some other place."""
    cursor = unopened(page_size=77, query="status=Paid").cursor
    for place in range(len(cursor)):
        for other in (chr(ord(cursor[place]) ^ 1), "", cursor[place] + "A"):
            damaged = cursor[:place] + other + cursor[place + 1 :]
            if damaged != cursor:
                with pytest.raises(ConfigurationError):
                    unopened(page_size=77, query="status=Paid", cursor=damaged)
    assert unopened(query="status=Paid", cursor=cursor).cursor == cursor
    assert len(cursor) < 100


@pytest.mark.parametrize(
    "other", [{"query": "status=void"}, {"order_by": "id"}, {"changed_since": "2024-01-01"}]
)
def test_a_cursor_of_another_list_is_refused(other: dict[str, str]) -> None:
    """Path, filter and order belong to the cursor; page size does not."""
    cursor = unopened().cursor

    with pytest.raises(ConfigurationError, match="another list"):
        unopened(cursor=cursor, **other)
    with pytest.raises(ConfigurationError, match="another list"):
        Client("key", "http://localhost").company("a").data("bills").list(cursor=cursor)
    assert unopened(cursor=cursor, page_size=7).cursor != cursor, "the same place in other pages"


async def test_a_list_that_was_read_to_its_end_goes_on_with_what_was_added(serve: Serve) -> None:
    """The cursor of a finished reading finds later records, and nothing twice."""
    service = Records(items=250)
    companies = await serve(service)
    pager = companies.list()
    await pager.collect()
    service.items = 420

    assert await companies.list(cursor=pager.cursor).collect() == ids(range(250, 420))


# Leaving


@pytest.mark.parametrize("by", ["cancellation", "another thread"])
async def test_a_reading_that_ends_leaves_no_task(serve: Serve, by: str) -> None:
    """Whatever ends it ends its requests; the cursor is still known."""
    asyncio.get_running_loop().set_debug(True)
    service = Records(after=lambda page: 0.01 if page < 3 else 100.0)
    companies = await serve(service)
    pager = companies.list()
    kept = [aiter(pager)]
    for _ in range(200):
        await anext(kept[0])
    assert others()

    if by == "cancellation":
        reader = asyncio.ensure_future(anext(kept[0]))
        await asyncio.sleep(1)
        reader.cancel()
        assert isinstance(*await asyncio.gather(reader, return_exceptions=True), CancelledError)
    else:
        thread = threading.Thread(target=kept.clear)
        thread.start()
        thread.join()
    await settle()

    assert not others()
    service.after = lambda _: 0.01
    assert await companies.list(cursor=pager.cursor).collect() == ids(range(200, 1000))


@pytest.mark.parametrize("how", ["__aiter__", "pages", "raw", "arrow"])
async def test_a_reading_in_a_cycle_ends_in_silence(serve: Serve, how: str) -> None:
    """A web server drops a request with its traceback, and all in it is finalized at once."""
    said: list[Any] = []
    asyncio.get_running_loop().set_exception_handler(lambda _, context: said.append(context))
    companies = await serve(Records(after=lambda page: 0.01 if page < 3 else 100.0))
    options = {"rows": 10} if how == "arrow" else {}
    knot: list[Any] = [getattr(companies.list(), how)(**options)]
    await anext(knot[0])
    knot.append(knot)
    assert others()

    del knot
    gc.collect()
    await settle()

    assert (others(), said) == (set(), [])
