"""The output of a push command: an NDJSON line per outcome, counts, an exit code."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from typing import IO, Any, Final

from attrs import Factory, define

from integration_sdk._outcome import PushOutcome
from integration_sdk._push.push import Push, PushEvent
from integration_sdk._records.codec import encode_value
from integration_sdk._text import printable
from integration_sdk.cli._display import discard
from integration_sdk.cli._ends import ALL_SUCCEEDED, IN_DOUBT, SOME_DID_NOT
from integration_sdk.cli._records import Line, NoRecord
from integration_sdk.errors import InvalidRecord, PushInDoubt
from integration_sdk.models import OutcomeStatus, PushRequest

SHOWN: Final = 5
"""Pushes in doubt that a summary shows."""
_ENDED: Final = {OutcomeStatus.SUCCESS, OutcomeStatus.FAILED, OutcomeStatus.TIMED_OUT}


def described(outcome: PushOutcome, line: Line | None) -> dict[str, Any]:
    """Return the output line of an outcome; fields that do not apply are left out.

    ``line`` (its number in the input; none for what an earlier run left), ``reference``,
    ``status``, ``key``, ``errors`` (texts), and of a push in doubt ``intent`` and ``candidates``.
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


def counted(counts: Mapping[OutcomeStatus, int]) -> list[str]:
    """Return texts such as "3 SUCCESS", successes first."""
    return [f"{counts[status]:,} {status}" for status in OutcomeStatus if counts.get(status)]


@define(eq=False)
class Outcomes:
    """Writes outcomes as they come, flushing each, and counts them.

    Attributes:
        file: Where to.
        broken: Called with the error when the output cannot be written.
        left: Pushes of an earlier run, by intent, whose outcomes have not been written.
        counts: Number of outcomes, by status.
        earlier: How many of these an earlier run sent.
        doubts: The first few pushes in doubt.
        settled: Bytes of input whose outcomes are known.
        unread: Number of lines without a record.
    """

    file: IO[bytes]
    broken: Callable[[OSError], object]
    left: dict[str | None, Push] = Factory(dict)
    counts: Counter[OutcomeStatus] = Factory(Counter)
    earlier: int = 0
    doubts: list[PushInDoubt] = Factory(list)
    settled: int = 0
    unread: int = 0
    _sent: set[str | None] = Factory(set)
    _lines: dict[int, Line] = Factory(dict)
    _silent: bool = False

    def expect(self, request: PushRequest, line: Line) -> None:
        """Remember which line *request* was read from."""
        self._lines[id(request)] = line

    def hear(self, event: PushEvent) -> None:
        """Take the outcomes of lines, and remember what this run has sent.

        A line may join a push of an earlier run. Then it has the outcome of that push, whose
        own event is not written; hence what is `left` is taken at the end only.
        """
        if event.what in {"sent", "doubted"}:
            self._sent.add(event.push.intent)
        elif event.what == "ended" and id(event.push.request) in self._lines:
            self.take(event.push)

    def take(self, push: Push) -> None:
        """Write and count the outcome of *push*, which has ended."""
        outcome = push.outcome
        if outcome is None:
            return
        line = self._lines.pop(id(push.request), None)
        self.settled += line.size if line else 0
        self.counts[outcome.status] += 1
        self.earlier += outcome.status in _ENDED and push.intent not in self._sent
        self._sent.discard(push.intent)
        self.left.pop(push.intent, None)
        if isinstance(outcome.error, PushInDoubt) and len(self.doubts) < SHOWN:
            self.doubts.append(outcome.error)
        self._write(described(outcome, line))

    def take_all(self, pushes: Iterable[Push]) -> None:
        """Write and count those of *pushes* that have ended."""
        for push in list(pushes):
            self.take(push)

    def refuse(self, line: Line, error: InvalidRecord) -> None:
        """Write and count a line that holds no record."""
        self.counts[OutcomeStatus.INVALID] += 1
        self.unread += isinstance(error, NoRecord)
        self.settled += line.size
        status = OutcomeStatus.INVALID
        self._write({"line": line.number, "status": status, "errors": [str(error)]})

    def _write(self, facts: Mapping[str, Any]) -> None:
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
        return ", ".join(counted(self.counts)) or "nothing"
