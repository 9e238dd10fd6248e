"""The pytest plugin: markers, fixtures, and virtual time for tests that ask for it.

pytest loads it in every project that has the SDK installed, so it imports nothing else until a test
uses it.
"""

from __future__ import annotations

from collections.abc import Generator, Iterator
from inspect import isasyncgenfunction, iscoroutinefunction
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from aioresponses import aioresponses

MARKERS = (
    "virtual_time: run this async test and its fixtures on a loop that jumps instead of sleeping",
    "integration_sandbox(**options): make this test's integration_sandbox with these options",
    "integration_faults(name, *args, **options): call sandbox.faults.<name> before the test; "
    "may be repeated",
)


def pytest_configure(config: pytest.Config) -> None:
    """Register the markers, and the fixtures that pytest-asyncio runs."""
    for marker in MARKERS:
        config.addinivalue_line("markers", marker)
    if config.pluginmanager.hasplugin("asyncio"):
        config.pluginmanager.import_plugin("integration_sdk.testing._fixtures")


def _virtual_loop() -> type:
    from integration_sdk.testing._virtual_time import VirtualTimeLoop  # noqa: PLC0415 - on use

    return VirtualTimeLoop


class _VirtualLoops:
    @pytest.hookimpl(tryfirst=True, optionalhook=True)
    def pytest_asyncio_loop_factories(self) -> dict[str, type]:
        return {"virtual": _virtual_loop()}


@pytest.hookimpl(wrapper=True, tryfirst=True)
def pytest_generate_tests(metafunc: pytest.Metafunc) -> Generator[None, object, object]:
    """Give a test marked ``virtual_time``, and no other, a virtual loop of pytest-asyncio."""
    if metafunc.definition.get_closest_marker("virtual_time") is None:
        return (yield)
    loops, plugins = _VirtualLoops(), metafunc.config.pluginmanager
    plugins.register(loops)
    try:
        return (yield)
    finally:
        plugins.unregister(loops)


def pytest_runtest_setup(item: pytest.Item) -> None:
    """Refuse a test marked ``virtual_time`` that would get another loop, or none."""
    marker = item.get_closest_marker("virtual_time")
    if marker is None or not isinstance(item, pytest.Function):
        return
    if not is_async(item.obj):
        if marker in item.own_markers:
            raise pytest.UsageError(
                f"virtual_time has no effect here: make {item.name} an async function"
            )
    elif not hasattr(item, "callspec") or _virtual_loop() not in item.callspec.params.values():
        raise pytest.UsageError("virtual_time works where pytest-asyncio 1.4 or newer runs a test")


def is_async(test: Any) -> bool:
    """Whether a test runs on a loop; that of a property is below its decorator."""
    inner = test.hypothesis.inner_test if hasattr(test, "hypothesis") else test
    return iscoroutinefunction(inner) or isasyncgenfunction(inner)


@pytest.fixture
def integration_aioresponses() -> Iterator[aioresponses]:
    """Return an active ``aioresponses`` mock that works on every aiohttp the SDK supports."""
    from integration_sdk.testing._aioresponses import patched_aioresponses  # noqa: PLC0415 - on use

    with patched_aioresponses() as mock:
        yield mock
