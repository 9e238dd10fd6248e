"""Promises of a coordinator that is left, stopped, or whose caller is cancelled."""

from __future__ import annotations

import asyncio
import gc
from collections.abc import AsyncIterator, Coroutine, Sequence
from contextlib import nullcontext
from pathlib import Path
from typing import Any
from weakref import ref

import pytest

from integration_sdk import Push, PushEvent, Store
from integration_sdk._outcome import PushOutcome
from integration_sdk.errors import (
    AccountExpired,
    ClientClosed,
    ConfigurationError,
    JournalError,
)
from integration_sdk.models import OutcomeStatus, PushRequest
from tests.support.push_support import Connect, Journal, collect, coordinator, request, requests
from tests.support.virtual_service import Answer, Asked, Service, no_answer, refusal

pytestmark = pytest.mark.virtual_time

RECORD = request(1, reference="INV-1")
DECISIONS = ("resend", "abandon")


@pytest.fixture
def journal() -> Journal:
    return Journal()


def lost(service: Service) -> list[Asked]:
    """Let *service* lose what is pushed, until its ``answer`` is taken away; return the calls."""
    calls: list[Asked] = []

    def answer(call: Asked) -> Answer | None:
        if call.kind != "push":
            return None
        calls.append(call)
        return no_answer()

    service.answer = answer
    return calls


@pytest.mark.parametrize("gap", [10.0, 1e9], ids=["a while", "for ever"])
async def test_an_account_that_ends_while_the_input_is_awaited_ends_the_run(gap: float) -> None:
    """The run says so at once, after the outcomes; it waits for no record it would not push."""

    async def source() -> AsyncIterator[PushRequest]:
        yield request(0)
        await asyncio.sleep(gap)
        yield request(1)

    def answer(call: Asked) -> Answer | None:
        return refusal(402, "Your account has expired") if call.kind == "push" else None

    seen: list[PushOutcome] = []
    async with asyncio.timeout(5), coordinator(Service(answer=answer)) as pushes:
        with pytest.raises(AccountExpired):
            await collect(pushes.run(source()), seen)
    assert [one.status for one in seen] == [OutcomeStatus.REJECTED]


async def test_a_run_that_begins_while_the_block_is_left_does_not_hold_it_open() -> None:
    """It is told like the others, though its input gives nothing for a long time."""

    async def source() -> AsyncIterator[PushRequest]:
        await asyncio.sleep(1e9)
        yield request()

    async def late() -> list[PushOutcome]:
        await asyncio.sleep(5)
        return await collect(pushes.run(source()))

    async with asyncio.timeout(100):
        async with coordinator(Service(lambda _: 10.0)) as pushes:
            await pushes.submit(request())
            running = asyncio.create_task(late())
        with pytest.raises(ClientClosed):
            await running


@pytest.mark.parametrize("leave", ["drain", "detach"])
@pytest.mark.parametrize("max_open", [1, 2])
async def test_those_who_wait_for_a_place_are_told_that_the_block_was_left(
    leave: Any, max_open: int
) -> None:
    """However many they are: each gets its outcome, or `ClientClosed`."""
    async with asyncio.timeout(100):
        async with coordinator(Service(), max_open=max_open, leave=leave) as pushes:
            submits = [asyncio.create_task(pushes.submit(one)) for one in requests(7)]
            await asyncio.sleep(1)
        told = await asyncio.gather(*submits, return_exceptions=True)

    assert {type(one) for one in told} == {Push, ClientClosed}
    assert all(one.outcome for one in told if isinstance(one, Push))


async def again_and_again(work: Coroutine[Any, Any, object], turns: int) -> None:
    """Cancel *work* after so many turns of the loop, and at each step from then on."""
    task = asyncio.create_task(work)
    for _ in range(turns):
        await asyncio.sleep(0)
    while not task.done():
        task.cancel()
        await asyncio.sleep(0)


@pytest.mark.parametrize("kind", ["memory", "file"])
async def test_who_is_cancelled_again_and_again_leaves_nothing_behind(
    tmp_path: Path, kind: str
) -> None:
    """As by the scopes of anyio, and so in web services: neither tasks nor a store in use."""
    store = Store(tmp_path / "pushes.db") if kind == "file" else None
    service = Service()

    async def push() -> None:
        async with client.coordinator(journal=store) as pushes:
            await collect(pushes.run(requests(3)))

    async with store or nullcontext(), service.client() as client:
        for turns in (*range(40), *range(40, 400, 20)):
            await again_and_again(push(), turns)
            left = [task.get_name() for task in asyncio.all_tasks()]
            assert "integration_sdk push" not in left, turns
        asked = service.count()
        await asyncio.sleep(1000)
        assert service.count() == asked
        async with asyncio.timeout(1000):
            await push()


async def test_who_waits_long_is_told_what_for(caplog: pytest.LogCaptureFixture) -> None:
    """A block that waits for an offline platform says so, ever more rarely."""
    async with coordinator(Service(lambda _: 7 * 3600.0)) as pushes:
        await collect(pushes.run(requests(3), wait=10.0))
        await pushes.submit(request(4))
    waits = [message for message in caplog.messages if "waits for 1 pushes" in message]
    assert len(waits) == 6  # after 5 minutes, 15, 35, 75, 155 and 315


async def test_a_push_that_was_taken_is_handed_out_though_the_account_ends_then() -> None:
    """No error denies a push that has a key: its outcome says why nobody follows it."""

    def answer(call: Asked) -> Answer | None:
        refused = call.kind == "push" and b'"number":1' in call.body
        return refusal(402, "Your account has expired") if refused else None

    async with asyncio.timeout(100), coordinator(Service(answer=answer)) as pushes:
        submits = (pushes.submit(one) for one in requests(2))
        push, refused = await asyncio.gather(*submits, return_exceptions=True)

    assert isinstance(refused, AccountExpired)
    assert isinstance(push, Push)
    assert push.outcome
    assert push.outcome.status is OutcomeStatus.PENDING
    assert isinstance(push.outcome.error, AccountExpired)


async def test_a_search_that_ends_with_its_block_is_not_said_to_continue(
    journal: Journal,
) -> None:
    """The process may end next; the journal's next run is what searches again."""
    service = Service()
    lost(service)
    async with coordinator(service, journal=journal, leave="detach", patience=60.0) as pushes:
        push = await pushes.submit(RECORD)
        await asyncio.sleep(1)
        assert push.outcome is None
    outcome = await push

    assert outcome.status is OutcomeStatus.IN_DOUBT
    assert "continues" not in str(outcome.error)
    assert "while its coordinator's block is open, and with a journal again by the next run" in str(
        outcome.error
    )


@pytest.mark.parametrize("on_disk", [False, True], ids=["memory", "file"])
@pytest.mark.parametrize("is_lost", [False, True])
async def test_what_is_on_its_way_when_an_end_is_cancelled_is_in_doubt(
    is_lost: bool, on_disk: bool, journal: Journal, connect: Connect
) -> None:
    """Its connection is cut, which is as safe as a crash, and nobody polls for it."""
    service = Service(lambda _: 1e6, latency=20.0)
    if is_lost:
        lost(service)
    client = await connect(service)

    async def leave_in_a_hurry() -> None:
        async with (
            asyncio.timeout(25),
            client.coordinator(leave="detach", journal=journal if on_disk else None) as pushes,
        ):
            submits.append(asyncio.create_task(pushes.submit(RECORD)))
            await asyncio.sleep(21)

    submits: list[asyncio.Task[Push]] = []
    with pytest.raises(TimeoutError):
        await leave_in_a_hurry()
    async with asyncio.timeout(100):
        outcome = await (await submits[0])

    assert outcome.status is OutcomeStatus.IN_DOUBT
    before = service.count()
    await asyncio.sleep(1000)
    assert service.count() == before


@pytest.mark.parametrize(
    ("on_disk", "where"),
    [(False, "`detached`"), (True, "the journal: open it again")],
    ids=["memory", "file"],
)
async def test_an_exception_that_leaves_pushes_open_says_so(
    journal: Journal, on_disk: bool, where: str, caplog: pytest.LogCaptureFixture, connect: Connect
) -> None:
    """Who presses Ctrl-C learns that pushes go on without this process, and where they are."""
    service = Service(lambda _: 1e6)
    client = await connect(service)
    pushes = client.coordinator(journal=journal if on_disk else None)

    async def is_interrupted() -> None:
        async with pushes:
            await pushes.submit(RECORD)
            raise KeyError

    with pytest.raises(KeyError):
        await is_interrupted()

    (said,) = caplog.messages
    assert said.endswith(f"pushes that continue at the service: 1; their keys are in {where}")
    assert len(pushes.detached) == 1


async def test_a_search_that_outlives_the_block_finds_nothing_to_follow(connect: Connect) -> None:
    """Its push was IN_DOUBT when the end was cancelled, and stays so: nobody polls for it."""
    service = Service(lambda _: 0.0, latency=20.0)
    calls, client = lost(service), await connect(service)

    async def leave_in_a_hurry() -> None:
        async with (
            asyncio.timeout(47),
            client.coordinator(leave="detach") as pushes,
        ):
            found.append(await pushes.submit(RECORD))
            service.carry_out(calls[0])
            await asyncio.sleep(5)

    found: list[Push] = []
    with pytest.raises(TimeoutError):
        await leave_in_a_hurry()

    assert (await found[0]).status is OutcomeStatus.IN_DOUBT
    assert service.count("list") == 2  # a snapshot, and the search that shows it
    before = service.count()
    await asyncio.sleep(1000)
    assert service.count() == before


@pytest.mark.parametrize("on_disk", [False, True], ids=["memory", "file"])
async def test_a_push_found_late_is_let_go_of_with_the_block(
    journal: Journal, on_disk: bool, connect: Connect
) -> None:
    """One that turned up after IN_DOUBT counts as open; nobody polls for it afterwards."""
    service = Service(lambda _: 1e6)
    calls, client = lost(service), await connect(service)
    path = journal if on_disk else None
    async with client.coordinator(journal=path, exclusive=True, patience=2.0) as pushes:
        push = await pushes.submit(RECORD)
        assert (await push).status is OutcomeStatus.IN_DOUBT
        service.carry_out(calls[0])
        pushes.notify("somebody's")
        await asyncio.sleep(50)
        assert push.key
        assert pushes.progress.open == 1

    assert pushes.detached == (push.key,)
    before = service.count()
    await asyncio.sleep(1000)
    assert service.count() == before


async def test_a_push_found_late_shares_its_end_with_who_asks_again(journal: Journal) -> None:
    """Asked for again by its reference it is joined, and "found" is told once."""
    service = Service(lambda _: 60.0)
    calls = lost(service)
    events: list[PushEvent] = []
    async with coordinator(
        service, journal=journal, exclusive=True, patience=2.0, on_event=events.append
    ) as pushes:
        push = await pushes.submit(RECORD)
        assert (await push).status is OutcomeStatus.IN_DOUBT
        service.carry_out(calls[0])
        pushes.notify("somebody's")
        await asyncio.sleep(10)
        hasty, patient = await pushes.submit(RECORD, wait=1.0), await pushes.submit(RECORD)
        told = [(await hasty).status, (await patient).status]

    assert told == [OutcomeStatus.PENDING, OutcomeStatus.SUCCESS]
    assert [event.push for event in events if event.what == "found"] == [push]
    assert push.operation
    assert push.operation.is_final


async def test_who_decides_about_a_push_that_was_found_meanwhile_is_told(journal: Journal) -> None:
    """Asked for again it has its reference once more, until it ends: then there is no doubt."""
    service = Service(lambda _: 60.0)
    calls = lost(service)
    async with (
        asyncio.timeout(1000),
        coordinator(service, journal=journal, exclusive=True, patience=2.0) as pushes,
    ):
        push = await pushes.submit(RECORD)
        await push
        service.carry_out(calls[0])
        pushes.notify("somebody's")
        await asyncio.sleep(10)
        await pushes.submit(RECORD)
        with pytest.raises(
            ConfigurationError, match="you can decide only about a push that is IN_DOUBT"
        ):
            await pushes.decide(str(push.intent), "resend")


async def test_a_decision_is_carried_out_though_its_caller_is_cancelled(journal: Journal) -> None:
    """What is sent again is sent to its end; the block can be left, and has its outcome."""
    service = Service()
    lost(service)
    events: list[PushEvent] = []
    async with (
        asyncio.timeout(1000),
        coordinator(service, journal=journal, patience=2.0, on_event=events.append) as pushes,
    ):
        push = await pushes.submit(RECORD)
        await push
        service.answer = None
        journal.before_write = lambda _: asyncio.sleep(30)
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(5):
                await pushes.decide(str(push.intent), "resend")

    told = [event.push.outcome for event in events if event.what == "ended"]
    assert [one.status for one in told if one] == [OutcomeStatus.IN_DOUBT, OutcomeStatus.SUCCESS]
    assert service.count("push") == 2


@pytest.mark.parametrize("second", DECISIONS)
@pytest.mark.parametrize("reference", [None, "INV-1"])
async def test_a_doubt_is_decided_once(
    journal: Journal, second: Any, reference: str | None
) -> None:
    """Of two decisions at the same time the second is refused, and nothing is sent for it."""
    service = Service()
    lost(service)
    async with (
        asyncio.timeout(1000),
        coordinator(service, journal=journal, patience=2.0) as pushes,
    ):
        push = await pushes.submit(request(1, reference=reference))
        await push
        service.answer = None
        again, refused = await asyncio.gather(
            pushes.decide(str(push.intent), "resend"),
            pushes.decide(str(push.intent), second),
            return_exceptions=True,
        )
        assert isinstance(refused, ConfigurationError)
        assert isinstance(again, Push)
        assert (await again).status is OutcomeStatus.SUCCESS
        assert not pushes.in_doubt

    assert service.count("push") == 2


async def test_a_decision_that_fails_holds_up_no_other(journal: Journal) -> None:
    """Who waits for a resend that the disk refuses goes on when it has failed."""

    def is_full(_: Sequence[object]) -> None:
        raise JournalError("full")

    service = Service()
    lost(service)
    async with (
        asyncio.timeout(1000),
        coordinator(service, journal=journal, patience=2.0) as pushes,
    ):
        push = await pushes.submit(RECORD)
        await push
        journal.before_write = is_full
        resends = [pushes.decide(str(push.intent), "resend") for _ in range(3)]
        told = await asyncio.gather(*resends, return_exceptions=True)
        assert {type(one) for one in told} == {JournalError}


async def test_nothing_is_decided_once_the_block_was_left() -> None:
    """A decision that comes too late says so, and nobody follows a push for it."""
    service = Service()
    lost(service)
    async with asyncio.timeout(1000):
        async with coordinator(service, patience=2.0) as pushes:
            push = await pushes.submit(RECORD)
            await push
        key = service.add(record={"number": 7}).key
        decisions: list[dict[str, Any]] = [{"bind": key}, *({"decision": one} for one in DECISIONS)]
        for decision in decisions:
            with pytest.raises(ClientClosed):
                await pushes.decide(str(push.intent), **decision)


async def test_what_fails_after_its_caller_was_cancelled_is_logged(
    caplog: pytest.LogCaptureFixture,
) -> None:
    """Once, by us: not as an exception that nobody has retrieved."""

    async def broken(*_: object) -> Any:
        await asyncio.sleep(5)
        raise RuntimeError("a bug")

    async with coordinator(Service(), check="options", middlewares=[broken]) as pushes:
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(1):
                await pushes.submit(request())

    assert [record.name for record in caplog.records] == ["integration_sdk.pushes"]
    assert "a bug" in caplog.text


async def test_a_run_may_be_collected_by_any_thread() -> None:
    """Garbage is collected wherever it is full: the run still stops, and nothing is raised."""
    asyncio.get_running_loop().set_debug(True)
    pulled: list[int] = []

    async def source() -> AsyncIterator[PushRequest]:
        for number in range(1000):
            await asyncio.sleep(0.1)
            pulled.append(number)
            yield request(number)

    async with asyncio.timeout(100), coordinator(Service()) as pushes:
        runs = [pushes.run(source())]
        await anext(runs[0])
        await asyncio.to_thread(runs.clear)
        await asyncio.sleep(1)
        so_far = len(pulled)
        await asyncio.sleep(10)
        assert len(pulled) == so_far < 1000


async def test_an_input_that_nobody_holds_is_closed_when_its_loop_is_left() -> None:
    """At once, not when garbage happens to be collected: it may hold a connection."""
    closed: list[bool] = []

    async def source() -> AsyncIterator[PushRequest]:
        try:
            for number in range(1000):
                yield request(number)
        finally:
            closed.append(True)

    gc.disable()
    try:
        async with coordinator(Service(), max_open=5) as pushes:
            async for _ in pushes.run(source()):
                break
            await asyncio.sleep(1)
            assert closed
    finally:
        gc.enable()


async def test_however_often_the_end_of_a_block_is_cancelled_its_journal_closes(
    journal: Journal,
) -> None:
    """The next run in this process can open the journal, though a search never answered."""
    service = Service()
    lost(service)
    began = asyncio.Event()

    async def run() -> None:
        async with coordinator(service, journal=journal) as pushes:
            await pushes.submit(RECORD)
            service.latency = 1e6  # the list that is searched for it
            await asyncio.sleep(10)
            began.set()
            await asyncio.sleep(1e6)

    block = asyncio.create_task(run())
    await began.wait()
    while not block.done():
        block.cancel()
        await asyncio.sleep(1)

    service.latency = 0.03
    async with coordinator(service, journal=journal, leave="detach") as pushes:
        assert [push.request.reference for push in pushes.recovered] == ["INV-1"]


async def test_detached_pushes_are_no_longer_followed() -> None:
    """They are PENDING at once, their keys are returned and kept, and the block ends."""
    service = Service(lambda _: float("inf"))
    async with coordinator(service) as pushes:
        followed = [await pushes.submit(one) for one in requests(3)]
        keys = pushes.detach()
        assert {(await push).status for push in followed} == {OutcomeStatus.PENDING}
        assert not pushes.detach()

    assert keys == pushes.detached == tuple(push.key for push in followed)


@pytest.mark.parametrize("decision", [*({"decision": one} for one in DECISIONS), {"bind": "key"}])
async def test_only_what_is_in_doubt_can_be_decided(decision: dict[str, Any]) -> None:
    """Nothing is sent or looked up for an intent that nobody knows."""
    service = Service()
    async with coordinator(service) as pushes:
        with pytest.raises(ConfigurationError, match="nobody"):
            await pushes.decide("nobody", **decision)

    assert not service.log


async def test_an_input_that_awaits_what_was_cancelled_does_not_end_in_silence() -> None:
    """The run raises as a loop over the input would; what was taken has its outcome."""

    async def source() -> AsyncIterator[PushRequest]:
        yield request(0)
        upstream = asyncio.get_running_loop().create_future()
        upstream.cancel()
        yield await upstream

    found: list[PushOutcome] = []
    async with coordinator(Service()) as pushes:
        with pytest.raises(asyncio.CancelledError):
            await collect(pushes.run(source()), into=found)

    assert [outcome.status for outcome in found] == [OutcomeStatus.SUCCESS]


async def test_a_run_whose_tasks_somebody_cancels_does_not_end_in_silence() -> None:
    """As a shutdown does that cancels all tasks but its own: the input has not ended."""

    async def source() -> AsyncIterator[PushRequest]:
        yield request(0)
        await asyncio.sleep(1e6)
        yield request(1)

    async def cancel_all_others() -> None:
        await asyncio.sleep(60)
        for task in asyncio.all_tasks():
            if task.get_name() == "integration_sdk push":
                task.cancel()

    found: list[PushOutcome] = []
    async with coordinator(Service()) as pushes:
        shutdown = asyncio.create_task(cancel_all_others())
        with pytest.raises(asyncio.CancelledError):
            await collect(pushes.run(source()), into=found)
        await shutdown

    assert [outcome.status for outcome in found] == [OutcomeStatus.SUCCESS]


async def test_a_block_that_was_left_is_not_kept_by_its_client(connect: Connect) -> None:
    """A web service may open one for each request, with one client for all."""
    client = await connect(Service())

    def hear(_: PushEvent) -> None: ...

    kept = ref(hear)
    async with client.coordinator(on_event=hear) as pushes:
        await (await pushes.submit(request()))
    del hear, pushes
    await asyncio.sleep(1)
    gc.collect()

    assert kept() is None
