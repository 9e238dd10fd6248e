"""The filter and ordering of lists: what the syntax means, and that every record is looked at."""

from __future__ import annotations

import asyncio
import operator
from decimal import Decimal
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from integration_sdk import Client
from integration_sdk.sandbox._call import Refused, encode
from integration_sdk.sandbox._lists import Chooser, _Parser
from tests.sandbox_support import DELIVERY, serving, until

ROW: dict[str, Any] = {
    "status": "PartiallyPaid",
    "amount": Decimal("10.10"),
    "count": 3,
    "open": True,
    "issueDate": "2024-03-01T00:00:00",
    "paidOn": None,
    "customerRef": {"companyName": "Alder & Finch {Ltd}", "id": "c-1"},
    "lineItems": [{"quantity": 1}],
}


def matches(text: str) -> bool:
    chooser, row = Chooser(text, None), encode(ROW)
    chooser.check([row], ())
    chooser.look([0], [row])
    return chooser.chosen() == [0]


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("status=PartiallyPaid", True),
        ("status=partiallypaid", True),
        ("status = Paid", False),
        ("status!=Paid", True),
        ("status~paid", True),
        ("status~void", False),
        ("amount=10.1", True),
        ("amount>10.10", False),
        ("amount>=10.10", True),
        ("amount<1e2", True),
        ("amount<=-1", False),
        ("count>2", True),
        ("open=true", True),
        ("open=FALSE", False),
        ("issueDate>2024-02-29", True),
        ("issueDate=2024-03-01T00:00:00Z", True),
        ("issueDate<2024-03-01T00:30:00+01:00", False),
        ("issueDate~2024-03", True),
        ("paidOn=2024-01-01", False),
        ("paidOn!=2024-01-01", True),
        ("customerRef.companyName~finch", True),
        ("customerRef.id=c-1", True),
        ("count=3&&open=true", True),
        ("count=3&&open=false", False),
        ("count=4||open=true", True),
        ("count=4||count=3&&open=false", False),
        ("count=3||count=4&&open=false", True),
        ("{count=3||count=4}&&open=false", False),
        ("{count=3||count=4}&&{open=true}", True),
        ("{{count=3}}", True),
        ("{count=4||" * 100 + "count=3" + "}" * 100, True),
    ],
)
def test_a_query_means_what_it_says(text: str, expected: bool) -> None:
    """`prop OP value`; `&&` closer than `||`; `{ }` groups; values by the property's type."""
    assert matches(text) is expected


@pytest.mark.parametrize(
    "text",
    [
        "status",
        "status=",
        "=Paid",
        "status=Paid&&",
        "&&status=Paid",
        "status=Paid&count=3",
        "{status=Paid",
        "status=Paid}",
        "{}",
        "a..b=1",
        "amount=ten",
        "amount>NaN",
        "open=maybe",
        "issueDate>soon",
        "customerRef=c-1",
        "lineItems=1",
        "lineItems.quantity=1",
        "nothing=1",
        "status=" + "x" * 2048,
        "{" * 600 + "count=3" + "}" * 600,
    ],
)
def test_a_bad_query_is_a_bad_request(text: str) -> None:
    """Bad syntax, unknown names, arrays, values of the wrong type: 400 that names the query."""
    with pytest.raises(Refused) as refused:
        matches(text)

    assert refused.value.status == 400
    assert refused.value.problems[0].item == "query"


SIGNS = {"=": operator.eq, "!=": operator.ne, ">": operator.gt, "<": operator.lt}
terms = st.tuples(st.sampled_from("ab"), st.sampled_from(sorted(SIGNS)), st.integers(-3, 3))
rows = st.fixed_dictionaries({"a": st.integers(-3, 3), "b": st.integers(-3, 3)})


@given(st.lists(st.lists(terms, min_size=1, max_size=3), min_size=1, max_size=3), rows)
def test_any_of_all_of_is_read_as_written(groups: list[Any], row: dict[str, int]) -> None:
    """A disjunction of conjunctions, with or without braces, matches as plain logic does."""
    expected = any(all(SIGNS[sign](row[n], value) for n, sign, value in group) for group in groups)
    parts = ["&&".join(f"{name}{sign}{value}" for name, sign, value in group) for group in groups]

    assert _Parser("||".join(parts)).test(row) is expected
    assert _Parser(" || ".join(f"{{ {part} }}" for part in parts)).test(row) is expected


async def test_filtered_lists_hold_exactly_what_matches() -> None:
    """Rule 4: totalResults is "the size of that subset"; pages of it hold nothing else."""
    async with serving(invoices=5_000) as http:
        every = list(http.sandbox.data_set(http.first.id, "invoices"))
        expected = [
            invoice["id"]
            for invoice in every
            if invoice["status"] == "Paid" and invoice["totalAmount"] > 2000
        ]
        query = "status=paid&&totalAmount>2000"
        ids = []
        for page in range(1, -(-len(expected) // 500) + 1):
            path = f"{http.company}/data/invoices"
            body = (await http.get(path, page=page, pageSize=500, query=query)).body
            ids += [invoice["id"] for invoice in body["results"]]

    assert ids == expected
    assert body["totalResults"] == len(expected) > 500


@pytest.mark.parametrize("sign", ["", "-"])
async def test_lists_are_ordered(sign: str) -> None:
    """`orderBy=field` or `-field`, records of equal value in the list's own order."""
    async with serving(invoices=500) as http:
        every = list(http.sandbox.data_set(http.first.id, "invoices"))
        params = {"orderBy": f"{sign}totalAmount", "pageSize": 500}
        body = (await http.get(f"{http.company}/data/invoices", **params)).body

    expected = sorted(every, key=lambda invoice: invoice["totalAmount"], reverse=sign == "-")
    assert [entry["id"] for entry in body["results"]] == [entry["id"] for entry in expected]


async def test_a_long_search_lets_others_by() -> None:
    """While one caller's query goes through a big list, another's call is answered."""
    async with serving(invoices=60_000) as http:
        path = f"{http.company}/data/invoices"
        search = asyncio.create_task(http.get(path, query="note~nothing", pageSize=1))
        await until(lambda: http.sandbox.most_in_flight)
        other = await http.get("/companies")
        overtaken = not search.done()
        found = await search

    assert (other.status, overtaken, found.body["totalResults"]) == (200, True, 0)


async def test_a_search_finds_the_list_as_it_was_at_one_moment() -> None:
    """Records that go while it is searched take none with them that stay."""
    async with serving(invoices=5_000) as http:
        records = http.sandbox.data_set(http.first.id, "invoices")
        records.delete_at(0)
        ids = records.ids()
        path = f"{http.company}/data/invoices"
        search = asyncio.create_task(http.get(path, query="totalAmount>=0", pageSize=5000))
        await until(lambda: http.sandbox.most_in_flight)
        while not search.done():
            records.delete_at(0)
            await asyncio.sleep(0)
        found = [invoice["id"] for invoice in (await search).body["results"]]

    assert len(records) < len(found) < len(ids)
    assert found == ids[-len(found) :]


async def test_deletions_hide_no_other_record_from_a_list_of_changes() -> None:
    """``changed_since`` with a writer: every record that stays is read."""
    async with serving(invoices=12_000) as http:
        records = http.sandbox.data_set(http.first.id, "invoices")
        key, url = http.sandbox.api_key, http.sandbox.base_url
        async with Client(key, url) as client:
            invoices = client.company(http.first.id).data("invoices")
            changes = invoices.list(changed_since="2000-01-01T00:00:00Z", page_size=3000)
            reading = asyncio.create_task(changes.collect())
            while not reading.done():
                if len(records) > 11_950:
                    records.delete_at(0)
                await asyncio.sleep(0.002)
            read = {invoice["id"] for invoice in await reading}

    assert set(records.ids()) <= read


async def test_many_queries_take_turns() -> None:
    """Queries forgotten meanwhile give the same answers when asked again."""
    async with serving() as http:
        path = f"{http.company}/data/invoices"
        queries = [f"totalAmount>{amount}" for amount in range(0, 7_000, 1_000)] * 2
        totals = [(await http.get(path, query=query)).body["totalResults"] for query in queries]

    assert totals[:7] == totals[7:] == sorted(set(totals), reverse=True)


async def test_what_was_pushed_is_found_at_once() -> None:
    """A filter read before a push does not hide its record after it."""
    async with serving() as http:
        path, query = f"{http.company}/data/invoices", {"query": "invoiceNumber=INV-17"}
        before = (await http.get(path, **query)).body["totalResults"]
        await http.push(1)
        after = (await http.get(path, **query)).body["totalResults"]

    assert (before, after) == (0, 1)


@pytest.mark.parametrize(
    "params", [{"query": "colour=red"}, {"orderBy": "-colour"}, {"orderBy": 'a"'}]
)
async def test_unknown_names_are_bad_requests(params: dict[str, str]) -> None:
    """A misspelt property is an error, not an empty list, in every list."""
    async with serving() as http:
        await http.post(f"{http.at(1)}/push/invoices", DELIVERY)
        for path in ("/companies", f"{http.company}/data/invoices", f"{http.company}/push"):
            assert (await http.get(path, **params)).status == 400


async def test_companies_can_be_filtered() -> None:
    """Every list takes a query."""
    async with serving(companies=30) as http:
        body = (await http.get("/companies", query="name~bakery", orderBy="-name")).body

    assert [entry["name"] for entry in body["results"]] == [
        "Juniper Road Bakery 3",
        "Juniper Road Bakery 2",
        "Juniper Road Bakery",
    ]
