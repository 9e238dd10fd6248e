"""The sandbox as a tool: its truth, its clock, what it remembers, how it starts and stops."""

from __future__ import annotations

import asyncio
import json
import shlex
from datetime import UTC, datetime
from typing import Any, Literal

import aiohttp
import pytest

from integration_sdk.sandbox import Sandbox, serve
from tests.sandbox.test_sandbox_lists import KINDS
from tests.support.sandbox_support import DELIVERY, serving, until

pytestmark = pytest.mark.virtual_time

# ---------------------------------------------------------------------- what it knows


async def test_a_seed_fixes_everything() -> None:
    """Same seed: same key, companies, records and push keys; another seed: none of them."""

    async def look(seed: int) -> list[Any]:
        start = datetime(2024, 1, 1, tzinfo=UTC)
        async with serving(seed=seed, starts=start) as http:
            pages = [(await http.get(f"{http.company}/data/{kind}")).text for kind in KINDS]
            key = (await http.push())["pushOperationKey"]
            return [http.sandbox.api_key, http.first.id, key, *pages]

    first, again, other = await look(1), await look(1), await look(2)
    assert first == again
    assert not set(first) & set(other)


async def test_pushes_end_without_anybody_asking() -> None:
    """Records appear in the order of completion, not of asking; deleted companies harm nobody."""
    async with serving() as http:
        for number, seconds in enumerate((30, 10, 20)):
            http.sandbox.faults.push_seconds(seconds, times=1)
            await http.post(f"{http.at()}/push/invoices", DELIVERY | {"note": str(number)})
        http.sandbox.push(http.sandbox.companies[2].connections[0], "invoices", DELIVERY)
        await http.call("DELETE", f"/companies/{http.sandbox.companies[2].id}")
        http.sandbox.clock.advance(minutes=1)
        body = (await http.get(f"{http.company}/data/invoices", page=3)).body

    assert [entry["note"] for entry in body["results"][-3:]] == ["1", "2", "0"]


async def test_ten_thousand_pushes_pass_in_three_hours() -> None:
    """Open pushes cost nothing: no task each, and a day is one call of advance()."""
    async with serving(push_seconds=(3600, 3 * 3600), remember=0) as http:
        tasks = len(asyncio.all_tasks())
        for _ in range(10_000):
            http.sandbox.push(http.connection(), "items", {"code": "x"})
        assert len(asyncio.all_tasks()) == tasks
        statuses = []
        for _ in range(4):
            body = (await http.get(f"{http.company}/push", query="status=Pending")).body
            statuses.append(body["totalResults"])
            http.sandbox.clock.advance(hours=1)

    assert (statuses[:2], statuses[3]) == ([10_000, 10_000], 0)
    assert 4_500 < statuses[2] < 5_500


# ---------------------------------------------------------------------- clock


async def test_the_clock_follows_its_loop() -> None:
    """The service's time runs with the loop's, here a virtual one, and stands while stopped."""
    starts = datetime(2024, 1, 1)  # noqa: DTZ001 - read as UTC
    async with serving(starts=starts) as http:
        clock = http.sandbox.clock
        await asyncio.sleep(3600)
        clock.advance(minutes=30)
    await asyncio.sleep(3600)

    assert clock.now() == starts.replace(tzinfo=UTC).timestamp() + 5400
    with pytest.raises(ValueError, match="negative"):
        clock.advance(seconds=-1)


async def test_times_are_written_as_the_service_does() -> None:
    """Up to 7 digits and Z; HTTP dates are never early."""
    async with serving(starts=datetime(2024, 2, 29, 12, 0, 0, 123_456, tzinfo=UTC)) as http:
        http.sandbox.faults.rate_limit(0.01, burst=1, retry_after=10, form="date")
        reply = await http.post(f"{http.at(1)}/push/invoices", DELIVERY)
        refused = await http.get("/companies")

    assert reply.body["requestedOnUtc"] == "2024-02-29T12:00:00.1234560Z"
    assert reply.body["data"]["modifiedDate"] == "2024-02-29T12:00:00Z"
    assert http.first.body()["created"] == "2024-02-29T12:00:00.123Z"
    assert refused.headers["Date"] == "Thu, 29 Feb 2024 12:00:00 GMT"
    assert refused.headers["Retry-After"] == "Thu, 29 Feb 2024 12:00:11 GMT"


# ---------------------------------------------------------------------- what it remembers


async def test_it_remembers_what_it_saw() -> None:
    """requests: method, path, query, headers, status, body, time; newest last."""
    async with serving() as http:
        await http.get("/companies", page=1)
        await http.post(f"{http.at()}/push/invoices", DELIVERY, timeoutInMinutes=5)
        first, second = http.sandbox.requests
        counted = [("POST", "/push/", None), (None, "", None), (None, "/companies", 200)]
        counted += [("GET", "/push/", None)]
        counts = [http.sandbox.count(*which) for which in counted]
        http.sandbox.requests.clear()

        assert (http.sandbox.count(), http.sandbox.served) == (0, 2)
    assert (first.method, first.path, first.status) == ("GET", "/companies", 200)
    assert first.query == {"page": "1"}
    assert first.headers["authorization"].startswith("Basic ")
    assert (json.loads(second.body), second.query) == (DELIVERY, {"timeoutInMinutes": "5"})
    assert second.at >= first.at
    assert counts == [1, 2, 2, 0]


# ---------------------------------------------------------------------- settings

ODD = """
invoices=-1 | ^invoices cannot be -1: Expected `int` >= 0$
companies=1.5 | companies cannot be 1.5: Expected `int`
companies=True | companies cannot be True: Expected `int`
companies=51, free_plan=True | companies cannot be 51: the free plan holds 50
remember=-1 | remember cannot be -1
port=70_000 | port cannot be 70000: Expected `int` <= 65535
port=-1 | port cannot be -1: Expected `int` >= 0
dialect='klingon' | dialect cannot be 'klingon': .* document, published
push_seconds=(2, 1) | push_seconds cannot be .* least <= most
push_seconds=5 | push_seconds cannot be 5: Expected `\\(least, most\\)`
push_seconds=('a', 'b') | push_seconds cannot be
daily_quota=-5 | daily_quota cannot be -5: Expected `int` >= 0
daily_quota='many' | daily_quota cannot be
seed='abc' | seed cannot be 'abc': Expected `int`
seed=1.5 | seed cannot be 1.5: Expected `int`
legacy_removed='2023-04-10' | legacy_removed cannot be .* Expected `bool . date`
starts='2024-01-01' | starts cannot be '2024-01-01': Expected `datetime . null`
account_age_days=-1 | account_age_days cannot be -1
account_age_days=366 | account_age_days needs free_plan: no other account expires
free_plan='no' | free_plan cannot be 'no'
api_key=7 | api_key cannot be
api_key='' | api_key cannot be '': Expected `str` of length >= 1
host=None | host cannot be None
"""


@pytest.mark.parametrize("row", ODD.strip().splitlines())
def test_odd_settings_are_refused(row: str) -> None:
    """A setting that makes no sense is named, before anything is started."""
    given, _, message = row.partition(" | ")
    options: dict[str, Any] = eval(f"dict({given})")  # noqa: S307 - the table above
    with pytest.raises(ValueError, match=message):
        Sandbox(**options)


# ---------------------------------------------------------------------- starting and stopping


async def test_a_taken_port_is_named() -> None:
    """OSError says which address could not be had, and nothing is left open."""
    async with Sandbox(invoices=1) as first:
        port = int(first.base_url.rpartition(":")[2])
        second = Sandbox(invoices=1, port=port)
        with pytest.raises(OSError, match=rf"cannot listen on 127\.0\.0\.1:{port}"):
            await second.start()
        await second.stop()
        with pytest.raises(RuntimeError, match="not started"):
            _ = second.base_url


async def test_it_can_be_started_again() -> None:
    """After stop() the books are as they were; starting twice is a mistake."""
    sandbox = Sandbox(invoices=1)
    await sandbox.start()
    with pytest.raises(RuntimeError, match="already started"):
        await sandbox.start()
    sandbox.push(sandbox.companies[0].connections[1], "invoices", DELIVERY)
    await sandbox.stop()
    await sandbox.stop()
    async with sandbox:
        assert [push.status for push in sandbox.pushes] == ["Success"]


async def test_stopping_cuts_what_is_under_way() -> None:
    """A call that would take an hour does not hold up the end; no task and no socket stay."""
    async with serving() as http:
        http.sandbox.faults.latency(3600)
        waiting = asyncio.create_task(http.get("/companies"))
        await until(lambda: http.sandbox.most_in_flight)
        await http.sandbox.stop()
        (error,) = await asyncio.gather(waiting, return_exceptions=True)

    assert isinstance(error, Exception)


@pytest.mark.parametrize("dialect", ["document", "published"])
async def test_it_serves_until_cancelled(dialect: Literal["document", "published"]) -> None:
    """serve() says where it is, its key, lines to paste, a page, the dialect of its clients."""
    said: list[str] = []
    sandbox = Sandbox(invoices=1, api_key="open 'sesame", dialect=dialect)
    serving_task = asyncio.create_task(serve(sandbox, said.append))
    await until(lambda: len(said) == 5 + (dialect == "published"))
    assert said[:2] == [f"Sandbox: {sandbox.base_url}", "API key: open 'sesame"]
    curl, option, header, url = shlex.split(said[2].removeprefix("Try: "))
    name, _, value = header.partition(": ")
    async with aiohttp.ClientSession() as http, http.get(url, headers={name: value}) as answer:
        assert (curl, option, answer.status) == ("curl", "-H", 200)
    assert said[3].startswith(f"Look: {sandbox.base_url}/#open%20%27sesame ")
    assert shlex.split(said[4]) == [
        "export",
        f"INTEGRATION_SDK_BASE_URL={sandbox.base_url}",
        f"INTEGRATION_SDK_API_KEY={sandbox.api_key}",
    ]
    # A client of another dialect would rely on what this service does not do.
    for line in said[5:]:
        assert line.startswith("Dialect: use Client(dialect=Dialect.published())")
        assert "--published" in line
    serving_task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await serving_task
