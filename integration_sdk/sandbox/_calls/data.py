"""Reading a company's books: data lists, and bank data by its new and its legacy paths.

Source: "Pagination"; "Bank data endpoints"; "Versioning", rule 2; "Other rules", rule 4.
"""

from __future__ import annotations

from datetime import UTC, date, datetime

from integration_sdk.sandbox._books.datasets import DataSet
from integration_sdk.sandbox._call import Answer, Call, Handler, Refused, not_found
from integration_sdk.sandbox._calls.account import connection_of
from integration_sdk.sandbox._companies import Connection

REMOVAL = date(2023, 4, 10)


async def list_records(call: Call) -> Answer:
    """``GET /companies/{companyId}/data/{dataType}``: a page of records."""
    return await _records(call).answer(call)


async def get_record(call: Call) -> Answer:
    """``GET /companies/{companyId}/data/{dataType}/{recordId}``."""
    return _one(_records(call), call.names["recordId"])


async def list_bank_accounts(call: Call) -> Answer:
    """``GET .../connections/{connectionId}/data/bankAccounts``."""
    return await call.service.bank_accounts(connection_of(call)).answer(call)


async def get_bank_account(call: Call) -> Answer:
    """``GET .../connections/{connectionId}/data/bankAccounts/{accountId}``."""
    return _one(call.service.bank_accounts(connection_of(call)), call.names["accountId"])


async def list_bank_transactions(call: Call) -> Answer:
    """``GET .../data/bankAccounts/{accountId}/bankTransactions``."""
    account_id = call.names["accountId"]
    return await call.service.bank_transactions(connection_of(call), account_id).answer(call)


def legacy(handler: Handler) -> Handler:
    """Return *handler*, a bank endpoint's, for the path without a connection, until its removal."""

    async def respond(call: Call) -> Answer:
        call.names["connectionId"] = _legacy_connection(call).id
        return await handler(call)

    return respond


def _records(call: Call) -> DataSet:
    return call.service.data_set(call.names["companyId"], call.names["dataType"])


def _one(records: DataSet, identifier: str) -> Answer:
    row = records.get(identifier)
    if row is None:
        raise not_found(f"there is no record {identifier}")
    return Answer(200, row)


def _legacy_connection(call: Call) -> Connection:
    # "After the removal date, calls to legacy bank endpoints return 404 with the error body
    # (error text NotFound, canBeRetried Unknown, detailedErrorCode 0)."
    removed = call.service.settings.legacy_removed
    if not isinstance(removed, bool):
        removed = datetime.fromtimestamp(call.now, UTC).date() > removed
    if removed:
        raise Refused(404, "NotFound")
    company = call.service.company(call.names["companyId"])
    if not company.connections:
        raise Refused(409, "Conflict: the data set bankAccounts is not ready")
    return company.connections[0]
