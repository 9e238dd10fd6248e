"""What a command shows and how it ends: results on stdout, one live line on stderr, exit codes."""

from __future__ import annotations

import asyncio
import os
import signal
import sys
from collections.abc import Callable, Coroutine, Iterable, Iterator
from contextlib import contextmanager, suppress
from typing import IO, TYPE_CHECKING, Any, Final, TypeVar

from integration_sdk._text import printable
from integration_sdk.errors import ConfigurationError, IntegrationError

if TYPE_CHECKING:
    from rich.progress import Progress

T = TypeVar("T")
NOT_ALL: Final = 1
WRONG_USAGE: Final = 2
INTERRUPTED: Final = 130
_SHOW_CURSOR: Final = b"\x1b[?25h"


class Interrupted(Exception):
    """Ctrl-C or SIGTERM has ended the command; the text says how to go on."""


def show(text: str) -> None:
    """Print a result; whatever others have chosen in it is made printable.

    Raises:
        IntegrationError: Stdout cannot be written.
    """
    try:
        print(printable(text), flush=True)
    except OSError as error:
        discard(sys.stdout)
        raise IntegrationError(f"standard output cannot be written: {error.strerror}") from error


def note(text: str) -> None:
    """Print a line on stderr; if that cannot be written, the command goes on."""
    if sys.stderr:
        try:
            print(printable(text), file=sys.stderr, flush=True)
        except OSError:
            discard(sys.stderr)


def discard(file: IO[Any]) -> None:
    """Redirect *file* to nowhere if it cannot be flushed, as the exit of the process would."""
    try:
        file.flush()
    except OSError:
        nowhere = os.open(os.devnull, os.O_WRONLY)
        os.dup2(nowhere, file.fileno())
        os.close(nowhere)


def show_table(title: str, rows: Iterable[tuple[object, ...]]) -> None:
    """Print rows as aligned lines; a column without any text is left out."""
    show(title)
    texts = [[printable(str(cell)) for cell in row] for row in rows]
    columns = [column for column in zip(*texts, strict=True) if any(column)]
    widths = [max(map(len, column)) for column in columns]
    for row in zip(*columns, strict=True):
        cells = (text.ljust(width) for text, width in zip(row, widths, strict=True))
        show(("  " + "  ".join(cells)).rstrip())


def progress(*, quiet: bool = False) -> Progress:
    """Return lines of progress, for a terminal only; ``update(task, note=...)`` adds a text."""
    from rich.console import Console  # noqa: PLC0415 - for commands that take long
    from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn  # noqa: PLC0415 - a --help draws no bars

    console = Console(stderr=True)
    return Progress(
        TextColumn("{task.description}"),
        BarColumn(bar_width=20),
        TimeElapsedColumn(),
        TextColumn("{task.fields[note]}", markup=False),
        console=console,
        disable=quiet or not console.is_terminal,
        transient=True,
        redirect_stdout=sys.stdout.isatty(),  # or results for a file would stand above the line
    )


@contextmanager
def usable(what: str) -> Iterator[None]:
    """Raise ConfigurationError "*what*: why" if the system refuses what the block does."""
    try:
        yield
    except OSError as error:
        raise ConfigurationError(f"{what}: {error.strerror}") from None


@contextmanager
def on_interrupt(stop: Callable[[], object]) -> Iterator[None]:
    """Call *stop* on Ctrl-C or SIGTERM, between two steps of the loop; the second one quits."""
    loop = asyncio.get_running_loop()
    came: list[int] = []

    def arrive(number: int, _: object) -> None:
        if came:  # the loop may be blocked for ever, by a full pipe that nothing reads
            with suppress(OSError):
                os.write(2, _SHOW_CURSOR if os.isatty(2) else b"")
            os._exit(INTERRUPTED)
        came.append(number)
        loop.call_soon_threadsafe(stop)

    usual = {one: signal.signal(one, arrive) for one in (signal.SIGINT, signal.SIGTERM)}
    try:
        yield
    finally:
        for one, handler in usual.items():
            signal.signal(one, handler)


async def interruptible(work: Coroutine[Any, Any, T], then: str = "") -> T:
    """Await *work*, which Ctrl-C or SIGTERM cancels: Interrupted says *then* how to go on."""
    task = asyncio.ensure_future(work)
    with on_interrupt(task.cancel):
        try:
            return await task
        except asyncio.CancelledError:
            raise Interrupted(f"interrupted. {then}".strip()) from None
