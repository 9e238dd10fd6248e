"""Faults in time, on the line and in the service's world: each does what it says."""

from __future__ import annotations

import asyncio
from typing import Any

import aiohttp
import pytest

from tests.sandbox_support import DELIVERY, serving, statuses, until

pytestmark = pytest.mark.virtual_time

# ---------------------------------------------------------------------- time and transport


async def test_latency_comes_before_the_work_and_lateness_after() -> None:
    """latency() delays what is done, late_answer() only the answer."""
    async with serving() as http:
        http.sandbox.faults.latency(3600, times=1, route="/push/")
        early = asyncio.create_task(http.push())
        await until(lambda: http.sandbox.most_in_flight == 1)
        nothing_done = not http.sandbox.pushes
        http.sandbox.faults.late_answer((3600, 3600), times=1, route="/push/")
        late = asyncio.create_task(http.push())
        await until(lambda: http.sandbox.pushes)
        unanswered = not late.done()
        await http.sandbox.stop()
        await asyncio.gather(early, late, return_exceptions=True)

    assert (nothing_done, unanswered, http.sandbox.served) == (True, True, 0)


async def test_latency_takes_a_time_a_span_or_a_function() -> None:
    """A fixed time, one between two, or whatever a function gives, drawn for each call."""
    async with serving() as http:
        waits = iter([0.0, 0.001])
        http.sandbox.faults.latency(0)
        http.sandbox.faults.latency((0, 0.001))
        http.sandbox.faults.latency(lambda: next(waits))

        assert await statuses(http, 2) == [200, 200]
    assert list(waits) == []


@pytest.mark.parametrize("before", [True, False])
async def test_a_dropped_connection_gives_no_answer(before: bool) -> None:
    """before=True: nothing was done; False: the push is recorded."""
    async with serving() as http:
        http.sandbox.faults.drop_connection(before=before, times=1)
        with pytest.raises(aiohttp.ServerDisconnectedError):
            await http.push()

        assert len(http.sandbox.pushes) == (not before)
        assert http.sandbox.requests[-1].status == 0
        assert await statuses(http, 1) == [200]


async def test_only_pushes_lose_their_answers() -> None:
    """lose_answer() records a push and cuts the line; reads are left alone."""
    async with serving() as http:
        rule = http.sandbox.faults.lose_answer()
        await statuses(http, 1, f"{http.company}/push")
        with pytest.raises(aiohttp.ServerDisconnectedError):
            await http.push()

        assert (rule.hits, len(http.sandbox.pushes)) == (1, 1)


@pytest.mark.parametrize("at", [0, 1, 100])
@pytest.mark.parametrize("path", ["/companies", "/nowhere"])
async def test_an_answer_is_cut_at_a_byte(at: int, path: str) -> None:
    """truncate(n) sends n bytes of the body under the full Content-Length, errors included."""
    async with serving() as http:
        http.sandbox.faults.truncate(at, times=1)
        async with http.session.get(http.sandbox.base_url + path) as answer:
            with pytest.raises(aiohttp.ClientPayloadError):
                await answer.read()
            whole = int(answer.headers["Content-Length"])
            received = answer.content.total_raw_bytes

    assert (received, whole > 100) == (at, True)


async def test_a_big_page_can_be_cut_too() -> None:
    """A page of megabytes is cut where asked, not where a buffer ends."""
    async with serving(invoices=1_000) as http:
        http.sandbox.faults.truncate(1_500_000)
        url = f"{http.sandbox.base_url}{http.company}/data/invoices?pageSize=1000"
        async with http.session.get(url) as answer:
            with pytest.raises(aiohttp.ClientPayloadError):
                await answer.read()
            assert answer.content.total_raw_bytes == 1_500_000


# ---------------------------------------------------------------------- the world of one call


async def test_pages_may_be_smaller_than_asked_for() -> None:
    """cap_page_size(): the returned pageSize and the links tell the truth."""
    async with serving(invoices=250) as http:
        http.sandbox.faults.cap_page_size(100)
        body = (await http.get(f"{http.company}/data/invoices", pageSize=200)).body
        small = (await http.get(f"{http.company}/data/invoices", pageSize=50)).body

    assert (body["pageSize"], len(body["results"]), small["pageSize"]) == (100, 100, 50)
    assert body["_links"]["next"]["href"].endswith("?pageSize=100&page=2")


async def test_new_pushes_may_lag_in_the_list() -> None:
    """list_lag(): found by key at once, in the list only later."""
    async with serving() as http:
        http.sandbox.faults.list_lag(60)
        operation = await http.push()
        early = (await http.get(f"{http.company}/push")).body["totalResults"]
        single = await http.pushed(operation)
        http.sandbox.clock.advance(seconds=61)
        late = (await http.get(f"{http.company}/push")).body["totalResults"]

    assert (early, late) == (0, 1)
    assert single["pushOperationKey"] == operation["pushOperationKey"]


async def test_pushes_may_take_longer() -> None:
    """push_seconds() sets how long the pushes it applies to take."""
    async with serving() as http:
        http.sandbox.faults.push_seconds(7200, times=1)
        slow, fast = await http.push(), await http.push()
        http.sandbox.clock.advance(hours=1)
        found = [(await http.pushed(operation))["status"] for operation in (slow, fast)]
        http.sandbox.clock.advance(hours=2)
        found.append((await http.pushed(slow))["status"])

    assert found == ["Pending", "Success", "Success"]


async def test_the_next_push_fails_on_command() -> None:
    """fail_next_push(message): that push ends Failed with that message, the next one does not."""
    async with serving() as http:
        http.sandbox.faults.fail_next_push("amount must be positive", item="amount")
        await http.get(f"{http.company}/push")
        operations = [await http.push(), await http.push()]
        http.sandbox.clock.advance(minutes=1)
        first, second = [await http.pushed(operation) for operation in operations]

    assert operations[0]["status"] == "Pending"
    assert (first["status"], second["status"]) == ("Failed", "Success")
    assert first["validation"]["errors"][0]["message"] == "amount must be positive"
    assert first["validation"]["errors"][0]["itemId"] == "amount"


@pytest.mark.parametrize(
    ("seconds", "totals"), [(90, [251, 251, 251, 253]), (0, [251, *[253] * 3])]
)
async def test_what_timed_out_may_take_effect_later(seconds: float, totals: list[int]) -> None:
    """late_effect(seconds): TimedOut for good, while the record turns up; a bad one does not."""
    async with serving(dialect="published") as http:
        with pytest.raises(ValueError, match="route"):
            http.sandbox.faults.late_effect(seconds, route="GET")
        await http.post("/_page/faults", [{"fault": "late_effect", "seconds": seconds}])
        http.sandbox.faults.fail_next_push("amount must be positive")
        bad, late, unread = [await http.push(timeoutInMinutes=1) for _ in range(3)]
        without_deadline = await http.push()
        told, found = [], []
        for step in (59, 2, 88, 2):
            http.sandbox.clock.advance(seconds=step)
            told.append([await http.pushed(one) for one in (bad, late)])
            found.append((await http.get(f"{http.company}/data/invoices")).body["totalResults"])
        assert (await http.pushed(without_deadline))["status"] == "Success"
        last = await http.pushed(unread)

    assert found == totals
    pending, *ended = told
    assert {one["status"] for one in pending} == {"Pending"}
    assert {one["status"] for one in ended[0]} == {"TimedOut"}
    assert ended == [ended[0]] * 3
    assert last | {"pushOperationKey": ""} == ended[0][1] | {"pushOperationKey": ""}


async def test_nothing_takes_effect_late_by_the_document() -> None:
    """ "The service guarantees the operation is not processed after the deadline"."""
    async with serving() as http:
        reply = await http.post("/_page/faults", [{"fault": "late_effect", "seconds": 1}])
        with pytest.raises(ValueError, match='needs dialect="published"'):
            http.sandbox.faults.late_effect(1)

    assert (reply.status, list(http.sandbox.faults)) == (400, [])


@pytest.mark.parametrize("before", [True, False])
async def test_somebody_else_may_push_in_the_same_lane(before: bool) -> None:
    """foreign_writer(): another operation of the lane, before or after ours."""
    async with serving() as http:
        http.sandbox.faults.foreign_writer(DELIVERY | {"note": "theirs"}, before=before)
        ours = (await http.push())["pushOperationKey"]
        await http.push()
        pushes = http.sandbox.pushes

    assert [push.foreign for push in pushes] == ([True, False] if before else [False, True]) + [
        False
    ]
    assert {(push.company, push.connection, push.data_type) for push in pushes} == {
        (http.first.id, http.connection().id, "invoices")
    }
    theirs = next(push for push in pushes if push.foreign)
    assert (theirs.record["note"], theirs.key != ours) == ("theirs", True)


@pytest.mark.parametrize(("at", "first"), [("front", False), ("end", True), ("anywhere", True)])
async def test_records_may_come_between_pages(at: Any, first: bool) -> None:
    """drift(insert=): each read of a list finds new records, at the front, the end or between."""
    async with serving(invoices=100) as http:
        was = http.sandbox.data_set(http.first.id, "invoices").ids()
        rule = http.sandbox.faults.drift(insert=2, at=at)
        body = (await http.get(f"{http.company}/data/invoices", pageSize=5000)).body
        now = [invoice["id"] for invoice in body["results"]]
        http.sandbox.faults.remove(rule)

    assert body["totalResults"] == len(set(now)) == 102
    assert [identifier for identifier in now if identifier in set(was)] == was
    assert (now[0] == was[0]) is first


async def test_records_may_be_edited_between_pages() -> None:
    """drift(edit=): each read finds records that were changed just now, by the sandbox's clock."""
    async with serving(invoices=100) as http:
        http.sandbox.faults.drift(insert=1, edit=3, at="end")
        query = "modifiedDate>=2026-01-01"
        path = f"{http.company}/data/invoices"
        pages = [(await http.get(path, query=query)).body for _ in range(2)]

    assert [page["totalResults"] for page in pages] == [4, 5]
    assert all(row["modifiedDate"] == row["sourceModifiedDate"] for row in pages[1]["results"])


async def test_records_may_go_between_pages() -> None:
    """drift(delete=): the first of the next page is never seen by who counts pages."""
    async with serving(invoices=100) as http:
        was = http.sandbox.data_set(http.first.id, "invoices").ids()
        http.sandbox.faults.drift(delete=1, skip=1)
        path = f"{http.company}/data/invoices"
        pages = [(await http.get(path, page=n, pageSize=50)).body for n in (1, 2)]
        gone = await http.get(f"{path}/{was[0]}")

    assert [page["totalResults"] for page in pages] == [100, 99]
    assert pages[1]["results"][0]["id"] == was[51]
    assert gone.status == 404
