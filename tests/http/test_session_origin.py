"""The key goes to one origin, whatever ids and links come along."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator

import pytest
from attrs import evolve
from yarl import URL

from integration_sdk import models
from integration_sdk._http.requests import Request, custom, segment
from integration_sdk._list.links import Cursor, Links
from integration_sdk._list.page import RawPage
from integration_sdk.dialect import Dialect
from integration_sdk.errors import ConfigurationError, PaginationError
from tests.support.session_support import ONE_CALL, always, answer, raw_server, read, session_on

BASE = "https://api.example.com/prefix"
PIECES = [
    *["..", ".", "/", "//", "\\", "?", "#", "@", ":", ";", "&", "=", "%", "%2e", "%2f", "%5c"],
    *["%00", "%0d%0a", "\r\n", "\t", " ", "\0", "\u2028", "\u202e", "é", "\u2044", "\uff0f"],
    *["evil.example", "//evil.example", "https://evil.example/", "@evil.example", "[::1]"],
    *["companies", "8a210b68-6988-11ed-a1eb-0242ac120002", "page=2", "javascript:", "x" * 99],
]


def hostile(count: int, seed: int = 1) -> Iterator[str]:
    chance = random.Random(seed)
    for _ in range(count):
        yield "".join(chance.choices(PIECES, k=chance.randint(1, 5)))


def sent_to(request: Request) -> URL:
    """Return the URL as `Transport` makes it."""
    return URL(BASE + request.target, encoded=True)


def is_safe(request: Request, segments: int) -> bool:
    url = sent_to(request)
    parts = url.raw_path.split("/")
    return (
        (url.scheme, url.host, url.port, url.user) == ("https", "api.example.com", 443, None)
        and parts[1] == "prefix"
        and len(parts) == 2 + segments
        and not {".", ".."} & set(parts)
        and not url.raw_fragment
        and request.target.isascii()
        and request.target.isprintable()
    )


def followed(link: str, base_url: str = BASE) -> Request:
    """Return the request that a ``next`` link of a list leads to."""
    first = read("/companies")
    walk = Links(first, base_url, Cursor("", "page=1"))
    page = RawPage(number=1, links=models.Links(next=link))
    opened = walk.opened(walk.first(), page)
    if opened.problem is not None:
        raise opened.problem
    return evolve(first, raw_query=opened.following)


def in_a_path(text: str) -> Request:
    return read(f"/companies/{segment('company_id', text)}/data")


WAYS: dict[str, tuple[Callable[[str], Request], int]] = {
    "an id": (in_a_path, 3),
    "a link": (followed, 1),
    "a link's query": (lambda text: followed(f"?{text}"), 1),
    "a path of the caller's": (lambda text: custom(Dialect.document(), "GET", f"/{text}"), 0),
}


@pytest.mark.parametrize("way", WAYS)
def test_nothing_leads_elsewhere(way: str) -> None:
    """Whatever is given is refused, or stays below the path and the host that are ours."""
    make, segments = WAYS[way]
    taken = 0
    for text in hostile(3000):
        try:
            request = make(text)
        except (ConfigurationError, PaginationError):
            continue
        taken += 1
        assert is_safe(request, segments or request.path.count("/")), text
    assert taken > 200


async def test_a_second_origin_sees_nothing() -> None:
    """Ids and links that name a canary server bring it no connection."""
    async with raw_server(always(answer())) as canary, raw_server(always(answer())) as server:
        there = f"127.0.0.1:{canary.port}"
        async with session_on(server) as session:
            for text in (f"//{there}/", f"http://{there}/x?y=1", f"@{there}", f"\\\\{there}"):
                await session.send(followed(f"?{text}", session.base_url), ONE_CALL)
                with pytest.raises(PaginationError):
                    followed(text, session.base_url)
                with pytest.raises(ConfigurationError):
                    segment("company_id", text + "/")

    assert (canary.connections, len(server.requests)) == (0, 4)
