"""The routes: the interface document's endpoints and their handlers.

Source: "Endpoints". Paths that the document does not show are the published ones. The dialects
differ in the path of push options and in how a company is changed.
"""

from __future__ import annotations

from collections.abc import Mapping

from attrs import frozen

from integration_sdk.sandbox._books.books import KINDS
from integration_sdk.sandbox._call import Handler, Refused, not_found
from integration_sdk.sandbox._calls import account, data, pushing
from integration_sdk.sandbox._pushes.catalogue import DATA_TYPES

C = "/companies/{companyId}"
K = C + "/connections/{connectionId}"

SHARED: Mapping[str, Handler] = {
    "GET /companies": account.list_companies,
    "POST /companies": account.create_company,
    "GET " + C: account.get_company,
    "PUT " + C: account.update_company,
    "DELETE " + C: account.delete_company,
    "GET " + C + "/connections": account.list_connections,
    "GET " + K: account.get_connection,
    "POST /profile/syncSettings": account.set_sync_settings,
    "GET " + C + "/data/{dataType}": data.list_records,
    "GET " + C + "/data/{dataType}/{recordId}": data.get_record,
    "GET " + C + "/data/bankAccounts": data.legacy(data.list_bank_accounts),
    "GET " + C + "/data/bankAccounts/{accountId}": data.legacy(data.get_bank_account),
    "GET " + C + "/data/bankAccounts/{accountId}/transactions": data.legacy(
        data.list_bank_transactions
    ),
    "GET " + K + "/data/bankAccounts": data.list_bank_accounts,
    "GET " + K + "/data/bankAccounts/{accountId}": data.get_bank_account,
    "GET " + K + "/data/bankAccounts/{accountId}/bankTransactions": data.list_bank_transactions,
    "POST " + K + "/push/{dataType}": pushing.create,
    "PUT " + K + "/push/{dataType}/{recordId}": pushing.update,
    "DELETE " + K + "/push/{dataType}/{recordId}": pushing.delete,
    "POST " + K + "/push/{dataType}/{recordId}/attachment": pushing.attach,
    "POST " + K + "/push/bills/{recordId}/attachments": pushing.attach_to_bill,
    "GET " + C + "/push": pushing.list_pushes,
    "GET " + C + "/push/{pushOperationKey}": pushing.get_push,
}
DOCUMENT: Mapping[str, Handler] = {
    "GET " + K + "/dataTypes/{dataType}/options/POST": pushing.get_options,
    # Assumed: the update's options ("not shown") as in 2021.
    "GET " + K + "/dataTypes/{dataType}/options/PUT": pushing.get_options,
}
PUBLISHED: Mapping[str, Handler] = {
    # Used by today's generated clients to change a company.
    "PATCH " + C: account.change_company,
    "GET " + K + "/options/{dataType}": pushing.get_options,
}
_KINDS = {"invoices", *KINDS, *DATA_TYPES}


@frozen
class Route:
    """A method, the segments of a path (some are ``{placeholders}``), and a handler."""

    method: str
    parts: list[str]
    handler: Handler

    def match(self, segments: list[str]) -> dict[str, str] | None:
        """Return the placeholders' values if the path of *segments* matches, else None."""
        if len(segments) != len(self.parts):
            return None
        values = {}
        for part, segment in zip(self.parts, segments, strict=True):
            if part.startswith("{") and segment:
                values[part[1:-1]] = segment
            elif part != segment:
                return None
        return values


class Router:
    """The routes of a dialect."""

    def __init__(self, *, published: bool) -> None:
        table = {**SHARED, **(PUBLISHED if published else DOCUMENT)}
        routes = [Route(*_split(route), handler) for route, handler in table.items()]
        self.samples = [
            route.replace("{dataType}", name) for route in table for name in sorted(_KINDS)
        ]
        """A call of each kind, such as ``GET /companies/{companyId}/data/invoices``."""
        # Literal segments match before placeholders: "{" sorts after every letter.
        self._routes = sorted(routes, key=lambda route: route.parts)

    def find(self, method: str, segments: list[str]) -> tuple[Handler, dict[str, str]]:
        """Return the handler for *method* on the path of *segments*, and the placeholders' values.

        Refuses an unknown path with 404, a method that the path does not have with 405.
        """
        allowed: set[str] = set()
        for route in self._routes:
            values = route.match(segments)
            if values is None:
                continue
            if route.method == method:
                return route.handler, values
            allowed.add(route.method)
        if not allowed:
            raise not_found("there is no such address")
        headers = {"Allow": ", ".join(sorted(allowed))}
        raise Refused(405, f"Method not allowed: {method}", headers=headers)


def _split(route: str) -> tuple[str, list[str]]:
    method, path = route.split()
    return method, path.split("/")[1:]
