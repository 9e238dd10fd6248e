"""What refuses every push ends what is under way with one error, and passes; one company's not."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Sequence
from math import inf

import pytest
from attrs import asdict, evolve

from integration_sdk import Coordinator, Dialect, OutcomeStatus, Push, PushOutcome, PushRequest
from integration_sdk._store.row import Row
from integration_sdk.errors import (
    AccountExpired,
    ClientClosed,
    ConfigurationError,
    IntegrationError,
    PushError,
    ServiceUnavailable,
    StoreUnavailable,
    TooManyRequests,
    Unauthorized,
)
from tests.support.loops import now
from tests.support.push_support import (
    Connect,
    Fate,
    Input,
    Journal,
    collect,
    coordinator,
    fated,
    named,
    numbers,
    on_record,
    push_once,
    pushed,
    request,
    requests,
    run_once,
    statuses,
)
from tests.support.virtual_service import Answer, Asked, Service, refusal

pytestmark = pytest.mark.virtual_time
AHEAD = 64
"""Pushes that wait for the service's answer, at most."""
EXPIRED = refusal(402, message="account expired")
SUCCESS, PENDING, REJECTED = OutcomeStatus.SUCCESS, OutcomeStatus.PENDING, OutcomeStatus.REJECTED
ONE, OTHER = (named(number, companies=3) for number in (1, 2))


def refusing_after(count: int, answer: Answer, *, until: float = inf) -> Service:
    """Return a service that answers everything so after so many pushes, *until* that time."""

    def refuse(_: Asked) -> Answer | None:
        return answer if service.count("push") > count and now() < until else None

    service = Service(lambda _: 100.0, answer=refuse)
    return service


@pytest.mark.parametrize(
    ("answer", "kind"),
    [
        (EXPIRED, AccountExpired),
        (refusal(429, Retry_After=6 * 3600), TooManyRequests),
        (refusal(401), Unauthorized),
        (Answer(301, b"moved", {"Location": "https://elsewhere/companies"}), ConfigurationError),
        (Answer(308, b"", {"Location": "https://elsewhere/"}), ConfigurationError),
        (Answer(200, b"<html>Sign in</html>"), ConfigurationError),
        (Answer(403, b"<html>Blocked</html>"), ConfigurationError),
    ],
    ids=["account", "quota", "key", "301", "308", "login page", "proxy"],
)
async def test_what_refuses_every_push_stops_the_run_with_one_error(
    answer: Answer, kind: type[IntegrationError]
) -> None:
    """What was read has an outcome and nothing is sent twice; the rest is not read."""
    service, given, outcomes = refusing_after(100, answer), Input(5000), list[PushOutcome]()
    async with coordinator(service, patience=1.0) as pushes:
        with pytest.raises(kind) as stopped:
            await collect(pushes.run(given), into=outcomes)

    assert sorted(numbers(outcomes)) == list(range(given.pulled))
    assert service.count("push") <= given.pulled <= 100 + 4 * AHEAD
    assert kind is not ConfigurationError or "Check base_url=" in str(stopped.value)
    assert kind is not TooManyRequests or stopped.value.retry_at  # type: ignore[attr-defined]  # of that kind


@pytest.mark.parametrize("at_once", [1, 8])
async def test_a_key_is_gone_after_three_refusals_in_a_row(at_once: int) -> None:
    """No more is sent than that, and what was under way."""
    service = fated(*[None] * 20, ever=refusal(401))
    with pytest.raises(Unauthorized):
        await run_once(service, requests(1000), max_open=at_once)

    assert service.count("push") <= 20 + 4 * at_once


@pytest.mark.parametrize(
    ("fates", "at_once", "refused"),
    [([None] * 64 + [refusal(401)] * 8, 2000, 8), ([refusal(401), refusal(401), None] * 5, 1, 10)],
    ids=["renewed", "others are accepted"],
)
async def test_a_key_that_is_accepted_again_does_not_stop_the_run(
    fates: list[Fate], at_once: int, refused: int
) -> None:
    """What was under way with an old key is refused together, which counts as once."""
    outcomes = await run_once(fated(*fates), requests(100), max_open=at_once)

    assert statuses(outcomes) == {SUCCESS: 100 - refused, REJECTED: refused}


async def test_an_expired_account_ends_the_pauses_of_others() -> None:
    """Who waits because of a Retry-After is not sent, and waits no longer."""
    service, outcomes = fated(refusal(429, Retry_After=300), EXPIRED), list[PushOutcome]()
    async with coordinator(service) as pushes:
        with pytest.raises(AccountExpired):
            await collect(pushes.run([request(1), request(2)]), into=outcomes)

    assert now() < 1
    assert statuses(outcomes) == {REJECTED: 2}
    assert service.count("push") == 2


async def test_an_account_that_ends_while_the_input_is_awaited_ends_the_run() -> None:
    """The run says so at once, after the outcomes; it waits for no record it would not push."""

    async def source() -> AsyncIterator[PushRequest]:
        yield request(0)
        await asyncio.sleep(1e9)
        yield request(1)

    seen: list[PushOutcome] = []
    async with asyncio.timeout(5), coordinator(fated(ever=EXPIRED)) as pushes:
        with pytest.raises(AccountExpired):
            await collect(pushes.run(source()), seen)
    assert statuses(seen) == {REJECTED: 1}


async def test_a_push_that_was_taken_is_handed_out_though_the_account_ends_then() -> None:
    """No error denies a push that has a key: its outcome says why nobody follows it."""
    async with coordinator(fated(None, ever=EXPIRED), per_company=5) as pushes:
        push, *refused = await asyncio.gather(
            *(pushes.submit(one) for one in requests(50)), return_exceptions=True
        )

    assert {type(one) for one in refused} == {AccountExpired}
    assert isinstance(push, Push)
    assert push.outcome
    assert push.outcome.status is PENDING
    assert isinstance(push.outcome.error, AccountExpired)


@pytest.mark.parametrize(("hours", "max_pause"), [(6, None), (0.1, 600.0)])
async def test_a_pause_that_is_not_too_long_is_waited_for(
    hours: float, max_pause: float | None
) -> None:
    """Ten minutes unless told otherwise, for ever if told so; then each push is sent once more."""
    ends = hours * 3600
    service = refusing_after(20, refusal(429, Retry_After=ends), until=ends)
    outcomes = await run_once(service, requests(40), max_pause=max_pause)

    assert statuses(outcomes) == {SUCCESS: 40}
    assert now() > ends
    assert service.count("push") <= 20 + 2 * 20


async def test_max_pause_is_about_what_the_service_asks_for() -> None:
    """A 429 that names no time is repeated after a pause of our own, however small it is."""
    service = fated(refusal(429))

    assert (await push_once(service, max_pause=0)).status is SUCCESS
    assert service.count("push") == 2


async def test_a_client_that_is_closed_is_asked_no_more(
    connect: Connect, caplog: pytest.LogCaptureFixture
) -> None:
    """The next push says so, what is open has its outcome, and no bug is reported."""
    service = fated(None, "swallowed", takes=lambda _: 1000.0)
    client = await connect(service)
    async with asyncio.timeout(100), client.coordinator() as pushes:
        open_, lost = [await pushes.submit(one) for one in requests(2)]
        await asyncio.sleep(1)
        await client.aclose()
        with pytest.raises(ClientClosed):
            await pushes.submit(request(2))
        with pytest.raises(ClientClosed):
            await collect(pushes.run(requests(3)))

    assert (await open_).status is PENDING
    assert (await lost).status is OutcomeStatus.IN_DOUBT
    assert service.count("push") == 2
    assert not [record for record in caplog.records if record.exc_info]


PAUSE = 700
REFUSALS: dict[str, tuple[Answer, type[IntegrationError]]] = {
    "429": (refusal(429, Retry_After=PAUSE, X_Rate_Limit_Remaining=5), TooManyRequests),
    "503": (refusal(503, Retry_After=PAUSE), ServiceUnavailable),
    "402": (EXPIRED, AccountExpired),
    "401": (refusal(401), Unauthorized),
}


@pytest.mark.parametrize("which", REFUSALS)
async def test_who_pushes_later_is_not_refused_for_what_has_passed(which: str) -> None:
    """Neither single pushes nor runs; each was told of the refusal that it met."""
    answer, error = REFUSALS[which]
    service = fated(ever=answer)
    async with coordinator(service, journal=Journal()) as pushes:
        for _ in range(4):
            with pytest.raises(error):
                await pushes.submit(ONE)
        with pytest.raises(error):
            await collect(pushes.run(requests(100)))
        service.answer = None
        await asyncio.sleep(PAUSE)
        outcomes = [await pushed(pushes, ONE), *await collect(pushes.run(requests(10)))]

    assert statuses(outcomes) == {SUCCESS: 11}


async def test_a_bug_does_not_pass() -> None:
    """Though a refusal that may pass has stopped the coordinator before."""

    class Broken(Dialect):
        def is_contradicted(self, answer: bytes) -> bool:
            raise RuntimeError("a bug")

    service = Service(answer=lambda call: EXPIRED if call.company == "c-2" else None)
    dialect = Broken(**asdict(Dialect.document(), recurse=False))
    async with coordinator(service, dialect=dialect) as pushes:
        told = await asyncio.gather(
            *(pushed(pushes, one) for one in (ONE, OTHER)), return_exceptions=True
        )
        with pytest.raises(PushError):
            await pushes.submit(ONE)

    assert AccountExpired in map(type, told)


async def test_a_journal_that_fails_otherwise_is_not_asked_again_and_again() -> None:
    """What it was to withdraw has an outcome all the same."""
    failed = list[Row]()

    def fail(rows: Sequence[Row]) -> None:
        if rows[0].state == "DONE":
            failed.append(rows[0])
            raise ConfigurationError("odd") if len(failed) < 100 else StoreUnavailable("away")

    service = fated(refusal(429, retry_after=10), ever=refusal(402))
    journal = Journal()
    async with coordinator(service, journal=journal) as pushes:
        waits = asyncio.create_task(pushed(pushes, named(1)))
        await asyncio.sleep(3)
        journal.before_write = fail
        await asyncio.gather(pushed(pushes, request(2)), waits, return_exceptions=True)
    assert len(failed) < 5


async def status_of(pushes: Coordinator, asked: PushRequest) -> object:
    try:
        return (await pushed(pushes, asked)).status
    except IntegrationError as raised:
        return type(raised)


async def test_a_database_that_comes_back_is_used_again() -> None:
    """What was open is followed, what was sent accounted for, and who pushes meanwhile is told."""

    async def silent(_: Sequence[Row]) -> None:
        await asyncio.sleep(30)
        raise StoreUnavailable("away")

    service, journal = Service(lambda _: 10.0), Journal(shared=True)
    meanwhile = evolve(ONE, reference="meanwhile")
    async with coordinator(service, journal=journal) as pushes:
        await pushed(pushes, evolve(OTHER, reference="first"))
        before = await pushes.submit(ONE)
        service.latency = 10.0
        on_its_way = asyncio.create_task(status_of(pushes, OTHER))
        await asyncio.sleep(5)
        journal.before_write, journal.unreadable = silent, StoreUnavailable("away")
        assert await status_of(pushes, meanwhile) is StoreUnavailable
        ended = await before
        await asyncio.sleep(600)
        journal.before_write, journal.unreadable = lambda _: None, None
        service.latency = 0.03
        again = await status_of(pushes, meanwhile)
        await asyncio.sleep(120)

    assert (ended.status, again) == (SUCCESS, SUCCESS)
    assert await on_its_way in {PENDING, SUCCESS}
    assert service.count("push") == 4
    states = {row.reference: row.state for row in await on_record(journal)}
    assert states == dict.fromkeys(("first", "INV-1", "INV-2", "meanwhile"), "DONE")


async def seconds_of_others(pushes: Coordinator, companies: int, refused: Sequence[str]) -> float:
    """Push 40 records for each company; return how long all but those *refused* take."""
    began, left = now(), (companies - len(refused)) * 40
    async for outcome in pushes.run(requests(40 * companies, companies=companies), wait=30):
        if outcome.request.company_id not in refused:
            assert outcome.status is SUCCESS
            left -= 1
        if not left:
            break
    return now() - began


@pytest.mark.parametrize(("companies", "count"), [(20, 1), (3, 2)])
async def test_other_companies_do_not_notice_that_some_are_refused(
    companies: int, count: int, connect: Connect
) -> None:
    """One of twenty costs a fifth of the time at most, two of three some seconds; and few tries."""
    service = Service(lambda _: 0.5, latency=0.05)
    refused = [f"c-{number}" for number in range(count)]
    client = await connect(service)
    async with client.coordinator() as pushes:
        alone = await seconds_of_others(pushes, companies, [])
    service.answer = lambda one: (
        refusal(429) if one.kind == "push" and one.company in refused else None
    )
    client, before = await connect(service), service.count("push")
    async with client.coordinator(leave="detach") as pushes:
        took = await seconds_of_others(pushes, companies, refused)

    assert took <= (1.2 * alone if companies == 20 else 30)
    assert service.count("push") - before <= 40 * (companies - count) + 15 * count
