"""Checks the routes of a dialect when the client is created."""

from __future__ import annotations

from string import Formatter

from integration_sdk.dialect import Dialect, Route
from integration_sdk.errors import ConfigurationError


def check_routes(dialect: Dialect) -> None:
    """Check that each route belongs to an operation, and that its path can be filled in.

    Raises:
        ConfigurationError: A value is not a `Route`, there is no such operation, or a path has
            a name that the operation does not provide.
    """
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
