"""The command ``integration-sdk``: a sandbox, a demo, bulk pushes and pulls, and their journal.

Each command is an async function in a module of its own, which is imported when it runs; its
docstring is its ``--help``. To add one, give it a line below. Exit codes: 0 success, 1 not all of
it, or the service, database or file could not be used, 2 wrong usage, 130 interrupted. Errors are
one line on stderr; results go to stdout.
"""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Sequence
from inspect import iscoroutine
from io import TextIOWrapper
from typing import Final

from cyclopts import App, CycloptsError, Parameter

from integration_sdk._version import __version__
from integration_sdk.cli import _display as display
from integration_sdk.errors import ConfigurationError, IntegrationError

COMMANDS: Final = {
    "demo": "Stream invoices and push records at the same time, while requests get 429 or 503.",
    "sandbox": "Serve a sandbox of the service until Ctrl-C or SIGTERM.",
    "companies": "List the companies of the account and their connections, with their ids.",
    "options": "Show what records of a data type a connection accepts.",
    "push": "Push the records of an NDJSON file: outcomes on stdout, progress on stderr.",
    "pull": "Write the records of companies into files or a database, each state once.",
    "crashtest": "Kill and freeze a program against a sandbox; find what it has doubled or lost.",
}
JOURNAL: Final = {
    "list": "Show the pushes in a journal, by state.",
    "resume": "Finish what a journal holds: send what is queued, search for lost pushes, wait.",
    "resolve": "Record a decision about a push in doubt.",
}
WITHOUT_A_COMMAND: Final = frozenset({"--help", "-h", "pushes", "--version"})


def main() -> int:
    """Run the command of the process's arguments and return its exit code."""
    try:
        return asyncio.run(run(sys.argv[1:]))
    except KeyboardInterrupt:
        return _failed("interrupted", display.INTERRUPTED)


async def run(arguments: Sequence[str]) -> int:
    """Run a command and return its exit code."""
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, TextIOWrapper):
            stream.reconfigure(errors="backslashreplace")  # not every terminal writes UTF-8
    if not sys.stdout:
        why = "standard output is closed, and results are written to it"
        return _failed(why, display.WRONG_USAGE)
    try:
        app = _app(is_list=WITHOUT_A_COMMAND.issuperset(arguments))
        command, bound, _ = app.parse_args(arguments, exit_on_error=False, print_error=False)
        result = command(*bound.args, **bound.kwargs)
        return (await result if iscoroutine(result) else 0) or 0
    except (CycloptsError, ConfigurationError) as error:
        return _failed(error, display.WRONG_USAGE)
    except display.Interrupted as error:
        return _failed(error, display.INTERRUPTED)
    except IntegrationError as error:
        if isinstance(error.__cause__, BrokenPipeError):  # `| head` has seen enough
            return display.NOT_ALL
        return _failed(error, display.NOT_ALL)
    except OSError as error:  # a port that is in use, a help text on a full disk
        display.discard(sys.stdout)
        what = f"{error.filename}: " if error.filename else ""
        return _failed(f"{what}{error.strerror or error}", display.NOT_ALL)


def _app(*, is_list: bool) -> App:
    """Return the command; a list of commands has a line for each, and imports none."""
    app = App(
        name="integration-sdk",
        help="Asyncio client for the Data Integration Service API.",
        help_format="plaintext" if is_list else "markdown",  # whose parser is large
        version=__version__,
        default_parameter=Parameter(negative_iterable=()),
        suppress_keyboard_interrupt=False,
    )
    pushes = App(name="pushes", help="Show, decide and finish the pushes in a journal.")
    for group, module, commands in ((app, "", COMMANDS), (pushes, "_journal", JOURNAL)):
        for name, line in commands.items():
            path = f"{__name__}.{module or f'_{name}'}:{name}"
            group.command(path, name=name, help=line if is_list else None)
    app.command(pushes)
    return app


def _failed(error: object, code: int) -> int:
    display.note(f"integration-sdk: {' '.join(str(error).split())}")
    return code
