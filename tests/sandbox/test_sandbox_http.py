"""The sandbox on the wire: odd requests, broken lines, and the documented error body for all.

Source: "Resources and their fields", Error body; "Other rules", rule 1.
"""

from __future__ import annotations

import asyncio
import io
import json
import re
import socket
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest

from integration_sdk.sandbox import Sandbox
from tests.support.sandbox_support import serving, until

UUID = re.compile(r"[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}")
POST = b"POST /companies HTTP/1.1\r\nHost: x\r\nContent-Length: 2\r\n"


def address(sandbox: Sandbox) -> tuple[str, int]:
    return "127.0.0.1", int(sandbox.base_url.rpartition(":")[2])


async def raw(sandbox: Sandbox, request: bytes) -> tuple[int, bytes, dict[str, Any]]:
    """Send *request* as it is; return the status, the head and the body of the answer.

    What follows a request that cannot be read is no request: the connection ends.
    """
    async with asyncio.timeout(20):
        reader, writer = await asyncio.open_connection(*address(sandbox))
        writer.write(request)
        head = await reader.readuntil(b"\r\n\r\n")
        size = re.search(rb"(?i)content-length: (\d+)", head)
        body = await reader.readexactly(int(size[1]) if size else 0)
        if head.startswith(b"HTTP/1.1 400"):
            assert await reader.read() == b""
        writer.close()
        await writer.wait_closed()
    return int(head.split()[1]), head, json.loads(body)


ODD = {
    "an unknown verb": (405, b"BREW /companies HTTP/1.1\r\nHost: x\r\n\r\n"),
    "a verb in small letters": (405, b"get /companies HTTP/1.1\r\nHost: x\r\n\r\n"),
    "a query that is too long": (400, b"GET /companies?query=%b HTTP/1.1\r\n\r\n" % (b"a" * 9000)),
    "a header that is too long": (400, b"GET / HTTP/1.1\r\nX-A: %b\r\n\r\n" % (b"a" * 9000)),
    "TLS": (400, b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03\r\n\r\n"),
    "a greeting": (400, b"hello\r\n\r\n"),
    "HTTP/2": (400, b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"),
    "another version": (400, b"GET /companies HTTP/9\r\n\r\n"),
    "no length": (400, b"POST /companies HTTP/1.1\r\nContent-Length: nine\r\n\r\n{}"),
    "no chunk": (400, b"POST /companies HTTP/1.1\r\nTransfer-Encoding: chunked\r\n\r\nZZ\r\n{}"),
    "text called gzip": (400, POST + b"Content-Encoding: gzip\r\n\r\n{}"),
    "text called brotli": (400, POST + b"Content-Encoding: br\r\n\r\n{}"),
    "an unknown encoding": (400, POST + b"Content-Encoding: rot13\r\nConnection: close\r\n\r\n{}"),
    # `OPTIONS *` and its like are no failure of the sandbox; an absolute target is understood.
    "no path": (401, b"OPTIONS * HTTP/1.1\r\nHost: x\r\n\r\n"),
    "no path at an address": (401, b"OPTIONS http://elsewhere HTTP/1.1\r\nHost: x\r\n\r\n"),
    "a query without a path": (401, b"GET http://elsewhere?page=1 HTTP/1.1\r\nHost: x\r\n\r\n"),
    "an absolute target": (401, b"GET http://elsewhere/companies HTTP/1.1\r\nHost: x\r\n\r\n"),
}


async def test_bodies_have_a_limit() -> None:
    """64 MiB are more than any record; one byte more is 413, and the next call is answered."""
    async with serving(invoices=1) as http:
        path = f"{http.at()}/push/invoices"
        sizes = [64 * 2**20, 64 * 2**20 + 1]
        replies = [await http.call("POST", path, data=io.BytesIO(bytes(size))) for size in sizes]

        assert [reply.status for reply in replies] == [400, 413]
        assert (replies[1].body["statusCode"], http.sandbox.pushes) == (413, [])
        assert (await http.get("/companies")).status == 200


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


def _lets_wait(connections: int) -> bool:
    limit = Path("/proc/sys/net/core/somaxconn")
    return limit.exists() and int(limit.read_text()) >= connections


@pytest.mark.skipif(not _lets_wait(300), reason="this system lets fewer connections wait")
async def test_a_crowd_that_comes_at_once_is_let_in() -> None:
    """While the loop is busy, connections wait for it, and are not left without an answer."""
    async with serving() as http:
        with ExitStack() as crowd:
            for _ in range(300):  # without a turn of the loop, which would accept them
                crowd.enter_context(socket.create_connection(address(http.sandbox), timeout=5))
