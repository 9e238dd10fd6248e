"""A service whose reads lag behind its pushes: what it does not show yet, it will show soon."""

from __future__ import annotations

import asyncio
from statistics import median

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from integration_sdk.testing import run_virtual
from tests.support.budget_support import reads, unseen
from tests.support.push_support import requests
from tests.support.virtual_service import Answer, Asked, Fault, Proceed, Service, refusal

virtual = pytest.mark.virtual_time
LAG = 2.0
NO_LIST = reads(lambda _: refusal(405), "list")


def lagging(asked: Asked, proceed: Proceed) -> Answer:
    """Show what was there some time ago: a newer push is answered with 404."""
    if asked.kind == "push":
        return proceed()
    asked.at -= LAG
    answer = proceed()
    is_shown = asked.held is None or asked.held.began <= asked.at
    asked.at += LAG
    return answer if is_shown else refusal(404)


async def delays(service: Service, count: int) -> dict[int, float]:
    """Push so many records; return how long after its end each outcome came, by number."""
    loop, seen = asyncio.get_running_loop(), dict[int, float]()
    async with service.client() as client, client.coordinator() as pushes:
        async for outcome in pushes.run(requests(count)):
            held = service.by_key[str(outcome.key)]
            seen[held.record["number"]] = loop.time() - held.ends
    return seen


@virtual
@pytest.mark.parametrize("faults", [[lagging], [lagging, NO_LIST]], ids=["list", "no list"])
@pytest.mark.parametrize("count", [1, 5, 30])
@pytest.mark.parametrize("takes", [0.0, 1.0, 10.0])
async def test_a_lag_delays_outcomes_by_little_more_than_itself(
    count: int, takes: float, faults: list[Fault]
) -> None:
    """The median is known within 3 seconds of being shown, the last within 8 seconds.

    That is beside the time for three a second, since they are read singly.
    """
    seen = (await delays(Service(lambda _: takes + 0.001, faults), count)).values()

    assert median(seen) <= LAG + 3 + count / 6
    assert max(seen) <= LAG + 8 + count / 3


@settings(max_examples=30)
@given(st.floats(0.0, 40.0))
def test_a_push_is_seen_soon_after_it_shows(lag: float) -> None:
    """A read that does not show it yet counts as one that shows it Pending: no storm, no rest."""
    service = Service(lambda _: 0.0, [unseen(lag)])

    async def wait() -> float:
        async with service.client() as client:
            books = client.company("c-0").connection("books")
            await client.wait(await books.push("invoices", {}))
        return asyncio.get_running_loop().time()

    assert run_virtual(wait()) <= 1.2 * lag + 2.0
    assert len(service.log) <= 40


@virtual
async def test_pushes_that_do_not_show_delay_no_others() -> None:
    """Some that are answered with 404 for half a minute leave the company's pace as it was."""

    def hide(asked: Asked, proceed: Proceed) -> Answer:
        held = asked.held
        if held and held.record["number"] < 10 and asked.at < held.began + 30:
            return refusal(404)
        return proceed()

    async def of_others(*faults: Fault) -> list[float]:
        service = Service(lambda record: 2.0 + record["number"] % 5, [*faults, NO_LIST])
        seen = await delays(service, 20)
        return [delay for number, delay in seen.items() if number >= 10]

    assert max(await of_others(hide)) <= max(await of_others()) + 1.0


@virtual
@pytest.mark.parametrize(("times", "status"), [(1, "SUCCESS"), (2, "PENDING")])
async def test_one_404_alone_loses_no_push_that_was_there(times: int, status: str) -> None:
    """A single answer that lacks an old push proves nothing; a second in a row does."""
    missing = [refusal(404)] * times
    gone = reads(lambda asked: missing.pop() if missing and asked.at > 100 else None, "get")
    service = Service(lambda _: 300.0, [gone, NO_LIST])

    async with asyncio.timeout(3600), service.client() as client, client.coordinator() as pushes:
        outcome = await (await pushes.submit(requests(1)[0]))

    assert (outcome.status, missing) == (status, [])
