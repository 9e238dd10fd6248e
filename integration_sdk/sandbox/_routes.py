"""Which path leads to which handler: the interface document's endpoints, as a table.

Source: "Endpoints". Paths that the document does not show are the published ones; they differ
between the dialects in where options are and in how a company is changed.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from attrs import define, field

from integration_sdk.sandbox import _account_calls as account
from integration_sdk.sandbox import _data_calls as data
from integration_sdk.sandbox import _push_calls as push
from integration_sdk.sandbox._call import Handler, Refused, not_found

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
    "GET " + C + "/data/bankAccounts": data.legacy_bank_accounts,
    "GET " + C + "/data/bankAccounts/{accountId}": data.legacy_bank_account,
    "GET " + C + "/data/bankAccounts/{accountId}/transactions": data.legacy_bank_transactions,
    "GET " + K + "/data/bankAccounts": data.list_bank_accounts,
    "GET " + K + "/data/bankAccounts/{accountId}": data.get_bank_account,
    "GET " + K + "/data/bankAccounts/{accountId}/bankTransactions": data.list_bank_transactions,
    "POST " + K + "/push/{dataType}": push.create,
    "PUT " + K + "/push/{dataType}/{recordId}": push.update,
    "DELETE " + K + "/push/{dataType}/{recordId}": push.delete,
    "POST " + K + "/push/{dataType}/{recordId}/attachment": push.attach,
    "POST " + K + "/push/bills/{recordId}/attachments": push.attach_to_bill,
    "GET " + C + "/push": push.list_pushes,
    "GET " + C + "/push/{pushOperationKey}": push.get_push,
}
DOCUMENT: Mapping[str, Handler] = {
    "GET " + K + "/dataTypes/{dataType}/options/POST": push.get_options,
    # Assumed: the update's options ("not shown") as in 2021.
    "GET " + K + "/dataTypes/{dataType}/options/PUT": push.get_options,
}
PUBLISHED: Mapping[str, Handler] = {
    # What today's generated clients change a company by.
    "PATCH " + C: account.change_company,
    "GET " + K + "/options/{dataType}": push.get_options,
}


@define
class _Branch:
    """What follows a part of a path: literal parts first, then a placeholder's."""

    parts: dict[str, _Branch] = field(factory=dict)
    any: _Branch | None = None
    handlers: dict[str, tuple[Handler, list[str]]] = field(factory=dict)


class Router:
    """Finds the handler of a path; 404 for none, 405 for a wrong method."""

    def __init__(self, table: Mapping[str, Handler]) -> None:
        self._root = _Branch()
        for route, handler in table.items():
            method, _, path = route.partition(" ")
            self._add(method, path.split("/")[1:], handler)

    def _add(self, method: str, parts: list[str], handler: Handler) -> None:
        branch, names = self._root, []
        for part in parts:
            if part.startswith("{"):
                names.append(part[1:-1])
                branch.any = branch = branch.any or _Branch()
            else:
                branch = branch.parts.setdefault(part, _Branch())
        branch.handlers[method] = handler, names

    def find(self, method: str, segments: list[str]) -> tuple[Handler, dict[str, str]]:
        """The handler for *method* on the path of *segments*, and the placeholders' values."""
        allowed: set[str] = set()
        for branch, values in _leaves(self._root, segments, []):
            if method in branch.handlers:
                handler, names = branch.handlers[method]
                return handler, dict(zip(names, values, strict=True))
            allowed |= branch.handlers.keys()
        if not allowed:
            raise not_found("there is no such address")
        headers = {"Allow": ", ".join(sorted(allowed))}
        raise Refused(405, f"Method not allowed: {method}", headers=headers)


def _leaves(
    branch: _Branch, segments: list[str], values: list[str]
) -> Iterator[tuple[_Branch, list[str]]]:
    """The branches that a path ends in, those of literal parts first."""
    if not segments:
        yield branch, values
        return
    part, rest = segments[0], segments[1:]
    if part in branch.parts:
        yield from _leaves(branch.parts[part], rest, values)
    if branch.any is not None and part:
        yield from _leaves(branch.any, rest, [*values, part])


def router(*, published: bool) -> Router:
    """The routes of a dialect."""
    return Router({**SHARED, **(PUBLISHED if published else DOCUMENT)})
