"""What users met, each as a test of its kind: ends that were not seen, loops, redirects, keys."""

from __future__ import annotations

import asyncio
import socket
from typing import Any

import pytest
from attrs import evolve

from integration_sdk import Client, PushRequest
from integration_sdk.errors import ConfigurationError
from integration_sdk.models import OutcomeStatus, PushStatus
from integration_sdk.sandbox import Sandbox
from tests.support.push_support import Journal, collect, coordinator, on_record, request, requests
from tests.support.virtual_service import Answer, Asked, Proceed, Service, no_answer

MINUTES = [1, 10, 15, 30, 60, 180, 1440]


@pytest.mark.virtual_time
@pytest.mark.parametrize("durable", [False, True])
@pytest.mark.parametrize("minutes", MINUTES)
async def test_a_push_that_the_service_gives_up_has_timed_out(minutes: int, durable: bool) -> None:
    """Its own deadline causes a look: it is not PENDING, however old it is by then."""
    service = Service(lambda _: minutes * 60.0, status=lambda _: "TimedOut")
    async with coordinator(service, journal=Journal() if durable else None) as pushes:
        outcome = await (await pushes.submit(request(timeout_minutes=minutes)))

    assert outcome.status is OutcomeStatus.TIMED_OUT


@pytest.mark.virtual_time
@pytest.mark.parametrize("early", [3.0, 20.0, 90.0])
@pytest.mark.parametrize("minutes", MINUTES)
async def test_a_wait_looks_once_more_before_it_ends(minutes: int, early: float) -> None:
    """What ended before the wait does is seen, with no deadline to go by."""
    service = Service(lambda _: minutes * 60.0 - early)
    async with service.client() as client:
        held = service.add()
        ended = await client.wait(held.key, company_id="c-0", timeout=minutes * 60.0)

    assert ended.status is PushStatus.SUCCESS


@pytest.mark.virtual_time
async def test_a_push_is_followed_on_after_its_wait() -> None:
    """With a journal its end is on record, though nothing waits for it."""
    journal = Journal()
    async with coordinator(Service(lambda _: 100.0), journal=journal) as pushes:
        push = await pushes.submit(request(reference="INV-1"), wait=20)
        assert (await push).status is OutcomeStatus.PENDING
        await asyncio.sleep(200)
        found = await pushes.find("INV-1")

    assert found is not None
    assert found.outcome is not None
    assert found.outcome.status is OutcomeStatus.SUCCESS


def test_a_client_polls_in_one_loop_after_another() -> None:
    """Each loop gets a polling loop of its own, though the client stayed open in the one before."""

    async def session(client: Client) -> str:
        async with Sandbox(companies=1, api_key="a key", port=port) as sandbox:
            company = sandbox.companies[0]
            books = client.company(company.id).connection(company.connections[0].id)
            push = await books.push("suppliers", {"supplierName": "Toft", "status": "Active"})
            return (await client.wait(push, timeout=20)).status

    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    client = Client("a key", f"http://127.0.0.1:{port}")
    for _ in range(3):
        assert asyncio.run(session(client)) == "Success"


@pytest.mark.virtual_time
async def test_a_key_in_capitals_is_the_same_key() -> None:
    """As a service on SQL Server writes it."""

    def shout(asked: Asked, proceed: Proceed) -> Answer:
        answer = proceed()
        if asked.kind in {"get", "list"}:
            answer.body = answer.body.replace(b"a000-", b"A000-").replace(b"-4000", b"-4000")
        return answer

    service = Service(faults=[shout])
    async with service.client() as client:
        for number in range(5):
            held = service.add(record={"number": number})
            held.key = held.key.replace("0000-4000", "a000-4000")
            service.by_key[held.key] = held
            ended = await client.wait(held.key, company_id="c-0", timeout=60)
            assert ended.status is PushStatus.SUCCESS


@pytest.mark.virtual_time
async def test_an_end_that_is_not_known_is_an_end() -> None:
    """It is reported with the service's own word, and its reference stays taken."""
    journal = Journal()
    async with coordinator(Service(status=lambda _: "Cancelled"), journal=journal) as pushes:
        outcome = await (await pushes.submit(request(reference="INV-1")))
        assert outcome.status is OutcomeStatus.FAILED
        assert "'Cancelled'" in str(outcome.error)
        with pytest.raises(ConfigurationError, match="different record"):
            await pushes.submit(request(2, reference="INV-1"))


@pytest.mark.virtual_time
@pytest.mark.parametrize(
    "answer",
    [
        Answer(301, b"moved", {"Location": "https://elsewhere/companies"}),
        Answer(308, b"", {"Location": "https://elsewhere/"}),
        Answer(200, b"<html>Sign in</html>"),
        Answer(403, b"<html>Blocked</html>"),
    ],
    ids=lambda answer: str(answer.status),
)
async def test_ten_answers_that_are_not_the_services_own_end_a_run(answer: Answer) -> None:
    """Not each of a thousand records in doubt; the next push tries again."""
    service = Service(answer=lambda call: answer if call.kind == "push" else None)
    async with coordinator(service, patience=1.0) as pushes:
        with pytest.raises(ConfigurationError, match="Check base_url="):
            await collect(pushes.run(requests(1000)))

    assert service.count("push") <= 10 + 64


@pytest.mark.parametrize("lost", [False, True])
@pytest.mark.virtual_time
@pytest.mark.parametrize("what", ["attach", "delete"])
async def test_attachments_and_deletes_are_on_record(what: str, lost: bool) -> None:
    """Once, however often the program runs; a lost one is not sent again."""
    journal = Journal()
    service = Service(answer=lambda call: no_answer() if lost and call.method != "GET" else None)
    facts: dict[str, Any] = (
        {"attach": ("a.pdf", b"\x00\xff")} if what == "attach" else {"delete": True}
    )
    one = PushRequest("c-0", "books", "bills", None, record_id="7", reference="r", **facts)
    service.carry_out = _carried(service)  # type: ignore[method-assign]  # it has no attachments
    for _ in range(2):
        async with coordinator(service, journal=journal, patience=1.0) as pushes:
            outcome = await (await pushes.submit(one))

    assert outcome.status is (OutcomeStatus.IN_DOUBT if lost else OutcomeStatus.SUCCESS)
    assert len([call for call in service.log if call.method != "GET"]) == 1
    assert len(await on_record(journal)) == 1
    with pytest.raises(ConfigurationError, match="record_id"):
        async with coordinator(service) as pushes:
            await pushes.submit(evolve(one, record_id=None))


def _carried(service: Service) -> Any:
    usual = service.carry_out

    def carry_out(asked: Asked) -> Answer:
        if asked.method == "GET":
            return usual(asked)
        held = service.add("c-0", "books", "bills", {})
        return Answer.of(service.shown(held, asked.at))

    return carry_out
