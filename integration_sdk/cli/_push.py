"""The commands that push: a file's records, or what a journal still holds.

What a journal has recorded is never sent twice: a line joins the push that an earlier run began
for it. The coordinator decides whether they are the same push.
"""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Annotated, Final, Literal

from attrs import asdict, frozen
from cyclopts import Parameter

from integration_sdk._client import Client
from integration_sdk.cli._display import stdout
from integration_sdk.cli._journals import Journal
from integration_sdk.cli._options import FROM_ENVIRONMENT, WHOLE, Flag, Scope, Service
from integration_sdk.cli._records import Lines, RecordOptions
from integration_sdk.cli._run import Run
from integration_sdk.errors import (
    AccountExpired,
    ApiError,
    ConfigurationError,
    Forbidden,
    InvalidRecord,
    ServiceUnavailable,
    TooManyRequests,
    Unauthorized,
)
from integration_sdk.models import PushRequest

_STOPS: Final = (
    AccountExpired,
    ConfigurationError,
    ServiceUnavailable,
    TooManyRequests,
    Unauthorized,
)
"""Errors after which nothing more is pushed; what was pushed keeps its outcome."""


@Parameter(name="*")
@frozen(kw_only=True)
class Patience:
    """What is done about lost answers and long waits; options of a coordinator."""

    exclusive: Flag = False
    """Nobody else pushes this type to this connection. A push whose answer was lost can then be
    identified without its data."""

    patience: float = 30
    """Seconds to search the list of pushes for one whose answer was lost."""

    max_pause: float | None = None
    """Longest wait, in seconds, that the service may ask for before a record is sent. If it asks
    for more, for example because a daily quota is used up, the command ends with exit code 1.
    Without it the command waits as long as it takes."""


_USUAL: Final = Patience()


async def push(
    records: Annotated[str, Parameter(allow_leading_hyphen=True)],
    *,
    options: RecordOptions,
    journal: str | None = None,
    scope: Scope = WHOLE,
    check: Literal["options"] | None = None,
    max_open: int = 2000,
    patience: Patience = _USUAL,
    service: Service = FROM_ENVIRONMENT,
) -> int:
    """Push the records of an NDJSON file: outcomes on stdout, progress on stderr.

    With a journal, run the same command again to continue after any interruption: nothing is sent
    twice. A line that holds no record is INVALID, and the rest is pushed. Ctrl-C stops reading and
    waits for open pushes, unless the service holds everything back; a second Ctrl-C quits at once.

    Exit codes: 0 all succeeded; 1 some did not, or the service or journal could not be used; 2
    wrong usage; 3 some are in doubt; 130 interrupted.

    Parameters
    ----------
    records
        A file with one JSON object per line, or - for standard input.
    journal
        File that records what is sent; created if missing. Or the postgresql:// URL of a database
        (needs the extra [postgres]); set PGPASSWORD to keep the password out of the command line.
    check
        Compare each record with the push options first. A record that breaks them is INVALID.
    max_open
        Maximum number of pushes without an outcome.
    """
    stdout()
    if journal is None:
        scope.check_unused("--journal")
    async with service.client() as client:
        with Lines(records) as lines:
            run = Run(client, Journal(journal, scope) if journal is not None else None, lines)
            await _try_out(client, options, must_have_options=check is not None)
            async with run.coordinator(
                check=check, max_open=max_open, **asdict(patience)
            ) as pushes:
                try:
                    async for _ in pushes.run(_requests(run, lines, options)):
                        pass  # `Run.hear` has taken it
                except _STOPS as error:
                    run.stop(str(error))
                await run.wait_for_left()
        return run.conclude()


async def _try_out(client: Client, options: RecordOptions, *, must_have_options: bool) -> None:
    """Check key, address and ids before anything is written to a journal."""
    books = client.company(options.company).connection(options.connection)
    try:
        await books.options(options.data_type, for_update=options.update_id is not None)
    except (Unauthorized, Forbidden, AccountExpired):
        raise
    except ApiError:
        # Not every data type has options; they are needed only if records are checked.
        if must_have_options:
            raise


async def _requests(run: Run, lines: Lines, options: RecordOptions) -> AsyncIterator[PushRequest]:
    async for line in lines:
        if not line.text.strip():
            run.outcomes.settled += line.size
            continue
        try:
            request = options.request(line)
        except InvalidRecord as error:
            run.outcomes.refuse(line, error)
        else:
            run.outcomes.expect(request, line)
            yield request


async def resume(
    journal: str,
    *,
    scope: Scope = WHOLE,
    patience: Patience = _USUAL,
    service: Service = FROM_ENVIRONMENT,
) -> int:
    """Finish what a journal holds: send what is queued, search for lost pushes, wait for the rest.

    Outcomes, progress and exit codes are those of push.

    Parameters
    ----------
    journal
        As given to push.
    """
    stdout()
    kept = Journal(journal, scope)
    kept.check_exists()
    async with service.client() as client:
        run = Run(client, kept)
        async with run.coordinator(**asdict(patience)):
            await run.wait_for_left()
        return run.conclude()
