"""Promises of a reference pushed again: one owner, one push, and an answer that can be used."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from attrs import evolve
from msgspec import structs

from integration_sdk import Coordinator, Push, PushEvent
from integration_sdk._outcome import PushOutcome
from integration_sdk._push import outcomes
from integration_sdk._store.row import Row, State, Verdict
from integration_sdk.errors import ConfigurationError
from integration_sdk.models import OutcomeStatus, PushRequest
from tests.support.push_support import (
    DOCUMENT,
    Journal,
    breaking,
    collect,
    coordinator,
    leave_behind,
    on_record,
    request,
    swallowed,
)
from tests.support.virtual_service import Answer, Asked, Proceed, Service, no_answer, refusal

pytestmark = pytest.mark.virtual_time


AJournal = Journal | Path
RECORD = evolve(request(1), reference="INV-1")


def posts(service: Service) -> int:
    return service.count("push")


def answering(says: Callable[[], Answer | None]) -> Service:
    def answer(call: Asked) -> Answer | None:
        return says() if call.kind == "push" else None

    return Service(answer=answer)


async def left_behind(journal: AJournal, **facts: Any) -> Row:
    """Put RECORD on record as a crash leaves it."""
    row, _ = outcomes.to_row(DOCUMENT, RECORD, "old")
    row = structs.replace(row, **facts)
    await leave_behind(journal, row)
    return row


async def pushed(pushes: Coordinator, one: PushRequest = RECORD) -> PushOutcome:
    async with asyncio.timeout(3600):
        return await (await pushes.submit(one))


WAITING: list[dict[str, Any]] = [
    {"state": State.QUEUED},
    {"state": State.QUEUED, "attempts": 1},
    {"state": State.QUEUED, "attempts": 1, "http_status": 429},
]


@pytest.mark.parametrize("facts", WAITING, ids=str)
async def test_a_recovered_push_that_is_pushed_again_is_sent_once(
    journal: AJournal, facts: dict[str, Any]
) -> None:
    """Recovery owns what waits to be sent; the same reference joins it, with its key."""
    await left_behind(journal, **facts)
    service = Service()
    async with coordinator(service, journal=journal) as pushes:
        (recovered,) = pushes.recovered
        outcomes = [await pushed(pushes), await recovered, await pushed(pushes)]

    assert posts(service) == 1
    assert [one.status for one in outcomes] == [OutcomeStatus.SUCCESS] * 3
    assert len({one.key for one in outcomes}) == 1
    assert [row.state for row in await on_record(journal)] == [State.DONE]


async def test_a_recovered_doubt_is_joined_too(journal: AJournal) -> None:
    """A push that is searched for keeps its owner; all who ask get the one outcome."""
    await left_behind(journal, state=State.SENDING, attempts=1)
    service = Service()
    async with coordinator(service, journal=journal) as pushes:
        (recovered,) = pushes.recovered
        outcomes = [await pushed(pushes), await recovered]

    assert posts(service) == 0
    assert [one.status for one in outcomes] == [OutcomeStatus.IN_DOUBT] * 2


async def test_a_doubt_is_logged_once(journal: AJournal, caplog: pytest.LogCaptureFixture) -> None:
    """However many have asked for it."""
    service = answering(no_answer)
    async with coordinator(service, journal=journal) as pushes:
        told = await asyncio.gather(*(pushed(pushes) for _ in range(3)))
        told.append(await pushed(pushes))

    assert [one.status for one in told] == [OutcomeStatus.IN_DOUBT] * 4
    assert sum("may or may not have been pushed" in one for one in caplog.messages) == 1


async def test_a_reference_submitted_twice_at_once_is_sent_once(journal: AJournal) -> None:
    """Two callers with one reference in the same instant: one push, one outcome for both."""
    service = Service()
    async with coordinator(service, journal=journal) as pushes:
        outcomes = await asyncio.gather(*(pushed(pushes) for _ in range(5)))
        again = await collect(pushes.run([RECORD] * 5))

    assert posts(service) == 1
    assert {one.status for one in (*outcomes, *again)} == {OutcomeStatus.SUCCESS}


async def test_who_joins_sees_the_state_that_is_known(journal: AJournal) -> None:
    """Not the one on record, which may be older."""
    service = Service(lambda _: 5.0, status=lambda _: "Queued")
    async with coordinator(service, journal=journal) as pushes:
        first = await pushes.submit(RECORD)
        await asyncio.sleep(60)
        joined = await pushes.submit(RECORD)
        seen = [one.operation and one.operation.raw_status for one in (first, joined)]
        service.by_key[str(first.key)].status = "Success"

    assert seen == ["Queued", "Queued"]


async def test_another_record_under_a_reference_on_its_way_is_refused(journal: AJournal) -> None:
    """A reference in use takes no other record while its push exists."""
    service = Service(lambda _: 60.0)
    other = evolve(RECORD, record={"number": 2})
    async with coordinator(service, journal=journal) as pushes:
        first, second = await asyncio.gather(
            pushes.submit(RECORD), pushes.submit(other), return_exceptions=True
        )
    assert isinstance(second, ConfigurationError)
    assert not isinstance(first, BaseException)
    assert posts(service) == 1


async def test_leaving_does_not_wait_for_those_who_joined(journal: AJournal) -> None:
    """Detaching gives the joined ones PENDING as well, at once."""
    service = Service(lambda _: float("inf"))
    async with (
        asyncio.timeout(60),
        coordinator(service, journal=journal, leave="detach") as pushes,
    ):
        first, second = await pushes.submit(RECORD), await pushes.submit(RECORD)
        assert second.key == first.key

    assert second.outcome
    assert second.outcome.status is OutcomeStatus.PENDING


async def test_a_decision_to_resend_owns_the_reference(journal: AJournal) -> None:
    """A caller who pushes the reference while it is sent again joins that push."""
    lost = iter([no_answer()])
    service = answering(lambda: next(lost, None))
    async with coordinator(service, journal=journal) as pushes:
        push = await pushes.submit(RECORD)
        await push
        again, joined = await asyncio.gather(
            pushes.decide(str(push.intent), "resend"), pushed(pushes)
        )
        assert (await again).status is OutcomeStatus.SUCCESS

    assert joined.status in {OutcomeStatus.SUCCESS, OutcomeStatus.IN_DOUBT}
    assert posts(service) == 2


@pytest.mark.parametrize("status", [401, 402, 403, 404, 405, 409])
async def test_a_refusal_whose_cause_may_be_gone_is_not_replayed(
    journal: AJournal, status: int
) -> None:
    """A key that was wrong may be right today: the reference is sent again, on a new row."""
    said = iter([refusal(status, "no")])
    service = answering(lambda: next(said, None))
    outcomes = []
    for _ in range(2):
        async with coordinator(service, journal=journal) as pushes:
            outcomes += [one.status async for one in pushes.run([RECORD])]

    assert outcomes == [OutcomeStatus.REJECTED, OutcomeStatus.SUCCESS]
    assert [row.state for row in await on_record(journal)] == [State.DONE]


@pytest.mark.parametrize("status", [400, 413, 415, 422])
async def test_a_refusal_of_the_content_is_replayed(journal: AJournal, status: int) -> None:
    """What the service refused for what it holds is not sent again as it is."""
    service = answering(lambda: refusal(status, "bad record"))
    for _ in range(2):
        async with coordinator(service, journal=journal) as pushes:
            assert (await pushed(pushes)).status is OutcomeStatus.REJECTED
    assert posts(service) == 1


async def test_what_was_abandoned_says_so(journal: AJournal) -> None:
    """A push that was given up stays IN_DOUBT, without a decision to make."""
    service = answering(no_answer)
    async with coordinator(service, journal=journal) as pushes:
        push = await pushes.submit(RECORD)
        await push
        await pushes.decide(str(push.intent), "abandon")
    async with coordinator(service, journal=journal) as pushes:
        outcome = await pushed(pushes)

    assert outcome.status is OutcomeStatus.IN_DOUBT
    assert "abandoned" in str(outcome.error)
    assert "decide" not in str(outcome.error)
    assert posts(service) == 1


async def test_a_failure_is_remembered_with_its_reasons(journal: AJournal) -> None:
    """FAILED of an earlier run tells why, as it did then."""
    service = Service(status=lambda _: "Failed", faults=[tell_why])
    said = []
    for _ in range(2):
        async with coordinator(service, journal=journal) as pushes:
            said.append(str((await pushed(pushes)).error))

    assert "the supplier is closed" in said[0]
    assert said[0] == said[1]


def tell_why(asked: Asked, proceed: Proceed) -> Answer:
    """Say why a push has failed, where it is read singly."""
    answer = proceed()
    if asked.kind == "get" and (shown := json.loads(answer.body))["status"] == "Failed":
        why = {"itemId": "supplier", "message": "the supplier is closed"}
        return Answer.of({**shown, "validation": {"errors": [why]}})
    return answer


async def test_recovery_looks_for_what_was_in_doubt(journal: AJournal) -> None:
    """A push that turned up since the last run is found before it is called IN_DOUBT again."""
    service = Service()
    async with coordinator(service, journal=journal) as pushes:
        await pushed(pushes, evolve(request(0), reference="INV-0"))
        service.faults = [swallowed]
        assert (await pushed(pushes)).status is OutcomeStatus.IN_DOUBT
    service.faults = []
    service.add(RECORD.company_id, RECORD.connection_id, RECORD.data_type, {"number": 1})
    await asyncio.sleep(10)

    async with coordinator(service, journal=journal) as pushes:
        (recovered,) = pushes.recovered
        outcomes = [await pushed(pushes), await recovered]

    assert [one.status for one in outcomes] == [OutcomeStatus.SUCCESS] * 2
    assert posts(service) == 2


async def test_a_push_of_an_earlier_snapshot_is_told_by_its_echo(journal: AJournal) -> None:
    """Doubts of two snapshots do not hide each other's pushes: the echo counts for both."""
    service = Service(lambda record: 1000.0 if record["number"] == 1 else 2.0)

    def answer(call: Asked) -> Answer | None:
        if call.kind == "push" and call.body == b'{"number":1}':
            service.carry_out(call)
            return no_answer()
        return no_answer() if call.body == b'{"number":2}' else None

    service.answer = answer
    async with coordinator(service, journal=journal, patience=2000.0) as pushes:
        await pushed(pushes, request(0))
        first = await pushes.submit(request(1))
        await asyncio.sleep(700)
        second = await pushes.submit(request(2))
        await asyncio.gather(first, second)

    assert first.outcome
    assert first.outcome.status is OutcomeStatus.SUCCESS


async def test_a_send_that_breaks_leaves_no_row_behind_as_sending(journal: AJournal) -> None:
    """Whatever ends a transmission, its row says what that proves, and the push has an outcome."""
    events: list[PushEvent] = []
    bug = breaking(lambda request: RuntimeError("a bug") if "POST" in request else None)
    options = {"journal": journal, "patience": 1.0, "on_event": events.append}
    async with coordinator(Service(), middlewares=[bug], **options) as pushes:
        await asyncio.gather(pushes.submit(RECORD), return_exceptions=True)

    (outcome,) = [event.push.outcome for event in events if event.what == "ended"]
    assert outcome
    assert outcome.status in {OutcomeStatus.REJECTED, OutcomeStatus.IN_DOUBT}
    (row,) = await on_record(journal)
    assert row.state in {State.DONE, State.DOUBT}


async def test_another_record_does_not_wait_for_a_doubt(journal: AJournal) -> None:
    """A reference that is searched for refuses another record at once, and the block can end."""
    await left_behind(journal, state=State.SENDING, attempts=1)
    async with asyncio.timeout(60), coordinator(Service(), journal=journal) as pushes:
        with pytest.raises(ConfigurationError, match="different record"):
            await pushes.submit(evolve(RECORD, record={"number": 2}))


@pytest.mark.parametrize("decision", ["resend", "abandon", "bind"])
async def test_a_recovered_doubt_can_be_decided_at_once(journal: AJournal, decision: Any) -> None:
    """A decision made while recovery still searches leaves no push without an outcome."""
    await left_behind(
        journal, state=State.DOUBT, verdict=Verdict.UNRESOLVED, attempts=1, candidates=("k",)
    )
    service = Service()
    async with asyncio.timeout(3600), coordinator(service, journal=journal) as pushes:
        key = service.add(record={"number": 1}).key
        (recovered,) = pushes.recovered
        goes_on: Push | None
        if decision == "bind":
            goes_on = await pushes.decide("old", bind=key)
        else:
            goes_on = await pushes.decide("old", decision)
        ended = None if goes_on is None else (await goes_on).status
        told = (await recovered).status

    assert ended is (None if decision == "abandon" else OutcomeStatus.SUCCESS)
    assert told is OutcomeStatus.IN_DOUBT or decision != "abandon"  # then it may be told of its end
    assert posts(service) == (decision == "resend")


async def test_a_push_in_doubt_can_be_named(journal: AJournal) -> None:
    """decide(bind=) follows the push that the caller found; a key that is taken changes nothing."""
    lost = iter([None, no_answer()])
    service = answering(lambda: next(lost))
    async with coordinator(service, journal=journal) as pushes:
        other = await pushes.submit(request(0))
        push = await pushes.submit(RECORD)
        assert (await push).status is OutcomeStatus.IN_DOUBT
        with pytest.raises(ConfigurationError):
            await pushes.decide(str(push.intent), bind=str(other.key))
        assert pushes.in_doubt == (push,)
        key = service.add(record={"another": 1}).key
        named = await pushes.decide(str(push.intent), bind=key)
        assert (await named).key == key
    assert {row.state for row in await on_record(journal)} == {State.DONE}


async def test_doubts_of_earlier_runs_are_one_line_in_the_log(
    journal: AJournal, caplog: pytest.LogCaptureFixture
) -> None:
    """However many there are, at every start: how many, and where to look. New ones are named."""
    service = answering(no_answer)
    async with coordinator(service, journal=journal) as pushes:
        for number in range(5):
            named = evolve(RECORD, record={"number": number}, reference=f"INV-{number}")
            await (await pushes.submit(named))
    assert len([one for one in caplog.messages if "may or may not have been pushed" in one]) == 5

    for _ in range(2):
        caplog.clear()
        async with asyncio.timeout(1000), coordinator(service, journal=journal) as pushes:
            for push in pushes.recovered:
                assert (await push).status is OutcomeStatus.IN_DOUBT
            assert len(pushes.in_doubt) == 5
        (line,) = [one.getMessage() for one in caplog.records if one.levelname == "WARNING"]
        assert line.startswith("pushes that earlier runs left in doubt: 5;")
        assert len(line) < 200


async def test_a_push_in_doubt_is_not_named_after_its_earlier_attempt(journal: AJournal) -> None:
    """That push is known; the one that is looked for would be free to be taken for another's."""
    lost = iter([None, no_answer()])
    service = Service(status=lambda _: "TimedOut")
    service.answer = lambda call: next(lost, None) if call.kind == "push" else None
    async with coordinator(service, journal=journal, patience=2.0) as pushes:
        push = await pushes.submit(RECORD)
        first = (await push).key
        again = await pushes.decide(str(push.intent), "resend", record={"number": 2})
        assert again is not None
        assert (await again).status is OutcomeStatus.IN_DOUBT
        with pytest.raises(ConfigurationError, match="earlier attempt"):
            await pushes.decide(str(again.intent), bind=str(first))
