"""Promises of a coordinator that stays open: what has stopped it passes, and it goes on."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from typing import Any

import pytest
from attrs import asdict, evolve

from integration_sdk import Coordinator, Dialect
from integration_sdk.errors import (
    AccountExpired,
    IntegrationError,
    PushError,
    ServiceUnavailable,
    StoreUnavailable,
    TooManyRequests,
    Unauthorized,
)
from integration_sdk.models import OutcomeStatus, PushRequest
from tests.support.push_support import Journal, collect, coordinator, on_record, request, requests
from tests.support.virtual_service import Answer, Asked, Service, no_answer, refusal

pytestmark = pytest.mark.virtual_time

ONE, OTHER = (evolve(request(1), company_id=name, reference=name) for name in ("one", "other"))
PAUSE = 700
REFUSALS: dict[str, tuple[Callable[[], Answer], type[IntegrationError]]] = {
    "429": (lambda: refusal(429, Retry_After=PAUSE, X_Rate_Limit_Remaining=5), TooManyRequests),
    "503": (lambda: refusal(503, Retry_After=PAUSE), ServiceUnavailable),
    "402": (lambda: refusal(402, message="account expired"), AccountExpired),
    "401": (lambda: refusal(401), Unauthorized),
}


def refusing(which: str, company: str | None = None) -> tuple[Service, asyncio.Event]:
    """Return a service that refuses creates (of a company), and an event that ends this."""
    passed = asyncio.Event()

    def answer(call: Asked) -> Answer | None:
        ours = call.kind == "push" and company in (None, call.company)
        return REFUSALS[which][0]() if ours and not passed.is_set() else None

    return Service(answer=answer), passed


@pytest.mark.parametrize("journaled", [False, True], ids=["memory", "journal"])
@pytest.mark.parametrize("which", REFUSALS)
async def test_who_pushes_later_is_not_refused_for_what_has_passed(
    which: str, journaled: bool
) -> None:
    """Neither single pushes nor runs; each was told of the refusal that it met."""
    service, passed = refusing(which)
    async with coordinator(service, journal=Journal() if journaled else None) as pushes:
        for _ in range(4):
            with pytest.raises(REFUSALS[which][1]):
                await pushes.submit(ONE)
        with pytest.raises(REFUSALS[which][1]):
            await collect(pushes.run(requests(100)))
        passed.set()
        await asyncio.sleep(PAUSE)
        single = await (await pushes.submit(ONE))
        run = await collect(pushes.run(requests(10)))

    assert single.status is OutcomeStatus.SUCCESS
    assert {one.status for one in run} == {OutcomeStatus.SUCCESS}


@pytest.mark.parametrize("which", ["429", "503"])
async def test_a_refusal_of_one_company_concerns_no_other(which: str) -> None:
    """What is under way for another company goes on, and it may push."""
    service, _ = refusing(which, company="one")
    async with coordinator(service) as pushes:
        before = await pushes.submit(OTHER)
        with pytest.raises(REFUSALS[which][1]):
            await pushes.submit(ONE)
        await asyncio.sleep(0 if which == "429" else PAUSE)  # 429 is said to be of one company
        after = await pushes.submit(OTHER)
        outcomes = [await before, await after]

    assert {one.status for one in outcomes} == {OutcomeStatus.SUCCESS}


async def test_an_open_push_is_followed_again_once_somebody_pushes() -> None:
    """An account that expired has it PENDING; it is on record, and so is its end."""
    service, passed = refusing("402", company="other")
    service.takes = lambda _: 100.0
    journal = Journal()
    async with coordinator(service, journal=journal) as pushes:
        first = await pushes.submit(ONE)
        with pytest.raises(AccountExpired):
            await pushes.submit(OTHER)
        assert (await first).status is OutcomeStatus.PENDING
        passed.set()
        again = await (await pushes.submit(ONE))

    assert (again.status, again.key) == (OutcomeStatus.SUCCESS, first.key)
    assert service.count("push") == 2


async def test_a_lost_push_is_searched_for_while_others_go_on() -> None:
    """Its company is another than that for which somebody pushes again."""
    service, passed = refusing("401", company="other")
    refuse, is_lost = service.answer, False
    assert refuse is not None

    def answer(call: Asked) -> Answer | None:
        nonlocal is_lost
        if call.kind == "push" and call.company == "one":
            is_lost = True
            service.carry_out(call)
            return no_answer()
        if call.kind == "list" and is_lost and not passed.is_set():
            return refusal(500)
        return refuse(call)

    service.answer = answer
    async with asyncio.timeout(600), coordinator(service, journal=Journal()) as pushes:
        lost = await pushes.submit(ONE)
        for _ in range(3):
            with pytest.raises(Unauthorized):
                await pushes.submit(OTHER)
        passed.set()
        assert (await (await pushes.submit(OTHER))).status is OutcomeStatus.SUCCESS
        outcome = await lost

    assert outcome.status is OutcomeStatus.SUCCESS


async def test_a_bug_does_not_pass() -> None:
    """Though a refusal that may pass has stopped the coordinator before."""
    service, _ = refusing("402", company="other")
    service.takes = lambda _: 1.0

    class Broken(Dialect):
        def is_contradicted(self, answer: bytes) -> bool:
            raise RuntimeError("a bug")

    dialect = Broken(**asdict(Dialect.document(), recurse=False))
    async with coordinator(service, dialect=dialect) as pushes:
        told = await asyncio.gather(
            pushed(pushes, ONE), pushed(pushes, OTHER), return_exceptions=True
        )
        with pytest.raises(PushError):
            await pushes.submit(ONE)

    assert AccountExpired in told


class Distant(Journal):
    """A database that other processes use, too, and that can be away."""

    def __init__(self) -> None:
        super().__init__(shared=True)
        self.is_back = asyncio.Event()
        self.is_back.set()
        self.before_write = self._reached

    async def _reached(self, _: Sequence[Any]) -> None:
        if not self.is_back.is_set():
            await asyncio.sleep(30)
            raise StoreUnavailable("the store cannot be reached")

    def go_away(self) -> None:
        self.is_back.clear()
        self.unreadable = StoreUnavailable("the store cannot be reached")

    def come_back(self) -> None:
        self.is_back.set()
        self.unreadable = None


async def pushed(pushes: Coordinator, asked: PushRequest) -> OutcomeStatus | type[IntegrationError]:
    try:
        return (await (await pushes.submit(asked))).status
    except IntegrationError as raised:
        return type(raised)


async def test_a_database_that_comes_back_is_used_again() -> None:
    """However long it was away: what was open is followed, what was sent is accounted for, and
    who pushes meanwhile is told.
    """
    service, journal = Service(lambda _: 10.0), Distant()
    async with coordinator(service, journal=journal) as pushes:
        await (await pushes.submit(evolve(OTHER, reference="first")))
        before = await pushes.submit(ONE)
        service.latency = 10.0
        on_its_way = asyncio.create_task(pushed(pushes, OTHER))
        await asyncio.sleep(5)
        journal.go_away()
        meanwhile = await pushed(pushes, evolve(ONE, reference="meanwhile"))
        ended = await before
        await asyncio.sleep(600)
        journal.come_back()
        service.latency = 0.03
        again = await pushed(pushes, evolve(ONE, reference="meanwhile"))
        await asyncio.sleep(120)

    assert meanwhile is StoreUnavailable
    assert ended.status is OutcomeStatus.SUCCESS
    assert again is OutcomeStatus.SUCCESS
    assert await on_its_way in {OutcomeStatus.PENDING, OutcomeStatus.SUCCESS}
    assert service.count("push") == 4
    states = {row.reference: row.state for row in await on_record(journal)}
    assert states == dict.fromkeys(("first", "one", "other", "meanwhile"), "DONE")


async def test_a_database_that_is_away_ends_the_runs() -> None:
    """Each push that was read has an outcome, and the rest is not read."""
    service, journal = Service(), Distant()
    read = 0

    def many() -> Any:
        nonlocal read
        for read in range(1, 1001):
            if read == 50:
                journal.go_away()
            yield evolve(request(read), reference=str(read))

    outcomes: list[Any] = []
    async with asyncio.timeout(300), coordinator(service, journal=journal) as pushes:
        with pytest.raises(StoreUnavailable):
            await collect(pushes.run(many()), into=outcomes)
        journal.come_back()

    assert sorted(one.request.record["number"] for one in outcomes) == list(range(1, read + 1))
    assert read < 200
