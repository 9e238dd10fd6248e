"""What `PushOptions.check` promises."""

import pickle
from datetime import UTC, date, datetime
from decimal import Decimal
from typing import Any

import attrs
import pytest

from integration_sdk import Problem
from tests.support.options_support import Json, choices, options, prop


def found(problems: list[Problem]) -> list[tuple[str, str]]:
    return [(problem.path, problem.code) for problem in problems]


INVOICE = options(
    issueDate=prop("DateTime", required=True),
    status=choices("draft", "submitted", required=True),
    customerRef=prop("Object", properties={"id": prop(required=True), "name": prop()}),
    lineItems=prop(
        "Array",
        required=True,
        displayName="Line Items",
        properties={
            "description": prop(),
            "quantity": prop("Number", required=True, displayName="Quantity"),
            "accountRef": prop("Object", required=True, properties={"id": prop(required=True)}),
        },
    ),
)
LINE: Json = {"quantity": 1, "accountRef": {"id": "200"}}
GOOD: Json = {"issueDate": "2024-05-31", "status": "draft", "lineItems": [LINE]}


def test_problems_come_in_record_order() -> None:
    """What is there comes in the record's own order, then what is missing."""
    record = {"surprise": 1, "status": "lost", "lineItems": [{"quantity": []}]}

    assert found(INVOICE.check(record)) == [
        ("surprise", "unlisted"),
        ("status", "not_a_choice"),
        ("lineItems[0].quantity", "required"),
        ("lineItems[0].accountRef", "required"),
        ("issueDate", "required"),
    ]


# Types

DAYS = [
    *("2024-02-29", "2024-05-31T09:30", "2024-05-31T09:30:00.1234567Z"),
    "2024-05-31T23:59:59+02:00",
]


@pytest.mark.parametrize(
    ("kind", "right", "wrong"),
    [
        ("String", ["a", ""], [1, True, ["a"], {"a": 1}]),
        ("Number", [0, -1, 1.5, Decimal("0.10"), 2**70], ["1", True, [1]]),
        ("Boolean", [True, False], ["true", 1, 0]),
        ("DateTime", DAYS, ["31/05/2024", "2023-02-32", "2024-05-31 09:30", "today", "", 20240531]),
        ("DateTime", [date(2024, 5, 31), datetime(2024, 5, 31, tzinfo=UTC)], ["2024-05-31T24:00"]),
        ("Object", [{}, {"a": 1}], ["a", [{}], 1]),
        ("Array", [[], [1], ("a",)], ["a", {"0": 1}]),
        ("File", ["a", 1, {}, []], []),
        ("MultiPart", ["a", 1, {}, []], []),
        ("Duration", ["a", 1, {}, []], []),
    ],
)
def test_value_must_be_of_its_type(kind: str, right: list[Any], wrong: list[Any]) -> None:
    """Each type takes its own values and no others; one that is not known takes any."""
    described = options(it=prop(kind))

    assert [value for value in right if described.check({"it": value})] == []
    assert [value for value in wrong if not described.check({"it": value})] == []
    assert {p.code for value in wrong for p in described.check({"it": value})} <= {"wrong_type"}


# Choices


def test_a_message_says_what_would_be_right() -> None:
    """Messages name the property as the platform calls it, what is right, and what was meant."""
    wrong_type = {**LINE, "quantity": "3"}
    problems = INVOICE.check({**GOOD, "status": "Drafted", "lineItems": [wrong_type]})

    assert list(map(str, problems)) == [
        'status: status must be "draft" or "submitted", not "Drafted".',
        'lineItems[0].quantity: Quantity must be a number, not "3".',
    ]


@attrs.frozen
class Order:
    date: date
    lines: list[Decimal]


TAGS = choices("a", "b", kind="Array")
PARTLY = {"it": prop(options=[{"displayName": "Invoice"}, {"value": "note"}])}
LABELS = {"it": prop(options=[{"displayName": "Invoice"}, {"displayName": "CreditNote"}])}
RATES = {"rate": choices("20", "x", kind="Number"), "paid": choices("True", kind="Boolean")}
ID = {"id": prop(required=True)}
LINES = {"it": prop("Array", properties=ID)}
NEEDED = {"it": prop("Array", required=True)}
RULED = {"it": prop(validation={"warnings": [{"details": "Max length of 2 characters."}]})}
ORDER = {"date": prop("DateTime", required=True), "lines": prop("Array")}
SMALL: list[tuple[Json, Any, list[tuple[str, str]]]] = [
    # The options, a record, and its problems.
    (NEEDED, {}, [("it", "required")]),
    (NEEDED, {"it": None}, [("it", "required")]),
    (NEEDED, {"it": []}, [("it", "required")]),
    ({"it": prop(required=True)}, {"it": ""}, [("it", "required")]),
    ({"it": prop("Object", properties=ID)}, {"it": None}, []),
    ({"it": prop("Object", properties=ID)}, {"it": {}}, [("it.id", "required")]),
    ({"it": prop("Array", required=True)}, {"it": ["a", None, {"b": [1]}]}, []),
    ({"it": prop("Object")}, {"it": {"any": "thing"}}, []),
    ({}, {"any": "thing"}, []),
    ({"a": prop("Number"), "b": choices("x"), "c": prop("Sphere")}, dict.fromkeys("abc"), []),
    ({"it": prop("Thing", properties=ID)}, {"it": "whole"}, []),
    ({"it": prop("Thing", properties=ID)}, {"it": {}}, [("it.id", "required")]),
    ({"it": prop("Object", properties={"id": prop()})}, {"zzz": None, "it": {"zzz": None}}, []),
    ({"it": prop("Object", options=[{"value": "x"}], properties=ID)}, {"it": {"id": "1"}}, []),
    ({"a": prop(options=[]), "b": prop(options=[{"type": "String"}])}, {"a": "x", "b": "y"}, []),
    ({"it": choices("", "x", required=True)}, {"it": ""}, []),
    (
        {"it": prop(required=True, options=[{"displayName": "x"}, {"value": ""}])},
        {"it": ""},
        [("it", "required")],
    ),
    (RATES, {"rate": 20, "paid": True}, []),
    (RATES, {"rate": Decimal("20.0"), "paid": "True"}, []),
    (RATES, {"rate": True, "paid": 1}, [("rate", "not_a_choice"), ("paid", "not_a_choice")]),
    ({"it": prop("Number", options=[{"value": 0.1}])}, {"it": Decimal("0.1")}, []),
    (RULED, {"it": "long"}, []),  # what a sentence means only the platform can tell
    (ORDER, Order(date(2024, 5, 31), [Decimal("1.50")]), []),  # as the JSON that it is sent as
    (LINES, {"it": [{"id": "1"}, {}]}, [("it[1].id", "required")]),
    (LINES, {"it": [{"id": "1"}, "a line"]}, [("it[1]", "wrong_type")]),
    (PARTLY, {"it": "Invoice"}, []),
    (PARTLY, {"it": "note"}, []),
    (PARTLY, {"it": "inv-1"}, [("it", "not_a_choice")]),  # a warning
    (PARTLY, {"it": 5}, [("it", "wrong_type")]),
    (LABELS, {"it": "CreditNote"}, []),
    (LABELS, {"it": "Bill"}, [("it", "not_a_choice")]),
    ({"it": TAGS}, {"it": ["a", "b"]}, []),
    ({"it": TAGS}, {"it": ["a", "c"]}, [("it[1]", "not_a_choice")]),
    ({"it": TAGS}, {"it": [None]}, [("it[0]", "required")]),
]


@pytest.mark.parametrize(("described", "record", "problems"), SMALL)
def test_small_cases(described: Json, record: Any, problems: list[tuple[str, str]]) -> None:
    """Null, unknown types, undescribed parts and odd choices, each as the rules say."""
    assert found(options(**described).check(record)) == problems


# Unlisted


def test_a_label_is_answered_with_its_value() -> None:
    """Someone who submits what the form shows is told what to submit instead; in any case."""
    entries = [{"value": f"A{n}", "displayName": f"Account {n}"} for n in range(5_000)]
    described = options(account=prop("String", options=entries))

    def message(**record: str) -> str:
        (problem,) = described.check(record)
        return problem.message

    assert message(account="Acount 77") == (
        'account must be one of 5000 choices such as "A0", "A1", "A2", not "Acount 77".'
    )
    assert message(account="account 77").endswith('not "account 77"; did you mean "A77"?')
    assert message(account="a77").endswith('not "a77"; did you mean "A77"?')
    assert message(Account="A77").endswith('may be dropped; did you mean "account"?')


# Records and options as values


@pytest.mark.parametrize("record", [[], "record", None, {"n": float("nan")}, {"n": object()}])
def test_what_cannot_be_sent_is_one_error(record: Any) -> None:
    """A record that is no object, or no JSON, is a problem of its own and not an exception."""
    (problem,) = INVOICE.check(record)

    assert (problem.path, problem.code, problem.is_error) == ("", "wrong_type", True)


def test_a_repr_fits_into_a_line() -> None:
    """However many properties there are."""
    assert repr(INVOICE) == "<PushOptions of Invoice: 4 properties, 3 required>"
    assert len(repr(INVOICE.properties["lineItems"])) < 250


def test_options_stay_values_after_use() -> None:
    """Checking leaves equality, copies and pickles as they were."""
    used, again = (options(a=prop(required=True)) for _ in range(2))
    assert used.check({})

    assert used == again == pickle.loads(pickle.dumps(used))  # noqa: S301  (our own bytes)
    assert attrs.evolve(used, properties={}).check({}) == []
