"""The API key: where it goes, where it never shows, and how it is renewed."""

from __future__ import annotations

import asyncio
import base64
import copy
import json
import pickle
import traceback
import warnings
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import Any

import aiohttp
import pytest

from integration_sdk import Client
from integration_sdk._http import CallOptions, Session, hide
from integration_sdk._http.credentials import ApiKey, check_key
from integration_sdk._http.requests import Request
from integration_sdk._http.responses import read_error
from integration_sdk.errors import ConfigurationError, IntegrationError, NotSent
from tests.http.test_session_phases import LOST, MALFORMED
from tests.support.session_support import (
    ONE_CALL,
    QUICK,
    Connection,
    RawServer,
    always,
    answer,
    error_body,
    errors_of,
    in_turn,
    raw_server,
    read,
    session_on,
    write,
)

CANARY = "CANARY-5d41402abc4b2a76-CANARY"
SENT = base64.b64encode(CANARY.encode()).decode()


def shows(text: object) -> bool:
    return CANARY in str(text) or SENT in str(text)


# Where it goes


async def test_the_header_is_as_documented() -> None:
    """``Authorization: Basic <base64 of the key alone>``, on one line however long."""
    key = "k" * 200
    async with raw_server(always(answer())) as server, session_on(server, api_key=key) as session:
        await session.send(read(), ONE_CALL)

    sent = server.requests[0].split(b"\r\n")
    assert b"Authorization: Basic " + base64.b64encode(key.encode()) in sent
    assert b"Accept: application/json" in sent
    assert any(line.startswith(b"User-Agent: integration-sdk/") for line in sent)
    assert not any(line.lower().startswith((b"cookie", b"content-type")) for line in sent)


@pytest.mark.parametrize("status", [301, 302, 303, 307, 308])
async def test_no_redirect_is_followed(status: int) -> None:
    """A redirect is an answer; the place that it names gets nothing at all."""
    async with raw_server(always(answer())) as canary:
        reply = answer(status, Location=f"{canary.base_url}/companies")
        async with raw_server(always(reply)) as server, session_on(server) as session:
            for request in (read(), write(), write(method="DELETE", body=None)):
                assert (await session.send(request, ONE_CALL)).status == status

    assert canary.connections == 0


async def test_the_environment_has_no_say(monkeypatch: pytest.MonkeyPatch) -> None:
    """A proxy variable does not lead the key elsewhere."""
    async with raw_server(always(answer())) as canary, raw_server(always(answer())) as server:
        for name in ("http_proxy", "HTTP_PROXY", "all_proxy"):
            monkeypatch.setenv(name, canary.base_url)
        async with session_on(server) as session:
            await session.send(read(), ONE_CALL)

    assert (canary.connections, len(server.requests)) == (0, 1)


# What can be a key


@pytest.mark.parametrize(
    "key", ["", "  ", f"{CANARY}\n", f" {CANARY}", f"a\tb{CANARY}", f"Basic {SENT}", None, 7]
)
def test_what_cannot_be_a_key_is_refused_unseen(key: Any) -> None:
    """The error says what is wrong without showing the key, in its frames either."""
    with pytest.raises(ConfigurationError) as caught:
        Session(base_url="http://localhost", api_key=key)

    shown = traceback.TracebackException.from_exception(caught.value, capture_locals=True)
    ours = [frame for frame in shown.stack if "integration_sdk" in frame.filename]
    assert len(ours) > 1
    assert not any(shows(frame.locals) for frame in ours)
    assert not shows(caught.value)


@pytest.mark.parametrize(
    "wrong",
    [
        lambda: Client(CANARY, "nonsense"),
        lambda: Client(api_key=CANARY, base_url="nonsense"),
        lambda: Client(CANARY, "https://service.example", rate=0),
    ],
)
def test_a_client_that_cannot_be_made_does_not_show_the_key(wrong: Callable[[], Client]) -> None:
    """Nor do the frames that its arguments pass through."""
    with pytest.raises((ConfigurationError, TypeError)) as caught:
        wrong()

    shown = traceback.TracebackException.from_exception(caught.value, capture_locals=True)
    ours = [frame for frame in shown.stack if "integration_sdk" in frame.filename]
    assert ours
    assert not any(shows(frame.locals) for frame in ours)


def test_a_hidden_key_stays_hidden() -> None:
    """Neither repr nor pickle nor copy gives it away."""
    for kept in (hide(CANARY), check_key(CANARY), ApiKey(CANARY)):
        assert not shows(repr(kept))
        assert not shows(repr({"key": kept}))
        for take in (pickle.dumps, copy.copy, copy.deepcopy):
            with pytest.raises(TypeError, match="pickled"):
                take(kept)


# Rotation


def keys(*given: str) -> tuple[list[str], Callable[[], Awaitable[str]]]:
    asked: list[str] = []

    async def source() -> str:
        await asyncio.sleep(0)
        asked.append(given[min(len(asked), len(given) - 1)])
        return asked[-1]

    return asked, source


def accepts(key: str) -> Connection:
    """Answer 200 to *key* and 401 to any other."""

    async def serve(
        server: RawServer, reader: asyncio.StreamReader, writer: asyncio.StreamWriter
    ) -> None:
        while True:
            request = await server.receive(reader)
            fits = base64.b64encode(key.encode()) in request
            writer.write(answer() if fits else answer(401, error_body(401)))

    return serve


async def test_a_key_is_asked_for_once() -> None:
    """A crowd of first calls asks the source once and keeps the answer."""
    asked, source = keys("one")
    async with (
        raw_server(accepts("one")) as server,
        session_on(server, api_key=source) as session,
    ):
        await asyncio.gather(*(session.send(read(), ONE_CALL) for _ in range(10)))
        await session.send(read(), ONE_CALL)

    assert asked == ["one"]


async def test_a_401_asks_for_the_key_again_once() -> None:
    """After a rotation everybody goes on with the new key, writes too; it is asked for once."""
    asked, source = keys("one", "two")
    async with (
        raw_server(accepts("two")) as server,
        session_on(server, api_key=source) as session,
    ):
        requests = [read(), write(), read(), write()]
        answers = await asyncio.gather(*(session.send(one, ONE_CALL) for one in requests))

    assert {one.status for one in answers} == {200}
    assert asked == ["one", "two"]


def in_units(text: str) -> str:
    """Return *text* with all that is no ASCII letter or digit as escapes of four digits."""
    units = memoryview(text.encode("utf-16-le")).cast("H")
    plain = {unit: chr(unit) for unit in range(128) if chr(unit).isalnum()}
    return "".join(plain.get(unit, f"\\u{unit:04X}") for unit in units)


async def test_an_error_shows_neither_the_first_key_nor_the_one_after_it() -> None:
    """Whichever is in use when a service echoes it."""
    first, second = "the-first-key", "the-second-key"
    _, source = keys(first, second)
    async with (
        raw_server(
            in_turn(
                answer(400, first.encode()),
                answer(401, error_body(401)),
                answer(400, second.encode()),
            )
        ) as server,
        session_on(server, api_key=source) as session,
    ):
        bodies = [(await session.send(read(), ONE_CALL)).body for _ in range(2)]

    assert bodies == [b"<hidden>", b"<hidden>"]


async def test_a_key_that_stays_wrong_is_told() -> None:
    """A second 401, or the same key again, is the answer; nothing loops."""
    for given, sent in ((("one",), 1), (("one", "two", "three"), 2)):
        _, source = keys(*given)
        async with (
            raw_server(accepts("nine")) as server,
            session_on(server, api_key=source) as session,
        ):
            assert (await session.send(read(), ONE_CALL)).status == 401
        assert len(server.requests) == sent


async def test_a_source_that_fails_fails_the_call() -> None:
    """The caller hears that nothing was sent, and why; the next call asks again."""
    tries = 0

    async def source() -> str:
        nonlocal tries
        tries += 1
        if tries == 1:
            raise LookupError("the vault is sealed")
        return "good"

    async with (
        raw_server(accepts("good")) as server,
        session_on(server, api_key=source) as session,
    ):
        with pytest.raises(NotSent, match="LookupError") as failed:
            await session.send(read(), ONE_CALL)
        assert str(failed.value.__cause__) == "the vault is sealed"
        assert (await session.send(read(), ONE_CALL)).status == 200


# Where it never shows


async def echoes(
    server: RawServer, reader: asyncio.StreamReader, writer: asyncio.StreamWriter
) -> None:
    """A service that puts what it got into its error, as debug pages do."""
    request = await server.receive(reader)
    text = {"statusCode": 500, "error": request.decode() + CANARY, "correlationId": "c"}
    writer.write(answer(500, json.dumps(text).encode()))


async def garbles(
    server: RawServer, reader: asyncio.StreamReader, writer: asyncio.StreamWriter
) -> None:
    """A service that sends the request back in place of HTTP."""
    writer.write(await server.receive(reader) + b"\r\n\r\n")


async def garbles_a_header(
    server: RawServer, reader: asyncio.StreamReader, writer: asyncio.StreamWriter
) -> None:
    """A service whose broken header holds the key; parsers quote the line that they refuse."""
    await server.receive(reader)
    writer.write(f"HTTP/1.1 200 OK\r\nKey {SENT} {CANARY}\r\n\r\n".encode())


FAULTS: dict[str, Connection] = {
    **LOST,
    **MALFORMED,
    **{str(code): always(answer(code, error_body(code))) for code in (400, 401, 402, 403, 404)},
    **{str(code): always(answer(code, error_body(code))) for code in (409, 429, 500, 503)},
    "proxy": always(answer(502, b"<html>")),
    "echo": echoes,
    "garbled echo": garbles,
    "garbled header": garbles_a_header,
    "too large": always(answer(200, b"x" * 3000)),
}
ENDPOINTS: dict[str, Request] = {
    "list": read("/companies", params=(("page", "1"),), body_limit=2000),
    "options": read("/companies/c/connections/n/options", company_id="c", body_limit=2000),
    "push": write("/companies/c/connections/n/push/invoices", company_id="c", body_limit=2000),
    "update": write("/companies/c/push/invoices/1", method="PUT", body_limit=2000),
    "delete": write("/companies/c/push/invoices/1", method="DELETE", body=None, body_limit=2000),
}
OUTPUTS: dict[str, Callable[[BaseException], object]] = {
    "str": str,
    "repr": repr,
    "args": lambda error: error.args,
    "vars": vars,
    "pickle": pickle.dumps,
    "copy": lambda error: vars(copy.copy(error)),
    "traceback": lambda error: "".join(traceback.format_exception(error)),
    "locals": lambda error: "".join(
        traceback.TracebackException.from_exception(error, capture_locals=True).format()
    ),
}


@asynccontextmanager
async def canary_session(server: RawServer) -> AsyncIterator[Session]:
    session = Session(base_url=server.base_url, api_key=CANARY)
    try:
        yield session
    finally:
        await session.aclose()


async def failure(session: Session, request: Request, options: CallOptions) -> BaseException:
    try:
        response = await session.send(request, options)
        raise read_error(request, response)
    except IntegrationError as error:
        return error


@pytest.mark.parametrize("fault", FAULTS)
async def test_no_error_shows_the_key(fault: str, caplog: pytest.LogCaptureFixture) -> None:
    """Every fault at every endpoint, looked at in every way: 0 sightings of the key."""
    caplog.set_level(1)
    options = CallOptions(timeout=5, retry=QUICK)
    asyncio.get_running_loop().set_debug(True)
    with warnings.catch_warnings(record=True) as warned:
        warnings.simplefilter("always")
        for endpoint, request in ENDPOINTS.items():
            async with raw_server(FAULTS[fault]) as server, canary_session(server) as session:
                error = await failure(session, request, options)
                for output, look in OUTPUTS.items():
                    assert not shows(look(error)), (fault, endpoint, output)
                assert list(errors_of(error)) == [error]
                assert not shows(repr(session))
                assert not shows(session.stats())
    assert not shows(caplog.text)
    assert not shows([str(one.message) for one in warned])


async def forever(*_: object) -> None:
    await asyncio.sleep(3600)


@pytest.mark.parametrize("moment", ["on_request_start", "on_request_headers_sent", "answer"])
async def test_a_cancellation_does_not_show_the_key(moment: str) -> None:
    """The traceback of a cancelled call runs through aiohttp, whose frames hold the header."""
    config = aiohttp.TraceConfig()
    if moment != "answer":
        getattr(config, moment).append(forever)

    async def silent(
        server: RawServer, reader: asyncio.StreamReader, writer: asyncio.StreamWriter
    ) -> None:
        await server.receive(reader)
        await forever()

    async with (
        raw_server(silent) as server,
        session_on(server, api_key=CANARY, trace_configs=[config]) as session,
    ):
        for request in ENDPOINTS.values():
            with pytest.raises(TimeoutError) as caught:
                async with asyncio.timeout(0.02):
                    await session.send(request, CallOptions(timeout=60))
            for error in errors_of(caught.value):
                assert not shows(OUTPUTS["locals"](error))


@pytest.mark.parametrize("place", ["middleware", "trace", "slot"])
async def test_a_users_own_exception_does_not_show_the_key(place: str) -> None:
    """An exception out of a middleware, a trace or a slot passes as it is, key unseen."""

    async def fails(*_: object) -> Any:
        raise RuntimeError("mine")

    config = aiohttp.TraceConfig()
    if place == "trace":
        config.on_request_headers_sent.append(fails)
    async with (
        raw_server(always(answer())) as server,
        session_on(
            server,
            api_key=CANARY,
            trace_configs=[config],
            middlewares=[fails] if place == "middleware" else [],
        ) as session,
    ):
        with pytest.raises(RuntimeError, match="mine") as caught:
            await session.send_once(write(), ONE_CALL, before=fails if place == "slot" else None)
        assert not shows(OUTPUTS["locals"](caught.value))
        assert session.stats().in_flight == 0
