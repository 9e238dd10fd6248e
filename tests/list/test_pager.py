"""What a list gives: items, pages, chunks, in order, with few requests and no leftovers."""

from __future__ import annotations

import asyncio
import gc
import gzip
import inspect
import re
import threading
import warnings
from contextlib import aclosing
from itertools import pairwise
from random import Random
from typing import Any

import pytest

from integration_sdk.errors import (
    AnswerLost,
    ApiError,
    ConfigurationError,
    DriftWarning,
    IntegrationError,
    InternalServerError,
    MalformedResponse,
    NotFound,
    PaginationError,
    ResultSetChanged,
    UnsafeLink,
)
from tests.support.pager_support import Records, Serve, by_hand, ids, others, settle
from tests.support.push_support import Connect
from tests.support.virtual_service import Answer, no_answer

pytestmark = pytest.mark.virtual_time


# Reading


async def test_items_come_in_list_order_whatever_lands_first(serve: Serve) -> None:
    """Pages that land in a shuffled order are handed out in the list's."""
    chance = Random(7)
    service = Records(items=1034, after=lambda _: chance.uniform(0.01, 1))
    companies = await serve(service)

    assert [item async for item in companies.list(prefetch=8)] == ids(range(1034))
    assert sorted(service.pages) == list(range(1, 12)), "no page is asked for twice"


async def test_nothing_is_asked_for_before_it_is_read(serve: Serve) -> None:
    """Making a pager, and asking where it is, costs no request."""
    service = Records()
    companies = await serve(service)
    pager = companies.list()

    assert pager.cursor
    assert (pager.progress.done, pager.report.requests) == (0, 0)
    assert service.log == []


async def test_awaiting_a_list_gives_its_first_page(serve: Serve) -> None:
    """One request, one page, with what the service said of it."""
    service = Records(items=250)
    companies = await serve(service)

    page = await companies.list()

    assert list(page.results) == ids(range(100))
    assert (page.page_number, page.page_size, page.total_results) == (1, 100, 250)
    assert page.links.next == "/companies?page=2&pageSize=100"
    assert service.pages == [1]


@pytest.mark.parametrize(("count", "first"), [(0, None), (5, {"id": 0})])
async def test_first_is_the_first_item_or_none(serve: Serve, count: int, first: Any) -> None:
    """The first item costs one request; an empty list has none."""
    service = Records(items=count)
    companies = await serve(service)

    assert await companies.list().first() == first
    assert service.pages == [1]


async def test_pages_are_shown_one_by_one_with_a_cursor_each(serve: Serve) -> None:
    """Each page's cursor names the place behind it."""
    service = Records(items=250)
    companies = await serve(service)

    pages = [page async for page in companies.list().pages()]

    assert [page.page_number for page in pages] == [1, 2, 3]
    for position, page in enumerate(pages, 1):
        rest = await companies.list(cursor=page.cursor).collect()
        assert rest == ids(range(min(position * 100, 250), 250))


async def test_a_page_keeps_fields_that_the_document_does_not_name(serve: Serve) -> None:
    """Unknown members of the envelope are in ``extra``."""
    service = Records(items=1)
    companies = await serve(service)
    body = service.body(1, 100)
    service.body = lambda *_: b'{"warnings":["slow"],' + body[1:]  # type: ignore[method-assign]  # adds a field

    page = await companies.list()

    assert page.extra == {"warnings": ["slow"]}


async def test_chunks_are_full_but_for_the_last(serve: Serve) -> None:
    """Chunks cross pages, and the cursor stands behind the chunk handed out last."""
    service = Records(items=250)
    companies = await serve(service)
    pager = companies.list()

    sizes = []
    async for chunk in pager.chunks(80):
        sizes.append(len(chunk))
        assert pager.progress.done == sum(sizes)
        if len(sizes) == 2:
            cursor = pager.cursor

    assert sizes == [80, 80, 80, 10]
    assert await companies.list(cursor=cursor).collect() == ids(range(160, 250))


@pytest.mark.parametrize("limit", [0, 1, 99, 100, 101, 250, 900])
async def test_a_limit_is_kept_and_saves_requests(serve: Serve, limit: int) -> None:
    """No more items than wanted, and no page that holds none of them."""
    service = Records(items=300)
    companies = await serve(service)

    assert await companies.list(limit=limit).collect() == ids(range(min(limit, 300)))
    assert len(service.pages) == -(-min(limit, 300) // 100)


async def test_each_reading_starts_afresh(serve: Serve) -> None:
    """A second ``async for`` over one pager reads the list again."""
    pager = (await serve(Records(items=150))).list()

    assert [item async for item in pager] == [item async for item in pager] == ids(range(150))


async def test_the_report_counts_and_progress_foresees() -> None:
    """Pages, items and requests are counted; rate and end are told from the clock."""
    service = Records(items=400, after=lambda _: 1.0)
    pager = by_hand(service, prefetch=0, clock=asyncio.get_running_loop().time)

    async with aclosing(aiter(pager)) as items:
        for _ in range(250):
            await anext(items)
        progress, report = pager.progress, pager.report

    assert (progress.done, progress.total) == (250, 400)
    assert progress.rate == pytest.approx(250 / 3)
    assert progress.eta == pytest.approx(150 * 3 / 250)
    assert (report.pages, report.items, report.requests) == (3, 250, 3)


@pytest.mark.parametrize("pages", [5_000, pytest.param(100_000, marks=pytest.mark.long)])
async def test_thousands_of_empty_pages_are_read_through(pages: int) -> None:
    """Empty pages end nothing and cost no stack; what comes behind them is found."""
    service = Records(items=pages + 1, after=lambda _: 0)
    service.body = _mostly_empty(service)  # type: ignore[method-assign]

    pager = by_hand(service, page_size=1, prefetch=8, clock=asyncio.get_running_loop().time)
    assert await pager.collect() == ids(range(pages, pages + 1))


async def test_empty_pages_are_not_followed_for_more_than_a_minute() -> None:
    """A service that sends nothing else holds nobody up for ever; a slow one has 1,000 pages."""
    for latency, followed in ((0.01, 6_000), (1.0, 1_001)):
        service = Records(items=7_001, after=dict.fromkeys(range(7_002), latency).__getitem__)
        service.body = _mostly_empty(service)  # type: ignore[method-assign]
        pager = by_hand(service, page_size=1, prefetch=0, clock=asyncio.get_running_loop().time)

        with pytest.raises(PaginationError, match="pages in a row are empty"):
            await pager.collect()

        assert pager.report.pages == pytest.approx(followed, rel=0.01)


def _mostly_empty(service: Records) -> Any:
    whole = type(service).body

    def body(number: int, size: int) -> bytes:
        page = whole(service, number, size)
        return page if number >= service.items else page.replace(b'{"id":%d}' % (number - 1), b"")

    return body


async def test_the_event_loop_gets_turns_while_a_large_page_is_read() -> None:
    """A page of 5,000 does not keep other tasks waiting until it is handed out."""
    now = 0.0
    turns: list[float] = []

    def slow(raw: bytes) -> bytes:
        nonlocal now
        now += 0.00001
        return raw

    async def other_work() -> None:
        while True:
            turns.append(now)
            await asyncio.sleep(0)

    task = asyncio.create_task(other_work())
    service = Records(items=5000, after=lambda _: 0)
    await by_hand(service, page_size=5000, decode=slow, clock=lambda: now).collect()
    task.cancel()
    turns.append(now)

    assert max(later - earlier for earlier, later in pairwise(turns)) < 0.002


# Fetching ahead


async def test_the_next_request_leaves_before_the_page_that_came_is_decoded() -> None:
    """Otherwise each round of pages would begin as late as that page takes."""
    now = 0.0

    def slow(raw: bytes) -> bytes:
        nonlocal now
        now += 0.001
        return raw

    service = Records(items=500, after=lambda _: 0)
    items = aiter(by_hand(service, page_size=10, decode=slow, prefetch=1, clock=lambda: now))
    for _ in range(10):
        await anext(items)
    await settle()  # page 2 arrives
    await anext(items)

    assert service.pages == [1, 2, 3]
    await items.aclose()


async def test_pages_ahead_wait_behind_everything_else(connect: Connect) -> None:
    """The first page goes at the caller's priority, those ahead at the lowest."""
    service = Records(items=500)
    whole = service.body
    service.body = lambda *page: whole(*page).replace(b"/companies?", b"?")  # type: ignore[method-assign]  # of any list
    client = await connect(service, per_company=1)
    items = aiter(client.company("a").data("invoices").list(prefetch=4))
    await anext(items)
    await asyncio.sleep(0.005)  # page 2 is on its way, and three more are in line

    await client.company("a").get()
    await items.aclose()

    assert [asked.params.get("page") for asked in service.log[:3]] == ["1", "2", None]


@pytest.mark.parametrize("prefetch", [0, 1, 4, 16])
async def test_no_more_pages_are_on_their_way_than_wanted(serve: Serve, prefetch: int) -> None:
    """Beside the page that is waited for, *prefetch* at most."""
    service = Records(items=4000)
    companies = await serve(service)

    await companies.list(prefetch=prefetch).collect()

    assert service.most_in_flight == prefetch + 1


async def test_waiting_is_shared_by_pages_ahead(serve: Serve) -> None:
    """40 pages of 50 ms take the time of 6 with 8 ahead, not of 40."""
    service = Records(items=4000, after=lambda _: 0.05)
    companies = await serve(service)
    began = asyncio.get_running_loop().time()

    await companies.list(prefetch=8).collect()

    assert asyncio.get_running_loop().time() - began == pytest.approx(0.05 * 6)


async def test_pages_held_are_bounded_by_their_bytes(serve: Serve) -> None:
    """Large pages are fetched less far ahead."""
    service = Records(items=4000, records=lambda index: {"id": index, "note": "x" * 1000})
    companies = await serve(service)

    await companies.list(prefetch=16, max_bytes=350_000).collect()

    assert service.most_in_flight == 2, "beside the one of 100 KB that is held"


async def test_pages_that_a_link_passes_over_are_cancelled(serve: Serve) -> None:
    """The link wins over arithmetic, and what was asked for in vain is called back."""
    service = Records(items=2000, after=lambda page: 0.01 if page in {1, 2, 9, 10} else 50.0)
    companies = await serve(service)
    whole = service.body
    service.body = lambda number, size: (  # type: ignore[method-assign]  # a server of its own mind
        whole(number, size).replace(b"page=3&", b"page=9&") if number == 2 else whole(number, size)
    )
    items = aiter(companies.list(prefetch=4))

    read = [await anext(items) for _ in range(201)]
    await settle()

    assert read[-1] == {"id": 800}
    assert service.in_flight <= 5
    await items.aclose()


# Errors


async def test_a_page_that_failed_ahead_of_its_turn_is_asked_for_again(serve: Serve) -> None:
    """An error of a page nobody waited for is nobody's error; its turn comes at our priority."""
    service = Records(items=500)
    companies = await serve(service)
    service.troubles = {4: [no_answer()]}

    assert await companies.list(prefetch=3).collect() == ids(range(500))
    assert service.pages.count(4) == 2


async def test_reading_goes_on_after_an_error(serve: Serve) -> None:
    """The error carries a cursor, with which another iterator goes on; the same one is over."""
    service = Records(items=500)
    companies = await serve(service)
    service.troubles = {3: [500]}
    items = aiter(companies.list(prefetch=0))
    read = [await anext(items) for _ in range(200)]

    with pytest.raises(InternalServerError) as caught:
        await anext(items)

    assert [item async for item in items] == []
    assert caught.value.cursor is not None
    rest = await companies.list(cursor=caught.value.cursor).collect()
    assert [*read, *rest] == ids(range(500))


@pytest.mark.parametrize("trouble", [504, 502, no_answer(), "too large"])
@pytest.mark.parametrize("on_drift", ["report", "repair"])
async def test_a_page_that_is_too_much_says_how_to_go_on(
    serve: Serve, trouble: Any, on_drift: Any
) -> None:
    """In smaller pages, from where it stopped, within the page that it was, too."""
    service = Records(items=1000)
    companies = await serve(service)
    pager = companies.list(page_size=400, limit=450, on_drift=on_drift)
    before = await pager.collect()
    if trouble == "too large":
        body = gzip.compress(bytes(65 * 2**20), 1)
        trouble = Answer(body=body, headers={"Content-Encoding": "gzip"})
    service.troubles = {page: [trouble] for page in range(1, 9)}
    pager = companies.list(page_size=400, cursor=pager.cursor, prefetch=0, on_drift=on_drift)

    with pytest.raises(IntegrationError, match=r"page_size=\d+\) goes on in") as caught:
        await pager.collect()
    service.troubles = {}
    service.log.clear()
    cursor = caught.value.cursor
    rest = await companies.list(page_size=100, cursor=cursor, on_drift=on_drift).collect()

    assert [*before, *rest] == ids(range(1000))
    assert on_drift == "repair" or service.log[0].query == "page=5&pageSize=100"


@pytest.mark.parametrize("trouble", [504, no_answer()])
@pytest.mark.parametrize("ask", [lambda pager: pager, lambda pager: pager.first()])
async def test_one_page_is_one_call(serve: Serve, ask: Any, trouble: Any) -> None:
    """Who asks for one page waits for one time-out."""
    service = Records()
    companies = await serve(service)
    service.troubles = {1: [trouble] * 3}

    with pytest.raises((ApiError, AnswerLost)):
        await ask(companies.list(page_size=400))

    assert [asked.params["pageSize"] for asked in service.log] == ["400"]


async def test_a_list_without_the_page_it_promised_has_ended(serve: Serve) -> None:
    """``totalResults`` says more, no link does, and the next number is not found: the end."""
    service = Records(items=200, total=lambda _: 300)
    companies = await serve(service)
    service.troubles = {3: [404]}
    pager = companies.list()

    assert await pager.collect() == ids(range(200))
    assert [drift.kind for drift in pager.report.drift] == ["count"]


async def test_a_cursor_before_the_end_of_such_a_list_finds_its_end(serve: Serve) -> None:
    """Taken behind the last item, it does not name the page that nobody linked to."""
    service = Records(items=200, total=lambda _: 300)
    companies = await serve(service)
    service.troubles = {3: [404] * 9}
    pager = companies.list(prefetch=0)
    async for item in pager:
        if item["id"] == 199:
            break

    assert await companies.list(cursor=pager.cursor).collect() == []


async def test_a_list_that_is_not_there_is_an_error(serve: Serve) -> None:
    """404 for the first page is the caller's to know."""
    service = Records(troubles={1: [404]})
    companies = await serve(service)

    with pytest.raises(NotFound):
        await companies.list().collect()


@pytest.mark.parametrize("href", ["https://elsewhere.test/companies?page=2", "/profile?page=2"])
async def test_a_link_that_leads_away_is_not_followed(serve: Serve, href: str) -> None:
    """The page's items come, then an error that names the link; nothing was sent for it."""
    service = linked_to(href)
    companies = await serve(service)
    items = aiter(companies.list())
    read = [await anext(items) for _ in range(100)]

    with pytest.raises(UnsafeLink, match="nothing was sent there") as caught:
        await anext(items)

    assert read == ids(range(100))
    assert (caught.value.page, set(service.pages)) == (1, {1})


async def test_a_list_in_a_circle_is_an_error_that_says_where(serve: Serve) -> None:
    """A link back is followed neither silently nor for ever."""
    service = linked_to("/companies?page=1&pageSize=100")
    companies = await serve(service)

    with pytest.raises(PaginationError, match="page 1 leads back") as caught:
        await companies.list().collect()

    assert caught.value.page == 1
    assert caught.value.cursor is not None


def linked_to(href: str) -> Records:
    """A service whose every page links to *href*."""
    service = Records(items=300)
    whole = service.body
    service.body = lambda number, size: re.sub(  # type: ignore[method-assign]  # a server of its own mind
        rb'"next":{"href":"[^"]*"', b'"next":{"href":"%s"' % href.encode(), whole(number, size)
    )
    return service


async def test_an_answer_that_is_no_page_names_the_request(serve: Serve) -> None:
    """A proxy's page is an error with path and status, and never an empty list."""
    service = Records()
    companies = await serve(service)
    service.body = lambda *_: b"<html>"  # type: ignore[method-assign]  # a proxy's

    with pytest.raises(MalformedResponse, match="GET /companies answered 200") as caught:
        await companies.list().collect()

    assert caught.value.path == "/companies"


async def test_a_repaired_list_says_that_it_changed(serve: Serve) -> None:
    """Nothing is amiss in what was read, but who reconciles wants to know of it."""
    service = Records(items=300)
    companies = await serve(service)
    pager = companies.list(on_drift="repair", prefetch=0)
    async for page in pager.pages():
        service.items = 310 if page.page_number == 1 else service.items

    assert [drift.kind for drift in pager.report.drift] == ["total"]
    assert "from 300 to 310" in str(pager.report.drift[0])


async def test_two_consumers_of_one_iteration_are_told_apart(serve: Serve) -> None:
    """The second to wait gets an error; the first goes on."""
    items = aiter((await serve(Records(items=3))).list())
    first = asyncio.create_task(anext(items))
    await asyncio.sleep(0)

    with pytest.raises(RuntimeError, match="already running"):
        await anext(items)

    assert await first == {"id": 0}


# Leaving


async def test_a_break_leaves_no_task_and_few_pages_too_many(serve: Serve) -> None:
    """Breaking out cancels what was fetched ahead: at most *prefetch* pages."""
    service = Records(items=10_000)
    companies = await serve(service)

    async for item in companies.list(prefetch=4):
        if item["id"] == 150:
            break
    await settle()

    assert not others()
    assert max(service.pages) <= 2 + 4


async def test_an_error_in_the_body_leaves_no_task(serve: Serve) -> None:
    """An exception of the caller's own ends the reading."""
    pager = (await serve(Records())).list()

    async def read() -> None:
        async for item in pager:
            raise LookupError(item)

    with pytest.raises(LookupError):
        await read()
    await settle()

    assert not others()


async def test_a_cancelled_reader_leaves_no_task(serve: Serve) -> None:
    """Cancelling the task that reads cancels its pages, though the iterator is kept."""
    service = Records(after=lambda page: 0.01 if page < 3 else 100.0)
    companies = await serve(service)
    pager = companies.list()
    items = aiter(pager)
    for _ in range(200):
        await anext(items)
    reader = asyncio.create_task(anext(items))
    await asyncio.sleep(1)

    reader.cancel()
    outcome = await asyncio.gather(reader, return_exceptions=True)
    await settle()

    assert isinstance(outcome[0], asyncio.CancelledError)
    assert not others()
    service.after = lambda _: 0.01
    assert await companies.list(cursor=pager.cursor).collect() == ids(range(200, 1000))


async def test_a_forgotten_iterator_leaves_no_task(serve: Serve) -> None:
    """The garbage collector ends a reading as a break does, though the pager lives on."""
    pager = (await serve(Records())).list()
    items = aiter(pager)
    await anext(items)
    assert others()

    del items
    gc.collect()
    await settle()

    assert not others()
    assert pager.progress.done == 1


async def test_a_closed_iterator_has_ended(serve: Serve) -> None:
    """After ``aclose()`` there is no next item, and the cursor is still known."""
    service = Records()
    companies = await serve(service)
    pager = companies.list()
    items = aiter(pager)
    await anext(items)

    await items.aclose()
    await settle()

    assert not others()
    with pytest.raises(StopAsyncIteration):
        await anext(items)
    assert (await companies.list(cursor=pager.cursor).first()) == {"id": 1}


async def test_an_iterator_may_be_dropped_by_another_thread(serve: Serve) -> None:
    """Its tasks are cancelled on their own loop, which must not be touched from elsewhere."""
    asyncio.get_running_loop().set_debug(True)
    items = aiter((await serve(Records(after=lambda page: 0.01 if page == 1 else 1.0))).list())
    await anext(items)
    box = [items]
    del items

    thread = threading.Thread(target=box.clear)
    thread.start()
    thread.join()
    await settle()

    assert not others()


# Drift


async def test_a_changing_total_is_reported(serve: Serve) -> None:
    """``totalResults`` that moves while the list is read is in the report."""
    pager = (await serve(Records(items=300, total=lambda page: 301 if page == 2 else 300))).list()

    assert len(await pager.collect()) == 300
    assert [drift.kind for drift in pager.report.drift] == ["total", "total"]


async def test_items_that_come_twice_are_counted(serve: Serve) -> None:
    """An insert that pushes items onto the next page shows as duplicates."""
    service = Records(items=250, total=lambda page: 250 if page == 1 else 253)
    companies = await serve(service)
    service.records = lambda index: {"id": index if index < 100 else index - 3}
    pager = companies.list()

    await pager.collect()

    assert pager.report.duplicates == 3
    assert "duplicate" in {drift.kind for drift in pager.report.drift}


async def test_drift_can_be_an_error(serve: Serve) -> None:
    """``on_drift="raise"`` stops at the page where it shows; its cursor goes on with that page."""
    service = Records(items=300, total=lambda page: 299 + page)
    companies = await serve(service)
    items = aiter(companies.list(on_drift="raise"))
    read = [await anext(items) for _ in range(100)]

    with pytest.raises(ResultSetChanged, match="totalResults went from 300 to 301") as caught:
        await anext(items)

    assert [*read, *await companies.list(cursor=caught.value.cursor).collect()] == ids(range(300))


async def test_drift_can_be_a_warning(serve: Serve) -> None:
    """``on_drift="warn"`` says it and goes on; the warning shows the line that reads on."""
    pager = (await serve(Records(items=200, total=lambda page: 202 - page))).list(on_drift="warn")

    async def items() -> None:
        async for _ in pager:
            pass

    async def pages() -> None:
        async for _ in pager.pages():
            pass

    for read in (items, pages):
        with pytest.warns(DriftWarning, match="totalResults went from 201 to 200") as caught:
            await read()
        assert {warning.filename for warning in caught} == {__file__}
        assert caught[0].lineno == read.__code__.co_firstlineno + 1
    with pytest.warns(DriftWarning) as caught:
        await asyncio.create_task(pager.collect())
    assert "integration_sdk" not in caught[0].filename


async def test_a_calm_list_is_repaired_at_no_great_cost(serve: Serve) -> None:
    """``on_drift="repair"`` reads a list that stands still in about as many requests."""
    service = Records(items=10_000)
    companies = await serve(service)
    pager = companies.list(on_drift="repair", prefetch=8)

    assert await pager.collect() == ids(range(10_000))
    assert len(service.log) <= 120
    assert pager.report.drift == []


async def test_repair_needs_to_know_what_identifies_an_item(serve: Serve) -> None:
    """Items without the key are an error that names the option."""
    pager = (await serve(Records(records=lambda index: {"name": index}))).list(on_drift="repair")

    with pytest.raises(PaginationError, match="key="):
        await pager.collect()


# Options


@pytest.mark.parametrize(
    ("option", "value"),
    [
        ("page_size", 0),
        ("page_size", 5001),
        ("page_size", "large"),
        ("prefetch", -1),
        ("prefetch", 1.5),
        ("max_bytes", 0),
        ("limit", -1),
        ("on_drift", "ignore"),
        ("numbers", "int"),
        ("cursor", "nonsense"),
        ("model", int),
    ],
)
async def test_an_option_that_cannot_work_is_refused(serve: Serve, option: str, value: Any) -> None:
    """The error comes when the list is made, and nothing is sent."""
    service = Records()
    companies = await serve(service)

    with pytest.raises(ConfigurationError):
        companies.list(**{option: value})

    assert service.log == []


async def test_a_chunk_holds_at_least_one_item(serve: Serve) -> None:
    """A size of 0 is refused before anything is sent."""
    with pytest.raises(ConfigurationError, match="size"):
        (await serve(Records())).list().chunks(0)


def test_a_reading_whose_loop_is_gone_ends_in_silence() -> None:
    """An iterator that outlives its loop raises and warns of nothing."""
    kept: list[Any] = []

    async def begin() -> None:
        kept.append(aiter(by_hand(Records(after=lambda _: 0))))
        await anext(kept[0])

    with warnings.catch_warnings():
        warnings.simplefilter("error")
        asyncio.run(begin())
        kept.clear()
        gc.collect()


@pytest.mark.parametrize("way", ["items", "pages", "chunks", "raw"])
async def test_iterators_are_async_generators(serve: Serve, way: str) -> None:
    """As the protocol of asyncio has them: closed with the loop, or by `aclosing`."""
    pager = (await serve(Records(items=250))).list()
    iterator = {
        "items": pager.__aiter__,
        "pages": pager.pages,
        "chunks": lambda: pager.chunks(100),
        "raw": pager.raw,
    }[way]()

    assert inspect.isasyncgen(iterator)
    assert len([handed async for handed in iterator]) == {"pages": 3, "chunks": 3}.get(way, 250)
