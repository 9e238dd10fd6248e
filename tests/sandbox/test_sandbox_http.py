"""The sandbox on the wire: slashes, broken lines, crowds."""

from __future__ import annotations

import asyncio
import socket

import pytest

from integration_sdk.sandbox import Sandbox
from tests.support.sandbox_support import serving, until


def address(sandbox: Sandbox) -> tuple[str, int]:
    return "127.0.0.1", int(sandbox.base_url.rpartition(":")[2])


async def test_a_caller_that_asks_before_it_sends_is_told_to_go_on() -> None:
    """curl (above 1 MB), .NET and others send ``Expect: 100-continue`` and wait for it."""
    async with serving() as http, asyncio.timeout(20):
        reply = await http.call("POST", "/companies", json={"name": "Asked"}, expect100=True)

    assert (reply.status, reply.body["name"]) == (200, "Asked")


# ---------------------------------------------------------------------- addresses


async def test_a_slash_at_the_end_of_a_path_makes_no_difference() -> None:
    """A generated client of the public API asks so, with the same faults in force."""
    async with serving(push_seconds=(0, 0)) as http:
        key = (await http.push())["pushOperationKey"]
        inside = ("", "/data/invoices", "/push", f"/push/{key}")
        for path in ["/companies", *(http.company + path for path in inside)]:
            plain, slashed, twice = [await http.get(path + end) for end in ("", "/", "//")]
            http.sandbox.faults.status(503, route=f"GET {path}", times=1)
            broken = await http.get(path + "/")

            assert [each.status for each in (plain, slashed, twice, broken)] == [200, 200, 404, 503]
            assert {**slashed.body, "_links": None} == {**plain.body, "_links": None}
            assert http.sandbox.requests[-1].path == f"{path}/"


# ---------------------------------------------------------------------- lines


async def test_a_half_sent_push_is_no_push(caplog: pytest.LogCaptureFixture) -> None:
    """A body that breaks off is neither recorded nor an error of the sandbox."""
    async with serving() as http:
        with socket.create_connection(address(http.sandbox)) as line:
            head = f"POST {http.at()}/push/invoices HTTP/1.1\r\nHost: x\r\nContent-Length: 99\r\n"
            line.sendall(head.encode() + b'\r\n{"a":')
            await until(lambda: http.sandbox.most_in_flight)
        assert (await http.get("/companies")).status == 200
        assert http.sandbox.pushes == []
    assert not caplog.records


async def test_who_leaves_in_the_middle_of_a_page_is_no_error(
    caplog: pytest.LogCaptureFixture,
) -> None:
    """A client may cancel what it does not want any more; a test's log stays empty."""
    async with serving(invoices=5000) as http:
        page = f"{http.sandbox.base_url}/companies/{http.first.id}/data/invoices?pageSize=5000"
        async with http.session.get(page) as answer:
            assert answer.status == 200
            answer.close()
        assert (await http.get("/companies")).status == 200
    assert not caplog.records
