"""`integration_sdk`, as README shows it."""

from __future__ import annotations

import sys
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from importlib import import_module
from typing import Any

from benchmarks.peers._frame import COMPANY, Job, Known, pushes, reads
from integration_sdk import Client
from integration_sdk._list.pager import Pager


@asynccontextmanager
async def read(job: Job) -> AsyncIterator[Pager[Any]]:
    # More pages ahead than the requests allowed per company would only wait.
    at_once = max(job.prefetch, 10)
    async with Client(job.api_key, job.base_url, per_company=at_once) as client:
        listed = client.company(COMPANY).data("invoices").list
        pages: dict[str, Any] = {"page_size": job.page_size, "prefetch": job.prefetch}
        if job.model:
            pages["model"] = import_module("benchmarks.peers.sdk_records").MODELS[job.model]
        yield listed(**pages)


async def push(job: Job) -> Known:
    from integration_sdk import Dialect, PushRequest  # noqa: PLC0415 - readers do not need it

    known: Known = {}
    requests = (
        PushRequest(company, connection, "invoices", record)
        for company, connection, record in job.records()
    )
    async with (
        Client(job.api_key, job.base_url, dialect=Dialect.published()) as client,
        client.coordinator(max_open=job.pushes) as coordinator,
    ):
        async for outcome in coordinator.run(requests):
            if outcome.operation is not None and outcome.operation.is_final:
                known[outcome.operation.push_operation_key] = time.time()
    return known


if __name__ == "__main__":
    if sys.argv[2] == "read":
        reads(read)
    else:
        # What the SDK imports on first use: imports are not measured for any contender.
        import aiohttp  # noqa: F401 - loaded early

        from integration_sdk import Coordinator  # noqa: F401 - loaded early

        pushes(push)
