"""What a setting or an argument of a fault may be: its annotation says so, and is checked."""

from __future__ import annotations

import re
from datetime import date, datetime
from typing import Annotated, Any, Literal, get_args, get_origin

import msgspec
from msgspec import Meta

Whole = Annotated[int, Meta(ge=0)]
Count = Annotated[int, Meta(ge=1)]
Duration = Annotated[float, Meta(ge=0)]
HeaderText = Annotated[str, Meta(pattern=r"^[^\r\n\0]*\Z")]
Span = tuple[float, float]


def allowed(wanted: Any, name: str, value: Any) -> Any:
    """Return *value* in the type *wanted*; a list becomes a tuple, a whole number a fraction.

    Raises:
        ValueError: It is no such value; the error says what *name* can be.
    """
    if callable(value) or isinstance(value, re.Pattern):
        return value
    try:
        return msgspec.convert(value, wanted, builtin_types=(date, datetime))
    except msgspec.ValidationError as error:
        choices = [
            str(choice)
            for part in (wanted, *get_args(wanted))
            if get_origin(part) is Literal
            for choice in get_args(part)
        ]
        why = str(error)
        if Span in {wanted, *get_args(wanted)}:
            why = why.replace("array", "(least, most)")
        why = f"Expected one of {', '.join(choices)}" if choices else why
        raise ValueError(f"{name} cannot be {value!r}: {why}") from None


def span(name: str, least: float, most: float) -> Span:
    """Return *least* and *most* seconds; ValueError if they are negative or fall."""
    if not 0 <= least <= most:
        raise ValueError(f"{name} cannot be {(least, most)}: Expected 0 <= least <= most")
    return least, most
