"""Makes text of others safe to show: on a terminal, in a log, in an error, in a warning.

The service, a platform behind it or the author of a record chooses such text. An escape sequence in
it would move the cursor or retitle the window, a line break would forge a line of a log, and a
bidirectional override would show it in another order than it is read.
"""

from __future__ import annotations

import logging
import re
import sys
import warnings
from typing import Any, Final

from attrs import NOTHING, fields

_UNSAFE: Final = re.compile(
    "[\x00-\x1f\x7f-\x9f\u2028\u2029"  # control characters and line breaks
    "\u061c\u200e\u200f\u202a-\u202e\u2066-\u2069"  # what changes the direction of writing
    "\ud800-\udfff]"  # halves of a pair, which cannot be encoded
)
_SHORT: Final = {"\n": r"\n", "\r": r"\r", "\t": r"\t"}


def printable(text: str) -> str:
    r"""Return *text* with its unsafe characters written as in JSON: ``\u001b`` for an escape.

    JSON text stays the same JSON.
    """
    return _UNSAFE.sub(_escape, text)


def _escape(found: re.Match[str]) -> str:
    char = found[0]
    return _SHORT.get(char) or f"\\u{ord(char):04x}"


def brief(value: Any) -> str:
    """Return the repr of an attrs object without the fields that have their default."""
    shown = []
    for field in fields(type(value)):
        content, default = getattr(value, field.name), field.default
        if hasattr(default, "factory"):
            default = default.factory()
        if field.repr and (default is NOTHING or content != default):
            write = field.repr if callable(field.repr) else repr
            shown.append(f"{field.name}={write(content)}")
    return f"{type(value).__name__}({', '.join(shown)})"


def warn_if_legacy(request: object, replacement: str | None) -> None:
    """Warn that the path of *request* is to be removed, if it has a *replacement*.

    The warning shows the first line outside this package. Source: "Versioning", rule 2.
    """
    if replacement is None:
        return
    package = f"{__name__.partition('.')[0]}."
    depth, frame = 1, sys._getframe()
    while frame.f_back is not None and frame.f_globals.get("__name__", "").startswith(package):
        depth, frame = depth + 1, frame.f_back
    text = f"{request} is a legacy endpoint that is to be removed; use GET {replacement}"
    warnings.warn(printable(text), DeprecationWarning, stacklevel=depth)


def _keep_to_one_line(record: logging.LogRecord) -> bool:
    text = record.getMessage()
    safe = printable(text)
    if safe != text:
        record.msg, record.args = safe, None
    return True


for _name in ("list", "pull", "pushes", "session", "store", "webhooks"):
    logging.getLogger(f"integration_sdk.{_name}").addFilter(_keep_to_one_line)
