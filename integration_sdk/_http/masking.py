"""Masks a secret in the service's answers, which may echo it."""

from __future__ import annotations

import re
from typing import Final, Self

from attrs import frozen

MASK: Final = "<hidden>"


@frozen(repr=False)
class Secret:
    """A text to mask in JSON, whichever of its characters are escaped there.

    Writers of JSON differ: Python's escapes ``é``, PHP's ``/``, .NET's ``+``, and Gson ``=``.

    Attributes:
        size: Its length in bytes.
        run: Its longest run of letters and digits, which nobody escapes.
        spellings: Matches it.
    """

    size: int
    run: bytes
    spellings: re.Pattern[bytes]

    @classmethod
    def of(cls, text: str) -> Self:
        """Return a `Secret` for *text*."""
        run = max(re.findall("[A-Za-z0-9]*", text), key=len)
        pattern = "".join(map(_spellings, text))
        return cls(len(text.encode()), run.encode(), re.compile(pattern.encode()))

    def masked(self, body: bytes) -> bytes:
        """Return *body* with the secret masked; one without its longest run costs little."""
        return self.spellings.sub(MASK.encode(), body) if self.run in body else body


def _spellings(char: str) -> str:
    """Return a pattern of *char* as it may be spelt in JSON."""
    if char.isascii() and char.isalnum():
        return char
    units = char.encode("utf-16-be").hex()
    escape = re.sub("....", r"\\\\u\g<0>", units)
    backslash = r"\\?" if char in '"/\\' else ""
    return f"(?:{backslash}{re.escape(char)}|(?i:{escape}))"
