"""The output of a push command: an NDJSON line per outcome, a summary, an exit code."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping
from typing import IO, Any, Final, Self

from attrs import Factory, define

from integration_sdk._printable import printable
from integration_sdk._push.push import Push, PushEvent
from integration_sdk._records.codec import encode_value
from integration_sdk.cli._display import discard, stdout
from integration_sdk.cli._records import Line, NoRecord
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
    """Return the output line of an outcome; fields that do not apply are left out.

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
        "errors": outcome.reasons,
        "intent": doubt and doubt.intent,
        "candidates": doubt and doubt.candidates,
    }
    return {name: value for name, value in facts.items() if value not in (None, [], ())}


def by_status(counts: Counter[OutcomeStatus]) -> list[tuple[OutcomeStatus, int]]:
    """Return the counts, successes first."""
    return [(status, counts[status]) for status in OutcomeStatus if counts[status]]


@define(eq=False)
class Results:
    """Writes outcomes as they come, flushing each, and counts them.

    Attributes:
        counts: Number of outcomes, by status.
        earlier: How many of these an earlier run had sent.
        doubts: The first few outcomes in doubt.
        settled: Bytes of input whose outcomes are known.
        unread: Number of lines without a record.
        broken: Called with the error when the output cannot be written.
        alone: Whether outcomes are taken from events, because the run has been left.
    """

    file: IO[bytes]
    broken: Callable[[OSError], object] = Factory(lambda: lambda _: None)
    counts: Counter[OutcomeStatus] = Factory(Counter)
    earlier: int = 0
    doubts: list[PushInDoubt] = Factory(list)
    settled: int = 0
    unread: int = 0
    alone: bool = False
    _sent: set[int] = Factory(set)
    _lines: dict[int, Line] = Factory(dict)
    _references: set[str] = Factory(set)
    _silent: bool = False

    @classmethod
    def on_stdout(cls) -> Self:
        """Return results that go to standard output.

        Raises:
            ConfigurationError: It is closed.
        """
        return cls(stdout().buffer)

    def begin(self, request: PushRequest, line: Line) -> None:
        """Remember which line *request* was read from."""
        self._lines[id(request)] = line
        if request.reference is not None:
            self._references.add(request.reference)

    def hear(self, event: PushEvent) -> None:
        """Remember what this run has sent; take outcomes too, once the run has been left."""
        push = event.push
        if event.what in {"sent", "doubted"}:
            self._sent.add(id(push.request))
        elif self.alone and event.what == "ended" and push.outcome and not self._is_joined(push):
            self.take(push.outcome, push.request)

    def _is_joined(self, left: Push) -> bool:
        """Whether a line has joined a push of an earlier run; its outcome covers both."""
        return id(left.request) not in self._lines and left.request.reference in self._references

    def take(self, outcome: PushOutcome, sent: PushRequest) -> None:
        """Write and count an outcome; *sent* is the request that led to it, its own or a twin."""
        status, requests = outcome.status, {id(outcome.request), id(sent)}
        line = self._lines.pop(id(outcome.request), None)
        self.settled += len(line.text) if line else 0
        self.counts[status] += 1
        self.earlier += self._sent.isdisjoint(requests) and status in _SENT_BEFORE
        self._sent -= requests
        if isinstance(outcome.error, PushInDoubt) and len(self.doubts) < SHOWN:
            self.doubts.append(outcome.error)
        self.write(describe(outcome, line))

    def refuse(self, line: Line, error: InvalidRecord) -> None:
        """Write and count a line that holds no record."""
        self.counts[OutcomeStatus.INVALID] += 1
        self.unread += isinstance(error, NoRecord)
        self.settled += len(line.text)
        status = OutcomeStatus.INVALID
        self.write({"line": line.number, "status": status, "errors": [str(error)]})

    def write(self, facts: Mapping[str, Any]) -> None:
        """Write a line; if that fails, report it once and write nothing more."""
        if self._silent:
            return
        try:
            # On a terminal, too, it is shown as it stands.
            self.file.write(printable(encode_value(facts).decode()).encode() + b"\n")
            self.file.flush()
        except OSError as error:
            self._silent = True
            discard(self.file)
            self.broken(error)

    @property
    def exit_code(self) -> int:
        """0 if all succeeded, 3 if any is in doubt, else 1."""
        if self.counts[OutcomeStatus.IN_DOUBT]:
            return IN_DOUBT
        return ALL_SUCCEEDED if set(+self.counts) <= {OutcomeStatus.SUCCESS} else SOME_DID_NOT

    def __str__(self) -> str:
        counts = ", ".join(f"{count:,} {status}" for status, count in by_status(self.counts))
        return counts or "nothing"
