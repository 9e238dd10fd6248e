"""What clients of today get wrong, each as a test that ours does not.

Every defect was measured; the first line of each docstring names who has it. The rules behind
them are proved elsewhere in full; here each has one plain case, through the whole client.
"""

from __future__ import annotations

import asyncio
import json
import pickle
from datetime import UTC, datetime, timedelta
from email.utils import format_datetime
from typing import Any

import pytest

from benchmarks.virtual_service import Answer, Asked, Proceed, Service
from integration_sdk import CallInfo, Client, PushOperation, PushStatus, errors
from integration_sdk.sandbox import Sandbox
from tests.support.session_support import RawServer, answer, raw_server

pytestmark = pytest.mark.virtual_time

KEY = "canary-key-5f2c"
RECORD = {
    "invoiceNumber": "INV-17",
    "customerRef": {"id": "c-1"},
    "issueDate": "2024-03-01",
    "dueDate": "2024-03-31",
    "currency": "GBP",
    "status": "Submitted",
    "lineItems": [{"description": "Ash worktop", "unitAmount": 120.5, "quantity": 2}],
}
small = pytest.mark.integration_sandbox(companies=1, invoices=10)


def books(client: Client, sandbox: Sandbox) -> Any:
    company = sandbox.companies[0]
    return client.company(company.id).connection(company.connections[0].id)


def envelope(number: int, items: int, following: str | None, total: int = 200) -> bytes:
    links = "{}" if following is None else f'{{"next":{{"href":{json.dumps(following)}}}}}'
    results = ",".join(f'{{"id":"{number}-{item}"}}' for item in range(items))
    page = f'"pageNumber":{number},"pageSize":100,"totalResults":{total},"_links":{links}'
    return f'{{"results":[{results}],{page}}}'.encode()


# Lists


async def read_sparse(pages: int, *, total: int, prefetch: int = 0) -> list[str]:
    """Read a list of so many pages, of which all but the first and last are empty."""

    def sparse(asked: Asked, proceed: Proceed) -> Answer:
        number = int(asked.params["page"])
        following = f"/companies?page={number + 1}&pageSize=100" if number < pages else None
        body = envelope(number, int(number in {1, pages}), following, total)
        return Answer(body=body)

    async with Service(faults=[sparse]).client() as client:
        return [item["id"] async for item in client.companies.list(prefetch=prefetch)]


@pytest.mark.parametrize("total", [2, 300])
@pytest.mark.parametrize("prefetch", [0, 4])
async def test_an_empty_page_in_the_middle_ends_nothing(prefetch: int, total: int) -> None:
    """Stainless-made SDKs, Stripe's and MS Graph's pagers end at the first empty page."""
    assert await read_sparse(3, total=total, prefetch=prefetch) == ["1-0", "3-0"]


async def test_two_thousand_empty_pages_are_passed_over() -> None:
    """Azure's pager recurses, and dies after about 1,000 empty pages."""
    assert await read_sparse(2002, total=2) == ["1-0", "2002-0"]


@pytest.mark.parametrize(
    "link",
    [
        "http://127.0.0.1:{port}/companies?page=2&pageSize=100",
        "//127.0.0.1:{port}/companies?page=2&pageSize=100",
        "http:\\\\127.0.0.1:{port}/companies?page=2&pageSize=100",
        "http://127.0.0.1:{home}@127.0.0.1:{port}/companies?page=2&pageSize=100",
        "http://localhost:{port}/companies?page=2&pageSize=100",
        "http://127.0.0.2:{home}/companies?page=2&pageSize=100",
    ],
)
async def test_a_foreign_next_link_gets_no_connection(link: str) -> None:
    """Several pagers send ``Authorization`` to whatever host a next link names."""

    async def listen(server: RawServer, reader: Any, writer: Any) -> None:
        await server.receive(reader)

    async def serve(server: RawServer, reader: Any, writer: Any) -> None:
        while True:
            await server.receive(reader)
            following = link.format(port=canary.port, home=server.port)
            writer.write(answer(200, envelope(1, 100, following), Content_Type="application/json"))
            await writer.drain()

    async with raw_server(listen) as canary, raw_server(serve) as home:
        same_port = await asyncio.start_server(canary.connected, "127.0.0.2", home.port)
        async with same_port, Client(KEY, home.base_url) as client:
            with pytest.raises(errors.UnsafeLink):
                await client.companies.list(prefetch=0).collect()

        assert canary.connections == 0
        assert len(home.requests) == 1


# Waiting for the service


@small
async def test_retry_after_may_be_a_date(
    integration_sandbox: Sandbox,
) -> None:
    """githubkit crashes on an HTTP date; here it is a floor like a number of seconds."""
    calls: list[CallInfo] = []
    until = format_datetime(datetime.now(UTC) + timedelta(seconds=40), usegmt=True)
    integration_sandbox.faults.status(429, headers={"Retry-After": until}, times=1)

    key, url = integration_sandbox.api_key, integration_sandbox.base_url
    async with Client(key, url, on_call=calls.append) as client:
        await client.companies.list()

    assert [(call.status, call.attempts) for call in calls] == [(200, 2)]
    assert calls[0].waited >= 30


@small
async def test_retry_after_zero_is_no_hot_loop(
    integration_sandbox: Sandbox, integration_client: Client
) -> None:
    """With ``Retry-After: 0`` the vendor's SDK sent 4,611 POSTs in 2 seconds."""
    integration_sandbox.faults.status(429, headers={"Retry-After": "0"}, route="POST /push/")

    with pytest.raises(errors.TooManyRequests):
        await books(integration_client, integration_sandbox).push("invoices", RECORD)

    assert 1 <= integration_sandbox.count("POST", "/push/") <= 5


@small
async def test_a_crowd_meets_one_gate(
    integration_sandbox: Sandbox, integration_client: Client
) -> None:
    """Private waits: 1,000 calls against 100/s gave 600 failures, or 3,327 429s."""
    integration_sandbox.faults.rate_limit(per_second=100)
    company = integration_client.with_options(timeout=None).company

    async def read() -> None:
        await company(integration_sandbox.companies[0].id).data("invoices").list(page_size=1)

    await asyncio.gather(*(read() for _ in range(1000)))

    assert integration_sandbox.count("GET", status=200) == 1000
    assert integration_sandbox.count("GET", status=429) <= 120


@small
async def test_calls_are_not_bound_to_a_pool_of_threads(
    integration_sandbox: Sandbox, integration_client: Client
) -> None:
    """The vendor's ``*_async`` runs in threads: 6 requests in flight on 2 cores."""
    gate = asyncio.Event()

    async def wait(_call: Any, proceed: Any) -> Any:
        waiting.append(1)
        if len(waiting) == 16:
            gate.set()
        await gate.wait()
        return await proceed()

    waiting: list[int] = []
    integration_sandbox.faults.add(wait)
    await asyncio.gather(*(integration_client.companies.list() for _ in range(16)))

    assert integration_sandbox.most_in_flight == 16


# Writing


@small
@pytest.mark.parametrize("moment", ["in flight", "between two attempts"])
async def test_nothing_is_done_after_a_cancellation(
    integration_sandbox: Sandbox, integration_client: Client, moment: str
) -> None:
    """The vendor's SDK goes on after its task was cancelled."""
    arrived = asyncio.Event()

    async def act(_call: Any, proceed: Any) -> Any:
        arrived.set()
        if moment == "in flight":
            await asyncio.sleep(3600)
        return await proceed()

    integration_sandbox.faults.add(act, route="POST /push/")
    integration_sandbox.faults.status(429, headers={"Retry-After": "20"}, route="POST /push/")
    push = asyncio.create_task(
        books(integration_client, integration_sandbox).push("invoices", RECORD)
    )
    await arrived.wait()
    await asyncio.sleep(1)

    push.cancel()
    with pytest.raises(asyncio.CancelledError):
        await push
    await asyncio.sleep(7200)

    assert integration_sandbox.count("POST", "/push/") == 1
    assert integration_client.stats().in_flight == integration_client.stats().waiting == 0


@small
@pytest.mark.parametrize("status", [500, 502, 504])
async def test_a_post_is_not_replayed(
    integration_sandbox: Sandbox, integration_client: Client, status: int
) -> None:
    """The vendor's SDK repeats POST on 5xx for up to an hour: 3 duplicates of one record."""
    integration_sandbox.faults.status(status, processed=True, route="POST /push/")

    with pytest.raises(errors.ApiError):
        await books(integration_client, integration_sandbox).push("invoices", RECORD)

    assert len(integration_sandbox.pushes) == 1


@small
@pytest.mark.parametrize("method", ["push", "update"])
async def test_a_lost_answer_repeats_nothing(
    integration_sandbox: Sandbox, integration_client: Client, method: str
) -> None:
    """A ``backoff`` decorator doubles the POST; aiohttp itself silently doubles the PUT."""
    integration_sandbox.faults.lose_answer()
    connection = books(integration_client, integration_sandbox)
    invoice = integration_sandbox.data_set(integration_sandbox.companies[0].id, "invoices").ids()[0]
    arguments = ("invoices", RECORD) if method == "push" else ("invoices", invoice, RECORD)

    with pytest.raises(errors.AnswerLost, match="look before you repeat it"):
        await getattr(connection, method)(*arguments)

    assert len(integration_sandbox.pushes) == 1


@small
async def test_five_who_wait_cost_what_one_costs(
    integration_sandbox: Sandbox, integration_client: Client
) -> None:
    """Five awaiters of one Azure or Google operation poll five times as often."""

    async def polls(waiters: int) -> int:
        operation = await books(integration_client, integration_sandbox).push("invoices", RECORD)
        before = integration_sandbox.count("GET")
        ends = await asyncio.gather(
            *(integration_client.wait(operation) for _ in range(waiters)),
        )
        assert {end.status for end in ends} == {"Success"}
        return integration_sandbox.count("GET") - before

    integration_sandbox.faults.push_seconds(30)
    alone = await polls(1)

    assert await polls(5) <= alone + 1


# Errors


@small
async def test_errors_survive_pickle(
    integration_sandbox: Sandbox, integration_client: Client
) -> None:
    """OpenAI's and aiohttp's errors do not unpickle: a process pool hangs on them."""
    with pytest.raises(errors.NotFound) as answered:
        await integration_client.company("no-such-company").data("invoices").list()
    integration_sandbox.faults.lose_answer()
    with pytest.raises(errors.AnswerLost) as lost:
        await books(integration_client, integration_sandbox).push("invoices", RECORD)
    operation = PushOperation(
        push_operation_key="key", company_id="company", status=PushStatus.PENDING
    )
    expired = errors.WaitExpired("still Pending", operation=operation)

    for error in (answered.value, lost.value, expired):
        copied = pickle.loads(pickle.dumps(error))  # noqa: S301  # our own
        assert type(copied) is type(error)
        assert (str(copied), vars(copied)) == (str(error), vars(error))
        assert integration_sandbox.api_key not in repr(vars(copied))
