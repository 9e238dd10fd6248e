"""Notifications that go wrong on command, and how telling begins and ends."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from aiohttp import web
from standardwebhooks import Webhook, WebhookVerificationError

from integration_sdk.sandbox import Sandbox
from tests.notification_support import KEY, SECRET, listening, telling
from tests.sandbox_support import DELIVERY, serving, until

pytestmark = pytest.mark.virtual_time


# ---------------------------------------------------------------------- faults


async def test_lost() -> None:
    """Pushes made while notifications are lost are never told of; later ones are."""
    async with telling() as (http, ear):
        http.sandbox.faults.lose_notifications(times=1)
        await http.push(1)
        told = await http.push(1)
        await asyncio.sleep(3600)

    assert ear.keys == [told["pushOperationKey"]]


async def test_doubled() -> None:
    """A doubled notification comes twice with one id."""
    async with telling(subscribe={"style": "signed"}) as (http, ear):
        http.sandbox.faults.double_notifications()
        await http.push(1)
        await asyncio.sleep(1)

    assert len(ear.heard) == 2
    assert len({headers["webhook-id"] for _, headers, _ in ear.heard}) == 1


async def test_late_and_reordered() -> None:
    """Late notifications leave after the end of their push and may overtake each other."""
    async with telling() as (http, ear):
        delays = iter([300.0, 100.0])
        http.sandbox.faults.delay_notifications(lambda: next(delays))
        slow, fast = await http.push(), await http.push()
        began = asyncio.get_running_loop().time()
        await asyncio.sleep(3600)

    assert ear.keys == [fast["pushOperationKey"], slow["pushOperationKey"]]
    assert [round(at - began) for at, _, _ in ear.heard] == [160, 360]


@pytest.mark.parametrize("how", ["signature", "secret"])
async def test_forged_by_somebody_without_the_secret(how: Any) -> None:
    """It comes before the true one, with its id, and proves nothing in either style."""
    subscribe = {"style": "signed", "secret": SECRET}
    async with listening() as ruled, telling(subscribe=subscribe) as (http, signed):
        http.sandbox.subscribe(ruled.url, authorization=KEY)
        http.sandbox.faults.forge_notifications(how)
        await http.push(1)
        await asyncio.sleep(1)
        marks = {(told.forged, told.status) for told in http.sandbox.notifications}

    proofs = {headers["webhook-signature"]: (headers, sent) for _, headers, sent in signed.heard}
    believed = 0
    for headers, sent in proofs.values():
        try:
            Webhook(SECRET).verify(sent.decode(), headers)
        except WebhookVerificationError:
            continue
        believed += 1
    assert (len(proofs), believed) == (2, 1)
    assert sorted(headers["authorization"] for _, headers, _ in ruled.heard) == [
        "Bearer forged",
        KEY,
    ]
    assert marks == {(how, 204), (None, 204)}


async def test_forged_with_a_proof() -> None:
    """ "key" names a push that is not there; "early" claims Success of one that then fails."""
    async with telling(subscribe={"authorization": KEY}) as (http, ear):
        http.sandbox.faults.forge_notifications("key", instead=True, times=1)
        await http.push(1)
        http.sandbox.faults.forge_notifications("early")
        began = asyncio.get_running_loop().time()
        failing = (await http.post(f"{http.at()}/push/invoices", {})).body
        await asyncio.sleep(3600)

    key = failing["pushOperationKey"]
    known = {push.key for push in http.sandbox.pushes}
    told = [(body["Data"]["pushOperationKey"], body["Data"]["status"]) for body in ear.bodies]
    assert told[0][0] not in known
    assert told[1:] == [(key, "Success"), (key, "Failed")]
    assert [round(at - began) for at, _, _ in ear.heard[1:]] == [0, 60]
    assert all(headers["authorization"] == KEY for _, headers, _ in ear.heard)


# ---------------------------------------------------------------------- asking and ending


@pytest.mark.parametrize(
    ("url", "options", "message"),
    [
        ("ftp://127.0.0.1/", {}, "http:// or https://"),
        ("127.0.0.1:80", {}, "http:// or https://"),
        (5, {}, "url cannot be 5"),
        ("http://x/", {"style": "loud"}, "style cannot be 'loud': Expected one of rule, signed"),
        ("http://x/", {"authorization": "a\nb"}, "authorization cannot be"),
        ("http://x/", {"style": "signed", "secret": 5}, "secret cannot be 5"),
        ("http://x/", {"secret": SECRET}, 'secret is for style="signed"'),
        ("http://x/", {"style": "signed", "secret": "hunter2"}, "whsec_<base64>"),
    ],
)
def test_odd_subscriptions_are_refused(url: str, options: Any, message: str) -> None:
    """A subscription that makes no sense is refused with a reason."""
    with pytest.raises(ValueError, match=message):
        Sandbox(invoices=0).subscribe(url, **options)


async def test_no_timer_without_a_subscriber() -> None:
    """Pushes set no timer where nobody is told, nor once the last has unsubscribed."""
    async with listening() as ear, serving(push_seconds=(60, 60)) as http:
        await http.push()
        alarm = http.sandbox._notifier._alarm
        before = alarm._timer
        to = http.sandbox.subscribe(ear.url)
        during = alarm._timer
        http.sandbox.unsubscribe(to)

        assert (before, alarm._timer) == (None, None)
        assert during is not None


async def test_stopping_ends_what_is_under_way() -> None:
    """A subscriber that never answers does not hold up the end; no task and no socket stay."""
    asked, released = asyncio.Event(), asyncio.Event()

    async def hang(_: web.Request) -> web.Response:
        asked.set()
        await released.wait()
        return web.Response()

    app = web.Application()
    app.router.add_post("/", hang)
    runner = web.AppRunner(app, shutdown_timeout=0.1)
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", 0).start()
    async with serving() as http:
        http.sandbox.subscribe(f"http://127.0.0.1:{runner.addresses[0][1]}/")
        await http.push(1)
        await asked.wait()
    left = [task for task in asyncio.all_tasks() if "Notifier" in str(task)]
    released.set()
    await runner.cleanup()

    assert left == []
    assert http.sandbox.notifications == []


async def test_nothing_is_told_while_it_is_stopped() -> None:
    """Its clock rests, and so does what was due."""
    async with telling() as (http, ear):
        await http.push()
        await http.sandbox.stop()
        assert http.sandbox._notifier._alarm._timer is None
        await asyncio.sleep(3600)
        assert ear.heard == []


async def test_a_subscription_outlives_a_restart() -> None:
    """Who subscribed before the start, or before another, is told."""
    async with listening() as ear:
        sandbox = Sandbox(companies=1, invoices=0)
        sandbox.subscribe(ear.url)
        at_once = sandbox.companies[0].connections[1]
        for _ in range(2):
            async with sandbox:
                sandbox.push(at_once, "invoices", DELIVERY)
                await asyncio.sleep(1)

        assert ear.keys == [push.key for push in sandbox.pushes]


async def test_what_was_told_is_bounded() -> None:
    """notifications keeps as many attempts as `remember` says."""
    async with telling(remember=3) as (http, ear):
        for _ in range(5):
            await http.push(1)
        await until(lambda: len(ear.heard) == 5)
        await asyncio.sleep(1)

        assert [told.key for told in http.sandbox.notifications] == ear.keys[2:]
