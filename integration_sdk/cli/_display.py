"""Results on stdout, progress on stderr: live bars on a terminal, an occasional line elsewhere."""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from typing import IO, Any, Final

from attrs import Factory, define
from rich.box import ROUNDED
from rich.console import Console
from rich.progress import BarColumn, Progress, TaskID, TextColumn, TimeElapsedColumn
from rich.table import Table
from rich.text import Text

from integration_sdk._text import printable
from integration_sdk.errors import ConfigurationError, IntegrationError

SECONDS_BETWEEN_LINES: Final = 2.0


class Stderr(Console):
    """A console on stderr; if nobody reads stderr, output is lost but the command goes on."""

    def __init__(self) -> None:
        super().__init__(stderr=True)

    def on_broken_pipe(self) -> None:
        """Leave the error to `say`; rich would close stdout and end the process."""
        raise  # noqa: PLE0704  # it is called while the error is handled


def stdout() -> Console:
    """Return a console on stdout, for a command that is useless without it.

    Raises:
        ConfigurationError: Stdout is closed.
    """
    if not sys.stdout:
        raise ConfigurationError("standard output is closed, and results are written to it")
    return Console()


def say(console: Console, text: str) -> None:
    """Print a line, without wrapping or markup; it may quote others.

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


def show_table(console: Console, title: str, rows: Iterable[tuple[str, ...]]) -> None:
    """Print rows of texts: in a box on a terminal, as aligned lines elsewhere."""
    say(console, title)
    columns = [column for column in zip(*rows, strict=True) if any(column)]
    widths = [max(map(len, map(printable, column))) for column in columns]
    table = Table(show_header=False, box=ROUNDED)
    for index, _ in enumerate(columns):
        table.add_column(style="bold" if index == 0 else "", overflow="fold")
    for row in zip(*columns, strict=True):
        texts = [printable(text) for text in row]
        if console.is_terminal:
            table.add_row(*map(Text, texts))
        else:
            cells = (text.ljust(width) for text, width in zip(texts, widths, strict=True))
            say(console, ("  " + "  ".join(cells)).rstrip())
    if console.is_terminal:
        console.print(table)


class Board:
    """The progress bars of one job."""

    def __init__(self, console: Console) -> None:
        self.console = console
        self.live = console.is_terminal
        # Other output to stderr (a warning, say) is shown above the bars. Stdout is not
        # redirected: it may be a file, and redirected output ends up on the console.
        self.progress = Progress(
            TextColumn("[bold]{task.description}"),
            BarColumn(bar_width=28),
            TextColumn("{task.fields[done]}", justify="right", markup=False),
            TimeElapsedColumn(),
            TextColumn("{task.fields[note]}", style="dim", markup=False),
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
        """Add a bar."""
        return Bar(self, label, self.progress.add_task(label, total=None, done="", note=""))

    def leave(self) -> None:
        """Restore the terminal, before the process ends at once."""
        self.progress.stop()


@define
class Bar:
    """One bar: a label, the progress, and a note."""

    _board: Board
    _label: str
    _task: TaskID
    _printed_at: float = Factory(time.monotonic)
    _printed: str = ""

    def show(self, done: str, part: float | None = None, *, note: str = "") -> None:
        """Show the progress.

        Args:
            done: The progress in words and numbers.
            part: The share that is done, from 0 to 1; None if unknown.
            note: Additional text.
        """
        total = None if part is None else 1.0
        self._board.progress.update(
            self._task, completed=part or 0.0, total=total, done=done, note=note
        )
        line, now = f"{self._label}: {done}  {note}".rstrip(), time.monotonic()
        due = part == 1.0 or now - self._printed_at >= SECONDS_BETWEEN_LINES
        if not self._board.live and due and line != self._printed:
            self._printed_at, self._printed = now, line
            say(self._board.console, line)
