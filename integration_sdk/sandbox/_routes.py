"""Addresses: how endpoints are found, and what is refused where there is none."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from functools import cache

from attrs import frozen

from integration_sdk.sandbox._call import Answer, Call, Refused, not_found
from integration_sdk.sandbox._schemas import DATA_TYPES
from integration_sdk.sandbox._service import DialectName, Service

Endpoint = Callable[[Service, Call], Awaitable[Answer]]


@frozen
class Route:
    """An address: a method, and the segments of a path, some of which are ``{placeholders}``."""

    method: str
    parts: list[str]
    dialect: DialectName | None
    endpoint: Endpoint

    def match(self, segments: list[str]) -> dict[str, str] | None:
        """Return the placeholders' values if the path of *segments* matches, else None."""
        values = {}
        for part, segment in zip(self.parts, segments, strict=True):
            if part.startswith("{") and segment:
                values[part[1:-1]] = segment
            elif part != segment:
                return None
        return values


_ROUTES: list[Route] = []


def route(*addresses: str, dialect: DialectName | None = None) -> Callable[[Endpoint], Endpoint]:
    """Let an endpoint answer at *addresses*, of one *dialect* or of both."""

    def note(endpoint: Endpoint) -> Endpoint:
        for address in addresses:
            method, path = address.split()
            _ROUTES.append(Route(method, path.split("/")[1:], dialect, endpoint))
        return endpoint

    return note


@cache
def _routes_of(dialect: DialectName, length: int) -> list[Route]:
    """Return the routes of so many segments, literal ones before placeholders."""
    routes = [one for one in _ROUTES if one.dialect in {None, dialect} and len(one.parts) == length]
    return sorted(routes, key=lambda one: one.parts)  # "{" sorts after every letter


@cache
def samples(dialect: DialectName) -> list[str]:
    """Return a call of each kind, such as ``GET /companies/{companyId}/data/invoices``."""
    return [
        f"{one.method} /{'/'.join(one.parts)}".replace("{dataType}", name)
        for one in _ROUTES
        if one.dialect in {None, dialect}
        for name in (*DATA_TYPES, "chartOfAccounts")
    ]


def find(dialect: DialectName, method: str, segments: list[str]) -> tuple[Endpoint, dict[str, str]]:
    """Return the endpoint for *method* on the path of *segments*, and the placeholders' values.

    Refuses an unknown path with 404, a method that the path does not have with 405.
    """
    allowed: set[str] = set()
    for one in _routes_of(dialect, len(segments)):
        values = one.match(segments)
        if values is not None:
            if one.method == method:
                return one.endpoint, values
            allowed.add(one.method)
    if not allowed:
        raise not_found("there is no such address")
    raise wrong_method(method, allowed)


def wrong_method(method: str, allowed: set[str]) -> Refused:
    """405 at an address that has the *allowed* methods only."""
    headers = {"Allow": ", ".join(sorted(allowed))}
    return Refused(405, f"Method not allowed: {method}", headers=headers)
