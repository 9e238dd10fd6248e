"""A headless Chromium, driven through its DevTools protocol over a websocket."""

from __future__ import annotations

import asyncio
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
from attrs import define, field

from tests.support.loops import until

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
    """One page of the browser.

    Args:
        complaints: What it wrote to its console, exceptions and blocked requests included.
    """

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
