"""A service that pages a list in memory, and says when its answers arrive."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import suppress
from typing import Any

import msgspec
from attrs import define, field

from integration_sdk import Pager, Priority
from integration_sdk._http.requests import Request, list_page
from integration_sdk._http.responses import Response
from integration_sdk._list.page import ItemReader, RawPage
from integration_sdk.dialect import Dialect

BASE = "https://service.test"


def open_page(reader: ItemReader, *pieces: bytes) -> RawPage:
    """Read the page that *pieces* hold."""
    return reader.open(b"".join(pieces))


@define(slots=False)
class FakeService:
    """Pages *count* records ``{"id": index}``; *records* may replace them.

    Attributes:
        latency: Seconds that a page takes, by its number.
        troubles: By page number: what comes instead of the next answers, a status or
            an exception each, first things first.
        torn: Bytes of each piece that a body comes in; None for one piece.
        seen: Page number, page size and priority of every request, in order.
        in_flight, most_in_flight: Requests under way, now and at most.
    """

    count: int = 1000
    latency: Callable[[int], float] = lambda _: 0.01
    troubles: dict[int, list[int | Exception]] = field(factory=dict)
    records: Callable[[int], Any] = lambda index: {"id": index}
    total: Callable[[int], int] | None = None
    torn: int | None = None
    seen: list[tuple[int, int, Priority]] = field(factory=list)
    most_in_flight: int = 0
    in_flight: int = 0

    @property
    def pages(self) -> list[int]:
        return [page for page, _, _ in self.seen]

    async def fetch(self, request: Request, *, patience: float | None = None) -> Response:
        query = dict(request.params)
        number, size = int(query["page"]), int(query["pageSize"])
        self.arrived(number, size)
        self.seen.append((number, size, request.priority))
        self.in_flight += 1
        self.most_in_flight = max(self.most_in_flight, self.in_flight)
        try:
            await asyncio.sleep(self.latency(number))
        finally:
            self.in_flight -= 1
        trouble = self.troubles.get(number, [])
        if not trouble:
            body = self.body(number, size)
            return Response(status=200, body=in_pieces(body, self.torn) if self.torn else body)
        match trouble.pop(0):
            case Exception() as error:
                raise error
            case int() as status:
                return Response(status=status, body=b"{}")

    def arrived(self, number: int, size: int) -> None:
        """Note a request before it is answered: a place for what happens meanwhile."""

    def body(self, number: int, size: int) -> bytes:
        shown = range(self.count)[(number - 1) * size : number * size]
        links = {"current": {"href": f"/companies?page={number}&pageSize={size}"}}
        if number * size < self.count:
            links["next"] = {"href": f"/companies?page={number + 1}&pageSize={size}"}
        page = {
            "results": [self.records(index) for index in shown],
            "pageNumber": number,
            "pageSize": size,
            "totalResults": self.count if self.total is None else self.total(number),
            "_links": links,
        }
        return msgspec.json.encode(page)

    def pager(self, page_size: Any = 100, **options: Any) -> Pager[Any]:
        request = list_page(Dialect.document(), "companies.list")
        return Pager(self.fetch, request, base_url=BASE, page_size=page_size, **options)


def in_pieces(body: bytes, size: int) -> list[bytes]:
    """Return *body* as it may be received, never in one piece."""
    return [b"", *(body[at : at + size] for at in range(0, len(body), size))]


def ids(*ranges: range) -> list[dict[str, int]]:
    return [{"id": index} for each in ranges for index in each]


async def taken_impatiently(reading: AsyncIterator[Any], patience: int | None) -> Any:
    """Return what *reading* gives next; None at its end, or after *patience* turns of the loop."""
    waiting = asyncio.ensure_future(anext(reading, None))
    for _ in range(10**6 if patience is None else patience):
        if waiting.done():
            break
        await asyncio.sleep(0)
    waiting.cancel()
    with suppress(asyncio.CancelledError):
        return await waiting


async def settle() -> None:
    """Give cancelled tasks the turns that they need to end."""
    for _ in range(5):
        await asyncio.sleep(0)


def others() -> set[asyncio.Task[Any]]:
    """Tasks beside the one that asks."""
    return asyncio.all_tasks() - {asyncio.current_task()}
