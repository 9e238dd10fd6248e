"""Which push of a list is ours: laws of the comparison, and each rule of the evidence."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from itertools import product
from typing import Any

import msgspec
import pytest
from attrs import evolve
from hypothesis import given
from hypothesis import strategies as st
from msgspec import structs

from integration_sdk._push.agreement import (
    Match,
    as_written,
    leaf,
    match_key,
    match_record,
    natural_value,
    value_at,
)
from integration_sdk._push.evidence import Finding, Judging, Listing, may_resend
from integration_sdk._push.table import Event
from integration_sdk._store.row import Lane, Mark, Row, State, Verdict
from integration_sdk.dialect import Dialect
from integration_sdk.models import PushChange, PushOperation, PushStatus, RecordRef
from tests.support.rows import new_row

DOCUMENT = Dialect.document()
LANE = Lane("company", "books", "invoices")
BEGAN = datetime(2026, 1, 1, tzinfo=UTC)
numbers = st.integers(-(10**6), 10**6) | st.decimals(
    -1000, 1000, places=3, allow_nan=False, allow_infinity=False
)
leaves = st.none() | st.booleans() | numbers | st.text(max_size=5)
records = st.dictionaries(
    st.text("abc", min_size=1, max_size=2),
    st.recursive(
        leaves,
        lambda inner: (
            st.lists(inner, max_size=3)
            | st.dictionaries(st.text("ab", min_size=1, max_size=1), inner, max_size=3)
        ),
        max_leaves=6,
    ),
    max_size=4,
)


def tells(record: Any) -> bool:
    """Whether a record has a single value."""
    if isinstance(record, dict):
        return any(map(tells, record.values()))
    if isinstance(record, list):
        return any(map(tells, record))
    return record is not None


@given(records, st.dictionaries(st.just("added"), leaves, max_size=1))
def test_what_we_sent_agrees_with_itself(record: dict[str, Any], more: dict[str, Any]) -> None:
    """Whatever we send, its own copy agrees; an echo may say more than we sent."""
    expected = Match.AGREES if tells(record) else Match.SILENT
    assert match_record(record, {**record, **more}) in {expected, Match.SILENT}


@given(records, st.data())
def test_one_other_value_is_another_record(record: dict[str, Any], data: st.DataObject) -> None:
    """A value that is missing contradicts nothing."""
    told = [name for name, value in record.items() if isinstance(value, str | int | Decimal)]
    if not told:
        return
    name = data.draw(st.sampled_from(told))
    other = {**record, name: f"not {record[name]}"}

    assert match_record(record, other) is Match.DIFFERS
    rest = {key: record[key] for key in record if key != name}
    assert match_record(record, rest) is Match.SILENT


SPELT: list[tuple[Any, Any, bool]] = [
    (10, Decimal("10.00"), True),
    (Decimal("0.10"), 0.1, True),
    ("2024-01-31", "2024-01-31T00:00:00Z", True),
    ("2024-01-31T10:00:00+02:00", "2024-01-31T08:00:00", True),
    ("9999-12-31T23:59:59-05:00", "9999-12-31T23:59:59-05:00", True),
    *((True, 1, False), ("10", 10, False), (1, 1.0000001, False), ("a", "A", False)),
    (10**20, 10**20 + 1, False),
]


@pytest.mark.parametrize(("sent", "spelt", "is_same"), SPELT)
def test_values_are_compared_by_meaning(sent: Any, spelt: Any, is_same: bool) -> None:
    """The platform spells values in its own way; nothing is the same that may differ."""
    assert (leaf(sent) == leaf(spelt)) is is_same


@pytest.mark.parametrize("written", ["INV-7", " inv-7 ", "Inv-7"])
def test_a_natural_key_is_compared_as_it_is_written_down(written: str) -> None:
    """Platforms trim it and change its case, and turn numbers into text."""
    assert match_key("text INV-7", "number", {"number": written}) is Match.AGREES
    assert match_key("text INV-8", "number", {"number": written}) is Match.DIFFERS
    assert match_key("text INV-7", "number", {"another": written}) is Match.SILENT
    assert as_written(str(leaf(7))) == as_written(str(leaf("7")))


def test_a_path_leads_through_objects_and_lists() -> None:
    """Or nowhere; a key that names no single value is refused."""
    record = {"a": [{"b": 1}], "c": {}, "blank": " "}
    assert value_at(record, "a.0.b") == 1
    assert value_at(record, "a.1.b") is value_at(record, "a.b") is None
    payload = msgspec.json.encode(record)
    assert natural_value(payload, "a.0.b") == "number 1"
    for path in ("a", "c", "x", "blank"):
        with pytest.raises(ValueError, match="names no single value"):
            natural_value(payload, path)


def push(key: str, number: int | None = None, *, at: float = 100.0, **facts: Any) -> PushOperation:
    status = PushStatus.PENDING if number is None else PushStatus.SUCCESS
    made = PushOperation(
        push_operation_key=key,
        company_id="company",
        status=status,
        data_connection_id="books",
        data_type="invoices",
        requested_on_utc=BEGAN + timedelta(seconds=at),
        data=None if number is None else {"number": number, "id": key},
    )
    return evolve(made, **facts)


def row(number: int = 1, *, state: State = State.LOST, **facts: Any) -> Row:
    facts = {"natural_key": "number"} | facts
    made = new_row(
        LANE,
        b'{"number":%d}' % number,
        id=facts.pop("id", "mine"),
        natural_key=facts["natural_key"],
    )
    return structs.replace(made, state=state, ghosts=1, mark=MARK, **facts)


OLD = push("old", 0, at=0.0)
MARK = Mark(("old",), whole=False, latest=BEGAN.timestamp(), taken_at=int(BEGAN.timestamp()))


def conclude(
    listed: Sequence[PushOperation],
    *rows: Row,
    rivals: Sequence[Row] = (),
    waited: float = 100.0,
    before: Finding | None = None,
    exclusive: bool = False,
    at: int | None = None,
) -> dict[str, tuple[Finding, Event | None]]:
    """Judge *rows* by one listing, newest first."""
    judging = Judging(rows, Listing(listed, whole=False, at=at), DOCUMENT, exclusive)
    concluded = judging.conclude(
        rows,
        [*rows, *rivals],
        dict(judging.new),
        before={one.id: before for one in rows},
        waited={one.id: waited for one in rows if one.state is State.LOST},
        patience=30.0,
    )
    return {one.id: (finding, event) for one, finding, event, _ in concluded}


def found(said: dict[str, tuple[Finding, Event | None]], name: str = "mine") -> str | None:
    finding, event = said[name]
    return finding.key if event is Event.FOUND else None


@pytest.mark.parametrize(
    "listed",
    [
        [push("b", 1), push("a", 1), OLD],  # two agree
        [push("a", 1)],  # it does not reach back
        [OLD, push("a", 1)],  # below the mark
        [push("a", 1, at=-1.0), OLD],  # older than the mark, by its time
        [push("b", 2, at=50.0), push("a", 1, at=60.0), OLD],  # in disorder
        [push("a", 1), push("a", 1), OLD],  # a key twice
        [push("a", 1, data_type="bills"), OLD],  # another lane
        [push("a", 1, changes=[PushChange(type="AttachmentUploaded")]), OLD],  # another kind
    ],
)
def test_what_proves_nothing_is_no_find(listed: list[PushOperation]) -> None:
    """However long it has been searched for, and twice in a row."""
    before = conclude(listed, row())["mine"][0]
    assert found(conclude(listed, row(), before=before)) is None


def test_an_attachment_may_be_another_file_of_its_record() -> None:
    """It is found only as a sole writer's; and is no candidate of a record that was lost."""
    changes = [PushChange(type="AttachmentUploaded", record_ref=RecordRef(id="r-1"))]
    created = [PushChange(type="Created")]
    listed = [push("f", 5, changes=changes), push("a", 1, changes=created), OLD]
    attached = row(natural_key=None, content_type="multipart/form-data", record_id="r-1", id="file")
    said = conclude(listed, row(), attached)
    assert (found(said), found(said, "file")) == ("a", None)
    assert said["file"][0].candidates == ("f",)
    before = conclude(listed, attached, exclusive=True)["file"][0]
    assert found(conclude(listed, attached, exclusive=True, before=before), "file") == "f"


@pytest.mark.parametrize("timed", ["both", "mark", "push"])
def test_a_sole_writer_s_push_is_told_by_the_times_of_the_service(timed: str) -> None:
    """Without them it may be an old one, which the list left out when the mark was taken."""
    mark = MARK if timed != "push" else structs.replace(MARK, taken_at=None)
    when: dict[str, Any] = {"requested_on_utc": None} if timed == "mark" else {}
    lost = structs.replace(row(natural_key=None), mark=mark)
    listed = [push("a", 2, **when), OLD]
    before = conclude(listed, lost, exclusive=True)["mine"][0]
    said = found(conclude(listed, lost, exclusive=True, before=before))
    assert said == ("a" if timed == "both" else None)


def test_a_push_that_an_earlier_process_sent_is_not_sent_again() -> None:
    """Its row is QUEUED, since the file was restored: one push agrees on the natural key."""
    queued = structs.replace(row(), state=State.QUEUED, ghosts=0, mark=None)
    for listed, key in (
        ([push("a", 1), push("b", 2)], "a"),
        ([push("a", 1), push("b", 1)], None),
        ([push("a", 1, status=PushStatus.FAILED)], None),
        ([push("b", 2)], None),
    ):
        judging = Judging([queued], Listing(listed, whole=False), DOCUMENT, exclusive=False)
        assert judging.judge(queued, [], judging.new).key == key
    judging = Judging([queued], Listing([push("a", 1)], whole=False), DOCUMENT, exclusive=False)
    assert judging.judge(queued, [row(id="twin")], judging.new).key is None


def test_only_one_case_is_sent_again() -> None:
    """ABSENT on record and in the last list, a create, its natural key; and not for ever."""
    unknown = Finding(Verdict.UNRESOLVED)
    names = ("state", "verdict", "method", "natural_key", "payload", "candidates", "ghosts")
    cases = product(
        State,
        Verdict,
        ("POST", "PUT"),
        ("number", None),
        (b"{}", None),
        ((), ("k-1",)),
        (4, 5),
        (Finding(Verdict.ABSENT), None, unknown, evolve(unknown, candidates=("k-1",))),
    )

    def may(case: tuple[Any, ...]) -> bool:
        *facts, said = case
        sought = structs.replace(row(), **dict(zip(names, facts, strict=True)))
        return may_resend(sought, said, transmissions=5)

    assert [case for case in cases if may(case)] == [
        (State.DOUBT, Verdict.ABSENT, "POST", "number", b"{}", (), 4, Finding(Verdict.ABSENT))
    ]
