"""Reads and writes pydantic models, recognised by their methods: pydantic is never imported.

Models are read and written with their own methods, so their aliases, validators and serializers
apply. It reads a fraction through a float, so a Decimal field has 15 digits. Only what it writes
is changed: it would write a Decimal as a string.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Set
from decimal import Decimal
from math import isfinite
from typing import Any, get_args

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
