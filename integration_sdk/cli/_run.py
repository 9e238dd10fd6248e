"""One run of pushes: its display, its interruption, its result.

Ctrl-C stops reading and waits for open pushes, but not for a service that blocks everything for
hours. A second Ctrl-C ends the process at once; a journal survives that like a crash.
"""

from __future__ import annotations

import asyncio
import os
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import UTC
from typing import Any, Final, Literal

from attrs import Factory, define, field
from rich.console import Console

from integration_sdk._client import Client
from integration_sdk._push.coordinator import Coordinator
from integration_sdk._push.push import Push
from integration_sdk._store.store import Store
from integration_sdk.cli._display import Bar, Board, say
from integration_sdk.cli._journals import Journal
from integration_sdk.cli._outcomes import INTERRUPTED, SOME_DID_NOT, Results
from integration_sdk.cli._records import FORMAT, Lines
from integration_sdk.cli._signals import hearing_signals
from integration_sdk.errors import Forbidden, MethodNotAllowed, NotFound, Unauthorized
from integration_sdk.models import OutcomeStatus, PushOutcome

SECONDS_BETWEEN_LOOKS: Final = 0.1
PATIENCE: Final = 5.0
"""Seconds without activity after which an interrupted run ends. A service that names no time is
asked more often."""
_HOPELESS: Final = (Unauthorized, Forbidden, NotFound, MethodNotAllowed)
"""Refusals that are not about the record, so every other record would be refused too."""


@define(eq=False)
class Run:
    """One run: its outcomes, its progress, and whether it should stop.

    Attributes:
        stopped: Why no more lines are read, unless the user interrupted the run.
        interrupted: Whether the user interrupted the run.
        busy_at: The time of the last activity.
    """

    client: Client
    err: Console
    results: Results
    journal: Journal | None = None
    lines: Lines | None = None
    stopped: str | None = None
    interrupted: bool = False
    busy_at: float = Factory(time.monotonic)
    began: float = Factory(time.monotonic)
    board: Board = field(init=False)

    def __attrs_post_init__(self) -> None:
        self.board = Board(self.err)
        self.results.broken = self.lose_output

    def interrupt(self) -> None:
        """Stop reading and wait for open pushes; if called again, end the process at once."""
        if self.interrupted:
            self.leave()
        self.interrupted = True
        if self.lines:
            self.lines.stop()
        read = "no further line is read; " if self.lines else ""
        say(
            self.err,
            f"Interrupted: {read}waiting for what is open. Ctrl-C again leaves at once.",
        )

    def lose_output(self, error: OSError) -> None:
        """Stop reading, because outcomes cannot be written any more."""
        if not isinstance(error, BrokenPipeError):
            self.stop(f"the outcomes cannot be written: {error.strerror}")
        elif not self.interrupted:
            self.interrupt()

    def leave(self) -> None:
        """End the process, even in the middle of a line that nobody reads."""
        try:
            self.board.leave()
            say(self.err, f"Left at once. {self.advice}")
        finally:
            # Not by an exception, which would wait for the answers to pushes being sent.
            os._exit(INTERRUPTED)

    @property
    def advice(self) -> str:
        """How to continue after an interruption."""
        if self.journal is None:
            read = f" up to line {self.lines.read:,}" if self.lines else ""
            return (
                f"Without --journal nothing is on record: what was read{read} has been sent, "
                "and would be sent again."
            )
        return (
            f"Run the same command again to go on: what is on record in {self.journal} is not "
            "sent a second time."
        )

    def look_at(self, outcome: PushOutcome, joined: Push | None = None) -> None:
        """Write an outcome, and stop reading if every other record would fail as well.

        Args:
            outcome: The outcome of a line, or of a push of an earlier run.
            joined: The push of an earlier run that the line has joined.
        """
        self.results.take(outcome, (joined or outcome).request)
        refused = outcome.status is OutcomeStatus.REJECTED and isinstance(outcome.error, _HOPELESS)
        # NotFound may concern only the record to be updated.
        if refused and outcome.request.record_id is None:
            self.stop(str(outcome.error))

    def stop(self, why: str) -> None:
        """Stop reading."""
        self.stopped = self.stopped or why
        if self.lines:
            self.lines.stop()

    @asynccontextmanager
    async def coordinator(
        self, *, check: Literal["options"] | None = None, **options: Any
    ) -> AsyncIterator[Coordinator]:
        """Yield a coordinator, show its progress, and stop it on Ctrl-C or SIGTERM."""
        # Users see how long the service makes them wait, and can press Ctrl-C.
        options.setdefault("max_pause", None)
        end = asyncio.timeout(None)
        try:
            with hearing_signals(self.interrupt, self.leave):
                async with (
                    self.journal.store() if self.journal else Store() as store,
                    self.client.coordinator(
                        journal=store, check=check, on_event=self.results.hear, **options
                    ) as pushes,
                    self._shown(pushes, end),
                    end,
                ):
                    yield pushes
        except TimeoutError:
            if not end.expired():
                raise

    @asynccontextmanager
    async def _shown(self, pushes: Coordinator, end: asyncio.Timeout) -> AsyncIterator[None]:
        with self.board.shown():
            bar = self.board.bar("Pushing" if self.lines else "Resuming")
            showing = asyncio.create_task(self._show(pushes, bar, end))
            try:
                yield
            finally:
                showing.cancel()
                self._draw(pushes, bar)

    async def _show(self, pushes: Coordinator, bar: Bar, end: asyncio.Timeout) -> None:
        while True:
            self._draw(pushes, bar)
            await asyncio.sleep(SECONDS_BETWEEN_LOOKS)
            if self._is_busy(pushes):
                self.busy_at = time.monotonic()
            elif time.monotonic() - self.busy_at > PATIENCE:
                self.stop(f"nothing was under way any more{self._held}")
                # A block that ends with an exception sends nothing and waits for nothing.
                self.results.alone = True
                end.reschedule(asyncio.get_running_loop().time())
                return

    def _is_busy(self, pushes: Coordinator) -> bool:
        """Whether there is anything to wait for after Ctrl-C; always True before it."""
        now = self.client.stats()
        if now.in_flight or not self.interrupted:
            return True
        sought = any(one.outcome is None for one in pushes.in_doubt)
        return now.gate_open and bool(pushes.progress.open or sought)

    def _draw(self, pushes: Coordinator, bar: Bar) -> None:
        now, done = pushes.progress, self.results.counts.total()
        sought = sum(push.outcome is None for push in pushes.in_doubt)
        states = {"sending": now.sending, "open": now.open, "looked for": sought}
        shown = [f"{count:,} {state}" for state, count in states.items() if count]
        rate = f"{done / (time.monotonic() - self.began):,.0f}/s"
        bar.show(", ".join([str(self.results), *shown]), self._part, note=rate + self._held)

    @property
    def _held(self) -> str:
        """Return a note if the service holds everything back, with the time if it named one."""
        if self.client.stats().gate_open:
            return ""
        quota = self.client.quota
        reset = quota.reset if quota and quota.remaining == 0 else None
        until = f" until {reset.astimezone(UTC):%Y-%m-%d %H:%M} UTC" if reset else ""
        return f", held back by the service{until}"

    @property
    def _part(self) -> float | None:
        if self.lines is None or not self.lines.size:
            return None
        return min(1.0, self.results.settled / self.lines.size)

    def conclude(self) -> int:
        """Print the summary and return the exit code."""
        results = self.results
        took = f"{results} in {time.monotonic() - self.began:.1f} s."
        say(self.err, took if results.counts else "There was nothing to do.")
        if results.earlier:
            say(self.err, f"{results.earlier:,} of them had been sent in an earlier run.")
        if results.unread:
            say(
                self.err,
                f"Lines without a record: {results.unread:,}. The input has to be {FORMAT}.",
            )
        self._show_doubts()
        if self.stopped:
            say(self.err, f"Stopped: {self.stopped}")
        if self.interrupted:
            say(self.err, f"Interrupted. {self.advice}")
            return INTERRUPTED
        return max(results.exit_code, SOME_DID_NOT if self.stopped else 0)

    def _show_doubts(self) -> None:
        for doubt in self.results.doubts:
            say(self.err, f"In doubt: {doubt}")
        if self.results.doubts and self.journal:
            resolve = f"integration-sdk pushes resolve INTENT {self.journal.options}"
            say(self.err, f"{resolve} --resend | --abandon | --bind KEY")
        elif self.results.doubts:
            say(self.err, "There is no --journal to decide in: push those anew that you miss.")
