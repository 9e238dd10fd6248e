"""Virtual time: exact schedules, real sockets, no hang."""

from __future__ import annotations

import asyncio
import threading

import aiohttp
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from integration_sdk.testing import VirtualTimeStalled, run_virtual
from tests.support.loops import now
from tests.support.session_support import Peer, answer, in_turn, raw_server

pytestmark = pytest.mark.virtual_time

HOUR = 3600.0


async def late(peer: Peer) -> None:
    await peer.receive()
    await asyncio.sleep(10)
    peer.write(answer())


async def test_real_sockets_take_no_virtual_time() -> None:
    """4 MB of body, 200 requests, and 200 connections at once, by name and by address, are all
    made before the clock moves.
    """
    connector, limit = aiohttp.TCPConnector(limit=0), aiohttp.ClientTimeout(total=10.5)
    sizes = (0, 1, 4_000_000, *[100] * 200)
    async with (
        raw_server(in_turn(*(answer(body=bytes(size)) for size in sizes))) as server,
        raw_server(late) as slow,
        aiohttp.ClientSession(connector=connector, timeout=limit) as session,
    ):
        for size in sizes:
            async with session.get(server.base_url) as got:
                assert len(await got.read()) == size
        assert now() == 0
        by_name = slow.base_url.replace("127.0.0.1", "localhost")
        for got in await asyncio.gather(*map(session.get, [slow.base_url, by_name] * 100)):
            got.release()

    assert now() == 10


async def test_the_clock_waits_for_threads() -> None:
    """A thread's work is done before any timer fires, however short the timer."""
    release = threading.Event()
    asyncio.get_running_loop().call_soon(release.set)

    async with asyncio.timeout(1e-6):
        assert await asyncio.to_thread(release.wait, 5)

    assert now() == 0
    await asyncio.sleep(HOUR)  # what is done holds nothing back
    assert now() == HOUR


@pytest.mark.parametrize(
    ("ticks", "why"), [(False, "waited for nothing"), (True, "the horizon was reached")]
)
def test_a_wait_for_ever_says_so(ticks: bool, why: str) -> None:
    """It raises, beside a repeating timer at the horizon, and names the task and the line."""

    def tick() -> None:
        asyncio.get_running_loop().call_later(HOUR, tick)

    async def waits_for_ever() -> None:
        if ticks:
            tick()
        await asyncio.Event().wait()

    where = rf"{why}(?s:.)*waits_for_ever:\d+ > Event\.wait"
    with pytest.raises(VirtualTimeStalled, match=where):
        run_virtual(waits_for_ever(), patience=0.01, horizon=1000 * HOUR)


def test_a_thread_that_never_ends_says_so() -> None:
    """A thread without an end raises instead of letting timers run ahead of it."""
    release = threading.Event()

    async def main() -> None:
        try:
            async with asyncio.timeout(5):
                await asyncio.to_thread(release.wait)
        finally:
            release.set()  # else the loop's end would wait for the thread, too

    with pytest.raises(VirtualTimeStalled, match="1 x thread"):
        run_virtual(main(), patience=0.05)


@given(st.lists(st.floats(0, 1e7), min_size=1, max_size=20))
@settings(max_examples=50)
def test_every_sleeper_wakes_no_sooner_than_it_asked(delays: list[float]) -> None:
    """For any set of sleeps each ends at its own time, to within a rounding."""

    async def sleeper(seconds: float) -> float:
        await asyncio.sleep(seconds)
        return now()

    async def main() -> list[float]:
        return await asyncio.gather(*map(sleeper, delays))

    assert run_virtual(main()) == pytest.approx(delays, abs=1e-6)
