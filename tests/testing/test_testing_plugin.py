"""The pytest plugin in other people's projects, run as they would run it."""

from __future__ import annotations

import asyncio
import os
import re
import subprocess
import sys
import textwrap
import tomllib
from pathlib import Path
from typing import Any
from unittest.mock import Mock
from xml.etree import ElementTree as ET

import pytest

from integration_sdk import Client, testing
from integration_sdk.sandbox import Sandbox
from integration_sdk.testing._plugin import default_loop_scope

ROOT = Path(testing.__file__).parents[2]

STRICT = "pytestmark = pytest.mark.asyncio"
AUTO = ""
ANYIO = """
pytestmark = pytest.mark.anyio

@pytest.fixture
def anyio_backend():
    return "asyncio"
"""
ANYIO_BY_MODULE = ANYIO.replace("fixture", "fixture(scope='module')")
MODES = {  # anyio is nearly always installed, too: httpx and starlette bring it
    "strict": (STRICT, ["-p", "asyncio", "-p", "anyio", "--asyncio-mode=strict"]),
    "auto": (AUTO, ["-p", "asyncio", "-p", "anyio", "--asyncio-mode=auto"]),
    "anyio": (ANYIO, ["-p", "anyio"]),
    "anyio beside strict": (ANYIO, ["-p", "asyncio", "-p", "anyio", "--asyncio-mode=strict"]),
}
OTHERS = """
import aiohttp
import asyncio
import base64

@pytest.mark.integration_sandbox(companies=1, invoices=3)
@pytest.mark.integration_faults("status", 503, times=1)
@pytest.mark.integration_faults("status", 409, times=1)
async def test_markers_configure_the_sandbox(integration_sandbox):
    assert len(integration_sandbox.companies) == 1
    credential = base64.b64encode(integration_sandbox.api_key.encode()).decode()
    async with aiohttp.ClientSession(headers={"Authorization": f"Basic {credential}"}) as session:
        statuses = []
        for _ in range(3):
            async with session.get(integration_sandbox.base_url + "/companies") as answer:
                statuses.append(answer.status)
    assert statuses == [503, 409, 200]

async def test_each_test_has_its_own(integration_sandbox):
    assert len(integration_sandbox.companies) == 3
    assert not list(integration_sandbox.faults)

@pytest.mark.virtual_time
async def test_fixtures_share_the_virtual_loop(integration_sandbox):
    before = integration_sandbox.clock.now()
    await asyncio.sleep(86_400)
    assert integration_sandbox.clock.now() == before + 86_400

async def test_other_tests_keep_their_loop():
    assert type(asyncio.get_running_loop()).__name__ != "VirtualTimeLoop"

async def test_aioresponses_works(integration_aioresponses):
    integration_aioresponses.get("https://x.example/", body=b"x" * 200_000)
    async with aiohttp.ClientSession() as session, session.get("https://x.example/") as answer:
        assert len(await answer.read()) == 200_000
"""
ASYNC_IN_DISGUISE = """
from hypothesis import HealthCheck, given, settings, strategies

thrice = settings(
    suppress_health_check=[HealthCheck.function_scoped_fixture], max_examples=3, deadline=None
)

@pytest.mark.parametrize("turn", [1, 2])
@thrice
@given(size=strategies.integers(1, 3))
async def test_a_property(integration_client, turn, size):
    await integration_client.companies.list(page_size=size)

@pytest.mark.virtual_time
@thrice
@given(size=strategies.integers(1, 3))
async def test_a_property_in_virtual_time(integration_client, size):
    await integration_client.companies.list(page_size=size)

class TestInAClass:
    async def test_a_method(self, integration_client):
        await integration_client.companies.list()

    @staticmethod
    async def test_a_static_method(integration_client):
        await integration_client.companies.list()
"""


def documented_example() -> str:
    """Return the code that the package's docstring tells people to copy."""
    documentation = testing.__doc__ or ""
    code = documentation.split("::\n\n", 1)[1].split("\n\nThe plugin is")[0]
    return textwrap.dedent(code)


def run_pytest(project: Path, *options: str) -> str:
    """Run pytest in *project*, warnings being errors, and return what it printed."""
    plugins = ["-p", "integration_sdk.testing", "-p", "no:cacheprovider"]
    command = [sys.executable, "-m", "pytest", *options, *plugins]
    flags = ["-Werror", "--strict-markers", "-o", "asyncio_default_fixture_loop_scope=function"]
    environment = os.environ | {"PYTHONPATH": str(ROOT), "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1"}
    environment.pop("PYTEST_ADDOPTS", None)
    if "asyncio" not in options:
        del flags[2:]
    done = subprocess.run(
        [*command, *flags],
        cwd=project,
        env=environment,
        capture_output=True,
        text=True,
        timeout=100,
        check=False,
    )
    return done.stdout + done.stderr


@pytest.mark.parametrize("mode", MODES)
def test_the_documented_example_works(tmp_path: Path, mode: str) -> None:
    """Copied from the docstring, the example passes in every mode, as do the other features.

    Properties, parameters, methods: whatever awaits gets a sandbox that answers.
    """
    prelude, options = MODES[mode]
    example = documented_example().replace("import pytest\n", f"import pytest\n{prelude}\n", 1)
    (tmp_path / "test_example.py").write_text(example)
    for name, tests in (("others", OTHERS), ("disguise", ASYNC_IN_DISGUISE)):
        (tmp_path / f"test_{name}.py").write_text(f"import pytest\n{prelude}\n{tests}")

    assert "= 12 passed in" in (output := run_pytest(tmp_path, *options)), output


def test_the_readme_s_example_works(tmp_path: Path) -> None:
    """Copied from the guide into a project of its own, the test passes as it stands."""
    guide = (Path(__file__).parents[2] / "integration_sdk/docs/guides/testing.md").read_text()
    blocks = re.findall(r"^```python\n(.*?)^```", guide, re.DOTALL | re.MULTILINE)
    (example,) = (block for block in blocks if "integration_sandbox" in block)
    (tmp_path / "test_example.py").write_text(example)

    output = run_pytest(tmp_path, *MODES["strict"][1])
    assert "= 1 passed in" in output, output


@pytest.mark.virtual_time
@pytest.mark.integration_sandbox(companies=2, invoices=1)
@pytest.mark.integration_faults("latency", 30)
async def test_client_and_sandbox_share_the_clock_of_the_test(
    integration_sandbox: Sandbox, integration_client: Client
) -> None:
    """On the virtual loop a slow service costs its delay, exactly."""
    companies = await integration_client.companies.list().collect()

    assert len(companies) == 2
    assert asyncio.get_running_loop().time() == 30
    assert integration_sandbox.served == 1


@pytest.mark.integration_sandbox(1, dialect="published")
async def test_client_and_sandbox_speak_one_dialect(
    integration_sandbox: Sandbox, integration_client: Client
) -> None:
    """The marker's options all reach the sandbox, and the client speaks as the sandbox does."""
    (company,) = integration_sandbox.companies
    books = integration_client.company(company.id).connection(company.connections[0].id)

    options = await books.options("invoices")

    assert integration_client.dialect.name == integration_sandbox.dialect == "published"
    assert options.properties


def test_fixtures_follow_the_loop_of_the_test(tmp_path: Path) -> None:
    """A test on its module's or session's loop gets a sandbox that is served by that loop."""
    (tmp_path / "test_scopes.py").write_text(
        textwrap.dedent("""
            import asyncio
            import aiohttp
            import pytest

            @pytest.mark.parametrize("turn", [1, 2])
            @pytest.mark.asyncio(loop_scope="module")
            async def test_on_the_modules_loop(turn, integration_sandbox):
                async with aiohttp.ClientSession() as session:
                    async with session.get(integration_sandbox.base_url + "/companies") as answer:
                        assert answer.status == 401

            @pytest.mark.virtual_time
            @pytest.mark.asyncio(loop_scope="session")
            async def test_on_a_virtual_session_loop(integration_sandbox):
                await asyncio.sleep(10_000)

            @pytest.mark.asyncio(loop_scope="session")
            async def test_on_the_sessions_loop(integration_sandbox):
                assert type(asyncio.get_running_loop()).__name__ != "VirtualTimeLoop"
        """)
    )

    output = run_pytest(tmp_path, "-p", "asyncio", "--asyncio-mode=strict")

    assert "= 4 passed in" in output, output


MISTAKES: list[tuple[str, list[str], str]] = [
    (
        "async def test_it(integration_sandbox): ...",
        [],
        "install pytest-asyncio 0.24 or newer, or mark the test with pytest.mark.anyio",
    ),
    (
        "@pytest.mark.anyio\n"
        "@pytest.mark.parametrize('anyio_backend', ['trio'])\n"
        "async def test_it(anyio_backend, integration_sandbox): ...",
        ["-p", "anyio"],
        'a fixture anyio_backend that returns "asyncio", not "trio"',
    ),
    (
        "@pytest.mark.asyncio\n@pytest.mark.integration_faults('rate_limits')\n"
        "async def test_it(integration_sandbox): ...",
        ["-p", "asyncio"],
        "integration_faults: there is no fault 'rate_limits': give one of add, ",
    ),
    (
        "@pytest.mark.asyncio\n@pytest.mark.integration_faults()\n"
        "async def test_it(integration_sandbox): ...",
        ["-p", "asyncio"],
        "integration_faults: there is no fault None: give one of add, ",
    ),
    (
        "@pytest.mark.asyncio\n@pytest.mark.integration_faults('status', route='GET')\n"
        "async def test_it(integration_sandbox): ...",
        ["-p", "asyncio"],
        "UsageError: integration_faults: Faults.status() missing 1 required positional",
    ),
    (
        "@pytest.mark.asyncio\n@pytest.mark.integration_sandbox(companys=1)\n"
        "async def test_it(integration_client): ...",
        ["-p", "asyncio"],
        "UsageError: integration_sandbox: Sandbox.__init__() got an unexpected keyword",
    ),
    (
        "@pytest.mark.asyncio\n@pytest.mark.integration_sandbox(companies=-1)\n"
        "async def test_it(integration_client): ...",
        ["-p", "asyncio"],
        "UsageError: integration_sandbox: companies cannot be -1: Expected `int` >= 0",
    ),
    (
        "@pytest.mark.integration_faults('status', 503)\ndef test_it(): ...",
        [],
        "integration_faults has no effect without the fixture integration_sandbox, "
        "integration_client or integration_crashes: make it an argument of test_it",
    ),
    (
        "@pytest.mark.asyncio\n@pytest.mark.integration_sandbox(companies=1)\n"
        "async def test_it(): ...",
        ["-p", "asyncio"],
        "integration_sandbox has no effect without the fixture",
    ),
    (
        "@pytest.mark.asyncio\n@pytest.mark.integration_faults('status', 503, rout='GET')\n"
        "async def test_it(integration_sandbox): ...",
        ["-p", "asyncio"],
        "UsageError: integration_faults: rout is no argument of status: it takes code, body, ",
    ),
    (
        "def test_it(integration_sandbox): ...",
        ["-p", "asyncio"],
        "integration_sandbox answers only while the test awaits: make test_it an async",
    ),
    (
        "import unittest\nclass Test(unittest.IsolatedAsyncioTestCase):\n"
        "    @pytest.fixture(autouse=True)\n"
        "    def given(self, integration_client): self.client = integration_client\n"
        "    async def test_it(self): await self.client.companies.list()",
        ["-p", "asyncio"],
        "Test is a unittest.TestCase, which has no loop or one of its own: write `async with "
        "Sandbox() as sandbox` in tests of an IsolatedAsyncioTestCase",
    ),
    (
        f"{ANYIO}\nasync def test_it(integration_sandbox): ...",
        ["-p", "asyncio", "-p", "anyio", "--asyncio-mode=auto"],
        "both run this test: set asyncio_mode = strict, or remove its mark anyio",
    ),
    (
        f"{ANYIO}\n@pytest.mark.virtual_time\nasync def test_it(): ...",
        ["-p", "asyncio", "-p", "anyio", "--asyncio-mode=auto"],
        "both run this test: set asyncio_mode = strict, or remove its mark anyio",
    ),
    (
        f"{ANYIO_BY_MODULE}\n"
        "@pytest.fixture(scope='module')\nasync def shared(): ...\n"
        "@pytest.mark.virtual_time\nasync def test_it(shared): ...",
        ["-p", "anyio"],
        "the virtual loop ends with its test, so the fixture shared, which runs on it, "
        "must have the scope function, not module",
    ),
    (
        "@pytest.mark.crashes(kills=1)\ndef test_it(): ...",
        [],
        "crashes has no effect without the fixture integration_crashes: make it an argument",
    ),
    (
        "async def test_it(integration_crashes): ...",
        ["-p", "asyncio", "--asyncio-mode=auto"],
        "integration_crashes runs loops of its own: make test_it a plain function",
    ),
    (
        "@pytest.mark.crashes(20)\ndef test_it(integration_crashes): ...",
        [],
        "crashes: name the arguments of a crash test, such as kills=20",
    ),
    (
        "@pytest.mark.crashes(kils=20)\ndef test_it(integration_crashes): ...",
        [],
        "UsageError: crashes: CrashPlan.__init__() got an unexpected keyword argument 'kils'",
    ),
    (
        "@pytest.mark.crashes(kills=0, freezes=0)\ndef test_it(integration_crashes): ...",
        [],
        "UsageError: crashes: kills and freezes are counts, and one is above 0",
    ),
    (
        "@pytest.mark.integration_sandbox(companies=-1)\ndef test_it(integration_crashes): ...",
        [],
        "UsageError: integration_sandbox: companies cannot be -1: Expected `int` >= 0",
    ),
    (
        "@pytest.mark.integration_faults('rate_limits')\ndef test_it(integration_crashes): ...",
        [],
        "UsageError: integration_faults: there is no fault 'rate_limits'",
    ),
    (
        "@pytest.mark.virtual_time\ndef test_it(): ...",
        ["-p", "asyncio"],
        "virtual_time has no effect here: make test_it an async function",
    ),
    (
        "@pytest.mark.virtual_time(60)\nasync def test_it(): ...",
        ["-p", "asyncio", "--asyncio-mode=auto"],
        "UsageError: virtual_time takes no arguments, not (60)",
    ),
    (
        "@pytest.mark.virtual_time\nasync def test_it(): ...",
        ["-p", "asyncio"],
        "virtual_time works where pytest-asyncio 1.4 or newer, or anyio, runs the test",
    ),
]


@pytest.fixture(scope="module")
def mistakes(tmp_path_factory: pytest.TempPathFactory) -> list[str]:
    """What pytest says of each of `MISTAKES`: those with the same options are made in one run."""
    said = [""] * len(MISTAKES)
    for options in {tuple(options) for _, options, _ in MISTAKES}:
        project = tmp_path_factory.mktemp("mistakes")
        for number, (test, its_options, _) in enumerate(MISTAKES):
            if its_options == list(options):
                (project / f"test_{number}.py").write_text(f"import pytest\n{test}\n")
        output = run_pytest(project, *options, "--junitxml=results.xml")
        assert " passed" not in output, output
        for case in ET.parse(project / "results.xml").iter("testcase"):  # noqa: S314 - our own
            number = int(case.attrib["classname"].split(".")[0].removeprefix("test_"))
            said[number] += " ".join("".join(case.itertext()).split())
    return said


@pytest.mark.parametrize("number", range(len(MISTAKES)))
def test_a_mistake_is_explained(mistakes: list[str], number: int) -> None:
    """Wherever no loop, the wrong one or two would run the test, the error says what to do."""
    assert MISTAKES[number][2] in mistakes[number]


def test_a_conftest_may_name_the_plugin_that_is_loaded_already() -> None:
    """pytest takes it for the same one only if it is registered by the name of its module."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]

    assert project["entry-points"]["pytest11"] == {testing.__name__: testing.__name__}


def test_a_mark_of_many_tests_may_be_idle_in_some(tmp_path: Path) -> None:
    """A marked class or module may hold tests without it, and fixtures may ask for it later."""
    (tmp_path / "test_it.py").write_text(
        textwrap.dedent("""
            import pytest

            pytestmark = pytest.mark.integration_sandbox(companies=1)

            @pytest.fixture
            def mine(request):
                return request.getfixturevalue("integration_sandbox")

            @pytest.mark.integration_faults("status", 503)
            class TestIt:
                def test_alone(self): ...
                async def test_client(self, integration_client): ...

            @pytest.mark.integration_faults("latency", 0)
            async def test_mine(mine):
                assert len(mine.companies) == 1 == len(list(mine.faults))

            @pytest.mark.integration_faults("status", 503)
            def test_skipped():
                pytest.skip("for once")
        """)
    )

    output = run_pytest(tmp_path, "-p", "asyncio", "--asyncio-mode=auto")

    assert "= 3 passed, 1 skipped" in output, output


def test_a_test_without_its_virtual_loop_fails_alone(tmp_path: Path) -> None:
    """Where nothing can run it on a virtual loop, the others in its file still run."""
    (tmp_path / "test_it.py").write_text(
        "import pytest\n"
        "@pytest.mark.virtual_time\nasync def test_it(): ...\n"
        "@pytest.mark.skip\n@pytest.mark.virtual_time\nasync def test_skipped(): ...\n"
        "@pytest.mark.asyncio\nasync def test_other(): ...\n"
    )

    output = run_pytest(tmp_path, "-p", "asyncio")

    assert "= 1 passed, 1 skipped, 1 error in" in output, output


def test_a_pytest_asyncio_that_is_too_old_harms_no_other_test(tmp_path: Path) -> None:
    """Before 0.24 its fixtures had no loop scope: only a test that needs ours is told so."""
    older = tmp_path / "pytest_asyncio"
    older.mkdir()
    (older / "__init__.py").write_text("def fixture(fixture_function=None, **options): ...")
    (older / "plugin.py").touch()
    (tmp_path / "test_it.py").write_text(
        "def test_other(): ...\nasync def test_it(integration_sandbox): ...\n"
    )

    output = run_pytest(tmp_path, "-p", "pytest_asyncio.plugin")

    assert "install pytest-asyncio 0.24 or newer" in output
    assert "= 1 passed, 1 error in" in output, output


def test_a_pytest_asyncio_without_a_default_scope_runs_each_test_on_its_own() -> None:
    """Before 0.26 it had no default to set; its tests ran on a loop of their own."""
    older: Any = Mock(spec=pytest.Config)
    older.getini.side_effect = ValueError("unknown configuration value")

    assert default_loop_scope(older) == "function"


def test_the_plugin_is_free_until_it_is_used(tmp_path: Path) -> None:
    """Loading it imports no event loop, no HTTP and no other plugin beyond the SDK's own."""
    code = (
        "import sys, pytest, integration_sdk; before = set(sys.modules);"
        "import integration_sdk.testing._plugin;"
        "print(*(set(sys.modules) - before))"
    )
    done = subprocess.run(
        [sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, check=True
    )

    assert set(done.stdout.split()) == {
        "integration_sdk.testing",
        "integration_sdk.testing._plugin",
    }


def test_virtual_time_needs_no_pytest() -> None:
    """`run_virtual` is for scripts, too: importing it works where pytest is not installed."""
    code = (
        "import sys; sys.modules['pytest'] = None;"
        "import asyncio; from integration_sdk.testing import run_virtual;"
        "run_virtual(asyncio.sleep(3600)); print('an hour later')"
    )
    done = subprocess.run(
        [sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, check=True
    )

    assert done.stdout == "an hour later\n"


LEAKS = """
import asyncio
import socket

import pytest

kept = []

async def test_that_leaves_a_task():
    kept.append(asyncio.create_task(asyncio.sleep(60)))

def test_that_leaves_a_socket():
    kept.append(socket.socket())

async def test_that_cleans_up():
    task = asyncio.create_task(asyncio.sleep(60))
    task.cancel()
    with socket.socket():
        await asyncio.sleep(0)
"""


def test_this_suite_notices_leaks(tmp_path: Path) -> None:
    """Under our own conftest a test that leaves a task or a socket behind is reported."""
    conftest = Path(__file__).parents[1] / "conftest.py"
    (tmp_path / "conftest.py").write_text(conftest.read_text())
    (tmp_path / "test_leaks.py").write_text(LEAKS)

    output = run_pytest(tmp_path, "-p", "asyncio", "--asyncio-mode=auto")

    assert "= 3 passed, 2 errors in" in output, output
    assert "tasks left running: {<Task pending" in output
    assert "sockets left open: ['socket:[" in output
