"""What a listing proves about a push whose answer was lost, and what it does not."""

import json
import time
from datetime import UTC, datetime
from decimal import Decimal
from typing import Any

import pytest
from attrs import evolve
from hypothesis import given
from hypothesis import strategies as st

from integration_sdk._push.agreement import Echoes, Said, leaf, natural_value, value_at
from integration_sdk._push.evidence import (
    ListedPushes,
    Verdict,
    View,
    answers_another,
    in_lane,
    is_proved,
    judge,
    new_since,
    not_newer,
    reaches_back,
)
from integration_sdk._push.table import new_intent
from integration_sdk._store.row import Evidence, Intent, Lane, Snapshot, State
from integration_sdk.models import PushOperation, PushStatus

LANE = Lane("company", "books", "invoices")
RECORD = {"invoiceNumber": "INV-1", "amount": 10.5, "lines": [{"net": 1}]}
keys = st.sampled_from("abcdefgh")
leaves = st.one_of(
    st.none(), st.booleans(), st.integers(), st.decimals(allow_nan=False), st.text(max_size=5)
)
records = st.recursive(
    leaves,
    lambda inner: st.one_of(
        st.lists(inner, max_size=3), st.dictionaries(st.text(max_size=3), inner, max_size=3)
    ),
    max_leaves=8,
)


def doubt(record: Any = RECORD, *, natural: str | None = None, name: str = "i") -> Intent:
    intent = new_intent(LANE, json.dumps(record).encode(), id=name, natural_key=natural)
    return intent.to(State.SENDING, snapshot=Snapshot(frozenset())).to(State.AMBIGUOUS)


def push(key: str, data: Any = None, status: PushStatus = PushStatus.SUCCESS) -> PushOperation:
    return PushOperation(
        push_operation_key=key,
        company_id="company",
        data_connection_id="books",
        data_type="invoices",
        status=status,
        data=data,
    )


def seen(*fresh: PushOperation, back: bool = True) -> View:
    return View(fresh, {}, back)


def verdict(
    intent: Intent,
    view: View,
    *rivals: Intent,
    exclusive: bool = False,
    searched_enough: bool = True,
) -> Verdict | None:
    """What two listings prove that show the same."""
    rows = {one.id: one for one in (intent, *rivals)}
    view = View(view.fresh, rows, view.reaches_back, view.old)
    found = judge(intent, view, exclusive=exclusive)
    return found if is_proved(found, found, searched_enough=searched_enough) else None


def agrees(sent: object, echo: object) -> bool:
    """Whether the echo of a record that holds *sent* is taken for it."""
    return Echoes([{"n": 1, "it": echo}])._compare_values({"n": 1, "it": sent}) == YES


YES, NO, UNKNOWN = Said(1, 0), Said(0, 0), Said(0, 1)


def match(intent: Intent, push: PushOperation) -> Said:
    return Echoes([push.data]).compare(intent)


ECHO = {**RECORD, "id": "17", "amount": Decimal("10.50")}
OTHER = {**RECORD, "invoiceNumber": "INV-2"}


# Agreement


@given(records)
def test_a_record_agrees_with_itself(record: object) -> None:
    """Whatever we send, its own copy agrees."""
    assert agrees(record, record)


@given(st.dictionaries(st.text(max_size=3), records, max_size=3), records)
def test_what_the_platform_adds_does_not_matter(record: dict[str, object], more: object) -> None:
    """An echo may say more than we sent."""
    assert agrees(record, {"platform's own": more, **record})


@given(st.decimals(allow_nan=False, allow_infinity=False))
def test_numbers_agree_as_exact_decimals(number: Decimal) -> None:
    """Trailing zeros and notation do not matter; one digit more does."""
    assert leaf(number) == leaf(Decimal(f"{number:f}" if "." in f"{number:f}" else f"{number:f}.0"))
    assert leaf(number) != leaf(Decimal(f"{number:f}" + ("1" if "." in f"{number:f}" else ".1")))


@pytest.mark.parametrize(
    ("sent", "echo"),
    [
        (10, Decimal("10.00")),
        (0, Decimal("-0.0")),
        (Decimal("1e3"), 1000),
        ("2024-01-31", "2024-01-31T00:00:00"),
        ("2024-01-31T00:00:00Z", "2024-01-31T00:00:00.0000000"),
        ("2024-01-31T01:00:00+01:00", "2024-01-31T00:00:00Z"),
        (None, "filled in"),
        ({"a": {}}, {"a": None}),
        ({"lines": []}, {}),
    ],
)
def test_equal_meanings_agree(sent: object, echo: object) -> None:
    """The platform spells values in its own way."""
    assert agrees(sent, echo)


def test_an_unqualified_time_is_utc_wherever_we_are(monkeypatch: pytest.MonkeyPatch) -> None:
    """The machine's own time zone has no say in whether two records are the same."""
    with monkeypatch.context() as patch:
        patch.setenv("TZ", "Pacific/Auckland")
        time.tzset()
        same = agrees("2024-01-31T00:00:00", "2024-01-31T00:00:00Z")
    time.tzset()

    assert same


@pytest.mark.parametrize(
    ("sent", "echo"),
    [
        (10.5, 10.51),
        (0.1, Decimal("0.1000000000000000055")),
        ("INV-1", "INV-10"),
        ("20240131", "2024-01-31"),
        ("2024-01-31", "2024-02-01"),
        ("2024-13-45", "2024-13-46"),
        ("10", 10),
        (True, 1),
        (True, "True"),
        ({"a": 1}, {}),
        ({"a": 1}, [1]),
        ([1, 2], [1]),
        ([1, 2], [2, 1]),
        ([1], {"0": 1}),
        (1, {"value": 1}),
    ],
)
def test_different_meanings_do_not_agree(sent: object, echo: object) -> None:
    """A record that differs in one leaf is another record."""
    assert not agrees(sent, echo)


def test_nothing_sent_agrees_with_nothing() -> None:
    """A record without a single value cannot be recognised."""
    nothing: dict[str, object] = {"a": None, "b": [], "c": {}, "d": [None]}
    assert match(doubt(nothing), push("k", nothing)) == UNKNOWN
    assert match(doubt({"a": None}), push("k", {"b": 1})) == UNKNOWN


@pytest.mark.parametrize(
    ("path", "value"),
    [("a.b", 1), ("lines.1.c", 2), ("lines.2.c", None), ("a.b.c", None), ("x", None)],
)
def test_natural_keys_are_dotted_paths(path: str, value: object) -> None:
    """A path leads through objects and lists, or nowhere."""
    assert value_at({"a": {"b": 1}, "lines": [{}, {"c": 2}]}, path) == value


@pytest.mark.parametrize("path", ["x", "lines", "none", "lines.7"])
def test_a_natural_key_without_a_value_is_refused(path: str) -> None:
    """A key that tells nothing apart is a mistake to hear about before sending."""
    with pytest.raises(ValueError, match="names no single value"):
        natural_value(b'{"lines": [], "none": null}', path)


def test_the_natural_key_alone_decides() -> None:
    """With a natural key other leaves may have been rewritten, without one none may."""
    rewritten = push("k", {**RECORD, "amount": 99})

    assert match(doubt(natural="invoiceNumber"), rewritten) == YES
    assert match(doubt(), rewritten) == NO
    assert match(doubt(natural="invoiceNumber"), push("k", OTHER)) == NO
    assert match(doubt(natural="invoiceNumber"), push("k", {"id": "17"})) == UNKNOWN
    assert match(doubt(), push("k", {})) == UNKNOWN


@pytest.mark.parametrize(
    ("sent", "echoed", "same"),
    [
        (1017, "1017", True),
        ("1017", 1017, True),
        (1010, Decimal("1010.0"), True),
        (-1.5, "-1.5", True),
        (" INV  1 ", "inv 1", True),
        ("0017", 17, False),
        ("17", "17.0", False),
        ("INV-1", "PRE-INV-1", False),
        (True, "true", False),
    ],
)
def test_a_natural_key_is_known_as_platforms_write_it(
    sent: object, echoed: object, same: bool
) -> None:
    """Number or text, outer spaces and case do not make another record of it; digits do."""
    intent = doubt({"invoiceNumber": sent}, natural="invoiceNumber")

    assert match(intent, push("k", {"invoiceNumber": echoed})) == (YES if same else NO)


# What is new


@given(st.lists(keys, unique=True), st.sets(keys), st.booleans())
def test_new_is_a_set_difference(listed: list[str], known: set[str], whole: bool) -> None:
    """Nothing that was listed before is new, and no clock is asked."""
    listing = ListedPushes([push(key) for key in listed], whole=True)

    new = {one.push_operation_key for one in new_since(Snapshot(frozenset(known), whole), listing)}

    assert not new & known
    if whole:
        assert new == set(listed) - known


def test_below_a_partial_snapshot_nothing_is_new() -> None:
    """A snapshot of the newest keys says nothing of what is older than all of them."""
    listing = ListedPushes([push(key) for key in "abcdef"], whole=True)

    new = new_since(Snapshot(frozenset("bd"), whole=False), listing)

    assert [one.push_operation_key for one in new] == ["a", "c"]


@pytest.mark.parametrize(
    ("known", "listed", "whole", "proven"),
    [
        ("", "", True, True),
        ("", "ab", True, True),
        ("", "ab", False, False),
        ("cd", "abcd", False, True),
        ("cd", "abc", False, False),
        ("cd", "abc", True, False),
        ("cd", "abcdc", True, False),
        ("cd", "ab", True, False),
    ],
)
def test_a_listing_reaches_back_when_it_shows_the_snapshot(
    known: str, listed: str, whole: bool, proven: bool
) -> None:
    """Every known key is seen, and none twice: a list with a key gone proves nothing."""
    listing = ListedPushes([push(key) for key in listed], whole=whole)

    assert reaches_back(Snapshot(frozenset(known)), listing) is proven


def test_an_empty_page_is_no_snapshot() -> None:
    """A list cut off before its first entry says nothing of what is there."""
    assert ListedPushes([], whole=False).snapshot() is None
    assert ListedPushes([], whole=True).snapshot() == Snapshot(frozenset())
    assert ListedPushes([push("a"), push("b")], whole=True).snapshot(1) == Snapshot(
        frozenset("a"), whole=False
    )


def test_a_lane_is_a_connection_and_a_type() -> None:
    """Names are compared without case and through the dialect's path names; none given is any."""
    accounts = Lane("company", "books", "accounts")
    names = {"chartOfAccounts": "accounts"}

    def listed(connection: str | None, data_type: str | None) -> PushOperation:
        return PushOperation(
            push_operation_key="k",
            company_id="company",
            status=PushStatus.PENDING,
            data_connection_id=connection,
            data_type=data_type,
        )

    assert in_lane(listed("BOOKS", "chartOfAccounts"), accounts, names)
    assert in_lane(listed(None, None), accounts, names)
    assert not in_lane(listed("shop", "accounts"), accounts, names)
    assert not in_lane(listed("books", "invoices"), accounts, names)


# Verdicts


def test_one_agreeing_echo_is_enough() -> None:
    """E2 needs neither a long search nor an exclusive lane."""
    found = verdict(doubt(), seen(push("a", OTHER), push("b", ECHO)), searched_enough=False)

    assert found == Verdict(State.RESOLVED, "b", Evidence.AGREEING_ECHO)


@pytest.mark.parametrize("natural", [None, "invoiceNumber"])
def test_equal_payloads_are_not_guessed_at(natural: str | None) -> None:
    """A rival with the same record leaves both unresolved, however many arrived."""
    one, twin = doubt(natural=natural), doubt(natural=natural, name="twin")
    for arrived in ([push("a", ECHO)], [push("a", ECHO), push("b", ECHO)]):
        found = verdict(one, seen(*arrived), twin)
        assert found is not None
        assert (found.state, found.key) == (State.UNRESOLVED, None)
        assert set(found.candidates) == {push.push_operation_key for push in arrived}


def test_a_rival_without_a_payload_may_be_anybody() -> None:
    """A rival nobody can compare blocks E2."""
    blank = Intent(id="blank", lane=LANE, payload_hash="x", state=State.AMBIGUOUS)

    found = verdict(doubt(), seen(push("a", ECHO)), blank)

    assert found is not None
    assert found.state is State.UNRESOLVED


def test_a_silent_newcomer_blocks_agreement_on_leaves_only() -> None:
    """It could turn out to agree as well, unless a natural key tells records apart."""
    view = seen(push("a", ECHO), push("b", {}, PushStatus.PENDING))

    assert verdict(doubt(), view, searched_enough=False) is None
    found = verdict(doubt(natural="invoiceNumber"), view, searched_enough=False)
    assert found is not None
    assert found.key == "a"


def test_the_only_new_push_of_an_exclusive_lane_is_ours() -> None:
    """E1 wants the caller's word, a long search, no rival, and one newcomer."""
    view = seen(push("a", {}, PushStatus.PENDING))

    found = verdict(doubt(), view, exclusive=True)
    assert found is not None
    assert (found.key, found.evidence) == ("a", "E1")
    assert verdict(doubt(), view, exclusive=True, searched_enough=False) is None
    for other in (
        verdict(doubt(), view),
        verdict(doubt(), view, doubt(name="rival"), exclusive=True),
        verdict(doubt(), seen(push("a"), push("b")), exclusive=True),
        verdict(doubt(), seen(push("a"), back=False), exclusive=True),
        verdict(doubt(natural="invoiceNumber"), seen(push("a", OTHER)), exclusive=True),
    ):
        assert other is not None
        assert (other.state, other.key) == (State.UNRESOLVED, None)


def test_absent_wants_a_proven_list_and_a_long_search() -> None:
    """Absent: nothing new in the lane, in a list that reaches back."""
    one = doubt(natural="invoiceNumber")

    assert verdict(one, seen()) == Verdict(State.ABSENT)
    assert verdict(one, seen(), searched_enough=False) is None
    unproven = verdict(one, seen(back=False))
    assert unproven is not None
    assert unproven.state is State.UNRESOLVED


@given(st.booleans())
def test_a_push_with_another_natural_key_is_named(exclusive: bool) -> None:
    """A platform may have rewritten the key: nobody is told that no list shows the push."""
    fresh = seen(push("a", {"invoiceNumber": "PRE-INV-1"}))

    found = verdict(doubt(natural="invoiceNumber"), fresh, exclusive=exclusive)

    assert found == Verdict(State.UNRESOLVED, candidates=("a",))


@pytest.mark.parametrize("proof", [{"exclusive": True}, {}])
def test_what_the_snapshot_may_have_left_out_is_only_a_candidate(proof: dict[str, bool]) -> None:
    """A push that is not newer than the snapshot is neither ours for sure nor nobody's."""
    echo = {} if proof else ECHO
    recent, old = View([push("a", echo)], {}, True), View([push("a", echo)], {}, True, {"a"})

    found = verdict(doubt(), recent, **proof)
    assert found is not None
    assert found.key == "a"
    assert verdict(doubt(), old, **proof) == Verdict(State.UNRESOLVED, candidates=("a",))


@given(st.sampled_from(["E1", "absent"]), st.sampled_from([None, "E1", "absent", "other"]))
def test_what_rests_on_absence_needs_two_listings(now: str, before: str | None) -> None:
    """One listing may have left out the rival, or our push."""
    said = {
        "E1": Verdict(State.RESOLVED, "a", Evidence.ONLY_ONE_NEW),
        "absent": Verdict(State.ABSENT),
        "other": Verdict(State.RESOLVED, "b", Evidence.ONLY_ONE_NEW),
    }

    assert is_proved(said[now], said.get(before or ""), searched_enough=True) is (now == before)


def at(seconds: float | None, key: str) -> PushOperation:
    """A push that the service dates so many seconds after the epoch."""
    moment = None if seconds is None else datetime.fromtimestamp(seconds, UTC)
    return evolve(push(key), requested_on_utc=moment)


@given(st.lists(st.one_of(st.none(), st.integers(0, 9)), max_size=8), st.sets(keys))
def test_only_what_is_above_and_after_the_snapshot_is_newer(
    times: list[int | None], known: set[str]
) -> None:
    """Whatever order the list is in, place and time must both say so."""
    listing = ListedPushes([at(*one) for one in zip(times, "abcdefgh", strict=False)], whole=True)
    old = not_newer(Snapshot(frozenset(known)), listing)

    for place, one in enumerate(listing.operations):
        below = known & set(listing.keys[:place])
        told = [other for other in listing.operations if other.push_operation_key in known]
        before = [
            other.push_operation_key
            for other in told
            if one.requested_on_utc
            and other.requested_on_utc
            and one.requested_on_utc <= other.requested_on_utc
        ]
        assert (one.push_operation_key in old) is bool(below or before)
    ordered = [time for time in times if time is not None]
    assert listing.is_consistent is (ordered == sorted(ordered, reverse=True))


def test_a_rewritten_record_is_a_candidate() -> None:
    """Without a natural key another value is no proof of another record: it is surfaced."""
    rewritten = push("a", {**RECORD, "amount": 99})

    assert verdict(doubt(), seen(rewritten)) == Verdict(State.UNRESOLVED, candidates=("a",))
    assert verdict(doubt(), seen()) == Verdict(State.ABSENT)


def test_an_echo_that_says_less_is_a_candidate() -> None:
    """A platform may drop fields: what contradicts nothing we sent may be ours, never ABSENT."""
    sent = {"number": "7", "buyer": {"id": "b", "name": None}, "lines": [{"sum": 1}, {"sum": 2}]}
    less = {"number": "7", "buyer": {}, "lines": [{"sum": 1}, {}]}

    found = verdict(doubt(sent), seen(push("a", {"number": "8"}), push("b", less)))

    assert found == Verdict(State.UNRESOLVED, candidates=("b", "a"))
    for other in ({"number": "8"}, {"buyer": "b"}, {"lines": [{"sum": 1}]}, {"lines": "none"}):
        assert match(doubt(sent), push("a", less | other)) == NO


@given(
    st.lists(st.tuples(keys, st.sampled_from([None, ECHO, OTHER])), unique_by=lambda one: one[0]),
    st.booleans(),
    st.fixed_dictionaries({"exclusive": st.booleans(), "searched_enough": st.booleans()}),
    st.booleans(),
    st.sampled_from([None, "invoiceNumber"]),
)
def test_no_verdict_links_on_less_than_the_evidence(
    listed: list[tuple[str, Any]],
    back: bool,
    promised: dict[str, bool],
    contested: bool,
    natural: str | None,
) -> None:
    """A key is given only with a list that reaches back, one newcomer in question, no rival."""
    fresh = [push(key, data) for key, data in listed]
    rivals = [doubt(name="rival", natural=natural)] if contested else []

    found = verdict(doubt(natural=natural), seen(*fresh, back=back), *rivals, **promised)

    if found is not None and found.key is not None:
        agreeing = [one for one in fresh if one.data == ECHO]
        assert back
        assert not contested
        assert len(agreeing) == 1 or (all(promised.values()) and len(fresh) == 1)
    if found is None:
        assert not promised["searched_enough"]


# An answer that is another's


def answered(data: Any, **lane: str) -> PushOperation:
    names = {"company_id": "company", "data_connection_id": "books", "data_type": "invoices"}
    facts: dict[str, Any] = {**names, **lane}
    return PushOperation(push_operation_key="k", status=PushStatus.SUCCESS, data=data, **facts)


@given(st.dictionaries(st.text(max_size=3), leaves, max_size=4), records)
def test_a_push_is_not_anothers_for_what_its_platform_adds(
    record: dict[str, Any], added: Any
) -> None:
    """Its own echo, or none, with more fields, or with one of two values rewritten."""
    sent = json.loads(json.dumps(record, default=str))
    for data in (None, {}, sent, {"id": "1", "added": str(added), **sent}):
        assert not answers_another(answered(data), doubt(sent), {})
    kept = {**sent, "kept": "as it was", "taken": "A 1"}
    assert not answers_another(answered({**kept, "taken": "rewritten"}), doubt(kept), {})
    spelt = {"number": 7, "name": " ACME  Ltd"}
    assert not answers_another(answered({"number": "7", "name": "Acme ltd"}), doubt(spelt), {})


@pytest.mark.parametrize(
    "operation",
    [
        answered({"invoiceNumber": "INV-2", "amount": 11, "lines": [{"net": 2}]}),
        answered(RECORD, company_id="other"),
        answered(RECORD, data_connection_id="other"),
        answered(RECORD, data_type="bills"),
    ],
    ids=["another record", "company", "connection", "data type"],
)
@pytest.mark.parametrize("natural", [None, "invoiceNumber"])
def test_an_answer_that_shows_another_push_is_anothers(
    operation: PushOperation, natural: str | None
) -> None:
    """As a cache's may: a record of which nothing agrees, or another lane."""
    assert answers_another(operation, doubt(natural=natural), {})


def test_a_natural_key_alone_tells_whose_a_push_is() -> None:
    """Also where all else is the same."""
    other = answered({**RECORD, "invoiceNumber": "INV-2"})

    assert answers_another(other, doubt(natural="invoiceNumber"), {})
    assert not answers_another(other, doubt(), {})
