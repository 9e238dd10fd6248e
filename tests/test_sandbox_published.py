"""The published dialect does what today's public API is known to do, and both share its routes."""

from __future__ import annotations

import asyncio
from typing import Any

import aiohttp
import pytest

from tests.sandbox_support import DELIVERY, holding, published, push_under, serving, until

pytestmark = pytest.mark.virtual_time

# ---------------------------------------------------------------------- routes of both dialects


@pytest.mark.parametrize("dialect", ["document", "published"])
async def test_companies_are_read_changed_and_deleted(dialect: str) -> None:
    """`GET/PUT/DELETE C` beside `GET/POST /companies`."""
    async with serving(dialect=dialect) as http:
        made = (await http.post("/companies", {"name": "Newcomers", "description": "x"})).body
        path = f"/companies/{made['id']}"
        changed = (await http.call("PUT", path, json={"name": "Regulars"})).body
        read = (await http.get(path)).body
        gone = await http.call("DELETE", path)
        after = await http.get(path)
        total = (await http.get("/companies")).body["totalResults"]

    assert (made["name"], read["name"], changed["id"]) == ("Newcomers", "Regulars", made["id"])
    assert (gone.status, gone.text, after.status, total) == (204, "", 404, 3)


@pytest.mark.parametrize("body", [{}, {"name": ""}, {"name": 7}, {"name": "  "}])
async def test_a_company_needs_a_name(body: dict[str, Any]) -> None:
    """400 for a company without a name."""
    async with serving() as http:
        reply = await http.post("/companies", body)

    assert (reply.status, reply.errors[0]["validatorName"]) == (400, "CreateCompany")


async def test_connections_are_listed_in_pages() -> None:
    """`GET C/connections` (paged), `GET K`."""
    async with serving() as http:
        page = (await http.get(f"{http.company}/connections", pageSize=3)).body
        one = (await http.get(http.at(3))).body
        company = (await http.get(http.company)).body

    assert (page["totalResults"], len(page["results"])) == (4, 3)
    assert (one["platformName"], one["status"]) == ("Strictbooks", "Linked")
    assert company["dataConnections"][3] == one


@pytest.mark.parametrize(
    "settings", [[], {"settings": {}}, {"settings": [1]}, {"syncSchedule": "daily"}]
)
async def test_odd_sync_settings_are_bad_requests(settings: Any) -> None:
    """Body `{clientId, settings:[{dataType, syncSchedule (hours), ...}]}`."""
    async with serving() as http:
        assert (await http.post("/profile/syncSettings", settings)).status == 400
        assert http.sandbox.sync_settings is None


async def test_a_record_is_updated() -> None:
    """`PUT K/push/{dataType}/{recordId}`, full record as body, forceUpdate, deadline."""
    async with serving() as http:
        records = http.sandbox.data_set(http.first.id, "invoices")
        identifier = records.ids()[5]
        path = f"{http.at()}/push/invoices/{identifier}"
        params = {"forceUpdate": "true", "timeoutInMinutes": "5"}
        operation = (await http.call("PUT", path, json=DELIVERY, params=params)).body
        http.sandbox.clock.advance(minutes=1)
        ended = await http.pushed(operation)
        read = (await http.get(f"{http.company}/data/invoices/{identifier}")).body
        page = (await http.get(f"{http.company}/data/invoices", pageSize=10)).body

    assert (operation["status"], operation["timeoutInMinutes"]) == ("Pending", 5)
    assert (ended["status"], ended["data"]["id"]) == ("Success", identifier)
    assert read["invoiceNumber"] == page["results"][5]["invoiceNumber"] == "INV-17"
    assert page["totalResults"] == 250


async def test_an_update_of_nothing_fails() -> None:
    """A record that is not there cannot be updated: Failed, not an error of the request."""
    async with serving() as http:
        reply = await http.call("PUT", f"{http.at(1)}/push/invoices/unknown", json=DELIVERY)
        odd = await http.call("PUT", f"{http.at(1)}/push/invoices/x?forceUpdate=maybe", json={})

    assert (reply.status, reply.body["status"]) == (200, "Failed")
    assert reply.errors[0]["itemId"] == "id"
    assert odd.status == 400


async def test_a_record_is_deleted() -> None:
    """`DELETE K/push/{dataType}/{recordId}`, no body, answers a push operation."""
    async with serving() as http:
        identifier = http.sandbox.data_set(http.first.id, "bills").ids()[0]
        reply = await http.call("DELETE", f"{http.at(1)}/push/bills/{identifier}")
        read = await http.get(f"{http.company}/data/bills/{identifier}")
        total = (await http.get(f"{http.company}/data/bills")).body["totalResults"]

    assert (reply.status, reply.body["status"]) == (200, "Success")
    assert (read.status, total) == (404, 399)


@pytest.mark.parametrize(("kind", "word"), [("invoices", "attachment"), ("bills", "attachments")])
async def test_a_file_is_attached(kind: str, word: str) -> None:
    """`POST .../attachment` (bills: `/attachments`), multipart field `file`."""
    async with published() as http:
        identifier = http.sandbox.data_set(http.first.id, kind).ids()[0]
        path = f"{http.at(1)}/push/{kind}/{identifier}/{word}"
        form = aiohttp.FormData()
        form.add_field("file", b"%PDF", filename="invoice.pdf")
        good = await http.call("POST", path, data=form)
        bad = await http.call("POST", path, data={"other": "x"})

    assert good.body["changes"][0]["type"] == "AttachmentUploaded"
    assert good.body["changes"][0]["recordRef"] == {"id": identifier, "dataType": kind}
    assert bad.status == 400


async def test_accounts_are_called_chart_of_accounts_elsewhere() -> None:
    """ "options and operations say `chartOfAccounts`, the push path says `accounts`"."""
    record = {"nominalCode": "4020", "name": "Sales, export", "type": "Income"}
    async with serving() as http:
        options = await http.get(f"{http.at()}/dataTypes/chartOfAccounts/options/POST")
        operation = (await http.post(f"{http.at(1)}/push/accounts", record)).body
        records = (await http.get(f"{http.company}/data/accounts", page=1)).body

    assert options.body["displayName"] == "Account"
    assert (operation["dataType"], operation["status"]) == ("chartOfAccounts", "Success")
    assert records["results"][-1]["name"] == "Sales, export"


async def test_the_published_service_has_one_name_in_each_place() -> None:
    """What is called otherwise is not found, so that no client passes here and fails there."""
    record = {"nominalCode": "4020", "name": "Sales, export", "type": "Income"}
    async with published() as http:
        asked = [
            (await http.get(f"{http.at()}/options/{name}")).status
            for name in ("chartOfAccounts", "accounts")
        ]
        pushed = [
            (await http.post(f"{http.at(1)}/push/{name}", record)).status
            for name in ("chartOfAccounts", "accounts")
        ]

    assert (asked, pushed) == ([200, 404], [404, 200])


# ---------------------------------------------------------------------- where the dialects differ


async def test_options_have_another_path() -> None:
    """`GET K/options/{dataType}` (one model for create and update)."""
    async with published() as new, serving() as old:
        here = await new.get(f"{new.at()}/options/invoices")
        update = await old.get(f"{old.at()}/dataTypes/invoices/options/PUT")
        crossed = [
            await new.get(f"{new.at()}/dataTypes/invoices/options/POST"),
            await old.get(f"{old.at()}/options/invoices"),
        ]

    assert (here.status, update.status) == (200, 200)
    assert [reply.status for reply in crossed] == [404, 404]
    assert here.body["required"] is True
    validation = here.body["properties"]["invoiceNumber"]["validation"]
    assert validation["warnings"][0]["field"] == "InvoiceNumber"
    assert validation["information"] == []
    line = here.body["properties"]["lineItems"]["properties"]["description"]
    assert line["validation"]["warnings"][0]["field"] == "LineItems.Description"


async def test_operations_are_written_as_published() -> None:
    """`dataConnectionKey`; no `data`; `statusCode`, `changes`; parts of `validation` null."""
    async with published() as http:
        pending, done = await http.push(0), await http.push(1)
        listed = (await http.get(f"{http.company}/push")).body["results"][0]

    for operation in (pending, done, listed):
        assert operation["dataConnectionKey"]
        assert not {"data", "dataConnectionId"} & set(operation)
    assert (pending["statusCode"], pending["changes"]) == (202, None)
    assert pending["validation"] == {"errors": None, "warnings": None}
    assert (done["statusCode"], done["changes"][0]["type"]) == (200, "Created")
    assert done["changes"][0]["recordRef"]["dataType"] == "invoices"
    assert listed == done


async def test_a_failure_has_an_error_message() -> None:
    """`errorMessage` beside `validation`."""
    async with published() as http:
        operation = (await http.post(f"{http.at(1)}/push/invoices", {})).body

    assert operation["errorMessage"] == operation["validation"]["errors"][0]["message"]


@pytest.mark.parametrize("dialect", ["document", "published"])
@pytest.mark.parametrize("spelling", ["dataConnectionId", "dataConnectionKey"])
async def test_either_spelling_can_be_had(dialect: str, spelling: str) -> None:
    """ "`dataConnectionId` is called `dataConnectionKey` in every published schema"."""
    async with serving(dialect=dialect, spelling=spelling) as http:
        assert (await http.push())[spelling] == http.connection().id


# ---------------------------------------------------------------------- idempotency


async def test_an_answer_is_replayed_for_ninety_minutes() -> None:
    """ "the answer is kept 90 minutes and replayed"."""
    async with published() as http:
        first = await push_under(http, "k")
        http.sandbox.clock.advance(minutes=89)
        again = await push_under(http, "k")
        other = await push_under(http, "k2")
        http.sandbox.clock.advance(minutes=2)
        late = await push_under(http, "k")

        assert len(http.sandbox.pushes) == 3
    assert again.text == first.text
    assert len({reply.body["pushOperationKey"] for reply in (first, other, late)}) == 3


async def test_server_errors_are_replayed_and_throttling_is_not() -> None:
    """ "5xx included"; "429 is not kept (retry with the same key)"."""
    async with published() as http:
        http.sandbox.faults.status(500, times=1)
        http.sandbox.faults.status(429, times=1, skip=0, route="/push/")
        broken = [await push_under(http, "a") for _ in range(2)]
        throttled = [(await push_under(http, "b")).status for _ in range(2)]

        assert len(http.sandbox.pushes) == 1
    assert [reply.status for reply in broken] == [500, 500]
    assert broken[0].text == broken[1].text
    assert throttled == [429, 200]


async def test_a_lost_answer_is_replayed() -> None:
    """A push whose answer was lost is recorded once however often it is sent."""
    async with published() as http:
        http.sandbox.faults.lose_answer(times=1)
        with pytest.raises(aiohttp.ClientError):
            await push_under(http, "k")
        again = await push_under(http, "k")

        assert [push.key for push in http.sandbox.pushes] == [again.body["pushOperationKey"]]


async def test_a_key_belongs_to_one_request() -> None:
    """ "same key with another body 422; same key in progress 409"."""
    async with published() as http:
        gate = asyncio.Event()
        http.sandbox.faults.add(holding(gate))
        first = asyncio.create_task(push_under(http, "k"))
        await until(lambda: http.sandbox.pushes)
        busy = await push_under(http, "k")
        other = await push_under(http, "k", {"a": 1})
        gate.set()
        done = await first

        assert len(http.sandbox.pushes) == 1
    assert (busy.status, other.status, done.status) == (409, 422, 200)
    assert "correlationId" in busy.body


async def test_the_documents_dialect_has_no_such_key() -> None:
    """ "The document's dialect has no such key"."""
    async with serving() as http:
        replies = [await push_under(http, "k") for _ in range(2)]

        assert len(http.sandbox.pushes) == 2
    assert replies[0].body["pushOperationKey"] != replies[1].body["pushOperationKey"]


# ---------------------------------------------------------------------- quota


async def test_the_daily_quota_is_counted_and_renewed() -> None:
    """ "1,000 x (1 + connected companies) requests a day, reset 00:00 UTC"."""
    async with serving(companies=1, daily_quota=3) as http:
        replies = [await http.get("/companies") for _ in range(4)]
        http.sandbox.clock.advance(days=1)
        renewed = await http.get("/companies")

    assert [reply.status for reply in replies] == [200, 200, 200, 429]
    told = [reply.headers["X-Rate-Limit-Remaining"] for reply in replies]
    assert told == ["2", "1", "0", "0"]
    assert replies[0].headers["X-Rate-Limit-Limit"] == "3"
    assert replies[0].headers["X-Rate-Limit-Reset"].endswith("T00:00:00.000Z")
    assert 0 < int(replies[3].headers["Retry-After"]) <= 86_401
    assert renewed.status == 200


async def test_the_published_quota_grows_with_the_companies() -> None:
    """ "1,000 x (1 + connected companies)"; without a quota there are no such headers."""
    async with serving(companies=4, daily_quota=True) as counted, serving() as free:
        limit = (await counted.get("/companies")).headers["X-Rate-Limit-Limit"]
        headers = (await free.get("/companies")).headers

    assert limit == "5000"
    assert "X-Rate-Limit-Limit" not in headers


async def test_it_says_which_dialect_it_speaks() -> None:
    """Sandbox.dialect is what a client is to be told."""
    async with published() as new, serving() as old:
        assert (new.sandbox.dialect, old.sandbox.dialect) == ("published", "document")
