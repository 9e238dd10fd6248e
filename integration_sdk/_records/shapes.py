"""Reads the service's own objects (operations, options, errors) into the classes of ``models``.

cattrs builds them: types are checked strictly, unknown fields are kept in ``extra``. Records are
not read here.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from functools import cache
from typing import TYPE_CHECKING, Any, Final, TypeVar

import attrs

from integration_sdk._records.codec import Json, decode_json, without_halves
from integration_sdk._records.writing import json_names
from integration_sdk.errors import MalformedResponse
from integration_sdk.models import ErrorBody, PushOperation, PushStatus, Validation, ValidationItem

if TYPE_CHECKING:
    from cattrs import Converter

T = TypeVar("T")
_UNFIT: Final = (TypeError, ValueError, KeyError, AttributeError, RecursionError)
"""What cattrs and the hooks below raise if a value does not fit."""
_ASSUMED: Final = frozenset({"statusCode", "errorMessage", "changes"})
"""Fields of an operation that the document does not name; unexpected values are tolerated."""


def structure(value: Json, model: type[T]) -> T:
    """Return *value* as an instance of *model*.

    Raises:
        MalformedResponse: It does not fit; the message says where.
    """
    try:
        return _converter().structure(value, model)
    except _UNFIT as error:
        raise MalformedResponse(
            f"it is not a documented {model.__name__}: {error!r:.200}"
        ) from None


def read_operation(value: Json) -> PushOperation:
    """Return a push operation; the name of its connection may end in ``Id`` or ``Key``.

    Raises:
        MalformedResponse: It is not an object, or has no key, company or status.
    """
    if not isinstance(value, Mapping):
        raise MalformedResponse(f"a push operation must be an object, not {value!r:.80}")
    named = dict(value)
    connection = named.pop("dataConnectionKey", None)
    if named.get("dataConnectionId") is None:
        named["dataConnectionId"] = connection
    named["rawStatus"] = named.get("status")
    return _what_fits(named, PushOperation, _ASSUMED)


def _what_fits(value: Mapping[str, Any], model: type[T], loose: Collection[str]) -> T:
    """Return *value* as *model*; a *loose* member that does not fit is kept in ``extra``."""
    try:
        return structure(value, model)
    except MalformedResponse:
        firm = {name: member for name, member in value.items() if name not in loose}
        odd = {n: value[n] for n in value if n in loose and not _fits({**firm, n: value[n]}, model)}
        read: Any = structure({n: member for n, member in value.items() if n not in odd}, model)
        whole: T = attrs.evolve(read, extra={**read.extra, **odd})
        return whole


def _fits(value: Json, model: Any) -> bool:
    try:
        structure(value, model)
    except MalformedResponse:
        return False
    return True


def read_error_body(body: bytes) -> ErrorBody | None:
    """Return the error body; None if *body* is none.

    One with a code and an error but no correlationId is read too: it says what went wrong. It
    does not prove who wrote it; see `is_services_own`.
    """
    value = _decoded(body)
    if not isinstance(value, Mapping):
        return None
    is_short = value.get("statusCode") is not None and isinstance(value.get("error"), str)
    is_some = is_error_body(value) or (is_short and "correlationId" not in value)
    return _what_fits(value, ErrorBody, value.keys()) if is_some else None


def is_services_own(body: bytes) -> bool:
    """Whether *body* is an error body that the service itself wrote; see `is_error_body`."""
    return is_error_body(_decoded(body))


def _decoded(body: bytes) -> Json:
    try:
        return decode_json(without_halves(body))
    except MalformedResponse:
        return None


def is_error_body(value: object) -> bool:
    """Whether the service itself wrote this error, rather than a proxy in front of it.

    Every error body has a correlationId, and a statusCode or an error. The statusCode is not
    compared with the HTTP status, since samples disagree; the HTTP status counts.

    Source: "Error body"; "Other rules", rule 1.
    """
    if not isinstance(value, Mapping):
        return False
    correlation = value.get("correlationId")
    named = value.get("statusCode") is not None or value.get("error") is not None
    return isinstance(correlation, str) and bool(correlation) and named


# The one cattrs converter


@cache
def _converter() -> Converter:
    """Return the converter, made on first use: a program that only reads lists needs none."""
    # Slow to import:
    from integration_sdk._records.building import build_made, strict_converter  # noqa: PLC0415

    converter = strict_converter()
    read_int: Any = converter.get_structure_hook(int)

    def read_count(value: Any, kind: Any) -> int:
        is_text = isinstance(value, str) and value.strip().lstrip("-").isdecimal()
        return int(value) if is_text else read_int(value, kind)  # some platforms send a text

    converter.register_structure_hook(int, read_count)
    converter.register_structure_hook(PushStatus, _read_status)
    converter.register_structure_hook(Validation, _read_validation)
    converter.register_structure_hook_factory(
        lambda kind: attrs.has(kind) and kind is not Validation,
        lambda kind: _with_extra(build_made(converter, kind), kind),
    )
    return converter


def _with_extra(build: Callable[[Any, Any], Any], model: Any) -> Callable[[Any, Any], Any]:
    """Return what reads *model* as *build* does, with unknown fields in ``extra``."""
    known = {*json_names(model).values()} - {"extra"}

    def structure(value: Any, kind: Any) -> Any:
        if not isinstance(value, Mapping):
            raise TypeError(f"expected an object, got {value!r:.80}")
        present = {name: one for name in known if (one := value.get(name)) is not None}
        built = build(present, kind)
        extra = {name: member for name, member in value.items() if name not in known}
        return attrs.evolve(built, extra=extra) if extra else built

    return structure


def _read_status(value: Any, kind: type[PushStatus]) -> PushStatus:
    """Return the status. Assumed: new statuses may appear; an unknown one is not final."""
    if not isinstance(value, str):
        raise TypeError(f"expected a status, got {value!r:.80}")
    try:
        return kind(value)
    except ValueError:
        return kind.UNKNOWN


def _read_validation(value: Any, _: Any) -> Validation:
    """Return the validation. Any content is accepted, since the document does not define it."""
    if not isinstance(value, Mapping):
        return Validation(extra={"validation": value})
    known = {name: value.get(name) for name in ("errors", "warnings")}
    items = {
        name: tuple(map(_read_item, part)) for name, part in known.items() if isinstance(part, list)
    }
    extra = {name: part for name, part in value.items() if name not in items and part is not None}
    return Validation(**items, extra=extra)


def _read_item(item: Any) -> ValidationItem:
    try:
        return _converter().structure(item, ValidationItem)
    except _UNFIT:
        extra = {"item": item} if not isinstance(item, Mapping) else dict(item)
        return ValidationItem(message=str(extra.get("message", item)), extra=extra)
