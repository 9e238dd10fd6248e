"""Many doubts in a search: the verdicts of the plain rule, without comparing each with each."""

import json
from collections.abc import Sequence
from typing import Any

import pytest
from attrs import frozen
from hypothesis import given, settings
from hypothesis import strategies as st
from integration_sdk._push.effects import (
    Commit,
    FindOwners,
    Ledger,
    ListPushes,
    Policy,
    ReadSingly,
)

from integration_sdk._push import reconcile
from integration_sdk._push.agreement import Echoes, Said
from integration_sdk._push.evidence import ListedPushes, Verdict
from integration_sdk._push.table import new_intent
from integration_sdk._store.row import DOUBTED, Intent, Lane, Snapshot, State
from integration_sdk.models import PushOperation, PushStatus
from tests import protocol_naive as naive

INVOICES, BILLS = (Lane("company", "books", name) for name in ("invoices", "bills"))
WHOLE, PART = Snapshot(frozenset("h")), Snapshot(frozenset("gh"), whole=False)
VALUES: list[object] = [None, 1, "1", 2, "2024-01-31", "2024-01-31T00:00:00Z", {}, [], [1], [2]]
values = st.sampled_from([*VALUES, [None], {"d": 1}])
records = st.fixed_dictionaries(
    {}, optional={"n": st.sampled_from([1, 2]), "a": values, "b": st.just({"c": 1}), "e": values}
)
keys = st.sampled_from("abcdefgh")
A_FEW = 6


@frozen
class World:
    """Intents that are in doubt or rivals, and what one listing shows."""

    rows: list[Intent]
    listing: ListedPushes


@st.composite
def worlds(draw: st.DrawFn) -> World:
    """Mostly one lane and one snapshot; records and echoes are alike more often than not."""
    known = draw(st.lists(records, min_size=1, max_size=3))
    snapshot = draw(st.sampled_from([WHOLE, WHOLE, PART, None]))
    rows = [
        draw(intents(str(number), known, snapshot)) for number in range(draw(st.integers(1, A_FEW)))
    ]
    listed = [draw(pushes(key, known)) for key in draw(st.lists(keys, unique=True))]
    newest_first = [*listed, *([push_of("h")] if draw(st.booleans()) else [])]
    unique = {one.push_operation_key: one for one in newest_first}
    return World(rows, ListedPushes(list(unique.values()), whole=draw(st.booleans())))


@st.composite
def intents(
    draw: st.DrawFn, name: str, known: list[dict[str, object]], snapshot: Snapshot | None
) -> Intent:
    record = draw(st.sampled_from(known))
    body = json.dumps(record).encode() if draw(st.integers(0, 9)) else None
    natural = "n" if body and "n" in record and draw(st.booleans()) else None
    lane = draw(st.sampled_from([INVOICES, INVOICES, INVOICES, BILLS]))
    own = draw(st.sampled_from([snapshot, snapshot, snapshot, WHOLE]))
    row = new_intent(lane, body, id=name, natural_key=natural).to(State.SENDING, snapshot=own)
    doubted = row.to(State.AMBIGUOUS)
    return draw(st.sampled_from([row, doubted, doubted, doubted, doubted.to(State.ABSENT)]))


@st.composite
def pushes(draw: st.DrawFn, key: str, known: list[dict[str, object]]) -> PushOperation:
    same = draw(st.sampled_from(known))
    changed = {**same, **draw(records)}
    less = {name: value for name, value in same.items() if name != "a"}
    echo = draw(st.sampled_from([None, {}, {"id": "17"}, same, same, changed, less]))
    return push_of(key, echo, draw(st.sampled_from(["invoices", "invoices", "bills", None])))


def push_of(key: str, echo: Any = None, data_type: str | None = "invoices") -> PushOperation:
    return PushOperation(
        push_operation_key=key,
        company_id="company",
        data_connection_id="books",
        data_type=data_type,
        status=PushStatus.SUCCESS,
        data=echo,
    )


def examined(
    ledger: Ledger,
    listing: ListedPushes,
    owned: set[str],
    searched_enough: set[str],
    *,
    exclusive: bool,
) -> list[Intent]:
    """The rows that a search commits."""
    machine = reconcile.search_again(
        ledger, "company", policy=Policy(exclusive=exclusive), searched_enough=searched_enough
    )
    report: Any = None
    committed: list[Intent] = []
    while True:
        try:
            effect = machine.send(report)
        except StopIteration:
            return committed
        match effect:
            case ListPushes():
                report = listing
            case FindOwners():
                report = owned & effect.keys
            case Commit():
                committed.extend(effect.rows)
                report = None
            case ReadSingly():
                report = ()


@settings(max_examples=500)
@given(worlds(), st.sets(keys, max_size=2), st.sets(st.sampled_from("012345")), st.booleans())
def test_many_at_once_are_judged_as_one_by_one(
    world: World, owned: set[str], searched_enough: set[str], exclusive: bool
) -> None:
    """Columns and sets give the verdicts that comparing each with each gives."""
    ledger = ledger_of(world.rows)
    others = [row for row in world.rows if row.state is State.SENDING]

    before: dict[str, Verdict] = {}
    expected = {row.id: row for row in ledger.doubted()}
    for _ in range(20):  # a listing may confirm what the one before suggests
        asked = [row for row in expected.values() if row.state in DOUBTED]
        settled = [row for row in expected.values() if row.state not in DOUBTED]
        changed = naive.examine(
            asked,
            [*others, *settled],
            world.listing,
            owned,
            exclusive=exclusive,
            searched_enough=searched_enough,
            before=before,
        )
        expected.update((row.id, row) for row in changed)
    for _ in range(10):
        examined(ledger, world.listing, owned, searched_enough, exclusive=exclusive)

    assert {name: ledger.get(name) for name in expected} == expected


def ledger_of(rows: Sequence[Intent]) -> Ledger:
    ledger = Ledger()
    for row in rows:
        ledger.note(row)
    return ledger


@given(records, records)
def test_a_record_is_compared_as_its_values_are(
    sent: dict[str, object], echo: dict[str, object]
) -> None:
    """Spelt out by place or walked together: the same is said."""
    row = new_intent(INVOICES, json.dumps(sent).encode(), id="i")
    said = {True: Said(1, 0), False: Said(0, 0), None: Said(0, 1)}

    assert Echoes([echo]).compare(row) == said[naive.match(row, push_of("a", echo))]


def test_what_a_look_settles_stands_in_nobodys_way() -> None:
    """The next one is judged without the rival, and without the push that turned out to be its."""
    named = {"i": ("m", {"m": 1}), "j": ("n", {"n": 1})}
    rows = [
        new_intent(INVOICES, json.dumps(record).encode(), id=name, natural_key=natural)
        .to(State.SENDING, snapshot=Snapshot(frozenset()))
        .to(State.AMBIGUOUS)
        for name, (natural, record) in named.items()
    ]
    own = push_of("p", {"m": 1, "n": 9})  # says nothing to j but that it is not its own

    by_echo = ListedPushes([push_of("q", {"n": 1}), own], whole=True)
    assert keys_given(rows, by_echo, exclusive=False) == {"i": "p", "j": "q"}
    by_being_alone = ListedPushes([push_of("q"), own], whole=True)
    assert keys_given(rows, by_being_alone, exclusive=True) == {"i": "p", "j": "q"}


def keys_given(
    rows: list[Intent], listing: ListedPushes, *, exclusive: bool
) -> dict[str, str | None]:
    searched_enough = {row.id for row in rows}
    ledger = ledger_of(rows)
    found = [
        row
        for _ in range(2)
        for row in examined(ledger, listing, set(), searched_enough, exclusive=exclusive)
    ]
    return {row.id: row.key for row in found}


def test_a_look_compares_each_doubt_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """300 doubts and 300 pushes are 300 comparisons and one commit, not 90,000."""
    compared: list[str] = []
    right = Echoes.compare

    def counted(self: Echoes, intent: Intent) -> Said:
        compared.append(intent.id)
        return right(self, intent)

    monkeypatch.setattr(Echoes, "compare", counted)
    records = [{"invoiceNumber": f"INV-{number}", "amount": 10} for number in range(300)]
    rows = [
        new_intent(INVOICES, json.dumps(record).encode(), id=str(number))
        .to(State.SENDING, snapshot=WHOLE)
        .to(State.AMBIGUOUS)
        for number, record in enumerate(records)
    ]
    listed = [push_of(f"key-{number}", record) for number, record in enumerate(records)]

    found = keys_given(rows, ListedPushes([*listed, push_of("h")], whole=True), exclusive=False)

    assert found == {str(number): f"key-{number}" for number in range(300)}
    assert len(compared) == 300
