"""Promises of a client whose rate is shared with others."""

from __future__ import annotations

import asyncio
from itertools import pairwise
from typing import Any

import pytest
from attrs import define, field

from integration_sdk import Client, RetryPolicy, SharedRate
from integration_sdk._http import CallOptions
from integration_sdk.errors import ConfigurationError, NotSent
from tests.session_support import KEY, VirtualService, read, virtual_session, write

pytestmark = pytest.mark.virtual_time
ONCE = CallOptions(timeout=5, retry=RetryPolicy.never())


@define
class Metered:
    """Lets one call through every *interval* seconds."""

    interval: float = 0.0
    wrong: Exception | None = None
    next_at: float = 0.0
    acquired: int = 0
    pauses: list[float] = field(factory=list)

    async def acquire(self) -> None:
        now = asyncio.get_running_loop().time()
        at, self.next_at = max(now, self.next_at), max(now, self.next_at) + self.interval
        await asyncio.sleep(at - now)
        if self.wrong is not None:
            raise self.wrong
        self.acquired += 1

    def paused(self, seconds: float) -> None:
        self.pauses.append(seconds)


async def test_each_transmission_waits_for_the_shared_rate() -> None:
    """Calls leave no faster than it allows, repetitions included."""
    service = VirtualService(rule=lambda self, *_: None if self.log else (429, {}))
    rate = Metered(interval=1.0)
    session = virtual_session(service, rate=rate)
    options = CallOptions(retry=RetryPolicy(throttled_base=0))
    await asyncio.gather(*(session.send(read(), options) for _ in range(10)))
    await session.aclose()

    times = [at for at, _, _ in service.log]
    assert len(times) == rate.acquired == 11
    assert all(later - sooner >= 0.999 for sooner, later in pairwise(times))


async def test_a_slot_has_the_rate_before_its_block_begins() -> None:
    """So nothing is on record of a push that still waits for the rate."""
    service, rate = VirtualService(), Metered()
    session = virtual_session(service, rate=rate)
    async with session.slot(write(), ONCE) as slot:
        assert (rate.acquired, service.log) == (1, [])
        await slot.send()
    assert (rate.acquired, len(service.log)) == (1, 1)
    await session.aclose()


@pytest.mark.parametrize(
    ("headers", "company", "told"),
    [
        ({"Retry-After": "7"}, None, True),
        ({}, None, True),
        (
            {"Retry-After": "7", "X-Rate-Limit-Remaining": "5", "X-Rate-Limit-Limit": "9"},
            "c",
            False,
        ),
    ],
    ids=["named", "unnamed", "of one company"],
)
async def test_others_hear_of_a_refusal_that_concerns_everybody(
    headers: dict[str, str], company: str | None, told: bool
) -> None:
    """For as long as the service said, or as this client itself pauses."""
    service = VirtualService(rule=lambda *_: (429, headers))
    rate = Metered()
    session = virtual_session(service, rate=rate)
    await session.send(read(company_id=company), ONCE)
    await session.aclose()

    assert bool(rate.pauses) == told
    assert all(0 < pause <= 10 for pause in rate.pauses)
    assert headers != {"Retry-After": "7"} or rate.pauses[0] >= 7


async def test_a_rate_that_comes_too_late_sends_nothing() -> None:
    """The error says what was waited for, and the turn is free for others."""
    service, rate = VirtualService(), Metered(next_at=60.0)
    session = virtual_session(service, rate=rate, connections=1)
    with pytest.raises(NotSent, match="waited for the shared rate"):
        await session.send(read(), ONCE)
    assert (service.log, session.stats().in_flight) == ([], 0)
    await session.aclose()


@pytest.mark.parametrize("by_slot", [True, False])
async def test_a_rate_that_fails_ends_the_call_unsent(by_slot: bool) -> None:
    """What it raises is the caller's to see, such as a store that cannot be reached."""
    service, rate = VirtualService(), Metered(wrong=ConnectionError("the store is away"))
    session = virtual_session(service, rate=rate, connections=1)

    async def by_a_slot() -> None:
        async with session.slot(write(), ONCE):
            pytest.fail("a turn without the rate")

    with pytest.raises(ConnectionError, match="store is away"):
        await (by_a_slot() if by_slot else session.send(read(), ONCE))
    assert (service.log, session.stats().in_flight) == ([], 0)
    await session.aclose()


async def test_a_client_takes_a_rate_of_ones_own() -> None:
    """Anything with the two methods; whatever else is refused at once."""
    assert isinstance(Metered(), SharedRate)
    async with Client(KEY, "http://localhost:1", rate=Metered()):
        pass
    wrong: Any
    for wrong in ("95", 0, -1, object(), True):
        with pytest.raises(ConfigurationError, match="rate must be more than 0 calls per second"):
            Client(KEY, "http://localhost:1", rate=wrong)
