"""The commands that work on a journal: `resume`, and `resolve` to bind, need the service."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Iterable
from json import dumps
from typing import Annotated, Any, Final
from uuid import uuid4

import msgspec
from cyclopts import Group, Parameter
from cyclopts.validators import LimitedChoice

from integration_sdk._http import requests
from integration_sdk._push.coordinator import Coordinator
from integration_sdk._push.evidence import in_lane
from integration_sdk._push.push import Push
from integration_sdk._push.table import Event, after
from integration_sdk._store.row import Evidence, Row, State, folded
from integration_sdk.cli._display import show, show_table
from integration_sdk.cli._run import USUAL, Following, Run
from integration_sdk.cli._service import FROM_ENVIRONMENT, NO_JOURNAL, Flag, Journal, Quiet, Service
from integration_sdk.errors import ConfigurationError

SHOWN: Final = 3
"""Candidates of a push in doubt that are shown."""
_NEXT: Final = {
    State.QUEUED: "not sent yet: `pushes resume` sends it",
    State.SENDING: "the answer was lost: `pushes resume` searches for it",
    State.LOST: "the answer was lost: `pushes resume` searches for it",
    State.OPEN: "accepted by the service: `pushes resume` waits for it",
    State.DOUBT: "in doubt: check, and decide with `pushes resolve`",
}
_DECISION: Final = Group("Decision", validator=LimitedChoice(1, 1))


async def list(*, journal: Journal = NO_JOURNAL, json: Flag = False) -> None:  # noqa: A001 - the command's name
    """Show the pushes in a journal, by state. Needs no network.

    Another program may be using the journal.

    Parameters
    ----------
    json
        Print one JSON object per push instead of tables.
    """
    async with journal.existing() as store:
        rows = await store._recorded()
    if json:
        for row in rows:
            show(dumps(_facts(row)))  # ASCII, which any terminal can write
        return
    counts = Counter((_state(row), _NEXT.get(row.state, "")) for row in rows)
    summary = [(state, f"{count:,}", next_) for (state, next_), count in sorted(counts.items())]
    show_table(f"{len(rows):,} pushes in {store!r}", summary)
    if doubts := [row for row in rows if row.state is State.DOUBT]:
        show_table("In doubt", map(_doubt, doubts))


def _state(row: Row) -> str:
    said = row.status or row.result or row.decision or row.verdict or ""
    return f"{row.state} {said}".rstrip()


def _doubt(row: Row) -> tuple[str, ...]:
    some = ", ".join(row.candidates[:SHOWN])
    more = len(row.candidates) - SHOWN
    shown = f"{some} and {more:,} more" if more > 0 else some or "no candidate"
    return row.id, row.reference or "", row.lane.company_id, row.lane.data_type, shown


def _facts(row: Row) -> dict[str, Any]:
    facts = msgspec.to_builtins(row)
    facts |= {
        "intent": row.id,
        "state": row.state,
        "reference": row.reference,
        **row.lane._asdict(),
    }
    left_out = {"id", "lane", "payload"}
    return {name: facts[name] for name in facts if facts[name] is not None and name not in left_out}


async def resume(
    *,
    journal: Journal = NO_JOURNAL,
    following: Following = USUAL,
    quiet: Quiet = False,
    service: Service = FROM_ENVIRONMENT,
) -> int:
    """Finish what a journal holds: send what is queued, search for lost pushes, wait.

    Outcomes, progress and exit codes are those of push.
    """
    store = journal.existing()
    async with service.client() as client:
        run = Run(client, quiet)

        async def take(push: Push) -> None:
            run.report(await push)

        async def resumed(pushes: Coordinator) -> None:
            await asyncio.gather(*map(take, pushes.recovered))

        return await run.through(store, following, resumed)


async def resolve(
    intent: str,
    *,
    journal: Journal = NO_JOURNAL,
    resend: Annotated[Flag, Parameter(group=_DECISION)] = False,
    abandon: Annotated[Flag, Parameter(group=_DECISION)] = False,
    bind: Annotated[str | None, Parameter(group=_DECISION)] = None,
    service: Service = FROM_ENVIRONMENT,
) -> None:
    """Record a decision about a push in doubt. Only bind needs the network; resume carries it out.

    Parameters
    ----------
    intent
        Id of the push, or the beginning of it, as shown by list and in its outcome.
    resend
        Push the record again. If the first push arrives after all, the record exists twice.
    abandon
        Give up on the push.
    bind
        The push is the one with this key, which is looked up first.
    """
    if bind is not None:
        requests.segment("bind", bind)
    async with journal.existing() as store:
        rows = await store._lend()
        row = _one([one for one in await rows.everything() if not one.is_done], intent)
        if row.state is not State.DOUBT:
            raise ConfigurationError(
                f"intent {row.id} is {row.state}: only what is in doubt can be decided"
            )
        if bind is not None:
            await _check_key(service, row, bind)
            decided = after(row, Event.FOUND, decision="bind", key=bind, evidence=Evidence.CALLER)
        elif resend:
            fresh = str(uuid4()) if row.idempotency_key else None
            decided = after(row, Event.RESENT, decision="resend", idempotency_key=fresh)
        else:
            decided = after(row, Event.ABANDONED, decision="abandon")
        if await rows.write(decided) is not decided:
            raise ConfigurationError(
                f"intent {row.id} was decided meanwhile, or {bind} is the key of another push"
            )
    then = "`pushes resume` sends it again." if resend else "`pushes resume` waits for that push."
    what = "given up." if abandon else then
    show(f"Recorded for {row.reference or row.id}: {what}")


async def _check_key(service: Service, row: Row, key: str) -> None:
    """Reject a mistyped key before the decision, which is final, is recorded."""
    async with service.client() as client:
        found = await client.company(row.company).pushes.get(key)
    if folded(key) in row.earlier_keys:
        raise ConfigurationError(f"push {key} is of an earlier attempt of this push")
    if not in_lane(found, row.lane, service.dialect):
        raise ConfigurationError(f"push {key} is of another connection or data type")


def _one(rows: Iterable[Row], intent: str) -> Row:
    found = [row for row in rows if intent and row.id.startswith(intent)]
    if len(found) > 1:
        raise ConfigurationError(f"{len(found)} intents begin with {intent!r}: give more of it")
    if not found:
        raise ConfigurationError(f"no intent that is not settled begins with {intent!r}")
    return found[0]
