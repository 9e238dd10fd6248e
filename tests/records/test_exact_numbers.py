"""``numbers="decimal"``: no door lets a fraction through as a float."""

from __future__ import annotations

from dataclasses import replace
from decimal import Decimal
from typing import Literal

import pytest

from integration_sdk import Client, OutcomeStatus, PushRequest
from integration_sdk.models import PushOperation
from integration_sdk.sandbox import Sandbox
from tests.support.push_support import coordinator
from tests.support.sandbox_support import DELIVERY
from tests.support.virtual_service import Answer, Asked, Proceed, Service

pytestmark = pytest.mark.virtual_time


def kind_of(operation: PushOperation | None) -> type:
    """The type of a fraction in it."""
    assert operation is not None
    assert operation.data is not None
    return type(operation.data["lineItems"][0]["unitAmount"])


@pytest.mark.parametrize(("numbers", "kind"), [("decimal", Decimal), ("float", float)])
async def test_every_operation_has_the_numbers_asked_for(
    numbers: Literal["decimal", "float"], kind: type
) -> None:
    """Answered at once, waited for, read singly, listed, by a coordinator of either platform.

    A list of pushes may differ from its client, as every list may.
    """
    async with (
        Sandbox(companies=1, push_seconds=(0.01, 0.05)) as sandbox,
        Client(sandbox.api_key, sandbox.base_url, numbers=numbers) as client,
    ):
        (held,) = sandbox.companies
        company = client.company(held.id)
        slow, at_once = (company.connection(one.id) for one in held.connections[:2])
        seen = [await at_once.push("invoices", DELIVERY)]
        seen.append(await client.wait(await slow.push("invoices", DELIVERY)))
        seen.append(await company.pushes.get(seen[1].key))
        seen += await company.pushes.list().collect()
        requests = [PushRequest(held.id, one.id, "invoices", DELIVERY) for one in (slow, at_once)]
        async with client.coordinator(fetch_data=True) as pushes:
            outcomes = [outcome async for outcome in pushes.run(requests * 3)]
        seen += [outcome.operation for outcome in outcomes if outcome.operation]
        exact = await company.pushes.list(numbers="decimal").first()
        plain = await company.pushes.list(numbers="float").first()

    assert len(seen) == 3 + 2 + 6
    assert {kind_of(one) for one in seen} == {kind}
    assert (kind_of(exact), kind_of(plain)) == (Decimal, float)


@pytest.mark.parametrize("natural_key", [None, "currencyRate"])
async def test_a_lost_push_is_known_by_all_its_digits(natural_key: str | None) -> None:
    """Whatever ``numbers`` are asked for: as floats, a rate of 28 digits is not the one sent."""
    rate = Decimal(1) / Decimal(3)
    service = Service()

    def lose(asked: Asked) -> Answer | None:
        if asked.kind != "push":
            return None
        service.add("company", record={"currencyRate": "RATE"})
        return Answer(502)

    def show_all_digits(_: Asked, proceed: Proceed) -> Answer:
        answer = proceed()
        return replace(answer, body=answer.body.replace(b'"RATE"', str(rate).encode()))

    service.answer, service.faults = lose, [show_all_digits]
    record = {"currencyRate": rate}
    async with coordinator(service) as pushes:
        request = PushRequest("company", "books", "invoices", record, natural_key=natural_key)
        outcome = await (await pushes.submit(request))

    assert outcome.status is OutcomeStatus.SUCCESS
    assert service.count("push") == 1
