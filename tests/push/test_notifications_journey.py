"""A day with notifications: sandbox, network, receiver, client and coordinator together.

What notifications change is how soon an end is seen, and how few polls that takes. What they
must not change is anything else.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Any

import pytest
from aiohttp import web
from attrs import define, field

from integration_sdk import Client, OutcomeStatus, PushRequest
from integration_sdk.sandbox import Faults, Sandbox
from integration_sdk.webhooks import Receiver

pytestmark = pytest.mark.virtual_time

SECRET = "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw"
PUSHES = 60
RECORD = {
    "customerRef": {"id": "c-1"},
    "issueDate": "2024-03-01",
    "status": "Submitted",
    "lineItems": [{"unitAmount": 120.5, "quantity": 2}],
}


@define
class Day:
    """What came of a day's pushes.

    Args:
        results: Status of each push, by reference.
        delays: Seconds from the end of a push to its outcome.
        polls: Requests per push, beyond the one that pushed it.
        hints: How often each key was hinted.
    """

    results: dict[str, OutcomeStatus] = field(factory=dict)
    delays: list[float] = field(factory=list)
    polls: float = 0.0
    hints: Counter[str] = field(factory=Counter)

    @property
    def delay(self) -> float:
        """Seconds of delay, on average."""
        return sum(self.delays) / len(self.delays)


@asynccontextmanager
async def receiving(sandbox: Sandbox, notify: Callable[[str], object]) -> AsyncIterator[str]:
    """A web service of somebody who mounts the receiver, and its address."""
    receiver = Receiver(notify, secrets=SECRET, clock=sandbox.clock.now)

    async def pushes(request: web.Request) -> web.Response:
        return web.Response(status=receiver.receive(request.headers, await request.read()))

    app = web.Application()
    app.router.add_post("/pushes", pushes)
    runner = web.AppRunner(app)
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", 0).start()
    yield f"http://127.0.0.1:{runner.addresses[0][1]}/pushes"
    await runner.cleanup()


async def a_day(
    faults: Callable[[Faults], object] | None,
    *,
    companies: int = 4,
    notified: bool = False,
    listless: bool = False,
) -> Day:
    """Push records that take a minute or two, a seventh of them bad; None: no notifications.

    *listless*: the service has no list of pushes, so that each is read singly.
    """
    day = Day()
    async with (
        Sandbox(companies=companies, invoices=0, unlinked=0, push_seconds=(60, 120)) as sandbox,
        Client(sandbox.api_key, sandbox.base_url, timeout=None, notified=notified) as client,
        client.coordinator() as pushes,
    ):

        def notify(key: str) -> None:
            day.hints[key] += 1
            pushes.notify(key)

        async with receiving(sandbox, notify) as url:
            if listless:
                sandbox.faults.no_push_list()
            if faults is not None:
                sandbox.subscribe(url, style="signed", secret=SECRET)
                faults(sandbox.faults)
            async for outcome in pushes.run(records(sandbox)):
                assert outcome.operation is not None
                assert outcome.operation.completed_on_utc is not None
                ended = outcome.operation.completed_on_utc.timestamp()
                day.delays.append(sandbox.clock.now() - ended)
                day.results[str(outcome.request.reference)] = outcome.status
        day.polls = sandbox.count("GET", "/push") / PUSHES
        assert sorted(day.results) == sorted(str(number) for number in range(PUSHES))
    return day


async def records(sandbox: Sandbox) -> AsyncIterator[PushRequest]:
    companies = sandbox.companies
    for number in range(PUSHES):
        company = companies[number % len(companies)]
        record: dict[str, Any] = RECORD if number % 7 else {}
        connection = company.connections[0].id
        yield PushRequest(company.id, connection, "invoices", record, reference=str(number))
        await asyncio.sleep(2)


POLLED: dict[tuple[int, bool], Day] = {}
"""Days without notifications, which are alike: by number of companies and whether listless."""


async def a_polled_day(*, companies: int = 4, listless: bool = False) -> Day:
    setting = companies, listless
    if setting not in POLLED:
        POLLED[setting] = await a_day(None, companies=companies, listless=listless)
    return POLLED[setting]


def expected() -> dict[str, OutcomeStatus]:
    ends = OutcomeStatus.FAILED, OutcomeStatus.SUCCESS
    return {str(number): ends[number % 7 > 0] for number in range(PUSHES)}


@pytest.mark.parametrize("companies", [4, PUSHES], ids=["crowded", "one push a company"])
async def test_an_end_is_seen_when_it_is_told(companies: int) -> None:
    """Notified, a push's end is seen at once; that costs one look of its own at most."""
    polled = await a_polled_day(companies=companies)
    notified = await a_day(lambda faults: None, companies=companies)

    assert polled.results == notified.results == expected()
    assert len(notified.hints) == PUSHES
    assert notified.delay < 0.01 < 0.05 * polled.delay
    assert notified.polls < polled.polls + 1.3


async def test_notifications_save_more_than_half_of_the_polls() -> None:
    """Pushes that no list shows together cost less than half of the polls; ends no delay."""
    polled = await a_polled_day(companies=PUSHES)
    notified = await a_day(lambda faults: None, companies=PUSHES, notified=True)

    assert polled.results == notified.results == expected()
    assert notified.polls <= 0.45 * polled.polls
    assert notified.delay < 0.01


async def test_quiet_holds_where_pushes_are_read_singly() -> None:
    """Where there is no list, each push's own appointments wait for the notification, too."""
    polled = await a_polled_day(listless=True)
    notified = await a_day(lambda faults: None, notified=True, listless=True)

    assert polled.results == notified.results == expected()
    assert notified.polls <= 0.45 * polled.polls
    assert notified.delay < 0.01


async def test_lost_notifications_bring_polling_back() -> None:
    """A client that expects notifications in vain soon polls as one that does not."""
    polled = await a_polled_day()
    silent = await a_day(lambda faults: faults.notifications(copies=0), notified=True)

    assert silent.results == polled.results == expected()
    assert max(silent.delays) <= 60 + 0.5 * 120 + 1


@pytest.mark.parametrize("bulk", [False, True], ids=["client.wait", "submit(wait=)"])
async def test_a_short_wait_sees_an_end_that_is_not_told(*, bulk: bool) -> None:
    """Expected in vain, notifications cost a short wait some delay, and no push its outcome.

    Each such end counts: the waits that follow are as short as without notifications.
    """
    took: list[float] = []
    async with (
        Sandbox(companies=1, invoices=0, push_seconds=(3, 5)) as sandbox,
        Client(sandbox.api_key, sandbox.base_url, notified=True) as client,
        client.coordinator() as pushes,
    ):
        company = sandbox.companies[0]
        lane = company.id, company.connections[0].id, "invoices"
        books = client.company(company.id).connection(lane[1])
        for _ in range(8):
            began = sandbox.clock.now()
            if bulk:
                outcome = await (await pushes.submit(PushRequest(*lane, RECORD), wait=20))
                assert outcome.status is OutcomeStatus.SUCCESS
            else:
                operation = await client.wait(await books.push("invoices", RECORD), timeout=20)
                assert operation.status == "Success"
            took.append(sandbox.clock.now() - began)

    assert took[0] < 20
    assert max(took[5:]) < 7


@pytest.mark.parametrize(
    "fault",
    [
        lambda faults: faults.notifications(copies=0),
        lambda faults: faults.notifications(copies=0, probability=0.5),
        lambda faults: faults.notifications(copies=3),
        lambda faults: faults.notifications(delay=(0, 300)),
        lambda faults: faults.notifications(forge="secret", copies=0),
        lambda faults: faults.notifications(forge="secret"),
        lambda faults: faults.notifications(forge="key"),
        lambda faults: faults.notifications(forge="early"),
    ],
    ids=[
        *("all lost", "half lost", "tripled", "late and reordered"),
        *("unsigned", "signed by another", "about no push", "long before the end"),
    ],
)
async def test_bad_notifications_change_no_result(fault: Callable[[Faults], object]) -> None:
    """Lost, doubled, late, reordered or forged: every push has the outcome it has without."""
    day = await a_day(fault, notified=True)

    assert day.results == expected()
    assert min(day.delays) > -0.001


async def test_what_proves_nothing_wakes_nobody() -> None:
    """A forged signature never reaches notify, and a doubled notification does once."""
    forged = await a_day(lambda faults: faults.notifications(forge="secret", copies=0))
    doubled = await a_day(lambda faults: faults.notifications(copies=2))

    assert not forged.hints
    assert set(doubled.hints.values()) == {1}


async def test_bad_notifications_are_no_flood() -> None:
    """Copies, forgeries and claims that come too early cost a look each at the very most."""

    def everything(faults: Faults) -> None:
        faults.notifications(copies=5)
        faults.notifications(forge="early")
        faults.notifications(forge="key")

    polled = await a_polled_day()
    flooded = await a_day(everything)

    assert flooded.results == expected()
    assert flooded.polls < polled.polls + 2.3


async def test_a_single_waiter_is_woken() -> None:
    """client.notify ends client.wait as soon as the notification comes."""
    async with (
        Sandbox(companies=1, invoices=0, push_seconds=(3600, 3600)) as sandbox,
        Client(sandbox.api_key, sandbox.base_url, timeout=None) as client,
        receiving(sandbox, client.notify) as url,
    ):
        sandbox.subscribe(url, style="signed", secret=SECRET)
        company = sandbox.companies[0]
        books = client.company(company.id).connection(company.connections[0].id)
        operation = await client.wait(await books.push("invoices", RECORD))

        assert operation.status == "Success"
        assert operation.completed_on_utc is not None
        assert sandbox.clock.now() - operation.completed_on_utc.timestamp() < 0.01


async def test_another_thread_may_notify() -> None:
    """Such as the consumer of a queue: the push is polled by the client's own loop, once more."""
    async with (
        Sandbox(companies=1, invoices=0, push_seconds=(3600, 3600)) as sandbox,
        Client(sandbox.api_key, sandbox.base_url, timeout=None) as client,
    ):
        company = sandbox.companies[0]
        books = client.company(company.id).connection(company.connections[0].id)
        push = await books.push("invoices", RECORD)
        waiting = asyncio.create_task(client.wait(push))
        await asyncio.sleep(600)
        polled = len(sandbox.requests)
        await asyncio.to_thread(client.notify, push.key)
        await asyncio.sleep(1)

        assert len(sandbox.requests) == polled + 1
        assert (await waiting).status == "Success"
