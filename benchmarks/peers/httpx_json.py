"""httpx and its ``json()``, following ``_links.next``."""

# mypy: disable-error-code="import-not-found"
# It lives in an environment of its own.

from __future__ import annotations

from collections.abc import AsyncGenerator, AsyncIterator
from contextlib import aclosing, asynccontextmanager
from typing import Any

import httpx

from benchmarks.peers._frame import COMPANY, Job, reads_async


async def invoices(job: Job) -> AsyncGenerator[dict[str, Any], None]:
    target = f"/companies/{COMPANY}/data/invoices?page=1&pageSize={job.page_size}"
    async with httpx.AsyncClient(base_url=job.base_url) as client:
        while target:
            answer = await client.get(target)
            page = answer.raise_for_status().json()
            for item in page["results"]:
                yield item
            target = page["_links"].get("next", {}).get("href")


@asynccontextmanager
async def reading(job: Job) -> AsyncIterator[AsyncGenerator[dict[str, Any], None]]:
    async with aclosing(invoices(job)) as items:
        yield items


if __name__ == "__main__":
    reads_async(reading)
