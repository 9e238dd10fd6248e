"""The law of pagination: a walk hands out what a patient link-follower reads."""

from __future__ import annotations

from random import Random
from typing import Any

import attrs
import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from integration_sdk import Page
from integration_sdk._list.cursor import Position
from integration_sdk._list.page import Envelope, ItemReader, RawPage
from integration_sdk._list.walk import PageRequest, PageWalk
from integration_sdk._options_given import MIB
from integration_sdk.errors import MalformedResponse, PaginationError, UnsafeLink
from tests.support.pager_support import open_page
from tests.support.paging_worlds import (
    HOST,
    Stuck,
    World,
    first_request,
    follow,
    worlds,
)

READER = ItemReader.of()
Outcome = tuple[list[str], tuple[Any, str] | None]


def expected(world: World, page_size: int) -> Outcome:
    items: list[str] = []
    try:
        items.extend(follow(world, first_request(page_size).params))
    except Stuck as stuck:
        return items, (stuck.args[0], "unsafe" if stuck.args[1] == "unsafe" else "other")
    return items, None


def walked(world: World, walk: PageWalk, seed: int = 0) -> Outcome:
    """Drive *walk* with answers that come in any order; a few requests fail."""
    chance = Random(seed)
    items: list[str] = []
    on_its_way: list[PageRequest] = []
    arrived: dict[PageRequest, bytes] = {}
    try:
        while (head := walk.head) is not None:
            on_its_way += walk.to_fetch(waiting=True)
            while head not in arrived:
                wanted = on_its_way.pop(chance.randrange(len(on_its_way)))
                if chance.random() < 0.1:
                    walk.failed(wanted)
                    on_its_way += walk.to_fetch(waiting=True)
                    continue
                arrived[wanted] = world.body(wanted.params)
                walk.arrived(wanted, len(arrived[wanted]))
            body = arrived.pop(head)
            page = open_page(READER, body)
            if (opened := walk.opened(page, len(body))) is not None:
                shown, skip = opened
                items += [item["id"] for item in READER.values(iter(shown.raws[skip:]))]
            on_its_way = [wanted for wanted in on_its_way if wanted in walk.pages]
            arrived = {wanted: body for wanted, body in arrived.items() if wanted in walk.pages}
            on_its_way += walk.to_fetch(waiting=False)
        if walk.problem:
            raise walk.problem
    except PaginationError as error:
        return items, (error.page, "unsafe" if isinstance(error, UnsafeLink) else "other")
    return items, None


def walk_of(page_size: int = 3, **options: Any) -> PageWalk:
    request = first_request(page_size)
    bounds = {"prefetch": 4, "max_bytes": 64 * MIB}
    start = options.pop("start", None) or Position(params=request.params)
    return PageWalk(request=request, start=start, **{**bounds, **options})


SIZES = st.sampled_from([1, 2, 3, 7, 12, 100])


@settings(max_examples=400)
@given(worlds(), SIZES, st.integers(0, 9), st.integers(0))
def test_any_walk_reads_what_a_link_follower_reads(
    world: World, page_size: int, prefetch: int, seed: int
) -> None:
    """Whatever the server, the window and the order of arrival: same items, same error."""
    walk = walk_of(page_size, base_url=HOST, prefetch=prefetch)

    assert walked(world, walk, seed) == expected(world, page_size)


@given(st.integers(1, 20), st.integers(0, 19))
def test_nothing_is_asked_for_behind_a_page_that_failed(prefetch: int, failed: int) -> None:
    """Until it has become the head, the queue ends before it."""
    walk = walk_of(1, prefetch=prefetch)
    pages = [PageRequest(params=(), number=number) for number in range(1, 40)]
    walk.start_over(*pages)
    requested = walk.to_fetch(waiting=True)
    failed %= len(requested)
    walk.failed(requested[failed])

    for _ in range(failed):
        assert walk.to_fetch(waiting=False) == []
        walk.open_head(0)

    assert walk.to_fetch(waiting=True)[0] is requested[failed]


# What is no page


def test_numbers_of_a_page_may_be_strings() -> None:
    """Assumed: some services write them so."""
    body = b'{"results":[],"pageNumber":"2","pageSize":"100","totalResults":250.0}'
    page = open_page(READER, body)

    assert (page.number, page.size, page.total) == (2, 100, 250)


@pytest.mark.parametrize(
    "body",
    [
        b"",
        b"<html>",
        b"[]",
        b"{}",
        b'{"results":null}',
        b'{"results":[{]}',
        b'{"results":[],"pageNumber":"two"}',
        b'{"results":[],"pageSize":-1}',
        b'{"results":[],"totalResults":1.5}',
        b'{"results":[],"_links":{"next":{"href":7}}}',
        b'{"results":[1,2',
        b'{"results":["\xff"]}' * 2,
    ],
)
def test_what_is_no_page_is_an_error(body: bytes) -> None:
    """A body that is no page envelope never reads as an empty page."""
    with pytest.raises(MalformedResponse):
        open_page(READER, body)


def test_every_field_of_the_envelope_is_a_field_of_a_page() -> None:
    """One that is read and not shown, or shown and not read, would be lost without a word."""
    read_from_json = {one.name for one in msgspec.structs.fields(Envelope)}
    shown = {one.name for one in attrs.fields(Page)}

    assert shown == read_from_json | {"extra"} == set(RawPage().facts) | {"results"}
