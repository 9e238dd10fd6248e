"""`integration_sdk`: the coordinator, as README shows it."""

from __future__ import annotations

import time

import aiohttp

from benchmarks.peers._frame import Job, Known, pushes_async
from integration_sdk import Client, Coordinator, Dialect, PushRequest

LOADED = (aiohttp, Coordinator)
"""What the SDK imports on first use; imports are not measured for any contender."""


async def push(job: Job) -> Known:
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
    pushes_async(push)
