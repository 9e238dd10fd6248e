"""Promises of what a push costs, kept over sockets too, under every fault that the sandbox has."""

from __future__ import annotations

import asyncio
from contextlib import suppress
from typing import Any

import pytest

from integration_sdk import Client, Dialect, PushRequest
from integration_sdk.errors import IntegrationError
from integration_sdk.sandbox import Sandbox
from tests.sandbox_support import DELIVERY

READS = {"route": "GET /push"}
FAULTS: dict[str, tuple[tuple[Any, ...], dict[str, Any]]] = {
    "status": ((500,), READS),
    "html_from_proxy": ((), READS),
    "not_ready": ((), READS),
    "unavailable": ((), READS),
    "expire_account": ((), {"skip": 5}),
    "no_push_list": ((), {}),
    "rate_limit": ((2,), READS),
    "concurrency_limit": ((1,), READS),
    "latency": ((5.0,), READS),
    "late_answer": ((5.0,), READS),
    "drop_connection": ((), READS),
    "lose_answer": ((), {}),
    "truncate": ((3,), READS),
    "cap_page_size": ((1,), READS),
    "list_lag": ((30.0,), {}),
    "drift": ((), {"insert": 1}),
    "push_seconds": ((30.0,), {}),
    "fail_next_push": (("no",), {}),
    "late_effect": ((5.0,), {}),
    "foreign_writer": (({"invoiceNumber": "X"},), {}),
    "lose_notifications": ((), {}),
    "double_notifications": ((), {}),
    "delay_notifications": ((5.0,), {}),
    "forge_notifications": ((), {}),
}
"""Each fault, with arguments that make it last."""


def test_every_fault_of_the_sandbox_is_among_them() -> None:
    """A new fault comes here too."""
    made = {name for name in dir(Sandbox().faults) if not name.startswith("_")}

    assert (
        made - {"add", "add_named", "add_listed", "listed", "remove", "clear", "through"}
        == FAULTS.keys()
    )


@pytest.mark.virtual_time
@pytest.mark.parametrize("fault", FAULTS)
async def test_a_push_keeps_its_budget_under_a_fault_of_the_sandbox(fault: str) -> None:
    """15 requests in ten seconds and 40 in a minute, beside the push itself."""
    arguments, options = FAULTS[fault]
    published = fault == "late_effect"
    async with Sandbox(dialect="published" if published else "document") as sandbox:
        sandbox.faults.push_seconds(80.0)
        sandbox.faults.add_named(fault, *arguments, **options)
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
