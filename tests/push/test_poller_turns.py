"""Promises of polling among pushes that still leave, in virtual time."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator

import pytest

from integration_sdk import CallInfo, Client, PushRequest
from integration_sdk.sandbox import Sandbox

pytestmark = pytest.mark.virtual_time

PUSHES = 800


def records(sandbox: Sandbox) -> Iterator[PushRequest]:
    company = sandbox.companies[0]
    for number in range(PUSHES):
        record = {"supplierName": f"Supplier {number}", "status": "Active"}
        yield PushRequest(company.id, company.connections[0].id, "suppliers", record)


async def test_outcomes_come_while_other_pushes_still_leave() -> None:
    """With more pushes to send than may go at once, polls have their turn among them."""
    loop = asyncio.get_running_loop()
    sent: list[float] = []

    def note(call: CallInfo) -> None:
        if call.operation == "push.create":
            sent.append(loop.time())

    async with (
        Sandbox(companies=1, invoices=0, push_seconds=(1, 2)) as sandbox,
        Client(sandbox.api_key, sandbox.base_url, timeout=None, on_call=note) as client,
        client.coordinator(max_open=PUSHES) as pushes,
    ):
        sandbox.faults.latency((0.1, 0.2))
        seen = [loop.time() async for _ in pushes.run(records(sandbox))]

    assert len(seen) == len(sent) == PUSHES
    assert seen[0] < sent[PUSHES // 2]
    assert sum(moment < sent[-1] for moment in seen) > PUSHES // 3
