"""The fixtures' variants for pytest-asyncio: one for each loop scope a test may have.

Loaded by the plugin if pytest-asyncio is active. Strict mode handles only fixtures made by
its own decorator, and that decorator fixes the loop scope.
"""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import TYPE_CHECKING, Any, Literal

import pytest
import pytest_asyncio

from integration_sdk.testing._plugin import connected_client, running_sandbox

if TYPE_CHECKING:
    from integration_sdk import Client
    from integration_sdk.sandbox import Sandbox

Scope = Literal["session", "package", "module", "class", "function"]
SCOPES: tuple[Scope, ...] = ("session", "package", "module", "class", "function")


def sandbox_on(scope: Scope) -> Any:
    """Return the sandbox fixture for tests that run on the loop of *scope*."""

    @pytest_asyncio.fixture(loop_scope=scope, name=f"_on_asyncio_{scope}_loop_sandbox")
    async def sandbox(request: pytest.FixtureRequest) -> AsyncIterator[Sandbox]:
        async with running_sandbox(request) as running:
            yield running

    return sandbox


def client_on(scope: Scope) -> Any:
    """Return the client fixture for tests that run on the loop of *scope*."""

    @pytest_asyncio.fixture(loop_scope=scope, name=f"_on_asyncio_{scope}_loop_client")
    async def client(integration_sandbox: Sandbox) -> AsyncIterator[Client]:
        async with connected_client(integration_sandbox) as connected:
            yield connected

    return client


for _scope in SCOPES:
    globals()[f"sandbox_on_{_scope}_loop"] = sandbox_on(_scope)
    globals()[f"client_on_{_scope}_loop"] = client_on(_scope)
