"""Push options: describe the records that can be pushed, and check records against that.

Source: "Push options description" and its rules; "Rules" 1-4. Assumed beyond String and Object
(the document shows no others): Array, Number, Boolean, DateTime, nested as published; an Array's
properties describe one element; what an optional parent requires is checked only if it is given.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from datetime import datetime
from decimal import Decimal
from typing import Any

from attrs import field, frozen

from integration_sdk.sandbox._call import Problem

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
    required: bool = field(default=False, kw_only=True)
    properties: Mapping[str, Shape] = field(factory=dict, kw_only=True)
    choices: Mapping[str, str] = field(factory=dict, kw_only=True)
    most: int | None = field(default=None, kw_only=True)


def describe(shape: Shape, path: str = "", *, published: bool = False) -> dict[str, Any]:
    """Return the options description of *shape*, the property at the dotted *path*.

    Written as *published*, warnings name that path in PascalCase, have an ``information`` list
    beside them, and ``required`` is true at the top.
    """
    body: dict[str, Any] = {
        "type": shape.kind,
        "displayName": shape.name,
        "description": shape.about or shape.name,
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
    body["required"] = shape.required or (published and not path)
    if shape.most:
        body["validation"] = _length_rule(shape.most, path.split("."), published=published)
    return body


def _length_rule(most: int, path: list[str], *, published: bool) -> dict[str, Any]:
    details = f"Must be no longer than {most} characters."
    if not published:
        return {"warnings": [{"field": path[-1], "details": details}]}
    field = ".".join(name[:1].upper() + name[1:] for name in path)
    return {"warnings": [{"field": field, "details": details}], "information": []}


def problems(shape: Shape, record: Any, *, strict: bool) -> Iterator[Problem]:
    """Yield the reasons for which a platform refuses *record*.

    Every platform checks required properties and listed choices; a *strict* one also checks
    types and lengths, and refuses unlisted fields.
    """
    yield from _Check(strict).value(shape, record, "")
    for path in unlisted(shape, record) if strict else ():
        yield Problem(path, "is not a field of this platform", "UnlistedValidator")


def unlisted(shape: Shape, value: Any, path: str = "") -> Iterator[str]:
    """Yield the paths of fields that *shape* does not list in *value*, which is at *path*."""
    if isinstance(value, list):
        for n, entry in enumerate(value):
            yield from unlisted(shape, entry, f"{path}[{n}]")
    elif isinstance(value, dict) and shape.properties:
        for name, inner in value.items():
            where = f"{path}.{name}" if path else name
            if name in shape.properties:
                yield from unlisted(shape.properties[name], inner, where)
            elif inner is not None:
                # Generated clients write every field they know, as null if it has no value.
                yield where


def without_unlisted(shape: Shape, record: Any) -> Any:
    """Return *record* without the fields that *shape* does not list, as a platform keeps it."""
    if isinstance(record, list):
        return [without_unlisted(shape, entry) for entry in record]
    if not shape.properties or not isinstance(record, dict):
        return record
    return {
        key: without_unlisted(shape.properties[key], value)
        for key, value in record.items()
        if key in shape.properties
    }


@frozen
class _Check:
    strict: bool

    def value(self, shape: Shape, value: Any, path: str) -> Iterator[Problem]:
        if self.strict and not _is(shape.kind, value):
            yield Problem(path or "record", f"must be of type {shape.kind}", "TypeValidator")
        elif shape.choices and not _is_choice(shape, value):
            listed = ", ".join(shape.choices)
            yield Problem(path, f"must be one of: {listed}", "OptionsValidator")
        elif self.strict and shape.most and len(str(value)) > shape.most:
            message = f"must be no longer than {shape.most} characters"
            yield Problem(path, message, "LengthValidator")
        elif isinstance(value, list):
            for n, entry in enumerate(value):
                yield from self.fields(shape, entry, f"{path}[{n}]")
        else:
            yield from self.fields(shape, value, path)

    def fields(self, shape: Shape, record: Any, path: str) -> Iterator[Problem]:
        if not isinstance(record, dict):
            if self.strict and shape.properties:
                yield Problem(path or "record", "must be of type Object", "TypeValidator")
            return
        for name, child in shape.properties.items():
            where = f"{path}.{name}" if path else name
            value = record.get(name)
            # Assumed: "" and [] do not populate a required property. They are values for all that.
            if child.required and value in (None, "", []):
                yield Problem(where, f"{child.name} is required", "RequiredValidator")
            elif value is not None:
                yield from self.value(child, value, where)


def _is_choice(shape: Shape, value: Any) -> bool:
    return isinstance(value, str) and value in shape.choices


def _is(kind: str, value: Any) -> bool:
    if kind == "Number":
        return isinstance(value, (int, float, Decimal)) and not isinstance(value, bool)
    if kind == "DateTime":
        return isinstance(value, str) and _is_moment(value)
    kinds = {"String": str, "Boolean": bool, "Array": list, "Object": dict}
    return isinstance(value, kinds.get(kind, object))


def _is_moment(text: str) -> bool:
    try:
        datetime.fromisoformat(text)
    except ValueError:
        return False
    return _MOMENT.fullmatch(text) is not None
