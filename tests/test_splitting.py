"""A large page is split piece by piece into what splitting it at once gives."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Iterator
from typing import Any

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from integration_sdk._list import splitting
from integration_sdk._list.page import ItemReader
from integration_sdk._list.splitting import Envelope, split
from integration_sdk.errors import MalformedResponse
from tests.pager_support import FakeService, in_pieces, open_page, taken_impatiently

AT_ONCE = msgspec.json.Decoder(Envelope).decode
PIECE = 300
READER = ItemReader.of()

texts = st.text(st.sampled_from('}{[],:" \\ié'), max_size=12)
lookalikes = st.fixed_dictionaries({"id": texts, "name": texts})
records = st.fixed_dictionaries(
    {"id": texts | st.integers(), "name": texts | st.none()},
    optional={"lines": st.lists(lookalikes, max_size=4), "note": texts, "ref": lookalikes},
)
odd_items: st.SearchStrategy[Any] = st.one_of(
    st.none(), texts, st.lists(lookalikes, max_size=3), st.just({})
)


@pytest.fixture(autouse=True, scope="module")
def _small_pieces() -> Iterator[None]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(splitting, "PIECE", PIECE)
        patch.setattr(splitting, "NEAR_END", PIECE // 2)
        yield


def splitting_of(body: bytes, size: int = 40) -> tuple[int, Envelope]:
    """Return how often splitting *body* let others have a turn, and what it holds."""
    turns, splitter = 0, split(in_pieces(body, size), lambda json: json)
    while True:
        try:
            next(splitter)
        except StopIteration as end:
            envelope: Envelope = end.value
            return turns, envelope
        turns += 1


def page(items: list[Any], *, first: tuple[str, ...] = (), **layout: Any) -> bytes:
    """Return a page with the members named in *first* before its items, the others behind."""
    members = {
        "pageNumber": 3,
        "pageSize": "100",
        "totalResults": len(items),
        "_links": {"next": {"href": "/x?a=},{"}},
    }
    order = [*first, "results", *(name for name in members if name not in first)]
    whole = {**members, "results": items}
    return json.dumps({name: whole[name] for name in order}, **layout).encode()


layouts = st.sampled_from(
    [{}, {"separators": (",", ":")}, {"indent": 2}, {"ensure_ascii": False}, {"indent": "\t"}]
)
sizes = st.integers(1, 300)
orders = st.sampled_from([(), ("pageNumber",), ("totalResults", "pageSize"), ("_links",)])


@given(st.lists(records, max_size=30), layouts, orders, sizes)
def test_pieces_hold_what_the_page_holds(
    items: list[Any], layout: dict[str, Any], first: tuple[str, ...], size: int
) -> None:
    """Whatever records look like, however a page is laid out and wherever it is torn."""
    body = page(items, first=first, **layout)
    assert splitting_of(body, size)[1] == AT_ONCE(body)


@given(st.lists(records | odd_items, max_size=30), layouts)
def test_items_of_any_kind_are_split(items: list[Any], layout: dict[str, Any]) -> None:
    """Items that are not alike, or no objects, are split too, at once if need be."""
    body = page(items, **layout)
    assert splitting_of(body)[1] == AT_ONCE(body)


@given(st.lists(records, min_size=1, max_size=20), st.data())
def test_a_page_cut_off_anywhere_is_refused(items: list[Any], data: st.DataObject) -> None:
    """No page loses its end in silence: what msgspec refuses whole is refused in pieces."""
    body = page(items)
    end = data.draw(st.integers(0, len(body) - 1))
    with pytest.raises(MalformedResponse, match="not a valid page"):
        open_page(READER, *in_pieces(body[:end], 40))


@given(st.binary(max_size=8), st.data())
def test_a_damaged_page_is_read_as_at_once_or_refused_as_at_once(
    damage: bytes, data: st.DataObject
) -> None:
    """Bytes written over the middle of a page never change how the rest is read."""
    body = page([{"id": str(n), "name": "x", "lines": [{"id": "a", "name": ""}]} for n in range(9)])
    at = data.draw(st.integers(0, len(body)))
    damaged = body[:at] + damage + body[at + len(damage) :]
    try:
        expected = AT_ONCE(damaged)
    except (msgspec.DecodeError, UnicodeDecodeError):
        with pytest.raises(MalformedResponse):
            open_page(READER, *in_pieces(damaged, 40))
    else:
        assert splitting_of(damaged)[1] == expected


def test_an_ordinary_page_comes_in_pieces() -> None:
    """Records with nested objects are cut between records: the event loop gets its turns."""
    lines = [{"id": "1", "amount": 1.5}, {"id": "2", "amount": 2.5}]
    body = page([{"id": str(number), "name": "x", "lines": lines} for number in range(100)])
    turns, envelope = splitting_of(body)
    assert len(body) / (3 * PIECE) <= turns <= 2 * len(body) / PIECE
    assert len(envelope.results) == 100


def test_a_large_record_is_not_approached_one_by_one() -> None:
    """Each piece ends at the last place where it may, though that is not near the end."""
    sizes = [*[1] * 20, PIECE * 3 // 4] * 20
    body = page([{"id": str(number), "name": "x" * size} for number, size in enumerate(sizes)])
    turns, envelope = splitting_of(body, 4 * PIECE)
    assert envelope == AT_ONCE(body)
    assert turns <= 2 * len(body) / PIECE


def test_another_list_of_results_is_not_taken_for_the_page_s() -> None:
    """Only the page's own member counts, whatever comes before it."""
    others = [{"id": str(number), "name": "y"} for number in range(60)]
    body = page([{"id": "7", "name": "x"}] * 60).replace(
        b'{"results"', b'{"_meta": {"results": %b}, "results"' % json.dumps(others).encode(), 1
    )
    assert splitting_of(body) == (0, AT_ONCE(body))


def test_records_within_records_that_look_alike_are_not_taken_for_the_page_s() -> None:
    """A cut within a record is noticed, and the page is split at once."""
    lines = [{"id": str(number), "name": "y"} for number in range(30)]
    body = page([{"id": "7", "name": "x", "lines": lines}] * 3)
    assert splitting_of(body) == (0, AT_ONCE(body))


def test_half_a_surrogate_pair_spoils_its_own_record_only() -> None:
    """In pieces as at once, such a record is kept as it came."""
    items = [{"id": str(number), "name": "x" * 50} for number in range(10)]
    body = page(items).replace(b'"4", "name": "x', rb'"4", "name": "\ud800', 1)
    raws = [bytes(raw) for raw in splitting_of(body)[1].results]
    assert raws[:4] + raws[5:] == [json.dumps(one).encode() for one in items[:4] + items[5:]]
    assert rb"\ud800" in raws[4]


def named(index: int) -> dict[str, Any]:
    return {"id": index, "name": "Toft Timber"}


async def test_the_event_loop_gets_a_turn_between_pieces() -> None:
    """Opening a large page does not keep other tasks waiting for longer than a piece takes."""
    service = FakeService(count=200, latency=lambda _: 0, records=named, torn=40)
    clock = iter(range(10**6))  # each look at it is a second later, so that turns are due
    reading = aiter(service.pager(page_size=200, clock=lambda: float(next(clock))))
    first = asyncio.ensure_future(anext(reading))
    turns = 0
    while not first.done():
        turns += 1
        await asyncio.sleep(0)
    assert first.result() == named(0)
    assert turns >= len(service.body(1, 200)) / (3 * PIECE)


@given(st.lists(st.integers(0, 30), max_size=20))
@settings(max_examples=40)
def test_whoever_stops_waiting_while_a_page_is_opened_loses_nothing(turns: list[int]) -> None:
    """However often the wait for the first item of a page is cancelled, all of them come."""

    async def read() -> list[Any]:
        service = FakeService(count=300, latency=lambda _: 0, records=named, torn=40)
        clock = iter(range(10**6))
        reading = aiter(service.pager(page_size=100, clock=lambda: float(next(clock))))
        return await taken_impatiently(reading, turns)

    assert asyncio.run(read()) == [named(index) for index in range(300)]
