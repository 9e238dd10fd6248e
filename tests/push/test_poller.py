"""Promises of the one loop that polls for everybody."""

from __future__ import annotations

import asyncio
import json
from contextvars import ContextVar
from typing import Any

import pytest

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
from integration_sdk.models import OutcomeStatus, PushRequest, PushStatus
from tests.support.push_support import Connect, breaking, coordinator, lagging, request, swallowed
from tests.support.virtual_service import Answer, Asked, Held, Proceed, Service, refusal

pytestmark = pytest.mark.virtual_time
MOST_PAGES = 200
REMEMBERED = 4096


def held(service: Service, number: int = 0, company: str = "company") -> Held:
    return service.add(company, "books", "invoices", {"number": number})


def now() -> float:
    return asyncio.get_running_loop().time()


def polling_tasks() -> int:
    return sum(task.get_name() == "integration_sdk poller" for task in asyncio.all_tasks())


async def test_many_waiters_of_one_push_cost_what_one_costs(connect: Connect) -> None:
    """A hundred waiters of a key send no request more than one does."""
    alone, crowd = Service(lambda _: 5.0), Service(lambda _: 5.0)
    await (await connect(alone)).wait(held(alone).key, company_id="company")

    client = await connect(crowd)
    key = held(crowd).key
    ended = await asyncio.gather(*(client.wait(key, company_id="company") for _ in range(100)))

    assert {operation.status for operation in ended} == {PushStatus.SUCCESS}
    assert crowd.count() == alone.count()


async def test_ten_thousand_waits_are_one_task(connect: Connect) -> None:
    """However many pushes are awaited, one task polls for all of them, and ends with them."""
    service = Service(lambda _: 3.0)
    client = await connect(service)
    keys = [held(service, number).key for number in range(1000)]
    waits = [asyncio.ensure_future(client.wait(key, company_id="company")) for key in keys]
    await asyncio.sleep(1)

    assert polling_tasks() == 1
    await asyncio.gather(*waits)
    await asyncio.sleep(0)
    assert polling_tasks() == 0


async def test_a_late_waiter_gets_the_known_result(connect: Connect) -> None:
    """Whoever waits for a push that has ended gets the result without a request."""
    service = Service(lambda _: 1.0)
    client = await connect(service)
    key = held(service).key
    first = await client.wait(key, company_id="company")
    asked = service.count()

    assert await client.wait(key, company_id="company") is first
    assert service.count() == asked


async def test_known_results_are_bounded(connect: Connect) -> None:
    """Of finals only the latest are remembered."""
    service = Service(lambda record: 1.0 + record["number"] / 1000)
    client = await connect(service)
    keys = [held(service, number).key for number in range(REMEMBERED + 500)]
    await asyncio.gather(*(client.wait(key, company_id="company") for key in keys))
    asked = service.count()

    await client.wait(keys[-1], company_id="company")
    assert service.count() == asked
    await client.wait(keys[0], company_id="company")
    assert service.count() > asked


async def test_cancelling_a_waiter_leaves_the_others(connect: Connect) -> None:
    """A cancelled wait is that caller's affair; others of the same key go on."""
    service = Service(lambda _: 5.0)
    client = await connect(service)
    key = held(service).key
    leaves = asyncio.ensure_future(client.wait(key, company_id="company"))
    stays = asyncio.ensure_future(client.wait(key, company_id="company"))
    await asyncio.sleep(1)
    leaves.cancel()

    assert (await stays).status is PushStatus.SUCCESS
    assert leaves.cancelled()


async def test_nobody_waiting_means_nobody_polling(connect: Connect) -> None:
    """When the last waiter has gone, polling ends."""
    service = Service(lambda _: float("inf"))
    client = await connect(service)
    wait = asyncio.ensure_future(client.wait(held(service).key, company_id="company"))
    await asyncio.sleep(5)
    wait.cancel()
    await asyncio.sleep(0.1)
    asked = service.count()
    await asyncio.sleep(1000)

    assert service.count() == asked
    assert polling_tasks() == 0


async def test_a_wait_that_begins_while_polling_ends_is_served(connect: Connect) -> None:
    """A wait that begins while the last poll of the loop is on its way does not hang."""
    service = Service(lambda _: 3.0, latency=1.0)
    client = await connect(service)
    first = asyncio.ensure_future(client.wait(held(service, 0).key, company_id="company"))
    await asyncio.sleep(1.0)
    assert service.count() == 1
    first.cancel()
    await asyncio.sleep(0.1)

    assert (
        await client.wait(held(service, 1).key, company_id="company")
    ).status is PushStatus.SUCCESS


@pytest.mark.parametrize("seconds", [0.0, 0.5, 1.0, 1.2, 2.0, 3.3])
async def test_a_poll_that_somebody_cancels_is_repeated(connect: Connect, seconds: float) -> None:
    """A stranger cancelled the task of a request, begun or not: the push is polled all the same."""
    service = Service(lambda _: 3.0, latency=1.0)
    client = await connect(service)
    wait = asyncio.create_task(client.wait(held(service).key, company_id="company"))
    spared = {asyncio.current_task(), wait}
    await asyncio.sleep(seconds)
    await asyncio.sleep(0)
    await asyncio.sleep(0)
    for task in asyncio.all_tasks() - spared:
        if task.get_name() != "integration_sdk poller":
            task.cancel()

    async with asyncio.timeout(1000):
        assert (await wait).status is PushStatus.SUCCESS


async def test_an_expired_wait_says_so_and_the_push_goes_on(connect: Connect) -> None:
    """A wait that ends first raises WaitExpired at its time; a later wait finds the end."""
    service = Service(lambda _: 100.0)
    client = await connect(service)
    key = held(service).key
    began = now()
    with pytest.raises(WaitExpired, match="still Pending after 10 seconds") as caught:
        await client.wait(key, company_id="company", timeout=10)

    assert now() - began == 10
    assert caught.value.operation is None or not caught.value.operation.is_final
    assert (await client.wait(key, company_id="company")).status is PushStatus.SUCCESS


async def test_a_push_that_cannot_be_read_is_not_called_pending(
    connect: Connect, caplog: pytest.LogCaptureFixture
) -> None:
    """Where no answer can be read, the end of the wait says why, and one warning goes before."""

    def odd(request: Asked) -> Answer | None:
        body = b'{"pushOperationKey": 1, "status": "Success"}'
        return None if request.kind == "list" else Answer(status=200, body=body)

    service = Service(lambda _: 1.0, answer=odd)
    client, key = await connect(service), held(service).key
    with pytest.raises(WaitExpired, match=f"push {key} has no known end .last poll: ") as caught:
        await client.wait(key, company_id="company", timeout=30)

    assert isinstance(caught.value.__cause__, MalformedResponse)
    assert service.count("get") > 1
    assert [record.levelname for record in caplog.records] == ["WARNING"]


async def test_a_trouble_that_is_over_is_forgotten(connect: Connect) -> None:
    """A push that was read again since is Pending, whatever failed before."""
    service = Service(lambda _: 100.0)
    service.answer = lambda _: refusal(503) if now() < 5 else None
    with pytest.raises(WaitExpired, match="still Pending") as caught:
        await (await connect(service)).wait(held(service).key, company_id="company", timeout=60)

    assert caught.value.__cause__ is None


async def test_an_unknown_push_is_not_found(connect: Connect) -> None:
    """A key that the service does not know raises NotFound after one request."""
    service = Service()
    with pytest.raises(NotFound):
        await (await connect(service)).wait("no-such-key", company_id="company")
    assert service.count() == 1


async def test_a_failed_push_is_an_answer(connect: Connect) -> None:
    """Failed is returned, not raised."""
    service = Service(lambda _: 1.0, status=lambda _: "Failed")
    operation = await (await connect(service)).wait(held(service).key, company_id="company")
    assert operation.status is PushStatus.FAILED


async def test_a_crash_fails_every_waiter_and_the_next_wait_starts_afresh(connect: Connect) -> None:
    """A broken loop is a typed error for all who wait, with its cause, and no hang."""
    service = Service(lambda _: 5.0)
    crash: list[BaseException] = [ZeroDivisionError("a bug")]
    middleware = breaking(lambda _: crash[0] if crash else None)
    client = await connect(service, middlewares=[middleware])
    keys = [held(service, number, f"c-{number}").key for number in range(3)]
    waits = [client.wait(key, company_id=f"c-{number}") for number, key in enumerate(keys)]
    ended = await asyncio.gather(*waits, return_exceptions=True)

    assert [type(one) for one in ended] == [PushError] * 3
    assert all(isinstance(one.__cause__, ZeroDivisionError) for one in ended)  # type: ignore[union-attr]  # checked above

    crash.clear()
    assert (await client.wait(keys[0], company_id="c-0")).status is PushStatus.SUCCESS


async def test_a_final_state_never_changes_back(connect: Connect) -> None:
    """Whatever is said of it later, to whomever: a wait returns what came first."""
    service = Service(lambda _: 0.0)
    client, one = await connect(service), held(service)
    final = await client.wait(one.key, company_id=one.company)
    one.status = "Failed"
    again = PushRequest(one.company, one.connection, one.data_type, one.record)
    service.answer = lambda call: Answer.of(service.shown(one, call.at))
    async with client.coordinator() as pushes:
        assert (await (await pushes.submit(again))).status is OutcomeStatus.FAILED

    assert await client.wait(one.key, company_id=one.company) == final


async def test_a_hint_is_followed_at_once(connect: Connect) -> None:
    """notify() on a push that has ended wakes its waiter within one answer's time."""
    service = Service(lambda _: 300.0)
    client = await connect(service)
    push = held(service)
    wait = asyncio.ensure_future(client.wait(push.key, company_id="company"))
    await asyncio.sleep(100)
    push.ends = now()
    client.notify(push.key)
    await asyncio.sleep(0.05)

    assert wait.done()
    assert (await wait).status is PushStatus.SUCCESS


async def test_a_wrong_hint_does_no_harm(connect: Connect) -> None:
    """Hints for unknown keys, or before the time, change nothing but speed."""
    service = Service(lambda _: 20.0)
    client = await connect(service)
    push = held(service)
    wait = asyncio.ensure_future(client.wait(push.key, company_id="company"))
    for _ in range(10):
        await asyncio.sleep(1)
        client.notify(push.key)
        client.notify("nobody's")

    assert (await wait).status is PushStatus.SUCCESS
    assert now() < 25


async def test_closing_tells_who_waits(connect: Connect, caplog: pytest.LogCaptureFixture) -> None:
    """The loop ends, each waiter gets a ClientClosed of its own, and nothing is logged as a bug."""
    service = Service(lambda _: float("inf"))
    client = await connect(service)
    waits = [
        asyncio.ensure_future(client.wait(one.key, company_id=one.company))
        for one in (held(service, number, f"c-{number}") for number in range(2))
    ]
    await asyncio.sleep(5)
    await client.aclose()
    ended = await asyncio.gather(*waits, return_exceptions=True)

    assert [type(one) for one in ended] == [ClientClosed] * 2
    assert ended[0] is not ended[1]
    assert polling_tasks() == 0
    assert not caplog.records


async def test_polls_are_nobodys_calls(connect: Connect) -> None:
    """The loop outlives the call that starts it, and has nothing of its context."""
    whose: ContextVar[str] = ContextVar("whose", default="nobody")
    seen: list[str] = []
    service = Service(lambda _: 2.0)
    service.answer = lambda _: seen.append(whose.get())
    client = await connect(service)
    whose.set("the first caller")
    await client.wait(held(service).key, company_id="company")

    assert set(seen) == {"nobody"}


@pytest.mark.parametrize("status", [400, 403, 404, 405])
async def test_a_service_without_a_list_is_polled_singly(connect: Connect, status: int) -> None:
    """Where the list is missing or forbidden every push is read by itself, three a second."""
    service = Service(lambda record: 2.0 + record["number"] / 10)
    service.answer = lambda request: refusal(status) if request.kind == "list" else None
    client = await connect(service)
    keys = [held(service, number).key for number in range(40)]
    ended = await asyncio.gather(*(client.wait(key, company_id="company") for key in keys))

    assert all(operation.status is PushStatus.SUCCESS for operation in ended)
    assert service.count("list") == 1
    assert now() < 20


async def test_a_list_that_lags_is_made_up_for(connect: Connect) -> None:
    """Pushes that a lagging list does not show yet are read singly."""
    service = Service(lambda _: 2.0, [lagging(hidden=60.0)])
    client = await connect(service)
    keys = [held(service, number).key for number in range(10)]
    await asyncio.gather(*(client.wait(key, company_id="company") for key in keys))

    assert now() < 8


async def test_a_list_that_is_cut_short_is_made_up_for(connect: Connect) -> None:
    """Pushes that the list never shows are read singly."""
    service = Service(lambda _: 2.0)
    client = await connect(service)
    keys = [held(service, number).key for number in range(20)]
    service.pushes["company"] = service.pushes["company"][10:]
    await asyncio.gather(*(client.wait(key, company_id="company") for key in keys))

    assert now() < 8


async def test_a_list_whose_states_are_out_of_date_delays_outcomes_by_that(
    connect: Connect,
) -> None:
    """Pushes that the list shows as Pending for another minute are known a little later."""
    faults = [lagging(late=60.0)]
    service = Service(lambda record: 3.0 + record["number"] % 5, faults)
    client = await connect(service)
    keys = [held(service, number).key for number in range(20)]
    await asyncio.gather(*(client.wait(key, company_id="company") for key in keys))

    assert now() < 75


async def test_data_is_fetched_singly_where_a_list_lacks_it(connect: Connect) -> None:
    """A waiter gets ``data`` even where the list of pushes does not hold it."""
    service = Service(lambda _: 2.0, list_has_data=False)
    client = await connect(service)
    keys = [held(service, number).key for number in range(10)]
    ended = await asyncio.gather(*(client.wait(key, company_id="company") for key in keys))

    assert all(operation.data and "id" in operation.data for operation in ended)
    assert 10 <= service.count("get") <= 13


@pytest.mark.parametrize(("status", "kind"), [(401, Unauthorized), (403, Forbidden)])
async def test_a_refusal_reaches_the_waiter(
    connect: Connect, status: int, kind: type[Exception]
) -> None:
    """An account that may not ask is told so; its waits do not hang."""
    service = Service(lambda _: 5.0)
    service.answer = lambda _: refusal(status)
    with pytest.raises(kind):
        await (await connect(service)).wait(held(service).key, company_id="company")


@pytest.mark.parametrize("status", [401, 403])
async def test_every_waiter_has_an_error_of_its_own(connect: Connect, status: int) -> None:
    """A traceback grows with each raise: waiters of one push, or of many, share no error."""
    service = Service(lambda _: 5.0)
    service.answer = lambda _: refusal(status)
    client = await connect(service)
    keys = [held(service).key, held(service).key]
    waits = [client.wait(key, company_id="company") for key in keys for _ in range(3)]
    ended = await asyncio.gather(*waits, return_exceptions=True)

    assert len({id(one) for one in ended}) == 6
    assert {one.status for one in ended if isinstance(one, ApiError)} == {status}


@pytest.mark.parametrize("status", [429, 500])
async def test_the_services_word_on_when_to_come_back_counts(connect: Connect, status: int) -> None:
    """After an error with Retry-After nothing is asked of that company any sooner."""
    first = iter([refusal(status, Retry_After=30)])
    service = Service(lambda _: 1.0, answer=lambda _: next(first, None))
    await (await connect(service)).wait(held(service).key, company_id="company")

    polls = [one.at for one in service.log]
    assert len(polls) == 2
    assert polls[1] >= polls[0] + 30


async def test_failing_polls_come_less_often(connect: Connect) -> None:
    """A service that answers nothing but 500 is asked ever more rarely, and recovers."""
    service = Service(lambda _: 1.0)
    service.answer = lambda _: refusal(500) if now() < 600 else None
    await (await connect(service)).wait(held(service).key, company_id="company")

    assert service.count() < 40
    assert now() < 700


async def test_one_bad_row_does_not_spoil_a_page(connect: Connect, caplog: Any) -> None:
    """A row that cannot be read is read singly; the others of its page are believed."""
    service = Service(lambda _: 2.0)
    client = await connect(service)
    keys = [held(service, number).key for number in range(10)]

    def spoil(asked: Asked, proceed: Proceed) -> Answer:
        answer = proceed()
        if asked.kind == "list":
            page = json.loads(answer.body)
            page["results"][6]["requestedOnUtc"] = "yesterday"
            answer = Answer.of(page)
        return answer

    service.faults = [spoil]
    ended = await asyncio.gather(*(client.wait(key, company_id="company") for key in keys))

    assert len(ended) == 10
    assert now() < 8


@pytest.mark.parametrize(
    ("pages", "verdict"),
    [(MOST_PAGES, "does not show it"), (MOST_PAGES + 1, "does not settle whether it exists")],
)
async def test_a_list_without_end_is_read_so_far_and_no_further(pages: int, verdict: str) -> None:
    """Searched for what is lost, a list is read for its most pages, whole if it ends there."""

    def one_a_page(asked: Asked, proceed: Proceed) -> Answer:
        asked.largest = 1
        return proceed()

    service = Service(faults=[swallowed, one_a_page])
    async with coordinator(service, patience=2.0) as pushes:
        push = await pushes.submit(request())
        for _ in range(pages):
            service.add("c-0", "another")
        outcome = await push

    assert verdict in str(outcome.error)
    last = service.log[-MOST_PAGES:]
    assert [asked.params["page"] for asked in last] == [str(1 + n) for n in range(MOST_PAGES)]


@pytest.mark.parametrize("turns", range(6))
async def test_a_wait_that_begins_as_the_loop_ends_is_served(connect: Connect, turns: int) -> None:
    """Whatever moment it comes at, a push is polled."""
    service = Service(lambda _: 1.0)
    client = await connect(service)
    first, second = held(service, 1), held(service, 2)
    await asyncio.sleep(10)

    await client.wait(first.key, company_id="company")
    for _ in range(turns):
        await asyncio.sleep(0)
    ended = await client.wait(second.key, company_id="company", timeout=60)

    assert ended.status is PushStatus.SUCCESS


async def test_an_answer_about_another_push_is_not_believed(connect: Connect) -> None:
    """A cache's mix-up tells nobody of a state that is not its push's; it is polled again."""
    mixed_up = 2

    def answer(call: Asked) -> Answer | None:
        nonlocal mixed_up
        if call.kind != "get" or not mixed_up:
            return None
        mixed_up -= 1
        return Answer.of(service.shown(other, call.at))

    service = Service(lambda record: 1.0 if record["number"] else 20.0, answer=answer)
    mine, other = held(service, 0), held(service, 1)
    await asyncio.sleep(2)

    ended = await (await connect(service)).wait(mine.key, company_id="company")

    assert not mixed_up
    assert (ended.key, ended.status) == (mine.key, PushStatus.SUCCESS)
    assert now() >= 20
