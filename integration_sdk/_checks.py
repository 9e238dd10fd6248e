"""Checks of arguments.

They raise `ConfigurationError` with the argument's name and what would be right.
"""

from __future__ import annotations

import math
import sys
from collections.abc import Callable, Collection, Iterable
from functools import wraps
from importlib import import_module
from inspect import signature
from types import ModuleType
from typing import ParamSpec, TypeGuard, TypeVar

from integration_sdk.errors import ConfigurationError

P = ParamSpec("P")
R = TypeVar("R")


def suggests(function: Callable[P, R]) -> Callable[P, R]:
    """Make *function* say which argument was probably meant, if it has none of a name."""

    @wraps(function)
    def call(*args: P.args, **options: P.kwargs) -> R:
        try:
            return function(*args, **options)
        except TypeError:
            known = list(signature(function).parameters)[1:]
            name = function.__qualname__.removesuffix(".__init__").rpartition(".")[2]
            refuse_unknown(name, options.keys(), known)
            raise
        finally:
            del args, options  # a traceback with local variables would show an API key

    return call


def refuse_unknown(call: str, options: Iterable[str], known: Collection[str]) -> None:
    """Raise TypeError if one of *options* is not *known*, and say which was probably meant."""
    from difflib import get_close_matches  # noqa: PLC0415 - for mistakes only

    for name in options:
        if name not in known:
            near = get_close_matches(name, known, n=1)
            meant = f"; did you mean {near[0]!r}?" if near else ""
            has = ", ".join(sorted(known))
            raise TypeError(f"{call}() has no option {name!r}{meant} (it has {has})") from None


def whole_number(name: str, value: object, low: int, high: int) -> int:
    """Return *value* if it is an int from *low* to *high*."""
    if isinstance(value, bool) or not isinstance(value, int) or not low <= value <= high:
        raise ConfigurationError(
            f"{name} must be a whole number from {low} to {high}, not {value!r}"
        )
    return value


def true_or_false(name: str, value: object) -> None:
    """Check that *value* is a bool, since the string "false" would count as true."""
    if not isinstance(value, bool):
        raise ConfigurationError(f"{name} must be True or False, not {value!r}")


def is_number(value: object) -> TypeGuard[float]:
    """Whether *value* is an int or float; True, False and ints that no float holds are not."""
    if isinstance(value, bool):
        return False
    return isinstance(value, float) or (isinstance(value, int) and abs(value) <= sys.float_info.max)


def seconds(name: str, value: object) -> None:
    """Check that *value* is a number of seconds, or None."""
    if value is not None and not (is_number(value) and 0 <= value < math.inf):
        raise ConfigurationError(f"{name} must be 0 seconds or more, or None, not {value!r}")


def one_of(name: str, value: object, allowed: tuple[str | None, ...]) -> None:
    """Check that *value* is one of *allowed*, of which there are at least two."""
    if value not in allowed:
        *others, last = [repr(word) for word in allowed]
        raise ConfigurationError(f"{name} must be {', '.join(others)} or {last}, not {value!r}")


def sendable(name: str, value: object) -> str:
    """Return *value* if it is a str that can be encoded; half a surrogate pair cannot."""
    if not isinstance(value, str):
        raise ConfigurationError(f"{name} must be a str, not {value!r}")
    try:
        value.encode()
    except UnicodeEncodeError as error:
        raise ConfigurationError(f"{name} {value!r} cannot be sent: {error.reason}") from None
    return value


def needed(package: str, extra: str, what: str) -> ModuleType:
    """Import *package*, which *what* needs.

    Raises:
        ConfigurationError: It is not there; says what to install.
    """
    try:
        return import_module(package)
    except ImportError:
        raise ConfigurationError(
            f'{what} needs {package}: pip install "integration-sdk[{extra}]"'
        ) from None
