"""Renders push options as a description of form controls, for any user interface."""

from __future__ import annotations

from enum import StrEnum
from typing import Any, Final

from attrs import frozen

from integration_sdk._options.description import OBJECT, Field


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
