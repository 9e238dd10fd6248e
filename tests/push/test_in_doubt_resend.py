"""`in_doubt="resend"`: a create that no list shows is sent again, and nothing else is."""

from __future__ import annotations

import asyncio
import random
from collections import Counter
from collections.abc import Callable, Sequence
from itertools import product
from pathlib import Path
from typing import Any

import pytest
from attrs import define, evolve
from msgspec import structs

from integration_sdk import PushEvent
from integration_sdk._push.evidence import Finding, may_resend
from integration_sdk._push.table import new_row
from integration_sdk._store.row import Lane, Mark, Result, Row, State, Verdict
from integration_sdk.errors import (
    AccountExpired,
    ConfigurationError,
    JournalError,
    PushInDoubt,
)
from integration_sdk.models import OutcomeStatus, PushRequest
from tests.support.push_support import (
    Journal,
    collect,
    coordinator,
    leave_behind,
    on_record,
    request,
    requests,
    swallowed,
)
from tests.support.virtual_service import Answer, Asked, Service, no_answer, refusal

LANE = Lane("c-0", "books", "invoices")
ABSENT = Finding(Verdict.ABSENT)
NAMED = evolve(request(1), natural_key="number", reference="INV-1")


# The rule


def absent(name: str = "one", number: int = 1, **facts: Any) -> Row:
    body, reference = b'{"number":%d}' % number, facts.get("reference")
    row = new_row(LANE, body, id=name, natural_key="number", reference=reference)
    return structs.replace(row, state=State.DOUBT, verdict=Verdict.ABSENT, **facts)


def test_only_one_case_is_sent_again() -> None:
    """ABSENT on record and in the last list, a create, its natural key, no unexplained push."""
    unknown = Finding(Verdict.UNRESOLVED)
    cases = product(
        State,
        Verdict,
        ("POST", "PUT"),
        ("number", None),
        (b"{}", None),
        ((), ("k-1",)),
        (ABSENT, None, unknown, evolve(unknown, candidates=("k-1",))),
    )

    def may(case: tuple[Any, ...]) -> bool:
        *facts, said = case
        names = ("state", "verdict", "method", "natural_key", "payload", "candidates")
        row = structs.replace(absent(), **dict(zip(names, facts, strict=True)))
        return may_resend(row, said, transmissions=5)

    assert [case for case in cases if may(case)] == [
        (State.DOUBT, Verdict.ABSENT, "POST", "number", b"{}", (), ABSENT)
    ]


@pytest.mark.parametrize("before", range(7))
def test_what_was_sent_often_enough_is_left_to_the_caller(before: int) -> None:
    """A service that swallows every request gets no more than so many."""
    assert may_resend(absent(ghosts=before), ABSENT, transmissions=5) is (before < 5)


# The journey


@define
class Losing:
    """Says for each create whether it arrives, and whether its answer does."""

    service: Service
    fates: Callable[[], str]

    def __call__(self, call: Asked) -> Answer | None:
        if call.kind != "push":
            return None
        match self.fates():
            case "never arrives":
                return no_answer()
            case "answer lost":
                self.service.carry_out(call)
                return no_answer()
            case "refused":
                return refusal(400)
            case "account ends":
                return refusal(402, "account expired")
            case "late answer":
                self.service.latency = 20.0
                return None
            case _:
                return None


def losing(*fates: str) -> Service:
    left = iter(fates)
    service = Service()
    service.answer = Losing(service, lambda: next(left, "arrives"))
    return service


def posts(service: Service) -> int:
    return service.count("push")


@pytest.mark.virtual_time
@pytest.mark.parametrize("durable", [True, False])
async def test_what_never_arrived_is_sent_once_more(tmp_path: Path, durable: bool) -> None:
    """The push that was submitted succeeds, as the one push that there is; all on record."""
    service, path, told = losing("never arrives"), tmp_path / "pushes.db", list[str]()
    options: dict[str, Any] = {"journal": path} if durable else {}

    def tell(event: PushEvent) -> None:
        told.append(event.what)

    async with coordinator(service, in_doubt="resend", on_event=tell, **options) as pushes:
        push = await pushes.submit(NAMED)
        twin = await pushes.submit(NAMED) if durable else push
        outcome = await push
        assert await twin == outcome
        assert not pushes.in_doubt

    assert outcome.status is OutcomeStatus.SUCCESS
    assert [held.key for held in service.by_key.values()] == [outcome.key]
    assert posts(service) == 2
    assert told.count("doubted") == 1
    assert told.count("sent") == 1
    if durable:
        (row,) = await on_record(path)
        assert (row.result, row.decision, row.ghosts) == (Result.ENDED, "resend", 1)
        assert row.key == outcome.key


@pytest.mark.virtual_time
@pytest.mark.parametrize(
    ("asked", "options"),
    [
        (NAMED, {}),
        (evolve(NAMED, natural_key=None), {"in_doubt": "resend"}),
        (evolve(NAMED, record_id="r-1"), {"in_doubt": "resend"}),
    ],
    ids=["by default", "without a natural key", "an update"],
)
async def test_what_is_not_asked_for_stays_in_doubt(
    asked: PushRequest, options: dict[str, Any]
) -> None:
    """Nothing is sent again unless that is chosen, and the new push could be recognised."""
    service = Service(faults=[swallowed])
    async with coordinator(service, **options) as pushes:
        outcome = await (await pushes.submit(asked))

    assert outcome.status is OutcomeStatus.IN_DOUBT
    assert service.count("push") == 1


@pytest.mark.virtual_time
async def test_an_unexplained_push_of_the_lane_keeps_it_in_doubt() -> None:
    """It may be this record, rewritten by the platform."""
    service = losing("never arrives")
    async with coordinator(service, in_doubt="resend") as pushes:
        push = await pushes.submit(NAMED)
        other = service.add(*LANE, {"number": "rewritten"})
        outcome = await push

    assert outcome.status is OutcomeStatus.IN_DOUBT
    assert isinstance(outcome.error, PushInDoubt)
    assert outcome.error.candidates == (other.key,)
    assert posts(service) == 1


@pytest.mark.virtual_time
async def test_a_refusal_of_the_second_request_says_nothing_of_the_first() -> None:
    """It stays in doubt, with the refusal, and is not sent a third time."""
    service = losing("never arrives", "refused")
    async with coordinator(service, in_doubt="resend") as pushes:
        outcome = await (await pushes.submit(NAMED))

    assert outcome.status is OutcomeStatus.IN_DOUBT
    assert "400 no" in str(outcome.error)
    assert posts(service) == 2


@pytest.mark.virtual_time
async def test_a_hole_does_not_take_requests_for_ever() -> None:
    """After the attempts that any push has, it is the caller's."""
    service = losing(*["never arrives"] * 100)
    async with coordinator(service, in_doubt="resend") as pushes:
        outcome = await (await pushes.submit(NAMED))
        assert outcome.status is OutcomeStatus.IN_DOUBT
        assert [push.outcome for push in pushes.in_doubt] == [outcome]

    assert posts(service) == 5


@pytest.mark.virtual_time
@pytest.mark.parametrize("seed", range(10))
async def test_a_bad_line_makes_no_push_twice(tmp_path: Path, seed: int) -> None:
    """One call in five is lost, before or after it arrives: each record is there once at most.

    A lost answer to a second request stays in doubt, since either request may have made the push;
    so does what stands beside it.
    """
    chance = random.Random(seed)
    fates = ["never arrives", "answer lost", *["arrives"] * 8]
    service = Service()
    service.answer = Losing(service, lambda: chance.choice(fates))
    async with coordinator(service, in_doubt="resend", journal=tmp_path / "pushes.db") as pushes:
        outcomes = await collect(pushes.run(requests(60, companies=3, natural_key="number")))

    made = Counter(held.record["number"] for held in service.by_key.values())
    assert max(made.values()) == 1
    succeeded = [one for one in outcomes if one.status is OutcomeStatus.SUCCESS]
    assert all(made[one.request.record["number"]] == 1 for one in succeeded)
    left = [one.error for one in outcomes if one.status is not OutcomeStatus.SUCCESS]
    assert all(isinstance(error, PushInDoubt) and error.candidates for error in left)
    assert len(left) <= 4


@pytest.mark.virtual_time
async def test_a_wait_that_has_ended_sends_nothing_more() -> None:
    """Whoever was told IN_DOUBT may have acted on it."""
    service = losing("never arrives")
    async with coordinator(service, in_doubt="resend") as pushes:
        push = await pushes.submit(NAMED, wait=1)
        assert (await push).status is OutcomeStatus.IN_DOUBT
        service.takes = lambda _: 120.0
        another = await pushes.submit(evolve(NAMED, record={"number": 2}, reference="INV-2"))
        assert (await another).status is OutcomeStatus.SUCCESS  # long after the search

    assert posts(service) == 2


@pytest.mark.virtual_time
async def test_a_wait_begins_anew_with_the_new_push() -> None:
    """It does not end while that is being sent, when there is neither a key nor a doubt."""
    service = losing("never arrives", "late answer")
    async with coordinator(service, in_doubt="resend") as pushes:
        outcome = await (await pushes.submit(NAMED, wait=35))
        another = await (
            await pushes.submit(evolve(NAMED, record={"number": 2}, reference="INV-2"))
        )

    assert (outcome.status, another.status) == (OutcomeStatus.SUCCESS, OutcomeStatus.SUCCESS)


@pytest.mark.virtual_time
async def test_a_run_that_has_stopped_sends_nothing_again() -> None:
    """The doubt stays a doubt: REJECTED would say that there is no such push."""
    service = losing("never arrives", "account ends")
    async with coordinator(service, in_doubt="resend") as pushes:
        push = await pushes.submit(NAMED)
        with pytest.raises(AccountExpired):
            await pushes.submit(evolve(NAMED, record={"number": 2}, reference="INV-2"))
        outcome = await push

    assert outcome.status is OutcomeStatus.IN_DOUBT
    assert posts(service) == 2


@pytest.mark.virtual_time
@pytest.mark.parametrize("state", [State.SENDING, State.LOST, State.DOUBT])
@pytest.mark.parametrize("arrived", [False, True])
async def test_a_crash_leaves_the_same_to_do(tmp_path: Path, state: State, arrived: bool) -> None:
    """Wherever the run before ended: sent again if the lists show nothing now either."""
    path, service = tmp_path / "pushes.db", Service(lambda _: 0.0)
    snapshot = Mark()
    await leave_behind(path, structs.replace(absent(), state=state, mark=snapshot, attempts=1))
    if arrived:
        service.add(*LANE, {"number": 1})
    async with coordinator(service, journal=path, in_doubt="resend") as pushes:
        (recovered,) = pushes.recovered
        outcome = await recovered

    assert outcome.status is OutcomeStatus.SUCCESS
    assert len(service.by_key) == 1
    assert posts(service) == (not arrived)


LIVE = (State.QUEUED, State.SENDING, State.OPEN, State.LOST, State.DOUBT)


@pytest.mark.virtual_time
@pytest.mark.parametrize("states", list(product(LIVE, repeat=2)), ids="-".join)
@pytest.mark.parametrize("again", [False, True], ids=["recovered", "submitted again"])
async def test_all_that_a_crash_left_in_one_company_are_told(
    states: tuple[State, State], again: bool
) -> None:
    """One search is for the whole company: also for what an earlier run had given up."""
    choices = product(("ask", "resend"), (Verdict.ABSENT, Verdict.UNRESOLVED), *[(False, True)] * 2)
    for in_doubt, verdict, *arrived in choices:
        journal, service = Journal(), Service(lambda _: 0.0)
        asked = [
            evolve(request(number), natural_key="number", reference=f"INV-{number}")
            for number in range(2)
        ]
        exists = [
            state is State.OPEN or (came and state is not State.QUEUED)
            for state, came in zip(states, arrived, strict=True)
        ]
        keys = [service.add(*LANE, {"number": n}).key if exists[n] else None for n in range(2)]
        for number, state in enumerate(states):
            row = structs.replace(
                absent(f"push-{number}", number, reference=f"INV-{number}"),
                state=state,
                key=keys[number] if state is State.OPEN else None,
                verdict=verdict if state is State.DOUBT else None,
                mark=Mark(),
                attempts=int(state is not State.QUEUED),
            )
            await leave_behind(journal, row)
        async with (
            asyncio.timeout(600),
            coordinator(service, journal=journal, in_doubt=in_doubt) as pushes,
        ):
            if again:
                outcomes = await collect(pushes.run(asked))
            else:
                outcomes = [await one for one in pushes.recovered]

        told = {str(one.reference): one.status for one in outcomes}
        for number, state in enumerate(states):
            is_there = exists[number] or state is State.QUEUED or in_doubt == "resend"
            expected = OutcomeStatus.SUCCESS if is_there else OutcomeStatus.IN_DOUBT
            assert told[f"INV-{number}"] is expected, (in_doubt, verdict, arrived, number)
            records = [held.record for held in service.by_key.values()]
            assert records.count({"number": number}) == is_there


@pytest.mark.virtual_time
async def test_a_decision_that_is_not_recorded_sends_nothing() -> None:
    """On record or not at all: a full disk leaves the push in doubt."""
    journal = Journal()

    def full(rows: Sequence[Row]) -> None:
        if any(row.decision for row in rows):
            raise JournalError("the disk is full")

    journal.before_write = full
    service = losing("never arrives")
    async with coordinator(service, in_doubt="resend", journal=journal) as pushes:
        outcome = await (await pushes.submit(NAMED))

    assert outcome.status is OutcomeStatus.IN_DOUBT
    assert posts(service) == 1


@pytest.mark.parametrize("value", ["resent", None, True])
async def test_a_choice_that_there_is_none_is_refused(value: Any) -> None:
    """Where it is given, with what to write instead."""
    with pytest.raises(ConfigurationError, match="in_doubt must be 'ask' or 'resend'"):
        async with coordinator(Service(), in_doubt=value):
            pass
