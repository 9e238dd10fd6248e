"""What the published service offers for data, options and pushes has a method, at its address."""

from __future__ import annotations

import asyncio
import re
from collections.abc import Awaitable, Callable
from contextlib import nullcontext
from itertools import product
from pathlib import Path
from typing import Any

import pytest
from attrs import evolve

from integration_sdk import Client, Company, Dialect, PushChange, RecordRef, errors
from tests.support.virtual_service import Answer, Asked, Service

pytestmark = pytest.mark.virtual_time
PUBLISHED = [
    " ".join(line.split())
    for line in (Path(__file__).parent / "published_paths.txt").read_text().splitlines()
]
BY_REQUEST = {
    "POST /companies/{companyId}/data/info",
    "POST /companies/{companyId}/connections/{connectionId}/data/queue/custom/"
    "{customDataIdentifier}",
}
"""These change nothing that the SDK reads: ``client.request()`` calls them."""
PUSH = {"pushOperationKey": "k", "companyId": "c", "status": "Pending"}
PAGE = {"results": [], "pageNumber": 1, "pageSize": 100, "totalResults": 0, "_links": {}}
BOTH = [Dialect.document(), Dialect.published()]


def service(body: Any = PUSH | PAGE, status: int = 200) -> Service:
    """A service that answers each request alike."""
    return Service(answer=lambda _: Answer.of(body, status))


OF_COMPANY: dict[str, Callable[..., Any]] = {
    "GET ": lambda company: company.get(),
    "PUT ": lambda company: company.update(name="A"),
    "DELETE ": lambda company: company.delete(),
    "GET connections": lambda company: company.connections.list(),
    "GET dataStatus": lambda company: company.data_status(),
    "GET data/history": lambda company: company.data_history.list(),
    "GET data/history/*": lambda company, own: company.data_history.get(own),
    "GET data/info": lambda company: company.info(),
    "POST data/all": lambda company: company.refresh(),
    "POST data/queue/*": lambda company, kind: company.refresh([kind]),
    "GET data/bankAccounts/*/transactions": lambda company, account: (
        company.legacy_bank_accounts.transactions(account).list()
    ),
    "GET data/invoices/*/pdf": lambda company, own: company.data("invoices").pdf(own),
    "GET data/*/*": lambda company, kind, own: company.data(kind).get(own),
    "GET data/*": lambda company, kind: company.data(kind).list(),
    "GET push/*": lambda company, key: company.pushes.get(key),
    "GET push": lambda company: company.pushes.list(),
}
OF_CONNECTION: dict[str, Callable[..., Any]] = {
    "GET ": lambda books: books.get(),
    "GET data/custom/*": lambda books, own: books.custom_data(own).list(),
    "GET data/bankAccounts/*/bankTransactions": lambda books, account: (
        books.bank_accounts.transactions(account).list()
    ),
    "GET data/*/*/attachments": lambda books, *of: books.attachments(*of).list(),
    "GET data/*/*/attachments/*": lambda books, *of: books.attachments(*of[:2]).get(of[2]),
    "GET data/*/*/attachments/*/download": lambda books, *of: books.attachments(*of[:2]).download(
        of[2]
    ),
    "GET data/*/*": lambda books, kind, own: books.data(kind).get(own),
    "GET data/*": lambda books, kind: books.data(kind).list(),
    "GET options/bankAccounts/*/bankTransactions": lambda books, account: (
        books.bank_accounts.transactions(account).options()
    ),
    "GET options/*": lambda books, kind: books.options(kind, refresh=True),
    "POST push/bankAccounts/*/bankTransactions": lambda books, account: (
        books.bank_accounts.transactions(account).push({})
    ),
    "POST push/*/*/attachment": lambda books, *of: books.attach(*of, b"%PDF", filename="a.pdf"),
    "POST push/*/*/attachments": lambda books, *of: books.attach(*of, b"%PDF", filename="a.pdf"),
    "POST push/*": lambda books, kind: books.push(kind, {}),
    "PUT push/*/*": lambda books, kind, own: books.update(kind, own, {}),
    "DELETE push/*/*": lambda books, kind, own: books.delete(kind, own),
    "DELETE push/*/*/attachments/*": lambda books, *of: books.attachments(*of[:2]).delete(of[2]),
}


def use(client: Client, address: str) -> Any:
    """Call what a user would call for a published *address*."""
    method, path = address.split()
    _, company_id, *parts = path.strip("/").split("/")
    place: Any = client.company(company_id)
    calls = OF_COMPANY
    if parts[:1] == ["connections"] and len(parts) > 1:
        place, calls, parts = place.connection(parts[1]), OF_CONNECTION, parts[2:]
    for pattern, call in calls.items():
        names = re.fullmatch(pattern.replace("*", "([^/]+)"), f"{method} {'/'.join(parts)}")
        if names:
            return call(place, *names.groups())
    raise AssertionError(address)


async def test_each_published_address_has_a_method() -> None:
    """It sends one request, to that address."""
    addresses = [each for each in PUBLISHED if each not in BY_REQUEST]
    asked = service()
    async with asked.client(dialect=Dialect.published()) as client:
        for address in addresses:
            legacy = "companyId}/data/bankAccounts" in address
            with pytest.warns(DeprecationWarning, match="use GET") if legacy else nullcontext():
                await use(client, address)

    assert [f"{one.method} /{'/'.join(one.segments)}" for one in asked.log] == addresses


@pytest.mark.parametrize("dialect", BOTH, ids=lambda dialect: dialect.name)
def test_a_type_is_read_where_it_stands(dialect: Dialect) -> None:
    """Elsewhere the error says where; what is in neither list is read where it is asked for."""
    company = Client("key", "https://api.example", dialect=dialect).company("c")
    books = company.connection("b")

    with pytest.raises(errors.ConfigurationError, match=r"below a connection.*'directCosts'"):
        company.data("directCosts")
    with pytest.raises(errors.ConfigurationError, match=r"below a company.*\.data\('invoices'\)"):
        books.data("invoices")
    for either in ("banking-transactions", "ourOwn", "invoiceLines"):
        assert either in repr(company.data(either))
        assert either in repr(books.data(either))
    with pytest.raises(errors.ConfigurationError, match="bank_accounts"):  # no such address
        asyncio.run(company.legacy_bank_accounts.transactions("a").push({}))
    assert dialect.is_below_connection("transfers")
    assert not dialect.is_below_connection("banking-transactions")


@pytest.mark.parametrize(
    ("written", "meant"),
    [
        *(("invoice", "invoices"), ("Invoices", "invoices"), ("invioces", "invoices")),
        *(("bill", "bills"), ("tranfers", "transf")),
    ],
)
def test_a_misspelt_type_is_answered_with_what_was_meant(written: str, meant: str) -> None:
    """Before anything is sent; a dialect may know more types."""
    dialect = Dialect.document()
    company = Client("key", "https://api.example").company("c")
    for use in (company.data, company.connection("b").data, dialect.spellings):
        with pytest.raises(errors.ConfigurationError, match=f'did you mean "{meant}'):
            use(written)

    more = evolve(dialect, company_types=dialect.company_types | {written})
    assert written in repr(
        Client("key", "https://x.example", dialect=more).company("c").data(written)
    )


# The legacy bank endpoints: "Versioning", rule 2; "Other rules", rule 4
REMOVED: dict[str, Any] = {
    "statusCode": 404,
    "service": "ClientApi",
    "error": "NotFound",
    "correlationId": "7f3a",
    "canBeRetried": "Unknown",
    "detailedErrorCode": 0,
}
LEGACY: dict[str, Callable[[Any], Awaitable[Any]]] = {
    "list": lambda company: company.legacy_bank_accounts.list().collect(),
    "page": lambda company: company.legacy_bank_accounts.list(),
    "get": lambda company: company.legacy_bank_accounts.get("a"),
    "transactions": lambda company: company.legacy_bank_accounts.transactions("a").list().collect(),
    "data": lambda company: company.data("bankAccounts").list().collect(),
}


@pytest.mark.parametrize("name", LEGACY)
async def test_a_legacy_call_that_still_works_names_its_replacement(name: str) -> None:
    """It warns in the line that made the call, however many pages there are."""
    page = PAGE | {"results": [{}], "_links": {"next": {"href": "?after=1"}}}
    asked = Service(answer=lambda one: Answer.of(page if "page" in one.params else PAGE))
    async with asked.client() as client:
        with pytest.warns(DeprecationWarning, match="is a legacy endpoint") as caught:
            await LEGACY[name](client.company("c"))

    end = "bankAccounts/a/bankTransactions" if name == "transactions" else "bankAccounts"
    assert [warning.filename for warning in caught] == [__file__]
    assert f"/connections/{{connectionId}}/data/{end}" in str(caught[0].message)


@pytest.mark.parametrize(
    ("error", "retried", "detail", "legacy"),
    list(product(("NotFound", "NotFound: no company", None), ("Unknown", None), (0, 7), "yn")),
)
async def test_only_the_documented_body_on_a_legacy_path_means_removed(
    error: str | None, retried: str | None, detail: int, legacy: str
) -> None:
    """ "The error body (error text NotFound, canBeRetried Unknown, detailedErrorCode 0)"."""
    content = REMOVED | {"error": error, "canBeRetried": retried, "detailedErrorCode": detail}
    async with service(content, status=404).client() as client:
        with pytest.raises(errors.NotFound) as told:
            await (LEGACY["page"] if legacy == "y" else Company.get)(client.company("c"))

    documented = content == REMOVED and legacy == "y"
    assert type(told.value) is (errors.EndpointRemoved if documented else errors.NotFound)
    if isinstance(told.value, errors.EndpointRemoved):
        assert told.value.replacement == "/companies/c/connections/{connectionId}/data/bankAccounts"
        assert told.value.replacement in str(told.value)


async def test_request_gives_the_answer_as_it_came() -> None:
    """A PDF is no JSON; errors are raised as elsewhere."""
    pdf = Answer(200, b"%PDF", {"Content-Type": "application/pdf"})
    asked = Service(answer=lambda _: pdf)
    async with asked.client() as client:
        answer = await client.request("get", "/a.pdf", raw=True)
    async with service(status=404).client() as client:
        with pytest.raises(errors.NotFound):
            await client.request("GET", "/a.pdf", raw=True)
    async with service([1]).client() as client:
        with pytest.raises(errors.MalformedResponse, match="must answer with an object"):
            await client.company("c").data("invoices").get("i")

    assert [(one.method, one.headers["Accept"]) for one in asked.log] == [("GET", "*/*")]
    assert (answer.status, answer.body) == (200, b"%PDF")
    assert answer.headers["content-type"] == "application/pdf"
    assert repr(answer) == "Answer(status=200, body=<4 bytes>)"


def statuses(state: str, name: str = "invoices") -> Any:
    return {name: {"dataType": name, "currentStatus": state, "lastSuccessfulSync": None}}


@pytest.mark.parametrize("waiters", [1, 100])
async def test_tasks_that_wait_for_data_share_the_polls(waiters: int) -> None:
    """One a second at first, one in a twentieth of the time waited later, however many wait."""
    loop = asyncio.get_running_loop()
    began = loop.time()

    def answer(_: Asked) -> Answer:
        return Answer.of(statuses("Fetching" if loop.time() < began + 100 else "Complete"))

    reading = Service(answer=answer)
    async with reading.client() as client:
        waits = (client.company("c").wait_until_ready("invoices") for _ in range(waiters))
        ends = await asyncio.gather(*waits)

    assert {end["currentStatus"] for end in ends} == {"Complete"}
    assert loop.time() - began < 100 + 2 * 100 / 20
    assert 45 <= len(reading.log) <= 60


async def test_tasks_that_wait_for_data_do_not_fail_one_after_the_other() -> None:
    """If the service falls silent, the last one hears of it when its own call would have ended."""
    silent = Service(answer=lambda _: Answer(seconds=3600))
    loop = asyncio.get_running_loop()
    began = loop.time()
    async with silent.client(timeout=5) as client:
        waits = (client.company("c").wait_until_ready("invoices") for _ in range(20))
        ends = await asyncio.gather(*waits, return_exceptions=True)

    assert all(isinstance(end, errors.TransportError) for end in ends)
    assert loop.time() - began <= 2 * 5


async def test_a_wait_for_data_ends_when_it_must() -> None:
    """With the time, with a last look; with an error of the platform at once."""
    async with service(statuses("Queued")).client() as client:
        with pytest.raises(errors.WaitExpired, match=r"not ready within 5 s: Queued"):
            await client.company("c").wait_until_ready("invoices", timeout=5)
        with pytest.raises(errors.ConfigurationError, match='did you mean "invoices"'):
            await client.company("c").wait_until_ready("invoice")
        with pytest.raises(errors.ConfigurationError, match=r"\['invoices'\]"):
            await client.company("c").refresh("invoices")
        with pytest.raises(errors.ConfigurationError, match=r"\['invoices'\]"):
            await client.company("c").refresh(connection_id="b")
    async with service(statuses("AuthError")).client() as client:
        with pytest.raises(errors.Conflict, match=r"cannot be read: AuthError.*refresh"):
            await client.company("c").wait_until_ready("invoices", timeout=5)
    async with service(statuses("Complete", "chartOfAccounts")).client() as client:
        assert await client.company("c").wait_until_ready("accounts", timeout=5)


async def test_a_refresh_may_be_of_one_connection() -> None:
    """``POST data/queue/{dataType}?connectionId=``; its answer is the data set of each type."""
    asked = service({"status": "Initial"})
    async with asked.client() as client:
        begun = await client.company("c").refresh(["invoices", "bills"], connection_id="b")

    assert begun == [{"status": "Initial"}] * 2
    assert [one.query for one in asked.log] == ["connectionId=b"] * 2


@pytest.mark.integration_sandbox(companies=1, push_seconds=(1, 1), dialect="published")
@pytest.mark.parametrize("kind", ["invoices", "bills"])
async def test_a_file_is_attached_listed_read_and_deleted(
    integration_client: Client, kind: str
) -> None:
    """They come without pages: ``{"attachments": [...]}``; bills have an address of their own."""
    first = await integration_client.companies.list().one()
    company = integration_client.company(first["id"])
    books = company.connection(first["dataConnections"][0]["id"])
    own = (await company.data(kind).list().one())["id"]
    files = books.attachments(kind, own)
    assert not await files.list()

    done = await integration_client.wait(await books.attach(kind, own, b"%PDF", filename="a"))
    (listed,) = await files.list()

    change = PushChange(type="AttachmentUploaded", record_ref=RecordRef(id=own, data_type=kind))
    assert done.changes == (evolve(change, attachment_id=listed["id"]),)
    assert await files.get(listed["id"]) == listed
    assert (await files.download(listed["id"])).body.startswith(b"%PDF")
    with pytest.raises(errors.NotFound):
        await files.get("unknown")
    assert (await files.delete(listed["id"])).company_id == company.id


async def test_headers_are_sent_with_the_calls_of_a_derived_client() -> None:
    """And with those of no other, which stays open; those that the SDK sends itself are refused."""
    asked = service()
    async with asked.client() as client:
        async with client.with_options(headers={"X-Trace": "1"}) as traced:
            await traced.companies.list()
        await client.companies.list()
        for odd in ("Authorization", "content-type", "Host", ""):
            with pytest.raises(errors.ConfigurationError):
                client.with_options(headers={odd: "x"})

    assert [request.headers.get("X-Trace") for request in asked.log] == ["1", None]
