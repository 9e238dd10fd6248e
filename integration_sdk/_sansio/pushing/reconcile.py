"""Doubts: what became of a push whose answer was lost, asked of the service's list.

An AMBIGUOUS intent is looked for at once and then with growing patience, until the evidence
settles it or its quiet period has passed. What is then ABSENT or UNRESOLVED is the caller's to
decide, and is still looked for on every later listing: late requests and lagging lists are
real. No push is ever sent again from here. After a crash `recover` says where each row goes on.
"""

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence

from attrs import frozen
from msgspec import structs

from integration_sdk._sansio.pushing.effects import (
    Commit,
    Fetch,
    FindOwners,
    Ledger,
    List,
    Machine,
    Policy,
    Sleep,
)
from integration_sdk._sansio.pushing.evidence import (
    ListedPushes,
    Operation,
    Verdict,
    View,
    in_lane,
    judge,
    new_since,
    reaches_back,
)
from integration_sdk._sansio.pushing.intents import (
    CREATES,
    DOUBTED,
    IN_DOUBT,
    POLLABLE,
    Evidence,
    Intent,
    KeyClaimed,
    Lane,
    Snapshot,
    State,
)
from integration_sdk._sansio.pushing.protocol import record, write
from integration_sdk.errors import ConfigurationError, JournalError

_READ_SINGLY = 20
"""At most so many pushes without ``data`` are read one by one after a listing."""


def reconcile(ledger: Ledger, company_id: str, *, policy: Policy) -> Machine[None]:
    """List the company's pushes until none of its intents is AMBIGUOUS any more.

    One at a time per company; ends early when the driver gives up sleeping.
    """
    waited: dict[str, float] = {}
    for wait in _looks(policy):
        asked = [one.id for one in ledger.doubted(company_id) if one.state is State.AMBIGUOUS]
        if not asked or (yield Sleep(wait)) is None:
            return
        waited = {one: waited.get(one, 0.0) + wait for one in asked}
        quiet = {one for one, so_far in waited.items() if so_far >= policy.quiet_period}
        try:
            yield from look_again(ledger, company_id, policy=policy, quiet=quiet)
        except JournalError:
            continue  # without knowing who owns what nothing is judged: there is a next look


def _looks(policy: Policy) -> Iterator[float]:
    wait = policy.first_look
    while True:
        yield wait
        wait = min(wait * 2, policy.quiet_period / 2)


def look_again(
    ledger: Ledger, company_id: str, *, policy: Policy, quiet: Collection[str] = ()
) -> Machine[None]:
    """List the company's pushes once, for whoever is in doubt: the late sweep.

    *quiet*: AMBIGUOUS intents whose quiet period has passed. For those that are ABSENT or
    UNRESOLVED it has long.
    """
    asked = ledger.doubted(company_id)
    listing = yield _listing_for(company_id, asked)
    if isinstance(listing, ListedPushes):
        yield from examine(ledger, listing, asked, policy=policy, quiet=quiet)
    else:
        yield from examine(ledger, ListedPushes((), whole=False), asked, policy=policy, quiet=quiet)


def _listing_for(company_id: str, asked: Collection[Intent]) -> List:
    known = [frozenset(one.snapshot.keys if one.snapshot else ()) for one in asked]
    union = frozenset[str]().union(*known)
    return List(company_id, union, old=union.intersection(*known))


def examine(
    ledger: Ledger,
    listing: ListedPushes,
    asked: Collection[Intent],
    *,
    policy: Policy,
    quiet: Collection[str] = (),
) -> Machine[None]:
    """Judge the intents in doubt by a listing.

    *asked*: ``ledger.doubted(company_id)`` as it was when the listing was asked for: what was
    sent later may be missing from it.
    """
    new = _new(listing, asked, policy)
    owned = yield FindOwners(
        frozenset(one.push_operation_key for ones in new.values() for one in ones)
    )
    taken = frozenset(str(key) for key in owned) if isinstance(owned, Collection) else frozenset()
    new = {
        of: [one for one in ones if one.push_operation_key not in taken] for of, ones in new.items()
    }
    views = _views(ledger, listing, (yield from _with_data(ledger, new)))
    rows = list(_judged(ledger, views, asked, policy, quiet))
    if not rows:
        return
    try:
        yield from record(ledger, *rows)
    except KeyClaimed:
        return  # somebody settled with such a key meanwhile: the next listing knows


_Of = tuple[Snapshot | None, Lane]
_New = Mapping[_Of, Sequence[Operation]]


def _new(listing: ListedPushes, asked: Collection[Intent], policy: Policy) -> _New:
    """What is new to each snapshot and lane; many intents share both."""
    return {
        (snapshot, lane): [
            one for one in new_since(snapshot, listing) if in_lane(one, lane, policy.path_names)
        ]
        for snapshot, lane in dict.fromkeys((intent.snapshot, intent.lane) for intent in asked)
    }


def _with_data(ledger: Ledger, new: _New) -> Machine[_New]:
    """Read singly what is final and came without its echo, each push once."""
    mute = {
        one.push_operation_key: lane.company_id
        for (_, lane), ones in new.items()
        for one in ones
        if one.is_final and not one.data
    }
    unread = tuple(key for key in mute if key not in ledger.read)[:_READ_SINGLY]
    if unread:
        found = yield Fetch(mute[unread[0]], unread)
        for one in found if isinstance(found, list | tuple) else ():
            ledger.read[one.push_operation_key] = one
    read = {key: ledger.read[key] for key in mute if key in ledger.read}
    return {of: [read.get(one.push_operation_key, one) for one in ones] for of, ones in new.items()}


def _views(ledger: Ledger, listing: ListedPushes, new: _New) -> Mapping[_Of, View]:
    rows = {lane: ledger.contenders(lane) for _, lane in new}
    return {
        (snapshot, lane): View(
            [one for one in ones if not ledger.owner(one.push_operation_key)],
            rows[lane],
            reaches_back(snapshot, listing),
        )
        for (snapshot, lane), ones in new.items()
    }


def _judged(
    ledger: Ledger,
    views: Mapping[_Of, View],
    asked: Collection[Intent],
    policy: Policy,
    quiet: Collection[str],
) -> Iterator[Intent]:
    """Judge one after the other: what is settled is no rival to the next, nor is its push."""
    for intent in asked:
        now = ledger.get(intent.id)
        if now is None or now.state not in DOUBTED:
            continue
        is_quiet = now.id in quiet or now.state in IN_DOUBT
        view = views[intent.snapshot, intent.lane]
        verdict = judge(now, view, exclusive=policy.exclusive, quiet=is_quiet)
        row = now if verdict is None else _step(now, verdict)
        if row.key is not None:
            for one in views.values():
                one.settle(row.id, row.key)
        if row != now:
            yield row


def _step(intent: Intent, verdict: Verdict) -> Intent:
    if verdict.key is not None:
        found = State.LATE if intent.state in IN_DOUBT else State.RESOLVED
        return intent.to(found, key=verdict.key, evidence=verdict.evidence)
    if intent.state not in IN_DOUBT:
        return intent.to(verdict.state, candidates=verdict.candidates)
    # An unreadable list takes no candidate back.
    return intent.to(intent.state, candidates=verdict.candidates or intent.candidates)


@frozen
class Recovered:
    """Where each row of an earlier process goes on.

    send: Never left: `transmit` them. poll: With a key: `settle` them. companies: Have
    AMBIGUOUS intents: `reconcile` each. in_doubt: ABSENT or UNRESOLVED: surface them.
    unsendable: Never left, and the journal keeps no payloads: given up, submit them again.
    """

    send: tuple[Intent, ...] = ()
    poll: tuple[Intent, ...] = ()
    companies: tuple[str, ...] = ()
    in_doubt: tuple[Intent, ...] = ()
    unsendable: tuple[Intent, ...] = ()


def recover(ledger: Ledger, rows: Iterable[Intent]) -> Machine[Recovered]:
    """Take over the unsettled rows of a journal; nothing else may run before this has.

    A row in SENDING may have left: it is in doubt, and never sent again.

    Raises:
        JournalError: The journal cannot be written; nothing goes on without it.
    """
    unsettled = [row for row in rows if not row.is_settled]
    now = [_examined(row) for row in unsettled]
    changed = tuple(new for old, new in zip(unsettled, now, strict=True) if new is not old)
    if changed:
        yield Commit(changed)
    for row in now:
        ledger.note(row)
    return Recovered(
        send=tuple(row for row in now if row.state is State.INTENT or row.retry),
        poll=tuple(row for row in now if row.key and row.state in POLLABLE),
        companies=tuple({row.lane.company_id for row in now if row.state is State.AMBIGUOUS}),
        in_doubt=tuple(row for row in now if row.state in IN_DOUBT),
        unsendable=tuple(row for row in changed if row.state is not State.AMBIGUOUS),
    )


def _examined(row: Intent) -> Intent:
    if row.state is State.SENDING:
        return row.to(State.AMBIGUOUS, error="the process ended while this push was being sent")
    if (row.state is State.INTENT or row.retry) and row.payload is None:
        why = "not sent, and the journal keeps no payloads: submit it again"
        refused = State.REJECTED if row.state is State.REJECTED else State.NOT_SENT
        return row.to(refused, retry=False, error=why)
    return row


def resend(
    ledger: Ledger, intent_id: str, *, new_id: str, idempotency_key: str | None = None
) -> Machine[Intent]:
    """Record the caller's decision to send it again, and return the new intent to `transmit`.

    Both rows are on disk, or neither. The old one stays a rival: it may exist after all.

    Raises:
        ConfigurationError: It is not in doubt, or its payload is not kept.
        JournalError: Not recorded, hence not decided.
    """
    intent = _undecided(ledger, intent_id)
    if intent.payload is None:
        raise ConfigurationError(f"Intent {intent_id} has no payload on record: submit it anew.")
    decided = intent.to(State.DECIDED, decision="resend")
    again = structs.replace(
        intent,
        id=new_id,
        idempotency_key=idempotency_key if intent.method == CREATES else None,
        parent=intent.id,
        state=State.INTENT,
        attempts=0,
        candidates=(),
        http_status=None,
        error=None,
    )
    yield from _decide(ledger, intent, decided, again)
    ledger.note(again)
    return again


def abandon(ledger: Ledger, intent_id: str) -> Machine[Intent]:
    """Record the caller's decision to leave it. Errors as with `resend`."""
    intent = _undecided(ledger, intent_id)
    decided = intent.to(State.DECIDED, decision="abandon")
    yield from _decide(ledger, intent, decided)
    return decided


def bind(ledger: Ledger, intent_id: str, key: str) -> Machine[Intent]:
    """Record the caller's word that the push *key* is this one; it is polled from then on.

    Raises:
        ConfigurationError: The intent is not in doubt.
        KeyClaimed: The push is another intent's.
        JournalError: Not recorded, hence not decided.
    """
    intent = _undecided(ledger, intent_id)
    if ledger.owner(key) is not None:
        raise KeyClaimed(f"Push {key} belongs to intent {ledger.owner(key)} already.")
    decided = intent.to(State.DECIDED, decision="bind", key=key, evidence=Evidence.CALLER)
    yield from _decide(ledger, intent, decided)
    return decided


def _decide(ledger: Ledger, intent: Intent, decided: Intent, *others: Intent) -> Machine[None]:
    """Put a decision on record; until it is, nobody else decides or finds the intent."""
    ledger.note(decided)
    try:
        yield from write(ledger, decided, *others)
    except JournalError:
        ledger.note(intent)
        raise


def _undecided(ledger: Ledger, intent_id: str) -> Intent:
    intent = ledger.get(intent_id)
    if intent is None or intent.state not in IN_DOUBT:
        state = "settled or unknown" if intent is None else intent.state
        raise ConfigurationError(
            f"Intent {intent_id} is {state}: only what is ABSENT or UNRESOLVED can be decided."
        )
    return intent
