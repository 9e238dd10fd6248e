"""Promises of a coordinator with a journal: nothing twice, nothing forgotten, whatever crashes."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from pathlib import Path
from typing import Any

import pytest

from integration_sdk import OutcomeStatus, PushOutcome
from integration_sdk._store.row import Row
from integration_sdk.errors import (
    ConfigurationError,
    JournalError,
    StoreUnavailable,
    TooManyRequests,
)
from tests.support.push_support import (
    AJournal,
    Connect,
    Fate,
    Input,
    Journal,
    collect,
    coordinator,
    fated,
    first_ending,
    named,
    on_record,
    push_once,
    pushed,
    request,
    requests,
    run_once,
    statuses,
)
from tests.support.virtual_service import Service, refusal

pytestmark = pytest.mark.virtual_time
SUCCESS, IN_DOUBT = OutcomeStatus.SUCCESS, OutcomeStatus.IN_DOUBT


async def crashed(service: Service, journal: Journal, state: str) -> None:
    """Push, and crash as soon as *state* is on record."""

    def crash_at(rows: Sequence[Any]) -> None:
        if rows[0].state == state:
            journal.crash()

    journal.after_write = crash_at
    async with coordinator(service, journal=journal, patience=1.0, leave="detach") as pushes:
        submit = asyncio.create_task(pushes.submit(named(natural_key="number")))
        if state == "QUEUED":  # whose caller does not wait for its turn
            await asyncio.sleep(0.01)
            submit.cancel()
        await asyncio.gather(submit, return_exceptions=True)
        await asyncio.sleep(10)
    journal.after_write = lambda _: None


LEFT: list[tuple[str, Fate, bool]] = [
    ("QUEUED", None, False),
    ("SENDING", None, True),
    ("SENDING", "swallowed", False),
    ("OPEN", None, True),
    ("LOST", "lost", True),
    ("LOST", "swallowed", False),
    ("DOUBT", "swallowed", False),
]


@pytest.mark.parametrize("in_doubt", ["ask", "resend"])
@pytest.mark.parametrize(("state", "fate", "exists"), LEFT)
async def test_a_crash_leaves_no_push_without_an_outcome(
    state: str, fate: Fate, exists: bool, in_doubt: str
) -> None:
    """Whenever it comes; who pushes the same again joins what the crash has left."""
    service, journal = fated(fate), Journal()
    await crashed(service, journal, state)
    assert [row.state for row in await on_record(journal)] == [state]
    left = service.count("push")

    async with coordinator(service, journal=journal, in_doubt=in_doubt) as pushes:
        (recovered,) = pushes.recovered
        again = await pushed(pushes, named(natural_key="number"))
        outcomes = [await recovered, again]

    is_sent = not exists and (state == "QUEUED" or in_doubt == "resend")
    assert statuses(outcomes) == {SUCCESS if exists or is_sent else IN_DOUBT: 2}
    assert {one.key for one in outcomes} == set(service.by_key or {None})
    assert service.count("push") == left + is_sent


async def test_what_waits_at_the_gate_is_no_doubt_after_a_crash(connect: Connect) -> None:
    """No push that never left is on record as being sent; the next run sends each once."""
    service, journal = Service(answer=lambda _: refusal(429, Retry_After=50)), Journal()
    client, asked = await connect(service), [named(number) for number in range(20)]
    with pytest.raises(TooManyRequests):  # the service asks everybody to stay away
        await client.company("c-0").get()
    service.answer = None
    async with client.coordinator(journal=journal, leave="detach") as pushes:
        submits = [asyncio.ensure_future(pushes.submit(one)) for one in asked]
        await asyncio.sleep(30)
        journal.crash()
    await asyncio.gather(*submits, return_exceptions=True)
    assert service.count("push") == 0

    assert statuses(await run_once(service, asked, journal=journal)) == {SUCCESS: 20}
    assert service.count("push") == 20


async def test_a_worker_that_was_away_waits_a_lease_before_it_claims() -> None:
    """After an outage of the database all workers beat before any takes another's rows."""
    service, first = Service(lambda _: 1e6), Journal(shared=True)
    async with coordinator(service, journal=first, leave="detach") as pushes:
        await pushes.submit(named())
    one = await Journal(shared=True, beside=first)._lend()
    await one.beat()
    await asyncio.sleep(2.1 * one.beat_every)
    await one.beat()
    assert await one.claim() == []
    for _ in range(3):
        await asyncio.sleep(one.beat_every)
        await one.beat()

    assert [row.reference for row in await one.claim()] == ["INV-1"]


async def test_what_is_in_doubt_stays_on_record(
    journal: AJournal, caplog: pytest.LogCaptureFixture
) -> None:
    """The next run shows it and does not send it; the log names each once, old ones in one line."""
    service = fated(ever="swallowed")
    asked = [named(number) for number in range(5)]
    assert statuses(await run_once(service, asked, journal=journal)) == {IN_DOUBT: 5}
    assert len([one for one in caplog.messages if "may or may not have been pushed" in one]) == 5

    for _ in range(2):
        caplog.clear()
        async with coordinator(service, journal=journal) as pushes:
            told = [await pushed(pushes, asked[0]), *[await one for one in pushes.recovered]]
            assert statuses(told) == {IN_DOUBT: 6}
            assert len(pushes.in_doubt) == 5
        (line,) = [one.getMessage() for one in caplog.records if one.levelname == "WARNING"]
        assert line.startswith("pushes that earlier runs left in doubt: 5;")
        assert len(line) < 200
    assert service.count("push") == 5


def breaking_when(
    breaks: Callable[[Sequence[Any]], bool], error: Exception | None = None
) -> Journal:
    """Return a journal that refuses some writes."""
    journal = Journal()

    def write(rows: Sequence[Any]) -> None:
        if breaks(rows):
            raise error or JournalError("full")

    journal.before_write = write
    return journal


async def test_a_full_disk_ends_the_run(caplog: pytest.LogCaptureFixture) -> None:
    """Not a million records one by one, nor in the log; what was sent has its outcome first."""
    service, given, outcomes = Service(lambda _: 60.0), Input(1_000_000), list[PushOutcome]()
    journal = breaking_when(lambda _: service.count("push") >= 200)
    async with asyncio.timeout(1000), coordinator(service, journal=journal) as pushes:
        with pytest.raises(JournalError, match="full"):
            await collect(pushes.run(given), into=outcomes)

    assert len(outcomes) == given.pulled <= 200 + 2 * 64
    assert {one.key for one in outcomes if one.key} == set(service.by_key)
    kinds = statuses(outcomes)
    assert kinds.keys() <= {SUCCESS, OutcomeStatus.PENDING, OutcomeStatus.REJECTED}
    assert kinds[SUCCESS] >= 200 - 64
    assert sum("nothing more is pushed" in one for one in caplog.messages) == 1


@pytest.mark.parametrize("error", [JournalError("gone"), OSError("gone")])
async def test_nothing_is_sent_without_its_row(error: Exception) -> None:
    """Whatever the journal raises: the push is told of, and no byte leaves."""
    service, journal = Service(), breaking_when(lambda rows: rows[0].state == "SENDING", error)
    with pytest.raises(JournalError, match="gone"):
        await push_once(service, journal=journal)
    assert service.count("push") == 0


async def test_an_answer_that_cannot_be_recorded_is_found_by_the_next_run() -> None:
    """The push is handed out with its key; nothing more is sent, and nothing is sent twice."""
    service = Service(takes=lambda _: 60.0)
    journal = breaking_when(lambda rows: rows[0].state == "OPEN")
    async with asyncio.timeout(100), coordinator(service, journal=journal) as pushes:
        push = await pushes.submit(request(1))
        with pytest.raises(JournalError, match="full"):
            await pushes.submit(request(2))
        outcome = await push
    journal.before_write = lambda _: None
    async with asyncio.timeout(1000), coordinator(service, journal=journal) as pushes:
        (found,) = [await one for one in pushes.recovered]

    assert outcome.status is OutcomeStatus.PENDING
    assert isinstance(outcome.error, JournalError)
    assert (found.status, found.key) == (SUCCESS, outcome.key)
    assert service.count("push") == 1


@pytest.mark.parametrize("error", [JournalError("full"), OSError("gone")])
async def test_an_end_that_cannot_be_recorded_is_told(error: Exception) -> None:
    """The service has said how the push ended; the next run reads it once more."""
    service, journal = Service(), breaking_when(lambda rows: rows[0].state == "DONE", error)
    outcomes = await run_once(service, requests(3), journal=journal)
    journal.before_write = lambda _: None
    async with asyncio.timeout(100), coordinator(service, journal=journal) as pushes:
        again = [await push for push in pushes.recovered]

    assert statuses(outcomes) == statuses(again) == {SUCCESS: 3}
    assert service.count("push") == 3


async def test_an_end_is_recorded_at_intervals_until_the_database_is_back() -> None:
    """However soon it says that it is away; the outcome is told at once."""
    away = breaking_when(lambda rows: rows[0].state == "DONE", StoreUnavailable("away"))
    tries, breaks = list[float](), away.before_write

    def counted(rows: list[Row]) -> Awaitable[None] | None:
        tries.append(asyncio.get_running_loop().time())
        return breaks(rows)

    away.before_write = counted
    async with coordinator(Service(), journal=away) as pushes:
        assert (await pushed(pushes)).status is SUCCESS
        del tries[:]
        await asyncio.sleep(60)
        assert 25 <= len(tries) <= 31
        away.before_write = lambda _: None
        await asyncio.sleep(3)
        assert [row.state for row in await on_record(away)] == ["DONE"]


async def test_a_search_ends_with_a_journal_that_is_broken_for_good(tmp_path: Path) -> None:
    """What it finds could not be recorded; the next run searches for it."""
    journal = tmp_path / "pushes.db"
    async with asyncio.timeout(100), coordinator(fated("lost"), journal=journal) as pushes:
        push = await pushes.submit(named())
        journal.rename(tmp_path / "elsewhere.db")
        assert (await push).status is OutcomeStatus.IN_DOUBT
        with pytest.raises(JournalError, match="moved"):
            await pushes.submit(named(2))


@pytest.mark.parametrize("later", [False, True], ids=["same run", "later run"])
@pytest.mark.parametrize("how", ["Success", "Failed", "TimedOut", "400", "403", "422", "swallowed"])
async def test_a_push_is_found_as_it_stands(journal: AJournal, how: str, later: bool) -> None:
    """Also in a later run, without its record and without a call to the service."""
    service, status = first_ending(how), int(how) if how.isdigit() else None
    async with coordinator(service, journal=journal) as pushes:
        ended = await pushed(pushes, named())
        found = await pushes.find("INV-1")
    if later:
        async with coordinator(service, journal=journal, leave="detach") as pushes:
            before = service.count()
            found = await pushes.find("INV-1")
            assert service.count() == before

    assert found
    assert found.request.reference == "INV-1"
    assert (found.key, (await found).status) == (ended.key, ended.status)
    assert (ended.status is OutcomeStatus.REJECTED) is how.isdigit()
    for outcome in (ended, await found):
        assert getattr(outcome.error, "status", None) == status


async def test_a_push_that_goes_on_is_found_and_can_be_awaited() -> None:
    """It is the push itself, until nobody follows it; to ask for it often polls nothing."""
    service = Service(lambda _: 1e6)
    async with coordinator(service, journal=Journal()) as pushes:
        assert await pushes.find("INV-1") is None
        submitted = await pushes.submit(named())
        push = await pushes.find("INV-1")
        assert push
        assert (push.key, push.outcome) == (submitted.key, None)
        assert await pushes.find("INV-2") is None
        pushes.detach()
        assert await push == await submitted
        before = service.count()
        for _ in range(100):
            push = await pushes.find("INV-1")
            assert push
            assert (push.key, (await push).status) == (submitted.key, OutcomeStatus.PENDING)
        assert service.count() == before


async def test_what_cannot_be_found_is_said() -> None:
    """None would mean that the reference is free; a number names no push here."""
    wrong: Any = 17
    async with coordinator(Service()) as pushes:
        with pytest.raises(ConfigurationError, match="journal="):
            await pushes.find("INV-1")
        with pytest.raises(ConfigurationError, match="reference must be a str"):
            await pushes.find(wrong)
