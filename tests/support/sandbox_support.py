"""A bare HTTP caller for the sandbox's own tests: plain aiohttp, nothing of the SDK's client."""

from __future__ import annotations

import asyncio
import base64
import json
import re
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from decimal import Decimal
from typing import Any

import aiohttp
from attrs import frozen

from integration_sdk.sandbox import Company, Connection, Sandbox

DELIVERY: dict[str, Any] = {
    "invoiceNumber": "INV-17",
    "customerRef": {"id": "c-1"},
    "issueDate": "2024-03-01",
    "dueDate": "2024-03-31",
    "currency": "GBP",
    "status": "Submitted",
    "lineItems": [{"description": "Ash worktop", "unitAmount": 120.5, "quantity": 2}],
}
"""An invoice that every platform takes."""
UUID = re.compile(r"[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}")


def turned(value: Any) -> Any:
    """Return *value* with the members of each object the other way round."""
    if isinstance(value, dict):
        return {name: turned(value[name]) for name in reversed(value)}
    return [turned(one) for one in value] if isinstance(value, list) else value


@frozen
class Reply:
    """What came back."""

    status: int
    headers: Mapping[str, str]
    text: str

    @property
    def body(self) -> Any:
        return json.loads(self.text, parse_float=Decimal)

    @property
    def errors(self) -> list[dict[str, str]]:
        found: list[dict[str, str]] = self.body["validation"]["errors"]
        return found


@frozen
class Http:
    """Calls a sandbox with its key.

    The paths of its first company and that company's connections are at hand.
    """

    sandbox: Sandbox
    session: aiohttp.ClientSession

    async def call(self, method: str, path: str, **options: Any) -> Reply:
        async with self.session.request(method, self.sandbox.base_url + path, **options) as answer:
            return Reply(answer.status, answer.headers, await answer.text())

    async def get(self, path: str, **params: Any) -> Reply:
        return await self.call("GET", path, params=params)

    async def post(self, path: str, record: Any, **params: Any) -> Reply:
        return await self.call("POST", path, json=record, params=params)

    async def push(self, connection: int = 0, kind: str = "invoices", **params: Any) -> Any:
        """Push `DELIVERY` through a connection and return the operation."""
        return (await self.post(f"{self.at(connection)}/push/{kind}", DELIVERY, **params)).body

    async def pushed(self, operation: Mapping[str, Any]) -> Any:
        """The operation as it is now."""
        return (await self.get(f"{self.company}/push/{operation['pushOperationKey']}")).body

    @property
    def first(self) -> Company:
        return self.sandbox.companies[0]

    @property
    def company(self) -> str:
        return f"/companies/{self.first.id}"

    def connection(self, number: int = 0) -> Connection:
        return self.first.connections[number]

    def at(self, number: int = 0) -> str:
        """Path of a connection: 0 answers later, 1 at once, 2 never, 3 is strict."""
        return f"{self.company}/connections/{self.connection(number).id}"


def holding(gate: asyncio.Event) -> Callable[[Any, Any], Any]:
    """A fault: the work is done at once, the answer waits at *gate*."""

    async def act(_call: Any, proceed: Any) -> Any:
        answer = await proceed()
        await gate.wait()
        return answer

    return act


@asynccontextmanager
async def serving(**options: Any) -> AsyncIterator[Http]:
    """Run a sandbox of these *options* and call it."""
    options.setdefault("invoices", 250)
    async with Sandbox(**options) as sandbox:
        credential = base64.b64encode(sandbox.api_key.encode()).decode()
        headers = {"Authorization": f"Basic {credential}"}
        async with aiohttp.ClientSession(headers=headers) as session:
            yield Http(sandbox, session)


def published(**options: Any) -> AbstractAsyncContextManager[Http]:
    """As `serving`, in the published dialect."""
    return serving(dialect="published", **options)


async def push_under(http: Http, key: str, record: Any = DELIVERY, **more: Any) -> Reply:
    """Push *record* under the Idempotency-Key *key*."""
    headers = {"Idempotency-Key": key, **more.pop("headers", {})}
    path = f"{http.at()}/push/invoices"
    return await http.call("POST", path, json=record, headers=headers, **more)
