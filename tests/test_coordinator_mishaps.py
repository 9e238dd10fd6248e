"""Promises of a coordinator when something beside the service goes wrong, or somebody leaves."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from unittest.mock import AsyncMock

import pytest

from integration_sdk._coordinator import delivery
from integration_sdk._coordinator.delivery import SNAPSHOT_PUSHES, Delivery
from integration_sdk._coordinator.push import Push
from integration_sdk._journal import KeyJournal
from integration_sdk._sansio.requests import Request
from integration_sdk._sansio.responses import Response
from integration_sdk.errors import AnswerLost, ClientClosed, JournalError
from integration_sdk.models import OutcomeStatus, PushOutcome, PushRequest
from tests.push_model import Model, error, request
from tests.push_support import collect, coordinator, requests

pytestmark = pytest.mark.virtual_time


@pytest.fixture
def journal(tmp_path: Path) -> Path:
    return tmp_path / "pushes.db"


def statuses(outcomes: list[PushOutcome]) -> Counter[OutcomeStatus]:
    return Counter(outcome.status for outcome in outcomes)


# Runs and places


@pytest.mark.parametrize("ordered", [False, True])
async def test_a_run_leaves_places_for_what_its_loop_submits(ordered: bool) -> None:
    """Outcomes that nobody has taken yet hold no place: a correction goes out at once."""
    model = Model(takes=lambda _: 1.0)
    corrected: list[Push] = []
    async with coordinator(model, max_open=4) as pushes:
        async for outcome in pushes.run(requests(40), ordered=ordered):
            await asyncio.sleep(10)
            corrected.append(await pushes.submit(outcome.request))

    assert len(corrected) == 40
    assert model.counts["push.create"] == 80


def counted(count: int, pulled: list[int]) -> Iterator[PushRequest]:
    for number in range(count):
        pulled.append(number)
        yield request(number)


async def test_outcomes_that_nobody_takes_stop_the_run() -> None:
    """A loop that stands still has no more than ``max_open`` pulled ahead of it."""
    pulled: list[int] = []
    async with coordinator(Model(), max_open=4) as pushes:
        outcomes = pushes.run(counted(100, pulled))
        await anext(outcomes)
        await asyncio.sleep(1000)
        assert len(pulled) == 5
        assert len([outcome async for outcome in outcomes]) == 99


@pytest.mark.parametrize("leave", ["drain", "detach", "cancel"])
async def test_a_run_that_is_kept_does_not_hold_the_block_open(leave: str) -> None:
    """The end of the block stops it pulling; gone on with, it says that it was stopped."""
    pulled: list[int] = []
    model = Model(takes=lambda _: 1.0)
    async with asyncio.timeout(100), coordinator(model, max_open=4, leave=leave) as pushes:
        outcomes: AsyncIterator[PushOutcome] = pushes.run(counted(30, pulled))
        async for _ in outcomes:
            break
        await asyncio.sleep(10)

    rest: list[PushOutcome] = []
    with pytest.raises(ClientClosed, match="rest of the input"):
        await collect(outcomes, rest)
    assert len(pulled) == 1 + len(rest) < 30
    assert model.counts["push.create"] == len(pulled)


# The list before the first push


async def test_a_list_that_fails_for_a_moment_is_asked_for_again() -> None:
    """Without a snapshot a lost answer is IN_DOUBT; half a minute later there is one."""
    down, lost = True, False

    def answer(call: Request) -> Response | BaseException | None:
        if down and call.operation == "pushes.list":
            return error(500)
        if lost and call.operation == "push.create":
            model._create(call)
            return AnswerLost("reset")
        return None

    model = Model(answer=answer, takes=lambda _: 0.0)
    async with coordinator(model) as pushes:
        await (await pushes.submit(request(0)))
        down, lost = False, True
        in_doubt = await (await pushes.submit(request(1)))
        await asyncio.sleep(31)
        found = await (await pushes.submit(request(2)))

    assert in_doubt.status is OutcomeStatus.IN_DOUBT
    assert found.status is OutcomeStatus.SUCCESS


async def test_a_list_is_taken_anew_before_its_pushes_are_forgotten(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Nobody's snapshot gets older than the pushes whose owners are remembered."""
    monkeypatch.setattr(delivery, "SNAPSHOT_PUSHES", 10)
    model = Model(takes=lambda _: 0.0)
    async with coordinator(model, max_in_flight=1) as pushes:
        await collect(pushes.run(requests(35)))

    assert model.counts["pushes.list"] == 4
    assert KeyJournal().remember >= 2 * SNAPSHOT_PUSHES


async def test_lists_that_are_too_old_are_forgotten() -> None:
    """A thousand companies' lists would be 25 MiB: kept are those of ten minutes."""
    async with coordinator(Model(takes=lambda _: 0.0)) as pushes:
        for number in range(20):
            await (await pushes.submit(request(number, companies=20)))
            await asyncio.sleep(250)
        assert len(pushes._open().delivery._before) == 3


async def test_a_middleware_that_breaks_once_harms_one_request(
    caplog: pytest.LogCaptureFixture,
) -> None:
    """What it raises on the list is logged, and pushes are sent all the same."""
    broken = iter([ValueError("a bug of the caller's")])

    def answer(call: Request) -> BaseException | None:
        return next(broken, None) if call.operation == "pushes.list" else None

    async with coordinator(Model(answer=answer)) as pushes:
        outcomes = await collect(pushes.run(requests(5)))

    assert statuses(outcomes) == {OutcomeStatus.SUCCESS: 5}
    assert "a bug of the caller's" in caplog.text


# What breaks within


async def test_a_delivery_that_breaks_off_is_in_doubt(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """Nobody knows whether it left: it has an outcome, a traceback is logged, the block ends."""
    monkeypatch.setattr(Delivery, "deliver", AsyncMock(side_effect=RuntimeError("a bug of ours")))
    async with asyncio.timeout(100), coordinator(Model()) as pushes:
        outcomes = await collect(pushes.run(requests(3)))

    assert statuses(outcomes) == {OutcomeStatus.IN_DOUBT: 3}
    assert "a bug of ours" in caplog.text


@pytest.mark.parametrize("breaks", [JournalError("full"), OSError("gone")])
async def test_an_end_that_cannot_be_recorded_is_told(
    monkeypatch: pytest.MonkeyPatch, breaks: Exception
) -> None:
    """The service has said how the push ended, whatever becomes of the record of it."""
    monkeypatch.setattr(Delivery, "settle", AsyncMock(side_effect=breaks))
    async with asyncio.timeout(100), coordinator(Model()) as pushes:
        outcomes = await collect(pushes.run(requests(3)))

    assert statuses(outcomes) == {OutcomeStatus.SUCCESS: 3}


# Cancelled ends and openings


async def test_an_end_that_is_cancelled_lets_go_of_everything(journal: Path) -> None:
    """What waits for its turn has an outcome and is not sent later; the journal is free."""
    gate = asyncio.Event()

    class Gated(Model):
        async def send(self, request: Request, **named: object) -> Response:
            if request.operation == "push.create":
                await gate.wait()
            return await super().send(request, **named)  # type: ignore[arg-type]  # passed on

    model = Gated()
    submits: list[asyncio.Task[Push]] = []

    async def leave_in_a_hurry() -> None:
        async with asyncio.timeout(5), coordinator(model, journal=journal, leave="detach") as one:
            submits.extend(asyncio.create_task(one.submit(each)) for each in requests(5))
            await asyncio.sleep(1)

    with pytest.raises(TimeoutError):
        await leave_in_a_hurry()
    gate.set()
    pushes = await asyncio.gather(*submits)

    assert [push.outcome and push.outcome.status for push in pushes] == [OutcomeStatus.REJECTED] * 5
    assert model.counts["push.create"] == 0
    async with coordinator(model, journal=journal) as other:
        assert other.recovered == ()


@pytest.mark.parametrize("turns", range(6))
async def test_an_opening_that_is_cancelled_lets_go_of_the_journal(
    journal: Path, turns: int
) -> None:
    """The file can be opened again by the same process, at once."""

    async def opened() -> None:
        async with coordinator(Model(), journal=journal):
            pass

    opening = asyncio.create_task(opened())
    for _ in range(turns):
        await asyncio.sleep(0)
    opening.cancel()
    await asyncio.gather(opening, return_exceptions=True)

    await opened()
