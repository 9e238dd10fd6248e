"""Renders push options, as JSON Schema and as form controls for any user interface.

The schema refuses exactly the records in which the check finds errors. What the check only warns
about (unlisted properties, rules in plain words) is described, not enforced.
"""

from __future__ import annotations

from collections.abc import Mapping
from copy import deepcopy
from enum import StrEnum
from typing import Any, Final

from attrs import frozen

from integration_sdk._options.description import OBJECT, Choices, Field

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


# As a form


class ControlKind(StrEnum):
    """The kind of control to draw."""

    TEXT = "text"
    NUMBER = "number"
    CHECKBOX = "checkbox"
    DATE = "date"
    """Submits ISO 8601 text, with or without a time."""
    SELECTION = "selection"
    """One of ``choices``."""
    GROUP = "group"
    """An object: draw ``controls``."""
    LIST = "list"
    """Any number of entries: each is ``controls``, or one of ``choices``, or plain text."""
    FILE = "file"


@frozen(kw_only=True)
class FormControl:
    """One control of a form; ``attrs.asdict`` turns it into plain data.

    Attributes:
        kind: What to draw.
        name: Name of the field in the record.
        path: Where the field is in the record, such as ``lineItems[].quantity``.
        label: Text to show beside the control.
        help: What the field is for.
        required: Must be filled in if the group around it is.
        choices: ``(value, label)``: show the label, submit the value.
        rules: Further rules of the platform, in plain words.
        controls: The controls inside a group, or of one entry of a list.
    """

    kind: ControlKind
    name: str
    path: str
    label: str
    help: str | None = None
    required: bool = False
    choices: tuple[tuple[Any, str], ...] = ()
    rules: tuple[str, ...] = ()
    controls: tuple[FormControl, ...] = ()


_KINDS: Final = {
    "Number": ControlKind.NUMBER,
    "Boolean": ControlKind.CHECKBOX,
    "DateTime": ControlKind.DATE,
    "Array": ControlKind.LIST,
    "File": ControlKind.FILE,
    "MultiPart": ControlKind.FILE,
}


def render_form(record: Field) -> list[FormControl]:
    """Return a control for each property of *record*, in the service's order."""
    return [_control(member) for member in record.members.values()]


def _control(field: Field) -> FormControl:
    inside = field if field.element is None else field.element
    return FormControl(
        kind=_kind(field),
        name=field.name,
        path=field.path,
        label=field.label,
        help=field.description.description,
        required=field.required,
        choices=tuple((c.value, c.label) for c in inside.choices.listed) if inside.choices else (),
        rules=field.rules,
        controls=tuple(render_form(inside)),
    )


def _kind(field: Field) -> ControlKind:
    if field.choices is not None:
        return ControlKind.SELECTION
    if field.kind is OBJECT or field.members:
        return ControlKind.GROUP
    return _KINDS.get(field.description.type or "", ControlKind.TEXT)
