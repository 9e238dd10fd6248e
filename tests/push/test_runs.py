"""Promises of `Coordinator.run`: lazy input, one outcome for each request, loops that are left."""

from __future__ import annotations

import asyncio
import gc
from collections.abc import AsyncIterator
from typing import Any

import pytest

from integration_sdk import Push, PushEvent, PushOutcome, PushRequest
from integration_sdk.errors import ClientClosed, PushFailed
from tests.support.push_support import Input, collect, coordinator, numbers, request, requests
from tests.support.virtual_service import Service

pytestmark = pytest.mark.virtual_time
AHEAD = 64
"""Pushes that wait for the service's answer, at most."""
either_order = pytest.mark.parametrize("ordered", [False, True])


async def test_outcomes_come_as_they_complete() -> None:
    """Without ordered= the quick ones come first."""
    service = Service(lambda record: 30.0 if record["number"] < 5 else 2.0)
    async with coordinator(service) as pushes:
        outcomes = await collect(pushes.run(requests(10)))

    assert sorted(numbers(outcomes[:5])) == [5, 6, 7, 8, 9]


async def test_input_is_pulled_no_further_than_there_are_places() -> None:
    """Never more than max_open requests are pulled beyond the outcomes taken."""
    given, taken, most = Input(100), 0, 0
    async with coordinator(Service(), max_open=10) as pushes:
        async for _ in pushes.run(given):
            taken += 1
            most = max(most, given.pulled - taken)
            await asyncio.sleep(0.2)

    assert taken == 100
    assert most <= 10


async def test_submit_waits_for_a_place() -> None:
    """The push after max_open open ones waits until one has its outcome."""
    async with coordinator(Service(lambda _: 10.0), max_open=2) as pushes:
        for number in range(3):
            await pushes.submit(request(number))
        assert asyncio.get_running_loop().time() >= 10


async def test_input_is_pulled_no_further_than_the_service_answers() -> None:
    """However many may be open, no more than `AHEAD` requests wait for the service's answer."""
    given, answered, most = Input(300), 0, 0

    def hear(_: PushEvent) -> None:
        nonlocal answered, most
        most = max(most, given.pulled - answered)
        answered += 1

    service = Service(lambda _: 1e6, latency=1.0)
    async with coordinator(service, max_open=5000, leave="detach", on_event=hear) as pushes:
        await collect(pushes.run(given, wait=0))

    assert most == AHEAD


async def test_an_exception_in_the_input_comes_after_the_outcomes() -> None:
    """What was sent is drained, then the input's own exception surfaces."""

    async def breaks() -> AsyncIterator[PushRequest]:
        for number in range(5):
            yield request(number)
        raise OSError("file ended badly")

    outcomes: list[PushOutcome] = []
    async with coordinator(Service()) as pushes:
        with pytest.raises(OSError, match="ended badly"):
            await collect(pushes.run(breaks()), into=outcomes)

    assert sorted(numbers(outcomes)) == [0, 1, 2, 3, 4]


@pytest.mark.parametrize("raise_on", ["first", "end"])
async def test_raise_on_turns_outcomes_into_exceptions(raise_on: Any) -> None:
    """ "first" raises at once and pulls nothing more; "end" yields everything first."""
    service = Service(status=lambda record: "Failed" if record["number"] == 3 else "Success")
    outcomes: list[PushOutcome] = []
    async with coordinator(service, max_open=4) as pushes:
        with pytest.raises(PushFailed):
            await collect(pushes.run(requests(40), raise_on=raise_on), into=outcomes)

    assert len(outcomes) == 40 if raise_on == "end" else len(outcomes) < 40


@either_order
async def test_a_run_leaves_places_for_what_its_loop_submits(ordered: bool) -> None:
    """Outcomes that nobody has taken yet hold no place: a correction goes out at once."""
    service = Service(takes=lambda _: 1.0)
    corrected: list[Push] = []
    async with coordinator(service, max_open=4) as pushes:
        async for outcome in pushes.run(requests(20), ordered=ordered):
            await asyncio.sleep(10)
            corrected.append(await pushes.submit(outcome.request))

    assert len(corrected) == 20
    assert service.count("push") == 40


async def test_leaving_early_pulls_nothing_more_and_drains_what_was_sent() -> None:
    """After a break no further request is pulled; the block waits for what was sent."""
    service, given = Service(), Input(100_000)
    async with coordinator(service, max_open=300) as pushes:
        run = pushes.run(given)
        await anext(run)
        await run.aclose()
        stopped_at = given.pulled

    assert given.pulled == stopped_at
    assert pushes.progress.open == 0
    assert pushes.progress.ended == service.count("push")


@pytest.mark.parametrize("leave", ["drain", "detach"])
async def test_a_run_that_is_kept_does_not_hold_the_block_open(leave: str) -> None:
    """The end of the block stops it pulling; gone on with, it says that it was stopped."""
    given, service = Input(30), Service(takes=lambda _: 1.0)
    async with asyncio.timeout(100), coordinator(service, max_open=4, leave=leave) as pushes:
        outcomes = pushes.run(given)
        await anext(outcomes)
        await asyncio.sleep(10)

    rest: list[PushOutcome] = []
    with pytest.raises(ClientClosed, match="rest of the input"):
        await collect(outcomes, rest)
    assert service.count("push") == given.pulled == 1 + len(rest) < 30


@either_order
async def test_a_run_that_is_kept_goes_on_where_its_loop_was_left(ordered: bool) -> None:
    """Meanwhile it pulls no more than ``max_open`` ahead."""
    given = Input(200)
    async with coordinator(Service(), max_open=50) as pushes:
        outcomes = pushes.run(given, ordered=ordered)
        async for _ in outcomes:
            break
        await asyncio.sleep(10)
        assert given.pulled == 1 + 50
        assert len(await collect(outcomes)) == 200 - 1
        assert await collect(outcomes) == []


@pytest.mark.parametrize("begins", [0, 5])
@pytest.mark.parametrize("leave", ["drain", "detach"])
async def test_a_run_that_begins_while_the_block_is_left_does_not_hold_it_open(
    leave: Any, begins: float
) -> None:
    """It is told like the others, though its input gives nothing for a long time."""

    async def source() -> AsyncIterator[PushRequest]:
        await asyncio.sleep(1e9)
        yield request()

    async def late() -> list[PushOutcome]:
        await asyncio.sleep(begins)
        return await collect(pushes.run(source()))

    async with asyncio.timeout(100):
        async with coordinator(Service(lambda _: 10.0), leave=leave) as pushes:
            await pushes.submit(request())
            running = asyncio.create_task(late())
            await asyncio.sleep(0)  # in the very turn in which the block is left
        with pytest.raises(ClientClosed):
            await running


async def test_an_input_that_nobody_holds_is_closed_when_its_loop_is_left() -> None:
    """At once, not when garbage happens to be collected: it may hold a connection."""
    closed: list[bool] = []

    async def source() -> AsyncIterator[PushRequest]:
        try:
            for number in range(1000):
                yield request(number)
        finally:
            closed.append(True)

    gc.disable()
    try:
        async with coordinator(Service(), max_open=5) as pushes:
            async for _ in pushes.run(source()):
                break
            await asyncio.sleep(1)
            assert closed
    finally:
        gc.enable()


async def test_a_stream_of_pushes_leaves_nothing_behind() -> None:
    """Memory stays flat however many records go through run(), and however long they might wait."""

    def objects() -> int:
        gc.collect()
        return len(gc.get_objects())

    counts: list[int] = []
    service = Service(lambda _: 0.5, latency=0.01)
    async with coordinator(service, max_open=100) as pushes:
        for _ in range(3):
            async for _ in pushes.run(requests(300), wait=3600):
                pass
            service.pushes.clear()
            service.by_key.clear()
            counts.append(objects())

    assert counts[2] - counts[1] < 300 * 10
