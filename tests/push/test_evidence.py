"""What a listing proves about a push whose answer was lost, and what it does not."""

import json
import sys
import time
from datetime import UTC, datetime
from decimal import Decimal
from types import FrameType
from typing import Any

import pytest
from attrs import evolve, frozen
from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec import structs

from integration_sdk._push.agreement import Echoes, Said, leaf, natural_value, value_at
from integration_sdk._push.evidence import (
    PENDING_PATIENCE,
    Finding,
    Judging,
    ListedPushes,
    View,
    answers_another,
    in_lane,
    is_proved,
    judge,
    new_since,
    not_newer,
    reaches_back,
)
from integration_sdk._push.table import Event, after, may_own_unclaimed, new_row
from integration_sdk._records.codec import encode_value
from integration_sdk._store.row import Evidence, Lane, Row, Snapshot, State, Verdict
from integration_sdk.models import PushOperation, PushStatus
from tests.push import naive_evidence as naive

LANE = Lane("company", "books", "invoices")
RECORD = {"invoiceNumber": "INV-1", "amount": 10.5, "lines": [{"net": 1}]}
keys = st.sampled_from("abcdefgh")
leaves = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(),
    st.decimals(allow_nan=False, allow_infinity=False),
    st.text(max_size=5),
)
records = st.recursive(
    leaves,
    lambda inner: st.one_of(
        st.lists(inner, max_size=3), st.dictionaries(st.text(max_size=3), inner, max_size=3)
    ),
    max_leaves=8,
)


def doubt(record: Any = RECORD, *, natural: str | None = None, name: str = "i") -> Row:
    row = new_row(LANE, encode_value(record), id=name, natural_key=natural)
    return row.to(State.LOST, snapshot=Snapshot(frozenset()))


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


def finding(
    row: Row, view: View, *rivals: Row, exclusive: bool = False, enough: bool = True
) -> Finding | None:
    """What two listings prove that show the same."""
    rows = {one.id: one for one in (row, *rivals)}
    view = View(view.fresh, rows, view.reaches_back, view.old)
    found = judge(row, view, exclusive=exclusive)
    return found if is_proved(found, found, enough=enough) else None


def agrees(sent: object, echo: object) -> bool:
    """Whether the echo of a record that holds *sent* is taken for it."""
    return match(doubt({"n": 1, "it": sent}), push("k", {"n": 1, "it": echo})) == YES


YES, NO, UNKNOWN = Said(1, 0), Said(0, 0), Said(0, 1)


def match(row: Row, push: PushOperation) -> Said:
    return Echoes([push.data]).compare(row)


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
    row = doubt({"invoiceNumber": sent}, natural="invoiceNumber")

    assert match(row, push("k", {"invoiceNumber": echoed})) == (YES if same else NO)


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
    assert ListedPushes([], whole=False).snapshot("s") is None
    assert ListedPushes([], whole=True).snapshot("s") == Snapshot(frozenset(), id="s")
    assert ListedPushes([push("a"), push("b")], whole=True).snapshot("s", 1) == Snapshot(
        frozenset("a"), whole=False, id="s"
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


# Findings


def test_one_agreeing_echo_is_enough() -> None:
    """E2 needs neither a long search nor an exclusive lane."""
    found = finding(doubt(), seen(push("a", OTHER), push("b", ECHO)), enough=False)

    assert found == Finding(key="b", evidence=Evidence.AGREEING_ECHO)


@pytest.mark.parametrize("natural", [None, "invoiceNumber"])
def test_equal_payloads_are_not_guessed_at(natural: str | None) -> None:
    """A rival with the same record leaves both unresolved, however many arrived."""
    one, twin = doubt(natural=natural), doubt(natural=natural, name="twin")
    for arrived in ([push("a", ECHO)], [push("a", ECHO), push("b", ECHO)]):
        found = finding(one, seen(*arrived), twin)
        assert found is not None
        assert (found.verdict, found.key) == (Verdict.UNRESOLVED, None)
        assert set(found.candidates) == {push.push_operation_key for push in arrived}


def test_a_rival_without_a_payload_may_be_anybody() -> None:
    """A rival nobody can compare blocks E2."""
    blank = Row(id="blank", lane=LANE, payload_hash="x", state=State.LOST)

    found = finding(doubt(), seen(push("a", ECHO)), blank)

    assert found is not None
    assert found.verdict is Verdict.UNRESOLVED


def test_a_silent_newcomer_blocks_agreement_on_leaves_only() -> None:
    """It could turn out to agree as well, unless a natural key tells records apart."""
    view = seen(push("a", ECHO), push("b", {}, PushStatus.PENDING))

    assert finding(doubt(), view, enough=False) is None
    found = finding(doubt(natural="invoiceNumber"), view, enough=False)
    assert found is not None
    assert found.key == "a"


def test_the_only_new_push_of_an_exclusive_lane_is_ours() -> None:
    """E1 wants the caller's word, a long search, no rival, and one newcomer."""
    view = seen(push("a", {}, PushStatus.PENDING))

    found = finding(doubt(), view, exclusive=True)
    assert found is not None
    assert (found.key, found.evidence) == ("a", "E1")
    assert finding(doubt(), view, exclusive=True, enough=False) is None
    for other in (
        finding(doubt(), view),
        finding(doubt(), view, doubt(name="rival"), exclusive=True),
        finding(doubt(), seen(push("a"), push("b")), exclusive=True),
        finding(doubt(), seen(push("a"), back=False), exclusive=True),
        finding(doubt(natural="invoiceNumber"), seen(push("a", OTHER)), exclusive=True),
    ):
        assert other is not None
        assert (other.verdict, other.key) == (Verdict.UNRESOLVED, None)


def test_absent_wants_a_proven_list_and_a_long_search() -> None:
    """Absent: nothing new in the lane, in a list that reaches back."""
    one = doubt(natural="invoiceNumber")

    assert finding(one, seen()) == Finding(Verdict.ABSENT)
    assert finding(one, seen(), enough=False) is None
    unproven = finding(one, seen(back=False))
    assert unproven is not None
    assert unproven.verdict is Verdict.UNRESOLVED


@given(st.booleans())
def test_a_push_with_another_natural_key_is_named(exclusive: bool) -> None:
    """A platform may have rewritten the key: nobody is told that no list shows the push."""
    fresh = seen(push("a", {"invoiceNumber": "PRE-INV-1"}))

    found = finding(doubt(natural="invoiceNumber"), fresh, exclusive=exclusive)

    assert found == Finding(Verdict.UNRESOLVED, candidates=("a",))


@pytest.mark.parametrize("proof", [{"exclusive": True}, {}])
def test_what_the_snapshot_may_have_left_out_is_only_a_candidate(proof: dict[str, bool]) -> None:
    """A push that is not newer than the snapshot is neither ours for sure nor nobody's."""
    echo = {} if proof else ECHO
    recent, old = View([push("a", echo)], {}, True), View([push("a", echo)], {}, True, {"a"})

    found = finding(doubt(), recent, **proof)
    assert found is not None
    assert found.key == "a"
    assert finding(doubt(), old, **proof) == Finding(Verdict.UNRESOLVED, candidates=("a",))


@given(st.sampled_from(["E1", "absent"]), st.sampled_from([None, "E1", "absent", "other"]))
def test_what_rests_on_absence_needs_two_listings(now: str, before: str | None) -> None:
    """One listing may have left out the rival, or our push."""
    said = {
        "E1": Finding(key="a", evidence=Evidence.ONLY_ONE_NEW),
        "absent": Finding(Verdict.ABSENT),
        "other": Finding(key="b", evidence=Evidence.ONLY_ONE_NEW),
    }

    assert is_proved(said[now], said.get(before or ""), enough=True) is (now == before)


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

    assert finding(doubt(), seen(rewritten)) == Finding(Verdict.UNRESOLVED, candidates=("a",))
    assert finding(doubt(), seen()) == Finding(Verdict.ABSENT)


def test_an_echo_that_says_less_is_a_candidate() -> None:
    """A platform may drop fields: what contradicts nothing we sent may be ours, never ABSENT."""
    sent = {"number": "7", "buyer": {"id": "b", "name": None}, "lines": [{"sum": 1}, {"sum": 2}]}
    less = {"number": "7", "buyer": {}, "lines": [{"sum": 1}, {}]}

    found = finding(doubt(sent), seen(push("a", {"number": "8"}), push("b", less)))

    assert found == Finding(Verdict.UNRESOLVED, candidates=("b", "a"))
    for other in ({"number": "8"}, {"buyer": "b"}, {"lines": [{"sum": 1}]}, {"lines": "none"}):
        assert match(doubt(sent), push("a", less | other)) == NO


@given(
    st.lists(st.tuples(keys, st.sampled_from([None, ECHO, OTHER])), unique_by=lambda one: one[0]),
    st.booleans(),
    st.fixed_dictionaries({"exclusive": st.booleans(), "enough": st.booleans()}),
    st.booleans(),
    st.sampled_from([None, "invoiceNumber"]),
)
def test_no_finding_links_on_less_than_the_evidence(
    listed: list[tuple[str, Any]],
    back: bool,
    promised: dict[str, bool],
    contested: bool,
    natural: str | None,
) -> None:
    """A key is given only with a list that reaches back, one newcomer in question, no rival."""
    fresh = [push(key, data) for key, data in listed]
    rivals = [doubt(name="rival", natural=natural)] if contested else []

    found = finding(doubt(natural=natural), seen(*fresh, back=back), *rivals, **promised)

    if found is not None and found.key is not None:
        agreeing = [one for one in fresh if one.data == ECHO]
        assert back
        assert not contested
        assert len(agreeing) == 1 or (all(promised.values()) and len(fresh) == 1)
    if found is None:
        assert not promised["enough"]


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


# All doubts of a company by one listing, against the plain rule

INVOICES, BILLS = (Lane("company", "books", name) for name in ("invoices", "bills"))
WHOLE, PART = Snapshot(frozenset("h")), Snapshot(frozenset("gh"), whole=False)
PATIENCE = 30.0
odd_values: list[object] = [1, "1", 2, "2024-01-31", "2024-01-31T00:00:00Z", {}, [], [1], [2]]
few_values = st.sampled_from([None, *odd_values, [None], {"d": 1}])
alike = st.fixed_dictionaries(
    {},
    optional={
        "n": st.sampled_from([1, 2]),
        "a": few_values,
        "b": st.just({"c": 1}),
        "e": few_values,
    },
)


@frozen
class Company:
    """Rows that are in doubt or rivals, and what one listing shows."""

    rows: list[Row]
    listing: ListedPushes


@st.composite
def companies(draw: st.DrawFn) -> Company:
    """Mostly one lane and one snapshot; records and echoes are alike more often than not."""
    known = draw(st.lists(alike, min_size=1, max_size=3))
    snapshot = draw(st.sampled_from([WHOLE, WHOLE, PART, None]))
    rows = [draw(rows_of(str(n), known, snapshot)) for n in range(draw(st.integers(1, 6)))]
    listed = [draw(listings(key, known)) for key in draw(st.lists(keys, unique=True))]
    newest_first = [*listed, *([push("h")] if draw(st.booleans()) else [])]
    unique = {one.push_operation_key: one for one in newest_first}
    return Company(rows, ListedPushes(list(unique.values()), whole=draw(st.booleans())))


@st.composite
def rows_of(
    draw: st.DrawFn, name: str, known: list[dict[str, object]], snapshot: Snapshot | None
) -> Row:
    record = draw(st.sampled_from(known))
    natural = "n" if "n" in record and draw(st.booleans()) else None
    lane = draw(st.sampled_from([INVOICES, INVOICES, INVOICES, BILLS]))
    made = new_row(lane, encode_value(record), id=name, natural_key=natural)
    if natural is None and not draw(st.integers(0, 9)):
        made = structs.replace(made, payload=None)
    own = draw(st.sampled_from([snapshot, snapshot, snapshot, WHOLE]))
    sending = made.to(State.SENDING, snapshot=own)
    lost = sending.to(State.LOST)
    absent = lost.to(State.DOUBT, verdict=Verdict.ABSENT)
    return draw(st.sampled_from([sending, lost, lost, lost, absent, absent.to(State.CLOSED)]))


@st.composite
def listings(draw: st.DrawFn, key: str, known: list[dict[str, object]]) -> PushOperation:
    same = draw(st.sampled_from(known))
    changed = {**same, **draw(alike)}
    less = {name: value for name, value in same.items() if name != "a"}
    echo = draw(st.sampled_from([None, {}, {"id": "17"}, same, same, changed, less]))
    status = PushStatus.SUCCESS if echo else draw(st.sampled_from(["Success", "Pending"]))
    lane = draw(st.sampled_from(["invoices", "invoices", "bills", None]))
    return evolve(push(key, echo, PushStatus(status)), data_type=lane)


def concluded(
    rows: dict[str, Row],
    listing: ListedPushes | None,
    found: dict[str, Finding],
    *,
    owned: set[str] = frozenset(),  # type: ignore[assignment]  # none
    waited: dict[str, float],
    exclusive: bool,
) -> list[tuple[str, Event, dict[str, Any]]]:
    """What one listing settles; *rows* are changed as it says."""
    asked = [row for row in rows.values() if row.state in {State.LOST, State.DOUBT}]
    rivals: dict[Lane, dict[str, Row]] = {}
    for row in filter(may_own_unclaimed, rows.values()):
        rivals.setdefault(row.lane, {})[row.id] = row
    judging = Judging(asked, listing, {}, exclusive)
    claimed = owned | {row.key for row in rows.values() if row.key}
    free = {key: one for key, one in judging.new.items() if key not in claimed}
    changes = list(
        judging.conclude(rows, rivals, free, found=found, waited=waited, patience=PATIENCE)
    )
    rows.update((row.id, after(row, event, **facts)) for row, event, facts in changes)
    return [(row.id, event, facts) for row, event, facts in changes]


@settings(max_examples=200)
@given(
    companies(),
    st.sets(keys, max_size=2),
    st.dictionaries(st.sampled_from("012345"), st.sampled_from([0.0, PATIENCE, 25 * PATIENCE])),
    st.booleans(),
)
def test_many_at_once_are_judged_as_one_by_one(
    company: Company, owned: set[str], waited: dict[str, float], exclusive: bool
) -> None:
    """Columns and sets settle what comparing each with each settles, listing by listing."""
    plain, rows = ({row.id: row for row in company.rows} for _ in range(2))
    before: dict[str, Finding] = {}
    found: dict[str, Finding] = {}
    for _ in range(5):  # a listing may confirm what the one before suggests
        expected = naive.conclude(
            plain,
            company.listing,
            owned,
            exclusive=exclusive,
            waited=waited,
            patience=PATIENCE,
            before=before,
        )
        told = concluded(
            rows, company.listing, found, owned=owned, waited=waited, exclusive=exclusive
        )
        assert told == list(expected)
    assert rows == plain


@given(alike, alike)
def test_a_record_is_compared_as_its_values_are(
    sent: dict[str, object], echo: dict[str, object]
) -> None:
    """Spelt out by place or walked together: the same is said."""
    said = {True: YES, False: NO, None: UNKNOWN}

    assert match(doubt(sent), push("a", echo)) == said[naive.match(doubt(sent), push("a", echo))]


def test_what_a_listing_settles_stands_in_nobodys_way() -> None:
    """The next one is judged without the rival, and without the push that turned out to be its."""
    named = {"i": ("m", {"m": 1}), "j": ("n", {"n": 1})}
    doubts = [
        doubt(record, natural=natural, name=name) for name, (natural, record) in named.items()
    ]
    own = push("p", {"m": 1, "n": 9})  # says nothing to j but that it is not its own

    by_echo = ListedPushes([push("q", {"n": 1}), own], whole=True)
    assert keys_given(doubts, by_echo, exclusive=False) == {"i": "p", "j": "q"}
    by_being_alone = ListedPushes([push("q"), own], whole=True)
    assert keys_given(doubts, by_being_alone, exclusive=True) == {"i": "p", "j": "q"}


def keys_given(doubts: list[Row], listing: ListedPushes, *, exclusive: bool) -> dict[str, str]:
    rows, found = {row.id: row for row in doubts}, dict[str, Finding]()
    waited = dict.fromkeys(rows, PATIENCE)
    for _ in range(2):
        concluded(rows, listing, found, waited=waited, exclusive=exclusive)
    return {row.id: row.key for row in rows.values() if row.key}


def test_a_listing_that_could_not_be_read_settles_a_search_and_unsettles_no_doubt() -> None:
    """A LOST row is in DOUBT once the patience has passed; what a DOUBT row knows is kept."""
    some = doubt(name="some").to(State.DOUBT, verdict=Verdict.UNRESOLVED, candidates=("k",))
    none = doubt(name="none").to(State.DOUBT, verdict=Verdict.ABSENT)
    rows = {row.id: row for row in (doubt(name="new"), some, none)}

    for waited in (PATIENCE - 1, PATIENCE):
        concluded(rows, None, {}, waited={"new": waited}, exclusive=True)
        assert rows["new"].state is (State.LOST if waited < PATIENCE else State.DOUBT)

    assert rows["new"].verdict is Verdict.UNRESOLVED
    assert (rows["some"], rows["none"]) == (some, none)


def test_a_search_waits_longer_for_what_is_still_pending() -> None:
    """It echoes nothing yet, and may turn out to be ours."""
    pending = ListedPushes([push("k", {}, PushStatus.PENDING)], whole=True)
    ended = ListedPushes([push("k", {})], whole=True)

    for listing, enough in ((ended, PATIENCE), (pending, PENDING_PATIENCE * PATIENCE)):
        for waited in (enough - 1, enough):
            rows = {"i": doubt()}
            concluded(rows, listing, {}, waited={"i": waited}, exclusive=False)
            assert rows["i"].state is (State.DOUBT if waited == enough else State.LOST)


def test_a_row_that_is_carried_is_found_but_not_given_up() -> None:
    """It will be sent again under its idempotency key: only a proof of its key counts."""
    rows = {"i": doubt(natural="invoiceNumber")}

    assert not concluded(rows, ListedPushes([], whole=True), {}, waited={}, exclusive=True)
    shown = ListedPushes([push("k", RECORD)], whole=True)
    assert concluded(rows, shown, {}, waited={}, exclusive=True)
    assert rows["i"].key == "k"


@pytest.mark.parametrize("now", [None, State.OPEN, State.CLOSED])
def test_what_has_changed_since_the_listing_was_requested_is_left_alone(now: State | None) -> None:
    """Somebody has found it, decided about it or let it go in the meantime."""
    asked = doubt()
    rows = {} if now is None else {"i": structs.replace(asked, state=now)}
    judging = Judging([asked], ListedPushes([push("k", ECHO)], whole=True), {}, exclusive=True)

    changes = judging.conclude(
        rows, {}, judging.new, found={}, waited={"i": PATIENCE}, patience=PATIENCE
    )

    assert not list(changes)


def test_each_doubt_is_compared_once() -> None:
    """300 doubts and 300 pushes are 300 comparisons, not 90,000."""
    many = [{"invoiceNumber": f"INV-{number}", "amount": 10} for number in range(300)]
    doubts = [doubt(record, name=str(number)) for number, record in enumerate(many)]
    listed = [push(f"key-{number}", record) for number, record in enumerate(many)]
    compared = 0

    def count(frame: FrameType, event: str, _: object) -> None:
        nonlocal compared
        compared += event == "call" and frame.f_code is Echoes.compare.__code__

    sys.setprofile(count)
    try:
        found = keys_given(doubts, ListedPushes(listed, whole=True), exclusive=False)
    finally:
        sys.setprofile(None)

    assert found == {str(number): f"key-{number}" for number in range(300)}
    assert compared == 300
