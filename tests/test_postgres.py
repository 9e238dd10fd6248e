"""A store in PostgreSQL, on a real server."""

from __future__ import annotations

import asyncio
import pickle
import subprocess
import sys
from contextlib import AsyncExitStack

import pytest

from integration_sdk import JournalError, Store, StoreUnavailable
from tests.postgres import Server, fetch
from tests.test_store_rates import times_of

SECRET = "s3cret"
PATIENCE = 600.0
"""Seconds; a server may take long to start where everything is busy."""


@pytest.fixture
async def url(postgres: Server) -> str:
    return await postgres.new_database()


# Rates


async def reserved(url: str) -> tuple[float, float]:
    """Return how far ahead of the database's clock the next slot is, and when it is, in seconds."""
    now = "extract(epoch FROM clock_timestamp())::float8"
    (row,) = await fetch(url, f"SELECT next_at - {now}, next_at FROM integration_sdk.rates")  # noqa: S608
    return row[0], row[1]


async def test_processes_keep_a_limit_together(url: str) -> None:
    """Each has a store of its own, and each call a slot that no other one has."""
    async with AsyncExitStack() as stack:
        stores = [await stack.enter_async_context(Store(url)) for _ in range(3)]
        rates = [store.rate(per_second=100) for store in stores]
        await rates[0].acquire()
        _, before = await reserved(url)

        await asyncio.gather(*(times_of(rate, 20) for rate in rates))

        _, after = await reserved(url)
    assert after - before >= 0.6 - 1e-6


async def test_a_burst_may_leave_at_once(url: str) -> None:
    """As many as it allows, and the next one waits: here for a quarter of an hour."""
    async with Store(url) as store:
        rate = store.rate(per_second=0.001, burst=4)
        await times_of(rate, 4)

        ahead, _ = await reserved(url)
    assert 500 < ahead <= 1000


async def test_a_refusal_that_one_process_meets_stops_all(url: str) -> None:
    """Until the time is over that the service has named."""
    paused = "SELECT FROM integration_sdk.rates WHERE paused_until > 0"
    after = "SELECT FROM integration_sdk.rates WHERE next_at >= paused_until + 0.01"
    async with Store(url) as one, Store(url) as other:
        met, hears = one.rate(per_second=100), other.rate(per_second=100)
        await met.acquire()
        met.paused(0.6)
        while not await fetch(url, paused):
            pass  # it is on its way
        was_before = not await fetch(url, after)

        await hears.acquire()

        assert was_before
        assert await fetch(url, after)


# The database


async def test_a_database_that_is_away_is_reported_without_the_password() -> None:
    """With the address."""
    async with Store(f"postgresql://me:{SECRET}@127.0.0.1:9/none", patience=0.1) as away:
        with pytest.raises(
            StoreUnavailable, match=r"the store postgresql://me:\*\*\*@127.0.0.1:9"
        ) as seen:
            await away.rate(per_second=9).acquire()

    assert SECRET not in f"{seen.value!r} {away!r} {pickle.dumps(seen.value)!r}"


async def test_a_database_that_comes_back_is_used_again(postgres: Server, url: str) -> None:
    """It is stopped as a machine that fails, and started again: calls wait that long."""
    async with Store(url, patience=PATIENCE) as store:
        rate = store.rate(per_second=100)
        await rate.acquire()

        await asyncio.to_thread(postgres.stop)
        waiting = asyncio.ensure_future(times_of(rate, 3))
        await asyncio.sleep(0.2)
        was_waiting = not waiting.done()
        await asyncio.to_thread(postgres.start)

        assert len(await waiting) == 3
    assert was_waiting


async def test_a_password_that_is_wrong_is_no_absence(postgres: Server, url: str) -> None:
    """A database that refuses us is not waited for."""
    async with Store(url.replace("postgres:@", "nobody:x@")) as store:
        with pytest.raises(JournalError, match="refuses"):
            await store.rate(per_second=9).acquire()


def test_without_asyncpg_the_extra_is_named() -> None:
    """And what to install."""
    program = "import sys; sys.modules['asyncpg'] = None; import integration_sdk as sdk; "
    store = "sdk.Store('postgresql://h/db')"

    done = subprocess.run(
        [sys.executable, "-c", program + store], capture_output=True, text=True, check=False
    )

    assert "ConfigurationError: " in done.stderr
    assert "pip install 'integration-sdk[postgres]'" in done.stderr
