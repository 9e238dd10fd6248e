"""Notifications: read in any spelling, believed only with proof, passed on once."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from aiohttp import web
from aiohttp.test_utils import TestClient, TestServer
from hypothesis import given
from hypothesis import strategies as st
from standardwebhooks import Webhook

from integration_sdk.errors import ConfigurationError
from integration_sdk.webhooks import LARGEST_BODY, MOST_IDS, Receiver

GUIDE = Path(__file__).parents[2] / "integration_sdk/docs/guides/notifications.md"
SECRET = "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw"
OTHER_SECRET = "whsec_b3RoZXI="
SHARED = "Bearer of-our-choosing"
NOW = 1614265330
# Published by Standard Webhooks as its test vector.
VECTOR = {
    "webhook-id": "msg_p5jXN8AQM9LWM0D4loKWxJek",
    "webhook-timestamp": "1614265330",
    "webhook-signature": "v1,g0hM9SsE+OTPJTGt/tmIKtSyZlE3uFJELVlNIOLJ1OE=",
}
VECTOR_BODY = b'{"test": 2432232314}'
RULE_ERA = {
    "AlertId": "alert-1",
    "CompanyId": "company",
    "RuleType": "Push Operation Status Changed()",
    "Data": {"dataType": "invoices", "status": "Success", "pushOperationKey": "key-1"},
}
TODAY = {
    "id": "event-1",
    "eventType": "invoices.write.successful",
    "payload": {"id": "key-1", "status": "Success", "referenceCompany": {"id": "company"}},
}


def bytes_of(value: object) -> bytes:
    return json.dumps(value).encode()


def respelt(value: Any, spell: Callable[[str], str]) -> Any:
    """Return *value* with every key spelt anew."""
    if isinstance(value, dict):
        return {spell(key): respelt(item, spell) for key, item in value.items()}
    return value


def signed(body: bytes, message_id: str = "m-1", *, prefix: str = "Webhook") -> dict[str, str]:
    signature = Webhook(SECRET).sign(message_id, datetime.fromtimestamp(NOW, UTC), body.decode())
    return {
        f"{prefix}-Id": message_id,
        f"{prefix}-Timestamp": str(NOW),
        f"{prefix}-Signature": signature,
    }


@pytest.fixture
def woken() -> list[str]:
    return []


@pytest.fixture
def receiver(woken: list[str]) -> Receiver:
    return Receiver(woken.append, secrets=SECRET, authorization=[SHARED], clock=lambda: NOW)


# Reading


@pytest.mark.parametrize("spell", [str, str.lower, str.swapcase])
@pytest.mark.parametrize("shape", [RULE_ERA, TODAY])
def test_both_shapes_read_the_same_in_any_case(
    receiver: Receiver, woken: list[str], shape: object, spell: Callable[[str], str]
) -> None:
    """Old and new envelope name the push and themselves, however their keys are spelt."""
    for _ in range(2):
        body = bytes_of(respelt(shape, spell))
        assert receiver.receive({"Authorization": SHARED}, body) == 204
    assert woken == ["key-1"]


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
def test_what_names_no_push_is_accepted_and_ignored(
    receiver: Receiver, woken: list[str], about_something_else: object
) -> None:
    """Events of other kinds get a 2xx, so that the sender does not repeat them."""
    assert receiver.receive({"Authorization": SHARED}, bytes_of(about_something_else)) == 204
    assert woken == []


NAMES_IN_USE = st.sampled_from(["data", "payload", "pushOperationKey", "id", "eventType"])
JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(),
    lambda inner: (
        st.lists(inner, max_size=4) | st.dictionaries(NAMES_IN_USE | st.text(), inner, max_size=4)
    ),
)


@given(st.binary() | JSON.map(bytes_of))
def test_any_body_is_read_or_refused(body: bytes) -> None:
    """No body raises anything."""
    woken: list[str] = []
    assert Receiver(woken.append, allow_unverified=True).receive({}, body) in {204, 400}
    assert all(0 < len(key) <= 200 for key in woken)


# Believing


CHANGED: dict[str, list[str]] = {
    "webhook-id": ["msg_other", "", "\udcff"],
    "webhook-timestamp": [
        *("1614265331", "", "1614265330.0", "9" * 4000),
        "١٦١٤٢٦٥٣٣٠",  # digits, but not ASCII ones
    ],
    "webhook-signature": [
        *("", "v1a,g0hM9SsE+OTPJTGt/tmIKtSyZlE3uFJELVlNIOLJ1OE=", "\udcff, \x00 v1,é"),
        "g0hM9SsE+OTPJTGt/tmIKtSyZlE3uFJELVlNIOLJ1OE=",
    ],
}


@pytest.mark.parametrize(
    ("header", "value"), [(name, value) for name, values in CHANGED.items() for value in values]
)
def test_a_changed_header_is_not_believed(receiver: Receiver, header: str, value: str) -> None:
    """Any other id, time or signature fails, a missing header too, and no oddity raises."""
    missing = {name: text for name, text in VECTOR.items() if name != header}

    assert receiver.receive({**VECTOR, header: value}, VECTOR_BODY) == 401
    assert receiver.receive(missing, VECTOR_BODY) == 401


def test_an_id_with_a_dot_is_not_believed(receiver: Receiver) -> None:
    """The signed text is ``id.timestamp.body``: a dot in the id shifts its parts."""
    body = f"{NOW}.{{}}".encode()
    shifted = signed(body, "m") | {"Webhook-Id": f"m.{NOW}", "Webhook-Timestamp": str(NOW)}

    assert receiver.receive(signed(body, "m"), body) == 400  # believed, and no JSON
    assert receiver.receive(shifted, b"{}") == 401


@pytest.mark.parametrize(
    ("secrets", "off", "status"),
    [
        *((SECRET, 0, 204), ([OTHER_SECRET, SECRET], 0, 204), ([OTHER_SECRET], 0, 401)),
        *((SECRET, -301, 401), (SECRET, -300, 204), (SECRET, 300, 204), (SECRET, 301, 401)),
    ],
)
def test_the_published_signature_is_believed(secrets: Any, off: int, status: int) -> None:
    """For five minutes, early or late; of several secrets and signatures one pair is enough."""
    theirs = {**VECTOR, "webhook-signature": "v1,b2xk " + VECTOR["webhook-signature"]}
    receiver = Receiver(print, secrets=secrets, clock=lambda: NOW + off)

    assert receiver.receive(theirs, VECTOR_BODY) == status


# Answering


@pytest.mark.parametrize("prefix", ["Webhook", "svix", "WEBHOOK"])
def test_a_signed_notification_wakes_its_push_once(
    receiver: Receiver, woken: list[str], prefix: str
) -> None:
    """A repeated delivery gets its 2xx and is not passed on; a forged one uses up no id."""
    body = bytes_of(TODAY)
    forged = {**signed(body, "b", prefix=prefix), f"{prefix}-Signature": "v1,AAAA"}
    assert receiver.receive(forged, body) == 401

    answers = [receiver.receive(signed(body, i, prefix=prefix), body) for i in ("a", "b", "a")]

    assert answers == [204] * 3
    assert woken == ["key-1"] * 2


def test_a_shared_authorization_wakes_its_push(receiver: Receiver, woken: list[str]) -> None:
    """Without a signature the body's own id counts, not a header that anybody can set."""
    headers = {"authorization": SHARED, "webhook-id": "same"}
    for number in (0, 1, 0, 1):
        assert receiver.receive(headers, bytes_of({**RULE_ERA, "AlertId": f"{number}"})) == 204
    assert woken == ["key-1"] * 2


@pytest.mark.parametrize(
    ("headers", "body", "status"),
    [
        ({}, bytes_of(TODAY), 401),
        ({}, b"{", 401),
        ({"Authorization": "Bearer of-another"}, bytes_of(TODAY), 401),
        ({"Authorization": "\udcff"}, bytes_of(TODAY), 401),
        (signed(bytes_of(TODAY)), bytes_of(RULE_ERA), 401),
        ({"Authorization": SHARED}, b"not json", 400),
        ({"Authorization": SHARED}, b"\xff\xfe", 400),
        ({"Authorization": SHARED}, b"[" * 9_000, 400),
        ({"Authorization": SHARED}, bytes_of(TODAY).ljust(LARGEST_BODY + 1), 400),
    ],
)
def test_bad_input_wakes_nobody(
    receiver: Receiver, woken: list[str], headers: dict[str, str], body: bytes, status: int
) -> None:
    """Forged, broken and oversized deliveries are refused; unproven ones are not even read."""
    assert receiver.receive(headers, body) == status
    assert woken == []


def test_only_the_latest_ids_are_kept(woken: list[str]) -> None:
    """Memory is bounded: the oldest id is forgotten first."""
    receiver = Receiver(woken.append, allow_unverified=True)
    for number in (*range(MOST_IDS + 1), 1, 0):
        receiver.receive({}, bytes_of({**RULE_ERA, "AlertId": str(number)}))

    assert len(woken) == MOST_IDS + 2


def test_any_thread_may_deliver(woken: list[str]) -> None:
    """Each notification wakes its push once, though the oldest ids are forgotten meanwhile."""
    receiver = Receiver(woken.append, authorization=SHARED)
    numbers = [n for n in range(2 * MOST_IDS) for _ in range(2)]
    bodies = [bytes_of({**RULE_ERA, "AlertId": f"alert-{n}"}) for n in numbers]
    usual = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    try:
        with ThreadPoolExecutor(4) as threads:
            given = partial(receiver.receive, {"Authorization": SHARED})
            assert {*threads.map(given, bodies)} == {204}
    finally:
        sys.setswitchinterval(usual)
    assert len(woken) == 2 * MOST_IDS


def test_a_notify_that_raises_does_not_harm_the_answer(caplog: pytest.LogCaptureFixture) -> None:
    """The sender gets its 2xx; the log has the error."""

    def broken(key: str) -> None:
        raise RuntimeError(f"closed before {key}")

    assert Receiver(broken, allow_unverified=True).receive({}, bytes_of(TODAY)) == 204
    assert "closed before key-1" in caplog.text


# Set up


async def wake(key: str) -> None:
    raise AssertionError(key)


@pytest.mark.parametrize(
    "options",
    [
        *({}, {"secrets": ""}, {"authorization": ["Bearer x", ""]}, {"secrets": None}),
        *({"secrets": SECRET, "authorization": None}, {"secrets": SECRET.encode()}),
        *({"secrets": odd} for odd in ("whsec_not base64", "whsec_", "whsec_AAAAA")),
        *({"secrets": SECRET, "allow_unverified": True}, {"allow_unverified": "no"}),
        *({"notify": odd, "secrets": SECRET} for odd in (wake, partial(wake, "key-1"), None)),
    ],
)
def test_a_receiver_that_could_not_work_is_refused(options: dict[str, Any]) -> None:
    """Nothing to check by, an empty value (an unset variable), an odd secret, a coroutine."""
    with pytest.raises(ConfigurationError) as caught:
        Receiver(**{"notify": print, **options})

    assert ("plain function" in str(caught.value)) == ("notify" in options)
    assert "not base64" not in str(caught.value)


def recipe(framework: str, receiver: Receiver) -> Any:
    """Return the application that the guide writes for *framework*."""
    code = GUIDE.read_text().split(f"In {framework}:")[1].split("```")[1]
    names: dict[str, Any] = {"receiver": receiver}
    exec(code.removeprefix("python"), names)  # noqa: S102 (our own page)
    return names["app"]


async def call_asgi(app: Any, headers: dict[str, str], body: bytes) -> Any:
    """Send one request as an ASGI server would and return the status."""
    sent: list[Any] = []

    async def receive() -> dict[str, Any]:
        return {"type": "http.request", "body": body, "more_body": False}

    async def send(message: Any) -> None:
        sent.append(message)

    raw = [(name.lower().encode(), value.encode()) for name, value in headers.items()]
    scope = {"type": "http", "method": "POST", "path": "/pushes", "query_string": b""}
    await app(scope | {"headers": raw}, receive, send)
    return sent[0]["status"]


async def call_aiohttp(app: web.Application, headers: dict[str, str], body: bytes) -> int:
    async with TestClient(TestServer(app)) as client:
        return (await client.post("/pushes", headers=headers, data=body)).status


@pytest.mark.parametrize("framework", ["aiohttp.web", "FastAPI", "Starlette"])
async def test_a_recipe_of_the_guide_works(
    framework: str, receiver: Receiver, woken: list[str]
) -> None:
    """It answers as the receiver says and passes the key on."""
    body = bytes_of(TODAY)
    app = recipe(framework, receiver)
    call = call_aiohttp if framework == "aiohttp.web" else call_asgi
    assert await call(app, signed(body), body) == 204
    assert await call(app, {}, body) == 401
    assert woken == ["key-1"]
