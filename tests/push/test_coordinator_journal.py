"""Promises of a coordinator with a journal: nothing twice, nothing forgotten, over runs."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import AsyncIterator, Sequence
from decimal import Decimal
from enum import IntEnum, StrEnum
from pathlib import Path
from typing import Any

import pytest
from attrs import evolve

from integration_sdk._outcome import PushOutcome
from integration_sdk.dialect import Dialect
from integration_sdk.errors import (
    ConfigurationError,
    JournalError,
    ReferenceConflict,
    TooManyRequests,
)
from integration_sdk.models import OutcomeStatus, PushRequest
from tests.support.push_support import (
    Journal,
    collect,
    coordinator,
    request,
    requests,
    swallowed,
    unanswered,
)
from tests.support.virtual_service import Answer, Asked, Service, no_answer, refusal

pytestmark = pytest.mark.virtual_time
PUBLISHED = Dialect.published()


AJournal = Journal | Path


def posts(service: Service) -> int:
    return service.count("push")


def referenced(count: int) -> list[PushRequest]:
    return [evolve(one, reference=f"INV-{number}") for number, one in enumerate(requests(count))]


async def with_open_pushes(count: int, journal: AJournal) -> Service:
    """Return a service at which an earlier run has left this many pushes Pending."""
    service = Service(lambda _: 60.0)
    async with coordinator(service, journal=journal, leave="detach") as pushes:
        for one in referenced(count):
            await pushes.submit(one)
    return service


async def test_a_file_pushed_twice_is_posted_once(journal: AJournal) -> None:
    """The second run makes no further POST and returns the recorded outcomes."""
    service = Service(status=lambda record: "Failed" if record["number"] == 2 else "Success")
    results = []
    for _ in range(2):
        async with coordinator(service, journal=journal) as pushes:
            outcomes = await collect(pushes.run(referenced(20), ordered=True))
            results.append([(one.reference, one.status, one.key) for one in outcomes])

    assert posts(service) == 20
    assert results[0] == results[1]
    assert results[0][2][1] is OutcomeStatus.FAILED


async def test_a_refusal_is_remembered_and_a_corrected_record_is_sent(journal: AJournal) -> None:
    """What was refused stays refused as it is; corrected, it goes under the same reference."""
    service = Service()
    service.answer = lambda call: (
        refusal(400, "bad") if call.body and b'"number":7' in call.body else None
    )
    wrong = evolve(request(7), reference="INV-7")
    for _ in range(2):
        async with coordinator(service, journal=journal) as pushes:
            assert (await (await pushes.submit(wrong))).status is OutcomeStatus.REJECTED
    assert posts(service) == 1

    async with coordinator(service, journal=journal) as pushes:
        right = evolve(wrong, record={"number": 8})
        assert (await (await pushes.submit(right))).status is OutcomeStatus.SUCCESS


async def test_a_reference_stands_for_one_record(journal: AJournal) -> None:
    """A reference that was pushed with another record is a conflict, not taken for the same."""
    service = Service()
    async with coordinator(service, journal=journal) as pushes:
        await (await pushes.submit(evolve(request(1), reference="INV-1")))
        with pytest.raises(ReferenceConflict, match="different record") as caught:
            await pushes.submit(evolve(request(2), reference="INV-1"))
        (outcome,) = await collect(pushes.run([evolve(request(2), reference="INV-1")]))
    assert caught.value.reference == "INV-1"
    assert isinstance(outcome.error, ReferenceConflict)
    assert posts(service) == 1


async def test_a_record_is_the_same_in_any_order_of_its_fields(journal: AJournal) -> None:
    """A service that builds its records anew may order them otherwise, at any depth."""
    service = Service()
    first = {"number": 1, "lines": [{"sku": "a", "price": Decimal("1.10")}], "note": "x"}
    second = {"note": "x", "lines": [{"price": Decimal("1.10"), "sku": "a"}], "number": 1}
    outcomes = []
    for record in (first, second):
        async with coordinator(service, journal=journal) as pushes:
            named = evolve(request(), record=record, reference="INV-1")
            outcomes.append(await (await pushes.submit(named)))
    assert posts(service) == 1
    assert outcomes[0].key == outcomes[1].key


async def test_who_is_refused_a_reference_takes_it_from_nobody(journal: AJournal) -> None:
    """It stays with the push that has it, and whoever asks for that again joins it."""
    service = Service(faults=[unanswered])
    async with asyncio.timeout(1000), coordinator(service, journal=journal) as pushes:
        first = await pushes.submit(evolve(request(1), reference="INV-1"))
        with pytest.raises(ConfigurationError):
            await pushes.submit(evolve(request(2), reference="INV-1"))
        again = await pushes.submit(evolve(request(1), reference="INV-1"))
        outcomes = [await first, await again]

    assert [one.status for one in outcomes] == [OutcomeStatus.SUCCESS] * 2
    assert posts(service) == 1


async def test_a_later_run_goes_on_with_what_is_open(journal: AJournal) -> None:
    """Pushes that were left Pending are polled to their end by the next run, not sent again."""
    service = await with_open_pushes(5, journal)

    async with coordinator(service, journal=journal) as pushes:
        outcomes = [await push for push in pushes.recovered]

    assert [one.status for one in outcomes] == [OutcomeStatus.SUCCESS] * 5
    assert posts(service) == 5


async def test_a_crash_while_sending_is_searched_for_and_never_sent_again() -> None:
    """What was on its way when the process died is searched for, and found or IN_DOUBT."""
    service, journal = Service(latency=1.0), Journal()
    async with coordinator(service, journal=journal, leave="detach") as pushes:
        submits = [asyncio.ensure_future(pushes.submit(one)) for one in referenced(2)]
        await asyncio.sleep(1.8)
        journal.crash()
    await asyncio.gather(*submits, return_exceptions=True)

    async with coordinator(service, journal=journal) as pushes:
        outcomes = [await push for push in pushes.recovered]

    assert {one.status for one in outcomes} == {OutcomeStatus.SUCCESS}
    assert {one.key for one in outcomes} == set(service.by_key)
    assert posts(service) == 2


async def test_what_waits_at_the_gate_is_no_doubt_after_a_crash() -> None:
    """No push that never left is on record as being sent; the next run sends each once."""
    service, journal = Service(answer=lambda _: refusal(429, Retry_After=50)), Journal()
    async with (
        service.client() as client,
        client.coordinator(journal=journal, leave="detach") as pushes,
    ):
        with pytest.raises(TooManyRequests):  # the service asks everybody to stay away
            await client.company("c-0").get()
        service.answer = None
        submits = [asyncio.ensure_future(pushes.submit(one)) for one in referenced(20)]
        await asyncio.sleep(30)
        journal.crash()
    await asyncio.gather(*submits, return_exceptions=True)
    assert posts(service) == 0

    async with coordinator(service, journal=journal) as pushes:
        outcomes = await collect(pushes.run(referenced(20)))

    assert [one.status for one in outcomes] == [OutcomeStatus.SUCCESS] * 20
    assert posts(service) == 20


async def test_a_full_disk_ends_the_run() -> None:
    """Not each of a million records after the other; what was sent has its outcome first."""
    service, journal = Service(lambda _: 60.0), Journal()
    pulled = 0

    def until_full(_: Sequence[Any]) -> None:
        if posts(service) >= 200:
            raise JournalError("full")

    async def million() -> AsyncIterator[PushRequest]:
        nonlocal pulled
        for pulled in range(1_000_000):
            yield request(pulled)

    journal.before_write = until_full
    outcomes: list[PushOutcome] = []
    async with asyncio.timeout(1000), coordinator(service, journal=journal) as pushes:
        with pytest.raises(JournalError, match="full"):
            await collect(pushes.run(million()), into=outcomes)

    assert len(outcomes) == pulled + 1 <= 200 + 2 * 64
    assert {one.key for one in outcomes if one.key} == set(service.by_key)
    statuses = Counter(one.status for one in outcomes)
    assert statuses.keys() <= {OutcomeStatus.SUCCESS, OutcomeStatus.PENDING, OutcomeStatus.REJECTED}
    assert statuses[OutcomeStatus.SUCCESS] >= 200 - 64


async def test_a_push_that_is_found_while_the_disk_is_full_is_found_once_there_is_room() -> None:
    """The search goes on, and says in the log why it found nothing."""
    service, journal = Service(faults=[unanswered]), Journal()

    def is_full(rows: Sequence[Any]) -> None:
        if asyncio.get_running_loop().time() < 60 and rows[0].state == "OPEN":
            raise JournalError("full")

    journal.before_write = is_full
    async with asyncio.timeout(1000), coordinator(service, journal=journal) as pushes:
        outcome = await (await pushes.submit(evolve(request(1), reference="INV-1")))
    async with coordinator(service, journal=journal) as pushes:
        again = await (await pushes.submit(evolve(request(1), reference="INV-1")))

    assert outcome.status is again.status is OutcomeStatus.SUCCESS
    assert outcome.key == again.key
    assert posts(service) == 1


async def test_what_is_in_doubt_stays_on_record(journal: AJournal) -> None:
    """An IN_DOUBT push is shown by the next run, which does not send it either."""
    service = Service(faults=[swallowed])
    async with coordinator(service, journal=journal) as pushes:
        first = await (await pushes.submit(evolve(request(1), reference="INV-1")))
    async with coordinator(service, journal=journal) as pushes:
        (shown,) = pushes.in_doubt
        again = await (await pushes.submit(evolve(request(1), reference="INV-1")))

    assert first.status is again.status is OutcomeStatus.IN_DOUBT
    assert shown.outcome
    assert shown.outcome.status is OutcomeStatus.IN_DOUBT
    assert posts(service) == 1


async def test_a_decision_to_leave_it_is_final(journal: AJournal) -> None:
    """An abandoned push is not shown as in doubt by later runs, and is never sent."""
    service = Service(faults=[swallowed])
    async with coordinator(service, journal=journal) as pushes:
        push = await pushes.submit(evolve(request(1), reference="INV-1"))
        await push
        await pushes.decide(str(push.intent), "abandon")
    async with coordinator(service, journal=journal) as pushes:
        assert pushes.in_doubt == ()

    assert posts(service) == 1


async def test_a_journal_in_use_is_refused(journal: AJournal) -> None:
    """Two coordinators on one file: the second is told, and nothing is sent."""
    service = Service()
    async with coordinator(service, journal=journal):
        with pytest.raises(JournalError):
            async with coordinator(service, journal=journal):
                pass


async def test_a_block_that_cannot_be_entered_leaves_nothing_behind() -> None:
    """Where recovery fails the journal is let go of; the same block can be entered later."""
    journal, service = Journal(), Service()
    async with service.client() as client:
        pushes = client.coordinator(journal=journal)
        journal.unreadable = JournalError("unreadable")
        with pytest.raises(JournalError, match="unreadable"):
            await pushes.__aenter__()

        journal.unreadable = None
        async with pushes:
            assert (await (await pushes.submit(request()))).status is OutcomeStatus.SUCCESS


async def test_an_idempotency_key_is_kept_over_transmissions(journal: AJournal) -> None:
    """With a service that has such keys, each push has one, and a repeat carries the same."""
    keys: list[str] = []

    def answer(call: Asked) -> Answer | None:
        if call.kind == "push":
            keys.append(call.headers["Idempotency-Key"])
            return refusal(429) if len(keys) == 1 else None
        return None

    service = Service(answer=answer)
    async with coordinator(service, journal=journal, dialect=Dialect.published()) as pushes:
        await collect(pushes.run(requests(2)))

    assert len(keys) == 3
    assert len(set(keys)) == 2


@pytest.mark.parametrize(
    ("record_id", "times"),
    [pytest.param(None, 5, id="a create"), pytest.param("r", 1, id="an update")],
)
async def test_only_what_carries_an_idempotency_key_is_repeated_in_doubt(
    journal: AJournal, record_id: str | None, times: int
) -> None:
    """The service honours keys of creates alone: a lost update is searched for instead."""
    sent: list[Asked] = []

    def answer(call: Asked) -> Answer | None:
        if call.kind == "push":
            sent.append(call)
            return no_answer()
        return None

    one = evolve(request(1), record_id=record_id)
    async with coordinator(Service(answer=answer), journal=journal, dialect=PUBLISHED) as pushes:
        push = await pushes.submit(one)
        outcome = await push
        first = len(sent)
        await pushes.decide(str(push.intent), "resend")

    assert outcome.status is OutcomeStatus.IN_DOUBT
    assert (first, len(sent)) == (times, 2 * times)
    assert all(("Idempotency-Key" in call.headers) is (record_id is None) for call in sent)


class Word(StrEnum):
    """A program's own names for things."""

    COMPANY = "company-word"
    CONNECTION = "connection-word"
    INVOICES = "invoices"
    REFERENCE = "INV-1"
    NATURAL_KEY = "number"


class Minutes(IntEnum):
    LONG = 90


async def test_names_from_enums_are_written_as_what_they_stand_for(journal: AJournal) -> None:
    """A journal of such pushes can be opened again, and knows them by the bare names."""
    service = Service()
    named = PushRequest(
        Word.COMPANY,
        Word.CONNECTION,
        Word.INVOICES,
        {"number": 1},
        reference=Word.REFERENCE,
        natural_key=Word.NATURAL_KEY,
        timeout_minutes=Minutes.LONG,
    )
    async with coordinator(service, journal=journal) as pushes:
        first = await (await pushes.submit(named))
    async with coordinator(service, journal=journal) as pushes:
        again = await (await pushes.submit(evolve(named, reference="INV-1")))

    assert (first.status, again.key) == (OutcomeStatus.SUCCESS, first.key)
    assert posts(service) == 1


async def test_a_push_is_bound_to_something_that_can_be_a_key(journal: AJournal) -> None:
    """What could not be polled is refused, and the push stays in doubt."""
    service = Service(faults=[swallowed])
    async with coordinator(service, journal=journal) as pushes:
        push = await pushes.submit(request(1))
        await push
        for nonsense in ("../keys", "", 5):
            with pytest.raises(ConfigurationError, match="bind"):
                await pushes.decide(str(push.intent), bind=nonsense)  # type: ignore[arg-type]  # on purpose
        assert pushes.in_doubt == (push,)


@pytest.mark.virtual_time
async def test_a_full_disk_is_told_once(caplog: pytest.LogCaptureFixture) -> None:
    """Not once for each push that waits for its turn: each has its own outcome."""
    service, journal = Service(latency=1.0), Journal()

    def is_full(_: Any) -> None:
        if posts(service) >= 5:
            raise JournalError("full")

    journal.before_write = is_full
    async with coordinator(service, journal=journal, per_company=1) as pushes:
        with pytest.raises(JournalError, match="full"):
            await collect(pushes.run(requests(40)))

    assert len(caplog.messages) <= 5, caplog.messages
