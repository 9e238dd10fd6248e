"""The web services of the guide: readers who leave, pushes that last, a shutdown, references."""

from __future__ import annotations

import asyncio
import importlib
import json
import sys
from collections.abc import AsyncIterator, Sequence
from pathlib import Path
from typing import Any

import aiohttp
import pytest
from aiohttp import web
from attrs import frozen
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from integration_sdk import PushStatus
from integration_sdk.sandbox import Sandbox
from tests.support.sandbox_support import DELIVERY

GUIDE = (Path(__file__).parents[2] / "integration_sdk/docs/guides/web-service.md").read_text()
PAGES = 8
BOUNDED = pytest.mark.integration_sandbox(
    companies=1, invoices=PAGES * 1000, push_seconds=(7200, 10_800)
)
pytestmark = pytest.mark.virtual_time


@frozen
class Shop:
    """The service of the guide, and a caller of it.

    Attributes:
        runner: Runs it; ``cleanup()`` is its SIGTERM.
        caller: Calls it by path.
        books: Paths: of the invoices, and to push to the first connection.
    """

    sandbox: Sandbox
    runner: web.AppRunner
    caller: aiohttp.ClientSession
    books: tuple[str, str]


def code(says: str) -> str:
    """Return the program of the guide that says so."""
    return next(block for block in GUIDE.split("```python\n") if says in block).split("```")[0]


@pytest.fixture(autouse=True)
def configured(integration_sandbox: Sandbox, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("INTEGRATION_SDK_API_KEY", integration_sandbox.api_key)
    monkeypatch.setenv("INTEGRATION_SDK_BASE_URL", integration_sandbox.base_url)


@pytest.fixture
async def shop(integration_sandbox: Sandbox) -> AsyncIterator[Shop]:
    written: dict[str, Any] = {}
    exec(code("web.run_app(app)"), written)  # noqa: S102 (our own page)
    runner = web.AppRunner(written["app"], shutdown_timeout=1)
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", 0).start()
    url = f"http://127.0.0.1:{runner.addresses[0][1]}"
    integration_sandbox.subscribe(f"{url}/pushes", authorization="Bearer ours")
    company = integration_sandbox.companies[0]
    books = f"/{company.id}/invoices", f"/{company.id}/{company.connections[0].id}/invoices"
    async with aiohttp.ClientSession(url) as caller:
        yield Shop(integration_sandbox, runner, caller, books)
    await runner.cleanup()


@pytest.mark.integration_sandbox(companies=1, invoices=1500)
async def test_a_company_s_invoices_are_streamed_through(shop: Shop) -> None:
    """A reader of the service gets every invoice, in the order of the list."""
    async with shop.caller.get(shop.books[0]) as answer:
        ids = [json.loads(line)["id"] async for line in answer.content]

    listed = shop.sandbox.data_set(shop.sandbox.companies[0].id, "invoices")
    assert ids == [record["id"] for record in listed]


@BOUNDED
async def test_a_reader_who_leaves_ends_the_fetching(shop: Shop) -> None:
    """Whoever hangs up in mid-stream leaves no request behind, and the next one is served."""
    answer = await shop.caller.get(shop.books[0])
    await answer.content.readline()
    answer.close()
    await asyncio.sleep(60)
    fetched = shop.sandbox.count("GET")
    await asyncio.sleep(60)

    assert shop.sandbox.count("GET") == fetched < PAGES


@pytest.mark.integration_sandbox(companies=1, push_seconds=(5, 15))
async def test_a_push_is_answered_as_soon_as_it_ends(shop: Shop) -> None:
    """Twenty callers get their outcomes by notification, at next to no polls."""
    began = asyncio.get_running_loop().time()
    answers = await asyncio.gather(*(pushed(shop) for _ in range(20)))
    took = asyncio.get_running_loop().time() - began

    assert {(status, told["status"]) for status, told in answers} == {(200, PushStatus.SUCCESS)}
    assert took < 16
    assert len(shop.sandbox.notifications) == 20


@BOUNDED
async def test_a_shutdown_in_the_middle_leaves_nothing(shop: Shop) -> None:
    """Readers and waiting pushes are cut off after the server's grace time; none hangs."""
    answers = [await shop.caller.get(shop.books[0]) for _ in range(3)]
    waiting = [asyncio.create_task(pushed(shop)) for _ in range(20)]
    await asyncio.sleep(5)

    await asyncio.wait_for(shop.runner.cleanup(), timeout=10)

    ends = await asyncio.gather(*waiting, return_exceptions=True)
    assert {type(end) for end in ends} == {aiohttp.ServerDisconnectedError}
    for answer in answers:
        answer.close()


async def pushed(shop: Shop) -> tuple[int, dict[str, str]]:
    async with shop.caller.post(shop.books[1], json=DELIVERY) as answer:
        return answer.status, await answer.json()


@frozen
class StoreShop:
    """The service of the guide with a store, in FastAPI."""

    sandbox: Sandbox
    app: ASGIApp

    async def push(
        self, reference: str | None, body: object, books: str | None = None
    ) -> tuple[int, Any]:
        company = self.sandbox.companies[0]
        path = f"/{company.id}/{books or company.connections[0].id}/invoices"
        headers = [] if reference is None else [(b"idempotency-key", reference.encode())]
        return await called(self.app, "POST", path, body, headers)

    async def state(self, reference: str) -> Any:
        return await called(self.app, "GET", f"/pushes/{reference}")


@pytest.fixture
async def store_shop(
    integration_sandbox: Sandbox, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> AsyncIterator[StoreShop]:
    monkeypatch.setenv("STORE", str(tmp_path / "pushes.db"))
    (tmp_path / "guide_service.py").write_text(code("FastAPI("))
    monkeypatch.syspath_prepend(str(tmp_path))
    app = importlib.import_module("guide_service").app
    monkeypatch.delitem(sys.modules, "guide_service")
    async with app.router.lifespan_context(app) as state:

        async def serve(scope: Scope, receive: Receive, send: Send) -> None:
            await app({**scope, "state": dict(state)}, receive, send)

        yield StoreShop(integration_sandbox, serve)


@pytest.mark.integration_sandbox(companies=1, push_seconds=(1, 2))
async def test_a_reference_is_pushed_once_and_answered_again(store_shop: StoreShop) -> None:
    """With its key; another record under it is a conflict."""
    first = await store_shop.push("order-1", DELIVERY)
    again = await store_shop.push("order-1", DELIVERY)
    other = await store_shop.push("order-1", DELIVERY | {"note": "other"})

    key = store_shop.sandbox.pushes[0].key
    done = {"key": key, "status": "SUCCESS", "reasons": []}
    assert first == again == (200, done)
    assert await store_shop.state("order-1") == (200, done)
    assert (other[0], other[1]["status"]) == (409, "REJECTED")
    assert len(store_shop.sandbox.pushes) == 1
    assert (await store_shop.state("order-2"))[0] == 404


@pytest.mark.integration_sandbox(companies=1, push_seconds=(1, 2))
async def test_what_is_refused_is_a_422_with_its_reasons(store_shop: StoreShop) -> None:
    """An unknown connection, one that is no id, and a record that the platform refuses."""
    nowhere = await store_shop.push("order-1", DELIVERY, "no-such-connection")
    no_id = await store_shop.push("order-2", DELIVERY, "..")
    store_shop.sandbox.faults.fail_next_push("amount must be positive")
    failed = await store_shop.push("order-3", DELIVERY)

    assert (nowhere[0], nowhere[1]["status"], nowhere[1]["key"]) == (422, "REJECTED", None)
    assert nowhere[1]["reasons"]
    assert (no_id[0], no_id[1]["status"]) == (422, "INVALID")
    assert "cannot be part of a path" in no_id[1]["reasons"][0]
    assert (failed[0], failed[1]["status"]) == (422, "FAILED")
    assert "amount must be positive" in failed[1]["reasons"][0]


SLOW: dict[str, Any] = {
    "answer": lambda faults: faults.late_answer(40, route="POST /push/"),
    "push": lambda faults: faults.push_seconds(40),
    "pause": lambda faults: faults.unavailable(40, retry_after=40, route="POST /push/"),
}


@pytest.mark.parametrize("slow", SLOW)
@pytest.mark.integration_sandbox(companies=1)
async def test_a_service_that_is_slow_keeps_no_caller(store_shop: StoreShop, slow: str) -> None:
    """After 20 seconds at most the answer is 202, and the push goes on."""
    SLOW[slow](store_shop.sandbox.faults)
    began = asyncio.get_running_loop().time()
    status, answer = await store_shop.push("order-1", DELIVERY)
    ends = asyncio.get_running_loop().time() - began
    await asyncio.sleep(120)

    assert (status, answer["status"]) == (202, "PENDING")
    assert ends == pytest.approx(20, abs=1)
    assert (await store_shop.state("order-1"))[1]["status"] == "SUCCESS"
    assert len(store_shop.sandbox.pushes) == 1


async def called(
    app: ASGIApp,
    method: str,
    path: str,
    body: object = None,
    headers: Sequence[tuple[bytes, bytes]] = (),
) -> tuple[int, Any]:
    """Send one request, as uvicorn does, and return status and body."""
    sent: list[Message] = []
    inbound = [{"type": "http.request", "body": json.dumps(body).encode()}]

    async def receive() -> Message:
        if not inbound:
            await asyncio.Event().wait()  # the caller stays
        return inbound.pop()

    async def send(message: Message) -> None:
        sent.append(message)

    kind = (b"content-type", b"application/json")
    scope = {"type": "http", "method": method, "path": path, "headers": [kind, *headers]}
    await app({**scope, "query_string": b""}, receive, send)
    return sent[0]["status"], json.loads(b"".join(each.get("body", b"") for each in sent))
