"""The commands that push: a file's records, or what a journal still holds.

What a journal has recorded is never sent twice: a line joins the push that an earlier run began
for it. The coordinator decides whether they are the same push.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterable
from typing import Any, Final, Literal

from rich.console import Console

from integration_sdk._client import Client
from integration_sdk._http import requests
from integration_sdk._push.coordinator import Coordinator
from integration_sdk._push.push import Push
from integration_sdk.cli._journals import Journal
from integration_sdk.cli._outcomes import Results
from integration_sdk.cli._records import Lines, Plan
from integration_sdk.cli._run import Run
from integration_sdk.cli._service import Service
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
from integration_sdk.models import OutcomeStatus, PushRequest

_STOPS: Final = (
    AccountExpired,
    ConfigurationError,
    ServiceUnavailable,
    TooManyRequests,
    Unauthorized,
)
"""Errors after which nothing more is pushed; what was pushed keeps its outcome."""


async def push(
    service: Service,
    source: str,
    plan: Plan,
    results: Results,
    err: Console,
    *,
    journal: Journal | None = None,
    check: Literal["options"] | None = None,
    **options: Any,
) -> int:
    """Push the records of *source*, a file or ``-``, and return the exit code.

    Raises:
        ConfigurationError: The job cannot work; nothing was sent.
        IntegrationError: The service cannot be reached, or refuses the key; nothing was sent.
    """
    async with service.client() as client:
        with Lines(source) as lines:
            run = Run(client, err, results, journal, lines)
            await _look_before(client, plan, must_have_options=check is not None)
            async with run.coordinator(check=check, **options) as pushes:
                await _push_lines(run, lines, plan, pushes)
        return run.conclude()


async def _look_before(client: Client, plan: Plan, *, must_have_options: bool) -> None:
    """Check ids, key and address before anything is written to a journal."""
    requests.push(
        client.dialect,
        plan.company_id,
        plan.connection_id,
        plan.data_type,
        {},
        timeout_minutes=plan.timeout_minutes,
    )
    books = client.company(plan.company_id).connection(plan.connection_id)
    try:
        await books.options(plan.data_type, for_update=plan.update_id is not None)
    except (Unauthorized, Forbidden, AccountExpired):
        raise
    except ApiError:
        # Not every data type has options; they are needed only if records are checked.
        if must_have_options:
            raise


async def _push_lines(run: Run, lines: Lines, plan: Plan, pushes: Coordinator) -> None:
    """Push the lines, then wait for what an earlier run left."""
    left = {one.request.reference or one.intent: one for one in pushes.recovered}

    async def read() -> AsyncIterator[PushRequest]:
        async for line in lines:
            if not line.text.strip():
                run.results.settled += len(line.text)
                continue
            try:
                request = plan.request(line)
            except InvalidRecord as error:
                run.results.refuse(line, error)
            else:
                run.results.begin(request, line)
                yield request

    try:
        async for outcome in pushes.run(read()):
            invalid = outcome.status is OutcomeStatus.INVALID
            joined = None if invalid else left.pop(outcome.reference, None)
            run.look_at(outcome, joined)
    except _STOPS as error:
        run.stop(str(error))
    await _settle(run, left.values())


async def _settle(run: Run, left: Iterable[Push]) -> None:
    """Take the outcomes of pushes of an earlier run, as they come."""
    for coming in asyncio.as_completed(left):
        run.look_at(await coming)


async def resume(
    service: Service,
    journal: Journal,
    results: Results,
    err: Console,
    **options: Any,
) -> int:
    """Continue what *journal* holds, and return the exit code.

    Pushes in doubt are searched for once more; those that are found are waited for.
    """
    journal.check_exists()
    async with service.client() as client:
        run = Run(client, err, results, journal)
        async with run.coordinator(**options) as pushes:
            await _settle(run, pushes.recovered)
        return run.conclude()
