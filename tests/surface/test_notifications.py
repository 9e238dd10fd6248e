"""Notifications: read in any spelling, believed only with proof, taken once."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from integration_sdk._notifications import (
    Inbox,
    Notification,
    is_authorized,
    is_signed,
    read_notification,
    signer,
)
from integration_sdk.errors import MalformedResponse

SECRET = "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw"
OTHER_SECRET = "whsec_b3RoZXI="
VECTOR = {
    "webhook-id": "msg_p5jXN8AQM9LWM0D4loKWxJek",
    "webhook-timestamp": "1614265330",
    "webhook-signature": "v1,g0hM9SsE+OTPJTGt/tmIKtSyZlE3uFJELVlNIOLJ1OE=",
}
VECTOR_BODY = b'{"test": 2432232314}'
VECTOR_TIME = 1614265330.0

RULE_ERA = {
    "AlertId": "alert-1",
    "ClientId": "client",
    "CompanyId": "company",
    "DataConnectionId": "connection",
    "RuleId": "rule",
    "RuleType": "Push Operation Status Changed()",
    "Message": "invoices triggered notification",
    "Data": {"dataType": "invoices", "status": "Success", "pushOperationKey": "key-1"},
}
TODAY = {
    "id": "event-1",
    "eventType": "invoices.write.successful",
    "generatedDate": "2026-01-01T00:00:00Z",
    "payload": {
        "id": "key-1",
        "status": "Success",
        "type": "Create",
        "referenceCompany": {"id": "company", "name": "Toft"},
        "connectionId": "connection",
    },
}


def signed(body: bytes, *, message_id: str = "m", at: int = 1000) -> dict[str, str]:
    return {
        "webhook-id": message_id,
        "webhook-timestamp": str(at),
        "webhook-signature": signer(SECRET)(message_id, at, body),
    }


def respelt(value: Any, spell: Callable[[str], str]) -> Any:
    """Return *value* with every key spelt anew."""
    if isinstance(value, dict):
        return {spell(key): respelt(item, spell) for key, item in value.items()}
    return value


def bytes_of(value: object) -> bytes:
    return json.dumps(value).encode()


# ---- reading ----


@pytest.mark.parametrize("spell", [str, str.lower, str.upper, str.swapcase, str.capitalize])
@pytest.mark.parametrize(("shape", "message_id"), [(RULE_ERA, "alert-1"), (TODAY, "event-1")])
def test_both_shapes_read_the_same_in_any_case(
    shape: object, message_id: str, spell: Callable[[str], str]
) -> None:
    """Old and new envelope give the same facts, however their keys are spelt."""
    assert read_notification(bytes_of(respelt(shape, spell))) == Notification(
        key="key-1",
        company_id="company",
        status="Success",
        data_type="invoices",
        connection_id="connection",
        id=message_id,
    )


@pytest.mark.parametrize(
    "about_something_else",
    [
        {},
        {**TODAY, "eventType": "invoices.read.completed"},
        {**TODAY, "payload": None},
        {**TODAY, "payload": {"id": 17}},
        {**TODAY, "payload": {"id": "k" * 201}},
        {**RULE_ERA, "Data": {"dataType": "invoices"}},
        {**RULE_ERA, "Data": ["pushOperationKey"]},
        {**RULE_ERA, "Data": {"pushOperationKey": ""}},
    ],
)
def test_what_names_no_push_is_no_error(about_something_else: object) -> None:
    """Events of other kinds, and odd members, are read as being about no push."""
    assert read_notification(bytes_of(about_something_else)) is None


def test_only_the_key_is_needed() -> None:
    """A notification that holds nothing but the key still wakes that push."""
    body = bytes_of({"data": {"pushOperationKey": "key-1"}, "companyId": 5})

    assert read_notification(body) == Notification(key="key-1")


@pytest.mark.parametrize("body", [b"", b"{", b"[]", b"null", b'"key"', b"\xff{}", b"[" * 100_000])
def test_what_is_no_object_is_refused(body: bytes) -> None:
    """Bodies that are no JSON object raise one known error, however deep or broken."""
    with pytest.raises(MalformedResponse):
        read_notification(body)


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(),
    lambda inner: (
        st.lists(inner, max_size=4)
        | st.dictionaries(
            st.sampled_from(["data", "Data", "payload", "pushOperationKey", "id", "eventType"])
            | st.text(),
            inner,
            max_size=4,
        )
    ),
)


@given(st.binary() | JSON.map(bytes_of))
def test_any_body_is_read_or_refused(body: bytes) -> None:
    """No body whatever raises anything but the one known error."""
    try:
        notification = read_notification(body)
    except MalformedResponse:
        return
    assert notification is None or 0 < len(notification.key) <= 200


# ---- believing ----


def test_the_published_test_vector_is_believed() -> None:
    """The signature that Standard Webhooks publishes for its example verifies."""
    assert is_signed(VECTOR, VECTOR_BODY, [signer(SECRET)], now=VECTOR_TIME, tolerance=300)


@pytest.mark.parametrize(
    ("header", "value"),
    [
        ("webhook-id", "msg_other"),
        ("webhook-id", ""),
        ("webhook-id", "\udcff"),
        ("webhook-timestamp", "1614265331"),
        ("webhook-timestamp", ""),
        ("webhook-timestamp", "-1614265330"),
        ("webhook-timestamp", "1614265330.0"),
        ("webhook-timestamp", "١٦١٤٢٦٥٣٣٠"),  # digits, but not ASCII ones
        ("webhook-timestamp", "9" * 4000),
        ("webhook-signature", ""),
        ("webhook-signature", "v1"),
        ("webhook-signature", "v1,"),
        ("webhook-signature", "v1a,g0hM9SsE+OTPJTGt/tmIKtSyZlE3uFJELVlNIOLJ1OE="),
        ("webhook-signature", "g0hM9SsE+OTPJTGt/tmIKtSyZlE3uFJELVlNIOLJ1OE="),
        ("webhook-signature", "\udcff, \x00 v1,é"),
    ],
)
def test_a_changed_header_is_not_believed(header: str, value: str) -> None:
    """Any other id, time or signature fails, and no oddity raises."""
    headers = {**VECTOR, header: value}

    assert not is_signed(headers, VECTOR_BODY, [signer(SECRET)], now=VECTOR_TIME, tolerance=300)


@pytest.mark.parametrize("missing", VECTOR)
def test_a_missing_header_is_not_believed(missing: str) -> None:
    """All three headers are needed."""
    headers = {name: value for name, value in VECTOR.items() if name != missing}

    assert not is_signed(headers, VECTOR_BODY, [signer(SECRET)], now=VECTOR_TIME, tolerance=300)


def test_a_delivery_without_an_id_is_not_believed() -> None:
    """A signature over an empty id proves nothing: repetitions could not be told."""
    headers = signed(b"{}", message_id="")

    assert not is_signed(headers, b"{}", [signer(SECRET)], now=1000, tolerance=300)


def test_an_id_with_a_dot_is_not_believed() -> None:
    """The signed text is ``id.timestamp.body``: a dot in the id shifts its parts."""
    genuine = signed(b"2000.{}", message_id="m", at=1000)
    shifted = {**genuine, "webhook-id": "m.1000", "webhook-timestamp": "2000"}

    assert is_signed(genuine, b"2000.{}", [signer(SECRET)], now=1000, tolerance=300)
    assert not is_signed(shifted, b"{}", [signer(SECRET)], now=2000, tolerance=300)


@given(st.binary().filter(lambda body: body != VECTOR_BODY))
def test_no_other_body_is_believed(body: bytes) -> None:
    """A signature holds for the bytes it was made for and no others."""
    assert not is_signed(VECTOR, body, [signer(SECRET)], now=VECTOR_TIME, tolerance=300)


@given(st.dictionaries(st.sampled_from([*VECTOR, "authorization"]), st.text(), max_size=4))
def test_made_up_headers_are_not_believed(headers: dict[str, str]) -> None:
    """Headers made without the secret prove nothing and raise nothing."""
    assert not is_signed(headers, b"{}", [signer(SECRET)], now=0, tolerance=1e12)
    assert not is_authorized(headers, ["the shared value"])


@pytest.mark.parametrize(
    ("off", "believed"), [(-301, False), (-300, True), (0, True), (300, True), (301, False)]
)
def test_a_signature_holds_for_five_minutes(off: int, believed: bool) -> None:
    """Up to the tolerance, early or late, a timestamp is accepted."""
    assert (
        is_signed(VECTOR, VECTOR_BODY, [signer(SECRET)], now=VECTOR_TIME + off, tolerance=300)
        is believed
    )


def test_secrets_can_be_rotated() -> None:
    """One agreeing pair is enough: several secrets here, several signatures there."""
    ours = [signer(OTHER_SECRET), signer(SECRET)]
    theirs = {**VECTOR, "webhook-signature": "v1,b2xk " + VECTOR["webhook-signature"]}

    assert is_signed(theirs, VECTOR_BODY, ours, now=VECTOR_TIME, tolerance=300)
    assert not is_signed(theirs, VECTOR_BODY, ours[:1], now=VECTOR_TIME, tolerance=300)


@pytest.mark.parametrize(
    ("header", "times_signed"),
    [
        (" ".join(["v1,AAAA"] * 4_000), 2),
        (" ".join(["v1,AAAA"] * 9) + " " + VECTOR["webhook-signature"], 2),
        (" ".join("a" * 4_000), 0),
        ("v1a,AAAA", 0),
        ("", 0),
    ],
)
def test_many_signatures_cost_no_more_than_one(header: str, times_signed: int) -> None:
    """The body is signed once for each secret, and only if there is something to compare."""
    signings: list[bytes] = []

    def counted(message_id: str, sent: int, body: bytes) -> str:
        signings.append(body)
        return signer(SECRET)(message_id, sent, body)

    headers = {**VECTOR, "webhook-signature": header}
    is_signed(headers, VECTOR_BODY, [counted, counted], now=VECTOR_TIME, tolerance=300)

    assert len(signings) == times_signed


@pytest.mark.parametrize(("before", "believed"), [(9, True), (10, False)])
def test_only_the_first_signatures_are_looked_at(before: int, believed: bool) -> None:
    """Ten are more than any rotation needs; signatures of other kinds do not count."""
    ours = VECTOR["webhook-signature"]
    header = " ".join(["v1a,other"] * 20 + ["v1,AAAA"] * before + [ours])
    headers = {**VECTOR, "webhook-signature": header}

    assert (
        is_signed(headers, VECTOR_BODY, [signer(SECRET)], now=VECTOR_TIME, tolerance=300)
        is believed
    )


@pytest.mark.parametrize(
    ("given_value", "believed"),
    [("Bearer old", True), ("Bearer new", True), ("Bearer", False), ("", False), ("\udcff", False)],
)
def test_a_shared_value_must_agree_entirely(given_value: str, believed: bool) -> None:
    """Any one of the shared values proves the sender; nothing else does."""
    shared = ["Bearer old", "Bearer new"]

    assert is_authorized({"authorization": given_value}, shared) is believed
    assert not is_authorized({}, shared)


# ---- judging ----


def test_either_proof_is_enough() -> None:
    """With both kinds set up, a delivery needs one of them."""
    inbox = Inbox([signer(SECRET)], ["Bearer x"])
    body = bytes_of({**RULE_ERA, "AlertId": None})

    assert inbox.judge({"authorization": "Bearer x"}, body, now=1000).status == 204
    assert inbox.judge(signed(body), body, now=1000).status == 204
    assert inbox.judge({}, body, now=1000).status == 401


def test_an_unproven_body_is_not_even_read() -> None:
    """Without proof the answer is 401, whatever the body."""
    assert Inbox([signer(SECRET)]).judge({}, b"{", now=1000).status == 401


def test_a_repetition_wakes_nobody() -> None:
    """A delivery with an id that was taken is accepted and not passed on again."""
    inbox = Inbox([signer(SECRET)])
    body = bytes_of(TODAY)

    first, again = (inbox.judge(signed(body), body, now=1000) for _ in range(2))

    assert first.notification is not None
    assert (again.status, again.notification) == (204, None)


def test_a_signed_repetition_is_known_by_its_header() -> None:
    """A new delivery id is a new notification, even if the event's own id repeats."""
    inbox = Inbox([signer(SECRET)])
    body = bytes_of(TODAY)

    verdicts = [inbox.judge(signed(body, message_id=i), body, now=1000) for i in ("a", "b", "a")]

    assert [verdict.notification is not None for verdict in verdicts] == [True, True, False]


def test_an_unsigned_header_names_no_repetition() -> None:
    """Without a signature the body's own id counts, not a header that anybody can set."""
    inbox = Inbox(shared=["x"])
    headers = {"authorization": "x", "webhook-id": "same"}
    bodies = [bytes_of({**RULE_ERA, "AlertId": f"alert-{n % 2}"}) for n in range(4)]

    passed_on = [inbox.judge(headers, body, now=0).notification is not None for body in bodies]

    assert passed_on == [True, True, False, False]


def test_a_forgery_does_not_use_up_an_id() -> None:
    """A refused delivery leaves its id free for the real one."""
    inbox = Inbox([signer(SECRET)])
    body = bytes_of(TODAY)
    forged = {**signed(body), "webhook-signature": "v1,AAAA"}

    assert inbox.judge(forged, body, now=1000).status == 401
    assert inbox.judge(signed(body), body, now=1000).notification is not None


@given(st.lists(st.integers(0, 30), max_size=200), st.integers(1, 10))
def test_only_the_latest_ids_are_kept(ids: list[int], remembers: int) -> None:
    """Memory is bounded, and an id among the last *remembers* new ones is never passed on twice."""
    inbox = Inbox(remembers=remembers)
    kept: list[int] = []
    for number in ids:
        body = bytes_of({**RULE_ERA, "AlertId": str(number)})
        passed_on = inbox.judge({}, body, now=0).notification is not None
        assert passed_on is (number not in kept)
        kept = [*kept, number][-remembers:] if passed_on else kept


def test_secrets_are_not_shown() -> None:
    """No repr holds what a sender must know."""
    assert "hush" not in repr(Inbox([signer(SECRET)], ["hush"]))
