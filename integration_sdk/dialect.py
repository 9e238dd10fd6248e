"""The differences between versions of the service, as data.

The default follows the interface document. What that leaves open (routes "not shown", parameter
names, behaviours) is assumed here, with a source, and can be replaced:
``Dialect.document().with_routes(...)``.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from string import Formatter
from typing import Final

from attrs import evolve, field, frozen

from integration_sdk.errors import ConfigurationError

_COMPANY = "/companies/{companyId}"
_CONNECTION = _COMPANY + "/connections/{connectionId}"
_LEGACY_BANK = _COMPANY + "/data/bankAccounts"
_BANK = _CONNECTION + "/data/bankAccounts"
_DOCUMENT = "Endpoints"
_PUBLISHED = "Assumed: not shown in the document; path of the published API."


@frozen
class Route:
    """Method and path of an operation.

    Attributes:
        method: HTTP method.
        path: Template below the base URL, with ``{names}`` for its segments.
        source: Section of the interface document, or "Assumed: ..." with the reason.
        replacement: Path template that replaces this one when it is removed.
    """

    method: str
    path: str
    source: str = _PUBLISHED
    replacement: str | None = None


_DOCUMENT_ROUTES: Final[Mapping[str, Route]] = {
    # Shown in the document
    "companies.list": Route("GET", "/companies", f"{_DOCUMENT}, Pagination"),
    "companies.create": Route("POST", "/companies", f"{_DOCUMENT}, Other endpoints that appear"),
    "data.list": Route("GET", _COMPANY + "/data/{dataType}", f"{_DOCUMENT}, Pagination"),
    "options.create": Route(
        "GET", _CONNECTION + "/dataTypes/{dataType}/options/POST", f"{_DOCUMENT}, Push options"
    ),
    "push.create": Route(
        "POST", _CONNECTION + "/push/{dataType}", f"{_DOCUMENT}, Push a record (create)"
    ),
    "sync_settings.set": Route(
        "POST", "/profile/syncSettings", f"{_DOCUMENT}, Other endpoints that appear"
    ),
    "bank_accounts.list": Route("GET", _BANK, f"{_DOCUMENT}, Bank data endpoints"),
    "bank_accounts.get": Route("GET", _BANK + "/{accountId}", f"{_DOCUMENT}, Bank data endpoints"),
    "bank_accounts.transactions": Route(
        "GET", _BANK + "/{accountId}/bankTransactions", f"{_DOCUMENT}, Bank data endpoints"
    ),
    "legacy_bank_accounts.list": Route(
        "GET", _LEGACY_BANK, f"{_DOCUMENT}, Bank data endpoints", _BANK
    ),
    "legacy_bank_accounts.get": Route(
        "GET",
        _LEGACY_BANK + "/{accountId}",
        f"{_DOCUMENT}, Bank data endpoints",
        _BANK + "/{accountId}",
    ),
    "legacy_bank_accounts.transactions": Route(
        "GET",
        _LEGACY_BANK + "/{accountId}/transactions",
        f"{_DOCUMENT}, Bank data endpoints",
        _BANK + "/{accountId}/bankTransactions",
    ),
    # Not shown in the document
    "companies.get": Route("GET", _COMPANY),
    "companies.update": Route("PUT", _COMPANY),
    "companies.delete": Route("DELETE", _COMPANY),
    "connections.list": Route("GET", _COMPANY + "/connections"),
    "connections.get": Route("GET", _CONNECTION),
    "options.update": Route(
        "GET",
        _CONNECTION + "/dataTypes/{dataType}/options/PUT",
        "Assumed: not shown in the document; the create path's sibling, published in 2021.",
    ),
    "push.update": Route("PUT", _CONNECTION + "/push/{dataType}/{recordId}"),
    "push.delete": Route("DELETE", _CONNECTION + "/push/{dataType}/{recordId}"),
    "push.attach": Route("POST", _CONNECTION + "/push/{dataType}/{recordId}/attachment"),
    "push.attach.bills": Route("POST", _CONNECTION + "/push/{dataType}/{recordId}/attachments"),
    "pushes.list": Route("GET", _COMPANY + "/push"),
    "pushes.get": Route("GET", _COMPANY + "/push/{pushOperationKey}"),
}

_CONNECTION_NAMES: Final = ("dataConnectionId", "dataConnectionKey")
_PUBLISHED_OPTIONS: Final = Route("GET", _CONNECTION + "/options/{dataType}")


_HEADER: Final = re.compile(r"[A-Za-z0-9!#$%&'*+.^_`|~-]+")
_SENT_ANYWAY: Final = re.compile(
    "(?i)accept|accept-encoding|authorization|connection|content-length|content-type|cookie|"
    "expect|host|proxy-authorization|transfer-encoding|user-agent"
)
"""Headers that the SDK or aiohttp sends; a second one would change what a request means."""


def _check_route(operation: str, route: object) -> None:
    if not isinstance(route, Route):
        raise ConfigurationError(
            f"the route of {operation!r} must be a Route, such as Route('GET', '/...'), "
            f"not {route!r}"
        )
    # push.attach may also have a route for each data type.
    usual = _DOCUMENT_ROUTES.get(
        "push.attach" if operation.startswith("push.attach.") else operation
    )
    if usual is None:
        known = ", ".join(_DOCUMENT_ROUTES)
        raise ConfigurationError(
            f"there is no operation {operation!r}; those with a route are {known}"
        )
    if odd := _names(route) - _names(usual):
        has = ", ".join(sorted(_names(usual))) or "no names"
        raise ConfigurationError(
            f"the route of {operation!r} asks for {', '.join(sorted(odd))}; it may have {has}"
        )


def _names(route: Route) -> set[str]:
    return {name for _, name, _, _ in Formatter().parse(route.path) if name is not None}


@frozen(kw_only=True)
class Dialect:
    """One version of the service.

    Attributes:
        name: Shown in messages.
        routes: By operation, such as ``push.create``.
        path_names: Data types that have another name in the path of a push. Assumed: options
            and operations use ``chartOfAccounts``, the push path ``accounts``.
        option_names: Data types that have another name in the path of options. Assumed, as
            above; the document names ``accounts`` as a data type of any path.
        query_parameter: Parameter for a filter. Assumed: the document leaves it open.
        order_by_parameter: Parameter for the order of a list. Assumed, as above.
        timeout_parameter: Parameter for the deadline of a push, in minutes. Assumed:
            the document does not show how it is supplied.
        force_update_parameter: Parameter to overwrite a record even if it has changed
            in the meantime. Assumed.
        newest_first: Value of *order_by_parameter* that lists the latest pushes first.
        idempotency_header: Header with the idempotency key of a push; None if the service
            has no such keys, as in the document.
        connection_name: What a push's connection is called in answers, as a sign of the dialect;
            None for any name. Document: ``dataConnectionId``; published: ``dataConnectionKey``.
        refuses_with_503: Whether a 503 with the documented error body means that
            nothing was done. Document, "Status codes": "temporarily offline".
        timed_out_may_take_effect: Whether a TimedOut push can still reach the
            platform. Document: it cannot; published: it can.

    Raises:
        ConfigurationError: A route or the header cannot work.
    """

    name: str
    routes: Mapping[str, Route] = field(default=_DOCUMENT_ROUTES, repr=False)
    path_names: Mapping[str, str] = field(factory=lambda: {"chartOfAccounts": "accounts"})
    option_names: Mapping[str, str] = field(factory=dict)
    query_parameter: str = "query"
    order_by_parameter: str = "orderBy"
    timeout_parameter: str = "timeoutInMinutes"
    force_update_parameter: str = "forceUpdate"
    newest_first: str = "-requestedOnUtc"
    idempotency_header: str | None = field(default=None)
    connection_name: str | None = None
    refuses_with_503: bool = True
    timed_out_may_take_effect: bool = False

    @routes.validator
    def _can_be_filled_in(self, _: object, routes: Mapping[str, Route]) -> None:
        if routes is not _DOCUMENT_ROUTES:
            for operation, route in routes.items():
                _check_route(operation, route)

    @idempotency_header.validator
    def _is_a_header_of_its_own(self, _: object, name: object) -> None:
        text = name if isinstance(name, str) else ""
        if name is not None and (not _HEADER.fullmatch(text) or _SENT_ANYWAY.fullmatch(text)):
            raise ConfigurationError(
                f"idempotency_header must be the name of a header of its own, not {name!r}"
            )

    @classmethod
    def document(cls) -> Dialect:
        """Return the dialect of the interface document, completed from the published API."""
        return cls(name="document")

    @classmethod
    def published(cls) -> Dialect:
        """Return the dialect of today's public API."""
        return cls(
            name="published",
            routes={
                **_DOCUMENT_ROUTES,
                "options.create": _PUBLISHED_OPTIONS,
                "options.update": _PUBLISHED_OPTIONS,
            },
            option_names={"accounts": "chartOfAccounts"},
            idempotency_header="Idempotency-Key",
            connection_name="dataConnectionKey",
            timed_out_may_take_effect=True,
        )

    def is_contradicted(self, answer: bytes) -> bool:
        """Return whether an *answer* that shows pushes gives their connection another name."""
        own = self.connection_name
        if own is None or _quoted(own) in answer:
            return False
        return any(_quoted(name) in answer for name in _CONNECTION_NAMES)

    def with_routes(self, routes: Mapping[str, Route]) -> Dialect:
        """Return a dialect in which *routes* replace those of the same name.

        Raises:
            ConfigurationError: There is no such operation, or a path has a name that the
                operation does not provide.
        """
        return evolve(self, routes={**self.routes, **routes})


def _quoted(name: str) -> bytes:
    return f'"{name}"'.encode()
