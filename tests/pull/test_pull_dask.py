"""The same pull on a Dask cluster of real processes."""

from __future__ import annotations

import asyncio
import random
import signal
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import Any, Final
from urllib.parse import urlsplit, urlunsplit

import dask
import distributed
import pytest

from integration_sdk import Client, errors
from tests.support.dask_support import KEY, Cluster, cluster, told_scheduler, told_worker
from tests.support.loops import until
from tests.support.pull_support import Lists, Place, answer, assert_agrees, invoices, now

LONG: Final = [pytest.mark.long, pytest.mark.timeout(1_800)]
PASSWORD = "hunter2-of-the-database"


@pytest.fixture(scope="module")
def workers(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    with cluster(tmp_path_factory.mktemp("dask")) as running:
        yield running


@pytest.fixture
async def service() -> AsyncIterator[Lists]:
    async with Lists({one: {"invoices": invoices(300)} for one in "abcd"}) as running:
        yield running


@pytest.fixture
async def client(service: Lists) -> AsyncIterator[Client]:
    async with Client(KEY, service.url) as connected:
        yield connected


@pytest.mark.parametrize("place", ["ndjson", "postgres"], indirect=True)
async def test_workers_pull_what_one_process_would(
    place: Place, service: Lists, client: Client, workers: Cluster
) -> None:
    """Each record once; later runs bring what has changed; units come as they end."""
    first = await client.pull(["invoices"], **place.options, part_bytes=5_000, dask=workers.address)
    for book in service.books.values():
        book["invoices"][7] |= {"note": "edited", "modifiedDate": now()}

    job = client.pull(["invoices"], **place.options, dask=workers.address)
    units = [unit async for unit in job]

    assert (first.rows, first.errors) == (1_200, [])
    assert sorted((unit.company_id, unit.rows) for unit in units) == [(one, 1) for one in "abcd"]
    await assert_agrees(service.books, place)
    assert (await client.pull(["invoices"], **place.options)).rows == 0


async def test_no_secret_goes_through_the_cluster(
    client: Client, workers: Cluster, database: Place
) -> None:
    """Neither key nor password are in tasks, events or logs of scheduler and workers."""
    to = urlunsplit(urlsplit(str(database.to))._replace(netloc=f"postgres:{PASSWORD}@"))
    seen = ""
    connect: Any = distributed.Client
    async with connect(workers.address, asynchronous=True) as watcher:
        async for _ in client.pull(["invoices"], to=to, dask=workers.address):
            seen += await watcher.run_on_scheduler(told_scheduler)
            seen += str(await watcher.run(told_worker))

    assert "integration_sdk pull" in seen
    assert KEY not in seen + workers.log
    assert PASSWORD not in seen + workers.log


async def test_what_ends_a_run_ends_it_everywhere(
    service: Lists, client: Client, workers: Cluster, tmp_path: Path
) -> None:
    """402 of one unit stops the others; the next run goes on."""
    place = Place(tmp_path / "out", "ndjson")
    service.odd = lambda _: answer(402) if service.data_requests > 5 else None
    with pytest.raises(errors.PaymentRequired):
        await client.pull(["invoices"], **place.options, dask=workers.address)
    service.odd = lambda _: None
    await client.pull(["invoices"], **place.options, dask=workers.address)

    await assert_agrees(service.books, place)


async def test_the_rate_is_one_for_all(
    service: Lists, workers: Cluster, database: Place, tmp_path: Path
) -> None:
    """It is kept in the database that is written to."""
    async with Client(KEY, service.url, rate=200) as client:
        receipt = await client.pull(["invoices"], **database.options, dask=workers.address)
        assert receipt.errors == []
        assert await database.select("SELECT name FROM integration_sdk.rates") == [("calls",)]
        with pytest.raises(errors.ConfigurationError, match="rate= only as a number"):
            await client.pull(["invoices"], to=tmp_path / "out", dask=workers.address)


async def test_a_scheduler_that_is_not_there(client: Client, tmp_path: Path) -> None:
    """Is an error of ours, and names the address."""
    with (
        dask.config.set({"distributed.comm.timeouts.connect": "0.2s"}),
        pytest.raises(errors.PullError, match=r"scheduler tcp://127.0.0.1:1 cannot be reached"),
    ):
        await client.pull(["invoices"], to=tmp_path / "out", dask="tcp://127.0.0.1:1")


async def test_a_worker_without_the_key(client: Client, workers: Cluster, tmp_path: Path) -> None:
    """The run ends and says where."""
    workers.add_worker(INTEGRATION_SDK_API_KEY="")
    with pytest.raises(errors.ConfigurationError, match="has no INTEGRATION_SDK_API_KEY"):
        while True:  # until it is given a unit
            await client.pull(["invoices"], to=tmp_path / "out", dask=workers.address)
    keyless = workers.workers.pop()
    keyless.kill()
    await asyncio.to_thread(keyless.wait)


@pytest.mark.parametrize(
    ("how", "place", "times"),
    [
        ("killed", "ndjson", 1),
        pytest.param("killed", "ndjson", 20, marks=LONG),
        pytest.param("killed", "postgres", 20, marks=LONG),
        pytest.param("frozen", "postgres", 20, marks=LONG),
        pytest.param("without a scheduler", "ndjson", 20, marks=LONG),
        pytest.param("without a scheduler", "postgres", 20, marks=LONG),
    ],
    indirect=["place"],
)
async def test_workers_and_schedulers_may_be_lost(
    how: str, place: Place, times: int, *, service: Lists, client: Client, workers: Cluster
) -> None:
    """Without a worker a run ends well; without the scheduler it says so, and is repeated."""
    chance = random.Random(f"{how} {place.format} {times}")
    service.books = {one: {"invoices": invoices(600)} for one in "abcdef"}
    pull: dict[str, Any] = {**place.options, "part_bytes": 10_000, "full": True}
    for _ in range(times):
        running = asyncio.ensure_future(client.pull(["invoices"], **pull, dask=workers.address))
        enough = len(service.log) + chance.randrange(2, 20)
        await until(lambda: len(service.log) >= enough or running.done())  # noqa: B023 (awaited in this turn of the loop)
        await asyncio.sleep(chance.uniform(0, 0.1))
        if how == "without a scheduler":
            await _lose_scheduler(workers, running)
            running = asyncio.ensure_future(client.pull(["invoices"], **pull, dask=workers.address))
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
        await assert_agrees(service.books, place)


async def _lose_scheduler(workers: Cluster, running: asyncio.Future[Any]) -> None:
    workers.scheduler.kill()
    try:
        await running  # it may have ended just now
    except errors.PullError as error:
        assert "lost; run again" in str(error)  # noqa: PT017 (either end is right)
    await asyncio.to_thread(workers.stop)
    await asyncio.to_thread(workers.start, 2)
