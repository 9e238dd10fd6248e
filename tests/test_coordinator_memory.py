"""What an open push keeps: all that the service said of it, and no object more than needed."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

import pytest
from attrs import evolve, fields

from integration_sdk._push.push import Push
from integration_sdk.models import (
    PushChange,
    PushOperation,
    PushRequest,
    PushStatus,
    Validation,
    ValidationItem,
)
from tests.push_model import request

LANE = "company_id", "data_connection_id", "data_type"
OTHER: dict[str, Any] = {
    "push_operation_key": "other",
    "status": PushStatus.SUCCESS,
    "company_id": "other",
    "data_connection_id": "other",
    "data_type": "other",
    "raw_status": "Queued",
    "requested_on_utc": datetime(2024, 1, 1, tzinfo=UTC),
    "completed_on_utc": datetime(2024, 1, 2, tzinfo=UTC),
    "data": {},
    "validation": Validation(warnings=[ValidationItem(message="odd")]),
    "timeout_in_minutes": 5,
    "status_code": 200,
    "error_message": "late",
    "changes": (PushChange(type="Created"),),
    "extra": {"more": 1},
}
"""What an answer may say beside the usual, field by field."""
USUAL: dict[str, Any] = {
    "status": PushStatus.PENDING,
    "company_id": "company-0",
    "data_connection_id": "connection-0",
    "data_type": "invoices",
    "status_code": 202,
}


def acknowledged(said: list[PushOperation]) -> list[Push]:
    """Push as often, and let the service answer each push with what it *said*."""
    pushes, like = [], None
    for operation in said:
        pushes.append(Push(PushRequest("company-0", "connection-0", "invoices", {})))
        like = pushes[-1]._acknowledged(None, operation, like)
    return pushes


@pytest.mark.parametrize("field", [one.name for one in fields(PushOperation)])
def test_a_push_shows_all_that_the_service_said_of_it(field: str) -> None:
    """Though many pushes keep one operation, none shows anything of another's."""
    usual = [PushOperation(push_operation_key=f"key-{at}", **USUAL) for at in range(4)]
    other = evolve(usual[2], **{field: OTHER[field]})
    said = [*usual[:2], other, usual[3], other]

    pushes = acknowledged(said)

    assert [push.key for push in pushes] == [one.push_operation_key for one in said]
    assert [repr(push.operation) for push in pushes] == [repr(one) for one in said]
    assert all(push.operation is push.operation for push in pushes)


@pytest.mark.parametrize(
    "field",
    [
        lambda one: {"data": {"more": one}},
        lambda one: {"extra": {"more": one}},
        lambda one: {"changes": (PushChange(extra={"more": one}),)},
        lambda one: {"validation": Validation(extra={"more": one})},
    ],
)
def test_what_is_equal_in_python_alone_is_not_taken_for_the_same(field: Any) -> None:
    """1 and true are equal here, and different in the service's JSON."""
    said = [
        PushOperation(push_operation_key=f"key-{at}", **USUAL | field(one))
        for at, one in enumerate((1, True, 1.0))
    ]

    assert [repr(push.operation) for push in acknowledged(said)] == [repr(one) for one in said]


def test_pushes_of_all_companies_keep_one_operation_until_somebody_looks() -> None:
    """A thousand usual answers weigh as much as one: an operation is 160 bytes, of 600."""
    like, pushes = None, [Push(request(number, companies=10)) for number in range(1000)]
    for at, push in enumerate(pushes):
        asked = push.request
        lane = (asked.company_id, asked.connection_id, asked.data_type)
        said = USUAL | dict(
            zip(("company_id", "data_connection_id", "data_type"), lane, strict=True)
        )
        like = push._acknowledged(None, PushOperation(push_operation_key=str(at), **said), like)

    assert len({id(push._seen) for push in pushes}) == 1
    assert [push.operation and push.operation.company_id for push in pushes] == [
        push.request.company_id for push in pushes
    ]


def test_the_last_state_of_a_push_is_its_own() -> None:
    """A push that has changed or ended shows that, and its twins with it."""
    pending = [PushOperation(push_operation_key=key, **USUAL) for key in ("a", "b")]
    _, push = acknowledged(pending)
    push._add_twin(twin := Push(push.request))
    final = PushOperation(push_operation_key="b", **USUAL | {"status": PushStatus.SUCCESS})

    assert twin.operation == pending[1]
    assert not push._changed(pending[1])
    assert push._changed(final)
    assert push.operation is final
    assert twin.operation is final
