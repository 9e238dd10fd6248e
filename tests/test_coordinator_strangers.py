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

from integration_sdk import Coordinator
from integration_sdk._http.requests import Request
from integration_sdk._http.responses import Response
from integration_sdk._push.sending import this_task
from integration_sdk.errors import AnswerLost
from integration_sdk.models import OutcomeStatus, PushOutcome, PushRequest
from tests.push_model import Model, error, request
from tests.push_support import collect, coordinator

pytestmark = pytest.mark.virtual_time
CALLER = "caller"
DOUBTFUL = {OutcomeStatus.IN_DOUBT, OutcomeStatus.PENDING}


def cancel(doomed: str) -> None:
    """Cancel *doomed* ("all", "pushes" or "others": polls, snapshots), but no task of a caller."""
    for task in asyncio.all_tasks():
        kind = "pushes" if task.get_name() == "integration_sdk push" else "others"
        if doomed in {kind, "all"} and not task.get_name().startswith(CALLER):
            task.cancel()


def unruly(model: Model) -> None:
    """Let every third answer be lost, and every third push be asked to come later."""
    asked: Counter[bytes] = Counter()

    def answer(call: Request) -> Response | BaseException | None:
        if call.operation != "push.create" or call.body is None:
            return None
        asked[call.body] += 1
        number = call.body[-2] - ord("0")
        if number % 3 == 1:
            model._create(call)
            return AnswerLost("reset")
        if number % 3 == 2 and asked[call.body] == 1:
            return error(429, after=1.0)
        return None

    model.answer = answer


def referenced(count: int, journal: Path | None) -> list[PushRequest]:
    return [
        evolve(request(number), reference=f"INV-{number}" if journal else None)
        for number in range(count)
    ]


def check(model: Model, outcomes: list[PushOutcome]) -> None:
    """Nothing is there twice, and what is there is not called refused, nor the reverse."""
    there = Counter(held.record["number"] for held in model.by_key.values())
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
    this_task().set_name(CALLER)
    journal = tmp_path / "pushes.db" if on_disk else None
    model, max_open = Model(), 7
    unruly(model)
    everything = referenced(6, journal)
    outcomes: list[PushOutcome] = []
    async with asyncio.timeout(1000):
        async with coordinator(model, journal=journal, patience=4.0, max_open=max_open) as pushes:
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
            model.answer, model.takes = None, lambda _: 100.0
            async with asyncio.timeout(50):  # as many find a place at once
                await asyncio.gather(*(pushes.submit(request(10 + n)) for n in range(max_open)))
        check(model, outcomes)
        assert 4 <= len(outcomes) == sum(told.values())
        if journal is None:
            return
        async with coordinator(model, journal=journal, patience=4.0) as pushes:
            again = await collect(pushes.run(everything))

    check(model, again)
    assert {one.status for one in again} <= {OutcomeStatus.SUCCESS, OutcomeStatus.IN_DOUBT}


async def submitted(pushes: Coordinator, request: PushRequest) -> asyncio.Task[PushOutcome]:
    """Return a caller who has just begun to push *request*."""
    this_task().set_name(CALLER)
    caller = asyncio.create_task(push(pushes, request), name=CALLER)
    await asyncio.sleep(0)
    return caller


async def test_a_push_that_had_left_is_searched_for_and_found() -> None:
    """It was cancelled while the service answered: it is there, and is not sent again."""
    model = Model(latency=1.0)
    async with asyncio.timeout(1000), coordinator(model) as pushes:
        caller = await submitted(pushes, request())
        await asyncio.sleep(1.8)
        cancel("pushes")
        outcome = await caller

    assert outcome.status is OutcomeStatus.SUCCESS
    assert model.counts["push.create"] == 1


async def test_a_push_that_waited_for_its_turn_is_sent_after_all() -> None:
    """It was cancelled while the list was read before it: it is on record as to be sent."""
    model = Model(latency=1.0)
    async with asyncio.timeout(1000), coordinator(model) as pushes:
        caller = await submitted(pushes, request())
        await asyncio.sleep(0.5)
        cancel("pushes")
        outcome = await caller

    assert outcome.status is OutcomeStatus.SUCCESS
    assert model.counts["push.create"] == 1


async def test_a_push_that_had_not_begun_is_pushed_all_the_same() -> None:
    """Its task was cancelled before its first step, and another one takes its place."""
    model = Model()
    async with asyncio.timeout(1000), coordinator(model) as pushes:
        caller = await submitted(pushes, request())
        cancel("pushes")
        outcome = await caller

    assert outcome.status is OutcomeStatus.SUCCESS


async def test_a_search_goes_on_when_it_is_cancelled() -> None:
    """Again and again: the push in doubt is found once the list shows it."""
    model = Model(list_lag=20.0)

    def lose(call: Request) -> BaseException | None:
        if call.operation != "push.create":
            return None
        model._create(call)
        return AnswerLost("reset")

    model.answer = lose
    async with asyncio.timeout(1000), coordinator(model) as pushes:
        caller = await submitted(pushes, request())
        for _ in range(10):
            await asyncio.sleep(1.0)
            cancel("pushes")
        outcome = await caller

    assert outcome.status is OutcomeStatus.SUCCESS
    assert model.counts["push.create"] == 1


async def test_a_push_that_is_cancelled_between_two_attempts_is_sent_again(tmp_path: Path) -> None:
    """It is on record as to be sent: another task goes on with it."""
    journal, model = tmp_path / "pushes.db", Model()
    model.answer = lambda call: error(429, after=50) if call.operation == "push.create" else None
    async with asyncio.timeout(1000), coordinator(model, journal=journal) as pushes:
        caller = await submitted(pushes, request(reference="INV-1"))
        await asyncio.sleep(10)
        cancel("pushes")
        model.answer = None
        outcome = await caller

    assert outcome.status is OutcomeStatus.SUCCESS
    assert model.counts["push.create"] == 2


async def test_a_run_yields_what_was_taken_and_then_says_that_it_was_cancelled() -> None:
    """The rest of the input is untouched."""
    model, rest = Model(latency=1.0), iter(referenced(1000, None))
    found: list[PushOutcome] = []
    this_task().set_name(CALLER)
    async with asyncio.timeout(1000), coordinator(model) as pushes:
        running = asyncio.create_task(collect(pushes.run(rest), into=found), name=CALLER)
        await asyncio.sleep(3.0)
        cancel("pushes")
        with pytest.raises(asyncio.CancelledError):
            await running

    assert len(found) + len(list(rest)) == 1000
    check(model, found)


async def push(pushes: Coordinator, request: PushRequest) -> PushOutcome:
    return await (await pushes.submit(request))


async def run(pushes: Coordinator, requests: list[PushRequest], into: list[PushOutcome]) -> None:
    with suppress(asyncio.CancelledError):  # then a task of the run was cancelled
        await collect(pushes.run(requests), into=into)
