"""Bounds on the time a push is waited for, counted from its answer or the loss of it."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from contextvars import Context

from attrs import Factory, define

from integration_sdk._coordinator.push import Push
from integration_sdk._sansio.pushing import outcomes


@define(eq=False)
class Waits:
    """The bounded waits.

    Attributes:
        expired: Called with the push and the seconds waited when a wait ends.
    """

    expired: Callable[[Push, float], None]
    _timers: dict[Push, asyncio.TimerHandle] = Factory(dict)
    _context: Context = Factory(Context)

    def start(self, push: Push) -> None:
        """Start the waits for *push* and its twins: it was answered, or its answer was lost."""
        for each in push._crowd:
            seconds = outcomes.longest_wait(each.request, each._wait)
            if seconds is not None and each.outcome is None and each not in self._timers:
                self._timers[each] = asyncio.get_running_loop().call_later(
                    seconds, self.expired, each, seconds, context=self._context
                )

    def forget(self, push: Push) -> None:
        """End the wait for *push*: it has an outcome."""
        timer = self._timers.pop(push, None)
        if timer is not None:
            timer.cancel()
