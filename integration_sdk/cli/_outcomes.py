"""What a push command says: an NDJSON line per outcome, a summary, an exit code."""

from __future__ import annotations

import os
import sys
from collections import Counter
from collections.abc import Callable, Mapping
from typing import IO, Any, Final

from attrs import Factory, define

from integration_sdk._coordinator.push import PushEvent
from integration_sdk._sansio.codec import encode_value
from integration_sdk.cli._records import Line
from integration_sdk.errors import InvalidRecord, PushInDoubt
from integration_sdk.models import OutcomeStatus, PushOutcome, PushRequest

ALL_SUCCEEDED: Final = 0
SOME_DID_NOT: Final = 1
WRONG_USAGE: Final = 2
IN_DOUBT: Final = 3
INTERRUPTED: Final = 130
SHOWN: Final = 5
"""Pushes in doubt that a summary shows."""
_SENT_BEFORE: Final = {OutcomeStatus.SUCCESS, OutcomeStatus.FAILED, OutcomeStatus.TIMED_OUT}


def describe(outcome: PushOutcome, line: Line | None) -> dict[str, Any]:
    """Return an outcome as a line of the output has it; what does not apply is left out.

    ``line`` (of the input; absent for what an earlier run left), ``reference``, ``status``,
    ``key``, ``errors`` (texts), and of a push in doubt ``intent`` and ``candidates``.
    """
    error = outcome.error
    doubt = error if isinstance(error, PushInDoubt) else None
    facts = {
        "line": line and line.number,
        "reference": outcome.reference,
        "status": outcome.status,
        "key": outcome.key,
        "errors": errors_of(outcome),
        "intent": doubt and doubt.intent,
        "candidates": doubt and doubt.candidates,
    }
    return {name: value for name, value in facts.items() if value not in (None, [], ())}


def errors_of(outcome: PushOutcome) -> list[str]:
    """Return why a push did not succeed, one text for each reason."""
    validation = outcome.operation and outcome.operation.validation
    if outcome.status is OutcomeStatus.FAILED and validation and validation.errors:
        return [str(item) for item in validation.errors]
    if isinstance(outcome.error, InvalidRecord) and outcome.error.problems:
        return [str(problem) for problem in outcome.error.problems]
    return [] if outcome.error is None else [str(outcome.error)]


def by_status(counts: Counter[OutcomeStatus]) -> list[tuple[OutcomeStatus, int]]:
    """Return what was counted, successes first."""
    return [(status, counts[status]) for status in OutcomeStatus if counts[status]]


@define(eq=False)
class Results:
    """Writes outcomes as they come, each flushed, and keeps count.

    Attributes:
        counts: How many outcomes there are, by status.
        earlier: Of these, the ones that an earlier run had sent.
        doubts: The first few that are in doubt.
        settled: Bytes of the input that is done with.
        closed: Called when nobody reads the output any more.
    """

    file: IO[bytes]
    closed: Callable[[], object] = Factory(lambda: lambda: None)
    counts: Counter[OutcomeStatus] = Factory(Counter)
    earlier: int = 0
    doubts: list[PushInDoubt] = Factory(list)
    settled: int = 0
    _sent: set[int] = Factory(set)
    _lines: dict[int, Line] = Factory(dict)
    _broken: bool = False

    def begin(self, request: PushRequest, line: Line) -> None:
        """Remember which line *request* was read from."""
        self._lines[id(request)] = line

    def has(self, request: PushRequest) -> bool:
        """Whether *request* stands for a line already."""
        return id(request) in self._lines

    def hear(self, event: PushEvent) -> None:
        """Remember what this run has sent."""
        if event.what in {"sent", "doubted"}:
            self._sent.add(id(event.push.request))

    def take(self, outcome: PushOutcome) -> None:
        """Write and count an outcome."""
        request, status = id(outcome.request), outcome.status
        line = self._lines.pop(request, None)
        self.settled += len(line.text) if line else 0
        self.counts[status] += 1
        self.earlier += request not in self._sent and status in _SENT_BEFORE
        self._sent.discard(request)
        if isinstance(outcome.error, PushInDoubt) and len(self.doubts) < SHOWN:
            self.doubts.append(outcome.error)
        self.write(describe(outcome, line))

    def refuse(self, line: Line, error: InvalidRecord) -> None:
        """Write and count a line that holds no record."""
        self.counts[OutcomeStatus.INVALID] += 1
        self.settled += len(line.text)
        status = OutcomeStatus.INVALID
        self.write({"line": line.number, "status": status, "errors": [str(error)]})

    def write(self, facts: Mapping[str, Any]) -> None:
        """Write a line; where nobody reads any more, say so once and go on in silence."""
        if self._broken:
            return
        try:
            self.file.write(encode_value(facts) + b"\n")
            self.file.flush()
        except BrokenPipeError:
            self._broken = True
            # What is still buffered would break the pipe once more when the process ends.
            os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
            self.closed()

    @property
    def exit_code(self) -> int:
        """0 where all succeeded, 3 where any is in doubt, else 1."""
        if self.counts[OutcomeStatus.IN_DOUBT]:
            return IN_DOUBT
        return ALL_SUCCEEDED if set(+self.counts) <= {OutcomeStatus.SUCCESS} else SOME_DID_NOT

    def __str__(self) -> str:
        counts = ", ".join(f"{count:,} {status}" for status, count in by_status(self.counts))
        return counts or "nothing"
