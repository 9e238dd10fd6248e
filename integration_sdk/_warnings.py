"""Warnings that show the line of the user's program that they are about."""

from __future__ import annotations

import sys
import warnings

from integration_sdk._text import printable


def warn(text: str, kind: type[Warning]) -> None:
    """Warn as if the warning stood in the first line outside this package."""
    package = f"{__name__.partition('.')[0]}."
    depth, frame = 1, sys._getframe()
    while frame.f_back is not None and frame.f_globals.get("__name__", "").startswith(package):
        depth, frame = depth + 1, frame.f_back
    warnings.warn(printable(text), kind, stacklevel=depth)
