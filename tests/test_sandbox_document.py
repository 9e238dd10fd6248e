"""All but pushing as the interface document says it; every test quotes what it proves."""

from __future__ import annotations

import base64
import re
from datetime import UTC, date, datetime, timedelta, timezone

import pytest

from tests.sandbox_support import DELIVERY, Http, serving

pytestmark = pytest.mark.virtual_time

UUID = re.compile(r"[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}")


# ---------------------------------------------------------------------- Authentication


async def test_the_key_alone_in_base64_opens_the_door() -> None:
    """ "the Basic scheme; the credential is the API key, base64-encoded"."""
    async with serving() as http:
        assert (await http.get("/companies")).status == 200


@pytest.mark.parametrize(
    "header",
    [
        None,
        "Bearer {alone}",
        "Basic {with_colon}",
        "Basic wrong",
        "Basic",
        "{alone}",
    ],
)
async def test_any_other_credential_is_refused(header: str | None) -> None:
    """ "When the supplied API key is incorrect, the response is 401"."""
    async with serving() as http:
        key = http.sandbox.api_key.encode()
        alone = base64.b64encode(key).decode()
        with_colon = base64.b64encode(key + b":").decode()
        sent = header.format(alone=alone, with_colon=with_colon) if header else ""
        reply = await http.call("GET", "/companies", headers={"Authorization": sent})

    assert reply.status == reply.body["statusCode"] == 401
    assert UUID.fullmatch(reply.body["correlationId"])


# ---------------------------------------------------------------------- Pagination


async def test_a_page_has_the_documented_envelope() -> None:
    """Page envelope: results, pageNumber, pageSize, totalResults, _links."""
    async with serving() as http:
        path = f"{http.company}/data/invoices"
        reply = await http.get(path, page=2, pageSize=100)

    body = reply.body
    assert set(body) == {"results", "pageNumber", "pageSize", "totalResults", "_links"}
    assert (body["pageNumber"], body["pageSize"], body["totalResults"]) == (2, 100, 250)
    assert len(body["results"]) == 100
    assert body["_links"] == {
        "self": {"href": path},
        "current": {"href": f"{path}?page=2&pageSize=100"},
        "next": {"href": f"{path}?page=3&pageSize=100"},
        "previous": {"href": f"{path}?page=1&pageSize=100"},
    }


async def test_page_and_page_size_have_defaults() -> None:
    """Limits: "Default page size 100", "Default page 1"."""
    async with serving() as http:
        body = (await http.get(f"{http.company}/data/invoices")).body

    assert (body["pageNumber"], body["pageSize"], len(body["results"])) == (1, 100, 100)


async def test_links_keep_every_parameter() -> None:
    """ "the current URL including query parameters", "next page with query parameters"."""
    async with serving() as http:
        params = {"query": "status=Paid&&note~order", "orderBy": "-issueDate", "pageSize": "10"}
        first = (await http.get(f"{http.company}/data/invoices", **params)).body
        url = http.sandbox.base_url + first["_links"]["next"]["href"]
        async with http.session.get(url) as answer:
            second = await answer.json()
            sent = dict(answer.url.query)

    assert sent == params | {"page": "2"}
    assert second["pageNumber"] == 2
    assert second["totalResults"] == first["totalResults"]
    assert "?" not in second["_links"]["self"]["href"]


async def test_a_parameter_given_twice_does_not_stop_the_walk() -> None:
    """Whichever *page* counted, the next link leads to the one behind it."""
    async with serving() as http:
        path = f"{http.company}/data/invoices"
        first = (await http.call("GET", f"{path}?page=9&page=1&pageSize=100")).body
        second = (await http.call("GET", first["_links"]["next"]["href"])).body

    assert (first["pageNumber"], second["pageNumber"]) == (1, 2)


async def test_following_next_reads_every_record_once() -> None:
    """Rule 2: "Number of pages = totalResults divided by pageSize, rounded up"."""
    async with serving(invoices=250) as http:
        href, ids, pages = f"{http.company}/data/invoices?pageSize=60", [], 0
        while href:
            body = (await http.call("GET", href)).body
            ids += [invoice["id"] for invoice in body["results"]]
            pages += 1
            href = body["_links"].get("next", {}).get("href")

        assert ids == http.sandbox.data_set(http.first.id, "invoices").ids()
    assert (pages, len(set(ids))) == (5, 250)


@pytest.mark.parametrize("page", [1, 2, 2_147_483_647])
async def test_a_page_without_records_is_empty(page: int) -> None:
    """next and previous are "present where applicable"."""
    async with serving(invoices=0) as http:
        body = (await http.get(f"{http.company}/data/invoices", page=page)).body

    assert (body["results"], body["totalResults"], body["pageNumber"]) == ([], 0, page)
    assert ("next" in body["_links"], "previous" in body["_links"]) == (False, page > 1)


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("pageSize", "5001"),
        ("pageSize", "0"),
        ("pageSize", "-1"),
        ("pageSize", "ten"),
        ("pageSize", ""),
        ("pageSize", "1.5"),
        ("page", "0"),
        ("page", "9" * 30),
        ("page", "\u00b2"),
    ],
)
async def test_odd_pages_are_bad_requests(name: str, value: str) -> None:
    """Limits: "Maximum page size 5000"; 400 "apparent client-side error"."""
    async with serving() as http:
        reply = await http.get("/companies", **{name: value})

    assert reply.status == reply.body["statusCode"] == 400
    assert reply.errors[0]["itemId"] == name
    assert set(reply.errors[0]) == {"itemId", "message", "validatorName"}


async def test_the_largest_page_is_served() -> None:
    """Limits: "Maximum page size 5000"."""
    async with serving(invoices=5_001) as http:
        body = (await http.get(f"{http.company}/data/invoices", pageSize=5000)).body

    assert (len(body["results"]), body["totalResults"]) == (5000, 5001)


# ---------------------------------------------------------------------- Errors


@pytest.mark.parametrize(
    ("method", "path", "status"),
    [
        ("GET", "/nowhere", 404),
        ("GET", "//companies", 404),
        ("POST", "/companies//", 404),
        ("GET", "/companies/unknown", 404),
        ("GET", "{company}/data/widgets", 404),
        ("GET", "{company}/data/invoices/unknown", 404),
        ("GET", "{company}/connections/unknown", 404),
        ("GET", "{company}/connections/unknown/dataTypes/invoices/options/POST", 404),
        ("GET", "{at}/dataTypes/widgets/options/POST", 404),
        ("GET", "{at}/data/bankAccounts/unknown", 404),
        ("GET", "{at}/data/bankAccounts/unknown/bankTransactions", 404),
        ("DELETE", "/companies", 405),
        ("PATCH", "{at}/push/invoices", 405),
        ("POST", "{company}/data/invoices", 405),
        ("GET", "/profile/syncSettings", 405),
    ],
)
async def test_wrong_addresses_get_the_error_body(method: str, path: str, status: int) -> None:
    """Error body; "Every error body carries correlationId"; 404, 405."""
    async with serving() as http:
        reply = await http.call(method, path.format(company=http.company, at=http.at()))
        again = await http.call(method, path.format(company=http.company, at=http.at()))

    body = reply.body
    assert reply.status == body["statusCode"] == status
    assert {"statusCode", "service", "error", "correlationId"} <= set(body)
    assert (body["canBeRetried"], body["detailedErrorCode"]) == ("Unknown", 0)
    assert body["correlationId"] != again.body["correlationId"]
    assert ("Allow" in reply.headers) == (status == 405)


async def test_a_company_without_a_platform_has_no_data_yet() -> None:
    """409: "the resource is not ready (for example when syncing a data set)"."""
    async with serving() as http:
        company = (await http.post("/companies", {"name": "Newcomers"})).body
        reply = await http.get(f"/companies/{company['id']}/data/invoices")

        connections = await http.get(f"/companies/{company['id']}/connections")

    assert reply.status == reply.body["statusCode"] == 409
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
    assert (reply.errors[0]["itemId"], reply.errors[0]["validatorName"]) == (
        "Company",
        "CreateCompany",
    )
    assert "company limit exceeded" in reply.errors[0]["message"].lower()


@pytest.mark.parametrize("settings", [{"syncSchedule": 23}, {"settings": [{"syncSchedule": 1}]}])
async def test_the_free_plan_syncs_once_a_day(settings: dict[str, object]) -> None:
    """ "syncSchedule below 24": itemId SyncSettings, validatorName SyncSettings."""
    async with serving(free_plan=True) as http:
        reply = await http.post("/profile/syncSettings", settings)
        daily = await http.post("/profile/syncSettings", {"settings": [{"syncSchedule": 24}]})

        assert http.sandbox.sync_settings == {"settings": [{"syncSchedule": 24}]}
    assert reply.status == reply.body["statusCode"] == 402
    assert "sync schedule not allowed" in reply.body["error"].lower()
    assert (reply.errors[0]["itemId"], reply.errors[0]["validatorName"]) == ("SyncSettings",) * 2
    assert "schedule not allowed" in reply.errors[0]["message"].lower()
    assert (daily.status, daily.text) == (204, "")


async def test_a_paid_account_has_no_such_limits() -> None:
    """The limits are the free plan's."""
    async with serving(companies=51) as http:
        company = await http.post("/companies", {"name": "Fifty-one"})
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
        one = (await http.get(f"{http.at()}/data/bankAccounts/{account}")).body
        path = f"{http.at()}/data/bankAccounts/{account}/bankTransactions"
        page = (await http.get(path, pageSize=2)).body
        other = (await http.get(f"{http.at(1)}/data/bankAccounts")).body
        path = f"{http.at()}/data/bankAccounts/{account[:-12]}{'0' * 11}1/bankTransactions"
        of_none = await http.get(path)

    assert one["id"] == account
    assert of_none.status == 404
    assert (page["totalResults"], len(page["results"])) == (250, 2)
    assert account not in [entry["id"] for entry in other["results"]]


async def test_removed_endpoints_answer_not_found() -> None:
    """Rule 4: "return 404 with the error body (error text NotFound, canBeRetried Unknown,
    detailedErrorCode 0)".
    """
    async with serving() as http:
        account = await bank_account(http)
        replies = [await http.get(http.company + path.format(id=account)) for path in LEGACY]

    for reply in replies:
        assert reply.status == reply.body["statusCode"] == 404
        assert "correlationId" in reply.body
        assert (
            reply.body.items()
            >= {
                "error": "NotFound",
                "canBeRetried": "Unknown",
                "detailedErrorCode": 0,
            }.items()
        )


async def test_until_their_removal_legacy_endpoints_answer() -> None:
    """ "on 2023-04-10 the legacy bank account endpoints are deprecated; after that date" 404."""
    async with serving(starts=datetime(2023, 4, 10, 23, 59, tzinfo=UTC)) as http:
        account = await bank_account(http)
        replies = [await http.get(http.company + path.format(id=account)) for path in LEGACY]
        http.sandbox.clock.advance(minutes=2)
        after = await http.get(http.company + LEGACY[0])

    assert [reply.status for reply in replies] == [200, 200, 200]
    assert replies[1].body["id"] == account
    assert replies[2].body["totalResults"] == 250
    assert after.status == 404


async def test_a_company_without_a_platform_has_no_bank_data_yet() -> None:
    """409 for a legacy endpoint whose data set is not ready."""
    async with serving(legacy_removed=False) as http:
        company = (await http.post("/companies", {"name": "Newcomers"})).body
        reply = await http.get(f"/companies/{company['id']}/data/bankAccounts")

    assert reply.status == reply.body["statusCode"] == 409


@pytest.mark.parametrize(
    "removal",
    [
        date(2030, 1, 1),
        datetime(2030, 1, 1, 9),  # noqa: DTZ001 - read as UTC
        datetime(2030, 1, 2, 1, tzinfo=timezone(timedelta(hours=2))),
    ],
)
async def test_a_removal_may_be_given_as_a_time(removal: date) -> None:
    """legacy_removed= is a day, and of a time its day, in UTC."""
    async with serving(legacy_removed=removal, starts=datetime(2029, 12, 31, tzinfo=UTC)) as http:
        path = f"{http.company}/data/bankAccounts"
        before = await http.get(path)
        http.sandbox.clock.advance(days=2)
        after = await http.get(path)

    assert (before.status, after.status) == (200, 404)


async def test_the_removal_can_be_enabled_ahead_or_put_off() -> None:
    """ "The change can be enabled ahead of the date through a portal setting"."""
    early = datetime(2022, 1, 1, tzinfo=UTC)
    statuses = []
    for setting, start in ((True, early), (False, None), (date(2021, 12, 31), early)):
        async with serving(legacy_removed=setting, starts=start) as http:
            statuses.append((await http.get(http.company + LEGACY[0])).status)

    assert statuses == [404, 200, 404]
