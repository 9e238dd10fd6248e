"""The futures and the timer around `Throttle`: calls wait here for their turns.

No task runs in the background: turns are given out when a call gives its turn back, or when
the one timer that the throttle asked for fires.
"""

from __future__ import annotations

import asyncio
import math

from attrs import define, field

from integration_sdk._sansio.responses import Response
from integration_sdk._sansio.throttling.fair_queue import Ticket
from integration_sdk._sansio.throttling.gate import Refusal
from integration_sdk._sansio.throttling.throttle import Throttle


class GateClosed(Exception):
    """The gate stays closed until after the caller's deadline; *answer* closed it."""

    def __init__(self, answer: Response) -> None:
        super().__init__(answer.status)
        self.answer = answer


@define(eq=False)
class Turnstile:
    """Gives tickets their turns as the throttle decides.

    Args:
        throttle: The rules.
        loop: The event loop of all waiting calls.
    """

    throttle: Throttle
    _loop: asyncio.AbstractEventLoop
    _waiting: dict[Ticket, asyncio.Future[None]] = field(init=False, factory=dict)
    _timer: asyncio.TimerHandle | None = field(init=False, default=None)
    _earliest: float = field(init=False, default=math.inf)

    def passes(self, ticket: Ticket) -> bool:
        """Return True if it is *ticket*'s turn; else it is queued, and must `wait`.

        A turn is given back with `answered`, `refused`, `unanswered` or `unused`.
        """
        return self.throttle.enter(ticket, self._loop.time())

    async def wait(self, ticket: Ticket) -> None:
        """Wait for *ticket*'s turn.

        Raises:
            GateClosed: Its turn cannot come before its deadline.
        """
        future = self._waiting[ticket] = self._loop.create_future()
        self._earliest = min(self._earliest, ticket.deadline)
        self._turn_away(ticket)
        self.turn()
        try:
            await future
        except BaseException:
            self._step_back(ticket, future)
            raise

    def _step_back(self, ticket: Ticket, future: asyncio.Future[None]) -> None:
        """Leave the queue, or give back a turn that came at the same time as a cancellation."""
        if self._waiting.pop(ticket, None) is not None:
            self.throttle.give_up(ticket)
        elif not future.cancelled() and future.exception() is None:
            self.unused(ticket)

    def answered(self, ticket: Ticket) -> None:
        """Give back *ticket*'s turn after an answer other than 429 or 503."""
        self.throttle.answered(ticket, self._loop.time())
        self.turn()

    def refused(self, ticket: Ticket, refusal: Refusal) -> None:
        """Give back *ticket*'s turn after a 429 or 503, and turn away calls that cannot wait."""
        self.throttle.refused(ticket, refusal, self._loop.time())
        if self.throttle.closed_until > self._earliest:
            for other in list(self._waiting):
                self._turn_away(other)
            self._earliest = min((other.deadline for other in self._waiting), default=math.inf)
        self.turn()

    def unanswered(self, ticket: Ticket) -> None:
        """Give back *ticket*'s turn after a transmission without an answer."""
        self.throttle.unanswered(ticket, self._loop.time())
        self.turn()

    def unused(self, ticket: Ticket) -> None:
        """Give back *ticket*'s turn; nothing was sent."""
        self.throttle.unused(ticket, self._loop.time())
        self.turn()

    def turn(self) -> None:
        """Give turns to all tickets that may go now, and set the timer for the next."""
        if not self._waiting:
            return
        now = self._loop.time()
        while not self._let_ready_through(now):
            pass  # the next may have the turn that came back
        self._look_again(self.throttle.next_wake(now))

    def _let_ready_through(self, now: float) -> bool:
        """Wake the calls whose turn it is; False if a turn came back unused."""
        woken = [self._let_through(ticket, now) for ticket in self.throttle.ready(now)]
        return all(woken)

    def _let_through(self, ticket: Ticket, now: float) -> bool:
        """Wake *ticket*'s call; False if it has been cancelled."""
        future = self._waiting.pop(ticket)
        if future.done():  # cancelled, and its task has not run since
            self.throttle.unused(ticket, now)
            return False
        future.set_result(None)
        return True

    def _look_again(self, when: float | None) -> None:
        if self._timer is not None:
            self._timer.cancel()
        self._timer = None if when is None else self._loop.call_at(when, self.turn)

    def _turn_away(self, ticket: Ticket) -> None:
        """Raise `GateClosed` in *ticket*'s call if its gate opens only after its deadline."""
        answer = self.throttle.closed_by(ticket, until=ticket.deadline)
        if answer is None:
            return
        future = self._waiting.pop(ticket)
        self.throttle.give_up(ticket)
        if not future.done():
            future.set_exception(GateClosed(answer))
