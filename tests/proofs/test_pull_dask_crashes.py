"""Pulls on a Dask cluster whose workers and scheduler are killed or frozen at any time."""

from __future__ import annotations

import asyncio
import random
import signal
from pathlib import Path
from typing import Any

import pytest

from integration_sdk import Client
from integration_sdk.errors import PullError
from integration_sdk.sandbox import Sandbox
from tests.support.cli_support import until
from tests.support.dask_support import KEY, Cluster, cluster
from tests.support.postgres import Server
from tests.support.pull_support import assert_agrees

INVOICES = 400
REQUESTS = 30
"""Of a whole run, at least."""
PRELOAD = Path(__file__).with_name("dask_preload.py")


LONG = [pytest.mark.long, pytest.mark.timeout(1_200)]


@pytest.mark.parametrize(
    ("how", "times"),
    [
        ("killed", 1),
        pytest.param("killed", 20, marks=LONG),
        pytest.param("frozen", 20, marks=LONG),
        pytest.param("without a scheduler", 20, marks=LONG),
    ],
)
async def test_nothing_is_lost_or_doubled(
    how: str, times: int, postgres: Server, tmp_path: Path
) -> None:
    """A worker is lost, or thaws behind its lease: the run ends well. If it is the scheduler, the
    run says so, and goes on when it is repeated.
    """
    chance = random.Random(f"{how} {times}")
    out, store = tmp_path / "out", await postgres.new_database()
    with cluster(tmp_path / "dask", preload=PRELOAD, patience=4) as workers:
        async with (
            Sandbox(companies=4, invoices=INVOICES, api_key=KEY) as sandbox,
            Client(KEY, sandbox.base_url) as client,
        ):
            sandbox.faults.status(503, route="GET", probability=0.03)
            sandbox.faults.latency(0.05)
            pull: dict[str, Any] = {"to": out, "store": store, "part_bytes": 50_000, "full": True}
            for _ in range(times):
                running = asyncio.ensure_future(
                    client.pull(["invoices", "items"], **pull, dask=workers.address)
                )
                enough = sandbox.served + chance.randrange(2, REQUESTS)
                await until(lambda: sandbox.served >= enough or running.done())  # noqa: B023
                await asyncio.sleep(chance.uniform(0, 0.1))
                if how == "without a scheduler":
                    await _lose_scheduler(workers, running)
                    running = asyncio.ensure_future(
                        client.pull(["invoices", "items"], **pull, dask=workers.address)
                    )
                else:
                    lost = workers.send(signal.SIGKILL if how == "killed" else signal.SIGSTOP)
                    workers.add_worker()

                receipt = await running
                if how != "without a scheduler":
                    if how == "frozen":
                        lost.send_signal(signal.SIGCONT)
                    await asyncio.to_thread(lost.wait)

                assert receipt.errors == []
                assert len(receipt.units) == 8
                await assert_agrees(sandbox, out)
                await assert_agrees(sandbox, out, "items")


async def _lose_scheduler(workers: Cluster, running: asyncio.Future[Any]) -> None:
    workers.scheduler.kill()
    try:
        await running  # it may have ended just now
    except PullError as error:
        assert "connection to the Dask scheduler was lost" in str(error)  # noqa: PT017
    await asyncio.to_thread(workers.stop)
    await asyncio.to_thread(workers.start, 2)
