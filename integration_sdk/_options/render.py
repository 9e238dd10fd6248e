"""Renders push options as JSON Schema.

The schema refuses exactly the records in which the check finds errors. What the check only warns
about (unlisted properties, rules in plain words) is described, not enforced.
"""

from __future__ import annotations

from collections.abc import Mapping
from copy import deepcopy
from typing import Any, Final

from integration_sdk._options.description import Choices, Field

Schema = dict[str, Any]

DRAFT: Final = "https://json-schema.org/draft/2020-12/schema"


def render_schema(record: Field) -> Schema:
    """Return the schema of a whole record."""
    return {"$schema": DRAFT, **_words(record), "type": "object", **_inside(record)}


def render_field(field: Field) -> Schema:
    """Return the schema of one property; if it is optional, null is allowed."""
    schema = _words(field) | _value(field) | _inside(field)
    return schema | (_populated(field) if field.required else _nullable(schema))


def _words(field: Field) -> Schema:
    said = "\n".join(filter(None, (field.description.description, *field.rules)))
    words = {"title": field.description.display_name, "description": said}
    return {name: text for name, text in words.items() if text}


def _value(field: Field) -> Schema:
    if field.choices is None:
        return dict(field.kind.schema)
    if not field.choices.closed:
        return {**field.kind.schema, "examples": [choice.value for choice in field.choices.listed]}
    return _one_of(field.choices)


def _one_of(choices: Choices) -> Schema:
    admitted = choices.admitted.values()
    if all(choice.label == str(choice.value) for choice in admitted):
        return {"enum": [choice.value for choice in admitted]}
    return {"oneOf": [{"const": choice.value, "title": choice.label} for choice in admitted]}


def _inside(field: Field) -> Schema:
    if field.element is not None:
        return {"items": render_field(field.element)}
    members = {name: render_field(member) for name, member in field.members.items()}
    required = [name for name, member in field.members.items() if member.required]
    return ({"properties": members} if members else {}) | (
        {"required": required} if required else {}
    )


def _populated(field: Field) -> Schema:
    closed = field.choices is not None and field.choices.closed
    return {} if closed else deepcopy(dict(field.kind.populated))  # the caller may change it


def _nullable(schema: Mapping[str, Any]) -> Schema:
    match schema:
        case {"type": kind}:
            return {"type": [kind, "null"]}
        case {"enum": values}:
            return {"enum": [*values, None]}
        case {"oneOf": choices}:
            return {"oneOf": [*choices, {"const": None, "title": "(none)"}]}
        case _:
            return {}
