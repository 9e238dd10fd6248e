"""A list in a virtual service, and pagers of it."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import suppress
from dataclasses import dataclass, field, replace
from typing import Any

from integration_sdk import Client, Listing, Pager
from tests.support.virtual_service import Answer, Asked, Service, refusal

Serve = Callable[[Service], Awaitable[Listing[Any]]]
"""What the fixture ``serve`` is: it takes a service, and returns its list of companies."""


@dataclass(eq=False)
class Records(Service):
    """Pages *items* records ``{"id": index}``; *records* may replace them.

    after: Seconds that a page takes, by its number.
    troubles: By page number: what comes instead of the next answers, first things first.
    most_in_flight: Pages under way at a time, at most.
    """

    items: int = 1000
    after: Callable[[int], float] = lambda number: 0.01
    troubles: dict[int, list[int | Answer]] = field(default_factory=dict)
    records: Callable[[int], Any] = lambda index: {"id": index}
    total: Callable[[int], int] | None = None
    most_in_flight: int = 0

    @property
    def pages(self) -> list[int]:
        return [int(asked.params["page"]) for asked in self.log if "page" in asked.params]

    def carry_out(self, asked: Asked) -> Answer:
        if "page" not in asked.params:
            return super().carry_out(asked)
        self.most_in_flight = max(self.most_in_flight, self.in_flight)
        number, size = int(asked.params["page"]), int(asked.params["pageSize"])
        troubles = self.troubles.get(number)
        trouble = troubles.pop(0) if troubles else Answer(body=self.body(number, size))
        answer = refusal(trouble) if isinstance(trouble, int) else trouble
        return replace(answer, seconds=self.after(number))

    def body(self, number: int, size: int) -> bytes:
        shown = range(self.items)[(number - 1) * size : number * size]
        links = {"current": {"href": f"/companies?page={number}&pageSize={size}"}}
        if number * size < self.items:
            links["next"] = {"href": f"/companies?page={number + 1}&pageSize={size}"}
        page = {
            "results": [self.records(index) for index in shown],
            "pageNumber": number,
            "pageSize": size,
            "totalResults": self.items if self.total is None else self.total(number),
            "_links": links,
        }
        return json.dumps(page, separators=(",", ":")).encode()


def unopened(**options: Any) -> Pager[Any]:
    """Return the list of a client that is not used."""
    return Client("key-of-the-account", "http://localhost").companies.list(**options)


def ids(*ranges: range) -> list[dict[str, int]]:
    return [{"id": index} for each in ranges for index in each]


async def taken_impatiently(reading: AsyncIterator[Any], patience: int | None) -> Any:
    """Return what *reading* gives next; None at its end, or after *patience* turns of the loop."""
    waiting = asyncio.ensure_future(anext(reading, None))
    if patience is None:
        return await waiting
    for _ in range(patience):
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
