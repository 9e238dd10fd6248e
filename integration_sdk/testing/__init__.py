"""Test kit: a pytest plugin, virtual time and a patched aioresponses.

Copy this into a test file; there is nothing to import or configure. In pytest-asyncio's strict
mode, mark the tests with ``@pytest.mark.asyncio``. Under anyio, mark them with
``@pytest.mark.anyio`` and add a fixture ``anyio_backend`` that returns ``"asyncio"``.

::

    import pytest

    SUPPLIER = {"supplierName": "Toft Timber", "status": "Active"}

    async def test_a_rejected_push_is_shown(integration_sandbox, integration_client):
        company = integration_sandbox.companies[0]
        books = integration_client.company(company.id).connection(company.connections[0].id)
        integration_sandbox.faults.fail_next_push("the period is closed")

        operation = await integration_client.wait(await books.push("suppliers", SUPPLIER))

        assert operation.status == "Failed"
        assert operation.validation.errors[0].message == "the period is closed"

    @pytest.mark.virtual_time
    @pytest.mark.integration_sandbox(companies=1, push_seconds=(7200, 10_800))
    @pytest.mark.integration_faults("status", 503, route="GET", probability=0.2)
    async def test_a_slow_day_passes_at_once(integration_sandbox, integration_client):
        company = integration_sandbox.companies[0]
        books = integration_client.company(company.id).connection(company.connections[0].id)

        operation = await integration_client.wait(await books.push("suppliers", SUPPLIER))

        assert operation.status == "Success"

The plugin is installed with the SDK, so pytest always loads it, but it does nothing until you
use one of these:

* ``integration_sandbox``: a running `integration_sdk.sandbox.Sandbox`, a new one for each test.
  The marker ``integration_sandbox(...)`` sets its options. The marker
  ``integration_faults(name, ...)`` calls that method of ``sandbox.faults`` before the test, and
  can be repeated. A marked test that does not use the sandbox is an error.
* ``integration_client``: an `integration_sdk.Client` connected to that sandbox.
* ``integration_aioresponses``: an ``aioresponses`` mock, patched for aiohttp 3.14. Lists are
  requested with ``?page=1&pageSize=100``; requests that are not mocked are logged.
* ``integration_crashes``: a function that crash-tests a program in real time, as in
  ``integration_crashes("python", "my_job.py")``, or a coroutine function in virtual time, as in
  ``integration_crashes(main)``. It raises AssertionError if anything is doubled, lost, mislinked,
  missing or stale. The marker ``crashes(kills=20, freezes=4, seed=0, files={"out": "invoices"},
  key="id", changes=0, identity=None, patience=60)`` says what is done, as the options of
  ``integration-sdk crashtest`` do; ``integration_sandbox`` and ``integration_faults`` make its
  sandboxes. A coroutine that is killed is abandoned: nothing is cancelled, no ``finally`` runs, and
  what it has open is closed. That shows what a kill at an ``await`` does. It does not show a kill
  between two of them or in a thread, and globals, subprocesses and listening sockets outlive it;
  a program has no such limits.
* ``@pytest.mark.virtual_time``: the test and its fixtures run on a `VirtualTimeLoop`.

They work with pytest-asyncio (0.24 or newer, 1.4 for virtual time) in strict and auto mode, and
with anyio's plugin; if pytest-asyncio is installed as well, set it to strict mode. They run on
the loop of the test, whatever its scope. The mock needs neither plugin.

`run_virtual` and `patched_aioresponses` do the same without pytest. For a client that sends
nothing, use ``unittest.mock.create_autospec(Client, instance=True)``.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from integration_sdk.testing._aioresponses import patched_aioresponses
    from integration_sdk.testing._virtual_time import (
        VirtualTimeLoop,
        VirtualTimeStalled,
        run_virtual,
    )

__all__ = ["VirtualTimeLoop", "VirtualTimeStalled", "patched_aioresponses", "run_virtual"]

# pytest loads what a plugin names here. It is not imported, since the names above need no pytest.
pytest_plugins = ["integration_sdk.testing._plugin"]


def __getattr__(name: str) -> Any:
    """Import on first use, because every pytest run loads this package."""
    from importlib import import_module  # noqa: PLC0415

    home = "_aioresponses" if name == "patched_aioresponses" else "_virtual_time"
    if name in __all__:
        return getattr(import_module(f"integration_sdk.testing.{home}"), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
