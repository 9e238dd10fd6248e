"""Checks the routes and the header of a dialect when the client is created."""

from __future__ import annotations

import re
from string import Formatter
from typing import Final

from integration_sdk.dialect import Dialect, Route
from integration_sdk.errors import ConfigurationError

_HEADER: Final = re.compile(r"[A-Za-z0-9!#$%&'*+.^_`|~-]+")
_OURS: Final = frozenset(
    {
        "accept",
        "accept-encoding",
        "authorization",
        "connection",
        "content-length",
        "content-type",
        "cookie",
        "expect",
        "host",
        "proxy-authorization",
        "transfer-encoding",
        "user-agent",
    }
)
"""Headers that the SDK or aiohttp sends; a second one would change what a request means."""


def check_dialect(dialect: Dialect) -> None:
    """Check that each route can be filled in, and that the idempotency header is one of its own.

    Raises:
        ConfigurationError: A value is not a `Route`, there is no such operation, a path has
            a name that the operation does not provide, or the header cannot be sent.
    """
    header: object = dialect.idempotency_header
    if header is not None and not _may_be_added(header):
        raise ConfigurationError(
            f"idempotency_header must be the name of a header of its own, not {header!r}"
        )
    known = Dialect.document().routes
    if dialect.routes is known:
        return
    for operation, route in dialect.routes.items():
        if not isinstance(route, Route):
            raise ConfigurationError(
                f"the route of {operation!r} must be a Route, such as Route('GET', '/...'), "
                f"not {route!r}"
            )
        usual = known.get(_sort(operation))
        if usual is None:
            raise ConfigurationError(
                f"there is no operation {operation!r}; those with a route are {', '.join(known)}"
            )
        _check_names(operation, route, usual)


def _may_be_added(header: object) -> bool:
    return (
        isinstance(header, str)
        and _HEADER.fullmatch(header) is not None
        and header.lower() not in _OURS
    )


def _sort(operation: str) -> str:
    """Return the operation; ``push.attach`` may also have a route for each data type."""
    return "push.attach" if operation.startswith("push.attach.") else operation


def _check_names(operation: str, route: Route, usual: Route) -> None:
    odd = _names(route) - _names(usual)
    if odd:
        raise ConfigurationError(
            f"the route of {operation!r} asks for {', '.join(sorted(odd))}; "
            f"it may have {', '.join(sorted(_names(usual))) or 'no names'}"
        )


def _names(route: Route) -> set[str]:
    return {name for _, name, _, _ in Formatter().parse(route.path) if name is not None}
