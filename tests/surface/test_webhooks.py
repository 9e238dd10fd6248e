"""The receiver in aiohttp.web and as an ASGI app: quick answers, no detail, one wake each."""

from __future__ import annotations

import asyncio
import inspect
import json
import logging
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from datetime import UTC, datetime
from functools import partial
from typing import Any
from unittest.mock import AsyncMock

import aiohttp
import pytest
from aiohttp import web
from standardwebhooks import Webhook

from integration_sdk.errors import ConfigurationError
from integration_sdk.webhooks import Receiver

SECRET = "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw"
SHARED = "Bearer of-our-choosing"
NOW = 1_700_000_000

Post = Callable[[dict[str, str], bytes], Any]


def body_about(key: str = "key-1") -> bytes:
    event = {"id": "e", "eventType": "invoices.write.successful", "payload": {"id": key}}
    return json.dumps(event).encode()


def signed(body: bytes, message_id: str = "m-1") -> dict[str, str]:
    signature = Webhook(SECRET).sign(message_id, datetime.fromtimestamp(NOW, UTC), body.decode())
    return {
        "Webhook-Id": message_id,
        "Webhook-Timestamp": str(NOW),
        "Webhook-Signature": signature,
    }


@pytest.fixture
def woken() -> list[str]:
    return []


@pytest.fixture
def receiver(woken: list[str]) -> Receiver:
    return Receiver(
        woken.append,
        secrets=SECRET,
        authorization=[SHARED],
        max_body=10_000,
        clock=lambda: NOW,
    )


@asynccontextmanager
async def served(receiver: Receiver) -> AsyncIterator[str]:
    app = web.Application()
    app.router.add_post("/pushes", receiver.aiohttp)
    runner = web.AppRunner(app)
    await runner.setup()
    site = web.TCPSite(runner, "127.0.0.1", 0)
    await site.start()
    try:
        yield f"http://127.0.0.1:{runner.addresses[0][1]}/pushes"
    finally:
        await runner.cleanup()


async def call_asgi(
    receiver: Receiver, headers: dict[str, str], *pieces: bytes, method: str = "POST"
) -> tuple[int, bytes]:
    """Send one request as an ASGI server would and return status and body."""
    inbound = [
        {"type": "http.request", "body": piece, "more_body": n < len(pieces)}
        for n, piece in enumerate(pieces, 1)
    ]
    outbound: list[Any] = []

    async def receive() -> dict[str, Any]:
        return inbound.pop(0) if inbound else {"type": "http.disconnect"}

    async def send(message: Any) -> None:
        outbound.append(message)

    raw = [(name.lower().encode(), value.encode()) for name, value in headers.items()]
    await receiver.asgi({"type": "http", "method": method, "headers": raw}, receive, send)
    start, end = outbound
    return start["status"], end["body"]


@pytest.fixture(params=["aiohttp", "asgi"])
async def post(request: pytest.FixtureRequest, receiver: Receiver) -> AsyncIterator[Post]:
    """Post headers and body to the receiver, one way or the other."""
    if request.param == "asgi":

        async def to_asgi(headers: dict[str, str], body: bytes) -> tuple[int, bytes]:
            answer = await call_asgi(receiver, headers, body[:3], body[3:])
            await asyncio.sleep(0)
            return answer

        yield to_asgi
        return
    async with served(receiver) as url, aiohttp.ClientSession() as session:

        async def to_aiohttp(headers: dict[str, str], body: bytes) -> tuple[int, bytes]:
            async with session.post(url, headers=headers, data=body) as answer:
                return answer.status, await answer.read()

        yield to_aiohttp


# ---- what comes in ----


async def test_a_signed_notification_wakes_its_push(post: Post, woken: list[str]) -> None:
    """A valid signature is answered 204 and the key is passed on."""
    assert await post(signed(body_about()), body_about()) == (204, b"")
    assert woken == ["key-1"]


async def test_a_shared_authorization_wakes_its_push(post: Post, woken: list[str]) -> None:
    """The agreed Authorization value is proof, too."""
    assert await post({"Authorization": SHARED}, body_about()) == (204, b"")
    assert woken == ["key-1"]


async def test_a_doubled_notification_wakes_once(post: Post, woken: list[str]) -> None:
    """A repeated delivery gets its 2xx and wakes nobody."""
    answers = [await post(signed(body_about()), body_about()) for _ in range(3)]

    assert answers == [(204, b"")] * 3
    assert woken == ["key-1"]


@pytest.mark.parametrize(
    ("headers", "body", "status"),
    [
        ({}, body_about(), 401),
        ({"Authorization": "Bearer of-another"}, body_about(), 401),
        ({**signed(body_about()), "Webhook-Signature": "v1,AAAA"}, body_about(), 401),
        (signed(body_about()), body_about("key-2"), 401),
        ({**signed(body_about()), "Webhook-Timestamp": str(NOW - 301)}, body_about(), 401),
        ({"Authorization": SHARED}, b"not json", 400),
        ({"Authorization": SHARED}, b"", 400),
        ({"Authorization": SHARED}, b"\xff\xfe", 400),
        ({"Authorization": SHARED}, b"[" * 9_000, 400),
        ({"Authorization": SHARED}, b" " * 10_001, 400),
        ({}, b" " * 1_000_000, 400),
    ],
)
async def test_bad_input_learns_nothing(
    post: Post, woken: list[str], headers: dict[str, str], body: bytes, status: int
) -> None:
    """Forged, stale, broken and oversized deliveries get a bare 400 or 401 and wake nobody."""
    assert await post(headers, body) == (status, b"")
    assert woken == []


async def test_what_is_about_no_push_is_welcome(post: Post, woken: list[str]) -> None:
    """Another kind of event gets a 2xx, so that the sender does not repeat it."""
    assert await post({"Authorization": SHARED}, b'{"eventType": "sync.done"}') == (204, b"")
    assert woken == []


async def test_a_body_at_the_cap_is_taken(post: Post, woken: list[str]) -> None:
    """Exactly *max_body* bytes still fit."""
    assert (await post({"Authorization": SHARED}, body_about().ljust(10_000)))[0] == 204
    assert woken == ["key-1"]


# ---- how it answers ----


async def test_an_oversized_body_is_not_read_on(receiver: Receiver) -> None:
    """Past the cap nothing more is taken from the sender."""
    taken = 0

    async def endless() -> dict[str, Any]:
        nonlocal taken
        taken += 1
        return {"type": "http.request", "body": b"x" * 4_000, "more_body": True}

    answers: list[Any] = []

    async def send(message: Any) -> None:
        answers.append(message)

    await receiver.asgi({"type": "http", "method": "POST", "headers": []}, endless, send)

    assert taken == 3
    assert answers[0]["status"] == 400


async def test_a_notify_that_raises_does_not_harm_the_answer() -> None:
    """The sender gets its 2xx; the loop reports the error."""
    reported: list[str] = []
    loop = asyncio.get_running_loop()
    loop.set_exception_handler(lambda _, context: reported.append(str(context["exception"])))

    def broken(key: str) -> None:
        raise RuntimeError(f"closed before {key}")

    receiver = Receiver(broken, allow_unverified=True)

    assert receiver.receive({}, body_about()) == 204
    await asyncio.sleep(0)
    assert reported == ["closed before key-1"]


async def test_header_names_are_read_in_any_case(receiver: Receiver) -> None:
    """Frameworks hand headers over in their own spelling; `receive` reads them all."""
    for spell in (str.upper, str.lower, str.title):
        headers = {spell(name): value for name, value in signed(body_about()).items()}
        assert receiver.receive(headers, body_about()) == 204


async def test_the_log_says_why(receiver: Receiver, caplog: pytest.LogCaptureFixture) -> None:
    """The operator learns the reason that the sender does not, and no body or secret."""
    with caplog.at_level(logging.DEBUG, "integration_sdk.webhooks"):
        receiver.receive({"Authorization": "Bearer guess"}, body_about())
        receiver.receive({"Authorization": SHARED}, b"{")

    assert [record.getMessage() for record in caplog.records] == [
        "notification answered 401: no valid signature or Authorization",
        "notification answered 400: no JSON object",
    ]


@pytest.mark.virtual_time
@pytest.mark.parametrize("pause", [0, 1])
async def test_broken_bodies_do_not_break_the_server(
    receiver: Receiver, woken: list[str], pause: float
) -> None:
    """A body that breaks off or is framed wrongly gets a 4xx or a closed line."""
    head = b"POST /pushes HTTP/1.1\r\nHost: x\r\n"
    async with served(receiver) as url:
        port = int(url.split(":")[2].split("/")[0])
        for header, body in (
            (b"Transfer-Encoding: chunked", b"zz\r\n{}\r\n0\r\n\r\n"),
            (b"Content-Encoding: gzip\r\nContent-Length: 4", b"nope"),
            (b"Content-Length: 100", b"{}"),
        ):
            reader, writer = await asyncio.open_connection("127.0.0.1", port)
            writer.write(head + header + b"\r\n\r\n")
            await asyncio.sleep(pause)  # 1: until the receiver waits for the body
            writer.write(body)
            writer.write_eof()
            answer = await reader.read()
            writer.close()
            await writer.wait_closed()
            assert answer == b"" or answer.split()[1].startswith(b"4"), answer
    assert woken == []


@pytest.mark.virtual_time
async def test_a_sender_who_hangs_up_is_no_error(
    receiver: Receiver, woken: list[str], caplog: pytest.LogCaptureFixture
) -> None:
    """A line that breaks in mid-body wakes nobody and puts no traceback in the server's log."""
    async with served(receiver) as url:
        port = int(url.split(":")[2].split("/")[0])
        _, writer = await asyncio.open_connection("127.0.0.1", port)
        writer.write(b"POST /pushes HTTP/1.1\r\nHost: x\r\nContent-Length: 100\r\n\r\n{")
        await asyncio.sleep(1)  # until the receiver waits for the rest
        writer.transport.abort()
        await asyncio.sleep(1)

    assert [record.name for record in caplog.records] == ["integration_sdk.webhooks"]
    assert woken == []


async def test_asgi_answers_only_post(receiver: Receiver) -> None:
    """A browser that looks at the address gets 405, and what is allowed instead."""
    assert await call_asgi(receiver, {}, b"", method="GET") == (405, b"")

    send, receive = AsyncMock(), AsyncMock()
    await receiver.asgi({"type": "http", "method": "PUT", "headers": []}, receive, send)
    assert send.await_args_list[0].args[0]["headers"] == [(b"allow", b"POST")]


async def test_asgi_takes_part_in_lifespan(receiver: Receiver) -> None:
    """Run as the whole application, it lets the server start and stop."""
    inbound = ["lifespan.startup", "lifespan.shutdown"]
    outbound: list[str] = []

    async def receive() -> dict[str, Any]:
        return {"type": inbound.pop(0)}

    async def send(message: Any) -> None:
        outbound.append(message["type"])

    await receiver.asgi({"type": "lifespan"}, receive, send)

    assert outbound == ["lifespan.startup.complete", "lifespan.shutdown.complete"]


async def test_asgi_declines_a_websocket(receiver: Receiver) -> None:
    """A websocket is turned away as ASGI wants it, without an error in the server's log."""
    outbound: list[str] = []

    async def receive() -> dict[str, Any]:
        return {"type": "websocket.connect"}

    async def send(message: Any) -> None:
        outbound.append(message["type"])

    await receiver.asgi({"type": "websocket"}, receive, send)

    assert outbound == ["websocket.close"]


async def test_asgi_refuses_what_it_does_not_know(receiver: Receiver) -> None:
    """Another protocol raises, as ASGI asks of an application that does not speak it."""

    async def never(*_: Any) -> Any:
        raise AssertionError

    with pytest.raises(ConfigurationError, match="accepts HTTP, not smoke"):
        await receiver.asgi({"type": "smoke"}, never, never)


def test_asgi_is_what_servers_take_for_asgi_3(receiver: Receiver) -> None:
    """Given bare to a server, it is called with scope, receive and send at once.

    So uvicorn and asgiref tell: a function that is a coroutine function, or an object whose
    ``__call__`` is one. They take a bound method for ASGI 2.
    """
    assert inspect.isfunction(receiver.asgi)
    assert inspect.iscoroutinefunction(receiver.asgi)


# ---- how it is set up ----


@pytest.mark.parametrize(
    "options",
    [
        {},
        {"secrets": []},
        {"secrets": ""},
        {"authorization": ""},
        {"authorization": ["Bearer x", ""]},
        {"secrets": None},
        {"secrets": SECRET, "authorization": None},
        {"authorization": "Bearer x", "secrets": [None]},
        {"secrets": SECRET.encode()},
        {"secrets": "whsec_not base64"},
        {"secrets": "whsec_"},
        {"secrets": "whsec_AAAAA"},
        {"secrets": "whsec_AAA"},
        {"secrets": "whsec_AAAA===="},
        {"secrets": "password"},
        {"secrets": 5},
        {"secrets": SECRET, "allow_unverified": True},
    ],
)
def test_a_receiver_without_a_clear_proof_is_refused(options: dict[str, Any]) -> None:
    """Nothing to check by, an empty value (an unset variable) or an odd secret raises at once."""
    with pytest.raises(ConfigurationError) as caught:
        Receiver(print, **options)

    assert "not base64" not in str(caught.value)


@pytest.mark.parametrize(
    "odd",
    [
        {"tolerance": float("nan")},
        {"tolerance": None},
        {"tolerance": -1},
        {"max_body": 0},
        {"max_body": "64k"},
        {"remembers": None},
        {"allow_unverified": "no"},
    ],
)
def test_a_receiver_that_could_not_judge_is_refused(odd: dict[str, Any]) -> None:
    """With a tolerance of NaN no delivery would be too old; the others would break on the first."""
    with pytest.raises(ConfigurationError, match=f"^{next(iter(odd))} must be "):
        Receiver(print, authorization=SHARED, **odd)


async def wake(key: str) -> None:
    raise AssertionError(key)


class Waker:
    async def __call__(self, key: str) -> None:
        await wake(key)


@pytest.mark.parametrize("notify", [wake, partial(wake, "key-1"), Waker(), Waker().__call__, None])
def test_a_notify_that_could_not_be_called_is_refused(notify: Any) -> None:
    """What would need awaiting would never run, however it is dressed: refused at once."""
    with pytest.raises(ConfigurationError, match="plain function"):
        Receiver(notify, authorization=SHARED)


async def test_a_receiver_may_believe_every_sender(woken: list[str]) -> None:
    """Asked for by name, deliveries need no proof."""
    receiver = Receiver(woken.append, allow_unverified=True)

    assert receiver.receive({}, body_about()) == 204
    await asyncio.sleep(0)
    assert woken == ["key-1"]
