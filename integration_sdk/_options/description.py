"""Turns the service's description into a tree of `Field`, which says what each property accepts.

The check, the JSON Schema and the form all use this tree, so they cannot disagree.
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping
from decimal import Decimal
from typing import Any, Final

from attrs import evolve, frozen

from integration_sdk._records.codec import decode_json
from integration_sdk.errors import MalformedResponse
from integration_sdk.models import OptionEntry, OptionRule, PropertyDescription

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
    meant = (evolve(choice, value=_meant(choice.value, kind)) for choice in listed.values())
    labels = {choice.label.casefold(): choice.value for choice in listed.values()}
    values = {str(choice.value).casefold(): choice.value for choice in listed.values()}
    return Choices(
        listed=tuple(listed.values()),
        admitted={_same(choice.value): choice for choice in (*listed.values(), *meant)},
        closed=len({_tells(entry) for entry in description.options}) == 1,
        spellings=labels | values,
    )


def _tells(entry: OptionEntry) -> str:
    if entry.value is not None:
        return "value"
    return "label" if entry.display_name is not None else "nothing"


def _meant(value: Any, kind: Kind) -> Any:
    """Return the number or boolean that a text stands for: "20" of a Number means 20 too.

    The document types every choice as a string.
    """
    if kind not in (NUMBER, BOOLEAN) or not isinstance(value, str):
        return value
    try:
        meant = decode_json(value.casefold().encode())
    except MalformedResponse:
        return value
    return meant if kind.fits(meant) else value


# Rules in free text, such as "Max length of 21 characters"
#
# Only unconditional sentences with a single statement are understood, of the eight commonest kinds.
# A broken rule is a warning, since the document calls these rules informative. All other rules are
# shown, in the schema and the form, but not checked.

Observe = Callable[[Any], str | None]
"""Returns what is wrong with a value, such as "it has 25 characters"; None if nothing is."""


@frozen
class Limit:
    """A rule that can be checked: its text, and a function that checks a value."""

    text: str
    observe: Observe


# Whose rule is it


def place_rules(root: PropertyDescription) -> Mapping[str, list[str]]:
    """Return the rules by the casefolded, dotted path of the property that they apply to.

    Assumed: a rule applies to the property that holds it, unless its ``field`` names a property
    below that one, or another by its full path. Published descriptions write ``field`` in
    PascalCase, as a full path (``LineItems.Quantity``) or its last names (``AccountRef.Id``), or
    leave it out.
    """
    held = dict(_walk(root, ""))
    placed = defaultdict[str, list[str]](list)
    for path, description in held.items():
        for rule in (*description.validation.warnings, *description.validation.information):
            if rule.details:
                placed[_subject(rule, path, held)].append(rule.details.strip())
    return placed


def join(path: str, name: str) -> str:
    """Return the path of the property *name* of *path*, which is empty for the record itself."""
    return f"{path}.{name}" if path else name


def _walk(description: PropertyDescription, path: str) -> Iterator[tuple[str, PropertyDescription]]:
    yield path, description
    for name, member in description.properties.items():
        yield from _walk(member, join(path, name.casefold()))


def _subject(rule: OptionRule, holder: str, known: Mapping[str, PropertyDescription]) -> str:
    named = (rule.field or "").casefold()
    if not named or f".{holder}".endswith(f".{named}"):
        return holder
    return next((path for path in (join(holder, named), named) if path in known), holder)


# What it says


def read_limit(text: str) -> Limit | None:
    """Return the rule in *text*; None if it is not understood."""
    plain = _IF_GIVEN.sub("", " ".join(text.casefold().split())).rstrip(". ")
    for pattern, make in _FAMILIES:
        if said := pattern.fullmatch(plain):
            return Limit(text, make(*map(_number, said.groups())))
    return None


def _number(said: str) -> int:
    return _WORDS.index(said) if said in _WORDS else int(said)


def _length(least: int, most: int) -> Observe:
    def observe(value: Any) -> str | None:
        fits = not isinstance(value, str) or least <= len(value) <= most
        return None if fits else f"it has {len(value)} characters"

    return observe


def _decimals(most: int) -> Observe:
    def observe(value: Any) -> str | None:
        places = _places(value) if isinstance(value, Decimal) else 0
        return f"it has {places} decimal places" if places > most else None

    return observe


def _places(value: Decimal) -> int:
    """Return the number of decimal places without trailing zeros: 1.10 has one."""
    _, digits, exponent = value.as_tuple()
    written = "".join(map(str, digits))
    significant = written.rstrip("0")
    return max(0, -int(exponent) - len(written) + len(significant)) if significant else 0


def _above(bound: int, *, inclusive: bool) -> Observe:
    def observe(value: Any) -> str | None:
        is_number = isinstance(value, int | Decimal) and not isinstance(value, bool)
        fits = not is_number or value > bound or (inclusive and value == bound)
        return None if fits else f"it is {value}"

    return observe


_WORDS: Final = (
    *("zero", "one", "two", "three", "four", "five"),
    *("six", "seven", "eight", "nine", "ten"),
)
_IF_GIVEN: Final = re.compile(r"^if (?:supplied|included|provided|set|specified),? ")
_N: Final = rf"([0-9]{{1,9}}|{'|'.join(_WORDS)})"
_CHARACTERS: Final = "chara(?:c)?ters"  # "charaters" is how one platform spells it
# A clause before "and" says something else, unless it is the condition of what follows.
_OTHER_CLAUSES: Final = r"(?:(?!.*\b(?:if|when|unless|except|for|only)\b)[a-z ,]+ (?:and|can) )?"

_FAMILIES: Final[tuple[tuple[re.Pattern[str], Callable[..., Observe]], ...]] = tuple(
    (re.compile(pattern), make)
    for pattern, make in (
        (
            rf"{_OTHER_CLAUSES}(?:(?:must )?have a )?max(?:imum)?(?: length)?(?: of)? {_N} "
            "characters",
            lambda most: _length(0, most),
        ),
        (
            rf"(?:must|should) (?:not exceed|not be (?:greater|longer) than"
            rf"|be no (?:greater|longer) than) {_N} {_CHARACTERS}(?: long)?",
            lambda most: _length(0, most),
        ),
        (rf"must be less than {_N} characters", lambda bound: _length(0, bound - 1)),
        (rf"must (?:have a length|be) between {_N} and {_N} characters", _length),
        (
            rf"must (?:have a length of|be exactly) {_N} characters(?: in length| long)?",
            lambda exactly: _length(exactly, exactly),
        ),
        (
            rf"(?:precision )?(?:must|should|can)(?: be| have)?(?: rounded)?(?: a| at)?"
            rf"(?: max(?:imum)?| most)?(?: of| to)? {_N} decimal places?",
            _decimals,
        ),
        (rf"must be greater than {_N}", lambda bound: _above(bound, inclusive=False)),
        (
            rf"must be greater than or equal to {_N}",
            lambda bound: _above(bound, inclusive=True),
        ),
    )
)


# Fields


@frozen
class Field:
    """One property, or the record itself.

    Attributes:
        path: For example ``lineItems[].quantity``; empty for the record.
        required: Must be populated if the parent is present.
        rules: All rules in plain words.
        limits: The rules that can be checked.
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
    limits: tuple[Limit, ...]
    members: Mapping[str, Field]
    element: Field | None

    @property
    def label(self) -> str:
        """The name to show."""
        return self.description.display_name or self.name or "The record"

    def accepts(self, value: Any) -> bool:
        """Whether *value*, which is not None, is a choice, or of the type if others are allowed."""
        choices = self.choices
        if choices is None or not choices.closed:
            return self.kind.fits(value)
        return value in choices

    def is_empty(self, value: Any) -> bool:
        """Whether a required property with *value* counts as not populated.

        Assumed: null, "" and [] do not populate a property, unless "" is one of the only values
        allowed.
        """
        if value or value not in (None, "", []):
            return False
        return self.choices is None or not self.choices.closed or value not in self.choices


def read_fields(description: PropertyDescription) -> Field:
    """Return the field for the record that *description* describes.

    The record is an object, whatever ``type`` says.
    """
    placed = place_rules(description)
    return _read_field(evolve(description, type="Object"), "", "", placed)


def _read_field(
    description: PropertyDescription, name: str, path: str, placed: Mapping[str, list[str]]
) -> Field:
    kind = KINDS.get(description.type, ANYTHING)
    rules = tuple(placed.get(path.replace("[]", "").casefold(), ()))
    return Field(
        name=name,
        path=path,
        description=description,
        kind=kind,
        required=description.required,
        choices=None if kind is ARRAY else _read_choices(description, kind),
        rules=rules,
        limits=tuple(limit for text in rules if (limit := read_limit(text))),
        members=_read_members(description, path, placed) if kind in (OBJECT, ANYTHING) else {},
        element=_read_element(description, name, path, placed) if kind is ARRAY else None,
    )


def _read_members(
    description: PropertyDescription, path: str, placed: Mapping[str, list[str]]
) -> Mapping[str, Field]:
    return {
        name: _read_field(member, name, join(path, name), placed)
        for name, member in description.properties.items()
    }


def _read_element(
    array: PropertyDescription, name: str, path: str, placed: Mapping[str, list[str]]
) -> Field | None:
    """Return the field for the elements of an Array, which its properties describe.

    None if there are no properties and no choices: elements may then be anything.
    Assumed: choices of an Array are those of its elements.
    """
    if not array.properties and not array.options:
        return None
    element = evolve(
        array, type="Object" if array.properties else None, description=None, required=True
    )
    return evolve(_read_field(element, name, f"{path}[]", placed), rules=(), limits=())
