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
from tests.support.cli_support import until
from tests.support.dask_support import KEY, Cluster, cluster
from tests.support.pull_support import Lists, assert_agrees, invoices, new_place

LONG = [pytest.mark.long, pytest.mark.timeout(1_800)]


@pytest.mark.parametrize(
    ("how", "format_", "times"),
    [
        ("killed", "ndjson", 1),
        *(
            pytest.param(how, format_, 20, marks=LONG)
            for how, format_ in (
                *(("killed", "ndjson"), ("killed", "postgres"), ("frozen", "postgres")),
                *(("without a scheduler", "ndjson"), ("without a scheduler", "postgres")),
            )
        ),
    ],
)
async def test_nothing_is_lost_or_doubled(
    how: str, format_: str, times: int, tmp_path: Path, request: pytest.FixtureRequest
) -> None:
    """A worker is lost, or thaws late: the run ends well. If it is the scheduler, the run says so,
    and goes on when it is repeated.
    """
    chance = random.Random(f"{how} {format_} {times}")
    place = await new_place(request, tmp_path, format_)
    books = {one: {"invoices": invoices(600)} for one in "abcdef"}
    with cluster(tmp_path / "dask") as workers:
        async with Lists(books) as service, Client(KEY, service.url) as client:
            pull: dict[str, Any] = {**place.options, "part_bytes": 10_000, "full": True}
            for _ in range(times):
                running = asyncio.ensure_future(
                    client.pull(["invoices"], **pull, dask=workers.address)
                )
                enough = len(service.log) + chance.randrange(2, 20)
                await until(lambda: len(service.log) >= enough or running.done())  # noqa: B023
                await asyncio.sleep(chance.uniform(0, 0.1))
                if how == "without a scheduler":
                    await _lose_scheduler(workers, running)
                    running = asyncio.ensure_future(
                        client.pull(["invoices"], **pull, dask=workers.address)
                    )
                else:
                    lost = workers.send(signal.SIGKILL if how == "killed" else signal.SIGSTOP)
                    workers.add_worker()
                    if how == "frozen":  # what it has is waited for
                        await asyncio.sleep(chance.uniform(0, 1.0))
                        lost.send_signal(signal.SIGCONT)

                receipt = await running
                if how != "without a scheduler":
                    lost.kill()
                    await asyncio.to_thread(lost.wait)
                assert receipt.errors == []
                assert len(receipt.units) == 6
                await assert_agrees(books, place)


async def _lose_scheduler(workers: Cluster, running: asyncio.Future[Any]) -> None:
    workers.scheduler.kill()
    try:
        await running  # it may have ended just now
    except PullError as error:
        assert "lost; run again" in str(error)  # noqa: PT017
    await asyncio.to_thread(workers.stop)
    await asyncio.to_thread(workers.start, 2)
