"""Push everything with gather; then, every second, read all pushes that are still open."""

from __future__ import annotations

import asyncio
import time

from benchmarks.peers._frame import FINAL, POLL_EVERY, Job, Known, pushes_async
from benchmarks.peers._plain_pushing import create, read, session


async def push(job: Job) -> Known:
    known: Known = {}
    async with session(job) as http:
        operations = await asyncio.gather(*(create(http, *one) for one in job.records()))
        while True:
            for operation in operations:
                if operation["status"] in FINAL:
                    known[operation["pushOperationKey"]] = time.time()
            still_open = [one for one in operations if one["status"] not in FINAL]
            if not still_open:
                return known
            await asyncio.sleep(POLL_EVERY)
            operations = await asyncio.gather(*(read(http, one) for one in still_open))


if __name__ == "__main__":
    pushes_async(push)
