"""Reads the fields of an attrs class, dataclass, Struct or TypedDict.

Pydantic models decode and encode themselves; only the names of their fields are checked here.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator, Mapping
from datetime import date
from typing import (
    Annotated,
    Any,
    Final,
    Literal,
    NewType,
    NotRequired,
    Required,
    get_args,
    get_origin,
    get_type_hints,
    is_typeddict,
)

import attrs
import msgspec
from attrs import frozen

from integration_sdk._records.pydantic_models import (
    is_aliased,
    is_described,
    is_pydantic,
    models_in,
)

REQUIRED: Final = msgspec.NODEFAULT


@frozen
class Field:
    """One field of a class.

    Attributes:
        argument: Its name as an argument of the class.
        json_name: Its name in the service's JSON.
        type: Its annotation.
        default: Its value if the JSON has none; `REQUIRED` if there is no such default.
        factory: Makes that value; `REQUIRED` if there is no factory.
        late: Whether only the class itself can make that value.
    """

    argument: str
    json_name: str
    type: Any
    default: Any = REQUIRED
    factory: Any = REQUIRED
    late: bool = False

    @property
    def has_default(self) -> bool:
        """Whether its value is known if the JSON has none."""
        return not (self.default is REQUIRED and self.factory is REQUIRED)


def camel(name: str) -> str:
    """Return *name* as the service spells it: ``due_date`` becomes ``dueDate``."""
    head, *tail = name.strip("_").split("_")
    return head + "".join(part[:1].upper() + part[1:] for part in tail)


def service_name(member: Any) -> str:
    """Return the service's name for a field of an attrs class or dataclass."""
    return camel(getattr(member, "alias", None) or member.name)


def name_of(model: Any) -> str:
    """Return the name of *model*, for messages."""
    return getattr(model, "__name__", None) or repr(model)


def is_struct(kind: Any) -> bool:
    """Whether *kind* is a msgspec Struct."""
    return isinstance(kind, type) and issubclass(kind, msgspec.Struct)


def has_fields(kind: Any) -> bool:
    """Whether *kind* is an attrs class, dataclass, Struct or TypedDict."""
    if not isinstance(kind, type):
        return False
    made = attrs.has(kind) or dataclasses.is_dataclass(kind)
    return made or is_struct(kind) or is_typeddict(kind)


def meaning_of(kind: Any) -> Any:
    """Return the type that a NewType or a type alias stands for; None if *kind* is neither."""
    if isinstance(kind, NewType):
        return kind.__supertype__
    return kind.__value__ if type(kind).__name__ == "TypeAliasType" else None


def fields_of(model: Any) -> Iterator[Field]:
    """Yield the fields that *model* is filled from.

    Raises:
        NameError: An annotation uses a name that is not defined.
    """
    if is_struct(model):
        rename = needs_renaming(model)
        yield from (_of_struct(f, rename=rename) for f in msgspec.structs.fields(model))
        return
    hints = get_type_hints(model, include_extras=True)
    if attrs.has(model):
        yield from (_of_attrs(a, hints) for a in attrs.fields(model) if a.init)
    elif dataclasses.is_dataclass(model):
        check_names(model)
        yield from (_of_dataclass(f, hints) for f in dataclasses.fields(model) if f.init)
        yield from (
            Field(name, camel(name), kind.type, getattr(model, name, REQUIRED))
            for name, kind in hints.items()
            if isinstance(kind, dataclasses.InitVar)
        )
    else:
        yield from (_of_typed_dict(model, name, kind) for name, kind in hints.items())


def needs_twin(kind: Any) -> bool:
    """Whether *kind*, or a type in it, cannot be decoded by msgspec alone.

    A Struct or TypedDict with the names in the JSON can. An attrs class or dataclass cannot,
    because msgspec would bypass its ``__init__``. Neither can a date, because msgspec refuses
    one with a time, even midnight.
    """
    seen: set[Any] = set()
    to_see = [kind]
    while to_see:
        kind = to_see.pop()
        if isinstance(kind, type) or meaning_of(kind) is not None:
            if kind in seen:
                continue
            seen.add(kind)
        if kind is date or is_pydantic(kind) or (has_fields(kind) and _has_own_names(kind)):
            return True
        to_see += _parts(kind)
    return False


def _has_own_names(kind: Any) -> bool:
    return not (is_struct(kind) or is_typeddict(kind)) or needs_renaming(kind)


def _parts(kind: Any) -> Iterator[Any]:
    """Yield the types that *kind* is made of."""
    if has_fields(kind):
        yield from (item.type for item in fields_of(kind))
    elif (meant := meaning_of(kind)) is not None:
        yield meant
    elif isinstance(kind, type) and issubclass(kind, tuple) and hasattr(kind, "_fields"):
        yield from get_type_hints(kind).values()
    elif get_origin(kind) is Annotated:
        yield get_args(kind)[0]
    elif get_origin(kind) not in {None, Literal}:
        yield from (get_origin(kind), *get_args(kind))


def check_names(kind: Any) -> None:
    """Refuse a pydantic class that would be read and written under the wrong names.

    Raises:
        TypeError: *kind* or a model in it has snake_case fields and no alias; or *kind* is a
            pydantic dataclass with aliases, which would be ignored.
    """
    if dataclasses.is_dataclass(kind) and is_aliased(kind):
        raise TypeError(f"{name_of(kind)} is a pydantic dataclass with aliases; use a BaseModel")
    for model in models_in(kind):
        if needs_renaming(model):
            raise TypeError(
                f"{name_of(model)} has snake_case fields and no alias, but the service's names "
                "are camelCase: set model_config = ConfigDict(alias_generator=to_camel)"
            )


def needs_renaming(kind: Any) -> bool:
    """Whether a class has snake_case fields and does not define their JSON names."""
    if is_pydantic(kind):
        return not is_aliased(kind) and any(camel(name) != name for name in kind.model_fields)
    if is_struct(kind):
        names = dict(zip(kind.__struct_fields__, kind.__struct_encode_fields__, strict=True))
    else:
        names = {name: name for name in kind.__annotations__}
    untouched = all(name == written for name, written in names.items())
    return untouched and any(camel(name) != name for name in names)


def _of_attrs(attribute: Any, hints: Mapping[str, Any]) -> Field:
    known = hints.get(attribute.name, attribute.type or Any)
    default, factory, late = attribute.default, REQUIRED, False
    if default is attrs.NOTHING:
        default = REQUIRED
    elif isinstance(default, attrs.Factory):  # type: ignore[arg-type]  # attrs types it as a function
        late, factory, default = default.takes_self, default.factory, REQUIRED
    return Field(attribute.alias, service_name(attribute), known, default, factory, late)


def _of_dataclass(member: Any, hints: Mapping[str, Any]) -> Field:
    default = REQUIRED if member.default is dataclasses.MISSING else member.default
    factory = REQUIRED if member.default_factory is dataclasses.MISSING else member.default_factory
    late = is_described(default)
    default = REQUIRED if late else default
    kind = hints[member.name]
    return Field(member.name, service_name(member), kind, default, factory, late)


def _of_struct(member: Any, *, rename: bool) -> Field:
    json_name = camel(member.name) if rename else member.encode_name
    return Field(member.name, json_name, member.type, member.default, member.default_factory)


def _of_typed_dict(model: Any, name: str, kind: Any) -> Field:
    """Return the field of a key. A key that may be missing is left out of the dict."""
    marked = get_origin(kind)
    optional = marked is NotRequired or (marked is not Required and name in model.__optional_keys__)
    json_name = camel(name) if needs_renaming(model) else name
    inner = get_args(kind)[0] if marked in {Required, NotRequired} else kind
    return Field(name, json_name, inner, late=optional)
