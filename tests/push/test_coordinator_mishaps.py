"""Promises of a coordinator when something beside the service goes wrong, or somebody leaves."""

from __future__ import annotations

import asyncio
import math
import time
from collections import Counter
from collections.abc import AsyncIterator, Iterator, Sequence
from contextlib import aclosing
from typing import Any

import pytest

from integration_sdk import Push, PushEvent
from integration_sdk._outcome import PushOutcome
from integration_sdk._store.row import Row, State
from integration_sdk.dialect import Dialect
from integration_sdk.errors import (
    AccountExpired,
    ClientClosed,
    ConfigurationError,
    JournalError,
    NotSent,
    TooManyRequests,
)
from integration_sdk.models import OutcomeStatus, PushRequest
from tests.support.push_support import (
    DOCUMENT,
    Connect,
    Journal,
    breaking,
    collect,
    coordinator,
    numbers,
    request,
    requests,
    swallowed,
)
from tests.support.virtual_service import Answer, Asked, Held, Service, no_answer, refusal

pytestmark = pytest.mark.virtual_time
LISTS = "GET /companies/c-0/push"


@pytest.fixture
def journal() -> Journal:
    return Journal()


def statuses(outcomes: list[PushOutcome]) -> Counter[OutcomeStatus]:
    return Counter(outcome.status for outcome in outcomes)


# Runs and places


@pytest.mark.parametrize("ordered", [False, True])
async def test_a_run_leaves_places_for_what_its_loop_submits(ordered: bool) -> None:
    """Outcomes that nobody has taken yet hold no place: a correction goes out at once."""
    service = Service(takes=lambda _: 1.0)
    corrected: list[Push] = []
    async with coordinator(service, max_open=4) as pushes:
        async for outcome in pushes.run(requests(40), ordered=ordered):
            await asyncio.sleep(10)
            corrected.append(await pushes.submit(outcome.request))

    assert len(corrected) == 40
    assert service.count("push") == 80


def counted(count: int, pulled: list[int]) -> Iterator[PushRequest]:
    for number in range(count):
        pulled.append(number)
        yield request(number)


async def test_outcomes_that_nobody_takes_stop_the_run() -> None:
    """A loop that stands still has no more than ``max_open`` pulled ahead of it."""
    pulled: list[int] = []
    async with coordinator(Service(), max_open=4) as pushes:
        outcomes = pushes.run(counted(100, pulled))
        await anext(outcomes)
        await asyncio.sleep(1000)
        assert len(pulled) == 5
        assert len([outcome async for outcome in outcomes]) == 99


@pytest.mark.parametrize("leave", ["drain", "detach"])
async def test_a_run_that_is_kept_does_not_hold_the_block_open(leave: str) -> None:
    """The end of the block stops it pulling; gone on with, it says that it was stopped."""
    pulled: list[int] = []
    service = Service(takes=lambda _: 1.0)
    async with asyncio.timeout(100), coordinator(service, max_open=4, leave=leave) as pushes:
        outcomes = pushes.run(counted(30, pulled))
        await anext(outcomes)
        await asyncio.sleep(10)

    rest: list[PushOutcome] = []
    with pytest.raises(ClientClosed, match="rest of the input"):
        await collect(outcomes, rest)
    assert len(pulled) == 1 + len(rest) < 30
    assert service.count("push") == len(pulled)


@pytest.mark.parametrize("ordered", [False, True])
async def test_a_run_that_is_kept_goes_on_where_its_loop_was_left(ordered: bool) -> None:
    """Meanwhile it pulls no more than ``max_open`` ahead."""
    pulled: list[int] = []
    async with asyncio.timeout(100), coordinator(Service(), max_open=50) as pushes:
        outcomes = pushes.run(counted(200, pulled), ordered=ordered)
        async for _ in outcomes:
            break
        await asyncio.sleep(10)
        assert len(pulled) == 1 + 50
        assert len(await collect(outcomes)) == 200 - 1
        assert [outcome async for outcome in outcomes] == []


async def test_an_error_in_the_loop_stops_the_pulling_too() -> None:
    """However the loop is left: the traceback, which may be kept, keeps no run."""

    async def fail_at_once() -> None:
        async for _ in pushes.run(counted(1000, pulled)):
            raise ZeroDivisionError

    pulled: list[int] = []
    async with coordinator(Service(), max_open=50, leave="detach") as pushes:
        with pytest.raises(ZeroDivisionError) as caught:
            await fail_at_once()
        await asyncio.sleep(0.1)
        so_far = len(pulled)
        await asyncio.sleep(10)
        assert caught.value.__traceback__
        assert len(pulled) == so_far < 1000


async def test_a_run_is_read_step_by_step_as_well() -> None:
    """``anext()`` before a loop takes nothing from it, and ``aclosing`` ends what is left."""
    pulled: list[int] = []
    async with coordinator(Service(), max_open=50) as pushes:
        async with aclosing(pushes.run(counted(1000, pulled), ordered=True)) as outcomes:
            seen = [await anext(outcomes)]
            async for outcome in outcomes:
                seen.append(outcome)
                if len(seen) == 200:
                    break
        assert [outcome async for outcome in outcomes] == []
        assert await anext(outcomes, None) is None

    assert numbers(seen) == list(range(200))
    assert len(pulled) < 1000


async def test_a_run_that_is_left_while_all_places_are_taken_ends() -> None:
    """A sender that comes back from its push when nobody listens any more does not wait."""
    async with (
        asyncio.timeout(100),
        coordinator(Service(takes=lambda _: 1.0, latency=0.5), max_open=5) as pushes,
    ):
        async for _ in pushes.run(requests(1000)):
            break
        await asyncio.sleep(3)


async def test_an_exception_that_leaves_the_block_sends_nothing_more(connect: Connect) -> None:
    """What has not left stays here: told as NotSent, and no row says that it may exist."""
    service = Service(lambda _: 1000.0)
    client = await connect(service, per_company=1, timeout=None, read_timeout=None)

    async def left_by_an_exception() -> None:
        async with client.coordinator(on_event=events.append) as pushes:
            await pushes.submit(request())
            service.answer = lambda _: Answer(seconds=1e6)
            tasks.append(asyncio.create_task(client.company("c-0").get()))
            await asyncio.sleep(1)  # no place becomes free any more
            tasks.extend(asyncio.create_task(pushes.submit(one)) for one in requests(4))
            await asyncio.sleep(1)
            raise ZeroDivisionError

    events: list[PushEvent] = []
    tasks: list[asyncio.Task[Any]] = []
    async with asyncio.timeout(100):
        with pytest.raises(ZeroDivisionError):
            await left_by_an_exception()
    holder, *submitted = tasks
    holder.cancel()
    await asyncio.gather(*submitted)

    assert service.count("push") == 1
    told = [event.push.outcome for event in events if event.what == "ended"]
    assert Counter(type(one.error) for one in told if one) == {NotSent: 4, ClientClosed: 1}


async def test_an_account_that_has_ended_is_asked_no_more() -> None:
    """What waits for a line when the answer comes is not sent, and told why."""

    def answer(call: Asked) -> Answer | None:
        return refusal(402, "Your account has expired") if call.kind == "push" else None

    service = Service(answer=answer)
    async with coordinator(service, per_company=5) as pushes:
        told = await asyncio.gather(
            *(pushes.submit(one) for one in requests(50)), return_exceptions=True
        )

    assert {type(one) for one in told} == {AccountExpired}
    assert 0 < service.count("push") <= 5


async def test_a_client_that_is_closed_is_asked_no_more(
    connect: Connect, caplog: pytest.LogCaptureFixture
) -> None:
    """The next push says so, what is open has its outcome, and no bug is reported."""

    def answer(call: Asked) -> Answer | None:
        return no_answer() if call.kind == "push" and b'"number":1' in call.body else None

    service = Service(lambda _: 1000.0, answer=answer)
    client = await connect(service)
    async with asyncio.timeout(100), client.coordinator() as pushes:
        pending, doubted = [await pushes.submit(one) for one in requests(2)]
        await asyncio.sleep(1)
        await client.aclose()
        for _ in range(2):
            with pytest.raises(ClientClosed):
                await pushes.submit(request(2))
        assert (await pending).status is OutcomeStatus.PENDING
        with pytest.raises(ClientClosed):
            await collect(pushes.run(requests(3)))

    assert (await doubted).status is OutcomeStatus.IN_DOUBT
    assert service.count("push") == 2
    assert not [record for record in caplog.records if record.exc_info]


@pytest.mark.parametrize("wait", ["5", -1, math.nan, math.inf, True])
async def test_a_wait_that_is_no_time_is_refused_before_anything_is_sent(wait: Any) -> None:
    """A mistake in the code costs no record."""
    service = Service()
    async with coordinator(service) as pushes:
        with pytest.raises(ConfigurationError, match=r"^wait must be "):
            await pushes.submit(request(0), wait=wait)
        with pytest.raises(ConfigurationError, match=r"^wait must be "):
            pushes.run(requests(3), wait=wait)

    assert not service.log


# References


async def test_a_reference_stands_for_one_record_of_the_service(journal: Journal) -> None:
    """The same content for another record, or as a new one, is another push."""
    async with coordinator(Service(takes=lambda _: 0.0), journal=journal) as pushes:
        first = await (await pushes.submit(request(0, reference="R")))
        with pytest.raises(ConfigurationError, match="use a new reference"):
            await pushes.submit(request(0, reference="R", record_id="17"))

    assert first.status is OutcomeStatus.SUCCESS


# Answers


async def test_a_key_that_cannot_be_asked_for_harms_nobody_else() -> None:
    """It is PENDING with the reason; other pushes are polled as ever."""

    def answer(call: Asked) -> Answer | None:
        if call.kind == "push" and b'"number":0' in call.body:
            held = service.add(record={"number": 0})
            return Answer.of({**service.shown(held, call.at), "pushOperationKey": "a/b"})
        return refusal(404) if call.kind == "list" else None

    service = Service(answer=answer)
    async with coordinator(service) as pushes:
        outcomes = await collect(pushes.run(requests(2)))

    assert statuses(outcomes) == {OutcomeStatus.PENDING: 1, OutcomeStatus.SUCCESS: 1}


async def test_a_service_that_never_says_why_is_not_asked_for_each_push() -> None:
    """Once a read of the push itself has told no more than the list, lists are enough."""

    class Curt(Service):
        def shown(self, held: Held, at: float) -> dict[str, Any]:
            return {**super().shown(held, at), "data": None, "validation": None}

    service = Curt(status=lambda _: "Failed")
    async with coordinator(service) as pushes:
        await collect(pushes.run(requests(20)))
        read_singly = service.count("get")
        outcomes = await collect(pushes.run(requests(200)))

    assert statuses(outcomes) == {OutcomeStatus.FAILED: 200}
    assert service.count("get") - read_singly < 20


@pytest.mark.parametrize("dialect", [Dialect.published(), DOCUMENT], ids=["published", "document"])
async def test_a_503_is_not_asked_for_again_under_its_key(dialect: Dialect) -> None:
    """The service would repeat it; under a new key the push is carried out."""
    refused: set[str] = set()
    seen: list[str] = []

    def answer(call: Asked) -> Answer | None:
        if call.kind != "push":
            return None
        key = call.headers.get("Idempotency-Key", f"none-{len(seen)}")
        seen.append(key)
        if not refused or key in refused:
            refused.add(key)
            return refusal(503)
        return None

    async with coordinator(Service(answer=answer), dialect=dialect) as pushes:
        outcome = await (await pushes.submit(request(0)))

    assert outcome.status is OutcomeStatus.SUCCESS
    assert len(set(seen)) == 2


@pytest.mark.parametrize(
    ("wall", "takes", "times"),
    [(0.0, 1.0, 2), (8 * 3600.0, 1.0, 1), (-8 * 3600.0, 1.0, 2), (-8 * 3600.0, 4000.0, 1)],
)
async def test_a_key_that_the_service_has_forgotten_is_not_relied_on(
    wall: float, takes: float, times: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A closed laptop loses the answer while its steady clock stands still: no second invoice.

    A wall clock that is put back hides no time that has passed.
    """
    loop = asyncio.get_running_loop()
    monkeypatch.setattr(time, "time", lambda: loop.time() + (wall if sent else 0.0))
    sent: list[Asked] = []

    def answer(call: Asked) -> Answer | None:
        if call.kind != "push":
            return None
        sent.append(call)
        if len(sent) > 1:
            return None
        service.add(record={"number": 0})
        return no_answer()

    service = Service(answer=answer, latency=takes)
    patient: dict[str, Any] = {"timeout": None, "read_timeout": None}
    async with coordinator(service, dialect=Dialect.published(), **patient) as pushes:
        await (await pushes.submit(request(0, natural_key="number")))

    assert len(sent) == times


async def test_a_mistyped_key_is_not_bound() -> None:
    """A decision is final, so the key is looked at before it is made."""
    gone = True

    def answer(call: Asked) -> Answer | None:
        return no_answer() if call.kind == "push" and gone else None

    service = Service(answer=answer)
    async with coordinator(service) as pushes:
        push = await pushes.submit(request(0))
        await push
        gone = False
        other = await pushes.submit(request(1, companies=2))
        for wrong in ("no-such-push", str(other.key)):
            with pytest.raises(ConfigurationError, match=r"^push "):
                await pushes.decide(str(push.intent), bind=wrong)
        held = service.add(record={"number": 0})
        bound = await pushes.decide(str(push.intent), bind=held.key)
        assert bound is not None
        assert (await bound).status is OutcomeStatus.SUCCESS


async def test_a_doubt_says_what_was_answered() -> None:
    """A proxy's page is not "no answer"."""

    def answer(call: Asked) -> Answer | None:
        return Answer(502, b"<html>") if call.kind == "push" else None

    async with coordinator(Service(answer=answer)) as pushes:
        outcome = await (await pushes.submit(request(0)))

    assert "answered 502" in str(outcome.error)


# The list before the first push


async def test_a_list_that_fails_for_a_moment_is_asked_for_again() -> None:
    """Without a snapshot a lost answer is IN_DOUBT; half a minute later there is one."""
    down, lost = True, False

    def answer(call: Asked) -> Answer | None:
        if down and call.kind == "list":
            return refusal(500)
        if lost and call.kind == "push":
            service.carry_out(call)
            return no_answer()
        return None

    service = Service(answer=answer, takes=lambda _: 0.0)
    async with coordinator(service) as pushes:
        await (await pushes.submit(request(0)))
        down, lost = False, True
        in_doubt = await (await pushes.submit(request(1)))
        await asyncio.sleep(31)
        found = await (await pushes.submit(request(2)))

    assert in_doubt.status is OutcomeStatus.IN_DOUBT
    assert found.status is OutcomeStatus.SUCCESS


async def test_a_middleware_that_breaks_once_harms_one_request(
    caplog: pytest.LogCaptureFixture,
) -> None:
    """What it raises on the list is logged, and pushes are sent all the same."""
    broken = iter([ValueError("a bug of the caller's")])
    middleware = breaking(lambda request: next(broken, None) if LISTS in request else None)
    async with coordinator(Service(), middlewares=[middleware]) as pushes:
        outcomes = await collect(pushes.run(requests(5)))

    assert statuses(outcomes) == {OutcomeStatus.SUCCESS: 5}
    assert "a bug of the caller's" in caplog.text


async def test_a_middleware_that_breaks_every_list_leaves_no_push_without_an_outcome(
    caplog: pytest.LogCaptureFixture,
) -> None:
    """What was lost cannot be searched for then: it is IN_DOUBT, and the block can be left."""
    bug = ValueError("a bug of the caller's")
    middleware = breaking(lambda request: bug if LISTS in request else None)
    service = Service(faults=[swallowed])
    async with (
        asyncio.timeout(100),
        coordinator(service, middlewares=[middleware], patience=5.0) as pushes,
    ):
        outcomes = await collect(pushes.run(requests(2)))

    assert statuses(outcomes) == {OutcomeStatus.IN_DOUBT: 2}
    assert {record.name for record in caplog.records} == {"integration_sdk.pushes"}


@pytest.mark.parametrize("has_left", [False, True])
async def test_what_breaks_a_push_leaves_no_wrong_word_about_it(
    caplog: pytest.LogCaptureFixture, *, has_left: bool
) -> None:
    """What a shared rate raises before the push leaves is no doubt; what a middleware does is."""
    bug = ValueError("a bug of the caller's")

    class Broken:
        async def acquire(self) -> None:
            if service.count("list"):
                raise bug

        def paused(self, seconds: float) -> None: ...

    middleware = breaking(lambda request: bug if "POST" in request else None)
    service, options = Service(), {"middlewares": [middleware]} if has_left else {"rate": Broken()}
    async with coordinator(service, **options, patience=5.0) as pushes:
        outcome = await (await pushes.submit(request(1)))

    assert outcome.status is (OutcomeStatus.IN_DOUBT if has_left else OutcomeStatus.REJECTED)
    assert "a bug of the caller's" in caplog.text


# A journal that breaks


def refuse(journal: Journal, *states: State, breaks: Exception | None = None) -> None:
    """Let *journal* refuse the rows of these states, and take all others."""

    def refuse_some(rows: Sequence[Row]) -> None:
        if set(states).intersection(row.state for row in rows):
            raise breaks or OSError("gone")

    journal.before_write = refuse_some


async def test_nothing_is_sent_without_its_row(journal: Journal) -> None:
    """Whatever the journal raises: the push is told of, and no byte leaves."""
    service = Service()
    refuse(journal, State.SENDING)
    async with asyncio.timeout(100), coordinator(service, journal=journal) as pushes:
        with pytest.raises(JournalError, match="gone"):
            await pushes.submit(request())
    assert service.count("push") == 0


async def test_an_answer_that_cannot_be_recorded_is_found_by_the_next_run(journal: Journal) -> None:
    """The push is handed out with its key; nothing more is sent, and nothing is sent twice."""
    service = Service(takes=lambda _: 60.0)
    refuse(journal, State.OPEN)
    async with asyncio.timeout(100), coordinator(service, journal=journal) as pushes:
        push = await pushes.submit(request(1))
        with pytest.raises(JournalError, match="gone"):
            await pushes.submit(request(2))
        outcome = await push
    refuse(journal)
    async with asyncio.timeout(1000), coordinator(service, journal=journal) as pushes:
        (found,) = [await one for one in pushes.recovered]

    assert outcome.status is OutcomeStatus.PENDING
    assert isinstance(outcome.error, JournalError)
    assert found.status is OutcomeStatus.SUCCESS
    assert found.key == outcome.key
    assert service.count("push") == 1


async def collect_until_stopped(run: AsyncIterator[PushOutcome]) -> list[PushOutcome]:
    found: list[PushOutcome] = []
    with pytest.raises(JournalError, match="gone"):
        await collect(run, into=found)
    return found


@pytest.mark.parametrize("breaks", [JournalError("full"), OSError("gone")])
async def test_an_end_that_cannot_be_recorded_is_told(journal: Journal, breaks: Exception) -> None:
    """The service has said how the push ended; the next run reads it once more."""
    refuse(journal, State.DONE, breaks=breaks)
    service = Service()
    async with asyncio.timeout(100), coordinator(service, journal=journal) as pushes:
        outcomes = await collect(pushes.run(requests(3)))
    refuse(journal)
    async with asyncio.timeout(100), coordinator(service, journal=journal) as pushes:
        again = [await push for push in pushes.recovered]

    assert statuses(outcomes) == statuses(again) == {OutcomeStatus.SUCCESS: 3}
    assert service.count("push") == 3


# Cancelled ends and openings


async def test_an_end_that_is_cancelled_lets_go_of_everything(
    journal: Journal, connect: Connect
) -> None:
    """What waits for its turn has an outcome and is not sent later; the journal is free."""
    service = Service(answer=lambda _: refusal(429, Retry_After=50))
    submits: list[asyncio.Task[Push]] = []

    async def leave_in_a_hurry() -> None:
        client = await connect(service)
        with pytest.raises(TooManyRequests):  # the service asks everybody to stay away
            await client.company("c-0").get()
        service.answer = None
        async with (
            asyncio.timeout(5),
            client.coordinator(journal=journal, leave="detach") as one,
        ):
            submits.extend(asyncio.create_task(one.submit(each)) for each in requests(5))
            await asyncio.sleep(1)

    await leave_in_a_hurry()
    await asyncio.sleep(100)
    pushes = await asyncio.gather(*submits)

    assert [push.outcome and push.outcome.status for push in pushes] == [OutcomeStatus.REJECTED] * 5
    assert service.count("push") == 0
    async with coordinator(service, journal=journal) as other:
        assert other.recovered == ()


@pytest.mark.parametrize("turns", range(6))
async def test_an_opening_that_is_cancelled_lets_go_of_the_journal(
    journal: Journal, turns: int
) -> None:
    """The file can be opened again by the same process, at once."""

    async def opened() -> None:
        async with coordinator(Service(), journal=journal):
            pass

    opening = asyncio.create_task(opened())
    for _ in range(turns):
        await asyncio.sleep(0)
    opening.cancel()
    await asyncio.gather(opening, return_exceptions=True)

    await opened()


async def test_a_block_that_is_open_is_not_entered_again(connect: Connect) -> None:
    """The second entry would take the pushes of the first out of sight; afterwards it may."""
    pushes = (await connect(Service())).coordinator()
    for _ in range(2):
        async with asyncio.timeout(1000), pushes:
            push = await pushes.submit(request())
            with pytest.raises(ConfigurationError, match="open already"):
                await pushes.__aenter__()
            assert pushes.progress.open == 1

    assert push.outcome is not None
