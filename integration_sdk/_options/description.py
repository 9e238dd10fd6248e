"""Turns the service's description into a tree of `Field`, which says what each property accepts.

The check, the JSON Schema and the form all use this tree, so they cannot disagree.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from decimal import Decimal
from typing import Any, Final

from attrs import evolve, frozen

from integration_sdk._records.codec import decode_json
from integration_sdk.errors import MalformedResponse
from integration_sdk.models import OptionEntry, PropertyDescription

# Types


@frozen
class Kind:
    """A property type, and the values that it allows.

    Attributes:
        words: Its name in a sentence, to follow "must be".
        fits: Returns whether a JSON value is of this type.
        schema: The JSON Schema of the type.
        populated: JSON Schema keywords that refuse empty values.
    """

    words: str
    fits: Callable[[Any], bool]
    schema: Mapping[str, Any]
    populated: Mapping[str, Any] = {}


# A day that no calendar has, such as 30 February, is left to the platform.
_DAY: Final = "(?!0000)[0-9]{4}-(?:0[1-9]|1[0-2])-(?:0[1-9]|[12][0-9]|3[01])"
_TIME: Final = r"(?:[01][0-9]|2[0-3]):[0-5][0-9](?::[0-5][0-9](?:\.[0-9]+)?)?"
_OFFSET: Final = r"(?:Z|[+-](?:[01][0-9]|2[0-3]):?[0-5][0-9])"
# Python's $ also matches before a final line feed; with (?!\n) it is ECMAScript's.
DATE_TIME: Final = rf"^{_DAY}(?:T{_TIME}{_OFFSET}?)?$(?!\n)"
_is_date_time: Final = re.compile(DATE_TIME).match

ANYTHING: Final = Kind("any value", lambda _: True, {}, populated={"not": {"enum": [None, "", []]}})
OBJECT: Final = Kind("an object", lambda value: type(value) is dict, {"type": "object"})
ARRAY: Final = Kind(
    "a list", lambda value: type(value) is list, {"type": "array"}, populated={"minItems": 1}
)
NUMBER: Final = Kind(
    "a number", lambda value: type(value) in (int, float, Decimal), {"type": "number"}
)
BOOLEAN: Final = Kind("true or false", lambda value: type(value) is bool, {"type": "boolean"})

# Assumed: types other than String and Object are published, not in the document. File and
# MultiPart, which JSON cannot hold, and unknown types admit any value.
KINDS: Final[Mapping[str | None, Kind]] = {
    "Object": OBJECT,
    "Array": ARRAY,
    "Number": NUMBER,
    "Boolean": BOOLEAN,
    "String": Kind(
        "a text", lambda value: type(value) is str, {"type": "string"}, populated={"minLength": 1}
    ),
    "DateTime": Kind(
        "a date as in 2024-05-31 or 2024-05-31T09:30:00Z",
        lambda value: type(value) is str and _is_date_time(value) is not None,
        {"type": "string", "pattern": DATE_TIME},
    ),
}


# Choices


@frozen
class Choice:
    """One choice: submit ``value``, show ``label``."""

    value: str | int | float | bool
    label: str


@frozen
class Choices:
    """The values a property admits.

    Attributes:
        listed: The choices in the service's order, each value once. A choice without a value
            has its label as value.
        admitted: Choices by value, including the numbers and booleans that listed texts stand
            for.
        closed: Whether other values are wrong. Assumed: they are not if only some choices have a
            value, since values and labels differ in a third of all published choices; where none
            has one, the labels are all that the service lists.
        spellings: Values to submit, by casefolded value and label.
    """

    listed: tuple[Choice, ...]
    admitted: Mapping[Any, Choice]
    closed: bool
    spellings: Mapping[str, Any]

    def __contains__(self, value: object) -> bool:
        return _same(value) in self.admitted


def _same(value: Any) -> Any:
    """Return a key that is equal for equal JSON values: true is not 1; 0.1 is Decimal("0.1")."""
    match value:
        case bool():
            return bool, value
        case float():
            return Decimal(str(value))
        case dict() | list():
            return None  # never a choice
        case _:
            return value


def _read_choices(description: PropertyDescription, kind: Kind) -> Choices | None:
    """Return the choices; None if there are none."""
    if kind is OBJECT:
        return None
    listed: dict[Any, Choice] = {}
    for entry in description.options:
        value = entry.display_name if entry.value is None else entry.value
        if value is not None:
            listed.setdefault(_same(value), Choice(value, entry.display_name or str(value)))
    return _choices(listed, description, kind) if listed else None


def _choices(listed: dict[Any, Choice], description: PropertyDescription, kind: Kind) -> Choices:
    typed = (evolve(choice, value=_typed(choice.value, kind)) for choice in listed.values())
    labels = {choice.label.casefold(): choice.value for choice in listed.values()}
    values = {str(choice.value).casefold(): choice.value for choice in listed.values()}
    return Choices(
        listed=tuple(listed.values()),
        admitted={_same(choice.value): choice for choice in (*listed.values(), *typed)},
        closed=len({_has(entry) for entry in description.options}) == 1,
        spellings=labels | values,
    )


def _has(entry: OptionEntry) -> str:
    if entry.value is not None:
        return "value"
    return "label" if entry.display_name is not None else "nothing"


def _typed(value: Any, kind: Kind) -> Any:
    """Return the number or boolean that a text stands for: "20" of a Number means 20 too.

    The document types every choice as a string.
    """
    if kind not in (NUMBER, BOOLEAN) or not isinstance(value, str):
        return value
    try:
        typed = decode_json(value.casefold().encode())
    except MalformedResponse:
        return value
    return typed if kind.fits(typed) else value


# Fields


@frozen
class Field:
    """One property, or the record itself.

    Attributes:
        path: For example ``lineItems[].quantity``; empty for the record.
        required: Must be populated if the parent is present.
        rules: Its rules in plain words.
        members: The properties of an object, by name; empty if they are not described.
        element: What each element of an Array must be; None if that is not described.
    """

    name: str
    path: str
    description: PropertyDescription
    kind: Kind
    required: bool
    choices: Choices | None
    rules: tuple[str, ...]
    members: Mapping[str, Field]
    element: Field | None

    @property
    def label(self) -> str:
        """The name to show."""
        return self.description.display_name or self.name or "The record"

    def is_empty(self, value: Any) -> bool:
        """Whether a required property with *value* counts as not populated.

        Assumed: null, "" and [] do not populate a property, unless "" is one of the only values
        allowed.
        """
        if value or value not in (None, "", []):
            return False
        return self.choices is None or not self.choices.closed or value not in self.choices


def read_fields(description: PropertyDescription, name: str = "", path: str = "") -> Field:
    """Return the field for the property that *description* describes; by default the record.

    The record is an object, whatever ``type`` says.
    """
    kind = KINDS.get(description.type, ANYTHING) if path else OBJECT
    prefix = f"{path}." if path else ""
    rules = (*description.validation.warnings, *description.validation.information)
    members = description.properties if kind in (OBJECT, ANYTHING) else {}
    return Field(
        name=name,
        path=path,
        description=description,
        kind=kind,
        required=description.required,
        choices=None if kind is ARRAY else _read_choices(description, kind),
        # Shown, never interpreted: each at the property that holds it.
        rules=tuple(rule.details.strip() for rule in rules if rule.details),
        members={key: read_fields(each, key, f"{prefix}{key}") for key, each in members.items()},
        element=_read_element(description, name, path) if kind is ARRAY else None,
    )


def _read_element(array: PropertyDescription, name: str, path: str) -> Field | None:
    """Return the field for the elements of an Array, which its properties describe.

    None if there are no properties and no choices: elements may then be anything.
    Assumed: choices of an Array are those of its elements.
    """
    if not array.properties and not array.options:
        return None
    kind = "Object" if array.properties else None
    element = PropertyDescription(
        type=kind,
        display_name=array.display_name,
        required=True,
        properties=array.properties,
        options=array.options,
    )
    return read_fields(element, name, f"{path}[]")
