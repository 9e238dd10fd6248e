"""Where rows go on after a crash, what can be decided, and how a doubt is searched for."""

from collections.abc import Collection
from typing import Any

import pytest
from integration_sdk._push.effects import Commit, Ledger, ListPushes, Policy, Sleep
from msgspec import structs

from integration_sdk._push import reconcile
from integration_sdk._push.evidence import ListedPushes
from integration_sdk._push.table import DECIDABLE, DUTY, Duty
from integration_sdk._store.row import Intent, KeyClaimed, Snapshot, State
from integration_sdk.errors import ConfigurationError, JournalError
from tests.test_intents import GIVE_UP, LANE, drive, intent, operation

# Recovery and decisions


def recovered(*rows: Intent) -> tuple[tuple[Intent, ...], dict[str, Duty]]:
    """What recovery commits, and how it says each row goes on."""
    machine = reconcile.recover(Ledger(), rows)
    written: tuple[Intent, ...] = ()
    try:
        effect = next(machine)
        assert isinstance(effect, Commit)
        written = effect.rows
        machine.send(None)
    except StopIteration as stop:
        return written, {row.id: DUTY[row.state] for row in stop.value}
    raise AssertionError("recovery wants one commit at most")


def test_recovery_sends_each_row_where_it_belongs() -> None:
    """Never left: send; may have left: reconcile; has a key: poll; in doubt: surface."""
    rows = {
        state: Intent(id=state, lane=LANE, payload=b"1", payload_hash="x", state=state)
        for state in (State.QUEUED, State.SENDING, State.AMBIGUOUS, State.ABSENT)
    }
    acked = Intent(id="acked", lane=LANE, state=State.ACKED, key="key-1")

    written, found = recovered(*rows.values(), acked)

    assert [(row.id, row.state) for row in written] == [("SENDING", State.AMBIGUOUS)]
    assert found == {
        "QUEUED": Duty.SEND,
        "SENDING": Duty.SEARCH,
        "AMBIGUOUS": Duty.SEARCH,
        "ABSENT": Duty.DECIDE,
        "acked": Duty.POLL,
    }


def test_a_throttled_row_is_sent_again_after_a_crash_and_a_refused_one_is_not() -> None:
    """Recovery goes on where the process was about to try again."""
    throttled = Intent(id="a", lane=LANE, payload=b"1", state=State.QUEUED, http_status=429)
    refused = Intent(id="b", lane=LANE, payload=b"1", state=State.REJECTED)

    _, found = recovered(throttled, refused)

    assert found == {"a": Duty.SEND}


def test_what_cannot_be_sent_for_want_of_its_payload_is_said() -> None:
    """A journal without payloads gives up what never left, and says so."""
    bare = Intent(id="a", lane=LANE, payload=None, payload_hash="x")

    written, found = recovered(bare)

    assert found == {"a": Duty.REST}
    assert written[0].state is State.NOT_SENT
    assert "submit it again" in str(written[0].error)


@pytest.mark.parametrize("state", [one for one in State if one not in DECIDABLE])
def test_only_what_is_in_doubt_can_be_decided(state: State) -> None:
    """There is nothing to decide about a push whose fate is known or still searched for."""
    ledger = Ledger()
    ledger.note(Intent(id="i", lane=LANE, state=state))

    for machine in (
        reconcile.abandon(ledger, "i"),
        reconcile.bind(ledger, "i", "key"),
        reconcile.resend(ledger, "i", new_id="j"),
    ):
        with pytest.raises(ConfigurationError, match="can be decided"):
            next(machine)


def test_a_decision_to_resend_is_one_commit_of_two_rows() -> None:
    """The old row and the new one are on disk together, and the old one stays a rival."""
    ledger = Ledger()
    doubt = Intent(id="i", lane=LANE, payload=b"1", state=State.ABSENT, reference="r", attempts=1)
    ledger.note(doubt)

    asked, again = drive(reconcile.resend(ledger, "i", new_id="j"), None)

    assert isinstance(asked[0], Commit)
    assert [row.id for row in asked[0].rows] == ["i", "j"]
    assert (again.parent, again.reference, again.attempts) == ("i", "r", 0)
    assert list(ledger.contenders(LANE)) == ["i"]


def test_a_push_without_its_payload_cannot_be_sent_again() -> None:
    """Where the journal keeps no payloads, a resend is a new push of the caller's."""
    ledger = Ledger()
    ledger.note(Intent(id="i", lane=LANE, payload_hash="x", state=State.ABSENT))

    with pytest.raises(ConfigurationError, match="submit it anew"):
        next(reconcile.resend(ledger, "i", new_id="j"))


def test_a_claimed_key_cannot_be_bound() -> None:
    """A push that is known here to be another's is refused before the disk is asked."""
    ledger = Ledger()
    ledger.note(Intent(id="i", lane=LANE, state=State.ABSENT))
    ledger.note(Intent(id="j", lane=LANE, state=State.ACKED, key="key-1"))

    with pytest.raises(KeyClaimed, match="belongs to intent j"):
        next(reconcile.bind(ledger, "i", "key-1"))


def test_a_decision_that_is_not_recorded_is_not_made() -> None:
    """The caller hears of it, and the push is in doubt as before."""
    ledger = Ledger()
    ledger.note(Intent(id="i", lane=LANE, state=State.ABSENT))
    machine = reconcile.abandon(ledger, "i")
    next(machine)

    with pytest.raises(JournalError):
        machine.throw(JournalError("full"))
    assert [row.state for row in ledger.doubted()] == [State.ABSENT]


# Searching for what is in doubt


def ambiguous(ledger: Ledger, snapshot: Collection[str] = ()) -> Intent:
    doubt = intent(natural_key="invoiceNumber")
    row = doubt.to(State.SENDING, snapshot=Snapshot(frozenset(snapshot))).to(State.AMBIGUOUS)
    ledger.note(row)
    return row


def test_a_listing_settles_a_doubt_in_the_first_search() -> None:
    """Sleep, list, ask for owners, commit; then nothing is left to search for."""
    ledger = Ledger()
    ambiguous(ledger, ["old"])
    ours = operation("new", data={"invoiceNumber": "INV-1", "id": "17"})
    listing = ListedPushes([ours, operation("old")], whole=True)

    asked, _ = drive(
        reconcile.reconcile(ledger, "company", policy=Policy()), 0.5, listing, set(), None
    )

    assert [type(one).__name__ for one in asked] == ["Sleep", "ListPushes", "FindOwners", "Commit"]
    row = ledger.get("i")
    assert row is not None
    assert (row.state, row.key, row.evidence) == (State.RESOLVED, "new", "E2")


def test_a_listing_serves_intents_with_different_snapshots() -> None:
    """A push that is old to one intent may be new to another: its details are asked for."""
    ledger = Ledger()
    earlier = ambiguous(ledger, ["a"])
    ledger.note(structs.replace(earlier, id="later", snapshot=Snapshot(frozenset({"a", "b"}))))

    [asked], _ = drive(reconcile.search_again(ledger, "company", policy=Policy()))

    assert asked == ListPushes("company", frozenset({"a", "b"}), old=frozenset({"a"}))


def test_a_doubt_is_surfaced_when_it_was_searched_for_long_enough() -> None:
    """Searches are spaced, and the one after the patience has passed decides."""
    ledger = Ledger()
    ambiguous(ledger)
    machine = reconcile.reconcile(ledger, "company", policy=Policy(search_patience=30.0))
    report: Any = None
    waited = 0.0
    effect = next(machine)
    while not isinstance(effect, Commit):
        if isinstance(effect, Sleep):
            waited += effect.seconds
        report = (
            ListedPushes((), whole=True) if isinstance(effect, ListPushes) else frozenset[str]()
        )
        effect = machine.send(1.0 if isinstance(effect, Sleep) else report)

    assert effect.rows[0].state is State.ABSENT
    assert 30.0 <= waited <= 45.0


def test_an_unreadable_journal_judges_nothing() -> None:
    """Without knowing who owns what, a search settles nothing, and the next one is waited for."""
    ledger = Ledger()
    row = ambiguous(ledger)
    machine = reconcile.reconcile(ledger, "company", policy=Policy())
    listing = ListedPushes([operation("new", data={"invoiceNumber": "INV-1"})], whole=True)

    asked, _ = drive(machine, 0.5, listing, JournalError("unreadable"), GIVE_UP)

    assert [type(one).__name__ for one in asked] == ["Sleep", "ListPushes", "FindOwners", "Sleep"]
    assert ledger.doubted() == [row]


def test_closing_leaves_a_doubt_for_the_next_process() -> None:
    """A driver that gives up sleeping ends the search; the row stays AMBIGUOUS on disk."""
    ledger = Ledger()
    row = ambiguous(ledger)

    asked, _ = drive(reconcile.reconcile(ledger, "company", policy=Policy()), GIVE_UP)

    assert [type(one) for one in asked] == [Sleep]
    assert ledger.doubted() == [row]
