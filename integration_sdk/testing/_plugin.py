"""The pytest plugin: markers, fixtures, and the event loops they run on.

A fixture that holds connections has to run on the loop of the test that uses it, and that
loop belongs to the plugin that runs the test. So `integration_sandbox` and
`integration_client` are plain fixtures that find out which plugin it is and request the
variant made for it: ``_on_anyio_*`` below, ``_on_asyncio_*_loop_*`` in `_asyncio_fixtures`.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Generator, Iterator
from contextlib import asynccontextmanager, contextmanager
from inspect import isasyncgenfunction, iscoroutinefunction, signature
from pathlib import Path
from tempfile import mkdtemp
from typing import TYPE_CHECKING, Any, TypeVar

import pytest

if TYPE_CHECKING:
    from aioresponses import aioresponses

    from integration_sdk import Client
    from integration_sdk.sandbox import Faults, Sandbox
    from integration_sdk.testing._crashes import CrashPlan

T = TypeVar("T")
MARKERS = (
    "virtual_time: run this async test and its fixtures on a loop that jumps instead of sleeping",
    "integration_sandbox(**options): make this test's integration_sandbox with these options",
    "integration_faults(name, *args, **options): call sandbox.faults.<name> before the test; "
    "may be repeated",
    "crashes(kills=20, freezes=4, ...): what integration_crashes does to a program or coroutine",
)
_OF_SANDBOX = "integration_sandbox, integration_client or integration_crashes"
_NEEDS = {
    "integration_sandbox": _OF_SANDBOX,
    "integration_faults": _OF_SANDBOX,
    "crashes": "integration_crashes",
}
_USED = pytest.StashKey[set[str]]()


def pytest_configure(config: pytest.Config) -> None:
    """Register the markers, and the fixtures for pytest-asyncio if it is installed."""
    for marker in MARKERS:
        config.addinivalue_line("markers", marker)
    if _has_pytest_asyncio(config):
        config.pluginmanager.import_plugin("integration_sdk.testing._asyncio_fixtures")


def _has_pytest_asyncio(config: pytest.Config) -> bool:
    if not any(map(config.pluginmanager.hasplugin, ("asyncio", "pytest_asyncio.plugin"))):
        return False
    from pytest_asyncio import fixture  # noqa: PLC0415 - it may not be installed

    return "loop_scope" in signature(fixture).parameters  # since 0.24


# ---- whose loop ----


@pytest.hookimpl(wrapper=True, tryfirst=True)
def pytest_generate_tests(metafunc: pytest.Metafunc) -> Generator[None, object, object]:
    """Give a test marked ``virtual_time`` a virtual loop, through the plugin that runs it."""
    if metafunc.definition.get_closest_marker("virtual_time") is None:
        return (yield)
    from integration_sdk.testing._virtual_time import VirtualTimeLoop  # noqa: PLC0415 - on use

    if "anyio_backend" in metafunc.fixturenames:
        backend = ("asyncio", {"loop_factory": VirtualTimeLoop})
        metafunc.parametrize("anyio_backend", [backend], ids=["virtual"])
        return (yield)
    with _loop_factory(metafunc.config, VirtualTimeLoop):
        return (yield)


def pytest_runtest_setup(item: pytest.Item) -> None:
    """Refuse a test marked ``virtual_time`` that would get another loop, or none."""
    marker = item.get_closest_marker("virtual_time")
    if marker is None or not isinstance(item, pytest.Function):
        return
    if marker.args or marker.kwargs:
        given = [*map(repr, marker.args), *(f"{name}=" for name in marker.kwargs)]
        raise pytest.UsageError(f"virtual_time takes no arguments, not ({', '.join(given)})")
    if "anyio_backend" in item.fixturenames:
        _refuse_two_runners(item)
        _refuse_longer_lives(item)
    elif not _is_async(item.obj):
        if marker in item.own_markers:
            raise pytest.UsageError(
                f"virtual_time has no effect here: make {item.name} an async function"
            )
    elif not _has_loop_factory(item):
        raise pytest.UsageError(
            "virtual_time works where pytest-asyncio 1.4 or newer, or anyio, runs the test"
        )


@pytest.hookimpl(wrapper=True)
def pytest_runtest_call(item: pytest.Item) -> Generator[None, object, object]:
    """Refuse a mark on the test itself that had no effect; marks of its class or module may."""
    result = yield
    for marker in item.own_markers:
        if marker.name in _NEEDS and marker.name not in item.stash.get(_USED, set()):
            raise pytest.UsageError(
                f"{marker.name} has no effect without the fixture {_NEEDS[marker.name]}: "
                f"make it an argument of {item.name}"
            )
    return result


class _Offer:
    """A loop factory for pytest-asyncio, registered for one test only."""

    def __init__(self, factory: type) -> None:
        self._factory = factory

    @pytest.hookimpl(tryfirst=True, optionalhook=True)
    def pytest_asyncio_loop_factories(self) -> dict[str, type]:
        return {"virtual": self._factory}


@contextmanager
def _loop_factory(config: pytest.Config, factory: type) -> Iterator[None]:
    offer = _Offer(factory)
    config.pluginmanager.register(offer)
    try:
        yield
    finally:
        config.pluginmanager.unregister(offer)


def _has_loop_factory(item: pytest.Function) -> bool:
    from integration_sdk.testing._virtual_time import VirtualTimeLoop  # noqa: PLC0415 - on use

    return hasattr(item, "callspec") and VirtualTimeLoop in item.callspec.params.values()


def _variant(request: pytest.FixtureRequest, what: str) -> Any:
    """Return the fixture *what* made on the loop that the requesting test runs on."""
    if "anyio_backend" in request.fixturenames:
        _refuse_two_runners(request.node)
        _refuse_trio(request.getfixturevalue("anyio_backend_name"))
        return request.getfixturevalue(f"_on_anyio_{what}")
    _refuse_unittest(request)
    if not _is_async(request.function):
        raise pytest.UsageError(
            f"integration_{what} answers only while the test awaits: "
            f"make {request.node.name} an async function"
        )
    if not _has_pytest_asyncio(request.config):
        raise pytest.UsageError(
            f"integration_{what} needs an event loop: install pytest-asyncio 0.24 or newer, "
            "or mark the test with pytest.mark.anyio"
        )
    marker = request.node.get_closest_marker("asyncio")
    scope = marker and marker.kwargs.get("loop_scope")
    scope = scope or default_loop_scope(request.config)
    return request.getfixturevalue(f"_on_asyncio_{scope}_loop_{what}")


def default_loop_scope(config: pytest.Config) -> str:
    """Return the scope of the loop that runs a test whose mark names none."""
    try:
        scope: str = config.getini("asyncio_default_test_loop_scope")
    except ValueError:  # pytest-asyncio before 0.26
        return "function"
    return scope


def _is_async(test: Any) -> bool:
    inner = test.hypothesis.inner_test if hasattr(test, "hypothesis") else test
    return iscoroutinefunction(inner) or isasyncgenfunction(inner)


def _refuse_unittest(request: pytest.FixtureRequest) -> None:
    from unittest import TestCase  # noqa: PLC0415 - on use

    if issubclass(request.cls or object, TestCase):
        raise pytest.UsageError(
            f"{request.cls.__name__} is a unittest.TestCase, which has no loop or one of its own: "
            "write `async with Sandbox() as sandbox` in tests of an IsolatedAsyncioTestCase"
        )


def _refuse_two_runners(item: pytest.Item) -> None:
    if _has_pytest_asyncio(item.config):
        from pytest_asyncio import is_async_test  # noqa: PLC0415 - it may not be installed

        if is_async_test(item):
            raise pytest.UsageError(
                "pytest-asyncio and anyio would both run this test: set asyncio_mode = strict, "
                "or remove its mark anyio"
            )


def _refuse_longer_lives(item: pytest.Function) -> None:
    for name, definitions in item._fixtureinfo.name2fixturedefs.items():
        fixture = definitions[-1]
        runs_on_loop = "anyio_backend" in fixture.argnames or _is_async(fixture.func)
        if runs_on_loop and fixture.scope != "function":
            raise pytest.UsageError(
                f"the virtual loop ends with its test, so the fixture {name}, which runs on it, "
                f"must have the scope function, not {fixture.scope}"
            )


def _refuse_trio(backend: str) -> None:
    if backend != "asyncio":
        raise pytest.UsageError(
            "integration_sdk runs on asyncio: give this test a fixture anyio_backend that "
            f'returns "asyncio", not "{backend}"'
        )


# ---- what users ask for ----


@pytest.fixture
def integration_sandbox(request: pytest.FixtureRequest) -> Sandbox:
    """Return a running `Sandbox`, made with the options of the marker of the same name."""
    sandbox: Sandbox = _variant(request, "sandbox")
    return sandbox


@pytest.fixture
def integration_client(request: pytest.FixtureRequest, integration_sandbox: Sandbox) -> Client:
    """Return a `Client` connected to `integration_sandbox`."""
    client: Client = _variant(request, "client")
    return client


@pytest.fixture
def integration_aioresponses() -> Iterator[aioresponses]:
    """Return an active ``aioresponses`` mock that works on every aiohttp the SDK supports."""
    from integration_sdk.testing._aioresponses import patched_aioresponses  # noqa: PLC0415 - on use

    with patched_aioresponses() as mock:
        yield mock


@pytest.fixture
def integration_crashes(
    request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Callable[..., None]:
    """Return what crash-tests a coroutine function, or the words of a command.

    It raises AssertionError if anything is doubled, lost, mislinked, missing or stale.
    """
    from integration_sdk.testing._crash_coroutines import crash  # noqa: PLC0415 - on use

    if _is_async(request.function):
        raise pytest.UsageError(
            f"integration_crashes runs loops of its own: make {request.node.name} a plain function"
        )
    plan = _crash_plan(request)

    def run(*what: Any) -> None:
        __tracebackhide__ = True
        for name in ("BASE_URL", "API_KEY"):
            monkeypatch.setenv(f"INTEGRATION_SDK_{name}", "")  # and as it was, after the test
        monkeypatch.chdir(Path.cwd())
        report = crash(what[0] if callable(what[0]) else what, plan, Path(mkdtemp(dir=tmp_path)))
        if not report.passed:
            raise AssertionError(str(report))

    return run


# ---- how they are made ----


def _crash_plan(request: pytest.FixtureRequest) -> CrashPlan:
    """Return what the test's markers describe."""
    from integration_sdk.sandbox import Sandbox  # noqa: PLC0415 - on use
    from integration_sdk.testing._crashes import SMALL, CrashPlan, Expected  # noqa: PLC0415 - on use

    request.node.stash[_USED] = set(_NEEDS)
    options = {"kills": 20, "freezes": 4} | _named(request, "crashes")
    files, key = options.pop("files", {}), options.pop("key", "id")
    options["expected"] = tuple(Expected(path=one, data_type=files[one], key=key) for one in files)
    options["sandbox"] = {**SMALL, **_named(request, "integration_sandbox")}
    add = _faults_of(request)
    add(_called(Sandbox, pytest.mark.integration_sandbox(**options["sandbox"]).mark).faults)
    if request.node.get_closest_marker("integration_faults"):
        options["faults"] = add
    return _called(CrashPlan, pytest.mark.crashes(**options).mark)


def _named(request: pytest.FixtureRequest, name: str) -> dict[str, Any]:
    marker = request.node.get_closest_marker(name)
    if marker is not None and marker.args:
        raise pytest.UsageError(f"{name}: name the arguments of a crash test, such as kills=20")
    return {} if marker is None else marker.kwargs


def _faults_of(request: pytest.FixtureRequest) -> Callable[[Faults], None]:
    def add(faults: Faults) -> None:
        for fault in reversed(list(request.node.iter_markers("integration_faults"))):
            _called(faults.add_named, fault)

    return add


@asynccontextmanager
async def running_sandbox(request: pytest.FixtureRequest) -> AsyncIterator[Sandbox]:
    """Start the sandbox that the test's markers describe."""
    from integration_sdk.sandbox import Sandbox  # noqa: PLC0415 - on use

    marker = request.node.get_closest_marker("integration_sandbox")
    request.node.stash[_USED] = {"integration_sandbox", "integration_faults"}
    sandbox = _called(Sandbox, marker) if marker else Sandbox()
    _faults_of(request)(sandbox.faults)
    async with sandbox:
        yield sandbox


def _called(make: Callable[..., T], marker: pytest.Mark) -> T:
    """Call *make* with a marker's arguments and return the result."""
    try:
        return make(*marker.args, **marker.kwargs)
    except (TypeError, ValueError) as error:
        raise pytest.UsageError(f"{marker.name}: {error}") from None


@asynccontextmanager
async def connected_client(sandbox: Sandbox) -> AsyncIterator[Client]:
    """Connect a client to *sandbox*, in its dialect."""
    from integration_sdk import Client, Dialect  # noqa: PLC0415 - on use

    dialect = Dialect.published() if sandbox.dialect == "published" else Dialect.document()
    async with Client(sandbox.api_key, sandbox.base_url, dialect=dialect) as client:
        yield client


@pytest.fixture(name="_on_anyio_sandbox")
async def on_anyio_sandbox(request: pytest.FixtureRequest) -> AsyncIterator[Sandbox]:
    """Return the sandbox on anyio's loop."""
    async with running_sandbox(request) as sandbox:
        yield sandbox


@pytest.fixture(name="_on_anyio_client")
async def on_anyio_client(integration_sandbox: Sandbox) -> AsyncIterator[Client]:
    """Return the client on anyio's loop."""
    async with connected_client(integration_sandbox) as client:
        yield client
