"""Lists that change while they are read: what is noticed."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from integration_sdk._list.drift import DriftWatch, Keys, shortfall
from integration_sdk._list.page import ItemReader, RawPage
from tests.pager_support import open_page

READER = ItemReader.of()
KEYS = Keys.of("id", READER.value)


def page(*keys: int, total: int | None = None, number: int = 2) -> RawPage:
    facts = {"pageNumber": number, "totalResults": total}
    return open_page(
        READER, msgspec.json.encode({"results": [{"id": key} for key in keys], **facts})
    )


def noticed(
    before: RawPage | None, after: RawPage, total: int | None = None
) -> list[tuple[str, str]]:
    return [(drift.kind, drift.detail) for drift in DriftWatch(KEYS).compare(before, after, total)]


def test_a_list_that_stands_still_shows_nothing() -> None:
    """Pages that follow each other, and a total that is not known or stays, are no drift."""
    assert noticed(None, page(1, 2)) == []
    assert noticed(page(1, 2), page(3, 4)) == []
    assert noticed(page(1, 2), page(3, 4, total=4), total=4) == []
    assert noticed(page(1, 2), page()) == []


def test_items_that_moved_over_the_border_are_noticed_though_the_total_stays() -> None:
    """An insert here and a delete there leave the total as it was."""
    assert noticed(page(1, 2, 3), page(2, 3, 4)) == [
        ("duplicate", "2 of its items were on the page before too")
    ]


def test_items_are_compared_where_the_total_moves() -> None:
    """However far they moved, and wherever on the page they stand."""
    assert noticed(page(1, 2), page(3, total=9), total=7) == [
        ("total", "totalResults went from 7 to 9")
    ]
    both = noticed(page(*range(100)), page(500, *range(40), total=9), total=7)
    assert [kind for kind, _ in both] == ["total", "duplicate"]


def test_a_list_that_ends_early_or_late_is_noticed() -> None:
    """The items handed out are held against ``totalResults``."""
    assert list(shortfall(7, 7, 1)) == list(shortfall(7, None, 1)) == []
    assert [drift.kind for drift in shortfall(7, 9, 1)] == ["count"]


@pytest.mark.parametrize("key", ["id", lambda item: item["id"]])
def test_a_key_is_a_name_or_a_function(key: Any) -> None:
    """Both read the same; an item without one has None."""
    raws = page(1, 2).raws
    other = open_page(READER, b'{"results":[{"name":1},[],{"id":[1]}]}').raws

    assert Keys.of(key, READER.value).read(raws) == [1, 2]
    assert Keys.of(key, READER.value).read(other) == [None, None, None]
