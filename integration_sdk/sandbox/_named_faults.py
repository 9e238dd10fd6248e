"""Faults by name, for files of faults and for pytest markers.

A fault has the name and the arguments of a method of `Faults`.
"""

from __future__ import annotations

from typing import Any, Final, get_type_hints

import msgspec

from integration_sdk.sandbox._faults import Faults
from integration_sdk.sandbox._rules import Rule, Scope, Seconds

_OTHER_METHODS: Final = {"clear", "remove", "through"}
NAMES: Final = tuple(
    name for name in dir(Faults) if not name.startswith("_") and name not in _OTHER_METHODS
)
_WRITTEN: Final[dict[Any, Any]] = {Seconds: float | tuple[float, float]}
"""Replacements for argument types that cannot be written to a file."""
_SCOPE: Final = get_type_hints(Scope) | {"route": str}


def add_fault(faults: Faults, name: object = None, /, *args: Any, **options: Any) -> Rule:
    """Add the fault *name*.

    Raises:
        ValueError, TypeError: There is no fault of this name, or its arguments are wrong.
    """
    if name not in NAMES:
        raise ValueError(f"there is no fault {name!r}: give one of {', '.join(NAMES)}")
    rule: Rule = getattr(faults, str(name))(*args, **options)
    return rule


def add_listed(faults: Faults, text: bytes) -> None:
    """Add faults from JSON: ``[{"fault": "latency", "seconds": [1, 3], "route": "GET"}, ...]``.

    Raises:
        ValueError: The text is not such a list, or an entry is not a valid fault.
    """
    try:
        listed = msgspec.json.decode(text, type=list[dict[str, Any]])
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        example = '[{"fault": "latency", "seconds": [1, 3]}]'
        raise ValueError(f"faults are a JSON list such as {example}: {error}") from None
    for number, options in enumerate(listed, 1):
        try:
            name = options.pop("fault", None)
            add_fault(faults, name, **_read(name, options))
        except (ValueError, TypeError) as error:
            raise ValueError(f"fault {number}: {error}") from None


def _read(name: object, options: dict[str, Any]) -> dict[str, Any]:
    """Convert *options* to the types of the fault's arguments."""
    types = get_type_hints(getattr(Faults, str(name))) | _SCOPE if name in NAMES else {}
    return {option: _as(types.get(option, Any), option, options[option]) for option in options}


def _as(wanted: Any, option: str, value: object) -> Any:
    try:
        return msgspec.convert(value, _WRITTEN.get(wanted, wanted))
    except msgspec.ValidationError as error:
        raise ValueError(f"{option}: {error}") from None
