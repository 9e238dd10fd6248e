"""The command that pushes a file's records, or tells what a push of them would do."""

from __future__ import annotations

from collections import Counter
from json import dumps
from typing import Annotated, Any, Final, Literal

from cyclopts import Parameter

from integration_sdk._client import Client
from integration_sdk._options.check import PushOptions, refuse
from integration_sdk._push.coordinator import Coordinator
from integration_sdk._store.store import Store
from integration_sdk.cli._display import NOT_ALL, show, show_table
from integration_sdk.cli._records import Lines, RecordOptions
from integration_sdk.cli._run import USUAL, Following, Run
from integration_sdk.cli._service import FROM_ENVIRONMENT, NO_JOURNAL, Flag, Journal, Quiet, Service
from integration_sdk.errors import AccountExpired, ApiError, Forbidden, InvalidRecord, Unauthorized

SHOWN: Final = 10


async def push(
    records: Annotated[str, Parameter(allow_leading_hyphen=True)],
    *,
    options: RecordOptions,
    journal: Journal = NO_JOURNAL,
    following: Following = USUAL,
    check: Literal["options"] | None = None,
    dry_run: Flag = False,
    json: Flag = False,
    quiet: Quiet = False,
    service: Service = FROM_ENVIRONMENT,
) -> int:
    """Push the records of an NDJSON file: outcomes on stdout, progress on stderr.

    With a journal, run the same command again to continue after any interruption: nothing is sent
    twice. A line that holds no record is INVALID, and the rest is pushed. Ctrl-C stops reading and
    waits for open pushes; a second Ctrl-C quits at once.

    Exit codes: 0 all succeeded; 1 some did not, or are in doubt, or the service or journal could
    not be used; 2 wrong usage; 130 interrupted.

    Parameters
    ----------
    records
        A file with one JSON object per line, or - for standard input.
    check
        Compare each record with the push options first. A record that breaks them is INVALID.
    dry_run
        Push nothing. Show what the push options refuse and why, which records are on record, and
        how many requests the rest takes. Ends with 1 if records are refused.
    json
        With --dry-run, print one JSON object instead of tables.
    """
    store = journal.store()
    async with service.client() as client:
        with Lines(records) as lines:
            described = await _described(client, options, must=dry_run or check is not None)
            if dry_run:
                on_record = {} if journal.is_missing else await _on_record(store)
                return await _forecast(lines, options, described, on_record, as_json=json)
            run = Run(client, quiet, lines)

            async def send(pushes: Coordinator) -> None:
                async for outcome in pushes.run(run.requests(lines, options)):
                    run.report(outcome)

            return await run.through(store, following, send, check=check)


async def _described(client: Client, wanted: RecordOptions, *, must: bool) -> PushOptions | None:
    """Return the push options; this checks key, address and ids before anything is on record."""
    books = client.company(wanted.company).connection(wanted.connection)
    try:
        return await books.options(wanted.data_type, for_update=wanted.update_id is not None)
    except (Unauthorized, Forbidden, AccountExpired):
        raise
    except ApiError:
        if must:
            raise
        return None  # not every data type has options


async def _on_record(store: Store | None) -> dict[str | None, str]:
    """Return the state of each push that a journal holds, by reference."""
    if store is None:
        return {}
    async with store:
        return {row.reference: row.status or row.state for row in await store.recorded()}


async def _forecast(
    lines: Lines,
    wanted: RecordOptions,
    described: PushOptions | None,
    on_record: dict[str | None, str],
    *,
    as_json: bool,
) -> int:
    """Show what a push of *lines* would do, and return the exit code."""
    refused: list[dict[str, Any]] = []
    known, new = Counter[str](), set[str | None]()
    async for number, line in lines:
        reference = None
        try:
            request = wanted.request(number, line)
            reference = request.reference
            if described is not None:
                refuse(described.check(request.record))
        except InvalidRecord as error:
            why = {"line": number, "reference": reference, "errors": list(error.reasons)}
            refused.append(why)
            continue
        if reference in on_record or reference in new:
            known[on_record.get(reference, "repeated")] += 1
        else:
            new.add(reference)
    calls = {"options": 1, "pushes": len(new)}
    facts = {"new": len(new), "known": dict(known), "refused": refused, "calls": calls}
    if as_json:
        show(dumps(facts))
        return NOT_ALL if refused else 0
    rows = [(f"{len(new):,}", "would be sent, with a request each; polls are for many at a time")]
    rows += [(f"{count:,}", f"would not: {state}") for state, count in sorted(known.items())]
    rows += [(f"{len(refused):,}", "are refused")]
    show_table("Nothing was pushed", rows)
    for one in refused[:SHOWN]:
        show(f"line {one['line']} {one['reference'] or ''}: {'; '.join(one['errors'])}")
    if len(refused) > SHOWN:
        show(f"and {len(refused) - SHOWN:,} more; --json has all")
    return NOT_ALL if refused else 0
