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
from typing import Any, Final, get_origin, get_type_hints, is_typeddict

import attrs
import msgspec

from integration_sdk._records.pydantic_models import check_aliases, is_pydantic

decode_exact: Final = msgspec.json.Decoder(float_hook=Decimal).decode
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


# Names


def camel(name: str) -> str:
    """Return *name* as the service spells it: ``due_date`` becomes ``dueDate``."""
    head, *tail = name.strip("_").split("_")
    return head + "".join(part[:1].upper() + part[1:] for part in tail)


def is_struct(kind: Any) -> bool:
    return isinstance(kind, type) and issubclass(kind, msgspec.Struct)


def is_made(kind: Any) -> bool:
    """Whether *kind* is an attrs class or dataclass, with type arguments or without."""
    kind = get_origin(kind) or kind
    return isinstance(kind, type) and (attrs.has(kind) or dataclasses.is_dataclass(kind))


def has_fields(kind: Any) -> bool:
    """Whether *kind* is an attrs class, dataclass, Struct or TypedDict."""
    return is_made(kind) or is_struct(kind) or is_typeddict(kind)


def json_names(kind: Any) -> dict[str, str]:
    """Return the service's name for each field of a class; a class may define its own."""
    if is_struct(kind):
        names = dict(zip(kind.__struct_fields__, kind.__struct_encode_fields__, strict=True))
    elif not is_typeddict(kind):
        members: Any = attrs.fields(kind) if attrs.has(kind) else dataclasses.fields(kind)
        return {
            one.name: camel(getattr(one, "alias", None) or one.name)
            for one in members
            if one.init or not one.name.startswith("_")
        }
    else:
        names = {name: name for name in get_type_hints(kind)}
    own_names = any(name != written for name, written in names.items())
    return names if own_names else {name: camel(name) for name in names}


# Writing


def to_plain(value: Any) -> Any:
    """Return *value* with objects converted to dicts, and other containers to dicts and lists."""
    kind: Any = type(value)
    write = _writer(kind)
    return value if write is None else write(value)


@lru_cache(1024)
def _writer(kind: type) -> Callable[[Any], Any] | None:
    """Return the function that converts instances of *kind*; None if they are plain already."""
    if is_struct(kind):
        return partial(_of_struct, _renamed(kind))
    if is_pydantic(kind):
        check_aliases(kind)
        return lambda value: to_plain(value.model_dump(by_alias=True))
    if has_fields(kind):
        return partial(_of_object, json_names(kind))
    if issubclass(kind, Mapping):
        return _of_mapping
    if kind is msgspec.Raw:
        return decode_exact
    if issubclass(kind, set | frozenset):
        return _of_set
    if issubclass(kind, list | tuple):
        return _of_items
    if kind in _PLAIN or issubclass(kind, Enum):
        return None
    if kind.__module__.partition(".")[0] == "numpy" and hasattr(kind, "tolist"):
        return _of_numpy
    return next((exact for base, exact in _EXACT.items() if issubclass(kind, base)), None)


def _of_object(names: dict[str, str], value: Any) -> dict[str, Any]:
    members = ((theirs, getattr(value, ours, msgspec.UNSET)) for ours, theirs in names.items())
    return {name: to_plain(member) for name, member in members if member is not msgspec.UNSET}


def _renamed(kind: Any) -> dict[str, str]:
    """Return the service's names by those that msgspec writes, where they differ."""
    written = dict(zip(kind.__struct_encode_fields__, json_names(kind).values(), strict=True))
    is_list = kind.__struct_config__.array_like
    return {} if is_list else {one: name for one, name in written.items() if one != name}


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
    unit = value.dtype.str
    if unit.endswith("[ns]"):  # of a time, as pandas has it, tolist() makes a number
        value = value.astype(unit.replace("ns", "us"))
    held = value.tolist()
    return value if type(held) is type(value) else to_plain(held)  # a longdouble stays itself


def _of_set(value: Any) -> list[Any]:
    """Return the items sorted: references need the same bytes for a record in every process."""
    return sorted(_of_items(value), key=msgspec.json.encode)
