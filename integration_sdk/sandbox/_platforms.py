"""Companies, and the platforms they are connected to: what these accept, check and drop.

Source: "Push options description" and its rules. Assumed: the fields of companies and connections
("not shown"), as published; which platforms there are ("published elsewhere", What the service does
4), and what they check.
"""

from __future__ import annotations

import random
import re
import uuid
from collections.abc import Iterator, Mapping
from datetime import datetime
from decimal import Decimal
from functools import cache
from typing import Any, Literal

from attrs import define, evolve, field, frozen

from integration_sdk.sandbox._call import Problem, iso, new_uuid
from integration_sdk.sandbox._schemas import DATA_TYPES, Shape

# Dates as the service writes them: with Z, an offset or neither. Python reads more spellings.
_MOMENT = re.compile(r"\d{4}-\d\d-\d\d(T\d\d:\d\d(:\d\d(\.\d+)?)?(Z|[+-]\d\d:?\d\d)?)?", re.ASCII)


@frozen(eq=False)
class Platform:
    """An accounting package that a company may have connected.

    Args:
        key: The four letters by which the service identifies it.
        pace: When it answers a push.
        strict: Whether it refuses fields that its options do not list, and checks types.
        shapes: What records that can be pushed to it look like, by data type.
    """

    name: str
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
    return Platform(name, key, pace, name == "Strictbooks", shapes)


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
        """Name of the platform."""
        return self.package.name

    def body(self) -> dict[str, Any]:
        """The connection as the service shows it."""
        return {
            "id": self.id,
            "integrationId": _lasting_uuid(self.package.key),
            "integrationKey": self.package.key,
            "sourceId": _lasting_uuid("sandbox"),
            "sourceType": "Accounting",
            "platformName": self.platform,
            "linkUrl": f"https://link.example.com/companies/{self.company_id}/{self.package.key}",
            "status": self.status,
            "lastSync": iso(self.created),
            "created": iso(self.created),
        }


@define(eq=False)
class Company:
    """A company that has connected its platforms, or none yet."""

    id: str
    name: str
    created: float
    description: str
    connections: list[Connection] = field(factory=list)

    def body(self) -> dict[str, Any]:
        """The company as the service shows it."""
        body = {
            "id": self.id,
            "name": self.name,
            "description": self.description,
            "platform": self.connections[0].platform if self.connections else "",
            "redirect": f"https://link.example.com/company/{self.id}",
            "created": iso(self.created),
            "dataConnections": [connection.body() for connection in self.connections],
        }
        # Assumed: as published, what has never been synchronized has no such date, not a null.
        return body | ({"lastSync": iso(self.created)} if self.connections else {})

    def connection(self, connection_id: str) -> Connection | None:
        """The connection *connection_id* of this company."""
        return next((one for one in self.connections if one.id == connection_id), None)


@cache
def _lasting_uuid(name: str) -> str:
    return str(uuid.uuid5(uuid.NAMESPACE_DNS, name))


_NAMES = (
    *("Amber Kiln Pottery", "Bramble & Finch Catering", "Copperfield Cycles"),
    *("Dunmore Timber Frames", "Eastgate Dental Care", "Fernhill Garden Centre"),
    *("Granite Peak Climbing", "Harbour Light Bookshop", "Inkwell Print Works"),
    "Juniper Road Bakery",
)


def new_company(number: int, chance: random.Random, created: float, *, linked: bool) -> Company:
    """The *number*-th company from the start, connected to every platform if *linked*."""
    turn, n = divmod(number, len(_NAMES))
    name = _NAMES[n] + (f" {turn + 1}" if turn else "")
    company = Company(new_uuid(chance), name, created, f"The books of {name}")
    company.connections = [
        Connection(new_uuid(chance), company.id, package, created, online=package.pace != "never")
        for package in PLATFORMS
    ]
    if not linked:
        company.connections.clear()
    return company


def describe(shape: Shape, path: str = "", *, published: bool = False) -> dict[str, Any]:
    """Return the options description of *shape*, the property at the dotted *path*.

    Written as *published*, warnings name that path in PascalCase, have an ``information`` list
    beside them, and ``required`` is true at the top.
    """
    about = shape.about or shape.name
    body: dict[str, Any] = {
        "type": shape.kind,
        "displayName": shape.name,
        "description": about,
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


_ALWAYS = {"RequiredValidator", "OptionsValidator"}
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
    found = tuple(_members(shape, record, ""))
    if strict:
        return found, ()
    dropped = "is not a field of this platform and is dropped"
    unlisted = (each.item for each in found if each.validator == "UnlistedValidator")
    refused = tuple(each for each in found if each.validator in _ALWAYS)
    return refused, tuple(Problem(item, dropped, "Unlisted") for item in unlisted)


def _members(shape: Shape, record: Any, path: str) -> Iterator[Problem]:
    if not shape.properties:
        return
    if not isinstance(record, dict):
        yield Problem(path or "record", "must be of type Object", "TypeValidator")
        return
    for name, child in shape.properties.items():
        where, value = f"{path}.{name}" if path else name, record.get(name)
        # Assumed: "" and [] do not populate a required property. They are values for all that.
        if child.required and value in (None, "", []):
            yield Problem(where, f"{child.name} is required", "RequiredValidator")
        elif value is not None:
            yield from _value(child, value, where)
    for name, value in record.items():
        # Generated clients write every field they know, as null if it has no value.
        if name not in shape.properties and value is not None:
            where = f"{path}.{name}" if path else name
            yield Problem(where, "is not a field of this platform", "UnlistedValidator")


def _value(shape: Shape, value: Any, path: str) -> Iterator[Problem]:
    if shape.choices and not (isinstance(value, str) and value in shape.choices):
        yield Problem(path, f"must be one of: {', '.join(shape.choices)}", "OptionsValidator")
    elif not _fits(shape.kind, value):
        yield Problem(path, f"must be of type {shape.kind}", "TypeValidator")
    elif shape.most and len(value) > shape.most:
        yield Problem(path, f"must be no longer than {shape.most} characters", "LengthValidator")
    elif isinstance(value, list):
        for n, entry in enumerate(value):
            yield from _members(shape, entry, f"{path}[{n}]")
    else:
        yield from _members(shape, value, path)


def _fits(kind: str, value: Any) -> bool:
    if not isinstance(value, _KINDS[kind]) or (kind == "Number" and isinstance(value, bool)):
        return False
    if kind != "DateTime":
        return True
    try:
        datetime.fromisoformat(str(value))
    except ValueError:
        return False
    return _MOMENT.fullmatch(str(value)) is not None


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
