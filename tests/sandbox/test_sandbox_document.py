"""All but pushing as the interface document says it; every test quotes what it proves."""

from __future__ import annotations

import base64
from datetime import UTC, date, datetime
from typing import Any

import pytest

from tests.support.sandbox_support import DELIVERY, UUID, serving

pytestmark = pytest.mark.virtual_time


async def test_the_key_alone_in_base64_opens_the_door() -> None:
    """ "the Basic scheme; the credential is the API key, base64-encoded"; else 401."""
    async with serving() as http:
        key = http.sandbox.api_key.encode()
        alone, colon = (base64.b64encode(key + end).decode() for end in (b"", b":"))
        for header in ["", f"Bearer {alone}", f"Basic {colon}", "Basic wrong", "Basic", alone]:
            reply = await http.call("GET", "/companies", headers={"Authorization": header})
            assert reply.status == reply.body["statusCode"] == 401

        assert (await http.get("/companies")).status == 200


# Pagination


async def test_a_page_has_the_documented_envelope() -> None:
    """Page envelope: results, pageNumber, pageSize, totalResults, _links; Limits: the defaults."""
    async with serving(invoices=5_001) as http:
        path = f"{http.company}/data/invoices"
        body = (await http.get(path, page=2, pageSize=100)).body
        usual = (await http.get(path)).body
        largest = (await http.get(path, pageSize=5000)).body
        beyond = (await http.get(path, page=2_147_483_647)).body

    assert len(body.pop("results")) == 100
    assert body == {
        "pageNumber": 2,
        "pageSize": 100,
        "totalResults": 5001,
        "_links": {
            "self": {"href": path},
            "current": {"href": f"{path}?page=2&pageSize=100"},
            "next": {"href": f"{path}?page=3&pageSize=100"},
            "previous": {"href": f"{path}?page=1&pageSize=100"},
        },
    }
    assert (usual["pageNumber"], usual["pageSize"], len(usual["results"])) == (1, 100, 100)
    assert len(largest["results"]) == 5000
    assert (beyond["results"], beyond["pageNumber"]) == ([], 2**31 - 1)
    assert beyond["_links"].keys() == {"self", "current", "previous"}
    assert usual["_links"].keys() == {"self", "current", "next"}


async def test_following_next_reads_every_record_once() -> None:
    """Rule 2: "Number of pages = totalResults divided by pageSize, rounded up"."""
    async with serving(invoices=250) as http:
        every = http.sandbox.data_set(http.first.id, "invoices").ids()
        for size, pages in ((60, 5), (50, 5), (250, 1), (249, 2)):
            href, ids, count = f"{http.company}/data/invoices?pageSize={size}", list[str](), 0
            while href:
                body = (await http.call("GET", href)).body
                ids += [invoice["id"] for invoice in body["results"]]
                count += 1
                href = body["_links"].get("next", {}).get("href")
            assert (count, ids) == (pages, every)


async def test_links_keep_every_parameter() -> None:
    """ "the current URL including query parameters", "next page with query parameters".

    Whichever of two *page* parameters counted, the next link leads to the one behind it.
    """
    async with serving() as http:
        path = f"{http.company}/data/invoices"
        params = {"query": "status=Paid&&note~order", "orderBy": "-issueDate", "pageSize": "10"}
        first = (await http.get(path, **params)).body
        second = (await http.call("GET", first["_links"]["next"]["href"])).body
        sent = http.sandbox.requests[-1].query
        twice = (await http.call("GET", f"{path}?page=9&page=1&pageSize=100")).body
        behind = (await http.call("GET", twice["_links"]["next"]["href"])).body

    assert sent == params | {"page": "2"}
    assert (second["pageNumber"], second["totalResults"]) == (2, first["totalResults"])
    assert (twice["pageNumber"], behind["pageNumber"]) == (1, 2)


# Errors and account limits


async def test_what_is_not_linked_has_no_data_and_takes_no_push() -> None:
    """409: "the resource is not ready (for example when syncing a data set)"; 403."""
    async with serving(legacy_removed=False) as http:
        path = f"/companies/{(await http.post('/companies', {'name': 'New'})).body['id']}"
        replies = [await http.get(f"{path}/data/{kind}") for kind in ("invoices", "bankAccounts")]
        connections = await http.get(f"{path}/connections")
        http.connection().status = "Deauthorized"
        replies.append(await http.post(f"{http.at()}/push/invoices", DELIVERY))

        assert http.sandbox.pushes == []
    assert [reply.body["statusCode"] for reply in replies] == [409, 409, 403]
    assert [reply.status for reply in replies] == [409, 409, 403]
    assert connections.body["results"] == []


TOO_MANY = (
    *("Company CreateCompany", "company validation exception: company limit exceeded"),
    "company limit exceeded",
)
TOO_OFTEN = (
    *("SyncSettings SyncSettings", "sync settings validation exception: sync schedule not allowed"),
    "schedule not allowed",
)
LIMITS: list[tuple[str, dict[str, Any], tuple[str, ...]]] = [
    ("/companies", {"name": "Fifty-one"}, TOO_MANY),
    ("/profile/syncSettings", {"syncSchedule": 23}, TOO_OFTEN),
    ("/profile/syncSettings", {"settings": [{"syncSchedule": 1}]}, TOO_OFTEN),
]


async def test_the_free_plan_is_limited() -> None:
    """ "Company limit exceeded on the free plan"; "syncSchedule below 24"; no other plan is."""
    async with serving(companies=49, free_plan=True) as http, serving(companies=51) as paid:
        assert (await http.post("/companies", {"name": "Fifty"})).status == 200
        for path, record, (item, kind, said) in LIMITS:
            reply = await http.post(path, record)
            assert reply.status == reply.body["statusCode"] == 402
            (problem,) = reply.errors
            assert f"{problem['itemId']} {problem['validatorName']}" == item
            assert said in problem["message"].lower()
            assert reply.body["error"].lower() == kind
            assert (await paid.post(path, record)).status in {200, 204}
        daily = await http.post("/profile/syncSettings", {"settings": [{"syncSchedule": 24}]})

        assert http.sandbox.sync_settings == {"settings": [{"syncSchedule": 24}]}
        assert len(http.sandbox.companies) == 50
    assert (daily.status, daily.text) == (204, "")


async def test_a_free_account_expires_after_a_year() -> None:
    """ "Free account older than 365 days": any endpoint, Payment Required, no itemId."""
    async with serving(free_plan=True) as http, serving() as paid:
        http.sandbox.clock.advance(days=364.9)
        before = await http.get("/companies")
        http.sandbox.clock.advance(hours=3)
        paid.sandbox.clock.advance(days=900)
        replies = [await http.get(path) for path in ("/companies", http.at(), "/nowhere")]
        replies.append(await http.post(f"{http.at()}/push/invoices", DELIVERY))
        other = await paid.get("/companies")

    assert (before.status, other.status) == (200, 200)
    for reply in replies:
        assert (reply.status, reply.body["error"]) == (402, "Payment Required")
        assert "itemId" not in reply.errors[0]
        assert "account expired" in reply.errors[0]["message"].lower()


# Bank data, versioning

LEGACY = "/data/bankAccounts", "/data/bankAccounts/{id}", "/data/bankAccounts/{id}/transactions"


async def test_bank_data_is_read_through_the_connection() -> None:
    """Replacements: bankAccounts, one of them, its bankTransactions.

    "on 2023-04-10 the legacy bank account endpoints are deprecated; after that date" 404
    "with the error body (error text NotFound, canBeRetried Unknown, detailedErrorCode 0)".
    """
    async with serving(starts=datetime(2023, 4, 10, 23, 59, tzinfo=UTC)) as http:
        accounts = (await http.get(f"{http.at()}/data/bankAccounts")).body["results"]
        account = str(accounts[0]["id"])
        path = f"{http.at()}/data/bankAccounts/{account}"
        one = (await http.get(path)).body
        page = (await http.get(f"{path}/bankTransactions", pageSize=2)).body
        other = (await http.get(f"{http.at(1)}/data/bankAccounts")).body
        of_none = await http.get(f"{path[:-12]}{'0' * 11}9/bankTransactions")
        paths = [http.company + each.format(id=account) for each in LEGACY]
        before = [await http.get(each) for each in paths]
        http.sandbox.clock.advance(minutes=2)
        after = [await http.get(each) for each in paths]

    assert (one["id"], of_none.status) == (account, 404)
    assert (page["totalResults"], len(page["results"])) == (250, 2)
    assert account not in [entry["id"] for entry in other["results"]]
    assert [reply.status for reply in before] == [200, 200, 200]
    assert (before[1].body["id"], before[2].body["totalResults"]) == (account, 250)
    gone = {"statusCode": 404, "service": "Sandbox", "error": "NotFound"}
    gone |= {"canBeRetried": "Unknown", "detailedErrorCode": 0}
    for reply in after:
        body = reply.body
        assert UUID.fullmatch(body.pop("correlationId"))
        assert (reply.status, body) == (404, gone)


async def test_the_removal_can_be_enabled_ahead_or_put_off() -> None:
    """ "The change can be enabled ahead of the date through a portal setting"."""
    for removed, status in ((True, 404), (date(2021, 12, 31), 404), (date(2022, 1, 1), 200)):
        starts = datetime(2022, 1, 1, tzinfo=UTC)
        async with serving(legacy_removed=removed, starts=starts) as http:
            assert (await http.get(http.company + LEGACY[0])).status == status
