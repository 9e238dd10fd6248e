"""The command that pulls."""

from __future__ import annotations

import asyncio
from json import dumps
from typing import Final, Literal

from rich.progress import Progress

from integration_sdk._pull.pull import Pull
from integration_sdk._pull.unit import Receipt, UnitReceipt
from integration_sdk._text import printable
from integration_sdk.cli._display import NOT_ALL, interruptible, note, progress, show
from integration_sdk.cli._service import FROM_ENVIRONMENT, Flag, Quiet, Service
from integration_sdk.errors import ConfigurationError

SECONDS_BETWEEN_LOOKS: Final = 0.25
_AGAIN: Final = "Run the same command again to continue."


async def pull(
    data_types: list[str],
    *,
    to: str,
    format: Literal["ndjson", "parquet", "duckdb", "postgres"] | None = None,  # noqa: A002 - the word of the formats
    companies: str | None = None,
    full: Flag = False,
    rate: float | None = None,
    dask: str | None = None,
    json: Flag = False,
    quiet: Quiet = False,
    service: Service = FROM_ENVIRONMENT,
) -> int:
    """Write the records of companies into files or a database, each state once.

    Run the same command again to continue after any interruption, and later to read only what has
    changed. Each unit (the records of one type of one company) is printed when it ends. Ctrl-C
    finishes the parts being written; a second one quits at once.

    Exit codes: 0 all units are complete; 1 some are not, or the service or the target could not be
    used; 2 wrong usage; 130 interrupted.

    Parameters
    ----------
    data_types
        Data types to read, such as invoices customers.
    to
        A folder, the file of a DuckDB database, or the postgresql:// URL of a database.
    format
        By default postgres for a URL, duckdb for a name that ends in .duckdb, else that of the
        folder, ndjson for a new one.
    companies
        Ids, separated by commas. By default all companies of the account.
    full
        Read each unit completely and replace it in one step. This removes records that the
        service has deleted.
    rate
        Maximum number of calls per second.
    dask
        Address of a Dask scheduler whose workers read and write.
    json
        Print one JSON object per unit instead of a line.
    """
    chosen = None if companies is None else [one.strip() for one in companies.split(",")]
    if chosen is not None and not all(chosen):
        raise ConfigurationError("--companies needs ids, separated by commas")
    units: list[UnitReceipt] = []
    async with service.client(rate=rate) as client:
        job = client.pull(data_types, to=to, format=format, companies=chosen, full=full, dask=dask)

        async def take() -> None:
            async for unit in job:
                units.append(unit)
                what = unit.error or unit.skipped or f"{unit.rows:,} records"
                ids = filter(None, (unit.company_id, unit.connection_id, unit.account_id))
                line = f"{unit.data_type} {unit.company} {'/'.join(ids)}: {what}"
                show(dumps(unit.to_plain()) if json else line)

        with progress(quiet=quiet) as live:
            looking = asyncio.create_task(_look(job, live))
            try:
                await interruptible(take(), _AGAIN)
            finally:
                looking.cancel()
    receipt = Receipt(units=units)
    if not quiet:
        note(f"Records written: {receipt.rows:,}; units: {len(units)}")
        for reason, names in receipt.skipped.items():
            more = f" and {len(names) - 3:,} more" if len(names) > 3 else ""
            note(f"Companies {reason}: {', '.join(names[:3])}{more}")
    if receipt.errors:
        note(f"Units that are not complete: {len(receipt.errors)}. {_AGAIN}")
    return NOT_ALL if receipt.errors else 0


async def _look(job: Pull, live: Progress) -> None:
    task = live.add_task("Pulling", total=None, note="")
    while True:
        seen = job.progress
        names = list(dict.fromkeys(name for name, *_ in seen.reading))
        some = ", ".join(names[:2]) + ", ..." * (len(names) > 2)
        said = f"{seen.records:,} records, {seen.done}/{seen.units} units: {some}"
        live.update(task, completed=seen.done, total=seen.units or None, note=printable(said))
        await asyncio.sleep(SECONDS_BETWEEN_LOOKS)
