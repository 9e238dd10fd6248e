"""One run of pushes: what is seen of it, what stops it, what it comes to.

Ctrl-C reads no further and waits for what is open; a second one leaves at once, which a
journal survives like any other end of the process.
"""

from __future__ import annotations

import asyncio
import os
import signal
import sys
import time
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager, contextmanager
from typing import Final, Literal, Unpack

from attrs import Factory, define, field
from rich.console import Console

from integration_sdk._client import Client
from integration_sdk._coordinator.coordinator import Coordinator, CoordinatorOptions
from integration_sdk.cli._display import Bar, Board, say
from integration_sdk.cli._outcomes import INTERRUPTED, SOME_DID_NOT, Results
from integration_sdk.cli._records import Lines
from integration_sdk.errors import Forbidden, MethodNotAllowed, NotFound, Unauthorized
from integration_sdk.models import OutcomeStatus, PushOutcome

SECONDS_BETWEEN_LOOKS: Final = 0.1
_SIGNALS: Final = (signal.SIGINT, signal.SIGTERM)
_HOPELESS: Final = (Unauthorized, Forbidden, NotFound, MethodNotAllowed)
"""Refusals that are not about the record: the next one would fare no better."""


@define(eq=False)
class Run:
    """One run: where its outcomes and its progress go, and whether it is to stop."""

    client: Client
    err: Console
    results: Results
    journal: str | None
    lines: Lines | None = None
    stopped: str | None = None
    interrupted: bool = False
    began: float = Factory(time.monotonic)
    board: Board = field(init=False)

    def __attrs_post_init__(self) -> None:
        self.board = Board(self.err)
        self.results.closed = self.hear_nobody_reads

    def interrupt(self) -> None:
        """Stop reading; what is open is waited for. Once more: leave, here and now."""
        if self.interrupted:
            self.leave()
        self.interrupted = True
        if self.lines:
            self.lines.stop()
        say(
            self.err,
            "Interrupted: no further line is read; waiting for what is open. "
            "Ctrl-C again leaves at once.",
        )

    def hear_nobody_reads(self) -> None:
        """Stop reading: outcomes that nobody sees are not worth more pushes."""
        if not self.interrupted:
            self.interrupt()

    def leave(self) -> None:
        """End the process."""
        self.board.leave()
        say(self.err, f"Left at once. {self.advice}")
        sys.stdout.flush()
        # Not by an exception, which would wait for the answers of what is being sent.
        os._exit(INTERRUPTED)

    @property
    def advice(self) -> str:
        """How to go on after an interruption."""
        if self.journal is None:
            read = f" up to line {self.lines.read:,}" if self.lines else ""
            return (
                f"Without --journal nothing is on record: what was read{read} has been sent, "
                "and would be sent again."
            )
        return (
            "Run the same command again to go on: what is on record in "
            f"{self.journal} is not sent a second time."
        )

    def look_at(self, outcome: PushOutcome) -> None:
        """Write an outcome, and stop reading where no record could fare better."""
        self.results.take(outcome)
        refused = outcome.status is OutcomeStatus.REJECTED and isinstance(outcome.error, _HOPELESS)
        # Not found may be the record that was to be updated, and that one alone.
        if refused and outcome.request.record_id is None:
            self.stop(str(outcome.error))

    def stop(self, why: str) -> None:
        """Read no further."""
        self.stopped = self.stopped or why
        if self.lines:
            self.lines.stop()

    @asynccontextmanager
    async def coordinator(
        self, *, checked: bool = False, **options: Unpack[CoordinatorOptions]
    ) -> AsyncIterator[Coordinator]:
        """A coordinator whose progress is shown."""
        options |= {"journal": self.journal, "on_event": self.results.hear}
        check: Literal["options"] | None = "options" if checked else None
        async with self.client.coordinator(check=check, **options) as pushes:
            with self.board.shown():
                bar = self.board.bar("Pushing" if self.lines else "Resuming")
                showing = asyncio.create_task(self._show(pushes, bar))
                try:
                    yield pushes
                finally:
                    showing.cancel()
                    self._draw(pushes, bar)

    async def _show(self, pushes: Coordinator, bar: Bar) -> None:
        while True:
            self._draw(pushes, bar)
            await asyncio.sleep(SECONDS_BETWEEN_LOOKS)

    def _draw(self, pushes: Coordinator, bar: Bar) -> None:
        now, done = pushes.progress, self.results.counts.total()
        sought = sum(push.outcome is None for push in pushes.in_doubt)
        states = {"sending": now.sending, "open": now.open, "looked for": sought}
        shown = [f"{count:,} {state}" for state, count in states.items() if count]
        rate = f"{done / (time.monotonic() - self.began):,.0f}/s"
        held = "" if self.client.stats().gate_open else "  held back by the service"
        bar.show(", ".join([str(self.results), *shown]), self._part, note=rate + held)

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
            resolve = f"integration-sdk pushes resolve INTENT --journal {self.journal}"
            say(self.err, f"{resolve} --resend | --abandon | --bind KEY")


@contextmanager
def hearing_signals(hear: Callable[[], None]) -> Iterator[None]:
    """Let a first Ctrl-C, or SIGTERM, be heard in place of breaking off."""
    loop = asyncio.get_running_loop()
    for one in _SIGNALS:
        loop.add_signal_handler(one, hear)
    try:
        yield
    finally:
        for one in _SIGNALS:
            loop.remove_signal_handler(one)
