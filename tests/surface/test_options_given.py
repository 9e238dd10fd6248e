"""Options are declared once: a value that exists can work, and a wrong one is refused in words."""

from __future__ import annotations

import inspect
import math
from itertools import product
from typing import Any

import attrs
import pytest

from integration_sdk import Client, Listing, RetryPolicy
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
KINDS: list[tuple[str, list[Any], dict[type, str]]] = [
    # What the message asks for, what is refused, and the options of that kind.
    (
        "must be a whole number",
        [-1, True, "5", 2**70],
        {
            ListOptions: "page_size page prefetch max_bytes limit",
            CoordinatorOptions: "max_open",
            PullOptions: "at_once max_bytes part_bytes",
            ConnectionOptions: "per_company connections",
        },
    ),
    (
        "must be True or False",
        [None, 1, "no"],
        {
            CoordinatorOptions: "fetch_data exclusive",
            PullOptions: "full",
            ConnectionOptions: "notified",
        },
    ),
    (
        "must be a plain function",
        [7, awaited],
        {ListOptions: "on_invalid", CoordinatorOptions: "on_event", ConnectionOptions: "on_call"},
    ),
    ("must be a str", [7, b"x"], {ListOptions: "query order_by changed_by cursor"}),
    (
        " or ",
        ["other", 7, ["float"]],
        {
            ListOptions: "numbers",
            CoordinatorOptions: "check leave in_doubt",
            PullOptions: "format compression",
            ConnectionOptions: "numbers",
        },
    ),
    ("must be 0 seconds or more", [-1, math.nan, "5"], {CoordinatorOptions: "patience max_pause"}),
    ("must be more than 0 seconds", [0, "5"], {CallOptions: "timeout read_timeout"}),
    ("is empty or not a str", [[""], [7]], {PullOptions: "data_types companies"}),
]
REFUSED: list[tuple[type, dict[str, Any], str]] = [
    (ListOptions, {"page_size": 5001}, "page_size must be a whole number from 1 to 5000"),
    (ListOptions, {"prefetch": None}, "prefetch must be a whole number"),
    (ListOptions, {"query": "\ud83d"}, "cannot be sent"),
    (ListOptions, {"query": "a" * 2048}, "query must be shorter than 2048 characters"),
    (ListOptions, {"changed_by": "modifiedDate"}, "changed_by= needs changed_since="),
    (ListOptions, {"page": 2, "cursor": "x"}, "page= does not go with cursor="),
    (ListOptions, {"changed_since": "beginning", "page": 2}, "does not go with page="),
    (ListOptions, {"changed_since": "beginning", "order_by": "id"}, "does not go with order_by="),
    (CoordinatorOptions, {"patience": math.inf}, "patience must be 0 seconds or more"),
    (CoordinatorOptions, {"patience": None}, "patience must be 0 seconds or more, not None"),
    (PullOptions, {"data_types": [], "to": "out"}, "name a data type"),
    (PullOptions, {"data_types": ["invoices"], "to": None}, "to must be a path or a URL"),
    (ConnectionOptions, {"dialect": "published"}, "dialect must be a Dialect, such as Dialect."),
    (ConnectionOptions, {"rate": 0}, "rate must be more than 0 calls per second"),
    (ConnectionOptions, {"rate": NoRate()}, "or a SharedRate"),
    (ConnectionOptions, {"ssl": None}, "ssl must be an ssl.SSLContext, True or False"),
    (ConnectionOptions, {"connector": 7}, "connector must be an aiohttp connector"),
    (CallOptions, {"retry": 0}, "retry must be a RetryPolicy"),
    *((RetryPolicy, {"attempts": odd}, "attempts must be") for odd in (0, 2.5, True)),
    (RetryPolicy, {"base": -1}, "base must be"),
    (RetryPolicy, {"throttled_base": -0.1}, "throttled_base must be"),
    (RetryPolicy, {"cap": math.nan}, "cap must be"),
]


@pytest.mark.parametrize(("words", "wrong", "options"), KINDS, ids=[words for words, *_ in KINDS])
def test_an_option_takes_values_of_its_kind(
    words: str, wrong: list[Any], options: dict[type, str]
) -> None:
    """The message names the option and says what would be right."""
    for kind, names in options.items():
        for name, value in product(names.split(), wrong):
            needed = PULL if kind is PullOptions else {}
            with pytest.raises(ConfigurationError, match=words) as refused:
                kind(**{**needed, name: value})
            assert name in str(refused.value)


@pytest.mark.parametrize(("options", "given", "words"), REFUSED)
def test_wrong_option_is_refused(options: type, given: dict[str, Any], words: str) -> None:
    """So are those that do not go together."""
    with pytest.raises(ConfigurationError, match=words):
        options(**given)


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
    required = PULL if options is PullOptions else {}
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
