"""Journeys: every method of the client, over a real socket, against the sandbox."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from datetime import date
from decimal import Decimal
from enum import Enum
from typing import Any

import attrs
import pytest

import integration_sdk as sdk
from integration_sdk import (
    Client,
    Dialect,
    OutcomeStatus,
    PropertyDescription,
    PushOptions,
    PushRequest,
    PushStatus,
    Route,
    errors,
)
from integration_sdk._context import OptionsCache
from integration_sdk._http import requests
from integration_sdk.sandbox import Sandbox

pytestmark = pytest.mark.virtual_time

INVOICES = 230
RECORD = {
    "customerRef": {"id": "1"},
    "issueDate": "2022-01-31T00:00:00Z",
    "currency": "GBP",
    "status": "Submitted",
    "lineItems": [{"description": "Advice", "quantity": 1, "unitAmount": 10}],
}


class Sync(int, Enum):
    DAILY = 24


@pytest.fixture
async def sandbox() -> AsyncIterator[Sandbox]:
    async with Sandbox(companies=2, invoices=INVOICES, push_seconds=(0.01, 0.05)) as running:
        yield running


@pytest.fixture
async def client(sandbox: Sandbox) -> AsyncIterator[Client]:
    async with Client(sandbox.api_key, sandbox.base_url) as connected:
        yield connected


def books(client: Client, sandbox: Sandbox, platform: int = 0) -> Any:
    company = sandbox.companies[0]
    return client.company(company.id).connection(company.connections[platform].id)


# Making one


def test_client_needs_a_key_and_a_url(monkeypatch: pytest.MonkeyPatch) -> None:
    """What is missing is named, with the argument and the variable that would give it."""
    monkeypatch.delenv("INTEGRATION_SDK_API_KEY", raising=False)
    monkeypatch.delenv("INTEGRATION_SDK_BASE_URL", raising=False)

    with pytest.raises(errors.ConfigurationError, match=r"api_key= or set .*_API_KEY"):
        Client(base_url="https://api.example")
    with pytest.raises(errors.ConfigurationError, match=r"base_url= or set .*_BASE_URL"):
        Client("key")


@pytest.mark.parametrize(
    ("key", "url", "message"),
    [
        ("key", "http://api.example", "https"),
        ("key", "ftp://api.example", "http"),
        ("key", "api.example", "http"),
        ("key", "https://user:pw@api.example", "credentials|user"),
        ("key", "https://api.example/?a=1", "query"),
        ("  ", "https://api.example", "empty"),
        ("a\nb", "https://api.example", "line break"),
        ("Basic abc", "https://api.example", "bare"),
    ],
)
def test_settings_that_cannot_work_are_refused(key: str, url: str, message: str) -> None:
    """Each bad setting has its own error, before anything is sent."""
    with pytest.raises(errors.ConfigurationError, match=message):
        Client(key, url)


@pytest.mark.parametrize(
    "options",
    [
        {"numbers": "exact"},
        {"numbers": ["float"]},
        {"connections": 0},
        {"notified": "false"},
        {"ssl": None},
        {"timeout": 0},
        {"timeout": "5"},
        {"retry": 3},
        {"retry": 0},
        {"rate": 0},
        {"rate": "5"},
        {"per_company": 0},
        {"dialect": "published"},
        {"connector": object()},
        {"on_call": 3},
        {"on_call": asyncio.sleep},
    ],
)
def test_odd_options_are_refused(options: dict[str, Any]) -> None:
    """Options are checked where they are given, not at the first call."""
    (name,) = options
    with pytest.raises(errors.ConfigurationError, match=f"^{name} must be "):
        Client("key", "https://api.example", **options)


async def test_settings_come_from_the_environment(
    sandbox: Sandbox, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Client() alone reads both variables."""
    monkeypatch.setenv("INTEGRATION_SDK_API_KEY", sandbox.api_key)
    monkeypatch.setenv("INTEGRATION_SDK_BASE_URL", sandbox.base_url)

    async with Client() as client:
        assert (await client.companies.list()).total_results == 2


async def test_wrong_key_is_unauthorized(sandbox: Sandbox) -> None:
    """ "Authentication", 3: 401, and the error says which setting to look at."""
    async with Client("wrong", sandbox.base_url) as client:
        with pytest.raises(errors.Unauthorized, match="INTEGRATION_SDK_API_KEY") as caught:
            await client.companies.list()

    assert caught.value.correlation_id
    assert "wrong" not in str(caught.value)


async def test_closed_client_says_so(sandbox: Sandbox) -> None:
    """After the block no call is possible, and the error is the SDK's own."""
    async with Client(sandbox.api_key, sandbox.base_url) as client:
        await client.companies.list()

    with pytest.raises(errors.ClientClosed):
        await client.companies.list()


@pytest.mark.parametrize("odd", ["", "../x", "a?b", "%2f", "."])
async def test_odd_ids_send_nothing(sandbox: Sandbox, client: Client, odd: str) -> None:
    """An id that could lead elsewhere is refused by every call that takes one."""
    company = client.company("c")
    for use in (
        lambda: client.company(odd),
        lambda: company.data(odd),
        lambda: company.connection(odd),
        lambda: company.legacy_bank_accounts.transactions(odd),
    ):
        with pytest.raises(errors.ConfigurationError):
            use()
    for call in (company.pushes.get(odd), company.connection("k").options(odd)):
        with pytest.raises(errors.ConfigurationError):
            await call

    assert sandbox.requests == []


# Lists


async def test_companies_are_listed_and_created(sandbox: Sandbox, client: Client) -> None:
    """GET and POST /companies."""
    created = await client.companies.create("Acme", description="new")

    names = [company["name"] async for company in client.companies.list()]
    assert created["name"] == "Acme"
    assert "Acme" in names
    assert len(names) == 3


# Bank data


async def test_bank_data_is_read_through_the_connection(sandbox: Sandbox, client: Client) -> None:
    """The replacement endpoints: accounts, one account, its transactions."""
    accounts = books(client, sandbox).bank_accounts

    first = await accounts.list().first()
    again = await accounts.get(first["id"])
    transactions = await accounts.transactions(first["id"]).list().collect()

    assert again["id"] == first["id"]
    assert transactions


# Pushes


async def test_push_is_made_in_three_steps(sandbox: Sandbox, client: Client) -> None:
    """ "What the service does", 3: options, push, monitor."""
    connection = books(client, sandbox)

    options = await connection.options("invoices")
    assert [problem for problem in options.check(RECORD) if problem.is_error] == []
    operation = await connection.push("invoices", RECORD, timeout_minutes=60)
    assert operation.status is PushStatus.PENDING
    assert operation.timeout_in_minutes == 60
    operation = await client.wait(operation, timeout=5)

    assert operation.status is PushStatus.SUCCESS
    assert operation.data is not None
    assert operation.data["currency"] == "GBP"
    assert operation.completed_on_utc is not None


async def test_a_key_of_ones_own_makes_a_repeated_push_one_push() -> None:
    """A handler that its caller runs twice pushes once: the service answers as the first time."""
    async with (
        Sandbox(companies=1, invoices=0, dialect="published") as sandbox,
        Client(sandbox.api_key, sandbox.base_url, dialect=Dialect.published()) as client,
    ):
        connection = books(client, sandbox)
        first = await connection.push("invoices", RECORD, idempotency_key="order-1")
        again = await connection.push("invoices", RECORD, idempotency_key="order-1")
        other = await connection.push("invoices", RECORD)

    assert again.key == first.key != other.key
    own, repeated, minted = (seen.headers["Idempotency-Key"] for seen in sandbox.requests)
    assert own == repeated == "order-1" != minted


async def test_a_key_that_the_dialect_has_no_header_for_sends_nothing(
    sandbox: Sandbox, client: Client
) -> None:
    """Left out in silence it would not do what it is there for."""
    with pytest.raises(errors.ConfigurationError, match=r"has no idempotency keys.*published"):
        await books(client, sandbox).push("invoices", RECORD, idempotency_key="order-1")

    assert sandbox.requests == []


@pytest.mark.parametrize("record_id", [None, "", 5])
async def test_an_update_without_an_id_is_no_create(
    sandbox: Sandbox, client: Client, record_id: Any
) -> None:
    """An id that a database did not have must not become a second record."""
    connection = books(client, sandbox)
    for call in (
        connection.update("invoices", record_id, RECORD),
        connection.delete("invoices", record_id),
        connection.attach("invoices", record_id, b"", filename="a.txt"),
    ):
        with pytest.raises(errors.ConfigurationError, match="record_id must be"):
            await call

    assert sandbox.pushes == []


@pytest.mark.parametrize(
    ("routes", "says"),
    [
        ({"pushes.get": "/push/{pushOperationKey}"}, "must be a Route"),
        ({"push.get": Route("GET", "/push/{pushOperationKey}")}, "no operation 'push.get'"),
        ({"pushes.get": Route("GET", "/push/{key}")}, "asks for key; it may have companyId, push"),
        ({"companies.list": Route("GET", "/{companyId}")}, "it may have no names"),
    ],
)
def test_a_route_that_cannot_be_filled_in_is_refused(routes: Any, says: str) -> None:
    """Where the mistake is, and not at the first call that needs it."""
    with pytest.raises(errors.ConfigurationError, match=says):
        Dialect.document().with_routes(routes)


def test_what_a_client_hands_out_shows_what_it_stands_for() -> None:
    """In a shell or a log it is a few words, not all that it is made of."""
    client = Client("key", "https://api.example.com")
    company = client.company("c1")
    handed_out = (
        client.companies,
        company,
        company.data("invoices"),
        company.pushes,
        client.coordinator(journal="pushes.db"),
    )

    assert [repr(each) for each in handed_out] == [
        "<Companies companies.list>",
        "<Company c1>",
        "<Records data.list c1 invoices>",
        "<Pushes pushes.list c1>",
        "<Coordinator with Store('pushes.db')>",
    ]


@pytest.mark.parametrize("header", ["Host", "content-type", "Authorization", "Key: 1", "", 1])
def test_an_idempotency_header_is_one_of_its_own(header: Any) -> None:
    """It would go out beside the SDK's own header of that name, or break the request."""
    with pytest.raises(errors.ConfigurationError, match=f"of its own, not {header!r}"):
        attrs.evolve(Dialect.published(), idempotency_header=header)


async def test_update_is_a_push_too(sandbox: Sandbox, client: Client) -> None:
    """PUT of a record returns an operation that is waited for like any other."""
    invoice = await client.company(sandbox.companies[0].id).data("invoices").list().first()
    assert invoice is not None

    operation = await books(client, sandbox).update("invoices", invoice["id"], RECORD)

    assert (await client.wait(operation)).status is PushStatus.SUCCESS
    assert sandbox.count("PUT", f"/push/invoices/{invoice['id']}") == 1


async def test_pushes_are_listed_and_looked_up(sandbox: Sandbox, client: Client) -> None:
    """The two monitor endpoints: the list, newest first, and a single one by key."""
    connection = books(client, sandbox)
    first = await connection.push("invoices", RECORD)
    second = await connection.push("invoices", RECORD)
    pushes = client.company(sandbox.companies[0].id).pushes

    listed = [operation.key async for operation in pushes.list()]
    single = await pushes.get(first.key)

    assert listed == [second.key, first.key]
    assert single.key == first.key
    with pytest.raises(errors.NotFound):
        await pushes.get("00000000-0000-0000-0000-000000000000")


async def test_waiting_by_key_needs_the_company(sandbox: Sandbox, client: Client) -> None:
    """A key from an earlier run is enough, together with its company."""
    operation = await books(client, sandbox).push("invoices", RECORD)

    with pytest.raises(errors.ConfigurationError, match="company_id="):
        await client.wait(operation.key)
    ended = await client.wait(operation.key, company_id=operation.company_id)

    assert ended.is_final


async def test_options_are_checked_before_a_push(sandbox: Sandbox, client: Client) -> None:
    """``check="options"`` refuses a record that lacks what is required, and sends nothing."""
    connection = books(client, sandbox)

    with pytest.raises(errors.InvalidRecord, match="not sent") as caught:
        await connection.push("invoices", {}, check="options")

    assert caught.value.problems
    assert ".;" not in str(caught.value)
    assert sandbox.count("POST", "/push/") == 0


async def test_options_are_asked_for_again_after_five_minutes() -> None:
    """What is remembered is good for its time on the loop's clock."""
    remembered, asked = OptionsCache(), 0

    async def ask() -> PushOptions:
        nonlocal asked
        asked += 1
        return PushOptions.of(PropertyDescription(type="Object"))

    for pause, so_far in ((0, 1), (299, 1), (1, 2)):
        await asyncio.sleep(pause)
        await remembered.get("/options", ask)
        assert asked == so_far


async def test_options_that_cannot_be_had_are_asked_for_one_at_a_time() -> None:
    """Also by those who come while others wait for the same."""
    remembered, asking, at_once = OptionsCache(), 0, 0

    async def ask() -> PushOptions:
        nonlocal asking, at_once
        asking += 1
        at_once = max(at_once, asking)
        await asyncio.sleep(1.0)
        asking -= 1
        raise errors.InternalServerError("no", status=500)

    async def one(delay: float) -> None:
        await asyncio.sleep(delay)
        with pytest.raises(errors.InternalServerError):
            await remembered.get("/options", ask)

    await asyncio.gather(*(one(0.4 * number) for number in range(12)))

    assert at_once == 1


async def test_options_that_there_are_none_of_are_asked_for_once(
    sandbox: Sandbox, client: Client
) -> None:
    """A hundred records of a type that cannot be pushed cost one request; each has its error."""
    connection = books(client, sandbox)
    sandbox.faults.status(404, route="GET")

    results = await asyncio.gather(
        *(connection.push("invoices", RECORD, check="options") for _ in range(100)),
        return_exceptions=True,
    )

    assert all(isinstance(error, errors.NotFound) for error in results)
    assert len({id(error) for error in results}) == 100
    assert sandbox.count("GET", "/options/") == 1
    with pytest.raises(errors.NotFound):
        await connection.options("invoices", refresh=True)
    assert sandbox.count("GET", "/options/") == 2


@pytest.mark.parametrize(("status", "kept"), [(400, 30), (403, 30), (404, 30), (405, 30), (500, 0)])
async def test_a_refusal_of_options_is_remembered_for_half_a_minute(status: int, kept: int) -> None:
    """And an error that may pass, or may be the account's, not at all."""
    remembered, asked = OptionsCache(), 0

    async def ask() -> PushOptions:
        nonlocal asked
        asked += 1
        raise errors.ApiError("no", status=status)

    for pause, so_far in ((0, 1), (29, 1 if kept else 2), (1, 2 if kept else 3)):
        await asyncio.sleep(pause)
        with pytest.raises(errors.ApiError):
            await remembered.get("/options", ask)
        assert asked == so_far


async def test_bulk_push_settles_every_request(
    sandbox: Sandbox, client: Client, caplog: pytest.LogCaptureFixture
) -> None:
    """Each request has one outcome; a warning that fits a hundred records is logged once."""
    sandbox.faults.fail_next_push("no", times=3)
    company = sandbox.companies[0]
    connection_id = company.connections[0].id

    def requests() -> Any:
        for number in range(100):
            record = {**RECORD, "shoeSize": 43} if number != 50 else {}
            yield PushRequest(
                company.id, connection_id, "invoices", record, reference=f"INV-{number}"
            )

    seen: dict[str | None, OutcomeStatus] = {}
    caplog.set_level("WARNING", "integration_sdk.pushes")
    async with client.coordinator(check="options") as pushes:
        async for outcome in pushes.run(requests()):
            seen[outcome.reference] = outcome.status

    assert len(seen) == 100
    assert seen["INV-50"] is OutcomeStatus.INVALID
    assert list(seen.values()).count(OutcomeStatus.FAILED) == 3
    assert list(seen.values()).count(OutcomeStatus.SUCCESS) == 96
    [warning] = [entry.message for entry in caplog.records if "shoeSize" in entry.message]
    assert warning.startswith(f"invoices of connection {connection_id}: shoeSize")


# Limits


async def test_account_limits_are_told_apart(monkeypatch: pytest.MonkeyPatch) -> None:
    """ "Account limit errors (402)": each of the three has its own class."""
    async with (
        Sandbox(companies=50, invoices=0, free_plan=True) as sandbox,
        Client(sandbox.api_key, sandbox.base_url) as client,
    ):
        with pytest.raises(errors.CompanyLimitReached):
            await client.companies.create("One too many")
        with pytest.raises(errors.SyncScheduleNotAllowed):
            await client.profile.set_sync_settings(
                {"settings": [{"dataType": "invoices", "syncSchedule": 1}]}
            )
        sandbox.clock.advance(hours=24 * 366)
        with pytest.raises(errors.AccountExpired):
            await client.companies.list()


async def test_sync_settings_are_set(sandbox: Sandbox, client: Client) -> None:
    """POST /profile/syncSettings with a schedule that the plan allows."""
    settings = {"settings": [{"dataType": "invoices", "syncSchedule": 24}]}

    await client.profile.set_sync_settings(settings)

    assert sandbox.sync_settings is not None


# Everything else


async def test_published_dialect_reads_the_public_api() -> None:
    """With the other dialect the same methods speak today's public API."""
    async with (
        Sandbox(companies=1, invoices=10, dialect="published") as sandbox,
        Client(sandbox.api_key, sandbox.base_url, dialect=Dialect.published()) as client,
    ):
        company = client.company(sandbox.companies[0].id)
        connection = await company.connections.list().first()
        assert connection is not None
        assert (await company.get())["id"] == company.id
        operation = await company.connection(connection["id"]).push("invoices", RECORD)
        assert operation.data_connection_id == connection["id"]
        assert (await client.wait(operation)).status is PushStatus.SUCCESS
        await company.delete()
        with pytest.raises(errors.NotFound):
            await company.get()


@pytest.mark.parametrize("dialect", [Dialect.document(), Dialect.published()], ids=str)
@pytest.mark.parametrize("name", ["accounts", "chartOfAccounts"])
async def test_accounts_may_be_called_by_either_name(dialect: Dialect, name: str) -> None:
    """Options and push paths of one service spell it differently; callers need not."""
    record = {"nominalCode": "4020", "name": "Sales, export", "type": "Income"}
    async with (
        Sandbox(companies=1, invoices=1, dialect=dialect.name) as sandbox,  # type: ignore[arg-type]  # it is one of the two
        Client(sandbox.api_key, sandbox.base_url, dialect=dialect) as client,
    ):
        operation = await books(client, sandbox).push(name, record, check="options")

        assert (await client.wait(operation)).status is PushStatus.SUCCESS


async def test_door_for_everything_else(sandbox: Sandbox, client: Client) -> None:
    """``request`` returns decoded JSON and raises the same errors."""
    page = await client.request("GET", "/companies", params={"page": 1, "pageSize": 1})

    assert page["totalResults"] == 2
    with pytest.raises(errors.NotFound):
        await client.request("GET", "/nothing/here")


async def test_settings_can_differ_by_call(sandbox: Sandbox, client: Client) -> None:
    """``with_options`` shares everything but the settings it changes."""
    sandbox.faults.latency(0.3)
    impatient = client.with_options(timeout=0.05)

    with pytest.raises(errors.TransportError, match=r"0\.05"):
        await impatient.companies.list()
    assert (await client.companies.list()).total_results == 2


async def test_a_derived_client_closes_nothing(client: Client) -> None:
    """What is shared goes on when a client with other settings is left."""
    async with client.with_options(timeout=5) as patient:
        await patient.companies.list()

    assert (await client.companies.list()).total_results == 2


async def test_closing_a_client_ends_the_waits_of_those_derived_from_it(
    sandbox: Sandbox, client: Client
) -> None:
    """One loop polls for all of them, whichever of them waits first."""
    operation = await books(client, sandbox, platform=2).push("invoices", RECORD)
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
        ({"retry": sdk.RetryPolicy(attempts=2, throttled_base=0.01)}, 2),
        ({"retry": sdk.RetryPolicy()}, 3),
    ],
    ids=["not given", "never", "twice", "what calls have by default"],
)
@pytest.mark.parametrize("derived", [False, True])
async def test_retry_holds_for_a_coordinator_too(
    given: dict[str, Any], posts: int, derived: bool
) -> None:
    """A push that is refused for now is sent as often as the client was told; unless told, 5."""
    async with Sandbox(companies=1, invoices=0) as sandbox:
        sandbox.faults.status(429, route="POST")
        company = sandbox.companies[0]
        one = PushRequest(company.id, company.connections[0].id, "invoices", RECORD)
        settings = {} if derived else given
        async with Client(sandbox.api_key, sandbox.base_url, **settings) as made:
            client = made.with_options(timeout=900, **given) if derived else made
            async with client.coordinator() as pushes:
                with pytest.raises(errors.TooManyRequests):
                    await pushes.submit(one)

    assert sandbox.count("POST") == posts


async def test_parameters_are_spelt_as_the_service_would(sandbox: Sandbox, client: Client) -> None:
    """None is left out, booleans are lower case, a list repeats its name, an enum has a value."""
    odd = {"a": None, "b": True, "c": [1, Decimal("2.5")], "d": date(2022, 1, 31), "e": Sync.DAILY}
    for wrong in (object(), 10**5000):
        with pytest.raises(errors.ConfigurationError, match="parameter x cannot be"):
            await client.request("GET", "/companies", params={"x": wrong})
    await client.request("GET", "/companies", params=odd)

    assert sandbox.requests[-1].query == {"b": "true", "c": "2.5", "d": "2022-01-31", "e": "24"}
    spelt = requests.custom(Dialect.document(), "GET", "/companies", params=odd)
    assert spelt.target == "/companies?b=true&c=1&c=2.5&d=2022-01-31&e=24"


async def test_money_is_exact_on_request(sandbox: Sandbox) -> None:
    """numbers="decimal" reads every fraction digit by digit."""
    async with Client(sandbox.api_key, sandbox.base_url, numbers="decimal") as client:
        invoice = await client.company(sandbox.companies[0].id).data("invoices").list().first()

    assert invoice is not None
    assert isinstance(invoice["totalAmount"], Decimal)


# What users try
