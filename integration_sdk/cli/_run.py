"""One run of pushes: its display, its interruption, its result.

Ctrl-C stops reading and waits for open pushes, but not for a service that blocks everything for
hours. A second Ctrl-C ends the process at once; a journal survives that like a crash.
"""

from __future__ import annotations

import asyncio
import os
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import UTC
from typing import Any, Final

from attrs import Factory, define, field
from rich.console import Console

from integration_sdk._client import Client
from integration_sdk._push.coordinator import Coordinator
from integration_sdk._push.push import Push, PushEvent
from integration_sdk._store.store import Store
from integration_sdk.cli._display import Bar, Board, Stderr, say
from integration_sdk.cli._ends import INTERRUPTED, SOME_DID_NOT, hearing_signals
from integration_sdk.cli._journals import Journal
from integration_sdk.cli._outcomes import Outcomes
from integration_sdk.cli._records import FORMAT, Lines
from integration_sdk.errors import (
    Forbidden,
    MethodNotAllowed,
    NotFound,
    ServiceUnavailable,
    TooManyRequests,
    Unauthorized,
)
from integration_sdk.models import OutcomeStatus

SECONDS_BETWEEN_LOOKS: Final = 0.1
PATIENCE: Final = 5.0
"""Seconds without activity after which an interrupted run ends. A service that names no time is
asked more often."""
_HOPELESS: Final = (Unauthorized, Forbidden, NotFound, MethodNotAllowed)
"""Refusals that are not about the record, so every other record would be refused too."""


def now() -> float:
    """Return the time of the running loop, in seconds."""
    return asyncio.get_running_loop().time()


@define(eq=False)
class Run:
    """One run: its outcomes, its progress, and whether it should stop.

    Attributes:
        lines: The input; None for a run that only goes on with what a journal holds.
        stopped: Why no more lines are read, unless the user interrupted the run.
        interrupted: Whether the user interrupted the run, or nobody reads its outcomes.
        unheard: Whether nobody reads its outcomes.
        active_at: The time of the last activity.
    """

    client: Client
    journal: Journal | None
    lines: Lines | None = None
    stopped: str | None = None
    interrupted: bool = False
    unheard: bool = False
    began: float = Factory(now)
    active_at: float = Factory(now)
    err: Console = Factory(Stderr)
    outcomes: Outcomes = field(init=False)
    board: Board = field(init=False)

    def __attrs_post_init__(self) -> None:
        self.outcomes = Outcomes(sys.stdout.buffer, self.lose_output)
        self.board = Board(self.err)

    @asynccontextmanager
    async def coordinator(self, **options: Any) -> AsyncIterator[Coordinator]:
        """Yield a coordinator, show its progress, and stop it on Ctrl-C or SIGTERM."""
        end = asyncio.timeout(None)
        try:
            with hearing_signals(self.interrupt, self.leave):
                async with (
                    self.journal.store() if self.journal else Store() as store,
                    self.client.coordinator(journal=store, on_event=self.hear, **options) as pushes,
                    self._shown(pushes, end),
                    end,
                ):
                    self.outcomes.left = {push.intent: push for push in pushes.recovered}
                    yield pushes
        except TimeoutError:
            if not end.expired():
                raise
        self.outcomes.take_all(self.outcomes.left.values())  # what could not be waited for

    def hear(self, event: PushEvent) -> None:
        """Take an outcome, and stop reading if every other record would fail as well."""
        self.outcomes.hear(event)
        outcome = event.push.outcome
        if (
            outcome
            and outcome.status is OutcomeStatus.REJECTED
            and isinstance(outcome.error, _HOPELESS)
            and event.push.request.record_id is None  # or only the record may not be found
        ):
            self.stop(str(outcome.error))

    async def wait_for_left(self) -> None:
        """Take the outcomes of an earlier run's pushes, as they come."""
        await asyncio.gather(*map(self._take, list(self.outcomes.left.values())))

    async def _take(self, push: Push) -> None:
        outcome = await push
        if isinstance(outcome.error, TooManyRequests | ServiceUnavailable):
            self.stop(str(outcome.error))  # it says when to come back
        self.outcomes.take(push)

    # Stopping

    def stop(self, why: str) -> None:
        """Stop reading."""
        self.stopped = self.stopped or why
        if self.lines:
            self.lines.stop()

    def interrupt(self) -> None:
        """Stop reading and wait for open pushes; if called again, end the process at once."""
        if self.interrupted:
            self.leave()
        self._drain("Interrupted", "Ctrl-C again quits at once.")

    def _drain(self, why: str, then: str) -> None:
        self.interrupted = True
        read = "reading no more lines and " if self.lines and not self.lines.at_end else ""
        if self.lines:
            self.lines.stop()
        say(self.err, f"{why}: {read}waiting for open pushes. {then}")

    def lose_output(self, error: OSError) -> None:
        """Stop reading, because outcomes cannot be written any more."""
        if not isinstance(error, BrokenPipeError):
            self.stop(f"the outcomes cannot be written: {error.strerror}")
        else:
            self.unheard = True
            if not self.interrupted:
                self._drain("Nobody reads the outcomes any more", "Ctrl-C quits at once.")

    def leave(self) -> None:
        """End the process, even while it is blocked by a pipe that nobody reads."""
        try:
            self.board.leave()
            say(self.err, f"Quit at once. {self._advice}")
        finally:
            # Not by an exception, which would wait for the answers to pushes being sent.
            os._exit(INTERRUPTED)

    @property
    def _advice(self) -> str:
        """How to continue after an interruption."""
        if self.journal is not None:
            return f"Run the same command again to continue: {self.journal} knows what was sent."
        read = f" up to line {self.lines.read:,}" if self.lines else ""
        return f"Without --journal there is no record: what was read{read} would be sent again."

    @property
    def _is_done(self) -> bool:
        """Whether all was read, and all that was read has ended."""
        is_read = self.lines is None or self.lines.at_end
        return is_read and not self.stopped and not self.outcomes.counts[OutcomeStatus.PENDING]

    # Showing

    @asynccontextmanager
    async def _shown(self, pushes: Coordinator, end: asyncio.Timeout) -> AsyncIterator[None]:
        with self.board.shown():
            bar = self.board.bar("Pushing" if self.lines else "Resuming")
            showing = asyncio.create_task(self._show(pushes, bar, end))
            try:
                yield
            finally:
                showing.cancel()
                await asyncio.wait([showing])
                self._draw(pushes, bar)
                if not showing.cancelled():
                    showing.result()  # a mistake in it would leave an interrupted run without end

    async def _show(self, pushes: Coordinator, bar: Bar, end: asyncio.Timeout) -> None:
        while True:
            self._draw(pushes, bar)
            await asyncio.sleep(SECONDS_BETWEEN_LOOKS)
            if self._is_active(pushes):
                self.active_at = now()
            elif now() - self.active_at > PATIENCE:
                self.stop(f"no push could make progress{self._held}")
                # A block that ends with an exception sends nothing and waits for nothing.
                end.reschedule(now())
                return

    def _is_active(self, pushes: Coordinator) -> bool:
        """Whether there is anything to wait for after Ctrl-C; always True before it."""
        seen = self.client.stats()
        if seen.in_flight or not self.interrupted:
            return True
        return seen.gate_open and bool(pushes.progress.open or self._sought(pushes))

    def _sought(self, pushes: Coordinator) -> int:
        return sum(push.outcome is None for push in pushes.in_doubt)

    def _draw(self, pushes: Coordinator, bar: Bar) -> None:
        seen, results = pushes.progress, self.outcomes
        states = {"sending": seen.sending, "open": seen.open, "searched for": self._sought(pushes)}
        shown = [str(results), *(f"{count:,} {state}" for state, count in states.items() if count)]
        rate = f"{results.counts.total() / (now() - self.began or 1):,.0f}/s"
        size = self.lines.size if self.lines else None
        bar.show(
            ", ".join(shown),
            min(1.0, results.settled / size) if size else None,
            note=rate + self._held,
        )

    @property
    def _held(self) -> str:
        """Return a note if the service holds everything back, with the time if it named one."""
        if self.client.stats().gate_open:
            return ""
        quota = self.client.quota
        reset = quota.reset if quota and quota.remaining == 0 else None
        until = f" until {reset.astimezone(UTC):%Y-%m-%d %H:%M} UTC" if reset else ""
        return f", held back by the service{until}"

    def conclude(self) -> int:
        """Print the summary and return the exit code."""
        results = self.outcomes
        took = f"{results} in {now() - self.began:.1f} s."
        say(self.err, took if results.counts else "There was nothing to do.")
        if results.earlier:
            say(self.err, f"{results.earlier:,} of them were sent by an earlier run.")
        if results.unread:
            say(self.err, f"{results.unread:,} lines hold no record. The input must be {FORMAT}.")
        for doubt in results.doubts:
            say(self.err, f"In doubt: {doubt}")
        if results.doubts and self.journal:
            resolve = f"integration-sdk pushes resolve INTENT {self.journal.options}"
            say(self.err, f"Decide with {resolve} --resend | --abandon | --bind KEY")
        elif results.doubts:
            say(self.err, "Without --journal: look at the service, and push again what is missing.")
        if self.stopped:
            say(self.err, f"Stopped: {self.stopped}")
        if self.interrupted and not (self.unheard and self._is_done):
            say(self.err, f"Interrupted. {self._advice}")
            return INTERRUPTED
        return max(results.exit_code, SOME_DID_NOT if self.stopped else 0)
