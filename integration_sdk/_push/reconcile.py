"""Finds out from the service's list what became of a push whose answer was lost.

An AMBIGUOUS intent is searched for at once and then at growing intervals, until the evidence
settles it or the policy's patience is used up. If it is then ABSENT or UNRESOLVED, the caller may
decide, and it is still searched for in every later listing, because requests may arrive late and
lists may lag. Nothing here sends a push again. After a crash, `recover` says how each row goes on.
"""

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from itertools import count

from msgspec import structs

from integration_sdk._http.retry import pause
from integration_sdk._push.effects import (
    Commit,
    FindOwners,
    Ledger,
    ListPushes,
    Machine,
    Policy,
    ReadSingly,
    Sleep,
)
from integration_sdk._push.evidence import (
    ListedPushes,
    Operation,
    Verdict,
    View,
    in_lane,
    is_missing,
    is_proved,
    judge,
    new_since,
    not_newer,
    reaches_back,
)
from integration_sdk._push.protocol import given_up, record, write
from integration_sdk._push.table import DECIDABLE, Event, after
from integration_sdk._store.row import (
    CREATES,
    DOUBTED,
    Evidence,
    Intent,
    KeyClaimed,
    Lane,
    Snapshot,
    State,
)
from integration_sdk.errors import ConfigurationError, JournalError

_NOT_YET = {State.SENDING: "still being sent", State.AMBIGUOUS: "still searched for"}
_ABSENT_YET = (State.ABSENT, State.AMBIGUOUS)
_READ_SINGLY = 20
"""Maximum number of pushes without ``data`` that are read one by one after a listing."""


def reconcile(ledger: Ledger, company_id: str, *, policy: Policy) -> Machine[None]:
    """List the company's pushes until none of its intents is AMBIGUOUS any more.

    Run only one at a time per company; it ends early if the driver reports None for a Sleep.
    """
    waited: dict[str, float] = {}
    for wait in _search_pauses(policy):
        asked = [one.id for one in ledger.searched(company_id)]
        if not asked or (yield Sleep(wait)) is None:
            return
        waited = {one: waited.get(one, 0.0) + wait for one in asked}
        enough = {one for one, so_far in waited.items() if so_far >= policy.search_patience}
        try:
            yield from search_again(ledger, company_id, policy=policy, searched_enough=enough)
        except JournalError:
            continue  # nothing can be judged without the owners of keys; search again


def break_off(ledger: Ledger, company_id: str, why: str) -> Machine[None]:
    """Stop a `reconcile` that failed because of *why*: what it searched for is UNRESOLVED."""
    rows = [
        after(one, Event.UNCLEAR, error=f"{one.error}; the search for it broke off: {why}")
        for one in ledger.searched(company_id)
    ]
    if rows:
        yield from record(ledger, *rows)


def _search_pauses(policy: Policy) -> Iterator[float]:
    first = policy.first_search
    cap = max(first, policy.search_patience / 2)
    for number in count():
        yield pause(number, first=first, cap=cap, jitter=lambda limit: limit)


def search_again(
    ledger: Ledger, company_id: str, *, policy: Policy, searched_enough: Collection[str] = ()
) -> Machine[None]:
    """List the company's pushes once, and judge all intents in doubt.

    *searched_enough*: AMBIGUOUS intents that were searched for as long as the policy wants; ABSENT
    and UNRESOLVED ones always were. A second listing follows if only that can confirm the first.
    """
    if (yield from _look(ledger, company_id, policy, searched_enough)):
        yield from _look(ledger, company_id, policy, searched_enough)


def _look(
    ledger: Ledger, company_id: str, policy: Policy, searched_enough: Collection[str]
) -> Machine[bool]:
    """List once and judge; return whether another listing could confirm what is suggested."""
    asked = ledger.doubted(company_id)  # the listing may lack what is sent from here on
    listing = yield _listing_for(company_id, asked)
    if not isinstance(listing, ListedPushes):
        listing = ListedPushes((), whole=False)
    new = _new(listing, asked, policy)
    unowned = yield from _unowned(new)
    yield from _read_mute(ledger, company_id, unowned)
    rows = list(
        _judged(ledger, _views(ledger, listing, new, unowned), asked, policy, searched_enough)
    )
    try:
        if rows:
            yield from record(ledger, *rows)
    except KeyClaimed:
        return False  # another intent got one of the keys meanwhile; the next listing will tell
    return any(_awaits_another(ledger, one.id, searched_enough) for one in asked)


def _awaits_another(ledger: Ledger, intent_id: str, searched_enough: Collection[str]) -> bool:
    now, said = ledger.get(intent_id), ledger.concluded.get(intent_id)
    if now is None or said is None or now.state not in DOUBTED:
        return False
    enough = intent_id in searched_enough or now.state in DECIDABLE
    return enough and (said.key is not None or (said.state, now.state) == _ABSENT_YET)


def _listing_for(company_id: str, asked: Collection[Intent]) -> ListPushes:
    known = [frozenset(one.snapshot.keys if one.snapshot else ()) for one in asked]
    union = frozenset[str]().union(*known)
    return ListPushes(company_id, union, old=union.intersection(*known))


_Of = tuple[Snapshot | None, Lane]
_New = Mapping[_Of, Sequence[Operation]]


def _new(listing: ListedPushes, asked: Collection[Intent], policy: Policy) -> _New:
    """Return the new pushes for each snapshot and lane; many intents share both."""
    return {
        (snapshot, lane): [
            one for one in new_since(snapshot, listing) if in_lane(one, lane, policy.path_names)
        ]
        for snapshot, lane in dict.fromkeys((intent.snapshot, intent.lane) for intent in asked)
    }


def _unowned(new: _New) -> Machine[dict[str, Operation]]:
    """Return the new pushes, by key, without those that belong to an intent on record."""
    found = {one.push_operation_key: one for ones in new.values() for one in ones}
    owned = yield FindOwners(frozenset(found))
    taken = owned if isinstance(owned, Collection) else ()
    return {key: one for key, one in found.items() if key not in taken}


def _read_mute(ledger: Ledger, company_id: str, found: dict[str, Operation]) -> Machine[None]:
    """Read final pushes that were listed without their echo, one by one and each only once."""
    mute = [key for key, one in found.items() if one.is_final and not one.data]
    unread = tuple(key for key in mute if key not in ledger.read)[:_READ_SINGLY]
    if unread:
        read = yield ReadSingly(company_id, unread)
        for one in read if isinstance(read, list | tuple) else ():
            ledger.read[one.push_operation_key] = one
    found.update((key, ledger.read[key]) for key in mute if key in ledger.read)


def _views(
    ledger: Ledger, listing: ListedPushes, new: _New, found: Mapping[str, Operation]
) -> Mapping[_Of, View]:
    rows = {lane: ledger.contenders(lane) for _, lane in new}
    free = {key: one for key, one in found.items() if not ledger.owner(key)}
    return {
        (snapshot, lane): View(
            [free[key] for one in ones if (key := one.push_operation_key) in free],
            rows[lane],
            reaches_back(snapshot, listing),
            not_newer(snapshot, listing),
        )
        for (snapshot, lane), ones in new.items()
    }


def _judged(
    ledger: Ledger,
    views: Mapping[_Of, View],
    asked: Collection[Intent],
    policy: Policy,
    searched_enough: Collection[str],
) -> Iterator[Intent]:
    """Judge one intent after the other; a settled one, and its push, do not affect the next."""
    for intent in asked:
        now = ledger.get(intent.id)
        if now is None or now.state not in DOUBTED:
            continue
        enough = now.id in searched_enough or now.state in DECIDABLE
        view = views[intent.snapshot, intent.lane]
        before, verdict = ledger.concluded.get(now.id), judge(now, view, exclusive=policy.exclusive)
        ledger.concluded[now.id] = verdict
        row = _step(now, verdict) if is_proved(verdict, before, searched_enough=enough) else now
        if row.key is not None:
            for one in views.values():
                one.settle(row.id, row.key)
        if row != now:
            yield row


def _step(intent: Intent, verdict: Verdict) -> Intent:
    if verdict.key is not None:
        return after(intent, Event.FOUND, key=verdict.key, evidence=verdict.evidence)
    event = Event.MISSING if verdict.state is State.ABSENT else Event.UNCLEAR
    # A list that could not be read does not remove candidates.
    return after(intent, event, candidates=verdict.candidates or intent.candidates)


def recover(ledger: Ledger, rows: Iterable[Intent]) -> Machine[list[Intent]]:
    """Take over the unsettled rows of another process, and return them as they are now.

    The duty of each says how it goes on. What cannot be sent, since its payload was not kept, is
    among them, given up.

    Raises:
        JournalError: The journal cannot be written.
    """
    unsettled = [row for row in rows if not row.is_settled]
    now = [_examined(row) for row in unsettled]
    changed = tuple(new for old, new in zip(unsettled, now, strict=True) if new is not old)
    if changed:
        yield Commit(changed)
    for row in now:
        ledger.note(row)
    return now


def _examined(row: Intent) -> Intent:
    if row.state is State.QUEUED and row.payload is None:
        return given_up(row, error="not sent, and the journal keeps no payloads: submit it again")
    cut_off = "the process ended while this push was being sent"
    return after(row, Event.RESTARTED, **({"error": cut_off} if row.state is State.SENDING else {}))


def may_resend(ledger: Ledger, intent_id: str, *, transmissions: int) -> bool:
    """Whether an intent in doubt may be sent again without asking the caller about this one.

    *transmissions*: Maximum for one record, so that what swallows requests does not get them
    for ever.
    """
    intent = ledger.get(intent_id)
    if intent is None or not is_missing(intent):
        return False
    if ledger.concluded.get(intent_id) != Verdict(State.ABSENT):  # an earlier run's word is old
        return False
    sent, before = 1, ledger.get(intent.parent or "")
    while before is not None:  # a refused parent is settled, and so not in the ledger
        sent, before = sent + 1, ledger.get(before.parent or "")
    return sent < transmissions


def resend(
    ledger: Ledger, intent_id: str, *, new_id: str, idempotency_key: str | None = None
) -> Machine[Intent]:
    """Record the caller's decision to send an intent again; return the new one to `transmit`.

    Both rows are written, or neither. The old intent stays a rival: its push may exist after all.

    Raises:
        ConfigurationError: The intent is not in doubt, or its payload was not kept.
        JournalError: The decision was not recorded and does not count.
    """
    intent = _undecided(ledger, intent_id)
    if intent.payload is None:
        raise ConfigurationError(f"Intent {intent_id} has no payload on record: submit it anew.")
    decided = after(intent, Event.RESENT, decision="resend")
    again = structs.replace(
        intent,
        id=new_id,
        idempotency_key=idempotency_key if intent.method == CREATES else None,
        parent=intent.id,
        state=State.QUEUED,
        attempts=0,
        candidates=(),
        http_status=None,
        error=None,
    )
    yield from _decide(ledger, intent, decided, again)
    ledger.note(again)
    return again


def abandon(ledger: Ledger, intent_id: str) -> Machine[Intent]:
    """Record the caller's decision to give up an intent in doubt. Raises as `resend` does."""
    intent = _undecided(ledger, intent_id)
    decided = after(intent, Event.ABANDONED, decision="abandon")
    yield from _decide(ledger, intent, decided)
    return decided


def bind(ledger: Ledger, intent_id: str, key: str) -> Machine[Intent]:
    """Record the caller's word that *key* is the push of this intent, which is then polled.

    Raises:
        ConfigurationError: The intent is not in doubt.
        KeyClaimed: The push belongs to another intent.
        JournalError: The decision was not recorded and does not count.
    """
    intent = _undecided(ledger, intent_id)
    if ledger.owner(key) is not None:
        raise KeyClaimed(f"Push {key} belongs to intent {ledger.owner(key)} already.")
    decided = after(intent, Event.BOUND, decision="bind", key=key, evidence=Evidence.CALLER)
    yield from _decide(ledger, intent, decided)
    return decided


def _decide(ledger: Ledger, intent: Intent, decided: Intent, *others: Intent) -> Machine[None]:
    """Record a decision; meanwhile no other decision or listing can settle the intent."""
    ledger.note(decided)
    try:
        yield from write(ledger, decided, *others)
    except JournalError:
        ledger.note(intent)
        raise


def _undecided(ledger: Ledger, intent_id: str) -> Intent:
    intent = ledger.get(intent_id)
    if intent is None or intent.state not in DECIDABLE:
        state = "settled or unknown" if intent is None else _NOT_YET.get(intent.state, intent.state)
        raise ConfigurationError(
            f"Intent {intent_id} is {state}: only what is ABSENT or UNRESOLVED can be decided."
        )
    return intent
