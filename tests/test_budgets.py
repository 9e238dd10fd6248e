"""Promises of what a push may cost: a fault may delay its outcome, it never multiplies requests."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterable
from contextlib import suppress
from itertools import pairwise
from math import inf, log
from pathlib import Path

import pytest

from integration_sdk import Client, PushOperation, PushRequest, WaitExpired
from integration_sdk.errors import NotFound
from tests.counted_service import Answer, Asked, Fault, Proceed, Service, refusal

pytestmark = pytest.mark.virtual_time
RECORD = {"number": 1}
HOUR = 3600.0
Way = Callable[[Service, Path], Awaitable[None]]


# One push, by every way to its outcome


async def waiting(service: Service, journal: Path) -> None:
    async with service.client() as client:
        await client.wait(await pushed(client))


async def coordinating(service: Service, journal: Path) -> None:
    async with service.client() as client, client.coordinator(journal=journal) as pushes:
        await (await pushes.submit(PushRequest("c-0", "books", "invoices", RECORD)))


async def reopening(service: Service, journal: Path) -> None:
    """An earlier run has left the push, which was acknowledged, to this one."""
    async with (
        service.client() as client,
        client.coordinator(journal=journal, leave="detach") as pushes,
    ):
        await pushes.submit(PushRequest("c-0", "books", "invoices", RECORD))
    async with service.client() as client, client.coordinator(journal=journal):
        """Leaving waits for what is open."""


async def pushed(client: Client) -> PushOperation:
    return await client.company("c-0").connection("books").push("invoices", RECORD)


ways = pytest.mark.parametrize("way", [waiting, coordinating, reopening])


async def measure(service: Service, work: Awaitable[object], seconds: float) -> None:
    """Let *work* run for so many seconds."""
    with suppress(TimeoutError, NotFound):
        async with asyncio.timeout(seconds):
            await work


def assert_in_budget(asked: Iterable[Asked]) -> None:
    """One open push alone, made at 0: what was asked for it and its company keeps all budgets."""
    reads = [one.at for one in asked if one.kind in ("get", "list")]
    for age, budget in [(10.0, 15.0), (60.0, 40.0), (HOUR, 40 + log(HOUR / 60) / log(1.05))]:
        assert sum(at <= age for at in reads) <= budget, f"in {age} seconds: {reads}"
    assert_apart(one.at for one in asked if one.kind == "get")
    assert all(
        later - earlier > 0.33
        for earlier, later in pairwise(one.at for one in asked if one.kind == "list")
    )


def assert_apart(polls: Iterable[float]) -> None:
    """Two polls of a push made at 0 are 0.2 s or a twentieth of its age apart."""
    for earlier, later in pairwise(polls):
        assert later - earlier >= max(0.2, 0.05 * earlier) - 1e-6, f"at {earlier} and {later}"


# A lag


def unseen(seconds: float, *, has_list: bool) -> Fault:
    """Reads do not show a push for *seconds*; a list lacks it, or is itself answered with 404."""

    def act(asked: Asked, proceed: Proceed) -> Answer:
        if asked.kind == "list" and not has_list:
            return refusal(404)
        asked.hidden = seconds
        return refusal(404) if asked.kind == "get" and asked.at < seconds else proceed()

    return act


@ways
@pytest.mark.parametrize("has_list", [True, False])
@pytest.mark.parametrize("seconds", [5.0, 100.0, inf])
async def test_a_lag_is_no_storm(way: Way, seconds: float, has_list: bool, tmp_path: Path) -> None:
    """One push that reads do not show costs what any other does, however long they lag."""
    service = Service(lambda _: 30.0, [unseen(seconds, has_list=has_list)])

    await measure(service, way(service, tmp_path / "pushes.db"), HOUR)

    assert_in_budget(service.log)


@pytest.mark.parametrize("old", [10.0, 2000.0])
async def test_an_old_push_that_lists_have_lost_is_no_storm(old: float) -> None:
    """It is read singly, and its company's list is not read for it again and again."""
    service = Service()
    service.faults.append(
        lambda asked, proceed: refusal(404) if asked.at > old and asked.kind == "get" else proceed()
    )
    service.faults.append(lambda asked, proceed: hidden_after(old, asked, proceed))
    async with service.client() as client:
        held = service.add()
        await measure(service, client.wait(held.key, company_id="c-0"), HOUR)

    assert_in_budget(service.log)


def hidden_after(seconds: float, asked: Asked, proceed: Proceed) -> Answer:
    asked.hidden = inf if asked.at > seconds else 0.0
    return proceed()


# Whoever asks


async def test_waits_that_follow_each_other_are_one_poll_after_another() -> None:
    """A caller who waits anew every tenth of a second does not poll as often."""
    service = Service()

    async def wait_again_and_again(client: Client) -> None:
        while True:
            with suppress(WaitExpired):
                await client.wait(held.key, company_id="c-0", timeout=0.1)

    async with service.client() as client:
        held = service.add()
        await measure(service, wait_again_and_again(client), 100)

    polls = [one.at for one in service.log if one.kind == "get"]
    assert len(polls) > 10
    assert_apart(polls)


async def test_a_flood_of_notifications_brings_a_poll_forward_once_a_second() -> None:
    """Each might be the one that counts, and none is."""
    service = Service()

    async def notify(client: Client) -> None:
        while True:
            await asyncio.sleep(0.01)
            client.notify(held.key)

    async with service.client() as client:
        held = service.add()
        flood = asyncio.create_task(notify(client))
        await measure(service, client.wait(held.key, company_id="c-0"), 100)
        flood.cancel()

    polls = [one.at for one in service.log]
    assert 90 <= len(polls) <= 110
    assert min(later - earlier for earlier, later in pairwise(polls)) >= 0.2
