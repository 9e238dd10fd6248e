"""OpenAPI-generated clients of the published API work against the sandbox.

What is asked here is what they send, recorded once to the byte: codat-platform 6.0.0 for companies,
options and push operations, codat-accounting 0.35.0 for invoices. What is checked is what their
models insist on: they raise where a required field is missing or a word is not in an enumeration.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pytest
from jsonschema import Draft202012Validator  # type: ignore[import-untyped]  # it ships no types

from tests.support.sandbox_support import Http, Reply, published

pytestmark = pytest.mark.virtual_time

PLATFORM = {"Accept": "application/json", "Accept-Encoding": "identity"}
ACCOUNTING = {"Accept": "application/json", "Connection": "keep-alive"}
INVOICE = (
    b'{"amountDue":241.0,"currency":"GBP","currencyRate":null,"customerRef":{"companyName":null,'
    b'"id":"c-1"},"discountPercentage":null,"dueDate":"2024-03-31T00:00:00","invoiceNumber":'
    b'"INV-9","issueDate":"2024-03-01T00:00:00","lineItems":[{"description":"Ash","discountAmount":'
    b'null,"discountPercentage":null,"quantity":2.0,"subTotal":null,"taxAmount":null,"totalAmount":'
    b'null,"trackingCategoryRefs":null,"unitAmount":120.5}],"note":null,"paymentAllocations":null,'
    b'"salesOrderRefs":null,"status":"Submitted","subTotal":null,"totalAmount":241.0,'
    b'"totalDiscount":null,"totalTaxAmount":0.0,"withholdingTax":null}'
)
"""An invoice as codat-accounting writes it: every field it knows, null where it has no value."""

KINDS = ["Array", "Object", "String", "Number", "Boolean", "DateTime", "File", "MultiPart"]
DATA_TYPES = [
    *("accounts", "bankAccounts", "bills", "chartOfAccounts", "creditNotes", "customers"),
    *("directCosts", "directIncomes", "invoices", "items", "journalEntries", "payments"),
    *("purchaseOrders", "salesOrders", "suppliers", "taxRates"),
]
OPTIONAL_TEXT = {"type": ["string", "null"]}


def needs(*names: str, **properties: Any) -> dict[str, Any]:
    """An object with these fields, and these among all of its properties."""
    return {"type": "object", "required": list(names), "properties": properties}


def one_of(*words: str) -> dict[str, Any]:
    return {"enum": list(words)}


def page_of(item: dict[str, Any]) -> dict[str, Any]:
    links = needs("self", "current", self=needs("href"), current=needs("href"))
    return needs(
        *("pageNumber", "pageSize", "totalResults", "_links"),
        results={"type": "array", "items": item, "minItems": 1},
        _links=links,
    )


CONNECTION = needs(
    *("id", "integrationId", "sourceId", "sourceType", "platformName", "linkUrl", "created"),
    status=one_of("PendingAuth", "Linked", "Unlinked", "Deauthorized"),
    sourceType=one_of("Accounting", "Banking", "BankFeed", "Commerce", "Expense", "Other"),
)
COMPANY = needs(
    *("id", "name", "redirect"),
    description={"type": "string"},
    lastSync={"type": "string"},
    dataConnections={"type": "array", "items": CONNECTION},
)
CHANGE = needs(
    type=one_of("Unknown", "Created", "Modified", "Deleted", "AttachmentUploaded"),
    recordRef=needs(id={"type": "string"}, dataType=one_of(*DATA_TYPES)),
)
COMPLAINTS = {
    "type": ["array", "null"],
    "items": needs(itemId=OPTIONAL_TEXT, message={"type": "string"}, validatorName=OPTIONAL_TEXT),
}
OPERATION = needs(
    *("companyId", "pushOperationKey", "dataConnectionKey", "requestedOnUtc", "statusCode"),
    status=one_of("Pending", "Failed", "Success", "TimedOut"),
    statusCode={"type": "integer"},
    dataType=one_of(*DATA_TYPES),
    completedOnUtc=OPTIONAL_TEXT,
    errorMessage=OPTIONAL_TEXT,
    changes={"type": ["array", "null"], "items": CHANGE},
    timeoutInMinutes={"type": ["integer", "null"]},
    validation=needs(errors=COMPLAINTS, warnings=COMPLAINTS),
)
READ_INVOICE = needs(
    *("issueDate", "totalTaxAmount", "totalAmount", "amountDue"),
    lineItems={"items": needs("quantity", "unitAmount", "isDirectIncome", "trackingCategoryRefs")},
    paymentAllocations={"items": needs(payment=needs("paidOnDate"), allocation=needs())},
    status=one_of("Unknown", "Draft", "Submitted", "PartiallyPaid", "Paid", "Void"),
)
PROPERTY = needs(
    *("type", "displayName", "description", "required"),
    type=one_of(*KINDS),
    required={"type": "boolean"},
    properties={"additionalProperties": {"$ref": "#/$defs/property"}},
    options={"items": needs(value={"type": "string"}, type=one_of(*KINDS))},
    validation=needs(warnings={"items": needs("details")}, information={"items": needs("details")}),
)
ERROR = needs("statusCode", "service", "error", "correlationId", "canBeRetried")
OPTION = PROPERTY | {"$defs": {"property": PROPERTY}}


def reads(schema: dict[str, Any], reply: Reply, status: int = 200) -> Any:
    """The body of *reply*, which a model of this *schema* can hold."""
    assert reply.status == status, reply.text
    Draft202012Validator(schema).validate(reply.body)
    return reply.body


async def sent(http: Http, call: str, body: bytes = b"", by: Mapping[str, str] = PLATFORM) -> Reply:
    """What is answered to a request as *by* sends it."""
    kind = {"Content-Type": "application/json"} if body else {}
    return await http.call(*call.split(), data=body or None, headers={**by, **kind})


async def test_companies_are_listed_created_and_changed() -> None:
    """Company: id, name and redirect; a page: its numbers and links; connections; errors."""
    async with published() as http:
        made = await sent(http, "POST /companies", b'{"name": "Newcomers", "description": "x"}')
        page = await sent(http, "GET /companies?page=1&pageSize=2")
        few = await sent(http, "GET /companies?page=1&pageSize=100&query=name~new&orderBy=-created")
        company = f"/companies/{reads(COMPANY, made)['id']}"
        changed = await sent(http, f"PATCH {company}", b'{"name": "Regulars"}')
        replaced = await sent(http, f"PUT {company}", b'{"name": "Locals"}')
        newest = await sent(http, "GET /companies?page=1&pageSize=1&orderBy=-modifiedDate")
        gone, after = await sent(http, f"DELETE {company}"), await sent(http, f"GET {company}")
        some = await sent(http, f"GET {http.company}/connections?page=1&pageSize=100")
        one = await sent(http, f"GET {http.at()}")
        none = await sent(http, f"GET {http.company}/push/{http.first.id}")

    assert reads(page_of(COMPANY), page)["totalResults"] == 4
    assert [found["name"] for found in reads(page_of(COMPANY), few)["results"]] == ["Newcomers"]
    assert (reads(COMPANY, changed)["name"], changed.body["description"]) == ("Regulars", "x")
    assert (reads(COMPANY, replaced)["name"], replaced.body["description"]) == ("Locals", "")
    assert reads(page_of(CONNECTION), some)["results"][0] == reads(CONNECTION, one)
    assert newest.body["results"] == [replaced.body]
    assert (gone.status, gone.text) == (204, "")
    assert reads(ERROR, after, 404)["statusCode"] == reads(ERROR, none, 404)["statusCode"] == 404


async def test_invoices_are_listed() -> None:
    """Invoice: dates, totals, and a status from the enumeration; filtered and ordered."""
    query = "page=1&pageSize=50&query=status%3Dpaid%26%26totalAmount%3E100&orderBy=-issueDate"
    async with published() as http:
        everything = await sent(http, f"GET {http.company}/data/invoices?page=1", by=ACCOUNTING)
        paid = await sent(http, f"GET {http.company}/data/invoices?{query}", by=ACCOUNTING)
        identifier = everything.body["results"][0]["id"]
        one = await sent(http, f"GET {http.company}/data/invoices/{identifier}", by=ACCOUNTING)

    assert reads(page_of(READ_INVOICE), everything)["totalResults"] == 250
    assert {found["status"] for found in reads(page_of(READ_INVOICE), paid)["results"]} == {"Paid"}
    assert reads(READ_INVOICE, one) == everything.body["results"][0]


async def test_options_are_read() -> None:
    """PushOption: type, displayName and required on every level, types from the enumeration."""
    async with published() as http:
        for connection in range(4):
            paths = [f"GET {http.at(connection)}/options/{name}" for name in DATA_TYPES]
            replies = [await sent(http, path) for path in paths]
            # No platform takes everything.
            taken = [reads(OPTION, reply) for reply in replies if reply.status != 404]
            assert len(taken) >= 8
            assert all(option["properties"] for option in taken)


@pytest.mark.parametrize("connection", [0, 1, 2, 3])
async def test_pushes_are_made_and_watched(connection: int) -> None:
    """PushOperation: dataConnectionKey, requestedOnUtc, statusCode and words from enumerations."""
    async with published() as http:
        identifier = http.sandbox.data_set(http.first.id, "invoices").ids()[0]
        push, pushes = f"{http.at(connection)}/push/invoices", f"GET {http.company}/push"
        made = await sent(http, f"POST {push}?timeoutInMinutes=5", INVOICE, by=ACCOUNTING)
        changing = f"PUT {push}/{identifier}?forceUpdate=true"
        changed = await sent(http, changing, INVOICE, by=ACCOUNTING)
        http.sandbox.clock.advance(minutes=6)
        listed = await sent(http, f"{pushes}?page=1&pageSize=100&orderBy=-requestedOnUtc")
        one = await sent(http, f"{pushes}/{reads(OPERATION, made)['pushOperationKey']}")

    operations = reads(page_of(OPERATION), listed)["results"]
    ends = [operation["status"] for operation in operations]
    # The third platform is offline: what has a deadline times out there, the rest waits.
    assert ends == (["Pending", "TimedOut"] if connection == 2 else ["Success", "Success"])
    assert reads(OPERATION, one) == operations[1]
    assert reads(OPERATION, changed)["pushOperationKey"] == operations[0]["pushOperationKey"]
