"""Mishaps of callers and of the world around, each told as the service would tell it."""

from __future__ import annotations

import asyncio
from datetime import UTC, date, datetime, timedelta, timezone

import aiohttp
import pytest

from tests.sandbox_support import (
    DELIVERY,
    holding,
    published,
    push_under,
    serving,
    statuses,
    until,
)

pytestmark = pytest.mark.virtual_time

WRONG = {"Authorization": "Basic d3Jvbmc="}


# ---------------------------------------------------------------------- kept answers


async def test_kept_answers_stand_behind_the_key() -> None:
    """A wrong API key gets no kept answer, and its 401 is kept for nobody."""
    async with published() as http:
        right = await push_under(http, "a")
        stolen = await push_under(http, "a", headers=WRONG)
        wrong = await push_under(http, "b", headers=WRONG)
        after = await push_under(http, "b")

        assert len(http.sandbox.pushes) == 2
    assert [reply.status for reply in (right, stolen, wrong, after)] == [200, 401, 401, 200]


async def test_kept_answers_stand_behind_the_accounts_limits() -> None:
    """An expired account and a spent quota get no kept answer."""
    async with published(free_plan=True, account_age_days=366, daily_quota=2) as http:
        ages = [(await push_under(http, "a")).status]
    async with published(daily_quota=2) as http:
        spent = [(await push_under(http, "a")).status for _ in range(3)]

    assert (ages, spent) == ([402], [200, 200, 429])


@pytest.mark.parametrize("fault", ["html_from_proxy", "unavailable", "drop_connection"])
async def test_what_never_reached_the_service_is_not_kept(fault: str) -> None:
    """What a proxy, a gateway or the line made of a push is not its answer."""
    async with published() as http:
        getattr(http.sandbox.faults, fault)(times=1)
        try:
            broken = (await push_under(http, "k")).status
        except aiohttp.ClientError:
            broken = 0
        again = await push_under(http, "k")

        assert len(http.sandbox.pushes) == 1
    assert (broken in {0, 502, 503}, again.status) == (True, 200)


async def test_a_replay_meets_the_faults_in_front() -> None:
    """A kept answer gets lost, refused and throttled on its way as any other does."""
    async with published() as http:
        faults = http.sandbox.faults
        faults.lose_answer(times=2)
        for _ in range(2):
            with pytest.raises(aiohttp.ClientError):
                await push_under(http, "k")
        found = await push_under(http, "k")
        faults.unavailable(times=1)
        down = await push_under(http, "k")
        faults.rate_limit(0.001, burst=1)
        limited = [(await push_under(http, "k")).status for _ in range(2)]
        faults.clear()
        faults.expire_account()
        expired = await push_under(http, "k")

        assert len(http.sandbox.pushes) == 1
    assert (found.status, down.status, limited, expired.status) == (200, 503, [200, 429], 402)


async def test_an_error_after_the_work_is_kept() -> None:
    """status(..., processed=True) is the service's own word: the same to whoever asks again."""
    async with published() as http:
        http.sandbox.faults.status(500, processed=True, times=1)
        replies = [await push_under(http, "k") for _ in range(2)]

        assert len(http.sandbox.pushes) == 1
    assert [reply.status for reply in replies] == [500, 500]
    assert replies[0].text == replies[1].text


async def test_a_proxy_may_give_up_on_work_that_is_done() -> None:
    """html_from_proxy(504, processed=True) records the push, whose own answer is kept."""
    async with published() as http:
        http.sandbox.faults.html_from_proxy(504, processed=True, times=1)
        replies = [await push_under(http, "k") for _ in range(2)]

        assert len(http.sandbox.pushes) == 1
    assert [reply.status for reply in replies] == [504, 200]


async def test_an_idempotency_key_belongs_to_the_query_too() -> None:
    """The same key with another deadline is another request: 422."""
    async with published() as http:
        first = await push_under(http, "k", params={"timeoutInMinutes": "5"})
        other = await push_under(http, "k", params={"timeoutInMinutes": "6"})

    assert (first.status, other.status) == (200, 422)


# ---------------------------------------------------------------------- quota


async def test_the_published_service_counts_every_request() -> None:
    """`X-Rate-Limit-*` on answers and on refusals alike, without being asked for."""
    async with published(companies=1) as http:
        replies = [
            await http.get("/companies"),
            await http.get("/nowhere"),
            await http.get("/companies", page=0),
            await http.call("POST", "/companies", data=b"{"),
        ]
        http.sandbox.faults.status(503, times=1)
        replies.append(await http.get("/companies"))
        replies.append(await http.call("GET", "/companies", headers=WRONG))

    assert [reply.status for reply in replies] == [200, 404, 400, 400, 503, 401]
    told = [reply.headers.get("X-Rate-Limit-Remaining") for reply in replies]
    assert told == ["1999", "1998", "1997", "1996", "1995", None]


async def test_a_quota_that_nobody_asked_for_stops_nobody() -> None:
    """A test of ten thousand pushes is not to fail for want of companies."""
    async with published(companies=0) as http:
        await http.get("/companies")
        http.sandbox._service._quota.used = 1000
        reply = await http.get("/companies")

    assert reply.status == 200
    assert reply.headers["X-Rate-Limit-Remaining"] == "0"


async def test_the_quota_can_be_turned_off() -> None:
    """daily_quota=False counts nothing in the published dialect either."""
    async with published(daily_quota=False) as http:
        headers = (await http.get("/companies")).headers

    assert "X-Rate-Limit-Limit" not in headers


async def test_an_expired_account_is_told_its_quota() -> None:
    """402 counts as any other answer does."""
    async with serving(free_plan=True, account_age_days=366, daily_quota=9) as http:
        reply = await http.get("/companies")

    assert (reply.status, reply.headers["X-Rate-Limit-Remaining"]) == (402, "8")


# ---------------------------------------------------------------------- scopes and limits


@pytest.mark.parametrize(
    ("route", "hit"),
    [
        ("get /companies", True),
        ("GET  /companies", True),
        ("Get", True),
        ("post /companies", False),
        ("GET /companies/{companyId}/data/items", True),
        ("/companies/{companyId}/connections", False),
        ("GET /companies/{companyId}/{x}/{y}/data", False),
        ("GET /{companyId}/data", True),
    ],
)
async def test_a_route_is_read_as_written(route: str, hit: bool) -> None:
    """A method in any case; a placeholder stands for one segment; the rest is literal."""
    async with serving() as http:
        http.sandbox.faults.status(503, route=route)

        assert (await http.get(f"{http.company}/data/items")).status == (503 if hit else 200)


async def test_a_slow_rate_still_lets_calls_by() -> None:
    """Half a request a second is one every two seconds."""
    async with serving() as http:
        http.sandbox.faults.rate_limit(0.5)
        first = await statuses(http, 2)
        http.sandbox.clock.advance(seconds=2)

        assert first + await statuses(http, 2) == [200, 429, 200, 429]


async def test_a_throttle_tells_its_own_numbers() -> None:
    """Under rate_limit() the X-Rate-Limit headers speak of it, quota or not."""
    async with published() as http:
        http.sandbox.faults.rate_limit(2)
        reply = await http.get("/companies")

    assert reply.headers["X-Rate-Limit-Limit"] == "2"


@pytest.mark.parametrize("limit", ["rate", "concurrency"])
async def test_a_limit_counts_what_it_refuses(limit: str) -> None:
    """Not what it lets through; so ``times=`` is a number of refusals."""
    async with serving() as http:
        faults = http.sandbox.faults
        if limit == "rate":
            rule = faults.rate_limit(0.01, burst=2, times=3)
            seen = await statuses(http, 6, "/companies")
        else:
            gate = asyncio.Event()
            working = faults.add(holding(gate), times=1)
            rule = faults.concurrency_limit(1, times=3)
            held = asyncio.create_task(http.get("/companies"))
            await until(lambda: working.hits == 1)
            seen = await statuses(http, 4, "/companies")
            gate.set()
            await held
    assert (rule.hits, seen.count(429)) == (3, 3)
    assert seen.count(200) == len(seen) - 3


async def test_concurrency_has_two_limits_at_once() -> None:
    """total= and per_company= both hold where both are given."""
    async with serving() as http:
        gate = asyncio.Event()
        working = http.sandbox.faults.add(holding(gate))
        http.sandbox.faults.concurrency_limit(3, per_company=2)
        one, two, three = [f"/companies/{company.id}" for company in http.sandbox.companies]
        held = [asyncio.create_task(http.get(one)) for _ in range(2)]
        await until(lambda: working.hits == 2)
        refused = await statuses(http, 1, one)
        held.append(asyncio.create_task(http.get(two)))
        await until(lambda: working.hits == 3)
        refused += await statuses(http, 1, three)
        gate.set()
        let_by = [(await call).status for call in held]

    assert (refused, let_by) == ([429, 429], [200, 200, 200])


# ---------------------------------------------------------------------- odd requests and settings


@pytest.mark.parametrize("target", ["*", "http://elsewhere", "http://elsewhere?page=1"])
async def test_a_target_without_a_path_is_answered(target: str) -> None:
    """`OPTIONS *` and its like are no failure of the sandbox."""
    async with serving() as http:
        port = int(http.sandbox.base_url.rpartition(":")[2])
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        writer.write(f"OPTIONS {target} HTTP/1.1\r\nHost: x\r\n\r\n".encode())
        line = await reader.readline()
        writer.close()
        await writer.wait_closed()

    assert line.split()[1] == b"401"


async def test_a_caller_that_asks_before_it_sends_is_told_to_go_on() -> None:
    """curl (above 1 MB), .NET and others send ``Expect: 100-continue`` and wait for it."""
    async with serving() as http, asyncio.timeout(20):
        reply = await http.call("POST", "/companies", json={"name": "Asked"}, expect100=True)

    assert (reply.status, reply.body["name"]) == (200, "Asked")


async def test_a_body_that_is_not_in_its_encoding_is_a_bad_request(
    caplog: pytest.LogCaptureFixture,
) -> None:
    """Text that is called gzip is the caller's mistake, and no failure of the sandbox."""
    async with serving() as http:
        reply = await http.call(
            *("POST", "/companies"), data=b"{}", headers={"Content-Encoding": "gzip"}
        )
        after = await http.get("/companies")

    assert (reply.status, reply.errors[0]["itemId"], after.status) == (400, "body", 200)
    assert not caplog.records


@pytest.mark.parametrize("name", ["Content-Type", "content-type", "date"])
async def test_a_header_of_a_fault_replaces_the_usual_one(name: str) -> None:
    """However it is written, there are not two of it."""
    async with serving() as http:
        http.sandbox.faults.status(503, headers={name: "as said"})
        reply = await http.get("/companies")

    assert [value for key, value in reply.headers.items() if key.lower() == name.lower()] == [
        "as said"
    ]


async def test_the_page_has_a_head() -> None:
    """HEAD is answered as GET is, without the body."""
    async with serving() as http:
        head, whole = await http.call("HEAD", "/"), await http.get("/")

    assert (head.status, head.text) == (200, "")
    assert head.headers["Content-Length"] == whole.headers["Content-Length"]


async def test_a_key_may_be_of_any_letters() -> None:
    """The page is told the credential of a key that no browser can encode by itself."""
    async with serving(api_key="schlüssel-鍵") as http:
        about = (await http.get("/_page/about")).body
        headers = {"Authorization": f"Basic {about['credential']}"}
        reply = await http.call("GET", "/companies", headers=headers)

    assert reply.status == 200


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


@pytest.mark.parametrize("method", ["PUT", "DELETE"])
async def test_a_change_of_what_is_gone_meanwhile_fails(method: str) -> None:
    """A record deleted before an accepted change of it ends cannot be changed: Failed."""
    async with serving(push_seconds=(60, 60)) as http:
        records = http.sandbox.data_set(http.first.id, "invoices")
        identifier = records.ids()[0]
        path = f"{http.at()}/push/invoices/{identifier}"
        change = await http.call(method, path, json=DELIVERY if method == "PUT" else None)
        records.delete(identifier)
        http.sandbox.clock.advance(minutes=2)
        ended = await http.pushed(change.body)

    assert (change.body["status"], ended["status"], ended["data"]) == ("Pending", "Failed", {})
    assert ended["validation"]["errors"][0]["itemId"] == "id"
