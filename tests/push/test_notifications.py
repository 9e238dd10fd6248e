"""Promises about notifications: an end is seen when it is told, and nothing but that changes."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import AsyncIterator, Callable, Iterable
from contextlib import asynccontextmanager

import pytest
from aiohttp import web
from hypothesis import given, settings
from hypothesis import strategies as st

from integration_sdk import Client, OutcomeStatus, PushRequest, errors
from integration_sdk.sandbox import Faults, Sandbox
from integration_sdk.testing import run_virtual
from integration_sdk.webhooks import Receiver
from tests.support.budget_support import answering
from tests.support.sandbox_support import DELIVERY
from tests.support.virtual_service import Service

# Hints


async def found(
    service: Service, ends: list[float], told: Iterable[tuple[float, int]], *, notified: bool = True
) -> list[float]:
    """Return when a client sees each push end, of which it is *told* at times, by number."""
    service.takes = lambda record: ends[record["number"]]
    keys = [service.add(record={"number": number}).key for number in range(len(ends))]
    loop, at = asyncio.get_running_loop(), [0.0] * len(ends)

    async with service.client(notified=notified, retry=None) as client:

        async def wait(number: int) -> None:
            await client.wait(keys[number], company_id="c-0")
            at[number] = loop.time()

        for when, number in told:
            loop.call_later(when, client.notify, keys[number])
        await asyncio.gather(*(wait(number) for number in range(len(ends))))
    return at


def told_of(ends: list[float]) -> list[tuple[float, int]]:
    return [(end + 0.01, number) for number, end in enumerate(ends)]


@settings(max_examples=20)
@given(
    st.lists(st.floats(0.1, 5_000), min_size=1, max_size=8),
    st.sets(st.integers(0, 7)),
    st.lists(st.tuples(st.floats(0, 5_000), st.integers(0, 7)), max_size=8),
)
def test_a_push_whose_notification_is_lost_is_found(
    ends: list[float], lost: set[int], forged: list[tuple[float, int]]
) -> None:
    """Told of some ends and of things that are not so, every end is found; the others in a second.

    A notification that is not so may just have brought a poll forward.
    """
    true = [notice for notice in told_of(ends) if notice[1] not in lost]
    false = [(at, number) for at, number in forged if number < len(ends)]

    at = run_virtual(found(Service(), ends, true + false))

    for number, end in enumerate(ends):
        assert at[number] <= (2 * end + 120 if number in lost else end + 1.2)


def test_a_push_that_is_notified_costs_a_poll_or_two() -> None:
    """Where ends are notified, a push of a minute or two costs a third of its polls."""
    polls = []
    for notified in (True, False):
        services = [Service() for _ in range(6)]
        for number, service in enumerate(services):
            ends = [60.0 + 10 * number]
            told = told_of(ends) if notified else []
            run_virtual(found(service, ends, told, notified=notified))
        polls.append(sum(len(service.log) for service in services))

    assert polls[0] <= 0.4 * polls[1]


@pytest.mark.virtual_time
async def test_a_notification_during_a_poll_is_not_lost() -> None:
    """One that comes while its push is read leads to another poll, a second later."""
    (at,) = await found(Service(faults=[answering(seconds=3.0)]), [100.0], [(98.5, 0), (100.01, 0)])

    assert at == pytest.approx(98.5 + 3.0 + 1.0 + 3.0, abs=0.1)


# A day with a sandbox that notifies, a receiver and a coordinator

SECRET = "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw"
PUSHES = 24


@asynccontextmanager
async def receiving(sandbox: Sandbox, notify: Callable[[str], object]) -> AsyncIterator[None]:
    """A web service of somebody who mounts the receiver, and has subscribed."""
    receiver = Receiver(notify, secrets=SECRET, clock=sandbox.clock.now)

    async def pushes(request: web.Request) -> web.Response:
        return web.Response(status=receiver.receive(request.headers, await request.read()))

    app = web.Application()
    app.router.add_post("/pushes", pushes)
    runner = web.AppRunner(app)
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", 0).start()
    url = f"http://127.0.0.1:{runner.addresses[0][1]}/pushes"
    sandbox.subscribe(url, style="signed", secret=SECRET)
    yield
    await runner.cleanup()


async def a_day(
    fault: Callable[[Faults], object], *, notified: bool = False
) -> tuple[list[float], Counter[str]]:
    """Push records that take a minute or two, some of them bad; every outcome is as it should be.

    Return by how much each came after the push's end, and how often each key was hinted.
    """
    delays, hints = list[float](), Counter[str]()
    async with (
        Sandbox(companies=4, invoices=0, unlinked=0, push_seconds=(60, 120)) as sandbox,
        Client(sandbox.api_key, sandbox.base_url, timeout=None, notified=notified) as client,
        client.coordinator() as pushes,
    ):

        def notify(key: str) -> None:
            hints[key] += 1
            pushes.notify(key)

        async def records() -> AsyncIterator[PushRequest]:
            for number in range(PUSHES):
                company = sandbox.companies[number % 4]
                record = DELIVERY if number % 7 else {}
                yield PushRequest(company.id, company.connections[0].id, "invoices", record)
                await asyncio.sleep(2)

        async with receiving(sandbox, notify):
            fault(sandbox.faults)
            async for outcome in pushes.run(records()):
                is_good = bool(outcome.request.record)
                assert outcome.status is OutcomeStatus[["FAILED", "SUCCESS"][is_good]]
                operation = outcome.result() if is_good else outcome.operation
                assert operation
                assert operation.completed_on_utc
                delays.append(sandbox.clock.now() - operation.completed_on_utc.timestamp())
    assert len(delays) == PUSHES
    return delays, hints


@pytest.mark.virtual_time
async def test_an_end_is_seen_when_it_is_told() -> None:
    """At once, and a notification that comes twice is one."""
    delays, hints = await a_day(lambda faults: faults.notifications(copies=2))

    assert sum(delays) / PUSHES < 0.02
    assert list(hints.values()) == [1] * PUSHES


@pytest.mark.virtual_time
@pytest.mark.parametrize(
    ("fault", "hinted"),
    [
        (lambda faults: faults.notifications(copies=0, probability=0.5), True),
        (lambda faults: faults.notifications(delay=(0, 300)), True),
        (lambda faults: faults.notifications(forge="secret", copies=0), False),
        (lambda faults: faults.notifications(forge="key"), True),
        (lambda faults: faults.notifications(forge="early"), True),
    ],
    ids=["half lost", "late", "signed by another", "about no push", "long before the end"],
)
async def test_bad_notifications_change_no_result(
    fault: Callable[[Faults], object], *, hinted: bool
) -> None:
    """Every push has the outcome it has without, and what is not signed wakes nobody."""
    delays, hints = await a_day(fault, notified=True)

    assert min(delays) > -0.001
    assert bool(hints) is hinted


@pytest.mark.virtual_time
async def test_another_thread_may_notify() -> None:
    """Such as the consumer of a queue: the push is polled by the client's own loop, once more."""
    service = Service(lambda _: 3600.0)
    async with service.client() as client:
        key = service.add().key
        waiting = asyncio.create_task(client.wait(key, company_id="c-0"))
        await asyncio.sleep(600)
        polled = service.count()
        await asyncio.to_thread(client.notify, key)
        await asyncio.sleep(1)

        assert service.count() == polled + 1
        assert (await waiting).status == "Success"


async def test_a_notification_of_no_key_fails_where_it_is_given() -> None:
    """Not later, in the loop, where no caller would hear of it."""
    async with Service(lambda _: 1.0).client() as client, client.coordinator() as pushes:
        for notify in (client.notify, pushes.notify):
            with pytest.raises(errors.ConfigurationError, match="key must be a str, not None"):
                notify(None)  # type: ignore[arg-type]
