"""Notifies subscribers of the ends of pushes, with retries and with the faults in force.

The service computes the end of a push only when somebody asks. Subscribers do not ask, so, while
there are any, an alarm is set to the next end or the next letter, whichever comes first.

Source: "Events". Assumed: an answer of 2xx within 15 seconds is an acknowledgement.
"""

from __future__ import annotations

import asyncio
import logging
import random
from collections.abc import Iterator
from heapq import heappop, heappush
from itertools import count
from math import inf

import aiohttp
from attrs import evolve

from integration_sdk.sandbox._clock import Clock
from integration_sdk.sandbox._companies import new_uuid
from integration_sdk.sandbox._notices.letters import (
    RETRIES,
    Delivery,
    Letter,
    Style,
    Subscription,
    letter,
    subscription,
)
from integration_sdk.sandbox._pushes.ledger import Ledger
from integration_sdk.sandbox._pushes.operation import Operation

AT_ONCE = 8
PATIENCE = 15.0
logger = logging.getLogger("integration_sdk.sandbox")


class Notifier:
    """Posts notifications to subscribers.

    Args:
        chance: Fixes identifiers and secrets.
        remember: How many of the latest attempts are kept.
    """

    def __init__(
        self, clock: Clock, ledger: Ledger, chance: random.Random, *, remember: int
    ) -> None:
        self._clock, self._ledger, self._chance = clock, ledger, chance
        self._remember = remember
        self._subscriptions: list[Subscription] = []
        self._outbox: list[tuple[float, int, Letter]] = []
        self._turns = count()
        self._alarm = clock.alarm(self._look)
        self._tasks: set[asyncio.Task[None]] = set()
        self._places = asyncio.Semaphore(AT_ONCE)
        self._session: aiohttp.ClientSession | None = None
        self.deliveries: list[Delivery] = []

    def subscribe(
        self, url: str, style: Style, authorization: str | None, secret: str | None
    ) -> Subscription:
        """Notify *url* of the ends of pushes from now on."""
        to = subscription(url, style, authorization, secret, self._chance)
        self._ledger.settle(self._clock.now())
        self._subscriptions.append(to)
        self._ledger.watcher = self
        self.due(self._ledger.next_end())
        return to

    def unsubscribe(self, to: Subscription) -> None:
        """Stop notifying *to*."""
        self._subscriptions.remove(to)
        self._outbox = [entry for entry in self._outbox if entry[2].to is not to]
        if not self._subscriptions:
            self._ledger.watcher = None
            self._alarm.set(inf)

    async def stop(self) -> None:
        """Drop pending notifications; no task or socket is left."""
        self._outbox.clear()
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        if self._session is not None:
            session, self._session = self._session, None
            await session.close()

    # ------------------------------------------------------------------ what the ledger tells

    def recorded(self, operation: Operation) -> None:
        """Send the forged notifications that claim *operation* has ended before it has."""
        if any(notice.forged == "early" for notice in operation.notices):
            for to in self._subscriptions:
                early = letter(to, operation, "", "early", self._chance)
                self._put(operation.requested, early)

    def due(self, end: float) -> None:
        """Look at the ledger at *end*."""
        if end < self._alarm.at:
            self._alarm.set(end)

    def ended(self, operation: Operation) -> None:
        """Schedule the notifications of *operation*."""
        at = operation.completed or self._clock.now()
        for to in self._subscriptions:
            message_id = new_uuid(self._chance)
            for notice in operation.notices:
                if notice.forged != "early":
                    told = letter(to, operation, message_id, notice.forged, self._chance)
                    self._put(at + notice.delay, told)

    # ------------------------------------------------------------------ posting

    def _put(self, at: float, told: Letter) -> None:
        heappush(self._outbox, (at, next(self._turns), told))
        self.due(at)

    def _look(self) -> None:
        now = self._clock.now()
        self._ledger.settle(now)
        for told in self._leaving(now):
            task = asyncio.get_running_loop().create_task(self._deliver(told))
            self._tasks.add(task)
            task.add_done_callback(self._tasks.discard)
        if self._subscriptions:
            waiting = self._outbox[0][0] if self._outbox else inf
            self._alarm.set(min(waiting, self._ledger.next_end()))

    def _leaving(self, now: float) -> Iterator[Letter]:
        while self._outbox and self._outbox[0][0] <= now:
            yield heappop(self._outbox)[2]

    async def _deliver(self, told: Letter) -> None:
        async with self._places:
            at = self._clock.now()
            headers = told.headers(at)
            status = await self._post(told, headers)
        to, key, body = told.to, told.key, told.body
        self.deliveries.append(
            Delivery(to.url, key, status, at, told.attempt, told.forged, headers, body)
        )
        del self.deliveries[: -self._remember or None]
        if not 200 <= status < 300 and told.attempt < len(RETRIES) and to in self._subscriptions:
            self._put(at + RETRIES[told.attempt], evolve(told, attempt=told.attempt + 1))

    async def _post(self, told: Letter, headers: dict[str, str]) -> int:
        """Return the status that the subscriber answered; 0 for none."""
        if self._session is None:
            jar, wait = aiohttp.DummyCookieJar(), aiohttp.ClientTimeout(total=PATIENCE)
            self._session = aiohttp.ClientSession(cookie_jar=jar, timeout=wait)
        try:
            async with self._session.post(
                told.to.url, data=told.body, headers=headers, allow_redirects=False
            ) as answer:
                return answer.status
        except (aiohttp.ClientError, TimeoutError, OSError) as error:
            logger.info("a notification did not reach %s: %s", told.to.url, error)
            return 0
