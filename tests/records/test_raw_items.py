"""Items as the bytes that the service wrote."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from typing import Any

import msgspec
import pytest

from integration_sdk import Client
from integration_sdk.sandbox import Sandbox


@pytest.fixture
async def client() -> AsyncIterator[Client]:
    async with (
        Sandbox(companies=250) as sandbox,
        Client(sandbox.api_key, sandbox.base_url) as connected,
    ):
        yield connected


@pytest.mark.parametrize("on_drift", ["report", "warn", "raise", "repair"])
async def test_bytes_are_those_of_the_items(client: Client, on_drift: Any) -> None:
    """In their order and number, whatever watches the list; nothing of the envelope."""
    items = await client.companies.list().collect()
    pager = client.companies.list(on_drift=on_drift)

    raws = [raw async for raw in pager.raw()]

    assert {type(raw) for raw in raws} == {bytes}
    assert [json.loads(raw) for raw in raws] == items
    assert (pager.report.items, pager.progress.done) == (250, 250)


async def test_bytes_can_be_resumed(client: Client) -> None:
    """A cursor taken between two items goes on after the first, as bytes or decoded."""
    items = await client.companies.list().collect()
    pager = client.companies.list(page_size=30)
    async for raw in pager.raw():
        if json.loads(raw) == items[100]:
            break

    rest = client.companies.list(page_size=30, cursor=pager.cursor)
    assert [json.loads(raw) async for raw in rest.raw()] == items[101:]


async def test_undecoded_items_come_in_pages_and_chunks(client: Client) -> None:
    """``model=msgspec.Raw`` does for every way of reading what `raw` does for one."""
    items = await client.companies.list().collect()

    companies = client.companies.list(model=msgspec.Raw)
    first = await companies
    assert [json.loads(bytes(raw)) for raw in first.results] == items[:100]
    chunks = [chunk async for chunk in companies.chunks(120)]
    assert [len(chunk) for chunk in chunks] == [120, 120, 10]
    assert [json.loads(bytes(raw)) for chunk in chunks for raw in chunk] == items
