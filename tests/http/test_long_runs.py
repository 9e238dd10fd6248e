"""A process that runs for months: what it holds is bounded by what is going on, not by what was."""

from __future__ import annotations

import gc
import weakref
from collections.abc import Iterator
from types import FunctionType
from typing import Any

import pytest

from integration_sdk._http import CallOptions
from integration_sdk._http.limiter import Limiter
from integration_sdk._http.limits import Lane, Waiter
from tests.support.session_support import (
    VirtualService,
    asking,
    least,
    refusal,
    virtual_session,
    write,
)


def held_by(limiter: Limiter) -> Iterator[Lane | Waiter]:
    """Yield all lanes and calls that *limiter* refers to."""
    seen, found = set[int](), [limiter]
    while found:
        one: Any = found.pop()
        # A function leads to its module, and from there to what other tests keep.
        if id(one) in seen or isinstance(one, type | FunctionType):
            continue
        seen.add(id(one))
        if isinstance(one, Lane | Waiter):
            yield one
        found += gc.get_referents(one)


@pytest.mark.parametrize("in_outage", [True, False])
@pytest.mark.parametrize("companies", [1, 10_000])
def test_calls_and_companies_of_the_past_are_forgotten(companies: int, in_outage: bool) -> None:
    """Calls that gave up at a closed gate, and companies that were refused once."""
    limiter, patient = Limiter(least), asking("patient")
    if in_outage:
        limiter.enter(patient, 0.0)
        limiter.refused(patient, refusal(503, floor=100_000), 0.0)

    for number in range(10_000):
        call = asking(f"c{number % companies}")
        if limiter.enter(call, float(number)):
            limiter.refused(call, refusal(company_only=True), float(number))
        else:
            limiter.leave_line(call)

    assert sum(1 for _ in held_by(limiter)) < 4_000


@pytest.mark.virtual_time
async def test_a_call_that_has_ended_is_not_kept_for_its_deadline() -> None:
    """Neither its record nor its answer, which may be a large page: not for a moment."""
    service = VirtualService(latency=0.01)
    session = virtual_session(service)
    kept = list[weakref.ref[Any]]()
    for _ in range(100):
        request = write()
        answer = await session.send(request, CallOptions(timeout=3600))
        kept += [weakref.ref(request), weakref.ref(answer)]
        del request, answer
        service.log.clear()

    assert not any(one() for one in kept)
    await session.aclose()
