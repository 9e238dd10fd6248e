"""Promises of a coordinator that hears only some of the notifications, as one worker of several."""

from __future__ import annotations

import asyncio
import random

import pytest

from tests.support.push_support import coordinator, request
from tests.support.virtual_service import Service

pytestmark = pytest.mark.virtual_time

PUSHES = 400


async def slowest_tenth(heard: float) -> float:
    """Return the delay that nine ends in ten stay below, where that share of them is heard."""
    dice = random.Random(3)
    service = Service(takes=lambda _: dice.uniform(3, 6))
    loop = asyncio.get_running_loop()
    delays = list[float]()
    async with coordinator(service) as pushes, asyncio.TaskGroup() as group:

        async def follow(number: int) -> None:
            push = await pushes.submit(request(number))
            key = push.key
            assert key is not None
            ends = service.by_key[key].ends
            if dice.random() < heard:
                loop.call_at(ends + 0.2, pushes.notify, key)
            await push
            delays.append(loop.time() - ends)

        for number in range(PUSHES):
            group.create_task(follow(number))
            await asyncio.sleep(2)
    return sorted(delays)[PUSHES * 9 // 10]


@pytest.mark.parametrize("share", [0.1, 0.25, 0.5])
async def test_hearing_some_ends_makes_the_others_no_later(share: float) -> None:
    """Each of several workers behind one address hears its part, and polls for the rest."""
    assert await slowest_tenth(share) <= 1.1 * await slowest_tenth(0.0)


async def test_hearing_all_ends_shows_them_at_once() -> None:
    """Polls do not come before notifications that can be relied upon."""
    assert await slowest_tenth(1.0) < 0.3
