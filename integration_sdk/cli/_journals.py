"""The commands that work on a journal or its database, without the service."""

from __future__ import annotations

import shlex
from collections import Counter
from collections.abc import Iterable, Sequence
from inspect import isawaitable
from itertools import chain
from json import dumps
from pathlib import Path
from typing import Annotated, Any, Final
from uuid import uuid4

from attrs import asdict, frozen
from cyclopts import Group, Parameter
from cyclopts.validators import LimitedChoice, mutually_exclusive

from integration_sdk._http import requests
from integration_sdk._push.evidence import is_missing
from integration_sdk._push.table import Event, after, sent_again
from integration_sdk._store.database import migrate as make_tables
from integration_sdk._store.database import migration, without_password
from integration_sdk._store.row import Evidence, KeyClaimed, Row, State, Verdict
from integration_sdk._store.store import Store, is_url
from integration_sdk.cli._display import say, show_table, stdout
from integration_sdk.cli._ends import usable
from integration_sdk.cli._options import WHOLE, Flag, Scope
from integration_sdk.errors import ConfigurationError

_LOST: Final = "the answer was lost: `pushes resume` searches for it"
_NEXT: Final = {
    State.QUEUED: "not sent yet: `pushes resume` sends it",
    State.SENDING: _LOST,
    State.LOST: _LOST,
    State.OPEN: "accepted by the service: `pushes resume` waits for it",
    State.DOUBT: "in doubt: check, and decide with `pushes resolve`",
}
_DECIDED: Final = {
    "resend": "sent again as another push",
    "abandon": "given up by decision",
}


@frozen
class Journal:
    """Where pushes are recorded, as a command line names it: a path or a URL."""

    where: str
    scope: Scope

    def __str__(self) -> str:
        name = self.scope.scope
        return self.place if name == WHOLE.scope else f"scope {name!r} of {self.place}"

    @property
    def place(self) -> str:
        """The file, or the URL without its password."""
        return without_password(self.where) if is_url(self.where) else self.where

    @property
    def options(self) -> str:
        """What to write after a command that is to use it."""
        given = {"--journal": self.place}
        for name, value in asdict(self.scope).items():
            if value != getattr(WHOLE, name):
                given[f"--{name}"] = value
        return shlex.join(chain.from_iterable(given.items()))

    def store(self) -> Store:
        """Return it unopened. ConfigurationError: it cannot be a journal."""
        return self.scope.store(self.where)

    def check_exists(self) -> None:
        """Refuse a file that does not exist, since opening would create it.

        Raises:
            ConfigurationError: The file does not exist, or the path is invalid.
        """
        with usable(f"there is no journal {self}"):
            is_url(self.where) or Path(self.where).stat()


# list


async def list_(journal: str, *, scope: Scope = WHOLE, json: Flag = False) -> None:
    """Show the pushes in a journal, by state. Needs no network.

    Another program may be using the journal.

    Parameters
    ----------
    journal
        As given to push.
    json
        Print one JSON object per push instead of tables.
    """
    out, kept = stdout(), Journal(journal, scope)
    kept.check_exists()
    async with kept.store() as store:
        rows = await store.recorded()
    if json:
        for row in rows:
            say(out, dumps(_facts(row)))  # ASCII, which any terminal can write
        return
    if not rows:
        say(out, f"{kept.place} holds no pushes in scope {scope.scope!r}.")
        return
    counts = Counter(map(_state, rows))
    summary = [(state, f"{count:,}", next_) for (state, next_), count in sorted(counts.items())]
    show_table(out, f"{len(rows):,} pushes in {kept}", summary)
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
            return row.state, "not sent"
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


# resolve

_DECISION: Final = Group("Decision", validator=LimitedChoice(1, 1))
_WHICH: Final = Group("Which pushes", validator=LimitedChoice(1, 1))
_ALONE: Final = Group("A key is for one push", validator=mutually_exclusive, show=False)


async def resolve(
    intent: Annotated[str | None, Parameter(group=_WHICH)] = None,
    *,
    journal: str,
    scope: Scope = WHOLE,
    all_absent: Annotated[Flag, Parameter(group=(_WHICH, _ALONE))] = False,
    resend: Annotated[Flag, Parameter(group=_DECISION)] = False,
    abandon: Annotated[Flag, Parameter(group=_DECISION)] = False,
    bind: Annotated[str | None, Parameter(group=(_DECISION, _ALONE))] = None,
) -> None:
    """Record a decision about pushes in doubt. Needs no network; resume carries it out.

    Parameters
    ----------
    intent
        Id of the push, or the beginning of it, as shown by list and in its outcome.
    journal
        As given to push.
    all_absent
        Every create with a natural key that no list has shown and that no other push could be.
    resend
        Push the record again. If the first push arrives after all, the record exists twice.
    abandon
        Give up on the push.
    bind
        The push is the one with this key.
    """
    out, kept = stdout(), Journal(journal, scope)
    if bind is not None:
        requests.segment("bind", bind)
    kept.check_exists()
    async with kept.store() as store:
        rows = await store.lend()
        live = await rows.rows(live=True)
        chosen = list(filter(is_missing, live)) if intent is None else [_one(live, intent)]
        for row in chosen:
            decided, add = _decided(row, bind, resend=resend)
            try:
                made = rows.decide(decided, add)
                if isawaitable(made):
                    await made
            except KeyClaimed:
                owner = next((one.id for one in await rows.rows() if one.key == bind), "unknown")
                raise KeyClaimed(
                    f"{bind} is already the key of intent {owner}; nothing was decided"
                ) from None
    then = f"`integration-sdk pushes resume {kept.options}`"
    decision = (
        f"will be sent again by {then}."
        if resend
        else "given up."
        if abandon
        else f"is push {bind}; {then} waits for it."
    )
    if intent is not None:
        say(out, f"Recorded for {chosen[0].reference or chosen[0].id}: {decision}")
        return
    doubts = [row for row in live if row.state is State.DOUBT]
    say(out, f"Recorded for {len(chosen):,} of {len(doubts):,} pushes in doubt: {decision}")
    for why in _left_out(row for row in doubts if not is_missing(row)):
        say(out, why)


def _left_out(rows: Iterable[Row]) -> list[str]:
    """Return why pushes in doubt were not decided, and how many for each reason."""
    reasons = Counter(
        "a list shows pushes that may be these, or proves nothing"
        if row.verdict is not Verdict.ABSENT or row.candidates
        else "they are updates, not creates"
        if row.method != "POST"
        else "they have no natural key to recognize a second one by; decide by intent"
        for row in rows
    )
    return [f"{count:,} not decided: {why}." for why, count in reasons.items()]


def _decided(row: Row, key: str | None, *, resend: bool) -> tuple[Row, Sequence[Row]]:
    """Return the row after the decision, and the new row that it leads to, if any.

    Raises:
        ConfigurationError: It is not in doubt.
    """
    if row.state is not State.DOUBT:
        raise ConfigurationError(
            f"intent {row.id} is {row.state}: only what is in doubt can be decided"
        )
    if key is not None:
        evidence = Evidence.CALLER
        return after(row, Event.FOUND, decision="bind", key=key, evidence=evidence), ()
    if not resend:
        return after(row, Event.ABANDONED, decision="abandon"), ()
    fresh = str(uuid4()) if row.idempotency_key else None
    decided, again = sent_again(row, fresh or uuid4().hex, fresh)
    return decided, [again]


def _one(rows: Iterable[Row], intent: str) -> Row:
    found = [row for row in rows if intent and row.id.startswith(intent)]
    if len(found) > 1:
        raise ConfigurationError(f"{len(found)} intents begin with {intent!r}: give more of it")
    if not found:
        raise ConfigurationError(f"no intent that is not settled begins with {intent!r}")
    return found[0]


# store migrate


async def migrate(
    url: str,
    *,
    schema: str = WHOLE.schema,
    print_: Annotated[Flag, Parameter(name="--print")] = False,
) -> None:
    """Create the tables of a store in PostgreSQL, or update them. Can be run any number of times.

    For databases in which the program's own role may not create tables. That role needs USAGE on
    the schema, and SELECT, INSERT, UPDATE and DELETE on all tables in it.

    Parameters
    ----------
    url
        postgresql://user:password@host/database, with a role that may create tables.
    schema
        Schema of the tables, as in Store(schema=) and --schema.
    print_
        Print the SQL instead of running it; the URL is not used.
    """
    if print_:
        print(migration(schema))
    else:
        await make_tables(url, schema)
