"""How often a push that stays in doubt is searched for, while the service goes on for months."""

from __future__ import annotations

import asyncio

import pytest

from integration_sdk.models import OutcomeStatus
from tests.support.push_support import Connect, coordinator, listed, request, searches, swallowed
from tests.support.virtual_service import Service

DAY = 86_400
HOUR = 3600


@pytest.mark.virtual_time
@pytest.mark.parametrize("notified", [True, False])
async def test_a_doubt_that_nobody_decides_costs_less_and_less(
    connect: Connect, notified: bool
) -> None:
    """Others push all day, and each search goes back over all of that: a quota is soon spent."""
    service = Service(faults=[swallowed])
    lists = [0]
    client = await connect(service)
    async with client.coordinator() as pushes:
        outcome = await (await pushes.submit(request()))
        for _ in range(4):
            before = searches(service)
            for each in range(DAY // (10 if notified else 300)):
                if notified:
                    pushes.notify(f"push-{each}-of-another-process")
                    await asyncio.sleep(10)
                else:
                    await asyncio.gather(listed(client, service), asyncio.sleep(300))
            lists.append(searches(service) - before)

    assert outcome.status is OutcomeStatus.IN_DOUBT
    assert max(lists) <= 200


@pytest.mark.virtual_time
async def test_a_push_that_turns_up_hours_later_is_found() -> None:
    """Rarer is not never: it is found when its time in doubt has grown by a tenth."""
    service = Service(faults=[swallowed])
    async with coordinator(service) as pushes:
        push = await pushes.submit(request())
        await push
        service.faults.clear()
        for _ in range(10):
            pushes.notify("another process's")
            await asyncio.sleep(HOUR)
        late = service.add(record={"number": 0})
        await asyncio.sleep(5)
        pushes.notify(late.key)
        await asyncio.sleep(1.1 * HOUR)

        assert push.operation is not None
        assert (push.key, push.operation.status) == (late.key, "Success")


@pytest.mark.virtual_time
async def test_notifications_in_a_row_begin_one_search() -> None:
    """The one that waits for its time serves all that come until then."""
    service = Service(faults=[swallowed])
    async with coordinator(service) as pushes:
        await (await pushes.submit(request()))
        await asyncio.sleep(100)
        before, searches = service.count("list"), []
        for _ in range(30):
            pushes.notify("another process's")
            await asyncio.sleep(1)
            searches.append(service.count("list") - before)

    assert 2 <= searches[-1] <= 4
