"""Promises of the push coordinator: one outcome for each record, and no surprises."""

from __future__ import annotations

import asyncio
from collections import Counter
from dataclasses import replace
from typing import Any, assert_type, cast

import pytest
from aiohttp import ConnectionTimeoutError
from attrs import evolve

from integration_sdk import (
    Dialect,
    OutcomeStatus,
    ProblemCode,
    PushEvent,
    PushOperation,
    PushRequest,
)
from integration_sdk.errors import ConfigurationError, InvalidRecord, NotSent, PushFailed
from tests.support.loops import RunOnLoop
from tests.support.push_support import (
    Journal,
    breaking,
    collect,
    coordinator,
    fated,
    named,
    numbers,
    on_record,
    push_once,
    request,
    requests,
    run_once,
    statuses,
)
from tests.support.virtual_service import Answer, Asked, Proceed, Service

pytestmark = pytest.mark.virtual_time


async def test_a_push_has_its_key_when_submit_returns() -> None:
    """submit() returns with the service's key; any number may await the one outcome."""
    async with coordinator(Service()) as pushes:
        push = await pushes.submit(named())
        assert push.key
        assert push.outcome is None
        first, *others = [asyncio.ensure_future(push) for _ in range(5)]
        await asyncio.sleep(0.5)
        first.cancel()
        assert {id(outcome) for outcome in await asyncio.gather(*others)} == {id(push.outcome)}

    outcome = await push
    assert outcome.status is OutcomeStatus.SUCCESS
    assert (outcome.reference, outcome.key) == ("INV-1", push.key)
    assert outcome.raise_for_status() is outcome
    assert_type(outcome.result(), PushOperation)
    assert outcome.result() is outcome.operation


async def test_a_state_that_is_not_final_is_an_event() -> None:
    """A status between Pending and the end, though we do not know it, is told of once."""

    def begun(asked: Asked, proceed: Proceed) -> Answer:
        answer = proceed()
        if asked.kind == "get" and asked.at < 60:
            return replace(answer, body=answer.body.replace(b"Pending", b"Queued"))
        return answer

    told: list[PushEvent] = []
    outcome = await push_once(Service(lambda _: 60.0, [begun]), on_event=told.append)

    assert [event.what for event in told] == ["sent", "changed", "ended"]
    assert outcome.status is OutcomeStatus.SUCCESS


@pytest.mark.parametrize(
    ("ends", "dialect", "status", "says"),
    [
        ("Failed", Dialect.document(), "FAILED", "failed"),
        ("TimedOut", Dialect.document(), "TIMED_OUT", "guarantees"),
        ("TimedOut", Dialect.published(), "TIMED_OUT", "may still take effect"),
        ("Cancelled", Dialect.document(), "FAILED", "'Cancelled'"),  # nobody knows this word
    ],
)
async def test_a_push_that_fails_is_a_value_with_its_reasons(
    ends: str, dialect: Dialect, status: str, says: str
) -> None:
    """It says what is known of late effects; only who asks for the result meets an exception."""
    outcome = await push_once(Service(status=lambda _: ends), dialect=dialect)

    assert outcome.status == status
    assert says in str(outcome.error)
    for ask in (outcome.raise_for_status, outcome.result):
        with pytest.raises(PushFailed) as caught:
            ask()
        assert caught.value.operation is outcome.operation


async def test_a_synchronous_answer_settles_at_once() -> None:
    """A push that the platform answers at once costs no poll."""
    service = Service(lambda _: 0.0)

    assert (await push_once(service)).status is OutcomeStatus.SUCCESS
    assert service.count("get") == 0


async def test_what_never_left_is_sent_again_and_then_given_up() -> None:
    """A push that cannot leave is tried a few times, and is REJECTED, since none exists."""
    tried: list[str] = []

    def unreachable(request: str) -> Exception | None:
        tried.append(request)
        return ConnectionTimeoutError("no route") if request.startswith("POST") else None

    outcome = await push_once(Service(), middlewares=[breaking(unreachable)])

    assert outcome.status is OutcomeStatus.REJECTED
    assert isinstance(outcome.error, NotSent)
    assert 2 <= sum(request.startswith("POST") for request in tried) <= 10


@pytest.mark.parametrize("fetch_data", [False, True])
async def test_data_that_a_list_leaves_out_is_fetched_on_demand(*, fetch_data: bool) -> None:
    """With ``fetch_data`` every outcome has it; without, nobody pays a request for it."""
    service = Service(list_has_data=False)
    outcomes = await run_once(service, requests(50), fetch_data=fetch_data)

    having_data = sum(bool(one.operation and one.operation.data) for one in outcomes)
    probes = 1  # of whether the list can be believed
    assert having_data == 50 if fetch_data else having_data <= probes
    assert service.count("get") <= having_data + probes


async def test_a_wait_has_data_that_nobody_fetched_before() -> None:
    """The end of its push was seen in a list, by a coordinator that needs none."""
    async with Service(list_has_data=False).client() as client, client.coordinator() as pushes:
        open_ = [await pushes.submit(one) for one in requests(4)]
        outcomes = [await push for push in open_]
        waited = await client.wait(str(outcomes[0].key), company_id="c-0")

    assert [one.operation and one.operation.data for one in outcomes] == [None] * 4
    assert waited.data
    assert waited.data["number"] == 0


@pytest.mark.parametrize("what", [{"attach": ("a.pdf", b"\x00\xff")}, {"delete": True}])
@pytest.mark.parametrize("is_lost", [False, True])
async def test_attachments_and_deletes_are_on_record(what: dict[str, Any], is_lost: bool) -> None:
    """Once, however often the program runs; a lost one is not sent again."""

    class Attaching(Service):
        def carry_out(self, asked: Asked) -> Answer:
            if asked.method == "GET":
                return super().carry_out(asked)
            return Answer.of(self.shown(self.add("c-0", "books", "bills"), asked.at))

    journal, service = Journal(), Attaching()
    if is_lost:
        service.answer = lambda call: Answer(cut=0) if call.method != "GET" else None
    one = PushRequest("c-0", "books", "bills", None, record_id="7", reference="r", **what)
    for _ in range(2):
        outcome = await push_once(service, one, journal=journal, patience=1.0)

    assert outcome.status is (OutcomeStatus.IN_DOUBT if is_lost else OutcomeStatus.SUCCESS)
    assert len([call for call in service.log if call.method != "GET"]) == 1
    assert len(await on_record(journal)) == 1
    with pytest.raises(ConfigurationError, match="record_id"):
        await push_once(service, PushRequest("c-0", "books", "bills", None, **what))


class Raises(dict[str, Any]):
    """A record of which the own code fails."""

    def items(self) -> Any:
        raise KeyError("lines")


WRONG: list[dict[str, Any]] = [
    *({"record": wrong} for wrong in (None, [1], "text", {"amount": float("nan")}, Raises())),
    *({"reference": wrong} for wrong in (["INV-1"], 17, "", " ", "INV-\ud800", "INV\0")),
    *({"natural_key": wrong} for wrong in ("", 5)),
    {"company_id": "../x"},
]


@pytest.mark.parametrize("wrong", WRONG, ids=ascii)
async def test_what_cannot_be_right_stops_its_own_record_alone(wrong: dict[str, Any]) -> None:
    """submit() raises and names it, run() yields INVALID and goes on; neither sends it."""
    service, asked, (name,) = Service(), evolve(request(), **wrong), wrong
    error, says = (InvalidRecord, None) if name == "record" else (ConfigurationError, name)
    async with coordinator(service) as pushes:
        with pytest.raises(error, match=says):
            await pushes.submit(asked)
        outcomes = await collect(pushes.run([asked, request()], ordered=True))

    assert [one.status for one in outcomes] == [OutcomeStatus.INVALID, OutcomeStatus.SUCCESS]
    assert service.count("push") == 1


async def test_what_is_no_request_is_refused_at_once() -> None:
    """submit() and run() say what they take, and the block can be left as ever."""
    service, wrong = Service(), cast("Any", "INV-1")
    async with coordinator(service) as pushes:
        with pytest.raises(ConfigurationError, match="takes PushRequest values"):
            await pushes.submit(wrong)
        with pytest.raises(ConfigurationError, match="takes PushRequest values"):
            await collect(pushes.run([wrong]))

    assert not service.log


def with_options() -> Service:
    """Return a service that takes even numbers."""
    even = [{"value": str(number), "type": "Number"} for number in (0, 2)]
    number = {"type": "Number", "displayName": "", "description": "", "required": True}
    options = {"type": "Object", "properties": {"number": {**number, "options": even}}}
    return Service(answer=lambda one: Answer.of(options) if one.kind == "options" else None)


async def test_a_record_that_fails_the_check_is_not_sent() -> None:
    """What the push options do not allow is INVALID, with the problems."""
    service = with_options()
    outcomes = await run_once(service, requests(4), check="options")

    assert [one.status for one in outcomes] == [OutcomeStatus.SUCCESS, OutcomeStatus.INVALID] * 2
    assert isinstance(outcomes[1].error, InvalidRecord)
    assert [one.code for one in outcomes[1].error.problems] == [ProblemCode.NOT_A_CHOICE]
    assert service.count("push") == 2


async def test_a_record_is_checked_though_nobody_waits_for_its_turn() -> None:
    """Its caller was cancelled; it goes on, but not unchecked."""
    service = with_options()
    async with coordinator(service, check="options") as pushes:
        _, odd = [asyncio.create_task(pushes.submit(one)) for one in requests(2)]
        await asyncio.sleep(0.01)
        odd.cancel()

    assert pushes.progress.outcomes == {OutcomeStatus.SUCCESS: 1, OutcomeStatus.INVALID: 1}
    assert service.count("push") == 1


@pytest.mark.parametrize("what", [{"delete": True}, {"attach": ("a.txt", b"a")}], ids=str)
async def test_what_has_no_record_is_not_checked(what: dict[str, Any]) -> None:
    """A delete and an attachment are sent as they are."""
    asked = PushRequest("c-0", "books", "invoices", None, record_id="r-1", **what)
    service = Service()
    service.answer = lambda one: (
        Answer.of(service.shown(service.add(), one.at)) if one.kind == "push" else None
    )
    (outcome,) = await run_once(service, [asked], check="options")

    assert outcome.status is OutcomeStatus.SUCCESS
    assert not service.count("options")


async def test_a_check_that_breaks_stops_its_own_record_alone() -> None:
    """A middleware may raise anything, there as anywhere."""
    breaks = [RuntimeError("of a middleware"), None]
    broken = breaking(lambda what: breaks.pop(0) if "options" in what and breaks else None)
    outcomes = await run_once(Service(), requests(2), check="options", middlewares=[broken])

    assert [one.status for one in outcomes] == [OutcomeStatus.REJECTED, OutcomeStatus.SUCCESS]
    assert "of a middleware" in str(outcomes[0].error)


@pytest.mark.parametrize(
    "wrong",
    [
        {"raise_on": "never"},
        {"total": -1},
        *({"wait": wait} for wait in ("5", -1, float("nan"), float("inf"), True)),
    ],
    ids=str,
)
async def test_a_mistake_in_the_call_costs_no_record(wrong: dict[str, Any]) -> None:
    """It is refused before anything is read or sent."""
    service, (name,) = Service(), wrong
    async with coordinator(service) as pushes:
        with pytest.raises(ConfigurationError, match=f"^{name} must be "):
            pushes.run(requests(3), **wrong)
        if name == "wait":
            with pytest.raises(ConfigurationError, match=r"^wait must be "):
                await pushes.submit(request(), **wrong)

    assert not service.log


async def test_progress_counts_by_state_and_says_how_long() -> None:
    """What is open, what ended how, a rate, and the time left if lengths are known; runs add up."""
    async with coordinator(Service(lambda record: 10.0 + record["number"] / 10)) as pushes:
        run = asyncio.ensure_future(collect(pushes.run(requests(100))))
        await asyncio.sleep(15)
        half = await asyncio.to_thread(lambda: pushes.progress)  # where there is no loop
        await run
        done = pushes.progress
        await collect(pushes.run(iter(requests(2)), total=3))
        assert pushes.progress.total == 103
        await collect(pushes.run(iter(requests(2))))
        unknown = pushes.progress

    assert half.total == done.total == 100
    assert half.open + half.ended == 100
    assert half.rate > 0
    assert half.eta == pytest.approx((100 - half.ended) / half.rate)
    assert done.outcomes == {OutcomeStatus.SUCCESS: 100}
    assert done.eta == 0
    assert unknown.total is None is unknown.eta


@pytest.mark.parametrize("bug", [RuntimeError("a listener's bug"), asyncio.CancelledError()])
async def test_events_tell_of_each_push_and_may_fail(
    caplog: pytest.LogCaptureFixture, bug: BaseException
) -> None:
    """It hears "sent" and "ended" of every push; its errors stop nothing, and are told once."""
    heard: list[str] = []

    def listen(event: PushEvent) -> None:
        heard.append(event.what)
        raise bug

    await run_once(Service(), requests(3), on_event=listen)

    assert Counter(heard) == {"sent": 3, "ended": 3}
    assert sum("on_event" in message for message in caplog.messages) == 1


async def test_nothing_is_logged_of_records(caplog: pytest.LogCaptureFixture) -> None:
    """No record's content appears in the log at INFO or above."""
    caplog.set_level("INFO")
    service = fated("lost", status=lambda _: "Failed")
    await push_once(service, PushRequest("c", "b", "invoices", {"number": 0, "iban": "SECRET"}))

    assert "SECRET" not in caplog.text


def test_a_run_on_every_loop(run_on_loop: RunOnLoop) -> None:
    """asyncio's loop, uvloop and eager tasks change nothing."""
    service = Service(lambda _: 0.05, latency=0.001)
    outcomes = run_on_loop(run_once(service, requests(100, companies=5)))

    assert numbers(outcomes) == list(range(100))
    assert statuses(outcomes) == {OutcomeStatus.SUCCESS: 100}
