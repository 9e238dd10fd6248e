"""Lists that change while they are read: what repair guarantees."""

from __future__ import annotations

from itertools import pairwise
from random import Random

import msgspec
import pytest
from attrs import define

from integration_sdk._http.requests import Params
from integration_sdk._list.cursor import Position, read_cursor, write_cursor
from integration_sdk._list.repair import MOST_WITHOUT_NEWS
from integration_sdk.errors import PaginationError, ResultSetChanged
from tests.support.pager_support import open_page
from tests.support.paging_worlds import World, first_request
from tests.support.repair_support import READER, ChangingList, read, repair_walk, standing_list


def changing_list(seed: int) -> ChangingList:
    chance = Random(seed)
    return ChangingList(
        chance=chance,
        records=list(range(chance.randint(0, 60))),
        changes_per_answer=chance.choice([0, 0.2, 1, 4]),
        cap=chance.choice([5000, 5000, 13]),
    )


def every_stander_once(seed: int) -> None:
    listed = changing_list(seed)
    walk = repair_walk(listed.chance.choice([1, 4, 7, 10, 25]), listed.chance.choice([0, 1, 4]))

    try:
        items, _ = read(walk, listed)
    except ResultSetChanged:
        assert listed.changes_per_answer == 4, "only a list that races may be given up"
        return

    assert len(items) == len(set(items)), f"twice, with seed {seed}"
    assert listed.standing <= set(items), f"passed over, with seed {seed}"
    in_order = [item for item in items if item in listed.standing]
    assert in_order == sorted(in_order)


def every_stander_once_across_a_cursor(seed: int, listed: ChangingList | None = None) -> None:
    listed = listed or changing_list(seed)
    size, prefetch = listed.chance.choice([4, 7, 10]), listed.chance.choice([0, 3])
    request = first_request(size)
    rate, listed.changes_per_answer = listed.changes_per_answer, listed.chance.choice([0, 1])
    calm = not listed.changes_per_answer
    before, place = read(
        repair_walk(size, prefetch), listed, stop_after=listed.chance.randint(1, 40)
    )
    listed.changes_per_answer = rate
    listed.change()
    place = read_cursor(request, write_cursor(request, place))
    try:
        after, _ = read(repair_walk(size, prefetch, place), listed)
    except ResultSetChanged:
        assert rate, "a list that stands still can be read on"
        return

    times = {item: [*before, *after].count(item) for item in listed.standing}
    assert all(times.values()), f"lost, with seed {seed}"
    assert not calm or set(times.values()) <= {1}, f"twice, with seed {seed}"


@pytest.mark.parametrize("block", range(10))
def test_what_stood_still_is_handed_out_exactly_once(block: int) -> None:
    """Whatever comes and goes meanwhile, repair hands each standing record out once, in order."""
    for seed in range(block * 100, block * 100 + 100):
        every_stander_once(seed)


def test_a_cursor_never_loses_what_stood_still() -> None:
    """A run that goes on from a cursor loses nothing, whatever changed before and meanwhile.

    It doubles nothing either, if the list stood still when the cursor was taken.
    """
    for seed in range(500):
        every_stander_once_across_a_cursor(seed)


# Items that count and are not shown


def hiding_list(seed: int, *, linked: bool = True, cap: int = 5000) -> ChangingList:
    chance = Random(seed)
    return ChangingList(
        linked=linked,
        cap=cap,
        chance=chance,
        records=list(range(chance.randint(0, 120))),
        changes_per_answer=chance.choice([0, 0, 0.05, 0.2, 1, 4]),
        share=chance.choice([0.1, 0.3, 0.6, 0.9]),
    )


def all_that_is_shown_once(seed: int, listed: ChangingList | None = None) -> None:
    listed = listed or hiding_list(seed)
    walk = repair_walk(listed.chance.randint(1, 20), listed.chance.choice([0, 1, 4]))

    items, _ = read(walk, listed)

    assert len(items) == len(set(items)), f"twice, with seed {seed}"
    assert listed.standing <= set(items), f"passed over, with seed {seed}"
    in_order = [item for item in items if item in listed.standing]
    assert in_order == sorted(in_order)
    most = (MOST_WITHOUT_NEWS + 1) * (len(items) + 1)
    assert listed.answers <= most, f"endless, with seed {seed}"


@pytest.mark.parametrize("block", range(4))
def test_a_list_that_hides_items_is_repaired_to_its_end(block: int) -> None:
    """Whatever is counted and not shown, changing or not, the rest comes exactly once."""
    for seed in range(block * 100, block * 100 + 100):
        all_that_is_shown_once(seed)


@pytest.mark.parametrize("block", range(4))
def test_a_list_that_hides_items_and_sends_no_links_is_repaired_to_its_end(block: int) -> None:
    """A page of nothing but hidden items does not end it before its ``totalResults``."""
    for seed in range(block * 100, block * 100 + 100):
        all_that_is_shown_once(seed, hiding_list(seed, linked=False))


@pytest.mark.parametrize("linked", [True, False])
def test_a_list_that_hides_more_than_a_page_holds_never_just_ends(linked: bool) -> None:
    """In pages of 13 at most, some hidden stretches cannot be crossed: that is an error."""
    given_up = 0
    for seed in range(200):
        try:
            all_that_is_shown_once(seed, hiding_list(seed, linked=linked, cap=13))
        except ResultSetChanged:
            given_up += 1
    assert given_up < 100


def test_a_cursor_never_loses_what_a_list_shows() -> None:
    """Neither does a run that goes on from a cursor in such a list."""
    for seed in range(300):
        every_stander_once_across_a_cursor(seed, hiding_list(seed))


@pytest.mark.long
def test_ten_thousand_schedules_of_inserts_and_deletes() -> None:
    """The same, ten thousand times."""
    for seed in range(10_000):
        every_stander_once(100_000 + seed)
        every_stander_once_across_a_cursor(100_000 + seed)
        all_that_is_shown_once(100_000 + seed)


@pytest.mark.parametrize(
    ("hidden", "answers"),
    [(range(4000), 80), (range(3000, 4900), 120), (range(9900, 10_000), 130)],
)
@pytest.mark.parametrize("prefetch", [0, 2])
def test_a_page_grows_over_what_is_hidden(hidden: range, answers: int, prefetch: int) -> None:
    """Only a page that holds items on both sides shows that none are missing between them."""
    listed = standing_list(10_000, hidden=hidden)

    items, _ = read(repair_walk(100, prefetch), listed)

    assert items == sorted(listed.standing)
    assert listed.answers < answers
    assert all(one != other for one, other in pairwise(listed.asked))


def test_more_hidden_items_than_a_page_can_hold_are_an_error_in_the_end() -> None:
    """It names both reasons, since nobody can tell from outside which one it is."""
    listed = standing_list(20_000, hidden=range(3000, 9500))
    walk = repair_walk(100, 2)

    with pytest.raises(ResultSetChanged, match="counts many items that it does not show"):
        read(walk, listed)
    assert listed.answers < 3000 / 100 + 3 * MOST_WITHOUT_NEWS


@pytest.mark.parametrize("page_size", [1, 4, 5, 8, 9])
def test_small_pages_are_no_smaller_than_overlapping_takes(page_size: int) -> None:
    """No two pages of up to 4 items overlap at item 12, nor any of up to 8 at item 840."""
    listed = standing_list(3000)

    assert read(repair_walk(page_size, 3), listed)[0] == list(range(3000))
    assert listed.answers < 2 * 3000 / page_size


def test_a_service_of_small_pages_cannot_be_repaired() -> None:
    """It is told at once, not after many pages."""
    listed = standing_list(100, cap=9)

    with pytest.raises(PaginationError, match="at least of 10 items"):
        read(repair_walk(50, 0), listed)
    assert listed.answers == 1


# Many changes at once


@define
class BulkDeletion(ChangingList):
    """All at once, *gone* records are deleted from the beginning."""

    gone: int = 0

    def change(self) -> None:
        if self.answers == 200:
            self.standing -= set(self.records[: self.gone])
            del self.records[: self.gone]


@pytest.mark.parametrize(
    ("gone", "prefetch"), [(1, 0), (50, 4), (500, 0), (3000, 4), (15_000, 0), (29_900, 4)]
)
def test_a_bulk_deletion_is_repaired(gone: int, prefetch: int) -> None:
    """However far the rest moves, the walk finds where it was, and says nothing of races."""
    listed = BulkDeletion(Random(1), list(range(30_000)), 0, gone=gone)

    items, _ = read(repair_walk(100, prefetch), listed)

    assert len(items) == len(set(items))
    assert listed.standing <= set(items)
    assert listed.answers < 400


@pytest.mark.parametrize("prefetch", [0, 4])
def test_a_cursor_is_found_behind_a_bulk_insertion(prefetch: int) -> None:
    """The search goes back to the start and then forward, for as many pages as it takes."""
    listed = standing_list(10_000)
    before, place = read(repair_walk(50, prefetch), listed, stop_after=1000)
    listed.records[:0] = range(10_000, 20_000)
    listed.asked.clear()

    after, _ = read(repair_walk(50, prefetch, place), listed)

    assert [*before, *after] == list(range(10_000))
    assert listed.answers < 20_000 / 48 + 30


def test_a_cursor_is_found_at_once_if_a_few_came_before_it() -> None:
    """A list of the newest first, for example, need not be searched from the start."""
    listed = standing_list(1000)
    before, place = read(repair_walk(50, 0), listed, stop_after=500)
    listed.records[:0] = range(10_000, 10_040)
    listed.asked.clear()

    after, _ = read(repair_walk(50, 0, place), listed)

    assert [*before, *after] == list(range(1000))
    assert listed.answers < 15


def test_a_cursor_of_a_service_that_caps_pages_is_found_where_it_was() -> None:
    """Its page counts in the size that was returned, not in the size that is asked for anew."""
    for stop in range(40, 1000, 37):
        listed = standing_list(1000, cap=50)
        before, place = read(repair_walk(125, 0), listed, stop_after=stop)
        walk = repair_walk(125, 0, place)

        after, _ = read(walk, listed)

        assert [*before, *after] == list(range(1000))
        assert walk.notes == []


@define
class Endless(ChangingList):
    """It links on from every page, and counts a million."""

    def answer(self, params: Params) -> bytes:
        page = msgspec.json.decode(ChangingList.answer(self, params))
        page |= {"totalResults": 1_000_000, "_links": {"next": {"href": "?"}}}
        return msgspec.json.encode(page)


def test_the_search_for_a_cursor_ends() -> None:
    """So it does if the items are gone and the service never says where the list ends."""
    request = first_request(10)
    place = Position(params=request.with_params(page="7").params, skip=3, done=63, marks=(1, 2))
    listed = Endless(Random(1), list(range(50)), 0)

    with pytest.raises(ResultSetChanged):
        read(repair_walk(10, 0, place), listed)
    assert listed.answers < 2 * MOST_WITHOUT_NEWS


# Cursors of another walk


def resumed(listed: ChangingList, page: int, size: int, skip: int) -> list[int]:
    request = first_request(size).with_params(page=str(page))
    place = Position(params=request.params, skip=skip, done=1)
    return read(repair_walk(size, 0, place), listed)[0]


def test_a_cursor_that_holds_no_keys_says_how_many_items_of_its_page_were_shown() -> None:
    """What is hidden on that page is not among them."""
    listed = standing_list(60, hidden=range(20, 23))

    assert resumed(listed, page=3, size=10, skip=6) == list(range(29, 60))


def test_a_cursor_that_holds_no_keys_is_read_in_the_pages_it_was_written_in() -> None:
    """If the service returns smaller pages than asked for, it did so then, too."""
    listed = standing_list(60, cap=15)

    assert resumed(listed, page=3, size=40, skip=2) == list(range(32, 60))


def repaired(world: World) -> list[str]:
    """Read *world* with repair, page by page, and return the ids."""
    walk = repair_walk(10, 2)
    seen: list[str] = []
    while (head := walk.head) is not None:
        page = open_page(READER, world.body(head.params))
        shown, cut = walk.opened(page, 100) or (page, page.count)
        seen += [item["id"] for item in READER.values(iter(shown.raws[cut:]))]
    return seen


def test_pages_that_come_short_do_not_end_a_repaired_list() -> None:
    """Items that are counted and not shown make pages short; what is behind them still comes."""
    world = World(count=60, hidden=frozenset({3, 17, 31, 45}))
    assert repaired(world) == [str(index) for index in range(60) if index not in world.hidden]


def test_a_short_page_with_a_link_does_not_end_a_repaired_list_without_a_total() -> None:
    """The service says that there is more, and there is."""
    hidden = frozenset({3, 17, 31, 45})
    world = World(
        count=60, hidden=hidden, faults=dict.fromkeys(range(1, 70), frozenset({"no_total"}))
    )
    assert repaired(world) == [str(index) for index in range(60) if index not in hidden]


@pytest.mark.parametrize("fault", ["wrong_number", "recapped"])
def test_a_repaired_list_of_wrong_pages_is_an_error(fault: str) -> None:
    """A page of another number or size than asked for cannot be placed."""
    world = World(count=60, faults={2: frozenset({fault})})
    walk = repair_walk(10, 0)
    walk.opened(open_page(READER, world.body(walk.pages[0].params)), 100)
    second = open_page(READER, world.body(walk.pages[0].params))

    with pytest.raises(PaginationError, match=r"was requested, but (page )?\d was returned"):
        walk.opened(second, 100)
