"""The command that pulls."""

from __future__ import annotations

import asyncio
import os
from functools import partial
from typing import Final, Literal

import msgspec
from rich.console import Console

from integration_sdk._http.requests import MIB
from integration_sdk._pull.pull import Pull
from integration_sdk._pull.unit import Receipt, UnitReceipt
from integration_sdk.cli._display import Bar, Board, Stderr, say, stdout
from integration_sdk.cli._ends import INTERRUPTED, SOME_DID_NOT, hearing_signals
from integration_sdk.cli._options import FROM_ENVIRONMENT, Flag, Service
from integration_sdk.errors import ConfigurationError, PaymentRequired, PullError, Unauthorized

SECONDS_BETWEEN_LOOKS: Final = 0.25
Format = Literal["ndjson", "parquet", "duckdb", "postgres"]
_STOPS: Final = (PaymentRequired, PullError, Unauthorized)


async def pull(
    data_types: list[str],
    *,
    to: str,
    format: Format | None = None,  # noqa: A002 - the option's name
    companies: str | None = None,
    full: Flag = False,
    rate: float | None = None,
    units: int = 16,
    memory: int = 256,
    part: int = 32,
    compression: Literal["gz"] | None = None,
    dask: str | None = None,
    json: Flag = False,
    service: Service = FROM_ENVIRONMENT,
) -> int:
    """Write the records of companies into files or a database, each state once.

    Run the same command again to continue after any interruption, and later to read only what has
    changed. Each unit (the records of one type of one company) is printed on stdout when it ends;
    progress is on stderr. Ctrl-C finishes the parts being written; a second one quits at once.

    Exit codes: 0 all units are complete; 1 some are not, or the service or the target could not be
    used; 2 wrong usage; 130 interrupted.

    Parameters
    ----------
    data_types
        Data types to read, such as invoices customers.
    to
        A folder, the file of a DuckDB database, or the postgresql:// URL of a database.
    format
        By default postgres for a URL, duckdb for a name that ends in .duckdb, else ndjson.
    companies
        Ids, separated by commas. By default all companies of the account.
    full
        Read each unit completely and replace it in one step. This removes records that the
        service has deleted.
    rate
        Maximum number of calls per second.
    units
        Maximum number of units to read at a time.
    memory
        Maximum MiB of records and pages in memory.
    part
        Maximum MiB of records in a part; less if many units share the memory.
    compression
        Compression of NDJSON files.
    dask
        Address of a Dask scheduler whose workers read and write.
    json
        Print one JSON object per unit instead of a line.
    """
    out, err = stdout(), Stderr()
    ids = None if companies is None else [one.strip() for one in companies.split(",")]
    if ids is not None and not all(ids):
        raise ConfigurationError("--companies needs ids, separated by commas")
    async with service.client(rate=rate) as client:
        job = client.pull(
            data_types,
            to=to,
            format=format,
            companies=ids,
            full=full,
            at_once=units,
            max_bytes=memory * MIB,
            part_bytes=part * MIB,
            compression=compression,
            dask=dask,
        )
        board = Board(err)
        taking = asyncio.create_task(_take(job, out, as_json=json))
        with hearing_signals(taking.cancel, partial(_leave, board)), board.shown():
            looking = asyncio.create_task(_look(job, board.bar("Pulling")))
            try:
                units_, stopped_by = await taking
            except asyncio.CancelledError:
                say(err, "Interrupted. Run the same command again to continue.")
                return INTERRUPTED
            finally:
                looking.cancel()
        return _conclude(units_, stopped_by, err)


def _leave(board: Board) -> None:
    board.leave()
    os._exit(INTERRUPTED)


async def _take(
    job: Pull, out: Console, *, as_json: bool
) -> tuple[list[UnitReceipt], Exception | None]:
    """Show each unit as it ends; return them, and what ended the run early."""
    units: list[UnitReceipt] = []
    try:
        async for unit in job:
            units.append(unit)
            text = msgspec.json.encode(unit.to_plain()).decode() if as_json else _line(unit)
            say(out, text)
    except _STOPS as error:
        return units, error
    return units, None


def _line(unit: UnitReceipt) -> str:
    what = f"{unit.data_type} {unit.company_id}: {unit.rows:,} records"
    if unit.mended:
        what += f", {unit.mended:,} with odd text"
    why = unit.error or unit.skipped
    return what if why is None else f"{what}; {why}"


async def _look(job: Pull, bar: Bar) -> None:
    """Show how far *job* is, until cancelled."""
    while True:
        seen = job.progress
        expected = sum(total or 0 for *_, total in seen.reading)
        done = sum(done for *_, done, total in seen.reading if total)
        share = (seen.done + (done / expected if expected else 0) * len(seen.reading)) / (
            seen.units or 1
        )
        note = ", ".join(f"{name} {data_type}" for name, data_type, *_ in seen.reading[:2])
        more = len(seen.reading) - 2
        bar.show(
            f"{seen.records:,} records, {seen.done}/{seen.units} units",
            min(share, 1.0),
            note=f"{note} and {more} more" if more > 0 else note,
        )
        await asyncio.sleep(SECONDS_BETWEEN_LOOKS)


def _conclude(units: list[UnitReceipt], stopped_by: Exception | None, err: Console) -> int:
    failed = [unit for unit in units if unit.error is not None]
    rows = sum(unit.rows for unit in units)
    say(err, f"{rows:,} records of {len(units)} units written")
    for reason, names in Receipt(units=units).skipped.items():
        say(err, f"{len(names)} companies {reason}: {', '.join(names[:3])}")
    if stopped_by is not None:
        say(err, f"integration-sdk: {stopped_by}")
    elif failed:
        say(err, f"{len(failed)} units are not complete. Run the same command again to continue.")
    return SOME_DID_NOT if failed or stopped_by is not None else 0
