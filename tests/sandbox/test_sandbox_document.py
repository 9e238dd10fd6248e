"""All but pushing as the interface document says it; every test quotes what it proves."""

from __future__ import annotations

import base64
import re
from datetime import UTC, date, datetime, timedelta, timezone
from typing import Any

import pytest

from tests.support.sandbox_support import DELIVERY, Http, serving

pytestmark = pytest.mark.virtual_time

UUID = re.compile(r"[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}")


# ---------------------------------------------------------------------- Authentication


async def test_the_key_alone_in_base64_opens_the_door() -> None:
    """ "the Basic scheme; the credential is the API key, base64-encoded"; else 401."""
    async with serving() as http:
        key = http.sandbox.api_key.encode()
        alone, colon = (base64.b64encode(key + end).decode() for end in (b"", b":"))
        odd = ["", f"Bearer {alone}", f"Basic {colon}", "Basic wrong", "Basic", alone]
        for header in odd:
            reply = await http.call("GET", "/companies", headers={"Authorization": header})
            assert reply.status == reply.body["statusCode"] == 401
            assert UUID.fullmatch(reply.body["correlationId"])

        assert (await http.get("/companies")).status == 200


# ---------------------------------------------------------------------- Pagination


async def test_a_page_has_the_documented_envelope() -> None:
    """Page envelope: results, pageNumber, pageSize, totalResults, _links; Limits: the defaults."""
    async with serving(invoices=5_001) as http:
        path = f"{http.company}/data/invoices"
        body = (await http.get(path, page=2, pageSize=100)).body
        usual = (await http.get(path)).body
        largest = (await http.get(path, pageSize=5000)).body

    assert set(body) == {"results", "pageNumber", "pageSize", "totalResults", "_links"}
    assert (body["pageNumber"], body["pageSize"], body["totalResults"]) == (2, 100, 5001)
    assert len(body["results"]) == 100
    assert body["_links"] == {
        "self": {"href": path},
        "current": {"href": f"{path}?page=2&pageSize=100"},
        "next": {"href": f"{path}?page=3&pageSize=100"},
        "previous": {"href": f"{path}?page=1&pageSize=100"},
    }
    assert (usual["pageNumber"], usual["pageSize"], len(usual["results"])) == (1, 100, 100)
    assert (len(largest["results"]), largest["totalResults"]) == (5000, 5001)


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
    assert second["pageNumber"] == 2
    assert second["totalResults"] == first["totalResults"]
    assert "?" not in second["_links"]["self"]["href"]
    assert (twice["pageNumber"], behind["pageNumber"]) == (1, 2)


@pytest.mark.parametrize(("size", "number"), [(60, 5), (50, 5), (250, 1), (249, 2)])
async def test_following_next_reads_every_record_once(size: int, number: int) -> None:
    """Rule 2: "Number of pages = totalResults divided by pageSize, rounded up"."""
    async with serving(invoices=250) as http:
        href, ids, pages = f"{http.company}/data/invoices?pageSize={size}", [], 0
        while href:
            body = (await http.call("GET", href)).body
            ids += [invoice["id"] for invoice in body["results"]]
            pages += 1
            href = body["_links"].get("next", {}).get("href")

        assert ids == http.sandbox.data_set(http.first.id, "invoices").ids()
    assert (pages, len(set(ids))) == (number, 250)


async def test_pages_beyond_the_last_are_empty() -> None:
    """Links are "present where applicable"."""
    async with serving(invoices=0) as http:
        for page in (1, 2, 2_147_483_647):
            body = (await http.get(f"{http.company}/data/invoices", page=page)).body
            assert (body["results"], body["totalResults"], body["pageNumber"]) == ([], 0, page)
            assert ("next" in body["_links"], "previous" in body["_links"]) == (False, page > 1)


# ---------------------------------------------------------------------- Errors


async def test_a_company_without_a_platform_has_no_data_yet() -> None:
    """409: "the resource is not ready (for example when syncing a data set)"."""
    async with serving(legacy_removed=False) as http:
        path = f"/companies/{(await http.post('/companies', {'name': 'New'})).body['id']}"
        replies = [await http.get(f"{path}/data/{kind}") for kind in ("invoices", "bankAccounts")]
        connections = await http.get(f"{path}/connections")

    assert [(reply.status, reply.body["statusCode"]) for reply in replies] == [(409, 409)] * 2
    assert connections.body["results"] == []


async def test_a_deauthorized_connection_forbids_pushes() -> None:
    """403 Forbidden (its scenarios are "not shown")."""
    async with serving() as http:
        http.connection().status = "Deauthorized"
        reply = await http.post(f"{http.at()}/push/invoices", DELIVERY)

        assert http.sandbox.pushes == []
    assert reply.status == reply.body["statusCode"] == 403


# ---------------------------------------------------------------------- Account limits (402)


async def test_the_free_plan_holds_fifty_companies() -> None:
    """ "Company limit exceeded on the free plan": itemId Company, validatorName CreateCompany."""
    async with serving(companies=49, free_plan=True) as http:
        fiftieth = await http.post("/companies", {"name": "Fifty"})
        reply = await http.post("/companies", {"name": "Fifty-one"})
        total = (await http.get("/companies")).body["totalResults"]

    assert (fiftieth.status, total) == (200, 50)
    assert reply.status == reply.body["statusCode"] == 402
    assert reply.body["error"].lower() == "company validation exception: company limit exceeded"
    (error,) = reply.errors
    assert (error["itemId"], error["validatorName"]) == ("Company", "CreateCompany")
    assert "company limit exceeded" in error["message"].lower()


@pytest.mark.parametrize("settings", [{"syncSchedule": 23}, {"settings": [{"syncSchedule": 1}]}])
async def test_the_free_plan_syncs_once_a_day(settings: dict[str, Any]) -> None:
    """ "syncSchedule below 24": itemId SyncSettings, validatorName SyncSettings."""
    async with serving(free_plan=True) as http:
        reply = await http.post("/profile/syncSettings", settings)
        daily = await http.post("/profile/syncSettings", {"settings": [{"syncSchedule": 24}]})

        assert http.sandbox.sync_settings == {"settings": [{"syncSchedule": 24}]}
    assert reply.status == reply.body["statusCode"] == 402
    assert "sync schedule not allowed" in reply.body["error"].lower()
    (error,) = reply.errors
    assert (error["itemId"], error["validatorName"]) == ("SyncSettings",) * 2
    assert "schedule not allowed" in error["message"].lower()
    assert (daily.status, daily.text) == (204, "")


async def test_a_paid_account_has_no_such_limits() -> None:
    """The limits are the free plan's; an account of it lives for 365 days."""
    async with serving(companies=51) as http:
        http.sandbox.clock.advance(days=900)
        company = await http.post("/companies", {"name": "Fifty-two"})
        hourly = await http.post("/profile/syncSettings", {"settings": [{"syncSchedule": 1}]})

    assert (company.status, hourly.status) == (200, 204)


async def test_a_free_account_expires_after_a_year() -> None:
    """ "Free account older than 365 days": any endpoint, Payment Required, no itemId."""
    async with serving(free_plan=True, account_age_days=364.9) as http:
        before = await http.get("/companies")
        http.sandbox.clock.advance(hours=3)
        replies = [
            await http.get("/companies"),
            await http.post(f"{http.at()}/push/invoices", DELIVERY),
            await http.get("/nowhere"),
        ]

    assert before.status == 200
    for reply in replies:
        assert (reply.status, reply.body["error"]) == (402, "Payment Required")
        assert "itemId" not in reply.errors[0]
        assert "account expired" in reply.errors[0]["message"].lower()


# ---------------------------------------------------------------------- Bank data, versioning

LEGACY = "/data/bankAccounts", "/data/bankAccounts/{id}", "/data/bankAccounts/{id}/transactions"


async def bank_account(http: Http) -> str:
    accounts = (await http.get(f"{http.at()}/data/bankAccounts")).body["results"]
    return str(accounts[0]["id"])


async def test_bank_data_is_read_through_the_connection() -> None:
    """Replacements: bankAccounts, one of them, its bankTransactions."""
    async with serving() as http:
        account = await bank_account(http)
        path = f"{http.at()}/data/bankAccounts/{account}"
        one = (await http.get(path)).body
        page = (await http.get(f"{path}/bankTransactions", pageSize=2)).body
        other = (await http.get(f"{http.at(1)}/data/bankAccounts")).body
        of_none = await http.get(f"{path[:-12]}{'0' * 11}9/bankTransactions")

    assert (one["id"], of_none.status) == (account, 404)
    assert (page["totalResults"], len(page["results"])) == (250, 2)
    assert account not in [entry["id"] for entry in other["results"]]


async def test_until_their_removal_legacy_endpoints_answer() -> None:
    """ "on 2023-04-10 the legacy bank account endpoints are deprecated; after that date" 404
    "with the error body (error text NotFound, canBeRetried Unknown, detailedErrorCode 0)".
    """
    async with serving(starts=datetime(2023, 4, 10, 23, 59, tzinfo=UTC)) as http:
        account = await bank_account(http)
        paths = [http.company + path.format(id=account) for path in LEGACY]
        before = [await http.get(path) for path in paths]
        http.sandbox.clock.advance(minutes=2)
        after = [await http.get(path) for path in paths]

    assert [reply.status for reply in before] == [200, 200, 200]
    assert before[1].body["id"] == account
    assert before[2].body["totalResults"] == 250
    gone = {"statusCode": 404, "service": "Sandbox", "error": "NotFound"}
    gone |= {"canBeRetried": "Unknown", "detailedErrorCode": 0}
    for reply in after:
        body = reply.body
        assert UUID.fullmatch(body.pop("correlationId"))
        assert (reply.status, body) == (404, gone)


@pytest.mark.parametrize(
    ("removed", "starts", "statuses"),
    [
        (True, datetime(2022, 1, 1, tzinfo=UTC), [404, 404]),
        (False, None, [200, 200]),
        (date(2021, 12, 31), datetime(2022, 1, 1, tzinfo=UTC), [404, 404]),
        # a day, and of a time its day, in UTC
        (date(2030, 1, 1), datetime(2029, 12, 31, tzinfo=UTC), [200, 404]),
        (datetime(2030, 1, 1, 9), datetime(2029, 12, 31), [200, 404]),  # noqa: DTZ001 - UTC
        (
            datetime(2030, 1, 2, 1, tzinfo=timezone(timedelta(hours=2))),
            datetime(2029, 12, 31, tzinfo=UTC),
            [200, 404],
        ),
    ],
)
async def test_the_removal_can_be_enabled_ahead_or_put_off(
    removed: bool | date, starts: datetime | None, statuses: list[int]
) -> None:
    """ "The change can be enabled ahead of the date through a portal setting"."""
    async with serving(legacy_removed=removed, starts=starts) as http:
        found = [(await http.get(http.company + LEGACY[0])).status]
        http.sandbox.clock.advance(days=2)
        found.append((await http.get(http.company + LEGACY[0])).status)

    assert found == statuses
