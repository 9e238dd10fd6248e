"""What a crowd does to a service, and a service to a crowd: whole days in virtual time."""

from __future__ import annotations

import asyncio
import math
import random
from collections import Counter
from datetime import UTC, datetime
from email.utils import format_datetime
from typing import Any

import pytest
from attrs import define, field

from integration_sdk import Priority, RetryPolicy
from integration_sdk._http import CallOptions, Session
from integration_sdk._http.requests import Phase, Request
from integration_sdk._http.responses import Failure
from integration_sdk.errors import (
    AnswerLost,
    IntegrationError,
    NotSent,
    ServiceUnavailable,
    TooManyRequests,
)
from tests.support.session_support import (
    Rule,
    Verdict,
    VirtualService,
    read,
    virtual_session,
    write,
)

pytestmark = pytest.mark.virtual_time


def now() -> float:
    return asyncio.get_running_loop().time()


async def outcome_of(session: Session, request: Request, options: CallOptions) -> Any:
    try:
        return (await session.send(request, options)).status
    except IntegrationError as error:
        return type(error)


# Services with limits


@define
class Bucket:
    """A token bucket, as the sandbox has it; *told* is its ``Retry-After``."""

    rate: float
    burst: float
    told: str | None = "1"
    tokens: float = field(default=math.nan)
    last: float = 0.0

    def __call__(self, service: VirtualService, request: Request, at: float) -> Verdict:
        if math.isnan(self.tokens):
            self.tokens, self.last = self.burst, at
        self.tokens = min(self.burst, self.tokens + (at - self.last) * self.rate)
        self.last = at
        if self.tokens >= 1:
            self.tokens -= 1
            return None
        return 429, {} if self.told is None else {"Retry-After": self.told}


@define
class Windows:
    """So many in each second of the clock."""

    rate: int
    told: str | None = "1"
    seen: Counter[int] = field(factory=Counter)

    def __call__(self, service: VirtualService, request: Request, at: float) -> Verdict:
        self.seen[int(at)] += 1
        if self.seen[int(at)] <= self.rate:
            return None
        return 429, {} if self.told is None else {"Retry-After": self.told}


def at_once(limit: int, told: str | None) -> Rule:
    """So many at the same time."""

    def rule(service: VirtualService, request: Request, at: float) -> Verdict:
        if service.in_flight <= limit:
            return None
        return 429, {} if told is None else {"Retry-After": told}

    return rule


def offline(begin: float, end: float, verdict: Verdict) -> Rule:
    return lambda service, request, at: verdict if begin <= at < end else None


@pytest.mark.parametrize("latency", [0.02])
@pytest.mark.parametrize(
    ("rule", "limit"),
    [
        (lambda: Bucket(100, 100), 1.05),
        (lambda: Bucket(100, 100, told="0.01"), 1.05),
        (lambda: Bucket(100, 10, told="0.01"), 1.1),
        (lambda: Windows(100), 1.3),
        (lambda: Windows(100, told=None), 1.5),
        (lambda: Bucket(100, 10), 2.4),
        (lambda: Bucket(100, 100, told=None), 1.25),
        (lambda: Bucket(100, 10, told=None), 1.5),
    ],
    ids=[
        "bucket",
        "exact",
        "small exact",
        "windows",
        "windows untold",
        "small",
        "bucket untold",
        "small untold",
    ],
)
async def test_a_crowd_loses_nobody(rule: Any, limit: float, latency: float) -> None:
    """1,000 calls at once against 100 a second: 0 failed, few 429s, close to the ideal 10 seconds.

    How close depends on how much the service tells: *limit* is what is promised where a
    named second is a long time against its small bucket. One that names none is asked more often.
    """
    limited = rule()
    service = VirtualService(limited, latency)
    session = virtual_session(service)

    statuses = await asyncio.gather(
        *(outcome_of(session, read(), CallOptions(timeout=60)) for _ in range(1000))
    )

    assert Counter(statuses) == {200: 1000}
    assert service.count(429) <= (50 if limited.told is None else 40)
    assert now() <= 10.0 * limit
    assert session.stats().throttled == service.count(429)
    await session.aclose()


@pytest.mark.parametrize("seed", range(8))
@pytest.mark.parametrize("latency", [0.001, 0.02])
async def test_a_limit_of_each_company_is_not_taken_for_a_very_slow_service(
    latency: float, seed: int
) -> None:
    """10 companies with 10 calls a second each: 1,000 calls take 10 seconds or little more.

    They are refused together now and then, after a single answer or none.
    """
    buckets = {f"c{number}": Bucket(10, 10, told=None) for number in range(10)}

    def rule(service: VirtualService, request: Request, at: float) -> Verdict:
        return buckets[str(request.company_id)](service, request, at)

    session = virtual_session(VirtualService(rule, latency), seed=seed)
    calls = [read(company_id=company) for _ in range(100) for company in buckets]

    statuses = await asyncio.gather(
        *(outcome_of(session, call, CallOptions(timeout=60)) for call in calls)
    )

    assert Counter(statuses) == {200: 1000}
    assert now() <= 20.0
    await session.aclose()


@pytest.mark.parametrize("told", [None, "1"])
@pytest.mark.parametrize("limit", [5, 10, 30])
async def test_a_hidden_concurrency_limit_is_found(limit: int, told: str | None) -> None:
    """Within 5 seconds; from then on at most 3 per cent are refused, and most places are used."""
    service = VirtualService(at_once(limit, told))
    session = virtual_session(service)

    async def works() -> None:
        while now() < 30:
            await session.send(read(), CallOptions(timeout=60))

    await asyncio.gather(*(works() for _ in range(100)))

    refused, served = service.count(429, 5, 30), service.count(200, 5, 30)
    assert refused <= 0.03 * (refused + served)
    assert served >= 0.5 * 25 * limit / service.latency
    await session.aclose()


@pytest.mark.parametrize("lane", ["another company", "the same company, interactive"])
async def test_bulk_starves_nobody(lane: str) -> None:
    """5,000 pushes of one company leave others, and interactive calls, as fast as idle."""
    service = VirtualService()
    session = virtual_session(service)
    forever = CallOptions(timeout=None)
    bulk = read(company_id="bulk", priority=Priority.PUSH)
    one = read(company_id="other", priority=Priority.PUSH)
    if lane != "another company":
        one = read(company_id="bulk", priority=Priority.INTERACTIVE)
    pushing = [asyncio.create_task(session.send(bulk, forever)) for _ in range(5000)]
    await asyncio.sleep(0)

    took = []
    for _ in range(100):
        began = now()
        await session.send(one, forever)
        took.append(now() - began)

    assert sorted(took)[94] <= 1.2 * service.latency
    assert service.count(200) > 800, "the bulk went on meanwhile"
    for task in pushing:
        task.cancel()
    await asyncio.gather(*pushing, return_exceptions=True)
    await session.aclose()


LOST = Failure(Phase.MAY_HAVE_LEFT, AnswerLost("lost"))


async def test_an_outage_of_any_length_ends() -> None:
    """Also after more probes than a float can be doubled."""
    service = VirtualService(offline(0, 6000, (429, {})))
    session = virtual_session(service)

    while await outcome_of(session, read(), CallOptions(timeout=60)) != 200:
        pass

    assert service.sent() > 1100
    assert now() <= 6060
    await session.aclose()


REFUSED = Failure(Phase.NEVER_LEFT, NotSent("refused"))


@pytest.mark.parametrize(
    ("verdict", "back"),
    [
        ((503, {}), 75),
        ((503, {"Retry-After": "10"}), 85),
        ((429, {}), 80),
        ((500, {}), 75),
        (LOST, 75),
        (REFUSED, 75),
    ],
    ids=["503", "503 for 10 s", "429", "500", "lost", "refused"],
)
async def test_an_outage_is_not_made_worse(verdict: Verdict, back: float) -> None:
    """60 s of outage, 100 tasks: at most 1.1 requests for each call; full rate within 5 s.

    A minute of 429 is a rate limit for all that can be seen, so there the way back is paced.
    """
    service = VirtualService(offline(10, 70, verdict))
    session = virtual_session(service)
    offered = 0

    async def works() -> None:
        nonlocal offered
        while now() < 90:
            offered += 1
            await outcome_of(session, read(), CallOptions(timeout=60))
            await asyncio.sleep(0.8)

    await asyncio.gather(*(works() for _ in range(100)))

    assert service.sent() <= 1.1 * offered
    before, after = service.count(200, 5, 10) / 5, service.count(200, back, back + 3) / 3
    assert after >= 0.8 * before
    await session.aclose()


async def test_a_closed_gate_costs_one_request_a_pause() -> None:
    """While the service is away a crowd of 100 sends no more than a single task would."""
    service = VirtualService(offline(0, 60, (503, {})))
    session = virtual_session(service)

    await asyncio.gather(
        *(outcome_of(session, read(), CallOptions(timeout=80)) for _ in range(100))
    )

    first = 20
    assert service.sent(0, 60) <= first + 60 / 1.0
    await session.aclose()


@pytest.mark.parametrize("status", [500, 503])
@pytest.mark.parametrize("seed", range(3))
async def test_one_stumbling_backend_holds_up_nobody(status: int, seed: int) -> None:
    """One answer in five is an error that names no time: 200 calls take seconds at most.

    The first few 503s may close the gate, until enough answers have come.
    """
    chance = random.Random(seed)
    service = VirtualService(
        lambda *_: (status, {}) if chance.random() < 0.2 else None, latency=0.02
    )
    session = virtual_session(service)

    statuses = await asyncio.gather(
        *(outcome_of(session, read(), CallOptions(timeout=60)) for _ in range(200))
    )

    assert Counter(statuses)[200] >= 195
    assert now() <= (0.6 if status == 500 else 5.3)
    await session.aclose()


async def test_a_rate_that_is_not_the_cause_is_forgotten() -> None:
    """A service that refuses everybody for a moment each second is asked at full rate again."""
    service = VirtualService(lambda _, __, at: (429, {}) if at % 1.1 >= 0.9 else None)
    session = virtual_session(service)

    async def works() -> None:
        while now() < 150:
            await outcome_of(session, read(), CallOptions(timeout=60))
            await asyncio.sleep(0.1)

    await asyncio.gather(*(works() for _ in range(20)))

    assert service.count(200, 125, 150) > 2 * service.count(200, 25, 50)
    await session.aclose()


@pytest.mark.parametrize(
    ("processes", "told", "latency"), [(2, None, 0.05), (2, "1", 0.005), (4, None, 0.005)]
)
async def test_processes_share_a_limit(processes: int, told: str | None, latency: float) -> None:
    """Each has a gate of its own: together they use the whole limit, and each gets a good part."""
    service = VirtualService(Bucket(100, 100, told), latency)
    sessions = [virtual_session(service, seed=process) for process in range(processes)]
    served = [0] * processes

    async def works(process: int) -> None:
        while now() < 120:
            outcome = await outcome_of(sessions[process], read(), CallOptions(timeout=60))
            served[process] += outcome == 200

    await asyncio.gather(*(works(process) for process in range(processes) for _ in range(20)))

    assert sum(served) >= 0.95 * 100 * 120
    assert min(served) >= 0.5 * sum(served) / processes
    assert service.count(429) <= 0.03 * sum(served)
    for session in sessions:
        await session.aclose()


@pytest.mark.parametrize(
    ("answer", "rate"), [((429, {"Retry-After": "1"}), 5), ((429, {}), 0.001), ((503, {}), 5)]
)
async def test_one_refused_company_holds_up_no_other(
    answer: tuple[int, dict[str, str]], rate: float
) -> None:
    """Though the answers do not say whose limit it is: the others keep nine tenths at least."""
    bucket = Bucket(rate, 5)

    def rule(service: VirtualService, request: Request, at: float) -> Verdict:
        refused = request.company_id == "a" and bucket(service, request, at)
        return answer if refused else None

    service = VirtualService(rule)
    session = virtual_session(service)
    served: Counter[str] = Counter()

    async def works(company: str) -> None:
        while now() < 10:
            outcome = await outcome_of(session, read(company_id=company), CallOptions())
            served[company] += outcome == 200

    await asyncio.gather(*(works(company) for company in "abcde" for _ in range(20)))

    assert sum(served[company] for company in "bcde") >= 0.9 * 7000
    assert service.count(429) <= 500
    await session.aclose()


@pytest.mark.parametrize("begin", [0.0, 0.5])
async def test_a_service_that_goes_away_is_spared(begin: float) -> None:
    """200 tasks at work: those under way are refused, a few more go, then one probe a pause."""
    service = VirtualService(offline(begin, 60, (503, {})))
    session = virtual_session(service)

    async def works() -> None:
        while now() < 60:
            await outcome_of(session, read(), CallOptions(timeout=80))

    await asyncio.gather(*(works() for _ in range(200)))

    under_way, forgiven = session.stats().window, 10
    assert service.sent(begin, begin + 0.2) <= under_way + forgiven + 1
    assert service.sent(begin + 0.2, 60) <= 60 / 1.0
    await session.aclose()


# Retry-After


FUTURE = format_datetime(datetime.fromtimestamp(3600 + 1_000, UTC), usegmt=True)
DATE = format_datetime(datetime.fromtimestamp(1_000, UTC), usegmt=True)


@pytest.mark.parametrize("status", [429, 503])
@pytest.mark.parametrize(
    ("headers", "seconds"),
    [
        ({"Retry-After": "7"}, 7),
        ({"Retry-After": "7.5"}, 7.5),
        ({"Retry-After": "0"}, 0),
        ({"Retry-After": "-5"}, 0),
        ({"Retry-After": "soon"}, 0),
        ({"Retry-After": "nan"}, 0),
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
    await session.aclose()


@pytest.mark.parametrize("told", ["61", "86400", "1e300", FUTURE])
@pytest.mark.parametrize(("status", "kind"), [(429, TooManyRequests), (503, ServiceUnavailable)])
async def test_a_wait_past_the_deadline_ends_at_once(
    told: str, status: int, kind: type[Exception]
) -> None:
    """Nobody sleeps for what cannot be: the answer is handed back, others are not sent at all."""
    service = VirtualService(lambda *_: (status, {"Retry-After": told, "Date": DATE}))
    session = virtual_session(service)
    line = [
        asyncio.create_task(outcome_of(session, read(), CallOptions(timeout=60)))
        for _ in range(100)
    ]

    statuses = Counter(await asyncio.gather(*line))

    assert now() < 1
    assert statuses == {status: service.sent(), kind: 100 - service.sent()}
    assert service.sent() <= 20
    with pytest.raises(kind) as caught:
        await session.send(write(), CallOptions(timeout=60))
    error: Any = caught.value
    assert (error.attempts, error.correlation_id) == (0, "c-1")
    assert error.retry_at is not None
    await session.aclose()


async def test_retry_after_zero_is_no_hot_loop() -> None:
    """A service that says 0 for ever gets three requests from one call, with pauses."""
    service = VirtualService(lambda *_: (429, {"Retry-After": "0"}))
    session = virtual_session(service)

    assert await outcome_of(session, read(), CallOptions(timeout=60)) == 429
    assert service.sent() == 3
    assert now() >= 0.1
    await session.aclose()


# Settings


async def test_a_fixed_rate_is_kept() -> None:
    """``rate=50``: 500 calls take ten seconds, evenly."""
    service = VirtualService(latency=0.01)
    session = virtual_session(service, rate=50)

    await asyncio.gather(*(session.send(read(), CallOptions()) for _ in range(500)))

    assert all(service.sent(at, at + 1) <= 56 for at in range(10))
    assert 9.5 <= now() <= 10.1
    await session.aclose()


async def test_the_budget_is_shared() -> None:
    """A hundred repetitions for all calls together, then none until calls succeed again."""
    service = VirtualService(lambda *_: LOST, latency=0.001)
    session = virtual_session(service)

    for _ in range(300):
        await outcome_of(session, read(), CallOptions(timeout=60))

    assert service.sent() == 300 + 100
    assert session.stats().budget < 5
    await session.aclose()


async def test_no_pause_that_cannot_fit() -> None:
    """A failure close to the deadline is told at once, not slept over first."""
    service = VirtualService(lambda *_: LOST, latency=10)
    session = virtual_session(service)
    patient = RetryPolicy(base=100, cap=100)

    outcome = await outcome_of(session, read(), CallOptions(timeout=5, retry=patient))

    assert outcome is AnswerLost
    assert now() == pytest.approx(1.0)
    await session.aclose()
