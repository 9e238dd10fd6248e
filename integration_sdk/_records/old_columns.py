"""The columns that records of a type need, learned from the records; a column never changes.

What does not fit a column goes, as JSON text, into ``<field>__json`` beside it, so that old
parts, tables and queries stay right. Numbers are one kind, exact. A field that has held nothing
but null or ``[]`` has no column yet. An object that cannot be a struct, since it is empty, deep or
has a name that no database takes, makes its field text as a whole.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from decimal import Decimal
from itertools import takewhile
from typing import Any, Final, TypeAlias

import msgspec
from msgspec.structs import replace

from integration_sdk._records.codec import parse_utc

Kind: TypeAlias = Any
"""``bool number string timestamp json``; ``[kind]`` of a list; ``{name: kind}`` of an object."""

JSON: Final = "json"
NUMBER: Final = "number"
TIMESTAMP: Final = "timestamp"
INTEGER_DIGITS: Final = 20
FRACTION_DIGITS: Final = 18
MOST_DIGITS: Final = 76
"""Of the widest number that Arrow has."""
DEEPEST: Final = 32
"""Levels of a column: a value with more would cost a database seconds, and Python its stack."""
_RESERVED: Final = frozenset({"company", "_pulled_at"})
_MOMENT: Final = re.compile(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(\.\d+)?(Z|[+-]\d\d:\d\d)?", re.ASCII)


class Columns(msgspec.Struct, frozen=True):
    """What has been learned of a type.

    Attributes:
        fields: The kind of each field's column, in the order in which they were first seen.
        texts: The fields that have a ``<field>__json`` beside it. True: from now on all of its
            values go there.
    """

    fields: dict[str, Kind] = {}
    texts: dict[str, bool] = {}

    def is_text(self, field: str) -> bool:
        """Whether all values of *field* are written as JSON text."""
        return self.fields[field] == JSON or self.texts.get(field, False)

    def name(self, field: str) -> str:
        """The name of the column of *field*."""
        before = takewhile(lambda other: other != field, self.fields)
        return text_name(field) if _is_taken(field, before) else field


NO_COLUMNS: Final = Columns()


def text_name(field: str) -> str:
    """The column for what does not fit that of *field*."""
    return f"{field}__json"


def with_text(columns: Columns, field: str, *, all_: bool = False) -> Columns:
    """Return *columns* with a ``<field>__json``."""
    if columns.texts.get(field) in {True, all_}:
        return columns
    return replace(columns, texts={**columns.texts, field: all_})


# Learning


def learn(columns: Columns, records: Iterable[Mapping[str, Any]]) -> Columns:
    """Return *columns* with all that *records* need besides."""
    values: dict[str, list[Any]] = {}
    for record in records:
        for field, value in record.items():
            values.setdefault(field, []).append(value)
    fields = dict(columns.fields)
    for field, seen in values.items():
        kind = _learned(fields.get(field), seen, _is_taken(field, fields))
        if kind is not None:
            fields[field] = kind
    if fields == columns.fields:
        return columns
    return replace(columns, fields=fields)


def _is_taken(field: str, names: Iterable[str]) -> bool:
    """Whether *field* cannot be the name of a column beside those of *names*."""
    is_ours = field.lower() in _RESERVED or field.endswith("__json")
    return is_ours or _is_refused(field, names)


def _is_refused(name: str, names: Iterable[str]) -> bool:
    """Whether a database would not take *name* beside *names*."""
    # Names that differ in case only are one to it, and it may end a name at a NUL.
    return not is_name(name) or any(one != name and one.lower() == name.lower() for one in names)


def is_name(text: str) -> bool:
    """Whether *text* can be the name of a column, or of a member of a struct."""
    return bool(text) and "\0" not in text


def _learned(kind: Kind | None, values: list[Any], is_taken: bool) -> Kind | None:
    plain = [value for value in values if not has_no_struct(value)]
    is_odd = len(plain) < len(values)
    if kind is None and (is_taken or is_odd):
        return JSON if is_odd or not all(map(is_nothing, values)) else None
    is_new = kind is None
    for value in plain:
        kind = merged(kind, value)
    texts = [value for value in values if value is not None]
    if is_new and kind == "string" and all(map(is_moment, texts)):
        return TIMESTAMP
    return kind


def merged(kind: Kind | None, value: Any) -> Kind | None:
    """Return *kind*, extended by what *value* adds to it; unchanged if it does not fit."""
    match kind, value:
        case _, None:
            return kind
        case None, bool():
            return "bool"
        case None, int() | float() | Decimal():
            return NUMBER
        case None, str():
            return "string"
        case None | list(), list():
            item = kind[0] if kind else None
            for one in value:
                item = merged(item, one)
            return None if item is None else [item]
        case None | dict(), dict():
            return _with_members(dict(kind or {}), value)
    return kind


def _with_members(members: dict[str, Kind], value: Mapping[str, Any]) -> Kind | None:
    for name, one in value.items():
        if name not in members and _is_refused(name, members):
            continue
        member = merged(members.get(name), one)
        if member is not None:
            members[name] = member
    return members or None


def has_no_struct(value: Any, levels: int = DEEPEST) -> bool:
    """Whether *value* has an object in it that cannot be a struct, or more than so many levels."""
    match value:
        case dict():
            names = {name.lower() for name in value if is_name(name)}
            if not value or len(names) < len(value):
                return True
            inside: Iterable[Any] = value.values()
        case list():
            inside = value
        case _:
            return False
    return not levels or any(has_no_struct(one, levels - 1) for one in inside)


def is_nothing(value: Any) -> bool:
    """Whether *value* says nothing of its kind: null, or a list or an object of such."""
    match value:
        case None:
            return True
        case list():
            return all(map(is_nothing, value))
        case dict():
            return bool(value) and all(map(is_nothing, value.values()))
    return False


# Fitting


def fits(kind: Kind, value: Any) -> bool:
    """Whether a column of *kind* can hold *value* exactly."""
    match kind, value:
        case _, None:
            return True
        case "json", _:
            return True
        case "bool", bool():
            return True
        case "number", bool():
            return False
        case "number", int() | float() | Decimal() | str():
            return _is_exact(value)
        case "string", str():
            return True
        case "timestamp", str():
            return is_moment(value)
        case [item], list():
            return all(fits(item, one) for one in value)
        case dict(), dict():
            return all(
                # Not more: Arrow looks for one type for a list of [] and {"a": null}, too.
                fits(kind[name], one) if name in kind else one is None or one == []
                for name, one in value.items()
            )
    return False


def _is_exact(value: Any) -> bool:
    """Whether a decimal(38, 18) holds *value*; texts of numbers are taken for numbers."""
    try:
        number = Decimal(value)
        exponent = number.as_tuple().exponent
        # Not that of NaN, nor one so small that a context would round it to 0.
        if not isinstance(exponent, int) or exponent < -MOST_DIGITS:
            return False
        number = number.normalize()
    except ArithmeticError:  # no number, or none that a context holds
        return False
    fraction = -int(number.as_tuple().exponent)
    return number.adjusted() < INTEGER_DIGITS and fraction <= FRACTION_DIGITS


def is_moment(value: Any) -> bool:
    """Whether *value* is a date and time in ISO 8601."""
    if not (isinstance(value, str) and _MOMENT.fullmatch(value)):
        return False
    try:
        parse_utc(value)
    except ValueError:
        return False
    return True
