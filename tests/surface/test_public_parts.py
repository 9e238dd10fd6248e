"""What is private stays so: parts of the libraries that we use, and of this package for users."""

from __future__ import annotations

import ast
import inspect
import pydoc
import re
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
LIBRARIES = "aiohttp|backoff|msgspec|cattrs|attrs|yarl|multidict"
PRIVATE_PART = re.compile(
    rf"^from ({LIBRARIES})\b.*[. ]_[a-z]|\b({LIBRARIES})(\.\w+)*\._[a-z]",
    re.IGNORECASE | re.MULTILINE,
)


def test_no_private_part_of_a_library_is_used() -> None:
    """By import, or by attribute of a module."""
    found = [path for path in HOME.rglob("*.py") if PRIVATE_PART.search(path.read_text())]

    assert found == []


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


@pytest.mark.filterwarnings("ignore:<Pull of invoices")
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
