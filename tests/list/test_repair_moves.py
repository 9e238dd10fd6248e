"""Lists whose records move, that filter after paging or cap pages: repair never gives less."""

from __future__ import annotations

from random import Random
from typing import Any, Literal

import pytest
from attrs import define, field
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from integration_sdk.errors import ResultSetChanged
from tests.support.repair_support import ChangingList, page_walk, read, repair_walk, standing_list


@define
class Edited(ChangingList):
    """Once, after some answers, the record at *place* is updated and goes to the end."""

    after: int = 0
    place: int = 0

    def change(self) -> None:
        if self.answers == self.after and not self.versions:
            record = self.records.pop(self.place)
            self.records.append(record)
            self.standing.discard(record)
            self.versions[record] += 1


@pytest.mark.parametrize("place", [0, 99, 100, 150, 199, 250, 899, 999])
@pytest.mark.parametrize("after", [1, 2, 3, 5, 9])
@pytest.mark.parametrize("prefetch", [0, 4])
def test_a_record_that_moves_costs_no_other(after: int, place: int, prefetch: int) -> None:
    """Of 1,000 records one is updated and goes to the end: all 1,000 come, each once."""
    listed = Edited(Random(1), list(range(1000)), 0, after=after, place=place)

    items, _ = read(repair_walk(100, prefetch), listed)

    assert sorted(items) == list(range(1000))
    assert listed.answers < 20


@define
class EditedInOrder(ChangingList):
    """Updated and new records go to the end; any may be deleted."""

    initial: set[int] = field(init=False)

    def __attrs_post_init__(self) -> None:
        ChangingList.__attrs_post_init__(self)
        self.initial = set(self.records)

    def change(self) -> None:
        while self.chance.random() < self.changes_per_answer / (1 + self.changes_per_answer):
            match self.chance.choice(["update", "update", "insert", "delete"]):
                case "update":
                    self.update(len(self.records))
                case "insert":
                    self._next += 1
                    self.records.append(self._next)
                case "delete" if self.records:
                    self.records.pop(self.chance.randrange(len(self.records)))


def moving_list(seed: int) -> ChangingList:
    chance = Random(seed)
    return ChangingList(
        chance=chance,
        records=list(range(chance.randint(0, 120))),
        changes_per_answer=chance.choice([0, 0.2, 1, 2]),
        share=chance.choice([0, 0, 0.1, 0.5]),
        cap=chance.choice([5000, 5000, 13, 40]),
        silent=chance.choice([True, False]),
        moves=chance.choice([0.3, 0.7, 1]),
        counts=chance.choice(["all", "all", "shown", "zero"]),
    )


def every_stander_once(seed: int, listed: ChangingList) -> bool:
    """Read *listed*; return whether it was given up, which must be an error."""
    chance = listed.chance
    walk = repair_walk(chance.choice([4, 7, 10, 25, 60]), chance.choice([0, 1, 4]))

    try:
        items, _ = read(walk, listed)
    except ResultSetChanged:
        return True

    assert len(items) == len(set(items)), f"twice, with seed {seed}"
    assert listed.standing <= set(items), f"passed over, with seed {seed}"
    in_order = [item for item in items if item in listed.standing]
    assert in_order == sorted(in_order)
    return False


@pytest.mark.parametrize("block", range(10))
def test_what_stood_still_comes_once_whatever_moves(block: int) -> None:
    """Among inserts, deletes and updates that move a record, each standing one comes once.

    So it does where the service filters after paging, counts what it shows or nothing, and caps
    pages, whether it says so or not.
    """
    seeds = range(block * 100, block * 100 + 100)
    given_up = sum(every_stander_once(seed, moving_list(seed)) for seed in seeds)
    assert given_up < 10


def nothing_is_lost_in_order_of_change(seed: int) -> None:
    chance = Random(seed)
    listed = EditedInOrder(chance, list(range(chance.randint(1, 150))), chance.choice([0.1, 0.5]))
    walk = repair_walk(chance.choice([10, 25, 60]), chance.choice([0, 1, 4]))

    items, _ = read(walk, listed)

    assert len(items) == len(set(items)), f"twice, with seed {seed}"
    assert listed.initial & set(listed.records) <= set(items), f"passed over, with seed {seed}"


def test_nothing_is_lost_from_a_list_in_the_order_of_change() -> None:
    """In the order of ``modifiedDate`` a record moves only to the end, and comes there if unread.

    So it does if the pages there were requested ahead, before it moved.
    """
    for seed in range(500):
        nothing_is_lost_in_order_of_change(seed)


@pytest.mark.long
def test_ten_thousand_lists_in_the_order_of_change() -> None:
    """The same, ten thousand times."""
    for seed in range(100_000, 110_000):
        nothing_is_lost_in_order_of_change(seed)


@pytest.mark.long
def test_ten_thousand_schedules_with_moves() -> None:
    """The same, ten thousand times."""
    for seed in range(100_000, 110_000):
        every_stander_once(seed, moving_list(seed))


@pytest.mark.parametrize("counts", ["shown", "zero"])
@pytest.mark.parametrize("page_size", [10, 33, 50, 100, 250])
@pytest.mark.parametrize("prefetch", [0, 4])
def test_a_total_that_is_too_low_ends_no_repaired_list(
    page_size: int, prefetch: int, counts: Literal["shown", "zero"]
) -> None:
    """A service that filters after paging counts 153 of its 200 records, or none."""
    for share in (0.0, 0.235, 0.8):
        listed = ChangingList(Random(7), list(range(200)), 0, share=share, counts=counts)

        items, _ = read(repair_walk(page_size, prefetch), listed)

        assert items == sorted(listed.standing)


def test_a_total_of_what_is_shown_ends_a_list_without_links_where_report_ends() -> None:
    """Its second page ends before item 200 when pages overlap, and items 198 and 199 still come."""
    listed = ChangingList(
        Random(1), list(range(200)), 0, hidden=set(range(47)), counts="shown", linked=False
    )

    assert read(repair_walk(100, 0), listed)[0] == list(range(47, 200))


@settings(max_examples=300)
@given(
    seed=st.integers(0, 10**6),
    count=st.integers(0, 300),
    share=st.sampled_from([0, 0.05, 0.25, 0.6, 0.95]),
    counts=st.sampled_from(["all", "shown", "zero"]),
    linked=st.booleans(),
    cap=st.sampled_from([5000, 50, 13]),
    silent=st.booleans(),
    page_size=st.sampled_from([10, 33, 60, 100, 400]),
    prefetch=st.integers(0, 4),
)
def test_repair_gives_no_less_than_report(
    *, seed: int, page_size: int, prefetch: int, count: int, **facts: Any
) -> None:
    """Of a list that stands still, what ``report`` reads comes in the same order, or an error.

    Not covered: a service that does all at once, filters, caps silently, and sends no links.
    """
    capped, filters = facts["cap"] < 5000, facts["share"] > 0
    assume(facts["linked"] or not (capped and filters and facts["silent"]))

    def listed() -> ChangingList:
        return ChangingList(Random(seed), list(range(count)), 0, **facts)

    reported, _ = read(page_walk(page_size, prefetch), listed())
    try:
        repaired, _ = read(repair_walk(page_size, prefetch), listed())
    except ResultSetChanged:
        assert (capped, filters) == (True, True), "large pages reach over what is hidden"
        return

    assert repaired == sorted(set(repaired))
    assert set(reported) <= set(repaired)


@pytest.mark.parametrize("page_size", [51, 60, 100, 500, 5000])
@pytest.mark.parametrize("prefetch", [0, 4])
def test_a_cap_that_is_not_told_is_found_out(page_size: int, prefetch: int) -> None:
    """A service answers with 50 records whatever is requested, and repeats the size requested."""
    listed = standing_list(486, cap=50)
    listed.silent = True

    items, _ = read(repair_walk(page_size, prefetch), listed)

    assert items == list(range(486))
    assert listed.answers <= 13


def test_a_cursor_is_found_though_one_of_its_records_moved() -> None:
    """One of the last items handed out goes anywhere, others are deleted: none is missed."""
    for seed in range(400):
        listed = ChangingList(Random(seed), list(range(150)), 0)
        stop = listed.chance.randint(6, 120)
        before, place = read(repair_walk(10, 0), listed, stop_after=stop)
        for _ in range(listed.chance.randint(0, 3)):
            listed.standing.discard(listed.records.pop(listed.chance.randrange(100)))
        here = [record for record in before[-6:] if record in listed.records]
        moved = listed.records.pop(listed.records.index(listed.chance.choice(here)))
        listed.records.insert(listed.chance.choice([150, 0, stop + 3]), moved)
        listed.standing.discard(moved)

        after, _ = read(repair_walk(10, 0, place), listed)

        assert listed.standing <= {*before, *after}, f"passed over, with seed {seed}"


def test_a_long_list_whose_records_differ_in_each_answer_is_repaired_at_no_great_cost() -> None:
    """That they differ is found out once, at the start of the list, and not again."""
    listed = standing_list(20_000)
    listed.volatile = True

    assert read(repair_walk(1000, 0), listed)[0] == list(range(20_000))
    assert listed.answers < 40


def test_records_that_differ_in_each_answer_are_repaired_all_the_same() -> None:
    """A field such as the time of reading says nothing about whether a record moved."""
    for seed in range(100):
        listed = ChangingList(Random(seed), list(range(400)), 0.2, volatile=True)

        items, _ = read(repair_walk(25, 0), listed)

        assert len(items) == len(set(items))
        assert listed.standing <= set(items)
        assert listed.answers < 100
