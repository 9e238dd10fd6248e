"""Promises about references: one push each, whoever asks, and what may be pushed under it again."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Sequence
from decimal import Decimal
from typing import Any

import pytest
from attrs import evolve

from integration_sdk import OutcomeStatus, PushOutcome, PushRequest
from integration_sdk._store.row import Row
from integration_sdk.errors import (
    ConfigurationError,
    InvalidRecord,
    ReferenceConflict,
    StoreUnavailable,
)
from tests.support.push_support import (
    AJournal,
    Journal,
    collect,
    coordinator,
    fated,
    first_ending,
    named,
    on_record,
    push_once,
    pushed,
    statuses,
    two_workers,
)
from tests.support.virtual_service import Answer, Asked, Proceed, Service, refusal

pytestmark = pytest.mark.virtual_time
WRONG, RIGHT = named(1), named(2, 1)
SUCCESS, IN_DOUBT = OutcomeStatus.SUCCESS, OutcomeStatus.IN_DOUBT


SAME = {"400": "joined", "413": "joined", "415": "joined", "422": "joined"} | dict.fromkeys(
    ("401", "402", "403", "404", "405", "409"), "sent"
)
"""What becomes of the same record after a refusal: whether its cause may be gone."""
ENDS: dict[str, tuple[str, str]] = {
    **{status: (same, "sent") for status, same in SAME.items()},
    "Success": ("joined", "conflict"),
    "Failed": ("joined", "sent"),  # it is not there and never will be
    "TimedOut": ("joined", "conflict"),  # it might be
    "Cancelled": ("joined", "conflict"),  # nobody knows what that means
    "lost": ("joined", "conflict"),
    "swallowed": ("joined", "conflict"),
}
"""How a push ends: what becomes of the same record under its reference, and of another."""


@pytest.mark.parametrize("again", [WRONG, RIGHT], ids=["same", "other"])
@pytest.mark.parametrize("how", ENDS)
async def test_a_reference_is_used_again(how: str, again: PushRequest, journal: AJournal) -> None:
    """It stands for one record; a further push under it is a step of one row, in the next run."""
    service = first_ending(how)
    async with coordinator(service, journal=journal) as pushes:
        (first,) = await asyncio.gather(pushed(pushes, WRONG), return_exceptions=True)
    sent = service.count("push")
    async with coordinator(service, journal=journal) as pushes:
        (outcome,) = await collect(pushes.run([again]))
        became = "joined" if service.count("push") == sent else "sent"
        if isinstance(outcome.error, ReferenceConflict):
            became = "conflict"
            with pytest.raises(ReferenceConflict) as caught:
                await pushes.submit(again)
            assert caught.value.reference == "INV-1"

    assert became == ENDS[how][again is RIGHT]
    assert len(await on_record(journal)) == 1
    assert service.count("push") == sent + (became == "sent")
    if became == "sent":
        assert outcome.status is SUCCESS
    elif became == "joined" and not isinstance(first, BaseException):
        assert (outcome.status, outcome.key) == (first.status, first.key)


@pytest.mark.parametrize("fate", [None, "lost", "swallowed"])
async def test_another_record_is_refused_while_a_push_goes_on(fate: Any, journal: AJournal) -> None:
    """At once, and it takes the reference from nobody: who asks for that again joins it."""
    service = fated(fate, takes=lambda _: 60.0)
    async with coordinator(service, journal=journal) as pushes:
        first = asyncio.create_task(pushed(pushes, WRONG))
        await asyncio.sleep(5)
        async with asyncio.timeout(1):
            with pytest.raises(ReferenceConflict, match="use a new reference"):
                await pushes.submit(RIGHT)
            with pytest.raises(ReferenceConflict):
                await pushes.submit(evolve(WRONG, record_id="17"))
        assert (await pushed(pushes, WRONG)).status is (await first).status

    assert service.count("push") == 1


async def test_a_record_is_the_same_in_any_order_of_its_fields(journal: AJournal) -> None:
    """A service that builds its records anew may order them otherwise, at any depth."""
    service = Service()
    first = {"number": 1, "lines": [{"sku": "a", "price": Decimal("1.10")}], "note": "x"}
    second = {"note": "x", "lines": [{"price": Decimal("1.10"), "sku": "a"}], "number": 1}
    for record in (first, second):
        outcome = await push_once(service, evolve(WRONG, record=record), journal=journal)
        assert outcome.status is SUCCESS
    assert service.count("push") == 1


async def test_a_failure_is_remembered_with_its_reasons(journal: AJournal) -> None:
    """FAILED of an earlier run tells why, as it did then."""

    def tell_why(asked: Asked, proceed: Proceed) -> Answer:
        answer = proceed()
        if asked.kind == "get" and (shown := json.loads(answer.body))["status"] == "Failed":
            why = {"itemId": "supplier", "message": "the supplier is closed"}
            return Answer.of({**shown, "validation": {"errors": [why]}})
        return answer

    service = Service(status=lambda _: "Failed", faults=[tell_why])
    first, again = [str((await push_once(service, WRONG, journal=journal)).error) for _ in range(2)]

    assert "the supplier is closed" in first
    assert first == again


@pytest.mark.parametrize("same", [True, False], ids=["same", "another"])
@pytest.mark.parametrize("workers", [1, 2])
async def test_a_refused_record_is_corrected_twice_at_once(workers: int, same: bool) -> None:
    """The first correction takes the reference; the second is that one, or another record."""
    service = fated(refusal(400))
    async with two_workers(service) as (pushes, others, journal, beside):
        await pushed(pushes, WRONG)
        journal.before_write = beside.before_write = lambda rows: asyncio.sleep(
            bool(rows[0].earlier) and rows[0].state == "QUEUED"
        )
        first = asyncio.create_task(pushed(pushes, RIGHT))
        await asyncio.sleep(0.5)
        second = RIGHT if same else named(3, 1)
        told = await asyncio.gather(
            first, pushed(pushes if workers == 1 else others, second), return_exceptions=True
        )

    ends = [one.status if isinstance(one, PushOutcome) else type(one) for one in told]
    assert ends == [SUCCESS, SUCCESS if same else ReferenceConflict]
    assert service.count("push") == 2
    assert [row.state for row in await on_record(journal)] == ["DONE"]


@pytest.mark.parametrize("away", [True, False], ids=["as its holder was away", "elsewhere"])
async def test_who_waits_for_a_record_is_not_told_of_its_correction(*, away: bool) -> None:
    """Another worker has seen it fail, and pushed the corrected record at once."""

    async def back(_: Sequence[Row]) -> None:
        await asyncio.sleep(60)
        journal.unreadable = None

    service = first_ending("Failed")
    service.takes = lambda _: 20.0
    async with two_workers(service, leave="detach") as (pushes, others, journal, _):
        first = await (pushes if away else others).submit(WRONG)
        waiting = first if away else await pushes.submit(WRONG)
        if away:
            journal.before_write = back
            journal.unreadable = StoreUnavailable("away")
            journal.lapse()
        await pushed(others, WRONG)
        corrected = await pushed(others, RIGHT)
        assert ((await waiting).status, corrected.status) == (OutcomeStatus.FAILED, SUCCESS)


async def test_a_refusal_is_told_once_the_database_is_back() -> None:
    """Another worker may have pushed under its reference since it was recorded."""

    async def lost(rows: Sequence[Row]) -> None:
        if rows[0].state == "DONE":
            journal.after_write = lambda rows: None
            await asyncio.sleep(30)
            raise StoreUnavailable("away")

    service, journal = fated(refusal(402)), Journal(shared=True)
    beside = Journal(shared=True, beside=journal)
    async with (
        coordinator(service, journal=journal) as pushes,
        coordinator(service, journal=beside) as others,
    ):
        journal.after_write = lost
        refused = asyncio.create_task(pushed(pushes, RIGHT))
        await asyncio.sleep(1)
        assert (await pushed(others, RIGHT)).status is SUCCESS
        assert (await refused).status is SUCCESS


async def test_what_is_written_without_an_answer_is_gone_on_with() -> None:
    """The database goes away for long in the COMMIT; the caller asks another worker again."""
    async with two_workers(Service(), patience=2.0) as (pushes, others, journal, _):
        journal.lose_answer()
        with pytest.raises(StoreUnavailable):
            await pushes.submit(RIGHT)
        async with asyncio.timeout(60):
            assert (await pushed(others, RIGHT)).status is IN_DOUBT


async def test_who_waits_elsewhere_waits_on_for_what_was_claimed_without_an_answer() -> None:
    """Its holder has died, and the database goes away in the COMMIT of the claim."""
    service = Service(lambda _: 1e6)
    async with two_workers(service, leave="detach") as (pushes, others, journal, beside):
        await others.submit(WRONG)
        waiting = await pushes.submit(WRONG, wait=60.0)
        beside.lapse()
        beside.crash()
        journal.lose_answer()
        async with asyncio.timeout(100):
            assert (await waiting).status is OutcomeStatus.PENDING
        assert not pushes.recovered


async def test_a_correction_is_not_answered_with_the_push_that_it_corrects() -> None:
    """As a cache would; the answer counts as lost, and the push is searched for."""

    def answer(asked: Asked) -> Answer | None:
        if asked.kind == "push" and service.count("push") == 2:
            service.carry_out(asked)
            return first[0]
        return None

    first, service = list[Answer](), first_ending("Failed")
    service.answer = answer
    async with coordinator(service, journal=Journal()) as pushes:
        failed = await pushed(pushes, WRONG)
        key = {"pushOperationKey": failed.key, "companyId": "c-0", "status": "Pending"}
        first.append(Answer.of(key, 202))
        corrected = await pushed(pushes, evolve(RIGHT, natural_key="number"))

    assert (failed.status, corrected.status) == (OutcomeStatus.FAILED, SUCCESS)
    assert corrected.key != failed.key


@pytest.mark.parametrize("how", ["400", "Failed"])
async def test_a_correction_that_is_not_recorded_is_not_told_of_the_first_record(how: str) -> None:
    """It was not sent, and says why; it is not refused or failed as what it corrects."""
    service, journal = first_ending(how), Journal()

    def away(rows: Sequence[Row]) -> None:
        if rows[0].earlier:
            raise StoreUnavailable("the store cannot be reached")

    async with coordinator(service, journal=journal) as pushes:
        await pushed(pushes, WRONG)
        journal.before_write = away
        with pytest.raises(StoreUnavailable):
            await pushed(pushes, RIGHT)

    assert service.count("push") == 1


async def test_a_reference_submitted_twice_at_once_is_sent_once(journal: AJournal) -> None:
    """Callers with one reference in the same instant: one push, one outcome for all."""
    service = Service()
    async with coordinator(service, journal=journal) as pushes:
        outcomes = await asyncio.gather(*(pushed(pushes, WRONG) for _ in range(5)))
        outcomes += await collect(pushes.run([WRONG] * 5))

    assert service.count("push") == 1
    assert statuses(outcomes) == {SUCCESS: 10}


@pytest.mark.parametrize("record", [{"number": 1}, {"number": 2}], ids=["same", "corrected"])
async def test_a_push_that_timed_out_is_pushed_again_by_decision(
    journal: AJournal, record: dict[str, int]
) -> None:
    """It may still take effect, so that is for you to say; what was stays on record."""
    service = first_ending("TimedOut")
    async with coordinator(service, journal=journal) as pushes:
        push = await pushes.submit(WRONG)
        assert (await push).status is OutcomeStatus.TIMED_OUT
        with pytest.raises(ReferenceConflict, match=f"decide.'{push.intent}', \"resend\""):
            await pushes.submit(RIGHT)
    async with coordinator(service, journal=journal) as pushes:
        again = await pushes.decide(str(push.intent), "resend", record=record)
        assert (await again).status is SUCCESS
        assert again.request == evolve(WRONG, record=record)

    (row,) = await on_record(journal)
    assert [(one.status, one.decision) for one in row.earlier] == [("TimedOut", "resend")]


async def test_a_decision_outlives_a_record_that_was_wrong_again(journal: AJournal) -> None:
    """The decision is on record before the next record is looked at."""
    service = first_ending("TimedOut")
    async with coordinator(service, journal=journal) as pushes:
        push = await pushes.submit(WRONG)
        await push
        with pytest.raises(InvalidRecord):
            await pushes.decide(str(push.intent), "resend", record=[])
    assert (await push_once(service, RIGHT, journal=journal)).status is SUCCESS


@pytest.mark.parametrize("status", ["Success", "Failed"])
async def test_only_what_timed_out_takes_a_record_by_decision(status: str) -> None:
    """There is nothing to decide about a push whose end is known."""
    async with coordinator(first_ending(status), journal=Journal()) as pushes:
        push = await pushes.submit(WRONG)
        await push
        for intent in (str(push.intent), "unknown"):
            with pytest.raises(ConfigurationError, match="timed out"):
                await pushes.decide(intent, "resend", record={"number": 2})
        with pytest.raises(ConfigurationError, match="resend"):
            await pushes.decide(str(push.intent), "abandon", record={"number": 2})
