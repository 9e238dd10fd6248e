"""Promises about references: what a record may be pushed under one that was used before."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from pathlib import Path

import pytest
from attrs import evolve
from msgspec import structs

from integration_sdk import Client, Store
from integration_sdk._push import outcomes
from integration_sdk._push.table import new_row
from integration_sdk._store.row import Lane, Result, Row, State
from integration_sdk.dialect import Dialect
from integration_sdk.errors import ConfigurationError, InvalidRecord, ReferenceConflict
from integration_sdk.models import OutcomeStatus, PushRequest
from integration_sdk.sandbox import Sandbox
from tests.support.push_support import Journal, coordinator, request
from tests.support.sandbox_support import DELIVERY
from tests.support.virtual_service import Service, refusal

LANE = Lane("company", "connection", "invoices")
LIVE = sorted(set(State) - {State.DONE})
FINALS = ("Success", "Failed", "TimedOut")
WRONG, RIGHT = evolve(request(1), reference="INV-1"), evolve(request(2), reference="INV-1")


@pytest.fixture
def journal(tmp_path: Path) -> Path:
    return tmp_path / "pushes.db"


def recorded(
    state: State,
    result: Result | None = None,
    *,
    status: str | None = None,
    http: int | None = None,
) -> Row:
    made = new_row(LANE, b'{"number":1}', id="before", reference="INV-1")
    return structs.replace(made, state=state, result=result, status=status, http_status=http)


def taken(before: Row, *, same: bool) -> str:
    """Return what becomes of a second push of the reference."""
    payload = b'{"number":1}' if same else b'{"number":2}'
    try:
        again = outcomes.take_up(before, new_row(LANE, payload, id="i", reference="INV-1"))
    except ReferenceConflict:
        return "conflict"
    return "sent" if again else "joined"


@pytest.mark.parametrize("status", FINALS)
def test_only_what_failed_for_sure_gives_its_reference_to_another_record(status: str) -> None:
    """Failed: the record is not there and never will be. TimedOut: it might be."""
    before = recorded(State.DONE, Result.ENDED, status=status)

    assert taken(before, same=True) == "joined"
    assert taken(before, same=False) == ("sent" if status == "Failed" else "conflict")


@pytest.mark.parametrize("state", LIVE)
def test_a_push_that_goes_on_keeps_its_reference(state: State) -> None:
    """Another record is refused at once: it waits for nothing."""
    assert taken(recorded(state), same=False) == "conflict"
    assert taken(recorded(state), same=True) == "joined"


@pytest.mark.parametrize("http", [None, 400, 403, 422, 503])
def test_what_was_refused_gives_its_reference_back(http: int | None) -> None:
    """The same record goes once more if it may fare better now; not while a push may exist."""
    before = recorded(State.DONE, Result.REFUSED, http=http)

    assert taken(before, same=False) == "sent"
    assert taken(before, same=True) == ("joined" if http in {400, 422} else "sent")
    assert taken(structs.replace(before, ghosts=1), same=False) == "conflict"
    assert taken(recorded(State.DONE, Result.ABANDONED), same=False) == "conflict"


# In a journal


async def rows(journal: Path) -> list[Row]:
    async with Store(journal) as store:
        return await store.recorded()


def ending(status: str) -> Service:
    """A service that ends the wrong record with *status*, and any other with Success."""
    return Service(status=lambda record: status if record["number"] == 1 else "Success")


@pytest.mark.virtual_time
@pytest.mark.parametrize("later", [False, True], ids=["same run", "later run"])
@pytest.mark.parametrize("how", ["failed", "rejected"])
async def test_a_corrected_record_goes_under_the_reference_of_the_wrong_one(
    journal: Path, how: str, later: bool
) -> None:
    """It is a further step of one row; each record is pushed once."""
    service = ending("Failed")
    if how == "rejected":
        service.answer = lambda call: (
            refusal(400, "bad") if call.body and b'"number":1' in call.body else None
        )
    seen: list[OutcomeStatus] = []
    plan = [[WRONG, WRONG, RIGHT, RIGHT]] if not later else [[WRONG], [WRONG], [RIGHT], [RIGHT]]
    for run in plan:
        async with coordinator(service, journal=journal) as pushes:
            seen += [(await (await pushes.submit(one))).status for one in run]

    first = OutcomeStatus.FAILED if how == "failed" else OutcomeStatus.REJECTED
    assert seen == [first, first, OutcomeStatus.SUCCESS, OutcomeStatus.SUCCESS]
    assert service.count("push") == 2
    (row,) = await rows(journal)
    assert (row.result, row.status) == (Result.ENDED, "Success")
    assert [one.result for one in row.earlier] == [
        Result.ENDED if how == "failed" else Result.REFUSED
    ]


@pytest.mark.virtual_time
@pytest.mark.parametrize("record", [{"number": 1}, {"number": 2}], ids=["same", "corrected"])
async def test_a_push_that_timed_out_is_pushed_again_by_decision(
    journal: Path, record: dict[str, int]
) -> None:
    """It may still take effect, so that is for you to say; the old row stays on record."""
    statuses = iter(["TimedOut", "Success"])
    service = Service(status=lambda _: next(statuses))
    async with coordinator(service, journal=journal) as pushes:
        push = await pushes.submit(WRONG)
        assert (await push).status is OutcomeStatus.TIMED_OUT
        with pytest.raises(ReferenceConflict, match=f"decide.'{push.intent}', \"resend\""):
            await pushes.submit(RIGHT)
    async with coordinator(service, journal=journal) as pushes:
        again = await pushes.decide(str(push.intent), "resend", record=record)
        assert (await again).status is OutcomeStatus.SUCCESS
        assert again.request == evolve(WRONG, record=record)

    (row,) = await rows(journal)
    assert [(one.status, one.decision) for one in row.earlier] == [("TimedOut", "resend")]


@pytest.mark.virtual_time
async def test_what_timed_out_and_took_effect_later_is_not_pushed_twice(journal: Path) -> None:
    """Under the published dialect nothing follows from TimedOut: not even by asking again."""
    async with (
        Sandbox(dialect="published") as sandbox,
        Client(sandbox.api_key, sandbox.base_url, dialect=Dialect.published()) as client,
    ):
        company = sandbox.companies[0]
        sandbox.faults.push_seconds(3600)
        asked = PushRequest(
            company.id,
            company.connections[0].id,
            "invoices",
            DELIVERY,
            reference="INV-17",
            natural_key="invoiceNumber",
            timeout_minutes=1,
        )
        books, before = sandbox.data_set(company.id, "invoices"), 0
        for hours in (0, 2):  # a second run comes when the record is there
            before = before or len(books)
            sandbox.clock.advance(hours=hours)
            if hours:
                books.append(DELIVERY)
            async with client.coordinator(journal=journal, in_doubt="resend") as pushes:
                push = await pushes.submit(asked)
                outcome = await push
                with pytest.raises(
                    ReferenceConflict, match="that push timed out: check the platform"
                ):
                    await pushes.submit(evolve(asked, record=DELIVERY | {"note": "corrected"}))
            assert outcome.status is OutcomeStatus.TIMED_OUT
            assert "check the platform before you push it again" in str(outcome.error)

        assert len(sandbox.pushes) == sandbox.count("POST", "/push/") == 1
        assert len(books) == before + 1


@pytest.mark.virtual_time
async def test_a_decision_outlives_a_record_that_was_wrong_again(journal: Path) -> None:
    """The decision is on record before the next record is looked at."""
    statuses = iter(["TimedOut", "Success"])
    service = Service(status=lambda _: next(statuses))
    async with coordinator(service, journal=journal) as pushes:
        push = await pushes.submit(WRONG)
        await push
        with pytest.raises(InvalidRecord):
            await pushes.decide(str(push.intent), "resend", record=[])
    async with coordinator(service, journal=journal) as pushes:
        assert (await (await pushes.submit(RIGHT))).status is OutcomeStatus.SUCCESS
    (row,) = await rows(journal)
    assert (row.status, row.earlier[-1].decision) == ("Success", "resend")


@pytest.mark.virtual_time
@pytest.mark.parametrize("status", ["Success", "Failed"])
async def test_only_what_timed_out_takes_a_record_by_decision(journal: Path, status: str) -> None:
    """There is nothing to decide about a push whose end is known."""
    async with coordinator(ending(status), journal=journal) as pushes:
        push = await pushes.submit(WRONG)
        await push
        for intent in (str(push.intent), "unknown"):
            with pytest.raises(ConfigurationError, match="timed out"):
                await pushes.decide(intent, "resend", record={"number": 2})
        with pytest.raises(ConfigurationError, match="resend"):
            await pushes.decide(str(push.intent), "abandon", record={"number": 2})


@pytest.mark.virtual_time
async def test_a_push_that_ends_while_another_asks_for_its_reference_ends_for_both() -> None:
    """Also if the store answers late: when it looked, the push was being sent."""
    journal, service = Journal(), Service(latency=5.0)
    async with coordinator(service, journal=journal) as pushes:
        first = asyncio.create_task(pushes.submit(request(1, reference="r")))
        await asyncio.sleep(8.0)  # its company has been listed, and it is on its way
        journal.after_write = lambda rows: (
            asyncio.sleep(60.0) if rows[0].state is State.OPEN else None
        )

        second = await pushes.submit(request(1, reference="r"))

        async with asyncio.timeout(600):
            outcomes = [await (await first), await second]
    assert [outcome.status for outcome in outcomes] == [OutcomeStatus.SUCCESS] * 2
    assert service.count("push") == 1


@pytest.mark.virtual_time
async def test_an_end_is_recorded_once() -> None:
    """Also if its push is asked for again before it is on record."""
    journal, service, ends = Journal(), Service(lambda _: 0.0), list[State]()

    async def hold_up(rows: Sequence[Row]) -> None:
        if rows[0].state is State.DONE:
            ends.append(rows[0].state)
            await asyncio.sleep(60.0)

    journal.before_write = hold_up
    async with coordinator(service, journal=journal) as pushes:
        submitted = [await pushes.submit(request(1, reference="r")) for _ in range(3)]
        outcomes = [await push for push in submitted]
    assert [outcome.status for outcome in outcomes] == [OutcomeStatus.SUCCESS] * 3
    assert ends == [State.DONE]
