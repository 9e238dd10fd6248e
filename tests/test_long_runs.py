"""A process that runs for months: what it holds is bounded by what is going on, not by what was."""

from __future__ import annotations

import asyncio
import gc
import weakref
from collections.abc import Iterator
from types import FunctionType
from typing import Any

import pytest
from attrs import define, field

from integration_sdk._http import CallOptions
from integration_sdk._http.call import Call
from integration_sdk._http.fair_queue import CompanyLimits, Ticket
from integration_sdk._http.limiter import Throttle
from integration_sdk._http.requests import Priority
from integration_sdk.errors import AnswerLost, NotSent, ServiceUnavailable, TooManyRequests
from tests.session_support import (
    VirtualService,
    least,
    read,
    refusal,
    virtual_session,
    write,
)


def asks(company: str, **facts: Any) -> Ticket:
    return Ticket(company, Priority.INTERACTIVE, **{"deadline": 1e9, **facts})


def held_by(throttle: Throttle) -> Iterator[CompanyLimits | Ticket]:
    """Yield all shares and tickets that *throttle* refers to."""
    seen, found = set[int](), [throttle]
    while found:
        one: Any = found.pop()
        # A function leads to its module, and from there to what other tests keep.
        if id(one) in seen or isinstance(one, type | FunctionType):
            continue
        seen.add(id(one))
        if isinstance(one, CompanyLimits | Ticket):
            yield one
        found += gc.get_referents(one)


@pytest.mark.parametrize("companies", [1, 20_000])
def test_an_outage_leaves_nothing_behind(companies: int) -> None:
    """While a gate is closed for hours, calls come and give up; the line does not grow."""
    throttle = Throttle(least)
    patient = asks("patient")
    throttle.enter(patient, 0.0)
    throttle.refused(patient, refusal(503, floor=10_000), 0.0)
    assert not throttle.enter(patient, 0.0)

    for number in range(20_000):
        hasty = asks(f"c{number % companies}")
        assert not throttle.enter(hasty, float(number) / 10)
        throttle.give_up(hasty)

    assert sum(1 for _ in held_by(throttle)) < 7_000
    assert throttle.ready(10_001.0) == [patient]


@pytest.mark.virtual_time
@pytest.mark.parametrize("status", [429, 503])
async def test_hours_of_refusals_end_with_the_outage(status: int) -> None:
    """Callers who keep asking get one kind of error all the time, and then answers."""
    service = VirtualService(lambda _, __, now: (status, {}) if now < ends_at else None)
    session, loop = virtual_session(service), asyncio.get_running_loop()
    ends_at = loop.time() + 2 * 3600
    seen = set[object]()
    while loop.time() < ends_at:
        try:
            seen.add((await session.send(read(), CallOptions())).status)
        except (TooManyRequests, ServiceUnavailable) as error:
            seen.add(error.status)
    await asyncio.sleep(60)

    assert seen - {200} == {status}
    assert (await session.send(read(), CallOptions())).status == 200
    assert session.stats().in_flight == 0
    await session.aclose()


def test_who_is_in_line_stays_while_others_give_up() -> None:
    """In the same order, whoever left between them."""
    throttle, first = Throttle(least, limit=1), asks("a")
    throttle.enter(first, 0.0)
    patient = []
    for number in range(10_000):
        one = asks("a")
        throttle.enter(one, 0.0)
        if number % 1000:
            throttle.give_up(one)
        else:
            patient.append(one)

    order = [first]
    while throttle.waiting:
        throttle.answered(order[-1], 1.0)
        order += throttle.ready(1.0)

    assert order == [first, *patient]


def test_companies_that_were_refused_once_are_forgotten() -> None:
    """A company's own 429 is remembered for a while, not for as long as the process runs."""
    throttle = Throttle(least)

    for number in range(10_000):
        one = asks(f"c{number}")
        assert throttle.enter(one, float(number))
        throttle.refused(one, refusal(company_only=True), float(number))

    assert sum(1 for _ in held_by(throttle)) < 4_000
    assert throttle.closed_by(asks("c9998")) is not None  # though another was refused since
    assert throttle.closed_by(asks("c1")) is None


@define(eq=False)
class Counted(Call):
    """A call that counts how often its deadline was looked at."""

    looks: list[None] = field(factory=list, kw_only=True)

    def __getattribute__(self, name: str) -> Any:
        if name == "deadline":
            object.__getattribute__(self, "looks").append(None)
        return object.__getattribute__(self, name)


@pytest.mark.virtual_time
async def test_a_service_that_hangs_costs_little_for_each_call(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A call is not looked at again and again whenever one of thousands reaches its deadline."""
    looks = list[None]()
    monkeypatch.setattr(
        "integration_sdk._http.session.Call", lambda *facts: Counted(*facts, looks=looks)
    )
    session = virtual_session(VirtualService(latency=10_000))
    ended = []

    async def call(number: int) -> None:
        await asyncio.sleep(number / 100)
        with pytest.raises((AnswerLost, NotSent)):
            await session.send(read(), CallOptions(timeout=60))
        ended.append(number)

    await asyncio.gather(*(call(number) for number in range(1000)))

    assert ended == list(range(1000))
    assert len(looks) < 20 * 1000
    await session.aclose()


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
