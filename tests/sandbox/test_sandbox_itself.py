"""The sandbox as a tool: its truth, its clock, what it remembers, how it starts and stops."""

from __future__ import annotations

import asyncio
import socket
from datetime import UTC, datetime
from typing import Any

import pytest

from integration_sdk.sandbox import Sandbox
from tests.support.loops import until
from tests.support.sandbox_support import DELIVERY, serving

pytestmark = pytest.mark.virtual_time


async def test_a_seed_fixes_everything() -> None:
    """Same seed: same key, companies, records and push keys; another seed: none of them."""

    async def look(seed: int) -> list[Any]:
        start = datetime(2024, 1, 1, tzinfo=UTC)
        async with serving(seed=seed, starts=start) as http:
            kinds = "accounts", "bills", "customers", "invoices", "journalEntries", "payments"
            pages = [(await http.get(f"{http.company}/data/{kind}")).text for kind in kinds]
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


async def test_the_clock_follows_its_loop() -> None:
    """The service's time runs with the loop's, here a virtual one, and stands while stopped.

    1,000 open pushes cost nothing, no task each: a day is one call of advance().
    """
    starts = datetime(2024, 1, 1)  # noqa: DTZ001 - read as UTC
    async with serving(starts=starts, push_seconds=(3600, 7200), remember=0) as http:
        clock, tasks = http.sandbox.clock, len(asyncio.all_tasks())
        for _ in range(1_000):
            http.sandbox.push(http.connection(), "items", {"code": "x"})
        assert len(asyncio.all_tasks()) == tasks
        await asyncio.sleep(3600)
        clock.advance(minutes=30)
        pending = (await http.get(f"{http.company}/push", query="status=Pending")).body
    await asyncio.sleep(3600)

    assert 400 < pending["totalResults"] < 600
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


ODD = """
invoices=-1 | ^invoices cannot be -1: Expected `int` >= 0$
companies=True | companies cannot be True: Expected `int`
companies=51, free_plan=True | companies cannot be 51: the free plan holds 50
dialect='klingon' | dialect cannot be 'klingon': .* document, published
push_seconds=(2, 1) | push_seconds cannot be .* least <= most
push_seconds=5 | push_seconds cannot be 5: Expected `\\(least, most\\)`
legacy_removed='2023-04-10' | legacy_removed cannot be .* Expected `bool . date`
api_key='' | api_key cannot be '': Expected `str` of length >= 1
"""


@pytest.mark.parametrize("row", ODD.strip().splitlines())
def test_odd_settings_are_refused(row: str) -> None:
    """A setting that makes no sense is named, before anything is started."""
    given, _, message = row.partition(" | ")
    options: dict[str, Any] = eval(f"dict({given})")  # noqa: S307 - the table above
    with pytest.raises(ValueError, match=message):
        Sandbox(**options)


async def test_it_can_be_started_again() -> None:
    """After stop() the books are as they were; starting twice, or on a taken port, is a mistake."""
    sandbox = Sandbox(invoices=1)
    await sandbox.start()
    with pytest.raises(RuntimeError, match="already started"):
        await sandbox.start()
    port = int(sandbox.base_url.rpartition(":")[2])
    second = Sandbox(invoices=1, port=port)
    with pytest.raises(OSError, match=rf"cannot listen on 127\.0\.0\.1:{port}"):
        await second.start()
    await second.stop()
    with pytest.raises(RuntimeError, match="not started"):
        _ = second.base_url
    sandbox.push(sandbox.companies[0].connections[1], "invoices", DELIVERY)
    await sandbox.stop()
    await sandbox.stop()
    async with sandbox:
        assert [push.status for push in sandbox.pushes] == ["Success"]
        assert repr(sandbox) == f"Sandbox({sandbox.base_url}, 3 companies, 1 pushes)"


async def test_a_slash_at_the_end_of_a_path_makes_no_difference() -> None:
    """A generated client of the public API asks so, with the same faults in force."""
    async with serving(push_seconds=(0, 0)) as http:
        key = (await http.push())["pushOperationKey"]
        inside = ("", "/data/invoices", f"/push/{key}")
        for path in ["/companies", *(http.company + path for path in inside)]:
            plain, slashed, twice = [await http.get(path + end) for end in ("", "/", "//")]
            http.sandbox.faults.status(503, route=f"GET {path}", times=1)
            broken = await http.get(path + "/")

            assert [each.status for each in (plain, slashed, twice, broken)] == [200, 200, 404, 503]
            assert {**slashed.body, "_links": None} == {**plain.body, "_links": None}
            assert http.sandbox.requests[-1].path == f"{path}/"


async def test_a_half_sent_push_is_no_push(caplog: pytest.LogCaptureFixture) -> None:
    """Who breaks off, in a body or in the middle of a page, is neither recorded nor an error.

    curl (above 1 MB), .NET and others send ``Expect: 100-continue``, and are told to go on.
    """
    async with serving(invoices=5000) as http:
        address = "127.0.0.1", int(http.sandbox.base_url.rpartition(":")[2])
        with socket.create_connection(address) as line:
            head = f"POST {http.at()}/push/invoices HTTP/1.1\r\nHost: x\r\nContent-Length: 99\r\n"
            line.sendall(head.encode() + b'\r\n{"a":')
            await until(lambda: http.sandbox.most_in_flight)
        page = f"{http.sandbox.base_url}{http.company}/data/invoices?pageSize=5000"
        async with http.session.get(page) as answer:
            assert answer.status == 200
            answer.close()
        asked = await http.call("POST", "/companies", json={"name": "Asked"}, expect100=True)

        assert http.sandbox.pushes == []
    assert (asked.status, asked.body["name"]) == (200, "Asked")
    assert not caplog.records
