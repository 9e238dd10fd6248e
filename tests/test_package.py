"""The package shows its public names, and costs nothing until they are used."""

from __future__ import annotations

import inspect
import subprocess
import sys

import pytest

import integration_sdk
from integration_sdk import Push, PushRequest, _public


@pytest.mark.parametrize("name", _public.__all__)
def test_public_name_is_there(name: str) -> None:
    """Every public name can be imported from the top, is what type checkers take it for."""
    assert getattr(integration_sdk, name) is getattr(_public, name)
    assert getattr(integration_sdk, name).__doc__


def test_no_public_name_is_hidden_from_type_checkers() -> None:
    """``dir`` and ``import *`` show the same names as the list that type checkers read."""
    names: dict[str, object] = {}
    exec("from integration_sdk import *", names)  # noqa: S102  # that is the point

    assert set(dir(integration_sdk)) - {"__version__"} == set(_public.__all__)
    assert set(names) >= set(_public.__all__)


def test_what_a_push_request_takes_is_typed() -> None:
    """Type checkers and editors know each argument; only the record may be of any type."""
    given = inspect.signature(PushRequest).parameters.values()

    assert [each.name for each in given if "Any" in str(each.annotation)] == ["record"]


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


def test_a_reading_client_loads_nothing_of_pushes() -> None:
    """What a program that streams records does not need, it does not wait for."""
    program = (
        "import sys; from integration_sdk import Client;"
        "invoices = Client('key', 'https://api.example').company('c').data('invoices');"
        "aiter(invoices.list()); print(*sys.modules)"
    )
    loaded = subprocess.run(
        [sys.executable, "-c", program], check=True, capture_output=True, text=True
    ).stdout.split()

    of_pushes = ("models", "_coordinator", "_sansio.options", "_sansio.polling", "_sansio.pushing")
    assert not {"cattrs", "sqlite3", *(f"integration_sdk.{name}" for name in of_pushes)} & {*loaded}


def test_completion_on_a_push_offers_none_of_the_coordinators_verbs() -> None:
    """Whoever holds a push sees what can be read and awaited, and cannot settle it by mistake."""
    shown = {name for name in dir(Push) if not name.startswith("_")}

    assert shown == {
        "events",
        "intent",
        "key",
        "number",
        "operation",
        "outcome",
        "request",
        "twins",
    }
