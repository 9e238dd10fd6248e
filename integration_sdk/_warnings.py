"""Warnings that show the line of the user's program that they are about."""

from __future__ import annotations

import sys
import warnings

from integration_sdk._http.requests import Request
from integration_sdk._printable import printable


def warn(text: str, kind: type[Warning]) -> None:
    """Warn as if the warning stood in the first line outside this package."""
    package = f"{__name__.partition('.')[0]}."
    depth, frame = 1, sys._getframe()
    while frame.f_back is not None and frame.f_globals.get("__name__", "").startswith(package):
        depth, frame = depth + 1, frame.f_back
    warnings.warn(printable(text), kind, stacklevel=depth)


def warn_if_legacy(request: Request) -> None:
    """Warn after *request* has succeeded, if its path is one that is to be removed.

    Source: "Versioning", rule 2.
    """
    if request.replacement is not None:
        text = (
            f"{request} is a legacy endpoint that is to be removed; "
            f"use {request.method} {request.replacement}"
        )
        warn(text, DeprecationWarning)
