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
from contextlib import suppress
from typing import Any
from weakref import WeakKeyDictionary

import pytest
from aiohttp import ConnectionTimeoutError

from integration_sdk import Coordinator, OutcomeStatus, Push, PushEvent, PushRequest
from integration_sdk.errors import IntegrationError, JournalError
from tests.support.push_support import (
    Journal,
    breaking,
    coordinator,
    named,
    pushed,
    request,
    requests,
)
from tests.support.virtual_service import Answer, Asked, Service, no_answer, refusal

MISHAPS = (no_answer(), refusal(500), refusal(429))
BROKEN = (ValueError("a middleware's"), ConnectionTimeoutError("no route"))
TOLD = (IntegrationError, TimeoutError)


class World:
    """What one seed makes of the service, and of those who use it.

    told: What was heard of each push that is alive.
    """

    def __init__(self, seed: int) -> None:
        self.chance = random.Random(seed)
        self.service = Service(lambda _: self.one_of(0, 0.1, 2, 7, 60, 300), answer=self.answer)
        self.journal = Journal() if seed % 2 else None
        if self.journal is not None:
            self.journal.before_write = self.write
        self.max_open = self.one_of(1, 2, 50)
        self.told = WeakKeyDictionary[Push, Counter[str]]()
        self.most_told, self.is_expired = 0, False
        self.callers: list[asyncio.Task[None]] = []

    def one_of(self, *choices: Any) -> Any:
        return self.chance.choice(choices)

    def hear(self, event: PushEvent) -> None:
        told = self.told.setdefault(event.push, Counter())
        told[event.what] += 1
        self.most_told = max(self.most_told, told["ended"], told["found"])

    def write(self, _: Sequence[object]) -> None:
        if self.chance.random() < 0.03:
            raise JournalError("full")

    def answer(self, call: Asked) -> Answer | None:
        if self.is_expired:
            return refusal(402)
        if self.chance.random() > 0.12:
            return None
        if call.kind == "push" and self.chance.random() < 0.4:
            self.service.carry_out(call)
            return no_answer()
        mishap: Answer = self.one_of(*MISHAPS, refusal(400 if call.kind == "push" else 500))
        return mishap

    def breaks(self, _: str) -> Exception | None:
        return self.chance.choice(BROKEN) if self.chance.random() < 0.03 else None

    def request(self) -> PushRequest:
        number = self.chance.randrange(6)
        return (named if self.journal else request)(number, companies=2)

    async def submit(self, pushes: Coordinator) -> None:
        """Push something, for as long as the caller likes, and decide if it is in doubt."""
        try:
            async with asyncio.timeout(self.one_of(0.001, 0.2, None, None, None)):
                push = await pushes.submit(self.request(), wait=self.one_of(None, 0.5, 10))
            if (await push).status is OutcomeStatus.IN_DOUBT and push.intent:
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
            for left in (self.one_of(1, 3, 100), self.one_of(0, 3, 100)):
                count = left
                while count and await anext(outcomes, None):
                    count -= 1
        except TOLD:
            pass

    async def visit(self) -> None:
        """Let callers come, one after the other, and things happen between them."""
        options: dict[str, Any] = {
            "exclusive": self.one_of(True, False),
            "leave": self.one_of("drain", "detach"),
        }
        async with (
            self.service.client(middlewares=[breaking(self.breaks)]) as client,
            client.coordinator(
                journal=self.journal,
                max_open=self.max_open,
                patience=4.0,
                on_event=self.hear,
                **options,
            ) as pushes,
        ):
            for _ in range(self.chance.randrange(1, 20)):
                come = self.one_of(self.submit, self.submit, self.submit, self.run)
                self.callers.append(asyncio.create_task(come(pushes)))
                await asyncio.sleep(self.one_of(0, 0.01, 0.5, 5, 30))
                if self.chance.random() < 0.2:
                    pushes.notify(self.one_of("somebody's", *self.service.by_key))
                if self.chance.random() < 0.02:
                    self.is_expired = self.one_of(True, False)
                    if not self.is_expired:
                        await client.aclose()


@pytest.mark.virtual_time
@pytest.mark.parametrize("seed", range(30))
async def test_nothing_is_left_of_a_crowd(seed: int) -> None:
    """The block ends, all callers are told, and no poll, place or push remains."""
    world = World(seed)
    unheard: list[dict[str, Any]] = []
    asyncio.get_running_loop().set_exception_handler(lambda _, what: unheard.append(what))
    random.seed(seed)  # what the client draws from
    async with asyncio.timeout(10_000):
        with suppress(JournalError):  # what the disk refused to the last
            await world.visit()
        await asyncio.gather(*world.callers)

    world.callers.clear()
    gc.collect()
    assert len(world.told) <= 2  # which the traceback of the error that ended all holds
    requests_so_far = world.service.count()
    await asyncio.sleep(1000)
    assert world.service.count() == requests_so_far

    world.service.answer, world.service.takes = None, lambda _: 100.0
    if world.journal is not None:
        world.journal.before_write = lambda _: None
    most = {"journal": world.journal, "max_open": world.max_open}
    async with asyncio.timeout(10_000), coordinator(world.service, **most) as pushes:
        await asyncio.gather(*pushes.recovered)
        async with asyncio.timeout(150):  # as many find a place at once
            await asyncio.gather(*(pushed(pushes, one) for one in requests(world.max_open)))

    assert world.most_told < 2
    assert not unheard
