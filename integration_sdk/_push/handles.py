"""The pushes that callers hold, by row: their waits, events and outcomes."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from contextvars import Context

from attrs import Factory, define, field

from integration_sdk._outcome import PushOutcome
from integration_sdk._push import outcomes
from integration_sdk._push.push import Push, PushEvent, Tally, What
from integration_sdk._push.schedule import last_poll
from integration_sdk.models import PushRequest

logger = logging.getLogger("integration_sdk.pushes")


@define(eq=False)
class Handles:
    """The pushes that callers hold.

    Attributes:
        on_event: The caller's function, called with each `PushEvent`.
        expired: Called with a push and its wait in seconds when that wait ends. Set by the
            dispatcher.
        ending: Called with the key of a push, if it has one, shortly before its wait ends. Set by
            the dispatcher.
        unsettled: Pushes without an outcome.
        idle: Set while there are none.
        tally: Counts outcomes.
    """

    on_event: Callable[[PushEvent], None] | None
    expired: Callable[[Push, float], None] = field(init=False)
    ending: Callable[[str], None] = field(init=False)
    unsettled: set[Push] = Factory(set)
    idle: asyncio.Event = Factory(asyncio.Event)
    tally: Tally = Factory(Tally)
    _of_row: dict[str, list[Push]] = Factory(dict)
    _timers: dict[Push, asyncio.TimerHandle] = Factory(dict)
    _recovered: set[Push] = Factory(set)
    _counted: set[str] = Factory(set)
    _complained: bool = False
    _context: Context = Factory(Context)

    def __attrs_post_init__(self) -> None:
        self.idle.set()

    def enter(self, push: Push) -> None:
        """Track *push* until it has an outcome."""
        self.unsettled.add(push)
        self.idle.clear()

    def forget(self, push: Push) -> None:
        """Stop tracking *push*: it has an outcome, or was never recorded."""
        self.unsettled.discard(push)
        if not self.unsettled:
            self.idle.set()

    def recovered(self, request: PushRequest, row_id: str) -> Push:
        """Return a push for a row of an earlier run."""
        push = Push(request)
        self.enter(push)
        self.join(push, row_id)
        self._recovered.add(push)
        return push

    def join(self, push: Push, row_id: str) -> None:
        """Attach *push* to a row, whose outcome it will get."""
        push.intent = row_id
        self._of_row.setdefault(row_id, []).append(push)

    def of(self, row_id: str) -> list[Push]:
        """Return the pushes of a row."""
        return list(self._of_row.get(row_id, ()))

    def pop(self, row_id: str) -> list[Push]:
        """Detach all pushes from a row and return them."""
        return self._of_row.pop(row_id, [])

    def leave(self, push: Push) -> bool:
        """Detach *push* from its row; return whether others remain."""
        pushes = self._of_row.get(push.intent or "", [])
        if push in pushes:
            pushes.remove(push)
        if not pushes:
            self._of_row.pop(push.intent or "", None)
        return bool(pushes)

    def quit(self, push: Push) -> None:
        """Detach *push* from a row that was not recorded."""
        self.leave(push)
        push.intent = None

    # Waits, from the moment the answer arrives or is lost

    def start_wait(self, push: Push) -> None:
        """Start the clock for the caller's wait for *push*."""
        seconds = outcomes.longest_wait(push.request, push._wait)
        if seconds is not None and push.outcome is None and push not in self._timers:
            self._call_later(last_poll(seconds), self._ends_soon, push, seconds)

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

    def end_wait(self, push: Push) -> None:
        """Stop the clock: *push* has an outcome, or is about to."""
        timer = self._timers.pop(push, None)
        if timer is not None:
            timer.cancel()

    # Outcomes

    def settle(self, push: Push, outcome: PushOutcome) -> None:
        """Give *push* its outcome, unless it has one."""
        if push not in self.unsettled:
            return
        self.end_wait(push)
        push._settle(outcome)
        self.forget(push)
        if self._is_news(push):
            self.tally.ended(outcome.status, asyncio.get_running_loop().time())
        logger.debug("push %s: %s", push.key, outcome.status)
        self.tell("ended", push)

    def _is_news(self, push: Push) -> bool:
        """Whether to count the outcome: a recovered row that is submitted again counts once."""
        if push.intent in self._counted:
            return False
        if push in self._recovered:
            self._recovered.discard(push)
            self._counted.add(push.intent or "")
        return True

    def was_recovered(self, push: Push) -> bool:
        """Whether an earlier run left *push*, and it has no outcome yet."""
        return push in self._recovered

    def tell_of(self, row_id: str, what: What) -> None:
        """Report what happened to a row, once, however many pushes are attached to it."""
        for push in self._of_row.get(row_id, ())[:1]:
            self.tell(what, push)

    def tell(self, what: What, push: Push) -> None:
        """Call the caller's ``on_event``."""
        try:
            if self.on_event:
                self.on_event(PushEvent(what, push))
        except (Exception, asyncio.CancelledError):  # a future's, say, whose result it reads
            # Once: what is wrong with it is wrong for every push.
            level = logging.DEBUG if self._complained else logging.ERROR
            logger.log(level, "on_event failed for %r; pushing continues", what, exc_info=True)
            self._complained = True
