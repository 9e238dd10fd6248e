"""Bytes to values: strict where it matters, tolerant where the document is silent."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta, timezone
from decimal import Decimal
from typing import Any

import attrs
import cattrs.preconf.json
import msgspec
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from integration_sdk._records import codec, shapes
from integration_sdk.errors import InvalidRecord, MalformedResponse
from integration_sdk.models import (
    ErrorBody,
    ListPage,
    PropertyDescription,
    PushOperation,
    PushStatus,
)

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
plain_json = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text() | st.floats(allow_nan=False),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3),
    max_leaves=10,
)


def test_every_field_of_a_push_operation_is_read() -> None:
    """Each row of "Push operation" has its place, dates aware and in UTC."""
    operation = shapes.read_operation(OPERATION)

    assert operation.key == OPERATION["pushOperationKey"]
    assert (operation.company_id, operation.data_connection_id) == ("c1", "d1")
    assert operation.data_type == "invoices"
    assert operation.status is PushStatus.PENDING
    assert not operation.is_final
    assert operation.requested_on_utc == datetime(2022, 3, 4, 5, 6, 7, tzinfo=UTC)
    assert operation.completed_on_utc is None
    assert operation.data == {}
    assert operation.timeout_in_minutes == 60
    assert operation.extra == {}


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


def test_a_page_can_be_stored_and_read_back_as_json() -> None:
    """With what its items are read into, or plain."""
    page = ListPage(results=[{"id": "1"}], page_number=1, page_size=100, total_results=1)

    assert msgspec.json.decode(msgspec.json.encode(page), type=ListPage[dict[str, str]]) == page


def test_an_operation_made_by_hand_has_the_status_that_the_service_would_send() -> None:
    """In tests of one's own, say, where nobody gives ``raw_status``."""
    made = PushOperation(push_operation_key="k", company_id="c", status=PushStatus.TIMED_OUT)

    assert made.raw_status == "TimedOut"


@pytest.mark.parametrize("spelling", ["dataConnectionId", "dataConnectionKey"])
def test_both_spellings_of_the_connection_are_one_field(spelling: str) -> None:
    """The document and the published schemas name the connection differently."""
    given_ = {k: v for k, v in OPERATION.items() if k != "dataConnectionId"} | {spelling: "d9"}

    assert shapes.read_operation(given_).data_connection_id == "d9"


def test_connection_is_read_where_its_other_spelling_is_null() -> None:
    """A null ``dataConnectionId`` does not hide the ``dataConnectionKey`` beside it."""
    read = shapes.read_operation(OPERATION | {"dataConnectionId": None, "dataConnectionKey": "d9"})

    assert read.data_connection_id == "d9"


def test_unknown_status_is_kept_and_is_not_final() -> None:
    """A status that appears one day must not break those who poll."""
    operation = shapes.read_operation({**OPERATION, "status": "Queued"})

    assert operation.status is PushStatus.UNKNOWN
    assert operation.raw_status == "Queued"
    assert not operation.is_final


@given(st.dictionaries(st.text(min_size=1).filter(lambda n: n not in OPERATION), plain_json))
@example({"extra": {"ours": 1}})
def test_unknown_fields_are_kept(unknown: dict[str, Any]) -> None:
    """What the document does not name reaches the caller in ``extra``."""
    unknown.pop("rawStatus", None)
    ours = {"dataConnectionKey", "statusCode", "errorMessage", "changes"}
    unknown = {name: value for name, value in unknown.items() if name not in ours}

    assert shapes.read_operation({**OPERATION, **unknown}).extra == unknown


@given(plain_json)
def test_any_validation_member_is_readable(validation: Any) -> None:
    """The document leaves its inside open, so no shape of it may lose an operation."""
    operation = shapes.read_operation({**OPERATION, "validation": validation})

    assert operation.key == OPERATION["pushOperationKey"]


def test_validation_that_fits_is_read_item_by_item() -> None:
    """Errors and warnings carry item, message and validator; either part may be null."""
    error = {"itemId": "amount", "message": "must be positive", "validatorName": "Amount"}
    operation = shapes.read_operation(
        {**OPERATION, "validation": {"errors": [error, "odd"], "warnings": None}}
    )

    assert operation.validation is not None
    first, second = operation.validation.errors
    assert (first.item_id, first.message, first.validator_name) == tuple(error.values())
    assert second.message == "odd"
    assert str(first) == "amount: must be positive"
    assert operation.validation.warnings == ()


@pytest.mark.parametrize(
    "change",
    [
        {"pushOperationKey": None},
        {"pushOperationKey": 7},
        {"companyId": None},
        {"status": None},
        {"status": True},
        {"requestedOnUtc": 1646370367},
        {"timeoutInMinutes": True},
        {"data": "text"},
    ],
)
def test_operation_that_is_none_is_refused(change: dict[str, Any]) -> None:
    """A wrong type is an error, never a guess: no "None" as a key, no True as 1."""
    with pytest.raises(MalformedResponse):
        shapes.read_operation({**OPERATION, **change})


@pytest.mark.parametrize(
    "odd", [{"statusCode": "Accepted"}, {"errorMessage": {"text": "no"}}, {"changes": [None]}]
)
def test_what_the_document_does_not_show_loses_no_push(odd: dict[str, Any]) -> None:
    """An assumed member that looks different is kept as it came, and so is the push's key."""
    operation = shapes.read_operation({**OPERATION, "statusCode": 202, "ours": 1, **odd})

    assert operation.key == OPERATION["pushOperationKey"]
    assert operation.extra == {"ours": 1, **odd}
    assert operation.status_code == (None if "statusCode" in odd else 202)


@pytest.mark.parametrize("value", [None, [], "text", 3])
def test_operation_must_be_an_object(value: Any) -> None:
    """An answer that is no object is told as such."""
    with pytest.raises(MalformedResponse, match="object"):
        shapes.read_operation(value)


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


def test_fractions_of_seven_digits_are_read() -> None:
    """The platform writes ticks; what is beyond microseconds is cut."""
    assert codec.parse_utc("2022-01-01T00:00:00.1234567Z").microsecond == 123456


def test_every_field_of_an_error_body_is_read() -> None:
    """Each row of "Error body" has its place."""
    body = shapes.read_error_body(codec.encode_value(ERROR))

    assert isinstance(body, ErrorBody)
    assert (body.status_code, body.service, body.correlation_id) == (402, "ClientApi", "7f3a")
    assert (body.can_be_retried, body.detailed_error_code) == ("Unknown", 0)
    assert body.validation is not None
    assert body.validation.errors[0].validator_name == "CreateCompany"


@pytest.mark.parametrize(
    "text",
    [
        b"",
        b"<html>502</html>",
        b"[]",
        b"{}",
        b'{"type": "about:blank", "title": "Bad Gateway", "status": 502}',
        b'{"correlationId": "x"}',
        b'{"statusCode": 503, "correlationId": null}',
        b'{"statusCode": 503, "correlationId": ""}',
        b'{"statusCode": 503, "correlationId": 5}',
        b"\xff\xfe",
    ],
)
def test_proxy_pages_are_no_error_body(text: bytes) -> None:
    """Only an object with a code and an error, or one of them and a correlation id, is one."""
    assert shapes.read_error_body(text) is None
    assert not shapes.is_services_own(text)


def test_an_error_body_without_correlation_id_is_read_but_proves_nothing() -> None:
    """A gateway may have written it: it says what went wrong, not that nothing was done."""
    text = b'{"statusCode": 503, "error": "Service unavailable"}'
    body = shapes.read_error_body(text)

    assert body is not None
    assert (body.status_code, body.error, body.correlation_id) == (503, "Service unavailable", None)
    assert not shapes.is_services_own(text)
    assert shapes.is_services_own(codec.encode_value(ERROR))


@pytest.mark.parametrize("odd", [{"canBeRetried": True}, {"statusCode": {"x": 1}}, {"service": 5}])
def test_an_error_body_with_an_odd_detail_is_the_services_own(odd: dict[str, Any]) -> None:
    """What proves who wrote it is the correlation id; the rest is kept as it came."""
    body = shapes.read_error_body(codec.encode_value({**ERROR, **odd}))

    assert body is not None
    assert (body.correlation_id, body.error) == ("7f3a", ERROR["error"])
    assert body.validation is not None  # what tells one 402 from another
    assert body.detailed_error_code == 0
    assert body.extra == odd


def test_an_error_body_that_was_cut_within_an_emoji_is_the_services_own() -> None:
    """It quotes a record, perhaps; half a character in that does not hide who wrote it."""
    body = shapes.read_error_body(b'{"correlationId":"7f3a","error":"\\ud83d, \\ud83d\\ude00"}')

    assert body is not None
    assert (body.correlation_id, body.error) == ("7f3a", "\ufffd, \N{GRINNING FACE}")


def test_options_without_end_are_malformed() -> None:
    """Not a RecursionError, which nobody expects of a service's answer."""
    described: dict[str, Any] = {"type": "Object"}
    for _ in range(2_000):
        described = {"type": "Object", "properties": {"a": described}}

    with pytest.raises(MalformedResponse, match="PropertyDescription"):
        shapes.structure(described, PropertyDescription)


def test_options_are_read_with_all_they_nest() -> None:
    """Properties nest, choices may lack a value, rules come in two kinds."""
    described = shapes.structure(
        {
            "type": "Object",
            "displayName": "Invoice",
            "required": True,
            "properties": {
                "lineItems": {
                    "type": "Array",
                    "properties": {"quantity": {"type": "Number", "required": True}},
                },
                "currency": {
                    "type": "String",
                    "options": [{"value": "GBP", "type": "String"}, {"displayName": "None"}],
                    "validation": {"warnings": [{"field": "Currency", "details": "3 letters"}]},
                },
            },
        },
        PropertyDescription,
    )

    assert described.properties["lineItems"].properties["quantity"].required
    assert [entry.value for entry in described.properties["currency"].options] == ["GBP", None]
    assert described.properties["currency"].validation.warnings[0].details == "3 letters"


# JSON


@pytest.mark.parametrize("text", [b"", b"{", b"\xff", b"NaN", b"{'a': 1}", b"[" * 1_000_000])
def test_unreadable_json_is_one_kind_of_error(text: bytes) -> None:
    """Whatever is wrong with a text, callers see MalformedResponse."""
    with pytest.raises(MalformedResponse):
        codec.decode_json(text)


@given(st.decimals(allow_nan=False, allow_infinity=False, min_value=-(10**12), max_value=10**12))
def test_money_survives_exactly(amount: Decimal) -> None:
    """A Decimal is written digit by digit and read back as the same number."""
    text = codec.encode_record({"amount": amount})
    back = codec.decode_json(text, exact=True)["amount"]

    assert Decimal(back) == amount


@pytest.mark.parametrize(
    "number", [float("nan"), float("inf"), Decimal("NaN"), Decimal("-Infinity")]
)
@pytest.mark.parametrize("wrap", [lambda n: {"a": n}, lambda n: {"a": [{"b": (n,)}]}])
def test_numbers_that_json_cannot_say_are_refused(number: Any, wrap: Any) -> None:
    """NaN would become null, and a record would lose its amount."""
    with pytest.raises(InvalidRecord, match=r"\$\.a"):
        codec.encode_record(wrap(number))


@pytest.mark.parametrize("odd", [object(), range(3), "half \ud800", {(1, 2): "a"}, 1j])
def test_what_json_cannot_say_is_named_by_its_path(odd: Any) -> None:
    """One field of fifty is found without a search."""
    record = {"fine": [1, {"a": None}], "lines": [Line(1.5), {"tax": {"code": odd}}]}

    with pytest.raises(InvalidRecord, match=r"at \$\.lines\[1\]\.tax\.code$"):
        codec.encode_record(record)


def test_a_record_without_an_end_is_refused() -> None:
    """One that holds itself, or is as deep, is named as what it is."""
    endless: dict[str, Any] = {}
    endless["again"] = endless

    with pytest.raises(InvalidRecord, match="nested too deeply, or contains itself"):
        codec.encode_record(endless)


@attrs.frozen
class Line:
    amount: float


def test_nan_is_found_inside_objects() -> None:
    """An attrs class hides its numbers no better than a dict."""
    with pytest.raises(InvalidRecord, match=r"\$\.lines\[0\]\.amount is nan"):
        codec.encode_record({"lines": [Line(float("nan"))]})
    with pytest.raises(InvalidRecord, match=r"\$\.amount is inf"):
        codec.encode_record(Line(float("inf")))


@attrs.frozen
class Invoice:
    number: str
    due: datetime


def test_records_may_be_objects_of_any_common_kind() -> None:
    """Attrs classes are records too; dates become ISO 8601."""
    record = Invoice("INV-1", datetime(2022, 1, 1, tzinfo=UTC))

    written = codec.decode_json(codec.encode_record(record))
    assert written == {"number": "INV-1", "due": "2022-01-01T00:00:00Z"}


@pytest.mark.parametrize("record", [None, 3, "text", [], [{"a": 1}], object(), {"a": object()}])
def test_record_that_is_no_object_is_refused(record: Any) -> None:
    """The message says what would be right, and nothing can have been sent."""
    with pytest.raises(InvalidRecord):
        codec.encode_record(record)


JSON = st.recursive(
    st.none()
    | st.booleans()
    | st.integers()
    | st.decimals(allow_nan=False, allow_infinity=False)
    | st.text("ab\x00é"),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text("ab"), inner, max_size=3),
    max_leaves=12,
)


def turned(value: Any) -> Any:
    """Return *value* with the members of each object the other way round."""
    if isinstance(value, dict):
        return {name: turned(value[name]) for name in reversed(value)}
    return [turned(one) for one in value] if isinstance(value, list) else value


@given(st.dictionaries(st.text("ab"), JSON, max_size=4))
def test_a_record_has_one_form_whatever_the_order_of_its_members(record: dict[str, Any]) -> None:
    """Nothing else is lost: numbers keep their values, lists their order."""
    body = codec.encode_record(record)
    form = codec.canonical(body)

    assert form == codec.canonical(codec.encode_record(turned(record)))
    assert codec.decode_json(form, exact=True) == codec.decode_json(body, exact=True)


def test_a_body_of_nothing_but_escapes_is_looked_through_at_once() -> None:
    """A malformed answer that unpacks to megabytes of them held up the loop for a minute."""
    body = b'"' + rb"\\" * (1 << 20)
    assert codec.without_halves(body) == body
    assert codec.without_halves(rb"\\\ud800 \\ud800 \ud83d\ude00 \uDE00") == (
        rb"\\\ufffd \\ud800 \ud83d\ude00 \ufffd"
    )
