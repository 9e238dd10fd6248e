"""Promises of the push coordinator: one outcome for each record, and no surprises."""

from __future__ import annotations

import asyncio
import gc
import sys
from collections import Counter
from collections.abc import AsyncIterator, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any, assert_type

import pytest
from aiohttp import ConnectionTimeoutError
from attrs import evolve

from integration_sdk import ProblemCode, PushEvent
from integration_sdk._outcome import PushOutcome
from integration_sdk.dialect import Dialect
from integration_sdk.errors import (
    AccountExpired,
    BadRequest,
    ClientClosed,
    ConfigurationError,
    InvalidRecord,
    NotSent,
    PushFailed,
    PushInDoubt,
    TooManyRequests,
    WaitExpired,
)
from integration_sdk.models import OutcomeStatus, PushOperation, PushRequest, PushStatus
from tests.support.push_support import (
    breaking,
    collect,
    coordinator,
    listed,
    numbers,
    request,
    requests,
    searches,
)
from tests.support.virtual_service import Answer, Asked, Proceed, Service, no_answer, refusal

pytestmark = pytest.mark.virtual_time
AHEAD = 64
"""Pushes that wait for the service's answer, at most."""


def now() -> float:
    return asyncio.get_running_loop().time()


def posts(service: Service) -> int:
    return service.count("push")


# One push


async def test_a_push_has_its_key_when_submit_returns() -> None:
    """submit() returns with the service's key; awaiting gives the outcome."""
    async with coordinator(Service()) as pushes:
        push = await pushes.submit(request(reference="INV-17"))
        assert push.key
        assert push.outcome is None
        outcome = await push

    assert outcome.status is OutcomeStatus.SUCCESS
    assert outcome.reference == "INV-17"
    assert outcome.key == push.key
    assert outcome.raise_for_status() is outcome
    assert_type(outcome.result(), PushOperation)
    assert outcome.result() is outcome.operation


async def test_any_number_may_await_a_push() -> None:
    """Every awaiter gets the same outcome; cancelling one leaves the others alone."""
    async with coordinator(Service()) as pushes:
        push = await pushes.submit(request())

        async def awaiting() -> Any:
            return await push

        first, *others = [asyncio.ensure_future(awaiting()) for _ in range(5)]
        await asyncio.sleep(0.5)
        first.cancel()
        outcomes = await asyncio.gather(*others)

    assert {id(outcome) for outcome in outcomes} == {id(push.outcome)}


async def test_a_state_that_is_not_final_is_an_event() -> None:
    """A status between Pending and the end, though we do not know it, is told of once."""

    def begun(asked: Asked, proceed: Proceed) -> Answer:
        answer = proceed()
        is_early = asked.kind == "get" and asked.at < 60
        return (
            replace(answer, body=answer.body.replace(b"Pending", b"Queued")) if is_early else answer
        )

    told: list[PushEvent] = []
    async with coordinator(Service(lambda _: 60.0, [begun]), on_event=told.append) as pushes:
        push = await pushes.submit(request())

    assert [event.what for event in told] == ["sent", "changed", "ended"]
    assert push.outcome
    assert push.outcome.status is OutcomeStatus.SUCCESS


async def test_a_failed_push_is_a_value_with_its_reasons() -> None:
    """FAILED carries the operation; only who asks for the result meets an exception."""
    async with coordinator(Service(status=lambda _: "Failed")) as pushes:
        outcome = await (await pushes.submit(request()))

    assert outcome.status is OutcomeStatus.FAILED
    for ask in (outcome.raise_for_status, outcome.result):
        with pytest.raises(PushFailed) as caught:
            ask()
        assert caught.value.operation is outcome.operation


@pytest.mark.parametrize(
    ("dialect", "says"),
    [(Dialect.document(), "guarantees"), (Dialect.published(), "may still take effect")],
)
async def test_a_timed_out_push_says_what_the_dialect_knows_of_late_effects(
    dialect: Dialect, says: str
) -> None:
    """TIMED_OUT tells whether the record can still turn up."""
    async with coordinator(Service(status=lambda _: "TimedOut"), dialect=dialect) as pushes:
        outcome = await (await pushes.submit(request()))

    assert outcome.status is OutcomeStatus.TIMED_OUT
    assert says in str(outcome.error)


async def test_a_synchronous_answer_settles_at_once() -> None:
    """A push that the platform answers at once costs no poll."""
    service = Service(lambda _: 0.0)
    async with coordinator(service) as pushes:
        outcome = await (await pushes.submit(request()))

    assert outcome.status is OutcomeStatus.SUCCESS
    assert service.count("get") == 0


async def test_a_refused_push_is_rejected_with_the_services_error() -> None:
    """A 4xx is REJECTED, sent once, and carries the error."""
    service = Service(answer=lambda r: refusal(400, "bad") if r.kind == "push" else None)
    async with coordinator(service) as pushes:
        outcome = await (await pushes.submit(request()))

    assert outcome.status is OutcomeStatus.REJECTED
    assert isinstance(outcome.error, BadRequest)
    assert posts(service) == 1


async def test_a_busy_service_is_asked_again() -> None:
    """429 with the error body did nothing: the push is sent again, not before Retry-After."""
    sent: list[float] = []

    def answer(call: Asked) -> Answer | None:
        if call.kind == "push":
            sent.append(now())
            return refusal(429, Retry_After=7) if len(sent) == 1 else None
        return None

    async with coordinator(Service(answer=answer)) as pushes:
        outcome = await (await pushes.submit(request()))

    assert outcome.status is OutcomeStatus.SUCCESS
    assert len(sent) == 2
    assert sent[1] - sent[0] >= 7


async def test_what_never_left_is_sent_again_and_then_given_up() -> None:
    """A push that cannot leave is tried a few times, and is REJECTED, since none exists."""
    tried: list[str] = []

    def unreachable(request: str) -> Exception | None:
        tried.append(request)
        return ConnectionTimeoutError("no route") if request.startswith("POST") else None

    async with coordinator(Service(), middlewares=[breaking(unreachable)]) as pushes:
        outcome = await (await pushes.submit(request()))

    assert outcome.status is OutcomeStatus.REJECTED
    assert isinstance(outcome.error, NotSent)
    assert 2 <= sum(request.startswith("POST") for request in tried) <= 10


# Doubt


def losing(service: Service, *, carried_out: bool) -> None:
    """Lose the answer of the first push."""

    def answer(call: Asked) -> Answer | None:
        if call.kind != "push" or posts(service) > 1:
            return None
        if carried_out:
            service.carry_out(call)
        return no_answer()

    service.answer = answer


async def test_a_lost_answer_is_found_in_the_list() -> None:
    """A push whose answer was lost is not sent again; the list shows what became of it."""
    service = Service()
    losing(service, carried_out=True)
    async with coordinator(service) as pushes:
        push = await pushes.submit(request(5))
        assert push.key is None
        outcome = await push

    assert outcome.status is OutcomeStatus.SUCCESS
    assert outcome.key in service.by_key
    assert posts(service) == 1


async def test_a_lost_push_is_told_from_others_though_lists_have_no_records() -> None:
    """Pushes that have ended are then read one by one, for what they hold."""
    service = Service(lambda _: 0.0, list_has_data=False)
    losing(service, carried_out=True)
    async with coordinator(service) as pushes:
        push = await pushes.submit(request(5, natural_key="number"))
        service.add(record={"number": 6})
        outcome = await push

    assert outcome.status is OutcomeStatus.SUCCESS
    assert service.by_key[str(outcome.key)].record == {"number": 5}


async def test_a_doubt_is_logged_by_its_reference(caplog: pytest.LogCaptureFixture) -> None:
    """Who reads the log sees which push it was, and that it was found."""
    caplog.set_level("INFO", "integration_sdk.pushes")
    service = Service()
    losing(service, carried_out=True)
    async with coordinator(service) as pushes:
        push = await pushes.submit(evolve(request(5), reference="INV-5"))
        await push

    begun, found = (record.getMessage() for record in caplog.records)
    name = f"invoices 'INV-5' of company c-0 (intent {push.intent})"
    assert begun.startswith(f"the answer to {name} was lost; the company's pushes are searched")
    assert found == f"{name} was found: it is push {push.key}"


async def test_a_lost_push_that_is_nowhere_is_in_doubt(caplog: pytest.LogCaptureFixture) -> None:
    """Where no list shows it, the push is IN_DOUBT, never sent again by itself, and logged."""
    service = Service()
    losing(service, carried_out=False)
    async with coordinator(service) as pushes:
        outcome = await (await pushes.submit(request(5)))

    assert outcome.status is OutcomeStatus.IN_DOUBT
    assert isinstance(outcome.error, PushInDoubt)
    assert outcome.error.intent
    assert ".. " not in str(outcome.error)
    assert caplog.messages[1:] == [str(outcome.error)]
    assert posts(service) == 1


async def test_what_is_in_doubt_is_searched_for_twice_a_minute() -> None:
    """However often polls list its company."""
    service = Service(lambda _: 1.0)
    losing(service, carried_out=False)
    async with service.client() as client, client.coordinator() as pushes:
        await (await pushes.submit(request(5)))
        before, lists = searches(service), service.count("list")
        until = now() + 60
        while now() < until:
            await listed(client, service)

    assert searches(service) - before == 2
    assert service.count("list") - lists > 30


@pytest.mark.parametrize("key", ["", "a/b", "x" * 300])
async def test_a_key_that_cannot_be_asked_for_does_not_end_a_search(key: str) -> None:
    """Listed without its record, such a push is read by nobody, and may be the one sought."""
    service = Service(list_has_data=False)
    losing(service, carried_out=False)
    async with asyncio.timeout(10_000), coordinator(service) as pushes:
        push = await pushes.submit(request(5))
        service.add(record={"number": 7}).key = key
        outcome = await push

    assert isinstance(outcome.error, PushInDoubt)
    assert outcome.error.candidates == (key,)


@pytest.mark.parametrize("whose", ["client", "coordinator"])
async def test_a_push_in_doubt_that_turns_up_late_is_told(whose: str) -> None:
    """A notification about a push that nobody follows lets it be found, and followed."""
    service = Service()
    losing(service, carried_out=False)
    events: list[PushEvent] = []
    async with (
        service.client() as client,
        client.coordinator(on_event=events.append) as pushes,
    ):
        push = await pushes.submit(request(5))
        assert (await push).status is OutcomeStatus.IN_DOUBT
        late = service.add(record={"number": 5})
        await asyncio.sleep(5)
        (client if whose == "client" else pushes).notify(late.key)
        await asyncio.sleep(20)

    assert events[-1].what == "found"
    assert push.key == late.key
    assert push.operation
    assert push.operation.is_final


async def test_a_doubt_can_be_decided() -> None:
    """decide() sends once more, or leaves it, on record; anything else is refused."""
    service = Service()
    losing(service, carried_out=False)
    async with coordinator(service) as pushes:
        push = await pushes.submit(request(5))
        await push
        neither: Any = None
        with pytest.raises(ConfigurationError):
            await pushes.decide(str(push.intent), neither)
        again = await pushes.decide(str(push.intent), "resend")
        assert (await again).status is OutcomeStatus.SUCCESS

    assert posts(service) == 2


# Bad input


@pytest.mark.parametrize("record", [None, [1], "text", {"amount": float("nan")}])
async def test_a_record_that_cannot_be_right_is_not_sent(record: Any) -> None:
    """submit() raises for it, run() makes it the outcome INVALID; neither sends it."""
    service = Service()
    wrong = PushRequest("company", "books", "invoices", record)
    async with coordinator(service) as pushes:
        with pytest.raises(InvalidRecord):
            await pushes.submit(wrong)
        outcomes = await collect(pushes.run([wrong, request()]))

    assert {outcome.status for outcome in outcomes} == {
        OutcomeStatus.INVALID,
        OutcomeStatus.SUCCESS,
    }
    assert posts(service) == 1


async def test_an_id_that_cannot_be_right_is_not_sent() -> None:
    """An id that would lead elsewhere raises ConfigurationError from submit()."""
    async with coordinator(Service()) as pushes:
        with pytest.raises(ConfigurationError, match="company"):
            await pushes.submit(evolve(request(), company_id="../x"))
        (outcome,) = await collect(pushes.run([evolve(request(), company_id="a?b")]))

    assert outcome.status is OutcomeStatus.INVALID


async def test_what_is_no_request_is_refused_at_once() -> None:
    """submit() and run() name what they cannot take, and the block can be left as ever."""
    service = Service()
    wrong: Any = "INV-1"
    async with coordinator(service) as pushes:
        with pytest.raises(ConfigurationError, match="takes PushRequest values"):
            await asyncio.wait_for(pushes.submit(wrong), 60)
        with pytest.raises(ConfigurationError, match="takes PushRequest values"):
            await collect(pushes.run([wrong]))

    assert posts(service) == 0


@pytest.mark.parametrize("durable", [False, True])
@pytest.mark.parametrize(
    "wrong",
    [
        {"reference": ["INV-1"]},
        {"reference": 17},
        {"reference": ""},
        {"reference": " "},
        {"natural_key": ""},
        {"reference": "INV-\ud800"},
        {"reference": "INV\0"},
        {"natural_key": 5},
    ],
)
async def test_a_name_that_cannot_be_kept_stops_its_own_record_alone(
    wrong: dict[str, Any], durable: bool, tmp_path: Path
) -> None:
    """submit() raises, run() yields INVALID and goes on, with a journal or without."""
    service = Service()
    (name,) = wrong
    async with coordinator(service, journal=tmp_path / "pushes.db" if durable else None) as pushes:
        with pytest.raises(ConfigurationError, match=f"{name} must be"):
            await asyncio.wait_for(pushes.submit(request(**wrong)), 60)
        outcomes = await collect(pushes.run([request(**wrong), request()], ordered=True))

    assert [one.status for one in outcomes] == [OutcomeStatus.INVALID, OutcomeStatus.SUCCESS]
    assert posts(service) == 1


async def test_a_record_that_fails_the_check_is_not_sent() -> None:
    """What the push options do not allow is INVALID, with the problems."""
    even = [{"value": str(number), "type": "Number"} for number in (0, 2)]
    number = {"type": "Number", "displayName": "", "description": "", "required": True}
    options = {"type": "Object", "properties": {"number": {**number, "options": even}}}
    service = Service(answer=lambda one: Answer.of(options) if one.kind == "options" else None)
    async with coordinator(service, check="options") as pushes:
        outcomes = await collect(pushes.run(requests(4), ordered=True))

    assert [one.status for one in outcomes] == [OutcomeStatus.SUCCESS, OutcomeStatus.INVALID] * 2
    assert isinstance(outcomes[1].error, InvalidRecord)
    assert [one.code for one in outcomes[1].error.problems] == [ProblemCode.NOT_A_CHOICE]
    assert posts(service) == 2


@pytest.mark.parametrize(
    "wrong",
    [
        {"leave": "stay"},
        {"leave": ["drain"]},
        {"max_open": 0},
        {"max_open": True},
        {"exclusive": "false"},
        {"fetch_data": None},
    ],
    ids=str,
)
async def test_options_that_cannot_work_are_refused(wrong: dict[str, Any]) -> None:
    """A coordinator with an option that makes no sense is not made."""
    with pytest.raises(ConfigurationError, match=f"^{next(iter(wrong))} must be "):
        async with coordinator(Service(), **wrong):
            pass


async def test_a_choice_that_does_not_exist_names_those_that_do() -> None:
    """The error says what may be given in its place."""
    with pytest.raises(ConfigurationError, match=r"'drain' or 'detach', not 'stay'"):
        async with coordinator(Service(), leave="stay"):
            pass
    async with coordinator(Service()) as pushes:
        wrong: Any = "never"
        with pytest.raises(ConfigurationError, match=r"'none', 'first' or 'end', not 'never'"):
            pushes.run([], raise_on=wrong)


# Many


async def test_every_request_has_one_outcome() -> None:
    """run() yields an outcome for each request, each with its own request."""
    service = Service(lambda record: 1 + record["number"] % 7)
    async with coordinator(service) as pushes:
        outcomes = await collect(pushes.run(requests(500, companies=5)))

    assert sorted(numbers(outcomes)) == list(range(500))
    assert posts(service) == 500


async def test_outcomes_come_as_they_complete() -> None:
    """Without ordered= the quick ones come first."""
    service = Service(lambda record: 30.0 if record["number"] < 5 else 2.0)
    async with coordinator(service) as pushes:
        outcomes = await collect(pushes.run(requests(10)))

    assert sorted(numbers(outcomes[:5])) == [5, 6, 7, 8, 9]


async def test_ordered_outcomes_come_in_the_order_of_the_input() -> None:
    """With ordered= they come as they were given."""
    service = Service(lambda record: 30.0 - record["number"])
    async with coordinator(service) as pushes:
        outcomes = await collect(pushes.run(requests(20), ordered=True))

    assert numbers(outcomes) == list(range(20))


async def test_input_is_pulled_no_further_than_there_are_places() -> None:
    """Never more than max_open requests are pulled beyond the outcomes taken."""
    pulled = taken = most = 0

    def endless() -> Iterator[PushRequest]:
        nonlocal pulled
        while pulled < 200:
            yield request(pulled)
            pulled += 1

    async with coordinator(Service(), max_open=10) as pushes:
        async for _ in pushes.run(endless()):
            taken += 1
            most = max(most, pulled - taken)
            await asyncio.sleep(0.2)

    assert taken == 200
    assert most <= 10


async def test_submit_waits_for_a_place() -> None:
    """The push after max_open open ones waits until one has its outcome."""
    async with coordinator(Service(lambda _: 10.0), max_open=2) as pushes:
        await pushes.submit(request(0))
        await pushes.submit(request(1))
        await pushes.submit(request(2))
        assert now() >= 10


async def test_input_is_pulled_no_further_than_the_service_answers() -> None:
    """However many may be open, no more than `AHEAD` requests wait for the service's answer."""
    service = Service(lambda _: 1e6, latency=1.0)
    pulled = answered = most = 0

    def many() -> Iterator[PushRequest]:
        nonlocal pulled, most
        for pulled in range(1, 501):
            most = max(most, pulled - answered)
            yield request(pulled)

    def hear(_: PushEvent) -> None:
        nonlocal answered
        answered += 1

    async with coordinator(service, max_open=5000, leave="detach", on_event=hear) as pushes:
        await collect(pushes.run(many(), wait=0))

    assert most == AHEAD


async def test_an_exception_in_the_input_comes_after_the_outcomes() -> None:
    """What was sent is drained, then the input's own exception surfaces."""

    async def breaks() -> AsyncIterator[PushRequest]:
        for number in range(5):
            yield request(number)
        raise OSError("file ended badly")

    outcomes: list[PushOutcome] = []
    async with coordinator(Service()) as pushes:
        with pytest.raises(OSError, match="ended badly"):
            await collect(pushes.run(breaks()), into=outcomes)

    assert sorted(numbers(outcomes)) == [0, 1, 2, 3, 4]


async def test_leaving_early_pulls_nothing_more_and_drains_what_was_sent() -> None:
    """After a break no further request is pulled; the block waits for what was sent."""
    service = Service()
    pulled = 0

    def endless() -> Iterator[PushRequest]:
        nonlocal pulled
        while True:
            yield request(pulled)
            pulled += 1

    async with coordinator(service, max_open=5000) as pushes:
        run = pushes.run(endless())
        async for _ in run:
            break
        await run.aclose()
        stopped_at = pulled

    assert pulled == stopped_at
    assert pushes.progress.open == 0
    assert pushes.progress.ended == posts(service)


@pytest.mark.parametrize("raise_on", ["first", "end"])
async def test_raise_on_turns_outcomes_into_exceptions(raise_on: Any) -> None:
    """ "first" raises at once and pulls nothing more; "end" yields everything first."""
    service = Service(status=lambda record: "Failed" if record["number"] == 3 else "Success")
    outcomes: list[PushOutcome] = []
    async with coordinator(service, max_open=4) as pushes:
        with pytest.raises(PushFailed):
            await collect(pushes.run(requests(40), raise_on=raise_on), into=outcomes)

    assert len(outcomes) == 40 if raise_on == "end" else len(outcomes) < 40


async def test_an_expired_account_stops_the_run_with_one_error() -> None:
    """402 on an expired account: what was pulled has an outcome, the rest is not pulled."""
    service = Service()
    pulled = 0

    def many() -> Iterator[PushRequest]:
        nonlocal pulled
        for pulled in range(1, 5001):
            yield request(pulled)

    service.answer = lambda _: (
        refusal(402, "Payment Required", message="account expired")
        if posts(service) > 100
        else None
    )
    outcomes: list[PushOutcome] = []
    async with coordinator(service) as pushes:
        with pytest.raises(AccountExpired):
            await collect(pushes.run(many()), into=outcomes)
        with pytest.raises(AccountExpired):
            await pushes.submit(request())

    assert sorted(numbers(outcomes)) == list(range(1, pulled + 1))
    assert pulled <= 100 + AHEAD
    refused = [one for one in outcomes if one.status is OutcomeStatus.REJECTED]
    assert len(refused) <= AHEAD
    assert posts(service) <= 100 + AHEAD


async def test_an_expired_account_ends_the_pauses_of_others() -> None:
    """Who waits because of a Retry-After is not sent, and waits no longer."""
    service = Service()
    answers = iter([refusal(429, Retry_After=300), refusal(402, message="account expired")])
    service.answer = lambda call: next(answers) if call.kind == "push" else None
    outcomes: list[PushOutcome] = []
    async with coordinator(service) as pushes:
        with pytest.raises(AccountExpired):
            await collect(pushes.run([request(1), request(2)]), into=outcomes)

    assert now() < 1
    assert {one.status for one in outcomes} == {OutcomeStatus.REJECTED}
    assert posts(service) == 2


def spent_after(service: Service, pushes: int, *, hours: float) -> None:
    """Let the service's quota be spent after so many pushes, until so many hours have passed."""

    def answer(_: Asked) -> Answer | None:
        left = hours * 3600 - now()
        spent = posts(service) > pushes and left > 0
        return refusal(429, "Too Many Requests", Retry_After=left) if spent else None

    service.answer = answer


async def test_a_quota_that_is_spent_for_hours_stops_the_run_with_one_error() -> None:
    """It says when to come back; nobody waits for hours, and the rest is not pulled."""
    service, pulled, outcomes = Service(lambda _: 100.0), 0, list[PushOutcome]()
    spent_after(service, 100, hours=6)

    def many() -> Iterator[PushRequest]:
        nonlocal pulled
        for pulled in range(1, 5001):
            yield request(pulled)

    async with coordinator(service) as pushes:
        with pytest.raises(TooManyRequests) as stopped:
            await collect(pushes.run(many()), into=outcomes)

    assert stopped.value.retry_at is not None
    assert now() < 60
    assert sorted(numbers(outcomes)) == list(range(1, pulled + 1))
    statuses = Counter(one.status for one in outcomes)
    assert statuses.keys() == {OutcomeStatus.PENDING, OutcomeStatus.REJECTED}
    assert statuses[OutcomeStatus.REJECTED] <= AHEAD
    assert pulled <= 100 + AHEAD


@pytest.mark.parametrize(("hours", "max_pause"), [(6, None), (0.1, 600.0)])
async def test_a_pause_that_is_not_too_long_is_waited_for(
    hours: float, max_pause: float | None
) -> None:
    """Ten minutes unless told otherwise, and for ever if told so."""
    service = Service()
    spent_after(service, 20, hours=hours)

    async with coordinator(service, max_pause=max_pause) as pushes:
        outcomes = await collect(pushes.run(requests(40)))

    assert {one.status for one in outcomes} == {OutcomeStatus.SUCCESS}
    assert now() > hours * 3600


async def test_max_pause_is_about_what_the_service_asks_for() -> None:
    """A 429 that names no time is repeated after a pause of our own, however small it is."""
    service = Service()
    service.answer = lambda _: refusal(429, "Too Many Requests") if posts(service) == 1 else None

    async with coordinator(service, max_pause=0) as pushes:
        outcome = await (await pushes.submit(request()))

    assert outcome.status is OutcomeStatus.SUCCESS
    assert posts(service) == 2


# Waits


async def test_a_wait_that_ends_is_pending() -> None:
    """wait= ends the wait at its time, not the push."""
    async with coordinator(Service(lambda _: 100.0)) as pushes:
        push = await pushes.submit(request(), wait=10)
        began = now()
        outcome = await push

        assert now() - began == pytest.approx(10)
    assert outcome.status is OutcomeStatus.PENDING
    assert isinstance(outcome.error, WaitExpired)
    assert outcome.key == push.key


async def test_a_push_with_a_deadline_is_not_awaited_for_ever() -> None:
    """A service that forgets its own deadline does not make anybody hang."""
    async with coordinator(Service(lambda _: float("inf"))) as pushes:
        outcome = await (await pushes.submit(request(timeout_minutes=5)))
        assert now() == pytest.approx(300 + 60, abs=1)

    assert outcome.status is OutcomeStatus.PENDING


async def test_the_first_outcome_counts(tmp_path: Path) -> None:
    """A push has one outcome; nothing that comes later replaces it."""
    async with coordinator(Service(lambda _: 100.0), journal=tmp_path / "pushes.db") as pushes:
        short = await pushes.submit(request(reference="INV-1"), wait=10)
        long = await pushes.submit(request(reference="INV-1"))
        first = await short
        assert (await long).status is OutcomeStatus.SUCCESS

    assert first.status is OutcomeStatus.PENDING
    assert await short is first


# The end of the block


async def test_leaving_the_block_drains_by_default() -> None:
    """Everything open has its outcome when the block is left."""
    async with coordinator(Service(lambda _: 60.0)) as pushes:
        push = await pushes.submit(request())

    assert push.outcome
    assert push.outcome.status is OutcomeStatus.SUCCESS


async def test_leaving_the_block_without_waiting() -> None:
    """ "detach" does not wait; open pushes are PENDING, and their keys are kept."""
    async with coordinator(Service(lambda _: 60.0), leave="detach") as pushes:
        push = await pushes.submit(request())

    assert now() < 1
    assert (await push).status is OutcomeStatus.PENDING
    assert pushes.detached == (push.key,)
    with pytest.raises(ClientClosed):
        await pushes.submit(request())


async def test_an_exception_in_the_block_does_not_wait() -> None:
    """A block left by an exception keeps the open keys and raises at once."""
    seen: list[Any] = []

    async def fails() -> None:
        async with coordinator(Service(lambda _: 60.0)) as pushes:
            seen.extend((pushes, await pushes.submit(request())))
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        await fails()

    pushes, push = seen
    assert now() < 1
    assert pushes.detached == (push.key,)


async def test_a_cancelled_submit_leaves_the_push_to_the_coordinator() -> None:
    """Cancelling submit() ends the wait; the push is sent to its end and drained."""
    service = Service(latency=1.0)
    async with coordinator(service) as pushes:
        submitting = asyncio.ensure_future(pushes.submit(request()))
        await asyncio.sleep(1.5)
        submitting.cancel()

    assert posts(service) == 1
    assert pushes.progress.outcomes == {OutcomeStatus.SUCCESS: 1}


# Watching


async def test_progress_counts_by_state_and_says_how_long() -> None:
    """Progress has what is open, what ended how, a rate, and the time left."""
    service = Service(lambda record: 10.0 + record["number"] / 10)
    async with coordinator(service) as pushes:
        run = asyncio.ensure_future(collect(pushes.run(requests(100))))
        await asyncio.sleep(15)
        half = pushes.progress
        await run
        done = pushes.progress

    assert half.total == done.total == 100
    assert half.open + half.ended == 100
    assert half.rate > 0
    assert half.eta == pytest.approx((100 - half.ended) / half.rate)
    assert done.outcomes == {OutcomeStatus.SUCCESS: 100}
    assert done.eta == 0


async def test_progress_of_a_generator_has_the_total_that_it_was_given() -> None:
    """Its length is unknown to the run, but often not to the caller; several runs add up."""
    async with coordinator(Service()) as pushes:
        unknown = pushes.run(iter(requests(1)))
        assert len(await collect(unknown)) == 1
        assert pushes.progress.total is None
        await collect(pushes.run(iter(requests(2)), total=2))
        await collect(pushes.run(requests(3), total=4))
        assert pushes.progress.total == 6
        with pytest.raises(ConfigurationError, match="total must be a whole number"):
            pushes.run(iter([]), total=-1)


@pytest.mark.parametrize("bug", [RuntimeError("a listener's bug"), asyncio.CancelledError()])
async def test_events_tell_of_each_push_and_may_fail(
    caplog: pytest.LogCaptureFixture, bug: BaseException
) -> None:
    """on_event hears "sent" and "ended" of every push; its errors stop nothing, and are told once.

    The result of a future that was cancelled, for one, is no cancellation of those who push.
    """
    heard: list[str] = []

    def listen(event: PushEvent) -> None:
        heard.append(event.what)
        raise bug

    async with asyncio.timeout(1000), coordinator(Service(), on_event=listen) as pushes:
        await collect(pushes.run(requests(3)))

    assert sorted(heard) == ["ended"] * 3 + ["sent"] * 3
    assert sum("on_event" in message for message in caplog.messages) == 1


async def test_a_hint_wakes_one_push() -> None:
    """notify() makes a push that has ended known at once."""
    service = Service(lambda _: 300.0)
    async with coordinator(service) as pushes:
        push = await pushes.submit(request())
        await asyncio.sleep(100)
        service.by_key[str(push.key)].ends = now()
        pushes.notify(str(push.key))
        await asyncio.sleep(0.1)
        assert push.outcome


async def test_a_hint_wakes_who_waits_without_a_coordinator() -> None:
    """notify() of a coordinator is notify() of its client: one is enough for all."""
    service = Service(lambda _: 300.0)
    async with service.client() as client, client.coordinator() as pushes:
        held = service.add(record={"number": 0})
        wait = asyncio.create_task(client.wait(held.key, company_id="c-0"))
        await asyncio.sleep(100)
        held.ends = now()
        pushes.notify(held.key)
        await asyncio.sleep(0.1)
        assert wait.done()
        assert (await wait).status is PushStatus.SUCCESS


@pytest.mark.parametrize("fetch_data", [False, True])
async def test_data_that_a_list_leaves_out_is_fetched_on_demand(*, fetch_data: bool) -> None:
    """With ``fetch_data`` every outcome has it; without, nobody pays a request for it."""
    service = Service(takes=lambda _: 2.0, list_has_data=False)
    async with coordinator(service, fetch_data=fetch_data) as pushes:
        outcomes = await collect(pushes.run(requests(50)))

    having_data = sum(bool(one.operation and one.operation.data) for one in outcomes)
    probes = 1  # of whether the list can be believed
    assert having_data == 50 if fetch_data else having_data <= probes
    assert service.count("get") <= having_data + probes


async def test_what_is_known_to_have_ended_is_not_searched_for() -> None:
    """A late notification about a push that has ended costs nothing, whatever is in doubt."""
    service = Service(takes=lambda _: 1.0)
    losing(service, carried_out=False)
    async with coordinator(service) as pushes:
        await (await pushes.submit(request(0)))
        ended = await (await pushes.submit(request(1)))
        await asyncio.sleep(100)
        before = service.count()
        for _ in range(5):
            pushes.notify(str(ended.key))
            await asyncio.sleep(2)
        assert pushes.in_doubt
        assert service.count() == before
        pushes.notify("of another's push")
        await asyncio.sleep(2)
        assert service.count() > before


async def test_nothing_is_logged_of_records(caplog: pytest.LogCaptureFixture) -> None:
    """No record's content appears in the log at INFO or above."""
    caplog.set_level("INFO")
    service = Service(status=lambda _: "Failed")
    losing(service, carried_out=True)
    async with coordinator(service) as pushes:
        await collect(
            pushes.run([PushRequest("c", "b", "invoices", {"number": 0, "iban": "SECRET"})])
        )

    assert "SECRET" not in caplog.text


async def test_a_stream_of_pushes_leaves_nothing_behind() -> None:
    """Memory stays flat however many records go through run()."""

    def objects() -> int:
        gc.collect()
        return len(gc.get_objects())

    counts: list[int] = []
    service = Service(lambda _: 0.5, latency=0.01)

    async with coordinator(service, max_open=100) as pushes:
        for _ in range(3):
            async for _ in pushes.run(requests(1500)):
                pass
            service.pushes.clear()
            service.by_key.clear()
            counts.append(objects())

    assert counts[2] - counts[1] < 1500 * 10


if sys.version_info >= (3, 12):

    async def test_tasks_may_be_eager() -> None:
        """A loop whose tasks begin at once, which services set for speed, changes nothing."""
        asyncio.get_running_loop().set_task_factory(asyncio.eager_task_factory)
        async with asyncio.timeout(1000), coordinator(Service()) as pushes:
            outcomes = await collect(pushes.run(requests(500, companies=5)))
        assert Counter(one.status for one in outcomes) == {OutcomeStatus.SUCCESS: 500}
