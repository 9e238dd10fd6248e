"""What every test of this suite may count on: the SDK's own plugin, and no leaks.

The plugin arrives by its entry point where the SDK is installed and is registered here
where it is not. A test that leaves a task or a socket behind fails. None fails for being slow.
"""

from __future__ import annotations

import asyncio
import gc
import os
import random
from collections.abc import AsyncIterator, Generator, Iterator
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any

import pytest
from hypothesis import settings

from integration_sdk import Listing, testing
from tests.support.loops import LOOPS, RunOnLoop
from tests.support.pager_support import Serve
from tests.support.postgres import Server, postgres_server
from tests.support.push_support import Connect, Journal
from tests.support.virtual_service import Service

settings.register_profile("no deadline", deadline=None)
settings.load_profile("no deadline")


def pytest_configure(config: pytest.Config) -> None:
    # Tests start hundreds of processes; compiling all modules anew would be half of their time.
    if os.environ.pop("PYTHONDONTWRITEBYTECODE", None) and hasattr(config, "cache"):
        os.environ["PYTHONPYCACHEPREFIX"] = str(config.cache.mkdir("bytecode"))
    if not config.pluginmanager.is_registered(testing):
        config.pluginmanager.register(testing, "integration_sdk")


@pytest.hookimpl(wrapper=True)
def pytest_collection() -> Generator[None, object, object]:
    """Collect no garbage among modules and tests, which stay: that was a tenth of all time."""
    gc.disable()
    try:
        return (yield)
    finally:
        gc.enable()
        gc.freeze()


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Begin with the longest, so that no process waits for another one's last test."""
    items.sort(key=lambda item: "type_checkers" not in item.name)


@pytest.fixture(scope="session")
def postgres() -> Iterator[Server]:
    """A real PostgreSQL server, for those who ask for one."""
    with postgres_server() as server:
        yield server


@pytest.fixture(params=["memory", "file"])
def journal(request: pytest.FixtureRequest, tmp_path: Path) -> Journal | Path:
    """A journal that keeps everything, in memory and in a file: both promise the same."""
    return Journal() if request.param == "memory" else tmp_path / "pushes.db"


@pytest.fixture(params=LOOPS)
def run_on_loop(request: pytest.FixtureRequest) -> RunOnLoop:
    """Return what runs a journey: on asyncio, uvloop and, from 3.12 on, with eager tasks."""
    return RunOnLoop(LOOPS[request.param])


@pytest.fixture(autouse=True)
def seeded_chance() -> Iterator[None]:
    """Let each run draw the same pauses, so that no test fails now and then."""
    state = random.getstate()
    random.seed(0)
    yield
    random.setstate(state)


@pytest.fixture
async def connect() -> AsyncIterator[Connect]:
    """Return what makes clients of a virtual service, which are closed after the test."""
    async with AsyncExitStack() as clients:
        yield lambda service, **options: clients.enter_async_context(service.client(**options))


@pytest.fixture
def serve(connect: Connect) -> Serve:
    """Return what makes the list of companies of a virtual service, without retries."""

    async def listing(service: Service) -> Listing[Any]:
        client = await connect(service, retry=None)
        return client.companies

    return listing


@pytest.fixture(autouse=True)
def no_socket_left_open() -> Iterator[None]:
    """Fail a test that leaves a socket open once its loop is closed."""
    before = open_sockets()
    yield
    leaked = open_sockets() - before
    assert not leaked, f"sockets left open: {sorted(leaked)}"


@pytest.fixture(autouse=True)
def no_task_left_running(request: pytest.FixtureRequest, no_socket_left_open: None) -> None:
    """Fail an async test that leaves a task running on its loop."""
    if request.node.get_closest_marker("asyncio"):
        request.getfixturevalue("every_task_ended")


@pytest.fixture
async def every_task_ended() -> AsyncIterator[None]:
    """Look when all other fixtures are gone: set up first, so torn down last."""
    yield
    left = asyncio.all_tasks() - {asyncio.current_task()}
    assert not left, f"tasks left running: {left}"


def open_sockets() -> set[str]:
    names = (target(descriptor) for descriptor in Path("/proc/self/fd").iterdir())
    return {name for name in names if name.startswith("socket:")}


def target(descriptor: Path) -> str:
    try:
        return str(descriptor.readlink())
    except FileNotFoundError:  # the descriptor that lists the directory is gone by now
        return ""
