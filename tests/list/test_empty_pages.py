"""Lists of empty pages: how many are followed."""

from __future__ import annotations

from itertools import pairwise
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from integration_sdk.errors import ConfigurationError, PaginationError
from tests.support.pager_support import Records, Serve, ids, unopened


def sparse_service(*filled: int, last: int | None = None) -> Records:
    """Return a service of pages of one item, of which all but *filled* are empty.

    Without a *last* page, every page has a next link.
    """
    service = Records(after=lambda _: 0)

    def body(number: int, size: int) -> bytes:
        following = {} if number == last else {"next": {"href": f"?page={number + 1}"}}
        results = [{"id": number}] if number in filled else []
        return msgspec.json.encode({"results": results, "pageNumber": number, "_links": following})

    service.body = body  # type: ignore[method-assign]  # another list than of `count` items
    return service


@pytest.mark.parametrize("prefetch", [0, 4])
async def test_endless_empty_pages_are_an_error_that_names_the_option(
    serve: Serve, prefetch: int
) -> None:
    """The reader stops after ``max_empty_pages`` in a row, and what came before is handed out."""
    service = sparse_service(1, 2)
    companies = await serve(service)
    items = aiter(companies.list(page_size=1, prefetch=prefetch, max_empty_pages=50))

    assert [await anext(items), await anext(items)] == [{"id": 1}, {"id": 2}]
    with pytest.raises(PaginationError, match="max_empty_pages=") as raised:
        await anext(items)

    assert raised.value.page == 53
    assert max(service.pages) == 53


async def test_a_limit_does_not_hide_endless_empty_pages(serve: Serve) -> None:
    """A limit that is never reached ends nothing."""
    with pytest.raises(PaginationError, match="51 pages in a row are empty"):
        await (
            (await serve(sparse_service())).list(page_size=1, limit=5, max_empty_pages=50).collect()
        )


async def test_an_iterator_that_has_raised_is_over(serve: Serve) -> None:
    """There is no silent way on: the error's cursor is the way on."""
    items = aiter(
        (await serve(sparse_service(1, 80, last=81))).list(page_size=1, max_empty_pages=50)
    )
    await anext(items)

    with pytest.raises(PaginationError):
        await anext(items)

    assert [item async for item in items] == []


async def test_a_cursor_goes_on_behind_empty_pages(serve: Serve) -> None:
    """Another run, with a larger ``max_empty_pages``, continues where the error was raised."""
    service = sparse_service(1, 80, last=81)
    companies = await serve(service)
    items = aiter(companies.list(page_size=1, max_empty_pages=50))
    await anext(items)
    with pytest.raises(PaginationError) as raised:
        await anext(items)

    further = companies.list(page_size=1, max_empty_pages=100, cursor=raised.value.cursor)

    assert await further.collect() == [{"id": 80}]


@given(st.sets(st.integers(1, 40), min_size=1), st.integers(0, 12))
async def test_only_pages_in_a_row_are_counted(filled: set[int], most: int) -> None:
    """A list is read to its end exactly if no stretch of empty pages is longer than allowed."""
    last = max(filled)
    edges = [0, *sorted(filled)]
    longest = max(after - before - 1 for before, after in pairwise(edges))
    expected = [{"id": number} for number in sorted(filled)]

    async with sparse_service(*filled, last=last).client() as client:
        pager = client.companies.list(page_size=1, max_empty_pages=most)
        if longest <= most:
            assert await pager.collect() == expected
        else:
            with pytest.raises(PaginationError):
                await pager.collect()


@pytest.mark.parametrize("value", [-1, 1.5, "many"])
def test_the_bound_is_a_whole_number(value: Any) -> None:
    """Anything else is refused before anything is sent."""
    with pytest.raises(ConfigurationError, match="max_empty_pages"):
        unopened(max_empty_pages=value)


async def test_the_empty_end_of_a_list_is_no_error(serve: Serve) -> None:
    """A single empty page is the usual answer for a list without items."""
    assert await (await serve(Records(items=0))).list(max_empty_pages=0).collect() == ids()
