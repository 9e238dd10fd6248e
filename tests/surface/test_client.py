"""Journeys: every method of the client, over a real socket, against the sandbox."""

from __future__ import annotations

import asyncio
from contextlib import suppress
from datetime import date
from decimal import Decimal
from typing import Any

import attrs
import pytest

from integration_sdk import (
    Client,
    Connection,
    Dialect,
    Links,
    OutcomeStatus,
    PushRequest,
    PushStatus,
    RetryPolicy,
    Route,
    errors,
)
from integration_sdk._http import requests
from integration_sdk.sandbox import Sandbox
from tests.support.sandbox_support import DELIVERY

pytestmark = [
    pytest.mark.virtual_time,
    pytest.mark.integration_sandbox(companies=2, invoices=230, push_seconds=(0.01, 0.05)),
]


@pytest.fixture
def sandbox(integration_sandbox: Sandbox) -> Sandbox:
    return integration_sandbox


@pytest.fixture
def client(integration_client: Client) -> Client:
    return integration_client


def books_of(client: Client, sandbox: Sandbox, platform: int = 0) -> Connection:
    company = sandbox.companies[0]
    return client.company(company.id).connection(company.connections[platform].id)


def invoice(sandbox: Sandbox, record: Any = DELIVERY, **more: Any) -> PushRequest:
    company = sandbox.companies[0]
    return PushRequest(company.id, company.connections[0].id, "invoices", record, **more)


def test_client_needs_a_key_and_a_url(monkeypatch: pytest.MonkeyPatch) -> None:
    """What is missing is named, with the argument and the variable that would give it."""
    monkeypatch.delenv("INTEGRATION_SDK_API_KEY", raising=False)
    monkeypatch.delenv("INTEGRATION_SDK_BASE_URL", raising=False)

    with pytest.raises(errors.ConfigurationError, match=r"api_key= or set .*_API_KEY"):
        Client(base_url="https://api.example")
    with pytest.raises(errors.ConfigurationError, match=r"base_url= or set .*_BASE_URL"):
        Client("key")


@pytest.mark.parametrize("odd", ["", "../x", "%2f", "x" * 257, None, 5])
async def test_odd_ids_send_nothing(sandbox: Sandbox, client: Client, odd: Any) -> None:
    """An id that could lead elsewhere, or that a database did not have, is refused everywhere."""
    company = client.company("c")
    for use in (
        lambda: client.company(odd),
        lambda: company.data(odd),
        lambda: company.connection(odd),
        lambda: company.legacy_bank_accounts.transactions(odd),
    ):
        with pytest.raises(errors.ConfigurationError):
            use()
    books = company.connection("k")
    for call in (
        company.pushes.get(odd),
        books.options(odd),
        books.update("invoices", odd, DELIVERY),  # would be a second record
        books.delete("invoices", odd),
        books.attach("invoices", odd, b"", filename="a.txt"),
    ):
        with pytest.raises(errors.ConfigurationError):
            await call

    assert sandbox.requests == []


IDEMPOTENCY = ("Host", "content-type", "Authorization", "Key: 1", "", 1)
DIALECTS: list[tuple[str, Any, str]] = [
    ("routes", {"pushes.get": "/push/{pushOperationKey}"}, "must be a Route"),
    ("routes", {"push.get": Route("GET", "/push/{pushOperationKey}")}, "no operation 'push.get'"),
    ("routes", {"pushes.get": Route("GET", "/push/{key}")}, "asks for key; it may have companyId"),
    ("routes", {"companies.list": Route("GET", "/{companyId}")}, "it may have no names"),
    *(("idempotency_header", odd, f"of its own, not {odd!r}") for odd in IDEMPOTENCY),
]


@pytest.mark.parametrize(("part", "odd", "says"), DIALECTS)
def test_a_dialect_that_cannot_work_is_refused(part: str, odd: Any, says: str) -> None:
    """Where the mistake is, and not at the first call that needs it; a header beside the SDK's own
    of that name would change or break the request.
    """
    dialect = Dialect.published()
    with pytest.raises(errors.ConfigurationError, match=says):
        dialect.with_routes(odd) if part == "routes" else attrs.evolve(dialect, **{part: odd})


async def test_a_company_is_created_changed_and_deleted() -> None:
    """Its methods give the service's own object of it; `test_reach` has the address of each."""
    async with (
        Sandbox(companies=1, invoices=1, dialect="published") as sandbox,
        Client(sandbox.api_key, sandbox.base_url, dialect=Dialect.published()) as client,
    ):
        created = await client.companies.create("Acme", description="new")
        company = client.company(created["id"])
        assert (await client.companies.list().collect())[1:] == [created] == [await company.get()]
        assert (await company.update(name="Renamed"))["name"] == "Renamed"
        await company.delete()
        with pytest.raises(errors.NotFound):
            await company.get()
        await client.profile.set_sync_settings({"settings": [{"syncSchedule": 24}]})
        assert sandbox.sync_settings == {"settings": [{"syncSchedule": 24}]}


async def test_a_page_is_read_as_documented(sandbox: Sandbox, client: Client) -> None:
    """ "Page envelope": each of its fields, and its four links."""
    path = f"/companies/{sandbox.companies[0].id}/data/invoices"
    page = await client.company(sandbox.companies[0].id).data("invoices").list(page=2, page_size=50)

    assert sandbox.served == 1
    assert [*page] == [*page.results]
    assert (len(page), page.page_number, page.page_size, page.total_results) == (50, 2, 50, 230)
    assert page.links == Links(
        self_=path,
        current=f"{path}?page=2&pageSize=50",
        next=f"{path}?page=3&pageSize=50",
        previous=f"{path}?page=1&pageSize=50",
    )


async def test_push_is_made_in_three_steps(sandbox: Sandbox, client: Client) -> None:
    """ "What the service does", 3: options, push, monitor; by key, together with the company.

    ``check="options"`` refuses a record that lacks what is required, and sends nothing.
    """
    books = books_of(client, sandbox)

    options = await books.options("invoices")
    assert [problem for problem in options.check(DELIVERY) if problem.is_error] == []
    with pytest.raises(errors.InvalidRecord, match="not sent") as caught:
        await books.push("invoices", {}, check="options")
    assert caught.value.problems
    assert ".;" not in str(caught.value)
    assert sandbox.count("POST", "/push/") == 0
    operation = await books.push("invoices", DELIVERY, timeout_minutes=60)
    assert operation.status is PushStatus.PENDING
    assert operation.timeout_in_minutes == 60
    with pytest.raises(errors.ConfigurationError, match="needs company_id="):
        await client.wait(operation.key)
    operation = await client.wait(operation.key, company_id=books.company_id, timeout=5)

    assert operation.status is PushStatus.SUCCESS
    assert operation.data is not None
    assert operation.data["currency"] == "GBP"
    assert operation.completed_on_utc is not None


async def test_bulk_push_settles_every_request(
    sandbox: Sandbox, client: Client, caplog: pytest.LogCaptureFixture
) -> None:
    """Each request has one outcome; a warning that fits all records is logged once."""
    sandbox.faults.fail_next_push("no", times=3)
    records = [{**DELIVERY, "shoeSize": 43} if number != 5 else {} for number in range(20)]
    asked = [invoice(sandbox, each, reference=f"{n}") for n, each in enumerate(records)]

    caplog.set_level("WARNING", "integration_sdk.pushes")
    async with client.coordinator(check="options") as pushes:
        seen = {outcome.reference: outcome.status async for outcome in pushes.run(asked)}

    assert len(seen) == 20
    assert seen["5"] is OutcomeStatus.INVALID
    assert list(seen.values()).count(OutcomeStatus.FAILED) == 3
    assert list(seen.values()).count(OutcomeStatus.SUCCESS) == 16
    [warning] = [entry.message for entry in caplog.records if "shoeSize" in entry.message]
    assert warning.startswith(f"invoices of connection {asked[0].connection_id}: shoeSize")


@pytest.mark.parametrize(("status", "seconds"), [(200, 300), (404, 30), (403, 0), (500, 0)])
async def test_options_are_remembered_for_a_time(
    sandbox: Sandbox, client: Client, status: int, seconds: int
) -> None:
    """Five minutes; that there are none, half a minute; an error that may pass, not at all."""
    books = books_of(client.with_options(retry=None), sandbox)
    if status != 200:
        sandbox.faults.status(status, route="GET /options/")

    async def asked(*, refresh: bool = False) -> int:
        before = sandbox.count("GET", "/options/")
        with suppress(errors.ApiError):
            await books.options("invoices", refresh=refresh)
        return sandbox.count("GET", "/options/") - before

    assert await asked() == 1
    await asyncio.sleep(max(seconds - 1, 1))
    assert await asked() == (0 if seconds else 1)
    assert await asked(refresh=True) == 1
    await asyncio.sleep(seconds + 1)
    assert await asked() == 1


@pytest.mark.parametrize("status", [404, 500])
async def test_tasks_that_want_the_same_options_ask_one_at_a_time(
    sandbox: Sandbox, client: Client, status: int
) -> None:
    """A hundred records of a type that cannot be pushed cost one request; each has its error."""
    books, most = books_of(client.with_options(retry=None), sandbox), 0
    sandbox.faults.status(status, route="GET /options/")
    sandbox.faults.latency(1)

    async def push() -> BaseException:
        with pytest.raises(errors.ApiError) as caught:
            await books.push("invoices", DELIVERY, check="options")
        return caught.value

    tasks = [asyncio.create_task(push()) for _ in range(100 if status == 404 else 5)]
    while not all(task.done() for task in tasks):
        most = max(most, client.stats().in_flight)
        await asyncio.sleep(0.1)

    assert most == 1
    assert len({id(task.result()) for task in tasks}) == len(tasks)
    assert sandbox.count("GET", "/options/") == (1 if status == 404 else 5)


async def test_the_wait_for_options_that_another_task_asks_for_is_limited(
    sandbox: Sandbox, client: Client
) -> None:
    """A service that hangs holds each task for two time-outs, however many wait for it."""
    books, now = books_of(client.with_options(timeout=5), sandbox), asyncio.get_running_loop().time
    sandbox.faults.latency(1000)
    began = now()

    asking = [books.options("invoices") for _ in range(10)]
    ends = await asyncio.gather(*asking, return_exceptions=True)

    assert all(isinstance(end, errors.TransportError) for end in ends)
    assert now() - began < 11


@pytest.mark.parametrize("dialect", [Dialect.document(), Dialect.published()], ids=str)
@pytest.mark.parametrize("name", ["accounts", "chartOfAccounts"])
async def test_accounts_may_be_called_by_either_name(dialect: Dialect, name: str) -> None:
    """Options and push paths of one service spell it differently; callers need not."""
    record = {"nominalCode": "4020", "name": "Sales, export", "type": "Income"}
    async with (
        Sandbox(companies=1, invoices=1, dialect=dialect.name) as sandbox,  # type: ignore[arg-type]  # it is one of the two
        Client(sandbox.api_key, sandbox.base_url, dialect=dialect) as client,
    ):
        operation = await books_of(client, sandbox).push(name, record, check="options")

        assert (await client.wait(operation)).status is PushStatus.SUCCESS


async def test_parameters_are_spelt_as_the_service_would(sandbox: Sandbox, client: Client) -> None:
    """None is left out, booleans are lower case, a list repeats its name, an enum has a value."""
    odd: dict[str, Any] = {"a": None, "b": True, "c": [1, Decimal("2.5")]}
    odd |= {"d": date(2022, 1, 31), "e": PushStatus.SUCCESS}
    for wrong in (object(), 10**5000):
        with pytest.raises(errors.ConfigurationError, match="parameter x cannot be"):
            await client.request("GET", "/companies", params={"x": wrong})
    await client.request("GET", "/companies", params=odd)

    expected = {"b": "true", "c": "2.5", "d": "2022-01-31", "e": "Success"}
    assert sandbox.requests[-1].query == expected
    spelt = requests.custom("GET", "/companies", params=odd)
    assert spelt.target == "/companies?b=true&c=1&c=2.5&d=2022-01-31&e=Success"


async def test_closing_a_client_ends_the_waits_of_those_derived_from_it(
    sandbox: Sandbox, client: Client
) -> None:
    """One loop polls for all of them, whichever of them waits first."""
    operation = await books_of(client, sandbox, platform=2).push("invoices", DELIVERY)
    waiting = asyncio.create_task(client.with_options(timeout=5).wait(operation))
    await asyncio.sleep(0)

    await client.aclose()

    with pytest.raises(errors.ClientClosed, match="while this push was Pending"):
        await waiting


@pytest.mark.parametrize(
    ("given", "posts"),
    [
        ({}, 5),
        ({"retry": None}, 1),
        ({"retry": RetryPolicy(attempts=2, throttled_base=0.01)}, 2),
        ({"retry": RetryPolicy()}, 3),
    ],
    ids=["not given", "never", "twice", "what calls have by default"],
)
async def test_retry_holds_for_a_coordinator_too(
    sandbox: Sandbox, client: Client, given: dict[str, Any], posts: int
) -> None:
    """A push that is refused for now is sent as often as the client was told; unless told, 5."""
    sandbox.faults.status(429, route="POST")
    async with client.with_options(timeout=900, **given).coordinator() as pushes:
        with pytest.raises(errors.TooManyRequests):
            await pushes.submit(invoice(sandbox))

    assert sandbox.count("POST") == posts
