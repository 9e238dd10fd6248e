"""The pytest plugin in other people's projects, run as they would run it."""

from __future__ import annotations

import asyncio
import os
import subprocess
import sys
from pathlib import Path

import aiohttp
import pytest
from aioresponses import aioresponses

from integration_sdk import Client, testing
from integration_sdk.sandbox import Sandbox
from integration_sdk.testing import patched_aioresponses

ROOT = Path(testing.__file__).parents[2]
OTHERS = """
import asyncio
from hypothesis import HealthCheck, given, settings, strategies
from integration_sdk import errors

@pytest.mark.integration_sandbox(companies=1, invoices=3)
@pytest.mark.integration_faults("status", 503, times=1)
@pytest.mark.integration_faults("status", 409, times=1)
async def test_markers_configure_the_sandbox(integration_sandbox, integration_client):
    assert len(integration_sandbox.companies) == 1
    with pytest.raises(errors.Conflict):
        await integration_client.request("GET", "/companies")
    await integration_client.request("GET", "/companies")
    assert [one.status for one in integration_sandbox.requests] == [503, 409, 200]

async def test_other_tests_keep_their_loop():
    assert type(asyncio.get_running_loop()).__name__ != "VirtualTimeLoop"

@pytest.mark.virtual_time
@pytest.mark.parametrize("turn", [1, 2])
@settings(
    suppress_health_check=[HealthCheck.function_scoped_fixture], max_examples=3, deadline=None
)
@given(size=strategies.integers(1, 3))
async def test_a_property(integration_client, turn, size):
    await integration_client.companies.list(page_size=size)

class TestInAClass:
    async def test_a_method(self, integration_client):
        await integration_client.companies.list()
"""


def run_pytest(project: Path, *options: str) -> str:
    """Run pytest in *project*, warnings being errors, and return what it printed."""
    plugins = ["-p", "asyncio", "-p", "integration_sdk.testing", "-p", "no:cacheprovider"]
    flags = ["-Werror", "--strict-markers", "-o", "asyncio_default_fixture_loop_scope=function"]
    environment = os.environ | {"PYTHONPATH": str(ROOT), "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1"}
    environment.pop("PYTEST_ADDOPTS", None)
    done = subprocess.run(
        [sys.executable, "-m", "pytest", *options, *plugins, *flags],
        cwd=project,
        env=environment,
        capture_output=True,
        text=True,
        timeout=100,
        check=False,
    )
    return done.stdout + done.stderr


def test_features_in_a_project_of_strict_mode(tmp_path: Path) -> None:
    """As in this suite, whose mode is auto, and in the example of the guide, which runs there."""
    code = f"import pytest\npytestmark = pytest.mark.asyncio\n{OTHERS}"
    (tmp_path / "test_others.py").write_text(code)

    output = run_pytest(tmp_path, "--asyncio-mode=strict")

    assert "= 5 passed" in output, output


@pytest.mark.virtual_time
@pytest.mark.integration_sandbox(1, invoices=1, dialect="published")
@pytest.mark.integration_faults("latency", 30)
async def test_client_and_sandbox_share_clock_and_dialect(
    integration_sandbox: Sandbox, integration_client: Client
) -> None:
    """On the virtual loop a slow service costs its delay, exactly; each speaks as the other."""
    (company,) = await integration_client.companies.list().collect()
    books = integration_client.company(company["id"])
    options = await books.connection(company["dataConnections"][0]["id"]).options("invoices")

    assert asyncio.get_running_loop().time() == 60
    assert integration_sandbox.served == 2
    assert integration_sandbox.dialect == "published"
    assert repr(integration_client).endswith(", published>")
    assert options.properties


MISTAKES = """
async def | integration_faults("rate_limits") | integration_sandbox | no fault 'rate_limits'
async def | integration_faults("status")      | integration_sandbox | integration_faults: Missing
async def | integration_sandbox(companys=1)   | integration_client  | unexpected keyword argument
async def | integration_sandbox(companies=-1) | integration_client  | companies cannot be -1
def       |                                   | integration_sandbox | make test_it an async function
def       | virtual_time                      |                     | make test_it an async function
"""


def test_a_mistake_says_what_to_do(tmp_path: Path) -> None:
    """And harms no other test of its project, marked or not."""
    rows = [[part.strip() for part in row.split("|")] for row in MISTAKES.strip().splitlines()]
    for number, (kind, mark, argument, _) in enumerate(rows):
        marked = f"import pytest\n@pytest.mark.{mark}\n" if mark else ""
        code = f"{marked}{kind} test_it({argument}): ...\n"
        (tmp_path / f"test_{number}.py").write_text(code)
    (tmp_path / "test_well.py").write_text(
        "import pytest\n@pytest.mark.skip\n@pytest.mark.virtual_time\nasync def test_skipped(): ..."
        "\ndef test_other(): ...\n"
    )

    output = run_pytest(tmp_path, "--asyncio-mode=auto")

    told = " ".join(output.split())
    assert "1 passed, 1 skipped" in output, output
    for *_, says in rows:
        assert says in told, output


def test_virtual_time_needs_no_pytest() -> None:
    """`run_virtual` is for scripts, too; what else is not installed is said where it is used."""
    code = (
        "import sys; sys.modules |= {'pytest': None, 'aioresponses': None}\n"
        "import asyncio; from integration_sdk.testing import run_virtual\n"
        "run_virtual(asyncio.sleep(3600)); print('an hour later')\n"
        "try: from integration_sdk.testing import patched_aioresponses\n"
        "except ImportError as error: print(error)"
    )
    said = subprocess.check_output([sys.executable, "-c", code], cwd=ROOT, text=True)

    assert said.startswith("an hour later\n")
    assert "pip install aioresponses" in said


# aioresponses, on every aiohttp that the SDK supports


URL = "https://api.example.com/companies"


class Loud(aiohttp.ClientResponse):
    """A response class of one's own."""


@pytest.mark.parametrize("size", [0, 131_072, 131_073, 5_000_000])
async def test_a_body_of_any_size_is_read(
    integration_aioresponses: aioresponses, size: int
) -> None:
    """Bodies beyond a stream's high-water mark arrive whole, at once or in pieces.

    A mocked failure is raised, and a response class of one's own is used.
    """
    integration_aioresponses.get(URL, body=b"x" * size, headers={"X-Page": "1"}, repeat=True)
    integration_aioresponses.post(URL, exception=aiohttp.ServerDisconnectedError())
    integration_aioresponses.put(URL, response_class=Loud)

    async with aiohttp.ClientSession() as session:
        async with session.get(URL) as answer:
            assert (answer.status, answer.headers["X-Page"]) == (200, "1")
            assert len(await answer.read()) == size
        async with session.get(URL) as answer:
            assert sum([len(piece) async for piece in answer.content.iter_chunked(4096)]) == size
        with pytest.raises(aiohttp.ServerDisconnectedError):
            await session.post(URL)
        async with session.put(URL) as answer:
            assert type(answer) is Loud


async def test_nothing_is_changed_afterwards() -> None:
    """The repair is gone when the block ends, by an exception too."""
    before = aiohttp.ClientResponse.__init__, aiohttp.ClientSession._request

    with pytest.raises(KeyError), patched_aioresponses():
        raise KeyError

    assert (aiohttp.ClientResponse.__init__, aiohttp.ClientSession._request) == before
