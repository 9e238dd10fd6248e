"""A sandbox of one company and its first connection, for tests of the command."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest

from integration_sdk.sandbox import Connection, Sandbox


@pytest.fixture
async def sandbox() -> AsyncIterator[Sandbox]:
    async with Sandbox(companies=1, invoices=5) as running:
        yield running


@pytest.fixture
def books(sandbox: Sandbox) -> Connection:
    return sandbox.companies[0].connections[0]
