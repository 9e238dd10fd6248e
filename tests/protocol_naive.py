"""The rules of evidence in their plainest form: each intent against each push, one by one.

Quadratic, and the measure of what `reconcile.search_again` does with columns and sets: the same
verdicts, in the same order.
"""

from collections.abc import Collection, Mapping, Sequence
from typing import Any

from msgspec import structs

from integration_sdk._push.agreement import as_written, decode, leaf, value_at
from integration_sdk._push.evidence import (
    ListedPushes,
    Operation,
    Verdict,
    in_lane,
    new_since,
    not_newer,
    reaches_back,
)
from integration_sdk._push.table import DECIDABLE, may_own_unclaimed
from integration_sdk._store.row import DOUBTED, Evidence, Intent, State


def agrees(sent: object, echo: object) -> bool:
    """Whether every leaf we sent agrees with the echo's leaf in the same place."""
    if sent is None:
        return True
    if isinstance(sent, Mapping):
        inside = echo if isinstance(echo, Mapping) else {}
        return all(agrees(value, inside.get(name)) for name, value in sent.items())
    if isinstance(sent, list | tuple):
        if not isinstance(echo, list | tuple) or len(echo) != len(sent):
            return not sent
        return all(map(agrees, sent, echo))
    return leaf(sent) == leaf(echo)


def contradicts(sent: object, echo: object) -> bool:
    """Whether the echo says something else, rather than less: platforms drop fields."""
    if sent is None or echo is None:
        return False
    if isinstance(sent, Mapping):
        if not isinstance(echo, Mapping):
            return True
        return any(contradicts(value, echo.get(name)) for name, value in sent.items())
    if isinstance(sent, list | tuple):
        if not isinstance(echo, list | tuple) or len(echo) != len(sent):
            return True
        return any(map(contradicts, sent, echo))
    return leaf(sent) != leaf(echo)


def has_leaves(sent: object) -> bool:
    """Whether there is anything in it that could agree or disagree."""
    if isinstance(sent, Mapping):
        return any(map(has_leaves, sent.values()))
    if isinstance(sent, list | tuple):
        return any(map(has_leaves, sent))
    return sent is not None


def match(intent: Intent, operation: Operation) -> bool | None:
    """Compare an echo with what we sent; None where it does not tell."""
    if not operation.data:
        return None
    if intent.natural_key is not None:
        echoed = leaf(value_at(operation.data, intent.natural_key))
        return (
            None if echoed is None else as_written(echoed) == as_written(str(intent.natural_value))
        )
    sent = decode(intent.payload) if intent.payload else None
    if agrees(sent, operation.data):
        return True if has_leaves(sent) else None
    return False if contradicts(sent, operation.data) else None


def judge(
    intent: Intent,
    fresh: Sequence[Operation],
    rivals: Collection[Intent],
    *,
    reaches: bool,
    exclusive: bool,
    old: Collection[str],
) -> Verdict:
    """Say what the new pushes prove."""
    agreeing = [one for one in fresh if match(intent, one) is True]
    silent = [one for one in fresh if match(intent, one) is None]
    proven = len(agreeing) == 1 and not (silent and intent.natural_key is None)
    proven = proven and agreeing[0].push_operation_key not in old
    if reaches and proven and all(match(rival, agreeing[0]) is False for rival in rivals):
        return Verdict(State.RESOLVED, agreeing[0].push_operation_key, Evidence.AGREEING_ECHO)
    only = len(fresh) == 1 and (intent.natural_key is None or bool(agreeing or silent))
    newer = all(one.push_operation_key not in old for one in fresh)
    if reaches and exclusive and not rivals and only and newer:
        return Verdict(State.RESOLVED, fresh[0].push_operation_key, Evidence.ONLY_ONE_NEW)
    like = [*agreeing, *silent]
    if reaches and not fresh:
        return Verdict(State.ABSENT)
    named = [*like, *(one for one in fresh if one not in like)]
    return Verdict(State.UNRESOLVED, candidates=tuple(one.push_operation_key for one in named))


def examine(
    asked: Sequence[Intent],
    others: Collection[Intent],
    listing: ListedPushes,
    owned: Collection[str],
    *,
    exclusive: bool,
    searched_enough: Collection[str],
    before: dict[str, Verdict],
) -> list[Intent]:
    """Judge those in doubt one after the other; return the rows that change.

    *before*: What the listing before suggested; it is replaced.
    """
    known: dict[str, Intent] = {one.id: one for one in (*asked, *others)}
    changed = []
    for intent in asked:
        assert intent.state in DOUBTED
        claimed = {one.key for one in known.values()} | set(owned)
        fresh = [
            one
            for one in new_since(intent.snapshot, listing)
            if in_lane(one, intent.lane, {}) and one.push_operation_key not in claimed
        ]
        rivals = [
            one
            for one in known.values()
            if one.id != intent.id and one.lane == intent.lane and may_own_unclaimed(one)
        ]
        verdict = judge(
            intent,
            fresh,
            rivals,
            reaches=reaches_back(intent.snapshot, listing),
            exclusive=exclusive,
            old=not_newer(intent.snapshot, listing),
        )
        enough = intent.id in searched_enough or intent.state in DECIDABLE
        same = verdict.state is State.UNRESOLVED or before.get(intent.id) == verdict
        before[intent.id] = verdict
        counts = verdict.evidence is Evidence.AGREEING_ECHO or (enough and same)
        row = _step(intent, verdict) if counts else intent
        known[row.id] = row
        changed += [row] if row != intent else []
    return changed


def _step(intent: Intent, verdict: Verdict) -> Intent:
    found: dict[str, Any] = {"key": verdict.key, "evidence": verdict.evidence}
    if verdict.key is not None:
        state = State.LATE if intent.state in DECIDABLE else State.RESOLVED
        return _changed(intent, state=state, payload=None, snapshot=None, candidates=(), **found)
    if intent.state not in DECIDABLE:
        return _changed(intent, state=verdict.state, candidates=verdict.candidates)
    return _changed(intent, candidates=verdict.candidates or intent.candidates)


def _changed(intent: Intent, **changes: Any) -> Intent:
    changed = structs.replace(intent, **changes)
    return intent if changed == intent else structs.replace(changed, version=intent.version + 1)
