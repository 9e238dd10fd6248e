"""Bare backoff: ``on_exception`` around the push, ``on_predicate`` around the poll."""

from __future__ import annotations

import asyncio
import time
from typing import Any

import aiohttp
import backoff

from benchmarks.peers._frame import FINAL, Job, Known, pushes_async
from benchmarks.peers._plain_pushing import create, read, session


def _is_open(operation: dict[str, Any]) -> bool:
    return operation["status"] not in FINAL


create = backoff.on_exception(backoff.expo, aiohttp.ClientError, max_tries=8)(create)
read_until_final = backoff.on_predicate(backoff.expo, _is_open, max_value=10)(
    backoff.on_exception(backoff.expo, aiohttp.ClientError, max_tries=8)(read)
)


async def push(job: Job) -> Known:
    async with session(job, raises=True) as http, asyncio.TaskGroup() as tasks:
        settled = [tasks.create_task(_settle(http, *one)) for one in job.records()]
    return dict(task.result() for task in settled)


async def _settle(
    http: aiohttp.ClientSession, company: str, connection: str, record: dict[str, Any]
) -> tuple[str, float]:
    operation = await create(http, company, connection, record)
    operation = await read_until_final(http, operation)
    return operation["pushOperationKey"], time.time()


if __name__ == "__main__":
    pushes_async(push)
