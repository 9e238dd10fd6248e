"""The same pull on a Dask cluster: a unit is a task, with a session and a sink of its own.

Dask only says who reads which unit. That each is read by one at a time, and where a lost worker
stood, is known beside the data, so a task may run twice, or beside other runs and processes. No
secret goes through the cluster: workers take the API key from their environment, and passwords of
databases as libpq does (``PGPASSWORD``, ``~/.pgpass``).
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import AsyncGenerator, Sequence
from contextlib import AsyncExitStack, suppress
from pathlib import Path
from typing import Any, Final
from urllib.parse import unquote, urlsplit, urlunsplit

import distributed
from attrs import evolve, frozen

from integration_sdk._context import RequestContext
from integration_sdk._http import CallOptions, Session
from integration_sdk._http.session import FixedRate
from integration_sdk._options_given import ConnectionOptions, PullOptions
from integration_sdk._pull.reader import ENDS_RUN, TAKEN, UnitReader, open_sink
from integration_sdk._pull.unit import Unit, UnitReceipt
from integration_sdk._store.postgres import is_url
from integration_sdk._store.store import Store
from integration_sdk.dialect import Dialect
from integration_sdk.errors import ConfigurationError, IntegrationError, PullError

FAREWELL: Final = 5.0
"""Seconds to part from the scheduler in peace."""


@frozen(kw_only=True)
class Job:
    """What a worker needs to know of a run: no secrets. *rate* is kept in the target's database."""

    options: PullOptions
    base_url: str
    dialect: Dialect
    settings: CallOptions
    rate: float | None


async def read_on_cluster(
    context: RequestContext, options: PullOptions, units: Sequence[Unit]
) -> AsyncGenerator[Unit]:
    """Let the workers of a cluster read *units*; yield each as it ends.

    Raises:
        ConfigurationError: Not all workers could use the target, or the client's settings.
        PullError: The scheduler cannot be reached, or was lost.
    """
    job, cluster = _job(context, options), options.dask
    scheduler: Any = cluster
    if not isinstance(cluster, str | distributed.Client):
        what = "the address of a scheduler, or a distributed.Client"
        raise ConfigurationError(f"dask must be {what}, not {cluster!r}")
    address = cluster if isinstance(cluster, str) else scheduler.scheduler.address
    security = None if isinstance(cluster, str) else scheduler.security
    connect: Any = distributed.Client
    completed: Any = distributed.as_completed
    try:  # not the caller's own client, which may be of another thread
        dask = await connect(address, security=security, asynchronous=True, set_as_default=False)
    except (OSError, ValueError) as error:
        raise PullError(f"the Dask scheduler {address} cannot be reached: {error}") from error
    run = f"integration_sdk pull {os.urandom(4).hex()}"
    left = {f"{run}/{'/'.join(unit.place)}": unit for unit in units}
    futures = dask.map(read_unit, units, key=[*left], job=job, pure=False)
    try:
        async for future in completed(futures, loop=dask.loop):
            unit = left[future.key]
            unit.receipt = await _receipt(future)
            yield unit
            if isinstance(unit.receipt.error, ENDS_RUN):
                raise unit.receipt.error
    finally:
        with suppress(OSError, asyncio.CancelledError):  # of a scheduler that is gone
            async with asyncio.timeout(FAREWELL):
                await dask.cancel(futures)
                await dask.close()


def _job(context: RequestContext, options: PullOptions) -> Job:
    session, rate, to = context.session, context.session.rate, str(options.to)
    if not session.is_plain or not (rate is None or (isinstance(rate, FixedRate) and is_url(to))):
        raise ConfigurationError(
            "with Dask each worker has a session of its own: proxy=, ssl=, connector=, "
            "middlewares= and trace_configs= cannot be handed on, and rate= only as a number that "
            "is kept in the database that is written to"
        )
    if to.endswith(".duckdb"):
        raise ConfigurationError("a DuckDB file has one writer; with Dask, write elsewhere")
    to = _without_secrets(to) if is_url(to) else str(Path(to).resolve())
    return Job(
        options=evolve(options, to=to, companies=None, dask=None),
        base_url=str(session.base_url),
        dialect=context.dialect,
        settings=context.settings,
        rate=rate.per_second if rate else None,
    )


def _without_secrets(url: str) -> str:
    parts = urlsplit(url)
    user, at, host = parts.netloc.rpartition("@")
    words = [word for word in parts.query.split("&") if "password" not in unquote(word).casefold()]
    rest = urlunsplit(("", "", parts.path, "&".join(words), parts.fragment))
    return f"{parts.scheme}://{user.partition(':')[0]}{at}{host}{rest}"  # also without a host


async def _receipt(future: Any) -> UnitReceipt:
    try:
        receipt: UnitReceipt = await future
    except (distributed.client.FutureCancelledError, distributed.KilledWorker) as error:
        what = f"the scheduler or several workers were lost; run again to go on ({error})"
        raise PullError(what) from error
    except IntegrationError:
        raise
    except Exception as error:
        raise ConfigurationError(
            f"a worker of the Dask cluster could not pull: {error!r}; scheduler and workers need "
            "this version of integration-sdk, with the extras that are used here"
        ) from error
    return receipt


async def read_unit(unit: Unit, job: Job) -> UnitReceipt:
    """Read a unit, in a worker; wait for it while another process has it."""
    key, rate = os.environ.get("INTEGRATION_SDK_API_KEY"), job.rate
    if not key:
        where = distributed.get_worker().address
        raise ConfigurationError(f"the worker {where} has no INTEGRATION_SDK_API_KEY")
    async with AsyncExitStack() as opened:
        shared = None
        if rate is not None:
            store = await opened.enter_async_context(Store(str(job.options.to)))
            shared = store.rate(per_second=rate)
        connecting = ConnectionOptions(rate=shared)
        session = Session(base_url=job.base_url, api_key=key, options=connecting)
        opened.push_async_callback(session.aclose)
        sink = open_sink(job.options, shared=True)
        opened.push_async_callback(sink.aclose)
        await sink.open()
        context = RequestContext(dialect=job.dialect, session=session, settings=job.settings)
        reader = UnitReader(context, sink, job.options, 1)
        while not await reader.read(unit):  # noqa: ASYNC110 - of another process
            await asyncio.sleep(TAKEN)
    return unit.receipt
