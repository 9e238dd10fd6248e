"""Builds requests for `Client.request`: any path below the base URL."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from datetime import date
from decimal import Decimal
from enum import Enum
from typing import Any
from urllib.parse import quote

from attrs import evolve

from integration_sdk._checks import is_number, sendable
from integration_sdk._http.requests import Request, Safety, replacement
from integration_sdk._records.codec import encode_value
from integration_sdk.dialect import Dialect
from integration_sdk.errors import ConfigurationError


def to_request(
    method: str, path: str, *, params: Mapping[str, object] | None, json: Any
) -> Request:
    """Return a request for a path that the SDK has no method for.

    Raises:
        ConfigurationError: The method is not a word, the path is not a plain path below the
            base URL, or a parameter has a type that cannot be sent.
    """
    if not all(isinstance(text, str) for text in (method, path)):
        raise ConfigurationError(f"method and path must be str, not {method!r} and {path!r}")
    if not (method.isascii() and method.isalpha()):
        raise ConfigurationError(f"method must be a word such as GET, not {method!r}")
    if method.upper() == "CONNECT":
        raise ConfigurationError("CONNECT asks a proxy for a tunnel, not a service; pass proxy=")
    if not isinstance(params, Mapping | None):
        raise ConfigurationError(f"params must be a mapping, or None, not {params!r}")
    _check_custom_path(path)
    method = method.upper()
    return Request(
        operation="request",
        method=method,
        path=quote(path, safe="/%:@!$&'()*+,;=~-._"),
        params=tuple(_spelt(params or {})),
        body=None if json is None else encode_value(json),
        safety=Safety.READ if method in {"GET", "HEAD", "OPTIONS"} else Safety.WRITE,
    )


def with_replacement(dialect: Dialect, request: Request) -> Request:
    """Return *request* with the path that replaces its own, if that is a legacy one.

    Source: "Bank data endpoints".
    """
    for route in dialect.routes.values():
        if route.replacement is not None:
            template = re.sub(r"\\{(\w+)\\}", r"(?P<\1>[^/]+)", re.escape(route.path))
            if names := re.fullmatch(template, request.path):
                return evolve(request, replacement=replacement(route, names.groupdict()))
    return request


def _spelt(params: Mapping[str, object]) -> Iterator[tuple[str, str]]:
    """Yield parameters as text, spelled as in JSON; skip None, repeat the name for a list."""
    for name, given in params.items():
        sendable("the name of a parameter", name)
        for member in given if isinstance(given, list | tuple) else (given,):
            value = member.value if isinstance(member, Enum) else member
            if isinstance(value, bool):
                yield name, str(value).lower()
            elif isinstance(value, int) and not is_number(value):
                raise ConfigurationError(f"parameter {name} cannot be an int that no float holds")
            elif isinstance(value, str | int | float | Decimal):
                yield name, sendable(f"parameter {name}", str(value))
            elif isinstance(value, date):
                yield name, value.isoformat()
            elif value is not None:
                raise ConfigurationError(f"parameter {name} cannot be {value!r}")


def _check_custom_path(path: str) -> None:
    plain = path.startswith("/") and not path.startswith("//") and path.isprintable()
    if not plain or any(char in path for char in "?#\\"):
        raise ConfigurationError(
            f"path {path!r} must begin with one slash and have no query; pass params= for that"
        )
    if any(part.replace("%2e", ".").replace("%2E", ".") in {".", ".."} for part in path.split("/")):
        raise ConfigurationError(f"path {path!r} must not contain '.' or '..' segments")
