"""Pulls that are killed at any moment, and the workers of a Dask cluster that pull."""

from __future__ import annotations

import asyncio
import random
import signal
import sys
from asyncio.subprocess import PIPE, Process
from pathlib import Path
from typing import Any, Final

import pytest
from aiohttp import web

from integration_sdk import Client
from integration_sdk.errors import PullError
from tests.support.cli_support import until
from tests.support.dask_support import KEY, Cluster, cluster
from tests.support.pull_support import (
    Lists,
    Place,
    Writer,
    assert_agrees,
    invoices,
    new_place,
    sizes_seen,
    writing,
)

RECORDS: Final = 1_500
LONG: Final = [pytest.mark.long, pytest.mark.timeout(1_800)]
PROGRAM: Final = """
import asyncio, sys
from integration_sdk import Client, errors
async def main(url, to, format, full):
    async with Client("key", url) as client:
        receipt = await client.pull(
            ["invoices"], to=to, format=format, full=full == "full", part_bytes=40_000)
        assert not receipt.errors, receipt.errors
asyncio.run(main(*sys.argv[1:]))
"""


def throttled(chance: random.Random) -> Any:
    """Answers 429 and 503 now and then."""

    def answer(_: web.Request) -> web.Response | None:
        status = chance.choices((0, 429, 503), (94, 3, 3))[0]
        return web.Response(status=status, headers={"Retry-After": "0"}) if status else None

    return answer


@pytest.mark.parametrize(
    ("format_", "processes", "kills"),
    [
        ("ndjson", 1, 2),
        ("duckdb", 1, 1),
        ("postgres", 2, 1),
        *(
            pytest.param(one, processes, 50, marks=LONG)
            for one, processes in (
                *(("ndjson", 1), ("parquet", 1), ("duckdb", 1), ("postgres", 1)),
                ("postgres", 2),
            )
        ),
    ],
)
async def test_kills_at_any_time_cost_nothing(
    request: pytest.FixtureRequest, tmp_path: Path, format_: str, processes: int, kills: int
) -> None:
    """One quiet run later each record is there in its last state, once; the next writes nothing."""
    chance = random.Random(f"{format_} {processes} {kills}")
    place = await new_place(request, tmp_path, format_)
    books = {one: {"invoices": invoices(RECORDS)} for one in ("a", "b")}
    async with Lists(books, odd=throttled(chance)) as service:
        async with writing(Writer(books, chance)):
            for number in range(kills):
                full = "full" if number % 3 == 2 else ""
                started = [await begun(service, place, full) for _ in range(processes)]
                for process in started:
                    await killed(service, process, chance)
                if place.is_folder:
                    assert all(size > 0.8 * RECORDS for size in sizes_seen(Path(place.to)))
        service.odd = lambda _: None
        async with Client("key", service.url) as client:
            quiet = await client.pull(["invoices"], **place.options)
            assert quiet.errors == []
            await assert_agrees(books, place, after_deletions=True)
            before = service.data_requests
            again = await client.pull(["invoices"], **place.options)
            assert (again.rows, service.data_requests - before) == (0, 2)
            await client.pull(["invoices"], **place.options, full=True)
            await assert_agrees(books, place)


async def begun(service: Lists, place: Place, full: str) -> Process:
    program = (sys.executable, "-c", PROGRAM, service.url, str(place.to), place.format, full)
    return await asyncio.create_subprocess_exec(*program, stderr=PIPE)


async def killed(service: Lists, process: Process, chance: random.Random) -> None:
    """Let a process send some requests, and kill it soon after one of them."""
    enough = len(service.log) + chance.randrange(1, 12)
    ending = asyncio.create_task(process.wait())
    while len(service.log) < enough and not ending.done():
        await asyncio.wait([ending], timeout=0.005)
    await asyncio.wait([ending], timeout=chance.uniform(0, 0.1))
    if process.returncode is None:
        process.kill()
    _, stderr = await process.communicate()
    await ending
    # A service that throttles for longer than a call is repeated is an error of its unit.
    assert process.returncode in {0, -9} or b"answered" in stderr, stderr.decode()


# On a cluster


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
async def test_workers_and_schedulers_may_be_lost(
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
                await until(lambda: len(service.log) >= enough or running.done())  # noqa: B023 (awaited in this turn of the loop)
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
        assert "lost; run again" in str(error)  # noqa: PT017 (either end is right)
    await asyncio.to_thread(workers.stop)
    await asyncio.to_thread(workers.start, 2)
