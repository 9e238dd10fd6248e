"""Promises of the one loop that polls for everybody."""

from __future__ import annotations

import asyncio
from contextvars import ContextVar
from typing import Any

import pytest
from attrs import evolve
from msgspec import structs

from integration_sdk._http.requests import Request
from integration_sdk._http.responses import Response
from integration_sdk._push.poller import REMEMBERED
from integration_sdk._push.table import new_row
from integration_sdk._push.wire import MOST_PAGES, Wire
from integration_sdk._store.row import Lane, Row, Snapshot
from integration_sdk.errors import (
    ApiError,
    ClientClosed,
    Forbidden,
    MalformedResponse,
    NotFound,
    PollingStopped,
    ServiceUnavailable,
    Unauthorized,
    WaitExpired,
)
from integration_sdk.models import PushStatus
from tests.push_model import Held, Model, error
from tests.push_support import DOCUMENT, poller

pytestmark = pytest.mark.virtual_time


def held(model: Model, number: int = 0, company: str = "company") -> Held:
    return model.add(company, "books", "invoices", {"number": number})


def now() -> float:
    return asyncio.get_running_loop().time()


def polling_tasks() -> int:
    return sum(task.get_name() == "integration_sdk poller" for task in asyncio.all_tasks())


async def test_many_waiters_of_one_push_cost_what_one_costs() -> None:
    """A hundred waiters of a key send no request more than one does."""
    alone, crowd = Model(lambda _: 5.0), Model(lambda _: 5.0)
    await poller(alone).wait("company", held(alone).key)

    polls = poller(crowd)
    key = held(crowd).key
    ended = await asyncio.gather(*(polls.wait("company", key) for _ in range(100)))

    assert {operation.status for operation in ended} == {PushStatus.SUCCESS}
    assert crowd.counts == alone.counts


async def test_ten_thousand_waits_are_one_task() -> None:
    """However many pushes are awaited, one task polls for all of them, and ends with them."""
    model = Model(lambda _: 3.0)
    polls = poller(model)
    keys = [held(model, number).key for number in range(1000)]
    waits = [asyncio.ensure_future(polls.wait("company", key)) for key in keys]
    await asyncio.sleep(1)

    assert polling_tasks() == 1
    await asyncio.gather(*waits)
    await asyncio.sleep(0)
    assert polling_tasks() == 0


async def test_a_late_waiter_gets_the_known_result() -> None:
    """Whoever waits for a push that has ended gets the result without a request."""
    model = Model(lambda _: 1.0)
    polls = poller(model)
    key = held(model).key
    first = await polls.wait("company", key)
    asked = model.counts.total()

    assert await polls.wait("company", key) is first
    assert model.counts.total() == asked


async def test_known_results_are_bounded() -> None:
    """Of finals only the latest are remembered."""
    model = Model(lambda record: 1.0 + record["number"] / 1000)
    polls = poller(model)
    keys = [held(model, number).key for number in range(REMEMBERED + 500)]
    await asyncio.gather(*(polls.wait("company", key) for key in keys))
    asked = model.counts.total()

    await polls.wait("company", keys[-1])
    assert model.counts.total() == asked
    await polls.wait("company", keys[0])
    assert model.counts.total() > asked


async def test_cancelling_a_waiter_leaves_the_others() -> None:
    """A cancelled wait is that caller's affair; others of the same key go on."""
    model = Model(lambda _: 5.0)
    polls = poller(model)
    key = held(model).key
    leaves = asyncio.ensure_future(polls.wait("company", key))
    stays = asyncio.ensure_future(polls.wait("company", key))
    await asyncio.sleep(1)
    leaves.cancel()

    assert (await stays).status is PushStatus.SUCCESS
    assert leaves.cancelled()


async def test_nobody_waiting_means_nobody_polling() -> None:
    """When the last waiter has gone, polling ends."""
    model = Model(lambda _: float("inf"))
    polls = poller(model)
    wait = asyncio.ensure_future(polls.wait("company", held(model).key))
    await asyncio.sleep(5)
    wait.cancel()
    await asyncio.sleep(0.1)
    asked = model.counts.total()
    await asyncio.sleep(1000)

    assert model.counts.total() == asked
    assert polling_tasks() == 0


async def test_a_wait_that_begins_while_polling_ends_is_served() -> None:
    """A wait that begins while the last poll of the loop is on its way does not hang."""
    model = Model(lambda _: 3.0, latency=1.0)
    polls = poller(model)
    first = asyncio.ensure_future(polls.wait("company", held(model, 0).key))
    await asyncio.sleep(1.0)
    assert model.counts.total() == 1
    first.cancel()
    await asyncio.sleep(0.1)

    assert (await polls.wait("company", held(model, 1).key)).status is PushStatus.SUCCESS


@pytest.mark.parametrize("seconds", [0.0, 0.5, 1.0, 1.2, 2.0, 3.3])
async def test_a_poll_that_somebody_cancels_is_repeated(seconds: float) -> None:
    """A stranger cancelled the task of a request, begun or not: the push is polled all the same."""
    model = Model(lambda _: 3.0, latency=1.0)
    polls = poller(model)
    wait = asyncio.create_task(polls.wait("company", held(model).key))
    spared = {asyncio.current_task(), wait}
    await asyncio.sleep(seconds)
    await asyncio.sleep(0)
    await asyncio.sleep(0)
    for task in asyncio.all_tasks() - spared:
        if task.get_name() != "integration_sdk poller":
            task.cancel()

    async with asyncio.timeout(1000):
        assert (await wait).status is PushStatus.SUCCESS


async def test_an_expired_wait_says_so_and_the_push_goes_on() -> None:
    """A wait that ends first raises WaitExpired at its time; a later wait finds the end."""
    model = Model(lambda _: 100.0)
    polls = poller(model)
    key = held(model).key
    began = now()
    with pytest.raises(WaitExpired, match="still Pending after 10 seconds") as caught:
        await polls.wait("company", key, timeout=10)

    assert now() - began == 10
    assert caught.value.operation is None or not caught.value.operation.is_final
    assert (await polls.wait("company", key)).status is PushStatus.SUCCESS


async def test_a_push_that_cannot_be_read_is_not_called_pending(
    caplog: pytest.LogCaptureFixture,
) -> None:
    """Where no answer can be read, the end of the wait says why, and one warning goes before."""

    def odd(request: Request) -> Response | None:
        body = b'{"pushOperationKey": 1, "status": "Success"}'
        return None if request.operation == "pushes.list" else Response(status=200, body=body)

    model = Model(lambda _: 1.0, answer=odd)
    polls, key = poller(model), held(model).key
    with pytest.raises(WaitExpired, match=f"push {key} has no known end .last poll: ") as caught:
        await polls.wait("company", key, timeout=30)

    assert isinstance(caught.value.__cause__, MalformedResponse)
    assert model.counts["pushes.get"] > 1
    assert [record.levelname for record in caplog.records] == ["WARNING"]


async def test_a_trouble_that_is_over_is_forgotten() -> None:
    """A push that was read again since is Pending, whatever failed before."""
    model = Model(lambda _: 100.0)
    model.answer = lambda _: ServiceUnavailable("away", status=503) if now() < 5 else None
    with pytest.raises(WaitExpired, match="still Pending") as caught:
        await poller(model).wait("company", held(model).key, timeout=60)

    assert caught.value.__cause__ is None


async def test_a_push_that_a_list_has_shown_since_is_pending() -> None:
    """It was read alone in vain; then others came, and the list that is read now shows it."""
    model = Model(lambda _: 1000.0)
    away = ServiceUnavailable("away", status=503)
    model.answer = lambda request: away if request.operation == "pushes.get" else None
    polls, key = poller(model), held(model).key
    first = asyncio.ensure_future(polls.wait("company", key, timeout=60))
    await asyncio.sleep(5)
    assert polls.trouble(key) is not None
    others = [
        asyncio.ensure_future(polls.wait("company", held(model, number).key, timeout=100))
        for number in range(1, 50)
    ]
    with pytest.raises(WaitExpired, match="still Pending"):
        await first

    assert model.counts["pushes.list"] > 0
    for other in others:
        other.cancel()
    await asyncio.gather(*others, return_exceptions=True)


async def test_an_unknown_push_is_not_found() -> None:
    """A key that the service does not know raises NotFound after one request."""
    model = Model()
    with pytest.raises(NotFound):
        await poller(model).wait("company", "no-such-key")
    assert model.counts.total() == 1


async def test_a_failed_push_is_an_answer() -> None:
    """Failed is returned, not raised."""
    model = Model(lambda _: 1.0, status=lambda _: "Failed")
    operation = await poller(model).wait("company", held(model).key)
    assert operation.status is PushStatus.FAILED


async def test_a_crash_fails_every_waiter_and_the_next_wait_starts_afresh() -> None:
    """A broken loop is a typed error for all who wait, with its cause, and no hang."""
    model = Model(lambda _: 5.0)
    crash: list[BaseException] = [ZeroDivisionError("a bug")]
    model.answer = lambda _: crash[0] if crash else None
    polls = poller(model)
    keys = [held(model, number, f"company-{number}").key for number in range(3)]
    waits = [polls.wait(f"company-{number}", key) for number, key in enumerate(keys)]
    ended = await asyncio.gather(*waits, return_exceptions=True)

    assert [type(one) for one in ended] == [PollingStopped] * 3
    assert all(isinstance(one.__cause__, ZeroDivisionError) for one in ended)  # type: ignore[union-attr]  # checked above

    crash.clear()
    assert (await polls.wait("company-0", keys[0])).status is PushStatus.SUCCESS


async def test_a_final_state_never_changes_back() -> None:
    """An answer that is older than the final one changes nothing."""
    model = Model(lambda _: 1.0)
    polls = poller(model)
    key = held(model).key
    final = await polls.wait("company", key)
    model.by_key[key].status = "Failed"
    polls.remember(evolve(final, status=PushStatus.FAILED))

    assert (await polls.wait("company", key)).status is PushStatus.SUCCESS


async def test_a_hint_is_followed_at_once() -> None:
    """notify() on a push that has ended wakes its waiter within one answer's time."""
    model = Model(lambda _: 300.0)
    polls = poller(model)
    push = held(model)
    wait = asyncio.ensure_future(polls.wait("company", push.key))
    await asyncio.sleep(100)
    push.ends = now()
    polls.notify(push.key)
    await asyncio.sleep(0.05)

    assert wait.done()
    assert (await wait).status is PushStatus.SUCCESS


async def test_a_wrong_hint_does_no_harm() -> None:
    """Hints for unknown keys, or before the time, change nothing but speed."""
    model = Model(lambda _: 20.0)
    polls = poller(model)
    push = held(model)
    wait = asyncio.ensure_future(polls.wait("company", push.key))
    for _ in range(10):
        await asyncio.sleep(1)
        polls.notify(push.key)
        polls.notify("nobody's")

    assert (await wait).status is PushStatus.SUCCESS
    assert now() < 25


async def test_closing_tells_who_waits() -> None:
    """aclose() ends the loop, and waiters get ClientClosed."""
    model = Model(lambda _: float("inf"))
    polls = poller(model)
    wait = asyncio.ensure_future(polls.wait("company", held(model).key))
    await asyncio.sleep(1)
    await polls.aclose()

    with pytest.raises(ClientClosed):
        await wait
    assert polling_tasks() == 0


async def test_a_client_that_is_closed_is_no_broken_loop(
    caplog: pytest.LogCaptureFixture,
) -> None:
    """Whoever waits gets ClientClosed, as from any other call, and nothing is logged as a bug."""
    closed = False
    model = Model(lambda _: 60.0)
    model.answer = lambda _: ClientClosed("the client is closed") if closed else None
    polls = poller(model)
    keys = [held(model, number, f"company-{number}").key for number in range(2)]
    waits = [
        asyncio.ensure_future(polls.wait(f"company-{number}", key))
        for number, key in enumerate(keys)
    ]
    await asyncio.sleep(5)
    closed = True
    ended = await asyncio.gather(*waits, return_exceptions=True)

    assert [type(one) for one in ended] == [ClientClosed] * 2
    assert ended[0] is not ended[1]
    assert not caplog.records


async def test_polls_are_nobodys_calls() -> None:
    """The loop outlives the call that starts it, and has nothing of its context."""
    whose: ContextVar[str] = ContextVar("whose", default="nobody")
    seen: list[str] = []
    model = Model(lambda _: 2.0)
    model.answer = lambda _: seen.append(whose.get())
    polls = poller(model)
    whose.set("the first caller")
    await polls.wait("company", held(model).key)

    assert set(seen) == {"nobody"}


@pytest.mark.parametrize("status", [400, 403, 404, 405])
async def test_a_service_without_a_list_is_polled_singly(status: int) -> None:
    """Where the list is missing or forbidden every push is read by itself, three a second."""
    model = Model(lambda record: 2.0 + record["number"] / 10)
    model.answer = lambda request: error(status) if request.operation == "pushes.list" else None
    polls = poller(model)
    keys = [held(model, number).key for number in range(40)]
    ended = await asyncio.gather(*(polls.wait("company", key) for key in keys))

    assert all(operation.status is PushStatus.SUCCESS for operation in ended)
    assert model.counts["pushes.list"] == 1
    assert now() < 20


async def test_a_list_that_lags_is_made_up_for() -> None:
    """Pushes that a lagging list does not show yet are read singly."""
    model = Model(lambda _: 2.0, list_lag=60.0)
    polls = poller(model)
    keys = [held(model, number).key for number in range(10)]
    await asyncio.gather(*(polls.wait("company", key) for key in keys))

    assert now() < 8


async def test_a_list_that_is_cut_short_is_made_up_for() -> None:
    """Pushes that the list never shows are read singly."""
    model = Model(lambda _: 2.0)
    polls = poller(model)
    keys = [held(model, number).key for number in range(20)]
    model.pushes["company"] = model.pushes["company"][10:]
    await asyncio.gather(*(polls.wait("company", key) for key in keys))

    assert now() < 8


async def test_a_list_whose_states_are_out_of_date_delays_outcomes_by_that() -> None:
    """Pushes that the list shows as Pending for another minute are known a little later."""
    model = Model(lambda record: 3.0 + record["number"] % 5, state_lag=60.0)
    polls = poller(model)
    keys = [held(model, number).key for number in range(20)]
    await asyncio.gather(*(polls.wait("company", key) for key in keys))

    assert now() < 75


async def test_data_is_fetched_singly_where_a_list_lacks_it() -> None:
    """A waiter gets ``data`` even where the list of pushes does not hold it."""
    model = Model(lambda _: 2.0, list_has_data=False)
    polls = poller(model)
    keys = [held(model, number).key for number in range(10)]
    ended = await asyncio.gather(*(polls.wait("company", key) for key in keys))

    assert all(operation.data and "id" in operation.data for operation in ended)
    assert 10 <= model.counts["pushes.get"] <= 13


@pytest.mark.parametrize(("status", "kind"), [(401, Unauthorized), (403, Forbidden)])
async def test_a_refusal_reaches_the_waiter(status: int, kind: type[Exception]) -> None:
    """An account that may not ask is told so; its waits do not hang."""
    model = Model(lambda _: 5.0)
    model.answer = lambda _: error(status)
    with pytest.raises(kind):
        await poller(model).wait("company", held(model).key)


@pytest.mark.parametrize("status", [401, 403])
async def test_every_waiter_has_an_error_of_its_own(status: int) -> None:
    """A traceback grows with each raise: waiters of one push, or of many, share no error."""
    model = Model(lambda _: 5.0)
    model.answer = lambda _: error(status)
    polls = poller(model)
    keys = [held(model).key, held(model).key]
    waits = [polls.wait("company", key) for key in keys for _ in range(3)]
    ended = await asyncio.gather(*waits, return_exceptions=True)

    assert len({id(one) for one in ended}) == 6
    assert {one.status for one in ended if isinstance(one, ApiError)} == {status}


async def test_the_services_word_on_when_to_come_back_counts() -> None:
    """After a 429 with Retry-After nothing is asked of that company any sooner."""
    model = Model(lambda _: 1.0)
    asked: list[float] = []

    def answer(request: Request) -> Response | None:
        asked.append(now())
        return error(429, after=30) if len(asked) == 1 else None

    model.answer = answer
    await poller(model).wait("company", held(model).key)

    assert len(asked) == 2
    assert asked[1] >= asked[0] + 30


async def test_failing_polls_come_less_often() -> None:
    """A service that answers nothing but 500 is asked ever more rarely, and recovers."""
    model = Model(lambda _: 1.0)
    model.answer = lambda _: error(500) if now() < 600 else None
    await poller(model).wait("company", held(model).key)

    assert model.counts.total() < 40
    assert now() < 700


async def test_one_bad_row_does_not_spoil_a_page(caplog: Any) -> None:
    """A row that cannot be read is read singly; the others of its page are believed."""
    model = Model(lambda _: 2.0)
    polls = poller(model)
    keys = [held(model, number).key for number in range(10)]
    shown = model.shown

    def spoilt(one: Held, **options: Any) -> dict[str, Any]:
        row = shown(one, **options)
        if options.get("listed") and one.key == keys[3]:
            row["requestedOnUtc"] = "yesterday"
        return row

    model.shown = spoilt  # type: ignore[method-assign, assignment]  # one bad row
    ended = await asyncio.gather(*(polls.wait("company", key) for key in keys))

    assert len(ended) == 10
    assert now() < 8


def sent_after(keys: list[str]) -> Row:
    """Return the row of a push before which these keys were listed."""
    row = new_row(Lane("company", "books", "invoices"), b"{}", id="row")
    return structs.replace(row, snapshot=Snapshot(frozenset(keys)))


async def test_a_list_is_read_once_for_snapshots_of_different_depth() -> None:
    """What any snapshot lacks is read in full, what all hold by its key, in one request."""
    model = Model()
    keys = [held(model, number).key for number in range(6)]
    rows = [sent_after(keys[:4]), sent_after(keys[:2])]
    listing = await Wire(model, DOCUMENT).list_back_to("company", rows)

    assert model.counts["pushes.list"] == 1
    assert listing is not None
    assert listing.keys == keys[::-1]
    assert [one.data is not None for one in listing.operations] == [True] * 4 + [False] * 2


@pytest.mark.parametrize(("pages", "whole"), [(MOST_PAGES, True), (MOST_PAGES + 1, False)])
async def test_a_list_without_end_is_read_so_far_and_no_further(pages: int, whole: bool) -> None:
    """Where the snapshot is not met, a list is read for its most pages, whole if it ends there."""
    model = Model(largest_page=1)
    for number in range(pages):
        held(model, number)
    listing = await Wire(model, DOCUMENT).list_back_to("company", [sent_after(["long gone"])])

    assert listing is not None
    assert (len(listing.keys), listing.whole) == (MOST_PAGES, whole)
    assert model.counts["pushes.list"] == MOST_PAGES


async def test_a_snapshot_is_keys_alone() -> None:
    """Without a known key nothing is read in full."""
    model = Model()
    keys = [held(model, number).key for number in range(3)]
    before = await Wire(model, DOCUMENT).snapshot("company")

    assert before is not None
    assert before.keys == keys[::-1]
    assert [one.data for one in before.operations] == [None] * 3


@pytest.mark.parametrize("turns", range(6))
async def test_a_wait_that_begins_as_the_loop_ends_is_served(turns: int) -> None:
    """Whatever moment it comes at, a push is polled."""
    model = Model(lambda _: 1.0)
    polls = poller(model)
    first, second = held(model, 1), held(model, 2)
    await asyncio.sleep(10)

    await polls.wait("company", first.key)
    for _ in range(turns):
        await asyncio.sleep(0)
    ended = await polls.wait("company", second.key, timeout=60)

    assert ended.status is PushStatus.SUCCESS


async def test_an_answer_about_another_push_is_not_believed() -> None:
    """A cache's mix-up tells nobody of a state that is not its push's; it is polled again."""
    mixed_up = 2

    def answer(call: Request) -> Response | None:
        nonlocal mixed_up
        if call.operation != "pushes.get" or not mixed_up:
            return None
        mixed_up -= 1
        return model.ok(model.shown(other))

    model = Model(lambda record: 1.0 if record["number"] else 20.0, answer=answer)
    mine, other = held(model, 0), held(model, 1)
    await asyncio.sleep(2)

    ended = await poller(model).wait("company", mine.key)

    assert not mixed_up
    assert (ended.key, ended.status) == (mine.key, PushStatus.SUCCESS)
    assert now() >= 20
