"""Packages that only some sinks need."""

from __future__ import annotations

from importlib import import_module
from types import ModuleType

from integration_sdk.errors import ConfigurationError


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
