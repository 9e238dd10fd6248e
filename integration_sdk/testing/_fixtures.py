"""The fixtures that run on the loop of the test; loaded where pytest-asyncio is active."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from typing import TYPE_CHECKING, TypeVar

import pytest
import pytest_asyncio

from integration_sdk.testing._plugin import is_async

if TYPE_CHECKING:
    from integration_sdk import Client
    from integration_sdk.sandbox import Sandbox

T = TypeVar("T")


@pytest_asyncio.fixture(loop_scope="function")
async def integration_sandbox(request: pytest.FixtureRequest) -> AsyncIterator[Sandbox]:
    """Return a running `Sandbox`, made as the test's markers describe."""
    from integration_sdk.sandbox import Sandbox  # noqa: PLC0415 - on use

    if not is_async(request.function):
        raise pytest.UsageError(
            f"integration_sandbox answers only while the test awaits: make {request.node.name} an "
            "async function"
        )
    marker = request.node.get_closest_marker("integration_sandbox")
    sandbox = _called(Sandbox, marker) if marker else Sandbox()
    for fault in reversed(list(request.node.iter_markers("integration_faults"))):
        _called(sandbox.faults.add_named, fault)
    async with sandbox:
        yield sandbox


def _called(make: Callable[..., T], marker: pytest.Mark) -> T:
    try:
        return make(*marker.args, **marker.kwargs)
    except (TypeError, ValueError) as error:
        raise pytest.UsageError(f"{marker.name}: {error}") from None


@pytest_asyncio.fixture(loop_scope="function")
async def integration_client(integration_sandbox: Sandbox) -> AsyncIterator[Client]:
    """Return a `Client` connected to `integration_sandbox`, in its dialect."""
    from integration_sdk import Client, Dialect  # noqa: PLC0415 - on use

    dialect = getattr(Dialect, integration_sandbox.dialect)()
    key, url = integration_sandbox.api_key, integration_sandbox.base_url
    async with Client(key, url, dialect=dialect) as client:
        yield client
