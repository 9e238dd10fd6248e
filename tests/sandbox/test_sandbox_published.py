"""The published dialect does what today's public API is known to do, and both share its routes."""

from __future__ import annotations

import asyncio
from collections import defaultdict
from datetime import UTC, datetime

import pytest

from integration_sdk import Dialect
from tests.support.loops import until
from tests.support.sandbox_support import DELIVERY, holding, published, push_under, serving

pytestmark = pytest.mark.virtual_time
ACCOUNT = {"nominalCode": "4020", "name": "Sales, export", "type": "Income"}
WRONG = {"Authorization": "Basic d3Jvbmc="}

# Routes of both dialects


@pytest.mark.parametrize("dialect", [Dialect.document(), Dialect.published()])
async def test_every_route_of_a_dialect_is_answered(dialect: Dialect) -> None:
    """What is asked about may be missing, or refused; the address and the method are there."""
    async with serving(companies=1, invoices=1, dialect=dialect.name) as http:
        known = {"companyId": http.first.id, "connectionId": http.connection().id}
        names = defaultdict(lambda: "none", known)
        for operation, route in dialect.routes.items():
            special = operation.removeprefix("push.attach.")  # a route of one data type
            names["dataType"] = "invoices" if special == operation else special
            reply = await http.call(route.method, route.path.format_map(names))
            assert reply.status != 405, operation
            assert "no such address" not in reply.text, operation


@pytest.mark.parametrize("method", ["PUT", "DELETE"])
async def test_a_change_of_nothing_fails(method: str) -> None:
    """Of what never was, or is gone before the change ends: Failed, no error of the request."""
    body = DELIVERY if method == "PUT" else None
    async with serving(push_seconds=(60, 60)) as http:
        records = http.sandbox.data_set(http.first.id, "invoices")
        identifier = records.ids()[0]
        never = await http.call(method, f"{http.at(1)}/push/invoices/unknown", json=body)
        later = await http.call(method, f"{http.at()}/push/invoices/{identifier}", json=body)
        records.delete(identifier)
        http.sandbox.clock.advance(minutes=2)
        ended = await http.pushed(later.body)

    assert (never.status, later.body["status"], ended["data"]) == (200, "Pending", {})
    for operation in (never.body, ended):
        assert operation["status"] == "Failed"
        assert operation["validation"]["errors"][0]["itemId"] == "id"


# Where the dialects differ


async def test_the_published_service_has_one_name_and_path_in_each_place() -> None:
    """What is called otherwise is not found, so that no client passes here and fails there.

    `GET K/options/{dataType}` (one model for create and update).
    """
    async with published() as new, serving() as old:
        for name, asked, pushed in (("chartOfAccounts", 200, 404), ("accounts", 404, 200)):
            assert (await new.get(f"{new.at()}/options/{name}")).status == asked
            assert (await new.post(f"{new.at(1)}/push/{name}", ACCOUNT)).status == pushed
        here = await new.get(f"{new.at()}/options/invoices")
        update = await old.get(f"{old.at()}/dataTypes/invoices/options/PUT")
        crossed = await new.get(f"{new.at()}/dataTypes/invoices/options/POST")
        other = await old.get(f"{old.at()}/options/invoices")

    assert [reply.status for reply in (here, update, crossed, other)] == [200, 200, 404, 404]
    assert here.body["required"] is True
    validation = here.body["properties"]["invoiceNumber"]["validation"]
    assert validation["warnings"][0]["field"] == "InvoiceNumber"
    assert validation["information"] == []
    line = here.body["properties"]["lineItems"]["properties"]["description"]
    assert line["validation"]["warnings"][0]["field"] == "LineItems.Description"


async def test_an_answer_is_replayed_for_ninety_minutes() -> None:
    """ "the answer is kept 90 minutes and replayed"; the document's dialect has no such key."""
    async with published() as http, serving() as old:
        first = await push_under(http, "k")
        http.sandbox.clock.advance(minutes=89)
        again = await push_under(http, "k")
        other = await push_under(http, "k2")
        http.sandbox.clock.advance(minutes=2)
        late = await push_under(http, "k")
        ignored = [(await push_under(old, "k")).body["pushOperationKey"] for _ in range(2)]

        assert len(http.sandbox.pushes) == 3
    assert again.text == first.text
    assert len({reply.body["pushOperationKey"] for reply in (first, other, late)}) == 3
    assert ignored[0] != ignored[1]


async def test_a_key_belongs_to_one_request() -> None:
    """ "same key with another body 422; same key in progress 409"; the query counts, too."""
    async with published() as http:
        gate = asyncio.Event()
        http.sandbox.faults.add(holding(gate))
        first = asyncio.create_task(push_under(http, "k"))
        await until(lambda: http.sandbox.pushes)
        busy = await push_under(http, "k")
        body = await push_under(http, "k", {"a": 1})
        query = await push_under(http, "k", params={"timeoutInMinutes": "6"})
        gate.set()
        statuses = [(await first).status, busy.status, body.status, query.status]

        assert len(http.sandbox.pushes) == 1
    assert statuses == [200, 409, 422, 422]


async def test_the_daily_quota_is_counted_and_renewed() -> None:
    """ "1,000 x (1 + connected companies) requests a day, reset 00:00 UTC"."""
    noon = datetime(2024, 5, 31, 12, tzinfo=UTC)
    async with serving(companies=1, daily_quota=3, starts=noon) as http:
        replies = [await http.get("/companies") for _ in range(4)]
        http.sandbox.clock.advance(days=1)
        renewed = await http.get("/companies")

    assert [reply.status for reply in (*replies, renewed)] == [200, 200, 200, 429, 200]
    told = [reply.headers["X-Rate-Limit-Remaining"] for reply in replies]
    assert told == ["2", "1", "0", "0"]
    assert replies[0].headers["X-Rate-Limit-Limit"] == "3"
    assert replies[0].headers["X-Rate-Limit-Reset"] == "2024-06-01T00:00:00.000Z"
    assert 43_195 < int(replies[3].headers["Retry-After"]) <= 43_201


async def test_the_published_service_counts_every_request_and_refuses_none() -> None:
    """`X-Rate-Limit-*` on answers and on refusals alike, but for those without the key.

    A test of ten thousand pushes is not to fail for want of companies.
    """
    async with published(companies=0) as http:
        http.sandbox.faults.status(503, skip=2, times=1)
        replies = [await http.get(path) for path in ("/companies", "/nowhere", "/companies")]
        replies.append(await http.call("GET", "/companies", headers=WRONG))
        replies += [await http.get("/companies") for _ in range(998)]

    assert [reply.status for reply in replies[:5]] == [200, 404, 503, 401, 200]
    told = [reply.headers.get("X-Rate-Limit-Remaining") for reply in replies]
    assert told[:5] == ["999", "998", "997", None, "996"]
    assert (told[-1], replies[-1].status) == ("0", 200)
