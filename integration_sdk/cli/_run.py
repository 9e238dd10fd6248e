"""One run of pushes, by `push` or `pushes resume`: its outcomes, its interruption, its result.

Ctrl-C stops reading and waits for open pushes; a second one ends the process at once, which a
journal survives like a crash.
"""

from __future__ import annotations

import time
from collections import Counter, defaultdict
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import nullcontext
from typing import Any, Final

from attrs import Factory, asdict, define, frozen
from cyclopts import Parameter
from rich.progress import Progress

from integration_sdk._client import Client
from integration_sdk._outcome import PushOutcome
from integration_sdk._push.coordinator import Coordinator
from integration_sdk._records.codec import encode_value
from integration_sdk._store.store import Store
from integration_sdk.cli import _display as display
from integration_sdk.cli._records import Lines, RecordOptions
from integration_sdk.cli._service import Flag
from integration_sdk.errors import ApiError, ConfigurationError, IntegrationError, InvalidRecord
from integration_sdk.models import OutcomeStatus, PushRequest

_HOPELESS: Final = frozenset({401, 403, 404, 405, 429, 503})
"""Refusals that are not about the record, so every other record would be refused too."""


@Parameter(name="*")
@frozen(kw_only=True)
class Following:
    """How pushes are followed; options of a coordinator."""

    exclusive: Flag = False
    """Nothing else pushes this type to this connection. A push whose answer was lost can then be
    identified without its data."""

    patience: float = 30
    """Seconds to search the list of pushes for one whose answer was lost."""

    max_pause: float | None = None
    """Longest wait, in seconds, that the service may ask for before a record is sent, such as when
    a daily quota is used up: the command ends then. By default it waits as long as it takes."""

    max_open: int = 2000
    """Maximum number of pushes without an outcome."""


USUAL: Final = Following()


@define(eq=False)
class Run:
    """One run: its outcomes so far, and whether it should stop.

    Attributes:
        lines: The input; None for a run that only goes on with what a journal holds.
        stopped: Why no more lines are read, unless the user interrupted the run.
    """

    client: Client
    quiet: bool
    lines: Lines | None = None
    stopped: str = ""
    interrupted: bool = False
    counts: Counter[OutcomeStatus] = Factory(Counter)
    began: float = Factory(time.monotonic)
    live: Progress = Factory(lambda run: display.progress(quiet=run.quiet), takes_self=True)
    _numbers: dict[str | None, list[int]] = Factory(lambda: defaultdict(list))

    async def through(
        self,
        store: Store | None,
        following: Following,
        work: Callable[[Coordinator], Awaitable[None]],
        **options: Any,
    ) -> int:
        """Let *work* push with a coordinator; show the summary and return the exit code."""
        options |= {**asdict(following), "journal": store}
        try:
            with display.on_interrupt(self.interrupt), self.live:
                size = self.lines.size if self.lines else None
                self.live.add_task("Pushing", total=size, note="")
                async with store or nullcontext(), self.client.coordinator(**options) as pushes:
                    await work(pushes)
        except ConfigurationError:
            raise
        except IntegrationError as error:
            self.stop(str(error))
        return self._conclude()

    async def requests(self, lines: Lines, options: RecordOptions) -> AsyncIterator[PushRequest]:
        """Yield a request for each line, and report those that hold no record."""
        async for number, line in lines:
            try:
                request = options.request(line)
            except InvalidRecord as error:
                self._write(OutcomeStatus.INVALID, line=number, errors=[str(error)])
            else:
                self._numbers[request.reference].append(number)
                yield request

    def report(self, outcome: PushOutcome) -> None:
        """Write the line of an outcome; stop if every other record would be refused as well."""
        error, numbers = outcome.error, self._numbers.get(outcome.reference)
        self._write(
            outcome.status,
            line=numbers.pop(0) if numbers else None,
            reference=outcome.reference,
            key=outcome.key,
            errors=outcome.reasons,
            intent=getattr(error, "intent", None),  # of a PushInDoubt
            candidates=getattr(error, "candidates", None),
        )
        is_new = outcome.request.record_id is None  # of others only this one may be missing
        if isinstance(error, ApiError) and error.status in _HOPELESS and is_new:
            self.stop(str(error))

    def _write(self, status: OutcomeStatus, **facts: Any) -> None:
        """Write a line and count it; fields that do not apply are left out."""
        self.counts[status] += 1
        done = self.lines.done if self.lines else 0
        self.live.update(self.live.task_ids[0], completed=done, note=self._counted())
        some = {name: value for name, value in facts.items() if value not in (None, [], ())}
        try:
            display.show(encode_value({"status": status, **some}).decode())
        except IntegrationError as error:
            self.stop(str(error))

    def _counted(self) -> str:
        said = (f"{self.counts[one]:,} {one}" for one in OutcomeStatus if self.counts[one])
        return ", ".join(said) or "nothing to do"

    def stop(self, why: str) -> None:
        self.stopped = self.stopped or why
        if self.lines:
            self.lines.stop()

    def interrupt(self) -> None:
        self.interrupted = True
        if self.lines:
            self.lines.stop()
        display.note("Waiting for open pushes. Ctrl-C again quits at once.")

    def _conclude(self) -> int:
        if not self.quiet and (self.counts or not self.stopped):
            display.note(f"{self._counted()} in {time.monotonic() - self.began:.1f} s.")
        if self.counts[OutcomeStatus.IN_DOUBT]:
            display.note("What is in doubt may exist: check the platform, and decide about what a")
            display.note("journal holds with `integration-sdk pushes resolve INTENT`.")
        if self.stopped:
            display.note(f"Stopped: {self.stopped}")
        if self.interrupted:
            display.note("Interrupted. With a journal, run the same command again to continue.")
            return display.INTERRUPTED
        failed = self.counts.total() != self.counts[OutcomeStatus.SUCCESS]
        return display.NOT_ALL if failed or self.stopped else 0
