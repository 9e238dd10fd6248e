"""What is private stays so: parts of the libraries that we use, and of this package for users."""

from __future__ import annotations

import ast
import inspect
import pydoc
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import integration_sdk
from integration_sdk import (
    Client,
    OutcomeStatus,
    Push,
    PushOperation,
    PushOutcome,
    PushRequest,
    PushStatus,
    Store,
)
from integration_sdk.webhooks import Receiver

HOME = Path(integration_sdk.__file__).parent
LIBRARIES = ("aiohttp", "backoff", "msgspec", "cattrs", "attrs", "yarl", "multidict")
KNOWN = {  # our own
    "_client.py: getattr(_context)",
    "_store/sqlite.py: hasattr(_db)",
}


def is_private(name: str) -> bool:
    return name.startswith("_") and not name.startswith("__")


def private_parts(path: Path) -> Iterator[str]:
    """Yield what *path* uses of the libraries by a private name."""
    tree = ast.parse(path.read_text())
    theirs = set[str]()
    for node in ast.walk(tree):
        if isinstance(node, ast.ImportFrom) and (node.module or "").split(".")[0] in LIBRARIES:
            names = [*(node.module or "").split("."), *(one.name for one in node.names)]
            yield from (f"import {name}" for name in names if is_private(name))
            theirs.update(one.asname or one.name for one in node.names)
        if isinstance(node, ast.Import):
            theirs.update(one.name for one in node.names if one.name in LIBRARIES)
    for node in ast.walk(tree):
        if isinstance(node, ast.Attribute) and is_private(node.attr):
            root: ast.expr = node.value
            while isinstance(root, ast.Attribute):
                root = root.value
            if isinstance(root, ast.Name) and root.id in theirs:
                yield node.attr
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Name):
            strings = [arg.value for arg in node.args if isinstance(arg, ast.Constant)]
            if node.func.id in {"getattr", "setattr", "hasattr"}:
                found = [one for one in strings if isinstance(one, str) and is_private(one)]
                yield from (f"{node.func.id}({one})" for one in found)


def test_no_private_part_of_a_library_is_used() -> None:
    """By import, by attribute or by a name in a string."""
    found = {
        f"{path.relative_to(HOME)}: {what}"
        for path in HOME.rglob("*.py")
        for what in private_parts(path)
    }

    assert found <= KNOWN


PUBLIC = {
    name: member
    for home in (integration_sdk, integration_sdk.errors)
    for name in dir(home)
    if inspect.isclass(member := getattr(home, name)) and "integration_sdk" in member.__module__
} | {"Receiver": Receiver}
INTERNAL = {
    each.name
    for path in HOME.rglob("*.py")
    for each in ast.parse(path.read_text()).body
    if isinstance(each, ast.ClassDef) and each.name not in PUBLIC
}
FOR_OTHER_ROOMS = {"raw_pages"}


@pytest.mark.parametrize("name", PUBLIC)
def test_help_shows_how_to_use_a_class_not_how_it_is_made(name: str) -> None:
    """No signature and no annotation in it names a class that users cannot import."""
    lines = pydoc.plain(pydoc.render_doc(PUBLIC[name])).splitlines()
    calls = re.compile(r" \|  (async )?(\w+)\(")
    shown = [
        line
        for line in lines
        if "__annotations__" in line
        or ((call := calls.match(line)) and call[2] not in FOR_OTHER_ROOMS)
    ]

    assert not set(re.findall(r"\w+", " ".join(shown))) & INTERNAL


def test_a_repr_shows_what_an_object_stands_for(tmp_path: Path) -> None:
    """In a shell or a log it is a few words, not all that it is made of."""
    client = Client("key", "https://api.example.com")
    company, store = client.company("c1"), Store("postgresql://me:pw@db/books")
    handed_out: dict[Any, str] = {
        client: "<Client of https://api.example.com, document>",
        client.companies: "<Companies companies.list>",
        client.profile: "<Profile>",
        company: "<Company c1>",
        company.data("invoices"): "<Records data.list c1 invoices>",
        company.data("invoices").list(): "<Pager of /companies/c1/data/invoices at 0 items>",
        company.pushes: "<Pushes pushes.list c1>",
        company.connection("k1"): "<Connection c1 k1>",
        client.pull(["invoices"], to=tmp_path): f"<Pull of invoices to {tmp_path}>",
        client.coordinator(journal="pushes.db"): "<Coordinator with Store('pushes.db')>",
        store: "Store('postgresql://me:***@db/books')",
        Receiver(print, authorization="secret"): "<Receiver of notifications>",
    }
    push = Push(PushRequest("c1", "k1", "invoices", {"iban": "GB00"}))

    assert [repr(each) for each in handed_out] == list(handed_out.values())
    assert repr(store.rate(per_second=5)).startswith("<StoreRate 'calls' in ")
    asked = "company_id='c1', connection_id='k1', data_type='invoices', record=<1 fields>"
    assert repr(push) == f"Push(request=PushRequest({asked}))"
    push.outcome = PushOutcome(status=OutcomeStatus.SUCCESS, request=push.request)
    assert repr(push) == f"Push(request=PushRequest({asked}), outcome=SUCCESS)"
    operation = PushOperation(push_operation_key="p", company_id="c", status=PushStatus.PENDING)
    assert repr(operation) == (
        "PushOperation(push_operation_key='p', company_id='c', "
        "status=<PushStatus.PENDING: 'Pending'>)"
    )
