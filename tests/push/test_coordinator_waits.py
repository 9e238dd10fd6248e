"""Promises of a bounded wait: it is the caller's own, whoever else waits for the same push."""

from __future__ import annotations

import asyncio
import gc
from collections.abc import Sequence
from typing import Any
from weakref import WeakSet

import pytest

from integration_sdk import Push, PushEvent
from integration_sdk._outcome import PushOutcome
from integration_sdk.errors import WaitExpired
from integration_sdk.models import OutcomeStatus
from tests.support.push_support import Journal, coordinator, lagging, request, unanswered
from tests.support.virtual_service import Service, no_answer

pytestmark = pytest.mark.virtual_time

RECORD = request(1, reference="INV-1")


def now() -> float:
    return asyncio.get_running_loop().time()


@pytest.fixture
def journal() -> Journal:
    return Journal()


async def pushed(pushes: Any, wait: float | None) -> tuple[PushOutcome, float]:
    """Submit RECORD; return its outcome, and how many seconds that took."""
    began = now()
    outcome = await (await pushes.submit(RECORD, wait=wait))
    return outcome, now() - began


@pytest.mark.parametrize("first", [None, 0.5])
@pytest.mark.parametrize("between", [0.0, 1.0], ids=["at once", "later"])
async def test_each_caller_waits_as_long_as_it_asked_to(
    journal: Journal, first: float | None, between: float
) -> None:
    """Of two that share a push, one may wait for half a second and the other to the end."""
    service = Service(lambda _: 7.0)
    waits = [first, 0.5 if first is None else None]
    if between and first:
        waits[0] = first + between
    async with coordinator(service, journal=journal) as pushes:
        one = asyncio.create_task(pushed(pushes, waits[0]))
        await asyncio.sleep(between)
        other = asyncio.create_task(pushed(pushes, waits[1]))
        ended = dict(zip(waits, [await one, await other], strict=True))
        assert pushes.progress.open == 0

    (patient, long), bounded = ended.pop(None), next(iter(ended))
    assert bounded is not None
    (hasty, short) = ended[bounded]
    assert (hasty.status, patient.status) == (OutcomeStatus.PENDING, OutcomeStatus.SUCCESS)
    assert isinstance(hasty.error, WaitExpired)
    assert short == pytest.approx(bounded, abs=0.1)
    assert long >= 7.0 - between
    assert service.count("push") == 1


async def test_a_push_goes_on_to_the_last_who_waits(journal: Journal) -> None:
    """However many leave before it, and in whatever order they came; then nobody polls."""
    service = Service(lambda _: 60.0)
    async with coordinator(service, journal=journal) as pushes:
        waits = [3.0, 1.0, None, 2.0]
        ended = await asyncio.gather(*(pushed(pushes, wait) for wait in waits))
        again, took = await pushed(pushes, 5.0)

    assert [outcome.status for outcome, _ in ended] == [
        OutcomeStatus.PENDING,
        OutcomeStatus.PENDING,
        OutcomeStatus.SUCCESS,
        OutcomeStatus.PENDING,
    ]
    assert [round(took) for _, took in ended[:2]] == [3, 1]
    assert (again.status, round(took)) == (OutcomeStatus.SUCCESS, 0)
    assert service.count("push") == 1


async def test_a_reference_whose_waits_have_all_ended_can_be_asked_for_again(
    journal: Journal,
) -> None:
    """The push on record is followed on, whoever waits; it is never sent again."""
    service = Service(lambda _: 60.0)
    async with coordinator(service, journal=journal) as pushes:
        for _ in range(3):
            ended = await asyncio.gather(pushed(pushes, 1.0), pushed(pushes, 2.0))
            assert {outcome.status for outcome, _ in ended} == {OutcomeStatus.PENDING}
            assert pushes.progress.open == 1
        await asyncio.sleep(60)
        assert pushes.progress.open == 0
        outcome, _ = await pushed(pushes, None)

    assert outcome.status is OutcomeStatus.SUCCESS
    assert service.count("push") == 1


async def test_who_joins_while_the_first_takes_over_is_told_too(journal: Journal) -> None:
    """The reference belongs to whoever still waits: a third caller joins the second."""
    service = Service(lambda _: 30.0)
    async with coordinator(service, journal=journal) as pushes:
        first = asyncio.create_task(pushed(pushes, 1.0))
        second = asyncio.create_task(pushed(pushes, None))
        await asyncio.sleep(5)
        third = asyncio.create_task(pushed(pushes, 3.0))
        await asyncio.sleep(1)
        fourth, _ = await pushed(pushes, None)
        ended = [(await one)[0] for one in (first, second, third)]

    assert [one.status for one in ended] == [
        OutcomeStatus.PENDING,
        OutcomeStatus.SUCCESS,
        OutcomeStatus.PENDING,
    ]
    assert fourth.status is OutcomeStatus.SUCCESS
    assert {one.key for one in ended} == {fourth.key}
    assert service.count("push") == 1


def shown_after(seconds: float) -> Service:
    """A service whose answers to pushes are lost, and whose list lags behind."""
    return Service(lambda _: 300.0, [unanswered, lagging(hidden=seconds)])


@pytest.mark.parametrize("wait", [1.0, 2.0])
async def test_a_wait_begins_with_the_answer_or_its_loss(journal: Journal, wait: float) -> None:
    """A request handler has its outcome in time, while the search goes on; it may be found."""
    events: list[PushEvent] = []
    service = shown_after(3.0)
    async with coordinator(
        service, journal=journal, exclusive=True, patience=5.0, on_event=events.append
    ) as pushes:
        push = await pushes.submit(RECORD, wait=wait)
        began = now()
        outcome = await push
        took = now() - began
        await asyncio.sleep(400)

    assert outcome.status is OutcomeStatus.IN_DOUBT
    assert "it is searched for while its coordinator's block is open" in str(outcome.error)
    assert took == pytest.approx(wait, abs=0.1)
    assert [event.what for event in events] == ["doubted", "ended", "found"]
    assert push.operation
    assert push.operation.is_final


async def test_a_wait_that_outlasts_the_search_goes_on_with_the_push(journal: Journal) -> None:
    """It counts from the lost answer: what was found meanwhile is PENDING when it ends."""
    service = shown_after(2.0)
    async with coordinator(service, journal=journal, exclusive=True, patience=5.0) as pushes:
        outcome, took = await pushed(pushes, 15.0)

    assert outcome.status is OutcomeStatus.PENDING
    assert isinstance(outcome.error, WaitExpired)
    assert took == pytest.approx(15.0, abs=0.1)


@pytest.mark.parametrize("order", [(2.0, None, 4.0), (None, 4.0, 2.0), (4.0, 2.0, None)])
async def test_those_who_share_a_doubt_wait_as_long_as_they_asked_to(
    journal: Journal, order: tuple[float | None, ...]
) -> None:
    """However many leave before it, the last one learns what the search has found."""
    service = shown_after(3.0)
    async with coordinator(service, journal=journal, exclusive=True, patience=5.0) as pushes:
        ended = await asyncio.gather(*(pushed(pushes, wait) for wait in order))
        fourth, _ = await pushed(pushes, None)

    by_wait = dict(zip(order, ended, strict=True))
    last, _ = by_wait.pop(None)
    assert (last.status, fourth.status) == (OutcomeStatus.SUCCESS, OutcomeStatus.SUCCESS)
    assert {one.status for one, _ in by_wait.values()} == {OutcomeStatus.IN_DOUBT}
    assert {wait: round(took) for wait, (_, took) in by_wait.items()} == {2.0: 2, 4.0: 4}
    assert service.count("push") == 1


async def test_who_joins_a_doubt_later_waits_as_long_as_it_asked_to(journal: Journal) -> None:
    """The doubt is shared with who was there before, also when the first has left."""
    service = shown_after(3.0)
    async with coordinator(service, journal=journal, exclusive=True, patience=9.0) as pushes:
        first = asyncio.create_task(pushed(pushes, 2.0))
        second = asyncio.create_task(pushed(pushes, None))
        await asyncio.sleep(1)
        third, at_once = await pushed(pushes, 0.5)
        await first
        fourth, later = await pushed(pushes, 1.0)
        last, _ = await second

    assert [one.status for one in (third, fourth)] == [OutcomeStatus.IN_DOUBT] * 2
    assert [at_once, later] == pytest.approx([0.5, 1.0], abs=0.1)
    assert last.status is OutcomeStatus.SUCCESS
    assert service.count("push") == 1


async def test_a_push_that_was_named_is_shared_like_any_other(journal: Journal) -> None:
    """Those who ask for its reference wait as long as they asked to, in whatever order."""
    lost = iter([no_answer()])
    service = Service(lambda _: 60.0)
    service.answer = lambda call: next(lost, None) if call.kind == "push" else None
    async with coordinator(service, journal=journal, patience=2.0) as pushes:
        push = await pushes.submit(RECORD)
        await push
        key = service.add(record={"another": 1}).key
        named = await pushes.decide(str(push.intent), bind=key)
        waits = (5.0, None, 9.0, None)
        ended = await asyncio.gather(*(pushed(pushes, wait) for wait in waits))
        assert (await named).key == key

    assert [
        (one.status, round(took) if wait else None)
        for (one, took), wait in zip(ended, waits, strict=True)
    ] == [
        (OutcomeStatus.PENDING, 5),
        (OutcomeStatus.SUCCESS, None),
        (OutcomeStatus.PENDING, 9),
        (OutcomeStatus.SUCCESS, None),
    ]


async def test_no_wait_ends_while_an_end_is_put_on_record(journal: Journal) -> None:
    """A push that is final before the wait ends has that outcome, however slow the disk."""

    async def slow(rows: Sequence[Any]) -> None:
        if any(row.state == "DONE" for row in rows):
            await asyncio.sleep(60)

    journal.before_write = slow
    events: list[PushEvent] = []
    service = Service(lambda _: 2.0)
    async with coordinator(service, journal=journal, on_event=events.append) as pushes:
        ended = await asyncio.gather(*(pushed(pushes, 10.0) for _ in range(2)))

    assert {outcome.status for outcome, _ in ended} == {OutcomeStatus.SUCCESS}
    assert "found" not in {event.what for event in events}


async def test_waits_leave_nothing_behind() -> None:
    """An outcome ends its wait: a stream of pushes with a long one keeps none of them."""
    kept = WeakSet[Push]()
    async with coordinator(
        Service(lambda _: 0.1), on_event=lambda event: kept.add(event.push)
    ) as it:
        async for _ in it.run((request(number) for number in range(300)), wait=3600):
            pass
        gc.collect()
        assert not list(kept)
