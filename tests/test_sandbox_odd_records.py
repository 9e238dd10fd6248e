"""Records that are sparse or odd: lists stay searchable, and a platform fills in what it knows."""

from __future__ import annotations

from decimal import Decimal
from typing import Any

import pytest

from integration_sdk.sandbox._call import encode
from tests.sandbox_support import Http, serving

pytestmark = pytest.mark.virtual_time

# ---------------------------------------------------------------------- filters

MINIMAL: dict[str, Any] = {
    "customerRef": {"id": "c-1"},
    "issueDate": "2024-03-01",
    "lineItems": [{"unitAmount": 2, "quantity": 3}],
    "status": "Draft",
}


async def found(http: Http, kind: str, query: str, **more: Any) -> int:
    """How many records of *kind* a query finds, or the status that refuses it."""
    reply = await http.get(f"{http.company}/data/{kind}", query=query, pageSize=1, **more)
    return int(reply.body["totalResults"]) if reply.status == 200 else -reply.status


async def test_a_filter_outlives_a_sparse_update() -> None:
    """What could be asked before the first record lost a field can be asked after it."""
    async with serving() as http:
        first = http.sandbox.data_set(http.first.id, "invoices").ids()[0]
        path = f"{http.at(1)}/push/invoices/{first}"
        updated = await http.call("PUT", path, json=MINIMAL)
        asked = [
            await found(http, "invoices", query)
            for query in ("issueDate>2000-01-01", "dueDate>2000-01-01", "currencyRate>0", "nope=1")
        ]
        ordered = await found(http, "invoices", "note~e", orderBy="-dueDate")

    assert (updated.body["status"], asked) == ("Success", [250, 249, 249, -400])
    assert ordered == 249


@pytest.mark.parametrize(
    ("kind", "odd", "query", "hits"),
    [
        ("invoices", MINIMAL | {"invoiceNumber": "2024-05-01"}, "invoiceNumber=INV-0000001", 1),
        ("invoices", MINIMAL | {"invoiceNumber": "2024-05-01"}, "invoiceNumber=2024-05-01", 1),
        ("invoices", MINIMAL | {"invoiceNumber": "2024-05-01"}, "invoiceNumber!=INV-0000001", 250),
        ("customers", {"contactName": {"a": 1}}, "contactName~team", 200),
        ("customers", {"phone": 7}, "phone=+44 117 496 0001", 1),
        ("customers", {"phone": 7}, "phone~44", 200),
        ("customers", {"colour": "red"}, "colour=red", -400),
    ],
)
async def test_an_odd_record_is_no_match(
    kind: str, odd: dict[str, Any], query: str, hits: int
) -> None:
    """A value of a kind that does not compare is equal to nothing, and spoils no filter."""
    record = {"customerName": "x", "status": "Active"} if kind == "customers" else {}
    async with serving() as http:
        pushed = await http.post(f"{http.at(1)}/push/{kind}", record | odd)

        assert pushed.body["status"] == "Success"
        assert await found(http, kind, query) == hits


async def test_what_only_some_records_hold_can_be_asked_for() -> None:
    """Names are good if the sample or any record written since has them."""
    async with serving() as http:
        http.sandbox.data_set(http.first.id, "items").append({"id": "x", "colour": "red"})

        assert await found(http, "items", "colour=red") == 1
        assert await found(http, "items", "name~e", orderBy="colour") > 1


async def test_an_empty_list_knows_its_properties() -> None:
    """Books without invoices, or with one minimal one, are asked as others are."""
    async with serving(invoices=0) as http:
        before = [await found(http, "invoices", query) for query in ("dueDate>2020-01-01", "x=1")]
        await http.post(f"{http.at(1)}/push/invoices", MINIMAL)
        after = [await found(http, "invoices", query) for query in ("dueDate>2020-01-01", "x=1")]

    assert (before, after) == ([0, -400], [0, -400])


async def test_pushes_are_found_by_what_came_of_them() -> None:
    """What only finished pushes hold can be asked for while the newest is Pending."""
    async with serving(push_seconds=(60, 60)) as http:
        done = await http.push(1)
        await http.push(0)
        body = (await http.get(f"{http.company}/push", query="data.invoiceNumber=INV-17")).body

    assert [entry["pushOperationKey"] for entry in body["results"]] == [done["pushOperationKey"]]


@pytest.mark.parametrize("order", [None, "-timeoutInMinutes"])
async def test_pushes_are_found_by_their_deadline(order: str | None) -> None:
    """Not every push has a deadline; all can be asked for theirs."""
    async with serving() as http:
        path = f"{http.company}/push"
        more = {"orderBy": order} if order else {}
        await http.push()
        none = await http.get(path, query="timeoutInMinutes=60", **more)
        await http.push(timeoutInMinutes=60)
        await http.push()
        one = await http.get(path, query="timeoutInMinutes=60", **more)
        odd = await http.get(path, query="timeoutInMinutes=soon", **more)

    assert (none.body["totalResults"], one.body["totalResults"], odd.status) == (0, 1, 400)


# ---------------------------------------------------------------------- what a platform fills in

ENTRY = {"issueDate": "2024-03-01", "status": "Draft"}
LINE = {"unitAmount": Decimal("10.10"), "quantity": 3}
DISCOUNTED = {"unitAmount": 5, "quantity": 1, "discountAmount": 1, "taxAmount": Decimal("0.80")}


async def kept(http: Http, kind: str, record: dict[str, Any]) -> Any:
    """*record* as it appears in the books once pushed."""
    pushed = await http.call("POST", f"{http.at(1)}/push/{kind}", data=encode(record))
    assert pushed.body["status"] == "Success", pushed.text
    return pushed.body["data"]


@pytest.mark.parametrize(
    ("kind", "generated"),
    [
        ("invoices", ("subTotal", "totalTaxAmount", "totalAmount", "amountDue", "totalDiscount")),
        ("bills", ("subTotal", "taxAmount", "totalAmount", "amountDue")),
        (
            "creditNotes",
            ("subTotal", "totalTaxAmount", "totalAmount", "remainingCredit", "totalDiscount"),
        ),
        ("directCosts", ("subTotal", "taxAmount", "totalAmount")),
    ],
)
async def test_a_platform_fills_in_totals(kind: str, generated: tuple[str, ...]) -> None:
    """The least that options ask for appears with the totals of its lines, exact to the cent."""
    party = {"customerRef": {"id": "c"}, "supplierRef": {"id": "s"}, "dueDate": "2024-03-31"}
    async with serving() as http:
        record = await kept(http, kind, ENTRY | party | {"lineItems": [LINE, DISCOUNTED]})

    amounts = ["34.30", "0.80", "35.10", "35.10", "1.00"]
    assert [str(record[name]) for name in generated] == amounts[: len(generated)]
    assert (record["currency"], record["paymentAllocations"]) == ("GBP", [])
    assert "subTotal" not in record["lineItems"][0]


async def test_what_a_record_says_of_itself_stays() -> None:
    """Totals sent are kept and reckoned with; a null says nothing."""
    sent = MINIMAL | {"subTotal": 100, "totalAmount": None, "amountDue": 7, "currency": "EUR"}
    async with serving() as http:
        record = await kept(http, "invoices", sent)

    assert (record["subTotal"], record["totalAmount"], record["amountDue"]) == (100, 100, 7)
    assert record["currency"] == "EUR"


@pytest.mark.parametrize(
    "lines",
    [
        [{"unitAmount": "2", "quantity": True}],
        ["line"],
        "lines",
        [{"unitAmount": Decimal("1e999999"), "quantity": Decimal("1e999999")}],
        [{"unitAmount": Decimal("1e40"), "quantity": 1}],
    ],
)
async def test_odd_lines_are_kept_as_they_came(lines: Any) -> None:
    """A platform that checks nothing takes anything, and its sums are never in the way."""
    async with serving() as http:
        record = await kept(http, "invoices", MINIMAL | {"lineItems": lines})

    assert encode(record["lineItems"]) == encode(lines)


async def test_direct_costs_tell_their_payments() -> None:
    """A list of payment allocations, if an empty one, as generated clients insist."""
    async with serving() as http:
        costs = (await http.get(f"{http.company}/data/directCosts")).body["results"]

    assert all(cost["paymentAllocations"] == [] for cost in costs)
