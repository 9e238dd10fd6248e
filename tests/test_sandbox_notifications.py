"""The sandbox as the sender of "Push status changed": shapes, proofs, times, retries.

Source: "Events", and what the service publishes of it. Nothing of the SDK's receiver is used.
"""

from __future__ import annotations

import asyncio
import json
from datetime import UTC, datetime
from typing import Any

import pytest
from standardwebhooks import Webhook, WebhookVerificationError

from integration_sdk.sandbox._notices import sign
from tests.notification_support import KEY, SECRET, listening, telling
from tests.sandbox_support import DELIVERY, serving

pytestmark = pytest.mark.virtual_time


# ---------------------------------------------------------------------- what is sent, and when


async def test_the_rule_shape() -> None:
    """ "rule": the PascalCase envelope, with the Authorization of the subscriber's choosing."""
    async with telling(subscribe={"authorization": KEY}) as (http, ear):
        operation = await http.push()
        await asyncio.sleep(61)

    ((_, headers, _),) = ear.heard
    (body,) = ear.bodies
    assert (headers["authorization"], headers["content-type"]) == (KEY, "application/json")
    assert body.keys() == {
        *("AlertId", "ClientId", "CompanyId", "DataConnectionId", "RuleId", "RuleType"),
        *("Message", "Data"),
    }
    assert body["RuleType"] == "Push Operation Status Changed()"
    assert (body["CompanyId"], body["DataConnectionId"]) == (http.first.id, http.connection().id)
    assert body["Data"] == {
        "dataType": "invoices",
        "status": "Success",
        "pushOperationKey": operation["pushOperationKey"],
    }


@pytest.mark.parametrize(
    ("record", "status", "event"),
    [
        (DELIVERY, "Success", "invoices.write.successful"),
        ({}, "Failed", "invoices.write.unsuccessful"),
    ],
)
async def test_the_signed_shape(record: Any, status: str, event: str) -> None:
    """ "signed": today's event, which the package standardwebhooks verifies."""
    starts = datetime.now(UTC)
    async with telling(subscribe={"style": "signed"}, starts=starts) as (http, ear):
        operation = (await http.post(f"{http.at()}/push/invoices", record)).body
        await asyncio.sleep(61)
        (told,) = http.sandbox.notifications

    ((_, headers, sent),) = ear.heard
    (body,) = ear.bodies
    with pytest.raises(WebhookVerificationError):
        Webhook(SECRET).verify(sent.decode(), headers)
    assert body["eventType"] == event
    assert body["id"] == headers["webhook-id"]
    assert body["payload"]["id"] == operation["pushOperationKey"] == told.key
    assert (body["payload"]["status"], body["payload"]["type"]) == (status, "Create")
    assert body["payload"]["referenceCompany"] == {"id": http.first.id}
    assert body["payload"]["connectionId"] == http.connection().id
    assert (told.status, told.attempt, told.body) == (204, 0, sent)


async def test_the_signature_is_standard() -> None:
    """A published example gives its signature, and what is sent passes the package's check."""
    body = b'{"test": 2432232314}'
    made = sign(SECRET, "msg_p5jXN8AQM9LWM0D4loKWxJek", "1614265330", body)
    async with telling(subscribe={"style": "signed", "secret": SECRET}) as (http, ear):
        await http.push(1)
        await asyncio.sleep(1)

    ((_, headers, sent),) = ear.heard
    assert made == "v1,g0hM9SsE+OTPJTGt/tmIKtSyZlE3uFJELVlNIOLJ1OE="
    assert Webhook(SECRET).verify(sent.decode(), headers) == json.loads(sent)


async def test_each_end_is_told_at_its_time() -> None:
    """Success, Failed and TimedOut are told when they come, though nobody asks; Pending never."""
    async with telling() as (http, ear):
        began = asyncio.get_running_loop().time()
        await http.push(1)  # at once
        await http.push(0)  # after a minute
        await http.push(2, timeoutInMinutes=5)  # offline, until its deadline
        await http.push(2)  # offline for good
        await asyncio.sleep(3600)

    times = [round(at - began) for at, _, _ in ear.heard]
    assert times == [0, 60, 300]
    assert [body["Data"]["status"] for body in ear.bodies] == ["Success", "Success", "TimedOut"]


async def test_it_follows_the_service_clock() -> None:
    """clock.advance() brings the ends that it passes."""
    async with telling() as (http, ear):
        first = await http.push()
        http.sandbox.clock.advance(seconds=10)
        second = await http.push()
        http.sandbox.clock.advance(hours=3)
        await asyncio.sleep(1)

    keys = [operation["pushOperationKey"] for operation in (first, second)]
    assert sorted(ear.keys) == sorted(keys)


async def test_whoever_comes_late_hears_the_rest() -> None:
    """A subscriber hears of pushes that end from now on, whenever they were made."""
    async with listening() as ear, serving(push_seconds=(60, 60)) as http:
        await http.push()
        await asyncio.sleep(30)
        later = await http.push()
        await asyncio.sleep(45)
        http.sandbox.subscribe(ear.url)
        await asyncio.sleep(61)

    assert ear.keys == [later["pushOperationKey"]]


async def test_a_platform_that_comes_back_is_told_of() -> None:
    """What an offline platform works off on its return is told as well."""
    async with telling() as (http, ear):
        waiting = await http.push(2)
        await asyncio.sleep(3600)
        http.sandbox.bring_online(http.connection(2))
        await asyncio.sleep(61)

    assert ear.keys == [waiting["pushOperationKey"]]


async def test_every_subscriber_is_told() -> None:
    """Several subscribers, each in its own shape; one who leaves hears no more."""
    async with listening() as old, telling(subscribe={"style": "signed"}) as (http, new):
        leaving = http.sandbox.subscribe(old.url)
        first = await http.push(1)
        await asyncio.sleep(1)
        http.sandbox.unsubscribe(leaving)
        second = await http.push(1)
        await asyncio.sleep(1)

    keys = [operation["pushOperationKey"] for operation in (first, second)]
    assert (old.keys, new.keys) == (keys[:1], keys)


# ---------------------------------------------------------------------- again


async def test_three_retries_in_two_minutes() -> None:
    """What is not answered 2xx comes again, the same id and body with a fresh proof; then never."""
    async with telling(lambda _: 500, subscribe={"style": "signed"}) as (http, ear):
        await http.push(1)
        await asyncio.sleep(3600)
        tried = [(told.status, told.attempt) for told in http.sandbox.notifications]

    times = [at - ear.heard[0][0] for at, _, _ in ear.heard]
    proofs = [headers["webhook-signature"] for _, headers, _ in ear.heard]
    assert times == pytest.approx([0, 10, 40, 120], abs=0.01)
    assert tried == [(500, 0), (500, 1), (500, 2), (500, 3)]
    assert len({headers["webhook-id"] for _, headers, _ in ear.heard}) == 1
    assert len({body for _, _, body in ear.heard}) == 1
    assert len(set(proofs)) == 4


async def test_a_retry_that_is_heard_is_the_last() -> None:
    """Once acknowledged, a notification does not come again."""
    async with telling(lambda n: 503 if n < 3 else 202) as (http, _):
        await http.push(1)
        await asyncio.sleep(3600)

        assert [told.status for told in http.sandbox.notifications] == [503, 503, 202]


async def test_nobody_there_is_no_error() -> None:
    """An address where nobody listens is tried like any other; the service goes on."""
    async with serving() as http:
        http.sandbox.subscribe("http://127.0.0.1:9/pushes")
        operation = await http.push(1)
        await asyncio.sleep(3600)

        assert [told.status for told in http.sandbox.notifications] == [0, 0, 0, 0]
        assert (await http.pushed(operation))["status"] == "Success"
