"""Turns instances of the user's classes into plain dicts with the service's names.

What a list reads from ``supplierName`` into ``supplier_name`` is pushed as ``supplierName`` again:
an attrs class, dataclass or Struct, nested or not, is written with the names that it is read with.
A pydantic model is written with its aliases. A dict is sent as it is.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping
from copy import copy
from datetime import date, datetime
from decimal import Decimal
from enum import Enum
from functools import lru_cache, partial
from typing import Any, Final

import attrs
import msgspec

from integration_sdk._records.classes import (
    camel,
    check_names,
    is_struct,
    needs_renaming,
    service_name,
)
from integration_sdk._records.pydantic_models import dumped, is_pydantic

_read_raw: Final = msgspec.json.Decoder(float_hook=Decimal).decode
_PLAIN: Final = frozenset({str, int, float, bool, type(None), Decimal, datetime, date})
"""What most members of a record are: they are kept without asking for their writer."""


def _as_written(read: Callable[[str], date], day: date) -> date:
    """Return the date or time that *day* says it is; refuse ``pandas.NaT``, which says "NaT"."""
    return read(day.isoformat())


_EXACT: Final[dict[type, Callable[[Any], Any]]] = {
    str: str.__str__,
    int: int.__int__,
    float: float.__float__,
    Decimal: Decimal,
    datetime: partial(_as_written, datetime.fromisoformat),
    date: partial(_as_written, date.fromisoformat),
}
"""Makes a value of the class itself of one of a subclass, such as ``numpy.float64`` or
``pandas.Timestamp``, which msgspec refuses."""


def to_plain(value: Any) -> Any:
    """Return *value* with objects converted to dicts, and other containers to dicts and lists."""
    kind: Any = type(value)
    write = _writer(kind)
    return value if write is None else write(value)


@lru_cache(1024)
def _writer(kind: type) -> Callable[[Any], Any] | None:
    """Return the function that converts instances of *kind*; None if they are plain already."""
    if is_struct(kind):
        return partial(_of_struct, _struct_names(kind))
    check_names(kind)
    if is_pydantic(kind):
        return dumped
    if attrs.has(kind) or dataclasses.is_dataclass(kind):
        return partial(_of_object, _names(kind))
    if issubclass(kind, Mapping):
        return _of_mapping
    if kind is msgspec.Raw:
        return _read_raw
    if issubclass(kind, set | frozenset):
        return _of_set
    if issubclass(kind, list | tuple):
        return _of_items
    if kind in _PLAIN or issubclass(kind, Enum):
        return None
    if kind.__module__.partition(".")[0] == "numpy" and hasattr(kind, "tolist"):
        return _of_numpy
    return next((exact for base, exact in _EXACT.items() if issubclass(kind, base)), None)


def _names(kind: Any) -> list[tuple[str, str]]:
    """Return each field's own name and the service's; skip private fields without an argument."""
    members = attrs.fields(kind) if attrs.has(kind) else dataclasses.fields(kind)
    return [
        (member.name, service_name(member))
        for member in members
        if member.init or not member.name.startswith("_")
    ]


def _of_object(names: list[tuple[str, str]], value: Any) -> dict[str, Any]:
    members = ((theirs, getattr(value, ours, msgspec.UNSET)) for ours, theirs in names)
    return {name: to_plain(member) for name, member in members if member is not msgspec.UNSET}


def _struct_names(kind: Any) -> dict[str, str]:
    """Return the names to change; none if the Struct defines its JSON names itself."""
    changes = needs_renaming(kind) and not kind.__struct_config__.array_like
    return {name: camel(name) for name in kind.__struct_fields__} if changes else {}


def _of_struct(names: dict[str, str], value: Any) -> Any:
    """Convert a Struct with msgspec, so that its settings for tags and defaults apply."""
    anew = copy(value)
    for name in value.__struct_fields__:
        msgspec.structs.force_setattr(anew, name, to_plain(getattr(value, name)))
    plain = msgspec.to_builtins(anew, builtin_types=(Decimal,))
    return {names.get(name, name): member for name, member in plain.items()} if names else plain


def _of_mapping(value: Mapping[Any, Any]) -> dict[Any, Any]:
    return {
        # msgspec writes a Decimal without quotes, even where it is a name.
        str(name) if type(name) is Decimal else name: (
            member if type(member) in _PLAIN else to_plain(member)
        )
        for name, member in value.items()
    }


def _of_items(value: Any) -> list[Any]:
    return [to_plain(item) for item in value]


def _of_numpy(value: Any) -> Any:
    """Return what a scalar or an array holds, as Python's own numbers, texts and lists."""
    held = value.tolist()
    return value if type(held) is type(value) else to_plain(held)  # a longdouble stays itself


def _of_set(value: Any) -> list[Any]:
    """Return the items sorted: references need the same bytes for a record in every process."""
    return sorted(_of_items(value), key=msgspec.json.encode)
