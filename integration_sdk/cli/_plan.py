"""The command that tells what a push would do, before anything is sent."""

from __future__ import annotations

import asyncio
import time
from collections import Counter
from collections.abc import Iterator
from json import dumps
from math import ceil
from pathlib import Path
from typing import Annotated, Any, Final

from attrs import Factory, define
from cyclopts import Parameter
from rich.console import Console

from integration_sdk._client import Client
from integration_sdk._options.check import PushOptions, refuse
from integration_sdk._push.outcomes import another_record, take_up, to_row
from integration_sdk._store.row import Row, State
from integration_sdk._store.store import is_url
from integration_sdk.cli._display import say, show_table, stdout
from integration_sdk.cli._ends import ALL_SUCCEEDED, SOME_DID_NOT
from integration_sdk.cli._journals import Journal
from integration_sdk.cli._options import FROM_ENVIRONMENT, WHOLE, Flag, Scope, Service
from integration_sdk.cli._records import Line, Lines, RecordOptions
from integration_sdk.errors import ApiError, InvalidRecord, ReferenceConflict
from integration_sdk.models import Quota

SHOWN: Final = 10
NOT_NOW: Final = frozenset({409, 429})
"""Statuses, besides 5xx, after which the records are not checked: not ready, and too many."""
AT_ONCE: Final = 10
"""Requests of a company that the service answers at a time. Assumed: published."""
A_MINUTE: Final = 1000
"""Requests that it answers in a minute. Assumed: published."""
POLLS_PER_PUSH: Final = 0.2
"""Measured with 5,000 pushes that take 1 to 30 seconds: a list shows many. See figures.md."""
FEW: Final = 5
"""Pushes up to which each costs a poll of its own."""


async def plan(
    records: Annotated[str, Parameter(allow_leading_hyphen=True)],
    *,
    options: RecordOptions,
    journal: str | None = None,
    scope: Scope = WHOLE,
    json: Flag = False,
    service: Service = FROM_ENVIRONMENT,
) -> int:
    """Show what `push` would do with these records: which are refused, how many calls, how long.

    Reads the push options, which takes one request, and pushes nothing. The time is that of
    sending; how long the platform takes is unknown.

    Exit codes: 0 all would be sent or are on record; 1 some are refused, there is no such company,
    connection or type, or the service or journal could not be used; 2 wrong usage.

    Parameters
    ----------
    records
        As given to push, like the options below.
    journal
        What it holds is not sent again. It is only read, and need not exist yet.
    json
        Print one JSON object instead of tables.
    """
    out = stdout()
    if journal is None:
        scope.check_unused("--journal")
    with Lines(records) as lines:
        where = None if journal is None else Journal(journal, scope)
        forecast = Forecast({str(row.reference): row for row in await _on_record(where)})
        async with service.client() as client:
            await forecast.ask(client, options)
            async for line in lines:
                if line.text.strip():
                    forecast.take(line, options, client)
    if json:
        say(out, dumps(forecast.facts()))
    else:
        forecast.show(out)
    return SOME_DID_NOT if forecast.refused else ALL_SUCCEEDED


async def _on_record(journal: Journal | None) -> list[Row]:
    if journal is None:
        return []
    if not is_url(journal.where) and not await asyncio.to_thread(Path(journal.where).exists):
        return []  # push makes it
    async with journal.store() as store:
        return [row for row in await store.recorded() if not row.is_superseded]


@define
class Forecast:
    """What is going to happen to the records of an input.

    Attributes:
        on_record: What the journal has, by reference.
        unchecked: Why there are no options to check records against, or "".
        refused: Line, reference and reasons of records that would not be pushed.
        known: How many are on record already, by state.
        new: How many would be sent for the first time.
        latency: Seconds that reading the options took.
    """

    on_record: dict[str, Row]
    unchecked: str = ""
    refused: list[dict[str, Any]] = Factory(list)
    known: Counter[str] = Factory(Counter)
    new: int = 0
    latency: float = 0.0
    quota: Quota | None = None
    _options: PushOptions | None = None
    _lines: dict[str, tuple[int, object]] = Factory(dict)

    async def ask(self, client: Client, wanted: RecordOptions) -> None:
        """Read the options.

        Raises:
            IntegrationError: The service cannot be reached, or refuses the key, the ids or the
                data type.
        """
        books = client.company(wanted.company).connection(wanted.connection)
        began = time.perf_counter()
        try:
            self._options = await books.options(
                wanted.data_type, for_update=wanted.update_id is not None
            )
        except ApiError as error:
            if error.status not in NOT_NOW and error.status < 500:
                raise  # it would refuse each record, too: `plan && push` is a gate
            self.unchecked = str(error)
        self.latency = time.perf_counter() - began
        self.quota = client.quota

    def take(self, line: Line, wanted: RecordOptions, client: Client) -> None:
        """Judge a line, as ``push --check options`` would."""
        reference = None
        try:
            request = wanted.request(line)
            reference = request.reference
            row, _ = to_row(client.dialect, request, "", None, durable=True)
            state = self._state(row, line.number)
            if state is None and self._options is not None:
                refuse(self._options.check(request.record))
        except (InvalidRecord, ReferenceConflict) as error:
            why = {"line": line.number, "reference": reference, "errors": list(error.reasons)}
            self.refused.append(why)
            return
        if state is None:
            self.new += 1
        else:
            self.known[state] += 1

    def _state(self, row: Row, number: int) -> str | None:
        """Return the state of the push that a record joins; None if it is to be sent.

        Raises:
            ReferenceConflict: The reference stands for another record.
        """
        reference = str(row.reference)
        first, identity = self._lines.setdefault(reference, (number, row.identity))
        if identity != row.identity:
            raise another_record(reference, f"it is in line {first}")
        if first != number:
            return "repeated"
        before = self.on_record.get(reference)
        if before is None or take_up(before, row) is None:
            return None
        return before.status if before.state is State.FINAL else before.state

    @property
    def calls(self) -> dict[str, int]:
        """Requests by what they are for."""
        pushes = self.new + self.known[State.QUEUED]
        open_ = pushes + sum(self.known[one] for one in (State.SENDING, State.OPEN, State.LOST))
        polls = max(ceil(open_ * POLLS_PER_PUSH), min(open_, FEW))
        return {"options": 1, "pushes": pushes, "polls": polls}

    @property
    def seconds(self) -> float:
        """How long sending takes: full minutes at the limit, then as fast as answers come."""
        minutes, rest = divmod(self.calls["pushes"] + self.calls["polls"], A_MINUTE)
        return 60.0 * minutes + rest * self.latency / AT_ONCE

    @property
    def beyond_quota(self) -> int | None:
        """Requests for which today's quota is too small; None if the service names none."""
        if self.quota is None or self.quota.remaining is None:
            return None
        return max(0, self.calls["pushes"] + self.calls["polls"] - self.quota.remaining)

    def facts(self) -> dict[str, Any]:
        """Return all of it, for JSON."""
        reset = self.quota and self.quota.reset
        return {
            "records": self.new + self.known.total() + len(self.refused),
            "new": self.new,
            "known": dict(self.known),
            "refused": self.refused,
            "unchecked": self.unchecked or None,
            "calls": self.calls,
            "seconds": round(self.seconds, 1),
            "quota": self.quota
            and {
                "limit": self.quota.limit,
                "remaining": self.quota.remaining,
                "reset": reset and reset.isoformat(),
            },
            "beyondQuota": self.beyond_quota,
        }

    def show(self, out: Console) -> None:
        """Print tables."""
        show_table(out, "Plan", list(self._summary()))
        if self.refused:
            some = [
                (f"line {one['line']}", one["reference"] or "", "; ".join(one["errors"]))
                for one in self.refused[:SHOWN]
            ]
            show_table(out, "Refused", some)
        if len(self.refused) > SHOWN:
            say(out, f"and {len(self.refused) - SHOWN:,} more; --json has all")
        say(
            out,
            f"Assumed: {A_MINUTE:,} requests a minute, {AT_ONCE} at a time, each as fast as the one"
            f" that was made ({self.latency:.2f} s); {POLLS_PER_PUSH:g} polls for each of many"
            " pushes. What the platform needs comes on top.",
        )

    def _summary(self) -> Iterator[tuple[str, str]]:
        yield "to send", f"{self.new:,}"
        for state, count in sorted(self.known.items()):
            yield state, f"{count:,}, on record" if state != "repeated" else f"{count:,} lines"
        yield "refused", f"{len(self.refused):,}"
        if self.unchecked:
            yield "not checked", self.unchecked
        for what, count in self.calls.items():
            yield f"calls: {what}", f"{'about ' if what == 'polls' else ''}{count:,}"
        yield "seconds", f"{self.seconds:,.1f}"
        yield "quota", self._quota()

    def _quota(self) -> str:
        if self.quota is None or self.beyond_quota is None:
            return "the service names none"
        left = f"{self.quota.remaining:,} requests left"
        if self.quota.reset is not None:
            left += f" until {self.quota.reset:%Y-%m-%d %H:%M} UTC"
        return left if not self.beyond_quota else f"{left}: {self.beyond_quota:,} have to wait"
