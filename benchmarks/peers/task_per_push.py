"""A task per push, each polling its own push every second."""

from __future__ import annotations

import asyncio
import time
from typing import Any

import aiohttp

from benchmarks.peers._frame import FINAL, POLL_EVERY, Job, Known, pushes_async
from benchmarks.peers._plain_pushing import create, read, session


async def push(job: Job) -> Known:
    async with session(job) as http, asyncio.TaskGroup() as tasks:
        settled = [tasks.create_task(_settle(http, *one)) for one in job.records()]
    return dict(task.result() for task in settled)


async def _settle(
    http: aiohttp.ClientSession, company: str, connection: str, record: dict[str, Any]
) -> tuple[str, float]:
    operation = await create(http, company, connection, record)
    while operation["status"] not in FINAL:
        await asyncio.sleep(POLL_EVERY)
        operation = await read(http, operation)
    return operation["pushOperationKey"], time.time()


if __name__ == "__main__":
    pushes_async(push)
