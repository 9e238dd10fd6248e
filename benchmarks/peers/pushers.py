"""Pushers with plain aiohttp: what people write today, and POSTs alone, the machine's limit."""

from __future__ import annotations

import asyncio
import time
from base64 import b64encode
from typing import Any

import aiohttp
import backoff
import msgspec

from benchmarks.peers._frame import FINAL, IN_FLIGHT, POLL_EVERY, Job, Known, pushes

Operation = dict[str, Any]


def _session(job: Job, *, raises: bool = False) -> aiohttp.ClientSession:
    credential = b64encode(job.api_key.encode()).decode()
    return aiohttp.ClientSession(
        job.base_url,
        headers={"Authorization": f"Basic {credential}", "Content-Type": "application/json"},
        connector=aiohttp.TCPConnector(limit=IN_FLIGHT),
        raise_for_status=raises,
    )


def _path(company: str, connection: str) -> str:
    return f"/companies/{company}/connections/{connection}/push/invoices"


async def _create(
    http: aiohttp.ClientSession, company: str, connection: str, record: dict[str, Any]
) -> Operation:
    async with http.post(_path(company, connection), json=record) as answer:
        operation: Operation = await answer.json()
        return operation


async def _read(http: aiohttp.ClientSession, operation: Operation) -> Operation:
    path = f"/companies/{operation['companyId']}/push/{operation['pushOperationKey']}"
    async with http.get(path) as answer:
        now: Operation = await answer.json()
        return now


def _is_open(operation: Operation) -> bool:
    return operation["status"] not in FINAL


async def posts(job: Job) -> Known:
    """POST records, without asking how they ended."""
    known: Known = {}
    bodies = (
        (company, connection, msgspec.json.encode(record))
        for company, connection, record in job.records()
    )
    async with _session(job) as http:

        async def sender() -> None:
            for company, connection, body in bodies:
                async with http.post(_path(company, connection), data=body) as answer:
                    await answer.read()
                    answer.raise_for_status()
                known[str(len(known))] = time.time()

        await asyncio.gather(*(sender() for _ in range(IN_FLIGHT)))
    return known


async def task_per_push(job: Job) -> Known:
    """A task per push, each polling its own push every second."""

    async def settle(*one: Any) -> tuple[str, float]:
        operation = await _create(http, *one)
        while _is_open(operation):
            await asyncio.sleep(POLL_EVERY)
            operation = await _read(http, operation)
        return operation["pushOperationKey"], time.time()

    async with _session(job) as http:
        return dict(await asyncio.gather(*(settle(*one) for one in job.records())))


async def gather_and_sleep(job: Job) -> Known:
    """Push everything with gather; then, every second, read all pushes that are still open."""
    known: Known = {}
    async with _session(job) as http:
        operations = await asyncio.gather(*(_create(http, *one) for one in job.records()))
        while True:
            still_open = [one for one in operations if _is_open(one)]
            ended = [one for one in operations if not _is_open(one)]
            known |= {one["pushOperationKey"]: time.time() for one in ended}
            if not still_open:
                return known
            await asyncio.sleep(POLL_EVERY)
            operations = await asyncio.gather(*(_read(http, one) for one in still_open))


async def bare_backoff(job: Job) -> Known:
    """Bare backoff: ``on_exception`` around the push, ``on_predicate`` around the poll."""
    safely = backoff.on_exception(backoff.expo, aiohttp.ClientError, max_tries=8)
    create = safely(_create)
    read_until_final = backoff.on_predicate(backoff.expo, _is_open, max_value=10)(safely(_read))

    async def settle(*one: Any) -> tuple[str, float]:
        operation = await read_until_final(http, await create(http, *one))
        return operation["pushOperationKey"], time.time()

    async with _session(job, raises=True) as http:
        return dict(await asyncio.gather(*(settle(*one) for one in job.records())))


if __name__ == "__main__":
    pushes(posts, task_per_push, gather_and_sleep, bare_backoff)
