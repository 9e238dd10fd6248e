"""The rules of evidence in their plainest form: each row against each push, one by one.

Quadratic, and the measure of what `evidence.Judging` does with columns and sets: the same findings,
in the same order.
"""

from collections.abc import Collection, Iterator, Mapping, Sequence
from math import inf
from typing import Any

from integration_sdk._push.agreement import as_written, decode, leaf, value_at
from integration_sdk._push.evidence import (
    PENDING_PATIENCE,
    Finding,
    ListedPushes,
    Operation,
    in_lane,
    new_since,
    not_newer,
    reaches_back,
)
from integration_sdk._push.table import Event, after, may_own_unclaimed
from integration_sdk._store.row import Evidence, Row, State, Verdict


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


def match(row: Row, operation: Operation) -> bool | None:
    """Compare an echo with what we sent; None where it does not tell."""
    if not operation.data:
        return None
    if row.natural_key is not None:
        echoed = leaf(value_at(operation.data, row.natural_key))
        return None if echoed is None else as_written(echoed) == as_written(str(row.natural_value))
    sent = decode(row.payload) if row.payload else None
    if agrees(sent, operation.data):
        return True if has_leaves(sent) else None
    return False if contradicts(sent, operation.data) else None


def judge(
    row: Row,
    fresh: Sequence[Operation],
    rivals: Collection[Row],
    *,
    reaches: bool,
    exclusive: bool,
    old: Collection[str],
) -> Finding:
    """Say what the new pushes suggest."""
    agreeing = [one for one in fresh if match(row, one) is True]
    silent = [one for one in fresh if match(row, one) is None]
    proven = len(agreeing) == 1 and not (silent and row.natural_key is None)
    proven = proven and agreeing[0].push_operation_key not in old
    if reaches and proven and all(match(rival, agreeing[0]) is False for rival in rivals):
        return Finding(key=agreeing[0].push_operation_key, evidence=Evidence.AGREEING_ECHO)
    only = len(fresh) == 1 and (row.natural_key is None or bool(agreeing or silent))
    newer = all(one.push_operation_key not in old for one in fresh)
    if reaches and exclusive and not rivals and only and newer:
        return Finding(key=fresh[0].push_operation_key, evidence=Evidence.ONLY_ONE_NEW)
    like = [*agreeing, *silent]
    if reaches and not fresh:
        return Finding(Verdict.ABSENT)
    named = [*like, *(one for one in fresh if one not in like)]
    pending = [one for one in like if not one.is_final and one.push_operation_key not in old]
    return Finding(
        Verdict.UNRESOLVED,
        candidates=tuple(one.push_operation_key for one in named),
        waits=reaches and bool(pending),
    )


def conclude(
    known: dict[str, Row],
    listing: ListedPushes,
    owned: Collection[str],
    *,
    exclusive: bool,
    waited: Mapping[str, float],
    patience: float,
    before: dict[str, Finding],
) -> Iterator[tuple[str, Event, dict[str, Any]]]:
    """Judge those in doubt one after the other, again as long as one is found.

    Only then say of the others that they were not. Change *known* and *before*.
    """
    earlier = dict(before)

    def judged(row: Row) -> tuple[Finding, bool]:
        claimed = {one.key for one in known.values()} | set(owned)
        fresh = [
            one
            for one in new_since(row.snapshot, listing)
            if in_lane(one, row.lane, {}) and one.push_operation_key not in claimed
        ]
        rivals = [
            one
            for one in known.values()
            if one.id != row.id and one.lane == row.lane and may_own_unclaimed(one)
        ]
        finding = judge(
            row,
            fresh,
            rivals,
            reaches=reaches_back(row.snapshot, listing),
            exclusive=exclusive,
            old=not_newer(row.snapshot, listing),
        )
        same = finding.verdict is Verdict.UNRESOLVED or earlier.get(row.id) == finding
        before[row.id] = finding
        needed = patience * (PENDING_PATIENCE if finding.waits else 1)
        enough = row.state is State.DOUBT or waited.get(row.id, -inf) >= needed
        return finding, finding.evidence is Evidence.AGREEING_ECHO or (enough and same)

    def in_doubt() -> list[Row]:
        return [row for row in known.values() if row.state in {State.LOST, State.DOUBT}]

    more = True
    while more:
        more = False
        for row in in_doubt():
            finding, is_proved = judged(row)
            if finding.key is not None and is_proved:
                more = True
                facts: dict[str, Any] = {"key": finding.key, "evidence": finding.evidence}
                known[row.id] = after(row, Event.FOUND, **facts)
                yield row.id, Event.FOUND, facts
    for row in in_doubt():
        finding, is_proved = judged(row)
        if not is_proved:
            continue
        facts = {"verdict": finding.verdict, "candidates": finding.candidates}
        is_known = (row.verdict, row.candidates) == tuple(facts.values())
        if row.state is State.LOST or not is_known:
            known[row.id] = after(row, Event.UNSETTLED, **facts)
            yield row.id, Event.UNSETTLED, facts
