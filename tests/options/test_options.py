"""What `PushOptions` promises of `check`, and then of `json_schema` and `form`."""

import json
import pickle
import re
from datetime import UTC, date, datetime
from decimal import Decimal
from typing import Any

import attrs
import pytest
from hypothesis import event, given
from hypothesis import strategies as st
from jsonschema import Draft202012Validator  # type: ignore[import-untyped]  # it ships no types

from integration_sdk import Problem, PushOptions
from integration_sdk._options.description import DATE_TIME
from integration_sdk._records.codec import encode_record
from integration_sdk._records.shapes import structure
from integration_sdk.models import OptionEntry, PropertyDescription

Json = dict[str, Any]


def options(**properties: Json) -> PushOptions:
    described = {"type": "Object", "displayName": "Invoice", "properties": properties}
    return PushOptions.of(structure({**described, "required": True}, PropertyDescription))


def prop(kind: str = "String", *, required: bool = False, **more: Any) -> Json:
    return {"type": kind, "required": required, **more}


def choices(*values: str, kind: str = "String", required: bool = False) -> Json:
    listed = [{"value": value, "displayName": value.title()} for value in values]
    return prop(kind, required=required, options=listed)


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


# Any description, any record

NAMES = st.sampled_from(["id", "status", "Id", "line items", "a.b"])
TEXTS = ["", "x", "20", "true", "2024-02-29", "2023-02-29", "2024-05-31T09:30:00Z"]
NUMBERS = [0, 1, 20, -1, 1.5, 20.0, Decimal("0.10"), 2**60]
SCALARS: st.SearchStrategy[Any] = st.sampled_from([None, True, False, *TEXTS, *NUMBERS])
JSON = st.recursive(
    SCALARS,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(NAMES, inner, max_size=3),
    max_leaves=6,
)
TYPES = st.sampled_from(
    ["Object", "Array", "String", "Number", "Boolean", "DateTime", "File", "Duration", None]
)
CHOICES = st.builds(
    OptionEntry,
    value=st.sampled_from([None, "x", "20", "True", "", 1, True, 0.1, 20.0]),
    display_name=st.sampled_from([None, "x", "Label"]),
)
DESCRIPTIONS: st.SearchStrategy[PropertyDescription] = st.deferred(
    lambda: st.builds(
        PropertyDescription,
        type=TYPES,
        display_name=st.sampled_from([None, "Shown"]),
        description=st.sampled_from([None, "Said"]),
        required=st.booleans(),
        properties=st.just({}) | st.dictionaries(NAMES, DESCRIPTIONS, max_size=3),
        options=st.just([]) | st.just([]) | st.lists(CHOICES, max_size=3),
    )
)
OPTIONS = DESCRIPTIONS.map(PushOptions.of)
PLAIN = {"String": "x", "Number": Decimal("1.5"), "Boolean": True, "DateTime": "2024-02-29"}


def fitting(described: PropertyDescription) -> st.SearchStrategy[Any]:
    """Values that are mostly right for *described*, so that verdicts fall both ways."""
    listed = [entry.value for entry in described.options if entry.value is not None]
    plain: Any = PLAIN.get(described.type or "", {})
    right: st.SearchStrategy[Any] = st.sampled_from(listed or [plain])
    if described.properties:
        right = fitting_object(described)
    if described.type == "Array":
        right = st.lists(right, min_size=1, max_size=2)
    return st.integers(0, 9).flatmap(lambda die: JSON if die == 0 else right)


def fitting_object(described: PropertyDescription) -> st.SearchStrategy[dict[str, Any]]:
    members = {name: fitting(member) for name, member in described.properties.items()}
    needed = {name: m for name, m in members.items() if described.properties[name].required}
    free = {name: m for name, m in members.items() if name not in needed}
    return st.fixed_dictionaries(needed, optional={**free, "surplus": SCALARS})


@given(st.data(), OPTIONS)
def test_schema_refuses_what_the_check_calls_an_error(
    data: st.DataObject, described: PushOptions
) -> None:
    """For any options and any record, a valid JSON Schema and check give the same verdict."""
    wild = st.dictionaries(NAMES, JSON, max_size=4)
    record = data.draw(fitting_object(described) | wild)

    refused = any(problem.is_error for problem in described.check(record))

    event("refused" if refused else "accepted")
    schema = json.loads(json.dumps(described.json_schema()))
    Draft202012Validator.check_schema(schema)
    valid = Draft202012Validator(schema).is_valid(json.loads(encode_record(record)))
    assert valid is not refused


@given(st.integers(0, 9999), st.integers(0, 13), st.integers(0, 32))
def test_dates_of_the_schema_are_days(year: int, month: int, day: int) -> None:
    """The pattern for a DateTime takes any day of 31 in a month; 30 February is the platform's."""
    text = f"{year:04}-{month:02}-{day:02}"
    exists = year > 0 and 1 <= month <= 12 and 1 <= day <= 31

    assert bool(re.search(DATE_TIME, text)) is exists
    assert bool(re.search(DATE_TIME, f"{text}T23:59:59.1234567+05:30")) is exists
    assert not re.search(DATE_TIME, f"{text}\n")


# What they look like


LABELLED = [{"value": "d", "displayName": "Draft"}, {"value": "s", "displayName": "Submitted"}]
QUANTITY = prop(
    "Number",
    description="How many",
    validation={"information": [{"details": "Must be greater than 0"}]},
)
SHOWN = options(
    issueDate=prop("DateTime", displayName="Issue Date", required=True),
    paid=prop("Boolean"),
    scan=prop("File"),
    status=prop(description="How far it got", options=LABELLED),
    currency=prop(required=True, options=[{"value": "GBP"}]),
    customerRef=prop("Object", properties={"id": prop(required=True)}),
    lineItems=prop(
        "Array",
        displayName="Line Items",
        validation={"warnings": [{"details": "Only one line is supported"}]},
        properties={"quantity": QUANTITY},
    ),
    tags=prop("Array", options=[{"value": "a"}]),
    kind=prop(options=[{"displayName": "Invoice"}, {"value": "note"}]),
    terms=prop(options=[{"value": "net"}]),
    vessel=prop("Vessel", properties={"id": prop()}),
)


def test_schema_reads_as_one_would_write_it() -> None:
    """Titles, descriptions, rules, choices and requirements end up where JSON Schema has them."""
    schema = SHOWN.json_schema()
    properties = schema["properties"]

    assert schema["title"] == "Invoice"
    assert schema["$schema"] == "https://json-schema.org/draft/2020-12/schema"
    assert schema["required"] == ["issueDate", "currency"]
    assert properties["status"] == {
        "description": "How far it got",
        "oneOf": [
            {"const": "d", "title": "Draft"},
            {"const": "s", "title": "Submitted"},
            {"const": None, "title": "(none)"},
        ],
    }
    assert properties["currency"] == {"enum": ["GBP"]}
    assert properties["customerRef"] == {
        "type": ["object", "null"],
        "properties": {"id": {"type": "string", "minLength": 1}},
        "required": ["id"],
    }
    assert properties["terms"] == {"enum": ["net", None]}
    # Where some values are not told the schema lists what is known, and enforces nothing.
    assert properties["kind"] == {"type": ["string", "null"], "examples": ["Invoice", "note"]}
    assert properties["lineItems"] == {
        "title": "Line Items",
        "description": "Only one line is supported",
        "type": ["array", "null"],
        "items": {
            "title": "Line Items",
            "type": "object",
            "properties": {
                "quantity": {
                    "type": ["number", "null"],
                    "description": "How many\nMust be greater than 0",
                }
            },
        },
    }


def test_form_draws_each_type_as_its_control() -> None:
    """A property with choices is a selection; the others follow their type, entries nested,
    with path, help and rules in words.
    """
    controls = {control.name: control for control in SHOWN.form()}

    assert ", ".join(f"{name} {control.kind.value}" for name, control in controls.items()) == (
        "issueDate date, paid checkbox, scan file, status selection, currency selection, "
        "customerRef group, lineItems list, tags list, kind selection, terms selection, "
        "vessel group"
    )
    assert (controls["issueDate"].label, controls["issueDate"].required) == ("Issue Date", True)
    assert controls["status"].choices == (("d", "Draft"), ("s", "Submitted"))
    assert controls["status"].help == "How far it got"
    assert controls["tags"].choices == (("a", "a"),)
    (quantity,) = controls["lineItems"].controls
    assert attrs.asdict(quantity) == {
        "kind": "number",
        "name": "quantity",
        "path": "lineItems[].quantity",
        "label": "quantity",
        "help": "How many",
        "required": False,
        "choices": (),
        "rules": ("Must be greater than 0",),
        "controls": (),
    }
