"""The guide's web service with several workers under uvicorn: each reference is one record."""

from __future__ import annotations

import asyncio
import json
import os
import random
import signal
import socket
import sys
from collections import Counter
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import aiohttp
import pytest
from attrs import Factory, define

from integration_sdk.sandbox import Sandbox
from tests.support.postgres import Server
from tests.support.sandbox_support import DELIVERY

GUIDE = (Path(__file__).parents[2] / "integration_sdk/docs/guides/web-service.md").read_text()
PROGRAM = next(one for one in GUIDE.split("```python\n") if "FastAPI(" in one).split("```")[0]


@define
class Workers:
    """Processes that serve one socket, started again when they are killed."""

    _folder: Path
    _environment: dict[str, str]
    _socket: int
    running: list[asyncio.subprocess.Process] = Factory(list)

    async def start(self) -> None:
        self.running.append(
            await asyncio.create_subprocess_exec(
                *(sys.executable, "-m", "uvicorn", "service:app", "--log-level", "warning"),
                *("--fd", str(self._socket)),
                pass_fds=(self._socket,),
                cwd=self._folder,
                env=os.environ | self._environment,
            )
        )

    async def replace(self, how: signal.Signals) -> None:
        worker = self.running.pop(0)
        worker.send_signal(how)
        await worker.wait()
        await self.start()

    async def stop(self) -> list[int | None]:
        for worker in self.running:
            worker.send_signal(signal.SIGTERM)
        return [await worker.wait() for worker in self.running]


@asynccontextmanager
async def serving(
    folder: Path, environment: dict[str, str], count: int
) -> AsyncIterator[tuple[Workers, str]]:
    with socket.create_server(("127.0.0.1", 0), backlog=500) as listening:
        workers = Workers(folder, environment, listening.fileno())
        try:
            for _ in range(count):
                await workers.start()
            yield workers, f"http://127.0.0.1:{listening.getsockname()[1]}"
        finally:
            for worker in workers.running:
                if worker.returncode is None:
                    worker.kill()
                    await worker.wait()


async def asked(session: aiohttp.ClientSession, path: str, reference: str) -> str:
    """Push a delivery and ask until a worker says how it ended, as a caller with retries does."""
    record = DELIVERY | {"invoiceNumber": reference}
    while True:
        try:
            async with session.post(
                path, json=record, headers={"Idempotency-Key": reference}
            ) as answer:
                status = (await answer.json())["status"] if answer.status in {200, 202} else ""
                if status not in {"", "PENDING"}:
                    return str(status)
        except aiohttp.ClientError:
            pass
        await asyncio.sleep(0.1)


@pytest.mark.timeout(110)
@pytest.mark.parametrize(
    ("count", "pushes"), [(2, 40), pytest.param(4, 1500, marks=pytest.mark.long)]
)
async def test_each_reference_is_one_record_however_workers_end(
    tmp_path: Path, postgres: Server, count: int, pushes: int
) -> None:
    """Killed or stopped one after the other, with answers lost: every caller has its answer."""
    (tmp_path / "service.py").write_text(PROGRAM)
    chance = random.Random(3)
    async with Sandbox(companies=5, push_seconds=(0.05, 0.3)) as sandbox:
        sandbox.faults.lose_answer(route="POST", probability=0.03)
        environment = {
            "STORE": await postgres.new_database(),
            "INTEGRATION_SDK_API_KEY": sandbox.api_key,
            "INTEGRATION_SDK_BASE_URL": sandbox.base_url,
            "PYTHONPATH": str(Path(__file__).parents[2]),
        }
        async with (
            serving(tmp_path, environment, count) as (workers, url),
            aiohttp.ClientSession(url, connector=aiohttp.TCPConnector(force_close=True)) as session,
        ):
            paths = [f"/{one.id}/{one.connections[0].id}/invoices" for one in sandbox.companies]
            callers = [
                asyncio.ensure_future(asked(session, paths[number % 5], f"order-{number}"))
                for number in range(pushes)
            ]
            for how in (signal.SIGKILL, signal.SIGTERM, signal.SIGKILL):
                await asyncio.sleep(0.5 + chance.random())
                await workers.replace(how)
            told = Counter(await asyncio.gather(*callers))
            # One that was just started has no handler of the signal yet.
            assert set(await workers.stop()) <= {0, -signal.SIGTERM}

        sent = Counter(
            json.loads(one.body)["invoiceNumber"]
            for one in sandbox.requests
            if one.method == "POST" and one.status in {0, 200, 202}
        )
    assert max(sent.values()) == 1
    assert told.total() == pushes
    assert set(told) <= {"SUCCESS", "IN_DOUBT"}
    assert told["IN_DOUBT"] <= pushes / 10
