"""`in_doubt="resend"`: a create that no list shows is sent again, and nothing else is."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Callable, Sequence
from itertools import product
from pathlib import Path
from typing import Any

import pytest
from attrs import define, evolve
from msgspec import structs

from integration_sdk._http.requests import Request
from integration_sdk._http.responses import Response
from integration_sdk._push.evidence import is_missing, sent_before
from integration_sdk._push.push import PushEvent
from integration_sdk._push.table import new_row
from integration_sdk._store.row import Lane, Row, Snapshot, State, Verdict
from integration_sdk.errors import (
    AccountExpired,
    AnswerLost,
    ConfigurationError,
    JournalError,
    PushInDoubt,
)
from integration_sdk.models import OutcomeStatus, PushRequest
from tests.push_model import Model, error, request
from tests.push_support import Journal, collect, coordinator, leave_behind, on_record, requests

LANE = Lane("company-0", "connection-0", "invoices")
NAMED = evolve(request(1), natural_key="number", reference="INV-1")


# The rule


def absent(name: str = "one", **facts: Any) -> Row:
    row = new_row(LANE, b'{"number":1}', id=name, natural_key="number")
    return structs.replace(row.to(State.DOUBT, verdict=Verdict.ABSENT), **facts)


def test_only_one_case_is_sent_again() -> None:
    """ABSENT on record, a create, its natural key, no unexplained push."""
    names = ("state", "verdict", "method", "natural_key", "payload", "candidates")
    cases = product(
        State, (None, *Verdict), ("POST", "PUT"), ("number", None), (b"{}", None), ((), ("k-1",))
    )

    missing = [case for case in cases if is_missing(absent(**dict(zip(names, case, strict=True))))]

    assert missing == [(State.DOUBT, Verdict.ABSENT, "POST", "number", b"{}", ())]


@pytest.mark.parametrize("before", range(7))
def test_what_was_sent_before_is_counted(before: int) -> None:
    """A service that swallows every request gets no more than so many."""
    sent = [
        absent(f"{at}", state=State.CLOSED, decision="resend", parent=f"{at - 1}" if at else None)
        for at in range(before)
    ]
    row = absent("last", parent=f"{before - 1}" if before else None)

    assert sent_before(row, {one.id: one for one in (*sent, row)}) == before + 1


def test_a_correction_begins_to_count_anew() -> None:
    """What was refused under the reference before was no transmission of this record."""
    row = absent(parent="refused, and settled")

    assert sent_before(row, {row.id: row}) == 1


# The journey


@define
class Losing:
    """Says for each create whether it arrives, and whether its answer does."""

    model: Model
    fates: Callable[[], str]

    def __call__(self, call: Request) -> Response | BaseException | None:
        if call.operation != "push.create":
            return None
        match self.fates():
            case "never arrives":
                return AnswerLost("reset")
            case "answer lost":
                self.model._create(call)
                return AnswerLost("reset")
            case "refused":
                return error(400)
            case "account ends":
                return error(402, "account expired")
            case "late answer":
                self.model.latency = 20.0
                return None
            case _:
                return None


def losing(*fates: str) -> Model:
    left = iter(fates)
    model = Model()
    model.answer = Losing(model, lambda: next(left, "arrives"))
    return model


def posts(model: Model) -> int:
    return model.counts["push.create"]


@pytest.mark.virtual_time
@pytest.mark.parametrize("durable", [True, False])
async def test_what_never_arrived_is_sent_once_more(durable: bool) -> None:
    """The push that was submitted succeeds, as the one push that there is; all on record."""
    model, journal, told = losing("never arrives"), Journal(), Counter[tuple[str, int]]()
    options: dict[str, Any] = {"journal": journal} if durable else {}

    def tell(event: PushEvent) -> None:
        told[event.what, id(event.push)] += 1

    async with coordinator(model, in_doubt="resend", on_event=tell, **options) as pushes:
        push = await pushes.submit(NAMED)
        twin = await pushes.submit(NAMED) if durable else push
        outcome = await push
        assert await twin == outcome
        assert not pushes.in_doubt

    assert outcome.status is OutcomeStatus.SUCCESS
    assert [held.key for held in model.by_key.values()] == [outcome.key]
    assert posts(model) == 2
    whats = "doubted", "sent", "ended"
    assert told == Counter((what, id(one)) for what in whats for one in {push, twin})
    if durable:
        first, second = await on_record(journal)
        assert (first.state, first.decision) == (State.CLOSED, "resend")
        assert (second.state, second.parent, second.key) == (State.FINAL, first.id, outcome.key)


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
    model = Model()
    model.answer = lambda call: (
        AnswerLost("reset") if call.operation in {"push.create", "push.update"} else None
    )
    async with coordinator(model, **options) as pushes:
        outcome = await (await pushes.submit(asked))

    assert outcome.status is OutcomeStatus.IN_DOUBT
    assert model.counts["push.create"] + model.counts["push.update"] == 1


@pytest.mark.virtual_time
async def test_an_unexplained_push_of_the_lane_keeps_it_in_doubt() -> None:
    """It may be this record, rewritten by the platform."""
    model = losing("never arrives")
    async with coordinator(model, in_doubt="resend") as pushes:
        push = await pushes.submit(NAMED)
        other = model.add(*LANE, {"number": "rewritten"})
        outcome = await push

    assert outcome.status is OutcomeStatus.IN_DOUBT
    assert isinstance(outcome.error, PushInDoubt)
    assert outcome.error.candidates == (other.key,)
    assert posts(model) == 1


@pytest.mark.virtual_time
async def test_the_outcome_is_that_of_the_new_push() -> None:
    """Also where the service refuses it."""
    model = losing("never arrives", "refused")
    async with coordinator(model, in_doubt="resend") as pushes:
        outcome = await (await pushes.submit(NAMED))

    assert outcome.status is OutcomeStatus.REJECTED
    assert posts(model) == 2


@pytest.mark.virtual_time
async def test_a_hole_does_not_take_requests_for_ever() -> None:
    """After the attempts that any push has, it is the caller's."""
    model = losing(*["never arrives"] * 100)
    async with coordinator(model, in_doubt="resend") as pushes:
        outcome = await (await pushes.submit(NAMED))
        assert outcome.status is OutcomeStatus.IN_DOUBT
        assert [push.outcome for push in pushes.in_doubt] == [outcome]

    assert posts(model) == 5


@pytest.mark.virtual_time
@pytest.mark.parametrize("seed", range(10))
async def test_a_bad_line_makes_no_push_twice(tmp_path: Path, seed: int) -> None:
    """One call in five is lost, before or after it arrives: each record is there once at most.

    A lost answer to a second request stays in doubt, since either request may have made the push;
    so does what stands beside it.
    """
    chance = random.Random(seed)
    fates = ["never arrives", "answer lost", *["arrives"] * 8]
    model = Model()
    model.answer = Losing(model, lambda: chance.choice(fates))
    async with coordinator(model, in_doubt="resend", journal=tmp_path / "pushes.db") as pushes:
        outcomes = await collect(pushes.run(requests(60, companies=3, natural_key="number")))

    made = Counter(held.record["number"] for held in model.by_key.values())
    assert max(made.values()) == 1
    succeeded = [one for one in outcomes if one.status is OutcomeStatus.SUCCESS]
    assert all(made[one.request.record["number"]] == 1 for one in succeeded)
    left = [one.error for one in outcomes if one.status is not OutcomeStatus.SUCCESS]
    assert all(isinstance(error, PushInDoubt) and error.candidates for error in left)
    assert len(left) <= 4


@pytest.mark.virtual_time
async def test_a_wait_that_has_ended_sends_nothing_more() -> None:
    """Whoever was told IN_DOUBT may have acted on it."""
    model = losing("never arrives")
    async with coordinator(model, in_doubt="resend") as pushes:
        push = await pushes.submit(NAMED, wait=1)
        assert (await push).status is OutcomeStatus.IN_DOUBT
        model.takes = lambda _: 120.0
        another = await pushes.submit(evolve(NAMED, record={"number": 2}))
        assert (await another).status is OutcomeStatus.SUCCESS  # long after the search

    assert posts(model) == 2


@pytest.mark.virtual_time
async def test_a_wait_begins_anew_with_the_new_push() -> None:
    """It does not end while that is being sent, when there is neither a key nor a doubt."""
    model = losing("never arrives", "late answer")
    async with coordinator(model, in_doubt="resend") as pushes:
        outcome = await (await pushes.submit(NAMED, wait=35))
        another = await (await pushes.submit(evolve(NAMED, record={"number": 2})))

    assert (outcome.status, another.status) == (OutcomeStatus.SUCCESS, OutcomeStatus.SUCCESS)


@pytest.mark.virtual_time
async def test_a_run_that_has_stopped_sends_nothing_again() -> None:
    """The doubt stays a doubt: REJECTED would say that there is no such push."""
    model = losing("never arrives", "account ends")
    async with coordinator(model, in_doubt="resend") as pushes:
        push = await pushes.submit(NAMED)
        with pytest.raises(AccountExpired):
            await pushes.submit(evolve(NAMED, record={"number": 2}))
        outcome = await push

    assert outcome.status is OutcomeStatus.IN_DOUBT
    assert posts(model) == 2


@pytest.mark.virtual_time
@pytest.mark.parametrize("state", [State.SENDING, State.LOST, State.DOUBT])
@pytest.mark.parametrize("arrived", [False, True])
async def test_a_crash_leaves_the_same_to_do(state: State, arrived: bool) -> None:
    """Wherever the run before ended: sent again if the lists show nothing now either."""
    journal, model = Journal(), Model(lambda _: 0.0)
    verdict = Verdict.ABSENT if state is State.DOUBT else None
    snapshot = Snapshot(frozenset(), id="snapshot")
    row = absent(state=state, verdict=verdict, snapshot=snapshot, attempts=1)
    await leave_behind(journal, row)
    if arrived:
        model.add(*LANE, {"number": 1})
    async with coordinator(model, journal=journal, in_doubt="resend") as pushes:
        (recovered,) = pushes.recovered
        outcome = await recovered

    assert outcome.status is OutcomeStatus.SUCCESS
    assert len(model.by_key) == 1
    assert posts(model) == (not arrived)


@pytest.mark.virtual_time
async def test_a_decision_that_is_not_recorded_sends_nothing() -> None:
    """On record or not at all: a full disk leaves the push in doubt."""

    def is_full(rows: Sequence[Row]) -> None:
        if any(row.decision for row in rows):
            raise JournalError("the disk is full")

    model, journal = losing("never arrives"), Journal()
    journal.before_write = is_full
    async with coordinator(model, in_doubt="resend", journal=journal) as pushes:
        outcome = await (await pushes.submit(NAMED))

    assert outcome.status is OutcomeStatus.IN_DOUBT
    assert posts(model) == 1


@pytest.mark.parametrize("value", ["resent", None, True])
async def test_a_choice_that_there_is_none_is_refused(value: Any) -> None:
    """Where it is given, with what to write instead."""
    with pytest.raises(ConfigurationError, match="in_doubt must be 'ask' or 'resend'"):
        async with coordinator(Model(), in_doubt=value):
            pass
