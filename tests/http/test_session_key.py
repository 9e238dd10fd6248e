"""The API key: where it goes, where it never shows, and how it is renewed."""

from __future__ import annotations

import asyncio
import base64
import copy
import json
import pickle
import traceback
import warnings
from collections.abc import Awaitable, Callable
from contextlib import suppress
from typing import Any

import aiohttp
import pytest

from integration_sdk import Client
from integration_sdk._http import CallOptions, hide
from integration_sdk._http.credentials import ApiKey, check_key
from integration_sdk._http.requests import Request
from integration_sdk._http.responses import Response, read_error
from integration_sdk.errors import ConfigurationError, NotSent
from tests.http.test_session_phases import LOST, MALFORMED, forever
from tests.support.session_support import (
    ONE_CALL,
    QUICK,
    Connection,
    Peer,
    always,
    answer,
    error_body,
    errors_of,
    held,
    raw_server,
    read,
    reply_of,
    serving,
    session_on,
    write,
)

CANARY = "CANARY-5d41402abc4b2a76-CANARY"
SENT = base64.b64encode(CANARY.encode()).decode()


def shows(text: object) -> bool:
    return CANARY in str(text) or SENT in str(text)


# Where it goes, and what can be one


async def test_the_environment_has_no_say(monkeypatch: pytest.MonkeyPatch) -> None:
    """A proxy variable does not lead the key elsewhere."""
    async with raw_server(always(answer())) as canary, raw_server(always(answer())) as server:
        for name in ("http_proxy", "HTTP_PROXY", "all_proxy"):
            monkeypatch.setenv(name, canary.base_url)
        async with session_on(server) as session:
            await session.send(read(), ONE_CALL)

    assert (canary.connections, len(server.requests)) == (0, 1)


@pytest.mark.parametrize(
    ("key", "url"),
    [(CANARY, "nonsense")]
    + [(key, "http://localhost") for key in ("", "  ", f"{CANARY}\n", f" {CANARY}", None, 7)]
    + [(key, "http://localhost") for key in (f"a\tb{CANARY}", f"Basic {SENT}")],
)
def test_what_cannot_be_a_key_is_refused_unseen(key: Any, url: str) -> None:
    """The error says what is wrong without showing the key, in its frames either."""
    with pytest.raises(ConfigurationError) as caught:
        Client(key, url)

    shown = traceback.TracebackException.from_exception(caught.value, capture_locals=True)
    ours = [frame for frame in shown.stack if "integration_sdk" in frame.filename]
    assert len(ours) > 1
    assert not any(shows(frame.locals) for frame in ours)
    assert not shows(caught.value)


def test_a_hidden_key_stays_hidden() -> None:
    """Neither repr nor pickle nor copy gives it away."""
    for kept in (
        hide(CANARY),
        check_key(CANARY),
        ApiKey(CANARY),
        Client(CANARY, "http://localhost"),
    ):
        assert not shows(repr(kept))
        assert not shows(repr({"key": kept}))
        with pytest.raises(TypeError, match="pickle"):
            pickle.dumps(kept)
    for take in (copy.copy, copy.deepcopy):
        with pytest.raises(TypeError, match="pickled"):
            take(check_key(CANARY))


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

    async def serve(peer: Peer) -> None:
        while True:
            request = await peer.receive()
            fits = base64.b64encode(key.encode()) in request
            peer.write(answer() if fits else answer(401, error_body(401)))

    return serve


async def test_a_key_is_asked_for_once_and_again_after_a_401() -> None:
    """A crowd of first calls asks once; after a 401 all go on with the new key, writes too."""
    asked, source = keys("one", "two")
    async with serving(accepts("two"), api_key=source) as (_, session):
        requests = [read(), write(), read(), write()]
        answers = await asyncio.gather(*(session.send(one, ONE_CALL) for one in requests))
        answers.append(await session.send(read(), ONE_CALL))

    assert {one.status for one in answers} == {200}
    assert asked == ["one", "two"]


async def test_a_key_that_stays_wrong_is_told() -> None:
    """A second 401, or the same key again, is the answer; nothing loops."""
    for given, sent in ((("one",), 1), (("one", "two", "three"), 2)):
        _, source = keys(*given)
        async with serving(accepts("nine"), api_key=source) as (server, session):
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

    async with serving(accepts("good"), api_key=source) as (_, session):
        with pytest.raises(NotSent, match="LookupError") as failed:
            await session.send(read(), ONE_CALL)
        assert str(failed.value.__cause__) == "the vault is sealed"
        assert (await session.send(read(), ONE_CALL)).status == 200


@pytest.mark.parametrize("error", [LookupError, None])
async def test_a_source_that_hides_the_deadline_leaves_no_cancellation(
    error: type[Exception] | None,
) -> None:
    """The task goes on as one that nobody has cancelled."""

    async def source() -> str:
        try:
            await forever()
        except asyncio.CancelledError:
            if error:
                raise error from None
        return "good"

    async with serving(accepts("good"), api_key=source) as (_, session):
        with suppress(NotSent):
            await session.send(read(), CallOptions(timeout=0.01))

    task = asyncio.current_task()
    assert task is not None
    assert task.cancelling() == 0


# Where it never shows


async def echoes(peer: Peer) -> None:
    """A service that puts what it got into its error, as debug pages do."""
    request = await peer.receive()
    text = {"statusCode": 500, "error": request.decode() + CANARY, "correlationId": "c"}
    peer.write(answer(500, json.dumps(text).encode()))


async def garbles(peer: Peer) -> None:
    """A service that sends the request back in place of HTTP."""
    peer.write(await peer.receive() + b"\r\n\r\n")


async def garbles_a_header(peer: Peer) -> None:
    """A service whose broken header holds the key; parsers quote the line that they refuse."""
    await peer.receive()
    peer.write(f"HTTP/1.1 200 OK\r\nKey {SENT} {CANARY}\r\n\r\n".encode())


FAULTS: dict[str, Connection] = {
    **LOST,
    **MALFORMED,
    **{str(code): always(answer(code, error_body(code))) for code in (400, 401, 402, 429, 503)},
    "proxy": always(answer(502, b"<html>")),
    "echo": echoes,
    "garbled echo": garbles,
    "garbled header": garbles_a_header,
    "too large": always(answer(200, b"x" * 3000)),
}
ENDPOINTS: dict[str, Request] = {
    "list": read("/companies", params=(("page", "1"),), body_limit=2000),
    "push": write("/companies/c/connections/n/push/invoices", company_id="c", body_limit=2000),
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


@pytest.mark.parametrize("fault", FAULTS)
async def test_no_error_shows_the_key(fault: str, caplog: pytest.LogCaptureFixture) -> None:
    """Every fault of reads and writes, looked at in every way: 0 sightings of the key."""
    caplog.set_level(1)
    options = CallOptions(timeout=5, retry=QUICK)
    asyncio.get_running_loop().set_debug(True)
    with warnings.catch_warnings(record=True) as warned:
        warnings.simplefilter("always")
        for endpoint, request in ENDPOINTS.items():
            async with serving(FAULTS[fault], api_key=CANARY) as (_, session):
                reply = await reply_of(session, request, options)
                error = read_error(request, reply) if isinstance(reply, Response) else reply
                for output, look in OUTPUTS.items():
                    assert not shows(look(error)), (fault, endpoint, output)
                assert list(errors_of(error)) == [error]
                assert not shows(repr(session))
                assert not shows(session.stats())
    assert not shows(caplog.text)
    assert not shows([str(one.message) for one in warned])


@pytest.mark.parametrize("moment", ["on_request_start", "on_request_headers_sent", "answer"])
async def test_a_cancellation_does_not_show_the_key(moment: str) -> None:
    """The traceback of a cancelled call runs through aiohttp, whose frames hold the header."""
    config = aiohttp.TraceConfig()
    if moment != "answer":
        getattr(config, moment).append(forever)

    async with serving(held(), api_key=CANARY, trace_configs=[config]) as (_, session):
        for request in ENDPOINTS.values():
            with pytest.raises(TimeoutError) as caught:
                async with asyncio.timeout(0.02):
                    await session.send(request, CallOptions(timeout=60))
            for error in errors_of(caught.value):
                assert not shows(OUTPUTS["locals"](error))


@pytest.mark.parametrize("place", ["middleware", "trace", "before"])
async def test_a_users_own_exception_does_not_show_the_key(place: str) -> None:
    """An exception out of a middleware, a trace or *before* passes as it is, key unseen.

    What *before* could not record, such as on a full disk, is not sent.
    """

    async def fails(*_: object) -> Any:
        raise RuntimeError("mine")

    config = aiohttp.TraceConfig()
    if place == "trace":
        config.on_request_headers_sent.append(fails)
    given: dict[str, Any] = {"trace_configs": [config]}
    if place == "middleware":
        given["middlewares"] = [fails]
    async with serving(always(answer()), api_key=CANARY, **given) as (server, session):
        with pytest.raises(RuntimeError, match="mine") as caught:
            await session.send_once(write(), ONE_CALL, before=fails if place == "before" else None)
        assert not shows(OUTPUTS["locals"](caught.value))
        assert session.stats().in_flight == 0
        assert not server.requests or place != "before"
