"""Bytes to values: strict where it matters, tolerant where the document is silent."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta, timezone
from typing import Any

import attrs
import cattrs.preconf.json
import msgspec
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from integration_sdk._records import codec, shapes
from integration_sdk.errors import MalformedResponse
from integration_sdk.models import ErrorBody, PushOperation, PushStatus
from tests.support.sandbox_support import turned

OPERATION: dict[str, Any] = {
    "pushOperationKey": "0b5e2a0c-0000-4000-8000-000000000001",
    "companyId": "c1",
    "dataConnectionId": "d1",
    "dataType": "invoices",
    "status": "Pending",
    "requestedOnUtc": "2022-03-04T05:06:07Z",
    "completedOnUtc": None,
    "data": {},
    "validation": {},
    "timeoutInMinutes": 60,
}
ERROR = {
    "statusCode": 402,
    "service": "ClientApi",
    "error": "CompanyValidationException: company limit exceeded",
    "correlationId": "7f3a",
    "validation": {
        "errors": [{"itemId": "Company", "message": "limit", "validatorName": "CreateCompany"}],
        "warnings": [],
    },
    "canBeRetried": "Unknown",
    "detailedErrorCode": 0,
}
NAMED = {*OPERATION, "dataConnectionKey", "rawStatus", "statusCode", "errorMessage", "changes"}
JSON = st.recursive(
    st.none()
    | st.booleans()
    | st.integers()
    | st.decimals(allow_nan=False, allow_infinity=False)
    | st.text("ab\x00é"),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text("ab"), inner, max_size=3),
    max_leaves=12,
)


def test_every_field_of_a_push_operation_is_read() -> None:
    """Each row of "Push operation" has its place, dates in UTC; parts of validation may be null."""
    error = {"itemId": "amount", "message": "must be positive", "validatorName": "Amount"}
    said = {"errors": [error, "odd"], "warnings": None}
    operation = shapes.read_operation(OPERATION | {"validation": said})

    assert operation.key == OPERATION["pushOperationKey"]
    assert (operation.company_id, operation.data_connection_id) == ("c1", "d1")
    assert (operation.data_type, operation.timeout_in_minutes) == ("invoices", 60)
    assert (operation.status, operation.is_final) == (PushStatus.PENDING, False)
    assert operation.requested_on_utc == datetime(2022, 3, 4, 5, 6, 7, tzinfo=UTC)
    assert (operation.completed_on_utc, operation.data, operation.extra) == (None, {}, {})
    assert operation.validation is not None
    first, second = operation.validation.errors
    assert (first.item_id, first.message, first.validator_name) == tuple(error.values())
    assert (str(first), second.message) == ("amount: must be positive", "odd")
    assert operation.validation.warnings == ()


def test_an_operation_can_be_stored_and_answered_as_json() -> None:
    """README's way to write it keeps every field, and the copy of a web framework likewise."""
    change = {"type": "Created", "recordRef": {"id": "r1", "dataType": "invoices"}}
    said = {"status": "Parked", "validation": ERROR["validation"], "changes": [change], "new": 1}
    operation = shapes.read_operation(OPERATION | said)
    written = msgspec.json.encode(operation, order="deterministic")

    assert written == msgspec.json.encode(attrs.asdict(operation), order="deterministic")
    for read in (
        msgspec.json.decode(written, type=PushOperation),
        cattrs.preconf.json.make_converter().loads(written, PushOperation),
    ):
        assert read == operation
        assert (read.status, read.raw_status) == (PushStatus.UNKNOWN, "Parked")
        assert msgspec.json.encode(read, order="deterministic") == written


@settings(max_examples=60)
@given(st.dictionaries(st.text(min_size=1), JSON, max_size=4), JSON)
@example({"extra": {"ours": 1}}, None)
def test_what_the_document_does_not_name_is_kept(unknown: dict[str, Any], validation: Any) -> None:
    """In ``extra``; no content of ``validation``, which it leaves open, loses an operation; and
    the connection is known by the name that the published schemas give it, too.
    """
    known = OPERATION | {"dataConnectionId": None, "dataConnectionKey": "d9"}
    operation = shapes.read_operation(unknown | known | {"validation": validation})

    assert operation.key == OPERATION["pushOperationKey"]
    assert operation.extra == {name: unknown[name] for name in unknown.keys() - NAMED}
    assert operation.data_connection_id == "d9"


WRONG: list[Any] = [
    *({"pushOperationKey": None}, {"pushOperationKey": 7}, {"companyId": None}, {"status": None}),
    *({"status": True}, {"requestedOnUtc": 1646370367}, {"timeoutInMinutes": True}),
    *({"data": "text"}, None, [], "text"),
]


@pytest.mark.parametrize("change", WRONG)
def test_what_is_no_operation_is_refused(change: Any) -> None:
    """A wrong type is an error, never a guess: no "None" as a key, no True as 1."""
    with pytest.raises(MalformedResponse):
        shapes.read_operation(OPERATION | change if isinstance(change, dict) else change)


@pytest.mark.parametrize(
    "odd", [{"statusCode": "Accepted"}, {"errorMessage": {"text": "no"}}, {"changes": [None]}]
)
def test_what_the_document_does_not_show_loses_no_push(odd: dict[str, Any]) -> None:
    """An assumed member that looks different is kept as it came, and so is the push's key."""
    operation = shapes.read_operation({**OPERATION, "statusCode": 202, "ours": 1, **odd})

    assert operation.key == OPERATION["pushOperationKey"]
    assert operation.extra == {"ours": 1, **odd}
    assert operation.status_code == (None if "statusCode" in odd else 202)


@given(
    st.datetimes(min_value=datetime(1900, 1, 2), max_value=datetime(2900, 1, 1)),  # noqa: DTZ001 (naive on purpose)
    st.integers(-14 * 60, 14 * 60),
)
def test_dates_become_utc(moment: datetime, minutes: int) -> None:
    """With Z, with an offset, or bare (read as UTC): the same moment comes out."""
    zone = timezone(timedelta(minutes=minutes))

    assert codec.parse_utc(moment.isoformat()) == moment.replace(tzinfo=UTC)
    assert codec.parse_utc(moment.isoformat() + "Z") == moment.replace(tzinfo=UTC)
    there = moment.replace(tzinfo=zone)
    assert codec.parse_utc(there.isoformat()) == there
    assert codec.parse_utc(there.isoformat()).tzinfo is UTC


@pytest.mark.parametrize(
    ("text", "is_read", "is_own"),
    [
        *((text, False, False) for text in (b"", b"<html>502</html>", b"[]", b"{}", b"\xff\xfe")),
        (b'{"type": "about:blank", "title": "Bad Gateway", "status": 502}', False, False),
        (b'{"correlationId": "x"}', False, False),
        (b'{"statusCode": 503, "correlationId": null}', False, False),
        (b'{"statusCode": 503, "correlationId": ""}', False, False),
        (b'{"statusCode": 503, "correlationId": 5}', False, False),
        (b'{"statusCode": 503, "error": "Service unavailable"}', True, False),
        (b'{"statusCode": 503, "correlationId": "7f3a"}', True, True),
        (b'{"correlationId": "7f3a", "error": "cut \\ud83d"}', True, True),  # within an emoji
    ],
)
def test_a_correlation_id_proves_who_wrote_an_error(
    text: bytes, is_read: bool, is_own: bool
) -> None:
    """A code and an error are read, but a gateway may have written them."""
    assert (shapes.read_error_body(text) is not None) is is_read
    assert shapes.is_services_own(text) is is_own


@pytest.mark.parametrize("odd", [{"canBeRetried": True}, {"statusCode": {"x": 1}}, {"service": 5}])
def test_an_odd_detail_of_an_error_body_is_kept_as_it_came(odd: dict[str, Any]) -> None:
    """Each row of "Error body" has its place, which it keeps beside one that is odd."""
    body = shapes.read_error_body(codec.encode_value(ERROR))
    changed = shapes.read_error_body(codec.encode_value({**ERROR, **odd}))

    assert isinstance(body, ErrorBody)
    assert (body.status_code, body.service, body.correlation_id) == (402, "ClientApi", "7f3a")
    assert (body.can_be_retried, body.detailed_error_code) == ("Unknown", 0)
    assert body.validation is not None
    assert body.validation.errors[0].validator_name == "CreateCompany"
    assert isinstance(changed, ErrorBody)
    assert (changed.correlation_id, changed.error) == (body.correlation_id, body.error)
    assert (changed.validation, changed.extra) == (body.validation, odd)


@given(st.dictionaries(st.text("ab"), JSON, max_size=4))
def test_a_record_has_one_form_whatever_the_order_of_its_members(record: dict[str, Any]) -> None:
    """Nothing else is lost: numbers keep all digits, lists their order."""
    body = codec.encode_record(record)
    form = codec.canonical(body)

    assert codec.decode_json(body, numbers="decimal") == record

    assert form == codec.canonical(codec.encode_record(turned(record)))
    assert codec.decode_json(form, numbers="decimal") == codec.decode_json(body, numbers="decimal")


def test_a_body_of_nothing_but_escapes_is_looked_through_at_once() -> None:
    """A malformed answer that unpacks to megabytes of them held up the loop for a minute."""
    body = b'"' + rb"\\" * (1 << 20)
    assert codec.without_halves(body) == body
    assert codec.without_halves(rb"\\\ud800 \\ud800 \ud83d\ude00 \uDE00") == (
        rb"\\\ufffd \\ud800 \ud83d\ude00 \ufffd"
    )
