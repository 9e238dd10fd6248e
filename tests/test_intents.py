"""What an answer proves, which steps there are, and what each machine asks of its driver."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from integration_sdk._push.effects import (
    Commit,
    Ledger,
    ListPushes,
    Machine,
    Policy,
    Send,
    Sleep,
)

from integration_sdk._http.requests import Phase
from integration_sdk._http.retry import RetryPolicy
from integration_sdk._push import effects, protocol
from integration_sdk._push.table import Event, IllegalTransition, SendResult, classify, new_intent
from integration_sdk._store.row import Intent, KeyClaimed, Lane, Snapshot, State
from integration_sdk.errors import JournalError
from integration_sdk.models import PushOperation, PushStatus
from tests import protocol_simulator as simulator

LANE = Lane("company", "books", "invoices")
ERROR_BODY = {"correlationId": "7f3a", "statusCode": 500, "error": "no"}
ACKED = SendResult(Phase.ANSWERED, status=200, body={"pushOperationKey": "key-1"})
THROTTLED = SendResult(Phase.ANSWERED, status=429, body=ERROR_BODY, retry_after=7.0)
LOST = SendResult(Phase.MAY_HAVE_LEFT, cause="reset")
NEVER_LEFT = SendResult(Phase.NEVER_LEFT, cause="refused")
GIVE_UP = None
"""What a driver reports to a Sleep that is not to go on."""

bodies: st.SearchStrategy[dict[str, Any] | None] = st.one_of(
    st.none(),
    st.just({}),
    st.just(ERROR_BODY),
    st.just({"pushOperationKey": "key-1"}),
    st.dictionaries(st.sampled_from(["error", "statusCode", "correlationId"]), st.none()),
)
results = st.builds(
    SendResult,
    st.sampled_from(Phase),
    status=st.one_of(st.none(), st.integers(100, 599)),
    body=bodies,
)


def intent(**facts: Any) -> Intent:
    return new_intent(LANE, b'{"invoiceNumber":"INV-1","amount":10.50}', id="i", **facts)


def operation(key: str, **facts: Any) -> PushOperation:
    known = {"status": PushStatus.SUCCESS, "data_connection_id": "books", **facts}
    return PushOperation(
        push_operation_key=key, company_id="company", data_type="invoices", **known
    )


def drive(machine: Machine[Any], *reports: Any) -> tuple[list[effects.Effect], Any]:
    """Run a machine on given reports (errors are thrown in); return its effects and result."""
    asked: list[effects.Effect] = []
    waiting = iter(reports)
    try:
        asked.append(next(machine))
        for report in waiting:
            thrown = isinstance(report, Exception)
            asked.append(machine.throw(report) if thrown else machine.send(report))
    except StopIteration as stop:
        assert not list(waiting)
        return asked, stop.value
    return asked, None


def finds_nothing(_: str) -> Machine[bool]:
    """Search for nothing, at once, where keys are known."""
    yield from ()
    return True


def transmit(*reports: Any, ledger: Ledger | None = None, **facts: Any) -> Any:
    policy, search = facts.pop("policy", Policy()), facts.pop("search", finds_nothing)
    machine = protocol.transmit(
        ledger or Ledger(),
        intent(**facts),
        None,
        policy=policy,
        chance=lambda: 0.5,
        new_key=lambda: "another",
        search=search,
    )
    return drive(machine, *reports)


# The table of results


@given(results, st.booleans(), st.booleans(), st.booleans())
def test_only_the_services_own_word_excludes_an_effect(
    result: SendResult, known: bool, replay: bool, refuses: bool
) -> None:
    """NEVER_LEFT and REFUSED need proof; whatever proves nothing is LOST."""
    event = classify(result, key_is_known=known, replay=replay, refuses_with_503=refuses)

    if event is Event.NEVER_LEFT:
        assert result.phase is Phase.NEVER_LEFT
    if event is Event.REFUSED:
        assert result.phase is Phase.ANSWERED
        assert 400 <= (result.status or 0) < 500 or (result.status == 503 and refuses)
        assert "correlationId" in (result.body or {})
    if event is Event.ANSWERED:
        assert result.status in (200, 202)
        assert not known
    assert event in {Event.NEVER_LEFT, Event.REFUSED, Event.ANSWERED, Event.LOST}


@pytest.mark.parametrize("status", [400, 401, 402, 403, 404, 405, 409, 413, 415, 422, 429, 503])
def test_documented_refusals_are_believed_with_their_body_only(status: int) -> None:
    """The same status is the service's word with its error body, and a proxy's without."""
    own = SendResult(Phase.ANSWERED, status=status, body=ERROR_BODY)
    proxys = SendResult(Phase.ANSWERED, status=status, body=None)

    assert classify(own, key_is_known=False) is Event.REFUSED
    assert classify(proxys, key_is_known=False) is Event.LOST


@pytest.mark.parametrize("status", [201, 204, 301, 302, 307, 308, 408, 418, 500, 501, 502, 504])
def test_every_other_status_is_ambiguous(status: int) -> None:
    """What the document does not say refuses, may have been done."""
    result = SendResult(Phase.ANSWERED, status=status, body={**ERROR_BODY, "pushOperationKey": "k"})

    assert classify(result, key_is_known=False) is Event.LOST


def test_a_dialect_may_doubt_503() -> None:
    """Where a 503 does not prove that nothing was done, it is ambiguous."""
    result = SendResult(Phase.ANSWERED, status=503, body=ERROR_BODY)

    assert classify(result, key_is_known=False, refuses_with_503=False) is Event.LOST


@given(results)
def test_a_replay_is_settled_by_a_key_alone(result: SendResult) -> None:
    """No refusal of a replay says anything about the first transmission."""
    event = classify(result, key_is_known=False, replay=True)

    assert event in {Event.ANSWERED, Event.LOST}


def test_a_natural_key_must_name_a_value() -> None:
    """A natural key that is not in the record is refused before anything is sent."""
    with pytest.raises(ValueError, match="names no single value"):
        intent(natural_key="invoiceNo")


# Sending


def test_a_push_is_sent_with_its_row_and_its_outcome_committed() -> None:
    """Send a SENDING row, which the driver makes durable first; commit the outcome."""
    asked, sent = transmit(ACKED, None)

    assert [type(one) for one in asked] == [Send, Commit]
    assert isinstance(asked[0], Send)
    assert asked[0].row.state is State.SENDING
    assert asked[1] == Commit((sent,))
    assert (sent.key, sent.evidence, sent.payload) == ("key-1", "E3", None)


def test_a_disk_that_refuses_everything_sends_nothing() -> None:
    """No row, so nothing has left: the next turn is waited for, then the caller is told."""
    full = JournalError("full")
    asked, unsent = transmit(NEVER_LEFT, full, GIVE_UP, full)

    assert [type(one) for one in asked] == [Send, Commit, Sleep, Commit]
    assert unsent.state is State.NOT_SENT


def test_an_outcome_the_disk_refused_is_out_of_date_when_the_push_is_sent_again() -> None:
    """Caught up later, it would cover the row of the transmission that came after it."""
    ledger = Ledger()
    asked, _ = transmit(THROTTLED, JournalError("full"), 100.0, ledger=ledger)

    assert [type(one) for one in asked] == [Send, Commit, Sleep, Send]
    assert drive(protocol.catch_up(ledger)) == ([], None)


def test_a_push_that_waits_for_its_turn_is_a_rival_and_not_on_record() -> None:
    """Nobody else may be given its push, and a crash leaves nothing to search for."""
    ledger = Ledger()
    asked, _ = transmit(ledger=ledger)

    assert [type(one) for one in asked] == [Send]
    assert list(ledger.contenders(LANE)) == ["i"]


def test_a_push_turned_away_in_line_is_sent_later() -> None:
    """Its turn did not come: that is on record, and it is sent again by itself."""
    asked, sent = transmit(NEVER_LEFT, None, 100.0, ACKED, None)

    assert [type(one) for one in asked] == [Send, Commit, Sleep, Send, Commit]
    assert [one.rows[0].state for one in asked if isinstance(one, Commit)] == ["QUEUED", "ACKED"]
    assert sent.key == "key-1"


def test_a_lost_answer_is_never_sent_again() -> None:
    """A doubt ends the machine; nothing but a listing settles it."""
    asked, sent = transmit(LOST, None)

    assert sum(isinstance(one, Send) for one in asked) == 1
    assert sent.state is State.AMBIGUOUS


def test_retry_after_is_a_floor() -> None:
    """A throttled push waits at least as long as the service asked."""
    asked, sent = transmit(THROTTLED, None, 100.0, ACKED, None)

    assert [one.seconds for one in asked if isinstance(one, Sleep)] == [7.0]
    assert (sent.state, sent.attempts) == (State.ACKED, 2)


def test_a_push_that_is_sent_again_has_no_answer_yet() -> None:
    """If the process dies now, what the service said to the attempt before is not the cause."""
    asked, _ = transmit(THROTTLED, None, 100.0)

    again = asked[-1]
    assert isinstance(again, Send)
    assert (again.row.attempts, again.row.http_status, again.row.error) == (2, None, None)


def test_tries_are_bounded() -> None:
    """A service that always throttles is asked as often as the policy says."""
    reports = [THROTTLED, None, 100.0] * 2 + [THROTTLED, None]

    asked, sent = transmit(*reports, policy=Policy(retry=RetryPolicy(attempts=3)))

    assert sum(isinstance(one, Send) for one in asked) == 3
    assert (sent.state, sent.is_settled) == (State.REJECTED, True)


def test_a_known_key_is_not_ours() -> None:
    """An answer with a key that was listed before the send is a cache's."""
    snapshot = Snapshot(frozenset({"key-1"}))
    machine = protocol.transmit(
        Ledger(),
        intent(),
        snapshot,
        policy=Policy(),
        chance=float,
        new_key=str,
        search=finds_nothing,
    )

    _, sent = drive(machine, ACKED, None)

    assert (sent.state, sent.key) == (State.AMBIGUOUS, None)


def test_a_claimed_key_leaves_the_answer_in_doubt() -> None:
    """Where the journal knows the key's owner, the answer is not believed."""
    asked, sent = transmit(ACKED, KeyClaimed("key-1 is another's"), None)

    assert [type(one) for one in asked] == [Send, Commit, Commit]
    assert (sent.state, sent.key) == (State.AMBIGUOUS, None)


@pytest.mark.parametrize("owners", [{"key-1"}, JournalError("unreadable")])
def test_a_key_that_could_not_be_checked_is_not_ours(owners: Any) -> None:
    """Where the disk refuses the outcome, it has to be asked whether a settled push has the key."""
    asked, sent = transmit(ACKED, JournalError("full"), owners, None)

    assert [type(one).__name__ for one in asked] == ["Send", "Commit", "FindOwners", "Commit"]
    assert (sent.state, sent.key) == (State.AMBIGUOUS, None)


def test_a_key_is_replayed_only_while_the_service_remembers_it() -> None:
    """Past the replay window an idempotency key could make a second push."""
    began = SendResult(Phase.MAY_HAVE_LEFT, at=1000.0)
    soon, _ = transmit(began, None, 1000.0 + 3599, idempotency_key="k")
    late, sent = transmit(began, None, 1000.0 + 3601, idempotency_key="k")

    assert isinstance(soon[-1], Send)
    assert soon[-1].row.attempts == 2
    assert isinstance(late[-1], Sleep)
    assert sent.state is State.AMBIGUOUS


@pytest.mark.parametrize("has_file", [True, False])
def test_what_a_listing_settled_is_not_replayed(has_file: bool) -> None:
    """A doubt that a listing ends between two replays stays ended."""
    ledger = Ledger(keeps_acknowledged=has_file)
    machine = protocol.transmit(
        ledger,
        intent(idempotency_key="k"),
        None,
        policy=Policy(),
        chance=float,
        new_key=str,
        search=finds_nothing,
    )
    drive(machine, LOST, None)
    ledger.note(ledger.doubted()[0].to(State.RESOLVED, key="key-1"))

    with pytest.raises(StopIteration) as ended:
        machine.send(2.0)

    assert ended.value.value.state is State.RESOLVED


def test_what_the_list_shows_is_not_sent_again() -> None:
    """A service that does not know the dialect's idempotency keys would make it twice."""
    ledger = Ledger()

    def search(company: str) -> Machine[bool]:
        yield ListPushes(company)
        ledger.note(ledger.doubted()[0].to(State.RESOLVED, key="key-1"))
        return True

    asked, sent = transmit(LOST, None, 2.0, None, ledger=ledger, idempotency_key="k", search=search)

    assert [type(one) for one in asked] == [Send, Commit, Sleep, ListPushes]
    assert (sent.state, sent.key) == (State.RESOLVED, "key-1")


def test_a_doubt_of_an_earlier_process_cannot_be_transmitted() -> None:
    """Nobody knows how old its idempotency key is."""
    doubt = Intent(id="i", lane=LANE, state=State.AMBIGUOUS, idempotency_key="k")
    machine = protocol.transmit(
        Ledger(), doubt, None, policy=Policy(), chance=float, new_key=str, search=finds_nothing
    )

    with pytest.raises(IllegalTransition, match="reconciled instead"):
        next(machine)


def test_an_outcome_the_disk_refused_is_kept_and_caught_up() -> None:
    """What happened is known here at once and on disk as soon as it takes it."""
    ledger = Ledger()
    _, sent = transmit(ACKED, JournalError("full"), set(), ledger=ledger)

    assert sent.state is State.ACKED
    assert ledger.unrecorded == {"i": sent}
    asked, _ = drive(protocol.catch_up(ledger), None)
    assert asked == [Commit((sent,))]
    assert not ledger.unrecorded


def test_what_the_disk_still_refuses_is_still_unrecorded() -> None:
    """A failed attempt to catch up keeps the outcome for the next one, and says so."""
    ledger = Ledger()
    _, sent = transmit(ACKED, JournalError("full"), set(), ledger=ledger)
    machine = protocol.catch_up(ledger)
    next(machine)

    with pytest.raises(JournalError):
        machine.throw(JournalError("still full"))
    assert ledger.unrecorded == {"i": sent}


def test_a_settled_push_that_is_not_on_disk_keeps_its_claim() -> None:
    """Until the disk knows the end of a push, nobody else can be given its key."""
    ledger = Ledger()
    transmit(ACKED, None, ledger=ledger)
    settle = protocol.settle(ledger, [("i", operation("key-1"), None)])

    [final] = drive(settle, JournalError("full"))[1]

    assert final.state is State.FINAL
    assert ledger.owner("key-1") == "i"
    drive(protocol.catch_up(ledger), None)
    assert ledger.owner("key-1") is None


def test_a_driver_that_does_not_answer_is_told() -> None:
    """A Send is reported with a SendResult, whatever happened to it."""
    with pytest.raises(TypeError, match="must report a SendResult"):
        transmit(None)


def test_a_driver_that_breaks_off_leaves_a_doubt() -> None:
    """What may have left is AMBIGUOUS, on record or not; what did not leave is given up."""
    ledger = Ledger()
    ledger.note(intent().to(State.SENDING))
    asked, left = drive(protocol.break_off(ledger, intent()), None)
    assert asked == [Commit((left,))]
    assert left.state is State.AMBIGUOUS
    assert ledger.doubted() == [left]

    ledger = Ledger()
    ledger.note(intent().to(State.SENDING).to(State.QUEUED))
    _, given_up = drive(protocol.break_off(ledger, intent()), None)
    assert given_up.state is State.NOT_SENT

    _, unknown = drive(protocol.break_off(Ledger(), intent()), JournalError("full"))
    assert unknown.state is State.AMBIGUOUS


def test_a_driver_that_breaks_off_takes_no_answer_back() -> None:
    """A key that is known stays known."""
    ledger = Ledger()
    acked = intent().to(State.SENDING).to(State.ACKED, key="key-1")
    ledger.note(acked)

    assert drive(protocol.break_off(ledger, intent())) == ([], acked)


def test_a_poll_settles_once_and_for_all() -> None:
    """A final answer settles; what comes after it finds nothing to change."""
    ledger = Ledger()
    transmit(ACKED, None, ledger=ledger)
    pending = ("i", operation("key-1", status=PushStatus.PENDING), None)
    another = ("i", operation("another"), None)
    unknown = ("j", operation("key-1"), None)
    failed = ("i", operation("key-1", status=PushStatus.FAILED), "no such customer")

    assert drive(protocol.settle(ledger, [pending, another, unknown])) == ([], [])
    [final] = drive(protocol.settle(ledger, [pending, failed]), None)[1]
    assert (final.state, final.status, final.error) == (State.FINAL, "Failed", "no such customer")
    assert drive(protocol.settle(ledger, [pending, failed])) == ([], [])


def test_without_a_file_an_acknowledged_push_is_forgotten() -> None:
    """Its end goes on record nowhere: ten thousand open pushes need no row each."""
    ledger = Ledger(keeps_acknowledged=False)
    _, sent = transmit(ACKED, None, ledger=ledger)

    assert sent.state is State.ACKED
    assert (ledger.get("i"), ledger.owner("key-1")) == (None, None)
    assert drive(protocol.settle(ledger, [("i", operation("key-1"), None)])) == ([], [])


# The proof


def test_seeded_histories_hold_every_promise() -> None:
    """2,000 histories with crashes at every effect: nothing doubled, mislinked or lost."""
    tally = simulator.simulate(range(2000))

    assert not tally.violations
    assert tally.crashes > 2000
    assert {"E1", "E2", "E3"} <= tally.links.keys()
    assert {"FINAL", "ABSENT", "UNRESOLVED", "REJECTED", "DECIDED"} <= tally.states.keys()


@pytest.mark.long
@pytest.mark.timeout(3600)
def test_many_seeded_histories_hold_every_promise() -> None:
    """100,000 histories of the same world."""
    assert not simulator.simulate(range(1_000_000, 1_100_000)).violations
