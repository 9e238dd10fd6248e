"""What `PushOptions.json_schema` and `PushOptions.form` promise."""

import json
import re
from decimal import Decimal
from typing import Any

import attrs
from hypothesis import event, given
from hypothesis import strategies as st
from jsonschema import Draft202012Validator  # type: ignore[import-untyped]  # it ships no types

from integration_sdk import PushOptions
from integration_sdk._options.description import DATE_TIME
from integration_sdk._records.codec import encode_record
from integration_sdk.models import OptionEntry, PropertyDescription
from tests.support.options_support import options, prop

LABELLED = [{"value": "d", "displayName": "Draft"}, {"value": "s", "displayName": "Submitted"}]
QUANTITY = prop(
    "Number",
    description="How many",
    validation={"information": [{"details": "Must be greater than 0"}]},
)
INVOICE = options(
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


def test_schema_reads_as_one_would_write_it() -> None:
    """Titles, descriptions, rules, choices and requirements end up where JSON Schema has them."""
    schema = INVOICE.json_schema()
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
    controls = {control.name: control for control in INVOICE.form()}

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
