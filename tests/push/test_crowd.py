"""A crowd at one coordinator: whoever comes, goes or breaks, all have outcomes and nothing is left.

Callers share references, wait for as long as they like, are cancelled, decide of doubts and leave
runs half-way, while the service, the journal and the account fail. Every world is a seed.
"""

from __future__ import annotations

import asyncio
import gc
import random
from collections import Counter
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from typing import Any, Literal, TypeVar
from weakref import WeakKeyDictionary

import pytest
from aiohttp import ConnectionTimeoutError
from attrs import Factory, define

from integration_sdk import Client, Coordinator, Push, PushEvent
from integration_sdk.errors import IntegrationError, JournalError
from integration_sdk.models import OutcomeStatus, PushRequest
from tests.support.push_support import Journal, breaking, coordinator, request
from tests.support.virtual_service import Answer, Asked, Service, no_answer, refusal

pytestmark = pytest.mark.virtual_time

MISHAPS = (no_answer(), refusal(500), refusal(429))
REFUSAL = refusal(400)
BROKEN = (ValueError("a middleware's"), ConnectionTimeoutError("no route"))
T = TypeVar("T")
Leave = Literal["drain", "detach"]
LEAVE: tuple[Leave, ...] = ("drain", "detach")
TOLD = (IntegrationError, TimeoutError)


@define
class World:
    """What one seed makes of the service, and of those who use it."""

    chance: random.Random
    on_disk: bool
    service: Service = Factory(Service)
    told: WeakKeyDictionary[Push, Counter[str]] = Factory(WeakKeyDictionary)
    max_open: int = 50
    most_told: int = 0
    client: Client | None = None
    is_expired: bool = False

    def one_of(self, *choices: T) -> T:
        return self.chance.choice(choices)

    def hear(self, event: PushEvent) -> None:
        told = self.told.setdefault(event.push, Counter())
        told[event.what] += 1
        self.most_told = max(self.most_told, told["ended"], told["found"])

    def answer(self, call: Asked) -> Answer | None:
        if self.is_expired:
            return refusal(402)
        if self.chance.random() > 0.12:
            return None
        if call.kind != "push":
            return self.one_of(*MISHAPS)
        if self.chance.random() < 0.4:
            self.service.carry_out(call)
            return no_answer()
        return self.one_of(*MISHAPS, REFUSAL)

    def breaks(self, _: str) -> Exception | None:
        return self.one_of(*BROKEN) if self.chance.random() < 0.03 else None

    @asynccontextmanager
    async def opened(self, journal: Journal | None, leave: Leave) -> AsyncIterator[Coordinator]:
        """Open a coordinator, perhaps of a client that is closed before it is left."""
        options: dict[str, Any] = {
            "journal": journal,
            "max_open": self.max_open,
            "exclusive": self.one_of(True, False),
            "leave": leave,
        }
        async with (
            self.service.client(middlewares=[breaking(self.breaks)]) as self.client,
            self.client.coordinator(patience=4.0, on_event=self.hear, **options) as pushes,
        ):
            yield pushes

    def request(self) -> PushRequest:
        number = self.chance.randrange(6)
        return request(number, companies=2, reference=f"INV-{number}" if self.on_disk else None)

    async def submit(self, pushes: Coordinator) -> None:
        """Push something, for as long as the caller likes, and decide if it is in doubt."""
        try:
            async with asyncio.timeout(self.one_of(0.001, 0.2, None, None, None)):
                push = await pushes.submit(self.request(), wait=self.one_of(None, 0.5, 10))
            outcome = await push
            if outcome.status is OutcomeStatus.IN_DOUBT and push.intent:
                async with asyncio.timeout(self.one_of(0.01, 1000)):
                    await pushes.decide(push.intent, self.one_of("resend", "abandon"))
        except TOLD:
            pass

    async def run(self, pushes: Coordinator) -> None:
        """Push some, in a loop that is left after a few; gone on with, perhaps."""

        async def source() -> AsyncIterator[PushRequest]:
            for _ in range(10):
                await asyncio.sleep(self.one_of(0, 0, 3, 40))
                yield self.request()

        try:
            outcomes = pushes.run(source(), ordered=self.one_of(True, False))
            for _ in range(self.one_of(1, 2)):
                left = self.one_of(1, 3, 100)
                async for _ in outcomes:
                    left -= 1
                    if not left:
                        break
        except TOLD:
            pass

    async def visit(self, pushes: Coordinator) -> list[asyncio.Task[None]]:
        """Let callers come, one after the other, and things happen between them."""
        callers = []
        for _ in range(self.chance.randrange(1, 20)):
            come = self.one_of(self.submit, self.submit, self.submit, self.run)
            callers.append(asyncio.create_task(come(pushes)))
            await asyncio.sleep(self.one_of(0, 0.01, 0.5, 5, 30))
            if self.chance.random() < 0.2:
                pushes.notify(self.one_of("somebody's", *self.service.by_key))
            if self.chance.random() < 0.02:
                self.is_expired = self.one_of(True, False)
                if not self.is_expired and self.client is not None:
                    await self.client.aclose()
        return callers


@pytest.mark.parametrize("seed", range(30))
async def test_nothing_is_left_of_a_crowd(seed: int) -> None:
    """The block ends, all callers are told, and no poll, place or push remains."""
    chance = random.Random(seed)
    world = World(chance, on_disk=seed % 2 == 0)
    journal = Journal()
    kept = journal if world.on_disk else None

    def fail_at_times(_: Sequence[object]) -> None:
        if chance.random() < 0.03:
            raise JournalError("full")

    journal.before_write = fail_at_times
    unheard: list[dict[str, Any]] = []
    asyncio.get_running_loop().set_exception_handler(lambda _, what: unheard.append(what))
    world.service.answer = world.answer
    world.service.takes = lambda _: world.one_of(0, 0.1, 2, 7, 60, 300)
    world.max_open = world.one_of(1, 2, 50)
    random.seed(seed)  # what the client draws from
    async with asyncio.timeout(10_000):
        try:
            async with world.opened(kept, LEAVE[seed % 4 // 2]) as pushes:
                callers = await world.visit(pushes)
        except JournalError:
            pass  # what the disk refused to the last
        await asyncio.gather(*callers)

    del callers, pushes
    gc.collect()
    assert len(world.told) <= 2  # which the traceback of the error that ended all holds
    requests_so_far = world.service.count()
    await asyncio.sleep(1000)
    assert world.service.count() == requests_so_far

    world.service.answer, world.service.takes = None, lambda _: 100.0
    journal.before_write = lambda _: None
    async with (
        asyncio.timeout(10_000),
        coordinator(world.service, journal=kept, max_open=world.max_open) as pushes,
    ):
        await asyncio.gather(*pushes.recovered)
        async with asyncio.timeout(50):  # as many find a place at once
            await asyncio.gather(*(pushes.submit(request(n)) for n in range(world.max_open)))

    assert world.most_told < 2
    assert not unheard
