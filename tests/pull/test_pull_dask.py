"""The same pull on a Dask cluster of real processes."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit, urlunsplit

import dask
import distributed
import pytest

from integration_sdk import Client, errors
from tests.support.dask_support import KEY, Cluster, cluster, told_scheduler, told_worker
from tests.support.pull_support import Lists, Place, answer, assert_agrees, invoices, now

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


# What goes wrong


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
