"""The legacy bank endpoints: a warning while they work, an error that says so once they do not.

Source: "Versioning", rule 2; "Other rules", rule 4.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from itertools import product
from typing import Any

import pytest

from integration_sdk import Client, errors
from integration_sdk.sandbox import Sandbox
from tests.support.virtual_service import Answer, Service

pytestmark = pytest.mark.virtual_time

DOCUMENTED: dict[str, Any] = {
    "statusCode": 404,
    "service": "ClientApi",
    "error": "NotFound",
    "correlationId": "7f3a",
    "canBeRetried": "Unknown",
    "detailedErrorCode": 0,
}
CALLS: dict[str, Callable[[Any, str], Awaitable[Any]]] = {
    "list": lambda company, _: company.legacy_bank_accounts.list().collect(),
    "page": lambda company, _: company.legacy_bank_accounts.list(),
    "get": lambda company, account: company.legacy_bank_accounts.get(account),
    "transactions": lambda company, account: (
        company.legacy_bank_accounts.transactions(account).list().first()
    ),
    "data": lambda company, _: company.data("bankAccounts").list().first(),
}


async def account_of(client: Client, sandbox: Sandbox) -> str:
    first = sandbox.companies[0]
    books = client.company(first.id).connection(first.connections[0].id)
    account = await books.bank_accounts.list().first()
    assert account is not None
    return str(account["id"])


@pytest.mark.parametrize("name", CALLS)
async def test_a_legacy_call_that_still_works_names_its_replacement(name: str) -> None:
    """It warns in the line that made the call, however many pages there are."""
    async with (
        Sandbox(invoices=10, legacy_removed=False) as sandbox,
        Client(api_key=sandbox.api_key, base_url=sandbox.base_url) as client,
    ):
        account = await account_of(client, sandbox)
        with pytest.warns(DeprecationWarning, match="is a legacy endpoint") as caught:
            assert await CALLS[name](client.company(sandbox.companies[0].id), account)

    end = f"bankAccounts/{account}/bankTransactions" if name == "transactions" else "bankAccounts"
    assert [warning.filename for warning in caught] == [__file__]
    assert f"/connections/{{connectionId}}/data/{end}" in str(caught[0].message)


@pytest.mark.parametrize(
    ("error", "retried", "detail", "legacy"),
    list(product(("NotFound", "NotFound: no company", None), ("Unknown", None), (0, 7), "yn")),
)
async def test_only_the_documented_body_on_a_legacy_path_means_removed(
    error: str | None, retried: str | None, detail: int, legacy: str
) -> None:
    """ "The error body (error text NotFound, canBeRetried Unknown, detailedErrorCode 0)"."""
    content = DOCUMENTED | {"error": error, "canBeRetried": retried, "detailedErrorCode": detail}
    asked = CALLS["page"] if legacy == "y" else lambda company, _: company.get()
    async with Service(answer=lambda _: Answer.of(content, 404)).client() as client:
        with pytest.raises(errors.NotFound) as told:
            await asked(client.company("c"), "")

    documented = content == DOCUMENTED and legacy == "y"
    assert type(told.value) is (errors.EndpointRemoved if documented else errors.NotFound)
    if isinstance(told.value, errors.EndpointRemoved):
        assert told.value.replacement == "/companies/c/connections/{connectionId}/data/bankAccounts"
        assert told.value.replacement in str(told.value)
