"""The same pull on a Dask cluster: a unit is a task, and each worker has one client and one store.

Dask only says who reads which unit. That each is read by one at a time, and where a lost worker
stood, is known to the store, so a task may run twice, or beside other runs and processes.

No secret goes through the cluster: workers take the API key from their environment, and passwords
of databases as libpq does (``PGPASSWORD``, ``~/.pgpass``). What a task is given shows in dashboard
and logs of Dask, and holds none.
"""

from __future__ import annotations

import asyncio
import os
import socket
from collections.abc import AsyncGenerator, AsyncIterator, Sequence
from contextlib import AsyncExitStack, asynccontextmanager, suppress
from importlib.metadata import version
from itertools import islice
from typing import Any, Final

import distributed
from attrs import evolve, frozen

import integration_sdk
from integration_sdk._context import RequestContext
from integration_sdk._http import CallOptions, Session
from integration_sdk._http.session import FixedRate
from integration_sdk._pull.making import open_sink
from integration_sdk._pull.postgres import without_secrets
from integration_sdk._pull.pull import SECONDS_BETWEEN_CLAIMS, Elsewhere, Pair
from integration_sdk._pull.receipts import UnitReceipt
from integration_sdk._pull.state import PullState
from integration_sdk._pull.units import PullOptions, Units
from integration_sdk._store.database import shown
from integration_sdk._store.rate import StoreRate
from integration_sdk._store.store import Store, is_url
from integration_sdk.dialect import Dialect
from integration_sdk.errors import ConfigurationError, IntegrationError, PullError

AHEAD: Final = 1_000
"""Units that are given to the cluster at a time; its scheduler remembers each."""
IDLE: Final = 60.0
"""Seconds without a unit after which a worker closes its connections; its caller may be dead."""
FAREWELL: Final = 5.0
"""Seconds for the workers to hear that the caller has left."""
VERSION: Final = version("integration-sdk")

Ended = tuple[UnitReceipt, IntegrationError | None]
"""What became of a unit, and what ends the run."""


@frozen(kw_only=True)
class Job:
    """What a worker needs to know of a run; no secrets.

    Attributes:
        name: Of the run, for people too.
        to, format, compression: The sink.
        pull_id: Written into the sink by the caller.
        store: Arguments of the `Store`.
        rate: Kept by all workers together, in the store.
        settings: Of calls.
    """

    name: str
    run: int
    pull_id: str
    to: str
    format: str
    compression: str | None
    store: dict[str, Any]
    base_url: str
    dialect: Dialect
    settings: CallOptions
    rate: dict[str, Any] | None
    options: PullOptions
    version: str = VERSION


# In the caller


def on_cluster(
    cluster: Any,
    context: RequestContext,
    *,
    store: Any,
    to: str,
    format_: str,
    compression: str | None,
    options: PullOptions,
) -> Elsewhere:
    """Return what pulls units on *cluster*, the address or a client of its scheduler.

    Raises:
        ConfigurationError: Not all workers could use the store, the place or the client's settings.
    """
    if not isinstance(cluster, str | distributed.Client):
        raise ConfigurationError(
            f"dask must be the address of a scheduler, or a distributed.Client, not {cluster!r}"
        )
    if format_ == "duckdb":
        raise ConfigurationError(
            "a DuckDB file can have only one writer; with Dask, use another format"
        )
    if not (is_url(store) or (isinstance(store, Store) and store.shared)):
        raise ConfigurationError(
            f"with Dask all workers share the store: pass a postgresql:// URL, not {shown(store)}"
        )
    if not context.session.is_plain:
        raise ConfigurationError(
            "with Dask each worker has a client of its own; proxy=, ssl=, session=, middlewares= "
            "and trace_configs= of this one cannot be handed on"
        )
    kept = store.for_others() if isinstance(store, Store) else {"where": store}
    facts: dict[str, Any] = {
        "to": without_secrets(to) if is_url(to) else os.path.realpath(to),
        "format": format_,
        "compression": compression,
        "store": kept | {"where": without_secrets(kept["where"])},
        "base_url": str(context.session.base_url),
        "dialect": context.dialect,
        "settings": context.settings,
        "rate": _rate(context.session),
        # The companies are many, and each task is told its own.
        "options": evolve(options, companies=None),
    }

    def pull(pairs: Sequence[Pair], pull_id: str, run: int) -> AsyncGenerator[Ended]:
        name = f"integration_sdk pull {pull_id[:8]} run {run}"
        return pull_units(cluster, Job(name=name, run=run, pull_id=pull_id, **facts), pairs)

    return pull


def _rate(session: Session) -> dict[str, Any] | None:
    match session.rate:
        case None:
            return None
        case FixedRate(per_second=per_second):
            return {"per_second": per_second}
        case StoreRate(limit=limit):
            return {"per_second": 1 / limit.interval, "burst": limit.burst, "name": limit.name}
    raise ConfigurationError("with Dask, rate= must be a number or Store(...).rate()")


async def pull_units(cluster: Any, job: Job, pairs: Sequence[Pair]) -> AsyncGenerator[Ended]:
    """Let the workers of *cluster*, an address or a client, pull these units.

    Raises:
        ConfigurationError: A worker cannot take part: it lacks the key, or has another version.
        PullError: The scheduler cannot be reached, or was lost.
    """
    told: asyncio.Queue[asyncio.Task[Ended]] = asyncio.Queue()
    waiting: set[asyncio.Task[Ended]] = set()
    left = iter(pairs)
    async with _connected(cluster) as client:
        try:
            while True:
                for pair in islice(left, AHEAD - len(waiting)):
                    task = asyncio.create_task(_ended(client, job, pair))
                    waiting.add(task)
                    task.add_done_callback(told.put_nowait)
                if not waiting:
                    return
                task = await told.get()
                waiting.discard(task)
                yield task.result()
        finally:
            for task in waiting:
                task.cancel()
            await asyncio.gather(*waiting, return_exceptions=True)
            with suppress(OSError):  # workers that do not hear it go on until they are idle
                async with asyncio.timeout(FAREWELL):
                    await client.run(_leave, job.name, on_error="ignore")


@asynccontextmanager
async def _connected(cluster: Any) -> AsyncIterator[distributed.Client]:
    """Connect to the scheduler: not the caller's own client, which may be of another thread."""
    address, security = cluster, None
    if not isinstance(cluster, str):
        address, security = cluster.scheduler.address, cluster.security
    connect: Any = distributed.Client
    try:
        client = await connect(address, security=security, asynchronous=True, set_as_default=False)
    except (OSError, ValueError) as error:
        raise PullError(f"the Dask scheduler {address} cannot be reached: {error}") from error
    try:
        yield client
    finally:
        with suppress(OSError, asyncio.CancelledError):  # of a scheduler that is gone
            await client.close()


async def _ended(client: distributed.Client, job: Job, pair: Pair) -> Ended:
    """Submit a unit, and return what became of it."""
    company_id, data_type = pair
    future = client.submit(
        pull_unit, job, *pair, key=f"{job.name}/{data_type}/{company_id}", pure=False
    )
    try:
        ended: Ended = await future.result()
    except distributed.client.FutureCancelledError as error:
        raise PullError(
            "the connection to the Dask scheduler was lost; what is written is safe, run again "
            "to go on"
        ) from error
    except distributed.KilledWorker as error:
        raise PullError(
            f"several workers died while they pulled {data_type}/{company_id}; run again to go on"
        ) from error
    except IntegrationError:
        raise
    except Exception as error:
        raise ConfigurationError(
            f"a worker of the Dask cluster could not pull: {error!r}; scheduler and workers need "
            f"integration-sdk {VERSION}, with the extras that are used here"
        ) from error
    return ended


# In a worker


async def pull_unit(job: Job, company_id: str, data_type: str) -> Ended:
    """Pull a unit, and wait for it while another process has it."""
    worker = distributed.get_worker()
    if job.name not in worker.plugins:
        await worker.plugin_add(Station(job), name=job.name)
    station: Any = worker.plugins[job.name]
    ended: Ended = await station.pull(company_id, data_type)
    return ended


async def _leave(name: str, dask_worker: Any = None) -> None:
    """End the run *name* on a worker."""
    station = dask_worker.plugins.get(name)
    if station is not None:
        await station.stop()


class Station(distributed.WorkerPlugin):
    """A worker's client, store and sink for one run, from its first unit on."""

    def __init__(self, job: Job) -> None:
        self.job = job
        self._opening = asyncio.Lock()
        self._units: Units | None = None
        self._opened = AsyncExitStack()
        self._running: set[asyncio.Task[Ended]] = set()
        self._stopped = False
        self._idle: asyncio.TimerHandle | None = None

    def setup(self, worker: Any) -> None:
        """Learn to whom it belongs."""
        self._worker = worker

    async def teardown(self, worker: Any) -> None:
        """Stop: the worker closes."""
        await self.stop()

    async def stop(self) -> None:
        """Stop reading, finish the parts that are being written, and let others have the units."""
        self._stopped = True
        running = [*self._running]
        for task in running:
            task.cancel()
        await asyncio.gather(*running, return_exceptions=True)
        await self._close()

    async def pull(self, company_id: str, data_type: str) -> Ended:
        """Pull a unit in a task that `stop` can cancel."""
        if self._idle is not None:
            self._idle.cancel()
        task = asyncio.create_task(self._pull(company_id, data_type))
        self._running.add(task)
        try:
            return await task
        except asyncio.CancelledError:
            raise PullError(f"{data_type}/{company_id}: the run was stopped") from None
        finally:
            self._running.discard(task)
            if not self._running:
                loop = asyncio.get_running_loop()
                self._idle = loop.call_later(IDLE, self._remove)

    def _remove(self) -> None:
        self._removing = asyncio.create_task(self._worker.plugin_remove(self.job.name))

    async def _pull(self, company_id: str, data_type: str) -> Ended:
        async with self._opening:
            if self._stopped:
                raise asyncio.CancelledError
            if self._units is None:
                self._units = await self._open()
        units = self._units
        while (receipt := await units.pull(company_id, data_type)) is None:
            if self._stopped:  # cancelled while a write failed
                raise asyncio.CancelledError
            # If its owner dies, its lease ends.
            await asyncio.sleep(SECONDS_BETWEEN_CLAIMS)
        is_last = units.stopped_by is not None and units.stopped_by is receipt.error
        return receipt, units.stopped_by if is_last else None

    async def _open(self) -> Units:
        """Open client, store and sink.

        Raises:
            ConfigurationError: This worker cannot take part.
        """
        job, where = self.job, f"the worker {self._worker.address} on {socket.gethostname()}"
        if job.version != VERSION:
            raise ConfigurationError(
                f"{where} has integration-sdk {VERSION}, and the caller has {job.version}"
            )
        if not os.environ.get("INTEGRATION_SDK_API_KEY"):
            raise ConfigurationError(
                f"{where} has no INTEGRATION_SDK_API_KEY in its environment; the key of the caller "
                "is not sent through the cluster"
            )
        async with AsyncExitStack() as opened:
            store = await opened.enter_async_context(Store(**job.store))
            client = await opened.enter_async_context(
                integration_sdk.Client(
                    base_url=job.base_url,
                    dialect=job.dialect,
                    timeout=job.settings.timeout,
                    read_timeout=job.settings.read_timeout,
                    retry=job.settings.retry,
                    rate=None if job.rate is None else store.rate(**job.rate),
                )
            )
            sink = open_sink(job.to, job.format, job.compression, tokens=True)
            opened.push_async_callback(sink.aclose)
            if await sink.open() != job.pull_id:
                raise ConfigurationError(
                    f"{where} does not find this pull in {job.to}: workers on several hosts need a "
                    "folder that all of them share, or a database"
                )
            state = PullState(
                await store.documents(base_url=job.base_url, dialect=job.dialect.name), run=job.run
            )
            await state.load_columns(job.options.data_types)
            units = Units(client, sink, state, job.options, self._worker.state.nthreads)
            opened.enter_context(units.threads)
            self._opened = opened.pop_all()
        return units

    async def _close(self) -> None:
        async with self._opening:
            self._units = None
            opened, self._opened = self._opened, AsyncExitStack()
            await opened.aclose()
