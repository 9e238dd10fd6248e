"""Asyncio client SDK for the Data Integration Service API.

Start with `Client`. ``integration_sdk.sandbox`` is a service to test against,
``integration_sdk.testing`` a pytest plugin, and ``integration_sdk.webhooks`` receives
notifications.

The public names are listed in ``__init__.pyi``, for type checkers and for this module. Each is
imported on first use: pytest loads this package in every project that has it installed, and a
program that only reads lists does not need the modules for pushes. For the same reason some
functions import those modules themselves.
"""

import ast
from functools import cache
from importlib import import_module
from pkgutil import get_data
from typing import Any


@cache
def _homes() -> dict[str, str]:
    """Return the name of the module that defines each public name."""
    stub = ast.parse(get_data(__name__, "__init__.pyi") or b"")
    imports = [node for node in stub.body if isinstance(node, ast.ImportFrom)]
    return {alias.name: str(node.module) for node in imports for alias in node.names}


def __getattr__(name: str) -> Any:
    if name == "__all__":
        return __dir__()
    home = _homes().get(name)
    if home is None:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    if home == __name__:
        return import_module(f"{home}.{name}")
    return getattr(import_module(home), name)


def __dir__() -> list[str]:
    return list(_homes())
