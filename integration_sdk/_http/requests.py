"""Builds the `Request` for each operation.

Every value in a path is checked and quoted, so that no company id can lead a request, and the
API key in it, somewhere else.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from datetime import date
from decimal import Decimal
from enum import Enum, IntEnum
from functools import lru_cache
from hashlib import sha256
from typing import Any, Final
from urllib.parse import quote

from attrs import evolve, field, frozen

from integration_sdk._checks import is_number, sendable, true_or_false, whole_number
from integration_sdk._options_given import MIB
from integration_sdk._records.codec import encode_record, encode_value
from integration_sdk.dialect import Dialect, Route
from integration_sdk.errors import ConfigurationError

DEFAULT_PAGE_SIZE: Final = 100
LONGEST_SEGMENT: Final = 256
Params = tuple[tuple[str, str], ...]


class Priority(IntEnum):
    """Which calls go first when some have to wait; lower goes first."""

    INTERACTIVE = 0
    PUSH = 1
    POLL = 2
    PREFETCH = 3


class Safety(Enum):
    """Whether a request can be repeated: at any time, or only if it certainly had no effect."""

    READ = "read"
    WRITE = "write"


class Phase(Enum):
    """How far an attempt got."""

    NEVER_LEFT = "never left"  # no byte of the request left this process
    MAY_HAVE_LEFT = "may have left"  # the request may have arrived, but there is no complete answer
    ANSWERED = "answered"


@frozen(kw_only=True)
class Request:
    """A request, independent of the HTTP library.

    Attributes:
        operation: Name in `Dialect.routes`; "request" for `Client.request`.
        path: Below the base URL: quoted, begins with a slash, has no query.
        params: Query parameters, unquoted, in order.
        raw_query: The query as it is sent, instead of `params`.
        key_header: The one of *headers* with an idempotency key, if there is one.
        company_id: The company whose limits it counts against; None for none.
        body_limit: Maximum size of the answer in bytes, decompressed.
        replacement: Path that replaces this one when it is removed.
    """

    operation: str
    method: str
    path: str
    params: Params = ()
    raw_query: str | None = None
    body: bytes | None = field(default=None, repr=False)
    content_type: str = "application/json"
    headers: Mapping[str, str] = field(factory=dict)
    key_header: str | None = None
    safety: Safety = Safety.READ
    company_id: str | None = None
    priority: Priority = Priority.INTERACTIVE
    body_limit: int = 64 * MIB
    replacement: str | None = None

    def __str__(self) -> str:
        return f"{self.method} {self.path}"

    @property
    def facts(self) -> dict[str, Any]:
        return {"method": self.method, "path": self.path}

    @property
    def target(self) -> str:
        if self.raw_query is not None:
            return f"{self.path}?{self.raw_query}"
        pairs = [f"{_in_query(name)}={_in_query(value)}" for name, value in self.params]
        return f"{self.path}?{'&'.join(pairs)}" if pairs else self.path

    def with_idempotency_key(self, key: str | None) -> Request:
        """Return the request with another idempotency key, if it has one."""
        header = self.key_header
        if key is None or header is None or self.headers.get(header) == key:
            return self
        return evolve(self, headers={**self.headers, header: key})

    def with_params(self, **changes: str | None) -> Request:
        """Return the request with these parameters set, or removed if None."""
        kept = tuple((name, value) for name, value in self.params if name not in changes)
        return evolve(self, params=kept + _present(changes))


def _in_query(text: str) -> str:
    # Parameters of long links never come again: 4,096 of them would be kept for ever.
    return _quoted(text) if len(text) <= LONGEST_SEGMENT else quote(text, safe="")


@lru_cache(4096)
def _quoted(text: str) -> str:
    return quote(text, safe="")


# Routes


def segment(name: str, value: object) -> str:
    """Return *value* quoted for use as one path segment.

    Raises:
        ConfigurationError: It is empty, not a string, or could lead elsewhere.
    """
    if isinstance(value, str):
        return _segment(name, value)
    spelt = _argument(name)
    raise ConfigurationError(f"{spelt} must be a non-empty string, not {type(value).__name__}")


def _argument(name: str) -> str:
    """Return a route's name as callers spell it: ``companyId`` becomes ``company_id``."""
    return re.sub("([A-Z])", r"_\1", name).lower()


@lru_cache(4096)
def _segment(name: str, value: str) -> str:
    name = _argument(name)
    if not value.strip():
        raise ConfigurationError(f"{name} must be a non-empty string, not {value!r}")
    is_odd = any(char in "/\\?#%;" or not char.isprintable() for char in value)
    if is_odd or value in {".", ".."} or len(value) > LONGEST_SEGMENT:
        raise ConfigurationError(
            f"{name} {value!r} cannot be part of a path: pass the bare id, without slashes, "
            "dots, '?', '#', ';' or percent-encoding"
        )
    return quote(value, safe="")


def to_route(dialect: Dialect, operation: str, **names: object) -> Request:
    """Return a request for *operation* without body, with *names* filled into its path.

    Raises:
        ConfigurationError: A value cannot be part of a path, or the dialect has no such route.
    """
    return _on_route(dialect, operation, names)


def _on_route(
    dialect: Dialect, operation: str, names: Mapping[str, object], **fields: Any
) -> Request:
    route = dialect.routes.get(operation)
    if route is None:
        raise ConfigurationError(
            f"the dialect {dialect.name!r} has no route for {operation!r}; "
            "add it with dialect.with_routes({...})"
        )
    quoted = {name: segment(name, value) for name, value in names.items()}
    company_id = names.get("companyId")
    return Request(
        operation=operation,
        method=route.method,
        path=route.path.format_map(quoted),
        company_id=str(company_id) if company_id is not None else None,
        safety=Safety.READ if route.method == "GET" else Safety.WRITE,
        replacement=_replacement(route, quoted),
        **fields,
    )


def _replacement(route: Route, quoted: Mapping[str, str]) -> str | None:
    if route.replacement is None:
        return None
    return route.replacement.format_map({"connectionId": "{connectionId}", **quoted})


def list_page(
    dialect: Dialect,
    operation: str,
    *,
    page: int = 1,
    page_size: int = DEFAULT_PAGE_SIZE,
    query: str | None = None,
    order_by: str | None = None,
    **names: Any,
) -> Request:
    """Return the request for one page of a list.

    ``page`` is always sent: older servers required it. Source: "Pagination".
    """
    params = {
        "page": str(page),
        "pageSize": str(page_size),
        dialect.query_parameter: query or None,
        dialect.order_by_parameter: order_by or None,
    }
    return _on_route(dialect, operation, names, params=_present(params))


def _present(params: Mapping[str, str | None]) -> Params:
    return tuple([(name, value) for name, value in params.items() if value is not None])


# Pushes


def push(
    dialect: Dialect,
    company_id: str,
    connection_id: str,
    data_type: str,
    record: Any,
    *,
    record_id: str | None = None,
    timeout_minutes: int | None = None,
    force_update: bool = False,
    idempotency_key: str | None = None,
) -> Request:
    """Return the request that creates *record*, or updates *record_id* with it.

    Raises:
        ConfigurationError: An id or the deadline is invalid.
        InvalidRecord: The record is not a JSON object, or holds NaN or an infinity.

    Source: "Push a record (create)". Assumed: the update path and the names of the parameters,
    which the document does not show; that the published API honours a key on creates only.
    """
    true_or_false("force", force_update)
    if timeout_minutes is not None:
        whole_number("timeout_minutes", timeout_minutes, 1, 2**31 - 1)
    params = {
        dialect.timeout_parameter: None if timeout_minutes is None else str(timeout_minutes),
        dialect.force_update_parameter: "true" if force_update else None,
    }
    creates = record_id is None
    return _on_route(
        dialect,
        "push.create" if creates else "push.update",
        _push_names(dialect, company_id, connection_id, data_type, record_id),
        params=_present(params),
        body=encode_record(record),
        **_idempotency(dialect, idempotency_key if creates else None),
        priority=Priority.PUSH,
    )


def _push_names(
    dialect: Dialect, company_id: str, connection_id: str, data_type: str, record_id: str | None
) -> dict[str, str]:
    segment("dataType", data_type)  # checked first: the lookup below needs something hashable
    path_name = dialect.path_name(data_type)
    names = {"companyId": company_id, "connectionId": connection_id, "dataType": path_name}
    return names if record_id is None else {**names, "recordId": record_id}


def _idempotency(dialect: Dialect, key: str | None) -> dict[str, Any]:
    header = dialect.idempotency_header
    return {} if header is None or key is None else {"headers": {header: key}, "key_header": header}


def delete(
    dialect: Dialect, company_id: str, connection_id: str, data_type: str, record_id: str
) -> Request:
    """Return the request that deletes a record. Assumed: published, not in the document."""
    return _on_record(dialect, "push.delete", company_id, connection_id, data_type, record_id)


def attach(
    dialect: Dialect, company_id: str, connection_id: str, data_type: str, record_id: str
) -> Request:
    """Return a request, without body, to attach a file. Assumed: published, not in the document."""
    special = f"push.attach.{data_type}"
    operation = special if special in dialect.routes else "push.attach"
    return _on_record(dialect, operation, company_id, connection_id, data_type, record_id)


def _on_record(dialect: Dialect, operation: str, *ids: str) -> Request:
    segment("recordId", ids[-1])
    return _on_route(dialect, operation, _push_names(dialect, *ids), priority=Priority.PUSH)


def with_file(request: Request, content: bytes, *, filename: str, content_type: str) -> Request:
    """Return *request* with one file as its multipart body, in the field ``file``."""
    if not isinstance(content, bytes):
        raise ConfigurationError(f"content must be bytes, not {type(content).__name__}")
    for name, text in (("filename", filename), ("content_type", content_type)):
        if not sendable(name, text) or set(text) & set('"\r\n'):
            raise ConfigurationError(f"{name} must have no quotes or line breaks, not be {text!r}")
    boundary = sha256(content).hexdigest()
    head = (
        f'--{boundary}\r\nContent-Disposition: form-data; name="file"; filename="{filename}"\r\n'
        f"Content-Type: {content_type}\r\n\r\n"
    )
    body = head.encode() + content + f"\r\n--{boundary}--\r\n".encode()
    kind = f"multipart/form-data; boundary={boundary}"
    return evolve(request, body=body, content_type=kind)


def with_body(request: Request, value: Any) -> Request:
    return evolve(request, body=encode_value(value))


# What has no method


def custom(
    method: str,
    path: str,
    *,
    params: Mapping[str, object] | None = None,
    json: Any = None,
    raw: bool = False,
) -> Request:
    """Return a request for a path that the SDK has no method for; *raw* for any type of answer.

    Raises:
        ConfigurationError: The method is not a word, the path is not a plain path below the
            base URL, or a parameter has a type that cannot be sent.
    """
    if not all(isinstance(text, str) for text in (method, path)):
        raise ConfigurationError(f"method and path must be str, not {method!r} and {path!r}")
    if not (method.isascii() and method.isalpha()) or method.upper() == "CONNECT":
        raise ConfigurationError(f"method must be a word such as GET, not {method!r}")
    if not isinstance(params, Mapping | None):
        raise ConfigurationError(f"params must be a mapping, or None, not {params!r}")
    climbs = {".", ".."} & {part.lower().replace("%2e", ".") for part in path.split("/")}
    if climbs or not re.fullmatch(r"/(?!/)[^?#\\]*", path) or not path.isprintable():
        raise ConfigurationError(
            f"path {path!r} must begin with one slash, and have no '..' and no query (see params=)"
        )
    method, path = method.upper(), quote(path, safe="/%:@!$&'()*+,;=~-._")
    return Request(
        operation="request",
        method=method,
        path=path,
        params=tuple(_spelt_params(params or {})),
        body=None if json is None else encode_value(json),
        headers={"Accept": "*/*"} if raw else {},
        safety=Safety.READ if method in {"GET", "HEAD", "OPTIONS"} else Safety.WRITE,
    )


def _spelt_params(params: Mapping[str, object]) -> Iterator[tuple[str, str]]:
    """Yield parameters as text, spelled as in JSON; skip None, repeat the name for a list."""
    for name, given in params.items():
        sendable("the name of a parameter", name)
        for member in given if isinstance(given, list | tuple) else (given,):
            value = member.value if isinstance(member, Enum) else member
            if isinstance(value, bool):
                yield name, str(value).lower()
            elif isinstance(value, int) and not is_number(value):
                raise ConfigurationError(f"parameter {name} cannot be an int that no float holds")
            elif isinstance(value, str | int | float | Decimal):
                yield name, sendable(f"parameter {name}", str(value))
            elif isinstance(value, date):
                yield name, value.isoformat()
            elif value is not None:
                raise ConfigurationError(f"parameter {name} cannot be {value!r}")
