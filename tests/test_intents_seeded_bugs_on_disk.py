"""Seeded bugs in what is sent again and what is on disk; see ``test_intents_seeded_bugs``."""

from collections.abc import Callable
from typing import Any

import pytest
from integration_sdk._push.effects import Commit, Ledger, Machine
from msgspec import structs

from integration_sdk._push import protocol, reconcile, table
from integration_sdk._store import KeyJournal
from integration_sdk._store.row import Intent, State
from integration_sdk.errors import JournalError
from tests import memory_journal as memory
from tests import protocol_history as history
from tests import protocol_simulator as simulator
from tests.memory_journal import MemoryJournal
from tests.protocol_world import Service
from tests.seeded_bugs import Patch, assert_caught

# What is sent again


def test_replay_without_idempotency_is_caught() -> None:
    """Without an idempotency key a doubt is never asked again."""

    def bug(patch: Patch) -> None:
        patch.setattr(
            protocol,
            "_may_go_again",
            lambda intent, policy: intent.state in {State.QUEUED, State.AMBIGUOUS},
        )

    assert_caught("double send", bug, idempotent=False)


def test_new_idempotency_key_per_transmission_is_caught() -> None:
    """The key is the intent's, not the transmission's."""

    def bug(patch: Patch) -> None:
        right = Service.receive

        def wrong(self: Service, row: Intent) -> Any:
            return right(self, structs.replace(row, idempotency_key=f"{row.id} {row.attempts}"))

        patch.setattr(Service, "receive", wrong)

    assert_caught("double send", bug, idempotent=True)


def test_believing_the_refusal_of_a_replay_is_caught() -> None:
    """A replay that is refused says nothing about the first transmission."""

    def bug(patch: Patch) -> None:
        right = table.classify
        patch.setattr(
            protocol,
            "classify",
            lambda answer, **facts: right(answer, **{**facts, "replay": False}),
        )

    assert_caught("silent loss", bug, idempotent=True)


def test_resending_what_seems_absent_is_caught() -> None:
    """Absent is never sent again without the caller's word."""

    def bug(patch: Patch) -> None:
        right = reconcile._examined
        patch.setattr(
            reconcile,
            "_examined",
            lambda row: (
                structs.replace(row, state=State.QUEUED, version=row.version + 1)
                if row.state is State.ABSENT
                else right(row)
            ),
        )

    assert_caught("double send", bug, crash=0.03, lag=60.0)


def test_resending_what_was_being_sent_is_caught() -> None:
    """A row in SENDING may have left before the crash."""

    def bug(patch: Patch) -> None:
        right = reconcile._examined
        patch.setattr(
            reconcile,
            "_examined",
            lambda row: (
                structs.replace(row, state=State.QUEUED, version=row.version + 1)
                if row.state is State.SENDING
                else right(row)
            ),
        )

    assert_caught("double send", bug, crash=0.1)


def test_transport_that_sends_again_is_caught() -> None:
    """A transport that re-sends a PUT by itself breaks one transmission per row."""

    def bug(patch: Patch) -> None:
        right = history.History._send

        def twice(self: history.History, intent: Intent, report: Callable[[Any], None]) -> None:
            right(self, intent, report)
            if self.dice.random() < 0.2:
                right(self, intent, lambda answer: None)

        patch.setattr(history.History, "_send", twice)

    assert_caught("row used twice", bug)
    assert_caught("double send", bug, idempotent=False)


def test_reference_not_unique_is_caught() -> None:
    """The same file pushed again after a crash makes no second push."""

    def bug(patch: Patch) -> None:
        async def no_references(self: MemoryJournal, **wanted: Any) -> list[Intent]:
            return [] if "reference" in wanted else list(self._rows.values())

        patch.setattr(MemoryJournal, "rows", no_references)
        patch.setattr(memory, "_reference_owner", lambda *facts: None)

    assert_caught("double send", bug, crash=0.03)


# What is on disk


def without_row(wanted: Callable[[Intent], bool]) -> Callable[[Patch], None]:
    """A driver that does not write some rows before it sends them."""

    def bug(patch: Patch) -> None:
        right = history.History._write

        def wrong(self: history.History, rows: tuple[Intent, ...]) -> JournalError | None:
            skipped = rows[0].state is State.SENDING and wanted(rows[0])
            return None if skipped else right(self, rows)

        patch.setattr(history.History, "_write", wrong)

    return bug


def test_send_before_commit_is_caught() -> None:
    """No byte leaves without a row on disk."""
    bug = without_row(lambda row: True)
    assert_caught("sent without a row", bug)


def test_retry_without_a_row_of_its_own_is_caught() -> None:
    """Each transmission has its own SENDING row."""
    bug = without_row(lambda row: row.attempts > 1)
    assert_caught("sent without a row", bug)


def test_ignored_commit_failure_is_caught() -> None:
    """A failed commit sends nothing."""

    def bug(patch: Patch) -> None:
        right = history.History._write
        patch.setattr(history.History, "_write", lambda self, rows: right(self, rows) and None)

    assert_caught("sent without a row", bug, disk=0.05)


def test_stale_outcome_written_over_a_new_row_is_caught() -> None:
    """An outcome the disk refused is out of date once the intent went on."""

    def bug(patch: Patch) -> None:
        class Stubborn(dict[str, Intent]):
            def pop(self, *known: Any) -> Any:
                return self.get(known[0])

        patch.setattr(history, "Ledger", lambda **kept: Ledger(unrecorded=Stubborn(), **kept))

    def blind(patch: Patch) -> None:
        bug(patch)
        patch.setattr(memory, "_refuse_stale", lambda before, row: None)

    weather: dict[str, Any] = {"disk": 0.3, "crash": 0.03, "trouble": 0.9}
    assert_caught("double send", blind, **weather)
    with pytest.MonkeyPatch.context() as patch:  # the store refuses what is out of date
        bug(patch)
        seen = simulator.simulate(range(300), **weather).violations
    assert not [one for _, one in seen if one.startswith("double send")]


def test_keys_the_disk_could_not_check_are_caught() -> None:
    """A commit that fails has not found out whether a settled push has the key."""

    def bug(patch: Patch) -> None:
        patch.setattr(protocol, "_new_keys", lambda rows, before: frozenset())

    assert_caught("wrong link", bug, disk=0.3, trouble=0.9, crash=0.0, unlisted=0.7)


def test_writing_on_after_a_failed_sync_is_caught() -> None:
    """After a failed sync nobody knows what is on disk: the journal takes nothing more."""

    def bug(patch: Patch) -> None:
        patch.setattr(
            history.History,
            "_disk_is_broken",
            property(lambda self: False, lambda self, value: None),
        )

    assert_caught("silent loss", bug, disk=0.3, trouble=0.9)


def test_rows_left_in_sending_by_recovery_are_caught() -> None:
    """After recovery every row that may have left is being searched for."""
    assert_caught(
        "unexamined",
        lambda patch: patch.setattr(reconcile, "_examined", lambda row: row),
        crash=0.1,
    )


def test_final_rows_that_change_are_caught() -> None:
    """A final state never changes again, whatever a later poll says."""

    def bug(patch: Patch) -> None:
        patch.setattr(memory, "_refuse_change_of_final", lambda before, row: None)
        right = protocol.settle

        def wrong(ledger: Ledger, polled: Any) -> Machine[list[Intent]]:
            finals = yield from right(ledger, polled)
            if finals:
                stale = [structs.replace(one, status="TimedOut", version=99) for one in finals]
                yield Commit(tuple(stale))
            return finals

        patch.setattr(protocol, "settle", wrong)

    assert_caught("final changed", bug)


def test_forgotten_keys_are_caught_where_there_is_no_file() -> None:
    """The rules forget what is acknowledged: its key has to be known to what stands in."""

    def bug(patch: Patch) -> None:
        patch.setattr(KeyJournal, "_is_settled", lambda self, key: False)

    assert_caught("wrong link", bug, fileless=True, trouble=0.9, echo="none")
