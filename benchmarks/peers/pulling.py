"""`integration_sdk`: one way to bring invoices into a file; ``model`` says which.

``raw`` reads alone; ``pull:FORMAT`` is ``client.pull``; ``memory:FORMAT`` feeds the same sink
from memory; ``loop:FORMAT`` reads and writes in one task, without threads; ``script`` is aiohttp,
json and a line of NDJSON, as most people write it.
"""

from __future__ import annotations

import asyncio
import json
from base64 import b64encode
from collections.abc import Awaitable, Callable
from pathlib import Path
from tempfile import mkdtemp
from typing import Any

import aiohttp
from msgspec.structs import replace

from benchmarks.peers._frame import Job, pulls
from integration_sdk import Client, Pull, UnitReceipt
from integration_sdk._options_given import PullOptions
from integration_sdk._pull.reader import open_sink
from integration_sdk._pull.unit import Unit
from integration_sdk._records import columns

LOADED = (Pull, columns)
"""What is imported on first use; imports are not measured for any contender."""
PART = 32 << 20
PAGE = 1_000
Work = Callable[[], Awaitable[int]]


async def prepare(job: Job) -> Work:
    """Return the work, once everything that it is not about is ready."""
    how, _, format_ = job.model.partition(":")
    place = Path(mkdtemp()) / ("out.duckdb" if format_ == "duckdb" else "out")
    to = job.lanes[0][0] if format_ == "postgres" else str(place)
    companies = [company for company, _ in job.lanes[1:]]
    if how == "raw":
        return lambda: _read(job, companies)
    if how == "pull":
        return lambda: _pull(job, to, format_)
    if how == "script":
        return lambda: _script(job, companies, place)
    writer = await _Writer.open(to, format_)
    if how == "loop":
        return lambda: _loop(job, companies, writer)
    items: list[bytes] = []
    await _read(job, companies[:1], items)
    return lambda: _memory(items, writer)


async def _read(job: Job, companies: list[str], into: list[bytes] | None = None) -> int:
    async def one(company: str) -> int:
        count = 0
        async for item in client.company(company).data("invoices").list(page_size=PAGE).raw():
            count += 1
            if into is not None:
                into.append(item)
        return count

    async with Client(job.api_key, job.base_url) as client:
        return sum(await asyncio.gather(*map(one, companies)))


async def _pull(job: Job, to: str, format_: Any) -> int:
    async with Client(job.api_key, job.base_url) as client:
        receipt = await client.pull(["invoices"], to=to, format=format_)
    assert not receipt.errors, receipt.errors
    return receipt.rows


async def _script(job: Job, companies: list[str], place: Path) -> int:
    credential = b64encode(job.api_key.encode()).decode()
    headers = {"Authorization": f"Basic {credential}"}
    count = 0
    with place.open("w") as file:
        async with aiohttp.ClientSession(job.base_url, headers=headers) as session:
            for company in companies:
                target = f"/companies/{company}/data/invoices?page=1&pageSize={PAGE}"
                while target:
                    async with session.get(target) as answer:
                        page = await answer.json()
                    file.writelines(json.dumps(record) + "\n" for record in page["results"])
                    count += len(page["results"])
                    target = page["_links"].get("next", {}).get("href")
    return count


class _Writer:
    """A sink without a loop around it."""

    def __init__(self, sink: Any, unit: Unit) -> None:
        self.sink = sink
        self.unit = unit

    @classmethod
    async def open(cls, to: str, format_: Any) -> _Writer:
        sink = open_sink(PullOptions(data_types=["invoices"], to=to, format=format_))
        await sink.open()
        receipt = UnitReceipt(company_id="company", company="company", data_type="invoices")
        unit = Unit(receipt)
        await sink.begin(unit, full=False)
        return cls(sink, unit)

    async def write(self, items: list[bytes]) -> None:
        state = self.unit.state
        after = replace(state, read=state.read + len(items))
        await self.sink.commit(self.unit, items, after)


async def _loop(job: Job, companies: list[str], writer: _Writer) -> int:
    items: list[bytes] = []
    size = count = 0
    async with Client(job.api_key, job.base_url) as client:
        for company in companies:
            async for item in client.company(company).data("invoices").list(page_size=PAGE).raw():
                items.append(item)
                size += len(item)
                count += 1
                if size >= PART:
                    await writer.write(items)
                    items, size = [], 0
    await writer.write(items)
    return count


async def _memory(items: list[bytes], writer: _Writer) -> int:
    step = max(1, PART // len(items[0]))
    for start in range(0, len(items), step):
        await writer.write(items[start : start + step])
    return len(items)


if __name__ == "__main__":
    pulls(prepare)
