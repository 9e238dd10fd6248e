"""One call from the outside: what goes out, what comes back, and what is told of it."""

from __future__ import annotations

from typing import Any

import aiohttp
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from integration_sdk import CallInfo, Priority
from integration_sdk._http import CallOptions
from integration_sdk._http.call import Call
from integration_sdk._http.credentials import check_base_url
from integration_sdk._http.requests import Request
from integration_sdk.errors import (
    AnswerLost,
    ConfigurationError,
    NotSent,
    ResponseTooLarge,
)
from tests.support.session_support import (
    ONE_CALL,
    always,
    answer,
    error_body,
    in_turn,
    raw_server,
    read,
    session_on,
    write,
)

# What goes out


def keyed() -> Request:
    return write(headers={"Idempotency-Key": "k-1"}, key_header="Idempotency-Key")


@pytest.mark.parametrize(("status", "keys"), [(429, 1), (503, 2)])
async def test_a_503_is_not_asked_for_again_under_its_key(status: int, keys: int) -> None:
    """The service would only repeat it; a 429 it does not keep, so the key stays."""
    serve = in_turn(answer(status, error_body(status)), answer())
    async with raw_server(serve) as server, session_on(server) as session:
        got = await session.send(keyed(), ONE_CALL)

    lines = [line for sent in server.requests for line in sent.split(b"\r\n")]
    assert got.status == 200
    assert len({line for line in lines if line.startswith(b"Idempotency-Key: ")}) == keys
    assert len(server.requests) == 2


async def test_what_is_fetched_ahead_stays_behind_all_others() -> None:
    """A client whose calls go first lifts none of its prefetched pages."""
    first = CallOptions(priority=Priority.INTERACTIVE)
    page = read(priority=Priority.PREFETCH)

    assert Call.of(page, first, 0.0).priority is Priority.PREFETCH
    push = write(priority=Priority.PUSH)
    assert Call.of(push, first, 0.0).priority is Priority.INTERACTIVE


@pytest.mark.parametrize(
    ("url", "says"),
    [
        ("", "https://"),
        (None, "https://"),
        ("api.example.com", "https://"),
        ("ftp://api.example.com", "https://"),
        ("https://", "https://"),
        ("https://api.example.com:99999", "https://"),
        (f"https://{'a' * 64}.example.com", "https://"),
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


# What comes back, without a server


@pytest.mark.parametrize(
    ("raised", "kind", "sent"),
    [
        (aiohttp.ServerDisconnectedError(), AnswerLost, 1),
        (TimeoutError(), AnswerLost, 1),
        (aiohttp.ConnectionTimeoutError(), NotSent, 3),
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
    async with raw_server(replies) as server, session_on(server, on_call=hook) as session:
        for request in (read(), write()):
            await session.send(request, ONE_CALL)

    assert [(call.status, call.attempts, call.correlation_id) for call in told] == [
        (200, 1, None),
        (500, 1, "c-1"),
    ]
    assert caplog.text.count("ValueError: a bug of the caller's") == 2


async def test_counts_add_up() -> None:
    """`stats` shows calls, transmissions, refusals, losses and how things stand."""
    busy, away = answer(429, error_body(429)), answer(503, error_body(503))
    async with (
        raw_server(in_turn(answer(), busy, away, answer())) as server,
        session_on(server) as session,
    ):
        assert session.stats().requests == 0
        await session.send(read(), ONE_CALL)
        await session.send(read(), ONE_CALL)
        stats = session.stats()

    assert (stats.requests, stats.attempts, stats.throttled, stats.unavailable) == (2, 4, 1, 1)
    assert (stats.in_flight, stats.waiting, stats.lost, stats.gate_open) == (0, 0, 0, True)
    assert (stats.waits, stats.window, stats.rate) == (2, 20, None)
    assert stats.waited > 0


async def test_the_quota_of_the_last_answer_is_kept() -> None:
    """``X-Rate-Limit-*`` is shown as it was last said; answers without it change nothing."""
    told = answer(200, X_Rate_Limit_Limit="1000", X_Rate_Limit_Remaining="997")
    async with raw_server(in_turn(told, answer())) as server, session_on(server) as session:
        assert session.quota is None
        for _ in range(2):
            await session.send(read(), ONE_CALL)
            assert session.quota is not None
            assert (session.quota.limit, session.quota.remaining) == (1000, 997)


# aiohttp's own ways in


async def test_middlewares_and_traces_are_passed_through() -> None:
    """Both see every transmission; a trace also gets to know which one it is."""
    seen: list[object] = []

    async def middleware(request: aiohttp.ClientRequest, handler: Any) -> Any:
        request.headers["X-Tenant"] = "t"
        seen.append("middleware")
        return await handler(request)

    async def began(_: object, context: Any, __: object) -> None:
        sending = context.trace_request_ctx
        seen.append((sending.request.operation, sending.attempt))

    config = aiohttp.TraceConfig()
    config.on_request_start.append(began)
    async with (
        raw_server(in_turn(answer(503, error_body(503)), answer())) as server,
        session_on(server, middlewares=[middleware], trace_configs=[config]) as session,
    ):
        await session.send(read(), ONE_CALL)

    assert seen == [("test", 1), "middleware", ("test", 2), "middleware"]
    assert all(b"X-Tenant: t" in request for request in server.requests)


async def test_a_middleware_may_read_the_answer() -> None:
    """As one that writes it to a log does: the caller gets it all the same, within the limit."""
    seen, body = [], b'{"a": 1}'

    async def looks(request: Any, handler: Any) -> Any:
        response = await handler(request)
        seen.append(await response.read())
        return response

    async with (
        raw_server(always(answer(200, body))) as server,
        session_on(server, middlewares=[looks]) as session,
    ):
        for request in (read(), write()):
            assert (await session.send(request, ONE_CALL)).body == body
        with pytest.raises(ResponseTooLarge):
            await session.send(read(body_limit=len(body) - 1), ONE_CALL)

    assert set(seen) == {body}
