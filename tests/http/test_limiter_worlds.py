"""What each part of the limiter is good for: 1,000 calls of ten companies, in virtual time.

A part without which every world stays within its limits has not earned its place.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Callable, Mapping

import pytest
from attrs import field, frozen

from integration_sdk._http import CallOptions, Session
from integration_sdk._http.requests import Request
from integration_sdk.errors import IntegrationError
from tests.http.test_throttle_crowd import Bucket, Windows, at_once
from tests.support.session_support import Rule, Verdict, VirtualService, read, virtual_session

pytestmark = pytest.mark.virtual_time

CALLS, COMPANIES, SEEDS = 1000, 10, (1, 2, 3)


@frozen
class PerCompany:
    """A bucket for each company, or for *limited* ones alone."""

    make: Callable[[], Bucket]
    limited: frozenset[str] = frozenset(map(str, range(COMPANIES)))
    buckets: dict[str, Bucket] = field(factory=dict)

    def __call__(self, service: VirtualService, request: Request, at: float) -> Verdict:
        company = str(request.company_id)
        if company not in self.limited:
            return None
        return self.buckets.setdefault(company, self.make())(service, request, at)


WORLDS: Mapping[str, Callable[[str | None], Rule]] = {
    "bucket": lambda told: Bucket(100, 100, told),
    "window": lambda told: Windows(100, told),
    "small": lambda told: Bucket(100, 10, told),
    "each company": lambda told: PerCompany(lambda: Bucket(10, 10, told)),
    "at once": lambda told: at_once(10, told),
    "one company": lambda told: PerCompany(lambda: Bucket(100, 10, told), frozenset({"0"})),
}

LIMITS: Mapping[tuple[str, str | None, float], tuple[float, int]] = {
    # (world, Retry-After, latency): seconds, and 429s, in the median of the seeds
    ("bucket", "1", 0.02): (13, 36),
    ("bucket", None, 0.02): (13, 48),
    ("window", "1", 0.02): (19, 38),
    ("window", None, 0.02): (16, 62),
    ("small", "1", 0.02): (32, 36),
    ("small", None, 0.02): (13, 40),
    ("each company", "1", 0.02): (15, 33),
    ("each company", None, 0.02): (14, 32),
    ("at once", "1", 0.02): (10, 27),
    ("at once", None, 0.02): (3.4, 25),
    ("one company", "1", 0.02): (5, 14),
    ("one company", None, 0.02): (3.6, 14),
}


@pytest.mark.parametrize(("world", "told", "latency"), LIMITS)
async def test_a_crowd_of_companies(world: str, told: str | None, latency: float) -> None:
    """Each service is used nearly as well as it allows, with few refusals and no failure."""
    seconds, refused = await medians(world, told, latency)

    most_seconds, most_refused = LIMITS[world, told, latency]
    assert seconds <= most_seconds
    assert refused <= most_refused


async def medians(world: str, told: str | None, latency: float) -> tuple[float, int]:
    took, refused = [], []
    for seed in SEEDS:
        service = VirtualService(WORLDS[world](told), latency)
        session = virtual_session(service, seed=seed)
        began = asyncio.get_running_loop().time()
        outcomes = await asyncio.gather(*(outcome_of(session, n) for n in range(CALLS)))
        assert Counter(outcomes) == {200: CALLS}
        took.append(asyncio.get_running_loop().time() - began)
        refused.append(service.count(429))
        await session.aclose()
    return sorted(took)[1], sorted(refused)[1]


async def outcome_of(session: Session, number: int) -> object:
    request = read(company_id=str(number % COMPANIES))
    try:
        return (await session.send(request, CallOptions(timeout=60))).status
    except IntegrationError as error:
        return type(error)
