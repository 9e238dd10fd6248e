"""aiohttp POSTs of records that are already encoded, without asking how they ended."""

from __future__ import annotations

import asyncio
import json
import time

from benchmarks.peers._frame import IN_FLIGHT, Job, Known, pushes_async
from benchmarks.peers._plain_pushing import session


async def push(job: Job) -> Known:
    known: Known = {}
    bodies = (
        (company, connection, json.dumps(record).encode())
        for company, connection, record in job.records()
    )
    async with session(job) as http:

        async def sender() -> None:
            for company, connection, body in bodies:
                path = f"/companies/{company}/connections/{connection}/push/invoices"
                headers = {"Content-Type": "application/json"}
                async with http.post(path, data=body, headers=headers) as answer:
                    await answer.read()
                    answer.raise_for_status()
                known[str(len(known))] = time.time()

        await asyncio.gather(*(sender() for _ in range(IN_FLIGHT)))
    return known


if __name__ == "__main__":
    pushes_async(push)
