"""Faults in writing: their names and arguments, checked wherever they come from.

A fault has the name and the arguments of a method of `Faults`, and their annotations say what is
allowed: in Python, in pytest markers, in files and in what is posted to a running sandbox.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from functools import wraps
from inspect import signature
from itertools import chain, repeat
from typing import TYPE_CHECKING, Any, Final, TypeVar, get_type_hints

import msgspec

from integration_sdk.sandbox._allowed import Span, allowed
from integration_sdk.sandbox._faults.rules import Rule, Rules, Scope, Seconds

if TYPE_CHECKING:
    from integration_sdk.sandbox._faults.faults import Faults

T = TypeVar("T", bound=Rules)
NAMES: Final[list[str]] = []
"""The names of all faults."""
_SCOPE: Final = get_type_hints(Scope, include_extras=True) | {"route": str}


def checked(faults: type[T]) -> type[T]:
    """Make the methods of *faults* check their arguments, and note them in the `Rule`."""
    for name in dir(faults):
        method = getattr(faults, name)
        if not name.startswith("_") and method.__annotations__["return"] == "Rule":
            NAMES.append(name)
            setattr(faults, name, _checked(method))
    return faults


def _checked(method: Callable[..., Rule]) -> Callable[..., Rule]:
    names = [*list(signature(method).parameters)[1:-1], *Scope.__annotations__]
    types = get_type_hints(method, include_extras=True) | _SCOPE
    types |= {name: float | Span for name in names if types[name] == Seconds}

    @wraps(method)
    def add(self: Rules, *args: Any, **options: Any) -> Rule:
        for name in options.keys() - set(names):
            takes = ", ".join(names)
            raise TypeError(f"{name} is no argument of {method.__name__}: it takes {takes}")
        pairs = zip(chain(names, repeat("")), args, strict=False)
        given = [allowed(types.get(name, Any), name, value) for name, value in pairs]
        options = {name: allowed(types[name], name, value) for name, value in options.items()}
        rule = method(self, *given, **options)
        entry = dict(zip(names, given, strict=False))
        rule.entry = {"fault": method.__name__, **entry, **options}
        return rule

    return add


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
        ValueError: The text is not such a list, or an entry is not a valid fault; none is added.
    """
    try:
        listed = msgspec.json.decode(text, type=list[dict[str, Any]])
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        example = '[{"fault": "latency", "seconds": [1, 3]}]'
        raise ValueError(f"faults are a JSON list such as {example}: {error}") from None
    added: list[Rule] = []
    for number, options in enumerate(listed, 1):
        try:
            added.append(add_fault(faults, options.pop("fault", None), **options))
        except (ValueError, TypeError) as error:
            for rule in added:
                faults.remove(rule)
            raise ValueError(f"fault {number}: {error}") from None


def listed(rules: Iterable[Rule]) -> bytes:
    """Return *rules* as JSON: the entries of `add_listed`, and to how many calls each applied."""
    entries = [{**rule.entry, "hits": rule.hits} for rule in rules]
    return msgspec.json.encode(entries, enc_hook=repr)
