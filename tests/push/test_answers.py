"""What answers about pushes are read as, for all inputs."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from integration_sdk._push.wire import read_any, read_full, read_page
from integration_sdk._records.codec import decode_json
from integration_sdk._records.shapes import read_operation
from integration_sdk.errors import MalformedResponse

texts = st.text(max_size=8)
maybe = st.none() | texts
stamps = st.sampled_from(
    [
        *("2026-01-01T00:00:00Z", "2026-01-01T00:00:00.1234567Z", "2026-01-01T02:00:00+02:00"),
        *("9999-12-31T23:59:59-05:00", "0001-01-01T00:00:00+05:00", None),
    ]
)
references = st.fixed_dictionaries({}, optional={"id": maybe, "dataType": maybe, "new": texts})
change = {"type": maybe, "recordRef": st.none() | references, "attachmentId": maybe, "new": texts}
changes = st.lists(st.fixed_dictionaries({}, optional=change), max_size=2)
problems = {"errors": [{"itemId": "a", "message": "b"}], "warnings": []}
operations: st.SearchStrategy[dict[str, Any]] = st.fixed_dictionaries(
    {
        "pushOperationKey": st.text(min_size=1, max_size=8),
        "companyId": texts,
        "status": st.sampled_from(["Pending", "Success", "Failed", "TimedOut", "Odd", "Unknown"]),
    },
    optional={
        "dataConnectionId": maybe,
        "dataType": maybe,
        "requestedOnUtc": stamps | st.just("2026-01-01T00:00:00"),
        "completedOnUtc": stamps,
        "data": st.none() | st.dictionaries(texts, maybe | st.integers() | st.just(0.1)),
        "validation": st.sampled_from([None, {"errors": [], "warnings": None}, problems]),
        "timeoutInMinutes": st.none() | st.integers(1, 1000) | st.just("60"),
        "statusCode": st.none() | st.integers(200, 500),
        "errorMessage": maybe,
        "changes": st.none() | changes,
        "somethingNew": st.integers(),
    },
)


@settings(max_examples=50)
@given(operations, st.sampled_from(["float", "decimal"]))
def test_the_short_path_reads_what_the_long_one_does(shape: dict[str, Any], numbers: Any) -> None:
    """An operation reads the same by the short path as by the one converter."""
    raw = json.dumps(shape).encode()
    assert read_full(raw, numbers=numbers) == read_operation(decode_json(raw, numbers=numbers))


@given(st.lists(operations, max_size=5), st.booleans())
def test_a_page_shows_keys_and_states_and_gives_rows_in_full(
    shapes: list[dict[str, Any]], more: bool
) -> None:
    """A page read raw has each row's key and status, and any row in full on request."""
    links = {"next": {"href": "/next"}} if more else {"next": None}
    body = json.dumps({"results": shapes, "pageSize": 5, "_links": links}).encode()
    page = read_page(body)

    assert [(row.key, row.status) for row in page.rows] == [
        (shape["pushOperationKey"], shape["status"]) for shape in shapes
    ]
    assert page.more is more
    wanted = list(range(0, len(shapes), 2))
    assert page.operations(wanted) == [
        read_operation(decode_json(json.dumps(shapes[index]).encode())) for index in wanted
    ]


@pytest.mark.parametrize(
    "body",
    [b"[]", b"{", b'{"pushOperationKey":1,"companyId":"c","status":"Success"}', b'"text"'],
)
def test_what_is_no_operation_is_malformed(body: bytes) -> None:
    """Without a key, a company and a status nothing is left of it."""
    with pytest.raises(MalformedResponse):
        read_any(body)
