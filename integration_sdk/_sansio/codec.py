"""Bytes to values and back.

Two decoders, because they serve two ends. msgspec reads JSON, and splits a page
into raw items without building them. cattrs shapes the service's own objects
(operations, options, errors): strictly, and keeping what it does not know.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from datetime import UTC, date, datetime, time
from decimal import Decimal
from typing import Any, Final, TypeVar
from uuid import UUID

import attrs
import msgspec
from cattrs import ClassValidationError, Converter
from cattrs.gen import make_dict_structure_fn, override

from integration_sdk.errors import InvalidRecord, MalformedResponse
from integration_sdk.models import (
    ErrorBody,
    OptionEntry,
    OptionRule,
    OptionRules,
    PropertyDescription,
    PushChange,
    PushOperation,
    PushStatus,
    RecordRef,
    Validation,
    ValidationItem,
)

T = TypeVar("T")
Json = Any


# JSON


_decode_any: Final = msgspec.json.Decoder().decode
_decode_exact: Final = msgspec.json.Decoder(float_hook=Decimal).decode
_encode: Final = msgspec.json.Encoder(decimal_format="number").encode


def decode_json(body: bytes, *, exact: bool = False) -> Json:
    """Return the value of a JSON text; *exact* reads fractions as Decimal.

    Raises:
        MalformedResponse: It is no JSON, or nested too deeply.
    """
    try:
        return (_decode_exact if exact else _decode_any)(body)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise MalformedResponse(f"the answer is no JSON that can be read: {error}") from None


def encode_value(value: Any) -> bytes:
    """Return *value* as JSON; Decimals become numbers, dates ISO 8601.

    Raises:
        InvalidRecord: It holds something that JSON cannot say.
    """
    try:
        body = _encode(value)
        if b"null" in body or b"NaN" in body or b"Infinity" in body:
            _refuse_nan(value, "$")
    except (TypeError, ValueError, RecursionError, msgspec.EncodeError) as error:
        raise InvalidRecord(f"cannot be written as JSON: {error}") from None
    return body


def encode_record(record: Any) -> bytes:
    """Return a record as JSON.

    Raises:
        InvalidRecord: It is no object, or holds something that JSON cannot say.
    """
    body = encode_value(record)
    if not body.startswith(b"{"):
        raise InvalidRecord(
            f"a record must be an object (a dict, attrs class, dataclass or Struct), "
            f"not {type(record).__name__}"
        )
    return body


def _refuse_nan(value: Any, path: str) -> None:
    """Msgspec writes NaN as null, which would push a record without its amount."""
    kind = type(value)
    if kind is dict:
        for name, member in value.items():
            _refuse_nan(member, f"{path}.{name}")
    elif kind is list or kind is tuple:
        for index, member in enumerate(value):
            _refuse_nan(member, f"{path}[{index}]")
    elif kind is float or kind is Decimal:
        if not math.isfinite(value):
            raise ValueError(f"{path} is {value}, which is no JSON number")
    elif kind not in _NEVER_NAN:
        _refuse_nan(msgspec.to_builtins(value, builtin_types=(Decimal, *_NEVER_NAN)), path)


_NEVER_NAN: Final = (str, int, bool, type(None), datetime, date, time, UUID, bytes)


# The one cattrs converter


def _strict(kind: type[T], *also: type) -> Callable[[Any, Any], T]:
    """Cattrs would read "false" as True and None as "None"; this takes *kind* or nothing."""

    def structure(value: Any, _: Any) -> T:
        exact = isinstance(value, (kind, *also)) and (kind is bool or not isinstance(value, bool))
        if not exact:
            raise TypeError(f"expected {kind.__name__}, got {value!r:.80}")
        return kind(value)  # type: ignore[call-arg]  # str, bool, int and Decimal all take one value

    return structure


def parse_utc(value: Any, _: Any = datetime) -> datetime:
    """Return an aware UTC datetime of an ISO 8601 text.

    Assumed: a time without an offset is UTC; fractions beyond microseconds are cut.
    """
    if not isinstance(value, str):
        raise TypeError(f"expected an ISO 8601 text, got {value!r:.80}")
    moment = datetime.fromisoformat(value)
    return moment.replace(tzinfo=UTC) if moment.tzinfo is None else moment.astimezone(UTC)


def _read_int(value: Any, _: Any) -> int:
    """Numbers come as strings from some platforms; anything else is refused."""
    if isinstance(value, str) and value.strip().lstrip("-").isdecimal():
        return int(value)
    return _strict_int(value, int)


def _read_choice(value: Any, _: Any) -> Any:
    if value is not None and not isinstance(value, str | int | float | bool):
        raise TypeError(f"expected a plain value, got {value!r:.80}")
    return value


_strict_int: Final = _strict(int)


def _camel(name: str) -> str:
    head, *tail = name.rstrip("_").split("_")
    return head + "".join(part.capitalize() for part in tail)


def _register(converter: Converter, model: type[Any]) -> None:
    """Teach *converter* one of our shapes: camelCase in, the unknown kept in ``extra``."""
    names = {attribute.name: _camel(attribute.name) for attribute in attrs.fields(model)}
    known = frozenset(names.values())
    overrides = {
        ours: override(omit=True) if ours == "extra" else override(rename=theirs)
        for ours, theirs in names.items()
    }
    attrs.resolve_types(model)
    build = make_dict_structure_fn(model, converter, **overrides)  # type: ignore[arg-type]  # cattrs' stub wants literals

    def structure(value: Any, kind: Any) -> Any:
        if not isinstance(value, Mapping):
            raise TypeError(f"expected an object, got {value!r:.80}")
        present = {name: member for name, member in value.items() if member is not None}
        built = build(present, kind)
        extra = {name: member for name, member in value.items() if name not in known}
        return attrs.evolve(built, extra=extra) if extra else built

    converter.register_structure_hook(model, structure)


def _read_status(value: Any, _: Any) -> PushStatus:
    """Assumed: new statuses appear now and then; one that is not known is not final."""
    text = _strict(str)(value, str)
    return PushStatus(text) if text in _STATUSES else PushStatus.UNKNOWN


_STATUSES: Final = frozenset(PushStatus)


def _read_validation(value: Any, _: Any) -> Validation:
    """The document leaves the inside of ``validation`` open, so nothing in it is an error."""
    if not isinstance(value, Mapping):
        return Validation(extra={"validation": value})
    known = {name: value.get(name) for name in ("errors", "warnings")}
    items = {name: _read_items(part) for name, part in known.items() if isinstance(part, list)}
    extra = {name: part for name, part in value.items() if name not in items and part is not None}
    return Validation(**items, extra=extra)


def _read_items(items: list[Any]) -> tuple[ValidationItem, ...]:
    return tuple(_read_item(item) for item in items)


def _read_item(item: Any) -> ValidationItem:
    try:
        return _converter.structure(item, ValidationItem)
    except _UNFIT:
        extra = {"item": item} if not isinstance(item, Mapping) else dict(item)
        return ValidationItem(message=str(extra.get("message", item)), extra=extra)


def _make_converter() -> Converter:
    converter = Converter(detailed_validation=False)
    for kind in (str, bool):
        converter.register_structure_hook(kind, _strict(kind))
    converter.register_structure_hook(int, _read_int)
    converter.register_structure_hook(datetime, parse_utc)
    converter.register_structure_hook(PushStatus, _read_status)
    converter.register_structure_hook(str | int | float | bool | None, _read_choice)
    converter.register_structure_hook(Validation, _read_validation)
    for model in _SHAPES:
        _register(converter, model)
    return converter


_SHAPES: Final[tuple[type[Any], ...]] = (
    ValidationItem,
    RecordRef,
    OptionEntry,
    OptionRule,
    ErrorBody,
    PushChange,
    PushOperation,
    OptionRules,
    PropertyDescription,
)


_UNFIT: Final = (TypeError, ValueError, KeyError, AttributeError, ClassValidationError)
_converter: Final = _make_converter()


def structure(value: Json, model: type[T]) -> T:
    """Return *value* as one of our shapes.

    Raises:
        MalformedResponse: It does not fit; the message says where.
    """
    try:
        return _converter.structure(value, model)
    except _UNFIT as error:
        raise MalformedResponse(f"no {model.__name__} as documented: {error!r:.200}") from None


def read_operation(value: Json) -> PushOperation:
    """Return a push operation; its connection may be spelt ``Id`` or ``Key``.

    Raises:
        MalformedResponse: It is no object, or has no key, company or status.
    """
    if not isinstance(value, Mapping):
        raise MalformedResponse(f"a push operation must be an object, not {value!r:.80}")
    named = dict(value)
    connection = named.pop("dataConnectionKey", None)
    if named.get("dataConnectionId") is None:
        named["dataConnectionId"] = connection
    named["rawStatus"] = named.get("status")
    return structure(named, PushOperation)


def read_error_body(body: bytes) -> ErrorBody | None:
    """Return the error body, or None where the text is not the one documented.

    A proxy's page or problem report is not: the service itself always sends a
    ``correlationId`` ("Other rules", 1).
    """
    try:
        read = structure(decode_json(body), ErrorBody)
    except MalformedResponse:
        return None
    documented = read.correlation_id and (read.error is not None or read.status_code is not None)
    return read if documented else None
