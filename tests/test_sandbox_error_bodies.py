"""Whatever the sandbox refuses, it refuses as the service would: with the documented error body.

Source: "Resources and their fields", Error body; "Other rules", rule 1.
"""

from __future__ import annotations

import asyncio
import json
import re
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from integration_sdk.sandbox import Sandbox
from tests.sandbox_support import Http, press, serving

UUID = re.compile(r"[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}")
POST = b"POST /companies HTTP/1.1\r\nHost: x\r\nContent-Length: 2\r\n"


async def raw(sandbox: Sandbox, request: bytes) -> tuple[int, bytes, dict[str, Any]]:
    """Send *request* as it is; return the status, the head and the body of the answer."""
    port = int(sandbox.base_url.rpartition(":")[2])
    async with asyncio.timeout(20):
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        writer.write(request)
        head = await reader.readuntil(b"\r\n\r\n")
        size = re.search(rb"(?i)content-length: (\d+)", head)
        body = await reader.readexactly(int(size[1]) if size else 0)
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
    "an unknown encoding": (400, POST + b"Content-Encoding: rot13\r\n\r\n{}"),
}


@pytest.mark.parametrize("what", ODD)
async def test_what_is_no_request_is_answered_with_the_error_body(
    what: str, caplog: pytest.LogCaptureFixture
) -> None:
    """ "Every error body carries correlationId"; a caller's mistake is no traceback, nor a log."""
    wanted, request = ODD[what]
    async with Sandbox(invoices=1) as sandbox:
        answers = [await raw(sandbox, request) for _ in range(2)]

    for status, head, body in answers:
        assert (status, body["statusCode"]) == (wanted, wanted)
        assert UUID.fullmatch(body["correlationId"])
        assert b"application/json" in head
        assert (b"Allow: " in head) == (status == 405)
        assert "Traceback" not in body["error"]
        assert body["canBeRetried"] == "Unknown"
    assert answers[0][2]["correlationId"] != answers[1][2]["correlationId"]
    assert not caplog.records


@settings(max_examples=100, deadline=None)
@given(garbage=st.binary(min_size=1, max_size=60).filter(lambda some: some.strip(b"\r\n") != b""))
def test_no_garbage_gets_another_answer(garbage: bytes) -> None:
    """Whatever it is, the answer is a 4xx of the service."""

    async def ask() -> tuple[int, bytes, dict[str, Any]]:
        async with Sandbox(companies=1, invoices=1) as sandbox:
            return await raw(sandbox, garbage.replace(b"\n", b" ") + b"\r\n\r\n\r\n\r\n")

    status, _, body = asyncio.run(ask())

    assert 400 <= status < 500
    assert UUID.fullmatch(body["correlationId"])


async def refusals(http: Http) -> list[dict[str, Any]]:
    """Two of each kind: of the server itself, of the page, of the service."""

    async def failing(_call: Any, _proceed: Any) -> Any:
        raise ZeroDivisionError

    encoded = {"Content-Encoding": "gzip", "Connection": "close"}
    replies = [
        await call
        for _ in range(2)
        for call in (
            http.call("POST", "/companies", data=b"{}", headers=encoded),
            press(http, "fault", {"name": "none"}),
            http.get("/_page/none"),
            http.get("/none"),
        )
    ]
    http.sandbox.faults.add(failing)
    replies += [await http.get("/companies") for _ in range(2)]
    assert {reply.status for reply in replies} == {400, 404, 500}
    return [reply.body for reply in replies]


async def test_each_refusal_has_a_correlation_id_of_its_own() -> None:
    """A constant one would find nothing at the service's support."""
    async with serving(invoices=1) as http:
        found = [body["correlationId"] for body in await refusals(http)]

    assert len(set(found)) == len(found)
    assert all(UUID.fullmatch(each) for each in found)
