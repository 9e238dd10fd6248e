"""Makes text of others safe to show: on a terminal, in a log, in the message of an error.

The service, a platform behind it or whoever wrote a record chooses such text. An escape sequence
in it would move the cursor or retitle the window of whoever reads it, a line break would forge a
line of a log, and a bidirectional override would show it in another order than it is read.
"""

from __future__ import annotations

import logging
import re
from typing import Final

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


def _keep_to_one_line(record: logging.LogRecord) -> bool:
    said = record.getMessage()
    safe = printable(said)
    if safe != said:
        record.msg, record.args = safe, None
    return True


for _name in ("pull", "pushes", "session", "store", "webhooks"):
    logging.getLogger(f"integration_sdk.{_name}").addFilter(_keep_to_one_line)
