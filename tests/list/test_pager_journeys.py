"""Lists read through a real client, over real HTTP, from the sandbox."""

from __future__ import annotations

from decimal import Decimal

import attrs
import pytest

from integration_sdk import Client
from integration_sdk.errors import BadRequest, ConfigurationError
from integration_sdk.sandbox import Sandbox
from tests.support.pager_support import others, settle

pytestmark = pytest.mark.integration_sandbox(companies=3, invoices=2500)


@attrs.frozen
class Invoice:
    id: str
    invoice_number: str
    total_amount: Decimal


async def test_all_invoices_of_a_company_are_streamed(
    integration_sandbox: Sandbox, integration_client: Client
) -> None:
    """Every record once, in as many requests as pages."""
    company = integration_sandbox.companies[0].id
    pager = integration_client.company(company).data("invoices").list(page_size=500, prefetch=3)

    seen = [invoice["id"] async for invoice in pager]

    assert len(seen) == len(set(seen)) == 2500
    assert (pager.report.pages, pager.report.requests, pager.report.drift) == (5, 5, [])


async def test_invoices_become_objects_with_exact_amounts(
    integration_sandbox: Sandbox, integration_client: Client
) -> None:
    """A class of one's own is filled from the service's names."""
    company = integration_sandbox.companies[0].id
    listed = integration_client.company(company).data("invoices")

    plain = await listed.list(numbers="decimal").first()
    typed = await listed.list(model=Invoice).first()

    assert plain is not None
    assert typed is not None
    assert typed == Invoice(plain["id"], plain["invoiceNumber"], plain["totalAmount"])
    assert isinstance(typed.total_amount, Decimal)


async def test_a_list_goes_on_in_another_client(
    integration_sandbox: Sandbox, integration_client: Client
) -> None:
    """A cursor is all that the next process needs."""
    company = integration_sandbox.companies[0].id
    first = integration_client.company(company).data("invoices").list(page_size=400)
    whole = await first.collect()
    half = []
    async for invoice in first:
        half.append(invoice)
        if len(half) == 1234:
            break

    async with Client(
        api_key=integration_sandbox.api_key, base_url=integration_sandbox.base_url
    ) as another:
        rest = another.company(company).data("invoices").list(cursor=first.cursor)
        assert half + await rest.collect() == whole


async def test_a_cursor_of_one_filter_is_refused_by_another(
    integration_sandbox: Sandbox, integration_client: Client
) -> None:
    """It would name another place there."""
    invoices = integration_client.company(integration_sandbox.companies[0].id).data("invoices")
    cursor = invoices.list().cursor

    with pytest.raises(ConfigurationError, match="another list"):
        invoices.list(query="status=Paid", cursor=cursor)


async def test_leaving_a_list_leaves_nothing_behind(
    integration_sandbox: Sandbox, integration_client: Client
) -> None:
    """After a break the session has no request of the list under way."""
    invoices = integration_client.company(integration_sandbox.companies[0].id).data("invoices")

    async for _ in invoices.list(page_size=10, prefetch=8):
        break
    await settle()

    assert not [task for task in others() if "Fetching" in task.get_coro().__qualname__]  # type: ignore[union-attr]  # tasks have one


@pytest.mark.integration_faults("status", 503, route="GET", probability=0.2)
async def test_faults_on_the_way_change_nothing(
    integration_sandbox: Sandbox, integration_client: Client
) -> None:
    """A service that is away now and then costs time, not items."""
    company = integration_sandbox.companies[0].id
    pager = integration_client.company(company).data("invoices").list(page_size=250, prefetch=4)

    assert len({invoice["id"] async for invoice in pager}) == 2500


async def test_what_the_service_refuses_is_an_error(
    integration_sandbox: Sandbox, integration_client: Client
) -> None:
    """A filter that makes no sense to the service is its 400."""
    company = integration_sandbox.companies[0].id

    with pytest.raises(BadRequest):
        await integration_client.company(company).data("invoices").list(query="&&").collect()
