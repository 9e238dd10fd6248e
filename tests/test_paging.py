"""The law of pagination: a walk hands out what a patient link-follower reads."""

from __future__ import annotations

from random import Random
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from integration_sdk._http.requests import MIB
from integration_sdk._list.cursor import Position
from integration_sdk._list.page import ItemReader
from integration_sdk._list.page_queue import PageQueue, PageRequest
from integration_sdk._list.page_size import PageSize
from integration_sdk._list.page_walk import PageWalk
from integration_sdk.errors import MalformedResponse, PaginationError, UnsafeLink
from tests.pager_support import open_page
from tests.paging_worlds import (
    HOST,
    Stuck,
    World,
    first_request,
    follow,
    honest_worlds,
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


def walked(world: World, walk: PageWalk, seed: int = 0, *, cuts: bool = False) -> Outcome:
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
                    walk.queue.failed(wanted, throttled=chance.random() < 0.5)
                    if cuts and wanted is head and chance.random() < 0.5 and walk.shrink_head():
                        head = walk.queue.pages[0]
                        on_its_way, arrived = [], {}
                    on_its_way += walk.to_fetch(waiting=True)
                    continue
                arrived[wanted] = world.body(wanted.params)
                walk.queue.arrived(wanted, len(arrived[wanted]))
            body = arrived.pop(head)
            page = open_page(READER, body)
            skip = walk.opened(page, len(body))
            if skip is not None:
                items += [item["id"] for item in READER.values(iter(page.raws[skip:]))]
            on_its_way = [wanted for wanted in on_its_way if wanted in walk.queue.pages]
            arrived = {
                wanted: body for wanted, body in arrived.items() if wanted in walk.queue.pages
            }
            on_its_way += walk.to_fetch(waiting=False)
        if problem := walk.resume_behind_problem():
            raise problem
    except PaginationError as error:
        return items, (error.page, "unsafe" if isinstance(error, UnsafeLink) else "other")
    return items, None


def walk_of(page_size: int = 3, **options: Any) -> PageWalk:
    request = first_request(page_size)
    queue = PageQueue(options.pop("prefetch", 4), options.pop("max_bytes", 64 * MIB))
    sizes = options.pop("sizes", None) or PageSize(page_size)
    start = options.pop("start", None) or Position(params=request.params)
    return PageWalk(request=request, start=start, queue=queue, sizes=sizes, **options)


SIZES = st.sampled_from([1, 2, 3, 7, 12, 100])


@settings(max_examples=800)
@given(worlds(), SIZES, st.integers(0, 9), st.integers(0))
def test_any_walk_reads_what_a_link_follower_reads(
    world: World, page_size: int, prefetch: int, seed: int
) -> None:
    """Whatever the server, the window and the order of arrival: same items, same error."""
    walk = walk_of(page_size, base_url=HOST, prefetch=prefetch)

    assert walked(world, walk, seed) == expected(world, page_size)


@settings(max_examples=500)
@given(honest_worlds(), SIZES, st.integers(0, 9), st.integers(0))
def test_a_page_asked_for_in_another_size_loses_and_doubles_nothing(
    world: World, page_size: int, prefetch: int, seed: int
) -> None:
    """Sizes that shrink on time-outs and grow back hand out the same items in the same order."""
    walk = walk_of(page_size, base_url=HOST, prefetch=prefetch)

    assert walked(world, walk, seed, cuts=True) == expected(world, page_size)


@given(st.integers(1, 20), st.integers(0, 6))
def test_a_429_halves_the_window_and_answers_open_it_again(prefetch: int, answers: int) -> None:
    """Half as many go ahead at once after a refusal, one more with each answer."""
    queue = PageQueue(prefetch, 64 * MIB)
    pages = [PageRequest(params=(), number=number) for number in range(1, 40)]
    queue.start_over(*pages)
    requested = queue.to_fetch(queue.room(waiting=False))
    queue.failed(pages[0], throttled=True)
    queue.open_head(0)

    for wanted in requested[1 : 1 + answers]:
        queue.arrived(wanted, 10)

    answers = min(answers, len(requested) - 1)
    assert queue.room(waiting=False) == min(max(prefetch // 2, 1) + answers, prefetch)


@given(st.integers(1, 20), st.integers(0, 19))
def test_nothing_is_asked_for_behind_a_page_that_failed(prefetch: int, failed: int) -> None:
    """Until it has become the head, the queue ends before it."""
    queue = PageQueue(prefetch, 64 * MIB)
    pages = [PageRequest(params=(), number=number) for number in range(1, 40)]
    queue.start_over(*pages)
    requested = queue.to_fetch(prefetch)
    failed %= len(requested)
    queue.failed(requested[failed], throttled=False)

    for _ in range(failed):
        assert queue.to_fetch(queue.room(waiting=False)) == []
        queue.open_head(0)

    assert queue.to_fetch(queue.room(waiting=True))[0] is requested[failed]


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
