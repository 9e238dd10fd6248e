"""Promises of waits and ends: a wait is its caller's own, and what has ended before it is seen."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Any

import pytest

from integration_sdk import Coordinator, OutcomeStatus, PushOutcome, PushStatus
from integration_sdk.errors import WaitExpired
from tests.support.budget_support import polls_too_close
from tests.support.loops import now
from tests.support.push_support import (
    Connect,
    Journal,
    coordinator,
    fated,
    lagging,
    named,
    push_once,
    pushed,
    request,
    two_workers,
)
from tests.support.virtual_service import Answer, Asked, Service, refusal

pytestmark = pytest.mark.virtual_time
SUCCESS, PENDING, IN_DOUBT = OutcomeStatus.SUCCESS, OutcomeStatus.PENDING, OutcomeStatus.IN_DOUBT
MINUTES = [1, 10, 15, 30, 60, 180, 1440]


async def took(pushes: Coordinator, wait: float | None) -> tuple[PushOutcome, float]:
    """Push the record that all share; return the outcome, and how many seconds that took."""
    began = now()
    outcome = await pushed(pushes, named(), wait=wait)
    return outcome, now() - began


@pytest.mark.parametrize("minutes", MINUTES)
async def test_a_push_that_the_service_gives_up_has_timed_out(minutes: int) -> None:
    """Its own deadline causes a look: it is not PENDING, however old it is by then."""
    service = Service(lambda _: minutes * 60.0, status=lambda _: "TimedOut")
    outcome = await push_once(service, request(timeout_minutes=minutes), journal=Journal())

    assert outcome.status is OutcomeStatus.TIMED_OUT
    assert now() < minutes * 60.0 + 3


@pytest.mark.parametrize("early", [3.0, 20.0, 90.0])
@pytest.mark.parametrize("minutes", MINUTES)
async def test_a_wait_looks_once_more_before_it_ends(
    minutes: int, early: float, connect: Connect
) -> None:
    """What ended before the wait does is seen, with no deadline to go by."""
    client = await connect(service := Service(lambda _: minutes * 60.0 - early))
    ended = await client.wait(service.add().key, company_id="c-0", timeout=minutes * 60.0)

    assert ended.status is PushStatus.SUCCESS


async def test_waits_that_end_together_look_together(connect: Connect) -> None:
    """Three requests a second would be too few for all of them."""
    client = await connect(service := Service(lambda _: 97.9))
    keys = [service.add().key for _ in range(100)]
    waits = (client.wait(key, company_id="c-0", timeout=100.0) for key in keys)

    assert {one.status for one in await asyncio.gather(*waits)} == {PushStatus.SUCCESS}
    assert service.count("get") <= 3


async def test_a_look_that_failed_is_not_repeated_by_the_next_wait(connect: Connect) -> None:
    """The floor holds for an old push, whatever the first of two polls met."""
    service = Service(lambda _: 1e6, answer=lambda call: refusal(500) if call.at > 900 else None)
    client, key = await connect(service), service.add().key
    for seconds in (1000.0, 100.0):
        with pytest.raises(WaitExpired):
            await client.wait(key, company_id="c-0", timeout=seconds)

    assert [round(one.at) for one in service.log[-2:]] == [998, 1098]
    assert not [*polls_too_close(service, told=False)]


async def test_a_push_with_a_deadline_is_not_awaited_for_ever() -> None:
    """A service that forgets its own deadline does not make anybody hang."""
    outcome = await push_once(Service(lambda _: 1e6), request(timeout_minutes=5))

    assert now() == pytest.approx(300 + 60, abs=1)
    assert outcome.status is PENDING


async def test_a_push_is_followed_on_after_its_wait() -> None:
    """A wait ends at its time, not the push: with a journal its end is on record."""
    async with coordinator(Service(lambda _: 100.0), journal=Journal()) as pushes:
        push = await pushes.submit(named(), wait=10)
        began = now()
        outcome = await push
        assert now() - began == pytest.approx(10)
        await asyncio.sleep(200)
        found = await pushes.find("INV-1")

    assert (outcome.status, outcome.key) == (PENDING, push.key)
    assert isinstance(outcome.error, WaitExpired)
    assert await push is outcome
    assert found
    assert (await found).status is SUCCESS


@pytest.mark.parametrize("waits", [(None, 0.5), (0.5, None), (3.0, 1.0, None, 2.0)], ids=str)
@pytest.mark.parametrize("between", [0.0, 1.0], ids=["at once", "later"])
async def test_each_caller_waits_as_long_as_it_asked_to(
    waits: tuple[float | None, ...], between: float
) -> None:
    """However many share a push, in whatever order they come and leave; then nobody polls."""
    service = Service(lambda _: 60.0)
    async with coordinator(service, journal=Journal()) as pushes:
        callers = []
        for wait in waits:
            callers.append(asyncio.create_task(took(pushes, wait)))
            await asyncio.sleep(between)
        ended = await asyncio.gather(*callers)
        assert pushes.progress.open == 0
        again, at_once = await took(pushes, 5.0)

    assert [one.status for one, _ in ended] == [PENDING if wait else SUCCESS for wait in waits]
    seconds = {wait: took for wait, (_, took) in zip(waits, ended, strict=True) if wait}
    assert seconds == {wait: pytest.approx(wait, abs=0.1) for wait in seconds}
    assert (again.status, round(at_once)) == (SUCCESS, 0)
    assert {one.key for one, _ in ended} == {again.key}
    assert service.count("push") == 1


@pytest.mark.parametrize("order", [(2.0, None, 15.0), (None, 15.0, 2.0), (15.0, 2.0, None)])
@pytest.mark.parametrize("between", [0.0, 0.5], ids=["at once", "later"])
async def test_those_who_share_a_doubt_wait_as_long_as_they_asked_to(
    order: tuple[float | None, ...], between: float
) -> None:
    """Who leaves before it is found is IN_DOUBT, later PENDING; the last learns how it ended."""
    service = fated(ever="lost", takes=lambda _: 300.0, faults=[lagging(hidden=4.0)])
    async with coordinator(service, journal=Journal(), exclusive=True, patience=9.0) as pushes:
        callers = []
        for wait in order:
            callers.append(asyncio.create_task(took(pushes, wait)))
            await asyncio.sleep(between)
        ended = dict(zip(order, await asyncio.gather(*callers), strict=True))

    expected = {2.0: IN_DOUBT, 15.0: PENDING, None: SUCCESS}
    assert {wait: one.status for wait, (one, _) in ended.items()} == expected
    assert {wait: round(took) for wait, (_, took) in ended.items() if wait} == {2.0: 2, 15.0: 15}
    assert service.count("push") == 1


async def test_a_wait_for_a_push_of_another_worker_ends_in_time() -> None:
    """It is PENDING then; nobody looks for it in the database any more."""
    service = Service(lambda _: 1000.0)
    async with two_workers(service, leave="detach") as (pushes, others, *_):
        await pushes.submit(named())
        outcome, waited = await took(others, 5.0)

    assert outcome.status is PENDING
    assert waited <= 10.1  # it learns of the key within a heartbeat
    assert outcome.operation is not None


async def test_no_wait_ends_while_an_end_is_put_on_record() -> None:
    """A push that is final before the wait ends has that outcome, however slow the disk."""

    async def slow(rows: Sequence[Any]) -> None:
        if rows[0].state == "DONE":
            written.append(rows[0])
            await asyncio.sleep(60)

    journal, written = Journal(), list[Any]()
    journal.before_write = slow
    async with coordinator(Service(), journal=journal) as pushes:
        ended = await asyncio.gather(*(took(pushes, 10.0) for _ in range(3)))

    assert {outcome.status for outcome, _ in ended} == {SUCCESS}
    assert len(written) == 1


@pytest.mark.parametrize("by", ["detach", "account"])
async def test_what_gives_pushes_up_spares_an_end_that_is_put_on_record(by: str) -> None:
    """Others are PENDING, by a call or by the first poll that the account is refused."""
    expired, open_ = refusal(402, "Account expired"), list[str | None]()

    def answer(asked: Asked) -> Answer | None:
        return expired if asked.kind == "get" and asked.key in open_ else None

    journal = Journal()
    journal.after_write = lambda rows: asyncio.sleep(30 * (rows[0].state == "DONE"))
    service = Service(lambda one: 2.0 if one["number"] == 1 else 1e6, answer=answer)
    async with coordinator(service, journal=journal) as pushes:
        ending, other = [await pushes.submit(request(number)) for number in (1, 2)]
        await asyncio.sleep(4)
        assert ending.outcome is None
        if by == "detach":
            assert pushes.detach() == (other.key,)
        open_.append(other.key)
        assert [(await one).status for one in (other, ending)] == [PENDING, SUCCESS]
