"""Promises about lost answers: searched for, never sent again unasked, decided by the caller."""

from __future__ import annotations

import asyncio
import gc
import time
from collections import Counter
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import replace
from typing import Any

import pytest
from attrs import evolve

from integration_sdk import Coordinator, Dialect, OutcomeStatus, Push, PushEvent, PushRequest
from integration_sdk._store.sql import Statement
from integration_sdk.errors import (
    AccountExpired,
    ClientClosed,
    ConfigurationError,
    JournalError,
    PushInDoubt,
    TooManyRequests,
)
from tests.support.push_support import (
    Fate,
    Journal,
    breaking,
    collect,
    coordinator,
    fated,
    named,
    on_record,
    push_once,
    pushed,
    request,
    requests,
    statuses,
)
from tests.support.virtual_service import Service, refusal

pytestmark = pytest.mark.virtual_time
PUBLISHED = Dialect.published()
EXPIRED = refusal(402, "Account expired")
SUCCESS, IN_DOUBT = OutcomeStatus.SUCCESS, OutcomeStatus.IN_DOUBT
NUMBERED, SECOND = [named(number, natural_key="number") for number in (1, 2)]


@asynccontextmanager
async def doubted(
    service: Service, one: PushRequest | None = None, **options: Any
) -> AsyncIterator[tuple[Coordinator, Push]]:
    """Open a coordinator with a push that is in doubt."""
    async with coordinator(service, **{"patience": 2.0, **options}) as pushes:
        push = await pushes.submit(one or named())
        assert (await push).status is IN_DOUBT
        yield pushes, push


async def test_a_lost_answer_is_found_in_the_list(caplog: pytest.LogCaptureFixture) -> None:
    """A push whose answer was lost is not sent again; the list shows what became of it."""
    caplog.set_level("INFO", "integration_sdk.pushes")
    service = fated("lost")
    async with coordinator(service) as pushes:
        push = await pushes.submit(named())
        assert push.key is None
        outcome = await push

    assert (outcome.status, outcome.key) == (SUCCESS, *service.by_key)
    assert service.count("push") == 1
    begun, found = (record.getMessage() for record in caplog.records)
    name = f"invoices 'INV-1' of company c-0 (intent {push.intent})"
    assert begun.startswith(f"the answer to {name} was lost; the company's pushes are searched")
    assert found == f"{name} was found: it is push {push.key}"


async def test_a_lost_push_is_told_from_others_though_lists_have_no_records() -> None:
    """Pushes that have ended are then read one by one, for what they hold."""
    service = fated("lost", takes=lambda _: 0.0, list_has_data=False)
    async with coordinator(service) as pushes:
        push = await pushes.submit(request(5, natural_key="number"))
        service.add(record={"number": 6})
        outcome = await push

    assert outcome.status is SUCCESS
    assert service.by_key[str(outcome.key)].record == {"number": 5}


async def test_a_push_in_doubt_that_turns_up_late_is_told() -> None:
    """It is found within ten minutes and followed, and its callers are told once."""
    service, events = fated("swallowed"), list[PushEvent]()
    async with doubted(service, journal=Journal(), on_event=events.append) as (pushes, push):
        late = service.add(record={"number": 1})
        await asyncio.sleep(620)
        assert (await pushed(pushes, named())).status is SUCCESS

    assert [event.push for event in events if event.what == "found"] == [push]
    assert push.key == late.key
    assert push.operation
    assert push.operation.is_final


@pytest.mark.parametrize("has_left", [False, True])
async def test_what_breaks_a_push_leaves_no_wrong_word_about_it(
    caplog: pytest.LogCaptureFixture, *, has_left: bool
) -> None:
    """What a shared rate raises before the push leaves is no doubt; what a middleware does is."""
    bug, service, journal = ValueError("a bug of the caller's"), Service(), Journal()

    class Broken:
        async def acquire(self) -> None:
            if service.count("list"):
                raise bug

        def paused(self, seconds: float) -> None: ...

    middleware = breaking(lambda request: bug if "POST" in request else None)
    options: dict[str, Any] = {"middlewares": [middleware]} if has_left else {"rate": Broken()}
    outcome = await push_once(service, journal=journal, **options, patience=5.0)

    assert outcome.status is (IN_DOUBT if has_left else OutcomeStatus.REJECTED)
    assert [row.state for row in await on_record(journal)] == ["DOUBT"] * has_left
    assert "a bug of the caller's" in caplog.text


DECISIONS = ["resend", "abandon", "bind"]


def deciding(service: Service, decision: str) -> dict[str, Any]:
    """Return what `decide` takes; what may be bound is a push of another record."""
    if decision == "bind":
        return {"bind": service.add(record={"another": 1}).key}
    return {"decision": decision}


@pytest.mark.parametrize("decision", DECISIONS)
@pytest.mark.parametrize("later", [False, True], ids=["same run", "later run"])
async def test_a_doubt_is_decided(journal: Any, later: bool, decision: str) -> None:
    """On record and for good, while recovery searches as well; who shares it shares its end."""
    service = fated("swallowed", takes=lambda _: 60.0)
    async with coordinator(service, journal=journal, patience=2.0) as pushes:
        outcome = await pushed(pushes, named())
        intent = str(getattr(outcome.error, "intent", None))
        if not later:
            await decide(pushes, service, intent, decision)
    async with coordinator(service, journal=journal, patience=2.0) as pushes:
        if later:
            await decide(pushes, service, intent, decision)
        told = await pushed(pushes, named())
        assert not [push for push in pushes.in_doubt if push.outcome is None]

    is_known = decision != "abandon"
    assert told.status is (SUCCESS if is_known else IN_DOUBT)
    assert ("abandoned" in str(told.error)) is not is_known
    assert service.count("push") == 1 + (decision == "resend")
    assert [row.state for row in await on_record(journal)] == ["DONE"]


async def decide(pushes: Any, service: Service, intent: str, decision: str) -> None:
    goes_on = await pushes.decide(intent, **deciding(service, decision))
    if goes_on is None:
        assert decision == "abandon"
        return
    hasty, patient = await asyncio.gather(
        pushed(pushes, named(), wait=5.0), pushed(pushes, named())
    )
    assert (hasty.status, patient.status) == (OutcomeStatus.PENDING, SUCCESS)
    assert (await goes_on).key == patient.key


@pytest.mark.parametrize("second", ["resend", "abandon"])
@pytest.mark.parametrize("one", [request(1), named(1)], ids=["unnamed", "named"])
async def test_a_doubt_is_decided_once(second: Any, one: Any) -> None:
    """Of two decisions at the same time the second is refused, and nothing is sent for it."""
    service = fated("swallowed")
    async with doubted(service, one, journal=Journal()) as (pushes, push):
        again, refused = await asyncio.gather(
            pushes.decide(str(push.intent), "resend"),
            pushes.decide(str(push.intent), second),
            return_exceptions=True,
        )
        assert isinstance(refused, ConfigurationError)
        assert isinstance(again, Push)
        assert (await again).status is SUCCESS
        assert not pushes.in_doubt

    assert service.count("push") == 2


async def test_a_decision_is_carried_out_though_its_caller_is_cancelled() -> None:
    """What is sent again is sent to its end; the block can be left, and has its outcome."""
    service, journal, events = fated("swallowed"), Journal(), list[PushEvent]()
    async with doubted(service, journal=journal, on_event=events.append) as (pushes, push):
        journal.before_write = lambda _: asyncio.sleep(30)
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(5):
                await pushes.decide(str(push.intent), "resend")

    told = [event.push.outcome for event in events if event.what == "ended"]
    assert [one.status for one in told if one] == [IN_DOUBT, SUCCESS]
    assert service.count("push") == 2


async def test_a_decision_may_fail_when_nobody_waits_for_it(
    caplog: pytest.LogCaptureFixture,
) -> None:
    """Its caller was cancelled: it has no effect, and is logged, but as no error of a task."""

    async def slow_and_full(_: object) -> None:
        await asyncio.sleep(30)
        raise JournalError("full")

    errors, journal = list[object](), Journal()
    asyncio.get_running_loop().set_exception_handler(lambda _, error: errors.append(error))
    async with doubted(fated("swallowed"), journal=journal) as (pushes, push):
        journal.before_write = slow_and_full
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(5):
                await pushes.decide(str(push.intent), "abandon")
        await asyncio.sleep(60)
        gc.collect()
    assert not errors
    assert "a decision failed: full" in caplog.text


@pytest.mark.parametrize("natural_key", [None, "number"])
async def test_a_decision_is_sent_once_however_slow_the_database_is(natural_key: Any) -> None:
    """The search goes on, and meets on record what the decider has not been answered yet."""
    service, journal = fated("swallowed"), Journal(shared=True)
    async with doubted(service, named(natural_key=natural_key), journal=journal) as (pushes, push):
        journal.after_write = lambda rows: asyncio.sleep(300 * (rows[0].state == "QUEUED"))
        goes_on = await pushes.decide(str(push.intent), "resend")
        assert (await goes_on).status is SUCCESS
        assert pushes.recovered == ()

    assert service.count("push") == 2


@pytest.mark.parametrize("in_doubt", ["ask", "resend"])
async def test_a_decision_that_is_not_recorded_sends_nothing(in_doubt: str) -> None:
    """On record or not at all: a full disk leaves the push in doubt, and holds up no other."""

    def full(rows: Any) -> None:
        if rows[0].decision:
            raise JournalError("full")

    service, journal = fated("swallowed"), Journal()
    journal.before_write = full
    options: dict[str, Any] = {"journal": journal, "in_doubt": in_doubt}
    async with doubted(service, NUMBERED, **options) as (pushes, push):
        if in_doubt == "ask":
            resends = [pushes.decide(str(push.intent), "resend") for _ in range(3)]
            told = await asyncio.gather(*resends, return_exceptions=True)
            assert {type(one) for one in told} == {JournalError}

    assert service.count("push") == 1


@pytest.mark.parametrize("decision", DECISIONS)
async def test_only_what_is_in_doubt_can_be_decided(decision: str) -> None:
    """Not what nobody knows, what was found meanwhile, or anything once the block was left."""
    service, decided = fated("swallowed", takes=lambda _: 300.0), deciding(Service(), decision)
    async with coordinator(service, exclusive=True) as pushes:
        with pytest.raises(ConfigurationError, match="nobody"):
            await pushes.decide("nobody", **decided)
        assert not service.log
    async with doubted(service, request(1), exclusive=True) as (pushes, push):
        service.add(record={"number": 1})
        await asyncio.sleep(100)
        with pytest.raises(ConfigurationError, match="only about a push that is IN_DOUBT"):
            await pushes.decide(str(push.intent), **decided)
    with pytest.raises(ClientClosed):
        await pushes.decide(str(push.intent), **decided)


@pytest.mark.parametrize("first", ["claimed", "read"])
@pytest.mark.parametrize("decision", DECISIONS)
async def test_a_doubt_is_decided_while_it_is_taken_over(decision: str, first: str) -> None:
    """Whichever comes first: who waits for what was taken over has the end that was decided."""
    service, dead = fated("swallowed"), Journal(shared=True)
    journal, is_claimed = Journal(shared=True, beside=dead), asyncio.Event()

    async def before_write(_: Any) -> None:
        await is_claimed.wait()

    async def after_write(rows: Any) -> None:
        is_claimed.set()
        await asyncio.sleep(0.2 if rows[0].decision else 0.1)  # so the answers cross

    journal.before_write, journal.after_write = before_write, after_write
    async with coordinator(service, journal=journal) as pushes:
        async with doubted(service, journal=dead) as (_, doubt):
            decided: Any = pushes.decide(str(doubt.intent), **deciding(service, decision))
            if first == "read":
                decided = asyncio.create_task(decided)
                await asyncio.sleep(1)
        await is_claimed.wait()
        goes_on = await decided
        assert not pushes.in_doubt
        (taken_over,) = pushes.recovered
        outcome = await taken_over

    if goes_on is None:
        assert "abandoned" in str(outcome.error)
    else:
        assert (outcome.status, outcome.key) == (SUCCESS, (await goes_on).key)
    assert service.count("push") == 1 + (decision == "resend")
    assert [row.state for row in await on_record(dead)] == ["DONE"]


@pytest.mark.parametrize("decision", DECISIONS)
async def test_a_doubt_of_a_worker_that_lives_is_decided_here(decision: str) -> None:
    """Who decides goes on with the push; the other worker lets go of it, and waits with us."""
    service, theirs = fated("swallowed"), Journal(shared=True)
    async with doubted(service, journal=theirs) as (before, doubt):
        async with coordinator(service, journal=Journal(shared=True, beside=theirs)) as pushes:
            goes_on = await pushes.decide(str(doubt.intent), **deciding(service, decision))
            assert goes_on is None or (await goes_on).status is SUCCESS
            assert not pushes.recovered
        await asyncio.sleep(6)  # its next sign of life, not its next listing
        assert not before.in_doubt
        found = await before.find("INV-1")
        assert found is not None
        assert found.outcome is not None
        assert (found.outcome.status is SUCCESS) is (goes_on is not None)

    assert service.count("push") == 1 + (decision == "resend")
    assert [row.state for row in await on_record(theirs)] == ["DONE"]


@pytest.mark.parametrize("decision", DECISIONS)
async def test_a_decider_who_is_cancelled_leaves_no_doubt_to_nobody(decision: str) -> None:
    """As it takes the push from another worker: it is decided, or searched for on."""
    service, theirs = fated("swallowed"), Journal(shared=True)
    mine = Journal(shared=True, beside=theirs)
    mine.before_write = lambda _: asyncio.sleep(2)
    decided = deciding(service, decision) if decision != "bind" else {"bind": "no-such-push"}
    async with (
        doubted(service, NUMBERED, journal=theirs) as (_, push),
        coordinator(service, journal=mine) as pushes,
    ):
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(1):
                await pushes.decide(str(push.intent), **decided)
        await asyncio.sleep(10)
        service.add(record={"number": 1})
        await asyncio.sleep(1000)
    assert [row.state for row in await on_record(theirs)] == ["DONE"]


async def test_nobody_looks_for_what_has_its_outcome(monkeypatch: pytest.MonkeyPatch) -> None:
    """Another worker has decided about it, and its push takes an hour: nobody here waits for it."""

    def counted(work: Sequence[Statement]) -> list[list[Any]]:
        calls.append(work)
        return execute(work)

    service, theirs = fated("swallowed", takes=lambda _: 3600.0), Journal(shared=True)
    mine = Journal(shared=True, beside=theirs)
    async with (
        doubted(service, journal=theirs, leave="detach") as (before, push),
        coordinator(service, journal=mine, leave="detach") as pushes,
    ):
        await pushes.decide(str(push.intent), "resend")
        await asyncio.sleep(6)  # the next sign of life
        assert not before.in_doubt
        execute, calls = theirs.execute, list[object]()
        monkeypatch.setattr(theirs, "execute", counted)
        await asyncio.sleep(60)
    assert len(calls) < 30  # two for each sign of life


async def test_a_push_is_bound_to_a_push_of_its_own() -> None:
    """A decision is final, so the key is looked at before it is made."""
    service = fated(None, None, "swallowed", status=lambda record: record.get("ends", "Success"))
    async with coordinator(service, journal=Journal(), patience=2.0) as pushes:
        timed_out = evolve(named(), record={"number": 1, "ends": "TimedOut"})
        earlier = await pushed(pushes, timed_out)
        other = await pushes.submit(request(2))
        intent = str((await pushes.find("INV-1")).intent)  # type: ignore[union-attr]  # there is one
        push = await pushes.decide(intent, "resend", record={"number": 3})
        assert (await push).status is IN_DOUBT
        wrong: list[tuple[Any, str]] = [
            ("../keys", "bind"),
            (5, "bind"),
            ("no-such-push", "cannot be read"),
            (earlier.key, "earlier attempt"),
            (other.key, "belongs to another intent"),
            (service.add(connection="other").key, "another connection"),
        ]
        for key, why in wrong:
            with pytest.raises(ConfigurationError, match=why):
                await pushes.decide(intent, bind=key)
        for neither in ({"decision": "never"}, {}, {"decision": "abandon", "bind": "key"}):
            with pytest.raises(ConfigurationError, match=r"pass \"resend\" or"):
                await pushes.decide(intent, **neither)
        assert pushes.in_doubt == (push,)
        held = service.add(record={"number": 4.5})
        await asyncio.sleep(60)  # it ends
        before = service.count()
        bound = await pushes.decide(intent, bind=held.key)
        assert ((await bound).status, bound.key) == (SUCCESS, held.key)
        assert service.count() == before + 1  # to look at it
        assert bound.operation
        assert bound.operation.data
        assert isinstance(bound.operation.data["number"], float)  # as the client reads numbers


@pytest.mark.parametrize("kept", [False, True])
async def test_a_key_is_bound_to_one_push(kept: bool) -> None:
    """Also where two are decided at the same time."""
    service, journal = fated(ever="swallowed"), Journal() if kept else None
    async with coordinator(service, journal=journal, patience=2.0) as pushes:
        doubts = [await pushes.submit(one) for one in requests(2)]
        await asyncio.gather(*doubts)
        key = service.add(record={"number": 2}).key
        bind = [pushes.decide(str(one.intent), bind=key) for one in doubts]
        told = await asyncio.gather(*bind, return_exceptions=True)
        assert [type(one) for one in told] == [Push, ConfigurationError]
        assert "belongs to another intent" in str(told[1])


async def test_a_push_is_bound_while_a_listing_is_judged() -> None:
    """A listing that suggests otherwise while the decision is being recorded changes nothing."""
    service, journal = fated("swallowed"), Journal()
    async with doubted(service, journal=journal) as (pushes, push):
        held = service.add(record={"number": 2})
        journal.before_write = lambda _: asyncio.sleep(100)
        bound = await pushes.decide(str(push.intent), bind=held.key)

    assert bound.outcome
    assert (bound.outcome.status, bound.key) == (SUCCESS, held.key)


async def test_a_push_is_decided_while_a_judgement_is_recorded() -> None:
    """What a listing has suggested is on its way to the record: the decision is about that."""
    service, journal = fated("swallowed"), Journal()
    async with doubted(service, journal=journal) as (pushes, push):
        service.add(record={"number": 2})
        is_judged = asyncio.Event()

        def judged(_: Any) -> Any:
            is_judged.set()
            return asyncio.sleep(100)

        journal.before_write = judged
        await is_judged.wait()
        journal.before_write = lambda _: None
        await pushes.decide(str(push.intent), "abandon")
        assert not pushes.in_doubt


@pytest.mark.parametrize("journal", [True, False])
async def test_what_never_arrived_is_sent_once_more(journal: bool) -> None:
    """The push that was submitted succeeds, as the one push that there is; all on record."""
    service, kept, told = fated("swallowed"), Journal() if journal else None, list[PushEvent]()
    options: dict[str, Any] = {"in_doubt": "resend", "on_event": told.append}
    outcome = await push_once(service, NUMBERED, journal=kept, **options)

    assert outcome.status is SUCCESS
    assert list(service.by_key) == [outcome.key]
    assert service.count("push") == 2
    assert [event.what for event in told] == ["doubted", "sent", "ended"]
    if kept:
        (row,) = await on_record(kept)
        assert (row.result, row.decision, row.key) == ("ENDED", "resend", outcome.key)


@pytest.mark.parametrize(
    ("asked", "in_doubt", "fates", "sent"),
    [
        (NUMBERED, "ask", ["swallowed"], 1),
        (evolve(NUMBERED, natural_key=None), "resend", ["swallowed"], 1),
        (evolve(NUMBERED, record_id="r-1"), "resend", ["swallowed"], 1),
        (NUMBERED, "resend", ["swallowed", refusal(400, "no")], 2),
        (NUMBERED, "resend", ["swallowed"] * 100, 5),
    ],
    ids=["by default", "no natural key", "an update", "then refused", "a hole"],
)
async def test_what_may_exist_stays_in_doubt(
    asked: Any, in_doubt: Any, fates: list[Fate], sent: int, caplog: pytest.LogCaptureFixture
) -> None:
    """It is sent again only if that is chosen, if it could be recognised, and not for ever."""
    service = fated(*fates)
    async with coordinator(service, in_doubt=in_doubt) as pushes:
        outcome = await pushed(pushes, asked)
        assert [push.outcome for push in pushes.in_doubt] == [outcome]

    assert outcome.status is IN_DOUBT
    assert isinstance(outcome.error, PushInDoubt)
    assert service.count("push") == sent
    assert sent > 1 or caplog.messages[1:] == [str(outcome.error)]
    assert sent != 2 or "400 no" in str(outcome.error)


async def test_an_unexplained_push_of_the_lane_keeps_it_in_doubt() -> None:
    """It may be this record, rewritten by the platform."""
    service = fated("swallowed")
    async with coordinator(service, in_doubt="resend") as pushes:
        push = await pushes.submit(NUMBERED)
        other = service.add(record={"number": "rewritten"})
        outcome = await push
        assert isinstance(outcome.error, PushInDoubt)
        assert outcome.error.candidates == (other.key,)
        assert f"It may be push {other.key}. " in str(outcome.error)

    assert service.count("push") == 1


async def test_a_wait_that_has_ended_sends_nothing_more() -> None:
    """Whoever was told IN_DOUBT may have acted on it."""
    service = fated("swallowed")
    async with coordinator(service, in_doubt="resend") as pushes:
        assert (await pushed(pushes, NUMBERED, wait=1)).status is IN_DOUBT
        service.takes = lambda _: 120.0
        assert (await pushed(pushes, SECOND)).status is SUCCESS  # long after the search

    assert service.count("push") == 2


async def test_a_run_that_has_stopped_sends_nothing_again() -> None:
    """The doubt stays a doubt: REJECTED would say that there is no such push."""
    service = fated("swallowed", EXPIRED)
    async with coordinator(service, in_doubt="resend") as pushes:
        push = await pushes.submit(NUMBERED)
        with pytest.raises(AccountExpired):
            await pushes.submit(SECOND)
        assert (await push).status is IN_DOUBT

    assert service.count("push") == 2


def keys(service: Service) -> list[str | None]:
    return [one.headers.get("Idempotency-Key") for one in service.log if one.kind == "push"]


@pytest.mark.parametrize(("status", "different"), [(429, 1), (503, 2)])
async def test_an_idempotency_key_is_kept_over_transmissions(status: int, different: int) -> None:
    """A repeat carries the same; after a 503, which the service would repeat, another."""
    service = fated(refusal(status))
    outcome = await push_once(service, journal=Journal(), dialect=PUBLISHED)

    assert outcome.status is SUCCESS
    assert len(keys(service)) == 2
    assert len(set(keys(service))) == different
    assert None not in keys(service)


@pytest.mark.parametrize(
    ("record_id", "times"),
    [pytest.param(None, 5, id="a create"), pytest.param("r", 1, id="an update")],
)
async def test_only_what_carries_an_idempotency_key_is_repeated_in_doubt(
    record_id: str | None, times: int
) -> None:
    """The service honours keys of creates alone: a lost update is searched for instead."""
    service = fated(ever="swallowed")
    one = request(1, record_id=record_id)
    async with doubted(service, one, journal=Journal(), dialect=PUBLISHED) as (pushes, push):
        assert service.count("push") == times
        await pushes.decide(str(push.intent), "resend")

    assert service.count("push") == 2 * times
    assert all((key is not None) is (record_id is None) for key in keys(service))


@pytest.mark.parametrize(
    ("wall", "takes", "times"),
    [(0.0, 1.0, 2), (8 * 3600.0, 1.0, 1), (-8 * 3600.0, 1.0, 2), (-8 * 3600.0, 4000.0, 1)],
)
async def test_a_key_that_the_service_has_forgotten_is_not_relied_on(
    wall: float, takes: float, times: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As where a laptop was closed, or the wall clock put back: there is no second invoice."""
    service, loop = fated("lost", latency=takes), asyncio.get_running_loop()
    monkeypatch.setattr(time, "time", lambda: loop.time() + wall * (service.count("push") > 0))
    patient: dict[str, Any] = {"timeout": None, "read_timeout": None}
    await push_once(service, request(0, natural_key="number"), dialect=PUBLISHED, **patient)

    assert service.count("push") == times


async def test_a_push_that_gets_no_turn_to_be_repeated_is_searched_for() -> None:
    """The service asks another push to wait for longer than we would."""
    service = fated("swallowed", refusal(429, Retry_After=3600))
    async with coordinator(service, dialect=PUBLISHED, max_pause=10.0, patience=5.0) as pushes:
        first = asyncio.create_task(pushes.submit(request(1)))
        await asyncio.sleep(0.01)
        with pytest.raises(TooManyRequests):
            await pushes.submit(request(2))
        assert [one.intent for one in pushes.in_doubt] == [(await first).intent]
        await asyncio.sleep(4000)
        assert (await (await first)).status is IN_DOUBT

    assert service.count("push") == 2
    assert service.count("list") > 2


async def test_a_push_that_is_searched_for_is_not_repeated() -> None:
    """What stops all comes before its replay is due, and has passed by then."""
    service = fated("lost", EXPIRED)
    async with coordinator(service, dialect=PUBLISHED) as pushes:
        first = asyncio.create_task(pushed(pushes, request(0, companies=2, natural_key="number")))
        await asyncio.sleep(0.1)
        with pytest.raises(AccountExpired):
            await collect(pushes.run([request(1, companies=2)]))
        (renewed,) = await collect(pushes.run([request(3, companies=2)]))
        assert [renewed.status, (await first).status] == [SUCCESS, SUCCESS]

    assert service.count("push") == 3


async def test_a_service_of_another_dialect_gets_no_replays() -> None:
    """Idempotency keys that it does not know make no push twice."""
    fates: list[Fate] = ["lost", None, None] * 20
    service = fated(*fates, takes=lambda _: 0.0)
    async with service.client(dialect=PUBLISHED) as client, client.coordinator() as pushes:
        outcomes = await collect(pushes.run(requests(60)))

    made = Counter(held.record["number"] for held in service.by_key.values())
    assert set(made.values()) == {1}
    assert statuses(outcomes).keys() <= {SUCCESS, IN_DOUBT}


@pytest.mark.parametrize("has_journal", [True, False])
async def test_a_push_that_gets_no_turn_to_be_resent_stays_in_doubt(*, has_journal: bool) -> None:
    """It is searched for as before, and found."""
    service = fated("swallowed", refusal(429, Retry_After=3600))
    options: dict[str, Any] = {"journal": Journal() if has_journal else None, "max_pause": 10.0}
    async with doubted(service, NUMBERED, **options) as (pushes, push):
        with pytest.raises(TooManyRequests):
            await pushes.submit(SECOND)
        again = await pushes.decide(str(push.intent), "resend")
        assert (await again).status is IN_DOUBT
        assert [one.intent for one in pushes.in_doubt] == [push.intent]
        service.add(record={"number": 1})  # the first transmission arrives late
        await asyncio.sleep(5000)
        assert not pushes.in_doubt


async def test_a_decision_ends_what_was_planned_before_it() -> None:
    """A resent push was to be sent later, as what refuses all came; it is resent at once."""
    slow = replace(EXPIRED, seconds=2.0)
    service = fated("swallowed", slow, refusal(503, Retry_After=20))
    async with doubted(service, NUMBERED, journal=(journal := Journal())) as (pushes, push):
        other = asyncio.create_task(pushes.submit(request(1, companies=2)))
        await asyncio.sleep(0.2)
        await pushes.decide(str(push.intent), "resend")
        with pytest.raises(AccountExpired):
            await other
        await asyncio.sleep(0.1)
        service.latency = 3.0
        journal.before_write = lambda rows: asyncio.sleep(3 * (rows[0].state == "SENDING"))
        again = await pushes.decide(str(push.intent), "resend")
        assert (await again).status is SUCCESS

    assert (await on_record(journal))[0].evidence == "E3"


async def test_what_has_refused_all_may_have_passed_for_a_decision() -> None:
    """A push that was resent is sent, as one that is submitted; or it stays in doubt."""
    service = fated("swallowed", EXPIRED)
    async with doubted(service, NUMBERED) as (pushes, push):
        with pytest.raises(AccountExpired):
            await pushes.submit(request(2))
        again = await pushes.decide(str(push.intent), "resend")
        assert (await again).status is SUCCESS

    assert service.count("push") == 3
