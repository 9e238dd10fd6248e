"""A limit that all clients of a store keep together: its rule, and its promises in one process."""

from __future__ import annotations

import asyncio
import time
from itertools import chain, pairwise
from typing import Any

import pytest
from attrs import define, field
from hypothesis import given
from hypothesis import strategies as st

from integration_sdk import SharedRate, Store
from integration_sdk._store.rate import EXPIRES, CellRate, Limit, MemoryRates, StoreRate
from integration_sdk.errors import ConfigurationError, StoreUnavailable

INTERVAL = 0.01
moments = st.lists(
    st.tuples(st.floats(0, 3), st.integers(1, 8), st.booleans()), min_size=1, max_size=40
)


@given(moments, st.integers(1, 20))
def test_no_stretch_of_time_has_more_calls_than_the_limit(
    trips: list[tuple[float, int, bool]], burst: int
) -> None:
    """Whoever reserves how many at what moment, and whatever was paused in between."""
    rate, slots, now = CellRate(), list[float](), 100.0
    for later, count, pauses in trips:
        now += later
        if pauses:
            rate.paused_until = max(rate.paused_until, now + later)
        first = rate.reserve(count, now, interval=INTERVAL, burst=burst)
        taken = [max(now, first + number * INTERVAL) for number in range(count)]
        assert min(taken) >= rate.paused_until or not pauses
        slots += taken

    slots.sort()
    for begin, at in enumerate(slots):
        for end in range(begin, len(slots)):
            allowed = burst + (slots[end] - at) / INTERVAL
            assert end - begin + 1 <= allowed + 1e-6


def test_what_is_not_used_is_no_more_than_a_burst() -> None:
    """After an hour without calls as many may leave at once, and the next one waits."""
    rate = CellRate()
    rate.reserve(1, 0.0, interval=1.0, burst=3)

    firsts = [rate.reserve(1, 3600.0, interval=1.0, burst=3) for _ in range(4)]

    assert [first <= 3600.0 for first in firsts] == [True, True, True, False]


async def times_of(rate: SharedRate, count: int) -> list[float]:
    """Let so many calls through at once, and return when each has left."""
    loop, times = asyncio.get_running_loop(), list[float]()

    async def call() -> None:
        await rate.acquire()
        times.append(loop.time())

    await asyncio.gather(*(call() for _ in range(count)))
    return times


@pytest.mark.virtual_time
@pytest.mark.parametrize("where", [None, "state.db"])
async def test_clients_of_one_store_keep_a_limit_together(where: str | None) -> None:
    """Two of them get as many calls through as one alone, one after the other."""
    store = Store(where)
    one, other = store.rate(per_second=100), store.rate(per_second=100)

    both = await asyncio.gather(times_of(one, 50), times_of(other, 50))

    times = sorted(both[0] + both[1])
    assert times[-1] - times[0] == pytest.approx(0.99)
    assert all(later - sooner >= 0.0099 for sooner, later in pairwise(times))
    await store.aclose()


@pytest.mark.virtual_time
async def test_names_tell_limits_apart() -> None:
    """One for each account."""
    store = Store()
    rates = [store.rate(per_second=10, name=name) for name in ("a", "b", "a")]

    times = await asyncio.gather(*(times_of(rate, 5) for rate in rates))

    begin = min(map(min, times))
    assert max(times[1]) - begin == pytest.approx(0.4)
    assert max(times[0] + times[2]) - begin == pytest.approx(0.9)


@pytest.mark.virtual_time
async def test_a_refusal_that_one_meets_stops_all() -> None:
    """Also those that have a slot already; afterwards they go on one by one."""
    store, loop = Store(), asyncio.get_running_loop()
    one, other = store.rate(per_second=100), store.rate(per_second=100)
    calls = asyncio.gather(times_of(one, 20), times_of(other, 20))
    await asyncio.sleep(0.05)
    refused = loop.time()
    one.paused(7.0)

    both = await calls

    late = sorted(at for at in both[0] if at > refused)
    assert late[0] >= refused + 7.0
    assert sum(refused < at < refused + 7.0 for at in both[1]) <= 10  # the slots of two trips
    assert all(later - sooner >= 0.0099 for sooner, later in pairwise(late))


@define
class Counted:
    """Keeps a limit, counts trips, and fails as often as it is told to."""

    rates: MemoryRates = field(factory=MemoryRates)
    trips: list[int] = field(factory=list)
    failures: list[Exception] = field(factory=list)
    takes: float = 0.0

    async def reserve(self, name: str, count: int, interval: float, burst: int) -> float:
        self.trips.append(count)
        await asyncio.sleep(self.takes)
        if self.failures:
            raise self.failures.pop(0)
        return await self.rates.reserve(name, count, interval, burst)

    async def pause(self, name: str, seconds: float) -> None:
        if self.failures:
            raise self.failures.pop(0)


def limited(keeper: Counted) -> StoreRate:
    return StoreRate(Limit("calls", INTERVAL, 1), keeper)


@pytest.mark.virtual_time
async def test_a_trip_reserves_a_handful() -> None:
    """A crowd makes a fifth of the trips; a caller alone takes one slot, and leaves the rest."""
    keeper = Counted()
    await times_of(limited(keeper), 100)
    assert len(keeper.trips) <= 22
    assert max(keeper.trips) == 5

    keeper = Counted()
    for _ in range(5):
        await times_of(limited(keeper), 1)
    assert keeper.trips == [1] * 5


@pytest.mark.virtual_time
@pytest.mark.parametrize("processes", [1, 3])
async def test_long_trips_reserve_more(processes: int) -> None:
    """So that the limit is reached, and not passed, however far away the store is."""
    rates = MemoryRates()
    limits = [limited(Counted(rates, takes=0.4)) for _ in range(processes)]

    times = sorted(chain(*await asyncio.gather(*(times_of(one, 300) for one in limits))))

    assert all(later - sooner >= 0.0099 for sooner, later in pairwise(times)) or processes > 1
    assert times[-1] - times[0] <= 1.15 * 3.0 * processes
    assert times[-1] - times[0] >= 0.99 * 3.0 * processes - 0.5


@pytest.mark.virtual_time
async def test_a_pause_is_no_longer_than_a_minute() -> None:
    """Then each process asks the service itself, and reports what it says."""
    store, loop = Store(), asyncio.get_running_loop()
    one, other = store.rate(per_second=100), store.rate(per_second=100)
    one.paused(86400.0)
    await asyncio.sleep(0)
    begin = loop.time()

    await asyncio.gather(one.acquire(), other.acquire())

    assert 59 <= loop.time() - begin <= 61


@pytest.mark.virtual_time
async def test_a_shorter_pause_replaces_no_longer_one() -> None:
    """Not even one that another process was told of later."""
    store, loop = Store(), asyncio.get_running_loop()
    one, other = store.rate(per_second=100), store.rate(per_second=100)
    begin = loop.time()
    one.paused(30.0)
    await asyncio.sleep(0)
    other.paused(1.0)
    await asyncio.sleep(0)

    await other.acquire()

    assert loop.time() - begin >= 30


@pytest.mark.virtual_time
async def test_a_long_wait_is_logged(caplog: pytest.LogCaptureFixture) -> None:
    """Whoever wonders why nothing happens finds the limit's name."""
    store = Store()
    store.rate(per_second=100, name="books").paused(30.0)
    await asyncio.sleep(0)

    await store.rate(per_second=100, name="books").acquire()

    assert "calls wait 30 s for the shared rate 'books'" in caplog.text


async def test_a_slot_that_was_not_used_in_time_is_void() -> None:
    """A process that was frozen takes new ones: the old ones were long given to others."""
    keeper = Counted()
    rate = StoreRate(Limit("calls", 0.1, 1), keeper)
    await rate.acquire()
    late = asyncio.ensure_future(rate.acquire())
    await asyncio.sleep(0.02)

    time.sleep(0.1 + 1.5 * EXPIRES)  # noqa: ASYNC251 - frozen
    await late

    assert len(keeper.trips) == 3


@pytest.mark.virtual_time
async def test_who_gives_up_leaves_his_slot_to_the_next() -> None:
    """A call that was cancelled holds nobody up."""
    rate = limited(Counted(takes=1.0))
    gone = [asyncio.ensure_future(rate.acquire()) for _ in range(50)]
    stays = asyncio.ensure_future(times_of(rate, 1))
    await asyncio.sleep(0.5)
    for one in gone:
        one.cancel()

    (at,) = await stays
    assert at <= 2.2
    await asyncio.gather(*gone, return_exceptions=True)


@pytest.mark.virtual_time
async def test_a_store_that_is_away_ends_each_call_with_an_error_of_its_own() -> None:
    """And the next call asks it anew."""
    keeper = Counted(failures=[StoreUnavailable("away")])
    rate = limited(keeper)

    ends = await asyncio.gather(*(rate.acquire() for _ in range(3)), return_exceptions=True)

    assert [type(end) for end in ends] == [StoreUnavailable] * 3
    assert len({id(end) for end in ends}) == 3
    await rate.acquire()


@pytest.mark.virtual_time
async def test_what_cannot_be_told_to_others_holds_here(caplog: pytest.LogCaptureFixture) -> None:
    """The pause counts in this process all the same."""
    rate, loop = limited(Counted(failures=[StoreUnavailable("away")])), asyncio.get_running_loop()
    rate.paused(5.0)
    begin = loop.time()
    await asyncio.sleep(0)
    await asyncio.sleep(0)

    assert "could not be told that calls are refused: away" in caplog.text
    await rate.acquire()
    assert loop.time() >= begin + 5.0


@pytest.mark.virtual_time
async def test_a_task_that_somebody_cancels_is_started_again() -> None:
    """A shutdown that cancels all tasks it does not know costs nobody his turn."""
    rate = limited(Counted(takes=1.0))
    waiting = asyncio.ensure_future(times_of(rate, 3))
    await asyncio.sleep(0.5)
    (filling,) = (one for one in asyncio.all_tasks() if one.get_name() == "integration_sdk rate")
    filling.cancel()

    assert len(await waiting) == 3


@pytest.mark.parametrize(
    "wrong",
    [
        {"per_second": 0},
        {"per_second": float("inf")},
        {"per_second": "9"},
        {"per_second": True},
        {"per_second": 9, "burst": 0},
        {"per_second": 9, "name": " "},
        {"per_second": 9, "name": "\n"},
    ],
)
def test_what_cannot_be_a_limit_is_refused(wrong: dict[str, Any]) -> None:
    """At once, with what to give instead."""
    with pytest.raises(ConfigurationError, match="must be"):
        Store().rate(**wrong)
