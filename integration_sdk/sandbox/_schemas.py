"""Data types, the platforms that take them, and the companies connected to these.

Addresses, options, the check of a record, what a platform drops, and the generated books follow
from ``_data_types.txt``: a new data type is an entry there.

Source: "Push options description" and its rules; "Push options"; "Bank data endpoints". Assumed
beyond String and Object (the document shows no others): Array, Number, Boolean, DateTime, nested as
published; an Array's properties describe one element; what an optional parent requires is checked
only if it is given. Assumed: data types, platforms, companies, connections ("published elsewhere",
"not shown"), as published.
"""

from __future__ import annotations

import random
import re
import uuid
from collections.abc import Iterator, Mapping
from datetime import datetime
from decimal import Decimal
from importlib.resources import files
from typing import Any, Literal

from attrs import define, evolve, field, frozen

from integration_sdk.sandbox._call import LEFT_OUT, Problem, body, iso, new_uuid

# Dates as the service writes them: with Z, an offset or neither. Python reads more spellings.
_MOMENT = re.compile(r"\d{4}-\d\d-\d\d(T\d\d:\d\d(:\d\d(\.\d+)?)?(Z|[+-]\d\d:?\d\d)?)?", re.ASCII)


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


@frozen(eq=False)
class Platform:
    """An accounting package that a company may have connected.

    Args:
        id, key: By which the service identifies it; the key has four letters.
        pace: When it answers a push.
        strict: Whether it refuses fields that its options do not list, and checks types.
        shapes: What records that can be pushed to it look like, by data type.
    """

    name: str
    id: str
    key: str
    pace: Literal["later", "at once", "never"]
    strict: bool
    shapes: Mapping[str, Shape]


def _platform(
    name: str, key: str, pace: Literal["later", "at once", "never"], lacks: str, needs: str
) -> Platform:
    shapes = {}
    for each in DATA_TYPES.values():
        if "POST" in each.verbs and each.name != lacks:
            properties = dict(each.shape.properties)
            for wanted in re.findall(rf"{each.name}\.(\w+)", needs):
                properties[wanted] = evolve(properties[wanted], required=True)
            shapes[each.name] = evolve(each.shape, properties=properties)
    identifier = str(uuid.uuid5(uuid.NAMESPACE_DNS, key))
    return Platform(name, identifier, key, pace, name == "Strictbooks", shapes)


_STRICT = "invoices.invoiceNumber invoices.dueDate invoices.currency bills.reference"
PLATFORMS = (
    _platform("Ledgerline", "ldgl", "later", "", ""),
    _platform("Swiftbooks", "swft", "at once", "journalEntries", ""),
    # Its software runs on a computer that is switched off: "States and transitions", rule 1.
    _platform("Deskledger", "dskl", "never", "", "invoices.dueDate"),
    _platform("Strictbooks", "strb", "later", "", _STRICT),
)


@define(eq=False)
class Connection:
    """A company's link to one platform.

    Attributes:
        status: ``Linked``; pushes through a ``Deauthorized`` one are forbidden (403).
        online: An offline platform answers no push until it is back.
    """

    id: str
    company_id: str
    package: Platform = field(repr=lambda package: package.name)
    created: float
    status: str = "Linked"
    online: bool = True

    @property
    def platform(self) -> str:
        return self.package.name

    def body(self) -> dict[str, Any]:
        created, key = iso(self.created), self.package.key
        values = {"id": self.id, "key": key, "platform": self.platform, "created": created}
        return body("connection", **values, integration=self.package.id, status=self.status)


@define(eq=False)
class Company:
    """A company that has connected its platforms, or none yet."""

    id: str
    name: str
    created: float
    description: str
    connections: list[Connection] = field(factory=list)

    def body(self) -> dict[str, Any]:
        created, connections = iso(self.created), [one.body() for one in self.connections]
        return body(
            "company",
            id=self.id,
            name=self.name,
            description=self.description,
            platform=self.connections[0].platform if self.connections else "",
            created=created,
            # Assumed: as published, what has never been synchronized has no such date, not a null.
            synced=created if self.connections else LEFT_OUT,
            connections=connections,
        )


def new_company(number: int, chance: random.Random, created: float, *, linked: bool) -> Company:
    """The *number*-th company from the start, connected to every platform if *linked*."""
    names = EXAMPLES["companies"].split("|")
    turn, n = divmod(number, len(names))
    name = names[n] + (f" {turn + 1}" if turn else "")
    company = Company(new_uuid(chance), name, created, f"The books of {name}")
    for one in PLATFORMS if linked else ():
        connection = Connection(new_uuid(chance), company.id, one, created)
        connection.online = one.pace != "never"
        company.connections.append(connection)
    return company


def describe(shape: Shape, path: str = "", *, published: bool = False) -> dict[str, Any]:
    """Return the options description of *shape*, the property at the dotted *path*.

    Written as *published*, warnings name that path in PascalCase, have an ``information`` list
    beside them, and ``required`` is true at the top.
    """
    body: dict[str, Any] = {
        "type": shape.kind,
        "displayName": shape.name,
        "description": shape.about or shape.name,
        "required": shape.required or (published and not path),
    }
    if shape.properties:
        body["properties"] = {
            key: describe(child, f"{path}.{key}" if path else key, published=published)
            for key, child in shape.properties.items()
        }
    if shape.choices:
        body["options"] = [
            {"value": value, "type": "String", "displayName": label}
            for value, label in shape.choices.items()
        ]
    if shape.most:
        names = path.split(".")
        field = ".".join(name[:1].upper() + name[1:] for name in names) if published else names[-1]
        rule = {"field": field, "details": f"Must be no longer than {shape.most} characters."}
        body["validation"] = {"warnings": [rule]} | ({"information": []} if published else {})
    return body


_KINDS: Mapping[str, type | tuple[type, ...]] = {
    "String": str,
    "Boolean": bool,
    "Array": list,
    "Object": dict,
    "DateTime": str,
    "Number": (int, float, Decimal),
}
Problems = tuple[Problem, ...]


def judged(shape: Shape, record: Any, *, strict: bool) -> tuple[Problems, Problems]:
    """Return why a platform refuses *record*, and which of its fields it drops.

    Every platform checks required properties and listed choices; a *strict* one also checks
    types and lengths, and refuses unlisted fields.
    """
    found = tuple(_problems(shape, record, ""))
    if strict:
        return found, ()
    dropped = "is not a field of this platform and is dropped"
    unlisted = (each.item for each in found if each.validator == "UnlistedValidator")
    checks = {"RequiredValidator", "OptionsValidator"}
    refused = tuple(each for each in found if each.validator in checks)
    return refused, tuple(Problem(item, dropped, "Unlisted") for item in unlisted)


def _problems(shape: Shape, value: Any, path: str) -> Iterator[Problem]:
    """Yield what is wrong with *value*, which is not None."""
    is_number = shape.kind == "Number" and isinstance(value, bool)
    if shape.choices and not (isinstance(value, str) and value in shape.choices):
        yield Problem(path, f"must be one of: {', '.join(shape.choices)}", "OptionsValidator")
    elif not isinstance(value, _KINDS[shape.kind]) or is_number or _is_no_date(shape, value):
        yield Problem(path or "record", f"must be of type {shape.kind}", "TypeValidator")
    elif shape.most and len(str(value)) > shape.most:
        yield Problem(path, f"must be no longer than {shape.most} characters", "LengthValidator")
    elif isinstance(value, list):
        for n, entry in enumerate(value):
            yield from _problems(evolve(shape, kind="Object"), entry, f"{path}[{n}]")
    elif isinstance(value, dict) and shape.properties:
        yield from _members(shape, value, f"{path}." if path else "")


def _members(shape: Shape, record: Mapping[str, Any], path: str) -> Iterator[Problem]:
    for name, child in shape.properties.items():
        value = record.get(name)
        # Assumed: "" and [] do not populate a required property. They are values for all that.
        if child.required and value in (None, "", []):
            yield Problem(path + name, f"{child.name} is required", "RequiredValidator")
        elif value is not None:
            yield from _problems(child, value, path + name)
    for name, value in record.items():
        # Generated clients write every field they know, as null if it has no value.
        if name not in shape.properties and value is not None:
            yield Problem(path + name, "is not a field of this platform", "UnlistedValidator")


def _is_no_date(shape: Shape, value: Any) -> bool:
    try:
        datetime.fromisoformat(value if shape.kind == "DateTime" else "2000-01-01")
    except ValueError:
        return True
    return shape.kind == "DateTime" and _MOMENT.fullmatch(value) is None


def without_unlisted(shape: Shape, record: Any) -> Any:
    if isinstance(record, list):
        return [without_unlisted(shape, entry) for entry in record]
    if not shape.properties or not isinstance(record, dict):
        return record
    return {
        key: without_unlisted(shape.properties[key], value)
        for key, value in record.items()
        if key in shape.properties
    }
