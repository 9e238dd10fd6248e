"""Promises of what a push costs, kept over sockets too, under every fault that the sandbox has."""

from __future__ import annotations

import asyncio
from contextlib import suppress
from inspect import signature
from typing import Any

import pytest

from integration_sdk import Client, Dialect, PushRequest
from integration_sdk.errors import IntegrationError
from integration_sdk.sandbox import Faults, Sandbox
from tests.support.sandbox_support import DELIVERY

NAMES = [name for name in vars(Faults) if not name.startswith("_") and name != "add"]
SAMPLES = {
    "Seconds": 5.0,
    "Duration": 30.0,
    "Rate": 2.0,
    "Count": 1,
    "Whole": 3,
    "Status": 500,
    "str": "no",
    "Mapping[str, Any]": {"invoiceNumber": "X"},
}
"""What a fault gets that needs arguments, by their annotations."""
OPTIONS: dict[str, dict[str, Any]] = {
    "concurrency_limit": {"total": 1},
    "drift": {"insert": 1},
    "expire_account": {"skip": 5, "route": ""},
    "push_seconds": {"seconds": 30.0},
    "rate_limit": {"per_second": 2},
}
"""What makes a fault last that would be harmless, or leave nothing to ask."""


def last(faults: Faults, name: str) -> None:
    """Add the fault *name*, to reads of pushes if it can concern them."""
    needed = {
        one.name: SAMPLES[one.annotation]
        for one in list(signature(getattr(Faults, name)).parameters.values())[1:]
        if one.default is one.empty and one.kind is one.POSITIONAL_OR_KEYWORD
    }
    options = needed | OPTIONS.get(name, {})
    try:
        faults.add_named(name, **{"route": "GET /push", **options})
    except ValueError:
        faults.add_named(name, **options)


@pytest.mark.virtual_time
@pytest.mark.parametrize("fault", NAMES)
async def test_a_push_keeps_its_budget_under_a_fault_of_the_sandbox(fault: str) -> None:
    """15 requests in ten seconds and 40 in a minute, beside the push itself."""
    published = fault == "late_effect"
    async with Sandbox(dialect="published" if published else "document") as sandbox:
        sandbox.faults.push_seconds(80.0)
        last(sandbox.faults, fault)
        dialect = Dialect.published() if published else Dialect.document()
        async with Client(sandbox.api_key, sandbox.base_url, dialect=dialect) as client:
            began = sandbox.clock.now()
            await push(client, sandbox, seconds=90.0)
        asked = [one.at - began for one in sandbox.requests if one.method == "GET"]

    assert asked
    assert sum(at <= 10 for at in asked) <= 15
    assert sum(at <= 60 for at in asked) <= 40


async def push(client: Client, sandbox: Sandbox, *, seconds: float) -> None:
    company = sandbox.companies[0]
    request = PushRequest(company.id, company.connections[0].id, "invoices", DELIVERY)
    with suppress(TimeoutError, IntegrationError):
        async with asyncio.timeout(seconds), client.coordinator() as pushes:
            await (await pushes.submit(request))
