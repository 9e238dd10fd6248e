"""Objects of your classes, by the names that the service knows their members by.

What a list reads from ``supplierName`` into ``supplier_name`` is pushed as ``supplierName``
again: an attrs class, a dataclass or a Struct is written by the names that it is read by, alone
or inside others. A dict is sent as it stands, for its keys are the names.
"""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Callable, Mapping
from copy import copy
from datetime import date, datetime, time, timedelta
from decimal import Decimal
from functools import lru_cache, partial
from typing import Any, Final
from uuid import UUID

import attrs
import msgspec

from integration_sdk._sansio.model_fields import camel, is_struct, speaks_python

PLAIN: Final = (str, int, bool, type(None), datetime, date, time, timedelta, UUID, bytes)
"""What msgspec writes by itself and can hold nothing, numbers with a fraction aside."""
python_name: Final = re.compile(rb'_[^"_]*":').search
"""Find what may be a name in Python's spelling in JSON that msgspec wrote."""


def by_service_names(value: Any) -> Any:
    """Return *value* with dicts in the place of objects, under the names of the service."""
    kind: Any = type(value)
    write = _writer(kind)
    return value if write is None else write(value)


@lru_cache(1024)
def _writer(kind: type) -> Callable[[Any], Any] | None:
    """Return what writes objects of *kind* anew; None where they can stay as they are."""
    if is_struct(kind):
        return partial(_of_struct, _struct_names(kind))
    if attrs.has(kind) or dataclasses.is_dataclass(kind):
        return partial(_of_object, _names(kind))
    if issubclass(kind, Mapping):
        return _of_mapping
    return _of_items if issubclass(kind, list | tuple | set | frozenset) else None


def _names(kind: Any) -> list[tuple[str, str]]:
    """Return each member's name here and at the service; a private one that the class makes
    for itself is nobody's business.
    """
    members = attrs.fields(kind) if attrs.has(kind) else dataclasses.fields(kind)
    return [
        (member.name, camel(getattr(member, "alias", member.name)))
        for member in members
        if member.init or not member.name.startswith("_")
    ]


def _of_object(names: list[tuple[str, str]], value: Any) -> dict[str, Any]:
    members = ((theirs, getattr(value, ours, msgspec.UNSET)) for ours, theirs in names)
    return {
        name: by_service_names(member) for name, member in members if member is not msgspec.UNSET
    }


def _struct_names(kind: Any) -> dict[str, str]:
    """Return the names to change: none where the Struct says how it is written."""
    return {name: camel(name) for name in kind.__struct_fields__} if speaks_python(kind) else {}


def _of_struct(names: dict[str, str], value: Any) -> Any:
    """Msgspec writes it, with its tag and without its defaults, as the class says."""
    anew = copy(value)
    for name in value.__struct_fields__:
        msgspec.structs.force_setattr(anew, name, by_service_names(getattr(value, name)))
    if not names:
        return anew
    plain = msgspec.to_builtins(anew, builtin_types=(Decimal, *PLAIN))
    if not isinstance(plain, dict):  # array_like: it has no names
        return anew
    return {names.get(name, name): member for name, member in plain.items()}


def _of_mapping(value: Mapping[Any, Any]) -> dict[Any, Any]:
    return {name: by_service_names(member) for name, member in value.items()}


def _of_items(value: Any) -> list[Any]:
    return [by_service_names(item) for item in value]
