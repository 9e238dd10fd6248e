"""Promises of a block that is left, in whatever way: nothing hangs, and nothing is left behind."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Coroutine, Sequence
from contextlib import nullcontext
from pathlib import Path
from typing import Any

import pytest

from integration_sdk import OutcomeStatus, Push, PushEvent, Store
from integration_sdk._store.row import Row
from integration_sdk.errors import ClientClosed, StoreUnavailable
from tests.support.push_support import (
    Connect,
    Journal,
    collect,
    coordinator,
    fated,
    named,
    request,
    requests,
)
from tests.support.virtual_service import Answer, Asked, Proceed, Service, refusal

pytestmark = pytest.mark.virtual_time
FOREVER = 1e6


async def quiet(service: Service) -> bool:
    """Whether nothing is asked of *service* for a long time."""
    before = service.count()
    await asyncio.sleep(1000)
    return service.count() == before


async def test_leaving_the_block_drains_by_default() -> None:
    """Everything open has its outcome then, also that of a platform that was offline for hours."""
    async with coordinator(Service(lambda _: 7 * 3600.0)) as pushes:
        await collect(pushes.run(requests(3), wait=10.0))
        push = await pushes.submit(request(4))

    assert push.outcome
    assert push.outcome.status is OutcomeStatus.SUCCESS


@pytest.mark.parametrize("leave", ["detach", "drain"])
async def test_detached_pushes_are_no_longer_followed(leave: Any) -> None:
    """They are PENDING at once, their keys are kept, and the block ends; or within it, if asked."""
    async with coordinator(Service(lambda _: FOREVER), leave=leave) as pushes:
        followed = [await pushes.submit(one) for one in requests(3)]
        if leave == "drain":
            assert pushes.detach() == tuple(push.key for push in followed)
            assert not pushes.detach()

    assert asyncio.get_running_loop().time() < 1
    assert {(await push).status for push in followed} == {OutcomeStatus.PENDING}
    assert pushes.detached == tuple(push.key for push in followed)
    with pytest.raises(ClientClosed):
        await pushes.submit(request())


async def test_what_is_open_after_the_last_answers_is_detached() -> None:
    """Also a push that was on its way as the block was left, and none that has ended meanwhile."""

    def answer(asked: Asked, proceed: Proceed) -> Answer:
        said = proceed()
        if asked.kind == "push" and b"2" in asked.body:
            said.seconds = 30.0
        return said

    service = Service(lambda one: 12.0 if one["number"] == 1 else FOREVER, faults=[answer])
    async with coordinator(service, leave="detach") as pushes:
        ended = await pushes.submit(request(1))
        late = asyncio.create_task(pushes.submit(request(2)))
        await asyncio.sleep(5)

    assert (await ended).status is OutcomeStatus.SUCCESS
    assert (await (await late)).status is OutcomeStatus.PENDING
    assert pushes.detached == ((await late).key,)


async def test_a_push_may_be_detached_as_it_is_sent() -> None:
    """By `on_event`: it is not polled at all."""

    def detach(event: PushEvent) -> None:
        if event.what == "sent":
            pushes.detach()

    service = Service(lambda _: 100.0)
    async with coordinator(service, on_event=detach) as pushes:
        push = await pushes.submit(request(1))
        assert (await push).status is OutcomeStatus.PENDING
        assert await quiet(service)


@pytest.mark.parametrize(
    ("on_disk", "where"),
    [(False, "`detached`"), (True, "the journal: open it again")],
    ids=["memory", "journal"],
)
async def test_an_exception_in_the_block_does_not_wait(
    on_disk: bool, where: str, caplog: pytest.LogCaptureFixture, connect: Connect
) -> None:
    """Who presses Ctrl-C learns that pushes go on without this process, and where they are."""
    client = await connect(Service(lambda _: FOREVER))
    pushes = client.coordinator(journal=Journal() if on_disk else None)

    async def is_interrupted() -> None:
        async with pushes:
            await pushes.submit(named())
            raise KeyError

    with pytest.raises(KeyError):
        await is_interrupted()

    assert asyncio.get_running_loop().time() < 1
    assert caplog.messages[0].endswith(f"at the service: 1; their keys are in {where}")
    assert len(pushes.detached) == len(caplog.messages) == 1


@pytest.mark.parametrize("leave", ["drain", "detach"])
async def test_those_who_wait_for_a_place_are_told_that_the_block_was_left(leave: Any) -> None:
    """However many they are: each gets its outcome, or `ClientClosed`."""
    async with asyncio.timeout(100):
        async with coordinator(Service(), max_open=2, leave=leave) as pushes:
            submits = [asyncio.create_task(pushes.submit(one)) for one in requests(7)]
            await asyncio.sleep(1)
        told = await asyncio.gather(*submits, return_exceptions=True)

    assert {type(one) for one in told} == {Push, ClientClosed}
    assert all(one.outcome for one in told if isinstance(one, Push))


async def test_a_cancelled_submit_leaves_the_push_to_the_coordinator() -> None:
    """Cancelling submit() ends the wait; the push is sent to its end and drained."""
    service = Service(latency=1.0)
    async with coordinator(service) as pushes:
        submitting = asyncio.ensure_future(pushes.submit(request()))
        await asyncio.sleep(1.5)
        submitting.cancel()

    assert service.count("push") == 1
    assert pushes.progress.outcomes == {OutcomeStatus.SUCCESS: 1}


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
        for turns in (*range(24), *range(24, 400, 40)):
            await again_and_again(push(), turns)
            left = [task.get_name() for task in asyncio.all_tasks()]
            assert "integration_sdk push" not in left, turns
        assert await quiet(service)
        async with asyncio.timeout(1000):
            await push()


@pytest.mark.parametrize("on_disk", [False, True], ids=["memory", "journal"])
@pytest.mark.parametrize("is_lost", [False, True])
async def test_what_is_on_its_way_when_an_end_is_cancelled_is_in_doubt(
    is_lost: bool, on_disk: bool, connect: Connect
) -> None:
    """Its connection is cut, which is as safe as a crash, and nobody polls for it."""
    service = fated("swallowed" if is_lost else None, takes=lambda _: FOREVER, latency=20.0)
    client = await connect(service)

    async def leave_in_a_hurry() -> None:
        pushes = client.coordinator(leave="detach", journal=Journal() if on_disk else None)
        async with asyncio.timeout(25), pushes:
            submits.append(asyncio.create_task(pushes.submit(named())))
            await asyncio.sleep(21)

    submits: list[asyncio.Task[Push]] = []
    with pytest.raises(TimeoutError):
        await leave_in_a_hurry()
    async with asyncio.timeout(100):
        outcome = await (await submits[0])

    assert outcome.status is OutcomeStatus.IN_DOUBT
    assert await quiet(service)


@pytest.mark.parametrize("is_back", [True, False])
async def test_nothing_is_called_unsent_that_another_worker_has_sent(is_back: bool) -> None:
    """A worker was away from the database, and another has sent what it took over."""
    service, theirs = fated(refusal(429, Retry_After=100)), Journal(shared=True)

    def refuse(_: Any) -> None:
        raise StoreUnavailable("away")

    async with coordinator(service, journal=Journal(shared=True, beside=theirs)) as others:
        async with coordinator(service, journal=theirs, leave="detach") as pushes:
            submitting = asyncio.create_task(pushes.submit(request(1)))
            await asyncio.sleep(5)
            theirs.unreadable = StoreUnavailable("away")
            theirs.lapse()
            await asyncio.sleep(60)
            (taken_over,) = others.recovered
            assert (await taken_over).status is OutcomeStatus.SUCCESS
            theirs.unreadable = None
            theirs.before_write = theirs.before_write if is_back else refuse
        if is_back:
            assert (await (await submitting)).status is OutcomeStatus.SUCCESS
        else:
            with pytest.raises(StoreUnavailable):
                await submitting

    assert service.count("push") == 2


@pytest.mark.parametrize("in_doubt", ["ask", "resend"])
async def test_who_waits_for_the_last_answers_is_alive(in_doubt: Any) -> None:
    """No other worker takes these pushes for those of a dead one, and sends them again."""

    def slow(asked: Asked, proceed: Proceed) -> Answer:
        asked.hidden = 45.0
        answer = proceed()
        answer.seconds = 40.0 if asked.kind == "push" else None
        return answer

    service, journal = Service(lambda _: 60.0, faults=[slow]), Journal(shared=True)
    beside = Journal(shared=True, beside=journal)
    options: dict[str, Any] = {"patience": 2.0, "in_doubt": in_doubt}
    async with coordinator(service, journal=beside, **options) as others:
        async with coordinator(service, journal=journal, leave="detach", **options) as pushes:
            sent = asyncio.create_task(pushes.submit(named(natural_key="number")))
            await asyncio.sleep(1)
        assert (await sent).key
        await asyncio.sleep(10)
        (push,) = others.recovered
        assert (await push).status is OutcomeStatus.SUCCESS
    assert service.count("push") == 1


async def test_who_waits_for_a_place_is_told_though_the_block_is_opened_again() -> None:
    """However many there are; and no place of one block is given back to the next."""
    service = Service(lambda _: FOREVER)
    async with service.client() as client:
        pushes = client.coordinator(max_open=1, leave="detach")
        async with pushes:
            await pushes.submit(request())
            waiting = [asyncio.create_task(pushes.submit(one)) for one in requests(20)]
            await asyncio.sleep(1)
        async with pushes, asyncio.timeout(1):
            told = await asyncio.gather(*waiting, return_exceptions=True)
    assert {type(one) for one in told} == {ClientClosed}


async def test_an_end_that_is_being_recorded_is_told() -> None:
    """It was seen, so the push is not PENDING, though the block does not wait for pushes."""

    def slow(rows: Sequence[Row]) -> Awaitable[None] | None:
        if rows[0].state != "DONE":
            return None
        ended.set()
        return asyncio.sleep(30)

    ended, journal, told = asyncio.Event(), Journal(), list[tuple[str, Any]]()
    journal.before_write = slow
    options: dict[str, Any] = {"journal": journal, "leave": "detach"}
    options["on_event"] = lambda event: told.append((event.what, event.push.request.record))
    service = Service(lambda one: 20 - 15 * one["number"])
    async with coordinator(service, **options) as pushes:
        other, push = [await pushes.submit(one) for one in requests(2)]
        await ended.wait()
    assert (await push).status is OutcomeStatus.SUCCESS
    assert (await other).status is OutcomeStatus.PENDING
    assert pushes.detached == (other.key,)
    assert await quiet(service)
    assert "found" not in dict(told)


async def test_what_was_detached_is_not_taken_up_again_after_an_outage() -> None:
    """It is on record as this worker's; but the block waits for it no more."""
    journal = Journal(shared=True)
    async with coordinator(Service(lambda _: FOREVER), journal=journal) as pushes:
        await pushes.submit(request())
        pushes.detach()
        journal.reconnect()
        await asyncio.sleep(10)
        assert not pushes.recovered
    assert asyncio.get_running_loop().time() < 20


async def test_what_was_taken_over_has_an_outcome_though_the_end_is_cancelled() -> None:
    """Also while it is being recorded that its answer was lost."""

    def crash(rows: Sequence[Row]) -> None:
        if rows[0].state == "SENDING":
            journal.crash()

    service, journal = Service(), Journal()
    journal.after_write = crash
    options: dict[str, Any] = {"journal": journal, "leave": "detach"}
    async with coordinator(service, **options) as pushes:
        await asyncio.gather(pushes.submit(named()), return_exceptions=True)
    journal.after_write, journal.before_write = lambda _: None, lambda _: asyncio.sleep(20)
    with pytest.raises(TimeoutError):
        async with asyncio.timeout(1), coordinator(service, **options) as pushes:
            (push,) = pushes.recovered
    assert await quiet(service)
    assert push.outcome
    assert push.outcome.status is OutcomeStatus.IN_DOUBT
