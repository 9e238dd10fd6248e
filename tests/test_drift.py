"""Lists that change while they are read: what is noticed, and what repair guarantees."""

from __future__ import annotations

from random import Random
from typing import Any

import msgspec
import pytest
from attrs import define, field

from integration_sdk._sansio.paging.cursor import Position, read_cursor, write_cursor
from integration_sdk._sansio.paging.drift import DriftWatch, Keys, shortfall
from integration_sdk._sansio.paging.items import ItemReader, Sheet
from integration_sdk._sansio.paging.line import Ask, Line
from integration_sdk._sansio.paging.repair import RepairWalk
from integration_sdk._sansio.requests import MIB, Params
from integration_sdk.errors import PaginationError, ResultSetChanged
from tests.pager_support import open_page
from tests.paging_worlds import World, first_request

READER = ItemReader.of()
KEYS = Keys.of("id", READER.value)


@define
class ChangingList:
    """Records that come and go while they are listed; those in *standing* never do."""

    chance: Random
    records: list[int]
    changes_per_answer: float
    cap: int = 5000
    standing: set[int] = field(init=False)
    _next: int = field(init=False, default=1_000_000)

    def __attrs_post_init__(self) -> None:
        self.standing = set(self.records)

    def change(self) -> None:
        while self.chance.random() < self.changes_per_answer / (1 + self.changes_per_answer):
            place = self.chance.randint(0, len(self.records))
            if self.chance.random() < 0.5 and place < len(self.records):
                self.standing.discard(self.records.pop(place))
            else:
                self.records.insert(place, self._next)
                self._next += 1

    def answer(self, params: Params) -> bytes:
        query = dict(params)
        number, size = int(query["page"]), min(int(query["pageSize"]), self.cap)
        links = {"next": {"href": "?"}} if number * size < len(self.records) else {}
        return msgspec.json.encode(
            {
                "results": [{"id": i} for i in self.records[(number - 1) * size : number * size]],
                "pageNumber": number,
                "pageSize": size,
                "totalResults": len(self.records),
                "_links": links,
            }
        )


def repair_walk(page_size: int, prefetch: int, start: Position | None = None) -> RepairWalk:
    request = first_request(page_size)
    return RepairWalk(
        request=request,
        start=start or Position(params=request.params),
        line=Line(prefetch, 64 * MIB),
        size=page_size,
        keys=KEYS,
    )


def read(
    walk: RepairWalk, listed: ChangingList, *, stop_after: int | None = None
) -> tuple[list[int], Position]:
    """Read to the end, or some items; pages are looked up at any moment, in any order."""
    items: list[int] = []
    on_its_way: list[Ask] = []
    arrived: dict[Ask, bytes] = {}
    while (head := walk.head) is not None:
        on_its_way += walk.to_fetch(waiting=True)
        while head not in arrived:
            listed.change()
            ask = on_its_way.pop(listed.chance.randrange(len(on_its_way)))
            arrived[ask] = listed.answer(ask.params)
            walk.line.arrived(ask, len(arrived[ask]))
        sheet = open_page(READER, arrived.pop(head))
        skip = walk.opened(sheet, 100)
        on_its_way = [ask for ask in on_its_way if ask in walk.line.asks]
        arrived = {ask: body for ask, body in arrived.items() if ask in walk.line.asks}
        for index in range(sheet.count if skip is None else skip, sheet.count):
            items.append(READER.value(sheet.raws[index])["id"])
            if len(items) == stop_after:
                return items, walk.position(index + 1)
        on_its_way += walk.to_fetch(waiting=False)
    return items, walk.position(10**9)


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


def every_stander_once_across_a_cursor(seed: int) -> None:
    listed = changing_list(seed)
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


@pytest.mark.long
def test_ten_thousand_schedules_of_inserts_and_deletes() -> None:
    """The same, ten thousand times."""
    for seed in range(10_000):
        every_stander_once(100_000 + seed)
        every_stander_once_across_a_cursor(100_000 + seed)


def repaired(world: World) -> list[str]:
    """Read *world* with repair, page by page, and return the ids."""
    walk = repair_walk(10, 2)
    seen: list[str] = []
    while (head := walk.head) is not None:
        sheet = open_page(READER, world.body(head.params))
        cut = walk.opened(sheet, 100)
        seen += [item["id"] for item in READER.values(iter(sheet.raws[cut or 0 :]))]
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


# What is noticed


def sheet(*keys: int, total: int | None = None, number: int = 2) -> Sheet:
    facts = {"pageNumber": number, "totalResults": total}
    return open_page(
        READER, msgspec.json.encode({"results": [{"id": key} for key in keys], **facts})
    )


def noticed(before: Sheet | None, after: Sheet, total: int | None = None) -> list[tuple[str, str]]:
    return [(drift.kind, drift.detail) for drift in DriftWatch(KEYS).compare(before, after, total)]


def test_a_list_that_stands_still_shows_nothing() -> None:
    """Pages that follow each other, and a total that is not known or stays, are no drift."""
    assert noticed(None, sheet(1, 2)) == []
    assert noticed(sheet(1, 2), sheet(3, 4)) == []
    assert noticed(sheet(1, 2), sheet(3, 4, total=4), total=4) == []
    assert noticed(sheet(1, 2), sheet()) == []


def test_items_that_moved_over_the_border_are_noticed_though_the_total_stays() -> None:
    """An insert here and a delete there leave the total as it was."""
    assert noticed(sheet(1, 2, 3), sheet(2, 3, 4)) == [
        ("duplicate", "2 of its items were on the page before too")
    ]


def test_items_are_compared_where_the_total_moves() -> None:
    """However far they moved, and wherever on the page they stand."""
    assert noticed(sheet(1, 2), sheet(3, total=9), total=7) == [
        ("total", "totalResults went from 7 to 9")
    ]
    both = noticed(sheet(*range(100)), sheet(500, *range(40), total=9), total=7)
    assert [kind for kind, _ in both] == ["total", "duplicate"]


def test_a_list_that_ends_early_or_late_is_noticed() -> None:
    """The items handed out are held against ``totalResults``."""
    assert list(shortfall(7, 7, 1)) == list(shortfall(7, None, 1)) == []
    assert [drift.kind for drift in shortfall(7, 9, 1)] == ["count"]


@pytest.mark.parametrize("key", ["id", lambda item: item["id"]])
def test_a_key_is_a_name_or_a_function(key: Any) -> None:
    """Both read the same; an item without one has None."""
    raws = sheet(1, 2).raws
    other = open_page(READER, b'{"results":[{"name":1},[],{"id":[1]}]}').raws

    assert Keys.of(key, READER.value).read(raws) == [1, 2]
    assert Keys.of(key, READER.value).read(other) == [None, None, None]


@pytest.mark.parametrize("fault", ["wrong_number", "recapped"])
def test_a_repaired_list_of_wrong_pages_is_an_error(fault: str) -> None:
    """A page of another number or size than asked for cannot be placed."""
    world = World(count=60, faults={2: frozenset({fault})})
    walk = repair_walk(10, 0)
    walk.opened(open_page(READER, world.body(walk.line.asks[0].params)), 100)
    second = open_page(READER, world.body(walk.line.asks[0].params))

    with pytest.raises(PaginationError, match=r"was requested, but (page )?\d was returned"):
        walk.opened(second, 100)
