"""Sending: snapshot, wait for a turn, commit, send once, commit, poll. For doubts: ``reconcile``.

Every change of state enters the ledger before it is written to disk, so that concurrent machines
see each other as rivals::

    take_snapshot -> transmit ----> ACKED ............> settle (when a poll says final)
                        |                                  ^
                        '-> AMBIGUOUS -> reconcile ------- RESOLVED, LATE
                                             |             ^
                                 ABSENT, UNRESOLVED -> search_again (any later listing)
                                             '-------> decide
"""

from collections.abc import Callable, Iterable, Mapping
from itertools import count

from msgspec import structs

from integration_sdk._http.statuses import OFFLINE, Scope, scope_of
from integration_sdk._push.effects import (
    Commit,
    FindOwners,
    Ledger,
    ListPushes,
    Machine,
    Policy,
    Send,
    Sleep,
)
from integration_sdk._push.evidence import ListedPushes, Operation
from integration_sdk._push.table import Event, IllegalTransition, SendResult, after, classify
from integration_sdk._store.row import Evidence, Intent, KeyClaimed, Snapshot, State
from integration_sdk.errors import JournalError


def take_snapshot(company_id: str, *, newest: int | None = None) -> Machine[Snapshot | None]:
    """List a company's pushes before a batch is sent; return None if the listing fails.

    A snapshot serves all pushes of the company that are sent after it; the younger it is, the
    fewer pushes of others become candidates. *newest*: Maximum number of keys to remember.
    """
    listing = yield ListPushes(company_id)
    return listing.snapshot(newest) if isinstance(listing, ListedPushes) else None


def transmit(
    ledger: Ledger,
    intent: Intent,
    snapshot: Snapshot | None,
    *,
    policy: Policy,
    chance: Callable[[], float],
    new_key: Callable[[], str],
    search: Callable[[str], Machine[bool]],
) -> Machine[Intent]:
    """Send an intent, repeating that only if it is safe, and return the resulting intent.

    The result is NOT_SENT, REJECTED, ACKED or AMBIGUOUS (then `reconcile` the company). A SENDING
    row of its own is on disk right before each transmission begins, so an intent without one
    never left and may be submitted again.

    *search* looks for a company's pushes in doubt, and returns whether the service knows keys: a
    push that the list shows is not sent again, nor any where keys mean nothing.

    *new_key* makes an idempotency key. An intent keeps its key until a 503 refuses it: under the
    same key the service would only repeat that answer.

    Raises:
        IllegalTransition: The intent may have been sent already, by an earlier process.
    """
    if intent.state is State.AMBIGUOUS:
        raise IllegalTransition(f"intent {intent.id} may have been sent; it is reconciled instead")
    intent = structs.replace(intent, snapshot=snapshot)
    began: float | None = None
    for attempt in count():
        more = attempt + 1 < policy.retry.attempts
        rekeyed = _rekeyed(intent, new_key)
        intent, result = yield from _attempt(ledger, rekeyed, policy, more=more)
        began = result.at if began is None else began
        if not (more and _may_go_again(intent, policy) and policy.waits_for(result)):
            return intent
        ledger.to_repeat.add(intent.id)
        try:
            now = yield Sleep(_wait(attempt, result, policy, chance))
            if intent.state is State.AMBIGUOUS and now is not None:
                company = intent.lane.company_id
                now = now if (yield from search(company)) else None
        finally:
            ledger.to_repeat.discard(intent.id)
        if ledger.get(intent.id) is not intent:  # a listing has settled it
            return ledger.get(intent.id) or intent
        if not isinstance(now, float) or _too_old(intent, began, now, policy):
            break
    return (yield from withdraw(ledger, intent))


def _rekeyed(intent: Intent, new_key: Callable[[], str]) -> Intent:
    refused = intent.state is State.QUEUED and intent.http_status == OFFLINE
    if not refused or intent.idempotency_key is None:
        return intent
    return structs.replace(intent, idempotency_key=new_key())


def _attempt(
    ledger: Ledger, intent: Intent, policy: Policy, *, more: bool
) -> Machine[tuple[Intent, SendResult]]:
    tries = intent.attempts + 1
    # The rest is of the answer before.
    sending = after(intent, Event.SENT, attempts=tries, http_status=None, error=None)
    ledger.note(sending)  # a rival from here on, even while it waits for its turn
    ledger.unrecorded.pop(intent.id, None)  # now out of date
    result = yield Send(sending)
    if not isinstance(result, SendResult):
        raise TypeError(f"the driver must report a SendResult to Send, not {result!r}")
    replay = intent.state is State.AMBIGUOUS
    proved = _proved(ledger, sending, result, policy, replay=replay)
    if more and policy.waits_for(result) and _is_for_now(proved, result):
        proved = Event.LATER
    return (yield from _conclude(ledger, sending, result, proved)), result


def _proved(
    ledger: Ledger, sending: Intent, result: SendResult, policy: Policy, *, replay: bool
) -> Event:
    return classify(
        result,
        key_is_known=_is_known(ledger, sending, result.key),
        replay=replay,
        refuses_with_503=policy.refuses_with_503,
    )


def _is_for_now(proved: Event, result: SendResult) -> bool:
    refused_for_now = proved is Event.REFUSED and scope_of(result.status) is Scope.LOAD
    return proved is Event.NEVER_LEFT or refused_for_now


def _conclude(
    ledger: Ledger, sending: Intent, result: SendResult, proved: Event
) -> Machine[Intent]:
    outcome = _outcome(sending, proved, result)
    try:
        yield from record(ledger, outcome)
    except KeyClaimed:
        outcome = _outcome(sending, Event.LOST, result)
        yield from record(ledger, outcome)
    return outcome


def _is_known(ledger: Ledger, sending: Intent, key: str | None) -> bool:
    """Whether a key was there before we sent, or belongs to another intent."""
    if key is None:
        return False
    listed = sending.snapshot is not None and key in sending.snapshot.keys
    return listed or ledger.owner(key) not in (None, sending.id)


def _outcome(sending: Intent, proved: Event, result: SendResult) -> Intent:
    error = result.cause or (result.body or {}).get("error")
    said = {"http_status": result.status, "error": None if error is None else str(error)}
    if proved is Event.ANSWERED:
        said |= {"key": result.key, "evidence": Evidence.OWN_ANSWER}
    return after(sending, proved, **said)


def record(ledger: Ledger, *rows: Intent) -> Machine[None]:
    """Note outcomes in the ledger, then write them; a failing disk does not undo them.

    Raises:
        KeyClaimed: Another intent has the key, or may have it; the ledger is unchanged.
    """
    before = {row.id: ledger.get(row.id) for row in rows}
    for row in rows:
        ledger.note(row)
    try:
        yield from write(ledger, *rows)
    except KeyClaimed:
        _restore(ledger, before.values())
        raise
    except JournalError as failure:
        if (yield from _may_be_claimed(_new_keys(rows, before))):
            _restore(ledger, before.values())
            raise KeyClaimed(str(failure)) from failure
        ledger.unrecorded.update((row.id, row) for row in rows)
        # On disk it is still open, so the ledger must not forget what it claims.
        _restore(ledger, [before[row.id] for row in rows if row.is_settled])


def _new_keys(rows: Iterable[Intent], before: Mapping[str, Intent | None]) -> frozenset[str]:
    had = {row.id: row.key for row in before.values() if row is not None}
    return frozenset(row.key for row in rows if row.key and had.get(row.id) != row.key)


def _may_be_claimed(keys: frozenset[str]) -> Machine[bool]:
    """Whether a settled intent may have one of the keys, which the failed commit did not tell."""
    if not keys:
        return False
    try:
        owned = yield FindOwners(keys)
    except JournalError:
        return True
    return bool(owned)


def _restore(ledger: Ledger, rows: Iterable[Intent | None]) -> None:
    for row in rows:
        if row is not None:
            ledger.note(row)


def write(ledger: Ledger, *rows: Intent) -> Machine[None]:
    """Commit rows, and drop their earlier unrecorded outcomes.

    Raises:
        JournalError: The rows were not written and are still unrecorded.
    """
    before = {row.id: ledger.unrecorded.pop(row.id, None) for row in rows}
    try:
        yield Commit(rows)
    except JournalError:
        ledger.unrecorded.update((key, row) for key, row in before.items() if row)
        raise


def catch_up(ledger: Ledger) -> Machine[None]:
    """Write the outcomes that could not be written before.

    Raises:
        JournalError: They still cannot be written.
    """
    for row in list(ledger.unrecorded.values()):
        if ledger.unrecorded.pop(row.id, None) is not row:
            continue  # it has moved on meanwhile
        now = ledger.get(row.id)
        try:
            yield Commit((row,))
        except JournalError:
            if ledger.get(row.id) is now:
                ledger.unrecorded[row.id] = row
            raise
        if row.is_settled and ledger.get(row.id) is now:
            ledger.note(row)


def _may_go_again(intent: Intent, policy: Policy) -> bool:
    if intent.state is State.AMBIGUOUS:
        return policy.replays and intent.idempotency_key is not None
    return intent.state is State.QUEUED


def _wait(attempt: int, result: SendResult, policy: Policy, chance: Callable[[], float]) -> float:
    def jitter(limit: float) -> float:
        return chance() * limit

    floor = result.retry_after or 0.0
    return policy.retry.pause(attempt, jitter, throttled=True, floor=floor)


def _too_old(intent: Intent, began: float, now: float, policy: Policy) -> bool:
    """Whether the service may have forgotten the idempotency key of an intent in doubt."""
    return intent.state is State.AMBIGUOUS and now - began > policy.replay_window


def break_off(ledger: Ledger, intent: Intent) -> Machine[Intent]:
    """Record and return the state of an intent whose driver failed half-way.

    It is AMBIGUOUS unless it certainly did not leave (NOT_SENT) or was refused (REJECTED).
    """
    intent = ledger.get(intent.id) or after(intent, Event.SENT)
    if intent.state is State.SENDING:
        intent = after(intent, Event.LOST, error="sending it broke off")
        yield from record(ledger, intent)
    return (yield from withdraw(ledger, intent))


def withdraw(ledger: Ledger, intent: Intent) -> Machine[Intent]:
    """Stop trying to send an intent, and return it; no later process will send it either."""
    now = ledger.get(intent.id)
    if now is None or now.state is not State.QUEUED:  # unknown: nothing of it is on record
        return intent
    refused = given_up(now)
    yield from record(ledger, refused)
    return refused


def given_up(intent: Intent, **changes: object) -> Intent:
    """Return the row of a QUEUED intent that nobody will send; its last refusal stands."""
    event = Event.NEVER_LEFT if intent.http_status is None else Event.REFUSED
    return after(intent, event, **changes)


def replace(ledger: Ledger, before: Intent, intent: Intent) -> Machine[Intent]:
    """Record *intent* in place of *before*, which was refused, never left, or ended.

    It then has the reference. Both rows are written, or neither.

    Raises:
        JournalError: The rows were not written; *intent* must not be sent.
    """
    done = _superseded(before)
    again = structs.replace(intent, parent=before.id)
    yield from write(ledger, done, again)
    ledger.note(done)
    ledger.note(again)
    return again


def give_back(ledger: Ledger, before: Intent) -> Machine[None]:
    """Record the caller's decision that the reference of *before*, which ended, is free.

    Raises:
        JournalError: The decision was not recorded and does not count.
    """
    yield from write(ledger, _superseded(before))


def _superseded(before: Intent) -> Intent:
    if before.state is State.QUEUED:
        return given_up(before, decision="resend")
    return after(before, Event.RESENT, decision="resend")


def settle(
    ledger: Ledger, polled: Iterable[tuple[str, Operation, str | None]]
) -> Machine[list[Intent]]:
    """Record the final states among polled pushes, in one commit.

    *polled*: For each push, its intent's id, the operation, and why it failed, if it did.

    Returns:
        The intents that are now FINAL.
    """
    finals = [
        after(intent, Event.ENDED, status=str(operation.status), error=error)
        for intent_id, operation, error in polled
        if (intent := ledger.get(intent_id)) is not None
        and operation.is_final
        and intent.key == operation.push_operation_key
    ]
    if finals:
        yield from record(ledger, *finals)
    return finals
