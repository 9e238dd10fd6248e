"""Somebody who subscribes to a sandbox and notes what it is sent."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Any

from aiohttp import web
from attrs import define, field

from tests.support.sandbox_support import Http, serving

KEY, SECRET = "Bearer shared", "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw"


@define
class Ear:
    """A subscriber that notes what it is sent and answers as told."""

    url: str = ""
    status: Callable[[int], int] = lambda _: 204
    heard: list[tuple[float, dict[str, str], bytes]] = field(factory=list)

    async def hear(self, request: web.Request) -> web.Response:
        headers = {name.lower(): value for name, value in request.headers.items()}
        self.heard.append((asyncio.get_running_loop().time(), headers, await request.read()))
        return web.Response(status=self.status(len(self.heard)))

    @property
    def bodies(self) -> list[Any]:
        return [json.loads(body) for _, _, body in self.heard]

    @property
    def keys(self) -> list[str]:
        return [told_key(body) for body in self.bodies]


def told_key(body: Any) -> str:
    key: str = body["Data"]["pushOperationKey"] if "Data" in body else body["payload"]["id"]
    return key


@asynccontextmanager
async def listening(status: Callable[[int], int] = lambda _: 204) -> AsyncIterator[Ear]:
    """Somebody who listens on a port of this machine."""
    ear = Ear(status=status)
    app = web.Application()
    app.router.add_post("/pushes", ear.hear)
    runner = web.AppRunner(app)
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", 0).start()
    ear.url = f"http://127.0.0.1:{runner.addresses[0][1]}/pushes"
    try:
        yield ear
    finally:
        await runner.cleanup()


@asynccontextmanager
async def telling(
    status: Callable[[int], int] = lambda _: 204, *, subscribe: Any = None, **options: Any
) -> AsyncIterator[tuple[Http, Ear]]:
    """A sandbox and somebody who has subscribed to it."""
    options.setdefault("push_seconds", (60, 60))
    async with listening(status) as ear, serving(**options) as http:
        http.sandbox.subscribe(ear.url, **(subscribe or {}))
        yield http, ear
