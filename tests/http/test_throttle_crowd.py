"""What a crowd does to a service, and a service to a crowd: whole days in virtual time."""

from __future__ import annotations

import asyncio
import math
from collections import Counter
from collections.abc import Callable, Mapping
from datetime import UTC, datetime
from email.utils import format_datetime
from typing import Any

import pytest
from attrs import define, field

from integration_sdk import Priority, RetryPolicy
from integration_sdk._http import CallOptions, Session
from integration_sdk._http.requests import Phase, Request
from integration_sdk._http.responses import Failure
from integration_sdk.errors import AnswerLost, IntegrationError, ServiceUnavailable, TooManyRequests
from tests.support.loops import now
from tests.support.session_support import (
    Rule,
    Verdict,
    VirtualService,
    read,
    virtual_session,
    write,
)

pytestmark = pytest.mark.virtual_time


async def outcome_of(session: Session, request: Request, timeout: float = 60) -> Any:
    try:
        return (await session.send(request, CallOptions(timeout=timeout))).status
    except IntegrationError as error:
        return type(error)


async def working(
    session: Session, tasks: int, until: float, *, pause: float = 0.0, company: str | None = None
) -> Counter[Any]:
    """Let *tasks* call one after the other until then; return how often each outcome came."""
    outcomes: Counter[Any] = Counter()

    async def works() -> None:
        while now() < until:
            outcomes[await outcome_of(session, read(company_id=company))] += 1
            await asyncio.sleep(pause)

    await asyncio.gather(*(works() for _ in range(tasks)))
    return outcomes


# Services with limits


def too_many(told: str | None) -> Verdict:
    return 429, {} if told is None else {"Retry-After": told}


@define
class Bucket:
    """A token bucket, as the sandbox has it; *told* is its ``Retry-After``."""

    rate: float
    burst: float
    told: str | None = "1"
    tokens: float = math.inf
    last: float = 0.0

    def __call__(self, service: VirtualService, request: Request, at: float) -> Verdict:
        self.tokens = min(self.burst, self.tokens + (at - self.last) * self.rate)
        self.last = at
        if self.tokens >= 1:
            self.tokens -= 1
            return None
        return too_many(self.told)


@define
class Windows:
    """So many in each second of the clock."""

    rate: int
    told: str | None = "1"
    seen: Counter[int] = field(factory=Counter)

    def __call__(self, service: VirtualService, request: Request, at: float) -> Verdict:
        self.seen[int(at)] += 1
        return None if self.seen[int(at)] <= self.rate else too_many(self.told)


def at_once(limit: int, told: str | None) -> Rule:
    """So many at the same time."""
    return lambda service, *_: None if service.in_flight <= limit else too_many(told)


def per_company(make: Callable[[], Bucket], companies: str) -> Rule:
    """A bucket for each of these companies, and no limit for others."""
    buckets = {name: make() for name in companies}

    def rule(service: VirtualService, request: Request, at: float) -> Verdict:
        bucket = buckets.get(str(request.company_id))
        return bucket(service, request, at) if bucket else None

    return rule


def offline(begin: float, end: float, verdict: Verdict) -> Rule:
    return lambda service, request, at: verdict if begin <= at < end else None


WORLDS: Mapping[str, tuple[Callable[[], Rule], float, int]] = {
    # the most seconds and answers 429 of 1,000 calls; 100 a second would take 10 seconds
    "bucket": (lambda: Bucket(100, 100), 10.5, 26),
    "bucket, no time named": (lambda: Bucket(100, 100, None), 12.5, 45),
    "windows": (lambda: Windows(100), 15, 35),
    "small bucket": (lambda: Bucket(100, 10), 25, 35),
    "small bucket, exact": (lambda: Bucket(100, 10, "0.01"), 11, 40),
    "small bucket, no time named": (lambda: Bucket(100, 10, None), 20, 35),
    "each company": (lambda: per_company(lambda: Bucket(10, 10), "0123456789"), 12, 33),
    "ten at once": (lambda: at_once(10, "1"), 10, 27),
    "thirty at once, no time named": (lambda: at_once(30, None), 3, 27),
    "one company": (lambda: per_company(lambda: Bucket(100, 10), "0"), 5, 14),
}


@pytest.mark.parametrize("world", WORLDS)
async def test_a_crowd_loses_no_call(world: str) -> None:
    """1,000 calls of ten companies at once: 0 failed, few 429s, close to the ideal time.

    How close depends on how much the service tells.
    """
    rule, most_seconds, most_refused = WORLDS[world]
    service = VirtualService(rule(), latency=0.02)
    session = virtual_session(service)

    calls = (outcome_of(session, read(company_id=str(n % 10))) for n in range(1000))
    statuses = await asyncio.gather(*calls)

    assert Counter(statuses) == {200: 1000}
    assert now() <= most_seconds
    assert session.stats().throttled == service.count(429) <= most_refused


@pytest.mark.parametrize("lane", ["another company", "the same company, interactive"])
async def test_bulk_starves_no_other_call(lane: str) -> None:
    """Thousands of pushes of one company leave others, and interactive calls, as fast as idle."""
    service = VirtualService()
    session = virtual_session(service)
    forever = CallOptions(timeout=None)
    bulk = read(company_id="bulk", priority=Priority.PUSH)
    one = read(company_id="other", priority=Priority.PUSH)
    if lane != "another company":
        one = read(company_id="bulk", priority=Priority.INTERACTIVE)
    pushing = [asyncio.create_task(session.send(bulk, forever)) for _ in range(2000)]
    await asyncio.sleep(0)

    took = []
    for _ in range(50):
        began = now()
        await session.send(one, forever)
        took.append(now() - began)

    assert sorted(took)[47] <= 1.2 * service.latency
    assert service.count(200) > 400, "the bulk went on meanwhile"
    for task in pushing:
        task.cancel()
    await asyncio.gather(*pushing, return_exceptions=True)


LOST = Failure(Phase.MAY_HAVE_LEFT, AnswerLost("lost"))


@pytest.mark.parametrize(
    ("verdict", "back"),
    [((503, {"Retry-After": "10"}), 45), ((429, {}), 40), ((500, {}), 35), (LOST, 35)],
    ids=["503 for 10 s", "429", "500", "lost"],
)
async def test_an_outage_is_not_made_worse(verdict: Verdict, back: float) -> None:
    """At most 1.1 requests for each call, and the full rate soon after.

    Many 429s are a rate limit for all that can be seen, so there the way back is paced.
    """
    service = VirtualService(offline(10, 30, verdict))
    offered = await working(virtual_session(service), 100, 50, pause=0.8)

    assert service.sent() <= 1.1 * offered.total()
    before, after = service.count(200, 5, 10) / 5, service.count(200, back, back + 3) / 3
    assert after >= 0.8 * before


@pytest.mark.parametrize("begin", [0.0, 0.5])
async def test_a_service_that_goes_away_is_spared(begin: float) -> None:
    """200 tasks at work: those under way are refused, then one probe goes a pause."""
    service = VirtualService(offline(begin, 30, (503, {})))
    session = virtual_session(service)

    await working(session, 200, 30)

    assert service.sent(begin, begin + 0.2) <= session.stats().window + 10
    assert service.sent(begin + 0.2, 30) <= 30 / 1.0


async def test_a_rate_that_is_not_the_cause_is_forgotten() -> None:
    """A service that refuses everybody for a moment each second is not asked less and less."""
    service = VirtualService(lambda _, __, at: (429, {}) if at % 1.1 >= 0.9 else None)

    await working(virtual_session(service), 10, 150, pause=0.1)

    assert service.count(200, 100, 150) >= 0.8 * service.count(200, 0, 50)


@pytest.mark.parametrize(("processes", "told", "latency"), [(2, "1", 0.05), (4, None, 0.005)])
async def test_processes_share_a_limit(processes: int, told: str | None, latency: float) -> None:
    """Each has a gate of its own: together they use the whole limit, and each gets a good part."""
    service = VirtualService(Bucket(100, 100, told), latency)
    sessions = [virtual_session(service, seed=process) for process in range(processes)]

    outcomes = await asyncio.gather(*(working(session, 20, 40) for session in sessions))

    served = [each[200] for each in outcomes]
    assert sum(served) >= 0.95 * 100 * 40
    assert min(served) >= 0.5 * sum(served) / processes
    assert service.count(429) <= 0.05 * sum(served)


@pytest.mark.parametrize(
    ("answer", "rate"), [((429, {"Retry-After": "1"}), 5), ((429, {}), 0.001), ((503, {}), 5)]
)
async def test_one_refused_company_holds_up_no_other(
    answer: tuple[int, dict[str, str]], rate: float
) -> None:
    """Though the answers do not say whose limit it is: the others keep nine tenths at least."""
    limited = per_company(lambda: Bucket(rate, 5), "a")
    service = VirtualService(lambda *facts: answer if limited(*facts) else None)
    session = virtual_session(service)

    outcomes = await asyncio.gather(
        *(working(session, 20, 8, company=company) for company in "abcde")
    )

    assert sum(each[200] for each in outcomes[1:]) >= 0.9 * 5600
    assert service.count(429) <= 500


@pytest.mark.parametrize("answer", [(429, {"Retry-After": "1"}), (429, {}), (503, {})])
async def test_calls_behind_a_refused_company_are_not_paced(
    answer: tuple[int, dict[str, str]],
) -> None:
    """Only its calls are in line at first: what is learnt from them slows down no other."""
    service = VirtualService(lambda _, request, __: answer if request.company_id == "a" else None)
    session = virtual_session(service)
    refused = [asyncio.create_task(outcome_of(session, read(company_id="a"))) for _ in range(40)]
    await asyncio.sleep(0.1)

    calls = (outcome_of(session, read(company_id="b")) for _ in range(200))
    assert Counter(await asyncio.gather(*calls)) == {200: 200}
    assert now() <= 7
    for task in refused:
        task.cancel()


# Retry-After


FUTURE = format_datetime(datetime.fromtimestamp(3600 + 1_000, UTC), usegmt=True)
DATE = format_datetime(datetime.fromtimestamp(1_000, UTC), usegmt=True)


@pytest.mark.parametrize("status", [429, 503])
@pytest.mark.parametrize(
    ("headers", "seconds"),
    [
        ({"Retry-After": "7.5"}, 7.5),
        ({"Retry-After": "0"}, 0),
        ({"Retry-After": "soon"}, 0),
        ({}, 0),
        ({"Retry-After": FUTURE, "Date": DATE}, 3600),
    ],
)
async def test_retry_after_is_a_floor(headers: dict[str, str], seconds: float, status: int) -> None:
    """In every form: never undercut, never jittered down, and without one never a hot loop."""
    service = VirtualService(offline(0, 0.001, (status, headers)), latency=0.01)
    session = virtual_session(service)

    response = await session.send(write(), CallOptions(timeout=None))

    (first, _, _), (second, _, _) = service.log
    assert max(seconds, 0.05) <= second - first <= max(1.0, 1.03 * seconds) + 0.01
    assert response.attempts == 2
    assert response.waited == pytest.approx(second - first, abs=0.01)


@pytest.mark.parametrize("told", ["61", "1e300", FUTURE])
@pytest.mark.parametrize(("status", "kind"), [(429, TooManyRequests), (503, ServiceUnavailable)])
async def test_a_wait_past_the_deadline_ends_at_once(
    told: str, status: int, kind: type[Exception]
) -> None:
    """No call sleeps in vain: the answer is handed back, others are not sent at all."""
    service = VirtualService(lambda *_: (status, {"Retry-After": told, "Date": DATE}))
    session = virtual_session(service)

    statuses = Counter(await asyncio.gather(*(outcome_of(session, read()) for _ in range(100))))

    assert now() < 1
    assert statuses == {status: service.sent(), kind: 100 - service.sent()}
    assert service.sent() <= 20
    with pytest.raises(kind) as caught:
        await session.send(write(), CallOptions(timeout=60))
    error: Any = caught.value
    assert (error.attempts, error.correlation_id) == (0, "c-1")
    assert error.retry_at is not None


# Settings


async def test_a_fixed_rate_is_kept() -> None:
    """``rate=50``: 200 calls take four seconds, evenly."""
    service = VirtualService(latency=0.01)
    session = virtual_session(service, rate=50)

    await asyncio.gather(*(session.send(read(), CallOptions()) for _ in range(200)))

    assert all(service.sent(at, at + 1) <= 56 for at in range(4))
    assert 3.8 <= now() <= 4.1


async def test_calls_that_are_cancelled_take_nothing_of_a_fixed_rate() -> None:
    """Those that come after them wait for their own turn, not for that of a hundred others."""
    session = virtual_session(VirtualService(latency=0.01), rate=2)
    calls = [asyncio.create_task(session.send(read(), CallOptions())) for _ in range(100)]
    await asyncio.sleep(1.1)
    for call in calls:
        call.cancel()
    await asyncio.wait(calls)

    await session.send(read(), CallOptions())

    assert now() < 2


async def test_no_pause_that_cannot_fit() -> None:
    """A failure close to the deadline is told at once, not slept over first."""
    service = VirtualService(lambda *_: LOST, latency=10)
    session = virtual_session(service)
    patient = CallOptions(timeout=5, retry=RetryPolicy(base=100, cap=100))

    with pytest.raises(AnswerLost):
        await session.send(read(), patient)
    assert now() == pytest.approx(1.0)
