"""The differences between versions of the service, as data.

The default follows the interface document. What that leaves open (routes "not shown", parameter
names, behaviours) is assumed here, with a source, and can be replaced:
``Dialect.document().with_routes(...)``.
"""

from __future__ import annotations

from collections.abc import Mapping
from difflib import get_close_matches
from string import Formatter
from typing import Final, Literal

from attrs import evolve, field, frozen

from integration_sdk._checks import own_header
from integration_sdk.errors import ConfigurationError

_COMPANY = "/companies/{companyId}"
_CONNECTION = _COMPANY + "/connections/{connectionId}"
_DATA = _COMPANY + "/data/{dataType}"
_CONNECTION_DATA = _CONNECTION + "/data/{dataType}"
_ATTACHMENTS = _CONNECTION_DATA + "/{recordId}/attachments"
_TYPE = _CONNECTION + "/dataTypes/{dataType}"
_PUSH = _CONNECTION + "/push/{dataType}"
_BANK = _CONNECTION + "/data/bankAccounts"
_ACCOUNT = _BANK + "/{accountId}"
_LEGACY = _COMPANY + "/data/bankAccounts"
_BANK_DATA = "Bank data endpoints"
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


def _shown(method: str, path: str, where: str, replacement: str | None = None) -> Route:
    return Route(method, path, f"Endpoints, {where}", replacement)


_DOCUMENT_ROUTES: Final[Mapping[str, Route]] = {
    # Shown in the document
    "companies.list": _shown("GET", "/companies", "Pagination"),
    "companies.create": _shown("POST", "/companies", "Other endpoints that appear"),
    "data.list": _shown("GET", _DATA, "Pagination"),
    "options.create": _shown("GET", _TYPE + "/options/POST", "Push options"),
    "push.create": _shown("POST", _PUSH, "Push a record (create)"),
    "sync_settings.set": _shown("POST", "/profile/syncSettings", "Other endpoints that appear"),
    "bank_accounts.list": _shown("GET", _BANK, _BANK_DATA),
    "bank_accounts.get": _shown("GET", _ACCOUNT, _BANK_DATA),
    "bank_accounts.transactions": _shown("GET", _ACCOUNT + "/bankTransactions", _BANK_DATA),
    "legacy_bank_accounts.list": _shown("GET", _LEGACY, _BANK_DATA, _BANK),
    "legacy_bank_accounts.get": _shown("GET", _LEGACY + "/{accountId}", _BANK_DATA, _ACCOUNT),
    "legacy_bank_accounts.transactions": _shown(
        "GET", _LEGACY + "/{accountId}/transactions", _BANK_DATA, _ACCOUNT + "/bankTransactions"
    ),
    # Not shown in the document
    "companies.get": Route("GET", _COMPANY),
    "companies.update": Route("PUT", _COMPANY),
    "companies.delete": Route("DELETE", _COMPANY),
    "connections.list": Route("GET", _COMPANY + "/connections"),
    "connections.get": Route("GET", _CONNECTION),
    "data.get": Route("GET", _DATA + "/{recordId}"),
    "data.pdf": Route("GET", _DATA + "/{recordId}/pdf"),
    "data.info": Route("GET", _COMPANY + "/data/info"),
    "data.status": Route("GET", _COMPANY + "/dataStatus"),
    "history.list": Route("GET", _COMPANY + "/data/history"),
    "history.get": Route("GET", _COMPANY + "/data/history/{recordId}"),
    "data.refresh": Route("POST", _COMPANY + "/data/queue/{dataType}"),
    "data.refresh_all": Route("POST", _COMPANY + "/data/all"),
    "connection_data.list": Route("GET", _CONNECTION_DATA),
    "connection_data.get": Route("GET", _CONNECTION_DATA + "/{recordId}"),
    "custom_data.list": Route("GET", _CONNECTION + "/data/custom/{dataType}"),
    "attachments.list": Route("GET", _ATTACHMENTS),
    "attachments.get": Route("GET", _ATTACHMENTS + "/{attachmentId}"),
    "attachments.download": Route("GET", _ATTACHMENTS + "/{attachmentId}/download"),
    "options.update": Route(
        "GET",
        _TYPE + "/options/PUT",
        "Assumed: not shown in the document; the create path's sibling, published in 2021.",
    ),
    "options.bank_transactions": Route(
        "GET",
        _CONNECTION + "/dataTypes/bankAccounts/{accountId}/bankTransactions/options/POST",
        "Assumed: not shown in the document; formed like the other options.",
    ),
    "push.update": Route("PUT", _PUSH + "/{recordId}"),
    "push.delete": Route("DELETE", _PUSH + "/{recordId}"),
    "push.attach": Route("POST", _PUSH + "/{recordId}/attachment"),
    "push.attach.bills": Route("POST", _PUSH + "/{recordId}/attachments"),
    "push.detach": Route("DELETE", _PUSH + "/{recordId}/attachments/{attachmentId}"),
    "push.bank_transactions": Route(
        "POST", _CONNECTION + "/push/bankAccounts/{accountId}/bankTransactions"
    ),
    "pushes.list": Route("GET", _COMPANY + "/push"),
    "pushes.get": Route("GET", _COMPANY + "/push/{pushOperationKey}"),
}

_CONNECTION_NAMES: Final = ("dataConnectionId", "dataConnectionKey")
_PUBLISHED_OPTIONS: Final = Route("GET", _CONNECTION + "/options/{dataType}")
_TYPES: Final = """
accounts billCreditNotes billPayments bills creditNotes customers invoices items journalEntries
journals paymentMethods payments purchaseOrders salesOrders suppliers taxRates trackingCategories
banking-transactions
"""
_BELOW_CONNECTIONS: Final = """
accountTransactions bankAccounts directCosts directIncomes transfers banking-accountBalances
banking-accounts banking-transactionCategories banking-transactions commerce-customers
commerce-disputes commerce-info commerce-locations commerce-orders commerce-paymentMethods
commerce-payments commerce-productCategories commerce-products commerce-taxComponents
commerce-transactions
"""
CLOSE: Final = 0.87
"""How similar a name must be to be taken for a misspelling: "bill" and "bills", "Invoices" and
"invoices" are; "invoiceLines" may be a type of its own."""


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
        company_types: Data types that stand below a company. Assumed, as published; the document
            shows invoices. Types that are in neither set are taken to stand where they are asked
            for.
        connection_types: Data types that stand below a connection, some of them in both sets.
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
        timed_out_may_take_effect: Whether a TimedOut push can still reach the
            platform. Document: it cannot; published: it can.

    Raises:
        ConfigurationError: A route or the header cannot work.
    """

    name: str
    routes: Mapping[str, Route] = field(default=_DOCUMENT_ROUTES, repr=False)
    path_names: Mapping[str, str] = field(factory=lambda: {"chartOfAccounts": "accounts"})
    company_types: frozenset[str] = field(default=frozenset(_TYPES.split()), repr=False)
    connection_types: frozenset[str] = field(
        default=frozenset(_BELOW_CONNECTIONS.split()), repr=False
    )
    option_names: Mapping[str, str] = field(factory=dict)
    query_parameter: str = "query"
    order_by_parameter: str = "orderBy"
    timeout_parameter: str = "timeoutInMinutes"
    force_update_parameter: str = "forceUpdate"
    newest_first: str = "-requestedOnUtc"
    idempotency_header: str | None = field(default=None)
    connection_name: str | None = None
    timed_out_may_take_effect: bool = False

    @routes.validator
    def _can_be_filled_in(self, _: object, routes: Mapping[str, Route]) -> None:
        if routes is not _DOCUMENT_ROUTES:
            for operation, route in routes.items():
                _check_route(operation, route)

    @idempotency_header.validator
    def _is_a_header_of_its_own(self, _: object, name: object) -> None:
        if name is not None:
            own_header("idempotency_header", name)

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
                "options.bank_transactions": Route(
                    "GET", _CONNECTION + "/options/bankAccounts/{accountId}/bankTransactions"
                ),
            },
            option_names={"accounts": "chartOfAccounts"},
            idempotency_header="Idempotency-Key",
            connection_name="dataConnectionKey",
            timed_out_may_take_effect=True,
        )

    def path_name(self, data_type: str) -> str:
        """Return what *data_type* is called in a path."""
        return self.path_names.get(data_type, data_type)

    def is_below_connection(self, data_type: str) -> bool:
        """Return whether records of *data_type* stand below a connection, and only there."""
        return data_type in self.connection_types - self.company_types

    def data_name(self, data_type: str, *, below: Literal["company", "connection"]) -> str:
        """Return what *data_type* is called in the path of its records.

        Raises:
            ConfigurationError: They stand elsewhere, or the name is misspelt; says what is right.
        """
        name = self.path_name(data_type)
        types = {"company": self.company_types, "connection": self.connection_types}
        if name in types.pop(below):
            return name
        ((other, elsewhere),) = types.items()
        if name in elsewhere:
            place = "client.company(id)" if other == "company" else "company.connection(id)"
            raise ConfigurationError(
                f"{name} stand below a {other}: read them with {place}.data({name!r})"
            )
        self._refuse_misspelt(name)
        return name

    def spellings(self, data_type: str) -> tuple[str, ...]:
        """Return the names that *data_type* has in different places, its own first.

        Raises:
            ConfigurationError: It is misspelt.
        """
        pairs = self.path_names.items()
        others = [b if a == data_type else a for a, b in pairs if data_type in (a, b)]
        if not others:
            self._refuse_misspelt(data_type)
        return (data_type, *others)

    def _refuse_misspelt(self, name: str) -> None:
        types = self.company_types | self.connection_types
        known = {each.casefold(): each for each in types}
        near = get_close_matches(name.casefold(), known, n=1, cutoff=CLOSE)
        if name not in types and near:
            raise ConfigurationError(
                f'there is no data type "{name}"; did you mean "{known[near[0]]}"? '
                "(If it is new, add it to the dialect's company_types or connection_types.)"
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
