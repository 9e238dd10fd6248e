"""What `PushOptions.check` promises."""

import copy
import pickle
from dataclasses import dataclass
from datetime import UTC, date, datetime
from decimal import Decimal
from typing import Any
from uuid import UUID

import attrs
import msgspec
import pytest

from integration_sdk import Problem, ProblemCode, PushOptions, Severity
from integration_sdk._options import check
from integration_sdk._records.codec import encode_value
from integration_sdk._records.shapes import structure
from integration_sdk.models import PropertyDescription

Json = dict[str, Any]


def options(**properties: Json) -> PushOptions:
    described = {"type": "Object", "displayName": "Invoice", "properties": properties}
    return PushOptions.of(structure({**described, "required": True}, PropertyDescription))


def prop(kind: str = "String", *, required: bool = False, **more: Any) -> Json:
    return {"type": kind, "required": required, **more}


def ruled(kind: str, *details: str) -> Json:
    rules = [{"details": text} for text in details]
    return prop(kind, validation={"warnings": rules, "information": []})


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


# What is required


def test_conforming_record_has_no_problems() -> None:
    """A record that populates what is required and lists nothing else is found good."""
    assert INVOICE.check(GOOD) == []


@pytest.mark.parametrize("name", ["issueDate", "status", "lineItems"])
@pytest.mark.parametrize("empty", ["missing", None, "", []])
def test_required_property_must_be_populated(name: str, empty: Any) -> None:
    """A required property that is missing, null or empty is an error at its path."""
    record = {**GOOD, name: empty}
    if empty == "missing":
        del record[name]

    (problem,) = INVOICE.check(record)

    assert (problem.path, problem.code, problem.is_error) == (name, "required", True)


def test_required_child_of_an_absent_parent_is_not_missed() -> None:
    """Children of an optional parent are required only where the parent is present."""
    assert INVOICE.check({**GOOD, "customerRef": None}) == []
    assert found(INVOICE.check({**GOOD, "customerRef": {}})) == [("customerRef.id", "required")]


def test_array_properties_describe_one_element() -> None:
    """Each element of an Array is checked for itself, and the path says which one it is."""
    record = {**GOOD, "lineItems": [LINE, "a line", None, {**LINE, "quantity": "3"}, {}]}

    assert found(INVOICE.check(record)) == [
        ("lineItems[1]", "wrong_type"),
        ("lineItems[2]", "required"),
        ("lineItems[3].quantity", "wrong_type"),
        ("lineItems[4].quantity", "required"),
        ("lineItems[4].accountRef", "required"),
    ]


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


def test_plain_arrays_and_undescribed_objects_are_free() -> None:
    """Without properties nothing is known of what is inside, so nothing is said."""
    free = options(links=prop("Array", required=True), extras=prop("Object"))

    assert free.check({"links": ["a", None, {"b": [1]}], "extras": {"any": "thing"}}) == []
    assert options().check({"any": "thing"}) == []


# Types

DAYS = [
    "2024-02-29",
    "2024-05-31T09:30",
    "2024-05-31T09:30:00.1234567Z",
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


def test_wrong_type_says_what_would_be_right() -> None:
    """The message names the property as the platform calls it, what it takes and what it got."""
    (problem,) = INVOICE.check({**GOOD, "lineItems": [{**LINE, "quantity": "3"}]})

    assert str(problem) == 'lineItems[0].quantity: Quantity must be a number, not "3".'


def test_null_is_as_good_as_absent() -> None:
    """An optional property may be null, whatever its type."""
    described = options(a=prop("Number"), b=choices("x"), c=prop("Array"), d=prop("Sphere"))

    assert described.check({"a": None, "b": None, "c": None, "d": None}) == []


def test_unknown_type_with_properties_is_looked_into() -> None:
    """Properties below a type that is not known hold for objects given there."""
    described = options(it=prop("Thing", properties={"id": prop(required=True)}))

    assert described.check({"it": "whole"}) == []
    assert found(described.check({"it": {}})) == [("it.id", "required")]


# Choices


def test_value_must_be_among_the_choices() -> None:
    """A property with choices takes their values, not their labels, and says so."""
    (problem,) = INVOICE.check({**GOOD, "status": "Drafted"})

    assert problem.code is ProblemCode.NOT_A_CHOICE
    assert problem.message == (
        'status must be "draft" or "submitted", not "Drafted"; did you mean "draft"?'
    )
    (shouted,) = INVOICE.check({**GOOD, "status": "SUBMITTED"})
    assert shouted.message.endswith('did you mean "submitted"?')


def test_label_is_answered_with_its_value() -> None:
    """Someone who submits what the form shows is told what to submit instead."""
    listed = [
        {"value": f"acc-{n}", "displayName": f"Account {name}"} for n, name in enumerate("ABCDEFG")
    ]

    (problem,) = options(account=prop(options=listed)).check({"account": "account b"})

    assert problem.message == (
        'account must be one of 7 choices such as "acc-0", "acc-1", "acc-2", '
        'not "account b"; did you mean "acc-1"?'
    )


def test_choice_without_a_value_leaves_the_list_open() -> None:
    """Where the service does not tell a choice's value, another value only earns a warning."""
    described = options(type=prop(options=[{"displayName": "Invoice"}, {"value": "note"}]))

    assert described.check({"type": "Invoice"}) == []
    assert described.check({"type": "note"}) == []
    (problem,) = described.check({"type": "inv-1"})
    assert (problem.code, problem.severity) == ("not_a_choice", Severity.WARNING)
    assert problem.message == 'type should be "Invoice" or "note", not "inv-1".'
    assert found(described.check({"type": 5})) == [("type", "wrong_type")]


@pytest.mark.parametrize("told", ["value", "displayName"])
def test_only_what_is_listed_is_a_choice(told: str) -> None:
    """ "Accepts only one of the listed": by value or, where no choice has one, by label."""
    described = options(
        type=prop(options=[{told: "Invoice"}, {told: "CreditNote"}]),
        links=prop("Array", options=[{told: "Invoice"}]),
    )

    assert described.check({"type": "CreditNote", "links": ["Invoice"]}) == []
    assert found(described.check({"type": "Bill", "links": ["Bill"]})) == [
        ("type", "not_a_choice"),
        ("links[0]", "not_a_choice"),
    ]
    assert all(problem.is_error for problem in described.check({"type": "Bill"}))
    assert described.json_schema()["properties"]["type"] == {
        "enum": ["Invoice", "CreditNote", None]
    }


def test_a_choice_of_which_nothing_is_told_leaves_the_list_open() -> None:
    """There is a value that nobody can know."""
    described = options(type=prop(options=[{"displayName": "Invoice"}, {"type": "String"}]))

    (problem,) = described.check({"type": "Bill"})
    assert problem.severity is Severity.WARNING


def test_a_null_that_is_not_listed_is_no_problem() -> None:
    """Generated clients write every field that they know, as null if it has no value."""
    described = options(it=prop("Object", properties={"id": prop()}))

    assert described.check({"zzz": None, "it": {"zzz": None, "id": "1"}}) == []


def test_open_list_does_not_make_an_empty_text_populate() -> None:
    """Where other values are right as well, listing "" says nothing of what is required."""
    described = options(it=prop(required=True, options=[{"displayName": "x"}, {"value": ""}]))

    assert found(described.check({"it": ""})) == [("it", "required")]


def test_choices_of_an_object_are_no_choices() -> None:
    """A choice is a plain value, so an Object is held to its properties alone."""
    described = options(it=prop("Object", options=[{"value": "x"}], properties={"id": prop()}))

    assert described.check({"it": {"id": "200"}}) == []


def test_choices_that_tell_nothing_are_no_choices() -> None:
    """An empty list of choices, or one without values and labels, restricts nothing."""
    described = options(a=prop(options=[]), b=prop(options=[{"type": "String"}]))

    assert described.check({"a": "x", "b": "y"}) == []


def test_choices_of_numbers_may_be_written_as_texts() -> None:
    """The document types every choice as a string; a Number's "20" admits 20 as well."""
    described = options(
        rate=choices("20", "x", kind="Number"), paid=choices("True", kind="Boolean")
    )

    assert described.check({"rate": 20, "paid": True}) == []
    assert described.check({"rate": Decimal("20.0"), "paid": "True"}) == []
    assert found(described.check({"rate": True, "paid": 1})) == [
        ("rate", "not_a_choice"),
        ("paid", "not_a_choice"),
    ]


def test_fractions_among_choices_are_exact() -> None:
    """A choice of 0.1 is met by 0.1 however it is held."""
    described = options(rate=prop("Number", options=[{"value": 0.1}]))

    assert described.check({"rate": 0.1}) == described.check({"rate": Decimal("0.1")}) == []


def test_listed_empty_text_populates() -> None:
    """An empty text satisfies a required property if it is one of the choices."""
    assert options(code=choices("", "x", required=True)).check({"code": ""}) == []


def test_choices_of_an_array_hold_for_its_elements() -> None:
    """Of a list of choices any number may be picked, and each must be listed."""
    described = options(tags=choices("a", "b", kind="Array"))

    assert described.check({"tags": ["a", "b"]}) == []
    assert found(described.check({"tags": ["a", "c"]})) == [("tags[1]", "not_a_choice")]
    assert found(described.check({"tags": [None]})) == [("tags[0]", "required")]


# Unlisted


def test_unlisted_property_is_a_warning_with_a_hint() -> None:
    """What the options do not list may be dropped; a likely spelling is suggested."""
    (problem,) = INVOICE.check({**GOOD, "CustomerRef": {}})

    assert not problem.is_error
    assert problem.message == (
        '"CustomerRef" is not listed for Invoice and may be dropped; did you mean "customerRef"?'
    )


def test_hints_do_not_stall_a_large_record() -> None:
    """However many properties are misspelt, only the first twenty cost a search."""
    described = options(lineItems=prop("Array", properties={"quantity": prop("Number")}))

    problems = described.check({"lineItems": [{"quantty": n} for n in range(100)]})

    assert len(problems) == 100
    assert sum("did you mean" in problem.message for problem in problems) == 20


def test_a_long_list_of_choices_is_not_searched() -> None:
    """A search among thousands takes a second. A label, or another case, is found without."""
    entries = [{"value": f"A{n}", "displayName": f"Account {n}"} for n in range(5_000)]
    described = options(account=prop("String", options=entries))

    def message(value: str) -> str:
        (problem,) = described.check({"account": value})
        return problem.message.partition("not ")[2]

    assert message("Acount 77") == '"Acount 77".'
    assert message("account 77") == '"account 77"; did you mean "A77"?'
    assert message("a77") == '"a77"; did you mean "A77"?'


def test_a_long_list_of_choices_is_not_written_to_show_three(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A record with hundreds of wrong accounts would take seconds, on the event loop."""
    entries = [{"value": f"A{n}"} for n in range(5_000)]
    account = prop("String", required=True, options=entries)
    described = options(lines=prop("Array", properties={"account": account}))
    written: list[object] = []

    def write(value: object) -> bytes:
        written.append(value)
        return encode_value(value)

    monkeypatch.setattr(check, "encode_value", write)

    problems = described.check({"lines": [{"account": "x"}, {"account": None}]})

    assert {problem.code for problem in problems} == {"not_a_choice", "required"}
    assert all("one of 5000 choices" in problem.message for problem in problems)
    assert len(written) == 3 + 1 + 3


# Rules in words

GUID = "7f3a0c1e-1111-4222-8333-0123456789ab"


@pytest.mark.parametrize(
    ("kind", "rule", "right", "wrong"),
    [
        ("String", "Max length of 5 characters.", "12345", "123456"),
        ("String", "Maximum 5 characters", "12345", "123456"),
        ("String", "Must be no greater than 5 characters", "12345", "123456"),
        ("String", "Should not be longer than 5 characters.", "12345", "123456"),
        ("String", "Must not exceed 5 charaters long.", "12345", "123456"),
        ("String", "Must be less than 5 characters.", "1234", "12345"),
        ("String", "Must have a length between 2 and 5 characters", "12", "1"),
        ("String", "If included, must be between 2 and 5 characters", "12345", "123456"),
        ("String", "Must have a length of 5 characters", "12345", "1234"),
        (
            "String",
            "Must match the ID of a bank and have a max length of 5 characters.",
            "1",
            "123456",
        ),
        ("String", "The contact name can have a maximum of 5 characters", "12345", "123456"),
        (
            "Number",
            "Precision must be maximum of two decimal places.",
            Decimal("1.2500"),
            0.1 + 0.2,
        ),
        ("Number", "Must be rounded to 2 decimal places", 100, Decimal("1.005")),
        ("Number", "Must be greater than zero.", Decimal("0.01"), 0),
        ("Number", "Must be greater than or equal to 0", 0, Decimal("-0.01")),
    ],
)
def test_plain_rule_is_a_warning(kind: str, rule: str, right: Any, wrong: Any) -> None:
    """A rule that says one thing plainly is checked; breaking it is a warning that quotes it."""
    described = options(it=ruled(kind, rule))

    assert described.check({"it": right}) == []
    (problem,) = described.check({"it": wrong})
    assert (problem.code, problem.is_error) == ("rule", False)
    assert rule.rstrip(".") in problem.message


@pytest.mark.parametrize(
    "rule",
    [
        "Must be provided.",
        "Max length of 2 characters for first and last names",
        "For account based items, must be between 1 and 2 characters. Otherwise, none.",
        "If French, must be unique and have a maximum of 2 characters",
        "Must match the ID of an existing account.",
        "Only for the Netherlands, if provided, must be exactly 2 characters in length",
        "Must be greater than zero except when Type is Invoice",
        "",
    ],
)
def test_other_rules_are_silent(rule: str) -> None:
    """A rule with a condition, or about something else, is not judged."""
    assert (
        options(it=ruled("String", rule), n=ruled("Number", rule)).check({"it": "abc", "n": -1})
        == []
    )


def test_rule_in_words_ignores_other_types() -> None:
    """A length rule says nothing about a number, nor a bound about a text."""
    described = options(
        n=ruled("Number", "Max length of 2 characters"), t=ruled("", "Must be greater than 0")
    )

    assert described.check({"n": 12345, "t": "text"}) == []


@pytest.mark.parametrize(
    ("field", "holder", "subject"),
    [
        (None, "lineItems.note", "lineItems[0].note"),
        ("Note", "lineItems.note", "lineItems[0].note"),
        ("LineItems.Note", "lineItems.note", "lineItems[0].note"),
        ("Note", "lineItems", "lineItems[0].note"),
        ("LineItems.Note", "", "lineItems[0].note"),
        ("lineItems.note", "reference", "lineItems[0].note"),
        ("Reference", "", "reference"),
        ("Nothing.Known", "reference", "reference"),
    ],
)
def test_rule_finds_its_property(field: str | None, holder: str, subject: str) -> None:
    """A rule is about the property it names, however cased and dotted, else about its holder."""
    rule = {"field": field, "details": "Max length of 2 characters."}
    held: Json = {"validation": {"warnings": [], "information": [rule]}}
    described = {
        name: held if name == holder else {}
        for name in ("", "reference", "lineItems", "lineItems.note")
    }
    note = prop(**described["lineItems.note"])
    lines = prop("Array", properties={"note": note}, **described["lineItems"])
    top = {
        "type": "Object",
        "properties": {"reference": prop(**described["reference"]), "lineItems": lines},
    }

    problems = PushOptions.of(structure({**top, **described[""]}, PropertyDescription)).check(
        {"reference": "long", "lineItems": [{"note": "long"}]}
    )

    assert found(problems) == [(subject, "rule")]


# Records and options as values


@dataclass
class Line:
    quantity: Decimal


@attrs.frozen
class Order:
    date: date
    lines: list[Line]


class Reference(msgspec.Struct):
    id: UUID


def test_records_may_be_any_kind_of_class() -> None:
    """Dataclasses, attrs classes and Structs are judged as the JSON they are sent as."""
    described = options(
        date=prop("DateTime", required=True),
        lines=prop("Array", properties={"quantity": prop("Number", required=True)}),
        id=prop(),
    )

    order = Order(date(2024, 5, 31), [Line(Decimal("1.50"))])
    assert described.check(order) == []
    assert found(described.check(Reference(UUID(GUID)))) == [("date", "required")]


@pytest.mark.parametrize("record", [[], "record", None, {"n": float("nan")}, {"n": object()}])
def test_what_cannot_be_sent_is_one_error(record: Any) -> None:
    """A record that is no object, or no JSON, is a problem of its own and not an exception."""
    (problem,) = INVOICE.check(record)

    assert (problem.path, problem.code, problem.is_error) == ("", "wrong_type", True)


def test_options_stay_values_after_use() -> None:
    """Checking leaves equality, copy and pickle as they were."""
    again = options(a=prop(required=True))
    used = copy.copy(again)
    assert used.check({})

    assert used == again
    assert pickle.loads(pickle.dumps(used)) == again  # noqa: S301  (our own bytes)
    assert attrs.evolve(used, properties={}).check({}) == []


def test_record_is_an_object_whatever_the_options_call_it() -> None:
    """Options without a type still describe the properties of a record."""
    described = PropertyDescription(
        properties={"id": PropertyDescription(type="String", required=True)}
    )

    assert found(PushOptions.of(described).check({})) == [("id", "required")]
