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
    """Yield all shares and tickets that *limiter* refers to."""
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


@pytest.mark.parametrize("companies", [1, 20_000])
def test_an_outage_leaves_nothing_behind(companies: int) -> None:
    """While a gate is closed for hours, calls come and give up; the line does not grow."""
    limiter = Limiter(least)
    patient = asking("patient")
    limiter.enter(patient, 0.0)
    limiter.refused(patient, refusal(503, floor=10_000), 0.0)
    assert not limiter.enter(patient, 0.0)

    for number in range(20_000):
        hasty = asking(f"c{number % companies}")
        assert not limiter.enter(hasty, float(number) / 10)
        limiter.leave_line(hasty)

    assert sum(1 for _ in held_by(limiter)) < 7_000
    assert limiter.ready(10_001.0) == [patient]


def test_who_is_in_line_stays_while_others_give_up() -> None:
    """In the same order, whoever left between them."""
    limiter, first = Limiter(least, limit=1), asking("a")
    limiter.enter(first, 0.0)
    patient = []
    for number in range(10_000):
        one = asking("a")
        limiter.enter(one, 0.0)
        if number % 1000:
            limiter.leave_line(one)
        else:
            patient.append(one)

    order = [first]
    while limiter.waiting:
        limiter.answered(order[-1], 1.0)
        order += limiter.ready(1.0)

    assert order == [first, *patient]


def test_companies_that_were_refused_once_are_forgotten() -> None:
    """A company's own 429 is remembered for a while, not for as long as the process runs."""
    limiter = Limiter(least)

    for number in range(10_000):
        one = asking(f"c{number}")
        assert limiter.enter(one, float(number))
        limiter.refused(one, refusal(company_only=True), float(number))

    assert sum(1 for _ in held_by(limiter)) < 4_000
    assert limiter.closed_by(asking("c9998")) is not None  # though another was refused since
    assert limiter.closed_by(asking("c1")) is None


@pytest.mark.virtual_time
async def test_a_call_that_has_ended_is_not_kept_for_its_deadline() -> None:
    """Neither its record nor its answer, which may be a large page: not for a moment."""
    service = VirtualService(latency=0.01)
    session = virtual_session(service)
    kept = list[weakref.ref[Any]]()
    for _ in range(1000):
        request = write()
        answer = await session.send(request, CallOptions(timeout=3600))
        kept += [weakref.ref(request), weakref.ref(answer)]
        del request, answer
        service.log.clear()

    assert not any(one() for one in kept)
    await session.aclose()
