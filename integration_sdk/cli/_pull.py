"""The command that pulls: companies x data types into files or a database."""

from __future__ import annotations

import asyncio
import os
from contextlib import AsyncExitStack, nullcontext, suppress
from functools import partial
from typing import Any, Final

import msgspec
from rich.console import Console

from integration_sdk._pull.audit import audit as find
from integration_sdk._pull.making import format_of, open_sink
from integration_sdk._pull.pull import Pull
from integration_sdk._pull.receipts import UnitReceipt
from integration_sdk._store.store import Store
from integration_sdk.cli._display import Bar, Board, say
from integration_sdk.cli._journals import DEFAULT_SCOPE
from integration_sdk.cli._outcomes import INTERRUPTED, SOME_DID_NOT
from integration_sdk.cli._service import Service
from integration_sdk.cli._signals import hearing_signals
from integration_sdk.errors import ConfigurationError, PaymentRequired, PullError, Unauthorized

SECONDS_BETWEEN_LOOKS: Final = 0.25
_STOPS: Final = (PaymentRequired, PullError, Unauthorized)


async def pull(
    service: Service,
    data_types: list[str],
    out: Console,
    err: Console,
    *,
    store: Store | None,
    rate: float | None,
    as_json: bool,
    **options: Any,
) -> int:
    """Pull, and return the exit code: units on *out* as they end, progress on *err*.

    Raises:
        ConfigurationError: The job cannot work; nothing was written.
        IntegrationError: The service cannot be reached, or refuses the key.
    """
    async with service.client(rate=rate) as client, store or nullcontext():
        job = client.pull(data_types, store=store, **options)
        board = Board(err)
        taking = asyncio.create_task(_take(job, out, as_json=as_json))
        with hearing_signals(taking.cancel, partial(_leave, board)), board.shown():
            looking = asyncio.create_task(_look(job, board.bar("pull")))
            try:
                units, stopped_by = await taking
            except asyncio.CancelledError:
                say(err, "interrupted; the same command goes on from here")
                return INTERRUPTED
            finally:
                looking.cancel()
                with suppress(asyncio.CancelledError):
                    await looking
        return _conclude(units, stopped_by, err)


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
    if unit.state.rejects:
        what += f", {unit.state.rejects:,} rejected"
    return what if unit.error is None else f"{what}; {unit.error}"


async def _look(job: Pull, bar: Bar) -> None:
    """Show how far *job* is, until cancelled."""
    while True:
        seen = job.progress
        expected = sum(total or 0 for _, _, total in seen.reading)
        done = sum(done for _, done, total in seen.reading if total)
        share = (seen.done + (done / expected if expected else 0) * len(seen.reading)) / (
            seen.units or 1
        )
        note = ", ".join(name for name, _, _ in seen.reading[:2])
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
    if stopped_by is not None:
        say(err, f"integration-sdk: {stopped_by}")
    elif failed:
        say(err, f"{len(failed)} units are not complete; the same command goes on from here")
    return SOME_DID_NOT if failed or stopped_by is not None else 0


async def audit(
    service: Service, to: str, format_: str | None, out: Console, *, ask_service: bool
) -> int:
    """Compare a sink with its receipts, and return the exit code.

    Raises:
        ConfigurationError: No pull has written there.
    """
    async with AsyncExitStack() as opened:
        sink = open_sink(to, format_ or format_of(to), None, tokens=False)
        opened.push_async_callback(sink.aclose)
        client = await opened.enter_async_context(service.client()) if ask_service else None
        problems = 0
        async for finding in find(sink, client):
            unit = f"{finding.data_type} {finding.company_id}"
            what = f" {finding.problem}" if finding.problem else f": {finding.rows:,} rows"
            say(out, unit + what)
            problems += bool(finding.problem)
    return SOME_DID_NOT if problems else 0


def store_of(where: str | None, scope: str) -> Store | None:
    """Return the store of ``--store`` and ``--scope``; None for the one beside what is written.

    Raises:
        ConfigurationError: A scope was given alone.
    """
    if where is None and scope != DEFAULT_SCOPE:
        raise ConfigurationError("--scope needs --store")
    return None if where is None else Store(where, scope)


def listed(companies: str | None) -> list[str] | None:
    """Return the ids of ``--companies ID,ID``.

    Raises:
        ConfigurationError: There is none.
    """
    if companies is None:
        return None
    ids = [one.strip() for one in companies.split(",") if one.strip()]
    if not ids:
        raise ConfigurationError("--companies needs an id")
    return ids
