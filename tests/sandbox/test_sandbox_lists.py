"""Lists: what a filter means, that every record is looked at, and that changes are shown."""

from __future__ import annotations

from decimal import Decimal
from typing import Any

import pytest

from tests.support.sandbox_support import DELIVERY, Http, serving

ROW: dict[str, Any] = {
    "id": "odd",
    "status": "PartiallyPaid",
    "totalAmount": Decimal("10.10"),
    "currencyRate": 3,
    "taxInclusive": True,
    "issueDate": "2024-03-01T00:00:00",
    "dueDate": None,
    "customerRef": {"companyName": "Alder & Finch {Ltd}", "id": "c-1"},
    "lineItems": [{"quantity": 1}],
}


async def found(http: Http, query: str) -> int:
    """How many invoices a query finds, or the status that refuses it."""
    reply = await http.get(f"{http.company}/data/invoices", query=query, pageSize=1)
    if reply.status == 400:
        assert reply.errors[0]["itemId"] == "query"
    return int(reply.body["totalResults"]) if reply.status == 200 else -reply.status


RATE, TAXED = "currencyRate", "taxInclusive"
MATCHES = [
    *("status=PartiallyPaid", "status=partiallypaid", "status!=Paid", "status~paid"),
    *("totalAmount=10.1", "totalAmount>=10.10", "totalAmount<1e2", f"{RATE}>2", f"{TAXED}=true"),
    *("issueDate>2024-02-29", "issueDate=2024-03-01T00:00:00Z", "issueDate~2024-03"),
    *("dueDate!=2024-01-01", "customerRef.companyName~finch", "customerRef.id=c-1"),
    *(f"{RATE}=3&&{TAXED}=true", f"{RATE}=4||{TAXED}=true", f"{RATE}=3||{RATE}=4&&{TAXED}=false"),
    *(f"{{{RATE}=3||{RATE}=4}}&&{{{TAXED}=true}}", f"{{{{{RATE}=3}}}}"),
    f"{{{RATE}=4||" * 90 + f"{RATE}=3" + "}" * 90,
    f"{{{RATE}=4}}||" * 101 + f"{RATE}=3",
]
MISSES = [
    *("status = Paid", "status~void", "totalAmount>10.10", "totalAmount<=-1", f"{TAXED}=FALSE"),
    *("issueDate<2024-03-01T00:30:00+01:00", "dueDate=2024-01-01", f"{RATE}=3&&{TAXED}=false"),
    *(f"{RATE}=4||{RATE}=3&&{TAXED}=false", f"{{{RATE}=3||{RATE}=4}}&&{TAXED}=false"),
]
BAD = [
    *("status", "status=", "=Paid", "status=Paid&&", "&&status=Paid", f"status=Paid&{RATE}=3"),
    *("{status=Paid", "status=Paid}", "{}", "a..b=1", "totalAmount=ten", "totalAmount>NaN"),
    *(f"{TAXED}=maybe", "issueDate>soon", "customerRef=c-1", "lineItems=1"),
    *("lineItems.quantity=1", "nothing=1", "status=" + "x" * 2048, "{" * 600 + "a=3" + "}" * 600),
]


async def test_a_query_means_what_it_says() -> None:
    """`prop OP value`; `&&` closer than `||`; `{ }` groups; values by the property's type.

    Bad syntax, unknown names, arrays, values of the wrong type: 400 that names the query.
    """
    async with serving(invoices=0) as http:
        http.sandbox.data_set(http.first.id, "invoices").append(ROW)
        hits = {text: await found(http, text) for text in MATCHES + MISSES + BAD}

    assert [text for text in MATCHES if hits[text] != 1] == []
    assert [text for text in MISSES if hits[text] != 0] == []
    assert [text for text in BAD if hits[text] != -400] == []


async def test_every_list_takes_a_query_and_knows_its_names() -> None:
    """A misspelt property is an error, not an empty list."""
    async with serving(companies=30) as http:
        await http.post(f"{http.at(1)}/push/invoices", DELIVERY)
        for path in ("/companies", f"{http.company}/data/invoices", f"{http.company}/push"):
            for odd in ({"query": "colour=red"}, {"orderBy": "-colour"}, {"orderBy": 'a"'}):
                reply = await http.get(path, **odd)
                assert (reply.status, reply.errors[0]["itemId"]) == (400, next(iter(odd)))
        body = (await http.get("/companies", query="name~bakery", orderBy="-name")).body

    names = [entry["name"] for entry in body["results"]]
    assert names == ["Juniper Road Bakery 3", "Juniper Road Bakery 2", "Juniper Road Bakery"]


async def test_changed_lists_are_still_right() -> None:
    """After updates, deletes and pushes a page holds what the list holds."""
    async with serving(invoices=20) as http:
        records = http.sandbox.data_set(http.first.id, "invoices")
        ids = records.ids()
        records.insert(0, {"id": "first"})
        records.replace(ids[3], {"id": ids[3], "note": "changed"})
        records.delete(ids[0])
        records.insert(2, {"id": "new", "note": "inserted"})
        records.append({"id": "last"})
        path = f"{http.company}/data/invoices"
        body = (await http.get(path)).body
        gone = await http.get(f"{path}/{ids[0]}")
        found = [
            (await http.get(path, query=f"note={note}")).body["totalResults"]
            for note in ("changed", "inserted", "changed")
        ]
        records.delete("new")
        found.append((await http.get(path, query="note=inserted")).body["totalResults"])
        with pytest.raises(LookupError):
            records.delete(ids[0])

    expected = ["first", ids[1], "new", *ids[2:], "last"]
    assert [entry["id"] for entry in body["results"]] == expected
    assert found == [1, 1, 1, 0]
    assert body["results"][4] == {"id": ids[3], "note": "changed"}
    assert (body["totalResults"], len(records), gone.status) == (22, 21, 404)


async def test_a_million_invoices_are_at_hand() -> None:
    """The last page of a million is as near as the first.

    Any record is found by its identifier, and only among its own kind and company.
    """
    async with serving(invoices=1_000_000) as http:
        path = f"{http.company}/data/invoices"
        last = (await http.get(path, page=200_000, pageSize=5)).body
        identifier = last["results"][4]["id"]
        other = f"/companies/{http.sandbox.companies[1].id}/data/invoices/{identifier}"
        elsewhere = [other, f"{http.company}/data/items/{identifier}", f"{path}/{identifier[:-1]}"]
        one = await http.get(f"{path}/{identifier}")
        none = [(await http.get(each)).status for each in elsewhere]

    assert (last["totalResults"], none) == (1_000_000, [404, 404, 404])
    assert "next" not in last["_links"]
    assert one.body == last["results"][4]
    assert one.body["invoiceNumber"] == "INV-0999999"
