"""The command ``integration-sdk``: a sandbox, a demo, bulk pushes and pulls, and their journal.

Each command is an async function in a module of its own, and its docstring is its ``--help``. To
add one, register it below. Exit codes: 0 success, 1 failure of some records or of the service, 2
wrong usage, 3 a push is in doubt, 130 interrupted. Errors are one line on stderr; results go to
stdout.
"""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Sequence
from io import TextIOWrapper

from cyclopts import App, CycloptsError, MissingArgumentError, Parameter, UnusedCliTokensError

from integration_sdk import __version__
from integration_sdk.cli._display import Stderr, discard, say
from integration_sdk.cli._ends import INTERRUPTED, SOME_DID_NOT, WRONG_USAGE
from integration_sdk.errors import ConfigurationError, IntegrationError

app = App(
    name="integration-sdk",
    help="Asyncio client for the Data Integration Service API.",
    version=__version__,
    default_parameter=Parameter(negative_iterable=()),
    suppress_keyboard_interrupt=False,
)
_pushes = App(name="pushes", help="Show, decide and finish the pushes in a journal.")
_store = App(name="store", help="Prepare a PostgreSQL database that many processes share.")

# By path, so that only the module of the command that runs is imported.
app.command(f"{__name__}._sandbox:sandbox")
app.command(f"{__name__}._demo:demo")
app.command(f"{__name__}._plan:plan")
app.command(f"{__name__}._push:push")
app.command(f"{__name__}._pull:pull")
app.command(f"{__name__}._crashtest:crashtest")
app.command(_pushes)
app.command(_store)
_pushes.command(f"{__name__}._journals:list_", name="list")
_pushes.command(f"{__name__}._push:resume")
_pushes.command(f"{__name__}._journals:resolve")
_store.command(f"{__name__}._journals:migrate")


def main(arguments: Sequence[str] | None = None) -> int:
    """Run a command and return its exit code; None takes the process's arguments."""
    try:
        return asyncio.run(run(sys.argv[1:] if arguments is None else arguments))
    except KeyboardInterrupt:
        return _fail("interrupted", INTERRUPTED)


async def run(arguments: Sequence[str]) -> int:
    """Run a command within a loop that runs already, and return its exit code."""
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, TextIOWrapper):
            stream.reconfigure(errors="backslashreplace")  # not every terminal writes UTF-8
    if set(arguments[-1:]) <= {"--help", "-h", "pushes", "store"}:  # a help that lists commands
        for group in (app, _pushes, _store):
            list(group.subapps)  # imported, since their docstrings are shown
    try:
        code = await app.run_async(
            arguments, exit_on_error=False, print_error=False, result_action="return_value"
        )
    except UnusedCliTokensError as error:
        return _fail(f"unexpected: {' '.join(error.unused_tokens or ())}; see --help", WRONG_USAGE)
    except MissingArgumentError as error:
        return _fail(_missing(error), WRONG_USAGE)
    except (CycloptsError, ConfigurationError) as error:
        return _fail(error, WRONG_USAGE)
    except IntegrationError as error:
        return _fail(error, SOME_DID_NOT)
    except OSError as error:  # a port that is in use, a help text on a full disk
        _discard_unwritten()
        return _fail(error.strerror or error, SOME_DID_NOT)
    return code if isinstance(code, int) else 0


def _missing(error: MissingArgumentError) -> str:
    """Return what a command line lacks, in the words of the help."""
    if error.keyword is not None:
        return f"{error.keyword} needs a value"
    argument = error.argument
    if argument is None:
        return str(error)
    name = argument.name
    if argument.field_info.kind is not argument.field_info.KEYWORD_ONLY:
        name = name.removeprefix("--").upper()
    command = " ".join(["integration-sdk", *(error.command_chain or ())])
    return f"{name} is missing; see {command} --help"


def _discard_unwritten() -> None:
    try:
        sys.stdout.flush()
    except OSError:
        discard(sys.stdout)


def _fail(error: object, code: int) -> int:
    say(Stderr(), f"integration-sdk: {' '.join(str(error).split())}")
    return code
