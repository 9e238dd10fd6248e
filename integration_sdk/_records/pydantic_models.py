"""Reads and writes pydantic models, recognised by their methods: pydantic is never imported.

Models are read and written with their own methods, so their aliases, validators and serializers
apply. Two things are changed, since digits would be lost or quoted: pydantic reads a fraction of
a JSON text through a float, and writes a Decimal as a string.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Collection, Iterator, Mapping, Set
from dataclasses import fields, is_dataclass
from decimal import Decimal
from math import isfinite
from typing import Any, Final, get_args

import msgspec

Reason = tuple[str, str]
"""What is wrong with an item, and the path to it from ``$``."""


def is_pydantic(kind: Any) -> bool:
    """Whether *kind* is a pydantic v2 model."""
    able = hasattr(kind, "model_validate_json") and hasattr(kind, "model_dump")
    return isinstance(kind, type) and able


def models_in(kind: Any) -> Iterator[Any]:
    """Yield *kind* and the models nested in its fields, but not those inside other classes."""
    seen: set[Any] = set()
    to_see = [kind]
    while to_see:
        kind = to_see.pop()
        if not is_pydantic(kind):
            to_see += get_args(kind)
        elif kind not in seen:
            seen.add(kind)
            yield kind
            to_see += (field.annotation for field in kind.model_fields.values())


def is_aliased(kind: Any) -> bool:
    """Whether a pydantic model or dataclass gives any field a JSON name."""
    fields = kind.model_fields if is_pydantic(kind) else getattr(kind, "__pydantic_fields__", {})
    config = getattr(kind, "__pydantic_config__", None) or {}
    return "alias_generator" in config or any(
        known is not None
        for field in fields.values()
        for known in (field.alias, field.validation_alias, field.serialization_alias)
    )


def is_described(default: Any) -> bool:
    """Whether the default of a dataclass field is pydantic's ``Field(...)``, not a value."""
    return hasattr(default, "is_required")


# Reading


class ExactFloat(float):
    """A fraction of a JSON text; pydantic makes Decimals of its ``str()``, which has all digits.

    It is a float, and not a Decimal, since a field that is one must take it, even a strict one.
    """

    __slots__ = ("text",)
    text: str

    def __str__(self) -> str:
        """Return it as it was sent."""
        return self.text


def _exact_float(text: str) -> ExactFloat:
    number = ExactFloat(text)
    number.text = text
    return number


def reader(model: Any, *, exact: bool) -> Callable[[bytes], Any]:
    """Return a function that decodes the bytes of an item into *model*.

    Where that could lose digits, msgspec decodes the bytes and pydantic validates the values
    (its Python mode), which for JSON means the same unless `_changed` says otherwise.

    Args:
        model: A complete model.
        exact: Whether fractions without an annotation become Decimal.

    Raises:
        TypeError: The model has Decimals, and something that Python mode would read differently.
    """
    nodes = list(_nodes(model.__pydantic_core_schema__))
    kinds = {node.get(name) for node in nodes for name in _KINDS}
    is_free = not kinds.isdisjoint({"any", "allow"})
    if "decimal" not in kinds and not (exact and is_free):
        read: Callable[[bytes], Any] = model.model_validate_json
        return read
    changed = next(filter(None, map(_changed, nodes)), None)
    if changed:
        raise TypeError(
            f"its fractions would lose digits, because of {changed}; "
            "or read into an attrs class, dataclass or Struct"
        )
    decode = msgspec.json.Decoder(float_hook=_exact_float).decode
    validate, plain = model.model_validate, Decimal if exact else float
    if not is_free and kinds.isdisjoint({"function-plain", "function-wrap"}):
        return lambda raw: validate(decode(raw))
    return lambda raw: _without_exact_floats(validate(decode(raw)), plain)


_KINDS: Final = ("type", "extra_behavior", "extra_fields_behavior")
"""What says in a node of a pydantic schema which values it takes."""
_NOT_READ: Final = frozenset(
    {"computed_fields", "default", "metadata", "serialization", "strict_schema"}
)
"""Parts of a node that do not say what a lax model is read from."""
_NATIVE: Final = frozenset(
    {"any", "bool", "dict", "float", "int", "list", "none", "nullable", "str"}
)
"""Types of a schema whose values JSON and Python have in common."""


def _nodes(schema: Any) -> Iterator[Mapping[str, Any]]:
    """Yield the mappings in *schema*, a pydantic core schema; those of types have a "type"."""
    if isinstance(schema, Mapping):
        yield schema
        for name, part in schema.items():
            if name in {"fields", "choices"} and isinstance(part, Mapping):  # under users' names
                yield from _nodes(list(part.values()))
            elif name not in _NOT_READ:
                yield from _nodes(part)
    elif isinstance(schema, list | tuple):
        for part in schema:
            yield from _nodes(part)


def _changed(node: Mapping[str, Any]) -> str | None:
    """Return what about a *node* of a schema Python mode would read otherwise, and what to do."""
    kind = node.get("type")
    if node.get("strict") and kind not in _NATIVE:  # it would refuse the text of a date
        return f"a strict {kind or 'model'}: set strict=False"
    if node.get("val_json_bytes", "utf8") != "utf8":
        return f"val_json_bytes={node['val_json_bytes']!r}: decode the text in a validator"
    if kind == "union" and node.get("mode") != "left_to_right":
        # A "smart" one prefers the type that a value has already: a text is no date, but a str.
        types = [part["type"] for part in _nodes(node["choices"]) if "type" in part]
        if not _NATIVE.issuperset(types):
            return (
                f"the union of {' and '.join(types)}: "
                'give it a discriminator, or Field(union_mode="left_to_right")'
            )
    return None


def _without_exact_floats(value: Any, plain: Callable[[str], Any]) -> Any:
    """Return *value* with each fraction that no field has converted made *plain*.

    Objects, which may be frozen, lists and dicts are changed in place.
    """
    if type(value) is ExactFloat:
        return plain(str(value))
    if is_pydantic(type(value)):
        _replace(vars(value), plain)
        _replace(value.__pydantic_extra__ or {}, plain)
    elif isinstance(value, dict):
        _replace(value, plain)
    elif isinstance(value, list | deque):
        for index, item in enumerate(value):
            value[index] = _without_exact_floats(item, plain)
    elif isinstance(value, tuple | set | frozenset):
        items = [_without_exact_floats(item, plain) for item in value]
        return getattr(value, "_make", type(value))(items)
    elif is_dataclass(value):
        for one in fields(value):
            member = _without_exact_floats(getattr(value, one.name), plain)
            object.__setattr__(value, one.name, member)
    return value


def _replace(members: dict[str, Any], plain: Callable[[str], Any]) -> None:
    for name, member in members.items():
        members[name] = _without_exact_floats(member, plain)


def reason(error: Any) -> Reason:
    """Return the first error that pydantic or a validator of the model reports, and where."""
    if not hasattr(error, "error_count"):
        return str(error), "$"
    first, *others = error.errors()
    more = f" (and {len(others)} more)" if others else ""
    return f"{first['msg']}{more}", "$" + "".join(map(_step, first["loc"]))


def _step(place: str | int) -> str:
    return f"[{place}]" if isinstance(place, int) else f".{place}"


# Writing


def dumped(value: Any) -> Any:
    """Return *value* as pydantic writes it to JSON, but with Decimals as numbers."""
    written = value.model_dump(mode="json", by_alias=True)
    return _with_numbers(written, value.model_dump(warnings=False))


def _with_numbers(written: Any, value: Any) -> Any:
    """Return *written* with the Decimals of *value*, which it was made from.

    A Decimal changed by a serializer of the model stays as written. A NaN is restored, so that
    it is refused later. Sets are sorted, so that they are the same in every process.
    """
    if isinstance(value, Decimal):
        return value if written == str(value) else written
    if isinstance(value, float):
        return value if written is None and not isfinite(value) else written
    if isinstance(written, dict) and isinstance(value, Mapping) and len(written) == len(value):
        pairs = zip(written.items(), value.values(), strict=True)
        return {name: _with_numbers(member, was) for (name, member), was in pairs}
    if isinstance(written, list) and isinstance(value, Collection) and len(written) == len(value):
        items = [_with_numbers(*pair) for pair in zip(written, value, strict=True)]
        return sorted(items, key=msgspec.json.encode) if isinstance(value, Set) else items
    return written
