"""Options are declared once: a value that exists can work, and a wrong one is refused in words."""

from __future__ import annotations

import inspect
import math
from typing import Any

import attrs
import pytest

from integration_sdk import Client, Listing
from integration_sdk._http import CallOptions
from integration_sdk._options_given import (
    ConnectionOptions,
    CoordinatorOptions,
    ListOptions,
    PullOptions,
)
from integration_sdk.errors import ConfigurationError


async def awaited(_: object) -> None:
    """A coroutine function, where a plain one is wanted."""


class NoRate:
    """Has no ``acquire``."""


PULL = {"data_types": ["invoices"], "to": "out"}
REFUSED: list[tuple[type, dict[str, Any], str]] = [
    (ListOptions, {"page_size": 5001}, "page_size must be a whole number from 1 to 5000"),
    (ListOptions, {"page_size": True}, "page_size must be a whole number"),
    (ListOptions, {"page": 0}, "page must be a whole number from 1"),
    (ListOptions, {"prefetch": -1}, "prefetch must be a whole number from 0 to 256"),
    (ListOptions, {"prefetch": None}, "prefetch must be a whole number"),
    (ListOptions, {"max_bytes": 0}, "max_bytes must be a whole number from 1"),
    (ListOptions, {"limit": -1}, "limit must be a whole number from 0"),
    (ListOptions, {"query": 7}, "query must be a str"),
    (ListOptions, {"query": "\ud83d"}, "cannot be sent"),
    (ListOptions, {"query": "a" * 2048}, "query must be shorter than 2048 characters"),
    (ListOptions, {"order_by": 7}, "order_by must be a str"),
    (ListOptions, {"cursor": 7}, "cursor must be a str"),
    (ListOptions, {"numbers": "exact"}, "numbers must be 'float' or 'decimal'"),
    (ListOptions, {"on_invalid": 7}, "on_invalid must be a plain function"),
    (ListOptions, {"on_invalid": awaited}, "on_invalid must be a plain function"),
    (ListOptions, {"changed_by": "modifiedDate"}, "changed_by= needs changed_since="),
    (ListOptions, {"page": 2, "cursor": "x"}, "page= does not go with cursor="),
    (
        ListOptions,
        {"changed_since": "beginning", "page": 2},
        "changed_since= does not go with page=",
    ),
    (
        ListOptions,
        {"changed_since": "beginning", "order_by": "id"},
        "changed_since= does not go with order_by=",
    ),
    (CoordinatorOptions, {"check": "yes"}, "check must be 'options' or None"),
    (CoordinatorOptions, {"max_open": 0}, "max_open must be a whole number from 1"),
    (CoordinatorOptions, {"leave": "stop"}, "leave must be 'drain' or 'detach'"),
    (CoordinatorOptions, {"on_event": awaited}, "on_event must be a plain function"),
    (CoordinatorOptions, {"fetch_data": "no"}, "fetch_data must be True or False"),
    (CoordinatorOptions, {"exclusive": 1}, "exclusive must be True or False"),
    (CoordinatorOptions, {"patience": math.inf}, "patience must be 0 seconds or more"),
    (CoordinatorOptions, {"patience": None}, "patience must be 0 seconds or more, not None"),
    (CoordinatorOptions, {"in_doubt": "guess"}, "in_doubt must be 'ask' or 'resend'"),
    (CoordinatorOptions, {"max_pause": -1}, "max_pause must be 0 seconds or more"),
    (PullOptions, {"data_types": [], "to": "out"}, "name a data type"),
    (PullOptions, {"data_types": [""], "to": "out"}, "a name in data_types is empty"),
    (PullOptions, {"data_types": [7], "to": "out"}, "a name in data_types is empty or not a str"),
    (PullOptions, {"data_types": ["invoices"], "to": None}, "to must be a path or a URL"),
    (PullOptions, {**PULL, "companies": [""]}, "a name in companies is empty"),
    (PullOptions, {**PULL, "format": "csv"}, "format must be 'ndjson', "),
    (PullOptions, {**PULL, "compression": "zst"}, "compression must be 'gz' or None"),
    (PullOptions, {**PULL, "full": "yes"}, "full must be True or False"),
    (PullOptions, {**PULL, "at_once": 0}, "at_once must be a whole number from 1"),
    (PullOptions, {**PULL, "max_bytes": 1}, "max_bytes must be a whole number from"),
    (ConnectionOptions, {"dialect": "published"}, "dialect must be a Dialect, such as Dialect."),
    (ConnectionOptions, {"numbers": ["float"]}, "numbers must be 'float' or 'decimal'"),
    (ConnectionOptions, {"notified": "false"}, "notified must be True or False"),
    (CallOptions, {"timeout": 0}, "timeout must be more than 0 seconds"),
    (CallOptions, {"timeout": "5"}, "timeout must be more than 0 seconds"),
    (CallOptions, {"retry": 0}, "retry must be a RetryPolicy"),
    (ConnectionOptions, {"rate": 0}, "rate must be more than 0 calls per second"),
    (ConnectionOptions, {"rate": NoRate()}, "or a SharedRate"),
    (ConnectionOptions, {"per_company": 0}, "per_company must be a whole number from 1"),
    (ConnectionOptions, {"connections": 0}, "connections must be a whole number from 1"),
    (ConnectionOptions, {"ssl": None}, "ssl must be an ssl.SSLContext, True or False"),
    (ConnectionOptions, {"connector": 7}, "connector must be an aiohttp connector"),
    (ConnectionOptions, {"on_call": 7}, "on_call must be a plain function"),
    (ConnectionOptions, {"on_call": awaited}, "on_call must be a plain function"),
]


@pytest.mark.parametrize(("options", "given", "words"), REFUSED)
def test_wrong_option_is_refused(options: type, given: dict[str, Any], words: str) -> None:
    """The message names the option and says what would be right."""
    with pytest.raises(ConfigurationError) as refused:
        options(**given)

    assert words in str(refused.value)


def test_names_come_once_and_in_order() -> None:
    """A single name is one name, not its letters; a name that comes twice is read once."""
    one = PullOptions(data_types="invoices", to="out")
    many = PullOptions(data_types=["bills", "invoices", "bills"], to="out", companies=("c", "c"))

    assert one.data_types == ("invoices",)
    assert many.data_types == ("bills", "invoices")
    assert many.companies == ("c",)


def test_no_secret_in_a_repr() -> None:
    """URLs with passwords stay out of logs."""
    url = "postgresql://me:secret@db"

    for options in (
        CoordinatorOptions(journal=url),
        PullOptions(data_types="invoices", to=url),
        ConnectionOptions(proxy="http://me:secret@proxy"),
    ):
        assert "secret" not in repr(options)


@pytest.mark.parametrize(
    ("method", "options"),
    [
        (Client.__init__, ConnectionOptions),
        (Client.coordinator, CoordinatorOptions),
        (Client.pull, PullOptions),
        (Listing.list, ListOptions),
    ],
)
def test_a_public_method_has_each_option_with_its_default(method: Any, options: Any) -> None:
    """It hands its arguments on by name, so none may be missing or begin differently."""
    parameters = inspect.signature(method).parameters
    required: Any = {"data_types": ["invoices"], "to": "out"} if options is PullOptions else {}
    given = {
        name: parameter.default
        for name, parameter in parameters.items()
        if name in attrs.fields_dict(options) and parameter.default is not parameter.empty
    }

    assert set(attrs.fields_dict(options)) - {"numbers"} <= set(parameters)
    if options is ListOptions:
        given["numbers"] = "float"  # the client's default
    elif options is ConnectionOptions:
        assert given.pop("dialect") is None  # for the one of the document
    assert options(**required, **given) == options(**required)
