"""Promises of the one loop that polls for all: waits, its life, and services that misbehave."""

from __future__ import annotations

import asyncio
import gc
import json
from contextvars import ContextVar
from dataclasses import replace
from typing import Any

import pytest

from integration_sdk import Client, OutcomeStatus, PushOperation, PushRequest, PushStatus
from integration_sdk.errors import (
    ApiError,
    ClientClosed,
    Forbidden,
    MalformedResponse,
    NotFound,
    PushError,
    Unauthorized,
    WaitExpired,
)
from integration_sdk.sandbox import Sandbox
from tests.support.loops import RunOnLoop, now
from tests.support.push_support import (
    Connect,
    Journal,
    breaking,
    coordinator,
    lagging,
    named,
    pushed,
    request,
    requests,
    run_once,
    statuses,
)
from tests.support.session_support import unused_port
from tests.support.virtual_service import Answer, Asked, Fault, Held, Proceed, Service, refusal

pytestmark = pytest.mark.virtual_time
FOREVER = float("inf")
LOOP = "integration_sdk poller"


def held(service: Service, number: int = 0) -> Held:
    return service.add("company", record={"number": number})


async def wait_for(client: Client, one: Held, timeout: float | None = None) -> PushOperation:
    return await client.wait(one.key, company_id="company", timeout=timeout)


async def wait_for_many(client: Client, service: Service, count: int) -> list[PushOperation]:
    many = [held(service, number) for number in range(count)]
    return await asyncio.gather(*(wait_for(client, one) for one in many))


def polling_tasks() -> list[asyncio.Task[Any]]:
    return [task for task in asyncio.all_tasks() if task.get_name() == LOOP]


async def test_a_crowd_of_waiters_costs_what_one_costs(connect: Connect) -> None:
    """However many wait, for one push or a thousand: one task polls for all, and ends with them."""
    alone, crowd = Service(lambda _: 5.0), Service(lambda _: 5.0)
    await wait_for(await connect(alone), held(alone))
    client, one = await connect(crowd), held(crowd)
    ended = await asyncio.gather(*(wait_for(client, one) for _ in range(100)))
    assert {operation.status for operation in ended} == {PushStatus.SUCCESS}
    assert crowd.count() == alone.count()

    waits = asyncio.ensure_future(wait_for_many(client, crowd, 1000))
    await asyncio.sleep(1)
    assert len(polling_tasks()) == 1
    await waits
    await asyncio.sleep(0)
    assert not polling_tasks()


async def test_a_late_waiter_gets_the_known_result(connect: Connect) -> None:
    """Without a request, though of all that has ended only the latest are remembered."""
    service = Service(lambda record: 1.0 + record["number"] / 1000)
    client = await connect(service)
    first, *_, last = await wait_for_many(client, service, 4200)
    asked = service.count()

    assert await client.wait(last.key, company_id="company", timeout=0.0) is last
    assert service.count() == asked
    assert (await client.wait(first.key, company_id="company")).status is PushStatus.SUCCESS
    assert service.count() > asked


async def test_cancelling_a_waiter_leaves_the_others(connect: Connect) -> None:
    """A cancelled wait is that caller's affair; when the last has gone, polling ends."""
    service = Service(lambda _: 5.0)
    client, one = await connect(service), held(service)
    leaves, stays = [asyncio.ensure_future(wait_for(client, one)) for _ in range(2)]
    await asyncio.sleep(1)
    leaves.cancel()
    assert (await stays).status is PushStatus.SUCCESS

    service.takes = lambda _: FOREVER
    last = asyncio.ensure_future(wait_for(client, held(service)))
    await asyncio.sleep(5)
    last.cancel()
    await asyncio.sleep(0.1)
    assert not polling_tasks()


async def test_an_expired_wait_says_so_and_the_push_goes_on(connect: Connect) -> None:
    """A wait that ends first raises WaitExpired at its time; a later wait finds the end."""
    service = Service(lambda _: 100.0)
    client, one = await connect(service), held(service)
    with pytest.raises(WaitExpired, match="still Pending after 10 seconds") as caught:
        await wait_for(client, one, timeout=10)

    assert now() == 10
    assert caught.value.operation is None or not caught.value.operation.is_final
    assert (await wait_for(client, one)).status is PushStatus.SUCCESS


@pytest.mark.parametrize(("until", "says"), [(5.0, "is still Pending"), (1e6, "has no known end")])
async def test_the_end_of_a_wait_names_a_trouble_that_lasts(
    connect: Connect, until: float, says: str, caplog: pytest.LogCaptureFixture
) -> None:
    """What cannot be read is not called Pending, unlike what was read since; one warning first."""
    odd = Answer(body=b'{"pushOperationKey": 1, "status": "Success"}')
    service = Service(lambda _: 100.0, answer=lambda _: odd if now() < until else None)
    with pytest.raises(WaitExpired, match=says) as caught:
        await wait_for(await connect(service), held(service), timeout=60)

    assert isinstance(caught.value.__cause__, MalformedResponse) is (until > 60)
    assert [record.levelname for record in caplog.records] == ["WARNING"]


async def test_what_a_list_shows_again_is_in_no_trouble(connect: Connect) -> None:
    """Then a wait ends because the push is Pending, not because of what failed before."""
    service = Service(lambda _: 100.0, answer=lambda _: refusal(500) if now() < 5 else None)
    client, many = await connect(service), [held(service, number) for number in range(4)]
    waits = (wait_for(client, one, timeout=60) for one in many)
    ended = await asyncio.gather(*waits, return_exceptions=True)

    assert {type(one) for one in ended} == {WaitExpired}
    assert not any(one.__cause__ for one in ended if isinstance(one, WaitExpired))
    assert not service.count("get")


async def test_an_unknown_push_is_not_found(connect: Connect) -> None:
    """A key that the company does not know raises NotFound after one request."""
    client, one = await connect(service := Service()), service.add("another")
    with pytest.raises(NotFound):
        await wait_for(client, one)
    assert service.count() == 1
    assert (await client.wait(one.key, company_id="another")).status is PushStatus.SUCCESS


async def test_a_final_state_never_changes_back(connect: Connect) -> None:
    """Whatever is said of it later, to whomever: a wait returns what came first."""
    service = Service(lambda _: 0.0)
    client, one = await connect(service), held(service)
    final = await wait_for(client, one)
    one.status = "Failed"
    again = PushRequest(one.company, one.connection, one.data_type, one.record)
    service.answer = lambda call: Answer.of(service.shown(one, call.at))
    async with client.coordinator() as pushes:
        assert (await pushed(pushes, again)).status is OutcomeStatus.FAILED

    assert await wait_for(client, one) == final


async def test_what_a_wait_has_seen_end_has_ended_for_a_coordinator(connect: Connect) -> None:
    """One that follows the push later, from its journal, asks no more."""
    service, journal = Service(lambda _: 5.0), Journal()
    client = await connect(service)
    async with client.coordinator(journal=journal, leave="detach") as pushes:
        await pushes.submit(named())
        await asyncio.sleep(1)
    (one,) = service.by_key.values()
    await client.wait(one.key, company_id=one.company)
    asked, one.status = service.count("get"), "Failed"
    async with client.coordinator(journal=journal) as pushes:
        (push,) = pushes.recovered
        assert (await push).status is OutcomeStatus.SUCCESS

    assert service.count("get") == asked


async def test_a_key_in_capitals_is_the_same_key(connect: Connect) -> None:
    """As a service on SQL Server writes it."""

    def shout(_: Asked, proceed: Proceed) -> Answer:
        answer = proceed()
        return replace(answer, body=answer.body.replace(b"a000-", b"A000-"))

    service = Service(faults=[shout])
    client = await connect(service)
    for number in range(5):
        one = held(service, number)
        one.key = one.key.replace("0000-4000", "a000-4000")
        service.by_key[one.key] = one
        assert (await wait_for(client, one, timeout=60)).status is PushStatus.SUCCESS


@pytest.mark.parametrize("turns", range(6))
async def test_a_wait_that_begins_as_the_loop_ends_is_served(connect: Connect, turns: int) -> None:
    """Whatever moment it comes at, also while the last poll is on its way: a push is polled."""
    service = Service(lambda _: 1.0)
    client, one, other = await connect(service), held(service, 1), held(service, 2)
    await asyncio.sleep(10)

    await wait_for(client, one)
    for _ in range(turns):
        await asyncio.sleep(0)
    assert (await wait_for(client, other, timeout=60)).status is PushStatus.SUCCESS

    service.latency = 1.0
    first = asyncio.ensure_future(wait_for(client, held(service)))
    await asyncio.sleep(0.2 * turns)
    first.cancel()
    assert (await wait_for(client, held(service), timeout=60)).status is PushStatus.SUCCESS


async def test_a_crash_fails_every_waiter_and_the_next_wait_starts_afresh(connect: Connect) -> None:
    """A broken loop is a typed error for all who wait, with its cause, and no hang."""
    service = Service()
    crash: list[BaseException] = [ZeroDivisionError("a bug")]
    middleware = breaking(lambda _: crash[0] if crash else None)
    client = await connect(service, middlewares=[middleware])
    many = [service.add(f"c-{number}") for number in range(3)]
    waits = (client.wait(one.key, company_id=one.company) for one in many)
    ended = await asyncio.gather(*waits, return_exceptions=True)

    for one in ended:
        assert isinstance(one, PushError)
        assert isinstance(one.__cause__, ZeroDivisionError)
    crash.clear()
    assert (await client.wait(many[0].key, company_id="c-0")).status is PushStatus.SUCCESS


async def test_polls_are_nobodys_in_particular(connect: Connect) -> None:
    """They are not made in the context of the caller who happened to be the first."""
    caller, seen = ContextVar("caller", default="nobody"), set[str]()
    middleware = breaking(lambda _: seen.add(caller.get()))
    client = await connect(service := Service(), middlewares=[middleware])
    caller.set("the first")
    await wait_for(client, held(service))
    assert seen == {"nobody"}


async def test_a_bug_that_passes_leaves_its_pushes_to_the_next_poll(connect: Connect) -> None:
    """Two polls of a company may fail so, such as in a middleware."""
    bugs: list[BaseException] = [ZeroDivisionError("a bug")] * 2
    buggy = breaking(lambda _: bugs.pop() if bugs else None)
    client = await connect(service := Service(), middlewares=[buggy])
    assert (await wait_for(client, held(service))).status is PushStatus.SUCCESS
    assert not bugs


@pytest.mark.parametrize("seconds", [0.0, 5.0, 30.0])
async def test_closing_tells_who_waits(
    connect: Connect, seconds: float, caplog: pytest.LogCaptureFixture
) -> None:
    """Whether the loop has begun or a poll is under way; also who waits anew meanwhile."""
    service = Service(lambda _: FOREVER, latency=20.0)
    client = await connect(service)

    async def wait_and_wait_again() -> None:
        for _ in range(3):
            with pytest.raises(ClientClosed):
                await wait_for(client, held(service))

    waits = [asyncio.ensure_future(wait_and_wait_again()) for _ in range(2)]
    await asyncio.sleep(seconds)
    await client.aclose()

    async with asyncio.timeout(600):
        await asyncio.gather(*waits)
    await asyncio.sleep(1)
    assert not polling_tasks()
    assert not caplog.records


def futures() -> int:
    gc.collect()
    return sum(isinstance(one, asyncio.Future) for one in gc.get_objects())


async def test_a_push_that_is_awaited_again_and_again_does_not_grow() -> None:
    """A push of days may be awaited for a second at a time."""
    async with coordinator(Service(lambda _: 86_400.0)) as pushes:
        push = await pushes.submit(request())
        before = futures()
        for _ in range(100):
            with pytest.raises(TimeoutError):
                await asyncio.wait_for(push, 1.0)

        assert futures() < before + 10


def test_a_client_polls_in_one_loop_after_another(run_on_loop: RunOnLoop) -> None:
    """Each loop gets a polling loop of its own, though the client stayed open in the one before."""

    async def session() -> str:
        async with Sandbox(companies=1, api_key="a key", port=port) as sandbox:
            company = sandbox.companies[0]
            books = client.company(company.id).connection(company.connections[0].id)
            push = await books.push("suppliers", {"supplierName": "Toft", "status": "Active"})
            return (await client.wait(push, timeout=20)).status

    client = Client("a key", f"http://127.0.0.1:{(port := unused_port())}")
    for _ in range(2):
        assert run_on_loop(session()) == "Success"


@pytest.mark.parametrize(("status", "kind"), [(401, Unauthorized), (403, Forbidden)])
async def test_a_refusal_reaches_every_waiter(
    connect: Connect, status: int, kind: type[ApiError]
) -> None:
    """No wait hangs, and none shares its error, whose traceback grows with each raise."""
    service = Service(lambda _: 5.0, answer=lambda _: refusal(status))
    client, many = await connect(service), [held(service), held(service)]
    waits = [wait_for(client, one) for one in many for _ in range(3)]
    ended = await asyncio.gather(*waits, return_exceptions=True)

    assert len({id(one) for one in ended}) == 6
    assert {type(one) for one in ended} == {kind}


@pytest.mark.parametrize("status", [429, 500])
async def test_the_services_word_on_when_to_come_back_counts(connect: Connect, status: int) -> None:
    """After an error with Retry-After nothing is asked of that company any sooner."""
    first = iter([refusal(status, Retry_After=30)])
    service = Service(lambda _: 1.0, answer=lambda _: next(first, None))
    await wait_for(await connect(service), held(service))

    earlier, later = (one.at for one in service.log)
    assert later >= earlier + 30


async def test_an_outage_is_polled_through_with_pauses_of_a_minute(connect: Connect) -> None:
    """What ended meanwhile is known a minute after the service is back."""
    service = Service(lambda _: 1.0, answer=lambda _: refusal(500) if now() < 1000 else None)
    client = await connect(service)
    await wait_for(client, held(service))
    assert service.count() < 40
    assert now() < 1000 + 65

    again, first = now(), iter([refusal(500)])
    service.answer = lambda _: next(first, None)
    await wait_for(client, held(service))
    assert now() < again + 4  # the pauses begin anew


async def test_a_list_that_was_refused_is_tried_again(connect: Connect) -> None:
    """After a minute of single reads."""
    service = Service(lambda _: 100.0)
    service.answer = lambda call: refusal(405) if call.kind == "list" and now() < 50 else None
    await wait_for_many(await connect(service), service, 5)
    first, second, *_ = service.times("list")
    assert second - first == pytest.approx(60, abs=5)


@pytest.mark.parametrize("status", [400, 403, 404, 405])
async def test_a_service_without_a_list_is_polled_singly(connect: Connect, status: int) -> None:
    """Where the list is missing or forbidden every push is read by itself, three a second."""
    service = Service(lambda record: 2.0 + record["number"] / 10)
    service.answer = lambda request: refusal(status) if request.kind == "list" else None
    await wait_for_many(await connect(service), service, 40)

    assert service.count("list") == 1
    assert now() < 20


def cut_short(asked: Asked, proceed: Proceed) -> Answer:
    """Never list the first ten pushes."""
    asked.rows.append(lambda rows: [one for one in rows if one.record["number"] >= 10])
    return proceed()


def spoilt(asked: Asked, proceed: Proceed) -> Answer:
    """List one push so that it cannot be read."""
    answer = proceed()
    if asked.kind == "list":
        page = json.loads(answer.body)
        page["results"][6]["requestedOnUtc"] = "yesterday"
        return Answer.of(page)
    return answer


@pytest.mark.parametrize(
    ("fault", "seconds"),
    [(lagging(hidden=60.0), 10), (cut_short, 8), (spoilt, 8), (lagging(late=60.0), 75)],
    ids=["new pushes are hidden", "cut short", "a bad row", "out of date"],
)
async def test_a_list_that_lacks_something_is_made_up_for(
    connect: Connect, fault: Fault, seconds: float
) -> None:
    """What it does not show is read singly; states that are old delay outcomes by that."""
    service = Service(lambda record: 2.0 + record["number"] % 2, [fault])
    ended = await wait_for_many(await connect(service), service, 20)

    assert {one.status for one in ended} == {PushStatus.SUCCESS}
    assert now() < seconds


async def test_what_a_list_leaves_out_is_read_at_once(connect: Connect) -> None:
    """Such as the data of a push that has ended, among hundreds that have not."""
    service = Service(lambda record: FOREVER if record["number"] else 30.0, list_has_data=False)
    waits = asyncio.ensure_future(wait_for_many(await connect(service), service, 800))
    await asyncio.sleep(45)
    waits.cancel()

    (read,) = service.times("get")
    assert max(at for at in service.times("list") if at < read) == pytest.approx(read, abs=0.1)


ODD = {
    "too large": b"1e400",
    "too long": b"9" * 5000,
    "not UTF-8": b'"\xff"',
    "half a character": rb'"\ud800"',
    "too large for a decimal": b"1e99999999999999999999",
}


def showing(odd: bytes, **facts: Any) -> Service:
    """Return a service that shows *odd* in place of the number 1 of a record."""

    def show(_: Asked, proceed: Proceed) -> Answer:
        answer = proceed()
        return replace(answer, body=answer.body.replace(b'"number": 1,', b'"number": %b,' % odd))

    return Service(faults=[show], **facts)


@pytest.mark.parametrize("odd", ODD)
async def test_a_push_with_a_value_that_cannot_be_read_ends_like_the_others(odd: str) -> None:
    """Its key and status can be read; its data is missing, and it says why."""
    numbers = "decimal" if "decimal" in odd else "float"
    outcomes = await run_once(showing(ODD[odd]), requests(10), numbers=numbers)

    assert statuses(outcomes) == {OutcomeStatus.SUCCESS: 10}
    operation = outcomes[1].result()
    assert operation.data is None
    assert "cannot be read" in str(operation.error_message)
    assert sum(bool(one.result().data) for one in outcomes) == 9


async def test_a_page_too_deep_to_read_does_not_stop_the_polling() -> None:
    """No push is lost by it: they are read singly."""
    deep = b"[" * 1_000_000 + b"]" * 1_000_000  # CPython 3.14 reads some 200,000
    service = showing(deep, takes=lambda record: 0.5 if record["number"] == 1 else 30.0)
    async with coordinator(service) as pushes:
        ends = [one.status async for one in pushes.run(requests(10), wait=60.0, ordered=True)]

    assert ends.pop(1) is OutcomeStatus.PENDING
    assert set(ends) == {OutcomeStatus.SUCCESS}
