"""What callers may choose, declared once: a frozen class for lists, coordinators, pulls, sessions.

Public methods keep explicit signatures, for editors, and build one of these in their first line;
everything below takes the value. A value that exists can work: its validators raise
`ConfigurationError`.
"""

from __future__ import annotations

import math
import os
from collections.abc import Callable, Iterable, Mapping, Sequence
from datetime import datetime
from ssl import SSLContext
from typing import Any, Final, Literal, TypeVar, get_args

import aiohttp
from attrs import Attribute, AttrsInstance, field, fields, frozen
from yarl import URL

from integration_sdk import _checks
from integration_sdk._pacing import SharedRate
from integration_sdk.dialect import Dialect
from integration_sdk.errors import ConfigurationError

Numbers = Literal["float", "decimal"]
"""How fractions are read."""
MIB: Final = 1 << 20
LARGEST_PAGE: Final = 5000
"""Items. Source: "Limits"."""
LONGEST_QUERY: Final = 2048
"""Assumed: the published API refuses a filter of 2048 characters or more."""
_MOST: Final = 2**50


ENVIRONMENT_KEY: Final = "INTEGRATION_SDK_API_KEY"
ENVIRONMENT_URL: Final = "INTEGRATION_SDK_BASE_URL"


def from_environment(argument: str, variable: str) -> str:
    """Return the value of *variable*, for an *argument* that was not given."""
    value = os.environ.get(variable, "")
    if not value:
        raise ConfigurationError(f"pass {argument}= or set the environment variable {variable}")
    return value


T = TypeVar("T", bound=AttrsInstance)


def given(kind: type[T], arguments: Mapping[str, Any]) -> T:
    """Return the options among the *arguments* of a public method, which are its ``locals()``."""
    names = [field.name for field in fields(kind)]
    return kind(**{name: arguments[name] for name in names if name in arguments})


# Validators


def _by(check: Callable[..., object], *limits: object) -> Any:
    """Return a validator that calls one of `_checks`; None is allowed where it is the default."""

    def validate(_: object, attribute: Attribute[Any], value: object) -> None:
        if value is not None or attribute.default is not None:
            check(attribute.name, value, *limits)

    return validate


def _whole(low: int, high: int) -> Any:
    return _by(_checks.whole_number, low, high)


def _one_of(*allowed: str | None) -> Any:
    return _by(_checks.one_of, allowed)


def _a(words: str, *kinds: Any) -> Any:
    def check(name: str, value: object) -> None:
        if not isinstance(value, kinds):
            raise ConfigurationError(f"{name} must be {words}, not {value!r}")

    return _by(check)


def _names(given: Iterable[str] | None) -> tuple[str, ...] | None:
    """Return the names once each, in order; a single str is one name, not its letters."""
    if given is None:
        return None
    return tuple(dict.fromkeys([given] if isinstance(given, str) else given))


def _check_names(what: str, names: tuple[object, ...]) -> None:
    if not all(isinstance(name, str) and name for name in names):
        raise ConfigurationError(f"a name in {what} is empty or not a str: {names!r}")


def _or_document(dialect: Dialect | None) -> Dialect:
    return Dialect.document() if dialect is None else dialect


_flag = _by(_checks.true_or_false)
_text = _by(_checks.sendable)
_function = _by(_checks.plain_function)
_named = _by(_check_names)


# Lists

_NOT_BOTH: Final = (("page", "cursor"), ("changed_since", "order_by"), ("changed_since", "page"))


@frozen(kw_only=True)
class ListOptions:
    """How to read a list; `Listing.list` explains each option."""

    page_size: int | None = field(default=None, validator=_whole(1, LARGEST_PAGE))
    page: int | None = field(default=None, validator=_whole(1, 2**31 - 1))
    query: str | None = field(default=None, validator=_text)
    order_by: str | None = field(default=None, validator=_text)
    changed_since: datetime | str | None = None
    changed_by: str | None = field(default=None, validator=_text)
    prefetch: int = field(default=4, validator=_whole(0, 256))
    max_bytes: int = field(default=32 * MIB, validator=_whole(1, 2**63))
    limit: int | None = field(default=None, validator=_whole(0, 2**63))
    cursor: str | None = field(default=None, validator=_text)
    on_invalid: Callable[[Any], Any] | None = field(default=None, validator=_function)
    numbers: Numbers = field(default="float", validator=_one_of(*get_args(Numbers)))

    def __attrs_post_init__(self) -> None:
        if self.query is not None and len(self.query) >= LONGEST_QUERY:
            raise ConfigurationError(f"query must be shorter than {LONGEST_QUERY} characters")
        if self.changed_by is not None and self.changed_since is None:
            raise ConfigurationError("changed_by= needs changed_since=; order_by= orders a list")
        for one, other in _NOT_BOTH:
            if getattr(self, one) is not None and getattr(self, other) is not None:
                raise ConfigurationError(f"{one}= does not go with {other}=; leave one out")


# Pushes

Leave = Literal["drain", "detach"]
InDoubt = Literal["ask", "resend"]
Check = Literal["options"] | None


@frozen(kw_only=True)
class CoordinatorOptions:
    """How to push many records; `Client.coordinator` explains each option."""

    journal: Any = field(default=None, repr=False)
    check: Check = field(default=None, validator=_one_of("options", None))
    max_open: int = field(default=2000, validator=_whole(1, 10**9))
    leave: Leave = field(default="drain", validator=_one_of(*get_args(Leave)))
    on_event: Callable[[Any], Any] | None = field(default=None, validator=_function)
    fetch_data: bool = field(default=False, validator=_flag)
    exclusive: bool = field(default=False, validator=_flag)
    patience: float = field(default=30.0, validator=_by(_checks.seconds, False))
    in_doubt: InDoubt = field(default="ask", validator=_one_of(*get_args(InDoubt)))
    max_pause: float | None = field(default=600.0, validator=_by(_checks.seconds))

    @property
    def longest_pause(self) -> float:
        """The same as a number."""
        return math.inf if self.max_pause is None else self.max_pause


# Pulls

Format = Literal["ndjson", "parquet", "duckdb", "postgres"]


@frozen(kw_only=True)
class PullOptions:
    """What to pull and how to write it; `Client.pull` explains each option."""

    data_types: tuple[str, ...] = field(converter=_names, validator=_named)
    to: str | os.PathLike[str] = field(repr=False)
    format: Format | None = field(default=None, validator=_one_of(*get_args(Format), None))
    companies: tuple[str, ...] | None = field(default=None, converter=_names, validator=_named)
    full: bool = field(default=False, validator=_flag)
    compression: Literal["gz"] | None = field(default=None, validator=_one_of("gz", None))
    at_once: int = field(default=16, validator=_whole(1, 1_000))
    max_bytes: int = field(default=256 * MIB, validator=_whole(MIB, _MOST))
    part_bytes: int = field(default=32 * MIB, validator=_whole(1, _MOST))
    dask: Any = None

    def __attrs_post_init__(self) -> None:
        if not self.data_types:
            raise ConfigurationError('name a data type, such as "invoices"')
        if not isinstance(self.to, str | os.PathLike):
            raise ConfigurationError(f"to must be a path or a URL, not {self.to!r}")


# Sessions


@frozen(kw_only=True)
class ConnectionOptions:
    """How a client connects, and how fast it may call; `Client` explains each option."""

    rate: float | SharedRate | None = field(default=None)
    dialect: Dialect = field(
        default=None,
        converter=_or_document,
        validator=_a("a Dialect, such as Dialect.published()", Dialect),
    )
    numbers: Numbers = field(default="float", validator=_one_of(*get_args(Numbers)))
    notified: bool = field(default=False, validator=_flag)
    per_company: int = field(default=10, validator=_whole(1, 10**6))
    connections: int = field(default=100, validator=_whole(1, 10**6))
    proxy: str | URL | None = field(default=None, repr=False)  # it may hold a password
    ssl: SSLContext | bool = field(
        default=True, validator=_a("an ssl.SSLContext, True or False", SSLContext, bool)
    )
    connector: aiohttp.BaseConnector | None = field(
        default=None,
        validator=_a("an aiohttp connector, such as TCPConnector()", aiohttp.BaseConnector),
    )
    middlewares: Sequence[aiohttp.ClientMiddlewareType] = ()
    trace_configs: Sequence[aiohttp.TraceConfig] = ()
    on_call: Callable[[Any], Any] | None = field(default=None, validator=_function)

    @rate.validator
    def _is_a_rate(self, _: object, rate: object) -> None:
        if isinstance(rate, SharedRate | None) or (_checks.is_number(rate) and rate > 0):
            return
        raise ConfigurationError(
            f"rate must be more than 0 calls per second, or a SharedRate, not {rate!r}"
        )
