"""Bounds on the time a push is waited for, counted from its answer or the loss of it."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from contextvars import Context

from attrs import Factory, define

from integration_sdk._push import outcomes
from integration_sdk._push.push import Push
from integration_sdk._push.worth import last_poll


@define(eq=False)
class Waits:
    """The bounded waits.

    Attributes:
        expired: Called with the push and the seconds waited when a wait ends.
        ending: Called with the key of the push, if it has one, shortly before.
    """

    expired: Callable[[Push, float], None]
    ending: Callable[[str], None]
    _timers: dict[Push, asyncio.TimerHandle] = Factory(dict)
    _context: Context = Factory(Context)

    def start(self, push: Push) -> None:
        """Start the waits for *push* and its twins: it was answered, or its answer was lost."""
        for each in push._with_twins:
            seconds = outcomes.longest_wait(each.request, each._wait)
            if seconds is not None and each.outcome is None and each not in self._timers:
                self._call_later(last_poll(seconds), self._ends_soon, each, seconds)

    def _ends_soon(self, push: Push, seconds: float) -> None:
        self._call_later(seconds - last_poll(seconds), self.expired, push, seconds)
        if push.key:
            self.ending(push.key)

    def _call_later(
        self, delay: float, call: Callable[[Push, float], None], push: Push, seconds: float
    ) -> None:
        self._timers[push] = asyncio.get_running_loop().call_later(
            delay, call, push, seconds, context=self._context
        )

    def forget(self, push: Push) -> None:
        """End the wait for *push*: it has an outcome."""
        timer = self._timers.pop(push, None)
        if timer is not None:
            timer.cancel()
