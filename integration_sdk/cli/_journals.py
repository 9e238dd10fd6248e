"""The commands that read a journal, or record a decision in it: no network, no waiting."""

from __future__ import annotations

import json
import shlex
from collections import Counter
from collections.abc import Iterable, Sequence
from inspect import isawaitable
from pathlib import Path
from typing import Any, Final, Literal
from uuid import uuid4

from attrs import frozen
from rich.console import Console

from integration_sdk._http import requests
from integration_sdk._push.evidence import is_missing
from integration_sdk._push.table import Event, after, sent_again
from integration_sdk._store.database import without_password
from integration_sdk._store.row import Evidence, KeyClaimed, Row, State, Verdict
from integration_sdk._store.store import Store, is_url
from integration_sdk.cli._display import say, show_table
from integration_sdk.errors import ConfigurationError

Decision = Literal["resend", "abandon", "bind"]
DEFAULT_SCOPE: Final = "default"
_LOST: Final = "the answer was lost: `pushes resume` looks for it"
_NEXT: Final = {
    State.QUEUED: "not sent yet: `pushes resume` sends it",
    State.SENDING: _LOST,
    State.LOST: _LOST,
    State.OPEN: "the service has it: `pushes resume` waits for the end",
    State.DOUBT: "in doubt: look, and decide with `pushes resolve`",
}
_DECIDED: Final = {
    "resend": "sent again as another push",
    "abandon": "given up by decision",
}


@frozen
class Journal:
    """Where pushes are kept, as a command line names it."""

    where: str
    scope: str = DEFAULT_SCOPE

    def __str__(self) -> str:
        where = without_password(self.where) if is_url(self.where) else self.where
        return where if self.scope == DEFAULT_SCOPE else f"scope {self.scope!r} of {where}"

    @property
    def options(self) -> str:
        """What to write after a command that is to use it; not the password."""
        where = without_password(self.where) if is_url(self.where) else self.where
        scope = [] if self.scope == DEFAULT_SCOPE else ["--scope", self.scope]
        return shlex.join(["--journal", where, *scope])

    def store(self) -> Store:
        """Return it unopened.

        Raises:
            ConfigurationError: It can be no journal, or the extra for databases is missing.
        """
        return Store(self.where, self.scope)

    def check_exists(self) -> None:
        """Refuse a file that does not exist, since opening would create it.

        Raises:
            ConfigurationError: The file does not exist, or the path is invalid.
        """
        try:
            is_url(self.where) or Path(self.where).stat()
        except OSError as error:
            raise ConfigurationError(f"there is no journal {self}: {error.strerror}") from None


async def show(journal: Journal, out: Console, *, as_json: bool) -> None:
    """Print how many pushes of a journal are in each state, and which are in doubt.

    Takes no lock: a program may have it open, and another may open it meanwhile.

    Raises:
        ConfigurationError: There is no such journal.
        JournalError: It is damaged, or cannot be read.
    """
    journal.check_exists()
    async with journal.store() as store:
        rows = await store.recorded()
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
    doubts = [row for row in rows if row.state is State.DOUBT]
    if doubts:
        show_table(out, "In doubt", [_doubt(row) for row in doubts])


def _state(row: Row) -> tuple[str, str]:
    """Return the state of a push, and what will happen next."""
    match row.state:
        case State.FINAL:
            return f"{row.state} {row.status}", ""
        case State.CLOSED:
            return f"{row.state} {row.decision}", _DECIDED[row.decision or ""]
        case State.DOUBT:
            return f"{row.state} {row.verdict}", _NEXT[row.state]
        case State.REFUSED if row.http_status is None:
            return row.state, "never left"
        case State.REFUSED:
            return row.state, "refused by the service"
        case State.QUEUED | State.SENDING | State.OPEN | State.LOST:
            return row.state, _NEXT[row.state]


def _doubt(row: Row) -> tuple[str, ...]:
    candidates = ", ".join(row.candidates) or "no candidate"
    return row.id, row.reference or "", row.lane.company_id, row.lane.data_type, candidates


def _facts(row: Row) -> dict[str, Any]:
    facts = {
        "intent": row.id,
        "state": row.state,
        "verdict": row.verdict,
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
    journal: Journal, intent: str | None, out: Console, *, decision: Decision, key: str | None
) -> None:
    """Record a decision about a push in doubt; `resume` carries it out.

    Args:
        journal: Where it is.
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
    journal.check_exists()
    async with journal.store() as store:
        kept = await store.lend()
        live = await kept.rows(live=True)
        chosen = list(filter(is_missing, live)) if intent is None else [_one(live, intent)]
        for row in chosen:
            decided, add = _decided(row, decision, key)
            try:
                made = kept.decide(decided, add)
                if isawaitable(made):
                    await made
            except KeyClaimed:
                owner = next((one.id for one in await kept.rows() if one.key == key), "unknown")
                raise KeyClaimed(
                    f"{key} is the key of another push already, that of intent {owner}; "
                    "nothing is decided"
                ) from None
    resume = f"`integration-sdk pushes resume {journal.options}`"
    said = {
        "resend": f"to be sent once more. {resume} does it.",
        "abandon": "given up.",
        "bind": f"push {key}. {resume} waits for its end.",
    }
    if intent is not None:
        say(out, f"On record: {chosen[0].reference or chosen[0].id} is {said[decision]}")
        return
    doubts = [row for row in live if row.state is State.DOUBT]
    some = f"{len(chosen):,} of {len(doubts):,} pushes in doubt, those that no list shows"
    say(out, f"On record for {some}: {said[decision]}")
    for why in _left_out(row for row in doubts if not is_missing(row)):
        say(out, why)


def _left_out(rows: Iterable[Row]) -> list[str]:
    """Return why pushes in doubt were not decided, and how many for each reason."""
    reasons = Counter(
        "a list shows pushes that may be these, or proves nothing"
        if row.verdict is not Verdict.ABSENT or row.candidates
        else "they are updates, not creates"
        if row.method != "POST"
        else "they have no natural key by which a second one could be told: "
        "decide about each by its intent"
        for row in rows
    )
    return [f"{count:,} not decided: {why}." for why, count in reasons.items()]


def _decided(row: Row, decision: Decision, key: str | None) -> tuple[Row, Sequence[Row]]:
    """Return the row after the decision, and the new row that it leads to, if any.

    Raises:
        ConfigurationError: It is not in doubt.
    """
    if row.state is not State.DOUBT:
        raise ConfigurationError(
            f"intent {row.id} is {row.state}: only what is in doubt can be decided"
        )
    match decision:
        case "abandon":
            return after(row, Event.ABANDONED, decision="abandon"), ()
        case "bind":
            evidence = Evidence.CALLER
            return after(row, Event.FOUND, decision="bind", key=key, evidence=evidence), ()
        case "resend":
            fresh = str(uuid4()) if row.idempotency_key else None
            decided, again = sent_again(row, fresh or uuid4().hex, fresh)
            return decided, [again]


def _one(rows: Iterable[Row], intent: str) -> Row:
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
