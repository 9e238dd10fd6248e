"""The same pull on a Dask cluster: a unit is a task, with a session and a sink of its own.

Dask only says who reads which unit. That each is read by one at a time, and where a lost worker
stood, is known beside the data, so a task may run twice, or beside other runs and processes. No
secret goes through the cluster: workers take the API key from their environment, and passwords of
databases as libpq does (``PGPASSWORD``, ``~/.pgpass``).
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import Sequence
from contextlib import AsyncExitStack, suppress
from pathlib import Path
from typing import Any
from urllib.parse import unquote, urlsplit, urlunsplit

import distributed
from attrs import define, evolve, frozen

from integration_sdk._context import RequestContext
from integration_sdk._http import CallOptions, Session
from integration_sdk._http.session import FixedRate
from integration_sdk._options_given import ConnectionOptions, PullOptions
from integration_sdk._pull.reader import UnitReader, open_sink
from integration_sdk._pull.unit import Unit, UnitReceipt
from integration_sdk._store.postgres import is_url
from integration_sdk._store.store import Store
from integration_sdk.dialect import Dialect
from integration_sdk.errors import ConfigurationError, IntegrationError, PullError

LOOK, FAREWELL = 1.0, 5.0  # seconds between looks at the connection, and to part in peace


@frozen(kw_only=True)
class Job:
    """What a worker needs to know of a run: no secrets. *rate* is kept in the target's database."""

    options: PullOptions
    base_url: str
    dialect: Dialect
    settings: CallOptions
    rate: float | None


@define(eq=False)
class ClusterReader:
    """Units that the workers of a cluster read."""

    _dask: Any
    _futures: Sequence[Any]
    _ends: Any

    async def next_ended(self) -> UnitReceipt:
        """Return the receipt of the next unit that has ended.

        Raises:
            ConfigurationError: Its worker could not use the target, or the client's settings.
            PullError: The cluster was lost.
        """
        while True:
            with suppress(TimeoutError):
                async with asyncio.timeout(LOOK):
                    future = await anext(self._ends)
                    break
            if self._dask.status != "running" or self._dask.scheduler_comm.closed():
                raise PullError("the cluster was lost; run again")  # no future would end
        return await _receipt(future)

    async def aclose(self) -> None:
        """Begin no more units, and leave the cluster."""
        with suppress(OSError, asyncio.CancelledError, distributed.client.ClosedClientError):
            await self._dask.cancel(self._futures)
            await self._dask.close(FAREWELL)


async def read_on_cluster(
    context: RequestContext, options: PullOptions, units: Sequence[Unit]
) -> ClusterReader:
    """Let the workers of a cluster begin to read *units*.

    Raises:
        ConfigurationError: They cannot have the client's settings, or there is no such address.
        PullError: The scheduler cannot be reached.
    """
    job, address, security = _job(context, options), options.dask, None
    api: Any = distributed
    if isinstance(address, api.Client):
        address, security = address.scheduler.address, address.security
    if not isinstance(address, str):
        raise ConfigurationError(f"dask must be a scheduler's address or Client, not {address!r}")
    try:  # not the caller's own client, which may be of another thread
        dask = await api.Client(address, security=security, asynchronous=True, set_as_default=False)
    except (OSError, ValueError) as error:
        raise PullError(f"the Dask scheduler {address} cannot be reached: {error}") from error
    run = f"integration_sdk pull {os.urandom(4).hex()}"
    keys = [f"{run}/{'/'.join(unit.place)}" for unit in units]
    futures = dask.map(read_unit, units, key=keys, job=job, pure=False)
    return ClusterReader(dask, futures, api.as_completed(futures, loop=dask.loop))


def _job(context: RequestContext, options: PullOptions) -> Job:
    session, rate, to = context.session, context.session.rate, str(options.to)
    if not session.is_plain or not (rate is None or (isinstance(rate, FixedRate) and is_url(to))):
        raise ConfigurationError(
            "with Dask each worker has a session of its own: proxy=, ssl=, connector=, "
            "middlewares= and trace_configs= cannot be handed on, and rate= only as a number that "
            "is kept in the database that is written to"
        )
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
    except IntegrationError:
        raise
    except Exception as error:
        if future.status != "error" or isinstance(error, distributed.KilledWorker):
            raise PullError(f"the cluster or workers were lost; run again ({error})") from error
        raise ConfigurationError(
            f"a worker of the Dask cluster could not pull: {error!r}; scheduler and workers need "
            "this version of integration-sdk, with the extras that are used here"
        ) from error
    return receipt


async def read_unit(unit: Unit, job: Job) -> UnitReceipt:
    """Read a unit, in a worker; wait for it while another process has it."""
    key, where = os.environ.get("INTEGRATION_SDK_API_KEY"), distributed.get_worker().address
    if not key:
        raise ConfigurationError(f"the worker {where} has no INTEGRATION_SDK_API_KEY")
    async with AsyncExitStack() as opened:
        shared = None
        if job.rate is not None:
            store = await opened.enter_async_context(Store(str(job.options.to)))
            shared = store.rate(per_second=job.rate)
        own = ConnectionOptions(rate=shared)
        session = Session(base_url=job.base_url, api_key=key, options=own)
        opened.push_async_callback(session.aclose)
        sink = open_sink(job.options, shared=True)
        opened.push_async_callback(sink.aclose)
        await sink.open()
        context = RequestContext(dialect=job.dialect, session=session, settings=job.settings)
        reader = UnitReader(context, sink, job.options, [unit])
        opened.push_async_callback(reader.aclose)
        return await reader.next_ended()
