"""A limit of calls that all processes of a database keep together."""

from __future__ import annotations

import asyncio
import gc
import time
from collections.abc import Callable, Sequence
from itertools import chain, pairwise
from math import inf
from pathlib import Path
from typing import Any

import pytest
from attrs import define, field
from hypothesis import given
from hypothesis import strategies as st

from integration_sdk import SharedRate
from integration_sdk._pacing import CellRate
from integration_sdk._store.rate import EXPIRES, StoreRate
from integration_sdk._store.sql import POSTGRES, Statement, Words
from integration_sdk._store.store import Store
from integration_sdk.errors import ConfigurationError, StoreUnavailable
from tests.support.postgres import Server, fetch

INTERVAL = 0.01
moments = st.lists(
    st.tuples(st.floats(0, 3), st.integers(1, 8), st.booleans()), min_size=1, max_size=40
)


@given(moments, st.integers(1, 20))
def test_no_stretch_of_time_has_more_than_the_limit(
    trips: list[tuple[float, int, bool]], burst: int
) -> None:
    """Whoever reserves how many at what moment, and whatever was paused in between."""
    rate, slots, now = CellRate(), list[float](), 100.0
    for later, count, pauses in trips:
        now += later
        if pauses:
            rate.pause(now + later)
        wait = rate.wait(now, interval=INTERVAL, burst=burst)
        first = rate.reserve(count, now, interval=INTERVAL, burst=burst)
        taken = [max(now, first + number * INTERVAL) for number in range(count)]
        assert taken[0] == pytest.approx(now + wait)
        assert min(taken) >= rate.paused_until or not pauses
        slots += taken

    slots.sort()
    for begin, at in enumerate(slots):
        for end in range(begin, len(slots)):
            allowed = burst + (slots[end] - at) / INTERVAL
            assert end - begin + 1 <= allowed + 1e-6


@given(st.floats(0.01, 20), st.integers(0, 40))
def test_a_slot_is_free_after_each_interval(burst: float, taken: int) -> None:
    """However small the burst is said to be: a share of one request is still one at a time."""
    rate, now = CellRate(-inf), 100.0
    for _ in range(taken):
        now += rate.wait(now, interval=INTERVAL, burst=burst)
        rate.reserve(1, now, interval=INTERVAL, burst=burst)

    assert rate.wait(now + 1.001 * INTERVAL, interval=INTERVAL, burst=burst) == 0


async def times_of(rate: SharedRate, count: int) -> list[float]:
    """Let so many calls through at once, and return when each has left."""
    loop, times = asyncio.get_running_loop(), list[float]()

    async def call() -> None:
        await rate.acquire()
        times.append(loop.time())

    await asyncio.gather(*(call() for _ in range(count)))
    return times


@define
class Rates:
    """Stands for a database in virtual time: counts trips, and fails as often as it is told to."""

    cell: CellRate = field(factory=CellRate)
    takes: float = 0.0
    failures: list[Exception] = field(factory=list)
    trips: list[int] = field(factory=list)
    words: Words = POSTGRES
    shared: bool = True
    connections: int = 1

    def listen(self, heard: Callable[[str], None]) -> None:
        raise NotImplementedError

    async def run(self, work: Sequence[Statement]) -> list[list[Any]]:
        ((_, (_, *facts)),) = work
        if len(facts) > 1:
            self.trips.append(int(str(facts[0])))
            await asyncio.sleep(self.takes)
        if self.failures:
            raise self.failures.pop(0)
        now = asyncio.get_running_loop().time()
        if len(facts) == 1:
            self.cell.pause(now + float(str(facts[0])))
            return [[]]
        count, interval, span = (float(str(one)) for one in facts)
        burst = 1 + span / interval
        return [[[self.cell.reserve(int(count), now, interval=interval, burst=burst) - now]]]


def limited(rates: Rates) -> StoreRate:
    return StoreRate("calls", INTERVAL, 1, rates)


@pytest.mark.virtual_time
async def test_trip_reserves_a_handful() -> None:
    """A crowd makes a fifth of the trips; a caller alone takes one slot, and leaves the rest."""
    rates = Rates()
    await times_of(limited(rates), 100)
    assert len(rates.trips) <= 22
    assert max(rates.trips) == 5

    rates = Rates()
    for _ in range(5):
        await times_of(limited(rates), 1)
    assert rates.trips == [1] * 5


@pytest.mark.virtual_time
@pytest.mark.parametrize("processes", [1, 3])
async def test_long_trips_reserve_more(processes: int) -> None:
    """So that the limit is reached, and not passed, however far away the database is."""
    cell = CellRate()
    limits = [limited(Rates(cell, takes=0.4)) for _ in range(processes)]

    times = sorted(chain(*await asyncio.gather(*(times_of(one, 300) for one in limits))))

    assert all(later - sooner >= 0.0099 for sooner, later in pairwise(times)) or processes > 1
    assert times[-1] - times[0] <= 1.15 * 3.0 * processes
    assert times[-1] - times[0] >= 0.99 * 3.0 * processes - 0.5


@pytest.mark.virtual_time
async def test_refusal_that_one_meets_stops_all() -> None:
    """Also those that have a slot already; afterwards they go on one by one."""
    cell, loop = CellRate(), asyncio.get_running_loop()
    one, other = limited(Rates(cell)), limited(Rates(cell))
    calls = asyncio.gather(times_of(one, 20), times_of(other, 20))
    await asyncio.sleep(0.05)
    refused = loop.time()
    one.paused(7.0)

    both = await calls

    late = sorted(at for at in both[0] if at > refused)
    assert late[0] >= refused + 7.0
    assert sum(refused < at < refused + 7.0 for at in both[1]) <= 10  # the slots of two trips
    assert all(later - sooner >= 0.0099 for sooner, later in pairwise(late))


async def test_slot_that_was_not_used_in_time_is_void() -> None:
    """A process that was frozen takes new ones: the old ones were long given to others."""
    rates = Rates()
    rate = StoreRate("calls", 0.1, 1, rates)
    await rate.acquire()
    late = asyncio.ensure_future(rate.acquire())
    await asyncio.sleep(0.02)

    time.sleep(0.1 + 1.5 * EXPIRES)  # noqa: ASYNC251 - frozen
    await late

    assert len(rates.trips) == 3


@pytest.mark.virtual_time
async def test_database_that_is_away_ends_each_call_with_an_error_of_its_own() -> None:
    """And the next call asks it anew."""
    rate = limited(Rates(failures=[StoreUnavailable("away")]))

    ends = await asyncio.gather(*(rate.acquire() for _ in range(3)), return_exceptions=True)

    assert [type(end) for end in ends] == [StoreUnavailable] * 3
    assert len({id(end) for end in ends}) == 3
    await rate.acquire()


@pytest.mark.virtual_time
async def test_call_goes_on_though_its_reservation_was_cancelled() -> None:
    """As where all tasks of a loop are cancelled, and one calls the service in its ``finally``."""
    rate = limited(Rates())

    async def work() -> None:
        try:
            await rate.acquire()
        finally:
            await rate.acquire()

    working = asyncio.create_task(work())
    await asyncio.sleep(0)
    for task in asyncio.all_tasks() - {asyncio.current_task()}:
        task.cancel()
    async with asyncio.timeout(10):
        await asyncio.wait([working])

    assert working.cancelled()


@pytest.mark.parametrize(
    "wrong", [{"per_second": 0}, {"per_second": inf}, {"burst": 0}, {"name": " "}]
)
def test_what_cannot_be_a_limit_is_refused(wrong: dict[str, Any]) -> None:
    """At once, with what to give instead."""
    with pytest.raises(ConfigurationError, match="must be"):
        Store("postgresql://h/db").rate(**{"per_second": 9, **wrong})


@pytest.fixture
async def url(postgres: Server) -> str:
    return await postgres.new_database()


async def reserved(url: str) -> tuple[float, float]:
    """Return how far ahead of the database's clock slots are taken, and until when."""
    now = "extract(epoch FROM clock_timestamp())::float8"
    query = f"SELECT next_at - {now}, next_at FROM integration_sdk.rates WHERE name = 'calls'"
    (row,) = await fetch(url, query)
    return row[0], row[1]


def shared(store: Store) -> StoreRate:
    rate = store.rate(per_second=100)
    assert isinstance(rate, StoreRate)
    return rate


async def test_a_file_has_one_process_whose_client_keeps_the_limit(tmp_path: Path) -> None:
    """The same program runs on a file and on PostgreSQL."""
    assert Store(tmp_path / "state.db").rate(per_second=95) == 95


async def test_processes_keep_a_limit_together(url: str) -> None:
    """Each has a store of its own, and each call a slot that no other one has."""
    async with Store(url) as a, Store(url) as b, Store(url) as c:
        rates = [shared(store) for store in (a, b, c)]
        await rates[0].acquire()
        _, before = await reserved(url)

        await asyncio.gather(*(times_of(rate, 20) for rate in rates))

        _, after = await reserved(url)
    assert after - before >= 0.6 - 1e-6


@pytest.mark.filterwarnings("ignore::ResourceWarning")  # of the sockets of the first loops
def test_a_limit_is_kept_in_one_loop_after_another(postgres: Server) -> None:
    """As a module's client is used: also where the store is not closed before its loop ends."""
    store = Store(asyncio.run(postgres.new_database()))
    rate = shared(store)

    async def use(*, close: bool = False) -> int:
        times = await times_of(rate, 8)
        if close:
            await store.aclose()
        return len(times)

    assert [asyncio.run(use()), asyncio.run(use()), asyncio.run(use(close=True))] == [8, 8, 8]
    gc.collect()


async def test_pause_is_on_record_for_all(url: str) -> None:
    """For a minute at most, also after a shorter one that another process has met."""
    wait = "SELECT paused_until - extract(epoch FROM now()) AS wait FROM integration_sdk.rates"
    async with Store(url) as one, Store(url) as other:
        met, hears = shared(one), shared(other)
        await met.acquire()
        met.paused(86400.0)
        while (await fetch(url, wait))[0]["wait"] <= 0:
            pass  # it is on its way
        hears.paused(1.0)
        await asyncio.sleep(0.1)
        assert 50 < (await fetch(url, wait))[0]["wait"] <= 60


async def test_a_clock_that_was_set_back_stops_no_calls(url: str) -> None:
    """Two minutes are lost at most, not the hours by which the database's clock has gone back."""
    async with Store(url) as store:
        rate = shared(store)
        await rate.acquire()
        late = "next_at = next_at + 7200, paused_until = next_at + 7200"
        await fetch(url, f"UPDATE integration_sdk.rates SET {late}")
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(0.5):
                await rate.acquire()

        assert 100 < (await reserved(url))[0] < 125
        for task in asyncio.all_tasks() - {asyncio.current_task()}:
            task.cancel()
