"""Promises where a stranger cancels the tasks of a coordinator, and the caller's task lives on.

As a shutdown does, a framework or a debugger: ``for task in asyncio.all_tasks(): task.cancel()``.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from contextlib import suppress
from pathlib import Path

import pytest
from attrs import evolve

from benchmarks.virtual_service import Answer, Asked, Service, no_answer, refusal
from integration_sdk import Coordinator
from integration_sdk._outcome import PushOutcome
from integration_sdk.models import OutcomeStatus, PushRequest
from tests.support.push_support import collect, coordinator, lagging, request, unanswered

pytestmark = pytest.mark.virtual_time
CALLER = "caller"
DOUBTFUL = {OutcomeStatus.IN_DOUBT, OutcomeStatus.PENDING}


def be_a_caller() -> None:
    """Name the task that asks, so that it is spared."""
    task = asyncio.current_task()
    assert task
    task.set_name(CALLER)


def cancel(doomed: str) -> None:
    """Cancel *doomed* ("all", "pushes" or "others": polls, snapshots), but no task of a caller."""
    for task in asyncio.all_tasks():
        kind = "pushes" if task.get_name() == "integration_sdk push" else "others"
        if doomed in {kind, "all"} and not task.get_name().startswith(CALLER):
            task.cancel()


def unruly(service: Service) -> None:
    """Let every third answer be lost, and every third push be asked to come later."""
    asked: Counter[bytes] = Counter()

    def answer(call: Asked) -> Answer | None:
        if call.kind != "push" or call.body is None:
            return None
        asked[call.body] += 1
        number = call.body[-2] - ord("0")
        if number % 3 == 1:
            service.carry_out(call)
            return no_answer()
        if number % 3 == 2 and asked[call.body] == 1:
            return refusal(429, Retry_After=1.0)
        return None

    service.answer = answer


def referenced(count: int, journal: Path | None) -> list[PushRequest]:
    return [
        evolve(request(number), reference=f"INV-{number}" if journal else None)
        for number in range(count)
    ]


def check(service: Service, outcomes: list[PushOutcome]) -> None:
    """Nothing is there twice, and what is there is not called refused, nor the reverse."""
    there = Counter(held.record["number"] for held in service.by_key.values())
    assert max(there.values(), default=0) <= 1
    for outcome in outcomes:
        if outcome.status not in DOUBTFUL:
            is_there = outcome.status is OutcomeStatus.SUCCESS
            assert there[outcome.request.record["number"]] == is_there, outcome


MOMENTS = [(0.0, turns) for turns in range(12)] + [
    (seconds, 0) for seconds in (0.01, 0.02, 0.04, 0.055, 0.07, 0.3, 0.6, 1.04, 1.5, 2.03, 2.1, 5)
]


@pytest.mark.parametrize(
    ("doomed", "on_disk"), [("all", True), ("all", False), ("pushes", True), ("others", False)]
)
@pytest.mark.parametrize(("seconds", "turns"), MOMENTS)
async def test_every_push_has_an_outcome_whenever_its_task_is_cancelled(
    tmp_path: Path, seconds: float, turns: int, doomed: str, on_disk: bool
) -> None:
    """Awaiting it ends, the block ends, nothing is sent twice, and a later run knows of all."""
    be_a_caller()
    journal = tmp_path / "pushes.db" if on_disk else None
    service, max_open = Service(), 7
    unruly(service)
    everything = referenced(6, journal)
    outcomes: list[PushOutcome] = []
    async with asyncio.timeout(1000):
        async with coordinator(service, journal=journal, patience=4.0, max_open=max_open) as pushes:
            callers = [
                *(asyncio.create_task(push(pushes, one), name=CALLER) for one in everything[:4]),
                asyncio.create_task(run(pushes, everything[4:], outcomes), name=CALLER),
            ]
            await asyncio.sleep(seconds)
            for _ in range(turns):
                await asyncio.sleep(0)
            cancel(doomed)
            if turns % 3 == 2:  # the impatient do it again
                await asyncio.sleep(0)
                cancel(doomed)
            outcomes.extend(one for one in await asyncio.gather(*callers) if one)
            told = pushes.progress.outcomes
            service.answer, service.takes = None, lambda _: 100.0
            async with asyncio.timeout(50):  # as many find a place at once
                await asyncio.gather(*(pushes.submit(request(10 + n)) for n in range(max_open)))
        check(service, outcomes)
        assert 4 <= len(outcomes) == sum(told.values())
        if journal is None:
            return
        async with coordinator(service, journal=journal, patience=4.0) as pushes:
            again = await collect(pushes.run(everything))

    check(service, again)
    assert {one.status for one in again} <= {OutcomeStatus.SUCCESS, OutcomeStatus.IN_DOUBT}


async def submitted(pushes: Coordinator, request: PushRequest) -> asyncio.Task[PushOutcome]:
    """Return a caller who has just begun to push *request*."""
    be_a_caller()
    caller = asyncio.create_task(push(pushes, request), name=CALLER)
    await asyncio.sleep(0)
    return caller


async def test_a_push_that_had_left_is_searched_for_and_found() -> None:
    """It was cancelled while the service answered: it is there, and is not sent again."""
    service = Service(latency=1.0)
    async with asyncio.timeout(1000), coordinator(service) as pushes:
        caller = await submitted(pushes, request())
        await asyncio.sleep(1.8)
        cancel("pushes")
        outcome = await caller

    assert outcome.status is OutcomeStatus.SUCCESS
    assert service.count("push") == 1


async def test_a_push_that_waited_for_its_turn_is_sent_after_all() -> None:
    """It was cancelled while the list was read before it: it is on record as to be sent."""
    service = Service(latency=1.0)
    async with asyncio.timeout(1000), coordinator(service) as pushes:
        caller = await submitted(pushes, request())
        await asyncio.sleep(0.5)
        cancel("pushes")
        outcome = await caller

    assert outcome.status is OutcomeStatus.SUCCESS
    assert service.count("push") == 1


async def test_a_push_that_had_not_begun_is_pushed_all_the_same() -> None:
    """Its task was cancelled before its first step, and another one takes its place."""
    service = Service()
    async with asyncio.timeout(1000), coordinator(service) as pushes:
        caller = await submitted(pushes, request())
        cancel("pushes")
        outcome = await caller

    assert outcome.status is OutcomeStatus.SUCCESS


async def test_a_search_goes_on_when_it_is_cancelled() -> None:
    """Again and again: the push in doubt is found once the list shows it."""
    service = Service(faults=[unanswered, lagging(hidden=20.0)])
    async with asyncio.timeout(1000), coordinator(service) as pushes:
        caller = await submitted(pushes, request())
        for _ in range(10):
            await asyncio.sleep(1.0)
            cancel("pushes")
        outcome = await caller

    assert outcome.status is OutcomeStatus.SUCCESS
    assert service.count("push") == 1


async def test_a_push_that_is_cancelled_between_two_attempts_is_sent_again(tmp_path: Path) -> None:
    """It is on record as to be sent: another task goes on with it."""
    journal, service = tmp_path / "pushes.db", Service()
    service.answer = lambda call: refusal(429, Retry_After=50) if call.kind == "push" else None
    async with asyncio.timeout(1000), coordinator(service, journal=journal) as pushes:
        caller = await submitted(pushes, request(reference="INV-1"))
        await asyncio.sleep(10)
        cancel("pushes")
        service.answer = None
        outcome = await caller

    assert outcome.status is OutcomeStatus.SUCCESS
    assert service.count("push") == 2


async def test_a_run_yields_what_was_taken_and_then_says_that_it_was_cancelled() -> None:
    """The rest of the input is untouched."""
    service, rest = Service(latency=1.0), iter(referenced(1000, None))
    found: list[PushOutcome] = []
    be_a_caller()
    async with asyncio.timeout(1000), coordinator(service) as pushes:
        running = asyncio.create_task(collect(pushes.run(rest), into=found), name=CALLER)
        await asyncio.sleep(3.0)
        cancel("pushes")
        with pytest.raises(asyncio.CancelledError):
            await running

    assert len(found) + len(list(rest)) == 1000
    check(service, found)


async def push(pushes: Coordinator, request: PushRequest) -> PushOutcome:
    return await (await pushes.submit(request))


async def run(pushes: Coordinator, requests: list[PushRequest], into: list[PushOutcome]) -> None:
    with suppress(asyncio.CancelledError):  # then a task of the run was cancelled
        await collect(pushes.run(requests), into=into)
