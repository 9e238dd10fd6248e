"""The futures and the timer around `Throttle`: who waits, and what wakes them.

Nobody polls and no task runs in the background: a turn is given when somebody comes
back, or when the one timer that the throttle asked for goes off.
"""

from __future__ import annotations

import asyncio
import math

from attrs import define, field

from integration_sdk._sansio.responses import Response
from integration_sdk._sansio.throttling.gate import Refusal
from integration_sdk._sansio.throttling.throttle import Throttle
from integration_sdk._sansio.throttling.turns import Ticket


class GateClosed(Exception):
    """The gate is closed until after the caller's deadline; *answer* closed it."""

    def __init__(self, answer: Response) -> None:
        super().__init__(answer.status)
        self.answer = answer


@define(eq=False)
class Turnstile:
    """Lets tickets through as the throttle says.

    Args:
        throttle: The rules.
        loop: The event loop that everybody waits on.
    """

    throttle: Throttle
    _loop: asyncio.AbstractEventLoop
    _waiting: dict[Ticket, asyncio.Future[None]] = field(init=False, factory=dict)
    _timer: asyncio.TimerHandle | None = field(init=False, default=None)
    _earliest: float = field(init=False, default=math.inf)

    def passes(self, ticket: Ticket) -> bool:
        """Return True if it is *ticket*'s turn; else it is in line, and must `wait`.

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
        """Leave the line, or give back the turn that came together with a cancellation."""
        if self._waiting.pop(ticket, None) is not None:
            self.throttle.give_up(ticket)
        elif not future.cancelled() and future.exception() is None:
            self.unused(ticket)

    def answered(self, ticket: Ticket) -> None:
        """*ticket* is back with an answer."""
        self.throttle.answered(ticket, self._loop.time())
        self.turn()

    def refused(self, ticket: Ticket, refusal: Refusal) -> None:
        """*ticket* is back with a 429 or 503; those who cannot wait for the end of it go."""
        self.throttle.refused(ticket, refusal, self._loop.time())
        if self.throttle.closed_until > self._earliest:
            for other in list(self._waiting):
                self._turn_away(other)
            self._earliest = min((other.deadline for other in self._waiting), default=math.inf)
        self.turn()

    def unanswered(self, ticket: Ticket) -> None:
        """*ticket* is back with nothing."""
        self.throttle.unanswered(ticket, self._loop.time())
        self.turn()

    def unused(self, ticket: Ticket) -> None:
        """*ticket* had its turn and sent nothing."""
        self.throttle.unused(ticket, self._loop.time())
        self.turn()

    def turn(self) -> None:
        """Let through whoever may go, and look again when that can change by itself."""
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
        """Wake *ticket*'s call; False if that wants its turn no more."""
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
        """Tell those whose gate opens only after their deadline."""
        answer = self.throttle.closed_by(ticket, until=ticket.deadline)
        if answer is None:
            return
        future = self._waiting.pop(ticket)
        self.throttle.give_up(ticket)
        if not future.done():
            future.set_exception(GateClosed(answer))
