"""The page: what it asks of the sandbox, and how it works in a browser."""

from __future__ import annotations

import asyncio
import base64
import json
import shutil
import tempfile
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from itertools import count
from pathlib import Path
from typing import Any
from urllib.parse import quote

import aiohttp
import pytest
from attrs import define, field

from integration_sdk.sandbox import Sandbox
from tests.support.loops import until
from tests.support.sandbox_support import serving


async def test_a_running_sandbox_is_controlled_with_its_key() -> None:
    """Faults and the clock: with the key alone, uncounted, and past every fault.

    Anybody may load the page itself: the key comes from behind the # of its address.
    """
    async with serving() as http:
        http.sandbox.faults.unavailable()
        before = http.sandbox.clock.now()
        added = await http.post("/_page/faults", [{"fault": "latency", "seconds": [1, 3]}])
        await http.post("/_page/advance", {"seconds": 3600})
        ended = await http.call("DELETE", "/_page/faults")
        credential = base64.b64encode(b"wrong").decode()
        headers = {"Authorization": f"Basic {credential}"}
        refused = await http.call("POST", "/_page/faults", json=[], headers=headers)
        page = await http.call("GET", "/", headers=headers)

        assert 3600 <= http.sandbox.clock.now() - before < 3700
        assert (http.sandbox.served, http.sandbox.requests) == (0, [])
    assert added.body[1] == {"fault": "latency", "seconds": [1, 3], "hits": 0}
    assert (ended.body, refused.status) == ([], 401)
    assert http.sandbox.api_key not in page.text
    assert "default-src 'none'" in page.headers["Content-Security-Policy"]


# In a headless Chromium, driven through its DevTools protocol over a websocket


CHROMIUM = next(
    filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None
)
SWITCHES = (
    *("--headless", "--no-sandbox", "--disable-gpu", "--disable-background-networking"),
    *("--disable-component-update", "--disable-sync", "--no-first-run"),
    "--remote-debugging-port=0",
)


@define
class Tab:
    """One page of the browser; `complaints` are exceptions, blocked requests, console errors."""

    socket: aiohttp.ClientWebSocketResponse
    complaints: list[str] = field(factory=list)
    _ids: count[int] = field(factory=count)

    async def command(self, method: str, **params: Any) -> Any:
        """Send a command and return its result."""
        number = next(self._ids)
        await self.socket.send_json({"id": number, "method": method, "params": params})
        while True:
            said = await self.socket.receive_json()
            if said.get("id") == number:
                assert "error" not in said, said
                return said["result"]
            if said.get("method") in {"Runtime.exceptionThrown", "Log.entryAdded"}:
                self.complaints.append(json.dumps(said["params"]))

    async def run(self, script: str) -> Any:
        """What the expression *script* gives."""
        options = {"returnByValue": True, "awaitPromise": True}
        said = await self.command("Runtime.evaluate", expression=script, **options)
        assert "exceptionDetails" not in said, said
        return said["result"].get("value")

    async def until(self, script: str) -> Any:
        """Wait for *script* to be true, and return what it gives."""
        for _ in range(600):
            if found := await self.run(script):
                return found
            await asyncio.sleep(0.05)
        text = await self.run("document.body.innerText")
        raise AssertionError(f"never true: {script}\n{text}\n{self.complaints}")


@asynccontextmanager
async def browsing(address: str) -> AsyncIterator[Tab]:
    """A headless Chromium with a tab on *address*."""
    assert CHROMIUM is not None
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as profile:
        process = await asyncio.create_subprocess_exec(
            CHROMIUM,
            *SWITCHES,
            f"--user-data-dir={profile}",
            "about:blank",
            stdout=asyncio.subprocess.DEVNULL,
            stderr=asyncio.subprocess.DEVNULL,
        )
        try:
            async with (
                aiohttp.ClientSession() as http,
                http.ws_connect(await _opened(http, Path(profile), address)) as socket,
            ):
                tab = Tab(socket)
                await tab.command("Runtime.enable")
                await tab.command("Log.enable")
                yield tab
        finally:
            process.terminate()
            await process.wait()


async def _opened(http: aiohttp.ClientSession, profile: Path, address: str) -> str:
    """Open a tab, at the port that the browser notes in its profile; return where to drive it."""
    note = profile / "DevToolsActivePort"
    await until(lambda: note.exists() and len(note.read_text().split()) == 2)
    port, _ = note.read_text().split()
    async with http.put(f"http://127.0.0.1:{port}/json/new?{quote(address)}") as answer:
        return str((await answer.json())["webSocketDebuggerUrl"])


def named(name: str) -> str:
    return f"document.querySelector('[name={name}]')"


@pytest.mark.skipif(CHROMIUM is None, reason="no Chromium is installed")
async def test_people_can_push_switch_faults_and_turn_the_clock() -> None:
    """A form from the options, its push in the list, a fault, an hour."""
    books = Sandbox(companies=2, invoices=10, unlinked=1)
    async with books as sandbox, browsing(f"{sandbox.base_url}/#{sandbox.api_key}") as tab:
        await tab.until(f"{named('status')}?.options.length === 3")
        described: Any = await tab.run(f"{named('status')}.labels[0].textContent")
        assert described.startswith("Status *")
        await tab.run(f"{named('invoiceNumber')}.value = 'INV-77'")
        for button in ("example", "submit"):
            await tab.run(f"document.getElementById('{button}').click()")
        await tab.until("document.querySelector('.push .Success') !== null")
        (pushed,) = sandbox.pushes
        assert pushed.record["invoiceNumber"] == "INV-77"
        assert pushed.record["lineItems"][0] == {"unitAmount": 1, "quantity": 1}
        assert "INV-77" in await tab.run("document.getElementById('pushes').innerText")

        await tab.run("document.getElementById('switch-3').click()")
        await until(lambda: list(sandbox.faults))
        assert [rule.plain()["fault"] for rule in sandbox.faults] == ["fail_next_push"]
        sandbox.faults.latency(0.01)
        await tab.until("document.getElementById('faults').innerText.includes('latency')")
        before = sandbox.clock.now()
        await tab.run("document.querySelector('[data-advance=\"3600\"]').click()")
        await until(lambda: sandbox.clock.now() - before >= 3600)

        company = sandbox.companies[1].id
        change = "const c = document.getElementById('company');"
        await tab.run(f"{{{change} c.value = '{company}'; c.onchange();}}")
        await tab.until("document.getElementById('result').innerText.includes('no connection')")
        assert tab.complaints == []
