"""A store in PostgreSQL, on a real server."""

from __future__ import annotations

import asyncio
import pickle
from itertools import chain, pairwise
from urllib.parse import urlsplit

import pytest

from integration_sdk import ConfigurationError, JournalError, Store, StoreUnavailable
from tests.postgres import Server
from tests.test_store_rates import times_of

SECRET = "s3cret"


@pytest.fixture
async def url(postgres: Server) -> str:
    return await postgres.new_database()


# Rates


async def test_processes_keep_a_limit_together(url: str) -> None:
    """Each has a store of its own; all of them together are as fast as the limit, no faster."""
    stores = [Store(url) for _ in range(3)]
    rates = [store.rate(per_second=100) for store in stores]
    await asyncio.gather(*(times_of(rate, 1) for rate in rates))  # connected

    times = sorted(chain(*await asyncio.gather(*(times_of(rate, 20) for rate in rates))))

    assert times[-1] - times[0] >= 0.58
    assert all(times[at + 10] - times[at] >= 0.085 for at in range(len(times) - 10))
    for store in stores:
        await store.aclose()


async def test_a_burst_may_leave_at_once(url: str) -> None:
    """As many as it allows, and the next ones wait."""
    async with Store(url) as store:
        rate = store.rate(per_second=5, burst=4)
        times = await times_of(rate, 6)

    assert times[3] - times[0] < 0.15
    assert times[5] - times[0] >= 0.35


async def test_a_refusal_that_one_process_meets_stops_all(url: str) -> None:
    """Until the time is over that the service has named."""
    one, other = Store(url), Store(url)
    met, hears = one.rate(per_second=100), other.rate(per_second=100)
    await times_of(met, 1)
    await times_of(hears, 1)
    begin = asyncio.get_running_loop().time()

    met.paused(0.6)
    await asyncio.sleep(0.1)
    (late,) = await times_of(hears, 1)

    assert late >= begin + 0.59
    await one.aclose()
    await other.aclose()


# The database


async def test_many_open_a_new_database_at_once(url: str) -> None:
    """One makes the tables, the others wait for it."""
    stores = [Store(url) for _ in range(8)]

    await asyncio.gather(*(store.rate(per_second=1000).acquire() for store in stores))

    for store in stores:
        await store.aclose()


async def test_tables_of_a_newer_sdk_are_refused(postgres: Server, url: str) -> None:
    """It is not guessed what they mean."""
    async with Store(url) as store:
        await store.rate(per_second=9).acquire()
    await postgres.execute(
        urlsplit(url).path[1:], "INSERT INTO integration_sdk.migrations VALUES (99)"
    )

    async with Store(url) as store:
        with pytest.raises(JournalError, match="has schema 99, this SDK knows"):
            await store.rate(per_second=9).acquire()


async def test_a_database_that_is_away_is_waited_for_and_then_reported(postgres: Server) -> None:
    """With the address, and without the password."""
    away = Store(f"postgresql://me:{SECRET}@127.0.0.1:9/none", patience=0.3)
    loop = asyncio.get_running_loop()
    begin = loop.time()

    with pytest.raises(
        StoreUnavailable, match=r"the store postgresql://me:\*\*\*@127.0.0.1:9"
    ) as seen:
        await away.rate(per_second=9).acquire()

    assert 0.3 <= loop.time() - begin < 5
    assert SECRET not in f"{seen.value!r} {away!r} {pickle.dumps(seen.value)!r}"
    await away.aclose()


async def test_a_database_that_comes_back_is_used_again(postgres: Server, url: str) -> None:
    """It is stopped as a machine that fails, and started again: calls wait that long."""
    store = Store(url)
    rate = store.rate(per_second=100)
    await rate.acquire()

    await asyncio.to_thread(postgres.stop)
    waiting = asyncio.ensure_future(times_of(rate, 3))
    await asyncio.sleep(0.2)
    assert not waiting.done()
    await asyncio.to_thread(postgres.start)

    times = await waiting
    assert all(later - sooner >= 0.0095 for sooner, later in pairwise(sorted(times)))
    await store.aclose()


async def test_a_password_that_is_wrong_is_no_absence(postgres: Server, url: str) -> None:
    """A database that refuses us is not waited for."""
    async with Store(url.replace("postgres:@", "nobody:x@")) as store:
        with pytest.raises(JournalError, match="refuses"):
            await store.rate(per_second=9).acquire()


@pytest.mark.parametrize(
    ("url", "shown"),
    [
        ("postgresql://h/db", "postgresql://h/db"),
        (f"postgresql://me:{SECRET}@h:5/db", "postgresql://me:***@h:5/db"),
        (f"postgresql://h/db?password={SECRET}", "postgresql://***@h/db?***"),
        (f"postgres://me:{SECRET}@a,b/db?sslmode=require", "postgres://me:***@a,b/db?***"),
    ],
)
def test_a_password_is_never_shown(url: str, shown: str) -> None:
    """Wherever it stands in the URL."""
    assert repr(Store(url)) == f"Store('{shown}')"


def test_without_asyncpg_the_extra_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    """And what to install."""
    monkeypatch.setattr("integration_sdk._store.postgres.asyncpg", None)

    with pytest.raises(ConfigurationError, match=r"pip install 'integration-sdk\[postgres\]'"):
        Store("postgresql://h/db")
