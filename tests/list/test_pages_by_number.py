"""A list as a view of pages: "page 3 of 124"; and what people see who take a wrong turn."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from integration_sdk import Client
from integration_sdk.errors import ConfigurationError, IntegrationError
from integration_sdk.models import Page
from integration_sdk.sandbox import Sandbox


@pytest.fixture
async def client() -> AsyncIterator[Client]:
    async with (
        Sandbox(companies=124) as sandbox,
        Client(sandbox.api_key, sandbox.base_url) as connected,
    ):
        yield connected


async def test_one_page_is_read_by_its_number(client: Client) -> None:
    """``list(page=3, page_size=50)`` is the third page, and says how many there are."""
    everything = await client.companies.list().collect()

    page = await client.companies.list(page=3, page_size=50)
    assert (page.page_number, page.total_pages) == (3, 3)
    assert page.results == everything[100:]
    assert (await client.companies.list(page=2)).results == everything[100:]
    assert (await client.companies.list(page=1)).results == everything[:100]
    assert (await client.companies.list(page=4, page_size=50)).results == []


@pytest.mark.parametrize("on_drift", ["raise", "repair"])
async def test_a_list_may_begin_at_a_page(client: Client, on_drift: Any) -> None:
    """What is iterated over begins there; progress and cursors count from the list's start."""
    everything = await client.companies.list().collect()
    later = client.companies.list(page=2, page_size=30, on_drift=on_drift)

    assert await later.collect() == everything[30:]
    assert later.progress.done == later.progress.total == 124
    assert later.report.drift == []

    some = client.companies.list(page=2, page_size=30, on_drift=on_drift, limit=50)
    assert await some.collect() == everything[30:80]
    rest = client.companies.list(page_size=30, cursor=some.cursor)
    assert await rest.collect() == everything[80:]


@pytest.mark.parametrize(
    ("options", "what"),
    [
        ({"page": 0}, "page"),
        ({"page": True}, "page"),
        ({"page": "3"}, "page"),
        ({"page": 2, "cursor": "1.abc"}, "cursor"),
        ({"page": 2, "checkpoint": "place.txt"}, "checkpoint"),
    ],
)
async def test_a_page_that_cannot_be_is_refused(
    client: Client, options: dict[str, Any], what: str
) -> None:
    """Before any request, with the option that is wrong."""
    with pytest.raises(ConfigurationError, match=what):
        client.companies.list(**options)


@given(st.integers(0, 10**12), st.integers(1, 5000))
def test_total_pages_are_as_many_as_hold_the_results(total: int, size: int) -> None:
    """The last page may be shorter, and no page is empty."""
    pages = Page[int](results=[], page_number=1, page_size=size, total_results=total).total_pages
    assert (pages - 1) * size < total <= pages * size or (total, pages) == (0, 0)


async def test_a_page_is_short_to_look_at(client: Client) -> None:
    """``print(page)`` in a shell is a line, not five thousand records."""
    page = await client.companies.list(page_size=50)

    shown = "ListPage(results=[50 items], page_number=1, page_size=50, total_results=124)"
    assert repr(page) == shown


async def test_a_plain_for_says_what_to_write(client: Client) -> None:
    """Python's own message would be "'Pager' object is not iterable"."""
    companies: Any = client.companies.list()
    with pytest.raises(TypeError, match="use 'async for'"):
        for _ in companies:
            pass
    with pytest.raises(TypeError, match="collect"):
        list(companies)


@pytest.mark.parametrize("key", ['a"b', "a\\b", "\u00fc", "a b", "id"])
@pytest.mark.parametrize("on_drift", ["report", "warn", "repair"])
async def test_a_key_may_have_any_name(client: Client, key: str, on_drift: Any) -> None:
    """No name of a field is an error of another library; repair says that the key is missing."""
    companies = client.companies.list(key=key, on_drift=on_drift)
    if on_drift == "repair" and key != "id":
        with pytest.raises(IntegrationError, match="key"):
            await companies.collect()
    else:
        assert len(await companies.collect()) == 124
