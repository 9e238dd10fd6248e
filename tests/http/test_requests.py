"""Calls become requests, and no argument can lead one astray."""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import Any
from urllib.parse import unquote

import pytest
from attrs import evolve
from yarl import URL

from integration_sdk import Priority, models
from integration_sdk._http import requests
from integration_sdk._http.requests import Request, Safety, custom, segment
from integration_sdk._list.links import Cursor, Links
from integration_sdk._list.page import RawPage
from integration_sdk.dialect import Dialect
from integration_sdk.errors import ConfigurationError, PaginationError
from tests.support.session_support import read

DOCUMENT = Dialect.document()
PUBLISHED = Dialect.published()
NAMES = {
    "attachmentId": "f",
    "companyId": "c",
    "connectionId": "k",
    "dataType": "invoices",
    "accountId": "a",
    "recordId": "r",
    "pushOperationKey": "p",
}
SHOWN_IN_THE_DOCUMENT = {
    "companies.list": "GET /companies",
    "companies.create": "POST /companies",
    "data.list": "GET /companies/c/data/invoices",
    "options.create": "GET /companies/c/connections/k/dataTypes/invoices/options/POST",
    "push.create": "POST /companies/c/connections/k/push/invoices",
    "sync_settings.set": "POST /profile/syncSettings",
    "bank_accounts.list": "GET /companies/c/connections/k/data/bankAccounts",
    "bank_accounts.get": "GET /companies/c/connections/k/data/bankAccounts/a",
    "bank_accounts.transactions": (
        "GET /companies/c/connections/k/data/bankAccounts/a/bankTransactions"
    ),
    "legacy_bank_accounts.list": "GET /companies/c/data/bankAccounts",
    "legacy_bank_accounts.get": "GET /companies/c/data/bankAccounts/a",
    "legacy_bank_accounts.transactions": "GET /companies/c/data/bankAccounts/a/transactions",
}


@pytest.mark.parametrize("dialect", [DOCUMENT, PUBLISHED])
def test_routes_are_as_the_document_writes_them(dialect: Dialect) -> None:
    """ "Endpoints": methods and paths, to the letter; others say that they are assumed."""
    for operation, route in dialect.routes.items():
        names = {name: value for name, value in NAMES.items() if f"{{{name}}}" in route.path}
        request = requests.to_route(dialect, operation, **names)
        assert route.source.startswith("Endpoints") or "Assumed" in route.source
        if dialect is DOCUMENT and operation in SHOWN_IN_THE_DOCUMENT:
            assert f"{request.method} {request.path}" == SHOWN_IN_THE_DOCUMENT[operation]
            assert route.source.startswith("Endpoints")

    assert dialect.routes.keys() >= SHOWN_IN_THE_DOCUMENT.keys()


def test_create_and_update_are_different_requests() -> None:
    """A create is a POST, an update a PUT of the record; both go at push priority, once. The
    published service takes an idempotency key on a POST, the document's none.
    """
    more: Any = {"timeout_minutes": 60, "idempotency_key": "x"}
    create = requests.push(DOCUMENT, "c", "k", "chartOfAccounts", {"a": 1}, **more)
    update = requests.push(PUBLISHED, "c", "k", "invoices", {"a": 1}, record_id="r", **more)
    published = requests.push(PUBLISHED, "c", "k", "invoices", {}, **more)

    assert create.target == "/companies/c/connections/k/push/accounts?timeoutInMinutes=60"
    assert (update.method, update.path) == ("PUT", "/companies/c/connections/k/push/invoices/r")
    assert create.body == b'{"a":1}'
    assert {create.safety, update.safety} == {Safety.WRITE}
    assert create.priority is Priority.PUSH
    assert published.headers == {"Idempotency-Key": "x"}
    assert update.headers == create.headers == {}


def test_file_is_one_multipart_field() -> None:
    """Bills have a path of their own; the file goes in the field ``file``."""
    bare = requests.attach(DOCUMENT, "c", "k", "bills", "r")
    request = requests.with_file(bare, b"%PDF", filename="a.pdf", content_type="application/pdf")

    assert request.path.endswith("/push/bills/r/attachments")
    assert request.body is not None
    assert b'name="file"; filename="a.pdf"\r\nContent-Type: application/pdf\r\n\r\n%PDF\r\n--' in (
        request.body
    )
    assert request.content_type.startswith("multipart/form-data; boundary=")
    with pytest.raises(ConfigurationError):
        requests.with_file(bare, b"", filename='a"\r\nX: y', content_type="text/plain")


@pytest.mark.parametrize(
    ("method", "path", "params", "complaint"),
    [
        *[("GET", path, None, "path") for path in ("", "companies", "//evil.example/x", "/a?b=1")],
        *[("GET", path, None, "path") for path in ("/a#b", "/a/../b", "/a/%2e%2E/b", "/a\nb")],
        ("GET /a", "/a", None, "method must be a word"),
        ("connect", "/a", None, "method must be a word"),
        (None, "/a", None, "method and path must be str"),
        ("GET", "/a", "page=1", "params must be a mapping"),
        ("GET", "/a", {1: "a"}, "the name of a parameter must be a str"),
        ("GET", "/a", {"a": ["b", "\ud800"]}, "parameter a .* cannot be sent"),
    ],
)
def test_a_custom_call_that_cannot_be_sent_says_why(
    method: Any, path: str, params: Any, complaint: str
) -> None:
    """``client.request`` takes a plain path below the base URL, and no other."""
    with pytest.raises(ConfigurationError, match=f"^{complaint}"):
        requests.custom(method, path, params=params)


# The key goes to one origin, whatever ids and links come along


BASE = "https://api.example.com/prefix"
PIECES = [
    *["..", ".", "/", "//", "\\", "?", "#", "@", ":", ";", "&", "=", "%", "%2e", "%2f", "%5c"],
    *["%00", "%0d%0a", "\r\n", "\t", " ", "\0", "\u2028", "\u202e", "é", "\u2044", "\uff0f"],
    *["evil.example", "//evil.example", "https://evil.example/", "@evil.example", "[::1]"],
    *["companies", "8a210b68-6988-11ed-a1eb-0242ac120002", "page=2", "javascript:", "x" * 99],
]


def is_safe(request: Request, segments: int) -> bool:
    url = URL(BASE + request.target, encoded=True)  # as `Transport` makes it
    parts = url.raw_path.split("/")
    return (
        (url.scheme, url.host, url.port, url.user) == ("https", "api.example.com", 443, None)
        and parts[1] == "prefix"
        and len(parts) == 2 + segments
        and not {".", ".."} & set(parts)
        and not url.raw_fragment
        and request.target.isascii()
        and request.target.isprintable()
    )


def followed(link: str) -> Request:
    """Return the request that a ``next`` link of a list leads to."""
    first = read("/companies")
    walk = Links(first, BASE, Cursor("", "page=1"))
    page = RawPage(number=1, links=models.Links(next=link))
    opened = walk.opened(walk.first(), page)
    if opened.problem is not None:
        raise opened.problem
    return evolve(first, raw_query=opened.following)


AWAY = [
    *("https://elsewhere.test/prefix/companies?page=2", "/profile?page=2", "//elsewhere.test?a=b"),
    *("ftp://api.example.com/prefix/companies?page=2", "https://api.example.com:81/companies"),
    "https://[",
]


@pytest.mark.parametrize("link", AWAY)
def test_a_link_that_leads_away_is_not_followed(link: str) -> None:
    """To another host, port or path; the items of its page come, as the law of lists says."""
    with pytest.raises(PaginationError, match="it was not followed"):
        followed(link)


def in_a_path(text: str) -> Request:
    """Return a request with *text* as one segment, which comes back as the same text."""
    request = read(f"/companies/{segment('company_id', text)}/data")
    assert unquote(request.path) == f"/companies/{text}/data"
    return request


WAYS: dict[str, tuple[Callable[[str], Request], int]] = {
    "an id": (in_a_path, 3),
    "a link": (followed, 1),
    "a link's query": (lambda text: followed(f"?{text}"), 1),
    "a path of the caller's": (lambda text: custom("GET", f"/{text}"), 0),
}


@pytest.mark.parametrize("way", WAYS)
def test_nothing_leads_elsewhere(way: str) -> None:
    """Whatever is given is refused, or stays below the path and the host that are ours."""
    make, segments = WAYS[way]
    taken, chance = 0, random.Random(1)
    for _ in range(3000):
        text = "".join(chance.choices(PIECES, k=chance.randint(1, 5)))
        try:
            request = make(text)
        except (ConfigurationError, PaginationError):
            continue
        taken += 1
        assert is_safe(request, segments or request.path.count("/")), text
    assert taken > 200
