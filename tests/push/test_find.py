"""Promises of `Coordinator.find`: a reference says how its push stands, at no cost."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest
from attrs import evolve

from integration_sdk import Coordinator
from integration_sdk.errors import ConfigurationError
from integration_sdk.models import OutcomeStatus
from tests.support.push_support import coordinator, request
from tests.support.virtual_service import Service, no_answer, refusal

pytestmark = pytest.mark.virtual_time
NAMED = evolve(request(1), reference="INV-1")


@pytest.fixture
def journal(tmp_path: Path) -> Path:
    return tmp_path / "pushes.db"


def calls(service: Service) -> int:
    return service.count()


async def found(pushes: Coordinator) -> tuple[str | None, OutcomeStatus | None]:
    push = await pushes.find("INV-1")
    assert push
    assert push.request.reference == "INV-1"
    return push.key, push.outcome.status if push.outcome else None


async def test_a_push_that_goes_on_is_found_and_can_be_awaited(journal: Path) -> None:
    """It is the push itself: its key now, its outcome once it has one."""
    service = Service()
    async with coordinator(service, journal=journal) as pushes:
        assert await pushes.find("INV-1") is None
        submitted = await pushes.submit(NAMED)
        push = await pushes.find("INV-1")
        assert push
        assert (push.key, push.outcome) == (submitted.key, None)
        assert await push == await submitted
        assert await pushes.find("INV-2") is None


@pytest.mark.parametrize("later", [False, True], ids=["same run", "later run"])
@pytest.mark.parametrize("status", ["Success", "Failed", "TimedOut"])
async def test_a_push_that_has_ended_is_found_without_its_record(
    journal: Path, status: str, later: bool
) -> None:
    """Also in a later run, and without a call to the service."""
    service = Service(status=lambda _: status)
    async with coordinator(service, journal=journal) as pushes:
        ended = await (await pushes.submit(NAMED))
        if not later:
            assert await found(pushes) == (ended.key, ended.status)
    before = calls(service)
    if later:
        async with coordinator(service, journal=journal) as pushes:
            assert await found(pushes) == (ended.key, ended.status)
    assert calls(service) == before


@pytest.mark.parametrize("status", [400, 403, 422])
async def test_a_refused_push_is_found_as_rejected(journal: Path, status: int) -> None:
    """Whether or not the same record could be pushed once more, with the status in the error."""
    service = Service(answer=lambda call: refusal(status, "no") if call.body else None)
    async with coordinator(service, journal=journal) as pushes:
        await (await pushes.submit(NAMED))
    async with coordinator(service, journal=journal) as pushes:
        push = await pushes.find("INV-1")
        assert push
        assert push.outcome
        assert push.outcome.status is OutcomeStatus.REJECTED
        assert getattr(push.outcome.error, "status", None) == status


async def test_a_doubt_is_found_with_what_decides_it(journal: Path) -> None:
    """Its intent is what `decide` takes."""
    service = Service(answer=lambda call: no_answer() if call.body else None)
    async with coordinator(service, journal=journal) as pushes:
        await (await pushes.submit(NAMED))
        assert await found(pushes) == (None, OutcomeStatus.IN_DOUBT)
    async with asyncio.timeout(1000), coordinator(service, journal=journal) as pushes:
        push = await pushes.find("INV-1")
        assert push
        assert (await push).status is OutcomeStatus.IN_DOUBT
        await pushes.decide(str(push.intent), "abandon")
        assert await found(pushes) == (None, OutcomeStatus.IN_DOUBT)


async def test_a_push_that_nobody_follows_is_found_as_pending(journal: Path) -> None:
    """To ask for it often leaves nothing behind, and polls nothing."""
    service = Service(lambda _: float("inf"))
    async with coordinator(service, journal=journal) as pushes:
        push = await pushes.submit(NAMED)
        pushes.detach()
        await push
        before = calls(service)
        for _ in range(3):
            assert await found(pushes) == (push.key, OutcomeStatus.PENDING)
        assert calls(service) == before


async def test_without_a_journal_there_is_nothing_to_look_into() -> None:
    """Said as an error: None would mean that the reference is free."""
    async with coordinator(Service()) as pushes:
        with pytest.raises(ConfigurationError, match="journal="):
            await pushes.find("INV-1")


async def test_a_reference_is_a_text(journal: Path) -> None:
    """A number that names a push elsewhere names none here."""
    async with coordinator(Service(), journal=journal) as pushes:
        with pytest.raises(ConfigurationError, match="reference must be a str"):
            await pushes.find(17)  # type: ignore[arg-type]  # as a caller without types
