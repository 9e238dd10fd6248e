"""Reads and writes pydantic models, recognised by their methods: pydantic is never imported.

Models are read and written with their own methods, so their aliases, validators and serializers
apply. Pydantic reads a fraction of a JSON text through a float: 15 digits are exact.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Set
from decimal import Decimal
from math import isfinite
from typing import Any, get_args

import msgspec


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
    """Whether a model gives any field a JSON name."""
    return "alias_generator" in kind.model_config or any(
        known is not None
        for field in kind.model_fields.values()
        for known in (field.alias, field.validation_alias, field.serialization_alias)
    )


def check_aliases(model: Any) -> None:
    """Refuse a model that would be read and written under the wrong names.

    Raises:
        TypeError: It, or a model in it, has snake_case fields and no alias.
    """
    for one in models_in(model):
        if not is_aliased(one) and any("_" in name.strip("_") for name in one.model_fields):
            raise TypeError(
                f"{one.__name__} has snake_case fields and no alias, but the service's names are "
                "camelCase: set model_config = ConfigDict(alias_generator=to_camel)"
            )


# Reading


def reason(error: Any) -> tuple[str, str]:
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
