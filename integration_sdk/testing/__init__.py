"""Test kit: a pytest plugin, virtual time, crash tests and a patched aioresponses.

The guide "Test your code with pytest" shows a test. pytest-asyncio (1.4 or newer) has to be
installed; in its strict mode, mark the tests with ``@pytest.mark.asyncio``.

The plugin is installed with the SDK, so pytest always loads it, but it does nothing, and imports
nothing, until you use one of these:

* ``integration_sandbox``: a running `integration_sdk.sandbox.Sandbox`, a new one for each test.
  The marker ``integration_sandbox(...)`` sets its options. The marker
  ``integration_faults(name, ...)`` calls that method of ``sandbox.faults`` before the test, and
  can be repeated.
* ``integration_client``: an `integration_sdk.Client` connected to that sandbox.
* ``integration_aioresponses``: an ``aioresponses`` mock, patched for aiohttp 3.14. Lists are
  requested with ``?page=1&pageSize=100``.
* ``@pytest.mark.virtual_time``: the test and its fixtures run on a `VirtualTimeLoop`.

They run on the loop of the test function. `run_virtual` and `patched_aioresponses` do the same
without pytest; `CrashTest` kills a program again and again, and finds what it has doubled or lost.
For a client that sends nothing, use ``unittest.mock.create_autospec(Client, instance=True)``.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from integration_sdk.testing._aioresponses import patched_aioresponses as patched_aioresponses
    from integration_sdk.testing._crash import CrashTest as CrashTest
    from integration_sdk.testing._crash_report import CrashReport as CrashReport
    from integration_sdk.testing._crash_report import Finding as Finding
    from integration_sdk.testing._crash_report import Round as Round
    from integration_sdk.testing._virtual_time import VirtualTimeLoop as VirtualTimeLoop
    from integration_sdk.testing._virtual_time import VirtualTimeStalled as VirtualTimeStalled
    from integration_sdk.testing._virtual_time import run_virtual as run_virtual

_HOMES: Final = {
    "_aioresponses": ("patched_aioresponses",),
    "_crash": ("CrashTest",),
    "_crash_report": ("CrashReport", "Finding", "Round"),
    "_virtual_time": ("VirtualTimeLoop", "VirtualTimeStalled", "run_virtual"),
}
# pytest loads what a plugin names here. It is not imported, since the names above need no pytest.
pytest_plugins = ["integration_sdk.testing._plugin"]


def __getattr__(name: str) -> Any:
    """Import on first use, because every pytest run loads this package."""
    for home, names in _HOMES.items():
        if name in names:
            return getattr(import_module(f"{__name__}.{home}"), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
