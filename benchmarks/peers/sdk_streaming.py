"""`integration_sdk`, as README shows it."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

from benchmarks.peers._frame import COMPANY, Job, reads_async
from integration_sdk import Client
from integration_sdk._list.pager import Pager


@asynccontextmanager
async def reading(job: Job) -> AsyncIterator[Pager[dict[str, Any]]]:
    # More pages ahead than the requests allowed per company would only wait.
    at_once = max(job.prefetch, 10)
    async with Client(job.api_key, job.base_url, per_company=at_once) as client:
        invoices = client.company(COMPANY).data("invoices")
        yield invoices.list(page_size=job.page_size, prefetch=job.prefetch)


if __name__ == "__main__":
    reads_async(reading)
