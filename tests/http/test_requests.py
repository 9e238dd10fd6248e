"""Calls become requests, and no argument can lead one astray."""

from __future__ import annotations

from typing import Any
from urllib.parse import unquote, urlsplit

import pytest
from hypothesis import given
from hypothesis import strategies as st

from integration_sdk import Priority, _checks
from integration_sdk._http import requests
from integration_sdk._http.requests import Safety
from integration_sdk.dialect import Dialect, Route
from integration_sdk.errors import ConfigurationError

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


def names_of(route: Route) -> dict[str, str]:
    return {name: value for name, value in NAMES.items() if "{" + name + "}" in route.path}


@pytest.mark.parametrize(("operation", "call"), SHOWN_IN_THE_DOCUMENT.items())
def test_shown_routes_are_as_the_document_writes_them(operation: str, call: str) -> None:
    """ "Endpoints": methods and paths are the document's, to the letter."""
    request = requests.to_route(DOCUMENT, operation, **names_of(DOCUMENT.routes[operation]))

    assert f"{request.method} {request.path}" == call


def test_a_record_in_the_place_of_its_type_is_named() -> None:
    """Arguments in the wrong order are an error that says which is wrong, and keeps the record."""
    with pytest.raises(
        ConfigurationError, match=r"data_type must be a non-empty string, not dict$"
    ):
        requests.push(DOCUMENT, "c", "k", {"number": 1}, "invoices")  # type: ignore[arg-type]


@pytest.mark.parametrize("dialect", [DOCUMENT, PUBLISHED])
def test_every_route_names_its_source(dialect: Dialect) -> None:
    """A route comes from a section of the document, or says that it is assumed."""
    for operation, route in dialect.routes.items():
        shown = operation in SHOWN_IN_THE_DOCUMENT and dialect is DOCUMENT
        assert route.source.startswith("Endpoints") or "Assumed" in route.source
        assert not shown or route.source.startswith("Endpoints")
        assert requests.to_route(dialect, operation, **names_of(route)).path.startswith("/")


def test_legacy_routes_name_their_replacement() -> None:
    """ "Versioning": clients must move to the connection-scoped endpoints."""
    request = requests.to_route(
        DOCUMENT, "legacy_bank_accounts.transactions", companyId="c", accountId="a"
    )

    assert request.replacement == (
        "/companies/c/connections/{connectionId}/data/bankAccounts/a/bankTransactions"
    )


@pytest.mark.parametrize(
    "value",
    [
        "",
        "  ",
        "..",
        ".",
        "../x",
        "a?b",
        "%2f",
        "a/b",
        "a\\b",
        "a#b",
        "a;b",
        "a\nb",
        "\x00",
        None,
        7,
    ],
)
def test_odd_ids_are_refused(value: Any) -> None:
    """An id that could lead elsewhere gets an error that says what to pass."""
    with pytest.raises(ConfigurationError, match="company_id"):
        requests.segment("company_id", value)


@given(st.text())
def test_segment_stays_one_segment(value: str) -> None:
    """Whatever is let through comes back as one path segment with the same text."""
    try:
        quoted = requests.segment("id", value)
    except ConfigurationError:
        return

    path = urlsplit(f"https://host/a/{quoted}/b").path
    assert path == f"/a/{quoted}/b"
    assert [unquote(part) for part in path.split("/")] == ["", "a", value, "b"]


@pytest.mark.parametrize("size", [0, -1, 5001, True, 10.0, "100", None])
def test_page_size_outside_the_limits_is_refused(size: Any) -> None:
    """ "Limits": 1 to 5000 results a page."""
    with pytest.raises(ConfigurationError, match="page_size must be a whole number from 1 to 5000"):
        requests.list_page(DOCUMENT, "companies.list", page_size=size)


def test_lists_name_their_page() -> None:
    """Older servers required ``page``, so it is always sent; filters are quoted on the wire."""
    request = requests.list_page(
        DOCUMENT,
        "data.list",
        page_size=5000,
        query="status=paid&&customerRef.companyName~A B",
        order_by="-issueDate",
        companyId="c",
        dataType="invoices",
    )

    assert request.target == (
        "/companies/c/data/invoices?page=1&pageSize=5000"
        "&query=status%3Dpaid%26%26customerRef.companyName~A%20B&orderBy=-issueDate"
    )
    assert request.company_id == "c"
    assert request.safety is Safety.READ


def test_overlong_filters_are_refused() -> None:
    """The service takes filters under 2048 characters."""
    with pytest.raises(ConfigurationError, match="2048"):
        requests.list_page(DOCUMENT, "companies.list", query="x" * 2048)


@pytest.mark.parametrize("name", ["query", "order_by"])
def test_text_that_cannot_be_encoded_is_refused(name: str) -> None:
    """It is refused where it is given, and not when a connection is there to send it."""
    text: Any = {name: "name=\ud83d"}

    with pytest.raises(ConfigurationError, match=f"^{name} .* cannot be sent: surrogates"):
        requests.list_page(DOCUMENT, "companies.list", **text)


# Pushes


def test_create_and_update_are_different_requests() -> None:
    """A create is a POST, an update a PUT of the record; both go at push priority, once."""
    create = requests.push(DOCUMENT, "c", "k", "invoices", {"a": 1}, timeout_minutes=60)
    update = requests.push(DOCUMENT, "c", "k", "invoices", {"a": 1}, record_id="r")

    assert create.target == "/companies/c/connections/k/push/invoices?timeoutInMinutes=60"
    assert (update.method, update.path) == ("PUT", "/companies/c/connections/k/push/invoices/r")
    assert create.body == b'{"a":1}'
    assert {create.safety, update.safety} == {Safety.WRITE}
    assert create.priority is Priority.PUSH


def test_push_path_has_its_own_names() -> None:
    """Options and operations say chartOfAccounts, the push path accounts."""
    request = requests.push(DOCUMENT, "c", "k", "chartOfAccounts", {})

    assert request.path.endswith("/push/accounts")


def test_idempotency_keys_go_where_they_are_honoured() -> None:
    """The published service has the header, on POST; the document's has none."""
    published = requests.push(PUBLISHED, "c", "k", "invoices", {}, idempotency_key="x")
    update = requests.push(PUBLISHED, "c", "k", "invoices", {}, record_id="r", idempotency_key="x")
    document = requests.push(DOCUMENT, "c", "k", "invoices", {}, idempotency_key="x")

    assert published.headers == {"Idempotency-Key": "x"}
    assert update.headers == document.headers == {}


def test_a_key_of_the_callers_own_is_never_replaced() -> None:
    """It is what makes the caller's own repetition harmless; a key of ours may change."""
    ours = requests.push(PUBLISHED, "c", "k", "invoices", {}, idempotency_key="x")
    own = requests.with_own_key(PUBLISHED, ours, "order-1")

    assert own.headers == own.with_idempotency_key("y").headers == {"Idempotency-Key": "order-1"}
    assert ours.with_idempotency_key("y").headers == {"Idempotency-Key": "y"}


@pytest.mark.parametrize("key", ["", " ", "a b", "a\n", "ä", 7, b"k"])
def test_a_key_that_no_header_can_hold_is_refused(key: Any) -> None:
    """Before anything is sent."""
    push = requests.push(PUBLISHED, "c", "k", "invoices", {})
    with pytest.raises(ConfigurationError, match="idempotency_key must be printable ASCII"):
        requests.with_own_key(PUBLISHED, push, key)


def test_the_words_that_an_option_takes_are_named() -> None:
    """Whatever else is given, also what no set could hold."""
    _checks.one_of("leave", "drain", ("drain", "detach"))
    odd: object
    for odd in ("Drain", None, [], True):
        with pytest.raises(ConfigurationError, match=r"^leave must be 'drain' or 'detach', not "):
            _checks.one_of("leave", odd, ("drain", "detach"))
    with pytest.raises(ConfigurationError, match="must be 'a', 'b' or 'c', not 4"):
        _checks.one_of("x", 4, ("a", "b", "c"))


@pytest.mark.parametrize("minutes", [0, -1, 1.5, True, "60"])
def test_deadline_that_is_no_number_of_minutes_is_refused(minutes: Any) -> None:
    """timeoutInMinutes is an integer."""
    with pytest.raises(ConfigurationError, match="timeout_minutes"):
        requests.push(DOCUMENT, "c", "k", "invoices", {}, timeout_minutes=minutes)


def test_an_update_is_forced_only_by_true() -> None:
    """The text "false" would count as true and overwrite what somebody else has changed."""
    where: Any = (DOCUMENT, "c", "k", "invoices", {})
    text: Any = "false"

    assert requests.push(*where, record_id="r", force_update=True).params == (
        ("forceUpdate", "true"),
    )
    assert requests.push(*where, record_id="r").params == ()
    with pytest.raises(ConfigurationError, match="force must be True or False"):
        requests.push(*where, record_id="r", force_update=text)


def test_file_is_one_multipart_field() -> None:
    """Bills have a path of their own; the file goes in the field ``file``."""
    number: Any = 5
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
    with pytest.raises(ConfigurationError, match=r"^content_type must"):
        requests.with_file(bare, b"", filename="a", content_type=number)
    with pytest.raises(ConfigurationError, match=r"^filename .* cannot be sent"):
        requests.with_file(bare, b"", filename="\ud83d.pdf", content_type="text/plain")


# The door for everything else


@pytest.mark.parametrize(
    "path",
    ["", "companies", "//evil.example/x", "https://evil.example", "/a?b=1", "/a#b", "/a/../b",
     "/a/%2e%2E/b", "/a\\b", "/a\nb"],
)  # fmt: skip
def test_custom_paths_stay_below_the_base_url(path: str) -> None:
    """``client.request`` takes a plain path and nothing that could leave the origin."""
    with pytest.raises(ConfigurationError):
        requests.custom(DOCUMENT, "GET", path, params=None, json=None)


@pytest.mark.parametrize(
    ("method", "params", "complaint"),
    [
        ("GET /a", None, "method must be a word"),
        ("", None, "method must be a word"),
        ("connect", None, "method must be a word"),
        (None, None, "method and path must be str"),
        ("GET", "page=1", "params must be a mapping"),
        ("GET", [("page", 1)], "params must be a mapping"),
        ("GET", {1: "a"}, "the name of a parameter must be a str"),
        ("GET", {"\ud800": "a"}, "the name of a parameter .* cannot be sent"),
        ("GET", {"a": ["b", "\ud800"]}, "parameter a .* cannot be sent"),
    ],
)
def test_a_custom_call_that_cannot_be_sent_says_why(
    method: Any, params: Any, complaint: str
) -> None:
    """Not an error of aiohttp's, or one about a missing attribute."""
    with pytest.raises(ConfigurationError, match=f"^{complaint}"):
        requests.custom(DOCUMENT, method, "/a", params=params, json=None)


def test_custom_reads_are_reads() -> None:
    """GET may be repeated; anything else only where it had no effect."""
    read = requests.custom(DOCUMENT, "get", "/a b/c", params={"page": 1}, json=None)
    write = requests.custom(DOCUMENT, "PATCH", "/a", params=None, json={"x": 1})

    assert (read.method, read.safety, read.target) == ("GET", Safety.READ, "/a%20b/c?page=1")
    assert (write.safety, write.body) == (Safety.WRITE, b'{"x":1}')


def test_dialects_can_be_corrected() -> None:
    """What the document does not show is data: one route can be replaced, one can be missing."""
    dialect = DOCUMENT.with_routes({"pushes.get": Route("GET", "/v2/push/{pushOperationKey}")})

    assert requests.to_route(dialect, "pushes.get", pushOperationKey="p").path == "/v2/push/p"
    with pytest.raises(ConfigurationError, match="with_routes"):
        requests.to_route(DOCUMENT, "nothing.there")
