"""A service whose reads lag behind its pushes: what it does not show yet, it will show soon."""

from __future__ import annotations

import asyncio
from statistics import median

import pytest
from hypothesis import given
from hypothesis import strategies as st

from integration_sdk._http.requests import Request
from integration_sdk._http.responses import Response
from integration_sdk._push.schedule import Schedule
from tests.push_model import Model, error
from tests.push_support import coordinator, requests

pytestmark = pytest.mark.virtual_time
LAG = 2.0


class Lagging(Model):
    """Reads show what was there *lag* seconds ago: a newer push is answered with 404."""

    def _get(self, request: Request) -> Response:
        held = self.by_key.get(request.path.rsplit("/", 1)[-1])
        if held is None or held.began > self.now() - self.list_lag:
            return error(404)
        return self.ok(self.shown(held, at=self.now() - self.list_lag))


@pytest.mark.parametrize("has_list", [True, False])
@pytest.mark.parametrize("count", [1, 5, 30])
@pytest.mark.parametrize("takes", [0.0, 1.0, 10.0])
async def test_a_lag_delays_outcomes_by_little_more_than_itself(
    count: int, takes: float, has_list: bool
) -> None:
    """The median is known within 3 seconds of being shown, the last within 8 seconds.

    That is beside the time for three a second, since they are read singly.
    """
    model = Lagging(lambda _: takes + 0.001, list_lag=LAG)
    if not has_list:
        model.answer = lambda asked: error(405) if asked.operation == "pushes.list" else None
    loop, delays = asyncio.get_running_loop(), list[float]()

    async with coordinator(model) as pushes:
        async for outcome in pushes.run(requests(count)):
            delays.append(loop.time() - model.by_key[str(outcome.key)].ends)

    assert median(delays) <= LAG + 3 + count / 6
    assert max(delays) <= LAG + 8 + count / 3


@given(st.floats(0.0, 40.0), st.floats(0.0, 1.0))
def test_a_push_is_seen_soon_after_it_shows(lag: float, chance: float) -> None:
    """A read that does not show it yet counts as one that shows it Pending: no storm, no rest."""
    schedule = Schedule(lambda: chance)
    schedule.follow("key", "company", "cohort", 0.0)
    now, polls = 0.0, 0
    while now < lag or not polls:
        now = schedule.wake_at()
        for poll in schedule.due(now, 16):
            polls += 1
            schedule.finish(poll, now)

    assert now <= 1.2 * lag + 2.0
    assert polls <= 40


async def test_pushes_that_do_not_show_delay_no_others() -> None:
    """Some that are answered with 404 for half a minute leave the company's pace as it was."""

    async def delays(missing: int) -> list[float]:
        loop, seen = asyncio.get_running_loop(), dict[int, float]()
        model = Lagging(lambda record: 2.0 + record["number"] % 5)
        model.answer = lambda asked: unseen(model, asked, missing)
        async with coordinator(model) as pushes:
            async for outcome in pushes.run(requests(20)):
                held = model.by_key[str(outcome.key)]
                seen[held.record["number"]] = loop.time() - held.ends
        return [delay for number, delay in sorted(seen.items()) if number >= 10]

    assert max(await delays(missing=10)) <= max(await delays(missing=0)) + 1.0


def unseen(model: Model, asked: Request, missing: int) -> Response | None:
    """Refuse lists, and half a minute long to know the pushes below the number *missing*."""
    if asked.operation == "pushes.list":
        return error(405)
    held = model.by_key.get(asked.path.rsplit("/", 1)[-1])
    hidden = held and held.record["number"] < missing and model.now() < held.began + 30
    return error(404) if hidden else None


@pytest.mark.parametrize(("times", "status"), [(1, "SUCCESS"), (2, "PENDING")])
async def test_one_404_alone_loses_no_push_that_was_there(times: int, status: str) -> None:
    """A single answer that lacks an old push proves nothing; a second in a row does."""
    left = times

    def answer(asked: Request) -> Response | None:
        nonlocal left
        if asked.operation == "pushes.list":
            return error(405)
        if asked.operation == "push.create" or model.now() < 100 or not left:
            return None
        left -= 1
        return error(404)

    model = Model(lambda _: 300.0, answer=answer)
    async with asyncio.timeout(3600), coordinator(model) as pushes:
        outcome = await (await pushes.submit(requests(1)[0]))

    assert (outcome.status, left) == (status, 0)
