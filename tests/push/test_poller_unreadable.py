"""Promises of polling when the service shows a push in JSON that cannot be read."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from typing import Any

import pytest

from integration_sdk.models import OutcomeStatus
from tests.support.push_support import Connect, collect, coordinator, request, requests, unanswered
from tests.support.virtual_service import Answer, Asked, Proceed, Service

pytestmark = pytest.mark.virtual_time

ODD = {
    "too large": b"1e400",
    "too long": b"9" * 5000,
    "not UTF-8": b'"\xff"',
    "half a character": rb'"\ud800"',
}
odd_values = pytest.mark.parametrize("odd", ODD.values(), ids=ODD)


def showing(odd: bytes, **facts: Any) -> Service:
    """Return a service that shows *odd* in place of the number 1 of a record."""

    def show(_: Asked, proceed: Proceed) -> Answer:
        answer = proceed()
        body = answer.body.replace(b'"number": 1,', b'"number": %b,' % odd)
        return replace(answer, body=body)

    return Service(faults=[show], **facts)


@odd_values
async def test_a_push_with_a_value_that_cannot_be_read_ends_like_the_others(
    odd: bytes,
) -> None:
    """Its key and status can be read; its data is missing, and it says why."""
    service = showing(odd)
    async with asyncio.timeout(1000), coordinator(service) as pushes:
        outcomes = {
            outcome.request.record["number"]: outcome async for outcome in pushes.run(requests(10))
        }

    assert {one.status for one in outcomes.values()} == {OutcomeStatus.SUCCESS}
    operation = outcomes[1].operation
    assert operation
    assert operation.data is None
    assert "cannot be read" in str(operation.error_message)
    assert all(one.operation and one.operation.data for n, one in outcomes.items() if n != 1)


async def test_a_number_that_not_even_a_decimal_holds_ends_one_push_only() -> None:
    """Where fractions are read exactly, an exponent of twenty digits is Python's error."""
    service = showing(b"1e99999999999999999999")
    async with asyncio.timeout(1000), coordinator(service, numbers="decimal") as pushes:
        outcomes = await collect(pushes.run(requests(10)))

    assert {one.status for one in outcomes} == {OutcomeStatus.SUCCESS}
    read = {one.request.record["number"]: one.operation for one in outcomes}
    assert [n for n, operation in read.items() if operation and operation.data is None] == [1]


@odd_values
async def test_a_push_that_is_acknowledged_with_such_a_value_is_not_in_doubt(odd: bytes) -> None:
    """The answer has its key, which is all that proves it."""
    service = showing(odd, takes=lambda _: 0.0)
    async with coordinator(service) as pushes:
        push = await pushes.submit(requests(2)[1])

    assert push.outcome
    assert push.outcome.status is OutcomeStatus.SUCCESS
    assert service.count("list") == 1


async def test_a_page_too_deep_to_read_does_not_stop_the_polling() -> None:
    """No push is lost by it: they are read singly."""
    deep = b"[" * 1_000_000 + b"]" * 1_000_000  # CPython 3.14 reads some 200,000
    service = showing(deep, takes=lambda record: 0.5 if record["number"] == 1 else 30.0)
    async with coordinator(service) as pushes:
        outcomes = await collect(pushes.run(requests(10), wait=60.0))

    ends = {one.request.record["number"]: one.status for one in outcomes}
    assert ends.pop(1) is OutcomeStatus.PENDING
    assert set(ends.values()) == {OutcomeStatus.SUCCESS}


async def test_what_has_not_even_a_key_is_read_again(connect: Connect) -> None:
    """A cut answer may be whole the next time."""
    cut = iter([Answer(body=b'{"pushOperationKey":"')] * 3)
    service = Service(answer=lambda call: next(cut, None) if call.kind == "get" else None)
    held = service.add()
    operation = await (await connect(service)).wait(held.key, company_id=held.company, timeout=100)

    assert operation.is_final


async def test_what_cannot_be_read_in_full_is_no_evidence() -> None:
    """A push without its record is not one whose record differs, so it may be the one sought."""
    service = showing(ODD["half a character"], takes=lambda _: 0.0, list_has_data=False)
    service.faults.append(unanswered)
    async with coordinator(service, exclusive=True) as pushes:
        outcome = await (await pushes.submit(request(1, natural_key="number")))

    assert outcome.status is OutcomeStatus.SUCCESS
    assert outcome.key in service.by_key
