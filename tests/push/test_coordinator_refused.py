"""A company that is refused holds up its own pushes, and nobody else's."""

from __future__ import annotations

import asyncio

import pytest

from integration_sdk import Client, OutcomeStatus, PushRequest
from integration_sdk.sandbox import Company, Sandbox

pytestmark = pytest.mark.virtual_time


def to(company: Company, number: int) -> PushRequest:
    connection = company.connections[0].id
    record = {"supplierName": f"S{number}", "status": "Active"}
    return PushRequest(company.id, connection, "suppliers", record)


async def seconds_of_others(client: Client, requests: list[PushRequest], refused: str) -> float:
    """Return how long it takes until all pushes but those of *refused* have succeeded."""
    loop = asyncio.get_running_loop()
    began = ended = loop.time()
    others = sum(request.company_id != refused for request in requests)
    served = 0
    async with client.coordinator(leave="detach") as pushes:
        async with asyncio.timeout(200):
            async for outcome in pushes.run(requests, wait=30):
                if outcome.request.company_id != refused:
                    assert outcome.status is OutcomeStatus.SUCCESS
                    served += 1
                    ended = loop.time()
                if served == others:
                    break
    return ended - began


@pytest.mark.parametrize("route", ["POST", ""], ids=["pushes", "all its calls"])
@pytest.mark.parametrize("retry_after", [None, "1"])
@pytest.mark.integration_sandbox(companies=2, push_seconds=(0.5, 0.5))
async def test_refused_company_does_not_stop_the_one_behind_it(
    route: str, retry_after: str | None, integration_sandbox: Sandbox, integration_client: Client
) -> None:
    """200 pushes behind 80 of a company that always gets 429 take seconds, not minutes."""
    first, second = integration_sandbox.companies[:2]
    integration_sandbox.faults.status(
        429,
        headers={"Retry-After": retry_after} if retry_after else {},
        route=rf"^{route}.*/companies/{first.id}",
    )
    requests = [to(first, n) for n in range(80)] + [to(second, n) for n in range(200)]

    took = await seconds_of_others(integration_client, requests, first.id)

    assert took < 40


@pytest.mark.parametrize("knows", [False, True], ids=["at first", "later"])
@pytest.mark.integration_sandbox(companies=20, unlinked=0, push_seconds=(0.5, 0.5))
async def test_nineteen_of_twenty_companies_do_not_notice_that_one_is_refused(
    knows: bool, integration_sandbox: Sandbox, integration_client: Client
) -> None:
    """760 pushes among 40 refused ones take no longer than 1.2 times what they take alone.

    So it is for a client's first pushes, and for one that knows what the service takes. The
    company that is refused is asked again in growing pauses, not each time that others are served.
    """
    companies = integration_sandbox.companies
    requests = [to(company, n) for n in range(40) for company in companies]
    integration_sandbox.faults.latency(0.05)
    alone = await seconds_of_others(integration_client, requests[:760], "")
    refused = companies[7].id
    integration_sandbox.faults.status(429, route=rf"^POST.*/companies/{refused}")

    async with Client(
        api_key=integration_sandbox.api_key, base_url=integration_sandbox.base_url
    ) as another:
        client = integration_client if knows else another
        took = await seconds_of_others(client, requests, refused)

    assert took <= 1.2 * alone
    assert sum(request.status == 429 for request in integration_sandbox.requests) <= 15


@pytest.mark.integration_sandbox(companies=3, push_seconds=(0.5, 0.5))
async def test_two_refused_companies_do_not_stop_the_one_behind_them(
    integration_sandbox: Sandbox, integration_client: Client
) -> None:
    """However many are refused: the next gets its turn soon."""
    *refused, last = integration_sandbox.companies
    for company in refused:
        integration_sandbox.faults.status(429, route=rf"^POST.*/companies/{company.id}")
    requests = [to(company, n) for company in (*refused, last) for n in range(40)]

    loop, began = asyncio.get_running_loop(), asyncio.get_running_loop().time()
    served = 0
    async with asyncio.timeout(100), integration_client.coordinator(leave="detach") as pushes:
        async for outcome in pushes.run(requests, wait=30):
            served += outcome.status is OutcomeStatus.SUCCESS
            if served == 40:
                break

    assert loop.time() - began < 30
