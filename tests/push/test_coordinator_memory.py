"""What an open push keeps: all that the service said of it, and no object more than needed."""

from __future__ import annotations

import gc
import json
import tracemalloc
from math import inf
from typing import Any

import pytest

from benchmarks.virtual_service import Answer, Asked, Proceed, Service
from integration_sdk import PushOperation
from tests.support.push_support import request

pytestmark = pytest.mark.virtual_time


async def shown(said: list[dict[str, Any]]) -> list[str]:
    """Push as often, let the service answer each as *said*; return what the pushes show."""
    answers = enumerate(said, 1)

    def answer(asked: Asked, proceed: Proceed) -> Answer:
        if asked.kind != "push":
            return proceed()
        number, more = next(answers)
        usual = service.shown(service.add(), 0.0)
        usual |= {"pushOperationKey": f"key-{number}", "requestedOnUtc": "2026-01-01T00:00:00Z"}
        return Answer(body=json.dumps(usual | more).encode())

    service = Service(lambda _: inf, [answer])
    async with service.client() as client, client.coordinator(leave="cancel") as pushes:
        pushed = [await pushes.submit(request(0)) for _ in said]
        assert all(push.operation is push.operation for push in pushed)
        return [repr(push.operation) for push in pushed]


async def test_names_that_the_service_makes_up_are_not_kept() -> None:
    """Names of lanes are shared by all operations, but not long ones, nor for ever."""

    async def kept(length: int) -> int:
        tracemalloc.start()
        try:
            await shown([{"dataType": f"{number:{length}}"} for number in range(40)])
            gc.collect()
            return tracemalloc.get_traced_memory()[0]
        finally:
            tracemalloc.stop()

    assert await kept(100_000) < await kept(100) + 1_000_000


@pytest.mark.parametrize(
    "other",
    [
        {"status": "Success"},
        {"status": "Queued"},
        {"requestedOnUtc": "2024-01-01T00:00:00Z"},
        {"completedOnUtc": "2024-01-02T00:00:00Z"},
        {"data": {"number": 5}},
        {"validation": {"errors": [], "warnings": [{"message": "odd"}]}},
        {"timeoutInMinutes": 5},
        {"statusCode": 200},
        {"errorMessage": "late"},
        {"changes": [{"type": "Created"}]},
        {"more": 1},
    ],
    ids=lambda other: next(iter(other)),
)
async def test_a_push_shows_all_that_the_service_said_of_it(other: dict[str, Any]) -> None:
    """Though many pushes keep one operation, none shows anything of another's."""
    usual, odd = await shown([{}]), await shown([other])
    mixed = await shown([{}, {}, other, {}, other])

    assert odd != usual
    for at, alone in enumerate((usual, usual, odd, usual, odd), 1):
        assert mixed[at - 1] == alone[0].replace("'key-1'", f"'key-{at}'")


@pytest.mark.parametrize(
    "say",
    [
        lambda one: {"data": {"more": one}},
        lambda one: {"more": one},
        lambda one: {"changes": [{"more": one}]},
        lambda one: {"validation": {"errors": [], "warnings": [], "more": one}},
    ],
)
async def test_what_is_equal_in_python_alone_is_not_taken_for_the_same(say: Any) -> None:
    """1 and true are equal here, and different in the service's JSON."""
    told = await shown([say(one) for one in (1, True, 1.0)])

    for at, one in enumerate((1, True, 1.0), 1):
        (alone,) = await shown([say(one)])
        assert told[at - 1] == alone.replace("'key-1'", f"'key-{at}'")


async def test_open_pushes_of_all_companies_keep_one_operation_until_somebody_looks() -> None:
    """A thousand usual answers weigh as much as one: an operation is 160 bytes, of 600."""

    def alive() -> int:
        gc.collect()
        return sum(isinstance(one, PushOperation) for one in gc.get_objects())

    others = alive()
    async with (
        Service(lambda _: inf).client() as client,
        client.coordinator(max_open=1000, leave="cancel") as pushes,
    ):
        pushed = [await pushes.submit(request(number, companies=10)) for number in range(1000)]
        kept = alive() - others
        shown = [push.operation.company_id for push in pushed if push.operation]

    assert kept < 10
    assert shown == [push.request.company_id for push in pushed]
