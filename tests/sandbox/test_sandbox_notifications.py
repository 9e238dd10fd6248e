"""The sandbox as the sender of "Push status changed": shapes, proofs, times, retries.

Source: "Events", and what the service publishes of it. Nothing of the SDK's receiver is used.
"""

from __future__ import annotations

import asyncio
from contextlib import suppress
from datetime import UTC, datetime
from typing import Any

import pytest
from standardwebhooks import Webhook, WebhookVerificationError

from integration_sdk.sandbox import Sandbox
from tests.support.notification_support import KEY, SECRET, listening, telling, told_key
from tests.support.sandbox_support import DELIVERY

pytestmark = pytest.mark.virtual_time


EVENTS = [
    (DELIVERY, "Success", "invoices.write.successful"),
    ({}, "Failed", "invoices.write.unsuccessful"),
]


@pytest.mark.parametrize(("record", "status", "event"), EVENTS)
async def test_an_end_is_told_in_both_shapes(record: Any, status: str, event: str) -> None:
    """ "rule": the PascalCase envelope, with the Authorization of the subscriber's choosing.

    "signed": today's event, which the package standardwebhooks verifies, by its secret only.
    """
    starts, subscribe = datetime.now(UTC), {"style": "signed", "secret": SECRET}
    async with (
        listening() as ruled,
        telling(subscribe=subscribe, starts=starts, push_seconds=(1, 1)) as (http, ear),
    ):
        http.sandbox.subscribe(ruled.url, authorization=KEY)
        key = (await http.post(f"{http.at()}/push/invoices", record)).body["pushOperationKey"]
        await asyncio.sleep(2)
        company, connection = http.first.id, http.connection().id
        told = {one.body: (one.key, one.status, one.attempt) for one in http.sandbox.notifications}

    ((_, headers, sent),), ((_, rule_headers, _),) = ear.heard, ruled.heard
    (body,), (rule,) = ear.bodies, ruled.bodies
    assert (rule_headers["authorization"], rule_headers["content-type"]) == (
        KEY,
        "application/json",
    )
    assert rule.keys() == {
        *("AlertId", "ClientId", "CompanyId", "DataConnectionId", "RuleId", "RuleType"),
        *("Message", "Data"),
    }
    assert rule["RuleType"] == "Push Operation Status Changed()"
    assert (rule["CompanyId"], rule["DataConnectionId"]) == (company, connection)
    assert rule["Data"] == {"dataType": "invoices", "status": status, "pushOperationKey": key}

    assert Webhook(SECRET).verify(sent.decode(), headers) == body
    with pytest.raises(WebhookVerificationError):
        Webhook("whsec_b3RoZXI=").verify(sent.decode(), headers)
    assert (body["eventType"], body["id"]) == (event, headers["webhook-id"])
    payload = body["payload"]
    assert (payload["id"], payload["status"], payload["type"]) == (key, status, "Create")
    assert payload["referenceCompany"] == {"id": company}
    assert payload["connectionId"] == connection
    assert told[sent] == (key, 204, 0)


LATE = [
    {"fault": "notifications", "delay": 300, "times": 1},
    {"fault": "notifications", "delay": 100, "skip": 1},
]
TOLD: list[tuple[str, list[int], list[dict[str, Any]], str, str]] = [
    # "2!5" pushes through connection 2 with a deadline of 5 minutes, "+60" advances the clock,
    # "on" brings the offline platform back. What is heard: number of the push, and after seconds.
    ("each end when it comes, Pending never", [], [], "1 0 2!5 2", "0:0 1:60 2:300"),
    ("the clock brings the ends that it passes", [], [], "0 +10 0 +9000", "0:0 1:0"),
    ("what an offline platform works off", [], [], "2 +3600 on", "0:60"),
    ("once acknowledged, never again", [503, 503, 202], [], "1", "0:0 0:10 0:40"),
    ("three retries in two minutes, then never", [500] * 9, [], "1", "0:0 0:10 0:40 0:120"),
    ("lost", [], [{"fault": "notifications", "copies": 0, "times": 1}], "1 1", "1:0"),
    ("twice", [], [{"fault": "notifications", "copies": 2}], "1", "0:0 0:0"),
    ("late, so one overtakes the other", [], [*LATE], "0 0", "1:160 0:360"),
]


@pytest.mark.parametrize(("_why", "answers", "faults", "script", "wanted"), TOLD)
async def test_what_is_told_when(
    _why: str, answers: list[int], faults: list[dict[str, Any]], script: str, wanted: str
) -> None:
    """Though nobody asks; every attempt has the id and body of its notification, proved anew."""
    status = [*answers, *[204] * 9]
    async with telling(lambda n: status[n - 1], subscribe={"style": "signed"}) as (http, ear):
        await http.post("/_page/faults", faults)
        began, keys = asyncio.get_running_loop().time(), []
        for word in script.split():
            if word == "on":
                http.sandbox.bring_online(http.connection(2))
            elif word.startswith("+"):
                http.sandbox.clock.advance(seconds=float(word))
            else:
                connection, _, minutes = word.partition("!")
                deadline = {"timeoutInMinutes": minutes} if minutes else {}
                operation = await http.push(int(connection), **deadline)
                keys.append(operation["pushOperationKey"])
        await asyncio.sleep(3600)
        heard = [
            f"{keys.index(key)}:{at - began:.0f}"
            for key, (at, _, _) in zip(ear.keys, ear.heard, strict=True)
        ]
        attempts = [told.status for told in http.sandbox.notifications]
        ends = {push.key: push.status for push in http.sandbox.pushes}

    assert sorted(heard) == sorted(wanted.split())
    assert heard == wanted.split() or len({each.split(":")[1] for each in heard}) == 1
    assert attempts == status[: len(heard)]
    assert all(body["payload"]["status"] == ends[told_key(body)] for body in ear.bodies)
    ids = {headers["webhook-id"] for _, headers, _ in ear.heard}
    assert len(ids) == len(set(ear.keys)) == len({body for _, _, body in ear.heard})
    moments = {(key, round(at)) for key, (at, _, _) in zip(ear.keys, ear.heard, strict=True)}
    assert len({headers["webhook-signature"] for _, headers, _ in ear.heard}) == len(moments)


FORGED: list[tuple[str, dict[str, Any], list[tuple[bool, str]]]] = [
    # Whether it names the push, and the status that it claims, in the order in which they come.
    ("secret", {}, [(True, "Failed"), (True, "Failed")]),
    ("key", {}, [(False, "Failed"), (True, "Failed")]),
    ("key", {"copies": 0}, [(False, "Failed")]),
    ("early", {}, [(True, "Success"), (True, "Failed")]),
]


@pytest.mark.parametrize(("how", "more", "wanted"), FORGED)
async def test_notifications_can_be_forged(
    how: Any, more: dict[str, Any], wanted: list[tuple[bool, str]]
) -> None:
    """Before the true one, or alone; only what lacks the secret fails its proof, in both styles."""
    starts, subscribe = datetime.now(UTC), {"style": "signed", "secret": SECRET}
    async with listening() as ruled, telling(subscribe=subscribe, starts=starts) as (http, ear):
        http.sandbox.subscribe(ruled.url, authorization=KEY)
        http.sandbox.faults.notifications(forge=how, **more)
        failing = (await http.post(f"{http.at()}/push/invoices", {})).body
        await asyncio.sleep(61)

    key = failing["pushOperationKey"]
    said = [(told_key(body) == key, body["payload"]["status"]) for body in ear.bodies]
    assert said == wanted
    believed = 0
    for _, headers, sent in ear.heard:
        with suppress(WebhookVerificationError):
            believed += bool(Webhook(SECRET).verify(sent.decode(), headers))
    assert believed == len(wanted) - (how == "secret")
    proofs = sorted(headers["authorization"] for _, headers, _ in ruled.heard)
    assert proofs == ["Bearer forged", KEY][how != "secret" :] + [KEY] * (believed - 1)


ODD: list[tuple[str, dict[str, Any], str]] = [
    ("ftp://127.0.0.1/", {}, "url cannot be 'ftp"),
    ("127.0.0.1:80", {}, "url cannot be"),
    ("http://x/", {"style": "loud"}, "style cannot be 'loud': Expected one of rule, signed"),
    ("http://x/", {"authorization": "a\nb"}, "authorization cannot be"),
    ("http://x/", {"secret": SECRET}, 'secret is for style="signed"'),
    ("http://x/", {"style": "signed", "secret": "hunter2"}, "secret cannot be 'hunter2'"),
]


@pytest.mark.parametrize(("url", "options", "message"), ODD)
def test_odd_subscriptions_are_refused(url: str, options: Any, message: str) -> None:
    """A subscription that makes no sense is refused with a reason."""
    with pytest.raises(ValueError, match=message):
        Sandbox(invoices=0).subscribe(url, **options)
