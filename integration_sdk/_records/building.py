"""Builds attrs classes, dataclasses, TypedDicts and Structs from plain values, with cattrs.

Nothing is coerced, unlike in cattrs alone: a text is no number, and a number no text. This module
is imported with the first class, since a program that reads dicts does not need cattrs.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, MutableMapping, MutableSequence, Sequence, Set
from datetime import date, datetime
from decimal import Decimal, InvalidOperation
from functools import lru_cache, partial
from types import GenericAlias, NoneType, UnionType
from typing import (
    Any,
    Final,
    NotRequired,
    Required,
    TypedDict,
    Union,
    get_args,
    get_origin,
    get_type_hints,
    is_typeddict,
)

import attrs
from cattrs import Converter, transform_error
from cattrs.cols import list_structure_factory, mapping_structure_factory
from cattrs.gen import make_dict_structure_fn, override
from cattrs.gen.typeddicts import make_dict_structure_fn as make_members_fn

from integration_sdk._options_given import Numbers
from integration_sdk._records.codec import parse_utc
from integration_sdk._records.pydantic_models import is_pydantic
from integration_sdk._records.writing import decode_exact, is_made, is_struct, json_names

Hook = Callable[[Any, Any], Any]
"""Makes a value of the class that it is given, which may be derived, such as an enumeration."""
_ORDER: Final = (Decimal, float, int, bool, str)
"""Plain values. In a union, what is none of its kinds is read as the first: 1 as Decimal."""
_LISTS: Final[dict[Any, Callable[[list[Any]], Any]]] = {
    **dict.fromkeys((list, MutableSequence), list),
    **dict.fromkeys((tuple, Sequence), tuple),
    **dict.fromkeys((frozenset, Set), frozenset),
    set: set,
}
"""What collections are made of lists, by their classes."""
_DAY: Final = re.compile(r"(\d{4}-\d\d-\d\d)(T00:00(:00(\.0+)?)?(Z|[+-]\d\d:?\d\d)?)?")
"""A day as the service writes it, with or without midnight. Any other time would be lost."""


def builder(model: Any, numbers: Numbers) -> Callable[[Any], Any]:
    """Return a function that decodes the bytes of an item into *model*."""
    build = _converter(numbers, detailed=False).get_structure_hook(model)
    return lambda raw: build(decode_exact(raw), model)


def explain(model: Any, raw: bytes, error: Exception) -> tuple[str, str]:
    """Return what is wrong with an item, and where."""
    try:
        _converter("float", detailed=True).structure(decode_exact(raw), model)
    except Exception as detailed:  # the same error, with its path
        what, _, where = transform_error(detailed, "$", _words)[0].rpartition(" @ ")
        return what or str(error), where
    return str(error), "$"


def _words(error: BaseException, _: Any) -> str:
    return f"there is no {error}" if isinstance(error, KeyError) else str(error)


def strict_converter(numbers: Numbers = "decimal", *, detailed: bool = False) -> Converter:
    """Return a converter that coerces nothing; *detailed*, its errors say where.

    Without annotation, *numbers* says what becomes of Decimals.
    """
    converter = Converter(detailed_validation=detailed)
    for kind, read in _STRICT.items():
        converter.register_structure_hook(kind, read)
    converter.register_structure_hook_func(
        lambda kind: kind in {Any, object},
        _with_floats if numbers == "float" else lambda value, _: value,
    )
    for is_one, build in (
        (_is_list, _build_list),
        (_is_mapping, _build_mapping),
        (_is_choice, _choice),
        (is_made, build_made),
        (is_typeddict, _build_from_members),
        (is_struct, _build_from_members),
        (is_pydantic, _refuse),
    ):
        converter.register_structure_hook_factory(is_one, partial(build, converter))
    return converter


_converter: Final = lru_cache(4)(strict_converter)


def build_made(converter: Converter, kind: Any) -> Hook:
    """Return the hook of an attrs class or dataclass."""
    own = get_origin(kind) or kind
    if attrs.has(own):
        attrs.resolve_types(own)
    renamed = {name: override(rename=written) for name, written in json_names(own).items()}
    build: Any = make_dict_structure_fn(kind, converter, **renamed)  # type: ignore[arg-type]  # cattrs' stub wants literals
    read = _only(dict, build)
    vars(read)["overrides"] = renamed  # cattrs tells the classes of a union by it
    return read


def _build_from_members(converter: Converter, kind: Any) -> Hook:
    """Return the hook of a Struct or TypedDict."""
    names, members = json_names(kind), _members(kind)
    changes: Any = {
        name: override(rename=None if name == written else written, struct_hook=converter.structure)
        for name, written in names.items()
    }
    build = make_members_fn(members, converter, **changes)

    def read(value: Any, _: Any) -> Any:
        found = _exactly(dict, value)
        known = {written: found[written] for written in names.values() if written in found}
        return kind(**build(known, members))

    return read


def _members(kind: Any) -> Any:
    """Return a TypedDict that says of each member whether it is required, as cattrs needs it."""
    members: dict[str, Any] = get_type_hints(kind, include_extras=True)
    required = getattr(kind, "__required_keys__", ())  # a Struct checks its members itself
    for name, hint in members.items():
        if get_origin(hint) not in {Required, NotRequired}:
            members[name] = Required[hint] if name in required else NotRequired[hint]
    return TypedDict(kind.__name__, members)  # type: ignore[operator]  # made at run time


def _is_list(kind: Any) -> bool:
    """Whether *kind* is a collection of any number of items; a tuple of some is none."""
    return (get_origin(kind) or kind) in _LISTS and get_args(kind)[1:] in {(), (...,)}


def _build_list(converter: Converter, kind: Any) -> Hook:
    """Return the hook of a collection; cattrs's own takes a text for a list of its letters."""
    make = _LISTS[get_origin(kind) or kind]
    (wanted,) = get_args(kind)[:1] or (Any,)
    items: Any = GenericAlias(list, object if wanted is Any else wanted)  # else it would be copied
    read = _only(list, list_structure_factory(items, converter))
    return read if make is list else lambda value, _: make(read(value, list))


def _is_mapping(kind: Any) -> bool:
    return (get_origin(kind) or kind) in {dict, Mapping, MutableMapping}


def _build_mapping(converter: Converter, kind: Any) -> Hook:
    members: Any = GenericAlias(dict, get_args(kind) or (str, Any))
    return _only(dict, mapping_structure_factory(members, converter))


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


def _only(wanted: type, read: Hook) -> Hook:
    """Return *read* for values of the class *wanted*, and of no other."""
    return lambda value, kind: read(
        value if type(value) is wanted else _exactly(wanted, value), kind
    )


def _text(value: Any, kind: Any) -> Any:
    return _exactly(str, value) if kind is str else kind(_exactly(str, value))


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


def _with_floats(value: Any, _: Any = None) -> Any:
    if type(value) is Decimal:
        return float(value)
    if type(value) is dict:
        return {name: _with_floats(member) for name, member in value.items()}
    return [_with_floats(item) for item in value] if type(value) is list else value


_STRICT: Final[dict[Any, Hook]] = {
    str: _text,
    bool: lambda value, _: _exactly(bool, value),
    int: _whole,
    float: _float,
    Decimal: _decimal,
    datetime: parse_utc,
    date: _day,
}
