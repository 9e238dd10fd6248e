"""The same pull on a Dask cluster of real processes, with a real database as store."""

from __future__ import annotations

import asyncio
import signal
import sys
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit, urlunsplit

import dask
import distributed
import pytest

from integration_sdk import Client, Store
from integration_sdk.errors import ConfigurationError, PaymentRequired, PullError
from integration_sdk.sandbox import Sandbox
from tests.support.cli_support import run
from tests.support.dask_support import KEY, ROOT, Cluster, cluster, told_scheduler, told_worker
from tests.support.postgres import Server
from tests.support.pull_support import Place, assert_agrees, new_place, now

PASSWORD = "hunter2-of-the-database"


@pytest.fixture(scope="module")
def workers(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    with cluster(tmp_path_factory.mktemp("dask")) as running:
        yield running


@pytest.fixture
async def sandbox() -> AsyncIterator[Sandbox]:
    async with Sandbox(companies=4, invoices=300, api_key=KEY) as running:
        yield running


@pytest.fixture
async def client(sandbox: Sandbox) -> AsyncIterator[Client]:
    async with Client(KEY, sandbox.base_url) as connected:
        yield connected


@pytest.fixture
async def store(postgres: Server) -> str:
    parts = urlsplit(await postgres.new_database())
    return urlunsplit(parts._replace(netloc=f"postgres:{PASSWORD}@"))


@pytest.fixture(params=["ndjson", "parquet", "postgres"])
async def place(request: pytest.FixtureRequest, tmp_path: Path) -> Place:
    return await new_place(request, tmp_path, request.param)


async def test_workers_pull_what_one_process_would(
    sandbox: Sandbox, client: Client, workers: Cluster, place: Place, store: str
) -> None:
    """Each record once; later runs bring what has changed; units come as they end."""
    pull = {**place.small_parts, "store": store, "dask": workers.address}
    first = await client.pull(["invoices", "items"], **pull)
    for company in sandbox.companies:
        invoices = sandbox.data_set(company.id, "invoices")
        invoices.edit_at(7, {"note": "edited", "modifiedDate": now()})

    units = [unit async for unit in client.pull(["invoices", "items"], **pull)]

    assert (first.rows, first.errors) == (4 * (300 + 60), [])
    assert [unit.rows for unit in units if unit.rows] == [1, 1, 1, 1]
    assert len(units) == 8
    await assert_agrees(sandbox, place.to)
    await assert_agrees(sandbox, place.to, "items")


async def test_no_secret_goes_through_the_cluster(
    sandbox: Sandbox, client: Client, workers: Cluster, store: str, tmp_path: Path
) -> None:
    """Neither key nor password are in tasks, events, dumps or logs of scheduler and workers."""
    asked, gate = asyncio.Event(), asyncio.Event()

    async def hold(_: Any, proceed: Any) -> Any:
        asked.set()
        await gate.wait()
        return await proceed()

    sandbox.faults.add(hold, route="GET /data/invoices")
    job = client.pull(["invoices"], to=store, store=store, dask=workers.address)
    running = asyncio.ensure_future(job)
    await asked.wait()
    try:
        connect: Any = distributed.Client
        async with connect(workers.address, asynchronous=True) as dask_client:
            state = await dask_client.run_on_scheduler(told_scheduler)
            state += str(await dask_client.run(told_worker))
            await dask_client.dump_cluster_state(str(tmp_path / "dump"), format="yaml")
    finally:
        gate.set()
        receipt = await running

    assert not receipt.errors
    assert "invoices" in state
    everything = state + workers.log + (tmp_path / "dump.yaml").read_text()
    assert "integration_sdk pull" in everything
    assert KEY not in everything
    assert PASSWORD not in everything


async def test_runs_at_once_share_the_work(
    sandbox: Sandbox, client: Client, workers: Cluster, store: str, tmp_path: Path
) -> None:
    """Two on one cluster and a plain process: no record is written twice."""
    pull: dict[str, Any] = {"to": tmp_path / "out", "store": store, "part_bytes": 100_000}

    receipts = await asyncio.gather(
        client.pull(["invoices"], **pull, dask=workers.address),
        client.pull(["invoices"], **pull, dask=workers.address),
        client.pull(["invoices"], **pull),
    )

    assert [receipt.errors for receipt in receipts] == [[], [], []]
    assert sum(receipt.rows for receipt in receipts) == 4 * 300
    await assert_agrees(sandbox, tmp_path / "out")


async def test_leaving_the_loop_stops_the_workers(
    sandbox: Sandbox, client: Client, workers: Cluster, store: str, tmp_path: Path
) -> None:
    """They read no more, and the units are free at once for whoever goes on."""
    pull: dict[str, Any] = {"to": tmp_path / "out", "store": store}
    arrived, gate = 0, asyncio.Event()
    gate.set()

    async def hold(_: Any, proceed: Any) -> Any:
        nonlocal arrived
        arrived += 1
        await gate.wait()
        return await proceed()

    sandbox.faults.add(hold, route="GET /data/")
    types = ["items", "invoices", "customers", "suppliers"]
    async for _ in (units := aiter(client.pull(types, **pull, dask=workers.address))):
        gate.clear()
        break
    await units.aclose()
    before, ours = arrived, client.stats().attempts
    gate.set()

    receipt = await client.pull(types, **pull)

    assert len(receipt.units) == 4 * len(types)
    companies = 1
    assert arrived - before == client.stats().attempts - ours - companies
    await assert_agrees(sandbox, tmp_path / "out")


async def test_what_ends_a_run_ends_it_everywhere(
    sandbox: Sandbox, client: Client, workers: Cluster, store: str, tmp_path: Path
) -> None:
    """402 of one unit stops the others; the next run goes on."""
    rule = sandbox.faults.status(402, route="GET /data/", skip=9)
    pull: dict[str, Any] = {"to": tmp_path / "out", "store": store, "dask": workers.address}

    with pytest.raises(PaymentRequired):
        await client.pull(["invoices"], **pull)
    sandbox.faults.remove(rule)
    await client.pull(["invoices"], **pull)

    await assert_agrees(sandbox, tmp_path / "out")


async def test_the_rate_is_one_for_all(
    sandbox: Sandbox, workers: Cluster, store: str, tmp_path: Path
) -> None:
    """No worker goes beyond what the service allows to all of them together."""
    sandbox.faults.rate_limit(per_second=40, burst=15)
    async with Client(KEY, sandbox.base_url, rate=30) as client:
        pull: dict[str, Any] = {"to": tmp_path / "out", "store": store, "dask": workers.address}
        receipt = await client.pull(["items", "customers", "suppliers"], **pull)

    assert not receipt.errors
    assert [one for one in sandbox.requests if one.status == 429] == []


async def test_the_command(sandbox: Sandbox, workers: Cluster, store: str, tmp_path: Path) -> None:
    """As without Dask: units on stdout, exit code 0."""
    arguments = ("--to", str(tmp_path / "out"), "--store", store, "--rate", "500", "--json")

    done = await run("pull", "items", *arguments, "--dask", workers.address, sandbox=sandbox)

    assert (done.code, [line["rows"] for line in done.lines]) == (0, [60] * 4), done.stderr
    assert KEY not in done.stdout + done.stderr
    await assert_agrees(sandbox, tmp_path / "out", "items")


# What goes wrong


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"store": None}, "all workers share the store"),
        ({"store": "state.db"}, "pass a postgresql:// URL, not 'state.db'"),
        ({"store": Store()}, "pass a postgresql:// URL, not Store()"),
        ({"to": "out.duckdb"}, "a DuckDB file can have only one writer"),
        ({"dask": 3}, "dask must be the address of a scheduler"),
    ],
)
async def test_what_not_all_workers_can_use_is_refused(
    client: Client, options: Any, message: str
) -> None:
    """Before anything is read."""
    pull = {"to": "out", "store": "postgresql://x/y", "dask": "tcp://127.0.0.1:1", **options}

    with pytest.raises(ConfigurationError) as error:
        client.pull(["items"], **pull)

    assert message in str(error.value)


async def test_settings_that_cannot_be_handed_on(sandbox: Sandbox) -> None:
    """A worker would go around the proxy."""
    async with Client(KEY, sandbox.base_url, proxy="http://127.0.0.1:1") as client:
        with pytest.raises(ConfigurationError, match="proxy=, ssl=, session=, middlewares="):
            client.pull(["items"], to="out", store="postgresql://x/y", dask="tcp://127.0.0.1:1")


async def test_a_missing_extra(client: Client, monkeypatch: pytest.MonkeyPatch) -> None:
    """Says what to install."""
    monkeypatch.setitem(sys.modules, "distributed", None)

    with pytest.raises(ConfigurationError, match=r'pip install "integration-sdk\[dask\]"'):
        client.pull(["items"], to="out", store="postgresql://x/y", dask="tcp://127.0.0.1:1")


async def test_a_scheduler_that_is_not_there(client: Client, store: str, tmp_path: Path) -> None:
    """Is an error of ours, and names the address."""
    with (
        dask.config.set({"distributed.comm.timeouts.connect": "0.2s"}),
        pytest.raises(PullError, match=r"scheduler tcp://127.0.0.1:1 cannot be reached"),
    ):
        await client.pull(["items"], to=tmp_path, store=store, dask="tcp://127.0.0.1:1")


async def test_a_folder_of_one_host(
    sandbox: Sandbox, client: Client, workers: Cluster, store: str, tmp_path: Path
) -> None:
    """Workers that find another folder under its name say so, and write nothing there."""
    here, there, link = tmp_path / "here", tmp_path / "there", tmp_path / "link"
    here.mkdir()
    there.mkdir()
    link.symlink_to(there)
    job = client.pull(["items"], to=link, store=store, dask=workers.address)
    link.unlink()
    link.symlink_to(here)

    with pytest.raises(ConfigurationError, match=r"need a folder that all of them share"):
        await job

    assert list(there.iterdir()) == []


async def test_workers_that_cannot_take_part(
    sandbox: Sandbox, client: Client, store: str, tmp_path: Path
) -> None:
    """Without the key, or with another version of the package: the run ends and says where."""
    info = tmp_path / "integration_sdk-0.0.9.dist-info"
    info.mkdir()
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: integration-sdk\nVersion: 0.0.9")
    pull: dict[str, Any] = {"to": tmp_path / "out", "store": store}
    with cluster(tmp_path / "dask", 0, INTEGRATION_SDK_API_KEY="") as workers:
        workers.add_worker()
        with pytest.raises(ConfigurationError, match="no INTEGRATION_SDK_API_KEY in its env"):
            await client.pull(["items"], **pull, dask=workers.address)
        workers.send(signal.SIGKILL).wait()
        workers.add_worker(PYTHONPATH=f"{tmp_path}:{ROOT}")
        with pytest.raises(ConfigurationError, match=r"has integration-sdk 0\.0\.9, and"):
            await client.pull(["items"], **pull, dask=workers.address)
