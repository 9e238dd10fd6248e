"""The data types: where they are read, how they can be pushed, what they hold.

Addresses, options, the check of a record, what a platform drops, and the generated books follow
from ``_data_types.txt``: a new data type is an entry there.

Source: "Push options description" and its rules; "Push options"; "Bank data endpoints". Assumed
beyond String and Object (the document shows no others): Array, Number, Boolean, DateTime, nested as
published; an Array's properties describe one element; what an optional parent requires is checked
only if it is given. Assumed: data types, their places, verbs and properties, as published.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from importlib.resources import files

from attrs import evolve, frozen


@frozen
class Shape:
    """What one property (or the whole record) must look like.

    Args:
        choices: Allowed values, each with its label; empty for any value.
        most: Maximum length of a text; described as an informative rule.
    """

    kind: str
    name: str
    about: str = ""
    required: bool = False
    properties: Mapping[str, Shape] = {}
    choices: Mapping[str, str] = {}
    most: int | None = None


@frozen
class DataType:
    """A kind of record.

    Args:
        place: What its data is read below: company, connection, both, account.
        verbs: How the published service lets it be pushed.
        shape: What a record looks like that is pushed.
    """

    name: str
    place: str
    verbs: frozenset[str]
    shape: Shape


def _label(name: str) -> str:
    if name.isupper():  # an abbreviation, such as a currency
        return name
    words = re.sub(r"(?<!^)([A-Z])", lambda letter: f" {letter[1].lower()}", name)
    return re.sub(" ref$", " reference", words[:1].upper() + words[1:])


def _properties(text: str, shapes: Mapping[str, Shape]) -> dict[str, Shape]:
    found = {}
    for entry in text.split(","):
        name, _, kind = entry.strip().partition(" ")
        known, label = name.rstrip("!"), _label(name.rstrip("!"))
        found[known] = evolve(_shape(kind, label, shapes), required=name.endswith("!"))
    return found


def _shape(kind: str, label: str, shapes: Mapping[str, Shape]) -> Shape:
    inner = shapes.get(kind.strip("[]"))
    if inner is not None:
        return evolve(inner, name=label, kind="Array" if kind.startswith("[") else inner.kind)
    if "|" in kind:
        return Shape("String", label, choices={value: _label(value) for value in kind.split("|")})
    if not kind or kind.isdigit():
        return Shape("String", label, most=int(kind or 0) or None)
    return Shape(kind, label)


EXAMPLES: dict[str, str] = {}
"""Templates of texts, by the name of the property."""


def _read() -> dict[str, DataType]:
    text = files("integration_sdk.sandbox").joinpath("_data_types.txt").read_text()
    shapes: dict[str, Shape] = {}
    types: dict[str, DataType] = {}
    for entry in re.split(r"\n(?! )", re.sub("(?m)^#.*\n", "", text).strip()):
        head, _, rest = entry.partition("\n" if " | " in entry else ": ")
        if entry.startswith("="):
            EXAMPLES[head.strip("= ")] = rest
        elif " | " not in entry:
            choices = "|" in rest and "," not in rest
            whole = Shape("Object", head, properties={} if choices else _properties(rest, shapes))
            shapes[head] = _shape(rest, head, shapes) if choices else whole
        else:
            words, _, labels = head.partition(" | ")
            name, place, *verbs = words.split()
            label, _, about = labels.partition(": ")
            shape = Shape("Object", label, about, properties=_properties(rest, shapes))
            types[name] = DataType(name, place, frozenset(verbs), shape)
    return types


DATA_TYPES: Mapping[str, DataType] = _read()
"""By the name that data lists and push paths use."""
BOOKED = evolve(DATA_TYPES["bankTransactions"].shape.properties["transactions"], kind="Object")
"""What a bank transaction looks like in the list of its account."""


def option_name(data_type: str) -> str:
    """The name of *data_type* in options and operations; the push path says ``accounts``."""
    return "chartOfAccounts" if data_type == "accounts" else data_type


def list_name(data_type: str) -> str:
    """The name of *data_type* in push paths and data lists."""
    return "accounts" if data_type == "chartOfAccounts" else data_type
