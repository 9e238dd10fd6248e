"""How often a push that stays in doubt is searched for, while the service goes on for months."""

from __future__ import annotations

import asyncio

import pytest

from integration_sdk._http.requests import Request
from integration_sdk.errors import AnswerLost
from integration_sdk.models import OutcomeStatus
from tests.push_model import Model, request
from tests.push_support import coordinator, poller

DAY = 86_400
HOUR = 3600


def losing(model: Model) -> None:
    """Let the answers of all pushes be lost, and the pushes with them."""

    def answer(call: Request) -> AnswerLost | None:
        return AnswerLost("reset") if call.operation == "push.create" else None

    model.answer = answer


@pytest.mark.virtual_time
@pytest.mark.parametrize("notified", [True, False])
async def test_a_doubt_that_nobody_decides_costs_less_and_less(notified: bool) -> None:
    """Others push all day, and each search goes back over all of that: a quota is soon spent."""
    model = Model()
    losing(model)
    polls = poller(model)
    lists = [0]
    async with coordinator(model, polls=polls) as pushes:
        outcome = await (await pushes.submit(request()))
        for _ in range(4):
            before = model.counts["pushes.list"]
            for each in range(DAY // 10):
                if notified:
                    pushes.notify(f"push-{each}-of-another-process")
                else:
                    polls.listed("company-0")
                await asyncio.sleep(10)
            lists.append(model.counts["pushes.list"] - before)

    assert outcome.status is OutcomeStatus.IN_DOUBT
    assert lists[1] < 120
    assert all(later < 10 for later in lists[2:])


@pytest.mark.virtual_time
async def test_a_push_that_turns_up_hours_later_is_found() -> None:
    """Rarer is not never: it is found when its time in doubt has grown by a tenth."""
    model = Model()
    losing(model)
    async with coordinator(model) as pushes:
        push = await pushes.submit(request())
        await push
        model.answer = None
        for _ in range(10):
            pushes.notify("another process's")
            await asyncio.sleep(HOUR)
        late = model.add("company-0", "connection-0", "invoices", {"number": 0})
        await asyncio.sleep(5)
        pushes.notify(late.key)
        await asyncio.sleep(1.1 * HOUR)

        assert push.operation is not None
        assert (push.key, push.operation.status) == (late.key, "Success")


@pytest.mark.virtual_time
async def test_a_new_doubt_is_searched_for_as_often_as_the_first() -> None:
    """The pushes of a company are searched for together, at the pace of the youngest."""
    model = Model()
    losing(model)
    polls = poller(model)

    async def listed_after(seconds: float) -> int:
        """Let polls list the company after so long; return the searches that this begins."""
        await asyncio.sleep(seconds)
        before = model.counts["pushes.list"]
        polls.listed("company-0")
        await asyncio.sleep(1)
        return model.counts["pushes.list"] - before

    async with coordinator(model, polls=polls) as pushes:
        await (await pushes.submit(request(0)))
        assert [await listed_after(seconds) for seconds in (1000, 90, 110)] == [1, 0, 1]
        await (await pushes.submit(request(1)))
        assert [await listed_after(seconds) for seconds in (0, 28, 2)] == [1, 0, 1]


@pytest.mark.virtual_time
async def test_notifications_in_a_row_begin_one_search() -> None:
    """The one that waits for its time serves all that come until then."""
    model = Model()
    losing(model)
    async with coordinator(model) as pushes:
        await (await pushes.submit(request()))
        await asyncio.sleep(100)
        before, searches = model.counts["pushes.list"], []
        for _ in range(30):
            pushes.notify("another process's")
            await asyncio.sleep(1)
            searches.append(model.counts["pushes.list"] - before)

    assert searches[:10] == [1] * 10
    assert 3 <= searches[-1] <= 4
