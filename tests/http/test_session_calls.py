"""One call from the outside, the session that makes it, and the programs that it lives in."""

from __future__ import annotations

import asyncio
import gc
import logging
import multiprocessing
import sys
import time
import weakref
from contextlib import suppress
from pathlib import Path
from typing import Any, cast
from urllib.error import URLError
from urllib.request import urlopen

import aiohttp
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from integration_sdk import CallInfo, Client
from integration_sdk._http import CallOptions
from integration_sdk._http.credentials import check_base_url
from integration_sdk._http.requests import Request
from integration_sdk.errors import (
    AnswerLost,
    ClientClosed,
    ConfigurationError,
    NotSent,
    ResponseTooLarge,
)
from integration_sdk.sandbox import Sandbox
from tests.support.loops import RunOnLoop, until
from tests.support.session_support import (
    KEY,
    ONE_CALL,
    VirtualService,
    always,
    answer,
    error_body,
    held,
    in_turn,
    make_session,
    raw_server,
    read,
    reply_of,
    serving,
    session_on,
    unused_port,
    virtual_session,
    write,
)


def keyed() -> Request:
    return write(headers={"Idempotency-Key": "k-1"}, key_header="Idempotency-Key")


@pytest.mark.parametrize(("status", "keys"), [(429, 1), (503, 2)])
async def test_a_503_is_not_asked_for_again_under_its_key(status: int, keys: int) -> None:
    """The service would only repeat it; a 429 it does not keep, so the key stays."""
    serve = in_turn(answer(status, error_body(status)), answer())
    async with serving(serve) as (server, session):
        got = await session.send(keyed(), ONE_CALL)

    lines = [line for sent in server.requests for line in sent.split(b"\r\n")]
    assert got.status == 200
    assert len({line for line in lines if line.startswith(b"Idempotency-Key: ")}) == keys
    assert len(server.requests) == 2


@pytest.mark.parametrize(
    ("url", "says"),
    [
        *((odd, "https://") for odd in ("", None, "api.example.com", "ftp://api.example.com")),
        *((f"https://{odd}", "https://") for odd in ("", "x.example:99999", "a" * 64 + ".example")),
        ("http://api.example.com", "unencrypted"),
        ("http://127.0.0.1.example.com", "unencrypted"),
        ("https://me:secret@api.example.com", "password"),
        ("https://api.example.com?x=1", "query"),
        ("https://api.example.com/#top", "fragment"),
    ],
)
def test_a_base_url_that_cannot_be_right_is_refused(url: Any, says: str) -> None:
    """The error says what would do, and shows no password."""
    with pytest.raises(ConfigurationError, match=says) as caught:
        check_base_url(url)

    assert "secret" not in str(caught.value)


@given(st.text(max_size=60))
@example("https://api.example.com")
@example("http://localhost:8080/")
@example("http://[::1]:1/api/")
def test_any_text_is_a_safe_base_url_or_refused(text: str) -> None:
    """Nothing but a `ConfigurationError` comes of odd text, and nothing unencrypted."""
    try:
        url = check_base_url(text)
    except ConfigurationError:
        return
    assert url.startswith(("https://", "http://localhost", "http://127.", "http://["))
    assert check_base_url(f"{url}/") == url


@pytest.mark.parametrize(
    ("raised", "kind", "sent"),
    [
        (aiohttp.ServerDisconnectedError(), AnswerLost, 1),
        (TimeoutError(), AnswerLost, 1),
        (aiohttp.ConnectionTimeoutError(), NotSent, 3),
        (aiohttp.ClientConnectorDNSError(cast(Any, None), OSError("no such host")), NotSent, 3),
    ],
)
async def test_a_mocked_failure_is_in_doubt_unless_it_is_a_connectors(
    integration_aioresponses: Any, raised: Exception, kind: type[Exception], sent: int
) -> None:
    """A mock runs no trace hook, so only the connector's own errors prove that nothing left."""
    integration_aioresponses.post("http://localhost/companies", exception=raised, repeat=True)
    async with session_on("http://localhost") as session:
        with pytest.raises(kind):
            await session.send(write(), ONE_CALL)
        assert session.stats().attempts == sent


# What is told of it


async def test_a_hook_is_told_of_every_call(caplog: pytest.LogCaptureFixture) -> None:
    """``on_call`` gets one `CallInfo` for each call; what it raises is logged."""
    told: list[CallInfo] = []

    def hook(call: CallInfo) -> None:
        told.append(call)
        raise ValueError("a bug of the caller's")

    replies = in_turn(answer(), answer(500, error_body(500)))
    async with serving(replies, on_call=hook) as (_, session):
        for request in (read(), write()):
            await session.send(request, ONE_CALL)

    assert [(call.status, call.attempts, call.correlation_id) for call in told] == [
        (200, 1, None),
        (500, 1, "c-1"),
    ]
    assert caplog.text.count("ValueError: a bug of the caller's") == 2


async def test_counts_add_up(caplog: pytest.LogCaptureFixture) -> None:
    """Calls, transmissions, refusals, losses, how things stand, and the quota as last said.

    The log says of each refusal when the call is sent again.
    """
    caplog.set_level(logging.INFO, "integration_sdk.session")
    told = answer(200, X_Rate_Limit_Limit="1000", X_Rate_Limit_Remaining="997")
    busy, away = answer(429, error_body(429)), answer(503, error_body(503))
    async with serving(in_turn(told, busy, away, answer())) as (_, session):
        assert (session.stats().requests, session.quota) == (0, None)
        await session.send(read(), ONE_CALL)
        await session.send(read(), ONE_CALL)
        stats = session.stats()

    assert (stats.requests, stats.attempts, stats.throttled, stats.unavailable) == (2, 4, 1, 1)
    assert (stats.in_flight, stats.waiting, stats.lost, stats.gate_open) == (0, 0, 0, True)
    assert (stats.waits, stats.window, stats.rate) == (2, 20, None)
    assert stats.waited > 0
    assert session.quota is not None
    assert (session.quota.limit, session.quota.remaining) == (1000, 997)
    assert [record.getMessage() for record in caplog.records] == [
        f"GET /companies: {status}; it is sent again when its turn comes" for status in (429, 503)
    ]


# aiohttp's own ways in


async def test_middlewares_and_traces_are_passed_through() -> None:
    """Both see every transmission; a trace also gets to know which one it is. A middleware may
    read the answer, which the caller gets all the same, within the limit.
    """
    seen: list[object] = []

    async def middleware(request: aiohttp.ClientRequest, handler: Any) -> Any:
        request.headers["X-Tenant"] = "t"
        response = await handler(request)
        seen.append(await response.read())
        return response

    async def began(_: object, context: Any, __: object) -> None:
        sending = context.trace_request_ctx
        seen.append((sending.request.operation, sending.attempt))

    config = aiohttp.TraceConfig()
    config.on_request_start.append(began)
    away, body = error_body(503), b'{"a": 1}'
    given: Any = {"middlewares": [middleware], "trace_configs": [config]}
    async with serving(in_turn(answer(503, away), answer(200, body)), **given) as (server, session):
        for request in (read(), write()):
            assert (await session.send(request, ONE_CALL)).body == body
        with pytest.raises(ResponseTooLarge):
            await session.send(read(body_limit=len(body) - 1), ONE_CALL)

    assert seen[:4] == [("test", 1), away, ("test", 2), body]
    assert seen[4:] == [("test", 1), body] * 2
    assert all(b"X-Tenant: t" in request for request in server.requests)


# Closing and cancelling


async def test_closing_ends_all_calls_at_once() -> None:
    """Whose request may have left is told so; others, and later ones, get `ClientClosed`."""
    unused = make_session(base_url="http://localhost")
    await unused.aclose()
    async with raw_server(held()) as server:
        session = make_session(base_url=server.base_url, connections=1)
        calls = [asyncio.create_task(reply_of(session, write())) for _ in range(3)]
        await until(lambda: session.stats().waiting == 2 and bool(server.requests))

        await session.aclose()
        await session.aclose()

        ends = [await call for call in calls] + [await reply_of(session, read())]
        assert [type(end) for end in ends] == [AnswerLost, ClientClosed, ClientClosed, ClientClosed]
        assert all("closed" in str(end) for end in ends)
        assert len(server.requests) == 1


@pytest.mark.virtual_time
async def test_closing_goes_through_though_it_is_cancelled() -> None:
    """A web service whose shutdown is cut short leaves no connection open."""
    service = VirtualService(latency=1000)
    session = virtual_session(service)
    call = asyncio.create_task(reply_of(session, read()))
    await asyncio.sleep(1)

    closing = asyncio.create_task(session.aclose())
    await asyncio.sleep(0)
    closing.cancel()

    with pytest.raises(asyncio.CancelledError):
        await closing
    assert service.is_closed
    assert isinstance(await call, AnswerLost)


async def test_what_a_middleware_awaits_in_vain_is_no_cancellation_of_the_call() -> None:
    """A shared task that is cancelled fails the transmission; a read is sent again."""
    failing = iter([True])

    async def renews(request: Any, handler: Any) -> Any:
        if next(failing, False):
            token = asyncio.create_task(asyncio.sleep(60))
            token.cancel()
            await token
        return await handler(request)

    async with serving(always(answer()), middlewares=[renews]) as (_, session):
        response = await session.send(read(), CallOptions())
        failing = iter([True])
        with pytest.raises(AnswerLost, match="CancelledError"):
            await session.send(write(), ONE_CALL)

        assert response.attempts == 2
        assert session.stats().in_flight == 0


@pytest.mark.virtual_time
@pytest.mark.parametrize("ticks", range(6))
async def test_a_crowd_cancelled_in_line_leaves_the_line(ticks: int) -> None:
    """Thousands of calls at once, whenever the cancellation comes: even with a turn, no place is
    lost.
    """
    service = VirtualService(latency=1)
    session = virtual_session(service, connections=1)
    first, *crowd, last = [
        asyncio.create_task(session.send(read(), ONE_CALL)) for _ in range(2_000)
    ]
    await asyncio.sleep(1)
    for _ in range(ticks):
        await asyncio.sleep(0)

    for call in crowd:
        call.cancel()
    await asyncio.wait([first, *crowd, last])

    assert first.result().status == last.result().status == 200
    stats = session.stats()
    assert (stats.in_flight, stats.waiting, stats.requests) == (0, 0, 2_000)


# Loops and processes that clients live in


async def test_another_running_loop_is_refused() -> None:
    """A second loop in another thread gets a clear error, not a hang."""
    async with serving(always(answer())) as (_, session):
        await session.send(read(), ONE_CALL)
        error = await asyncio.to_thread(lambda: asyncio.run(reply_of(session, read())))

    assert isinstance(error, ClientClosed)
    assert "loop" in str(error)


@pytest.mark.filterwarnings("ignore:.*multi-threaded, use of fork:DeprecationWarning")
async def test_a_forked_child_is_refused() -> None:
    """Sockets shared between processes mix up answers, so a child gets a clear error."""
    context = multiprocessing.get_context("fork")
    told = context.SimpleQueue()
    async with serving(always(answer())) as (server, session):
        await session.send(read(), ONE_CALL)

        def child() -> None:
            told.put(repr(asyncio.run(reply_of(session, read()))))

        process = context.Process(target=child)
        process.start()
        await asyncio.to_thread(process.join)

    error = told.get()
    assert "ClientClosed" in error
    assert "process" in error
    assert len(server.requests) == 1


async def test_no_timer_keeps_what_is_over() -> None:
    """A timeout of an hour keeps neither the record nor the answer of a call that has ended, not
    for a moment, nor a session that nobody closed: it goes with its last reference.
    """
    service = VirtualService(latency=0)
    session = virtual_session(service)
    kept = list[weakref.ref[Any]]()
    for _ in range(100):
        request = write()
        reply = await session.send(request, CallOptions(timeout=3600))
        kept += [weakref.ref(request), weakref.ref(reply)]
        del request, reply
        service.log.clear()
    assert not any(one() for one in kept)

    del session
    gc.collect()
    for _ in range(5):
        await asyncio.sleep(0)

    assert service.is_closed


SERVICE = """
from contextlib import asynccontextmanager
from fastapi import FastAPI
from integration_sdk import Client

@asynccontextmanager
async def lifespan(app):
    async with Client(timeout=20) as app.state.client:
        yield

app = FastAPI(lifespan=lifespan)

@app.get("/loop")
async def loop():
    import asyncio
    return type(asyncio.get_running_loop()).__module__

@app.get("/companies")
async def companies():
    return (await app.state.client.companies.list()).total_results

@app.get("/hanging")
async def hanging():
    try:
        await app.state.client.with_options(timeout=0.2, retry=None).request("GET", "/hanging")
    except Exception as error:
        return type(error).__name__
"""


def test_a_module_level_client_works_in_one_loop_after_another(run_on_loop: RunOnLoop) -> None:
    """``asyncio.run`` again and again, and a loop that was closed by hand with calls under way."""
    client = Client(KEY, f"http://127.0.0.1:{(port := unused_port())}")

    async def calls() -> None:
        async with raw_server(always(answer()), port):
            for _ in range(3):
                await client.request("GET", "/companies")

    for _ in range(2):
        run_on_loop(calls())
    loop = run_on_loop.make()
    loop.run_until_complete(calls())
    loop.run_until_complete(loop.shutdown_asyncgens())
    loop.close()
    run_on_loop(calls())
    assert client.stats().requests == 12
    run_on_loop(client.aclose())


async def test_a_web_service(tmp_path: Path) -> None:
    """FastAPI under ``uvicorn[standard]``, which runs uvloop: calls are made and given up."""
    (tmp_path / "service.py").write_text(SERVICE)
    port = unused_port()
    command = [sys.executable, "-m", "uvicorn", "service:app", "--port", str(port)]
    async with Sandbox(companies=3, invoices=1) as sandbox:
        sandbox.faults.latency(30, route="^GET /hanging")
        environment = {
            "INTEGRATION_SDK_API_KEY": sandbox.api_key,
            "INTEGRATION_SDK_BASE_URL": sandbox.base_url,
            "PYTHONPATH": str(Path(__file__).parents[2]),
        }
        service = await asyncio.create_subprocess_exec(
            *command, "--log-level", "warning", cwd=tmp_path, env=environment
        )
        try:
            answers = await asyncio.to_thread(asked, port)
        finally:
            service.terminate()
            await service.wait()

    loop, *others = answers
    assert loop.startswith('"uvloop')
    assert others == ["3"] * 20 + ['"AnswerLost"'] * 3


def asked(port: int) -> list[str]:
    paths = ["/loop", *["/companies"] * 20, *["/hanging"] * 3]
    while True:  # until the service is up
        with suppress(URLError):
            return [urlopen(f"http://127.0.0.1:{port}{path}").read().decode() for path in paths]
        time.sleep(0.1)
