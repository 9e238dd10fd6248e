"""Builds attrs classes, dataclasses, TypedDicts and Structs from plain values, with cattrs.

Nothing is coerced, unlike in cattrs alone: a text is no number, and a number no text. This module
is imported with the first class, since a program that reads dicts does not need cattrs.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from datetime import date, datetime
from decimal import Decimal, InvalidOperation
from functools import lru_cache, partial
from types import NoneType, UnionType
from typing import (
    Any,
    Final,
    NotRequired,
    Required,
    Union,
    get_args,
    get_origin,
    get_type_hints,
    is_typeddict,
)

import attrs
import msgspec
from cattrs import Converter, transform_error
from cattrs.errors import AttributeValidationNote, ClassValidationError
from cattrs.gen import make_dict_structure_fn, override

from integration_sdk._options_given import Numbers
from integration_sdk._records.codec import parse_utc
from integration_sdk._records.pydantic_models import is_pydantic
from integration_sdk._records.writing import is_made, is_struct, json_names

Hook = Callable[[Any, Any], Any]
"""Makes a value of the class that it is given, which may be derived, such as an enumeration."""
_ORDER: Final = (Decimal, float, int, bool, str)
"""Plain values. In a union, what is none of its kinds is read as the first: 1 as Decimal."""
_DAY: Final = re.compile(r"(\d{4}-\d\d-\d\d)(T00:00(:00(\.0+)?)?(Z|[+-]\d\d:?\d\d)?)?")
"""A day as the service writes it, with or without midnight. Any other time would be lost."""
_read: Final = msgspec.json.Decoder(float_hook=Decimal).decode


def builder(model: Any, numbers: Numbers) -> Callable[[Any], Any]:
    """Return a function that decodes the bytes of an item into *model*."""
    build = _converter(numbers, detailed=False).get_structure_hook(model)
    return lambda raw: build(_read(raw), model)


def explain(model: Any, raw: bytes, error: Exception) -> tuple[str, str]:
    """Return what is wrong with an item, and where."""
    try:
        _converter("float", detailed=True).structure(_read(raw), model)
    except Exception as detailed:  # the same error, with its path
        what, _, where = transform_error(detailed, "$", _words)[0].rpartition(" @ ")
        return what or str(error), where
    return str(error), "$"


def _words(error: BaseException, _: Any) -> str:
    return f"there is no {error}" if isinstance(error, KeyError) else str(error)


@lru_cache(4)
def _converter(numbers: Numbers, *, detailed: bool) -> Converter:
    converter = strict_converter(detailed=detailed)
    plain = _with_floats if numbers == "float" else lambda value: value
    converter.register_structure_hook_func(
        lambda kind: kind in {Any, object}, lambda value, _: plain(value)
    )
    return converter


def strict_converter(*, detailed: bool = False) -> Converter:
    """Return a converter that coerces nothing; *detailed*, its errors say where."""
    converter = Converter(detailed_validation=detailed)
    for kind, read in _STRICT.items():
        converter.register_structure_hook(kind, read)
    for is_one, build in (
        (_is_choice, _choice),
        (is_made, _build),
        (is_typeddict, _build_from_members),
        (is_struct, _build_from_members),
        (is_pydantic, _refuse),
    ):
        converter.register_structure_hook_factory(is_one, partial(build, converter))
    return converter


def _build(converter: Converter, kind: Any) -> Hook:
    own = get_origin(kind) or kind
    if attrs.has(own):
        attrs.resolve_types(own)
    renamed = {name: override(rename=written) for name, written in json_names(own).items()}
    build: Any = make_dict_structure_fn(kind, converter, **renamed)  # type: ignore[arg-type]  # cattrs' stub wants literals
    return lambda value, wanted: build(
        value if type(value) is dict else _exactly(dict, value), wanted
    )


def _build_from_members(converter: Converter, kind: Any) -> Hook:
    """Return the hook of a Struct or TypedDict, which cattrs does not know or not in full."""
    names, make = json_names(kind), dict if is_typeddict(kind) else kind
    fields: list[tuple[str, str, Any, bool]] = []
    for name, wanted in get_type_hints(kind, include_extras=True).items():
        mark = get_origin(wanted)
        is_optional = mark is NotRequired or not getattr(kind, "__total__", False)
        inner = get_args(wanted)[0] if mark in {Required, NotRequired} else wanted
        fields.append((name, names[name], inner, is_optional and mark is not Required))

    def read(value: Any, _: Any) -> Any:
        members, made = _exactly(dict, value), {}
        for name, written, wanted, is_optional in fields:
            if written in members or not is_optional:
                try:
                    made[name] = converter.structure(members[written], wanted)
                except Exception as error:
                    if not converter.detailed_validation:
                        raise
                    error.add_note(AttributeValidationNote("", name, wanted))
                    raise ClassValidationError("", [error], kind) from None
        return make(**made)

    return read


def _refuse(_: Converter, kind: Any) -> Hook:
    raise TypeError(f"it contains {kind.__name__}, a pydantic model; only those may contain one")


def _is_choice(kind: Any) -> bool:
    """Whether *kind* is a union of plain values."""
    return get_origin(kind) in {Union, UnionType} and {*get_args(kind)} <= {*_ORDER, NoneType}


def _choice(converter: Converter, kind: Any) -> Hook:
    kinds = frozenset(get_args(kind))
    first = next(one for one in _ORDER if one in kinds)
    read_first = converter.get_structure_hook(first)
    return lambda value, _: value if type(value) in kinds else read_first(value, first)


def _unfit(kind: Any, value: Any) -> TypeError:
    return TypeError(f"expected {getattr(kind, '__name__', kind)}, got {value!r:.80}")


def _exactly(wanted: type, value: Any) -> Any:
    if type(value) is wanted:
        return value
    raise _unfit(wanted, value)


def _text(value: Any, kind: Any) -> Any:
    return _exactly(str, value) if kind is str else kind(_exactly(str, value))


def _flag(value: Any, _: Any) -> Any:
    return _exactly(bool, value)


def _whole(value: Any, kind: Any) -> Any:
    if type(value) is Decimal and value == value.to_integral_value():
        value = int(value)
    return _exactly(int, value) if kind is int else kind(_exactly(int, value))


def _float(value: Any, kind: Any) -> Any:
    if type(value) in {int, float, Decimal}:
        return kind(value)
    raise _unfit(kind, value)


def _decimal(value: Any, kind: Any) -> Any:
    if type(value) is Decimal:
        return value
    try:
        if type(value) in {int, str} and (number := Decimal(value)).is_finite():
            return number
    except InvalidOperation:
        pass
    raise _unfit(kind, value)


def _day(value: Any, kind: Any) -> date:
    found = _DAY.fullmatch(_exactly(str, value))
    if found is None:
        raise _unfit(kind, value)
    return date.fromisoformat(found[1])


def _with_floats(value: Any) -> Any:
    if type(value) is Decimal:
        return float(value)
    if type(value) is dict:
        return {name: _with_floats(member) for name, member in value.items()}
    return [_with_floats(item) for item in value] if type(value) is list else value


_STRICT: Final[dict[Any, Hook]] = {
    str: _text,
    bool: _flag,
    int: _whole,
    float: _float,
    Decimal: _decimal,
    datetime: parse_utc,
    date: _day,
}
