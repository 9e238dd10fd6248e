"""Every fault that a budget is kept under, the ways to an outcome, and the budgets themselves."""

from __future__ import annotations

import asyncio
import random
from collections import defaultdict
from collections.abc import Awaitable, Callable, Iterable, Iterator, Sequence
from contextlib import suppress
from contextvars import Context
from dataclasses import dataclass, field, replace
from itertools import pairwise
from math import inf, log
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, TypeVarTuple

from integration_sdk import Client, PushRequest
from integration_sdk.errors import IntegrationError
from integration_sdk.testing import VirtualTimeLoop
from tests.support.push_support import lagging, requests
from tests.support.virtual_service import Answer, Asked, Fault, Held, Proceed, Service, refusal

Ts = TypeVarTuple("Ts")
READS = ("get", "list")
ALL = "all companies"
HOUR = 3600.0
MIDDLE = 5.0
"""Seconds at which what happens in the middle happens."""


# Faults: each makes a fresh one, since some count or draw


def reads(answer: Callable[[Asked], Answer | None], *kinds: str) -> Fault:
    """Answer reads of pushes with *answer*, where it has one."""

    def act(asked: Asked, proceed: Proceed) -> Answer:
        said = answer(asked) if asked.kind in (kinds or READS) else None
        return said or proceed()

    return act


def listed(pick: Callable[[random.Random, list[Held]], list[Held]]) -> Fault:
    """Have lists show only what is picked."""
    chance = random.Random(4)

    def act(asked: Asked, proceed: Proceed) -> Answer:
        asked.rows.append(lambda rows: pick(chance, rows))
        return proceed()

    return act


def lossy(chance: random.Random, rows: list[Held]) -> list[Held]:
    """Leave out three rows in ten, others each time."""
    return [one for one in rows if chance.random() < 0.7]


def small_pages(asked: Asked, proceed: Proceed) -> Answer:
    """Show three rows on a page."""
    asked.largest = 3
    return proceed()


def unseen(seconds: float) -> Fault:
    """New pushes are not found for *seconds*, neither singly nor in a list."""

    def act(asked: Asked, proceed: Proceed) -> Answer:
        asked.hidden = max(asked.hidden, seconds)
        held = asked.held
        is_new = held is not None and asked.at < held.began + seconds
        return refusal(404) if is_new else proceed()

    return act


def half(answer: Answer) -> Fault:
    """Answer every other read so."""
    chance = random.Random(3)
    return reads(lambda asked: answer if chance.random() < 0.5 else None)


def young(_: random.Random, rows: list[Held]) -> list[Held]:
    """Keep what is not older than 20 seconds."""
    now = asyncio.get_running_loop().time()
    return [one for one in rows if now - one.began < 20]


def bucket(per_second: float, *, told: bool) -> Fault:
    """Refuse with 429 what is more than so many reads a second; *told* says until when."""
    tokens, at = per_second, 0.0

    def answer(asked: Asked) -> Answer | None:
        nonlocal tokens, at
        tokens, at = min(per_second, tokens + (asked.at - at) * per_second), asked.at
        if tokens >= 1:
            tokens -= 1
            return None
        return refusal(429, Retry_After="1") if told else refusal(429)

    return reads(answer)


def answering(**facts: Any) -> Fault:
    """Answer reads as ever, but so many seconds later, or cut after so many bytes."""

    def act(asked: Asked, proceed: Proceed) -> Answer:
        answer = proceed()
        return replace(answer, **facts) if asked.kind in READS else answer

    return act


def from_then_on(answer: Answer) -> Fault:
    """Answer everything so, beginning in the middle."""
    return lambda asked, proceed: answer if asked.at >= MIDDLE else proceed()


@dataclass(frozen=True)
class Trouble:
    """What goes wrong.

    fault: Makes what the service does.
    ends: Whether pushes end; otherwise they are Pending for ever.
    tells: Seconds between two notifications, of one push after another; none is true unless late.
    late: Seconds by which the true notification of an end comes late; None for never.
    """

    fault: Callable[[], Fault] | None = None
    ends: bool = True
    tells: float | None = None
    late: float | None = None
    notified: bool = False


GONE = b'{"pushOperationKey":'
TROUBLES = {
    "nothing": Trouble(),
    "new pushes 404 for a while": Trouble(lambda: unseen(20.0)),
    "new pushes 404 for ever": Trouble(lambda: unseen(inf)),
    "list hides new pushes": Trouble(lambda: lagging(hidden=20.0)),
    "list shows old states": Trouble(lambda: lagging(late=60.0)),
    "list lossy": Trouble(lambda: listed(lossy)),
    "list in small pages": Trouble(lambda: small_pages),
    "list shuffled": Trouble(lambda: listed(lambda dice, rows: dice.sample(rows, len(rows)))),
    "list loses old pushes": Trouble(lambda: listed(young)),
    "list empty": Trouble(lambda: listed(lambda *_: [])),
    "list 404": Trouble(lambda: reads(lambda _: refusal(404), "list")),
    "list 405": Trouble(lambda: reads(lambda _: refusal(405), "list")),
    "list unreadable": Trouble(lambda: reads(lambda _: Answer(body=GONE), "list")),
    "single 404": Trouble(lambda: reads(lambda _: refusal(404), "get")),
    "single 500": Trouble(lambda: reads(lambda _: refusal(500), "get")),
    "429 told": Trouble(lambda: bucket(2.0, told=True)),
    "429 untold": Trouble(lambda: bucket(2.0, told=False)),
    "429 for ever": Trouble(lambda: reads(lambda _: refusal(429))),
    "500": Trouble(lambda: reads(lambda _: refusal(500))),
    "500 half": Trouble(lambda: half(refusal(500))),
    "502": Trouble(lambda: reads(lambda _: Answer(502, b"<html>"))),
    "503": Trouble(lambda: reads(lambda _: refusal(503))),
    "503 at once": Trouble(lambda: reads(lambda _: refusal(503, Retry_After="0"))),
    "409": Trouble(lambda: reads(lambda _: refusal(409))),
    "cut": Trouble(lambda: answering(cut=0)),
    "cut in the middle": Trouble(lambda: answering(cut=10)),
    "slow": Trouble(lambda: answering(seconds=8.0)),
    "silent": Trouble(lambda: answering(seconds=1000.0)),
    "unreadable": Trouble(lambda: reads(lambda _: Answer(body=GONE))),
    "no object": Trouble(lambda: reads(lambda _: Answer(body=b"[]"))),
    "Pending": Trouble(ends=False),
    "401 in the middle": Trouble(lambda: from_then_on(refusal(401))),
    "402 in the middle": Trouble(lambda: from_then_on(refusal(402))),
    "403 in the middle": Trouble(lambda: from_then_on(refusal(403))),
    "deleted in the middle": Trouble(lambda: from_then_on(refusal(404))),
    "notifications lost": Trouble(notified=True),
    "notifications late": Trouble(late=20.0, notified=True),
    "notifications false": Trouble(tells=7.0),
    "notifications flood": Trouble(tells=0.05),
}


# Ways to an outcome


@dataclass
class Run:
    """Pushes under way: *count* of them in so many *companies*, by this process since *began*."""

    service: Service
    count: int
    companies: int
    journal: Path
    options: dict[str, Any] = field(default_factory=dict)
    client: Client | None = None
    began: float = 0.0

    def requests(self) -> list[PushRequest]:
        return requests(self.count, companies=self.companies)


Way = Callable[[Run], Awaitable[None]]


async def wait_for_keys(run: Run) -> None:
    """``client.wait(key)`` for pushes of an earlier program."""
    held = [run.service.add(one.company_id, record=one.record) for one in run.requests()]
    async with run.service.client(**run.options) as run.client:
        await settled(run.client.wait(one.key, company_id=one.company) for one in held)


async def push_and_wait(run: Run) -> None:
    """``books.push``, then ``client.wait``."""
    async with run.service.client(**run.options) as run.client:
        client = run.client

        async def one(request: PushRequest) -> None:
            books = client.company(request.company_id).connection(request.connection_id)
            await client.wait(await books.push(request.data_type, request.record))

        await settled(one(request) for request in run.requests())


async def coordinate(run: Run) -> None:
    """A coordinator without a journal."""
    async with (
        run.service.client(**run.options) as run.client,
        run.client.coordinator(max_open=run.count) as pushes,
    ):
        await settled([await pushes.submit(request) for request in run.requests()])


async def reopen(run: Run) -> None:
    """A coordinator that an earlier run has left its open pushes."""
    async with (
        run.service.client() as client,
        client.coordinator(journal=run.journal, max_open=run.count, leave="detach") as pushes,
    ):
        for request in run.requests():
            await pushes.submit(request)
    run.began = asyncio.get_running_loop().time()
    async with (
        run.service.client(**run.options) as run.client,
        run.client.coordinator(journal=run.journal, max_open=run.count),
    ):
        """Leaving waits for what is open."""


WAYS = (wait_for_keys, push_and_wait, coordinate, reopen)


async def settled(work: Iterable[Awaitable[object]]) -> None:
    await asyncio.gather(*work, return_exceptions=True)


async def carry_out(run: Run, way: Way, troubles: Iterable[Trouble], seconds: float) -> None:
    """Have pushes of half a minute settle under *troubles*, for so many seconds."""
    troubles = list(troubles)
    takes = 30.0 if all(one.ends for one in troubles) else inf
    run.service.takes = lambda record: takes
    run.service.faults = [one.fault() for one in troubles if one.fault is not None]
    run.options["notified"] = any(one.notified for one in troubles)
    telling = [asyncio.create_task(tell(run, one)) for one in troubles if one.tells or one.late]
    try:
        with suppress(TimeoutError, IntegrationError):
            async with asyncio.timeout(seconds):
                await way(run)
    finally:
        for task in telling:
            task.cancel()


async def tell(run: Run, trouble: Trouble) -> None:
    """Notify of pushes, one after another, for ever; or of each end, once, too late."""
    if trouble.late is not None:
        await asyncio.sleep(30.0 + trouble.late)
    while True:
        for key in list(run.service.by_key):
            await asyncio.sleep(trouble.tells or 0.0)
            if run.client is not None:
                run.client.notify(key)
        if trouble.tells is None:
            return
        await asyncio.sleep(trouble.tells)


# Budgets


def breaches(
    troubles: Sequence[str],
    way: Way,
    *,
    count: int = 1,
    companies: int = 1,
    seconds: float = HOUR,
    rate: float | None = None,
) -> list[str]:
    """Have *count* pushes settle in virtual time, and return which budgets were not kept."""
    service, loop = Service(latency=0.0005), CountingLoop()
    random.seed(0)  # what the client draws its jitter from
    with TemporaryDirectory() as folder:
        run = Run(service, count, companies, Path(folder) / "pushes.db", {"rate": rate})
        with asyncio.Runner(loop_factory=lambda: loop) as runner:
            runner.run(carry_out(run, way, [TROUBLES[name] for name in troubles], seconds))
    told = any(TROUBLES[name].tells or TROUBLES[name].late for name in troubles)
    found = [*polls_too_close(service, told=told, since=run.began)]
    # Some are looks without a request, whose pauses grow with the age of what is open.
    if not told and loop.timers > 20 * (len(service.log) + 20):
        found.append(f"{loop.timers} timers for {len(service.log)} requests")
    found += one_alone(service, told=told) if count == 1 else many(service, rate=rate)
    return [f"{' + '.join(troubles)}, {way.__name__}: {text}" for text in found]


class CountingLoop(VirtualTimeLoop):
    """Counts the timers that are set: a loop that looks again and again sets one each time."""

    timers = 0

    def call_at(
        self,
        when: float,
        callback: Callable[[*Ts], object],
        *args: *Ts,
        context: Context | None = None,
    ) -> asyncio.TimerHandle:
        self.timers += 1
        return super().call_at(when, callback, *args, context=context)


def polls_too_close(service: Service, *, told: bool, since: float = 0.0) -> Iterator[str]:
    """Two polls of one push are 0.2 s or a twentieth of its age apart.

    The age counts from the first poll *since* then: who opens an earlier run's journal knows no
    better. A notification may bring a poll forward, once a second.
    """
    polls = defaultdict[str, list[float]](list)
    for one in service.log:
        if one.kind == "get" and one.at >= since:
            polls[one.key].append(one.at)
    for key, times in polls.items():
        born, forward = times[0], -inf
        for earlier, later in pairwise(times):
            if later - earlier < max(0.2, 0.05 * (earlier - born)) - 0.01:
                if not told or later - forward < 0.99:
                    yield f"push {key} of {born:.2f} is polled at {earlier:.2f} and {later:.2f}"
                forward = later


def one_alone(service: Service, *, told: bool) -> Iterator[str]:
    """One open push: 15 requests in 10 seconds, 40 in a minute, then one per 20th of its age.

    What notifications bring forward comes on top.
    """
    times = [one.at for one in service.log if one.kind in READS]
    for age, most in [(10.0, 15), (60.0, 40)]:
        asked = sum(at <= age for at in times)
        if asked > most + told * age:
            yield f"{asked} requests in {age} s"
    last = max(60.0, *times, 0.0)
    if len(times) > 40 + log(last / 60) / log(1.05) + told * last:
        yield f"{len(times)} requests in {last} s"


def many(service: Service, *, rate: float | None = None) -> Iterator[str]:
    """Three requests a second for each company; three more, and the pages of a list, at once.

    In all, no more than half of the *rate* that the client may send at. Polls that stand in line
    for that rate, behind the pushes, may come together.
    """
    in_line = 0 if rate is None else 2
    times, pages = defaultdict[str, list[float]](list), defaultdict[str, int](lambda: 1)
    for one in service.log:
        if one.kind in READS:
            times[one.company].append(one.at)
            times[ALL].append(one.at)
            pages[one.company] = max(pages[one.company], int(one.params.get("page", 1)))
    for company, asked in times.items():
        most = 32.0 + pages[company] + in_line
        if company == ALL:
            most = 33.0 * len(times) * max(pages.values()) if rate is None else 5.2 * rate + 3
        if (count := fullest(asked, 10.0)) > most:
            yield f"{count} requests for {company} in 10 s"


def fullest(times: Sequence[float], seconds: float) -> int:
    """Return how many of the *times* lie in the fullest window of so many *seconds*."""
    most = first = 0
    for last, at in enumerate(times):
        while at - times[first] >= seconds:
            first += 1
        most = max(most, last - first + 1)
    return most
