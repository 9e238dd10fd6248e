"""Calls shared by the contenders that push with plain aiohttp."""

from __future__ import annotations

from base64 import b64encode
from typing import Any

import aiohttp

from benchmarks.peers._frame import IN_FLIGHT, Job


def session(job: Job, *, raises: bool = False) -> aiohttp.ClientSession:
    credential = b64encode(job.api_key.encode()).decode()
    return aiohttp.ClientSession(
        job.base_url,
        headers={"Authorization": f"Basic {credential}"},
        connector=aiohttp.TCPConnector(limit=IN_FLIGHT),
        raise_for_status=raises,
    )


async def create(
    http: aiohttp.ClientSession, company: str, connection: str, record: dict[str, Any]
) -> dict[str, Any]:
    path = f"/companies/{company}/connections/{connection}/push/invoices"
    async with http.post(path, json=record) as answer:
        operation: dict[str, Any] = await answer.json()
        return operation


async def read(http: aiohttp.ClientSession, operation: dict[str, Any]) -> dict[str, Any]:
    path = f"/companies/{operation['companyId']}/push/{operation['pushOperationKey']}"
    async with http.get(path) as answer:
        now: dict[str, Any] = await answer.json()
        return now
