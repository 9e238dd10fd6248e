"""Progress on stderr: live bars on a terminal, an occasional plain line elsewhere."""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from typing import IO, Any, Final, TextIO

from attrs import Factory, define
from rich.box import ROUNDED
from rich.console import Console
from rich.progress import BarColumn, Progress, TaskID, TextColumn, TimeElapsedColumn
from rich.table import Table
from rich.text import Text

from integration_sdk._printable import printable
from integration_sdk.errors import ConfigurationError, IntegrationError

SECONDS_BETWEEN_LINES: Final = 2.0


@define
class Bar:
    """One row: a label, the progress, and a note."""

    _board: Board
    _label: str
    _task: TaskID
    _last_line: float = Factory(time.monotonic)
    _shown: str = ""

    def show(self, done: str, part: float | None = None, *, note: str = "") -> None:
        """Show the progress.

        Args:
            done: The progress in words and numbers.
            part: The share that is done, from 0 to 1; None if not known.
            note: Additional text.
        """
        total = None if part is None else 1.0
        self._board.progress.update(
            self._task, completed=part or 0.0, total=total, done=done, note=note
        )
        if not self._board.live:
            self._line(f"{self._label}: {done}  {note}".rstrip(), last=part == 1.0)

    def _line(self, text: str, *, last: bool) -> None:
        now = time.monotonic()
        if text != self._shown and (last or now - self._last_line >= SECONDS_BETWEEN_LINES):
            self._last_line, self._shown = now, text
            say(self._board.console, text)


class Board:
    """The bars of one job."""

    def __init__(self, console: Console) -> None:
        self.console = console
        self.live = console.is_terminal
        # Other output to stderr (a warning, say) is shown above the bars. Stdout is not
        # redirected: it may be a file, and redirected output ends up on the console.
        self.progress = Progress(
            TextColumn("[bold]{task.description}"),
            BarColumn(bar_width=28),
            TextColumn("{task.fields[done]}", justify="right"),
            TimeElapsedColumn(),
            TextColumn("[dim]{task.fields[note]}", markup=True),
            console=console,
            disable=not self.live,
            redirect_stdout=False,
            redirect_stderr=True,
        )

    @contextmanager
    def shown(self) -> Iterator[Board]:
        """Show the bars while the block runs."""
        with self.progress:
            yield self

    def bar(self, label: str) -> Bar:
        """Add a row."""
        return Bar(self, label, self.progress.add_task(label, total=None, done="", note=""))

    def leave(self) -> None:
        """Restore the terminal, before the process ends at once."""
        self.progress.stop()


class Stderr(Console):
    """A console on stderr; if nobody reads stderr, output is lost but the command goes on."""

    def __init__(self) -> None:
        super().__init__(stderr=True)

    def on_broken_pipe(self) -> None:
        """Leave the error to `say`; rich would close stdout and end the process."""
        raise  # noqa: PLE0704  # it is called while the error is handled


def stdout() -> TextIO:
    """Return standard output, for a command whose results nobody could see without it.

    Raises:
        ConfigurationError: It is closed.
    """
    if not sys.stdout:
        raise ConfigurationError("standard output is closed, and results are written to it")
    return sys.stdout


def say(console: Console, text: str) -> None:
    """Print a line, without wrapping or markup; text of others is in it.

    Raises:
        IntegrationError: Stdout cannot be written. Errors of stderr are ignored.
    """
    try:
        console.print(printable(text), soft_wrap=True, markup=False, highlight=False)
    except OSError as error:
        discard(console.file)
        if not console.stderr:
            why = f"standard output cannot be written: {error.strerror}"
            raise IntegrationError(why) from None


def discard(file: IO[Any]) -> None:
    """Redirect *file* to nowhere, or flushing it at exit would fail again."""
    nowhere = os.open(os.devnull, os.O_WRONLY)
    os.dup2(nowhere, file.fileno())
    os.close(nowhere)


def discard_unwritten(file: IO[Any]) -> None:
    """Write what *file* still holds, or redirect it to nowhere if that fails."""
    try:
        file.flush()
    except OSError:
        discard(file)


def show_table(console: Console, title: str, rows: Iterable[tuple[str, ...]]) -> None:
    """Print rows of texts: a table on a terminal, aligned lines elsewhere."""
    say(console, title)
    safe = (tuple(map(printable, row)) for row in rows)
    columns = [column for column in zip(*safe, strict=True) if any(column)]
    if console.is_terminal:
        _draw(console, columns)
        return
    widths = [max(map(len, column)) for column in columns]
    for row in zip(*columns, strict=True):
        cells = (text.ljust(width) for text, width in zip(row, widths, strict=True))
        say(console, ("  " + "  ".join(cells)).rstrip())


def _draw(console: Console, columns: list[tuple[str, ...]]) -> None:
    table = Table(show_header=False, box=ROUNDED)
    for index, _ in enumerate(columns):
        table.add_column(style="bold" if index == 0 else "", overflow="fold")
    for row in zip(*columns, strict=True):
        table.add_row(*map(Text, row))
    console.print(table)
