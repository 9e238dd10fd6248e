"""Promises of polling when the service shows a push in JSON that cannot be read."""

from __future__ import annotations

import asyncio

import pytest
from attrs import evolve

from integration_sdk._http.requests import Request
from integration_sdk._http.responses import Response
from integration_sdk._push import answers
from integration_sdk._push.wire import Wire
from integration_sdk.errors import MalformedResponse
from integration_sdk.models import OutcomeStatus
from tests.push_model import Model
from tests.push_support import DOCUMENT, collect, coordinator, poller, requests

pytestmark = pytest.mark.virtual_time

ODD = {
    "too large": b"1e400",
    "too long": b"9" * 5000,
    "not UTF-8": b'"\xff"',
    "half a character": rb'"\ud800"',
}
odd_values = pytest.mark.parametrize("odd", ODD.values(), ids=ODD)


class Odd(Model):
    """Shows *odd* in place of the number 1 of a record, wherever it shows the record."""

    odd: bytes = b"null"

    def ok(self, body: object) -> Response:
        answer = super().ok(body)
        return evolve(
            answer, body=answer.body.replace(b'"number": 1,', b'"number": %b,' % self.odd)
        )


@odd_values
async def test_a_push_with_a_value_that_cannot_be_read_ends_like_the_others(
    odd: bytes, caplog: pytest.LogCaptureFixture
) -> None:
    """Its key and status can be read; its data is missing, and it says why."""
    model = Odd()
    model.odd = odd
    async with asyncio.timeout(1000), coordinator(model) as pushes:
        outcomes = {
            outcome.request.record["number"]: outcome async for outcome in pushes.run(requests(10))
        }

    assert {one.status for one in outcomes.values()} == {OutcomeStatus.SUCCESS}
    operation = outcomes[1].operation
    assert operation
    assert operation.data is None
    assert "cannot be read" in str(operation.error_message)
    assert f"push {operation.key} is Success" in caplog.text
    assert all(one.operation and one.operation.data for n, one in outcomes.items() if n != 1)


async def test_a_number_that_not_even_a_decimal_holds_ends_one_push_only() -> None:
    """Where fractions are read exactly, an exponent of twenty digits is Python's error."""
    model = Odd()
    model.odd = b"1e99999999999999999999"
    polls = poller(model, exact=True)
    async with asyncio.timeout(1000), coordinator(model, polls=polls) as pushes:
        outcomes = await collect(pushes.run(requests(10)))

    assert {one.status for one in outcomes} == {OutcomeStatus.SUCCESS}
    read = {one.request.record["number"]: one.operation for one in outcomes}
    assert [n for n, operation in read.items() if operation and operation.data is None] == [1]


@odd_values
async def test_a_push_that_is_acknowledged_with_such_a_value_is_not_in_doubt(odd: bytes) -> None:
    """The answer has its key, which is all that proves it."""
    model = Odd(takes=lambda _: 0.0)
    model.odd = odd
    async with coordinator(model) as pushes:
        push = await pushes.submit(requests(2)[1])

    assert push.outcome
    assert push.outcome.status is OutcomeStatus.SUCCESS
    assert model.counts["pushes.list"] == 1


async def test_a_page_too_deep_to_read_does_not_stop_the_polling() -> None:
    """No push is lost by it: they are read singly."""
    model = Odd(takes=lambda record: 0.5 if record["number"] == 1 else 30.0)
    model.odd = b"[" * 1_000_000 + b"]" * 1_000_000  # CPython 3.14 reads some 200,000
    async with coordinator(model) as pushes:
        outcomes = await collect(pushes.run(requests(10), wait=60.0))

    ends = {one.request.record["number"]: one.status for one in outcomes}
    assert ends.pop(1) is OutcomeStatus.PENDING
    assert set(ends.values()) == {OutcomeStatus.SUCCESS}


async def test_what_has_not_even_a_key_is_read_again() -> None:
    """A cut answer may be whole the next time."""
    cut = iter([Response(status=200, body=b'{"pushOperationKey":"')] * 3)

    def answer(call: Request) -> Response | None:
        return next(cut, None) if call.operation == "pushes.get" else None

    model = Model(answer=answer)
    held = model.add("company", "books", "invoices", {})
    operation = await poller(model).wait("company", held.key, timeout=100)

    assert operation.is_final


async def test_what_cannot_be_read_in_full_is_no_evidence() -> None:
    """A push without its record is not one whose record differs, so it is left out."""
    model = Odd(takes=lambda _: 0.0)
    model.odd = ODD["half a character"]
    records = [{"number": number, "name": "A"} for number in range(2)]
    keys = [model.add("company", "books", "invoices", record).key for record in records]

    found = await Wire(model, DOCUMENT).read_singly("company", keys)

    assert [one.key for one in found] == keys[:1]


@pytest.mark.parametrize(
    "body",
    [b"[]", b"{", b'{"pushOperationKey":1,"companyId":"c","status":"Success"}', b'"text"'],
)
def test_what_is_no_operation_has_no_brief(body: bytes) -> None:
    """The first problem is the one that is told."""
    problem = MalformedResponse("the problem")

    with pytest.raises(MalformedResponse, match="the problem"):
        answers.read_brief(body, problem)
