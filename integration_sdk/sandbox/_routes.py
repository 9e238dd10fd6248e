"""Addresses: how endpoints are found, and what is refused where there is none."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable
from functools import cache

from integration_sdk.sandbox._call import Answer, Call, Refused, not_found
from integration_sdk.sandbox._schemas import DATA_TYPES
from integration_sdk.sandbox._service import DialectName, Service

Endpoint = Callable[[Service, Call], Answer]
# By dialect and number of segments: the segments, the method, the endpoint.
_ROUTES = defaultdict[tuple[str, int], list[tuple[list[str], str, Endpoint]]](list)


def route(*addresses: str, dialect: DialectName | None = None) -> Callable[[Endpoint], Endpoint]:
    """Let an endpoint answer at *addresses*, of one *dialect* or of both."""

    def note(endpoint: Endpoint) -> Endpoint:
        for address in addresses:
            method, path = address.split()
            parts = path.split("/")[1:]
            for name in (dialect,) if dialect else ("document", "published"):
                _ROUTES[name, len(parts)].append((parts, method, endpoint))
        return endpoint

    return note


@cache
def samples(dialect: DialectName) -> list[str]:
    """Return a call of each kind, such as ``GET /companies/{companyId}/data/invoices``."""
    return [
        f"{method} /{'/'.join(parts)}".replace("{dataType}", name)
        for (spoken, _), routes in _ROUTES.items()
        if spoken == dialect
        for parts, method, _ in routes
        for name in (*DATA_TYPES, "chartOfAccounts")
    ]


def find(dialect: DialectName, method: str, segments: list[str]) -> tuple[Endpoint, dict[str, str]]:
    """Return the endpoint for *method* on the path of *segments*, and the placeholders' values.

    Refuses an unknown path with 404, a method that the path does not have with 405.
    """
    found = [one for one in _ROUTES[dialect, len(segments)] if _matches(one[0], segments)]
    found.sort(key=lambda one: one[0])  # literal segments first: "{" sorts after every letter
    for parts, each, endpoint in found:
        if each == method:
            pairs = zip(parts, segments, strict=True)
            return endpoint, {part[1:-1]: one for part, one in pairs if part[0] == "{"}
    if not found:
        raise not_found("there is no such address")
    raise wrong_method(method, {each for _, each, _ in found})


def _matches(parts: list[str], segments: list[str]) -> bool:
    pairs = zip(parts, segments, strict=True)
    return all(part == one or (part[0] == "{" and one) for part, one in pairs)


def wrong_method(method: str, allowed: set[str]) -> Refused:
    """405 at an address that has the *allowed* methods only."""
    headers = {"Allow": ", ".join(sorted(allowed))}
    return Refused(405, f"Method not allowed: {method}", headers=headers)
