"""Pages: parse which one is requested, write the envelope, and page lists held in memory.

Source: "Resources and their fields", Page envelope; "Endpoints", Pagination; "Limits".
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Sequence
from functools import lru_cache
from typing import TypeVar
from urllib.parse import quote

from attrs import frozen

from integration_sdk.sandbox._call import Answer, Call, encode
from integration_sdk.sandbox._calls.query import Chooser

DEFAULT_PAGE_SIZE = 100
MAXIMUM_PAGE_SIZE = 5000
MAXIMUM_PAGE = 2**31 - 1
T = TypeVar("T")


@frozen
class Page:
    """The page that a call requests."""

    number: int
    size: int

    @property
    def start(self) -> int:
        """Index of its first item."""
        return (self.number - 1) * self.size

    @property
    def stop(self) -> int:
        """Index after its last item."""
        return self.number * self.size


def wanted_page(call: Call) -> Page:
    """Return the page that *call* requests, or 400.

    Source: "Limits", default page 1, default page size 100, maximum page size 5000.
    """
    number = call.whole("page", MAXIMUM_PAGE, "Paging") or 1
    size = call.whole("pageSize", MAXIMUM_PAGE_SIZE, "Paging") or DEFAULT_PAGE_SIZE
    return Page(number, min(size, call.world.page_size_cap))


def page_answer(call: Call, page: Page, total: int, rows: Iterable[bytes]) -> Answer:
    """Return the page envelope around *rows*, each a JSON item."""
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


def listed(
    call: Call,
    items: Sequence[T],
    write: Callable[[T], bytes],
    *,
    rare: bytes = b"{}",
    ordered: Collection[str] = (),
) -> Answer:
    """Return the requested page of *items*, filtered, ordered, and written by *write*.

    *rare* is a row of the properties that not every item has, *ordered* the values of ``orderBy``
    by which the items are already ordered.
    """
    page, query, order_by = wanted_page(call), call.param("query"), call.param("orderBy")
    if query or (order_by and order_by not in ordered):
        chooser = Chooser(query, None if order_by in ordered else order_by)
        rows = list(map(write, items))
        if rows:
            chooser.check([rows[0], rare], rows)
        chooser.look(range(len(rows)), rows)
        items = [items[number] for number in chooser.chosen()]
    return page_answer(call, page, len(items), map(write, items[page.start : page.stop]))
