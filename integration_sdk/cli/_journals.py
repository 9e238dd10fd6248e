"""The commands that read a journal, or record a decision in it: no network, no waiting."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import AsyncIterator, Iterable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, Final, Literal
from uuid import uuid4

from rich.console import Console

from integration_sdk._http import requests
from integration_sdk._push import reconcile
from integration_sdk._push.effects import Commit, Ledger, Machine
from integration_sdk._push.evidence import is_missing
from integration_sdk._push.table import DECIDABLE
from integration_sdk._store import Journal, JournalReader, Store
from integration_sdk._store.database import read_all
from integration_sdk._store.postgres import without_password
from integration_sdk._store.row import Intent, KeyClaimed, State
from integration_sdk._store.store import is_url
from integration_sdk.cli._display import say, show_table
from integration_sdk.errors import ConfigurationError

Decision = Literal["resend", "abandon", "bind"]
_WAITS: Final = "the service has it: `pushes resume` waits for the end"
_LOST: Final = "the answer was lost: `pushes resume` looks for it"
_DOUBT: Final = "in doubt: look, and decide with `pushes resolve`"
_NEXT: Final = {
    State.QUEUED: "not sent yet: `pushes resume` sends it",
    State.SENDING: _LOST,
    State.AMBIGUOUS: _LOST,
    State.ACKED: _WAITS,
    State.RESOLVED: _WAITS,
    State.LATE: _WAITS,
    State.ABSENT: _DOUBT,
    State.UNRESOLVED: _DOUBT,
    State.REJECTED: "refused by the service",
    State.NOT_SENT: "never left",
}
_DECIDED: Final = {
    "resend": "sent again as another push",
    "abandon": "given up by decision",
}


async def show(journal: str, out: Console, *, as_json: bool) -> None:
    """Print how many pushes of a journal are in each state, and which are in doubt.

    Takes no lock: a program may have it open, and another may open it meanwhile.

    Raises:
        ConfigurationError: There is no such journal.
        JournalError: It is damaged, or cannot be read.
    """
    check_exists(journal)
    rows = await _read(journal)
    journal = shown(journal)
    if as_json:
        for row in rows:
            say(out, json.dumps(_facts(row)))  # ASCII, which any terminal can write
        return
    if not rows:
        say(out, f"{journal} holds no pushes.")
        return
    counts = Counter(map(_state, rows))
    summary = [(state, f"{count:,}", next_) for (state, next_), count in sorted(counts.items())]
    show_table(out, f"{len(rows):,} pushes in {journal}", summary)
    doubts = [row for row in rows if row.state in DECIDABLE]
    if doubts:
        show_table(out, "In doubt", [_doubt(row) for row in doubts])


def _state(row: Intent) -> tuple[str, str]:
    """Return the state of a push, and what will happen next."""
    if row.state is State.FINAL:
        return f"{row.state} {row.status}", ""
    if row.state is State.DECIDED:
        return f"{row.state} {row.decision}", _DECIDED[row.decision or ""]
    return row.state, _NEXT[row.state]


def _doubt(row: Intent) -> tuple[str, ...]:
    candidates = ", ".join(row.candidates) or "no candidate"
    return row.id, row.reference or "", row.lane.company_id, row.lane.data_type, candidates


def _facts(row: Intent) -> dict[str, Any]:
    facts = {
        "intent": row.id,
        "state": row.state,
        "status": row.status,
        "reference": row.reference,
        "companyId": row.lane.company_id,
        "connectionId": row.lane.connection_id,
        "dataType": row.lane.data_type,
        "recordId": row.record_id,
        "key": row.key,
        "evidence": row.evidence,
        "candidates": row.candidates,
        "attempts": row.attempts,
        "error": row.error,
        "decision": row.decision,
        "parent": row.parent,
    }
    return {name: value for name, value in facts.items() if value not in (None, ())}


async def resolve(
    journal: str, intent: str | None, out: Console, *, decision: Decision, key: str | None
) -> None:
    """Record a decision about a push in doubt; `resume` carries it out.

    Args:
        journal: The journal file.
        intent: The id of the push in the journal, or its beginning; None for each create with a
            natural key that no list shows.
        out: Where to print the next step.
        decision: "resend", "abandon" or "bind".
        key: The key of the push, for "bind".

    Raises:
        ConfigurationError: There is no such push, it is not in doubt, or the key is invalid.
        KeyClaimed: The key belongs to another push.
        JournalError: The decision was not recorded and does not count.
    """
    if key is not None:
        requests.segment("bind", key)
    async with _opened(journal) as kept:
        ledger = Ledger()
        unsettled = await kept.claim()
        for row in unsettled:
            ledger.note(row)
        chosen = (
            list(filter(is_missing, unsettled)) if intent is None else [_one(unsettled, intent)]
        )
        try:
            for row in chosen:
                await _record(kept, _machine(ledger, row, decision, key))
        except KeyClaimed:
            owner = next((row.id for row in await kept.rows() if row.key == key), "unknown")
            raise KeyClaimed(
                f"{key} is the key of another push already, that of intent {owner}; "
                "nothing is decided"
            ) from None
    resume = f"`integration-sdk pushes resume --journal {shown(journal)}`"
    said = {
        "resend": f"to be sent once more. {resume} does it.",
        "abandon": "given up.",
        "bind": f"push {key}. {resume} waits for its end.",
    }
    if intent is not None:
        say(out, f"On record: {chosen[0].reference or chosen[0].id} is {said[decision]}")
        return
    doubts = sum(row.state in DECIDABLE for row in unsettled)
    some = f"{len(chosen):,} of {doubts:,} pushes in doubt, those that no list shows"
    say(out, f"On record for {some}: {said[decision]}")


def _one(rows: Iterable[Intent], intent: str) -> Intent:
    found = [row for row in rows if intent and row.id.startswith(intent)]
    if len(found) > 1:
        raise ConfigurationError(
            f"{len(found)} pushes of this journal have an intent that begins {intent!r}: "
            "give more of it"
        )
    if not found:
        raise ConfigurationError(
            f"no push that is not settled in this journal has an intent that begins {intent!r}"
        )
    return found[0]


def _machine(ledger: Ledger, row: Intent, decision: Decision, key: str | None) -> Machine[Intent]:
    match decision:
        case "abandon":
            return reconcile.abandon(ledger, row.id)
        case "bind":
            return reconcile.bind(ledger, row.id, key or "")
        case "resend":
            fresh = str(uuid4()) if row.idempotency_key else None
            return reconcile.resend(ledger, row.id, new_id=uuid4().hex, idempotency_key=fresh)


async def _read(journal: str) -> list[Intent]:
    return await read_all(journal) if is_url(journal) else JournalReader(Path(journal)).read_all()


async def _record(journal: Journal, machine: Machine[Intent]) -> None:
    """Drive the machine of a decision, whose only effects are commits."""
    for effect in machine:
        if not isinstance(effect, Commit):
            raise TypeError(f"a decision only commits, but asked for {effect!r}")
        await journal.commit(effect.rows)


@asynccontextmanager
async def _opened(journal: str) -> AsyncIterator[Journal]:
    check_exists(journal)
    async with Store(journal) as store:
        yield await store.lend()


def check_exists(journal: str) -> None:
    """Refuse a journal file that does not exist, since opening would create it.

    Raises:
        ConfigurationError: The file does not exist, or the path is invalid.
    """
    try:
        is_url(journal) or Path(journal).stat()
    except OSError as error:
        raise ConfigurationError(f"there is no journal {journal}: {error.strerror}") from None


def shown(journal: str) -> str:
    """Return *journal* as it may be printed."""
    return without_password(journal) if is_url(journal) else journal
