"""The command ``integration-sdk``: a sandbox, a demo, bulk pushes and their journal.

Every command is declared here and implemented in a module of its own. Exit codes: 0 success, 1
failure of some records or of the service, 2 wrong usage, 3 a push is in doubt, 130 interrupted.
Errors are one line on stderr; results go to stdout.
"""

from __future__ import annotations

import asyncio
import logging
import os
import sys
from collections.abc import Sequence
from contextlib import suppress
from functools import partial
from io import TextIOWrapper
from pathlib import Path
from typing import Annotated, Literal

from cyclopts import App, CycloptsError, Parameter, UnusedCliTokensError
from rich.console import Console

from integration_sdk import __version__
from integration_sdk._http.requests import MIB
from integration_sdk._store.database import migrate as make_tables
from integration_sdk._store.database import migration
from integration_sdk.cli import _journals, _pull, _pushing
from integration_sdk.cli._crashtest import crashtest
from integration_sdk.cli._demo import DemoSettings, run_demo
from integration_sdk.cli._display import Stderr, discard_unwritten, say, stdout
from integration_sdk.cli._journals import DEFAULT_SCOPE
from integration_sdk.cli._outcomes import INTERRUPTED, SOME_DID_NOT, WRONG_USAGE, Results
from integration_sdk.cli._plan import plan
from integration_sdk.cli._records import Plan
from integration_sdk.cli._service import Flag, Service
from integration_sdk.cli._signals import hearing_signals
from integration_sdk.errors import ConfigurationError, IntegrationError
from integration_sdk.sandbox import Sandbox, serve

app = App(
    name="integration-sdk",
    help="Asyncio client for the Data Integration Service API.",
    version=__version__,
    default_parameter=Parameter(negative_iterable=()),
    suppress_keyboard_interrupt=False,
)
_pushes = App(name="pushes", help="What the journal of `push` holds, and what is to become of it.")
app.command(_pushes)
_store = App(name="store", help="The database that many processes share as `Store(URL)`.")
app.command(_store)
app.command(crashtest)
app.command(plan)


_BY_ENVIRONMENT = Service()
_USUAL_DEMO = DemoSettings()


def main(arguments: Sequence[str] | None = None) -> int:
    """Run a command and return its exit code; None takes the process's arguments."""
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, TextIOWrapper):
            stream.reconfigure(errors="backslashreplace")  # not every terminal writes UTF-8
    try:
        code = app(
            sys.argv[1:] if arguments is None else arguments,
            exit_on_error=False,
            print_error=False,
            result_action="return_value",
        )
    except UnusedCliTokensError as error:
        unused = " ".join(error.unused_tokens or ())
        why = "an option begins with --, and one that is on or off takes no value"
        return _fail(f"{unused!r} belongs to no option: {why}; see --help", WRONG_USAGE)
    except (CycloptsError, ConfigurationError) as error:
        return _fail(error, WRONG_USAGE)
    except IntegrationError as error:
        return _fail(error, SOME_DID_NOT)
    except OSError as error:  # a port that is taken, a help text on a full disk
        discard_unwritten(sys.stdout)
        return _fail(error.strerror or error, SOME_DID_NOT)
    except KeyboardInterrupt:
        return _fail("interrupted", INTERRUPTED)
    return code if isinstance(code, int) else 0


def _fail(error: object, code: int) -> int:
    say(Stderr(), f"integration-sdk: {' '.join(str(error).split())}")
    return code


@app.command
def sandbox(
    *,
    host: str = "127.0.0.1",
    port: int = 8080,
    companies: int = 3,
    invoices: int = 20_000,
    pulled: Annotated[Path | None, Parameter(name="--from")] = None,
    seed: int = 0,
    push_seconds: tuple[float, float] = (0.05, 0.3),
    faults: Path | None = None,
    subscribe: list[str] | None = None,
    authorization: str | None = None,
    published: Flag = False,
    api_key: str | None = None,
    free_plan: Flag = False,
    account_age_days: float = 0,
    legacy_removed: bool = True,
    daily_quota: int | None = None,
    verbose: Flag = False,
) -> None:
    """Serve a sandbox of the service until Ctrl-C or SIGTERM.

    Faults can be set while it runs, in JSON as in a file of --faults: POST /_page/faults adds
    them, GET lists them with the number of calls each applied to, DELETE ends all. From another
    machine or container these calls need the API key, like any other.

    Parameters
    ----------
    host
        Where to listen.
    port
        Where to listen; 0 for any that is free.
    companies
        Companies that are there from the start.
    invoices
        Invoices in each company's books.
    pulled
        Serve what `pull` has written to this folder, as NDJSON or Parquet, in place of invented
        companies and records.
    seed
        The same seed gives the same books, identifiers and faults.
    push_seconds
        Least and most seconds that asynchronous platforms take for a push.
    faults
        A file of what goes wrong, in JSON: [{"fault": "rate_limit", "per_second": 20}, {"fault":
        "status", "code": 503, "route": "GET", "probability": 0.1}]. Names and arguments are
        those of the methods of integration_sdk.sandbox.Faults; [1, 3] seconds is a span.
    subscribe
        Where to post "Push status changed" to whenever a push ends; may be repeated. With
        --published it is signed, and the secret is printed.
    authorization
        Value of the Authorization header that is sent to --subscribe.
    published
        Speak today's public API in place of the interface document.
    api_key
        The only key that is accepted; without it one is made from the seed.
    free_plan
        An account of the free plan: 50 companies, a sync a day, 365 days.
    account_age_days
        Age of the account at the start.
    legacy_removed
        Whether the legacy bank endpoints are gone.
    daily_quota
        Requests a day; without it none is refused.
    verbose
        Write every request and the status of its answer to stderr.
    """
    if authorization is not None and not subscribe:
        raise ConfigurationError(
            "--authorization is sent to --subscribe URL: give both; "
            "the key that the sandbox accepts is printed when it starts"
        )
    try:
        server = Sandbox(
            companies=companies,
            invoices=invoices,
            pulled=pulled,
            seed=seed,
            push_seconds=push_seconds,
            remember=0,  # nobody can ask it here what it saw
            host=host,
            port=port,
            dialect="published" if published else "document",
            api_key=api_key,
            free_plan=free_plan,
            account_age_days=account_age_days,
            legacy_removed=legacy_removed,
            daily_quota=daily_quota,
        )
        if faults:
            _add_faults(server, faults)
        for url in subscribe or ():
            to = server.subscribe(
                url, style="signed" if published else "rule", authorization=authorization
            )
            if to.secret:
                print(f"Secret: {to.secret}", flush=True)
        if verbose:
            logging.basicConfig(format="%(asctime)s %(message)s")
            logging.getLogger("integration_sdk.sandbox").setLevel(logging.INFO)
        asyncio.run(_serve_until_told(server))
    except ValueError as error:
        raise ConfigurationError(str(error)) from None


async def _serve_until_told(server: Sandbox) -> None:
    serving = asyncio.create_task(serve(server))
    leave = partial(os._exit, INTERRUPTED)
    with hearing_signals(serving.cancel, leave), suppress(asyncio.CancelledError):
        await serving
    say(Stderr(), "Sandbox stopped.")


def _add_faults(server: Sandbox, file: Path) -> None:
    try:
        server.faults.add_listed(file.read_bytes())
    except OSError as error:
        raise ConfigurationError(f"cannot read {file}: {error.strerror}") from None
    except ValueError as error:
        raise ConfigurationError(f"{file}: {error}") from None


@app.command
def demo(*, settings: DemoSettings = _USUAL_DEMO) -> None:
    """Stream invoices and push records at once, while the server throttles and stumbles."""
    asyncio.run(run_demo(settings, Console(file=stdout()), Stderr()))


@app.command
def push(
    records: Annotated[str, Parameter(allow_leading_hyphen=True)],
    *,
    company: str,
    connection: str,
    data_type: Annotated[str, Parameter(name="--type")],
    journal: str | None = None,
    scope: str = DEFAULT_SCOPE,
    check: Literal["options"] | None = None,
    reference: str | None = None,
    natural_key: str | None = None,
    update_id: str | None = None,
    timeout_minutes: int | None = None,
    max_open: int = 2000,
    exclusive: Flag = False,
    patience: float = 30,
    max_pause: float | None = None,
    service: Service = _BY_ENVIRONMENT,
) -> int:
    """Push the records of an NDJSON file: outcomes on stdout, progress on stderr.

    With a journal the same command goes on where it stood, whatever ended it: what has been
    sent is not sent again. A line that holds no record is INVALID and stops nothing. Ctrl-C
    reads no further and waits for what is open, unless the service holds all of it back; a
    second one leaves at once.

    Exit codes: 0 all succeeded, 1 some did not or the service or journal could not be used,
    2 wrong usage, 3 some are in doubt, 130 interrupted.

    Parameters
    ----------
    records
        A file with a JSON object a line, or - for standard input.
    company
        Id of the company.
    connection
        Id of its connection.
    data_type
        What the records are, such as invoices.
    journal
        File that keeps what was sent; made if it is not there. Or the postgresql:// URL of a
        database, for which the extra [postgres] is needed; PGPASSWORD keeps the password out of it.
    scope
        Name of what belongs to one service in the journal, which can hold several.
    check
        Compare each record with the push options first; what they do not allow is INVALID.
    reference
        Path of the record's own name, such as invoiceNumber. A journal pushes a name once,
        and refuses it for another record. Without it the content is the name: lines may move
        from place to place and file to file, and members within a line; a line that was
        corrected is pushed anew.
    natural_key
        Path of a field that tells the record from others; finds the push should its answer
        be lost.
    update_id
        Path of the id of the record to update; without it records are created.
    timeout_minutes
        The service gives up on a push that is still Pending then.
    max_open
        Pushes without an outcome, at most.
    exclusive
        Nobody else pushes this type to this connection: finds lost pushes without their data.
    patience
        Seconds that the list is searched for a push whose answer was lost.
    max_pause
        Seconds that the service may ask to wait. If it asks for more, as when a daily quota is
        used up, the command ends with exit code 1. Without it the command waits.
    service
        Which service.
    """
    if journal is None and scope != DEFAULT_SCOPE:
        raise ConfigurationError("--scope names a part of --journal: give both")
    plan = Plan(
        company,
        connection,
        data_type,
        reference=reference,
        update_id=update_id,
        natural_key=natural_key,
        timeout_minutes=timeout_minutes,
    )
    pushing = _pushing.push(
        service,
        records,
        plan,
        Results.on_stdout(),
        Stderr(),
        check=check,
        journal=_journals.Journal(journal, scope) if journal is not None else None,
        max_open=max_open,
        exclusive=exclusive,
        patience=patience,
        max_pause=max_pause,
    )
    return asyncio.run(pushing)


@app.command
def pull(
    data_types: list[str],
    *,
    to: str,
    format: Literal["ndjson", "parquet", "duckdb", "postgres"] | None = None,  # noqa: A002
    companies: str | None = None,
    store: str | None = None,
    scope: str = DEFAULT_SCOPE,
    full: Flag = False,
    rate: float | None = None,
    units: int = 16,
    memory: int = 256,
    part: int = 32,
    compression: Literal["gz", "zst"] | None = None,
    dask: str | None = None,
    json: Flag = False,
    service: Service = _BY_ENVIRONMENT,
) -> int:
    """Write the records of companies into files or a database: each state once.

    Run again, the same command goes on where it stood, whatever ended it, and later reads only
    what has changed. Units (a company's records of one type) are on stdout as they end, progress
    is on stderr. Ctrl-C finishes the parts that are being written; a second one leaves at once.

    Exit codes: 0 all units are complete, 1 some are not or the service or the place could not be
    used, 2 wrong usage, 130 interrupted.

    Parameters
    ----------
    data_types
        Such as invoices customers.
    to
        A folder; the file of a DuckDB database; the postgresql:// URL of a database.
    format
        Without it postgres for a URL, duckdb for a name that ends in .duckdb, else ndjson.
    companies
        Ids, with commas between; without them all companies of the account.
    store
        File that keeps how far each unit was read; a postgresql:// URL lets several of these
        commands share the work. Without it a file in the folder, or the database itself.
    scope
        Name of what belongs to one pull; a store can have many.
    full
        Read each unit as a whole and replace it in one step: what the service has deleted goes.
    rate
        Calls a second, at most.
    units
        Units to read at a time.
    memory
        MiB of records and pages to hold, at most.
    part
        MiB of records in a part, at most; less where many units share the memory.
    compression
        Of NDJSON files.
    dask
        Address of a Dask scheduler: its workers read and write, and share a PostgreSQL --store.
    json
        A JSON object for each unit, in place of a line.
    service
        Which service.
    """
    pulling = _pull.pull(
        service,
        data_types,
        Console(file=stdout(), soft_wrap=True),
        Stderr(),
        rate=rate,
        as_json=json,
        to=to,
        format=format,
        companies=_pull.listed(companies),
        store=_pull.store_of(store, scope),
        full=full,
        at_once=units,
        max_bytes=memory * MIB,
        part_bytes=part * MIB,
        compression=compression,
        dask=dask,
    )
    return asyncio.run(pulling)


@app.command
def audit(
    to: str,
    *,
    format: Literal["ndjson", "parquet", "duckdb", "postgres"] | None = None,  # noqa: A002
    ask_service: Annotated[Flag, Parameter(name="--service")] = False,
    service: Service = _BY_ENVIRONMENT,
) -> int:
    """Compare what a pull has written with its receipts: rows, bytes, sums of all numbers.

    Exit codes: 0 all agree, 1 some do not, 2 wrong usage.

    Parameters
    ----------
    to
        As it was given to pull.
    format
        As it was given to pull.
    ask_service
        Ask the service, too, how many records it has.
    service
        Which service.
    """
    out = Console(file=stdout(), soft_wrap=True)
    return asyncio.run(_pull.audit(service, to, format, out, ask_service=ask_service))


@_pushes.command(name="list")
def list_(journal: str, *, scope: str = DEFAULT_SCOPE, json: Flag = False) -> None:
    """Show what a journal holds, by state. Needs no network.

    Parameters
    ----------
    journal
        As it was given to push.
    scope
        As it was given to push.
    json
        A JSON object for each push, in place of tables.
    """
    where = _journals.Journal(journal, scope)
    asyncio.run(_journals.show(where, Console(file=stdout()), as_json=json))


@_pushes.command
def resume(
    journal: str,
    *,
    scope: str = DEFAULT_SCOPE,
    exclusive: Flag = False,
    patience: float = 30,
    max_pause: float | None = None,
    service: Service = _BY_ENVIRONMENT,
) -> int:
    """Go on with what a journal holds: send what never left, look for what was lost, wait.

    Outcomes, progress and exit codes are those of push.

    Parameters
    ----------
    journal
        As it was given to push.
    scope
        As it was given to push.
    exclusive
        As it was given to push.
    patience
        As it was given to push.
    max_pause
        Seconds that the service may ask to wait before what never left is sent. If it asks for
        more, the command ends with exit code 1. What is only waited for is waited for.
    service
        Which service.
    """
    resuming = _pushing.resume(
        service,
        _journals.Journal(journal, scope),
        Results.on_stdout(),
        Stderr(),
        exclusive=exclusive,
        patience=patience,
        max_pause=max_pause,
    )
    return asyncio.run(resuming)


@_pushes.command
def resolve(
    intent: str | None = None,
    *,
    journal: str,
    scope: str = DEFAULT_SCOPE,
    all_absent: Flag = False,
    resend: Flag = False,
    abandon: Flag = False,
    bind: str | None = None,
) -> None:
    """Decide, on record, about pushes in doubt. Needs no network; resume carries it out.

    Parameters
    ----------
    intent
        As list and the outcome give it; its beginning is enough.
    journal
        As it was given to push.
    scope
        As it was given to push.
    all_absent
        In place of an intent: each create with a natural key that no list has shown, and that
        no other push could be.
    resend
        Push the record once more, at the risk of having it twice.
    abandon
        Leave it.
    bind
        Key of the push that it is.
    """
    chosen: dict[_journals.Decision, object] = {"resend": resend, "abandon": abandon, "bind": bind}
    given = [decision for decision, value in chosen.items() if value not in {None, False}]
    if len(given) != 1:
        raise ConfigurationError("give one of --resend, --abandon and --bind KEY")
    if all_absent == (intent is not None):
        raise ConfigurationError("give an intent, or --all-absent")
    if all_absent and bind is not None:
        raise ConfigurationError("--bind is for one push, not for --all-absent")
    where, out = _journals.Journal(journal, scope), Console(file=stdout())
    asyncio.run(_journals.resolve(where, intent, out, decision=given[0], key=bind))


@_store.command
def migrate(url: str, *, schema: str = "integration_sdk", print_: Flag = False) -> None:
    """Make the tables of a store in PostgreSQL, or bring them up to date. Does no harm twice.

    For databases where the role of the program may make none itself. It needs USAGE of the
    schema, and SELECT, INSERT, UPDATE and DELETE of all tables in it.

    Parameters
    ----------
    url
        postgresql://user:password@host/database, of a role that may make tables.
    schema
        Where the tables are, as in Store(schema=).
    print_
        Print the SQL that makes them, and leave the database as it is; the URL is not used.
    """
    if print_:
        print(migration(schema))
    else:
        asyncio.run(make_tables(url, schema))
