"""aioresponses works on every aiohttp the SDK supports."""

from __future__ import annotations

import aiohttp
import pytest
from aioresponses import aioresponses

from integration_sdk.testing import patched_aioresponses

URL = "https://api.example.com/companies"


class Loud(aiohttp.ClientResponse):
    """A response class of one's own."""


@pytest.mark.parametrize("size", [0, 131_072, 131_073, 5_000_000])
async def test_a_body_of_any_size_is_read(
    integration_aioresponses: aioresponses, size: int
) -> None:
    """Bodies beyond a stream's high-water mark arrive whole, at once or in pieces.

    A mocked failure is raised, and a response class of one's own is used.
    """
    integration_aioresponses.get(URL, body=b"x" * size, headers={"X-Page": "1"}, repeat=True)
    integration_aioresponses.post(URL, exception=aiohttp.ServerDisconnectedError())
    integration_aioresponses.put(URL, response_class=Loud)

    async with aiohttp.ClientSession() as session:
        async with session.get(URL) as answer:
            assert (answer.status, answer.headers["X-Page"]) == (200, "1")
            assert len(await answer.read()) == size
        async with session.get(URL) as answer:
            assert sum([len(piece) async for piece in answer.content.iter_chunked(4096)]) == size
        with pytest.raises(aiohttp.ServerDisconnectedError):
            await session.post(URL)
        async with session.put(URL) as answer:
            assert type(answer) is Loud


async def test_nothing_is_changed_afterwards() -> None:
    """The repair is gone when the block ends, by an exception too."""
    before = aiohttp.ClientResponse.__init__, aiohttp.ClientSession._request

    with pytest.raises(KeyError), patched_aioresponses():
        raise KeyError

    assert (aiohttp.ClientResponse.__init__, aiohttp.ClientSession._request) == before
