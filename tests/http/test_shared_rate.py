"""Promises of a client whose rate is shared with others."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from itertools import pairwise
from typing import Any

import pytest
from attrs import define, field

from integration_sdk import Client, RetryPolicy
from integration_sdk.errors import NotSent, TooManyRequests
from tests.support.virtual_service import Service, refusal

pytestmark = pytest.mark.virtual_time


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


async def read(client: Client) -> Any:
    return await client.request("GET", "/companies/c-0")


async def test_each_transmission_waits_for_the_shared_rate() -> None:
    """Calls leave no faster than it allows, repetitions included."""
    first = iter([refusal(429)])
    service = Service(faults=[lambda asked, proceed: next(first, None) or proceed()])
    rate = Metered(interval=1.0)
    async with service.client(rate=rate, retry=RetryPolicy(throttled_base=0)) as client:
        await asyncio.gather(*(read(client) for _ in range(10)))

    times = [one.at for one in service.log]
    assert len(times) == rate.acquired == 11
    assert all(later - sooner >= 0.999 for sooner, later in pairwise(times))


OF_A_COMPANY = {"Retry_After": "7", "X_Rate_Limit_Remaining": "5", "X_Rate_Limit_Limit": "9"}


@pytest.mark.parametrize(
    ("headers", "told"),
    [({"Retry_After": "7"}, True), ({}, True), (OF_A_COMPANY, False)],
    ids=["named", "unnamed", "of one company"],
)
async def test_others_hear_of_a_refusal_that_concerns_everybody(
    headers: dict[str, str], told: bool
) -> None:
    """For as long as the service said, or as this client itself pauses."""
    service, rate = Service(faults=[lambda *_: refusal(429, **headers)]), Metered()
    async with service.client(rate=rate, retry=None) as client:
        with pytest.raises(TooManyRequests):
            await client.company("c-0").get()

    assert bool(rate.pauses) == told
    assert all(0 < pause <= 10 for pause in rate.pauses)
    assert headers != {"Retry_After": "7"} or rate.pauses[0] >= 7


async def test_others_hear_of_no_pause_that_is_over() -> None:
    """A refusal may come late, of a call that left before another one was refused."""
    seconds = iter([0.1, 9.0])
    service = Service(answer=lambda _: replace(refusal(503), seconds=next(seconds)))
    rate = Metered()
    async with service.client(rate=rate, retry=None) as client:
        await asyncio.gather(read(client), read(client), return_exceptions=True)

    assert len(rate.pauses) == 1
    assert rate.pauses[0] > 0


@pytest.mark.parametrize(
    ("headers", "early"),
    [({"Retry_After": "7"}, 1), (OF_A_COMPANY, 11)],
    ids=["all", "one company"],
)
async def test_calls_in_line_at_a_rate_wait_for_a_closed_gate(
    headers: dict[str, str], early: int
) -> None:
    """They had their turn before it closed, but nothing leaves before ``Retry-After``."""
    refused = refusal(429, **headers)
    service = Service(
        answer=lambda asked: refused if asked.company == "c-0" and asked.at < 7 else None
    )
    async with service.client(rate=5) as client:
        companies = [client.company(f"c-{n}") for n in range(2)]
        await asyncio.gather(*(one.get() for _ in range(10) for one in companies))

    assert sum(asked.at < 7 for asked in service.log) == early


async def test_a_rate_that_comes_too_late_sends_nothing() -> None:
    """The error says what was waited for, and the turn is free for others."""
    service, rate = Service(), Metered(next_at=60.0)
    async with service.client(rate=rate, timeout=5) as client:
        with pytest.raises(NotSent, match="waited for the shared rate"):
            await read(client)
        assert (service.log, client.stats().in_flight) == ([], 0)


@pytest.mark.parametrize("method", ["GET", "POST"])
async def test_a_rate_that_fails_ends_the_call_unsent(method: str) -> None:
    """What it raises is the caller's to see, such as a store that cannot be reached."""
    service, rate = Service(), Metered(wrong=ConnectionError("the store is away"))
    async with service.client(rate=rate) as client:
        with pytest.raises(ConnectionError, match="store is away"):
            await client.request(method, "/companies")
        assert (service.log, client.stats().in_flight) == ([], 0)
