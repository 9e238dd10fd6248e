"""Checks of arguments.

They raise `ConfigurationError` with the argument's name and what would be right.
"""

from __future__ import annotations

import math
import re
import sys
from importlib import import_module
from inspect import iscoroutinefunction
from types import ModuleType
from typing import Final, TypeGuard

from integration_sdk.errors import ConfigurationError

_HEADER: Final = re.compile(r"[A-Za-z0-9!#$%&'*+.^_`|~-]+")
_SENT_ANYWAY: Final = re.compile(
    "(?i)accept|accept-encoding|authorization|connection|content-length|content-type|cookie|"
    "expect|host|proxy-authorization|transfer-encoding|user-agent"
)
"""Headers that the SDK or aiohttp sends; a second one would change what a request means."""


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


def seconds(name: str, value: object, or_none: bool = True) -> None:
    """Check that *value* is a number of seconds, or None if that is allowed."""
    if (value is None and or_none) or (is_number(value) and 0 <= value < math.inf):
        return
    end = ", or None" if or_none else ""
    raise ConfigurationError(f"{name} must be 0 seconds or more{end}, not {value!r}")


def plain_function(name: str, value: object) -> None:
    """Check that *value* can be called, and need not be awaited."""
    if not callable(value) or iscoroutinefunction(value):
        raise ConfigurationError(f"{name} must be a plain function; it is not awaited: {value!r}")


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


def own_header(name: str, value: object) -> None:
    """Check that *value* can be the name of a header beside those that are sent anyway."""
    text = value if isinstance(value, str) else ""
    if not _HEADER.fullmatch(text) or _SENT_ANYWAY.fullmatch(text):
        raise ConfigurationError(f"{name} must be the name of a header of its own, not {value!r}")


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
