"""The package shows its public names, costs little until they are used, leaves its host alone."""

from __future__ import annotations

import asyncio
import inspect
import json
import os
import subprocess
import sys
from collections.abc import Iterator
from importlib import import_module
from pathlib import Path
from typing import get_type_hints
from zipfile import PyZipFile, ZipFile

import attrs
import pytest
from hatchling.builders.wheel import WheelBuilder

import integration_sdk
from integration_sdk.sandbox import Sandbox
from tests.support.sandbox_support import DELIVERY


def test_star_and_dir_show_what_type_checkers_see() -> None:
    """``import *`` gives what ``dir`` lists: all that can be an annotation, with a docstring."""
    names: dict[str, object] = {}
    exec("from integration_sdk import *", names)  # noqa: S102  # that is the point

    assert set(names) - {"__builtins__"} == set(dir(integration_sdk))
    assert {"Client", "Listing", "Store", "errors", "__version__"} <= set(names)
    assert all(getattr(integration_sdk, name).__doc__ for name in dir(integration_sdk))
    with pytest.raises(AttributeError, match="'integration_sdk' has no attribute 'Clint'"):
        _ = integration_sdk.Clint  # type: ignore[attr-defined]  # that is the point


def test_the_wheel_holds_the_package_its_documentation_and_nothing_else(tmp_path: Path) -> None:
    """What a user installs: each file of the package, the mark of its types, and no tests."""
    package = Path(integration_sdk.__file__).parent
    here = [path for path in package.rglob("*") if path.is_file() and path.suffix != ".pyc"]
    wheel = next(WheelBuilder(str(package.parent)).build(directory=str(tmp_path)))

    held = {name for name in ZipFile(wheel).namelist() if ".dist-info/" not in name}

    assert held == {str(path.relative_to(package.parent)) for path in here}
    assert {"integration_sdk/py.typed", "integration_sdk/docs/index.md"} <= held


def test_compiled_modules_are_enough(tmp_path: Path) -> None:
    """Programs that are frozen or zipped have no sources, and no other files, beside the code."""
    with PyZipFile(str(tmp_path / "frozen.zip"), "w") as archive:
        archive.writepy(str(Path(integration_sdk.__file__).parent))
    program = "from integration_sdk import Client, _client; print(_client.__file__)"

    path = {"PYTHONPATH": str(tmp_path / "frozen.zip")}
    frozen = [sys.executable, "-P", "-c", program]
    done = subprocess.run(frozen, env=path, cwd=tmp_path, check=True, capture_output=True)

    assert b"frozen.zip" in done.stdout


ROOMS = ("", ".dialect", ".errors", ".models", ".sandbox", ".testing", ".webhooks")


def functions(public: object, name: str) -> Iterator[tuple[str, object]]:
    """Yield the public function, or the class and its public methods; not those attrs writes."""
    yield name, public
    for home in public.__mro__ if inspect.isclass(public) else ():
        for key, member in vars(home).items() if home.__module__.startswith("integration") else ():
            method = member.fget if isinstance(member, property) else inspect.unwrap(member)
            method = getattr(method, "__func__", method)
            written = inspect.isfunction(method) and method.__module__ == home.__module__
            is_public = not key.startswith("_") or (key.startswith("__") and not attrs.has(home))
            if written and is_public:
                yield f"{name}.{key}", method


@pytest.mark.parametrize("room", ROOMS)
def test_the_types_of_all_that_is_public_are_known_at_run_time(room: str) -> None:
    """FastAPI, Sphinx and containers ask functions for their types, cattrs asks classes."""
    module = import_module(f"integration_sdk{room}")
    named = {name: getattr(module, name) for name in getattr(module, "__all__", dir(module))}
    kinds = [one for one in named.items() if inspect.isclass(one[1]) or inspect.isfunction(one[1])]
    asked = dict(each for name, public in kinds for each in functions(public, name))

    unknown = set()
    for name, each in asked.items():
        try:
            get_type_hints(each)
        except (NameError, AttributeError):
            unknown.add(name)

    for _, kind in kinds:
        if attrs.has(kind):
            attrs.resolve_types(kind)
    assert len(asked) > 1
    assert unknown <= {"Client.pull"}  # what it returns is imported late


HELP = "from integration_sdk.cli import run; import asyncio; asyncio.run(run(['--help']))"
ROOM_BY_ROOM = (
    "from integration_sdk import *; import integration_sdk._push.coordinator;"
    "from integration_sdk._records.classes import ItemReader; ItemReader.of()"
)


@pytest.mark.parametrize(
    ("program", "unwanted"),
    [
        (HELP, ("aiohttp", "integration_sdk._client", "integration_sdk._push", "rich.progress")),
        (ROOM_BY_ROOM, ("pydantic",)),
        ("import integration_sdk.testing._plugin", ("asyncio", "aiohttp", "attr", "msgspec")),
    ],
)
def test_what_is_not_needed_is_not_imported(program: str, unwanted: tuple[str, ...]) -> None:
    """A --help has to be there at once; who has pydantic pays for it when they import it. pytest
    loads the plugin in every project that has the SDK: no loop, no HTTP, none of the SDK's values.
    """
    unmeasured = {key: value for key, value in os.environ.items() if "COVERAGE" not in key}
    command = [sys.executable, "-W", "error", "-c", f"{program}\nimport sys; print(*sys.modules)"]
    loaded = subprocess.check_output(command, env=unmeasured, text=True).splitlines()[-1].split()

    assert "integration_sdk" in loaded
    assert not [name for name in loaded if name.startswith(unwanted)]


async def test_the_process_is_as_it_was(tmp_path: Path) -> None:
    """Whoever lists and pushes finds its collector, allocator, signals, warnings, logging,
    environment and event loops as before; the collector stays on while items are made.
    """
    async with Sandbox(companies=1, invoices=1000) as sandbox:
        books = sandbox.companies[0].connections[0]
        job = {"company": books.company_id, "connection": books.id, "record": DELIVERY}
        job |= {"base_url": sandbox.base_url, "api_key": sandbox.api_key}
        job |= {"journal": str(tmp_path / "pushes.db")}
        process = await asyncio.create_subprocess_exec(
            sys.executable,
            *("-m", "tests.support.host_child", json.dumps(job)),
            cwd=Path(__file__).parents[2],
            stdout=subprocess.PIPE,
        )
        stdout, _ = await process.communicate()

    assert process.returncode == 0
    assert json.loads(stdout) == {"items made": 2000}
