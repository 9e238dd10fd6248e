"""The package shows its public names, and costs nothing until they are used."""

from __future__ import annotations

import subprocess
import sys

import pytest

import integration_sdk
from integration_sdk import _public


@pytest.mark.parametrize("name", _public.__all__)
def test_public_name_is_there(name: str) -> None:
    """Every public name can be imported from the top, and ``dir`` shows it."""
    assert getattr(integration_sdk, name).__doc__
    assert name in dir(integration_sdk)


def test_unknown_name_is_an_attribute_error() -> None:
    """A typing mistake is told as Python tells it."""
    with pytest.raises(AttributeError, match="'integration_sdk' has no attribute 'Clint'"):
        _ = integration_sdk.Clint  # type: ignore[attr-defined]  # that is the point


def test_import_alone_loads_no_client() -> None:
    """A pytest run that merely has the SDK installed imports neither aiohttp nor cattrs."""
    loaded = subprocess.run(
        [sys.executable, "-c", "import integration_sdk, sys; print(*sys.modules)"],
        check=True,
        capture_output=True,
        text=True,
    ).stdout.split()

    assert not {"aiohttp", "cattrs", "msgspec", "integration_sdk._client"} & set(loaded)
