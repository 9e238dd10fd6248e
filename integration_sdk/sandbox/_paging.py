"""Pages: which one is wanted, and the envelope around it.

Source: "Resources and their fields", Page envelope; "Endpoints", Pagination; "Limits".
"""

from __future__ import annotations

from collections.abc import Iterable
from functools import lru_cache
from urllib.parse import quote

from attrs import frozen

from integration_sdk.sandbox._call import Answer, Call, encode

DEFAULT_PAGE_SIZE = 100
MAXIMUM_PAGE_SIZE = 5000
MAXIMUM_PAGE = 2**31 - 1


@frozen
class Page:
    """The page a call asked for."""

    number: int
    size: int

    @property
    def start(self) -> int:
        """Index of its first item."""
        return (self.number - 1) * self.size

    @property
    def stop(self) -> int:
        """Index behind its last item."""
        return self.number * self.size


def wanted_page(call: Call) -> Page:
    """The page *call* asks for, or 400.

    Source: "Limits", default page 1, default page size 100, maximum page size 5000.
    """
    number = call.whole("page", MAXIMUM_PAGE, "Paging") or 1
    size = call.whole("pageSize", MAXIMUM_PAGE_SIZE, "Paging") or DEFAULT_PAGE_SIZE
    return Page(number, min(size, call.world.page_size_cap))


def page_answer(call: Call, page: Page, total: int, rows: Iterable[bytes]) -> Answer:
    """The page envelope around *rows*, each a JSON item."""
    envelope = b'{"results":[%b],"pageNumber":%d,"pageSize":%d,"totalResults":%d,"_links":%b}'
    links = encode(_links(call, page, total))
    return Answer(200, envelope % (b",".join(rows), page.number, page.size, total, links))


def _links(call: Call, page: Page, total: int) -> dict[str, dict[str, str]]:
    last = -(-total // page.size)
    links = {"self": call.path, "current": _href(call, page, page.number)}
    if page.number < last:
        links["next"] = _href(call, page, page.number + 1)
    if page.number > 1:
        links["previous"] = _href(call, page, page.number - 1)
    return {name: {"href": href} for name, href in links.items()}


def _href(call: Call, page: Page, number: int) -> str:
    ours = {"page": str(number), "pageSize": str(page.size)}
    given = [(name, ours.get(name, value)) for name, value in call.params]
    added = [(name, value) for name, value in ours.items() if call.param(name) is None]
    pairs = [f"{_quoted(name)}={_quoted(value)}" for name, value in given + added]
    return f"{call.path}?{'&'.join(pairs)}"


@lru_cache(maxsize=4096)
def _quoted(text: str) -> str:
    return quote(text, safe="")
