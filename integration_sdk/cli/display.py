"""Progress on stderr: live bars on a terminal, a plain line now and then elsewhere."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager

from attrs import define
from rich.console import Console
from rich.progress import (
    BarColumn,
    MofNCompleteColumn,
    Progress,
    TaskID,
    TextColumn,
    TimeElapsedColumn,
)

SECONDS_BETWEEN_LINES = 2.0


@define
class Bar:
    """One row: a label, how much is done, and a note beside it."""

    _board: Board
    _label: str
    _total: int | None
    _task: TaskID
    done: int = 0
    _last_line: float = 0.0

    def advance(self, steps: int = 1, *, note: str = "") -> None:
        """Say that *steps* more are done."""
        self.done += steps
        self._board.progress.update(self._task, completed=self.done, note=note)
        if not self._board.live:
            self._line(note)

    def total(self, total: int) -> None:
        """Say how many there are in all."""
        self._total = total
        self._board.progress.update(self._task, total=total)

    def _line(self, note: str) -> None:
        now = time.monotonic()
        if self.done != self._total and now - self._last_line < SECONDS_BETWEEN_LINES:
            return
        self._last_line = now
        of = f" of {self._total:,}" if self._total is not None else ""
        self._board.console.print(f"{self._label}: {self.done:,}{of}  {note}".rstrip())


class Board:
    """Where the bars of one job stand."""

    def __init__(self, console: Console) -> None:
        self.console = console
        self.live = console.is_terminal
        self.progress = Progress(
            TextColumn("{task.description}"),
            BarColumn(),
            MofNCompleteColumn(),
            TimeElapsedColumn(),
            TextColumn("[dim]{task.fields[note]}"),
            console=console,
            disable=not self.live,
        )

    @contextmanager
    def shown(self) -> Iterator[Board]:
        """Show the bars while the block runs."""
        with self.progress:
            yield self

    def bar(self, label: str, total: int | None = None) -> Bar:
        """Add a row."""
        return Bar(self, label, total, self.progress.add_task(label, total=total, note=""))
