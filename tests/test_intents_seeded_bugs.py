"""The referee is refereed: each bug that could be made is made, and the simulator must see it.

A bug is a patch of the rules, the journal or the driver. The same histories run twice: with
the bug some history must show the violation named, without it none may.
"""

from collections.abc import Callable, Collection, Sequence
from typing import Any

import pytest
from integration_sdk._push.effects import Ledger, Machine

from integration_sdk._http.requests import Phase
from integration_sdk._push import (
    effects,
    evidence,
    protocol,
    reconcile,
    table,
)
from integration_sdk._push.agreement import Echoes, Said
from integration_sdk._push.evidence import ListedPushes, Operation, Verdict
from integration_sdk._push.table import Event, SendResult
from integration_sdk._store.row import Intent, Snapshot, State
from tests import protocol_simulator as simulator
from tests.memory_journal import MemoryJournal
from tests.seeded_bugs import HISTORIES, Patch, assert_caught


def misread(patch: Patch, condition: Callable[[SendResult], bool], event: Event) -> None:
    """Let the table say *event* for some answers."""
    right = table.classify

    def wrong(result: SendResult, **facts: bool) -> Event:
        return event if condition(result) else right(result, **facts)

    patch.setattr(protocol, "classify", wrong)


def retried(*statuses: int) -> Callable[[Patch], None]:
    return lambda patch: misread(patch, lambda one: one.status in statuses, Event.NEVER_LEFT)


# What an answer proves


def test_retry_on_500_is_caught() -> None:
    """A 500 taken for "not done" is sent again although it was done."""
    assert_caught("double send", retried(500))


def test_retry_on_gateway_errors_is_caught() -> None:
    """A 502 or 504 is the gateway's word, not the service's."""
    assert_caught("double send", retried(502, 504))


def test_retry_on_408_is_caught() -> None:
    """A 408 may follow a request that was carried out."""
    assert_caught("double send", retried(408))


def test_followed_redirect_is_caught() -> None:
    """A redirect followed sends the record a second time."""
    assert_caught("double send", retried(302, 307))


def test_retry_of_a_lost_answer_is_caught() -> None:
    """A disconnect taken for a failure to connect is sent again."""

    def bug(patch: Patch) -> None:
        misread(patch, lambda one: one.phase is Phase.MAY_HAVE_LEFT, Event.NEVER_LEFT)

    assert_caught("double send", bug)


def test_retry_of_a_truncated_success_is_caught() -> None:
    """A 200 that cannot be read was still a 200."""

    def bug(patch: Patch) -> None:
        misread(patch, lambda one: one.status == 200 and one.body is None, Event.NEVER_LEFT)

    assert_caught("double send", bug)


def test_believing_a_proxys_refusal_is_caught() -> None:
    """A 4xx without the documented error body is a proxy's, and proves nothing."""
    assert_caught(
        "silent loss", lambda patch: patch.setattr(table, "is_error_body", lambda body: True)
    )


def test_retry_after_a_proxys_429_is_caught() -> None:
    """A 429 without the documented error body is not sent again."""
    assert_caught(
        "double send", lambda patch: patch.setattr(table, "is_error_body", lambda body: True)
    )


def test_success_without_a_key_taken_for_refusal_is_caught() -> None:
    """A 200 without a key may have made a push."""

    def bug(patch: Patch) -> None:
        misread(patch, lambda one: one.status == 200 and not one.key, Event.REFUSED)

    assert_caught("silent loss", bug)


def test_claim_check_off_is_caught() -> None:
    """A key that was listed before we sent cannot be ours, whatever the answer says."""
    assert_caught(
        "wrong link", lambda patch: patch.setattr(protocol, "_is_known", lambda *facts: False)
    )


def breaking_off(state: State | None) -> Callable[[Patch], None]:
    """Let a driver that fails leave its intent as *state*, or as it stands."""

    def wrong(ledger: Ledger, intent: Intent) -> Machine[Intent]:
        now = ledger.get(intent.id) or intent
        if state is not None and now.state is State.SENDING:
            now = now.to(state)
            yield from protocol.record(ledger, now)
        return now

    return lambda patch: patch.setattr(protocol, "break_off", wrong)


def test_a_broken_driver_taken_for_one_that_sent_nothing_is_caught() -> None:
    """What it heard is lost, not what it sent."""
    assert_caught("silent loss", breaking_off(State.NOT_SENT), breaks=0.2)


def test_an_intent_left_behind_by_a_broken_driver_is_caught() -> None:
    """Without a file no later run searches for what is SENDING."""
    assert_caught("unexamined", breaking_off(None), breaks=0.2, fileless=True)


# What a listing proves


def without_rivals(patch: Patch) -> None:
    patch.setattr(evidence.View, "is_contested", lambda self, push: False)
    patch.setattr(evidence.View, "has_rivals", lambda self, intent: False)


def test_no_rivals_rule_is_caught() -> None:
    """Two pushes with equal payloads, one arrived: nobody can say whose it is."""
    assert_caught("wrong link", without_rivals, twins=1.0, echo="full")


def test_no_rivals_rule_in_an_exclusive_lane_is_caught() -> None:
    """The only new push may be another intent's, without any echo to tell."""
    assert_caught("wrong link", without_rivals, exclusive=True, echo="none")


def test_forgetting_decided_rivals_is_caught() -> None:
    """What the caller gave up may still turn up, and must not be taken for another's."""

    def bug(patch: Patch) -> None:
        patch.setattr(table, "_MAY_OWN", table._MAY_OWN - {State.DECIDED})

    assert_caught("wrong link", bug, twins=1.0, trouble=0.9, lag=60.0)


def test_forgetting_absent_rivals_is_caught() -> None:
    """Absent is evidence, not proof: it stays a rival."""

    def bug(patch: Patch) -> None:
        patch.setattr(table, "_MAY_OWN", table._MAY_OWN - {State.ABSENT, State.UNRESOLVED})

    assert_caught("wrong link", bug, twins=1.0, trouble=0.9, lag=60.0)


def test_only_one_new_without_exclusive_is_caught() -> None:
    """In a shared lane the only new push may be a stranger's."""

    def bug(patch: Patch) -> None:
        right = evidence.judge
        patch.setattr(
            reconcile,
            "judge",
            lambda *facts, **named: right(*facts, **{**named, "exclusive": True}),
        )

    assert_caught("wrong link", bug, strangers=5)


def test_no_snapshot_is_caught() -> None:
    """What was there before we sent cannot be ours."""

    def everything(snapshot: Snapshot | None, listing: ListedPushes) -> Sequence[Operation]:
        return listing.operations

    def bug(patch: Patch) -> None:
        patch.setattr(reconcile, "new_since", everything)
        patch.setattr(reconcile, "not_newer", lambda *facts: frozenset())

    assert_caught(
        "wrong link",
        bug,
        exclusive=True,
    )


def test_evidence_without_a_snapshot_is_caught() -> None:
    """Where the list was not to be had before the send, nothing can be told to be new."""

    def bug(patch: Patch) -> None:
        patch.setattr(reconcile, "reaches_back", lambda *facts: True)
        patch.setattr(reconcile, "not_newer", lambda *facts: frozenset())

    assert_caught(
        "wrong link",
        bug,
        exclusive=True,
        unlisted=0.5,
    )


def test_mixed_lanes_are_caught() -> None:
    """A push through another connection or of another type is not ours."""
    assert_caught(
        "wrong link",
        lambda patch: patch.setattr(reconcile, "in_lane", lambda *facts: True),
        exclusive=True,
        strangers=5,
    )


def test_silence_taken_for_agreement_is_caught() -> None:
    """A push that echoes nothing does not agree."""

    def bug(patch: Patch) -> None:
        right = Echoes.compare

        def wrong(self: Echoes, intent: Intent) -> Said:
            agreeing, silent = right(self, intent)
            return Said(agreeing | silent, 0)

        patch.setattr(Echoes, "compare", wrong)

    assert_caught("wrong link", bug, strangers=5)


def test_agreement_on_one_leaf_is_caught() -> None:
    """Two records with the same amount are two records."""

    def bug(patch: Patch) -> None:
        right = Echoes._compare_values

        def wrong(self: Echoes, sent: Any) -> Said:
            return right(self, sent and {"amount": sent["amount"]})

        patch.setattr(Echoes, "_compare_values", wrong)

    assert_caught("wrong link", bug, strangers=5, natural=False)


def test_a_rewritten_record_taken_for_another_is_caught() -> None:
    """Where no natural key is declared, another value does not make it somebody else's."""

    def bug(patch: Patch) -> None:
        right = evidence.judge

        def wrong(intent: Intent, view: evidence.View, **facts: bool) -> Verdict:
            agreeing, silent = view.said(intent)
            found = right(intent, view, **facts)
            unlike = found.key is None and not agreeing | silent
            return Verdict(State.ABSENT) if unlike else found

        patch.setattr(reconcile, "judge", wrong)

    assert_caught("silent loss", bug, echo="rewritten", natural=False)


def test_no_late_sweep_is_caught() -> None:
    """What a late request or a lagging list brings after the verdict must be found."""
    assert_caught(
        "silent loss", lambda patch: patch.setattr(effects, "DOUBTED", {State.AMBIGUOUS}), lag=60.0
    )


def test_claimed_keys_offered_again_are_caught() -> None:
    """A push that settled another intent is no candidate, though the lagging list shows it late."""

    def bug(patch: Patch) -> None:
        async def nobody(self: MemoryJournal, keys: Collection[str]) -> dict[str, str]:
            return {}

        patch.setattr(MemoryJournal, "owners", nobody)
        patch.setattr(MemoryJournal, "_check", lambda self, rows: None)

    assert_caught("wrong link", bug, twins=1.0, lag=60.0, crash=0.0)


def test_absence_of_what_is_to_be_sent_again_is_caught() -> None:
    """A search that ends during the pause before a replay leaves a push nobody sends or seeks."""

    def bug(patch: Patch) -> None:
        def searched(ledger: Ledger, company_id: str) -> list[Intent]:
            return [one for one in ledger.doubted(company_id) if one.state is State.AMBIGUOUS]

        patch.setattr(Ledger, "searched", searched)

    assert_caught("given up too early", bug)


def test_a_push_left_out_of_the_snapshot_taken_for_new_is_caught() -> None:
    """What one listing lacks may be old: place and time of the others tell."""

    def bug(patch: Patch) -> None:
        patch.setattr(reconcile, "not_newer", lambda *facts: frozenset())

    assert_caught("wrong link", bug, omits=0.05, echo="none", exclusive=True)


def test_the_newest_push_left_out_of_the_snapshot_is_caught() -> None:
    """Nothing in the list tells that it is old, but the service's time of the snapshot does."""

    def bug(patch: Patch) -> None:
        patch.setattr(
            evidence,
            "_is_old",
            lambda requested, latest, _: latest is not None and requested <= latest,
        )

    assert_caught("wrong link", bug, omits=0.1, echo="none", exclusive=True)


def test_a_list_that_contradicts_itself_believed_is_caught() -> None:
    """A list in disorder, or with a push in it twice, proves nothing by what it lacks."""

    def bug(patch: Patch) -> None:
        patch.setattr(ListedPushes, "is_consistent", True)
        patch.setattr(reconcile, "not_newer", lambda *facts: frozenset())

    assert_caught("wrong link", bug, shuffles=0.5, exclusive=True)


@pytest.mark.parametrize(
    "weather",
    [
        {"omits": 0.1},
        {"omits": 0.1, "exclusive": True},
        {"repeats": 0.05},
        {"shuffles": 0.3},
    ],
)
def test_lists_that_are_not_as_documented_break_no_promise(weather: dict[str, Any]) -> None:
    """Rows left out, twice or in disorder leave pushes in doubt: none is linked to another's."""
    assert simulator.simulate(range(HISTORIES), **weather).violations == []
