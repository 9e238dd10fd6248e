"""Pydantic models, recognised by their methods: pydantic is never imported.

They are read by ``model_validate_json`` and written by ``model_dump``, so their aliases, validators
and serializers apply. Pydantic reads a fraction through a float: 15 digits are exact.
"""

from __future__ import annotations

from typing import Any, get_args


def is_pydantic(kind: Any) -> bool:
    """Whether *kind* is a pydantic v2 model."""
    able = hasattr(kind, "model_validate_json") and hasattr(kind, "model_dump")
    return isinstance(kind, type) and able


def check_aliases(model: Any) -> None:
    """Refuse a model that would be read and written under the wrong names.

    Raises:
        TypeError: It, or a model in it, has snake_case fields and no alias.
    """
    seen, to_see = set[Any](), [model]
    while to_see:
        kind = to_see.pop()
        if not is_pydantic(kind):
            to_see += get_args(kind)
        elif kind not in seen:
            seen.add(kind)
            fields = kind.model_fields
            to_see += (field.annotation for field in fields.values())
            aliases = (
                f.alias or f.validation_alias or f.serialization_alias for f in fields.values()
            )
            if any("_" in name.strip("_") for name in fields) and not any(aliases):
                raise TypeError(
                    f"{kind.__name__} has snake_case fields and no alias, but the service's names "
                    "are camelCase: set model_config = ConfigDict(alias_generator=to_camel)"
                )


def reason(error: Any) -> tuple[str, str]:
    """Return the first error that pydantic or a validator of the model reports, and where."""
    if not hasattr(error, "error_count"):
        return str(error), "$"
    first, *others = error.errors()
    more = f" (and {len(others)} more)" if others else ""
    return f"{first['msg']}{more}", "$" + "".join(map(_step, first["loc"]))


def _step(place: str | int) -> str:
    return f"[{place}]" if isinstance(place, int) else f".{place}"
