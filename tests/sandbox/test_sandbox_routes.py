"""Addresses: each call, in both dialects, and the status or the shape of its answer.

Source: "Endpoints"; "Resources and their fields", Error body; "Errors", Other rules 1; and the
published descriptions of the service (2023, 2026) for what the document does not show.
"""

from __future__ import annotations

import io
import re
from decimal import Decimal
from itertools import product
from typing import Any

import pytest

from integration_sdk import Dialect
from integration_sdk.sandbox import Sandbox
from tests.support.sandbox_support import DELIVERY, UUID, published, serving

pytestmark = pytest.mark.virtual_time

COMPANY = """
accounts billCreditNotes billPayments bills creditNotes customers invoices items journalEntries
journals paymentMethods payments purchaseOrders salesOrders suppliers taxRates trackingCategories
banking-transactions
"""
CONNECTION = """
accountTransactions bankAccounts directCosts directIncomes transfers banking-accountBalances
banking-accounts banking-transactionCategories commerce-customers commerce-disputes commerce-info
commerce-locations commerce-orders commerce-paymentMethods commerce-payments
commerce-productCategories commerce-products commerce-taxComponents commerce-transactions
banking-transactions
"""
PUSHED = {
    "POST": """accounts bankAccounts billCreditNotes billPayments bills creditNotes customers
    directCosts directIncomes invoices items journalEntries journals payments purchaseOrders
    suppliers transfers""",
    "PUT": """bankAccounts billCreditNotes bills creditNotes customers invoices purchaseOrders
    suppliers""",
    "DELETE": "billPayments bills invoices journalEntries",
}


@pytest.mark.parametrize("dialect", [Dialect.document(), Dialect.published()])
async def test_each_type_of_data_is_read_at_its_address(dialect: Dialect) -> None:
    """The list, one record of it, and at the other address 404; the client knows where each is."""
    here, there = COMPANY.split(), CONNECTION.split()
    assert dialect.company_types == {*here}
    assert dialect.connection_types == {*there}
    async with serving(dialect=dialect.name) as http:
        right = [(http.company, kind) for kind in here] + [(http.at(1), kind) for kind in there]
        wrong = [(http.at(1), kind) for kind in here if kind not in there]
        wrong += [(http.company, kind) for kind in there if kind not in here]
        for at, kind in right:
            page = (await http.get(f"{at}/data/{kind}", pageSize=2)).body
            one = await http.get(f"{at}/data/{kind}/{page['results'][1]['id']}")
            assert (page["totalResults"] > 2, one.body) == (True, page["results"][1]), kind
        for at, kind in wrong:
            assert (await http.get(f"{at}/data/{kind}")).status == 404, kind


async def test_what_can_be_pushed_and_changed_is_as_published() -> None:
    """Options and POST, PUT, DELETE of each type; others have no such address or method."""
    async with published() as http:
        for verb, kind in product(PUSHED, (COMPANY + CONNECTION).split()):
            name = "chartOfAccounts" if kind == "accounts" else kind
            path = f"{http.at()}/push/{kind}" + ("" if verb == "POST" else "/x")
            reply = await http.call(verb, path, json={})
            can_be = kind in PUSHED[verb].split()
            is_pushed = kind in PUSHED["POST"].split()
            asked = await http.get(f"{http.at()}/options/{name}")
            assert asked.status == (200 if is_pushed else 404), kind
            assert reply.status == (200 if can_be else 405 if is_pushed else 404)


async def test_a_refresh_ends_by_the_clock() -> None:
    """`POST data/queue/{dataType}`, `data/all`; `GET dataStatus`, `data/history`."""
    async with serving(push_seconds=(60, 60)) as http:
        queue = f"{http.company}/data/queue/invoices"
        begun = (await http.post(queue, None, connectionId=http.connection(1).id)).body
        during = (await http.get(f"{http.company}/dataStatus")).body["invoices"]
        http.sandbox.clock.advance(seconds=61)
        after = (await http.get(f"{http.company}/dataStatus")).body
        history = f"{http.company}/data/history"
        listed = (await http.get(history)).body["results"]
        one = (await http.get(f"{history}/{begun['id']}")).body
        every = await http.post(f"{http.company}/data/all", None)

    assert (begun["connectionId"], begun["isCompleted"]) == (http.connection(1).id, False)
    assert (during["currentStatus"], during["latestSyncId"]) == ("Fetching", begun["id"])
    assert after["invoices"]["currentStatus"] == after["transfers"]["currentStatus"] == "Complete"
    assert after["invoices"]["latestSuccessfulSyncId"] == begun["id"]
    assert (listed, one["status"], every.status) == ([one], "Complete", 204)


async def test_bank_transactions_are_pushed_to_their_account() -> None:
    """`POST K/push/bankAccounts/{accountId}/bankTransactions`; an unknown account fails it."""
    async with published() as http:
        accounts = (await http.get(f"{http.at(1)}/data/bankAccounts")).body["results"]
        path = f"bankAccounts/{accounts[1]['id']}/bankTransactions"
        entry = {"date": "2024-03-01", "amount": 12.5, "description": "Rent"}
        record = {"accountId": accounts[1]["id"], "transactions": [entry, entry]}
        asked = (await http.get(f"{http.at(1)}/options/{path}")).body
        pushed = (await http.post(f"{http.at(1)}/push/{path}", record)).body
        page = (await http.get(f"{http.at(1)}/data/{path}", page=3)).body
        lost = path.replace(accounts[1]["id"], "unknown")
        failed = (await http.post(f"{http.at(1)}/push/{lost}", record)).body

    assert asked["properties"]["transactions"]["type"] == "Array"
    assert (pushed["dataType"], pushed["status"]) == ("bankTransactions", "Success")
    assert [one["description"] for one in page["results"][-2:]] == ["Rent", "Rent"]
    assert (page["totalResults"], failed["status"]) == (252, "Failed")


async def test_a_file_is_in_a_part_of_any_name() -> None:
    """Multipart; a part without a file name is none. The journey of a file is in `test_reach`."""
    async with published() as http:
        path = f"{http.at(1)}/push/bills/{http.sandbox.data_set(http.first.id, 'bills').ids()[0]}"
        good = await http.call("POST", f"{path}/attachments", data={"any": io.BytesIO(b"%PDF")})
        bad = await http.call("POST", f"{path}/attachments", data={"file": "no file"})

    assert (good.status, bad.status) == (200, 400)


# The call | its bodies, or what stands behind its "=" | the status, and the item at fault.
REFUSED = r"""
There is no such address, or no such thing
GET /nowhere | | 404
GET //companies | | 404
GET /companies/unknown | | 404
GET /companies/{id}%2Fpush | | 404
GET {company}/data/widgets | | 404
GET {company}/data/bankTransactions | | 404
GET {company}/data/bankAccounts | | 404
GET {company}/data/history/unknown | | 404
POST {company}/data/queue/widgets | | 404
GET {company}/push/unknown | | 404
GET {company}/connections/unknown | | 404
GET {at}/options/widgets | | 404
POST {at}/push/widgets | {} | 404
POST {at}/push/bankTransactions | {} | 404
POST {other}/push/invoices | {} | 404
An address without this method
DELETE /companies | | 405
PATCH {at}/push/invoices | | 405
GET /profile/syncSettings | | 405
PUT /_page/faults | [] | 405
"Maximum page size 5000"; pages are counted from 1
GET /companies?pageSize= | 5001 ; 0 ; -1 ; ten ; ; 1.5 | 400 pageSize
GET /companies?page= | 0 ; 999999999999999999999999999 ; %C2%B2 | 400 page
A company needs a name
POST /companies | {} ; {"name": ""} ; {"name": 7} ; {"name": "  "} | 400 Name
POST /companies | {"name": "x", "description": 1} | 400 Description
`{clientId, settings:[{dataType, syncSchedule (hours), ...}]}`
POST /profile/syncSettings | [] | 400 body
POST /profile/syncSettings | {"settings": {}} ; {"settings": [1]} | 400 settings
POST /profile/syncSettings | {"syncSchedule": "daily"} ; {"syncSchedule": true} | 400 syncSchedule
POST /profile/syncSettings | {"settings": [{"syncSchedule": -1}]} | 400 syncSchedule
A push is a JSON object, its deadline an integer
POST {at}/push/invoices?timeoutInMinutes= | 0 ; -1 ; soon ; 1.5 ; 2147483648 | 400 timeoutInMinutes
PUT {at}/push/invoices/x?forceUpdate= | maybe | 400 forceUpdate
POST {at}/push/invoices/x/attachment | {} | 400 file
POST {at}/push/invoices | ; { ; [] ; "x" ; {"a":NaN} ; {"a":1e99999999999999999999} | 400 body
The page
POST /_page/faults | {} ; [ ; [{"fault": "earthquake"}] ; [{"fault": 1}] | 400 faults
DELETE /_page/faults | {} ; [1] | 400 faults
POST /_page/advance | {"seconds": -1} ; {"seconds": "60"} ; {"seconds": true} | 400 seconds
"""
ODD_BODIES = [b"\xff", b"[" * 100_000]


@pytest.mark.parametrize("dialect", ["document", "published"])
async def test_what_is_refused_says_why(dialect: str) -> None:
    """ "Every error body carries correlationId", one of its own; nothing has changed by it."""
    calls = [("POST {at}/push/invoices", body, "400 body") for body in ODD_BODIES]
    for row in REFUSED.splitlines():
        if "|" in row:
            call, values, wanted = row.split("|")
            calls += [(call.strip(), each.strip().encode(), wanted) for each in values.split(";")]
    seen = set()
    async with serving(dialect=dialect) as http:
        sandbox, other = http.sandbox, http.sandbox.companies[1].id
        kept = sandbox.faults.latency(0)
        paths = {"company": http.company, "id": http.first.id, "at": http.at()}
        paths["other"] = f"/companies/{other}/connections/{http.connection().id}"
        for call, value, wanted in calls:
            status, *item = wanted.split()
            method, path = re.sub(r"\{(\w+)\}", lambda name: paths[name[1]], call).split()
            url, sent = (path + value.decode(), b"{}") if path.endswith("=") else (path, value)
            headers = {"Content-Type": "application/json"}
            reply = await http.call(method, url, data=sent or None, headers=headers)
            body = reply.body

            assert reply.status == body["statusCode"] == int(status), call
            assert {"service", "error", "correlationId"} <= set(body)
            assert (body["canBeRetried"], body["detailedErrorCode"]) == ("Unknown", 0)
            assert ("Allow" in reply.headers) == (status == "405")
            assert [each["itemId"] for each in body.get("validation", {}).get("errors", ())] == item
            assert UUID.fullmatch(body["correlationId"])
            seen.add(body["correlationId"])

        assert len(seen) == len(calls)
        assert (sandbox.pushes, sandbox.sync_settings, list(sandbox.faults)) == ([], None, [kept])


async def test_own_records_are_served_in_place_of_generated_ones() -> None:
    """For each company, filtered and ordered by what any of them has, and changed by pushes."""
    own: list[dict[str, Any]] = [
        {"id": "n", "rate": None},
        {"id": "a", "rate": 2},
        {"id": "b", "rate": "1.00", "modifiedDate": "2024-01-01T00:00:00.1234567Z"},
    ]
    async with serving(records={"invoices": own, "transfers": []}) as http:
        path = f"{http.company}/data/invoices"
        other = f"/companies/{http.sandbox.companies[1].id}/data/invoices"
        for url in (path, other):
            assert (await http.get(url)).body["results"] == own
        assert (await http.get(path, query="rate>0")).body["results"] == own[1:2]
        assert (await http.get(path, query="rate!=2")).body["results"] == own[::2]
        assert (await http.get(path, orderBy="-modifiedDate")).body["results"] == [own[2], *own[:2]]
        assert (await http.get(f"{http.at()}/data/transfers")).body["totalResults"] == 0
        assert (await http.get(f"{http.company}/data/bills")).body["totalResults"] == 400
        await http.call("PUT", f"{http.at(1)}/push/invoices/a", json=DELIVERY)
        assert (await http.get(f"{path}/a")).body["invoiceNumber"] == "INV-17"
        assert (await http.get(other)).body["results"] == own
    with pytest.raises(ValueError, match="records cannot have 'widgets': give accounts, "):
        Sandbox(records={"widgets": []})


def test_books_are_uneven_on_purpose() -> None:
    """Missing fields here and nested there, a text for a number, one moment of many, not linked."""
    sandbox = Sandbox(companies=10, invoices=1000)
    first, *_, last = sandbox.companies
    rows = list(sandbox.data_set(first.id, "invoices"))
    bills = list(sandbox.data_set(first.id, "bills"))

    assert {type(row["currencyRate"]) for row in rows} == {Decimal, str}
    assert {type(row.get("taxAmount", ...)) for row in bills} >= {Decimal, str, type(...)}
    assert {"dueDate" in row for row in rows} == {"note" in row for row in bills} == {True, False}
    assert {row.keys() >= {"id", "status", "totalAmount", "modifiedDate"} for row in rows} == {True}
    assert {"companyName" in row["customerRef"] for row in rows} == {True, False}
    assert {"itemRef" in line for row in rows for line in row["lineItems"]} == {True, False}
    assert [row["modifiedDate"] for row in rows].count("2025-01-01T03:00:00Z") == 250
    assert last.connections == []
    assert all(company.connections for company in Sandbox(companies=10, unlinked=0).companies)
