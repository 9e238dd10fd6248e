"""The command that pushes a file's records, or tells what a push of them would do."""

from __future__ import annotations

from collections import Counter
from json import dumps
from typing import Annotated, Any, Literal

from cyclopts import Parameter

from integration_sdk._client import Client
from integration_sdk._options.check import PushOptions, refuse
from integration_sdk._push.coordinator import Coordinator
from integration_sdk._store.store import Store
from integration_sdk.cli._display import NOT_ALL, show
from integration_sdk.cli._records import Lines, RecordOptions
from integration_sdk.cli._run import USUAL, Following, Run
from integration_sdk.cli._service import FROM_ENVIRONMENT, NO_JOURNAL, Flag, Journal, Quiet, Service
from integration_sdk.errors import ApiError, InvalidRecord


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
                kept = None if journal.is_missing else store  # opening it would create it
                found = await _forecast(lines, options, described, kept)
                if json:
                    show(dumps(found))
                else:
                    _show(found)
                return NOT_ALL if found["refused"] else 0
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
    except ApiError as error:
        if must or error.status in {401, 402, 403}:
            raise
        return None  # not every data type has options


async def _forecast(
    lines: Lines, wanted: RecordOptions, described: PushOptions | None, store: Store | None
) -> dict[str, Any]:
    on_record: dict[str | None, str] = {}
    if store is not None:
        async with store:
            rows = await store._recorded()
        on_record = {row.reference: row.status or row.state for row in rows}
    refused: list[dict[str, Any]] = []
    known, new = Counter[str](), set[str | None]()
    async for number, line in lines:
        reference = None
        try:
            request = wanted.request(line)
            reference = request.reference
            refuse(described.check(request.record) if described else [])
        except InvalidRecord as error:
            errors = list(error.reasons)
            refused.append({"line": number, "reference": reference, "errors": errors})
            continue
        if reference in on_record or reference in new:
            known[on_record.get(reference, "repeated")] += 1
        else:
            new.add(reference)
    return {"new": len(new), "known": dict(known), "refused": refused}


def _show(found: dict[str, Any]) -> None:
    show(f"To send: {found['new']:,}, with a request each; polls are for many at a time")
    for state, count in sorted(found["known"].items()):
        show(f"On record, {state}: {count:,}")
    show(f"Refused: {len(found['refused']):,}")
    for one in found["refused"]:
        name = f" {one['reference']}" if one["reference"] else ""
        show(f"  line {one['line']}{name}: {'; '.join(one['errors'])}")
