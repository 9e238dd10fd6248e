"""Builds attrs classes, dataclasses, TypedDicts and Structs from plain values, with cattrs.

Nothing is coerced, unlike in cattrs alone: a text is no number, and a number no text. This module
is imported with the first class, since a program that reads dicts does not need cattrs.
"""

from __future__ import annotations

import dataclasses
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
from cattrs.gen import make_dict_structure_fn, override

from integration_sdk._records.codec import Numbers, parse_utc
from integration_sdk._records.pydantic_models import is_pydantic
from integration_sdk._records.writing import is_struct, json_names

_PRIMITIVES: Final = frozenset({str, int, float, bool, Decimal, NoneType})
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
    converter = Converter(detailed_validation=detailed)
    plain = _with_floats if numbers == "float" else _as_it_is
    for kind, read in _STRICT.items():
        converter.register_structure_hook(kind, read)
    converter.register_structure_hook_func(
        lambda kind: kind in {Any, object}, lambda value, _: plain(value)
    )
    converter.register_structure_hook_func(_is_choice, _read_choice)
    for is_one, build in (
        (_is_made, _build),
        (is_typeddict, _build_from_members),
        (is_struct, _build_from_members),
        (is_pydantic, _refuse),
    ):
        converter.register_structure_hook_factory(is_one, partial(build, converter))
    return converter


def _is_made(kind: Any) -> bool:
    """Whether *kind* is an attrs class or dataclass, with type arguments or without."""
    kind = get_origin(kind) or kind
    return isinstance(kind, type) and (attrs.has(kind) or dataclasses.is_dataclass(kind))


def _build(converter: Converter, kind: Any) -> Any:
    own = get_origin(kind) or kind
    if attrs.has(own):
        attrs.resolve_types(own)
    renamed = {name: override(rename=written) for name, written in json_names(own).items()}
    build: Any = make_dict_structure_fn(kind, converter, **renamed)  # type: ignore[arg-type]  # cattrs' stub wants literals

    def read(value: Any, wanted: Any) -> Any:
        return build(value if type(value) is dict else _object(value), wanted)

    return read


def _build_from_members(converter: Converter, kind: Any) -> Any:
    """Return the hook of a Struct or TypedDict, which cattrs does not know or not in full."""
    names, make = json_names(kind), dict if is_typeddict(kind) else kind
    fields: list[tuple[str, str, Any, bool]] = []
    for name, wanted in get_type_hints(kind, include_extras=True).items():
        is_optional = is_struct(kind) or get_origin(wanted) is NotRequired
        if is_typeddict(kind) and not kind.__total__:
            is_optional = get_origin(wanted) is not Required
        is_marked = get_origin(wanted) in {Required, NotRequired}
        inner = get_args(wanted)[0] if is_marked else wanted
        fields.append((name, names[name], inner, is_optional))

    def read(value: Any, _: Any) -> Any:
        members = _object(value)
        return make(
            **{
                name: converter.structure(members[written], wanted)
                for name, written, wanted, is_optional in fields
                if written in members or not is_optional
            }
        )

    return read


def _refuse(_: Converter, kind: Any) -> Any:
    raise TypeError(f"it contains {kind.__name__}, a pydantic model; only those may contain one")


def _is_choice(kind: Any) -> bool:
    """Whether *kind* is a union of plain values, other than with None alone."""
    return get_origin(kind) in {Union, UnionType} and _PRIMITIVES.issuperset(get_args(kind))


def _read_choice(value: Any, kind: Any) -> Any:
    kinds = get_args(kind)
    if type(value) in kinds:
        return float(value) if type(value) is Decimal and Decimal not in kinds else value
    if float in kinds and type(value) in {int, Decimal}:
        return float(value)
    if Decimal in kinds and type(value) is int:
        return Decimal(value)
    raise _unfit(kind, value)


def _unfit(kind: Any, value: Any) -> TypeError:
    return TypeError(f"expected {getattr(kind, '__name__', kind)}, got {value!r:.80}")


def _object(value: Any) -> dict[str, Any]:
    if type(value) is not dict:
        raise _unfit(dict, value)
    return value


# A hook is called with each value: its kind may be derived, such as an enumeration of texts.


def _text(value: Any, kind: Any) -> Any:
    if type(value) is str:
        return value if kind is str else kind(value)
    raise _unfit(kind, value)


def _flag(value: Any, kind: Any) -> Any:
    if type(value) is bool:
        return value
    raise _unfit(kind, value)


def _whole(value: Any, kind: Any) -> Any:
    if type(value) is int:
        return value if kind is int else kind(value)
    if type(value) is Decimal and value == value.to_integral_value():
        return kind(int(value))
    raise _unfit(kind, value)


def _float(value: Any, kind: Any) -> Any:
    if type(value) in {int, Decimal}:
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
    found = _DAY.fullmatch(value) if type(value) is str else None
    if found is None:
        raise _unfit(kind, value)
    return date.fromisoformat(found[1])


def _as_it_is(value: Any) -> Any:
    return value


def _with_floats(value: Any) -> Any:
    if type(value) is Decimal:
        return float(value)
    if type(value) is dict:
        return {name: _with_floats(member) for name, member in value.items()}
    return [_with_floats(item) for item in value] if type(value) is list else value


_STRICT: Final[dict[Any, Callable[[Any, Any], Any]]] = {
    str: _text,
    bool: _flag,
    int: _whole,
    float: _float,
    Decimal: _decimal,
    datetime: parse_utc,
    date: _day,
}
