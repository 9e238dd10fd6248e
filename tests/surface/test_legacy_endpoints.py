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


async def test_a_legacy_path_asked_for_by_hand_is_told_alike() -> None:
    """`Client.request` warns while it works, and raises once it does not, naming the path."""
    async with (
        Sandbox(invoices=10, legacy_removed=False) as sandbox,
        Client(api_key=sandbox.api_key, base_url=sandbox.base_url) as client,
    ):
        company, account = sandbox.companies[0].id, await account_of(client, sandbox)
        path = f"/companies/{company}/data/bankAccounts/{account}/transactions"
        with pytest.warns(DeprecationWarning, match="is a legacy endpoint") as caught:
            assert await client.request("get", path)
        with pytest.raises(errors.NotFound, match="Check") as unknown:
            await client.request("GET", path.replace(company, "typo"))

    async with (
        Sandbox(invoices=10, legacy_removed=True) as sandbox,
        Client(api_key=sandbox.api_key, base_url=sandbox.base_url) as client,
    ):
        with pytest.raises(errors.EndpointRemoved) as removed:
            await client.request("GET", path)

    accounts = f"/companies/{company}/connections/{{connectionId}}/data/bankAccounts"
    there = f"{accounts}/{account}/bankTransactions"
    assert [warning.filename for warning in caught] == [__file__]
    assert str(caught[0].message).endswith(f"use GET {there}")
    assert type(unknown.value) is errors.NotFound
    assert removed.value.replacement == there


async def test_other_paths_asked_for_by_hand_are_no_legacy(
    recwarn: pytest.WarningsRecorder,
) -> None:
    """A longer one, a look-alike, a method that the service never had there."""
    async with (
        Sandbox(invoices=1, legacy_removed=True) as sandbox,
        Client(api_key=sandbox.api_key, base_url=sandbox.base_url) as client,
    ):
        company = f"/companies/{sandbox.companies[0].id}"
        await client.request("GET", f"{company}/data/invoices")
        for method, path in (
            ("GET", "data/bankAccounts/a/b/transactions"),
            ("GET", "data/bankAccountsX"),
            ("DELETE", "data/bankAccounts/a"),
        ):
            with pytest.raises(errors.ApiError) as caught:
                await client.request(method, f"{company}/{path}")
            assert not isinstance(caught.value, errors.EndpointRemoved)

    assert not recwarn.list
