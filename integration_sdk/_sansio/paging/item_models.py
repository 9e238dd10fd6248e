"""A class of yours, read at the speed of msgspec.

Where the class is one that msgspec reads by itself and whose fields are the
JSON's (a Struct, a TypedDict), it is used as it stands. Any other gets a twin: a
Struct with the JSON's names (``due_date`` is read from ``dueDate``), which msgspec
fills, and a generated function that hands the values to your class' own
``__init__``. So validators and converters run, and an item costs about what a dict
does, a fifth of what cattrs takes.

::

    class Invoice:            Twin(Struct):                build(t):
        due_date: datetime        dueDate: datetime            Invoice(due_date=utc(t.dueDate),
        line_items: list[Line]    lineItems: list[LineTwin]        line_items=[build_Line(x) ...])
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterator, Mapping
from datetime import UTC, datetime
from types import NoneType, UnionType
from typing import Annotated, Any, Final, Union, get_args, get_origin, get_type_hints, is_typeddict

import attrs
import msgspec
from attrs import define, field, frozen

from integration_sdk.errors import ConfigurationError

Build = Callable[[Any], Any]
_REQUIRED: Final = msgspec.NODEFAULT
_SEQUENCES: Final[Mapping[Any, str]] = {
    list: "[{each} for x in {value}]",
    tuple: "tuple([{each} for x in {value}])",
    set: "{{{each} for x in {value}}}",
    frozenset: "frozenset([{each} for x in {value}])",
}


@frozen
class Shape:
    """How an item of a class is read.

    Attributes:
        type: What msgspec decodes into.
        build: Makes the item of that; None where it is the item.
    """

    type: Any
    build: Build | None = None


@frozen
class _Field:
    argument: str
    json_name: str
    type: Any
    default: Any = _REQUIRED
    factory: Any = _REQUIRED
    late: bool = False
    """Whether the default can only be made by the class' own ``__init__``."""


def shape_of(model: Any) -> Shape:
    """Return how *model* is read.

    Raises:
        ConfigurationError: It is none of attrs class, dataclass, TypedDict or
            Struct, or has a field that JSON cannot fill.
    """
    twins = _Twins()
    try:
        shape = twins.shape(model)
        msgspec.json.Decoder(shape.type)
    except (TypeError, NameError) as error:
        raise ConfigurationError(f"model={_name(model)} cannot be read: {error}") from None
    return shape


def camel(name: str) -> str:
    """Return *name* as the service spells it: ``due_date`` becomes ``dueDate``."""
    head, *tail = name.strip("_").split("_")
    return head + "".join(part[:1].upper() + part[1:] for part in tail)


def as_utc(moment: Any) -> Any:
    """Return *moment* aware. Assumed: a time without an offset is UTC."""
    if isinstance(moment, datetime) and moment.tzinfo is None:
        return moment.replace(tzinfo=UTC)
    return moment


# Fields of a class, whatever made it


def _fields(model: Any) -> Iterator[_Field]:
    hints = get_type_hints(model, include_extras=True)
    if attrs.has(model):
        yield from (_of_attrs(a, hints) for a in attrs.fields(model) if a.init)
    elif dataclasses.is_dataclass(model):
        yield from (_of_dataclass(f, hints) for f in dataclasses.fields(model) if f.init)
    else:
        yield from (_of_struct(f) for f in msgspec.structs.fields(model))


def _of_attrs(attribute: Any, hints: Mapping[str, Any]) -> _Field:
    known = hints.get(attribute.name, Any)
    default, factory, late = attribute.default, _REQUIRED, False
    if default is attrs.NOTHING:
        default = _REQUIRED
    elif isinstance(default, attrs.Factory):  # type: ignore[arg-type]  # attrs types it as a function
        late, factory, default = default.takes_self, default.factory, _REQUIRED
    return _Field(attribute.alias, camel(attribute.alias), known, default, factory, late)


def _of_dataclass(member: Any, hints: Mapping[str, Any]) -> _Field:
    default = _REQUIRED if member.default is dataclasses.MISSING else member.default
    factory = _REQUIRED if member.default_factory is dataclasses.MISSING else member.default_factory
    return _Field(member.name, camel(member.name), hints[member.name], default, factory)


def _of_struct(member: Any) -> _Field:
    return _Field(
        member.name, camel(member.name), member.type, member.default, member.default_factory
    )


def _speaks_python(struct: Any) -> bool:
    """Whether a Struct has snake_case fields and says nothing of their JSON names."""
    fields = msgspec.structs.fields(struct)
    return all(f.name == f.encode_name for f in fields) and any(
        camel(f.name) != f.name for f in fields
    )


# Twins


@define
class _Twins:
    """Twins made for one model; classes may nest and name each other."""

    _made: dict[Any, Shape] = field(factory=dict)
    _making: set[Any] = field(factory=set)

    def shape(self, model: Any) -> Shape:
        if _is_struct(model) and not _speaks_python(model):
            return Shape(model)
        if _has_fields(model):
            return self._twin(model)
        if is_typeddict(model):
            return Shape(model)
        raise TypeError("it must be an attrs class, a dataclass, a TypedDict or a msgspec Struct")

    def _twin(self, model: Any) -> Shape:
        if model in self._made:
            return self._made[model]
        if model in self._making:
            raise TypeError(f"{_name(model)} holds itself; use a msgspec Struct for that")
        self._making.add(model)
        shape = self._made[model] = self._make(model)
        return shape

    def _make(self, model: Any) -> Shape:
        known: dict[str, Any] = {"model": model, "utc": as_utc, "UNSET": msgspec.UNSET}
        members, arguments = [], []
        for item in _fields(model):
            kind, expression = self._value(item.type, f"t.{item.json_name}", known)
            members.append(_member(item, kind))
            arguments.append(_argument(item, expression))
        twin = msgspec.defstruct(f"{_name(model)}Twin", members, gc=False, kw_only=True)
        source = f"lambda t: model({', '.join(arguments)})"
        return Shape(twin, eval(source, known))  # noqa: S307  # made of field names, never of data

    def _value(self, kind: Any, value: str, known: dict[str, Any]) -> tuple[Any, str]:
        """Return the twin's type for *kind*, and the expression that turns its *value* back."""
        if _is_twinned(kind):
            shape = self._twin(kind)
            name = f"build_{len(known)}"
            known[name] = shape.build
            return shape.type, f"{name}({value})"
        if kind is datetime:
            return kind, f"utc({value})"
        return self._generic(kind, value, known)

    def _generic(self, kind: Any, value: str, known: dict[str, Any]) -> tuple[Any, str]:
        origin, arguments = get_origin(kind), get_args(kind)
        if origin is Annotated:
            inner, expression = self._value(arguments[0], value, known)
            return Annotated[(inner, *arguments[1:])], expression
        if origin in {Union, UnionType} and len(arguments) == 2 and NoneType in arguments:
            inner = arguments[0] if arguments[1] is NoneType else arguments[1]
            twin, expression = self._value(inner, value, known)
            if expression == value:
                return kind, value
            return twin | None, f"None if {value} is None else {expression}"
        return self._container(kind, origin, arguments, value, known)

    def _container(
        self, kind: Any, origin: Any, arguments: tuple[Any, ...], value: str, known: dict[str, Any]
    ) -> tuple[Any, str]:
        if origin is dict and len(arguments) == 2:
            twin, each = self._value(arguments[1], "x", known)
            expression = f"{{k: {each} for k, x in {value}.items()}}"
            return (kind, value) if each == "x" else (dict[arguments[0], twin], expression)  # type: ignore[valid-type]  # made at run time
        repeats = origin in _SEQUENCES and (len(arguments) == 1 or arguments[1:] == (...,))
        if repeats:
            twin, each = self._value(arguments[0], "x", known)
            if each != "x":
                return origin[(twin, *arguments[1:])], _SEQUENCES[origin].format(
                    each=each, value=value
                )
        return kind, value


def _member(item: _Field, kind: Any) -> tuple[str, Any, Any]:
    if item.late:
        return item.json_name, kind | msgspec.UnsetType, msgspec.UNSET
    if item.factory is not _REQUIRED:
        return item.json_name, kind, msgspec.field(default_factory=item.factory)
    return item.json_name, kind, msgspec.field(default=item.default)


def _argument(item: _Field, expression: str) -> str:
    if not item.late:
        return f"{item.argument}={expression}"
    given = f"{{{item.argument!r}: {expression}}}"
    return f"**({{}} if t.{item.json_name} is UNSET else {given})"


def _is_struct(kind: Any) -> bool:
    return isinstance(kind, type) and issubclass(kind, msgspec.Struct)


def _has_fields(kind: Any) -> bool:
    if not isinstance(kind, type):
        return False
    return attrs.has(kind) or dataclasses.is_dataclass(kind) or _is_struct(kind)


def _is_twinned(kind: Any) -> bool:
    return _has_fields(kind) and not (_is_struct(kind) and not _speaks_python(kind))


def _name(model: Any) -> str:
    return getattr(model, "__name__", None) or repr(model)
